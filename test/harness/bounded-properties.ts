/**
 * fast-check as the suites see it: a property stops after 15 s with the runs that it had, so that a busy machine makes it
 * shorter and not red. A counterexample that was found by then fails as always.
 */
import fc from '../../node_modules/fast-check/lib/fast-check.js';

fc.configureGlobal({ ...fc.readConfigureGlobal(), interruptAfterTimeLimit: 15_000, markInterruptAsFailure: false });

const running = new Set<Promise<unknown>>();

/** fast-check leaves the run alone that its limit interrupts: what that run has changed in the process would fail the next test. */
export const asyncProperty = ((...given: unknown[]) => {
	const predicate = given.pop() as (...values: unknown[]) => Promise<unknown>;
	const tracked = async (...values: unknown[]) => {
		const run = predicate(...values);
		running.add(run);
		return run.finally(() => running.delete(run));
	};
	return (fc.asyncProperty as (...all: unknown[]) => unknown)(...given, tracked);
}) as typeof fc.asyncProperty;

export const assert = ((...given: Parameters<typeof fc.assert>) => {
	const checked = fc.assert(...given) as Promise<void> | undefined;
	return checked?.finally(() => Promise.allSettled(running));
}) as typeof fc.assert;

export * from '../../node_modules/fast-check/lib/fast-check.js';
export default { ...fc, asyncProperty, assert };
