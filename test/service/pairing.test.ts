import { describe, expect, test } from 'vitest';
import { readPairingCode } from '../../src/protocol/pairing-code.ts';
import { readTokenLife } from '../../src/protocol/token-life.ts';
import type { DialectOptions, EmbeddedService, ServiceOptions } from '../../src/service/embedded-service.runner.ts';
import {
	createClock,
	credentialsOf,
	givenService,
	openChannel,
	type PlainAnswer,
	registerDevice,
	send,
} from './fixture.ts';

const PATH = '/api/device/connection';

function register(service: EmbeddedService, token: string, body: unknown): Promise<PlainAnswer> {
	return send(service.url, { path: PATH, authorization: `Token ${token}`, body });
}

describe('a pairing code', () => {
	test('is a link in the published form, with a token of 28 characters and the workflow', async () => {
		const clock = createClock();
		const service = await givenService({ now: clock.now });
		const { url, token, expiresAt, workflowId } = service.createPairingCode('check in & out');
		expect(token).toMatch(/^tr-[A-Za-z0-9]{28}$/);
		expect(url).toBe(`${service.url}/mobile?authorization=Token%20${token}&workflowId=check%20in%20%26%20out`);
		expect([expiresAt, workflowId]).toEqual(['2030-01-01T00:05:00.000Z', 'check in & out']);
		expect(readPairingCode(url)).toMatchObject({ kind: 'pairingCode', baseUrl: service.url, token, workflowId });
	});

	test('may carry no workflow and then pairs for any', async () => {
		const service = await givenService();
		const { url, token } = service.createPairingCode(null);
		expect(url).toBe(`${service.url}/mobile?authorization=Token%20${token}`);
		expect((await register(service, token, { deviceId: 'a', workflowId: 'whatever' })).status).toBe(201);
	});

	test('carries the public address when one is given', async () => {
		const service = await givenService({ publicUrl: 'https://id.example/trial' });
		const { url, token } = service.createPairingCode(null);
		expect(url).toBe(`https://id.example/trial/mobile?authorization=Token%20${token}`);
	});

	test('opens a page that says what it is, repeats nothing of it and spends nothing', async () => {
		const service = await givenService();
		const { url, token } = service.createPairingCode('check-in');
		const page = await send(url, { path: '' });
		expect([page.status, page.headers['content-type']]).toEqual([200, 'text/html; charset=utf-8']);
		expect(page.text).toContain('pairs a device');
		expect(page.text).not.toContain(token);
		expect((await register(service, token, { deviceId: 'a', workflowId: 'check-in' })).status).toBe(201);
	});
});

describe('a Short Token', () => {
	const body = { deviceId: 'kiosk-1', workflowId: 'check-in' };

	test('registers a device once and yields a signed Connection that says what it is for', async () => {
		const clock = createClock();
		const service = await givenService({ now: clock.now });
		const { token } = service.createPairingCode('check-in');
		const answer = await register(service, token, body);
		expect([answer.status, answer.headers['cache-control']]).toEqual([201, 'no-store']);
		expect(answer.json).toEqual({
			token: expect.any(String),
			expiresAt: '2030-01-02T00:00:00.000Z',
			deviceId: 'kiosk-1',
			workflowId: 'check-in',
		});
		const life = readTokenLife(answer.json.token);
		expect(life).toEqual({ issuedAtSeconds: clock.now() / 1000, expiresAtSeconds: clock.now() / 1000 + 86_400 });
		const claims = JSON.parse(Buffer.from(answer.json.token.split('.')[1], 'base64url').toString());
		expect(claims).toMatchObject({ ...body, permissions: expect.any(Array), jti: expect.any(String) });

		expect((await register(service, token, body)).json).toMatchObject({ status: 401, code: 'token-spent' });
	});

	test('is spent by exactly one of many devices that come at once', async () => {
		const service = await givenService();
		const { token } = service.createPairingCode(null);
		const answers = await Promise.all(
			Array.from({ length: 20 }, (_, n) => register(service, token, { ...body, deviceId: `kiosk-${n}` })),
		);
		expect(answers.filter((answer) => answer.status === 201)).toHaveLength(1);
		expect(answers.filter((answer) => answer.json.code === 'token-spent')).toHaveLength(19);
		expect(service.devices()).toHaveLength(1);
	});

	test('is not spent by a request that is refused', async () => {
		const service = await givenService({ workflows: ['check-in', 'check-out'] });
		const { token } = service.createPairingCode('check-in');
		const refused = [
			await register(service, token, { ...body, heartbeatCadence: 0 }),
			await register(service, token, '{"deviceId":'),
			await register(service, token, { ...body, workflowId: 'check-out' }),
			await register(service, token, { ...body, workflowId: 'nowhere' }),
			await send(service.url, {
				path: PATH,
				authorization: `Token ${token}`,
				body: 'a=b',
				headers: { 'content-type': 'text/plain' },
			}),
			await send(service.url, { path: '/api/device', authorization: `Token ${token}` }),
		];
		expect(refused.map((answer) => answer.json.code)).toEqual([
			'body-invalid',
			'body-malformed',
			'workflow-mismatch',
			'workflow-unknown',
			'content-type-unsupported',
			'scheme-not-allowed',
		]);
		expect((await register(service, token, body)).status).toBe(201);
	});

	test('says whether it is unknown, spent or expired', async () => {
		const clock = createClock();
		const service = await givenService({ now: clock.now, shortTokenTtlSeconds: 300 });
		const [inTime, late, spent] = [1, 2, 3].map(() => service.createPairingCode(null).token) as [
			string,
			string,
			string,
		];
		expect((await register(service, spent, body)).status).toBe(201);
		clock.advance(299_999);
		expect((await register(service, inTime, body)).status).toBe(201);
		clock.advance(1);
		const answers = [
			await register(service, `tr-${'x'.repeat(28)}`, body),
			await register(service, spent, body),
			await register(service, late, body),
		];
		expect(answers.map((answer) => [answer.status, answer.json.code])).toEqual([
			[401, 'token-unknown'],
			[401, 'token-spent'],
			[401, 'token-expired'],
		]);
		expect(answers[2]?.json.detail).toBe('This Short Token expired at 2030-01-01T00:05:00.000Z.');
	});

	test('is forgotten an hour after its end and not before, so that memory stays bounded [F1841]', async () => {
		const clock = createClock();
		const service = await givenService({ now: clock.now, maxShortTokens: 2 });
		const { token } = service.createPairingCode(null);
		service.createPairingCode(null);
		expect(() => service.createPairingCode(null)).toThrow('The service has no room for more Short Tokens.');
		const full = await send(service.url, { path: '/api/deeplink/qrcode', authorization: credentialsOf(service).Basic });
		expect([full.status, full.headers['retry-after'], full.json.code]).toEqual([503, '60', 'service-full']);
		clock.advance(300_000 + 3_599_000);
		expect(() => service.createPairingCode(null)).toThrow('no room');
		expect((await register(service, token, body)).json.code).toBe('token-expired');
		clock.advance(1000);
		service.createPairingCode(null);
		expect((await register(service, token, body)).json.code).toBe('token-unknown');
	});
});

describe('a Connection token', () => {
	test.each<[string, (token: string) => unknown]>([
		['/token', (token) => ({ token })],
		['/connectionToken', (token) => ({ connectionToken: token })],
		['/connection/token', (token) => ({ connection: { token } })],
	])('is in the answer where the dialect says: %j', async (tokenPointer, expected) => {
		const service = await givenService({ dialect: { tokenPointer } });
		const { token } = service.createPairingCode(null);
		const answer = await register(service, token, { deviceId: 'a', workflowId: 'b' });
		const found = /[\w-]+\.[\w-]+\.[\w-]+(?=")/.exec(answer.text)?.[0] ?? '';
		expect(answer.json).toEqual({
			...(expected(found) as object),
			expiresAt: expect.any(String),
			deviceId: 'a',
			workflowId: 'b',
		});
	});

	test.each<DialectOptions>([{ tokenPointer: '' }, { tokenIn: 'text' }])(
		'may be the whole body: %j',
		async (dialect) => {
			const service = await givenService({ dialect });
			const { token } = service.createPairingCode(null);
			const answer = await register(service, token, { deviceId: 'a', workflowId: 'b' });
			expect(answer.status).toBe(201);
			expect(dialect.tokenIn === 'text' ? answer.text : answer.json).toMatch(/^[\w-]+\.[\w-]+\.[\w-]+$/);
		},
	);

	test('is accepted by another service with the same signing key and by no other', async () => {
		const signingKey = new Uint8Array(32).fill(7);
		const issuer = await givenService({ signingKey });
		const token = await registerDevice(issuer, 'kiosk-1', 'check-in', { heartbeatCadence: 5 });
		const sibling = await givenService({ signingKey });
		await openChannel(sibling, token);
		expect(sibling.devices()).toMatchObject([{ deviceId: 'kiosk-1', workflowId: 'check-in', online: true }]);
		const stranger = await givenService();
		const refused = await openChannel(stranger, token).catch((error) => error);
		expect(JSON.parse(refused.text)).toMatchObject({ status: 401, code: 'connection-invalid' });
	});

	test('with no signature or another algorithm is refused', async () => {
		const service = await givenService();
		const [, payload] = (await registerDevice(service, 'kiosk-1')).split('.');
		const header = Buffer.from('{"alg":"none","typ":"JWT"}').toString('base64url');
		for (const forged of [`${header}.${payload}.`, `${header}.${payload}.AAAA`]) {
			await expect(openChannel(service, forged)).rejects.toMatchObject({ status: 401 });
		}
	});
});

describe('options that cannot work', () => {
	test.each<[string, ServiceOptions]>([
		['not listen on 0.0.0.0', { host: '0.0.0.0' }],
		['not listen on 192.0.2.1', { host: '192.0.2.1' }],
		['not listen on ::', { host: '::' }],
		['signingKey', { signingKey: new Uint8Array(31) }],
		['dialect.tokenPointer: must be a JSON pointer', { dialect: { tokenPointer: 'token' } }],
		['publicUrl', { publicUrl: 'ftp://id.example' }],
		['basePath', { basePath: 'idv' }],
		['shortTokenTtlSeconds', { shortTokenTtlSeconds: 0 }],
		['connectionTtlSeconds', { connectionTtlSeconds: Number.NaN }],
	])('are refused in plain words: %s', async (words, options) => {
		await expect(givenService(options)).rejects.toThrow(words);
	});

	test('a network address is served when it is meant', async () => {
		const service = await givenService({ host: '0.0.0.0', allowNonLoopback: true });
		expect((await send(`http://127.0.0.1:${service.port}`, { path: '/mobile' })).status).toBe(200);
	});
});
