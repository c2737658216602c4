/** `idv probe` at services that speak a protocol of others: its first messages, heartbeats and answers; and what the report says where nothing shows that a device is served. */
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { type WebSocket, WebSocketServer } from 'ws';
import { parseJson } from '../../src/protocol/json.ts';
import { listen } from '../connection/network-peers.ts';
import { operatorOfFile } from './operator.ts';

const operator = operatorOfFile();
const TOKEN = 'family-token-0123456789';

/** A probe of a service with the token and the path as assumed. @param onChannel is given each channel. @param subprotocols of the service; without one of them it ends a channel with 4406. */
async function probed(
	onChannel: (socket: WebSocket) => void,
	{
		seconds = 1,
		subprotocols = [],
		path = '/ws/device',
	}: { seconds?: number; subprotocols?: readonly string[]; path?: string } = {},
) {
	const server = createServer((_, response) => void response.writeHead(201).end(`{"token":"${TOKEN}"}`));
	const channels = new WebSocketServer({
		noServer: true,
		handleProtocols: (offered) => subprotocols.find((one) => offered.has(one)) ?? false,
	});
	server.on('upgrade', (request, raw, head) => {
		if (String(request.url).replace(/\?.*/, '') !== path)
			return raw.end('HTTP/1.1 404 Not Found\r\nConnection: close\r\n\r\n');
		channels.handleUpgrade(request, raw, head, (socket) => {
			if (subprotocols.length > 0 && socket.protocol === '') socket.close(4406, 'Subprotocol not acceptable');
			else onChannel(socket);
		});
	});
	const out = join(operator.directory, 'family.json');
	const device = join(operator.directory, 'family-device.json');
	const variables = { ...operator.env('ApiKey'), IDV_URL: `http://127.0.0.1:${await listen(server)}` };
	const flags = ['--workflow', 'checkin', '--yes', '--seconds', String(seconds), '--force'];
	const outcome = await operator.idv(['probe', ...flags, '--out', out, '--device', device], variables);
	const read = async (file: string) => JSON.parse(await readFile(file, 'utf8').catch(() => 'null'));
	return { outcome, settings: await read(out), provision: await read(device) };
}

const every = (socket: WebSocket, ms: number, say: () => void) => {
	const timer = setInterval(say, ms);
	socket.once('close', () => clearInterval(timer));
};
let nr = 0;
/** Two kinds in turn. */
const kind = () => (++nr % 2 ? 'session.started' : 'session.closed');

test('a Connection that the answer to a first message replaces at once, in a binary frame, is followed, and the newest handed on [F1081]', async () => {
	let good = TOKEN;
	const { outcome, settings, provision } = await probed((socket) => {
		let isIn = false;
		const say = (message: object) => socket.send(Buffer.from(JSON.stringify(message)));
		setTimeout(() => isIn || socket.close(4401, 'authentication timeout'), 400);
		every(socket, 60, () => isIn && say({ type: kind(), messageId: `n-${nr}` }));
		socket.on('message', (frame) => {
			const { type, token } = JSON.parse(String(frame));
			if (isIn) return;
			if (type !== 'auth') {
				say({ type: 'error', message: 'expected a message of type auth with your token' });
				return socket.close(4401, 'not authenticated');
			}
			if (token !== good) return socket.close(4401, 'invalid token');
			good = `family-token-next-${++nr}-0123456789`;
			isIn = true;
			say({ type: 'auth_ok', nextToken: good });
		});
	});
	expect(outcome, outcome.stdout).toMatchObject({ status: 0, stderr: '' });
	expect(settings.service).toMatchObject({ jsonInBinary: true, nextConnection: '/nextToken' });
	expect(settings.service.firstMessages).toHaveLength(1);
	expect(outcome.stdout).toMatch(/next-connection .*\/nextToken.* guessed/);
	expect(outcome.stdout).toMatch(/Notifications +session\./);
	expect(provision.connection).toBe(good);
}, 60_000);

test('JSON-RPC is subscribed to as its specification has it, and its heartbeats are answered with no errors [F1084]', async () => {
	const { outcome, settings } = await probed((socket) => {
		let isIn = false;
		const say = (message: object) => socket.send(JSON.stringify({ jsonrpc: '2.0', ...message }));
		every(socket, 60, () => isIn && say({ method: kind(), params: { id: `n-${nr}` } }));
		socket.on('message', (frame) => {
			const { jsonrpc, id = null, method } = JSON.parse(String(frame));
			if (jsonrpc !== '2.0') return say({ id, error: { code: -32600, message: 'Invalid Request' } });
			if (method === 'subscribe') {
				isIn = true;
				say({ id, result: { subscribed: true } });
			} else if (id !== null) say({ id, error: { code: -32601, message: 'Method not found' } });
		});
	});
	expect(outcome, outcome.stdout).toMatchObject({ status: 0, stderr: '' });
	expect(settings.service).toMatchObject({ firstMessages: [{ jsonrpc: '2.0', method: 'subscribe' }] });
	expect(settings.service.firstMessages).toHaveLength(1);
	expect(outcome.stdout).toMatch(/Notifications +session\./);
}, 60_000);

test('an answer to a subscription shows that it is right, where nothing else comes and each heartbeat was an error before [F1089]', async () => {
	const { outcome, settings } = await probed((socket) => {
		socket.on('message', (frame) => {
			const { jsonrpc, id = null, method } = JSON.parse(String(frame));
			const isRight = jsonrpc === '2.0' && method === 'subscribe';
			const answer = isRight ? { result: { ok: 1 } } : { error: { code: -32600, message: 'Invalid Request' } };
			if (jsonrpc !== '2.0' || id !== null) socket.send(JSON.stringify({ jsonrpc: '2.0', id, ...answer }));
		});
	});
	expect(outcome, outcome.stdout).toMatchObject({ status: 0, stderr: '' });
	expect(settings.service.firstMessages).toContainEqual(expect.objectContaining({ method: 'subscribe' }));
	expect(outcome.stdout).toMatch(/Notifications +none came/);
}, 60_000);

test('a service that ends a channel without its subprotocol is asked for the usual ones, and a GraphQL subscription follows connection_init [F1085]', async () => {
	const { outcome, settings } = await probed(
		(socket) => {
			let isIn = false;
			const subscribed: string[] = [];
			const say = (message: object) => socket.send(JSON.stringify(message));
			setTimeout(() => isIn || socket.close(4408, 'Connection initialisation timeout'), 700);
			every(socket, 60, () => {
				for (const id of subscribed)
					say({ id, type: 'next', payload: { data: { deviceNotifications: { id: `n-${++nr}`, kind: kind() } } } });
			});
			socket.on('message', (frame) => {
				const { type, id, payload } = JSON.parse(String(frame));
				if (type === 'connection_init') {
					isIn = true;
					say({ type: 'connection_ack' });
				} else if (!isIn) socket.close(4401, 'Unauthorized');
				else if (type === 'ping') say({ type: 'pong' });
				else if (type !== 'subscribe') socket.close(4400, 'Invalid message received');
				else if (/\{ deviceNotifications \{ id kind \} \}/.test(payload.query)) subscribed.push(id);
				else say({ id, type: 'error', payload: [{ message: 'Cannot query that field.' }] });
			});
		},
		{ subprotocols: ['graphql-transport-ws'] },
	);
	expect(outcome, outcome.stdout).toMatchObject({ status: 0, stderr: '' });
	expect(settings.service).toMatchObject({
		subprotocol: 'graphql-transport-ws',
		heartbeatBody: { type: 'ping' },
		pingKind: 'ping',
		ignoreKinds: expect.arrayContaining(['connection_ack', 'pong']),
		kindPointer: '/payload/data/deviceNotifications/kind',
		notificationIdPointer: '/payload/data/deviceNotifications/id',
	});
	expect(outcome.stdout).toMatch(/Notifications +session\./);
}, 60_000);

test('STOMP and SignalR are spoken as their specifications have it [F1086]', async () => {
	const stomp = await probed((socket) => {
		let isIn = false;
		every(
			socket,
			60,
			() => isIn && socket.send(`MESSAGE\nmessage-id:m-${nr}\n\n{"id":"n-${nr}","kind":"${kind()}"}\0`),
		);
		socket.on('message', (data) => {
			const frame = String(data);
			if (frame === '\n') return;
			if (/^CONNECT\n[\s\S]*\0$/.test(frame)) return socket.send('CONNECTED\nversion:1.2\n\n\0');
			isIn ||= /^SUBSCRIBE\n[\s\S]*destination:\/queue\/ws\/device\n[\s\S]*\0$/.test(frame);
			if (isIn) return;
			socket.send('ERROR\nmessage:Incomplete or illegal STOMP frame\n\n\0');
			socket.close(1002, 'Incomplete or illegal STOMP frame');
		});
	});
	expect(stomp.outcome, stomp.outcome.stdout).toMatchObject({ status: 0, stderr: '' });
	expect(stomp.settings.service).toMatchObject({ heartbeatBody: '\n', frameContents: 'body' });
	expect(stomp.settings.service.firstMessages).toHaveLength(2);
	for (const name of ['started', 'closed']) expect(stomp.outcome.stdout).toMatch(`session.${name} (`);

	const hub = await probed((socket) => {
		let isIn = false;
		const say = (message: object) => socket.send(`${JSON.stringify(message)}\x1e`);
		const end = (error: string) => {
			say({ error });
			socket.close(1000);
		};
		setTimeout(() => isIn || end('Handshake was canceled.'), 600);
		every(socket, 60, () => isIn && say({ type: 1, target: kind(), arguments: [{ notificationId: `n-${nr}` }] }));
		every(socket, 200, () => isIn && say({ type: 6 }));
		socket.on('message', (frame) => {
			if (!String(frame).endsWith('\x1e')) return;
			const { protocol } = JSON.parse(String(frame).slice(0, -1));
			if (protocol === 'json') {
				isIn = true;
				say({});
			}
		});
	});
	expect(hub.outcome, hub.outcome.stdout).toMatchObject({ status: 0, stderr: '' });
	expect(hub.outcome.stdout).toMatch(/The service says: .*Handshake was canceled\./);
	expect(hub.settings.service).toMatchObject({
		...{ kindPointer: '/target', notificationIdPointer: '/arguments/0/notificationId', ignoreKinds: ['6'] },
		...{ firstMessages: ['{"protocol":"json","version":1}\x1e'], heartbeatBody: '{"type":6}\x1e' },
	});
	expect(hub.outcome.stdout).toMatch(
		/Notifications +session\.\w+ \(\d+\), session\.\w+ \(\d+\); (\d+) of \1 with an id/,
	);
}, 60_000);

test('a channel that opens, and whose service answers the heartbeats with errors, is not told as online; nothing is guessed that was not seen [F1087]', async () => {
	const refusal = '{"error":{"message":"unknown command: a heartbeat is due every 1 s"}}';
	const { outcome } = await probed((socket) => void socket.on('message', () => socket.send(refusal)), { seconds: 2 });
	expect(outcome.status, outcome.stdout).toBe(69);
	expect(outcome.stderr).toMatch(/answers the heartbeats with errors.*Start sessions/);
	expect(outcome.stdout).toMatch(/opened: nothing shows that the service serves it/);
	expect(outcome.stdout).not.toContain('online');
	expect(outcome.stdout).toMatch(/notification-kind .* no notification +not seen/);
	expect(outcome.stdout).toMatch(/start sessions for the workflow/);

	const quiet = await probed(() => {});
	expect(quiet.outcome.status).toBe(0);
	expect(quiet.outcome.stdout).toMatch(/opened: nothing shows that the service serves it/);
}, 60_000);

test('Phoenix is joined by an array, at the path that its sockets have, with its own heartbeat [F1088]', async () => {
	const { outcome, settings } = await probed(
		(socket) => {
			let topic = '';
			every(socket, 60, () => topic && socket.send(JSON.stringify(['1', null, topic, kind(), { id: `n-${nr}` }])));
			socket.on('message', (frame) => {
				const said = parseJson(String(frame));
				if (!Array.isArray(said) || said.length !== 5) return socket.close(1011);
				const [join, ref, to, event] = said;
				const isKnown = (to === 'phoenix' && event === 'heartbeat') || /^device:idv-probe-/.test(to);
				if (isKnown && event === 'phx_join') topic = to;
				const answer = isKnown
					? { status: 'ok', response: {} }
					: { status: 'error', response: { reason: 'unmatched topic' } };
				socket.send(JSON.stringify([join, ref, to, 'phx_reply', answer]));
			});
		},
		{ path: '/ws/device/websocket' },
	);
	expect(outcome, outcome.stdout).toMatchObject({ status: 0, stderr: '' });
	expect(settings.service).toMatchObject({
		firstMessages: [[expect.any(String), expect.any(String), 'device:{deviceId}', 'phx_join', {}]],
		...{ kindPointer: '/3', notificationIdPointer: '/4/id', ignoreKinds: ['phx_reply'] },
		heartbeatBody: [null, 'h{sequence}', 'phoenix', 'heartbeat', {}],
	});
	expect(outcome.stdout).toMatch(/Notifications +session\.\w+ \(\d+\), session\.\w+ \(\d+\); (\d+) of \1 with an id/);
}, 60_000);
