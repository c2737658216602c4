/** Calls dpkg, apt, systemd and the journal once, with a deadline. A version only gets into a command by `aptWords`. */
import { execFile, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import {
	access,
	constants,
	link,
	lstat,
	mkdir,
	readdir,
	readFile,
	readlink,
	rm,
	statfs,
	symlink,
	writeFile,
} from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { AgentError } from '../base/errors.ts';
import { errnoOf, syncFile } from '../base/files.edge.ts';
import {
	aptWords,
	onlyFrom,
	PACKAGE,
	PACKAGE_FIELDS,
	packageIn,
	REPOSITORIES,
	sourceOf,
	type UnitLook,
	unitIn,
	whyNotInstalled,
} from './apt.ts';
import type { Build, PackageState } from './judge.ts';

const UNIT = 'idv-agent.service';
const SOCKETS = ['idv-agent.socket', 'idv-agent-admin.socket'];
/** For questions. */
const ASK_MS = 20_000;
/** For a channel beside the agent's. */
const REACH_MS = 60_000;
/** For an installation, and for a package that is packed: an old card is slow. */
const WORK_MS = 30 * 60_000;
/** A script of the version on trial may wait for its agent without end. */
const FINISH_MS = 10 * 60_000;
const MAX_OUTPUT_BYTES = 4 * 1024 * 1024;
/** A process that has one of them open is at work with packages, or waits to be. */
const LOCKS = new Set(['/var/lib/dpkg/lock-frontend', '/var/lib/dpkg/lock', '/var/cache/apt/archives/lock']);
const DPKG_INFO = '/var/lib/dpkg/info';
/** What dpkg keeps of a package's control files. */
const OF_CONTROL = ['preinst', 'postinst', 'prerm', 'postrm', 'conffiles', 'md5sums'];

const ENVIRONMENT = { PATH: '/usr/sbin:/usr/bin:/sbin:/bin', LC_ALL: 'C.UTF-8', DEBIAN_FRONTEND: 'noninteractive' };

export interface Ran {
	readonly status: number;
	/** Standard output and error. */
	readonly text: string;
}

/** Never throws for a status; 127 for a program that is not there. */
function run(
	program: string,
	words: readonly string[],
	deadlineMs: number,
	more: Record<string, string> = {},
): Promise<Ran> {
	const env = { ...ENVIRONMENT, ...more };
	const options = { env, timeout: deadlineMs, maxBuffer: MAX_OUTPUT_BYTES, killSignal: 'SIGTERM' as const };
	return new Promise((resolve) => {
		execFile(program, [...words], options, (error, stdout, stderr) => {
			const status = error ? (typeof error.code === 'number' ? error.code : errnoOf(error) === 'ENOENT' ? 127 : 70) : 0;
			resolve({ status, text: `${stdout}${stderr}` });
		});
	});
}

/** Whether the agent in an executable reaches the service now. Asked as the service's user, who may stop it: root opens no channel. */
export function getsThrough(executable: string, deadlineMs = REACH_MS): Promise<boolean> {
	// `execFile` has no `argv0`: by its own name the executable would be root's program.
	const options = { argv0: 'idv-agent', env: ENVIRONMENT, timeout: deadlineMs, killSignal: 'SIGKILL' } as const;
	const child = spawn(executable, ['update', 'reach'], { ...options, stdio: 'ignore' });
	return new Promise((resolve) => {
		child.once('error', () => resolve(false));
		child.once('close', (status) => resolve(status === 0));
	});
}

export interface InstalledPackage extends Build {
	/** In bytes, as its control file says. */
	readonly bytes: number;
	readonly state: PackageState;
}

/** `null` when it is not installed, or its files were removed. */
export async function readInstalled(): Promise<InstalledPackage | null> {
	const format = PACKAGE_FIELDS.map((name) => `\${${name}}`).join('|');
	const { status, text } = await run('dpkg-query', ['--show', `--showformat=${format}`, PACKAGE], ASK_MS);
	const found = status === 0 ? packageIn(text) : null;
	return found && { ...found, build: await readBuild() };
}

/**
 * Of what its files and scripts hold, of their modes and links: a package's own sums may be those of another build. The files
 * are read again only when one was replaced: an old card is slow.
 */
async function readBuild(): Promise<string> {
	const hash = createHash('sha256');
	const files: string[] = [];
	let key = '';
	for (const path of [...OF_CONTROL.map((name) => `${DPKG_INFO}/${PACKAGE}.${name}`), ...(await listFiles())]) {
		const found = await lstat(path).catch(() => null);
		// Those in /etc are the site's to change.
		if (found?.isDirectory() || path.startsWith('/etc/')) continue;
		if (found?.isFile()) files.push(path);
		const shape = [path, found?.mode, found?.uid, found?.gid, await readlink(path).catch(() => '')].join(' ');
		hash.update(shape);
		key += [shape, found?.ino, found?.size, found?.mtimeMs].join(' ');
	}
	if (digested.key !== key) {
		for (const path of files)
			try {
				for await (const chunk of createReadStream(path)) hash.update(chunk);
			} catch {
				// It was replaced meanwhile, and is looked at again.
			}
		digested = { key, build: hash.digest('hex') };
	}
	return digested.build;
}

let digested = { key: '', build: '' };

/** Whether apt or dpkg is at work: a process of root has one of their locks open. Root sees all processes. */
export async function isPackagingBusy(proc = '/proc'): Promise<boolean> {
	for (const pid of (await readdir(proc)).filter((name) => /^\d+$/.test(name))) {
		// Every user may open a lock by its path alone (O_PATH), also for a program that is root's by its mode: the real user counts.
		if (!/^Uid:\t0\t/m.test(await readFile(join(proc, pid, 'status'), 'utf8').catch(() => ''))) continue;
		const open = await readdir(join(proc, pid, 'fd')).catch(() => []);
		for (const fd of open) if (LOCKS.has(await readlink(join(proc, pid, 'fd', fd)).catch(() => ''))) return true;
	}
	return false;
}

export async function readUnit(): Promise<UnitLook> {
	const properties = ['LoadState', 'ActiveState', 'UnitFileState', 'NRestarts', 'InvocationID'].map(
		(name) => `--property=${name}`,
	);
	const { text } = await run('systemctl', ['show', UNIT, ...properties], ASK_MS);
	return unitIn(text);
}

/** @param sinceMs since 1970. */
export async function readLog(lines: number, sinceMs: number): Promise<string[]> {
	const since = `--since=@${Math.floor(sinceMs / 1000)}`;
	const words = [`--unit=${UNIT}`, since, `--lines=${lines}`, '--output=cat', '--no-pager', '--quiet'];
	const { text } = await run('journalctl', words, ASK_MS);
	return text.split('\n').filter(Boolean).slice(-lines);
}

/** Lets dpkg finish what it was cut off from: of other packages only what these wait for, since another's script may hang. */
export async function finishConfiguring(): Promise<Ran> {
	const configure = (which: string) =>
		run('dpkg', ['--force-confold', '--force-remove-reinstreq', '--configure', which], FINISH_MS);
	const own = await configure(PACKAGE);
	// One that is whole is refused.
	await configure(`${PACKAGE}-updates`);
	return own.text.includes('dependency problems') ? configure('--pending') : own;
}

/** Installs a package of this device's own keeping, older or not. The scripts of the version that goes have no say in it. */
export const installFile = (file: string): Promise<Ran> =>
	run('dpkg', ['--force-downgrade', '--force-confold', '--force-remove-reinstreq', '--install', file], WORK_MS, {
		IDV_AGENT_GOING_BACK: '1',
	});

/** Makes room for a package that has to come back: what apt has kept can be fetched again. */
export const cleanCache = (): Promise<Ran> => run('apt-get', ['clean'], WORK_MS);

const askApt = (words: readonly string[], deadlineMs: number, program: 'apt-get' | 'apt-cache' = 'apt-get') =>
	run(program, words, deadlineMs);

export interface InstallHow {
	/** The only file of sources that counts, as root has named it; `null` for the one that the installed version came from. */
	readonly source: string | null;
	/** More words for apt; default for an installed package only. */
	readonly words?: readonly string[];
}

/** Reads the site's repository and installs exactly one version: apt verifies both. Waits for another apt.
 * @param ask another apt than this machine's.
 * @throws AgentError `update-not-alone` when apt would do more than that; then it was not asked to. */
export async function installVersion(
	version: string,
	lockSeconds: number,
	{ source, words: more = ['--only-upgrade'] }: InstallHow,
	ask: typeof askApt = askApt,
): Promise<Ran> {
	const file = source ?? (await findSource(ask));
	const only = file === null ? [] : onlyFrom(file);
	const words = aptWords(version, [...more, ...only]);
	const lock = ['-o', `DPkg::Lock::Timeout=${lockSeconds}`];
	const read = await ask(['update', '--quiet', '-o', 'APT::Update::Error-Mode=any', ...only, ...lock], WORK_MS);
	if (read.status !== 0) return read;
	const shown = await ask(words.simulation, WORK_MS);
	if (shown.status !== 0) return shown;
	const reason = whyNotInstalled(shown.text, version);
	if (reason !== null)
		throw new AgentError('update-not-alone', `Version ${version} was not installed, because ${reason}.`);
	return ask([...words.installation, ...lock], WORK_MS + lockSeconds * 1000);
}

/** Of another vendor's repository that is away, an order knows nothing. */
async function findSource(ask: typeof askApt): Promise<string | null> {
	const [policy, repositories] = [await ask(['policy', PACKAGE], ASK_MS, 'apt-cache'), await ask(REPOSITORIES, ASK_MS)];
	return policy.status === 0 && repositories.status === 0 ? sourceOf(policy.text, repositories.text) : null;
}

/** Whether nothing can be written where a path is, not even by root. */
export async function isReadOnly(path: string): Promise<boolean> {
	return access(path, constants.W_OK).then(
		() => false,
		(error) => errnoOf(error) === 'EROFS',
	);
}

/** Bytes that root may still write where a directory is. */
export async function freeBytes(directory: string): Promise<number> {
	const { bfree, bsize } = await statfs(directory);
	return bfree * bsize;
}

/** Packed from the installation: apt's own file may be another build of the same version. @throws Error with the words of dpkg-deb, or the system's. */
export async function packInstalled({ version }: InstalledPackage, file: string): Promise<void> {
	const tree = `${file}.tree`;
	await rm(tree, { recursive: true, force: true });
	try {
		await layOut(tree);
		const how = ['--root-owner-group', '-Zgzip', '-z1', '--build', tree, file];
		const { status, text } = await run('dpkg-deb', how, WORK_MS);
		if (status !== 0 || !(await holds(file, version))) throw new Error(text.trim() || 'dpkg-deb made no package');
		await syncFile(file);
	} finally {
		await rm(tree, { recursive: true, force: true });
	}
}

/** Whether a file is a whole package of that version. */
async function holds(file: string, version: string): Promise<boolean> {
	const { status, text } = await run('dpkg-deb', ['--field', file, 'Version'], WORK_MS);
	return status === 0 && text.trim() === version && (await run('dpkg-deb', ['--contents', file], WORK_MS)).status === 0;
}

/** Files and directories of the installed package. */
async function listFiles(): Promise<string[]> {
	const listed = await readFile(`${DPKG_INFO}/${PACKAGE}.list`, 'utf8').catch(() => '');
	return listed.split('\n').filter((line) => line.startsWith('/') && line !== '/.');
}

/** The files of the installed package, by links where that works: the tree takes no space. */
async function layOut(tree: string): Promise<void> {
	const control = join(tree, 'DEBIAN');
	await mkdir(control, { recursive: true, mode: 0o755 });
	for (const path of await listFiles()) {
		const at = join(tree, path);
		await mkdir(dirname(at), { recursive: true, mode: 0o755 });
		const target = await readlink(path).catch(() => null);
		if (target !== null) await symlink(target, at);
		// Directories are made on the way; a file that was removed is left out.
		else
			await link(path, at).catch(async (error) => {
				if (['EPERM', 'EISDIR'].includes(errnoOf(error))) await mkdir(at, { recursive: true, mode: 0o755 });
				else if (errnoOf(error) === 'EXDEV') await run('cp', ['--archive', path, at], WORK_MS);
				else if (errnoOf(error) !== 'ENOENT' && errnoOf(error) !== 'EEXIST') throw error;
			});
	}
	const { text: described } = await run('dpkg-query', ['--status', PACKAGE], ASK_MS);
	// Without dpkg's own notes on it.
	const fields = described.replace(/^(?:Status|Config-Version|Conffiles|Triggers-\w+):.*\n(?: .*\n)*/gm, '');
	await writeFile(join(control, 'control'), `${fields.trimEnd()}\n`);
	for (const name of OF_CONTROL)
		await run('cp', ['--archive', join(DPKG_INFO, `${PACKAGE}.${name}`), join(control, name)], ASK_MS);
}

/** Tells systemd of changed unit files, and of what shall be done with one, without waiting for it. */
export async function tellSystemd(...words: readonly string[]): Promise<void> {
	await run('systemctl', ['daemon-reload'], ASK_MS);
	if (words.length > 0) await run('systemctl', ['--no-block', ...words], ASK_MS);
}

/** Has the agent run as its unit says now, and its sockets be where they belong: their user may have put something else there. */
export const restartAgent = (): Promise<void> => tellSystemd('restart', ...SOCKETS, UNIT);

/** Starts it, also where a script of a version has forbidden that. @param wasEnabled whether each boot shall start it, too. */
export async function putBackAgent(wasEnabled: boolean): Promise<void> {
	for (const where of [[], ['--runtime']]) await run('systemctl', ['unmask', ...where, ...SOCKETS, UNIT], ASK_MS);
	if (wasEnabled) await run('systemctl', ['enable', UNIT], ASK_MS);
	await tellSystemd('start', UNIT);
}

export async function stopUnit(name: string): Promise<void> {
	await run('systemctl', ['stop', name], ASK_MS);
}

/** Names this boot. A container has the kernel's name of its host: there the start of its first process tells its own boots apart. */
export async function readBootId(proc = '/proc'): Promise<string> {
	const read = (file: string) => readFile(join(proc, file), 'utf8');
	const [kernels, first] = await Promise.all([read('sys/kernel/random/boot_id'), read('1/stat')]);
	// After its name, in which anything may stand. Source: proc_pid_stat(5), starttime.
	return `${kernels.trim()} ${first.split(') ').at(-1)?.split(' ')[19]}`;
}
