/**
 * Services that differ from what we assume in every open point at once: `idv probe` finds the settings of each, and a device
 * with its file alone is online and stays so. The seed of a run is printed; `DIALECTS_SEED=…` repeats it.
 */
import { readFile } from 'node:fs/promises';
import { test as plain } from 'vitest';
import { formatAuthorization } from '../../src/protocol/authorization.ts';
import { startService } from '../../src/service/embedded-service.runner.ts';
import { givenPlace } from './device.ts';
import { drawDialect } from './generator.ts';

const FIRST = Number(process.env['DIALECTS_SEED']);
const COUNT = Number(process.env['DIALECTS_COUNT']);
const seeds = Array.from({ length: COUNT }, (_, index) => FIRST + index);

plain.concurrent.for(seeds)('the service of seed %i', async (seed, { expect, onTestFinished }) => {
	const dialect = drawDialect(seed);
	const service = await startService({ dialect });
	onTestFinished(() => service.close());
	const place = await givenPlace(onTestFinished);
	const byCode = seed % 2 === 0;

	const workflow = byCode && dialect.codesNameWorkflow ? [] : ['--workflow', 'check-in'];
	const flags = ['--url', service.url, '--yes', '--seconds', '2', '--out', place.settingsFile, ...workflow];
	const key = formatAuthorization({ scheme: 'ApiKey', credential: service.credentials.apiKey });
	const probed = byCode
		? await place.probe([...flags, '--code-file', '-'], {}, service.createPairingCode('check-in').url)
		: await place.probe(flags, { IDV_AUTHORIZATION: key });
	const about = () => `${JSON.stringify(dialect)}\n${probed.stdout}${probed.stderr}`;
	expect(probed.status, about()).toBe(0);
	expect(service.requests.length).toBeLessThanOrEqual(30);
	expect(service.requests.filter(({ path }) => path === '/api/device/connection')).toHaveLength(1);

	const settings = byCode
		? {}
		: { credential: { apiKeyFile: await place.secretFile('key', service.credentials.apiKey) } };
	const device = await place.startDevice({ deviceId: 'KIOSK-1', ...settings });
	if (byCode) await device.agent.pair({ code: service.createPairingCode('check-in').url, trustOrigin: service.url });
	await device
		.untilStatus(({ state }) => state === 'online')
		.catch((error: Error) => {
			throw new Error(`${about()}\n${error.message}`);
		});
	// Longer than two pings of the application: one that was not answered would have ended the channel.
	const isCut = await service
		.waitFor('channel-closed', ({ deviceId }) => deviceId === 'KIOSK-1', 1200)
		.catch(() => null);
	expect(isCut, about()).toBeNull();
	expect(service.notify({ type: 'session.started' }, { deviceId: 'KIOSK-1' })).toBe(1);
	await device.untilEvent(({ kind }) => kind === 'session.started');
	expect(device.kinds(), about()).toEqual(['session.started']);
	expect(await readFile(place.settingsFile, 'utf8')).not.toContain(service.credentials.apiKey);
});
