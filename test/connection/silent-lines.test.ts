/** Real channels on which nothing passes any more after a while without a byte, and what is known of the line then. */
import { setImmediate as soon } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { failure } from '../../src/base/errors.ts';
import { type ChannelEvent, openChannel } from '../../src/connection/channel.edge.ts';
import { keepLine } from '../../src/connection/line.runner.ts';
import { DEFAULT_CHANNEL_PATH } from '../../src/protocol/endpoints.ts';
import { createSteppedClock } from '../harness/stepped-clock.ts';
import { givenService, registerDevice } from '../service/fixture.ts';

const PING_MS = 30_000;

test('notifications are at risk until it is known how often to ping a line that dies of silence [F623]', async () => {
	const service = await givenService();
	const token = await registerDevice(service, 'kiosk-1');
	const clock = createSteppedClock();
	const line = keepLine({ load: () => null, save: () => {} }, { info() {}, warn() {} });
	const facts = () => line.facts(clock.monotonicMs());

	/** Opens a channel and lets it die of silence: after its first ping, or once it has borne so many. */
	async function die(pingsBorne: number): Promise<void> {
		let answers = 0;
		let told = Promise.withResolvers<void>();
		const ended = Promise.withResolvers<Extract<ChannelEvent, { type: 'ended' }>>();
		openChannel(
			{
				url: new URL(DEFAULT_CHANNEL_PATH, service.url.replace(/^http/, 'ws')),
				authorization: `Connection ${token}`,
				userAgent: 'test',
				handshakeMs: 10 * PING_MS,
				pingIntervalMs: PING_MS,
				silenceLimitMs: 2 * PING_MS,
				clock,
			},
			(event) => {
				if (event.type === 'opened') line.opened(service.url, event.localAddress, clock.monotonicMs());
				if (event.type === 'answered') {
					answers += 1;
					told.resolve();
				}
				if (event.type === 'ended') ended.resolve(event);
			},
		);
		await told.promise;
		while (answers <= pingsBorne) {
			told = Promise.withResolvers();
			clock.advance(PING_MS);
			await told.promise;
		}
		service.goSilent(true);
		let isOver = false;
		const event = ended.promise.finally(() => {
			isOver = true;
		});
		// A channel looks at what has arrived before it takes a line for dead.
		for (; !isOver; clock.advance(1000)) await soon();
		const { failure } = await event;
		expect(failure.code).toBe('channel-silent');
		line.ended(await event, clock.monotonicMs());
		service.goSilent(false);
	}

	// A line that had borne as long a silence before died of something else.
	await die(2);
	expect(facts().warning).toBeNull();
	await die(0);
	expect(facts().warning).toMatchObject({
		code: 'notifications-at-risk',
		message: 'Notifications are at risk: the line was dead after 30 s of silence, which was noticed later.',
	});
	expect(line.facts(clock.monotonicMs() + 11 * 60_000).warning).toBeNull();
	await die(0);
	expect(facts()).toMatchObject({ idleTimeoutSeconds: 23, warning: { code: 'notifications-at-risk' } });
	expect(line.pingIntervalMs(service.url, PING_MS, PING_MS)).toBe(15_000);
});

test('they stay at risk until a line has lived longer than all that died before the ping that was learned [F865]', () => {
	const line = keepLine({ load: () => null, save: () => {} }, { info() {}, warn() {} });
	const says = (atS: number) => line.facts(1000 * atS).warning;
	const opens = (atS: number) => line.opened('https://id.example', '192.0.2.7', 1000 * atS);
	/** As something does that forgets a line after 12 s: the first ping after them is not answered. */
	const dies = (atS: number, lifeS: number, deadAfterS: number | null) => {
		const silent = {
			silenceMs: 0,
			longestSilenceMs: 0,
			inboundSilenceMs: 1000 * lifeS,
			sinceFrameMs: 1000 * lifeS,
			longestInboundMs: 0,
		};
		const deadAfterMs = deadAfterS === null ? null : 1000 * deadAfterS;
		const lived = { lifeMs: 1000 * lifeS, ...silent, withoutCloseFrame: true, deadAfterMs };
		const ended = { type: 'ended', failure: failure('channel-silent', 'Silent.'), closeCode: null } as const;
		line.ended({ ...ended, timedOut: true, line: { ...lived, saidGoodbye: false, sleptMs: 0 } }, 1000 * atS);
	};
	const AT_RISK = { code: 'notifications-at-risk' };
	opens(0);
	dies(90, 90, 30);
	expect(says(90)).toMatchObject(AT_RISK);
	opens(91);
	// Traffic kept this one for a while.
	dies(1291, 1200, 30);
	opens(1292);
	expect(line.facts(1_292_000)).toMatchObject({
		idleTimeoutSeconds: 23,
		warning: {
			...AT_RISK,
			message:
				'Notifications are at risk: the line was dead after 30 s of silence, and no line has lived long enough yet to show that more frequent pings help.',
		},
	});
	// Neither the window of recent cuts nor the silence of a line that is not known to be dead yet proves anything.
	line.answered(1000 * (1292 + 1199));
	expect(says(1292 + 1250)).toMatchObject(AT_RISK);
	dies(2600, 1308, 15);
	expect(says(2600)).toMatchObject({ ...AT_RISK, message: expect.stringContaining('after 15 s of silence') });
	opens(2601);
	dies(2661, 60, 15);
	opens(2662);
	line.answered(1000 * (2662 + 1308));
	expect(says(2662 + 1308)).toMatchObject(AT_RISK);
	line.answered(1000 * (2662 + 1309));
	expect(says(2662 + 1309)).toBeNull();
	// The line of a renewal takes nothing back, nor does one that dies of something else.
	opens(2662 + 1310);
	dies(2662 + 1320, 10, null);
	expect(says(2662 + 1320)?.code).not.toBe(AT_RISK.code);
});

test('so they are on channels that open and never answer a ping, which no ping keeps alive [F653]', () => {
	const line = keepLine({ load: () => null, save: () => {} }, { info() {}, warn() {} });
	const silent = {
		silenceMs: 0,
		longestSilenceMs: PING_MS,
		inboundSilenceMs: 2 * PING_MS,
		sinceFrameMs: 2 * PING_MS,
		longestInboundMs: 0,
	};
	const lived = { lifeMs: 2 * PING_MS, ...silent, withoutCloseFrame: true, deadAfterMs: null };
	const dies = (atMs: number) => {
		const ended = { type: 'ended', failure: failure('channel-silent', 'Silent.'), closeCode: null } as const;
		line.ended({ ...ended, timedOut: true, line: { ...lived, saidGoodbye: false, sleptMs: 0 } }, atMs);
	};
	const fails = (atMs: number) => {
		const ended = { type: 'ended', failure: failure('connect-timeout', 'None.'), closeCode: null } as const;
		line.ended({ ...ended, timedOut: true, line: null }, atMs);
	};
	dies(60_000);
	// An outage is no such line.
	fails(70_000);
	dies(180_000);
	expect(line.facts(180_000).warning).toBeNull();
	dies(240_000);
	expect(line.facts(240_000).warning).toMatchObject({
		code: 'notifications-at-risk',
		message: 'Notifications are at risk: 2 channels that were open have died of silence in 10 min.',
		remedy: expect.stringContaining('service.silenceLimitSeconds'),
	});
	expect(line.facts(900_000).warning).toBeNull();
});

test('an outage in which a young line dies, so that none can be opened for a while, teaches nothing of the line [F1530]', () => {
	const line = keepLine({ load: () => null, save: () => {} }, { info() {}, warn() {} });
	const silent = {
		silenceMs: 0,
		longestSilenceMs: 0,
		inboundSilenceMs: 90_000,
		sinceFrameMs: 90_000,
		longestInboundMs: 0,
	};
	const lived = { lifeMs: 90_000, ...silent, withoutCloseFrame: true, deadAfterMs: 17_000 };
	const dies = (atMs: number) => {
		const ended = { type: 'ended', failure: failure('channel-silent', 'Silent.'), closeCode: null } as const;
		line.ended({ ...ended, timedOut: true, line: { ...lived, saidGoodbye: false, sleptMs: 0 } }, atMs);
	};
	for (let outage = 0; outage < 3; outage += 1) {
		const atMs = 1000 + 600_000 * outage;
		line.opened('https://id.example', '192.0.2.7', atMs);
		dies(atMs + 90_000);
		const none = { type: 'ended', failure: failure('connect-timeout', 'None.'), closeCode: null } as const;
		for (const afterMs of [100_000, 110_000]) line.ended({ ...none, timedOut: true, line: null }, atMs + afterMs);
		line.opened('https://id.example', '192.0.2.7', atMs + 120_000);
		const { warning, idleTimeoutSeconds } = line.facts(atMs + 120_000);
		expect([warning?.code === 'notifications-at-risk', idleTimeoutSeconds]).toEqual([false, null]);
	}
});

test('after one death in a short outage notifications are at risk until a line has lived for longer [F1537]', () => {
	const line = keepLine({ load: () => null, save: () => {} }, { info() {}, warn() {} });
	const silent = {
		silenceMs: 0,
		longestSilenceMs: 0,
		inboundSilenceMs: 60_000,
		sinceFrameMs: 60_000,
		longestInboundMs: 0,
	};
	const lived = { lifeMs: 61_000, ...silent, withoutCloseFrame: true, deadAfterMs: 13_000 };
	const says = (atMs: number) => line.facts(atMs).warning?.code ?? null;
	const dies = (atMs: number) => {
		const ended = { type: 'ended', failure: failure('channel-silent', 'Silent.'), closeCode: null } as const;
		line.ended({ ...ended, timedOut: true, line: { ...lived, saidGoodbye: false, sleptMs: 0 } }, atMs);
	};
	line.opened('https://id.example', '192.0.2.7', 0);
	dies(61_000);
	line.opened('https://id.example', '192.0.2.7', 65_000);
	line.answered(65_000 + 60_000);
	expect(says(126_000)).toBe('notifications-at-risk');
	line.answered(65_000 + 90_000);
	expect(says(156_000)).toBeNull();
	// A second one like it teaches how often to ping all the same.
	dies(400_000);
	expect(line.facts(400_000)).toMatchObject({ idleTimeoutSeconds: 10, warning: { code: 'notifications-at-risk' } });
});
