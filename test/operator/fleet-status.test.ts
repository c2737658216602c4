import { mkdir, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { localTime, type Shell } from '../../src/cli/output.runner.ts';
import { gatherReports } from '../../src/operator/fleet-reports.runner.ts';
import { showFleetStatus } from '../../src/operator/fleet-status.runner.ts';
import type { Status } from '../../src/protocol/local-api.ts';
import { type Metric, stateMetrics } from '../../src/status/metrics.ts';
import { follow } from '../cli/command.ts';
import { listen } from '../connection/network-peers.ts';
import { beginsFake, STEERING, steeringIn } from '../fixtures/foreign-text.ts';
import { openChannel, registerDevice } from '../service/fixture.ts';
import { operatorOfFile, succeeded } from './operator.ts';

const operator = operatorOfFile();
const HOUR = 3_600_000;
const at = (ms: number) => new Date(Date.now() + ms).toISOString();

const planFile = (more: object, name = 'plan.json') =>
	operator.file(name, JSON.stringify({ format: 'idv-fleet-plan/1', revision: 7, spreadSeconds: 0, ...more }), 0o644);
const toNew = (rings: object[]) => ({ defaults: { workflowId: 'old', rollout: { to: { workflowId: 'new' }, rings } } });

/** A line of `status --json`. */
function line(deviceId: string | null, live: string, more: Record<string, unknown> = {}) {
	const { lastHeartbeatAt = at(-1000), ...rest } = more;
	return JSON.stringify({
		schemaVersion: 1,
		state: 'online',
		agentVersion: '0.2.0',
		deviceId,
		workflow: { wanted: live, live, waitsUntil: null, source: 'plan' },
		channel: { state: 'online', since: at(-2 * HOUR), lastHeartbeatAt },
		plan: { revision: 7, followed: 7, next: null, refused: null, checkedAt: null },
		problem: null,
		warnings: [],
		...rest,
	});
}
const lines = (...all: string[]) => operator.file('gathered.jsonl', `${all.join('\n')}\n`);
/** A metrics store with what devices of these statuses send. */
async function storeOf(devices: readonly Status[], more: (device: Status) => readonly Metric[] = () => []) {
	const nowSeconds = Date.now() / 1000;
	const points = devices.flatMap((device) =>
		[...stateMetrics(device), ...more(device)].flatMap(({ name, samples }) =>
			samples.map(({ labels, value }) => ({
				metric: { __name__: name, device: device.deviceId ?? '', ...labels },
				value: [nowSeconds, String(value)],
			})),
		),
	);
	const store = createServer((request, response) => {
		const query = new URL(request.url ?? '', 'http://store').searchParams.get('query') ?? '';
		const [, name, wanted] = /(idv_agent_\w+)(?: == (\d))?/.exec(query) ?? [];
		const result = points.filter(
			({ metric, value }) => metric.__name__ === name && (wanted === undefined || value[1] === wanted),
		);
		response.end(JSON.stringify({ status: 'success', data: { resultType: 'vector', result } }));
	});
	return `http://127.0.0.1:${await listen(store)}`;
}
const status = (...args: string[]) => operator.idv(['fleet', 'status', ...args]);

describe('idv fleet status --plan', () => {
	test('nobody has moved while their ring is not due, and a device that never came is counted', async () => {
		const startAt = at(24 * HOUR);
		const plan = await planFile(toNew([{ percent: 100, startAt }]));
		const from = await lines(line('K-1', 'old'), line('K-2', 'old'), line('K-3', 'old'));
		const inventory = await operator.file('devices.csv', 'deviceId\nK-1\nK-2\nK-3\nK-4\n');
		const shown = succeeded(await status('--plan', plan, '--from', from, '--inventory', inventory, '--json'));
		expect(shown).toMatchObject({ devices: 4, atTarget: 0, dueLater: 3, neverSeen: 1, overdue: 0, moved: 0 });
		expect(shown.firstDueAt).toBe(startAt);
		const { stdout } = await status('--plan', plan, '--from', from, '--inventory', inventory);
		expect(stdout).toMatch(/^At target +0$/m);
		expect(stdout).toMatch(new RegExp(`^Due later +3 +${localTime(startAt)}$`, 'm'));
		expect(stdout).toMatch(/^Never seen +1 +K-4$/m);
	});

	test('says why a device is late or refuses, and groups the reasons', async () => {
		const plan = await planFile({ defaults: { workflowId: 'new' } });
		const heard = at(-1000);
		const refused = { revision: 7, code: 'plan-not-followed', message: 'The service does not know workflow new.' };
		const refusing = { plan: { revision: 7, followed: 6, refused } };
		const from = await lines(
			line('K-1', 'old', refusing),
			line('K-2', 'old', refusing),
			line('K-3', 'old', { workflow: { wanted: 'old', live: 'old', source: 'file' } }),
			line('K-4', 'old', { workflow: { wanted: 'new', live: 'old', waitsUntil: at(60_000), source: 'plan' } }),
			line('K-5', 'old', { plan: null }),
			line('K-6', 'old', { warnings: [{ code: 'plan-untrusted', message: 'The plan is not signed.' }] }),
			line('K-7', 'old', { plan: { revision: 6, followed: 6, refused: null } }),
			line('K-8', 'new'),
			line('K-9', 'new', {
				lastHeartbeatAt: heard,
				state: 'offline',
				problem: { code: 'dns-failed', message: 'No DNS.' },
			}),
		);
		const told = await status('--plan', plan, '--from', from, '--json');
		expect(told.stderr).toBe(
			'Warning: 1 device cannot follow the plan that is served (K-6: The plan is not signed).\n',
		);
		const shown = succeeded({ ...told, stderr: '' });
		expect(shown).toMatchObject({ atTarget: 1, refused: 2, overdue: 5, offline: 1, versions: { '0.2.0': 9 } });
		const reasons = shown.reasons.map(({ standing, reason, devices }: Record<string, string>) => [
			standing,
			reason,
			devices,
		]);
		expect(reasons).toEqual([
			['refused', 'The service does not know workflow new.', 2],
			['overdue', 'its own settings name the workflow (file)', 1],
			['overdue', 'applications on it hold a lease', 1],
			['overdue', 'it follows no plan: fleet.planUrl is not set', 1],
			['overdue', 'The plan is not signed.', 1],
			['overdue', 'it has confirmed revision 6 of the plan', 1],
			['offline', 'No DNS.', 1],
		]);
		const { stdout } = await status('--plan', plan, '--from', from);
		expect(stdout).toMatch(/^2 +refused +The service does not know workflow new\. \(K-1, K-2\)$/m);
		const clock = new Date(heard).toTimeString().slice(0, 8);
		expect(stdout).toMatch(new RegExp(`^Offline +1 +K-9 since (?:\\S+ )?${clock}$`, 'm'));
	});

	const since = '2026-02-03T04:05:06.000Z';
	const fileOf = { params: { setting: 'credential', since } };
	test.each([
		[
			'refused',
			{ warnings: [{ code: 'credential-refused', message: 'It says so itself.', params: { since } }] },
			'It says so itself',
		],
		[
			'unreadable',
			{ warnings: [{ code: 'credential-unreadable', message: 'It says so itself.', ...fileOf }] },
			'It says so itself',
		],
	])('a %s credential of a device at its target is named, with since when [F762]', async (_, more, words) => {
		const plan = await planFile({ defaults: { workflowId: 'new' } });
		const from = await lines(line('K-1', 'new', more), line('K-2', 'new'));
		const { stdout, stderr } = await status('--plan', plan, '--from', from, '--devices');
		expect(stderr).toContain('1 device cannot register with the credential of the settings');
		expect(stderr).toContain(`K-1: ${words}, since 2026-02-03`);
		expect(stdout).toMatch(new RegExp(`K-1 .*at target.*${words}, since 2026-02-03`));
		const told = await status('--plan', plan, '--from', from, '--devices', '--json');
		expect(JSON.parse(told.stdout).reports).toMatchObject([
			{ deviceId: 'K-1', problem: expect.stringMatching(/^credential-/), problemSince: since },
			{ deviceId: 'K-2', problem: null, problemSince: null },
		]);
		expect((await status('--from', from)).stderr).toContain(`K-1: ${words}`);
	});

	test.each([
		[
			'way out',
			{
				warnings: [
					{
						code: 'settings-not-followed',
						message: 'It says so itself.',
						params: { since: '2026-02-03T04:05:06.000Z' },
					},
				],
			},
			'It says so itself, since 2026-02-03',
		],
		['workflow', { problem: { code: 'workflow-unknown', message: 'It says so itself.' } }, 'It says so itself'],
		['value', { warnings: [{ code: 'settings-invalid', message: 'It says so itself.' }] }, 'It says so itself'],
		[
			'file',
			{
				warnings: [{ code: 'settings-unreadable', message: 'It says so itself.' }],
				problem: { code: 'service-unreachable', message: 'It is away.' },
			},
			'It says so itself',
		],
	])('a %s that was refused while others are in force is named, in every form [F803]', async (_, more, words) => {
		const plan = await planFile({ defaults: { workflowId: 'new' } });
		const from = await lines(line('K-1', 'new', more), line('K-2', 'new'));
		const { stdout, stderr } = await status('--plan', plan, '--from', from, '--devices');
		expect(stderr).toContain(`1 device cannot go by changed settings or a plan (K-1: ${words}`);
		expect(stdout).toContain(words);
		const code = Object.values(more)[0] as { code: string } | { code: string }[];
		const problem = [code].flat()[0]?.code;
		const told = await status('--plan', plan, '--from', from, '--devices', '--json');
		expect(JSON.parse(told.stdout).reports).toMatchObject([{ problem }, { problem: null }]);
		expect((await status('--plan', plan, '--from', from, '--csv')).stdout).toContain(`${problem}`);
		expect((await status('--from', from)).stderr).toContain(`K-1: ${words}`);
	});

	test('a key or a certificate that ends soon is named, from lines and from a store [F1584]', async () => {
		const plan = await planFile({ defaults: { workflowId: 'new' } });
		const ends = '2026-12-24T00:00:00.000Z';
		const message = `The client certificate in /etc/c.pem ends at ${ends}.`;
		const warnings = [{ code: 'credential-ending', message, params: { path: '/etc/c.pem', at: ends, days: 25 } }];
		const devices = [line('K-1', 'new', { warnings }), line('K-2', 'new')];
		const from = await lines(...devices);
		const store = await storeOf(
			devices.map((device) => JSON.parse(device)),
			({ deviceId }) => {
				const samples = deviceId === 'K-1' ? [{ value: Date.parse(ends) / 1000 }] : [];
				return [{ name: 'idv_agent_credential_ends_time_seconds', type: 'gauge', help: '', samples }];
			},
		);
		const named = '1 device with a credential that ends soon or has ended (K-1: ';
		for (const args of [['--plan', plan], []]) {
			const { stderr } = await status(...args, '--from', from);
			expect(stderr).toContain(`${named}${message.slice(0, -1)}).`);
			expect(stderr).not.toContain('cannot register');
		}
		const { stderr } = await status('--plan', plan, '--prometheus', store);
		expect(stderr).toContain(`${named}a key or a client certificate ends at ${ends}).`);
	});

	test('all that was refused on one device is named, also while it is offline [F904]', async () => {
		const plan = await planFile({ defaults: { workflowId: 'new' } });
		const params = { since: at(-HOUR) };
		const warnings = ['credential-refused', 'settings-not-followed', 'settings-invalid'].map((code) => ({
			code,
			params,
		}));
		const away = { state: 'offline', problem: { code: 'service-unreachable', message: 'It is away.' }, warnings };
		const from = await lines(line('K-1', 'new', { warnings }), line('K-2', 'new', away));
		const { stdout, stderr } = await status('--plan', plan, '--from', from, '--devices');
		expect(stderr).toMatch(
			/2 devices cannot go by changed settings or a plan \(K-1: it is not online with .*, since .*; and a setting on it is not/,
		);
		expect(stderr).toMatch(
			/2 devices cannot register with the credential of the settings \(K-1: .*; K-2: the service refuses/,
		);
		for (const device of ['K-1', 'K-2'])
			expect(stdout).toMatch(
				new RegExp(`${device} .*refuses its credential.*; and it is not online with .*; and a setting`),
			);
	});

	test('an id under which two serial numbers or MAC addresses report is named [F763]', async () => {
		const plan = await planFile({ defaults: { workflowId: 'new' } });
		const one = { serial: 'A1', macAddress: '02:00:00:00:00:01' };
		const from = await lines(
			line('K-1', 'new', one),
			line('K-1', 'new', { ...one, serial: 'B2' }),
			line('K-1', 'new', one),
			line('K-2', 'new', one),
			line('K-2', 'new', { macAddress: '02:00:00:00:00:02' }),
			line('K-3', 'new', one),
			line('K-3', 'new', { ...one, macAddress: one.macAddress.toUpperCase() }),
		);
		for (const args of [['--plan', plan], []]) {
			const { stderr } = await status(...args, '--from', from);
			expect(stderr).toContain('2 ids of more than one device');
			expect(stderr).toMatch(/K-1: serial numbers (A1 and B2|B2 and A1); K-2: MAC addresses 02:\S+ and 02:/);
			expect(stderr).not.toContain('K-3');
		}
	});

	test('reports of one device that contradict each other are named with the one that counts, and a restart or a move is not one [F871]', async () => {
		const run = (startedAt: number, heard: number, more: Record<string, unknown> = {}) => ({
			startedAt: at(startedAt),
			channel: { state: 'online', since: at(startedAt), lastHeartbeatAt: at(heard) },
			...more,
		});
		const [early, late] = [run(-5 * HOUR, -2 * HOUR), run(-HOUR, -60_000)];
		const same = { channel: { state: 'online', since: null, lastHeartbeatAt: at(-50_000) } };
		const from = await lines(
			// Two agents at once.
			line('K-1', 'new', run(-4 * HOUR, -60_000)),
			line('K-1', 'new', run(-5 * HOUR, -90_000)),
			// Two states of one moment.
			line('K-2', 'new', { ...same, state: 'offline' }),
			line('K-2', 'new', same),
			// A restart, a move, an agent that was not online yet, and a clock that was set after the start.
			...[line('K-3', 'new', late), line('K-3', 'old', early)],
			...[line('K-4', 'new', run(-HOUR, -60_000)), line('K-4', 'old', run(-HOUR, -90_000))],
			line('K-5', 'new', { state: 'offline', startedAt: at(-60_000), channel: { lastHeartbeatAt: null } }),
			line('K-5', 'new', early),
			...[line('K-6', 'new', late), line('K-6', 'new', run(-HOUR, -90_000, { startedAt: '1970-01-01T00:01:00.000Z' }))],
		);
		for (const args of [[], ['--plan', await planFile({ defaults: { workflowId: 'new' } })]]) {
			const { stderr } = await status(...args, '--from', from);
			expect(stderr).toContain('Reports of 2 devices disagree, of which the newest counts');
			expect(stderr).toMatch(
				/\(K-1: counted is "online, workflow new" of (\S+), from an agent that runs since \S+, not "online, workflow new" of (?!\1)\S+, from .*; K-2: counted is "online, workflow new" of (\S+), not "not online, workflow new" of \2\)/,
			);
		}
		const told = await status('--from', from, '--devices', '--json');
		expect(JSON.parse(told.stdout).reports).toMatchObject([
			{ deviceId: 'K-1', online: true, dispute: expect.stringContaining('counted is') },
			{ deviceId: 'K-2', online: true },
			{ deviceId: 'K-3', workflowId: 'new' },
			{ deviceId: 'K-4', workflowId: 'new' },
			{ deviceId: 'K-5', online: false },
			{ deviceId: 'K-6' },
		]);
	});

	test('the newest line of a device applies, and an old one is not believed', async () => {
		const plan = await planFile({ defaults: { workflowId: 'new' } });
		const from = await lines(
			line('K-1', 'new', { lastHeartbeatAt: at(-1000) }),
			line('K-1', 'old', { lastHeartbeatAt: at(-60_000) }),
			line('K-2', 'new', {
				lastHeartbeatAt: at(-3 * HOUR),
				channel: { state: 'online', lastHeartbeatAt: at(-3 * HOUR) },
			}),
		);
		expect(succeeded(await status('--plan', plan, '--from', from, '--json'))).toMatchObject({
			atTarget: 1,
			offline: 1,
		});
		const longer = ['--stale-seconds', '20000', '--json'];
		expect(succeeded(await status('--plan', plan, '--from', from, ...longer))).toMatchObject({ atTarget: 2 });
	});

	test('reads a directory, lines of 0.1.0, a byte order mark, and says which lines have no device', async () => {
		const plan = await planFile({ defaults: { workflowId: 'new' } });
		const directory = join(operator.directory, 'gathered');
		await mkdir(directory);
		const old =
			'{"schemaVersion":1,"state":"online","sentence":"Online.","deviceId":"K-1","workflow":{"wanted":"new","live":"new"},"plan":{"revision":7,"followed":7,"rule":null,"workflowId":"new","next":null,"refused":null,"checkedAt":null}}';
		await writeFile(join(directory, 'a.json'), `\ufeff${old}\r\n`);
		await writeFile(join(directory, 'b.json'), `${line('K-2', 'new')}\n${line(null, 'x', { state: 'unpaired' })}\n`);
		const { stdout, stderr } = await status('--plan', plan, '--from', directory, '--json');
		expect(JSON.parse(stdout)).toMatchObject({ devices: 2, atTarget: 2 });
		expect(stderr).toMatch(/^Warning: 1 line of .*gathered without a deviceId: not counted\.$/m);
	});

	test('a line that was cut off is named, and hides no other', async () => {
		const plan = await planFile({ defaults: { workflowId: 'new' } });
		const from = await lines(line('K-1', 'new'), line('K-2', 'new').slice(0, 100));
		const { stdout, stderr } = await status('--plan', plan, '--from', from, '--json');
		expect(JSON.parse(stdout)).toMatchObject({ devices: 1, atTarget: 1 });
		expect(stderr).toMatch(/^Warning: 1 line of .* is not counted:\n.*: line 2: this is not one whole JSON object/);
		const whole = await lines(JSON.stringify(JSON.parse(line('K-1', 'new')), null, 2));
		expect(succeeded(await status('--plan', plan, '--from', whole, '--json'))).toMatchObject({ devices: 1 });
	});

	test('a file with nothing in it is named, and hides no other', async () => {
		const plan = await planFile({ defaults: { workflowId: 'new' } });
		const directory = join(operator.directory, 'halves');
		await mkdir(directory);
		await writeFile(join(directory, 'a.json'), '');
		await writeFile(join(directory, 'b.json'), `${line('K-2', 'new')}\n`);
		const { stdout, stderr } = await status('--plan', plan, '--from', directory, '--json');
		expect(JSON.parse(stdout)).toMatchObject({ devices: 1, atTarget: 1 });
		expect(stderr).toMatch(/^Warning: 1 file with nothing in it: \S*a\.json\.\n$/);
	});

	test('devices that still have time are not said to be missing [F1339]', async () => {
		const plan = await planFile({ defaults: { workflowId: 'new' } });
		const from = await lines(line('K-1', 'old'), line('K-2', 'old'));
		const when = new Date(Date.now() - 1000).toISOString();
		const limits = ['--fail-above', '2%', '--grace-seconds', '600', '--published', when];
		const told = await status('--plan', plan, '--from', from, ...limits);
		expect(told).toMatchObject({
			status: 69,
			stderr: expect.stringMatching(/\(0 of 2\); 2 of these still have time for it\. Wait until their time is over/),
		});
		// So none may be silent in their place.
		const half = await lines(line('K-1', 'old'), line('K-2', 'new'));
		const gate = [...limits, '--allow-missing', '1', '--min-reported', '60%'];
		expect(await status('--plan', plan, '--from', half, ...gate)).toMatchObject({
			status: 69,
			stderr: expect.stringMatching(/: 1 of 2 devices .* 1 of these still has time for it; 60 % must have\. /),
		});
	});

	test('an empty file, or a directory without one, is no report of any device: a pipeline waits [F1346]', async () => {
		const plan = await planFile({ defaults: { workflowId: 'new' } });
		const directory = join(operator.directory, 'none');
		await mkdir(directory);
		const empty = join(operator.directory, 'empty.jsonl');
		await writeFile(empty, '\n');
		for (const from of [directory, empty]) {
			const told = await status('--plan', plan, '--from', from, '--fail-above', '2%');
			expect([told.status, told.stderr]).toEqual([69, expect.stringMatching(/^Warning: .*(a file|nothing) in it/)]);
		}
	});

	test('without an inventory a device of another fleet is not counted, also one that holds no plan [F1347]', async () => {
		const plan = await planFile({ format: 'idv-fleet-plan/2', fleet: 'north', defaults: { workflowId: 'new' } });
		const servedRefused = { code: 'plan-for-other-fleet', message: 'No.', remedy: '', params: { fleet: 'south' } };
		const other = { plan: { revision: null, followed: null, refused: null, servedRefused } };
		const from = await lines(line('K-1', 'new'), line('K-2', 'old', other));
		const told = await status('--plan', plan, '--from', from, '--json', '--fail-above', '2%');
		expect(succeeded(told)).toMatchObject({ devices: 1, atTarget: 1, unlisted: 1 });
	});

	test('a time that is still to come does not make a line the newest', async () => {
		const plan = await planFile({ defaults: { workflowId: 'new' } });
		const ahead = { channel: { lastHeartbeatAt: new Date(Date.now() + 1e10).toISOString() } };
		const from = await lines(line('K-1', 'new', ahead), line('K-1', 'new', { state: 'offline' }));
		const { stdout, stderr } = await status('--plan', plan, '--from', from, '--json');
		expect(JSON.parse(stdout)).toMatchObject({ offline: 1 });
		expect(stderr).toMatch(/1 line of .* with a time that is still to come/);
	});

	test.each([
		['fast', 3 * HOUR, 'its clock is 3 h fast'],
		['slow', -40 * 24 * HOUR, 'its clock is 40 days slow'],
	])(
		'a clock that is %s is named, and what the device tells by it counts in the time of the manager [F1193]',
		async (direction, aheadMs, words) => {
			// By a fast clock it begins early; in place of a slow one it believes the service.
			const fastMs = Math.max(0, aheadMs);
			const warnings = [
				{ code: 'clock-wrong', message: 'Wrong.', params: { seconds: Math.abs(aheadMs) / 1000, direction } },
			];
			const given = (deviceId: string, live: string, nextMs: number | null, followed = 6) => ({
				...JSON.parse(
					line(deviceId, live, { lastHeartbeatAt: at(aheadMs - 1000), startedAt: at(aheadMs - HOUR), warnings }),
				),
				channel: { state: 'online', since: at(aheadMs - HOUR), lastHeartbeatAt: at(aheadMs - 1000) },
				plan: {
					...{ revision: 7, followed, rule: null, workflowId: null, refused: null, checkedAt: at(fastMs - 1000) },
					next: nextMs === null ? null : { revision: 7, workflowId: 'new', at: at(fastMs + nextMs) },
				},
			});
			const devices = [
				given('due', 'old', 600_000),
				given('late', 'old', -600_000),
				given('none', 'old', null, 7),
				given('done', 'new', null, 7),
			];
			const store = await storeOf(devices, () => [
				{ name: 'idv_agent_clock_skew_seconds', type: 'gauge', help: '', samples: [{ value: aheadMs / 1000 }] },
			]);
			const from = await lines(...devices.map((device) => JSON.stringify(device)));
			const plan = await planFile({ defaults: { workflowId: 'new' } });
			const ring = await planFile(toNew([{ percent: 100, startAt: at(2 * HOUR) }]), 'ring.json');
			for (const source of [
				['--from', from],
				['--prometheus', store],
			]) {
				const shown = await status('--plan', plan, ...source, '--json', '--devices');
				expect(shown.stderr).toContain(`4 devices with a wrong clock (due: ${words}; `);
				expect(shown.stderr).not.toContain('still to come');
				const { reports } = JSON.parse(shown.stdout);
				const told = Object.fromEntries(
					reports.map(({ deviceId, standing, reason, at: when }: Record<string, string>) => [
						deviceId,
						[standing, reason, when],
					]),
				);
				expect(told).toEqual({
					due: ['dueLater', null, expect.any(String)],
					late: ['overdue', words, null],
					none: ['overdue', words, null],
					done: ['atTarget', null, null],
				});
				expect(Math.abs(Date.parse(told['due'][2]) - Date.now() - 600_000)).toBeLessThan(60_000);
				// By its own clock the ring has begun already.
				const early = JSON.parse((await status('--plan', ring, ...source, '--json', '--devices')).stdout).reports;
				const { standing, reason } = early.find(({ deviceId }: { deviceId: string }) => deviceId === 'done');
				expect([standing, reason]).toEqual(aheadMs > 0 ? ['atTarget', null] : ['overdue', words]);
			}
		},
	);

	test('words of a device do not steer the terminal', async () => {
		const plan = await planFile({ defaults: { workflowId: 'new' } });
		const refused = { revision: 7, message: 'No.\u001b[2J\n\u202eGone.' };
		const from = await lines(line('K\u001b[31m', 'old', { plan: { revision: 7, followed: 6, refused } }));
		const { stdout } = await status('--plan', plan, '--from', from, '--devices');
		expect(stdout).toMatch(/^1 +refused +No\. \[2J Gone\. \(K \[31m\)$/m);
		expect(stdout).not.toMatch(/[\p{Bidi_Control}\u001b]/u);
	});

	test('a version that was taken back counts as refused, also where the service or a store tells it', async () => {
		const rings = [{ percent: 100, agent: { version: '0.3.0' } }];
		const plan = await planFile({
			format: 'idv-fleet-plan/2',
			defaults: { workflowId: 'new', rollout: { to: {}, rings } },
		});
		const points: Record<string, [object, number]> = {
			report_time: [{ version: '0.2.0' }, Date.now() / 1000],
			online: [{}, 1],
			workflow: [{ workflow: 'new' }, 1],
			taken_back: [{ update: '0.3.0', fault: 'crashes' }, 1],
		};
		const store = createServer((request, response) => {
			const found = Object.entries(points).find(
				([name]) => request.url?.includes(`idv_agent_update_${name}`) || request.url?.includes(`idv_agent_${name}`),
			);
			const result = found ? [{ metric: { device: 'P-1', ...found[1][0] }, value: [1, String(found[1][1])] }] : [];
			response.end(JSON.stringify({ status: 'success', data: { resultType: 'vector', result } }));
		});
		const url = `http://127.0.0.1:${await listen(store)}`;
		const shown = succeeded(await status('--plan', plan, '--prometheus', url, '--json'));
		expect(shown).toMatchObject({
			refused: 1,
			reasons: [{ reason: 'version 0.3.0 was taken back (crashes)', examples: ['P-1'] }],
		});
	});

	test.each([
		['a way out', null, 'it is not online with its changed settings, and stays with those from before'],
		['a workflow', 'workflow-unknown', 'the service does not know the workflow'],
		['a value', 'settings-invalid', 'a setting on it is not valid, or not in force as it is written'],
	])('a metrics store tells which device has refused %s, and since when [F809]', async (_, code, words) => {
		const plan = await planFile({ defaults: { workflowId: 'new' } });
		const points: Record<string, [object, number]> = {
			report_time: [{ version: '0.2.0' }, Date.now() / 1000],
			online: [{}, 1],
			workflow: [{ workflow: 'new' }, 1],
			...(code && { [code.startsWith('settings') ? 'warning' : 'problem']: [{ code }, 1] as const }),
			settings_refused_time: [{}, Date.parse(since) / 1000],
		};
		const store = createServer((request, response) => {
			const found = Object.entries(points).find(([name]) => request.url?.includes(`idv_agent_${name}`));
			const result = found ? [{ metric: { device: 'P-1', ...found[1][0] }, value: [1, String(found[1][1])] }] : [];
			response.end(JSON.stringify({ status: 'success', data: { resultType: 'vector', result } }));
		});
		const url = `http://127.0.0.1:${await listen(store)}`;
		const { stderr } = await status('--plan', plan, '--prometheus', url);
		expect(stderr).toContain(`1 device cannot go by changed settings or a plan (P-1: ${words}, since 2026-02-03`);
	});

	test.each<[string, number, string, RegExp]>([
		[
			'with an error of its own',
			422,
			'{"status":"error","error":"too many samples"}',
			/answered 422: too many samples\./,
		],
		['that is down', 500, 'oops', /answered 500 to a query\. Look at the metrics store/],
		['that asks for a credential', 401, '', /answered 401 .*IDV_PROMETHEUS_AUTHORIZATION/],
	])('a metrics store %s is named', async (_, code, body, words) => {
		const store = createServer((_request, response) => response.writeHead(code).end(body));
		const plan = await planFile({ defaults: { workflowId: 'new' } });
		const url = `http://127.0.0.1:${await listen(store)}`;
		await operator.expectRefused({ status: 69, code: 'bad-response', words }, [
			'fleet',
			'status',
			'--plan',
			plan,
			'--prometheus',
			url,
		]);
	});

	test('a metrics store is asked three things at once, and its words repeat no credential of the command [F1652]', async () => {
		let [underWay, most] = [0, 0];
		let says: (sent: string) => object = () => ({ status: 'success', data: { resultType: 'vector', result: [] } });
		const store = createServer((request, response) => {
			underWay += 1;
			most = Math.max(most, underWay);
			setImmediate(() => {
				underWay -= 1;
				response.end(JSON.stringify(says(String(request.headers.authorization))));
			});
		});
		const plan = await planFile({ defaults: { workflowId: 'new' } });
		const args = ['fleet', 'status', '--plan', plan, '--prometheus', `http://127.0.0.1:${await listen(store)}`];
		const env = { ...operator.env(), IDV_PROMETHEUS_AUTHORIZATION: 'Bearer store-secret-0123456789' };
		expect((await operator.idv(args, env)).status).toBe(0);
		expect(most).toBeLessThanOrEqual(3);
		for (const words of [{ error: 'no: ' }, { warnings: ['used '], data: { resultType: 'vector', result: [] } }]) {
			says = (sent) => JSON.parse(JSON.stringify({ status: 'error', ...words }).replace(/(no: |used )/, `$1${sent}`));
			const { stdout, stderr } = await operator.idv(args, env);
			expect(stderr).toContain('[secret]');
			expect(stdout + stderr).not.toContain('store-secret');
		}
	});

	test('a pipeline without a report does not go on, and NaN of a store is no figure', async () => {
		const plan = await planFile({ defaults: { workflowId: 'new' } });
		let result: object[] = [];
		const store = createServer((_request, response) =>
			response.end(JSON.stringify({ status: 'success', data: { resultType: 'vector', result } })),
		);
		const args = ['--plan', plan, '--prometheus', `http://127.0.0.1:${await listen(store)}`];
		expect((await operator.idv(['fleet', 'status', ...args, '--fail-above', '2%'])).status).toBe(69);
		for (const value of ['NaN', '+Inf', '1e300']) {
			result = [{ metric: { device: 'K-1' }, value: [1, value] }];
			expect(JSON.parse((await status(...args, '--json')).stdout)).toMatchObject({ devices: 0 });
		}
	});

	test('a pipeline stops at too many failures, and at too few reports, and in both as many as it is told may be silent [F1194]', async () => {
		const plan = await planFile({ defaults: { workflowId: 'new' } });
		const refused = { plan: { revision: 7, followed: 6, refused: { revision: 7, message: 'No.' } } };
		const from = await lines(
			...Array.from({ length: 20 }, (_, n) => (n === 0 ? line('K-0', 'old', refused) : line(`K-${n}`, 'new'))),
		);
		const args = ['fleet', 'status', '--plan', plan, '--from', from];
		expect((await operator.idv([...args, '--fail-above', '5%'])).status).toBe(0);
		await operator.expectRefused(
			{
				status: 75,
				code: 'plan-not-followed',
				words: /1 of 20 devices whose change is due have failed: 5 %, and 2 % may/,
			},
			[...args, '--fail-above', '2%'],
		);
		const more = await operator.file(
			'devices.csv',
			`deviceId\n${Array.from({ length: 40 }, (_, n) => `K-${n}`).join('\n')}\n`,
		);
		const words = /21 of 40 devices whose change is due have failed \(20 of them not heard since\)/;
		const missing = [...args, '--inventory', more, '--fail-above'];
		await operator.expectRefused({ status: 75, code: 'plan-not-followed', words }, [...missing, '10%']);
		const gate = [...missing, '10%', '--allow-missing', '20', '--min-reported'];
		expect((await operator.idv([...gate, '100%'])).status).toBe(0);
		const few = [...missing, '100%', '--allow-missing', '10', '--min-reported'];
		expect((await operator.idv([...few, '66%'])).status).toBe(0);
		await operator.expectRefused(
			{
				status: 69,
				code: 'devices-offline',
				words: /20 of 40 devices whose change is due have reported; 67 % must have, not counting 10 that may be silent/,
			},
			[...few, '67%'],
		);
		await operator.expectRefused({ status: 64, code: 'usage', words: /A share must be written as 2%/ }, [
			...gate,
			'many',
		]);
	});

	test('what a rule says without a ring is judged by its own devices, also while a ring runs elsewhere [F1241]', async () => {
		const ring = { to: { workflowId: 'lobby-2' }, rings: [{ percent: 100, startAt: at(-HOUR) }] };
		const plan = await planFile({
			defaults: { workflowId: 'old' },
			rules: [
				{ name: 'lobby', match: { deviceIds: ['L-0', 'L-1'] }, workflowId: 'old', rollout: ring },
				{ name: 'north', match: { deviceIds: ['N-0', 'N-1'] }, workflowId: 'north' },
			],
		});
		const others = Array.from({ length: 96 }, (_, n) => `K-${n}`);
		const ids = ['L-0', 'L-1', 'N-0', 'N-1', ...others];
		const inventory = await operator.file('devices.csv', `deviceId\n${ids.join('\n')}\n`);
		const well = [line('L-0', 'lobby-2'), line('L-1', 'lobby-2'), ...others.map((id) => line(id, 'old'))];
		const no = { plan: { revision: 7, followed: 6, refused: { revision: 7, message: 'No.' } } };
		const gate = ['fleet', 'status', '--plan', plan, '--inventory', inventory, '--fail-above', '5%', '--from'];
		const refused = await lines(...well, line('N-0', 'old', no), line('N-1', 'old', no));
		const words = /2 of 2 devices whose change is due have failed/;
		await operator.expectRefused({ status: 75, code: 'plan-not-followed', words }, [...gate, refused]);
		// Missing is failed, but for what the fleet had before any of it.
		const silent = await lines(...well);
		const missing = /2 of 2 devices whose change is due have failed \(2 of them not heard since\)/;
		await operator.expectRefused({ status: 75, code: 'plan-not-followed', words: missing }, [...gate, silent]);
		const known = [...gate, silent, '--allow-missing', '2'];
		expect((await operator.idv([...known, '--min-reported', '100%'])).status).toBe(0);
		const absent = await lines(...well.slice(0, -3), line('N-0', 'north'), line('N-1', 'north'));
		expect((await operator.idv([...gate, absent])).status).toBe(0);
		const few = /95 of 98 devices whose change is due have reported; 98 % must have/;
		const all = [...gate, absent, '--min-reported', '98%'];
		await operator.expectRefused({ status: 69, code: 'devices-offline', words: few }, all);
	});

	test('enough refusals stop a rollout although too few devices have reported [F1334]', async () => {
		const plan = await planFile({ defaults: { workflowId: 'new' } });
		const ids = Array.from({ length: 100 }, (_, n) => `K-${n}`);
		const inventory = await operator.file('devices.csv', `deviceId\n${ids.join('\n')}\n`);
		const no = { plan: { revision: 7, followed: 6, refused: { revision: 7, message: 'No.' } } };
		const reports = ids.slice(0, 90).map((id, n) => (n < 40 ? line(id, 'old', no) : line(id, 'new')));
		const args = ['fleet', 'status', '--plan', plan, '--inventory', inventory, '--from', await lines(...reports)];
		const gate = [...args, '--min-reported', '95%', '--fail-above'];
		const words = /50 of 100 devices whose change is due have failed \(10 of them not heard since\): 50 %, and 2 % may/;
		await operator.expectRefused({ status: 75, code: 'plan-not-followed', words }, [...gate, '2%']);
		const few = /90 of 100 devices whose change is due have reported; 95 % must have/;
		await operator.expectRefused({ status: 69, code: 'devices-offline', words: few }, [...gate, '40%']);
	});

	test('text and JSON give the same figures of what has failed, and the worst step is named [F1423]', async () => {
		const rule = (name: string) => ({ name, match: { deviceIds: [`${name}-*`] }, workflowId: name });
		const plan = await planFile({ defaults: { workflowId: 'old' }, rules: ['A', 'B', 'C'].map(rule) });
		const ids = ['A-1', 'A-2', 'B-1', 'B-2', 'B-3', 'C-1', 'C-2', 'C-3', 'C-4', 'C-5', 'C-6'];
		const inventory = await operator.file('devices.csv', `deviceId\n${ids.join('\n')}\n`);
		const no = { plan: { revision: 7, followed: 6, refused: { revision: 7, message: 'No.' } } };
		// The others are silent, which is failed: one of A's two, and all of B and C.
		const from = await lines(
			...['A-1', 'B-1', 'B-2', 'C-1', 'C-2', 'C-3', 'C-4'].map((id) => line(id, 'old', no)),
			line('A-2', 'A'),
		);
		const gate = ['--plan', plan, '--inventory', inventory, '--from', from, '--fail-above', '30%'];
		const { error, judged, steps } = JSON.parse((await status(...gate, '--json')).stdout);
		const words =
			'6 of 6 devices whose change is due have failed (2 of them not heard since): 100 %, and 30 % may (C workflow C).';
		expect(error.message).toBe(words);
		expect(judged).toEqual({ devices: 6, reported: 4, failed: 6 });
		expect(steps[0]).toMatchObject({ step: 'C workflow C', ...judged });
		const { status: code, stderr } = await status(...gate);
		expect([code, stderr]).toEqual([75, expect.stringContaining(words)]);
	});

	test('a device of the inventory that follows the plan of another fleet is told as that [F1335]', async () => {
		const plan = await planFile({ format: 'idv-fleet-plan/2', defaults: { workflowId: 'new' }, fleet: 'north' });
		const inventory = await operator.file('devices.csv', 'deviceId\nK-0\nK-1\n');
		const south = { plan: { revision: 12, followed: 12, fleet: 'south', next: null, refused: null } };
		const from = await lines(line('K-0', 'new'), line('K-1', 'old', south));
		const { stdout } = await status('--plan', plan, '--inventory', inventory, '--from', from, '--devices');
		expect(stdout).toMatch(/K-1 .*it follows the plan of another fleet, south/);
	});

	test.each([{ fleet: 'north' }, {}])(
		'and is not at its target because it happens to have what the plan %j says; the pipeline stops [F1662]',
		async (named) => {
			const plan = await planFile({ format: 'idv-fleet-plan/2', defaults: { workflowId: 'new' }, ...named });
			const inventory = await operator.file('devices.csv', 'deviceId\nK-0\nK-1\n');
			const of = (fleet = null as string | null) => ({
				plan: { revision: 7, followed: 7, fleet, next: null, refused: null },
			});
			const from = await lines(line('K-0', 'new', of(named.fleet)), line('K-1', 'new', of('south')));
			const args = ['--plan', plan, '--inventory', inventory, '--from', from];
			const { stdout } = await status(...args);
			expect(stdout).toMatch(
				/^At target +1\s+[\s\S]*^1 +overdue +it follows the plan of another fleet, south \(K-1\)$/m,
			);
			expect((await status(...args, '--fail-above', '0%')).status).toBe(75);
			// It has time to take the plan.
			const later = await status(...args, '--grace-seconds', '600', '--published', at(0), '--fail-above', '0%');
			expect(later.status).toBe(0);
		},
	);

	test('a share is compared as it is written, of what failed and of what may move [F1664]', async () => {
		const plan = await planFile({ defaults: { workflowId: 'new' } });
		const ids = Array.from({ length: 1000 }, (_, n) => `K-${n}`);
		const rows = ids.map((id, n) => `${id},${n < 29 ? 'old' : 'new'}`);
		const inventory = await operator.file('devices.csv', `deviceId,workflowId\n${rows.join('\n')}\n`);
		const from = await lines(...ids.map((id, n) => line(id, n < 29 ? 'old' : 'new')));
		const gate = (limit: string) =>
			status('--plan', plan, '--inventory', inventory, '--from', from, '--fail-above', limit);
		expect([(await gate('2.9%')).status, (await gate('2.8%')).status]).toEqual([0, 75]);
		const check = (limit: string) =>
			operator.idv(['fleet', 'check', plan, '--inventory', inventory, '--max-moves', limit]);
		expect([(await check('2.9%')).status, (await check('2.8%')).status]).toEqual([0, 65]);
	});

	test('a device that a metrics store hears no more has that as its reason, as in every other source [F1663]', async () => {
		const plan = await planFile({ defaults: { workflowId: 'new' } });
		const inventory = await operator.file('devices.csv', 'deviceId\nK-0\n');
		const nowSeconds = Date.now() / 1000;
		const store = createServer((request, response) => {
			const query = new URL(request.url ?? '', 'http://store').searchParams.get('query') ?? '';
			const heard = { metric: { device: 'K-0' }, value: [nowSeconds, String(nowSeconds - 7200)] };
			const result = query.startsWith('max_over_time') ? [heard] : [];
			response.end(JSON.stringify({ status: 'success', data: { resultType: 'vector', result } }));
		});
		const url = `http://127.0.0.1:${await listen(store)}`;
		const { stdout } = await status('--plan', plan, '--inventory', inventory, '--prometheus', url, '--json');
		expect(JSON.parse(stdout).reasons).toMatchObject([
			{ standing: 'offline', reason: 'nothing was heard since', devices: 1 },
		]);
	});

	test('a device that is not in the inventory counts in no figure, and is listed apart', async () => {
		const plan = await planFile(toNew([{ percent: 100, startAt: at(-HOUR) }]));
		const own = Array.from({ length: 20 }, (_, n) => `K-${n}`);
		const inventory = await operator.file('devices.csv', `deviceId\n${own.join('\n')}\n`);
		// K-0 was never heard; k-0 is another device, and so are those that happen to do what the plan says.
		const foreign = ['k-0', ...Array.from({ length: 80 }, (_, n) => `X-${n}`)];
		const newer = { plan: { revision: 9, followed: 9, refused: null } };
		const from = await lines(
			...own.slice(1).map((id) => line(id, 'new')),
			...foreign.map((id) => line(id, 'new', newer)),
		);
		const args = ['--plan', plan, '--from', from, '--inventory', inventory];
		const shown = await status(...args);
		expect(shown.stdout).toMatch(/^Revision 7, 20 devices:$/m);
		expect(shown.stderr).toMatch(/^Warning: K-0 and k-0 differ in capitals only: .*\n$/);
		expect(shown.stdout).toMatch(/^100 % +defaults +20 +19 +0 +0 +0 +0 +1$/m);
		expect(shown.stdout).toMatch(/^Not in the inventory, not counted: 81 \(k-0, X-0, .*, …\)$/m);
		expect(JSON.parse((await status(...args, '--json')).stdout)).toMatchObject({
			...{ devices: 20, atTarget: 19, neverSeen: 1, unlisted: 81, workflows: { new: 19 } },
			rings: [{ devices: 20 }],
			judged: { devices: 20, reported: 19, failed: 1 },
		});
		expect(await status(...args, '--fail-above', '2%', '--min-reported', '95%')).toMatchObject({
			status: 75,
			stderr: expect.stringMatching(/1 of 20 devices whose change is due have failed.*\[plan-not-followed\]$/m),
		});
		expect((await status(...args, '--csv')).stdout.trim().split('\r\n')).toHaveLength(21);
	});

	test.each(['failAbove', 'minReported', 'csv', 'watch', 'inventory'])(
		'%s says nothing without a plan [F1846]',
		async (flag) => {
			const failure = { code: 'usage', message: expect.stringMatching(/^--[a-z-]+ requires --plan FILE\.$/) };
			await expect(showFleetStatus({} as Shell, { [flag]: 0.5 } as never)).rejects.toMatchObject({ failure });
		},
	);

	test('without a report, it is said that there is none, and no limit that nobody has set', async () => {
		const plan = await planFile({ defaults: { workflowId: 'new' } });
		const inventory = await operator.file('devices.csv', 'deviceId\nK-1\nK-2\n');
		const from = await lines(line('X-1', 'new'));
		const args = ['fleet', 'status', '--plan', plan, '--from', from, '--inventory', inventory];
		for (const [flag, end] of [
			['--fail-above', ''],
			['--min-reported', '; 2 % must have'],
		] as const) {
			const { status: ended, stderr } = await operator.idv([...args, flag, '2%']);
			expect(ended).toBe(69);
			expect(stderr).toContain('Warning: No device of the inventory has reported: ');
			expect(stderr).toContain(`Error: No device whose change is due has reported (0 of 2)${end}. `);
		}
	});

	test('writes CSV that a spreadsheet reads, without formulas of a device', async () => {
		const plan = await planFile({ defaults: { workflowId: 'new' } });
		const refused = { revision: 7, message: '=cmd("x"), or not' };
		const from = await lines(
			line('K-1', 'old', { plan: { revision: 7, followed: 6, refused } }),
			line('K-2', 'new', { agentVersion: '-1' }),
			line('K-3;=1', 'new', { agentVersion: '＝1' }),
			line('K-4;"=1;\u200b=2', 'new'),
		);
		const { stdout } = await status('--plan', plan, '--from', from, '--csv');
		const { parse } = await import('csv-parse/sync');
		expect(parse(stdout, { columns: true })).toMatchObject([
			{ deviceId: 'K-1', standing: 'refused', workflowId: 'old', target: 'new', reason: `'=cmd("x"), or not` },
			{ deviceId: 'K-2', standing: 'atTarget', agentVersion: "'-1", reason: '' },
			{ deviceId: "K-3;'=1", agentVersion: "'＝1" },
			{ deviceId: `K-4;'"=1;'\u200b=2` },
		]);
	});

	test('asks for labels where the plan chooses by them and no source has them', async () => {
		const rules = [{ name: 'lobby', match: { labels: ['lobby'] }, workflowId: 'new' }];
		const plan = await planFile({ rules });
		const from = await lines(line('K-1', 'new', { labels: ['lobby'] }), line('K-2', 'old'));
		const { stdout, stderr } = await status('--plan', plan, '--from', from, '--json', '--devices');
		expect(stderr).toMatch(/1 device reports none: name them with --inventory FILE/);
		expect(JSON.parse(stdout).reports).toMatchObject([
			{ deviceId: 'K-1', rule: 'lobby' },
			{ deviceId: 'K-2', rule: null },
		]);
	});

	test('a device is heard now while the service has its channel, and when a metrics store heard it last [F1848]', async () => {
		const nowMs = Date.now();
		const shell = { env: operator.env() } as unknown as Shell;
		const online = { deviceId: 'S-1', workflowId: 'new', online: true, lastHeartbeatAt: at(-5 * HOUR) };
		operator.service.failNext('/api/device', { status: 200, body: { devices: [online] } });
		expect((await gatherReports(shell, { service: true }, nowMs)).get('S-1')).toMatchObject({ heardAtMs: nowMs });
		const store = createServer((request, response) => {
			const value = [nowMs / 1000, String(nowMs / 1000 - 3600)];
			const result = request.url?.includes('max_over_time') ? [{ metric: { device: 'S-1' }, value }] : [];
			response.end(JSON.stringify({ status: 'success', data: { resultType: 'vector', result } }));
		});
		const prometheus = `http://127.0.0.1:${await listen(store)}`;
		const heardAtMs = (await gatherReports(shell, { prometheus }, nowMs)).get('S-1')?.heardAtMs ?? 0;
		expect(Math.abs(heardAtMs - (nowMs - HOUR))).toBeLessThan(2);
	});

	test('takes the device list of the service besides other sources, with the fields of heartbeats', async () => {
		const { service } = operator;
		const token = await registerDevice(service, 'S-1', 'checkin');
		const { socket } = await openChannel(service, token);
		const heard = service.waitFor('heartbeat');
		const said = { agentVersion: '0.2.0', planRefused: 7, planReason: 'No such workflow.', planRing: 10 };
		const beat = {
			type: 'heartbeat',
			deviceId: 'S-1',
			workflowId: 'checkin',
			sequence: 1,
			sentAt: 'now',
			uptimeSeconds: 1,
		};
		socket.send(JSON.stringify({ ...beat, ...said }));
		await heard;
		const plan = await planFile({ defaults: { workflowId: 'new' } });
		const from = await lines(line('K-1', 'new'));
		const shown = succeeded(await status('--plan', plan, '--from', from, '--service', '--json'));
		expect(shown).toMatchObject({ devices: 2, refused: 1, atTarget: 1, versions: { '0.2.0': 2 } });
		expect(shown.reasons).toMatchObject([{ reason: 'No such workflow.', devices: 1, examples: ['S-1'] }]);
		expect(succeeded(await status('--plan', plan, '--from', from, '--json')).devices).toBe(1);
	});

	test('the service says by default why a device refuses a plan that it has refused to it [F725]', async () => {
		const { service } = operator;
		const token = await registerDevice(service, 'S-2', 'checkin');
		const { socket } = await openChannel(service, token);
		await expect(registerDevice(service, 'S-2', 'face-chek')).rejects.toThrow();
		const heard = service.waitFor('heartbeat');
		const beat = {
			type: 'heartbeat',
			deviceId: 'S-2',
			workflowId: 'checkin',
			sequence: 1,
			sentAt: 'now',
			uptimeSeconds: 1,
		};
		socket.send(JSON.stringify({ ...beat, planRefused: 7 }));
		await heard;
		const plan = await planFile({ defaults: { workflowId: 'face-chek' } });
		const inventory = await operator.file('devices.csv', 'deviceId\nS-2\n');
		const look = async () => succeeded(await status('--plan', plan, '--inventory', inventory, '--json')).reasons;
		expect(await look()).toMatchObject([
			{ reason: 'the service does not know the workflow face-chek', standing: 'refused' },
		]);
		await registerDevice(service, 'S-2', 'checkin');
		expect(await look()).toMatchObject([{ reason: 'the device gave no reason' }]);
	});

	test('a device that follows the served plan again is not said to refuse it: what its newest heartbeat leaves out is over [F1260]', async () => {
		const { service } = operator;
		const { socket } = await openChannel(service, await registerDevice(service, 'S-3', 'checkin'));
		const beat = async (sequence: number, said: object) => {
			const heard = service.waitFor('heartbeat');
			const fixed = { type: 'heartbeat', deviceId: 'S-3', workflowId: 'checkin', sentAt: 'now', uptimeSeconds: 1 };
			socket.send(JSON.stringify({ ...fixed, sequence, planRevision: 7, agentVersion: '0.2.0', ...said }));
			await heard;
		};
		const plan = await planFile({ defaults: { workflowId: 'checkin' } });
		const inventory = await operator.file('devices.csv', 'deviceId\nS-3\n');
		const look = () => status('--plan', plan, '--inventory', inventory, '--service');
		await beat(1, { problemCode: 'plan-invalid', planReason: 'It is a web page.', planRing: 10, updateReason: 'held' });
		expect((await look()).stderr).toMatch(/1 device cannot follow the plan that is served \(S-3: It is a web page\)/);
		await beat(2, {});
		expect(await look()).toMatchObject({ status: 0, stderr: '' });
		const listed = JSON.parse(JSON.stringify(service.devices().find(({ deviceId }) => deviceId === 'S-3')));
		expect(listed).toMatchObject({ planRevision: 7, agentVersion: '0.2.0' });
		for (const name of ['problemCode', 'planReason', 'planRing', 'updateReason'])
			expect(listed).not.toHaveProperty(name);
	});

	test('a device that reports under an id as one of the inventory is named beside it [F1494]', async () => {
		const plan = await planFile({ defaults: { workflowId: 'new' } });
		const inventory = await operator.file('devices.csv', "deviceId\n'007\nK-1\nK-2\n");
		const from = await lines(...['007', 'k-1', 'K-2', 'k-2'].map((id) => line(id, 'new')));
		const { stdout, stderr } = await status('--plan', plan, '--inventory', inventory, '--from', from);
		expect(stdout).toMatch(/^Never seen +2 +'007, K-1/m);
		expect(stderr.match(/^Warning: .*Is one of them a slip\?$/gm)).toEqual([
			expect.stringContaining("'007 and 007 differ in an apostrophe only: the first is in the inventory"),
			expect.stringContaining('K-1 and k-1 differ in capitals only: the first is in the inventory'),
		]);
	});

	test('a device under the number of the inventory with zeros before it is named beside it [F1515]', async () => {
		const plan = await planFile({ defaults: { workflowId: 'new' } });
		const inventory = await operator.file('devices.csv', 'deviceId\n7\n1001\nK-1\n');
		const from = await lines(...['007', '01001', 'K-01', '0K-1'].map((id) => line(id, 'new')));
		const { stderr } = await status('--plan', plan, '--inventory', inventory, '--from', from);
		expect(stderr.match(/^Warning: .*Is one of them a slip\?$/gm)).toEqual([
			expect.stringContaining('7 and 007 differ in zeros at the beginning only: the first is in the inventory'),
			expect.stringContaining('1001 and 01001 differ in zeros at the beginning only: the first is in the inventory'),
		]);
	});

	test('a wrong clock is named beside what the service says of the device [F1514]', async () => {
		const { service } = operator;
		await openChannel(service, await registerDevice(service, 'S-5', 'checkin'));
		const params = { seconds: 7200, direction: 'fast' };
		const device = line('S-5', 'checkin', { warnings: [{ code: 'clock-wrong', message: 'Wrong.', params }] });
		const plan = await planFile({ defaults: { workflowId: 'checkin' } });
		const from = await lines(device);
		const store = await storeOf([JSON.parse(device)], () => [
			{ name: 'idv_agent_clock_skew_seconds', type: 'gauge', help: '', samples: [{ value: 7200 }] },
		]);
		for (const source of [
			['--from', from],
			['--prometheus', store],
		])
			for (const more of [[], ['--service']])
				expect((await status('--plan', plan, ...source, ...more)).stderr).toContain(
					'1 device with a wrong clock (S-5: its clock is 2 h fast)',
				);
	});

	test('a plan that a device refuses is not why it is offline [F1493]', async () => {
		const { service } = operator;
		const { socket } = await openChannel(service, await registerDevice(service, 'S-4', 'checkin'));
		const heard = service.waitFor('heartbeat');
		const beat = {
			type: 'heartbeat',
			deviceId: 'S-4',
			workflowId: 'checkin',
			sequence: 1,
			sentAt: 'now',
			uptimeSeconds: 1,
		};
		socket.send(JSON.stringify({ ...beat, problemCode: 'plan-untrusted', planReason: 'It is not signed.' }));
		await heard;
		const plan = await planFile({ defaults: { workflowId: 'new' } });
		const inventory = await operator.file('devices.csv', 'deviceId\nS-4\n');
		const look = () => status('--plan', plan, '--inventory', inventory, '--service');
		expect((await look()).stdout).toMatch(/overdue +It is not signed/);
		socket.terminate();
		await expect.poll(() => service.devices().find(({ deviceId }) => deviceId === 'S-4')?.online).toBe(false);
		const { stdout, stderr } = await look();
		expect(stdout).toMatch(/^Offline +1 +S-4/m);
		expect(stdout).not.toContain('It is not signed');
		expect(stderr).toMatch(/1 device cannot follow the plan that is served \(S-4: It is not signed\)/);
	});

	test('reads from a metrics store which versions were taken back', async () => {
		const now = Math.floor(Date.now() / 1000);
		const of = (device: string, value: number, more = {}) => ({
			metric: { device, version: '0.2.0', ...more },
			value: [now, String(value)],
		});
		const series: Record<string, object[]> = {
			idv_agent_report_time_seconds: [of('K-1', now), of('K-2', now), of('K-3', now, { version: '0.3.0' })],
			idv_agent_online: ['K-1', 'K-2', 'K-3'].map((device) => of(device, 1)),
			idv_agent_update_taken_back: [
				of('K-1', 1, { update: '0.2.9', fault: 'not-online' }),
				of('K-1', 1, { update: '0.3.0', fault: 'crashes' }),
				of('K-2', 1, { update: '0.2.9', fault: 'not-online' }),
			],
		};
		const store = createServer((request, response) => {
			const query = new URL(request.url ?? '', 'http://store').searchParams.get('query') ?? '';
			const name = /idv_agent_\w+/.exec(query)?.[0] ?? '';
			response.end(JSON.stringify({ status: 'success', data: { resultType: 'vector', result: series[name] ?? [] } }));
		});
		const rings = [{ percent: 100, agent: { version: '0.3.0' } }];
		const plan = await planFile({ format: 'idv-fleet-plan/2', defaults: { rollout: { to: {}, rings } } });
		const url = `http://127.0.0.1:${await listen(store)}`;
		const shown = succeeded(await status('--plan', plan, '--prometheus', url, '--json'));
		expect(shown).toMatchObject({ devices: 3, atTarget: 1, refused: 1 });
		expect(shown.reasons).toContainEqual(
			expect.objectContaining({ reason: 'version 0.3.0 was taken back (crashes)', examples: ['K-1'] }),
		);
	});

	test('why devices refuse the plan that is served is told in the same words by a store and by gathered lines, also before a ring begins [F1192]', async () => {
		const refusing = (deviceId: string, code: string, message: string) => ({
			...JSON.parse(line(deviceId, 'old')),
			plan: {
				...{ revision: 6, followed: 6, rule: null, workflowId: 'old', next: null, refused: null, checkedAt: null },
				servedRefused: { code, message, remedy: 'Sign it.', recovers: true },
			},
		});
		const other = 'The fleet plan is for fleet south; this device belongs to fleet north.';
		const unsigned = 'The fleet plan of plans.example is not signed.';
		const devices = [
			refusing('K-1', 'plan-untrusted', unsigned),
			refusing('K-2', 'plan-for-other-fleet', other),
			refusing('K-3', 'plan-for-other-fleet', other),
		];
		const store = await storeOf(devices);
		const from = await lines(...devices.map((device) => JSON.stringify(device)));
		const plan = await planFile({ defaults: { workflowId: 'new' } });
		for (const source of [
			['--from', from],
			['--prometheus', store],
		]) {
			const { stdout, stderr } = await status('--plan', plan, ...source, '--json');
			expect(JSON.parse(stdout)).toMatchObject({
				overdue: 3,
				reasons: [
					{ reason: other, devices: 2 },
					{ reason: unsigned, devices: 1 },
				],
			});
			expect(stderr).toContain(
				`3 devices cannot follow the plan that is served (K-1: ${unsigned.slice(0, -1)}; K-2: ${other.slice(0, -1)}; `,
			);
		}
		// Before its time comes, and where the plan asks for nothing else, it is told as well.
		const later = await planFile(toNew([{ percent: 100, startAt: at(HOUR) }]), 'later.json');
		for (const source of [
			['--from', from],
			['--prometheus', store],
		]) {
			const shown = await status('--plan', later, ...source, '--json');
			expect(JSON.parse(shown.stdout)).toMatchObject({
				dueLater: 3,
				reasons: [{ reason: other }, { reason: unsigned }],
			});
			expect(shown.stderr).toContain('3 devices cannot follow the plan that is served');
		}
	});

	test('a device that never had a workflow has not the one that it is refused, and no changed settings [F1491]', async () => {
		const plan = await planFile({ defaults: { workflowId: 'nosuch' } });
		const message = 'The service does not know the workflow nosuch (404).';
		const of = (params?: object) => ({
			...{ state: 'connecting', workflow: { live: null, wanted: 'nosuch' } },
			problem: { code: 'workflow-unknown', message, params },
		});
		const never = await status('--plan', plan, '--from', await lines(line('K-1', 'x', of())));
		expect(never.stderr).not.toContain('changed settings');
		expect(never.stdout).not.toContain('Workflow nosuch');
		expect(never.stdout).toContain(message);
		const { stderr } = await status('--plan', plan, '--from', await lines(line('K-1', 'x', of({ since: at(-HOUR) }))));
		expect(stderr).toContain(`1 device cannot go by changed settings or a plan (K-1: ${message.slice(0, -1)}, since`);
	});

	test('an offline device has no workflow that it was refused, and each row names the plan that its device refuses [F1462]', async () => {
		const plan = await planFile({ defaults: { workflowId: 'nope' } });
		const params = { workflowId: 'nope', liveWorkflowId: 'old' };
		const refused = { revision: 7, message: 'not online with it', params };
		const unsigned = 'The fleet plan of plans.example is not signed.';
		const from = await lines(
			line('K-1', 'nope', {
				state: 'offline',
				workflow: { wanted: 'nope', live: null, waitsUntil: null, source: 'plan' },
				plan: { revision: 7, followed: 6, next: null, refused, checkedAt: null },
			}),
			line('K-2', 'old', {
				state: 'offline',
				plan: {
					...{ revision: 6, followed: 6, next: null, refused: null, checkedAt: null },
					servedRefused: { code: 'plan-untrusted', message: unsigned },
				},
				problem: { code: 'workflow-missing', message: 'No workflow is set for this device.' },
			}),
		);
		const { reports } = JSON.parse((await status('--plan', plan, '--from', from, '--json', '--devices')).stdout);
		expect(reports).toMatchObject([{ workflowId: 'old' }, { workflowId: 'old', planRefusal: unsigned }]);
		const { stdout } = await status('--plan', plan, '--from', from, '--csv');
		expect(stdout.split('\r\n')[2]).toContain(unsigned);
	});

	test('a store tells since when a device is offline by its last heartbeat, and why in words [F1463]', async () => {
		const offline = {
			...JSON.parse(line('K-1', 'old', { state: 'offline' })),
			workflow: { wanted: null, live: null, waitsUntil: null, source: null },
			problem: { code: 'workflow-missing', message: 'No workflow is set for this device.' },
		};
		const age = {
			name: 'idv_agent_heartbeat_age_seconds',
			type: 'gauge',
			help: '',
			samples: [{ value: 7200 }],
		} as const;
		const plan = await planFile({ defaults: { workflowId: 'new' } });
		const store = await storeOf([offline], () => [age]);
		const { reports } = succeeded(await status('--plan', plan, '--prometheus', store, '--json', '--devices'));
		expect(reports).toMatchObject([{ standing: 'offline', reason: 'no workflow is set for it' }]);
		const agoMs = Date.now() - Date.parse(reports[0].at);
		expect(agoMs).toBeGreaterThan(7_100_000);
		expect(agoMs).toBeLessThan(7_400_000);
	});

	test('a store that knows no heartbeat of a device does not say since when it is offline [F1513]', async () => {
		const offline = JSON.parse(line('K-1', 'old', { state: 'offline' }));
		const plan = await planFile({ defaults: { workflowId: 'new' } });
		const args = ['--plan', plan, '--prometheus', await storeOf([offline])];
		expect((await status(...args)).stdout).toMatch(/^Offline +1 +K-1$/m);
		const { reports, judged } = succeeded(await status(...args, '--json', '--devices'));
		expect(reports).toMatchObject([{ standing: 'offline', at: null }]);
		expect(judged).toMatchObject({ failed: 1 });
	});

	test('--watch in a pipe says a warning again only when it has changed [F1464]', async () => {
		const plan = await planFile({ rules: [{ name: 'A', match: { labels: ['north'] }, workflowId: 'new' }] });
		const from = await lines(line('K-1', 'old', { labels: null }));
		const watching = follow('idv', ['fleet', 'status', '--plan', plan, '--from', from, '--watch', '1'], operator.env());
		await watching.untilLine(/: 1 at target/);
		// Another line, and the same warning.
		await lines(line('K-1', 'old', { labels: null, state: 'offline' }));
		await watching.untilLine(/: 0 at target.* 1 offline/);
		await lines(line('K-1', 'old', { labels: null }), line('K-2', 'old', { state: 'offline' }));
		await watching.untilLine(/: 1 at target.* 1 offline/);
		const { stderr } = await watching.end();
		expect(stderr.match(/chooses by labels/g)).toHaveLength(2);
		expect(stderr).toMatch(/1 device reports none[\s\S]*2 devices report none/);
	});

	test('--watch compares with the plan as it is at each look [F1505]', async () => {
		const plan = await planFile({ defaults: { workflowId: 'new' } });
		const from = await lines(line('K-1', 'old'));
		const watching = follow('idv', ['fleet', 'status', '--plan', plan, '--from', from, '--watch', '1'], operator.env());
		await watching.untilLine(/: 0 at target/);
		await planFile({ defaults: { workflowId: 'old' } });
		await watching.untilLine(/: 1 at target/);
		await watching.end();
	});

	test('--watch in JSON writes a look down only when it differs from the one before [F1749]', async () => {
		const plan = (workflowId: string) =>
			JSON.stringify({ format: 'idv-fleet-plan/1', revision: 1, rules: [], defaults: { workflowId } });
		let looks = 0;
		const server = createServer((request, response) => {
			if (request.url !== '/plan.json') return response.writeHead(404).end();
			looks += 1;
			return response.end(plan(looks < 4 ? 'new' : 'old'));
		});
		const url = `http://127.0.0.1:${await listen(server)}/plan.json`;
		const args = ['--plan', url, '--from', await lines(line('K-1', 'old')), '--watch', '1', '--json'];
		const watching = follow('idv', ['fleet', 'status', ...args], operator.env());
		await watching.untilLine(/"atTarget":1/);
		const { stdout } = await watching.end();
		expect(stdout.match(/"atTarget":\d/g)).toEqual(['"atTarget":0', '"atTarget":1']);
	});

	test('--watch in a pipe says once that a line cannot be read [F1492]', async () => {
		const plan = await planFile({ defaults: { workflowId: 'new' } });
		const broken = '{"deviceId":"K-9",';
		const from = await lines(broken, line('K-1', 'new'));
		const watching = follow('idv', ['fleet', 'status', '--plan', plan, '--from', from, '--watch', '1'], operator.env());
		for (const count of [1, 2, 3, 4]) {
			const heard = Array.from({ length: count }, (_, n) => line(`K-${n}`, 'new'));
			await lines(...(count < 4 ? [broken] : [broken, broken]), ...heard);
			await watching.untilLine(new RegExp(`: ${count} at target`));
		}
		const { stderr } = await watching.end();
		expect(stderr.match(/\d lines? of .* cannot be read/g)).toHaveLength(2);
	});

	test('a device that is late by a setting of its own has that as its reason, from each source [F1198]', async () => {
		const of = (deviceId: string, source: string, followed: number) => ({
			...JSON.parse(line(deviceId, source === 'file' ? 'old' : 'new')),
			workflow: { wanted: 'new', live: source === 'file' ? 'old' : 'new', waitsUntil: null, source },
			channel: { state: 'online', since: at(-HOUR), lastHeartbeatAt: at(-1000), heartbeatCadence: 30 },
			plan: { revision: 7, followed, rule: null, workflowId: 'new', next: null, refused: null, checkedAt: null },
		});
		const devices = [of('K-1', 'plan', 7), of('K-2', 'plan', 6), of('K-3', 'file', 6)];
		const plan = await planFile({ defaults: { workflowId: 'new', settings: { heartbeatCadence: 60 } } });
		const from = await lines(...devices.map((device) => JSON.stringify(device)));
		for (const source of [
			['--from', from],
			['--prometheus', await storeOf(devices)],
		]) {
			const { reports } = succeeded(await status('--plan', plan, ...source, '--json', '--devices'));
			expect(reports.map(({ deviceId, reason }: Record<string, string>) => [deviceId, reason])).toEqual([
				['K-1', 'its own settings name the heartbeat (every 30 s)'],
				['K-2', 'its heartbeat is every 30 s'],
				['K-3', 'its own settings name the workflow (file)'],
			]);
		}
	});

	test('a store that is no metrics store is named', async () => {
		const other = createServer((_request, response) => response.end('<html>'));
		const plan = await planFile({ defaults: { workflowId: 'new' } });
		const url = `http://127.0.0.1:${await listen(other)}`;
		await operator.expectRefused(
			{ status: 69, code: 'bad-response', words: /answered 200 to a query, and not as Prometheus does/ },
			['fleet', 'status', '--plan', plan, '--prometheus', url],
		);
	});
});

test('100,000 devices are compared in one look', async () => {
	const count = 100_000;
	const plan = await planFile({
		defaults: { workflowId: 'old' },
		rules: [
			{
				name: 'lobby',
				match: { labels: ['lobby'] },
				workflowId: 'old',
				rollout: { to: { workflowId: 'new' }, rings: [{ percent: 10 }] },
			},
		],
	});
	const ids = Array.from({ length: count }, (_, n) => `K-${n}`);
	const from = await operator.file('many.jsonl', ids.map((id) => line(id, 'old')).join('\n'));
	const inventory = await operator.file('many.csv', `deviceId,labels\n${ids.map((id) => `${id},lobby`).join('\n')}\n`);
	const shown = succeeded(await status('--plan', plan, '--from', from, '--inventory', inventory, '--json'));
	expect(shown.devices).toBe(count);
	expect(shown.overdue + shown.atTarget).toBe(count);
	expect(shown.rings[0].overdue).toBe(shown.overdue);
	expect(Math.abs(shown.overdue - count / 10)).toBeLessThan(500);
});

test('words of a device steer no terminal, begin no line of their own, and are whole in JSON [F1373]', async () => {
	const plan = await planFile({ defaults: { workflowId: 'new' } });
	const problem = { code: 'settings-invalid', message: STEERING, params: {} };
	const from = await lines(
		line(STEERING, 'new'),
		line('K-2', STEERING, { problem }),
		line(`=1${STEERING}`, 'new'),
		line('\t=2', 'new'),
	);
	const args = ['--plan', plan, '--from', from];
	const all = [args, [...args, '--devices'], [...args, '--csv'], ['--from', from], [...args, '--devices', '--json']];
	for (const flags of all) {
		const { stdout, stderr } = await status(...flags);
		expect(stdout).toContain('PWN');
		expect([steeringIn(stdout + stderr), beginsFake(stdout + stderr)]).toEqual([[], false]);
	}
	const csv = (await status(...args, '--csv')).stdout.trimEnd().split('\r\n');
	expect(csv.slice(1).map((row) => row.slice(0, 4))).toEqual(['" ]0', 'K-2,', `"'=1`, "' =2"]);
	const { reports } = JSON.parse((await status(...args, '--devices', '--json')).stdout);
	expect(reports[0].deviceId).toBe(STEERING);
});
