/** What the settings open on loopback: for a scraper, for applications in a browser, and as settings change. */

import { once } from 'node:events';
import { chmod, mkdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { connect, createServer } from 'node:net';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { findGroup } from '../../src/base/unix.edge.ts';
import { settlePorts } from '../../src/local-api/port-moves.ts';
import { statusSchema } from '../../src/protocol/local-answers.ts';
import type { SettingsReport } from '../../src/protocol/local-api.ts';
import { listen } from '../connection/network-peers.ts';
import { givenAgent, givenHome, givenPairedAgent, type Home, type RunningAgent } from '../harness/harness.ts';
import { givenService } from '../service/fixture.ts';
import { type Asked, ask } from './local-asking.ts';

const ORIGIN = 'https://kiosk.example.com';
const TOKEN = 'kiosk-token-4f7Qz9Xk2Lm8-0123456789';
const GROUP = String(process.getgid?.() ?? 0);
const PROBED = ['/livez', '/readyz', '/metrics'];

const asKiosk = { Origin: ORIGIN, Authorization: `Bearer ${TOKEN}` };
const probe = (device: RunningAgent, path: string, asked: Asked = {}) =>
	ask(device, path, { socket: 'probe', ...asked });
const askBrowser = (device: RunningAgent, path: string, asked: Asked = {}) =>
	ask(device, path, { socket: 'browser', ...asked });
/** Whether nothing listens there. */
const isClosed = (address: string | null) =>
	new Promise<boolean>((resolve) => {
		const socket = connect(Number(new URL(address ?? '').port), '127.0.0.1');
		socket.once('error', () => resolve(true));
		socket.once('connect', () => resolve(!socket.destroy()));
	});
const warningsOf = ({ agent }: RunningAgent) => agent.status().warnings;

async function givenApplications(home: Home, text = `kiosk ${ORIGIN} ${TOKEN}`): Promise<string> {
	return home.secretFile('applications', text);
}

describe('the port for health and metrics', () => {
	test('answers a scraper those three and nothing else, and no page', async () => {
		const device = await givenPairedAgent(await givenService(), { sets: ['local.metricsPort=0'] });
		for (const path of PROBED) expect(await probe(device, path)).toMatchObject({ status: 200 });
		expect((await probe(device, '/metrics')).text).toMatch(
			/^idv_agent_state\{device="KIOSK-0001",state="online"\} 1$/m,
		);
		for (const path of ['/v1/status', '/v1/events', '/v1/identity', '/v1/service/api/x', '/v1/openapi.json'])
			expect([path, (await probe(device, path)).status]).toEqual([path, 403]);
		expect((await probe(device, '/v1/unpair', { method: 'POST' })).json.code).toBe('access-denied');
		for (const headers of [
			{ Origin: 'https://evil.example' },
			{ Host: 'evil.example' },
			{ 'Sec-Fetch-Site': 'cross-site' },
		])
			expect(await probe(device, '/livez', { headers })).toMatchObject({ status: 403 });
		expect(device.agent.status().state).toBe('online');
	});

	test('is closed unless it is asked for', async () => {
		const device = await givenAgent();
		expect(device.daemon.addresses).toEqual({ page: null, metrics: null, browser: null });
	});

	test('that is taken is a warning, also in config show, and is tried again by a reload [F1234]', async () => {
		const other = createServer();
		const port = await listen(other);
		const device = await givenAgent({ sets: [`local.metricsPort=${port}`] });
		expect(warningsOf(device)).toMatchObject([{ code: 'socket-failed' }]);
		expect(warningsOf(device)[0]?.message).toContain(`local.metricsPort: Cannot listen on 127.0.0.1:${port}`);
		expect(await device.client.request('agent', 'GET', '/livez')).toEqual({ live: true });
		const rows = async () => {
			const { settings } = (await device.client.request('admin', 'GET', '/v1/settings')) as SettingsReport;
			return settings.find(({ path }) => path === 'local.metricsPort');
		};
		expect(await rows()).toMatchObject({ refused: expect.stringContaining('Cannot listen') });
		await new Promise((resolve) => other.close(resolve));
		await device.daemon.reload();
		expect(warningsOf(device)).toEqual([]);
		expect(await rows()).not.toHaveProperty('refused');
		expect(await probe(device, '/livez')).toMatchObject({ status: 200 });
	});

	test('that is taken leaves the one from before in use, until it is free [F963]', async () => {
		const other = createServer();
		const [taken, first] = [await listen(other), await freePort()];
		const home = await givenHome();
		const device = await givenAgent({ home, settings: { local: { metricsPort: first } } });
		await home.writeSettings({ local: { metricsPort: taken } });
		await device.daemon.reload();
		expect(warningsOf(device)[0]?.message).toContain(`Port ${first} stays in use.`);
		expect(new URL(device.daemon.addresses.metrics ?? '').port).toBe(String(first));
		expect(await probe(device, '/livez')).toMatchObject({ status: 200 });
		await new Promise((resolve) => other.close(resolve));
		await device.daemon.reload();
		expect(warningsOf(device)).toEqual([]);
		expect(new URL(device.daemon.addresses.metrics ?? '').port).toBe(String(taken));
	});

	test('that is taken cuts off no answer of the one from before, however often the settings change [F1042]', async () => {
		const other = createServer();
		const [taken, first] = [await listen(other), await freePort()];
		const home = await givenHome();
		const device = await givenAgent({ home, settings: { local: { metricsPort: first } } });
		const socket = connect(first, '127.0.0.1');
		let isCut = false;
		socket.once('close', () => {
			isCut = true;
		});
		const answer = async () => {
			socket.write(`GET /livez HTTP/1.1\r\nHost: 127.0.0.1:${first}\r\n\r\n`);
			const [bytes] = await once(socket, 'data');
			return String(bytes).split('\r\n')[0];
		};
		expect(await answer()).toBe('HTTP/1.1 200 OK');
		for (let change = 0; change < 5; change += 1) {
			await home.writeSettings({ local: { metricsPort: taken }, deviceType: `kiosk-${change}` });
			await device.daemon.reload();
			expect(warningsOf(device)[0]?.message).toContain(`Port ${first} stays in use.`);
			expect(isCut).toBe(false);
			expect(await answer()).toBe('HTTP/1.1 200 OK');
		}
		expect(device.log.filter(({ msg }) => msg.startsWith('health and metrics at'))).toHaveLength(1);
		expect(warningsOf(device)).toHaveLength(1);
		socket.destroy();
		await new Promise((resolve) => other.close(resolve));
	});

	test('and another one can swap with each other in one change', async () => {
		const [first, second] = [await freePort(), await freePort()];
		const home = await givenHome();
		const device = await givenAgent({ home, settings: { page: { port: first }, local: { metricsPort: second } } });
		await home.writeSettings({ page: { port: second }, local: { metricsPort: first } });
		await device.daemon.reload();
		const portOf = (url: string | null) => Number(new URL(url ?? '').port);
		expect([portOf(device.daemon.addresses.page), portOf(device.daemon.addresses.metrics)]).toEqual([second, first]);
		expect(warningsOf(device)).toEqual([]);
	});
});

async function freePort(): Promise<number> {
	const server = createServer();
	const port = await listen(server);
	await new Promise((resolve) => server.close(resolve));
	return port;
}

describe('applications in a browser', () => {
	async function givenDevice() {
		const service = await givenService();
		const home = await givenHome();
		const file = await givenApplications(home);
		const settings = { local: { http: { port: 0, applicationsFile: file } } };
		const device = await givenPairedAgent(service, { home, settings });
		return { service, home, file, settings, device };
	}

	test('get what other applications get, and nothing that moves the device', async () => {
		const { service, device } = await givenDevice();
		const get = (path: string) => askBrowser(device, path, { headers: asKiosk });
		expect(statusSchema.parse((await get('/v1/status')).json)).toEqual(device.agent.status());
		for (const path of ['/v1/events', '/v1/leases', '/v1/identity', '/v1/openapi.json', '/readyz'])
			expect([path, (await get(path)).status]).toEqual([path, 200]);
		const lease = { method: 'POST', headers: asKiosk, body: { name: 'page' } };
		expect(await askBrowser(device, '/v1/leases', lease)).toMatchObject({ status: 200 });
		const passed = await get('/v1/service/api/no-such-thing');
		expect(passed).toMatchObject({ status: 404, headers: { 'access-control-allow-origin': ORIGIN } });
		expect(service.requests.at(-1)).toMatchObject({ path: '/api/no-such-thing', authorizationScheme: 'Connection' });
		for (const path of ['/v1/pair', '/v1/unpair', '/v1/reconnect'])
			expect((await askBrowser(device, path, { method: 'POST', headers: asKiosk })).json.code).toBe('access-denied');
	});

	test('are known by origin and token; no other caller gets an answer or CORS', async () => {
		const { device } = await givenDevice();
		const token = { Authorization: `Bearer ${TOKEN}` };
		for (const [headers, status] of [
			[{ Origin: ORIGIN }, 401],
			[{ Origin: ORIGIN, Authorization: `Bearer ${TOKEN}x` }, 401],
			[token, 403],
			[{ ...token, Origin: 'https://evil.example' }, 403],
			[{ ...token, Origin: 'null' }, 403],
			[{ ...asKiosk, Host: 'rebound.example' }, 403],
		] as const) {
			const answer = await askBrowser(device, '/v1/status', { headers });
			expect([headers, answer.status]).toEqual([headers, status]);
			if (status === 403) expect(answer.headers).not.toHaveProperty('access-control-allow-origin');
		}
		expect(device.logText()).not.toContain(TOKEN);
	});

	test('come and go with their file at a reload', async () => {
		const { home, file, device } = await givenDevice();
		const { browser } = device.daemon.addresses;
		const other = { Origin: 'https://till.example.com', Authorization: `Bearer ${TOKEN}-till` };
		const statuses = async () => [
			(await askBrowser(device, '/v1/status', { headers: asKiosk })).status,
			(await askBrowser(device, '/v1/status', { headers: other })).status,
		];
		expect(await statuses()).toEqual([200, 403]);
		device.daemon.log.warn(`The token is ${TOKEN}`);
		expect(device.log.at(-1)?.msg).toMatch(/^The token is \[\w+-\d+-[0-9a-f]{6}\]$/);
		await givenApplications(home, `till ${other.Origin} ${TOKEN}-till`);
		await device.daemon.reload();
		expect(await statuses()).toEqual([403, 200]);
		expect(device.daemon.addresses.browser).toBe(browser);

		await chmod(file, 0o644);
		await device.daemon.reload();
		const warning = warningsOf(device).find(({ code }) => code === 'credential-unreadable');
		expect(warning?.message).toMatch(/mode is 0644.*applications from before stay in force/);
		expect(await statuses()).toEqual([403, 200]);
		await chmod(file, 0o640);
		await device.daemon.reload();
		expect(warningsOf(device)).toEqual([]);
	});

	test('with a file that cannot be used: the agent starts, warns, and lets no caller in', async () => {
		const home = await givenHome();
		const file = join(home.directory, 'applications');
		await writeFile(file, `kiosk ${ORIGIN} short\n`, { mode: 0o600 });
		const device = await givenAgent({ home, settings: { local: { http: { port: 0, applicationsFile: file } } } });
		expect(warningsOf(device)).toMatchObject([{ code: 'settings-invalid' }]);
		expect(warningsOf(device)[0]?.message).toContain('line 1');
		expect(await askBrowser(device, '/v1/status', { headers: asKiosk })).toMatchObject({ status: 403 });
	});
});

describe('a push that cannot be used, over a restart', () => {
	test('leaves the applications, the ports and the PIN from before, until they are taken away [F1312]', async () => {
		const other = createServer();
		const [taken, first, home] = [await listen(other), await freePort(), await givenHome()];
		const applicationsFile = await givenApplications(home);
		const good = {
			page: { port: 0, pinFile: await home.secretFile('pin', '471100') },
			local: { metricsPort: first, http: { port: 0, applicationsFile } },
		};
		const bad = {
			page: { port: 0, pinFile: await home.secretFile('short', '123') },
			local: { metricsPort: taken, http: { port: 0, applicationsFile: join(home.directory, 'absent') } },
		};
		const statusOf = async (device: RunningAgent) =>
			(await askBrowser(device, '/v1/status', { headers: asKiosk })).status;
		const start = async (settings: object) => givenAgent({ home, settings: { ...settings } });
		await (await start(good)).stop();

		for (const _ of ['once', 'again']) {
			const device = await start(bad);
			expect(await statusOf(device)).toBe(200);
			expect(new URL(device.daemon.addresses.metrics ?? '').port).toBe(String(first));
			expect(device.agent.ways.runtime().pin).toBe('471100');
			const told = warningsOf(device).map(({ message }) => message);
			for (const words of ['applications from before stay in force', `Port ${first} stays in use`, 'from before stays'])
				expect(told.join('\n')).toContain(words);
			await device.stop();
		}

		await (await start({})).stop();
		const device = await start(bad);
		expect(await statusOf(device)).toBe(403);
		expect(device.daemon.addresses.metrics).toBeNull();
		expect(device.agent.ways.runtime().pin).not.toBe('471100');
		await new Promise((resolve) => other.close(resolve));
	});

	test('that gives two listeners one port leaves it with the one that had it [F1342]', async () => {
		const [first, second, home] = [await freePort(), await freePort(), await givenHome()];
		const applicationsFile = await givenApplications(home);
		const given = (metricsPort: number) => ({ local: { metricsPort, http: { port: second, applicationsFile } } });
		await (await givenAgent({ home, settings: given(first) })).stop();
		for (const _ of ['once', 'again']) {
			const device = await givenAgent({ home, settings: given(second) });
			expect((await askBrowser(device, '/v1/status', { headers: asKiosk })).status).toBe(200);
			expect(new URL(device.daemon.addresses.metrics ?? '').port).toBe(String(first));
			await device.stop();
		}
	});

	test('that turns the ports round beside a file that cannot be read leaves each where it was [F1355]', async () => {
		const home = await givenHome();
		const [page, metrics, http] = [await freePort(), await freePort(), await freePort()];
		const applicationsFile = await givenApplications(home);
		const pinFile = await home.secretFile('pin', '471100');
		const given = (port: number, metricsPort: number, browser: number) => ({
			page: { port, pinFile },
			local: { metricsPort, http: { port: browser, applicationsFile } },
		});
		const portsOf = ({ daemon: { addresses } }: RunningAgent) =>
			[addresses.page, addresses.metrics, addresses.browser].map((url) => Number(new URL(url ?? 'http://none').port));
		const device = await givenAgent({ home, settings: given(page, metrics, http) });
		await mkdir(join(home.paths.confDirectory, '1.json'), { recursive: true });
		await home.writeSettings(given(metrics, http, page));
		await device.daemon.reload();
		expect(portsOf(device)).toEqual([page, metrics, http]);
		const { settings } = (await device.client.request('admin', 'GET', '/v1/settings')) as SettingsReport;
		expect(settings.find(({ path }) => path === 'local.http.port')).toMatchObject({
			...{ value: http, disk: page },
			refused: expect.stringContaining(`Port ${http} stays in use`),
		});
		await device.stop();
		const again = await givenAgent({ home });
		expect(portsOf(again)).toEqual([page, metrics, http]);
	});

	test('that moves a listener to where another one has to stay leaves both, over a restart, until its port is free [F1360]', async () => {
		const [other, home] = [createServer(), await givenHome()];
		const [taken, page, metrics] = [await listen(other), await freePort(), await freePort()];
		const pinFile = await home.secretFile('pin', '471100');
		const given = (port: number, metricsPort: number) => ({ page: { port, pinFile }, local: { metricsPort } });
		const portsOf = ({ daemon: { addresses } }: RunningAgent) =>
			[addresses.page, addresses.metrics].map((url) => Number(new URL(url ?? 'http://none').port));
		const rowOf = async ({ client }: RunningAgent, path: string) => {
			const { settings } = (await client.request('admin', 'GET', '/v1/settings')) as SettingsReport;
			return settings.find((row) => row.path === path);
		};
		const device = await givenAgent({ home, settings: given(page, metrics) });
		await home.writeSettings(given(metrics, taken));
		await device.daemon.reload();
		const expectBoth = async (one: RunningAgent) => {
			expect(portsOf(one)).toEqual([page, metrics]);
			expect(await rowOf(one, 'page.port')).toMatchObject({ value: page, disk: metrics });
			expect(await rowOf(one, 'local.metricsPort')).toMatchObject({ value: metrics, disk: taken });
		};
		await expectBoth(device);
		await device.stop();
		const again = await givenAgent({ home });
		await expectBoth(again);
		await new Promise((resolve) => other.close(resolve));
		again.clock.advance(15_000);
		await again.untilStatus(({ warnings }) => warnings.length === 0);
		expect(portsOf(again)).toEqual([metrics, taken]);
		expect(again.clock.pending).toBe(0);
	});

	test('that was refused, by a file that cannot be read any more, is not what config show has in use [F1366]', async () => {
		const home = await givenHome();
		const [page, metrics, free] = [await freePort(), await freePort(), await freePort()];
		const pinFile = await home.secretFile('pin', '471100');
		const settings = { page: { port: page, pinFile }, local: { metricsPort: metrics } };
		const device = await givenAgent({ home, settings });
		const push = (name: string, text: string) => writeFile(join(home.paths.confDirectory, name), text);
		await mkdir(home.paths.confDirectory, { recursive: true });
		await push('22.json', JSON.stringify({ page: { port: metrics } }));
		await device.daemon.reload();
		await push('22.json', `{ "page": { "port": ${metrics} }, `);
		await push('23.json', JSON.stringify({ page: { port: free } }));
		await device.daemon.reload();
		await device.stop();
		const again = await givenAgent({ home });
		expect(Number(new URL(again.daemon.addresses.page ?? 'http://none').port)).toBe(page);
		const report = (await again.client.request('admin', 'GET', '/v1/settings')) as SettingsReport;
		expect(report.settings.find(({ path }) => path === 'page.port')).toMatchObject({ value: page });
	});

	test('that cannot be had, where the one from before is gone, too, is in use nowhere by config show [F1361]', async () => {
		const [other, last, home] = [createServer(), createServer(), await givenHome()];
		const [taken, first] = [await listen(other), await freePort()];
		await (await givenAgent({ home, settings: { local: { metricsPort: first } } })).stop();
		await once(last.listen(first, '127.0.0.1'), 'listening');
		const device = await givenAgent({ home, settings: { local: { metricsPort: taken } } });
		expect(device.daemon.addresses.metrics).toBeNull();
		const { settings } = (await device.client.request('admin', 'GET', '/v1/settings')) as SettingsReport;
		const row = settings.find(({ path }) => path === 'local.metricsPort');
		expect(row).toMatchObject({ value: null, disk: taken, refused: expect.stringContaining('Cannot listen') });
		expect(row).not.toHaveProperty('since');
		for (const server of [other, last]) await new Promise((resolve) => server.close(resolve));
	});

	test.each([
		['nothing in common', [1, 2, 3], [4, 5, 6], [1, 2, 3]],
		['a swap', [2, 1, 3], [1, 2, 3], [2, 1, 3]],
		['one that stays where another one wants to', [1, 3, 1], [1, 2, 3], [1, 2, 3]],
		['any port', [0, 0, null], [7, null, 9], [0, 0, null]],
		['two that had none', [5, 5, null], [null, null, null], [5, 5, null]],
	])('of %s is settled by what each had', (_, desired, had, taken) => {
		expect(settlePorts(desired, had)).toEqual(taken);
	});

	// Only root may make a place below /run.
	test.skipIf(process.getuid?.() !== 0)(
		'finds nothing of a credential that its site has encrypted: it is not written to the state [F1337]',
		async () => {
			const home = await givenHome();
			const directory = `/run/credentials/idv-agent-test-${process.pid}`;
			await mkdir(directory, { recursive: true });
			onTestFinished(() => rm(directory, { recursive: true }));
			const [applicationsFile, pinFile] = [join(directory, 'applications'), join(directory, 'pin')];
			await writeFile(applicationsFile, `kiosk ${ORIGIN} ${TOKEN}`, { mode: 0o600 });
			await writeFile(pinFile, '471100', { mode: 0o600 });
			const settings = { page: { port: 0, pinFile }, local: { http: { port: 0, applicationsFile } } };
			const device = await givenAgent({ home, settings });
			expect((await askBrowser(device, '/v1/status', { headers: asKiosk })).status).toBe(200);
			await device.stop();
			for (const text of [TOKEN, '471100']) expect(await home.filesWith(text)).toEqual([]);
		},
	);

	test('stays known to a device that is unpaired [F1313]', async () => {
		const home = await givenHome();
		const local = { http: { port: 0, applicationsFile: await givenApplications(home) } };
		const device = await givenPairedAgent(await givenService(), { home, settings: { local } });
		await device.agent.unpair();
		await device.stop();
		await givenApplications(home, 'not an application');
		const again = await givenAgent({ home, settings: { local } });
		expect((await askBrowser(again, '/v1/status', { headers: asKiosk })).status).toBe(200);
	});
});

describe('changed settings', () => {
	test('open, move and close the ports without a restart', async () => {
		const home = await givenHome();
		const http = { port: 0, applicationsFile: await givenApplications(home) };
		const device = await givenAgent({ home });
		await home.writeSettings({ page: { port: 0 }, local: { metricsPort: 0, http } });
		await device.daemon.reload();
		const { page, metrics, browser } = device.daemon.addresses;
		expect((await fetch(page ?? '')).status).toBe(200);
		expect(await probe(device, '/livez')).toMatchObject({ status: 200 });
		expect(await askBrowser(device, '/v1/status', { headers: asKiosk })).toMatchObject({ status: 200 });

		// The port that one leaves can be given to another in the same change.
		const left = Number(new URL(metrics ?? '').port);
		await home.writeSettings({ page: { port: left }, local: { http } });
		await device.daemon.reload();
		expect(device.daemon.addresses).toEqual({ page: metrics, metrics: null, browser });
		expect((await fetch(metrics ?? '')).status).toBe(200);
		expect(await isClosed(page)).toBe(true);

		await home.writeSettings({});
		await device.daemon.reload();
		for (const address of [metrics, browser]) expect(await isClosed(address)).toBe(true);
		expect(warningsOf(device)).toEqual([]);
	});

	test('bound the kept events from the next one on', async () => {
		const service = await givenService();
		const device = await givenPairedAgent(service);
		for (const type of ['a', 'b', 'c', 'd']) service.notify({ type });
		await device.untilEvent(({ kind }) => kind === 'd');
		await device.home.writeSettings({ events: { maxCount: 2 } });
		await device.daemon.reload();
		service.notify({ type: 'e' });
		await device.untilEvent(({ kind }) => kind === 'e');
		expect((await device.events()).filter(({ type }) => type !== 'gap').map(({ kind }) => kind)).toEqual(['d', 'e']);
	});

	test('a missing group is a warning where a setting names it or systemd starts the agent, and is not missed elsewhere', async () => {
		const isThere = /^idv-agent:/m.test(await readFile('/etc/group', 'utf8'));
		const quiet = await givenAgent({ groups: 'settings' });
		expect(warningsOf(quiet)).toEqual([]);
		const byUnit = await givenAgent({ groups: 'settings', env: { INVOCATION_ID: '1' } });
		expect(warningsOf(byUnit).map(({ code }) => code)).toEqual(isThere ? [] : ['socket-failed', 'socket-failed']);
		const named = await givenAgent({ groups: 'settings', settings: { local: { agentGroup: 'no-such-group' } } });
		expect(warningsOf(named).map(({ message }) => message)).toContainEqual(expect.stringContaining('no-such-group'));
	});

	test('a group that the machine does not have is refused and told, over a restart, and applications stay let in [F902]', async () => {
		const home = await givenHome();
		const local = { agentGroup: 'daemon', adminGroup: GROUP };
		const { gid } = (await findGroup('daemon')) ?? {};
		const start = (settings?: object) => givenAgent({ home, groups: 'settings', ...(settings && { settings }) });
		const device = await start({ local });
		const groupOf = async () => (await stat(join(home.paths.runDir, 'agent.sock'))).gid;
		expect([warningsOf(device), await groupOf()]).toEqual([[], gid]);
		await home.writeSettings({ local: { ...local, agentGroup: 'no-such-group' } });
		await device.daemon.reload();
		const told = /local\.agentGroup names a group that this machine does not have: no-such-group\./;
		expect(warningsOf(device).map(({ message }) => message)).toEqual([expect.stringMatching(told)]);
		expect(device.agent.ways.runtime().resolved.settings.local.agentGroup).toBe('daemon');
		const { settings } = (await device.client.request('admin', 'GET', '/v1/settings')) as SettingsReport;
		const row = settings.find(({ path }) => path === 'local.agentGroup');
		expect(row).toMatchObject({ value: 'daemon', refused: expect.stringMatching(told) });
		expect(row).not.toHaveProperty('waitsFor');
		await device.stop();

		const again = await start();
		expect(warningsOf(again).map(({ message }) => message)).toEqual([expect.stringMatching(told)]);
		expect(await groupOf()).toBe(gid);
	});

	test('of sockets and files that are open already warn, by name, that they wait for the next start [F130]', async () => {
		const home = await givenHome();
		const local = { agentGroup: GROUP, adminGroup: GROUP };
		const device = await givenAgent({ home, groups: 'settings', settings: { local } });
		expect(warningsOf(device)).toEqual([]);
		await home.writeSettings({ local: { ...local, adminGroup: 'daemon' }, events: { durable: false } });
		await device.daemon.reload();
		expect(warningsOf(device)).toMatchObject([
			{
				code: 'restart-needed',
				message: 'The change of local.adminGroup and events.durable takes effect at the next start of the agent.',
			},
		]);
		await home.writeSettings({ local });
		await device.daemon.reload();
		expect(warningsOf(device)).toEqual([]);
	});
});
