import { describe, expect, onTestFinished, test } from 'vitest';
import type { Heartbeat } from '../../src/protocol/channel.ts';
import { ENDPOINTS } from '../../src/protocol/endpoints.ts';
import type { Status } from '../../src/protocol/local-api.ts';
import type { EmbeddedService } from '../../src/service/embedded-service.runner.ts';
import {
	type AgentSetup,
	DEVICE_ID,
	givenAgent,
	givenPairedAgent,
	type RunningAgent,
	registrations,
	watchOffline,
} from '../harness/harness.ts';
import { givenService } from '../service/fixture.ts';

const CHANNEL = '/ws/device';
const REGISTER = { method: 'POST', path: ENDPOINTS.deviceConnection };

/** Heartbeats as the service gets them, from the first on. */
function collectHeartbeats(service: EmbeddedService): { readonly all: readonly Heartbeat[]; next(): Promise<unknown> } {
	const all: Heartbeat[] = [];
	service.on('heartbeat', ({ heartbeat }) => void all.push(heartbeat));
	return { all, next: () => service.waitFor('heartbeat') };
}

/** A device with an API key, online without anybody's help. */
async function givenDeviceWithKey(service: EmbeddedService, setup: AgentSetup = {}) {
	const device = await givenAgent(setup);
	const apiKeyFile = await device.home.secretFile('key', service.credentials.apiKey);
	await device.home.writeSettings({
		baseUrl: service.url,
		workflowId: 'check-in',
		...setup.settings,
		credential: { apiKeyFile },
	});
	await device.daemon.reload();
	await device.untilLive('check-in');
	return device;
}

/** Lets wait after wait pass until a person is asked; each attempt is refused. */
async function passRefusals(device: RunningAgent): Promise<Status> {
	for (let refusal = 0; refusal < 100; refusal += 1) {
		const { state, channel } = device.agent.status();
		if (state === 'blocked') return device.agent.status();
		const next = device.untilStatus((status) => {
			const { nextAttemptAt } = status.channel;
			return nextAttemptAt !== null && nextAttemptAt !== channel.nextAttemptAt;
		});
		await device.passWait();
		await next;
	}
	throw new Error('No person was ever asked.');
}

describe('heartbeats', () => {
	test('leave at the cadence, counted from one, the first at any moment of it', async () => {
		const service = await givenService();
		const heartbeats = collectHeartbeats(service);
		const first = heartbeats.next();
		const device = await givenPairedAgent(service, { settings: { heartbeatCadence: 10 }, random: () => 0.7 });
		device.clock.advance(6_999);
		expect(heartbeats.all).toEqual([]);
		device.clock.advance(1);
		await first;
		for (let count = 2; count <= 4; count += 1) {
			const next = heartbeats.next();
			device.clock.advance(9_999);
			expect(heartbeats.all.length).toBe(count - 1);
			device.clock.advance(1);
			await next;
		}
		expect(heartbeats.all.map(({ sequence }) => sequence)).toEqual([1, 2, 3, 4]);
		expect(heartbeats.all.map(({ uptimeSeconds }) => uptimeSeconds)).toEqual([7, 17, 27, 37]);
		expect(heartbeats.all[0]).toMatchObject({ type: 'heartbeat', deviceId: DEVICE_ID, workflowId: 'check-in' });
		expect(device.agent.status().channel.lastHeartbeatAt).toBe(heartbeats.all[3]?.sentAt);
		expect(device.agent.status().channel.lastAnswerAt).toMatch(/^20\d\d-/);
	});

	test('come once after a stall, not in a burst, and go on at the old times', async () => {
		const service = await givenService();
		const heartbeats = collectHeartbeats(service);
		const first = heartbeats.next();
		const device = await givenPairedAgent(service, { settings: { heartbeatCadence: 10 } });
		device.clock.advance(5_000);
		await first;
		const late = heartbeats.next();
		device.clock.stall(35_000);
		await late;
		const next = heartbeats.next();
		device.clock.advance(5_000);
		await next;
		expect(heartbeats.all.map(({ uptimeSeconds }) => uptimeSeconds)).toEqual([5, 40, 45]);
	});

	test('count anew on a new channel, name its workflow, and keep the beat', async () => {
		const service = await givenService();
		const heartbeats = collectHeartbeats(service);
		const device = await givenPairedAgent(service);
		const first = heartbeats.next();
		device.clock.advance(15_000);
		await first;
		device.clock.advance(10_000);
		await device.agent.setWorkflow('boarding');
		await device.untilLive('boarding');
		const next = heartbeats.next();
		device.clock.advance(19_999);
		expect(heartbeats.all).toHaveLength(1);
		device.clock.advance(1);
		await next;
		expect(heartbeats.all.at(-1)).toMatchObject({ sequence: 1, workflowId: 'boarding', uptimeSeconds: 45 });
	});

	test('can be left to pings or switched off', async () => {
		for (const heartbeatMode of ['ping', 'off']) {
			const service = await givenService();
			const heartbeats = collectHeartbeats(service);
			const device = await givenPairedAgent(service, { settings: { service: { heartbeatMode } } });
			device.clock.advance(300_000);
			service.notify({ type: 'after' });
			await device.untilEvent(({ kind }) => kind === 'after');
			expect(heartbeats.all).toEqual([]);
			expect(device.agent.status().channel.lastHeartbeatAt).toBeNull();
			await device.stop();
		}
	});
});

describe('an outage', () => {
	test('by a restart of the service ends by itself, with a gap event and one reconnect [F025]', async () => {
		const service = await givenService();
		const device = await givenPairedAgent(service);
		const gone = device.untilState('offline');
		await service.restart();
		const away = await gone;
		expect(away).toMatchObject({ problem: { code: 'connection-lost' }, workflow: { live: null, wanted: 'check-in' } });
		expect(away.sentence).toMatch(/^Offline for 0 s: .*1012.*retries automatically\.$/);
		expect(away.channel).toMatchObject({ state: 'connectWait', reconnects: 0 });
		await device.passWait();
		const back = await device.untilLive('check-in');
		expect(back).toMatchObject({ state: 'online', problem: null, channel: { reconnects: 1, nextAttemptAt: null } });
		expect(registrations(service)).toEqual([201]);
		const gaps = (await device.events()).filter(({ type }) => type === 'gap');
		expect(gaps.map(({ content }) => JSON.parse(content).from === null)).toEqual([true, false]);
	});

	test('is bridged by as many attempts as it takes, each after a wait', async () => {
		const service = await givenService();
		const device = await givenPairedAgent(service);
		const back = Promise.withResolvers<void>();
		const gone = device.untilState('offline');
		const restarted = service.restart({ until: back.promise, hard: true });
		await gone;
		for (let attempt = 0; attempt < 4; attempt += 1) {
			const { channel } = await device.untilStatus((status) => status.channel.nextAttemptAt !== null);
			const failed = device.untilStatus(
				(status) => status.channel.nextAttemptAt !== null && status.channel.nextAttemptAt !== channel.nextAttemptAt,
			);
			await device.passWait();
			expect(await failed).toMatchObject({ state: 'offline', problem: { code: 'service-unreachable' } });
		}
		device.clock.advance(3_000);
		back.resolve();
		await restarted;
		await device.passWait();
		await device.untilState('online');
		expect(device.agent.status().channel.reconnects).toBe(1);
	});

	test('leaves a gap that begins where something may have been lost, not where the last message was', async () => {
		const service = await givenService();
		const device = await givenPairedAgent(service);
		device.clock.advance(3 * 3_600_000);
		const wentAtMs = device.clock.wallMs();
		const gone = device.untilState('offline');
		service.dropSockets();
		await gone;
		await device.passWait();
		await device.untilState('online');
		const { from, to } = JSON.parse((await device.events()).findLast(({ type }) => type === 'gap')?.content ?? '');
		// At a cadence of 30 s a dead channel is noticed after 60 s.
		expect(Date.parse(from)).toBe(wentAtMs - 60_000);
		expect(Date.parse(to)).toBe(device.clock.wallMs());
	});

	test('leaves a gap that begins at the last message when that was later', async () => {
		const service = await givenService();
		const device = await givenPairedAgent(service);
		device.clock.advance(3_600_000);
		service.notify({ type: 'late' });
		await device.untilEvent(({ kind }) => kind === 'late');
		const heardAtMs = device.clock.wallMs();
		device.clock.advance(10_000);
		const gone = device.untilState('offline');
		service.dropSockets();
		await gone;
		await device.passWait();
		await device.untilState('online');
		const { from } = JSON.parse((await device.events()).findLast(({ type }) => type === 'gap')?.content ?? '');
		expect(Date.parse(from)).toBe(heardAtMs);
	});

	test('by a service that goes silent is noticed, although the socket stays open', async () => {
		const service = await givenService();
		const device = await givenPairedAgent(service, {
			settings: { heartbeatCadence: 1, service: { silenceLimitSeconds: 2 } },
		});
		service.goSilent(true);
		const away = await device.untilState('offline');
		expect(away.problem).toMatchObject({ code: 'channel-silent' });
		service.goSilent(false);
		await device.passWait();
		await device.untilState('online');
	});

	test('by a suspend of the machine is noticed at the next ping, and the gap spans the time asleep', async () => {
		const service = await givenService();
		const running = await givenPairedAgent(service, { settings: { heartbeatCadence: 1 } });
		const asleepMs = 2 * 60 * 60 * 1000;
		const beforeMs = running.clock.wallMs();
		running.clock.sleep(asleepMs);
		const { problem } = await running.untilState('offline');
		expect(problem).toMatchObject({ code: 'connection-lost', message: expect.stringContaining('slept for 7200 s') });
		await running.passWait();
		await running.untilState('online');
		const gap = await running.untilEvent(({ type, at }) => type === 'gap' && Date.parse(at) > beforeMs);
		const { from, to } = JSON.parse(gap.content);
		expect(Date.parse(from)).toBeLessThanOrEqual(beforeMs);
		expect(Date.parse(to)).toBeGreaterThanOrEqual(beforeMs + asleepMs);
	});

	test('again and again is reported as such, whatever cuts the channel [F145]', async () => {
		const service = await givenService();
		const device = await givenPairedAgent(service);
		for (const end of [
			() => service.dropSockets(),
			() => service.closeChannels(1000, ''),
			() => service.closeChannels(1011, ''),
		]) {
			const gone = device.untilState('offline');
			end();
			await gone;
			await device.passWait();
			await device.untilState('online');
		}
		const { channel, warnings } = device.agent.status();
		expect(channel.recentCuts).toMatchObject({ count: 3, windowSeconds: 600 });
		expect(warnings).toMatchObject([
			{
				code: 'channel-flapping',
				message: expect.stringMatching(/^The channel was cut 3 times in 10 min, each after \d+ s/),
			},
		]);
		expect(device.log.filter(({ code }) => code === 'channel-flapping')).toHaveLength(1);
		device.clock.advance(11 * 60_000);
		expect(device.agent.status()).toMatchObject({ channel: { recentCuts: null }, warnings: [] });
	});

	test('by what a wrong setting causes ends as soon as that setting is right, however long the wait is', async () => {
		const service = await givenService();
		const device = await givenPairedAgent(service);
		service.failNext(CHANNEL, { status: 503, headers: { 'retry-after': '600' } });
		const gone = device.untilState('offline');
		service.dropSockets();
		await gone;
		await device.passWait();
		await device.untilStatus(({ problem }) => problem?.code === 'service-overloaded');
		await device.home.writeSettings({ log: { level: 'debug' } });
		await device.daemon.reload();
		expect(device.agent.status().state).toBe('offline');
		await device.home.writeSettings({ service: { kindPointer: '/kind' } });
		await device.daemon.reload();
		await device.untilState('online');
	});

	test('ends at once when a person asks to reconnect', async () => {
		const service = await givenService();
		const device = await givenPairedAgent(service);
		const gone = device.untilState('offline');
		await service.restart();
		await gone;
		device.agent.reconnect();
		await device.untilState('online');
		expect(device.agent.status().channel.reconnects).toBe(1);
	});

	test('at the start is told, and ends when the service is there [F065]', async () => {
		const service = await givenService();
		const first = await givenPairedAgent(service);
		await first.stop();
		const back = Promise.withResolvers<void>();
		const restarted = service.restart({ until: back.promise, hard: true });
		const device = await givenAgent({ home: first.home });
		const status = await device.untilStatus(({ problem }) => problem !== null);
		expect(status).toMatchObject({ state: 'connecting', problem: { code: 'service-unreachable' } });
		expect(status.sentence).toMatch(/^Not online yet: /);
		back.resolve();
		await restarted;
		await device.passWait();
		await device.untilState('online');
	});
});

describe('a refused Connection', () => {
	test('is replaced at the first refusal when there is an API key [F017]', async () => {
		const service = await givenService();
		const device = await givenDeviceWithKey(service);
		service.failNext(CHANNEL, { status: 401 });
		const gone = device.untilState('offline');
		service.dropSockets();
		await gone;
		await device.passWait();
		const refused = await device.untilStatus(({ problem }) => problem?.code === 'credential-refused');
		expect(refused).toMatchObject({ state: 'offline', channel: { state: 'registerWait' } });
		await device.passWait();
		await device.untilState('online');
		expect(registrations(service)).toEqual([201, 201]);
		await device.stop();
		expect((await device.home.untilSaved()).connections).toHaveLength(1);
	});

	test('is replaced as well where every refused handshake is a 403, as with Starlette and uvicorn', async () => {
		const service = await givenService();
		const device = await givenDeviceWithKey(service);
		// A channel counts after 3 s.
		device.clock.advance(4000);
		service.failNext(CHANNEL, { status: 403 });
		const gone = device.untilState('offline');
		service.dropSockets();
		await gone;
		await device.passWait();
		await device.untilStatus(({ problem }) => problem?.code === 'access-forbidden');
		await device.passWait();
		await device.untilState('online');
		expect(registrations(service)).toEqual([201, 201]);
		expect(device.statuses.filter(({ state }) => state === 'blocked')).toEqual([]);
	});

	test('by close code 1008 is replaced as well', async () => {
		const service = await givenService();
		const device = await givenDeviceWithKey(service);
		device.clock.advance(4000);
		const gone = device.untilState('offline');
		service.closeChannels(1008, 'expired');
		await gone;
		await device.passWait();
		await device.untilState('online');
		expect(registrations(service)).toEqual([201, 201]);
		expect(device.statuses.filter(({ state }) => state === 'blocked')).toEqual([]);
	});

	test('for twelve minutes is "needs a person", keeps the token, and ends without one when it is accepted again [F018]', async () => {
		const service = await givenService();
		const device = await givenPairedAgent(service);
		// A channel counts after 3 s.
		device.clock.advance(4000);
		const token = await device.home.savedToken();
		// At these waits the twelfth is the first after twelve minutes.
		service.failNext(CHANNEL, { status: 401 }, 12);
		const gone = device.untilState('offline');
		service.dropSockets();
		await gone;
		const goneAtMs = device.clock.monotonicMs();
		const blocked = await passRefusals(device);
		const lastedMinutes = (device.clock.monotonicMs() - goneAtMs) / 60_000;
		expect(lastedMinutes).toBeGreaterThanOrEqual(12);
		expect(lastedMinutes).toBeLessThanOrEqual(15);
		expect(blocked.sentence).toMatch(/^Offline for .*401.*Pair this device again/);
		expect(await device.home.filesWith(token)).toContain('state.json');
		const minutes = (Date.parse(blocked.channel.nextAttemptAt ?? '') - device.clock.wallMs()) / 60_000;
		expect(minutes).toBeGreaterThanOrEqual(5);
		expect(minutes).toBeLessThanOrEqual(15);
		await device.passWait();
		expect(await device.untilState('online')).toMatchObject({ problem: null });
		expect((await device.home.untilSaved()).connections[0]?.token).toBe(token);
	});

	test('by a message is given up at once, and a device with an API key registers again [F076]', async () => {
		const service = await givenService();
		const device = await givenDeviceWithKey(service);
		const gone = device.untilState('offline');
		service.revoke(DEVICE_ID, { announce: true });
		expect(await gone).toMatchObject({ problem: { code: 'connection-revoked' } });
		await device.passWait();
		await device.untilState('online');
		expect(registrations(service)).toEqual([201, 201]);
	});

	test('by a message leaves a device without another credential to a person [F077]', async () => {
		const service = await givenService();
		const device = await givenPairedAgent(service);
		// A channel counts after 3 s.
		device.clock.advance(4000);
		const gone = device.untilState('offline');
		service.revoke(DEVICE_ID, { announce: true });
		await gone;
		const blocked = await passRefusals(device);
		expect(blocked.sentence).toContain('revoked');
		expect((await device.home.untilSaved()).connections).toHaveLength(1);
		expect(blocked.sentence).toContain('Pair this device again with a new code (idv-agent pair)');
		// A new code helps at once, as the sentence says it: without --replace.
		await device.pair(service.createPairingCode('check-in').url);
		await device.untilState('online');
	});

	test('by a message is not acted on where that is switched off', async () => {
		const service = await givenService();
		const device = await givenPairedAgent(service, { settings: { service: { actOnMessages: false } } });
		service.notify({ type: 'connection.revoked' });
		service.notify({ type: 'workflow.changed', workflowId: 'boarding' });
		service.notify({ type: 'after' });
		await device.untilEvent(({ kind }) => kind === 'after');
		expect(device.agent.status()).toMatchObject({ state: 'online', workflow: { wanted: 'check-in' } });
		expect((await device.events()).map(({ kind }) => kind)).toEqual([
			'gap',
			'connection.revoked',
			'workflow.changed',
			'after',
		]);
	});
});

describe('notifications', () => {
	test('are kept once, whichever channel brings them and however often', async () => {
		const service = await givenService();
		const device = await givenPairedAgent(service);
		service.notify({ type: 'session.started', id: 'n-1', sessionId: 'abc' });
		service.notify({ type: 'session.started', id: 'n-1', sessionId: 'abc' });
		await device.untilEvent(({ kind }) => kind === 'session.started');
		const gone = device.untilState('offline');
		service.dropSockets();
		await gone;
		await device.passWait();
		await device.untilState('online');
		service.notify({ type: 'session.started', id: 'n-1', sessionId: 'abc' });
		service.notify({ type: 'after' });
		await device.untilEvent(({ kind }) => kind === 'after');
		expect((await device.events()).map(({ kind }) => kind)).toEqual(['gap', 'session.started', 'gap', 'after']);
	});

	test('with one id are told apart by their contents, but not while two channels may word one in their own way', async () => {
		const service = await givenService();
		const device = await givenPairedAgent(service);
		const notify = (version: number) => service.notify({ type: 'session.started', id: 'n-1', version });
		notify(1);
		notify(2);
		const release = service.hold(CHANNEL);
		const closed = service.waitFor('channel-closed');
		await device.agent.setWorkflow('check-out');
		await release.received;
		notify(3);
		service.notify({ type: 'between' });
		await device.untilEvent(({ kind }) => kind === 'between');
		release();
		await device.untilLive('check-out');
		await closed;
		notify(4);
		await device.untilEvent(({ content }) => content.includes('"version":4'));
		const versions = (await device.events()).flatMap(({ content }) => /"version":(\d)/.exec(content)?.[1] ?? []);
		expect(versions).toEqual(['1', '2', '4']);
	});

	test('are kept whatever they are: text, garbage, bytes [F029]', async () => {
		const service = await givenService();
		const device = await givenPairedAgent(service);
		service.sendRaw('hello');
		service.sendRaw('{"type":');
		service.sendRaw(new Uint8Array([0, 255]), { binary: true });
		service.sendRaw('[1,2]');
		service.sendRaw('null');
		await device.untilEvent(({ content }) => content === 'null');
		expect((await device.events()).map(({ kind, format, content }) => [kind, format, content])).toEqual([
			['gap', 'json', expect.any(String)],
			['text', 'text', 'hello'],
			['text', 'text', '{"type":'],
			['binary', 'binary', 'AP8='],
			['unknown', 'json', '[1,2]'],
			['unknown', 'json', 'null'],
		]);
		expect(device.agent.status().state).toBe('online');
	});

	test('that come in a burst change the status once in a while, and then to the newest of them', async () => {
		const service = await givenService();
		const device = await givenPairedAgent(service);
		service.notify({ type: 'before' });
		await device.untilEvent(({ kind }) => kind === 'before');
		device.clock.advance(250);
		const seen: (string | null)[] = [];
		onTestFinished(device.agent.onStatus(() => seen.push(device.agent.status().newestEventId)));
		const ids: string[] = [];
		for (const kind of ['n-1', 'n-2', 'n-3']) {
			service.notify({ type: kind });
			ids.push((await device.untilEvent((event) => event.kind === kind)).id);
		}
		expect(seen).toEqual(ids.slice(0, 1));
		device.clock.advance(100);
		expect(seen).toEqual([ids[0], ids[2]]);
	});

	test('that the service sends before it has read the goodbye of a channel are not lost', async () => {
		const service = await givenService();
		const device = await givenPairedAgent(service);
		// In the very turn in which the device has moved the service still knows the old channel.
		let reached = 0;
		const off = device.agent.onStatus(() => {
			if (device.agent.status().workflow.live !== 'boarding' || reached > 0) return;
			reached = service.notify({ type: 'last.words' }, { workflowId: 'check-in' });
		});
		await device.agent.setWorkflow('boarding');
		const event = await device.untilEvent(({ kind }) => kind === 'last.words');
		off();
		expect(reached).toBe(1);
		expect(event.workflowId).toBe('check-in');
	});

	test('of a service that the device has left by unpairing are not kept any more', async () => {
		const service = await givenService();
		const device = await givenPairedAgent(service);
		const left = service.waitFor('device-offline');
		let reached = 0;
		const off = device.agent.onStatus(() => {
			if (device.agent.status().state === 'unpaired' && reached === 0) reached = service.notify({ type: 'late' });
		});
		await device.agent.unpair();
		await left;
		off();
		expect(reached).toBe(1);
		await device.stop();
		expect(await device.home.filesWith('late')).toEqual([]);
	});
});

describe('the end', () => {
	/** It comes within 3 s; the rest is for a machine that is busy with other tests. */
	const ENDED_WITHIN_MS = 6000;

	test('closes the channel with 1001 and leaves the Connection for the next start, which asks for nothing', async () => {
		const service = await givenService();
		const device = await givenPairedAgent(service);
		const closed = service.waitFor('channel-closed');
		const startedAt = performance.now();
		await device.stop();
		expect(performance.now() - startedAt).toBeLessThan(ENDED_WITHIN_MS);
		expect(await closed).toMatchObject({ code: 1001 });
		const again = await givenAgent({ home: device.home });
		expect(await again.untilLive('check-in')).toMatchObject({ deviceId: DEVICE_ID, channel: { reconnects: 0 } });
		expect(registrations(service)).toEqual([201]);
	});

	test('comes within 3 s even when the service does not answer the goodbye', async () => {
		const service = await givenService();
		const device = await givenPairedAgent(service);
		service.goSilent(true);
		const startedAt = performance.now();
		await device.stop();
		expect(performance.now() - startedAt).toBeLessThan(ENDED_WITHIN_MS);
		service.goSilent(false);
	});

	test('cuts off a registration and a handshake that are under way', async () => {
		const service = await givenService();
		const device = await givenPairedAgent(service);
		const releaseHandshake = service.hold(CHANNEL);
		const gone = device.untilState('offline');
		service.dropSockets();
		await gone;
		await device.passWait();
		await releaseHandshake.received;
		const releaseRegistration = service.hold(REGISTER);
		await device.agent.setWorkflow('boarding');
		await releaseRegistration.received;
		const stopped = device.stop();
		await device.untilStatus(({ channel }) => channel.state === 'closed');
		device.clock.advance(2000);
		await stopped;
		releaseHandshake();
		releaseRegistration();
	});
});

describe('a Connection that does not say how long it lives', () => {
	const OPAQUE = { connectionTtlSeconds: 1000, dialect: { connectionForm: 'opaque' } } as const;

	test('is renewed at 80 % of the life that the settings state, without a moment offline', async () => {
		const service = await givenService(OPAQUE);
		const device = await givenPairedAgent(service, { settings: { service: { connectionLifeSeconds: 1000 } } });
		const offline = watchOffline(service);
		for (let renewal = 1; renewal <= 2; renewal += 1) {
			const before = await device.home.savedToken();
			device.clock.advance(799_000);
			expect(registrations(service)).toHaveLength(renewal);
			const closed = service.waitFor('channel-closed');
			device.clock.advance(52_000);
			await closed;
			expect(registrations(service)).toHaveLength(renewal + 1);
			await device.home.untilSaved(({ connections }) => connections[0]?.token !== before);
		}
		expect(offline).toEqual([]);
	});

	test('is renewed in time after the machine has slept: the sleep is a part of its life', async () => {
		const service = await givenService(OPAQUE);
		const device = await givenPairedAgent(service, {
			settings: { heartbeatCadence: 1, service: { connectionLifeSeconds: 1000 } },
		});
		device.clock.sleep(600_000);
		// The next ping shows that the machine has slept.
		await device.untilState('offline');
		await device.passWait();
		await device.untilState('online');
		expect(registrations(service)).toEqual([201]);
		const renewed = service.waitFor('request');
		device.clock.advance(255_000);
		expect(await renewed).toMatchObject({ path: ENDPOINTS.deviceConnection, status: 201 });
	});

	test('is renewed as soon as the settings say so, also one that is old already', async () => {
		const service = await givenService(OPAQUE);
		const device = await givenPairedAgent(service);
		device.clock.advance(900_000);
		expect(registrations(service)).toEqual([201]);
		await device.home.writeSettings({ service: { connectionLifeSeconds: 1000 } });
		const closed = service.waitFor('channel-closed');
		await device.daemon.reload();
		device.clock.advance(1);
		await closed;
		expect(registrations(service)).toEqual([201, 201]);
	});

	test('is renewed later once the settings state a longer life [F1991]', async () => {
		const service = await givenService(OPAQUE);
		const device = await givenPairedAgent(service, { settings: { service: { connectionLifeSeconds: 1000 } } });
		await device.home.writeSettings({ service: { connectionLifeSeconds: 2000 } });
		await device.daemon.reload();
		const codes = [1_599_000, 102_000].map((passMs) => {
			device.clock.advance(passMs);
			return device.agent.status().summary.code;
		});
		expect(codes).toEqual(['online', 'online-renewing']);
	});
});

test.each([401, 403] as const)(
	'a new Connection that the channel refuses (%i) points at the settings of the channel, and not at another code',
	async (channelRefusalStatus) => {
		const service = await givenService({ dialect: { channelAuth: 'query', channelRefusalStatus } });
		const device = await givenAgent();
		await device.pair(service.createPairingCode('check-in').url);
		const { problem } = await device.untilStatus((status) => status.problem !== null, 'refusal');
		expect(problem?.remedy).toMatch(
			/service\.channelAuth, service\.queryName, service\.subprotocol or service\.channelPath .*idv probe/,
		);
		expect(problem?.remedy).not.toContain('--replace');
		await device.home.writeSettings({ service: { channelAuth: 'query' } });
		await device.daemon.reload();
		device.agent.reconnect();
		await device.untilLive('check-in');
		expect(registrations(service)).toEqual([201]);
	},
);
