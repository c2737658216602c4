/**
 * Services that other people's libraries make, each with other choices where the published interface is silent. They share
 * nothing with the agent: no schema, no constant, no code.
 */
import { spawn } from 'node:child_process';
import { EventEmitter, once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { createRequire } from 'node:module';
import type { AddressInfo, Socket } from 'node:net';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import type { Duplex } from 'node:stream';
import type { AtTheEnd } from '../device-process.ts';

export interface ForeignServer {
	readonly port: number;
	/** Everything it told so far: `open`, `closed`, `refused`, `registered …`, `message …`, `ping`. */
	readonly told: readonly string[];
	/** The first thing told, past or to come, that matches. */
	until(pattern: RegExp): Promise<string>;
	/** Sends one text to every device. */
	send(text: string): void;
	/** Cuts every channel. */
	drop(): void;
}

const DEADLINE_MS = 60_000;

function listener() {
	const told: string[] = [];
	const news = new EventEmitter();
	return {
		told,
		say(...words: string[]) {
			told.push(words.join(' '));
			news.emit('told');
		},
		async until(pattern: RegExp): Promise<string> {
			const signal = AbortSignal.timeout(DEADLINE_MS);
			for (;;) {
				const found = told.find((line) => pattern.test(line));
				if (found !== undefined) return found;
				await once(news, 'told', { signal }).catch(() => {
					throw new Error(`Never told ${pattern}: ${told.join(' | ')}`);
				});
			}
		},
	};
}

/** One of the servers in Python; the arguments are what it takes. */
export async function startPython(script: string, args: readonly string[], atTheEnd: AtTheEnd): Promise<ForeignServer> {
	const { told, say, until } = listener();
	const child = spawn('/usr/bin/python3', [join(import.meta.dirname, script), ...args], {
		stdio: ['pipe', 'pipe', 'inherit'],
	});
	const gone = once(child, 'close');
	createInterface({ input: child.stdout }).on('line', say);
	child.stdin.on('error', () => {});
	atTheEnd(async () => {
		child.kill('SIGKILL');
		await gone;
	});
	const port = Number((await until(/^port /)).slice(5));
	return {
		port,
		told,
		until,
		send: (text) => void child.stdin.write(`${text}\n`),
		drop: () => void child.stdin.write('drop\n'),
	};
}

interface Choices {
	readonly atTheEnd: AtTheEnd;
	/** What the registration wants to see in `Authorization`, and what it answers. */
	readonly authorization: string;
	readonly answer: (response: ServerResponse) => void;
	readonly token: string;
	readonly channelPath: string;
}

/** The HTTP side, by Node alone. */
async function listen(
	{ atTheEnd, authorization, answer, token, channelPath }: Choices,
	say: (...words: string[]) => void,
	upgrade: ((request: IncomingMessage, socket: Duplex, head: Buffer) => void) | null,
) {
	const sockets = new Set<Socket>();
	const server = createServer((request, response) => {
		if (request.method !== 'POST' || !request.url?.endsWith('/api/device/connection')) {
			response.writeHead(404).end();
			return;
		}
		let body = '';
		request.setEncoding('utf8').on('data', (text: string) => {
			body += text;
		});
		request.on('end', () => {
			if (request.headers.authorization !== authorization) {
				say('refused');
				response.writeHead(401).end();
				return;
			}
			say('registered', body);
			answer(response);
		});
	});
	server.on('connection', (socket) => {
		sockets.add(socket);
		socket.on('error', () => {});
		socket.once('close', () => sockets.delete(socket));
	});
	const mayOpen = ({ url, headers }: IncomingMessage) => {
		const may = url === channelPath && headers.authorization === `Connection ${token}`;
		if (!may) say('refused');
		return may;
	};
	if (upgrade)
		server.on('upgrade', (request, socket, head) => {
			if (mayOpen(request)) upgrade(request, socket, head);
			else socket.end('HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n');
		});
	await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
	const drop = () => {
		for (const socket of sockets) socket.destroy();
	};
	atTheEnd(async () => {
		const closed = new Promise((resolve) => server.close(resolve));
		drop();
		await closed;
	});
	return { server, port: (server.address() as AddressInfo).port, drop, mayOpen };
}

interface FayePeer {
	on(name: string, act: (event: { data: unknown }) => void): void;
	send(text: string): void;
}

/** faye-websocket: the answer is a JSON string, messages name their kind in `event`. */
export async function startFaye(atTheEnd: AtTheEnd, shortToken: string, token: string): Promise<ForeignServer> {
	const Faye = createRequire(import.meta.url)('faye-websocket') as new (
		request: IncomingMessage,
		socket: Duplex,
		head: Buffer,
	) => FayePeer;
	const { told, say, until } = listener();
	const peers = new Set<FayePeer>();
	const { port, drop } = await listen(
		{
			atTheEnd,
			authorization: `Token ${shortToken}`,
			answer: (response) =>
				response.setHeader('content-type', 'application/json').end(JSON.stringify(`Connection ${token}`)),
			token,
			channelPath: '/ws/device',
		},
		say,
		(request, socket, head) => {
			const peer = new Faye(request, socket, head);
			peers.add(peer);
			say('open');
			peer.on('message', ({ data }) => say('message', String(data)));
			peer.on('close', () => {
				peers.delete(peer);
				say('closed');
			});
		},
	);
	const send = (text: string) => {
		for (const peer of peers) peer.send(text);
	};
	return { port, told, until, send, drop };
}

interface NpmRequest {
	readonly httpRequest: IncomingMessage;
	accept(): NpmPeer;
	reject(status: number): void;
}

interface NpmPeer {
	on(name: string, act: (...what: never[]) => void): void;
	sendUTF(text: string): void;
	sendBytes(bytes: Buffer): void;
	close(code: number, reason: string): void;
}

/** npm `websocket`: the answer is plain text, pings are never answered, texts that begin with `#` are sent as bytes. */
export async function startNpmWebsocket(atTheEnd: AtTheEnd, apiKey: string, token: string): Promise<ForeignServer> {
	const { server: WebSocketServer } = createRequire(import.meta.url)('websocket') as {
		server: new (options: object) => { on(name: string, act: (request: NpmRequest) => void): void };
	};
	const { told, say, until } = listener();
	const peers = new Set<NpmPeer>();
	const { server, port, drop, mayOpen } = await listen(
		{
			atTheEnd,
			authorization: `ApiKey ${apiKey}`,
			answer: (response) => response.setHeader('content-type', 'text/plain').end(`${token}\n`),
			token,
			channelPath: '/v2/devices/stream',
		},
		say,
		null,
	);
	const sockets = new WebSocketServer({ httpServer: server, keepalive: false });
	sockets.on('request', (request) => {
		if (!mayOpen(request.httpRequest)) return request.reject(401);
		const peer = request.accept();
		peers.add(peer);
		say('open');
		peer.on('ping', (cancel: () => void) => {
			cancel();
			say('ping');
		});
		peer.on('message', ({ utf8Data }: { utf8Data?: string }) => say('message', utf8Data ?? 'bytes'));
		peer.on('close', () => {
			peers.delete(peer);
			say('closed');
		});
	});
	const send = (text: string) => {
		for (const peer of peers) {
			if (text.startsWith('#')) peer.sendBytes(Buffer.from(text));
			else if (text.startsWith('close ')) peer.close(Number(text.slice(6)), 'because');
			else peer.sendUTF(text);
		}
	};
	return { port, told, until, send, drop };
}
