/** The state directory of a device that registers itself, copied to another machine: it is told, and no id is used twice. */
import { describe, expect, test } from 'vitest';
import type { EmbeddedService } from '../../src/service/embedded-service.runner.ts';
import { openStateStore } from '../../src/state/store.edge.ts';
import { finish } from '../cli/command.ts';
import { examine, expectProblem } from '../diagnosis/examine.ts';
import { MACHINES, nic, type Tree } from '../fixtures/machines.ts';
import { givenAgent, givenHome, type Home, registrations } from '../harness/harness.ts';
import { givenService } from '../service/fixture.ts';

const FIRST = MACHINES['PC with placeholders of the maker'];
const card = (address: string) => nic('enp3s0', { device: 'pci0000:00/0000:00:1c.4/0000:03:00.0', address });
/** The same disk in another board of the maker. */
const OTHER_BOARD: Tree = { ...FIRST, ...card('70:85:c2:aa:bb:dd') };
/** The state alone, on a machine that was installed for itself. */
const OTHER_MACHINE: Tree = { ...OTHER_BOARD, 'etc/machine-id': '9d1e2f3a4b5c6d7e8f90a1b2c3d4e5f6\n' };

async function givenRegistered(service: EmbeddedService, machine: Tree = FIRST): Promise<Home> {
	const home = await givenHome();
	const apiKeyFile = await home.secretFile('key', service.credentials.apiKey);
	const settings = { baseUrl: service.url, workflowId: 'check-in', credential: { apiKeyFile } };
	const device = await givenAgent({ home, settings, machine });
	expect((await device.untilState('online')).warnings).toEqual([]);
	await device.stop();
	return home;
}

const envOf = ({ paths }: Home) => ({
	IDV_AGENT_RUN_DIR: paths.runDir,
	IDV_AGENT_STATE_DIR: paths.stateDir,
	IDV_AGENT_CONFIG: paths.configFile,
});

describe('the state of a device that was paired without a serial number', () => {
	const OWN = MACHINES['PC with serial numbers of the maker'];

	async function givenPaired(machine: Tree) {
		const service = await givenService();
		const home = await givenHome();
		const device = await givenAgent({ home, settings: { baseUrl: service.url }, machine });
		await device.pair(service.createPairingCode('check-in').url);
		await device.untilState('online');
		await device.stop();
		return { service, home };
	}

	test('of a virtual machine, on a machine with a serial number and a card of its own, is a copy', async () => {
		const { service, home } = await givenPaired(MACHINES['virtual machine']);
		const machine = { ...OWN, 'etc/machine-id': MACHINES['virtual machine']['etc/machine-id'] ?? '' };
		const copy = await givenAgent({ home, machine });
		expect(await copy.untilState('blocked')).toMatchObject({ problem: { code: 'identity-changed' } });
		expect(registrations(service)).toHaveLength(1);
	});

	test('on the same machine, which shows one now, is the same device, also with another card later [F1470]', async () => {
		const { home } = await givenPaired(FIRST);
		const shown: Tree = { 'sys/class/dmi/id/product_serial': 'S1AB77Q\n' };
		const first = await givenAgent({ home, machine: { ...FIRST, ...shown } });
		expect((await first.untilState('online')).warnings).toEqual([]);
		await first.stop();
		const repaired = await givenAgent({ home, machine: { ...OTHER_BOARD, ...shown } });
		expect(await repaired.untilState('online')).toMatchObject({
			warnings: [
				{ code: 'identity-changed', message: expect.stringMatching(/^A part of this device has changed: its MAC/) },
			],
		});
	});
});

describe('the state of a device with an API key', () => {
	test('on another machine is a copy: status, doctor and identity say so, and it does not register [F745]', async () => {
		const service = await givenService();
		const home = await givenRegistered(service);
		const before = await examine({ home, machine: OTHER_MACHINE }, 'identity');
		expectProblem(before.checks.identity, 'failed', 'identity-changed', /^This seems to be a copy of another device/);
		const copy = await givenAgent({ home, machine: OTHER_MACHINE });
		const { problem } = await copy.untilState('blocked');
		expect(problem).toMatchObject({ code: 'identity-changed' });
		expect(problem?.message).toMatch(/copy of another device.*MAC address.*machine-id/);
		expect(registrations(service)).toHaveLength(1);

		const env = envOf(home);
		expect(await finish('idv-agent', ['unpair'], env)).toMatchObject({ status: 0 });
		const own = await copy.untilState('online');
		expect(service.devices().map(({ deviceId }) => deviceId)).toContain(own.deviceId);
		expect(service.devices()).toHaveLength(2);
		expect(own.warnings).toEqual([]);
	});

	test('with the whole disk in another board warns, until a person says that the card was replaced', async () => {
		const service = await givenService();
		const home = await givenRegistered(service);
		const device = await givenAgent({ home, machine: OTHER_BOARD });
		const { warnings, deviceId } = await device.untilState('online');
		expect(warnings).toMatchObject([{ code: 'identity-changed' }]);
		const outcome = await finish('idv-agent', ['identity', 'accept', '--yes', '--json'], envOf(home));
		expect(JSON.parse(outcome.stdout)).toMatchObject({ changed: true, deviceId: { value: deviceId }, warnings: [] });
		await device.stop();
		const later = await givenAgent({ home, machine: OTHER_BOARD });
		expect(await later.untilState('online')).toMatchObject({ warnings: [], deviceId });
	});

	test('on a machine with a serial number of its own leaves the Connection alone that the first one has, also while the service refuses its key [F1066]', async () => {
		const service = await givenService();
		const home = await givenRegistered(service, MACHINES['PC with serial numbers of the maker']);
		const before = service.requests.length;
		service.failNext({}, { status: 401 });
		const copy = await givenAgent({ home, machine: MACHINES['Raspberry Pi'] });
		await copy.untilStatus(({ problem }) => problem?.code === 'credential-refused', 'refusal');
		expect(service.requests.slice(before)).toEqual([expect.objectContaining({ method: 'POST', status: 401 })]);
		expect(copy.agent.status().deviceId).toBe('10000000a1b2c3d4');
		copy.clock.advance(3_600_000);
		await copy.untilState('online');
		expect(service.devices().map(({ deviceId }) => deviceId)).toEqual(['PF3K9QXZ', '10000000a1b2c3d4']);
	});

	test('of a container, on a machine with a serial number of its own, is not shown online as the container [F1352]', async () => {
		const service = await givenService();
		const home = await givenRegistered(service, { ...MACHINES['virtual machine'], '.dockerenv': '' });
		const [before] = service.devices();
		const asked = service.requests.length;
		const moved = await givenAgent({ home, machine: MACHINES['Raspberry Pi'] });
		expect(await moved.untilState('online')).toMatchObject({ deviceId: '10000000a1b2c3d4' });
		expect(service.requests.slice(asked).map(({ method }) => method)).toEqual(['POST', 'GET']);
		expect(before?.deviceId).not.toBe('10000000a1b2c3d4');
	});

	test('of a machine with nothing of its own, whose id was generated, is noticed by the machine-id', async () => {
		const service = await givenService();
		const home = await givenRegistered(service, MACHINES['virtual machine']);
		const machine = { ...MACHINES['virtual machine'], 'etc/machine-id': '9d1e2f3a4b5c6d7e8f90a1b2c3d4e5f6\n' };
		const copy = await givenAgent({ home, machine });
		expect(await copy.untilState('blocked')).toMatchObject({ problem: { code: 'identity-changed' } });
	});

	test('of such a machine, on one with the same machine-id, gets an id of its own by unpair and a new pairing [F1454]', async () => {
		const service = await givenService();
		const home = await givenRegistered(service, MACHINES['virtual machine']);
		const [first] = service.devices();
		const copy = await givenAgent({ home, machine: MACHINES['virtual machine'], settings: { baseUrl: service.url } });
		expect(await copy.untilState('online')).toMatchObject({ deviceId: first?.deviceId });
		await copy.agent.unpair();
		await copy.pair(service.createPairingCode('check-in').url);
		const { deviceId } = await copy.untilState('online');
		expect(deviceId).not.toBe(first?.deviceId);
		await copy.agent.unpair();
		expect(copy.agent.status().deviceId).not.toBe(deviceId);
		expect(service.devices().map((device) => device.deviceId)).toEqual([first?.deviceId, deviceId]);
	});

	test('that an older version wrote belongs to the machine on which this version first starts', async () => {
		const service = await givenService();
		const home = await givenRegistered(service);
		const store = await openStateStore(home.paths.stateDir);
		const { state } = await store.load();
		await store.save({ ...state, registeredOn: null });
		await store.close();
		const moved = await givenAgent({ home, machine: OTHER_MACHINE });
		expect((await moved.untilState('online')).warnings).toEqual([]);
		await moved.stop();
		const copy = await givenAgent({ home, machine: FIRST });
		expect(await copy.untilState('blocked')).toMatchObject({ problem: { code: 'identity-changed' } });
	});
});
