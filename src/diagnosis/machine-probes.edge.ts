/**
 * What `idv-agent doctor` and the support bundle want to know of this machine: room, memory, users, sockets, the systemd
 * unit and its journal. Reads only; a thing that is not there or not to be seen is `null`. Never throws for what it finds.
 */
import { execFile } from 'node:child_process';
import { lstat, readFile, statfs } from 'node:fs/promises';
import { freemem, totalmem } from 'node:os';
import { dirname, join } from 'node:path';
import { findGroup } from '../base/files.edge.ts';

/** For programs of the system. */
const DEADLINE_MS = 4000;
/** Of one small file under /proc or /etc. */
const MAX_OUTPUT_BYTES = 8 * 1024 * 1024;

/** The room where a directory is, or where it would be made. Without rights of root, as the agent has it. */
export async function readDiskSpace(
	directory: string,
): Promise<{ directory: string; freeBytes: number; freeInodes: number | null }> {
	for (let place = directory; ; place = dirname(place)) {
		try {
			const { bavail, bsize, files, ffree } = await statfs(place);
			return { directory: place, freeBytes: bavail * bsize, freeInodes: files > 0 ? ffree : null };
		} catch (error) {
			if (dirname(place) === place) throw error;
		}
	}
}

/** @param pid of the daemon, if it is known. @param root of the file system that is looked at; default `/`. */
export async function readMemory(
	pid: number | null,
	root = '/',
): Promise<{ availableBytes: number; totalBytes: number; agentBytes: number | null }> {
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

/** Who owns a file; `null` when it is not there. */
export async function ownerOf(path: string): Promise<number | null> {
	return lstat(path).then(
		({ uid }) => uid,
		() => null,
	);
}

export interface SocketFacts {
	readonly path: string;
	readonly isSocket: boolean;
	/** Permission bits. */
	readonly mode: number;
	/** Name of the group, or its number. */
	readonly group: string;
	/** Named members of the group; who has it as the first group is not among them. */
	readonly members: readonly string[];
}

/** What stands at the place of a local socket; `null` when nothing does, or this user may not look. */
export async function readSocket(path: string): Promise<SocketFacts | null> {
	try {
		const stat = await lstat(path);
		const group = await findGroup(stat.gid);
		return {
			path,
			isSocket: stat.isSocket(),
			mode: stat.mode & 0o777,
			group: group?.name ?? String(stat.gid),
			members: group?.members ?? [],
		};
	} catch {
		return null;
	}
}

/** What systemd says of a unit; `null` where systemd does not run this machine. */
export async function readUnit(
	unit: string,
	properties: readonly string[],
): Promise<Readonly<Record<string, string>> | null> {
	if (!(await exists('/run/systemd/system'))) return null;
	const shown = await run('systemctl', ['show', unit, ...properties.map((name) => `--property=${name}`)]);
	if (shown === null) return null;
	const pairs = shown.split('\n').map((line): [string, string] => {
		const equals = line.indexOf('=');
		return [line.slice(0, equals), line.slice(equals + 1)];
	});
	return Object.fromEntries(pairs.filter(([name]) => name !== ''));
}

/** The newest lines of a unit's journal; `null` where there is none to read. */
export async function readJournal(unit: string, lines: number): Promise<string | null> {
	if (!(await exists('/run/systemd/system'))) return null;
	return run('journalctl', [
		'--unit',
		unit,
		'--lines',
		String(lines),
		'--output',
		'short-iso',
		'--no-pager',
		'--quiet',
	]);
}

/** How a running process was started: its arguments and its variables. `null` when this user may not look. */
export async function readProcess(
	pid: number,
): Promise<{ argv: readonly string[]; env: Readonly<Record<string, string>> } | null> {
	const [argv, env] = await Promise.all([textOf(`/proc/${pid}/cmdline`), textOf(`/proc/${pid}/environ`)]);
	if (argv === null || env === null) return null;
	const pairs = env.split('\0').map((line): [string, string] => {
		const equals = line.indexOf('=');
		return [line.slice(0, Math.max(0, equals)), line.slice(equals + 1)];
	});
	return {
		argv: argv.split('\0').filter((word) => word !== ''),
		env: Object.fromEntries(pairs.filter(([name]) => name !== '')),
	};
}

/** Name and version of the operating system, as it calls itself. */
export async function readSystemName(root = '/'): Promise<string | null> {
	const text = await textOf(join(root, 'etc/os-release'));
	return /^PRETTY_NAME="?([^"\n]+)"?$/m.exec(text ?? '')?.[1] ?? null;
}

async function textOf(path: string): Promise<string | null> {
	return readFile(path, 'utf8').catch(() => null);
}

async function exists(path: string): Promise<boolean> {
	return lstat(path).then(
		() => true,
		() => false,
	);
}

function run(program: string, args: readonly string[]): Promise<string | null> {
	const { PATH } = process.env;
	return new Promise((resolve) => {
		const options = { timeout: DEADLINE_MS, maxBuffer: MAX_OUTPUT_BYTES, env: { PATH, LC_ALL: 'C' } };
		execFile(program, [...args], options, (error, stdout) => resolve(error && stdout === '' ? null : stdout));
	});
}
