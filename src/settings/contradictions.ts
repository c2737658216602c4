/** Settings that are valid, and do not go together or have no effect: probably not meant. Pure. */
import { type Failure, failure } from '../base/errors.ts';
import { isLoopback } from '../protocol/endpoints.ts';
import type { ResolvedSettings } from './resolve.ts';
import type { Settings } from './table.ts';

type Rule = readonly [paths: string | readonly string[], isBroken: (settings: Settings) => boolean, words: string];

/** Set by a person, and not used. */
const UNUSED: readonly Rule[] = [
	['service.queryName', ({ service }) => service.channelAuth === 'header', 'service.channelAuth is header'],
	['service.pongBody', ({ service }) => service.pingKind === null, 'service.pingKind is not set'],
	[
		['service.heartbeatBody', 'service.heartbeatFields'],
		({ service }) => service.heartbeatMode !== 'frame',
		'service.heartbeatMode is not frame',
	],
	['service.heartbeatFields', ({ service }) => service.heartbeatBody !== null, 'service.heartbeatBody is set'],
	[
		['fleet.publicKeys', 'fleet.name', 'fleet.intervalSeconds', 'update.enabled'],
		({ fleet }) => fleet.planUrl === null,
		'fleet.planUrl is not set',
	],
	['update.enabled', ({ fleet }) => fleet.publicKeys.length === 0, 'fleet.publicKeys is empty'],
	[
		['update.window', 'update.source', 'update.judgeSeconds'],
		({ update }) => !update.enabled,
		'update.enabled is not set',
	],
	[
		['telemetry.headersFile', 'telemetry.intervalSeconds'],
		({ telemetry }) => telemetry.otlpUrl === null,
		'telemetry.otlpUrl is not set',
	],
	[
		['page.pinFile', 'page.language', 'page.support', 'page.contents'],
		({ page }) => page.port === null,
		'page.port is not set',
	],
	[
		['scanner.device', 'scanner.baudRate', 'scanner.suffix'],
		({ scanner }) => scanner.kind === 'off',
		'scanner.kind is off',
	],
	['scanner.baudRate', ({ scanner }) => scanner.kind === 'keyboard', 'scanner.kind is keyboard'],
	[
		'network.proxy',
		({ baseUrl, fleet, telemetry }) =>
			baseUrl !== null && [baseUrl, fleet.planUrl, telemetry.otlpUrl].every((url) => url === null || isLoopback(url)),
		'baseUrl is on this device, and no proxy is asked for that',
	],
];

/** Limits of which one makes nothing of the other. */
const CONTRADICTIONS: readonly Rule[] = [
	[
		'service.connectionLifeSeconds',
		({ service, heartbeatCadence }) =>
			service.connectionLifeSeconds !== null && service.connectionLifeSeconds < heartbeatCadence,
		'is less than heartbeatCadence: a Connection would end before its first heartbeat',
	],
	[
		'service.maxMessageBytes',
		({ service, events }) => service.maxMessageBytes > events.maxBytes,
		'is more than events.maxBytes: a message larger than that is kept alone, until the next event',
	],
	[
		'service.confirmKind',
		({ service }) => service.confirmKind !== null && service.confirmKind === service.pingKind,
		'is service.pingKind as well: such a message is answered, and the channel is never confirmed',
	],
	[
		'update.judgeSeconds',
		({ update, heartbeatCadence }) => update.enabled && update.judgeSeconds < heartbeatCadence,
		'is less than heartbeatCadence: a new version would be judged before its first heartbeat',
	],
	[
		'events.cleanAfterSeconds',
		({ events }) => events.cleanAfterSeconds > events.maxAgeSeconds,
		'is more than events.maxAgeSeconds',
	],
];

type Found = Pick<ResolvedSettings, 'settings' | 'origins' | 'refused'>;

/** Of a value that was refused nothing follows. */
const isBrokenBy = ([, isBroken, words]: Rule, { settings, refused }: Found) =>
	isBroken(settings) && !words.split(/[ :]/).some((word) => refused.has(word));

/** With the file or the variable that sets it. */
function tell({ origins }: Found, path: string, words: string): Failure {
	const where = origins.get(path)?.where;
	return failure('settings-invalid', `${where ? `${where}: ` : ''}${path} ${words}.`);
}

/** `settings-invalid` for each limit that another one contradicts. */
export function findContradictions(found: Found): Failure[] {
	return CONTRADICTIONS.flatMap((rule) => {
		const [path = ''] = [rule[0]].flat();
		return isBrokenBy(rule, found) && !found.refused.has(path) ? [tell(found, path, rule[2])] : [];
	});
}

/** The same for each setting that is set and not used. */
export function findUnused(found: Found & Pick<ResolvedSettings, 'isWhole'>): Failure[] {
	// What a file that cannot be read may restrict is as if it were not set.
	if (!found.isWhole) return [];
	const isSet = (path: string) => (found.origins.get(path)?.source ?? 'default') !== 'default';
	return UNUSED.flatMap((rule) => {
		const [paths, , words] = rule;
		const told = isBrokenBy(rule, found) ? [paths].flat().filter(isSet) : [];
		return told.map((path) => tell(found, path, `has no effect: ${words}`));
	});
}

/** The same for each hook whose program is named by a path that depends on where it runs. */
export function relativeHooks({ hooks }: Pick<Settings, 'hooks'>): Failure[] {
	return Object.entries(hooks).flatMap(([name, [program = '']]) =>
		/^[^/]+\//.test(program)
			? [failure('settings-invalid', `hooks.${name}: ${program} is not an absolute path, and hooks run in /.`)]
			: [],
	);
}
