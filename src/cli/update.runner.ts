/** `idv-agent update`: what root has written of updates. What changes something is the program of idv-agent-updates (`update-root.ts`). */
import { existsSync } from 'node:fs';
import { AgentError, asError, CATALOGUE } from '../base/errors.ts';
import { notInstalled, UPDATES_PROGRAM } from '../updates/package.ts';
import type { Trial } from '../updates/record.ts';
import { openUpdateRecords } from '../updates/records.edge.ts';
import { inWords, successor } from '../updates/taken-back.ts';
import { localTime, type Shell } from './output.runner.ts';
import { VERSION } from './version.runner.ts';

export async function showUpdates(shell: Shell): Promise<void> {
	const records = openUpdateRecords();
	if (!(await records.isReadable()))
		throw new AgentError('access-denied', 'Only root may do this.', { remedy: 'Run it with sudo.' });
	const [trial, outcomes] = [await records.trial(), await records.outcomes()];
	const installed = existsSync(UPDATES_PROGRAM);
	if (shell.isJson) return shell.json({ version: VERSION, installed, trial, ...outcomes });
	if (!installed) return shell.line(`Version ${VERSION}. ${notInstalled().message} ${notInstalled().remedy}`);
	shell.line(trialLine(trial));
	const { failed } = outcomes;
	if (failed)
		shell.line(
			`\nOn ${localTime(failed.at)} the order of the fleet plan was not carried out: ${failed.message} [${failed.code}]${remedyOf(failed.code)}`,
		);
	for (const { version, by, at, fault, log } of outcomes.takenBack) {
		shell.line(
			`\n${version} was taken back on ${localTime(at)}: ${inWords(fault)}. ${successor(version, by)} took its place.`,
		);
		for (const line of log.slice(-5)) shell.line(`  ${line}`);
	}
	if (outcomes.takenBack.length > 0) shell.line('\nThe whole log of each is in: idv-agent update show --json');
}

/** Of a code that this version knows. */
function remedyOf(code: string): string {
	const remedy = (CATALOGUE as Readonly<Record<string, { readonly remedy: string }>>)[code]?.remedy;
	return remedy === undefined ? '' : `\n${remedy}`;
}

function trialLine(trial: Trial | null): string {
	if (!trial) return `Version ${VERSION}; no update is under way.`;
	if (trial.phase === 'goneBack')
		return `Version ${trial.to} was taken back; ${trial.from} is at hand until it is online.`;
	if (trial.phase === 'standsIn')
		return `Version ${trial.to} fails (${inWords(trial.fault ?? '')}) while apt hangs: ${trial.from} runs in its place. The next boot ends it.`;
	if (trial.phase === 'goingBack') return `Version ${trial.to} is being taken back; ${trial.from} takes its place.`;
	return `Version ${trial.to} is being tried since ${localTime(trial.startedAt)}; ${trial.from} is at hand.`;
}

/** `idv-agent update forget VERSION`: becomes root's program. @throws AgentError `updates-missing` without it. */
export async function forgetVersion(shell: Shell, _flags: unknown, version: string): Promise<void> {
	if (!existsSync(UPDATES_PROGRAM)) throw asError(notInstalled());
	const words = [UPDATES_PROGRAM, 'forget', version, ...(shell.isJson ? ['--json'] : [])];
	process.execve?.(UPDATES_PROGRAM, words, shell.env);
}
