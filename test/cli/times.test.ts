import { expect, test } from 'vitest';
import { readTime } from '../../src/cli/times.runner.ts';

test.each([
	['90s', 90_000],
	['30m', 1_800_000],
	['2h', 7_200_000],
	['3d', 259_200_000],
])('%s is so long ago [F1876]', (text, agoMs) => {
	const beforeMs = Date.now() - agoMs;
	const atMs = Date.parse(readTime('--since', text));
	expect(atMs).toBeGreaterThanOrEqual(beforeMs);
	expect(atMs).toBeLessThanOrEqual(Date.now() - agoMs);
});
