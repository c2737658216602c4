/**
 * How often a device registers at most, whatever makes it do so: bounds `workflow.changed` in a loop, Connections that live for
 * seconds and settings that change without end. Pure; remembers times and who caused them, decides no wait of its own beyond "not before".
 */
import { type Failure, failure } from '../base/errors.ts';

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;

/** So many registrations may begin within any minute. */
const MOST_A_MINUTE = 10;
/**
 * After so many within an hour they come one by one, evenly: 120 an hour in all, and the device is never further than this from the next.
 * A bound of 120 at any pace had it wait up to a quarter of an hour after 45 minutes of lost answers.
 */
const FREE_AN_HOUR = 20;
const THEN_EVERY_MS = 36 * SECOND;
const MOST_AN_HOUR = FREE_AN_HOUR + HOUR / THEN_EVERY_MS;

export interface RegistrationBudget {
	/** Monotonic times of the registrations within the last hour, oldest first. Those that did not reach the service are left out. */
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
	// The oldest that still counts frees the place.
	const oldest = recent.at(-MOST_A_MINUTE) ?? Number.NEGATIVE_INFINITY;
	const newest = recent.length < FREE_AN_HOUR ? Number.NEGATIVE_INFINITY : (recent.at(-1) ?? 0);
	const waitMs = Math.max(oldest + MINUTE, newest + THEN_EVERY_MS) - atMs;
	if (waitMs > 0) {
		const isMinute = oldest + MINUTE > atMs;
		const counted = isMinute ? recent.slice(-MOST_A_MINUTE) : recent;
		const byService = recentByService.filter((begun) => begun >= (counted[0] ?? 0)).length;
		const cause: Cause = 2 * byService >= counted.length ? 'service' : 'site';
		const words = isMinute ? 'a minute' : 'an hour';
		const then = isMinute ? '' : `: after ${FREE_AN_HOUR} within an hour, one goes every ${THEN_EVERY_MS / SECOND} s`;
		const message = `This device has registered ${counted.length} times within ${words}, ${BECAUSE[cause]}; the next time has to wait${then}.`;
		const heldBack = failure('registering-too-often', message, { remedy: REMEDIES[cause], retryAfterMs: waitMs });
		// Evened out alone it is no more than a retry that waits.
		const isTold = isMinute || 2 * recent.length >= MOST_AN_HOUR;
		const told = isTold ? { heldBackAtMs: atMs, cause } : {};
		return { budget: { ...before, begunAtMs: recent, byServiceAtMs: recentByService, ...told }, heldBack };
	}
	const byServiceAtMs = by === 'service' ? [...recentByService, atMs] : recentByService;
	return { budget: { ...before, begunAtMs: [...recent, atMs], byServiceAtMs }, heldBack: null };
}

const BECAUSE: Record<Cause, string> = {
	site: 'since its settings or its assignment changed as often',
	service: 'since its service moved it, ended its Connections or left it without an answer as often',
};
const REMEDIES: Record<Cause, string> = {
	site: 'Wait a few minutes: the newest registration is then made. Look at what changes the settings or the fleet plan of this device so often.',
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
	const limits = `${MOST_A_MINUTE} times a minute or ${MOST_AN_HOUR} times an hour`;
	const message = `Within the last hour this device wanted to register more often than ${limits}, ${BECAUSE[cause]}; while it does, the newest registration waits for room.`;
	return failure('registering-too-often', message, { remedy: REMEDIES[cause] });
}
