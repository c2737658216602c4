/** `idv-agent workflow`: the workflow that is wanted, the one that is live, and moving from one to another. */
import { EXIT } from '../base/errors.ts';
import { LOCAL_ROUTES, type Status } from '../protocol/local-api.ts';
import { type AskFlags, askStatus, clientFor, untilStatus } from './local-agent.ts';
import { printAnswer, printJson, printTable, printWarning } from './output.ts';
import { reportProblem, SOURCES } from './status.ts';

export async function showWorkflow(flags: AskFlags): Promise<void> {
	const { workflow } = await askStatus(clientFor(flags));
	if (flags.json) return printJson(workflow);
	const { wanted: desired, live, source } = workflow;
	printTable([
		['Wanted', desired === null ? 'none' : `${desired}${source ? `, set by ${SOURCES[source]}` : ''}`],
		['Live', live ?? 'none'],
	]);
}

/** Asks for the change, then waits until the workflow is live or it is clear that it will not be. */
export async function setWorkflow(flags: AskFlags & { readonly wait: number }, workflowId: string): Promise<void> {
	const client = clientFor(flags);
	const asked = (await client.request('admin', 'PUT', LOCAL_ROUTES.workflow, { workflowId })) as Status;
	const isLive = ({ workflow }: Status) => workflow.live === workflowId;
	const status = await untilStatus(client, asked, (now) => isLive(now) || now.problem !== null, flags.wait);
	if (!isLive(status) && status.problem) return reportProblem(status, flags);
	printAnswer(flags, status, status.sentence);
	if (isLive(status)) return;
	process.exitCode = EXIT.temporary;
	if (!flags.json)
		printWarning(
			`${workflowId} is not live after ${flags.wait} s. The agent continues automatically; idv-agent status shows the result.`,
		);
}
