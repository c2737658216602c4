import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { formatAuthorization } from '../../src/protocol/authorization.ts';
import { readPairingCode } from '../../src/protocol/pairing-code.ts';
import { readSingleCode } from '../../src/scanning/picture-reader.edge.ts';
import type { EmbeddedService } from '../../src/service/embedded-service.runner.ts';
import { expectJsonRefusal, expectRefusal } from '../cli/refusal.ts';
import { atTerminal, hasTerminal } from '../cli/terminal.ts';
import { givenService, openChannel, registerDevice } from '../service/fixture.ts';
import { modeOf, operatorOfFile, succeeded } from './operator.ts';

const operator = operatorOfFile();
const { env, idv, expectRefused, file } = operator;

describe('qrcode', () => {
	test('--out saves a picture that a scanner reads as a code for a device', async () => {
		const out = join(operator.directory, 'code.png');
		const { status, stdout, stderr } = await idv(['qrcode', '--workflow', 'checkin', '--out', out]);
		const text = await readSingleCode(out);
		expect(readPairingCode(text)).toMatchObject({
			kind: 'pairingCode',
			baseUrl: operator.service.url,
			workflowId: 'checkin',
		});
		expect(await modeOf(out)).toBe('600');
		expect(stdout).toMatch(
			/^Service +http:\S+\nWorkflow +checkin\nEnds +(?:\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d \(in 5 min\)\nSaved +\S+code\.png\n$/,
		);
		expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
	});

	test('--out takes an SVG too, replaces an older one, and --json names the file instead of the secret', async () => {
		const out = await file('code.svg', 'an older one', 0o644);
		const told = succeeded(await idv(['qrcode', '--workflow', 'checkin', '--out', out, '--json']));
		expect(told).toMatchObject({ workflowId: 'checkin', file: out, warnings: [] });
		expect(told).not.toHaveProperty('url');
		expect(await readFile(out, 'utf8')).toMatch(/^<svg /);
		expect(await modeOf(out)).toBe('600');
		expect(await readdir(operator.directory)).toEqual(['code.svg']);
	});

	test('--json without a file is the link and when it ends', async () => {
		const { url, expiresAt } = succeeded(await idv(['qrcode', '--workflow', 'checkout', '--json']));
		expect(readPairingCode(url)).toMatchObject({ workflowId: 'checkout' });
		expect(Date.parse(expiresAt)).toBeGreaterThan(Date.now());
	});

	test.skipIf(!hasTerminal)('at a terminal draws it (needs script)', async () => {
		const { status, text } = await atTerminal('idv', ['qrcode', '--workflow', 'checkin'], env());
		expect(text.match(/[█▀▄]/g)?.length).toBeGreaterThan(200);
		expect(text).toMatch(/^Ends +.*\(in 5 min\)$/m);
		expect(status).toBe(0);
	});

	test('of a service that sends a picture is read from it, and saved as it came', async () => {
		const picture = await pictureOf(operator.service);
		const other = await givenService();
		const answer = { status: 200, headers: { 'content-type': 'image/png' }, body: picture };
		other.failNext('/api/deeplink/qrcode', answer);
		const out = join(operator.directory, 'code.png');
		const { status, stdout, stderr } = await idv(
			['qrcode', '--workflow', 'checkin', '--out', out],
			env('Basic', other),
		);
		expect(Buffer.compare(await readFile(out), picture)).toBe(0);
		expect(stdout).toMatch(/Ends +the service does not say/);
		expect(stderr).toBe(`Warning: The code leads devices to ${operator.service.url}, not to ${other.url}.\n`);
		expect(status).toBe(0);
	});

	test('warns of a code that would surprise whoever scans it', async () => {
		const other = await givenService();
		const link = (authority: string, query = '') =>
			`${authority}/mobile?authorization=Token%20tr-0123456789abcdefghijklmnop12${query}`;
		const cases: [body: object, words: RegExp[]][] = [
			[{ url: link(other.url) }, [/names no workflow/]],
			[{ url: link(other.url, '&workflowId=other') }, [/for workflow other, not for checkin/]],
			[
				{ url: link('http://192.0.2.7', '&workflowId=checkin') },
				[/leads devices to http:\/\/192\.0\.2\.7/, /plain http/],
			],
			[{ url: link(other.url, '&workflowId=checkin'), expiresAt: '2020-01-01T00:00:00Z' }, [/has ended already/]],
		];
		for (const [body, words] of cases) {
			other.failNext('/api/deeplink/qrcode', { status: 200, body });
			const { warnings } = succeeded(await idv(['qrcode', '--workflow', 'checkin', '--json'], env('Basic', other)));
			expect(warnings).toHaveLength(words.length);
			for (const [index, one] of words.entries()) expect(warnings[index]).toMatch(one);
		}
	});

	test('refuses an answer that is no code', async () => {
		const other = await givenService();
		other.failNext('/api/deeplink/qrcode', { status: 200, body: { url: 'https://www.example.com/' } }, 2);
		const expected = { status: 69, code: 'bad-response', words: /something that is not a pairing code/ };
		const args = ['qrcode', '--workflow', 'checkin', '--out', join(operator.directory, 'code.png')];
		await expectRefused(expected, args, env('Basic', other));
		expect(await readdir(operator.directory)).toEqual([]);
	});

	test('refuses bad flags before a code is made', async () => {
		const before = operator.service.requests.length;
		const cases: [args: string[], words: RegExp][] = [
			[['--workflow', 'checkin', '--out', 'code.gif'], /ends in \.png or \.svg/],
			[['--workflow', ' ', '--out', 'code.png'], /--workflow must not/],
			[['--workflow', 'checkin', '--terminal'], /not a terminal/],
		];
		await Promise.all(
			cases.map(([args, words]) =>
				idv(['qrcode', ...args]).then((outcome) => expectRefusal(outcome, { status: 64, code: 'usage', words })),
			),
		);
		const piped = await idv(['qrcode', '--workflow', 'checkin']);
		expectRefusal(piped, { status: 64, code: 'usage', words: /pairing code is a secret/ });
		expect(operator.service.requests.length).toBe(before);
	});

	test('for a workflow that the service does not know, and into a directory that is not there', async () => {
		const out = join(operator.directory, 'code.png');
		const unknown = { status: 65, code: 'workflow-unknown', words: /does not know the workflow nowhere/ };
		await expectRefused(unknown, ['qrcode', '--workflow', 'nowhere', '--out', out]);
		const away = { status: 74, code: 'state-unwritable', words: /cannot be written: it is not there \(ENOENT\)/ };
		await expectRefused(away, [
			'qrcode',
			'--workflow',
			'checkin',
			'--out',
			join(operator.directory, 'none', 'code.png'),
		]);
	});
});

describe('session start', () => {
	const start = ['session', 'start', '--workflow', 'checkin'];

	test('--json is the hand-off record, for every way to name several workflows', async () => {
		const record = succeeded(await idv([...start, '--json'], env('ApiKey')));
		expect(Object.keys(record).sort()).toEqual(['createdAt', 'expiresAt', 'url', 'workflowIds']);
		expect(readPairingCode(record.url)).toMatchObject({ sessionId: expect.stringMatching(/^[0-9a-f]{24}$/) });
		expect(Date.parse(record.expiresAt) - Date.parse(record.createdAt)).toBe(3_600_000);
		const [repeated, listed] = await Promise.all([
			idv([...start, '--workflow', 'checkout', '--json'], env('ApiKey')),
			idv(['session', 'start', '--workflow', 'checkin', 'checkout', '--json'], env('ApiKey')),
		]);
		for (const outcome of [repeated, listed]) expect(succeeded(outcome).workflowIds).toEqual(['checkin', 'checkout']);
	});

	test('metadata, locale and ttl reach the device', async () => {
		const other = await givenService();
		const connection = await registerDevice(other, 'KIOSK-7', 'checkin');
		const channel = await openChannel(other, connection);
		const metadata = await file('metadata.json', '{"visitor":"Ada","age":36}');
		const flags = ['--metadata', `@${metadata}`, '--locale', 'de-CH', '--ttl', '600', '--json'];
		const record = succeeded(await idv([...start, ...flags], env('ApiKey', other)));
		expect(Date.parse(record.expiresAt) - Date.parse(record.createdAt)).toBe(600_000);
		expect(await channel.nextMessage()).toMatchObject({ metadata: { visitor: 'Ada', age: 36 }, locale: 'de-CH' });
	});

	test.skipIf(!hasTerminal)('--qr draws the URL at a terminal (needs script)', async () => {
		const { status, text } = await atTerminal('idv', [...start, '--qr'], env('ApiKey'));
		expect(text).toMatch(/^Session started for checkin\.\n/);
		expect(text.match(/[█▀▄]/g)?.length).toBeGreaterThan(200);
		expect(text).toMatch(/^URL +http\S+sessionId=[0-9a-f]{24}\nEnds +.*\(in 60 min\)$/m);
		expect(status).toBe(0);
	});

	test('refuses what cannot be sent, before a session is started', async () => {
		const before = operator.service.requests.length;
		const list = await file('list.json', '[1]');
		const cases: [flags: string[], status: number, code: string, words: RegExp][] = [
			[['--metadata', '{oops'], 65, 'body-invalid', /--metadata is not JSON/],
			[['--metadata', '"text"'], 65, 'body-invalid', /not a JSON object/],
			[['--metadata', `@${list}`], 65, 'body-invalid', /not a JSON object/],
			[['--metadata', `@${operator.directory}/none`], 65, 'body-invalid', /none cannot be read: it is not there/],
			[['--locale', ''], 64, 'usage', /--locale/],
			[['--ttl', '0'], 64, 'usage', /--ttl must be a time such as 30d/],
			[['--workflow', 'x'.repeat(200)], 64, 'usage', /--workflow must have at most 128/],
		];
		await Promise.all(
			cases.map(([flags, status, code, words]) =>
				idv([...start, ...flags], env('ApiKey')).then((outcome) => expectRefusal(outcome, { status, code, words })),
			),
		);
		expectRefusal(await idv(start, env('ApiKey')), {
			status: 64,
			code: 'usage',
			words: /hand-off URL is a secret.*Add --json if a program reads it\./,
		});
		expect(operator.service.requests.length).toBe(before);
	});

	test('wants an API key, and a workflow that exists', async () => {
		const forbidden = { status: 77, code: 'access-forbidden', words: /403.*Use an API key with deeplink:write/ };
		expectJsonRefusal(await idv([...start, '--json'], env('Bearer')), forbidden);
		const unknown = { status: 65, code: 'workflow-unknown', words: /does not know the workflow nowhere/ };
		const nowhere = ['session', 'start', '--workflow', 'nowhere', '--json'];
		expectJsonRefusal(await idv(nowhere, env('ApiKey')), unknown);
	});

	test('shows a URL also when the service tells nothing else', async () => {
		const other = await givenService();
		const url = `${other.url}/mobile?authorization=Token%20tr-0123456789abcdefghijklmnop12&sessionId=1`;
		other.failNext('/api/v1/deeplink', { status: 201, body: { url } });
		const record = succeeded(await idv([...start, '--json'], env('ApiKey', other)));
		expect(record).toEqual({ url, createdAt: null, expiresAt: null, workflowIds: ['checkin'] });
	});

	test('without an answer is not tried again', async () => {
		const other = await givenService();
		other.dropBeforeReply('/api/v1/deeplink');
		const { status, stdout } = await idv([...start, '--json'], env('ApiKey', other));
		expect(JSON.parse(stdout).error.remedy).toMatch(/may have created a session/);
		expect(status).toBe(69);
		expect(other.requests).toHaveLength(1);
	});
});

/** The picture that a service draws. */
async function pictureOf({ url, credentials }: EmbeddedService): Promise<Buffer> {
	const authorization = formatAuthorization({ scheme: 'Basic', ...credentials.basic });
	const answer = await fetch(`${url}/api/deeplink/qrcode?workflowId=checkin`, {
		headers: { authorization, accept: 'image/png' },
	});
	return Buffer.from(await answer.arrayBuffer());
}
