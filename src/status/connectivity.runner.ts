/** Whether the device is online and since when it is not: the log lines and the gap events of outages and moves. */
import { type Clock, isoAt, isoNow } from '../base/clock.edge.ts';
import { plainDuration } from '../base/durations.ts';
import type { Log } from '../base/log.edge.ts';
import { joinSentences } from '../base/sentences.ts';
import { type LineEnd, MAX_SLEEP_MS } from '../connection/channel.edge.ts';
import { failureOf } from '../connection/link.ts';
import type { Link, Registration, Supervision } from '../connection/supervisor.ts';
import type { EventsFeed } from '../events/feed.runner.ts';
import { keepGap } from '../events/notifications.ts';
import { purposeWords } from './sentence.ts';

/** As the status shows it. */
export interface ConnectivityFacts {
	/** Monotonic; `null` while online and before the first time. */
	readonly offlineSinceMs: number | null;
	readonly hasBeenOnline: boolean;
	/** How often the device came back since the agent started. */
	readonly reconnects: number;
	/** ISO 8601. */
	readonly lastHeartbeatAt: string | null;
}

export interface Connectivity {
	readonly facts: ConnectivityFacts;
	/** To be told of every step of the supervision. */
	follow(before: Supervision, after: Supervision): void;
	/** The service has sent something on the channel of this link. */
	heard(generation: number): void;
	/** A channel that was open has ended; one that `isLeaving` was told to close, since another has taken its place. */
	lineEnded(
		registration: Registration,
		line: Pick<LineEnd, 'inboundSilenceMs' | 'saidGoodbye' | 'sleptMs'>,
		isLeaving: boolean,
	): void;
	/** A heartbeat has left. @param at ISO 8601. */
	beat(at: string): void;
	/** As if it had never been online: what comes next is another pairing. */
	forget(): void;
}

export interface ConnectivityOptions {
	readonly clock: Clock;
	readonly log: Log;
	readonly events: Pick<EventsFeed, 'append' | 'newestAt'>;
	/** How long a dead channel may go unnoticed, in milliseconds; 0 for any time. */
	readonly silenceLimitMs: (link: Link) => number;
}

const NEVER: ConnectivityFacts = { offlineSinceMs: null, hasBeenOnline: false, reconnects: 0, lastHeartbeatAt: null };

/** So long a look at what the machine has slept is good for. */
const SLEPT_KNOWN_FOR_MS = 1000;

export function trackConnectivity({ clock, log, events, silenceLimitMs }: ConnectivityOptions): Connectivity {
	/** Monotonic; the last moment up to which nothing can have been missed. `null`: not known. */
	let wholeUntilMs: number | null = null;
	/** The sleep of the machine up to then: monotonic time stands still meanwhile, and the gap would begin too late. */
	let sleptByThenMs = clock.sleptMs();
	/** Monotonic; when that was looked up. */
	let sleptKnownAtMs = clock.monotonicMs();
	/** ISO 8601; what an earlier run of the agent received last. */
	let wholeUntilBefore: string | null | undefined;
	const readBefore = () => {
		if (wholeUntilBefore === undefined) wholeUntilBefore = events.newestAt();
		return wholeUntilBefore;
	};
	// Events are opened while the connection is on its way.
	clock.soon(readBefore);
	/** Generation of the link that is online; 0 while none is. Only its own channel shows that nothing was missed. */
	let onlineGeneration = 0;
	/** When the link that is online came online, monotonic. */
	let onlineSinceMs = 0;
	/** How long ago the channel that has just ended was last heard. */
	let heardAgoMs = 0;
	/** What stands in the log of this time without a link. */
	let told: 'nothing' | 'cause' | 'needsPerson' = 'nothing';
	/** Generation of the move whose failure stands in the log. */
	let loggedMove = { generation: 0, code: '' };

	const wholeUntil = (sinceMs: number) => isoAt(clock, sinceMs - (clock.sleptMs() - sleptByThenMs));

	/** Whether the machine has slept since it was last looked at. */
	function hasJustSlept(): boolean {
		const isDue = clock.monotonicMs() - sleptKnownAtMs >= SLEPT_KNOWN_FOR_MS;
		return isDue && clock.sleptMs() - sleptByThenMs > MAX_SLEEP_MS;
	}

	function isWhole(nowMs: number): void {
		wholeUntilMs = nowMs;
		// Costs more than all else that a notification does here. A sleep since then only makes a gap begin earlier.
		if (nowMs - sleptKnownAtMs < SLEPT_KNOWN_FOR_MS) return;
		sleptByThenMs = clock.sleptMs();
		sleptKnownAtMs = nowMs;
	}

	function cameOnline(link: Link): void {
		const { hasBeenOnline, offlineSinceMs, reconnects } = connectivity.facts;
		const nowMs = clock.monotonicMs();
		// What the service sent meanwhile may be lost for good; the application has to know.
		const { workflowId } = link.registration.request;
		const from = wholeUntilMs === null ? readBefore() : wholeUntil(wholeUntilMs);
		keepGap(events, from, { workflowId, at: isoNow(clock) });
		const awayMs = nowMs - (offlineSinceMs ?? nowMs);
		log.info(hasBeenOnline ? `online again after ${plainDuration(awayMs)}` : 'online', fieldsOf(link));
		isWhole(nowMs);
		told = 'nothing';
		connectivity.facts = {
			...connectivity.facts,
			hasBeenOnline: true,
			offlineSinceMs: null,
			reconnects: hasBeenOnline ? reconnects + 1 : reconnects,
		};
	}

	function wentOffline(link: Link, nowMs: number): void {
		const limitMs = silenceLimitMs(link);
		const lastMs = wholeUntilMs ?? nowMs;
		// The channel may have been dead for as long as its silence goes unnoticed, and longer in a process that stood still.
		wholeUntilMs = limitMs ? Math.max(lastMs, nowMs - Math.max(limitMs, heardAgoMs)) : lastMs;
	}

	function tell(link: Link): void {
		const cause = failureOf(link.state);
		const needsPerson = link.state.name === 'blocked';
		// Before the first time only trouble is worth a line; then one more when a person is needed.
		if (!cause && !connectivity.facts.hasBeenOnline) return;
		if (told === 'needsPerson' || (told === 'cause' && !needsPerson)) return;
		const still = told === 'cause' ? 'still ' : '';
		told = needsPerson ? 'needsPerson' : 'cause';
		const what = connectivity.facts.hasBeenOnline ? 'offline' : 'not online yet';
		const who = needsPerson ? ', and a person is needed' : '';
		const said =
			needsPerson && cause ? `${joinSentences(cause.message, cause.remedy)}` : (cause?.message ?? 'connecting again');
		log.warn(`${still}${what}${who}: ${said}`, { code: cause?.code, ...fieldsOf(link) });
	}

	/** The device stays online meanwhile; only this line tells a reader of the log that it is not where it should be. */
	function tellOfMove({ current, next }: Supervision): void {
		const cause = next && failureOf(next.state);
		if (!next || !cause || loggedMove.generation === next.generation) return;
		// Moves that the service asks for faster than they are made are one thing to report, not one each.
		const isFlood = cause.code === 'registering-too-often' && loggedMove.code === cause.code;
		loggedMove = { generation: next.generation, code: cause.code };
		if (isFlood) return;
		log.warn(`${purposeWords(next, current)} does not succeed: ${cause.message}`, {
			code: cause.code,
			...fieldsOf(next),
		});
	}

	const connectivity: { -readonly [Name in keyof Connectivity]: Connectivity[Name] } = {
		facts: NEVER,
		follow(before, after) {
			const was = onlineLink(before);
			const is = onlineLink(after);
			if (is && !was) cameOnline(is);
			else if (is && was && is.generation !== was.generation) {
				// Nothing has to have come on its channel yet: it counts as online after a while of silence, too.
				loggedMove = { generation: 0, code: '' };
				log.info('moved over without being offline', { generation: is.generation, ...fieldsOf(is) });
			}
			if ((is?.generation ?? 0) !== onlineGeneration) onlineSinceMs = clock.monotonicMs();
			onlineGeneration = is?.generation ?? 0;
			if (is) return tellOfMove(after);
			if (was) {
				const nowMs = clock.monotonicMs();
				wentOffline(was, nowMs);
				connectivity.facts = { ...connectivity.facts, offlineSinceMs: nowMs };
			}
			if (after.current) tell(after.current);
		},
		heard(generation) {
			// A frame that waited while the machine slept shows nothing of now: its channel is about to be ended.
			if (generation === onlineGeneration && !hasJustSlept()) isWhole(clock.monotonicMs());
		},
		lineEnded(registration, line, isLeaving) {
			if (!isLeaving) heardAgoMs = line.inboundSilenceMs;
			// It was dead since it was last heard: what the service has sent on it since then is lost.
			else if (!line.saidGoodbye) {
				const nowMs = clock.monotonicMs();
				// Reckoned from when the other link was online: the gap of a crash just after this one must not begin later.
				const at = isoAt(clock, onlineGeneration === 0 ? nowMs : Math.min(nowMs, onlineSinceMs));
				const { workflowId } = registration.request;
				const from = isoAt(clock, nowMs - line.inboundSilenceMs - line.sleptMs);
				keepGap(events, from, { workflowId, at }, isoNow(clock));
			}
		},
		beat(at) {
			connectivity.facts = { ...connectivity.facts, lastHeartbeatAt: at };
		},
		forget() {
			connectivity.facts = { ...NEVER, reconnects: connectivity.facts.reconnects };
			wholeUntilMs = null;
			wholeUntilBefore = null;
			told = 'nothing';
		},
	};
	return connectivity;
}

function onlineLink({ current }: Supervision): Link | null {
	return current?.state.name === 'online' ? current : null;
}

function fieldsOf({ registration }: Link): { workflowId: string; host: string } {
	return { workflowId: registration.request.workflowId, host: new URL(registration.baseUrl).host };
}
