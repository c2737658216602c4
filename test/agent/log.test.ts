import { describe, expect, test } from 'vitest';
import { DEVICE_ID, givenAgent, givenHome, givenPairedAgent, type RunningAgent } from '../harness/harness.ts';
import { givenService } from '../service/fixture.ts';

/** What an operator sees at the usual level. */
const linesOf = ({ log }: RunningAgent, from = 0) => log.slice(from).filter(({ level }) => level !== 'debug');

/** What would be found by somebody who looks for a secret in a log. */
const formsOf = (secret: string) => [
	secret,
	encodeURIComponent(secret),
	Buffer.from(secret).toString('base64').replace(/=+$/, ''),
];

describe('an outage is two lines in the log, and one for each further cause, however long it is', () => {
	test('one when it begins, one when its cause is found and one when it ends', async () => {
		const service = await givenService();
		const device = await givenPairedAgent(service);
		const from = device.log.length;
		const back = Promise.withResolvers<void>();
		const gone = device.untilState('offline');
		const restarted = service.restart({ until: back.promise, hard: true });
		await gone;
		for (let attempt = 2; attempt <= 10; attempt += 2) {
			await device.untilLogged((line) => line.msg === 'wait' && line['attempt'] === attempt);
			device.clock.advance(30_000);
		}
		back.resolve();
		await restarted;
		await device.passWait();
		await device.untilState('online');
		const host = new URL(service.url).host;
		expect(linesOf(device, from)).toMatchObject([
			{
				level: 'warn',
				msg: expect.stringMatching(/^offline: The connection to .* was lost\.$/),
				code: 'connection-lost',
				host,
			},
			{
				level: 'warn',
				msg: expect.stringMatching(/^still offline: .*refuses connections/),
				code: 'service-unreachable',
			},
			{ level: 'info', msg: 'online again after 3 min', workflowId: 'check-in', host },
		]);
	});

	test('and one more when its cause becomes one that only a person can mend', async () => {
		const service = await givenService();
		const device = await givenPairedAgent(service);
		const from = device.log.length;
		// Until it has lasted for a quarter of an hour, it is an outage like any other.
		service.failNext('/ws/device', { status: 403 }, 3);
		const gone = device.untilState('offline');
		service.dropSockets();
		await gone;
		await device.passWait();
		await device.untilStatus(
			({ problem, channel }) => problem?.code === 'access-forbidden' && channel.nextAttemptAt !== null,
		);
		device.clock.advance(15 * 60_000);
		const first = await device.untilState('blocked');
		await device.passWait();
		await device.untilStatus(
			({ state, channel }) => state === 'blocked' && channel.nextAttemptAt !== first.channel.nextAttemptAt,
		);
		await device.passWait();
		await device.untilState('online');
		expect(linesOf(device, from)).toMatchObject([
			{ level: 'warn', msg: expect.stringMatching(/^offline: The connection to /), code: 'connection-lost' },
			{ level: 'warn', msg: expect.stringMatching(/^still offline: .*403/), code: 'access-forbidden' },
			{
				level: 'warn',
				msg: expect.stringMatching(/^still offline, and a person is needed: .*403.* Ask the operator /),
				code: 'access-forbidden',
			},
			{ level: 'info', msg: expect.stringMatching(/^online again after /) },
		]);
	});

	test('also when it is there at the start', async () => {
		const service = await givenService();
		const first = await givenPairedAgent(service);
		await first.stop();
		const back = Promise.withResolvers<void>();
		const restarted = service.restart({ until: back.promise, hard: true });
		const device = await givenAgent({ home: first.home });
		for (const attempt of [2, 4]) {
			await device.untilLogged((line) => line.msg === 'wait' && line['attempt'] === attempt);
			device.clock.advance(30_000);
		}
		back.resolve();
		await restarted;
		await device.passWait();
		await device.untilState('online');
		expect(linesOf(device)).toMatchObject([
			{
				level: 'warn',
				msg: expect.stringMatching(/^not online yet: .*refuses connections/),
				code: 'service-unreachable',
			},
			{ level: 'info', msg: 'online' },
		]);
	});

	test('also when the service revokes the Connection', async () => {
		const service = await givenService();
		const home = await givenHome();
		const apiKeyFile = await home.secretFile('key', service.credentials.apiKey);
		const settings = { baseUrl: service.url, workflowId: 'check-in', credential: { apiKeyFile } };
		const device = await givenAgent({ home, settings });
		await device.untilState('online');
		const from = device.log.length;
		const gone = device.untilState('offline');
		service.revoke(DEVICE_ID, { announce: true });
		await gone;
		await device.passWait();
		await device.untilState('online');
		expect(linesOf(device, from)).toMatchObject([
			{ msg: expect.stringMatching(/^offline: The service says that it has revoked/), code: 'connection-revoked' },
			{ msg: 'online again after 3 s' },
		]);
	});
});

test('a change of the workflow is two lines as well', async () => {
	const service = await givenService();
	const device = await givenPairedAgent(service);
	const from = device.log.length;
	await device.agent.setWorkflow('boarding');
	await device.untilLive('boarding');
	expect(linesOf(device, from)).toMatchObject([
		{ level: 'info', msg: 'workflow set', workflowId: 'boarding' },
		{ level: 'info', msg: 'moved over without being offline', workflowId: 'boarding' },
	]);
});

describe('no secret is ever in the log, not even at level debug', () => {
	test('whatever happens and whatever the service sends', async () => {
		const service = await givenService({ connectionTtlSeconds: 1000 });
		const { apiKey } = service.credentials;
		const home = await givenHome();
		const apiKeyFile = await home.secretFile('key', apiKey);
		const device = await givenAgent({ home });
		const code = service.createPairingCode('check-in');
		service.failNext({ method: 'POST' }, { status: 400, body: { detail: `You sent Token ${code.token}` } });
		await expect(device.pair(code.url)).rejects.toMatchObject({ code: 'request-rejected' });
		await device.pair(code.url);
		await device.untilState('online');
		const token = await home.savedToken();

		await home.writeSettings({ baseUrl: service.url, credential: { apiKeyFile } });
		service.failNext('/api/device/connection', {
			status: 503,
			headers: { 'retry-after': '1' },
			body: `key ${apiKey} of ${code.url} is busy`,
		});
		await device.daemon.reload();
		await device.untilStatus(({ problem }) => problem?.code === 'service-overloaded');
		device.clock.advance(120_000);
		await device.untilLogged(({ msg }) => msg.startsWith('moved over'));

		for (const secret of [apiKey, token, code.token, code.url]) service.notify({ type: secret });
		for (const secret of [apiKey, code.token, code.url])
			service.notify({ type: 'workflow.changed', workflowId: secret });
		service.notify({ type: 'after' });
		await device.untilEvent(({ kind }) => kind === 'after');
		// A move that is still under way would be the next to be online, whatever is refused then.
		await device.untilStatus(({ workflow }) => workflow.live === code.url);
		service.closeChannels(4401, `no: ${apiKey}`);
		await device.untilState('offline');
		service.failNext('/ws/device', { status: 403, body: `Connection ${token}` });
		device.agent.reconnect();
		await device.untilStatus(({ problem }) => problem?.code === 'access-forbidden');
		await device.stop();

		const text = device.logText();
		expect(device.log.length).toBeGreaterThan(10);
		const { connections } = await home.untilSaved();
		const secrets: string[] = [
			apiKey,
			code.token,
			token,
			...connections.map((saved: { token: string }) => saved.token),
		];
		for (const form of secrets.flatMap(formsOf)) expect(text).not.toContain(form);
		expect(text).not.toContain('eyJ');
		expect(text).not.toMatch(/authorization=Token%20(?!\[)/);
	});

	test('the key of a device that has run for months is not in its log', async () => {
		const service = await givenService({ connectionTtlSeconds: 1000 });
		const home = await givenHome();
		const apiKeyFile = await home.secretFile('key', service.credentials.apiKey);
		const settings = {
			baseUrl: service.url,
			workflowId: 'check-in',
			heartbeatCadence: 600,
			credential: { apiKeyFile },
		};
		const device = await givenAgent({ home, settings });
		await device.untilState('online');
		for (let renewal = 0; renewal < 70; renewal += 1) {
			const closed = service.waitFor('channel-closed');
			device.clock.advance(825_000);
			await closed;
		}
		service.notify({ type: service.credentials.apiKey });
		await device.untilEvent(({ kind }) => kind === service.credentials.apiKey);
		expect(device.log.at(-1)).toMatchObject({
			msg: 'notification',
			kind: expect.stringMatching(/^\[\w+-\d+-[0-9a-f]{6}\]$/),
		});
		expect(device.logText()).not.toContain(service.credentials.apiKey);
	});
});
