import { readFileSync } from 'node:fs';
import { join as joinPath } from 'node:path';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { NO_KEYS, takeEvents } from '../../src/scanning/keyboard-events.ts';
import { inputEvent, join, stroke, typed } from '../fixtures/scanners/keyboard.ts';

function charactersOf(...chunks: readonly Uint8Array[]): string {
	let keyboard = NO_KEYS;
	let all = '';
	for (const chunk of chunks) {
		const taken = takeEvents(keyboard, chunk);
		keyboard = taken.keyboard;
		all += taken.characters;
	}
	return all;
}

/** All that stands on a US keyboard. */
const PRINTABLE = Array.from({ length: 95 }, (_, index) => String.fromCharCode(32 + index)).join('');

describe('events of a keyboard', () => {
	test('a recorded scan is read as it was printed', () => {
		const recorded = readFileSync(joinPath(import.meta.dirname, '../fixtures/scanners/pairing-code.events'));
		expect(charactersOf(recorded)).toBe(
			'https://id.example.com/mobile?authorization=Token%20tr-A1b2C3d4E5f6G7h8I9j0K1l2M3n4&workflowId=check-in\n',
		);
	});

	test('every character of a US keyboard, with and without shift', () => {
		expect(charactersOf(typed(PRINTABLE))).toBe(PRINTABLE);
	});

	test('cut anywhere, the same comes out', () => {
		const bytes = typed('Token%20tr-Ab1\n');
		fc.assert(
			fc.property(fc.nat(bytes.length), fc.nat(bytes.length), (a, b) => {
				const [first = 0, second = 0] = [a, b].sort((x, y) => x - y);
				expect(charactersOf(bytes.slice(0, first), bytes.slice(first, second), bytes.slice(second))).toBe(
					'Token%20tr-Ab1\n',
				);
			}),
		);
	});

	test('a key that repeats itself counts once', () => {
		expect(
			charactersOf(join([inputEvent(1, 30, 1), inputEvent(1, 30, 2), inputEvent(1, 30, 2), inputEvent(1, 30, 0)])),
		).toBe('a');
	});

	test('caps lock turns letters around and nothing else', () => {
		expect(charactersOf(join([stroke(58), typed('aB1'), stroke(58), typed('aB1')]))).toBe('Ab1aB1');
	});

	test('the keypad, and characters typed by their number while Alt is held', () => {
		const alt = (pressed: 0 | 1) => inputEvent(1, 56, pressed);
		expect(charactersOf(join([stroke(79), stroke(72), stroke(96)]))).toBe('18\n');
		// 64 is @.
		const at = join([alt(1), stroke(82), stroke(77), stroke(75), alt(0)]);
		expect(charactersOf(join([at, at, typed('x')]))).toBe('@@x');
	});

	test('Ctrl-M and Ctrl-J end a line; other keys with Ctrl type nothing', () => {
		const held = (key: number, code: number) => join([inputEvent(1, key, 1), stroke(code), inputEvent(1, key, 0)]);
		expect(charactersOf(join([typed('a'), held(29, 50), typed('b'), held(97, 36), held(29, 46), typed('c')]))).toBe(
			'a\nb\nc',
		);
		expect(charactersOf(held(54, 46))).toBe('C');
	});

	test('a hole in the events is seen in the text, and keys held at it and digits typed before it count no more [F1990]', () => {
		const hole = inputEvent(0, 3, 0);
		const [shift, alt] = [42, 56].map((code) => inputEvent(1, code, 1)) as [Uint8Array, Uint8Array];
		expect(charactersOf(join([typed('tr-abc'), shift, hole, typed('def\n')]))).toBe('tr-abc\ufffddef\n');
		const at = join([alt, stroke(77), stroke(75), inputEvent(1, 56, 0)]);
		expect(charactersOf(join([alt, stroke(77), hole, at, typed('x')]))).toBe('\ufffd@x');
	});

	test('binary garbage never throws, and what is kept of it stays small', () => {
		fc.assert(
			fc.property(fc.array(fc.uint8Array({ maxLength: 500 })), (chunks) => {
				let keyboard = NO_KEYS;
				for (const chunk of chunks) ({ keyboard } = takeEvents(keyboard, chunk));
				expect(keyboard.rest.length).toBeLessThan(24);
				expect(keyboard.altDigits.length).toBeLessThanOrEqual(5);
			}),
		);
	});
});
