/** The channel's sockets, in the place of those of `ws`: handshakes, frames in order, pings, goodbyes, half-open lines. */
import { EventEmitter } from 'node:events';
import type { WebSocket } from 'ws';
import type { ChannelOptions } from '../../src/connection/channel.edge.ts';
import type { Observe } from './observed.ts';
import type { Service } from './service.ts';
import type { Machine, Time } from './time.ts';

export interface Session {
	readonly id: number;
	readonly machine: Machine;
	/** Hands on in order what the service sends; `false` when the service has ended it. */
	toDevice(run: () => void): void;
	receive(text: string): void;
	/** The service ends it with a close code, or cuts it (1006). */
	end(code: number): void;
	/** The service does not count on it any more. */
	leave(): void;
	/** The device is told by its own system that the line was cut. */
	lose(): void;
	/** The line is dead, and neither side is told. */
	die(): void;
	/** What was held up on the line comes. */
	release(): void;
}

const CONNECTING = 0;
const OPEN = 1;
const CLOSING = 2;
const CLOSED = 3;
const SERVICE_PATIENCE_MS = 90_000;
const SERVICE_PING_MS = 30_000;
const ERRORS: Readonly<Record<string, [string, number]>> = {
	refused: ['ECONNREFUSED', 50],
	dns: ['ENOTFOUND', 50],
	reset: ['ECONNRESET', 80],
	badCertificate: ['CERT_NOT_YET_VALID', 90],
};

export type Sockets = ReturnType<typeof createSockets>;

export function createSockets(parts: { time: Time; service: Service; observe: Observe }) {
	const { time, service, observe } = parts;
	/** Sockets that the device holds. */
	const held = new Set<EventEmitter>();
	let sessionsOpened = 0;
	const countOpen = () => [...held].filter((socket) => (socket as FakeSocket).readyState === OPEN).length;

	class FakeSocket extends EventEmitter {
		readyState = CONNECTING;
		bufferedAmount = 0;
		readonly connection = { bytesRead: 0, localAddress: '192.0.2.7', setKeepAlive() {}, on() {}, off() {} };
		readonly machine = time.machine as Machine;
		readonly closeMs: number;
		session: Session | null = null;
		sendText: (text: string) => void = () => {};
		answerPing: () => void = () => {};
		sayGoodbye: (code: number) => void = () => {};
		vanish: () => void = () => {};
		cancelClose: () => void = () => {};

		constructor(
			authorization: string,
			options: { closeTimeout?: number; finishRequest?: (...given: never[]) => void },
		) {
			super();
			this.closeMs = options.closeTimeout ?? 3000;
			held.add(this);
			observe({ type: 'socket', atMs: time.nowMs, open: countOpen() });
			const once = (event: string, use: (socket: unknown) => void) => {
				if (event === 'socket') use(this.connection);
				return request;
			};
			const request = { once, end() {} };
			options.finishRequest?.(request as never, this as never);
			connect(this, authorization.replace(/^Connection /, ''));
		}
		ping(): void {
			this.answerPing();
		}
		send(text: string): void {
			this.sendText(text);
		}
		close(code: number): void {
			if (this.readyState !== OPEN) return;
			this.readyState = CLOSING;
			this.cancelClose = this.machine.clock.schedule(this.closeMs, () => this.gone(1006));
			this.sayGoodbye(code);
		}
		terminate(): void {
			if (this.readyState === CLOSED) return;
			const wasConnecting = this.readyState === CONNECTING;
			this.readyState = CLOSING;
			this.vanish();
			const error = new Error('WebSocket was closed before the connection was established');
			this.machine.input(0, () => this.gone(1006, wasConnecting ? error : undefined));
		}
		gone(code: number, error?: Error): void {
			if (this.readyState === CLOSED) return;
			this.readyState = CLOSED;
			this.cancelClose();
			held.delete(this);
			observe({ type: 'socketGone', atMs: time.nowMs, open: countOpen(), session: this.session?.id ?? null });
			if (error) this.emit('error', error);
			this.emit('close', code, Buffer.alloc(0));
		}
	}

	function connect(socket: FakeSocket, token: string): void {
		const { machine } = socket;
		const [code, afterMs] = ERRORS[service.line] ?? [];
		if (code !== undefined) {
			machine.input(afterMs ?? 0, () => socket.gone(1006, Object.assign(new Error(code), { code })));
			return;
		}
		if (service.line === 'hole' || service.mode === 'hangs') return;
		const refuse = (status: number, headers: Record<string, string>, body: string) =>
			time.after(service.latencyMs(), () => {
				if (service.line === 'hole') return;
				machine.input(0, () => {
					if (socket.readyState !== CONNECTING) return;
					const response = Object.assign(new EventEmitter(), { statusCode: status, headers });
					socket.emit('unexpected-response', null, response);
					response.emit('data', Buffer.from(body));
					response.emit('end');
				});
			});
		time.after(service.latencyMs(), () => {
			const refused = service.refusal();
			if (refused) return void refuse(refused.status, refused.headers, refused.body);
			const known = service.valid(token);
			const headers = { date: service.date() };
			if (!known) return void refuse(401, headers, '{}');
			if (!service.workflows.has(known.workflowId)) return void refuse(403, headers, '{}');
			const slowMs = service.mode === 'slow' ? service.latencyMs() * 60 : 0;
			time.after(service.latencyMs() + slowMs, () => {
				if (service.line === 'hole') return;
				machine.input(0, () => {
					if (socket.readyState === CONNECTING && service.valid(token)) open(socket, known);
				});
			});
		});
	}

	function open(socket: FakeSocket, known: NonNullable<ReturnType<Service['valid']>>): void {
		const { machine } = socket;
		const openedAtMs = time.nowMs;
		let isOpen = true;
		let isDead = false;
		let lastHeardMs = openedAtMs;
		let arrivesAtMs = openedAtMs;
		let waiting: (() => void)[] = [];
		let cancelExpiry = () => {};
		sessionsOpened += 1;
		const deliver = (run: () => void) => {
			if (isDead || !machine.isOn || socket.readyState === CLOSED) return;
			if (service.line === 'hole' || waiting.length > 0) waiting.push(run);
			else if (machine.isFrozen) machine.input(0, () => socket.readyState !== CLOSED && run());
			else run();
		};
		const session: Session = {
			id: sessionsOpened,
			machine,
			toDevice(run) {
				if (isDead) return;
				arrivesAtMs = Math.max(arrivesAtMs + 1, time.nowMs + service.latencyMs());
				time.after(arrivesAtMs - time.nowMs, () => deliver(run));
			},
			receive(text) {
				const bytes = Buffer.from(text);
				socket.connection.bytesRead += bytes.length;
				socket.emit('message', bytes, false);
			},
			end(code) {
				if (!isOpen) return;
				session.leave();
				session.toDevice(() => socket.gone(code));
			},
			leave() {
				isOpen = false;
				cancelExpiry();
				service.sessions.delete(session);
			},
			lose: () => machine.input(0, () => socket.gone(1006)),
			die() {
				isDead = true;
				waiting = [];
			},
			release() {
				for (const run of waiting.splice(0)) deliver(run);
			},
		};
		const reaches = () => !isDead && service.line === 'up' && isOpen;
		socket.answerPing = () => {
			if (!reaches()) return;
			arrivesAtMs = Math.max(arrivesAtMs + 1, time.nowMs + service.latencyMs() + service.latencyMs());
			time.after(arrivesAtMs - time.nowMs, () => {
				lastHeardMs = time.nowMs;
				if (!service.answersPings || isDead) return;
				deliver(() => {
					socket.connection.bytesRead += 2;
					socket.emit('pong');
				});
			});
		};
		socket.sendText = (text) => {
			const { workflowId, cadenceMs } = known;
			observe({ type: 'heartbeat', atMs: time.nowMs, session: session.id, text, workflowId, cadenceMs, openedAtMs });
			if (reaches()) lastHeardMs = time.nowMs;
		};
		socket.sayGoodbye = (code) => {
			if (!reaches()) return;
			time.after(service.latencyMs(), () => session.end(code));
		};
		socket.vanish = () => {
			if (reaches()) time.after(service.latencyMs(), session.leave);
		};
		const check = () => {
			if (!isOpen) return;
			if (time.nowMs - lastHeardMs > SERVICE_PATIENCE_MS) return session.end(1006);
			if (service.traits.pings)
				session.toDevice(() => {
					socket.connection.bytesRead += 2;
					socket.emit('ping');
				});
			time.after(service.traits.pings ? SERVICE_PING_MS : SERVICE_PATIENCE_MS, check);
		};
		time.after(SERVICE_PING_MS, check);
		const leftMs = known.endsAtMs - openedAtMs;
		if (!service.traits.isLenient)
			cancelExpiry = time.after(leftMs, () => {
				if (!isOpen) return;
				observe({ type: 'sessionExpired', atMs: time.nowMs, session: session.id });
				session.end(1008);
			});
		if (service.mode === 'dropsChannels') time.after(service.dropAfterMs, () => session.end(service.dropCode));
		socket.session = session;
		socket.readyState = OPEN;
		service.sessions.add(session);
		const { deviceId, workflowId, token } = known;
		observe({ type: 'opened', atMs: openedAtMs, open: countOpen(), session: session.id, deviceId, workflowId, token });
		socket.emit('upgrade', { headers: { date: service.date() } });
		socket.emit('open');
	}

	return {
		createSocket: ((_url, _protocols, options) => {
			const { headers } = options as { headers: Record<string, string> };
			return new FakeSocket(headers['Authorization'] ?? '', options as never) as unknown as WebSocket;
		}) as NonNullable<ChannelOptions['createSocket']>,
		get count() {
			return held.size;
		},
		/** The process is gone. A killed one is reported to the service by its system, a cut power is not. */
		drop(isPowerCut: boolean) {
			held.clear();
			for (const session of [...service.sessions]) {
				session.die();
				if (!isPowerCut) time.after(service.latencyMs(), session.leave);
			}
		},
	};
}
