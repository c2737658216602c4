/**
 * Requests on connections that are kept, by undici, which is loaded with the first of them. For the requests of applications and
 * operators. Never for a one-time code: on a kept connection "not sent" and "lost" cannot be told apart.
 */
import type { AgentOptions, Agent as HttpAgent } from 'node:http';
import { isIP, type Socket } from 'node:net';
import type { Agent } from 'undici';
import { type Answer, type Asked, CONNECT_MS, TLS_STALLED } from './ask.edge.ts';
import { UNSENT } from './classify-network-error.ts';

export interface Pool {
	/** As `ask` of ask.edge.ts, but `onWrite` is called before the connection stands. A body that is a stream goes out in chunks unless its length is among the headers. */
	ask(asked: Asked): Promise<Answer>;
	/** Ends every connection, and every request that is under way. */
	close(): Promise<void>;
}

/** Opens nothing yet. @param agentFor makes the connections to an address, through a proxy where there is one. */
export function createPool(agentFor: (url: URL) => HttpAgent): Pool {
	let agent: Promise<Agent> | null = null;
	const load = async () => {
		const { Agent } = await import('undici');
		return new Agent({
			allowH2: false,
			connect: ({ protocol, host }, done) => {
				const url = new URL(`${protocol}//${host}`);
				connectBy(agentFor(url), url).then(
					(socket) => done(null, socket),
					(error: Error) => done(Object.assign(error, { [UNSENT]: true }), null),
				);
			},
		});
	};
	return {
		async ask({ method, url, headers, body, idleMs, signal, onWrite }) {
			agent ??= load();
			const dispatcher = await agent;
			onWrite?.();
			const answer = await dispatcher.request({
				origin: url.origin,
				path: `${url.pathname}${url.search}`,
				...{ method: method as 'GET', headers, body, signal },
				headersTimeout: idleMs,
				bodyTimeout: idleMs,
			});
			return Object.assign(answer.body, { statusCode: answer.statusCode, headers: answer.headers });
		},
		async close() {
			await (await agent)?.destroy();
		},
	};
}

/** A connection that stands, TLS included. */
function connectBy(agent: HttpAgent, url: URL): Promise<Socket> {
	const host = url.hostname.replace(/^\[(.*)\]$/, '$1');
	const isSecure = url.protocol === 'https:';
	const options = {
		...(agent as HttpAgent & { options: AgentOptions }).options,
		...{ host, port: Number(url.port) || (isSecure ? 443 : 80), servername: isIP(host) ? '' : host },
		// A server that speaks HTTP/2 only refuses this in the handshake.
		...(isSecure && { ALPNProtocols: ['http/1.1'] }),
	};
	return new Promise((resolve, reject) => {
		let socket: Socket | undefined;
		const end = (error: Error) => {
			clearTimeout(late);
			socket?.destroy();
			reject(error);
		};
		const late = setTimeout(() => {
			const code = socket ? TLS_STALLED : 'ETIMEDOUT';
			end(Object.assign(new Error('No connection.'), { code }));
		}, CONNECT_MS);
		const take = (made: Socket) => {
			socket = made;
			const stands = () => {
				clearTimeout(late);
				made.off('error', end);
				resolve(made);
			};
			made.once('error', end);
			if (isSecure) made.once('secureConnect', stands);
			else if (made.connecting) made.once('connect', stands);
			else stands();
		};
		// A tunnel is handed over when it stands; any other connection is there at once.
		const made = agent.createConnection(options, (error, tunnel) => {
			if (error) end(error);
			else if (tunnel && tunnel !== socket) take(tunnel as Socket);
		});
		if (made) take(made as Socket);
	});
}
