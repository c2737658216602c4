/** Lines that are slow or broken while they seem whole, and services that come and go: a real agent process. */
import { test as plain } from 'vitest';
import { type ServiceOptions, startService } from '../../src/service/embedded-service.runner.ts';
import { type AtTheEnd, givenDevice } from './device-process.ts';
import { givenLine } from './line.ts';

const test = plain.concurrent;
/** What takes longer than CI has. */
const long = process.env['FAULTS'] === 'short' ? test.skip : test;

/** A device with an API key behind a line that can be broken; not started. */
async function givenSite(atTheEnd: AtTheEnd, options: ServiceOptions = {}) {
	const service = await startService({ workflows: ['check-in'], ...options });
	atTheEnd(() => service.close());
	const line = await givenLine(service.port, atTheEnd);
	const device = await givenDevice({ atTheEnd });
	await device.writeSettings({
		baseUrl: `http://127.0.0.1:${line.port}`,
		workflowId: 'check-in',
		heartbeatCadence: 5,
		deviceId: 'KIOSK-7',
		credential: { apiKeyFile: await device.secretFile('key', service.credentials.apiKey) },
	});
	return { service, line, device };
}

test('a slow line, on which each step of a handshake takes seconds, carries a device [F041]', async ({
	expect,
	onTestFinished,
}) => {
	const { service, line, device } = await givenSite(onTestFinished);
	line.delay(1500);
	await device.start();
	await device.untilState('online');
	service.notify({ type: 'slow' });
	await device.untilEvent(({ kind }) => kind === 'slow');
	expect((await device.untilState('online')).channel.reconnects).toBe(0);
});

test('a line on which every byte comes alone carries a device [F043]', async ({ expect, onTestFinished }) => {
	const { service, line, device } = await givenSite(onTestFinished);
	line.drip(5);
	await device.start();
	await device.untilState('online');
	service.notify({ type: 'dripping' });
	await device.untilEvent(({ kind }) => kind === 'dripping');
	expect((await device.untilState('online')).channel.reconnects).toBe(0);
});

long(
	'a rolling restart, one instance after the other, loses nothing that was delivered and registers nothing anew [F026]',
	async ({ expect, onTestFinished }) => {
		const { service, device } = await givenSite(onTestFinished);
		await device.start();
		for (let instance = 0; instance <= 3; instance += 1) {
			if (instance > 0) await service.restart();
			await device.untilStatus(
				({ state, channel }) => state === 'online' && channel.reconnects === instance,
				`return number ${instance}`,
			);
			service.notify({ type: `from-${instance}` });
			await device.untilEvent(({ kind }) => kind === `from-${instance}`);
		}
		const kinds = (await device.events()).filter(({ type }) => type === 'notification').map(({ kind }) => kind);
		expect(kinds).toEqual(['from-0', 'from-1', 'from-2', 'from-3']);
		expect(service.requests.filter(({ path }) => path === '/api/device/connection')).toHaveLength(1);
	},
);

long(
	'a service that accepts and closes at once, again and again, is waited for longer each time and never blamed on the credential [F023]',
	async ({ expect, onTestFinished }) => {
		const { service, device } = await givenSite(onTestFinished);
		service.replyThenDrop('/ws/device', 4);
		await device.start();
		const { problem } = await device.untilProblem('connection-lost');
		expect(problem).toMatchObject({ remedy: 'If it happens often, check the line.', recovers: true });
		await device.untilState('online');
		expect(service.requests.filter(({ path }) => path === '/ws/device').length).toBeGreaterThanOrEqual(5);
		expect(service.requests.filter(({ path }) => path === '/api/device/connection')).toHaveLength(1);
	},
);

const ABSURD = [
	'-7',
	'0',
	'99999999999999999999',
	'soon',
	'Thu, 01 Jan 1970 00:00:00 GMT',
	'Fri, 31 Dec 9999 23:59:59 GMT',
];
test.for(process.env['FAULTS'] === 'short' ? ABSURD.slice(0, 3) : ABSURD)(
	'an absurd Retry-After (%s) neither hurries a device nor strands it: ten minutes at most are honoured [F022]',
	async (retryAfter, { expect, onTestFinished }) => {
		const { service, device } = await givenSite(onTestFinished);
		service.failNext('/ws/device', { status: 503, headers: { 'retry-after': retryAfter } });
		await device.start();
		const { channel } = await device.untilStatus(
			({ problem, channel: now }) => problem?.code === 'service-overloaded' && now.nextAttemptAt !== null,
			'wait',
		);
		const waitMs = Date.parse(channel.nextAttemptAt ?? '') - Date.parse(channel.since ?? '');
		expect(waitMs).toBeGreaterThanOrEqual(10_000);
		expect(waitMs).toBeLessThanOrEqual(20 * 60_000);
		await device.reconnect();
		await device.untilState('online');
	},
);

test('a consumer that is stuck holds up neither the channel nor the others, and gets everything when it goes on [F032]', async ({
	expect,
	onTestFinished,
}) => {
	const { service, device } = await givenSite(onTestFinished);
	await device.start();
	await device.untilState('online');
	const goOn = Promise.withResolvers<void>();
	onTestFinished(() => goOn.resolve());
	const seen: string[] = [];
	const stop = new AbortController();
	const read = async () => {
		let since: string | undefined;
		// Who is too slow is told so, and resumes where it stopped.
		while (seen.length < 200)
			await device.client.events('/v1/events', { signal: stop.signal, since }, async ({ id, event, data }) => {
				since = id ?? since;
				if (event !== 'notification') return;
				await goOn.promise;
				seen.push(JSON.parse(data).data.id);
				if (seen.length === 200) stop.abort();
			});
	};
	const stuck = read();
	const ids = Array.from({ length: 200 }, (_, number) => `n-${number}`);
	for (const id of ids) service.notify({ type: 'flood', id, filling: 'x'.repeat(10_000) });
	await device.untilEvent(({ data }) => (data as { id?: string }).id === 'n-199');
	goOn.resolve();
	await stuck;
	expect(seen).toEqual(ids);
	expect((await device.untilState('online')).channel.reconnects).toBe(0);
});
