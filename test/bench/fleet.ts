/**
 * How long a fleet manager waits and what a device pays: reading an inventory of 100,000 devices and previewing a plan with
 * rules of every kind, and reading, verifying and choosing from a plan that is as large as plans may be.
 * `node test/bench/fleet.ts [devices]`. Asserts nothing.
 */
import { generateKeyPairSync, sign } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { checkPlan } from '../../src/fleet/lint.ts';
import { PLAN_PAYLOAD_TYPE, signedBytes } from '../../src/fleet/plan-format.ts';
import { previewPlan } from '../../src/fleet/preview.ts';
import { compilePlan, planFor } from '../../src/fleet/targeting.ts';
import { formatPublicKey, readPlan } from '../../src/fleet/verify-plan.runner.ts';
import { readInventory } from '../../src/operator/inventory.ts';

const devices = Number(process.argv[2] ?? 100_000);
const directory = await mkdtemp(join(tmpdir(), 'fleet-bench-'));

function plan(listed: number): Buffer {
	const rings = [1, 10, 50, 100].map((percent, day) => ({ percent, startAt: `2027-01-0${day + 1}T04:00:00Z` }));
	const rollout = { to: { workflowId: 'face-check' }, rings };
	const sites = Array.from({ length: 40 }, (_, site) => ({
		name: `site ${site}`,
		match: { labels: [`site-${site}`], deviceTypes: ['kiosk'] },
		workflowId: `workflow-${site % 5}`,
		rollout,
	}));
	const ids = Array.from({ length: listed }, (_, index) => `KIOSK-${String(index * 7).padStart(6, '0')}`);
	const own = { name: 'own', match: { deviceIds: ids }, workflowId: 'own' };
	const beginnings = { name: 'lab', match: { deviceIds: ['KIOSK-00*', 'LAB-*'] }, workflowId: 'lab' };
	const rules = [...(listed > 0 ? [own] : []), beginnings, ...sites];
	return Buffer.from(
		JSON.stringify({ format: 'idv-fleet-plan/1', revision: 1, defaults: { workflowId: 'document-check' }, rules }),
	);
}

async function measure<Result>(what: string, work: () => Result | Promise<Result>): Promise<Result> {
	const startedAt = performance.now();
	const result = await work();
	console.log(
		`${what.padEnd(62)} ${Math.round(performance.now() - startedAt)
			.toLocaleString('en')
			.padStart(8)} ms`,
	);
	return result;
}

const lines = Array.from({ length: devices }, (_, index) => {
	const id = `KIOSK-${String(index).padStart(6, '0')}`;
	return `${id},SN${index},,kiosk,site-${index % 60};lobby,document-check`;
});
const csv = join(directory, 'devices.csv');
await writeFile(csv, `deviceId,serial,macAddress,deviceType,labels,workflowId\n${lines.join('\n')}\n`);

for (const listed of [0, 10_000, 55_000]) {
	const bytes = plan(listed);
	console.log(
		`Plan of ${Math.round(bytes.length / 1024).toLocaleString('en')} KiB, ${listed.toLocaleString('en')} ids listed`,
	);
	const { privateKey } = generateKeyPairSync('ed25519');
	const sig = sign(null, signedBytes(bytes), privateKey).toString('base64');
	const envelope = { payloadType: PLAN_PAYLOAD_TYPE, payload: bytes.toString('base64'), signatures: [{ sig }] };
	const packed = Buffer.from(JSON.stringify(envelope));
	const isTooLarge = packed.length > 2 * 1024 * 1024;
	const reading = await measure('  a device reads and checks it', () => readPlan(bytes, 'plan', []));
	if (!isTooLarge)
		await measure('  a device verifies, reads and checks it signed', () =>
			readPlan(packed, 'plan', [formatPublicKey(privateKey)]),
		);
	if (!reading.ok) throw new Error(reading.problems[0]?.message);
	const compiled = await measure('  a device chooses its part', () => {
		const ready = compilePlan(reading.read.plan);
		planFor(ready, {
			deviceId: 'KIOSK-999999',
			serial: null,
			macAddress: null,
			deviceType: 'kiosk',
			labels: ['site-39'],
		});
		return ready;
	});
	await measure('  idv fleet check: rules that never count, overlaps', () => checkPlan(reading.read.plan));
	const inventory = await measure(
		`  idv fleet preview: inventory of ${devices.toLocaleString('en')} devices (CSV)`,
		() => readInventory(csv),
	);
	const preview = await measure('  idv fleet preview: who moves from what to what', () =>
		previewPlan(compiled, inventory, Date.UTC(2026, 11, 1)),
	);
	console.log(`  ${preview.moves.toLocaleString('en')} would move, in ${preview.groups.length} groups`);
}
await rm(directory, { recursive: true });
