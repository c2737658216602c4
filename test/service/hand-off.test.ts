import { describe, expect, test } from 'vitest';
import { handOffRecordSchema } from '../../src/protocol/hand-off.ts';
import { createClock, credentialsOf, givenService, openChannel, registerDevice, send } from './fixture.ts';

describe('POST /api/v1/deeplink', () => {
	test('answers with the published record and a link that names the session', async () => {
		const service = await givenService({ now: createClock().now });
		const answer = await send(service.url, {
			path: '/api/v1/deeplink?workflowId=check-in',
			authorization: credentialsOf(service).ApiKey,
			body: { metadata: { order: 7 }, locale: 'de-AT', ttl: 60 },
		});
		expect(answer.status).toBe(201);
		expect(handOffRecordSchema.parse(answer.json)).toEqual(answer.json);
		expect(answer.json).toEqual({
			url: expect.stringMatching(/\/mobile\?authorization=Token%20tr-\w{28}&sessionId=[0-9a-f]{24}$/),
			createdAt: '2030-01-01T00:00:00.000Z',
			expiresAt: '2030-01-01T00:01:00.000Z',
			workflowIds: ['check-in'],
		});
	});

	test.each([
		['no body', undefined],
		['an empty object', {}],
	])('takes %s: an hour, no metadata', async (_what, body) => {
		const service = await givenService({ now: createClock().now });
		const answer = await send(service.url, {
			method: 'POST',
			path: '/api/v1/deeplink?workflowId=a',
			authorization: credentialsOf(service).ApiKey,
			body,
		});
		expect([answer.status, answer.json.expiresAt]).toEqual([201, '2030-01-01T01:00:00.000Z']);
	});

	test.each([
		['?workflowId=a&workflowId=b', ['a', 'b']],
		['?workflowId=a,b', ['a', 'b']],
		['?workflowId=a,%20b&workflowId=c&workflowId=a', ['a', 'b', 'c']],
	])('takes several workflows as %s', async (query, workflowIds) => {
		const service = await givenService();
		const answer = await send(service.url, {
			path: `/api/v1/deeplink${query}`,
			authorization: credentialsOf(service).ApiKey,
			body: {},
		});
		expect(answer.json.workflowIds).toEqual(workflowIds);
	});

	test('refuses a missing, an unknown and too many workflows', async () => {
		const service = await givenService({ workflows: ['a'] });
		const ask = async (query: string) => {
			const authorization = credentialsOf(service).ApiKey;
			const answer = await send(service.url, { path: `/api/v1/deeplink${query}`, authorization, body: {} });
			return [answer.status, answer.json.code];
		};
		expect(await ask('')).toEqual([400, 'query-invalid']);
		expect(await ask('?workflowId=')).toEqual([400, 'query-invalid']);
		expect(await ask('?workflowId=a,b')).toEqual([404, 'workflow-unknown']);
		const many = Array.from({ length: 33 }, (_, n) => `w${n}`).join(',');
		expect(await ask(`?workflowId=${many}`)).toEqual([400, 'query-invalid']);
	});

	test('tells every device online with one of the workflows, and no other', async () => {
		const service = await givenService();
		const [a, b, c] = await Promise.all(
			['a', 'b', 'c'].map(async (id) => openChannel(service, await registerDevice(service, `kiosk-${id}`, id))),
		);
		if (!a || !b || !c) throw new Error('three channels');
		const notified = service.waitFor('notified');
		const answer = await send(service.url, {
			path: '/api/v1/deeplink?workflowId=a,b',
			authorization: credentialsOf(service).ApiKey,
			body: { metadata: { order: 7 }, locale: 'de' },
		});
		const sessionId = new URL(answer.json.url).searchParams.get('sessionId');
		const [forA, forB] = [await a.nextMessage(), await b.nextMessage()];
		expect(forA).toEqual({
			type: 'session.started',
			id: expect.any(String),
			sessionId,
			workflowId: 'a',
			workflowIds: ['a', 'b'],
			metadata: { order: 7 },
			locale: 'de',
			expiresAt: answer.json.expiresAt,
		});
		expect(forB).toEqual({ ...forA, workflowId: 'b' });
		expect(await notified).toMatchObject({ kind: 'session.started', reached: 2 });
		service.notify({ type: 'last' });
		expect(await c.nextMessage()).toEqual({ type: 'last' });
	});

	test('its token registers a device once, for any of its workflows, until the session ends', async () => {
		const clock = createClock();
		const service = await givenService({ now: clock.now });
		const handOff = async () => {
			const authorization = credentialsOf(service).ApiKey;
			const answer = await send(service.url, {
				path: '/api/v1/deeplink?workflowId=a,b',
				authorization,
				body: { ttl: 600 },
			});
			return new URL(answer.json.url).searchParams.get('authorization') ?? '';
		};
		const register = async (authorization: string, workflowId: string) => {
			const body = { deviceId: 'phone', workflowId };
			return (
				(await send(service.url, { path: '/api/device/connection', authorization, body })).json.code ?? 'registered'
			);
		};
		const [first, second] = [await handOff(), await handOff()];
		expect(await register(first, 'c')).toBe('workflow-mismatch');
		expect(await register(first, 'b')).toBe('registered');
		expect(await register(first, 'a')).toBe('token-spent');
		clock.advance(600_000);
		expect(await register(second, 'a')).toBe('token-expired');
	});
});
