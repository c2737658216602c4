/** Which ends of a channel speak for a second device with the same id. */
import { describe, expect, test } from 'vitest';
import { classifyClose } from '../../src/connection/classify-failure.ts';
import { asMeant } from '../../src/connection/evidence.ts';
import { type Cut, duplicateWarning, replacedBy } from '../../src/connection/recent-cuts.ts';

const SECOND = 1000;

/** Channels that lived for so many seconds, and ended with this code. @param apartS seconds from one end to the next. */
function cutsOf(
	code: number,
	lives: readonly number[],
	meaning: 'refused' | 'replaced' | 'retry' | null = null,
	apartS = 70,
): Cut[] {
	const failure = classifyClose({ code, reason: 'session taken', host: 'id.example' });
	const line = { withoutCloseFrame: code === 1006 };
	const closeCode = code === 1006 ? null : code;
	const ended = asMeant({ failure, closeCode, line }, meaning ? { [code]: meaning } : {});
	return lives.map((life, index) => ({
		atMs: apartS * SECOND * index,
		lifeMs: life * SECOND,
		cause: String(code),
		replaced: replacedBy(ended),
	}));
}
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
		expect(told(cutsOf(4409, [1, 4, 2, 9], null, 20), 100 * SECOND)).toBeNull();
	});

	test('is not where the code is an outage, nor where the line is cut', () => {
		expect(told(cutsOf(4008, [4, 12, 29], 'retry'))).toBeNull();
		for (const code of [1000, 1001, 1006, 1011, 1012]) expect(told(cutsOf(code, [4, 12, 29]))).toBeNull();
	});

	test('is certain enough after equal times where the service says that another channel took the place', () => {
		expect(told(cutsOf(4409, [20, 20, 20]))).toBe('duplicate-device');
		expect(told(cutsOf(4100, [20, 20, 20], 'replaced'))).toBe('duplicate-device');
	});

	test('is likely after five short channels in turn without a word, unless something else explains them', () => {
		const turns = cutsOf(1006, [17, 28, 21, 25, 16, 29], null, 45).map((cut, index) => ({
			...cut,
			atMs: cut.atMs + 3000 * (index % 3),
		}));
		const nowMs = 240 * SECOND;
		expect(told(turns, nowMs)).toBe('duplicate-device');
		expect(told(turns.slice(2), nowMs)).toBeNull();
		const unlike = (change: Partial<Cut>) => turns.map((cut, index) => (index === 3 ? { ...cut, ...change } : cut));
		for (const change of [{ hindered: true }, { lifeMs: 36 * SECOND }, { replaced: null }])
			expect(told(unlike(change), nowMs)).toBeNull();
		expect(
			told(
				turns.map((cut) => ({ ...cut, silenceMs: 15 * SECOND })),
				nowMs,
			),
		).toBeNull();
	});
});
