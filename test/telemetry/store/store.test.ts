import { execFile, spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import fc from 'fast-check';
import { describe, expect, onTestFinished, test } from 'vitest';
import { formatMetrics } from '../../../src/status/metrics.ts';
import { givenPairedAgent } from '../../harness/harness.ts';
import { givenService } from '../../service/fixture.ts';
import { feed } from './simulated-devices.ts';
import { givenStore } from './victoria-metrics.ts';

const ROOT = resolve(import.meta.dirname, '../../..');
const MONITORING = join(ROOT, 'docs/monitoring');
const promtool = (args: string[], input?: string) => {
	const { status, stdout, stderr } = spawnSync('promtool', args, { cwd: MONITORING, input, encoding: 'utf8' });
	return { status, said: `${stdout}${stderr}` };
};

interface Dashboard {
	readonly panels: readonly { readonly title: string; readonly targets: readonly { readonly expr: string }[] }[];
}

test('every query of the dashboard returns data of simulated devices, and fleet status reads the same store', async () => {
	const store = await givenStore();
	const last = await feed(store.otlpUrl, { devices: 40, minutes: 120, endMs: Date.now() });
	await store.flush();
	const { panels } = JSON.parse(readFileSync(join(MONITORING, 'dashboard.json'), 'utf8')) as Dashboard;
	expect(panels.length).toBeGreaterThan(15);
	for (const { title, targets } of panels)
		for (const { expr } of targets) {
			// What goes wrong in the middle of the story is over at its end.
			const found = await Promise.all([0, 60].map((minutes) => store.query(expr, Date.now() - minutes * 60_000)));
			expect([title, Math.max(...found.map((rows) => rows.length)) > 0]).toEqual([title, true]);
		}
	const online = await store.query('sum(max by (device) (idv_agent_online))');
	expect(online[0]?.value).toBe(40);

	const directory = await mkdtemp(join(tmpdir(), 'store-'));
	onTestFinished(() => rm(directory, { recursive: true, force: true }));
	const plan = join(directory, 'plan.json');
	const words = { name: 'lobby', match: { labels: ['lobby'] }, workflowId: 'face-check' };
	await writeFile(
		plan,
		JSON.stringify({
			format: 'idv-fleet-plan/1',
			revision: 8,
			defaults: { workflowId: 'document-check' },
			rules: [words],
		}),
	);
	const { status, stdout } = await new Promise<{ status: number; stdout: string }>((done) => {
		const args = ['fleet', 'status', '--plan', plan, '--prometheus', store.url, '--json', '--devices'];
		execFile(join(ROOT, 'bin/idv'), args, (error, out) => done({ status: error ? 1 : 0, stdout: out }));
	});
	expect(status).toBe(0);
	const shown = JSON.parse(stdout);
	const of = (id: string) => shown.reports.find(({ deviceId }: { deviceId: string }) => deviceId === id);
	expect(shown.devices).toBe(40);
	for (const { deviceId, labels, workflow, plan: said } of last) {
		const target = labels?.includes('lobby') ? 'face-check' : 'document-check';
		const standing = said?.refused ? 'refused' : workflow.live === target ? 'atTarget' : 'overdue';
		expect(of(deviceId ?? '')).toMatchObject({ target, standing, workflowId: workflow.live });
	}
	const reason = 'the service does not know the workflow';
	expect(shown.reasons).toContainEqual(expect.objectContaining({ standing: 'refused', reason }));
	expect(Object.keys(shown.versions).sort()).toEqual(['0.1.0', '0.2.0']);
});

test('a real agent delivers to a real store, and the history of an outage of both is whole', async () => {
	const [store, service] = [await givenStore(), await givenService()];
	const sets = [`telemetry.otlpUrl=${store.otlpUrl}`, 'telemetry.intervalSeconds=60', 'fleet.labels=lobby'];
	const { clock, passWait, untilTimers, untilStatus, untilLive } = await givenPairedAgent(service, { sets });
	const idle = clock.pending;
	const push = async () => {
		clock.advance(66_000);
		await untilTimers(idle);
	};
	await push();
	await store.stop();
	const beganMs = clock.wallMs();
	service.closeChannels(1011);
	await untilStatus(({ state }) => state !== 'online', 'offline');
	await passWait();
	await untilLive('check-in');
	const againMs = clock.wallMs();
	await push();
	await store.start();
	await push();
	await store.flush();
	const history = await store.samples('idv_agent_online{device="KIOSK-0001",labels="lobby"}');
	expect(history).toContainEqual([beganMs, 0]);
	expect(history).toContainEqual([againMs, 1]);
	expect(history[0]?.[1]).toBe(1);
	expect(history.at(-1)?.[1]).toBe(1);
});

describe('/metrics', () => {
	test('of a running agent is clean for promtool check metrics, and has the names that are pushed', async () => {
		const service = await givenService();
		const sets = ['fleet.labels=lobby', 'local.metricsPort=0'];
		const { daemon } = await givenPairedAgent(service, { sets });
		const response = await fetch(new URL('/metrics', daemon.addresses.metrics ?? ''));
		const text = await response.text();
		expect(promtool(['check', 'metrics'], text)).toEqual({ status: 0, said: '' });
		expect(text).toMatch(/^idv_agent_online\{device="KIOSK-0001",labels="lobby"\} 1$/m);
		expect(text).toMatch(/^idv_agent_info\{device="KIOSK-0001",labels="lobby",version="0.0.0-test"\} 1$/m);
	});

	test('is read back as it was meant, whatever stands in a label', () => {
		const nasty = fc.string({
			unit: fc.constantFrom('"', '\\', '\n', 'n', 'a', '{', '}', ',', '=', 'ü'),
			minLength: 1,
			maxLength: 12,
		});
		fc.assert(
			fc.property(nasty, (value) => {
				const text = formatMetrics([
					{ name: 'idv_agent_x', type: 'gauge', help: `a ${value}`, samples: [{ labels: { a: value }, value: 1 }] },
				]);
				const { status, said } = promtool(['check', 'metrics'], text);
				expect([text, status, said]).toEqual([text, 0, expect.not.stringMatching(/error/)]);
			}),
			{ numRuns: 15 },
		);
	});
});

test('alert rules fire and stay silent as their tests say', () => {
	expect(promtool(['check', 'rules', 'alerts.yml'])).toMatchObject({ status: 0 });
	for (const cases of ['alerts.test.yml', 'alerts.weeks.test.yml'])
		expect(promtool(['test', 'rules', cases])).toMatchObject({ status: 0 });
});
