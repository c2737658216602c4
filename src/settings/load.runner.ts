/** Where the settings stand: files, `IDV_AGENT_…` variables, `--set path=value`. Merged in `settings/resolve.ts`. */
import type { Checked } from '../base/checked.ts';
import { type Failure, failure } from '../base/errors.ts';
import { readSettingsLayers } from './files.edge.ts';
import type { AgentPaths } from './paths.runner.ts';
import { didYouMean, type ResolvedSettings, resolveSettings, type SettingsLayer, type ValuePlace } from './resolve.ts';
import { environmentName, listSettings, valueAt } from './table.ts';

export interface SettingsSources {
	readonly paths: AgentPaths;
	readonly env: Readonly<Record<string, string | undefined>>;
	/** `path=value`, as given with `--set`. */
	readonly sets: readonly string[];
	/** What has been checked before; default nothing. */
	readonly checked?: Checked;
}

export interface LoadedSettings extends ResolvedSettings {
	/** The documents of the files, lowest first: what is kept as the last valid settings. */
	readonly documents: readonly { readonly where: string; readonly document: unknown }[];
	/** Things that are probably not meant, such as a variable that names no setting. */
	readonly notices: readonly Failure[];
}

/** Variables that are flags of the command line rather than settings. */
const FLAG_VARIABLES = ['CONFIG', 'CODE_CACHE', 'STATE_DIR', 'RUN_DIR', 'JSON'].map((name) => `IDV_AGENT_${name}`);

/** Reads and merges everything. Never throws for what stands in a file: that is in `problems`. */
export async function loadSettings(sources: SettingsSources): Promise<LoadedSettings> {
	const { configFile, configFileIsExplicit, confDirectory } = sources.paths;
	const files = await readSettingsLayers({ configFile, confDirectory, mustExist: configFileIsExplicit });
	const documents = files.layers.map(({ source, document }) => ({ where: source, document }));
	const loaded = resolveWith(documents, sources, files.places);
	return {
		...loaded,
		problems: [...files.problems, ...loaded.problems],
		notices: [...files.notices, ...loaded.notices, ...sharedPorts(loaded.settings)],
	};
}

/** The settings with these documents in place of the files. @param places where values stand in them, by `where`. */
export function resolveWith(
	documents: readonly { readonly where: string; readonly document: unknown }[],
	{ env, sets, checked }: Pick<SettingsSources, 'env' | 'sets' | 'checked'>,
	places: ReadonlyMap<string, ValuePlace> = new Map(),
): LoadedSettings {
	const fromEnv = readEnvironment(env);
	const layers: SettingsLayer[] = [
		...documents.map((file) => ({ source: 'file' as const, ...file, lineAndColumn: places.get(file.where) })),
		{ source: 'environment', texts: fromEnv.texts },
		{ source: 'flag', texts: readSets(sets) },
	];
	return { ...resolveSettings(layers, checked), documents, notices: fromEnv.notices };
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
		if (value === undefined) continue;
		const path = byName.get(name);
		if (path) texts.set(path, { value, where: name });
		else {
			const hint = didYouMean(name, [...byName.keys(), ...FLAG_VARIABLES]);
			notices.push(failure('settings-invalid', `The variable ${name} names no setting${hint}`));
		}
	}
	return { texts, notices };
}

function readSets(sets: readonly string[]): Texts {
	return new Map(
		sets.map((set) => {
			const equals = set.indexOf('=');
			const path = equals < 0 ? set : set.slice(0, equals);
			return [path, { value: equals < 0 ? '' : set.slice(equals + 1), where: `--set ${path}` }];
		}),
	);
}
