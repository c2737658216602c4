/** The meaning of a `provision.json`, made for many devices, taken once by each. Pure; no secret in a message. */
import { AgentError, type Failure, failure } from '../base/errors.ts';
import { findJsonPlaces, lineAndColumn, readJsonObject, shortened } from '../base/json-text.ts';
import { joinSentences } from '../base/sentences.ts';
import type { IdentityChoice } from '../identity/identity.ts';
import { isCredential } from '../protocol/authorization.ts';
import { isObject } from '../protocol/json.ts';
import { nearestName, resolveSettings } from '../settings/resolve.ts';
import type { DeviceState } from '../state/device-state.ts';

export const MAX_PROVISION_BYTES = 64 * 1024;
/** Names of the file and groups of its settings. */
const MAX_PROVISIONED_NAMES = 100;
/** Stands in the place of a secret that was taken. */
const TAKEN = '(taken)';

/** `api-key` and `connection` are also the ends of the credentials' names. */
export type ProvisionedSecret = { readonly kind: 'api-key' | 'connection'; readonly value: string };

export interface Provision {
	/** Everything but the secret, as a settings file says it. */
	readonly settings: Readonly<Record<string, unknown>>;
	readonly secret: ProvisionedSecret | null;
	/** Whether it may move a device that is paired. */
	readonly replace: boolean;
	/** The secret was taken from this file before: what is left of it is not worth anything. */
	readonly isSpent: boolean;
	/** The names in it, for people. */
	readonly names: readonly string[];
}

const NAMES = ['baseUrl', 'trustedOrigins', 'workflowId', 'apiKey', 'connection', 'replace', 'settings'];
const SECRETS = {
	apiKey: { kind: 'api-key', scheme: 'ApiKey' },
	connection: { kind: 'connection', scheme: 'Connection' },
} as const;

/** @param where its path. @throws AgentError `provision-invalid`, a line for each fault, with its place. */
export function readProvision(text: string, where: string): Provision {
	const read = readJsonObject(text, 'provisioning');
	if ('fault' in read) throw new AgentError('provision-invalid', `${where}: ${read.fault}`);
	const { document } = read;
	const { settings: group } = document;
	// Each name is looked up by its place.
	if (Object.keys(document).length + Object.keys(Object(group)).length > MAX_PROVISIONED_NAMES)
		throw new AgentError('provision-invalid', `${where}: more than ${MAX_PROVISIONED_NAMES} names stand in it.`);
	const places = findJsonPlaces(text);
	const at = (...path: string[]) => `${where}: ${lineAndColumn(text, places.offsetOf(path))}`;
	const faults: string[] = [];
	for (const name of Object.keys(document).filter((name) => !NAMES.includes(name))) {
		const nearest = nearestName(name, NAMES);
		const hint = nearest ? `did you mean ${nearest}?` : 'other settings stand under "settings".';
		faults.push(`${at(name)}: ${shortened(name)} is not known here; ${hint}`);
	}
	for (const { path, offset } of places.repeated)
		faults.push(`${where}: ${lineAndColumn(text, offset)}: ${shortened(path.join('.'))} is there twice.`);
	const { replace = false, settings: further = {}, baseUrl, trustedOrigins } = document;
	if (typeof replace !== 'boolean') faults.push(`${at('replace')}: replace must be true or false.`);
	if (!isObject(further)) faults.push(`${at('settings')}: settings must be a group of settings: { … }.`);

	const settings: Record<string, unknown> = isObject(further) ? { ...further } : {};
	for (const name of ['baseUrl', 'workflowId'].filter((name) => document[name] !== undefined)) {
		if (settings[name] !== undefined) faults.push(`${at('settings', name)}: ${name} stands above "settings" already.`);
		settings[name] = document[name];
	}
	if (trustedOrigins !== undefined)
		settings['pairing'] = { ...(isObject(settings['pairing']) && settings['pairing']), trustedOrigins };
	const pathOf = (name: string) => {
		if (name === 'pairing' && trustedOrigins !== undefined) return ['trustedOrigins'];
		return document[name] === undefined ? ['settings', name] : [name];
	};
	const layers = Object.entries(settings).map(([name, value]) => {
		return { source: 'file' as const, where: at(...pathOf(name)), document: { [name]: value } };
	});
	faults.push(...resolveSettings(layers).problems.map(({ message }) => message));

	const secrets: ProvisionedSecret[] = [];
	for (const name of ['apiKey', 'connection'] as const) {
		const value = document[name];
		if (value === undefined || value === null) continue;
		const { kind, scheme } = SECRETS[name];
		const bare = typeof value === 'string' ? value.trim().replace(new RegExp(`^${scheme}\\s+`, 'i'), '') : '';
		if (isCredential(bare) || bare === TAKEN) secrets.push({ kind, value: bare });
		else faults.push(`${at(name)}: ${name} must be one credential, as a text.`);
	}
	if (secrets.length > 1) faults.push(`${at('connection')}: only one of apiKey and connection can be used.`);
	if (secrets.length > 0 && typeof baseUrl !== 'string')
		faults.push(`${where}: baseUrl is missing: a credential is only sent to a host that is named here.`);
	if (settings['credential'] && secrets.length > 0)
		faults.push(`${at('settings', 'credential')}: settings.credential and ${secrets[0]?.kind} exclude each other.`);
	if (saysNothing(settings) && secrets.length === 0 && faults.length === 0)
		faults.push(`${where}: it names neither a service nor a setting.`);
	if (faults.length > 0) throw new AgentError('provision-invalid', faults.join('\n'));
	return {
		settings,
		secret: secrets[0] ?? null,
		replace: replace === true,
		isSpent: secrets.some(({ value }) => value === TAKEN),
		names: Object.keys(document).filter((name) => name !== 'replace'),
	};
}

/** An empty variable of what has written the file must not take the place of settings that are there. */
const saysNothing = (value: unknown): boolean =>
	value === null || (typeof value === 'object' && Object.values(value).every(saysNothing));

/** The settings with the file in which the agent finds the secret. */
export function provisionedSettings(
	{ settings, secret }: Provision,
	secretFile: string | null,
): Readonly<Record<string, unknown>> {
	if (!secret || secretFile === null) return settings;
	return { ...settings, credential: { [secret.kind === 'api-key' ? 'apiKeyFile' : 'connectionFile']: secretFile } };
}

/** The text without its secrets; what else it says stays, so that a person sees what was done. */
export function withoutSecrets(text: string): string {
	const read = readJsonObject(text, 'provisioning');
	const document = 'document' in read ? read.document : {};
	const left = Object.entries(document).map(([name, value]) => [name, Object.hasOwn(SECRETS, name) ? TAKEN : value]);
	return `${JSON.stringify(Object.fromEntries(left), null, '\t')}\n`;
}

/**
 * Whether another file than the one that was used last may be used; a refusal when not.
 * @param identity as the machine and this state make it: of a copy of another device nothing is to be replaced.
 */
export function mayProvision(
	{ replace }: Provision,
	state: DeviceState,
	where: string,
	identity: Pick<IdentityChoice, 'cloned' | 'warnings'>,
): Failure | null {
	const { pairing, connections } = state;
	if (replace || (pairing === null && connections.length === 0)) return null;
	const [copy] = identity.cloned ? identity.warnings : [];
	if (copy)
		return failure('already-paired', joinSentences(copy.message, `${where} was not used`), {
			remedy: 'Make this a device of its own (idv-agent unpair, while the agent runs), and provision it again.',
		});
	const service = pairing?.baseUrl ?? connections.at(-1)?.baseUrl ?? '';
	return failure('already-paired', `This device belongs to ${service} already; ${where} was not used.`, {
		remedy: 'Put "replace": true into the file if the device is really meant to move, or remove the file.',
	});
}
