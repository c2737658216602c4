/** `idv probe`: whether what it advises can work. */
import { createServer, type IncomingMessage } from 'node:http';
import { join } from 'node:path';
import type { Duplex } from 'node:stream';
import { expect, test } from 'vitest';
import { type WebSocket, WebSocketServer } from 'ws';
import { readForm } from '../../src/operator/probe-form.runner.ts';
import { remedyNamed } from '../../src/operator/probe-words.ts';
import { listen } from '../connection/network-peers.ts';
import { probesOfFile, QUICK } from './probing.ts';

const { operator, probedForeign } = probesOfFile();

/** @param upgrade answers a handshake, or leaves it to what is returned. */
async function probedUpgrading(
	upgrade: (request: IncomingMessage, raw: Duplex) => boolean,
	onChannel: (socket: WebSocket, query: URLSearchParams) => void,
	isDead = () => false,
	flags: readonly string[] = [],
) {
	const server = createServer((request, response) => {
		if (isDead()) return void request.socket.destroy();
		const isThere = request.url === '/api/device/connection';
		response.writeHead(isThere ? 201 : 404).end(isThere ? '{"token":"foreign-token-0123456789"}' : '');
	});
	const channels = new WebSocketServer({ noServer: true });
	server.on('upgrade', (request, raw, head) => {
		if (!upgrade(request, raw)) return;
		const query = new URL(request.url ?? '', 'http://x').searchParams;
		channels.handleUpgrade(request, raw, head, (socket) => onChannel(socket, query));
	});
	const variables = { ...operator.env('ApiKey'), IDV_URL: `http://127.0.0.1:${await listen(server)}` };
	const [out, device] = [join(operator.directory, 'advice.json'), join(operator.directory, 'advice-device.json')];
	const outcome = await operator.idv([...QUICK, '--force', '--out', out, '--device', device, ...flags], variables);
	channels.close();
	return outcome;
}

test('of a service that resets each connection once a channel has opened it is said that one has [F1631]', async () => {
	let opened = 0;
	const outcome = await probedUpgrading(
		(_, raw) => {
			opened += 1;
			if (opened > 1) raw.destroy();
			return opened === 1;
		},
		() => {},
		() => opened > 0,
	);
	expect(outcome.status).toBe(69);
	expect(outcome.stderr).toContain(
		'A channel has opened, and since then the service takes connections, and each is reset',
	);
});

test('of a path that was named, and whose channel opened and was dropped, no refusal is told [F1654]', async () => {
	const outcome = await probedUpgrading(
		({ headers, url }, raw) => {
			const isIn = headers.authorization === 'Connection foreign-token-0123456789' && url === '/here';
			if (!isIn) raw.end('HTTP/1.1 401 Unauthorized\r\nConnection: close\r\n\r\n');
			return isIn;
		},
		(socket) => socket.terminate(),
		undefined,
		['--channel-path', '/here'],
	);
	expect(outcome.status).toBe(69);
	expect(outcome.stdout + outcome.stderr).not.toContain('which was named, answered');
});

test('a code that is to be tried again is so with --force where the run has written a file [F1632]', async () => {
	const server = createServer((request) => void request.socket.destroy());
	const code = `http://127.0.0.1:${await listen(server)}/mobile?authorization=Token%20tr-0123456789abcdefghijklmnopqr&workflowId=checkin`;
	const out = join(operator.directory, 'again.json');
	const run = (...more: readonly string[]) =>
		operator.idv(['probe', '--code-file', '-', '--yes', '--seconds', '1', ...more], {}, code);
	const advised = await run('--out', out);
	expect(advised.stderr).toContain(`Add --force then: this run has written ${out}.`);
	expect((await run('--out', out)).stderr).toContain('is there already');
	for (const more of [['--out', out, '--force'], []])
		expect((await run(...more)).stderr).toMatch(/Try the same code again; [^.]*\. \[/);
});

test('JSON lines in a binary frame are read, and bytes without JSON are told as bytes [F1633]', async () => {
	const bytes = new TextEncoder().encode('{"type":"visit.open","id":"n-1"}\n{"type":"visit.shut","id":"n-2"}\n');
	expect(readForm([{ atMs: 1, frame: { type: 'binary', bytes } }])).toEqual({ jsonInBinary: true });
	const { outcome } = await probedForeign((socket) => {
		const timer = setInterval(() => socket.send(Buffer.from([0x82, 0xa4, 1, Math.random() * 256])), 100);
		socket.once('close', () => clearInterval(timer));
	});
	expect(outcome.stdout).toContain('bytes in which no JSON was found');
	expect(outcome.stdout).not.toContain('service.kindPointer');
});

test.each([
	['cookie "connection" is missing', 'in a cookie'],
	['offer the subprotocols "connection" and the Connection token', 'as a subprotocol'],
	['send the token as the second subprotocol', 'as a subprotocol'],
	['the token belongs in the path', 'in the path'],
	['offer the subprotocol acme.v2', null],
	['neither a cookie nor an Authorization header', null],
])('the words %j are told as a place where no setting shows a Connection, or not: %s [F1634]', (words, place) => {
	const remedy = remedyNamed([words]) ?? '';
	if (place === null) expect(remedy).not.toContain('no setting');
	else
		expect(remedy).toContain(`wants the Connection ${place}, and no setting of this version shows a Connection there`);
});

test.each([
	['conn', true],
	['ticket', false],
])(
	'a query parameter that an error on the channel names (%s) is tried as that of the Connection, and named where it is not [F1635]',
	async (name, isTaken) => {
		const outcome = await probedUpgrading(
			() => true,
			(socket, query) => {
				const [own] = [...query];
				if (isTaken && own?.[0] === name && own[1] === 'foreign-token-0123456789') {
					let id = 0;
					const timer = setInterval(() => socket.send(JSON.stringify({ type: 'visit.open', id: ++id })), 100);
					return void socket.once('close', () => clearInterval(timer));
				}
				socket.send(JSON.stringify({ error: { code: 401, text: `query parameter '${name}' is missing or wrong` } }));
				socket.close(1000);
			},
		);
		expect(outcome.status, outcome.stdout).toBe(isTaken ? 0 : 69);
		if (isTaken) expect(outcome.stdout).toMatch(/"channelAuth":"queryToken","queryName":"conn"/);
		else expect(outcome.stderr).toContain(`The service names the query parameter ${name}`);
	},
	120_000,
);
