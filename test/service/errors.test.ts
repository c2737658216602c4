import { connect } from 'node:net';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { DEEP_LINK_PATH, DEFAULT_CHANNEL_PATH, ENDPOINTS } from '../../src/protocol/endpoints.ts';
import { readErrorDetail } from '../../src/protocol/problem.ts';
import { PROBLEMS } from '../../src/service/problems.ts';
import { OWN_ENDPOINTS } from '../../src/service/routes.runner.ts';
import { credentialsOf, givenService, type PlainAnswer, type PlainRequest, send } from './fixture.ts';

const PATH = '/api/device/connection';
const body = { deviceId: 'kiosk-1', workflowId: 'check-in' };

describe('a refused request', () => {
	async function refuse(plain: Omit<PlainRequest, 'path'> & { path?: string }): Promise<PlainAnswer> {
		const service = await givenService({ workflows: ['check-in'] });
		return send(service.url, { path: PATH, authorization: credentialsOf(service).Basic, ...plain });
	}

	test('is answered with a problem document that says what is wrong and what to do', async () => {
		const answer = await refuse({ body: { ...body, workflowId: 'nowhere' } });
		expect(answer.headers['content-type']).toBe('application/problem+json');
		expect(answer.json).toEqual({
			status: 404,
			title: 'Unknown workflow',
			detail: 'There is no workflow nowhere.',
			code: 'workflow-unknown',
			remedy: expect.any(String),
		});
		expect(readErrorDetail(answer.text)).toBe('There is no workflow nowhere.');
	});

	test.each<[number, string, Omit<PlainRequest, 'path'> & { path?: string }]>([
		[400, 'body-malformed', { body: '{"deviceId":' }],
		[400, 'body-malformed', { body: new Uint8Array([0x22, 0xff, 0x22]) }],
		[400, 'body-malformed', { body: '', headers: { 'content-type': 'application/json' } }],
		[404, 'not-found', { path: '/' }],
		[404, 'not-found', { path: '/api/device/connection/' }],
		[404, 'not-found', { path: '//api/device/connection' }],
		[404, 'not-found', { path: '/%zz' }],
		[413, 'body-too-large', { body: { ...body, filler: 'x'.repeat(65_536) } }],
		[413, 'body-too-large', { body: 'x'.repeat(1_000_000) }],
		[415, 'content-type-unsupported', { body: JSON.stringify(body), headers: { 'content-type': 'text/plain' } }],
		[415, 'content-type-unsupported', { method: 'POST' }],
		[422, 'body-invalid', { body: 'null' }],
		[422, 'body-invalid', { body: [] }],
		[426, 'upgrade-required', { path: '/ws/device' }],
	])('gets %i %s', async (status, code, plain) => {
		const answer = await refuse(plain);
		expect([answer.status, answer.json.code, answer.headers['content-type']]).toEqual([
			status,
			code,
			'application/problem+json',
		]);
	});

	test('with bad fields names each of them', async () => {
		const answer = await refuse({ body: { deviceId: '', heartbeatCadence: 1.5, macAddress: 'x' } });
		expect([answer.status, answer.json.code]).toEqual([422, 'body-invalid']);
		const paths = answer.json.errors.map((error: { path: string }) => error.path);
		expect(paths.toSorted()).toEqual(['/deviceId', '/heartbeatCadence', '/macAddress', '/workflowId']);
		for (const { message } of answer.json.errors) expect(message).not.toBe('');
		expect(answer.json.detail).toContain('/deviceId: must not be empty');
	});

	test('points into lists', async () => {
		const answer = await refuse({ path: '/api/apikey', body: { name: 'k', permissions: ['a:b', 'nonsense'] } });
		expect(answer.json.errors).toMatchObject([
			{ path: '/permissions/1', message: expect.stringContaining('<resource>:<action>') },
		]);
	});

	test.each([
		['DELETE', PATH, 'POST'],
		['GET', PATH, 'POST'],
		['POST', '/api/deeplink/qrcode', 'GET'],
		['PUT', '/mobile', 'GET'],
		['POST', '/ws/device', 'GET'],
	])('gets 405 with Allow for %s %s', async (method, path, allow) => {
		const answer = await refuse({ method, path });
		expect([answer.status, answer.headers['allow'], answer.json.code]).toEqual([405, allow, 'method-not-allowed']);
	});

	test('accepts a body of exactly the limit and other spellings of the content type', async () => {
		const service = await givenService();
		const text = JSON.stringify(body);
		for (const contentType of ['application/json; charset=utf-8', 'Application/JSON']) {
			const answer = await send(service.url, {
				path: PATH,
				authorization: credentialsOf(service).Basic,
				body: text.padEnd(64 * 1024),
				headers: { 'content-type': contentType },
			});
			expect(answer.status).toBe(201);
		}
	});

	test('that is no HTTP is told so', async () => {
		const service = await givenService();
		const socket = connect(service.port, '127.0.0.1');
		socket.write('NONSENSE\r\n\r\n');
		const chunks: Buffer[] = [];
		for await (const chunk of socket) chunks.push(chunk);
		const [head = '', text = ''] = Buffer.concat(chunks).toString().split('\r\n\r\n');
		expect(head).toMatch(/^HTTP\/1.1 400 Bad Request\r\n/);
		expect(JSON.parse(text)).toMatchObject({ status: 400, code: 'request-malformed' });
	});

	test.each([
		['a path that cannot be upgraded', { path: PATH }, 405],
		['an unknown path', { path: '/nowhere' }, 404],
		['the page of a link', { path: '/mobile' }, 400],
	])('gets a problem document for an upgrade of %s', async (_what, { path }, status) => {
		const service = await givenService();
		const answer = await send(service.url, { path, headers: { connection: 'Upgrade', upgrade: 'websocket' } });
		expect([answer.status, answer.json.status]).toEqual([status, status]);
	});

	test('gets a problem document for a handshake that is none', async () => {
		const service = await givenService();
		const registered = await send(service.url, { path: PATH, authorization: credentialsOf(service).Basic, body });
		const upgrade = { connection: 'Upgrade', upgrade: 'websocket', 'sec-websocket-version': '13' };
		const answer = await send(service.url, {
			path: '/ws/device',
			authorization: `Connection ${registered.json.token}`,
			headers: { ...upgrade, 'sec-websocket-key': 'short' },
		});
		expect([answer.status, answer.json.code]).toEqual([400, 'upgrade-malformed']);
		expect(service.devices()).toMatchObject([{ online: false }]);
	});
});

describe('the catalogue of refusals', () => {
	test('has permanent names, error statuses, and remedies of their own', () => {
		for (const [code, { status, title, remedy }] of Object.entries(PROBLEMS)) {
			expect(code).toMatch(/^[a-z]+(-[a-z]+)*$/);
			expect(status).toBeGreaterThanOrEqual(400);
			expect(remedy).toMatch(/\.$/);
			expect(remedy).not.toContain(title);
		}
	});
});

describe('any request', () => {
	test('is answered, and a refusal is a problem document', async () => {
		const service = await givenService();
		const known = [
			...Object.values(ENDPOINTS).flat(),
			...Object.values(OWN_ENDPOINTS),
			DEEP_LINK_PATH,
			DEFAULT_CHANNEL_PATH,
		];
		const printable = fc.string({ maxLength: 40 }).map((text) => text.replaceAll(/[^!-~]/g, ''));
		const { Basic, ApiKey } = credentialsOf(service);
		const requests = fc.record({
			method: fc.constantFrom('GET', 'POST', 'PUT', 'DELETE', 'PATCH', 'OPTIONS', 'HEAD', 'TRACE'),
			path: fc.oneof(
				fc.constantFrom(...known),
				printable.map((text) => `/${text}`),
			),
			query: fc.oneof(
				fc.constant(''),
				printable.map((text) => `?${text}`),
				printable.map((text) => `?workflowId=${text}`),
			),
			authorization: fc.oneof(fc.constantFrom(undefined, Basic, ApiKey), printable),
			contentType: fc.oneof(fc.constant('application/json'), printable),
			body: fc.oneof(fc.constant(undefined), fc.json(), fc.string(), fc.uint8Array(), fc.constant(body)),
		});
		await fc.assert(
			fc.asyncProperty(requests, async ({ path, query, contentType, ...plain }) => {
				const headers = plain.body === undefined ? {} : { 'content-type': contentType };
				const answer = await send(service.url, { ...plain, path: `${path}${query}`, headers });
				expect(answer.status).not.toBe(500);
				if (answer.status < 400 || plain.method === 'HEAD') return;
				expect(answer.headers['content-type']).toBe('application/problem+json');
				expect(answer.json).toMatchObject({
					status: answer.status,
					title: expect.any(String),
					code: expect.any(String),
				});
			}),
			{ numRuns: 300 },
		);
	});
});
