/** The channel that `idv probe` found, watched with and without heartbeats; tries answers to a message that it ends without. */
import { type Heartbeat, readNotification } from '../protocol/channel.ts';
import type { DeviceConnectionRequest } from '../protocol/device-connection.ts';
import { parseJson, resolvePointer } from '../protocol/json.ts';
import { fillTemplate } from '../protocol/templates.ts';
import type { Watched } from './probe-channel.ts';
import {
	endedAlike,
	endedByHeartbeat,
	type Finding,
	kindOf,
	livesAfterHeartbeats,
	type Observation,
	pingsBefore,
	pongsFor,
	type Reading,
	readMessages,
	type SeenPing,
} from './probe-decisions.ts';

/** Answers to a message that are tried. */
const MAX_PONGS = 5;
/** When heartbeats are sent, in parts of the window: unevenly, so that nothing periodic looks like an answer. */
const HEARTBEATS = [0.14, 0.33, 0.47, 0.77];

export interface WatchOptions {
	readonly request: DeviceConnectionRequest;
	readonly seconds: number;
	/** Ends a watch early: what was not seen for the whole time is not concluded from. */
	readonly signal: AbortSignal;
	readonly note: (...findings: Finding[]) => void;
	/** Another channel like the first, which is closed before; `null` when it is refused or no request is left. */
	readonly reopen: (pings: boolean) => Promise<Watched | null>;
}

interface SeenPong extends SeenPing {
	/** `null`: none of the answers that were tried kept the channel. */
	readonly pong: string | null;
}

/**
 * Notes what is seen as soon as it is seen. @returns the lives of a channel with heartbeats and of one without (as far as it was
 * opened), if the service ended these and all others; empty if one lasted.
 */
export async function watchChannel(options: WatchOptions, first: Watched): Promise<readonly Observation[]> {
	const { seconds, request, note, reopen, signal } = options;
	const windowMs = seconds * 1000;
	const answerMs = Math.min(2000, windowMs / 8);
	const settleMs = Math.min(3000, windowMs / 4);
	const startedAtMs = performance.now();
	const { deviceId, workflowId } = request;
	const heartbeat = (sequence: number) => {
		const uptimeSeconds = Math.round((performance.now() - startedAtMs) / 1000);
		const sentAt = new Date().toISOString();
		const said: Heartbeat = { type: 'heartbeat', deviceId, workflowId, sequence, sentAt, uptimeSeconds };
		return JSON.stringify(said);
	};
	const plan = (beats: boolean, ms = windowMs) => ({
		heartbeatsAtMs: beats ? HEARTBEATS.map((part) => part * windowMs) : [],
		heartbeat,
		untilMs: () => ms,
	});
	const pinged: Observation[] = [];
	const watch = async (
		channel: Watched | null,
		how: ReturnType<typeof plan> & Partial<Parameters<Watched['watch']>[0]>,
	) => {
		const seen = (await channel?.watch(how)) ?? null;
		if (seen) pinged.push(seen);
		return seen;
	};
	const tell = (reading: Reading, frames: Frames, quiet: Observation | null, pong: SeenPong | null = null) =>
		note(frameFinding(frames), ...messageFindings(reading, pong), deadFinding(pinged, quiet, answerMs));

	const seen = (await watch(first, plan(true))) as Observation;
	let frames = framesOf(seen);
	tell(readMessages(seen, answerMs), frames, null);
	const quiet = (await (await reopen(false))?.watch(plan(false))) ?? null;
	const hasLasted = () => [...pinged, ...(quiet ? [quiet] : [])].some(({ ended }) => ended === null);
	if (quiet && endedByHeartbeat(seen, settleMs) && outlives(quiet, seen, settleMs)) {
		// One end may be chance.
		const again = await watch(await reopen(true), plan(true));
		if (again && endedByHeartbeat(again, settleMs) && again.ended?.code === seen.ended?.code) frames = 'refused';
	}
	const ends = quiet ? (frames === 'refused' ? [quiet] : [seen, quiet]) : [];
	let reading = readMessages(frames === 'refused' && quiet ? quiet : seen, answerMs, quiet);
	let pong: SeenPong | null = null;
	for (const ping of pingsBefore(ends, reading)) {
		const found = await findPong(ping, reading, ends);
		pong = { ...ping, pong: found?.body ?? null };
		if (!found) continue;
		if (frames !== 'refused') [frames, reading] = [framesOf(found.seen), readMessages(found.seen, answerMs)];
		break;
	}
	// That a frame ends the channel is shown only by one without frames that the service does not end as well.
	if (frames === 'refused' && !hasLasted()) await watchAgain(0, undefined);
	if (frames === 'refused' && !hasLasted()) frames = 'unclear';
	if (signal.aborted) return [];
	tell(reading, frames, quiet, pong);
	return hasLasted() ? [] : [seen, ...(quiet ? [quiet] : [])];

	async function watchAgain(ms: number, answer: ((text: string) => string | null) | undefined) {
		const how = { ...plan(frames !== 'refused', Math.max(ms, windowMs)), ...(answer && { answer }) };
		return watch(await reopen(true), how);
	}

	/** Tries answers to a ping, a channel for each, until one keeps its channel; without an answer, two have ended alike. */
	async function findPong(
		ping: SeenPing,
		{ kindPointer }: Reading,
		known: readonly Observation[],
	): Promise<{ body: string; seen: Observation } | null> {
		const unanswered = [...known];
		const [end] = known;
		const lastsMs = 2.3 * (end?.ended?.atMs ?? windowMs);
		for (const body of pongsFor(ping, kindPointer).slice(0, MAX_PONGS)) {
			const answer = (text: string) => {
				if (kindOf(text, kindPointer) !== ping.kind) return null;
				const id = readNotification({ type: 'text', text }).writtenId ?? '';
				const sentAt = new Date().toISOString();
				const moment = { sentAt, sentAtMs: Date.now(), uptimeSeconds: 1 };
				return fillTemplate(body, { deviceId, workflowId, id, sequence: 1, ...moment });
			};
			const answered = await watchAgain(lastsMs, answer);
			if (answered === null || signal.aborted) return null;
			if (answered.ended !== null) {
				// A wrong answer may end it in a way of its own, which says nothing about a channel without one.
				if (end && endedAlike(end, answered)) unanswered.push(answered);
				continue;
			}
			if (unanswered.length < 2) unanswered.push((await watchAgain(0, undefined)) ?? answered);
			return unanswered.filter((one) => end && endedAlike(end, one)).length >= 2 ? { body, seen: answered } : null;
		}
		return null;
	}
}

/** `unanswered`: the channel stayed open, but nothing showed that the service still read it. */
type Frames = 'taken' | 'refused' | 'unanswered' | 'unclear';

function framesOf(seen: Observation): Frames {
	if (seen.ended !== null || seen.heartbeatsAtMs.length < HEARTBEATS.length) return 'unclear';
	return livesAfterHeartbeats(seen) ? 'taken' : 'unanswered';
}

function outlives(quiet: Observation, { ended }: Observation, settleMs: number): boolean {
	return quiet.ended?.code !== ended?.code || (quiet.ended?.atMs ?? 0) > (ended?.atMs ?? 0) + settleMs;
}

function frameFinding(frames: Frames): Finding {
	return {
		point: 'heartbeat-message',
		tried: frames === 'refused' ? 'ours, none, and ours again' : 'four of ours',
		found: FRAMES_FOUND[frames],
		certainty: frames === 'taken' || frames === 'refused' ? 'certain' : 'not seen',
		...(frames === 'refused' && { settings: { heartbeatMode: 'ping' } }),
	};
}

const FRAMES_FOUND: Readonly<Record<Frames, string>> = {
	taken: 'taken',
	refused: 'a frame ends the channel',
	unanswered: 'not found out: the service sent nothing after the last one',
	unclear: 'not found out',
};

function messageFindings(
	{ acknowledgements, kinds, kindPointer, idPointer }: Reading,
	ping: SeenPong | null,
): Finding[] {
	const pong = ping?.pong ?? null;
	const usual = pong !== null && resolvePointer(parseJson(pong), '/type') === 'pong';
	const others = kinds.filter((kind) => kind !== ping?.kind);
	return [
		{
			point: 'heartbeat-answer',
			tried: 'messages after each heartbeat, and only then',
			found: acknowledgements.length > 0 ? acknowledgements.join(', ') : 'no proved answer',
			certainty: acknowledgements.length > 0 ? 'certain' : 'not seen',
			...(acknowledgements.length > 0 && { settings: { ignoreKinds: acknowledgements } }),
		},
		{
			point: 'application-ping',
			tried: ping === null ? 'messages before channels that ended alike' : `answers to "${ping.kind}"`,
			found: ping === null ? 'none' : pingWords(ping),
			certainty: pong !== null ? 'certain' : 'not seen',
			...(ping !== null &&
				pong !== null && { settings: { pingKind: ping.kind, ...(!usual && { pongBody: asDocument(pong) }) } }),
		},
		{
			point: 'notification-kind',
			tried: 'every message that came',
			found: [...(kindPointer === null ? [] : [`at ${kindPointer}`]), ...others].join(', ') || 'no other message',
			certainty: kindPointer === null && others.length === 0 ? 'not seen' : 'likely',
			...(kindPointer !== null && { settings: { kindPointer } }),
		},
		...(idPointer === null
			? []
			: [
					{
						point: 'notification-id',
						tried: 'every message that came',
						found: `at ${idPointer}`,
						certainty: 'likely',
						settings: { notificationIdPointer: idPointer },
					} as const,
				]),
	];
}

function pingWords({ kind, pong }: SeenPong): string {
	return pong === null
		? `"${kind}" came before the channel ended; none of the answers that were tried kept it`
		: `"${kind}", answered by ${pong}`;
}

function asDocument(pong: string): unknown {
	return pong.startsWith('{') ? JSON.parse(pong) : pong;
}

function deadFinding(pinged: readonly Observation[], quiet: Observation | null, answerMs: number): Finding {
	const isOpen = ({ ended }: Observation) => ended === null;
	const hasLasted = pinged.some(isOpen) || (quiet !== null && isOpen(quiet));
	const isAnswered = pinged.some(({ answeredPingsAtMs }) => answeredPingsAtMs.length > 0);
	// Each channel begins with a ping.
	const hadTime = ({ ended, heartbeatsAtMs }: Observation) =>
		ended ? ended.atMs > answerMs : heartbeatsAtMs.length > 0;
	const isMute = !isAnswered && pinged.some(hadTime);
	const pongs = isAnswered ? 'pings are answered' : isMute ? 'pings are not answered' : 'no ping was answered in time';
	return {
		point: 'dead-channel',
		tried: quiet === null ? 'WebSocket pings' : 'WebSocket pings, and a second channel without any',
		found: quiet === null ? pongs : `${pongs}; ${idleWords(quiet, hasLasted)}`,
		certainty: !isAnswered && !isMute ? 'not seen' : hasLasted ? 'certain' : 'likely',
		...(isMute && hasLasted && { settings: { silenceLimitSeconds: 0 } }),
	};
}

/** @param hasLasted whether a channel did: where every channel ends, this says nothing about idle ones. */
function idleWords({ ended }: Observation, hasLasted: boolean): string {
	if (ended === null) return 'no idle timeout in this time';
	if (!hasLasted) return 'an idle timeout cannot be seen, as no channel lasted';
	const how = ended.code === null ? 'cut' : `closed with code ${ended.code}`;
	return `a silent channel is ${how} after ${Math.round(ended.atMs / 1000)} s (the agent pings more often)`;
}
