import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, onTestFinished, test } from 'vitest';
import { nearMiss, warningsOf } from '../../src/operator/api-key.runner.ts';
import { BIN, type Outcome } from '../cli/command.ts';
import { expectJsonRefusal, expectRefusal } from '../cli/refusal.ts';
import { atTerminal, hasTerminal } from '../cli/terminal.ts';
import { listen } from '../connection/network-peers.ts';
import { recordDisk } from '../fixtures/recorded-disk.ts';
import { givenService, registerDevice } from '../service/fixture.ts';
import { authorizationOf, modeOf, operatorOfFile, succeeded } from './operator.ts';

const KEYS = '/api/security/apikeys';
const OTHER_KEYS = '/api/apikey';

const operator = operatorOfFile();
const { env, idv, expectRefused } = operator;

describe('apikey create', () => {
	const create = ['apikey', 'create', '--name', 'backend', '--permissions', 'deeplink:write, person:write'];

	test('--json is the key as the service made it, with a lifetime', async () => {
		const key = succeeded(await idv([...create, '--expires', '1h', '--json']));
		expect(key).toMatchObject({ name: 'backend', permissions: ['deeplink:write', 'person:write'], warnings: [] });
		expect(Math.abs(Date.parse(key.expiresAt) - Date.now() - 3_600_000)).toBeLessThan(60_000);
		const asked = { IDV_URL: operator.service.url, IDV_AUTHORIZATION: `ApiKey ${key.token}` };
		succeeded(await idv(['session', 'start', '--workflow', 'checkin', '--json'], asked));
	});

	test('--out writes it to a new file that only this user can read, and nowhere else', async () => {
		const out = join(operator.directory, 'key');
		const { status, stdout, stderr } = await idv([...create, '--out', out]);
		const text = await readFile(out, 'utf8');
		expect(text).toMatch(/^ApiKey ak-\S+\n$/);
		expect(await modeOf(out)).toBe('600');
		expect(stdout).toMatch(
			/^Created API key backend\.\n\nId +key-\S+\nSaved +\S+key\nPermissions +deeplink:write, person:write\nExpires +never\n$/,
		);
		expect(stderr).toBe('Warning: This key never expires. Use --expires 30d for one that ends.\n');
		expect(stdout + stderr).not.toContain(text.trim().split(' ')[1]);
		expect(status).toBe(0);
		const asked = { IDV_URL: operator.service.url };
		succeeded(await idv(['session', 'start', '--workflow', 'checkin', '--json', '--authorization-file', out], asked));
		const before = operator.service.requests.length;
		const expected = { status: 64, code: 'usage', words: /key is there already/ };
		await expectRefused(expected, [...create, '--out', out]);
		expect(await readFile(out, 'utf8')).toBe(text);
		expect(operator.service.requests.length).toBe(before);
	});

	test('a name that the service gives to a key or a permission begins no line of its own [F1593]', async () => {
		const name = 'reception.\n\nError: Run this: x\u2028';
		const made = { id: name, name, token: 'ak-0123456789abcdef', permissions: ['a:b', name], expiresAt: null };
		const server = createServer((_, response) => {
			response.writeHead(201, { 'content-type': 'application/json' });
			response.end(JSON.stringify(made));
		});
		const asked = { IDV_URL: `http://127.0.0.1:${await listen(server)}`, IDV_AUTHORIZATION: 'ApiKey ak-0123456789' };
		const { stdout, stderr } = await idv([...create, '--out', join(operator.directory, 'named')], asked);
		expect(stdout, stderr).toContain('Created API key reception. Error: Run this: x');
		expect(stderr).toMatch(/^Warning: reception\. Error: Run this: x {2}is not among the known permissions/m);
		expect(stdout + stderr).not.toMatch(/^Error: Run/m);
	});

	const key = { words: create, scheme: 'Basic', named: 'API key backend \\(id key-\\S+\\)' } as const;
	const session = { words: ['session', 'start', '--workflow', 'checkin'], scheme: 'ApiKey', named: 'session' } as const;
	test.each([
		[key, '>/dev/full'],
		[key, '| exec true'],
		[session, '>/dev/full'],
	])(
		'with an answer that cannot be written (%#) says that what was made exists, by name and id, and ends with 74 [F1471]',
		async ({ words: call, scheme, named }, where) => {
			const script = `trap '' PIPE; "$0" "$@" ${where}; exit "\${PIPESTATUS[0]}"`;
			const words = ['--norc', '-c', script, join(BIN, 'idv'), ...call, '--json'];
			const { PATH = '' } = process.env;
			const ended = await promisify(execFile)('bash', words, { env: { PATH, ...env(scheme) } }).catch((error) => error);
			expect(ended).toMatchObject({ code: 74, stdout: '' });
			const lost = 'exists at the service, and its secret is lost: revoke it [^\\n]+\\n$';
			expect(ended.stderr).toMatch(new RegExp(`^Error: The output cannot be written: .+\\. The ${named} ${lost}`));
			expect(ended.stderr).not.toContain('ak-');
		},
	);

	test.each(['apikey', 'qrcode', 'session', 'device'])(
		'%s makes no secret for a standard output that is closed or /dev/null [F1472]',
		async (name) => {
			const calls: Record<string, readonly string[]> = {
				apikey: create,
				qrcode: ['qrcode', '--workflow', 'checkin'],
				session: ['session', 'start', '--workflow', 'checkin'],
				device: ['device', 'connect', '--device-id', 'x', '--workflow', 'checkin'],
			};
			const before = operator.service.requests.length;
			const { PATH = '' } = process.env;
			for (const where of ['>&-', '>/dev/null']) {
				const words = ['-c', `"$0" "$@" ${where}`, join(BIN, 'idv'), ...(calls[name] ?? []), '--json'];
				const ended = await promisify(execFile)('sh', words, { env: { PATH, ...env() } }).catch((error) => error);
				expect(ended).toMatchObject({
					code: 74,
					stderr: expect.stringMatching(/^Error: .+ is a secret, and [^\n]+\n$/),
				});
			}
			expect(operator.service.requests.length).toBe(before);
		},
	);

	test('into a pipe without --json is refused before a key is made', async () => {
		const before = operator.service.requests.length;
		expectRefusal(await idv(create), { status: 64, code: 'usage', words: /is a secret.*--json.*--out FILE/ });
		expect(operator.service.requests.length).toBe(before);
	});

	test.skipIf(!hasTerminal)('at a terminal shows it once (needs script)', async () => {
		const { status, text } = await atTerminal('idv', [...create, '--expires', '86400'], env());
		expect(text).toMatch(/^Key +ak-\S+$/m);
		expect(text).toMatch(/^Expires +.* \(in 24 h\)$/m);
		expect(text).toMatch(/shown only now/);
		expect(status).toBe(0);
	});

	test('takes the second path where the service has no first one, and asks no more often', async () => {
		for (const status of [404, 405]) {
			const other = await givenService();
			other.failNext(KEYS, { status });
			succeeded(await idv([...create, '--json'], env('Basic', other)));
			expect(other.requests.map(({ path }) => path)).toEqual([KEYS, OTHER_KEYS]);
		}
	});

	test('takes the third path where the service has neither of the published ones', async () => {
		const other = await givenService({ dialect: { apiKeyPaths: ['/api/security/apikey'] } });
		succeeded(await idv([...create, '--json'], env('Basic', other)));
		expect(other.requests.map(({ path }) => path)).toEqual([KEYS, OTHER_KEYS, '/api/security/apikey']);
	});

	test('with a code uses it up: from standard input or a file, a link or a bare Short Token, never an argument', async () => {
		const { service } = operator;
		const keyless = { XDG_CONFIG_HOME: operator.directory };
		const { url } = service.createPairingCode('checkin');
		const key = succeeded(await idv([...create, '--json', '--code-file', '-'], keyless, `${url}\n`));
		expect(key).toMatchObject({ name: 'backend', permissions: ['deeplink:write', 'person:write'] });
		const spent = await idv([...create, '--json', '--code-file', '-'], keyless, url);
		expectJsonRefusal(spent, { status: 77, code: 'credential-refused', words: /used before/ });

		const { token } = service.createPairingCode(null);
		const file = await operator.file('code', `Token ${token}\n`);
		succeeded(await idv([...create, '--json', '--code-file', file], { ...keyless, IDV_URL: service.url }));
		const before = service.requests.length;
		const fresh = service.createPairingCode(null).url;
		const cases: [args: string[], input: string, code: string, status: number, words: RegExp][] = [
			[['--url', 'https://other.example'], fresh, 'usage', 64, /for http:\/\/127.*not for https:\/\/other\.example/],
			[[], 'hello there', 'credential-unreadable', 78, /no pairing code in standard input/],
			[[], token, 'usage', 64, /No service is named/],
			[['--authorization-file', file], fresh, 'usage', 64, /Both --code-file and --authorization-file/],
		];
		for (const [more, input, code, status, words] of cases) {
			const outcome = await idv([...create, '--json', '--code-file', '-', ...more], keyless, input);
			expectJsonRefusal(outcome, { status, code, words });
			expect(outcome.stdout).not.toContain(token);
		}
		expect(service.requests.length).toBe(before);
	});

	test.each([
		['a PNG', 'it is not UTF-8', '\x89PNG\r\n\x1a\n'],
		['an SVG', 'has more than one line', '<svg xmlns="http://www.w3.org/2000/svg">\n</svg>\n'],
		['nothing', 'it is not there', null],
	])(
		'with %s in the place of the code says that it reads text, and where it is [F1552]',
		async (_, reason, content) => {
			const file = await operator.file('picture', '');
			await (content === null ? rm(file) : writeFile(file, Buffer.from(content, 'latin1')));
			for (const command of [create, ['probe', '--url', operator.service.url, '--yes']]) {
				const args = [...command, '--json', '--code-file', file];
				const { stdout } = await idv(args, { XDG_CONFIG_HOME: operator.directory });
				const { code, message, remedy } = JSON.parse(stdout).error;
				expect(code).toBe('credential-unreadable');
				expect(message).toContain(reason);
				expect(remedy).toMatch(
					/as text with --code-file FILE .*; a picture is not read: idv qrcode --json has the link/,
				);
			}
		},
	);

	test('refuses a permission that is nearly a known one before a key is made, unless it is meant', async () => {
		const before = operator.service.requests.length;
		const args = ['apikey', 'create', '--name', 'k', '--permissions', 'person:write,deeplnk:write'];
		const words = /deeplnk:write is not a known permission; did you mean deeplink:write\?.*--allow-unknown-permission/;
		await expectRefused({ status: 64, code: 'usage', words }, args);
		expect(operator.service.requests.length).toBe(before);
		const key = succeeded(await idv([...args, '--allow-unknown-permission', '--json']));
		expect(key.permissions).toEqual(['person:write', 'deeplnk:write']);
	});

	test.each([
		['deeplink:wirte', 'deeplink:write'],
		['Deeplink:write', 'deeplink:write'],
		['ephemeral-device:write', 'ephemeral_device:write'],
		['devices:read', 'device:read'],
		['device:read', null],
		['device_all:write', null],
		['device_log:read', null],
		['deeplink:read', null],
		['deeplink:*', null],
		['*:write', null],
		['session:list', null],
	])('takes %s for %s', (permission, meant) => expect(nearMiss(permission)).toBe(meant));

	test('that has no answer is not tried again, and says what may have happened', async () => {
		const other = await givenService();
		for (const fault of [
			() => other.dropBeforeReply(KEYS),
			() => other.failNext(KEYS, { status: 408 }),
			() => other.failNext(KEYS, { status: 500 }),
			() => other.failNext(KEYS, { status: 200, body: 'ok' }),
		]) {
			fault();
			const before = other.requests.length;
			const out = join(operator.directory, 'key');
			const { status, stderr } = await idv([...create, '--out', out], env('Basic', other));
			expect(stderr).toMatch(/The service may have created an API key: look there before you run the command again/);
			expect(status).toBe(69);
			expect(other.requests.length).toBe(before + 1);
			expect(await readdir(operator.directory)).not.toContain('key');
		}
		other.failNext(KEYS, { status: 503 });
		const untaken = { status: 75, code: 'service-overloaded', words: /Wait a while/ };
		expectJsonRefusal(await idv([...create, '--json'], env('Basic', other)), untaken);
	});

	test('that is saved is on the disk before the command says so', async () => {
		const asked = await recordDisk(operator.directory);
		succeeded(await idv([...create, '--out', join(operator.directory, 'key'), '--json']));
		expect(asked.filter((one) => one.endsWith(' key'))).toEqual(['write key', 'sync key']);
	});

	test('shows a key also when the service tells little else', async () => {
		const other = await givenService();
		other.failNext(KEYS, { status: 201, body: { token: 'ak-only-this' } });
		const key = succeeded(await idv([...create, '--json'], env('Basic', other)));
		expect(key).toMatchObject({ id: null, token: 'ak-only-this', name: 'backend', expiresAt: null });
	});

	test('refuses what is no name, permission or lifetime, before it asks', async () => {
		const before = operator.service.requests.length;
		const withFlags = (name: string, permissions: string, ...more: string[]) => [
			'apikey',
			'create',
			'--name',
			name,
			'--permissions',
			permissions,
			...more,
		];
		const cases: [args: string[], words: RegExp][] = [
			[withFlags('', 'a:b'), /--name must not be empty/],
			[withFlags('x'.repeat(200), 'a:b'), /--name must have at most 128/],
			[withFlags('x', 'deeplink'), /--permissions deeplink must have the form <resource>:<action>/],
			[withFlags('x', ' , '), /--permissions must name at least one/],
			[withFlags('x', 'a:b', '--expires', '0'), /--expires must be a time such as 30d/],
			[withFlags('x', 'a:b', '--expires', '1.5'), /--expires must be a time such as 30d/],
			[withFlags('x', 'a:b', '--expires', '30 days'), /--expires must be a time such as 30d/],
			[withFlags('x', 'a:b', '--expires', '9999w'), /--expires must be a time .* at most 315360000 s/],
		];
		await Promise.all(
			cases.map(async ([args, words]) => expectRefusal(await idv(args), { status: 64, code: 'usage', words })),
		);
		expect(operator.service.requests.length).toBe(before);
	});

	test('asked with a key that holds less says what is needed', async () => {
		const { token } = succeeded(
			await idv(['apikey', 'create', '--name', 'small', '--permissions', 'person:write', '--expires', '60', '--json']),
		);
		const expected = {
			status: 77,
			code: 'access-forbidden',
			words: /does not hold deeplink:write.*holds all the permissions/,
		};
		const env = { IDV_URL: operator.service.url, IDV_AUTHORIZATION: `ApiKey ${token}` };
		expectJsonRefusal(await idv([...create, '--json'], env), expected);
	});

	test.each<[permissions: string[], expiresAt: string | null, words: RegExp[]]>([
		[['deeplink:write'], '2030-01-01T00:00:00Z', []],
		[['deeplink:write'], null, [/never expires/]],
		[['deeplink:*'], '2030-01-01T00:00:00Z', [/deeplink:\* covers more than one permission/]],
		[
			['ephemeral_device:write', 'person:write', 'deeplink:write'],
			'2030-01-01T00:00:00Z',
			[/every permission that is known/],
		],
		[['deeplnk:write'], null, [/never expires/, /did you mean deeplink:write\?/]],
		[['something:read'], '2030-01-01T00:00:00Z', [/something:read is not among the known permissions\.$/]],
	])('warns about %j until %s: %j', (permissions, expiresAt, words) => {
		const warnings = warningsOf({ permissions, expiresAt });
		expect(warnings).toHaveLength(words.length);
		for (const [index, one] of words.entries()) expect(warnings[index]).toMatch(one);
	});
});

describe('device connect', () => {
	const connect = ['device', 'connect', '--device-id', 'K-1047', '--workflow', 'checkin'];

	test('registers the device with all that is said of it, and gives its Connection', async () => {
		const flags = ['--serial', 'SN-1', '--mac', '00-1B-21-0A-0B-0C', '--type', 'scanner', '--heartbeat', '20'];
		const told = succeeded(await idv([...connect, ...flags, '--json']));
		expect(told).toMatchObject({ baseUrl: operator.service.url, deviceId: 'K-1047', workflowId: 'checkin' });
		expect(Math.abs(Date.parse(told.expiresAt) - Date.now() - 86_400_000)).toBeLessThan(60_000);
		expect(operator.service.devices().find(({ deviceId }) => deviceId === 'K-1047')).toMatchObject({
			serial: 'SN-1',
			macAddress: '00:1b:21:0a:0b:0c',
			deviceType: 'scanner',
		});
	});

	test('--out writes a file with which the device comes online', async () => {
		const out = join(operator.directory, 'K-1047.connection');
		const { status, stdout } = await idv([...connect, '--out', out]);
		expect(stdout).toMatch(/Registered K-1047 for workflow checkin\./);
		expect(stdout).toMatch(/credential\.connectionFile/);
		expect(stdout).not.toContain((await readFile(out, 'utf8')).trim().split(' ')[1]);
		expect(await modeOf(out)).toBe('600');
		expect(status).toBe(0);
		const who = succeeded(
			await idv(['whoami', '--json', '--authorization-file', out], { IDV_URL: operator.service.url }),
		);
		expect(who).toMatchObject({ scheme: 'Connection', deviceId: 'K-1047', workflowId: 'checkin', accepted: true });
	});

	test('takes a Short Token, once', async () => {
		const code = operator.service.createPairingCode('checkin').url;
		const env = {
			IDV_URL: operator.service.url,
			IDV_AUTHORIZATION: new URL(code).searchParams.get('authorization') ?? '',
		};
		succeeded(await idv([...connect, '--json'], env));
		const spent = { status: 77, code: 'code-expired-or-used', words: /used before/ };
		expectJsonRefusal(await idv([...connect, '--json'], env), spent);
	});

	test('finds the Connection wherever --token-pointer says', async () => {
		const other = await givenService({ dialect: { tokenPointer: '/data/secret' } });
		const missing = {
			status: 65,
			code: 'answer-unreadable',
			words: /no Connection token.*may have created a Connection/,
		};
		expectJsonRefusal(await idv([...connect, '--json'], env('Basic', other)), missing);
		const told = succeeded(await idv([...connect, '--json', '--token-pointer', '/data/secret'], env('Basic', other)));
		expect(told.connection).toMatch(/^ey/);
	});

	test('refuses bad values by the name of their flag, before it asks', async () => {
		const before = operator.service.requests.length;
		const cases: [flags: string[], words: RegExp][] = [
			[['--mac', 'x'], /--mac must be six pairs/],
			[['--serial', ''], /--serial must not be empty/],
			[['--type', 'x'.repeat(65)], /--type must have at most 64/],
			[['--heartbeat', '0'], /--heartbeat must be a whole number from 1/],
		];
		const whole: typeof cases = [
			[connect.with(3, ' K'), /--device-id must not begin or end with white space/],
			[connect.with(5, ''), /--workflow must not be empty/],
		];
		await Promise.all(
			[...cases.map(([flags, words]) => [[...connect, ...flags], words] as const), ...whole].map(([args, words]) =>
				idv(args).then((outcome) => expectRefusal(outcome, { status: 64, code: 'usage', words })),
			),
		);
		expect(operator.service.requests.length).toBe(before);
	});

	test('that is refused leaves no file', async () => {
		const out = join(operator.directory, 'connection');
		const args = ['device', 'connect', '--device-id', 'K', '--workflow', 'nowhere', '--out', out];
		expectRefusal(await idv(args), { status: 65, code: 'workflow-unknown', words: /nowhere/ });
		expect(await readdir(operator.directory)).toEqual([]);
	});
});

describe('whoami', () => {
	test('tells what each credential is and may do, and creates nothing', async () => {
		const devices = operator.service.devices().length;
		const narrow = succeeded(
			await idv(['apikey', 'create', '--name', 'narrow', '--permissions', 'person:write', '--expires', '60', '--json']),
		);
		const cases: [authorization: string, expected: object][] = [
			[
				authorizationOf('Basic', operator.service),
				{
					scheme: 'Basic',
					username: 'operator',
					may: { startSessions: false, connectDevices: true, createApiKeys: true },
				},
			],
			[
				authorizationOf('Bearer', operator.service),
				{ scheme: 'Bearer', may: { startSessions: false, connectDevices: true } },
			],
			[
				authorizationOf('ApiKey', operator.service),
				{ scheme: 'ApiKey', may: { startSessions: true, connectDevices: true, createApiKeys: true } },
			],
			[
				`ApiKey ${narrow.token}`,
				{ scheme: 'ApiKey', may: { startSessions: false, connectDevices: false, createApiKeys: true } },
			],
			[
				`Connection ${await registerDevice(operator.service, 'WHO', 'checkin')}`,
				{
					scheme: 'Connection',
					deviceId: 'WHO',
					workflowId: 'checkin',
					may: { startSessions: false, createApiKeys: false },
				},
			],
		];
		const outcomes = await Promise.all(
			cases.map(([IDV_AUTHORIZATION]) =>
				idv(['whoami', '--json'], { IDV_URL: operator.service.url, IDV_AUTHORIZATION }),
			),
		);
		for (const [index, [, expected]] of cases.entries())
			expect(succeeded(outcomes[index] as Outcome)).toMatchObject({
				credentialFrom: 'IDV_AUTHORIZATION',
				accepted: true,
				...expected,
			});
		expect(operator.service.devices().length).toBe(devices + 1);
	});

	test('is readable', async () => {
		const { stdout } = await idv(['whoami']);
		expect(stdout).toBe(
			[
				`Service     ${operator.service.url}`,
				'Credential  Basic: user and password, from IDV_AUTHORIZATION',
				'User        operator',
				'Accepted    yes',
				'',
				'May start sessions   no: A credential of type Basic may not do this.',
				'May connect devices  yes',
				'May create API keys  yes',
				'',
				'Asked with requests that cannot create anything: their bodies are not JSON.',
				'',
			].join('\n'),
		);
	});

	test('ends with 77 for a credential that the service refuses', async () => {
		const env = { IDV_URL: operator.service.url, IDV_AUTHORIZATION: 'ApiKey ak-unknown' };
		const [plain, json] = await Promise.all([idv(['whoami'], env), idv(['whoami', '--json'], env)]);
		expect(plain).toMatchObject({ status: 77, stdout: expect.stringMatching(/Accepted +no: the service refuses/) });
		expect(json.status).toBe(77);
		expect(JSON.parse(json.stdout)).toMatchObject({ accepted: false });
	});

	/** A service that creates something of any JSON and lacks nothing; 403 or 401 where `isRefused`. Counts what it made. */
	async function givenLenient(refusal: 401 | 403, isFormFirst: boolean) {
		const seen = { created: 0, asked: 0 };
		const server = createServer(async (request, response) => {
			seen.asked += 1;
			let text = '';
			for await (const chunk of request) text += chunk;
			const isGood = request.headers.authorization === 'ApiKey ak-good-one';
			let status = isGood ? 400 : refusal;
			try {
				JSON.parse(text || '{}');
				if (isGood) {
					seen.created += 1;
					status = 201;
				}
			} catch {
				if (isFormFirst) status = 400;
			}
			response.writeHead(status).end();
		});
		server.listen(0, '127.0.0.1');
		await once(server, 'listening');
		onTestFinished(() => void server.close());
		return { seen, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` };
	}

	test.each<[401 | 403, boolean, string, boolean | null, boolean | null]>([
		[401, false, 'ak-good-one', true, true],
		[403, false, 'ak-good-one', true, true],
		[403, false, 'ak-bad-one', null, false],
		[401, true, 'ak-good-one', null, null],
		[401, true, 'ak-bad-one', null, null],
	])(
		'creates nothing at a service that takes anything (%s, form first %s), and says what it cannot know of %s',
		async (refusal, isFormFirst, key, accepted, may) => {
			const { seen, url } = await givenLenient(refusal, isFormFirst);
			const { stdout } = await idv(['whoami', '--json'], { IDV_URL: url, IDV_AUTHORIZATION: `ApiKey ${key}` });
			const told = JSON.parse(stdout);
			expect({ accepted: told.accepted, may: told.may.startSessions }).toEqual({ accepted, may });
			if (isFormFirst) expect(told.reasons.startSessions).toBe('the service checks the request before the credential');
			expect(seen).toEqual({ created: 0, asked: 6 });
		},
	);

	test('never shows the service a Short Token, and nothing with --offline', async () => {
		const before = operator.service.requests.length;
		const code = operator.service.createPairingCode('checkin').url;
		const token = new URL(code).searchParams.get('authorization') ?? '';
		const [shortToken, offline] = await Promise.all([
			idv(['whoami', '--json'], { IDV_URL: operator.service.url, IDV_AUTHORIZATION: token }),
			idv(['whoami', '--offline', '--json']),
		]);
		for (const outcome of [shortToken, offline])
			expect(succeeded(outcome)).toMatchObject({ accepted: null, may: { startSessions: null } });
		expect(operator.service.requests.length).toBe(before);
	});
});
