import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { appendFile, mkdir, readdir, readFile, readlink, rm, symlink, utimes, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { describe, expect, test, vi } from 'vitest';
import type { Shell } from '../../src/cli/output.runner.ts';
import { rolloutPercentile } from '../../src/fleet/targeting.ts';
import { readStored, withPlace } from '../../src/operator/fleet-store.runner.ts';
import { follow } from '../cli/command.ts';
import { expectJsonRefusal, expectRefusal } from '../cli/refusal.ts';
import { identity, listen } from '../connection/network-peers.ts';
import { operatorOfFile, succeeded } from './operator.ts';

const operator = operatorOfFile();

async function given() {
	const key = join(operator.directory, 'fleet.key');
	succeeded(await operator.idv(['fleet', 'keygen', '--out', key, '--json']));
	const rows = Array.from({ length: 100 }, (_, n) => `K-${n},old,0.2.0`);
	await operator.file('devices.csv', `deviceId,workflowId,version\n${rows.join('\n')}\n`);
	const checks = { inventory: 'devices.csv', workflows: ['old', 'new', 'other'], maxMoves: '100%' };
	await operator.file('fleet-checks.json', JSON.stringify(checks));
	const plan = (revision: number, to: string, more: object = {}) =>
		operator.file(
			`plan-${revision}-${to}.json`,
			JSON.stringify({
				...{ format: 'idv-fleet-plan/2', revision, spreadSeconds: 0 },
				defaults: { workflowId: 'old', rollout: { to: { workflowId: to }, rings: [{ percent: 50 }] } },
				...more,
			}),
			0o644,
		);
	const sign = (file: string, out: string, ...flags: string[]) => {
		const by = flags.includes('--key') ? [] : ['--key', key];
		return operator.idv(['fleet', 'sign', file, ...by, '--out', out, '--allow-workflow', 'new', ...flags]);
	};
	const first = (file: string, place: string, ...flags: string[]) => sign(file, place, '--previous', 'none', ...flags);
	const out = join(operator.directory, 'published.json');
	const published = async () => {
		const { payload } = JSON.parse(await readFile(out, 'utf8'));
		return JSON.parse(Buffer.from(payload, 'base64').toString());
	};
	return { key, plan, sign, first, out, published, record: join(operator.directory, 'published.record.json') };
}

/** A store that takes PUT. */
async function givenStore({ knowsIfMatch = true } = {}) {
	const kept = new Map<string, string>();
	const asked: string[] = [];
	const hooks = {
		before: (): unknown => null,
		taken: () => {},
		after: () => {},
		recordRead: (): unknown => null,
		confirmed: (): unknown => null,
	};
	const alone = { ...hooks, refusal: 412, fault: 0, isAway: false, isLate: false, cutsConfirmation: false };
	const late = new Map<string, string>();
	let other = alone;
	let isTaken = false;
	/** What somebody else does just before a plan is taken, and when it was, and just before the record is looked at after that, and each time when the record is read, and before it takes one that knows its plan to be published; and how the store refuses. `fault`: how it answers a plan that it has taken, -1 with a closed connection; `isAway` after that. `isLate`: whether it takes all only when it is told to; `cutsConfirmation`: so it does with a record that knows its plan to be published, and closes the connection. */
	const overtake = (act: Partial<typeof alone>) => {
		other = { ...alone, ...act };
		isTaken = false;
	};
	const etag = (text: string | undefined) => `"${text?.length}-${text?.slice(-40)}"`.replaceAll(/[^\w"-]/g, '');
	const server = createServer(async (request, response) => {
		const path = request.url ?? '';
		if (request.method === 'GET') {
			if (isTaken && other.isAway) return response.writeHead(503).end();
			if (isTaken && path.includes('record')) other.after();
			const text = kept.get(path);
			if (path.includes('record')) await other.recordRead();
			response.writeHead(
				text === undefined ? 404 : 200,
				knowsIfMatch && text !== undefined ? { etag: etag(text) } : {},
			);
			return response.end(text);
		}
		const body = (await request.toArray()).join('');
		if (!path.includes('record')) await other.before();
		const isConfirmation = path.includes('record') && !body.includes('isUnconfirmed');
		if (isConfirmation) await other.confirmed();
		const condition = request.headers['if-match'] ?? request.headers['if-none-match'] ?? '';
		asked.push(`${path} ${condition === '' ? 'whatever is there' : condition === '*' ? 'nothing' : 'the same'}`);
		const fits = condition === '*' ? !kept.has(path) : condition === '' || condition === etag(kept.get(path));
		if (knowsIfMatch && !fits) return response.writeHead(other.refusal).end();
		const isCut = other.cutsConfirmation && isConfirmation;
		(other.isLate || isCut ? late : kept).set(path, body);
		if (isCut) return request.socket.destroy();
		isTaken = !path.includes('record');
		if (isTaken) other.taken();
		if (isTaken && other.fault < 0) return request.socket.destroy();
		if (isTaken && other.fault > 0) return response.writeHead(other.fault).end();
		return response.writeHead(201).end();
	});
	const url = `http://127.0.0.1:${await listen(server)}/plans/published.json`;
	return { url, kept, late, asked, overtake };
}

test('without the checks nothing is signed; --unchecked says so, and the file beside the plan stands in for flags', async () => {
	const { key, plan, first, out } = await given();
	const file = await plan(1, 'new');
	const signed = await first(file, out);
	expect(signed).toMatchObject({ status: 0, stderr: '' });
	expect(signed.stdout).toMatch(/^\d+ +old +→ +new +defaults +ring of 50 % +when taken$/m);
	await writeFile(join(operator.directory, 'fleet-checks.json'), '{ "inventory": "devices.csv" }');
	const words = /without --workflows, --max-moves\. .*fleet-checks\.json/;
	const args = ['fleet', 'sign', await plan(2, 'new'), '--key', key, '--out', out, '--allow-workflow', 'new'];
	await operator.expectRefused({ status: 64, code: 'usage', words }, args);
	const unchecked = await operator.idv([...args, '--unchecked']);
	expect(unchecked).toMatchObject({
		status: 0,
		stderr: expect.stringMatching(/^Warning: Signed unchecked, without .*--workflows/),
	});
	await writeFile(join(operator.directory, 'fleet-checks.json'), '{ "inventry": "devices.csv" }');
	await operator.expectRefused({ status: 78, code: 'settings-invalid', words: /fleet-checks\.json/ }, args);
});

test('of two managers who have seen the same plan, the second is refused until he has seen that of the first [F731]', async () => {
	const { plan, sign, first, out, published } = await given();
	await first(await plan(1, 'new'), out);
	const seen = await operator.file('seen.json', await readFile(out, 'utf8'), 0o644);
	expect((await sign(await plan(2, 'new'), out, '--previous', seen)).status).toBe(0);
	const mine = await plan(3, 'other');
	const refused = await sign(mine, out, '--previous', seen, '--allow-workflow', 'other');
	expect(refused).toMatchObject({
		status: 65,
		stderr: expect.stringMatching(/another manager has published there.*plan-outdated/),
	});
	expect(await published()).toMatchObject({ revision: 2 });
	expect((await sign(mine, out, '--previous', out, '--allow-workflow', 'other')).status).toBe(0);
	expect((await sign(mine, out, '--allow-workflow', 'other')).stderr).toMatch(/is published already.*--allow-repeat/);
});

test('a plan that came by another way than idv fleet is not replaced unseen', async () => {
	const { plan, sign, first, out } = await given();
	await first(await plan(1, 'new'), out);
	await writeFile(out, await readFile(await plan(5, 'new')));
	expect(await sign(await plan(6, 'new'), out)).toMatchObject({
		status: 65,
		stderr: expect.stringMatching(/plan-outdated/),
	});
});

test('a run that was killed between signing and publishing is repeated as it was [F732]', async () => {
	const { plan, sign, first, out, published, record } = await given();
	await first(await plan(1, 'new'), out);
	const before = await readFile(out, 'utf8');
	await sign(await plan(2, 'new'), out);
	// The record was written, the plan was not.
	await writeFile(out, before);
	expect((await sign(await plan(2, 'new'), out)).status).toBe(0);
	expect(await published()).toMatchObject({ revision: 2 });
	const { signed } = JSON.parse(await readFile(record, 'utf8'));
	expect(signed.map(({ revision }: { revision: number }) => revision)).toEqual([1, 2]);
});

test('a store that holds the plan before the newest one again is told, with the revision that devices may have [F1221]', async () => {
	const { plan, sign, first, out } = await given();
	await first(await plan(1, 'new'), out);
	const before = await readFile(out, 'utf8');
	expect((await sign(await plan(2, 'new'), out)).stderr).toBe('');
	await writeFile(out, before);
	const later = await sign(await plan(3, 'new'), out);
	expect(later).toMatchObject({
		status: 0,
		stderr: expect.stringMatching(/held the plan before revision 2, which was signed at .* devices have it/),
	});
	expect((await sign(await plan(4, 'new'), out)).stderr).toBe('');
});

test('a number that devices may have from a plan that a store has lost is given to no other plan [F1282]', async () => {
	const { key, plan, sign, first, out, published } = await given();
	await first(await plan(1, 'new'), out);
	const before = await readFile(out, 'utf8');
	await sign(await plan(2, 'new'), out);
	await writeFile(out, before);
	expect(await sign(await plan(2, 'other'), out, '--allow-workflow', 'other')).toMatchObject({
		status: 65,
		stderr: expect.stringMatching(
			/revision 2 was signed at .* devices that have it refuse .*Give this plan revision 3/s,
		),
	});
	expect(await published()).toMatchObject({ revision: 1 });
	expect((await sign(await plan(2, 'other'), out, '--unchecked', '--allow-workflow', 'other')).status).toBe(0);
	await writeFile(out, before);
	const step = await operator.idv(['fleet', 'next-ring', out, '--key', key, '--out', out]);
	expect(step).toMatchObject({ status: 0, stdout: expect.stringContaining('Revision 1 → 3') });
	expect(await published()).toMatchObject({ revision: 3 });
});

describe('a published plan that was changed after it was signed', () => {
	const rings = [{ percent: 10 }, { percent: 60, startAt: '2100-01-01T00:00:00Z' }];
	const defaults = { workflowId: 'old', rollout: { to: { workflowId: 'new' }, rings } };

	async function givenChanged() {
		const own = await given();
		const { plan, first, out, key } = own;
		expect((await first(await plan(1, 'new', { defaults }), out)).status).toBe(0);
		const signed = await readFile(out, 'utf8');
		const envelope = JSON.parse(signed);
		const content = Buffer.from(envelope.payload, 'base64').toString();
		/** With another workflow, and what else differs. */
		const change = (more: object = {}, others: object = envelope) => {
			const changed = { ...JSON.parse(content), defaults: { ...defaults, workflowId: 'other' }, ...more };
			const text = JSON.stringify(changed);
			return { text, sealed: JSON.stringify({ ...others, payload: Buffer.from(text).toString('base64') }) };
		};
		const step = (name: string, ...flags: string[]) =>
			operator.idv(['fleet', name, out, '--key', key, '--out', out, ...flags]);
		return { ...own, signed, change, step };
	}

	test.each(['with its record', 'without'])('is the beginning of no step and no plan (%s) [F1657]', async (record) => {
		const { key, plan, sign, out, signed, change, step, record: place } = await givenChanged();
		if (record === 'without') await rm(place);
		const refused = {
			status: 65,
			stderr: expect.stringMatching(/holds revision \d+ without a signature that fits --key.*plan-untrusted/),
		};
		// Also with a number of its own, and without its signature.
		for (const there of [change().sealed, change({ revision: 2 }).sealed, change().text]) {
			await writeFile(out, there);
			for (const name of ['rollback', 'pause', 'next-ring'])
				expect([name, await step(name, ...(name === 'next-ring' ? ['--previous', out] : []))]).toMatchObject([
					name,
					refused,
				]);
			if (there !== change().text) {
				expect(await sign(await plan(3, 'new', { defaults }), out, '--previous', out)).toMatchObject(refused);
				expect(await operator.idv(['fleet', 'sign', out, '--key', key, '--out', out])).toMatchObject(
					there === change().sealed && record === 'with its record' ? { status: 65 } : refused,
				);
			}
			expect(await readFile(out, 'utf8')).toBe(there);
		}
		// As the remedy says.
		await rm(out);
		const mine = await operator.file('mine.json', signed, 0o644);
		expect((await sign(await plan(3, 'new', { defaults }), out, '--previous', mine)).status).toBe(0);
		expect((await step('rollback')).status).toBe(0);
	});

	test('and that was only written into the record gets no other signature without a warning [F1754]', async () => {
		const { out, change, record } = await givenChanged();
		const other = join(operator.directory, 'other.key');
		succeeded(await operator.idv(['fleet', 'keygen', '--out', other, '--json']));
		const { text, sealed } = change({ revision: 2 });
		const changed = await operator.file('changed.json', sealed, 0o644);
		const again = async (file: string) =>
			(await operator.idv(['fleet', 'sign', file, '--key', other, '--out', out, ...meant])).stderr;
		const meant = ['--allow-workflow', 'other', '--allow-workflow', 'new', '--allow-moves', '100'];
		const words = /signed by other keys, and is not the plan that is published/;
		const known = JSON.parse(await readFile(record, 'utf8'));
		const [{ digest: previous, ...first }] = known.signed;
		const digest = createHash('sha256').update(text).digest('hex');
		const added = { ...first, revision: 2, digest, previous, after: previous };
		await writeFile(record, JSON.stringify({ ...known, signed: [...known.signed, added] }));
		expect(await again(changed)).toMatch(words);
	});

	test('gets the signature of no other key beside its own where its record knows it not [F1657]', async () => {
		const { out, change, record } = await givenChanged();
		const other = join(operator.directory, 'other.key');
		succeeded(await operator.idv(['fleet', 'keygen', '--out', other, '--json']));
		const again = () => operator.idv(['fleet', 'sign', out, '--key', other, '--out', out]);
		const there = change({ revision: 2 }).sealed;
		await writeFile(out, there);
		expect(await again()).toMatchObject({
			status: 65,
			stderr: expect.stringMatching(/revision 2, which is not in its record/),
		});
		expect(await readFile(out, 'utf8')).toBe(there);
		await rm(record);
		expect((await again()).stderr).toMatch(
			/signed by other keys, and is not the plan that is published by its record: idv fleet check with --public-key/,
		);
	});
});

describe('a rollback or pause that was killed before it was published', () => {
	test.each(['rollback', 'pause'])('(%s) is passed by no step forward, and repeated [F1420]', async (name) => {
		const { key, plan, sign, first, out, published, record } = await given();
		const rings = [{ percent: 50 }, { percent: 60, startAt: '2100-01-01T00:00:00Z' }];
		const rollout = { to: { workflowId: 'new' }, rings };
		expect((await first(await plan(1, 'new', { defaults: { workflowId: 'old', rollout } }), out)).status).toBe(0);
		const before = await readFile(out, 'utf8');
		const step = (what: string) => operator.idv(['fleet', what, out, '--key', key, '--out', out]);
		expect((await step(name)).status).toBe(0);
		const held = await readFile(record, 'utf8');
		// The record was written, the plan was not.
		await writeFile(out, before);
		const words = new RegExp(
			`revision 2, .*\\(idv fleet ${name}\\), was signed at .*Repeat it first.*idv fleet ${name}`,
		);
		const refused = { status: 65, stderr: expect.stringMatching(words) };
		expect(await operator.idv(['fleet', 'next-ring', out])).toMatchObject(refused);
		expect(await step('next-ring')).toMatchObject(refused);
		const wider = { defaults: { workflowId: 'old', rollout: { ...rollout, rings: [{ percent: 70 }] } } };
		for (const previous of [[], ['--previous', out]])
			expect(await sign(await plan(3, 'new', wider), out, ...previous)).toMatchObject(refused);
		expect([await readFile(out, 'utf8'), await readFile(record, 'utf8')]).toEqual([before, held]);
		expect((await step(name)).status).toBe(0);
		expect(await published()).toMatchObject({ revision: 3 });
		expect((await sign(await plan(4, 'new'), out)).status).toBe(0);
	});

	test('of one rule is passed by no rollback of another one, no pause and no plan, but by the same command and by a rollback of all [F1428]', async () => {
		const { key, plan, sign, first, out, published } = await given();
		const rollout = {
			to: { workflowId: 'new' },
			rings: [{ percent: 50 }, { percent: 60, startAt: '2100-01-01T00:00:00Z' }],
		};
		const ids = (from: number) => Array.from({ length: 50 }, (_, n) => `K-${from + n}`);
		const ruleOf = (name: string) => ({
			name,
			match: { deviceIds: ids(name === 'lobby' ? 0 : 50) },
			workflowId: 'old',
			rollout,
		});
		const rules = ['lobby', 'hall'].map(ruleOf);
		expect((await first(await plan(1, 'new', { defaults: { workflowId: 'old' }, rules }), out)).status).toBe(0);
		const before = await readFile(out, 'utf8');
		const step = (...what: string[]) => operator.idv(['fleet', ...what, out, '--key', key, '--out', out]);
		const others = [['next-ring'], ['pause'], ['rollback', '--rule', 'hall']];
		for (const again of [['rollback', '--rule', 'lobby'], ['rollback']]) {
			expect((await step('rollback', '--rule', 'lobby')).status).toBe(0);
			await writeFile(out, before);
			const words =
				/held the fleet back \(idv fleet rollback --rule lobby\).*: idv fleet rollback --rule lobby \S+\. Or take everything back/;
			const refused = { status: 65, stderr: expect.stringMatching(words) };
			for (const other of others) expect(await step(...other)).toMatchObject(refused);
			const lessHall = { rules: [ruleOf('lobby'), { ...ruleOf('hall'), rollout: undefined }] };
			expect(await sign(await plan(7, 'new', { defaults: { workflowId: 'old' }, ...lessHall }), out)).toMatchObject(
				refused,
			);
			expect(await readFile(out, 'utf8')).toBe(before);
			expect((await step(...again)).status).toBe(0);
			expect((await published()).rules[0].rollout?.rings ?? []).toEqual([]);
			await writeFile(out, before);
		}
	});

	test('names of several the last one, which alone can be repeated [F1490]', async () => {
		const { key, plan, first, out } = await given();
		const rings = [{ percent: 50 }, { percent: 60, startAt: '2100-01-01T00:00:00Z' }];
		const defaults = { workflowId: 'old', rollout: { to: { workflowId: 'new' }, rings } };
		expect((await first(await plan(1, 'new', { defaults }), out)).status).toBe(0);
		const before = await readFile(out, 'utf8');
		const step = (name: string) => operator.idv(['fleet', name, out, '--key', key, '--out', out]);
		for (const name of ['pause', 'rollback']) {
			expect((await step(name)).status).toBe(0);
			await writeFile(out, before);
		}
		const words = /revision 3, .*\(idv fleet rollback\).*Repeat it first, with --key and --out: idv fleet rollback/;
		for (const name of ['next-ring', 'pause'])
			expect(await step(name)).toMatchObject({ status: 65, stderr: expect.stringMatching(words) });
		expect((await step('rollback')).status).toBe(0);
	});

	test('by a signing is not passed by that of another plan that holds the fleet back elsewhere [F1437]', async () => {
		const { plan, sign, first, out } = await given();
		const rollout = (...rings: object[]) => ({ to: { workflowId: 'new' }, rings });
		const rule = (name: string, ids: string[], percent: number) => ({
			...{ name, match: { deviceIds: ids }, workflowId: 'old', rollout: rollout({ percent }) },
		});
		const of = (lobby: number, hall: number) => ({
			rules: [rule('lobby', ['K-5*'], lobby), rule('hall', ['K-1*'], hall)],
		});
		const more = ['--allow-empty-ring'];
		expect(await first(await plan(3, 'new', of(60, 60)), out, ...more)).toMatchObject({ status: 0, stderr: '' });
		const before = await readFile(out, 'utf8');
		const lessLobby = await plan(4, 'new', of(10, 60));
		expect((await sign(lessLobby, out, ...more)).status).toBe(0);
		await writeFile(out, before);
		expect(await sign(await plan(5, 'new', of(60, 10)), out, ...more)).toMatchObject({
			status: 65,
			stderr: expect.stringMatching(/revision 4, which held the fleet back \(idv fleet sign\).*sign that plan again/),
		});
		expect((await sign(lessLobby, out, ...more)).status).toBe(0);
	});

	test('by the signing of a plan without the rollout is passed by none either, and that plan and a rollback go on [F1420]', async () => {
		const { key, plan, sign, first, out, published } = await given();
		await first(await plan(1, 'new'), out);
		const before = await readFile(out, 'utf8');
		const without = await plan(2, 'new', { defaults: { workflowId: 'old' } });
		const next = ['fleet', 'next-ring', out, '--key', key, '--out', out];
		for (const again of [() => sign(without, out), () => operator.idv(['fleet', 'rollback', ...next.slice(2)])]) {
			expect((await sign(without, out)).status).toBe(0);
			await writeFile(out, before);
			expect(await operator.idv(next)).toMatchObject({
				status: 65,
				stderr: expect.stringMatching(/held the fleet back \(idv fleet sign\).*sign that plan again/),
			});
			expect((await again()).status).toBe(0);
			expect((await published()).defaults.rollout).toBeUndefined();
			await writeFile(out, before);
		}
		expect((await sign(await plan(4, 'new'), out, '--unchecked')).status).toBe(0);
	});
});

describe('a pause that was published', () => {
	async function givenPause(...flags: string[]) {
		const all = await given();
		const { key, plan, first, out } = all;
		const rollout = (...rings: object[]) => ({ to: { workflowId: 'new' }, rings });
		const later = { percent: 60, startAt: '2100-01-01T00:00:00Z' };
		const rules = (more: readonly object[] = []) => [
			{ name: 'lobby', match: { deviceIds: ['K-1*'] }, workflowId: 'old', rollout: rollout({ percent: 50 }, ...more) },
			{ name: 'hall', match: { deviceIds: ['K-5*'] }, workflowId: 'old', rollout: rollout({ percent: 50 }) },
		];
		const of = (more?: readonly object[]) => ({ defaults: { workflowId: 'old' }, rules: rules(more) });
		expect(await first(await plan(1, 'new', of([later])), out)).toMatchObject({ status: 0 });
		const step = (...what: string[]) =>
			operator.idv(['fleet', ...what, out, '--key', key, '--out', out, '--allow-empty-ring']);
		const pause = await operator.idv(['fleet', 'pause', out, '--key', key, '--out', out, ...flags]);
		expect(pause).toMatchObject({ status: 0, stdout: expect.stringContaining('Saved') });
		return { ...all, of, step, later };
	}

	test('holds the next ring until a person names the devices that may move [F1486]', async () => {
		const { out, record, step, published } = await givenPause();
		const before = await readFile(out, 'utf8');
		const held = await step('next-ring');
		expect(held).toMatchObject({ status: 0, stderr: '' });
		expect(held.stdout).toMatch(
			/revision 2: Paused \(idv fleet pause\): rule lobby since 2\S+Z, rule hall since 2\S+Z\. .*--allow-moves.* was not written\.$/m,
		);
		const json = await operator.idv(['fleet', 'next-ring', out, '--json']);
		expect(JSON.parse(json.stdout)).toMatchObject({ isFinished: false, paused: [{ rule: 'lobby' }, { rule: 'hall' }] });
		const now = new Date().toISOString();
		const heard = {
			...{ schemaVersion: 1, state: 'online', agentVersion: '0.2.0', deviceId: 'K-1', problem: null, warnings: [] },
			workflow: { wanted: 'old', live: 'old', waitsUntil: null, source: 'plan' },
			channel: { state: 'online', since: now, lastHeartbeatAt: now },
			plan: { revision: 2, followed: 2, next: null, refused: null, checkedAt: null },
		};
		const from = await operator.file('heard.jsonl', JSON.stringify(heard));
		const shown = await operator.idv(['fleet', 'status', '--plan', out, '--from', from]);
		expect(shown.stderr).toMatch(/Paused \(idv fleet pause\): rule lobby since 2\S+Z, rule hall since 2/);
		// Earlier versions have recorded the command alone.
		const full = await readFile(record, 'utf8');
		await writeFile(record, full.replace('"paused":{', '"other":{'));
		expect((await step('next-ring')).stdout).toMatch(/Paused .*: rule lobby since 2/);
		await writeFile(record, full);
		expect(await readFile(out, 'utf8')).toBe(before);
		const on = await step('next-ring', '--rule', 'lobby', '--allow-moves', '100');
		expect(on).toMatchObject({ status: 0, stdout: expect.stringContaining('Revision 2 → 3') });
		expect((await step('next-ring')).stdout).not.toContain('rule hall  to');
		expect((await step('next-ring')).stdout).toMatch(/: Paused .*: rule hall since/);
		expect((await published()).rules[1].rollout.rings).toEqual([{ percent: 50 }]);
	});

	test('of one rule holds that one, and a plan with another rollout of it goes on [F1486]', async () => {
		const { plan, sign, out, of, step, later, published } = await givenPause('--rule', 'lobby');
		const hall = await step('next-ring');
		expect(hall).toMatchObject({ status: 0, stderr: expect.stringMatching(/Paused .*: rule lobby since/) });
		expect((await published()).rules.map((rule: { rollout: { rings: object[] } }) => rule.rollout.rings)).toEqual([
			[{ percent: 50 }],
			[{ percent: 50 }, { percent: 100 }],
		]);
		expect((await sign(await plan(4, 'new', of()), out, '--allow-moves', '100')).status).toBe(0);
		expect((await step('next-ring')).stderr).toMatch(/Paused .*: rule lobby since/);
		expect((await sign(await plan(6, 'new', of([later])), out)).status).toBe(0);
		expect((await step('next-ring')).stdout).toMatch(/^rule lobby +to new/m);
	});

	test('holds a step that is made from a copy of the plan [F1507]', async () => {
		const { key, out, published } = await givenPause();
		const copy = await operator.file('copy.json', await readFile(out, 'utf8'), 0o644);
		for (const name of ['next-ring', 'pause'])
			expect(await operator.idv(['fleet', name, copy, '--key', key, '--out', out])).toMatchObject({
				status: 0,
				stderr: '',
			});
		const { stdout } = await operator.idv(['fleet', 'next-ring', copy, '--key', key, '--out', out]);
		expect(stdout).toMatch(/revision 2: Paused .*: rule lobby since .*, rule hall since/);
		expect((await published()).revision).toBe(2);
	});

	test('holds a rule under another name, and with fewer devices; with more it goes on [F1508]', async () => {
		const { plan, sign, out, of, step } = await givenPause();
		const words = of();
		const changed = (name: string, percent: number) => ({
			...words,
			rules: words.rules.map((rule) =>
				rule.name === 'hall' ? rule : { ...rule, name, rollout: { ...rule.rollout, rings: [{ percent }] } },
			),
		});
		for (const [revision, name, percent] of [
			[3, 'foyer', 50],
			[4, 'foyer', 5],
			[5, 'lobby', 1],
		] as const) {
			expect((await sign(await plan(revision, 'new', changed(name, percent)), out, '--allow-empty-ring')).status).toBe(
				0,
			);
			expect((await step('next-ring')).stdout).toMatch(
				new RegExp(`revision ${revision}: Paused .*: rule ${name} since 2\\S+Z, rule hall since`),
			);
		}
		expect((await sign(await plan(6, 'new', changed('lobby', 50)), out)).status).toBe(0);
		expect((await step('next-ring')).stdout).toMatch(/^rule lobby +to new +50 % +→ +100 %/m);
	});

	test('holds a rule that is split, and one whose rollout moves to the defaults [F1543]', async () => {
		const { plan, sign, out, of, step } = await givenPause();
		const words = of();
		const [lobby] = words.rules.filter(({ name }) => name === 'lobby');
		const again = { ...lobby, name: 'lobby-b', match: { deviceIds: ['K-9*'] } };
		expect(
			(await sign(await plan(3, 'new', { ...words, rules: [again, ...words.rules] }), out, '--allow-empty-ring'))
				.status,
		).toBe(0);
		expect((await step('next-ring')).stdout).toMatch(/Paused .*: rule lobby-b since 2\S+Z, rule lobby since/);
		const together = { ...words, defaults: { ...words.defaults, rollout: lobby?.rollout }, rules: [] };
		expect((await sign(await plan(4, 'new', together), out, '--allow-empty-ring', '--allow-moves', '100')).status).toBe(
			0,
		);
		expect((await step('next-ring')).stdout).toMatch(/revision 4: Paused .*: the defaults since/);
	});

	test.each([{ extensions: { 'example.com/ticket': 4711 } }, { settings: { heartbeatCadence: 60 } }])(
		'holds a rule whose rollout gets %j beside its workflow [F1604]',
		async (more) => {
			const { plan, sign, out, of, step } = await givenPause();
			const words = of();
			const rules = words.rules.map((rule) => ({
				...rule,
				rollout: { ...rule.rollout, to: { ...rule.rollout.to, ...more } },
			}));
			expect((await sign(await plan(3, 'new', { ...words, rules }), out, '--allow-moves', '100')).status).toBe(0);
			expect((await step('next-ring')).stdout).toMatch(/revision 3: Paused .*: rule lobby since .*, rule hall since/);
		},
	);

	test('of one rule holds its devices also where it exchanges names with another [F1587]', async () => {
		const { plan, sign, out, of, step } = await givenPause('--rule', 'lobby');
		const words = of();
		const other: Record<string, string> = { lobby: 'hall', hall: 'lobby' };
		const exchanged = words.rules.map((rule) => ({ ...rule, name: `${other[rule.name]}` }));
		expect((await sign(await plan(3, 'new', { ...words, rules: exchanged }), out)).status).toBe(0);
		expect((await step('next-ring')).stdout).toMatch(/revision 3: Paused .*: rule hall since 2\S+Z, rule lobby since/);
	});

	test('is not passed where the record is lost: a person names the plan in force [F1509]', async () => {
		const { out, record, step, published } = await givenPause();
		await rm(record);
		const refused = {
			status: 65,
			stderr: expect.stringMatching(/holds revision 2, which is not in its record.*plan-outdated/),
		};
		expect(await step('next-ring')).toMatchObject(refused);
		// As idv fleet status --record leaves it.
		await writeFile(record, '{"format":"idv-fleet-record/1","signed":[],"seen":null}');
		expect(await step('next-ring')).toMatchObject(refused);
		expect((await published()).revision).toBe(2);
		expect((await operator.idv(['fleet', 'next-ring', out])).status).toBe(0);
		expect((await step('next-ring', '--previous', out)).status).toBe(0);
	});

	test('is asked for where no key has sealed it: next-ring stops once, and others say so [F1745]', async () => {
		const { key, plan, sign, out, of, record, step, published, later } = await givenPause();
		const text = await readFile(record, 'utf8');
		const { signed, ...others } = JSON.parse(text);
		const [one, { brake: _, paused: __, ...two }] = signed;
		const ended = JSON.stringify({ ...others, signed: [one, two] });
		const bare = JSON.stringify({ ...others, signed: [one, { ...two, after: undefined, seals: undefined }] });
		const words = /published\.record\.json: by --key, the pauses of revision 2 have no seal that fits/;
		const said = expect.stringMatching(words);
		const shown = await readFile(out, 'utf8');
		for (const edited of [ended, bare, ended.replace('"after"', '"other"')]) {
			await writeFile(record, edited);
			expect(await step('next-ring')).toMatchObject({ status: 65, stderr: said });
			expect((await published()).revision).toBe(2);
		}
		for (const [what, ...flags] of [
			['next-ring', '--previous', out],
			['next-ring', '--allow-moves', '100'],
			['rollback'],
		] as const) {
			expect(await operator.idv(['fleet', what, out, '--key', key, '--out', out, ...flags])).toMatchObject({
				status: 0,
				stderr: said,
			});
			expect((await published()).revision).toBe(3);
			await writeFile(out, shown);
			await writeFile(record, ended);
		}
		expect(await sign(await plan(3, 'new', of([later])), out, '--allow-moves', '100')).toMatchObject({ stderr: said });
		// It is said once: then a key has sealed what the record says.
		expect(await step('next-ring')).toMatchObject({ status: 0, stderr: '' });
	});

	test('is sealed as well where it was only noted, and after one more signature [F1746]', async () => {
		const { key, plan, sign, first, out, record } = await given();
		expect((await first(await plan(1, 'new'), out)).status).toBe(0);
		const other = join(operator.directory, 'other.key');
		succeeded(await operator.idv(['fleet', 'keygen', '--out', other, '--json']));
		const by = (...keys: string[]) => keys.flatMap((one) => ['--key', one]);
		const step = (name: string, ...flags: string[]) => operator.idv(['fleet', name, out, '--out', out, ...flags]);
		expect((await step('pause', ...by(key))).stdout).toMatch(/Its record says now that it is paused/);
		expect((await step('sign', ...by(other), '--allow-repeat', '--unchecked')).status).toBe(0);
		const both = by(key, other);
		expect((await step('next-ring', ...both)).stdout).toMatch(/Paused .*: the defaults since/);
		const noted = await readFile(record, 'utf8');
		const { signed, ...others } = JSON.parse(noted);
		await writeFile(record, JSON.stringify({ ...others, signed: [{ ...signed[0], paused: undefined }] }));
		expect(await step('next-ring', ...both)).toMatchObject({
			status: 65,
			stderr: expect.stringMatching(/no seal that/),
		});
		await writeFile(record, noted);
		expect(await step('rollback', ...both)).toMatchObject({ status: 0, stderr: '' });
		// One that holds nothing back any more is signed once more, too.
		expect((await step('sign', ...by(other), '--allow-repeat', '--unchecked')).status).toBe(0);
		expect((await sign(await plan(3, 'new'), out)).stderr).toMatch(
			/^Warning: (?!.*seal).*is signed by 1 key more.*\n$/,
		);
	});

	test('that was noted without a key is sealed by a pause with one, which says so first [F1804]', async () => {
		const { key, plan, first, out, record } = await given();
		expect((await first(await plan(1, 'new'), out)).status).toBe(0);
		const step = (name: string, ...flags: string[]) => operator.idv(['fleet', name, out, '--out', out, ...flags]);
		expect((await step('pause')).status).toBe(0);
		expect(await step('pause', '--key', key)).toMatchObject({
			status: 0,
			stderr: expect.stringMatching(/no seal that/),
		});
		const { signed, ...others } = JSON.parse(await readFile(record, 'utf8'));
		await writeFile(record, JSON.stringify({ ...others, signed: [{ ...signed[0], paused: undefined }] }));
		expect(await step('next-ring', '--key', key)).toMatchObject({
			status: 65,
			stderr: expect.stringMatching(/no seal that/),
		});
	});

	test('of a plan that lists no ring to come holds those of the schedule [F1486]', async () => {
		const { key, plan, first, sign, out } = await given();
		expect((await first(await plan(1, 'new'), out)).status).toBe(0);
		const step = (name: string) => operator.idv(['fleet', name, out, '--key', key, '--out', out]);
		const bare = await operator.idv(['fleet', 'pause', out]);
		expect(bare.stdout).toMatch(/with --out, next-ring begins none either/);
		expect((await operator.idv(['fleet', 'pause', out, '--key', key, '--out', `${out}.new`])).stdout).toMatch(
			/its record does not know it/,
		);
		expect((await step('pause')).stdout).toMatch(/Its record says now that it is paused/);
		expect((await step('next-ring')).stdout).toMatch(/Paused .*: the defaults since/);
		expect((await sign(await plan(2, 'new', { defaults: { workflowId: 'old' } }), out)).status).toBe(0);
		expect((await step('pause')).stdout).toMatch(/there is nothing to pause/);
	});
});

describe.each([true, false])(
	'a pause at the same moment as a next ring, at a store with If-Match (%s),',
	(knowsIfMatch) => {
		const at = '/plans/published.record.json';

		async function givenRing() {
			const { key, plan, first } = await given();
			const store = await givenStore({ knowsIfMatch });
			const defaults = { workflowId: 'old', rollout: { to: { workflowId: 'new' }, rings: [{ percent: 10 }] } };
			expect((await first(await plan(1, 'new', { defaults }), store.url)).status).toBe(0);
			const checks = ['--inventory', join(operator.directory, 'devices.csv'), '--max-moves', '100%'];
			const step = (name: string) => {
				const flags = name === 'next-ring' ? [...checks, '--allow-workflow', 'new'] : [];
				return operator.idv(['fleet', name, store.url, '--key', key, '--out', store.url, ...flags]);
			};
			const revisions = () =>
				JSON.parse(store.kept.get(at) ?? '').signed.map((one: { revision: number }) => one.revision);
			return { store, step, revisions };
		}
		const isNoted = { status: 0, stdout: expect.stringMatching(/Its record says now that it is paused/) };
		const isHeld = { status: 0, stdout: expect.stringMatching(/Paused .*: the defaults since/) };
		const isRefused = {
			status: 65,
			stderr: expect.stringMatching(/another manager has published there.*plan-outdated/s),
		};

		/** The other command runs while the first one waits for the record that it reads for the nth time. */
		const onRead = (nth: number, run: () => Promise<unknown>) => {
			let reads = 0;
			return {
				async recordRead() {
					reads += 1;
					if (reads === nth) await run();
				},
			};
		};

		test.each(['next-ring', 'rollback'])('refuses a %s that had not seen it [F1824]', async (name) => {
			const { store, step, revisions } = await givenRing();
			let pause: unknown;
			store.overtake(
				onRead(2, async () => {
					pause = await step('pause');
				}),
			);
			expect(await step(name)).toMatchObject(isRefused);
			expect(pause).toMatchObject(isNoted);
			expect(revisions()).toEqual([1]);
			expect(await step('next-ring')).toMatchObject(isHeld);
		});

		test('holds the ring after one that is about to be published [F1824]', async () => {
			const { store, step, revisions } = await givenRing();
			let pause: unknown;
			store.overtake({
				async before() {
					pause ??= await step('pause');
				},
			});
			expect(await step('next-ring')).toMatchObject({ status: 0, stdout: expect.stringContaining('Revision 1 → 2') });
			expect(pause).toMatchObject(isNoted);
			expect(await step('next-ring')).toMatchObject({ ...isHeld, stderr: '' });
			expect(revisions()).toEqual([1, 2]);
		});

		test('is refused where it had not seen that one [F1824]', async () => {
			const { store, step } = await givenRing();
			store.overtake(onRead(1, () => step('next-ring')));
			expect(await step('pause')).toMatchObject(isRefused);
			expect(await step('pause')).toMatchObject(isNoted);
			expect(await step('next-ring')).toMatchObject(isHeld);
		});

		test('is not lost where it has written over the record of that one [F1824]', async () => {
			const { store, step } = await givenRing();
			const before = store.kept.get(at) ?? '';
			expect(await step('pause')).toMatchObject(isNoted);
			const paused = store.kept.get(at) ?? '';
			store.kept.set(at, before);
			store.overtake({ taken: () => store.kept.set(at, paused) });
			expect((await step('next-ring')).status).toBe(0);
			expect(await step('next-ring')).toMatchObject({ ...isHeld, stderr: '' });
		});
	},
);

describe('the record of two managers who sign at once', () => {
	const at = '/plans/published.record.json';
	const revisionsIn = (text = '') => JSON.parse(text).signed.map(({ revision }: { revision: number }) => revision);

	test('has what is published, also where the refused one has written over it at a store without If-Match [F1421]', async () => {
		const { plan, sign, first } = await given();
		const store = await givenStore({ knowsIfMatch: false });
		expect((await first(await plan(1, 'new'), store.url)).status).toBe(0);
		const before = store.kept.get(at) ?? '';
		store.overtake({ taken: () => store.kept.set(at, before) });
		expect((await sign(await plan(2, 'new'), store.url)).status).toBe(0);
		store.overtake({});
		expect(revisionsIn(store.kept.get(at))).toEqual([1, 2]);
		store.kept.set(at, before);
		expect(await sign(await plan(3, 'new'), store.url)).toMatchObject({
			status: 65,
			stderr: expect.stringMatching(/holds revision 2, which is not in its record .*has lost it.*--previous/),
		});
		expect((await sign(await plan(3, 'new'), store.url, '--previous', store.url)).status).toBe(0);
	});

	test.each(['next-ring', 'pause', 'rollback'])(
		'refuses a %s that came second as that, and asks for no revision [F1510]',
		async (name) => {
			const { key, plan, first } = await given();
			const store = await givenStore();
			const rings = [{ percent: 50 }, { percent: 60, startAt: '2100-01-01T00:00:00Z' }];
			const defaults = { workflowId: 'old', rollout: { to: { workflowId: 'new' }, rings } };
			expect((await first(await plan(1, 'new', { defaults }), store.url)).status).toBe(0);
			let reads = 0;
			store.overtake({
				recordRead() {
					reads += 1;
					const { signed, ...others } = JSON.parse(store.kept.get(at) ?? '');
					const theirs = { ...signed[0], digest: 'theirs', revision: 2 };
					if (reads === 2) store.kept.set(at, JSON.stringify({ ...others, signed: [...signed, theirs] }));
				},
			});
			const flags = ['--key', key, '--out', store.url, '--inventory', join(operator.directory, 'devices.csv')];
			const more = name === 'next-ring' ? ['--allow-moves', '100', '--allow-workflow', 'new'] : [];
			const words = /another manager has published there\. .*Then repeat the step from it/;
			const refused = { status: 65, code: 'plan-outdated', words } as const;
			const alone = store.kept.get(at) ?? '';
			for (const [form, expectIt] of [[[], expectRefusal] as const, [['--json'], expectJsonRefusal] as const]) {
				store.kept.set(at, alone);
				reads = 0;
				expectIt(await operator.idv(['fleet', name, store.url, ...flags, ...more, ...form]), refused);
				expect(revisionsIn(store.kept.get(at))).toEqual([1, 2]);
			}
		},
	);

	test('keeps a signing that was there before the one that is refused [F1422]', async () => {
		const { plan, sign, first } = await given();
		const store = await givenStore();
		expect((await first(await plan(1, 'new'), store.url)).status).toBe(0);
		expect((await sign(await plan(2, 'new'), store.url)).status).toBe(0);
		const before = store.kept.get(at);
		const theirs = '{"format":"idv-fleet-plan/2","revision":9}';
		store.overtake({ before: () => store.kept.set('/plans/published.json', theirs) });
		expect((await sign(await plan(2, 'new'), store.url, '--allow-repeat')).status).toBe(65);
		expect(store.kept.get(at)).toBe(before);
	});
});

describe('a store that has taken a plan and does not say so', () => {
	const at = '/plans/published.json';
	const defaults = {
		workflowId: 'old',
		rollout: { to: { workflowId: 'new' }, rings: [{ percent: 10 }, { percent: 20, startAt: '2100-01-01T00:00:00Z' }] },
	};

	async function givenPublished() {
		const own = await given();
		const store = await givenStore();
		expect((await own.first(await own.plan(1, 'new', { defaults }), store.url)).status).toBe(0);
		const wider = { ...defaults, rollout: { ...defaults.rollout, rings: [{ percent: 15 }] } };
		const next = await own.plan(2, 'new', { defaults: wider });
		const words = (name: string) => {
			const by = ['--key', own.key, '--out', store.url];
			if (name === 'sign') return ['fleet', name, next, ...by, '--allow-workflow', 'new'];
			const devices = ['--inventory', join(operator.directory, 'devices.csv')];
			const checks = name === 'next-ring' ? ['--allow-moves', '100'] : [];
			return ['fleet', name, store.url, ...by, ...devices, ...checks];
		};
		const act = (name: string, ...flags: string[]) => operator.idv([...words(name), ...flags]);
		const revision = () => {
			const { payload } = JSON.parse(store.kept.get(at) ?? '');
			return JSON.parse(Buffer.from(payload, 'base64').toString()).revision;
		};
		return { store, words, act, revision };
	}

	test.each([500, -1])('but holds it (%i) is one that has published it [F1658]', async (fault) => {
		const { store, act, revision } = await givenPublished();
		store.overtake({ fault });
		for (const [index, name] of ['sign', 'next-ring', 'rollback'].entries()) {
			expect([name, await act(name)]).toMatchObject([name, { status: 0, stderr: '' }]);
			expect(revision()).toBe(index + 2);
		}
		expect(store.kept.get('/plans/published.record.json')).not.toContain('isUnconfirmed');
	});

	test.each(['next-ring', 'pause', 'rollback', 'sign'])(
		'nor what it holds: the error says so, and the same %s again finishes that step and no other [F1659]',
		async (name) => {
			const { store, act, revision } = await givenPublished();
			store.overtake({ fault: 500, isAway: true });
			expect(await act(name)).toMatchObject({
				status: 69,
				stderr: expect.stringMatching(
					/published\.json has it all the same is not known; a plan that it has, devices take\. Repeat the same command .*no further/,
				),
			});
			const held = store.kept.get(at);
			store.overtake({});
			const again = await act(name, '--json');
			expect([again.status, store.kept.get(at)]).toEqual([0, held]);
			if (name !== 'sign') expect(JSON.parse(again.stdout)).toMatchObject({ isRepeat: true, isFinished: false });
			expect(store.kept.get('/plans/published.record.json')).not.toContain('isUnconfirmed');
			if (name === 'next-ring') expect((await act(name)).stdout).toMatch(/20 % +→ +50 %/);
			expect(revision()).toBe(name === 'next-ring' ? 3 : 2);
		},
	);

	test.each([
		['next-ring', /Saved/],
		['pause', /Saved/],
		['rollback', /Saved/],
		['sign', /Saved/],
		['next-ring', /this command stops here/],
	])(
		'or is told of it by a %s that is killed at that moment: by then it has said so (%s) [F1825]',
		async (name, said) => {
			const { store, words, act } = await givenPublished();
			if (!said.test('Saved')) {
				store.overtake({ fault: 500, isAway: true });
				expect((await act(name)).status).toBe(69);
			}
			let running: ReturnType<typeof follow> | undefined;
			store.overtake({ confirmed: () => running?.end('SIGKILL') });
			running = follow('idv', words(name), operator.env());
			expect(await running.ended).toMatchObject({ status: 'SIGKILL', stdout: expect.stringMatching(said) });
		},
	);

	test.each(['next-ring', 'pause', 'rollback', 'sign'])(
		'and whose record is damaged at that moment: %s gives one document, and the error beside it [F1825]',
		async (name) => {
			const { store, act } = await givenPublished();
			store.overtake({ confirmed: () => store.kept.set('/plans/published.record.json', 'cut off') });
			const told = await act(name, '--json');
			expect(told).toMatchObject({ status: 65, stderr: expect.stringMatching(/^Error: .*\[plan-invalid\]$/m) });
			expect(JSON.parse(told.stdout)).toMatchObject({ revision: 2 });
		},
	);

	const cut = /published\.json is published, and this step is done\..* record may not say yet .*stops once/;
	test.each([
		['next-ring', true],
		['next-ring', false],
		['rollback', true],
		['rollback', false],
	])(
		'but shows it, and cuts what the record says of that: %s is done, whether the record comes later (%s) or not [F1735]',
		async (name, isTakenLater) => {
			const { store, act, revision } = await givenPublished();
			store.overtake({ cutsConfirmation: true });
			expect(await act(name)).toMatchObject({ status: 0, stderr: expect.stringMatching(cut) });
			expect(revision()).toBe(2);
			store.overtake({});
			for (const [path, text] of isTakenLater ? store.late : []) store.kept.set(path, text);
			const again = JSON.parse((await act(name, '--json')).stdout);
			expect(again.isRepeat ?? false).toBe(!isTakenLater);
			expect(revision()).toBe(name === 'next-ring' && isTakenLater ? 3 : 2);
			expect(store.kept.get('/plans/published.record.json')).not.toContain('isUnconfirmed');
		},
	);

	test('and cuts what the command that is repeated says of it: that one asks for no repeat either [F1739]', async () => {
		const { store, act, revision } = await givenPublished();
		store.overtake({ fault: 500, isAway: true });
		expect((await act('next-ring')).status).toBe(69);
		store.overtake({ cutsConfirmation: true });
		const again = await act('next-ring');
		expect(again).toMatchObject({ status: 0, stderr: expect.stringMatching(cut) });
		expect(again.stdout).toMatch(/this command stops here/);
		expect(revision()).toBe(2);
	});

	test('and cuts that one was too late: the error still names the other manager, and asks for no repeat as it was [F1753]', async () => {
		const { store, act } = await givenPublished();
		const [own, record] = ['/plans/published.json', '/plans/published.record.json'].map((path) => store.kept.get(path));
		expect((await act('rollback')).status).toBe(0);
		const other = store.kept.get('/plans/published.json') ?? '';
		store.kept.set('/plans/published.json', own ?? '').set('/plans/published.record.json', record ?? '');
		store.overtake({ before: () => store.kept.set('/plans/published.json', other), cutsConfirmation: true });
		const late = await act('next-ring');
		expect(late).toMatchObject({ status: 65, stderr: expect.stringMatching(/another manager has published there/) });
		expect(late.stderr).toMatch(/Another manager came first, .*\.record\.json may still name it as signed/);
		expect(store.kept.get('/plans/published.json')).toBe(other);
	});

	test('holds back no rollback of what is not known to be published [F1659]', async () => {
		const { store, act, revision } = await givenPublished();
		store.overtake({ fault: 500, isAway: true });
		expect((await act('next-ring')).status).toBe(69);
		store.overtake({});
		expect((await operator.idv(['fleet', 'next-ring', store.url])).stdout).toMatch(/this command stops here/);
		expect((await act('rollback')).status).toBe(0);
		expect(revision()).toBe(3);
	});

	test('nor keeps the record of a pause that is only noted there: the pause is refused until it does [F1827]', async () => {
		const { key, plan, first } = await given();
		const store = await givenStore();
		expect((await first(await plan(1, 'new'), store.url)).status).toBe(0);
		const pause = ['fleet', 'pause', store.url, '--key', key, '--out', store.url];
		store.overtake({ isLate: true });
		const words = /published\.record\.json does not say that it is paused.*Repeat the same command/;
		expect(await operator.idv(pause)).toMatchObject({ status: 69, stdout: '', stderr: expect.stringMatching(words) });
		const { error } = JSON.parse((await operator.idv([...pause, '--json'])).stdout);
		expect(error).toMatchObject({ code: 'bad-response' });
		store.overtake({});
		expect(await operator.idv(pause)).toMatchObject({ status: 0, stderr: '' });
	});

	test.each(['sign', 'next-ring', 'rollback'])(
		'and takes it later is not another manager: %s says so, and goes no further [F1660]',
		async (name) => {
			const { store, act, revision } = await givenPublished();
			store.overtake({ isLate: true });
			for (const times of [1, 2])
				expect([times, await act(name)]).toMatchObject([
					times,
					{ status: 0, stderr: expect.stringMatching(/still answers as before/) },
				]);
			store.overtake({});
			for (const [path, text] of store.late) store.kept.set(path, text);
			expect((await act(name)).status).toBe(0);
			expect(revision()).toBe(2);
		},
	);
});

test('--ca-file counts for plans and records at an address, and is named where it is wanted [F1826]', async () => {
	const { plan, key } = await given();
	const kept = new Map([['/plan.json', await readFile(await plan(1, 'new'), 'utf8')]]);
	const { cert, key: own, ca } = identity('server');
	const server = createTlsServer({ cert, key: own }, async (request, response) => {
		const path = request.url ?? '';
		if (request.method === 'PUT') kept.set(path, (await request.toArray()).join(''));
		response.writeHead(kept.has(path) ? 200 : 404).end(kept.get(path));
	});
	const url = `https://localhost:${await listen(server)}`;
	const trusted = ['--ca-file', await operator.file('ca.pem', ca)];
	expect((await operator.idv(['fleet', 'check', `${url}/plan.json`, ...trusted])).status).toBe(0);
	const signing = ['fleet', 'sign', `${url}/plan.json`, '--key', key, '--out', `${url}/published.json`, '--unchecked'];
	expect((await operator.idv([...trusted, ...signing])).status).toBe(0);
	const words = /Name the certificate authority .* with --ca-file, or check the address\./;
	await operator.expectRefused({ status: 69, code: 'certificate-untrusted', words }, signing);
	const none = { status: 78, code: 'settings-unreadable', words: /none\.pem/ } as const;
	await operator.expectRefused(none, [...signing, '--ca-file', join(operator.directory, 'none.pem')]);
});

test.each([
	['"one"', '"one"'],
	['W/"one"', null],
	[undefined, null],
])('a store with the ETag %s is asked with %s to change only what was seen [F1845]', async (etag, kept) => {
	const store = createServer((_, response) => response.writeHead(200, etag === undefined ? {} : { etag }).end('{}'));
	const shell = { env: {} } as Shell;
	expect(await readStored(shell, `http://127.0.0.1:${await listen(store)}/plan.json`)).toMatchObject({ etag: kept });
});

test('no store gets a credential without encryption, but for one on this machine [F1845]', async () => {
	const asked: (string | undefined)[] = [];
	const store = createServer((request, response) => {
		asked.push(request.headers.authorization);
		response.end('{}');
	});
	const shell = { env: { IDV_STORE_AUTHORIZATION: 'Bearer abc' } } as unknown as Shell;
	await readStored(shell, `http://127.0.0.1:${await listen(store)}/plan.json`);
	expect(asked).toEqual(['Bearer abc']);
	const elsewhere = readStored(shell, 'http://store.invalid/plan.json');
	await expect(elsewhere).rejects.toMatchObject({ failure: { code: 'insecure-origin' } });
});

test('a store that knows If-Match decides who comes first [F733]', async () => {
	const { plan, sign, first } = await given();
	const store = await givenStore();
	expect((await first(await plan(1, 'new'), store.url)).status).toBe(0);
	expect((await sign(await plan(2, 'new'), store.url)).status).toBe(0);
	expect(store.asked.filter((one) => one.startsWith('/plans/published.json'))).toEqual([
		'/plans/published.json nothing',
		'/plans/published.json the same',
	]);
	const theirs = '{"format":"idv-fleet-plan/2","revision":9}';
	const outdated = { status: 65, stderr: expect.stringMatching(/another manager has published there.*plan-outdated/) };
	for (const refusal of [412, 409]) {
		const last = store.kept.get('/plans/published.json') ?? '';
		store.overtake({ before: () => store.kept.set('/plans/published.json', theirs), refusal });
		expect(await sign(await plan(3, 'new'), store.url)).toMatchObject(outdated);
		expect(store.kept.get('/plans/published.json')).toBe(theirs);
		store.kept.set('/plans/published.json', last);
	}
});

test('who is overtaken after his plan was taken is told so where the other plan is there, and not for its record alone', async () => {
	const { plan, sign, first } = await given();
	const [mine, other] = [await givenStore({ knowsIfMatch: false }), await givenStore()];
	for (const { url } of [mine, other]) expect((await first(await plan(1, 'new'), url)).status).toBe(0);
	expect((await sign(await plan(2, 'other'), other.url, '--allow-workflow', 'other')).status).toBe(0);
	const takes = (...names: string[]) => {
		for (const name of names) mine.kept.set(`/plans/${name}`, other.kept.get(`/plans/${name}`) ?? '');
	};
	mine.overtake({ after: () => takes('published.record.json') });
	expect((await sign(await plan(3, 'new'), mine.url)).status).toBe(0);
	mine.overtake({ after: () => takes('published.record.json', 'published.json') });
	expect(await sign(await plan(4, 'new'), mine.url, '--previous', mine.url)).toMatchObject({
		status: 65,
		stderr: expect.stringMatching(/another manager has published there.*plan-outdated/),
	});
});

test('who signs the first plan of a fleet is refused where another one is published already', async () => {
	const { plan, first, out, published } = await given();
	expect((await first(await plan(1, 'new'), out)).status).toBe(0);
	const other = await plan(5, 'other');
	const refusal = { status: 65, stderr: expect.stringMatching(/another manager has published there.*plan-outdated/) };
	expect(await first(other, out, '--allow-workflow', 'other')).toMatchObject(refusal);
	expect(await published()).toMatchObject({ revision: 1 });
});

test('of two managers who sign at the same moment to a file, one publishes and the other is refused', async () => {
	const { plan, first, sign, out, published } = await given();
	await first(await plan(1, 'new'), out);
	const files = [await plan(2, 'new'), await plan(2, 'other')];
	const ends = await Promise.all(files.map((file) => sign(file, out, '--allow-workflow', 'other')));
	expect(ends.map(({ status }) => status).sort()).toEqual([0, 65]);
	const to = ends[0]?.status === 0 ? 'new' : 'other';
	expect(await published()).toMatchObject({ revision: 2, defaults: { rollout: { to: { workflowId: to } } } });
});

test.runIf(process.geteuid?.() === 0)(
	'a full disk, and a directory in the place of the lock, are told as what they are (needs root) [F1831]',
	async () => {
		const { key, plan, first, out } = await given();
		const directory = join(operator.directory, 'full');
		await mkdir(directory);
		const full = join(directory, 'published.json');
		spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=64k', 'tmpfs', directory]);
		try {
			expect(await first(await plan(1, 'new'), full)).toMatchObject({ status: 0 });
			spawnSync('dd', ['if=/dev/zero', `of=${join(directory, 'filler')}`, 'bs=4k']);
			const told = await operator.idv(['fleet', 'rollback', full, '--key', key, '--out', full]);
			expectRefusal(told, {
				status: 74,
				code: 'state-unwritable',
				words: /published\S+ cannot be written: the disk is full/,
			});
			expect(await readdir(directory)).toEqual(['filler', 'published.json', 'published.record.json']);
		} finally {
			spawnSync('umount', ['-l', directory]);
		}
		await mkdir(`${out}.lock`);
		const told = await first(await plan(1, 'new'), out);
		expectRefusal(told, { status: 74, code: 'state-unwritable', words: /published\.json\.lock cannot be written: / });
	},
);

test('the lock of a killed command is passed over, and that of a running one is waited for', async () => {
	const { plan, first, sign, out } = await given();
	const dead = spawnSync(process.execPath, ['-e', '']).pid;
	await writeFile(`${out}.lock`, `${hostname()} ${dead}\n`);
	expect((await first(await plan(1, 'new'), out)).status).toBe(0);
	await writeFile(`${out}.lock`, `${hostname()} ${process.pid}\n`);
	const refused = await sign(await plan(2, 'new'), out);
	expect(refused).toMatchObject({
		status: 75,
		stderr: expect.stringMatching(/for more than 10 s.*published\.json\.lock/),
	});
	expect((await readdir(operator.directory)).filter((name) => name.endsWith('.lock'))).toHaveLength(1);
}, 30_000);

test.each([-1, 1])(
	'the lock of another machine whose clock is %d days off is waited for while it changes, and passed over when it stands still [F644]',
	async (days) => {
		const { plan, first, out } = await given();
		const lock = `${out}.lock`;
		const beat = async () => {
			await appendFile(lock, '.');
			const at = Date.now() / 1000 + days * 86_400;
			await utimes(lock, at, at);
		};
		await writeFile(lock, 'elsewhere 1 a\n');
		await beat();
		const beats = setInterval(() => void beat(), 500);
		const file = await plan(1, 'new');
		const refused = await first(file, out).finally(() => clearInterval(beats));
		expect(refused).toMatchObject({ status: 75, stderr: expect.stringMatching(/state-in-use/) });
		expect(await readFile(lock, 'utf8')).toMatch(/^elsewhere/);
		await writeFile(lock, 'elsewhere 1 b\n');
		await beat();
		expect((await first(file, out)).status).toBe(0);
		await expect(readFile(lock)).rejects.toThrow(/ENOENT/);
	},
	40_000,
);

test('a command changes its lock while it holds it, and leaves the lock of another one that took it for left', async () => {
	const place = join(operator.directory, 'held.json');
	const lock = `${place}.lock`;
	await withPlace(place, async () => {
		const before = await readFile(lock, 'utf8');
		await vi.waitFor(async () => expect(await readFile(lock, 'utf8')).not.toBe(before), 30_000);
	});
	await expect(readFile(lock)).rejects.toThrow(/ENOENT/);
	await withPlace(place, async () => {
		await rm(lock);
		await writeFile(lock, 'elsewhere 1 c\n');
	});
	expect(await readFile(lock, 'utf8')).toBe('elsewhere 1 c\n');
}, 40_000);

test('what is worth a look in a plan is said when it is signed, too', async () => {
	const { plan, first, out } = await given();
	const signed = await first(await plan(1, 'new', { validUntil: '2020-01-01T00:00:00Z' }), out);
	expect(signed).toMatchObject({ status: 0, stderr: expect.stringMatching(/validUntil is over/) });
});

test('elsewhere the plan that was seen last must be there', async () => {
	const { plan, sign, first } = await given();
	const store = await givenStore({ knowsIfMatch: false });
	expect((await first(await plan(1, 'new'), store.url)).status).toBe(0);
	expect(store.kept.has('/plans/published.record.json')).toBe(true);
	store.kept.set('/plans/published.json', '{"format":"idv-fleet-plan/2","revision":9}');
	expect(await sign(await plan(10, 'new'), store.url)).toMatchObject({
		status: 65,
		stderr: expect.stringMatching(/plan-outdated/),
	});
});

describe('a published plan that is damaged', () => {
	const words = /holds a damaged plan \(\d+ bytes, not a whole plan\), not revision 2, .*--previous FILE/;
	const refused = { status: 65, stdout: '', stderr: expect.stringMatching(words) };
	const replaced = {
		status: 0,
		stderr: expect.stringMatching(/^Warning: .*holds a damaged plan.*It is replaced\.\n$/),
	};

	test('by a store that keeps half of it is told as that at once, by every command, and published over [F1262]', async () => {
		const { key, plan, sign, first } = await given();
		const store = await givenStore();
		const at = '/plans/published.json';
		const good = await plan(1, 'new');
		expect((await first(good, store.url)).status).toBe(0);
		const cut = () => void store.kept.set(at, (store.kept.get(at) ?? '').slice(0, 64));
		store.overtake({ taken: cut });
		const next = await plan(2, 'new');
		expect(await sign(next, store.url)).toMatchObject(refused);
		expect(store.kept.get(at)).toHaveLength(64);
		store.overtake({});
		for (const args of [
			['rollback', store.url, '--key', key, '--out', store.url],
			['diff', store.url, good],
			['sign', next, '--key', key, '--out', store.url],
		])
			expect(await operator.idv(['fleet', ...args])).toMatchObject(refused);
		expect(await sign(next, store.url, '--previous', 'none')).toMatchObject(refused);
		const another = await plan(9, 'old');
		expect(await sign(await plan(10, 'new'), store.url, '--previous', another)).toMatchObject(refused);
		expect(await sign(next, store.url, '--previous', good)).toMatchObject(replaced);
		expect((await sign(await plan(3, 'new'), store.url)).status).toBe(0);
		const { signed } = JSON.parse(store.kept.get('/plans/published.record.json') ?? '');
		expect(signed.map(({ revision }: { revision: number }) => revision)).toEqual([1, 2, 3]);
	});

	test.each([
		['cut', (text: string) => text.slice(0, -9)],
		['empty', () => ''],
		['a page', () => '<html>'],
		['of another shape', () => '{"error":"full"}'],
	])('as a file that is %s is published over, by the newest of the record as well', async (_, damage) => {
		const { plan, sign, first, out, published, record } = await given();
		await first(await plan(1, 'new'), out);
		await sign(await plan(2, 'new'), out);
		await writeFile(out, damage(await readFile(out, 'utf8')));
		expect(await sign(await plan(3, 'new'), out)).toMatchObject(refused);
		expect(await sign(await plan(3, 'new'), out, '--previous', await plan(2, 'new'))).toMatchObject(replaced);
		expect(await published()).toMatchObject({ revision: 3 });
		const revisions = JSON.parse(await readFile(record, 'utf8')).signed.map(
			(one: { revision: number }) => one.revision,
		);
		expect(revisions).toEqual([1, 2, 3]);
	});

	test('and was the first one is published over by the first one, and unchecked', async () => {
		const { plan, sign, first, out, published } = await given();
		await first(await plan(1, 'new'), out);
		await writeFile(out, '{');
		expect((await first(await plan(1, 'new'), out)).status).toBe(0);
		await writeFile(out, '{');
		expect((await sign(await plan(2, 'new'), out, '--unchecked')).status).toBe(0);
		expect(await published()).toMatchObject({ revision: 2 });
	});

	test('is not what another manager has published, and no file of another kind', async () => {
		const { plan, sign, first, out } = await given();
		const good = await plan(1, 'new');
		await first(good, out);
		for (const theirs of ['{"format":"idv-fleet-plan/2","revision":9}', '{"format":"idv-fleet-plan/3"}']) {
			await writeFile(out, theirs);
			expect((await sign(await plan(2, 'new'), out, '--previous', good)).status).toBe(65);
			expect(await readFile(out, 'utf8')).toBe(theirs);
		}
		const other = join(operator.directory, 'devices.csv');
		const before = await readFile(other, 'utf8');
		for (const flags of [['--previous', good], ['--unchecked'], ['--previous', 'none']])
			expect((await sign(await plan(2, 'new'), other, ...flags)).status).toBe(65);
		expect(await readFile(other, 'utf8')).toBe(before);
	});
});

test('a signing without checks says what it passes: a killed rollback, and the plan of another fleet [F1434]', async () => {
	const { key, plan, sign, first, out } = await given();
	await first(await plan(1, 'new', { fleet: 'north' }), out);
	const before = await readFile(out, 'utf8');
	expect((await operator.idv(['fleet', 'rollback', out, '--key', key, '--out', out])).status).toBe(0);
	await writeFile(out, before);
	expect(await sign(await plan(3, 'new', { fleet: 'south' }), out, '--unchecked')).toMatchObject({
		status: 0,
		stderr: expect.stringMatching(
			/Signed unchecked: .*of the fleet "north", and this one is of "south".*Signed unchecked: .*revision 2, which held the fleet back \(idv fleet rollback\)/s,
		),
	});
	expect((await sign(await plan(4, 'new', { fleet: 'south' }), out, '--unchecked')).stderr).not.toContain('rollback');
});

test('a step says that its record does not know the plan, or that there is none [F1435]', async () => {
	const { key, plan, first, out, record } = await given();
	const other = join(operator.directory, 'other.json');
	await first(await plan(1, 'new', { fleet: 'north' }), out);
	await first(await plan(20, 'new', { fleet: 'north' }), other);
	await writeFile(out, await readFile(other));
	const step = (name: string) => operator.idv(['fleet', name, out, '--key', key, '--out', out]);
	expect(await step('rollback')).toMatchObject({
		status: 0,
		stderr: expect.stringMatching(/revision 20 of the fleet "north", which .*record.json does not know/),
	});
	expect((await step('next-ring')).stderr).not.toContain('does not know');
	await rm(record);
	await writeFile(out, await readFile(other));
	expect((await step('next-ring')).stderr).toMatch(
		/record.json is not there: nothing is known of what was signed before/,
	);
});

test.each(['rollback', 'pause', 'next-ring'])('a %s without its record says so [F1661]', async (name) => {
	const { key, plan, first, out, record } = await given();
	const rings = [{ percent: 50 }, { percent: 60, startAt: '2100-01-01T00:00:00Z' }];
	const defaults = { workflowId: 'old', rollout: { to: { workflowId: 'new' }, rings } };
	expect((await first(await plan(1, 'new', { defaults }), out)).status).toBe(0);
	await rm(record);
	const more = name === 'next-ring' ? ['--previous', out] : [];
	expect(await operator.idv(['fleet', name, out, '--key', key, '--out', out, ...more])).toMatchObject({
		status: 0,
		stderr: expect.stringMatching(/published\.record\.json is not there: nothing is known of what was signed before/),
	});
});

test('where --out is a link, the plan that it leads to is replaced, and the record beside that counts [F1436]', async () => {
	const { key, plan, sign, first, out, record, published } = await given();
	const link = join(operator.directory, 'link.json');
	expect((await first(await plan(1, 'new'), out)).status).toBe(0);
	await symlink(out, link);
	const before = await readFile(out, 'utf8');
	expect((await sign(await plan(2, 'new'), link)).status).toBe(0);
	const step = (name: string, place: string) => operator.idv(['fleet', name, place, '--key', key, '--out', place]);
	expect((await step('rollback', link)).status).toBe(0);
	expect([await readlink(link), (await published()).revision]).toEqual([out, 3]);
	expect(JSON.parse(await readFile(record, 'utf8')).signed).toHaveLength(3);
	await writeFile(out, before);
	for (const place of [link, out]) expect((await step('next-ring', place)).status).toBe(65);
});

test.each(['rollback', 'pause'])('a %s is not published over the plan of another fleet [F1430]', async (name) => {
	const { key, plan, first, out } = await given();
	const rings = [{ percent: 50 }, { percent: 60, startAt: '2100-01-01T00:00:00Z' }];
	const of = (fleet?: string) => ({
		fleet,
		defaults: { workflowId: 'old', rollout: { to: { workflowId: 'new' }, rings } },
	});
	const other = join(operator.directory, 'other.json');
	const step = (file: string, place: string) => operator.idv(['fleet', name, file, '--key', key, '--out', place]);
	for (const own of ['lobby', undefined]) {
		expect(await first(await plan(1, 'new', of(own)), out)).toMatchObject({ status: 0 });
		expect(await first(await plan(1, 'new', of('hall')), other)).toMatchObject({ status: 0 });
		const before = await readFile(other, 'utf8');
		const words =
			own === undefined ? /fleet "hall", and this one names no fleet/ : /fleet "hall", and this one is of "lobby"/;
		expect(await step(out, other)).toMatchObject({ status: 64, stderr: expect.stringMatching(words) });
		expect(await readFile(other, 'utf8')).toBe(before);
		expect(await step(out, out)).toMatchObject({ status: 0 });
		for (const file of [out, other]) await rm(file);
		for (const file of [out, other]) await rm(file.replace('.json', '.record.json'));
	}
});

test.each(['rollback', 'pause'])(
	'a %s of the plan that another fleet has put in its place is refused [F1489]',
	async (name) => {
		const { key, plan, first, sign, out } = await given();
		const rings = [{ percent: 50 }, { percent: 60, startAt: '2100-01-01T00:00:00Z' }];
		const of = (fleet: string) => ({
			fleet,
			defaults: { workflowId: 'old', rollout: { to: { workflowId: 'new' }, rings } },
		});
		const south = join(operator.directory, 'south.json');
		expect((await first(await plan(1, 'new', of('north')), out)).status).toBe(0);
		const own = await readFile(out);
		expect((await first(await plan(20, 'new', of('south')), south)).status).toBe(0);
		const theirs = await readFile(south, 'utf8');
		await writeFile(out, theirs);
		const refused = {
			status: 64,
			stderr: expect.stringMatching(/By its record, \S+ holds a plan of the fleet "north", and this one is of "south"/),
		};
		const step = () => operator.idv(['fleet', name, out, '--key', key, '--out', out]);
		expect(await step()).toMatchObject(refused);
		expect(await sign(await plan(21, 'new', of('south')), out)).toMatchObject(refused);
		expect(await readFile(out, 'utf8')).toBe(theirs);
		await writeFile(out, own);
		expect((await step()).status).toBe(0);
	},
);

test('the next ring of a plan that the record does not know is refused until it is named; a way back is not [F1338]', async () => {
	const { key, plan, sign, first, out, published } = await given();
	await first(await plan(1, 'new'), out);
	const other = join(operator.directory, 'other.json');
	await sign(await plan(9, 'new'), other, '--previous', 'none');
	const theirs = await readFile(other, 'utf8');
	await writeFile(out, theirs);
	const step = (name: string, ...flags: string[]) =>
		operator.idv(['fleet', name, out, '--key', key, '--out', out, ...flags]);
	const refusal = {
		status: 65,
		stderr: expect.stringMatching(/holds revision 9, which is not in its record.*plan-outdated/),
	};
	expect(await step('next-ring')).toMatchObject(refusal);
	expect(await readFile(out, 'utf8')).toBe(theirs);
	expect((await step('next-ring', '--previous', other)).status).toBe(0);
	expect(await published()).toMatchObject({ revision: 10 });
	await writeFile(out, theirs);
	expect((await step('rollback')).status).toBe(0);
});

test('rollback orders the version before again, in the rings that had begun, and names the devices that cannot go back', async () => {
	const { key, plan, sign, first, out, published } = await given();
	const ids = Array.from({ length: 100 }, (_, n) => `K-${n}`);
	await operator.file('devices.csv', `deviceId\n${ids.join('\n')}\n`);
	const rings = (version: string, percent: number) => ({
		defaults: { workflowId: 'old', rollout: { to: {}, rings: [{ percent, agent: { version } }] } },
	});
	const allowed = [
		'--allow-workflow',
		'old',
		'--allow-version',
		'0.3.0',
		'--allow-version',
		'0.4.0',
		'--allow-moves',
		'100',
	];
	expect((await first(await plan(1, 'x', rings('0.3.0', 30)), out, ...allowed)).status).toBe(0);
	expect((await sign(await plan(2, 'x', rings('0.4.0', 10)), out, ...allowed)).status).toBe(0);
	const old = await operator.file('old.csv', `deviceId,version\n${ids.map((id) => `${id},0.2.0`).join('\n')}\n`);
	const stale = succeeded(await operator.idv(['fleet', 'rollback', out, '--inventory', old, '--json']));
	const shown = succeeded(await operator.idv(['fleet', 'rollback', out, '--json']));
	// One that was ordered none of it has a newer one by hand.
	const byHand = ids.find((id) => !shown.cannotGoBack.includes(id) && rolloutPercentile(id) < 30);
	const rows = ids.map((id) => `${id},${id === byHand ? '0.3.5' : '0.2.0'}`).join('\n');
	const some = await operator.file('some.csv', `deviceId,version\n${rows}\n`);
	const mixed = succeeded(await operator.idv(['fleet', 'rollback', out, '--inventory', some, '--json']));
	const back = succeeded(await operator.idv(['fleet', 'rollback', out, '--key', key, '--out', out, '--json']));
	expect(back.changes).toMatchObject([{ version: '0.4.0', versionAfter: '0.3.0', before: 10, after: 0 }]);
	expect(back.cannotGoBack.length).toBeGreaterThan(3);
	// By the inventory, which is from before, none has the newer one yet.
	expect(stale.cannotGoBack).toEqual(back.cannotGoBack);
	const forward = { what: 'version', from: '0.2.0', to: '0.3.0' };
	expect(stale.preview.groups).toMatchObject([forward]);
	expect(mixed.cannotGoBack.toSorted()).toEqual([...back.cannotGoBack, byHand].toSorted());
	expect(mixed.preview.moves).toBe(stale.preview.moves - 1);
	expect(await published()).toMatchObject({
		revision: 3,
		defaults: { rollout: { rings: [{ percent: 30, agent: { version: '0.3.0' } }] } },
	});
	// The table counts none of them as one that moves.
	expect(back.preview.groups).toMatchObject([{ what: 'version', from: null, to: '0.3.0' }]);
	expect(back.preview.moves).toBe(back.preview.groups[0].devices);
});

describe('rollback takes back the newest step, whatever it was', () => {
	const all = [{ percent: 100 }];
	const order = (percent: number, version: string) => ({ percent, agent: { version } });
	const of = (rings: readonly object[], to: object = { workflowId: 'new' }, more: object = {}) => ({
		...{ name: 'lobby', match: { deviceIds: ['K-*'] }, workflowId: 'old', rollout: { to, rings } },
		...more,
	});
	const two = (rings: readonly object[], more = {}) =>
		of(rings, undefined, { match: { deviceIds: ['K-2*'] }, ...more });
	const [slow, fast] = [90, 60].map((heartbeatCadence) => ({ settings: { heartbeatCadence } }));
	const hall = { name: 'hall', match: { deviceIds: ['K-1*'] }, workflowId: 'other' };
	const second = { ...two([{ percent: 50 }]), name: 'second' };
	const { rollout: _, ...withoutRollout } = of(all);

	async function givenSteps(...steps: readonly (readonly object[] | string)[]) {
		const all = await given();
		const { key, plan, sign, out, published } = all;
		const step = async (rules: readonly object[] | string, index: number) => {
			if (typeof rules === 'string')
				return operator.idv([
					...['fleet', ...rules.split(' '), out, '--key', key, '--out', out],
					...(rules.startsWith('next-ring') ? ['--allow-moves', '100', '--allow-empty-ring'] : []),
				]);
			const meant = ['--allow-workflow', 'other', '--allow-moves', '100', '--allow-empty-ring'];
			const versions = ['0.3.0', '0.4.0'].flatMap((version) => ['--allow-version', version]);
			const file = await plan(index * 10 + 1, 'x', { defaults: { workflowId: 'old' }, rules });
			return sign(file, out, ...meant, ...versions, ...(index === 0 ? ['--previous', 'none'] : []));
		};
		for (const [index, one] of steps.entries()) {
			const last = await step(one, index);
			expect([one, last.status, last.stderr.replaceAll(/^(?:Warning|Note).*\n/gm, '')]).toEqual([one, 0, '']);
		}
		return { ...all, step, rules: async () => (await published()).rules };
	}

	test.each<[string, object[], object[], RegExp]>([
		[
			'a heartbeat beside a workflow',
			[of(all)],
			[of(all, { workflowId: 'new', ...fast })],
			/lobby +its newest change +→ +as it was signed before/,
		],
		['another heartbeat', [of(all, fast)], [of(all, slow)], /lobby +its newest change +→ +as it was signed before/],
		['a workflow beside a heartbeat', [of(all, fast)], [of(all, { workflowId: 'new', ...fast })], /lobby +to new/],
		[
			'the settings of a rule',
			[of(all)],
			[of(all, undefined, fast)],
			/lobby +its newest change +→ +as it was signed before/,
		],
		[
			'another `to` in fewer devices',
			[of(all)],
			[of([{ percent: 50 }], { workflowId: 'other' })],
			/lobby +to other +50 %/,
		],
		[
			'a workflow for those with a version',
			[of([order(100, '0.3.0')], {})],
			[of([order(100, '0.3.0')])],
			/lobby +to new/,
		],
		[
			'a workflow after a version',
			[of([order(100, '0.3.0'), order(10, '0.4.0')])],
			[of([order(100, '0.3.0'), order(10, '0.4.0')], { workflowId: 'other' })],
			/lobby +to other +10 %/,
		],
		['a rule before another one', [of(all)], [hall, of(all)], /rule hall +to other/],
		['the end of a rule before another one', [hall, of(all)], [of(all)], /rule hall/],
		['a rule under another name', [hall, of(all)], [hall, { ...of(all), name: 'foyer' }], /rule lobby/],
		['fewer devices', [second, of(all)], [second, of([{ percent: 10 }])], /rule lobby/],
		['a rollout that was taken out', [second, of(all)], [second, withoutRollout], /rule lobby/],
		[
			'a ring that may begin now',
			[second, of([{ percent: 50, startAt: '2020-01-01T00:00:00Z' }])],
			[second, of([{ percent: 50 }])],
			/rule lobby/,
		],
	])('%s [F1506]', async (_, before, now, said) => {
		const { step, rules } = await givenSteps(before, now);
		const back = await step('rollback', 2);
		expect(back).toMatchObject({ status: 0, stdout: expect.stringMatching(said) });
		expect(await rules()).toEqual(before);
	});

	test('that has only changed the order of the rules takes nothing back, and says so [F1506]', async () => {
		const { step, rules } = await givenSteps([hall, second], [second, hall]);
		const back = await step('rollback', 2);
		expect(`${back.stdout}${back.stderr}`).toContain('It has no rollout to take back');
		expect(await rules()).toEqual([second, hall]);
	});

	test('of one rule, all that its rings have reached, and of the others nothing, step by step [F1506]', async () => {
		const [ten, fifty] = [[{ percent: 10 }], [{ percent: 10 }, { percent: 50 }]];
		const second = { ...two(ten), name: 'hall', match: { deviceIds: ['K-3*'] } };
		const bare = { ...two(ten), rollout: undefined };
		const plain = JSON.parse(JSON.stringify(bare));
		const { rules, step } = await givenSteps(
			[plain],
			[two(ten)],
			[two(ten), second],
			'next-ring --rule lobby',
			'pause',
		);
		expect(await rules()).toEqual([two(fifty), second]);
		// The newest is the wider ring of the lobby, by which all of its rollout goes.
		for (const then of [[plain, second], [plain]]) {
			expect((await step('rollback', 0)).status).toBe(0);
			expect(await rules()).toEqual(then);
		}
		expect((await step('rollback', 0)).stdout).toMatch(/no rollout to take back/);
	});

	test('of a ring after fewer devices takes all of the rollout back, and moves none forward [F1603]', async () => {
		const plain = JSON.parse(JSON.stringify({ ...of(all), rollout: undefined }));
		const ten = of([{ percent: 10 }]);
		const { rules, step } = await givenSteps([plain], [ten], 'next-ring', [ten], 'next-ring', 'next-ring');
		expect(await rules()).toEqual([of([{ percent: 10 }, { percent: 50 }, { percent: 100 }])]);
		expect((await step('rollback', 0)).status).toBe(0);
		expect(await rules()).toEqual([plain]);
	});

	test('of the rule that is named alone, and one more signature hides nothing [F1506]', async () => {
		const second = { ...two(all), name: 'hall', match: { deviceIds: ['K-3*'] } };
		const other = { ...second, rollout: { to: { workflowId: 'other' }, rings: all } };
		const [third, fourth] = [two(all, fast), two(all, slow)];
		const { key, out, rules, step } = await givenSteps(
			[two(all), second],
			[third, second],
			[fourth, second],
			[fourth, other],
		);
		const again = ['fleet', 'sign', out, '--key', key, '--out', out, '--allow-repeat', '--unchecked'];
		expect((await operator.idv(again)).status).toBe(0);
		for (const [name, then] of [
			['rollback --rule lobby', [third, other]],
			['rollback --rule lobby', [two(all), other]],
			['rollback', [two(all), second]],
		] as const) {
			expect((await step(name, 0)).status).toBe(0);
			expect(await rules()).toEqual(then);
		}
	});

	test('begins no ring that had not begun, and keeps numbers as they are written [F1506]', async () => {
		const later = { percent: 60, startAt: '2100-01-01T00:00:00Z' };
		const { rawJSON } = JSON as unknown as { rawJSON(text: string): unknown };
		const extensions = { 'example.com/x': rawJSON('12345678901234567890') };
		const first = of([...all, later], undefined, { extensions });
		const { out, step, rules } = await givenSteps([first], [of(all, { workflowId: 'other' })]);
		expect((await step('rollback', 0)).status).toBe(0);
		expect(await rules()).toMatchObject([{ rollout: { rings: all } }]);
		const { payload } = JSON.parse(await readFile(out, 'utf8'));
		expect(Buffer.from(payload, 'base64').toString()).toContain('12345678901234567890');
	});

	test('by a record of before, that knows no more than versions, as until now [F1506]', async () => {
		const { record, step, rules } = await givenSteps([of([order(30, '0.3.0')], {})], [of([order(10, '0.4.0')], {})]);
		const { signed, ...others } = JSON.parse(await readFile(record, 'utf8'));
		const older = signed.map(({ before, order, ...one }: Record<string, unknown>) => one);
		await writeFile(record, JSON.stringify({ ...others, signed: older }));
		expect((await step('rollback', 0)).status).toBe(0);
		expect(await rules()).toEqual([of([order(30, '0.3.0')], {})]);
	});
});

describe('words of the record that its key has not sealed', () => {
	type Entry = Record<string, unknown> & { digest: string };
	const order = (percent: number, version: string) => ({ to: {}, rings: [{ percent, agent: { version } }] });
	const to = (workflowId: string) => ({ to: { workflowId }, rings: [{ percent: 50 }] });
	const withText = (entries: Entry[], from: string, to: string): Entry[] =>
		JSON.parse(JSON.stringify(entries).replaceAll(from, to));
	const unsealed = ({ seals: _, ...one }: Entry) => one;
	const workflows = ['new', 'other', 'third'].flatMap((name) => ['--allow-workflow', name]);
	const versions = ['0.3.0', '0.4.0'].flatMap((version) => ['--allow-version', version]);
	const meant = [...workflows, ...versions, '--workflows', 'old,new,other,third', '--allow-moves', '100'];

	async function givenSigned(...rollouts: object[]) {
		const all = await given();
		const { plan, sign, key, out, record, published } = all;
		const publish = async (rollout: object, revision: number, ...flags: string[]) => {
			const file = await plan(revision, 'x', { defaults: { workflowId: 'old', rollout } });
			expect(await sign(file, out, ...meant, ...flags)).toMatchObject({ status: 0 });
		};
		for (const [index, rollout] of rollouts.entries())
			await publish(rollout, index + 1, ...(index === 0 ? ['--previous', 'none'] : []));
		const edit = async (change: (entries: Entry[]) => object[]) => {
			const { signed, ...others } = JSON.parse(await readFile(record, 'utf8'));
			await writeFile(record, JSON.stringify({ ...others, signed: change(signed) }));
		};
		const rollback = async (...flags: string[]) => {
			const back = await operator.idv(['fleet', 'rollback', out, '--out', out, ...flags]);
			expect(back).toMatchObject({ status: 0 });
			return [(await published()).defaults, back.stderr];
		};
		const other = join(operator.directory, 'other.key');
		succeeded(await operator.idv(['fleet', 'keygen', '--out', other, '--json']));
		const signAgain = async (by: string) => {
			const again = ['fleet', 'sign', out, '--key', by, '--out', out, '--allow-repeat', '--unchecked'];
			expect(await operator.idv(again)).toMatchObject({ status: 0, stderr: '' });
		};
		return { ...all, publish, edit, rollback, other, signAgain, own: ['--key', key] };
	}
	/** One warning, whatever is said beside it. */
	const saidOnce = (others: number, all: number) =>
		expect.stringMatching(
			new RegExp(
				`^(?!.*has not sealed.*\\n.*has not sealed).*published\\.record\\.json: --key has not sealed ${others} of its ${all} signings \\(edited, `,
				's',
			),
		);

	test.each<[string, object[], (entries: Entry[]) => object[], number]>([
		['a workflow in it was changed', [to('new'), to('other')], (all) => withText(all, 'new', 'evil'), 1],
		[
			'a version in it was changed',
			[order(30, '0.3.0'), order(10, '0.4.0')],
			(all) => withText(all, '0.3.0', '9.9'),
			2,
		],
		['its seals were removed', [order(30, '0.3.0'), order(10, '0.4.0')], (all) => all.map(unsealed), 2],
		[
			'one was put in the place of another',
			[to('new'), to('other'), to('third')],
			([one, two, three]) => [one, two, { ...two, digest: three?.digest }] as Entry[],
			1,
		],
		[
			'the one that another follows was changed',
			[to('new'), to('other'), to('third')],
			([one, two, three]) => [one, two, { ...three, after: one?.digest }] as Entry[],
			1,
		],
		[
			'its command was changed',
			[to('new'), to('other'), to('third')],
			([one, two, three]) => [one, two, { ...three, brake: 'pause' }] as Entry[],
			1,
		],
	])('are not signed by a rollback, which says so: %s [F1666]', async (_, rollouts, change, others) => {
		const { edit, rollback, own, record } = await givenSigned(...rollouts);
		const untouched = await readFile(record, 'utf8');
		await edit(change);
		expect(await readFile(record, 'utf8')).not.toBe(untouched);
		expect(await rollback(...own)).toEqual([{ workflowId: 'old' }, saidOnce(others, rollouts.length)]);
	});

	test.each([
		['workflow', to('new'), to('other')],
		['version', order(30, '0.3.0'), order(10, '0.4.0')],
	])('are none in a record that was left as it is: a rollback brings the %s back [F1666]', async (_, one, two) => {
		const { rollback, own } = await givenSigned(one, two);
		expect(await rollback(...own)).toEqual([{ workflowId: 'old', rollout: one }, '']);
	});

	const wider = { to: { workflowId: 'other' }, rings: [{ percent: 60 }] };

	test.each<[string, (entries: Entry[]) => object[]]>([
		['one of them is gone', ([one, , ...more]) => [one, ...more] as Entry[]],
		['the oldest are gone', ([, , three]) => [three] as Entry[]],
		['two have changed places', ([one, two, three]) => [two, one, three] as Entry[]],
		['one stands there twice', ([one, two, three]) => [one, two, one, three] as Entry[]],
	])(
		'are not all that is looked at: where %s, nothing is signed by the rest, and status says so [F1743]',
		async (_, change) => {
			const { edit, rollback, own, out, plan, sign, published } = await givenSigned(to('new'), to('other'), wider);
			await edit(change);
			const words =
				/published\.record\.json has a gap: revision \d, signed at 2\S+Z, follows a signing that is not there/;
			for (const step of ['rollback', 'next-ring', 'pause'])
				await operator.expectRefused({ status: 65, code: 'plan-invalid', words }, [
					...['fleet', step, out, '--out', out, ...own],
				]);
			expect(await sign(await plan(4, 'third'), out, ...meant)).toMatchObject({
				status: 65,
				stderr: expect.stringMatching(words),
			});
			const from = await operator.file(
				'heard.jsonl',
				'{"deviceId":"K-1","state":"online","workflow":{"live":"old","wanted":"old"}}',
			);
			expect((await operator.idv(['fleet', 'status', '--plan', out, '--from', from])).stderr).toMatch(words);
			expect((await published()).revision).toBe(3);
			expect(await rollback(...own, '--without-record')).toEqual([
				{ workflowId: 'old' },
				expect.stringContaining('It is not known any more'),
			]);
		},
	);

	test('have no gap where a plan is signed once more after a step that was killed [F1744]', async () => {
		const { other, own, out, record } = await givenSigned(to('new'), to('other'));
		const kept = await readFile(out, 'utf8');
		expect((await operator.idv(['fleet', 'next-ring', out, '--out', out, ...own, '--allow-moves', '100'])).status).toBe(
			0,
		);
		await writeFile(out, kept);
		const again = ['fleet', 'sign', out, '--key', other, '--out', out, '--allow-repeat', '--unchecked'];
		expect((await operator.idv(again)).status).toBe(0);
		const { signed } = JSON.parse(await readFile(record, 'utf8'));
		expect(signed.map(({ revision }: { revision: number }) => revision)).toEqual([1, 2, 3]);
		expect((await operator.idv(['fleet', 'rollback', out, ...own, '--key', other])).status).toBe(0);
	});

	test('are shown without a key, which signs nothing [F1666]', async () => {
		const { edit, out } = await givenSigned(to('new'), to('other'));
		await edit((all) => all.map(unsealed));
		expect(await operator.idv(['fleet', 'rollback', out])).toMatchObject({
			status: 0,
			stderr: '',
			stdout: expect.stringMatching(/to other/),
		});
	});

	test.each(['the same key', 'another key'])(
		'get no seal by one more signature of %s, nor by a plan that follows one of no key [F1667]',
		async (whose) => {
			const { edit, rollback, signAgain, publish, key, other, own, out, published } = await givenSigned(
				to('new'),
				to('other'),
			);
			const kept = await readFile(out, 'utf8');
			await edit((all) => withText(all, 'new', 'evil'));
			await signAgain(whose === 'the same key' ? key : other);
			expect(await rollback(...own, '--key', other)).toEqual([{ workflowId: 'old' }, saidOnce(1, 2)]);
			await writeFile(out, kept);
			const evil = JSON.stringify({ ...(await published()), defaults: { workflowId: 'old', rollout: to('evil') } });
			const digest = createHash('sha256').update(evil).digest('hex');
			await writeFile(out, evil);
			await edit(([one, two]) => [one, { ...two, digest }] as Entry[]);
			await publish(to('third'), 3);
			expect(await rollback(...own)).toEqual([{ workflowId: 'old' }, saidOnce(2, 3)]);
		},
	);

	test('are those of the old key once its successor signs alone; both keys bring all back [F1668]', async () => {
		const { rollback, signAgain, publish, other, own, out, record } = await givenSigned(to('new'), to('other'));
		await signAgain(other);
		const kept = await Promise.all([out, record].map((file) => readFile(file, 'utf8')));
		const restore = () => Promise.all([out, record].map((file, index) => writeFile(file, kept[index] ?? '')));
		expect(await rollback(...own, '--key', other)).toEqual([{ workflowId: 'old', rollout: to('new') }, '']);
		await restore();
		expect(await rollback('--key', other, '--fewer-keys')).toEqual([{ workflowId: 'old' }, saidOnce(2, 2)]);
		await restore();
		await publish(to('third'), 3, '--key', other);
		expect(await rollback('--key', other)).toEqual([{ workflowId: 'old', rollout: to('other') }, '']);
	});
});

describe('rollback of a rollout that brings a workflow and a version', () => {
	const all = { percent: 100 };
	const order = (percent: number, version: string) => ({ percent, agent: { version } });

	test.each([
		['a version before the workflow of all', [all], [order(10, '0.3.0'), all], [all], '0.3.0'],
		['a version after the workflow of all', [all], [all, order(10, '0.3.0')], [all], '0.3.0'],
		[
			'a newer version in place of one',
			[all, order(60, '0.2.0')],
			[order(10, '0.3.0'), all],
			[all, order(60, '0.2.0')],
			'0.3.0',
		],
		['the workflow before a version', [order(10, '0.3.0')], [all, order(10, '0.3.0')], [order(10, '0.3.0')], null],
	])('takes back what came last: %s [F1487]', async (_, before, now, back, version) => {
		const { key, plan, sign, first, out, published } = await given();
		const of = (rings: readonly object[]) => ({
			defaults: { workflowId: 'old', rollout: { to: { workflowId: 'new' }, rings } },
		});
		const meant = ['--allow-version', '0.3.0', '--allow-moves', '100'];
		expect((await first(await plan(1, 'new', of(before)), out, ...meant)).status).toBe(0);
		expect((await sign(await plan(2, 'new', of(now)), out, ...meant)).status).toBe(0);
		const step = await operator.idv(['fleet', 'rollback', out, '--key', key, '--out', out]);
		expect(step.status).toBe(0);
		const { rollout } = (await published()).defaults;
		expect(rollout).toEqual({ to: { workflowId: 'new' }, rings: back });
		// A row names what goes back, and no workflow that stays.
		expect(step.stdout).toMatch(
			version ? /^defaults +to version 0\.3\.0 +10 %/m : /^defaults +to new +100 % +→ +10 %$/m,
		);
	});
});

describe('the version that a device has', () => {
	/** By its place, K-3 is in no ring of 80 %. */
	const rows = ['K-1,0.3.0', 'K-2,0.3.0', 'K-3,0.3.0', 'K-4,', 'K-5,0.2.0~1'];

	async function givenVersions() {
		const all = await given();
		await operator.file('devices.csv', `deviceId,version\n${rows.join('\n')}\n`);
		const orders = (revision: number, version: string, percent: number) =>
			all.plan(revision, 'x', {
				defaults: { workflowId: null, rollout: { to: {}, rings: [{ percent, agent: { version } }] } },
			});
		const files = [await orders(1, '0.2.0', 100), await orders(2, '0.3.0', 40), await orders(3, '0.3.0', 80)] as const;
		const meant = ['--allow-version', '0.2.0', '--allow-version', '0.3.0', '--allow-moves', '5', '--allow-empty-ring'];
		return { ...all, files, meant };
	}

	test('decides who cannot go back, also where no ring had reached the device, and who moves [F1264]', async () => {
		const { key, first, sign, out, files, meant } = await givenVersions();
		expect((await first(files[0], out, ...meant)).status).toBe(0);
		for (const file of files.slice(1)) expect((await sign(file, out, ...meant)).status).toBe(0);
		const back = ['fleet', 'rollback', out, '--key', key, '--out', out];
		expect((await operator.idv(['fleet', 'rollback', out])).stdout).toMatch(
			/^5 devices cannot go back, because no device installs an older version: K-1, K-2, K-3, K-4, K-5$/m,
		);
		expect(succeeded(await operator.idv([...back, '--json']))).toMatchObject({
			...{ cannotGoBack: ['K-1', 'K-2', 'K-3', 'K-4', 'K-5'], keepVersion: [] },
			preview: { moves: 0, groups: [] },
		});
		// Then no version is ordered at all: nobody is asked to go back.
		const second = await operator.idv(back);
		expect(second.stdout).not.toMatch(/cannot go back/);
		expect(second.stdout).toMatch(
			/^5 devices would keep their present version, because no other is ordered: K-1, K-2, K-3, K-4, K-5$/m,
		);
	});

	test('is the newest that was ordered for it, also by a plan from before that is no longer in force, whatever the inventory says [F1750]', async () => {
		const { plan, first, sign, out, meant } = await givenVersions();
		const names = rows.map((row) => row.split(',')[0] ?? '');
		await operator.file('devices.csv', `deviceId,version\n${names.map((name) => `${name},0.2.0`).join('\n')}\n`);
		const orders = (revision: number, ...rings: readonly object[]) =>
			plan(revision, 'x', { defaults: { workflowId: 'old', rollout: { to: {}, rings } } });
		const [old, newer] = [
			{ percent: 100, agent: { version: '0.2.0' } },
			{ percent: 80, agent: { version: '0.3.0' } },
		];
		const allowed = [...meant, '--allow-workflow', 'old'];
		expect((await first(await orders(1, old), out, ...allowed)).status).toBe(0);
		expect((await sign(await orders(2, newer), out, ...allowed)).status).toBe(0);
		const shown = async (step: string) => succeeded(await operator.idv(['fleet', step, out, '--json']));
		const had = names.filter((name) => name !== 'K-3');
		expect(await shown('rollback')).toMatchObject({ cannotGoBack: had, preview: { moves: 0 } });
		expect((await sign(await orders(3, old), out, ...allowed)).status).toBe(0);
		const toCome = { ...newer, startAt: '2100-01-01T00:00:00Z' };
		expect((await sign(await orders(4, old, toCome), out, ...allowed)).status).toBe(0);
		expect(await shown('rollback')).toMatchObject({ cannotGoBack: had, keepVersion: [] });
		// It takes no ring back: the devices stay as they were before it.
		expect(await shown('pause')).toMatchObject({ cannotGoBack: [], keepVersion: [] });
	});

	test('is shown by sign and diff as preview shows it, and one that has it already is not counted [F1265]', async () => {
		const { first, sign, out, files, meant } = await givenVersions();
		await first(files[0], out, ...meant);
		const inventory = join(operator.directory, 'devices.csv');
		const shown = [
			await operator.idv(['fleet', 'diff', out, files[2], '--inventory', inventory, '--json']),
			await sign(files[2], out, ...meant, '--json'),
		].map(({ stdout }) => JSON.parse(stdout).preview);
		for (const { moves, groups } of shown) {
			expect(moves).toBe(2);
			// What the inventory does not know was ordered by the plan before.
			expect(groups).toMatchObject([
				{ from: '0.2.0', to: '0.3.0', devices: 1 },
				{ from: '0.2.0~1', to: '0.3.0', devices: 1 },
			]);
		}
		const { stdout } = await operator.idv(['fleet', 'preview', files[2], '--inventory', inventory, '--json']);
		expect(JSON.parse(stdout)).toMatchObject({ moves: 2, groups: [{ from: null }, { from: '0.2.0~1' }] });
	});
});

test('rollback says whether the record of what was published is not there, or names no earlier version', async () => {
	const { plan, first, out, record } = await given();
	const rollout = { to: {}, rings: [{ percent: 30, agent: { version: '0.3.0' } }] };
	const allowed = ['--allow-version', '0.3.0', '--allow-moves', '100', '--allow-workflow', 'old'];
	expect((await first(await plan(1, 'x', { defaults: { workflowId: 'old', rollout } }), out, ...allowed)).status).toBe(
		0,
	);
	const rollback = async () => (await operator.idv(['fleet', 'rollback', out])).stderr;
	expect(await rollback()).toMatch(/knows no version that the defaults ordered before 0\.3\.0.*To order one, sign/);
	await rm(record);
	expect(await rollback()).toMatch(
		/no record of what was published: .*record\.json is not there.*put its record beside/,
	);
});

test('a plan that two keys have signed is followed by one that both sign, unless a person says that one is enough [F1195]', async () => {
	const { key, plan, sign, first, out, published } = await given();
	const other = join(operator.directory, 'other.key');
	succeeded(await operator.idv(['fleet', 'keygen', '--out', other, '--json']));
	expect((await first(await plan(1, 'new'), out)).status).toBe(0);
	const again = ['fleet', 'sign', out, '--key', other, '--out', out, '--allow-repeat', '--allow-workflow', 'new'];
	expect((await operator.idv(again)).status).toBe(0);
	const signatures = async () => JSON.parse(await readFile(out, 'utf8')).signatures.length;
	expect(await signatures()).toBe(2);
	for (const step of ['rollback', 'next-ring'])
		await operator.expectRefused(
			{ status: 64, code: 'usage', words: /is signed by 1 key more \([\w+/]{12}\): devices that have only that/ },
			['fleet', step, out, '--key', key, '--out', out],
		);
	expect((await published()).revision).toBe(1);
	const back = ['fleet', 'rollback', out, '--key', key, '--out', out];
	expect((await operator.idv([...back, '--key', other])).status).toBe(0);
	expect([(await published()).revision, await signatures()]).toEqual([2, 2]);
	expect(await sign(await plan(3, 'new'), out)).toMatchObject({ status: 0 });
	expect((await operator.idv(again)).status).toBe(0);
	expect((await operator.idv([...back, '--fewer-keys'])).status).toBe(0);
	expect([(await published()).revision, await signatures()]).toEqual([4, 1]);
});

test('a plan that one of the two keys of the published one signs is signed, with a warning that names the other [F1737]', async () => {
	const { key, plan, sign, first, out } = await given();
	const other = join(operator.directory, 'other.key');
	succeeded(await operator.idv(['fleet', 'keygen', '--out', other, '--json']));
	expect((await first(await plan(1, 'new'), out)).status).toBe(0);
	const keyids = async () =>
		JSON.parse(await readFile(out, 'utf8')).signatures.map((one: { keyid: string }) => one.keyid);
	const flags = ['--out', out, '--allow-repeat', '--allow-workflow', 'new'];
	expect((await operator.idv(['fleet', 'sign', out, '--key', other, ...flags])).status).toBe(0);
	const [mine, theirs] = await keyids();
	for (const [revision, by, lost] of [
		[2, key, theirs],
		[3, other, mine],
	]) {
		const { status, stderr } = await operator.idv([
			'fleet',
			'sign',
			await plan(revision, 'new'),
			'--key',
			by,
			...flags,
		]);
		expect([status, stderr]).toEqual([0, expect.stringContaining(`is signed by 1 key more (${lost}): devices that`)]);
		// As the warning says.
		const both = await operator.idv(['fleet', 'sign', out, '--key', by === key ? other : key, ...flags]);
		expect([both, (await keyids()).length]).toMatchObject([{ status: 0, stderr: '' }, 2]);
	}
	expect((await sign(await plan(4, 'new'), out)).status).toBe(0);
	expect((await sign(await plan(5, 'new'), out)).stderr).toBe('');
});

test('a plan that no key of the published one signs is refused, and unchecked it is not [F1386]', async () => {
	const { plan, sign, first, out, published } = await given();
	const other = join(operator.directory, 'other.key');
	succeeded(await operator.idv(['fleet', 'keygen', '--out', other, '--json']));
	expect((await first(await plan(1, 'new'), out)).status).toBe(0);
	const next = await plan(2, 'other');
	const strange = [
		'fleet',
		'sign',
		next,
		'--key',
		other,
		'--out',
		out,
		'--allow-workflow',
		'new',
		'--allow-workflow',
		'other',
	];
	const words =
		/is signed by another key \([\w+/]{12}\): devices that have only that in fleet\.publicKeys would refuse/;
	await operator.expectRefused({ status: 64, code: 'usage', words }, strange);
	expect((await published()).revision).toBe(1);
	expect((await sign(next, out, '--allow-workflow', 'other')).status).toBe(0);
	expect((await operator.idv([...strange.with(2, await plan(3, 'new')), '--unchecked'])).status).toBe(0);
	expect((await published()).revision).toBe(3);
});

test('a plan that is over is not signed in the place of another one [F1387]', async () => {
	const { plan, sign, first, out, published } = await given();
	expect((await first(await plan(1, 'new'), out)).status).toBe(0);
	const over = await plan(2, 'other', { validUntil: '2025-06-01T00:00:00Z' });
	const { status, stderr } = await sign(over, out, '--allow-workflow', 'other');
	expect([status, stderr]).toEqual([
		65,
		expect.stringMatching(/\/validUntil is over: devices stay with the previous plan/),
	]);
	expect((await published()).revision).toBe(1);
});

test('no step goes on from a plan that is over, and what a later one moves is counted by what devices do [F1388]', async () => {
	const { key, plan, sign, first, out, published } = await given();
	const validUntil = '2025-06-01T00:00:00Z';
	const over = await plan(1, 'new', { validUntil });
	expect((await first(over, out, '--unchecked')).status).toBe(0);
	for (const [step, way] of [
		['rollback', 'Sign a plan without this rollout'],
		['next-ring', 'Sign this plan with a later validUntil'],
	] as const) {
		const words = new RegExp(`is valid until 2025-06-01.*which is over: no device would follow.* ${way}`);
		await operator.expectRefused({ status: 65, code: 'plan-invalid', words }, [
			...['fleet', step, out, '--key', key, '--out', out],
		]);
	}
	expect((await published()).revision).toBe(1);
	const { stdout } = await sign(await plan(2, 'new'), out);
	expect(stdout).toMatch(/\b[1-9]\d devices of 100 would move/);
});

test('preview and diff of a plan that is over say that no device with a plan moves by it [F1395]', async () => {
	const { plan } = await given();
	const inventory = ['--inventory', join(operator.directory, 'devices.csv')];
	const over = await plan(2, 'new', { validUntil: '2025-06-01T00:00:00Z' });
	const said = /validUntil is over: devices that follow a plan stay as they are/;
	const preview = await operator.idv(['fleet', 'preview', over, ...inventory]);
	expect(preview).toMatchObject({ status: 0, stderr: expect.stringMatching(said) });
	expect(preview.stdout).toMatch(/^Revision 2: \d+ devices of 100 without a plan would move\.$/m);
	const read = JSON.parse((await operator.idv(['fleet', 'preview', over, ...inventory, '--json'])).stdout);
	expect(read).toMatchObject({ isOver: true });
	const diff = ['fleet', 'diff', await plan(1, 'other'), over, ...inventory];
	const { stdout, stderr } = await operator.idv(diff);
	expect([stdout, stderr]).toEqual([
		expect.stringMatching(/^0 devices of 100 would move\.$/m),
		expect.stringMatching(said),
	]);
	expect(JSON.parse((await operator.idv([...diff, '--json'])).stdout).preview).toMatchObject({ moves: 0, stays: 100 });
});

test('a step from an older plan than the record knows says so before it is taken [F1397]', async () => {
	const { plan, sign, first, out } = await given();
	expect((await first(await plan(1, 'new'), out)).status).toBe(0);
	const older = await readFile(out);
	expect((await sign(await plan(2, 'other'), out, '--allow-workflow', 'other')).status).toBe(0);
	await writeFile(out, older);
	for (const step of ['rollback', 'next-ring', 'pause']) {
		const { status, stderr } = await operator.idv(['fleet', step, out]);
		const said =
			/published\.json holds revision 1, and by its record revision 2 was signed at .* Then publish that one again/;
		expect([step, status, stderr]).toEqual([step, 0, expect.stringMatching(said)]);
	}
});

test('a plan that agents of 0.1.0 refuse is not published in the place of one that they read [F1396]', async () => {
	const { plan, sign, first, out, published } = await given();
	const rows = Array.from({ length: 100 }, (_, n) => `K-${n},old,${n < 60 ? '0.1.0' : '0.2.0'}`);
	await operator.file('devices.csv', `deviceId,workflowId,version\n${rows.join('\n')}\n`);
	expect((await first(await plan(1, 'new', { format: 'idv-fleet-plan/1' }), out)).status).toBe(0);
	const next = await plan(2, 'new', { fleet: undefined });
	const { status, stderr } = await sign(next, out);
	const words =
		/format is refused by devices of the inventory with a version before 0\.2 \(60: K-0, K-1, K-2, K-3, K-4, …\)/;
	expect([status, stderr]).toEqual([65, expect.stringMatching(words)]);
	expect((await published()).revision).toBe(1);
	const beside = await first(next, join(operator.directory, 'other.json'));
	expect(beside).toMatchObject({ status: 0, stderr: expect.stringMatching(words) });
});

test('devices that refuse the format of a plan are not counted as those that move, and named [F1424]', async () => {
	const { plan } = await given();
	const rows = Array.from({ length: 20 }, (_, n) => `K-${n},old,${n % 2 ? '0.1.0' : '0.2.0'}`);
	const inventory = await operator.file('some.csv', `deviceId,workflowId,version\n${rows.join('\n')}\n`);
	const all = { defaults: { workflowId: 'new' } };
	const [first, next] = [await plan(1, 'old', { defaults: { workflowId: 'old' } }), await plan(2, 'new', all)];
	const refusing = /^10 devices refuse the plan's format, and stay as they are: K-1, K-3, .*K-19$/m;
	for (const args of [
		['preview', next],
		['diff', first, next],
	]) {
		const shown = await operator.idv(['fleet', ...args, '--inventory', inventory]);
		expect(shown.stdout).toMatch(/10 devices of 20 would move/);
		expect(shown.stdout).toMatch(refusing);
		const read = JSON.parse((await operator.idv(['fleet', ...args, '--inventory', inventory, '--json'])).stdout);
		expect(read.preview ?? read).toMatchObject({ moves: 10, stays: 10, groups: [{ devices: 10 }] });
	}
	const { stdout } = await operator.idv(['fleet', 'check', next, '--inventory', inventory, '--max-moves', '50%']);
	expect(stdout).toMatch(/format is refused by .* \(10: K-1, K-3, K-5, K-7, K-9, …\)/);
	expect(stdout).not.toMatch(/may move/);
	const older = await plan(3, 'new', { ...all, format: 'idv-fleet-plan/1' });
	const { stdout: every } = await operator.idv(['fleet', 'preview', older, '--inventory', inventory]);
	expect(every).toMatch(/20 devices of 20 would move/);
	expect(every).not.toMatch(/refuse/);
});

test('a damaged record does not keep a plan from going back, once a person says so, and what is lost is told [F1196]', async () => {
	const { key, plan, first, out, published, record } = await given();
	expect((await first(await plan(1, 'new'), out)).status).toBe(0);
	await writeFile(record, '{"format":"idv-fleet-rec');
	const back = ['fleet', 'rollback', out, '--key', key, '--out', out];
	await operator.expectRefused({ status: 65, code: 'plan-invalid', words: /goes on .*with --without-record/ }, back);
	expect((await operator.idv(['fleet', 'rollback', out, '--without-record'])).status).toBe(0);
	expect(await readFile(record, 'utf8')).toBe('{"format":"idv-fleet-rec');
	const { status, stderr } = await operator.idv([...back, '--without-record']);
	expect([status, stderr]).toEqual([0, expect.stringMatching(/It is not known any more which versions were ordered/)]);
	expect((await published()).revision).toBe(2);
	expect(JSON.parse(await readFile(record, 'utf8')).signed).toMatchObject([{ revision: 2 }]);
});

test('a way back to a workflow that no device was seen with is named, and no device comes from one [F1197]', async () => {
	const { plan, first, out, record } = await given();
	expect(
		(
			await first(
				await plan(1, 'new', {
					defaults: { workflowId: 'slip', rollout: { to: { workflowId: 'new' }, rings: [{ percent: 50 }] } },
				}),
				out,
				'--workflows',
				'old,new,slip',
				'--allow-workflow',
				'slip',
				'--allow-moves',
				'100',
			)
		).status,
	).toBe(0);
	const seen = { at: '', revision: 1, counts: {}, workflows: ['old'], versions: [] };
	await writeFile(record, JSON.stringify({ ...JSON.parse(await readFile(record, 'utf8')), seen }));
	const { stderr, stdout } = await operator.idv(['fleet', 'rollback', out, '--json']);
	expect(stderr).toMatch(/It goes back to slip, and no device was seen with that\. Devices were seen with old: /);
	expect(JSON.parse(stdout).preview.groups).toMatchObject([{ devices: 100, from: 'old', to: 'slip' }]);
});

test.each(['rollback', 'pause', 'sign'])(
	'status warns of a %s that was signed and never published [F1488]',
	async (name) => {
		const { key, plan, sign, first, out } = await given();
		const rings = [{ percent: 50 }, { percent: 60, startAt: '2100-01-01T00:00:00Z' }];
		const defaults = { workflowId: 'old', rollout: { to: { workflowId: 'new' }, rings } };
		expect((await first(await plan(1, 'new', { defaults }), out)).status).toBe(0);
		const from = await operator.file(
			'lines.jsonl',
			JSON.stringify({ deviceId: 'K-1', state: 'online', workflow: { live: 'old', wanted: 'old' } }),
		);
		const looks = [[], ['--json'], ['--csv'], ['--fail-above', '50%']];
		const status = (flags: readonly string[]) =>
			operator.idv(['fleet', 'status', '--plan', out, '--from', from, ...flags]);
		const before = await readFile(out, 'utf8');
		expect((await status([])).stderr).not.toContain('not published');
		const act = async () =>
			name === 'sign'
				? sign(await plan(2, 'new', { defaults: { ...defaults, rollout: undefined } }), out)
				: operator.idv(['fleet', name, out, '--key', key, '--out', out]);
		expect((await act()).status).toBe(0);
		expect((await status([])).stderr).not.toContain('not published');
		await writeFile(out, before);
		for (const flags of looks)
			expect((await status(flags)).stderr).toMatch(
				new RegExp(
					`revision 1, and by its record revision 2 \\(idv fleet ${name}\\) was signed at .* is not published.*Repeat it: ${name === 'sign' ? 'sign that plan again' : `idv fleet ${name} \\S+`}`,
				),
			);
	},
);

test('status shows what devices do beside a damaged record, which it names, and judges them [F1511]', async () => {
	const { plan, first, out, record } = await given();
	expect(
		(await first(await plan(1, 'new', { defaults: { workflowId: 'new' } }), out, '--allow-moves', '100')).status,
	).toBe(0);
	const damaged = (await readFile(record, 'utf8')).slice(0, 100);
	await writeFile(record, damaged);
	const line = { deviceId: 'K-1', state: 'online', agentVersion: '0.2.0', workflow: { live: 'old', wanted: 'old' } };
	const from = await operator.file('gathered.jsonl', JSON.stringify(line));
	const status = (...flags: string[]) => operator.idv(['fleet', 'status', '--plan', out, '--from', from, ...flags]);
	for (const [flags, shown, code] of [
		[[], /^Overdue +1 +K-1$/m, 0],
		[['--json', '--record'], /"overdue":1/, 0],
		[['--fail-above', '2%'], /^Overdue +1 +K-1$/m, 75],
	] as const)
		expect(await status(...flags)).toMatchObject({
			...{ status: code, stdout: expect.stringMatching(shown) },
			stderr: expect.stringMatching(/record\.json is not the record of a rollout\. Pauses and signings are not known/),
		});
	expect(await readFile(record, 'utf8')).toBe(damaged);
});

test.each<[string, (text: string) => string, RegExp]>([
	['is empty', () => '', /is not the record of a rollout/],
	['is null', () => 'null', /is not the record of a rollout/],
	['was cut off', (text) => text.slice(0, 100), /is not the record of a rollout/],
	['is of a later format', (text) => text.replace('record/1', 'record/2'), /is not the record of a rollout/],
	['has a gap', (text) => text.replace('"after":null', '"after":"gone"'), /has a gap/],
])(
	'a plan beside a record that %s is checked and compared, and a pause names the way on [F1751]',
	async (_, damage, words) => {
		const { key, plan, first, out, record } = await given();
		const rings = [{ percent: 50 }, { percent: 60, startAt: '2100-01-01T00:00:00Z' }];
		const defaults = { workflowId: 'old', rollout: { to: { workflowId: 'new' }, rings } };
		expect((await first(await plan(1, 'new', { defaults }), out)).status).toBe(0);
		await writeFile(record, damage(await readFile(record, 'utf8')));
		const meant = ['--allow-workflow', 'new', '--allow-moves', '100'];
		const checked = await operator.idv(['fleet', 'check', out, ...meant]);
		expect(checked).toMatchObject({ status: 0, stdout: expect.stringMatching(/^Nothing is wrong with it\.$/m) });
		expect(checked.stderr).toMatch(words);
		expect(await operator.idv(['fleet', 'check', out, ...meant, '--workflows', 'old'])).toMatchObject({
			...{ status: 65, stdout: expect.stringMatching(/^Error: .*new/m), stderr: expect.stringMatching(words) },
		});
		expect(await operator.idv(['fleet', 'diff', out, await plan(2, 'new', { defaults })])).toMatchObject({
			...{ status: 0, stdout: expect.stringMatching(/revision/), stderr: expect.stringMatching(words) },
		});
		const pause = ['fleet', 'pause', out, '--key', key, '--out', out];
		await operator.expectRefused(
			{ status: 65, code: 'plan-invalid', words: /other commands go on once it is moved away/ },
			pause,
		);
		expect(
			(await operator.idv(['fleet', 'sign', await plan(2, 'new', { defaults }), '--key', key, ...meant, '--out', out]))
				.stderr,
		).toMatch(words);
		await rm(record);
		expect((await operator.idv(pause)).status).toBe(0);
	},
);

test('status gives no next ring as the way on where the plan is paused [F1512]', async () => {
	const { key, plan, first, out } = await given();
	expect((await first(await plan(1, 'new'), out)).status).toBe(0);
	const step = (...what: string[]) => operator.idv(['fleet', ...what, out, '--key', key, '--out', out]);
	expect((await step('pause')).status).toBe(0);
	const before = await readFile(out, 'utf8');
	expect((await step('next-ring', '--allow-moves', '100')).status).toBe(0);
	await writeFile(out, before);
	const from = await operator.file(
		'gathered.jsonl',
		'{"deviceId":"K-1","state":"online","workflow":{"live":"old","wanted":"old"}}',
	);
	const { stderr } = await operator.idv(['fleet', 'status', '--plan', out, '--from', from]);
	expect(stderr).toMatch(/revision 2 .* is not published: .*has lost it\.\n.*Paused .* since .*--allow-moves/);
	expect(stderr).not.toContain('idv fleet next-ring');
});

test('status knows by the record since when a plan is published, and writes there what it saw', async () => {
	const { plan, first, out, record } = await given();
	await first(await plan(1, 'new'), out);
	const line = { deviceId: 'K-1', state: 'online', agentVersion: '0.2.0', workflow: { live: 'old', wanted: 'old' } };
	const from = await operator.file('gathered.jsonl', JSON.stringify(line));
	const inventory = join(operator.directory, 'devices.csv');
	const status = ['fleet', 'status', '--plan', out, '--inventory', inventory, '--from', from, '--json'];
	const soon = JSON.parse((await operator.idv([...status, '--grace-seconds', '600', '--record'])).stdout);
	expect(soon).toMatchObject({ overdue: 0, judged: { failed: 0 } });
	const kept = JSON.parse(await readFile(record, 'utf8'));
	expect(kept.seen).toMatchObject({ revision: 1, counts: { neverSeen: 99 }, workflows: ['old'], versions: ['0.2.0'] });
	const [signing] = kept.signed;
	await writeFile(record, JSON.stringify({ ...kept, signed: [{ ...signing, at: '2020-01-01T00:00:00Z' }] }));
	const late = JSON.parse((await operator.idv([...status, '--grace-seconds', '600'])).stdout);
	expect(late.judged.failed).toBeGreaterThan(30);
});

describe('the record of a rollout', () => {
	const line = JSON.stringify({ deviceId: 'K-1', state: 'online', workflow: { live: 'old', wanted: 'old' } });
	const theirs = (text = '') => {
		const { signed, ...others } = JSON.parse(text);
		return `${JSON.stringify({ ...others, signed: [...signed, { ...signed[0], digest: 'theirs' }] })}\n`;
	};

	test.each([1, 2, 3, 4])(
		'keeps what another manager signs while status writes what it saw, between any two looks (%i) [F720]',
		async (count) => {
			const { plan, first } = await given();
			const store = await givenStore();
			const at = '/plans/published.record.json';
			expect((await first(await plan(1, 'new'), store.url)).status).toBe(0);
			let reads = 0;
			store.overtake({
				recordRead: () => {
					reads += 1;
					if (reads === count) store.kept.set(at, theirs(store.kept.get(at)));
				},
			});
			const from = await operator.file('gathered.jsonl', line);
			const shown = await operator.idv(['fleet', 'status', '--plan', store.url, '--from', from, '--record', '--json']);
			expect(shown).toMatchObject({ status: 0, stderr: '' });
			const { signed, seen } = JSON.parse(store.kept.get(at) ?? '');
			expect(signed).toMatchObject([{ revision: 1 }, { digest: 'theirs' }]);
			expect(seen?.workflows ?? ['old']).toEqual(['old']);
		},
	);

	test('in a file keeps the signings of those who write at the same time', async () => {
		const { plan, first, sign, out, record } = await given();
		await first(await plan(1, 'new'), out);
		const from = await operator.file('gathered.jsonl', line);
		const seen = ['fleet', 'status', '--plan', out, '--from', from, '--record', '--json'];
		const ends = await Promise.all([
			...[1, 2, 3].map(() => operator.idv(seen)),
			sign(await plan(2, 'new'), out),
			...[1, 2, 3].map(() => operator.idv(seen)),
		]);
		expect(ends.map(({ status }) => status)).toEqual(ends.map(() => 0));
		const { signed } = JSON.parse(await readFile(record, 'utf8'));
		expect(signed.map(({ revision }: { revision: number }) => revision)).toEqual([1, 2]);
	});

	test('does not keep a signing that came too late to be published', async () => {
		const { plan, first, sign } = await given();
		const store = await givenStore();
		expect((await first(await plan(1, 'new'), store.url)).status).toBe(0);
		const last = store.kept.get('/plans/published.json') ?? '';
		store.overtake({ before: () => store.kept.set('/plans/published.json', `${last} `) });
		expect((await sign(await plan(2, 'new'), store.url)).status).toBe(65);
		const { signed } = JSON.parse(store.kept.get('/plans/published.record.json') ?? '');
		expect(signed.map(({ revision }: { revision: number }) => revision)).toEqual([1]);
	});
});

test('a mistyped workflow that was signed, failed everywhere and was taken back is not one that devices have had [F724]', async () => {
	const { key, plan, first, sign, out } = await given();
	await operator.file('fleet-checks.json', JSON.stringify({ inventory: 'devices.csv', maxMoves: '100%' }));
	expect((await first(await plan(1, 'newt'), out, '--allow-workflow', 'newt', '--unchecked')).status).toBe(0);
	const wants = (n: number, state: string) =>
		JSON.stringify({
			deviceId: `K-${n}`,
			state,
			workflow: { live: state === 'online' ? 'old' : null, wanted: 'newt' },
		});
	const from = await operator.file('gathered.jsonl', `${wants(1, 'online')}\n${wants(2, 'offline')}\n`);
	expect((await operator.idv(['fleet', 'status', '--plan', out, '--from', from, '--record'])).status).toBe(0);
	// While its rollout goes on, its next ring asks for nothing.
	expect((await operator.idv(['fleet', 'next-ring', out, '--allow-moves', '100'])).status).toBe(0);
	expect((await operator.idv(['fleet', 'rollback', out, '--key', key, '--out', out])).status).toBe(0);
	const again = await sign(await plan(3, 'newt'), out, '--workflows', 'old,newt');
	expect(again).toMatchObject({
		status: 65,
		stderr: expect.stringMatching(/\(newt\) is a workflow that no device has had/),
	});
	expect((await sign(await plan(3, 'newts'), out, '--workflows', 'old,newts')).stderr).not.toMatch(/and newt is one/);
});
