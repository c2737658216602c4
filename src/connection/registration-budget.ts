/**
 * How often a device registers at most, whatever makes it do so: bounds `workflow.changed` in a loop, Connections that live for
 * seconds and settings that change without end. Pure; remembers times and who caused them, decides no wait of its own beyond "not before".
 */
import { type Failure, failure } from '../base/errors.ts';

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;

/** So many registrations may begin within any such time. */
const LIMITS = [
	{ most: 10, withinMs: MINUTE, words: 'a minute' },
	{ most: 120, withinMs: HOUR, words: 'an hour' },
] as const;

export interface RegistrationBudget {
	/** Monotonic times of the registrations within the last hour, oldest first. Left out are those that did not reach the service, and retries that failed. */
	readonly begunAtMs: readonly number[];
	/** Those of them that the service has caused. */
	readonly byServiceAtMs: readonly number[];
	/** When a registration was last held back, monotonic; `null` before the first. */
	readonly heldBackAtMs: number | null;
	/** What had caused most of those before it. */
	readonly cause: Cause;
}

/** Changes on the device's own side (settings, fleet plan, a person), or the service: a move, a renewal, a Connection that it ends. */
type Cause = 'site' | 'service';

export const FULL_BUDGET: RegistrationBudget = {
	begunAtMs: [],
	byServiceAtMs: [],
	heldBackAtMs: null,
	cause: 'service',
};

/** One registration more; a failure where it has to wait, with the least wait. */
export function spend(
	before: RegistrationBudget,
	atMs: number,
	by: Cause,
): { readonly budget: RegistrationBudget; readonly heldBack: Failure | null } {
	const [recent, recentByService] = [before.begunAtMs, before.byServiceAtMs].map((all) =>
		all.filter((begun) => atMs - begun < HOUR),
	) as [number[], number[]];
	for (const { most, withinMs, words } of LIMITS) {
		// The oldest that still counts frees the place.
		const oldest = recent.at(-most);
		if (oldest === undefined || atMs - oldest >= withinMs) continue;
		const cause: Cause = 2 * recentByService.filter((begun) => begun >= oldest).length >= most ? 'service' : 'site';
		const message = `This device has registered ${most} times within ${words}, ${BECAUSE[cause]}; the next time has to wait.`;
		const told = { remedy: REMEDIES[cause], retryAfterMs: oldest + withinMs - atMs };
		const heldBack = failure('registering-too-often', message, told);
		const budget = { begunAtMs: recent, byServiceAtMs: recentByService, heldBackAtMs: atMs, cause };
		return { budget, heldBack };
	}
	const byServiceAtMs = by === 'service' ? [...recentByService, atMs] : recentByService;
	return { budget: { ...before, begunAtMs: [...recent, atMs], byServiceAtMs }, heldBack: null };
}

const BECAUSE: Record<Cause, string> = {
	site: 'since its settings or its assignment changed as often',
	service: 'since its service moved it, ended its Connections or left it without an answer as often',
};
const REMEDIES: Record<Cause, string> = {
	site: 'Wait a few minutes: the newest is taken then. Look at what changes the settings or the fleet plan of this device so often.',
	service:
		'Wait a few minutes. The operator of the service must look at why this device is moved, renewed or left without an answer so often.',
};

/** Takes back the newest: it has not reached the service. */
export function refund(budget: RegistrationBudget): RegistrationBudget {
	const begunAtMs = budget.begunAtMs.slice(0, -1);
	const newest = budget.begunAtMs.at(-1);
	return { ...budget, begunAtMs, byServiceAtMs: budget.byServiceAtMs.filter((begun) => begun !== newest) };
}

/** What the status says for an hour after a registration was held back. */
export function budgetWarning({ heldBackAtMs, cause }: RegistrationBudget, nowMs: number): Failure | null {
	if (heldBackAtMs === null || nowMs - heldBackAtMs >= HOUR) return null;
	const limits = LIMITS.map(({ most, words }) => `${most} times ${words}`).join(' or ');
	const message = `Within the last hour this device wanted to register more often than ${limits}, ${BECAUSE[cause]}; while it does, the newest registration waits for room.`;
	return failure('registering-too-often', message, { remedy: REMEDIES[cause] });
}
