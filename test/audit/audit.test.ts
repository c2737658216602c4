import { chmod, readFile, stat, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, onTestFinished, test } from 'vitest';
import { openAudit } from '../../src/audit/audit.runner.ts';
import { AUDIT_IDENTIFIER, sendToJournal } from '../../src/audit/journal.edge.ts';
import { appendAudit, MAX_AUDIT_BYTES, readAudit } from '../../src/audit/log-file.edge.ts';
import { NO_PACES, PACE, paced } from '../../src/audit/pace.ts';
import { createSecretRegistry } from '../../src/base/redact.ts';
import { type AuditEntry, type AuditReport, LOCAL_ROUTES } from '../../src/protocol/local-api.ts';
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
		expect(paced(paces, 'page false', HOUR_MS)).toMatchObject({ isAllowed: true, leftOut: 1000 - PACE.burst });
	});
});

describe('the file', () => {
	const line = (number: number, more = {}) =>
		JSON.stringify({ at: '2026-11-22T00:00:00.000Z', action: `a${number}`, ...more });

	async function givenDirectory() {
		const { directory } = await givenHome();
		return directory;
	}

	test('keeps the newest entries, in bounded files that only their owner reads', async () => {
		const directory = await givenDirectory();
		const filler = 'x'.repeat(40_000);
		for (let number = 0; number < 30; number += 1) await appendAudit(directory, line(number, { filler }));
		const numbers = (await readAudit(directory)).map(({ action }) => Number(action.slice(1)));
		expect(numbers.at(-1)).toBe(29);
		expect(numbers).toEqual(numbers.map((_, index) => 30 - numbers.length + index));
		expect(numbers.length).toBeGreaterThan(5);
		for (const name of ['audit.log', 'audit.log.1']) {
			const { size, mode } = await stat(join(directory, name));
			expect(size).toBeLessThanOrEqual(MAX_AUDIT_BYTES);
			expect(mode & 0o777).toBe(0o600);
		}
	});

	test('goes on after half a line, and takes rights back that others were given', async () => {
		const directory = await givenDirectory();
		await appendAudit(directory, line(1));
		await writeFile(join(directory, 'audit.log'), `${line(1)}\n${line(2).slice(0, 20)}`);
		await chmod(join(directory, 'audit.log'), 0o644);
		await appendAudit(directory, line(3));
		expect((await readAudit(directory)).map(({ action }) => action)).toEqual(['a1', 'a3']);
		expect((await stat(join(directory, 'audit.log'))).mode & 0o777).toBe(0o600);
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

test('a flood wears neither the disk nor the journal, and a secret is not written', async () => {
	const { directory } = await givenHome();
	const secrets = createSecretRegistry();
	secrets.add('tr-secret-secret-secret');
	const journal: string[] = [];
	const clock = createSteppedClock();
	const audit = openAudit({
		stateDir: directory,
		version: '1',
		clock,
		secrets,
		journal: async (line) => void journal.push(line),
		onSaved: (problem) => expect(problem).toBeNull(),
	});
	for (let asked = 0; asked < 5000; asked += 1)
		audit.record({ action: 'pair', entrance: 'page', result: 'access-denied', host: 'tr-secret-secret-secret' });
	audit.record({ action: 'unpair', entrance: 'admin.sock', result: 'ok' });
	await audit.close();
	const entries = await readAudit(directory);
	expect(entries).toHaveLength(PACE.burst + 2);
	expect(entries.at(-2)).toMatchObject({ action: 'unpair', entrance: 'admin.sock' });
	expect(entries.at(-1)).toMatchObject({ action: 'leftOut', entrance: 'page', count: 5000 - PACE.burst });
	expect(journal).toHaveLength(entries.length);
	expect(JSON.stringify([entries, journal])).not.toContain('tr-secret');
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
		const { mode } = await stat(join(device.home.paths.stateDir, 'audit.log'));
		expect(mode & 0o777).toBe(0o600);
	});

	test('writes nothing for readers, heartbeats, renewals and restarts', async () => {
		const service = await givenService();
		const device = await givenPairedAgent(service);
		await read(device);
		const file = join(device.home.paths.stateDir, 'audit.log');
		const before = await readFile(file, 'utf8');
		for (const path of [LOCAL_ROUTES.status, LOCAL_ROUTES.log, LOCAL_ROUTES.plan, LOCAL_ROUTES.audit])
			await device.client.request('admin', 'GET', path);
		service.notify({ type: 'n' });
		await device.untilEvent(({ kind }) => kind === 'n');
		await device.stop();
		const again = await givenAgent({ home: device.home });
		await again.untilState('online');
		await again.stop();
		expect(await readFile(file, 'utf8')).toBe(before);
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
		const file = join(device.home.paths.stateDir, 'audit.log');
		await writeFile(file, (await readFile(file, 'utf8')).replaceAll('"version":"0.0.0-test"', '"version":"0.0.1"'));
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
