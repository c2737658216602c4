/**
 * How other clients wait before they connect again, as parameters: the curves of their documentation and sources, not their
 * code. For the benchmark only; the product's own policy is `src/connection/backoff.ts`.
 */
import { type SupervisorEvent, type SupervisorStep, supervise } from '../../src/connection/supervisor.ts';

export interface RetryPolicy {
	readonly name: string;
	/** Seconds to wait after so many failures in a row, 1 being the loss of the channel; `null` for the product's own. */
	readonly seconds: ((failures: number, random: () => number) => number) | null;
}

const exponential = (failures: number, first: number, factor: number, most: number) =>
	Math.min(most, first * factor ** Math.min(failures - 1, 50));

export const POLICIES: readonly RetryPolicy[] = [
	{ name: 'idv-agent', seconds: null },
	{ name: 'fixed 1 s', seconds: () => 1 },
	{ name: 'exponential 1-60 s', seconds: (failures) => exponential(failures, 1, 2, 60) },
	{
		name: 'equal jitter 1-60 s',
		seconds: (failures, random) => exponential(failures, 1, 2, 60) * (0.5 + 0.5 * random()),
	},
	{ name: 'full jitter 1-60 s', seconds: (failures, random) => exponential(failures, 1, 2, 60) * random() },
	// 1 to 5 s, growing by 1.3 to 10 s; each client draws its least delay.
	{
		name: 'reconnecting-websocket',
		seconds: (failures, random) => exponential(failures, 1 + 4 * random(), 1.3, 10),
	},
	// The same curve; the least delay is the same for all.
	{ name: 'partysocket', seconds: (failures) => exponential(failures, 3, 1.3, 10) },
	{
		name: 'socket.io',
		seconds: (failures, random) => Math.min(5, exponential(failures, 1, 2, 5) * (0.5 + random())),
	},
	{ name: 'nats.js', seconds: (_failures, random) => 2 + 0.1 * random() },
	{ name: 'Azure Web PubSub', seconds: (failures) => exponential(failures, 1, 2, 30) },
	// At once, then 15 to 30 s with a fifth of jitter downwards.
	{
		name: 'Ably',
		seconds: (failures, random) => (failures === 1 ? 0 : 15 * Math.min(2, (failures + 1) / 3) * (1 - 0.2 * random())),
	},
	{ name: "Tailscale's curve", seconds: (failures, random) => Math.min(30, failures ** 2 / 100) * (0.5 + random()) },
	{
		name: 'gRPC',
		seconds: (failures, random) => exponential(failures, 1, 1.6, 120) * (0.8 + 0.4 * random()),
	},
];

/** The product's decisions with another wait wherever it waits. Remembers the failures of one device. */
export function superviseBy(policy: () => RetryPolicy): typeof supervise {
	let failures = 0;
	let before = policy();
	return (supervision, event: SupervisorEvent, random): SupervisorStep => {
		const step = supervise(supervision, event, random);
		const now = policy();
		if (now !== before) failures = 0;
		before = now;
		const { seconds } = now;
		const effects = step.effects.map((effect) => {
			if (effect.type === 'linkPromoted') failures = 0;
			if (effect.type !== 'link' || effect.effect.type !== 'wait') return effect;
			failures += 1;
			if (!seconds) return effect;
			return { ...effect, effect: { ...effect.effect, delayMs: 1000 * seconds(failures, random) } };
		});
		return { supervision: step.supervision, effects };
	};
}
