/**
 * The page on the kiosk's own screen, if the settings ask for one: its files, the device's state live, and the pairing of an
 * unpaired device, on the listener `page` of the local server. Every caller can read, and pair an unpaired device; nothing
 * else. Must never show a code, a PIN, or a content of a notification that the settings do not ask for.
 */
import { Readable } from 'node:stream';
import * as z from 'zod';
import type { Agent } from '../agent/agent.runner.ts';
import type { Clock } from '../base/clock.edge.ts';
import { AgentError } from '../base/errors.ts';
import { sentenceOf } from '../base/sentences.ts';
import type { Entry } from '../events/event.ts';
import {
	type EventSink,
	formatEvents,
	type LocalReply,
	type LocalRoute,
	localRoute,
} from '../local-api/server/local-server.ts';
import { isSameSecret, openLoopbackServer } from '../local-api/server/loopback-server.ts';
import { type PairPreview, pairRequestSchema, type Status } from '../protocol/local-api.ts';
import type { Settings } from '../settings/table.ts';
import { PAGE_FILES, readPageFile } from './files.edge.ts';
import { type TimelineSegment, withState } from './timeline.ts';

export interface PageParts {
	/** 0 takes a free one. Taken once. */
	readonly port: number;
	readonly agent: Pick<Agent, 'status' | 'onStatus' | 'inspectPairing' | 'pair'> & {
		readonly events: Pick<Agent['events'], 'subscribe'>;
	};
	readonly clock: Pick<Clock, 'wallMs'>;
	/** As they are now. */
	readonly settings: () => Pick<Settings['page'], 'contents'>;
	/** The PIN that pairing requires, as it is now; `null` for none. */
	readonly pin: () => string | null;
	/** Called with the cause of every answer `internal`, and with connections that could not be accepted. */
	readonly onFault: (error: unknown) => void;
	/** Between two signs of life for open pages, in milliseconds. */
	readonly keepAliveMs?: number;
}

export interface Page {
	/** `http://127.0.0.1:8765/` */
	readonly url: string;
	close(): Promise<void>;
}

/** The part of a notification that the page shows. */
export interface PageEvent extends Pick<Entry, 'id' | 'at' | 'kind'> {
	/** Only where a site wants contents on a screen that is open to all. */
	readonly content?: string;
}

/** The message to an open page, at first and after every change. */
export interface PageView {
	readonly nowMs: number;
	readonly status: Pick<
		Status,
		| 'state'
		| 'sentence'
		| 'agentVersion'
		| 'startedAt'
		| 'deviceId'
		| 'deviceType'
		| 'serial'
		| 'macAddress'
		| 'baseUrl'
		| 'workflow'
		| 'problem'
		| 'warnings'
	>;
	/** Each warning as one text. */
	readonly warnings: readonly string[];
	readonly lastHeartbeatAt: string | null;
	readonly events: readonly PageEvent[];
	readonly timeline: readonly TimelineSegment[];
	readonly canPair: boolean;
	readonly wantsPin: boolean;
}

export const SHOWN_EVENTS = 20;
/** Of a content, in characters. */
const SHOWN_LENGTH = 200;
/** Open pages. */
export const MAX_STREAMS = 8;
const LIMITS = { connections: 32, streamQueueBytes: 256 * 1024, keepAliveMs: 15_000 };
/** How soon a browser reconnects, as a frame of the stream. */
const RETRY = Buffer.from('retry: 2000\n\n');
/** After so many wrong PINs, none is accepted for so long. */
const MAX_WRONG_PINS = 5;
const PIN_PAUSE_MS = 60_000;

/** Without `replace`: a person in front of the screen cannot move a device. */
const inspectSchema = pairRequestSchema.omit({ replace: true });
const pairSchema = inspectSchema.extend({ pin: z.string().max(64).optional() });

const HEADERS = {
	// WebAssembly for reading codes; otherwise only the files of this server, and never inside of another page.
	'Content-Security-Policy':
		"default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
	'Permissions-Policy': 'camera=(self), microphone=(), geolocation=()',
	'Cross-Origin-Opener-Policy': 'same-origin',
	'Cross-Origin-Resource-Policy': 'same-origin',
	'Referrer-Policy': 'no-referrer',
	'X-Frame-Options': 'DENY',
} as const;

/**
 * Listens on 127.0.0.1.
 * @throws AgentError `socket-failed` when the port is taken or may not be used.
 */
export async function openPage(parts: PageParts): Promise<Page> {
	const { agent, clock, settings, pin, keepAliveMs = LIMITS.keepAliveMs } = parts;
	const pages = new Set<EventSink>();
	const checkPin = createPinCheck(pin, clock);
	let shown: readonly Entry[] = [];
	let timeline: readonly TimelineSegment[] = [{ fromMs: clock.wallMs(), state: agent.status().state }];
	let announcing: NodeJS.Immediate | null = null;

	function view(): PageView {
		const { state, sentence, agentVersion, startedAt, ...rest } = agent.status();
		const { deviceId, deviceType, serial, macAddress, baseUrl, workflow, problem, warnings } = rest;
		const identity = { deviceId, deviceType, serial, macAddress, baseUrl, workflow };
		const { contents } = settings();
		return {
			nowMs: clock.wallMs(),
			status: { state, sentence, agentVersion, startedAt, ...identity, problem, warnings },
			warnings: warnings.map((warning) => sentenceOf(warning, 'ongoing')),
			lastHeartbeatAt: rest.channel.lastHeartbeatAt,
			events: shown.map((entry) => toPageEvent(entry, contents)),
			timeline,
			canPair: state === 'unpaired' && rest.pairedAt === null,
			wantsPin: pin() !== null,
		};
	}

	const frame = () => formatEvents([{ event: 'view', data: JSON.stringify(view()) }]);

	/** A burst of changes is one message. */
	function announce(): void {
		timeline = withState(timeline, agent.status().state, clock.wallMs());
		if (pages.size > 0) announcing ??= setImmediate(send);
	}

	function send(): void {
		announcing = null;
		const message = frame();
		for (const page of pages) page.sendAll(message);
	}

	function openStream(): LocalReply {
		if (pages.size >= MAX_STREAMS)
			throw new AgentError('access-denied', 'Too many open windows.', { remedy: 'Close other windows.' });
		return {
			stream(sink) {
				pages.add(sink);
				sink.sendAll(Buffer.concat([RETRY, frame()]));
				return () => pages.delete(sink);
			},
		};
	}

	const listeners = ['page'] as const;
	const routes: LocalRoute[] = [
		...Object.entries(PAGE_FILES).map(([path, file]) =>
			localRoute({ method: 'GET', path, listeners, handle: async () => toReply(file.type, await readPageFile(file)) }),
		),
		localRoute({ method: 'GET', path: '/api/view', listeners, handle: () => ({ status: 200, body: view() }) }),
		localRoute({ method: 'GET', path: '/api/live', listeners, handle: openStream }),
		localRoute({
			method: 'POST',
			path: '/api/inspect',
			listeners,
			body: inspectSchema,
			handle: ({ body }) => ({ status: 200, body: withSentence(agent.inspectPairing({ ...body, replace: false })) }),
		}),
		localRoute({
			method: 'POST',
			path: '/api/pair',
			listeners,
			body: pairSchema,
			async handle({ body: { pin: given, ...asked } }) {
				checkPin(given);
				if (!view().canPair) throw new AgentError('already-paired', 'This device is paired already.');
				return { status: 200, body: await agent.pair({ ...asked, replace: false }) };
			},
		}),
	];
	const limits = { ...LIMITS, keepAliveMs };
	const { port, onFault } = parts;
	const server = await openLoopbackServer({ listener: 'page', headers: HEADERS, port, routes, limits, onFault });

	const unsubscribe = agent.events.subscribe((entries) => {
		const notifications = entries.filter(({ type }) => type === 'notification');
		shown = [...shown, ...notifications].slice(-SHOWN_EVENTS);
	});
	const stopListening = agent.onStatus(announce);
	// "Offline for 4 min" becomes 5 without any change.
	const refresh = setInterval(() => {
		const { state } = agent.status();
		if (pages.size > 0 && (state === 'offline' || state === 'blocked')) send();
	}, keepAliveMs).unref();

	return {
		url: `http://127.0.0.1:${server.port}/`,
		close() {
			unsubscribe();
			stopListening();
			clearInterval(refresh);
			if (announcing) clearImmediate(announcing);
			return server.close();
		},
	};
}

function toPageEvent({ id, at, kind, content }: Entry, withContent: boolean): PageEvent {
	return { id, at, kind, ...(withContent ? { content: content.slice(0, SHOWN_LENGTH) } : {}) };
}

function toReply(type: string, bytes: Uint8Array): LocalReply {
	const headers = { 'Content-Type': type, 'Content-Length': String(bytes.byteLength) };
	return { status: 200, headers, content: Readable.from([bytes]) };
}

/** @returns a function that throws AgentError `access-denied` unless it is given the PIN that is required now. */
function createPinCheck(pin: () => string | null, { wallMs }: Pick<Clock, 'wallMs'>) {
	let wrong = 0;
	let pausedUntilMs = 0;
	return (given: string | undefined): void => {
		const required = pin();
		if (required === null) return;
		const leftMs = pausedUntilMs - wallMs();
		// A clock that was set back must not lock the page for longer.
		if (leftMs > 0 && leftMs <= PIN_PAUSE_MS)
			throw new AgentError('access-denied', 'Too many wrong PINs.', {
				remedy: 'Wait a minute, then type the PIN of this site.',
				retryAfterMs: leftMs,
			});
		if (isSameSecret(required, given ?? '')) {
			wrong = 0;
			return;
		}
		wrong += given ? 1 : 0;
		if (wrong >= MAX_WRONG_PINS) {
			wrong = 0;
			pausedUntilMs = wallMs() + PIN_PAUSE_MS;
		}
		throw new AgentError('access-denied', given ? 'The PIN is wrong.' : 'Pairing on this page requires a PIN.', {
			remedy: 'Type the PIN of this site.',
		});
	};
}

/** The preview with the text that the page shows of a code that cannot be used. */
function withSentence(preview: PairPreview): PairPreview & { readonly sentence: string | null } {
	return { ...preview, sentence: preview.problem && sentenceOf(preview.problem, 'over') };
}
