/** The readers of `run.ts` in a thread of their own: they stop, are slow, take all that they get, ask for pages, or cancel. */
import { connect, type Socket } from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';
import { parentPort, workerData } from 'node:worker_threads';

const { socketPath, count } = workerData as { readonly socketPath: string; readonly count: number };
const counts = { connections: 0, bytes: 0, cancelled: 0 };
let isOver = false;
const head = (path: string) => `GET ${path} HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n\r\n`;
const STREAM = head('/v1/events/stream');
const PAGE = head('/v1/events');
const WAIT = head('/v1/events?wait=60');

/** Asks again and again, whatever becomes of it; `read` says when it has enough. */
async function ask(what: string, read: (socket: Socket, enough: () => void) => void): Promise<void> {
	while (!isOver) {
		await new Promise<void>((resolve) => {
			const socket = connect(socketPath, () => socket.write(what));
			counts.connections += 1;
			const enough = () => socket.destroy();
			socket.on('error', () => {}).once('close', () => resolve());
			read(socket, enough);
		});
		await pause(20);
	}
}

const KINDS: readonly (() => Promise<void>)[] = [
	// Takes the beginning, and then nothing.
	() => ask(STREAM, (socket) => void socket.once('data', () => socket.pause())),
	// 64 KiB at a time.
	() =>
		ask(STREAM, (socket) => {
			socket.on('data', ({ length }) => {
				counts.bytes += length;
				socket.pause();
				setTimeout(() => socket.resume(), 100);
			});
		}),
	// All that it gets, a second or two, and again from the beginning.
	() =>
		ask(STREAM, (socket, enough) => {
			socket.on('data', ({ length }) => {
				counts.bytes += length;
			});
			setTimeout(enough, 1500);
		}),
	// A page that it does not read.
	() =>
		ask(PAGE, (socket, enough) => {
			socket.pause();
			setTimeout(enough, 300);
		}),
	// A wait or a stream that it gives up.
	() =>
		ask(counts.cancelled++ % 2 ? WAIT : STREAM, (socket, enough) => {
			socket.once('connect', () => setImmediate(enough));
		}),
];

for (let at = 0; at < count; at += 1) void KINDS[at % KINDS.length]?.();
parentPort?.on('message', () => {
	isOver = true;
	parentPort?.postMessage(counts);
});
