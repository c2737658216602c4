import { describe, expect, test } from 'vitest';
import type { Status } from '../../src/protocol/local-api.ts';
import { MACHINES } from '../fixtures/machines.ts';
import { givenAgent, givenPairedAgent, registrations, watchOffline } from '../harness/harness.ts';
import { givenService } from '../service/fixture.ts';
import { finish } from './command.ts';
import { expectRefusal } from './refusal.ts';
import { atTerminal, hasTerminal } from './terminal.ts';

const PC = MACHINES['PC with serial numbers of the maker'];
/** The same disk behind another board with a network card of its own. */
const REPAIRED = { ...MACHINES['Raspberry Pi'], 'etc/machine-id': PC['etc/machine-id'] ?? '' };
/** Only the network card is another. */
const OTHER_CARD = { ...REPAIRED, 'sys/class/dmi/id/product_serial': 'PF3K9QXZ\n' };

async function givenRepaired(machine: typeof REPAIRED) {
	const service = await givenService();
	const before = await givenPairedAgent(service, { machine: PC });
	await before.stop();
	const device = await givenAgent({ home: before.home, machine });
	const env = {
		IDV_AGENT_RUN_DIR: device.home.paths.runDir,
		IDV_AGENT_STATE_DIR: device.home.paths.stateDir,
		IDV_AGENT_CONFIG: device.home.paths.configFile,
	};
	return { service, device, env };
}

describe('identity accept, after a repair', () => {
	test('keeps the deviceId, tells the service of the new parts without a moment offline, and is remembered', async () => {
		const { service, device, env } = await givenRepaired(OTHER_CARD);
		await device.untilState('online');
		expect(device.agent.status().warnings).toMatchObject([{ code: 'identity-changed' }]);
		const offline = watchOffline(service);
		const outcome = await finish('idv-agent', ['identity', 'accept', '--yes', '--json'], env);
		expect(outcome).toMatchObject({ status: 0, stderr: '' });
		expect(JSON.parse(outcome.stdout)).toMatchObject({
			changed: true,
			deviceId: { value: 'PF3K9QXZ' },
			macAddress: { value: 'dc:a6:32:01:02:03' },
			warnings: [],
		});
		await device.untilStatus(({ channel }) => channel.state === 'online' && registrations(service).length === 2);
		expect(service.devices()).toMatchObject([{ deviceId: 'PF3K9QXZ', macAddress: 'dc:a6:32:01:02:03', online: true }]);
		expect(offline).toEqual([]);
		await device.stop();
		const later = await givenAgent({ home: device.home, machine: OTHER_CARD });
		expect((await later.untilState('online')).warnings).toEqual([]);
	});

	test('takes a device online again that looked like a copy because its board was replaced', async () => {
		const { device, env } = await givenRepaired(REPAIRED);
		expect(device.agent.status()).toMatchObject({ state: 'blocked', problem: { code: 'identity-changed' } });
		expect(await finish('idv-agent', ['identity', 'accept', '--yes'], env)).toMatchObject({
			status: 0,
			stdout: expect.stringMatching(/This seems to be a copy of another device.*\n\nAccepted;/s),
		});
		// The new serial number once the service has it.
		const isTold = ({ state, serial }: Status) => state === 'online' && serial === '10000000a1b2c3d4';
		expect(await device.untilStatus(isTold)).toMatchObject({ deviceId: 'PF3K9QXZ' });
	});

	test('changes nothing without a yes', async () => {
		const { device, env } = await givenRepaired(REPAIRED);
		const refused = await finish('idv-agent', ['identity', 'accept'], env);
		expectRefusal(refused, { status: 78, code: 'identity-changed', words: /nothing was changed.*--yes.*unpair/s });
		expect(device.agent.status().state).toBe('blocked');
	});

	test.skipIf(!hasTerminal)('asks at a terminal (needs script)', async () => {
		const { device, env } = await givenRepaired(REPAIRED);
		const { status, text } = await atTerminal('idv-agent', ['identity', 'accept'], env, [['[y/n]', 'y\n']]);
		expect(text).toContain('Is this still device PF3K9QXZ, with a part replaced?');
		expect(status).toBe(0);
		await device.untilState('online');
	});

	test('says so where nothing has changed, or nothing was paired', async () => {
		const service = await givenService();
		const device = await givenPairedAgent(service);
		const env = { IDV_AGENT_RUN_DIR: device.home.paths.runDir };
		const same = await finish('idv-agent', ['identity', 'accept'], env);
		expect(same).toMatchObject({ status: 0, stdout: expect.stringContaining('Nothing has changed') });
		await device.agent.unpair();
		await expect(device.client.request('admin', 'POST', '/v1/identity/accept')).rejects.toMatchObject({
			code: 'unpaired',
		});
		await expect(device.client.request('agent', 'POST', '/v1/identity/accept')).rejects.toMatchObject({
			code: 'access-denied',
		});
	});
});
