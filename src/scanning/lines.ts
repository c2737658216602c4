/** Cuts what a scanner sends into scans, bounded, by its suffix or by the quiet that the caller reports. Pure. */
import { MAX_CODE_LENGTH } from '../protocol/pairing-code.ts';
import type { ScanSuffix } from '../settings/value-schemas.ts';

/** One reading: its text, trimmed and without control characters, or that there was more than any code has. */
export type Scan = { readonly kind: 'text'; readonly text: string } | { readonly kind: 'tooLong' };

/** The received part of the next scan. */
export interface UnfinishedScan {
	readonly text: string;
	readonly tooLong: boolean;
}

export const NOTHING_READ: UnfinishedScan = { text: '', tooLong: false };

/** After this long without a character a scan is over, in milliseconds: longer than any pause inside one at 9600 baud. */
export const QUIET_MS = 250;
/** With a suffix that has to come, the rest of a scan that was cut off is forgotten after so long, in milliseconds. */
const CUT_OFF_MS = 2000;

/** How long nothing must arrive before {@link endByQuiet} is called. */
export function quietMsOf(suffix: ScanSuffix): number {
	return suffix === 'cr' || suffix === 'lf' ? CUT_OFF_MS : QUIET_MS;
}

const ENDS: Readonly<Record<ScanSuffix, RegExp | null>> = { auto: /[\r\n]/, cr: /\r/, lf: /\n/, none: null };

/** Takes the next characters in; returns the scans that they complete. */
export function takeCharacters(
	before: UnfinishedScan,
	characters: string,
	suffix: ScanSuffix,
): { readonly unfinished: UnfinishedScan; readonly scans: readonly Scan[] } {
	const end = ENDS[suffix];
	const pieces = end ? characters.split(end) : [characters];
	const last = pieces.pop() ?? '';
	const scans: Scan[] = [];
	let unfinished = before;
	for (const piece of pieces) {
		const scan = finish(append(unfinished, piece));
		if (scan) scans.push(scan);
		unfinished = NOTHING_READ;
	}
	return { unfinished: append(unfinished, last), scans };
}

/** Nothing came for {@link quietMsOf}: what is there is a scan, or, where a suffix has to come, forgotten. */
export function endByQuiet(unfinished: UnfinishedScan, suffix: ScanSuffix): Scan | null {
	return suffix === 'cr' || suffix === 'lf' ? null : finish(unfinished);
}

const TOO_LONG: UnfinishedScan = { text: '', tooLong: true };

function append({ text, tooLong }: UnfinishedScan, piece: string): UnfinishedScan {
	if (tooLong || text.length + piece.length > MAX_CODE_LENGTH) return TOO_LONG;
	return text + piece === '' ? NOTHING_READ : { text: text + piece, tooLong: false };
}

function finish({ text, tooLong }: UnfinishedScan): Scan | null {
	if (tooLong) return { kind: 'tooLong' };
	const clean = text.replaceAll(/[\u0000-\u001f\u007f]/g, '').trim();
	return clean === '' ? null : { kind: 'text', text: clean };
}
