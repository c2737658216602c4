/** `idv-agent workflow`: the workflow that is wanted, the one that is live, and moving from one to another. */
import { EXIT } from '../base/errors.ts';
import { LOCAL_ROUTES, type Status } from '../protocol/local-api.ts';
import { type AskFlags, askStatus, clientFor, untilStatus } from './local-agent.ts';
import type { Shell } from './output.ts';
import { reportProblem, SOURCES } from './status.ts';

export async function showWorkflow(shell: Shell, flags: AskFlags): Promise<void> {
	const { workflow } = await askStatus(clientFor(shell, flags));
	if (shell.isJson) return shell.json(workflow);
	const { wanted: desired, live, source } = workflow;
	shell.table([
		['Wanted', desired === null ? 'none' : `${desired}${source ? `, set by ${SOURCES[source]}` : ''}`],
		['Live', live ?? 'none'],
	]);
}

/** Asks for the change, then waits until the workflow is live or it is clear that it will not be. */
export async function setWorkflow(shell: Shell, flags: AskFlags & { readonly wait: number }, workflowId: string) {
	const client = clientFor(shell, flags);
	const asked = (await client.request('admin', 'PUT', LOCAL_ROUTES.workflow, { workflowId })) as Status;
	const isLive = ({ workflow }: Status) => workflow.live === workflowId;
	const status = await untilStatus(client, asked, (now) => isLive(now) || now.problem !== null, flags.wait);
	if (!isLive(status) && status.problem) return reportProblem(shell, status);
	shell.answer(status, status.sentence);
	if (isLive(status)) return;
	shell.caller.exitCode = EXIT.temporary;
	if (!shell.isJson)
		shell.warn(
			`${workflowId} is not live after ${flags.wait} s. The agent continues automatically; idv-agent status shows the result.`,
		);
}
