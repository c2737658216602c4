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
import { type Broken, checkTogether } from './together.ts';

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
	const read = layers.map((layer) => ({ layer, entries: [...readLayer(layer, known)] }));
	const text = JSON.stringify(read.map(({ entries }) => entries.map(({ path, value }) => [path, value])));
	const taken = nothingTaken(known);
	const rules = { known, before, missing, isKnown: checked.has('settings', text) };
	for (const { layer, entries } of read) takeLayer(taken, layer, entries, rules);
	const { values, origins, problems, unknown, documents, refused } = taken;
	const unnamed = taken.unknownCount - MAX_UNKNOWN;
	const unnamedFault = unnamed === 1 ? '1 more name is not a setting.' : `${unnamed} more names are not settings.`;
	if (unnamed > 0) unknown.push(failure('settings-invalid', unnamedFault));
	problems.push(...unknown.slice(unnamed > 0 ? -1 : unknown.length));
	if (problems.length === 0 && taken.isUnchanged) checked.add('settings', text);
	let wentBack = false;
	const goBack = (paths: readonly string[], to: SettingsBefore | null) => {
		wentBack ||= to !== null;
		for (const path of paths) {
			values.set(path, to ? valueAt(to.settings, path) : known.get(path)?.fallback);
			origins.set(path, to?.origins.get(path) ?? { source: 'default', where: null });
		}
	};
	const tellOwn = (path: string, meanwhile: unknown) => before !== null && tellMeanwhile(taken, path, meanwhile);
	const allHeld = [
		...holdForUnread(unread, values, before, goBack),
		...holdBack(taken.lost, values, before, goBack, tellOwn),
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

/** What the layers up to one have brought. */
interface Taken {
	readonly values: Map<string, unknown>;
	readonly origins: Map<string, SettingOrigin>;
	readonly problems: Failure[];
	readonly unknown: Failure[];
	readonly documents: { where: string; document: unknown }[];
	readonly refused: Set<string>;
	/** Those of them that nothing good of their own source is in place of, nor what a later source says. */
	readonly lost: Set<string>;
	unknownCount: number;
	/** Whether each value is as it was written. */
	isUnchanged: boolean;
}

interface Rules {
	readonly known: ReadonlyMap<string, Setting<unknown>>;
	readonly before: SettingsBefore | null;
	readonly missing: ReadonlySet<string>;
	/** Whether these very values were checked before. */
	readonly isKnown: boolean;
}

function nothingTaken(known: Rules['known']): Taken {
	const all = [...known];
	return {
		values: new Map(all.map(([path, { fallback }]) => [path, fallback])),
		origins: new Map(all.map(([path]) => [path, { source: 'default', where: null }])),
		...{ problems: [], unknown: [], documents: [], refused: new Set(), lost: new Set() },
		...{ unknownCount: 0, isUnchanged: true },
	};
}

/** Puts the values of one layer over those of the layers below it. */
function takeLayer(taken: Taken, layer: SettingsLayer, entries: readonly Entry[], rules: Rules): void {
	const { values, origins, problems, unknown, refused, lost } = taken;
	const { known } = rules;
	const isFile = layer.source === 'file';
	const mended: Mended = { document: isFile ? layer.document : null };
	if (isFile && !isObject(layer.document))
		problems.push(failure('settings-invalid', `${layer.where}: the file must hold a group of settings: { … }.`));
	const refuse = (one: string, where: string, isThere = false) =>
		refuseValue(taken, mended, { path: one, where, isThere, source: layer.source }, rules);
	for (const entry of entries) {
		const { path, keys, value, where } = entry;
		const setting = known.get(path);
		if (!setting) for (const one of slipsOf(path, value, refused)) for (const all of [refused, lost]) all.add(one);
		if (!setting && ++taken.unknownCount > MAX_UNKNOWN) continue;
		const found = look(setting, entry, rules);
		if ('message' in found) {
			const place = isFile ? layer.lineAndColumn?.([...keys, ...found.within]) : undefined;
			const at = place ? `${where}: ${place}` : where;
			const params = { setting: shortened(path) };
			const told = failure('settings-invalid', onOneLine(`${at}: ${params.setting} ${found.message}`), { params });
			problems.push(told);
			if (!setting && value !== NOT_A_GROUP && isFile) unknown.push(told);
			// It keeps no agent from starting.
			if (setting && isMissing(path, value, rules)) unknown.push(told);
			for (const one of setting ? [path] : value === NOT_A_GROUP ? below(path, known) : [])
				refuse(one, where, setting !== undefined);
		} else {
			taken.isUnchanged &&= isSame(found.value, value);
			lost.delete(path);
			values.set(path, found.value);
			origins.set(path, { source: layer.source, where });
		}
	}
	if (!isFile) return;
	const isSet = (one: string) => entries.some(({ path, value }) => path === one && !isOpen(one, value));
	for (const one of layer.overridden ?? []) if (!isSet(one)) refuse(one, layer.where);
	taken.documents.push({ where: layer.where, document: mended.document });
}

/** The good value from before of the same source takes the place of a bad one, also in its document. */
function refuseValue(
	{ values, origins, refused, lost }: Taken,
	mended: Mended,
	{ path, where, isThere, source }: { path: string; where: string; isThere: boolean; source: SettingsLayer['source'] },
	rules: Rules,
): void {
	for (const all of [refused, lost]) all.add(path);
	const own = ownBefore(path, where, rules.before);
	const isOwn = own !== null && !isMissing(path, own.value, rules);
	const kept = isOwn ? own.value : undefined;
	const restrictsNothing = kept === undefined || isSame(kept, rules.known.get(path)?.fallback);
	// A restriction is refused whenever the document is read again, as it stands there; where it does not, none is an object.
	if (!(path in RESTRICTS && restrictsNothing)) mend(mended, path.split('.'), kept);
	else if (!isThere) mend(mended, path.split('.'), {});
	if (!isOwn) return;
	if (!restrictsNothing) lost.delete(path);
	values.set(path, kept);
	origins.set(path, { source, where });
}

const isMissing = (path: string, value: unknown, { missing }: Rules) =>
	GROUPS.includes(path) && missing.has(String(value));

/** The value, or what is wrong with it. */
function look(setting: Setting<unknown> | undefined, { path, value }: Entry, rules: Rules): ReturnType<typeof check> {
	if (!setting) return { message: unknownKey(path, rules.known), within: [] };
	if (isMissing(path, value, rules))
		return { message: `names a group that this machine does not have: ${value}. ${GROUP_STAYS}`, within: [] };
	return rules.isKnown ? { value } : check(setting, value);
}

/** Adds to the fault of a restriction what it is meanwhile. @returns `false` where no fault names it. */
function tellMeanwhile({ problems, unknown }: Taken, path: string, meanwhile: unknown): boolean {
	const isOf = (told: unknown) => told === path || path.startsWith(`${told}.`);
	const at = problems.findIndex(({ params }) => isOf(params?.['setting']));
	const fault = problems[at];
	if (!fault || unknown.includes(fault)) return false;
	const is = Array.isArray(meanwhile) ? 'allows nothing' : `is ${meanwhile}`;
	const one = fault.params?.['setting'] === path ? 'it' : path;
	const message = joinSentences(fault.message, `Until ${one === 'it' ? one : 'that'} is mended ${one} ${is}`);
	problems[at] = { ...fault, message, params: { ...fault.params, meanwhile: is } };
	return true;
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
