/** The settings that restrict others. */
import { type Failure, failure } from '../base/errors.ts';
import type { SettingOrigin } from './setting-kinds.ts';
import { isSame, listSettings, type Settings, valueAt } from './table.ts';

/** In the place of origins that were refused: no code is from there. */
export const NO_ORIGIN = 'https://nothing.invalid';
/** The same for paths: none is under it. */
const NO_PATH = '/.';

/**
 * By the path of a restriction: what it restricts, and the value of that while the restriction was refused and nothing good of it
 * is left; `undefined` is the one from before. Where a setting that is refused leaves nothing more open than it was, it has no row.
 */
export const RESTRICTS: Readonly<Record<string, Readonly<Record<string, unknown>>>> = {
	baseUrl: { 'pairing.trustedOrigins': [NO_ORIGIN] },
	'pairing.trustedOrigins': { 'pairing.trustedOrigins': [NO_ORIGIN] },
	'service.actOnMessages': { 'service.actOnMessages': false },
	'fleet.name': { 'fleet.planUrl': undefined },
	'fleet.publicKeys': { 'fleet.planUrl': undefined },
	'update.source': { 'update.enabled': false },
	'update.window': { 'update.enabled': false },
	'forward.allow': { 'forward.allow': [NO_PATH] },
	'page.pinFile': { 'page.port': undefined },
};

/** The restrictions that these names are, or are groups of. */
export function restrictionsUnder(names: readonly string[]): string[] {
	return Object.keys(RESTRICTS).filter((path) => names.some((name) => path === name || path.startsWith(`${name}.`)));
}

/** Settings that are in force. */
export interface SettingsBefore {
	readonly settings: Settings;
	/** By path, for every setting. */
	readonly origins: ReadonlyMap<string, SettingOrigin>;
	/** The documents of the file layers with the good values in place of the bad ones. */
	readonly documents?: readonly { readonly where: string; readonly document: unknown }[];
}

/** Whether this value of a restriction restricts nothing, or was put in its place. */
export const isOpen = (path: string, value: unknown) =>
	isSame(value, listSettings().get(path)?.fallback) || isSame(value, RESTRICTS[path]?.[path]);

/**
 * Where a restriction was refused and nothing good of it is left, what it restricts waits or allows nothing. Says so.
 * @param tellOwn adds to the fault of a restriction what it is meanwhile; `false` where no fault names it.
 */
export function holdBack(
	refused: ReadonlySet<string>,
	values: Map<string, unknown>,
	before: SettingsBefore | null,
	goBack: (paths: readonly string[], to: SettingsBefore | null) => void,
	tellOwn: (path: string, meanwhile: unknown) => boolean,
): Failure[] {
	const told: Failure[] = [];
	for (const path of refused) {
		const restricts = RESTRICTS[path] ?? {};
		// The word of another source counts, but not for a restriction: it may be broader.
		const isSaid = !(path in RESTRICTS) && !isSame(values.get(path), listSettings().get(path)?.fallback);
		if (isSaid) continue;
		// It may have moved from another source.
		if (before && !isOpen(path, valueAt(before.settings, path))) goBack([path], before);
		else if (isOpen(path, values.get(path)))
			for (const [held, meanwhile] of Object.entries(restricts)) {
				const wanted = values.get(held);
				// A variable counts again at each start, whatever was in force.
				const isKept = meanwhile === undefined && before?.origins.get(held)?.source === 'file';
				goBack([held], isKept ? before : null);
				if (meanwhile !== undefined) values.set(held, meanwhile);
				// What is in its own place is told with its fault.
				const isOwn = held === path && tellOwn(path, meanwhile);
				const waits = Array.isArray(meanwhile) ? 'allows nothing' : 'waits';
				if (!isOwn && !isSame(values.get(held), wanted))
					told.push(
						failure('settings-invalid', `${held} ${waits}: ${path} was refused.`, { params: { refused: path } }),
					);
			}
	}
	return told;
}

/** A file that cannot be read may hold any restriction: none ends, and nothing that any of them restricts opens. Says so. */
export function holdForUnread(
	[file]: readonly string[],
	values: Map<string, unknown>,
	before: SettingsBefore | null,
	goBack: (paths: readonly string[], to: SettingsBefore | null) => void,
): Failure[] {
	if (file === undefined) return [];
	const told: Failure[] = [];
	const stays = (path: string, meanwhile: unknown) => {
		goBack([path], before);
		if (!before && meanwhile !== undefined) values.set(path, meanwhile);
		told.push(failure('settings-invalid', `${path} waits: ${file} cannot be read.`));
	};
	for (const [path, restricts] of Object.entries(RESTRICTS)) {
		// The address opens nothing else; all others may be broader than they were.
		const isOther =
			path === 'baseUrl'
				? isOpen(path, values.get(path))
				: !isSame(values.get(path), before && valueAt(before.settings, path));
		if (before && isOther && !isOpen(path, valueAt(before.settings, path))) stays(path, undefined);
		for (const [held, meanwhile] of Object.entries(restricts)) {
			const closed = meanwhile ?? listSettings().get(held)?.fallback;
			const allowed = [closed, before ? valueAt(before.settings, held) : closed];
			if (!allowed.some((value) => isSame(value, values.get(held)))) stays(held, meanwhile);
		}
	}
	return told;
}
