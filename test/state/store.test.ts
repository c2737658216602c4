import { type ChildProcess, execFileSync, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, onTestFinished, test } from 'vitest';
import { type AgentError, CATALOGUE, type Failure } from '../../src/base/errors.ts';
import { lookAtState } from '../../src/state/copies.edge.ts';
import { type DeviceState, EMPTY_STATE } from '../../src/state/device-state.ts';
import { MAX_QUARANTINED, openStateStore, type StateStore } from '../../src/state/store.edge.ts';
import { linesOf, writerProcesses } from '../fixtures/writer-processes.ts';

const WRITER = path.join(import.meta.dirname, 'state-writer.ts');
const TOKEN = 'a-connection-token-that-is-secret';

let directory: string;
let stateDir: string;
const stores = new Set<StateStore>();
const writers = writerProcesses(WRITER);

beforeEach(() => {
	directory = fs.mkdtempSync(path.join(os.tmpdir(), 'state-store-'));
	stateDir = path.join(directory, 'state');
});

afterEach(async () => {
	for (const store of stores) await store.close();
	stores.clear();
	await writers.killAll();
	fs.rmSync(directory, { recursive: true });
});

async function open(): Promise<StateStore> {
	const store = await openStateStore(stateDir);
	stores.add(store);
	return store;
}

/** Opens, does and closes, as one life of the agent. */
async function withStore<Result>(run: (store: StateStore) => Promise<Result>): Promise<Result> {
	const store = await open();
	try {
		return await run(store);
	} finally {
		await store.close();
	}
}

const at = (name: string) => path.join(stateDir, name);
const COPIES = ['state.json', 'state.json.bak'];
const SAVED = ['lock.db', 'state.id', ...COPIES];
const files = () => fs.readdirSync(stateDir).sort();
const read = (name: string) => fs.readFileSync(at(name), 'utf8');
const named = (id: string): DeviceState => ({ ...EMPTY_STATE, generatedId: id });
const paired: DeviceState = {
	...named('device-1'),
	pairing: { baseUrl: 'https://id.example.com', sessionId: null, pairedAt: '2026-11-21T03:00:00Z' },
	connections: [
		{
			baseUrl: 'https://id.example.com',
			request: { deviceId: 'device-1', workflowId: 'onboarding' },
			credentialId: '',
			token: TOKEN,
			obtainedAt: '2026-11-21T03:00:00Z',
		},
	],
};

async function failureOf(promise: Promise<unknown>): Promise<Failure> {
	const error = await promise.then(
		() => {
			throw new Error('It was expected to fail.');
		},
		(reason: AgentError) => reason,
	);
	expect(error.name).toBe('AgentError');
	return error.failure;
}

async function firstLine(child: ChildProcess): Promise<string> {
	for await (const line of linesOf(child)) return line;
	throw new Error('It ended without a word.');
}

/** Runs as a user to whom permissions apply, also when the tests run as root. */
async function unprivileged<Result>(run: () => Promise<Result>): Promise<Result> {
	const isRoot = process.geteuid?.() === 0;
	if (isRoot) process.seteuid?.(65534);
	try {
		return await run();
	} finally {
		if (isRoot) process.seteuid?.(0);
	}
}

/** The state directory in the hands of the user of {@link unprivileged}. */
function giveAway(): void {
	if (process.geteuid?.() !== 0) return;
	fs.chmodSync(directory, 0o755);
	for (const name of ['', ...files()]) fs.chownSync(path.join(stateDir, name), 65534, 65534);
}

describe('saving and loading', () => {
	test('a device without a state has the empty one, and nothing to be told', async () => {
		const store = await open();
		expect(await store.load()).toEqual({ state: EMPTY_STATE, notices: [] });
	});

	test('what was saved is loaded by the next process', async () => {
		await withStore((store) => store.save(paired));
		expect(await withStore((store) => store.load())).toEqual({ state: paired, notices: [] });
	});

	test('any state comes back as it was', async () => {
		const store = await open();
		await fc.assert(
			fc.asyncProperty(fc.string({ unit: 'binary' }), fc.array(fc.string(), { maxLength: 16 }), async (id, origins) => {
				const state = { ...EMPTY_STATE, generatedId: id.toWellFormed(), confirmedOrigins: origins };
				await store.save(state);
				expect((await store.load()).state).toEqual(state);
			}),
			{ numRuns: 15 },
		);
	});

	test('the directory is 0700 and every file in it 0600', async () => {
		const store = await open();
		await store.save(named('one'));
		await store.save(paired);
		expect(fs.statSync(stateDir).mode & 0o777).toBe(0o700);
		expect(files()).toEqual(SAVED);
		for (const name of files()) expect([name, fs.statSync(at(name)).mode & 0o777]).toEqual([name, 0o600]);
	});

	test('a state that others may read is closed to them', async () => {
		await withStore((store) => store.save(paired));
		for (const mode of [0o604, 0o640, 0o620]) {
			fs.chmodSync(at('state.json'), mode);
			await withStore((store) => store.load());
			expect(fs.statSync(at('state.json')).mode & 0o777).toBe(0o600);
		}
	});

	test('an equal state writes nothing, in this life and in the next', async () => {
		const looks = () =>
			files().map((name) => {
				const { ino, mtimeNs, ctimeNs } = fs.statSync(at(name), { bigint: true });
				return { name, ino, mtimeNs, ctimeNs };
			});
		const first = await open();
		await first.save(named('one'));
		await first.save(paired);
		const before = [looks(), fs.statSync(stateDir, { bigint: true }).ctimeNs];
		await first.save(structuredClone(paired));
		await first.close();
		await withStore(async (store) => {
			await store.load();
			await store.save(paired);
		});
		await withStore((store) => store.save(paired));
		expect([looks(), fs.statSync(stateDir, { bigint: true }).ctimeNs]).toEqual(before);
	});

	test('the lock is an empty file without a journal', async () => {
		await open();
		expect(files()).toEqual(['lock.db']);
		expect(fs.statSync(at('lock.db')).size).toBe(0);
	});

	test('saves that overlap are done in their order, each as it was at the call', async () => {
		const store = await open();
		const state = { ...EMPTY_STATE, generatedId: 'first' };
		const saved = [store.save(state)];
		state.generatedId = 'second';
		saved.push(store.save(state));
		state.generatedId = 'never saved';
		await Promise.all(saved);
		for (const name of COPIES) expect(JSON.parse(read(name)).generatedId).toBe('second');
	});

	test('a state that could not be loaded again is not saved', async () => {
		const store = await open();
		await store.save(paired);
		const connection = paired.connections.slice(0, 1);
		const tooMany = { ...paired, connections: [...connection, ...connection, ...connection] };
		expect((await failureOf(store.save(tooMany))).code).toBe('internal');
		expect((await store.load()).state).toEqual(paired);
	});

	test('closing waits for the saves under way and ends the rest', async () => {
		const store = await open();
		const saved = store.save(paired);
		await Promise.all([store.close(), store.close()]);
		await saved;
		expect(read('state.json')).toContain(TOKEN);
		expect((await failureOf(store.save(EMPTY_STATE))).code).toBe('internal');
	});
});

describe('forgetting', () => {
	test('a token that is gone from the state is gone from every file, also of a directory that was set aside, and nothing that it links to is touched [F1062]', async () => {
		await withStore((store) => store.save(paired));
		fs.copyFileSync(at('state.json'), at('state.json.corrupt-2026-01-01T00-00-00.000Z.json'));
		const aside = at('state.json.corrupt-2026-01-02T00-00-00.000Z.json');
		const elsewhere = fs.mkdtempSync(path.join(os.tmpdir(), 'elsewhere-'));
		onTestFinished(() => fs.rmSync(elsewhere, { recursive: true }));
		fs.mkdirSync(path.join(aside, 'backup'), { recursive: true });
		fs.copyFileSync(at('state.json'), path.join(aside, 'backup', 'state.json'));
		fs.writeFileSync(path.join(elsewhere, 'evidence'), '');
		fs.symlinkSync(elsewhere, path.join(aside, 'link'));
		await withStore(async (store) => {
			await store.save({ ...paired, generatedId: 'device-2' });
			await store.save(named('device-2'), { forgetsOlder: true });
		});
		expect(files()).toEqual(SAVED);
		expect(fs.readdirSync(elsewhere)).toEqual(['evidence']);
		for (const name of COPIES) expect(read(name)).not.toContain(TOKEN);
	});

	test('it also does so when the state itself was saved already, or found only as a copy', async () => {
		await withStore(async (store) => {
			await store.save(EMPTY_STATE);
			fs.writeFileSync(at('state.json.corrupt-2026-01-01T00-00-00.000Z.json'), TOKEN);
			await store.save(EMPTY_STATE, { forgetsOlder: true });
			expect(files()).toEqual(SAVED);
			await store.save(paired);
		});
		fs.rmSync(at('state.json'));
		await withStore((store) => store.save(EMPTY_STATE, { forgetsOlder: true }));
		expect(files()).toEqual(SAVED);
		for (const name of COPIES) expect(read(name)).not.toContain(TOKEN);
	});
});

describe('damaged files', () => {
	const whole = `${JSON.stringify(paired)}\n`;
	const damages: [string, string | Buffer][] = [
		['empty', ''],
		['cut short', whole.slice(0, 100)],
		['zeros after a power cut', Buffer.alloc(512)],
		['not UTF-8', Buffer.from([0x7b, 0xff, 0x7d])],
		['another kind of document', '[]'],
		['a field of the wrong type', JSON.stringify({ ...paired, connections: 'none' })],
		['far too large', ' '.repeat(1024 * 1024 + 1)],
	];

	test.each(damages)('%s: it is set aside and its copy is used [F006]', async (_name, content) => {
		await withStore((store) => store.save(paired));
		fs.writeFileSync(at('state.json'), content);
		const { state, notices } = await withStore((store) => store.load());
		expect(state).toEqual(paired);
		expect(notices).toMatchObject([
			{ code: 'state-corrupt', remedy: expect.stringContaining('Nothing of the state is lost') },
		]);
		expect(notices[0]?.message).toContain(at('state.json'));
		const [aside = ''] = files().filter((name) => name.startsWith('state.json.corrupt-'));
		expect(fs.readFileSync(at(aside))).toEqual(Buffer.from(content));
		expect(read('state.json')).toBe(read('state.json.bak'));
	});

	test.each(damages)(
		'%s, and no copy: the device starts unpaired and says so, also at later starts, until it is paired',
		async (_name, content) => {
			await withStore((store) => store.load());
			fs.writeFileSync(at('state.json'), content);
			const { state, notices } = await withStore((store) => store.load());
			expect(state).toEqual(EMPTY_STATE);
			const lost = [{ code: 'state-corrupt', remedy: CATALOGUE['state-corrupt'].remedy }];
			expect(notices).toMatchObject(lost);
			await withStore((store) => store.save(named('unpaired')));
			expect(await withStore((store) => store.load())).toMatchObject({ state: named('unpaired'), notices: lost });
			await withStore((store) => store.save(paired));
			expect(await withStore((store) => store.load())).toEqual({ state: paired, notices: [] });
		},
	);

	test.each<[string, (file: string) => void]>([
		['a directory', (file) => fs.mkdirSync(path.join(file, 'within'), { recursive: true })],
		['a pipe', (file) => execFileSync('mkfifo', [file])],
		['a link', (file) => fs.symlinkSync(path.join(directory, 'elsewhere'), file)],
	])(
		'%s in the place of the file and of its copy is set aside: the device starts unpaired and says so [F1004]',
		async (what, put) => {
			await withStore((store) => store.save(paired));
			fs.writeFileSync(path.join(directory, 'elsewhere'), 'not the agent’s');
			for (const name of COPIES) {
				fs.rmSync(at(name));
				put(at(name));
			}
			const { state, notices } = await withStore((store) => store.load());
			expect(state).toEqual(EMPTY_STATE);
			expect(notices).toMatchObject([
				{ code: 'state-corrupt', message: expect.stringContaining(`is damaged (it is ${what}`) },
			]);
			await withStore((store) => store.save(paired));
			expect(await withStore((store) => store.load())).toEqual({ state: paired, notices: [] });
			const aside = files().filter((name) => name.startsWith('state.json.corrupt-'));
			expect(aside).toHaveLength(2);
			for (let year = 2101; year < 2110; year += 1)
				fs.writeFileSync(at(`state.json.corrupt-${year}-01-01T00-00-00.000Z.json`), '');
			fs.writeFileSync(at('state.json'), '{');
			await withStore((store) => store.load());
			// Of what is set aside too often, only files go.
			expect(files().filter((name) => aside.includes(name))).toHaveLength(what === 'a directory' ? 2 : 0);
			expect(fs.readFileSync(path.join(directory, 'elsewhere'), 'utf8')).toBe('not the agent’s');
		},
	);

	test('a state that was saved here and removed is told, also at later starts, until the device is paired [F1005]', async () => {
		await withStore((store) => store.save(paired));
		for (const name of COPIES) fs.rmSync(at(name));
		const removed = [{ code: 'state-corrupt', message: expect.stringContaining('was removed') }];
		expect((await lookAtState(stateDir)).notices).toMatchObject(removed);
		const { state, notices } = await withStore((store) => store.load());
		expect([state, notices]).toEqual([EMPTY_STATE, [expect.objectContaining(removed[0])]]);
		expect(notices[0]?.remedy).toBe('Pair again unless the agent is online.');
		await withStore((store) => store.save(named('unpaired')));
		expect((await withStore((store) => store.load())).notices).toMatchObject(removed);
		await withStore((store) => store.save(paired));
		expect(await withStore((store) => store.load())).toEqual({ state: paired, notices: [] });
	});

	test('a file and a copy that are both damaged are both set aside', async () => {
		await withStore((store) => store.load());
		fs.writeFileSync(at('state.json'), '{');
		fs.writeFileSync(at('state.json.bak'), '');
		const { state, notices } = await withStore((store) => store.load());
		expect(state).toEqual(EMPTY_STATE);
		expect(notices).toHaveLength(1);
		expect(files().filter((name) => name.startsWith('state.json.corrupt-'))).toHaveLength(2);
		expect(files()).toHaveLength(3);
	});

	test('the message never quotes what is in the file', async () => {
		await withStore((store) => store.load());
		fs.writeFileSync(at('state.json'), `{"token":"${TOKEN}",`);
		const { notices } = await withStore((store) => store.load());
		expect(JSON.stringify(notices)).not.toContain(TOKEN);
	});

	test('found damaged by a second look, it is written again although it is what was saved last', async () => {
		await withStore(async (store) => {
			await store.save(paired);
			fs.writeFileSync(at('state.json'), '{');
			await store.load();
			await store.save(paired);
		});
		expect(fs.readFileSync(at('state.json'), 'utf8')).toContain('"schemaVersion"');
	});

	test.each(COPIES)('a missing %s is written again from the other copy', async (name) => {
		await withStore((store) => store.save(paired));
		fs.rmSync(at(name));
		const { state, notices } = await withStore((store) => store.load());
		expect(state).toEqual(paired);
		expect(notices).toMatchObject([{ code: 'state-corrupt', message: expect.stringContaining(at(name)) }]);
		expect(files()).toEqual(SAVED);
		expect(await withStore((store) => store.load())).toEqual({ state: paired, notices: [] });
	});

	test('only the newest damaged files are kept', async () => {
		await withStore((store) => store.load());
		for (let year = 2001; year < 2010; year += 1)
			fs.writeFileSync(at(`state.json.corrupt-${year}-01-01T00-00-00.000Z.json`), '');
		fs.writeFileSync(at('state.json'), 'the newest');
		await withStore((store) => store.load());
		const kept = files().filter((name) => name.startsWith('state.json.corrupt-'));
		expect(kept).toHaveLength(MAX_QUARANTINED);
		expect(kept.map(read)).toContain('the newest');
		expect(kept[0]).toContain('2006');
	});

	test('of few damaged files none is removed', async () => {
		await withStore((store) => store.load());
		const older = 'state.json.corrupt-2001-01-01T00-00-00.000Z.json';
		fs.writeFileSync(at(older), '');
		fs.writeFileSync(at('state.json'), 'the newest');
		await withStore((store) => store.load());
		expect(files()).toContain(older);
		expect(files().filter((name) => name.startsWith('state.json.corrupt-'))).toHaveLength(2);
	});

	test('a save without a load sets a damaged file aside first', async () => {
		await withStore((store) => store.save(paired));
		fs.writeFileSync(at('state.json'), '{');
		await withStore((store) => store.save(named('newest')));
		expect(JSON.parse(read('state.json')).generatedId).toBe('newest');
		expect(files().filter((name) => name.startsWith('state.json.corrupt-'))).toHaveLength(1);
	});
});

describe('files that must not be touched', () => {
	test.each([
		['a state of a newer agent', () => fs.writeFileSync(at('state.json'), '{"schemaVersion":2,"tokens":{}}')],
		[
			'a damaged file beside a copy of a newer agent',
			() => {
				fs.writeFileSync(at('state.json'), '{');
				fs.writeFileSync(at('state.json.bak'), '{"schemaVersion":2,"tokens":{}}');
			},
		],
	])('%s: loading and saving fail and change nothing', async (_name, damage) => {
		await withStore((store) => store.load());
		damage();
		const before = files();
		await withStore(async (store) => {
			expect((await failureOf(store.load())).code).toBe('state-unreadable');
			expect((await failureOf(store.save(EMPTY_STATE))).code).toBe('state-unreadable');
		});
		expect(files()).toEqual(before);
	});

	test('a file that this user may not read, which is used as it was when it may [F008]', async () => {
		await withStore((store) => store.save(paired));
		giveAway();
		for (const name of COPIES) fs.chmodSync(at(name), 0o000);
		await unprivileged(() =>
			withStore(async (store) => {
				const { code, message } = await failureOf(store.load());
				expect(code).toBe('state-unreadable');
				expect(message).toContain('EACCES');
				expect((await failureOf(store.save(EMPTY_STATE))).code).toBe('state-unreadable');
			}),
		);
		for (const name of COPIES) fs.chmodSync(at(name), 0o600);
		expect(JSON.parse(read('state.json'))).toMatchObject(paired);
		await unprivileged(() =>
			withStore(async (store) => expect(await store.load()).toEqual({ state: paired, notices: [] })),
		);
	});
});

describe('a place that cannot be written', () => {
	test('a read-only directory can be loaded, says so, and works again once it is writable', async () => {
		await withStore((store) => store.save(paired));
		giveAway();
		fs.chmodSync(stateDir, 0o500);
		const { loaded, save, probe, later, loadedLater } = JSON.parse(
			await firstLine(writers.start(['unprivileged', stateDir, '0'])),
		);
		expect(loaded).toMatchObject({ state: paired, notices: [{ code: 'state-unwritable' }] });
		expect(save.code).toBe('state-unwritable');
		expect(save.message).toContain('this user may not (EACCES)');
		expect(probe.code).toBe('state-unwritable');
		expect(later).toEqual(['saved', 'saved']);
		expect(loadedLater).toEqual({ state: named('later'), notices: [] });
	});

	test('a read-only directory with a damaged state: the copy is used, nothing is set aside yet', async () => {
		await withStore((store) => store.save(paired));
		fs.writeFileSync(at('state.json'), '');
		giveAway();
		fs.chmodSync(stateDir, 0o500);
		const { loaded, save, loadedLater } = JSON.parse(await firstLine(writers.start(['unprivileged', stateDir, '0'])));
		expect(loaded).toMatchObject({ state: paired, notices: [{ code: 'state-unwritable' }, { code: 'state-corrupt' }] });
		expect(loaded.notices[1].remedy).not.toContain('set aside');
		expect(save.code).toBe('state-unwritable');
		expect(loadedLater).toEqual({ state: named('later'), notices: [] });
		expect(files().filter((name) => name.startsWith('state.json.corrupt-'))).toHaveLength(1);
	});

	test('a lock file of another user makes the store read-only', async () => {
		await withStore((store) => store.save(paired));
		giveAway();
		fs.chmodSync(at('lock.db'), 0o400);
		const { loaded, save } = JSON.parse(await firstLine(writers.start(['unprivileged', stateDir, '0'])));
		expect(loaded).toMatchObject({ state: paired, notices: [{ code: 'state-unwritable' }] });
		expect(save.code).toBe('state-unwritable');
	});

	test("another user's state file can be replaced", async () => {
		await withStore((store) => store.save(paired));
		giveAway();
		if (process.geteuid?.() === 0) fs.chownSync(at('state.json'), 0, 0);
		fs.chmodSync(at('state.json'), 0o644);
		await unprivileged(() => withStore((store) => store.save(named('mine'))));
		for (const name of COPIES) expect(JSON.parse(read(name)).generatedId).toBe('mine');
	});

	test('a save that fails half-way leaves the old state and nothing else, and the next one may succeed [F010]', async () => {
		await withStore((store) => store.save(named('old')));
		const child = writers.start(['limited', stateDir, '0'], 1);
		const { large, probe, small } = JSON.parse(await firstLine(child));
		expect(large.code).toBe('state-unwritable');
		expect(large.message).toContain('the file would be larger than this process may write (EFBIG)');
		expect(large.message).toContain(stateDir);
		expect(probe.code).toBe('state-unwritable');
		expect(small).toBe('saved');
		expect(files()).toEqual(SAVED);
		for (const name of COPIES) expect(JSON.parse(read(name)).generatedId).toBe('small');
	});

	test('a state file that somebody has removed meanwhile is written again', async () => {
		const store = await open();
		await store.save(named('old'));
		await store.save(named('newer'));
		fs.rmSync(at('state.json'));
		await store.save(paired);
		expect(files()).toEqual(SAVED);
		expect((await store.load()).state).toEqual(paired);
	});

	test('a directory that is gone is named, and nothing is made in its place', async () => {
		const store = await open();
		await store.save(named('old'));
		fs.rmSync(stateDir, { recursive: true });
		expect((await failureOf(store.save(paired))).message).toBe(
			`The state cannot be saved in ${stateDir}: it is not there (ENOENT).`,
		);
		expect(fs.existsSync(stateDir)).toBe(false);
	});

	test('a file in the place of the directory is an error at once', async () => {
		fs.writeFileSync(stateDir, '');
		expect((await failureOf(openStateStore(stateDir))).code).toBe('state-unwritable');
	});

	test('a probe leaves nothing behind', async () => {
		const store = await open();
		await store.save(paired);
		await store.probe();
		expect(files()).toEqual(SAVED);
	});
});

describe('one process at a time', () => {
	test('a second store is refused, in this process as in another, until the first is closed [F105]', async () => {
		const store = await open();
		expect((await failureOf(openStateStore(stateDir))).code).toBe('state-in-use');
		const child = writers.start(['refused', stateDir, '0']);
		const exited = once(child, 'exit');
		expect(JSON.parse(await firstLine(child)).code).toBe('state-in-use');
		await exited;
		// The refused ones have not given the lock of the first away.
		expect((await failureOf(openStateStore(stateDir))).code).toBe('state-in-use');
		await store.close();
		await withStore((next) => next.save(paired));
	});

	test('the lock of a killed process is free at once', async () => {
		const child = writers.start(['hold', stateDir, '0']);
		expect(await firstLine(child)).toBe('open');
		expect((await failureOf(openStateStore(stateDir))).code).toBe('state-in-use');
		await writers.kill(child);
		await withStore((store) => store.save(paired));
	});

	test('a look works beside a running store and changes nothing', async () => {
		const store = await open();
		await store.save(paired);
		fs.chmodSync(at('state.json'), 0o640);
		fs.writeFileSync(at('state.json.new'), '');
		expect(await lookAtState(stateDir)).toEqual({ state: paired, notices: [] });
		expect(files()).toEqual([...SAVED, 'state.json.new']);
		expect(fs.statSync(at('state.json')).mode & 0o777).toBe(0o640);
	});

	test('a look makes no directory', async () => {
		expect(await lookAtState(stateDir)).toEqual({ state: EMPTY_STATE, notices: [] });
		expect(fs.existsSync(stateDir)).toBe(false);
	});

	test.each(['a link', 'a hard link', 'a pipe', 'a directory'])(
		'%s in the place of the lock is refused by its name, and nothing behind it is touched [F521]',
		async (what) => {
			await withStore(async () => {});
			const [lock, elsewhere] = [at('lock.db'), path.join(directory, 'elsewhere')];
			fs.rmSync(lock);
			fs.writeFileSync(elsewhere, 'precious');
			if (what === 'a link') fs.symlinkSync(elsewhere, lock);
			if (what === 'a hard link') fs.linkSync(elsewhere, lock);
			if (what === 'a pipe') execFileSync('mkfifo', [lock]);
			if (what === 'a directory') fs.mkdirSync(lock);
			const refused = await (await open()).save(EMPTY_STATE).catch((error: unknown) => error);
			const message = expect.stringMatching(/it is a link|it is not a regular file/);
			expect(refused).toMatchObject({ failure: { code: 'state-unwritable', message } });
			expect(fs.readFileSync(elsewhere, 'utf8')).toBe('precious');
		},
	);

	test('in a copy of the directory by links the lock is as good as any', async () => {
		await withStore((store) => store.save(paired));
		fs.linkSync(at('lock.db'), path.join(directory, 'lock of the copy'));
		await withStore((store) => store.save(EMPTY_STATE));
		expect((await lookAtState(stateDir)).state).toEqual(EMPTY_STATE);
	});

	test.each(['a link', 'a pipe', 'a directory', 'a file that may not be written'])(
		'%s in the place of the lock: the message names it, and what the remedy says helps [F1292]',
		async (what) => {
			await withStore(async () => {});
			const lock = at('lock.db');
			fs.rmSync(lock);
			let first = `Remove ${lock}`;
			if (what === 'a link') fs.symlinkSync('nowhere', lock);
			else if (what === 'a pipe') execFileSync('mkfifo', [lock]);
			else if (what === 'a directory') fs.mkdirSync(lock);
			else fs.writeFileSync(lock, '', { mode: 0 });
			// Nothing else keeps root from a file.
			if (what.startsWith('a file') && process.geteuid?.() === 0) {
				// A container may not.
				if (spawnSync('chattr', ['+i', lock]).status !== 0) return;
				first = `Take its attribute away (chattr -i ${lock}), then remove it`;
			}
			const store = await open();
			const refused = await failureOf(store.save(EMPTY_STATE));
			spawnSync('chattr', ['-i', lock]);
			expect(refused).toMatchObject({ code: 'state-unwritable', params: { path: lock } });
			expect(refused.message).toMatch(/^The state cannot be saved: its lock .*lock\.db cannot be used: /);
			expect(refused.remedy).toBe(`${first}: it holds nothing, and the agent makes another one.`);
			fs.rmSync(lock, { recursive: true });
			await store.save(paired);
			await store.close();
			fs.chmodSync(stateDir, 0o500);
			fs.rmSync(lock, { force: true });
			giveAway();
			const other = await unprivileged(async () => failureOf((await open()).save(EMPTY_STATE)));
			expect(other.message).toContain(`The state cannot be saved in ${stateDir}: `);
			fs.chmodSync(stateDir, 0o700);
		},
	);

	test('a lock file with rubbish in it does not lock the device out', async () => {
		fs.mkdirSync(stateDir);
		fs.writeFileSync(at('lock.db'), 'rubbish '.repeat(1000));
		const store = await open();
		await store.save(paired);
		expect((await failureOf(openStateStore(stateDir))).code).toBe('state-in-use');
	});
});

/** `STATE_STORE_KILLS=150` for the whole test; a shorter one by default: each is a process of its own. */
const KILLS = Number(process.env['STATE_STORE_KILLS'] ?? 12);

test('whenever the process is killed, the newest acknowledged state or the one under way is there, whole', {
	timeout: 20_000 + KILLS * 2000,
}, async () => {
	let acknowledged = 0;
	for (let round = 0; round < KILLS; round += 1) {
		const child = writers.start(['save', stateDir, String(acknowledged)]);
		const killAt = acknowledged + 1 + Math.floor(Math.random() * 12);
		for await (const line of linesOf(child)) {
			acknowledged = Number(line.replace('saved ', ''));
			// Those that follow were under way, or said before the signal came.
			if (acknowledged === killAt) child.kill('SIGKILL');
		}
		await writers.kill(child);
		const { state, notices } = await withStore((store) => store.load());
		expect(notices).toEqual([]);
		const [number = '', filling] = state.generatedId?.split(':') ?? [];
		expect([acknowledged, acknowledged + 1]).toContain(Number(number));
		expect(filling).toBe('x'.repeat((Number(number) * 997) % 5000));
		expect(files()).not.toContain('state.json.new');
		acknowledged = Number(number);
	}
});

describe('a state that was whole when its save was cut off', () => {
	const attempt = { attemptId: 'a', tokenHash: 'h', host: 'id.example.com', at: '2026-11-21T03:00:00Z' };
	const sent: DeviceState = { ...named('device-1'), attempt };
	const cutOff = async (unsaved: string, before: DeviceState = sent) => {
		await withStore((store) => store.save(before));
		fs.writeFileSync(at('state.json.new'), unsaved, { mode: 0o600 });
	};

	test('is taken up beside an open attempt, whose code is good only once [F364]', async () => {
		await cutOff(JSON.stringify(paired));
		for (let starts = 0; starts < 2; starts += 1)
			expect(await withStore((store) => store.load())).toMatchObject({ state: paired, notices: [] });
		expect(files()).toEqual(SAVED);
		for (const name of COPIES) expect(JSON.parse(read(name)).attempt).toBeNull();
	});

	test.each<[string, string, DeviceState]>([
		['half a file', JSON.stringify(paired).slice(0, -40), sent],
		['what a probe wrote', ' '.repeat(8192), sent],
		['the attempt itself', JSON.stringify({ ...paired, attempt }), sent],
		['a state beside no attempt', JSON.stringify(paired), named('device-1')],
	])('and %s is not', async (_, unsaved, before) => {
		await cutOff(unsaved, before);
		expect(await withStore((store) => store.load())).toMatchObject({ state: before, notices: [] });
		expect(files()).toEqual(SAVED);
	});
});
