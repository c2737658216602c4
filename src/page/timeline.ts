/** The timeline of the page: the states of the device in the last day. */
import type { Status } from '../protocol/local-api.ts';

/** A part of the last day in one state. The last one has not ended. */
export interface TimelineSegment {
	readonly fromMs: number;
	readonly state: Status['state'];
}

const DAY_MS = 86_400_000;
const MAX_SEGMENTS = 200;

/** The last day with one more state; the oldest segment begins where it began. */
export function withState(
	timeline: readonly TimelineSegment[],
	state: Status['state'],
	nowMs: number,
): readonly TimelineSegment[] {
	if (timeline.at(-1)?.state === state) return timeline;
	// A segment that ended more than a day ago is not shown; a clock that was set back starts a new timeline.
	const known = (timeline.at(-1)?.fromMs ?? 0) > nowMs ? [] : timeline;
	const kept = known.filter((_segment, index) => (known[index + 1]?.fromMs ?? nowMs) > nowMs - DAY_MS);
	return [...kept.slice(1 - MAX_SEGMENTS), { fromMs: nowMs, state }];
}
