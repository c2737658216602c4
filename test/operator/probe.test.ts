/** `idv probe`: what it says before, what it never does, how it looks for a channel, and what it stops at. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { namedLife, pongsFor, readMessages, tokenPlaces } from '../../src/operator/probe-decisions.ts';
import { MAX_REQUESTS } from '../../src/operator/probe-run.ts';
import {
	CHANNEL_PATHS,
	findChannel,
	type Handshake,
	type HandshakeAnswer,
	subprotocolHints,
} from '../../src/operator/probe-search.ts';
import type { DialectOptions } from '../../src/service/embedded-service.ts';
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

describe('what it does', () => {
	test('without --yes it says what it would create, and sends nothing', async () => {
		const before = operator.service.requests.length;
		const { status, stdout, stderr } = await idv(['probe', '--workflow', 'checkin'], env('ApiKey'));
		expect({ status, stdout }).toEqual({ status: 64, stdout: '' });
		expect(stderr).toMatch(
			/^Error: Nothing was sent\. Registers the device idv-probe-[0-9a-f]{8} for workflow checkin at http:\S+: one device connection, which stays until it ends\. Uses the credential from IDV_AUTHORIZATION\. Creates no API key\. Sends at most 30 requests and watches the channel for 60 s\. Run it again with --yes\. \[usage\]\n$/,
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

	test('an idle timeout of the way there is told, and needs no setting', async () => {
		const { outcome, settings } = await probed({ idleTimeoutSeconds: 0.5 });
		expect(outcome.stdout).toMatch(/a silent channel is cut after [01] s \(the agent pings more often\)/);
		expect(settings).not.toHaveProperty('service');
	});

	test('429 ends it with what it has', async () => {
		const { outcome, service } = await probed({ registrationLimit: { perMinute: 1 } }, [], {});
		expect(outcome.status).toBe(0);
		const again = await idv(QUICK, env('ApiKey', service));
		expect(again).toMatchObject({ status: 75, stderr: expect.stringContaining('[service-overloaded]') });
		expect(again.stdout).toContain('Requests: 1 of at most 30.');
	});

	test('a wait that is too long ends it, a short one is kept', async () => {
		const service = await givenService();
		const refuse = (retryAfter: string) =>
			service.failNext('/api/device/connection', { status: 503, headers: { 'retry-after': retryAfter } });
		refuse('3600');
		const long = await idv(QUICK, env('ApiKey', service));
		expect(long.stderr).toContain('The service asks for a wait of 3600 s, longer than 60 s.');
		refuse('1');
		const began = performance.now();
		expect(await idv(QUICK, env('ApiKey', service))).toMatchObject({ status: 0 });
		expect(performance.now() - began).toBeGreaterThan(1000);
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
				expect(tried).toBeLessThan(MAX_REQUESTS - 6);
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
	const seen = (messages: [number, object][], ended: { atMs: number; code: number } | null = null) => ({
		heartbeatsAtMs: [100, 500],
		messages: messages.map(([atMs, message]) => ({ atMs, text: JSON.stringify(message) })),
		pongs: 1,
		ended,
	});

	test('what follows each heartbeat, and only then, is an acknowledgement', () => {
		const both: [number, object][] = [
			[110, { type: 'got' }],
			[300, { type: 'news' }],
			[510, { type: 'got' }],
		];
		expect(readMessages(seen(both), 50)).toMatchObject({ acknowledgements: ['got'], kinds: ['news'], ping: null });
		expect(readMessages(seen([...both, [900, { type: 'got' }]]), 50)).toMatchObject({ acknowledgements: [] });
	});

	test('a kind at another place is found, and so is an id', () => {
		const message = { meta: { op: 'x', uuid: 'u-1' } };
		expect(readMessages(seen([[300, message]]), 50)).toMatchObject({
			kindPointer: '/meta/op',
			idPointer: '/meta/uuid',
			kinds: ['x'],
		});
	});

	test('what the channel ends for is a ping, and its answers keep its shape', () => {
		const read = readMessages(seen([[400, { op: 'PING', id: 'p-1' }]], { atMs: 800, code: 4408 }), 50);
		expect(read).toMatchObject({ kindPointer: '/op', ping: { kind: 'PING', periodMs: 400, isFatal: true } });
		expect(pongsFor({ kind: 'PING', text: '{"op":"PING","id":"p-1"}' }, '/op')[0]).toBe('{"op":"PONG","id":"{id}"}');
	});
});
