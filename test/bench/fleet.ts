/**
 * How long a fleet manager waits and what a device pays: reading an inventory of 100,000 devices and previewing a plan with
 * rules of every kind, and reading, verifying and choosing from a plan that is as large as plans may be.
 * `npm run suite -- bench:fleet [--devices 100000]`; `-- --memory` the memory of a device that reads a plan, beside that of parsing its
 * JSON; `-- --hostile` time and memory of what was made to cost them; `-- --looks 100000` what looks cost a web server (`fleet-looks.ts`). Asserts nothing.
 */
import { execFileSync } from 'node:child_process';
import { generateKeyPairSync, sign } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { checkPlan } from '../../src/fleet/lint.ts';
import { PLAN_PAYLOAD_TYPE, signedBytes } from '../../src/fleet/plan-format.ts';
import { previewPlan } from '../../src/fleet/preview.ts';
import { compilePlan, planFor } from '../../src/fleet/targeting.ts';
import { formatPublicKey, readPlan } from '../../src/fleet/verify-plan.runner.ts';
import { readInventory } from '../../src/operator/inventory.runner.ts';
import { hostileEnvelopes, hostilePlans } from './hostile-plans.ts';

const { values } = parseArgs({
	options: {
		devices: { type: 'string', default: '100000' },
		looks: { type: 'string' },
		memory: { type: 'boolean', default: false },
		hostile: { type: 'boolean', default: false },
		/** Within the bench: reads this file in this way, and prints the peak of its own memory. */
		read: { type: 'string' },
		as: { type: 'string' },
	},
});
if (values.read !== undefined) {
	readOnce(values.read, values.as ?? '');
	process.exit();
}
if (values.looks !== undefined) {
	await (await import('./fleet-looks.ts')).measureLooks(Number(values.looks));
	process.exit();
}
const devices = Number(values.devices);
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

/** The highest resident memory of this process so far, in MiB. */
function peakMiB(): number {
	return Number(/^VmHWM:\s+(\d+) kB$/m.exec(readFileSync('/proc/self/status', 'utf8'))?.[1]) / 1024;
}

function readOnce(file: string, how: string): void {
	const bytes = readFileSync(file);
	const [key = ''] = how.split(' ').slice(1);
	// A first plan of a few bytes: what is loaded and compiled is not the plan's.
	readPlan(Buffer.from('{"format":"idv-fleet-plan/1","revision":1}'), 'plan', []);
	const before = peakMiB();
	const cpu = process.cpuUsage();
	if (how === 'bare') readPlan(bytes, 'plan', []);
	else if (how.startsWith('plan')) readPlan(bytes, 'plan', [key], { isForPeople: true });
	else JSON.parse(Buffer.from(JSON.parse(bytes.toString()).payload, 'base64').toString());
	const { user, system } = process.cpuUsage(cpu);
	console.log((peakMiB() - before).toFixed(1), Math.round((user + system) / 1000));
}

function signed(bytes: Buffer) {
	const { privateKey } = generateKeyPairSync('ed25519');
	const sig = sign(null, signedBytes(bytes), privateKey).toString('base64');
	const envelope = { payloadType: PLAN_PAYLOAD_TYPE, payload: bytes.toString('base64'), signatures: [{ sig }] };
	return { packed: Buffer.from(JSON.stringify(envelope)), publicKey: formatPublicKey(privateKey) };
}

/** MiB more at the peak and milliseconds of CPU, in a process of its own. */
function readApart(file: string, how: string): number[] {
	const args = ['--no-warnings', import.meta.filename, '--read', file, '--as', how];
	return String(execFileSync(process.execPath, args)).trim().split(' ').map(Number);
}

if (values.hostile) {
	const rows: { what: string; mib: number; ms: number }[] = [];
	const add = async (what: string, bytes: Buffer, how: string) => {
		const file = join(directory, 'plan.json');
		await writeFile(file, bytes);
		const [mib = 0, ms = 0] = readApart(file, how);
		rows.push({ what, mib, ms });
	};
	const other = `plan ${signed(Buffer.from('{}')).publicKey}`;
	for (const format of [1, 2]) {
		for (const [name, text] of hostilePlans(format)) await add(`format ${format}: ${name}`, Buffer.from(text), 'bare');
		for (const [name, text] of hostilePlans(format, 1_500_000)) {
			const { packed, publicKey } = signed(Buffer.from(text));
			await add(`format ${format}, signed: ${name}`, packed, `plan ${publicKey}`);
		}
	}
	for (const [name, text] of hostilePlans(2)) await add(`unsigned, with a key: ${name}`, Buffer.from(text), other);
	for (const [name, text] of hostileEnvelopes()) await add(`with a key, ${name}`, Buffer.from(text), other);
	for (const { what, mib, ms } of rows.toSorted((a, b) => b.ms - a.ms))
		console.log(`${String(ms).padStart(5)} ms ${mib.toFixed(1).padStart(6)} MiB  ${what}`);
	await rm(directory, { recursive: true });
	process.exit();
}

if (values.memory) {
	for (const listed of [5000, 10_000, 25_000, 40_000]) {
		const { packed, publicKey } = signed(plan(listed));
		const file = join(directory, 'plan.json');
		await writeFile(file, packed);
		const run = (how: string) => readApart(file, how)[0] ?? 0;
		const five = (how: string) => Array.from({ length: 5 }, () => run(how)).toSorted((a, b) => a - b)[2];
		console.log(
			`${listed} ids, ${Math.round(packed.length / 1024)} KiB signed: ${five(`plan ${publicKey}`)} MiB more at the peak; parsing its JSON alone ${five('parse')} MiB (medians of 5)`,
		);
	}
	await rm(directory, { recursive: true });
	process.exit();
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
	const { packed, publicKey } = signed(bytes);
	const isTooLarge = packed.length > 2 * 1024 * 1024;
	const reading = await measure('  a device reads and checks it', () => readPlan(bytes, 'plan', []));
	if (!isTooLarge)
		await measure('  a device verifies, reads and checks it signed', () => readPlan(packed, 'plan', [publicKey]));
	if (!reading.ok) throw new Error(reading.problems[0]?.message);
	const compiled = await measure('  a device chooses its part', () => {
		const ready = compilePlan(reading.read.plan);
		planFor(
			ready,
			{
				deviceId: 'KIOSK-999999',
				serial: null,
				macAddress: null,
				deviceType: 'kiosk',
				labels: ['site-39'],
			},
			Date.now(),
		);
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
