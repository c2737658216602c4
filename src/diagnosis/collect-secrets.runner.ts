/**
 * Every secret that this device holds, added to a registry by its value, so that a support bundle can be searched for it:
 * from the state, from the files that settings name, from the variables. Reads what it may; never shows one, never throws.
 */
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { readBytes } from '../base/files.edge.ts';
import { readKeptAnswer } from '../pairing/kept-answer.edge.ts';
import { secretsIn } from '../pairing/kept-answer.ts';
import type { LoadedSettings, SettingsSources } from '../settings/load.runner.ts';
import { listSettings, valueAt } from '../settings/table.ts';

/** Of one file, in bytes: a larger one holds no credential. */
const MAX_BYTES = 1024 * 1024;
/** Files that settings name, without a secret in them. */
const PUBLIC = ['network.caFile', 'network.clientCertificateFile'];
const SECRET_VARIABLE = /TOKEN|SECRET|PASS|PWD|KEY|AUTH|CREDENTIAL|COOKIE|PIN/i;

export async function registerSecrets(
	{ paths, env }: Pick<SettingsSources, 'paths' | 'env'>,
	{ settings }: Pick<LoadedSettings, 'settings'>,
	tell: (secret: string) => void,
): Promise<void> {
	tellWord(settings.network.proxy ?? '', tell);
	for (const [name, value = ''] of Object.entries(env)) {
		if (/_proxy$/i.test(name)) tellWord(value.includes('://') ? value : `http://${value}`, tell);
		else if (SECRET_VARIABLE.test(name) && !value.startsWith('/')) tellWord(value, tell);
	}
	for (const path of listSettings().keys()) {
		const file = valueAt(settings, path);
		if (!path.endsWith('File') || PUBLIC.includes(path) || typeof file !== 'string') continue;
		// Each line of a key but its first and last, each word of a list.
		for (const word of (await readText(file)).replace(/^-----.*$/gm, '').split(/\s+/)) tellWord(word, tell);
	}
	for (const name of await readdir(paths.stateDir).catch(() => []))
		if (name.startsWith('state.json'))
			// A damaged file can no longer be read as JSON, and holds its tokens all the same.
			for (const [, token = ''] of (await readText(join(paths.stateDir, name))).matchAll(/"token"\s*:\s*"([^"]+)/g))
				tell(token);
	const kept = await readKeptAnswer(paths.stateDir);
	if (kept) for (const secret of secretsIn(kept)) tell(secret);
	if (paths.credentialsDirectory !== null)
		// The serial number is there only because it takes root to read it.
		for (const name of await readdir(paths.credentialsDirectory).catch(() => []))
			if (name !== 'dmi-serial') tellWord((await readText(join(paths.credentialsDirectory, name))).trim(), tell);
}

/** The word, and what is secret in it: the password of `user:password` and of a URL. */
function tellWord(word: string, tell: (secret: string) => void): void {
	const url = word.includes('://') ? URL.parse(word) : null;
	if (url) {
		for (const part of [url.password, `${url.username}:${url.password}`])
			if (part.length > 1) {
				tell(part);
				tell(decode(part));
			}
		return;
	}
	tell(word);
	const colon = word.indexOf(':');
	if (colon > 0) tell(word.slice(colon + 1));
}

function decode(text: string): string {
	try {
		return decodeURIComponent(text);
	} catch {
		return text;
	}
}

/** Of a damaged file too: what is not UTF-8 is read as well as it can be. */
async function readText(file: string): Promise<string> {
	return readBytes(file, MAX_BYTES).then(String, () => '');
}
