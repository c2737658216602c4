/**
 * The open channels of all devices: accepting, heartbeats, presence, expiry, sending, and the faults of an open channel.
 * Decides nothing about credentials; remembers nothing of a device but through the registry.
 * Source: assumed (channel-handshake), assumed (close-codes); of service-interface, Endpoints 6, only the name is published.
 */
import { EventEmitter, once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { type ServerOptions, type WebSocket, WebSocketServer } from 'ws';
import type { Heartbeat } from '../protocol/channel.ts';
import { DEFAULT_HEARTBEAT_CADENCE } from '../protocol/device-connection.ts';
import { type ChannelDialect, speakDialect } from './channel-dialect.runner.ts';
import type { ConnectionClaims } from './connection-tokens.runner.ts';
import type { DeviceRegistry } from './device-registry.ts';
import type { EventLog } from './event-log.runner.ts';
import type { ChannelFilter, ServiceSettings } from './options.runner.ts';
import { ProblemResponse, serviceFull } from './problems.ts';
import type { Recorder } from './transcript-recorder.runner.ts';

/** Largest frame that a device may send, in bytes: heartbeats and answers to pings are small assumed (message-size). */
const MAX_DEVICE_FRAME_BYTES = 256 * 1024;
/** A device counts as online for so many cadences after its last sign of life: assumed (device-list). */
const PRESENCE_CADENCES = 2.5;
/** Channel closed because its Connection has expired. Source: assumed (close-codes). */
const CLOSE_EXPIRED = 1008;
export const CLOSE_RESTART = 1012;
export const CLOSE_REVOKED = 4401;
export const CLOSE_REPLACED = 4409;

/** How long a peer may take to answer a close frame. */
const CLOSE_TIMEOUT_MS = 2000;
/** setTimeout fires at once for more than this. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;
/** A stepped clock may stand just before a deadline: looking again at once would spin. */
const SHORTEST_TIMER_MS = 25;

export type ChannelHub = ReturnType<typeof createChannelHub>;

interface Channel {
	readonly claims: ConnectionClaims;
	readonly socket: WebSocket;
	readonly dialect: ChannelDialect;
	lastSeenAtMs: number;
	/** Whether its silence was already reported. */
	lapsed: boolean;
	timer: NodeJS.Timeout | undefined;
}

export function createChannelHub(
	registry: DeviceRegistry,
	eventLog: EventLog,
	{ now, maxDevices, maxBufferedBytes, dialect, oneChannelHeldSeconds }: ServiceSettings,
	recorder: Recorder | null,
) {
	const { subprotocol, idleTimeoutSeconds } = dialect;
	// The typings do not know closeTimeout yet.
	const serverOptions: ServerOptions & { readonly closeTimeout: number } = {
		noServer: true,
		clientTracking: false,
		perMessageDeflate: false,
		maxPayload: MAX_DEVICE_FRAME_BYTES,
		closeTimeout: CLOSE_TIMEOUT_MS,
		autoPong: dialect.answersPing,
		...(subprotocol !== null && { handleProtocols: () => subprotocol }),
	};
	const server = new WebSocketServer(serverOptions);
	const handshakeErrors: Error[] = [];
	server.on('wsClientError', (error) => void handshakeErrors.push(error));

	const byDevice = new Map<string, Set<Channel>>();
	/** Until when the place of a device is held that was lost. */
	const heldUntilMs = new Map<string, number>();
	const emptied = new EventEmitter();
	let openCount = 0;
	let silent = false;

	function* channels(filter: ChannelFilter = {}): Iterable<Channel> {
		const sets = filter.deviceId === undefined ? byDevice.values() : [byDevice.get(filter.deviceId) ?? []];
		for (const set of sets) {
			for (const channel of set)
				if (filter.workflowId === undefined || channel.claims.workflowId === filter.workflowId) yield channel;
		}
	}

	const eventOf = ({ claims }: Channel) => ({ deviceId: claims.deviceId, workflowId: claims.workflowId, at: now() });
	const silentAtMs = ({ claims, lastSeenAtMs }: Channel) =>
		lastSeenAtMs + PRESENCE_CADENCES * 1000 * (claims.heartbeatCadence ?? DEFAULT_HEARTBEAT_CADENCE);
	const isPresent = (channel: Channel) => now() <= silentAtMs(channel);
	const isOnline = (deviceId: string) => [...channels({ deviceId })].some(isPresent);

	function open(socket: WebSocket, claims: ConnectionClaims): void {
		const spoken = speakDialect(dialect, claims, {
			send: (text) => deliver(channel, text, false),
			close: (code, reason) => socket.close(code, reason),
		});
		const channel: Channel = { claims, socket, dialect: spoken, lastSeenAtMs: now(), lapsed: false, timer: undefined };
		const ofDevice = byDevice.get(claims.deviceId) ?? new Set<Channel>();
		byDevice.set(claims.deviceId, ofDevice.add(channel));
		openCount += 1;

		socket.on('message', (data, isBinary) => hear(channel, spoken.read(isBinary ? null : data.toString())));
		socket.on('ping', () => hear(channel, null));
		socket.on('close', (code) => forget(channel, code));
		// A peer broke the protocol or the line: 'close' follows and is reported.
		socket.on('error', () => {});
		if (silent) socket.pause();
		arm(channel);
		eventLog.emit('device-online', eventOf(channel));
	}

	function hear(channel: Channel, heartbeat: Heartbeat | null): void {
		channel.lastSeenAtMs = now();
		const wasLapsed = channel.lapsed;
		channel.lapsed = false;
		if (heartbeat) {
			registry.noteHeartbeat(heartbeat, channel.lastSeenAtMs);
			eventLog.emit('heartbeat', { ...eventOf(channel), heartbeat });
		}
		if (!wasLapsed) return;
		arm(channel);
		eventLog.emit('device-online', eventOf(channel));
	}

	function forget(channel: Channel, code: number): void {
		clearTimeout(channel.timer);
		channel.dialect.stop();
		const { deviceId } = channel.claims;
		const ofDevice = byDevice.get(deviceId);
		ofDevice?.delete(channel);
		if (ofDevice?.size === 0) byDevice.delete(deviceId);
		if (oneChannelHeldSeconds !== null && code === 1006)
			heldUntilMs.set(deviceId, now() + 1000 * oneChannelHeldSeconds);
		openCount -= 1;
		eventLog.emit('channel-closed', { ...eventOf(channel), code });
		if (!channel.lapsed && !isOnline(deviceId))
			eventLog.emit('device-offline', { ...eventOf(channel), reason: 'closed' });
		if (openCount === 0) emptied.emit('empty');
	}

	function checkDeadlines(channel: Channel): void {
		if (now() >= channel.claims.exp * 1000) {
			channel.socket.close(CLOSE_EXPIRED, 'connection expired');
			return;
		}
		if (!channel.lapsed && !isPresent(channel)) {
			channel.lapsed = true;
			if (!isOnline(channel.claims.deviceId))
				eventLog.emit('device-offline', { ...eventOf(channel), reason: 'silent' });
		}
		arm(channel);
	}

	/** One timer for the channel's next deadline. A heartbeat moves the deadline, not the timer: it is checked again then. */
	function arm(channel: Channel): void {
		clearTimeout(channel.timer);
		const expiresAtMs = channel.claims.exp * 1000;
		const dueAtMs = channel.lapsed ? expiresAtMs : Math.min(expiresAtMs, silentAtMs(channel) + 1);
		const delayMs = Math.min(LONGEST_TIMER_MS, Math.max(SHORTEST_TIMER_MS, dueAtMs - now()));
		channel.timer = setTimeout(() => checkDeadlines(channel), delayMs).unref();
	}

	function deliver(channel: Channel, data: string | Uint8Array, binary: boolean): boolean {
		if (silent || channel.socket.readyState !== channel.socket.OPEN) return false;
		if (channel.socket.bufferedAmount > maxBufferedBytes) {
			channel.socket.terminate();
			return false;
		}
		channel.socket.send(data, { binary });
		return true;
	}

	return {
		/** @returns `false` when the peer was gone before. @throws ProblemResponse for an upgrade that is refused. */
		accept(request: IncomingMessage, socket: Duplex, head: Buffer, claims: ConnectionClaims): boolean {
			if (openCount >= 2 * maxDevices) throw serviceFull('channels');
			const { deviceId } = claims;
			const isHeld = byDevice.has(deviceId) || now() < (heldUntilMs.get(deviceId) ?? 0);
			if (oneChannelHeldSeconds !== null && isHeld)
				throw new ProblemResponse('channel-occupied', `${deviceId} has a channel already.`);
			const offered = request.headers['sec-websocket-protocol']?.split(',').map((name) => name.trim()) ?? [];
			if (subprotocol !== null && !offered.includes(subprotocol))
				throw new ProblemResponse('subprotocol-missing', `This channel requires the subprotocol ${subprotocol}.`);
			handshakeErrors.length = 0;
			let accepted = false;
			// Without a verifyClient this calls back, or emits wsClientError, before it returns.
			server.handleUpgrade(request, socket, head, (channelSocket) => {
				accepted = true;
				recorder?.channel(request, channelSocket);
				open(channelSocket, claims);
				if (idleTimeoutSeconds !== null)
					(socket as Socket).setTimeout(idleTimeoutSeconds * 1000, () => socket.destroy());
			});
			const [error] = handshakeErrors;
			if (error) throw new ProblemResponse('upgrade-malformed', error.message);
			return accepted;
		},
		/** Sends each channel the text that is made for it, if any; returns how many devices it went to. */
		send(textFor: (claims: ConnectionClaims) => string | null, filter?: ChannelFilter): number {
			const reached = new Set<string>();
			for (const channel of channels(filter)) {
				const text = textFor(channel.claims);
				if (text !== null && deliver(channel, text, false)) reached.add(channel.claims.deviceId);
			}
			return reached.size;
		},
		/** Sends one frame to every channel as it is: invalid JSON, invalid UTF-8, binary; returns how many. */
		sendRaw: (data: string | Uint8Array, { binary = false }: { readonly binary?: boolean } = {}): number =>
			[...channels()].filter((channel) => deliver(channel, data, binary)).length,
		/** Closes with a close frame; returns how many. `keepId` spares the channels of one Connection. */
		closeChannels(code: number, reason: string, filter?: ChannelFilter, keepId?: string): number {
			const closing = [...channels(filter)].filter((channel) => channel.claims.jti !== keepId);
			for (const channel of closing) channel.socket.close(code, reason);
			return closing.length;
		},
		/** While on, no channel is read, answered or written to, and its socket stays open. HTTP continues. */
		goSilent(on: boolean): void {
			silent = on;
			for (const channel of channels()) {
				if (on) channel.socket.pause();
				else channel.socket.resume();
			}
		},
		presenceOf(deviceId: string) {
			const open = [...channels({ deviceId })];
			return { online: open.some(isPresent), workflowId: open.at(-1)?.claims.workflowId ?? null };
		},
		/** Closes what has expired and reports which devices fell silent, by the clock's present time. */
		checkDeadlines(): void {
			for (const channel of [...channels()]) checkDeadlines(channel);
		},
		/** Settles when no channel is left, or after the time. */
		async drained(timeoutMs: number): Promise<void> {
			const signal = AbortSignal.timeout(timeoutMs);
			while (openCount > 0 && !signal.aborted) await once(emptied, 'empty', { signal }).catch(() => {});
		},
		/** Destroys every channel. */
		terminate(): void {
			for (const channel of [...channels()]) channel.socket.terminate();
		},
	};
}
