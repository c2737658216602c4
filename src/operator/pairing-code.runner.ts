/** `idv qrcode`: has the service make a pairing code, and shows or saves it, read back as a scanner would read it. */
import { extname } from 'node:path';
import { AgentError } from '../base/errors.ts';
import { type Shell, untilTime } from '../cli/output.runner.ts';
import type { ServiceAnswer } from '../connection/service-client.edge.ts';
import { workflowIdSchema } from '../protocol/device-connection.ts';
import { ENDPOINTS, isLoopback } from '../protocol/endpoints.ts';
import { type PairingCode, readPairingCode } from '../protocol/pairing-code.ts';
import { readAnswerTexts } from '../protocol/registration-answer.ts';
import { readSingleCode } from '../scanning/picture-reader.edge.ts';
import { renderQrTerminal, writeQrPng, writeQrSvg } from '../service/qr-code.runner.ts';
import { checkPlaceForSecret, replaceFile, stillExists } from './secret-output.runner.ts';
import { callService } from './service-call.runner.ts';
import { resolveTarget, type Target, type TargetFlags } from './service-target.runner.ts';

export interface PairingCodeFlags extends TargetFlags {
	readonly workflow: string;
	readonly out?: string | undefined;
	readonly terminal?: boolean | undefined;
}

/** A code as it came: a link with a Short Token, and the service's own picture. `null` where the service does not say. */
interface FoundCode {
	readonly text: string;
	readonly expiresAt: string | null;
	readonly png: Uint8Array | null;
}

export async function makePairingCode(shell: Shell, flags: PairingCodeFlags): Promise<void> {
	const format = checkFlags(shell, flags);
	const target = await resolveTarget(shell, flags);
	const answer = await callService(
		target,
		{
			method: 'GET',
			path: ENDPOINTS.pairingCode,
			query: new URLSearchParams({ workflowId: flags.workflow }),
			// A document says when the code ends, which a picture doesn't.
			accept: 'application/json, image/png;q=0.9',
		},
		{ needs: 'Basic, Bearer or an API key with ephemeral_device:write', workflowId: flags.workflow },
	);
	const found = await readAnswer(answer);
	const code = readPairingCode(found.text);
	if (code.kind === 'notACode') {
		const { host } = new URL(target.baseUrl);
		throw new AgentError('bad-response', `${host} answered with something that is not a pairing code.`, {
			remedy: 'Check --url: something else may be answering there.',
		});
	}
	const warnings = warningsOf(code, found, flags, target);
	const draw = () => (format === 'svg' ? writeQrSvg(found.text) : (found.png ?? writeQrPng(found.text)));
	const file = flags.out === undefined ? null : await replaceFile(flags.out, draw());
	if (file !== null && format === 'png' && (await readSingleCode(file)) !== found.text)
		throw new AgentError('internal', `${file} does not show the code that was written.`);

	const { baseUrl, workflowId, sessionId } = code;
	const told = { baseUrl, workflowId, sessionId, expiresAt: found.expiresAt };
	if (file === null) shell.sayIfLost(stillExists('The pairing code'));
	if (shell.isJson) return shell.json({ ...told, ...(file === null ? { url: found.text } : { file }), warnings });
	if (flags.terminal || file === null) shell.drawn(`${renderQrTerminal(found.text)}\n`);
	shell.table([
		['Service', baseUrl ?? 'not named'],
		['Workflow', workflowId ?? 'not named'],
		['Ends', found.expiresAt === null ? 'the service does not say' : untilTime(found.expiresAt)],
		...(file === null ? [] : [['Saved', file]]),
	]);
	for (const warning of warnings) shell.warn(warning);
}

/** Everything that can be wrong before a code is made. @throws AgentError `usage`. */
function checkFlags(shell: Shell, flags: PairingCodeFlags): 'png' | 'svg' | null {
	const workflow = workflowIdSchema.safeParse(flags.workflow);
	if (!workflow.success)
		throw new AgentError('usage', `--workflow ${workflow.error.issues[0]?.message}.`, {
			remedy: 'Write the workflow exactly as the service has it.',
		});
	const extension = flags.out === undefined ? null : extname(flags.out).toLowerCase();
	if (extension !== null && extension !== '.png' && extension !== '.svg')
		throw new AgentError('usage', '--out takes a file that ends in .png or .svg.', { remedy: 'Correct the name.' });
	if (flags.terminal && !shell.caller.stdout.isTTY)
		throw new AgentError('usage', 'Standard output is not a terminal to draw the code on.', {
			remedy: 'Leave --terminal out, and use --out FILE or --json.',
		});
	checkPlaceForSecret(shell, 'The pairing code', { out: flags.out });
	return extension === '.svg' ? 'svg' : extension === '.png' ? 'png' : null;
}

/** A picture is read like a scanner reads it; of a document, the first text in it that is a link, else one that is a token or a picture. */
async function readAnswer({ headers, body }: ServiceAnswer): Promise<FoundCode> {
	const ofPicture = async (png: Uint8Array) => ({ text: await readSingleCode(png), expiresAt: null, png });
	if (/^image\//i.test(headers['content-type'] ?? '')) return ofPicture(body);
	const whole = new TextDecoder().decode(body).trim();
	const texts = readAnswerTexts({ body: whole });
	const codes = texts.filter(({ text }) => readPairingCode(text).kind !== 'notACode');
	const link = codes.find(({ text }) => text.includes('authorization='));
	const named = codes.find(({ place }) => /(?:^|token|code|secret)$/i.test(place));
	const picture = texts.map(({ text }) => /^data:image\/\w+;base64,(.+)$/s.exec(text)?.[1]).find(Boolean);
	if (!link && picture !== undefined) return ofPicture(Buffer.from(picture, 'base64'));
	const expiresAt = texts.find(
		({ place, text }) => /\/expires_?at$/i.test(place) && !Number.isNaN(Date.parse(text)),
	)?.text;
	const isCode = readPairingCode(whole).kind !== 'notACode';
	return {
		text: link?.text ?? (isCode ? whole : ((named ?? codes[0])?.text ?? '')),
		expiresAt: expiresAt ?? null,
		png: null,
	};
}

/** Warnings about a code that would surprise its user. */
function warningsOf(code: PairingCode, { expiresAt }: FoundCode, flags: PairingCodeFlags, target: Target): string[] {
	const warnings: string[] = [];
	const own = new URL(target.baseUrl).origin;
	const origin = code.baseUrl === null ? null : new URL(code.baseUrl).origin;
	if (origin === null) warnings.push('The code does not say which service it is for: devices need baseUrl set.');
	else if (origin !== own) warnings.push(`The code leads devices to ${origin}, not to ${own}.`);
	if (origin?.startsWith('http:') && !isLoopback(origin))
		warnings.push('The code leads to plain http: devices refuse it.');
	if (code.workflowId === null)
		warnings.push(`The code names no workflow: devices need it set, or idv-agent pair --workflow ${flags.workflow}.`);
	else if (code.workflowId !== flags.workflow)
		warnings.push(`The code is for workflow ${code.workflowId}, not for ${flags.workflow}.`);
	if (expiresAt !== null && Date.parse(expiresAt) <= Date.now())
		warnings.push("By this machine's clock the code has ended already.");
	return warnings;
}
