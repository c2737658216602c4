import { execFile, execFileSync } from 'node:child_process';
import { chmod, chown, mkdir, rm, stat, writeFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, onTestFinished, test } from 'vitest';
import { givenHome, type Home, type Outcome } from '../../cli/command.ts';
import { asProcess, type Device, givenDevice, givenPaired } from '../../cli/device.ts';

interface Check {
	readonly id: string;
	readonly status: string;
	readonly code?: string;
	readonly message: string;
	readonly remedy?: string;
	readonly blockedBy?: string | null;
}

interface Report {
	readonly exitStatus: number | string | null;
	readonly checks: Readonly<Record<string, Check>>;
	readonly document: Record<string, unknown>;
}

async function examine(home: Home, ...args: string[]): Promise<Report> {
	const { status, stdout, stderr }: Outcome = await home.agent(['doctor', '--json', ...args]);
	expect(stderr).toBe('');
	const document = JSON.parse(stdout);
	const checks = Object.fromEntries((document.checks as Check[]).map((check) => [check.id, check]));
	return { exitStatus: status, checks, document };
}

/** What every failure has to say. */
function expectFailure(report: Report, id: string, code: string, words: RegExp): void {
	expect(report.checks[id]).toMatchObject({ status: 'failed', code, remedy: expect.stringMatching(/\S/) });
	expect(report.checks[id]?.message).toMatch(words);
}

/** A paired device whose agent was stopped: its Connection is saved. */
async function givenStopped(): Promise<Device> {
	const device = await givenPaired({}, asProcess);
	await device.daemon.end();
	return device;
}

const isRoot = process.getuid?.() === 0;

describe('beside an agent that is online', () => {
	test('everything is well: its channel is not touched, and a person sees the same as a program', async () => {
		const { home, service } = await givenPaired({}, asProcess);
		const before = service.requests.length;
		const report = await examine(home);
		expect(report.document).toMatchObject({ schemaVersion: 1, verdict: 'ok', exitStatus: 0, first: null });
		expect(report.exitStatus).toBe(0);
		expect(report.checks).toMatchObject({
			settings: { status: 'ok' },
			state: { status: 'ok', message: expect.stringContaining('in use') },
			identity: { status: 'ok', message: expect.stringContaining('KIOSK-7') },
			pairing: { status: 'ok', message: expect.stringContaining(service.url) },
			tcp: { status: 'ok' },
			proxy: { status: 'skipped', blockedBy: null },
			clock: { status: 'ok' },
			tls: { status: 'skipped', blockedBy: null },
			http: { status: 'ok' },
			channel: { status: 'ok', message: expect.stringContaining('online') },
			heartbeat: { status: 'ok' },
			'local-socket': { status: 'ok' },
		});
		// Neither a channel nor a credential of its own.
		const asked = service.requests.slice(before);
		expect(asked.map(({ method, path }) => `${method} ${path}`).toSorted()).toEqual([
			'GET /api/device/connection',
			'HEAD /',
		]);
		expect(await home.status()).toMatchObject({ state: 'online', channel: { reconnects: 0 } });

		const plain = await home.agent(['doctor']);
		expect(plain.status).toBe(0);
		const lines = plain.stdout.split('\n');
		for (const { id, status, message } of Object.values(report.checks).filter(
			({ id }) => id === 'http' || id === 'dns',
		))
			expect(lines).toContainEqual(expect.stringMatching(new RegExp(`^${status} +${id} +${message.slice(0, 12)}`)));
		expect(plain.stdout).toMatch(/\nNothing is wrong \(\d\.\d s\)\.\n$/);
	});

	test('what the agent calls its problem is what the channel is told to have', async () => {
		const device = await givenPaired({}, asProcess);
		device.service.failNext('/ws/device', { status: 403 }, 1000);
		device.service.failNext('/api/device/connection', { status: 403 }, 1000);
		const running = device.home.agent(['status', '--watch', '--json']);
		device.service.dropSockets();
		await device.home.agent(['reconnect']);
		const report = await examine(device.home);
		expectFailure(report, 'channel', 'access-forbidden', /403/);
		expect(report.checks['heartbeat']).toMatchObject({ status: 'skipped', blockedBy: 'channel' });
		await device.daemon.end();
		await running;
	});

	test.runIf(isRoot)('whoever may ask the agent but not look into its state gets the word of the agent', async () => {
		const { home } = await givenPaired({}, asProcess);
		for (const path of ['', 'run', 'config.json'])
			await chmod(join(home.directory, path), path === 'config.json' ? 0o644 : 0o755);
		await chown(join(home.directory, 'run', 'agent.sock'), 65_534, 65_534);
		const { PATH = '' } = process.env;
		const command = [resolve(import.meta.dirname, '../../../bin/idv-agent'), 'doctor', '--json'];
		const asNobody = ['--reuid=65534', '--regid=65534', '--clear-groups', ...command];
		const { stdout } = await promisify(execFile)('setpriv', asNobody, { env: { PATH, ...home.env } });
		const { checks, user, verdict } = JSON.parse(stdout) as { checks: Check[]; user: string; verdict: string };
		const by = (id: string) => checks.find((check) => check.id === id);
		expect({ user, verdict }).toEqual({ user: 'nobody', verdict: 'ok' });
		expect(by('state')).toMatchObject({
			status: 'skipped',
			blockedBy: null,
			message: expect.stringContaining('may not'),
		});
		for (const id of ['identity', 'pairing', 'http', 'channel', 'heartbeat', 'local-socket'])
			expect(by(id)).toMatchObject({ status: 'ok' });
	});

	test('the sockets that every user may use are told', async () => {
		const { home } = await givenDevice({}, asProcess);
		await chmod(join(home.directory, 'run', 'agent.sock'), 0o666);
		expectFailure(await examine(home, '--check', 'local-socket'), 'local-socket', 'socket-failed', /Every user/);
	});

	test('sockets that are for their owner alone keep applications out, not in', async () => {
		const { home } = await givenDevice({}, asProcess);
		for (const name of ['agent.sock', 'admin.sock']) await chmod(join(home.directory, 'run', name), 0o600);
		expect((await examine(home, '--check', 'local-socket')).checks['local-socket']).toMatchObject({
			status: 'warning',
			message: expect.stringMatching(/^Only the owner of the sockets/),
		});
	});

	test('a move that does not succeed is told as such, for the channel that is open is well', async () => {
		const { home } = await givenPaired({ service: { workflows: ['document-check'] } }, asProcess);
		// Waited for, it would be taken back.
		await home.agent(['workflow', 'set', 'nosuch', '--wait', '0']);
		let report = await examine(home, '--check', 'channel');
		const looked = async () => {
			report = await examine(home, '--check', 'channel');
			return report.checks['channel']?.status;
		};
		await expect.poll(looked).toBe('failed');
		const words = /^Online with .*; moving to workflow nosuch does not succeed: .*\(404\)\. The next try is at \S+Z\.$/;
		expectFailure(report, 'channel', 'workflow-unknown', words);
	});
});

describe('without an agent', () => {
	test('the saved Connection opens a channel, which is closed again, and nothing is registered or changed', async () => {
		const { home, service, registrations } = await givenStopped();
		const before = { registered: registrations(), saved: await stat(join(home.stateDir, 'state.json')) };
		const closed = service.waitFor('channel-closed');
		const report = await examine(home);
		expect(report.checks).toMatchObject({
			state: { status: 'ok', message: expect.stringContaining('can be saved') },
			channel: { status: 'ok', message: expect.stringContaining('saved Connection') },
			heartbeat: { status: 'ok', message: expect.stringContaining('ping') },
		});
		expectFailure(report, 'local-socket', 'agent-not-running', /No agent listens/);
		expect(report.exitStatus).toBe(69);
		expect(report.document['first']).toBe('local-socket');
		expect(await closed).toMatchObject({ code: 1000 });
		const posts = service.requests.filter(({ method }) => method === 'POST').length;
		expect(posts).toBe(before.registered);
		expect((await stat(join(home.stateDir, 'state.json'))).mtimeMs).toBe(before.saved.mtimeMs);
	});

	test('a Connection that is refused with 401 says to pair again', async () => {
		const { home, service } = await givenStopped();
		service.revoke('KIOSK-7');
		const report = await examine(home, '--check', 'heartbeat');
		expectFailure(report, 'channel', 'credential-refused', /401/);
		expect(report.exitStatus).toBe(77);
		expect(report.checks['heartbeat']).toMatchObject({ status: 'skipped', blockedBy: 'channel' });
	});

	test('a service that opens the channel and then says nothing is silent', async () => {
		const { home, service } = await givenStopped();
		service.goSilent(true);
		const report = await examine(home, '--check', 'heartbeat');
		expect(report.checks['channel']).toMatchObject({ status: 'ok' });
		expectFailure(report, 'heartbeat', 'channel-silent', /has said nothing on the channel for 3 s\./);
		await home.writeSettings({ service: { silenceLimitSeconds: 0 } });
		expect((await examine(home, '--check', 'heartbeat')).checks['heartbeat']).toMatchObject({ status: 'skipped' });
	});

	test('another process that uses the state is known by its lock, and no channel is tried', async () => {
		const { home, service } = await givenPaired({}, asProcess);
		const elsewhere = join(home.directory, 'elsewhere');
		const channels = () => service.requests.filter(({ path }) => path === '/ws/device').length;
		const before = channels();
		const report = await examine(home, '--run-dir', elsewhere);
		expectFailure(report, 'local-socket', 'state-in-use', /Another process/);
		expect(report.checks['channel']).toMatchObject({ status: 'skipped', blockedBy: null });
		expect(channels()).toBe(before);
	});

	test('a device that was never paired is a warning, which counts if it is meant to', async () => {
		const home = await givenHome();
		const lenient = await examine(home, '--check', 'pairing');
		expect(lenient.checks['pairing']).toMatchObject({ status: 'warning', code: 'unpaired' });
		expect(lenient).toMatchObject({ exitStatus: 0, document: { verdict: 'warning' } });
		const strict = await examine(home, '--check', 'pairing', '--warnings-as-errors');
		expect(strict).toMatchObject({ exitStatus: 69, document: { verdict: 'failed', first: 'pairing' } });
	});
});

describe('settings', () => {
	test('that are wrong are named by file and path, and what stands on them is not checked', async () => {
		const home = await givenHome({ heartbeatCadence: 'often' });
		const report = await examine(home);
		expectFailure(report, 'settings', 'settings-invalid', /config\.json: line 1, column \d+: heartbeatCadence must be/);
		expect(report.exitStatus).toBe(78);
		expect(report.checks['dns']).toMatchObject({ status: 'skipped', blockedBy: 'settings' });
		expect(report.checks['disk-space']).toMatchObject({ status: 'ok' });
	});

	test('that name a credential file nobody can read are a failure', async () => {
		const home = await givenHome({ baseUrl: 'https://id.example.com', credential: { apiKeyFile: '/nowhere/key' } });
		expectFailure(await examine(home, '--check', 'settings'), 'settings', 'credential-unreadable', /\/nowhere\/key/);
	});

	test('that were pushed and are wrong give way to the last valid ones: a warning', async () => {
		const { home } = await givenStopped();
		await home.writeSettings('{ "baseUrl": ');
		const report = await examine(home, '--check', 'channel');
		expect(report.checks['settings']).toMatchObject({ status: 'warning', code: 'settings-invalid' });
		expect(report.checks['settings']?.message).toMatch(/line 1.*settings from before stay in force/s);
		expect(report.checks['channel']).toMatchObject({ status: 'ok' });
	});
});

describe('the state directory', () => {
	test.runIf(isRoot)('that its owner may not write is a failure, seen as that owner and not as root', async () => {
		const home = await givenHome();
		await chmod(home.directory, 0o711);
		await chmod(home.configFile, 0o644);
		await mkdir(home.stateDir, { mode: 0o500 });
		await chown(home.stateDir, 65_534, 65_534);
		const report = await examine(home, '--check', 'state');
		expect(report.document).toMatchObject({ user: 'nobody' });
		expectFailure(report, 'state', 'state-unwritable', /EACCES/);
		expect(report.exitStatus).toBe(74);
	});

	test('that cannot be made is a failure', async () => {
		const home = await givenHome();
		await writeFile(home.stateDir, 'a file in its place');
		expectFailure(
			await examine(home, '--state-dir', join(home.stateDir, 'below'), '--check', 'state'),
			'state',
			'state-unwritable',
			/ENOTDIR/,
		);
	});

	test('with a damaged state says so', async () => {
		const { home } = await givenStopped();
		await writeFile(join(home.stateDir, 'state.json'), '{"schemaVersion":1,');
		const { checks } = await examine(home, '--check', 'state');
		expect(checks['state']).toMatchObject({ status: 'warning', code: 'state-corrupt' });
	});
});

test.runIf(isRoot)('a full disk is seen on a small file system, until there is room [F132]', async () => {
	const home = await givenHome();
	await mkdir(home.stateDir);
	execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=1m', 'tmpfs', home.stateDir]);
	onTestFinished(() => void execFileSync('umount', [home.stateDir]));
	await writeFile(join(home.stateDir, 'fill'), Buffer.alloc(1024 * 1024));
	const report = await examine(home, '--check', 'state', '--check', 'disk-space');
	expectFailure(report, 'disk-space', 'disk-low', /no inode|Only 0.1 MiB/);
	expectFailure(report, 'state', 'state-unwritable', /ENOSPC/);
	expect(report.exitStatus).toBe(74);
	expect(report.checks['disk-space']?.remedy).toBe(`Make room on the file system of ${home.stateDir}.`);
	execFileSync('mount', ['-o', 'remount,size=500m', 'tmpfs', home.stateDir]);
	await rm(join(home.stateDir, 'fill'));
	await chmod(home.stateDir, 0o700);
	const { checks } = await examine(home, '--check', 'state', '--check', 'disk-space');
	expect(checks).toMatchObject({ state: { status: 'ok' }, 'disk-space': { status: 'ok' } });
});

test.skipIf(isRoot)('SKIPPED, needs root: state of another user, full disk', () => {});
