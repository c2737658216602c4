/** Every secret that this device holds, registered by its value, so that a support bundle can be searched for it. */
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { readBytes } from '../base/files.edge.ts';
import { secretsInWord } from '../base/redact.ts';
import { readKeptAnswer } from '../pairing/kept-answer.edge.ts';
import { secretsIn } from '../pairing/kept-answer.ts';
import { PUBLIC_FILES } from '../settings/exposed-files.runner.ts';
import type { LoadedSettings, SettingsSources } from '../settings/load.runner.ts';
import { listSettings, valueAt } from '../settings/table.ts';

/** Of one file, in bytes: a larger one holds no credential. */
const MAX_BYTES = 1024 * 1024;
const SECRET_VARIABLE = /TOKEN|SECRET|PASS|PWD|KEY|AUTH|CREDENTIAL|COOKIE|PIN/i;

export async function registerSecrets(
	{ paths, env }: Pick<SettingsSources, 'paths' | 'env'>,
	{ settings }: Pick<LoadedSettings, 'settings'>,
	tell: (secret: string) => void,
): Promise<void> {
	secretsInWord(settings.network.proxy ?? '').forEach(tell);
	for (const [name, value = ''] of Object.entries(env)) {
		if (/_proxy$/i.test(name)) secretsInWord(value.includes('://') ? value : `http://${value}`).forEach(tell);
		else if (SECRET_VARIABLE.test(name) && !value.startsWith('/')) secretsInWord(value).forEach(tell);
	}
	for (const path of listSettings().keys()) {
		const file = valueAt(settings, path);
		if (!path.endsWith('File') || PUBLIC_FILES.includes(path) || typeof file !== 'string') continue;
		// Each line of a key but its first and last, each word of a list.
		for (const word of (await readText(file)).replace(/^-----.*$/gm, '').split(/\s+/))
			secretsInWord(word).forEach(tell);
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
			if (name !== 'dmi-serial')
				secretsInWord((await readText(join(paths.credentialsDirectory, name))).trim()).forEach(tell);
}

/** Of a damaged file too: what is not UTF-8 is read as well as it can be. */
async function readText(file: string): Promise<string> {
	return readBytes(file, MAX_BYTES).then(String, () => '');
}
