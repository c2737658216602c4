/** Input at a terminal while a command waits for something else. */
import { PassThrough } from 'node:stream';
import { setImmediate } from 'node:timers/promises';
import { expect, test } from 'vitest';
import type { Shell } from '../../src/cli/output.runner.ts';
import { promptHidden, withoutInput } from '../../src/cli/prompts.runner.ts';

test.each([
	['works', () => Promise.resolve('paired')],
	['fails', () => Promise.reject(new Error('no'))],
])(
	'a second scan while a pairing is under way is neither shown nor left for the shell, whether it %s [F1254]',
	async (_what, end) => {
		const modes: boolean[] = [];
		const stdin = Object.assign(new PassThrough(), {
			isTTY: true,
			setRawMode: (mode: boolean) => void modes.push(mode),
		});
		const { promise: until, resolve: go } = Promise.withResolvers<void>();
		const work = withoutInput({ caller: { stdin } } as unknown as Shell, until.then(end), 'Look.').catch(() => {});
		expect(modes).toEqual([true]);
		stdin.write('https://id.example.com/mobile?authorization=Token%20tr-0123456789abcdef0123456789ab\r');
		await setImmediate();
		expect(stdin.readableLength).toBe(0);
		go();
		await work;
		expect(modes).toEqual([true, false]);
		expect([stdin.isPaused(), stdin.listenerCount('data')]).toEqual([true, 0]);
	},
);

test.each([
	['a wrong one\u0015tr-right\r', 'tr-right'],
	['tr-wrong\u007f\b\b\b\bright\n', 'tr-right'],
	['tr-right\rnot read', 'tr-right'],
])(
	'of what is typed at a hidden prompt, %j is one line, and the terminal is as before [F1879]',
	async (typed, line) => {
		const modes: boolean[] = [];
		const stdin = Object.assign(new PassThrough(), { setRawMode: (mode: boolean) => void modes.push(mode) });
		const reading = promptHidden({ caller: { stdin, stderr: new PassThrough() } } as unknown as Shell, 'Code: ', 100);
		stdin.write(typed);
		expect(await reading).toBe(line);
		expect([modes, stdin.isPaused(), stdin.listenerCount('data')]).toEqual([[true, false], true, 0]);
	},
);

test('of a text that is too long at a hidden prompt one character more is kept than may be: it is refused, not cut', async () => {
	const stdin = Object.assign(new PassThrough(), { setRawMode: () => {} });
	const reading = promptHidden({ caller: { stdin, stderr: new PassThrough() } } as unknown as Shell, 'Code: ', 100);
	stdin.write(`${'x'.repeat(150)}\r`);
	expect(await reading).toHaveLength(101);
});
