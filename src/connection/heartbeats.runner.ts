/** Heartbeats of one channel, from deadlines, so that they do not drift: after a stall one, not a burst. */
import { type Clock, isoNow } from '../base/clock.edge.ts';
import type { Heartbeat, HeartbeatExtras } from '../protocol/channel.ts';
import { fillTemplate } from '../protocol/templates.ts';

export interface HeartbeatOptions {
	readonly clock: Clock;
	readonly firstInMs: number;
	/** Milliseconds between two. */
	readonly cadenceMs: number;
	readonly deviceId: string;
	readonly workflowId: string;
	/** Monotonic time at which the agent started. */
	readonly startedAtMs: number;
	/** Fields of the fleet plan, and those that the deployment asks for. */
	readonly plan: () => Pick<Heartbeat, 'planRevision' | 'planRefused'> & HeartbeatExtras;
	/** The deployment's own shape of a heartbeat; `null` for ours. */
	readonly body: string | null;
	/** Hands the frame to the channel; `false` when it did not take it. */
	readonly send: (frame: string) => boolean;
	readonly onSent: (sentAt: string) => void;
}

/** Sends heartbeats at the cadence until the returned function is called. */
export function startHeartbeats(options: HeartbeatOptions): () => void {
	const { clock, firstInMs, cadenceMs, deviceId, workflowId } = options;
	let sequence = 0;
	let dueMs = clock.monotonicMs() + firstInMs;

	const beat = () => {
		const nowMs = clock.monotonicMs();
		const sentAt = isoNow(clock);
		const uptimeSeconds = Math.round((nowMs - options.startedAtMs) / 1000);
		sequence += 1;
		const said = { deviceId, workflowId, sequence, sentAt, uptimeSeconds };
		const heartbeat: Heartbeat = { type: 'heartbeat', ...said, ...options.plan() };
		const frame =
			options.body === null
				? JSON.stringify(heartbeat)
				: fillTemplate(options.body, { ...said, sentAtMs: clock.wallMs() });
		if (options.send(frame)) options.onSent(sentAt);
		dueMs += cadenceMs * Math.max(1, Math.floor((nowMs - dueMs) / cadenceMs) + 1);
		cancel = clock.schedule(dueMs - nowMs, beat);
	};
	let cancel = clock.schedule(firstInMs, beat);
	return () => cancel();
}
