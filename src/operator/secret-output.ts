/**
 * Where a secret may go: a terminal, a JSON document that was asked for, or a new file that only this user can read. Each
 * is decided before the secret is made, so that none is lost and none ends up in a log by accident.
 */
import { open, rm } from 'node:fs/promises';
import { resolve } from 'node:path';
import { AgentError } from '../base/errors.ts';
import { errnoOf, inWords, writeDurably } from '../base/files.edge.ts';
import type { OutputFlags } from '../cli/output.ts';

/**
 * @param flags `out` is the file of a command that can save its secret; left out where there is no such flag.
 * @throws AgentError `usage` where a secret would go into a pipe or a file that was not meant for it.
 */
export function checkPlaceForSecret(
	what: string,
	{ json, ...saving }: OutputFlags & { readonly out?: string | undefined },
): void {
	if (json || saving.out !== undefined || process.stdout.isTTY) return;
	throw new AgentError('usage', `${what} is a secret, and standard output is not a terminal.`, {
		remedy: `Add --json if a program reads it${'out' in saving ? ', or --out FILE to save it' : ''}.`,
	});
}

export interface ReservedFile {
	readonly path: string;
	/** @throws AgentError `state-unwritable`; then the file is gone. */
	write(text: string): Promise<void>;
	/** Takes the empty file away again. */
	discard(): Promise<void>;
}

/** Makes an empty file with mode 0600. @throws AgentError `usage` if there is one already, `state-unwritable`. */
export async function reserveSecretFile(out: string): Promise<ReservedFile> {
	const path = resolve(out);
	try {
		const file = await open(path, 'wx', 0o600);
		return {
			path,
			async write(text) {
				try {
					await file.writeFile(text);
					await file.sync();
				} catch (error) {
					await rm(path, { force: true });
					throw new AgentError(
						'state-unwritable',
						`${path} could not be written, so the secret is lost: ${inWords(error)}.`,
						{
							remedy: 'Revoke what was made, and make it again where there is free space.',
							cause: error,
						},
					);
				} finally {
					await file.close();
				}
			},
			async discard() {
				await file.close();
				await rm(path, { force: true });
			},
		};
	} catch (error) {
		throw unwritable(path, error);
	}
}

/**
 * Writes a file in place of what was there.
 * @param mode `0o600` unless every user may read it.
 * @returns its path. @throws AgentError `state-unwritable`.
 */
export async function replaceFile(out: string, content: string | Uint8Array, mode = 0o600): Promise<string> {
	const path = resolve(out);
	try {
		await writeDurably(path, content, { mode });
		return path;
	} catch (error) {
		throw unwritable(path, error);
	}
}

function unwritable(path: string, error: unknown): AgentError {
	if (errnoOf(error) === 'EEXIST')
		return new AgentError('usage', `${path} is there already.`, { remedy: 'Name another file, or remove this one.' });
	return new AgentError('state-unwritable', `${path} cannot be written: ${inWords(error)}.`, {
		remedy: 'Name a file in a directory that this user may write to, with free space.',
		cause: error,
	});
}
