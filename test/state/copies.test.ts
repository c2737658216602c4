/** Two whole copies of the state: whatever happens to one of them, the other counts, and the damage is told. */
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { NOTHING_CHECKED } from '../../src/base/checked.ts';
import { lookAtState } from '../../src/state/copies.edge.ts';
import { chooseCopy } from '../../src/state/copies.ts';
import { type DeviceState, EMPTY_STATE } from '../../src/state/device-state.ts';
import { readCopy } from '../../src/state/document.edge.ts';
import { type LoadOptions, openStateStore } from '../../src/state/store.edge.ts';

const STATE = 'state.json';
const COPY = 'state.json.bak';
const COPIES = [STATE, COPY];

let stateDir: string;
const at = (name: string) => path.join(stateDir, name);
const bytesOf = (name: string) => fs.readFileSync(at(name));
const write = (name: string, content: string | Uint8Array) => fs.writeFileSync(at(name), content, { mode: 0o600 });
const otherOf = (name: string) => (name === STATE ? COPY : STATE);
const setAside = () => fs.readdirSync(stateDir).filter((name) => name.includes('.corrupt-') && !name.endsWith('-gone'));

beforeEach(() => {
	stateDir = fs.mkdtempSync(path.join(os.tmpdir(), 'copies-'));
});
afterEach(() => fs.rmSync(stateDir, { recursive: true }));

function pairedAs(deviceId: string, machine = 'machine-1'): DeviceState {
	const baseUrl = 'https://id.example.com';
	const fingerprint = { serial: null, macAddress: null, machine };
	const request = { deviceId, workflowId: 'onboarding' };
	return {
		...EMPTY_STATE,
		identity: { deviceId, serial: null, macAddress: null, fingerprint, pinnedAt: '2026-11-21T03:00:00Z' },
		pairing: { baseUrl, sessionId: null, pairedAt: '2026-11-21T03:00:00Z' },
		connections: [
			{ baseUrl, request, credentialId: '', token: `token-of-${deviceId}`, obtainedAt: '2026-11-21T03:00:00Z' },
		],
	};
}
const PAIRED = pairedAs('KIOSK-7');

async function save(...states: readonly DeviceState[]): Promise<void> {
	const store = await openStateStore(stateDir);
	try {
		for (const state of states) await store.save(state);
	} finally {
		await store.close();
	}
}

async function load(options: LoadOptions = {}) {
	const store = await openStateStore(stateDir);
	try {
		return await store.load(options);
	} finally {
		await store.close();
	}
}

/** The device is as it was, says so once, and both copies are whole again. */
async function expectHealed(name: string, state: DeviceState): Promise<void> {
	const found = await load();
	expect(found.state).toEqual(state);
	expect(found.notices).toMatchObject([{ code: 'state-corrupt', message: expect.stringContaining(`${at(name)} is `) }]);
	expect(await load()).toEqual({ state, notices: [] });
	expect(bytesOf(STATE)).toEqual(bytesOf(COPY));
	expect(fs.statSync(at(STATE)).ino).not.toBe(fs.statSync(at(COPY)).ino);
}

test('a saved state is in two files that share nothing, and a start writes neither again', async () => {
	await save(PAIRED);
	expect(bytesOf(STATE)).toEqual(bytesOf(COPY));
	const before = COPIES.map((name) => fs.statSync(at(name), { bigint: true }));
	expect(before[0]?.ino).not.toBe(before[1]?.ino);
	for (const { nlink } of before) expect(nlink).toBe(1n);
	expect(await load()).toEqual({ state: PAIRED, notices: [] });
	await save(PAIRED);
	expect(COPIES.map((name) => fs.statSync(at(name), { bigint: true }).ctimeNs)).toEqual(
		before.map(({ ctimeNs }) => ctimeNs),
	);
});

test('damage of one copy at any byte leaves the device paired, and is told [F465]', { timeout: 60_000 }, async () => {
	await save(PAIRED);
	const whole = bytesOf(COPY);
	const beside = await readCopy(at(COPY), NOTHING_CHECKED, false);
	const wrong: string[] = [];
	for (let place = 0; place < whole.length; place += 1) {
		const altered = Buffer.from(whole);
		// Every second time a letter changes its case: the document stays valid, and only the digest tells.
		altered[place] = (altered[place] ?? 0) ^ (1 << (place % 2 === 0 ? 5 : (place >> 1) % 8));
		for (const bytes of place % 8 === 0 ? [altered, whole.subarray(0, place)] : [altered]) {
			write(STATE, bytes);
			const damaged = await readCopy(at(STATE), NOTHING_CHECKED, false);
			for (const [first, second] of [
				[damaged, beside],
				[beside, damaged],
			] as const) {
				const choice = chooseCopy(first, second, { isCutOff: true, own: null });
				if (choice?.chosen !== beside || choice.told === null) wrong.push(`${bytes.length} bytes, at ${place}`);
			}
			if (place % 97 !== 0) continue;
			// What a start makes of it is the same for each place.
			for (const name of COPIES) {
				write(name, bytes);
				write(otherOf(name), whole);
				const { state, notices } = await lookAtState(stateDir);
				expect([state, notices.map(({ code }) => code)]).toEqual([PAIRED, ['state-corrupt']]);
			}
		}
	}
	expect(wrong).toEqual([]);
});

describe.each(COPIES)('damage of %s beside a whole copy', (name) => {
	test.each<[string, (file: string) => void]>([
		['a sector of zeros', (file) => write(file, Buffer.concat([Buffer.alloc(512), bytesOf(file).subarray(512)]))],
		['a sector of zeros in the middle', (file) => write(file, bytesOf(file).fill(0, 512))],
		['an empty file', (file) => write(file, '')],
		['no file', (file) => fs.rmSync(at(file))],
		[
			'a version that is not known yet',
			(file) => write(file, bytesOf(file).toString().replace('schemaVersion": 1', 'schemaVersion": 3')),
		],
		['another machine', (file) => write(file, bytesOf(file).toString().replace('machine-1', 'machine-3'))],
		[
			'a digest that has lost its name',
			(file) => write(file, bytesOf(file).toString().replace('"digest"', '"dagest"')),
		],
		['another form of the same', (file) => write(file, JSON.stringify(JSON.parse(bytesOf(file).toString()), null, 2))],
		['far too large', (file) => fs.truncateSync(at(file), 3 * 1024 ** 3)],
	])('%s is written again from it', async (_, damage) => {
		await save(PAIRED);
		damage(name);
		await expectHealed(name, PAIRED);
	});

	test.each<[string, (file: string) => void]>([
		['a directory', (file) => fs.mkdirSync(at(`${file}/within`), { recursive: true })],
		['a FIFO', (file) => execFileSync('mkfifo', [at(file)])],
		['a link to its copy', (file) => fs.symlinkSync(at(otherOf(file)), at(file))],
		['a link that leads nowhere', (file) => fs.symlinkSync('/nowhere', at(file))],
		['a link to itself', (file) => fs.symlinkSync(at(file), at(file))],
	])('%s in its place is set aside', async (_, put) => {
		await save(PAIRED);
		fs.rmSync(at(name));
		put(name);
		await expectHealed(name, PAIRED);
		expect(setAside()).toHaveLength(1);
		const store = await openStateStore(stateDir);
		await store.save({ ...EMPTY_STATE }, { forgetsOlder: true });
		await store.close();
		expect(setAside()).toEqual([]);
	});

	test('an older copy of it does not count', async () => {
		await save(pairedAs('before'), pairedAs('older'));
		const older = bytesOf(name);
		await save(pairedAs('between'), PAIRED);
		write(name, older);
		await expectHealed(name, PAIRED);
	});

	test('a hard link is made two files again, and nothing is said: nothing was wrong', async () => {
		await save(PAIRED);
		fs.rmSync(at(name));
		fs.linkSync(at(otherOf(name)), at(name));
		expect(await load()).toEqual({ state: PAIRED, notices: [] });
		for (const one of COPIES) expect(fs.statSync(at(one)).nlink).toBe(1);
	});

	test.runIf(process.geteuid?.() === 0)('one that may not be read is set aside (needs root)', async () => {
		await save(PAIRED);
		fs.chmodSync(at(name), 0);
		fs.chownSync(stateDir, 65534, 65534);
		for (const file of fs.readdirSync(stateDir)) fs.chownSync(at(file), 65534, 65534);
		process.seteuid?.(65534);
		try {
			await expectHealed(name, PAIRED);
		} finally {
			process.seteuid?.(0);
		}
		expect(setAside()).toHaveLength(1);
	});

	test("another device's is set aside: the machine's own counts", async () => {
		const isOwn = async ({ identity }: DeviceState) => identity?.fingerprint.machine === 'machine-1';
		await save(pairedAs('KIOSK-8', 'machine-2'));
		const foreign = bytesOf(name);
		for (const one of COPIES) fs.rmSync(at(one));
		await save(PAIRED);
		write(name, foreign);
		const found = await load({ isOwn });
		expect(found).toMatchObject({ state: PAIRED, notices: [{ code: 'state-corrupt' }] });
		expect(setAside().map(bytesOf)).toEqual([foreign]);
		expect(await load({ isOwn })).toEqual({ state: PAIRED, notices: [] });
	});

	test.each([pairedAs('KIOSK-8'), EMPTY_STATE])(
		'that of another installation of this machine is set aside: the one that was saved in this place counts [F550]',
		async (theirs) => {
			const elsewhere = fs.mkdtempSync(path.join(os.tmpdir(), 'copies-'));
			const store = await openStateStore(elsewhere);
			await store.save(theirs);
			await store.close();
			const foreign = fs.readFileSync(path.join(elsewhere, name));
			fs.rmSync(elsewhere, { recursive: true });
			await save(PAIRED);
			write(name, foreign);
			const found = await load({ isOwn: async () => true });
			expect(found).toMatchObject({
				state: PAIRED,
				notices: [{ code: 'state-corrupt', message: expect.stringContaining(`${at(name)} is of another device`) }],
			});
			expect(setAside().map(bytesOf)).toEqual([foreign]);
			expect(await load()).toEqual({ state: PAIRED, notices: [] });
		},
	);

	test('that of another installation in a directory that was restored is set aside, although it was paired later [F854]', async () => {
		const elsewhere = fs.mkdtempSync(path.join(os.tmpdir(), 'copies-'));
		const store = await openStateStore(elsewhere);
		const later = pairedAs('KIOSK-8');
		await store.save({
			...later,
			connections: later.connections.map((each) => ({ ...each, obtainedAt: '2026-11-24T03:00:00Z' })),
		});
		await store.close();
		await save(PAIRED);
		// A backup has the files, and not the directory.
		const backup = fs.readdirSync(stateDir).map((each) => [each, bytesOf(each)] as const);
		const old = `${stateDir}-old`;
		fs.renameSync(stateDir, old);
		fs.mkdirSync(stateDir, { mode: 0o700 });
		for (const [each, bytes] of backup) write(each, bytes);
		write(name, fs.readFileSync(path.join(elsewhere, name)));
		for (const each of [elsewhere, old]) fs.rmSync(each, { recursive: true });
		expect(await load()).toMatchObject({ state: PAIRED, notices: [{ code: 'state-corrupt' }] });
		expect(await load()).toEqual({ state: PAIRED, notices: [] });
		// A pipe there holds nothing up.
		fs.rmSync(at('state.id'));
		execFileSync('mkfifo', [at('state.id')]);
		await save(pairedAs('KIOSK-9'));
		expect(await load()).toEqual({ state: pairedAs('KIOSK-9'), notices: [] });
	});

	test('that of an earlier installation in the same directory is set aside: the one that was paired last counts', async () => {
		await save(pairedAs('KIOSK-8'), pairedAs('KIOSK-9'));
		const foreign = bytesOf(name);
		for (const one of COPIES) fs.rmSync(at(one));
		const [connection] = PAIRED.connections;
		if (!connection) throw new Error('no Connection');
		const again = { ...PAIRED, connections: [{ ...connection, obtainedAt: '2026-11-22T03:00:00Z' }] };
		await save(again);
		write(name, foreign);
		expect(await load()).toMatchObject({ state: again, notices: [{ code: 'state-corrupt' }] });
		expect(setAside().map(bytesOf)).toEqual([foreign]);
	});

	test('that of a clone which was unpaired is set aside, although it has more saves', async () => {
		await save(PAIRED);
		const clone = fs.mkdtempSync(path.join(os.tmpdir(), 'copies-'));
		for (const one of COPIES) fs.copyFileSync(at(one), path.join(clone, one));
		const store = await openStateStore(clone);
		await store.load();
		for (const state of [pairedAs('KIOSK-8'), EMPTY_STATE]) await store.save(state);
		await store.close();
		fs.copyFileSync(path.join(clone, name), at(name));
		fs.rmSync(clone, { recursive: true });
		expect(await load()).toMatchObject({ state: PAIRED, notices: [{ code: 'state-corrupt' }] });
		expect(await load()).toEqual({ state: PAIRED, notices: [] });
	});

	test('one of another installation that is unpaired never unpairs the device', async () => {
		await save(EMPTY_STATE);
		const foreign = bytesOf(name);
		for (const one of COPIES) fs.rmSync(at(one));
		await save(PAIRED);
		write(name, foreign);
		const found = await load({ isOwn: async () => true });
		expect(found).toMatchObject({ state: PAIRED, notices: [{ code: 'state-corrupt' }] });
		expect(found.notices[0]?.remedy).not.toMatch(/Nothing of the state is lost/);
		expect(await load()).toEqual({ state: PAIRED, notices: [] });
	});

	test('the one of a device made from the same image is set aside, too', async () => {
		const isOwn = async ({ identity }: DeviceState) => identity?.fingerprint.machine === 'machine-1';
		await save(EMPTY_STATE);
		const image = COPIES.map((one) => [one, bytesOf(one)] as const);
		await save(pairedAs('before', 'machine-2'), pairedAs('KIOSK-8', 'machine-2'));
		const foreign = bytesOf(name);
		for (const [one, bytes] of image) write(one, bytes);
		await save(PAIRED);
		write(name, foreign);
		expect(await load({ isOwn })).toMatchObject({ state: PAIRED, notices: [{ code: 'state-corrupt' }] });
	});
});

test('damage of both leaves an unpaired device that says why at each start, with both files set aside [F466]', async () => {
	await save(PAIRED);
	write(STATE, bytesOf(STATE).toString().replace('KIOSK-7', 'KIOSK-8'));
	write(COPY, bytesOf(COPY).subarray(0, 400));
	const lost = { state: EMPTY_STATE, notices: [{ code: 'state-corrupt' }] };
	expect(await lookAtState(stateDir)).toMatchObject(lost);
	for (let starts = 0; starts < 3; starts += 1) expect(await load()).toMatchObject(lost);
	expect(setAside()).toHaveLength(2);
	await save(PAIRED);
	expect(await load()).toEqual({ state: PAIRED, notices: [] });
});

describe('a save that was cut off', () => {
	const steps = [
		['before the first rename', [STATE, COPY]],
		['between the renames', [COPY]],
	] as const;
	test.each(steps)('%s leaves one of two whole states, and nothing to be told', async (_, old) => {
		const after = pairedAs('after');
		await save(pairedAs('older'), PAIRED);
		const before = bytesOf(STATE);
		await save(after);
		const unsaved = bytesOf(STATE);
		for (const name of old) {
			write(`${name}.new`, unsaved);
			write(name, before);
		}
		expect(await load()).toEqual({ state: old.length === 1 ? after : PAIRED, notices: [] });
		expect(fs.readdirSync(stateDir).toSorted()).toEqual(['lock.db', 'state.id', ...COPIES]);
		expect(bytesOf(STATE)).toEqual(bytesOf(COPY));
	});

	test.each(COPIES)(
		'and of whose names only %s is left is the newest state, and nothing is told [F558]',
		async (name) => {
			const after = pairedAs('after');
			await save(pairedAs('older'), PAIRED);
			const before = bytesOf(name);
			await save(after);
			write(otherOf(name), before);
			expect(await load()).toEqual({ state: after, notices: [] });
			expect(bytesOf(STATE)).toEqual(bytesOf(COPY));
		},
	);
});

describe.runIf(process.geteuid?.() === 0)('on a disk that something else has filled (needs root)', () => {
	beforeEach(async () => {
		execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=256k', 'tmpfs', stateDir]);
		await save(PAIRED);
		const filler = fs.openSync(at('filler'), 'w');
		try {
			for (;;) fs.writeSync(filler, Buffer.alloc(4096));
		} catch {
			fs.closeSync(filler);
		}
	});
	afterEach(() => execFileSync('umount', ['-l', stateDir]));

	test.each([
		['unpaired', EMPTY_STATE],
		['moved', pairedAs('KIOSK-8')],
	])('a device can be %s: both copies are whole afterwards [F551]', async (_, next) => {
		await save(next);
		expect(await load()).toEqual({ state: next, notices: [] });
		expect(bytesOf(STATE)).toEqual(bytesOf(COPY));
	});

	test('of a state that has room once only, the one copy is taken, and nothing is told of a fault [F1823]', async () => {
		fs.truncateSync(at('filler'), fs.statSync(at('filler')).size - 4096);
		const larger = { ...PAIRED, lastSettings: [{ where: 'x', document: 'x'.repeat(4096) }] };
		await save(larger);
		expect(COPIES.filter((name) => fs.existsSync(at(name)))).toEqual([STATE]);
		expect(await load()).toEqual({ state: larger, notices: [] });
		// Where there is room again both are there.
		fs.rmSync(at('filler'));
		expect(await load()).toEqual({ state: larger, notices: [] });
		expect(bytesOf(STATE)).toEqual(bytesOf(COPY));
	});

	test('a state that has no room leaves the one before in both copies', async () => {
		const large = { ...PAIRED, lastSettings: [{ where: 'x', document: 'x'.repeat(64 * 1024) }] };
		await expect(save(large)).rejects.toMatchObject({ code: 'state-unwritable' });
		expect(await load()).toEqual({ state: PAIRED, notices: [] });
		expect(bytesOf(STATE)).toEqual(bytesOf(COPY));
	});

	test.each(['rename of the copy', 'new state', 'new state in its place'])(
		'a cut after the %s leaves one of two whole states, and nothing to be told',
		async (step) => {
			fs.renameSync(at(COPY), at(`${COPY}.new`));
			fs.truncateSync(at(`${COPY}.new`));
			if (step !== 'rename of the copy') fs.copyFileSync(at(STATE), at(`${STATE}.new`));
			if (step === 'new state in its place') fs.renameSync(at(`${STATE}.new`), at(STATE));
			expect(await load()).toEqual({ state: PAIRED, notices: [] });
			expect(bytesOf(STATE)).toEqual(bytesOf(COPY));
		},
	);
});

describe('another version', () => {
	/** As 0.1.0 saves: fields that it does not know are gone, and the copy is a link to what was there before. */
	function saveAsOld(change: (document: Record<string, unknown>) => void): void {
		const {
			digest: _,
			copy: __,
			serviceTimeMs: ___,
			stoppedAfter: ____,
			...document
		} = JSON.parse(bytesOf(STATE).toString());
		change(document);
		fs.rmSync(at(COPY), { force: true });
		fs.linkSync(at(STATE), at(COPY));
		fs.rmSync(at(STATE));
		write(STATE, `${JSON.stringify(document, null, '\t')}\n`);
	}

	test('that knows no digest is recognized by its absence: what it has written counts', async () => {
		await save(pairedAs('older'), PAIRED);
		for (const generatedId of ['one', 'two', 'three']) {
			saveAsOld((document) => Object.assign(document, { generatedId }));
			expect(await lookAtState(stateDir)).toEqual({ state: { ...PAIRED, generatedId }, notices: [] });
			expect(await load()).toEqual({ state: { ...PAIRED, generatedId }, notices: [] });
			expect(bytesOf(STATE)).toEqual(bytesOf(COPY));
			await save({ ...PAIRED, generatedId: `${generatedId} here` });
		}
	});

	test('that has unpaired the device is believed', async () => {
		await save(PAIRED);
		saveAsOld((document) => Object.assign(document, { pairing: null, connections: [] }));
		// 0.1.0 leaves no copy when it forgets.
		fs.rmSync(at(COPY));
		expect((await load()).state.connections).toEqual([]);
		expect(bytesOf(COPY).toString()).not.toContain('token-of');
	});

	test.each<[string, (document: Record<string, unknown>) => object]>([
		['another device has written without a digest', (old) => ({ ...old, ...pairedAs('KIOSK-8', 'machine-2') })],
		['holds no pairing, beside a copy that does', (old) => ({ ...old, pairing: null, connections: [] })],
		['a newer version has written', (old) => ({ ...old, schemaVersion: 2 })],
	])('that %s does not count beside a whole copy', async (_, change) => {
		await save(PAIRED);
		const { digest, copy, ...document } = JSON.parse(bytesOf(STATE).toString());
		write(STATE, JSON.stringify(change(document)));
		const isOwn = async ({ identity }: DeviceState) => identity?.fingerprint.machine !== 'machine-2';
		expect(await load({ isOwn })).toMatchObject({ state: PAIRED, notices: [{ code: 'state-corrupt' }] });
		expect(setAside()).toHaveLength(1);
		expect(await load({ isOwn })).toEqual({ state: PAIRED, notices: [] });
	});

	test('that keeps the digest among fields it does not know is recognized by its place', async () => {
		await save(PAIRED);
		const { digest, copy, ...document } = JSON.parse(bytesOf(STATE).toString());
		write(STATE, JSON.stringify({ ...document, generatedId: 'later', colour: 'crimson', digest, copy }));
		expect(await load()).toEqual({ state: { ...PAIRED, generatedId: 'later' }, notices: [] });
		expect(JSON.parse(bytesOf(STATE).toString())).toMatchObject({ generatedId: 'later', colour: 'crimson' });
	});
});
