/**
 * The page on the kiosk's own screen, if the settings ask for one: its files, the device's state live, and the pairing of a
 * device that waits for a code, on the listener `page` of the local server. Every caller can read, ask the
 * agent to try again now, and pair such a device with the PIN; nothing else. Must never show a code, a PIN, or a content of a notification that the settings do not ask for.
 */
import { join } from 'node:path';
import type * as z from 'zod';
import type { Agent } from '../agent/agent.runner.ts';
import type { Audit } from '../audit/audit.runner.ts';
import type { Clock } from '../base/clock.edge.ts';
import type { Counters } from '../base/counters.ts';
import { AgentError, type Failure, failure, type Params, toFailure } from '../base/errors.ts';
import type { Entry } from '../events/event.ts';
import { audited } from '../local-api/audited.runner.ts';
import {
	type EventSink,
	formatEvent,
	type LocalReply,
	type LocalRoute,
	localRoute,
	openToGroup,
	socketFailed,
} from '../local-api/server/local-server.edge.ts';
import { isSameSecret, openLoopbackServer } from '../local-api/server/loopback-server.edge.ts';
import { unsent } from '../pairing/code-worth.ts';
import type { PairResult } from '../protocol/local-api.ts';
import type { Proposal, Scanning } from '../scanning/scanning.runner.ts';
import type { Settings } from '../settings/table.ts';
import type { HistoryEntry } from '../status/history.ts';
import { PAGE_FILES, readPageFile } from './files.edge.ts';
import { writeOpening } from './opening.edge.ts';
import { afterWrongPin, NO_TRIES, type PinNeed, pauseLeftMs, pinNeed } from './pin.ts';
import { pastOf, type TimelineSegment, withState } from './timeline.ts';
import { dismissSchema, inspectSchema, type PageEvent, type PageView, pairSchema } from './view.ts';

export interface PageParts {
	/** 0 takes a free one. Taken once. */
	readonly port: number;
	readonly agent: Pick<
		Agent,
		'status' | 'standing' | 'isAttested' | 'onStatus' | 'inspectPairing' | 'pair' | 'reconnect' | 'warn'
	> & {
		readonly events: Pick<Agent['events'], 'subscribe' | 'onErase'>;
	};
	/** The scanned code that waits for a confirmation. */
	readonly scanning: Pick<Scanning, 'proposal' | 'dismiss'>;
	readonly counters: Pick<Counters, 'wrongPins'>;
	readonly clock: Pick<Clock, 'wallMs' | 'monotonicMs' | 'sleptMs'>;
	/** The history on the disk, read once. */
	readonly history: () => readonly HistoryEntry[];
	/** As they are now. */
	readonly settings: () => Pick<Settings, 'baseUrl' | 'page' | 'pairing'>;
	/** The PIN that pairing requires, as it is now; `null` for none. */
	readonly pin: () => string | null;
	readonly audit: Pick<Audit, 'record' | 'settled'>;
	/** Where the file is kept by which the kiosk opens the page, and the group that may read it. */
	readonly kiosk: { readonly runDir: string; readonly group: string };
	/** Told of wrong PINs. */
	readonly onWrongPins: (reason: Failure) => void;
	/** Called with the cause of every answer `internal`, and with connections that could not be accepted. */
	readonly onFault: (error: unknown) => void;
	/** Between two signs of life for open pages, in milliseconds. */
	readonly keepAliveMs?: number;
}

export type Page = Awaited<ReturnType<typeof openPage>>;

export const SHOWN_EVENTS = 20;
/** Of a kind and of a content, in characters. */
const SHOWN_LENGTH = 200;
/** Open pages. */
export const MAX_STREAMS = 8;
const LIMITS = { connections: 32, streamQueueBytes: 256 * 1024, keepAliveMs: 5_000 };
/** How soon a browser reconnects, as a frame of the stream. */
const RETRY = Buffer.from('retry: 2000\n\n');
/** Between two tries that people at the screen ask for, all of them together. */
const RETRY_PAUSE_MS = 5_000;
/** Wrong PINs that the status reports. */
const TOLD_WRONG_PINS = 3;
const TOLD = {
	kiosk: ['on the page of this device', 'Look at who uses the screen.'],
	others: [
		'on the page of this device, outside of its kiosk',
		'Look at who uses the screen, and which programs run here; let the kiosk open page.html of the run directory.',
	],
} as const;

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

/** Listens on 127.0.0.1. @throws AgentError `socket-failed` when the port is taken or may not be used. */
export async function openPage(parts: PageParts) {
	const { agent, scanning, clock, settings, pin, keepAliveMs = LIMITS.keepAliveMs } = parts;
	const pages = new Set<EventSink>();
	const checkPin = createPinCheck(parts);
	let shown: readonly Entry[] = [];
	let timeline: readonly TimelineSegment[] = readPast(parts);
	let announcing: NodeJS.Immediate | null = null;
	let retriedAtMs = Number.NEGATIVE_INFINITY;

	function view(): PageView {
		const { state, summary, pairedAt, pairedAtBy, agentVersion, startedAt, ...rest } = agent.status();
		const { deviceId, deviceType, serial, macAddress, baseUrl, workflow, problem, warnings } = rest;
		const identity = { deviceId, deviceType, serial, macAddress, baseUrl, workflow };
		const { contents, language, support } = settings().page;
		return {
			nowMs: clock.wallMs(),
			language,
			support,
			status: { state, summary, pairedAt, pairedAtBy, agentVersion, startedAt, ...identity, problem, warnings },
			lastHeartbeatAt: rest.channel.lastHeartbeatAt,
			events: shown.map((entry) => toPageEvent(entry, contents)),
			timeline: timeline.map(({ fromMs, state }) => ({ fromMs: fromMs + setMs(clock), state })),
			standing: agent.standing(),
			pinNeed: needs(),
			proposal: shownProposal(),
		};
	}

	function needs(): PinNeed {
		const { baseUrl, pairing } = settings();
		const knowsService = baseUrl !== null || pairing.trustedOrigins.length > 0;
		return pinNeed(pin(), agent.standing(), knowsService, agent.isAttested());
	}

	function shownProposal(): PageView['proposal'] {
		const proposal = scanning.proposal();
		if (!proposal) return null;
		const { host, hostInUnicode, baseUrl, workflowId } = proposal.preview;
		return { id: proposal.id, host, baseUrl, workflowId, ...(hostInUnicode !== undefined && { hostInUnicode }) };
	}

	/** @throws AgentError when it is gone or another one: a person confirms the host that the screen shows. */
	function proposalOf(id: number): Proposal {
		const proposal = scanning.proposal();
		if (proposal?.id === id) return proposal;
		throw new AgentError('pairing-unconfirmed', 'The code that was scanned is not waiting any more.', {
			remedy: 'Scan the code again.',
			params: { reason: 'gone' },
		});
	}

	async function pair({ pin: given, opening, ...asked }: z.infer<typeof pairSchema>): Promise<PairResult> {
		if (agent.standing() === 'paired') throw unsent(new AgentError('already-paired', 'This device is paired already.'));
		const isKiosk = secret !== null && opening !== undefined && isSameSecret(secret, opening);
		checkPin(needs(), given, isKiosk ? 'kiosk' : 'others');
		if (!('proposal' in asked)) return agent.pair({ ...asked, replace: false });
		const { proposal: id, ...more } = asked;
		const { code, preview } = proposalOf(id);
		try {
			const trustOrigin = preview.baseUrl === null ? undefined : new URL(preview.baseUrl).origin;
			const paired = await agent.pair({ ...more, code, replace: false, ...(trustOrigin && { trustOrigin }) });
			scanning.dismiss();
			return paired;
		} catch (error) {
			// Spent or refused: another try needs another scan. Without its workflow it is still good.
			const { code: refused, params } = toFailure(error);
			const isGood = refused === 'workflow-missing' && params?.['pairingCode'] !== 'used';
			if (!isGood && params?.['workflows'] === undefined) scanning.dismiss();
			throw error;
		}
	}

	const frame = () => formatEvent({ event: 'view', data: JSON.stringify(view()) });

	/** A burst of changes is one message. */
	function announce(): void {
		timeline = withState(timeline, agent.status().state, clock.wallMs() - setMs(clock));
		if (pages.size > 0) announcing ??= setImmediate(send);
	}

	function send(): void {
		announcing = null;
		const message = frame();
		for (const page of pages) page.sendAll(message);
	}

	function openStream(): LocalReply {
		// A silent client must not lock the page: the window that has been open for longest makes room, and opens again.
		if (pages.size >= MAX_STREAMS) for (const oldest of [...pages].slice(0, 1)) oldest.close('slow');
		return {
			stream(sink) {
				pages.add(sink);
				sink.sendAll(Buffer.concat([RETRY, frame()]));
				return () => pages.delete(sink);
			},
		};
	}

	const listeners = ['page'] as const;
	const get = (path: string, handle: LocalRoute['handle']) => localRoute({ method: 'GET', path, listeners, handle });
	/** @param action as the operation on `admin.sock` is called. */
	const post = <Body>(path: string, action: string, handle: LocalRoute<Body>['handle'], body?: z.ZodType<Body>) => {
		const route = localRoute({ method: 'POST', path, listeners, handle, ...(body && { body }) });
		return audited(route, { action, entrance: 'page', audit: parts.audit });
	};
	const routes = [
		...Object.entries(PAGE_FILES).map(([path, file]) => {
			const headers = { 'Content-Type': file.type };
			return get(path, async () => ({ status: 200, headers, text: await readPageFile(file) }));
		}),
		get('/api/view', () => ok(view())),
		get('/api/live', openStream),
		post(
			'/api/inspect',
			'inspectPairing',
			({ body }) => ok(agent.inspectPairing({ ...body, replace: false })),
			inspectSchema,
		),
		post('/api/pair', 'pair', async ({ body }) => ok(await pair(body)), pairSchema),
		post('/api/retry', 'reconnect', () => {
			if (clock.monotonicMs() - retriedAtMs >= RETRY_PAUSE_MS) {
				retriedAtMs = clock.monotonicMs();
				agent.reconnect();
			}
			return { status: 202, body: {} };
		}),
		post(
			'/api/dismiss',
			'dismissCode',
			({ body: { proposal } }) => {
				if (scanning.proposal()?.id === proposal) scanning.dismiss();
				return ok({});
			},
			dismissSchema,
		),
	];
	const limits = { ...LIMITS, keepAliveMs };
	const { port, onFault } = parts;
	const serving = { routes, limits, onFault };
	const server = await openLoopbackServer({ listener: 'page', headers: HEADERS, port, ...serving });
	const url = `http://127.0.0.1:${server.port}/`;
	const secret = await giveOpening(parts, url);

	const unsubscribe = agent.events.subscribe((entries) => {
		const notifications = entries.filter(({ type }) => type === 'notification');
		shown = [...shown, ...notifications].slice(-SHOWN_EVENTS);
	});
	const stopErasing = agent.events.onErase((matches) => {
		shown = shown.filter((entry) => !matches({ ...entry, keptMs: Date.parse(entry.at) }));
		announce();
	});
	const stopListening = agent.onStatus(announce);
	// "Offline for 4 min" becomes 5 without any change, and a page that hears nothing knows that no agent answers.
	const refresh = setInterval(() => pages.size > 0 && send(), keepAliveMs).unref();

	return {
		/** `http://127.0.0.1:8765/` */
		url,
		close(): Promise<void> {
			unsubscribe();
			stopErasing();
			stopListening();
			clearInterval(refresh);
			if (announcing) clearImmediate(announcing);
			parts.agent.warn('page.html', null);
			return server.close();
		},
	};
}

/** How far the wall clock is ahead of the time that the machine itself counts, which is not set. */
const setMs = (clock: PageParts['clock']) => clock.wallMs() - clock.monotonicMs() - clock.sleptMs();

/** The last day, in the machine's time. A page without a past is still a page. */
function readPast({ agent, clock, history, onFault }: PageParts) {
	const nowMs = clock.wallMs();
	let past: readonly TimelineSegment[] = [];
	try {
		past = pastOf(history(), nowMs);
	} catch (error) {
		onFault(error);
	}
	const ahead = setMs(clock);
	return withState(past, agent.status().state, nowMs).map(({ fromMs, state }) => ({ fromMs: fromMs - ahead, state }));
}

/** @returns the secret that is in the file by which the kiosk opens the page. */
async function giveOpening({ kiosk, agent }: PageParts, url: string): Promise<string | null> {
	const file = join(kiosk.runDir, 'page.html');
	try {
		const secret = writeOpening(file, url);
		agent.warn('page.html', await openToGroup(file, kiosk.group, 0o640));
		return secret;
	} catch (error) {
		agent.warn('page.html', socketFailed(`Cannot write ${file}`, error).failure);
		return null;
	}
}

function toPageEvent({ id, at, kind, content }: Entry, withContent: boolean): PageEvent {
	return {
		id,
		at,
		kind: kind.slice(0, SHOWN_LENGTH),
		...(withContent ? { content: content.slice(0, SHOWN_LENGTH) } : {}),
	};
}

const ok = (body: unknown): LocalReply => ({ status: 200, body });

/**
 * Tries of the kiosk's page and of all other callers are counted apart: those of another program do not delay a person at the screen.
 * @returns a function that throws AgentError `access-denied` unless it is given the PIN that is required now.
 */
function createPinCheck({ pin, agent, clock, counters, onWrongPins }: PageParts) {
	const tries = { kiosk: NO_TRIES, others: NO_TRIES };
	type Caller = keyof typeof tries;
	const deny = (message: string, remedy: string, more: { params: Params; retryAfterMs?: number }) =>
		new AgentError('access-denied', message, { remedy, ...more });

	function wrong(by: Caller): void {
		tries[by] = afterWrongPin(tries[by], clock.monotonicMs());
		counters.wrongPins += 1;
		const { wrong } = tries[by];
		if (wrong < TOLD_WRONG_PINS) return;
		const [where, remedy] = TOLD[by];
		const told = { params: { tries: wrong, by }, remedy };
		const reason = failure('access-denied', `A wrong PIN was typed ${wrong} times ${where}.`, told);
		agent.warn(`wrong-pins-${by}`, reason);
		onWrongPins(reason);
	}

	return (need: PinNeed, given: string | undefined, by: Caller): void => {
		if (need === 'nothing') return;
		if (need === 'setting')
			throw deny('Pairing on this page requires a PIN.', 'Set page.pinFile, or pair with idv-agent pair.', {
				params: { reason: 'setting' },
			});
		if (need === 'longerPin')
			throw deny('The PIN of this page must have six or more digits.', 'Put a longer one into page.pinFile.', {
				params: { reason: 'longerPin' },
			});
		const leftMs = pauseLeftMs(tries[by], clock.monotonicMs());
		if (leftMs > 0)
			throw deny('Too many wrong PINs.', 'Wait, then type the PIN of this site.', {
				params: { reason: 'pause', seconds: Math.ceil(leftMs / 1000) },
				retryAfterMs: leftMs,
			});
		if (given !== undefined && isSameSecret(pin() ?? '', given)) {
			tries[by] = NO_TRIES;
			agent.warn(`wrong-pins-${by}`, null);
			return;
		}
		if (given) wrong(by);
		throw deny(given ? 'The PIN is wrong.' : 'Pairing on this page requires a PIN.', 'Type the PIN of this site.', {
			params: { reason: given ? 'wrong' : 'missing' },
		});
	};
}
