/** The id of a machine with nothing of its own: which start it belongs to, and which copies of the disk have it. */
import { cp, mkdir, rmdir } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import type { EmbeddedService } from '../../src/service/embedded-service.runner.ts';
import { EMPTY_STATE } from '../../src/state/device-state.ts';
import { openStateStore } from '../../src/state/store.edge.ts';
import { MACHINES, type Tree } from '../fixtures/machines.ts';
import { givenAgent, givenHome, type Home, registrations } from '../harness/harness.ts';
import { givenService } from '../service/fixture.ts';

const FIRST = MACHINES['virtual machine'];
/** A clone of it whose machine-id was filled in at its first boot. */
const CLONE: Tree = { ...FIRST, 'etc/machine-id': '9d1e2f3a4b5c6d7e8f90a1b2c3d4e5f6\n' };
const HERE = { serial: null, macAddress: null, machine: null };

async function keyFor(home: Home, service: EmbeddedService) {
	const apiKeyFile = await home.secretFile('key', service.credentials.apiKey);
	return { baseUrl: service.url, workflowId: 'check-in', credential: { apiKeyFile } };
}

async function givenCopy({ paths }: Home): Promise<Home> {
	const copy = await givenHome();
	await cp(paths.stateDir, copy.paths.stateDir, { recursive: true });
	return copy;
}

async function givenSaved(changes: Partial<typeof EMPTY_STATE>): Promise<Home> {
	const home = await givenHome();
	const store = await openStateStore(home.paths.stateDir);
	await store.save({ ...EMPTY_STATE, ...changes });
	await store.close();
	return home;
}

describe('a generated id', () => {
	test.each([
		['that ran before', async () => ({})],
		['of 0.1.0, which made its id at once', async () => ({ home: await givenSaved({ generatedId: 'image-1' }) })],
	])('is not in an image of a device %s: each clone has its own [F1452]', async (_, given) => {
		const service = await givenService();
		const image = await givenAgent({ ...(await given()), machine: FIRST });
		const { deviceId } = image.agent.status();
		await image.stop();
		expect(await image.home.filesWith(`${deviceId}`)).toEqual([]);
		const ids = [deviceId, 'image-1'];
		for (let clone = 0; clone < 2; clone += 1) {
			const device = await givenAgent({ home: await givenCopy(image.home), machine: FIRST });
			await device.pair(service.createPairingCode('check-in').url);
			ids.push((await device.untilState('online')).deviceId);
			await device.stop();
		}
		expect(new Set(ids).size).toBe(4);
	});

	test('by which nothing has registered makes a clone with another machine-id no copy of a device [F1453]', async () => {
		const registeredOn = { ...HERE, machine: 'cd'.repeat(32) };
		const home = await givenSaved({ generatedId: 'image-1', registeredOn });
		const service = await givenService();
		const clone = await givenAgent({ home, machine: CLONE, settings: await keyFor(home, service) });
		const { deviceId, warnings } = await clone.untilState('online');
		expect(warnings).toEqual([]);
		expect(deviceId).not.toBe('image-1');
		await clone.stop();
		const again = await givenAgent({ home, machine: CLONE });
		expect(await again.untilState('online')).toMatchObject({ deviceId });
	});

	test('is on the disk before a code is sent: whatever becomes of it, the next start has the same one', async () => {
		const service = await givenService();
		const device = await givenAgent({ machine: FIRST });
		service.failNext({}, { status: 500 });
		await device.pair(service.createPairingCode('check-in').url).catch(() => {});
		const { deviceId } = device.agent.status();
		await device.stop();
		expect((await givenAgent({ home: device.home, machine: FIRST })).agent.status()).toMatchObject({ deviceId });
	});

	test('that the disk does not take registers nothing, and does so as soon as it is saved; others are not held up [F1455]', async () => {
		const service = await givenService();
		const home = await givenHome();
		const blocker = join(home.paths.stateDir, 'state.json.new');
		await mkdir(blocker, { recursive: true, mode: 0o700 });
		const settings = await keyFor(home, service);
		const device = await givenAgent({ home, machine: FIRST, settings });
		const { problem, deviceId } = await device.untilState('blocked');
		expect(problem).toMatchObject({ code: 'state-unwritable', remedy: expect.stringContaining('writable') });
		expect(registrations(service)).toEqual([]);
		await rmdir(blocker);
		device.clock.advance(60_000);
		expect(await device.untilState('online')).toMatchObject({ deviceId, warnings: [] });
		await device.stop();
		expect(registrations(service)).toHaveLength(1);

		await mkdir(blocker);
		const again = await givenAgent({ home, machine: FIRST });
		expect(await again.untilState('online')).toMatchObject({ deviceId });
		await rmdir(blocker);
	});

	test('is not waited for by a machine with a serial number, whose disk is as full', async () => {
		const service = await givenService();
		const home = await givenHome();
		const blocker = join(home.paths.stateDir, 'state.json.new');
		await mkdir(blocker, { recursive: true, mode: 0o700 });
		const device = await givenAgent({ home, settings: await keyFor(home, service) });
		await device.untilState('online');
		await rmdir(blocker);
	});
});
