/**
 * Flushes and bytes that notifications cost the disk, counted by strace: `npm run bench:storage [-- --per-day 200 --per-day 2000]`. Each is
 * acknowledged a second after it came; one day each, on a stepped clock, after 1,100 events that nobody counts. Floor: one line and one
 * flush for each event. Figures of system calls, so that a busy machine does not change them. At its end the same store on a disk
 * whose every flush takes 20 ms (`--flush-ms 1000` for another; strace delays them): how long an event waits until it is handed on, and for how
 * long at most the thread that sends heartbeats stood still meanwhile.
 */
import { execFileSync } from 'node:child_process';
import { closeSync, fdatasyncSync, mkdtempSync, openSync, readFileSync, rmSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { createEventStore } from '../../src/events/store.edge.ts';
import { createSteppedClock } from '../harness/stepped-clock.ts';

const WARM_UP = 1100;
const DAY_MS = 86_400_000;
const { values } = parseArgs({
	options: {
		'per-day': { type: 'string', multiple: true, default: ['200', '1440', '2000'] },
		'clean-after': { type: 'string', multiple: true, default: ['30', '1'] },
		'flush-ms': { type: 'string', default: '20' },
		child: { type: 'string' },
		slow: { type: 'string' },
	},
});

const event = (number: number) => ({
	at: new Date(Date.UTC(2026, 10, 21) + number).toISOString(),
	type: 'notification' as const,
	kind: 'session.started',
	workflowId: 'onboarding',
	format: 'json' as const,
	content: `{"type":"session.started","id":"n-${number}","sessionId":"65a1b2c3d4e5f60718293a4b","data":"${'x'.repeat(200)}"}`,
	serviceId: `n-${number}`,
});

/** What is traced: a day of the store, or of the floor, in a directory. */
async function oneDay(directory: string, perDay: number, cleanAfterSeconds: number): Promise<void> {
	const mark = () => closeSync(openSync(join(directory, 'mark'), 'a'));
	if (cleanAfterSeconds === 0) {
		const file = openSync(join(directory, 'floor'), 'a');
		mark();
		for (let number = 0; number < perDay; number += 1) {
			writeSync(file, `${JSON.stringify(event(number))}\n`);
			fdatasyncSync(file);
		}
		mark();
		return;
	}
	const clock = createSteppedClock();
	const store = createEventStore({
		...clock,
		directory,
		epoch: 'bench',
		bounds: { maxCount: 1000, maxBytes: 4_194_304, maxAgeMs: DAY_MS },
		cleanAfterMs: cleanAfterSeconds * 1000,
	});
	store.join('kiosk');
	for (let number = 0; number < WARM_UP + perDay; number += 1) {
		if (number === WARM_UP) mark();
		const id = store.append(event(number))?.id ?? '';
		await store.settled();
		clock.advance(1000);
		store.acknowledge('kiosk', id);
		await store.settled();
		clock.advance(DAY_MS / perDay - 1000);
	}
	mark();
	await store.close();
}

function count(perDay: number, cleanAfterSeconds: number) {
	const directory = mkdtempSync(join(tmpdir(), 'storage-bench-'));
	const trace = join(directory, 'trace');
	const calls = 'openat,fsync,fdatasync,write,pwrite64,writev,pwritev,ftruncate';
	const child = [import.meta.filename, '--child', JSON.stringify([directory, perDay, cleanAfterSeconds])];
	execFileSync('strace', ['-f', '-qq', '-y', '-o', trace, '-e', `trace=${calls}`, process.execPath, ...child]);
	const lines = readFileSync(trace, 'utf8').split('\n');
	const from = lines.findIndex((line) => line.includes(`${directory}/mark`));
	const to = lines.findLastIndex((line) => line.includes(`${directory}/mark`));
	let flushes = 0;
	let bytes = 0;
	for (const line of lines.slice(from + 1, to > from ? to : undefined)) {
		if (!line.includes(`<${directory}/`)) continue;
		// Another thread's call may stand between the beginning and the end of one: then what was asked for counts.
		const [, call = '', asked = '0', result = asked] =
			/^\d+\s+(\w+)\(.*?(?:, (\d+)(?:, \d+)? <unfinished|= (\d+)|$)/.exec(line) ?? [];
		if (call.endsWith('sync')) flushes += 1;
		else if (call.includes('write')) bytes += Number(result);
	}
	rmSync(directory, { recursive: true });
	return { flushes, bytes };
}

const SLOW_EVENTS = 40;

/** On a slow disk: one event at a time, each acknowledged, with a clean-up after each. */
async function waitForDisk(directory: string): Promise<void> {
	const bounds = { maxCount: 1000, maxBytes: 4_194_304, maxAgeMs: DAY_MS };
	const store = createEventStore({ directory, epoch: 'bench', bounds, cleanAfterMs: 1 });
	store.join('kiosk');
	const waits: number[] = [];
	const stills: number[] = [];
	let lastMs = Number.NaN;
	const ticks = setInterval(() => {
		if (!Number.isNaN(lastMs)) stills.push(performance.now() - lastMs);
		lastMs = performance.now();
	}, 1);
	for (let number = 0; number < SLOW_EVENTS; number += 1) {
		const id = store.append(event(number))?.id ?? '';
		const beganMs = performance.now();
		await store.settled();
		waits.push(performance.now() - beganMs);
		store.acknowledge('kiosk', id);
		await store.settled();
		// Longer than the flushes of a clean-up.
		await new Promise((resolve) => setTimeout(resolve, 6 * Number(values['flush-ms'])));
		// The first event of all makes the files.
		if (number === 0) waits.length = stills.length = 0;
	}
	clearInterval(ticks);
	await store.close();
	const at = (figures: number[], share: number) =>
		figures.toSorted((one, other) => one - other)[Math.floor((figures.length - 1) * share)]?.toFixed(1);
	const still = `main thread still for ${at(stills, 0.999)} ms (99.9 %), ${at(stills, 1)} at most`;
	console.log(
		`${values['flush-ms']} ms a flush: handed on after ${at(waits, 0.5)} ms (median of ${waits.length}), ${still}`,
	);
}

function onSlowDisk(): void {
	const directory = mkdtempSync(join(tmpdir(), 'storage-bench-'));
	const delay = `inject=fsync,fdatasync:delay_exit=${Number(values['flush-ms']) * 1000}`;
	const strace = ['-f', '-qq', '--seccomp-bpf', '-o', '/dev/null', '-e', 'trace=fsync,fdatasync', '-e', delay];
	const child = [import.meta.filename, '--slow', directory, '--flush-ms', values['flush-ms']];
	execFileSync('strace', [...strace, process.execPath, ...child], { stdio: 'inherit' });
	rmSync(directory, { recursive: true });
}

if (values.slow !== undefined) await waitForDisk(values.slow);
else if (values.child !== undefined) {
	const [directory, perDay, cleanAfterSeconds] = JSON.parse(values.child);
	await oneDay(directory, perDay, cleanAfterSeconds);
} else {
	for (const perDay of values['per-day'].map(Number))
		for (const cleanAfter of [0, ...values['clean-after'].map(Number)]) {
			const { flushes, bytes } = count(perDay, cleanAfter);
			const what = cleanAfter === 0 ? 'floor' : `events.cleanAfterSeconds ${cleanAfter}`;
			const each = `${(flushes / perDay).toFixed(2)} flushes and ${(bytes / perDay / 1024).toFixed(1)} KiB each`;
			console.log(
				`${`${perDay} a day`.padEnd(12)} ${what.padEnd(28)} ${`${flushes}`.padStart(6)} flushes ${`${Math.round(bytes / 1024)}`.padStart(7)} KiB a day, ${each}`,
			);
		}
	onSlowDisk();
}
