import { describe, expect, test } from 'vitest';
import { planSchemaOf } from '../../src/fleet/plan-format.ts';
import {
	gapIn,
	NO_RECORD,
	readRecord,
	type Signing,
	versionsOrdered,
	withSigning,
} from '../../src/fleet/rollout-record.ts';

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

test('a record keeps the newest hundred signings, and of the parts that they have changed no more than can be read [F1842]', () => {
	const document = { format: 'idv-fleet-plan/1', revision: 100, spreadSeconds: 0 };
	const signing = { plan: planSchemaOf(document).parse(document), digest: '100' };
	const how = { previous: '99', at: '2026-01-02T00:00:00Z', moves: [], seal: () => [] };
	const before = { lobby: JSON.stringify({ comment: 'x'.repeat(1_000_000) }) };
	const long = { ...NO_RECORD, signed: signed.map((one) => ({ ...one, before })) };
	const record = withSigning(long, signing, { ...how, before });
	expect([record.signed.length, record.signed[0]?.digest, record.signed.at(-1)?.digest]).toEqual([100, '1', '100']);
	expect(record.signed.map((one) => one.before !== undefined).indexOf(true)).toBe(96);
	expect(readRecord(JSON.stringify(record))?.signed.length).toBe(100);
});

describe('the versions that were ordered for a device by now', () => {
	const at = (day: number) => `2026-01-0${day}T00:00:00Z`;
	const ring = (version: string, more: object = {}) => ({ percent: 100, agent: { version }, ...more });
	const entry = (day: number, rings: Signing['rings'], more: object = {}) =>
		({ ...signed[day], at: at(day), rings, ...more }) as Signing;
	const ordered = (rule: string | null, ...those: Signing[]) =>
		versionsOrdered({ ...NO_RECORD, signed: those }, Date.parse(at(9)))(rule, 'K-1');

	test.each<[string, readonly string[], readonly string[]]>([
		[
			'are not those of a plan that was never published',
			['1'],
			ordered(null, entry(1, { '': [ring('1')] }), entry(2, { '': [ring('2')] }, { isUnconfirmed: true })),
		],
		[
			'are also those of one that was not seen published, and that another one follows',
			['2', '1'],
			ordered(
				null,
				entry(1, { '': [ring('2')] }, { isUnconfirmed: true }),
				entry(2, { '': [ring('1')] }, { previous: '1' }),
			),
		],
		[
			'are not those of a ring that was left out before it began',
			['1', '3'],
			ordered(
				null,
				entry(1, { '': [ring('1'), ring('2', { startAt: at(4) })] }),
				entry(3, { '': [ring('3', { startAt: at(8) })] }),
			),
		],
		['are not those of a ring of other devices', [], ordered(null, entry(1, { '': [ring('1', { percent: 0.01 })] }))],
		[
			'are not those of a ring that a later one takes whole',
			['1'],
			ordered(null, entry(1, { '': [ring('2'), ring('1')] })),
		],
		['are those of the defaults for a rule without a rollout', ['1'], ordered('lobby', entry(1, { '': [ring('1')] }))],
		[
			'are not those of the defaults for a rule with a rollout',
			[],
			ordered('lobby', entry(1, { '': [ring('1')] }, { plainRings: { lobby: [{ percent: 1 }] } })),
		],
	])('%s [F1750]', (_, expected, found) => {
		expect(found).toEqual(expected);
	});
});
