/** What each release has written is read by this version; what a newer one adds outlives this one. */
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import fc from 'fast-check';
import { describe, expect, onTestFinished, test } from 'vitest';
import { openChecked } from '../../src/base/checked.edge.ts';
import { openFirstRuntime } from '../../src/connection/runtime.runner.ts';
import { createEventStore } from '../../src/events/store.edge.ts';
import { resolveWith } from '../../src/settings/load.runner.ts';
import { newerFields, withNewerFields } from '../../src/state/newer-fields.ts';
import { openStateStore } from '../../src/state/store.edge.ts';

const FIXTURES = resolve(import.meta.dirname, '../fixtures/releases');
/** When they were made: events grow old. */
const MADE_MS = Date.parse('2026-11-22T06:00:00Z');

function givenState(release: string): string {
	const directory = mkdtempSync(join(tmpdir(), 'release-state-'));
	onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
	cpSync(join(FIXTURES, release), directory, { recursive: true });
	return directory;
}

async function openState(directory: string) {
	const store = await openStateStore(directory);
	onTestFinished(() => store.close());
	return store;
}

describe.each([
	['0.1.0', ['one', 'two', 'three']],
	['0.2.0', ['one', 'two', 'three', 'gap', 'four']],
] as const)('a device that had %s', (release, kinds) => {
	test('keeps its pairing, its plan and its settings', async () => {
		const { state, notices } = await (await openState(givenState(release))).load();
		expect(notices).toEqual([]);
		expect(state).toMatchObject({
			identity: { deviceId: 'KIOSK-7' },
			pairing: { sessionId: null },
			assignedWorkflow: { workflowId: 'check-in', source: 'pairing' },
			connections: [{ request: { workflowId: 'check-in' } }],
			plan: { followed: 3 },
		});
		const resolved = resolveWith(state.lastSettings ?? [], { env: {}, sets: [] });
		expect(resolved.problems).toEqual([]);
		expect(resolved.settings.deviceId).toBe('KIOSK-7');
	});

	test('keeps its events under their ids, and leaves none of them in the database', async () => {
		const directory = givenState(release);
		const open = () =>
			createEventStore({
				directory,
				epoch: 'now',
				bounds: { maxCount: 1000, maxBytes: 4_194_304, maxAgeMs: 7 * 86_400_000 },
				onNotice: (topic, notice) => expect([topic, notice]).toEqual([topic, null]),
				wallMs: () => MADE_MS,
			});
		let ids: string[] | null = null;
		for (let round = 0; round < 2; round += 1) {
			const store = open();
			store.newest();
			await store.settled();
			const { entries } = store.after(null, 100);
			expect(entries.map(({ kind }) => kind)).toEqual(kinds);
			ids ??= entries.map(({ id }) => id);
			expect(entries.map(({ id }) => id)).toEqual(ids);
			expect(ids[0]).toMatch(/^\w{12}-\d+$/);
			await store.close();
			expect(readFileSync(join(directory, 'events.db')).includes('KIOSK')).toBe(false);
		}
	});
});

test('fields of a newer version outlive the saves of this one, and go with what they belonged to', async () => {
	const directory = givenState('0.2.0');
	const file = join(directory, 'state.json');
	const newer = JSON.parse(readFileSync(file, 'utf8'));
	newer.colours = { door: 'crimson' };
	newer.pairing.colour = 'blue';
	newer.plan.colour = 'green';
	writeFileSync(file, JSON.stringify(newer));
	const store = await openState(directory);
	const { state, notices } = await store.load();
	expect(notices).toEqual([]);
	await store.save({ ...state, generatedId: 'another' });
	const saved = JSON.parse(readFileSync(file, 'utf8'));
	expect(saved).toMatchObject({
		generatedId: 'another',
		colours: { door: 'crimson' },
		pairing: { colour: 'blue' },
		plan: { colour: 'green' },
	});
	await store.save({ ...state, pairing: null, plan: null });
	const left = readFileSync(file, 'utf8');
	for (const colour of ['crimson', 'blue', 'green']) expect(left).not.toContain(colour);
});

test('so do those of the copy before, through starts that take as checked what they have saved', async () => {
	const directory = givenState('0.2.0');
	const file = join(directory, 'state.json');
	writeFileSync(`${file}.bak`, JSON.stringify({ ...JSON.parse(readFileSync(file, 'utf8')), colour: 'crimson' }));
	writeFileSync(file, '{');
	for (const generatedId of ['one', 'two', 'three']) {
		const store = await openStateStore(directory, { checked: openChecked(directory, 'build') });
		const { state } = await store.load();
		await store.save({ ...state, generatedId });
		await store.close();
		expect(JSON.parse(readFileSync(file, 'utf8'))).toMatchObject({ generatedId, colour: 'crimson' });
	}
});

test('settings that only a newer version knows strand no device that went back', async () => {
	const documents = [
		{
			where: 'config.json',
			document: { deviceId: 'KIOSK-7', brandNew: { thing: true }, update: { colour: 'crimson' } },
		},
	];
	const sources = { env: {}, sets: [] };
	const loaded = resolveWith(documents, sources);
	expect(loaded.problems.length).toBeGreaterThan(0);
	const parts = { userAgent: 'idv-agent/test', env: {} };
	const load = async () => loaded;
	const state = { lastSettings: documents, lastWay: null, lastPieces: {}, connections: [] };
	const { runtime } = await openFirstRuntime(load, state, sources, parts);
	onTestFinished(() => runtime.close());
	expect(runtime.resolved.settings.deviceId).toBe('KIOSK-7');
	expect(runtime.resolved.problems).toMatchObject([
		{ code: 'settings-invalid', message: expect.stringContaining('brandNew is not a setting') },
		{ code: 'settings-invalid', message: expect.stringContaining('update.colour is not a setting') },
	]);
});

test('whatever a document holds besides is found and put back at its place', () => {
	const document = fc.dictionary(fc.constantFrom('a', 'b', 'c'), fc.jsonValue({ maxDepth: 3 }));
	fc.assert(
		fc.property(document, (one) => {
			expect(withNewerFields({}, newerFields(one, {}))).toEqual(one);
			expect(newerFields(one, one)).toEqual({});
			const { a: _, ...known } = one;
			expect(withNewerFields(known, newerFields(one, known))).toEqual(one);
		}),
	);
});
