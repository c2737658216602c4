/** Registrations a minute for each client address, as a dialect says. Owns the counting; knows no endpoint. */
import type { Dialect } from './dialect.ts';
import { createExpiringMap } from './expiring-map.ts';
import { ProblemResponse } from './problems.ts';

const WINDOW_MS = 60_000;
/** Addresses remembered; above that, requests of unknown ones pass. */
const MAX_ADDRESSES = 10_000;

/** Counts one request. @throws ProblemResponse 429 `rate-limited`. */
export type CountRequest = (address: string) => void;

export function createRateLimit(limit: Dialect['registrationLimit'], now: () => number): CountRequest {
	if (limit === null) return () => {};
	const { perMinute, window, countsRefused, retryAfter } = limit;
	/** The newest counted requests of an address, at most as many as the limit: older ones cannot matter. */
	const counted = createExpiringMap<readonly number[]>(MAX_ADDRESSES, now);
	return (address) => {
		const nowMs = now();
		const windowEndsMs = (Math.floor(nowMs / WINDOW_MS) + 1) * WINDOW_MS;
		const sinceMs = window === 'sliding' ? nowMs - WINDOW_MS : windowEndsMs - WINDOW_MS - 1;
		const inWindow = (counted.get(address) ?? []).filter((atMs) => atMs > sinceMs);
		const isOver = inWindow.length >= perMinute;
		if (!isOver || countsRefused) counted.add(address, [...inWindow, nowMs].slice(-perMinute), nowMs + WINDOW_MS);
		if (!isOver) return;
		const [oldest = nowMs] = inWindow;
		const freeAtMs = window === 'sliding' ? oldest + WINDOW_MS : windowEndsMs;
		throw new ProblemResponse('rate-limited', `This address has registered ${perMinute} times within a minute.`, {
			headers: retryAfter ? { 'retry-after': String(Math.max(1, Math.ceil((freeAtMs - nowMs) / 1000))) } : {},
		});
	};
}
