/** `idv-agent workflow`: the workflow that is wanted, the one that is live, and moving from one to another. */
import { dispositionOf, EXIT, type Failure, toFailure } from '../base/errors.ts';
import { joinSentences } from '../base/sentences.ts';
import type { LocalClient } from '../client/local-client.edge.ts';
import { LOCAL_ROUTES, type Status } from '../protocol/local-api.ts';
import { type AskFlags, askStatus, clientFor } from './local-agent.runner.ts';
import type { Shell } from './output.runner.ts';
import { reportProblem, SOURCES } from './status.runner.ts';

export async function showWorkflow(shell: Shell, flags: AskFlags): Promise<void> {
	const { workflow } = await askStatus(clientFor(shell, flags));
	if (shell.isJson) return shell.json(workflow);
	const { wanted: desired, live, source } = workflow;
	shell.table([
		['Wanted', desired === null ? 'none' : `${desired}${source ? `, set by ${SOURCES[source]}` : ''}`],
		['Live', live ?? 'none'],
	]);
}

/** How much longer than the agent the command waits for its answer, in milliseconds. */
const ANSWER_MS = 15_000;

/** Asks for the change, and waits until the workflow is live. If that fails the agent keeps nothing of it. */
export async function setWorkflow(shell: Shell, flags: AskFlags & { readonly wait: number }, workflowId: string) {
	const client = clientFor(shell, flags);
	const ask = (waitSeconds: number) =>
		client.request(
			'admin',
			'PUT',
			LOCAL_ROUTES.workflow,
			{ workflowId, ...(waitSeconds > 0 && { waitSeconds }) },
			{
				deadlineMs: waitSeconds * 1000 + ANSWER_MS,
			},
		) as Promise<Status>;
	let status: Status;
	try {
		status = await ask(flags.wait);
	} catch (error) {
		if (flags.wait === 0) throw error;
		return reportKept(shell, client, workflowId, toFailure(error));
	}
	const isLive = status.workflow.live === workflowId;
	if (!isLive && status.problem) return reportProblem(shell, status);
	shell.answer(status, status.sentence);
	if (isLive) return;
	shell.caller.exitCode = EXIT.temporary;
	if (!shell.isJson)
		shell.warn(
			`${workflowId} is not live after ${flags.wait} s. The agent continues automatically; idv-agent status shows the result.`,
		);
}

/** Says why there is no change, and with which workflow the device stays. */
async function reportKept(shell: Shell, client: LocalClient, workflowId: string, told: Failure): Promise<void> {
	const status = await askStatus(client).catch(() => null);
	const { wanted = null, live = null } = status?.workflow ?? {};
	const isUnknown = status === null && told.code === 'agent-not-running';
	const unknown = `${workflowId} is not set unless it is live already: a start of the agent takes it back.`;
	const message =
		wanted || isUnknown
			? joinSentences(told.message, isUnknown ? unknown : outcomeOf(workflowId, wanted, live))
			: told.message;
	// The end of an outage does not bring this workflow: the device wants another one again.
	const isPassing = live !== null && live === wanted && dispositionOf(told.code) === 'retry';
	const remedy = joinSentences(told.remedy, isPassing ? 'Then run this command again.' : '');
	shell.fail({ ...told, message, remedy }, status ? { status } : {});
	// Another command asked for it meanwhile: this one was right.
	if (told.code === 'request-timeout' || told.code === 'workflow-conflict') shell.caller.exitCode = EXIT.temporary;
}

function outcomeOf(asked: string, wanted: string | null, live: string | null): string {
	if (wanted === asked && live === null)
		return `The device changes to ${asked}: another command has asked for it, or the service has registered it and ended the earlier channel.`;
	if (live === null || live === wanted) return `Nothing has changed: ${wanted} stays.`;
	return `This command has changed nothing: ${live} is live, and another command has asked for ${wanted ?? 'none'}.`;
}
