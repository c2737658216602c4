/** `idv-agent history`: when the device was online and why it was not, in sentences. Reads the files, also beside a running agent. */
import { AgentError } from '../base/errors.ts';
import { choosePaths } from '../settings/paths.runner.ts';
import { readLogMark } from '../state/log-mark.edge.ts';
import { readHistory } from '../status/history.runner.ts';
import { toldHistory } from '../status/history.ts';
import type { AskFlags } from './local-agent.runner.ts';
import { localTime, type Shell } from './output.runner.ts';
import { readTime } from './times.runner.ts';

export async function showHistory(
	shell: Shell,
	flags: AskFlags & { readonly since?: string; readonly until?: string },
): Promise<void> {
	const since = flags.since === undefined ? '' : readTime('--since', flags.since);
	const until = flags.until === undefined ? null : readTime('--until', flags.until);
	if (until !== null && until < since)
		throw new AgentError('usage', '--until is before --since.', { remedy: 'Name an earlier time in --since.' });
	const { stateDir } = choosePaths(flags, shell.env);
	const { documents, lost, damages } = readHistory(stateDir, await readLogMark(stateDir));
	const entries = toldHistory(documents);
	// A clock that was set back writes earlier times later: what was written in between belongs to it.
	const from = entries.findIndex(({ at }) => at >= since);
	const to = until === null ? entries.length - 1 : entries.findLastIndex(({ at }) => at <= until);
	// What was so at the beginning is told as well.
	const before = entries.slice(0, from === -1 ? entries.length : from).findLast(({ kind }) => kind === 'state');
	const shown = [...(before ? [before] : []), ...(from === -1 ? [] : entries.slice(from, to + 1))];
	for (const entry of shown)
		shell.line(shell.isJson ? JSON.stringify(entry) : `${localTime(entry.at)}  ${entry.sentence}`);
	const asked = [flags.since === undefined ? null : since, until].find((time) => time !== null);
	const [first] = entries;
	if (first && asked !== undefined && asked < first.at)
		shell.warn(`The history begins at ${localTime(first.at)}: nothing is known from before.`);
	for (const { after, before: next } of lost) {
		const [earlier, later] = [after, next].map((at) => (at === null ? 'the end' : localTime(at)));
		shell.warn(
			`Lines between ${after === null ? 'the beginning' : earlier} and ${later} are missing: they cannot be read.`,
		);
	}
	for (const { file, message } of damages)
		shell.warn(`The history is damaged in ${file}: ${message}. Lines may be missing.`);
	if (shown.length === 0 && !shell.isJson && shell.caller.stdout.isTTY) shell.line('No entries.');
}
