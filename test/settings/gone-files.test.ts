import { expect, test } from 'vitest';
import { bearGone } from '../../src/settings/gone-files.ts';
import { createSteppedClock } from '../harness/stepped-clock.ts';

test('a file that is gone counts for a minute from when it went, and the config file for good [F1892]', () => {
	const clock = createSteppedClock();
	const over: number[] = [];
	const gone = bearGone('/config', clock, () => void over.push(clock.monotonicMs() - startMs));
	const startMs = clock.monotonicMs();
	const look = (...files: string[]) => {
		const borne = files.filter((file) => gone.bears(file));
		gone.looked();
		return borne;
	};
	expect(look('/config')).toEqual(['/config']);
	expect(clock.pending).toBe(0);
	expect(look('/config', '/a')).toEqual(['/config', '/a']);
	clock.advance(40_000);
	expect(look('/config', '/a', '/b')).toEqual(['/config', '/a', '/b']);
	clock.advance(20_000);
	expect([over, look('/config', '/a', '/b')]).toEqual([[60_000], ['/config', '/b']]);
	// One that is back, and goes again, has its minute once more.
	look('/config', '/a');
	clock.advance(50_000);
	expect([over, look('/config', '/a', '/b'), clock.pending]).toEqual([[60_000], ['/config', '/a', '/b'], 1]);
	gone.close();
	expect(clock.pending).toBe(0);
});
