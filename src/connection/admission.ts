/** Whether a link may register now: with a credential that is still set, and as often as the budget allows. Pure. */
import { failure } from '../base/errors.ts';
import { type Credential, failureOf, type Step, transition } from './link.ts';
import { type RegistrationBudget, spend } from './registration-budget.ts';
import { mayUseEarlier, mayUseReusable, type Registration, type Supervision } from './supervision.ts';

/**
 * The step of a link as far as it may register: with a credential which is not its own any more, or more often than the
 * budget allows, the registration has failed before it is sent.
 */
export function admitted(
	step: Step,
	{ desired, budget, by }: Pick<Supervision, 'desired' | 'budget'> & { readonly by: 'site' | 'service' },
	registration: Registration,
	atMs: number,
	random: () => number,
): { readonly step: Step; readonly budget: RegistrationBudget } {
	const asked = step.effects.find((effect) => effect.type === 'register');
	if (!asked) return { step, budget };
	const mayUse = { reusable: mayUseReusable, earlier: mayUseEarlier, connection: null, selfRegistration: null };
	const isWithheld = mayUse[asked.credential.kind]?.(registration, desired) === false;
	if (isWithheld && asked.credential.kind === 'reusable' && mayUseEarlier(registration, desired))
		return admitted(withEarlier(step), { desired, budget, by }, registration, atMs, random);
	const spent = isWithheld ? { budget, heldBack: NO_LONGER_SET } : spend(budget, atMs, by);
	if (!spent.heldBack) return { step, budget: spent.budget };
	const failed = { type: 'registerFailed', attempt: asked.attempt, timedOut: false, atMs } as const;
	const after = transition(step.state, { ...failed, failure: spent.heldBack }, random);
	const effects = [...step.effects.filter((effect) => effect !== asked), ...after.effects];
	// What has the device register again stays the cause: the pace is told by a warning of its own.
	const cause = isWithheld ? null : failureOf(step.state);
	const state = cause && 'untilMs' in after.state ? { ...after.state, failure: cause } : after.state;
	// A credential that is withheld leaves the next one to be tried.
	return admitted({ state, effects }, { desired, budget: spent.budget, by }, registration, atMs, random);
}

/** The key that the registration was made with has left the settings: it is the one from before now. */
function withEarlier({ state, effects }: Step): Step {
	const instead = (credential: Credential): Credential =>
		credential.kind === 'reusable' ? { kind: 'earlier' } : credential;
	const credentials = 'credentials' in state ? state.credentials.map(instead) : [];
	return {
		state: 'credentials' in state ? { ...state, credentials } : state,
		effects: effects.map((one) => (one.type === 'register' ? { ...one, credential: instead(one.credential) } : one)),
	};
}

const NO_LONGER_SET = failure(
	'credential-refused',
	'The credential that this registration was made with is no longer set.',
);
