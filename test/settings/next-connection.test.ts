/** Services whose Connections open one channel each, and wrong settings for where the next one stands. */
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import { WebSocketServer } from 'ws';
import { givenAgent, givenHome, type RunningAgent } from '../harness/harness.ts';

interface SingleUse {
	readonly baseUrl: string;
	/** Ends every channel without a word. */
	cut(): void;
	/** From now on the header has another name. */
	move(): void;
	/** The next upgrade with a subprotocol cuts the channels that are open, and is answered once another one was refused. */
	raceOnce(): void;
	/** Whether every upgrade is refused, with no Connection spent by it. */
	refuse(isOn: boolean): void;
	/** Ends every channel with this code as soon as it is open; `null` ends that. */
	endWith(code: number | null): void;
}

type Answer = (isIn: boolean, code?: number, body?: string, headers?: Record<string, string>) => void;

const FIRST = 'first-connection-0123456789';

/** @param where the next Connection stands: in a header of the upgrade, or in the first message. */
async function givenSingleUse(where: 'header' | 'message'): Promise<SingleUse> {
	const valid = new Set([FIRST]);
	let handed = 0;
	let header = 'X-Next';
	let isRace = false;
	let refusesAll = false;
	let endsWith: number | null = null;
	let answerLast: (() => void) | null = null;
	const next = () => {
		handed += 1;
		const token = `next-connection-000${handed}`;
		valid.add(token);
		return token;
	};
	const server = createServer((_, response) => void response.writeHead(404).end());
	const sockets = new WebSocketServer({
		server,
		verifyClient({ req }: { req: IncomingMessage }, answer: Answer) {
			const isIn = !refusesAll && valid.delete(String(req.headers.authorization).replace('Connection ', ''));
			const give = () => answer(isIn, 401, '{"title":"refused"}', { 'Content-Type': 'application/json' });
			if (isRace && isIn && req.headers['sec-websocket-protocol']) {
				isRace = false;
				answerLast = give;
				cut();
				return;
			}
			give();
			if (isIn) return;
			// What was refused has been told before the other answer arrives.
			const last = answerLast;
			answerLast = null;
			if (last) req.socket.once('close', last);
		},
		handleProtocols: () => false,
	});
	sockets.on('headers', (headers) => {
		headers.push('X-Id: an-id-that-opens-no-channel');
		if (where === 'header') headers.push(`${header}: ${next()}`);
	});
	sockets.on('connection', (socket) => {
		if (endsWith !== null) setImmediate(() => socket.close(endsWith ?? 1000));
		if (where === 'message') socket.send(JSON.stringify({ id: 'an-id-that-opens-no-channel', next: next() }));
	});
	const cut = () => {
		for (const socket of sockets.clients) socket.terminate();
	};
	await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
	onTestFinished(() => {
		cut();
		sockets.close();
		server.closeAllConnections();
		server.close();
	});
	return {
		baseUrl: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
		cut,
		move() {
			header = 'X-New';
		},
		raceOnce() {
			isRace = true;
		},
		endWith(code) {
			endsWith = code;
		},
		refuse(isOn) {
			refusesAll = isOn;
		},
	};
}

/** A device that has nothing but its Connection. */
async function givenDevice({ baseUrl }: SingleUse, nextConnection: string) {
	const home = await givenHome();
	const connectionFile = await home.secretFile('connection', FIRST);
	const settings = { baseUrl, workflowId: 'check-in', credential: { connectionFile } };
	const push = (service: object) => home.writeSettings({ ...settings, service });
	await push({ nextConnection });
	const device = await givenAgent({ home });
	await device.untilState('online');
	return { home, device, push };
}

async function passing<Value>(device: RunningAgent, until: Promise<Value>): Promise<Value> {
	const pass = setInterval(() => device.clock.advance(1000), 20);
	return until.finally(() => clearInterval(pass));
}

async function cutAndReturn(service: SingleUse, device: RunningAgent) {
	const lost = device.untilState('offline');
	service.cut();
	await lost;
	await passing(device, device.untilState('online'));
}

async function badMinute(service: SingleUse, device: RunningAgent, begin: () => void) {
	const lost = device.untilState('offline');
	begin();
	service.cut();
	await lost;
	for (let seconds = 0; seconds < 60; seconds += 1) {
		device.clock.advance(1000);
		await device.client.request('agent', 'GET', '/v1/status');
	}
}

const told = ({ agent }: RunningAgent) =>
	agent.status().warnings.filter(({ message }) => message.startsWith('service.nextConnection'));

test.each([
	['header', 'header:X-Next', 'header:X-Id'],
	['header', 'header:X-Next', 'header:X-None'],
	['header', 'header:X-Next', null],
	['header', 'header:X-Next', '/id'],
	['message', '/next', '/none'],
	['message', '/next', null],
] as const)(
	'of a service that names it in a %s, the next Connection goes on to be read at %s when %s is set instead, and that is told [F1475]',
	async (where, right, wrong) => {
		const service = await givenSingleUse(where);
		const { home, device, push } = await givenDevice(service, right);
		await push({ nextConnection: wrong });
		await device.daemon.reload();
		const inForce = () => device.agent.ways.runtime().resolved.settings.service.nextConnection;
		await passing(
			device,
			device.untilStatus(() => inForce() === wrong && told(device).length > 0),
		);
		expect(told(device)[0]).toMatchObject({
			code: 'settings-invalid',
			message: expect.stringContaining(`still names the next Connection in ${right}`),
			remedy: `Set service.nextConnection to ${right} again.`,
		});
		for (let cut = 0; cut < 3; cut += 1) await cutAndReturn(service, device);
		await device.stop();
		const again = await givenAgent({ home });
		await passing(again, again.untilState('online'));
		await cutAndReturn(service, again);
		expect(told(again)).toHaveLength(1);
		await push({ nextConnection: right });
		await again.daemon.reload();
		await passing(
			again,
			again.untilStatus(() => told(again).length === 0),
		);
		await cutAndReturn(service, again);
	},
);

test('a service that has moved the next Connection, and settings that follow while the agent is stopped, leave no device dark [F1502]', async () => {
	const service = await givenSingleUse('header');
	const { home, device, push } = await givenDevice(service, 'header:X-Next');
	await cutAndReturn(service, device);
	await device.stop();
	service.move();
	await push({ nextConnection: 'header:X-New' });
	const again = await givenAgent({ home });
	await passing(again, again.untilState('online'));
	for (let cut = 0; cut < 3; cut += 1) await cutAndReturn(service, again);
});

test('a right setting is taken though the Connection that it was to be tried by was spent meanwhile [F1503]', async () => {
	const service = await givenSingleUse('header');
	const { home, device, push } = await givenDevice(service, 'header:X-Next');
	await device.stop();
	await push({ nextConnection: 'header:X-Next', headers: ['X-Tenant: north'] });
	const again = await givenAgent({ home });
	await passing(
		again,
		again.untilStatus(
			({ state, warnings }) => state === 'online' && warnings.length === 0 && again.agent.ways.tried() === null,
		),
	);
	expect(again.agent.ways.runtime().resolved.settings.service.headers).toEqual(['X-Tenant: north']);
	for (let cut = 0; cut < 2; cut += 1) await cutAndReturn(service, again);
});

test('an upgrade without the subprotocol that is asked for has spent a Connection, and its answer names the next one [F1476]', async () => {
	const service = await givenSingleUse('header');
	const { device, push } = await givenDevice(service, 'header:X-Next');
	await push({ nextConnection: 'header:X-Next', subprotocol: 'v9' });
	await device.daemon.reload();
	await passing(
		device,
		device.untilStatus(({ warnings }) => warnings.some(({ message }) => message.startsWith('service.subprotocol'))),
	);
	for (let cut = 0; cut < 2; cut += 1) await cutAndReturn(service, device);
});

test('the answer that names the next Connection is awaited, though the other link was refused with the same one meanwhile [F1527]', async () => {
	const service = await givenSingleUse('header');
	const { device, push } = await givenDevice(service, 'header:X-Next');
	service.raceOnce();
	await push({ nextConnection: 'header:X-Next', subprotocol: 'v9' });
	await device.daemon.reload();
	const offline = device.untilState('offline');
	await passing(device, offline);
	await passing(device, device.untilState('online'));
	await cutAndReturn(service, device);
});

test('a bad minute of a service that names the next Connection is waited for, before a new code is asked for [F1573]', async () => {
	const service = await givenSingleUse('header');
	const { device } = await givenDevice(service, 'header:X-Next');
	await cutAndReturn(service, device);
	await badMinute(service, device, () => service.refuse(true));
	service.refuse(false);
	await passing(device, device.untilState('online'));
	const asked = device.statuses.filter(({ problem }) => problem?.code === 'credential-refused');
	expect(asked.length).toBeGreaterThan(0);
	expect(asked.filter(({ problem }) => !problem?.remedy.startsWith('Wait a few minutes'))).toEqual([]);
});

test('channels that open, name the next Connection and are ended with 1008 for a bad minute say nothing against the setting [F1577]', async () => {
	const service = await givenSingleUse('header');
	const { device } = await givenDevice(service, 'header:X-Next');
	await badMinute(service, device, () => service.endWith(1008));
	service.endWith(null);
	await passing(device, device.untilState('online'));
	const accused = device.statuses.filter(({ warnings }) =>
		warnings.some(({ message }) => message.startsWith('service.nextConnection')),
	);
	expect(accused).toEqual([]);
});
