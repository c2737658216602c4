/**
 * Which numbers of others leave the device: statuses, close codes and years, counts and moments under names that say so. A number of
 * four or more digits under any other name may open something, or belong to a person. Pure.
 */

/** Last words of names whose value counts something, is a moment, or is the number of a kind. */
const COUNTING =
	/^(?:seconds|secs|ms|minutes|hours|days|ttl|in|cadence|interval|timeout|count|total|size|length|bytes|limit|max|min|sequence|seq|version|revision|attempts?)$/;
const TIMING = /^(?:at|time|exp|iat|nbf|expires|in)$/;
const NUMBERING = /^(?:status|code|type|event|kind|op|id|n)$/;
const MAX_COUNT = 1_000_000_000;
const DAY_MS = 86_400_000;
const TEN_YEARS_MS = 3650 * DAY_MS;

/** Of HTTP, or of the end of a channel. */
const isStatus = (value: number) => value < 1000 || (value >= 1000 && value <= 1015) || (value >= 4000 && value < 4600);

/** Digits in a sentence. */
export const isFigure = (digits: string) => isStatus(Number(digits)) || /^20[23]\d$/.test(digits);

/** @param name of the member that holds it. @param isKnown whether a word is one of this program. */
export function isShownNumber(name: string, value: number, now: number, isKnown: (word: string) => boolean): boolean {
	const aheadMs = Math.min(...[value, value * 1000].map((ms) => Math.abs(ms - now)));
	if ((Math.abs(value) < 10 && Number.isInteger(value)) || aheadMs < 2 * DAY_MS) return true;
	const all = (name.match(/[A-Z]?[a-z]+|[A-Z]+/g) ?? []).map((word) => word.toLowerCase());
	const isOurs = (word: string) => word.length === 1 || isKnown(word) || COUNTING.test(word) || TIMING.test(word);
	const last = all.at(-1) ?? '';
	if (!all.every(isOurs)) return false;
	if (COUNTING.test(last) && Math.abs(value) < MAX_COUNT) return true;
	if (TIMING.test(last)) return aheadMs < TEN_YEARS_MS;
	return NUMBERING.test(last) && (last === 'code' || last === 'status' ? isStatus(value) : value < 1000);
}
