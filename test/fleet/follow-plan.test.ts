import { existsSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test, vi } from 'vitest';
import { rolloutPercentile, shareOfSpread } from '../../src/fleet/targeting.ts';
import type { Heartbeat } from '../../src/protocol/channel.ts';
import { ENDPOINTS } from '../../src/protocol/endpoints.ts';
import type { SettingsReport } from '../../src/protocol/local-api.ts';
import type { EmbeddedService, ServiceOptions } from '../../src/service/embedded-service.runner.ts';
import { formatMetrics, stateMetrics } from '../../src/status/metrics.ts';
import { UPDATES_PROGRAM } from '../../src/updates/package.ts';
import { plantTree, type Tree } from '../fixtures/machines.ts';
import { createSigner, givenPlanServer, type Mood } from '../fixtures/plans.ts';
import {
	type AgentSetup,
	DEVICE_ID,
	givenAgent,
	givenHome,
	givenPairedAgent,
	type RunningAgent,
	registrations,
	watchOffline,
} from '../harness/harness.ts';
import { createSteppedClock } from '../harness/stepped-clock.ts';
import { givenService } from '../service/fixture.ts';

/** What the harness's chance makes of the time until the first look and between two. */
/** For a file that is written beside the status; a busy machine takes long. */
const PATIENTLY = { timeout: 30_000 };
const FIRST_LOOK_MS = 5000;
const INTERVAL_MS = 300_000;

function plan(revision: number, workflowId: string | null, more: object = {}) {
	return { format: 'idv-fleet-plan/1', revision, spreadSeconds: 0, defaults: { workflowId }, ...more };
}

interface FleetSetup extends AgentSetup {
	readonly service?: ServiceOptions;
	readonly fleet?: object;
	readonly more?: object;
}

/** A paired device, online with `check-in`, that has not looked for the plan yet. */
async function givenFleetDevice(document: unknown, { service: options, fleet, more, ...setup }: FleetSetup = {}) {
	const service = await givenService(options ?? {});
	const server = await givenPlanServer(document);
	const settings = { fleet: { planUrl: server.url, ...fleet }, ...more };
	const device = await givenPairedAgent(service, { ...setup, settings });
	return { service, server, device, offline: watchOffline(service) };
}

/** What the package idv-agent-updates puts there. */
const UPDATES: Tree = { [UPDATES_PROGRAM.slice(1)]: '' };

/** The first heartbeat from now on that fits. */
function untilBeat(service: EmbeddedService, fits: (heartbeat: Heartbeat) => boolean): Promise<Heartbeat> {
	return new Promise((resolve) => {
		const stop = service.on('heartbeat', ({ heartbeat }) => {
			if (!fits(heartbeat)) return;
			stop();
			resolve(heartbeat);
		});
	});
}

const refusalOf = (device: RunningAgent, code: string) =>
	device.untilStatus(({ warnings }) => warnings.some((warning) => warning.code === code), code);

/** Which timers are set tells nothing of which: times pass until one of them is the next look's own. */
function whileIntervalsPass<Reached>(
	{ clock }: RunningAgent,
	reached: Promise<Reached>,
	ms = INTERVAL_MS,
): Promise<Reached> {
	const pass = setInterval(() => clock.advance(ms), 500);
	clock.advance(ms);
	return reached.finally(() => clearInterval(pass));
}

describe('a device with a fleet plan', () => {
	test('moves to its workflow without being offline, and says who decided', async () => {
		const { service, device, offline } = await givenFleetDevice(plan(7, 'boarding'));
		const beat = untilBeat(service, ({ workflowId }) => workflowId === 'boarding');
		device.clock.advance(FIRST_LOOK_MS);
		const status = await device.untilLive('boarding');
		device.clock.advance(30_000);
		expect(status).toMatchObject({
			workflow: { wanted: 'boarding', source: 'plan' },
			plan: { revision: 7, followed: 7, rule: null, workflowId: 'boarding', next: null, refused: null },
			warnings: [],
		});
		expect(await beat).toMatchObject({ workflowId: 'boarding', planRevision: 7 });
		expect(service.devices()).toMatchObject([{ workflowId: 'boarding', planRevision: 7, planRefused: null }]);
		expect(offline).toEqual([]);
	});

	test('asks with the ETag it knows, also after a restart, and writes nothing for an answer of 304', async () => {
		const { server, device } = await givenFleetDevice(plan(7, 'check-in'));
		device.clock.advance(FIRST_LOOK_MS);
		await device.untilStatus(({ plan }) => plan?.followed === 7);
		const saved = JSON.stringify(await device.home.untilSaved(({ plan }) => plan?.followed === 7));
		for (const count of [2, 3]) {
			await device.untilStatus(({ plan }) => plan?.checkedAt !== null);
			await device.untilTimers(3);
			device.clock.advance(INTERVAL_MS);
			await server.untilAnswered(count);
		}
		expect(server.answers).toEqual([200, 304, 304]);
		expect(JSON.stringify(await device.home.untilSaved())).toBe(saved);
		await device.stop();
		const again = await givenAgent({ home: device.home });
		again.clock.advance(FIRST_LOOK_MS);
		await server.untilAnswered(4);
		expect(server.answers.at(-1)).toBe(304);
		expect(server.requests.map((headers) => headers['accept-encoding'])).toEqual(['gzip', 'gzip', 'gzip', 'gzip']);
		expect(server.requests.some((headers) => headers.authorization)).toBe(false);
	});

	test('that orders another version on a device without idv-agent-updates says so everywhere, until that is installed [F546]', async () => {
		const signer = createSigner();
		const rings = [{ percent: 100, agent: { version: '9.9.9' } }];
		const defaults = { workflowId: 'check-in', rollout: { to: {}, rings } };
		const signed = signer.sign({ format: 'idv-fleet-plan/2', revision: 7, spreadSeconds: 0, defaults });
		const { service, device } = await givenFleetDevice(signed, {
			fleet: { publicKeys: [signer.publicKey] },
			more: { update: { enabled: true, window: '00:00-00:00' }, service: { heartbeatFields: ['updateReason'] } },
		});
		const handedOver = join(device.home.paths.stateDir, 'update-plan.json');
		const beat = untilBeat(service, ({ updateReason }) => updateReason === 'not-installed');
		device.clock.advance(FIRST_LOOK_MS);
		const status = await device.untilStatus(({ updates }) => updates?.ordered === '9.9.9');
		expect(status.updates).toEqual({ ordered: '9.9.9', reason: 'not-installed', takenBack: [] });
		expect(status.warnings).toMatchObject([
			{ code: 'updates-missing', message: expect.stringContaining('update.enabled, update.window') },
		]);
		expect(status.warnings[0]?.remedy).toContain('apt install idv-agent-updates');
		expect(formatMetrics(stateMetrics(status))).toContain(
			'idv_agent_update_ordered{update="9.9.9",reason="not-installed"} 1',
		);
		device.clock.advance(60_000);
		await beat;
		expect(existsSync(handedOver)).toBe(false);

		const [machine = ''] = readdirSync(device.home.directory).filter((name) => name.startsWith('machine-'));
		await plantTree(join(device.home.directory, machine), UPDATES);
		// As the package has it done.
		await device.daemon.reload();
		await device.untilStatus(({ updates, warnings }) => updates?.reason === null && warnings.length === 0);
		await vi.waitFor(() => expect(JSON.parse(readFileSync(handedOver, 'utf8'))).toEqual(signed), PATIENTLY);
	});

	test('that orders another version is handed over as it was served, also after a restart, if it is signed and the site allows it', async () => {
		const signer = createSigner();
		const rings = [{ percent: 100, agent: { version: '9.9.9' } }];
		const ordered = (revision: number, to: object = {}) => ({
			...{ format: 'idv-fleet-plan/2', revision, spreadSeconds: 0 },
			defaults: { workflowId: 'check-in', rollout: { to, rings } },
		});
		const signed = signer.sign(ordered(7));
		const fleet = { publicKeys: [signer.publicKey] };
		const more = { update: { enabled: true } };
		const machine = { 'sys/class/dmi/id/product_serial': `${DEVICE_ID}\n`, ...UPDATES };
		const { server, device } = await givenFleetDevice(signed, { fleet, more, machine });
		const handedOver = join(device.home.paths.stateDir, 'update-plan.json');
		device.clock.advance(FIRST_LOOK_MS);
		const status = await device.untilStatus(({ updates }) => updates?.ordered === '9.9.9');
		expect(status.updates).toEqual({ ordered: '9.9.9', reason: null, takenBack: [] });
		await vi.waitFor(() => expect(JSON.parse(readFileSync(handedOver, 'utf8'))).toEqual(signed), PATIENTLY);
		await device.stop();
		rmSync(handedOver);
		const again = await givenAgent({ home: device.home, machine });
		again.clock.advance(FIRST_LOOK_MS);
		await server.untilAnswered(2);
		await vi.waitFor(() => expect(JSON.parse(readFileSync(handedOver, 'utf8'))).toEqual(signed), PATIENTLY);
		again.clock.advance(INTERVAL_MS);
		await server.untilAnswered(3);
		expect(server.answers).toEqual([200, 200, 304]);
		await again.stop();

		const unsigned = await givenFleetDevice(ordered(7), { more: { update: { enabled: true } } });
		const off = await givenFleetDevice(signed, { fleet });
		for (const { device: other } of [unsigned, off]) {
			other.clock.advance(FIRST_LOOK_MS);
			await other.untilStatus(({ plan }) => plan?.followed === 7);
			expect(other.agent.status().updates?.ordered ?? null).toBeNull();
			expect(existsSync(join(other.home.paths.stateDir, 'update-plan.json'))).toBe(false);
		}
		expect(off.device.agent.status()).not.toHaveProperty('updates');
	});

	test('ends a look that is under way when it stops, and tells nobody what came of it', async () => {
		const { server, device } = await givenFleetDevice(plan(7, 'boarding'));
		const [asked, left] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
		server.behave((response) => {
			response.once('close', left.resolve);
			asked.resolve();
		});
		device.clock.advance(FIRST_LOOK_MS);
		await asked.promise;
		await device.agent.stop();
		// The pool of connections is still open: whoever has asked has ended it.
		await left.promise;
		expect(device.agent.status()).toMatchObject({ warnings: [], plan: { checkedAt: null } });
	});

	test('keeps the plan through a restart without its server [F118]', async () => {
		const { server, device } = await givenFleetDevice(plan(7, 'boarding'));
		device.clock.advance(FIRST_LOOK_MS);
		await device.untilStatus(({ plan }) => plan?.followed === 7);
		await device.stop();
		server.behave((response) => response.destroy());
		const again = await givenAgent({ home: device.home });
		expect(await again.untilLive('boarding')).toMatchObject({ workflow: { source: 'plan' }, plan: { revision: 7 } });
		again.clock.advance(FIRST_LOOK_MS);
		await refusalOf(again, 'plan-unreachable');
		expect(again.agent.status()).toMatchObject({ workflow: { live: 'boarding' }, plan: { revision: 7, followed: 7 } });
		server.behave(null);
		again.clock.advance(INTERVAL_MS);
		await again.untilStatus(({ warnings }) => warnings.length === 0);
	});

	test('takes a change at its own moment of the spread, and knows it through a restart', async () => {
		const { server, device } = await givenFleetDevice(plan(1, 'check-in'));
		device.clock.advance(FIRST_LOOK_MS);
		await device.untilStatus(({ plan }) => plan?.followed === 1);
		server.publish({ ...plan(2, 'boarding'), spreadSeconds: 86_400 });
		device.clock.advance(INTERVAL_MS);
		const { plan: seen } = await device.untilStatus(({ plan }) => plan?.next != null);
		expect(seen).toMatchObject({ revision: 1, workflowId: 'check-in', next: { revision: 2, workflowId: 'boarding' } });
		const waitMs = Date.parse(seen?.next?.at ?? '') - device.clock.wallMs();
		expect(waitMs).toBe(Math.round(shareOfSpread(DEVICE_ID) * 86_400_000));
		await device.home.untilSaved(({ plan }) => plan?.waiting !== null);
		await device.stop();
		server.behave((response) => response.destroy());
		const again = await givenAgent({ home: device.home, clock: device.clock });
		await again.untilLive('check-in');
		again.clock.advance(Date.parse(seen?.next?.at ?? '') - again.clock.wallMs() - 1000);
		expect(again.agent.status().workflow.wanted).toBe('check-in');
		again.clock.advance(1000);
		expect(await again.untilLive('boarding')).toMatchObject({ plan: { revision: 2, next: null } });
	});

	test('moves with its ring, when the ring starts', async () => {
		const clockAt = new Date(Date.now() + 3_600_000).toISOString();
		const place = rolloutPercentile(DEVICE_ID);
		const rings = (percent: number) => ({
			defaults: {
				workflowId: 'check-in',
				rollout: { to: { workflowId: 'boarding' }, rings: [{ percent, startAt: clockAt }] },
			},
		});
		const { server, device } = await givenFleetDevice(plan(1, null, rings(place)));
		device.clock.advance(FIRST_LOOK_MS);
		await device.untilStatus(({ plan }) => plan?.followed === 1);
		expect(device.agent.status().plan?.next).toBeNull();
		server.publish(plan(2, null, rings(place + 0.01)));
		device.clock.advance(INTERVAL_MS);
		expect(await device.untilStatus(({ plan }) => plan?.next != null)).toMatchObject({
			plan: { revision: 2, workflowId: 'check-in', next: { workflowId: 'boarding', at: clockAt } },
		});
		server.behave((response) => response.destroy());
		device.clock.advance(Date.parse(clockAt) - device.clock.wallMs());
		await device.untilLive('boarding');
	});

	test('is chosen by its labels, and chosen anew when they change', async () => {
		const rules = [{ name: 'lobby', match: { labels: ['lobby'] }, workflowId: 'boarding' }];
		const { service, server, device } = await givenFleetDevice(plan(1, 'check-in', { rules }));
		device.clock.advance(FIRST_LOOK_MS);
		await device.untilStatus(({ plan }) => plan?.followed === 1);
		await device.home.writeSettings({ fleet: { planUrl: server.url, labels: ['lobby'] } });
		await device.daemon.reload();
		// The reload sets the timer of its look at any moment from here on.
		const live = whileIntervalsPass(device, device.untilLive('boarding'), FIRST_LOOK_MS);
		expect(await live).toMatchObject({ plan: { revision: 1, rule: 'lobby' } });
		expect(server.answers.slice(0, 2)).toEqual([200, 200]);
		expect(registrations(service)).toEqual([201, 201]);
	});

	test('beats at the cadence of the plan, unless its settings name one, and shows which is in force [F1416]', async () => {
		const settings = { defaults: { workflowId: 'check-in', settings: { heartbeatCadence: 7 } } };
		const { service, server, device } = await givenFleetDevice(plan(1, 'check-in', settings));
		device.clock.advance(FIRST_LOOK_MS);
		await device.untilStatus(({ plan }) => plan?.followed === 1);
		expect(registrations(service)).toEqual([201, 201]);
		const shown = async () => {
			const report = (await device.client.request('admin', 'GET', '/v1/settings')) as SettingsReport;
			return report.settings.find(({ path }) => path === 'heartbeatCadence');
		};
		expect(await shown()).toMatchObject({ value: 7, source: 'plan' });
		expect(await shown()).not.toHaveProperty('waitsFor');
		const back = service.waitFor('request');
		await device.home.writeSettings({ heartbeatCadence: 31, fleet: { planUrl: server.url } });
		await device.daemon.reload();
		await back;
		expect((await device.untilStatus(({ problem }) => problem === null)).plan?.followed).toBe(1);
		expect(registrations(service)).toEqual([201, 201, 201]);
		await expect.poll(shown).toMatchObject({ value: 31, source: 'file' });
		// The plan's is in force again, and not the default.
		await device.home.writeSettings({ fleet: { planUrl: server.url } });
		await device.daemon.reload();
		await expect.poll(shown).toMatchObject({ value: 7, source: 'plan' });
		expect(device.log.map(({ msg }) => msg).filter((msg) => /^setting taken: heartbeatCadence/.test(msg))).toHaveLength(
			1,
		);
	});

	test('waits for the lease of an application', async () => {
		const { device } = await givenFleetDevice(plan(1, 'boarding'));
		device.agent.leases.hold('kiosk', 600);
		device.clock.advance(FIRST_LOOK_MS);
		const status = await device.untilStatus(({ workflow }) => workflow.waitsUntil !== null);
		expect(status).toMatchObject({ workflow: { wanted: 'boarding', live: 'check-in' }, plan: { followed: null } });
		// Longer than a change may take: waiting for people is no failure.
		device.clock.advance(400_000);
		expect(device.agent.status().plan?.refused).toBeNull();
		device.agent.leases.release('kiosk');
		expect(await device.untilLive('boarding')).toMatchObject({ plan: { followed: 1, refused: null } });
	});
});

test('a look that was asked to wait does so, and no longer', async () => {
	const { server, device } = await givenFleetDevice(plan(7, 'check-in'));
	server.behave((response) => response.writeHead(503, { 'Retry-After': '1800' }).end());
	device.clock.advance(FIRST_LOOK_MS);
	await refusalOf(device, 'plan-unreachable');
	server.behave(null);
	device.clock.advance(1_799_000);
	expect(server.answers).toEqual([503]);
	device.clock.advance(1_800_000 * 0.25 + 1000);
	await device.untilStatus(({ plan }) => plan?.followed === 7);
	expect(server.answers).toEqual([503, 200]);
});

describe('a clock that is wrong', () => {
	const rollout = (startAt: string) =>
		plan(7, null, {
			defaults: {
				workflowId: 'check-in',
				rollout: { to: { workflowId: 'boarding' }, rings: [{ percent: 100, startAt }] },
			},
		});
	const wallClocks: [string, (nowMs: number) => number][] = [
		['12 h slow', (nowMs) => nowMs - 12 * 3_600_000],
		['of 1970', () => 5000],
	];

	test.each(wallClocks)(
		'does not revert a finished rollout when the device starts with a clock %s [F360]',
		async (_, wallMs) => {
			const startAt = new Date(Date.now() - 3_600_000).toISOString();
			const { device } = await givenFleetDevice(rollout(startAt));
			device.clock.advance(FIRST_LOOK_MS);
			await device.untilLive('boarding');
			await device.home.untilSaved(({ plan }) => plan?.moved != null);
			await device.stop();
			const clock = createSteppedClock(wallMs(Date.now()));
			const again = await givenAgent({ home: device.home, clock });
			await again.untilState('online');
			expect(again.agent.status().workflow).toMatchObject({ wanted: 'boarding', live: 'boarding' });
			expect(again.agent.status().plan?.next).toBeNull();
			clock.advance(60_000);
			clock.setWall(Date.now());
			clock.advance(30_000);
			expect(again.statuses.map(({ workflow }) => workflow.wanted)).not.toContain('check-in');
		},
	);

	test('makes no ring wait once the clock is right: the plan is judged again at the next wakeup [F361]', async () => {
		const startAtMs = Date.now() + 20 * 3_600_000;
		const { device } = await givenFleetDevice(rollout(new Date(startAtMs).toISOString()));
		device.clock.advance(FIRST_LOOK_MS);
		await device.untilStatus(({ plan }) => plan?.next != null);
		device.clock.setWall(startAtMs);
		device.clock.advance(30_000);
		expect(await device.untilLive('boarding')).toMatchObject({ plan: { next: null } });
	});
});

describe('the one rule', () => {
	test('settings go before the plan', async () => {
		const { device } = await givenFleetDevice(plan(3, 'boarding'), { more: { workflowId: 'check-in' } });
		device.clock.advance(FIRST_LOOK_MS);
		await device.untilStatus(({ plan }) => plan?.revision === 3);
		expect(device.agent.status()).toMatchObject({
			workflow: { wanted: 'check-in', live: 'check-in', source: 'file' },
			plan: { workflowId: 'boarding' },
		});
	});

	test('the plan goes before a command, which is refused and named', async () => {
		const { device } = await givenFleetDevice(plan(3, 'check-in'));
		device.clock.advance(FIRST_LOOK_MS);
		await device.untilStatus(({ plan }) => plan?.followed === 3);
		await expect(device.agent.setWorkflow('boarding')).rejects.toMatchObject({
			code: 'workflow-fixed',
			message: 'Workflow check-in is set by the fleet plan (revision 3, its defaults).',
		});
		expect(device.agent.status().workflow).toMatchObject({ wanted: 'check-in', live: 'check-in' });
	});

	test('and before a pairing code for another workflow, which is not spent', async () => {
		const { service, device } = await givenFleetDevice(plan(3, 'check-in'));
		device.clock.advance(FIRST_LOOK_MS);
		await device.untilStatus(({ plan }) => plan?.followed === 3);
		const code = service.createPairingCode('boarding').url;
		await expect(device.pair(code, { replace: true })).rejects.toMatchObject({ code: 'workflow-fixed' });
		expect(registrations(service)).toEqual([201]);
	});

	test('a plan that names no workflow leaves it to the others', async () => {
		const { device } = await givenFleetDevice(plan(3, null));
		device.clock.advance(FIRST_LOOK_MS);
		await device.untilStatus(({ plan }) => plan?.followed === 3);
		await device.agent.setWorkflow('boarding');
		expect(await device.untilLive('boarding')).toMatchObject({ workflow: { source: 'workflow set' } });
	});

	test('a plan that stops naming the workflow of a device that has no other is told as that, and not as a file that is gone', async () => {
		const service = await givenService();
		const server = await givenPlanServer(plan(3, 'check-in'));
		const home = await givenHome();
		const credential = { apiKeyFile: await home.secretFile('key', service.credentials.apiKey) };
		const settings = { baseUrl: service.url, credential, fleet: { planUrl: server.url } };
		const device = await givenAgent({ home, settings });
		device.clock.advance(FIRST_LOOK_MS);
		await device.untilLive('check-in');
		server.publish(plan(4, null));
		await whileIntervalsPass(
			device,
			device.untilStatus(({ plan }) => plan?.followed === 4),
		);
		const { state, warnings } = device.agent.status();
		expect([state, warnings.map(({ message, remedy }) => `${message} ${remedy}`)]).toEqual([
			'online',
			[
				expect.stringMatching(
					/^Revision 4 of the fleet plan and the settings name no workflow any more; .* Name one in the plan/,
				),
			],
		]);
	});

	test('without the plan the assignment from before counts again', async () => {
		const { device } = await givenFleetDevice(plan(3, 'boarding'));
		device.clock.advance(FIRST_LOOK_MS);
		await device.untilLive('boarding');
		await device.home.writeSettings({});
		await device.daemon.reload();
		expect(await device.untilLive('check-in')).toMatchObject({ workflow: { source: 'pairing' }, plan: null });
	});
});

describe('a plan that does not work', () => {
	const seconds = (count: number) => count * 1000;

	test('leaves the device where it was, which it reports, and is tried again seldom [F122]', async () => {
		const { service, device, offline } = await givenFleetDevice(plan(5, 'bording'), {
			service: { workflows: ['check-in', 'boarding'] },
		});
		device.clock.advance(FIRST_LOOK_MS);
		await device.untilStatus(({ problem }) => problem?.code === 'workflow-unknown');
		device.clock.advance(seconds(300));
		const status = await refusalOf(device, 'plan-not-followed');
		expect(status).toMatchObject({
			state: 'online',
			problem: null,
			workflow: { wanted: 'bording', live: 'check-in', source: 'plan' },
			plan: { revision: 5, followed: null, refused: { revision: 5, code: 'plan-not-followed' } },
		});
		expect(status.warnings[0]?.message).toMatch(
			/bording, which was not online within 300 s; the device stays with check-in/,
		);
		const { at = '', nextTryAt = '' } = status.plan?.refused ?? {};
		const inMs = (iso: string) => Date.parse(iso) - device.clock.wallMs();
		expect([Math.sign(inMs(at)) < 1, inMs(nextTryAt) >= seconds(3000)]).toEqual([true, true]);
		const told = untilBeat(service, ({ planRefused }) => planRefused === 5);
		device.clock.advance(seconds(30));
		expect(await told).toMatchObject({ workflowId: 'check-in', planRefused: 5 });
		expect(service.devices()).toMatchObject([{ workflowId: 'check-in', planRevision: null, planRefused: 5 }]);
		const asked = registrations(service).length;
		device.clock.advance(seconds(3000));
		expect(registrations(service)).toHaveLength(asked);
		const again = service.waitFor('request');
		device.clock.advance(seconds(3600));
		expect(await again).toMatchObject({ path: '/api/device/connection', status: 404 });
		expect(offline).toEqual([]);
	});

	test('is not tried before its time because an application takes a lease and releases it', async () => {
		const { service, device } = await givenFleetDevice(plan(5, 'bording'), {
			service: { workflows: ['check-in', 'boarding'] },
		});
		device.clock.advance(FIRST_LOOK_MS);
		await device.untilStatus(({ problem }) => problem !== null);
		device.clock.advance(seconds(300));
		await refusalOf(device, 'plan-not-followed');
		const asked = registrations(service).length;
		device.agent.leases.hold('kiosk', 60);
		device.agent.leases.release('kiosk');
		device.clock.advance(seconds(600));
		expect(device.agent.status().plan?.refused).not.toBeNull();
		expect(registrations(service)).toHaveLength(asked);
	});

	test('does not hold a device back that is paired again meanwhile', async () => {
		const { service, device } = await givenFleetDevice(plan(5, 'boarding'));
		service.failNext({ method: 'POST', path: ENDPOINTS.deviceConnection }, { status: 403 }, 20);
		device.clock.advance(FIRST_LOOK_MS);
		await device.untilStatus(({ problem }) => problem?.code === 'access-forbidden');
		device.clock.advance(seconds(300));
		await refusalOf(device, 'plan-not-followed');
		service.revoke(DEVICE_ID);
		await device.untilStatus(({ state }) => state !== 'online');
		while ((await fetch(new URL(ENDPOINTS.deviceConnection, service.url), { method: 'POST' })).status === 403);
		await device.pair(service.createPairingCode('boarding').url, { replace: true });
		expect(await device.untilLive('boarding')).toMatchObject({ state: 'online', plan: { refused: null } });
	});

	test('is over with the next revision [F123]', async () => {
		const { server, device } = await givenFleetDevice(plan(5, 'bording'), {
			service: { workflows: ['check-in', 'boarding'] },
		});
		device.clock.advance(FIRST_LOOK_MS);
		await device.untilStatus(({ problem }) => problem !== null);
		device.clock.advance(seconds(300));
		await refusalOf(device, 'plan-not-followed');
		server.publish(plan(6, 'boarding'));
		device.clock.advance(INTERVAL_MS);
		expect(await device.untilLive('boarding')).toMatchObject({ plan: { followed: 6, refused: null }, warnings: [] });
	});
});

describe('a plan that is not taken', () => {
	const good = plan(7, 'check-in');

	/** A device that follows revision 7, signed or not. */
	async function givenFollower(document: unknown = good, fleet: object = {}) {
		const given = await givenFleetDevice(document, { fleet });
		given.device.clock.advance(FIRST_LOOK_MS);
		await given.device.untilStatus(({ plan }) => plan?.followed === 7);
		return given;
	}

	async function expectNothingChanged(device: RunningAgent, code: string, words: RegExp) {
		const status = await refusalOf(device, code);
		const isServed = code !== 'plan-unreachable';
		expect(status).toMatchObject({
			state: 'online',
			workflow: { live: 'check-in' },
			plan: { revision: 7, followed: 7, refused: null, servedRefused: isServed ? { code } : null },
		});
		const figures = formatMetrics(stateMetrics(status));
		for (const line of [
			`plan_state{state="refused"} ${Number(isServed)}`,
			`plan_state{state="followed"} ${Number(!isServed)}`,
			'plan_revision 7',
			'plan_confirmed_revision 7',
			...(isServed ? [`plan_served_refused{code="${code}",message="`] : []),
		])
			expect(figures).toContain(`\nidv_agent_${line}`);
		expect(status.warnings.map(({ message }) => message).join()).toMatch(words);
	}

	test.each<[string, unknown, string, RegExp]>([
		['an older revision', plan(6, 'boarding'), 'plan-outdated', /has revision 6, but this device knows revision 7/],
		['another content', plan(7, 'boarding'), 'plan-outdated', /other content than before under the same revision 7/],
		['no JSON', '{"format":\n "idv-fleet-plan/1",}', 'plan-invalid', /line 2, column 21: there is a comma too many/],
		['a page', '<!doctype html><title>Sign in</title>', 'plan-invalid', /is a web page, not a plan/],
		[
			'a wrong field',
			{ ...plan(8, 'boarding'), spreadSecond: 1 },
			'plan-invalid',
			/\/spreadSecond is not known here\.$/,
		],
		['a wrong value', plan(8, 'boarding\u0007'), 'plan-invalid', /\/defaults\/workflowId must not have control/],
		['nothing', '', 'plan-invalid', /the file is empty/],
		['bytes', Buffer.from([0xff, 0xfe, 0x00]), 'plan-invalid', /is not UTF-8/],
	])(
		'%s: nothing changes, status and figures say why, and a higher revision that is right is taken [F119]',
		async (_, document, code, words) => {
			const { server, device } = await givenFollower();
			server.publish(document);
			device.clock.advance(INTERVAL_MS);
			await expectNothingChanged(device, code, words);
			// What was refused is not fetched again, and what replaces it is.
			await device.untilTimers(3);
			device.clock.advance(INTERVAL_MS);
			await server.untilAnswered(3);
			expect(server.answers).toEqual([200, 200, 304]);
			await device.untilTimers(3);
			server.publish(plan(9, 'boarding'));
			device.clock.advance(INTERVAL_MS);
			expect(await device.untilLive('boarding')).toMatchObject({ warnings: [] });
		},
	);

	test.each<[string, (device: RunningAgent, planUrl: string) => Promise<void>]>([
		['a person asked for', async (device) => device.agent.reconnect()],
		[
			'changed settings brought',
			async (device, planUrl) => {
				await device.home.writeSettings({ fleet: { planUrl, labels: ['lobby'] } });
				await device.daemon.reload();
			},
		],
	])('an older poll that ends after the newer one that %s', async (_, pollAgain) => {
		const { server, device } = await givenFollower();
		const { promise: asked, resolve: heard } = Promise.withResolvers<() => void>();
		server.publish(plan(8, 'check-in'));
		server.behave((response, body) => heard(() => void response.end(body)));
		device.clock.advance(INTERVAL_MS);
		const answerOlder = await asked;
		server.behave(null);
		server.publish(plan(9, 'boarding'));
		await pollAgain(device, server.url);
		device.clock.advance(FIRST_LOOK_MS);
		await device.untilStatus(({ plan }) => plan?.followed === 9);
		await device.untilLive('boarding');
		answerOlder();
		server.publish(plan(10, 'check-in'));
		// The older poll sets its timer at any moment from here on.
		await whileIntervalsPass(
			device,
			device.untilStatus(({ plan }) => plan?.followed === 10),
		);
		// On a busy machine the intervals pass faster than a registration: a plan that waits for one says so, and rightly.
		expect(device.log.filter(({ code }) => /^plan-(?!not-followed)/.test(String(code)))).toEqual([]);
	});

	/** Whatever else comes is told by `fetch-plan.test.ts`, and goes the way of one of these. */
	const moods: [string, Mood, string, RegExp][] = [
		['503', (response) => void response.writeHead(503).end(), 'plan-unreachable', /answered 503/],
		[
			'too much',
			(response) => void response.writeHead(200).end(Buffer.alloc(3_000_000, 0x20)),
			'plan-invalid',
			/larger than 2097152 bytes/,
		],
	];
	test.each(moods)('%s', async (_, mood, code, words) => {
		const { server, device } = await givenFollower();
		server.behave(mood);
		device.clock.advance(INTERVAL_MS);
		await expectNothingChanged(device, code, words);
		server.behave(null);
		const mended = device.untilStatus(({ warnings }) => warnings.length === 0);
		expect(await whileIntervalsPass(device, mended)).toMatchObject({ plan: { revision: 7 } });
	});

	test('a body that is longer than it was said to be is cut there, and is no plan', async () => {
		const { server, device } = await givenFollower();
		server.behave((response, body) => {
			response.socket?.end(`HTTP/1.1 200 OK\r\ncontent-length: ${body.length - 5}\r\n\r\n${body}`);
		});
		device.clock.advance(INTERVAL_MS);
		await expectNothingChanged(device, 'plan-invalid', /line 1, column/);
	});

	test('one without a signature, or with another one, once a key is set', async () => {
		const signer = createSigner();
		const { server, device } = await givenFollower(signer.sign(good), { publicKeys: [signer.publicKey] });
		const forged = { ...signer.sign(plan(8, 'boarding')), signatures: signer.sign(plan(9, 'x')).signatures };
		const refused: [unknown, RegExp][] = [
			[plan(8, 'boarding'), /is not signed/],
			[createSigner().sign(plan(8, 'boarding')), /no signature that fits the key/],
			[forged, /no signature that fits the key/],
			[{ ...signer.sign(plan(8, 'boarding')), signatures: [] }, /\/signatures must not be empty/],
			[
				{ ...signer.sign(plan(8, 'boarding')), signatures: [{ sig: 'short' }] },
				/\/signatures\/0\/sig must be 64 bytes/,
			],
			[{ ...signer.sign(plan(8, 'boarding')), payloadType: 'text/plain' }, /\/payloadType must be/],
			[signer.sign('{'), /the signed plan in it: line 1, column 2/],
			[signer.sign(plan(6, 'boarding')), /has revision 6/],
		];
		let answered = 1;
		for (const [document, words] of refused) {
			server.publish(document);
			await device.untilTimers(3);
			device.clock.advance(INTERVAL_MS);
			answered += 1;
			await server.untilAnswered(answered);
			await device.untilStatus(({ warnings }) => words.test(warnings[0]?.message ?? ''), String(words));
			expect(device.agent.status()).toMatchObject({ workflow: { live: 'check-in' }, plan: { revision: 7 } });
		}
		server.publish(signer.sign(plan(8, 'boarding')));
		await device.untilTimers(3);
		device.clock.advance(INTERVAL_MS);
		expect(await device.untilLive('boarding')).toMatchObject({ warnings: [], plan: { followed: 8 } });
	});

	test('the unsigned one of before is asked for anew when a key is set, and taken when it is signed [F120]', async () => {
		const { server, device } = await givenFollower();
		const signer = createSigner();
		await device.home.writeSettings({ fleet: { planUrl: server.url, publicKeys: [signer.publicKey] } });
		await device.daemon.reload();
		device.clock.advance(FIRST_LOOK_MS);
		await expectNothingChanged(device, 'plan-untrusted', /is not signed/);
		server.publish(signer.sign(good));
		await whileIntervalsPass(
			device,
			device.untilStatus(({ warnings }) => warnings.length === 0),
		);
	});
});

describe('the trust in a plan', () => {
	const second = (revision: number, workflowId: string, more: object = {}) => ({
		...plan(revision, workflowId, more),
		format: 'idv-fleet-plan/2',
	});
	const SLIP = plan(Number.MAX_SAFE_INTEGER, 'check-in');

	/** Writes these settings of the fleet, and looks at the plan once more. */
	async function withFleet({ device, server }: Awaited<ReturnType<typeof givenFleetDevice>>, fleet: object) {
		await device.home.writeSettings({ fleet: { planUrl: server.url, ...fleet } });
		await device.daemon.reload();
		const { length } = server.answers;
		device.clock.advance(FIRST_LOOK_MS);
		await server.untilAnswered(length + 1);
	}

	async function look({ device, server }: Awaited<ReturnType<typeof givenFleetDevice>>) {
		await device.untilTimers(3);
		const { length } = server.answers;
		const advance = () => {
			// The answer before may not be read yet: then the next look is not due by the first of these.
			device.clock.advance(INTERVAL_MS);
			return expect.poll(() => server.answers.length, { timeout: 3000 }).toBeGreaterThan(length);
		};
		await advance().catch(advance);
	}

	test('a device with a name of its fleet refuses a plan of another one, and of none [F340]', async () => {
		const given = await givenFleetDevice(second(1, 'boarding', { fleet: 'south' }), { fleet: { name: 'north' } });
		const { device, server } = given;
		device.clock.advance(FIRST_LOOK_MS);
		await refusalOf(device, 'plan-for-other-fleet');
		expect(device.agent.status()).toMatchObject({ workflow: { live: 'check-in' }, plan: { revision: null } });
		server.publish(plan(1, 'boarding'));
		await look(given);
		await device.untilStatus(({ warnings }) => /names no fleet/.test(warnings[0]?.message ?? ''));
		server.publish(second(1, 'boarding', { fleet: 'north' }));
		await look(given);
		expect(await device.untilLive('boarding')).toMatchObject({ warnings: [], plan: { fleet: 'north', revision: 1 } });
	});

	test('ends at validUntil: the device goes on, says so, and takes the next plan [F341]', async () => {
		const validUntil = new Date(Date.now() + 30_000).toISOString();
		const given = await givenFleetDevice(second(1, 'boarding', { validUntil }));
		const { device, server, offline } = given;
		device.clock.advance(FIRST_LOOK_MS);
		expect(await device.untilLive('boarding')).toMatchObject({ warnings: [], plan: { validUntil } });
		server.behave((response) => response.writeHead(304).end());
		device.clock.advance(Date.parse(validUntil) - device.clock.wallMs());
		const expired = await refusalOf(device, 'plan-expired');
		expect(expired).toMatchObject({ state: 'online', workflow: { live: 'boarding' } });
		expect(expired.warnings[0]?.message).toMatch(/frozen or forgotten: revision 1 was valid until/);
		server.behave(null);
		server.publish(second(2, 'boarding', { validUntil: '2099-01-01T00:00:00Z' }));
		await look(given);
		await device.untilStatus(({ warnings, plan }) => plan?.revision === 2 && warnings.length === 0);
		expect(offline).toEqual([]);
	});

	test('a plan that is over when the device first hears of it moves nothing, and no older one is taken afterwards [F1261]', async () => {
		const given = await givenFleetDevice(second(1, 'check-in'));
		const { device, server, offline } = given;
		device.clock.advance(FIRST_LOOK_MS);
		await device.untilStatus(({ plan: kept }) => kept?.followed === 1);
		const validUntil = new Date(device.clock.wallMs() - 60_000).toISOString();
		server.publish(second(3, 'boarding', { validUntil }));
		await look(given);
		const expired = await refusalOf(device, 'plan-expired');
		expect(expired.warnings[0]?.message).toMatch(/revision 3 was valid until.*keeps running as it is/);
		server.publish(second(2, 'boarding'));
		await look(given);
		await refusalOf(device, 'plan-outdated');
		const kept = { workflow: { live: 'check-in' }, plan: { revision: 3, followed: 1, workflowId: 'check-in' } };
		expect(device.agent.status()).toMatchObject({ state: 'online', ...kept });
		expect(offline).toEqual([]);
		await device.home.untilSaved(({ plan: saved }) => saved?.taken?.revision === 3);
		await device.stop();
		const again = await givenAgent({ home: device.home, clock: device.clock });
		expect(await again.untilLive('check-in')).toMatchObject(kept);
		server.publish(second(4, 'boarding'));
		again.clock.advance(FIRST_LOOK_MS);
		expect(await again.untilLive('boarding')).toMatchObject({ plan: { revision: 4 }, warnings: [] });
	});

	test('a slip to the highest revision is recovered by an epoch, and its own plan does not come back', async () => {
		const given = await givenFleetDevice(SLIP);
		const { device, server } = given;
		device.clock.advance(FIRST_LOOK_MS);
		await device.untilStatus(({ plan }) => plan?.followed === Number.MAX_SAFE_INTEGER);
		server.publish(plan(8, 'boarding'));
		await look(given);
		await refusalOf(device, 'plan-outdated');
		server.publish(second(8, 'boarding', { epoch: 1 }));
		await look(given);
		expect(await device.untilLive('boarding')).toMatchObject({ plan: { epoch: 1, revision: 8 }, warnings: [] });
		server.publish(SLIP);
		await look(given);
		await refusalOf(device, 'plan-outdated');
		expect(device.agent.status()).toMatchObject({ workflow: { live: 'boarding' }, plan: { epoch: 1, revision: 8 } });
	});

	test('an unsigned revision binds nothing once keys are set [F342]', async () => {
		const given = await givenFleetDevice(SLIP);
		const { device, server } = given;
		device.clock.advance(FIRST_LOOK_MS);
		await device.untilStatus(({ plan }) => plan?.followed === Number.MAX_SAFE_INTEGER);
		const signer = createSigner();
		await withFleet(given, { publicKeys: [signer.publicKey] });
		await refusalOf(device, 'plan-unattested');
		expect(device.agent.status().workflow.live).toBe('check-in');
		server.publish(signer.sign(plan(7, 'boarding')));
		await look(given);
		expect(await device.untilLive('boarding')).toMatchObject({ plan: { revision: 7 }, warnings: [] });
	});

	test('with a key that is withdrawn goes what it alone has signed: its revision, and what it would have begun', async () => {
		const [kept, stolen] = [createSigner(), createSigner()];
		const publicKeys = [kept.publicKey, stolen.publicKey];
		const given = await givenFleetDevice(kept.sign(plan(7, 'check-in')), { fleet: { publicKeys } });
		const { device, server } = given;
		device.clock.advance(FIRST_LOOK_MS);
		await device.untilStatus(({ plan }) => plan?.followed === 7);
		const startAt = new Date(device.clock.wallMs() + 86_400_000).toISOString();
		const rollout = { to: { workflowId: 'theirs' }, rings: [{ percent: 100, startAt }] };
		server.publish(stolen.sign({ ...SLIP, defaults: { workflowId: 'check-in', rollout } }));
		await look(given);
		await device.untilStatus(({ plan }) => plan?.next?.workflowId === 'theirs');
		await withFleet(given, { publicKeys: [kept.publicKey] });
		const left = await refusalOf(device, 'plan-unattested');
		expect(left).toMatchObject({ workflow: { live: 'check-in' }, plan: { next: null } });
		server.publish(kept.sign(plan(6, 'check-in')));
		await look(given);
		await device.untilStatus(({ warnings }) =>
			warnings.some(({ message }) => /knows revision 7 already/.test(message)),
		);
		server.publish(kept.sign(plan(8, 'boarding')));
		await look(given);
		expect(await device.untilLive('boarding')).toMatchObject({ plan: { revision: 8 }, warnings: [] });
	});

	test('a query in the address drops no floor; another path is another fleet, unless it has a name', async () => {
		const given = await givenFleetDevice(plan(7, 'check-in'));
		const { device, server } = given;
		device.clock.advance(FIRST_LOOK_MS);
		await device.untilStatus(({ plan }) => plan?.followed === 7);
		server.publish(plan(6, 'boarding'));
		await withFleet(given, { planUrl: `${server.url}?v=2` });
		await refusalOf(device, 'plan-outdated');
		expect(device.agent.status()).toMatchObject({ workflow: { live: 'check-in' }, plan: { revision: 7 } });
		await withFleet(given, { planUrl: `${server.url}/other` });
		await device.untilLive('boarding');
		server.publish(second(7, 'boarding', { fleet: 'north' }));
		await withFleet(given, { name: 'north', planUrl: `${server.url}/other` });
		await device.untilStatus(({ plan }) => plan?.revision === 7 && plan.fleet === 'north');
		server.publish(second(6, 'check-in', { fleet: 'north' }));
		await withFleet(given, { name: 'north', planUrl: `${server.url}/third` });
		await refusalOf(device, 'plan-outdated');
		expect(device.agent.status().workflow.live).toBe('boarding');
	});
});

test('a device that is not paired yet learns its workflow from the plan, and its code need not name one', async () => {
	const service = await givenService();
	const server = await givenPlanServer({ ...plan(1, 'boarding'), spreadSeconds: 86_400 });
	const device = await givenAgent({ home: await givenHome(), settings: { fleet: { planUrl: server.url } } });
	device.clock.advance(FIRST_LOOK_MS);
	await device.untilStatus(({ plan }) => plan?.revision === 1);
	await device.pair(service.createPairingCode(null).url);
	expect(await device.untilLive('boarding')).toMatchObject({ workflow: { source: 'plan' }, plan: { followed: 1 } });
});
