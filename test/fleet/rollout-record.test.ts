import { describe, expect, test } from 'vitest';
import { gapIn, NO_RECORD, type Signing } from '../../src/fleet/rollout-record.ts';

/** Each after the one before it. */
const signed: Signing[] = Array.from({ length: 100 }, (_, revision) => ({
	...{ epoch: 0, revision, digest: `${revision}`, previous: null, at: '2026-01-01T00:00:00Z', rings: {}, moves: [] },
	after: revision === 0 ? null : `${revision - 1}`,
}));
const gap = (...those: (Signing | undefined)[]) =>
	gapIn({ ...NO_RECORD, signed: those.filter((one) => one !== undefined) })?.revision;

describe('the gap in a record', () => {
	test('is none where a long one has lost its oldest signings, and one after what was not published [F1747]', () => {
		const [, one, two, three, ...others] = signed;
		expect(gap(...signed)).toBeUndefined();
		expect(gap(...others)).toBeUndefined();
		// The second was never published: the third follows the first as well, and that one has gone.
		expect(gap(two, { ...three, after: one?.digest } as Signing, ...others)).toBeUndefined();
		expect(gap(one, three, ...others)).toBe(3);
	});

	test('is none between signings of an earlier version, which name none [F1748]', () => {
		const [one, two, three] = signed.map(({ after: _, ...plain }) => plain);
		expect(gap(one, three, two, signed[2])).toBe(2);
		expect(gap(two, one, two, three)).toBeUndefined();
	});
});
