/** The package idv-agent-updates as the agent and its commands see it: where it is, and what a device without it says. Pure. */
import { type Failure, failure } from '../base/errors.ts';
import type { ResolvedSettings } from '../settings/resolve.ts';

/** Root's program. A link to the agent's executable, which loads the program from beside this name. */
export const UPDATES_PROGRAM = '/usr/lib/idv-agent-updates/idv-agent-updates';
/** Root's: what is known of updates. The agent's group may read it. */
export const UPDATES_DIRECTORY = '/var/lib/idv-agent-update';
export const TRIAL_FILE = 'trial.json';
export const OUTCOMES_FILE = 'outcomes.json';
/** In the directory of the agent's state: the plan that orders an update, as the agent has fetched it. */
export const PLAN_FILE = 'update-plan.json';

export const notInstalled = (): Failure =>
	failure(
		'updates-missing',
		'The package idv-agent-updates is not installed: no plan updates this device, and no new version is judged.',
	);

/** The warning for settings that ask for updates on a device that has none; `null` for none. */
export function missingFor({ origins }: Pick<ResolvedSettings, 'origins'>, isInstalled: boolean): Failure | null {
	if (isInstalled) return null;
	const named = [...origins].filter(([path, { source }]) => path.startsWith('update.') && source !== 'default');
	if (named.length === 0) return null;
	const names = named.map(([path]) => path).join(', ');
	const { message } = notInstalled();
	return failure('updates-missing', `The settings name ${names}. ${message}`, { params: { settings: names } });
}
