/** `idv probe`: what it writes of a service as we assume it, what it waits for, and what it ends at. */
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { createServer as createTcpServer, type Socket } from 'node:net';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { type WebSocket, WebSocketServer } from 'ws';
import { follow } from '../cli/command.ts';
import { listen } from '../connection/network-peers.ts';
import { givenService } from '../service/fixture.ts';
import { modeOf } from './operator.ts';
import { probesOfFile, QUICK } from './probing.ts';

const { operator, probed, probedForeign } = probesOfFile();
const { env, idv, file } = operator;

describe('what it does', () => {
	test('as we assume the service to be, its settings are the address alone; every user may read them', async () => {
		const { outcome, out, settings, service } = await probed({});
		expect(outcome).toMatchObject({ status: 0, stderr: '' });
		expect(settings).toEqual({ baseUrl: service.url, workflowId: 'checkin' });
		expect(await modeOf(out)).toBe('644');
		expect(service.devices()).toMatchObject([{ deviceId: expect.stringMatching(/^idv-probe-/) }]);
	});

	test('a code is sent once, and names the workflow', async () => {
		const service = await givenService();
		const { url } = service.createPairingCode('checkin');
		const args = ['probe', '--code-file', '-', '--yes', '--seconds', '1', '--json'];
		const { status, stdout, stderr } = await idv(args, {}, url);
		expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
		expect(JSON.parse(stdout).settings).toEqual({ baseUrl: service.url });
		expect(service.requests.filter(({ authorizationScheme }) => authorizationScheme === 'Token')).toHaveLength(1);
		expect(stdout).not.toContain(new URL(url).searchParams.get('authorization')?.slice(6));
	});

	test('a key only where it was asked for', async () => {
		const { service } = await probed({}, ['--create-key', '--force']);
		expect(service.requests.filter(({ method, status }) => method === 'POST' && status === 201)).toHaveLength(2);
	});

	test('an idle timeout of the way there needs no setting', async () => {
		const { outcome, settings } = await probed({ idleTimeoutSeconds: 0.5 });
		expect(outcome.status).toBe(0);
		expect(settings).not.toHaveProperty('service');
	});

	test.each([
		...[1, 3, 5].map((which) => [which, 429, '429 Slow\r\nContent-Length: 0'] as const),
		...[5].map((which) => [which, 503, '503 Busy\r\nRetry-After: 7\r\nContent-Length: 0'] as const),
	])(
		'a handshake that is refused for the moment is made again, also that of the run at the end (%i, %i) [F758]',
		async (which, _, answer) => {
			let number = 0;
			const every = (socket: WebSocket) => {
				const timer = setInterval(() => socket.send(`{"type":"check","id":"n${++number}"}`), 100);
				socket.once('close', () => clearInterval(timer));
			};
			const { outcome, open } = await probedForeign(every, undefined, (handshake) =>
				handshake === which ? answer : undefined,
			);
			expect(outcome).toMatchObject({ status: 0, stderr: '' });
			expect(outcome.stdout).toMatch(/check \(\d+\); (\d+) of \1 with an id/);
			expect(open.handshakes).toBe(6);
		},
	);

	const sendEvery = (socket: WebSocket, ms: number, send: () => void) => {
		const timer = setInterval(send, ms);
		socket.once('close', () => clearInterval(timer));
	};

	test('a service that ends the first channel with 1011 is waited for, and not said to have no room [F1707]', async () => {
		let channels = 0;
		const { outcome } = await probedForeign((socket) => {
			channels += 1;
			if (channels === 1) socket.close(1011, 'error');
			else sendEvery(socket, 100, () => socket.send(`{"type":"check","id":"${Math.random()}"}`));
		});
		expect(outcome).toMatchObject({ status: 0, stderr: '' });
		expect(outcome.stdout).toMatch(/Waits for 5 s: the service cannot take the request at the moment/);
	});

	test.each([
		['503 Busy', 2],
		['', 1],
	])(
		'a service that is not there yet (%j) at the first handshakes is asked again before anything else is tried (%i) [F965]',
		async (answer, times) => {
			const { outcome, open, settings } = await probedForeign(
				(socket) => sendEvery(socket, 100, () => socket.send(`{"type":"check","id":"${Math.random()}"}`)),
				undefined,
				(handshake) => (handshake <= times ? answer && `${answer}\r\nContent-Length: 0` : undefined),
			);
			expect(outcome).toMatchObject({ status: 0, stderr: '' });
			expect(outcome.stdout).toMatch(/Waits for 5 s/);
			expect(outcome.stdout).toMatch(/channel-handshake .* header +proved/);
			expect(settings).not.toHaveProperty('service');
			expect(open.handshakes).toBe(5 + times);
		},
	);

	test.each([
		['none of those that are offered', () => false as const, undefined],
		['one that was not offered', () => 'acme.v3', { subprotocol: 'acme.v3' }],
	])('a service that opens the channel with %s as its subprotocol is online [F966]', async (_, choose, expected) => {
		const server = createServer((request, response) => {
			const isThere = request.url === '/api/device/connection';
			response.writeHead(isThere ? 201 : 404).end(isThere ? '{"token":"foreign-token-0123456789"}' : '');
		});
		const channels = new WebSocketServer({ noServer: true, handleProtocols: choose });
		server.on('upgrade', (request, raw, head) => {
			// It takes the header alone, and first wants to be asked in another way.
			const isPlain = request.url === '/ws/device' && request.headers.authorization !== undefined;
			const refused = request.url?.startsWith('/ws/device') ? '400 Bad' : '404 Not Found';
			if (!isPlain) raw.end(`HTTP/1.1 ${refused}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n`);
			else {
				if (choose()) channels.once('headers', (headers) => headers.push(`Sec-WebSocket-Protocol: ${choose()}`));
				if (choose()) Reflect.deleteProperty(request.headers, 'sec-websocket-protocol');
				channels.handleUpgrade(request, raw, head, () => {});
			}
		});
		const out = join(operator.directory, 'chosen.json');
		const variables = { ...env('ApiKey'), IDV_URL: `http://127.0.0.1:${await listen(server)}` };
		const given = choose() ? [] : ['--subprotocol', 'device'];
		const outcome = await idv([...QUICK, '--out', out, ...given], variables);
		expect(outcome).toMatchObject({ status: 0, stderr: '' });
		expect(JSON.parse(await readFile(out, 'utf8')).service).toEqual(expected);
	});

	test('notifications without a kind or an id, none at all, and what is sent again are said, with the setting to look at [F759]', async () => {
		const nested = await probedForeign((socket) =>
			sendEvery(socket, 100, () => socket.send('{"a":{"of":{"the":{"name":"check.completed","uid":"n1"}}}}')),
		);
		expect(nested.outcome.stdout).toMatch(
			/No notification has a kind .*kindPointer[\s\S]*No notification has an id .*notificationIdPointer/,
		);
		const silent = await probedForeign(() => {});
		expect(silent.outcome.stdout).toMatch(/No notification came .*firstMessages/);
		const again = await probedForeign((socket) => {
			let number = 0;
			sendEvery(socket, 200, () => {
				number += 1;
				socket.send(`{"type":"check","id":"n${number}"}`);
				socket.send(`{"type":"check","id":"n${number}"}`);
			});
		});
		expect(again.outcome.stdout).toMatch(/The service sent [1-9]\d* again, .*ackBody/);
	}, 180_000);

	test('an acknowledgement that names another number than the id is found [F754]', async () => {
		const queue: { readonly seq: number; readonly type: string; readonly id: string }[] = [];
		let number = 0;
		const { outcome, settings } = await probedForeign((socket) => {
			sendEvery(socket, 80, () => {
				number += 1;
				queue.push({ seq: number, type: 'check', id: `n${number}` });
				for (const one of queue.slice(0, 20)) socket.send(JSON.stringify(one));
			});
			socket.on('message', (bytes) => {
				const { type, seq } = JSON.parse(String(bytes));
				if (type === 'ack') while (queue[0] && queue[0].seq <= Number(seq)) queue.shift();
			});
		});
		expect(outcome).toMatchObject({ status: 0, stderr: '' });
		expect(settings.service).toMatchObject({
			notificationIdPointer: '/seq',
			ackBody: { type: 'ack', seq: '{id}' },
		});
	}, 120_000);

	test('a refusal that names a header, or a registration that is not there, names the setting', async () => {
		const words = '{"message":"Header X-Device-Id is missing"}';
		const { outcome } = await probedForeign(
			() => {},
			undefined,
			() => `400 Bad\r\nContent-Type: application/json\r\nContent-Length: ${words.length}\r\n\r\n${words}`,
		);
		expect(outcome.stderr).toMatch(/names the header X-Device-Id: .* service\.headers/);
		const nothing = createServer((_, response) => void response.writeHead(404).end('{}'));
		const variables = { ...env('ApiKey'), IDV_URL: `http://127.0.0.1:${await listen(nothing)}` };
		expect((await idv(QUICK, variables)).stderr).toMatch(/answered 404.* service\.registrationPath/);
	}, 120_000);

	test('429 is waited out as long as it asks, and a code is not lost by it', async () => {
		const service = await givenService();
		service.failNext('/api/device/connection', { status: 429, headers: { 'retry-after': '7' } });
		service.failNext('/ws/device', { status: 429, headers: { 'retry-after': '8' } });
		const { url } = service.createPairingCode('checkin');
		const out = join(operator.directory, 'service.json');
		const args = ['probe', '--code-file', '-', '--yes', '--seconds', '1', '--out', out];
		const { status, stdout } = await idv(args, {}, url);
		expect(status).toBe(0);
		expect(stdout).toMatch(/channel-handshake .* header +proved/);
		expect(stdout).toMatch(/Waits for 7 s.*Waits for 8 s/s);
		expect(JSON.parse(await readFile(out, 'utf8'))).toEqual({ baseUrl: service.url });
	});

	test.each([
		['the first handshake', 0],
		['the third one', 2],
	])('a 429 with a long wait at %s ends it with all that it has found, printed and written', async (_, after) => {
		const service = await givenService({ dialect: { tokenPointer: '/data/value' } });
		const seen = service.requests.length;
		const refuse = () => service.failNext('/ws/device', { status: 429, headers: { 'retry-after': '3600' } });
		if (after === 0) refuse();
		else void service.waitFor('request', ({ path }) => path === '/ws/device').then(refuse);
		const out = join(operator.directory, 'service.json');
		const { status, stdout, stderr } = await idv([...QUICK, '--out', out], env('ApiKey', service));
		expect(status).toBe(75);
		expect(stderr).toContain('The service asks for a wait of 3600 s, longer than 300 s.');
		expect(stdout).toMatch(/token-place .*\/data\/value/);
		expect(stdout).not.toMatch(/channel-handshake .*proved/);
		const { service: written } = JSON.parse(await readFile(out, 'utf8'));
		expect(written).toEqual({ tokenPointer: '/data/value' });
		expect(service.requests.length - seen).toBeLessThan(6);
	});

	test('a wait that is too long ends it, a short one is kept', async () => {
		const service = await givenService();
		const refuse = (retryAfter: string) =>
			service.failNext('/api/device/connection', { status: 503, headers: { 'retry-after': retryAfter } });
		refuse('3600');
		const long = await idv(QUICK, env('ApiKey', service));
		expect(long.stderr).toContain('The service asks for a wait of 3600 s, longer than 300 s.');
		refuse('9');
		const short = await idv(QUICK, env('ApiKey', service));
		expect(short.status).toBe(0);
		expect(short.stdout).toContain('Waits for 9 s');
	});

	test.each([
		['SIGINT', 130],
		['SIGTERM', 143],
		['SIGHUP', 129],
	] as const)('%s ends it with %i and what it has seen, printed and written', async (signal, expected) => {
		const service = await givenService({ dialect: { tokenPointer: '/data/value' } });
		const out = join(operator.directory, 'service.json');
		const args = ['probe', '--workflow', 'checkin', '--yes', '--seconds', '60', '--out', out];
		const running = follow('idv', args, env('ApiKey', service));
		await running.untilLine(/^Watches the channel/);
		const { status, stdout } = await running.end(signal);
		expect(status).toBe(expected);
		expect(stdout).toMatch(/channel-handshake .*guessed/);
		expect(stdout).toContain('It was interrupted');
		expect(JSON.parse(await readFile(out, 'utf8')).service).toEqual({ tokenPointer: '/data/value' });
	});

	test('SIGINT ends it while the channel gets no answer', async () => {
		const server = createServer((_, response) => {
			response.statusCode = 201;
			response.end('{"token":"foreign-token-0123456789"}');
		});
		const sockets: Socket[] = [];
		const asked = once(server, 'upgrade').then(([, socket]) => sockets.push(socket));
		const port = await listen(server);
		const args = ['probe', '--workflow', 'checkin', '--yes', '--seconds', '60'];
		const running = follow('idv', args, { ...env('ApiKey'), IDV_URL: `http://127.0.0.1:${port}` });
		await asked;
		const interruptedMs = performance.now();
		const { status, stdout } = await running.end('SIGINT');
		for (const socket of sockets) socket.destroy();
		expect(status).toBe(130);
		expect(stdout).toContain('It was interrupted');
		// The handshake itself may take 10 s.
		expect(performance.now() - interruptedMs).toBeLessThan(5000);
	});

	test('a service that goes away ends it with what it has', async () => {
		const service = await givenService({ dialect: { tokenPointer: '/data/value' } });
		const out = join(operator.directory, 'service.json');
		void service.waitFor('heartbeat').then(() => service.close());
		const { status, stdout, stderr } = await idv([...QUICK, '--out', out], env('ApiKey', service));
		expect(status).not.toBe(0);
		expect(stderr).toMatch(/^Error: .*127\.0\.0\.1/);
		expect(stdout).toMatch(/channel-path +.*\/ws\/device +guessed/);
		expect(JSON.parse(await readFile(out, 'utf8')).service).toEqual({ tokenPointer: '/data/value' });
	});

	test('a device may have one channel: the next handshake waits until the last one is closed', async () => {
		const { outcome, settings, open } = await probedForeign((socket, at) => {
			if (at.open > 1) socket.close(4409);
		});
		expect(outcome.status).toBe(0);
		expect(open.most).toBe(1);
		expect(outcome.stdout).toMatch(/channel-handshake .* header +proved/);
		expect(settings.service).toBeUndefined();
	});

	test('a channel that opens and is ended is told as such', async () => {
		const { outcome } = await probedForeign((socket) => setTimeout(() => socket.close(4401), 50));
		expect(outcome.status).not.toBe(0);
		expect(outcome.stderr).toMatch(
			/No channel at \/ws\/device lasted the 1 s of the watch: the service ended it with close code 4401 after 0\.\d s/,
		);
	});

	const answers =
		(head: string, body = '') =>
		(socket: Socket) =>
			socket.end(`HTTP/1.1 ${head}\r\nContent-Length: ${body.length}\r\n\r\n${body}`);

	test.each<[string, (socket: Socket) => void, string, string]>([
		['cut off', (socket) => socket.destroy(), 'uncertain', 'no answer that ends it'],
		['a 502', answers('502 Bad Gateway'), 'uncertain', 'answered 502'],
		['a 401', answers('401 Unauthorized', '{"error":"this code was used"}'), 'used', 'answered 401'],
		['a 404 at every path', answers('404 Not Found'), 'valid', 'answered 404'],
		['a 429 that asks for an hour', answers('429 Slow\r\nRetry-After: 3600'), 'valid', 'no answer that ends it'],
		[
			'a number',
			answers('201 Created\r\nContent-Type: application/json', '{"connection":17}'),
			'uncertain',
			'answered 201',
		],
	])(
		'a code whose answer is %s: what it is worth is told, and the file is written [F652]',
		async (_, answer, worth, found) => {
			const port = await listen(
				createTcpServer((socket) => void socket.on('data', () => answer(socket)).on('error', () => {})),
			);
			const url = `http://127.0.0.1:${port}`;
			const code = `${url}/mobile?authorization=Token%20tr-0123456789abcdefghijklmnopqr&workflowId=checkin`;
			const out = await file(`worth-${port}.json`, 'old');
			const args = ['probe', '--code-file', '-', '--yes', '--json', '--force', '--out', out];
			const { status, stdout } = await idv(args, {}, code);
			expect(status).not.toBe(0);
			const said = JSON.parse(stdout);
			expect(said).toMatchObject({ error: { params: { pairingCode: worth } }, device: null, file: out });
			expect(said.findings).toMatchObject([
				{ point: 'registration-path', certainty: expect.not.stringMatching('proved') },
			]);
			expect(said.findings[0].found).toContain(found);
			expect(JSON.parse(await readFile(out, 'utf8'))).toEqual({ baseUrl: url });
		},
	);

	/** A service that gives each Connection for one channel, and takes back all where one is shown again. */
	async function probedRotating(place: 'header' | 'message' | 'cookie', isStrict: boolean) {
		const good = new Map([['first-connection-0123456789', true]]);
		let issued = 0;
		const server = createServer((request, response) => {
			const isThere = request.url === '/api/device/connection';
			response.writeHead(isThere ? 201 : 404).end(isThere ? '{"token":"first-connection-0123456789"}' : '');
		});
		const channels = new WebSocketServer({ noServer: true });
		server.on('upgrade', (request, raw, head) => {
			const token = String(request.headers.authorization).replace('Connection ', '');
			if (!good.get(token)) {
				if (good.has(token) && isStrict) good.clear();
				raw.end('HTTP/1.1 401 Unauthorized\r\nX-Request-Id: 0123456789abcdef0123456789\r\n\r\n');
				return;
			}
			issued += 1;
			const next = `next-connection-${issued}-0123456789`;
			good.set(token, false).set(next, true);
			channels.once('headers', (headers) => {
				headers.push(`X-Request-Id: ${issued}0123456789abcdef0123456789`);
				if (place === 'header') headers.push(`X-Rotated-Token: ${next}`);
				if (place === 'cookie') headers.push(`Set-Cookie: device=${next}; Path=/; HttpOnly`);
			});
			channels.handleUpgrade(request, raw, head, (socket) => {
				const say = () => socket.send(JSON.stringify({ type: 'rotated', next: { value: next } }));
				if (place === 'message') setTimeout(say, 300);
			});
		});
		const out = join(operator.directory, 'rotating.json');
		const device = join(operator.directory, 'rotating-device.json');
		const variables = { ...env('ApiKey'), IDV_URL: `http://127.0.0.1:${await listen(server)}` };
		const outcome = await idv([...QUICK, '--force', '--out', out, '--device', device], variables);
		const { connection, settings } = JSON.parse(await readFile(device, 'utf8'));
		const { service } = JSON.parse(await readFile(out, 'utf8'));
		return { outcome, service, settings, isGood: good.get(connection) };
	}

	test.each([
		['header', 'header:x-rotated-token', true],
		['message', '/next/value', true],
		['cookie', 'cookie:device', false],
	] as const)(
		'a Connection that is good for one channel: the next one, in a %s, is proved, and the newest handed on [F651]',
		async (place, nextConnection, isStrict) => {
			const { outcome, service, settings, isGood } = await probedRotating(place, isStrict);
			expect(outcome, outcome.stdout).toMatchObject({ status: 0, stderr: '' });
			expect(service).toEqual({ nextConnection });
			expect(settings.service).toEqual({ nextConnection });
			expect(outcome.stdout).toMatch(/next-connection .*proved/);
			expect(isGood).toBe(true);
		},
	);

	test('a handshake is not called proved where none is refused, or where the channel does not last', async () => {
		const anything = await probedForeign(
			() => {},
			() => true,
		);
		expect(anything.outcome.stdout).toMatch(/channel-handshake .* header +guessed/);
		const late = await probedForeign((socket) => setTimeout(() => socket.close(4401), 500));
		expect(late.outcome.stdout).toMatch(/channel-handshake .* header +guessed/);
	});
});
