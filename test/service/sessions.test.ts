/** The example of what kiosk software asks its service for: a session, through the agent. */
import { expect, test } from 'vitest';
import { OWN_ENDPOINTS } from '../../src/service/routes.runner.ts';
import { givenPairedAgent } from '../harness/harness.ts';
import { ask } from '../local-api/local-asking.ts';
import { createClock, givenService, openChannel, send } from './fixture.ts';

const start = (service: Awaited<ReturnType<typeof givenService>>) =>
	send(service.url, {
		method: 'POST',
		path: '/api/v1/deeplink?workflowId=check-in',
		authorization: { scheme: 'ApiKey', credential: service.credentials.apiKey },
		body: { metadata: { visitor: 'Ada' }, ttl: 600 },
	});

test('a session that was started is shown to the device through its agent, and to nobody without a credential', async () => {
	const service = await givenService();
	const device = await givenPairedAgent(service);
	await start(service);
	const { content } = await device.untilEvent(({ kind }) => kind === 'session.started');
	const { sessionId } = JSON.parse(content);
	const { status, json } = await ask(device, `/v1/service/api/sessions/${sessionId}`);
	expect([status, json]).toEqual([
		200,
		expect.objectContaining({ sessionId, workflowIds: ['check-in'], metadata: { visitor: 'Ada' } }),
	]);
	expect((await ask(device, '/v1/service/api/sessions/other')).status).toBe(404);
	expect((await send(service.url, { path: `${OWN_ENDPOINTS.sessions}${sessionId}` })).status).toBe(401);
});

test('a session is forgotten when it has ended', async () => {
	const clock = createClock();
	const service = await givenService({ now: clock.now, selfRegistration: true });
	const authorization = { scheme: 'Bearer', credential: service.credentials.bearer } as const;
	const registered = await send(service.url, {
		path: '/api/device/connection',
		body: { deviceId: 'K-1', workflowId: 'check-in' },
	});
	const channel = await openChannel(service, registered.json.token);
	await start(service);
	const { sessionId } = await channel.nextMessage();
	const path = `${OWN_ENDPOINTS.sessions}${sessionId}`;
	expect((await send(service.url, { path, authorization })).status).toBe(200);
	clock.advance(601_000);
	expect((await send(service.url, { path, authorization })).status).toBe(404);
});
