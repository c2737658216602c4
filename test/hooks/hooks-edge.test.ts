import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { createHooks, type HookLimits, type HookOutcome, type Hooks } from '../../src/hooks/hooks.edge.ts';

interface Report {
	readonly hook: string;
	readonly outcome: HookOutcome;
	readonly ms: number;
	readonly stderr: string;
}

interface Runner extends Hooks {
	readonly reports: Report[];
	/** Resolves when so many have been reported. */
	reported(count: number): Promise<Report[]>;
}

function hooks(limits: Partial<HookLimits> = {}, env: Record<string, string> = {}): Runner {
	const reports: Report[] = [];
	let look = () => {};
	const made = createHooks({
		limits,
		env: { PATH: process.env['PATH'], ...env },
		report(hook, outcome, ms, stderr) {
			reports.push({ hook, outcome, ms, stderr });
			look();
		},
	});
	onTestFinished(() => made.close());
	return Object.assign(made, {
		reports,
		reported: (count: number) =>
			new Promise<Report[]>((resolve) => {
				look = () => {
					if (reports.length >= count) resolve(reports);
				};
				look();
			}),
	});
}

const sh = (script: string, ...more: string[]) => ['/bin/sh', '-c', script, 'sh', ...more];
const call = (argv: string[], input: unknown = {}) => ({ hook: 'onNotification', argv, input });

function directory(): string {
	const made = fs.mkdtempSync(path.join(os.tmpdir(), 'hooks-'));
	onTestFinished(() => fs.rmSync(made, { recursive: true }));
	return made;
}

describe('a command', () => {
	test('gets JSON on standard input and its arguments untouched by any shell', async () => {
		const file = path.join(directory(), 'out');
		const runner = hooks();
		const odd = '$(touch /tmp/never); "\' *';
		runner.run(call(sh('cat > "$1"; printf "%s" "$2" >> "$1"', file, odd), { type: 'x', n: 1 }));
		expect(await runner.reported(1)).toMatchObject([
			{ hook: 'onNotification', outcome: { kind: 'exited', exitStatus: 0 } },
		]);
		expect(fs.readFileSync(file, 'utf8')).toBe(`{"type":"x","n":1}\n${odd}`);
	});

	test('is reported with its exit status and the cleaned beginning of its standard error', async () => {
		const runner = hooks({ stderrLength: 40 });
		runner.run(call(sh('printf "no \\033[31mprinter\\n\\nhere " >&2; yes x | head -c 100000 >&2; exit 3')));
		const [report] = await runner.reported(1);
		expect(report?.outcome).toEqual({ kind: 'exited', exitStatus: 3 });
		expect(report?.stderr).toMatch(/^no \[31mprinter here x x/);
		expect(report?.stderr.length).toBeLessThanOrEqual(40);
	});

	test('sees little of the environment, and no secret', async () => {
		const file = path.join(directory(), 'out');
		const runner = hooks(
			{},
			{ NOTIFY_SOCKET: '/run/x', IDV_AGENT_KEY: 'secret', CREDENTIALS_DIRECTORY: '/c', TZ: 'UTC' },
		);
		runner.run(call(sh('env > "$1"', file)));
		await runner.reported(1);
		const names = fs
			.readFileSync(file, 'utf8')
			.trim()
			.split('\n')
			.map((line) => line.split('=')[0] ?? '');
		expect(names.filter((name) => !['_', 'PWD', 'SHLVL', 'OLDPWD'].includes(name)).sort()).toEqual([
			'IDV_AGENT_HOOK',
			'PATH',
			'TZ',
		]);
	});

	test('that cannot be started, that reads nothing, or that is killed, is reported as that', async () => {
		const runner = hooks({ atOnce: 1 });
		runner.run(call(['/nowhere/at-all']));
		runner.run(call(['']));
		runner.run(call(['/bin/true\0x']));
		runner.run(call(sh('exec 0<&-; exit 0'), 'x'.repeat(1_000_000)));
		runner.run(call(sh('kill -9 $$')));
		const reports = await runner.reported(5);
		expect(reports.map(({ outcome }) => outcome)).toMatchObject([
			{ kind: 'notStarted', reason: 'ENOENT' },
			{ kind: 'notStarted' },
			{ kind: 'notStarted' },
			{ kind: 'exited', exitStatus: 0 },
			{ kind: 'killed', signal: 'SIGKILL' },
		]);
	});

	test('that takes too long is ended with everything it started, also if it does not want to', async () => {
		const pipe = path.join(directory(), 'pipe');
		execFileSync('mkfifo', [pipe]);
		const runner = hooks({ timeoutMs: 300, graceMs: 50 });
		// The pipe ends when the last of those who hold it is gone.
		const ended = once(fs.createReadStream(pipe).resume(), 'end');
		runner.run(call(sh('trap "" TERM; sleep 60 > "$1" & wait; wait', pipe)));
		expect(await runner.reported(1)).toMatchObject([{ outcome: { kind: 'timedOut' } }]);
		await ended;
	});

	test('takes what it has left in the background along when it ends', async () => {
		const pipe = path.join(directory(), 'pipe');
		execFileSync('mkfifo', [pipe]);
		const runner = hooks();
		const ended = once(fs.createReadStream(pipe).resume(), 'end');
		runner.run(call(sh('exec 3> "$1"; sleep 60 2> /dev/null &', pipe)));
		expect(await runner.reported(1)).toMatchObject([{ outcome: { kind: 'exited', exitStatus: 0 } }]);
		await ended;
	});

	test('that leaves something behind which holds its output open is over all the same', async () => {
		const runner = hooks({ graceMs: 50 });
		runner.run(call(['setsid', '--fork', 'sleep', '8']));
		expect(await runner.reported(1)).toMatchObject([{ outcome: { kind: 'exited', exitStatus: 0 } }]);
		expect(runner.reports[0]?.ms).toBeLessThan(7000);
	});
});

describe('many commands', () => {
	test('run at most so many at once, in order, and each is told when it was started', async () => {
		const file = path.join(directory(), 'log');
		const runner = hooks({ atOnce: 1 });
		const started = [0, 1, 2, 3].map((number) =>
			runner.run({
				hook: `h${number}`,
				argv: sh('echo begin $2 >> "$1"; echo end $2 >> "$1"', file, String(number)),
				input: null,
			}),
		);
		expect(await started[0]).toBe('started');
		expect(await Promise.race([started[1], started[0]?.then(() => 'waits')])).toBe('waits');
		expect(await Promise.all(started)).toEqual(Array(4).fill('started'));
		const reports = await runner.reported(4);
		expect(reports.map(({ hook }) => hook)).toEqual(['h0', 'h1', 'h2', 'h3']);
		const lines = [0, 1, 2, 3].flatMap((number) => [`begin ${number}`, `end ${number}`]);
		expect(fs.readFileSync(file, 'utf8').trim().split('\n')).toEqual(lines);
	});

	test('closing leaves what waits and ends what runs, which is reported', async () => {
		const runner = hooks({ atOnce: 1, graceMs: 50 });
		const started = [runner.run(call(sh('exec sleep 60'))), runner.run(call(sh('true')))];
		await started[0];
		await runner.close();
		started.push(runner.run(call(sh('true'))));
		expect(await Promise.all(started)).toEqual(['started', null, null]);
		expect(runner.reports.map(({ outcome }) => outcome.kind)).toEqual(['killed']);
	});
});
