/** `idv probe`: what it says before, what it never does, how it looks for a channel, and what it stops at. */
import { once } from 'node:events';
import { chmod, mkdir, readFile, symlink, writeFile } from 'node:fs/promises';
import { createServer, type IncomingMessage } from 'node:http';
import { createServer as createTcpServer, type Socket } from 'node:net';
import { join } from 'node:path';
import { setImmediate } from 'node:timers/promises';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { type WebSocket, WebSocketServer } from 'ws';
import { examplesIn } from '../../src/operator/probe-examples.ts';
import { handshakeFindings } from '../../src/operator/probe-findings.ts';
import { readForm } from '../../src/operator/probe-form.ts';
import { guesses, pongsFor } from '../../src/operator/probe-guesses.ts';
import { createPace, MAX_REQUESTS } from '../../src/operator/probe-pace.ts';
import { heartbeatAnswers, namedLife, ranked, tokenPlaces } from '../../src/operator/probe-readings.ts';
import {
	CHANNEL_PATHS,
	channelPlaces,
	findChannel,
	type Handshake,
	type HandshakeAnswer,
	subprotocolHints,
} from '../../src/operator/probe-search.ts';
import type { Life } from '../../src/operator/probe-wire.ts';
import { neededParameters } from '../../src/operator/probe-words.ts';
import type { DialectOptions } from '../../src/service/embedded-service.ts';
import { follow } from '../cli/command.ts';
import { listen } from '../connection/network-peers.ts';
import { createSteppedClock } from '../harness/stepped-clock.ts';
import { givenService } from '../service/fixture.ts';
import { modeOf, operatorOfFile } from './operator.ts';

const operator = operatorOfFile();
const { env, idv, expectRefused, file } = operator;
const QUICK = ['probe', '--workflow', 'checkin', '--yes', '--seconds', '1'];

/** A probe of a service of this dialect. */
async function probed(dialect: DialectOptions, more: readonly string[] = [], options: object = {}) {
	const service = await givenService({ dialect, ...options });
	const out = join(operator.directory, 'service.json');
	const outcome = await idv([...QUICK, '--out', out, ...more], env('ApiKey', service));
	const written = await readFile(out, 'utf8').catch(() => 'null');
	return { service, outcome, out, settings: JSON.parse(written) };
}

/** A service that others wrote, with the token and the path as assumed. @param accepts Default: the header alone or with more. */
async function probedForeign(
	onChannel: (socket: WebSocket, at: { open: number }) => void,
	accepts = (headers: IncomingMessage['headers']) => headers.authorization === 'Connection foreign-token-0123456789',
	answers = (_handshake: number, _path: string): string | undefined => undefined,
) {
	const open = { now: 0, most: 0, handshakes: 0 };
	const server = createServer((request, response) => {
		const isThere = request.url === '/api/device/connection';
		response.statusCode = isThere ? 201 : 404;
		response.end(isThere ? '{"token":"foreign-token-0123456789"}' : '');
	});
	const channels = new WebSocketServer({ noServer: true });
	server.on('upgrade', (request, raw, head) => {
		open.handshakes += 1;
		const answer = answers(open.handshakes, String(request.url).replace(/\?.*/, ''));
		if (answer === '') raw.destroy();
		else if (answer !== undefined) {
			raw.end(`HTTP/1.1 ${answer}${answer.includes('\r\n\r\n') ? '' : '\r\n\r\n'}`);
		}
		if (answer !== undefined) return;
		if (!request.url?.startsWith('/ws/device') || !accepts(request.headers)) {
			raw.end('HTTP/1.1 401 Unauthorized\r\nConnection: close\r\n\r\n');
			return;
		}
		channels.handleUpgrade(request, raw, head, (socket) => {
			open.now += 1;
			open.most = Math.max(open.most, open.now);
			socket.once('close', () => {
				open.now -= 1;
			});
			onChannel(socket, { open: open.now });
		});
	});
	const port = await listen(server);
	const out = join(operator.directory, 'foreign.json');
	const variables = { ...env('ApiKey'), IDV_URL: `http://127.0.0.1:${port}` };
	const outcome = await idv([...QUICK, '--force', '--out', out], variables);
	return { outcome, open, settings: JSON.parse(await readFile(out, 'utf8')) };
}

describe('what it does', () => {
	test('without --yes it says what it would create, and sends nothing', async () => {
		const before = operator.service.requests.length;
		const { status, stdout, stderr } = await idv(['probe', '--workflow', 'checkin'], env('ApiKey'));
		expect({ status, stdout }).toEqual({ status: 64, stdout: '' });
		expect(stderr).toMatch(
			/^Error: Nothing was sent\. Registers the device idv-probe-[0-9a-f]{8} for workflow checkin at http:\S+: one device connection, which stays until it ends\. Uses the credential from IDV_AUTHORIZATION\. Creates no API key\. Sends at most 30 requests, ten in a minute, watches the channel for 60 s, and runs a device with the settings for as long\. Run it again with --yes\. \[usage\]\n$/,
		);
		expect(operator.service.requests).toHaveLength(before);
	});

	test('it asks for a workflow, and leaves a file that is there alone', async () => {
		await expectRefused(
			{ status: 64, code: 'usage', words: /No workflow is named/ },
			['probe', '--yes'],
			env('ApiKey'),
		);
		const out = await file('service.json', '{}');
		const args = [...QUICK, '--out', out];
		await expectRefused({ status: 64, code: 'usage', words: /service\.json is there already/ }, args, env('ApiKey'));
		expect(await readFile(out, 'utf8')).toBe('{}');
	});

	test.each([
		['--out', '/nowhere/at/all.json', /it is not there/],
		['--device', '/nowhere/at/all.json', /it is not there/],
		['--out', '/dev/full', /it is not a regular file/],
	])('a file that cannot be written is found before anything is asked: %s %s', async (flag, place, words) => {
		await expectRefused({ status: 64, code: 'usage', words }, [...QUICK, flag, place, '--force'], env('ApiKey'));
	});

	test.each([
		['--out and --device', ['--out', 'y.json', '--device', './y.json']],
		['--out and --device', ['--out', 'here/y.json', '--device', 'link/y.json', '--force']],
		['--out and --transcript', ['--out', 'here/there.json', '--transcript', 'link.json', '--force']],
		['--headers-file and --out', ['--headers-file', 'here/there.json', '--out', 'link.json', '--force']],
	])(
		'files that are one, whichever way they are named, are refused before anything is sent: %s %j [F970]',
		async (named, given) => {
			await mkdir(join(operator.directory, 'here'));
			await writeFile(join(operator.directory, 'here/there.json'), '');
			await symlink('here', join(operator.directory, 'link'));
			await symlink('here/there.json', join(operator.directory, 'link.json'));
			const before = operator.service.requests.length;
			const args = given.map((one) => (one.startsWith('--') ? one : `${operator.directory}/${one}`));
			const words = new RegExp(`${named} name the same file`);
			await expectRefused({ status: 64, code: 'usage', words }, [...QUICK, ...args], env('ApiKey'));
			expect(operator.service.requests).toHaveLength(before);
		},
	);

	test.each([
		['--subprotocol', 'a b', /--subprotocol must be the name of a WebSocket subprotocol/],
		['--channel-path', 'ws/device', /--channel-path must be a path such as \/ws\/device/],
		['--channel-path', '/ws/{nothing}', /--channel-path names \{nothing\}, which nothing fills in/],
		['--query-name', 'a b', /--query-name must be the name of a query parameter/],
		['--header', 'X-Tenant', /--header must be Name: value/],
		['--header', 'Authorization: Basic abc', /--header names Authorization, which the agent sets itself/],
		['--out', 'absent/', /it is not a regular file/],
		['--out', 'file.txt/y.json', /is not a directory/],
	])('a value that cannot be used is refused before a code is spent: %s %j [F971]', async (flag, value, words) => {
		await file('file.txt', '');
		const before = operator.service.requests.length;
		const given = flag === '--out' ? `${operator.directory}/${value}` : value;
		await expectRefused({ status: 64, code: 'usage', words }, [...QUICK, flag, given], env('ApiKey'));
		expect(operator.service.requests).toHaveLength(before);
	});

	test('headers that the service requires are named when they miss, and go with every request when they are given [F972]', async () => {
		const server = createServer((request, response) => {
			const { 'x-device-api': api, 'x-key': key } = request.headers;
			const isThere = request.url === '/api/device/connection';
			const body =
				api !== '2'
					? '{"success":false,"error":"missing header X-Device-Api: 2"}'
					: key !== 'secret-of-the-gateway'
						? '{"error":"X-Key is required"}'
						: '{"token":"foreign-token-0123456789"}';
			response.writeHead(!isThere ? 404 : body.includes('error') ? 400 : 201).end(isThere ? body : '');
		});
		const channels = new WebSocketServer({ noServer: true });
		server.on('upgrade', (request, raw, head) => {
			const { 'x-device-api': api, 'x-key': key } = request.headers;
			if (api === '2' && key === 'secret-of-the-gateway') channels.handleUpgrade(request, raw, head, () => {});
			else raw.end('HTTP/1.1 400 Bad\r\nContent-Length: 0\r\nConnection: close\r\n\r\n');
		});
		const variables = { ...env('ApiKey'), IDV_URL: `http://127.0.0.1:${await listen(server)}` };
		const without = await idv(QUICK, variables);
		expect(without.stderr).toMatch(
			/names the header X-Device-Api: .* --header 'X-Device-Api: VALUE' .*service\.headers/,
		);
		const secret = await file('headers.txt', 'X-Key: secret-of-the-gateway\n');
		const out = join(operator.directory, 'headers.json');
		const given = ['--header', 'X-Device-Api: 2', '--headers-file', secret];
		const outcome = await idv([...QUICK, '--out', out, ...given], variables);
		expect(outcome).toMatchObject({ status: 0, stderr: '' });
		expect(outcome.stdout).not.toContain('secret-of-the-gateway');
		expect(JSON.parse(await readFile(out, 'utf8')).service).toEqual({
			headers: ['X-Device-Api: 2'],
			headersFile: secret,
		});
	});

	test.each([['482913'], ['Token 482913'], ['12345678901234567890'], ['AB12:CD34'], ['AB12-CD34'], ['a1B2c3==']])(
		'a code of any form is one where a person says so: %s [F973]',
		async (code) => {
			let seen: string | undefined;
			const server = createServer((request, response) => {
				seen = request.headers.authorization;
				response.writeHead(401).end('{"error":"unknown"}');
			});
			const url = `http://127.0.0.1:${await listen(server)}`;
			const args = ['--url', url, ...QUICK, '--code-file', '-'];
			expect((await idv(args, { XDG_CONFIG_HOME: operator.directory }, `${code}\n`)).status).not.toBe(78);
			expect(seen).toBe(`Token ${code.replace('Token ', '')}`);
		},
	);

	test.each([['https://id.exam'], ['//id.example'], ['en%20abcd1234'], ['eyJhbGciOiJIUz'], ['two words'], ['abc']])(
		'a piece of a code is not sent as one: %s [F974]',
		async (code) => {
			const args = ['--url', 'https://id.example', ...QUICK, '--code-file', '-', '--json'];
			const { stdout } = await idv(args, { XDG_CONFIG_HOME: operator.directory }, code);
			expect(stdout).toContain('There is no pairing code in standard input');
			expect(stdout).toContain('one word of at least four letters, digits and');
		},
	);

	test('each answer of the path that was there is told, and where a registration has moved the setting for it [F975]', async () => {
		const turns = ['404 Not Found', '500 Broken', '401 Unauthorized'];
		const { outcome } = await probedForeign(
			() => {},
			undefined,
			(handshake, path) => `${path === '/ws/device' ? turns[handshake % 3] : '404 Not Found'}\r\nContent-Length: 0`,
		);
		expect(outcome.stderr).toMatch(
			/\/ws\/device answered (?=[^,]*(?:, [^,]*)? or )[^.]*401[^.]*, every other path 404/,
		);
		const moved = createServer((_, response) =>
			response.writeHead(308, { location: '/v2/api/device/connection' }).end(),
		);
		const variables = { ...env('ApiKey'), IDV_URL: `http://127.0.0.1:${await listen(moved)}` };
		const { stderr } = await idv(QUICK, variables);
		expect(stderr).toMatch(
			/answered 308 and points at its own path .* service\.registrationPath to \/v2\/api\/device\/connection/,
		);
		expect(stderr).not.toContain('channelPath');
	});

	/** A service that takes the registration at `path` as `answers` says, and opens each channel. */
	async function registering(answers: (path: string, times: number) => [number, object, string]) {
		const asked: string[] = [];
		const server = createServer((request, response) => {
			const path = String(request.url);
			asked.push(`${path} ${request.headers.authorization}`);
			const [status, headers, body] = answers(path, asked.length);
			response.writeHead(status, { ...headers }).end(body);
		});
		const channels = new WebSocketServer({ noServer: true });
		server.on('upgrade', (request, raw, head) => {
			if (request.headers.authorization?.startsWith('Connection '))
				channels.handleUpgrade(request, raw, head, () => {});
			else raw.end('HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n');
		});
		const url = `http://127.0.0.1:${await listen(server)}`;
		const out = join(operator.directory, 'registering.json');
		const args = ['--url', url, ...QUICK, '--out', out, '--force', '--code-file', '-'];
		const outcome = await idv(args, { XDG_CONFIG_HOME: operator.directory }, 'code-of-12345678');
		const settings = JSON.parse(await readFile(out, 'utf8').catch(() => 'null'));
		return { outcome, settings, asked: asked.filter((one) => one.endsWith('Token code-of-12345678')) };
	}

	test('a registration that is answered 202 with a time is sent once more then, and one that is not done after that is told in the words of the service [F992]', async () => {
		const wait = { 'content-type': 'application/json', 'retry-after': '1' };
		const words = '{"result":"accepted","reason":"device is being enrolled: repeat the same request"}';
		const done = await registering((_, times) =>
			times === 1 ? [202, wait, words] : [201, {}, '{"token":"foreign-token-0123456789"}'],
		);
		expect(done.outcome).toMatchObject({ status: 0, stderr: '' });
		expect(done.asked).toHaveLength(2);
		const never = await registering(() => [202, wait, words]);
		expect(never.asked).toHaveLength(2);
		expect(never.outcome.stderr).toMatch(
			/has not finished the registration of this device: device is being enrolled: repeat the same request.* Wait 1 s, as the service asks\. .*Try the same code again/,
		);
		expect(never.outcome.stdout + never.outcome.stderr).not.toMatch(/is used up|tokenPointer/);
		const untimed = await registering(() => [202, {}, words]);
		expect(untimed.asked).toHaveLength(1);
	});

	test('a registration that has moved at the same address is followed once, and becomes a setting; the code goes nowhere else [F998]', async () => {
		const moved = await registering((path) =>
			path === '/v3/enrol' ? [201, {}, '{"token":"foreign-token-0123456789"}'] : [308, { location: '/v3/enrol' }, ''],
		);
		expect(moved.outcome).toMatchObject({ status: 0, stderr: '' });
		expect(moved.settings.service).toEqual({ registrationPath: '/v3/enrol' });
		const away = await registering((path) =>
			path === '/v3/enrol'
				? [201, {}, '{"token":"foreign-token-0123456789"}']
				: [307, { location: 'http://localhost:1/v3/enrol' }, ''],
		);
		expect(away.asked).toHaveLength(1);
		expect(away.outcome.status).not.toBe(0);
	});

	test('a file with headers that others can read, or without a header, is refused before a code is spent; the report says to take it along [F995]', async () => {
		const before = operator.service.requests.length;
		for (const [text, mode, words] of [
			['X-Key: secret-of-the-gateway\n', 0o644, /\(service\.headersFile\) is not safe/],
			['# none\n', 0o600, /has no header in it\. Write one header on each line/],
		] as const) {
			const headers = await file('headers-bad.txt', text);
			await chmod(headers, mode);
			const { status, stderr } = await idv([...QUICK, '--headers-file', headers], env('ApiKey'));
			expect(status).not.toBe(0);
			expect(stderr).toMatch(words);
		}
		const absent = await idv([...QUICK, '--headers-file', '/nowhere/at/all'], env('ApiKey'));
		expect(absent.stderr).toMatch(/Put the file there, .* with one header on each line/);
		expect(operator.service.requests).toHaveLength(before);
		const good = await file('headers-good.txt', 'X-Key: secret-of-the-gateway\n');
		const out = join(operator.directory, 'taken.json');
		const { stdout } = await idv([...QUICK, '--force', '--out', out, '--headers-file', good], env('ApiKey'));
		expect(stdout).toContain(`The settings name ${good}, and none of its headers: put that file`);
	});

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
		['a number', answers('201 Created\r\nContent-Type: application/json', '{"connection":17}'), 'used', 'answered 201'],
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

// biome-ignore lint/suspicious/noExplicitAny: messages of a service.
type Dictionary = any;

describe('a service that others wrote', () => {
	const every = (socket: WebSocket, ms: number, say: () => void) => {
		const timer = setInterval(say, ms);
		socket.once('close', () => clearInterval(timer));
	};

	test('one that answers every unknown message with an error is not flooded, and no error is taken for a ping [F641]', async () => {
		let received = 0;
		const { outcome, settings } = await probedForeign((socket) => {
			setTimeout(() => socket.close(4408, 'idle'), 700);
			socket.on('message', () => {
				received += 1;
				socket.send('{"type":"error","message":"unknown message type"}');
			});
		});
		expect(outcome.stdout).not.toContain('pingKind');
		expect(Number(/messages on channels: (\d+)/.exec(outcome.stdout)?.[1])).toBe(received);
		expect(settings.service).toBeUndefined();
	});

	test.each([
		['{"op":"login","payload":{"connection":"<token>"}}', (one: Dictionary) => one.payload?.connection],
		[
			'{"type":"connection_init","payload":{"authorization":"Connection <token>"}}',
			(one: Dictionary) => one.payload?.authorization?.slice(11),
		],
		[
			'{"jsonrpc":"2.0","id":1,"method":"device.attach","params":{"accessKey":"<token>"}}',
			(one: Dictionary) => one.method === 'device.attach' && one.params?.accessKey,
		],
	])('the example %s is sent as it is written, and errors do not say where kinds are', async (example, tokenIn) => {
		const { outcome, settings } = await probedForeign((socket) => {
			let isIn = false;
			setTimeout(() => {
				if (isIn) return;
				socket.send(JSON.stringify({ op: 'error', text: 'log in first', example: JSON.parse(example) }));
				socket.close(4401, 'please log in');
			}, 400);
			socket.on('message', (frame) => {
				isIn ||= tokenIn(JSON.parse(String(frame))) === 'foreign-token-0123456789';
			});
			let no = 300;
			every(socket, 150, () => {
				no += 1;
				const name = no % 2 === 0 ? 'visit.open' : 'visit.shut';
				if (isIn) socket.send(JSON.stringify({ what: { name }, no, id: 'kiosk-7', type: 'v1' }));
			});
		});
		expect(outcome, outcome.stdout).toMatchObject({ status: 0, stderr: '' });
		expect(settings.service).toEqual({
			firstMessages: [JSON.parse(example.replace('<token>', '{token}'))],
			kindPointer: '/what/name',
			notificationIdPointer: '/no',
		});
		expect(outcome.stdout).toMatch(/Notifications +visit\.\w+ \(\d+\), visit\.\w+ \(\d+\); (\d+) of \1 with an id/);
	});

	test('an acknowledgement names the field of the notification that the example does', async () => {
		let seq = 40;
		const { outcome, settings } = await probedForeign((socket) => {
			const open = new Map<number, { try: number }>();
			every(socket, 150, () => {
				for (const one of open.values()) {
					one.try += 1;
					socket.send(JSON.stringify(one));
				}
				if ([...open.values()].some((one) => one.try > 3))
					return socket.close(4100, 'unacknowledged: send {"op":"ack","seq":"<event.seq>"}');
				seq += 1;
				const event = { name: seq % 2 === 0 ? 'visit.open' : 'visit.shut', seq, id: `event-${seq}` };
				open.set(seq, { op: 'event', event, try: 1 } as { try: number });
				socket.send(JSON.stringify(open.get(seq)));
			});
			socket.on('message', (frame) => {
				const { op, seq: acknowledged } = JSON.parse(String(frame));
				if (op === 'ack') open.delete(acknowledged);
			});
		});
		expect(outcome, outcome.stdout).toMatchObject({ status: 0, stderr: '' });
		expect(settings.service).toEqual({
			ackBody: { op: 'ack', seq: '{id}' },
			kindPointer: '/event/name',
			notificationIdPointer: '/event/seq',
		});
	});

	test('a registration at the path that a 404 names is tried, and no code is lost by it', async () => {
		const server = createServer((request, response) => {
			const isThere = request.url === '/v2/terminals/enroll';
			const said = isThere
				? '{"token":"foreign-token-0123456789"}'
				: '{"error":"not found","hint":"enroll with POST /v2/terminals/enroll"}';
			response.writeHead(isThere ? 201 : 404).end(said);
		});
		const upgraded = new WebSocketServer({ server, path: '/ws/device' });
		const out = join(operator.directory, 'named.json');
		const variables = { ...env('ApiKey'), IDV_URL: `http://127.0.0.1:${await listen(server)}` };
		const outcome = await idv([...QUICK, '--force', '--out', out], variables);
		upgraded.close();
		expect(outcome).toMatchObject({ status: 0, stderr: '' });
		expect(JSON.parse(await readFile(out, 'utf8')).service).toEqual({ registrationPath: '/v2/terminals/enroll' });
	});

	test('an id that every notification has is no redelivery', async () => {
		let no = 0;
		const { outcome } = await probedForeign((socket) => {
			every(socket, 150, () => {
				no += 1;
				socket.send(JSON.stringify({ kind: 'visit.open', id: 'device-1', at: { row: no } }));
			});
		});
		expect(outcome.stdout).not.toContain('ackBody');
	});
});

test.each([
	['{"op":"subscribe","to":"<shop>"}', []],
	[
		'{"op":"login","as":{"device":"<deviceId>","key":"<token>"}}',
		['{"op":"login","as":{"device":"{deviceId}","key":"{token}"}}'],
	],
	["{op:'login', by:[{token:'x'}]}", ['{"op":"login","by":[{"token":"{token}"}]}']],
])('of the example %s it is sent %j', (example, sent) => {
	expect(examplesIn(`please send ${example} first`, 'first', /login|subscribe/).map(({ text }) => text)).toEqual(sent);
});

test.each<[string, 'first' | 'answer' | 'heartbeat', RegExp, string[]]>([
	[
		'"op":10,"d":{"every":15000,"beat":{"op":1,"d":"<s>"},"identify":{"op":2,"d":{"token":"<token>"}}}}',
		'first',
		/identify/,
		['{"op":2,"d":{"token":"{token}"}}'],
	],
	['3 events were not acknowledged with {"m":"seen","id":<id>}', 'answer', /acknowl/, ['{"m":"seen","id":"{id}"}']],
	['"acknowledge":{"ack":"<n>"},"note":"all before"}', 'answer', /\back/, ['{"ack":"{id}"}']],
	['"body":{"acknowledge":{"ack":"<n>"},"note":"all before"}}', 'answer', /\back/, ['{"ack":"{id}"}']],
])('what a service writes out is taken as it is, however deep: %s [F999]', (words, purpose, about, expected) => {
	expect(examplesIn(words, purpose, about, [{ n: 1 }]).map(({ text }) => text)).toEqual(expected);
});

test.each([
	['channels are at /devices/<deviceId>/channel', '/devices/{deviceId}/channel'],
	['see /ws/<string:device_id>', '/ws/{deviceId}'],
	['<a href="/live/feed">here</a>', '/live/feed'],
])('the path that %s names is %s', (text, expected) => {
	const asked = { baseUrl: 'http://127.0.0.1:1', deviceId: 'd-1', workflowId: 'checkin' };
	expect(channelPlaces(text, asked).map(({ place }) => place)).toEqual([expected]);
});

test('an acknowledgement whose placeholder nothing fills is not sent', () => {
	const sent = (body: string) => examplesIn(`send ${body}`, 'answer', /ack/, [{ event: { seq: 7, lane: 'x' } }]);
	expect(sent('{"op":"ack","who":"<person>"}')).toEqual([]);
	expect(sent('{"op":"ack","seq":<seq>}')).toEqual([{ text: '{"op":"ack","seq":"{id}"}', pointer: '/event/seq' }]);
	expect(sent('{"op":"ack","of":{"lane":"<event.lane>"}}')).toMatchObject([{ pointer: '/event/lane' }]);
});

describe('what it does not write', () => {
	const chatter = ['check.completed', 'poll.started', 'probe.alive', 'ping', 'keepalive', 'heartbeat'];

	test('notifications are not ignored for their names', async () => {
		const { settings } = await probedForeign((socket) => {
			for (const type of chatter) {
				const timer = setInterval(() => socket.send(JSON.stringify({ type })), 190);
				socket.once('close', () => clearInterval(timer));
			}
		});
		expect(settings.service).toBeUndefined();
	});

	test('one end of the channel makes no ping of the message before it', async () => {
		let ended = false;
		const { settings } = await probedForeign((socket) => {
			if (ended) return;
			ended = true;
			setTimeout(() => socket.send('{"type":"session.ended","id":"1"}'), 400);
			setTimeout(() => socket.close(4000), 500);
		});
		expect(settings.service).toBeUndefined();
	});

	test('a life that every channel has makes no ping of the message before its end', async () => {
		const { settings } = await probedForeign((socket) => {
			setTimeout(() => socket.send('{"type":"session.ended","id":"1"}'), 400);
			setTimeout(() => socket.close(4000), 500);
		});
		expect(settings.service).toBeUndefined();
	});

	test.each([
		{ type: 'message', about: 'heartbeat.ok' },
		{ type: 'session.started', id: 'n-1' },
	])('%o after each heartbeat ignores no kind: others of the kind may say more', async (answer) => {
		const { settings } = await probedForeign((socket) => {
			socket.on('message', () => socket.send(JSON.stringify(answer)));
		});
		expect(settings.service).toBeUndefined();
	});

	test('a notification that each heartbeat sets off is kept, an answer to it is ignored', async () => {
		const { settings } = await probedForeign((socket) => {
			let session = 100;
			socket.on('message', (frame) => {
				const { sequence } = JSON.parse(String(frame));
				socket.send(JSON.stringify({ type: 'got', re: sequence, at: new Date().toISOString() }));
				session += 7;
				socket.send(JSON.stringify({ type: 'session.waiting', session }));
			});
		});
		expect(settings.service).toEqual({ ignoreKinds: ['got'] });
	});
});

describe('its pace', () => {
	/** Asks as often as it may until it has been answered so often, second by second. @returns when each request was made, in seconds. */
	async function asking(
		answers: readonly {
			readonly status: number;
			readonly retryAfter?: string;
			readonly unanswered?: { readonly code: string };
		}[],
	) {
		const clock = createSteppedClock();
		const beganMs = clock.monotonicMs();
		const pace = createPace('service', clock, new AbortController().signal, () => {});
		const atSeconds: number[] = [];
		const asked = async () => {
			const { status = 200, retryAfter, unanswered } = answers[atSeconds.length] ?? {};
			atSeconds.push(Math.round((clock.monotonicMs() - beganMs) / 1000));
			return { status, retryAfter, ...(unanswered && { unanswered }) };
		};
		const all = (async () => {
			while (atSeconds.length < 25) await pace.ask(asked);
		})();
		const isOver = () => true;
		while (!(await Promise.race([all.then(isOver, isOver), setImmediate(false)]))) clock.advance(1000);
		await all;
		return atSeconds;
	}

	test('no more than ten requests in a minute: the eleventh waits', async () => {
		const atSeconds = await asking([]);
		expect(atSeconds).toHaveLength(25);
		for (const [index, second] of atSeconds.entries()) {
			const tenth = atSeconds[index - 10];
			if (tenth !== undefined) expect(second - tenth).toBeGreaterThanOrEqual(61);
		}
		expect(atSeconds.at(-1)).toBe(122);
	});

	test('a 429 puts off every further request for as long as it asks', async () => {
		const atSeconds = await asking([{ status: 200 }, { status: 429, retryAfter: '90' }]);
		expect(atSeconds.slice(0, 4)).toEqual([0, 0, 90, 90]);
	});

	test.each([[500], [502], [503], [504], [0]])(
		'%i without a word of when is asked again after 5 s and 10 s, four times in all',
		async (status) => {
			const answer = { status, ...(status === 0 && { unanswered: { code: 'connection-lost' } }) };
			const atSeconds = await asking(Array.from({ length: 8 }, () => answer));
			expect(atSeconds.slice(0, 8)).toEqual([0, 5, 15, 15, 20, 30, 30, 30]);
		},
	);

	test('a signal ends a wait with its reason', async () => {
		const over = new AbortController();
		const clock = createSteppedClock();
		const waits: number[] = [];
		const pace = createPace('service', clock, over.signal, (seconds) => waits.push(seconds));
		const ask = () => pace.ask(async () => ({ status: 200, retryAfter: undefined }));
		for (let sent = 0; sent < 10; sent += 1) await ask();
		const eleventh = ask();
		over.abort(new Error('over'));
		await expect(eleventh).rejects.toThrow('over');
		expect(pace.used).toBe(10);
		expect(waits).toEqual([61]);
		expect(clock.pending).toBe(0);
	});
});

/** Counts the handshakes until a service is satisfied. */
function search(accepts: (way: Handshake) => Partial<HandshakeAnswer> | number): {
	found: Handshake | null;
	tried: number;
} {
	const looking = findChannel(CHANNEL_PATHS, 1);
	let step = looking.next();
	let tried = 0;
	while (!step.done) {
		tried += 1;
		const answer = accepts(step.value);
		const { status = 404, ...more } = typeof answer === 'number' ? { status: answer } : answer;
		const usual = { isPage: false, hints: [], subprotocol: null, fingerprint: String(status) };
		step = looking.next({ ...usual, status, ...more });
	}
	return { found: step.value, tried };
}

describe('the search for the channel', () => {
	const names = [
		'authorization',
		'token',
		'access_token',
		'auth',
		'connectionToken',
		'connection_token',
		'connection',
		'key',
	];

	test('ends within the requests that it may make, on whatever path, by whatever parameter', () => {
		const drawn = fc.record({
			path: fc.constantFrom(...CHANNEL_PATHS),
			name: fc.constantFrom(...names),
			form: fc.constantFrom('scheme' as const, 'token' as const),
			refusal: fc.constantFrom(401, 403, 404, 410),
		});
		fc.assert(
			fc.property(drawn, ({ path, name, form, refusal }) => {
				const { found, tried } = search((way) => {
					if (way.path !== path) return 404;
					const isThere = way.inQuery.some((place) => place.name === name && place.form === form);
					return isThere ? 101 : { status: refusal, fingerprint: 'refused' };
				});
				expect(found).toMatchObject({ path, inHeader: false, inQuery: [{ name, form }] });
				expect(tried).toBeLessThan(MAX_REQUESTS - 4);
			}),
		);
	});

	test('a service that refuses every wrong path with 403 is found all the same', () => {
		const { found } = search(({ path, inHeader }) => (path === '/ws' && inHeader ? 101 : 403));
		expect(found).toMatchObject({ path: '/ws', inHeader: true, inQuery: [] });
	});

	test('two credentials at once may be too many', () => {
		const { found } = search(({ path, inHeader, inQuery }) =>
			path !== '/ws/device' ? 404 : inHeader && inQuery.length === 0 ? 101 : 401,
		);
		expect(found).toMatchObject({ inHeader: true, inQuery: [] });
	});

	test('a subprotocol that the refusal names is offered first', () => {
		const hints = subprotocolHints(undefined, 'This channel requires the subprotocol acme.v7.');
		expect(hints).toEqual(['acme.v7']);
		const { found } = search(({ subprotocols }) =>
			subprotocols.includes('acme.v7') ? { status: 101, subprotocol: 'acme.v7' } : { status: 400, hints },
		);
		expect(found).toMatchObject({ inHeader: true, subprotocols: ['acme.v7'] });
	});

	test.each([
		['{"message":"Sec-WebSocket-Protocol must offer idv.device.v1"}', 'idv.device.v1'],
		['{"error":"subprotocol_required","detail":"Offer the subprotocol identity.2"}', 'identity.2'],
		['Missing subprotocol: kiosk-v3', 'kiosk-v3'],
		['{"error":"unsupported","supported":["idv.v2.json"]} subprotocol', 'idv.v2.json'],
		["The subprotocol 'acme' is required", 'acme'],
	])('of the words %s the subprotocol is offered as it is written [F1010]', (words, name) => {
		expect(subprotocolHints(undefined, words)).toContain(name);
		if (name.includes('.')) expect(subprotocolHints(undefined, words)[0]).toBe(name);
	});

	test('a subprotocol that was given is not called proved: no handshake without it was made [F1010]', () => {
		const way = { path: '/ws', candidate: 0, inHeader: true, inQuery: [], subprotocols: ['acme'] };
		const certainty = (given?: string) =>
			handshakeFindings(way, 'proved', given).find(({ point }) => point === 'subprotocol')?.certainty;
		expect([certainty(), certainty('acme')]).toEqual(['proved', 'guessed']);
	});

	test.each(CHANNEL_PATHS.slice(0, 5))('a path that is only there without a query is found: %s [F969]', (own) => {
		const { found, tried } = search(({ path, inQuery }) => (path === own && inQuery.length === 0 ? 101 : 404));
		expect(found).toMatchObject({ path: own, inHeader: true, inQuery: [] });
		expect(tried).toBeLessThan(MAX_REQUESTS - 8);
	});

	test('gives up where nothing is', () => {
		expect(search(() => 404).found).toBeNull();
	});
});

test.each([
	['{"expiresIn":3600}', 3600],
	['{"data":{"expires_at":"2030-01-01T01:00:00Z"}}', 3600],
	['{"ttl":5}', null],
	['plain', null],
])('the life in %s is %s', (body, life) => expect(namedLife(body, Date.UTC(2030, 0, 1))).toBe(life));

test('of the texts of an answer a JWT comes first, and what was sent is none', () => {
	const jwt = `eyJhbGciOiJub25lIn0.${btoa('{"exp":1}')}.x`;
	const texts = [
		{ place: '/refreshToken', text: 'r-0123456789abcdefghij' },
		{ place: '/device', text: 'kiosk-0123456789abcdefghij' },
		{ place: '/a/b', text: jwt },
	];
	expect(tokenPlaces(texts, ['kiosk-0123456789abcdefghij']).map(({ pointer }) => pointer)).toEqual([
		'/a/b',
		'/refreshToken',
	]);
});

describe('the messages of a channel', () => {
	const BEATS = [100, 500, 700];
	const life = (messages: readonly (readonly [number, object])[], ended: Life['ended'] = null): Life => ({
		...{ refusal: null, isOpen: true, headers: {}, subprotocol: null, pings: 1, pongs: 1, failure: null },
		heard: messages.map(([atMs, message]) => ({ atMs, frame: { type: 'text', text: JSON.stringify(message) } })),
		said: BEATS.map((atMs) => ({ atMs, text: '{"type":"heartbeat"}' })),
		ended,
	});
	const answersIn = (messages: readonly (readonly [number, object])[], beats = BEATS) =>
		heartbeatAnswers({ ...life(messages), said: beats.map((atMs) => ({ atMs, text: 'beat' })) }, 50, {});
	const answering = (...fields: [object, object, object]) =>
		[110, 510, 710].map((atMs, index) => [atMs, { type: 'got', ...fields[index] }] as const);

	test('what follows each heartbeat, and only then, is an acknowledgement', () => {
		const got = answering({}, {}, {});
		expect(answersIn([...got, [300, { type: 'news' }]])).toEqual(['got']);
		expect(answersIn([...got, [900, { type: 'got' }]])).toEqual([]);
		expect(answersIn(got.slice(1))).toEqual([]);
		expect(answersIn([...got.slice(1), [120, { type: 'got' }], [720, { type: 'got' }]])).toEqual([]);
		expect(answersIn(got.slice(0, 2), [100, 500])).toEqual([]);
	});

	test('an acknowledgement may say the number of the heartbeat and the time, and nothing else that changes', () => {
		const at = () => ({ at: new Date().toISOString(), ms: Date.now() });
		expect(answersIn(answering({ n: 1, ...at() }, { n: 2, ...at() }, { n: 3, ...at() }))).toEqual(['got']);
		expect(answersIn(answering({ session: 'a' }, { session: 'b' }, { session: 'c' }))).toEqual([]);
		expect(answersIn(answering({ session: 7 }, { session: 9 }, { session: 8 }))).toEqual([]);
	});

	test('an answer without a kind is never ignored: notifications without one would be as well', () => {
		expect(answersIn([110, 510, 710].map((atMs) => [atMs, { ok: true }] as const))).toEqual([]);
	});

	test.each<[readonly unknown[], object]>([
		[[{ meta: { op: 'x', uuid: 'u-1' } }], { kindPointer: '/meta/op', notificationIdPointer: '/meta/uuid' }],
		[[{ type: 'session.started', id: 'n-1' }], {}],
		[[{ op: 0, t: 'SESSION_STARTED', s: 7 }], { kindPointer: '/t' }],
		[
			[
				{ type: 'notification', data: { event: 'session.started', eventId: 4, sessionId: 's-1' } },
				{ type: 'notification', data: { event: 'session.ended', eventId: 5, sessionId: 's-1' } },
			],
			{ kindPointer: '/data/event', notificationIdPointer: '/data/eventId' },
		],
		[
			[
				[
					{ kind: 7, seq: 1 },
					{ kind: 8, seq: 2 },
				],
			],
			{ frameContents: 'array', notificationIdPointer: '/seq' },
		],
	])('%j is read by %j', (documents, settings) => {
		const { heard } = life(documents.map((document, index) => [index, document as object]));
		expect(readForm(heard)).toEqual(settings);
	});

	test('answers to the device and errors do not say where notifications have their kind, however many they are', () => {
		const errors = [110, 300, 510, 600, 710].map((atMs) => [atMs, { op: 'error', why: 'unknown' }] as const);
		const news = [[400, { what: { name: 'visit.open' } }] as const, [900, { what: { name: 'visit.shut' } }] as const];
		expect(readForm(ranked(life([...errors, ...news]), 0, 50))).toEqual({ kindPointer: '/what/name' });
		const answers = [110, 510, 710].map((atMs) => [atMs, { op: 'got', n: atMs }] as const);
		expect(readForm(ranked(life([...answers, ...news]), 0, 50))).toEqual({ kindPointer: '/what/name' });
	});

	test('JSON in binary frames is told by what they hold', () => {
		const bytes = new TextEncoder().encode('{"type":"session.started","id":"1"}');
		expect(readForm([{ atMs: 1, frame: { type: 'binary', bytes } }])).toEqual({ jsonInBinary: true });
		expect(readForm([{ atMs: 1, frame: { type: 'binary', bytes: new Uint8Array([1, 2]) } }])).toEqual({});
	});

	test('what the service says at the end of a channel decides what is tried first', () => {
		const firstTried = (reason: string) => {
			const ended = { atMs: 800, code: 4400, reason };
			const messages = [[300, { type: 'session.started', id: 'n-1' }] as const, [400, { type: 'there?' }] as const];
			const seen = life(messages, ended);
			return guesses({ life: seen, form: {}, settleMs: 50, settings: {} })[0];
		};
		expect(firstTried('subscribe first')).toMatchObject({
			settings: { firstMessages: [expect.stringContaining('"subscribe"')] },
		});
		expect(firstTried('message n-1 was not acknowledged')).toMatchObject({ point: 'acknowledgement' });
		expect(firstTried('no pong')).toMatchObject({ point: 'application-ping' });
	});

	test('a channel that lasts and brings each message once needs nothing', () => {
		const messages = [1, 2, 3].map((id) => [id * 100, { type: 'session.started', id }] as const);
		expect(guesses({ life: life(messages), form: {}, settleMs: 50, settings: {} })).toEqual([]);
		const again = guesses({ life: life([...messages, ...messages]), form: {}, settleMs: 50, settings: {} });
		expect(new Set(again.map(({ point }) => point))).toEqual(new Set(['acknowledgement']));
	});

	test('of two kinds before the end the one that answers heartbeats is the last to be taken for a ping', () => {
		const ended = { atMs: 800, code: 4408, reason: 'ping not answered' };
		const messages = [[100, { type: 'heartbeat.ack', sequence: 1 }] as const, [300, { type: 'ping' }] as const];
		const all = guesses({ life: life(messages, ended), form: {}, settleMs: 50, settings: {} });
		expect(all[0]).toMatchObject({ settings: { pingKind: 'ping' } });
	});

	test('a kind that comes at once after each heartbeat is taken for a ping after one that does not', () => {
		const messages = [
			[105, { type: 'xyz', sequence: 1 }] as const,
			[505, { type: 'xyz', sequence: 2 }] as const,
			[400, { type: 'are-you-there' }] as const,
		];
		const all = guesses({
			life: life(messages, { atMs: 800, code: 4408, reason: '' }),
			...{ form: {}, settleMs: 50, settings: {} },
		});
		const pings = all.filter(({ point }) => point === 'application-ping');
		expect(pings[0]).toMatchObject({ settings: { pingKind: 'are-you-there' } });
	});

	test('an answer to heartbeats may have a number as its kind', () => {
		const { heard, said, ended } = life(answering({ type: 204 }, { type: 204 }, { type: 204 }));
		expect(heartbeatAnswers({ heard, said, ended }, 50, {})).toEqual(['204']);
	});

	test('the answer to a ping keeps its shape', () => {
		expect(pongsFor('ping', '{"type":"ping"}', { notificationIdPointer: '/sequence' })[0]).toBe('{"type":"pong"}');
		expect(pongsFor('PING', '{"op":"PING","id":"p-1"}', { kindPointer: '/op' })[0]).toBe('{"op":"PONG","id":"{id}"}');
	});
});
