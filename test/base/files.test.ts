import { execFileSync } from 'node:child_process';
import fsSync from 'node:fs';
import fs, { type FileHandle } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { checkSocketPath, errnoOf, inWords, overwrite, readText, writeDurably } from '../../src/base/files.edge.ts';
import { findGroup, findUser } from '../../src/base/unix.edge.ts';
import { createEventStore } from '../../src/events/store.edge.ts';
import { replaceFile } from '../../src/operator/secret-output.runner.ts';
import { openAnswerFile } from '../../src/pairing/kept-answer.edge.ts';
import { wipe, writeDurably as writeProvisioned } from '../../src/provisioning/files.edge.ts';
import { EMPTY_STATE } from '../../src/state/device-state.ts';
import { openStateStore } from '../../src/state/store.edge.ts';
import { recordDisk } from '../fixtures/recorded-disk.ts';

let directory: string;
const at = (name: string) => path.join(directory, name);
const IN_PLACE = ['rename state.json.new to state.json', 'rename state.json.bak.new to state.json.bak'];

beforeEach(() => {
	directory = fsSync.mkdtempSync(path.join(os.tmpdir(), 'files-'));
});

afterEach(() => {
	vi.restoreAllMocks();
	fsSync.rmSync(directory, { recursive: true });
});

describe('what is written survives a power cut: content is flushed before its name changes, and the name after', () => {
	test('a file', async () => {
		const asked = await recordDisk(directory);
		await writeDurably(at('file'), 'content');
		expect(asked).toEqual(['write temporary', 'sync temporary', 'rename temporary to file', 'sync .']);
	});

	test('a state: two whole copies, both flushed before either takes its place', async () => {
		const store = await openStateStore(directory);
		await store.save(EMPTY_STATE);
		const asked = await recordDisk(directory);
		await store.save({ ...EMPTY_STATE, generatedId: 'device-1' });
		expect(asked.slice(0, 2)).toEqual(['write state.json.new', 'write state.json.bak.new']);
		// At the same time: in either order.
		expect(asked.slice(2, 4).toSorted()).toEqual(['sync state.json.bak.new', 'sync state.json.new']);
		expect(asked.slice(4)).toEqual([...IN_PLACE, 'sync .']);
		await store.close();
	});

	test('a state that forgets the one before it', async () => {
		const store = await openStateStore(directory);
		await store.save(EMPTY_STATE);
		await store.save({ ...EMPTY_STATE, generatedId: 'device-1' });
		const asked = await recordDisk(directory);
		await store.save(EMPTY_STATE, { forgetsOlder: true });
		expect(asked.slice(4)).toEqual([...IN_PLACE, 'sync .', 'sync .']);
		// Nothing new to write: what is forgotten has to be flushed all the same.
		fsSync.writeFileSync(at('state.json.corrupt-1'), '{}');
		asked.length = 0;
		await store.save(EMPTY_STATE, { forgetsOlder: true });
		expect(asked).toEqual(['sync .']);
		expect(fsSync.existsSync(at('state.json.corrupt-1'))).toBe(false);
		await store.close();
	});

	test('a state that was whole when its save was cut off, with the outcome of an attempt that is open', async () => {
		const store = await openStateStore(directory);
		const attempt = { attemptId: '1', tokenHash: 'h', host: 'service.test', at: '2026-11-21T05:00:00.000Z' };
		await store.save({ ...EMPTY_STATE, attempt });
		await store.close();
		fsSync.writeFileSync(at('state.json.new'), `${JSON.stringify(EMPTY_STATE)}\n`);
		const asked = await recordDisk(directory);
		const again = await openStateStore(directory);
		expect((await again.load()).state).toEqual(EMPTY_STATE);
		expect(asked.slice(0, 3)).toEqual(['sync state.json.new', IN_PLACE[0], 'sync .']);
		expect(asked.slice(-3)).toEqual([...IN_PLACE, 'sync .']);
		await again.close();
	});

	test('a damaged state that is set aside', async () => {
		fsSync.writeFileSync(at('state.json'), '{');
		const store = await openStateStore(directory);
		const asked = await recordDisk(directory);
		await store.load();
		expect(asked).toEqual([expect.stringMatching(/^rename state\.json to state\.json\.corrupt-/), 'sync .']);
		await store.close();
	});

	test('an answer that is kept, and one that is not kept any more', async () => {
		const file = await openAnswerFile(directory);
		const asked = await recordDisk(directory);
		await file.save({} as never);
		const names = ['unread-answer.json.new', 'unread-answer.json'];
		expect(asked.splice(0)).toEqual([
			`write ${names[0]}`,
			`sync ${names[0]}`,
			`rename ${names.join(' to ')}`,
			'sync .',
		]);
		await file.remove();
		expect(asked).toEqual([`remove ${names[1]}`, 'sync .']);
	});

	test('the newest events, before anyone is told of them', async () => {
		const store = createEventStore({
			directory,
			epoch: 'run1',
			bounds: { maxCount: 1000, maxBytes: 1_000_000, maxAgeMs: 1_000_000 },
			onNotice: () => {},
		});
		const asked = await recordDisk(directory);
		const append = async (content: string) => {
			const told: number[] = [];
			store.subscribe(() => told.push(asked.length));
			store.append({
				at: '',
				type: 'notification',
				kind: 'k',
				workflowId: 'w',
				format: 'json',
				content,
				serviceId: null,
			});
			await store.settled();
			return told[0];
		};
		// A file of its own for the log, its name, and then the same file.
		expect(await append('1')).toBe(3);
		const [file] = fsSync.readdirSync(directory);
		expect(asked.splice(0)).toEqual([`write ${file}`, `datasync ${file}`, 'sync .']);
		expect(await append('2')).toBe(2);
		expect(asked.splice(0)).toEqual([`write ${file}`, `datasync ${file}`]);
		await store.close();
		expect(asked).toEqual([]);
	});

	test('what is provisioned, and the secret that is wiped', async () => {
		const asked = await recordDisk(directory);
		await writeProvisioned(at('config.json'), '{}', 0o644);
		expect(asked.splice(0)).toEqual([
			'write config.json.new',
			'sync config.json.new',
			'rename config.json.new to config.json',
			'sync .',
		]);
		fsSync.writeFileSync(at('provision.json'), '{"secret":"…"}');
		await wipe(at('provision.json'), '{}');
		expect(asked).toEqual([
			'write provision.json',
			'sync provision.json',
			'truncate provision.json',
			'sync provision.json',
			'rename provision.json to provision.json.used',
			'sync .',
		]);
	});

	test('the file of an operator', async () => {
		const asked = await recordDisk(directory);
		await replaceFile(at('plan.json'), '{}', 0o644);
		expect(asked).toEqual(['write temporary', 'sync temporary', 'rename temporary to plan.json', 'sync .']);
	});
});

describe('a write', () => {
	test('goes on where an earlier one was cut off', async () => {
		fsSync.writeFileSync(at('config.json.new'), 'of another life');
		await writeProvisioned(at('config.json'), '{}', 0o644);
		expect(fsSync.readFileSync(at('config.json'), 'utf8')).toBe('{}');
		expect(fsSync.readdirSync(directory)).toEqual(['config.json']);
	});

	test('that fails leaves the old content and nothing beside it', async () => {
		await writeDurably(at('file'), 'old');
		const full = Object.assign(new Error(), { code: 'ENOSPC' });
		await expect(writeDurably(at('file'), 'new', { beforeRename: () => Promise.reject(full) })).rejects.toBe(full);
		expect(fsSync.readdirSync(directory)).toEqual(['file']);
		expect(fsSync.readFileSync(at('file'), 'utf8')).toBe('old');
	});

	test('that the disk does not take for certain is none', async () => {
		await writeDurably(at('file'), 'old');
		const broken = Object.assign(new Error(), { code: 'EIO' });
		vi.spyOn(fsSync, 'fsync').mockImplementationOnce((_descriptor, done) => done(broken));
		await expect(writeDurably(at('file'), 'new')).rejects.toBe(broken);
		expect(fsSync.readdirSync(directory)).toEqual(['file']);
		expect(fsSync.readFileSync(at('file'), 'utf8')).toBe('old');
	});

	test('of a state is tried out with the room for its two copies, 8 KiB at least', async () => {
		const store = await openStateStore(directory);
		const sizes: number[] = [];
		const { fsync } = fsSync;
		vi.spyOn(fsSync, 'fsync').mockImplementation((descriptor, done) => {
			const stat = fsSync.fstatSync(descriptor);
			if (stat.isFile()) sizes.push(stat.size);
			fsync(descriptor, done);
		});
		await store.probe();
		await store.save({ ...EMPTY_STATE, confirmedOrigins: [`https://${'x'.repeat(20_000)}.example`] });
		await store.probe();
		const { size } = fsSync.statSync(at('state.json'));
		const id = fsSync.statSync(at('state.id')).size;
		expect(sizes.slice(0, 4)).toEqual([8192, size, size, id]);
		expect(sizes[4]).toBeGreaterThan(2 * size);
		await store.close();
	});

	test('of which the disk has stored a part only is none', async () => {
		await writeDurably(at('file'), 'old');
		const { fsync } = fsSync;
		vi.spyOn(fsSync, 'fsync').mockImplementationOnce((descriptor, done) => {
			fsSync.ftruncateSync(descriptor, 1);
			fsync(descriptor, done);
		});
		await expect(writeDurably(at('file'), 'new')).rejects.toThrow('only 1 of 3 bytes were stored');
		expect(fsSync.readdirSync(directory)).toEqual(['file']);
		expect(fsSync.readFileSync(at('file'), 'utf8')).toBe('old');
	});

	test('has the mode that was asked for, whatever the umask', async () => {
		const umask = process.umask(0o077);
		try {
			await writeDurably(at('open'), '', { mode: 0o644 });
			await writeDurably(at('closed'), '');
		} finally {
			process.umask(umask);
		}
		expect(fsSync.statSync(at('open')).mode & 0o777).toBe(0o644);
		expect(fsSync.statSync(at('closed')).mode & 0o777).toBe(0o600);
	});
});

describe('a read', () => {
	const reasonOf = (file: string, maxBytes = 4) =>
		readText(file, maxBytes, { refuseLink: true }).then(
			(text) => `read: ${text}`,
			(error) => `${errnoOf(error)}: ${inWords(error)}`,
		);

	test('takes what fits, and says why it takes nothing else', async () => {
		fsSync.writeFileSync(at('fits'), '\ufeffa');
		fsSync.writeFileSync(at('large'), '12345');
		fsSync.writeFileSync(at('latin'), Buffer.from([0xe4]));
		fsSync.symlinkSync(at('fits'), at('link'));
		execFileSync('mkfifo', [at('pipe')]);
		expect(await reasonOf(at('fits'))).toBe('read: a');
		expect(await reasonOf(at('large'))).toBe('too-large: it is larger than 4 bytes');
		expect(await reasonOf(at('latin'))).toBe('not-utf8: it is not UTF-8');
		expect(await reasonOf(at('pipe'))).toBe('not-regular: it is not a regular file');
		expect(await reasonOf(directory)).toBe('not-regular: it is not a regular file, but a directory');
		expect(await reasonOf(at('none'))).toBe('ENOENT: it is not there (ENOENT)');
		expect(await reasonOf(at('link'))).toContain('ELOOP: it is a link');
	});

	test('of a file that is too large reads nothing, also of one of nothing but holes [F1586]', async () => {
		fsSync.writeFileSync(at('holes'), '');
		fsSync.truncateSync(at('holes'), 2 ** 42);
		fsSync.writeFileSync(at('whole'), 'x'.repeat(65_536));
		expect(await reasonOf(at('whole'), 65_536)).toMatch(/^read: x+$/);
		// So much that no buffer could be had for it.
		expect(await reasonOf(at('holes'), 2 ** 41)).toBe(`too-large: it is larger than ${2 ** 41} bytes`);
	});

	test('is bounded by what is read, not by the size that the system names', async () => {
		expect(fsSync.statSync('/proc/self/maps').size).toBe(0);
		expect(await reasonOf('/proc/self/maps')).toBe('too-large: it is larger than 4 bytes');
	});
});

test('a file that is written over has nothing behind its new content [F1859]', async () => {
	fsSync.writeFileSync(at('file'), 'the longer content from before');
	await overwrite(at('file'), 'short');
	expect(fsSync.readFileSync(at('file'), 'utf8')).toBe('short');
});

test('users and groups are found by name and by number', async () => {
	expect(await findUser('root')).toEqual({ name: 'root', uid: 0, gid: 0 });
	expect(await findUser(0)).toEqual(await findUser('root'));
	expect(await findGroup('root')).toMatchObject({ name: 'root', gid: 0 });
	expect(await findGroup(0)).toEqual(await findGroup('root'));
	expect(await findGroup('no-such-group')).toBeNull();
	expect(await findUser('')).toBeNull();
});

test('the path of a socket has to fit its address', () => {
	const fits = `/${'é'.repeat(53)}`;
	expect(checkSocketPath(fits)).toBe(fits);
	expect(() => checkSocketPath(`${fits}x`)).toThrow(/may have 107 bytes; .* has 108\./);
});

test('a wipe writes over every byte that the file had before it cuts it', async () => {
	const file = at('provision.json');
	const before = `{"apiKey":"${'s'.repeat(3000)}"}`;
	fsSync.writeFileSync(file, before);
	// A second name for what the open file has, as it is when the file is cut.
	const probe = await fs.open(directory);
	const handles = Object.getPrototypeOf(probe) as FileHandle;
	await probe.close();
	const { truncate } = handles;
	let atCut = '';
	vi.spyOn(handles, 'truncate').mockImplementation(function (this: FileHandle, length) {
		atCut = fsSync.readFileSync(file, 'utf8');
		return truncate.call(this, length);
	});
	await wipe(file, '{}');
	expect(atCut).toBe('{}'.padEnd(before.length));
	expect(fsSync.readFileSync(`${file}.used`, 'utf8')).toBe('{}');
});
