import { expect, test } from 'vitest';
import { machineFigures } from '../../src/daemon/machine-figures.runner.ts';
import { createSteppedClock } from '../harness/stepped-clock.ts';

test('the figures of the machine are looked up once in five minutes, however often they are asked for [F1891]', async () => {
	const clock = createSteppedClock();
	let looks = 0;
	const figures = machineFigures('/', '/', clock, async () => {
		looks += 1;
		if (looks === 2) throw new Error('gone');
		return true;
	});
	const [first, second] = await Promise.all([figures(), figures()]);
	clock.advance(300_000);
	expect([first, second, await figures()].map(({ scannerPresent }) => scannerPresent)).toEqual([true, true, true]);
	clock.advance(1);
	expect([(await figures()).scannerPresent, looks]).toEqual([null, 2]);
});
