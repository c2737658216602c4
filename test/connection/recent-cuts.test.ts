/** Which ends of a channel speak for a second device with the same id. */
import { describe, expect, test } from 'vitest';
import { classifyClose } from '../../src/connection/classify-close.ts';
import { asMeant } from '../../src/connection/evidence.ts';
import {
	type Cut,
	causeOf,
	cutsWarning,
	duplicateWarning,
	replacedBy,
	withCut,
} from '../../src/connection/recent-cuts.ts';

const SECOND = 1000;

/** Channels that lived for so many seconds, and ended with this code. @param apartS seconds from one end to the next. */
function cutsOf(
	code: number,
	lives: readonly number[],
	meaning: 'refused' | 'replaced' | 'retry' | null = null,
	apartS = 70,
	reason = 'session taken',
): readonly Cut[] {
	const failure = classifyClose({ code, reason, host: 'id.example' });
	const line = { withoutCloseFrame: code === 1006 };
	const closeCode = code === 1006 ? null : code;
	const ended = asMeant({ failure, closeCode, line }, meaning ? { [code]: meaning } : {});
	return remembered(
		lives.map((life, index) => ({
			atMs: apartS * SECOND * index,
			lifeMs: life * SECOND,
			cause: String(code),
			replaced: replacedBy(ended),
		})),
	);
}
const remembered = (cuts: readonly Cut[]) => cuts.reduce<readonly Cut[]>(withCut, []);
const told = (cuts: readonly Cut[], nowMs = 200 * SECOND) => duplicateWarning(cuts, null, nowMs)?.code ?? null;

describe('a second device with the same id', () => {
	test.each([4008, 4999, 1008, 4401])(
		'is likely where %i ends channels soon after each wait of the other [F621]',
		(code) => {
			expect(told(cutsOf(code, [4, 12, 29]))).toBe('duplicate-device');
			expect(told(cutsOf(code, [4, 12]))).toBeNull();
			expect(told(cutsOf(code, [4, 12, 29]), 1000 * SECOND)).toBeNull();
		},
	);

	test.each([4008, 1008])(
		'is not where %i limits the life of a channel, refuses fresh ones, or ends a long session',
		(code) => {
			for (const life of [0.1, 20, 60]) expect(told(cutsOf(code, [life, life, life + 1, life, life]))).toBeNull();
			expect(told(cutsOf(code, [130, 300, 190, 600]))).toBeNull();
		},
	);

	test('is not where all of it happens within two minutes: a place that is held for a killed device, a bad minute', () => {
		expect(told(cutsOf(4409, [1, 4, 2, 9], null, 20, 'replaced'), 100 * SECOND)).toBeNull();
	});

	test('is not where the code is an outage, nor where the line is cut', () => {
		expect(told(cutsOf(4008, [4, 12, 29], 'retry'))).toBeNull();
		for (const code of [1000, 1001, 1006, 1011, 1012]) expect(told(cutsOf(code, [4, 12, 29]))).toBeNull();
	});

	test('is certain enough after equal times where the service says that another channel took the place', () => {
		expect(told(cutsOf(4409, [20, 20, 20], null, 70, 'replaced by another device'))).toBe('duplicate-device');
		expect(told(cutsOf(4100, [20, 20, 20], 'replaced'))).toBe('duplicate-device');
	});

	test('is not by 4409 alone, whatever its words are about, unless the waits of the other one speak for it', () => {
		for (const reason of ['', 'bye', 'conflict']) expect(told(cutsOf(4409, [4, 12, 29], null, 70, reason))).toBeNull();
	});

	describe('without a word of it', () => {
		const RAMP = [2, 3, 6, 12, 29, 17, 21, 26, 30];

		test.each([1000, 1001, 1006, 1011, 4409])(
			'is likely where %i ends channels after the growing waits of the other',
			(code) => {
				expect(told(cutsOf(code, [900, ...RAMP], null, 45), 480 * SECOND)).toBe('duplicate-device');
				expect(told(cutsOf(code, [1, 4, ...RAMP], null, 45), 500 * SECOND)).toBe('duplicate-device');
				expect(told(cutsOf(code, RAMP.slice(0, -1), null, 45), 480 * SECOND)).toBeNull();
			},
		);

		test('is not where anything else explains them', () => {
			const cuts = cutsOf(1000, RAMP, null, 45);
			const unlike = (change: Partial<Cut>) =>
				remembered(cuts.map((cut, index) => (index === 3 ? { ...cut, ...change } : cut)));
			for (const change of [{ hindered: true }, { lifeMs: 36 * SECOND }, { replaced: null }, { cause: '1006' }])
				expect(told(unlike(change), 480 * SECOND)).toBeNull();
			expect(told(cutsOf(1000, [17, 28, 21, 25, 16, 29, 18, 22, 27, 15], null, 45), 500 * SECOND)).toBeNull();
		});

		test('is not where a balancer ends channels in any manner, one of them a code of its own', () => {
			const mixed = [4000, 1000, 4000, 1006, 4000].flatMap((code, index) =>
				cutsOf(code, [4 * index + 3]).map((cut) => ({ ...cut, atMs: 45 * SECOND * index })),
			);
			expect(told(remembered(mixed))).toBeNull();
		});
	});

	test('is told no more once a channel lasts, where each was ended at once for minutes [F1289]', () => {
		const cuts = cutsOf(1008, Array(14).fill(0), null, 25);
		const atMs = 14 * 25 * SECOND;
		expect(duplicateWarning(cuts, null, atMs, atMs - 1000)?.code).toBe('duplicate-device');
		expect(duplicateWarning(cuts, null, atMs, atMs - 4000)).toBeNull();
	});

	test('is not where a place is held for eight minutes, and is after nine', () => {
		const heldFor = (minutes: number) => duplicateWarning([], { fromMs: 0, toMs: minutes * 60 * SECOND }, 0)?.code;
		expect(heldFor(8)).toBeUndefined();
		expect(heldFor(9)).toBe('duplicate-device');
	});
});

test('a cut is named by its close code, one without a code as well [F1560]', () => {
	for (const code of [1005, 1006, 1011, 4001]) {
		const ended = classifyClose({ code, reason: '', host: 'id.example' });
		expect(causeOf(ended, code === 1005 || code === 1006 ? null : code)).toBe(String(code));
	}
});

test('cuts by messages that cannot be taken send no one to the line [F1574]', () => {
	const cuts = (cause: string): Cut[] =>
		Array.from({ length: 9 }, (_, at) => ({ atMs: at * 1000, lifeMs: 500, cause }));
	expect(cutsWarning(cuts('poison-message'), 10_000, null)?.remedy).toMatch(
		/^The operator must look at what the service/,
	);
	expect(cutsWarning(cuts('1006'), 10_000, null)?.remedy).toMatch(/^Check the line/);
});
