/** The way by which links go: the settings that lead to the service, with the files that they name. Pure. */
import type { ResolvedSettings } from '../settings/resolve.ts';
import { listSettings, type Settings, valueAt } from '../settings/table.ts';
import type { DeviceState, Way } from '../state/device-state.ts';

/** When each setting of the dialect counts: for what a channel is opened with, for a registration, or whenever it is read. */
const USED: { readonly [Name in keyof Settings['service']]: 'channel' | 'registration' | 'inUse' } = {
	tokenPointer: 'registration',
	registrationPath: 'registration',
	channelPath: 'channel',
	channelAuth: 'channel',
	queryName: 'channel',
	subprotocol: 'channel',
	firstMessages: 'channel',
	confirmKind: 'channel',
	heartbeatMode: 'channel',
	heartbeatBody: 'channel',
	heartbeatFields: 'inUse',
	pingKind: 'inUse',
	pongBody: 'inUse',
	ackBody: 'inUse',
	frameContents: 'inUse',
	jsonInBinary: 'inUse',
	ignoreKinds: 'inUse',
	maxMessageBytes: 'inUse',
	connectionLifeSeconds: 'inUse',
	silenceLimitSeconds: 'channel',
	kindPointer: 'inUse',
	notificationIdPointer: 'inUse',
	closeCodes: 'inUse',
	nextConnection: 'channel',
	headers: 'channel',
	headersFile: 'channel',
	actOnMessages: 'inUse',
};

const useOf = (path: string) =>
	path.startsWith('service.') ? USED[path.slice('service.'.length) as keyof typeof USED] : undefined;
const isOfRegistration = (path: string) => useOf(path) === 'registration';
export const isOfWay = (path: string) =>
	path.startsWith('network.') || isOfRegistration(path) || useOf(path) === 'channel';

/** The way of the settings. @param files contents by path, of the files that these settings name. */
export function wayOf(
	{ settings, origins }: Pick<ResolvedSettings, 'settings' | 'origins'>,
	files: Way['files'],
	env: Way['env'],
	hash: (text: string) => string,
): Way {
	const ofWay = Object.fromEntries(
		[...listSettings().keys()].filter(isOfWay).map((path) => {
			const { source, where } = origins.get(path) ?? { source: 'default' as const, where: null };
			return [path, { value: valueAt(settings, path), source, where }];
		}),
	);
	const values = Object.entries(ofWay).map(([path, { value }]) => [path, value] as const);
	const [channel, registration] = [false, true].map((of) => values.filter(([path]) => isOfRegistration(path) === of));
	const id = `${hash(JSON.stringify([channel, files, env]))}-${hash(JSON.stringify(registration))}`;
	return { id, settings: ofWay, files, env };
}

/** The same settings with those of a way in place of their own. @param isMeant which of them; default all. */
export function withWay<Loaded extends ResolvedSettings>(
	loaded: Loaded,
	way: Way,
	isMeant = (_path: string) => true,
): Loaded {
	const settings = structuredClone(loaded.settings);
	const origins = new Map(loaded.origins);
	for (const [path, { value, source, where }] of Object.entries(way.settings)) {
		if (!isOfWay(path) || !isMeant(path)) continue;
		const [group = '', key = ''] = path.split('.');
		(settings as unknown as Record<string, Record<string, unknown>>)[group] = {
			...(valueAt(settings, group) as Record<string, unknown>),
			[key]: value,
		};
		origins.set(path, { source, where });
	}
	return { ...loaded, settings, origins };
}

const PROXY_NAME = /^(?:https?|no)_proxy$/i;
/** The variables of proxies that the agent follows, as far as they are set. `ALL_PROXY` is none of them. */
export function proxiesOf(env: Readonly<Record<string, string | undefined>>): Way['env'] {
	const isSet = (one: [string, string | undefined]): one is [string, string] => PROXY_NAME.test(one[0]) && !!one[1];
	return Object.fromEntries(Object.entries(env).filter(isSet));
}

/** The settings and variables in which two ways differ; a file whose contents do counts as its setting. */
export function differences(one: Way, other: Way): string[] {
	const shown = (way: Way, path: string) => {
		const value = way.settings[path]?.value;
		return JSON.stringify([value, path.endsWith('File') && typeof value === 'string' ? way.files[value] : null]);
	};
	const found = [...listSettings().keys()].filter((path) => isOfWay(path) && shown(one, path) !== shown(other, path));
	const names = Object.keys({ ...one.env, ...other.env }).filter((name) => one.env[name] !== other.env[name]);
	return [...found, ...names];
}

/** Where, and by which way, a device with a Connection was online last. */
export interface LastOnline {
	readonly baseUrl: string;
	readonly way: Way;
}

export function lastOnline(state: Pick<DeviceState, 'lastWay' | 'connections'>): LastOnline | null {
	const {
		lastWay,
		connections: [online],
	} = state;
	return online && lastWay ? { baseUrl: online.baseUrl, way: lastWay } : null;
}

/** The text of `service.headersFile`. */
export function headersTextOf({ settings, files }: Way): string | undefined {
	return files[String(settings['service.headersFile']?.value)];
}
