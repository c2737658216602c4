/** `idv session start`: starts a session once and hands its URL on. */
import { AgentError } from '../base/errors.ts';
import { inWords, readText } from '../base/files.edge.ts';
import { onOneLine } from '../base/printed.ts';
import { type Shell, untilTime } from '../cli/output.runner.ts';
import { ENDPOINTS } from '../protocol/endpoints.ts';
import {
	formatWorkflowIds,
	type HandOffRequest,
	handOffRecordSchema,
	handOffRequestSchema,
	workflowIdsSchema,
} from '../protocol/hand-off.ts';
import { parseJson } from '../protocol/json.ts';
import { renderQrTerminal } from '../service/qr-code.runner.ts';
import { checkPlaceForSecret, stillExists } from './secret-output.runner.ts';
import { callService, type Purpose, unreadAnswer } from './service-call.runner.ts';
import { resolveTarget, type TargetFlags } from './service-target.runner.ts';

export interface SessionFlags extends TargetFlags {
	readonly workflow: readonly string[];
	readonly metadata?: string | undefined;
	readonly locale?: string | undefined;
	readonly ttl?: number | undefined;
	readonly qr?: boolean | undefined;
}

export async function startSession(shell: Shell, flags: SessionFlags): Promise<void> {
	const workflowIds = checkWorkflows(flags.workflow);
	const body = await readRequest(flags);
	checkPlaceForSecret(shell, 'The hand-off URL');
	if (flags.qr && !shell.caller.stdout.isTTY)
		throw new AgentError('usage', 'Standard output is not a terminal to draw the code on.', {
			remedy: 'Leave --qr out.',
		});
	const target = await resolveTarget(shell, flags);
	const purpose: Purpose = {
		creates: 'a session',
		needs: 'an API key with deeplink:write: no other credential may start sessions',
		workflowId: workflowIds.join(', '),
	};
	const query = formatWorkflowIds(workflowIds);
	const answer = await callService(target, { method: 'POST', path: ENDPOINTS.sessionStart, query, body }, purpose);
	const record = readRecord(new TextDecoder().decode(answer.body), workflowIds);
	if (!record) throw unreadAnswer(target, 'a hand-off URL', purpose);
	shell.sayIfLost(stillExists('The session'));
	if (shell.isJson) return shell.json(record);
	shell.line(`Session started for ${onOneLine(record.workflowIds.join(', '))}.\n`);
	if (flags.qr) shell.drawn(`${renderQrTerminal(record.url)}\n`);
	shell.table([
		['URL', record.url],
		['Ends', record.expiresAt === null ? 'the service does not say' : untilTime(record.expiresAt)],
	]);
	shell.line(
		'\nThe URL carries a one-time token: give it to the client that continues the session and to no one else.',
	);
}

/** Each once, in the order given. @throws AgentError `usage`. */
function checkWorkflows(given: readonly string[]): string[] {
	const listed = given.flatMap((value) => value.split(',')).map((id) => id.trim());
	const read = workflowIdsSchema.safeParse([...new Set(listed)]);
	if (read.success) return read.data;
	throw new AgentError('usage', `--workflow ${read.error.issues[0]?.message}.`, {
		remedy: 'Write each workflow exactly as the service has it.',
	});
}

/** Only what was given: the service has its own defaults. @throws AgentError `usage` or `body-invalid`. */
async function readRequest({ metadata, locale, ttl }: SessionFlags): Promise<HandOffRequest> {
	const request = { metadata: metadata === undefined ? undefined : await readMetadata(metadata), locale, ttl };
	const read = handOffRequestSchema.safeParse(request);
	if (read.success) return request as HandOffRequest;
	const [issue] = read.error.issues;
	if (issue?.path[0] === 'metadata')
		throw new AgentError('body-invalid', '--metadata is not a JSON object.', { remedy: METADATA_FORM });
	throw new AgentError('usage', `--${String(issue?.path[0])} ${issue?.message}.`, {
		remedy: 'See "idv session start --help".',
	});
}

const MAX_METADATA_BYTES = 1024 * 1024;
const METADATA_FORM = `Write it as '{"visitor":"V-104"}', or @FILE for a file that holds such an object.`;

async function readMetadata(given: string): Promise<unknown> {
	const file = given.startsWith('@') ? given.slice(1) : null;
	const invalid = (message: string) => new AgentError('body-invalid', message, { remedy: METADATA_FORM });
	const read = (name: string) =>
		readText(name, MAX_METADATA_BYTES).catch((error: unknown) => {
			throw invalid(`The metadata file ${name} cannot be read: ${inWords(error)}.`);
		});
	const text = file === null ? given : await read(file);
	const metadata = parseJson(text);
	if (metadata === undefined) throw invalid(`${file ?? '--metadata'} is not JSON.`);
	return metadata;
}

const foundRecordSchema = handOffRecordSchema.partial({ createdAt: true, expiresAt: true, workflowIds: true });

/** As much as the answer has, as long as the URL is there: it is given only once. */
function readRecord(body: string, asked: readonly string[]) {
	try {
		const { url, createdAt = null, expiresAt = null, workflowIds } = foundRecordSchema.parse(parseJson(body));
		return { url, createdAt, expiresAt, workflowIds: workflowIds ?? [...asked] };
	} catch {
		return null;
	}
}
