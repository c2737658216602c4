/** Two devices with one deviceId, such as those of a copied disk: what each of them says, and that neither gives up. */
import { expect, test } from 'vitest';
import { checkChannel } from '../../src/diagnosis/probe-channel.runner.ts';
import type { Status } from '../../src/protocol/local-api.ts';
import type { EmbeddedService } from '../../src/service/embedded-service.runner.ts';
import { DEVICE_ID, givenAgent, givenHome, givenPairedAgent, type RunningAgent } from '../harness/harness.ts';
import { givenService, openChannel, registerDevice } from '../service/fixture.ts';

const MINUTE = 60_000;
const DUPLICATE = 'duplicate-device';

async function givenKeyed(service: EmbeddedService, more: object = {}) {
	const home = await givenHome();
	const apiKeyFile = await home.secretFile('key', service.credentials.apiKey);
	const settings = { baseUrl: service.url, workflowId: 'check-in', credential: { apiKeyFile } };
	// Time is stepped by minutes, in which no ping could be answered.
	return givenAgent({ home, settings: { ...settings, service: { silenceLimitSeconds: 0, ...more } } });
}

const warned = ({ agent }: RunningAgent) => agent.status().warnings.map(({ code }) => code);

/** @param beside the other device, for which as much time passes. */
async function returnOnline(device: RunningAgent, beside?: RunningAgent): Promise<void> {
	for (;;) {
		const { state } = await device.untilStatus((now) => now.state === 'online' || now.channel.nextAttemptAt !== null);
		if (state === 'online') return;
		const fromMs = device.clock.monotonicMs();
		await device.passWait();
		beside?.clock.advance(device.clock.monotonicMs() - fromMs);
	}
}

/** What no device may say while its API key works. */
function expectHope(statuses: readonly Status[]): void {
	expect(statuses.map(({ state }) => state)).not.toContain('blocked');
	for (const { sentence } of statuses) expect(sentence).not.toContain('Pair this device again');
}

test('that end the channel of each other both say so within 10 min, and never ask to be paired again [F620]', async () => {
	const service = await givenService({ endOldChannelOnRegistration: true });
	const one = await givenKeyed(service);
	await one.untilState('online');
	const fromMs = one.clock.monotonicMs();
	const other = await givenKeyed(service);
	await other.untilState('online');
	const both = [one, other] as const;
	for (let turn = 0; !both.every((device) => warned(device).includes(DUPLICATE)); turn += 1) {
		const [device, beside] = turn % 2 === 0 ? both : [other, one];
		await device.untilStatus(({ state }) => state !== 'online');
		await returnOnline(device, beside);
		expect(one.clock.monotonicMs() - fromMs).toBeLessThan(10 * MINUTE);
	}
	for (const device of both) {
		expectHope(device.statuses);
		expect(device.log.filter(({ code }) => code === DUPLICATE)).toHaveLength(1);
		const status = device.agent.status();
		const word = { kind: 'runs', status } as Parameters<typeof checkChannel>[0];
		expect(checkChannel(word)).toMatchObject({
			status: status.state === 'online' ? 'warning' : 'failed',
			message: expect.stringContaining('Another device may use the deviceId of this one'),
			remedy: expect.stringContaining('copied disk'),
		});
	}
	// Without the other one there is nothing to say ten minutes later.
	await one.stop();
	await returnOnline(other);
	other.clock.advance(11 * MINUTE);
	expect(warned(other)).toEqual([]);
});

test('is told where the service says so in a code that service.closeCodes names', async () => {
	const service = await givenService();
	const device = await givenKeyed(service, { closeCodes: { 4100: 'replaced' } });
	for (let time = 0; time < 3; time += 1) {
		await device.untilState('online');
		service.closeChannels(4100, 'bye');
		await device.untilStatus(({ state }) => state !== 'online');
		await returnOnline(device);
		device.clock.advance(MINUTE);
	}
	service.closeChannels(4100, 'bye');
	await device.untilStatus(({ state }) => state !== 'online');
	expect(warned(device)).toEqual([DUPLICATE]);
	expectHope(device.statuses);
});

test('is not told where a move of the device itself ends its old channel', async () => {
	const service = await givenService({ endOldChannelOnRegistration: true });
	const moving = await givenPairedAgent(service);
	for (const workflow of ['a', 'b', 'c', 'd']) {
		await moving.agent.setWorkflow(workflow);
		await moving.untilLive(workflow);
	}
	expect(warned(moving)).not.toContain(DUPLICATE);
});

test('is told by the one that the service refuses beside the other, for longer than a lost channel is held [F622]', async () => {
	const service = await givenService({ oneChannelHeldSeconds: 0 });
	const held = await openChannel(service, await registerDevice(service, DEVICE_ID));
	const device = await givenKeyed(service);
	const fromMs = device.clock.monotonicMs();
	while (!warned(device).includes(DUPLICATE)) {
		await device.passWait();
		await device.untilStatus(({ channel }) => channel.state === 'connecting');
		await device.untilStatus(({ channel }) => channel.nextAttemptAt !== null);
		const passedMs = device.clock.monotonicMs() - fromMs;
		if (passedMs < 9 * MINUTE) expect(warned(device)).not.toContain(DUPLICATE);
		expect(passedMs).toBeLessThan(10 * MINUTE);
	}
	expectHope(device.statuses);
	const closed = service.waitFor('channel-closed');
	held.socket.close();
	await closed;
	await returnOnline(device);
	expect(warned(device)).toEqual([]);
});
