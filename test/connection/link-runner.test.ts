/** What is performed for a link, and what is told of it: channels and registrations are played here, time is stepped. */
import { describe, expect, test } from 'vitest';
import { failure } from '../../src/base/errors.ts';
import type { Channel, ChannelEvent, ChannelOptions } from '../../src/connection/channel.edge.ts';
import { createLinkRunner } from '../../src/connection/link.runner.ts';
import type { LinkEffect } from '../../src/connection/link.ts';
import { livenessOf } from '../../src/connection/liveness.ts';
import type { Registration } from '../../src/connection/supervisor.ts';
import { resolveSettings } from '../../src/settings/resolve.ts';
import { createSteppedClock } from '../harness/stepped-clock.ts';

const SERVICE = {
	...resolveSettings([]).settings.service,
	maxMessageBytes: 1000,
	pongBody: '{"pong":"{id}","up":"{uptimeSeconds}","n":"{sequence}"}',
};

const registration = (heartbeatCadence = 30, workflowId = 'check-in'): Registration => ({
	baseUrl: 'https://id.example',
	request: { deviceId: 'K-1', workflowId, heartbeatCadence },
	credentialId: 'key',
});
const LINE = { lifeMs: 1, inboundSilenceMs: 1, sinceFrameMs: 1, saidGoodbye: false, sleptMs: 0 } as never;
const LOST = failure('connection-lost', 'Cut.');
const ended = (line: never | null = LINE): ChannelEvent => ({
	type: 'ended',
	failure: LOST,
	closeCode: null,
	timedOut: false,
	line,
});

/** A channel as the runner has opened it. */
interface Played {
	readonly options: ChannelOptions;
	readonly say: (event: ChannelEvent) => void;
	readonly sent: string[];
	/** `close 1000`, `terminate` */
	readonly told: string[];
}

function given(service: Partial<typeof SERVICE> = {}, credential = { apiKeyFile: null, basicFile: null } as object) {
	const clock = createSteppedClock(Date.UTC(2026, 0, 1));
	const channels: Played[] = [];
	const asked: { signal: AbortSignal; answer: (result: object) => void; authorization: unknown }[] = [];
	const told: unknown[][] = [];
	/** What the line is told of another device at each end of a channel. */
	const replacements: unknown[] = [];
	const doubted: string[] = [];
	const storing = Promise.withResolvers<void>();
	const tell =
		(name: string) =>
		(...what: unknown[]) =>
			void told.push([name, ...what]);
	const runner = createLinkRunner({
		clock,
		log: { debug() {} },
		random: () => 0.5,
		nextPlaces: () => [],
		earlier: () => null,
		startedAtMs: clock.monotonicMs() - 100_000,
		userAgent: 'idv-agent/test',
		line: {
			pingIntervalMs: (_url, usualMs) => usualMs,
			opened: () => {},
			answered: () => {},
			ended: (_event, _atMs, replaced) => replacements.push(replaced) < 0,
		},
		plan: () => ({}),
		runtime: () =>
			({
				client: {
					registerDevice: (request: { signal: AbortSignal; authorization: unknown }) =>
						new Promise((answer) => asked.push({ ...request, answer })),
				},
				resolved: { settings: { service: { ...SERVICE, ...service }, credential } },
				credentials: { reusable: { scheme: 'Basic', user: 'u', password: 'p' } },
				network: {
					channelAgent: () => undefined,
					doubt: ({ pathname }: URL) => doubted.push(pathname),
					proxyName: () => 'proxy.test:3128',
				},
				headersFor: () => ({}),
			}) as never,
		openChannel(options, say): Channel {
			const played: Played = { options, say, sent: [], told: [] };
			channels.push(played);
			return {
				sendText: (text) => played.sent.push(text) > 0,
				close: (code) => void played.told.push(`close ${code}`),
				terminate: () => void played.told.push('terminate'),
				bufferedAmount: 0,
			};
		},
		report: {
			event: tell('event'),
			frame(...what) {
				tell('frame')(...what);
				return true;
			},
			stored: () => storing.promise,
			heartbeat: tell('heartbeat'),
			answered: tell('answered'),
			lateConnection: tell('late'),
			lineEnded: tell('line'),
			serviceTime: tell('time'),
		},
	});
	const openLink = (generation: number, on = registration()) => {
		const effect = { type: 'openChannel', attempt: generation, token: 'token', handshakeMs: 5000 } as const;
		runner.perform(generation, on, effect);
		return channels.at(-1) as Played;
	};
	const goOnline = (generation: number, on = registration()) => {
		const channel = openLink(generation, on);
		channel.say({ type: 'opened', clockSkewMs: null, localAddress: null });
		channel.say({ type: 'confirmed' });
		return channel;
	};
	const registers = (generation: number, kind: 'reusable' | 'connection') => {
		const credential = kind === 'reusable' ? ({ kind } as const) : ({ kind, token: 'before' } as const);
		const effect: LinkEffect = { type: 'register', attempt: 1, credential };
		runner.perform(generation, registration(), effect);
		return asked.at(-1) as (typeof asked)[number];
	};
	/** What was told since it was last asked, but for its last word where that is a time. */
	const news = async () => {
		await new Promise(setImmediate);
		return told.splice(0);
	};
	return { clock, runner, channels, news, openLink, goOnline, registers, storing, replacements, doubted };
}

const ISSUED = { ok: true, token: 'fresh', life: null, clockSkewMs: null };
const REFUSED = (code: 'credential-refused' | 'request-timeout') => ({
	ok: false,
	failure: failure(code, 'No.'),
	sent: 'yes',
	clockSkewMs: 400,
});

describe('heartbeats of a channel that follows another', () => {
	const beatsAt = (cadence: number, next: number) => {
		const { clock, goOnline, runner } = given();
		const first = goOnline(1, registration(cadence));
		// The first is spread over the cadence by chance, here half of it.
		clock.advance(cadence * 500 - 1);
		expect(first.sent).toEqual([]);
		clock.advance(1);
		expect(first.sent).toHaveLength(1);
		clock.advance(2000);
		const second = goOnline(2, registration(next));
		runner.perform(1, registration(cadence), { type: 'closeChannel', code: 1000 });
		for (let seconds = 1; seconds <= 120; seconds += 1) {
			clock.advance(1000);
			if (second.sent.length > 0) return [seconds, first.sent.length, first.told];
		}
		return null;
	};

	test('keep the beat of the one before', () => {
		expect(beatsAt(30, 30)).toEqual([28, 1, ['close 1000']]);
	});

	test('come no later than the shorter of the two cadences wants', () => {
		expect(beatsAt(30, 10)).toEqual([8, 1, ['close 1000']]);
		expect(beatsAt(10, 60)).toEqual([8, 1, ['close 1000']]);
	});

	test.each([30_000, 600_000])('are spread anew where the beat is lost already, for %i ms', (awayMs) => {
		const { clock, goOnline } = given();
		const first = goOnline(1);
		clock.advance(15_000);
		expect(first.sent).toHaveLength(1);
		first.say(ended());
		clock.advance(awayMs);
		const second = goOnline(1);
		clock.advance(14_999);
		expect(second.sent).toEqual([]);
		clock.advance(1);
		expect(second.sent).toHaveLength(1);
		expect(clock.pending).toBe(1);
	});
});

describe('what a channel says', () => {
	const frame = { type: 'text', text: '{"type":"a","id":7}' } as const;

	test('counts from the newest of its link; of one that was told to close, only frames and its end', async () => {
		const { goOnline, news, runner } = given();
		const [first, second] = [goOnline(1), goOnline(2, registration(30, 'boarding'))];
		await news();
		first.say({ type: 'frame', frame });
		expect(await news()).toEqual([['frame', { generation: 1, registration: registration(), overlaps: true }, frame]]);
		runner.perform(1, registration(), { type: 'closeChannel', code: 1000 });
		first.say({ type: 'frame', frame });
		first.say({ type: 'confirmed' });
		second.say({ type: 'frame', frame });
		const overlaps = (await news()).map(([name, arrival]) => [name, (arrival as { overlaps: boolean }).overlaps]);
		expect(overlaps).toEqual([
			['frame', true],
			['frame', true],
		]);
		first.say(ended());
		expect(await news()).toEqual([['line', 1, registration(), LINE, true]]);
		second.say({ type: 'frame', frame });
		expect((await news())[0]?.[1]).toMatchObject({ generation: 2, overlaps: false });
	});

	test('one that is opened anew ends the one before it, of which nothing is told', async () => {
		const { goOnline, openLink, news } = given();
		const first = goOnline(1);
		await news();
		openLink(1);
		expect(first.told).toEqual(['terminate']);
		first.say(ended());
		expect(await news()).toEqual([]);
	});

	test('its address is doubted where it ends before it counts, and only then', () => {
		const { goOnline, openLink, doubted } = given();
		goOnline(1).say(ended());
		const replaced = openLink(1);
		const early = openLink(1);
		replaced.say(ended());
		expect(doubted).toEqual([]);
		early.say(ended());
		expect(doubted).toEqual(['/ws/device']);
	});

	test('its end may be the work of another device, unless it is beside a link of its own [F693]', () => {
		const { goOnline, openLink, replacements } = given();
		const cut = { lifeMs: 1, withoutCloseFrame: true } as never;
		goOnline(1).say(ended(cut));
		goOnline(1).say({ ...(ended() as Extract<ChannelEvent, { type: 'ended' }>), closeCode: 1000 });
		goOnline(1).say(ended());
		const beside = goOnline(1);
		openLink(2);
		beside.say(ended(cut));
		expect(replacements).toEqual(['possibly', 'possibly', null, null]);
	});

	test('its end is told with its line, ends its heartbeats, and with it the frames overlap no more', async () => {
		const { clock, goOnline, openLink, news } = given();
		const channel = goOnline(1);
		await news();
		channel.say(ended());
		expect(clock.pending).toBe(0);
		const [line, event] = await news();
		expect(line).toEqual(['line', 1, registration(), LINE, false]);
		expect(event?.[2]).toMatchObject({
			type: 'channelEnded',
			attempt: 1,
			failure: LOST,
			closeCode: null,
			wasOpen: true,
		});
		openLink(1).say(ended(null));
		expect((await news())[0]?.[2]).toMatchObject({ type: 'channelEnded', wasOpen: false });
	});

	test('is answered where it is a ping of the deployment, and is no frame then', async () => {
		const { goOnline, news } = given({ pingKind: 'a' });
		const channel = goOnline(1);
		await news();
		for (const text of [frame.text, ' a\n', '{"type":"b"}'])
			channel.say({ type: 'frame', frame: { type: 'text', text } });
		expect(channel.sent).toEqual(['{"pong":7,"up":100,"n":1}', '{"pong":"","up":100,"n":2}']);
		expect((await news()).map(([name, , heard]) => [name, heard])).toEqual([
			['frame', { type: 'text', text: '{"type":"b"}' }],
		]);
	});

	test('is not answered without end where the service answers the answer with another ping [F640]', () => {
		const { clock, goOnline } = given({ pingKind: 'a' });
		const channel = goOnline(1);
		const flood = () => {
			const before = channel.sent.length;
			for (let count = 0; count < 100; count += 1) channel.say({ type: 'frame', frame });
			return channel.sent.length - before;
		};
		expect(flood()).toBe(20);
		clock.advance(1000);
		expect(flood()).toBe(1);
	});

	test('is acknowledged once it is stored, and not before', async () => {
		const { goOnline, news, storing } = given({ ackBody: '{"ack":"{id}"}' });
		const channel = goOnline(1);
		channel.say({ type: 'frame', frame });
		await news();
		expect(channel.sent).toEqual([]);
		storing.resolve();
		await news();
		expect(channel.sent).toEqual(['{"ack":7}']);
	});

	test('the time of the service in its upgrade is told, where there is one', async () => {
		const { openLink, news } = given();
		openLink(1).say({ type: 'opened', clockSkewMs: 0, serviceMs: 5, localAddress: null });
		expect(await news()).toEqual([['time', { skewMs: 0, serviceMs: 5 }, true]]);
		openLink(2).say({ type: 'opened', clockSkewMs: null, localAddress: null });
		expect(await news()).toEqual([]);
	});
});

test('a channel is opened as the settings and the machine have it', () => {
	const { clock, openLink } = given();
	const { options } = openLink(1, registration(60));
	expect(options).toMatchObject({
		url: new URL('wss://id.example/ws/device'),
		authorization: 'Connection token',
		handshakeMs: 5000,
		pingIntervalMs: 30_000,
		silenceLimitMs: 60_000,
		closeMs: 2000,
		userAgent: 'idv-agent/test',
		proxy: 'proxy.test:3128',
		workflowId: 'check-in',
		maxMessageBytes: 1000,
		sleptMs: clock.sleptMs,
	});
});

describe('a registration', () => {
	test('is told with its attempt, and the time that its answer tells', async () => {
		const { registers, news } = given();
		registers(1, 'reusable').answer({ ...ISSUED, clockSkewMs: 0, serviceMs: 5 });
		const [time, event] = await news();
		expect(time).toEqual(['time', { skewMs: 0, serviceMs: 5 }, true]);
		expect(event?.slice(1)).toMatchObject([1, { type: 'registered', attempt: 1, connection: { token: 'fresh' } }]);
		registers(1, 'reusable').answer(REFUSED('request-timeout'));
		const [doubted, failed] = await news();
		expect(doubted).toEqual(['time', { skewMs: 400 }, false]);
		expect(failed?.[2]).toMatchObject({ type: 'registerFailed', attempt: 1, timedOut: true, unsent: false });
	});

	test.each([
		[{ apiKeyFile: '/etc/key', basicFile: null }, 'reusable', /the one in \/etc\/key \(credential\.apiKeyFile\)/],
		[{ apiKeyFile: null, basicFile: '/etc/basic' }, 'reusable', /the one in \/etc\/basic \(credential\.basicFile\)/],
		[{ apiKeyFile: null, basicFile: null }, 'reusable', /the credential of this device was refused/],
		[{ apiKeyFile: '/etc/key', basicFile: null }, 'connection', /the one in \/etc\/key \(credential\.apiKeyFile\)/],
		[{ apiKeyFile: null, basicFile: null }, 'connection', /scan a new pairing code/],
	] as const)('that is refused says what to bring: %j, %s', async (files, kind, remedy) => {
		const { registers, news } = given({}, files);
		registers(1, kind).answer(REFUSED('credential-refused'));
		const [, event] = await news();
		expect(event?.[2]).toMatchObject({ failure: { remedy: expect.stringMatching(remedy) } });
	});

	test('of a link that is over is given up, unless it was made with a Connection: then it is seen through', async () => {
		const { registers, runner, news } = given();
		const abandoned = registers(1, 'reusable');
		runner.end(1);
		expect(abandoned.signal.aborted).toBe(true);
		abandoned.answer(ISSUED);
		expect(await news()).toEqual([]);
		const seenThrough = registers(2, 'connection');
		expect(seenThrough.authorization).toMatchObject({ scheme: 'Connection', credential: 'before' });
		runner.end(2);
		const drained = [runner.drained(), runner.drained()];
		expect(seenThrough.signal.aborted).toBe(false);
		seenThrough.answer(ISSUED);
		await Promise.all(drained);
		expect(await news()).toEqual([['late', registration(), expect.objectContaining({ token: 'fresh' })]]);
	});

	test('that is seen through is given up when the agent does not wait any longer', async () => {
		const { registers, runner, news } = given();
		const asked = registers(1, 'connection');
		runner.end(1);
		runner.abandon();
		expect(asked.signal.aborted).toBe(true);
		asked.answer(ISSUED);
		await runner.drained();
		expect(await news()).toEqual([]);
	});
});

describe('the end of a link', () => {
	test('takes its timer, its channel and its heartbeats along', () => {
		const { clock, channels, runner, goOnline } = given();
		goOnline(1);
		runner.perform(1, registration(), { type: 'wait', attempt: 1, delayMs: 1000 });
		expect(clock.pending).toBe(2);
		runner.end(1);
		expect([clock.pending, channels[0]?.told]).toEqual([0, ['terminate']]);
		runner.end(1);
	});

	test('leaves a channel that says goodbye, which is waited for', async () => {
		const { channels, runner, goOnline } = given();
		const channel = goOnline(1);
		runner.perform(1, registration(), { type: 'closeChannel', code: 1001 });
		runner.end(1);
		let isDrained = false;
		const drained = runner.drained().then(() => {
			isDrained = true;
		});
		await new Promise(setImmediate);
		expect([isDrained, channels[0]?.told]).toEqual([false, ['close 1001']]);
		channel.say(ended());
		await drained;
	});
});

test('only the newest timer of a link fires', async () => {
	const { clock, runner, news } = given();
	runner.perform(1, registration(), { type: 'wait', attempt: 1, delayMs: 1000 });
	runner.perform(1, registration(), { type: 'wait', attempt: 2, delayMs: 2000 });
	clock.advance(5000);
	expect((await news()).map(([, , event]) => event)).toMatchObject([{ type: 'timerFired', attempt: 2 }]);
});

test.each([
	['frame', null, 60, [60_000, 30_000, 60_000]],
	['frame', null, 2, [2000, 2000, 10_000]],
	['ping', null, 60, [60_000, 60_000, 120_000]],
	['frame', 0, 60, [60_000, 30_000, 0]],
	['frame', 7, undefined, [30_000, 5000, 10_000]],
	['frame', 20, 30, [30_000, 10_000, 20_000]],
	['frame', 1, 1, [1000, 1000, 2000]],
	['ping', 20, 600, [600_000, 10_000, 20_000]],
] as const)(
	'by %s, with a limit of %j s and a cadence of %j s, a line is watched so',
	(mode, limit, cadence, expected) => {
		const { heartbeatCadence: _, ...request } = registration().request;
		const settings = { heartbeatMode: mode, silenceLimitSeconds: limit } as const;
		const asked = {
			...registration(),
			request: cadence === undefined ? request : { ...request, heartbeatCadence: cadence },
		};
		const { cadenceMs, pingIntervalMs, silenceLimitMs } = livenessOf(asked, settings);
		expect([cadenceMs, pingIntervalMs, silenceLimitMs]).toEqual(expected);
	},
);
