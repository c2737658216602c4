/**
 * The way to a service one step at a time, for `idv-agent doctor`: name, connection, tunnel, TLS, the time over there.
 * Each step tries once, within its limit, and lets go of what it opened. Never sends a credential of this device, and
 * nothing at all to a peer whose certificate was not accepted, but for a bare HEAD that asks for the time.
 */
import { lookup } from 'node:dns/promises';
import http, { type IncomingMessage } from 'node:http';
import https from 'node:https';
import { connect, isIP, type Socket } from 'node:net';
import { type PeerCertificate, type SecureContext, type TLSSocket, connect as tlsConnect } from 'node:tls';

/** Where a step leads, and by which way. */
export interface Way {
	/** `http:` or `https:`. */
	readonly url: URL;
	/** A secret, if a password stands in it; `null` for the direct way. */
	readonly proxy: string | null;
	readonly secureContext: SecureContext | null;
}

/** Whoever this device connects to first: the proxy, or the service itself. */
export function firstHop({ url, proxy }: Way): { readonly host: string; readonly port: number } {
	const hop = proxy === null ? url : new URL(proxy);
	return { host: bare(hop.hostname), port: portOf(hop) };
}

/** The addresses of a name, as every connection of the agent gets them. @throws the system's error, or `TimeoutError`. */
export async function resolveName(host: string, limitMs: number): Promise<string[]> {
	if (isIP(host) !== 0) return [host];
	const found = await within(limitMs, () => lookup(host, { all: true }));
	return found.map(({ address }) => address);
}

/** Connects and lets go. @returns the address that answered. @throws the system's error, or `TimeoutError`. */
export async function tryConnection(host: string, port: number, limitMs: number): Promise<string> {
	const socket = await openSocket(host, port, limitMs);
	const { remoteAddress = host } = socket;
	socket.destroy();
	return remoteAddress;
}

/** Has the proxy make a tunnel and lets go. @throws what the proxy answered, as `ERR_PROXY_TUNNEL` with `statusCode`. */
export async function tryTunnel(way: Way, limitMs: number): Promise<void> {
	(await openTunnel(way, limitMs)).destroy();
}

export interface Handshake {
	/** Why the certificate is not accepted; `null` when it is. */
	readonly fault: Error | null;
	/** The name of who signed it, as the certificate says. */
	readonly issuer: string;
	/** When the first certificate of the chain ends, in milliseconds since 1970. */
	readonly validToMs: number;
	readonly protocol: string;
}

/**
 * Shakes hands and lets go. A certificate that is not accepted is looked at all the same, and nothing is sent.
 * @throws what kept TLS from being spoken at all.
 */
export async function tryHandshake(way: Way, limitMs: number): Promise<Handshake> {
	const { socket, fault } = await openTls(way, limitMs);
	const shown = {
		fault,
		issuer: issuerOf(socket.getPeerCertificate(true)),
		validToMs: endOfChain(socket.getPeerCertificate(true)),
		protocol: socket.getProtocol() ?? 'TLS',
	};
	socket.destroy();
	return shown;
}

export interface ToldTime {
	/** The `Date` header. */
	readonly date: string | undefined;
	/** Whether the certificate was accepted; always `true` without TLS. */
	readonly isVerified: boolean;
	/** When the answer came, by this device's clock. */
	readonly atMs: number;
}

/** Asks for the time, by the `Date` of any answer. A clock that is wrong keeps certificates from being accepted: asked all the same. */
export async function askTime(way: Way, limitMs: number): Promise<ToldTime> {
	const { url } = way;
	const { socket, fault } =
		url.protocol === 'https:' ? await openTls(way, limitMs) : { socket: await openWay(way, limitMs), fault: null };
	try {
		const response = await within(limitMs, (signal) => {
			const answered = Promise.withResolvers<IncomingMessage>();
			const request = http.request({
				method: 'HEAD',
				path: url.pathname,
				headers: { host: url.host, connection: 'close' },
				createConnection: () => socket,
				signal,
			});
			request.once('response', answered.resolve);
			request.on('error', answered.reject);
			request.end();
			return answered.promise;
		});
		const atMs = Date.now();
		response.destroy();
		return { date: response.headers.date, isVerified: fault === null, atMs };
	} finally {
		socket.destroy();
	}
}

function openWay(way: Way, limitMs: number): Promise<Socket> {
	const { host, port } = firstHop(way);
	return way.proxy === null ? openSocket(host, port, limitMs) : openTunnel(way, limitMs);
}

function openSocket(host: string, port: number, limitMs: number): Promise<Socket> {
	return within(limitMs, (signal) => {
		const opened = Promise.withResolvers<Socket>();
		const socket = connect({ host, port });
		socket.once('connect', () => opened.resolve(socket));
		socket.on('error', opened.reject);
		signal.addEventListener('abort', () => socket.destroy(), { once: true });
		return opened.promise;
	});
}

function openTunnel({ url, proxy }: Way, limitMs: number): Promise<Socket> {
	return within(limitMs, (signal) => {
		const opened = Promise.withResolvers<Socket>();
		const { protocol, hostname, port, username, password } = new URL(proxy ?? '');
		const target = `${url.hostname}:${portOf(url)}`;
		const user = `${decodeURIComponent(username)}:${decodeURIComponent(password)}`;
		const request = (protocol === 'https:' ? https : http).request({
			host: bare(hostname),
			port: port || portOf({ protocol, port }),
			method: 'CONNECT',
			path: target,
			headers: {
				host: target,
				...(user !== ':' && { 'proxy-authorization': `Basic ${Buffer.from(user).toString('base64')}` }),
			},
			agent: false,
			signal,
		});
		request.once('connect', (response, socket) => {
			if (response.statusCode === 200) return opened.resolve(socket);
			socket.destroy();
			opened.reject(refusedTunnel(response));
		});
		request.once('response', (response) => {
			response.destroy();
			opened.reject(refusedTunnel(response));
		});
		request.on('error', opened.reject);
		request.end();
		return opened.promise;
	});
}

function refusedTunnel({ statusCode }: IncomingMessage): Error {
	return Object.assign(new Error('The proxy refused the tunnel.'), { code: 'ERR_PROXY_TUNNEL', statusCode });
}

async function openTls(way: Way, limitMs: number): Promise<{ socket: TLSSocket; fault: Error | null }> {
	const { url, secureContext } = way;
	const under = await openWay(way, limitMs);
	const host = bare(url.hostname);
	try {
		return await within(limitMs, (signal) => {
			const shaken = Promise.withResolvers<{ socket: TLSSocket; fault: Error | null }>();
			const socket = tlsConnect({
				socket: under,
				host,
				...(isIP(host) === 0 && { servername: host }),
				...(secureContext && { secureContext }),
				// Looked at by hand just below: what a stranger shows is what has to be told.
				rejectUnauthorized: false,
			});
			socket.once('secureConnect', () => shaken.resolve({ socket, fault: faultOf(socket) }));
			socket.on('error', shaken.reject);
			socket.once('close', () => shaken.reject(Object.assign(new Error('closed'), { code: 'ECONNRESET' })));
			signal.addEventListener('abort', () => socket.destroy(), { once: true });
			return shaken.promise;
		});
	} catch (error) {
		under.destroy();
		throw error;
	}
}

function faultOf({ authorized, authorizationError }: TLSSocket): Error | null {
	if (authorized) return null;
	const reason: unknown = authorizationError;
	return reason instanceof Error ? reason : Object.assign(new Error('certificate'), { code: String(reason) });
}

function issuerOf({ issuer }: PeerCertificate): string {
	const name = issuer?.CN ?? issuer?.O ?? 'nobody named';
	return String(Array.isArray(name) ? name[0] : name);
}

function endOfChain(leaf: PeerCertificate): number {
	let earliest = Number.POSITIVE_INFINITY;
	const seen = new Set<string>();
	let one: PeerCertificate | undefined = leaf;
	while (one?.fingerprint256 && !seen.has(one.fingerprint256)) {
		seen.add(one.fingerprint256);
		earliest = Math.min(earliest, Date.parse(one.valid_to));
		one = (one as { issuerCertificate?: PeerCertificate }).issuerCertificate;
	}
	return earliest;
}

/**
 * Does something within a limit in milliseconds. @throws `TimeoutError` when it is over; the signal tells it to let go,
 * and never aborts what was done in time.
 */
async function within<Result>(limitMs: number, act: (signal: AbortSignal) => Promise<Result>): Promise<Result> {
	const abort = new AbortController();
	const over = Promise.withResolvers<never>();
	const timer = setTimeout(() => {
		const reason = new DOMException('The limit is over.', 'TimeoutError');
		over.reject(reason);
		abort.abort(reason);
	}, limitMs);
	try {
		return await Promise.race([act(abort.signal), over.promise]);
	} finally {
		clearTimeout(timer);
	}
}

function portOf({ protocol, port }: Pick<URL, 'protocol' | 'port'>): number {
	return Number(port) || (protocol === 'https:' ? 443 : 80);
}

/** Without the brackets of an IPv6 address. */
function bare(hostname: string): string {
	return hostname.replace(/^\[(.*)\]$/, '$1');
}
