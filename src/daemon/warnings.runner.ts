/** Warnings of the device's settings: changes that wait for the next start, files that other users can get at, a disk that is too small. */
import type { Agent } from '../agent/agent.runner.ts';
import { type Failure, failure } from '../base/errors.ts';
import { joinSentences } from '../base/sentences.ts';
import { tooSmall } from '../events/disk-budget.ts';
import { findExposedFiles } from '../settings/exposed-files.runner.ts';
import type { SettingsSources } from '../settings/load.runner.ts';
import { type Settings, valueAt } from '../settings/table.ts';
import { START_ONLY } from './taken-settings.runner.ts';

/** @param wanted as the files have them, also while earlier ones stay in force because one of their files cannot be used. */
export async function warnOfSettings(
	wanted: Settings,
	parts: {
		readonly agent: Pick<Agent, 'warn' | 'ways'>;
		readonly atStart: Settings;
		readonly paths: SettingsSources['paths'];
		readonly capacityBytes: number | null;
	},
): Promise<void> {
	const { agent, paths } = parts;
	agent.warn('settings-at-start', ofStartOnly(parts.atStart, wanted));
	agent.warn('files', await ofFiles(agent, paths));
	agent.warn('disk', tooSmall(paths.stateDir, agent.ways.runtime().resolved.settings, parts.capacityBytes));
}

function ofStartOnly(atStart: Settings, now: Settings): Failure | null {
	const changed = START_ONLY.filter((path) => valueAt(atStart, path) !== valueAt(now, path));
	const message = `The change of ${changed.join(' and ')} takes effect at the next start of the agent.`;
	return changed.length === 0 ? null : failure('restart-needed', message);
}

/** For this release such a file is still used; pairing refuses. */
async function ofFiles({ ways }: Pick<Agent, 'ways'>, paths: SettingsSources['paths']): Promise<Failure | null> {
	// The applications file is not used at all then, and has a warning of its own.
	const { applicationsFile } = ways.runtime().resolved.settings.local.http;
	const exposed = await findExposedFiles(ways.wanted().resolved, paths);
	const [one, ...others] = exposed.filter(({ params }) => params?.['path'] !== applicationsFile);
	return one ? { ...one, message: joinSentences(one.message, ...others.map(({ message }) => message)) } : null;
}
