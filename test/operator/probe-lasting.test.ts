/** `idv probe`: which channels last: what a service says of its own accord is nothing that it brought, and what ends again and again is not online. */
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { type WebSocket, WebSocketServer } from 'ws';
import { asides } from '../../src/operator/probe-asides.runner.ts';
import { guesses } from '../../src/operator/probe-guesses.runner.ts';
import { messagesOf } from '../../src/operator/probe-readings.runner.ts';
import type { Life } from '../../src/operator/probe-wire.runner.ts';
import { parseJson } from '../../src/protocol/json.ts';
import { listen } from '../connection/network-peers.ts';
import { operatorOfFile } from './operator.ts';

const operator = operatorOfFile();

const every = (socket: WebSocket, ms: number, say: () => void) => {
	const timer = setInterval(say, ms);
	socket.once('close', () => clearInterval(timer));
};

/** A probe of a service with the token and the path as assumed. @param onChannel is given each channel and its number, from 1. */
async function probed(onChannel: (socket: WebSocket, nr: number) => void, seconds = 1) {
	const server = createServer(
		(_, response) => void response.writeHead(201).end('{"token":"lasting-token-0123456789"}'),
	);
	const channels = new WebSocketServer({ noServer: true });
	let nr = 0;
	server.on('upgrade', (request, raw, head) => {
		const isIn = request.headers.authorization === 'Connection lasting-token-0123456789';
		if (isIn) channels.handleUpgrade(request, raw, head, (socket) => onChannel(socket, ++nr));
		else raw.end('HTTP/1.1 401 No\r\nConnection: close\r\n\r\n');
	});
	const out = join(operator.directory, 'lasting.json');
	const flags = ['--workflow', 'checkin', '--yes', '--seconds', `${seconds}`, '--force', '--out', out];
	const variables = { ...operator.env('ApiKey'), IDV_URL: `http://127.0.0.1:${await listen(server)}` };
	const outcome = await operator.idv(['probe', ...flags], variables);
	return { outcome, settings: JSON.parse(await readFile(out, 'utf8')) };
}

const HELLO = 'INFO {"node":"a"}';

test.each<[string, string, (nr: number) => string]>([
	['', 'notifications to a device that may say nothing', (nr) => `{"type":"visit.open","id":"n-${nr}"}`],
	['bye', 'its greeting and its own pings', () => '2'],
])(
	'a service that ends every channel after the same time with 1000 "%s", and brought %s, is one whose channels do not last [F1810]',
	async (reason, _, message) => {
		let nr = 0;
		const { outcome, settings } = await probed((socket) => {
			socket.send(HELLO);
			setTimeout(() => socket.close(1000, reason), 450);
			every(socket, 100, () => socket.send(message(++nr)));
			socket.on('message', () => socket.close(1000, 'parse error'));
		});
		expect(outcome.status, outcome.stdout).toBe(69);
		expect(outcome.stderr).toMatch(/the service ended it with close code 1000 after 0\.[45] s/);
		expect(outcome.stdout).not.toContain('ends each channel after');
		expect(settings).not.toHaveProperty('service');
	},
	120_000,
);

test('a first plain text that begins as no other, and what is too short to say anything, are no notifications [F1810]', () => {
	const own = (texts: readonly string[]) => {
		const heard = texts.map((text, at) => ({ atMs: 100 * at, frame: { type: 'text' as const, text } }));
		const life: Life = {
			...{ refusal: null, isOpen: true, headers: {}, subprotocol: null, pings: 1, pongs: 1, failure: null },
			...{ heard, said: [], ended: null },
		};
		const isAside = asides(life, {}, 50);
		return messagesOf(heard).flatMap(({ text }) => (isAside(text) ? [] : [text]));
	};
	expect(own(['0{"sid":"a"}', '2', '42["visit.open",{}]', '2', '42["visit.shut",{}]'])).toEqual([
		'42["visit.open",{}]',
		'42["visit.shut",{}]',
	]);
	expect(own(['o', 'h', 'a["visit"]'])).toEqual(['a["visit"]']);
	expect(own(['visit 1 is open', 'visit 2 is open'])).toHaveLength(2);
});

test('Socket.IO is joined, and its pings are answered, as Engine.IO has it [F1811]', async () => {
	let answered = 0;
	const { outcome, settings } = await probed((socket) => {
		let isIn = false;
		let isPinged = false;
		socket.send('0{"sid":"a1","upgrades":[],"pingInterval":200,"pingTimeout":150}');
		setTimeout(() => isIn || socket.close(1000), 400);
		every(socket, 200, () => {
			if (isPinged) return socket.close(1000);
			isPinged = true;
			socket.send('2');
		});
		every(socket, 60, () => isIn && socket.send('42["visit.open",{"id":"n"}]'));
		socket.on('message', (frame) => {
			const said = String(frame);
			if (said === '3') {
				isPinged = false;
				answered += 1;
			} else if (/^40(?:\{"token":"lasting-token-0123456789"\})?$/.test(said)) {
				isIn = true;
				socket.send('40{"sid":"b1"}');
			} else socket.close(1000, 'parse error');
		});
	});
	expect(outcome, outcome.stdout).toMatchObject({ status: 0, stderr: '' });
	expect(outcome.stdout).toMatch(/first-messages .*proved/);
	expect(settings.service).toMatchObject({ heartbeatMode: 'ping', pingKind: '2', pongBody: '3' });
	expect(answered).toBeGreaterThan(0);
}, 60_000);

test('a device whose channels the service ends one after the other is not online, whatever lasted before [F1812]', async () => {
	const { outcome } = await probed((socket, nr) => {
		every(socket, 100, () => socket.send(`{"type":"visit.open","id":"n-${Math.random()}"}`));
		if (nr > 3) setTimeout(() => socket.close(4000, 'bye'), 400);
	}, 8);
	expect(outcome.stdout).toMatch(/Channels that the service ended +4000 .*4000/);
	expect(outcome.status, outcome.stdout).toBe(69);
	expect(outcome.stderr).toMatch(/the service ended it with close code 4000 after 0\.\d s \("bye"\)/);
}, 60_000);

test.each<[string, string, object?]>([
	['only in the words of an end', 'no {"still_here":true} for a while'],
	['under its name in a message', 'silent', { type: 'error', text: 'unknown', heartbeat: { still_here: true } }],
])('a heartbeat that the service writes out %s, without a word that names one, is tried [F1813]', (_, reason, told) => {
	const frame = (document: object) => ({ type: 'text' as const, text: JSON.stringify(document) });
	const life: Life = {
		...{ refusal: null, isOpen: true, headers: {}, subprotocol: null, pings: 1, pongs: 1, failure: null, said: [] },
		heard: [
			{ atMs: 5, frame: frame({ type: 'hello', heartbeat: { interval: 30 } }) },
			...(told ? [{ atMs: 900, frame: frame(told) }] : []),
		],
		ended: { atMs: 5000, code: 4008, reason },
	};
	const beats = guesses({ life, form: {}, settleMs: 50, settings: {} }).filter(
		({ point, isWritten }) => point === 'heartbeat-message' && isWritten,
	);
	expect(beats.map(({ settings }) => settings)).toEqual([{ heartbeatBody: '{"still_here":true}' }]);
});

test('a first message after which the service says what it had not said is in the file, whatever then ends the channel [F1814]', async () => {
	let nr = 0;
	const { outcome, settings } = await probed((socket) => {
		let isIn = false;
		const say = (notice: string, more: object = {}) => socket.send(JSON.stringify({ notice, ...more }));
		say('who_are_you', { reply_with: { i_am: '<deviceId>', secret: '<token>' } });
		setTimeout(() => isIn || socket.close(4003, 'not introduced'), 300);
		setTimeout(() => socket.close(4008, 'you went silent'), 700);
		every(socket, 10, () => isIn && say(++nr % 2 ? 'visit.open' : 'visit.shut', { nr: `n-${nr}` }));
		socket.on('message', (frame) => {
			const isRight = Object(parseJson(String(frame))).secret === 'lasting-token-0123456789';
			isIn ||= isRight;
			say(isRight ? 'welcome' : 'did_not_understand');
		});
	});
	expect(outcome.status, outcome.stdout).toBe(69);
	expect(settings.service.firstMessages, outcome.stdout).toEqual([{ i_am: '{deviceId}', secret: '{token}' }]);
}, 120_000);

test('names that the service says are tried as it spells them: the answer to its ping, and the acknowledgement [F1815]', () => {
	const frame = (document: object) => ({ type: 'text' as const, text: JSON.stringify(document) });
	const note = { MessageType: 'VisitOpen', MessageId: 'n-1', Body: { Visit: 'v-1' } };
	const error = {
		...{ MessageType: 'Error', MessageId: 'e-1' },
		Body: { Text: 'unknown MessageType; known are KeepAliveResponse, Ack (with MessageId)' },
	};
	const life: Life = {
		...{ refusal: null, isOpen: true, headers: {}, subprotocol: null, pings: 1, pongs: 1, failure: null, said: [] },
		heard: [
			...[note, { MessageType: 'KeepAliveRequest', MessageId: 'k-1' }, note, error, note].map((one, at) => ({
				...{ atMs: 300 + 700 * at, frame: frame(one) },
			})),
		],
		ended: { atMs: 4000, code: 4008, reason: 'KeepAliveResponse missing' },
	};
	const form = { kindPointer: '/MessageType', notificationIdPointer: '/MessageId' };
	const tried = (of: Life, point: string) =>
		guesses({ life: of, form, settleMs: 50, settings: {} }).filter((one) => one.point === point);
	expect(tried(life, 'application-ping')[0]?.settings).toEqual({
		pingKind: 'KeepAliveRequest',
		pongBody: '{"MessageType":"KeepAliveResponse","MessageId":"{id}"}',
	});
	const acks = tried(life, 'acknowledgement').map(({ settings }) => settings['ackBody']);
	for (const word of ['Ack', 'ack']) expect(acks).toContain(`{"MessageType":"${word}","MessageId":"{id}"}`);
	const without = { ...life, heard: life.heard.filter((_, at) => at !== 3), ended: null };
	expect(JSON.stringify(tried(without, 'acknowledgement'))).not.toMatch(/Ack/);
});
