/** With whose eyes the doctor looks: beside a unit with those of the unit, by real processes and a `systemctl` of our own. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import fs from 'node:fs';
import { chmod, chown, mkdir, writeFile } from 'node:fs/promises';
import { syncBuiltinESMExports } from 'node:module';
import { join } from 'node:path';
import { beforeEach, describe, expect, onTestFinished, test, vi } from 'vitest';
import { becomeServiceUser, findInspectionTarget } from '../../src/diagnosis/inspection-target.runner.ts';
import { givenHome } from '../harness/harness.ts';

const NOBODY = 65_534;
let directory: string;

beforeEach(async () => {
	({ directory } = await givenHome());
});

/** A machine that systemd runs, with a unit as `systemctl show` says. */
async function givenUnit(properties: Readonly<Record<string, string | number>>): Promise<void> {
	const program = join(directory, 'systemctl');
	const shown = Object.entries(properties).map(([name, value]) => `${name}=${value}`);
	await writeFile(join(directory, 'shown'), shown.join('\n'));
	await writeFile(program, `#!/bin/sh\n[ "$1 $2" = "show idv-agent.service" ] && cat '${directory}/shown'\n`);
	await chmod(program, 0o755);
	vi.stubEnv('PATH', `${directory}:${process.env['PATH']}`);
	claim(true);
}

function claim(isRunBySystemd: boolean): void {
	const { existsSync } = fs;
	vi.spyOn(fs, 'existsSync').mockImplementation((path) =>
		path === '/run/systemd/system' ? isRunBySystemd : existsSync(path),
	);
	syncBuiltinESMExports();
	onTestFinished(() => {
		vi.restoreAllMocks();
		vi.unstubAllEnvs();
		syncBuiltinESMExports();
	});
}

/** A daemon as systemd started it; ends with the test. */
async function givenDaemon(args: readonly string[], env: Readonly<Record<string, string>>): Promise<number> {
	const program = join(directory, 'daemon.cjs');
	await writeFile(program, 'process.stdout.write("."); process.stdin.resume()');
	const child = spawn(process.execPath, [program, 'run', ...args], { env, stdio: 'pipe' });
	onTestFinished(async () => {
		child.stdin.end();
		await once(child, 'close');
	});
	await once(child.stdout, 'data');
	return child.pid ?? 0;
}

const asRoot = (uid = 0) => vi.spyOn(process, 'getuid').mockReturnValue(uid);

describe('beside a unit', () => {
	test('that runs it has the arguments, the variables and the credentials of the daemon, and the flags on top', async () => {
		const env = { IDV_AGENT_DEVICE_ID: 'K-1', STATE_DIRECTORY: join(directory, 'var') };
		const mainPid = await givenDaemon(['--config', '/srv/a.json', '--set', 'log.level=debug'], env);
		await givenUnit({ LoadState: 'loaded', MainPID: mainPid, User: 'nobody', Environment: 'X=unused' });
		asRoot();
		const found = await findInspectionTarget({ set: ['a=b'] }, { HOME: '/root' });
		expect(found).toMatchObject({
			isOfUnit: true,
			mainPid,
			env,
			sets: ['log.level=debug', 'a=b'],
			serviceUser: { name: 'nobody', uid: NOBODY },
			unit: { LoadState: 'loaded', User: 'nobody' },
			paths: {
				configFile: '/srv/a.json',
				configFileIsExplicit: true,
				stateDir: join(directory, 'var'),
				runDir: '/run/idv-agent',
				credentialsDirectory: '/run/credentials/idv-agent.service',
			},
		});
		expect(found.env).not.toHaveProperty('X');
	});

	test.runIf(process.getuid?.() === 0)(
		'that does not run it has the variables of the unit, and the owner of the state (needs root)',
		async () => {
			const stateDir = join(directory, 'var');
			await mkdir(stateDir);
			await chown(stateDir, NOBODY, NOBODY);
			const Environment = `IDV_AGENT_STATE_DIR=${stateDir} "IDV_AGENT_DEVICE_TYPE=a b" CREDENTIALS_DIRECTORY=/c`;
			await givenUnit({ LoadState: 'loaded', MainPID: 0, User: '', Environment });
			asRoot();
			expect(await findInspectionTarget({}, {})).toMatchObject({
				isOfUnit: true,
				mainPid: null,
				env: { IDV_AGENT_DEVICE_TYPE: 'a b' },
				sets: [],
				serviceUser: { name: 'nobody', uid: NOBODY },
				paths: { stateDir, configFileIsExplicit: false, credentialsDirectory: '/c' },
			});
		},
	);

	test.each<[what: string, setUp: () => void, flags: object, own: Record<string, string>]>([
		['a flag names other settings', () => asRoot(), { config: '/srv/b.json' }, {}],
		['a flag names another state', () => asRoot(), { stateDir: '/srv/b' }, {}],
		['a flag names other sockets', () => asRoot(), { runDir: '/srv/b' }, {}],
		['a variable names other settings', () => asRoot(), {}, { IDV_AGENT_CONFIG: '/srv/b.json' }],
		['a variable names another state', () => asRoot(), {}, { IDV_AGENT_STATE_DIR: '/srv/b' }],
		['a variable names other sockets', () => asRoot(), {}, { IDV_AGENT_RUN_DIR: '/srv/b' }],
		['somebody else than root asks', () => asRoot(1000), {}, {}],
	])('it is the command line that counts when %s', async (_what, setUp, flags, own) => {
		await givenUnit({ LoadState: 'loaded', MainPID: 4711, User: 'nobody', Environment: 'X=unused' });
		setUp();
		const found = await findInspectionTarget({ ...flags, set: ['a=b'] }, own);
		expect(found).toMatchObject({ isOfUnit: false, mainPid: 4711, env: own, sets: ['a=b'], serviceUser: null });
		expect(found.unit).toMatchObject({ User: 'nobody' });
		expect(Object.values(found.paths).join()).toContain(Object.values({ ...flags, ...own })[0] ?? '/etc/idv-agent');
	});

	test('that is not there, or where systemd does not run the machine, it is the command line, too', async () => {
		await givenUnit({ LoadState: 'not-found', MainPID: 0 });
		asRoot();
		expect(await findInspectionTarget({}, {})).toMatchObject({ isOfUnit: false, mainPid: null, sets: [] });
		vi.restoreAllMocks();
		claim(false);
		asRoot();
		expect(await findInspectionTarget({}, {})).toMatchObject({ isOfUnit: false, unit: null, mainPid: null });
	});
});

test('rights are given up only by root, and for a user that is known', () => {
	const given: [string, unknown][] = [];
	const process_ = process as unknown as Record<string, (...ids: unknown[]) => void>;
	for (const name of ['initgroups', 'setgid', 'setuid'])
		vi.spyOn(process_, name).mockImplementation((...ids) => void given.push([name, ids]));
	onTestFinished(() => void vi.restoreAllMocks());
	const serviceUser = { name: 'agent', uid: 7, gid: 8 };
	const root = asRoot();
	becomeServiceUser({ serviceUser: null });
	root.mockReturnValue(1000);
	becomeServiceUser({ serviceUser });
	expect(given).toEqual([]);
	root.mockReturnValue(0);
	becomeServiceUser({ serviceUser });
	// The user last: whoever is not root any more may not change the groups.
	expect(given).toEqual([
		['initgroups', ['agent', 8]],
		['setgid', [8]],
		['setuid', [7]],
	]);
});
