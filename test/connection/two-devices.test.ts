/** What the ends of channels say of a second device with the same id: two devices on virtual time, and others that are alone. */
import { expect, test } from 'vitest';
import { createWorld, type VirtualChannel, type VirtualDevice, type VirtualWorld } from './virtual-channels.ts';
import { ANSWERS } from './virtual-fleet.ts';

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const CODES = [1000, 1001, 1002, 1005, 1006, 1008, 1011, 1012, 1013, 4001, 4401, 4409, 4999];
const SEEDS = Array.from({ length: 20 }, (_, index) => index + 1);

/** When the last of them has said within an hour that there is another one. */
function saidByAllMs(world: VirtualWorld, devices: readonly VirtualDevice[]): number {
	const silent = new Set(devices);
	const saidMs = world.run(60 * MINUTE, () => {
		for (const device of silent) if (device.says() === 'duplicate-device') silent.delete(device);
		return silent.size === 0;
	});
	return saidMs ?? Number.POSITIVE_INFINITY;
}

test.each(CODES)(
	'two devices whose service ends the older channel with %i both say so within 10 min [F690]',
	(code) => {
		for (const hasKey of [true, false])
			for (const seed of SEEDS) {
				const world = createWorld(seed);
				let holder: VirtualChannel | null = null;
				const handshake = (channel: VirtualChannel) => {
					const before = holder;
					holder = channel;
					if (before?.device !== channel.device) before?.end(code);
					return null;
				};
				const both = [world.device(hasKey, { handshake }), world.device(hasKey, { handshake })];
				const beginsMs = 5 * MINUTE * world.random();
				both[0]?.begin(0);
				both[1]?.begin(beginsMs);
				const minutes = (saidByAllMs(world, both) - beginsMs) / MINUTE;
				expect.soft(minutes, `key ${hasKey}, seed ${seed}`).toBeLessThan(10);
			}
	},
);

test.each(CODES.filter((code) => ![1001, 1012, 1013].includes(code)))(
	'two devices with an API key, each of whose registrations ends the channel of the other with %i and its Connection, both say so within 10 min [F1528]',
	(code) => {
		for (const seed of SEEDS) {
			const world = createWorld(seed);
			const channels = new Map<VirtualDevice, VirtualChannel>();
			let holder: VirtualDevice | null = null;
			const takes = (device: VirtualDevice) => {
				const before = holder;
				holder = device;
				if (before && before !== device) channels.get(before)?.end(code);
			};
			const service = {
				registered: takes,
				handshake(channel: VirtualChannel) {
					holder ??= channel.device;
					if (holder !== channel.device) return ANSWERS.unauthorized;
					channels.set(channel.device, channel);
					return null;
				},
			};
			const both = [world.device(true, service), world.device(true, service)];
			const beginsMs = 5 * MINUTE * world.random();
			both[0]?.begin(0);
			both[1]?.begin(beginsMs);
			const minutes = (saidByAllMs(world, both) - beginsMs) / MINUTE;
			expect.soft(minutes, `seed ${seed}`).toBeLessThan(10);
		}
	},
);

test.each([1000, 1008, 4000, 4001, 4409])(
	'the one of two devices whose channels the service ends at once with %i, because it keeps the older one, says so within 10 min [F668]',
	(code) => {
		for (const hasKey of [true, false])
			for (const seed of SEEDS) {
				const world = createWorld(seed);
				let holder: VirtualChannel | null = null;
				const handshake = (channel: VirtualChannel) => {
					if (holder && holder.device !== channel.device) world.later(20, () => channel.end(code));
					else holder = channel;
					return null;
				};
				const both = [world.device(hasKey, { handshake }), world.device(hasKey, { handshake })];
				both[0]?.begin(0);
				both[1]?.begin(MINUTE);
				const saidMs = world.run(60 * MINUTE, () => both[1]?.says() === 'duplicate-device');
				expect.soft((saidMs ?? Number.POSITIVE_INFINITY) / MINUTE, `key ${hasKey}, seed ${seed}`).toBeLessThan(11);
				expect.soft(both[0]?.says(), `key ${hasKey}, seed ${seed}`).toBeNull();
			}
	},
);

test.each([1000, 1008])(
	'a device that is alone and was ended at once with %i is not accused once it is online [F1289]',
	(code) => {
		for (const seed of SEEDS) {
			const world = createWorld(seed);
			const device = world.device(true, {
				handshake(channel) {
					if (world.now() < 8 * MINUTE) world.later(20, () => channel.end(code));
					return null;
				},
			});
			device.begin(0);
			world.run(8 * MINUTE, () => device.says() === 'duplicate-device');
			expect.soft(device.says(), `seed ${seed}`).toBe('duplicate-device');
			world.run(14 * MINUTE, () => false);
			expect.soft(device.says(), `seed ${seed}`).not.toBe('duplicate-device');
		}
	},
);

test.each([
	...[1001, 1005, 1006, 1011, 1012, 1013, 4401, 4403].map((code) => [code, 60] as const),
	...CODES.map((code) => [code, 4] as const),
])(
	'a device that is alone is not taken for two where its channels end at once with %i for %i min [F669]',
	(code, minutes) => {
		for (const seed of SEEDS) {
			const world = createWorld(seed);
			const device = world.device(true, {
				handshake(channel) {
					if (world.now() < minutes * MINUTE) world.later(20, () => channel.end(code));
					return null;
				},
			});
			device.begin(0);
			const saidMs = world.run(60 * MINUTE, () => device.says() === 'duplicate-device');
			expect.soft(saidMs, `seed ${seed}`).toBeNull();
		}
	},
);

/** How long each channel of the only device lives, in seconds, and whether the service takes a handshake. */
type Trouble = (
	random: () => number,
	now: () => number,
) => { lifeSeconds: () => number; isWell?: (atSeconds: number) => boolean; codes?: readonly number[] };
const pick = (random: () => number, among: readonly number[]) => among[Math.floor(random() * among.length)] ?? 0;
const TROUBLES: Readonly<Record<string, Trouble>> = {
	'a limit of 20 s to the life of a channel': (random) => ({ lifeSeconds: () => 19.5 + random() }),
	'cuts at any time within two minutes': (random) => ({ lifeSeconds: () => 5 + 115 * random() }),
	'a balancer that cuts after 0.5 to 45 s': (random) => ({
		lifeSeconds: () => pick(random, [1, 4, 8, 15, 30, 5, 22]) * (0.5 + random()),
	}),
	'a balancer that cuts in three manners': (random) => ({
		lifeSeconds: () => 0.5 + 44.5 * random(),
		codes: [1000, 1001, 1006],
	}),
	'cuts within the longest waits of a device': (random) => ({ lifeSeconds: () => 15 + 15 * random(), codes: [1000] }),
	'a service that restarts every half minute': (_random, now) => ({
		lifeSeconds: () => 31 - (now() % 31),
		isWell: (at) => at % 31 > 2,
	}),
	'a service that is well for 10 s of each minute': () => ({ lifeSeconds: () => 8, isWell: (at) => at % 60 < 10 }),
	'two bad minutes': (random) => {
		let ends = 0;
		return { lifeSeconds: () => (ends++ < 8 ? 1 + 8 * random() : 4000) };
	},
};

test.each(Object.keys(TROUBLES))('a device that is alone is not taken for two because of %s [F613]', (name) => {
	for (const code of [1000, 1001, 1005, 1006, 1011, 1012, 4409])
		for (const seed of SEEDS) {
			const world = createWorld(seed);
			const trouble = TROUBLES[name]?.(world.random, () => world.now() / SECOND);
			const { lifeSeconds = () => 0, isWell = () => true, codes = [code] } = trouble ?? {};
			// One that has codes of its own is the same for each of these.
			if (trouble?.codes && code !== 1000) continue;
			const device = world.device(true, {
				handshake(channel) {
					if (!isWell(world.now() / SECOND)) return ANSWERS.unreachable;
					world.later(lifeSeconds() * SECOND, () => channel.end(pick(world.random, codes)));
					return null;
				},
			});
			device.begin(0);
			const saidMs = world.run(60 * MINUTE, () => device.says() === 'duplicate-device');
			expect.soft(saidMs, `code ${code}, seed ${seed}`).toBeNull();
		}
});

test.each(CODES.filter((code) => code < 4000 && code !== 1008))(
	'a device that is alone is not taken for two because its Connections last 30 s, or any time, and are refused then, ended with %i [F1538]',
	(code) => {
		for (const [least, most] of [
			[30, 30],
			[24, 36],
			[5, 120],
		] as const)
			for (const seed of SEEDS) {
				const world = createWorld(seed);
				let endsAtMs = 0;
				const registered = () => {
					endsAtMs = world.now() + (least + (most - least) * world.random()) * SECOND;
				};
				const device = world.device(true, {
					registered,
					handshake(channel) {
						if (world.now() >= endsAtMs) return ANSWERS.unauthorized;
						world.later(endsAtMs - world.now(), () => channel.end(code));
						return null;
					},
				});
				registered();
				device.begin(0);
				const saidMs = world.run(60 * MINUTE, () => device.says() === 'duplicate-device');
				expect.soft(saidMs, `${least} to ${most} s, seed ${seed}`).toBeNull();
			}
	},
);
