/** The agent's own channel, with everything noted that goes over it: for the transcript, and for what `idv probe` reads from it. */
import { WebSocket } from 'ws';
import type { Failure } from '../base/errors.ts';
import type { Transcript } from '../base/transcript.ts';
import { type Channel, type ChannelEvent, type ChannelOptions, openChannel } from '../connection/channel.edge.ts';
import { flatHeaders } from '../connection/exchange.edge.ts';
import { type ReadRefusal, readRefusal } from '../connection/read-refusal.edge.ts';
import type { Frame } from '../protocol/channel.ts';

/** One life of a channel; times in milliseconds since it was opened. */
export interface Life {
	/** What came in place of an upgrade. */
	refusal: ReturnType<ReadRefusal> | null;
	isOpen: boolean;
	readonly path?: string;
	/** Of the upgrade. */
	headers: Readonly<Record<string, string>>;
	/** The one that the service chose. */
	subprotocol: string | null;
	readonly heard: { readonly atMs: number; readonly frame: Exclude<Frame, { type: 'oversized' }> }[];
	/** More came than is kept. */
	isCut?: true;
	readonly said: { readonly atMs: number; readonly text: string }[];
	pings: number;
	pongs: number;
	/** `null`: it was open until the probe ended it. `code` is `null` where no close frame came. */
	ended: { readonly atMs: number; readonly code: number | null; readonly reason: string } | null;
	/** When the probe ended it. */
	leftMs?: number;
	/** Why, in the agent's words. */
	failure: Failure | null;
}

/** Of one channel, so that a service that speaks without end fills no memory. */
const MAX_HEARD = 20_000;
/** In bytes: each guess looks through all of it again. */
const MAX_HEARD_BYTES = 4 * 1024 * 1024;

const frameOf = (data: Buffer, isBinary: boolean) =>
	isBinary ? ({ type: 'binary', bytes: data } as const) : ({ type: 'text', text: data.toString('utf8') } as const);

const endOf = (code: number, reason: Buffer) => ({
	code: code === 1006 || code === 1005 ? null : code,
	reason: reason.toString('utf8'),
});

function requestOf({ url, headers, authorization }: ChannelOptions, offered: readonly string[]) {
	const told = {
		upgrade: 'websocket',
		...headers,
		...(authorization !== null && { authorization }),
		...(offered.length > 0 && { 'sec-websocket-protocol': offered.join(', ') }),
	};
	return { method: 'GET', path: url.pathname, query: Object.fromEntries(url.searchParams), headers: told, body: '' };
}

/** All that goes over a channel, from its opening to its end. */
function noteWire(socket: WebSocket, transcript: Transcript, exchange: number, isLeaving: () => boolean): void {
	const note = (direction: 'toService' | 'toDevice', frame: 'text' | 'binary' | 'ping' | 'pong', body = '') =>
		transcript.note({ kind: 'frame', exchange, direction, frame, body });
	const { send, ping } = socket;
	socket.send = (data: unknown) => {
		note('toService', 'text', String(data));
		send.call(socket, String(data), {});
	};
	socket.ping = (...given: Parameters<typeof ping>) => {
		note('toService', 'ping');
		ping.apply(socket, given);
	};
	socket.on('message', (data: Buffer, isBinary) => {
		if (isBinary) note('toDevice', 'binary', `[${data.length} bytes]`);
		else note('toDevice', 'text', data.toString('utf8'));
	});
	socket.on('pong', () => note('toDevice', 'pong'));
	socket.on('ping', () => note('toDevice', 'ping'));
	socket.once('open', () => {
		transcript.note({ kind: 'open', exchange, subprotocol: socket.protocol });
		socket.once('close', (code, reason) => {
			const direction = isLeaving() ? 'toService' : 'toDevice';
			transcript.note({ kind: 'close', exchange, direction, ...endOf(code, reason) });
		});
	});
}

/** @param subprotocols offered in place of the one of the options. */
export function openNoted(
	options: ChannelOptions,
	listener: (event: ChannelEvent) => void,
	transcript: Transcript,
	subprotocols?: readonly string[],
): { readonly channel: Channel; readonly life: Life } {
	const exchange = transcript.next();
	const life: Life = {
		...{ path: options.url.pathname, isOpen: false, headers: {}, subprotocol: null, heard: [], said: [] },
		...{ pings: 0, pongs: 0, refusal: null, ended: null, failure: null },
	};
	let openedMs = performance.now();
	let isLeaving = false;
	let refusal: ReadRefusal | null = null;
	let heardBytes = 0;
	const atMs = () => performance.now() - openedMs;

	function createSocket(...[address, protocols, given]: ConstructorParameters<typeof WebSocket>): WebSocket {
		const offered = subprotocols ?? protocols ?? [];
		const socket = new WebSocket(address, [...offered], given);
		noteWire(socket, transcript, exchange, () => isLeaving);
		const { send, ping } = socket;
		socket.send = (data: unknown) => {
			life.said.push({ atMs: atMs(), text: String(data) });
			send.call(socket, String(data), {});
		};
		socket.ping = (...given: Parameters<typeof ping>) => {
			life.pings += 1;
			ping.apply(socket, given);
		};
		socket.once('upgrade', ({ headers }) => {
			life.headers = flatHeaders(headers);
		});
		socket.once('unexpected-response', (_request, response) => {
			refusal = readRefusal(response, () => {});
		});
		socket.once('open', () => {
			openedMs = performance.now();
			Object.assign(life, { isOpen: true, subprotocol: socket.protocol || null });
		});
		socket.on('message', (data: Buffer, isBinary) => {
			heardBytes += data.length;
			if (life.heard.length >= MAX_HEARD || heardBytes > MAX_HEARD_BYTES) life.isCut = true;
			else life.heard.push({ atMs: atMs(), frame: frameOf(data, isBinary) });
		});
		socket.on('pong', () => {
			life.pongs += 1;
		});
		socket.once('close', (code, reason) => {
			if (life.isOpen && !isLeaving) life.ended = { atMs: atMs(), ...endOf(code, reason) };
		});
		transcript.note({ kind: 'request', exchange, ...requestOf(options, [...offered]) });
		return socket;
	}

	const channel = openChannel({ ...options, createSocket }, (event) => {
		if (event.type === 'ended') {
			life.refusal = refusal?.() ?? null;
			life.failure = event.failure;
			if (!life.isOpen)
				transcript.note({ kind: 'answer', exchange, ...(life.refusal ?? { status: 0, headers: {}, body: '' }) });
		}
		listener(event);
	});
	return {
		life,
		channel: {
			sendText: channel.sendText,
			close(code, reason) {
				isLeaving = true;
				life.leftMs = atMs();
				channel.close(code, reason);
			},
			terminate: channel.terminate,
			get bufferedAmount() {
				return channel.bufferedAmount;
			},
		},
	};
}
