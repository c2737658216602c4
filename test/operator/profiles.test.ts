import { once } from 'node:events';
import { readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import type { Outcome } from '../cli/command.ts';
import { expectJsonRefusal, expectRefusal } from '../cli/refusal.ts';
import { atTerminal, hasTerminal } from '../cli/terminal.ts';
import { givenService } from '../service/fixture.ts';
import { authorizationOf, modeOf, operatorOfFile, succeeded } from './operator.ts';

const operator = operatorOfFile();
const { env, idv, expectRefused, file } = operator;

describe('service and credential', () => {
	test('flags win over variables, and standard input is a file too', async () => {
		const wrong = { IDV_URL: 'http://127.0.0.1:1', IDV_AUTHORIZATION: 'Bearer wrong' };
		const credential = await file('credential', `${authorizationOf('ApiKey', operator.service)}\n`);
		const flags = ['whoami', '--offline', '--json', '--url', operator.service.url, '--authorization-file'];
		const [byFile, byInput] = await Promise.all([
			idv([...flags, credential], wrong),
			idv([...flags, '-'], wrong, 'Basic ada:lovelace\n'),
		]);
		expect(succeeded(byFile)).toMatchObject({
			baseUrl: operator.service.url,
			scheme: 'ApiKey',
			credentialFrom: credential,
		});
		expect(succeeded(byInput)).toMatchObject({ scheme: 'Basic', username: 'ada', credentialFrom: 'standard input' });
	});

	test('a credential file that its group may read is used with a warning [F1847]', async () => {
		const credential = await file('credential', authorizationOf('Basic', operator.service), 0o640);
		const { status, stderr } = await idv(['whoami', '--offline', '--authorization-file', credential]);
		const warning = `Warning: Other users may read ${credential}. Close it: chmod 600 ${credential}\n`;
		expect(stderr).toBe(warning);
		expect(status).toBe(0);
		const own = { ...env(), XDG_CONFIG_HOME: operator.directory };
		const added = await idv(
			['profile', 'add', 'open', '--url', operator.service.url, '--authorization-file', credential],
			own,
		);
		expect(added).toMatchObject({ status: 0, stderr: warning });
	});

	test('what is missing or cannot be used is named in one line, without the secret', async () => {
		const none = { XDG_CONFIG_HOME: operator.directory };
		const secret = 'geheim-geheim-geheim';
		const bare = await file('bare', secret);
		const cases: [env: Record<string, string>, flags: string[], status: number, code: string, words: RegExp][] = [
			[none, [], 64, 'usage', /No service is named.*IDV_URL/],
			[{ ...none, IDV_URL: operator.service.url }, [], 64, 'usage', /no credential.*IDV_AUTHORIZATION/],
			[{ ...none, IDV_URL: 'id.example.com' }, [], 64, 'usage', /IDV_URL is not the address/],
			[env(), ['--url', 'https://user:pw@id.example.com'], 64, 'usage', /--url is not the address/],
			[env(), ['--url', 'http://id.example.com'], 77, 'insecure-origin', /without encryption.*https/],
			[{ ...env(), IDV_AUTHORIZATION: secret }, [], 78, 'credential-unreadable', /IDV_AUTHORIZATION does not hold/],
			[
				env(),
				['--authorization-file', `${bare}-none`],
				78,
				'credential-unreadable',
				/is not there \(ENOENT\)\. Name a file that is there and that this user may read/,
			],
			[env(), ['--authorization-file', bare], 78, 'credential-unreadable', /bare does not hold one credential/],
			[
				env(),
				['--authorization-file', `${operator.directory}/none`],
				78,
				'credential-unreadable',
				/none cannot be read/,
			],
			[env(), ['--profile', 'prod'], 64, 'usage', /There is no profile prod/],
			[env(), ['--ca-file', `${operator.directory}/none`], 78, 'settings-unreadable', /none/],
		];
		const outcomes = await Promise.all(cases.map(([env, flags]) => idv(['whoami', ...flags], env)));
		for (const [index, [, , status, code, words]] of cases.entries()) {
			const outcome = outcomes[index] as Outcome;
			expectRefusal(outcome, { status, code, words });
			expect(outcome.stderr).not.toContain(secret);
		}
	});

	test('a service that cannot be reached, fails or refuses is told apart by its status', async () => {
		const other = await givenService();
		const make = ['qrcode', '--workflow', 'checkin', '--json'];
		const cases: [status: number, exit: number, code: string, words: RegExp][] = [
			[401, 77, 'credential-refused', /idv whoami/],
			[429, 75, 'service-overloaded', /Wait a while/],
			[503, 75, 'service-overloaded', /Wait a while/],
			[500, 69, 'service-failed', /answered 500/],
			[302, 69, 'redirect-refused', /answered 302/],
			[422, 65, 'request-rejected', /nothing was created/],
		];
		for (const [status, exit, code, words] of cases) {
			other.failNext('/api/deeplink/qrcode', { status });
			expectJsonRefusal(await idv(make, env('Basic', other)), { status: exit, code, words });
		}
		await other.close();
		const gone = { status: 69, code: 'service-unreachable', words: /refuses connections.*Check --url/ };
		expectJsonRefusal(await idv(make, env('Basic', other)), gone);
	});

	test('a credential is never sent on to where the service points', async () => {
		const asked: (string | undefined)[] = [];
		const elsewhere = createServer((request, response) => {
			asked.push(request.headers.authorization);
			response.end('{}');
		}).listen(0, '127.0.0.1');
		onTestFinished(() => void elsewhere.close());
		await once(elsewhere, 'listening');
		const { port } = elsewhere.address() as AddressInfo;
		const other = await givenService();
		const location = `http://127.0.0.1:${port}/api/v1/deeplink`;
		other.failNext('/api/v1/deeplink', { status: 307, headers: { location } });
		const outcome = await idv(['session', 'start', '--workflow', 'checkin', '--json'], env('ApiKey', other));
		expect(outcome.status).toBe(69);
		expect(asked).toEqual([]);
	});
});

describe('profile', () => {
	const add = (name: string, ...flags: string[]) =>
		idv(
			['profile', 'add', name, '--url', operator.service.url, '--authorization-file', '-', ...flags],
			own(),
			authorizationOf('Basic', operator.service),
		);
	/** The operator.directory of this test is where its profiles are. */
	const own = () => ({ XDG_CONFIG_HOME: operator.directory });

	test('keeps the address by name and the secret in a file that only this user can read', async () => {
		expect(await add('prod')).toMatchObject({
			status: 0,
			stdout: `Profile prod added: Basic for ${operator.service.url}, in use.\n`,
		});
		expect(await add('test', '--json')).toMatchObject({ status: 0, stdout: expect.stringMatching(/"current":false/) });
		const names = await readdir(join(operator.directory, 'idv'), { recursive: true });
		expect(names.sort()).toEqual(['profiles.json', 'secrets', 'secrets/prod', 'secrets/test']);
		expect(await modeOf(join(operator.directory, 'idv/secrets'))).toBe('700');
		expect(await modeOf(join(operator.directory, 'idv/secrets/prod'))).toBe('600');
		expect(await readFile(join(operator.directory, 'idv/profiles.json'), 'utf8')).not.toContain(
			authorizationOf('Basic', operator.service).slice(6),
		);

		const who = succeeded(await idv(['whoami', '--json'], own()));
		expect(who).toMatchObject({ credentialFrom: 'profile prod', baseUrl: operator.service.url, accepted: true });
		const list = await idv(['profile', 'list'], own());
		expect(list.stdout).toBe(`*  prod  ${operator.service.url}  Basic\n   test  ${operator.service.url}  Basic\n`);
		expect(await idv(['profile', 'use', 'test'], own())).toMatchObject({ status: 0 });
		const [chosen, named, byVariable] = await Promise.all([
			idv(['whoami', '--offline', '--json'], own()),
			idv(['whoami', '--offline', '--json', '--profile', 'prod'], own()),
			idv(['whoami', '--offline', '--json'], { ...own(), IDV_PROFILE: 'prod' }),
		]);
		expect([chosen, named, byVariable].map((outcome) => succeeded(outcome).credentialFrom)).toEqual([
			'profile test',
			'profile prod',
			'profile prod',
		]);
	});

	test('is replaced only when that is said, and removed with its secret', async () => {
		await add('prod');
		expectRefusal(await add('prod'), { status: 64, code: 'usage', words: /--replace/ });
		expect((await add('prod', '--replace')).status).toBe(0);
		expect((await idv(['profile', 'remove', 'prod'], own())).status).toBe(0);
		expect(await readdir(join(operator.directory, 'idv/secrets'))).toEqual([]);
		expect((await idv(['profile', 'list'], own())).stdout).toMatch(/^No profiles\. Add one:/);
	});

	test('that are added at once are all kept, and one that is chosen meanwhile is in use [F1600]', async () => {
		await add('first');
		const names = ['second', 'third', 'fourth', 'fifth'];
		const outcomes = await Promise.all([...names.map((name) => add(name)), idv(['profile', 'use', 'first'], own())]);
		expect(outcomes.map(({ status, stderr }) => [status, stderr])).toEqual(outcomes.map(() => [0, '']));
		const { current, profiles } = succeeded(await idv(['profile', 'list', '--json'], own())) as {
			current: string;
			profiles: { name: string }[];
		};
		expect(current).toBe('first');
		expect(profiles.map(({ name }) => name).sort()).toEqual(['first', ...names].sort());
		expect((await readdir(join(operator.directory, 'idv'))).sort()).toEqual(['profiles.json', 'secrets']);
	});

	test('never lends its credential to another service', async () => {
		await add('prod');
		const other = await givenService();
		const expected = { status: 64, code: 'usage', words: /credential of profile prod is for/ };
		await expectRefused(expected, ['whoami', '--url', other.url], own());
		expect(other.requests).toEqual([]);
	});

	test('never lends the credential of an encrypted service to plain http of the same host', async () => {
		const other = await givenService();
		const encrypted = other.url.replace('http:', 'https:');
		expect(
			(
				await idv(
					['profile', 'add', 'safe', '--url', encrypted, '--authorization-file', '-'],
					own(),
					authorizationOf('ApiKey', other),
				)
			).status,
		).toBe(0);
		const expected = { status: 64, code: 'usage', words: /credential of profile safe is for https:/ };
		await expectRefused(expected, ['whoami', '--profile', 'safe', '--url', other.url], own());
		expect(other.requests).toEqual([]);
	});

	test('refuses names, addresses and credentials that cannot be used, and keeps what it has', async () => {
		await add('prod');
		const before = await readFile(join(operator.directory, 'idv/profiles.json'), 'utf8');
		const adding = (name: string, url: string, credential: string) =>
			idv(['profile', 'add', name, '--url', url, '--authorization-file', '-'], own(), credential);
		const cases: [outcome: Promise<Outcome>, status: number, code: string, words: RegExp][] = [
			[adding('../up', operator.service.url, 'Bearer abc'), 64, 'usage', /Not a valid profile name/],
			[adding('a', 'ftp://x', 'Bearer abc'), 64, 'usage', /not the address/],
			[adding('a', 'http://id.example.com', 'Bearer abc'), 77, 'insecure-origin', /https/],
			[adding('a', operator.service.url, 'abc'), 78, 'credential-unreadable', /does not hold one credential/],
			[idv(['profile', 'add', 'a', '--url', operator.service.url], own()), 64, 'usage', /no credential/],
			[idv(['profile', 'use', 'prdo'], own()), 64, 'usage', /did you mean prod\?/],
			[idv(['profile', 'remove', 'x'], own()), 64, 'usage', /no profile x.*There are: prod/],
		];
		for (const [outcome, status, code, words] of cases) expectRefusal(await outcome, { status, code, words });
		expect(await readFile(join(operator.directory, 'idv/profiles.json'), 'utf8')).toBe(before);
		await writeFile(join(operator.directory, 'idv/profiles.json'), '{');
		const broken = { status: 78, code: 'settings-unreadable', words: /profiles cannot be read.*profiles\.json/ };
		expectRefusal(await idv(['profile', 'list'], own()), broken);
		await rm(join(operator.directory, 'idv/profiles.json'));
		await add('prod');
		expect(await idv(['profile', 'list'], own())).toMatchObject({ status: 0, stdout: expect.stringContaining('prod') });
	});

	test.skipIf(!hasTerminal)('asks for the credential at a terminal without showing it (needs script)', async () => {
		const answer = ['(it stays hidden): ', 'ApiKey ak-geheim\r'] as const;
		const args = ['profile', 'add', 'prod', '--url', operator.service.url];
		const { status, text } = await atTerminal('idv', args, own(), [answer]);
		expect(text).toMatch(/Profile prod added: ApiKey/);
		expect(text).not.toContain('geheim');
		expect(await readFile(join(operator.directory, 'idv/secrets/prod'), 'utf8')).toBe('ApiKey ak-geheim\n');
		expect(status).toBe(0);
	});
});
