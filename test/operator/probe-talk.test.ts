/** `idv probe` and what a service says on the channel: acknowledgements, heartbeats, batches, and messages that are no notifications. */
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { type WebSocket, WebSocketServer } from 'ws';
import type { Shell } from '../../src/cli/output.runner.ts';
import { type Comparison, enoughMs, isBetter } from '../../src/operator/probe-compare.runner.ts';
import { tellDevice } from '../../src/operator/probe-device-report.runner.ts';
import { readForm } from '../../src/operator/probe-form.runner.ts';
import { guesses, notificationsIn } from '../../src/operator/probe-guesses.runner.ts';
import { pongsFor } from '../../src/operator/probe-pongs.runner.ts';

import type { Life } from '../../src/operator/probe-wire.runner.ts';
import { parseJson } from '../../src/protocol/json.ts';
import { listen } from '../connection/network-peers.ts';
import { operatorOfFile } from './operator.ts';

const operator = operatorOfFile();
// biome-ignore lint/suspicious/noExplicitAny: messages of a device.
type Said = any;

/** A probe of a service with the token and the path as assumed. @param talk is given each channel, and says what it does with a message. */
async function probed(talk: (socket: WebSocket, say: (message: object) => void) => (said: Said) => void, seconds = 1) {
	const server = createServer(
		(_, response) => void response.writeHead(201).end('{"token":"talking-token-0123456789"}'),
	);
	const channels = new WebSocketServer({ noServer: true });
	server.on('upgrade', (request, raw, head) => {
		if (request.url !== '/ws/device' || request.headers.authorization !== 'Connection talking-token-0123456789')
			return raw.end('HTTP/1.1 401 Unauthorized\r\nConnection: close\r\n\r\n');
		channels.handleUpgrade(request, raw, head, (socket) => {
			const hear = talk(socket, (message) => socket.send(JSON.stringify(message)));
			socket.on('message', (frame) => hear(parseJson(String(frame)) ?? {}));
		});
	});
	const out = join(operator.directory, 'talk.json');
	const device = join(operator.directory, 'talk-device.json');
	const variables = { ...operator.env('ApiKey'), IDV_URL: `http://127.0.0.1:${await listen(server)}` };
	const flags = [
		'--workflow',
		'checkin',
		'--yes',
		'--seconds',
		String(seconds),
		'--force',
		'--out',
		out,
		'--device',
		device,
	];
	const outcome = await operator.idv(['probe', ...flags], variables);
	const provision = JSON.parse(await readFile(device, 'utf8'));
	return { outcome, settings: JSON.parse(await readFile(out, 'utf8')), provision };
}

const every = (socket: WebSocket, ms: number, say: () => void) => {
	const timer = setInterval(say, ms);
	socket.once('close', () => clearInterval(timer));
};

/** Sends a notification each 150 ms, and all again that are not acknowledged. @returns what acknowledges one. */
function resending(socket: WebSocket, say: (message: object) => void, isReady: () => boolean) {
	const open = new Map<number, object>();
	let eventId = 1000;
	every(socket, 150, () => {
		if (!isReady()) return;
		for (const one of open.values()) say(one);
		eventId += 1;
		const name = eventId % 2 === 0 ? 'session.started' : 'session.finished';
		open.set(eventId, { op: 'event', name, eventId, data: { sessionId: `s${eventId}` } });
		say(open.get(eventId) ?? {});
	});
	return (id: number) => void open.delete(id);
}

test('an acknowledgement is written under the name that all messages of the service have, not under that of the kind', async () => {
	const { outcome, settings } = await probed((socket, say) => {
		let isReady = false;
		setTimeout(() => isReady || socket.close(4001, 'send {"op":"auth","token":"<token>"}'), 400);
		const acknowledge = resending(socket, say, () => isReady);
		return ({ op, token, eventId }) => {
			if (op === 'auth' && token === 'talking-token-0123456789') isReady = true;
			else if (op === 'ack') acknowledge(eventId);
			else say({ op: 'error', message: 'unknown op' });
		};
	});
	expect(outcome, outcome.stdout).toMatchObject({ status: 0, stderr: '' });
	expect(settings.service).toMatchObject({ kindPointer: '/name', ackBody: { op: 'ack', eventId: '{id}' } });
	expect(outcome.stdout).toMatch(/acknowledgement .* proved/);
	expect(outcome.stdout).toMatch(/Sent again by the service +0/);
}, 60_000);

test('where no acknowledgement ends what is sent again, none is written, and the report names the setting', async () => {
	const { outcome, settings } = await probed((socket, say) => {
		resending(socket, say, () => true);
		return ({ op, name }) => void ((op ?? name) && say({ op: 'error', message: 'unknown op' }));
	});
	expect(outcome, outcome.stdout).toMatchObject({ status: 0, stderr: '' });
	expect(settings.service).not.toHaveProperty('ackBody');
	expect(outcome.stdout).toMatch(/acknowledgement .* none; .*\(service\.ackBody\) +not seen/);
	expect(outcome.stdout).not.toMatch(/unknown \(/);
}, 120_000);

/** A life of so many seconds in which each second a message comes, or comes again. */
function lifeOf(seconds: number, message: (second: number) => object, said: Life['said'] = []): Life {
	return {
		...{
			refusal: null,
			isOpen: true,
			headers: {},
			subprotocol: null,
			pings: 1,
			pongs: 1,
			failure: null,
			ended: null,
			said,
		},
		heard: Array.from({ length: seconds }, (_, second) => ({
			atMs: second * 1000,
			frame: { type: 'text', text: JSON.stringify(message(second)) },
		})),
	};
}
const guess = { point: 'acknowledgement', settings: { ackBody: '{"op":"ack","id":"{id}"}' } };
const compared: Comparison = { form: {}, settleMs: 3000, answerMs: 1000, settings: {}, guess, ms: 20_000 };
/** Each third message is a new one; the others are sent again. */
const again = (second: number) => ({ type: 'check', id: Math.floor(second / 3) });

test('an acknowledgement that was tried for a shorter time than the watch is not better because less came again [F950]', () => {
	const watched = lifeOf(60, again);
	expect(isBetter(lifeOf(20, again), watched, compared)).toBe(false);
	expect(
		isBetter(
			lifeOf(20, (id) => ({ type: 'check', id })),
			watched,
			compared,
		),
	).toBe(true);
	const late = lifeOf(60, (second) => ({ type: 'check', id: second % 30 }));
	expect(enoughMs(late, {}, 3000)).toBeGreaterThan(30_000);
});

test('an acknowledgement that the service answers with the same again, as often as it may be said, is none', () => {
	const { heard, ...rest } = lifeOf(200, () => ({ type: 'check', id: 1 }));
	const answered = { ...rest, heard: heard.map((one) => ({ ...one, atMs: one.atMs / 1000 })) };
	expect(isBetter(answered, lifeOf(60, again), compared)).toBe(false);
});

test('a first message after which notifications come is right however soon the channel then ends for another reason [F1240]', () => {
	const guess = { point: 'first-messages', settings: { firstMessages: [{ action: 'auth' }] } } as const;
	const about = { ...compared, guess, answerMs: 0 };
	const refused = { ...lifeOf(0, () => ({})), ended: { atMs: 500, code: 4401, reason: 'send {"action":"auth"}' } };
	const news = lifeOf(2, (id) => ({ type: 'check', id }));
	const life = { ...news, ended: { atMs: 499, code: 4401, reason: 'over' } };
	expect(isBetter(life, refused, about)).toBe(true);
	expect(isBetter({ ...life, heard: [] }, refused, about)).toBe(false);
	expect(isBetter({ ...life, ended: { ...refused.ended, atMs: 499 } }, refused, about)).toBe(false);
	expect(isBetter(life, { ...news, ended: refused.ended }, about)).toBe(false);
});

test('an acknowledgement after which nothing comes again is right, also where the channel ends for another reason', () => {
	const ended = { atMs: 20_000, code: 4002, reason: 'areyouthere was not answered' };
	const repeating = { ...lifeOf(20, again), ended };
	const fresh = { ...lifeOf(20, (id) => ({ type: 'check', id })), ended };
	expect(isBetter(fresh, repeating, compared)).toBe(true);
	expect(isBetter(repeating, repeating, compared)).toBe(false);
	expect(isBetter(fresh, fresh, compared)).toBe(false);
});

test('a ping whose word has an unusual name is answered with its number under the same name', () => {
	expect(pongsFor('ping', '{"m":"ping","n":7}', { kindPointer: '/p/topic', notificationIdPointer: '/p/seq' })[0]).toBe(
		'{"m":"pong","n":"{id}"}',
	);
});

test('an acknowledgement that the service answers with errors is none', () => {
	const errors = lifeOf(20, (second) =>
		second % 2 ? { op: 'error', message: 'unknown op' } : { type: 'check', id: second },
	);
	expect(isBetter(errors, lifeOf(60, again), compared)).toBe(false);
});

test.each([
	['nothing else', {}],
	['acknowledgements', { ackBody: { type: 'ack', id: '{id}' } }],
])(
	'the device at the end beats as its file says, beside %s; a silence that the service ends becomes a heartbeatCadence that holds [F951]',
	async (_, service) => {
		const { outcome, settings, provision } = await probed((socket, say) => {
			if ('ackBody' in service) say({ type: 'hello', confirm: { type: 'ack', id: '<id>' } });
			let idle: NodeJS.Timeout;
			const isAlive = () => {
				clearTimeout(idle);
				idle = setTimeout(() => socket.close(1000, 'idle'), 2600);
			};
			isAlive();
			let id = 0;
			every(socket, 500, () => say({ type: 'check', id: id++ }));
			socket.once('close', () => clearTimeout(idle));
			return ({ type }) => void (type === 'heartbeat' && isAlive());
		}, 6);
		expect(outcome, outcome.stdout).toMatchObject({ status: 0, stderr: '' });
		const own = Object.keys(service).length > 0 && { service };
		expect(settings).toEqual({ baseUrl: settings.baseUrl, workflowId: 'checkin', heartbeatCadence: 1, ...own });
		expect(provision.settings).toMatchObject({ heartbeatCadence: 1 });
		// It was seen to end one silent channel.
		expect(outcome.stdout).toMatch(/heartbeat-cadence .* guessed/);
		expect(outcome.stdout).toMatch(/Channels that the service ended +none/);
	},
	60_000,
);

test('several notifications under a name in one message are told apart, and no pointer names an element [F952]', async () => {
	const { outcome, settings } = await probed((socket, say) => {
		let seq = 0;
		every(socket, 200, () => {
			const notifications = ['visit.open', 'visit.shut', 'visit.open'].map((kind) => ({
				topic: kind,
				seq: seq++,
			}));
			say({ notifications: notifications.slice(0, 1 + (seq % 2) * 2) });
		});
		return () => {};
	});
	expect(outcome, outcome.stdout).toMatchObject({ status: 0, stderr: '' });
	expect(settings.service).toEqual({
		frameContents: '/notifications',
		kindPointer: '/topic',
		notificationIdPointer: '/seq',
	});
	expect(outcome.stdout).toMatch(/\/notifications: a message holds up to 3 notifications/);
	expect(outcome.stdout).toMatch(/Notifications +visit\.\w+ \(\d+\), visit\.\w+ \(\d+\); (\d+) of \1 with an id/);
}, 60_000);

test.each<[object, object]>([
	[
		{
			events: [
				{ type: 'a.b', id: 1 },
				{ type: 'b.c', id: 2 },
			],
		},
		{ frameContents: '/events' },
	],
	[{ type: 'batch', data: { items: [{ event: 'a.b', id: 1 }] } }, { frameContents: '/data/items' }],
	[{ type: 'visit.done', id: 7, documents: [{ type: 'passport' }, { type: 'visa' }] }, {}],
	[
		{ topic: 'visit.done', uid: 'u7', events: [{ type: 'door', at: 1 }] },
		{ kindPointer: '/topic', notificationIdPointer: '/uid' },
	],
	[{ visit: 'v7', documents: [{ type: 'passport' }] }, {}],
])('of %j the form is %j', (message, form) => {
	expect(readForm(lifeOf(3, () => message).heard)).toMatchObject(form);
	expect(readForm(lifeOf(3, () => message).heard)).not.toHaveProperty(
		'frameContents',
		expect.stringMatching(/documents/),
	);
});

test('greetings, pings and answers are no notifications: the report says that none came, and what did [F953]', async () => {
	const { outcome } = await probed((socket, say) => {
		say({ type: 'welcome' });
		every(socket, 100, () => say({ type: 'ping', message: Math.floor(Date.now() / 1000) }));
		return (said) => {
			if (said.type === 'heartbeat') say({ type: 'heartbeat_ok' });
		};
	});
	expect(outcome.status, outcome.stdout).toBe(0);
	expect(outcome.stdout).toMatch(/Notifications +none came/);
	expect(outcome.stdout).toMatch(/Other messages .*welcome \(1\), ping \(\d+\)/);
	expect(outcome.stdout).toMatch(/No notification came .*service\.firstMessages/);
}, 60_000);

test('what the service writes out is said step by step: first messages, then the acknowledgement [F954]', async () => {
	const { outcome, settings } = await probed((socket, say) => {
		let step = 0;
		let seq = 0;
		let isWaiting = false;
		every(socket, 60, () => {
			if (step < 2 || isWaiting) return;
			isWaiting = true;
			say({ type: 'notification', seq: seq++, event: seq % 2 ? 'visit.open' : 'visit.shut' });
		});
		return ({ type, token, channel, seq: acknowledged }) => {
			if (type === 'auth' && token) {
				step = 1;
				say({ type: 'auth_ok', next: { type: 'subscribe', channel: 'ws/device' } });
			} else if (step === 0) say({ type: 'error', message: 'Send {"type":"auth","token":"<connection token>"} first' });
			else if (type === 'subscribe' && channel === 'ws/device') {
				step = 2;
				say({ type: 'subscribed', ack: 'each notification with {"type":"ack","seq":"<seq>"}' });
			} else if (type === 'ack' && acknowledged === seq - 1) isWaiting = false;
		};
	});
	expect(outcome, outcome.stdout).toMatchObject({ status: 0, stderr: '' });
	expect(settings.service).toEqual({
		firstMessages: [
			{ type: 'auth', token: '{token}' },
			{ type: 'subscribe', channel: 'ws/device' },
		],
		ackBody: { type: 'ack', seq: '{id}' },
		kindPointer: '/event',
		notificationIdPointer: '/seq',
	});
	expect(outcome.stdout).toMatch(/first-messages .* proved/);
}, 120_000);

test('a ping under another name than that of the kind is answered with its number', async () => {
	let n = 0;
	const { outcome, settings } = await probed((socket, say) => {
		let nr = 100;
		let isAnswered = true;
		every(socket, 130, () => say({ cmd: 'NOTIFY', code: 101 + (nr % 3), nr: nr++, session: `s${nr}` }));
		every(socket, 450, () => {
			if (!isAnswered) return socket.close(4000, 'no PONG');
			isAnswered = false;
			say({ cmd: 'PING', n: ++n });
		});
		return ({ cmd, n: answered }) => {
			isAnswered ||= cmd === 'PONG' && answered === n;
		};
	});
	expect(outcome, outcome.stdout).toMatchObject({ status: 0, stderr: '' });
	expect(settings.service).toMatchObject({
		kindPointer: '/code',
		pingKind: 'PING',
		pongBody: { cmd: 'PONG', n: '{id}' },
	});
	expect(outcome.stdout).not.toMatch(/unknown \(/);
}, 60_000);

test('a heartbeat that a greeting writes out is tried before a notification is taken for a ping', () => {
	const hello = { topic: 'system/hello', heartbeat: { message: { cmd: 'alive' }, everySeconds: 15 } };
	const heard = lifeOf(20, (second) => (second === 0 ? hello : { topic: 'session/started', uid: `u${second}` }));
	const life = { ...heard, ended: { atMs: 25_000, code: 4002, reason: 'no alive message for 25 s' } };
	const [first] = guesses({ life, form: readForm(life.heard), settleMs: 3000, settings: {} });
	expect(first).toMatchObject({ settings: { heartbeatBody: '{"cmd":"alive"}' } });
});

test('requests of JSON-RPC that come again are answered with a response', () => {
	const life = lifeOf(20, (second) => ({
		jsonrpc: '2.0',
		method: 'session.started',
		params: {},
		id: Math.floor(second / 3),
	}));
	const [first] = guesses({ life, form: readForm(life.heard), settleMs: 1000, settings: {} });
	expect(first?.settings).toEqual({ ackBody: '{"jsonrpc":"2.0","result":true,"id":"{id}"}' });
});

test('what comes after each heartbeat, and only then, without an id, is no notification', () => {
	const isBeat = (second: number) => second % 9 === 4;
	const said = [4, 13].map((second) => ({ atMs: second * 1000 - 10, text: '{"type":"heartbeat"}' }));
	const answer = { type: 'status', state: 'ok' };
	const life = lifeOf(20, (second) => (isBeat(second) ? answer : { type: 'visit.open', visit: `v${second}` }), said);
	const kinds = notificationsIn(life, {}, 500).map(({ text }) => JSON.parse(text).type);
	expect(new Set(kinds)).toEqual(new Set(['visit.open']));
	const mixed = lifeOf(20, (second) => (second === 8 || isBeat(second) ? answer : { type: 'visit.open' }), said);
	expect(notificationsIn(mixed, {}, 500)).toHaveLength(20);
});

test('a value that is the same in every message is no id and no kind: the notification is found in its envelope, and nothing counts as sent again [F990]', async () => {
	let nr = 0;
	const { outcome, settings } = await probed((socket, say) => {
		every(socket, 120, () => {
			nr += 1;
			const notice = { kind: nr % 2 ? 'VISIT_OPENED' : 'VISIT_CLOSED', uuid: `u-${nr}`, visitId: `v${nr % 3}` };
			say({ id: '1', type: 'next', payload: { data: { deviceNotice: notice } } });
		});
		return ({ type }) => void (type === 'ack' && socket.close(4400, 'Invalid message type ack'));
	});
	expect(outcome, outcome.stdout).toMatchObject({ status: 0, stderr: '' });
	expect(settings.service).toEqual({
		kindPointer: '/payload/data/deviceNotice/kind',
		notificationIdPointer: '/payload/data/deviceNotice/uuid',
	});
	expect(outcome.stdout).toMatch(/Notifications +VISIT_\w+ \(\d+\), VISIT_\w+ \(\d+\); (\d+) of \1 with an id/);
	expect(outcome.stdout).toMatch(/Sent again by the service +0/);
	expect(outcome.stdout).not.toContain('ackBody');
}, 60_000);

test('where no other value tells messages apart, one that all have is not counted as an id', async () => {
	let nr = 0;
	const { outcome } = await probed((socket, say) => {
		every(socket, 120, () => say({ id: '1', type: 'tick', at: { row: nr++ % 5 } }));
		return () => {};
	});
	expect(outcome.stdout).toMatch(/Notifications +tick \(\d+\); 0 of \d+ with an id/);
	expect(outcome.stdout).toMatch(/Sent again by the service +0/);
	expect(outcome.stdout).toContain('No notification has an id that was found');
}, 60_000);

test.each([
	[
		{ type: 'visit.done', id: 1, data: { type: 'passport', id: 'd1' } },
		{ type: 'visit.done', id: 2, data: { type: 'visa', id: 'd2' } },
		{},
	],
	[
		{ topic: 'visit', eventId: 'a', of: { kind: 'x.y', id: 1 } },
		{ topic: 'visit', eventId: 'b', of: { kind: 'z.y', id: 2 } },
		{ notificationIdPointer: '/eventId' },
	],
	[
		{ op: 'push', d: { kind: 'open', n: 1 } },
		{ op: 'push', d: { kind: 'shut', n: 2 } },
		{ kindPointer: '/d/kind', notificationIdPointer: '/d/n' },
	],
])('of %j and %j the form is %j', (one, other, form) => {
	expect(readForm(lifeOf(6, (second) => (second % 2 ? other : one)).heard)).toMatchObject(form);
});

test('a frame PING that has to be answered is answered PONG, before anything that other messages of the service suggest [F991]', async () => {
	let nr = 0;
	const { outcome, settings } = await probed((socket, say) => {
		let isAnswered = true;
		const acknowledge = new Map<number, object>();
		say({ meta: { t: 'hello' }, body: { acknowledge: { ack: '<meta.n>' }, note: 'confirms this one and all before' } });
		every(socket, 150, () => {
			for (const one of acknowledge.values()) say(one);
			nr += 1;
			const message = {
				meta: { t: nr % 2 ? 'visit.rejected' : 'visit.open', n: nr },
				body: { body: { of: `secret-${nr}` } },
			};
			acknowledge.set(nr, message);
			say(message);
		});
		every(socket, 450, () => {
			if (!isAnswered) return socket.close(4000, 'no PONG within 0.45 s');
			isAnswered = false;
			socket.send('PING');
		});
		socket.on('message', (frame) => {
			isAnswered ||= String(frame) === 'PONG';
		});
		return ({ ack }) => {
			for (const n of acknowledge.keys()) if (n <= ack) acknowledge.delete(n);
		};
	});
	expect(outcome, outcome.stdout).toMatchObject({ status: 0, stderr: '' });
	expect(settings.service).toMatchObject({
		...{ kindPointer: '/meta/t', notificationIdPointer: '/meta/n', pingKind: 'PING', pongBody: 'PONG' },
		ackBody: { ack: '{id}' },
	});
	expect(outcome.stdout).toMatch(/application-ping .* proved/);
	// What a notification holds is not shown, whatever its kind is called.
	expect(outcome.stdout).not.toContain('secret-');
	expect(outcome.stdout).toMatch(/The service says: no PONG within 0\.45 s( \(\d+ times\))?\n/);
}, 120_000);

test('texts that begin with ERROR are no notifications, and are shown once with their number [F994]', async () => {
	const { outcome } = await probed((socket) => {
		every(socket, 300, () => socket.send('ERROR\nmessage:malformed frame, expected CONNECT\n\n'));
		return () => {};
	});
	expect(outcome.stdout).toMatch(/Notifications +none came/);
	expect(outcome.stdout).toMatch(/No notification came .*service\.firstMessages/);
	expect(outcome.stdout.match(/The service says: ERROR/g)).toHaveLength(1);
	expect(outcome.stdout).toMatch(/The service says: ERROR message:malformed frame, expected CONNECT \(\d+ times\)/);
}, 60_000);

test('of a service that speaks GraphQL the first message is connection_init, and then what its answer writes out [F996]', () => {
	const ended = { atMs: 8000, code: 4408, reason: 'Connection initialisation timeout' };
	const life = { ...lifeOf(0, () => ({})), subprotocol: 'graphql-transport-ws', ended };
	const [first] = guesses({ life, form: {}, settleMs: 3000, settings: { heartbeatMode: 'ping' } });
	expect(JSON.parse(Object(first?.settings['firstMessages'])[0])).toMatchObject({
		type: 'connection_init',
		payload: { authorization: 'Connection {token}' },
	});
});

test('a heartbeat that the words of the service name is said as its other messages are, and a first message that it has confirmed stays [F1011]', async () => {
	const { outcome, settings } = await probed((socket, say) => {
		let isIn = false;
		let atMs = Date.now();
		setTimeout(() => isIn || socket.close(4401, 'send {"action":"authenticate","token":"<accessKey>"}'), 300);
		every(socket, 50, () => isIn && Date.now() - atMs > 700 && socket.close(4408, 'no heartbeat for 45 s'));
		every(
			socket,
			100,
			() => isIn && say({ action: 'notify', topic: 'consent.requested', payload: { id: Date.now() } }),
		);
		return ({ action, token }) => {
			if (action === 'authenticate' && token) {
				isIn = true;
				atMs = Date.now();
				say({ action: 'authenticated' });
			} else if (action === 'heartbeat') atMs = Date.now();
			else say({ action: 'error', reason: 'unknown action; known are authenticate, heartbeat' });
		};
	});
	expect(outcome, outcome.stdout).toMatchObject({ status: 0, stderr: '' });
	expect(settings).toMatchObject({
		heartbeatCadence: 22,
		service: { firstMessages: [{ action: 'authenticate', token: '{token}' }], heartbeatBody: { action: 'heartbeat' } },
	});
}, 60_000);

test.each([
	[
		'in an example each',
		'first {"action":"login","connection":"<connection token>"}, then {"action":"watch","workflow":"<workflowId>"}',
		true,
		true,
	],
	[
		'of which none is answered',
		'first {"action":"login","connection":"<token>"}, then {"action":"watch","on":"all"}',
		false,
		true,
	],
	[
		'of which none helps',
		'first {"action":"login","connection":"<token>"}, then {"action":"watch","on":"all"}',
		true,
		false,
	],
])(
	'a greeting without a kind that says what to say first, %s, has all of it said in its order, and is no notification [F1322]',
	async (_, hint, answers, serves) => {
		const said: string[] = [];
		const { outcome, settings } = await probed((socket, say) => {
			let step = 0;
			say({ ok: true, hint });
			every(socket, 60, () => step === 2 && say({ action: 'notify', what: 'visit.open', number: Date.now() }));
			return ({ action, connection, type }) => {
				said.push(action);
				if (action === 'login' && connection === 'talking-token-0123456789') step = 1;
				else if (action === 'watch' && step === 1 && serves) step = 2;
				else if (type !== 'heartbeat') return say({ ok: false, reason: 'not understood' });
				if (answers) say({ ok: true, action: action === undefined ? 'alive' : `${action}-done` });
			};
		});
		expect(outcome, outcome.stdout).toMatchObject({ status: 0, stderr: '' });
		expect(said.join(' ')).toContain('login watch');
		if (serves) {
			expect(settings.service.firstMessages).toMatchObject([
				{ action: 'login', connection: '{token}' },
				{ action: 'watch' },
			]);
			expect(outcome.stdout).toMatch(/Notifications +(?:visit.open|notify) /);
		} else {
			expect(outcome.stdout).toMatch(/Notifications +none came/);
			expect(outcome.stdout).toMatch(/No notification came .*look at service\.firstMessages/);
		}
	},
	120_000,
);

test.each([
	['delivery not confirmed', /because something was not acknowledged.*service\.ackBody/, 'heartbeatBody'],
	['no beat came', /Look at service\.heartbeatBody/, 'ackBody'],
])(
	'the end of the channel of the device with "%s" is told with the setting that it is about [F1324]',
	(reason, expected, other) => {
		const lines: string[] = [];
		const shell = { line: (text = '') => void lines.push(text), table() {} } as unknown as Shell;
		tellDevice(shell, {
			...{
				isOnline: true,
				isServed: true,
				isRefused: false,
				errors: 0,
				seconds: 60,
				kinds: { 'visit.open': 3 },
				others: {},
			},
			...{ withId: 3, repeats: 0, dropped: 0, isCut: false, acknowledgements: 3 },
			closes: [{ code: 4008, afterSeconds: 2.5, reason, isUsual: false }],
		});
		expect(lines.join(' ')).toMatch(expected);
		expect(lines.join(' ')).not.toContain(other);
	},
);

test.each([
	['', undefined],
	[',"nonce":"<nonce>"', '{id}'],
])(
	'the answer to a ping that the end of a channel writes out under a name of its own (%j) is tried, and the ping is not kept [F1323]',
	async (own, nonce) => {
		let nr = 0;
		const { outcome, settings } = await probed((socket, say) => {
			const open = new Map<string, number>();
			every(socket, 100, () => {
				const one = `c0ffee${++nr}x`;
				open.set(one, performance.now());
				say({ t: 'areyouthere', ...(nonce && { nonce: one }) });
				say({ t: nr % 2 ? 'person.arrived' : 'person.left', k: `k${nr}`, d: { ref: `r-${nr}` } });
				const isMissing = [...open.values()].some((atMs) => performance.now() - atMs > 300);
				if (isMissing) socket.close(4002, `no answer {"t":"iamhere"${own}} in 9 s`);
			});
			return (message) => {
				if (message.t !== 'iamhere') return;
				if (nonce) open.delete(message.nonce);
				else open.clear();
			};
		});
		expect(outcome, outcome.stdout).toMatchObject({ status: 0, stderr: '' });
		expect(settings.service).toMatchObject({
			pingKind: 'areyouthere',
			pongBody: { t: 'iamhere', ...(nonce && { nonce }) },
		});
		expect(outcome.stdout).toMatch(/application-ping .* proved/);
		expect(outcome.stdout).not.toMatch(/Notifications .*areyouthere/);
	},
	60_000,
);

test('a first message that the service has confirmed stays in the file, and no notification is answered, also where every channel ends [F1014]', async () => {
	const said: string[] = [];
	const { outcome, settings } = await probed((socket, say) => {
		let isIn = false;
		setTimeout(() => socket.close(4401, isIn ? 'over' : 'send {"action":"authenticate","token":"<accessKey>"}'), 500);
		every(socket, 60, () => isIn && say({ action: 'notify', topic: 'consent.requested', payload: { id: Date.now() } }));
		socket.on('message', (frame) => void said.push(String(frame)));
		return ({ action }) => {
			if (action === 'authenticate') isIn = true;
		};
	});
	expect(outcome.status).toBe(69);
	expect(settings.service).toMatchObject({ firstMessages: [{ action: 'authenticate', token: '{token}' }] });
	expect(said.join(' ')).not.toContain('consent');
	expect(outcome.stdout).not.toContain('"ackBody"');
}, 120_000);

test('a heartbeat in a greeting with an id is taken with its number of seconds, the greeting is shown, and words that differ by an id once [F1012]', async () => {
	let nr = 0;
	const of = (name: string, body: object) => [{ header: { name, messageId: `m-${++nr}` }, body }];
	const { outcome, settings } = await probed((socket, say) => {
		let atMs = Date.now();
		say(of('Welcome', { heartbeat: { cmd: 'hb' }, heartbeatEverySeconds: 20 }));
		every(socket, 50, () => Date.now() - atMs > 700 && socket.close(4100, 'heartbeat missing'));
		every(socket, 100, () => say(of(nr % 2 ? 'VisitOpened' : 'VisitClosed', { of: `v${nr}` })));
		return ({ cmd }) => {
			if (cmd === 'hb') atMs = Date.now();
			else say(of('Error', { text: 'command not understood' }));
		};
	});
	expect(outcome, outcome.stdout).toMatchObject({ status: 0, stderr: '' });
	expect(settings).toMatchObject({ heartbeatCadence: 20, service: { heartbeatBody: { cmd: 'hb' } } });
	expect(outcome.stdout).toMatch(/The service says: .*heartbeatEverySeconds/);
	expect(outcome.stdout.match(/The service says: .*not understood/g)).toHaveLength(1);
	expect(outcome.stdout).toMatch(/Other messages .*Welcome \(\d+\)/);
}, 60_000);

test('the answer to a ping that the end of a channel writes out answers that ping, and is no heartbeat [F1013]', async () => {
	const { outcome, settings } = await probed((socket, say) => {
		let missed = 0;
		every(socket, 100, () => say({ kind: 'visit.open', id: `n-${Date.now()}`, session: `s${Date.now()}` }));
		every(socket, 200, () => {
			if (missed > 2) return socket.close(4000, 'ping not answered, expected {"kind":"pong"}');
			missed += 1;
			say({ kind: 'ping', ts: Math.floor(Date.now() / 1000) });
		});
		return ({ kind }) => {
			if (kind === 'pong') missed = 0;
		};
	});
	expect(outcome, outcome.stdout).toMatchObject({ status: 0, stderr: '' });
	expect(settings.service).toEqual({ pingKind: 'ping', pongBody: { kind: 'pong' } });
	expect(outcome.stdout).toMatch(/application-ping .* proved/);
	expect(outcome.stdout).not.toMatch(/Notifications .*ping/);
}, 60_000);

test('pings with a number of their own are no notifications: the report says that none came, with and without an answer [F1015]', async () => {
	let nr = 900;
	const { outcome, settings } = await probed((socket, say) => {
		every(socket, 250, () => say({ event: 'ping', id: ++nr }));
		return ({ event }) => void (event && say({ event: 'error', message: 'nothing is to be said here' }));
	});
	expect(settings).not.toHaveProperty('service');
	expect(outcome.stdout).toMatch(/Other messages .*ping \(\d+\)/);
	expect(outcome.status, outcome.stdout).toBe(0);
	expect(outcome.stdout).toMatch(/Notifications +none came/);
	expect(outcome.stdout).toMatch(/No notification came /);
}, 60_000);

test('a ping that comes while the channel lasts is answered where the service names the answer, and what it offers is subscribed to [F1016]', async () => {
	let nr = 900;
	const { outcome, settings } = await probed((socket, say) => {
		let isIn = false;
		say({ event: 'connected', data: { channels: ['device'], pingInterval: 20 } });
		every(socket, 250, () => say({ event: 'ping', id: ++nr }));
		every(socket, 100, () => isIn && say({ event: 'notification', data: { type: 'face.requested', id: ++nr } }));
		return ({ event, channel }) => {
			if (event === 'subscribe' && channel === 'device') isIn = true;
			else if (event === 'subscribe') say({ event: 'error', data: { message: 'unknown channel' } });
			else if (event !== 'pong')
				say({ event: 'error', data: { message: 'unknown event, expected subscribe or pong' } });
		};
	});
	expect(outcome, outcome.stdout).toMatchObject({ status: 0, stderr: '' });
	expect(settings.service).toMatchObject({ pingKind: 'ping', pongBody: { event: 'pong', id: '{id}' } });
	expect(outcome.stdout).toMatch(/Notifications +face\.requested \((\d+)\); \1 of \1 with an id/);
}, 60_000);

test('a device whose channels the service ends is not told as online with the file, without more [F1017]', async () => {
	const { outcome } = await probed((socket, say) => {
		let atMs = Date.now();
		every(socket, 50, () => Date.now() - atMs > 500 && socket.close(4002, 'silent'));
		every(socket, 100, () => say({ type: 'visit.open', id: `n-${Date.now()}` }));
		return () => {
			atMs = Date.now();
		};
	});
	expect(outcome.stdout).toMatch(/a device was online with it until the service ended its channel/);
	expect(outcome.stdout).toContain('these settings may not be the whole');
}, 60_000);

test('a first message that the service writes out with the Connection and the id of the probe in it has a field in their place [F1465]', async () => {
	const token = 'talking-token-0123456789';
	let n = 0;
	const { outcome, settings } = await probed((socket, say) => {
		const authenticate = { type: 'authenticate', with: token };
		say({ type: 'hello', authenticate });
		const late = setTimeout(() => socket.close(4003, `authenticate first: ${JSON.stringify(authenticate)}`), 400);
		return (said) => {
			if (said.type !== 'authenticate' || said.with !== token) return;
			clearTimeout(late);
			every(socket, 100, () => {
				n += 1;
				say({ type: 'session.started', id: `s-${n}` });
			});
		};
	});
	expect(JSON.stringify(settings.service.firstMessages)).toContain('{token}');
	expect(`${JSON.stringify(settings)}${outcome.stdout}${outcome.stderr}`).not.toContain(token);
});

test('a Connection in the words with which a service ends each channel is in no line of the report [F1465]', async () => {
	const token = 'talking-token-0123456789';
	const { outcome } = await probed((socket) => {
		const end = setTimeout(() => socket.close(4001, `expired ${token}`), 100);
		socket.once('close', () => clearTimeout(end));
		return () => {};
	});
	expect(outcome.status).toBe(69);
	expect(outcome.stderr).toContain('expired [secret]');
	expect(outcome.stdout + outcome.stderr).not.toContain(token);
});
