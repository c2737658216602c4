/** Settings whose effect no test of their own part sees: each through a real agent. `ledger.test.ts` lists where the others are. */
import { spawn } from 'node:child_process';
import { readFile, stat } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { describe, expect, onTestFinished, test } from 'vitest';
import type { PageView } from '../../src/page/view.ts';
import { LOCAL_ROUTES, LOCAL_SOCKETS } from '../../src/protocol/local-api.ts';
import { connectProxy, fixture, identity } from '../connection/network-peers.ts';
import { givenPlanServer } from '../fixtures/plans.ts';
import { type AgentSetup, givenAgent, givenHome, givenPairedAgent } from '../harness/harness.ts';
import { ask } from '../local-api/local-asking.ts';
import { givenService } from '../service/fixture.ts';

type Service = Awaited<ReturnType<typeof givenService>>;

/** An agent that registers by an API key, at this address if it is another one than the service says. */
async function givenKeyed(service: Service, settings: object, baseUrl = service.url, setup: AgentSetup = {}) {
	const home = await givenHome();
	const credential = { apiKeyFile: await home.secretFile('key', service.credentials.apiKey) };
	return givenAgent({ ...setup, home, settings: { baseUrl, workflowId: 'check-in', credential, ...settings } });
}

describe('the way out', () => {
	const caFile = fixture('ca.pem');

	test('network.proxy: registration and channel go through it', async () => {
		const service = await givenService({ tls: identity('server') });
		const proxy = await connectProxy({ targetPort: service.port, password: 'kiosk:p@ss' });
		const network = { caFile, proxy: `http://kiosk:p%40ss@127.0.0.1:${proxy.port}` };
		const device = await givenKeyed(service, { network }, 'https://service.test');
		await device.untilLive('check-in');
		expect(proxy.heads.length).toBeGreaterThan(1);
		for (const head of proxy.heads) expect(head).toMatch(/^CONNECT service\.test:443 /);
	});

	test('network.clientCertificateFile and clientKeyFile: a service that asks for a certificate lets the device in', async () => {
		const tls = { ...identity('server'), requestCert: true, rejectUnauthorized: true };
		const service = await givenService({ tls });
		const baseUrl = service.url.replace('127.0.0.1', 'localhost');
		const device = await givenKeyed(service, { network: { caFile } }, baseUrl);
		const refused = await device.untilStatus(({ problem }) => problem !== null);
		expect(refused.problem?.remedy).toContain('network.clientCertificateFile');
		const settings = JSON.parse(await readFile(device.home.paths.configFile, 'utf8'));
		const own = { clientCertificateFile: fixture('client.pem'), clientKeyFile: fixture('client.key') };
		await device.home.writeSettings({ ...settings, network: { caFile, ...own } });
		await device.daemon.reload();
		await device.untilLive('check-in');
	});

	test.each([
		[true, /^online/],
		[false, /certificate/],
	])('network.systemCa %s: whether the authorities of this system count', async (systemCa, says) => {
		const service = await givenService({ tls: identity('server') });
		const home = await givenHome();
		const apiKeyFile = await home.secretFile('key', service.credentials.apiKey);
		await home.writeSettings({
			baseUrl: service.url.replace('127.0.0.1', 'localhost'),
			...{ workflowId: 'check-in', credential: { apiKeyFile }, deviceId: 'KIOSK-7', network: { systemCa } },
		});
		// A process of its own: the authorities of the system are read once.
		const runs = `
			import { startDaemon } from ${JSON.stringify(resolve(import.meta.dirname, '../../src/daemon/daemon.runner.ts'))};
			const paths = ${JSON.stringify(home.paths)};
			await startDaemon({ version: '0.0.0', paths, env: {}, sets: [], logTo: { write: (line) => process.stdout.write(line) } });`;
		const env = { ...process.env, SSL_CERT_FILE: caFile };
		const child = spawn(process.execPath, ['--input-type=module', '-e', runs], {
			env,
			stdio: ['ignore', 'pipe', 'inherit'],
		});
		onTestFinished(() => {
			child.kill('SIGKILL');
			return new Promise<void>((ended) => (child.exitCode === null ? child.on('exit', () => ended()) : ended()));
		});
		for await (const line of createInterface({ input: child.stdout })) if (says.test(JSON.parse(line).msg)) return;
		expect.fail('The agent ended.');
	});
});

test('serial and macAddress: the service gets those of the settings', async () => {
	const service = await givenService();
	const own = { serial: 'SN-0815', macAddress: '00:1b:21:aa:bb:cc' };
	const device = await givenKeyed(service, own);
	expect(await device.untilLive('check-in')).toMatchObject(own);
	expect(service.devices()).toMatchObject([own]);
});

test('service.notificationIdPointer: what has one id there is one notification', async () => {
	const service = await givenService();
	const device = await givenKeyed(service, { service: { notificationIdPointer: '/meta/uuid' } });
	await device.untilLive('check-in');
	for (const uuid of ['u-1', 'u-1', 'u-2']) service.notify({ type: 'a', meta: { uuid } });
	service.notify({ type: 'end' });
	await device.untilEvent(({ kind }) => kind === 'end');
	const ids = (await device.events()).filter(({ kind }) => kind === 'a').map(({ serviceId }) => serviceId);
	expect(ids).toEqual(['u-1', 'u-2']);
});

describe('kept events', () => {
	test('events.maxBytes: those that do not fit make room', async () => {
		const service = await givenService();
		const device = await givenPairedAgent(service, { settings: { events: { maxBytes: 65_536 } } });
		for (const type of ['a', 'b', 'c', 'd']) service.notify({ type, filler: 'x'.repeat(25_000) });
		await device.untilEvent(({ kind }) => kind === 'd');
		expect((await device.events()).filter(({ type }) => type === 'notification').map(({ kind }) => kind)).toEqual([
			'c',
			'd',
		]);
	});

	test('events.maxAgeSeconds: those that are older go', async () => {
		const service = await givenService();
		const device = await givenPairedAgent(service, { settings: { events: { maxAgeSeconds: 60 } } });
		service.notify({ type: 'old' });
		await device.untilEvent(({ kind }) => kind === 'old');
		device.clock.advance(61_000);
		service.notify({ type: 'new' });
		await device.untilEvent(({ kind }) => kind === 'new');
		expect((await device.events()).map(({ kind }) => kind)).not.toContain('old');
	});

	test('events.maxAgeSeconds: those of a run before go as soon as the service tells the time [F1884]', async () => {
		const service = await givenService();
		const { home, clock, ...device } = await givenKeyed(service, { events: { maxAgeSeconds: 60 } });
		await device.untilLive('check-in');
		service.notify({ type: 'old' });
		await device.untilEvent(({ kind }) => kind === 'old');
		await device.stop();
		clock.advance(61_000);
		// A registration tells it, and a channel does not.
		service.failNext('/ws/device', { status: 401 });
		const again = await givenAgent({ home, clock });
		await again.passWait();
		await again.untilState('online');
		expect((await again.events()).map(({ kind }) => kind)).not.toContain('old');
	});

	test('events.cleanAfterSeconds: what all have acknowledged is soon in no file', async () => {
		const service = await givenService();
		const device = await givenPairedAgent(service, { settings: { events: { cleanAfterSeconds: 1 } } });
		await ask(device, `${LOCAL_ROUTES.events}?consumer=kiosk`);
		service.notify({ type: 'a', text: 'words-of-a-session' });
		const { id } = await device.untilEvent(({ kind }) => kind === 'a');
		await device.events();
		expect(await device.home.filesWith('words-of-a-session')).toHaveLength(1);
		const acknowledged = await ask(device, LOCAL_ROUTES.ack, { method: 'POST', body: { consumer: 'kiosk', id } });
		expect(acknowledged.status).toBe(200);
		device.clock.advance(1000);
		await expect.poll(() => device.home.filesWith('words-of-a-session'), { timeout: 20_000 }).toEqual([]);
	});
});

test('fleet.intervalSeconds: the next look at the plan comes then', async () => {
	const plan = { format: 'idv-fleet-plan/1', revision: 1, spreadSeconds: 0, defaults: { workflowId: null } };
	const server = await givenPlanServer(plan);
	const fleet = { planUrl: server.url, intervalSeconds: 10 };
	const device = await givenPairedAgent(await givenService(), { settings: { fleet } });
	device.clock.advance(5000);
	await device.untilStatus(({ plan: seen }) => seen?.revision === 1);
	await device.untilTimers(3);
	const { length } = server.answers;
	device.clock.advance(10_000);
	await server.untilAnswered(length + 1);
	device.agent.reconnect();
	device.clock.advance(0);
	await server.untilAnswered(length + 2);
});

describe('forwarded requests', () => {
	test('forward.maxBytes: a larger body goes to nobody', async () => {
		const service = await givenService();
		const device = await givenPairedAgent(service, { sets: ['forward.maxBytes=1024'] });
		const post = (size: number) =>
			ask(device, `${LOCAL_ROUTES.service}api/x`, { method: 'POST', bytes: 'x'.repeat(size) });
		const before = service.requests.length;
		expect(await post(1025)).toMatchObject({ status: 413 });
		expect(service.requests).toHaveLength(before);
		expect(await post(1024)).toMatchObject({ status: 404 });
	});

	test('forward.idleSeconds: one on which nothing moves ends', async () => {
		const service = await givenService();
		const device = await givenPairedAgent(service, { sets: ['forward.idleSeconds=1'] });
		const release = service.hold('/api/x');
		const { status, json } = await ask(device, `${LOCAL_ROUTES.service}api/x`);
		expect([status, json.detail]).toEqual([504, expect.stringContaining('did not answer for 1 s')]);
		release();
	});
});

test('page.port, language, support and contents: the page is there, and shows what they say', async () => {
	const service = await givenService();
	const page = { port: 0, language: 'de', support: 'Telefon 4711', contents: true };
	const device = await givenPairedAgent(service, { settings: { page } });
	service.notify({ type: 'a', text: 'words of a session' });
	await device.untilEvent(({ kind }) => kind === 'a');
	const view = async () =>
		(
			await fetch(`${device.daemon.addresses.page}api/view`, { headers: { connection: 'close' } })
		).json() as Promise<PageView>;
	const content = expect.stringContaining('words of a session');
	expect(await view()).toMatchObject({ language: 'de', support: 'Telefon 4711' });
	expect((await view()).events).toContainEqual(expect.objectContaining({ kind: 'a', content }));
	await device.home.writeSettings({ page: { port: 0 } });
	await device.daemon.reload();
	expect(await view()).toMatchObject({ language: 'auto', support: null });
	expect((await view()).events).not.toContainEqual(expect.objectContaining({ content }));
	await device.home.writeSettings({});
	await device.daemon.reload();
	expect(device.daemon.addresses.page).toBeNull();
});

test('local.agentGroup and adminGroup: each socket belongs to its group', async () => {
	const mine = process.getuid?.() === 0 ? [1, 2] : (process.getgroups?.() ?? []);
	const [agent, admin] = [mine.at(0), mine.at(-1)];
	const local = { agentGroup: String(agent), adminGroup: String(admin) };
	const { home } = await givenAgent({ groups: 'settings', settings: { local } });
	const groupOf = async (socket: 'agent' | 'admin') => (await stat(join(home.paths.runDir, LOCAL_SOCKETS[socket]))).gid;
	expect([await groupOf('agent'), await groupOf('admin')]).toEqual([agent, admin]);
});

test('log.level: what is less severe is not in the log', async () => {
	const service = await givenService();
	const device = await givenPairedAgent(service, { sets: ['log.level=warn'] });
	service.failNext('/api/device/connection', { status: 404 });
	await device.home.writeSettings({ workflowId: 'boarding' });
	await device.daemon.reload();
	await device.untilLogged(({ level }) => level === 'warn');
	expect(device.log.filter(({ level }) => level === 'info' || level === 'debug')).toEqual([]);
});
