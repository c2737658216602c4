/** The faults of settings as a person is told them: with what the agent does meanwhile. Pure. */
import type { Failure } from '../base/errors.ts';
import { joinSentences } from '../base/sentences.ts';
import { listSettings } from './table.ts';

/** A file that cannot be used, and whether what was read of it before is in its place. */
export interface Unusable {
	readonly told: Failure;
	readonly stays: boolean;
}

/** With what follows from it. */
export function toldUnusable({ told, stays }: Unusable): Failure {
	// Of a file with one wrong setting, the others are taken.
	const { setting } = told.params ?? {};
	// A name that is not a setting has no value.
	if (setting !== undefined && !listSettings().has(`${setting}`) && !isGroup(`${setting}`)) return told;
	const what = setting ? 'Its value from before stays' : 'The settings from before stay';
	// A key that worked is kept, and so is the Connection.
	const without = told.code === 'credential-unreadable' ? 'with what has worked before, if anything has' : 'without it';
	return {
		...told,
		message: joinSentences(told.message, stays ? `${what} in force.` : `The agent goes on ${without}.`),
	};
}

const isGroup = (name: string) => [...listSettings().keys()].some((path) => path.startsWith(`${name}.`));

/** The faults of settings, with what follows from each. */
export function toldProblems(problems: readonly Failure[], unknown: readonly Failure[]): Failure[] {
	// Of a restriction that was refused and not set before, what is held back is told as well, and nothing from before stays.
	const held = unknown.flatMap(({ params }) => params?.['refused'] ?? []).map(String);
	const isHeld = ({ params: { setting, meanwhile } = {} }: Failure) =>
		meanwhile !== undefined || held.some((path) => `${path}.`.startsWith(`${setting}.`));
	return problems.map((told) => (unknown.includes(told) || isHeld(told) ? told : toldUnusable({ told, stays: true })));
}
