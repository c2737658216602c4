/**
 * One attempt to reach a host, and the facts of the way there: addresses, connection, certificate, time. For diagnosis.
 * Tries once, within a limit, and closes what it opened. Never sends a credential of this device; a host whose certificate
 * is not accepted gets a bare HEAD only, which asks for the time.
 */
import http, { type Agent } from 'node:http';
import https from 'node:https';
import type { PeerCertificate, TLSSocket } from 'node:tls';
import { type Lookup, race } from './race.edge.ts';

export interface Reach {
	/** The addresses of the name; empty when it was not resolved, or is an address itself. */
	readonly resolved: Promise<readonly string[]>;
	/** The address that accepted the connection, or why none did. Never rejects. */
	readonly connected: Promise<{ readonly address: string } | { readonly error: Error }>;
}

/** Connects to the host that comes first on the way: the proxy, or the service itself. */
export function reach(hop: URL, lookup: Lookup, limitMs: number): Reach {
	const host = hop.hostname.replace(/^\[(.*)\]$/, '$1');
	const run = race({ host, port: Number(hop.port) || (hop.protocol === 'https:' ? 443 : 80) }, lookup, limitMs);
	const connected = run.won.then(
		(socket) => {
			const address = socket.remoteAddress ?? host;
			socket.destroy();
			return { address };
		},
		(error: Error) => ({ error }),
	);
	return { resolved: run.resolved, connected };
}

export interface ShownCertificate {
	/** Why it is not accepted; `null` when it is. */
	readonly fault: Error | null;
	/** Name of the authority that signed it. */
	readonly issuer: string;
	/** When the first certificate of the chain ends, in milliseconds since 1970. */
	readonly validToMs: number;
	/** `TLSv1.3` */
	readonly protocol: string;
}

export interface Inspection {
	/** `null` without TLS, and when the handshake did not come to an end. */
	readonly certificate: ShownCertificate | null;
	/** The `Date` header of the answer. */
	readonly date: string | undefined;
	/** When the attempt ended, by this device's clock. */
	readonly atMs: number;
	/** Why there is no answer; `null` when there is one. */
	readonly error: Error | null;
}

/** Asks for the head of a page. @param agent goes by the agent's own way, but accepts every certificate; ends here. */
export async function inspect(url: URL, agent: Agent, limitMs: number): Promise<Inspection> {
	const ended = Promise.withResolvers<Pick<Inspection, 'date' | 'error'>>();
	const isSecure = url.protocol === 'https:';
	let certificate: ShownCertificate | null = null;
	const timer = setTimeout(() => {
		ended.resolve({ date: undefined, error: new DOMException('The limit is over.', 'TimeoutError') });
	}, limitMs);
	const request = (isSecure ? https : http).request(url, {
		method: 'HEAD',
		agent,
		// Ends a proxy that makes no tunnel before the limit ends everything: the two have different causes.
		timeout: limitMs / 2,
	});
	request.once('socket', (socket) => {
		const look = () => {
			certificate = readCertificate(socket as TLSSocket);
		};
		if (isSecure) socket.once('secureConnect', look);
	});
	request.once('response', ({ headers }) => ended.resolve({ date: headers.date, error: null }));
	request.on('error', (error) => ended.resolve({ date: undefined, error }));
	request.end();
	const end = await ended.promise;
	clearTimeout(timer);
	request.destroy();
	agent.destroy();
	return { certificate, ...end, atMs: Date.now() };
}

function readCertificate(socket: TLSSocket): ShownCertificate {
	const shown = socket.getPeerCertificate(true);
	const name = shown.issuer?.CN ?? shown.issuer?.O ?? 'an authority without a name';
	return {
		fault: socket.authorized ? null : Object.assign(new Error('certificate'), { code: `${socket.authorizationError}` }),
		issuer: String(Array.isArray(name) ? name[0] : name),
		validToMs: endOfChain(shown),
		protocol: socket.getProtocol() ?? 'TLS',
	};
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
