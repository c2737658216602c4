/** Services that accept a channel and end it a moment later, and what their close codes mean. */
import { expect, onTestFinished, test } from 'vitest';
import type { EmbeddedService } from '../../src/service/embedded-service.runner.ts';
import {
	type AgentSetup,
	givenAgent,
	givenHome,
	givenPairedAgent,
	type RunningAgent,
	registrations,
} from '../harness/harness.ts';
import { givenService } from '../service/fixture.ts';

/** Ends each channel once the device has got a message on it: by then it has an answer to its ping. @returns when it has been called so often. */
function endEach(service: EmbeddedService, end: (number: number) => void, often = 1): Promise<void> {
	const { promise, resolve } = Promise.withResolvers<void>();
	let heard = 0;
	onTestFinished(
		service.on('device-online', () => {
			heard += 1;
			const number = heard;
			service.notify({ type: 'hello', id: String(number) });
			const ended = () => {
				end(number);
				if (number === often) resolve();
			};
			setImmediate(() => setImmediate(ended));
		}),
	);
	return promise;
}

/** @param over when the service ends no channel any more: the device may be online on that one already, or later. */
async function untilBack(device: RunningAgent, over: Promise<void>): Promise<void> {
	let isOver = false;
	const told = over.then(() => {
		isOver = true;
	});
	for (;;) {
		const { state } = await device.untilStatus((now) => now.state === 'online' || now.channel.nextAttemptAt !== null);
		if (state !== 'online') await device.passWait();
		else if (isOver) return;
		else await Promise.race([told, device.untilStatus((now) => now.state !== 'online')]);
	}
}

async function givenKeyedAgent(service: EmbeddedService, codes: Record<string, string> = {}) {
	const home = await givenHome();
	const apiKeyFile = await home.secretFile('key', service.credentials.apiKey);
	const settings = { baseUrl: service.url, workflowId: 'check-in', credential: { apiKeyFile } };
	const setup: AgentSetup = { home, settings: { ...settings, service: { closeCodes: codes } } };
	const device = await givenAgent(setup);
	await device.untilState('online');
	return device;
}

test('pair says what happened instead of "Online" where the service ends the channel a moment after it was accepted [F585]', async () => {
	const service = await givenService();
	const device = await givenAgent({ countsAfterMs: 3000 });
	endEach(service, () => service.closeChannels(1008, 'not this device'));
	const { online, sentence } = await device.pair(service.createPairingCode('check-in').url);
	expect({ online, sentence }).toMatchObject({ online: false, sentence: expect.stringContaining('not this device') });
	expect(device.statuses.map(({ state }) => state)).not.toContain('online');
	expect((await device.untilEvent(({ kind }) => kind === 'hello')).kind).toBe('hello');
});

test('a device whose channels end early again and again is shown as online only by one that stays', async () => {
	const service = await givenService();
	const device = await givenPairedAgent(service, { countsAfterMs: 3000 });
	const over = endEach(service, (number) => void (number <= 3 && service.closeChannels(1011, 'no room')), 4);
	service.closeChannels(1011, 'no room');
	await device.untilState('offline');
	const from = device.statuses.length;
	await untilBack(device, over);
	const seen = device.statuses.slice(from).map(({ state }) => state);
	expect(seen.indexOf('online')).toBe(seen.length - 1);
});

test('service.closeCodes has one close refuse the Connection: a fresh one is registered at once [F586]', async () => {
	const service = await givenService();
	const device = await givenKeyedAgent(service, { '4001': 'refused' });
	device.clock.advance(60_000);
	service.closeChannels(4001, 'session over');
	const { problem } = await device.untilStatus(({ state }) => state === 'offline');
	expect(problem?.code).toBe('credential-refused');
	await device.passWait();
	await device.untilState('online');
	expect(registrations(service)).toEqual([201, 201]);
});

test('service.closeCodes has a code be an outage, however often it ends fresh channels [F587]', async () => {
	const service = await givenService();
	const device = await givenKeyedAgent(service, { '4003': 'retry', '1008': 'retry' });
	const end = (number: number) =>
		void (number <= 3 && service.closeChannels(number % 2 === 0 ? 1008 : 4003, 'rotating'));
	const over = endEach(service, end, 4);
	service.closeChannels(4003, 'rotating');
	await device.untilState('offline');
	await untilBack(device, over);
	expect(registrations(service)).toEqual([201]);
	expect(device.statuses.map(({ problem }) => problem?.code)).not.toContain('credential-refused');
});

test('service.closeCodes has a code mean that another channel took the place of this one', async () => {
	const service = await givenService();
	const device = await givenKeyedAgent(service, { '4100': 'replaced' });
	service.closeChannels(4100, 'bye');
	const { problem } = await device.untilStatus(({ state }) => state === 'offline');
	expect(problem?.code).toBe('connection-replaced');
});
