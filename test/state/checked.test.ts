/**
 * What this build has checked before is taken as it stands, and nothing else is: whichever byte is another one, in the text, in the
 * digest or in the build, the text goes through its schema.
 */
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import fc from 'fast-check';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { openChecked } from '../../src/base/checked.edge.ts';
import { lineFile } from '../../src/connection/line-file.edge.ts';
import { lookAtState } from '../../src/state/copies.edge.ts';
import { type DeviceState, EMPTY_STATE } from '../../src/state/device-state.ts';
import { openStateStore } from '../../src/state/store.edge.ts';

const BUILD = '0123456789abcdef0123456789abcdef';
const STATE: DeviceState = { ...EMPTY_STATE, generatedId: 'device-1' };
/** JSON that no schema of the state lets pass, and that only a trusted digest would. */
const UNFIT = `${JSON.stringify({ ...STATE, generatedId: 7, connections: [] }, null, '\t')}\n`;

let stateDir: string;
const at = (name: string) => path.join(stateDir, name);
const write = (name: string, text: string) => fs.writeFileSync(at(name), text, { mode: 0o600 });
const digests = () => fs.readFileSync(at('checked.json'), 'utf8');

beforeEach(() => {
	stateDir = fs.mkdtempSync(path.join(os.tmpdir(), 'checked-'));
});
afterEach(() => fs.rmSync(stateDir, { recursive: true }));

/** Whether a start of the build takes `state.json` as it is, without asking the schema: it then keeps what is unfit. */
async function isTrusted(build: string | null): Promise<boolean> {
	// A version that is another one is refused.
	const { state } = await lookAtState(stateDir, openChecked(stateDir, build)).catch(() => ({ state: EMPTY_STATE }));
	return typeof state.generatedId === 'number';
}

const changed = (text: string, place: number, by: number) => {
	const bytes = Buffer.from(text);
	const index = place % bytes.length;
	bytes[index] = (bytes[index] ?? 0) ^ by;
	return bytes;
};
const change = fc.record({ place: fc.nat(), by: fc.constantFrom(1, 2, 4, 8, 16, 32, 64, 128) });

/** Never saved by an agent: planted together with its digest, so that trust shows itself. */
function plant(): void {
	write('state.json', UNFIT);
	openChecked(stateDir, BUILD).add('state', UNFIT);
}

test('a text that this build has checked is taken as it is', async () => {
	plant();
	expect(await isTrusted(BUILD)).toBe(true);
});

test('one bit of the state is another one: the schema is asked', async () => {
	plant();
	await fc.assert(
		fc.asyncProperty(change, async ({ place, by }) => {
			fs.writeFileSync(at('state.json'), changed(UNFIT, place, by));
			expect(await isTrusted(BUILD)).toBe(false);
		}),
		{ numRuns: 100 },
	);
});

test('one bit of the digest is another one: the schema is asked', async () => {
	plant();
	const whole = digests();
	const { digests: [digest = ''] = [] } = JSON.parse(whole) as { digests?: string[] };
	await fc.assert(
		fc.asyncProperty(change, async ({ place, by }) => {
			const other = changed(digest, place, by).toString('latin1');
			write('checked.json', JSON.stringify({ digests: [other] }));
			expect(await isTrusted(BUILD)).toBe(false);
		}),
		{ numRuns: 100 },
	);
	write('checked.json', whole);
	expect(await isTrusted(BUILD)).toBe(true);
});

test('another build, or none, asks the schema', async () => {
	plant();
	for (let place = 0; place < BUILD.length; place += 1) {
		const other = changed(BUILD, place, 1).toString();
		expect(await isTrusted(other), other).toBe(false);
	}
	expect(await isTrusted(null)).toBe(false);
});

test('a digest of one kind is none of another', async () => {
	write('state.json', UNFIT);
	openChecked(stateDir, BUILD).add('settings', UNFIT);
	expect(await isTrusted(BUILD)).toBe(false);
	const line = '{"schemaVersion":1,"baseUrl":"https://a.example","network":"n","idleMs":"unfit"}\n';
	write('line.json', line);
	openChecked(stateDir, BUILD).add('state', line);
	expect(lineFile(stateDir, openChecked(stateDir, BUILD)).load()).toBeNull();
	openChecked(stateDir, BUILD).add('line', line);
	expect(lineFile(stateDir, openChecked(stateDir, BUILD)).load()).not.toBeNull();
});

test('what the schema refuses gets no digest, and what it takes unchanged does', async () => {
	write('state.json', UNFIT);
	expect(await isTrusted(BUILD)).toBe(false);
	expect(fs.existsSync(at('checked.json'))).toBe(false);
	const store = await openStateStore(stateDir, { checked: openChecked(stateDir, BUILD) });
	await store.load();
	await store.save(STATE);
	await store.close();
	const saved = fs.readFileSync(at('state.json'), 'utf8');
	expect(openChecked(stateDir, BUILD).has('state', saved)).toBe(true);
	expect(openChecked(stateDir, BUILD).has('state', saved.replace('device-1', 'device-2'))).toBe(false);
});

test('a file of digests that is damaged, huge or something else is worth nothing', async () => {
	plant();
	for (const text of [
		'',
		'{',
		'[]',
		'{"digests":7}',
		'{"digests":[7,null]}',
		`{"digests":["${'A'.repeat(100_000)}"]}`,
	]) {
		write('checked.json', text);
		expect(await isTrusted(BUILD), text.slice(0, 40)).toBe(false);
	}
});
