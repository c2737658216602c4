/** `idv probe`: what it says before, what it asks for, and how it registers. */
import { chmod, mkdir, readFile, symlink, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { WebSocketServer } from 'ws';
import { listen } from '../connection/network-peers.ts';
import { probesOfFile, QUICK } from './probing.ts';

const { operator, probedForeign } = probesOfFile();
const { env, idv, expectRefused, file } = operator;

describe('what it does', () => {
	test('without --yes it says what it would create, and sends nothing', async () => {
		const before = operator.service.requests.length;
		const { status, stdout, stderr } = await idv(['probe', '--workflow', 'checkin'], env('ApiKey'));
		expect({ status, stdout }).toEqual({ status: 64, stdout: '' });
		expect(stderr).toMatch(
			/^Error: Nothing was sent\. Registers the device idv-probe-[0-9a-f]{8} for workflow checkin at http:\S+: one device connection, which stays until it ends\. Uses the credential from IDV_AUTHORIZATION\. Creates no API key\. Sends at most 30 requests, ten in a minute, watches the channel for 60 s, and runs a device with the settings for as long\. Start a session for this workflow now and then while it runs: kinds, ids and acknowledgements are only seen in notifications that come\. Run it again with --yes\. \[usage\]\n$/,
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
});
