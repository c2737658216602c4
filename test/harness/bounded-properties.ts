/**
 * fast-check as the suites see it: a property stops after 15 s with the runs that it had, so that a busy machine makes it
 * shorter and not red. A counterexample that was found by then fails as always.
 */
import fc from '../../node_modules/fast-check/lib/fast-check.js';

fc.configureGlobal({ ...fc.readConfigureGlobal(), interruptAfterTimeLimit: 15_000, markInterruptAsFailure: false });

export * from '../../node_modules/fast-check/lib/fast-check.js';
export default fc;
