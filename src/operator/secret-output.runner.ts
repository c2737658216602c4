/** Where a secret may go, decided before it is made, so that none is lost and none ends up in a log by accident. */
import { open, rm } from 'node:fs/promises';
import { resolve } from 'node:path';
import { AgentError } from '../base/errors.ts';
import { errnoOf, inWords, writeDurably } from '../base/files.edge.ts';
import { leadsNowhere } from '../base/unix.edge.ts';
import type { Shell } from '../cli/output.runner.ts';

/** @throws AgentError `usage` where a secret would go into a pipe, `state-unwritable` where it would go nowhere. @param flags without `out`: no such flag. */
export function checkPlaceForSecret(shell: Shell, what: string, saving: { readonly out?: string | undefined } = {}) {
	if (saving.out === undefined && leadsNowhere(shell.caller.stdout.fd)) {
		// As a document it would be lost as well.
		shell.isJson = false;
		throw new AgentError('state-unwritable', `${what} is a secret, and standard output is closed or /dev/null.`, {
			remedy: 'Send the output to a terminal, or to the program that reads it; nothing was made.',
		});
	}
	if (shell.isJson || saving.out !== undefined || shell.caller.stdout.isTTY) return;
	throw new AgentError('usage', `${what} is a secret, and standard output is not a terminal.`, {
		remedy: `Add --json if a program reads it${'out' in saving ? ', or --out FILE to save it' : ''}.`,
	});
}

/** For a secret whose place turns out not to take it. @param made with what it is found by at the service. */
export const stillExists = (made: string) =>
	`${made} exists at the service, and its secret is lost: revoke it there or let it expire, and make another one.`;

/**
 * Reserves a new file with mode 0600 before the secret is made, and writes the secret into it; without a name it is only made.
 * @throws AgentError `usage` if the file is there already, `state-unwritable`, or what `make` throws; then the file is gone.
 * @param nameOf what it is and what it is found by at the service; left out, it is known here alone.
 */
export async function saveSecret<Made>(
	shell: Shell,
	out: string | undefined,
	make: () => Promise<Made>,
	textOf: (made: Made) => string | Buffer,
	nameOf?: (made: Made) => string,
): Promise<{ readonly made: Made; readonly path: string | null }> {
	if (out === undefined) {
		const made = await make();
		if (nameOf) shell.sayIfLost(stillExists(nameOf(made)));
		return { made, path: null };
	}
	const path = resolve(out);
	const file = await open(path, 'wx', 0o600).catch((error: unknown) => {
		throw unwritable(path, error);
	});
	try {
		const made = await make();
		const written = file.writeFile(textOf(made)).then(() => file.sync());
		await written.catch(lost(path, nameOf && stillExists(nameOf(made))));
		return { made, path };
	} catch (error) {
		await rm(path, { force: true });
		throw error;
	} finally {
		await file.close();
	}
}

const lost =
	(path: string, remedy = 'Make it again where there is free space.') =>
	(cause: unknown) => {
		throw new AgentError('state-unwritable', `${path} could not be written: ${inWords(cause)}.`, { remedy, cause });
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
