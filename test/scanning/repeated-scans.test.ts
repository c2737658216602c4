import { expect, test } from 'vitest';
import { failure } from '../../src/base/errors.ts';
import { AWAY_MS, isStillSeen, isWorthTelling, TELL_EVERY_MS } from '../../src/scanning/repeated-scans.ts';

const seen = { text: 'tr-one', atMs: 1000 };

test('a scanner that goes on reading the code before it says nothing new', () => {
	expect(isStillSeen(seen, 'tr-one', 999 + AWAY_MS)).toBe(true);
	expect(isStillSeen(seen, 'tr-one', 1000 + AWAY_MS)).toBe(false);
	expect(isStillSeen(seen, 'tr-two', 1000)).toBe(false);
	expect(isStillSeen(null, 'tr-one', 1000)).toBe(false);
});

test('a device that talks by itself is told of now and then, a pairing code every time', () => {
	const noise = failure('not-a-pairing-code', 'Some other text.');
	const refused = failure('code-expired-or-used', 'Used already.');
	expect(isWorthTelling(null, noise, 0)).toBe(true);
	expect(isWorthTelling({ code: 'not-a-pairing-code', atMs: 0 }, noise, TELL_EVERY_MS - 1)).toBe(false);
	expect(isWorthTelling({ code: 'not-a-pairing-code', atMs: 0 }, noise, TELL_EVERY_MS)).toBe(true);
	expect(isWorthTelling({ code: 'code-expired-or-used', atMs: 0 }, refused, 1)).toBe(true);
});
