/** The timeline of the page: the states of the device in the last day, by a clock that is not set. */
import type { Status } from '../protocol/local-api.ts';
import type { HistoryEntry } from '../status/history.ts';

/** A part of the last day in one state, `none` where no agent ran. The last one has not ended. */
export interface TimelineSegment {
	readonly fromMs: number;
	readonly state: Status['state'] | 'none';
}
type Timeline = readonly TimelineSegment[];

const DAY_MS = 86_400_000;
const MAX_SEGMENTS = 200;

/** The last day with one more state; the oldest segment begins where it began. */
export function withState(timeline: Timeline, state: TimelineSegment['state'], nowMs: number): Timeline {
	const last = timeline.at(-1);
	if (last?.state === state) return timeline;
	// Where time has gone back, what is known goes back with it.
	const backMs = Math.max(0, (last?.fromMs ?? nowMs) - nowMs);
	const known = timeline.map((segment) => ({ ...segment, fromMs: segment.fromMs - backMs }));
	// A segment that ended more than a day ago is not shown.
	const kept = known.filter((_segment, index) => (known[index + 1]?.fromMs ?? nowMs) > nowMs - DAY_MS);
	return withoutShortest([...kept, { fromMs: nowMs, state }]);
}

/** The time of the shortest goes to the one before it: the oldest may be most of the day. */
function withoutShortest(timeline: Timeline): Timeline {
	if (timeline.length <= MAX_SEGMENTS) return timeline;
	const lengths = timeline.slice(1).map(({ fromMs }, index) => fromMs - (timeline[index]?.fromMs ?? 0));
	const shortest = lengths.indexOf(Math.min(...lengths.slice(1)), 1);
	const others = timeline.filter((_segment, index) => index !== shortest);
	return others.filter(({ state }, index) => state !== others[index - 1]?.state);
}

/**
 * The last day up to now as the history has it, which says how its clock was set. Nothing is written while nothing changes: of a
 * run that was cut, all after its last entry or event is a gap.
 */
export function pastOf(history: readonly HistoryEntry[], nowMs: number): Timeline {
	let setMs = history.reduce((sum, entry) => sum + (entry.kind === 'clock' ? entry.byMs : 0), 0);
	let past: Timeline = [];
	let aliveMs = 0;
	for (const entry of history) {
		if (entry.kind === 'clock') setMs -= entry.byMs;
		const toNow = (at: string) => Math.min(nowMs, Date.parse(at) + setMs);
		const atMs = toNow(entry.at);
		if (entry.kind === 'started') {
			const isCut = entry.after === 'kill' || entry.after === 'power cut';
			if (isCut && past.length > 0) past = withState(past, 'none', Math.max(aliveMs, toNow(entry.aliveAt ?? '') || 0));
			past = withState(past, 'connecting', atMs);
		} else if (entry.kind === 'state') past = withState(past, entry.state, atMs);
		else if (entry.kind === 'ended') past = withState(past, 'none', atMs);
		// An agent that starts says first how the clock was set: that tells nothing of the one before.
		if (entry.kind !== 'clock') aliveMs = atMs;
	}
	return past;
}
