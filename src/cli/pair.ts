/** `idv-agent pair`: reads a code, shows what it would do, and has the running agent spend it. */
import { domainToUnicode } from 'node:url';
import { choosePaths, type PathFlags } from '../agent/paths.ts';
import { AgentError, type Failure } from '../core/errors.ts';
import { createLocalClient } from '../edges/local-client.ts';
import type { PairPreview, PairRequest, PairResult } from '../protocol/local-api.ts';
import { LOCAL_ROUTES } from '../protocol/local-api.ts';
import { type CodeSource, confirm, readCode } from './code-input.ts';
import { type OutputFlags, printJson, printLine, printTable, reportFailure } from './output.ts';

export interface PairFlags extends PathFlags, OutputFlags, CodeSource {
	readonly workflow?: string | undefined;
	readonly inspect?: boolean | undefined;
	readonly replace?: boolean | undefined;
	readonly trust?: string | undefined;
}

/** Longest pairing: preflight, one request and the wait for the channel, each with a deadline of its own. */
const PAIR_DEADLINE_MS = 90_000;

export async function pair(flags: PairFlags): Promise<void> {
	const client = createLocalClient({ runDir: choosePaths(flags, process.env).runDir });
	// Before anybody fetches a scanner: is there an agent, and may this user move the device?
	await client.request('admin', 'GET', LOCAL_ROUTES.status);
	const request: PairRequest = {
		code: await readCode(flags),
		...(flags.workflow === undefined ? {} : { workflowId: flags.workflow }),
		...(flags.trust === undefined ? {} : { trustOrigin: flags.trust }),
		replace: flags.replace ?? false,
	};
	const preview = (await client.request('admin', 'POST', LOCAL_ROUTES.pairInspect, request)) as PairPreview;
	if (!flags.json) printPreview(preview);
	if (flags.inspect) {
		if (flags.json) printJson(preview);
		if (preview.problem && !flags.json) printLine();
		if (preview.problem) reportUnready(preview, flags);
		return;
	}
	const agreed = await settle(preview, request);
	const result = (await client.request('admin', 'POST', LOCAL_ROUTES.pair, agreed, {
		deadlineMs: PAIR_DEADLINE_MS,
	})) as PairResult;
	if (flags.json) printJson(result);
	else printLine(`\nPaired. ${result.sentence}`);
}

/** A first pairing with a host that nobody has named is a person's decision. */
async function settle(preview: PairPreview, request: PairRequest): Promise<PairRequest> {
	const problem = preview.problem as Failure | null;
	if (!problem) return request;
	if (problem.code === 'origin-unconfirmed' && preview.baseUrl !== null) {
		const { origin } = new URL(preview.baseUrl);
		if (await confirm(`Does this device belong to ${showHost(origin)}?`)) return { ...request, trustOrigin: origin };
	}
	throw new AgentError(problem.code, problem.message, { remedy: problem.remedy });
}

function reportUnready(preview: PairPreview, flags: OutputFlags): void {
	const problem = preview.problem as Failure;
	// The preview itself is the JSON answer and holds the problem; only the exit status is still missing.
	if (flags.json) process.exitCode = new AgentError(problem.code, problem.message).exitStatus;
	else reportFailure(problem, flags);
}

function printPreview(preview: PairPreview): void {
	if (preview.baseUrl === null) return;
	const rows = [
		['Service', showHost(preview.baseUrl)],
		['Workflow', preview.workflowId === null ? 'not named' : `${preview.workflowId} (from ${preview.workflowSource})`],
		['Code', preview.tokenKind],
	];
	if (preview.sessionId !== null) rows.push(['Session', preview.sessionId]);
	for (const change of preview.changes) rows.push(['Would do', change]);
	printTable(rows);
}

/** An address in punycode, with its Unicode form beside it where they differ. */
function showHost(address: string): string {
	const { hostname } = new URL(address);
	const unicode = domainToUnicode(hostname);
	return unicode === hostname ? address : `${address} (shown elsewhere as ${unicode})`;
}
