import { readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { LOCAL_ROUTES } from '../../src/protocol/local-api.ts';
import type { EmbeddedService } from '../../src/service/embedded-service.runner.ts';
import { givenAgent, givenHome, givenPairedAgent, type RunningAgent } from '../harness/harness.ts';
import { givenService } from '../service/fixture.ts';

const PASSPORT = 'L01X00T47';
const TOKEN = 'sk-planted-token-5f2c9a71';
const SESSION = '65f0a2b4c1';

/** Notifications with personal data in every place that an event keeps, and damaged files set aside with the same. */
async function plant(service: EmbeddedService, device: RunningAgent) {
	for (let number = 0; number < 40; number += 1) {
		const secrets = { passport: PASSPORT, token: TOKEN, padding: 'x'.repeat(number * 200) };
		service.notify({ type: `kind-${number}`, id: `${PASSPORT}-${number}`, sessionId: SESSION, ...secrets });
	}
	service.notify({ type: PASSPORT, id: 'last', url: `https://x.example/s%2F${SESSION}?a=1`, text: TOKEN });
	await device.untilEvent(({ kind }) => kind === PASSPORT);
	const { stateDir } = device.home.paths;
	for (const name of ['events.db.corrupt-2026-11-22T00-00-00.000Z', 'state.json.corrupt-2026-11-22T00-00-00.000Z.bak'])
		await writeFile(join(stateDir, name), `${PASSPORT} ${TOKEN} ${SESSION}`);
}

/** Names of the live files in which one of the texts is, as UTF-8, UTF-16 or base64 at any offset. */
async function filesWith(device: RunningAgent, ...texts: string[]): Promise<string[]> {
	const { stateDir } = device.home.paths;
	const found: string[] = [];
	for (const name of (await readdir(stateDir)).filter((each) => each !== 'lock.db')) {
		// One that is being written has another name a moment later, and what it replaces is gone.
		const bytes = await readFile(join(stateDir, name)).catch(() => Buffer.alloc(0));
		const forms = texts.flatMap((text) => [
			Buffer.from(text),
			Buffer.from(text, 'utf16le'),
			...[0, 1, 2].map((shift) =>
				Buffer.from(
					Buffer.from(`${'.'.repeat(shift)}${text}`)
						.toString('base64')
						.slice(4, -4),
				),
			),
		]);
		if (forms.some((form) => bytes.includes(form))) found.push(name);
	}
	return found;
}

/** All that the sockets answer to a reader. */
async function served({ client }: RunningAgent): Promise<string> {
	const { status, events, identity, scanners, log, leases, plan } = LOCAL_ROUTES;
	const answers = await Promise.all(
		[status, events, identity, scanners, log, leases, plan].map((path) => client.request('admin', 'GET', path)),
	);
	return JSON.stringify(answers);
}

async function expectGone(device: RunningAgent, ...texts: string[]) {
	expect(await filesWith(device, ...texts)).toEqual([]);
	const answers = await served(device);
	expect(texts.filter((text) => answers.includes(text))).toEqual([]);
}

describe('unpairing', () => {
	test('takes along events, copies of the Connection, files set aside, an answer and the confirmed origin', async () => {
		const service = await givenService();
		const device = await givenPairedAgent(service);
		await plant(service, device);
		const connection = await device.home.savedToken();
		await writeFile(join(device.home.paths.stateDir, 'unread-answer.json'), TOKEN);
		device.agent.events.join('kiosk');
		expect(await filesWith(device, PASSPORT, TOKEN)).not.toEqual([]);
		await device.client.request('admin', 'POST', LOCAL_ROUTES.unpair);
		await expectGone(device, PASSPORT, TOKEN, SESSION, connection);
		const preview = device.agent.inspectPairing({ code: service.createPairingCode('check-in').url });
		expect(preview.problem?.code).toBe('origin-unconfirmed');
		await device.stop();
		expect(await filesWith(device, PASSPORT, TOKEN, SESSION, connection)).toEqual([]);
	});

	test('keeps the events where that is asked', async () => {
		const service = await givenService();
		const device = await givenPairedAgent(service);
		service.notify({ type: 'kept', passport: PASSPORT });
		await device.untilEvent(({ kind }) => kind === 'kept');
		const before = await device.events();
		await device.client.request('admin', 'POST', LOCAL_ROUTES.unpair, { keepEvents: true });
		expect(await device.events()).toEqual(before);
	});

	test('gives no id twice, and the next service starts with an empty list', async () => {
		const service = await givenService();
		const device = await givenPairedAgent(service);
		service.notify({ type: 'first', id: 'same' });
		const { id } = await device.untilEvent(({ kind }) => kind === 'first');
		await device.agent.unpair();
		await device.pair(service.createPairingCode('check-in').url);
		await device.untilLive('check-in');
		service.notify({ type: 'first', id: 'same' });
		const again = await device.untilEvent(({ kind }) => kind === 'first');
		expect(again.id).not.toBe(id);
		expect(again.number).toBeGreaterThan(Number(id.split('-').at(-1)));
		await device.agent.unpair();
		await device.stop();
		const third = await givenAgent({ home: device.home });
		await third.pair(service.createPairingCode('check-in').url);
		await third.untilLive('check-in');
		service.notify({ type: 'first', id: 'same' });
		expect((await third.untilEvent(({ kind }) => kind === 'first')).number).toBeGreaterThan(again.number);
	});
});

describe('pairing with another service', () => {
	test('takes along all of the one before, and nothing of the new one', async () => {
		const [old, next] = [await givenService(), await givenService()];
		const device = await givenPairedAgent(old);
		await plant(old, device);
		const connection = await device.home.savedToken();
		const { url } = next.createPairingCode('boarding');
		await device.client.request('admin', 'POST', LOCAL_ROUTES.pair, {
			code: `${url}&sessionId=new-session`,
			replace: true,
			trustOrigin: new URL(next.url).origin,
		});
		await device.untilLive('boarding');
		await expectGone(device, PASSPORT, TOKEN, SESSION, connection);
		expect((await device.events()).map(({ type }) => type)).toContain('session');
		const preview = device.agent.inspectPairing({ code: old.createPairingCode('check-in').url, replace: true });
		expect(preview.problem?.code).toBe('origin-unconfirmed');
	});

	test('that does not reach its old service takes it along at once', async () => {
		const [old, next] = [await givenService(), await givenService()];
		const device = await givenPairedAgent(old);
		await plant(old, device);
		const connection = await device.home.savedToken();
		await old.close();
		await device.untilStatus(({ state }) => state !== 'online');
		await device.pair(next.createPairingCode('boarding').url, { replace: true });
		await expectGone(device, PASSPORT, TOKEN, connection);
	});

	test('keeps the events where that is asked, through the whole move', async () => {
		const [old, next] = [await givenService(), await givenService()];
		const device = await givenPairedAgent(old);
		old.notify({ type: 'kept', id: '1' });
		await device.untilEvent(({ kind }) => kind === 'kept');
		const connection = await device.home.savedToken();
		await device.pair(next.createPairingCode('boarding').url, { replace: true, keepEvents: true });
		await device.untilLive('boarding');
		expect((await device.events()).map(({ kind }) => kind)).toContain('kept');
		await expectGone(device, connection);
	});

	test('a new Connection of the same service leaves events and origin as they are', async () => {
		const service = await givenService();
		const device = await givenPairedAgent(service);
		service.notify({ type: 'kept', id: '1' });
		await device.untilEvent(({ kind }) => kind === 'kept');
		await device.pair(service.createPairingCode('boarding').url, { replace: true });
		await device.untilLive('boarding');
		expect((await device.events()).map(({ kind }) => kind)).toContain('kept');
		expect(device.agent.inspectPairing({ code: service.createPairingCode('a').url, replace: true }).problem).toBeNull();
	});
});

describe('erasing events', () => {
	const erase = (device: RunningAgent, body: object) =>
		device.client.request('admin', 'POST', LOCAL_ROUTES.erase, body);

	test('of a session leaves nothing of it, and the others as they are', async () => {
		const service = await givenService();
		const home = await givenHome();
		const device = await givenAgent({ home });
		await device.pair(`${service.createPairingCode('check-in').url}&sessionId=${SESSION}`);
		await device.untilLive('check-in');
		await plant(service, device);
		service.notify({ type: 'other', id: 'other', sessionId: `${SESSION}9`, note: 'stays' });
		await device.untilEvent(({ kind }) => kind === 'other');
		expect(device.agent.status().sessionId).toBe(SESSION);
		const own = (await device.events()).filter(({ content }) => new RegExp(`${SESSION}(?!9)`).test(content));
		expect(own.length).toBeGreaterThan(41);
		expect(await erase(device, { session: SESSION })).toEqual({ erased: own.length });
		expect((await device.events()).map(({ kind }) => kind)).toContain('other');
		expect(device.agent.status()).toMatchObject({ state: 'online', sessionId: null });
		// Also where applications have read and acknowledged it: what tells duplicates is gone as well.
		await expectGone(device, PASSPORT, TOKEN);
		for (const text of [`"${SESSION}"`, `${SESSION}?`]) await expectGone(device, text);
	});

	test('before a time leaves the newer ones, and an acknowledged one leaves no trace', async () => {
		const service = await givenService();
		const device = await givenPairedAgent(service);
		await plant(service, device);
		device.agent.events.join('kiosk');
		device.agent.events.acknowledge('kiosk', (await device.events()).at(-1)?.id ?? '');
		await device.agent.events.settled();
		device.clock.advance(60_000);
		service.notify({ type: 'newer', id: 'newer' });
		await device.untilEvent(({ kind }) => kind === 'newer');
		const before = new Date(device.clock.wallMs() - 30_000).toISOString();
		await erase(device, { before });
		expect((await device.events()).map(({ kind }) => kind)).toEqual(['newer']);
		await expectGone(device, PASSPORT, TOKEN);
	});

	test.each([{}, { session: 'a', before: '2026-11-22T00:00:00Z' }, { before: 'yesterday' }, { session: '' }])(
		'refuses %j',
		async (body) => {
			const device = await givenAgent();
			await expect(erase(device, body)).rejects.toMatchObject({ code: 'body-invalid' });
		},
	);
});
