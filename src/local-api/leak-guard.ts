/**
 * Keeps a secret from passing through a stream of text: as it is, and in the escapes of JSON, URLs and HTML, also twice and over
 * the borders of chunks. Holds back only what may be the beginning of it. Other encodings pass. Pure.
 */
import { halfNumber, indexOf, MAX_ROUNDS, takeEscapesOff, type View } from '../base/escapes.ts';

/** The beginning of an escape at the end: of `\u002B`, `\x2B`, `%2B`, `&plus;` and `&#x2B;`, with the backslashes that escape a backslash. */
const HALF_ESCAPE = /(?:\\{1,8}(?:u[0-9a-f]{0,3}|x[0-9a-f]?)?|%[0-9a-f]?|&#?[0-9a-z]{0,10})$/i;
const LONGEST_HALF = 12;
/** Of escapes that do not end, and of what may be the beginning of the secret: whatever holds back more hides something, and is looked at again with each chunk. */
const MAX_HELD = 32 * 1024;

export function createLeakGuard(secret: string) {
	const wanted = new TextEncoder().encode(secret);
	let held: Uint8Array = new Uint8Array();
	return {
		/** The bytes that may go on now; `null` when the secret is among them, and nothing more may. @param isLast whether nothing follows. */
		push(chunk: Uint8Array, isLast = false): Uint8Array | null {
			const bytes = new Uint8Array(held.length + chunk.length);
			bytes.set(held);
			bytes.set(chunk, held.length);
			let safe = bytes.length;
			let view: View | null = { bytes, startOf: (at) => at, endOf: (at) => at + 1 };
			for (let round = 0; view && round <= MAX_ROUNDS; round += 1) {
				if (indexOf(view.bytes, wanted) >= 0) return null;
				// Half an escape would be taken for other characters, and hide the beginning of the secret before it.
				const end = view.bytes.length - (isLast ? 0 : halfEscape(view.bytes));
				if (end < view.bytes.length) safe = Math.min(safe, view.startOf(end));
				const whole: View = { ...view, bytes: view.bytes.subarray(0, end) };
				const begun = beginningOf(wanted, whole.bytes);
				if (begun < end && !isLast) safe = Math.min(safe, view.startOf(begun));
				view = takeEscapesOff(whole);
			}
			if (bytes.length - safe > MAX_HELD) return null;
			held = bytes.subarray(safe);
			return bytes.subarray(0, safe);
		},
	};
}

function halfEscape(bytes: Uint8Array): number {
	const short = HALF_ESCAPE.exec(String.fromCharCode(...bytes.subarray(-LONGEST_HALF)))?.[0].length ?? 0;
	return Math.max(short, halfNumber(bytes));
}

/** Where the longest beginning of the secret at the end begins; the length if there is none. */
function beginningOf(wanted: Uint8Array, bytes: Uint8Array): number {
	for (let start = Math.max(0, bytes.length - wanted.length + 1); start < bytes.length; start += 1)
		if (bytes[start] === wanted[0] && bytes.subarray(start).every((byte, at) => byte === wanted[at])) return start;
	return bytes.length;
}
