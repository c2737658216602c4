import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { mkdir, writeFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { expect, test } from 'vitest';
import { compilePlan, planFor } from '../../src/fleet/targeting.ts';
import { readPlan } from '../../src/fleet/verify-plan.runner.ts';
import { BIN } from '../cli/command.ts';
import { operatorOfFile } from './operator.ts';

const operator = operatorOfFile();
const ROOT = resolve(import.meta.dirname, '../..');

/** 1,000 devices: some in the north, some in lobbies. */
const DEVICES = Array.from({ length: 1000 }, (_, n) => ({
	deviceId: n % 15 === 0 ? `N-${n}` : `K-${n}`,
	labels: n % 3 === 1 ? ['lobby'] : ['yard'],
}));

/** Times of day and places differ from run to run. */
const plain = (text: string) =>
	text
		.replaceAll(/(?:\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d/g, 'TIME')
		.replaceAll(/ +$/gm, '')
		.replaceAll(`${operator.directory}/`, '');

test('the day of a fleet manager goes as docs/fleet.md says, command by command', { timeout: 60_000 }, async () => {
	const page = readFileSync(join(ROOT, 'docs/fleet.md'), 'utf8');
	const [, plan = ''] = /```json\n([\s\S]*?)```/.exec(page) ?? [];
	const { directory } = operator;
	await writeFile(join(directory, 'plan.json'), plan);
	const rows = DEVICES.map(({ deviceId, labels }) => `${deviceId},${labels.join(';')},document-check`);
	await writeFile(join(directory, 'devices.csv'), `deviceId,labels,workflowId\n${rows.join('\n')}\n`);
	const reading = readPlan(Buffer.from(plan), 'plan', []);
	if (!reading.ok) throw new Error(reading.problems[0]?.message);
	const compiled = compilePlan(reading.read.plan);
	const now = new Date().toISOString();
	// Of the devices that move, two cannot; one has gone, and one was never switched on.
	const lines = DEVICES.slice(0, -1).map(({ deviceId, labels }, n) => {
		const device = { deviceId, labels, serial: null, macAddress: null, deviceType: null };
		const target = planFor(compiled, device, Date.now()).workflowId;
		const isRefused = target === 'face-check' && (n === 10 || n % 40 === 1);
		const refused = { revision: 7, message: 'The service does not know workflow face-check (404).' };
		return JSON.stringify({
			...{ schemaVersion: 1, deviceId, labels, agentVersion: '0.2.0', state: n === 500 ? 'offline' : 'online' },
			workflow: { wanted: target, live: n === 500 ? null : isRefused ? 'document-check' : target, source: 'plan' },
			channel: { since: now, lastHeartbeatAt: now },
			plan: { revision: 7, followed: isRefused ? 6 : 7, refused: isRefused ? refused : null },
			problem: n === 500 ? { code: 'dns-failed', message: 'id.example.com was not found.' } : null,
		});
	});
	await mkdir(join(directory, 'gathered'));
	await writeFile(join(directory, 'gathered', 'this-morning.jsonl'), lines.join('\n'));
	const run = (command: string) =>
		new Promise<string>((done) => {
			const env = { ...process.env, TZ: 'UTC', PATH: `${BIN}:${process.env['PATH']}` };
			execFile('sh', ['-c', command], { cwd: directory, env }, (_, stdout, stderr) => done(`${stdout}${stderr}`));
		});
	const blocks = [...page.matchAll(/```console\n([\s\S]*?)```/g)].map(([, text = '']) => text);
	const steps = blocks.join('').split(/^\$ /m).filter(Boolean);
	expect(steps.length).toBe(11);
	for (const step of steps) {
		const [command = '', ...expected] = step.split('\n');
		const said = plain(await run(command));
		// keygen and sign show a key that is new each time.
		if (expected.join('').trim() !== '')
			expect(`$ ${command}\n${said.trim()}`).toBe(`$ ${command}\n${plain(expected.join('\n')).trim()}`);
	}
});
