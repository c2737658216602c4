import fc from 'fast-check';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { openShaper, readWords } from '../../src/base/shapes.edge.ts';
import { createShaper } from '../../src/base/shapes.ts';
import { createTranscript, type SeenLine } from '../../src/base/transcript.ts';
import { leftOf, SECRETS, spellings } from './spellings.ts';

const shaper = openShaper(() => ['id.example.com', 'id.example.com:8443', 'KIOSK-7', 'check-in']);
/** Hashes differ in each run. */
const plain = (text: string) => text.replaceAll(/-[0-9a-f]{6}\]/g, ']');

test('the words are read also where the working directory is gone [F1474]', () => {
	vi.spyOn(process, 'cwd').mockImplementation(() => {
		throw new Error('gone');
	});
	onTestFinished(() => void vi.restoreAllMocks());
	expect(readWords()).toContain(' agent ');
});

test('no given name of a person is among the words that pass, but those that are words of programs too, such as Max [F1566]', () => {
	const names =
		'Ada Adam Ahmed Aisha Alan Alice Ali Amir Ana Andrea Anna Anne Ben Carlos Chen Clara David Diana Elena Emma Eva Fatima Felix Fritz Grace Hans Ibrahim Ivan Jan Jean Jim Jo John Jose Juan Julia Karl Kim Lea Leon Li Lisa Luca Maria Mark Mia Mina Mohamed Nina Noah Olga Omar Otto Pablo Paul Peter Petra Priya Rosa Sam Sara Sofia Tim Tom Uwe Wang Will Yuki Zoe';
	const known = readWords();
	expect(names.split(' ').filter((name) => known.includes(` ${name} `))).toEqual([]);
});

describe('a sentence', () => {
	test.each([
		'Offline: The connection to id.example.com was lost.',
		'id.example.com closed the channel with 4401 (policy violation).',
		'The line is cut after 25 s of silence: it is pinged more often from now on',
		'Paired. Online with id.example.com, workflow check-in.',
		'connect ECONNREFUSED 127.0.0.1:443',
		'The certificate of id.example.com:8443 has expired (CERT_HAS_EXPIRED).',
		'The file /var/lib/idv-agent/state.json cannot be read: EACCES.',
		'service.chanelPath is not a setting; did you mean service.channelPath?',
		'At 2026-11-23T17:16:19.123Z the service asked to wait 3600 s.',
	])('of our own words, hosts, ids and figures stays: %s', (text) => {
		expect(shaper.said(text)).toBe(text);
	});

	test.each([
		['answered 401: Token xkq93jdla0 of Maria Schmidt expired.', 'answered 401: Token [text-27] expired.'],
		['password=hunter2hunter2', 'password=[word-14]'],
		['closed with 4401: t o k 3 n 9 b c', 'closed with [text-21]'],
		['points at another host, portal.hotel.example.', 'points at another host, [dotted-20].'],
		['the PIN is 482913', 'the PIN is [digits-6]'],
		['the PIN is 48 29 13', 'the PIN is [text-8]'],
		[
			'https://user:word@id.example.com/mobile?authorization=Token%20abc#part',
			'https://[word-9]@id.example.com/mobile?authorization=Token%20[word-3]#[word-5]',
		],
	])('with foreign words has their shape: %s', (text, shown) => {
		expect(plain(shaper.said(text))).toBe(shown);
	});

	test('names a file of the agent in its state directory, and of other names in such a place the shape [F849]', () => {
		const own = openShaper(() => ['/var/lib/idv-agent']);
		for (const name of [
			'events-00000012-8f3a09c27be14d55.log',
			'audit-00000001-*.log',
			'state.json.corrupt-2026-11-23T17-16-19.123Z.bak',
			'events.db.corrupt-2026-11-23T17:16:19.123Z',
		]) {
			const text = `Stored events are damaged in /var/lib/idv-agent/${name}: a part of it is damaged.`;
			expect(own.said(text)).toBe(text);
			if (name.includes('8f3a')) expect(own.said(`/srv/elsewhere9/${name}`)).not.toContain(name);
		}
		expect(own.said('lost: /var/lib/idv-agent/8f3a09c27be14d55.log')).not.toContain('8f3a');
	});

	test('has the same shape for the same value, and another document has another one', () => {
		const [first, second] = ['the token xkq93jdla0 expired', 'unknown token xkq93jdla0 of the service'].map(
			(text) => /\[.*\]/.exec(shaper.said(text))?.[0],
		);
		expect(first).toBe(second);
		expect(openShaper().said('xkq93jdla0')).not.toBe(first);
	});

	test('that was written by another writer keeps its shapes, in a line of the journal too', () => {
		const line = shaper.line(
			`2026-11-23T17:16:19+0000 KIOSK-7 idv-agent[12345]: ${JSON.stringify({ level: 'warn', kind: 'kiosk.greeting', msg: 'answered 400: Maria' })}`,
		);
		expect(plain(line)).toMatch(
			/KIOSK-7 idv-agent\[12345\]: \{"level":"warn","kind":"kiosk.greeting","msg":"answered 400: \[word-5\]"\}/,
		);
		expect(openShaper(() => ['KIOSK-7'], true).line(line)).toBe(line);
	});
});

test('a foreign document keeps its structure, names, times and counts; people and numbers have a shape', () => {
	const document = {
		type: 'session.created',
		at: '2026-11-23T17:16:19Z',
		expiresIn: 3600,
		sequence: 12,
		deviceId: 'KIOSK-7',
		person: { firstName: 'Will', lastName: 'Long', pin: 482913, born: '1980-02-03' },
		bytes: [116, 111, 107],
		success: false,
		message: 'Short token expired',
		link: 'Connection short-one',
	};
	expect(JSON.parse(plain(shaper.body(JSON.stringify(document))))).toEqual({
		...document,
		person: { firstName: '[word-4]', lastName: '[word-4]', pin: '[number-6]', born: '[word-10]' },
		bytes: ['[number-3]', '[number-3]', '[number-3]'],
		link: 'Connection [word-9]',
	});
});

/** A number in pieces, with words of this program between them. */
const IN_PIECES = [
	['card 411 and 111 and 111 and 111 and 111 and 1', /411|111/],
	['code 4 and 8 and 2 and 9 and 1 and 3', /\b[482913]\b/],
	['call 049 or 170 or 123 or 456 or 7', /049|170|123|456/],
	['code 48, then 29, then 13', /48|29|13/],
	['48 ms 29 ms 13 ms', /48|29|13/],
	['48 KiB 29 KiB 13 KiB', /48|29|13/],
	['device 482 of 913', /482|913/],
	['482913 ms', /482913/],
	['line 48 at id.example.com and 29 at id.example.com and 13', /48|29|13/],
	['code.411.111.111.111', /411|111/],
	['v4 and v8 and v2 and v9 and v1 and v3', /[913]/],
	['session.80.42.63', /80|42|63/],
	['retry-80-42-63', /80|42|63/],
	['event.19.87.04.23', /19|87|04|23/],
	['Bp5-Xz8-Wq2-Km7-Tv', /[5827]/],
] as const;

test.each(IN_PIECES)('of the words of others one group of digits is shown at most: %s [F1180]', (text, digits) => {
	const reason = { kind: 'close', exchange: 1, direction: 'toDevice', code: 4123, reason: text } as const;
	const transcript = (line: SeenLine) => {
		const lines: string[] = [];
		createTranscript(
			(one) => void lines.push(one),
			() => 5,
			openShaper,
		).note(line);
		return lines.join('').replace('"code":4123', '');
	};
	for (const shown of [
		shaper.said(`id.example.com closed the channel: ${text}.`, { detail: text }),
		JSON.stringify(shaper.document({ kind: text, problem: { message: text, params: { detail: text } } })),
		shaper.body(JSON.stringify({ type: text, code: text, detail: text })),
		shaper.body(text),
		transcript(reason),
		transcript({ kind: 'answer', exchange: 1, status: 400, headers: { server: text, via: text }, body: text }),
	])
		expect(shown.replaceAll(/\[\w+-\d+-[0-9a-f]{6}\]|"at":5|"exchange":1|"status":400/g, '')).not.toMatch(digits);
});

test('one group of three digits, a status and the code of a close are shown in the words of others', () => {
	for (const text of [
		'room 12 is closed',
		'403: no device',
		'closed with 4401',
		'retry in 30 s',
		'POST /api/v2/device',
	])
		expect(shaper.told(text)).toBe(text);
});

test.each(['5 of 10 licences used', 'x 1 y', '4 8 2', '12', '7, no more', '4123', '403 403 403'])(
	'a status or a close code stays in its sentence, whatever the words of the service begin with: %s [F1181]',
	(detail) => {
		const host = 'id.example.com';
		expect(shaper.said(`${host} closed the channel with 4123: ${detail}.`, { host, closeCode: 4123, detail })).toMatch(
			/^id\.example\.com closed the channel with 4123: /,
		);
		expect(shaper.said(`${host} answered 403: ${detail}. See --help.`, { host, status: 403, detail })).toMatch(
			/^id\.example\.com answered 403: .*See --help\.$/,
		);
	},
);

test('numbers and dates that a sentence of ours was made with stay in it, also when its line is read again [F1182]', () => {
	const told = {
		message: 'It ended on 2025-06-01, and the clock shows 2026-11-27: set events.maxBytes to 65536 or less.',
		params: { on: '2025-06-01', clock: '2026-11-27', maxBytes: 65_536 },
	};
	expect(shaper.document(told)).toEqual(told);
	expect(shaper.document({ sentence: `Not online: ${told.message}`, problem: told })).toMatchObject({ problem: told });
	expect(JSON.stringify(shaper.document({ sentence: told.message, problem: told }))).not.toContain('[');
	expect(shaper.line(JSON.stringify({ level: 'warn', ...told }))).toBe(JSON.stringify({ level: 'warn', ...told }));
	// Of others, and without the parameters, they are what they were.
	expect(shaper.told(told.message)).not.toMatch(/2025|65536/);
	expect(shaper.said('the passport ends on 2031-04-05', { detail: '2031-04-05' })).not.toContain('2031');
	for (const own of ['must be two times of the day such as 02:00-05:00', 'no permission deeplink:write'])
		expect(shaper.said(own)).toBe(own);
	expect(JSON.parse(shaper.body('{"permissions":["deeplink:write"]}'))).toEqual({ permissions: ['deeplink:write'] });
});

test('a short name is one of words, and nothing that looks drawn', () => {
	for (const name of ['token', 'connectionToken', 'x-device-token', 'a/b', 'session.created', 'device.v1', 'qwexy'])
		expect(shaper.name(name)).toBe(name);
	for (const name of [
		'tr-9fQx2LmZ7vTbK4wR8sYc',
		'hunter2hunter2',
		'aGVsbG8gd29ybGQ',
		'Maria Schmidt',
		'482913',
		'hunter2',
		'correct-horse-battery',
	])
		expect(shaper.name(name)).not.toBe(name);
});

test('the own host with its port is whole, also beside a certificate that names it [F1305]', () => {
	const [host, subject] = ['id.example.com:8443', 'id.example.com'];
	const told = { msg: `Look at ${host}.`, params: { host, subject } };
	const own = createShaper({
		isKnown: (word) => /^(?:look|at)$/i.test(word),
		hash: () => '0'.repeat(6),
		own: () => [subject],
		now: () => 0,
	});
	expect(own.line(JSON.stringify(told))).toBe(JSON.stringify(told));
});

test('a name and its password stand in no document as the name of a member [F1286]', () => {
	for (const name of [
		'kiosk:sommer',
		'admin:letmein',
		'wartmann:Gh5',
		'kiosk@sommer',
		'kiosk/sommer',
		'admin~letmein',
		'kiosk$sommer',
	])
		expect(shaper.name(name)).not.toMatch(/sommer|letmein|Gh5/);
});

/** Every place of a line into which a service or a person can put a text. */
const PLACES: Readonly<Record<string, (text: string) => SeenLine>> = {
	'a member of an answer': (text) => answer(JSON.stringify({ data: { value: text } })),
	'a named member': (text) => answer(JSON.stringify({ token: `Bearer ${text}`, refresh: [text, { x: text }] })),
	'words of an error': (text) =>
		answer(JSON.stringify({ error: { message: `The token ${text} has expired.`, code: text } })),
	'the name of a member': (text) => answer(JSON.stringify({ [text]: 1 })),
	'a kind': (text) => frame(JSON.stringify({ type: text, event: text, name: text })),
	'plain text': (text) => answer(`The token ${text} has expired.`),
	'text alone': (text) => answer(text),
	'JSON in JSON': (text) => answer(JSON.stringify({ data: JSON.stringify({ id: text }) })),
	'a page': (text) => answer(`<html><body>${text}</body></html>`),
	'a form': (text) => answer(`a=1&b=${text}`),
	headers: (text) => ({
		...{ kind: 'answer', exchange: 1, status: 400, body: '' },
		headers: {
			via: `1.1 ${text}`,
			server: text,
			'set-cookie': `sid=${text}; Path=/`,
			'x-token': text,
			'content-type': `text/html; boundary=${text}`,
			'www-authenticate': `Bearer realm="${text}"`,
			location: `https://${text}.example/${text}?x=${text}`,
			'retry-after': text,
			'sec-websocket-protocol': `v1, ${text}`,
		},
	}),
	'a request': (text) => ({
		...{ kind: 'request', exchange: 1, method: 'GET', body: JSON.stringify({ sentBy: text }) },
		path: `/api/${text}/x`,
		query: { token: text, [text]: '1', authorization: `Connection ${text}` },
		headers: { authorization: `ApiKey ${text}`, cookie: `a=${text}` },
	}),
	'the reason of a close': (text) => ({
		kind: 'close',
		exchange: 1,
		direction: 'toDevice',
		code: 4401,
		reason: `bad ${text}`,
	}),
	'the word after "protocol"': (text) => answer(`visitor protocol ${text}`),
	'the subprotocol of an error': (text) => answer(JSON.stringify({ error: `use the subprotocol "${text}".` })),
	'ids in a request': (text) => ({
		...{ kind: 'request', exchange: 1, method: 'POST', path: '/api/check-in', query: {}, headers: {} },
		body: JSON.stringify({ deviceId: text, serial: text, workflowId: text, macAddress: text }),
	}),
	'ids in a registration, beside itself as the credential': (text) => ({
		...{ kind: 'request', exchange: 1, method: 'POST', path: '/api/device/connection', query: {} },
		headers: { authorization: `Token ${text}` },
		body: JSON.stringify({ deviceId: 'KIOSK-7', serial: text, workflowId: 'check-in' }),
	}),
	'what such requests may have taught': (text) => answer(JSON.stringify({ seen: text, said: `${text} is here` })),
	'a subprotocol': (text) => ({ kind: 'open', exchange: 1, subprotocol: text }),
	'a frame': (text) => frame(text),
};
const answer = (body: string): SeenLine => ({ kind: 'answer', exchange: 1, status: 400, headers: {}, body });
const frame = (body: string): SeenLine => ({ kind: 'frame', exchange: 1, direction: 'toDevice', frame: 'text', body });

test.each(Object.entries(SECRETS))(
	'%s is in no transcript, however it is spelled and wherever it stands',
	(_what, secret) => {
		const found: string[] = [];
		for (const [spelling, text] of spellings(secret, 20261123)) {
			const lines: string[] = [];
			const transcript = createTranscript(
				(line) => void lines.push(line),
				() => 5,
				openShaper,
			);
			for (const [place, line] of Object.entries(PLACES)) {
				lines.length = 0;
				transcript.note(line(text));
				const left = leftOf(lines.join('\n'), secret, text);
				if (left !== null) found.push(`${spelling}, ${place}: ${left}`);
			}
		}
		expect(found).toEqual([]);
	},
);

/** Of people, and a password of letters alone: nothing in their form tells them from a word. */
const NAMES = ['Maria', 'Schmidt', 'maria', 'schmidt', 'Grace', 'SCHMIDT', 'hunterpassw', 'mariaSchmidt', 'o.schmidt'];
const NUMBERS = [4829, 482913, 30_011_987, 4_915_112_345_678];
const NUMBERED = [
	'account',
	'pat',
	'chat',
	'lat',
	'passportExpires',
	'pin',
	'code',
	'id',
	'age',
	'discount',
	'at',
	'format',
];

test('names of people and numbers that may open something are in no transcript, whatever member says they are a kind, a count or a moment [F713]', () => {
	const lines: string[] = [];
	const transcript = createTranscript(
		(line) => void lines.push(line),
		() => 5,
		openShaper,
	);
	const places = Object.entries(PLACES).filter(([place]) => !['the name of a member', 'a request'].includes(place));
	const found: string[] = [];
	const look = (place: string, text: string) => {
		if (lines.join('\n').includes(text)) found.push(`${place}: ${text}`);
		lines.length = 0;
	};
	for (const name of NAMES)
		for (const [place, line] of places) {
			transcript.note(line(name));
			look(place, name);
		}
	for (const number of NUMBERS) {
		for (const member of NUMBERED) {
			transcript.note(frame(JSON.stringify({ [member]: number, data: { [member]: [number] } })));
			look(member, String(number));
		}
		for (const said of [
			`Code ${number} is used`,
			`the PIN is ${number}.`,
			`pin=${number}`,
			`room ${number}`,
			`/api/${number}/x`,
		]) {
			transcript.note(answer(said));
			look(said, String(number));
		}
	}
	expect(found).toEqual([]);
});

test('an operator still reads kinds, statuses, close codes, counts, moments and subprotocols', () => {
	const document = {
		type: 'session.created',
		event: 'DocumentCheckCompleted',
		kind: 'person.detected',
		op: 'PING',
		status: 401,
		code: 4401,
		error: { code: 'TOKEN_EXPIRED', message: 'The channel speaks the subprotocol "acme.device.v2".' },
		expiresIn: 3600,
		exp: 1_790_000_000,
		heartbeatIntervalSeconds: 30,
		retryAfterMs: 30_000,
		sequence: 123_456,
	};
	expect(JSON.parse(shaper.body(JSON.stringify(document)))).toEqual(document);
	const line = { level: 'warn', kind: 'session.started', workflowId: 'check-in', msg: 'closed the channel with 4401' };
	expect(shaper.line(JSON.stringify(line))).toBe(JSON.stringify(line));
	for (const said of [
		'answered 429 after 1200 ms',
		'line 1204, column 17',
		'port 8443 is taken',
		'ended with 1006 in 2026',
	])
		expect(shaper.said(said)).toBe(said);
});

test('a line of the log shows no name of a person as the kind of a message, or its workflow [F714]', () => {
	const line = { level: 'info', kind: 'maria', workflowId: 'schmidt', msg: 'a message came' };
	const shown = shaper.line(JSON.stringify(line)) + JSON.stringify(shaper.document(line));
	expect(shown).not.toMatch(/maria|schmidt/);
	expect(openShaper(() => ['schmidt']).line(JSON.stringify(line))).toContain('"workflowId":"schmidt"');
});

test('a line of the log, a document and a body stay what they are, whatever is in them', () => {
	const piece = fc.oneof(
		fc.string(),
		fc.string({ unit: 'binary' }),
		fc.constantFrom('"', '\\', '[word-1-aaaaaa]', 'Token ', '{"a":1}'),
	);
	fc.assert(
		fc.property(fc.array(piece, { maxLength: 10 }), (pieces) => {
			const text = pieces.join('');
			expect(typeof shaper.said(text)).toBe('string');
			expect(() => JSON.parse(shaper.body(JSON.stringify({ text, [text]: text })))).not.toThrow();
			expect(() => JSON.stringify(shaper.document({ text }))).not.toThrow();
		}),
		{ numRuns: 500 },
	);
});
