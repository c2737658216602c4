/** What a log keeps, and what it says of the rest: cuts of power, rot, failing disks. The rows are those of docs/log.md. */
import { randomBytes } from 'node:crypto';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import fc from 'fast-check';
import { beforeEach, describe, expect, onTestFinished, test } from 'vitest';
import { openRecordLog, type RecordLog, type RecordLogOptions } from '../../src/base/record-log.edge.ts';
import { EIO, lossyFiles } from './lossy-files.ts';

let directory: string;
beforeEach(() => {
	directory = fs.mkdtempSync(path.join(os.tmpdir(), 'record-log-'));
	return () => fs.rmSync(directory, { recursive: true, force: true });
});

const bytes = (text: string) => Buffer.from(text);
const names = () => fs.readdirSync(directory).sort();
const at = (name: string | undefined) => path.join(directory, name ?? '');

/** A log whose head says which texts were appended so far. */
function open(options: Partial<RecordLogOptions> = {}) {
	const found: string[] = [];
	const failures: unknown[] = [];
	const log = openRecordLog({
		directory,
		name: 'test',
		maxBytes: () => 1_000_000,
		head: () => bytes(`head after ${log.last()}`),
		onFound: (state) => found.push(...Array.from(state, (each) => Buffer.from(each).toString())),
		onFailing: (error) => failures.push(error),
		schedule: () => () => {},
		...options,
	});
	onTestFinished(() => log.close());
	return Object.assign(log, { found, failures });
}

async function add(log: RecordLog, ...texts: string[]): Promise<void> {
	for (const text of texts) log.append(bytes(text), 1000);
	await log.settled();
}

/** Payloads, or the numbers that are lost: `[3-5]`. */
const read = (log: RecordLog, after = 0) =>
	Array.from(log.after(after), (found) =>
		'payload' in found ? Buffer.from(found.payload).toString() : `[${found.lostFrom}-${found.number}]`,
	);

async function reopen(log: RecordLog, options: Partial<RecordLogOptions> = {}) {
	await log.close();
	return open(options);
}

/** What the next process finds, if this one is killed now. */
function killed(options: Partial<RecordLogOptions> = {}) {
	const copy = fs.mkdtempSync(path.join(os.tmpdir(), 'record-log-'));
	onTestFinished(() => fs.rmSync(copy, { recursive: true, force: true }));
	fs.cpSync(directory, copy, { recursive: true });
	return open({ ...options, directory: copy });
}

/** Where a text begins in the only segment. */
const placeOf = (text: string) => fs.readFileSync(at(names()[0])).indexOf(text);

function change(name: string | undefined, from: number, ...changed: number[]): void {
	const content = fs.readFileSync(at(name));
	content.set(changed, from);
	fs.writeFileSync(at(name), content);
}

const flip = (name: string | undefined, from: number) => change(name, from, (fs.readFileSync(at(name))[from] ?? 0) ^ 4);

const ten = Array.from({ length: 10 }, (_, index) => `record ${index + 1}`);

describe('a log', () => {
	test('has its records in order under numbers that rise by one, and again after a stop and after a kill', async () => {
		let log = open();
		expect([log.first(), log.last(), log.count(), names()]).toEqual([1, 0, 0, []]);
		await add(log, ...ten);
		expect(read(log)).toEqual(ten);
		expect(read(killed())).toEqual(ten);
		log = await reopen(log);
		await add(log, 'another');
		expect(read(log, 9)).toEqual(['record 10', 'another']);
		expect([log.first(), log.last(), log.count(), log.timeOf(3), log.timeOf(12)]).toEqual([1, 11, 11, 1000, null]);
		expect(names()).toHaveLength(1);
		expect(log.damages()).toEqual([]);
	});

	test('is read on with a mark where its files have none, and without one where they have', async () => {
		const mark = '0123456789abcdef0123456789abcdef';
		let log = open();
		await add(log, ...ten);
		log = await reopen(log, { mark });
		await add(log, 'x'.repeat(300_000), 'more');
		expect([read(log).slice(0, 10), read(log).at(-1), log.damages()]).toEqual([ten, 'more', []]);
		log = await reopen(log);
		expect([read(log).slice(0, 10), read(log).at(-1), names().length]).toEqual([ten, 'more', 3]);
		log = await reopen(log, { mark: 'f'.repeat(32) });
		expect([read(log).at(-1), log.damages().map(({ file }) => file)]).toEqual(['record 10', names().slice(1).map(at)]);
	});

	test('takes one write and one flush for a group', async () => {
		const disk = lossyFiles(directory);
		const log = open({ files: disk.files });
		await add(log, 'first');
		disk.calls.length = 0;
		for (const text of ten) log.append(bytes(text), 0);
		log.note(bytes('note'));
		await log.settled();
		expect(disk.calls.map((call) => call.split(' ')[0])).toEqual(['write', 'fdatasync']);
	});

	test('makes the name of the file that it was found in durable with its first record [F1887]', async () => {
		const before = open();
		await add(before, 'before');
		await before.close();
		// The process has ended before it had flushed the name.
		const disk = lossyFiles(directory);
		const log = open({ files: disk.files });
		await add(log, 'after');
		await log.close();
		disk.cutPower(() => false);
		expect(read(open())).toEqual(['before', 'after']);
	});

	test('shows a record only when it is stored', async () => {
		const log = open();
		log.append(bytes('a'), 0);
		expect([read(log), log.last()]).toEqual([[], 0]);
		await log.settled();
		expect([read(log), log.last()]).toEqual([['a'], 1]);
	});

	test('gives the next start the newest head and the notes after it', async () => {
		const log = open({ maxBytes: () => 262_144 });
		await add(log, ...Array.from({ length: 60 }, () => 'x'.repeat(1000)));
		log.note(bytes('one'));
		log.note(bytes('two'));
		await log.settled();
		const { found } = killed();
		expect(found).toEqual([expect.stringMatching(/^head after \d\d$/), 'one', 'two']);
	});

	test('stays within its bytes: the oldest segments go whole', async () => {
		const log = open({ maxBytes: () => 262_144 });
		for (let count = 0; count < 1000; count += 1) {
			await add(log, `${count} ${'x'.repeat(1000)}`);
			const onDisk = names().reduce((sum, name) => sum + fs.statSync(at(name)).size, 0);
			expect(onDisk).toBeLessThanOrEqual(262_144);
			expect(log.bytes()).toBe(onDisk);
		}
		expect(log.count()).toBeGreaterThan(200);
		expect(read(log)[0]).toMatch(new RegExp(`^${log.first() - 1} `));
		const first = log.first();
		expect(read(await reopen(log))).toHaveLength(1001 - first);
	});

	test('takes a record that is longer than everything else may be', async () => {
		const log = open({ maxBytes: () => 65_536 });
		await add(log, 'a', 'x'.repeat(200_000));
		expect(read(await reopen(log)).map((text) => text.length)).toEqual([200_000]);
	});

	test('erases contents on the disk, and reads them neither before nor after a start', async () => {
		let log = open();
		await add(log, ...ten);
		log.erase([2, 5]);
		log.erase(1);
		expect(read(log)).toEqual(ten.filter((_, index) => ![0, 1, 4].includes(index)));
		await log.clean();
		for (const text of ['record 1\0', 'record 2', 'record 5']) expect(placeOf(text)).toBe(-1);
		log = await reopen(log);
		expect(read(log)).toEqual(ten.filter((_, index) => ![0, 1, 4].includes(index)));
		expect([log.first(), log.count()]).toEqual([3, 7]);
	});

	test('tells the next start up to which record all were done with', async () => {
		let log = open();
		await add(log, ...ten);
		log.erase(4, 'done');
		await log.clean();
		log = await reopen(log);
		expect(log.doneUpTo()).toBe(4);
		log.erase(6);
		await log.clean();
		expect((await reopen(log)).doneUpTo()).toBe(4);
	});

	test('keeps the tags of what it erases', async () => {
		let log = open();
		for (const text of ten) log.append(bytes(text), 0, Uint8Array.of(text.length, Number(text.slice(7))));
		await log.settled();
		log.erase(9);
		await log.clean();
		log = await reopen(log);
		expect(log.tags(3).map(({ tag }) => tag[1])).toEqual([8, 9, 10]);
	});

	test('keeps 16 bytes in memory for a record, and opens without reading long payloads', async () => {
		const disk = lossyFiles(directory);
		const log = open({ maxBytes: () => 1e8 });
		await add(log, ...Array.from({ length: 20 }, () => 'x'.repeat(300_000)));
		await log.close();
		let readBytes = 0;
		const { readSync } = disk.files;
		disk.files.readSync = ((...given: Parameters<typeof fs.readSync>) => {
			const length = readSync(...given);
			readBytes += length;
			return length;
		}) as typeof fs.readSync;
		expect(open({ files: disk.files }).count()).toBe(20);
		expect(readBytes).toBeLessThan(25 * 65_536);
	});

	test('in memory only takes over what is on the disk, and leaves nothing there', async () => {
		const log = open();
		await add(log, ...ten);
		log.erase(4);
		await log.clean();
		const memory = await reopen(log, { access: 'memory' });
		await add(memory, 'more');
		expect(read(memory)).toEqual([...ten.slice(4), 'more']);
		expect([memory.first(), memory.last(), names()]).toEqual([5, 11, []]);
	});

	test('can be read beside the process that appends, without a write', async () => {
		const log = open();
		await add(log, ...ten);
		const reader = open({ access: 'read' });
		await add(log, 'more');
		expect(read(reader)).toEqual(ten);
		expect(read(open({ access: 'read' }))).toEqual([...ten, 'more']);
	});
});

describe('damage at rest', () => {
	/** Ten records in one segment, closed; then what the next start finds. */
	async function damaged(damage: () => void): Promise<ReturnType<typeof open>> {
		const log = open();
		await add(log, ...ten);
		log.note(bytes('note'));
		await log.settled();
		await log.close();
		damage();
		return open();
	}
	const without = (...numbers: number[]) =>
		ten.flatMap((text, index) => (numbers.includes(index + 1) ? [`[${index + 1}-${index + 1}]`] : [text]));

	test('a bit in a payload costs that record', async () => {
		const log = await damaged(() => flip(names()[0], placeOf('record 4') + 3));
		expect(read(log)).toEqual(without(4));
		expect(log.found).toEqual(['head after 0', 'note']);
	});

	test.each([
		['marker', 0],
		['checksum', 4],
		['length', 12],
		['number', 21],
		['kind', 22],
	])('a bit in the %s of a header costs that record', async (_what, place) => {
		const log = await damaged(() => flip(names()[0], placeOf('record 4') - 56 + place));
		expect(read(log)).toEqual(without(4));
		expect(log.damages()).toMatchObject([{ file: at(names()[0]) }]);
		await add(log, 'more');
		expect(read(await reopen(log))).toEqual([...without(4), 'more']);
	});

	test('a length that reaches into later records hides none of them', async () => {
		const log = await damaged(() => change(names()[0], placeOf('record 4') - 56 + 12, 0, 0, 1, 0));
		expect(read(log)).toEqual(without(4));
	});

	test('a bit in a record that is erased already costs nothing', async () => {
		const log = open();
		await add(log, ...ten);
		const place = placeOf('record 4');
		log.erase(4);
		await log.clean();
		await log.close();
		change(names()[0], place, 1, 2, 3);
		expect(read(open())).toEqual(ten.slice(4));
	});

	test('a damaged head costs what the notes and earlier heads do not say, and no record, and is named [F600]', async () => {
		const log = await damaged(() => flip(names()[0], placeOf('head after')));
		expect([read(log), log.found]).toEqual([ten, ['note']]);
		expect(log.damages()).toMatchObject([{ file: at(names()[0]) }]);
		await add(log, 'more');
		expect(names()).toHaveLength(2);
		expect(read(await reopen(log))).toEqual([...ten, 'more']);
	});

	test('a damaged note costs that note', async () => {
		const log = await damaged(() => flip(names()[0], placeOf('note') - 40));
		expect([read(log), log.found]).toEqual([[...ten, '[11-11]'], ['head after 0']]);
	});

	test('a damaged note is told, with the file, also to a reader beside it, until a new file has what is known [F1532]', async () => {
		const log = await damaged(() => flip(names()[0], placeOf('note') + 1));
		for (const each of [log, open({ access: 'read' })])
			expect([each.lacksNotes(), each.damages()]).toMatchObject([true, [{ file: at(names()[0]) }]]);
		await add(log, 'more');
		const later = await reopen(log);
		expect([read(later), names().length, later.lacksNotes()]).toEqual([[...ten, 'more'], 2, false]);
	});

	test('a sector of zeros costs what was in it', async () => {
		const log = open();
		await add(log, ...Array.from({ length: 10 }, (_, index) => `${index} ${'x'.repeat(1000)}`));
		await log.close();
		change(names()[0], 4096, ...Buffer.alloc(4096));
		expect(read(open()).map((text) => text.slice(0, 5))).toEqual([
			'0 xxx',
			'1 xxx',
			'2 xxx',
			'[4-8]',
			'8 xxx',
			'9 xxx',
		]);
	});

	test('the end of the newest file is told, and no number in it is given again', async () => {
		const log = await damaged(() => fs.truncateSync(at(names()[0]), placeOf('record 8') + 2));
		expect(read(log)).toEqual([...ten.slice(0, 7), '[8-8]']);
		await add(log, 'more');
		expect(read(await reopen(log))).toEqual([...ten.slice(0, 7), '[8-8]', 'more']);
	});

	/** Five segments, each with some records of 1,000 bytes; closed. */
	async function givenFive(): Promise<string[]> {
		const log = open({ maxBytes: () => 262_144 });
		await add(log, ...Array.from({ length: 140 }, (_, index) => `${index + 1} ${'x'.repeat(1000)}`));
		await log.close();
		expect(names()).toHaveLength(5);
		return read(open({ access: 'read' }));
	}
	/** The newest file of another device. */
	async function another(): Promise<string> {
		const elsewhere = fs.mkdtempSync(path.join(os.tmpdir(), 'record-log-'));
		onTestFinished(() => fs.rmSync(elsewhere, { recursive: true, force: true }));
		const log = open({ directory: elsewhere });
		await add(log, ...ten);
		return path.join(elsewhere, fs.readdirSync(elsewhere)[0] ?? '');
	}
	const short = (texts: string[]) => texts.map((text) => text.replace(/ x+$/, ''));

	test('a file under the name of another log, or of another place in its own, is unreadable [F1797]', async () => {
		const before = open();
		await add(before, ...ten);
		await before.close();
		const [name = ''] = names();
		fs.copyFileSync(at(name), at(name.replace('test', 'other')));
		fs.copyFileSync(at(name), at(name.replace(/-\d{8}-/, '-00000007-')));
		const other = open({ name: 'other' });
		expect([other.found, read(other), other.damages().map(({ error }) => String(error))]).toEqual([
			[],
			[expect.stringMatching(/^\[/)],
			['Error: nothing in it can be read'],
		]);
		const log = open();
		expect(read(log).slice(0, 10)).toEqual(ten);
		expect(log.damages().map(({ file }) => file)).toEqual([at(name.replace(/-\d{8}-/, '-00000007-'))]);
	});

	test.each([
		['is gone', (file: string) => fs.rmSync(file)],
		['is empty', (file: string) => fs.truncateSync(file)],
		['is cut within its head', (file: string) => fs.truncateSync(file, 60)],
		['is full of zeros', (file: string) => fs.writeFileSync(file, Buffer.alloc(20_000))],
		['is of another device', (file: string) => fs.copyFileSync(at(names()[4]), file)],
		[
			'is a directory',
			(file: string) => {
				fs.rmSync(file);
				fs.mkdirSync(file);
			},
		],
		[
			'is a link',
			(file: string) => {
				fs.renameSync(file, `${file}.elsewhere`);
				fs.symlinkSync(`${file}.elsewhere`, file);
			},
		],
	])('where a file in the middle %s, exactly its records are lost, and it is named', async (_what, damage) => {
		const before = await givenFive();
		const [, name = ''] = names();
		damage(at(name));
		const log = open();
		const after = short(read(log));
		expect(log.damages()[0]?.file).toContain(at(name.slice(0, 13)));
		const lost = after.find((text) => text.startsWith('['));
		const [from = 0, to = 0] = (lost?.match(/\d+/g) ?? []).map(Number);
		expect(to - from).toBeGreaterThan(20);
		expect(after).toEqual([...short(before).slice(0, from - 1), lost, ...short(before).slice(to)]);
	});

	describe.each([
		['the only', 0],
		['the newest', 139],
	])('a ruined %s file', (_which, kept) => {
		test.each([
			['of another device', async (file: string) => fs.copyFileSync(await another(), file)],
			['of zeros', (file: string) => fs.writeFileSync(file, Buffer.alloc(fs.statSync(file).size))],
			['of random bytes', (file: string) => fs.writeFileSync(file, randomBytes(fs.statSync(file).size))],
			['cut to 1 byte', (file: string) => fs.truncateSync(file, 1)],
			['cut within its head', (file: string) => fs.truncateSync(file, 60)],
		])('%s is named at this start and at the next one, and one that is empty is not [F780]', async (_what, ruin) => {
			if (kept > 0) await givenFive();
			else await damaged(() => {});
			const name = names().at(-1);
			await ruin(at(name));
			const log = open();
			expect(log.damages()).toMatchObject([{ file: at(name), error: new Error('nothing in it can be read') }]);
			await add(log, 'more');
			expect(read(await reopen(log)).at(-1)).toBe('more');
			expect(open().damages()).toContainEqual({ file: at(name), error: new Error('nothing in it can be read') });
			for (const each of names().slice(1)) fs.rmSync(at(each));
			fs.truncateSync(at(names()[0]));
			expect(open().damages()).toEqual([]);
		});
	});

	test.each(['a directory', 'a link', 'a pipe', 'a file that may not be read'])(
		'%s in the place of the newest file is named, and what follows is kept beside it',
		async (what) => {
			const before = await givenFive();
			const name = at(names()[4]);
			fs.renameSync(name, path.join(directory, 'elsewhere'));
			if (what === 'a directory') fs.mkdirSync(name);
			if (what === 'a link') fs.symlinkSync(path.join(directory, 'elsewhere'), name);
			if (what === 'a pipe')
				await import('node:child_process').then(({ execFileSync }) => execFileSync('mkfifo', [name]));
			const files: typeof fs = {
				...fs,
				openSync(file, ...more) {
					if (what.startsWith('a file') && file === name) throw Object.assign(new Error('EACCES'), { code: 'EACCES' });
					return fs.openSync(file, ...more);
				},
			};
			if (what.startsWith('a file')) fs.renameSync(path.join(directory, 'elsewhere'), name);
			const log = open({ files });
			expect(log.damages()).toMatchObject([{ file: name }]);
			await add(log, 'later');
			expect(read(log).at(-2)).toMatch(/^\[/);
			await log.close();
			fs.rmSync(name, { recursive: true });
			if (what.startsWith('a file')) return;
			fs.renameSync(path.join(directory, 'elsewhere'), name);
			expect(short(read(open()))).toEqual([...short(before), 'later']);
		},
	);

	test('a sparse file of 3 GB is opened within a second, and named', async () => {
		const log = await damaged(() => fs.truncateSync(at(names()[0]), 3e9));
		expect(read(log).slice(0, 10)).toEqual(ten);
		expect(log.damages()).toMatchObject([{ file: at(names()[0]) }]);
	}, 5000);

	test.each([5_000_000, 3e9])(
		'what was put behind the records of a file takes no room from them: %i bytes [F1697]',
		async (bytes) => {
			let log = await damaged(() => fs.truncateSync(at(names()[0]), bytes));
			await add(log, 'after');
			expect(read(log).filter((text) => !text.startsWith('['))).toEqual([...ten, 'after']);
			expect(log.bytes()).toBeLessThan(1_000_000);
			expect(log.damages()[0]).toMatchObject({ file: at(names()[0]) });
			log = await reopen(log);
			expect(read(log).filter((text) => !text.startsWith('['))).toEqual([...ten, 'after']);
			expect(log.damages()[0]).toMatchObject({ file: at(names()[0]) });
		},
	);

	test('what was put behind the records of an older file while it is open goes with what is given up, however long it is [F1742]', async () => {
		const log = open({ maxBytes: () => 262_144 });
		await add(log, 'first');
		while (names().length < 2) await add(log, 'x'.repeat(10_000));
		const [older] = names();
		fs.appendFileSync(at(older), 'words of a person');
		fs.truncateSync(at(older), 3e9);
		const before = read(log);
		await log.giveUp(true);
		await log.clean();
		expect(fs.readFileSync(at(older)).includes('words of a person')).toBe(false);
		expect(fs.statSync(at(older)).size).toBeLessThan(100_000);
		expect(read(log)).toEqual(before);
	});

	test('files that others have put under its names go with what is given up, and no power cut brings them back [F1992]', async () => {
		const disk = lossyFiles(directory);
		const log = open({ files: disk.files });
		await add(log, 'first');
		const own = names();
		fs.copyFileSync(at(own[0]), at('test-00000009-0123456789abcdef.log'));
		disk.settle();
		await log.giveUp(true);
		disk.cutPower(() => false);
		expect(names()).toEqual(own);
	});

	test('a payload cannot pass for a record', async () => {
		const log = open();
		await add(log, ...ten);
		const whole = fs.readFileSync(at(names()[0]));
		log.append(whole, 0);
		await add(log, 'after');
		await log.close();
		const start = fs.readFileSync(at(names()[0])).lastIndexOf(whole.subarray(0, 56)) - 56;
		flip(names()[0], start + 13);
		// A copy of the file's own records needs its salt: only those who can read the file have it, and even they bring back nothing newer.
		expect(read(open()).at(-1)).toBe('after');
		const other = fs.mkdtempSync(path.join(os.tmpdir(), 'record-log-'));
		onTestFinished(() => fs.rmSync(other, { recursive: true, force: true }));
		const stranger = open({ directory: other });
		stranger.append(whole, 0);
		await add(stranger, 'after');
		await stranger.close();
		const [name = ''] = fs.readdirSync(other);
		const content = fs.readFileSync(path.join(other, name));
		content.fill(0, content.indexOf(whole) - 56, content.indexOf(whole) - 20);
		fs.writeFileSync(path.join(other, name), content);
		expect(read(open({ directory: other }))).toEqual(['[1-1]', 'after']);
	});

	test('after damage at any byte everything else is read as it was written, and what is missing is told', async () => {
		await givenFive();
		const whole = new Map(names().map((name) => [name, fs.readFileSync(at(name))]));
		const before = short(read(open({ access: 'read' })));
		await fc.assert(
			fc.property(
				fc.nat(4),
				fc.double({ min: 0, max: 1, noNaN: true }),
				fc.constantFrom('flip', 'sector', 'noise', 'cut', 'remove', 'twice'),
				fc.uint8Array({ minLength: 300, maxLength: 300 }),
				(index, where, how, noise) => {
					for (const [name, content] of whole) fs.writeFileSync(at(name), content);
					const name = names()[index] ?? '';
					const size = fs.statSync(at(name)).size;
					const place = Math.min(size - 1, Math.floor(where * size));
					if (how === 'flip') flip(name, place);
					if (how === 'sector')
						change(name, place - (place % 512), ...Buffer.alloc(Math.min(512, size - place + (place % 512))));
					if (how === 'noise') change(name, place, ...noise.subarray(0, size - place));
					if (how === 'cut') fs.truncateSync(at(name), place);
					if (how === 'remove') fs.rmSync(at(name));
					if (how === 'twice') fs.appendFileSync(at(name), whole.get(name)?.subarray(-place) ?? '');
					const log = open({ access: 'read' });
					const after = short(read(log));
					void log.close();
					const lost = after.flatMap((text) => {
						const [from = 0, to = -1] = (text.match(/^\[(\d+)-(\d+)\]$/)?.slice(1) ?? []).map(Number);
						return Array.from({ length: Math.max(0, to - from + 1) }, (_, each) => String(from + each));
					});
					const present = after.filter((text) => !text.startsWith('['));
					// Of what was before, and in order.
					expect(present).toEqual(before.filter((text) => present.includes(text)));
					expect(present.filter((text) => lost.includes(text))).toEqual([]);
					const missing = before.filter((text) => !present.includes(text));
					// Nothing follows the end of the newest file, nor comes before the beginning of the oldest.
					const isEdge = (text: string) =>
						(index === 4 && Number(text) > Number(present.at(-1))) ||
						(index === 0 && Number(text) < Number(present[0]));
					expect(missing.filter((text) => !lost.includes(text) && !isEdge(text))).toEqual([]);
					expect(lost.filter((text) => !missing.includes(text) && Number(text) <= before.length)).toEqual([]);
					if (how === 'flip') expect(missing.length).toBeLessThan(2);
					if (how === 'twice') expect([missing, log.count()]).toEqual([[], before.length]);
				},
			),
			{ numRuns: 300 },
		);
	}, 60_000);
});

describe('a disk that fails', () => {
	test.each(['write', 'fdatasync', 'fsync', 'openSync'] as const)(
		'by %s: records are in memory, said so, and on the disk in a new file when it is well',
		async (call) => {
			const disk = lossyFiles(directory);
			const log = open({ files: disk.files });
			if (call !== 'fsync' && call !== 'openSync') await add(log, 'before');
			disk.failure = (failing) => (failing === call ? EIO : null);
			await add(log, 'a', 'b');
			expect(read(log).slice(-2)).toEqual(['a', 'b']);
			expect(log.failures).toEqual([EIO]);
			expect(await log.recover()).toBe(false);
			disk.failure = () => null;
			await add(log, 'c');
			expect(await log.recover()).toBe(true);
			expect(log.failures.at(-1)).toBeNull();
			const all = read(log);
			expect(all.slice(-3)).toEqual(['a', 'b', 'c']);
			expect(read(killed())).toEqual(all);
			expect(read(killed()).join()).not.toContain('[');
		},
	);

	test('a full disk has room again once older records are erased, also where nothing more can be written before [F611]', async () => {
		const disk = lossyFiles(directory);
		const options = { files: disk.files, maxBytes: () => 262_144 };
		const log = open(options);
		await add(log, ...Array.from({ length: 140 }, (_, index) => `${index + 1} ${'x'.repeat(1000)}`));
		const full = Object.assign(new Error('ENOSPC'), { code: 'ENOSPC' });
		const used = () => names().reduce((sum, name) => sum + fs.statSync(at(name)).size, 0);
		const capacity = used();
		disk.failure = (call) => (call === 'write' && used() + 5000 > capacity ? full : null);
		await add(log, 'more');
		expect(await log.recover()).toBe(false);
		log.erase(100);
		expect(await log.recover()).toBe(true);
		expect(log.failures.at(-1)).toBeNull();
		const rest = read(log);
		expect([rest.length, rest.at(-1)]).toEqual([41, 'more']);
		expect(read(killed()).slice(-41)).toEqual(rest);
	});

	test('a full disk on which all files make room is written to as soon as it has room [F1801]', async () => {
		const files = { ...fs };
		const log = open({ files, maxBytes: () => 100_000 });
		await add(log, 'x'.repeat(20_000));
		log.erase(100);
		files.openSync = (...given) => {
			if (String(given[1]) !== String(fs.constants.O_RDONLY) && given[1] !== 'r')
				throw Object.assign(new Error('ENOSPC'), { code: 'ENOSPC' });
			return fs.openSync(...given);
		};
		await add(log, 'y'.repeat(20_000));
		expect(log.failures.map(String)).toEqual(['Error: ENOSPC']);
		files.openSync = fs.openSync;
		expect(await log.recover()).toBe(true);
		expect(read(log).at(-1)).toBe('y'.repeat(20_000));
	});

	test('a write that did not fit, and went to the next file later, is no damage [F791]', async () => {
		const disk = lossyFiles(directory);
		const log = open({ files: disk.files });
		await add(log, 'before');
		const [first] = names();
		const full = Object.assign(new Error('ENOSPC'), { code: 'ENOSPC' });
		disk.failure = (call) => (call === 'write' ? full : null);
		for (const part of ['one', 'two', 'three']) log.append(bytes(part), 1000);
		await log.settled();
		// What was on the disk when it had no more room.
		fs.appendFileSync(at(first), Buffer.alloc(100, 7));
		disk.failure = () => null;
		expect(await log.recover()).toBe(true);
		const next = await reopen(log);
		expect([names().length, read(next), next.damages()]).toEqual([2, ['before', 'one', 'two', 'three'], []]);
		// The same at the end of a file whose records are known to be missing is damage.
		await next.close();
		fs.truncateSync(at(first), fs.readFileSync(at(first)).indexOf('before') + 2);
		expect(
			open()
				.damages()
				.map(({ file }) => file),
		).toContain(at(first));
	});

	test('a flush that failed once is not repeated on the same file: its group goes to a new one, and no warning is needed', async () => {
		const disk = lossyFiles(directory);
		const log = open({ files: disk.files });
		await add(log, 'before');
		const [first] = names();
		let failures = 1;
		disk.failure = (call) => (call === 'fdatasync' && failures-- > 0 ? EIO : null);
		disk.calls.length = 0;
		await add(log, 'a');
		await add(log, 'b');
		expect(disk.calls.filter((call) => call === `fdatasync ${first}`)).toHaveLength(1);
		expect(log.failures).toEqual([]);
		expect(names()).toHaveLength(2);
		expect(read(killed())).toEqual(['before', 'a', 'b']);
	});

	test('a file that was removed while it is open takes nothing more: what comes goes to a new one, and a directory that is gone is told [F1575]', async () => {
		const log = open();
		await add(log, 'before');
		fs.unlinkSync(at(names()[0]));
		await add(log, 'a');
		await add(log, 'b');
		expect(names()).toHaveLength(1);
		expect(read(log)).toEqual(['before', 'a', 'b']);
		expect(read(killed()).slice(-2)).toEqual(['a', 'b']);
		expect(log.failures).toEqual([]);
		fs.rmSync(directory, { recursive: true });
		await add(log, 'c');
		expect(log.failures).toMatchObject([{ code: 'ENOENT' }]);
		fs.mkdirSync(directory);
	});

	test('what it holds in memory is bounded: the oldest go first', async () => {
		const disk = lossyFiles(directory);
		const log = open({ files: disk.files, maxBytes: () => 65_536 });
		disk.failure = () => EIO;
		for (let count = 0; count < 200; count += 1) await add(log, `${count} ${'x'.repeat(1000)}`);
		expect(log.bytes()).toBeLessThanOrEqual(65_536 + 2000);
		disk.failure = () => null;
		expect(await log.recover()).toBe(true);
		const kept = read(await reopen(log));
		expect(kept.at(-1)).toMatch(/^199 /);
		expect(kept.join()).not.toContain('[');
	});

	test('a directory that cannot be read at the start is read later, and its records come first', async () => {
		const before = open();
		await add(before, ...ten);
		await before.close();
		const disk = lossyFiles(directory);
		disk.failure = (call) => (call === 'readdirSync' ? EIO : null);
		const log = open({ files: disk.files });
		await add(log, 'later');
		expect([read(log), log.failures, log.found]).toEqual([['later'], [EIO], []]);
		disk.failure = () => null;
		expect(await log.recover()).toBe(true);
		expect(log.found).toEqual(['head after 0']);
		expect(read(log)).toEqual([...ten, 'later']);
		expect(read(await reopen(log))).toEqual([...ten, 'later']);
	});

	test('a sector that cannot be read costs what is in it, as long as it cannot be read', async () => {
		const before = open();
		await add(before, ...ten);
		await before.close();
		const disk = lossyFiles(directory);
		const log = open({ files: disk.files });
		disk.failure = (call) => (call === 'readSync' ? EIO : null);
		expect(read(log)).toEqual(['[1-10]']);
		disk.failure = () => null;
		expect(read(log)).toEqual(ten);
	});

	test('contents that cannot be erased now are erased when it is tried again', async () => {
		const disk = lossyFiles(directory);
		const log = open({ files: disk.files });
		await add(log, ...ten);
		log.erase(3);
		disk.failure = (call) => (call === 'fdatasync' ? EIO : null);
		await expect(log.clean()).rejects.toBe(EIO);
		disk.failure = () => null;
		await log.clean();
		expect(placeOf('record 2')).toBe(-1);
		await add(log, 'more');
		expect(read(killed())).toEqual([...ten.slice(3), 'more']);
	});

	test('an erasure costs what is erased, and a sector between that cannot be read meanwhile costs nothing [F703]', async () => {
		const disk = lossyFiles(directory);
		const log = open({ files: disk.files });
		const texts = Array.from({ length: 40 }, (_, index) => `record ${index + 1} ${'x'.repeat(1000)}`);
		for (const text of texts) log.append(bytes(text), 1000, Uint8Array.of(7));
		await log.settled();
		log.erase([2, 30], 'room');
		disk.badSector = [8192, 12_288];
		await log.clean();
		disk.badSector = null;
		const left = texts.filter((_, index) => index !== 1 && index !== 29);
		expect(read(log).filter((text) => !text.startsWith('['))).toEqual(left);
		const again = killed();
		expect(read(again).filter((text) => !text.startsWith('['))).toEqual(left);
		expect(again.damages()).toEqual([]);
		for (const number of [2, 30]) expect(placeOf(`record ${number} xxx`)).toBe(-1);
	});

	test('an erasure in a sector that cannot be read takes its own records only, and their times stay [F704]', async () => {
		const disk = lossyFiles(directory);
		const log = open({ files: disk.files });
		const texts = Array.from({ length: 40 }, (_, index) => `record ${index + 1} ${'x'.repeat(1000)}`);
		for (const text of texts) log.append(bytes(text), 1000, Uint8Array.of(7));
		await log.settled();
		// Of 10 the header is in it, and of 9, 11 and 12 as well.
		log.erase([9, 10, 12], 'room');
		disk.badSector = [8192, 12_288];
		await log.clean();
		disk.badSector = null;
		const again = killed();
		expect(read(again)).toEqual(read(log));
		const short = read(again).map((text) => text.replace(/^record (\d+) x+$/, '$1'));
		expect(short.slice(7, 12)).toEqual(['8', '[9-10]', '11', '[12-12]', '13']);
		expect(short).toHaveLength(39);
		expect([9, 10, 11, 12].map(again.timeOf)).toEqual([1000, 1000, 1000, 1000]);
		for (const number of [9, 10, 12]) expect(placeOf(`record ${number} xxx`)).toBe(-1);
	});

	test('an erasure writes what it erases, with one flush for what it declares and one for what it overwrites', async () => {
		const disk = lossyFiles(directory);
		const log = open({ files: disk.files, maxBytes: () => 8e6 });
		await add(log, ...Array.from({ length: 900 }, () => 'x'.repeat(1000)));
		const calls = async (numbers: number[]) => {
			[disk.calls.length, disk.written] = [0, 0];
			log.erase(numbers);
			await log.clean();
			return disk.calls.map((call) => call.split(' ')[0]).filter((call) => call !== 'readSync');
		};
		expect(await calls([2, 890])).toEqual(['write', 'write', 'fdatasync', 'write', 'write', 'fdatasync']);
		expect(disk.written).toBeLessThan(5000);
		const many = Array.from({ length: 500 }, (_, index) => index + 100);
		expect(await calls(many)).toEqual(['write', 'fdatasync', 'write', 'fdatasync']);
	});

	test('one that cannot keep up holds nothing up: it counts as failing until it has caught up', async () => {
		const disk = lossyFiles(directory);
		const log = open({ files: disk.files, maxBytes: () => 1e8 });
		await add(log, 'before');
		for (let count = 0; count < 100; count += 1) log.append(Buffer.alloc(100_000), 0);
		expect(log.failures).toMatchObject([expect.any(Error)]);
		expect(log.last()).toBeGreaterThan(40);
		await log.recover();
		expect(log.failures.at(-1)).toBeNull();
		expect(log.count()).toBe(101);
	});
});

describe('a power cut or a kill', () => {
	const step = fc.oneof(
		{ weight: 6, arbitrary: fc.record({ do: fc.constant('append' as const), n: fc.nat(6), size: fc.nat(5000) }) },
		{ weight: 2, arbitrary: fc.record({ do: fc.constant('erase' as const), n: fc.nat(30), size: fc.nat(1) }) },
		{
			weight: 1,
			arbitrary: fc.record({ do: fc.constantFrom('clean' as const, 'kill' as const), n: fc.nat(1), size: fc.nat(1) }),
		},
		{
			weight: 2,
			arbitrary: fc.record({
				do: fc.constantFrom('cut' as const, 'cut in between' as const, 'fail' as const),
				n: fc.nat(9),
				size: fc.nat(1000),
			}),
		},
	);

	test('at any moment leaves what was stored, nothing that was erased, and nothing that was never written', async () => {
		await fc.assert(
			fc.asyncProperty(fc.array(step, { maxLength: 40 }), fc.infiniteStream(fc.boolean()), async (steps, chances) => {
				fs.rmSync(directory, { recursive: true });
				fs.mkdirSync(directory);
				const disk = lossyFiles(directory);
				const chance = () => chances.next().value as boolean;
				const start = () => open({ files: disk.files, maxBytes: () => 300_000 });
				let log = start();
				/** By number. */
				const stored = new Map<number, string>();
				const erased = new Set<number>();
				/** What may or may not be there. */
				const pending = new Map<number, string>();
				let failing = 0;
				disk.failure = (call) =>
					failing > 0 && call !== 'readSync' && call !== 'readdirSync' && failing-- > 0 ? EIO : null;
				const check = () => {
					const first = log.first();
					for (const found of log.after(0)) {
						if (!('payload' in found)) {
							for (let number = found.lostFrom; number <= found.number; number += 1)
								expect(stored.has(number)).toBe(false);
							continue;
						}
						const text = Buffer.from(found.payload).toString();
						expect([stored.get(found.number), pending.get(found.number)]).toContain(text);
						expect(erased.has(found.number)).toBe(false);
					}
					const present = new Set(Array.from(log.after(0), ({ number }) => number));
					for (const number of stored.keys())
						if (number >= first && !present.has(number)) expect([number, 'missing']).toEqual([]);
					expect(log.bytes()).toBeLessThanOrEqual(300_000 + 12_000);
				};
				const restart = () => {
					pending.clear();
					for (const found of log.after(0))
						if ('payload' in found) pending.set(found.number, Buffer.from(found.payload).toString());
					void log.close();
				};
				for (const { do: name, n, size } of steps) {
					if (name === 'append') {
						const texts = Array.from({ length: n }, (_, each) => `${log.last()} ${each} ${'x'.repeat(size)}`);
						const numbers = texts.map((text) => log.append(bytes(text), 0));
						await log.settled();
						const isSafe = log.failures.at(-1) === undefined || log.failures.at(-1) === null;
						for (const [index, number] of numbers.entries())
							(isSafe ? stored : pending).set(number, texts[index] ?? '');
					}
					if (name === 'erase') {
						const upTo = Math.min(log.first() + n - 1, log.last());
						log.erase(upTo);
						const gone = [...stored].filter(([number]) => number <= upTo);
						for (const [number] of gone) stored.delete(number);
						const isClean = await log.clean().then(
							() => true,
							() => false,
						);
						if (isClean) for (let number = 1; number <= upTo; number += 1) erased.add(number);
						// Then it may come back with the next start.
						else for (const [number, text] of gone) pending.set(number, text);
					}
					if (name === 'clean') await log.clean().catch(() => {});
					if (name === 'fail') failing = n;
					if (name === 'kill' || name === 'cut' || name === 'cut in between') {
						const failed = log.failures.at(-1) ?? null;
						if (name === 'cut in between') {
							const text = 'y'.repeat(size);
							pending.set(log.append(bytes(text), 0), text);
							for (let turn = 0; turn < n; turn += 1) await new Promise(setImmediate);
						}
						failing = 0;
						disk.failure = () => EIO;
						await log.settled();
						if (name !== 'kill') disk.cutPower(chance);
						const before = new Map([...pending]);
						restart();
						for (const [number, text] of before) pending.set(number, text);
						await new Promise(setImmediate);
						disk.failure = (call) =>
							failing > 0 && call !== 'readSync' && call !== 'readdirSync' && failing-- > 0 ? EIO : null;
						if (failed !== null)
							for (const number of [...stored.keys()])
								if (
									!new Set(Array.from(open({ files: disk.files, access: 'read' }).after(0), (each) => each.number)).has(
										number,
									)
								)
									stored.delete(number);
						log = start();
					}
					check();
				}
				failing = 0;
				await log.close();
			}),
			{ numRuns: 100 },
		);
	}, 60_000);
});
