import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer as createHttpServer, type RequestListener } from 'node:http';
import { createServer as createHttpsServer } from 'node:https';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { systemClock } from '../../src/base/clock.edge.ts';
import { AgentError, failure } from '../../src/base/errors.ts';
import { CHECK_IDS, CHECKS, type CheckId, openContext } from '../../src/diagnosis/check-list.runner.ts';
import { type Check, type Finding, failed, ok } from '../../src/diagnosis/checks.ts';
import { findInspectionTarget, readAssignments, readRunFlags } from '../../src/diagnosis/inspection-target.runner.ts';
import { type CheckReport, diagnose } from '../../src/diagnosis/run-checks.runner.ts';
import { connectProxy, fixture, identity, listen, refusedPort } from '../connection/network-peers.ts';
import { createSteppedClock } from '../harness/stepped-clock.ts';

type Checks = Partial<Record<CheckId, CheckReport>>;

/** The checks and what they stand on, with these settings and no agent. */
function examine(settings: object, ...checks: CheckId[]): Promise<{ checks: Checks; exitStatus: number }> {
	return examineOn(undefined, settings, ...checks);
}

/** On the machine whose file tree this is. */
async function examineOn(
	machineRoot: string | undefined,
	settings: object,
	...checks: CheckId[]
): Promise<{ checks: Checks; exitStatus: number }> {
	const directory = await mkdtemp(join(tmpdir(), 'doctor-'));
	onTestFinished(() => rm(directory, { recursive: true }));
	const config = join(directory, 'config.json');
	await writeFile(config, JSON.stringify(settings));
	const flags = { config, stateDir: join(directory, 'state'), runDir: join(directory, 'run') };
	const inspected = await findInspectionTarget(flags, {});
	const parts = { inspected, clock: systemClock, userAgent: 'test', registerSecret: () => {}, machineRoot };
	const context = openContext(parts);
	onTestFinished(() => context.close());
	const diagnosis = await diagnose({ list: CHECKS, context, checks, warningsAsErrors: false, clock: systemClock });
	return {
		checks: Object.fromEntries(diagnosis.checks.map((check) => [check.id, check])),
		exitStatus: diagnosis.exitStatus,
	};
}

/** What every failure has to say. */
function expectFailure({ checks }: { checks: Checks }, id: CheckId, code: string, words: RegExp): void {
	expect(checks[id]).toMatchObject({
		status: 'failed',
		code,
		message: expect.stringMatching(words),
		remedy: expect.stringMatching(/\S/),
	});
}

const trusting = { network: { caFile: fixture('ca.pem') } };

async function tlsPort(certificate: string, status = 405): Promise<number> {
	const { cert, key } = identity(certificate);
	return listen(createHttpsServer({ cert, key }, (_request, response) => response.writeHead(status).end()));
}

describe('the way to the service', () => {
	test('ends at a port where nobody listens', async () => {
		const report = await examine({ baseUrl: `https://localhost:${await refusedPort()}` }, 'tls');
		expect(report.checks['dns']).toMatchObject({ status: 'ok', message: expect.stringContaining('127.0.0.1') });
		expectFailure(report, 'tcp', 'service-unreachable', /ECONNREFUSED/);
		expect(report.checks['tls']).toMatchObject({ status: 'skipped', blockedBy: 'tcp' });
	});

	test('ends at a proxy that refuses; with a password that it takes it goes on', async () => {
		const proxy = await connectProxy({ targetPort: await tlsPort('server'), password: 'kiosk:s3cret-of-the-proxy' });
		const settings = (user: string) => ({
			baseUrl: 'https://service.test',
			network: { proxy: `http://${user}127.0.0.1:${proxy.port}`, caFile: fixture('ca.pem') },
		});
		const refused = await examine(settings(''), 'http');
		expectFailure(refused, 'proxy', 'proxy-refused', /407/);
		expect(refused.checks['tls']).toMatchObject({ status: 'skipped', blockedBy: 'proxy' });
		const taken = await examine(settings('kiosk:s3cret-of-the-proxy@'), 'http', 'clock');
		expect(taken.checks).toMatchObject({
			proxy: { status: 'ok', message: `127.0.0.1:${proxy.port} connects to service.test.` },
			clock: { status: 'ok' },
			tls: { status: 'ok' },
			http: { status: 'ok', message: expect.stringContaining('405') },
		});
		expect(JSON.stringify(taken.checks)).not.toContain('s3cret');
	});

	test('ends at a proxy that is not there, and says that it is the proxy', async () => {
		const network = { proxy: `http://127.0.0.1:${await refusedPort()}` };
		const report = await examine({ baseUrl: 'https://service.test', network }, 'http');
		expectFailure(report, 'tcp', 'proxy-failed', /proxy on the way to service\.test/);
	});

	test.each([
		['expired', 'certificate-expired', /expired .*signed by Test authority, ended 2020-01-02/],
		['not-yet-valid', 'clock-wrong', /not valid yet/],
		['wrong-host', 'certificate-wrong-host', /for another host/],
	])('ends at a certificate that is %s', async (certificate, code, words) => {
		const settings = { baseUrl: `https://localhost:${await tlsPort(certificate)}`, ...trusting };
		const report = await examine(settings, 'http', 'clock');
		expectFailure(report, 'tls', code, words);
		expect(report.checks['http']).toMatchObject({ status: 'skipped', blockedBy: 'tls' });
		// The time is asked for all the same: a wrong clock is the usual cause.
		expect(report.checks['clock']).toMatchObject({ status: 'ok', message: expect.stringContaining('not accepted') });
	});

	test('ends at a certificate that nobody here trusts', async () => {
		const report = await examine({ baseUrl: `https://localhost:${await tlsPort('server')}` }, 'tls');
		expectFailure(report, 'tls', 'certificate-untrusted', /signed by Test authority/);
		expect(report.checks['tls']).toMatchObject({ remedy: expect.stringContaining('network.caFile') });
	});

	test('that is whole shows the days that the certificate has left', async () => {
		const report = await examine({ baseUrl: `https://localhost:${await tlsPort('server', 401)}`, ...trusting }, 'http');
		expect(report.checks).toMatchObject({
			tls: { status: 'ok', message: expect.stringMatching(/\d{4,} days left/) },
			http: { status: 'ok' },
		});
		expect(report.exitStatus).toBe(0);
	});

	test('that does not speak TLS at all is told', async () => {
		const port = await listen(createServer((socket) => socket.end('220 mail.example ESMTP\r\n')));
		expectFailure(await examine({ baseUrl: `https://localhost:${port}` }, 'tls'), 'tls', 'tls-failed', /TLS/);
	});

	test('leads to somebody who never answers', async () => {
		const port = await listen(createServer(() => {}));
		const report = await examine({ baseUrl: `https://localhost:${port}` }, 'http');
		expectFailure(report, 'tls', 'handshake-timeout', /localhost/);
		expect(report.checks['http']).toMatchObject({ status: 'skipped', blockedBy: 'tls' });
	});

	const answering = async (listener: RequestListener) => ({
		baseUrl: `http://127.0.0.1:${await listen(createHttpServer(listener))}`,
	});

	test('leads to a captive portal', async () => {
		const portal = await answering((_request, response) =>
			response.setHeader('content-type', 'text/html').end('<html>Accept our terms</html>'),
		);
		expectFailure(await examine(portal, 'http'), 'http', 'captive-portal', /web page/);
	});

	test('leads to a portal that sends elsewhere', async () => {
		const portal = await answering((_request, response) =>
			response.writeHead(302, { location: 'http://portal.example/login' }).end(),
		);
		expectFailure(await examine(portal, 'http'), 'http', 'captive-portal', /portal\.example/);
	});

	test('shows by the Date of the service that the clock here is wrong', async () => {
		const threeDays = 3 * 86_400_000;
		const ahead = await answering((_request, response) =>
			response
				.setHeader('date', new Date(Date.now() + threeDays).toUTCString())
				.writeHead(405)
				.end(),
		);
		const report = await examine(ahead, 'clock');
		expectFailure(report, 'clock', 'clock-wrong', /3 days slow, by the clock of 127\.0\.0\.1/);
		expect(report.exitStatus).toBe(69);
	});
});

test('a machine whose memory is used up is told, until there is some again', async () => {
	const machine = await mkdtemp(join(tmpdir(), 'machine-'));
	onTestFinished(() => rm(machine, { recursive: true }));
	await mkdir(join(machine, 'proc'));
	await writeFile(join(machine, 'proc/meminfo'), 'MemTotal:  1048576 kB\nMemFree:  1000 kB\nMemAvailable:  20480 kB\n');
	expect((await examineOn(machine, {}, 'memory')).checks['memory']).toMatchObject({
		status: 'warning',
		code: 'memory-low',
		message: 'Only 20 MiB of 1024 MiB are available.',
	});
	await writeFile(
		join(machine, 'proc/meminfo'),
		'MemTotal:  1048576 kB\nMemFree:  1000 kB\nMemAvailable:  620480 kB\n',
	);
	expect((await examineOn(machine, {}, 'memory')).checks['memory']).toMatchObject({ status: 'ok' });
});

describe('the running of checks', () => {
	const never = () => new Promise<Finding>(() => {});
	const context = null;
	const listWith = (own: Partial<Record<CheckId, Check<null>['run']>>): Check<null>[] =>
		CHECKS.map((check) => ({ ...check, run: own[check.id] ?? (async () => ok('Well.')) }));

	test('what is not over in time is a failure, and the rest is told all the same', async () => {
		const clock = createSteppedClock();
		const running = diagnose({
			list: listWith({ dns: never }),
			context,
			checks: CHECK_IDS,
			warningsAsErrors: false,
			clock,
		});
		await Promise.resolve();
		while (clock.pending === 0) await new Promise((resolve) => setImmediate(resolve));
		while (clock.pending > 1) await new Promise((resolve) => setImmediate(resolve));
		clock.advance(10_000);
		const { checks, first } = await running;
		expect(first).toBe('dns');
		expect(checks.find(({ id }) => id === 'dns')).toMatchObject({ status: 'failed', code: 'request-timeout' });
		expect(checks.find(({ id }) => id === 'tcp')).toMatchObject({ blockedBy: 'dns' });
		expect(checks.find(({ id }) => id === 'unit')).toMatchObject({ status: 'ok' });
		expect(clock.pending).toBe(0);
	});

	test('all together end within their limit, however long each takes', async () => {
		const clock = createSteppedClock();
		const limits: number[] = [];
		const slow = (id: CheckId) => async (_: null, limitMs: number) => {
			limits.push(limitMs);
			await Promise.resolve();
			clock.advance(3000);
			return ok(`${id} took its time.`);
		};
		const list = listWith({ settings: slow('settings'), dns: slow('dns'), tcp: slow('tcp'), proxy: slow('proxy') });
		const { ms, checks } = await diagnose({ list, context, checks: ['tls'], warningsAsErrors: false, clock });
		expect(limits.slice(0, 3)).toEqual([4750, 4750, 3325]);
		expect(checks.find(({ id }) => id === 'proxy')).toMatchObject({ status: 'failed' });
		expect(ms).toBeLessThanOrEqual(12_000);
	});

	test('are reported in the order of the table, and one that throws is a failure with its code', async () => {
		const order: string[] = [];
		const clock = createSteppedClock();
		const broken = async () => {
			throw new AgentError('state-unreadable', 'Not readable.');
		};
		await diagnose({
			context,
			list: listWith({ state: broken, memory: async () => failed(failure('memory-low', 'Little.')) }),
			checks: CHECK_IDS,
			warningsAsErrors: false,
			clock,
			onCheck: ({ id, status }) => order.push(status === 'ok' ? id : `${id} ${status}`),
		});
		const expected = CHECK_IDS.map((id) => (id === 'state' || id === 'memory' ? `${id} failed` : id));
		expect(order).toEqual(expected);
	});
});

describe('whose eyes it looks through', () => {
	test('the flags of the daemon are read from its arguments', () => {
		const argv = [
			'/usr/bin/idv-agent',
			'run',
			'--set',
			'log.level=debug',
			'--config=/etc/x.json',
			'--set',
			'a=b',
			'--set',
		];
		expect(readRunFlags(argv)).toEqual({ config: '/etc/x.json', set: ['log.level=debug', 'a=b'] });
	});

	test('the variables of a unit that does not run are read from systemd', () => {
		expect(readAssignments('MALLOC_ARENA_MAX=1 "IDV_AGENT_DEVICE_TYPE=a \\"big\\" kiosk" X=')).toEqual({
			MALLOC_ARENA_MAX: '1',
			IDV_AGENT_DEVICE_TYPE: 'a "big" kiosk',
			X: '',
		});
	});
});
