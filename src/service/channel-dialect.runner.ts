/** The frames of one channel besides notifications, as the dialect has them; one timer where the application pings. */
import { isDeepStrictEqual } from 'node:util';
import { type Heartbeat, heartbeatSchema } from '../protocol/channel.ts';
import { parseJson } from '../protocol/json.ts';
import type { ConnectionClaims } from './connection-tokens.runner.ts';
import { type Dialect, hasShape } from './dialect.ts';

/** A frame that this service does not take. */
export const CLOSE_FRAME_REFUSED = 4400;
/** An application-level ping was not answered. */
export const CLOSE_PING_UNANSWERED = 4408;

export type ChannelDialect = ReturnType<typeof speakDialect>;

export interface ChannelActions {
	/** `false` when it could not be sent. */
	send(text: string): boolean;
	close(code: number, reason: string): void;
}

export function speakDialect(
	{ heartbeats, heartbeatAck, appPing }: Dialect,
	claims: ConnectionClaims,
	{ send, close }: ChannelActions,
) {
	let sequence = 0;
	let unanswered = false;
	const ping = () => {
		if (unanswered) close(CLOSE_PING_UNANSWERED, 'ping not answered');
		else if (appPing) unanswered = send(JSON.stringify({ type: appPing.kind }));
	};
	const timer = appPing && setInterval(ping, appPing.everySeconds * 1000).unref();

	function readHeartbeat(document: unknown): Heartbeat | null {
		if (typeof heartbeats === 'string') return heartbeatSchema.safeParse(document).data ?? null;
		const { deviceId, workflowId } = claims;
		sequence += 1;
		return { type: 'heartbeat', deviceId, workflowId, sequence, sentAt: '', uptimeSeconds: 0 };
	}

	return {
		/** The heartbeat in a frame; `null` for every other frame. May answer it, or close the channel. */
		read(data: string | null): Heartbeat | null {
			// Session data of a device may be anything: a sign of life all the same.
			const document = data === null ? undefined : parseJson(data);
			if (appPing && isDeepStrictEqual(document, appPing.answer)) {
				unanswered = false;
				return null;
			}
			if (heartbeats === 'none' || (heartbeats !== 'any' && !hasShape(heartbeats, document))) {
				close(CLOSE_FRAME_REFUSED, 'frame refused');
				return null;
			}
			const heartbeat = readHeartbeat(document);
			// A heartbeat for another device is a sign of life of this channel, but it is not counted as a heartbeat.
			if (heartbeat?.deviceId !== claims.deviceId) return null;
			if (heartbeatAck !== null) send(JSON.stringify({ type: heartbeatAck, sequence: heartbeat.sequence }));
			return heartbeat;
		},
		/** To be called when the channel has closed. */
		stop: () => clearInterval(timer ?? undefined),
	};
}
