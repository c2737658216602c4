/** A service of several nodes, some of which know a new Connection late or never: a device on virtual time. */
import { expect, test } from 'vitest';
import { createWorld, type VirtualChannel, type VirtualDevice } from './virtual-channels.ts';
import { ANSWERS } from './virtual-fleet.ts';

const SECOND = 1000;
const SEEDS = Array.from({ length: 20 }, (_, index) => index + 1);

/**
 * How long the device is offline after its Connection was taken away. @param knows whether the service knows the new one.
 * @param code with which it ends a channel of one that it does not know, after so many milliseconds; `null`: it refuses the handshake.
 */
function backAfterMs(
	seed: number,
	knows: (sinceMs: number) => boolean,
	registers: () => void = () => {},
	code: number | null = null,
	afterMs = 20,
): number {
	const world = createWorld(seed);
	let isRevoked = false;
	let registeredAtMs = Number.NEGATIVE_INFINITY;
	let live: VirtualChannel | null = null;
	const device: VirtualDevice = world.device(true, {
		registered() {
			registeredAtMs = world.now();
			registers();
		},
		handshake(channel) {
			const isKnown = channel.isFresh ? knows(world.now() - registeredAtMs) : !isRevoked;
			if (isKnown) live = channel;
			if (!isKnown && code !== null) world.later(afterMs, () => channel.end(code));
			return isKnown || code !== null ? null : ANSWERS.unauthorized;
		},
	});
	device.begin(0);
	world.run(120 * SECOND);
	isRevoked = true;
	(live as VirtualChannel | null)?.end(4401);
	const fromMs = world.now();
	live = null;
	const isBack = () => live !== null;
	return (world.run(fromMs + 30 * 60 * SECOND, isBack) ?? Number.POSITIVE_INFINITY) - fromMs;
}

const REFUSALS = [
	[null, 0],
	[4401, 20],
	[1008, 20],
	// Its first ping is answered before.
	[4401, 500],
	[1008, 500],
] as const;
const LAGS = [0.3, 1.5, 2, 5, 20, 30].flatMap((seconds) =>
	REFUSALS.map(([code, afterMs]) => [seconds, code, afterMs] as const),
);

test.each(LAGS)(
	'a device with an API key is back where the channel knows a new Connection only after %d s (ended with %s after %d ms) [F1590]',
	(seconds, code, afterMs) => {
		for (const seed of SEEDS) {
			const backMs = backAfterMs(seed, (sinceMs) => sinceMs >= seconds * SECOND, undefined, code, afterMs);
			expect.soft(backMs / SECOND, `seed ${seed}`).toBeLessThan(seconds < 2 ? 15 : seconds + 90);
		}
	},
);

test('a device with an API key is back where every second request meets a node that knows no Connection [F1590]', () => {
	for (const seed of SEEDS) {
		let requests = 0;
		const isGood = () => {
			requests += 1;
			return requests % 2 === 1;
		};
		expect.soft(backAfterMs(seed, isGood, isGood) / SECOND, `seed ${seed}`).toBeLessThan(75);
	}
});
