import { readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { readPlan } from '../../src/fleet/verify-plan.runner.ts';
import { withChecks } from '../../src/operator/fleet-brakes.runner.ts';
import { operatorOfFile, succeeded } from './operator.ts';

const operator = operatorOfFile();

const ALLOWED = ['--allow-workflow', 'checkout', '--allow-empty-ring'];

async function given() {
	const key = join(operator.directory, 'fleet.key');
	const { publicKey } = succeeded(await operator.idv(['fleet', 'keygen', '--out', key, '--json']));
	const words = { name: 'lobby', match: { labels: ['lobby'] }, workflowId: 'checkin' };
	const plan = (more: object = {}, revision = 7) =>
		operator.file(
			'plan.json',
			JSON.stringify({ format: 'idv-fleet-plan/2', revision, fleet: 'north', rules: [{ ...words, ...more }] }, null, 2),
			0o644,
		);
	const rows = Array.from({ length: 200 }, (_, n) => `K-${n},${n % 2 ? 'lobby' : 'yard'},checkin`);
	const inventory = await operator.file('devices.csv', `deviceId,labels,workflowId\n${rows.join('\n')}\n`);
	const out = join(operator.directory, 'published.json');
	const sign = (file: string, ...flags: string[]) =>
		operator.idv(['fleet', 'sign', file, '--key', key, '--out', out, '--unchecked', ...ALLOWED, ...flags]);
	return { key, publicKey: publicKey as string, plan, inventory, out, sign };
}
const rollout = (...rings: object[]) => ({ rollout: { to: { workflowId: 'checkout' }, rings } });

test('check names every slip with its place, and sign writes nothing', async () => {
	const { plan, inventory, sign, out } = await given();
	const file = await plan({ match: { labels: ['loby'] }, workflowId: 'chekin' });
	const flags = ['--inventory', inventory, '--workflows', 'checkin,checkout'];
	const { status, stdout } = await operator.idv(['fleet', 'check', file, ...flags]);
	expect(status).toBe(65);
	expect(stdout).toMatch(
		/^Error: line 9, column 19: \/rules\/0\/match\/labels matches no device of the inventory: loby; did you mean lobby\?$/m,
	);
	expect(stdout).toMatch(
		/^Error: line \d+, column \d+: \/rules\/0\/workflowId is not a workflow .*\(chekin\); did you mean checkin\?$/m,
	);
	expect(await sign(file, ...flags)).toMatchObject({
		status: 65,
		stderr: expect.stringMatching(/chekin.*\n.*loby.*plan-invalid/s),
	});
	await expect(stat(out)).rejects.toThrow();
	expect((await sign(await plan(), ...flags)).status).toBe(0);
});

test('the checks beside a plan at an address are those of the directory in which the command runs', async () => {
	await operator.file('fleet-checks.json', '{ "inventory": "devices.csv", "maxMoves": "5%" }');
	const before = process.cwd();
	onTestFinished(() => process.chdir(before));
	process.chdir(operator.directory);
	const checks = await withChecks({}, 'https://fleet.example/plan.json');
	expect(checks).toEqual({ inventory: 'devices.csv', maxMoves: 0.05 });
});

test('moves beyond the limit are signed only with their number, which an inventory must show [F1844]', async () => {
	const { plan, inventory, sign } = await given();
	const file = await plan(rollout({ percent: 100 }));
	const flags = ['--inventory', inventory, '--max-moves', '10%'];
	expect(await sign(file, ...flags)).toMatchObject({
		status: 65,
		stderr: expect.stringMatching(/moves 100 of 200 devices \(50 %\), and 10 % may move; .*--allow-moves 100/),
	});
	expect((await sign(file, ...flags, '--allow-moves', '99')).status).toBe(65);
	expect((await sign(file, ...flags, '--allow-moves', '100')).status).toBe(0);
	const words = /require --inventory FILE/;
	for (const flag of [
		['--max-moves', '10%'],
		['--allow-moves', '100'],
	])
		await operator.expectRefused({ status: 64, code: 'usage', words }, ['fleet', 'check', file, ...flag]);
});

test('a revision is signed once', async () => {
	const { plan, sign, out } = await given();
	expect((await sign(await plan())).status).toBe(0);
	const other = await plan({ comment: undefined, workflowId: 'checkout' });
	expect(await sign(other, '--previous', out)).toMatchObject({
		status: 65,
		stderr: expect.stringMatching(/was published with other content: .* then give it revision 8/),
	});
	const { status, stderr } = await sign(await plan({ workflowId: 'checkout' }, 8), '--previous', out);
	expect({ status, stderr }).toEqual({
		status: 0,
		stderr: expect.stringMatching(/workflowId moves 100 % of its devices/),
	});
});

test('a plan that devices could not take is refused by check and sign alike, with another way to write it', async () => {
	const { plan, sign } = await given();
	const file = await plan({ match: { deviceIds: Array.from({ length: 30_000 }, (_, n) => `KIOSK-${n}`) } });
	const { status, stdout } = await operator.idv(['fleet', 'check', file]);
	expect({ status, words: /30000 listed values .* 25000 at most; give these devices a label/.test(stdout) }).toEqual({
		status: 65,
		words: true,
	});
	expect(await sign(file)).toMatchObject({ status: 65, stderr: expect.stringMatching(/30000 listed values/) });
});

test('next-ring shows first, then makes a signed plan of the same format; pause and rollback too', async () => {
	const { plan, inventory, sign, out, key, publicKey } = await given();
	await sign(await plan(rollout({ percent: 1 })));
	const step = (...args: string[]) => operator.idv(['fleet', ...args, '--inventory', inventory]);
	const shown = await step('next-ring', out);
	expect(shown.stdout).toMatch(/^Revision 7 → 8:$/m);
	expect(shown.stdout).toMatch(/^rule lobby +to checkout +1 % +→ +10 %$/m);
	expect(shown.stdout).toMatch(/^\d+ devices? of 200 would move\.$/m);
	expect(shown.stdout).toMatch(/^Nothing was written/m);
	// To be signed elsewhere, by another person.
	const unsigned = join(operator.directory, 'unsigned.json');
	expect((await step('next-ring', out, '--unchecked', '--out', unsigned)).status).toBe(0);
	expect((await stat(unsigned)).mode & 0o777).toBe(0o644);
	const write = ['--key', key, '--out', out];
	const read = async () => {
		const reading = readPlan(await readFile(out), out, [publicKey]);
		if (!reading.ok) throw new Error(reading.problems[0]?.message);
		return reading.read.plan;
	};
	expect((await step('next-ring', out, '--unchecked', ...write)).status).toBe(0);
	expect(await read()).toMatchObject({
		format: 'idv-fleet-plan/2',
		fleet: 'north',
		revision: 8,
		rules: [rollout({ percent: 1 }, { percent: 10 })],
	});
	const later = new Date(Date.now() + 3_600_000).toISOString();
	await step('next-ring', out, '--unchecked', '--start-at', later, ...write);
	expect(await read()).toMatchObject({
		revision: 9,
		rules: [{ rollout: { rings: [{}, {}, { percent: 50, startAt: later }] } }],
	});
	await step('pause', out, ...write);
	expect(await read()).toMatchObject({ revision: 10, rules: [rollout({ percent: 1 }, { percent: 10 })] });
	expect(succeeded(await step('pause', out, '--json'))).toMatchObject({ revision: 10, isFinished: true });
	await step('rollback', out, ...write);
	const back = await read();
	expect(back).toMatchObject({ revision: 11, rules: [{ workflowId: 'checkin' }] });
	expect(back.rules[0]?.rollout).toBeUndefined();
	expect((await step('rollback', out)).stdout).toMatch(/no rollout to take back/);
	const unwritten = join(operator.directory, 'unwritten.json');
	for (const name of ['next-ring', 'pause', 'rollback'])
		expect(await step(name, out, '--key', key, '--out', unwritten)).toMatchObject({
			status: 0,
			stdout: expect.stringMatching(/unwritten\.json was not written\.$/m),
		});
	await expect(stat(unwritten)).rejects.toThrow(/ENOENT/);
});

test('a time is one of the calendar with its zone, for each flag as for a plan [F1263]', async () => {
	const { plan, out, sign } = await given();
	const planWith = (startAt: string) => plan(rollout({ percent: 1 }, { percent: 5, startAt }));
	for (const time of [
		...['2027-02-30T00:00:00Z', '2027-02-29T12:00:00+01:00', '2027-03-28T02:30:00', '2027-03-28', '2027-03-28T02:30Z'],
		...[
			'2027-03-28T24:00:00Z',
			'2027-03-28T06:00:00+25:00',
			'2027-03-28T06:00:00+0100',
			'March 28, 2027',
			'1800000000',
		],
	]) {
		const words = /must be (?:written as|a time such as) 2026-11-21T06:00:00Z/;
		await sign(await planWith('2096-02-29T06:00:00.5+01:00'));
		for (const args of [
			['next-ring', out, '--start-at', time],
			['status', '--plan', out, '--published', time],
		])
			await operator.expectRefused({ status: 64, code: 'usage', words }, ['fleet', ...args]);
		expect(await operator.idv(['fleet', 'check', await planWith(time)])).toMatchObject({
			status: 65,
			stderr: expect.stringMatching(words),
		});
	}
	for (const time of ['2096-02-29T06:00:00.5+01:00', '2028-02-29T06:00:00Z']) {
		const { stdout } = await operator.idv(['fleet', 'next-ring', out, '--start-at', time]);
		expect(stdout).toMatch(/^Revision 7 → 8:$/m);
	}
});

test('the next ring is held by the brakes as well', async () => {
	const { plan, inventory, out, sign } = await given();
	await sign(await plan(rollout({ percent: 1 })));
	const held = await operator.idv([
		'fleet',
		'next-ring',
		out,
		'--rings',
		'100',
		'--inventory',
		inventory,
		'--max-moves',
		'10%',
	]);
	expect(held).toMatchObject({ status: 65, stderr: expect.stringMatching(/of 200 devices .*and 10 % may move/) });
	await operator.expectRefused({ status: 64, code: 'usage', words: /rising shares/ }, [
		'fleet',
		'next-ring',
		out,
		'--rings',
		'50,10',
	]);
	await operator.expectRefused({ status: 64, code: 'usage', words: /no rule of that name/ }, [
		'fleet',
		'pause',
		out,
		'--rule',
		'lobbby',
	]);
});

test('next-ring says which version how many devices would get, and the brakes hold it', async () => {
	const { plan, inventory } = await given();
	const agent = { version: '0.3.0' };
	const [begun, later] = [-3_600_000, 3_600_000].map((ms) => new Date(Date.now() + ms).toISOString());
	const rings = [
		{ percent: 1, startAt: begun, agent },
		{ percent: 100, startAt: later, agent },
	];
	const file = await plan({ match: { deviceIds: ['K-*'] }, rollout: { to: {}, rings } });
	const step = (...args: string[]) => operator.idv(['fleet', ...args, '--inventory', inventory]);
	const shown = await step('next-ring', file, '--allow-moves', '200');
	const [, count = ''] = /^(\d+) devices of 200 would move\.$/m.exec(shown.stdout) ?? [];
	expect(Number(count)).toBeGreaterThan(190);
	expect(shown.stdout).toMatch(/^rule lobby +to version 0\.3\.0 +1 % +→ +100 %$/m);
	const row = `^${count} +\\(not known\\) +→ +version 0\\.3\\.0 +rule lobby +ring of 100 % +when taken$`;
	expect(shown.stdout).toMatch(new RegExp(row, 'm'));
	const held = await step('next-ring', file, '--max-moves', '10%');
	expect(held).toMatchObject({ status: 65, stderr: expect.stringMatching(/devices .* and 10 % may move/) });
	const previewed = await step('preview', file, '--devices');
	expect(previewed.stdout).toMatch(/^Revision 7: 200 devices of 200 would move\.$/m);
	expect(previewed.stdout).toMatch(/^K-1 {2}\? → version 0\.3\.0 {2}\d{4}-/m);
	const { stdout } = await step('rollback', file);
	expect(stdout).toMatch(/^rule lobby +to version 0\.3\.0 +1 % +→ +no ring; 0\.3\.0 stays where it is installed$/m);
	expect(stdout).toMatch(/^0 devices of 200 would move\.$/m);
});

test('after the highest revision, the way out is a higher epoch', async () => {
	const { plan, out, sign } = await given();
	const highest = Number.MAX_SAFE_INTEGER;
	await sign(await plan(rollout({ percent: 1 }), highest));
	for (const step of ['next-ring', 'rollback'])
		await operator.expectRefused(
			{
				status: 65,
				code: 'plan-invalid',
				words: /no revision is higher\. Publish it first with epoch 1 and revision 1, /,
			},
			['fleet', step, out],
		);
	const other = await plan(rollout({ percent: 5 }), highest);
	const checked = await operator.idv(['fleet', 'check', other, '--previous', out]);
	expect(checked.stdout).toMatch(/was published with other content: .* then give it epoch 1 and revision 1\.$/m);
	const { stderr } = await operator.idv(['fleet', 'diff', out, other]);
	expect(stderr).toMatch(/will refuse revision 9007199254740991: give it epoch 1 and revision 1\.$/m);
});
