import { execFile } from 'node:child_process';
import { resolve } from 'node:path';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';

/** As often as a device with a bad line loses its channel in years; CI has less time. */
const TIMES = process.env['FAULTS'] === 'short' ? 1000 : 10_000;

test(`${TIMES} reconnects leave no timer, listener or descriptor behind, and at most 5 % more memory [F034]`, {
	timeout: 600_000,
}, async () => {
	const program = resolve(import.meta.dirname, 'reconnect-loop.ts');
	const { stdout } = await promisify(execFile)(process.execPath, ['--expose-gc', program, String(TIMES)]);
	const { reconnects, early, late } = JSON.parse(stdout);
	expect(reconnects).toBe(TIMES);
	const { heapBytes: heapBefore, ...heldBefore } = early;
	const { heapBytes, ...held } = late;
	for (const [name, count] of Object.entries(held)) expect(count, name).toBeLessThanOrEqual(heldBefore[name] + 1);
	expect(heapBytes / heapBefore).toBeLessThan(1.05);
});
