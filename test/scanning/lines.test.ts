import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { MAX_CODE_LENGTH } from '../../src/protocol/pairing-code.ts';
import { endByQuiet, NOTHING_READ, type Scan, takeCharacters } from '../../src/scanning/lines.ts';
import { readScans } from '../../src/scanning/scan-reader.runner.ts';
import { SCAN_SUFFIXES, type ScanSuffix } from '../../src/settings/value-schemas.ts';
import { createSteppedClock } from '../harness/stepped-clock.ts';

/** What a scanner's chunks come to, with a quiet moment at the end. */
function scansOf(chunks: readonly string[], suffix: ScanSuffix): Scan[] {
	const all: Scan[] = [];
	let unfinished = NOTHING_READ;
	for (const chunk of chunks) {
		const taken = takeCharacters(unfinished, chunk, suffix);
		unfinished = taken.unfinished;
		all.push(...taken.scans);
	}
	const last = endByQuiet(unfinished, suffix);
	return last ? [...all, last] : all;
}
const texts = (scans: readonly Scan[]) => scans.map((scan) => (scan.kind === 'text' ? scan.text : scan.kind));

describe('the end of a scan', () => {
	test.each<[ScanSuffix, string, string[]]>([
		['auto', 'one\rtwo\nthree\r\nfour', ['one', 'two', 'three', 'four']],
		['cr', 'one\rtwo\r\nthree\r', ['one', 'two', 'three']],
		['lf', 'one\ntwo\r\nthree\n', ['one', 'two', 'three']],
		['none', 'one\rtwo', ['onetwo']],
	])('by suffix %s', (suffix, sent, expected) => {
		expect(texts(scansOf([sent], suffix))).toEqual(expected);
	});

	test('a scan that was cut off is forgotten where a suffix has to come, and taken where quiet ends it', () => {
		expect(scansOf(['half a co'], 'cr')).toEqual([]);
		expect(scansOf(['half a co'], 'lf')).toEqual([]);
		expect(texts(scansOf(['a code'], 'none'))).toEqual(['a code']);
		expect(texts(scansOf(['a code'], 'auto'))).toEqual(['a code']);
	});

	test.each<[ScanSuffix, afterMs: number, string[]]>([
		['auto', 240, ['a code']],
		['none', 240, ['a code']],
		['auto', 260, ['a co', 'de']],
		['none', 260, ['a co', 'de']],
		['cr', 1900, ['a code']],
		['lf', 1900, ['a code']],
		['cr', 2100, ['de']],
		['lf', 2100, ['de']],
	])('by suffix %s, of which %d ms lie between two parts [F1868]', (suffix, afterMs, expected) => {
		const clock = createSteppedClock();
		const scans: Scan[] = [];
		const reader = readScans(clock, suffix, (scan) => scans.push(scan));
		reader.characters('a co');
		clock.advance(afterMs);
		reader.characters(suffix === 'lf' ? 'de\n' : 'de\r');
		clock.advance(afterMs);
		clock.advance(afterMs);
		expect(texts(scans)).toEqual(expected);
		expect(clock.pending).toBe(0);
	});

	test('empty lines are no scans', () => {
		expect(scansOf(['\r\n\r\n', ' \n\t\r'], 'auto')).toEqual([]);
	});

	test('how the characters are cut into chunks changes nothing', () => {
		fc.assert(
			fc.property(
				fc.array(fc.string({ unit: fc.constantFrom('a', 'b', '\r', '\n', '\u0002', ' ', '}'), maxLength: 20 })),
				fc.constantFrom(...SCAN_SUFFIXES),
				(chunks, suffix) => {
					expect(scansOf(chunks, suffix)).toEqual(scansOf([chunks.join('')], suffix));
				},
			),
		);
	});
});

describe('what is not text', () => {
	test('control characters around and inside a code are dropped', () => {
		expect(texts(scansOf(['\u0002\u001dtr-abc\u0000def\u0003\r'], 'auto'))).toEqual(['tr-abcdef']);
	});

	test('a megabyte without a suffix is one scan that is too long, keeps nothing, and the next scan is read', () => {
		let unfinished = NOTHING_READ;
		for (let sent = 0; sent < 1_000_000; sent += 4000) {
			({ unfinished } = takeCharacters(unfinished, 'x'.repeat(4000), 'cr'));
			expect(unfinished.text.length).toBeLessThanOrEqual(MAX_CODE_LENGTH);
		}
		expect(takeCharacters(unfinished, '\rtr-next\r', 'cr').scans).toEqual([
			{ kind: 'tooLong' },
			{ kind: 'text', text: 'tr-next' },
		]);
	});

	test('the longest code is read, and a character more is too long', () => {
		const longest = 'x'.repeat(MAX_CODE_LENGTH);
		expect(scansOf([longest], 'auto')).toEqual([{ kind: 'text', text: longest }]);
		expect(scansOf([`${longest}x`], 'auto')).toEqual([{ kind: 'tooLong' }]);
	});

	test('whatever is sent, a scan is short, trimmed and has no control characters', () => {
		fc.assert(
			fc.property(fc.array(fc.uint8Array({ maxLength: 200 })), fc.constantFrom(...SCAN_SUFFIXES), (chunks, suffix) => {
				const decoder = new TextDecoder();
				for (const text of texts(
					scansOf(
						chunks.map((bytes) => decoder.decode(bytes, { stream: true })),
						suffix,
					),
				)) {
					expect(text.length).toBeLessThanOrEqual(MAX_CODE_LENGTH);
					expect(text.trim()).toBe(text);
					expect([...text].every((character) => character >= ' ' && character !== '\u007f')).toBe(true);
				}
			}),
		);
	});
});
