/**
 * What stays of the settings when their source is bad or vanishes: what is in force. A value that is only tried yet, and has never
 * brought the device online, is not what it goes back to. Pure.
 */
import { isObject } from '../protocol/json.ts';
import type { LoadedSettings } from '../settings/load.runner.ts';
import { mend } from '../settings/resolve.ts';
import { variablesIn } from '../settings/setting-kinds.ts';
import { isSame, listSettings } from '../settings/table.ts';
import type { DeviceState } from '../state/device-state.ts';
import type { Runtime } from './runtime.runner.ts';
import { differences } from './way.ts';

/** The settings with which the device has not been online yet although it has been with others. @param inForce beside which `wanted` may be tried. */
export function triedSettings(
	wanted: Pick<Runtime, 'resolved' | 'credentials' | 'way'>,
	inForce: Pick<Runtime, 'way'>,
	{ connections: [online], refusedCredential }: Pick<DeviceState, 'connections' | 'refusedCredential'>,
): string[] {
	if (!online?.worked) return [];
	const { baseUrl, workflowId } = wanted.resolved.settings;
	const { id } = wanted.credentials;
	const isOther = (value: string | null, live: string) => value !== null && value !== live;
	const isTried = id !== '' && (id !== online.credentialId || id === refusedCredential?.id);
	return [
		...(isOther(baseUrl, online.baseUrl) ? ['baseUrl'] : []),
		...(isOther(workflowId, online.request.workflowId) ? ['workflowId'] : []),
		...(isTried ? [...listSettings().keys()].filter((path) => path.startsWith('credential.')) : []),
		...(wanted.way && inForce.way && wanted.way.id !== inForce.way.id ? differences(inForce.way, wanted.way) : []),
	].filter((path) => listSettings().has(path));
}

/** The same settings, and documents of their files, with the values from before in place of those that are only tried. */
export function withLastGood<Loaded extends LoadedSettings>(
	wanted: Loaded,
	tried: readonly string[],
	before: Pick<LoadedSettings, 'settings' | 'origins' | 'documents' | 'variables'> | null,
): Loaded {
	if (!before || tried.length === 0) return wanted;
	const origins = new Map(wanted.origins);
	for (const path of tried) origins.set(path, before.origins.get(path) ?? { source: 'default', where: null });
	const put = (document: unknown, from: unknown): unknown => {
		const mended = { document };
		for (const path of tried) {
			const keys = path.split('.');
			if (!isSame(read(document, keys), read(from, keys))) mend(mended, keys, read(from, keys));
		}
		return mended.document;
	};
	const documents = wanted.documents.map(({ where, document }) => {
		const last = before.documents.find((one) => one.where === where);
		return { where, document: put(document, last?.document) };
	});
	const variables = variablesIn(origins, (path, name) => (tried.includes(path) ? before : wanted).variables[name]);
	return {
		...wanted,
		variables,
		settings: put(wanted.settings, before.settings) as Loaded['settings'],
		origins,
		documents,
	};
}

const read = (document: unknown, keys: readonly string[]): unknown =>
	keys.reduce<unknown>((at, key) => (isObject(at) ? at[key] : undefined), document);
