/** Leases: applications hold them during a verification, so that a workflow change waits. Pure; time is handed in. */
import { AgentError } from '../base/errors.ts';
import { applicationIn, MAX_APPLICATIONS, MAX_LEASE_SECONDS, OWN_NAME } from '../protocol/local-api.ts';

/** Of all callers on shared sockets, works under one name counted singly. */
export const MAX_LEASES = 32;
/** Names of leases that one application with a line of its own in the applications file may have. */
const MAX_OWN_LEASES = 2;
/** Works under one name, the rest counted as one: a program that crashes leaves works behind. */
const MAX_WORKS = 8;
/** Works beyond them: those that end first are one, which ends by its time alone. No program can name it. */
const REST = '*';
/** Of all applications of the file, kept for them. */
const OF_APPLICATIONS = MAX_APPLICATIONS * MAX_OWN_LEASES * (MAX_WORKS + 1);
export const KEPT_LEASES = MAX_LEASES + OF_APPLICATIONS;

export interface Lease {
	/** 1 to 64 of `A-Z a-z 0-9 . _ -`; a program that knows it can renew and release it. */
	readonly name: string;
	/** Tells works under one name apart; empty where the program does not. */
	readonly work: string;
	/** Monotonic. */
	readonly sinceMs: number;
	readonly untilMs: number;
}

/** Oldest first; may hold some that have run out. */
export type Leases = readonly Lease[];

export const NO_LEASES: Leases = [];

/** The leases that the end of the agent's process leaves, and the workflow change that waits for them. */
export interface KeptLeases {
	readonly leases: Leases;
	readonly waiting: { readonly workflowId: string; readonly sinceMs: number } | null;
}

/** Its times are milliseconds since the boot of the machine: the clock may be set between two starts. */
export interface LeaseStore {
	/** `null` where there is nothing, or nothing that can be read. */
	load(): KeptLeases | null;
	save(kept: KeptLeases): void;
}

/** The same with its times that much later. */
export function shifted({ leases, waiting }: KeptLeases, byMs: number): KeptLeases {
	return {
		leases: leases.map((one) => ({ ...one, sinceMs: one.sinceMs + byMs, untilMs: one.untilMs + byMs })),
		waiting: waiting && { ...waiting, sinceMs: waiting.sinceMs + byMs },
	};
}

/** The rest of it now. A lease that began later than now is of another boot, and counts for nothing. */
export function leftOf({ leases, waiting }: KeptLeases, nowMs: number): KeptLeases {
	const latestMs = nowMs + MAX_LEASE_SECONDS * 1000;
	const left = currentLeases(leases, nowMs).filter(({ sinceMs, untilMs }) => sinceMs <= nowMs && untilMs <= latestMs);
	return { leases: left, waiting: waiting && waiting.sinceMs <= nowMs ? waiting : null };
}

/** Takes a lease, or renews the one of this name and work. @throws AgentError `body-invalid` for a bad name or time, `service-overloaded` beyond a share. */
export function holdLease(leases: Leases, name: string, seconds: number, nowMs: number, work = ''): Leases {
	if (!OWN_NAME.test(name))
		throw invalid('The name of a lease is not valid.', 'Use 1 to 64 letters, digits, dots, hyphens and underscores.');
	if (!(seconds >= 1 && seconds <= MAX_LEASE_SECONDS))
		throw invalid(`A lease lasts 1 to ${MAX_LEASE_SECONDS} seconds.`, 'Take a shorter one and renew it.');
	const current = currentLeases(leases, nowMs);
	const named = current.filter((lease) => lease.name === name);
	const held = named.find((lease) => lease.work === work);
	const lease = { name, work, sinceMs: held?.sinceMs ?? nowMs, untilMs: nowMs + seconds * 1000 };
	const own = applicationIn(name);
	const ownNames = new Set(current.map((one) => one.name).filter((one) => own !== '' && one.startsWith(own)));
	if (named.length === 0 && ownNames.size >= MAX_OWN_LEASES)
		throw tooMany(`This application holds ${MAX_OWN_LEASES} leases already.`);
	if (held) return current.map((one) => (one === held ? lease : one));
	const beside = current.filter((one) => (applicationIn(one.name) === '') === (own === ''));
	const most = own === '' ? MAX_LEASES : OF_APPLICATIONS;
	const isFull = beside.length >= most;
	if (isFull && named.length < MAX_WORKS) throw tooMany(`${most} leases are held already.`);
	const rest = restOf(named, isFull);
	return [...current.filter((one) => !rest.includes(one)), ...mergedLease(name, rest), lease];
}

/** Those under one name that become one: of too many works the one that ends first, and what is merged already. */
function restOf(named: Leases, isFull: boolean): Leases {
	const rest = named.filter(({ work }) => work === REST);
	const works = named.filter(({ work }) => work !== REST).toSorted((one, other) => one.untilMs - other.untilMs);
	// The rest itself takes a place as well.
	const count = isFull ? 2 - rest.length : works.length + 1 - MAX_WORKS;
	return count > 0 ? [...rest, ...works.slice(0, count)] : [];
}

function mergedLease(name: string, rest: Leases): Leases {
	if (rest.length === 0) return [];
	const sinceMs = Math.min(...rest.map((one) => one.sinceMs));
	return [{ name, work: REST, sinceMs, untilMs: Math.max(...rest.map(({ untilMs }) => untilMs)) }];
}

/** They end on their own: asking again helps. */
const tooMany = (message: string) =>
	new AgentError('service-overloaded', message, {
		remedy: 'Release them after the work, and reuse their names.',
		retryAfterMs: 1000,
	});

/** Gives a lease back; one that is not held changes nothing. */
export function releaseLease(leases: Leases, name: string, work = ''): Leases {
	const left = leases.filter((lease) => lease.name !== name || lease.work !== work);
	return left.length < leases.length ? left : leases;
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
