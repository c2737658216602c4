/**
 * The service of the storm, in a process of its own: the embedded service behind a front that can vanish, and that lets only so
 * many connections a second through when it is back. Obeys its parent (`fleet-storm.ts`) and ends with it.
 */
import { connect, createServer, type Socket } from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';
import { startService } from '../../src/service/embedded-service.runner.ts';

/** From the parent. `limit`: connections a second from the return on; 0 for any number. */
export type Order =
	| { readonly type: 'outage'; readonly seconds: number; readonly limit: number }
	| { readonly type: 'unlimited' }
	| { readonly type: 'count' };
/** To the parent. */
export type News =
	| { readonly type: 'ready'; readonly url: string }
	| { readonly type: 'back' }
	/** The most connections that arrived within one second since the return, and how many were refused with 503. */
	| { readonly type: 'counted'; readonly peak: number; readonly arrived: number; readonly refused: number };

const TICK_MS = 10;
/** Who would wait longer than this is refused instead. */
const MAX_QUEUE_SECONDS = 2;
const REFUSAL = 'HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n';

const tell = (news: News) => process.send?.(news);

const service = await startService({ selfRegistration: true, maxLoggedRequests: 1 });
const sockets = new Set<Socket>();
let queue: Socket[] = [];
let limit = 0;
let arrivals = new Map<number, number>();
let refused = 0;
let backAtMs = performance.now();
/** Connections that may be dealt with now; negative while refusals are being paid for. */
let credit = 0;
let tickedAtMs = performance.now();

function accept(near: Socket): void {
	sockets.add(near);
	near.on('close', () => sockets.delete(near));
	near.on('error', () => {});
	const second = Math.floor((performance.now() - backAtMs) / 1000);
	arrivals.set(second, (arrivals.get(second) ?? 0) + 1);
	if (limit === 0) letThrough(near);
	else if (queue.length < limit * MAX_QUEUE_SECONDS) queue.push(near);
	else {
		refused += 1;
		// What costs a service is TLS, and a refusal comes after it. The debt is bounded: nobody accepts without end.
		credit = Math.max(-limit * MAX_QUEUE_SECONDS, credit - 1);
		near.end(REFUSAL);
		// Unread, it would never be seen to close.
		near.resume();
	}
}

function letThrough(near: Socket): void {
	if (near.destroyed) return;
	const far = connect(service.port, '127.0.0.1');
	sockets.add(far);
	far.on('close', () => sockets.delete(far));
	far.on('error', () => near.destroy());
	near.on('close', () => far.destroy());
	far.on('close', () => near.destroy());
	near.pipe(far);
	far.pipe(near);
}

setInterval(() => {
	const nowMs = performance.now();
	// By the time that has passed, not by ticks: a busy process must not be a slower service.
	credit = Math.min(limit, credit + (limit * (nowMs - tickedAtMs)) / 1000);
	tickedAtMs = nowMs;
	const now = limit === 0 ? queue.length : Math.min(queue.length, Math.max(0, Math.floor(credit)));
	credit -= now;
	const served = queue.slice(0, now);
	queue = queue.slice(now);
	for (const near of served) letThrough(near);
}, TICK_MS);

const listen = (port: number) => {
	const server = createServer(accept);
	return new Promise<typeof server>((resolve) =>
		server.listen({ port, host: '127.0.0.1', backlog: 4096 }, () => resolve(server)),
	);
};
let front = await listen(0);
const { port } = front.address() as { port: number };

process.on('message', async (order: Order) => {
	switch (order.type) {
		case 'outage': {
			const closed = new Promise((resolve) => front.close(resolve));
			queue = [];
			for (const socket of sockets) socket.destroy();
			await closed;
			await pause(order.seconds * 1000);
			limit = order.limit;
			credit = 0;
			arrivals = new Map();
			refused = 0;
			backAtMs = performance.now();
			front = await listen(port);
			return tell({ type: 'back' });
		}
		case 'unlimited':
			limit = 0;
			return;
		case 'count': {
			const each = [...arrivals.values()];
			const arrived = each.reduce((sum, one) => sum + one, 0);
			return tell({ type: 'counted', peak: Math.max(0, ...each), arrived, refused });
		}
	}
});
process.on('disconnect', () => process.exit(0));
tell({ type: 'ready', url: `http://127.0.0.1:${port}` });
