import { mkdir, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { randomNumbers } from '../fixtures/random-numbers.ts';
import {
	givenAgent,
	givenHome,
	givenPairedAgent,
	type RunningAgent,
	registrations,
	watchOffline,
} from '../harness/harness.ts';
import { givenService } from '../service/fixture.ts';

const STEPS = 14;

test.each([1, 2, 3, 4])(
	'whatever is pushed, vanishes or is put back, the device stays online or comes back, and every bad change is told (%i) [F632]',
	async (seed) => {
		const random = randomNumbers(seed);
		const pick = <One>(from: readonly One[]) => from[Math.floor(random() * from.length)] as One;
		const service = await givenService({ workflows: ['check-in', 'boarding'] });
		const home = await givenHome();
		const apiKeyFile = await home.secretFile('key', service.credentials.apiKey);
		const good = { baseUrl: service.url, workflowId: 'check-in', credential: { apiKeyFile }, deviceType: 'kiosk' };
		const more = join(home.paths.confDirectory, '50-more.json');
		let device = await givenAgent({ home, settings: good });
		await device.untilLive('check-in');
		const { configFile } = home.paths;
		/** What has to be told, by the file that is at fault. */
		const faults = new Map<string, RegExp>();
		const write = (document: unknown, words: RegExp) => async () => {
			faults.set(configFile, words);
			await home.writeSettings(document);
		};
		const bad: (() => Promise<unknown>)[] = [
			write('{ "baseUrl": ', /the file ends too early/),
			write({ ...good, deviceType: 7 }, /deviceType must be/),
			write({ ...good, brandNew: true }, /brandNew is not a setting/),
			write({ ...good, network: { caFile: '/nowhere/ca.pem' } }, /network\.caFile \/nowhere\/ca\.pem cannot be read/),
			write({ ...good, service: { channelPath: '/no/such/channel' } }, /service\.channelPath/),
			write({ ...good, service: { registrationPath: '/no/such/place' } }, /service\.registrationPath/),
			write({ ...good, credential: { apiKeyFile: `${apiKeyFile}.gone` } }, /key\.gone cannot be read/),
			() => home.secretFile('key', 'a-key-that-is-wrong-0123456789'),
			async () => {
				faults.set(more, /50-more\.json: line 1.*ends too early/);
				await writeFile(more, '{ "page": ');
			},
			async () => {
				faults.set(configFile, /config\.json is not there any more|name no service any more/);
				await rename(configFile, `${configFile}.away`).catch(() => {});
			},
		];
		for (let step = 0; step < STEPS; step += 1) {
			for (let push = Math.floor(random() * 3); push >= 0; push -= 1) await pick(bad)();
			const isGood = random() < 0.4;
			if (isGood) {
				faults.clear();
				await rm(more, { force: true });
				await rm(`${configFile}.away`, { force: true });
				await home.secretFile('key', service.credentials.apiKey);
				await home.writeSettings({ ...good, workflowId: pick(['check-in', 'boarding']) });
			}
			if (random() < 0.3) {
				await device.stop();
				device = await givenAgent({ home });
			} else await device.daemon.reload();
			if (random() < 0.3) device.clock.advance(random() * 400_000);
			await device.untilStatus(
				({ state, warnings }) => {
					const isTold = (words: RegExp) => warnings.some(({ message }) => words.test(message));
					const fits = isGood ? warnings.length === 0 : warnings.length > 0 && [...faults.values()].every(isTold);
					return state === 'online' && fits;
				},
				`status with ${[...faults.values()].join(' and ')}`,
			);
		}
	},
);

async function givenOnline(more: object = {}) {
	const service = await givenService({ workflows: ['check-in'] });
	const home = await givenHome();
	const apiKeyFile = await home.secretFile('key', service.credentials.apiKey);
	const good = {
		baseUrl: service.url,
		workflowId: 'check-in',
		credential: { apiKeyFile },
		deviceType: 'kiosk',
		...more,
	};
	const device = await givenAgent({ home, settings: good });
	await device.untilLive('check-in');
	return { service, home, good, device };
}

/** Of the settings; that each other type of device registers again is told as well. */
const warnings = ({ agent }: RunningAgent) =>
	agent.status().warnings.flatMap(({ code, message }) => (code === 'registering-too-often' ? [] : [message]));

/** Timers of the agent, and what this process has open. */
async function inUse({ clock }: RunningAgent) {
	const open = await readdir('/proc/self/fdinfo').catch(() => []);
	const texts = await Promise.all(open.map((fd) => readFile(`/proc/self/fdinfo/${fd}`, 'utf8').catch(() => '')));
	const watches = texts.flatMap((text) => text.match(/^inotify /gm) ?? []).length;
	const timers = process.getActiveResourcesInfo().filter((kind) => kind === 'Timeout').length;
	return { descriptors: open.length, watches, timers, pending: clock.pending };
}

/** The longest that the hour may take here. */
const HOUR_LIMIT_MS = 8000;

test('settings that change each second for up to an hour, good and bad, cost no moment offline, and what they hold does not grow [F1046]', async () => {
	const { service, home, good, device } = await givenOnline({ local: { metricsPort: 0 } });
	const offline = watchOffline(service);
	const random = randomNumbers(28);
	const bad: readonly (readonly [unknown, RegExp])[] = [
		['{ "baseUrl": ', /the file ends too early/],
		[{ ...good, deviceType: 7 }, /deviceType must be/],
		[{ ...good, brandNew: true }, /brandNew is not a setting/],
		[{ ...good, network: { caFile: '/nowhere/ca.pem' } }, /caFile \/nowhere\/ca\.pem cannot be read/],
		[{ ...good, credential: { apiKeyFile: '/nowhere/key' } }, /\/nowhere\/key cannot be read/],
		[{ ...good, forward: 'all' }, /forward must be a group/],
	];
	const endMs = performance.now() + HOUR_LIMIT_MS;
	let early: Awaited<ReturnType<typeof inUse>> | null = null;
	for (let second = 1; second <= 3600 && performance.now() < endMs; second += 1) {
		const [document, words] = bad[Math.floor(random() * 2 * bad.length)] ?? [
			{ ...good, deviceType: `kiosk-${second}` },
		];
		await home.writeSettings(document);
		await device.daemon.reload();
		expect(warnings(device)).toEqual(words ? expect.arrayContaining([expect.stringMatching(words)]) : []);
		device.clock.advance(1000);
		expect(device.agent.status().state).toBe('online');
		if (second === 30) early = await inUse(device);
	}
	await home.writeSettings(good);
	await device.daemon.reload();
	// The registration for it may have to wait for its turn.
	const saved = home.untilSaved((state) => Object.keys(state.dates).length === 0);
	const isSaved = saved.then(() => true);
	const step = () => {
		device.clock.advance(1000);
		return Promise.race([isSaved, nextTurn(false)]);
	};
	await expect.poll(step).toBe(true);
	const { dates } = await saved;
	expect([warnings(device), offline, dates]).toEqual([[], [], {}]);
	const late = await inUse(device);
	for (const [what, count] of Object.entries(early ?? {}))
		expect([what, late[what as keyof typeof late] - count]).toEqual([what, expect.toSatisfy((more) => more <= 6)]);
	expect(registrations(service).filter((one) => (one ?? 201) !== 201)).toEqual([]);
});

test('50 changes of a file within a second are taken as few, the last one counts, and the same text again writes nothing [F1047]', async () => {
	const { service, home, device } = await givenOnline();
	const offline = watchOffline(service);
	const taken = () => device.log.filter(({ msg }) => msg.startsWith('setting taken: events.maxCount')).length;
	const more = join(home.paths.confDirectory, '50-more.json');
	for (let change = 1; change <= 50; change += 1)
		await writeFile(more, change % 3 === 0 ? '{ "events": ' : JSON.stringify({ events: { maxCount: 100 + change } }));
	await device.untilStatus(() => device.agent.ways.runtime().resolved.settings.events.maxCount === 150);
	expect([warnings(device), offline]).toEqual([[], []]);
	expect(taken()).toBeLessThanOrEqual(12);
	await home.untilSaved(({ lastSettings }) => JSON.stringify(lastSettings).includes('150'));
	const state = join(home.paths.stateDir, 'state.json');
	const [before, lines] = [await stat(state), device.log.length];
	for (let change = 0; change < 10; change += 1) {
		await writeFile(more, '{"events":{"maxCount":150}}');
		await device.daemon.reload();
	}
	const after = await stat(state);
	expect([after.ino, after.mtimeMs, device.log.slice(lines)]).toEqual([before.ino, before.mtimeMs, []]);
});

test('changes while the disk is full are taken or told, cost no moment offline, and are on the disk once there is room [F1048]', async () => {
	const { service, home, good, device } = await givenOnline();
	const offline = watchOffline(service);
	// A directory in the place of the temporary file stops root as well.
	const blocker = join(home.paths.stateDir, 'state.json.new');
	// A save may be under way.
	while (
		!(await mkdir(blocker).then(
			() => true,
			() => false,
		))
	);
	await home.writeSettings({ ...good, deviceType: 'scanner', heartbeatCadence: 'often' });
	await device.daemon.reload();
	const words = [/heartbeatCadence must be/, /The state cannot be saved/];
	await device.untilStatus(() => words.every((one) => warnings(device).some((message) => one.test(message))));
	await device.untilStatus(({ deviceType, state }) => deviceType === 'scanner' && state === 'online');
	await home.writeSettings({ ...good, deviceType: 'gate' });
	await device.daemon.reload();
	await device.untilStatus(({ deviceType, state }) => deviceType === 'gate' && state === 'online');
	await rm(blocker, { recursive: true });
	device.clock.advance(60_000);
	await home.untilSaved(({ lastSettings }) => JSON.stringify(lastSettings).includes('gate'));
	await device.untilStatus(() => warnings(device).length === 0);
	expect(offline).toEqual([]);
});

test.each<[string, Record<string, string>]>([
	['cannot be used', { IDV_AGENT_BASE_URL: 'htp:/x', IDV_AGENT_HEARTBEAT_CADENCE: 'abc' }],
	['are empty', { IDV_AGENT_BASE_URL: '', IDV_AGENT_HEARTBEAT_CADENCE: '' }],
	['are gone', {}],
])('variables that %s at a start cost a device neither its key nor its way back [F1564]', async (what, then) => {
	const service = await givenService();
	const home = await givenHome();
	const settings = {
		workflowId: 'check-in',
		credential: { apiKeyFile: await home.secretFile('key', service.credentials.apiKey) },
	};
	const env = { IDV_AGENT_BASE_URL: service.url, IDV_AGENT_HEARTBEAT_CADENCE: '41' };
	const first = await givenAgent({ home, settings, env });
	await first.untilLive('check-in');
	await home.untilSaved(({ lastVariables }) => lastVariables?.['IDV_AGENT_HEARTBEAT_CADENCE'] === '41');
	await first.stop();
	// Each start has the one before it to go back to.
	await (await givenAgent({ home, env: then })).stop();
	const device = await givenAgent({ home, env: then });
	await device.untilLive('check-in');
	expect(warnings(device).join('\n')).toContain('baseUrl');
	const { heartbeatCadence } = device.agent.ways.runtime().resolved.settings;
	expect(heartbeatCadence).toBe(what === 'cannot be used' ? 41 : 30);
	const lost = device.untilState('offline');
	service.revoke((await home.untilSaved()).connections[0]?.request.deviceId ?? '');
	service.dropSockets();
	await lost;
	const back = device.untilState('online');
	for (let waits = 0; waits < 40 && device.agent.status().state !== 'online'; waits += 1)
		await Promise.race([device.passWait(), back]);
	await back;
	await device.stop();
});

test('variables that cannot be used after an unpairing stay as they were before it [F1883]', async () => {
	const env = { IDV_AGENT_HEARTBEAT_CADENCE: '41' };
	const first = await givenPairedAgent(await givenService(), { env });
	await first.agent.unpair();
	await first.stop();
	const device = await givenAgent({ home: first.home, env: { IDV_AGENT_HEARTBEAT_CADENCE: 'abc' } });
	expect(device.agent.ways.runtime().resolved.settings.heartbeatCadence).toBe(41);
});

test('a value of --set that cannot be used at a start stays as it was before [F1580]', async () => {
	const service = await givenService();
	const home = await givenHome();
	const apiKeyFile = await home.secretFile('key', service.credentials.apiKey);
	const settings = { baseUrl: service.url, workflowId: 'check-in', credential: { apiKeyFile } };
	const first = await givenAgent({ home, settings, sets: ['heartbeatCadence=41'] });
	await first.untilLive('check-in');
	await home.untilSaved(({ lastVariables }) => lastVariables?.['--set heartbeatCadence'] === '41');
	await first.stop();
	const device = await givenAgent({ home, sets: ['heartbeatCadence=abc'] });
	await device.untilLive('check-in');
	expect(warnings(device).join('\n')).toMatch(/--set heartbeatCadence.*Its value from before stays in force/);
	expect(device.agent.ways.runtime().resolved.settings.heartbeatCadence).toBe(41);
});
