/** Where a plan and its record are published: a file, or an address that takes PUT. Nothing is replaced that was not seen before. */
import { realpath } from 'node:fs/promises';
import { resolve } from 'node:path';
import { AgentError, type ErrorCode } from '../base/errors.ts';
import { errnoOf, inWords, readBytes, writeDurably } from '../base/files.edge.ts';
import type { Shell } from '../cli/output.runner.ts';
import type { ServiceAnswer, ServiceRequest } from '../connection/service-client.edge.ts';
import { type Authorization, parseAuthorization } from '../protocol/authorization.ts';
import { isLoopback } from '../protocol/endpoints.ts';
import { runAlone } from './run-alone.runner.ts';
import { unwritable } from './secret-output.runner.ts';
import { inOperatorsWords, withClient } from './service-call.runner.ts';

const DEADLINE_MS = 60_000;
const MAX_BYTES = 16 * 1024 * 1024;
export interface Stored {
	readonly bytes: Uint8Array;
	/** Of a store that has one, and can compare it. */
	readonly etag: string | null;
}

export const isAddress = (place: string) => /^https?:\/\//i.test(place);

/** The file that a link leads to: it is the one that devices are served, and its record is beside it. */
export const placeOf = async (place: string) =>
	isAddress(place) ? place : await realpath(place).catch(() => resolve(place));

/** `null` where nothing is stored. @throws AgentError `plan-invalid` or that of the line. */
export async function readStored(shell: Shell, place: string): Promise<Stored | null> {
	if (isAddress(place)) {
		const { status, headers, body } = await ask(shell, place, { method: 'GET' });
		if (status === 404 || status === 410) return null;
		if (status !== 200) throw badAnswer(place, status);
		const { etag } = headers;
		// A weak one fits nothing that If-Match could ask for.
		return { bytes: body, etag: etag === undefined || etag.startsWith('W/') ? null : etag };
	}
	return readBounded(place, MAX_BYTES, 'plan-invalid', 'plan').then(
		(bytes) => ({ bytes, etag: null }),
		(error: AgentError) => {
			if (errnoOf(error.cause) === 'ENOENT') return null;
			throw error;
		},
	);
}

/** Replaces what was read before. @returns the place. @throws AgentError `plan-outdated` where something else is there by now. */
export async function replaceStored(shell: Shell, place: string, text: string, before: Stored | null): Promise<string> {
	const check = async () => {
		if (!isSame(await readStored(shell, place), before?.bytes)) throw overtaken(place);
	};
	if (!isAddress(place)) {
		const path = await placeOf(place);
		await writeDurably(path, text, { mode: 0o644, beforeRename: check }).catch((error: unknown) => {
			throw error instanceof AgentError ? error : unwritable(path, error);
		});
		return path;
	}
	await check();
	const headers = before === null ? { 'if-none-match': '*' } : before.etag === null ? {} : { 'if-match': before.etag };
	const asFault = (error: AgentError) => ({ fault: error });
	const put = await ask(shell, place, { method: 'PUT', rawBody: text, headers }).catch(asFault);
	const status = 'fault' in put ? null : put.status;
	// Amazon's store answers so to two at once; elsewhere it is another fault.
	if (status === 409) await check();
	if (status === 412) throw overtaken(place);
	const fault = 'fault' in put ? put.fault : put.status < 200 || put.status > 299 ? badAnswer(place, put.status) : null;
	if (fault && status !== null && status < 500) throw fault;
	// Also a store that fails, and a line that breaks, may have taken it: what is there decides.
	const after = await readStored(shell, place).catch(asFault);
	const isRead = after === null || !('fault' in after);
	if (isRead && isSame(after, Buffer.from(text))) return place;
	if (isRead && !isSame(after, before?.bytes)) throw overtaken(place);
	if (fault) throw unconfirmed(place, fault);
	if (!isRead) throw unconfirmed(place, after.fault);
	shell.warn(`${place} still answers as before: devices get the new plan only when it answers with that.`);
	return place;
}

/** Runs alone on a file; an address has If-Match. */
export async function withPlace<Result>(place: string, run: () => Promise<Result>): Promise<Result> {
	return isAddress(place) ? run() : runAlone(await placeOf(place), run);
}

export const isSame = (stored: Stored | null, bytes: Uint8Array | undefined) =>
	stored === null || bytes === undefined
		? stored === null && bytes === undefined
		: Buffer.compare(stored.bytes, bytes) === 0;

export const overtaken = (place: string) =>
	new AgentError('plan-outdated', `${place} does not hold what was seen last: another manager has published there.`, {
		remedy:
			'Read the published plan again (idv fleet diff shows what it says). Then repeat the step from it, or put your change into it and name it with --previous.',
	});

const unconfirmed = (place: string, { failure: { code, message } }: AgentError) =>
	new AgentError(
		code,
		`${message} Whether ${place} has it all the same is not known; a plan that it has, devices take.`,
		{
			remedy: 'Repeat the same command when the store answers: it finishes this step and goes no further.',
		},
	);

const badAnswer = (place: string, status: number) =>
	new AgentError('bad-response', `${new URL(place).host} answered ${status}.`, {
		remedy: 'Check the address; a credential is taken from IDV_STORE_AUTHORIZATION.',
	});

function ask(
	shell: Shell,
	place: string,
	request: Pick<ServiceRequest, 'method' | 'rawBody' | 'headers'>,
): Promise<ServiceAnswer> {
	const url = new URL(place);
	const authorization = storeCredential(shell, 'IDV_STORE_AUTHORIZATION');
	if (authorization && url.protocol === 'http:' && !isLoopback(place))
		throw new AgentError('insecure-origin', `${url.origin} would get the credential without encryption.`);
	const asked = { ...request, url, authorization, maxBytes: MAX_BYTES, deadlineMs: DEADLINE_MS };
	return withClient({ caFile: shell.env['IDV_CA_FILE'], env: shell.env }, (client) => client.send(asked)).catch(
		(error: unknown) => {
			if (!(error instanceof AgentError)) throw error;
			const { code, message, params } = error.failure;
			const { remedy } = inOperatorsWords(error.failure, { needs: '' }, false).failure;
			throw new AgentError(code, message, { remedy: remedy.replace('--url', 'the address'), params, cause: error });
		},
	);
}

/** Of a variable, for stores. @throws AgentError `credential-unreadable`. */
export function storeCredential(shell: Shell, name: string): Authorization | null {
	const text = shell.env[name];
	if (text === undefined || text === '') return null;
	const read = parseAuthorization(text);
	if (read) return read;
	throw new AgentError('credential-unreadable', `${name} holds no credential.`, {
		remedy: 'Write it as a header has it, such as "Bearer TOKEN" or "Basic …".',
	});
}

export async function readBounded(file: string, maxBytes: number, code: ErrorCode, what: string): Promise<Uint8Array> {
	try {
		return await readBytes(file, maxBytes);
	} catch (cause) {
		throw new AgentError(code, `The ${what} file ${file} cannot be read: ${inWords(cause)}.`, {
			remedy: 'Name a file that is there and that this user may read.',
			cause,
		});
	}
}
