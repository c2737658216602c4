/**
 * Starts programs and reads what they cost: time to an event, memory, CPU. Linux only, by `/proc`. Knows nothing of what
 * is measured. Figures of one run are compared with each other only: programs take turns, so that a busy moment of the
 * machine falls on all of them.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';

export interface Program {
	/** Heading of its row. */
	readonly name: string;
	readonly command: string;
	readonly args: readonly string[];
	/** Added to our own environment. */
	readonly environment?: Readonly<Record<string, string>>;
	readonly cwd?: string;
}

/** A program that runs; always {@link Running.stop} it. */
export interface Running {
	readonly pid: number;
	/** Milliseconds from just before the program was executed to now. */
	elapsedMs(): number;
	/**
	 * Milliseconds from execution to the first line of stdout that matches, also if that has passed.
	 * @throws Error when the program ends first, with the end of its stderr, or after `deadlineMs` (default 20,000).
	 */
	untilLine(pattern: RegExp, deadlineMs?: number): Promise<number>;
	/** Milliseconds from execution to an event that somebody else sees, such as a server. Errors as {@link untilLine}. */
	untilSeen(event: Promise<unknown>, deadlineMs?: number): Promise<number>;
	/** Ends it with SIGTERM, or after 5 s with SIGKILL, and waits until it is gone. */
	stop(): Promise<void>;
}

interface Line {
	readonly text: string;
	readonly atMs: number;
}

/** Executes a program. The figures include what the kernel needs to start it. */
export function start(program: Program): Running {
	const startedAtMs = performance.now();
	const elapsedMs = () => performance.now() - startedAtMs;
	const child = spawn(program.command, program.args, {
		stdio: ['ignore', 'pipe', 'pipe'],
		env: { ...process.env, ...program.environment },
		...(program.cwd === undefined ? {} : { cwd: program.cwd }),
	});
	const lines: Line[] = [];
	let stderr = '';
	child.stderr.setEncoding('utf8').on('data', (chunk: string) => {
		stderr = (stderr + chunk).slice(-2000);
	});
	const output = createInterface({ input: child.stdout });
	output.on('line', (text) => lines.push({ text, atMs: elapsedMs() }));

	const ended = new Promise<never>((_resolve, reject) => {
		child.once('error', reject);
		// `close`, not `exit`: by then everything it had to say has arrived.
		child.once('close', (code, signal) =>
			reject(new Error(`${program.name} ended with ${signal ?? code} before it was measured. ${stderr}`)),
		);
	});
	// Nobody may be waiting when it ends.
	ended.catch(() => {});

	return {
		pid: child.pid ?? 0,
		elapsedMs,
		async untilLine(pattern, deadlineMs = 20_000) {
			const passed = lines.find(({ text }) => pattern.test(text));
			if (passed) return passed.atMs;
			let listener = (_text: string): void => {};
			const seen = new Promise<number>((resolve) => {
				listener = (text) => {
					if (pattern.test(text)) resolve(elapsedMs());
				};
				output.on('line', listener);
			});
			try {
				return await within(deadlineMs, `${program.name} printed no line like ${pattern}`, [seen, ended]);
			} finally {
				output.off('line', listener);
			}
		},
		async untilSeen(event, deadlineMs = 20_000) {
			const seen = event.then(elapsedMs);
			return within(deadlineMs, `what ${program.name} should cause was not seen`, [seen, ended]);
		},
		stop: () => stop(child),
	};
}

async function within<T>(deadlineMs: number, complaint: string, racers: readonly Promise<T>[]): Promise<T> {
	let timer: NodeJS.Timeout | undefined;
	const late = new Promise<never>((_resolve, reject) => {
		timer = setTimeout(() => reject(new Error(`${complaint} within ${deadlineMs} ms`)), deadlineMs);
	});
	try {
		return await Promise.race([...racers, late]);
	} finally {
		clearTimeout(timer);
	}
}

async function stop(child: ChildProcess): Promise<void> {
	if (child.pid === undefined || child.exitCode !== null || child.signalCode !== null) return;
	const gone = once(child, 'exit');
	const timer = setTimeout(() => child.kill('SIGKILL'), 5000);
	child.kill('SIGTERM');
	await gone;
	clearTimeout(timer);
}

/** Memory of one process, in bytes. */
export interface Memory {
	/** Its proportional share of all resident pages. */
	readonly pss: number;
	/** Pages that stand in no file: heap, stacks, buffers. What a small device really has to spare. */
	readonly anonymous: number;
}

/** Reads `/proc/PID/smaps_rollup`. @throws Error when the process is gone or is somebody else's. */
export function readMemory(pid: number): Memory {
	const rollup = readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8');
	const bytesOf = (field: string): number => {
		const kib = new RegExp(`^${field}:\\s+(\\d+) kB$`, 'm').exec(rollup)?.[1];
		if (kib === undefined) throw new Error(`/proc/${pid}/smaps_rollup has no ${field}`);
		return Number(kib) * 1024;
	};
	return { pss: bytesOf('Pss'), anonymous: bytesOf('Anonymous') };
}

/** `sysconf(_SC_CLK_TCK)`, which is 100 on every Linux that Node runs on. */
const MS_PER_TICK = 10;

/** CPU time since the start in milliseconds, all threads, user and system, in steps of 10. @throws Error as {@link readMemory}. */
export function readCpuMs(pid: number): number {
	const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
	// The name stands in brackets and may have brackets and spaces of its own; field 3 comes after the last one.
	const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
	return (Number(fields[11]) + Number(fields[12])) * MS_PER_TICK;
}

/**
 * CPU time of the threads that live, in milliseconds to the nanosecond: for the difference over an idle time, which is
 * less than the steps of {@link readCpuMs}. @throws Error as {@link readMemory}, or on a kernel without schedstat.
 */
export function readThreadsCpuMs(pid: number): number {
	const tasks = `/proc/${pid}/task`;
	const nanoseconds = readdirSync(tasks).map((thread) => {
		const [onCpu = ''] = readFileSync(`${tasks}/${thread}/schedstat`, 'utf8').split(' ');
		return Number(onCpu);
	});
	return nanoseconds.reduce((sum, one) => sum + one, 0) / 1e6;
}

/** The middle value; the mean of the two in the middle of an even number. @throws RangeError for none. */
export function median(values: readonly number[]): number {
	const sorted = values.toSorted((one, other) => one - other);
	const upper = sorted[Math.floor(sorted.length / 2)];
	const lower = sorted[Math.ceil(sorted.length / 2) - 1];
	if (upper === undefined || lower === undefined) throw new RangeError('no values to take the median of');
	return (lower + upper) / 2;
}

/** What one run of one program gave, by name of the figure. */
export type Sample = Readonly<Record<string, number>>;

export interface Result {
	readonly name: string;
	/** Median of each figure. */
	readonly figures: Sample;
	readonly samples: readonly Sample[];
}

/**
 * Measures the programs in turns, `rounds` times, and every second round the other way round, so that none always
 * follows the same one. A first round that warms the page cache is thrown away.
 */
export async function measureInTurns<P extends { readonly name: string }>(
	programs: readonly P[],
	rounds: number,
	measure: (program: P) => Promise<Sample>,
): Promise<Result[]> {
	const samples = new Map<P, Sample[]>(programs.map((program) => [program, []]));
	for (let round = 0; round <= rounds; round += 1)
		for (const program of round % 2 === 0 ? programs : programs.toReversed()) {
			const sample = await measure(program);
			if (round > 0) samples.get(program)?.push(sample);
		}
	return [...samples].map(([{ name }, all]) => {
		const figures = Object.keys(all[0] ?? {}).map((figure) => [
			figure,
			median(all.map((one) => one[figure] ?? Number.NaN)),
		]);
		return { name, figures: Object.fromEntries(figures) as Sample, samples: all };
	});
}

/**
 * The results side by side: a row for each program, a column for each figure, and how many times the first row's it is;
 * `-` for a figure that a program has not.
 * @param decimals of every figure, default 1.
 */
export function formatTable(results: readonly Result[], decimals = 1): string {
	const [first] = results;
	if (!first) return '';
	const figures = Object.keys(first.figures);
	const rows = results.map(({ name, figures: own }) => [
		name,
		...figures.map((figure) => {
			const [value, base] = [own[figure], first.figures[figure]];
			if (value === undefined) return '-';
			const times = own === first.figures || base === undefined ? '' : ` (×${(value / base).toFixed(2)})`;
			return `${value.toFixed(decimals)}${times}`;
		}),
	]);
	const table = [['', ...figures], ...rows];
	const widths = table[0]?.map((_, column) => Math.max(...table.map((row) => row[column]?.length ?? 0))) ?? [];
	return table
		.map((row) =>
			row.map((cell, column) => (column === 0 ? cell.padEnd(widths[0] ?? 0) : cell.padStart(widths[column] ?? 0))),
		)
		.map((cells) => `${cells.join('  ').trimEnd()}\n`)
		.join('');
}
