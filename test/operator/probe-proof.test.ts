/** `idv probe`: what it may call proved, and what it writes for other devices than its own. */
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { type WebSocket, WebSocketServer } from 'ws';
import { readForm } from '../../src/operator/probe-form.runner.ts';
import { guesses } from '../../src/operator/probe-guesses.runner.ts';
import type { Life } from '../../src/operator/probe-wire.runner.ts';
import { parseJson } from '../../src/protocol/json.ts';
import { listen } from '../connection/network-peers.ts';
import { probesOfFile, QUICK } from './probing.ts';

const { operator, probedForeign } = probesOfFile();

const every = (socket: WebSocket, ms: number, say: () => void) => {
	const timer = setInterval(say, ms);
	socket.once('close', () => clearInterval(timer));
};

test.each([
	['1012 "service restart"', 6, (socket: WebSocket) => setTimeout(() => socket.close(1012, 'service restart'), 300)],
	['1001', 6, (socket: WebSocket) => setTimeout(() => socket.close(1001), 300)],
	[
		'what comes again and again',
		3,
		(socket: WebSocket) => {
			let id = 0;
			every(socket, 100, () => {
				id += 1;
				for (const again of [1, 2])
					socket.send(JSON.stringify({ type: 'visit.open', id: `n-${Math.max(1, id - again)}` }));
			});
		},
	],
])(
	'a service that is unsettled for some channels (%s) proves no setting: the failing side is tried again, and lasts [F1210]',
	async (_, until, unsettle) => {
		let channels = 0;
		let session = 0;
		const { outcome, settings } = await probedForeign((socket) => {
			channels += 1;
			if (channels <= until) return unsettle(socket);
			every(socket, 150, () => {
				session += 1;
				socket.send(JSON.stringify({ type: 'visit.open', id: `s-${session}` }));
			});
		});
		expect(outcome, outcome.stdout).toMatchObject({ status: 0, stderr: '' });
		expect(outcome.stdout).not.toMatch(
			/(first-messages|acknowledgement|application-ping|heartbeat-message) .*(proved|guessed)/,
		);
		expect(settings).not.toHaveProperty('service');
	},
);

/** A service that answers a registration with where its channel is. @param answer to the device. @param isThere whether it has this path. */
async function probedNaming(
	answer: (deviceId: string) => object,
	isThere: (path: string, deviceId: string) => boolean,
) {
	let deviceId = '';
	const server = createServer(async (request, response) => {
		if (request.url !== '/api/device/connection') return void response.writeHead(404).end();
		deviceId = JSON.parse((await request.setEncoding('utf8').toArray()).join('')).deviceId;
		response.writeHead(201).end(JSON.stringify({ token: 'foreign-token-0123456789', ...answer(deviceId) }));
	});
	const channels = new WebSocketServer({ noServer: true });
	server.on('upgrade', (request, raw, head) => {
		const path = String(request.url).replace(/\?.*/, '');
		if (!isThere(path, deviceId)) raw.end('HTTP/1.1 404 Not Found\r\nConnection: close\r\n\r\n');
		else if (request.headers.authorization === undefined) raw.end('HTTP/1.1 401 No\r\nConnection: close\r\n\r\n');
		else channels.handleUpgrade(request, raw, head, () => {});
	});
	const [out, device] = [join(operator.directory, 'place.json'), join(operator.directory, 'place-device.json')];
	const variables = { ...operator.env('ApiKey'), IDV_URL: `http://127.0.0.1:${await listen(server)}` };
	const outcome = await operator.idv([...QUICK, '--force', '--out', out, '--device', device], variables);
	const read = async (file: string) => JSON.parse(await readFile(file, 'utf8'));
	return { outcome, settings: await read(out), provision: await read(device) };
}

const named = (path: string) => ({ channel: { href: path } });

test.each<[string, Parameters<typeof probedNaming>[0], Parameters<typeof probedNaming>[1], string]>([
	[
		'the id of the device in capitals',
		(id) => named(`/v2/ws/device/${id.toUpperCase()}`),
		(path, id) => path.toLowerCase() === `/v2/ws/device/${id}`,
		'/v2/ws/device/{deviceId}',
	],
	[
		'an id that the service has made, beside that of the device',
		() => ({ id: 'd-99812', ...named('/v2/ws/d-99812/feed') }),
		(path, id) => [`/v2/ws/d-99812/feed`, `/v2/ws/${id}/feed`].includes(path),
		'/v2/ws/{deviceId}/feed',
	],
	[
		'a number of a tenant',
		() => ({ tenantId: '839200', ...named('/t/839200/ws/device') }),
		(path) => path === '/t/839200/ws/device',
		'/t/839200/ws/device',
	],
])(
	'a path of the channel with %s in it becomes one that other devices have, too [F1211]',
	async (_, answer, isThere, expected) => {
		const { outcome, settings } = await probedNaming(answer, isThere);
		expect(outcome, outcome.stdout).toMatchObject({ status: 0, stderr: '' });
		expect(settings.service).toEqual({ channelPath: expected });
	},
);

test.each<[string, (id: string) => object, (id: string) => string]>([
	['has made an id for', () => ({ id: 'd-99812', ...named('/v2/ws/d-99812/feed') }), () => '/v2/ws/d-99812/feed'],
	['names in the path alone', () => named('/devices/99812/ws'), () => '/devices/99812/ws'],
	['knows in capitals', (id) => named(`/ws/device/${id.toUpperCase()}`), (id) => `/ws/device/${id.toUpperCase()}`],
])(
	'a path of the channel that only the device has that the service %s is in no file for others, and the report says so [F1211]',
	async (_, answer, place) => {
		const { outcome, settings, provision } = await probedNaming(answer, (path, id) => path === place(id));
		const own = place(provision.settings.deviceId);
		expect(outcome.status, outcome.stdout).toBe(69);
		expect(outcome.stdout).toContain(`${own}, of this device alone`);
		expect(outcome.stdout).toContain('(a device had an open channel with it and the path of its own)');
		expect(outcome.stderr).toMatch(/which the service has named for this device alone.*--channel-path/);
		expect(settings).not.toHaveProperty('service');
		expect(provision.settings.service).toEqual({ channelPath: own });
	},
);

/** What is tried of what a service writes out. */
function writtenOut(messages: readonly object[], ended: Life['ended'] = null) {
	const heard = messages.map((message, index) => ({
		atMs: index * 1000,
		frame: { type: 'text' as const, text: JSON.stringify(message) },
	}));
	const about = { refusal: null, isOpen: true, headers: {}, subprotocol: null, failure: null, ended };
	const life: Life = { ...about, ...{ pings: 1, pongs: 1, heard, said: [] } };
	return guesses({ life, form: readForm(heard), settleMs: 3000, settings: {} })
		.filter(({ isWritten }) => isWritten)
		.map(({ settings }) => settings);
}

test.each([
	'unknown message: expected a heartbeat or a subscription, as {"type":"sub","to":"all"} and {"type":"heartbeat"}',
	'Keep the channel alive: after {"type":"sub","to":"all"} send {"type":"heartbeat"} every 20 s',
	'no heartbeat before {"type":"sub","to":"all"}, then {"type":"heartbeat"}',
])('a subscription and a heartbeat in one sentence are each said as what they are: %s [F1212]', (message) => {
	const tried = writtenOut([{ type: 'error', message }]);
	expect(tried).toHaveLength(2);
	expect(tried).toContainEqual({ firstMessages: ['{"type":"sub","to":"all"}'] });
	expect(tried).toContainEqual({ heartbeatBody: '{"type":"heartbeat"}' });
});

test('an acknowledgement that names the id of notifications is tried, whatever the words before it say [F1212]', () => {
	const notifications = [1, 2, 3, 4].map((one) => ({
		...{ event_type: one % 2 ? 'visit.open' : 'visit.shut', notification_id: `n-${one}` },
		payload: { session: `s${one}` },
	}));
	const message = 'Invalid message. Expected: {"notification_id": "<notification_id>", "status": "received"}';
	expect(writtenOut([...notifications, { type: 'error', message }])).toEqual([
		{ ackBody: '{"notification_id":"{id}","status":"received"}' },
	]);
});

test.each([
	[
		'accept',
		{
			type: 'welcome',
			commands: [
				{ op: 'reject', ref: '<ref>' },
				{ op: 'accept', ref: '<ref>' },
			],
		},
		[],
		[],
	],
	['next', { type: 'welcome', commands: [{ op: 'next', ref: '<ref>' }] }, [], ['next']],
	['closeSession', { type: 'welcome', acknowledge: { op: 'closeSession', ref: '<ref>' } }, [], ['closeSession']],
	[
		'confirm_receipt',
		{ type: 'welcome', commands: [{ op: 'confirm_receipt', ref: '<ref>' }] },
		['confirm_receipt'],
		['confirm_receipt'],
	],
	[
		'seen',
		{
			type: 'welcome',
			commands: [
				{ op: 'accept', ref: '<ref>' },
				{ op: 'seen', ref: '<ref>' },
			],
		},
		['seen'],
		['seen'],
	],
])(
	'a message that a greeting lists, %s, is no acknowledgement unless it says so, or what is not acknowledged comes again [F1271]',
	(_, greeting, once, again) => {
		const words = (tried: readonly { ackBody?: string }[]) =>
			tried.flatMap(({ ackBody }) => (ackBody ? [JSON.parse(ackBody).op] : []));
		const notifications = [1, 2, 3, 4].map((one) => ({
			type: one % 2 ? 'visit.open' : 'visit.shut',
			ref: `n-${one}`,
			data: { of: one },
		}));
		expect(words(writtenOut([greeting, ...notifications]))).toEqual(once);
		expect(words(writtenOut([greeting, ...notifications], { atMs: 9000, code: 4000, reason: 'over' }))).toEqual(once);
		expect(words(writtenOut([greeting, ...notifications, ...notifications]))).toEqual(again);
	},
);

test('what is written out in a JSON text within a JSON text is said; a greeting of Pusher is no notification [F1212]', async () => {
	const pushed = (event: string, data: object) => JSON.stringify({ event, data: JSON.stringify(data) });
	const hear = (isServed: boolean) => (socket: WebSocket) => {
		let nr = 0;
		let isIn = false;
		socket.send(pushed('pusher:connection_established', { socket_id: '12.34', activity_timeout: 120 }));
		every(socket, 100, () => isIn && socket.send(pushed(nr++ % 2 ? 'visit.open' : 'visit.shut', { id: `n-${nr}` })));
		const words = `say ${isServed ? '{"event":"pusher:subscribe","data":{"channel":"private-kiosk"}}' : 'nothing'}`;
		every(socket, 250, () => isIn || socket.send(pushed('pusher:error', { code: 4301, message: words })));
		socket.on('message', (frame) => {
			isIn ||= isServed && /"pusher:subscribe".*"private-kiosk"/.test(String(frame));
		});
	};
	const served = await probedForeign(hear(true));
	expect(served.outcome, served.outcome.stdout).toMatchObject({ status: 0, stderr: '' });
	expect(JSON.stringify(served.settings.service.firstMessages)).toContain('private-kiosk');
	expect(served.outcome.stdout).toMatch(/Notifications +visit\./);
	const other = await probedForeign(hear(false));
	expect(other.outcome.stdout).toMatch(/Notifications +none came/);
	expect(other.outcome.stdout).toMatch(/opened: nothing shows that the service serves it/);
	expect(other.outcome.status).toBe(69);
}, 60_000);

test('a first message that the service wrote out while something else was wrong is said once that is mended [F1239]', async () => {
	const served = await probedForeign((socket) => {
		let isIn = false;
		let nr = 0;
		const end = setTimeout(() => socket.close(4000, 'no hb'), 700);
		every(socket, 100, () => isIn && socket.send(JSON.stringify({ type: 'visit.open', id: `n-${++nr}` })));
		socket.on('message', (frame) => {
			const { type = '', workflow = '' } = Object(parseJson(String(frame)));
			if (type === 'hb') clearTimeout(end);
			else if (type === 'subscribe' && workflow === 'checkin') isIn = true;
			else {
				const message = `unknown ${type}; expected {"type":"subscribe","workflow":"<workflowId>"} or {"type":"hb","device":"<deviceId>"}`;
				socket.send(JSON.stringify({ type: 'error', message }));
			}
		});
	});
	expect(served.outcome, served.outcome.stdout).toMatchObject({ status: 0, stderr: '' });
	expect(served.settings.service).toMatchObject({ heartbeatBody: { type: 'hb' }, firstMessages: expect.any(Array) });
	expect(served.outcome.stdout).toMatch(/Notifications +visit\.open/);
}, 60_000);

test('a heartbeat that was found before the first message that is the true cause is not kept [F1272]', async () => {
	const served = await probedForeign((socket) => {
		let isIn = false;
		let nr = 0;
		setTimeout(() => isIn || socket.close(4401, 'authenticate first'), 500);
		every(socket, 100, () => isIn && socket.send(JSON.stringify({ type: 'visit.open', id: `n-${++nr}` })));
		socket.on('message', (frame) => {
			const { type, token } = Object(parseJson(String(frame)));
			if (!isIn && !(type === 'auth' && token)) socket.close(4401, 'not authenticated');
			isIn = true;
		});
	});
	expect(served.outcome, served.outcome.stdout).toMatchObject({ status: 0, stderr: '' });
	// It was found, and left away once the first message was known.
	expect(served.outcome.stdout).toContain('Tries the same without {"heartbeatMode":"ping"}');
	expect(Object.keys(served.settings.service)).toEqual(['firstMessages']);
	expect(served.outcome.stdout).toMatch(/first-messages .* proved/);
}, 60_000);

test('an acknowledgement that the service writes out in its answer to another one is tried [F1239]', async () => {
	const served = await probedForeign((socket) => {
		const open = new Set<string>();
		let nr = 0;
		every(socket, 150, () => {
			open.add(`n-${++nr}`);
			for (const id of [...open].slice(-3))
				socket.send(JSON.stringify({ notification_id: id, notification_type: 'visit' }));
		});
		socket.on('message', (frame) => {
			const { type, status, notification_id: id = '' } = Object(parseJson(String(frame)));
			if (status === 'received') open.delete(id);
			else if (type !== 'heartbeat')
				socket.send(
					JSON.stringify({
						notification_type: 'error',
						error: 'only {"notification_id": "<notification_id>", "status": "received"}',
					}),
				);
		});
	});
	expect(served.outcome, served.outcome.stdout).toMatchObject({ status: 0, stderr: '' });
	expect(served.settings.service.ackBody).toEqual({ notification_id: '{id}', status: 'received' });
	expect(served.outcome.stdout).toMatch(/Sent again by the service +0/);
}, 60_000);

test.each([
	['only says that it came', (id: string) => ({ type: 'ack.ok', id }), ['ack.ok']],
	['may say more', (id: string) => ({ type: 'ack.ok', id, pending: [] }), undefined],
])(
	'the answer to an acknowledgement, which %s, is no notification and was not sent again [F1277]',
	async (_, answer, ignoreKinds) => {
		const served = await probedForeign((socket) => {
			const open = new Set<string>();
			let nr = 0;
			every(socket, 150, () => {
				open.add(`n-${++nr}`);
				for (const id of open) socket.send(JSON.stringify({ type: nr % 2 ? 'visit.open' : 'visit.shut', id }));
			});
			socket.on('message', (frame) => {
				const { type, id } = Object(parseJson(String(frame)));
				if (type !== 'ack' || typeof id !== 'string') return;
				open.delete(id);
				socket.send(JSON.stringify(answer(id)));
			});
		});
		expect(served.outcome, served.outcome.stdout).toMatchObject({ status: 0, stderr: '' });
		expect(served.settings.service).toMatchObject({ ackBody: { type: 'ack', id: '{id}' } });
		expect(served.settings.service.ignoreKinds).toEqual(ignoreKinds);
		expect(served.outcome.stdout).toMatch(/acknowledgement .* proved/);
		expect(served.outcome.stdout).toMatch(/Sent again by the service +0/);
		expect(served.outcome.stdout).not.toMatch(/Notifications .*ack\.ok/);
	},
	60_000,
);

test.each([
	[1012, 'restart'],
	[1001, ''],
])(
	'a service that ends every channel with %i after it has brought notifications is no riddle: nothing is guessed because of it, and the device runs [F1279]',
	async (code, reason) => {
		let nr = 0;
		const served = await probedForeign((socket) => {
			setTimeout(() => socket.close(code, reason), 700);
			every(socket, 60, () => socket.send(JSON.stringify({ type: 'visit.open', id: `n-${++nr}` })));
		});
		expect(served.outcome, served.outcome.stdout).toMatchObject({ status: 0, stderr: '' });
		expect(served.outcome.stdout).not.toContain('Tries {');
		expect(served.outcome.stdout).toMatch(
			new RegExp(`connection-life .* ends each channel after 0\\.[78] s \\(${code}\\)`),
		);
		expect(served.outcome.stdout).toMatch(/Notifications +visit\.open \((\d+)\); \1 of \1 with an id/);
		expect(served.settings).not.toHaveProperty('service');
		expect(served.settings).not.toHaveProperty('heartbeatCadence');
	},
	60_000,
);

test.each([
	[4000, 'rotate'],
	[1000, ''],
])(
	'a service that ends every channel after the same time with %i "%s" is told as such once nothing likely helps, and its acknowledgement is written [F1320]',
	async (code, reason) => {
		let nr = 0;
		const unacked = new Set<number>();
		const { outcome, settings } = await probedForeign((socket) => {
			setTimeout(() => socket.close(code, reason), 450);
			socket.send(JSON.stringify({ class: 'info', say: 'after each notice send {"received":["<uid>"]}' }));
			socket.on('message', (text) => {
				for (const one of Object(parseJson(String(text))).received ?? []) unacked.delete(Number(one));
			});
			every(socket, 30, () => {
				unacked.add(++nr);
				for (const uid of [...unacked].slice(0, 8))
					socket.send(JSON.stringify({ class: 'notice', notice: { name: 'visit.open', uid: String(uid) } }));
			});
		});
		expect(outcome, outcome.stdout).toMatchObject({ status: 0, stderr: '' });
		expect(outcome.stdout).toMatch(new RegExp(`connection-life .* ends each channel after 0\\.[4-6] s \\(${code}\\)`));
		expect(outcome.stdout).not.toContain('these settings may not be the whole');
		expect(settings.service).toEqual({
			kindPointer: '/notice/name',
			notificationIdPointer: '/notice/uid',
			ackBody: { received: ['{id}'] },
		});
	},
	120_000,
);

test.each([
	['at once', 0, ''],
	['before a channel counts', 80, ''],
	['for a reason that it names', 450, 'no {"op":"beat"} came'],
	['for want of an answer to its calls', 450, 'CALL timed out'],
	['for want of an answer, in other words', 450, 'request 7 is without a reply'],
])(
	'a service that ends every channel %s stays one whose channels do not last [F1320]',
	async (_, ms, reason) => {
		const { outcome } = await probedForeign((socket) => {
			socket.send('{"type":"visit.open","id":"n-1"}');
			setTimeout(() => socket.close(4000, reason), ms);
		});
		expect(outcome.status, outcome.stdout).toBe(69);
		expect(outcome.stderr).toContain('service.firstMessages');
		expect(outcome.stdout).not.toContain('ends each channel after');
	},
	120_000,
);

test.each([
	['sends everything twice', 0],
	['sends everything twice', 1],
	['sends nothing', 0],
	['sends nothing', 1],
])(
	'of two nodes in turn, one of which %s (%i), nothing is proved that the device would have to say [F1500]',
	async (what, at) => {
		let nr = 0;
		let opened = 0;
		const { outcome, settings } = await probedForeign((socket) => {
			const isOdd = opened++ % 2 === at;
			socket.send('{"type":"hello","topics":["sessions","documents"]}');
			every(socket, 90, () => {
				const text = JSON.stringify({ type: 'visit.open', id: `n-${++nr}` });
				if (what !== 'sends nothing' || !isOdd) socket.send(text);
				if (what === 'sends everything twice' && isOdd) socket.send(text);
			});
		});
		expect(outcome.stdout, outcome.stdout).not.toMatch(/(?:first-messages|acknowledgement) .* proved/);
		expect(settings.service ?? {}).not.toHaveProperty('ackBody');
	},
	120_000,
);

test('a code whose answer was cut off is sent again for the same device by a second run, and another code for another [F1213]', async () => {
	const ids = new Map<string, string>();
	const sent: string[] = [];
	const server = createServer(async (request, response) => {
		if (request.url !== '/api/device/connection') return void response.writeHead(404).end();
		const code = String(request.headers.authorization);
		const { deviceId } = JSON.parse((await request.setEncoding('utf8').toArray()).join(''));
		sent.push(deviceId);
		if (!ids.has(code)) request.socket.destroy();
		else response.writeHead(ids.get(code) === deviceId ? 201 : 410).end('{"token":"foreign-token-0123456789"}');
		ids.set(code, ids.get(code) ?? deviceId);
	});
	const channels = new WebSocketServer({ server });
	const url = `http://127.0.0.1:${await listen(server)}`;
	const run = (last: string) =>
		operator.idv(
			['probe', '--code-file', '-', '--yes', '--seconds', '1'],
			{},
			`${url}/mobile?authorization=Token%20tr-0123456789abcdefghijklmnop${last}&workflowId=checkin`,
		);
	expect((await run('1')).stderr).toContain('Try the same code again');
	expect(await run('1')).toMatchObject({ status: 0 });
	await run('2');
	channels.close();
	expect(sent).toEqual([expect.stringMatching(/^idv-probe-[0-9a-f]{8}$/), sent[0], sent[2]]);
	expect(sent[2]).not.toBe(sent[0]);
}, 60_000);

/** A probe with a code. @param answer to the registration. @param upgrade what a handshake gets. */
async function probedByCode(
	answer: { status: number; headers?: Record<string, string>; body: string | Buffer },
	upgrade = '404 Not Found',
) {
	const asked: string[] = [];
	const server = createServer((request, response) => {
		asked.push(`${request.method} ${request.url}`);
		const isThere = request.url === '/api/device/connection';
		response.writeHead(isThere ? answer.status : 404, answer.headers).end(isThere ? answer.body : '');
	});
	server.on('upgrade', (request, raw) => {
		asked.push(`channel ${request.url}`);
		raw.end(`HTTP/1.1 ${upgrade}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n`);
	});
	const code = `http://127.0.0.1:${await listen(server)}/mobile?authorization=Token%20tr-0123456789abcdefghijklmnopqr&workflowId=checkin`;
	const device = join(operator.directory, 'by-code.json');
	const args = ['probe', '--code-file', '-', '--yes', '--seconds', '1', '--force', '--device', device];
	const outcome = await operator.idv(args, {}, code);
	return { outcome, asked, kept: JSON.parse(await readFile(`${device}.answer`, 'utf8').catch(() => 'null')) };
}

/** A service at which every text opens the channel, and that serves one alone. @param served whether a handshake shows the right one. */
async function probedOpening(body: object, served: (authorization: string, query: URLSearchParams) => boolean) {
	const server = createServer((request, response) => {
		const isThere = request.url === '/api/device/connection';
		response.writeHead(isThere ? 200 : 404).end(isThere ? JSON.stringify(body) : '');
	});
	const channels = new WebSocketServer({ server });
	channels.on('connection', (socket, request) => {
		const isServed = served(request.headers.authorization ?? '', new URL(request.url ?? '', 'http://x').searchParams);
		const message = 'device not authorized';
		if (!isServed) return socket.send(JSON.stringify({ success: false, message }));
		let id = 0;
		every(socket, 100, () => socket.send(JSON.stringify({ success: true, type: 'visit.open', id: ++id })));
	});
	const code = `http://127.0.0.1:${await listen(server)}/mobile?authorization=Token%20tr-0123456789abcdefghijklmnopqr&workflowId=checkin`;
	const [out, device] = [join(operator.directory, 'opening.json'), join(operator.directory, 'opening-device.json')];
	const args = ['probe', '--code-file', '-', '--yes', '--seconds', '1', '--force', '--out', out, '--device', device];
	const outcome = await operator.idv(args, {}, code);
	channels.close();
	const read = async (file: string) => JSON.parse(await readFile(file, 'utf8').catch(() => 'null'));
	return { outcome, settings: await read(out), provision: await read(device), kept: await read(`${device}.answer`) };
}

const [KEY, SECRET] = ['k-0123456789abcdefghij', 'cn-0123456789abcdefghij'];

test('where any text opens the channel, the one is taken that the service says no error to; it is guessed, and the answer kept [F1273]', async () => {
	const answer = { success: true, data: { key: KEY, secret: SECRET } };
	const { outcome, settings, provision, kept } = await probedOpening(
		answer,
		(shown) => shown === `Connection ${SECRET}`,
	);
	expect(outcome, outcome.stdout).toMatchObject({ status: 0, stderr: '' });
	expect(settings.service).toEqual({ tokenPointer: '/data/secret' });
	expect(provision.connection).toBe(SECRET);
	expect(outcome.stdout).toMatch(/token-place .* \/data\/secret +guessed/);
	expect(JSON.parse(kept.body)).toEqual(answer);
	expect(kept.candidates.map(({ connection }: { connection: string }) => connection)).toEqual([SECRET, KEY]);
}, 60_000);

test('a service that opens every handshake and serves one with its query alone is shown it there [F1274]', async () => {
	const isServed = (_: string, query: URLSearchParams) => query.get('authorization') === `Connection ${SECRET}`;
	const { outcome, settings } = await probedOpening({ data: { key: SECRET } }, isServed);
	expect(outcome, outcome.stdout).toMatchObject({ status: 0, stderr: '' });
	expect(settings.service).toEqual({ tokenPointer: '/data/key', channelAuth: 'query' });
}, 60_000);

test('a channel that brings nothing but words that say no is not online: they are shown, and the answer is kept [F1275]', async () => {
	const { outcome, kept } = await probedOpening({ data: { key: KEY } }, () => false);
	expect(outcome.status, outcome.stdout).toBe(69);
	expect(outcome.stdout).toMatch(/The service says: device not authorized/);
	expect(outcome.stdout).toMatch(/token-place .* guessed/);
	expect(outcome.stdout).toContain('had an open channel with it');
	expect(kept.candidates).toHaveLength(1);
}, 60_000);

test('a redirect at the channel and a registration that is not done are told with where they lead, and the answer is kept [F1214]', async () => {
	const token = '{"token":"foreign-token-0123456789"}';
	const moved = await probedByCode({ status: 201, body: token }, '307 Moved\r\nLocation: /elsewhere/?token=secret');
	expect(moved.outcome.stderr).toContain('answered 307 (to /elsewhere/)');
	expect(moved.outcome.stderr).not.toContain('secret');
	const headers = { location: '/api/operations/7' };
	const { outcome, kept } = await probedByCode({ status: 202, headers, body: '{"status":"pending"}' });
	expect(outcome.stderr).toContain('has not finished the registration of this device (Location: /api/operations/7)');
	expect(outcome.stdout).not.toContain('The code is used up.');
	expect(kept).toMatchObject({ status: 202, headers: expect.objectContaining(headers), candidates: [] });
}, 60_000);

test('a registration that is answered 202 with the id of a job is not done: that id is shown at no channel, and the code is sent once [F1276]', async () => {
	const headers = { location: '/api/jobs/7', 'retry-after': '1' };
	const body = '{"state":"pending","job":"3f1c9a52-7d1e-4c7a-9a52-0d1e4c7a9a52"}';
	const { outcome, asked, kept } = await probedByCode({ status: 202, headers, body });
	expect(outcome.stderr).toContain('has not finished the registration of this device (Location: /api/jobs/7)');
	expect(outcome.stderr).toContain('Ask the operator how a device gets its Connection from there');
	expect(asked).toEqual(['POST /api/device/connection']);
	expect(kept).toMatchObject({ status: 202, headers: expect.objectContaining(headers), body, candidates: [] });
	const done = await probedByCode({ status: 202, headers, body: '{"connection":{"value":"cn-0123456789abcdefghij"}}' });
	expect(done.asked).toContainEqual(expect.stringMatching(/^channel/));
}, 60_000);

test.each([
	[
		'{"title":"Not valid","errors":[{"field":"deviceType","message":"must be lobby"}]}',
		'Not valid (deviceType: must be lobby)',
		'was not used',
	],
	[
		'{"title":"Not valid","errors":{"deviceType":["must be lobby"]}}',
		'Not valid (deviceType: must be lobby)',
		'was not used',
	],
	[
		'{"detail":[{"loc":["body","deviceType"],"msg":"must be lobby"}]}',
		'body.deviceType: must be lobby',
		'was not used',
	],
	[
		'{"title":"Not valid","errors":[{"field":"token","message":"is not right"}]}',
		'Not valid (token is not right)',
		'may have been used',
	],
])(
	'a 422 that says %s is told with the words about each field, and with what the code is worth after it [F1215]',
	async (body, words, worth) => {
		const { outcome } = await probedByCode({ status: 422, body });
		expect(outcome.stderr).toContain(words);
		expect(outcome.stderr).toContain(worth);
	},
);

test('an answer in UTF-16 is told as that [F1216]', async () => {
	const body = Buffer.from('\uFEFF{"token":"foreign-token-0123456789"}', 'utf16le');
	expect((await probedByCode({ status: 201, body })).outcome.stderr).toContain('The answer is in UTF-16');
	expect((await probedByCode({ status: 201, body: body.subarray(2) })).outcome.stderr).toContain('in UTF-16');
});

test('the words of an end about the life of the Connection are shown, and make no heartbeat and no first message [F1217]', async () => {
	const { outcome, settings } = await probedForeign((socket) =>
		setTimeout(() => socket.close(1008, 'token expired'), 500),
	);
	expect(outcome.status).toBe(69);
	expect(outcome.stderr).toMatch(/code 1008 after 0\.\d s \("token expired"\)\. By its words .*connectionLifeSeconds/);
	expect(outcome.stdout).toMatch(/connection-life .*ends a channel after \d s: "token expired"/);
	expect(outcome.stdout).not.toContain('Tries {');
	expect(settings).not.toHaveProperty('service');
});
