import { rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { randomNumbers } from '../fixtures/random-numbers.ts';
import { givenAgent, givenHome } from '../harness/harness.ts';
import { givenService } from '../service/fixture.ts';

const STEPS = 14;

test.each([1, 2, 3, 4])(
	'whatever is pushed, vanishes or is put back, the device stays online or comes back, and every bad change is told (%i) [F632]',
	async (seed) => {
		const random = randomNumbers(seed);
		const pick = <One>(from: readonly One[]) => from[Math.floor(random() * from.length)] as One;
		const service = await givenService({ workflows: ['check-in', 'boarding'] });
		const home = await givenHome();
		const apiKeyFile = await home.secretFile('key', service.credentials.apiKey);
		const good = { baseUrl: service.url, workflowId: 'check-in', credential: { apiKeyFile }, deviceType: 'kiosk' };
		const more = join(home.paths.confDirectory, '50-more.json');
		let device = await givenAgent({ home, settings: good });
		await device.untilLive('check-in');
		const { configFile } = home.paths;
		const bad: (() => Promise<unknown>)[] = [
			() => home.writeSettings('{ "baseUrl": '),
			() => home.writeSettings({ ...good, deviceType: 7 }),
			() => home.writeSettings({ ...good, brandNew: true }),
			() => home.writeSettings({ ...good, network: { caFile: '/nowhere/ca.pem' } }),
			() => home.writeSettings({ ...good, service: { channelPath: '/no/such/channel' } }),
			() => home.writeSettings({ ...good, service: { registrationPath: '/no/such/place' } }),
			() => home.writeSettings({ ...good, credential: { apiKeyFile: `${apiKeyFile}.gone` } }),
			() => home.secretFile('key', 'a-key-that-is-wrong-0123456789'),
			() => writeFile(more, '{ "page": '),
			() => rename(configFile, `${configFile}.away`).catch(() => {}),
		];
		for (let step = 0; step < STEPS; step += 1) {
			for (let push = Math.floor(random() * 3); push >= 0; push -= 1) await pick(bad)();
			const isGood = random() < 0.4;
			if (isGood) {
				await rm(more, { force: true });
				await rm(`${configFile}.away`, { force: true });
				await home.secretFile('key', service.credentials.apiKey);
				await home.writeSettings({ ...good, workflowId: pick(['check-in', 'boarding']) });
			}
			if (random() < 0.3) {
				await device.stop();
				device = await givenAgent({ home });
			} else await device.daemon.reload();
			if (random() < 0.3) device.clock.advance(random() * 400_000);
			const fits = (count: number) => (isGood ? count === 0 : count > 0);
			const status = await device.untilStatus(({ state, warnings }) => state === 'online' && fits(warnings.length));
			expect(status.state).toBe('online');
		}
	},
);
