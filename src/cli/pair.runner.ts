/** `idv-agent pair`: reads a code, shows what it would do, and has the running agent spend it. */
import { AgentError, asError, asFailure } from '../base/errors.ts';
import { joinSentences } from '../base/sentences.ts';
import { AgentProblem } from '../client/agent-problem.ts';
import { unsent, withWorth } from '../pairing/code-worth.ts';
import { notACode } from '../pairing/rules.ts';
import { readScannedText } from '../pairing/scanned-text.ts';
import { normalizeBaseUrl } from '../protocol/endpoints.ts';
import { LOCAL_ROUTES, type PairPreview, type PairRequest, type PairResult } from '../protocol/local-api.ts';
import { asGivenCode, MAX_CODE_LENGTH, SHORT_TOKEN_FORM } from '../protocol/pairing-code.ts';
import { chooseWorkflow, readWorkflowChoices } from '../protocol/workflow-choices.ts';
import { type AskFlags, clientFor } from './local-agent.runner.ts';
import type { Shell } from './output.runner.ts';
import { ask, confirm, promptHidden, readStandardInput, withoutInput } from './prompts.runner.ts';

export interface PairFlags extends AskFlags {
	readonly image?: string | undefined;
	readonly workflow?: string | undefined;
	readonly inspect?: boolean | undefined;
	readonly replace?: boolean | undefined;
	readonly keepEvents?: boolean | undefined;
	readonly trust?: string | undefined;
}

/** Longest pairing: preflight, one request and the wait for the channel, each with a deadline of its own. */
const PAIR_DEADLINE_MS = 90_000;

/** A typed text may be a code that is not whole, or has spaces. */
function withForm(preview: PairPreview): PairPreview {
	const { problem } = preview;
	if (problem?.code !== 'not-a-pairing-code' || !/^(?:digits|word|text)$/.test(String(problem.params?.['form'])))
		return preview;
	const remedy = joinSentences(problem.remedy, `A Short Token is ${SHORT_TOKEN_FORM}.`);
	return { ...preview, problem: { ...problem, remedy } };
}

/** @param from the arguments: `-` for standard input, or none. */
export async function pair(shell: Shell, flags: PairFlags, from: readonly string[]): Promise<void> {
	checkSource(shell, from, flags.image);
	if (flags.trust !== undefined && normalizeBaseUrl(flags.trust) === null)
		throw new AgentError('usage', '--trust takes the address of a service.', {
			remedy: 'Write it as https://id.example.com, without user, query or fragment.',
		});
	const client = clientFor(shell, flags);
	const askBefore = (...asked: Parameters<typeof client.request>) =>
		client.request(...asked).catch((error: unknown) => {
			throw unsent(error);
		});
	// Who pipes the answer away still wants the device paired.
	shell.goOnUnread();
	// Before a person fetches a scanner: is there an agent, and may this user move the device?
	await askBefore('admin', 'GET', LOCAL_ROUTES.status);
	const read = checkLength(await readCode(shell, from, flags.image));
	const request: PairRequest = {
		// A picture may hold the number of anything.
		code: flags.image === undefined ? asGivenCode(read) : read,
		...(flags.workflow === undefined ? {} : { workflowId: flags.workflow }),
		...(flags.trust === undefined ? {} : { trustOrigin: flags.trust }),
		replace: flags.replace ?? false,
		...(flags.keepEvents ? { keepEvents: true } : {}),
	};
	const inspected = (await askBefore('admin', 'POST', LOCAL_ROUTES.pairInspect, request)) as PairPreview;
	const preview = flags.image === undefined ? withForm(inspected) : inspected;
	if (!shell.isJson) printPreview(shell, preview);
	if (flags.inspect) {
		if (preview.problem) shell.fail(asFailure(preview.problem), { preview });
		else shell.answer(preview, '\nThe code was not used: without --inspect the command pairs the device with it.');
		return;
	}
	const agreed = await settle(shell, preview, request);
	const spend = (asked: PairRequest) =>
		withoutInput(
			shell,
			client.request('admin', 'POST', LOCAL_ROUTES.pair, asked, { deadlineMs: PAIR_DEADLINE_MS }),
			`The code may have been used: ${LOOK_FIRST}`,
		);
	const result = (await spend(agreed)
		.catch(async (error: unknown) => {
			const workflowId = await askWorkflow(shell, error);
			if (workflowId === null) throw error;
			return spend({ ...agreed, workflowId });
		})
		.catch((error: unknown) => {
			const { cause = null } = error instanceof AgentError ? error : {};
			if (cause instanceof AgentProblem && cause.code === 'agent-not-running') throw unsent(error);
			throw isUnanswered(error) ? asError(withWorth({ ...error.failure, remedy: '' }, 'uncertain', LOOK_FIRST)) : error;
		})) as PairResult;
	shell.answer(result, `\nPaired. ${result.sentence}`);
}

const LOOK_FIRST =
	'idv-agent status says whether the device is paired; if it is not, scan or type the same code again, and ask for a new one only if that is refused.';

/** The agent was asked, and went away or said nothing that can be read: nothing says what has become of the code. */
function isUnanswered(error: unknown): error is AgentError {
	const { cause = null } = error instanceof AgentError ? error : {};
	return cause instanceof AgentProblem && cause.status === 0 && cause.code !== 'agent-not-running';
}

/**
 * A code comes from a hidden prompt, standard input or a picture; never from an argument, which every user of the machine sees.
 * @throws AgentError `usage` for what cannot be a source, before a code is asked for.
 */
function checkSource(shell: Shell, from: readonly string[], image: string | undefined): void {
	const [word] = from.filter((word) => word !== '-');
	// The name of a file may have the form of a code, and hardly any code ends as one.
	const isFile = word !== undefined && /\.(?:png|jpe?g|webp|gif|bmp|heic|pdf|svg|txt)$/i.test(word);
	if (word !== undefined && (isFile || readScannedText(asGivenCode(word)).code === null))
		throw new AgentError('usage', 'This argument is not a pairing code, and a code is never given as an argument.', {
			remedy: /\.(?:png|jpe?g|webp)$/i.test(word)
				? 'Name the picture with --image: idv-agent pair --image FILE.'
				: 'Type the code at the prompt, pipe it in with "idv-agent pair -", or name a picture with --image.',
		});
	if (word !== undefined)
		throw new AgentError('usage', 'A code is never given as an argument: other users can read it there.', {
			remedy: 'Type it at the prompt, or pipe it in with "idv-agent pair -". Ask for a new code: this one was seen.',
		});
	if (from.length > 0 && image !== undefined)
		throw new AgentError('usage', 'Both standard input and a picture were named.', { remedy: 'Use one of them.' });
	if (from.length === 0 && image === undefined && !shell.caller.stdin.isTTY)
		throw new AgentError('usage', 'There is no terminal to type the code at.', {
			remedy: 'Pipe the code in with "idv-agent pair -", or name a picture with --image.',
		});
}

async function readCode(shell: Shell, from: readonly string[], image: string | undefined): Promise<string> {
	if (image !== undefined) {
		const { readSingleCode } = await import('../scanning/picture-reader.edge.ts');
		return readSingleCode(image).catch((error: unknown) => {
			throw unsent(error);
		});
	}
	return from.length > 0
		? readStandardInput(shell, MAX_CODE_LENGTH)
		: promptHidden(shell, 'Scan or type the pairing code (it stays hidden), then Enter: ', MAX_CODE_LENGTH);
}

/** Refuses a code that the agent's interface would refuse for its form, in the words of pairing. */
function checkLength(code: string): string {
	if (code.trim() === '') throw asError(notACode('empty', code));
	if (code.length > MAX_CODE_LENGTH) throw asError(notACode('tooLong', code));
	return code;
}

/** A first pairing with a host that no setting names is a person's decision. */
async function settle(shell: Shell, preview: PairPreview, request: PairRequest): Promise<PairRequest> {
	const { problem, baseUrl, hostInUnicode } = preview;
	// The service may list the workflows, or take the code for the only one.
	if (!problem || problem.code === 'workflow-missing') return request;
	if (problem.code === 'origin-unconfirmed' && baseUrl !== null) {
		const { origin } = new URL(baseUrl);
		if (await confirm(shell, `Does this device belong to ${showHost(origin, hostInUnicode)}?`))
			return { ...request, trustOrigin: origin };
		if (shell.caller.stdin.isTTY)
			throw new AgentError('origin-unconfirmed', 'You have not confirmed the host, so the code was not sent.', {
				remedy: 'Ask the issuer of the code which service this device belongs to, and scan a code of that service.',
			});
	}
	throw unsent(asError(asFailure(problem)));
}

/** The id of one of the workflows that a refusal lists; `null` without a list, or without a person. */
async function askWorkflow(shell: Shell, error: unknown): Promise<string | null> {
	const list = error instanceof AgentError ? error.failure.params?.['workflows'] : undefined;
	const choices = readWorkflowChoices(`{"workflows":${list ?? '[]'}}`);
	if (choices.length === 0) return null;
	const rows = choices.map(({ id, name }, index) => `  ${index + 1}  ${name === id ? id : `${name} (${id})`}`);
	return ask(shell, `Workflows of this service:\n${rows.join('\n')}\nWhich one (number, name or id)? `, (answer) => {
		const numbered = /^\d+$/.test(answer) ? choices[Number(answer) - 1] : undefined;
		return (chooseWorkflow(choices, answer) ?? numbered)?.id ?? null;
	});
}

function printPreview(shell: Shell, preview: PairPreview): void {
	if (preview.baseUrl === null) return;
	const rows = [
		['Service', showHost(preview.baseUrl, preview.hostInUnicode)],
		['Workflow', preview.workflowId === null ? 'not named' : `${preview.workflowId} (from ${preview.workflowSource})`],
		['Code', preview.tokenKind],
	];
	if (preview.sessionId !== null) rows.push(['Session', preview.sessionId]);
	for (const change of preview.changes) rows.push(['Effect', change]);
	shell.table(rows);
}

/** An address in punycode, with its Unicode form beside it where they differ. */
function showHost(address: string, hostInUnicode: string | undefined): string {
	return hostInUnicode === undefined ? address : `${address} (shown elsewhere as ${hostInUnicode})`;
}
