/** `idv-agent provision`: takes a `provision.json` into use. Root runs it; `idv-agent-provision.service` does at each start. */
import { join } from 'node:path';
import { sentenceOf } from '../base/sentences.ts';
import { checkSettings } from '../diagnosis/settings-check.runner.ts';
import { readIdentityFacts } from '../identity/sources.edge.ts';
import { encryptCredential } from '../provisioning/encrypt-credential.edge.ts';
import { type ProvisionResult, type ProvisionSource, provision } from '../provisioning/provision.runner.ts';
import { MAX_PROVISION_BYTES } from '../provisioning/provision.ts';
import { choosePaths } from '../settings/paths.runner.ts';
import type { AskFlags } from './local-agent.runner.ts';
import type { Shell } from './output.runner.ts';
import { readStandardInput } from './prompts.runner.ts';

const CREDENTIAL = 'idv-agent.provision';
/** Where it is looked for, in this order, after what systemd hands over. */
const PLACES = ['/etc/idv-agent/provision.json', '/boot/firmware/provision.json'];
const CREDENTIALS_OF_THE_UNIT = '/run/credentials/idv-agent.service';

export async function takeProvision(
	shell: Shell,
	flags: AskFlags & { readonly credstore: string },
	named: readonly string[],
): Promise<void> {
	const paths = choosePaths(flags, shell.env);
	const result = await provision(await sourcesOf(shell, named, paths.credentialsDirectory), {
		paths,
		credstore: flags.credstore,
		credentialsDirectory: CREDENTIALS_OF_THE_UNIT,
		seal: encryptCredential,
		check: (settings) => checkSettings(settings, { PATH: shell.env['PATH'] }, paths),
		readFacts: () => readIdentityFacts({ credentialsDirectory: paths.credentialsDirectory ?? undefined }),
		now: new Date().toISOString(),
	});
	if (shell.isJson) shell.json({ ...result, notices: result.notices.map(({ code, message }) => ({ code, message })) });
	else {
		printResult(shell, result);
		for (const notice of result.notices) shell.warn(sentenceOf(notice, 'over'));
	}
}

async function sourcesOf(shell: Shell, named: readonly string[], credentials: string | null) {
	const sourceOf = async (name: string): Promise<ProvisionSource> =>
		name === '-'
			? { name: 'standard input', text: await readStandardInput(shell, MAX_PROVISION_BYTES) }
			: { name, mustExist: true };
	if (named.length > 0) return Promise.all(named.map(sourceOf));
	const handed = credentials === null ? [] : [{ name: join(credentials, CREDENTIAL), isMedium: false }];
	return [...handed, ...PLACES.map((name) => ({ name }))];
}

function printResult(shell: Shell, { outcome, from, names, settingsFile, secret }: ProvisionResult): void {
	if (outcome !== 'applied') {
		shell.line(outcome === 'none' ? 'There is no provision.json.' : 'Nothing to do: it was taken before.');
		return;
	}
	shell.line(`Provisioned by ${from}: ${names.join(', ')}.\n`);
	shell.table([
		['Settings', settingsFile ?? '-'],
		...(secret ? [['Secret', secret.file, secret.encrypted ? 'encrypted for this machine' : 'not encrypted']] : []),
	]);
}
