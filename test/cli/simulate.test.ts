import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { givenService } from '../service/fixture.ts';
import { finish, follow, givenHome } from './command.ts';
import { expectJsonRefusal, expectRefusal } from './refusal.ts';

describe('simulate', () => {
	test('ends with a report in JSON; 0 when all were online with the workflow of the move', async () => {
		const service = await givenService();
		const home = await givenHome();
		const key = join(home.directory, 'key');
		await writeFile(key, `${service.credentials.apiKey}\n`, { mode: 0o600 });
		const moved = new Set<string>();
		const allMoved = service.waitFor(
			'heartbeat',
			({ deviceId, workflowId }) => workflowId === 'two' && moved.add(deviceId).size === 6,
			60_000,
		);
		const running = follow(
			'idv-agent',
			[
				...['simulate', '--devices', '6', '--service', service.url, '--api-key-file', key, '--ramp', '0', '--json'],
				...['--workflow', 'one', '--move', 'two@1', '--ring-seconds', '0', '--prefix', 'load', '--cadence', '1'],
			],
			{},
		);
		await allMoved;
		const { status, stdout } = await running.end('SIGTERM');
		const report = JSON.parse(stdout);
		expect(report).toMatchObject({
			schemaVersion: 1,
			service: service.url,
			devices: 6,
			online: 6,
			everOnline: 6,
			losses: 0,
			registrations: { begun: 12, failed: 0 },
			handshakes: { begun: 12, opened: 12, failed: 0 },
			move: { workflowId: 'two', told: 6, live: 6, refused: 0, losses: 0 },
			problems: [],
		});
		expect(status).toBe(0);
		expect(stdout).not.toContain(service.credentials.apiKey);
		expect(
			service
				.devices()
				.map(({ deviceId, workflowId }) => `${deviceId} ${workflowId}`)
				.sort(),
		).toEqual([1, 2, 3, 4, 5, 6].map((number) => `load-0000${number} two`));
	});

	test('shows a table, and Ctrl-C ends it with the report; the devices say goodbye', async () => {
		const service = await givenService({ selfRegistration: true });
		const goodbyes: number[] = [];
		service.on('channel-closed', ({ code }) => void goodbyes.push(code));
		// Only a device that is online sends heartbeats, and the last one to start need not be the last to get there.
		const online = Promise.all(
			['sim-00001', 'sim-00002', 'sim-00003'].map((id) =>
				service.waitFor('heartbeat', ({ deviceId }) => deviceId === id),
			),
		);
		const running = follow(
			'idv-agent',
			['simulate', '--devices', '3', '--service', service.url, '--self-registration', '--ramp', '0', '--cadence', '1'],
			{},
		);
		await running.untilLine(/^ +time +online +connecting +waiting +not started +handshakes\/s +heartbeats\/s$/);
		await online;
		const { status, stdout, stderr } = await running.end('SIGINT');
		expect(stdout).toMatch(/^ +\d+ s +3 +0 +0 +0 +\d+ +\d+$/m);
		expect(stdout).toMatch(/^Online +3 of 3 at the end; all for the first time after [\d.]+ s$/m);
		expect(stdout).toMatch(/^Handshakes +3, of which 0 failed; at most \d a second$/m);
		expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
		expect(goodbyes).toEqual([1001, 1001, 1001]);
	});

	test('says what kept devices from being online, and ends with 69, until that is mended [F136]', async () => {
		const service = await givenService();
		await service.close();
		const args = ['simulate', '--devices', '2', '--service', service.url, '--self-registration'];
		const plain = await finish('idv-agent', [...args, '--ramp', '0', '--for', '4'], {});
		expect(plain.stdout).toMatch(/^Problem +2 devices: .*refuses connections \(ECONNREFUSED\)/m);
		expectRefusal(plain, {
			status: 69,
			code: 'devices-offline',
			words: /^Error: 0 of 2 devices were online at the end\./,
		});
		const json = await finish('idv-agent', [...args, '--ramp', '0', '--for', '4', '--json'], {});
		const { error, problems } = JSON.parse(json.stdout);
		expect(error).toMatchObject({ code: 'devices-offline' });
		expect(problems).toMatchObject([{ code: 'service-unreachable', devices: 2 }]);
		expect(json.status).toBe(69);
		expect(error.remedy).toContain('what the problems in the report say');
		// They say that the network or the host is to be looked at: nothing runs there.
		await givenService({ port: service.port, selfRegistration: true });
		expect(await finish('idv-agent', [...args, '--ramp', '0', '--for', '4', '--json'], {})).toMatchObject({
			status: 0,
		});
	});

	test('does not begin with what cannot be meant, and says why', async () => {
		const here = ['--devices', '2', '--service', 'http://127.0.0.1:9', '--self-registration'];
		const cases: [args: string[], status: number, code: string, words: RegExp][] = [
			[
				['--devices', '2', '--service', 'https://id.example.com', '--self-registration'],
				64,
				'usage',
				/not on this machine.*--i-own-this-service/,
			],
			[['--devices', '2', '--service', 'ftp://127.0.0.1', '--self-registration'], 64, 'usage', /--service/],
			[
				['--devices', '0', '--service', 'http://127.0.0.1:9'],
				64,
				'usage',
				/--devices must be a whole number from 1 to 20000/,
			],
			[
				['--devices', '2', '--service', 'http://127.0.0.1:9'],
				64,
				'usage',
				/--api-key-file FILE, or --self-registration/,
			],
			[
				['--devices', '2', '--service', 'http://127.0.0.1:9', '--api-key-file', '/none'],
				78,
				'credential-unreadable',
				/\/none/,
			],
			[[...here, '--rings', '50,10'], 64, 'usage', /--rings/],
			[[...here, '--move', 'face-check'], 64, 'usage', /face-check@60/],
			[[...here, '--set', 'deviceId=one'], 78, 'settings-invalid', /deviceId would be the same.*--prefix/],
			[[...here, '--set', 'heartbeatCadance=1'], 78, 'settings-invalid', /did you mean heartbeatCadence/],
			[
				['--devices', '2', '--service', 'http://id.example.com', '--i-own-this-service', '--self-registration'],
				78,
				'settings-invalid',
				/must begin with https/,
			],
		];
		for (const [args, status, code, words] of cases)
			expectRefusal(await finish('idv-agent', ['simulate', ...args], {}), { status, code, words });
		for (const [args, status, code, words] of cases.slice(0, 1))
			expectJsonRefusal(await finish('idv-agent', ['simulate', ...args, '--json'], {}), { status, code, words });
	});
});
