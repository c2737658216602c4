import { readFile, writeFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { expect, test } from 'vitest';
import { finish } from '../cli/command.ts';
import { givenPlanServer } from '../fixtures/plans.ts';
import { givenHome, givenPairedAgent } from '../harness/harness.ts';
import { givenService } from '../service/fixture.ts';

const PAGE = resolve(import.meta.dirname, '../../docs/plan-keys.md');
const FIRST_LOOK_MS = 5000;

/** The commands of each section, by its heading. */
async function readCommands(): Promise<Map<string, string[][]>> {
	const sections = (await readFile(PAGE, 'utf8')).split(/^## /m).slice(1);
	return new Map(
		sections.map((section) => {
			const lines = section.split('\n');
			const commands = lines.filter((line) => line.startsWith('$ ')).map((line) => line.slice(2).split(' '));
			return [lines[0] ?? '', commands];
		}),
	);
}

test('every command of docs/plan-keys.md does what the page says, on a device that runs', {
	timeout: 120_000,
}, async () => {
	const commands = await readCommands();
	const { directory, ...home } = await givenHome();
	const file = (name: string) => join(directory, name);
	const service = await givenService();
	const server = await givenPlanServer('nothing yet');

	/** Runs a command of the page with its files in this test's directory; publishes what it signs. */
	async function run([program = '', ...args]: readonly string[]): Promise<string> {
		const inDirectory = args.map((arg) => (/\.(key|json)$/.test(arg) ? file(arg) : arg));
		const env = { IDV_AGENT_RUN_DIR: home.paths.runDir, IDV_AGENT_STATE_DIR: home.paths.stateDir };
		const { status, stdout, stderr } = await finish(program as 'idv' | 'idv-agent', inDirectory, env);
		// A ring of all devices is worth a warning to its signer.
		const complaints = stderr.split('\n').filter((line) => line !== '' && !line.startsWith('Warning: '));
		expect([args.join(' '), status, complaints]).toEqual([args.join(' '), 0, []]);
		if (args.includes('published.json')) server.publish(await readFile(file('published.json'), 'utf8'));
		return stdout;
	}
	const take = (heading: string) => (commands.get(heading) ?? expect.fail(heading))[Symbol.iterator]();
	const next = (left: Iterator<string[]>) => run(left.next().value ?? expect.fail('a command is missing'));
	const keyIn = (output: string) => /ed25519:\S+/.exec(output)?.[0] ?? expect.fail(output);
	const plan = (revision: number, workflowId: string, more = {}) =>
		writeFile(
			file('plan.json'),
			JSON.stringify({ format: 'idv-fleet-plan/2', revision, spreadSeconds: 0, defaults: { workflowId }, ...more }),
		);

	const old = keyIn(await run(['idv', 'fleet', 'keygen', '--out', 'old.key']));
	const settings = (...publicKeys: string[]) => ({ fleet: { planUrl: server.url, publicKeys } });
	const device = await givenPairedAgent(service, { home: { directory, ...home }, settings: settings(old) });
	/** Gives the device these keys, or none new, and has it look at the plan. */
	async function look(...publicKeys: string[]): Promise<void> {
		const { length } = server.answers;
		if (publicKeys.length > 0) await device.home.writeSettings(settings(...publicKeys));
		if (publicKeys.length > 0) await device.daemon.reload();
		else device.agent.reconnect();
		// The settings are also watched: noticed during the look, the change begins it again.
		const answers = () => {
			device.clock.advance(FIRST_LOOK_MS / 10);
			return server.answers.length;
		};
		await expect.poll(answers, { timeout: 30_000 }).toBeGreaterThan(length);
	}
	const warned = (code: string) =>
		device.untilStatus(({ warnings }) => warnings.some((warning) => warning.code === code), code);

	await plan(7, 'rotated');
	const rotation = take('Rotation');
	const fresh = keyIn(await next(rotation));
	await next(rotation);
	await next(rotation);
	expect(await next(rotation)).toMatch(/Nothing is wrong with it/);
	await look(old, fresh);
	await device.untilLive('rotated');
	const shown = await next(rotation);
	expect(shown).toContain(old);
	expect(shown).toMatch(new RegExp(`Refused +what is older than revision 7 \\(${fresh.replaceAll(/[+/]/g, '.')}\\)`));
	await look(fresh);
	expect(device.agent.status()).toMatchObject({ workflow: { live: 'rotated' }, warnings: [] });

	// The thief signs the highest revision, with a ring that is to come.
	const theirs = { to: { workflowId: 'theirs' }, rings: [{ percent: 100, startAt: '2099-01-01T00:00:00Z' }] };
	await plan(Number.MAX_SAFE_INTEGER, 'rotated', { defaults: { workflowId: 'rotated', rollout: theirs } });
	await run(['idv', 'fleet', 'sign', 'plan.json', '--unchecked', '--key', 'new.key', '--out', 'published.json']);
	await look();
	await device.untilStatus(({ plan }) => plan?.next?.workflowId === 'theirs');
	const theft = take('A stolen key');
	const afterTheft = keyIn(await next(theft));
	await look(afterTheft);
	const left = await warned('plan-unattested');
	expect(left).toMatchObject({ workflow: { live: 'rotated' }, plan: { next: null } });
	await plan(1, 'after-theft');
	await next(theft);
	await look();
	expect(await device.untilLive('after-theft')).toMatchObject({ warnings: [] });
	const audit = await next(theft);
	expect(audit).toMatch(/plan {2}planReceived {2}ok {2}epoch=0 {2}revision=9007199254740991 {2}keys=ed25519:/);
	// Once for each change, however often the plan was looked at since.
	expect(audit.match(/settings {2}planKeysChanged {2}ok/g)).toHaveLength(2);

	const loss = take('A lost key');
	const afterLoss = keyIn(await next(loss));
	await plan(1, 'after-loss');
	await next(loss);
	await look(afterLoss);
	expect(await device.untilLive('after-loss')).toMatchObject({ warnings: [] });

	await plan(Number.MAX_SAFE_INTEGER, 'slipped');
	const sign = [
		'idv',
		'fleet',
		'sign',
		'plan.json',
		'--unchecked',
		'--key',
		'after-loss.key',
		'--out',
		'published.json',
	];
	await run(sign);
	await look();
	await device.untilLive('slipped');
	await plan(2, 'recovered');
	await run(sign);
	await look();
	await warned('plan-outdated');
	const { length } = server.answers;
	expect(await next(take('A slip of the revision'))).toMatch(/Forgotten which plans this device has seen\./);
	device.clock.advance(0);
	await server.untilAnswered(length + 1);
	expect(await device.untilLive('recovered')).toMatchObject({ plan: { revision: 2 }, warnings: [] });
	expect([rotation, theft, loss].map((iterator) => iterator.next().done)).toEqual([true, true, true]);
});
