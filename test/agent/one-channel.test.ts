/** A service that permits one channel of a device at a time. */
import { describe, expect, test } from 'vitest';
import { givenAgent, givenPairedAgent, registrations } from '../harness/harness.ts';
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
