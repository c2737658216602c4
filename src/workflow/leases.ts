/** Leases: applications hold them during a verification, so that a workflow change waits. Pure; time is handed in. */
import { AgentError } from '../base/errors.ts';
import { MAX_LEASE_SECONDS, OWN_NAME } from '../protocol/local-api.ts';

export const MAX_LEASES = 32;
/** Of them, one application with a line of its own in the applications file. */
const MAX_OWN_LEASES = 2;

export interface Lease {
	/** 1 to 64 of `A-Z a-z 0-9 . _ -`; a program that knows it can renew and release it. */
	readonly name: string;
	/** Monotonic. */
	readonly sinceMs: number;
	readonly untilMs: number;
}

/** Oldest first; may hold some that have run out. */
export type Leases = readonly Lease[];

export const NO_LEASES: Leases = [];

/** Takes a lease, or renews the one of this name. @throws AgentError `body-invalid` for a bad name or time. */
export function holdLease(leases: Leases, name: string, seconds: number, nowMs: number): Leases {
	if (!OWN_NAME.test(name))
		throw invalid('The name of a lease is not valid.', 'Use 1 to 64 letters, digits, dots, hyphens and underscores.');
	if (!(seconds >= 1 && seconds <= MAX_LEASE_SECONDS))
		throw invalid(`A lease lasts 1 to ${MAX_LEASE_SECONDS} seconds.`, 'Take a shorter one and renew it.');
	const current = currentLeases(leases, nowMs);
	const held = current.find((lease) => lease.name === name);
	const own = name.slice(0, name.indexOf(':') + 1);
	if (!held && own !== '' && current.filter((lease) => lease.name.startsWith(own)).length >= MAX_OWN_LEASES)
		throw invalid(
			`This application holds ${MAX_OWN_LEASES} leases already.`,
			'Release them after the work, and reuse their names.',
		);
	if (!held && current.length >= MAX_LEASES)
		throw invalid(`${MAX_LEASES} leases are held already.`, 'Release them after the work, and reuse their names.');
	const lease = { name, sinceMs: held?.sinceMs ?? nowMs, untilMs: nowMs + seconds * 1000 };
	return held ? current.map((one) => (one === held ? lease : one)) : [...current, lease];
}

/** Gives a lease back; one that is not held changes nothing. */
export function releaseLease(leases: Leases, name: string): Leases {
	return leases.some((lease) => lease.name === name) ? leases.filter((lease) => lease.name !== name) : leases;
}

/** Those that have not run out. */
export function currentLeases(leases: Leases, nowMs: number): Leases {
	return leases.filter(({ untilMs }) => untilMs > nowMs);
}

/** When the last lease runs out if none is renewed, monotonic; `null` when none is held. */
export function heldUntil(leases: Leases, nowMs: number): number | null {
	const current = currentLeases(leases, nowMs);
	return current.length === 0 ? null : Math.max(...current.map(({ untilMs }) => untilMs));
}

/**
 * Until when a change has to wait, monotonic; `null` when it can be made now. Ask again then, and whenever a lease is
 * taken or released.
 * @param wantedSinceMs when the change was first desired. Later leases count as well, but nothing beyond the limit.
 * @param maxDeferSeconds 0 lets nothing wait.
 */
export function deferredUntil(
	leases: Leases,
	wantedSinceMs: number,
	maxDeferSeconds: number,
	nowMs: number,
): number | null {
	const held = heldUntil(leases, nowMs);
	if (held === null) return null;
	const untilMs = Math.min(held, wantedSinceMs + maxDeferSeconds * 1000);
	return untilMs > nowMs ? untilMs : null;
}

function invalid(message: string, remedy: string): AgentError {
	return new AgentError('body-invalid', message, { remedy });
}
