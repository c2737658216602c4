import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { failure } from '../../src/base/errors.ts';
import { keepLine, UNSAVED_LINE } from '../../src/connection/line.runner.ts';
import {
	afterEnd,
	type ChannelEnd,
	type LineEnd,
	type LineRhythm,
	type LineStore,
	measureSilence,
	networkOf,
	pingInterval,
	type SavedLine,
	UNKNOWN_RHYTHM,
} from '../../src/connection/line-rhythm.ts';
import { type LinkEvent, startLink, transition } from '../../src/connection/link.ts';
import { livenessOf } from '../../src/connection/liveness.ts';
import { randomFrom } from './virtual-fleet.ts';

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const BASE_URL = 'https://id.example';
const QUIET = { info: () => {}, warn: () => {} };
/** One way, in milliseconds. */
const LATENCY = 10;

/** Something on the way that ends channels. */
interface Way {
	/** Ends a line after so much silence. */
	readonly idleMs?: number | ((atMs: number) => number);
	/** Only what comes from the service counts. */
	readonly inboundOnly?: boolean;
	/** Ends every channel after so long, whatever it does. */
	readonly lifeMs?: number;
	/** Mean time between two notifications; left out, there are none. */
	readonly notificationsMs?: number;
	readonly cadenceSeconds?: number;
	readonly store?: LineStore;
	readonly seed?: number;
}

/** The device's own decisions about pings and waits, over a line in virtual time, for so many minutes. */
function liveOn(way: Way, minutes: number) {
	const { cadenceSeconds = 30, store = UNSAVED_LINE } = way;
	const random = randomFrom(way.seed ?? 1);
	const said: string[] = [];
	const line = keepLine(store, { info: (text: string) => said.push(text), warn: (text: string) => said.push(text) });
	const registration = {
		baseUrl: BASE_URL,
		request: { deviceId: 'd', workflowId: 'w', heartbeatCadence: cadenceSeconds },
		credentialId: '',
	};
	const liveness = livenessOf(registration, { heartbeatMode: 'frame', silenceLimitSeconds: null });
	let nowMs = 0;
	let onlineMs = 0;
	const cutsAt: number[] = [];
	const pings: number[] = [];
	let { state } = startLink([], { token: 't', obtainedAtMs: 0, lifeMs: null }, 0);
	const tell = (event: LinkEvent) => {
		const step = transition(state, event, random);
		state = step.state;
		return step.effects;
	};

	while (nowMs < minutes * MINUTE) {
		const pingMs = line.pingIntervalMs(BASE_URL, liveness.pingIntervalMs, liveness.cadenceMs);
		pings.push(pingMs);
		line.opened(BASE_URL, '192.0.2.7', nowMs);
		tell({ type: 'channelConfirmed', attempt: state.attempt, atMs: nowMs });
		const openedAtMs = nowMs;
		const endAtMs = liveChannel(pingMs);
		onlineMs += Math.min(endAtMs, minutes * MINUTE) - openedAtMs;
		nowMs = endAtMs;
		if (nowMs >= minutes * MINUTE) break;
		cutsAt.push(nowMs);
		const cause = failure('connection-lost', 'Gone.');
		const end = { type: 'ended', failure: cause, closeCode: null, timedOut: false, line: ended } as const;
		const outlived = line.ended(end, nowMs);
		const effects = tell({
			type: 'channelEnded',
			attempt: state.attempt,
			atMs: nowMs,
			failure: cause,
			timedOut: false,
			closeCode: null,
			outlived,
		});
		for (const effect of effects) if (effect.type === 'wait') nowMs += effect.delayMs;
		tell({ type: 'timerFired', attempt: state.attempt, atMs: nowMs });
	}
	return { cutsAt, pings, said, facts: line.facts(nowMs), onlineShare: onlineMs / (minutes * MINUTE) };

	/** @returns when the device sees it end. */
	function liveChannel(pingMs: number): number {
		const openedAtMs = nowMs;
		const meter = measureSilence(openedAtMs);
		/** Bytes on their way past the thing that cuts: it sees them `LATENCY` after they left. */
		const due = [
			{ what: 'ping' as const, atMs: openedAtMs },
			{ what: 'beat' as const, atMs: openedAtMs },
			...(way.notificationsMs ? [{ what: 'note' as const, atMs: openedAtMs + delay(way.notificationsMs) }] : []),
		] as { what: 'ping' | 'pong' | 'beat' | 'note'; atMs: number }[];
		let seenAtMs = openedAtMs;
		for (;;) {
			due.sort((one, other) => one.atMs - other.atMs);
			const next = due.shift();
			if (!next) throw new Error('There is always a next ping.');
			const idleMs = typeof way.idleMs === 'function' ? way.idleMs(seenAtMs) : (way.idleMs ?? Number.POSITIVE_INFINITY);
			const cutAtMs = Math.min(seenAtMs + idleMs, openedAtMs + (way.lifeMs ?? Number.POSITIVE_INFINITY));
			const isOut = next.what === 'ping' || next.what === 'beat';
			// What is sent reaches it later; what comes in has passed it before.
			const passesAtMs = next.atMs + (isOut ? LATENCY : -LATENCY);
			if (passesAtMs >= cutAtMs) {
				if (isOut && next.atMs < cutAtMs + LATENCY) meter.moved('out', next.atMs);
				ended = {
					...meter.end(cutAtMs + LATENCY),
					withoutCloseFrame: true,
					saidGoodbye: false,
					sleptMs: 0,
					sinceFrameMs: 0,
				};
				return cutAtMs + LATENCY;
			}
			if (next.atMs > minutes * MINUTE) return next.atMs;
			meter.moved(isOut ? 'out' : 'in', next.atMs);
			if (!isOut || !way.inboundOnly) seenAtMs = Math.max(seenAtMs, passesAtMs);
			// Timers come a little late.
			if (next.what === 'ping') {
				due.push({ what: 'pong', atMs: next.atMs + 4 * LATENCY });
				due.push({ what: 'ping', atMs: next.atMs + pingMs + 30 * random() });
			} else if (next.what === 'beat') due.push({ what: 'beat', atMs: next.atMs + liveness.cadenceMs });
			else if (next.what === 'note') due.push({ what: 'note', atMs: next.atMs + delay(way.notificationsMs ?? 0) });
		}
	}
	function delay(meanMs: number): number {
		return -Math.log(1 - random()) * meanMs;
	}
}
let ended: LineEnd;

describe('a line that is cut when it is silent', () => {
	const idles = [20, 25, 30, 60];
	const traffics = [undefined, 4 * SECOND, 25 * SECOND, 90 * SECOND];
	const cadences = [30, 45, 300];
	test.each(idles)('for %i s, with and without traffic: no cut after the first five', (idle) => {
		for (const notificationsMs of traffics)
			for (const cadenceSeconds of cadences)
				for (const inboundOnly of [false, true])
					for (const seed of [1, 2, 3]) {
						const way = { idleMs: idle * SECOND, cadenceSeconds, inboundOnly, seed };
						const { cutsAt } = liveOn(notificationsMs ? { ...way, notificationsMs } : way, 60);
						expect(cutsAt.length).toBeLessThanOrEqual(5);
					}
	});

	test('is pinged at two thirds of that silence, and the status says so', () => {
		const { pings, facts, said, cutsAt } = liveOn({ idleMs: 20 * SECOND }, 9);
		expect(cutsAt.length).toBe(3);
		expect(pings.at(-1)).toBeCloseTo((2 / 3) * 20 * SECOND, -2);
		expect(facts).toMatchObject({ idleTimeoutSeconds: 20, pingSeconds: 13, recentCuts: { count: 3, cause: '1006' } });
		expect(facts.recentCuts?.typicalLifeSeconds).toBe(20);
		expect(facts.warning?.code).toBe('channel-flapping');
		expect(facts.warning?.message).toBe('The channel was cut 3 times in 10 min, each after 20 s (1006).');
		expect(facts.warning?.remedy).toContain('pings it in time now');
		expect(said.join('\n')).toContain('the line is cut after 20 s of silence');
	});

	test('leaves the device online nearly all the time from then on', () => {
		expect(liveOn({ idleMs: 20 * SECOND }, 60).onlineShare).toBeGreaterThan(0.98);
	});

	test('earlier than before is found again', () => {
		const idleMs = (atMs: number) => (atMs < 30 * MINUTE ? 25 : 9) * SECOND;
		const { cutsAt, facts } = liveOn({ idleMs }, 120);
		expect(cutsAt.length).toBeLessThanOrEqual(8);
		expect(facts).toMatchObject({ idleTimeoutSeconds: 9, pingSeconds: 6 });
	});

	test('is known after a restart, and forgotten on another network or for another service', () => {
		const disk: { saved: SavedLine | null } = { saved: null };
		const store: LineStore = {
			load: () => disk.saved,
			save: (line) => {
				disk.saved = line;
			},
		};
		liveOn({ idleMs: 20 * SECOND, store }, 10);
		expect(disk.saved).toMatchObject({ baseUrl: BASE_URL, network: '192.0.2' });
		expect(liveOn({ idleMs: 20 * SECOND, store }, 60).cutsAt).toEqual([]);
		for (const [baseUrl, address] of [
			[BASE_URL, '198.51.100.7'],
			['https://other.example', '192.0.2.7'],
		] as const) {
			const before = disk.saved;
			const line = keepLine(store, QUIET);
			line.opened(baseUrl, address, 0);
			expect(line.pingIntervalMs(baseUrl, 30 * SECOND, 30 * SECOND)).toBe(30 * SECOND);
			expect(disk.saved).toBeNull();
			disk.saved = before;
		}
		keepLine(store, QUIET).forget();
		expect(disk.saved).toBeNull();
	});
});

describe('a line that is cut for another reason', () => {
	test('after a fixed life is not pinged faster for ever, and the status says so', () => {
		for (const life of [12, 20, 25, 29]) {
			const { pings, facts, said } = liveOn({ lifeMs: life * SECOND }, 20);
			expect(pings.at(-1)).toBe(30 * SECOND);
			expect(facts.idleTimeoutSeconds).toBeNull();
			expect(facts.warning?.remedy).toContain('two devices have one device id');
			expect(said.filter((line) => line.includes('do not keep the line open'))).toHaveLength(1);
		}
	});

	test('is told so at the first cut that the shorter ping did not prevent, with what may help [F1380]', () => {
		const seen = new Map<number, string>();
		for (let quarter = 1; quarter < 40; quarter += 1) {
			const { cutsAt, facts } = liveOn({ lifeMs: 25 * SECOND }, quarter / 4);
			seen.set(cutsAt.length, facts.warning?.remedy ?? '');
		}
		expect(seen.get(3)).toMatch(/^Nothing to do/);
		for (const cuts of [4, 5]) expect(seen.get(cuts)).toMatch(/^Wait .* cut again .* set heartbeatCadence/);
		expect(seen.get(6)).toMatch(/did not help: .* set heartbeatCadence/);
	});

	test('after a life that spans several pings is never taken for an idle timeout', () => {
		expect(liveOn({ lifeMs: 45 * SECOND }, 20).pings.every((ping) => ping === 30 * SECOND)).toBe(true);
	});

	test('with a close frame, at random or rarely, changes nothing', () => {
		const silent = {
			silenceMs: 20_000,
			longestSilenceMs: 0,
			inboundSilenceMs: 20_000,
			sinceFrameMs: 20_000,
			longestInboundMs: 0,
		};
		const end = { lifeMs: 20_000, ...silent, withoutCloseFrame: false };
		const ends = Array<ChannelEnd>(10).fill(end);
		expect(ends.reduce(afterEnd, UNKNOWN_RHYTHM)).toEqual(UNKNOWN_RHYTHM);
		const found: LineRhythm = { ...UNKNOWN_RHYTHM, idleMs: 20_000 };
		const long = { ...end, lifeMs: 6 * MINUTE, silenceMs: 5000, withoutCloseFrame: true };
		expect(Array<ChannelEnd>(10).fill(long).reduce(afterEnd, found)).toMatchObject({
			idleMs: 20_000,
			isUnlearned: false,
		});
		// Cuts in spite of the shorter ping count in a row only.
		const short = { ...long, lifeMs: 4 * MINUTE };
		const isUnlearned = (...ends: ChannelEnd[]) => ends.reduce(afterEnd, found).isUnlearned;
		expect(isUnlearned(short, short, { ...long, lifeMs: 5 * MINUTE }, short)).toBe(false);
		expect(isUnlearned(long, short, short, short)).toBe(true);
	});

	test('and a ping is never above the cadence and 30 s, never below 5 s unless it was so before', () => {
		fc.assert(
			fc.property(
				fc.integer({ min: 1, max: 86_400 }),
				fc.boolean(),
				fc.array(
					fc.record({
						lifeMs: fc.nat({ max: 600_000 }),
						silenceMs: fc.constantFrom(100, 5000, 5100, 7000, 20_000, 59_000, 300_000),
						longestSilenceMs: fc.constantFrom(0, 0, 5000, 30_000),
						inboundSilenceMs: fc.constantFrom(100, 5100, 20_000, 300_000),
						longestInboundMs: fc.constantFrom(0, 0, 30_000),
						withoutCloseFrame: fc.boolean(),
					}),
					{ maxLength: 30 },
				),
				(cadence, isPingMode, ends) => {
					const cadenceMs = cadence * SECOND;
					const usualMs = isPingMode ? cadenceMs : Math.min(cadenceMs, 30 * SECOND);
					const rhythm = ends.reduce(afterEnd, UNKNOWN_RHYTHM);
					const ping = pingInterval(rhythm, usualMs, cadenceMs);
					expect(ping).toBeGreaterThanOrEqual(Math.min(usualMs, 5 * SECOND));
					expect(ping).toBeLessThanOrEqual(rhythm.idleMs === null ? usualMs : Math.min(cadenceMs, 30 * SECOND));
					expect(rhythm.silencesMs.length).toBeLessThanOrEqual(10);
				},
			),
		);
	});
});

test('cuts are told once for each time of them, and are forgotten with the service', () => {
	const said: string[] = [];
	const line = keepLine(UNSAVED_LINE, { info() {}, warn: (text: string) => said.push(text) });
	const silent = { silenceMs: 0, longestSilenceMs: 0, inboundSilenceMs: 0, sinceFrameMs: 0, longestInboundMs: 0 };
	const end = { lifeMs: MINUTE, ...silent, withoutCloseFrame: false, saidGoodbye: false, sleptMs: 0 };
	const CUT = failure('connection-lost', 'Cut.');
	const cutsFrom = (atMs: number, count: number) => {
		for (let cut = 0; cut < count; cut += 1)
			line.ended({ type: 'ended', failure: CUT, closeCode: 1012, timedOut: false, line: end }, atMs + cut * SECOND);
	};
	cutsFrom(0, 2);
	expect(said).toEqual([]);
	cutsFrom(2 * SECOND, 5);
	expect(said).toHaveLength(1);
	cutsFrom(20 * MINUTE, 3);
	expect(said).toHaveLength(2);
	expect(line.facts(20 * MINUTE + 2 * SECOND)).toMatchObject({
		recentCuts: { count: 3, cause: '1012', typicalLifeSeconds: 60 },
		warning: { code: 'channel-flapping' },
	});
	line.forget();
	expect(line.facts(20 * MINUTE + 2 * SECOND)).toMatchObject({ recentCuts: null, warning: null });
});

test.each([
	['192.0.2.17', '192.0.2'],
	['::ffff:192.0.2.17', '192.0.2'],
	['2001:db8:1:2:3:4:5:6', '2001:db8:1:2'],
	['2001:db8::6', '2001:db8:0:0'],
	['fe80::1%eth0', 'fe80:0:0:0'],
])('the network of %s is %s', (address, network) => {
	expect(networkOf(address)).toBe(network);
});

describe('something that forgets a quiet line without a word', () => {
	/** Pings until they are not answered any more, so many channels; how many of them died. */
	function liveBehind(forgetsAfterMs: number, usualMs: number, channels: number) {
		let rhythm = UNKNOWN_RHYTHM;
		const lives: number[] = [];
		for (let number = 0; number < channels; number += 1) {
			const pingMs = pingInterval(rhythm, usualMs, usualMs);
			const silence = measureSilence(0);
			const answersUntilMs = 30 * MINUTE;
			let atMs = 0;
			let heardMs = 0;
			let isForgotten = false;
			while (atMs < answersUntilMs && atMs - heardMs < 2 * usualMs) {
				isForgotten ||= atMs - heardMs > forgetsAfterMs;
				silence.moved('out', atMs);
				if (!isForgotten) {
					heardMs = atMs + LATENCY;
					silence.moved('in', heardMs);
				}
				atMs += pingMs;
			}
			const died = isForgotten;
			lives.push(died ? 1 : 0);
			const deadAfterMs = died ? { deadAfterMs: silence.deadAfterMs() } : {};
			rhythm = afterEnd(rhythm, { ...silence.end(atMs), ...deadAfterMs, withoutCloseFrame: false });
		}
		return lives;
	}

	test.each([
		[25, 30],
		[12, 30],
		[20, 60],
		[28, 300],
	])('after %i s costs at most five channels, then none (pinged every %i s) [F481]', (seconds, usual) => {
		const deaths = liveBehind(seconds * SECOND, usual * SECOND, 20);
		expect(deaths.reduce((sum, died) => sum + died, 0)).toBeLessThanOrEqual(5);
		expect(deaths.slice(5)).not.toContain(1);
	});

	test('is learned from three different silences in a row as well: the shortest of them is too long [F1021]', () => {
		const end = { ...measureSilence(0).end(90_000), withoutCloseFrame: false };
		const learned = (...silences: (number | null)[]) =>
			silences.map((deadAfterMs): ChannelEnd => ({ ...end, deadAfterMs })).reduce(afterEnd, UNKNOWN_RHYTHM).idleMs;
		expect(learned(19_000, 16_000, 30_000)).toBe(12_000);
		expect(learned(30_000, 16_000)).toBeNull();
		expect(learned(19_000, null, 16_000, 30_000)).toBeNull();
	});

	test('is not what ends a line that has borne as long a silence, or that dies after different ones', () => {
		const silence = measureSilence(0);
		for (const [direction, atMs] of [
			['out', 0],
			['in', 10],
			['out', 30_000],
			['in', 30_010],
			['out', 60_000],
		] as const)
			silence.moved(direction, atMs);
		expect(silence.deadAfterMs()).toBeNull();
		const end = { ...silence.end(90_000), withoutCloseFrame: false };
		const died = [30_000, 60_000, null, 30_000].map((deadAfterMs): ChannelEnd => ({ ...end, deadAfterMs }));
		expect(died.reduce(afterEnd, UNKNOWN_RHYTHM).idleMs).toBeNull();
	});
});
