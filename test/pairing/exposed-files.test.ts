import { chmod, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { givenAgent, givenHome, givenPairedAgent } from '../harness/harness.ts';
import { givenService } from '../service/fixture.ts';

test('settings that others may change: nothing is paired and no code is spent until they may not [F300]', async () => {
	const service = await givenService();
	const home = await givenHome();
	await home.writeSettings({ heartbeatCadence: 20 });
	await chmod(home.paths.configFile, 0o666);
	const device = await givenAgent({ home });
	expect(device.agent.status()).toMatchObject({
		state: 'unpaired',
		warnings: [{ code: 'file-exposed', message: expect.stringContaining(home.paths.configFile) }],
	});
	const { url } = service.createPairingCode('check-in');
	await expect(device.pair(url)).rejects.toMatchObject({
		failure: { code: 'file-exposed', remedy: expect.stringContaining(`chmod 0644 ${home.paths.configFile}`) },
	});
	expect(service.requests).toEqual([]);
	await chmod(home.paths.configFile, 0o644);
	await device.pair(url);
	await device.untilLive('check-in');
	await device.daemon.reload();
	expect(device.agent.status().warnings).toEqual([]);
});

test('a device that runs already goes on, and says so of each: conf.d, and a key that others may read', async () => {
	const service = await givenService();
	const device = await givenPairedAgent(service);
	const { confDirectory } = device.home.paths;
	const pinFile = await device.home.secretFile('pin', '123456');
	await writeFile(join(confDirectory, '50-site.json'), JSON.stringify({ page: { pinFile } }));
	await chmod(pinFile, 0o644);
	await device.daemon.reload();
	expect(device.agent.status()).toMatchObject({
		state: 'online',
		warnings: [{ code: 'file-exposed', params: { path: pinFile } }],
	});
	await chmod(pinFile, 0o600);
	await chmod(confDirectory, 0o777);
	await device.daemon.reload();
	expect(device.agent.status()).toMatchObject({
		state: 'online',
		warnings: [{ code: 'file-exposed', params: { path: confDirectory } }],
	});
	await chmod(pinFile, 0o644);
	await device.daemon.reload();
	const [joined, ...others] = device.agent.status().warnings;
	expect([joined?.code, others]).toEqual(['file-exposed', []]);
	for (const path of [confDirectory, pinFile]) expect(joined?.message).toContain(`${path} (`);
});
