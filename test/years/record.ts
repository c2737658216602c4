/** What is remembered of a life so that its invariants can be judged. Bounded: what is settled is forgotten. */
import type { Observed } from './observed.ts';
import { OTHER_SERIAL, type PublishedPlan } from './service.ts';
import type { Traits } from './traits.ts';

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
/** Between the service's Date and the device's clock, and for a second that is cut off. */
const GAP_SLACK_MS = 1500;
/** What was sent later than this may still be on its way, or unread. */
const ARRIVES_WITHIN_MS = 4000;

/** A notification as the service sends it. */
const WHOLE = /^\{"type":"session\.started","id":"n(\d+)","number":\1,"channel":\d+(?:,"padding":"x+")?\}$/;

type Heartbeat = Extract<Observed, { type: 'heartbeat' }>;

interface Sent {
	readonly atMs: number;
	readonly session: number | null;
}
interface Gap {
	/** True milliseconds since the life began, if the clock was right; `-Infinity` for a gap without a beginning. */
	readonly fromMs: number;
	readonly toMs: number;
	readonly appendedAtMs: number;
}

export type LifeRecord = ReturnType<typeof createRecord>;

export function createRecord(traits: Traits) {
	const sent = new Map<number, Sent>();
	let gaps: Gap[] = [];
	const delivered = new Set<number>();
	const newestOf = new Map<number, number>();
	const lately: Record<string, number[]> = {};
	let beats = { session: 0, atMs: 0, sequence: 0 };
	const beatsOf = new Map<number, { atMs: number; sequence: number }>();
	let overlapSinceMs: number | null = null;
	let openSockets = 0;
	let lastSent = -1;
	let lastConsumed = -1;
	/** True time of the newest thing that keeps a device from its rhythm: a freeze, a full line, a cut. */
	let disturbedMs = 0;
	let frozenUntilMs = 0;
	let calmSinceMs: number | null = 0;
	/** Whether the device's clock was wrong since the last rest: gaps are then not comparable with true times. */
	let clockWasWrong = !traits.clockBattery;
	let currentToken: { token: string; sinceMs: number; session: number } | null = null;
	let hasLostDisk = false;
	let hasFailedDisk = false;
	let serial = '';
	/** Numbers of what 0.1.0 has received, and is not delivered. */
	const older = new Set<number>();
	/** What rots is found at some later start. */
	let isRotten = false;
	let secrets: string[] = ['key-of-this-life'];
	let offAtMs = 0;
	let issued: string[] = [];
	let plan: PublishedPlan | null = null;
	/** Of the plan whose move the device has made and kept for a while. */
	let confirmedRevision = 0;
	const startMs = traits.startMs;

	const numberIn = (text: string): { number: number; channel: number } | null => {
		const found = /^\{"type":"session\.started","id":"n\d+","number":(\d+),"channel":(\d+)/.exec(text);
		return found ? { number: Number(found[1]), channel: Number(found[2]) } : null;
	};

	const life = {
		/** The newest event that was read for the first time. */
		newest: { number: 0, epoch: '' },
		connectionsSaved: 0,
		lastTurn: '',
		isPairing: false,

		before(seen: Observed, atMs: number): void {
			switch (seen.type) {
				case 'fault':
					disturbedMs = atMs;
					calmSinceMs = null;
					if (seen.kind === 'clockJump') clockWasWrong = true;
					if (seen.kind === 'suspend' || seen.kind === 'stall') frozenUntilMs = Number.POSITIVE_INFINITY;
					if (/^(bad|lying|slow|imaged)/.test(seen.kind)) hasFailedDisk = true;
					if (hasFailedDisk || /^(full|filling)Disk/.test(seen.kind)) hasLostDisk = true;
					if (['rot', 'rolledBack', 'applicationAway'].includes(seen.kind)) isRotten = true;
					break;
				case 'calm':
					calmSinceMs = atMs;
					disturbedMs = atMs;
					frozenUntilMs = atMs;
					break;
				case 'issued':
					issued.push(seen.token);
					issued = issued.slice(-100);
					secrets.push(seen.token.slice(-24));
					secrets = secrets.slice(-100);
					break;
				case 'registration':
					if (seen.scheme === 'Token') secrets.push(seen.credential);
					break;
			}
		},
		after(seen: Observed): void {
			switch (seen.type) {
				case 'leftByOlder':
					for (const text of seen.texts) older.add(numberIn(text)?.number ?? -1);
					break;
				case 'boot':
					({ serial } = seen);
					beatsOf.clear();
					clockWasWrong ||= !traits.clockBattery;
					life.lastTurn = '';
					disturbedMs = seen.atMs;
					currentToken = null;
					lately['registration'] = [];
					lately['socket'] = [];
					lately['planAsked'] = [];
					life.connectionsSaved = seen.state.connections.length;
					break;
				case 'planPublished':
					plan = seen.plan;
					break;
				case 'off':
					offAtMs = seen.atMs;
					overlapSinceMs = null;
					openSockets = 0;
					break;
				case 'opened':
					openSockets = seen.open;
					if (seen.open > 1) overlapSinceMs ??= seen.atMs;
					currentToken = { token: seen.token, sinceMs: seen.atMs, session: seen.session };
					break;
				case 'socketGone':
					openSockets = seen.open;
					if (seen.open < 2) overlapSinceMs = null;
					if (seen.session !== null) beatsOf.delete(seen.session);
					break;
				case 'heartbeat': {
					const sequence = sequenceIn(seen.text);
					beats = { session: seen.session, atMs: seen.atMs, sequence };
					beatsOf.set(seen.session, beats);
					if (plan && isConfirmed(seen, plan)) confirmedRevision = plan.revision;
					break;
				}
				case 'notificationSent':
					lastSent = seen.number;
					sent.set(seen.number, { atMs: seen.atMs, session: seen.session });
					break;
				case 'entry': {
					if (!seen.again) {
						life.newest = { number: seen.number, epoch: epochOf(seen.id) };
					}
					if (seen.kind === 'gap') gaps.push(gapOf(seen));
					const found = seen.kind === 'notification' ? numberIn(seen.text) : null;
					if (found) {
						delivered.add(found.number);
						sent.delete(found.number);
						older.delete(found.number);
						lastConsumed = Math.max(lastConsumed, found.number);
						newestOf.set(found.channel, Math.max(found.number, newestOf.get(found.channel) ?? -1));
					}
					break;
				}
				case 'saved':
					life.connectionsSaved = seen.state.connections.length;
					break;
				case 'hook':
					if (seen.hook.startsWith('onO')) life.lastTurn = seen.hook;
					break;
				case 'judged':
					if (seen.quiet.status.state === 'online')
						for (const [known, { atMs }] of [...sent]) if (atMs < seen.atMs - ARRIVES_WITHIN_MS) sent.delete(known);
					gaps = gaps.slice(-3);
					for (const known of [...delivered]) if (known < lastSent - 3000) delivered.delete(known);
					for (const channel of [...newestOf.keys()].slice(0, -20)) newestOf.delete(channel);
					hasLostDisk = hasFailedDisk = false;
					older.clear();
					// The newest events have right times from here on.
					if (seen.quiet.status.state === 'online') clockWasWrong = false;
			}
		},

		/** The newest that has had time to arrive, and the newest that has. */
		lastNotifications(nowMs: number): [sent: number, consumed: number] {
			const late = [...sent].find(([, { atMs }]) => atMs > nowMs - ARRIVES_WITHIN_MS)?.[0] ?? lastSent + 1;
			return [late - 1, Math.min(lastConsumed, late - 1)];
		},

		/** The first notification that is neither delivered nor in a gap. */
		unaccounted(nowMs: number): string | null {
			for (const [lost, { atMs, session }] of sent) {
				if (atMs > nowMs - ARRIVES_WITHIN_MS) break;
				const covering = gaps.find((gap) => covers(gap, atMs));
				if (covering) continue;
				const where = session === null ? 'while no channel was open' : `on channel ${session}`;
				return `notification ${lost}, sent at ${atMs} ms ${where}; ${gaps.length} gaps, none over it: ${JSON.stringify(gaps.slice(-6))}`;
			}
			return null;
		},
		/** What the service never sent. */
		isAltered(text: string): boolean {
			const known = numberIn(text)
				? WHOLE
				: /^\{"type":"(?:workflow\.changed|connection\.revoked|too\.large)",.*\}$|^\{"bytes":\d+,"limitBytes":\d+\}$/;
			return !known.test(text);
		},
		isSecondEvent(text: string): boolean {
			const found = numberIn(text);
			return found !== null && delivered.has(found.number);
		},
		isOutOfOrder(text: string): string | false {
			const found = numberIn(text);
			const newest = found ? (newestOf.get(found.channel) ?? -1) : -1;
			return found !== null && found.number < newest && `${found.number} after ${newest}`;
		},
		tooMany(what: string, atMs: number, limits: readonly (readonly [most: number, withinMs: number])[]): string | null {
			const times = lately[what] ?? [];
			lately[what] = times;
			times.push(atMs);
			while (times[0] !== undefined && atMs - times[0] > HOUR) times.shift();
			for (const [most, withinMs] of limits) {
				const oldest = times.at(-most - 1);
				if (oldest !== undefined && atMs - oldest < withinMs) return `${most + 1} in ${withinMs / SECOND} s`;
			}
			return null;
		},
		overlapsTooLong(limitMs: number): string | null {
			if (overlapSinceMs === null || calmSinceMs === null) return null;
			const sinceMs = Math.max(overlapSinceMs, disturbedMs);
			return beats.atMs - sinceMs > limitMs ? `${openSockets} channels for ${beats.atMs - sinceMs} ms` : null;
		},
		lateHeartbeat({ session, atMs, cadenceMs, openedAtMs }: Heartbeat, slackMs: number): string | null {
			const before = beatsOf.get(session)?.atMs ?? openedAtMs;
			const lateMs = atMs - before - cadenceMs;
			// The first comes when the service has shown that it has the channel.
			const allowedMs = slackMs + (beatsOf.has(session) ? 0 : 5 * SECOND);
			return lateMs > allowedMs && before > disturbedMs + MINUTE && calmSinceMs !== null ? `${lateMs} ms late` : null;
		},
		earlyHeartbeat({ session, atMs, cadenceMs }: Heartbeat, slackMs: number): string | null {
			const before = beatsOf.get(session);
			if (!before || before.sequence < 2 || before.atMs < disturbedMs + MINUTE || calmSinceMs === null) return null;
			const earlyMs = before.atMs + cadenceMs - atMs;
			return earlyMs > slackMs ? `${earlyMs} ms early` : null;
		},
		miscounted({ session, text }: Heartbeat): string | null {
			const sequence = sequenceIn(text);
			const expected = (beatsOf.get(session)?.sequence ?? 0) + 1;
			return sequence === expected ? null : `${sequence} in place of ${expected}`;
		},
		secretIn(text: string): string | null {
			return secrets.some((secret) => text.includes(secret)) ? text : null;
		},
		/** @param kept tokens that are there after a boot. */
		lostConnection(kept: readonly string[]): string | null {
			if (currentToken === null || offAtMs - currentToken.sinceMs < MINUTE || hasLostDisk) return null;
			const since = issued.slice(Math.max(0, issued.indexOf(currentToken.token)));
			return since.some((token) => kept.includes(token)) ? null : `${kept.length} kept, none of them of use`;
		},
		undoneMove(workflowId: string): string | null {
			const isUndone = plan !== null && confirmedRevision === plan.revision && workflowId === plan.from;
			return isUndone ? `back on ${workflowId} although revision ${plan?.revision} had moved it` : null;
		},
		expiredAtRest(session: number, atMs: number): string | null {
			// Of one that troubles have brought the age has to be known by then as well: it may have slept.
			const isAtRest =
				calmSinceMs !== null && (disturbedMs < (currentToken?.sinceMs ?? 0) || atMs - calmSinceMs > 75 * MINUTE);
			return isAtRest && session === currentToken?.session ? `channel ${session}` : null;
		},
		hasLostDisk: () => hasLostDisk || isRotten,
		/** What it had confirmed may be gone, or was late. */
		hasFailedDisk: () => hasFailedDisk,
		isCopy: () => serial === OTHER_SERIAL,
		isOfAnother: (deviceId: string) => serial !== '' && deviceId !== serial,
		leftByOlder: () => (older.size > 0 ? [...older].join() : null),
		/** Events that were read once may be lost, or be a gap by now. */
		hasLostEvents: () => hasFailedDisk || (traits.hasBadDisk && (hasLostDisk || isRotten)),
		wasFrozen: (withinMs: number) => frozenUntilMs > 0 && withinMs > 0 && frozenUntilMs === Number.POSITIVE_INFINITY,
	};

	/** A plan before it may have led there as well: then the device does not know this one, and nothing of it is confirmed. */
	function isConfirmed({ atMs, openedAtMs, workflowId, text }: Heartbeat, plan: PublishedPlan): boolean {
		const follows = workflowId === plan.to && text.includes(`"planRevision":${plan.revision}`);
		return follows && startMs + openedAtMs > plan.startAtMs && atMs - openedAtMs > 10 * MINUTE;
	}
	function gapOf({ text, appendedAtMs }: Extract<Observed, { type: 'entry' }>): Gap {
		const { from, to } = JSON.parse(text.slice(4)) as { from: string | null; to: string };
		const fromMs = from === null ? Number.NEGATIVE_INFINITY : Date.parse(from) - startMs;
		return { fromMs, toMs: Date.parse(to) - startMs, appendedAtMs };
	}
	function covers({ fromMs, toMs, appendedAtMs }: Gap, atMs: number): boolean {
		// By a clock that was wrong, only a gap that was written afterwards says anything.
		if (clockWasWrong) return appendedAtMs >= atMs;
		return fromMs - GAP_SLACK_MS <= atMs && atMs <= toMs + GAP_SLACK_MS;
	}
	return life;
}

export const epochOf = (id: string): string => id.slice(0, id.lastIndexOf('-'));

function sequenceIn(text: string): number {
	return Number(/"sequence":(\d+)/.exec(text)?.[1] ?? 0);
}
