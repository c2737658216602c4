import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { WebSocket } from 'ws';
import type { EmbeddedService } from '../../src/service/embedded-service.runner.ts';
import { credentialsOf, givenService, openChannel, registerDevice, send } from '../service/fixture.ts';
import { finish, follow, givenHome } from './command.ts';
import { expectJsonRefusal, expectRefusal } from './refusal.ts';
import { atTerminal, hasTerminal } from './terminal.ts';

describe('service', () => {
	test('prints where it listens, its credentials and what happens, and ends with 0', async () => {
		const running = follow('idv-agent', ['service', '--port', '0', '--workflows', 'checkin, checkout'], {});
		const url = (await running.untilLine(/^Listening at/)).split(/\s+/).at(-1) ?? '';
		const bearer = (await running.untilLine(/^ {2}Bearer/)).trim().split(/\s+/).at(-1) ?? '';
		const ask = (workflowId: string) =>
			send(url, { path: `/api/deeplink/qrcode?workflowId=${workflowId}`, authorization: `Bearer ${bearer}` });
		const [known, unknown] = await Promise.all([ask('checkout'), ask('other')]);
		expect([known.status, unknown.status]).toEqual([200, 404]);
		await running.untilLine(/request +GET \/api\/deeplink\/qrcode 200 \(Bearer\)/);
		expect(await running.end('SIGTERM')).toMatchObject({ status: 0, stderr: '' });
	});

	test('--json is one document a line, and the credentials may be given', async () => {
		const home = await givenHome();
		const credentials = join(home.directory, 'credentials.json');
		await writeFile(
			credentials,
			JSON.stringify({ basic: 'ada:her:password', bearer: 'bearer-0123456789', apiKey: 'ak-0123456789' }),
		);
		const running = follow('idv-agent', ['service', '--port', '0', '--json', '--credentials', credentials], {});
		const { url, credentials: told } = JSON.parse(await running.untilLine(/"listening"/));
		expect(told).toEqual({
			basic: { username: 'ada', password: 'her:password' },
			bearer: 'bearer-0123456789',
			apiKey: 'ak-0123456789',
		});
		for (const authorization of [
			{ scheme: 'Basic', username: 'ada', password: 'her:password' },
			{ scheme: 'Bearer', credential: 'bearer-0123456789' },
			{ scheme: 'ApiKey', credential: 'ak-0123456789' },
		] as const)
			expect((await send(url, { path: '/api/deeplink/qrcode?workflowId=x', authorization })).status).toBe(200);
		expect(JSON.parse(await running.untilLine(/"event":"request"/))).toMatchObject({
			event: 'request',
			method: 'GET',
			path: '/api/deeplink/qrcode',
			status: 200,
			authorizationScheme: 'Basic',
		});
		expect((await running.end('SIGINT')).status).toBe(0);
	});

	/** Starts `service --json` and reads its first line. */
	async function start(...flags: string[]) {
		const running = follow('idv-agent', ['service', '--port', '0', '--json', '--quiet', ...flags], {});
		const told = JSON.parse(await running.untilLine(/"listening"/));
		const ask = (path: string, body?: object) =>
			send(told.url, { path, body, authorization: `Bearer ${told.credentials.bearer}` });
		return { running, ask, url: told.url as string, warnings: told.warnings as string[] };
	}

	test('with a signing key file keeps Connections valid over a restart, and without one says that it does not', async () => {
		const home = await givenHome();
		const file = join(home.directory, 'signing.key');
		const before = await start('--signing-key-file', file);
		expect(before.warnings).toEqual([]);
		expect((await stat(file)).mode & 0o777).toBe(0o600);
		const key = await readFile(file, 'utf8');
		const registered = await before.ask('/api/device/connection', { deviceId: 'K-1', workflowId: 'check-in' });
		await before.running.end('SIGTERM');

		const after = await start('--signing-key-file', file);
		expect(await readFile(file, 'utf8')).toBe(key);
		await openChannel({ url: after.url } as EmbeddedService, registered.json.token);
		expect((await after.ask('/api/device')).json.devices).toMatchObject([{ deviceId: 'K-1', online: true }]);
		await after.running.end('SIGTERM');

		const { running, warnings } = await start();
		expect(warnings).toEqual([
			'After a restart every paired device must be paired again; --signing-key-file FILE keeps their Connections valid.',
		]);
		await running.end('SIGTERM');
	});

	test('on every interface warns of it, and names an address in its codes that others can reach', async () => {
		const open = await start('--host', '0.0.0.0', '--allow-non-loopback', '--public-url', 'https://id.example.com');
		expect(open.warnings[0]).toBe('Every machine that can reach this one can use this service.');
		const plain = await start('--host', '0.0.0.0', '--allow-non-loopback');
		expect(plain.warnings[0]).toMatch(/not encrypted.*devices refuse plain http.*--public-url/);
		expect(plain.url).not.toContain('0.0.0.0');
		const draw = { path: '/api/deeplink/qrcode', headers: { accept: 'application/json' } };
		const code = async ({ url, ask }: typeof open, path = draw.path) => {
			const created = await ask('/api/apikey', { name: 'k', permissions: ['ephemeral_device:write'] });
			return (await send(url, { ...draw, path, authorization: `ApiKey ${created.json.token}` })).json.url;
		};
		expect(await code(open)).toMatch(/^https:\/\/id\.example\.com\/mobile\?/);
		expect(await code(plain)).toMatch(new RegExp(`^${plain.url}/mobile`));
		await Promise.all([open.running.end('SIGTERM'), plain.running.end('SIGTERM')]);
	});

	test('lets a pairing code create no key where that is switched off', async () => {
		const { running, ask, url } = await start('--no-short-token-keys');
		const created = await ask('/api/apikey', { name: 'k', permissions: ['ephemeral_device:write'] });
		const authorization = `ApiKey ${created.json.token}`;
		const code = await send(url, {
			path: '/api/deeplink/qrcode',
			authorization,
			headers: { accept: 'application/json' },
		});
		const body = { name: 'k', permissions: ['ephemeral_device:write'] };
		const refused = await send(url, { path: '/api/apikey', authorization: `Token ${code.json.token}`, body });
		expect([refused.status, refused.json.code]).toEqual([403, 'scheme-not-allowed']);
		await running.end('SIGTERM');
	});

	test('that cannot start says why in one line', async () => {
		const [service, home] = [await givenService(), await givenHome()];
		const file = async (name: string, content: string) => {
			await writeFile(join(home.directory, name), content);
			return join(home.directory, name);
		};
		const taken = String(service.port);
		const broken = await file('broken.json', '{');
		const short = await file('short.key', 'abc');
		const strange = await file('strange.json', '{"basic":"nobody","token":"x"}');
		const cases: [flags: string[], status: number, code: string, words: RegExp][] = [
			[['--port', taken], 69, 'service-unreachable', /Port \d+ of 127\.0\.0\.1 is in use/],
			[
				['--host', '0.0.0.0'],
				64,
				'usage',
				/does not listen on 0\.0\.0\.0[^A-Z]*this machine\. Correct.*--allow-non-loopback/,
			],
			[['--public-url', 'ftp://id.example'], 64, 'usage', /publicUrl must be an http or https address/],
			[['--signing-key-file', short], 78, 'credential-unreadable', /short\.key cannot be used: it does not hold 64/],
			[['--signing-key-file', `${home.directory}/no/key`], 78, 'credential-unreadable', /cannot be made \(ENOENT\)/],
			[['--credentials', `${home.directory}/none`], 78, 'credential-unreadable', /it is not there/],
			[['--credentials', broken], 78, 'credential-unreadable', /is not JSON/],
			[
				['--credentials', strange],
				78,
				'credential-unreadable',
				/strange\.json cannot be used: basic must have the form user:password/,
			],
		];
		await Promise.all(
			cases.map(async ([flags, status, code, words]) => {
				const args = ['service', ...(flags.includes('--port') ? [] : ['--port', '0']), ...flags];
				expectRefusal(await finish('idv-agent', args, {}), { status, code, words });
				expectJsonRefusal(await finish('idv-agent', [...args, '--json'], {}), { status, code, words });
			}),
		);
	});
});

describe('service --transcript and --replay', () => {
	test('what was recorded is answered again, without the secrets of the recording', async () => {
		const file = join((await givenHome()).directory, 'wire.jsonl');
		const recording = follow('idv-agent', ['service', '--port', '0', '--json', '--transcript', file], {});
		const { url, credentials } = JSON.parse(await recording.untilLine(/"listening"/));
		const register = (at: string, key: string) =>
			send(at, {
				path: '/api/device/connection',
				authorization: `ApiKey ${key}`,
				body: { deviceId: 'KIOSK-1', workflowId: 'check-in' },
			});
		const { json } = await register(url, credentials.apiKey);
		await recording.end('SIGTERM');
		const text = await readFile(file, 'utf8');
		expect([credentials.apiKey, json.token].filter((secret) => text.includes(secret))).toEqual([]);
		expect((await stat(file)).mode & 0o777).toBe(0o600);
		const more = follow('idv-agent', ['service', '--port', '0', '--json', '--transcript', file], {});
		await more.untilLine(/"listening"/);
		await more.end('SIGTERM');
		expect(await readFile(file, 'utf8'), 'an earlier recording stays').toBe(text);

		const replaying = follow('idv-agent', ['service', '--port', '0', '--json', '--replay', file], {});
		const again = JSON.parse(await replaying.untilLine(/"listening"/));
		const answered = await register(again.url, 'another-key');
		expect([answered.status, answered.json]).toEqual([
			201,
			{ ...json, token: expect.stringMatching(/^\S+\.\S+\.\S+$/) },
		]);
		expect(answered.json.token).not.toBe(json.token);
		expect(await replaying.end('SIGTERM')).toMatchObject({ status: 0, stderr: '' });
	});

	const asked = { kind: 'request', at: 1, exchange: 1, method: 'GET', path: '/', query: {}, headers: {}, body: '' };
	const answered = { kind: 'answer', at: 2, exchange: 1, status: 200, headers: {}, body: '' };

	test.for<[string, RegExp]>([
		['hello', /Line 1 is not a line of a transcript\./],
		[
			`\n${JSON.stringify({ ...answered, status: 1000 })}`,
			/Line 2 is not a line of a transcript: look at its status\./,
		],
		[JSON.stringify({ ...answered, status: 99.5 }), /Line 1 .* look at its status\./],
		[JSON.stringify({ ...answered, headers: { 'x y': '1' } }), /Line 1 .* look at its headers\/x y\./],
		[JSON.stringify({ ...answered, headers: { '': '1' } }), /Line 1 .* look at its headers\/\./],
		[JSON.stringify({ ...answered, headers: { x: 'a\nb' } }), /Line 1 .* look at its headers\/x\./],
		[JSON.stringify({ ...answered, headers: { x: '€' } }), /Line 1 .* look at its headers\/x\./],
		[JSON.stringify({ ...answered, headers: { x: 1 } }), /Line 1 .* look at its headers\/x\./],
		[JSON.stringify({ ...asked, path: 7 }), /Line 1 .* look at its path\./],
	])(
		'a file with %j, which cannot be answered from, is refused at its start by its line [F1390]',
		async ([text, words]) => {
			const file = join((await givenHome()).directory, 'wire.jsonl');
			await writeFile(file, text);
			const refused = await finish('idv-agent', ['service', '--port', '0', '--replay', file], {});
			expectRefusal(refused, { status: 65, code: 'body-invalid', words });
		},
	);

	test('a header that a recording names by its shape, and an end that no close frame can say, end no service [F1391]', async () => {
		const file = join((await givenHome()).directory, 'wire.jsonl');
		const channel = { at: 4, exchange: 2 };
		const lines = [
			asked,
			{ ...answered, headers: { '[word-9-0a1b2c]': 'x', trailer: 'x-sum', te: 'trailers', expect: '100-continue' } },
			{ ...asked, ...channel, path: '/ws' },
			{ ...channel, kind: 'open', subprotocol: '' },
			{ ...channel, kind: 'close', direction: 'toDevice', code: 1006, reason: 'x'.repeat(200) },
		];
		await writeFile(file, lines.map((line) => JSON.stringify(line)).join('\n'));
		const replaying = follow('idv-agent', ['service', '--port', '0', '--json', '--replay', file], {});
		const { url } = JSON.parse(await replaying.untilLine(/"listening"/));
		expect((await fetch(url)).status).toBe(200);
		const socket = new WebSocket(`${url.replace('http', 'ws')}/ws`);
		await once(socket, 'close');
		expect((await fetch(url)).status).toBe(200);
		expect(await replaying.end('SIGTERM')).toMatchObject({ status: 0, stderr: '' });
	});

	test('what is asked more often than it was gets the last answer', async () => {
		const file = join((await givenHome()).directory, 'wire.jsonl');
		const again = { exchange: 2, at: 2 };
		const lines = [asked, answered, { ...asked, ...again }, { ...answered, ...again, status: 503 }];
		await writeFile(file, lines.map((line) => JSON.stringify(line)).join('\n'));
		const replaying = follow('idv-agent', ['service', '--port', '0', '--json', '--replay', file], {});
		const { url } = JSON.parse(await replaying.untilLine(/"listening"/));
		const statuses: number[] = [];
		for (let times = 0; times < 3; times += 1) statuses.push((await fetch(url)).status);
		expect(statuses).toEqual([200, 503, 503]);
		expect(await replaying.end('SIGTERM')).toMatchObject({ status: 0, stderr: '' });
	});
});

describe('service notify', () => {
	test('sends the message as it was written, numbers that a parser rounds included [F874]', async () => {
		const service = await givenService();
		const { nextFrame } = await openChannel(service, await registerDevice(service, 'K-1'));
		const message = '{"type":"hello", "total":1.10,"id":9007199254740993}';
		const env = { IDV_AUTHORIZATION: `Bearer ${credentialsOf(service).Bearer.credential}` };
		const { stdout } = await finish('idv-agent', ['service', 'notify', message, '--url', service.url], env);
		expect(stdout).toBe('Sent to 1 device.\n');
		expect(String((await nextFrame()).data)).toBe(message);
	});

	test('refuses what it cannot send, each in one line', async () => {
		const service = await givenService();
		const bearer = `Bearer ${credentialsOf(service).Bearer.credential}`;
		const key = `ApiKey ${credentialsOf(service).ApiKey.credential}`;
		const cases: [authorization: string, args: string[], status: number, code: string, words: RegExp][] = [
			[bearer, ['{oops', '--url', service.url], 65, 'body-invalid', /not JSON.*Quote it/],
			['', ['{}', '--url', service.url], 64, 'usage', /IDV_AUTHORIZATION holds no credential/],
			['Bearer wrong-one', ['{}', '--url', service.url], 77, 'credential-refused', /answered 401/],
			[key, ['{}', '--url', service.url], 77, 'credential-refused', /answered 403/],
			[bearer, ['{}', '--url', 'nowhere'], 64, 'usage', /not an address/],
			[bearer, ['{}', '--url', 'http://127.0.0.1:1'], 69, 'service-failed', /No answer from 127\.0\.0\.1:1/],
		];
		const outcomes = await Promise.all(
			cases.map(([authorization, args]) =>
				finish('idv-agent', ['service', 'notify', ...args], { IDV_AUTHORIZATION: authorization }),
			),
		);
		for (const [index, [, , status, code, words]] of cases.entries()) {
			const outcome = outcomes[index];
			if (outcome) expectRefusal(outcome, { status, code, words });
		}
		expect(outcomes).toHaveLength(cases.length);
	});
});

test('demo --once tells the whole story and ends with 0', async () => {
	const home = await givenHome();
	const { status, stdout, stderr } = await finish('idv-agent', ['demo', '--once'], home.env);
	expect(stdout).toMatch(/neither side saw the device offline/);
	expect(stdout).toMatch(/That was the whole story, in \d+\.\d s\.\n$/);
	expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
});

test('without a terminal demo tells its story in plain text and ends, also where nothing can be written; Ctrl-C half-way leaves nothing', async () => {
	const home = await givenHome();
	const env = { ...home.env, TMPDIR: home.directory };
	const told = follow('idv-agent', ['demo'], env, undefined, '/proc');
	await told.untilLine(/saved as .*idv-agent-demo-/);
	const early = follow('idv-agent', ['demo'], env, undefined, '/proc');
	await early.untilLine(/It makes a pairing code/);
	expect(await early.end('SIGINT')).toMatchObject({ status: 75, stderr: '' });
	const { status, stdout, stderr } = await told.ended;
	expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
	expect(stdout).toMatch(/That was the whole story.*\nOn a terminal it stays up.*\n$/);
	expect(stdout).not.toContain('\x1b');
	expect(stdout).not.toContain('Offline for 0 s');
	expect((await readdir(home.directory)).filter((name) => name.startsWith('idv-agent-demo-'))).toEqual([]);
});

test.skipIf(!hasTerminal)(
	'at a terminal demo ends in an invitation that stays still, and takes keys (needs script)',
	async () => {
		const home = await givenHome();
		const keys = [
			['q ends', 'w'],
			[', workflow document-check.\r\n\r\nOpen', 'r'],
			// A key without a meaning, and the end.
			['Now online.', 'xq'],
		] as const;
		const env = { ...home.env, TMPDIR: home.directory, TERM: 'xterm', NO_COLOR: '1' };
		const { status, text } = await atTerminal('idv-agent', ['demo'], env, keys);
		expect(status).toBe(0);
		const [, after = ''] = text.split('That was the whole story');
		expect(after).toMatch(
			/You change the workflow to document-check\.\n.*You restart the service.*Offline: .* was lost\.\n.*Now online\./s,
		);
		// Nothing but the part itself and what happens: no line for a heartbeat, and no style where NO_COLOR is set.
		expect(after).not.toMatch(/[Hh]eartbeat/);
		expect(text.replaceAll(/\x1b\[\d+A\n?\r?\x1b\[J/g, '')).not.toContain('\x1b');
		const screens = after.split(/\x1b\[\d+A\r\x1b\[J/);
		expect(screens.length).toBeGreaterThan(5);
		for (const screen of screens) {
			expect(screen).toMatch(
				/Open this page +http:.*\nStart a session +\S.*\nMake a code +\S.*\nRead as the kiosk +\S/,
			);
			expect(screen.match(/r restarts the service, w changes the workflow, q ends/g)).toHaveLength(1);
		}
		expect((await readdir(home.directory)).filter((name) => name.startsWith('idv-agent-demo-'))).toEqual([]);
	},
	40_000,
);

test.each([
	['idv-agent service --credentials', 78],
	['idv-agent service --replay', 65],
	['idv-agent service --signing-key-file', 78],
	['idv session start --workflow a --metadata', 65],
] as const)(
	'%s with a pipe or a device in the place of a file is refused, and reads neither [F1377]',
	async (command, status) => {
		const { directory } = await givenHome();
		const pipe = join(directory, 'pipe');
		execFileSync('mkfifo', [pipe]);
		const [program, ...words] = command.split(' ');
		const env = { IDV_URL: 'http://127.0.0.1:1', IDV_AUTHORIZATION: 'ApiKey one-for-a-trial' };
		// Apart, so that one that reads on and on is ended with the test.
		const ended = [pipe, '/dev/zero'].map((file) => {
			const named = program === 'idv' ? `@${file}` : file;
			return follow(program as 'idv', [...words, named, ...(program === 'idv' ? [] : ['--port', '0'])], env).ended;
		});
		for (const told of await Promise.all(ended))
			expect(told).toMatchObject({ status, stdout: '', stderr: expect.stringContaining('it is not a regular file') });
	},
);
