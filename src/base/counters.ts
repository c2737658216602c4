/** The counters for `/metrics`, incremented where something happens. Decides nothing; lost with the process. */
export interface Counters extends AgentCounts {
	/** Monotonic time at which an application last acknowledged an event; `null` for never. */
	acknowledgedAtMs: number | null;
	streams: number;
	/** Whether events are on the disk, and not only in memory. */
	eventsDurable: boolean;
	/** How far the device's clock is ahead of the service's; `null` while unknown. */
	clockSkewMs: number | null;
}

export function createCounters(): Counters {
	return {
		notifications: 0,
		duplicates: 0,
		ignored: 0,
		gaps: 0,
		heartbeats: 0,
		failedAttempts: 0,
		wrongPins: 0,
		forwarded: {},
		hooks: {},
		acknowledgedAtMs: null,
		streams: 0,
		eventsDurable: true,
		clockSkewMs: null,
	};
}

export function count(counts: Record<string, number>, name: string): void {
	counts[name] = (counts[name] ?? 0) + 1;
}

export interface AgentCounts {
	notifications: number;
	duplicates: number;
	/** Messages of `service.ignoreKinds`. */
	ignored: number;
	gaps: number;
	heartbeats: number;
	/** Registrations and channel openings that failed. */
	failedAttempts: number;
	wrongPins: number;
	/** Forwarded requests by the first digit of the status (`2xx`), or `failed`. */
	readonly forwarded: Record<string, number>;
	/** Hooks by their outcome (`exited`, `timedOut`, …). */
	readonly hooks: Record<string, number>;
}
