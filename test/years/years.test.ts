/** The simulation itself: the same seed is the same life, its faults shrink, and each invariant has a bug that it catches. */
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { chanceOf } from './chance.ts';
import { createDisk } from './disk.ts';
import { INVARIANTS } from './invariants.ts';
import { PLANTS } from './planted.ts';

const ROOT = join(import.meta.dirname, '../..');
const LIMIT_MS = 120_000;

function years(...flags: string[]): { status: number | null; lines: string[] } {
	const run = join(import.meta.dirname, 'run.ts');
	const { status, stdout, stderr } = spawnSync(process.execPath, ['--no-warnings', run, ...flags], {
		encoding: 'utf8',
	});
	expect(stderr).toBe('');
	return { status, lines: stdout.trimEnd().split('\n') };
}

const digestOf = (seed: string) =>
	(JSON.parse(years('--json', '--seed', seed, '--years', '0.006').lines[0] ?? '{}') as { digest: string }).digest;

describe('a simulated life', () => {
	test('is the same for the same seed in another process, and another one for another seed', {
		timeout: LIMIT_MS,
	}, () => {
		const digest = digestOf('6');
		expect(digest).toMatch(/^[0-9a-f]{16}$/);
		expect(digestOf('6')).toBe(digest);
		expect(digestOf('7')).not.toBe(digest);
	});

	test('that fails names its seed, few faults, and a command that fails again in the same way', {
		timeout: LIMIT_MS,
	}, () => {
		const { status, lines } = years(
			'--seed',
			'2',
			'--minutes',
			'0.01',
			'--years',
			'0.012',
			'--plant',
			'wait-without-end',
		);
		expect(status).toBe(1);
		expect(lines[1]).toMatch(/^seed 2 fails/);
		const enough = lines.find((line) => line.includes('are enough')) ?? '';
		expect(Number(/^\d+/.exec(enough)?.[0])).toBeLessThanOrEqual(20);
		const command = lines.at(-1) ?? '';
		const again = years(...command.replace('again: npm run test:years -- ', '').split(' '));
		expect(again.status).toBe(1);
		expect(again.lines[1]).toContain(`, ${Number(/^\d+/.exec(enough)?.[0])} faults):`);
		expect(again.lines.at(-1)).toBe(command);
		const [first] = lines.filter((line) => line.startsWith('  ')).map((line) => line.trim().split(' ')[0]);
		expect(again.lines.join('\n')).toContain(first);
	});
});

describe('planted bugs', () => {
	test('are there for every invariant, and for none that does not exist', () => {
		const caught = new Set(PLANTS.map(({ catches }) => catches));
		const names = INVARIANTS.map(({ name }) => name);
		expect(names.filter((name) => !caught.has(name))).toEqual([]);
		expect([...caught].filter((name) => name !== undefined && !names.includes(name))).toEqual([]);
		expect(names.length).toBeGreaterThanOrEqual(25);
	});

	test.each(PLANTS.map(({ name, edits }) => [name, edits] as const))('%s fits the sources of now', (_, edits) => {
		for (const [file, from, to] of edits) {
			expect(readFileSync(join(ROOT, 'src', file), 'utf8').split(from)).toHaveLength(2);
			expect(to).not.toBe(from);
		}
	});
});

describe('the disk of a simulated device', () => {
	const FILE = '/d/file';
	function written({ flushesFile, flushesName }: { flushesFile: boolean; flushesName: boolean }, seed: number) {
		const disk = createDisk(chanceOf(seed));
		disk.directories.add('/d');
		const node = disk.create(FILE);
		disk.write(FILE, node, Buffer.from('content'), 0);
		if (flushesFile) disk.flushFile(node);
		if (flushesName) disk.flushDirectory('/d');
		disk.cutPower();
		return disk.files.get(FILE)?.bytes.toString();
	}
	const seeds = Array.from({ length: 40 }, (_, seed) => seed);

	test('keeps what was flushed with its name when the power is cut', () => {
		for (const seed of seeds) expect(written({ flushesFile: true, flushesName: true }, seed)).toBe('content');
	});

	test('keeps what was flushed before more was added to it', () => {
		for (const seed of seeds) {
			const disk = createDisk(chanceOf(seed));
			disk.directories.add('/d');
			const node = disk.create(FILE);
			disk.write(FILE, node, Buffer.from('safe'), 0);
			disk.flushFile(node);
			disk.flushDirectory('/d');
			disk.write(FILE, node, Buffer.from('more'), 4);
			disk.cutPower();
			expect(disk.files.get(FILE)?.bytes.toString()).toMatch(/^safe/);
		}
	});

	test('keeps what was flushed and not written over, when a part was written over', () => {
		const left = seeds.map((seed) => {
			const disk = createDisk(chanceOf(seed));
			disk.directories.add('/d');
			const node = disk.create(FILE);
			disk.write(FILE, node, Buffer.from('old line'), 0);
			disk.flushFile(node);
			disk.flushDirectory('/d');
			disk.write(FILE, node, Buffer.from('new'), 0);
			disk.cutPower();
			return disk.files.get(FILE)?.bytes.toString() ?? '';
		});
		for (const content of left) expect(content).toMatch(/^(old|nld|ned|new) line$/);
		expect(left).toContain('old line');
		expect(left).toContain('new line');
	});

	test('may lose the name, the content or a part of it when one flush is missing', () => {
		expect(seeds.map((seed) => written({ flushesFile: true, flushesName: false }, seed))).toContain(undefined);
		const contents = seeds.map((seed) => written({ flushesFile: false, flushesName: true }, seed));
		expect(contents).toContain('');
		expect(contents).toContain('\0'.repeat(7));
		expect(contents).toContain('content');
	});
});
