/** The facts of this machine: disk space, memory, users, sockets, the systemd unit and its journal; `null`: unknown. */

import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { lstat, readdir, readFile, stat, statfs } from 'node:fs/promises';
import { freemem, totalmem } from 'node:os';
import { dirname, join } from 'node:path';
import { capacityOf } from '../base/files.edge.ts';
import { findGroup } from '../base/unix.edge.ts';

/** For programs of the system. */
const DEADLINE_MS = 4000;
/** For the output of one program: the journal is the largest. */
const MAX_OUTPUT_BYTES = 8 * 1024 * 1024;

export type DiskSpace = Awaited<ReturnType<typeof readDiskSpace>>;

/**
 * The space where a directory is, or where it would be created. Without what is reserved for root, as the agent has it;
 * `usedBytes` by its own files; `freeInodes` is `null` where the file system has no fixed number of them.
 */
export async function readDiskSpace(directory: string) {
	for (let place = directory; ; place = dirname(place)) {
		try {
			const { bavail, bsize, files, ffree } = await statfs(place);
			const freeInodes = files > 0 ? ffree : null;
			const space = { directory: place, freeBytes: bavail * bsize, freeInodes, capacityBytes: capacityOf(place) };
			return { ...space, usedBytes: place === directory ? await usedIn(place) : 0 };
		} catch (error) {
			if (dirname(place) === place) throw error;
		}
	}
}

/** The blocks of a directory and of its files; `null` where this user may not look. */
async function usedIn(directory: string): Promise<number | null> {
	try {
		const names = ['.', ...(await readdir(directory))];
		// One that has gone meanwhile uses nothing.
		const stats = await Promise.all(names.map((name) => lstat(join(directory, name)).catch(() => null)));
		return stats.reduce((sum, found) => sum + (found?.blocks ?? 0) * 512, 0);
	} catch {
		return null;
	}
}

export type MemorySpace = Awaited<ReturnType<typeof readMemory>>;

/** `agentBytes`: of the daemon, `null` when it may not be seen. @param root of the file system that is looked at. */
export async function readMemory(pid: number | null, root = '/') {
	const meminfo = (await textOf(join(root, 'proc/meminfo'))) ?? '';
	const status = pid === null ? null : await textOf(join(root, `proc/${pid}/status`));
	return {
		availableBytes: kibibytes(meminfo, 'MemAvailable') ?? freemem(),
		totalBytes: kibibytes(meminfo, 'MemTotal') ?? totalmem(),
		agentBytes: status === null ? null : kibibytes(status, 'VmRSS'),
	};
}

function kibibytes(text: string, name: string): number | null {
	const found = new RegExp(`^${name}:\\s+(\\d+) kB$`, 'm').exec(text)?.[1];
	return found === undefined ? null : Number(found) * 1024;
}

/** The owner of a file; `null` when it does not exist. */
export async function ownerOf(path: string): Promise<number | null> {
	const stat = await lstat(path).catch(() => null);
	return stat?.uid ?? null;
}

/** Whether a user in the group that `groupOf` belongs to may run or read a file, by every directory above it; of one that does not exist, those count. */
export async function isOpenToGroup(path: string, groupOf: string, runs: boolean): Promise<boolean> {
	const gid = (await stat(groupOf).catch(() => null))?.gid;
	for (let place = path; ; place = dirname(place)) {
		const found = await stat(place).catch((error: NodeJS.ErrnoException) => error.code ?? '');
		if (found === 'EACCES') return false;
		if (typeof found === 'object') {
			const mode = found.gid === gid ? found.mode >> 3 : found.mode;
			const needed = place === path && !found.isDirectory() && !runs ? 0o4 : 0o1;
			if ((mode & needed) === 0) return false;
		}
		if (dirname(place) === place) return true;
	}
}

/** The rights of a local socket; `null` when it does not exist, or this user may not look. */
export async function readSocket(path: string) {
	const stat = await lstat(path).catch(() => null);
	if (stat === null) return null;
	const { name = String(stat.gid), members = [] } = (await findGroup(stat.gid)) ?? {};
	return { path, mode: stat.mode & 0o777, group: name, members };
}

/** The properties of a unit, as systemd says; `null` where systemd does not run this machine. */
export async function readUnit(
	unit: string,
	properties: readonly string[],
): Promise<Readonly<Record<string, string>> | null> {
	if (!existsSync('/run/systemd/system')) return null;
	const shown = await run('systemctl', ['show', unit, ...properties.map((name) => `--property=${name}`)]);
	if (shown === null) return null;
	return readPairs(shown.split('\n'));
}

/** `name=value`, each; others are passed over. */
export function readPairs(words: readonly string[]): Record<string, string> {
	const found = words.map((word) => /^([^=]+)=(.*)$/s.exec(word)).filter((match) => match !== null);
	return Object.fromEntries(found.map(([, name = '', value = '']) => [name, value]));
}

/** The newest lines of the journal of some units; `null` where there is none to read. */
export async function readJournal(units: readonly string[], lines: number): Promise<string | null> {
	if (!existsSync('/run/systemd/system')) return null;
	const asked = units.map((unit) => `--unit=${unit}`);
	return run('journalctl', [...asked, `--lines=${lines}`, '--output=short-iso', '--no-pager', '--quiet']);
}

/** How a running process was started: its arguments and its variables. `null` when this user may not look. */
export async function readProcess(pid: number) {
	const [argv, env] = await Promise.all([textOf(`/proc/${pid}/cmdline`), textOf(`/proc/${pid}/environ`)]);
	if (argv === null || env === null) return null;
	return { argv: argv.split('\0').filter((word) => word !== ''), env: readPairs(env.split('\0')) };
}

/** Name and version of the operating system, as it calls itself. */
export async function readSystemName(root = '/'): Promise<string | null> {
	const text = await textOf(join(root, 'etc/os-release'));
	return /^PRETTY_NAME="?([^"\n]+)"?$/m.exec(text ?? '')?.[1] ?? null;
}

function textOf(path: string): Promise<string | null> {
	return readFile(path, 'utf8').catch(() => null);
}

function run(program: string, args: readonly string[]): Promise<string | null> {
	const { PATH } = process.env;
	return new Promise((resolve) => {
		const options = { timeout: DEADLINE_MS, maxBuffer: MAX_OUTPUT_BYTES, env: { PATH, LC_ALL: 'C' } };
		execFile(program, [...args], options, (error, stdout) => resolve(error && stdout === '' ? null : stdout));
	});
}
