import { describe, expect, test } from 'vitest';
import {
	placesOfNext,
	shownBy,
	toldOfNext,
	withNextProven,
	withNextRefused,
} from '../../src/connection/next-connections.ts';
import { EMPTY_STATE, type SavedConnection } from '../../src/state/device-state.ts';

const URL = 'https://one.example';
const RIGHT = 'header:X-Next';
const WRONG = '/id';
const saved = (token: string, from?: string, worked?: boolean): SavedConnection => ({
	baseUrl: URL,
	request: { deviceId: 'K-1', workflowId: 'check-in' },
	credentialId: '',
	token,
	obtainedAt: '2026-11-29T08:00:00.000Z',
	...(from !== undefined && { from }),
	...(worked && { worked }),
});
const asked = (inForce: string | null, more: object = {}) => ({
	inForce,
	newest: inForce,
	mayRegister: false,
	...more,
});
const given = (...connections: SavedConnection[]) => ({ ...EMPTY_STATE, connections });
const proven = withNextProven(given(), URL, { token: 'a', from: RIGHT });

describe('the place of the next Connection', () => {
	test.each([
		['by the settings alone, at first', given(), asked(WRONG), [WRONG]],
		['first by what has opened channels', proven, asked(WRONG), [RIGHT, WRONG]],
		['without a setting, by what has opened channels', proven, asked(null), [RIGHT]],
		['nowhere, where a credential registers again', proven, asked(null, { mayRegister: true }), []],
		['in force before what is tried', given(), asked(RIGHT, { newest: WRONG }), [RIGHT, WRONG]],
		[
			'by none that is only tried, where one Connection is good for more channels',
			given(),
			asked(null, { newest: WRONG }),
			[],
		],
	])('is read %s', (_, state, how, places) => {
		expect(placesOfNext(state, URL, how)).toEqual(places);
		expect(placesOfNext(given(), URL, asked(null, { newest: WRONG }), WRONG)).toEqual([WRONG]);
	});

	test('of another service says nothing of this one', () => {
		expect(placesOfNext(proven, 'https://two.example', asked(WRONG))).toEqual([WRONG]);
	});

	test('that is as it was changes nothing, so that nothing is written', () => {
		expect(withNextProven(proven, URL, { token: 'b', from: RIGHT })).toBe(proven);
		expect(withNextProven(proven, URL, { token: 'registered', from: undefined })).toBe(proven);
		expect(withNextRefused(proven, URL, { token: 'registered', from: undefined })).toBe(proven);
	});

	test('is told after two of its Connections were refused, each counted once, and no more when one has opened a channel', () => {
		const refuse = (state: ReturnType<typeof given>, token: string) =>
			withNextRefused(state, URL, shownBy(state, token));
		let state = refuse(given(saved('a', undefined, true), saved('b', WRONG)), 'b');
		state = refuse(state, 'b');
		expect(toldOfNext(state, URL, asked(WRONG))).toBeNull();
		state = refuse({ ...state, connections: [saved('a', undefined, true), saved('c', WRONG)] }, 'c');
		expect(toldOfNext(state, URL, asked(WRONG))?.message).toContain(`what ${WRONG} names has opened no channel`);
		expect(toldOfNext(state, URL, asked(RIGHT))).toBeNull();
		state = withNextProven(state, URL, { token: 'd', from: WRONG });
		expect(toldOfNext(state, URL, asked(WRONG))).toBeNull();
	});

	test('whose refused Connection opens a channel later is right: spells in which the service refuses all do not add up [F1526]', () => {
		let state = proven;
		for (const token of ['b', 'c', 'd']) {
			state = { ...state, connections: [saved('a', undefined, true), saved(token, RIGHT)] };
			for (let times = 0; times < 2; times += 1) state = withNextRefused(state, URL, shownBy(state, token));
			state = withNextProven(state, URL, shownBy(state, token));
			expect(toldOfNext(state, URL, asked(RIGHT))).toBeNull();
			expect(placesOfNext(state, URL, asked(WRONG))).toEqual([RIGHT, WRONG]);
		}
	});

	test('is forgotten when two of its Connections are refused, and not for one that has opened a channel before', () => {
		let state = proven;
		for (const token of ['b', 'c']) state = withNextRefused(state, URL, { token, from: RIGHT });
		expect(placesOfNext(state, URL, asked(WRONG))).toEqual([WRONG]);
		const worked = { ...proven, connections: [saved('b', RIGHT, true)] };
		expect(withNextRefused(worked, URL, shownBy(worked, 'b'))).toBe(worked);
	});

	test('is not told to be another one while nothing has been read since', () => {
		const opened = { ...proven, connections: [saved('b', RIGHT, true)] };
		expect(toldOfNext(opened, URL, asked(WRONG))).toBeNull();
		const read = { ...opened, connections: [...opened.connections, saved('c', RIGHT)] };
		expect(toldOfNext(read, URL, asked(WRONG))?.message).toContain(`is ${WRONG} now`);
		expect(toldOfNext(read, URL, asked(null))?.message).toContain('is not set any more');
		expect(toldOfNext(read, URL, asked(null, { mayRegister: true }))).toBeNull();
	});
});
