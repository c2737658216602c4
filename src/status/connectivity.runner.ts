/** Whether the device is online and since when it is not: the log lines and the gap events of outages and moves. */
import { type Clock, isoAt, isoNow } from '../base/clock.edge.ts';
import { plainDuration } from '../base/durations.ts';
import type { Log } from '../base/log.edge.ts';
import { joinSentences } from '../base/sentences.ts';
import { MAX_SLEEP_MS } from '../connection/channel.edge.ts';
import type { LineEnd } from '../connection/line-rhythm.ts';
import { failureOf } from '../connection/link.ts';
import type { Link, Registration, Supervision } from '../connection/supervisor.ts';
import type { EventsFeed } from '../events/feed.runner.ts';
import { keepGap } from '../events/notifications.ts';
import type { Dates } from '../state/dates.runner.ts';
import type { PersistedState } from '../state/persisted-state.runner.ts';
import { purposeWords } from './sentence.ts';

export interface ConnectivityFacts {
	/** Monotonic; `null` while online and before the first time. */
	readonly offlineSinceMs: number | null;
	readonly hasBeenOnline: boolean;
	/** How often the device came back since the agent started. */
	readonly reconnects: number;
	/** ISO 8601. */
	readonly lastHeartbeatAt: string | null;
	/** When the service last answered a ping. ISO 8601. */
	readonly lastAnswerAt: string | null;
	/** Of the move that does not succeed while the device is online: its link, why, and since when, ISO 8601. */
	readonly moveFails?: { readonly generation: number; readonly code: string; readonly since: string };
}

export type Connectivity = ReturnType<typeof trackConnectivity>;

export interface ConnectivityOptions {
	readonly clock: Clock;
	readonly log: Log;
	readonly events: Pick<EventsFeed, 'append' | 'appendedId' | 'newest' | 'newestAt'>;
	/** Tells the next run whether this one was stopped or has crashed. */
	readonly stateWriter: Pick<PersistedState, 'state' | 'keep'>;
	readonly dates: Pick<Dates, 'begin' | 'end'>;
	/** How long a dead channel may go unnoticed, in milliseconds; 0 for any time. */
	readonly silenceLimitMs: (link: Link) => number;
}

const NEVER: ConnectivityFacts = {
	offlineSinceMs: null,
	hasBeenOnline: false,
	reconnects: 0,
	lastHeartbeatAt: null,
	lastAnswerAt: null,
};

/** A shorter sleep of the machine counts for nothing. It is looked up only when the wall clock has jumped: that costs more than all else here. */
const LEAST_SLEEP_MS = 1000;
/** How long, after its silence was due, a line that has died may still go unnoticed: its goodbye, and a short sleep. */
const UNNOTICED_MS = 2000 + MAX_SLEEP_MS;

export function trackConnectivity({ clock, log, events, stateWriter, dates, silenceLimitMs }: ConnectivityOptions) {
	let facts = NEVER;
	/** Monotonic; the last moment up to which nothing can have been missed. `null`: not known. */
	let wholeUntilMs: number | null = null;
	/** The sleep of the machine up to then: monotonic time stands still meanwhile, and the gap would begin too late. */
	let sleptByThenMs = clock.sleptMs();
	const aheadMs = () => clock.wallMs() - clock.monotonicMs();
	/** Wall minus monotonic time when that was looked up. */
	let aheadThenMs = aheadMs();
	/** ISO 8601; what an earlier run of the agent received last. */
	let wholeUntilBefore: string | null | undefined;
	/** Whether the run before was stopped, and did not crash. */
	let wasStopped = false;
	const readBefore = () => {
		if (wholeUntilBefore !== undefined) return wholeUntilBefore;
		wholeUntilBefore = events.newestAt();
		wasStopped = stateWriter.state.stoppedAfter === events.newest();
		return wholeUntilBefore;
	};
	// Events are opened while the connection is on its way.
	clock.soon(readBefore);
	/** The link that is online. Only its own channel shows that nothing was missed. */
	let online: Link | null = null;
	let currentGeneration = 0;
	/** How long ago the channel that has just ended was last heard. */
	let heardAgoMs = 0;
	/** Causes that are in the log of this time without a link, each once, and once more when a person is needed. */
	const told = new Set<string>();
	/** Generation of the move whose failure stands in the log. */
	/** Names the move that does not succeed, and why. */
	let move = '';
	let loggedMove = { generation: 0, code: '' };

	const wholeUntil = (sinceMs: number) => isoAt(clock, sinceMs - (clock.sleptMs() - sleptByThenMs));

	const hasJumped = () => Math.abs(aheadMs() - aheadThenMs) >= LEAST_SLEEP_MS;
	const hasJustSlept = () => hasJumped() && clock.sleptMs() - sleptByThenMs >= LEAST_SLEEP_MS;

	function isWhole(nowMs: number): void {
		wholeUntilMs = nowMs;
		// A shorter sleep since then only makes a gap begin earlier.
		if (!hasJumped()) return;
		sleptByThenMs = clock.sleptMs();
		aheadThenMs = aheadMs();
	}

	/** What the service sent meanwhile may be lost for good; the application has to know. */
	function keepGapUntilNow(link: Link): void {
		const from = wholeUntilMs === null ? readBefore() : wholeUntil(wholeUntilMs);
		// A line that was left may have died before: that is noticed later, or an earlier run took it along when it crashed.
		const isSure = wholeUntilMs === null ? wasStopped : !hasJustSlept();
		const { workflowId } = link.registration.request;
		keepGap(events, isSure ? from : beforeUnnoticed(from, silenceLimitMs(link)), { workflowId, at: isoNow(clock) });
		isWhole(clock.monotonicMs());
	}

	/** Which lines have died in a sleep is noticed later: the gap is kept before what follows it. */
	function keepGapOfSleep(link: Link): void {
		lose(link, clock.monotonicMs());
		keepGapUntilNow(link);
	}

	function cameOnline(link: Link): void {
		const { hasBeenOnline, offlineSinceMs, reconnects } = facts;
		const nowMs = clock.monotonicMs();
		keepGapUntilNow(link);
		const awayMs = nowMs - (offlineSinceMs ?? nowMs);
		log.info(hasBeenOnline ? `online again after ${plainDuration(awayMs)}` : 'online', fieldsOf(link));
		told.clear();
		facts = {
			...facts,
			hasBeenOnline: true,
			offlineSinceMs: null,
			reconnects: hasBeenOnline ? reconnects + 1 : reconnects,
		};
	}

	/** Its line is gone, or may be. */
	function lose(link: Link, nowMs: number): void {
		const limitMs = silenceLimitMs(link);
		const lastMs = wholeUntilMs ?? nowMs;
		// The channel may have been dead for as long as its silence goes unnoticed, and longer in a process that stood still.
		wholeUntilMs = limitMs ? Math.max(lastMs, nowMs - Math.max(limitMs, heardAgoMs)) : lastMs;
	}

	function tell(link: Link): void {
		// The agent is being stopped.
		if (link.state.name === 'closed') return;
		const cause = failureOf(link.state);
		const needsPerson = link.state.name === 'blocked';
		// Before the first time only trouble is worth a line.
		if (!cause && (told.size > 0 || !facts.hasBeenOnline)) return;
		// What a service ends channels with is its own way to say why.
		const as = `${cause?.code} ${cause?.params?.['closeCode'] ?? ''}`;
		const asNeeded = `${as}, needs a person`;
		if (told.has(needsPerson ? asNeeded : as)) return;
		const still = told.size > 0 ? 'still ' : '';
		told.add(as);
		if (needsPerson) told.add(asNeeded);
		const what = facts.hasBeenOnline ? 'offline' : 'not online yet';
		const who = needsPerson ? ', and a person is needed' : '';
		const said =
			needsPerson && cause ? `${joinSentences(cause.message, cause.remedy)}` : (cause?.message ?? 'connecting again');
		log.warn(`${still}${what}${who}: ${said}`, { code: cause?.code, params: cause?.params, ...fieldsOf(link) });
	}

	/** The device stays online meanwhile; only this line tells a reader of the log that it is not where it should be. */
	function tellOfMove({ current, next }: Supervision): void {
		const cause = next && failureOf(next.state);
		const name =
			next && cause ? `${cause.code} ${next.registration.baseUrl} ${next.registration.request.workflowId}` : '';
		if (move !== '' && move !== name && (!next || cause)) dates.end(move);
		if (!next) move = '';
		if (!next || !cause) return;
		const { generation } = next;
		if (facts.moveFails?.generation !== generation || move !== name)
			facts = { ...facts, moveFails: { generation, code: cause.code, since: dates.begin(name) } };
		move = name;
		if (loggedMove.generation === next.generation) return;
		// Moves that the service asks for faster than they are made are one thing to report, not one each.
		const isFlood = cause.code === 'registering-too-often' && loggedMove.code === cause.code;
		loggedMove = { generation: next.generation, code: cause.code };
		if (isFlood) return;
		log.warn(`${purposeWords(next, current)} does not succeed: ${cause.message}`, {
			code: cause.code,
			params: cause.params,
			...fieldsOf(next),
		});
	}

	return {
		get facts() {
			return facts;
		},
		/** To be told of every step of the supervision. */
		follow(before: Supervision, after: Supervision) {
			const was = onlineLink(before);
			const is = onlineLink(after);
			if (is && !was) cameOnline(is);
			else if (is && was && is.generation !== was.generation) {
				if (hasJustSlept()) keepGapOfSleep(was);
				// Nothing has to have come on its channel yet: it counts as online after a while of silence, too.
				loggedMove = { generation: 0, code: '' };
				log.info('moved over without being offline', { generation: is.generation, ...fieldsOf(is) });
			}
			online = is;
			currentGeneration = after.current?.generation ?? 0;
			if (is) return tellOfMove(after);
			if (was) {
				const nowMs = clock.monotonicMs();
				lose(was, nowMs);
				facts = { ...facts, offlineSinceMs: nowMs };
			}
			if (after.current) tell(after.current);
		},
		/** The service has sent something on the channel of this link. */
		heard(generation: number): void {
			if (generation !== online?.generation) return;
			// A frame that waited while the machine slept shows nothing of the time before.
			if (hasJustSlept()) keepGapOfSleep(online);
			else isWhole(clock.monotonicMs());
		},
		/** A channel that was open has ended; one that `isLeaving` was told to close, since another has taken its place. */
		lineEnded(
			generation: number,
			registration: Registration,
			line: Pick<LineEnd, 'sinceFrameMs' | 'saidGoodbye' | 'sleptMs'>,
			isLeaving: boolean,
		): void {
			if (!isLeaving && generation === currentGeneration) heardAgoMs = line.sinceFrameMs;
			// It was dead since it was last heard: what the service has sent on it since then is lost. Also if it was new.
			else if (!line.saidGoodbye) {
				const nowMs = clock.monotonicMs();
				const { workflowId } = registration.request;
				// What this run has kept is not what an earlier one has received.
				readBefore();
				const from = isoAt(clock, nowMs - line.sinceFrameMs - line.sleptMs);
				keepGap(events, from, { workflowId, at: isoNow(clock) });
			}
		},
		/** A heartbeat has left. @param at ISO 8601. */
		beat(at: string): void {
			facts = { ...facts, lastHeartbeatAt: at };
		},
		/** A ping was answered. @param at ISO 8601. */
		answered(at: string): void {
			facts = { ...facts, lastAnswerAt: at };
		},
		/** As if it had never been online: what comes next is another pairing. */
		forget(): void {
			facts = { ...NEVER, reconnects: facts.reconnects };
			wholeUntilMs = null;
			wholeUntilBefore = null;
			told.clear();
		},
		/** The run ends in good order, and had left no channel just before. */
		stopped(): void {
			const stoppedAfter = events.appendedId ?? events.newest();
			if (stoppedAfter !== stateWriter.state.stoppedAfter) stateWriter.keep((state) => ({ ...state, stoppedAfter }));
		},
	};
}

/** @param limitMs how long a dead channel may go unnoticed; 0 for any time. */
function beforeUnnoticed(at: string | null, limitMs: number): string | null {
	return at === null || limitMs === 0 ? null : new Date(Date.parse(at) - limitMs - UNNOTICED_MS).toISOString();
}

function onlineLink({ current }: Supervision): Link | null {
	return current?.state.name === 'online' ? current : null;
}

function fieldsOf({ registration }: Link): { workflowId: string; host: string } {
	return { workflowId: registration.request.workflowId, host: new URL(registration.baseUrl).host };
}
