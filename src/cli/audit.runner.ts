/** `idv-agent audit`: what was asked of this device, by which entrance, with what result, and what changed; and whether all of it is there. */
import { readAuditLog } from '../audit/audit.runner.ts';
import { type Missing, missingBy, type Witness } from '../audit/missing.ts';
import { AgentError, EXIT } from '../base/errors.ts';
import { type AuditEntry, type AuditReport, LOCAL_ROUTES } from '../protocol/local-api.ts';
import { cleanText } from '../protocol/problem.ts';
import { choosePaths } from '../settings/paths.runner.ts';
import { readLogMark } from '../state/log-mark.edge.ts';
import { type AskFlags, agentStopped, clientFor, nullIfAway } from './local-agent.runner.ts';
import { localTime, type Shell } from './output.runner.ts';

export async function showAudit(
	shell: Shell,
	flags: AskFlags & { readonly follow?: boolean; readonly verify?: boolean },
): Promise<void> {
	const { stateDir } = choosePaths(flags, shell.env);
	if (flags.verify) return verify(shell, stateDir);
	const client = clientFor(shell, flags);
	if (flags.follow) {
		const { reason } = await client.events(LOCAL_ROUTES.auditStream, { socket: 'admin' }, ({ data }) => {
			shell.isStream = true;
			print(shell, JSON.parse(data) as AuditEntry);
		});
		if (reason === 'slow')
			throw new AgentError('connection-lost', 'The agent ended the stream: for too long nothing of it was read.', {
				remedy: 'Run the command again: it begins with the oldest entry that is kept.',
			});
		if (reason !== 'aborted') throw agentStopped();
		return;
	}
	const report = (await client.request('admin', 'GET', LOCAL_ROUTES.audit).catch(nullIfAway)) as AuditReport | null;
	// The file outlives the agent.
	const entries = report?.entries ?? (await readAuditLog(stateDir, await readLogMark(stateDir))).documents;
	for (const entry of entries) print(shell, entry);
	if (entries.length === 0 && !shell.isJson && shell.caller.stdout.isTTY) shell.line('No entries.');
}

/** Looks at the files, also beside a running agent. Exit status 74 when entries are missing or altered. */
async function verify(shell: Shell, stateDir: string): Promise<void> {
	// The history first: it never knows more than an audit log that is read later.
	const logMark = await readLogMark(stateDir);
	const history = await readBeside(stateDir, logMark);
	const { documents, first, last, lost: inside, damages } = await readAuditLog(stateDir, logMark);
	const lost = joined([...inside, ...missingBy(history, last)]);
	const isWhole = lost.length === 0 && damages.length === 0;
	if (!isWhole) shell.caller.exitCode = EXIT.io;
	if (shell.isJson) return shell.json({ isWhole, entries: documents.length, first, last, lost, damages });
	for (const { from, to, after, before } of lost) {
		const [earlier, later] = [after ? localTime(after) : 'the beginning', before ? localTime(before) : 'the end'];
		// The history alone knows how many were in a damaged end.
		const isOpen = to === last && before === null && damages.length > 0;
		const several = isOpen ? `Entries from ${from} on are` : `Entries ${from} to ${to} are`;
		const which = from === to && !isOpen ? `Entry ${from} is` : several;
		shell.line(`${which} missing or altered (between ${earlier} and ${later}).`);
	}
	for (const { file, message } of damages) shell.line(`${file}: ${message}.`);
	if (!isWhole) shell.line('Compare with the journal: journalctl -t idv-agent-audit.');
	else if (last > 0) shell.line(`Entries ${first} to ${last}: none is missing, none is altered.`);
	else shell.line('There are no entries.');
}

/** Those that follow each other are one. */
function joined(all: readonly Missing[]): readonly Missing[] {
	const rows: Missing[] = [];
	for (const next of all.toSorted((one, other) => one.from - other.from)) {
		const row = rows.at(-1);
		if (row && next.from <= row.to + 1)
			rows[rows.length - 1] = next.to < row.to ? row : { ...row, to: next.to, before: next.before };
		else rows.push(next);
	}
	return rows;
}

/** What the history knows; nothing where it cannot be read. */
async function readBeside(stateDir: string, logMark: string | null): Promise<readonly Witness[]> {
	const { readHistory } = await import('../status/history.runner.ts');
	try {
		return readHistory(stateDir, logMark).documents;
	} catch {
		return [];
	}
}

/** One line: time, entrance, action, result, and what there is to say besides. */
function print(shell: Shell, entry: AuditEntry): void {
	const { at, action, entrance, result, version: _, ...more } = entry;
	const details = Object.entries(more).map(([name, value]) => `${name}=${cleanText(String(value), 200)}`);
	const words = [localTime(at), ...[entrance, action, result].map((text) => cleanText(text, 64)), ...details];
	shell.line(shell.isJson ? JSON.stringify(entry) : words.join('  '));
}
