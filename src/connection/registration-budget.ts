/**
 * How often a device registers at most, whatever its service makes it do: bounds `workflow.changed` in a loop and Connections
 * that live for seconds. Pure; remembers times, decides no wait of its own beyond "not before".
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
	/** Monotonic times of the registrations within the last hour, oldest first. Those that did not reach the service are left out. */
	readonly begunAtMs: readonly number[];
	/** When a registration was last held back, monotonic; `null` before the first. */
	readonly heldBackAtMs: number | null;
}

export const FULL_BUDGET: RegistrationBudget = { begunAtMs: [], heldBackAtMs: null };

/** One registration more; a failure where it has to wait, with the least wait. */
export function spend(
	{ begunAtMs, heldBackAtMs }: RegistrationBudget,
	atMs: number,
): { readonly budget: RegistrationBudget; readonly heldBack: Failure | null } {
	const recent = begunAtMs.filter((begun) => atMs - begun < HOUR);
	for (const { most, withinMs, words } of LIMITS) {
		// The oldest that still counts frees the place.
		const oldest = recent.at(-most);
		if (oldest === undefined || atMs - oldest >= withinMs) continue;
		const message = `This device has registered ${most} times within ${words}; the next time has to wait.`;
		const heldBack = failure('registering-too-often', message, { retryAfterMs: oldest + withinMs - atMs });
		return { budget: { begunAtMs: recent, heldBackAtMs: atMs }, heldBack };
	}
	return { budget: { begunAtMs: [...recent, atMs], heldBackAtMs }, heldBack: null };
}

/** Takes back the newest: it has not reached the service. */
export function refund({ begunAtMs, heldBackAtMs }: RegistrationBudget): RegistrationBudget {
	return { begunAtMs: begunAtMs.slice(0, -1), heldBackAtMs };
}

/** What the status says for an hour after a registration was held back. */
export function budgetWarning({ heldBackAtMs }: RegistrationBudget, nowMs: number): Failure | null {
	if (heldBackAtMs === null || nowMs - heldBackAtMs >= HOUR) return null;
	const limits = LIMITS.map(({ most, words }) => `${most} times ${words}`).join(' or ');
	const message = `This device is made to register more often than ${limits}, by its service or by changes of its settings; the newest workflow is taken when there is room.`;
	return failure('registering-too-often', message);
}
