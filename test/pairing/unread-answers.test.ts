import { mkdir, readdir, readFile, rmdir, stat, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { connect } from 'node:net';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { AgentError, type Failure } from '../../src/base/errors.ts';
import { atStart, type KeptAnswer, keepableTexts, MAX_KEPT_BYTES } from '../../src/pairing/kept-answer.ts';
import { ENDPOINTS } from '../../src/protocol/endpoints.ts';
import type { DialectOptions } from '../../src/service/dialect.ts';
import { listen } from '../connection/network-peers.ts';
import { examine, expectProblem } from '../diagnosis/examine.ts';
import { recordDisk } from '../fixtures/recorded-disk.ts';
import { DEVICE_ID, givenAgent, givenHome, type RunningAgent, registrations } from '../harness/harness.ts';
import { createSteppedClock } from '../harness/stepped-clock.ts';
import { givenService } from '../service/fixture.ts';

const REGISTER = { method: 'POST', path: ENDPOINTS.deviceConnection };
const FILE = 'unread-answer.json';
const HOUR_MS = 3_600_000;
const HIDDEN: DialectOptions = { tokenPointer: '/data/access/key' };

async function refusalOf(pairing: Promise<unknown>): Promise<Failure> {
	const error = await pairing.then(
		() => null,
		(reason: unknown) => reason,
	);
	if (error instanceof AgentError) return error.failure;
	throw new Error('The pairing was not refused as it should be.', { cause: error });
}

/** A device whose one code was answered in a way that it cannot read. */
async function givenUnread(dialect: DialectOptions = HIDDEN, before?: (device: RunningAgent) => Promise<unknown>) {
	const service = await givenService({ dialect });
	const clock = createSteppedClock();
	const device = await givenAgent({ clock });
	await before?.(device);
	const refusal = await refusalOf(device.pair(service.createPairingCode('check-in').url));
	return { service, device, refusal, clock };
}

const kept = ({ home }: RunningAgent) => readFile(join(home.paths.stateDir, FILE), 'utf8').catch(() => null);

async function correct(device: RunningAgent, tokenPointer: string | null) {
	await device.home.writeSettings({ service: { tokenPointer } });
	await device.daemon.reload();
}

async function toldByWords(body: string, code: string, words: string) {
	const server = createServer((request, response) => {
		request.resume();
		response.setHeader('x-request-id', '0f8fad5b-d9cb-469f-a165-70867728950e');
		response.end(body);
	});
	const device = await givenAgent();
	const link = `http://127.0.0.1:${await listen(server)}/mobile?authorization=Token%20tr-0123456789abcdef0123456789ab&workflowId=check-in`;
	const refusal = await refusalOf(device.pair(link));
	expect(refusal).toMatchObject({ code, message: expect.stringContaining(words) });
	const isUnread = code === 'answer-unreadable';
	expect(refusal.remedy.includes('tokenPointer')).toBe(isUnread);
	expect((await kept(device)) !== null).toBe(isUnread);
	server.close();
}

describe('an answer that could not be read', () => {
	test.each<[string, DialectOptions, string]>([
		['deep in JSON', HIDDEN, '/data/access/key'],
		['in a list, behind a prefix', { tokenPointer: '/list/2/t', tokenPrefix: 'Bearer ' }, '/list/2/t'],
		['in a header', { tokenIn: 'header', tokenHeader: 'X-Device-Key' }, 'header:x-device-key'],
		['in a cookie', { tokenIn: 'header', tokenHeader: 'Set-Cookie', tokenPrefix: 'conn=' }, 'cookie:conn'],
		['packed', { ...HIDDEN, gzipAnswers: true, connectionForm: 'opaque' }, '/data/access/key'],
	])('pairs once the setting is corrected, with the same code: %s', async (_what, dialect, place) => {
		const { service, device, refusal } = await givenUnread(dialect);
		expect(refusal).toMatchObject({
			code: 'answer-unreadable',
			message: expect.stringMatching(/token is at: .*The answer is kept for 24 hours: no other code is needed\.$/),
			remedy: `Set service.tokenPointer to the place of the Connection token, such as "service": {"tokenPointer": "${place}"}. The device then pairs with the answer that is kept.`,
			params: { status: 201, places: expect.stringContaining(place) },
		});
		expect(refusal.recovers).toBeUndefined();
		await correct(device, place);
		// The warning goes with the kept answer, which is removed once the device is online.
		const status = await device.untilStatus(
			({ workflow, warnings }) => workflow.live !== null && warnings.length === 0,
		);
		expect(status).toMatchObject({ state: 'online', problem: null, workflow: { live: 'check-in' } });
		expect(registrations(service)).toEqual([201]);
		await expect.poll(() => kept(device)).toBeNull();
		expect(await device.home.untilSaved(({ attempt }) => attempt === null)).toMatchObject({
			attempt: null,
			pairing: { baseUrl: service.url },
		});
	});

	test.each([
		['text/plain', 'tr-01', 'tr-01'],
		['text/plain', '482913', '482913'],
		['application/json', '"abc|def"', 'abc|def'],
		['application/json', '123456789012345678', '123456789012345678'],
		['application/json', '{"note":"registered for you","key":"tr-01"}', 'tr-01'],
	])('is read by the very line that its refusal prints: %s %s [F1516]', async (type, body, token) => {
		const server = createServer((request, response) => {
			request.resume();
			response.setHeader('content-type', type).end(body);
		});
		const device = await givenAgent();
		const link = `http://127.0.0.1:${await listen(server)}/mobile?authorization=Token%20tr-0123456789abcdef0123456789ab&workflowId=check-in`;
		const { remedy } = await refusalOf(device.pair(link));
		const [line] = /"service": \{.*\}/.exec(remedy) ?? [];
		await device.home.writeSettings(JSON.parse(`{${line}}`));
		await device.daemon.reload();
		await device.home.untilSaved(({ connections }) => connections.at(-1)?.token === token);
		server.close();
	});

	test.each([
		[
			'that the code has expired',
			'{"success":false,"message":"Short token expired"}',
			{ code: 'code-expired-or-used', message: /This code has expired: .* answered 200: Short token expired\.$/ },
		],
		[
			'to wait',
			'{"status":"pending","message":"Waiting for approval","poll":"/api/requests/0123456789abcdef0123"}',
			{
				code: 'pairing-uncertain',
				message: /has not finished the registration of this device: Waiting for approval\.$/,
			},
		],
		[
			'a number',
			'{"token":12345678901234}',
			{ code: 'pairing-uncertain', message: /may have used the code up\. .*holds no text at all\.$/ },
		],
		[
			'XML',
			'<answer><token>abc</token></answer>',
			{ code: 'pairing-uncertain', message: /The answer is XML\. The code is used up\.$/ },
		],
	])(
		'where it says %s with a good status, its own words are shown, and nothing is set aside',
		async (_what, body, { code, message }) => {
			const server = createServer((request, response) => {
				request.resume();
				response.setHeader('content-type', 'application/json').end(body);
			});
			const port = await listen(server);
			const device = await givenAgent();
			const link = `http://127.0.0.1:${port}/mobile?authorization=Token%20tr-0123456789abcdef0123456789ab&workflowId=check-in`;
			const refusal = await refusalOf(device.pair(link));
			expect(refusal).toMatchObject({ code, message: expect.stringMatching(message) });
			expect(JSON.stringify(refusal)).not.toContain('tokenPointer');
			expect(await kept(device)).toBeNull();
		},
	);

	test.each([
		['{"code":401,"msg":"invalid token"}', 'code-expired-or-used', 'This code is not accepted: '],
		['{"detail":"The pairing code has already been used"}', 'code-expired-or-used', 'already been used'],
		['{"message":"maintenance"}', 'pairing-uncertain', 'answered 200 and has sent no Connection: maintenance.'],
		['{"fault":{"faultstring":"Rate limit quota violation"}}', 'pairing-uncertain', ': Rate limit quota violation.'],
		['ServiceUnavailable', 'pairing-uncertain', ': ServiceUnavailable.'],
		['error: not ready', 'pairing-uncertain', ': error: not ready.'],
		['{"token":"error"}', 'pairing-uncertain', 'has sent no Connection.'],
		// What may be a token, however short, is kept; what may have one in it is not shown.
		['{"message":"Registered: use conn-0123456789"}', 'answer-unreadable', 'Texts are at: /message'],
		['{"message":"Device registered","key":"tr-01"}', 'answer-unreadable', 'Texts are at: /key, /message.'],
	])('that holds only words is told by them, and no setting: %s [F1479]', toldByWords);

	test.each([
		['{"status":"ok"}', 'pairing-uncertain', 'has sent no Connection.'],
		['{"success":true}', 'pairing-uncertain', 'holds no text at all.'],
		['{"message":"registered"}', 'pairing-uncertain', 'has sent no Connection: registered.'],
		['{"id":"42"}', 'pairing-uncertain', 'has sent no Connection.'],
		['["ok"]', 'pairing-uncertain', 'has sent no Connection'],
		['200', 'pairing-uncertain', 'has sent no Connection.'],
		['{"outcome":"REGISTERED","version":"1.4.2"}', 'pairing-uncertain', 'has sent no Connection: REGISTERED'],
		['{"createdAt":"2026-11-29T10:00:00Z","links":{"self":"/api/device/7"}}', 'pairing-uncertain', 'no Connection'],
		['{"deviceId":"kiosk-0123456789abcdef0123","workflowId":"wf1"}', 'pairing-uncertain', 'has sent no Connection.'],
		['{"requestId":"8f14e45fceea167a5a36dedd4bea2543"}', 'pairing-uncertain', 'has sent no Connection.'],
	])('that holds nothing like a token is told by what it says, and no setting: %s [F1517]', toldByWords);

	test.each([
		[
			'a token in another place',
			'{"data":{"jwt":"conn-nested-0123456789abcdef"}}',
			'',
			/no other code is needed/,
			'answer-unreadable',
		],
		['nothing like a token', '{"key":"ok-01"}', 'used already', /no other code is needed/, 'answer-unreadable'],
		['nothing like a token, and words that tell nothing', '{"key":"ok-01"}', '', /./, 'code-expired-or-used'],
		['nothing like a token, and a code that is too old', '{"key":"ok-01"}', 'expired', /./, 'code-expired-or-used'],
	])('is the answer to that code when it is refused afterwards: %s [F1242]', async (_what, body, words, told, code) => {
		let asked = 0;
		const server = createServer((request, response) => {
			request.resume();
			response.setHeader('content-type', 'application/json');
			if (request.method !== 'POST') return void response.writeHead(404).end();
			asked += 1;
			if (asked === 1) response.end(body);
			else response.writeHead(401).end(JSON.stringify({ title: `Code ${words}` }));
		});
		const device = await givenAgent();
		const link = `http://127.0.0.1:${await listen(server)}/mobile?authorization=Token%20tr-0123456789abcdef0123456789ab&workflowId=check-in`;
		await refusalOf(device.pair(link));
		const again = await refusalOf(device.pair(link));
		expect(again).toMatchObject({ code, message: expect.stringMatching(told) });
		expect(/Ask for a new/i.test(again.remedy)).toBe(code === 'code-expired-or-used');
		// The line that the first refusal named still pairs.
		expect(again.remedy).toMatch(
			/^Set service\.tokenPointer .+"tokenPointer".+ The device then pairs with the answer that is kept\./,
		);
		expect(device.agent.status().warnings).toMatchObject([{ code: 'answer-unreadable' }]);
		// Another code is refused for its own sake.
		const other = await refusalOf(device.pair(link.replace('tr-0', 'tr-1')));
		expect(other.code).toBe('code-expired-or-used');
		// Support finds what the service has said.
		expect(device.logText()).toContain('code-expired-or-used');
		expect(asked).toBe(3);
		server.close();
	});

	test('in XML is told as one that no setting reads, by the refusal and the status alike [F1222]', async () => {
		const server = createServer((request, response) => {
			request.resume();
			if (request.method !== 'POST') return void response.writeHead(404).end();
			const body = '<r><connection>cn-0123456789abcdef0123456789abcdef</connection></r>';
			response.setHeader('content-type', 'application/xml').end(body);
		});
		const device = await givenAgent();
		const code = `http://127.0.0.1:${await listen(server)}/mobile?authorization=Token%20tr-0123456789abcdef0123456789ab&workflowId=check-in`;
		expect(await refusalOf(device.pair(code))).toMatchObject({
			remedy: expect.stringMatching(/the operator must have the service send it .* Ask for a new pairing code\.$/),
			params: { pairingCode: 'used' },
		});
		expect(device.agent.status().summary).toEqual({ code: 'unpaired', params: {} });
		server.close();
	});

	test('is not missed while it is awaited, and is as soon as it did not come [F1256]', async () => {
		const service = await givenService();
		const device = await givenAgent();
		const answering = service.hold(REGISTER.path);
		const refused = refusalOf(device.pair(service.createPairingCode('check-in').url));
		await answering.received;
		expect(device.agent.status().summary).toEqual({ code: 'unpaired', params: {} });
		service.dropSockets();
		await service.close();
		await refused;
		expect(device.statuses.at(-1)?.summary.code).toBe('unpaired-uncertain');
	});

	test('that is from the future is dated by the clock of this start, on the disk as well: it is not kept for a day from each start', async () => {
		const { device } = await givenUnread();
		const before = JSON.parse((await kept(device)) ?? '');
		await device.stop();
		const wallMs = Date.parse(before.at) - 48 * HOUR_MS;
		const again = await givenAgent({ home: device.home, clock: createSteppedClock(wallMs) });
		await expect.poll(async () => JSON.parse((await kept(again)) ?? '{}').at).toBe(new Date(wallMs).toISOString());
	});

	test('stays until the device was online with it: the text that was named first may not be the Connection [F1255]', async () => {
		const service = await givenService({ dialect: { tokenPointer: '/data/access' } });
		const [first, right] = ['/data/other', '/data/access'];
		const server = createServer(async (request, response) => {
			const body = await new Response(request as unknown as ReadableStream).text();
			const { host: _, ...headers } = request.headers as Record<string, string>;
			const answer = await fetch(`${service.url}${request.url}`, {
				method: request.method ?? 'GET',
				headers,
				...(body && { body }),
			});
			const text = (await answer.text()).replace('"data":{', '"data":{"other":"cn-0123456789abcdef0123456789abcdef",');
			response.writeHead(answer.status, { 'content-type': 'application/json' }).end(text);
		});
		server.on('upgrade', (request, socket) => {
			const to = connect(Number(new URL(service.url).port), '127.0.0.1', () => {
				const lines = Object.entries(request.headers).map(([name, value]) => `${name}: ${value}\r\n`);
				to.write(`GET ${request.url} HTTP/1.1\r\n${lines.join('')}\r\n`);
				to.pipe(socket).pipe(to);
			});
			for (const one of [to, socket]) one.on('error', () => {});
		});
		const { host } = new URL(service.url);
		const here = `127.0.0.1:${await listen(server)}`;
		const device = await givenAgent();
		const code = service.createPairingCode('check-in').url.replace(host, here);
		const refusal = await refusalOf(device.pair(code));
		expect(refusal).toMatchObject({ code: 'answer-unreadable', params: { answer: 'kept' } });
		await correct(device, first);
		await device.untilStatus(({ state, problem }) => state !== 'unpaired' && problem !== null);
		expect(await kept(device)).not.toBeNull();
		expect(device.agent.status().warnings.map(({ code }) => code)).not.toContain('answer-unreadable');
		await device.stop();
		const again = await givenAgent({ home: device.home });
		await correct(again, right);
		await again.untilState('online');
		await expect.poll(() => kept(again)).toBeNull();
		expect(service.requests.filter(({ path }) => path === REGISTER.path)).toHaveLength(1);
		server.closeAllConnections();
		server.close();
	});

	test('that holds nothing like a token leaves the code uncertain: what is in between answers "ok" as well [F931]', async () => {
		const server = createServer((request, response) => {
			request.resume();
			response.setHeader('content-type', 'application/json').end('{"key":"ok-01"}');
		});
		const device = await givenAgent();
		const code = `http://127.0.0.1:${await listen(server)}/mobile?authorization=Token%20tr-0123456789abcdef0123456789ab&workflowId=check-in`;
		expect(await refusalOf(device.pair(code))).toMatchObject({
			code: 'answer-unreadable',
			message: expect.stringMatching(/The answer is kept for 24 hours: the code may have been used\.$/),
			remedy: expect.stringMatching(/^Try the same code again\. If it is refused: Set service\.tokenPointer/),
			params: { pairingCode: 'uncertain' },
		});
		server.close();
	});

	test('to an earlier code is told as that once another code was refused, and an answer of empty texts is none [F1460]', async () => {
		let answer: [status: number, body: string] = [200, '{"key":"ok-01"}'];
		const server = createServer((request, response) => {
			request.resume();
			response.writeHead(answer[0], { 'content-type': 'application/json' }).end(answer[1]);
		});
		const device = await givenAgent();
		const port = await listen(server);
		const codeOf = (sign: string) =>
			`http://127.0.0.1:${port}/mobile?authorization=Token%20tr-${sign.repeat(28)}&workflowId=check-in`;
		await refusalOf(device.pair(codeOf('a')));
		expect(device.agent.status().sentence).toContain('Try the same code again.');
		answer = [401, '{"message":"This code was used already"}'];
		expect(await refusalOf(device.pair(codeOf('b')))).toMatchObject({ code: 'code-expired-or-used' });
		expect(device.agent.status().warnings).toMatchObject([
			{
				message: expect.stringMatching(/^An earlier code, at 2\S+:\d\dZ: .* its code may have been used\.$/),
				remedy: expect.not.stringContaining('same code'),
			},
		]);
		expect(device.agent.status().sentence).not.toContain('the same code');
		answer = [200, '{"token":""}'];
		expect(await refusalOf(device.pair(codeOf('c')))).toMatchObject({ code: 'pairing-uncertain' });
		server.close();
	});

	test.each([
		[403, '{"error":"device is blocked"}', 'unpaired-uncertain'],
		[404, '{"error":"no such device"}', 'unpaired-uncertain'],
		[302, '', 'unpaired-uncertain'],
		[422, '{"error":"device type is not allowed"}', 'unpaired-uncertain'],
		[401, '{"error":"device is blocked"}', 'unpaired-uncertain'],
		[401, '{"code":"DEVICE_LIMIT_REACHED"}', 'unpaired-uncertain'],
		[422, '{"error":"The code was not used"}', 'unpaired'],
		[409, '{"error":"code already used"}', 'unpaired'],
	])(
		'that refuses with %i %s leaves what is known of the code in status and page, also after a restart [F1519]',
		async (status, body, summary) => {
			const server = createServer((request, response) => {
				request.resume();
				response.writeHead(request.method === 'POST' ? status : 404, { location: '/login' }).end(body);
			});
			const device = await givenAgent();
			const host = `127.0.0.1:${await listen(server)}`;
			const link = `http://${host}/mobile?authorization=Token%20tr-0123456789abcdef0123456789ab&workflowId=check-in`;
			const isOpen = summary === 'unpaired-uncertain';
			const { params } = await refusalOf(device.pair(link));
			expect(params?.['pairingCode'] === 'uncertain').toBe(isOpen);
			const told = { code: summary, params: isOpen ? expect.objectContaining({ host }) : {} };
			expect(device.agent.status().summary).toEqual(told);
			await device.stop();
			// Whatever stands before the service may have refused: its time is not believed.
			expect((await device.home.untilSaved(() => true)).serviceTimeMs).toBeNull();
			expect((await givenAgent({ home: device.home })).agent.status().summary).toEqual(told);
			server.close();
		},
	);

	test.each([
		['is lost', null, 'unpaired-uncertain', 'pairing-uncertain', /gave no usable answer to the last pairing code/],
		['is a plain refusal', 401, 'unpaired', 'unpaired', /^This device is not paired yet\./],
	])(
		'to an earlier code is never told first once that to a newer code %s, by status, page and doctor [F1477]',
		async (_what, refused, summary, code, told) => {
			let asked = 0;
			const server = createServer((request, response) => {
				request.resume();
				if (request.method !== 'POST') return void response.writeHead(404).end();
				asked += 1;
				if (asked > 1 && refused === null) return void request.socket.destroy();
				response.writeHead(asked === 1 ? 200 : (refused ?? 0), { 'content-type': 'application/json' });
				response.end(asked === 1 ? '{"key":"ok-01"}' : '{"message":"This code was used already"}');
			});
			const device = await givenAgent();
			const port = await listen(server);
			const codeOf = (sign: string) =>
				`http://127.0.0.1:${port}/mobile?authorization=Token%20tr-${sign.repeat(28)}&workflowId=check-in`;
			const expectTold = async ({ home, agent: { status } }: RunningAgent) => {
				const { summary: first, warnings } = status();
				// The page makes its sentence from these alone.
				expect(first).toEqual({ code: summary, params: refused === null ? { host: `127.0.0.1:${port}` } : {} });
				expect(warnings).toMatchObject([{ code: 'answer-unreadable', params: { earlierAt: expect.any(String) } }]);
				const { checks } = await examine({ home }, 'pairing');
				expectProblem(checks.pairing, 'warning', code, told);
				expectProblem(checks.pairing, 'warning', code, /An earlier code, at 2\S+:\d\dZ: /);
			};
			await refusalOf(device.pair(codeOf('a')));
			expect(device.agent.status().summary.params).toEqual({ problem: 'answer-unreadable' });
			await refusalOf(device.pair(codeOf('b')));
			await expectTold(device);
			await device.stop();
			const stopped = await examine({ home: device.home }, 'pairing');
			expectProblem(stopped.checks.pairing, 'warning', code, told);
			const again = await givenAgent({ home: device.home });
			await expectTold(again);
			// The first code once more is the newest again.
			if (refused !== null) {
				asked = 0;
				await refusalOf(again.pair(codeOf('a')));
				expect(again.agent.status().summary.params).toEqual({ problem: 'answer-unreadable' });
			}
			server.close();
		},
	);

	test('lies in a file of its own for its owner only, and is told by status, log and doctor, never its texts', async () => {
		const { service, device, refusal } = await givenUnread();
		const text = (await kept(device)) ?? '';
		const { texts, ...rest } = JSON.parse(text) as KeptAnswer;
		const [{ place, text: token } = { place: '', text: '' }] = texts;
		expect(place).toBe('/data/access/key');
		expect(rest).toMatchObject({ baseUrl: service.url, request: { deviceId: DEVICE_ID, workflowId: 'check-in' } });
		expect((await stat(join(device.home.paths.stateDir, FILE))).mode & 0o777).toBe(0o600);
		const status = device.agent.status();
		expect(status).toMatchObject({
			state: 'unpaired',
			summary: { code: 'unpaired', params: { problem: 'answer-unreadable' } },
			warnings: [refusal],
			sentence: `Not paired: ${refusal.message} ${refusal.remedy}`,
		});
		expect(device.logText()).toContain('no other code is needed');
		const running = await examine({ home: device.home }, 'pairing');
		expectProblem(running.checks.pairing, 'warning', 'answer-unreadable', /data\/access\/key.*kept for 24 hours/);
		device.daemon.log.info(`as if a fault had shown ${token}`);
		await device.stop();
		const stopped = await examine({ home: device.home }, 'pairing');
		expectProblem(stopped.checks.pairing, 'warning', 'answer-unreadable', /data\/access\/key.*kept for 24 hours/);
		expect([device.logText(), JSON.stringify([device.statuses, running, stopped])].join()).not.toContain(token);
		expect(await device.home.filesWith(token)).toEqual([FILE]);
	});

	test('survives a restart, and pairs at the start when the setting was corrected meanwhile [F150]', async () => {
		const { service, device } = await givenUnread();
		await device.stop();
		const again = await givenAgent({ home: device.home });
		expect(again.agent.status().warnings).toMatchObject([{ code: 'answer-unreadable' }]);
		await again.stop();
		await device.home.writeSettings({ service: { tokenPointer: '/data/access/key' } });
		const corrected = await givenAgent({ home: device.home });
		await corrected.untilLive('check-in');
		expect(registrations(service)).toEqual([201]);
		expect(await kept(corrected)).toBeNull();
	});

	test('waits while the setting names a place without a token, and says so', async () => {
		const { device } = await givenUnread();
		await correct(device, '/data/nothing');
		expect(device.agent.status().sentence).toContain('has no Connection token at /data/nothing.');
		expect(await kept(device)).not.toBeNull();
		await correct(device, '/data/access/key');
		await device.untilLive('check-in');
	});

	test('is not taken for a service that the settings do not name', async () => {
		const { service, device } = await givenUnread();
		await device.home.writeSettings({
			baseUrl: 'https://other.example',
			service: { tokenPointer: '/data/access/key' },
		});
		await device.daemon.reload();
		expect(await kept(device)).not.toBeNull();
		expect(device.agent.status().state).toBe('unpaired');
		await device.home.writeSettings({ baseUrl: service.url, service: { tokenPointer: '/data/access/key' } });
		await device.daemon.reload();
		await device.untilLive('check-in');
	});

	test('goes when the device is unpaired', async () => {
		const { device } = await givenUnread();
		await device.agent.unpair();
		expect(await readdir(device.home.paths.stateDir)).not.toContain(FILE);
		await correct(device, '/data/access/key');
		expect(device.agent.status()).toMatchObject({ state: 'unpaired', warnings: [] });
	});

	test('goes when another code pairs the device, and stays when another code is refused', async () => {
		const { device } = await givenUnread();
		const other = await givenService();
		const used = `${other.url}/mobile?authorization=Token%20tr-${'x'.repeat(28)}&workflowId=check-in`;
		expect(await refusalOf(device.pair(used))).toMatchObject({ code: 'code-expired-or-used' });
		await device.stop();
		const again = await givenAgent({ home: device.home });
		expect(await kept(again)).not.toBeNull();
		await again.pair(other.createPairingCode('check-in').url);
		expect(await kept(again)).toBeNull();
		expect((await again.untilLive('check-in')).warnings).toEqual([]);
	});

	test('goes after 24 hours', async () => {
		const { device, clock } = await givenUnread();
		clock.advance(24 * HOUR_MS - 1);
		expect(await kept(device)).not.toBeNull();
		clock.advance(1);
		expect(device.agent.status().warnings).toEqual([]);
		await correct(device, '/data/access/key');
		expect(device.agent.status().sentence).toContain('no usable answer');
		await expect.poll(() => kept(device)).toBeNull();
	});

	test('goes after 24 hours, of which each run of the agent has its part', async () => {
		const { device, clock } = await givenUnread();
		clock.advance(20 * HOUR_MS);
		await device.stop();
		const again = await givenAgent({ home: device.home, clock });
		clock.advance(4 * HOUR_MS - 1);
		expect(again.agent.status().warnings).toMatchObject([{ code: 'answer-unreadable' }]);
		clock.advance(1);
		expect(again.agent.status().warnings).toEqual([]);
		await expect.poll(() => kept(again)).toBeNull();
	});

	test('brings a Connection that is as old as the answer, not as the setting', async () => {
		const { device, clock } = await givenUnread();
		const at = new Date(clock.wallMs()).toISOString();
		clock.advance(10 * HOUR_MS);
		await correct(device, '/data/access/key');
		await device.untilLive('check-in');
		const saved = await device.home.untilSaved(({ connections }) => connections.length > 0);
		expect(saved.connections).toMatchObject([{ obtainedAt: at }]);
	});

	test('in the place of an earlier one has 24 hours of its own', async () => {
		const { service, device, clock } = await givenUnread();
		clock.advance(10 * HOUR_MS);
		await refusalOf(device.pair(service.createPairingCode('check-in').url));
		clock.advance(24 * HOUR_MS - 1);
		expect(device.agent.status().warnings).toMatchObject([{ code: 'answer-unreadable' }]);
		clock.advance(1);
		expect(device.agent.status().warnings).toEqual([]);
	});

	test('goes when the state that it has made is on the disk, and not before', async () => {
		const { device } = await givenUnread();
		const asked = await recordDisk(device.home.paths.stateDir);
		await correct(device, '/data/access/key');
		await device.untilLive('check-in');
		await expect.poll(() => asked).toContain('remove unread-answer.json');
		const saved = ['rename state.json.new to state.json', 'sync .'];
		expect(asked.slice(0, asked.indexOf('remove unread-answer.json'))).toEqual(expect.arrayContaining(saved));
	});

	test('does not end for a clock that is set while the agent runs', async () => {
		const { device, clock } = await givenUnread();
		clock.setWall(clock.wallMs() + 1000 * HOUR_MS);
		await correct(device, '/data/access/key');
		await device.untilLive('check-in');
	});

	test('of a registration by a page of the network in the way is none: nothing is set aside', async () => {
		const service = await givenService();
		const device = await givenAgent();
		const page = '<!doctype html><title>Sign in</title>eyJhbGciOiJI.eyJzdWIiOiIx.c2lnbmF0dXJl';
		service.failNext(REGISTER, { status: 200, headers: { 'content-type': 'text/html' }, body: page });
		const refusal = await refusalOf(device.pair(service.createPairingCode('check-in').url));
		expect(refusal.code).toBe('pairing-uncertain');
		expect(await kept(device)).toBeNull();
	});
});

describe('a fault between the answer and its file', () => {
	test('a full disk: it is kept in memory, and that is said [F151]', async () => {
		let inTheWay = '';
		const { device, refusal } = await givenUnread(HIDDEN, async ({ home }) => {
			inTheWay = join(home.paths.stateDir, `${FILE}.new`);
			await mkdir(inTheWay);
		});
		expect(refusal.message).toMatch(/could not be saved \(.+\) and is kept in memory only: no other code is needed/);
		expect(await kept(device)).toBeNull();
		await correct(device, '/data/access/key');
		await device.untilLive('check-in');
		await rmdir(inTheWay);
	});

	test('a process that is killed while it writes: nothing of it stays, and the attempt is known', async () => {
		const service = await givenService();
		const device = await givenAgent();
		service.dropBeforeReply(REGISTER);
		await refusalOf(device.pair(service.createPairingCode('check-in').url));
		await device.stop();
		await writeFile(join(device.home.paths.stateDir, `${FILE}.new`), '{"texts":[{"place":"/t","text":"tr-0123');
		const again = await givenAgent({ home: device.home });
		expect(await again.home.filesWith('tr-0123')).toEqual([]);
		expect(again.agent.status().sentence).toContain('no usable answer');
	});

	test.each([
		['empty', ''],
		['cut short', '{"schemaVersion":1'],
		['of another form', '{"schemaVersion":2}'],
		['overwritten', '\u0000'.repeat(4096)],
	])('a damaged file is told, removed, and keeps nothing from working: %s', async (_what, text) => {
		const { service, device } = await givenUnread();
		await device.stop();
		await writeFile(join(device.home.paths.stateDir, FILE), text);
		const again = await givenAgent({ home: device.home });
		expect(again.agent.status().warnings).toMatchObject([
			{ code: 'state-corrupt', message: expect.stringContaining('is lost: it is damaged') },
		]);
		await expect.poll(() => kept(again)).toBeNull();
		expect(again.agent.status().sentence).toContain('no usable answer');
		await correct(again, '/data/access/key');
		await again.pair(service.createPairingCode('check-in').url);
		await again.untilLive('check-in');
	});
});

describe('what is kept', () => {
	const answer = (more: Partial<KeptAnswer> = {}): KeptAnswer => ({
		schemaVersion: 1,
		attemptId: 'a',
		at: '2026-11-22T12:00:00.000Z',
		status: 201,
		baseUrl: 'https://id.example.com',
		request: { deviceId: 'KIOSK-0001', workflowId: 'check-in' },
		sessionId: null,
		assignsWorkflow: true,
		confirmsOrigin: null,
		texts: [{ place: '/t', text: 'tr-0123456789' }],
		...more,
	});
	const at = Date.parse('2026-11-22T12:00:00Z');

	test.each<[string, number, string, number | null]>([
		['an hour old', at + HOUR_MS, answer().at, 23 * HOUR_MS],
		['a day old', at + 24 * HOUR_MS, answer().at, null],
		['from the future: counted from now', at - 1, new Date(at - 1).toISOString(), 24 * HOUR_MS],
		['at a start without a clock', 5000, '1970-01-01T00:00:05.000Z', 24 * HOUR_MS],
	])('is bounded in time at a start, both ways: %s', (_what, wallMs, since, leftMs) => {
		const found = atStart(answer(), wallMs);
		expect(found && { at: found.kept.at, leftMs: found.leftMs }).toEqual(leftMs && { at: since, leftMs });
	});

	test('of a clock that was never set counts from the start at which the clock is right', () => {
		expect(atStart(answer({ at: '1970-01-01T00:00:05.000Z' }), at)).toMatchObject({ leftMs: 24 * HOUR_MS });
		expect(atStart(answer({ at: 'no time' }), at)).toMatchObject({ leftMs: 24 * HOUR_MS });
	});

	test('is at most 64 KiB, what looks like a token first, each text whole', () => {
		const token = { place: '/z/token', text: `tr-${'0a'.repeat(100)}` };
		const texts = [
			...Array.from({ length: 200 }, (_, index) => ({ place: `/${index}`, text: 'ä '.repeat(500) })),
			token,
		];
		const found = keepableTexts([{ place: '/huge', text: 'x'.repeat(MAX_KEPT_BYTES) }, ...texts]);
		expect(found[0]).toEqual(token);
		expect(found.length).toBeGreaterThan(30);
		const bytes = found.reduce((sum, { place, text }) => sum + Buffer.byteLength(place + text), 0);
		expect(bytes).toBeLessThanOrEqual(MAX_KEPT_BYTES);
	});
});

describe('answers of any form', () => {
	const name = fc.constantFrom('data', 'result', 'device', 'a/b', 'x~y', 'session', 'connectionToken', 'v1', 'key', '');
	const filler = fc.constantFrom<unknown>(
		'KIOSK-0001',
		'ok',
		3600,
		null,
		true,
		'2026-11-22T00:00:00Z',
		{},
		'https://x.example/y',
	);
	const word = fc.string({
		unit: fc.constantFrom(...'abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ0123456789_-'),
		minLength: 20,
		maxLength: 40,
	});
	const opaque = word.map((text) => `tr-${text}7`);
	const jwt = fc.tuple(word, word, word).map(([head, body, tail]) => `eyJ${head}.eyJ${body}.${tail}`);
	const form = fc.record({
		token: fc.oneof(opaque, jwt),
		prefix: fc.constantFrom('', 'Connection ', 'Bearer ', 'Token ', 'Authorization: Connection '),
		steps: fc.array(fc.tuple(fc.constantFrom('object', 'array', 'text'), name, filler), { maxLength: 40 }),
		carrier: fc.constantFrom('json', 'json', 'json', 'json string', 'text', 'header'),
		packed: fc.boolean(),
	});
	type Form = typeof form extends fc.Arbitrary<infer Value> ? Value : never;

	function answerOf({ token, prefix, steps, carrier, packed }: Form) {
		const text = `${prefix}${token}`;
		const wrap = (inner: unknown, [kind, key, other]: readonly [string, string, unknown]): unknown => {
			if (kind === 'array') return [other, inner];
			return { other, [key]: kind === 'text' && typeof inner === 'object' ? JSON.stringify(inner) : inner };
		};
		const document = steps.reduce<unknown>(wrap, text);
		const isText = carrier === 'text' || carrier === 'header';
		const body =
			carrier === 'text'
				? text
				: carrier === 'header'
					? '{"ok":"yes"}'
					: JSON.stringify(carrier === 'json' ? document : text);
		const headers = {
			'content-type': isText ? 'text/plain' : 'application/json',
			...(carrier === 'header' && { 'x-session': text }),
			...(packed && { 'content-encoding': 'gzip' }),
		};
		return { status: 201, headers, body: packed ? gzipSync(body) : body };
	}

	test('cost no code: each pairs at once, or from a place that the message names', { timeout: 120_000 }, async () => {
		const service = await givenService();
		const device = await givenAgent({ home: await givenHome(), settings: {} });
		let unread = 0;
		let runs = 0;
		await fc.assert(
			fc.asyncProperty(form, async (drawn) => {
				service.failNext(REGISTER, answerOf(drawn));
				const sent = registrations(service).length;
				const failure = await device.pair(service.createPairingCode('check-in').url).then(
					() => null,
					(error: AgentError) => error.failure,
				);
				if (failure) {
					unread += 1;
					expect(failure).toMatchObject({ code: 'answer-unreadable' });
					const { texts } = JSON.parse((await kept(device)) ?? '') as KeptAnswer;
					const place = texts.find(({ text }) => text.endsWith(drawn.token))?.place ?? 'nowhere';
					expect(String(failure.params?.['places']).split(', ')).toContain(place);
					await correct(device, place);
					await device.untilStatus(({ pairedAt }) => pairedAt !== null && !device.agent.isPairing(), 'pairing');
				}
				const { connections } = await device.home.untilSaved(({ pairing }) => pairing !== null);
				expect(connections.at(-1)?.token).toBe(drawn.token);
				expect(registrations(service).length).toBe(sent + 1);
				await device.agent.unpair();
				if (failure) await correct(device, null);
				runs += 1;
			}),
			{ numRuns: 100, endOnFailure: true },
		);
		// Nearly half of them; a busy machine ends sooner.
		expect(unread).toBeGreaterThan(runs / 5);
	});
});
