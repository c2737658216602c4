import fs from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, onTestFinished, test } from 'vitest';
import { MAX_AUDIT_BYTES, openAudit, readAuditLog } from '../../src/audit/audit.runner.ts';
import { AUDIT_IDENTIFIER, sendToJournal } from '../../src/audit/journal.edge.ts';
import { missingBy } from '../../src/audit/missing.ts';
import { NO_PACES, PACE, paced } from '../../src/audit/pace.ts';
import { AgentError } from '../../src/base/errors.ts';
import { openShaper } from '../../src/base/shapes.edge.ts';
import { audited } from '../../src/local-api/audited.runner.ts';
import { streamAudit } from '../../src/local-api/event-routes.runner.ts';
import type { EventSink } from '../../src/local-api/server/local-server.edge.ts';
import { type AuditEntry, type AuditReport, LOCAL_ROUTES } from '../../src/protocol/local-api.ts';
import { finish } from '../cli/command.ts';
import { createSigner, givenPlanServer } from '../fixtures/plans.ts';
import { givenAgent, givenHome, givenPairedAgent, type RunningAgent } from '../harness/harness.ts';
import { createSteppedClock } from '../harness/stepped-clock.ts';
import { givenService } from '../service/fixture.ts';

const HOUR_MS = 3_600_000;

describe('the pace', () => {
	test('of a flood is bounded, whatever its rhythm, and all that is left out is counted', () => {
		fc.assert(
			fc.property(fc.array(fc.integer({ min: 0, max: 60_000 }), { maxLength: 400 }), (waits) => {
				let [paces, nowMs, written, leftOut] = [NO_PACES, 0, 0, 0];
				for (const wait of waits) {
					nowMs += wait;
					const pace = paced(paces, 'page false', nowMs);
					paces = pace.paces;
					if (pace.isAllowed) written += 1;
					leftOut += pace.leftOut;
				}
				const waiting = paces.get('page false')?.leftOut ?? 0;
				return written <= PACE.burst + nowMs / PACE.intervalMs && written + leftOut + waiting === waits.length;
			}),
		);
	});

	test('of one entrance does not hold up another, and recovers', () => {
		let paces = NO_PACES;
		for (let asked = 0; asked < 1000; asked += 1) ({ paces } = paced(paces, 'page false', asked));
		expect(paced(paces, 'page false', 1000).isAllowed).toBe(false);
		expect(paced(paces, 'page true', 1000).isAllowed).toBe(true);
		expect(paced(paces, 'admin.sock false', 1000).isAllowed).toBe(true);
		// What is asked twice as often as it may be is written half of the time.
		let [steady, written] = [NO_PACES, 0];
		for (let asked = 0; asked < 400; asked += 1) {
			const pace = paced(steady, 'page false', (asked * PACE.intervalMs) / 2);
			steady = pace.paces;
			if (pace.isAllowed) written += 1;
		}
		expect(written).toBeGreaterThanOrEqual(200);
		expect(paced(paces, 'page false', HOUR_MS)).toMatchObject({ isAllowed: true, leftOut: 1000 - PACE.burst });
	});
});

const names = (directory: string) => fs.readdirSync(directory).filter((name) => name.startsWith('audit'));

async function open(stateDir: string, parts: Partial<Parameters<typeof openAudit>[0]> = {}) {
	const audit = await openAudit({
		...{ stateDir, version: '1', clock: createSteppedClock(), shaper: openShaper() },
		...{ journal: async () => {}, onSaved: () => {}, ...parts },
	});
	onTestFinished(() => audit.close());
	return audit;
}

const RECONNECT = { action: 'reconnect', entrance: 'admin.sock', result: 'ok' };
const SET = { action: 'setWorkflow', entrance: 'admin.sock', result: 'ok' };

describe('the files', () => {
	test('are told to who reads along, and to none that has left', async () => {
		const audit = await open((await givenHome()).directory);
		const told: unknown[] = [];
		const hears = () => streamAudit(audit, [], { send: (event: unknown) => told.push(event) > 0 } as EventSink);
		hears()();
		hears();
		audit.record({ ...SET, count: 1 });
		await audit.close();
		expect(told).toHaveLength(1);
	});

	test('keep the newest entries, are bounded, and only their owner reads them', async () => {
		const { directory } = await givenHome();
		const audit = await open(directory);
		for (let number = 0; number < 2000; number += 1) audit.record({ ...SET, count: number, host: 'x'.repeat(300) });
		await audit.close();
		const { documents, first, last } = await readAuditLog(directory);
		expect([last, documents.length, documents.at(-1)?.count]).toEqual([2000, 2001 - first, 1999]);
		expect(documents.length).toBeGreaterThan(500);
		const sizes = names(directory).map((name) => fs.statSync(join(directory, name)));
		expect(sizes.reduce((sum, { size }) => sum + size, 0)).toBeLessThanOrEqual(MAX_AUDIT_BYTES);
		for (const { mode } of sizes) expect(mode & 0o777).toBe(0o600);
	});

	test('a newest file that was emptied is told, by audit --verify and by history [F638]', async () => {
		const { directory } = await givenHome();
		const audit = await open(directory);
		audit.record(SET);
		await audit.close();
		const [file = ''] = names(directory);
		fs.truncateSync(join(directory, file));
		fs.writeFileSync(join(directory, file.replace('audit', 'history')), '');
		const env = { IDV_AGENT_STATE_DIR: directory };
		const verified = await finish('idv-agent', ['audit', '--verify'], env);
		expect([verified.status, verified.stdout]).toEqual([74, expect.stringContaining(`${file}: it is empty`)]);
		expect((await finish('idv-agent', ['history'], env)).stderr).toContain('it is empty');
	});

	test('an entry that is altered or taken away is told with its number, by a running agent and without one [F604]', async () => {
		const { directory } = await givenHome();
		const audit = await open(directory);
		for (let number = 1; number <= 9; number += 1) audit.record({ ...SET, count: number });
		await audit.close();
		const verify = async () => {
			const { stdout, status } = await finish('idv-agent', ['audit', '--verify'], { IDV_AGENT_STATE_DIR: directory });
			return { status, lines: stdout.trim().split('\n') };
		};
		expect(await verify()).toEqual({ status: 0, lines: ['Entries 1 to 9: none is missing, none is altered.'] });
		const file = join(directory, names(directory)[0] ?? '');
		const bytes = fs.readFileSync(file);
		bytes.write('8', bytes.indexOf('"count":4') + 8);
		fs.writeFileSync(file, bytes);
		const { status, lines } = await verify();
		expect(status).toBe(74);
		expect(lines[0]).toMatch(/^Entry 4 is missing or altered \(between .* and .*\)\.$/);
		bytes.fill(0, bytes.indexOf('"count":6') - 100, bytes.indexOf('"count":7'));
		fs.writeFileSync(file, bytes);
		const { stdout } = await finish('idv-agent', ['audit', '--verify', '--json'], { IDV_AGENT_STATE_DIR: directory });
		expect(JSON.parse(stdout)).toMatchObject({
			isWhole: false,
			lost: [{ from: 4, to: 4 }, { from: 6 }],
			damages: [{ file }],
		});
	});
});

test('a file of zeros is told as such, with all entries that it may have held [F846]', async () => {
	const { directory } = await givenHome();
	const audit = await open(directory);
	for (let count = 1; count <= 9; count += 1) audit.record({ ...SET, count });
	await audit.close();
	const file = join(directory, names(directory)[0] ?? '');
	fs.writeFileSync(file, Buffer.alloc(fs.statSync(file).size));
	const { stdout, status } = await finish('idv-agent', ['audit', '--verify'], { IDV_AGENT_STATE_DIR: directory });
	expect([status, stdout]).toEqual([74, expect.stringMatching(/^Entries from 1 on are missing or altered/)]);
	expect(stdout).toContain(`${file}: nothing in it can be read.`);
});

test('a file under an earlier place than its own is told with its name [F847]', async () => {
	const { directory } = await givenHome();
	const audit = await open(directory);
	for (let count = 0; count < 900; count += 1) audit.record({ ...SET, count, host: 'x'.repeat(300) });
	await audit.close();
	const newest = names(directory).toSorted().at(-1) ?? '';
	const moved = join(directory, newest.replace(/-\d{8}-/, '-00000000-'));
	fs.renameSync(join(directory, newest), moved);
	const { stdout, status } = await finish('idv-agent', ['audit', '--verify'], { IDV_AGENT_STATE_DIR: directory });
	expect([status, stdout]).toEqual([74, expect.stringContaining(`${moved}: nothing in it can be read.`)]);
});

describe('entries that the history knows of', () => {
	test('and whose file is full of zeros are told in one row, to the newest [F848]', async () => {
		const { verify, file } = await givenDevice();
		fs.writeFileSync(file, Buffer.alloc(fs.statSync(file).size));
		expect(await verify()).toEqual({ status: 74, says: expect.stringMatching(/^Entries 1 to 3 are missing/) });
	});

	/** A device that was unpaired and stopped; what `audit --verify` says of it. */
	async function givenDevice() {
		const device = await givenAgent();
		const { stateDir } = device.home.paths;
		for (let count = 0; count < 3; count += 1)
			await device.client.request('admin', 'POST', LOCAL_ROUTES.erase, { session: 'visit-4711' });
		await device.stop();
		const verify = async () => {
			const { stdout, status } = await finish('idv-agent', ['audit', '--verify'], { IDV_AGENT_STATE_DIR: stateDir });
			return { status, says: stdout.trim().split('\n')[0] };
		};
		return { device, stateDir, verify, file: join(stateDir, names(stateDir)[0] ?? '') };
	}
	const all = { status: 0, says: 'Entries 1 to 3: none is missing, none is altered.' };

	test('are told when all files of the audit log are gone, also after the next start and new entries [F706]', async () => {
		const { device, verify, file } = await givenDevice();
		expect(await verify()).toEqual(all);
		fs.rmSync(file);
		const told = {
			status: 74,
			says: expect.stringMatching(/^Entries 1 to 3 are missing or altered \(between .* and .*\)\.$/),
		};
		expect(await verify()).toEqual(told);
		const again = await givenAgent({ home: device.home });
		for (let count = 0; count < 5; count += 1)
			await again.client.request('admin', 'POST', LOCAL_ROUTES.erase, { session: 'visit-4711' });
		expect(await verify()).toEqual(told);
		await again.stop();
		expect(await verify()).toEqual(told);
	});

	test('are told when the newest one was cut off exactly at its end, also after the next start [F707]', async () => {
		const { device, verify, file } = await givenDevice();
		const marker = Buffer.from(/-([0-9a-f]{8})[0-9a-f]{8}\.log$/.exec(file)?.[1] ?? '', 'hex');
		const bytes = fs.readFileSync(file);
		fs.truncateSync(file, bytes.lastIndexOf(marker));
		const told = { status: 74, says: expect.stringMatching(/^Entry 3 is missing or altered/) };
		expect(await verify()).toEqual(told);
		await (await givenAgent({ home: device.home })).stop();
		expect(await verify()).toEqual(told);
	});

	test('are the ones from where the number has fallen', () => {
		const at = (...numbers: (number | undefined)[]) => numbers.map((audit, index) => ({ at: `${index}`, audit }));
		expect(missingBy([], 0)).toEqual([]);
		expect(missingBy(at(undefined, 0, 2, 2, 5), 7)).toEqual([]);
		expect(missingBy(at(1, 3, 6, 6), 3)).toEqual([{ from: 4, to: 6, after: '1', before: '2' }]);
		expect(missingBy(at(1, 4, 0, 2), 1)).toEqual([
			{ from: 1, to: 4, after: null, before: '1' },
			{ from: 2, to: 2, after: '2', before: '3' },
		]);
	});
});

test('each line reaches the journal under its own identifier', async () => {
	const { directory } = await givenHome();
	const path = join(directory, 'journal');
	const { promise, resolve } = Promise.withResolvers<string>();
	const server = createServer((socket) => {
		let text = '';
		socket.on('data', (chunk) => {
			text += chunk;
		});
		socket.on('end', () => {
			resolve(text);
			socket.end();
		});
	});
	await new Promise<void>((listening) => server.listen(path, listening));
	onTestFinished(() => new Promise<void>((closed) => void server.close(() => closed())));
	await sendToJournal('{"action":"unpair"}', path);
	expect(await promise).toBe(`${AUDIT_IDENTIFIER}\n\n5\n0\n0\n0\n0\n{"action":"unpair"}\n`);
	await sendToJournal('lost', join(directory, 'nothing-here'));
});

test('a flood wears neither the disk nor the journal, and foreign words stay out of the journal', async () => {
	const { directory } = await givenHome();
	const journal: string[] = [];
	const audit = await open(directory, { journal: async (line) => void journal.push(line) });
	for (let asked = 0; asked < 5000; asked += 1)
		audit.record({ action: 'pair', entrance: 'page', result: 'access-denied', host: 'tr-9fQx2LmZ7vTbK4wR8sYc' });
	audit.record({ action: 'unpair', entrance: 'admin.sock', result: 'ok' });
	await audit.close();
	const entries = (await readAuditLog(directory)).documents;
	expect(entries).toHaveLength(PACE.burst + 2);
	expect(entries.at(-2)).toMatchObject({ action: 'unpair', entrance: 'admin.sock' });
	expect(entries.at(-1)).toMatchObject({ action: 'leftOut', of: 'pair', entrance: 'page', count: 5000 - PACE.burst });
	expect(journal).toHaveLength(entries.length);
	expect(JSON.stringify(journal)).not.toContain('9fQx2LmZ');
	expect(fs.statSync(join(directory, names(directory)[0] ?? '')).size).toBeLessThan(16_384);
});

test('an erasure that failed has the number of events that no application gets any more [F1830]', async () => {
	const { directory } = await givenHome();
	const audit = await open(directory);
	const full = new AgentError('state-unwritable', 'The disk is full.', { params: { erased: 13 } });
	const route = { method: 'POST', handle: () => Promise.reject(full) } as const;
	const { handle } = audited(route as never, { action: 'eraseEvents', entrance: 'admin.sock', audit });
	await expect((handle as () => Promise<unknown>)()).rejects.toBe(full);
	await audit.close();
	const { documents } = await readAuditLog(directory);
	expect(documents).toMatchObject([{ action: 'eraseEvents', result: 'state-unwritable', count: 13 }]);
});

test('what destroys or moves is written, and the first request of its kind as well, whatever came before it [F519]', async () => {
	const { directory } = await givenHome();
	const audit = await open(directory);
	for (let asked = 0; asked < 1000; asked += 1) audit.record(RECONNECT);
	audit.record({ ...RECONNECT, action: 'inspectPairing' });
	for (const action of ['eraseEvents', 'unpair', 'setWorkflow', 'moved', 'eraseEvents'])
		audit.record({ ...SET, action });
	await audit.close();
	const actions = (await readAuditLog(directory)).documents
		.map(({ action }) => action)
		.filter((action) => action !== 'reconnect');
	expect(actions).toEqual([
		'inspectPairing',
		'eraseEvents',
		'unpair',
		'setWorkflow',
		'moved',
		'eraseEvents',
		'leftOut',
	]);
});

test('no flood of one kind pushes an erasure or an unpairing out, whatever that kind is [F1569]', async () => {
	const { directory } = await givenHome();
	const audit = await open(directory);
	audit.record({ ...SET, action: 'eraseEvents', count: 1 });
	audit.record({ ...SET, action: 'unpair' });
	for (const action of ['setWorkflow', 'acceptIdentity', 'forgetPlan', 'eraseEvents', 'moved', 'pair'])
		for (let asked = 0; asked < 5000; asked += 1)
			audit.record({ ...SET, action, ...(action === 'eraseEvents' && { count: 0 }) });
	for (let session = 0; session < 50; session += 1) audit.record({ ...SET, action: 'eraseEvents', count: 2 });
	await audit.close();
	const entries = (await readAuditLog(directory)).documents;
	expect(entries[0]).toMatchObject({ action: 'eraseEvents', count: 1 });
	expect(entries[1]).toMatchObject({ action: 'unpair' });
	expect(entries.filter(({ count, action }) => count === 2 && action === 'eraseEvents')).toHaveLength(50);
	expect(entries.find(({ of }) => of === 'setWorkflow')).toMatchObject({ action: 'leftOut', count: 4900 });
});

test('the count of what was left out survives a kill but for a ninth, says so, and takes few notes [F708]', async () => {
	const { directory } = await givenHome();
	for (const leftOut of [1, 15, 31, 100, 5000]) {
		const stateDir = join(directory, String(leftOut));
		fs.mkdirSync(stateDir);
		const audit = await open(stateDir);
		for (let asked = 0; asked < PACE.burst + leftOut; asked += 1) audit.record(RECONNECT);
		await audit.read();
		const killed = `${stateDir}-killed`;
		fs.cpSync(stateDir, killed, { recursive: true });
		expect(fs.statSync(join(killed, names(killed)[0] ?? '')).size).toBeLessThan(16_384);
		const { of, count = 0, atLeast } = (await (await open(killed)).read()).at(-1) ?? {};
		expect([of, atLeast]).toEqual(['reconnect', true]);
		expect(count).toBeLessThanOrEqual(leftOut);
		expect(count).toBeGreaterThanOrEqual((leftOut * 8) / 9);
	}
});

test('the count of what was left out survives a kill, and is written once [F605]', async () => {
	const { directory } = await givenHome();
	const audit = await open(directory);
	for (let asked = 0; asked < PACE.burst + 12; asked += 1) audit.record({ ...RECONNECT, entrance: 'kept answer' });
	await audit.read();
	const killed = join(directory, 'killed');
	fs.mkdirSync(killed);
	for (const name of names(directory)) fs.copyFileSync(join(directory, name), join(killed, name));
	for (let starts = 0; starts < 2; starts += 1) await (await open(killed)).close();
	const entries = (await readAuditLog(killed)).documents;
	expect(entries).toHaveLength(PACE.burst + 1);
	expect(entries.at(-1)).toMatchObject({
		action: 'leftOut',
		of: 'reconnect',
		entrance: 'kept answer',
		count: 12,
		atLeast: true,
	});
});

test('a log that cannot be written is tried again: the warning ends with its cause, and no entry is missing [F520]', async () => {
	const { directory } = await givenHome();
	const stateDir = join(directory, 'state');
	const clock = createSteppedClock();
	const told: (string | null)[] = [];
	let tell = () => {};
	const audit = await open(stateDir, {
		clock,
		onSaved(problem) {
			told.push(problem?.code ?? null);
			tell();
		},
	});
	const next = () => new Promise<void>((resolve) => (tell = resolve));
	const first = next();
	audit.record({ action: 'unpair', entrance: 'admin.sock', result: 'ok' });
	await first;
	fs.mkdirSync(stateDir);
	const second = next();
	clock.advance(30_000);
	await second;
	expect(told).toEqual(['state-unwritable', null]);
	expect((await readAuditLog(stateDir)).documents.map(({ action }) => action)).toEqual(['unpair']);
	await audit.close();
	expect(clock.pending).toBe(0);
});

describe('a device', () => {
	const read = async ({ client }: RunningAgent) =>
		((await client.request('admin', 'GET', LOCAL_ROUTES.audit)) as AuditReport).entries;
	const brief = (entries: readonly AuditEntry[]) =>
		entries.map(({ action, entrance, result }) => `${action} ${entrance} ${result}`);

	test('records pairings, moves, requests and erasures, and none of the words of the caller', async () => {
		const service = await givenService();
		const device = await givenPairedAgent(service);
		const ask = (method: string, path: string, body?: object) => device.client.request('admin', method, path, body);
		await expect(ask('POST', LOCAL_ROUTES.pair, { code: 'L01X00T47 planted' })).rejects.toThrow();
		await ask('PUT', LOCAL_ROUTES.workflow, { workflowId: 'boarding' });
		await device.untilLive('boarding');
		service.notify({ type: 'n', sessionId: 'visit-4711' });
		await device.untilEvent(({ kind }) => kind === 'n');
		await ask('POST', LOCAL_ROUTES.erase, { session: 'visit-4711' });
		await ask('POST', LOCAL_ROUTES.unpair);
		const entries = await read(device);
		expect(brief(entries)).toEqual([
			'paired person ok',
			'pair admin.sock not-a-pairing-code',
			'setWorkflow admin.sock ok',
			'moved workflow set ok',
			'eraseEvents admin.sock ok',
			'unpair admin.sock ok',
		]);
		expect(entries[4]?.count).toBeGreaterThan(0);
		const text = JSON.stringify(entries);
		for (const planted of ['L01X00T47', 'visit-4711', 'Token']) expect(text).not.toContain(planted);
	});

	test('writes nothing for readers, heartbeats, renewals and restarts', async () => {
		const service = await givenService();
		const device = await givenPairedAgent(service);
		await read(device);
		const { stateDir } = device.home.paths;
		const contents = () => names(stateDir).map((name) => fs.readFileSync(join(stateDir, name), 'latin1'));
		const before = contents();
		expect(before).toHaveLength(1);
		for (const path of [LOCAL_ROUTES.status, LOCAL_ROUTES.log, LOCAL_ROUTES.plan, LOCAL_ROUTES.audit])
			await device.client.request('admin', 'GET', path);
		service.notify({ type: 'n' });
		await device.untilEvent(({ kind }) => kind === 'n');
		await device.stop();
		const again = await givenAgent({ home: device.home });
		await again.untilState('online');
		await again.stop();
		expect(contents()).toEqual(before);
	});

	test('records an update of the agent, and the plans and keys of its fleet', async () => {
		const service = await givenService();
		const [one, two] = [createSigner(), createSigner()];
		const plan = (revision: number) => ({
			format: 'idv-fleet-plan/1',
			...{ revision, spreadSeconds: 0, defaults: { workflowId: 'boarding' } },
		});
		const server = await givenPlanServer(one.sign(plan(1)));
		const fleet = { planUrl: server.url, publicKeys: [one.publicKey] };
		const device = await givenPairedAgent(service, { settings: { fleet } });
		device.clock.advance(5000);
		await device.untilLive('boarding');
		await device.home.writeSettings({ fleet: { ...fleet, publicKeys: [one.publicKey, two.publicKey] } });
		await device.daemon.reload();
		server.publish(createSigner().sign(plan(2)));
		device.clock.advance(5000);
		await device.untilStatus(({ warnings }) => warnings.some(({ code }) => code === 'plan-untrusted'));
		const entries = (await read(device)).slice(1);
		expect(brief(entries)).toEqual([
			'planReceived plan ok',
			'moved plan ok',
			'planKeysChanged settings ok',
			'planReceived plan plan-untrusted',
		]);
		expect(entries[0]).toMatchObject({ epoch: 0, revision: 1, keys: [one.publicKey] });
		await device.stop();
		const other = await open(device.home.paths.stateDir, { version: '0.0.1' });
		await other.close();
		const again = await givenAgent({ home: device.home });
		expect((await read(again)).at(-1)).toMatchObject({ action: 'updated', from: '0.0.1', to: '0.0.0-test' });
	});

	test('streams its entries: all of them, and then each new one', async () => {
		const device = await givenAgent();
		await device.client.request('admin', 'POST', LOCAL_ROUTES.reconnect);
		const seen: string[] = [];
		const stop = new AbortController();
		await device.client.events(LOCAL_ROUTES.auditStream, { socket: 'admin', signal: stop.signal }, async ({ data }) => {
			seen.push((JSON.parse(data) as AuditEntry).action);
			if (seen.length === 1) await device.client.request('admin', 'POST', LOCAL_ROUTES.unpair);
			else stop.abort();
		});
		expect(seen).toEqual(['reconnect', 'unpair']);
	});
});
