/**
 * What a start has come to in which millisecond, seen from outside: strace stops the program at the calls that tell it and at no
 * other ones (`--seccomp-bpf`). Decides nothing; where strace is missing there is no timeline.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { median, type Program } from './measure.ts';

/** In the order in which they are drawn; the first call that fits is taken. */
const STEPS: readonly (readonly [name: string, call: RegExp])[] = [
	['Node runs the program', /openat\(.*program-[0-9a-f]+\.cache/],
	['its modules are loaded', /openat\(.*\/sys\/class\/dmi/],
	['settings are read', /openat\(.*\/checked\.json/],
	['the state is read, its lock taken', /openat\(.*\/state\.json"/],
	['the connection is begun', /connect\(.*AF_INET/],
	['the request for the channel leaves', /(?:write|writev|sendto)\(.*"GET \//],
	['the local sockets are open', /listen\(/],
	['READY', /write.*READY=1/],
	['the service has answered', /read.*"HTTP\/1\.1 101/],
	['online', /write\(1, .*(?:\\"msg\\":\\"online\\"|"open\\n)/],
];

/** Milliseconds from the execution of the program itself, the median of the rounds, by step. */
export type Timeline = Readonly<Record<string, number>>;

/** @returns `null` where strace is not installed. */
export async function readTimeline(program: Program, online: RegExp, rounds: number): Promise<Timeline | null> {
	const all: Record<string, number>[] = [];
	for (let round = 0; round < rounds; round += 1) {
		const steps = await readOnce(program, online);
		if (!steps) return null;
		all.push(steps);
	}
	const names = STEPS.map(([name]) => name).filter((name) => all.every((one) => name in one));
	return Object.fromEntries(names.map((name) => [name, Number(median(all.map((one) => one[name] ?? 0)).toFixed(1))]));
}

async function readOnce(program: Program, online: RegExp): Promise<Record<string, number> | null> {
	const directory = await mkdtemp(join(tmpdir(), 'timeline-'));
	const file = join(directory, 'calls');
	const calls = 'trace=execve,openat,connect,listen,read,write,writev,sendto';
	const args = ['-f', '--seccomp-bpf', '-ttt', '-s', '160', '-e', calls, '-o', file, program.command, ...program.args];
	const child = spawn('strace', args, {
		stdio: ['ignore', 'pipe', 'ignore'],
		detached: true,
		env: { ...process.env, ...program.environment },
		...(program.cwd !== undefined && { cwd: program.cwd }),
	});
	try {
		const isMissing = await Promise.race([
			once(child, 'spawn').then(() => false),
			once(child, 'error').then(() => true),
		]);
		if (isMissing) return null;
		const ended = once(child, 'close');
		// To both: strace alone would leave the program behind.
		for await (const line of createInterface({ input: child.stdout }))
			if (online.test(line)) process.kill(-(child.pid ?? 0), 'SIGTERM');
		await ended;
		return stepsOf(await readFile(file, 'utf8'));
	} finally {
		await rm(directory, { recursive: true, force: true });
	}
}

/** @param text what `strace -f -ttt` wrote: a process, a time in seconds and a call on each line. */
export function stepsOf(text: string): Record<string, number> {
	const lines = text.split('\n').map((line) => /^\d+ +(\d+\.\d+) (.*)$/.exec(line) ?? []);
	// A shell may become the program: the last execution counts.
	const begun = lines.findLast(([, , call = '']) => call.startsWith('execve('));
	const steps: Record<string, number> = {};
	for (const [name, call] of STEPS) {
		const first = lines.find(([, at = '', text = '']) => Number(at) >= Number(begun?.[1]) && call.test(text));
		if (first) steps[name] = (Number(first[1]) - Number(begun?.[1])) * 1000;
	}
	return steps;
}
