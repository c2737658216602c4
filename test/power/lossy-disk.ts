/**
 * A disk in memory that loses what was not flushed when its power is cut (lossy_disk.py says by which models), and kills
 * who writes to it at that moment. Knows nothing of the agent.
 */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync, statSync } from 'node:fs';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as pause } from 'node:timers/promises';

export const MODELS = ['none', 'strict', 'ext4', 'meta'] as const;
export type Model = (typeof MODELS)[number];

/** Debian's Python, for which Debian's python3-fusepy is. */
const PYTHON = '/usr/bin/python3';

export interface CutReport {
	/** The operation that was not carried out any more. */
	readonly before: string;
	/** Its number, counted from when the cut was armed. */
	readonly step: number;
	readonly names: number;
	readonly namesKept: number;
	readonly files: number;
}

export interface LossyDisk {
	/** Its root; deeper directories are made by whoever needs them. */
	readonly directory: string;
	/** Cuts the power before the operation with this number from now on. `victim` dies with it: a process, or with a minus its group. */
	arm(cut: {
		readonly model: Model;
		readonly seed: number;
		readonly steps: number;
		readonly victim: number;
	}): Promise<void>;
	/** Cuts the power now, unless it is off already. */
	cut(cut: { readonly model: Model; readonly seed: number; readonly victim?: number }): Promise<CutReport>;
	powerOn(): Promise<void>;
	/** Makes everything on it durable. */
	flush(): Promise<void>;
	/** Files that hold this text, now or on the platter. */
	holding(text: string): Promise<readonly string[]>;
	/** Flushes everything, and remembers it for {@link goBack}. */
	keep(): Promise<void>;
	goBack(): Promise<void>;
	/** Empties it. */
	format(): Promise<void>;
	/** Operations since the power is on. */
	steps(): Promise<number>;
}

/** Why there can be no such disk here, in a few words; `null` if there can. Nothing is installed. */
export async function refusedHere(): Promise<string | null> {
	if (process.getuid?.() !== 0) return 'root';
	if (spawnSync(PYTHON, ['-c', 'import fusepy'], { stdio: 'ignore' }).status !== 0) return 'python3-fusepy';
	const undo: (() => Promise<void>)[] = [];
	try {
		await mountLossyDisk((act) => undo.push(act), 'ignore');
		return null;
	} catch {
		return 'FUSE';
	} finally {
		for (const act of undo) await act();
	}
}

/** @param atTheEnd has things undone. */
export async function mountLossyDisk(
	atTheEnd: (act: () => Promise<void>) => void,
	output: 'inherit' | 'ignore' = 'inherit',
): Promise<LossyDisk> {
	const base = mkdtempSync(join(tmpdir(), 'idv-lossy-'));
	const directory = join(base, 'disk');
	const socketPath = join(base, 'control');
	mkdirSync(directory);
	const program = resolve(import.meta.dirname, 'lossy_disk.py');
	const child = spawn(PYTHON, [program, directory, socketPath], { stdio: ['ignore', output, output] });
	const gone = once(child, 'exit');
	let socket: net.Socket | null = null;
	atTheEnd(async () => {
		socket?.destroy();
		spawnSync('umount', ['-l', directory]);
		child.kill('SIGKILL');
		await gone;
		rmSync(base, { recursive: true, force: true });
	});
	socket = await connect(socketPath, child);
	const control = socket;
	await mounted(directory, base, child);
	const waiting: ((answer: unknown) => void)[] = [];
	createInterface({ input: control }).on('line', (line) => waiting.shift()?.(JSON.parse(line)));
	const ask = (request: object): Promise<unknown> =>
		new Promise((resolve) => {
			waiting.push(resolve);
			control.write(`${JSON.stringify(request)}\n`);
		});
	return {
		directory,
		arm: async (cut) => void (await ask({ do: 'arm', ...cut })),
		cut: async (cut) => (await ask({ do: 'cut', ...cut })) as CutReport,
		powerOn: async () => void (await ask({ do: 'powerOn' })),
		flush: async () => void (await ask({ do: 'flush' })),
		keep: async () => void (await ask({ do: 'keep' })),
		goBack: async () => void (await ask({ do: 'goBack' })),
		holding: async (text) => (await ask({ do: 'holding', text })) as string[],
		format: async () => void (await ask({ do: 'format' })),
		steps: async () => (await ask({ do: 'steps' })) as number,
	};
}

async function connect(path: string, child: ChildProcess): Promise<net.Socket> {
	for (let tries = 0; tries < 200 && child.exitCode === null; tries += 1) {
		const socket = net.connect(path);
		try {
			await once(socket, 'connect');
			return socket;
		} catch {
			// It makes its socket in a moment.
			await pause(25);
		}
	}
	throw new Error('The disk that loses what was not flushed did not start.');
}

/** Resolves when there is another file system in its place. */
async function mounted(directory: string, base: string, child: ChildProcess): Promise<void> {
	for (let tries = 0; tries < 400 && child.exitCode === null; tries += 1) {
		if (statSync(directory).dev !== statSync(base).dev) return;
		await pause(25);
	}
	throw new Error('The disk that loses what was not flushed could not be mounted.');
}
