/** `idv probe` at services that others wrote: their words, their paths, their chatter. */
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { type WebSocket, WebSocketServer } from 'ws';
import { follow } from '../../src/operator/probe-dial.runner.ts';
import { examplesIn } from '../../src/operator/probe-examples.runner.ts';
import { lifeFindings } from '../../src/operator/probe-findings.runner.ts';
import { readForm } from '../../src/operator/probe-form.runner.ts';
import { guesses } from '../../src/operator/probe-guesses.runner.ts';
import { channelPlaces } from '../../src/operator/probe-search.ts';
import type { Run } from '../../src/operator/probe-state.runner.ts';
import type { Life } from '../../src/operator/probe-wire.runner.ts';
import { listen } from '../connection/network-peers.ts';
import { probesOfFile, QUICK } from './probing.ts';

const { operator, probedForeign } = probesOfFile();
const { env, idv } = operator;
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

test.each(['logout', 'log_out', 'auth.signOut', 'device.unregister', 'disconnect', 'token.revoke', 'delete'])(
	'an example of %s is never said [F1219]',
	(word) => {
		const words = `commands: {"type":"${word}","token":"<token>"} {"type":"subscribe","deviceId":"<deviceId>"}`;
		const first = examplesIn(words, 'first', /login|subscribe/).map(({ text }) => text);
		expect(first).toEqual(['{"type":"subscribe","deviceId":"{deviceId}"}']);
		expect(examplesIn(words, 'heartbeat', /./).some(({ text }) => text.includes(word))).toBe(false);
		// A word that only begins like one is said.
		const joins = 'commands: {"type":"participant.join","deviceId":"<deviceId>"}';
		expect(examplesIn(joins, 'first', /login|subscribe/)).toHaveLength(1);
	},
);

test('of Connections that each message renews, the newest is tried [F1220]', () => {
	const heard = [1, 2, 3, 4, 5].map((n) => ({
		atMs: n * 1000,
		frame: {
			type: 'text',
			text: JSON.stringify({ type: 'event', auth: { token: `cn-${n}-0123456789abcdef0123456789abcdef` } }),
		},
	}));
	const run = { token: 'cn-0', next: null, offered: [] } as unknown as Run;
	follow(run, { isOpen: true, headers: {}, heard } as unknown as Life);
	expect(run.offered.map(({ token }) => token)).toEqual(['cn-5-0123456789abcdef0123456789abcdef']);
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
	[
		'"header":{"messageType":"WELCOME"},"body":{"acknowledge":{"header":{"messageType":"ACK"},"body":{"of":"<n>"}}}}',
		'answer',
		/\back/,
		[
			'{"acknowledge":{"header":{"messageType":"ACK"},"body":{"of":"{id}"}}}',
			'{"header":{"messageType":"ACK"},"body":{"of":"{id}"}}',
		],
	],
])('what a service writes out is taken as it is, however deep: %s [F999]', (words, purpose, about, expected) => {
	expect(examplesIn(words, purpose, about, [{ n: 1 }]).map(({ text }) => text)).toEqual(expected);
});

test.each<[string, 'first' | 'heartbeat', string[]]>([
	['HELLO idv/1 say CONNECT <token>', 'first', ['CONNECT {token}']],
	['AUTH <token> expected', 'first', ['AUTH {token}']],
	['send "LOGIN <deviceId> <token>" first', 'first', ['LOGIN {deviceId} {token}']],
	['say CONNECT <shop>', 'first', []],
	['say CONNECT <token>', 'heartbeat', []],
	['LOGOUT <token> ends it, CLOSE <deviceId> too', 'first', []],
	['UNKNOWN WORD, PING <n> is one', 'first', []],
])('a message in plain text is said as it is written: %s [F1442]', (words, purpose, expected) => {
	expect(examplesIn(words, purpose, /say|first/).map(({ text }) => text)).toEqual(expected);
});

test.each([
	'"beat":{"every":20,"say":%}',
	'"heartbeat":{"intervalSeconds":20,"message":%}',
	'"heartbeat":{"interval":9,"send":%}',
])('the message beside how often it is said is the heartbeat, and not both: %s [F1443]', (words) => {
	const found = examplesIn(words.replace('%', '{"k":0,"n":"<n>"}'), 'heartbeat', /heart|beat/);
	expect(found.map(({ text }) => text)).toEqual(['{"k":0,"n":"{sequence}"}']);
});

test.each([
	['channels are at /devices/<deviceId>/channel', '/devices/{deviceId}/channel'],
	['see /ws/<string:device_id>', '/ws/{deviceId}'],
	['<a href="/live/feed">here</a>', '/live/feed'],
	['{"channel":"/ws/device/D-1"}', '/ws/device/{deviceId}'],
	['/gateway/device-socket/', '/gateway/device-socket/'],
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

/** A message each 700 ms, until the service ends the channel. */
const spoken = (message: (number: number) => object): Life => ({
	...{ refusal: null, isOpen: true, headers: {}, subprotocol: null, said: [], pings: 1, pongs: 1, failure: null },
	heard: Array.from({ length: 25 }, (_, number) => ({
		atMs: 700 * number,
		frame: { type: 'text', text: JSON.stringify(message(number)) },
	})),
	ended: { atMs: 17_600, code: 4410, reason: 'ping was not answered' },
});
const named = ['requested', 'cancelled', 'created'];

test.each(['ctl', '@type', 'k', 'verb'])(
	'a kind under the name %s is found by its few words, and the ping among them is answered [F1450]',
	(name) => {
		const ping = (n: number) => ({ [name]: 'ping', n });
		const life = spoken((at) => {
			const n = 40 + at;
			return n % 10 === 5 ? ping(n) : { n, [name]: named[n % 3], payload: { status: 'open' } };
		});
		const form = readForm(life.heard);
		expect(form).toMatchObject({ kindPointer: `/${name}`, notificationIdPointer: '/n' });
		expect(guesses({ life, form, settleMs: 3000, settings: {} })).toContainEqual({
			point: 'application-ping',
			settings: { pingKind: 'ping', pongBody: `{"${name}":"pong","n":"{id}"}` },
		});
	},
);

test.each([
	['a number that comes first', (n: number) => ({ k: [100, 101, 31][n % 3], id: `i${n}`, v: { mk: n } }), '/k'],
	['a word beside the id', (n: number) => ({ head: { verb: named[n % 3], id: `i${n}` }, body: {} }), '/head/verb'],
	['a number that does not', (n: number) => ({ id: `i${n}`, score: n % 3 }), undefined],
	['a word about the contents', (n: number) => ({ id: `i${n}`, data: { colour: named[n % 3] } }), undefined],
	['a language', (n: number) => ({ uid: `i${n}`, locale: ['de-AT', 'en-GB'][n % 2] }), undefined],
	['a time zone', (n: number) => ({ uid: `i${n}`, tz: ['Europe/Vienna', 'Europe/London'][n % 2] }), undefined],
	['a document', (n: number) => ({ uid: `i${n}`, documentType: ['passport', 'id-card'][n % 2] }), undefined],
	['a desk', (n: number) => ({ uid: `i${n}`, desk: ['a1', 'b2', 'c3'][n % 3] }), undefined],
	['a status', (n: number) => ({ id: `i${n}`, status: named[n % 3] }), undefined],
	['a name', (n: number) => ({ id: `i${n}`, who: `person-${n}` }), undefined],
	['a usual place', (n: number) => ({ verb: named[n % 2], kind: named[n % 3], id: `i${n}` }), undefined],
])(
	'of %s the place of the kind is taken, or not, and the report says a place only where there is one [F1451]',
	(_, message, expected) => {
		const life = spoken(message);
		const form = readForm(life.heard);
		expect(form.kindPointer).toBe(expected);
		const row = lifeFindings({ life, form, settleMs: 1000, settings: {} }).find(
			({ point }) => point === 'notification-kind',
		);
		const isUsual = 'kind' in message(0);
		expect(row?.found).toBe(expected ? `at ${expected}` : isUsual ? 'at a usual place' : 'at none of the usual places');
		expect(row?.certainty).toBe(expected || isUsual ? 'guessed' : 'not seen');
	},
);

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
