/** `idv probe`: the decisions, without a service: the pace, the search for a channel, what messages show. */
import { setImmediate } from 'node:timers/promises';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { heartbeatAnswers } from '../../src/operator/probe-asides.runner.ts';
import { handshakeFindings, lifeFindings } from '../../src/operator/probe-findings.runner.ts';
import { readForm } from '../../src/operator/probe-form.runner.ts';
import { guesses } from '../../src/operator/probe-guesses.runner.ts';
import { createPace, MAX_REQUESTS } from '../../src/operator/probe-pace.ts';
import { pongsFor } from '../../src/operator/probe-pongs.runner.ts';
import { cameAgain, namedLife, ranked, tokenPlaces } from '../../src/operator/probe-readings.runner.ts';
import { CHANNEL_PATHS, findChannel, type Handshake, type HandshakeAnswer } from '../../src/operator/probe-search.ts';
import type { Life } from '../../src/operator/probe-wire.runner.ts';
import { subprotocolHints } from '../../src/operator/probe-words.ts';
import { createSteppedClock } from '../harness/stepped-clock.ts';

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

	test('what is asked at once counts, too, and is at most ten in a minute and as many as there are in all', async () => {
		const clock = createSteppedClock();
		const pace = createPace('service', clock, new AbortController().signal, () => {});
		const taken: number[] = [];
		for (let second = 0; second < 600; second += 1) {
			while (pace.take()) taken.push(second);
			clock.advance(1000);
		}
		expect([taken.length, pace.used, pace.left()]).toEqual([MAX_REQUESTS, MAX_REQUESTS, 0]);
		expect([...new Set(taken)]).toEqual([0, 61, 122]);
		await expect(pace.turn()).rejects.toThrow('All 30 requests that the probe may make to service are used.');
	});

	test('a 429 puts off every further request for as long as it asks', async () => {
		const atSeconds = await asking([{ status: 200 }, { status: 429, retryAfter: '90' }]);
		expect(atSeconds.slice(0, 4)).toEqual([0, 0, 90, 90]);
		expect((await asking([{ status: 429, retryAfter: '300' }])).slice(0, 2)).toEqual([0, 300]);
		const longer = asking([{ status: 429, retryAfter: '301' }]);
		await expect(longer).rejects.toThrow('The service asks for a wait of 301 s, longer than 300 s.');
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

	test.each<[string, Partial<HandshakeAnswer>]>([
		['401', { status: 401, names: ['conn_ticket'] }],
		['400, which is that of the subprotocol as well', { status: 400, names: ['conn_ticket'] }],
	])(
		'takes the parameter that a refusal names also where a subprotocol has to be offered first (%s) [F1444]',
		(_, refusal) => {
			const asked: string[] = [];
			const { found, tried } = search((way) => {
				asked.push(way.path);
				if (way.path !== '/ws/device') return 404;
				if (!way.subprotocols.includes('idv.device.v2')) return { status: 400, hints: ['idv.device.v2'] };
				const isShown = way.inQuery.some(({ name, form }) => name === 'conn_ticket' && form === 'token');
				return isShown ? { status: 101, subprotocol: 'idv.device.v2' } : refusal;
			});
			expect(found).toMatchObject({ inQuery: [{ name: 'conn_ticket' }], subprotocols: ['idv.device.v2'] });
			expect([tried, new Set(asked)]).toEqual([4, new Set(['/ws/device'])]);
		},
	);

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
			handshakeFindings(way, 'proved', { given, ownPaths: new Set() }).find(({ point }) => point === 'subprotocol')
				?.certainty;
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
	['{"ValidUntil":"/Date(1893459600000)/"}', 3600],
	['{"connection":{"tokenExpiresAtUtc":"/Date(1893459600000+0100)/"}}', 3600],
	['{"codeExpiresAt":1893459600,"notAfter":"2030-01-01T00:00:45Z"}', 45],
])('the life in %s is %s', (body, life) => expect(namedLife(body, Date.UTC(2030, 0, 1)).seconds).toBe(life));

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

	test('the kind at /@type is found, and of kinds at no usual place none is called guessed [F1445]', () => {
		const kindIn = (name: string) => {
			const kinds = ['SessionStarted', 'DocumentScanned', 'SessionEnded'];
			const seen = life(kinds.map((kind, at) => [at * 90, { [name]: kind, '@id': `urn:n:${at}`, page: at }] as const));
			const watched = { life: seen, form: readForm(seen.heard), settleMs: 50, settings: {} };
			return lifeFindings(watched).find(({ point }) => point === 'notification-kind');
		};
		expect(kindIn('@type')).toMatchObject({ certainty: 'guessed', settings: { kindPointer: '/@type' } });
		expect(kindIn('was')).toMatchObject({ certainty: 'not seen', found: 'at none of the usual places' });
		expect(kindIn('type')).toMatchObject({ certainty: 'guessed', found: 'at a usual place' });
	});

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

	test.each([
		[{ notifications: [] }, []],
		[{ data: {} }, []],
		[{ data: null }, []],
		[{ text: '' }, []],
		[{ reply: { ok: true, events: [] } }, []],
		[{ ok: true, error: null, seq: null }, ['got']],
	])(
		'an answer with an empty place for contents, %j, is proved to say nothing else only where that is an error or a number [F1270]',
		(field, kinds) => {
			expect(answersIn(answering(field, field, field))).toEqual(kinds);
		},
	);

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
					{ kind: 7, seq: 41 },
					{ kind: 8, seq: 42 },
				],
			],
			{ frameContents: 'array', notificationIdPointer: '/seq' },
		],
	])('%j is read by %j', (documents, settings) => {
		const { heard } = life(documents.map((document, index) => [index, document as object]));
		expect(readForm(heard)).toEqual(settings);
	});

	test.each<[string, (at: number) => object, object]>([
		[
			'/notification',
			(at) => ({ uuid: `u-${at}`, documents: [{ type: ['passport', 'visa'][at % 2], id: `d-${at}` }] }),
			{ notificationIdPointer: '/uuid' },
		],
		['/notification', (at) => ({ marker: `M${at}M`, session: { workflow: { id: 'checkin', type: 'identity' } } }), {}],
		['/notification', (at) => ({ page: at, session: { workflow: { type: ['id.basic', 'id.full'][at % 2] } } }), {}],
		['/notification', (at) => ({ person: { name: 'lee', n: at }, device: { kind: 'kiosk' } }), {}],
		[
			'/data/notification',
			(at) => ({ documents: [{ type: 'passport' }], data: { uuid: `u-${at}` } }),
			{ notificationIdPointer: '/data/uuid' },
		],
	])('the kind at %s is not taken from what the message is about [F1620]', (kindPointer, more, others) => {
		const kinds = ['session.started', 'session.step', 'session.finished'];
		const messages = Array.from({ length: 6 }, (_, at): readonly [number, object] => {
			const { data, ...rest } = more(at) as { data?: object };
			const kind = { notification: kinds[at % 3] };
			return [at, data ? { ...rest, data: { ...data, ...kind } } : { ...kind, ...rest }];
		});
		expect(readForm(life(messages).heard)).toEqual({ kindPointer, ...others });
		// A word that repeats tells as well, where no dot does.
		const plain = messages.map(([at, one]): readonly [number, object] => [
			at,
			JSON.parse(JSON.stringify(one).replaceAll(/session\.(.)/g, (_, first) => `Session${first.toUpperCase()}`)),
		]);
		expect(readForm(life(plain).heard)).toEqual({ kindPointer, ...others });
	});

	test('of a kind that is the same in each and within what the message is about it is said that it is a mere guess [F1621]', () => {
		const found = (type: (at: number) => string) => {
			const all = [1, 2, 3].map((at) => [at * 90, { uuid: `u-${at}`, session: { type: type(at) } }] as const);
			const seen = life(all);
			const watched = { life: seen, form: readForm(seen.heard), settleMs: 50, settings: {} };
			return lifeFindings(watched).find(({ point }) => point === 'notification-kind')?.found;
		};
		expect(found(() => 'identity')).toBe(
			'at /session/type: a mere guess, the same in each and within what it is about',
		);
		expect(found((at) => `session.step${at}`)).toBe('at /session/type');
	});

	test('answers to the device and errors do not say where notifications have their kind, however many they are', () => {
		const errors = [110, 300, 510, 600, 710].map((atMs) => [atMs, { op: 'error', why: 'unknown' }] as const);
		const news = [[400, { what: { name: 'visit.open' } }] as const, [900, { what: { name: 'visit.shut' } }] as const];
		expect(readForm(ranked(life([...errors, ...news]), 0, 50))).toEqual({ kindPointer: '/what/name' });
		const answers = [110, 510, 710].map((atMs) => [atMs, { op: 'got', n: atMs }] as const);
		expect(readForm(ranked(life([...answers, ...news]), 0, 50))).toEqual({ kindPointer: '/what/name' });
	});

	test('where only answers to the device came, they do not say where notifications have their id and their kind [F1278]', () => {
		const answers = BEATS.map((atMs, index) => [atMs + 3, { type: 'event', name: 'got', seq: index }] as const);
		expect(readForm(ranked(life(answers), 0, 50))).toEqual({});
		// Once notifications come, these do.
		const news = [300, 400].map((atMs) => [atMs, { type: 'event', name: 'visit.open', uid: `u-${atMs}` }] as const);
		const all = ranked(life([...answers, ...news]), 0, 50);
		expect(readForm(all)).toEqual({ kindPointer: '/name', notificationIdPointer: '/uid' });
		// What comes all the time came by chance after it.
		const often = [103, 240, 330, 370, 460, 520].map(
			(atMs) => [atMs, { type: 'event', name: 'visit', uid: atMs }] as const,
		);
		const said = [100, 187, 277, 367, 457, 500].map((atMs) => ({ atMs, text: '{"type":"heartbeat"}' }));
		expect(readForm(ranked({ ...life(often), said }, 0, 90))).toMatchObject({ notificationIdPointer: '/uid' });
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

test.each([
	['says that it does (dup)', { dup: true }, 1],
	['counts itself', { attempt: 2 }, 1],
	['says something else', { state: 'ended' }, 0],
])('a message with an id and a kind that comes again, and %s, is told as the same, or not', (_, more, times) => {
	const text = (own: object) => JSON.stringify({ type: 'visit', id: 'n-1', dup: false, attempt: 1, ...own });
	const messages = [text({}), text(more)].map((one, at) => ({ text: one, atMs: 5000 * at }));
	expect(cameAgain(messages as Parameters<typeof cameAgain>[0], {})).toHaveLength(times);
});
