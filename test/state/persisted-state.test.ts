import { expect, test } from 'vitest';
import { type DeviceState, EMPTY_STATE } from '../../src/state/device-state.ts';
import { keepPersistedState } from '../../src/state/persisted-state.runner.ts';
import { createSteppedClock } from '../harness/stepped-clock.ts';

function given() {
	const clock = createSteppedClock();
	const saves: DeviceState[] = [];
	const store = { save: async (saved: DeviceState) => void saves.push(saved) };
	return { clock, saves, state: keepPersistedState(EMPTY_STATE, store, clock, () => {}) };
}

const called = (generatedId: string) => (state: DeviceState) => ({ ...state, generatedId });

test('a flood of wishes is saved once a second, the first at once and the last in any case', () => {
	const { clock, saves, state } = given();
	for (let wish = 1; wish <= 1000; wish += 1) {
		state.keepPaced(called(`wish-${wish}`));
		clock.advance(16);
	}
	expect(saves[0]?.generatedId).toBe('wish-1');
	expect(saves.length).toBeLessThanOrEqual(17);
	clock.advance(1000);
	expect(saves.at(-1)?.generatedId).toBe('wish-1000');
	expect(clock.pending).toBe(0);
});

test('a wish that waits goes along with any other save, and with the end', () => {
	const { clock, saves, state } = given();
	state.keepPaced(called('first'));
	state.keepPaced(called('second'));
	state.keep((before) => ({ ...before, serviceTimeMs: 1 }));
	expect(saves.at(-1)).toMatchObject({ generatedId: 'second', serviceTimeMs: 1 });
	expect(clock.pending).toBe(0);
	state.keepPaced(called('third'));
	state.close();
	expect(saves.at(-1)).toMatchObject({ generatedId: 'third' });
	expect(clock.pending).toBe(0);
});
