/** Where the settings stand: files, `IDV_AGENT_…` variables, `--set path=value`. Merged in `settings/resolve.ts`. */
import { dirname } from 'node:path';
import type { Checked } from '../base/checked.ts';
import { type Failure, failure } from '../base/errors.ts';
import { isTooLongToKeep } from '../base/json-text.ts';
import { findGroup } from '../base/unix.edge.ts';
import { findContradictions, relativeHooks } from './contradictions.ts';
import { readSettingsLayers, type SettingsPlaces } from './files.edge.ts';
import type { bearGone } from './gone-files.ts';
import type { AgentPaths } from './paths.runner.ts';
import {
	didYouMean,
	type FileLayer,
	GROUPS,
	type ResolvedSettings,
	resolveSettings,
	type SettingsLayer,
} from './resolve.ts';
import { variablesIn } from './setting-kinds.ts';
import { environmentName, listSettings, valueAt } from './table.ts';

export interface SettingsSources {
	readonly paths: AgentPaths;
	readonly env: Readonly<Record<string, string | undefined>>;
	/** `path=value`, as given with `--set`. */
	readonly sets: readonly string[];
	/** What has been checked before; default nothing. */
	readonly checked?: Checked;
	/** A settings file as it is to be; default: all as they are. */
	readonly instead?: SettingsPlaces['instead'];
}

export interface LoadedSettings extends ResolvedSettings {
	/** Things that are probably not meant, such as a variable that names no setting. */
	readonly notices: readonly Failure[];
	/** The texts of settings of the environment and of `--set` that are in force, by variable or flag. */
	readonly variables: Readonly<Record<string, string>>;
}

/** The settings in force before, and which of their files stay in force when they are gone. */
export interface LoadedBefore {
	readonly loaded: LoadedSettings;
	/** Default: none. */
	readonly keepsGone?: (file: string) => boolean;
}

/** Variables that are flags of the command line rather than settings. */
const FLAG_VARIABLES = ['CONFIG', 'CODE_CACHE', 'STATE_DIR', 'RUN_DIR', 'JSON'].map((name) => `IDV_AGENT_${name}`);

/** Reads and merges everything. Never throws for what stands in a file: that is in `problems`, and what was there before stays. */
export async function loadSettings(
	sources: SettingsSources,
	before: LoadedBefore | null = null,
): Promise<LoadedSettings> {
	const { instead } = sources;
	const { configFile, configFileIsExplicit, confDirectory } = sources.paths;
	const files = await readSettingsLayers({ configFile, confDirectory, mustExist: configFileIsExplicit, instead });
	const isRead = new Set(files.layers.map(({ where }) => where));
	// What an earlier start has read elsewhere is not gone: it is not asked for.
	const isAsked = (where: string) => where === configFile || dirname(where) === confDirectory;
	const stays = (where: string) =>
		!isRead.has(where) &&
		isAsked(where) &&
		(files.unread.includes(where) || files.unread.includes(dirname(where)) || before?.keepsGone?.(where) === true);
	const kept = (before?.loaded.documents ?? []).filter(({ where }) => stays(where));
	const rank = ({ where }: { where: string }) => (where === configFile ? '' : where);
	const documents = [...files.layers, ...kept].toSorted((a, b) =>
		Buffer.compare(Buffer.from(rank(a)), Buffer.from(rank(b))),
	);
	const resolved = (missing?: ReadonlySet<string>) =>
		resolveWith(documents, sources, before?.loaded, files.unread, missing);
	const named = resolved();
	const missing = await missingGroups(named, before?.loaded);
	const loaded = missing.size === 0 ? named : resolved(missing);
	const gone = kept.filter(({ where }) => !files.unread.includes(where) && !files.unread.includes(dirname(where)));
	return {
		...loaded,
		problems: [...files.problems, ...loaded.problems],
		notices: [
			...files.notices,
			...gone.map(toldGone),
			...loaded.notices,
			...shortSilence(loaded),
			...sharedPorts(loaded.settings),
			...findContradictions(loaded),
			...relativeHooks(loaded.settings),
			...(isTooLongToKeep(loaded.documents) ? [TOO_LONG] : []),
		],
	};
}

const TOO_LONG = failure(
	'settings-invalid',
	'The settings have more than 256 KiB in all: a start does not remember them where a push has broken them.',
);

/** Of the groups that settings name, those that are not there: their sockets would be for their owner alone. A number is any group. */
async function missingGroups(...all: (ResolvedSettings | undefined)[]): Promise<ReadonlySet<string>> {
	const missing = new Set<string>();
	for (const one of all)
		for (const path of GROUPS) {
			const name = String(one && one.origins.get(path)?.source !== 'default' ? valueAt(one.settings, path) : 0);
			if (!/^\d+$/.test(name) && !(await findGroup(name))) missing.add(name);
		}
	return missing;
}

function toldGone({ where }: { readonly where: string }): Failure {
	const message = `${where} is not there any more; its settings stay in force for now.`;
	const remedy = 'Put it back. To do without it at once: systemctl reload idv-agent.';
	return failure('settings-unreadable', message, { remedy, params: { path: where } });
}

/** The settings with these documents in place of the files. @param unread files that are there and cannot be read. */
export function resolveWith(
	documents: readonly Omit<FileLayer, 'source'>[],
	{ env, sets, checked }: Pick<SettingsSources, 'env' | 'sets' | 'checked'>,
	before: LoadedSettings | null = null,
	unread: readonly string[] = [],
	missing?: ReadonlySet<string>,
): LoadedSettings {
	const [fromEnv, flag] = [readEnvironment(env), readSets(sets)];
	const layers: SettingsLayer[] = [
		...documents.map((file) => ({ ...file, source: 'file' as const })),
		{ source: 'environment', texts: fromEnv.texts },
		{ source: 'flag', texts: flag },
	];
	const resolved = resolveSettings(layers, checked, before, unread, missing);
	const texts = { environment: fromEnv.texts, flag };
	const variables = variablesIn(resolved.origins, (path, name, source) =>
		resolved.refused.has(path) ? before?.variables[name] : (texts[source].get(path)?.value ?? before?.variables[name]),
	);
	return { ...resolved, notices: fromEnv.notices, variables };
}

/** A channel that is well is heard at each ping, and pings have a least interval (`livenessOf`). */
function shortSilence({ settings, origins, refused }: ResolvedSettings): Failure[] {
	const { service, heartbeatCadence } = settings;
	const { silenceLimitSeconds: limit } = service;
	const least = Math.min(10, 2 * heartbeatCadence);
	if (limit === null || limit === 0 || limit >= least || refused.has('heartbeatCadence')) return [];
	const where = origins.get('service.silenceLimitSeconds')?.where;
	const message = `${where ? `${where}: ` : ''}service.silenceLimitSeconds is less than two pings take: a silence of ${least} s ends a channel.`;
	return [failure('settings-invalid', message)];
}

/** Two listeners cannot share a port. */
function sharedPorts(settings: LoadedSettings['settings']): Failure[] {
	const ports = ['page.port', 'local.metricsPort', 'local.http.port'].map((path) => ({
		path,
		port: valueAt(settings, path),
	}));
	return ports.flatMap(({ path, port }, index) => {
		const other = port ? ports.slice(0, index).find((earlier) => earlier.port === port) : undefined;
		return other
			? [
					failure(
						'settings-invalid',
						`${path} and ${other.path} are the same port, ${port}: only one can listen there.`,
					),
				]
			: [];
	});
}

/** Those of a start: a file that cannot be used keeps what was last valid, one that has vanished does so for a while. */
export async function firstSettings(
	loaded: LoadedSettings,
	sources: SettingsSources,
	before: LoadedBefore | null,
	gone: Pick<ReturnType<typeof bearGone>, 'bears' | 'looked'>,
): Promise<LoadedSettings> {
	const isWhole = !before || (loaded.problems.length === 0 && !tellGone(before.loaded.documents, loaded.documents));
	return isWhole ? loaded : loadSettings(sources, { ...before, keepsGone: gone.bears }).finally(gone.looked);
}

/** Names the files that were read before and are absent now; empty if none is. */
export function tellGone(before: LoadedSettings['documents'], now: LoadedSettings['documents']): string {
	const gone = before.map(({ where }) => where).filter((where) => !now.some((one) => one.where === where));
	return gone.length === 0 ? '' : `${gone.join(' and ')} ${gone.length === 1 ? 'is' : 'are'} not there any more.`;
}

type Texts = Map<string, { value: string; where: string }>;

function readEnvironment(env: SettingsSources['env']): { texts: Texts; notices: Failure[] } {
	const texts: Texts = new Map();
	const notices: Failure[] = [];
	const ours = Object.entries(env).filter(([name]) => name.startsWith('IDV_AGENT_') && !FLAG_VARIABLES.includes(name));
	if (ours.length === 0) return { texts, notices };
	const byName = new Map([...listSettings().keys()].map((path) => [environmentName(path), path]));
	for (const [name, value] of ours) {
		// What is set to nothing is not set.
		if (!value) continue;
		const path = byName.get(name);
		if (path) texts.set(path, { value, where: name });
		else {
			const hint = didYouMean(name, [...byName.keys(), ...FLAG_VARIABLES]);
			notices.push(failure('settings-invalid', `The variable ${name} names no setting${hint}`));
		}
	}
	return { texts, notices };
}

const SET = '--set ';

/** The variables and flags of an earlier start, from {@link LoadedSettings.variables}. */
export function givenThen(variables: LoadedSettings['variables']): Pick<SettingsSources, 'env' | 'sets'> {
	const [sets, env] = [true, false].map((isSet) =>
		Object.entries(variables).filter(([name]) => name.startsWith(SET) === isSet),
	);
	return {
		env: Object.fromEntries(env ?? []),
		sets: (sets ?? []).map(([name, text]) => `${name.slice(SET.length)}=${text}`),
	};
}

function readSets(sets: readonly string[]): Texts {
	return new Map(
		sets.map((set) => {
			const equals = set.indexOf('=');
			const path = equals < 0 ? set : set.slice(0, equals);
			return [path, { value: equals < 0 ? '' : set.slice(equals + 1), where: `${SET}${path}` }];
		}),
	);
}
