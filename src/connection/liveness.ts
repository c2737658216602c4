/** How often a channel is pinged, and how long its silence is borne. */
import { DEFAULT_HEARTBEAT_CADENCE } from '../protocol/device-connection.ts';
import type { Settings } from '../settings/table.ts';
import { LEAST_PING_MS, MOST_PING_MS } from './line-rhythm.ts';
import type { Registration } from './supervisor.ts';

const LEAST_SILENCE_MS = 10_000;

/** In milliseconds; a limit of 0 bears any. Less than two pings would end a channel that is well. */
export function livenessOf(
	{ request }: Registration,
	{ heartbeatMode, silenceLimitSeconds }: Pick<Settings['service'], 'heartbeatMode' | 'silenceLimitSeconds'>,
): { cadenceMs: number; pingIntervalMs: number; silenceLimitMs: number } {
	const cadenceMs = (request.heartbeatCadence ?? DEFAULT_HEARTBEAT_CADENCE) * 1000;
	const usualMs = heartbeatMode === 'ping' ? cadenceMs : Math.min(cadenceMs, MOST_PING_MS);
	const limitMs = silenceLimitSeconds === null ? Math.max(LEAST_SILENCE_MS, 2 * usualMs) : silenceLimitSeconds * 1000;
	const pingIntervalMs = limitMs === 0 ? usualMs : Math.min(usualMs, Math.max(LEAST_PING_MS, limitMs / 2));
	return { cadenceMs, pingIntervalMs, silenceLimitMs: limitMs && Math.max(limitMs, 2 * pingIntervalMs) };
}
