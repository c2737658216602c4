/** The channel that `idv probe` found, watched with and without heartbeats; tries answers to an application's ping. */
import { fillTemplate, type Heartbeat, readNotification } from '../protocol/channel.ts';
import type { DeviceConnectionRequest } from '../protocol/device-connection.ts';
import { resolvePointer } from '../protocol/json.ts';
import type { Watched } from './probe-channel.ts';
import {
	endedByHeartbeat,
	type Finding,
	kindOf,
	type Observation,
	pongsFor,
	type Reading,
	readMessages,
	type SeenPing,
} from './probe-decisions.ts';

/** Answers to an application's ping that are tried. */
const MAX_PONGS = 5;

export interface WatchOptions {
	readonly request: DeviceConnectionRequest;
	readonly seconds: number;
}

/** Observes an open channel, and further ones like it. */
export async function watchChannel(
	options: WatchOptions,
	first: Watched,
	reopen: (pings: boolean) => Promise<{ channel: Watched | null }>,
): Promise<Finding[]> {
	const { seconds, request } = options;
	const windowMs = seconds * 1000;
	const answerMs = Math.min(2000, windowMs / 8);
	const heartbeats = [windowMs / 8, (windowMs * 3) / 8, (windowMs * 5) / 8];
	const startedAtMs = performance.now();
	const heartbeat = (sequence: number) => {
		const { deviceId, workflowId } = request;
		const uptimeSeconds = Math.round((performance.now() - startedAtMs) / 1000);
		const sentAt = new Date().toISOString();
		const said: Heartbeat = { type: 'heartbeat', deviceId, workflowId, sequence, sentAt, uptimeSeconds };
		return JSON.stringify(said);
	};
	const seenPing = (seen: Observation) => readMessages(seen, answerMs).ping;
	const plan = (mode: 'frame' | 'ping', ms = windowMs) => ({
		heartbeatsAtMs: mode === 'frame' ? heartbeats : [],
		heartbeat,
		untilMs: (seen: Observation) => {
			const ping = seenPing(seen);
			return Math.max(
				ms,
				ping ? Math.min(ping.firstAtMs + 2.3 * Math.max(ping.periodMs, ping.firstAtMs), 5 * windowMs) : 0,
			);
		},
	});

	const idle = (await reopen(false)).channel;
	const idleSeen = idle?.watch({ heartbeatsAtMs: [], heartbeat, untilMs: () => windowMs }) ?? null;
	let seen = await first.watch(plan('frame'));
	if (seen.ended !== null && seen.heartbeatsAtMs.length === 0) {
		// A service that lets a device have one channel ends the other one.
		idle?.end();
		seen = (await (await reopen(true)).channel?.watch(plan('frame'))) ?? seen;
	}
	let mode: 'frame' | 'ping' = 'frame';
	let modeIsSure = seen.ended === null;
	const settle = Math.min(3000, windowMs / 4);
	if (endedByHeartbeat(seen, settle)) {
		const again = (await reopen(true)).channel;
		const without = again ? await again.watch(plan('ping')) : null;
		again?.end();
		const limitMs = (seen.ended?.atMs ?? 0) + settle;
		// With another code it ended for another reason.
		const isOther = without?.ended?.code !== seen.ended?.code || (without?.ended?.atMs ?? 0) > limitMs;
		if (without && isOther) {
			mode = 'ping';
			modeIsSure = true;
			seen = without;
		}
	}
	first.end();
	const quiet = await idleSeen;
	idle?.end();
	const reading = readMessages(seen, answerMs, quiet);
	const pong = reading.ping?.isFatal
		? await findPong(reading.ping, reading, options, (ms) => ({ ...plan(mode), untilMs: () => ms }), reopen)
		: null;
	return [
		{
			point: 'heartbeat-message',
			tried: mode === 'frame' ? 'three of ours' : 'ours, then none',
			found: mode === 'frame' ? 'taken' : 'a frame ends the channel',
			certainty: modeIsSure ? 'certain' : 'likely',
			...(mode === 'ping' && { settings: { heartbeatMode: 'ping' } }),
		},
		...messageFindings(reading, pong),
		deadFinding(seen, quiet),
	];
}

/** Tries answers to a ping, a channel for each, until one keeps its channel. */
async function findPong(
	ping: SeenPing,
	reading: Reading,
	{ request }: WatchOptions,
	planFor: (ms: number) => Parameters<Watched['watch']>[0],
	reopen: (pings: boolean) => Promise<{ channel: Watched | null }>,
): Promise<string | null> {
	const { deviceId, workflowId } = request;
	for (const body of pongsFor(ping, reading.kindPointer).slice(0, MAX_PONGS)) {
		const { channel } = await reopen(true);
		if (!channel) continue;
		const answer = (text: string) => {
			if (kindOf(text, reading.kindPointer) !== ping.kind) return null;
			const id = readNotification({ type: 'text', text }).serviceId ?? '';
			const sentAt = new Date().toISOString();
			const moment = { sentAt, sentAtMs: Date.now(), uptimeSeconds: 1 };
			return fillTemplate(body, { deviceId, workflowId, id, sequence: 1, ...moment });
		};
		const seen = await channel.watch({ ...planFor(ping.firstAtMs + 2.5 * ping.periodMs), answer });
		channel.end();
		if (seen.ended === null) return body;
	}
	return null;
}

function messageFindings(
	{ acknowledgements, ping, kinds, kindPointer, idPointer }: Reading,
	pong: string | null,
): Finding[] {
	const chatter = ping !== null && !ping.isFatal ? [ping.kind] : [];
	const ignored = [...acknowledgements, ...chatter];
	const usual = pong === null || resolvePointer(JSON.parse(pong.startsWith('{') ? pong : '{}'), '/type') !== 'pong';
	return [
		{
			point: 'heartbeat-answer',
			tried: 'messages soon after a heartbeat, and only then',
			found: acknowledgements.length > 0 ? acknowledgements.join(', ') : 'no answer',
			certainty: acknowledgements.length > 0 ? 'certain' : 'not seen',
			...(ignored.length > 0 && { settings: { ignoreKinds: ignored } }),
		},
		{
			point: 'application-ping',
			tried: ping === null ? 'messages that look like one' : `answers to "${ping.kind}"`,
			found: pingWords(ping, pong),
			certainty: ping === null ? 'not seen' : pong !== null || !ping.isFatal ? 'certain' : 'likely',
			...(ping !== null &&
				pong !== null && { settings: { pingKind: ping.kind, ...(usual && { pongBody: asDocument(pong) }) } }),
		},
		{
			point: 'notification-kind',
			tried: 'every message that came',
			found: [...(kindPointer === null ? [] : [`at ${kindPointer}`]), ...kinds].join(', ') || 'no other message',
			certainty: kindPointer === null && kinds.length === 0 ? 'not seen' : 'likely',
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

function pingWords(ping: SeenPing | null, pong: string | null): string {
	if (ping === null) return 'none';
	const often = `"${ping.kind}" about every ${Math.max(1, Math.round(ping.periodMs / 1000))} s`;
	if (!ping.isFatal) return `${often}, no answer is required`;
	return pong === null
		? `${often}; none of the answers that were tried kept the channel`
		: `${often}, answered by ${pong}`;
}

function asDocument(pong: string): unknown {
	return pong.startsWith('{') ? JSON.parse(pong) : pong;
}

function deadFinding(seen: Observation, quiet: Observation | null): Finding {
	const cut = quiet?.ended && quiet.ended.code === null ? Math.round(quiet.ended.atMs / 1000) : null;
	const idle =
		cut === null
			? 'no idle timeout in this time'
			: `a silent channel is cut after ${cut} s (the agent pings more often)`;
	const pongs = seen.pongs > 0 ? 'pings are answered' : 'pings are not answered';
	return {
		point: 'dead-channel',
		tried: 'WebSocket pings, and a second channel without any',
		found: `${pongs}; ${idle}`,
		certainty: 'certain',
		...(seen.pongs === 0 && { settings: { silenceLimitSeconds: 0 } }),
	};
}
