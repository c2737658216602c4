/**
 * A real Debian with a real systemd, without a virtual machine: a container of systemd-nspawn in a control group and
 * namespaces of its own, whose disk survives when all its processes are killed at once. Needs root. Knows nothing of the agent.
 */
import { type ChildProcess, execFile, execFileSync, spawn } from 'node:child_process';
import {
	existsSync,
	globSync,
	mkdirSync,
	readFileSync,
	rmdirSync,
	rmSync,
	statSync,
	truncateSync,
	watch,
	writeFileSync,
} from 'node:fs';
import { join } from 'node:path';

const TOOLS = {
	'systemd-nspawn': 'systemd-container',
	'apt-ftparchive': 'apt-utils',
	gpg: 'gpg',
	'gpg-agent': 'gpg-agent',
	mmdebstrap: 'mmdebstrap',
	unshare: 'util-linux',
	ip: 'iproute2',
	lintian: 'lintian',
	man: 'man-db',
	readelf: 'binutils',
} as const;

/** Installs what is missing when `CI=true`; else says how. */
export function ensureTools(): void {
	const missing = Object.entries(TOOLS).filter(([tool]) => !isInstalled(tool));
	if (missing.length === 0) return;
	const packages = [...new Set(missing.map(([, name]) => name))];
	if (process.env['CI'] !== 'true')
		throw new Error(`Missing: ${packages.join(', ')}. Install them: apt-get install ${packages.join(' ')}`);
	execFileSync('apt-get', ['update', '--quiet=2'], { stdio: 'inherit' });
	execFileSync('apt-get', ['install', '--yes', '--quiet=2', '--no-install-recommends', ...packages], {
		stdio: 'inherit',
		env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive' },
	});
}

function isInstalled(tool: string): boolean {
	return (process.env['PATH'] ?? '').split(':').some((directory) => existsSync(join(directory, tool)));
}

/** Makes the base system once (25 s) and keeps it under `directory`. @param more packages besides the base. */
export function prepareTree(directory: string, suite: string, more: readonly string[] = []): string {
	const tree = join(directory, [suite, ...more].join('-'));
	if (existsSync(tree)) return tree;
	mkdirSync(directory, { recursive: true });
	const packages = ['systemd,systemd-sysv,dbus,libstdc++6,libatomic1,procps,passwd', ...more].join(',');
	const fresh = `${tree}.new`;
	rmSync(fresh, { recursive: true, force: true });
	execFileSync(
		'mmdebstrap',
		['--quiet', '--variant=essential', `--include=${packages}`, suite, fresh, 'http://deb.debian.org/debian'],
		{ stdio: 'inherit' },
	);
	execFileSync('mv', [fresh, tree]);
	return tree;
}

export interface Answer {
	readonly status: number;
	/** Standard output and error, in the order in which they came. */
	readonly text: string;
}

export interface Machine {
	/** Its disk, as the host sees it while the machine is off or on. */
	readonly disk: string;
	/** Network namespace: something of the host's can be run in it, to be reached by loopback. */
	readonly network: string;
	/** Starts it; resolves when the multi-user target is reached. */
	boot(): Promise<void>;
	/** Everything in it ends at this moment. On a disk of its own, what had not reached the disk is lost. */
	cutPower(): Promise<void>;
	/** Runs a command in it, for 400 s at most. Never throws for a status. */
	run(command: string, input?: string | Uint8Array): Promise<Answer>;
	/** Runs a command and throws with its words unless it succeeds. */
	must(command: string, input?: string | Uint8Array): Promise<string>;
	/** Turns it off and removes what it was made of. */
	destroy(): Promise<void>;
}

/** So that a suite ends with the name of what it has waited for: in milliseconds, for a command, and for a boot. */
const LONGEST_COMMAND_MS = 400_000;
const LONGEST_BOOT_MS = 240_000;

let count = 0;

/** As small as a device's may be: the version there, the new one and the way back. */
const DISK_BYTES = 1 << 30;

/** An ext4 in an image file, so that a copy of the file is what a power cut leaves. */
function makeDisk(image: string): void {
	writeFileSync(image, '');
	truncateSync(image, DISK_BYTES);
	execFileSync('mkfs.ext4', ['-q', '-E', 'lazy_itable_init=0,lazy_journal_init=0', image]);
}

/** Whether it is mounted; where this machine permits none, a power cut is the end of all processes. */
function mayMount(image: string, layer: string): boolean {
	makeDisk(image);
	try {
		execFileSync('mount', ['-o', 'loop', image, layer], { stdio: 'pipe' });
		return true;
	} catch {
		console.log('No loop mounts here: a power cut loses nothing that was written.');
		return false;
	}
}

/** What has reached the disk; taken again if something does meanwhile. The machine stands still. */
function copyDisk(image: string, to: string): void {
	const changed = () => statSync(image, { bigint: true }).mtimeNs;
	for (let before = -1n; before !== changed(); ) {
		before = changed();
		execFileSync('cp', ['--sparse=always', image, to]);
	}
}

/**
 * Makes a machine from a base system; `directory` gets what it writes.
 * @param ownDisk whether that is an ext4 of 1 GiB, whose unflushed parts a power cut takes; default `false`.
 */
export function createMachine(tree: string, directory: string, ownDisk = false): Machine {
	count += 1;
	const id = `idv-${process.pid}-${count}`;
	const disk = join(directory, id);
	const layer = join(disk, 'layer');
	const image = join(disk, 'image');
	for (const part of [layer, join(disk, 'root')]) mkdirSync(part, { recursive: true });
	const hasDisk = ownDisk && mayMount(image, layer);
	for (const part of ['upper', 'work']) mkdirSync(join(layer, part), { recursive: true });
	const upper = join(layer, 'upper');
	// It stands for a device, which has a serial number of its own.
	mkdirSync(join(upper, 'etc/tmpfiles.d'), { recursive: true });
	writeFileSync(join(upper, 'etc/tmpfiles.d/device.conf'), 'r! /run/systemd/container\n');
	const groups = findControlGroups();
	execFileSync('ip', ['netns', 'add', id]);
	execFileSync('ip', ['-n', id, 'link', 'set', 'lo', 'up']);
	let container: ChildProcess | null = null;
	let leader = 0;
	let boots = 0;
	let group = '';

	const script = () =>
		[
			`echo $$ > ${group}/cgroup.procs`,
			`exec unshare --mount --pid --fork --kill-child --mount-proc --propagation private sh -c '${[
				'set -e',
				`mount -t overlay overlay -o lowerdir=${tree},upperdir=${upper},workdir=${join(layer, 'work')} ${join(disk, 'root')}`,
				`touch ${join(disk, 'network')}`,
				`mount --bind /run/netns/${id} ${join(disk, 'network')}`,
				'mount -t tmpfs tmpfs /run',
				'mount -t cgroup2 cgroup2 /sys/fs/cgroup',
				`exec systemd-nspawn --quiet --register=no --keep-unit --directory=${join(disk, 'root')} --machine=device --network-namespace-path=${join(disk, 'network')} --console=read-only --boot`,
			].join('; ')}'`,
		].join('\n');

	const machine: Machine = {
		disk: upper,
		network: id,
		async boot() {
			boots += 1;
			// A new one each time: after cgroup.kill Linux kills what newer systemd starts right inside a group that was killed.
			group = join(groups, `${id}-${boots}`);
			mkdirSync(group);
			container = spawn('sh', ['-c', script()], { stdio: ['ignore', 'pipe', 'pipe'] });
			await reaches(container, /Reached target .*(basic|Basic System)/, LONGEST_BOOT_MS);
			leader = findLeader(group);
			// Not by the console: systemd says no more there when a service of the boot has had it read its units again.
			await machine.must(
				`timeout ${LONGEST_BOOT_MS / 1000} sh -c 'until systemctl is-active --quiet multi-user.target; do sleep 0.1; done'`,
			);
		},
		async cutPower() {
			if (!container) return;
			const gone = new Promise((resolve) => container?.once('close', resolve));
			// The end of an overlay flushes what is below it.
			if (hasDisk) {
				writeFileSync(join(group, 'cgroup.freeze'), '1');
				await tells(group, 'frozen 1');
				copyDisk(image, `${image}.cut`);
			}
			writeFileSync(join(group, 'cgroup.kill'), '1');
			await gone;
			await tells(group, 'populated 0');
			for (const inner of globSync(`${group}/**/`).toSorted().toReversed()) rmdirSync(inner);
			if (existsSync(group)) rmdirSync(group);
			container = null;
			if (!hasDisk) return;
			execFileSync('umount', [layer]);
			execFileSync('mv', [`${image}.cut`, image]);
			execFileSync('mount', ['-o', 'loop', image, layer]);
		},
		run: (command, input) =>
			new Promise((resolve) => {
				const words = ['--target', String(leader), '--all', '--wd=/', 'sh', '-c', `cd /; exec 2>&1; ${command}`];
				const env = { PATH: '/usr/sbin:/usr/bin:/sbin:/bin', LC_ALL: 'C.UTF-8' };
				const how = { env, maxBuffer: 64 << 20, timeout: LONGEST_COMMAND_MS };
				const child = execFile('nsenter', words, how, (error, stdout) => {
					const late = error?.killed ? `\nIt was not over after ${LONGEST_COMMAND_MS / 1000} s.` : '';
					resolve({ status: error ? Number(error.code) || 1 : 0, text: stdout + late });
				});
				// A command that wants no input may be over before it was given all.
				child.stdin?.on('error', () => {});
				child.stdin?.end(input ?? '');
			}),
		async must(command, input) {
			const { status, text } = await machine.run(command, input);
			if (status !== 0) throw new Error(`${command}: status ${status}\n${text}`);
			return text;
		},
		async destroy() {
			await machine.cutPower();
			execFileSync('ip', ['netns', 'delete', id]);
			if (hasDisk) execFileSync('umount', [layer]);
			rmSync(disk, { recursive: true, force: true });
		},
	};
	return machine;
}

function findControlGroups(): string {
	const mount = readFileSync('/proc/self/mounts', 'utf8')
		.split('\n')
		.map((line) => line.split(' '))
		.find(([, , type]) => type === 'cgroup2')?.[1];
	if (!mount) throw new Error('There is no cgroup2 file system mounted here.');
	return mount;
}

/** Resolves when the kernel says so of a group: it tells by changing a file. */
function tells(group: string, what: string): Promise<void> {
	const file = join(group, 'cgroup.events');
	return new Promise((resolve) => {
		const look = () => {
			if (!readFileSync(file, 'utf8').includes(what)) return;
			changes.close();
			resolve();
		};
		const changes = watch(file, look);
		look();
	});
}

/** The process that is number 1 in the container, by its number here. */
function findLeader(group: string): number {
	const numbers = globSync(`${group}/**/cgroup.procs`).flatMap((file) => readIfThere(file).split('\n'));
	for (const number of numbers.filter(Boolean)) {
		const status = readIfThere(`/proc/${number}/status`);
		const inner = /^NSpid:\s+(.*)$/m.exec(status)?.[1]?.split(/\s+/) ?? [];
		if (inner.length >= 3 && inner.at(-1) === '1') return Number(number);
	}
	throw new Error('The machine has no first process.');
}

/** Empty for what is gone by now: short services come and go while a machine boots. */
function readIfThere(file: string): string {
	try {
		return readFileSync(file, 'utf8');
	} catch (error) {
		if (['ENOENT', 'ENODEV', 'ESRCH'].includes((error as NodeJS.ErrnoException).code ?? '')) return '';
		throw error;
	}
}

/** Resolves at the first output that matches; rejects with all of it when the process ends before, or the time is over. */
export function reaches(child: ChildProcess, pattern: RegExp, longestMs = 60_000): Promise<RegExpExecArray> {
	return new Promise((resolve, reject) => {
		let said = '';
		const fail = (why: string) => reject(new Error(`${why} before it said ${pattern}:\n${said}`));
		const late = setTimeout(() => fail(`${longestMs / 1000} s were over`), longestMs);
		const read = (chunk: Buffer) => {
			said += chunk.toString();
			const match = pattern.exec(said);
			if (!match) return;
			clearTimeout(late);
			resolve(match);
		};
		child.stdout?.on('data', read);
		child.stderr?.on('data', read);
		child.once('close', () => {
			clearTimeout(late);
			fail('It ended');
		});
	});
}
