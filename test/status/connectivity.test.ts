/** Where an outage begins, by what was heard, and what the log says of it: one line each, no more. */
import { describe, expect, test } from 'vitest';
import { failure } from '../../src/base/errors.ts';
import type { Link, Registration, Supervision } from '../../src/connection/supervisor.ts';
import type { Incoming } from '../../src/events/event.ts';
import { type DeviceState, EMPTY_STATE } from '../../src/state/device-state.ts';
import { trackConnectivity } from '../../src/status/connectivity.runner.ts';
import { createSteppedClock } from '../harness/stepped-clock.ts';

const REGISTRATION: Registration = {
	credentialId: 'key',
	baseUrl: 'https://id.example',
	request: { deviceId: 'd', workflowId: 'check-in' },
};
const CUT = failure('connection-lost', 'The connection was cut.');
const WAITING = { name: 'waiting', failure: CUT } as unknown as Link['state'];
const BLOCKED = {
	name: 'blocked',
	failure: failure('credential-refused', 'The key is refused.'),
} as unknown as Link['state'];
const ONLINE = { name: 'online' } as unknown as Link['state'];

function given({ silenceLimitMs = 60_000, newestAt = null as string | null, wasStopped = false } = {}) {
	const clock = createSteppedClock(Date.UTC(2026, 0, 1));
	const gaps: { from: string | null; to: string }[] = [];
	const workflows: (string | null)[] = [];
	const lines: string[] = [];
	const kept: DeviceState[] = [];
	const fields: object[] = [];
	const line = (text: string, more: object) => {
		lines.push(text);
		fields.push(more);
	};
	const connectivity = trackConnectivity({
		dates: { begin: () => new Date(clock.wallMs()).toISOString(), end() {} },
		clock,
		log: { debug() {}, info: line, warn: line, error: line } as never,
		events: {
			append({ type, content, workflowId }: Incoming) {
				if (type === 'gap') gaps.push(JSON.parse(content));
				if (type === 'gap') workflows.push(workflowId);
				return true;
			},
			appendedId: null,
			newest: () => 'e-1',
			newestAt: () => newestAt,
		},
		stateWriter: {
			state: { ...EMPTY_STATE, stoppedAfter: wasStopped ? 'e-1' : null },
			keep: (change) => void kept.push(change(EMPTY_STATE)),
		},
		silenceLimitMs: () => silenceLimitMs,
	});
	let supervision: Supervision = { current: null, next: null } as Supervision;
	let generation = 0;
	return {
		clock,
		connectivity,
		gaps,
		kept,
		workflows,
		lines,
		fields,
		/** The link as it is from now on; a new one with `fresh`. */
		becomes(state: Link['state'], { fresh = false } = {}) {
			if (fresh || generation === 0) generation += 1;
			const before = supervision;
			supervision = { ...before, current: { generation, registration: REGISTRATION, state } as unknown as Link };
			connectivity.follow(before, supervision);
		},
		hear: (of = generation) => connectivity.heard(of),
		lineEnds: (sinceFrameMs: number, { isLeaving = false, saidGoodbye = false, sleptMs = 0 } = {}) =>
			connectivity.lineEnded(
				generation - (isLeaving ? 1 : 0),
				REGISTRATION,
				{ sinceFrameMs, saidGoodbye, sleptMs },
				isLeaving,
			),
	};
}

const at = (seconds: number) => new Date(Date.UTC(2026, 0, 1) + seconds * 1000).toISOString();

describe('a gap', () => {
	test('begins one silence limit before the cut was noticed, when nothing was heard since', () => {
		const { clock, gaps, becomes } = given();
		becomes(ONLINE);
		clock.advance(600_000);
		becomes(WAITING);
		clock.advance(5000);
		becomes(ONLINE);
		expect(gaps.slice(1)).toEqual([{ from: at(540), to: at(605) }]);
	});

	test('begins when the line was last heard, if that is longer ago than the limit', () => {
		const { clock, gaps, becomes, lineEnds } = given();
		becomes(ONLINE);
		clock.advance(600_000);
		lineEnds(200_000);
		becomes(WAITING);
		becomes(ONLINE);
		expect(gaps.slice(1)).toEqual([{ from: at(400), to: at(600) }]);
	});

	test('begins with the last that was heard, if that is less long ago', () => {
		const { clock, gaps, becomes, hear } = given();
		becomes(ONLINE);
		clock.advance(590_000);
		hear();
		clock.advance(10_000);
		becomes(WAITING);
		becomes(ONLINE);
		expect(gaps.slice(1)).toEqual([{ from: at(590), to: at(600) }]);
	});

	test('of a sleep is kept before what waited in the socket meanwhile, and begins before any line can have died unnoticed', () => {
		const { clock, gaps, becomes, hear } = given();
		becomes(ONLINE);
		clock.advance(590_000);
		hear();
		clock.advance(2000);
		clock.sleep(7_200_000);
		hear();
		hear();
		expect(gaps.slice(1)).toEqual([{ from: at(590 - 67), to: at(7792) }]);
		clock.advance(8000);
		becomes(WAITING);
		becomes(ONLINE);
		expect(gaps.slice(2)).toEqual([{ from: at(7792), to: at(7800) }]);
	});

	test('of a sleep is kept at a move, and none when the machine has not slept', () => {
		const { clock, gaps, becomes, hear } = given();
		becomes(ONLINE);
		hear();
		clock.setWall(clock.wallMs() + 3_600_000);
		becomes(ONLINE, { fresh: true });
		expect(gaps).toHaveLength(1);
		clock.sleep(6000);
		becomes(ONLINE, { fresh: true });
		expect(gaps).toHaveLength(2);
	});

	test('begins with the last that was heard where silence may go on for any time', () => {
		const { clock, gaps, becomes } = given({ silenceLimitMs: 0 });
		becomes(ONLINE);
		clock.advance(600_000);
		becomes(WAITING);
		becomes(ONLINE);
		expect(gaps.slice(1)).toEqual([{ from: at(0), to: at(600) }]);
	});

	test('begins with what an earlier run received last; after a crash before any line can have died unnoticed; without any event, at no known time', () => {
		const again = given({ newestAt: at(-3600), wasStopped: true });
		again.becomes(ONLINE);
		expect(again.gaps).toEqual([{ from: at(-3600), to: at(0) }]);
		const crashed = given({ newestAt: at(-3600) });
		crashed.becomes(ONLINE);
		crashed.connectivity.stopped();
		expect(crashed.kept.map(({ stoppedAfter }) => stoppedAfter)).toEqual(['e-1']);
		expect(crashed.gaps).toEqual([{ from: at(-3600 - 67), to: at(0) }]);
		const patient = given({ newestAt: at(-3600), silenceLimitMs: 0 });
		patient.becomes(ONLINE);
		expect(patient.gaps).toEqual([{ from: null, to: at(0) }]);
		const first = given();
		first.becomes(ONLINE);
		expect(first.gaps).toEqual([{ from: null, to: at(0) }]);
	});

	test('of a line that another has replaced begins when it was last heard, its sleep included, and ends where the other began', () => {
		const { clock, gaps, workflows, becomes, lineEnds } = given();
		becomes(ONLINE);
		clock.advance(100_000);
		becomes(ONLINE, { fresh: true });
		clock.advance(20_000);
		lineEnds(50_000, { isLeaving: true, sleptMs: 10_000 });
		expect(gaps.slice(1)).toEqual([{ from: at(60), to: at(120) }]);
		expect(workflows).toEqual(['check-in', 'check-in']);
	});

	test('is not made shorter by what comes on the line that another has replaced', () => {
		const { clock, gaps, becomes, hear } = given();
		becomes(ONLINE);
		becomes(ONLINE, { fresh: true });
		clock.advance(590_000);
		hear(1);
		clock.advance(10_000);
		becomes(WAITING);
		becomes(ONLINE);
		expect(gaps.slice(1)).toEqual([{ from: at(540), to: at(600) }]);
	});

	test('of a new line that ends before the device was online with it begins when it was last heard', () => {
		const { clock, gaps, becomes, connectivity } = given();
		becomes(ONLINE);
		clock.advance(100_000);
		connectivity.lineEnded(2, REGISTRATION, { sinceFrameMs: 2000, saidGoodbye: false, sleptMs: 0 }, false);
		expect(gaps.slice(1)).toEqual([{ from: at(98), to: at(100) }]);
	});

	test('is none for a replaced line that has said goodbye', () => {
		const { gaps, becomes, lineEnds } = given();
		becomes(ONLINE);
		lineEnds(50_000, { isLeaving: true, saidGoodbye: true });
		expect(gaps).toHaveLength(1);
	});

	test('of another pairing does not reach back into the one before', () => {
		const { clock, gaps, connectivity, becomes } = given({ newestAt: at(-3600) });
		connectivity.forget();
		clock.advance(1000);
		becomes(ONLINE);
		expect(gaps).toEqual([{ from: null, to: at(1) }]);
	});
});

describe('the log', () => {
	test('has one line for an outage, one more when a person is needed, and one when it is over', () => {
		const { clock, lines, fields, becomes, connectivity } = given();
		becomes(ONLINE);
		for (let tries = 0; tries < 3; tries += 1) becomes(WAITING);
		for (let tries = 0; tries < 2; tries += 1) becomes(BLOCKED);
		becomes(WAITING);
		clock.advance(120_000);
		becomes(ONLINE);
		expect(lines).toEqual([
			'online',
			'offline: The connection was cut.',
			expect.stringMatching(/^still offline, and a person is needed: The key is refused\. ./),
			'online again after 2 min',
		]);
		const where = { workflowId: 'check-in', host: 'id.example' };
		const codes = ['connection-lost', 'credential-refused'].map((code) => ({ code, ...where }));
		expect(fields).toEqual([where, ...codes, where]);
		expect(connectivity.facts).toMatchObject({ reconnects: 1, offlineSinceMs: null, hasBeenOnline: true });
	});

	test('has one more line for each other cause, however often they alternate [F609]', () => {
		const { lines, becomes } = given();
		const other = failure('dns-failed', 'The name cannot be resolved.');
		const NO_NAME = { name: 'waiting', failure: other } as unknown as Link['state'];
		becomes(ONLINE);
		for (let tries = 0; tries < 3; tries += 1) for (const state of [WAITING, NO_NAME]) becomes(state);
		becomes(ONLINE);
		becomes(WAITING);
		expect(lines).toEqual([
			'online',
			'offline: The connection was cut.',
			'still offline: The name cannot be resolved.',
			'online again after 0 s',
			'offline: The connection was cut.',
		]);
	});

	test('says of a device that was never online that it is not online yet', () => {
		const { lines, becomes } = given();
		becomes({ name: 'connecting' } as unknown as Link['state']);
		becomes(WAITING);
		expect(lines).toEqual(['not online yet: The connection was cut.']);
	});

	test('has one line for moves that are asked for too fast, and another once one of them was made', () => {
		const { lines, connectivity } = given();
		const tooOften = {
			name: 'waiting',
			failure: failure('registering-too-often', 'Too often.'),
		} as unknown as Link['state'];
		const link = (generation: number, state: Link['state']) =>
			({ generation, registration: REGISTRATION, state }) as unknown as Link;
		let before = { current: null, next: null } as Supervision;
		const become = (current: Link, next: Link | null) => {
			const after = { ...before, current, next };
			connectivity.follow(before, after);
			before = after;
		};
		become(link(1, ONLINE), null);
		for (const generation of [2, 3]) become(link(1, ONLINE), link(generation, tooOften));
		become(link(3, ONLINE), null);
		for (const generation of [4, 5]) become(link(3, ONLINE), link(generation, tooOften));
		expect(lines).toEqual([
			'online',
			'registering again does not succeed: Too often.',
			'moved over without being offline',
			'registering again does not succeed: Too often.',
		]);
	});

	test('begins anew with another pairing, and no gap reaches back before it [F1874]', () => {
		const { clock, gaps, lines, becomes, connectivity } = given();
		becomes(ONLINE);
		becomes(WAITING);
		connectivity.forget();
		becomes(WAITING);
		expect(lines.slice(1)).toEqual(['offline: The connection was cut.', 'not online yet: The connection was cut.']);
		clock.advance(600_000);
		becomes(ONLINE);
		expect(gaps.at(-1)).toEqual({ from: null, to: at(600) });
	});
});
