import { rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'vitest';
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
		/** What has to be told, by the file that is at fault. */
		const faults = new Map<string, RegExp>();
		const write = (document: unknown, words: RegExp) => async () => {
			faults.set(configFile, words);
			await home.writeSettings(document);
		};
		const bad: (() => Promise<unknown>)[] = [
			write('{ "baseUrl": ', /the file ends too early/),
			write({ ...good, deviceType: 7 }, /deviceType must be/),
			write({ ...good, brandNew: true }, /brandNew is not a setting/),
			write({ ...good, network: { caFile: '/nowhere/ca.pem' } }, /network\.caFile \/nowhere\/ca\.pem cannot be read/),
			write({ ...good, service: { channelPath: '/no/such/channel' } }, /service\.channelPath/),
			write({ ...good, service: { registrationPath: '/no/such/place' } }, /service\.registrationPath/),
			write({ ...good, credential: { apiKeyFile: `${apiKeyFile}.gone` } }, /key\.gone cannot be read/),
			() => home.secretFile('key', 'a-key-that-is-wrong-0123456789'),
			async () => {
				faults.set(more, /50-more\.json: line 1.*ends too early/);
				await writeFile(more, '{ "page": ');
			},
			async () => {
				faults.set(configFile, /config\.json is not there any more|name no service any more/);
				await rename(configFile, `${configFile}.away`).catch(() => {});
			},
		];
		for (let step = 0; step < STEPS; step += 1) {
			for (let push = Math.floor(random() * 3); push >= 0; push -= 1) await pick(bad)();
			const isGood = random() < 0.4;
			if (isGood) {
				faults.clear();
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
			await device.untilStatus(
				({ state, warnings }) => {
					const isTold = (words: RegExp) => warnings.some(({ message }) => words.test(message));
					const fits = isGood ? warnings.length === 0 : warnings.length > 0 && [...faults.values()].every(isTold);
					return state === 'online' && fits;
				},
				`status with ${[...faults.values()].join(' and ')}`,
			);
		}
	},
);
