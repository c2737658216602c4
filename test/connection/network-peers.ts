/** Real peers for the tests of the network edges: servers that are closed with their test, certificates, a CONNECT proxy. */
import { readFileSync } from 'node:fs';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import { fileURLToPath } from 'node:url';
import { onTestFinished } from 'vitest';

export function fixture(name: string): string {
	return fileURLToPath(new URL(`../fixtures/tls/${name}`, import.meta.url));
}

/** What a TLS server shows: one of the certificates in `fixtures/tls`. */
export function identity(certificate: string): { cert: string; key: string; ca: string } {
	return {
		cert: readFileSync(fixture(`${certificate}.pem`), 'utf8'),
		key: readFileSync(fixture('server.key'), 'utf8'),
		ca: readFileSync(fixture('ca.pem'), 'utf8'),
	};
}

/** Listens on a free loopback port until the test ends; then every connection is cut. */
export async function listen(server: Server): Promise<number> {
	const sockets = new Set<Socket>();
	server.on('connection', (socket: Socket) => {
		sockets.add(socket);
		socket.on('error', () => {});
		socket.once('close', () => sockets.delete(socket));
	});
	server.on('tlsClientError', () => {});
	await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
	onTestFinished(async () => {
		const closed = new Promise((resolve) => server.close(resolve));
		for (const socket of sockets) socket.destroy();
		await closed;
	});
	return (server.address() as AddressInfo).port;
}

/** A server that writes `answer` to every connection that sends a request head, and what it was sent. */
export async function rawServer(
	answer: (socket: Socket, head: string) => void,
): Promise<{ port: number; heads: string[] }> {
	const heads: string[] = [];
	const server = createServer((socket) => {
		let head = '';
		const onData = (chunk: Buffer) => {
			head += chunk.toString('latin1');
			if (!head.includes('\r\n\r\n')) return;
			socket.off('data', onData);
			heads.push(head);
			answer(socket, head);
			socket.resume();
		};
		socket.on('data', onData);
	});
	return { port: await listen(server), heads };
}

/** What may come without end in place of an answer, and Node reads on. */
export const ENDLESS: readonly (readonly [name: string, text: string])[] = [
	['early hints', 'HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n'],
	['interim answers', 'HTTP/1.1 100 Continue\r\n\r\n'],
	['empty lines', '\r\n'],
];

/** A server that answers with `text` again and again; `sent` resolves with the bytes that were written when it was left. */
export async function endlessServer(text: string): Promise<{ port: number; sent: Promise<number> }> {
	const left = Promise.withResolvers<number>();
	const { port } = await rawServer((socket) => {
		const piece = text.repeat(Math.ceil(16_384 / text.length));
		const pour = () => {
			while (!socket.destroyed && socket.write(piece));
		};
		socket.on('drain', pour).on('error', () => {});
		socket.on('close', () => left.resolve(socket.bytesWritten));
		pour();
	});
	return { port, sent: left.promise };
}

/** A port on which nobody listens. */
export async function refusedPort(): Promise<number> {
	const server = createServer();
	await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
	const { port } = server.address() as AddressInfo;
	await new Promise((resolve) => server.close(resolve));
	return port;
}

export interface ConnectProxy {
	readonly port: number;
	/** The heads of the requests it got. */
	readonly heads: readonly string[];
	/** Resolves when it was asked for the first tunnel. */
	readonly asked: Promise<void>;
	/** Resolves when a client has left a tunnel that was never made. */
	readonly abandoned: Promise<void>;
}

/** A CONNECT proxy that knows one way: every name leads to `targetPort` on loopback. */
export async function connectProxy(
	options: { targetPort?: number; status?: number; password?: string; behaviour?: 'answer' | 'hang' | 'drop' } = {},
): Promise<ConnectProxy> {
	const { targetPort = 0, status = 200, password, behaviour = 'answer' } = options;
	const asked = Promise.withResolvers<void>();
	let left = () => {};
	const abandoned = new Promise<void>((resolve) => {
		left = resolve;
	});
	const { port, heads } = await rawServer((socket, head) => {
		asked.resolve();
		socket.on('close', left);
		if (behaviour === 'drop') return socket.destroy();
		if (behaviour === 'hang') return;
		const expected = password === undefined ? null : `proxy-authorization: Basic ${btoa(password)}`.toLowerCase();
		const verdict = expected !== null && !head.toLowerCase().includes(expected) ? 407 : status;
		if (verdict !== 200) return socket.end(`HTTP/1.1 ${verdict} No\r\ncontent-length: 0\r\n\r\n`);
		const upstream = connect(targetPort, '127.0.0.1', () => {
			socket.write('HTTP/1.1 200 Connection established\r\n\r\n');
			upstream.pipe(socket).pipe(upstream);
		});
		upstream.on('error', () => socket.destroy());
		upstream.on('close', () => socket.destroySoon());
		socket.on('close', () => upstream.destroy());
	});
	return { port, heads, asked: asked.promise, abandoned };
}
