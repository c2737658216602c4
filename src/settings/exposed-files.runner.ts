/** Which of the files that decide what this device does may be changed, or whose secrets may be read, by others. */
import fs from 'node:fs';
import { dirname } from 'node:path';
import { type Failure, failure } from '../base/errors.ts';
import { findExposure } from '../base/file-trust.edge.ts';
import { ownUser } from '../base/unix.edge.ts';
import type { LoadedSettings } from './load.runner.ts';
import { listSettings, valueAt } from './table.ts';

/** Files that settings name and that hold no secret. */
export const PUBLIC_FILES: readonly string[] = ['network.caFile', 'network.clientCertificateFile'];

/**
 * The first of the files by which root has software installed that someone else than root may change: settings, their directories and the
 * sources of apt; `null` for none. The agent's user is someone else.
 */
export async function findExposedOrder(
	{ documents, settings }: Pick<LoadedSettings, 'documents' | 'settings'>,
	confDirectory: string,
): Promise<Failure | null> {
	const files = documents.map(({ where }) => where);
	const { source } = settings.update;
	for (const file of [
		confDirectory,
		...files.map((one) => dirname(one)),
		...files,
		...(source === null ? [] : [source]),
	]) {
		const exposure = await findExposure(file, { secret: false });
		const message = `No plan updates this device, because ${file} is not safe: ${exposure?.reason}.`;
		if (exposure) return failure('file-exposed', message, { remedy: exposure.remedy, params: { path: file } });
	}
	return null;
}

/**
 * The settings files, the directory of further ones, and every file that a setting names.
 * @param stateDir its owner is the agent's user for a command that root runs; default: the user of this process is.
 * @returns `file-exposed` for each, empty when all may be trusted. Never throws.
 */
export async function findExposedFiles(
	{ documents, settings }: Pick<LoadedSettings, 'documents' | 'settings'>,
	places: { readonly confDirectory: string; readonly stateDir: string } | null = null,
): Promise<readonly Failure[]> {
	const own = ownUser();
	const owner = own === 0 && places ? fs.statSync(places.stateDir, { throwIfNoEntry: false }) : null;
	const owners = [own, ...(owner ? [owner.uid] : [])];
	const named = [...listSettings().keys()].flatMap((path) => {
		const file = path.endsWith('File') ? valueAt(settings, path) : null;
		return typeof file === 'string'
			? [{ file, what: path, secret: !PUBLIC_FILES.includes(path), isDirectory: false }]
			: [];
	});
	const files = documents.map(({ where }) => ({ file: where, what: 'settings', secret: false }));
	const directories = new Set(files.map(({ file }) => dirname(file)));
	if (places) directories.add(places.confDirectory);
	const all = [...[...directories].map((file) => ({ file, what: 'settings', secret: false })), ...files, ...named];
	const found: Failure[] = [];
	for (const { file, what, ...rule } of all) {
		const exposure = await findExposure(file, { ...rule, owners });
		// One directory is one problem, however many files are in it.
		if (!exposure || found.some(({ remedy }) => remedy === exposure.remedy)) continue;
		const message = `${file} (${what}) is not safe: ${exposure.reason}.`;
		found.push(failure('file-exposed', message, { remedy: exposure.remedy, params: { path: file } }));
	}
	return found;
}
