/** A TCP line to a service whose faults have names. Bytes are never changed, only held back, slowed down or cut off. */
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';
import type { AtTheEnd } from './device-process.ts';

export interface Line {
	readonly port: number;
	/** Everything passes again, what was held back first. */
	heal(): Promise<void>;
	/** Connections are accepted and nothing gets through, in either direction. */
	hold(): void;
	/** Nobody listens; what is open is cut. */
	refuse(): Promise<void>;
	/** Each piece takes so long on its way, in milliseconds. */
	delay(ms: number): void;
	/** What the service says comes byte by byte, so many milliseconds apart. */
	drip(ms: number): void;
	/** Cuts what is open with a reset. */
	reset(): void;
}

type Mode =
	| { readonly name: 'pass' }
	| { readonly name: 'hold'; readonly over: Promise<void>; readonly release: () => void }
	| { readonly name: 'delay'; readonly ms: number }
	| { readonly name: 'drip'; readonly ms: number };

export async function givenLine(targetPort: number, atTheEnd: AtTheEnd): Promise<Line> {
	let mode: Mode = { name: 'pass' };
	const sockets = new Set<Socket>();
	let server = await listen(0);
	const { port } = server.address() as AddressInfo;

	async function listen(at: number): Promise<Server> {
		const opened = createServer((near) => {
			const far = connect(targetPort, '127.0.0.1');
			for (const socket of [near, far]) {
				sockets.add(socket);
				socket.on('error', () => {});
				socket.on('close', () => sockets.delete(socket));
			}
			carry(near, far, false);
			carry(far, near, true);
		});
		await new Promise<void>((resolve) => opened.listen(at, '127.0.0.1', resolve));
		return opened;
	}

	function carry(from: Socket, to: Socket, fromService: boolean): void {
		let last = Promise.resolve();
		from.on('data', (chunk: Buffer) => {
			last = last.then(() => pass(chunk, to, fromService)).catch(() => {});
		});
		// What is still on its way arrives before the end does.
		from.on('close', () => void last.then(() => to.destroySoon()));
	}

	async function pass(chunk: Buffer, to: Socket, fromService: boolean): Promise<void> {
		while (mode.name === 'hold') await mode.over;
		if (mode.name === 'delay') await pause(mode.ms);
		if (mode.name === 'drip' && fromService) {
			for (const byte of chunk) {
				to.write(Buffer.of(byte));
				if (mode.name === 'drip') await pause(mode.ms);
			}
		} else to.write(chunk);
	}

	function change(next: Mode): void {
		const before = mode;
		mode = next;
		if (before.name === 'hold') before.release();
	}

	const line: Line = {
		port,
		async heal() {
			change({ name: 'pass' });
			if (!server.listening) server = await listen(port);
		},
		hold() {
			const { promise, resolve } = Promise.withResolvers<void>();
			change({ name: 'hold', over: promise, release: resolve });
		},
		async refuse() {
			const closed = new Promise((resolve) => server.close(resolve));
			line.reset();
			await closed;
		},
		delay: (ms) => change({ name: 'delay', ms }),
		drip: (ms) => change({ name: 'drip', ms }),
		reset() {
			for (const socket of sockets) socket.resetAndDestroy();
		},
	};
	atTheEnd(async () => {
		change({ name: 'pass' });
		await line.refuse();
	});
	return line;
}
