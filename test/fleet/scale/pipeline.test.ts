/** The rollout that stops: docs/pipeline/rollout.sh against real agents, of which some cannot follow the plan. */
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { rolloutPercentile } from '../../../src/fleet/targeting.ts';
import { formatAuthorization } from '../../../src/protocol/authorization.ts';
import { deviceListSchema } from '../../../src/protocol/device-list.ts';
import { openSimulatedRuntime } from '../../../src/simulation/runtime.runner.ts';
import { startSimulation } from '../../../src/simulation/simulation.runner.ts';
import { BIN, follow } from '../../cli/command.ts';
import { givenPlanServer } from '../../fixtures/plans.ts';

const DEVICES = Number(process.env['PIPELINE_DEVICES'] ?? 10_000);
const ROOT = resolve(import.meta.dirname, '../../..');
/** The share of devices for which the service does not know the new workflow. */
const BAD_SHARE = 0.05;
/** Ten thousand devices in one process have 200 heartbeats and 100 polls a second. */
const CADENCE_SECONDS = Math.max(15, DEVICES / 200);
/** A device that follows well must have time for it on a busy machine. */
const LIMIT_SECONDS = Math.max(10, DEVICES / 200);
const POLL_SECONDS = Math.max(30, DEVICES / 100);
const TIMEOUT_MS = 180_000 + DEVICES * 45;

interface Outcome {
	readonly status: number;
	readonly stdout: string;
	readonly stderr: string;
}

async function givenService() {
	const args = ['service', '--port', '0', '--json', '--quiet', '--self-registration', '--workflows', 'first,second'];
	const running = follow('idv-agent', args, {});
	const { url, credentials } = JSON.parse(await running.untilLine(/"listening"/));
	const authorization = formatAuthorization({ scheme: 'Basic', ...credentials.basic });
	return {
		url: url as string,
		authorization,
		async devices() {
			const answer = await fetch(`${url}/api/device`, { headers: { authorization } });
			return deviceListSchema.parse(await answer.json()).devices;
		},
	};
}

test(
	`a plan that fails on 5 % of ${DEVICES} devices ends at its first ring, and no device goes offline`,
	async () => {
		const directory = await mkdtemp(join(tmpdir(), 'pipeline-'));
		onTestFinished(() => rm(directory, { recursive: true, force: true }));
		// In a process of its own: one process may not open as many files as the devices have ends of channels.
		const service = await givenService();
		const server = await givenPlanServer('');
		const runtime = await openSimulatedRuntime({
			version: '0.0.0-test',
			env: {},
			sets: [
				`baseUrl=${service.url}`,
				'credential.selfRegistration=true',
				`fleet.planUrl=${server.url}`,
				`fleet.intervalSeconds=${POLL_SECONDS}`,
				`fleet.changeLimitSeconds=${LIMIT_SECONDS}`,
				'service.heartbeatFields=agentVersion,planReason,planRing',
				`heartbeatCadence=${CADENCE_SECONDS}`,
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
		const [planFile, key, inventory] = ['plan.json', 'fleet.key', 'devices.csv'].map((name) =>
			join(directory, name),
		) as [string, string, string];
		await writeFile(inventory, `deviceId\n${ids.join('\n')}\n`);
		const env = {
			...{ PATH: process.env['PATH'] ?? '', PLAN: planFile, KEY: key, INVENTORY: inventory, IDV: join(BIN, 'idv') },
			...{ IDV_URL: service.url, IDV_AUTHORIZATION: service.authorization, XDG_CONFIG_HOME: directory },
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
			'--previous',
			'none',
			'--workflows',
			'first,second',
			'--allow-workflow',
			'first',
			'--allow-workflow',
			'second',
			'--out',
			planFile,
		);
		server.publish(readFileSync(planFile, 'utf8'));

		const simulation = startSimulation({
			devices: DEVICES,
			runtime: { ...runtime, client: { ...client, registerDevice } },
			rampMs: DEVICES * 20,
			workflowId: 'first',
			version: '0.2.0',
		});
		onTestFinished(async () => {
			await simulation.stop();
			await runtime.close();
		});
		const allOnline = new Promise<void>((done) => {
			simulation.onChange(() => simulation.figures().phases.online === DEVICES && done());
		});
		const isFirst = new Set(first);
		const firstRing = async () => (await service.devices()).filter(({ deviceId }) => isFirst.has(deviceId));
		await allOnline;
		const { losses } = simulation.figures();
		const early = await run('sh', join(ROOT, 'docs/pipeline/rollout.sh'));
		expect(early.status).not.toBe(0);
		const asPlanned = async () =>
			(await firstRing()).filter(({ deviceId, planRefused, planRevision, workflowId }) =>
				bad.has(deviceId) ? planRefused === 1 : planRevision === 1 && workflowId === 'second',
			).length;
		await expect.poll(asPlanned, { timeout: TIMEOUT_MS, interval: 1000 }).toBe(first.length);
		// As if the plan had been published long ago.
		const recordFile = planFile.replace('.json', '.record.json');
		const record = JSON.parse(readFileSync(recordFile, 'utf8'));
		await writeFile(
			recordFile,
			JSON.stringify({ ...record, signed: [{ ...record.signed[0], at: '2020-01-01T00:00:00Z' }] }),
		);
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
		const listed = await service.devices();
		expect(listed.filter(({ workflowId }) => workflowId === 'second').length).toBe(first.length - failed);
		expect(listed.filter(({ online }) => online).length).toBe(DEVICES);
		expect(simulation.figures().losses).toBe(losses);

		// The same script goes on where the ring is good enough.
		const onward = await run('sh', '-c', `FAIL_ABOVE=50% sh ${join(ROOT, 'docs/pipeline/rollout.sh')}`);
		expect(onward).toMatchObject({ status: 0, stdout: expect.stringMatching(/Revision 1 → 2:/) });
	},
	TIMEOUT_MS,
);
