/**
 * The way out of this device: proxy, certificate authorities and client certificate, once for the channel and for requests.
 * Never chooses what is sent, never prints a proxy's password.
 */
import { lookup as systemLookup } from 'node:dns';
import { Agent as HttpAgent, request as requestHttp } from 'node:http';
import { Agent as HttpsAgent, request as requestHttps } from 'node:https';
import { BlockList, isIP, type Socket } from 'node:net';
import type { SecureContext, TLSSocket } from 'node:tls';
import { AgentError } from '../base/errors.ts';
import { isLoopback } from '../protocol/endpoints.ts';
import { hasUntried, withDoubt } from './addresses.ts';
import { ask, boundHead, CONNECT_MS, type RequestNetwork } from './ask.edge.ts';
import { nameCertificate, type TrustedNames } from './certificates.edge.ts';
import { type Inspection, inspect, type Reach, reach } from './inspect.edge.ts';
import { type Lookup, type Race, race, type Target } from './race.edge.ts';
import { certificateLife, type ReadFile, readFileOfWay, readTls, type TlsSettings } from './tls-files.edge.ts';
import { resuming } from './tls-sessions.edge.ts';

/** When a kept connection is silent, the kernel asks so often whether it lives: Node's own second would be traffic all day. */
const KEEP_ALIVE_MS = 30_000;

export interface NetworkSettings extends TlsSettings {
	/** `http://` or `https://` address of a proxy, with user and password if it wants them. Empty: none, whatever the environment says. */
	readonly proxy?: string | undefined;
}

export interface Network extends RequestNetwork {
	/** What `ws` connects with. */
	channelAgent(url: URL): HttpAgent;
	/**
	 * The newest connection to the URL has come to nothing: the next one prefers another address of its host, or of its proxy.
	 * @returns whether there is one that was not tried yet.
	 */
	doubt(url: URL): boolean;
	/** The proxy on the way to the URL, with its user and password: a secret. `null` for the direct way. */
	proxyFor(url: URL): string | null;
	/** Connects to the proxy on the way to the URL, or to its host, and closes. For diagnosis. */
	reach(url: URL, limitMs: number): Reach;
	/** Looks at what answers at the URL, also where its certificate is not accepted. For diagnosis; never rejects. */
	inspect(url: URL, limitMs: number): Promise<Inspection>;
	/** When the client certificate begins and ends, milliseconds since 1970; left out without one. */
	readonly certificateStartMs?: number | undefined;
	readonly certificateEndMs?: number | undefined;
	/** Ends every connection that is kept for a next request; a channel that is being opened goes on. */
	retire(): void;
	/** Ends every connection that was made through it, except open channels. */
	close(): Promise<void>;
}

/**
 * Reads the files, checks the addresses and connects to nothing. HTTPS_PROXY serves https and wss, HTTP_PROXY http and ws,
 * in small letters first; NO_PROXY holds for both and for the setting as well. Loopback never goes through a proxy.
 * The proxy's own certificate is checked as that of the service; a proxy that asks for a client certificate is shown the same one.
 * @param lookup finds the addresses of a name; default: as the operating system does.
 * @param read the contents of a file; default: as they are on the disk.
 * @throws AgentError `settings-unreadable` or `settings-invalid`, naming the setting.
 */
export async function createNetwork(
	settings: NetworkSettings,
	env: Readonly<Record<string, string | undefined>>,
	lookup: Lookup = systemLookup,
	read: ReadFile = readFileOfWay,
): Promise<Network> {
	const proxyFor = readProxies(settings.proxy, env);
	const tls = readTls(settings, read);
	const agents = new Map<string, HttpAgent>();
	const names: Names = { lookup, taken: new Map(), doubted: new Map(), trusted: new Map() };

	const agentFor = (url: URL, keptMs = 0) => {
		const proxy = proxyFor(url);
		const secure = usesTls(url);
		const key = `${secure}${keptMs}${proxy ?? ''}`;
		const agent = agents.get(key) ?? createAgent(secure, proxy, tls, { names, keptMs });
		agents.set(key, agent);
		return agent;
	};

	return {
		channelAgent: (url) => agentFor(url),
		ask: (asked) => ask(agentFor(asked.url, asked.keeps), asked),
		proxyName: (url) => URL.parse(proxyFor(url) ?? '')?.host ?? null,
		doubt(url) {
			const host = withoutBrackets(new URL(proxyFor(url) ?? url).hostname);
			const taken = names.taken.get(host);
			if (taken === undefined) return false;
			const before = names.doubted.get(host) ?? [];
			names.taken.delete(host);
			names.doubted.set(host, withDoubt(before, taken.address));
			return hasUntried(before, taken.address, taken.all);
		},
		proxyFor,
		reach: (url, limitMs) => reach(new URL(proxyFor(url) ?? url), lookup, limitMs),
		...certificateLife(settings, read),
		inspect(url, limitMs) {
			const agent = createAgent(usesTls(url), proxyFor(url), tls, { names, acceptsAll: true });
			return inspect(url, agent, limitMs);
		},
		retire() {
			for (const agent of agents.values()) if (keepsConnections(agent)) retireKept(agent);
		},
		async close() {
			for (const agent of agents.values()) agent.destroy();
		},
	};
}

/** Its types do not know it. */
const keepsConnections = (agent: HttpAgent) => (agent as { keepAlive?: boolean }).keepAlive === true;
/** Requests that are under way go on, such as an answer that is passed on for hours; their connections end with them. */
function retireKept(agent: HttpAgent): void {
	Object.assign(agent, { keepAlive: false });
	for (const socket of Object.values(agent.freeSockets).flatMap((sockets = []) => sockets)) socket.destroy();
}
const withoutBrackets = (hostname: string) => hostname.replace(/^\[(.*)\]$/, '$1');
const usesTls = ({ protocol }: URL) => protocol === 'https:' || protocol === 'wss:';

function createAgent(
	secure: boolean,
	proxy: string | null,
	tls: SecureContext | null,
	{ names, acceptsAll = false, keptMs = 0 }: { names: Names; acceptsAll?: boolean; keptMs?: number },
): HttpAgent {
	const kept = { keepAlive: keptMs > 0, keepAliveMsecs: KEEP_ALIVE_MS };
	const agent = secure
		? new HttpsAgent({ ...kept, rejectUnauthorized: !acceptsAll, ...(tls && { secureContext: tls }) })
		: new HttpAgent(kept);
	const { createConnection, destroy, getName, keepSocketAlive } = agent;
	// A server may name a shorter time, at which Node looks only beside one of the agent. As an option that one would hold for connecting, too.
	const keeper = Object.assign(Object.create(agent), { options: { timeout: keptMs } });
	agent.keepSocketAlive = (socket) => keepSocketAlive.call(keeper, socket);
	agent.getName = (options) => `${getName.call(agent, options)} ${(options as { keptFor?: string }).keptFor}`;
	const way = proxy === null ? directWay(names) : tunnel(new URL(proxy), tls, names);
	const handshake = resuming((options: AgentConnectOptions) => createConnection.call(agent, options) as TLSSocket);
	const inTls = (options: AgentConnectOptions, socket: Socket) => handshake({ ...options, socket } as typeof options);
	// In plain http, too, for which Node makes no tunnel: what answers inside it can only be the service.
	agent.createConnection = (options, done = () => {}) => {
		way.open(options, (error, socket) => {
			if (socket === null) done(error, null as unknown as Socket);
			else done(null, secure ? nameCertificate(inTls(options, socket), options.host ?? '', names.trusted) : socket);
		});
		return null;
	};
	agent.destroy = () => {
		destroy.call(agent);
		way.close();
	};
	return agent;
}

/** How names are found, and what is known of their addresses. */
interface Names {
	readonly lookup: Lookup;
	/** The address that each name was connected to last, and all that it had. */
	readonly taken: Map<string, { readonly address: string; readonly all: readonly string[] }>;
	readonly doubted: Map<string, readonly string[]>;
	readonly trusted: TrustedNames;
}

/** How the connections of one agent are opened; TLS begins inside them. */
interface Way {
	open(options: AgentConnectOptions, done: (error: Error | null, socket: Socket | null) => void): void;
	close(): void;
}

type AgentConnectOptions = Parameters<HttpAgent['createConnection']>[0];

function directWay({ lookup, taken, doubted }: Names): Way {
	const races = new Set<Race>();
	return {
		open(options, done) {
			const { host = '', port, timeout, keepAlive, keepAliveInitialDelay } = options as Target;
			const target = { host, port: Number(port), timeout, keepAlive, keepAliveInitialDelay };
			const run = race(target, lookup, undefined, doubted.get(host));
			taken.delete(host);
			races.add(run);
			run.won
				.finally(() => races.delete(run))
				.then(
					async (socket) => {
						taken.set(host, { address: socket.remoteAddress ?? '', all: await run.resolved });
						done(null, socket);
					},
					(error) => done(error, null),
				);
		},
		close() {
			for (const run of races) run.cancel();
		},
	};
}

function tunnel(proxy: URL, tls: SecureContext | null, names: Names): Way {
	const { protocol, hostname, port, username, password } = proxy;
	const isTls = protocol === 'https:';
	const login = Buffer.from(`${decodeURIComponent(username)}:${decodeURIComponent(password)}`).toString('base64');
	const address = withoutBrackets(hostname);
	const toProxy = createAgent(isTls, null, tls, { names });
	return {
		open(options, done) {
			const host = options.host ?? '';
			const target = `${isIP(host) === 6 ? `[${host}]` : host}:${options.port}`;
			const asked = (isTls ? requestHttps : requestHttp)({
				method: 'CONNECT',
				host: address,
				// Or Node would take the one in the Host header.
				servername: isIP(address) ? '' : address,
				port,
				path: target,
				headers: { host: target, ...((username || password) && { 'proxy-authorization': `Basic ${login}` }) },
				agent: toProxy,
				rejectUnauthorized: true,
			});
			// A proxy that never ends its answer would hold its socket for good. The deadline of who asks says more, and comes first.
			const late = setTimeout(
				() => asked.destroy(asked.socket ? undefined : noTunnel({ code: 'ETIMEDOUT' })),
				Math.min((options.timeout ?? CONNECT_MS) + 100, CONNECT_MS),
			);
			const fail = (told: object) => done(noTunnel(told), null);
			boundHead(asked);
			asked.once('close', () => clearTimeout(late));
			asked.once('error', (cause) => fail({ cause }));
			asked.once('connect', ({ statusCode = 0, headers }, socket: Socket, first) => {
				// A portal answers a request for a tunnel with its page; a service never speaks first.
				const isPage = /\bhtml\b/i.test(headers['content-type'] ?? '') || first[0] === '<'.charCodeAt(0);
				if (statusCode >= 200 && statusCode < 300 && !isPage) {
					socket.unshift(first);
					return done(null, socket);
				}
				socket.destroy();
				fail({ statusCode, offers: headers['proxy-authenticate'], location: headers.location });
			});
			asked.end();
		},
		close: () => toProxy.destroy(),
	};
}

const noTunnel = (told: object) =>
	Object.assign(new Error('The proxy made no tunnel.'), { code: 'ERR_PROXY_TUNNEL', ...told });

type ProxyFor = (url: URL) => string | null;

function readProxies(setting: string | undefined, env: Readonly<Record<string, string | undefined>>): ProxyFor {
	const fromEnv = (name: string) => {
		const lower = name.toLowerCase();
		const used = env[lower] ? lower : name;
		return readProxy(env[used] ?? '', used);
	};
	const set = setting === undefined ? undefined : readProxy(setting, 'network.proxy');
	const https = set === undefined ? fromEnv('HTTPS_PROXY') : set;
	const http = set === undefined ? fromEnv('HTTP_PROXY') : set;
	const isExcepted = readExceptions(env['no_proxy'] || env['NO_PROXY'] || '');

	return (url) => {
		if (isLoopback(url.href)) return null;
		const proxy = usesTls(url) ? https : http;
		return proxy !== null && !isExcepted(url) ? proxy : null;
	};
}

/** @throws AgentError whose message does not repeat the address, since a password may stand in it. */
function readProxy(text: string, name: string): string | null {
	const trimmed = text.trim();
	if (trimmed === '') return null;
	// Like curl: a bare host and port is an http proxy.
	const url = URL.parse(withEscapedCredentials(trimmed.includes('://') ? trimmed : `http://${trimmed}`));
	if (!url || (url.protocol !== 'http:' && url.protocol !== 'https:') || !url.hostname || !canDecode(url))
		throw new AgentError('settings-invalid', `${name} is not the address of an http:// or https:// proxy.`);
	return url.href;
}

/** User and password end at the last `@`: characters in them that a URL would read as its own are escaped. */
function withEscapedCredentials(address: string): string {
	const [, scheme = '', credentials, rest = ''] = /^([a-z]+:\/\/)(?:(.*)@)?([^@]*)$/i.exec(address) ?? [];
	if (credentials === undefined) return address;
	const colon = credentials.indexOf(':');
	const parts = colon < 0 ? [credentials] : [credentials.slice(0, colon), credentials.slice(colon + 1)];
	return `${scheme}${parts.map(escapeOnce).join(':')}@${rest}`;
}

/** What is escaped already stays so; a percent sign that escapes nothing is one of the password's own. */
function escapeOnce(text: string): string {
	return text.replace(/%(?![0-9a-f]{2})|[^\w.~!$&'()*+,;=%-]/gi, (character) => encodeURIComponent(character));
}

function canDecode(url: URL): boolean {
	try {
		decodeURIComponent(`${url.username}:${url.password}`);
		return true;
	} catch {
		return false;
	}
}

/** Reads NO_PROXY: names (with their subdomains), `*`, addresses and networks such as `10.0.0.0/8`, each with an optional port. */
function readExceptions(list: string): (url: URL) => boolean {
	if (list === '') return () => false;
	const networks = new BlockList();
	const names: { readonly name: string; readonly port: string | null }[] = [];
	for (const entry of list
		.toLowerCase()
		.split(/[\s,]+/)
		.filter(Boolean)) {
		const [, network = '', prefix = ''] = /^([\d.]+|[\da-f:]+)\/(\d{1,3})$/.exec(entry) ?? [];
		const family = isIP(network);
		if (family !== 0 && Number(prefix) <= (family === 4 ? 32 : 128)) {
			networks.addSubnet(network, Number(prefix), family === 4 ? 'ipv4' : 'ipv6');
			continue;
		}
		const bare = isIP(entry) === 6 ? { name: entry, port: null } : splitPort(entry);
		names.push({ name: withoutBrackets(bare.name).replace(/^\*?\./, ''), port: bare.port });
	}
	return (url) => {
		const host = withoutBrackets(url.hostname).replace(/\.$/, '');
		const port = url.port || (usesTls(url) ? '443' : '80');
		const family = isIP(host);
		if (family !== 0 && networks.check(host, family === 4 ? 'ipv4' : 'ipv6')) return true;
		return names.some(
			({ name, port: only }) =>
				(only === null || only === port) &&
				(name === '*' || name === host || (family === 0 && host.endsWith(`.${name}`))),
		);
	};
}

function splitPort(entry: string): { name: string; port: string | null } {
	const [, name = entry, port = null] = /^(.*?):(\d+)$/.exec(entry) ?? [];
	return { name, port };
}
