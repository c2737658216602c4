/** A service that permits one channel of a device at a time. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Duplex } from 'node:stream';
import { describe, expect, onTestFinished, test } from 'vitest';
import { type WebSocket, WebSocketServer } from 'ws';
import { givenAgent, givenHome, givenPairedAgent, type RunningAgent, registrations } from '../harness/harness.ts';
import { createSteppedClock } from '../harness/stepped-clock.ts';
import { givenService } from '../service/fixture.ts';

describe('a service that refuses a second channel of a device', () => {
	test('has it move, and renew, with less than 3 s offline, and is named for it [F479]', async () => {
		const service = await givenService({ oneChannelHeldSeconds: 60 });
		const device = await givenPairedAgent(service);
		for (const workflow of ['boarding', 'lounge']) {
			const fromMs = device.clock.monotonicMs();
			const first = device.statuses.length;
			const closed = service.waitFor('channel-closed');
			await device.agent.setWorkflow(workflow);
			const told = await device.untilStatus(({ problem }) => problem?.code === 'channel-occupied');
			expect(told.problem).toMatchObject({ recovers: true, message: expect.stringContaining('one channel') });
			await closed;
			device.clock.advance(700);
			await device.untilLive(workflow);
			expect(device.clock.monotonicMs() - fromMs).toBeLessThan(3000);
			expect(device.statuses.slice(first).map(({ state }) => state)).not.toContain('blocked');
		}
		expect(registrations(service)).toEqual([201, 201, 201]);
	});

	test.each([1000, 1008, 4000, 4401])(
		'by ending the new one with %i once it is open has it back at once [F695]',
		async (code) => {
			const service = await givenService();
			const device = await givenPairedAgent(service);
			await device.agent.setWorkflow('boarding');
			await device.untilLive('boarding');
			const fromMs = device.clock.monotonicMs();
			service.closeChannels(code, 'one channel');
			const { problem } = await device.untilState('offline');
			expect(problem).toMatchObject({ code: 'channel-occupied', recovers: true });
			await device.passWait();
			await device.untilLive('boarding');
			expect(device.clock.monotonicMs() - fromMs).toBeLessThan(3000);
			expect(registrations(service)).toEqual([201, 201]);
		},
	);

	test('by ending the old one with the registration keeps the workflow that it has registered, though the command fails [F1336]', async () => {
		const service = await givenService();
		const device = await givenPairedAgent(service);
		service.on('registered', () => service.closeChannels(1008, 'replaced'));
		service.failNext('/ws/device', { status: 503 }, 2);
		const setting = device.agent.setWorkflow('boarding', { waitMs: 60_000 });
		await expect(setting).rejects.toMatchObject({ failure: { code: expect.any(String) } });
		expect(device.agent.status().workflow.wanted).toBe('boarding');
		for (let left = 4; left > 0 && device.agent.status().state !== 'online'; left -= 1) {
			await device.passWait();
			await device.untilStatus(({ state, channel }) => state === 'online' || channel.nextAttemptAt !== null);
		}
		await device.untilLive('boarding');
	});

	test('by cutting the new one at once still has workflow set succeed [F614]', async () => {
		const service = await givenService();
		const device = await givenPairedAgent(service);
		service.replyThenDrop('/ws/device', 1);
		const set = device.agent.setWorkflow('boarding', { waitMs: 30_000 });
		const told = await device.untilStatus(({ problem }) => problem !== null);
		expect(told.problem).toMatchObject({ code: 'channel-occupied', recovers: true });
		await device.untilLogged((line) => line.msg === 'wait' && line['generation'] === 2);
		device.clock.advance(700);
		await set;
		expect(device.agent.status().workflow.live).toBe('boarding');
	});

	test('and that still refuses the new one gets the old one back at once', async () => {
		const service = await givenService();
		const device = await givenPairedAgent(service);
		service.failNext('/ws/device', { status: 409 }, 5);
		const fromMs = device.clock.monotonicMs();
		await device.agent.setWorkflow('boarding');
		await device.untilState('offline');
		for (const [attempt, waitMs] of [
			[3, 700],
			[5, 700],
			[7, 700],
			[9, 400],
		] as const) {
			await device.untilLogged(
				(line) => line.msg === 'wait' && line['generation'] === 2 && line['attempt'] === attempt,
			);
			device.clock.advance(waitMs);
		}
		const back = await device.untilState('online');
		expect(back.workflow).toMatchObject({ live: 'check-in', wanted: 'boarding' });
		expect(device.clock.monotonicMs() - fromMs).toBeLessThan(3000);
		// The move is tried again beside it.
		device.clock.advance(30_000);
		await device.untilLive('boarding');
	});

	test('after a kill is tried every 5 to 30 s while the place is still held', async () => {
		let nowMs = Date.UTC(2030, 0, 1);
		const service = await givenService({ oneChannelHeldSeconds: 60, now: () => nowMs });
		const first = await givenPairedAgent(service);
		const lost = service.waitFor('channel-closed');
		service.dropSockets();
		await lost;
		await first.stop();
		const device = await givenAgent({ home: first.home });
		const waits: number[] = [];
		let before = '';
		for (let round = 0; round < 4; round += 1) {
			const { channel, problem } = await device.untilStatus(
				(status) => status.channel.nextAttemptAt !== null && status.channel.nextAttemptAt !== before,
			);
			expect(problem).toMatchObject({ code: 'channel-occupied', recovers: true });
			before = channel.nextAttemptAt ?? '';
			waits.push((Date.parse(before) - device.clock.wallMs()) / 1000);
			nowMs += round === 3 ? 60_000 : 0;
			await device.passWait();
		}
		await device.untilState('online');
		for (const wait of waits) expect(wait).toBeGreaterThanOrEqual(5);
		for (const wait of waits) expect(wait).toBeLessThanOrEqual(30);
	});
});

/** How a place that is taken is told: before the channel opens, as it opens, or once it has answered. */
type Told = 'with 409' | 'by a reset' | 'by a cut' | `${'' | 'later '}with ${number}`;

/** A service with one place, which is held for 5 s after each channel. */
async function givenOnePlace(told: Told) {
	const clock = createSteppedClock();
	const sockets = new Set<Duplex>();
	let registered = 0;
	let freeAtMs = 0;
	let holder: WebSocket | null = null;
	const channels = new WebSocketServer({ noServer: true });
	const server = createServer((_request, response) => {
		registered += 1;
		response.writeHead(201, { 'content-type': 'application/json' }).end(JSON.stringify({ token: `t${registered}` }));
	});
	server.on('connection', (socket) => void sockets.add(socket.on('error', () => {})));
	server.on('upgrade', (request, socket, head) => {
		const isTaken = holder !== null || clock.monotonicMs() < freeAtMs;
		if (isTaken && told === 'with 409') {
			socket.end('HTTP/1.1 409 Conflict\r\ncontent-length: 0\r\nconnection: close\r\n\r\n');
			return;
		}
		if (isTaken && told === 'by a reset' && holder === null) {
			socket.destroy();
			return;
		}
		channels.handleUpgrade(request, socket, head, (channel) => {
			if (isTaken) refuse(channel);
			else take(channel);
		});
	});
	function refuse(channel: WebSocket): void {
		const code = Number(/\d+$/.exec(told)?.[0]);
		if (!code) channel.terminate();
		else if (told.startsWith('later')) channel.once('ping', () => channel.close(code, 'one channel'));
		else channel.close(code, 'one channel');
	}
	function take(channel: WebSocket): void {
		holder = channel;
		channel.on('close', () => {
			freeAtMs = clock.monotonicMs() + 5000;
			holder = null;
		});
	}
	await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
	onTestFinished(async () => {
		for (const socket of sockets) socket.destroy();
		await new Promise((resolve) => server.close(resolve));
	});
	const home = await givenHome();
	const apiKeyFile = await home.secretFile('key', 'key');
	const baseUrl = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
	const device = await givenAgent({ clock, home, settings: { baseUrl, credential: { apiKeyFile } } });
	await device.agent.setWorkflow('check-in');
	await device.untilLive('check-in');
	return { device, registered: () => registered };
}

/** Lets the waits of the newer link pass, one after the other, until it is online. @returns how long that took. */
async function untilMoved(device: RunningAgent): Promise<number> {
	const fromMs = device.clock.monotonicMs();
	for (let seen = 0; ; seen += 1) {
		const waits = () => device.log.filter((line) => line.msg === 'wait' && line['generation'] === 2);
		const isIn = () => device.agent.status().workflow.live === 'boarding';
		await Promise.race([device.untilLogged(() => waits().length > seen), device.untilStatus(isIn)]);
		const wait = waits()[seen];
		if (!wait) return device.clock.monotonicMs() - fromMs;
		// The older one has had its turn as well, and leaves the place to it.
		if (Number(wait['delayMs']) === 5000)
			await device.untilLogged((line) => line.msg === 'wait' && line['generation'] === 1 && line['delayMs'] !== 5000);
		device.clock.advance(Number(wait['delayMs']));
	}
}

describe('a place that is held for 5 s after its channel', () => {
	test.each<Told>([
		'with 409',
		'by a reset',
		'by a cut',
		'with 1008',
		'with 1013',
		'with 4003',
		'with 4409',
		'later with 1008',
		'later with 4003',
		'later with 4409',
	])('and told %s goes to the new workflow, which the device is online with soon after [F569]', async (told) => {
		const { device, registered } = await givenOnePlace(told);
		await device.agent.setWorkflow('boarding');
		expect(await untilMoved(device)).toBeLessThanOrEqual(7500);
		expect(registered()).toBe(2);
		expect(device.statuses.map(({ state }) => state)).not.toContain('blocked');
	});
});
