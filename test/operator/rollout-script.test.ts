import { execFile } from 'node:child_process';
import { join, resolve } from 'node:path';
import { expect, test } from 'vitest';
import { rolloutPercentile } from '../../src/fleet/targeting.ts';
import { BIN } from '../cli/command.ts';
import { operatorOfFile, succeeded } from './operator.ts';

const operator = operatorOfFile();
const SCRIPT = resolve(import.meta.dirname, '../../docs/pipeline/rollout.sh');

test('rollout.sh leaves to the checks beside the plan what it is not told itself [F723]', {
	timeout: 60_000,
}, async () => {
	const [key, plan] = ['fleet.key', 'published.json'].map((name) => join(operator.directory, name)) as [string, string];
	succeeded(await operator.idv(['fleet', 'keygen', '--out', key, '--json']));
	const ids = Array.from({ length: 100 }, (_, n) => `K-${n}`);
	await operator.file('devices.csv', `deviceId,workflowId\n${ids.map((id) => `${id},old`).join('\n')}\n`);
	const checks = (maxMoves: string) =>
		operator.file(
			'fleet-checks.json',
			JSON.stringify({ inventory: 'devices.csv', maxMoves, workflows: ['old', 'new'] }),
		);
	await checks('100%');
	const rollout = { to: { workflowId: 'new' }, rings: [{ percent: 10 }] };
	const bare = { format: 'idv-fleet-plan/2', revision: 1, spreadSeconds: 0, defaults: { workflowId: 'old', rollout } };
	const file = await operator.file('bare.json', JSON.stringify(bare), 0o644);
	const sign = ['fleet', 'sign', file, '--key', key, '--out', plan, '--previous', 'none', '--allow-workflow', 'new'];
	expect(await operator.idv(sign)).toMatchObject({ status: 0 });
	const gathered = (those: readonly string[]) =>
		operator.file(
			'gathered.jsonl',
			those
				.map((deviceId) => {
					const live = rolloutPercentile(deviceId) < 10 ? 'new' : 'old';
					const plan = { followed: 1, refused: null };
					return JSON.stringify({ deviceId, state: 'online', workflow: { live, wanted: live }, plan });
				})
				.join('\n'),
		);
	const run = (more: Record<string, string> = {}) =>
		new Promise<{ status: number; said: string }>((done) => {
			const env = {
				...{ PATH: process.env['PATH'] ?? '', XDG_CONFIG_HOME: operator.directory, IDV: join(BIN, 'idv') },
				...{ PLAN: plan, KEY: key, SOURCES: `--from ${operator.directory}/gathered.jsonl`, GRACE_SECONDS: '0' },
			};
			execFile(
				'sh',
				[SCRIPT],
				{ env: { ...env, FAIL_ABOVE: '50%', MIN_REPORTED: '50%', ...more } },
				(error, out, err) => done({ status: error ? Number(error.code) : 0, said: out + err }),
			);
		});
	// A device of the inventory that is not heard of counts.
	await gathered(ids.slice(0, 5));
	expect((await run()).said).toMatch(/^Never seen +95/m);
	await gathered(ids);
	await checks('1%');
	expect(await run()).toMatchObject({ status: 65, said: expect.stringMatching(/and 1 % may move/) });
	// One of the eleven devices of the ring is away.
	const away = ids.find((id) => rolloutPercentile(id) < 10);
	await gathered(ids.filter((id) => id !== away));
	const limits = { MAX_MOVES: '100%', FAIL_ABOVE: '2%', MIN_REPORTED: '95%' };
	expect((await run(limits)).status).toBe(69);
	expect(await run({ ...limits, ALLOW_MISSING: '1' })).toMatchObject({
		status: 0,
		said: expect.stringMatching(/Revision 1 → 2:/),
	});
});
