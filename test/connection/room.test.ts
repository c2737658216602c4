/** A service that permits one channel of a device, on virtual time: how long a renewal and a move cost, however the second one is refused. */
import { describe, expect, test } from 'vitest';
import { failure } from '../../src/base/errors.ts';
import { createWorld, SAVED, type VirtualChannel } from './virtual-channels.ts';

const MINUTE = 60_000;
const OCCUPIED = failure('channel-occupied', '409.');
const SEEDS = Array.from({ length: 10 }, (_, index) => index + 1);

/** Refuses a second channel: with 409, or by ending it after so long, before which it answers or not. */
type Refusal = '409' | { readonly code: number; readonly afterMs: number; readonly isMute: boolean };

/** @param freedMs how long the place is held after the goodbye of a channel. */
function givenDevice(seed: number, refusal: Refusal, freedMs: number, hasKey = true) {
	const world = createWorld(seed);
	let holder: VirtualChannel | null = null;
	let refused = 0;
	const device = world.device(hasKey, {
		handshake(channel) {
			if (!holder) {
				holder = channel;
				return null;
			}
			refused += 1;
			if (refusal === '409') return OCCUPIED;
			if (refusal.isMute) channel.mute();
			world.later(refusal.afterMs, () => channel.end(refusal.code));
			return null;
		},
		closed(channel) {
			world.later(freedMs, () => {
				if (holder === channel) holder = null;
			});
		},
	});
	device.begin(0);
	world.run(5 * MINUTE);
	return { world, device, refused: () => refused };
}

const CHANGES = ['renews', 'moves'] as const;
function change(device: ReturnType<typeof givenDevice>['device'], how: (typeof CHANGES)[number]): void {
	if (how === 'renews') device.renew();
	else device.move('w2');
}

const CODES = [1000, 1001, 1002, 1005, 1006, 1008, 1011, 4000, 4001, 4401, 4409];
const REFUSALS: readonly Refusal[] = [
	'409',
	...CODES.flatMap((code) =>
		[20, 400, 1000, 1400].flatMap((afterMs) => [true, false].map((isMute) => ({ code, afterMs, isMute }))),
	),
];

describe.each(CHANGES)('a device that %s where the service permits one channel', (how) => {
	test.each(REFUSALS)('is offline for less than 3 s where a second one meets %j [F692]', (refusal) => {
		for (const freedMs of [0, 300, 1500])
			for (const hasKey of [true, false])
				for (const seed of SEEDS) {
					const { world, device } = givenDevice(seed, refusal, freedMs, hasKey);
					const before = device.supervision.current?.generation;
					change(device, how);
					world.run(6 * MINUTE);
					const { current, next } = device.supervision;
					const seen = {
						generation: current?.generation === before,
						next: next?.state.name,
						state: current?.state.name,
					};
					const which = `freed ${freedMs}, key ${hasKey}, seed ${seed}`;
					expect.soft(seen, which).toEqual({ generation: false, next: undefined, state: 'online' });
					expect.soft(device.offlineMs(), which).toBeLessThan(3000);
				}
	});

	test.each([...REFUSALS, { code: 1013, afterMs: 20, isMute: true }, { code: 4003, afterMs: 20, isMute: false }])(
		'gets a place that is held for longer soon after the moment at which it is free, where it meets %j [F654]',
		(refusal) => {
			for (const freedMs of [4500, 6000, 20_000, 60_000])
				for (const seed of SEEDS) {
					const { world, device } = givenDevice(seed, refusal, freedMs);
					const before = device.supervision.current?.generation;
					change(device, how);
					world.run(10 * MINUTE);
					expect.soft(device.supervision.current?.generation, `freed ${freedMs}, seed ${seed}`).not.toBe(before);
					expect.soft(device.supervision.current?.state.name).toBe('online');
					const limitMs = freedMs < 10_000 ? 6000 : refusal === '409' ? 31_000 : 60_000;
					expect.soft(device.offlineMs() - freedMs, `freed ${freedMs}, seed ${seed}`).toBeLessThan(limitMs);
				}
		},
	);
});

/** @param isRefused whether the service ends a fresh channel that long after it has opened. */
function givenRefusing(seed: number, code: number, afterMs: number, isRefused: (channel: VirtualChannel) => boolean) {
	const world = createWorld(seed);
	const upgradesMs: number[] = [];
	const device = world.device(seed % 2 === 0, {
		handshake(channel) {
			upgradesMs.push(world.now());
			if (isRefused(channel)) world.later(afterMs, () => channel.end(code));
			return null;
		},
	});
	device.begin(0);
	world.run(5 * MINUTE);
	upgradesMs.length = 0;
	return { world, device, upgradesMs };
}

/** Whether the Connection that the device is online with is the one that it began with; `null` while it is offline. */
const isOld = ({ supervision: { current } }: ReturnType<typeof givenRefusing>['device']) =>
	current?.state.name === 'online' ? current.state.connection.token === SAVED : null;

const ENDS = [1006, 1008, 1011, 4000, 4409].flatMap((code) => [0, 200].map((afterMs) => [code, afterMs] as const));
const CASES = CHANGES.flatMap((how) => ENDS.map((end) => [how, ...end] as const));

describe.each(CASES)('a device that %s and whose fresh channels end with %i after %i ms', (how, code, afterMs) => {
	test('stays online with the old Connection, and tries the new one beside it [F1110]', () => {
		for (const seed of SEEDS) {
			const { world, device, upgradesMs } = givenRefusing(seed, code, afterMs, ({ isFresh }) => isFresh);
			change(device, how);
			world.run(5 * MINUTE + 20_000);
			expect.soft(isOld(device), `seed ${seed}`).toBe(true);
			expect.soft(upgradesMs.length, `seed ${seed}`).toBeLessThanOrEqual(10);
			world.run(9 * MINUTE);
			expect.soft(device.offlineMs(), `seed ${seed}`).toBeLessThan(3500);
			expect.soft(upgradesMs.length, `seed ${seed}`).toBeLessThanOrEqual(24);
		}
	});

	test('because every channel is ended so does not hurry, and is through within a minute after that [F1111]', () => {
		for (const seed of SEEDS) {
			let isBad = false;
			const { world, device, upgradesMs } = givenRefusing(seed, code, afterMs, () => isBad);
			isBad = true;
			change(device, how);
			world.run(5 * MINUTE + 20_000);
			expect.soft(upgradesMs.length, `seed ${seed}`).toBeLessThanOrEqual(13);
			isBad = false;
			world.run(6 * MINUTE + 20_000);
			expect.soft(isOld(device), `seed ${seed}`).toBe(false);
		}
	});
});

test('a service that ends the new channel 2.5 s after a move, as one that restarts does, is not told to permit one channel only [F1407]', () => {
	for (const code of [1001, 1006]) {
		const { world, device } = givenRefusing(1, code, 2500, ({ isFresh }) => isFresh);
		change(device, 'moves');
		const told = new Set<string>();
		for (let ms = 0; ms < 10_000; ms += 100) {
			world.run(5 * MINUTE + ms);
			for (const link of [device.supervision.current, device.supervision.next])
				if (link && 'failure' in link.state && link.state.failure) told.add(link.state.failure.message);
		}
		expect([...told].filter((message) => message.includes('may permit one channel'))).not.toEqual([]);
		expect([...told].filter((message) => message.includes('permits one channel'))).toEqual([]);
	}
});

test('a channel that is ended with a private code is told by that code, and one that the service names as the second by that [F1112]', () => {
	for (const [code, said] of [
		[4000, /closed the channel with 4000.* may permit one channel/],
		[4409, /4409/],
	] as const)
		for (const how of CHANGES)
			for (const afterMs of [0, 200]) {
				const { world, device } = givenRefusing(1, code, afterMs, ({ isFresh }) => isFresh);
				change(device, how);
				world.run(5 * MINUTE + 1000);
				const told = [device.supervision.current, device.supervision.next].flatMap((link) =>
					link && 'failure' in link.state && link.state.failure ? [link.state.failure] : [],
				);
				expect(told).not.toEqual([]);
				for (const { message, remedy } of told) {
					expect(message).toMatch(said);
					if (code === 4000) expect(remedy).not.toMatch(/still holds another channel/);
				}
			}
});
