/** Power cuts while the event store is busy: stores events, takes acknowledgements, and cleans up all the time. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { text } from 'node:stream/consumers';
import { expect, inject } from 'vitest';
import { createEventStore } from '../../src/events/store.edge.ts';
import { readAll } from '../harness/read-all.ts';
import type { LossyDisk } from './lossy-disk.ts';
import type { Cut } from './plan.ts';
import type { Planted } from './programs.ts';

/** Operations of the disk in one life, at most. */
const STEPS = 400;
const LIVES = 3;
const NODE = join(import.meta.dirname, '../../node_modules/.bin/node');

const numberOf = (id: string) => Number(id.split('-')[1] ?? 0);

/** What was handed on and not acknowledged is there after each of several cuts, whole, in order, and once. */
export async function cutWhileStoring(disk: LossyDisk, cut: Cut, planted?: Planted): Promise<void> {
	const { model, seed, random } = cut;
	await disk.format();
	const directory = join(disk.directory, 'state');
	mkdirSync(directory);
	await disk.flush();
	const program = join(dirname(inject('programs')[planted ?? 'sound']), 'inbox.mjs');
	const stored = new Map<string, string>();
	let acknowledged = 0;
	let mayBeTorn = false;
	for (let life = 0; life < LIVES; life += 1) {
		const child = spawn(NODE, [program, directory, `life${life}`, String(seed + life)], {
			stdio: ['ignore', 'pipe', 'inherit'],
		});
		const steps = 20 + Math.floor(random() * STEPS);
		const said = text(child.stdout);
		const gone = once(child, 'exit');
		await disk.arm({ model, seed: seed + life, steps, victim: child.pid ?? 0 });
		await gone;
		const report = await disk.cut({ model, seed: seed + life });
		await disk.powerOn();
		// This program found what the cuts before it have left.
		const isTold = mayBeTorn;
		// Sectors of the last group, out of order: its whole records count, and what is torn before them is told as damage.
		mayBeTorn ||= model === 'strict' && report.files > 0;
		// The last line may be cut off by the kill.
		for (const line of (await said).split('\n').slice(0, -1)) {
			const [what, id = '', content = ''] = line.split(' ');
			if (what === 'notice' && !(isTold && id === 'events-damaged'))
				throw new Error(`lost: life ${life} found ${line}`);
			if (what === 'stored') stored.set(id, content);
			if (what === 'acknowledges') acknowledged = Math.max(acknowledged, numberOf(id));
		}
		await expectSound(directory, {
			...{ stored, acknowledged, mayBeTorn },
			report: JSON.stringify({ life, ...report }),
		});
	}
}

interface Expected {
	readonly stored: ReadonlyMap<string, string>;
	readonly acknowledged: number;
	readonly mayBeTorn: boolean;
	readonly report: string;
}

async function expectSound(directory: string, { stored, acknowledged, mayBeTorn, report }: Expected): Promise<void> {
	const copy = mkdtempSync(join(tmpdir(), 'idv-inbox-'));
	try {
		cpSync(directory, copy, { recursive: true });
		const notices: string[] = [];
		const store = createEventStore({
			...{ directory: copy, epoch: 'reader' },
			bounds: { maxCount: 1e6, maxBytes: 1e9, maxAgeMs: 86_400_000 },
			onNotice: (topic, notice) => {
				if (!mayBeTorn || topic !== 'events-damaged') notices.push(`${topic}: ${notice?.message}`);
			},
		});
		const { entries } = readAll(store);
		await store.close();
		expect(notices, `lost: the file is damaged ${report}`).toEqual([]);
		const found = new Map(entries.map(({ id, content }) => [id, content]));
		// A write that was cut off is a gap behind all that is there.
		const first = Math.max(acknowledged + 1, entries[0]?.number ?? 0);
		const missing = [...stored].filter(([id, content]) => numberOf(id) >= first && found.get(id) !== content);
		expect(
			missing.map(([id]) => id),
			`lost: it was handed on ${report}`,
		).toEqual([]);
		const numbers = entries.map(({ number }) => number);
		expect(numbers, report).toEqual([...new Set(numbers)].sort((a, b) => a - b));
	} finally {
		rmSync(copy, { recursive: true });
	}
}
