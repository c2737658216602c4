/** Where a secret may go, decided before it is made, so that none is lost and none ends up in a log by accident. */
import { open, rm } from 'node:fs/promises';
import { resolve } from 'node:path';
import { AgentError } from '../base/errors.ts';
import { errnoOf, inWords, writeDurably } from '../base/files.edge.ts';
import type { Shell } from '../cli/output.ts';

/** @throws AgentError `usage` where a secret would go into a pipe. @param flags without `out`: no such flag. */
export function checkPlaceForSecret(shell: Shell, what: string, saving: { readonly out?: string | undefined } = {}) {
	if (shell.isJson || saving.out !== undefined || shell.caller.stdout.isTTY) return;
	throw new AgentError('usage', `${what} is a secret, and standard output is not a terminal.`, {
		remedy: `Add --json if a program reads it${'out' in saving ? ', or --out FILE to save it' : ''}.`,
	});
}

/**
 * Reserves a new file with mode 0600 before the secret is made, and writes the secret into it; without a name it is only made.
 * @throws AgentError `usage` if the file is there already, `state-unwritable`, or what `make` throws; then the file is gone.
 */
export async function saveSecret<Made>(
	out: string | undefined,
	make: () => Promise<Made>,
	textOf: (made: Made) => string | Buffer,
): Promise<{ readonly made: Made; readonly path: string | null }> {
	if (out === undefined) return { made: await make(), path: null };
	const path = resolve(out);
	const file = await open(path, 'wx', 0o600).catch((error: unknown) => {
		throw unwritable(path, error);
	});
	try {
		const made = await make();
		await file.writeFile(textOf(made)).catch(lost(path));
		await file.sync().catch(lost(path));
		return { made, path };
	} catch (error) {
		await rm(path, { force: true });
		throw error;
	} finally {
		await file.close();
	}
}

const lost = (path: string) => (cause: unknown) => {
	throw new AgentError('state-unwritable', `${path} could not be written, so the secret is lost: ${inWords(cause)}.`, {
		remedy: 'Revoke what was made, and make it again where there is free space.',
		cause,
	});
};

/** Writes a file in place of what was there, and returns its path. @throws AgentError `state-unwritable`. */
export async function replaceFile(out: string, content: string | Uint8Array, mode = 0o600): Promise<string> {
	const path = resolve(out);
	try {
		await writeDurably(path, content, { mode });
		return path;
	} catch (error) {
		throw unwritable(path, error);
	}
}

export function unwritable(path: string, error: unknown): AgentError {
	if (errnoOf(error) === 'EEXIST')
		return new AgentError('usage', `${path} is there already.`, { remedy: 'Name another file, or remove this one.' });
	return new AgentError('state-unwritable', `${path} cannot be written: ${inWords(error)}.`, {
		remedy: 'Name a file in a directory that this user may write to, with free space.',
		cause: error,
	});
}
