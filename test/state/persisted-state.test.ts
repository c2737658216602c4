import { expect, test } from 'vitest';
import { AgentError, type Failure } from '../../src/base/errors.ts';
import { keepDates } from '../../src/state/dates.runner.ts';
import { type DeviceState, EMPTY_STATE } from '../../src/state/device-state.ts';
import { keepPersistedState } from '../../src/state/persisted-state.runner.ts';
import { createSteppedClock } from '../harness/stepped-clock.ts';

function given() {
	const clock = createSteppedClock();
	const saves: DeviceState[] = [];
	const store = { save: async (saved: DeviceState) => void saves.push(saved) };
	return { clock, saves, state: keepPersistedState(EMPTY_STATE, store, clock, () => {}) };
}

const settled = () => new Promise((resolve) => setImmediate(resolve));

test('what changes while a save is under way is saved together after it, and with the end at once [F1049]', async () => {
	const clock = createSteppedClock();
	const saves: (string | null)[] = [];
	let finish = () => {};
	const store = {
		save(saved: DeviceState) {
			saves.push(saved.generatedId);
			return new Promise<void>((resolve) => {
				finish = resolve;
			});
		},
	};
	const state = keepPersistedState(EMPTY_STATE, store, clock, () => {});
	for (let change = 1; change <= 100; change += 1) state.keep(called(`change-${change}`));
	expect(saves).toEqual(['change-1']);
	finish();
	await settled();
	expect(saves).toEqual(['change-1', 'change-100']);
	state.keep(called('last'));
	state.close();
	expect(saves.at(-1)).toBe('last');
	finish();
	await settled();
	expect(saves).toHaveLength(3);
});

const called = (generatedId: string) => (state: DeviceState) => ({ ...state, generatedId });

test('a flood of wishes is saved once a second, the first at once and the last in any case', async () => {
	const { clock, saves, state } = given();
	for (let wish = 1; wish <= 1000; wish += 1) {
		state.keepPaced(called(`wish-${wish}`));
		clock.advance(16);
		await settled();
	}
	expect(saves[0]?.generatedId).toBe('wish-1');
	expect(saves.length).toBeLessThanOrEqual(17);
	clock.advance(1000);
	await settled();
	expect(saves.at(-1)?.generatedId).toBe('wish-1000');
	expect(clock.pending).toBe(0);
});

test('a wish that waits goes along with any other save, and with the end', async () => {
	const { clock, saves, state } = given();
	state.keepPaced(called('first'));
	state.keepPaced(called('second'));
	state.keep((before) => ({ ...before, serviceTimeMs: 1 }));
	await settled();
	expect(saves.at(-1)).toMatchObject({ generatedId: 'second', serviceTimeMs: 1 });
	expect(clock.pending).toBe(0);
	state.keepPaced(called('third'));
	state.close();
	expect(saves.at(-1)).toMatchObject({ generatedId: 'third' });
	expect(clock.pending).toBe(0);
});

/** A disk that fails while it is told to. */
function givenDisk(isUnwritable = false) {
	const clock = createSteppedClock();
	const saves: { state: DeviceState; forgetsOlder: boolean | undefined }[] = [];
	const told: (string | null)[] = [];
	const disk = { fails: false };
	const store = {
		async save(state: DeviceState, options?: { forgetsOlder?: boolean }) {
			if (disk.fails) throw new AgentError('state-unwritable', 'Full.');
			saves.push({ state, forgetsOlder: options?.forgetsOlder });
		},
	};
	const onSaved = (failure: Failure | null) => void told.push(failure?.code ?? null);
	const state = keepPersistedState(EMPTY_STATE, store, clock, onSaved, isUnwritable);
	return { clock, saves, told, disk, state, settled };
}

test('a disk that took nothing at the start is tried again although nothing changes, until it takes the state [F1318]', async () => {
	const { clock, saves, told, disk, settled } = givenDisk(true);
	disk.fails = true;
	clock.advance(60_000);
	await settled();
	expect({ told, pending: clock.pending }).toEqual({ told: ['state-unwritable'], pending: 1 });
	disk.fails = false;
	clock.advance(60_000);
	await settled();
	expect({ saved: saves.length, last: told.at(-1), pending: clock.pending }).toEqual({
		saved: 1,
		last: null,
		pending: 0,
	});
});

test('what has happened anyway is saved as soon as the disk takes it, and the trouble is told until then', async () => {
	const { clock, saves, told, disk, state, settled } = givenDisk();
	disk.fails = true;
	state.keep(called('a'));
	await settled();
	expect(state.state.generatedId).toBe('a');
	expect({ told, pending: clock.pending }).toEqual({ told: ['state-unwritable'], pending: 1 });
	clock.advance(60_000);
	await settled();
	expect(told.length).toBeGreaterThan(1);
	expect(new Set(told)).toEqual(new Set(['state-unwritable']));
	expect(clock.pending).toBe(1);
	disk.fails = false;
	clock.advance(60_000);
	await settled();
	expect(saves.at(-1)?.state.generatedId).toBe('a');
	expect({ last: told.at(-1), pending: clock.pending }).toEqual({ last: null, pending: 0 });
});

test('what failed is not tried once more when another save has taken it along', async () => {
	const { clock, saves, disk, state, settled } = givenDisk();
	disk.fails = true;
	state.keep(called('a'));
	await settled();
	disk.fails = false;
	state.keep((before) => ({ ...before, serviceTimeMs: 1 }));
	await settled();
	expect(saves.map((saved) => saved.state)).toMatchObject([{ generatedId: 'a', serviceTimeMs: 1 }]);
	expect(clock.pending).toBe(0);
});

test('a change that changes nothing is not saved', async () => {
	const { saves, state, settled } = givenDisk();
	state.keep((before) => before);
	await settled();
	expect(saves).toEqual([]);
});

test('what is only meant to happen if it can be saved is taken back, unless something else has changed since', async () => {
	const { saves, told, disk, state, settled } = givenDisk();
	state.stampWith((changed) => ({ ...changed, serviceTimeMs: 5 }));
	disk.fails = true;
	await expect(state.record(called('a'))).rejects.toMatchObject({ code: 'state-unwritable' });
	expect(state.state).toEqual(EMPTY_STATE);
	const recording = state.record(called('b'));
	state.keep((before) => ({ ...before, confirmedOrigins: ['https://id.example'] }));
	await expect(recording).rejects.toMatchObject({ code: 'state-unwritable' });
	await settled();
	expect(state.state).toMatchObject({ generatedId: 'b', confirmedOrigins: ['https://id.example'] });
	disk.fails = false;
	await state.record(called('c'));
	expect(saves.at(-1)?.state).toMatchObject({ generatedId: 'c', serviceTimeMs: 5 });
	expect(told.at(-1)).toBeNull();
	state.stampWith((changed) => ({ ...changed, serviceTimeMs: 9 }));
	await state.record((before) => before);
	expect(state.state).toMatchObject({ generatedId: 'c', serviceTimeMs: 5 });
});

test('what is forgotten is gone from older copies as well, however often that has to be tried, and only once', async () => {
	const { clock, saves, disk, state, settled } = givenDisk();
	await state.record(called('a'));
	disk.fails = true;
	await expect(state.forget(EMPTY_STATE)).rejects.toMatchObject({ code: 'state-unwritable' });
	expect(state.state).toEqual(EMPTY_STATE);
	disk.fails = false;
	clock.advance(60_000);
	await settled();
	state.keep(called('b'));
	await settled();
	expect(saves.map(({ forgetsOlder }) => forgetsOlder)).toEqual([false, true, false]);
	expect(clock.pending).toBe(0);
});

test('once it is closed nothing is tried again', async () => {
	const { clock, disk, state, settled } = givenDisk();
	disk.fails = true;
	state.keep(called('a'));
	await settled();
	state.close();
	expect(clock.pending).toBe(0);
	state.keep(called('b'));
	state.keepPaced(called('c'));
	state.keepPaced(called('d'));
	await settled();
	expect(clock.pending).toBe(0);
});

test('what was so before a start is so since then, and since now once it has ended or a minute has passed [F1996]', () => {
	const { clock, state } = given();
	const first = keepDates(clock, state);
	const since = ['same', 'ended', 'late'].map((key) => first.begin(key));
	clock.advance(1000);
	const next = keepDates(clock, state);
	expect(next.begin('same')).toBe(since[0]);
	next.end('ended');
	const now = new Date(clock.wallMs()).toISOString();
	expect(next.begin('ended')).toBe(now);
	clock.advance(60_000);
	expect(next.begin('late')).toBe(new Date(clock.wallMs()).toISOString());
	expect([next.begin('same'), next.begin('ended')]).toEqual([since[0], now]);
});
