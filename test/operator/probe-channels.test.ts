/** `idv probe`: channels that are refused, that get no answer, and that the service ends. */
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { WebSocketServer } from 'ws';
import { neededParameters } from '../../src/operator/probe-words.ts';
import { listen } from '../connection/network-peers.ts';
import { modeOf } from './operator.ts';
import { probesOfFile, QUICK } from './probing.ts';

const { operator, probed, probedForeign } = probesOfFile();
const { env, idv } = operator;

test('a ping is answered without the number that only answers to heartbeats have, which is no id of a notification', async () => {
	const appPing = { kind: 'ping', everySeconds: 0.2, answer: { type: 'pong' } };
	const { outcome, settings } = await probed({ appPing, heartbeatAck: 'got' }, ['--force']);
	expect(outcome.status).toBe(0);
	expect(settings.service).toEqual({ pingKind: 'ping', ignoreKinds: ['got'] });
});

test('heartbeats are tried within a short watch also where no ping is answered', async () => {
	const { outcome, settings } = await probed({ answersPing: false, heartbeats: 'none' }, ['--force']);
	expect(outcome.status).toBe(0);
	expect(settings.service).toEqual({ heartbeatMode: 'ping', silenceLimitSeconds: 0 });
});

test('an answer to a ping is found where any other frame ends the channel', async () => {
	const { settings } = await probedForeign((socket) => {
		let isAnswered = true;
		const ping = () => {
			if (!isAnswered) return socket.close(4408);
			isAnswered = false;
			socket.send('{"type":"are-you-there"}');
		};
		ping();
		const timer = setInterval(ping, 500);
		socket.once('close', () => clearInterval(timer));
		socket.on('message', (frame) => {
			isAnswered = String(frame) === '{"type":"pong"}';
			if (!isAnswered) socket.close(4400);
		});
	});
	expect(settings.service).toEqual({ heartbeatMode: 'ping', pingKind: 'are-you-there' });
});

describe('what a refusal of the channel names', () => {
	/** A service with two texts that may be the token; the right one comes second. @param refuse body of a 400 for a query; `null`: it is right. */
	async function probedNaming(refuse: (query: URLSearchParams, workflow: string) => string | null, closes = false) {
		const asked: string[] = [];
		let registered = { deviceId: '', workflowId: '' };
		const server = createServer(async (request, response) => {
			if (request.url !== '/api/device/connection') return void response.writeHead(404).end();
			registered = JSON.parse((await request.setEncoding('utf8').toArray()).join(''));
			response
				.writeHead(201)
				.end(
					'{"data":{"session":{"id":"0123456789abcdef0123456789abcdef"},"authorization":{"scheme":"Connection","value":"fedcba9876543210fedcba9876543210"}}}',
				);
		});
		const channels = new WebSocketServer({ noServer: true });
		server.on('upgrade', (request, raw, head) => {
			const url = new URL(request.url ?? '', 'http://service');
			const { authorization } = request.headers;
			asked.push(`${url.pathname} ${authorization?.slice(0, 14)} ${url.searchParams.get('deviceId')}`);
			const isRight = authorization === 'Connection fedcba9876543210fedcba9876543210';
			const words = refuse(url.searchParams, registered.workflowId);
			const [status, body] =
				url.pathname !== '/ws/device' ? [404, ''] : !isRight ? [401, '{"reason":"connection unknown"}'] : [400, words];
			if (status === 401 && closes) channels.handleUpgrade(request, raw, head, (socket) => socket.close(4401));
			else if (status === 400 && words === null) channels.handleUpgrade(request, raw, head, () => {});
			else
				raw.end(
					`HTTP/1.1 ${status} Refused\r\nConnection: close\r\nContent-Length: ${body?.length}\r\nContent-Type: application/json\r\n\r\n${body}`,
				);
		});
		const [out, device] = [join(operator.directory, 'named.json'), join(operator.directory, 'provision.json')];
		const variables = { ...env('ApiKey'), IDV_URL: `http://127.0.0.1:${await listen(server)}` };
		const outcome = await idv([...QUICK, '--out', out, '--device', device], variables);
		const read = async (path: string) => JSON.parse(await readFile(path, 'utf8').catch(() => 'null'));
		return { outcome, asked, ...{ settings: await read(out), provision: await read(device) }, ...{ device, read } };
	}

	test.each([
		['query parameter deviceId is required', 'deviceId', 'deviceId={deviceId}'],
		['missing device_id', 'device_id', 'device_id={deviceId}'],
		['Field required: workflowId', 'workflowId', 'workflowId={workflowId}'],
		['bad request', 'deviceId', 'deviceId={deviceId}'],
	])(
		'"%s" is answered with the query that it names, and with the token that was not refused for itself [F967]',
		async (reason, name, expected) => {
			const { outcome, settings, provision } = await probedNaming((query, workflow) => {
				const own = query.get(name);
				const isThere = name === 'workflowId' ? own === workflow : own?.startsWith('idv-probe-');
				return isThere ? null : JSON.stringify({ ok: false, reason });
			});
			expect(outcome).toMatchObject({ status: 0, stderr: '' });
			expect(settings.service).toEqual({
				channelPath: `/ws/device?${expected}`,
				tokenPointer: '/data/authorization/value',
			});
			expect(provision.connection).toBe('fedcba9876543210fedcba9876543210');
		},
	);

	test('the text whose channel is closed at once is not the token [F976]', async () => {
		const { settings, provision } = await probedNaming(() => '{"reason":"busy"}', true);
		expect(settings.service).toEqual({ tokenPointer: '/data/authorization/value' });
		expect(provision).toBeNull();
	});

	test('a parameter that no device can fill in is named, and the answer is kept where no channel has shown which text is the token [F968]', async () => {
		const { outcome, settings, provision, device, read } = await probedNaming(
			() => '{"reason":"query parameter clientVersion is required"}',
		);
		expect(outcome.status).toBe(69);
		expect(outcome.stderr).toMatch(/the query parameter clientVersion: .* service\.channelPath/);
		expect(settings.service).toEqual({ tokenPointer: '/data/authorization/value' });
		expect(provision).toBeNull();
		expect(outcome.stdout).toContain(`Saved: ${device}.answer (the answer to the registration: a secret)`);
		const kept = await read(`${device}.answer`);
		expect(kept).toMatchObject({ workflowId: 'checkin', status: 201, deviceId: expect.stringMatching(/^idv-probe/) });
		expect(kept.candidates).toEqual([
			{ tokenPointer: '/data/authorization/value', connection: 'fedcba9876543210fedcba9876543210' },
			{ tokenPointer: '/data/session/id', connection: '0123456789abcdef0123456789abcdef' },
		]);
		expect(JSON.parse(kept.body).data.session.id).toBe('0123456789abcdef0123456789abcdef');
		expect(await modeOf(`${device}.answer`)).toBe('600');
	});
});

test.each([
	['query parameter device must be the deviceId', ['device={deviceId}']],
	["query parameter 'unit' must be the device id", ['unit={deviceId}']],
	['missing query parameter: device', ['device={deviceId}']],
	['query parameter workflow must name the workflowId', ['workflow={workflowId}']],
	['query parameter clientVersion is required', []],
	['the token of this device is unknown', []],
])('a parameter has the name that "%s" gives it, and the id that belongs in it: %j [F993]', (words, expected) => {
	expect(neededParameters(JSON.stringify({ error: { message: words } }))).toEqual(expected);
});

test.each([
	['query parameter device_ticket is missing: put the connection token there', true],
	['Missing required query parameter "device_ticket" (the Connection token)', true],
	['{"error":"\'device_ticket\' query parameter required"}', true],
	['query parameter device_ticket is missing', false],
])(
	'a refusal that says %j has the Connection tried there, and if that fails the advice names --query-name (%j) [F1321]',
	async (words, isTaken) => {
		const server = createServer((request, response) => {
			const isThere = request.url === '/api/device/connection';
			response.writeHead(isThere ? 201 : 404).end(isThere ? '{"token":"foreign-token-0123456789"}' : '');
		});
		const channels = new WebSocketServer({ noServer: true });
		let isTried = false;
		server.on('upgrade', (request, raw, head) => {
			const { pathname, searchParams } = new URL(request.url ?? '', 'http://service');
			const isRight = pathname === '/ws/device' && searchParams.get('device_ticket') === 'foreign-token-0123456789';
			isTried ||= isRight;
			const [status, body] = pathname === '/ws/device' ? [400, words] : [404, ''];
			if (isRight && isTaken) channels.handleUpgrade(request, raw, head, () => {});
			else raw.end(`HTTP/1.1 ${status} No\r\nConnection: close\r\nContent-Length: ${body.length}\r\n\r\n${body}`);
		});
		const out = join(operator.directory, 'ticket.json');
		const variables = { ...env('ApiKey'), IDV_URL: `http://127.0.0.1:${await listen(server)}` };
		const outcome = await idv([...QUICK, '--force', '--out', out], variables);
		const { service } = JSON.parse(await readFile(out, 'utf8'));
		expect(isTried).toBe(true);
		expect(outcome.status, outcome.stdout).toBe(isTaken ? 0 : 69);
		if (isTaken) expect(service).toEqual({ channelAuth: 'queryToken', queryName: 'device_ticket' });
		else expect(outcome.stderr).toContain('give --query-name device_ticket (later service.queryName)');
	},
	60_000,
);

describe('handshakes without an answer', () => {
	/** A service whose upgrades get what is given for their path, and whose requests after the registration too if `isDead`. */
	async function probedCutting(answer: (path: string) => string | null, isDead = false) {
		let requests = 0;
		const server = createServer((request, response) => {
			requests += 1;
			if (request.method === 'POST') response.writeHead(201).end('{"token":"foreign-token-0123456789"}');
			else if (isDead) request.socket.destroy();
			else response.writeHead(404).end();
		});
		const channels = new WebSocketServer({ noServer: true });
		server.on('upgrade', (request, raw, head) => {
			requests += 1;
			const said = answer(new URL(request.url ?? '', 'http://service').pathname);
			if (said === null) raw.destroy();
			else if (said !== '101') raw.end(`HTTP/1.1 ${said} Refused\r\nConnection: close\r\n\r\n`);
			else channels.handleUpgrade(request, raw, head, () => {});
		});
		const port = await listen(server);
		const variables = { ...env('ApiKey'), IDV_URL: `http://127.0.0.1:${port}` };
		return { port, outcome: await idv([...QUICK], variables), requests };
	}

	test('a service that resets every connection is told as such after a few', async () => {
		const { port, outcome, requests } = await probedCutting(() => null, true);
		expect(outcome.status).toBe(69);
		expect(outcome.stderr).toMatch(
			new RegExp(
				`^Error: The service takes connections, and each is reset before any answer: 3 handshakes and a request\\. .*127.0.0.1:${port}.*\\(ECONNRESET\\).*\\[service-unreachable\\]`,
			),
		);
		expect(requests).toBe(5);
	});

	test('one that resets what it does not have is searched further', async () => {
		const { outcome } = await probedCutting((path) => (path === '/ws' ? '101' : null));
		expect(outcome).toMatchObject({ status: 0, stderr: '' });
		expect(outcome.stdout).toMatch(/channel-path .* \/ws +guessed/);
	});

	test('the path that answers unlike all others is named, and not asked for', async () => {
		const { outcome } = await probedCutting((path) => (path === '/ws/device' ? '400' : '404'));
		expect(outcome.status).toBe(69);
		expect(outcome.stderr).toContain(
			'opened the channel: /ws/device answered 400, every other path 404. The path is likely right',
		);
	});
});

describe('channels that the service ends', () => {
	test.each([
		[1000, 700],
		[1011, 500],
		[4000, 300],
	])(
		'where none lasts the watch, its close code (%i after %i ms) is told, and it is no idle timeout',
		async (code, ms) => {
			const { outcome, settings } = await probedForeign((socket) => setTimeout(() => socket.close(code), ms));
			expect(outcome.status).toBe(69);
			expect(outcome.stderr).toMatch(
				new RegExp(
					String.raw`^Error: No channel at /ws/device lasted the 1 s of the watch: the service ended it with close code ${code} after \d\.\d s`,
				),
			);
			expect(outcome.stderr).toContain('service.firstMessages');
			expect(outcome.stdout).not.toMatch(/(heartbeat-message|token-place|channel-handshake) .*proved/);
			expect(settings).not.toHaveProperty('service');
		},
	);

	test('a channel that opens only once is told as such', async () => {
		let isUsed = false;
		const { outcome, settings } = await probedForeign(
			() => {},
			({ authorization }) => {
				const isGood = !isUsed && authorization === 'Connection foreign-token-0123456789';
				isUsed ||= isGood;
				return isGood;
			},
		);
		expect(outcome.status).toBe(69);
		expect(outcome.stderr).toMatch(/opened, but not again by the same handshake\..*service\.nextConnection/);
		expect(settings).not.toHaveProperty('service');
	});

	test('a frame that ends the channel proves nothing where the channel ends without one as well', async () => {
		const { outcome, settings } = await probedForeign((socket) => {
			const late = setTimeout(() => socket.close(4000), 700);
			socket.once('message', () => socket.close(4401));
			socket.once('close', () => clearTimeout(late));
		});
		expect(outcome.status).toBe(69);
		expect(outcome.stdout).not.toMatch(/heartbeat-message .*(?:proved|guessed)/);
		expect(outcome.stderr).toMatch(/code 4000 after .*service\.firstMessages/);
		expect(settings).not.toHaveProperty('service');
	});

	test.each([
		['with words', 'connection_init expected', 'connection_init', 'connection_ack'],
		['without words', '', 'login', 'welcome'],
	])(
		'of the first messages only the one that is needed is written, and nothing that waits for its answer: %s',
		async (_, reason, verb, answer) => {
			let everyMs = 80;
			const { outcome, settings } = await probedForeign((socket) => {
				const late = setTimeout(() => socket.close(4400, reason), 600);
				let news: NodeJS.Timeout;
				socket.once('close', () => [late, news].forEach(clearTimeout));
				socket.on('message', (frame) => {
					if (!String(frame).includes(`"${verb}"`)) return;
					clearTimeout(late);
					socket.send(JSON.stringify({ type: answer }));
					// Each channel is slower than the one before: that its message comes less often has no other cause.
					everyMs += 10;
					news = setInterval(() => socket.send('{"type":"data","id":"d-1"}'), everyMs);
				});
			});
			expect(outcome).toMatchObject({ status: 0, stderr: '' });
			expect(settings.service).toEqual({ firstMessages: [expect.objectContaining({ type: verb })] });
			if (reason !== '')
				expect(outcome.stdout).toMatch(/The service says: connection_init expected( \(\d+ times\))?\n/);
		},
	);

	test('a heartbeat that the service writes out is sent, and its words are shown without the Connection in them', async () => {
		const words = "send {type:'hb'} every 20 s, foreign-token-0123456789";
		const { outcome, settings } = await probedForeign((socket) => {
			socket.on('message', (frame) => {
				if (JSON.parse(String(frame)).type === 'hb') return;
				socket.send(JSON.stringify({ error: words }));
				socket.close(4400);
			});
			const news = setInterval(() => socket.send('{"type":"data","id":"d-1"}'), 100);
			socket.once('close', () => clearInterval(news));
		});
		expect(outcome).toMatchObject({ status: 0, stderr: '' });
		expect(settings.service).toEqual({ heartbeatBody: { type: 'hb' } });
		expect(outcome.stdout).toMatch(/The service says: send \{type:'hb'\} every 20 s, \[secret\]( \(\d+ times\))?\n/);
		expect(outcome.stdout).not.toContain('foreign-token');
	});

	test('pings are the heartbeat where a frame ends the channel and a pinged one without frames lasts', async () => {
		const { outcome, settings } = await probedForeign((socket) => {
			let idle: NodeJS.Timeout;
			const isAlive = () => {
				clearTimeout(idle);
				idle = setTimeout(() => socket.close(1001), 600);
			};
			isAlive();
			socket.on('ping', isAlive);
			socket.once('message', () => socket.close(4400));
			socket.once('close', () => clearTimeout(idle));
		});
		expect(outcome).toMatchObject({ status: 0, stderr: '' });
		expect(settings.service).toEqual({ heartbeatMode: 'ping' });
	});
});
