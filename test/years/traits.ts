/** What is fixed for a whole life, drawn from its seed: the service's ways, the device's settings, which faults come and how often. */
import { chanceOf } from './chance.ts';
import { BASE_URL, PLAN_URL, type ServiceTraits } from './service.ts';

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

export type Credential = 'apiKey' | 'code' | 'self' | 'provisioned';

export interface Traits extends ServiceTraits {
	readonly credential: Credential;
	readonly cadenceSeconds: number;
	readonly followsPlan: boolean;
	readonly clockBattery: boolean;
	/** Between two faults, on average. */
	readonly faultEveryMs: number;
	readonly notifyEveryMs: number;
	readonly consumerMs: number;
	readonly durable: boolean;
	/** Its disk fails in every way, not only by being full. */
	readonly hasBadDisk: boolean;
	/** What befalls it besides: 0.1.0 runs on it now and then, or its disk fills and is copied. */
	readonly befalls: readonly ('olderVersion' | 'fillingDisk' | 'imaged')[];
	readonly startMs: number;
	readonly settings: Readonly<Record<string, unknown>>;
}

export function traitsOf(seed: number): Traits {
	const chance = chanceOf(seed * 7919 + 13);
	const credential = chance.pick<Credential>('apiKey', 'apiKey', 'code', 'self', 'provisioned');
	// A third of the lives has a cadence of at most 60 s.
	const cadenceSeconds = seed % 3 === 0 ? chance.pick(15, 30, 60) : chance.pick(120, 300, 300, 3600);
	const followsPlan = credential !== 'provisioned' && chance.is(0.35);
	const durable = chance.is(0.8);
	const connectionLifeMs = chance.pick(HOUR, 6 * HOUR, DAY, DAY, 7 * DAY, 30 * DAY);
	const isProvisioned = credential === 'provisioned';
	const hasBadDisk = seed % 5 === 4;
	const settings = {
		...(!isProvisioned && { baseUrl: BASE_URL, heartbeatCadence: cadenceSeconds }),
		...(credential === 'apiKey' && { credential: { apiKeyFile: '/etc/idv-agent/api.key' } }),
		...(credential === 'self' && { credential: { selfRegistration: true } }),
		...(followsPlan && { fleet: { planUrl: PLAN_URL, intervalSeconds: chance.pick(300, 1200, 3600) } }),
		events: { durable, maxCount: chance.pick(200, 1000), ...(hasBadDisk && { maxBytes: 131_072 }) },
		hooks: { onNotification: ['/bin/n'], onOnline: ['/bin/on'], onOffline: ['/bin/off'] },
	};
	return {
		credential,
		cadenceSeconds,
		followsPlan,
		durable,
		hasBadDisk,
		befalls: seed % 10 === 5 ? ['olderVersion'] : seed % 10 === 6 ? ['fillingDisk', 'imaged'] : [],
		connectionLifeMs,
		isOpaque: chance.is(0.15),
		mayRegisterAgain: credential === 'code' ? chance.is(0.9) : chance.is(0.8),
		endsOldWith: chance.pick(0, 0, 0, 1008, 4409, 1006),
		isLenient: chance.is(0.3),
		pings: chance.is(0.3),
		takesSelfRegistration: credential === 'self',
		clockBattery: chance.is(0.5),
		faultEveryMs: chance.pick(20 * MINUTE, HOUR, 4 * HOUR, 12 * HOUR),
		notifyEveryMs: chance.pick(5 * MINUTE, 30 * MINUTE, 2 * HOUR),
		consumerMs: chance.pick(1, 50, 2000, 10 * MINUTE),
		startMs: Date.UTC(2026, 0, 1) + chance.whole(0, 365) * DAY,
		settings,
	};
}
