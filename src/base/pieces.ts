/**
 * The pieces of a sentence between its white space: which of them are hidden for what stands beside them, and how those that are become one
 * shape. Pure.
 */
import { isFigure } from './shown-numbers.ts';

export interface Piece {
	readonly before: string;
	readonly core: string;
	readonly after: string;
	/** A number or a date of the sentence itself: no neighbour hides it, and it is a part of no shape. */
	readonly isGiven: boolean;
	/** `null`: not shown. */
	shown: string | null;
}

/** Digits in a row, or with signs between them, that may be a status, a port or a year. */
export const MAX_DIGITS = 4;
/** Longest group of digits in the words of others, beside a status and the code of a close. */
const MAX_GROUP = 3;
export const UNIT =
	/^(?:s|ms|min|h|seconds?|minutes?|hours?|days?|bytes|characters|B|[kKMG]i?B|lines?|events?|times|%)\W*$/;

const digitsOf = (text: string) => text.replaceAll(/\D/g, '');

/** Hides texts in short pieces: digits or letters, each alone. */
export function hideRuns(pieces: readonly Piece[]): void {
	const isShort = ({ core, isGiven }: Piece) =>
		!isGiven && /^(?:[^A-Za-z]*|[A-Za-z]|\d+[A-Za-z]{1,2})$/.test(core) && !/^[aIshdB]$/.test(core);
	for (let from = 0; from < pieces.length; from += 1) {
		let to = from;
		while (to < pieces.length && isShort(pieces[to] as Piece)) to += 1;
		const run = pieces.slice(from, to).filter(({ core }) => /[A-Za-z\d]/.test(core));
		const length = run.reduce((sum, { core }) => sum + core.replace(/[^A-Za-z\d]/g, '').length, 0);
		const [only] = run;
		if (run.length > 2 || (run.length > 1 && length >= MAX_DIGITS)) for (const one of run) one.shown = null;
		else if (only && /^\d{1,9}$/.test(only.core) && UNIT.test(pieces[to]?.core ?? '')) only.shown = only.core;
		from = Math.max(from, to - 1);
	}
}

/**
 * Of the words of others, however long, one group of digits may be shown: more of them may be one number in pieces, whatever stands between.
 * @param shapes what is shown instead of a text and has no digits of it.
 */
export function hideFigures(pieces: readonly Piece[], shapes: RegExp): void {
	const digits = ({ shown }: Piece) => digitsOf((shown ?? '').replaceAll(shapes, ''));
	const figures = pieces.filter((one) => digits(one) !== '');
	const numbers = figures.filter(({ core }) => !/\p{L}{2}/u.test(core));
	let left = MAX_DIGITS;
	for (const one of figures) {
		const own = digits(one);
		const isFew = own.length <= MAX_GROUP || isFigure(own);
		left -= own.length;
		if (left < 0 || (numbers.includes(one) && (numbers.length > 1 || !isFew))) one.shown = null;
	}
}

/** Pieces that are not shown become one shape, with the short ones between them. */
export function joinPieces(pieces: readonly Piece[], shape: (text: string) => string): string {
	let out = '';
	for (let from = 0; from < pieces.length; from += 1) {
		const { before, core, after, shown } = pieces[from] as Piece;
		if (shown !== null) {
			out += before + shown + after;
			continue;
		}
		let last = from;
		for (let at = from + 1; at < pieces.length; at += 1) {
			const one = pieces[at] as Piece;
			if (one.isGiven) break;
			if (one.shown === null) last = at;
			else if (/^\d+$/.test(one.core) && at === last + 1) last = at;
			else if (one.core.replaceAll(/[^\p{L}\p{N}]/gu, '').length > 3) break;
		}
		const between = pieces.slice(from, last + 1);
		const whole = between.map((one) => one.before + one.core + one.after).join('');
		const end = between.at(-1)?.after ?? '';
		out +=
			before +
			shape(last === from ? core : whole.slice(before.length, whole.length - end.length)) +
			(last === from ? after : end);
		from = last;
	}
	return out;
}
