import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { AUTHORIZATION_SCHEMES, type Authorization } from '../../src/protocol/authorization.ts';
import { type EmbeddedService, startService } from '../../src/service/embedded-service.runner.ts';
import {
	credentialsOf,
	givenService,
	openChannel,
	type PlainRequest,
	queryOf,
	registerDevice,
	send,
} from './fixture.ts';

const DEVICE = 'kiosk-1';
const registration = { deviceId: DEVICE, workflowId: 'check-in' };
const keyBody = { name: 'new', permissions: ['person:write'] };

interface Endpoint {
	readonly name: string;
	readonly request: PlainRequest;
	/** Status for a valid credential of each scheme. */
	readonly expected: Readonly<Record<Authorization['scheme'], number>>;
	/** Permission without which an API key gets 403. */
	readonly needs?: string;
}

const endpoints: readonly Endpoint[] = [
	{
		name: 'GET /api/deeplink/qrcode',
		request: { path: '/api/deeplink/qrcode?workflowId=check-in', headers: { accept: 'application/json' } },
		expected: { Basic: 200, Bearer: 200, Token: 403, Connection: 403, ApiKey: 200 },
		needs: 'ephemeral_device:write',
	},
	{
		name: 'POST /api/device/connection',
		request: { path: '/api/device/connection', body: registration },
		expected: { Basic: 201, Bearer: 201, Token: 201, Connection: 201, ApiKey: 201 },
		needs: 'ephemeral_device:write',
	},
	{
		name: 'POST /api/security/apikeys',
		request: { path: '/api/security/apikeys', body: keyBody },
		expected: { Basic: 201, Bearer: 201, Token: 201, Connection: 403, ApiKey: 201 },
		needs: 'person:write',
	},
	{
		name: 'POST /api/apikey',
		request: { path: '/api/apikey', body: keyBody },
		expected: { Basic: 201, Bearer: 201, Token: 201, Connection: 403, ApiKey: 201 },
		needs: 'person:write',
	},
	{
		name: 'POST /api/security/apikey',
		request: { path: '/api/security/apikey', body: keyBody },
		expected: { Basic: 201, Bearer: 201, Token: 201, Connection: 403, ApiKey: 201 },
		needs: 'person:write',
	},
	{
		name: 'POST /api/v1/deeplink',
		request: { path: '/api/v1/deeplink?workflowId=check-in', body: {} },
		expected: { Basic: 403, Bearer: 403, Token: 403, Connection: 403, ApiKey: 201 },
		needs: 'deeplink:write',
	},
	{
		name: 'GET /api/device (ours)',
		request: { path: '/api/device' },
		expected: { Basic: 200, Bearer: 200, Token: 403, Connection: 403, ApiKey: 200 },
		needs: 'ephemeral_device:write',
	},
	{
		name: 'POST /api/embedded/notify (ours)',
		request: { path: '/api/embedded/notify', body: { message: {} } },
		expected: { Basic: 200, Bearer: 200, Token: 403, Connection: 403, ApiKey: 403 },
	},
	{
		name: 'POST /api/embedded/workflow (ours)',
		request: { path: '/api/embedded/workflow', body: registration },
		expected: { Basic: 200, Bearer: 200, Token: 403, Connection: 403, ApiKey: 403 },
	},
];

const wrong: Record<Authorization['scheme'], Authorization> = {
	Basic: { scheme: 'Basic', username: 'operator', password: 'wrong' },
	Bearer: { scheme: 'Bearer', credential: 'wrong' },
	Token: { scheme: 'Token', credential: 'tr-wrong' },
	Connection: { scheme: 'Connection', credential: 'wrong.wrong.wrong' },
	ApiKey: { scheme: 'ApiKey', credential: 'wrong' },
};

describe('who may do what', () => {
	let service: EmbeddedService;
	let connection: string;
	beforeAll(async () => {
		service = await startService();
		connection = await registerDevice(service, DEVICE);
	});
	afterAll(() => service.close());

	function credential(scheme: Authorization['scheme']): Authorization {
		if (scheme === 'Token') return { scheme, credential: service.createPairingCode('check-in').token };
		if (scheme === 'Connection') return { scheme, credential: connection };
		return credentialsOf(service)[scheme];
	}

	for (const { name, request, expected, needs } of endpoints) {
		for (const scheme of AUTHORIZATION_SCHEMES) {
			test(`${name} answers ${expected[scheme]} to ${scheme}, in the header and in the query`, async () => {
				const byHeader = await send(service.url, { ...request, authorization: credential(scheme) });
				const mark = request.path.includes('?') ? '&' : '?';
				const query = queryOf(credential(scheme)).toString();
				const byQuery = await send(service.url, { ...request, path: `${request.path}${mark}${query}` });

				expect([byHeader.status, byQuery.status]).toEqual([expected[scheme], expected[scheme]]);
				if (expected[scheme] === 403) expect(byHeader.json).toMatchObject({ code: 'scheme-not-allowed' });
			});

			test(`${name} answers 401 with a challenge to a wrong ${scheme}`, async () => {
				const answer = await send(service.url, { ...request, authorization: wrong[scheme] });
				expect(answer.status).toBe(401);
				expect(answer.headers['www-authenticate']).toMatch(/^\w+ realm=/);
				expect(answer.headers['content-type']).toBe('application/problem+json');
				expect(answer.text).not.toContain('wrong.wrong');
			});
		}

		test(`${name} answers 401 without a credential and to an unreadable one`, async () => {
			const none = await send(service.url, request);
			const unreadable = await send(service.url, { ...request, authorization: 'Digest abc' });
			const badBase64 = await send(service.url, { ...request, authorization: 'Basic ???' });
			expect([none, unreadable, badBase64].map((answer) => [answer.status, answer.json.code])).toEqual([
				[401, 'credential-missing'],
				[401, 'credential-malformed'],
				[401, 'credential-malformed'],
			]);
		});

		if (needs !== undefined) {
			test(`${name} answers 403 to an API key without ${needs}`, async () => {
				const permissions = ['ephemeral_device:write', 'person:write', 'deeplink:write'].filter((p) => p !== needs);
				const key = await send(service.url, {
					path: '/api/apikey',
					authorization: credentialsOf(service).Basic,
					body: { name: 'lesser', permissions },
				});
				const answer = await send(service.url, { ...request, authorization: `ApiKey ${key.json.token}` });
				expect(answer.status).toBe(403);
				expect(answer.json).toMatchObject({ code: 'permission-missing', detail: expect.stringContaining(needs) });
			});
		}
	}

	test('the channel opens to a Connection in header and query and to nothing else', async () => {
		for (const by of ['header', 'query'] as const) {
			for (const scheme of AUTHORIZATION_SCHEMES.filter((other) => other !== 'Connection')) {
				await expect(openChannel(service, credential(scheme), { by })).rejects.toMatchObject({ status: 403 });
				await expect(openChannel(service, wrong[scheme], { by })).rejects.toMatchObject({ status: 401 });
			}
			await expect(openChannel(service, wrong.Connection, { by })).rejects.toMatchObject({ status: 401 });
			const channel = await openChannel(service, connection, { by });
			expect(channel.socket.readyState).toBe(channel.socket.OPEN);
		}
		const refused = await openChannel(service, null).catch((error) => error);
		expect(refused).toMatchObject({
			status: 401,
			headers: { 'www-authenticate': expect.stringMatching(/^Connection /) },
		});
		expect(JSON.parse(refused.text)).toMatchObject({ status: 401, code: 'credential-missing' });
	});

	test('a credential in the header wins over one in the query', async () => {
		const query = queryOf(credential('Basic')).toString();
		const answer = await send(service.url, { path: `/api/device?${query}`, authorization: wrong.Bearer });
		expect(answer.status).toBe(401);
	});

	test('a credential that is there twice in the query is none', async () => {
		const query = queryOf(credential('Basic'));
		const answer = await send(service.url, { path: `/api/device?${query}&${query}` });
		expect([answer.status, answer.json.code]).toEqual([401, 'credential-malformed']);
	});
});

describe('what a Connection may register', () => {
	test('its own device again, for any workflow, but no other device', async () => {
		const service = await givenService();
		const authorization: Authorization = { scheme: 'Connection', credential: await registerDevice(service, DEVICE) };
		const path = '/api/device/connection';
		const own = await send(service.url, { path, authorization, body: { deviceId: DEVICE, workflowId: 'check-out' } });
		expect(own.json).toMatchObject({ deviceId: DEVICE, workflowId: 'check-out', token: expect.any(String) });
		const other = await send(service.url, { path, authorization, body: { ...registration, deviceId: 'kiosk-2' } });
		expect([other.status, other.json.code]).toEqual([403, 'device-mismatch']);
	});

	test('nothing with acceptConnectionForRegistration off', async () => {
		const service = await givenService({ acceptConnectionForRegistration: false });
		const credential = await registerDevice(service, DEVICE);
		const authorization: Authorization = { scheme: 'Connection', credential };
		const answer = await send(service.url, { path: '/api/device/connection', authorization, body: registration });
		expect([answer.status, answer.json.code]).toEqual([403, 'scheme-not-allowed']);
	});
});

describe('self-registration', () => {
	test('needs no credential when it is switched on, and still refuses a wrong one', async () => {
		const service = await givenService({ selfRegistration: true });
		const request = { path: '/api/device/connection', body: registration };
		expect((await send(service.url, request)).status).toBe(201);
		expect((await send(service.url, { ...request, authorization: wrong.Token })).status).toBe(401);
	});
});

describe('API keys', () => {
	const body = { name: 'robot', permissions: ['deeplink:write', 'deeplink:write'], ttl: 60 };

	test('come with id, token, name, permissions and the time they end', async () => {
		const service = await givenService({ now: () => Date.UTC(2030, 0, 1) });
		const authorization = credentialsOf(service).Basic;
		const answer = await send(service.url, { path: '/api/apikey', authorization, body });
		expect(answer.json).toEqual({
			id: expect.stringMatching(/^key-/),
			token: expect.stringMatching(/^ak-\w{40}$/),
			name: 'robot',
			permissions: ['deeplink:write'],
			expiresAt: '2030-01-01T00:01:00.000Z',
		});
		const endless = await send(service.url, { path: '/api/apikey', authorization, body: { ...body, ttl: undefined } });
		expect(endless.json).not.toHaveProperty('expiresAt');
	});

	test('stop working when their time is over', async () => {
		let nowMs = Date.UTC(2030, 0, 1);
		const service = await givenService({ now: () => nowMs, apiKeys: [{ ...body, token: 'given-key' }] });
		const use = () =>
			send(service.url, { path: '/api/v1/deeplink?workflowId=a', body: {}, authorization: 'ApiKey given-key' });
		expect((await use()).status).toBe(201);
		nowMs += 60_000;
		expect((await use()).json).toMatchObject({ status: 401, code: 'api-key-expired' });
	});

	test('made with an API key hold no more and live no longer than it', async () => {
		const service = await givenService({
			now: () => Date.UTC(2030, 0, 1),
			apiKeys: [{ name: 'short', permissions: ['deeplink:write'], ttl: 30, token: 'short-key' }],
		});
		const create = (more: object) =>
			send(service.url, { path: '/api/apikey', authorization: 'ApiKey short-key', body: { ...body, ...more } });
		expect((await create({})).json).toMatchObject({ expiresAt: '2030-01-01T00:00:30.000Z' });
		expect((await create({ ttl: undefined })).json).toMatchObject({ expiresAt: '2030-01-01T00:00:30.000Z' });
		expect((await create({ ttl: 5 })).json).toMatchObject({ expiresAt: '2030-01-01T00:00:05.000Z' });
		expect((await create({ permissions: ['deeplink:write', 'person:write'] })).json).toMatchObject({
			status: 403,
			detail: 'The credential does not hold person:write.',
		});
	});

	test('can be made with a Short Token: once, with no more than its issuer held', async () => {
		const service = await givenService({
			apiKeys: [{ name: 'codes', permissions: ['ephemeral_device:write'], token: 'codes-key' }],
		});
		const code = await send(service.url, {
			path: '/api/deeplink/qrcode',
			authorization: 'ApiKey codes-key',
			headers: { accept: 'application/json' },
		});
		const create = (permissions: string[]) =>
			send(service.url, {
				path: '/api/security/apikeys',
				authorization: `Token ${code.json.token}`,
				body: { name: 'made', permissions },
			});
		expect((await create(['deeplink:write'])).json).toMatchObject({ status: 403, code: 'permission-missing' });
		const made = await create(['ephemeral_device:write']);
		expect(made.status).toBe(201);
		expect((await create(['ephemeral_device:write'])).json).toMatchObject({ status: 401, code: 'token-spent' });
		const device = { path: '/api/device', authorization: `ApiKey ${made.json.token}` };
		expect((await send(service.url, device)).status).toBe(200);
	});

	test('are not made with a Short Token where that is switched off, and the token stays good', async () => {
		const service = await givenService({ shortTokenKeys: false });
		const authorization = `Token ${service.createPairingCode(null).token}`;
		const refused = await send(service.url, { path: '/api/apikey', authorization, body });
		expect([refused.status, refused.json.code]).toEqual([403, 'scheme-not-allowed']);
		const registered = await send(service.url, { path: '/api/device/connection', authorization, body: registration });
		expect(registered.status).toBe(201);
	});

	test('are refused with "expires" in the body, which would make a key without an end', async () => {
		const service = await givenService();
		const authorization = `Token ${service.createPairingCode(null).token}`;
		const create = (more: object) =>
			send(service.url, { path: '/api/apikey', authorization, body: { ...body, ...more } });
		const refused = await create({ expires: 60 });
		expect(refused.json).toMatchObject({
			status: 422,
			code: 'body-invalid',
			errors: [{ path: '/expires', message: 'is the name on the command line; in the body it is ttl, in seconds' }],
		});
		expect((await create({})).status).toBe(201);
	});
});
