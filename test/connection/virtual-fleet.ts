/**
 * Thousands of devices on a virtual clock: the product's own supervision (`supervisor.ts`, `link.ts`, `backoff.ts`), each with
 * an API key, against a service that is a pair of functions. For benchmarks and for tests of bounds; opens no socket.
 */
import { type Failure, failure } from '../../src/base/errors.ts';
import type { LinkEffect, LinkEvent } from '../../src/connection/link.ts';
import {
	NOTHING_SUPERVISED,
	type Supervision,
	type SupervisorEvent,
	supervise,
} from '../../src/connection/supervisor.ts';

const SECOND = 1000;
const ANSWER_MS = 100;

/** Answers a request that arrives now (seconds): `null` is yes. */
export interface VirtualService {
	readonly register: (atSeconds: number, device: number) => Failure | null;
	/** A number is a yes that takes so many milliseconds. @param isFresh whether the Connection was made since the beginning. */
	readonly open: (atSeconds: number, device: number, isFresh: boolean) => Failure | number | null;
}

export const ANSWERS = {
	unreachable: failure('service-unreachable', 'No answer.'),
	unauthorized: failure('credential-refused', '401.'),
	forbidden: failure('access-forbidden', '403.'),
	busy: (retryAfterSeconds: number | null): Failure =>
		failure(
			'service-overloaded',
			'429.',
			retryAfterSeconds === null ? {} : { retryAfterMs: retryAfterSeconds * SECOND },
		),
};

export interface FleetOptions {
	readonly devices: number;
	readonly seed: number;
	readonly service: VirtualService;
	readonly hours: number;
	/** How every channel ends at the beginning: within 200 ms, without a close frame, or by a refusal. */
	readonly cut?: 'lost' | 'refused';
	/** Whether the devices have an API key besides their Connection; default yes. */
	readonly hasKey?: boolean;
}

export interface FleetResult {
	/** When each device was back for good, in seconds, rising; `Infinity` where it was not. */
	readonly backAt: readonly number[];
	/** When each device first asked for a person; `Infinity` where it did not. */
	readonly blockedAt: readonly number[];
	readonly registrations: number;
	readonly handshakes: number;
	/** The most registrations and handshakes that arrived within one second, from this second on. */
	readonly peakFrom: (second: number) => number;
}

interface Device {
	supervision: Supervision;
	/** Rises with everything the link does: what answers an older one is over. */
	turn: number;
	isFresh: boolean;
	backAt: number;
	blockedAt: number;
}

export function runFleet(options: FleetOptions): FleetResult {
	const { devices, service, cut = 'lost', hasKey = true } = options;
	const random = randomFrom(options.seed);
	const queue = createQueue();
	let nowMs = 0;
	let registrations = 0;
	let handshakes = 0;
	const arrivals = new Map<number, number>();

	const fleet = Array.from({ length: devices }, (_, index): Device => {
		const registration = {
			baseUrl: 'https://id.example',
			request: { deviceId: `d${index}`, workflowId: 'w' },
			credentialId: hasKey ? 'key' : '',
		};
		const connection = { token: 'saved', obtainedAtMs: 0, lifeMs: null };
		const desired = { ...registration, hasReusableCredential: hasKey, selfRegistration: false };
		const known = [{ registration, connection }];
		// Online for an hour before it begins.
		const atMs = -3600 * SECOND;
		const begun = supervise(NOTHING_SUPERVISED, { type: 'desiredChanged', desired, known, atMs }, random).supervision;
		const attempt = begun.current?.state.attempt ?? 0;
		const event = { type: 'channelConfirmed', attempt, atMs } as const;
		const { supervision } = supervise(begun, { type: 'link', generation: 1, event }, random);
		return {
			supervision,
			turn: 0,
			isFresh: false,
			backAt: Number.POSITIVE_INFINITY,
			blockedAt: Number.POSITIVE_INFINITY,
		};
	});

	function dispatch(index: number, event: SupervisorEvent): void {
		const device = fleet[index] as Device;
		const wasOnline = device.supervision.current?.state.name === 'online';
		const { supervision, effects } = supervise(device.supervision, event, random);
		device.supervision = supervision;
		const state = supervision.current?.state.name;
		if (state === 'online' && !wasOnline) device.backAt = nowMs / SECOND;
		if (state !== 'online') device.backAt = Number.POSITIVE_INFINITY;
		if (state === 'blocked') device.blockedAt = Math.min(device.blockedAt, nowMs / SECOND);
		for (const effect of effects) if (effect.type === 'link') perform(index, effect.generation, effect.effect);
	}

	function perform(index: number, generation: number, effect: LinkEffect): void {
		if (effect.type === 'keepConnection' || effect.type === 'closeChannel') return;
		const device = fleet[index] as Device;
		device.turn += 1;
		const { turn } = device;
		const { attempt } = effect;
		const tell = (afterMs: number, answer: (atMs: number) => LinkEvent) =>
			queue.push(nowMs + afterMs, () => {
				if (device.turn === turn) dispatch(index, { type: 'link', generation, event: answer(nowMs) });
			});
		if (effect.type === 'wait') {
			tell(effect.delayMs, (atMs) => ({ type: 'timerFired', attempt, atMs }));
			return;
		}
		const second = Math.floor(nowMs / SECOND);
		arrivals.set(second, (arrivals.get(second) ?? 0) + 1);
		if (effect.type === 'register') {
			registrations += 1;
			const failed = service.register(nowMs / SECOND, index);
			device.isFresh ||= failed === null;
			const connection = { token: 'fresh', obtainedAtMs: nowMs, lifeMs: null };
			tell(ANSWER_MS, (atMs) =>
				failed
					? { type: 'registerFailed', attempt, atMs, failure: failed, timedOut: false }
					: { type: 'registered', attempt, atMs, connection },
			);
			return;
		}
		handshakes += 1;
		const answer = service.open(nowMs / SECOND, index, device.isFresh);
		if (answer === null || typeof answer === 'number')
			tell(answer ?? ANSWER_MS, (atMs) => ({ type: 'channelConfirmed', attempt, atMs }));
		else tell(ANSWER_MS, (atMs) => ended(attempt, atMs, answer));
	}

	for (const [index, { supervision }] of fleet.entries()) {
		const attempt = supervision.current?.state.attempt ?? 0;
		const cause = cut === 'refused' ? ANSWERS.unauthorized : failure('connection-lost', 'Gone.');
		queue.push(random() * 200, () =>
			dispatch(index, { type: 'link', generation: 1, event: ended(attempt, nowMs, cause) }),
		);
	}
	for (let next = queue.pop(); next && next.atMs <= options.hours * 3600 * SECOND; next = queue.pop()) {
		nowMs = next.atMs;
		next.run();
	}
	const sorted = (of: (device: Device) => number) => fleet.map(of).sort((one, other) => one - other);
	return {
		backAt: sorted(({ backAt }) => backAt),
		blockedAt: sorted(({ blockedAt }) => blockedAt),
		registrations,
		handshakes,
		peakFrom: (from) => Math.max(0, ...[...arrivals].map(([second, count]) => (second >= from ? count : 0))),
	};
}

function ended(attempt: number, atMs: number, cause: Failure): LinkEvent {
	return { type: 'channelEnded', attempt, atMs, failure: cause, timedOut: false, closeCode: null };
}

/** The value below which so much of them lies, of values in rising order. */
export function quantile(sorted: readonly number[], share: number): number {
	return sorted[Math.min(sorted.length - 1, Math.ceil(share * sorted.length) - 1)] ?? Number.NaN;
}

export const LIMITERS = ['fixed', 'fixed, Retry-After', 'sliding', 'sliding, Retry-After'] as const;
export type Limiter = (typeof LIMITERS)[number];

/** Ten a minute for one address: 429, or `null` for yes. The sliding kind counts what it refuses. */
export function limiter(kind: Limiter): (atSeconds: number) => Failure | null {
	const tellsWait = kind.endsWith('Retry-After');
	let times: number[] = [];
	let minute = -1;
	return (atSeconds) => {
		const now = Math.floor(atSeconds / 60);
		if (kind.startsWith('fixed')) {
			if (now !== minute) times = [];
			minute = now;
			if (times.length >= 10) return ANSWERS.busy(tellsWait ? Math.ceil((now + 1) * 60 - atSeconds) : null);
			times.push(atSeconds);
			return null;
		}
		times = times.filter((time) => time > atSeconds - 60);
		times.push(atSeconds);
		return times.length <= 10 ? null : ANSWERS.busy(tellsWait ? 60 : null);
	};
}

/** All Connections have ended while the service was away for 30 s: each device has to register, at ten a minute. */
export function rateLimited(devices: number, kind: Limiter, seed: number, hours = 6): FleetResult {
	const limit = limiter(kind);
	const isAway = (atSeconds: number) => (atSeconds < AWAY_SECONDS ? ANSWERS.unreachable : null);
	return runFleet({
		devices,
		seed,
		hours,
		service: {
			register: (at) => isAway(at) ?? limit(at),
			open: (at, _device, isFresh) => isAway(at) ?? (isFresh ? null : ANSWERS.unauthorized),
		},
	});
}
export const AWAY_SECONDS = 30;

/** A minute in which everything is answered with 401, wrongly; afterwards Connections are good again, or are gone. */
export function badMinute(more: {
	readonly devices: number;
	readonly seed: number;
	readonly cut: 'lost' | 'refused';
	readonly connections: 'good' | 'gone';
}): FleetResult {
	const isBad = (atSeconds: number) => (atSeconds < 60 ? ANSWERS.unauthorized : null);
	return runFleet({
		...more,
		hours: 2,
		service: {
			register: isBad,
			open: (at, _device, isFresh) =>
				isBad(at) ?? (more.connections === 'good' || isFresh ? null : ANSWERS.unauthorized),
		},
	});
}

/** Whatever answers in place of the service for so long gives the same answer to everything; nothing of the device has ended. */
export function surprised(more: {
	readonly devices: number;
	readonly seed: number;
	readonly hasKey: boolean;
	readonly answer: Failure;
	readonly seconds: number;
}): FleetResult {
	const isOther = (atSeconds: number) => (atSeconds < more.seconds ? more.answer : null);
	return runFleet({ ...more, hours: 1, service: { register: isOther, open: isOther } });
}

/** The Connection, and the key if there is one, are refused for good. */
export function revokedForGood(more: { devices: number; seed: number; hasKey: boolean }): FleetResult {
	const no = () => ANSWERS.unauthorized;
	return runFleet({ ...more, hours: 1, service: { register: no, open: no } });
}

/** An outage of 60 s, then 500 handshakes a second; who would wait for longer than a second is refused, at a tenth of the cost. */
export function storm(devices: number, seed: number): FleetResult {
	const perSecond = 500;
	let freeAt = STORM_SECONDS;
	return runFleet({
		devices,
		seed,
		hours: 1,
		service: {
			register: () => null,
			open(at) {
				if (at < STORM_SECONDS) return ANSWERS.unreachable;
				freeAt = Math.max(freeAt, at);
				if (freeAt - at >= 1) {
					freeAt += 0.1 / perSecond;
					return ANSWERS.busy(null);
				}
				freeAt += 1 / perSecond;
				return (freeAt - at) * SECOND + 50;
			},
		},
	});
}
export const STORM_SECONDS = 60;

/** Mulberry32: the same numbers for the same seed. */
export function randomFrom(seed: number): () => number {
	let state = seed;
	return () => {
		state = (state + 0x6d2b79f5) | 0;
		let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
		mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
		return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
	};
}

interface Due {
	readonly atMs: number;
	readonly run: () => void;
}

/** A binary heap by time. */
function createQueue(): { push(atMs: number, run: () => void): void; pop(): Due | null } {
	const heap: Due[] = [];
	const at = (index: number) => heap[index]?.atMs ?? Number.POSITIVE_INFINITY;
	const swap = (one: number, other: number) => {
		const kept = heap[one] as Due;
		heap[one] = heap[other] as Due;
		heap[other] = kept;
	};
	return {
		push(atMs, run) {
			let index = heap.push({ atMs, run }) - 1;
			while (index > 0 && at((index - 1) >> 1) > atMs) {
				swap(index, (index - 1) >> 1);
				index = (index - 1) >> 1;
			}
		},
		pop() {
			const first = heap[0];
			const last = heap.pop();
			if (!first || !last) return null;
			if (heap.length > 0) {
				heap[0] = last;
				for (let index = 0; ; ) {
					const child = at(2 * index + 2) < at(2 * index + 1) ? 2 * index + 2 : 2 * index + 1;
					if (at(child) >= at(index)) break;
					swap(index, child);
					index = child;
				}
			}
			return first;
		},
	};
}
