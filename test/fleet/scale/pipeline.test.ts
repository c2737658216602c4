/** The rollout that stops: docs/pipeline/rollout.sh against real agents, of which some cannot follow the plan. */
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { mkdtemp, rm, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { rolloutPercentile } from '../../../src/fleet/targeting.ts';
import { openSimulatedRuntime } from '../../../src/simulation/runtime.runner.ts';
import { startSimulation } from '../../../src/simulation/simulation.runner.ts';
import { givenPlanServer } from '../../fixtures/plans.ts';
import { authorizationOf } from '../../operator/operator.ts';
import { givenService } from '../../service/fixture.ts';
import { watchFleet } from '../../simulation/simulated-fleet.ts';

const DEVICES = Number(process.env['PIPELINE_DEVICES'] ?? 10_000);
const ROOT = resolve(import.meta.dirname, '../../..');
/** The share of devices for which the service does not know the new workflow. */
const BAD_SHARE = 0.05;
const LIMIT_SECONDS = 10;

interface Outcome {
	readonly status: number;
	readonly stdout: string;
	readonly stderr: string;
}

test(`a plan that fails on 5 % of ${DEVICES} devices ends at its first ring, and no device goes offline`, async () => {
	const directory = await mkdtemp(join(tmpdir(), 'pipeline-'));
	onTestFinished(() => rm(directory, { recursive: true, force: true }));
	const service = await givenService({ selfRegistration: true, workflows: ['first', 'second'] });
	const server = await givenPlanServer('');
	const runtime = await openSimulatedRuntime({
		version: '0.0.0-test',
		env: {},
		sets: [
			`baseUrl=${service.url}`,
			'credential.selfRegistration=true',
			`fleet.planUrl=${server.url}`,
			'fleet.intervalSeconds=30',
			`fleet.changeLimitSeconds=${LIMIT_SECONDS}`,
			'service.heartbeatFields=agentVersion,planReason,planRing',
			'heartbeatCadence=15',
		],
	});
	const ids = Array.from({ length: DEVICES }, (_, index) => `sim-${String(index + 1).padStart(5, '0')}`);
	const first = ids.filter((id) => rolloutPercentile(id) < 1);
	const bad = new Set([
		...first.slice(0, Math.max(3, Math.ceil(first.length * BAD_SHARE))),
		...ids.filter((_, index) => index % 20 === 0),
	]);
	// A device of the bad ones asks for a workflow that the service really does not have.
	const { client } = runtime;
	const registerDevice: typeof client.registerDevice = (asked) => {
		const { deviceId, workflowId } = asked.request;
		const request =
			bad.has(deviceId) && workflowId === 'second' ? { ...asked.request, workflowId: 'third' } : asked.request;
		return client.registerDevice({ ...asked, request });
	};
	const [planFile, key, inventory] = ['plan.json', 'fleet.key', 'devices.csv'].map((name) => join(directory, name)) as [
		string,
		string,
		string,
	];
	await writeFile(inventory, `deviceId\n${ids.join('\n')}\n`);
	const env = {
		...{ PATH: process.env['PATH'] ?? '', PLAN: planFile, KEY: key, INVENTORY: inventory, IDV: join(ROOT, 'bin/idv') },
		...{ IDV_URL: service.url, IDV_AUTHORIZATION: authorizationOf('Basic', service), XDG_CONFIG_HOME: directory },
		GRACE_SECONDS: '0',
	};
	const run = (file: string, ...args: string[]): Promise<Outcome> =>
		new Promise((done) => {
			execFile(file, args, { env, maxBuffer: 2 ** 26 }, (error, stdout, stderr) =>
				done({ status: error ? Number(error.code ?? 1) : 0, stdout, stderr }),
			);
		});
	const idv = async (...args: string[]) => expect(await run(env.IDV, 'fleet', ...args)).toMatchObject({ status: 0 });
	await idv('keygen', '--out', key);
	const rollout = { to: { workflowId: 'second' }, rings: [{ percent: 1 }] };
	await writeFile(
		join(directory, 'bare.json'),
		JSON.stringify({
			format: 'idv-fleet-plan/1',
			revision: 1,
			spreadSeconds: 5,
			defaults: { workflowId: 'first', rollout },
		}),
	);
	await idv(
		'sign',
		join(directory, 'bare.json'),
		'--key',
		key,
		'--inventory',
		inventory,
		'--max-moves',
		'100%',
		'--out',
		planFile,
	);
	server.publish(readFileSync(planFile, 'utf8'));

	const seen = watchFleet(service);
	const simulation = startSimulation({
		devices: DEVICES,
		runtime: { ...runtime, client: { ...client, registerDevice } },
		rampMs: DEVICES * 4,
		workflowId: 'first',
		version: '0.2.0',
	});
	onTestFinished(async () => {
		await simulation.stop();
		await runtime.close();
	});
	const until = (fits: () => boolean) =>
		new Promise<void>((done) => {
			const look = () => {
				if (!fits()) return;
				forget();
				done();
			};
			const forget = service.on('heartbeat', look);
		});
	const isFirst = new Set(first);
	const firstRing = () => {
		return service.devices().filter(({ deviceId }) => isFirst.has(deviceId));
	};
	await until(
		() =>
			seen.registeredFor('first').length + seen.registeredFor('second').length >= DEVICES &&
			firstRing().every(({ online }) => online),
	);
	const early = await run('sh', join(ROOT, 'docs/pipeline/rollout.sh'));
	expect(early.status).not.toBe(0);
	let looked = 0;
	await until(() => {
		looked += 1;
		if (looked % 500 !== 0) return false;
		return firstRing().every(({ deviceId, planRefused, planRevision, workflowId }) =>
			bad.has(deviceId) ? planRefused === 1 : planRevision === 1 && workflowId === 'second',
		);
	});
	// As if the plan had been published long ago.
	await utimes(planFile, 0, 0);
	const { status, stdout, stderr } = await run('sh', join(ROOT, 'docs/pipeline/rollout.sh'));
	console.log(stdout, stderr);
	const failed = first.filter((id) => bad.has(id)).length;
	expect(status).toBe(75);
	expect(stderr).toContain(`${failed} of ${first.length} devices whose change is due have failed`);
	expect(stdout).toMatch(new RegExp(`^Refused +${failed} `, 'm'));
	expect(stdout).toMatch(/refused +Revision 1 of the fleet plan requires workflow second/);
	expect(
		JSON.parse(Buffer.from(JSON.parse(readFileSync(planFile, 'utf8')).payload, 'base64').toString()).revision,
	).toBe(1);
	expect(service.devices().filter(({ workflowId }) => workflowId === 'second').length).toBe(first.length - failed);
	expect(service.devices().filter(({ online }) => online).length).toBe(DEVICES);

	// The same script goes on where the ring is good enough.
	const onward = await run('sh', '-c', `FAIL_ABOVE=50% sh ${join(ROOT, 'docs/pipeline/rollout.sh')}`);
	expect(onward).toMatchObject({ status: 0, stdout: expect.stringMatching(/Revision 1 → 2:/) });
});
