/** The settings in force: layers merged, lowest first, every value checked, and where each came from. Reads no file. */
import { type Checked, NOTHING_CHECKED } from '../base/checked.ts';
import { type Failure, failure } from '../base/errors.ts';
import { shortened } from '../base/json-text.ts';
import { onOneLine } from '../base/printed.ts';
import { joinSentences } from '../base/sentences.ts';
import { isObject, parseJson } from '../protocol/json.ts';
import { didYouMean, editDistance } from './nearest-name.ts';
import { plainIssue } from './plain-issue.ts';
import { holdBack, holdForUnread, isOpen, RESTRICTS, type SettingsBefore } from './restrictions.ts';
import type { Setting, SettingOrigin } from './setting-kinds.ts';
import { isSame, listSettings, type Settings, valueAt } from './table.ts';

export { didYouMean, nearestName } from './nearest-name.ts';

export interface FileLayer {
	readonly source: 'file';
	readonly where: string;
	readonly document: unknown;
	/** Where the value at a path of the document stands in the file, for a person: `line 3, column 14`. */
	readonly lineAndColumn?: (keys: readonly PropertyKey[]) => string;
	/** Restrictions that may have stood under a name that the file has twice. */
	readonly overridden?: readonly string[];
}

/** Settings from one place. Later layers win over earlier ones. */
export type SettingsLayer =
	| FileLayer
	/** Texts by setting path: from `IDV_AGENT_…` variables or `--set path=value`. */
	| { readonly source: 'environment' | 'flag'; readonly texts: ReadonlyMap<string, { value: string; where: string }> };

export interface ResolvedSettings extends SettingsBefore {
	/** The faults of the layers; each bad value gives way to the one from before, or to what is below it. */
	readonly problems: readonly Failure[];
	/** Those of `problems` that only say that there is no setting of a name (of a newer version, or not meant), or what waits. */
	readonly unknown: readonly Failure[];
	/** Settings of which a value was bad, or seems to stand under a mistyped name. */
	readonly refused: ReadonlySet<string>;
	/** Whether no rule for several settings was broken, and nothing is as before because of a restriction that was refused. */
	readonly holdsTogether: boolean;
	/** Whether each file that is there could be read. */
	readonly isWhole: boolean;
	readonly documents: NonNullable<SettingsBefore['documents']>;
}

/**
 * Bad values are reported, and the same source's value from before is taken, else what is below.
 * @param checked values among these are taken as they stand.
 * @param unread files that may hold any restriction.
 * @param missing names of groups that this machine does not have.
 */
export function resolveSettings(
	layers: readonly SettingsLayer[],
	checked: Checked = NOTHING_CHECKED,
	before: SettingsBefore | null = null,
	unread: readonly string[] = [],
	missing: ReadonlySet<string> = new Set(),
): ResolvedSettings {
	const known = listSettings();
	const isMissing = (path: string, value: unknown) => GROUPS.includes(path) && missing.has(String(value));
	const read = layers.map((layer) => ({ layer, entries: [...readLayer(layer, known)] }));
	const text = JSON.stringify(read.map(({ entries }) => entries.map(({ path, value }) => [path, value])));
	const isKnown = checked.has('settings', text);
	let isUnchanged = true;
	const values = new Map<string, unknown>();
	const origins = new Map<string, SettingOrigin>();
	const problems: Failure[] = [];
	const unknown: Failure[] = [];
	const documents: { where: string; document: unknown }[] = [];
	const refused = new Set<string>();
	/** Those of them that nothing good of their own source is in place of, nor what a later source says. */
	const lost = new Set<string>();
	let unknownCount = 0;
	for (const [path, { fallback }] of known) {
		values.set(path, fallback);
		origins.set(path, { source: 'default', where: null });
	}
	for (const { layer, entries } of read) {
		const mended: Mended = layer.source === 'file' ? { document: layer.document } : { document: null };
		if (layer.source === 'file' && !isObject(layer.document))
			problems.push(failure('settings-invalid', `${layer.where}: the file must hold a group of settings: { … }.`));
		const refuse = (one: string, where: string, isThere = false) => {
			for (const all of [refused, lost]) all.add(one);
			const own = ownBefore(one, where, before);
			const isOwn = own !== null && !isMissing(one, own.value);
			const kept = isOwn ? own.value : undefined;
			const isOpen = kept === undefined || isSame(kept, known.get(one)?.fallback);
			// A restriction is refused whenever the document is read again, as it stands there; where it does not, none is an object.
			if (!(one in RESTRICTS && isOpen)) mend(mended, one.split('.'), kept);
			else if (!isThere) mend(mended, one.split('.'), {});
			if (!isOwn) return;
			if (!isOpen) lost.delete(one);
			values.set(one, kept);
			origins.set(one, { source: layer.source, where });
		};
		for (const { path, keys, value, where } of entries) {
			const entry = known.get(path);
			if (!entry) for (const one of slipsOf(path, value, refused)) for (const all of [refused, lost]) all.add(one);
			if (!entry && ++unknownCount > MAX_UNKNOWN) continue;
			const problem = !entry
				? { message: unknownKey(path, known), within: [] }
				: isMissing(path, value)
					? { message: `names a group that this machine does not have: ${value}. ${GROUP_STAYS}`, within: [] }
					: isKnown
						? { value }
						: check(entry, value);
			if ('message' in problem) {
				const place = layer.source === 'file' ? layer.lineAndColumn?.([...keys, ...problem.within]) : undefined;
				const at = place ? `${where}: ${place}` : where;
				const params = { setting: shortened(path) };
				const told = failure('settings-invalid', onOneLine(`${at}: ${params.setting} ${problem.message}`), { params });
				problems.push(told);
				if (!entry && value !== NOT_A_GROUP && layer.source === 'file') unknown.push(told);
				// It keeps no agent from starting.
				if (entry && isMissing(path, value)) unknown.push(told);
				for (const one of entry ? [path] : value === NOT_A_GROUP ? below(path, known) : [])
					refuse(one, where, entry !== undefined);
			} else {
				isUnchanged &&= isSame(problem.value, value);
				lost.delete(path);
				values.set(path, problem.value);
				origins.set(path, { source: layer.source, where });
			}
		}
		if (layer.source !== 'file') continue;
		const isSet = (one: string) => entries.some(({ path, value }) => path === one && !isOpen(one, value));
		for (const one of layer.overridden ?? []) if (!isSet(one)) refuse(one, layer.where);
		documents.push({ where: layer.where, document: mended.document });
	}
	const unnamed = unknownCount - MAX_UNKNOWN;
	const unnamedFault = unnamed === 1 ? '1 more name is not a setting.' : `${unnamed} more names are not settings.`;
	if (unnamed > 0) unknown.push(failure('settings-invalid', unnamedFault));
	problems.push(...unknown.slice(unnamed > 0 ? -1 : unknown.length));
	if (problems.length === 0 && isUnchanged) checked.add('settings', text);
	let wentBack = false;
	const goBack = (paths: readonly string[], to: SettingsBefore | null) => {
		wentBack ||= to !== null;
		for (const path of paths) {
			values.set(path, to ? valueAt(to.settings, path) : known.get(path)?.fallback);
			origins.set(path, to?.origins.get(path) ?? { source: 'default', where: null });
		}
	};
	const tellOwn = (path: string, meanwhile: unknown) => {
		const isOf = (told: unknown) => told === path || path.startsWith(`${told}.`);
		const at = before ? problems.findIndex(({ params }) => isOf(params?.['setting'])) : -1;
		const fault = problems[at];
		if (!fault || unknown.includes(fault)) return false;
		const is = Array.isArray(meanwhile) ? 'allows nothing' : `is ${meanwhile}`;
		const one = fault.params?.['setting'] === path ? 'it' : path;
		const message = joinSentences(fault.message, `Until ${one === 'it' ? one : 'that'} is mended ${one} ${is}`);
		problems[at] = { ...fault, message, params: { ...fault.params, meanwhile: is } };
		return true;
	};
	const allHeld = [
		...holdForUnread(unread, values, before, goBack),
		...holdBack(lost, values, before, goBack, tellOwn),
	];
	// Nothing goes on with settings that were never valid: they only have mistakes.
	const held = before || problems.length + unread.length === unknown.length ? allHeld : [];
	// A setting that was refused, or may stand in a file that cannot be read, has been told as that. A mistyped name alone
	// does not prevent a start: what it leaves open does.
	const isFaulty = unread.length > 0 || problems.length > unknown.length;
	unknown.push(...held);
	const broken = checkTogether(nest(values), before);
	const isTold = ({ lacks = [] }: Broken) => isFaulty && lacks.some((path) => unread.length > 0 || refused.has(path));
	const untold = broken.filter((one) => !isTold(one));
	problems.push(...held, ...untold.map(({ message }) => failure('settings-invalid', message)));
	if (before) {
		for (const { paths } of broken) goBack(paths, before);
		// What does not go together with the rest even so is not used at all.
		for (const { paths } of checkTogether(nest(values), null)) goBack(paths, null);
	}
	const holdsTogether = broken.length === 0 && !wentBack;
	const isWhole = unread.length === 0;
	return { settings: nest(values), origins, problems, unknown, refused, holdsTogether, isWhole, documents };
}

/** The value that a source has set before, also where another one went before it; `null` for none. */
function ownBefore(path: string, where: string, before: SettingsBefore | null): { readonly value: unknown } | null {
	if (before?.origins.get(path)?.where === where) return { value: valueAt(before.settings, path) };
	const entry = listSettings().get(path);
	const document = before?.documents?.find((one) => one.where === where)?.document;
	const value = path.split('.').reduce<unknown>((at, key) => (isObject(at) ? at[key] : undefined), document);
	const found = entry && value !== undefined ? check(entry, value) : null;
	return found && 'value' in found ? found : null;
}

/** The settings that name a group of the machine, and what follows where there is none of that name. */
export const GROUPS: readonly string[] = ['local.agentGroup', 'local.adminGroup'];
const GROUP_STAYS = 'The one from before is in force, or else the default.';

/** Each restriction in three pieces: two slips leave one of them as it is. That is seen sooner than the slips are counted. */
const THIRDS = Object.keys(RESTRICTS).map((path) => {
	const third = Math.floor(path.length / 3);
	return [
		path,
		[[0, third], [third, 2 * third], [2 * third]].map((ends) => path.toLowerCase().slice(...ends)),
	] as const;
});

/** The restrictions that a name with a slip, or one within it, was meant for, without those that are known to be refused. */
function slipsOf(typed: string, value: unknown, refused: ReadonlySet<string>): string[] {
	const within = isObject(value) ? Object.keys(value).map((name) => `${typed}.${name}`) : [];
	const names = [typed, ...within].map((name) => name.toLowerCase());
	const isSlip = (path: string, thirds: readonly string[]) =>
		names.some(
			(name) => thirds.some((third) => name.includes(third)) && editDistance(name, path.toLowerCase(), 2) <= 2,
		);
	return THIRDS.filter(([path, thirds]) => !refused.has(path) && isSlip(path, thirds)).map(([path]) => path);
}

/** A document as it was read until it is mended: then a copy. */
interface Mended {
	document: unknown;
	isCopy?: boolean;
}

/** Puts a value in the place of a bad one; `undefined` takes it out. */
export function mend(mended: Mended, keys: readonly string[], value: unknown): void {
	if (!isObject(mended.document)) return;
	if (!mended.isCopy) Object.assign(mended, { document: structuredClone(mended.document), isCopy: true });
	let at = mended.document as Record<string, unknown>;
	for (const key of keys.slice(0, -1)) {
		if (!isObject(at[key])) at[key] = {};
		at = at[key] as Record<string, unknown>;
	}
	const last = keys.at(-1) ?? '';
	if (value === undefined) delete at[last];
	else at[last] = value;
}

const below = (group: string, known: ReadonlyMap<string, unknown>) =>
	[...known.keys()].filter((path) => path.startsWith(`${group}.`));

/** Unknown names that are told one by one: each is looked for in its file, and compared with all that there are. */
const MAX_UNKNOWN = 20;

interface Entry {
	readonly path: string;
	/** The names that lead to it in its document. */
	readonly keys: readonly string[];
	readonly value: unknown;
	readonly where: string;
}

function* readLayer(layer: SettingsLayer, known: ReadonlyMap<string, Setting<unknown>>): Generator<Entry> {
	if (layer.source !== 'file') {
		for (const [path, { value, where }] of layer.texts)
			yield { path, keys: [], value: readText(known.get(path)?.kind, value), where };
	} else if (isObject(layer.document)) yield* readGroup(layer.document, [], layer.where, groupsOf(known));
}

function* readGroup(
	document: Record<string, unknown>,
	above: readonly string[],
	where: string,
	groups: ReadonlySet<string>,
): Generator<Entry> {
	for (const [key, value] of Object.entries(document)) {
		const keys = [...above, key];
		const path = keys.join('.');
		if (!groups.has(path)) yield { path, keys, value, where };
		else if (isObject(value)) yield* readGroup(value, keys, where, groups);
		else yield { path, keys, value: NOT_A_GROUP, where };
	}
}

/** The paths under which there are settings: `local`, `local.http`. */
function groupsOf(known: ReadonlyMap<string, unknown>): ReadonlySet<string> {
	const groups = new Set<string>();
	for (const path of known.keys())
		for (let dot = path.indexOf('.'); dot > 0; dot = path.indexOf('.', dot + 1)) groups.add(path.slice(0, dot));
	return groups;
}

const NOT_A_GROUP = Symbol('a value where a group of settings belongs');

/** A variable or flag is text: numbers, switches and lists are written as a person would. */
function readText(kind: Setting<unknown>['kind'] | undefined, value: string): unknown {
	// A list of messages may have commas in each.
	const written = kind === 'list' && value.trimStart().startsWith('[') ? parseJson(value) : undefined;
	if (Array.isArray(written)) return written;
	if (kind === 'object') return parseJson(value) ?? value;
	if (kind === 'list')
		return value
			.split(',')
			.map((item) => item.trim())
			.filter(Boolean);
	if (kind === 'number') return /^-?\d+(\.\d+)?$/.test(value.trim()) ? Number(value) : value;
	if (kind === 'boolean') return { true: true, false: false }[value.trim().toLowerCase()] ?? value;
	return value;
}

function check(
	entry: Setting<unknown>,
	value: unknown,
): { value: unknown } | { message: string; within: readonly PropertyKey[] } {
	const result = entry.schema.safeParse(value);
	if (result.success) return { value: result.data };
	const [issue] = result.error.issues;
	const at = issue?.path.length ? `[${issue.path.join('][')}] ` : '';
	return { message: `${at}${plainIssue(issue)}.`, within: issue?.path ?? [] };
}

function unknownKey(path: string, known: ReadonlyMap<string, Setting<unknown>>): string {
	const fault = groupsOf(known).has(path) ? 'must be a group of settings: { … }' : 'is not a setting';
	return fault + didYouMean(path, [...known.keys()]);
}

interface Broken {
	readonly message: string;
	readonly paths: readonly string[];
	/** What would have to be set. */
	readonly lacks?: readonly string[];
}

/** Rules that need more than one setting, with the settings that go back together where one is broken. */
function checkTogether(settings: Settings, before: SettingsBefore | null): Broken[] {
	const problems: Broken[] = [];
	const { credential, network } = settings;
	const ofCredential = Object.keys(credential).map((key) => `credential.${key}`);
	/** The service that was named before, if any was. */
	const needsBaseUrl = (paths: string[]) => (before?.settings.baseUrl != null ? ['baseUrl'] : paths);
	const named = (['apiKeyFile', 'basicFile', 'connectionFile'] as const).filter((key) => credential[key] !== null);
	if (named.length > 1)
		problems.push({
			message: `credential.${named.join(' and credential.')} are set, but only one of them can be used.`,
			paths: ofCredential,
		});
	// Otherwise a stranger's pairing code could name the host that the key is sent to.
	const needsHost = credential.selfRegistration ? [...named, 'selfRegistration'] : named;
	if (settings.baseUrl === null && needsHost.length > 0)
		problems.push({
			message: `credential.${needsHost[0]} needs baseUrl: a credential is only sent to a host that the settings name.`,
			paths: needsBaseUrl(ofCredential),
			lacks: ['baseUrl'],
		});
	if (settings.baseUrl === null && settings.service.headersFile !== null)
		problems.push({
			message: 'service.headersFile needs baseUrl: its headers are only sent to a host that the settings name.',
			paths: needsBaseUrl(['service.headersFile']),
			lacks: ['baseUrl'],
		});
	if ((network.clientCertificateFile === null) !== (network.clientKeyFile === null))
		problems.push({
			message: 'network.clientCertificateFile and network.clientKeyFile belong together: set both or none.',
			paths: ['network.clientCertificateFile', 'network.clientKeyFile'],
			lacks: ['network.clientCertificateFile', 'network.clientKeyFile'],
		});
	if (settings.local.http.port !== null && settings.local.http.applicationsFile === null)
		problems.push({
			message: 'local.http.port needs local.http.applicationsFile: without it no application may use the port.',
			paths: ['local.http.port', 'local.http.applicationsFile'],
			lacks: ['local.http.applicationsFile'],
		});
	return problems;
}

function nest(values: ReadonlyMap<string, unknown>): Settings {
	const root: Record<string, unknown> = {};
	for (const [path, value] of values) {
		const groups = path.split('.');
		const key = groups.pop() ?? '';
		let at = root;
		for (const group of groups) {
			at[group] ??= {};
			at = at[group] as Record<string, unknown>;
		}
		at[key] = value;
	}
	return root as Settings;
}
