/** Parts of a sentence of ours, known from the parameters that it was made with: its own numbers and dates, and the words of others in it. Pure. */
import { isObject } from '../protocol/json.ts';

/** Parameters that hold what others have said. */
const THEIRS = /^(?:detail|subject|issuer)$/;
const DATE = /^20[2-9]\d-[01]\d-[0-3]\d$/;

/** The parameters of a sentence: its own numbers and dates, and the texts in it that are of others. */
export type SaidParams = Readonly<Record<string, unknown>>;

export interface Parts {
	readonly given: ReadonlySet<string>;
	readonly theirs: RegExp | null;
}

export function partsOf(all: readonly SaidParams[]): Parts {
	const entries = all.flatMap((params) => Object.entries(params));
	const texts = (isOne: (name: string, text: string) => boolean) =>
		entries.flatMap(([name, value]) => (typeof value === 'string' && isOne(name, value) ? [value] : []));
	const numbers = entries.flatMap(([, value]) => (typeof value === 'number' ? [String(value)] : []));
	const theirs = texts((name, text) => THEIRS.test(name) && text !== '').sort((a, b) => b.length - a.length);
	const alone = theirs.map((text) => `(?<![\\p{L}\\p{N}_])${escaped(text)}(?![\\p{L}\\p{N}_])`);
	return {
		given: new Set([...numbers, ...texts((name, text) => !THEIRS.test(name) && DATE.test(text))]),
		theirs: theirs.length > 0 ? new RegExp(alone.join('|'), 'gu') : null,
	};
}

/** Beside a sentence, and in the problems and warnings beside it, which it may tell. */
export function paramsIn(document: object): SaidParams[] {
	const of = (value: unknown) => (isObject(value) && isObject(value['params']) ? [value['params']] : []);
	return [...of(document), ...Object.values(document).flat().flatMap(of)];
}

export const escaped = (text: string) => text.replace(/[\\^$.*+?()[\]{}|/]/g, '\\$&');
