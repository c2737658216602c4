/**
 * Power cuts between the steps of dpkg, which updates the real package with its real scripts: program and dpkg's records
 * lie on the lossy disk, the rest of the system is this machine's, seen through an overlay that keeps what was written.
 */
import { type ChildProcess, execFileSync, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { beforeAll, describe, expect, test } from 'vitest';
import { buildDebianPackage } from '../../scripts/debian-package.ts';
import { type Architecture, buildExecutable } from '../../scripts/executable.ts';
import { replayable } from './bed.ts';
import { type LossyDisk, mountLossyDisk } from './lossy-disk.ts';
import { type Cut, cutsOf } from './plan.ts';

const ROOT = resolve(import.meta.dirname, '../..');
const ARCHITECTURE = process.arch as Architecture;
const PROGRAM = 'usr/lib/idv-agent';
const RECORDS = 'var/lib/dpkg';
/** Images of containers tell dpkg to flush nothing; a device's does. */
const DPKG = 'dpkg --force-depends --refuse-unsafe-io';
/** The last operations of an update, where names change and the code is compiled; those before it write the program. */
const LAST = 60;

interface Result {
	readonly status: number | null;
	readonly signal: NodeJS.Signals | null;
	readonly printed: string;
}

/** This machine with the two directories of the disk in their places. Its process group dies with the power. */
function start(disk: LossyDisk, work: string, command: string): { child: ChildProcess; ended: Promise<Result> } {
	const root = join(work, 'root');
	const script = [
		'set -e',
		`mkdir -p ${work}/upper/${RECORDS} ${work}/upper/${PROGRAM} ${work}/work ${root}`,
		`mount -t overlay overlay -o lowerdir=/,upperdir=${work}/upper,workdir=${work}/work ${root}`,
		`mount --bind ${disk.directory}/program ${root}/${PROGRAM}`,
		`mount --bind ${disk.directory}/records ${root}/${RECORDS}`,
		`mount --bind ${disk.directory} ${root}/mnt`,
		`mount -t proc proc ${root}/proc; mount --rbind /dev ${root}/dev`,
		`exec chroot ${root} sh -c '${command}'`,
	].join('\n');
	const child = spawn('unshare', ['--mount', '--pid', '--fork', '--kill-child', 'sh', '-c', script], {
		detached: true,
		stdio: ['ignore', 'pipe', 'pipe'],
		env: { PATH: '/usr/sbin:/usr/bin:/sbin:/bin', DEBIAN_FRONTEND: 'noninteractive', LC_ALL: 'C.UTF-8' },
	});
	let printed = '';
	for (const stream of [child.stdout, child.stderr])
		stream.on('data', (text) => {
			printed += text;
		});
	const ended = once(child, 'close').then(() => ({ status: child.exitCode, signal: child.signalCode, printed }));
	return { child, ended };
}

/** Namespaces, and this machine's root below an overlay. */
const OVERLAY =
	'mount -t tmpfs tmpfs /mnt && mkdir /mnt/upper /mnt/work /mnt/root && mount -t overlay overlay -o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work /mnt/root';
const isPermitted = spawnSync('unshare', ['--mount', '--pid', '--fork', 'sh', '-c', OVERLAY]).status === 0;
if (!isPermitted)
	console.warn('The package part of test:power is not permitted here: this machine has no overlay mounts.');

describe.skipIf(!isPermitted || cutsOf('package').length === 0)(
	'an update of the package',
	{ timeout: 400_000 },
	() => {
		let disk: LossyDisk;
		let work: string;
		let updateSteps = 0;
		const inSystem = (command: string) => start(disk, work, command).ended;

		beforeAll(async () => {
			const undo: (() => Promise<void>)[] = [];
			disk = await mountLossyDisk((act) => undo.push(act));
			const directory = mkdtempSync(join(tmpdir(), 'idv-package-'));
			work = join(directory, 'system');
			for (const path of [
				work,
				...['program', 'records/info', 'records/updates'].map((name) => join(disk.directory, name)),
			])
				mkdirSync(path, { recursive: true });
			for (const name of ['status', 'available']) writeFileSync(join(disk.directory, 'records', name), '');
			execFileSync('mount', ['-t', 'tmpfs', 'tmpfs', work]);
			undo.push(async () => void execFileSync('umount', ['-l', work]));
			const debs = await buildBoth(directory);
			for (const [name, file] of Object.entries(debs)) cpSync(file, join(disk.directory, `${name}.deb`));
			const installed = await inSystem(`${DPKG} -i /mnt/old.deb`);
			expect(installed.status, installed.printed).toBe(0);
			await disk.keep();
			await disk.goBack();
			const whole = await inSystem(`${DPKG} -i /mnt/new.deb`);
			expect(whole.status, whole.printed).toBe(0);
			updateSteps = await disk.steps();
			return async () => {
				for (const act of undo) await act();
				rmSync(directory, { recursive: true, force: true });
			};
		}, 400_000);

		async function cutWhileUpdating({ model, seed, random }: Cut): Promise<void> {
			await disk.goBack();
			const { child, ended } = start(disk, work, `${DPKG} -i /mnt/new.deb`);
			const steps =
				random() < 0.5 ? Math.floor(random() * updateSteps) : updateSteps + 10 - Math.floor(random() * LAST);
			await disk.arm({ model, seed, steps, victim: -(child.pid ?? 0) });
			const update = await ended;
			const report = await disk.cut({ model, seed });
			await disk.powerOn();
			const story = `${JSON.stringify(report)}\n${update.printed}`;

			// The device as it starts again, before anybody repairs anything.
			const asIs = await inSystem(`/${PROGRAM}/idv-agent --version && /${PROGRAM}/idv-agent config check`);
			expect({ ...asIs, printed: '' }, `${asIs.printed}${story}`).toEqual({ status: 0, signal: null, printed: '' });
			expect(asIs.printed, story).toMatch(/\b0\.(?:0\.1|2\.0)\b/);
			// dpkg marks a package as inconsistent before it asks the version that is there; the package's own unit sees to that at boot.
			const configured = `(${DPKG} --configure -a || ${DPKG} ${AT_BOOT})`;
			const repaired = await inSystem(`${configured} && ${DPKG} -i /mnt/new.deb && idv-agent --version`);
			expect(repaired.status, `${repaired.printed}${story}`).toBe(0);
			expect(repaired.printed).toContain(versionOf(ROOT));
		}

		test.for(cutsOf('package'))(
			'leaves a program that runs, and dpkg completes it: cut $number, model $model [F185]',
			(cut) => replayable(cut, cutWhileUpdating),
		);
	},
);

/** How the package finishes an interrupted installation. */
const AT_BOOT = /^ExecStart=-\/usr\/bin\/dpkg (.*)$/m.exec(
	readFileSync(join(ROOT, 'systemd/updates/idv-agent-finish.service'), 'utf8'),
)?.[1];

const versionOf = (root: string): string => JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')).version;

/** The package of these sources, and the same with an older version. */
async function buildBoth(directory: string): Promise<{ old: string; new: string }> {
	const older = join(directory, 'older');
	mkdirSync(older);
	for (const path of ['src', 'scripts', 'systemd']) cpSync(join(ROOT, path), join(older, path), { recursive: true });
	symlinkSync(join(ROOT, 'node_modules'), join(older, 'node_modules'));
	const manifest = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
	writeFileSync(join(older, 'package.json'), JSON.stringify({ ...manifest, version: '0.0.1' }));
	const build = async (root: string, outDir: string) => {
		mkdirSync(outDir);
		const executable = await buildExecutable({ root, architecture: ARCHITECTURE, outDir });
		return { executable, version: versionOf(root), outDir };
	};
	const parts = { root: ROOT, architecture: ARCHITECTURE, epoch: 1_700_000_000, compression: 'gzip' } as const;
	const current = await build(ROOT, join(directory, 'new'));
	const file = await buildDebianPackage({ ...parts, ...current });
	// Only what differs is made again: the manual pages take most of the time.
	const old = await build(older, join(directory, 'old'));
	const tree = join(directory, 'tree');
	execFileSync('dpkg-deb', ['--raw-extract', file, tree]);
	cpSync(old.executable, join(tree, PROGRAM, 'idv-agent'));
	const control = join(tree, 'DEBIAN/control');
	writeFileSync(control, readFileSync(control, 'utf8').replace(/^Version: .*$/m, `Version: ${old.version}`));
	const oldFile = join(directory, 'old.deb');
	execFileSync('dpkg-deb', ['--root-owner-group', '-Zgzip', '-z1', '--build', tree, oldFile]);
	return { old: oldFile, new: file };
}
