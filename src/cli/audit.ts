/** `idv-agent audit`: what was asked of this device, by which entrance, with what result, and what changed. */
import { readAuditLog } from '../audit/audit.runner.ts';
import { AgentError } from '../base/errors.ts';
import { type AuditEntry, type AuditReport, LOCAL_ROUTES } from '../protocol/local-api.ts';
import { cleanText } from '../protocol/problem.ts';
import { choosePaths } from '../settings/paths.runner.ts';
import { type AskFlags, agentStopped, clientFor } from './local-agent.ts';
import { localTime, type Shell } from './output.ts';

export async function showAudit(shell: Shell, flags: AskFlags & { readonly follow?: boolean }): Promise<void> {
	const client = clientFor(shell, flags);
	if (flags.follow) {
		const { reason } = await client.events(LOCAL_ROUTES.auditStream, { socket: 'admin' }, ({ data }) =>
			print(shell, JSON.parse(data) as AuditEntry),
		);
		if (reason !== 'aborted') throw agentStopped();
		return;
	}
	const entries = await client.request('admin', 'GET', LOCAL_ROUTES.audit).then(
		(report) => (report as AuditReport).entries,
		(error: unknown) => {
			// The file outlives the agent.
			if (error instanceof AgentError && error.code === 'agent-not-running')
				return readAuditLog(choosePaths(flags, shell.env).stateDir);
			throw error;
		},
	);
	for (const entry of entries) print(shell, entry);
	if (entries.length === 0 && !shell.isJson && shell.caller.stdout.isTTY) shell.line('No entries.');
}

/** One line: time, entrance, action, result, and what there is to say besides. */
function print(shell: Shell, entry: AuditEntry): void {
	const { at, action, entrance, result, version: _, ...more } = entry;
	const details = Object.entries(more).map(([name, value]) => `${name}=${cleanText(String(value), 200)}`);
	const words = [localTime(at), ...[entrance, action, result].map((text) => cleanText(text, 64)), ...details].join(
		'  ',
	);
	shell.line(shell.isJson ? JSON.stringify(entry) : words);
}
