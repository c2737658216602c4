/** `idv probe` at services that speak a protocol of others: its first messages, heartbeats and answers; and what the report says where nothing shows that a device is served. */
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { type WebSocket, WebSocketServer } from 'ws';
import { listen } from '../connection/network-peers.ts';
import { operatorOfFile } from './operator.ts';

const operator = operatorOfFile();
const TOKEN = 'family-token-0123456789';

/** A probe of a service with the token and the path as assumed. @param onChannel is given each channel. @param subprotocols of the service; without one of them it ends a channel with 4406. */
async function probed(
	onChannel: (socket: WebSocket) => void,
	{ seconds = 1, subprotocols = [] }: { seconds?: number; subprotocols?: readonly string[] } = {},
) {
	const server = createServer((_, response) => void response.writeHead(201).end(`{"token":"${TOKEN}"}`));
	const channels = new WebSocketServer({
		noServer: true,
		handleProtocols: (offered) => subprotocols.find((one) => offered.has(one)) ?? false,
	});
	server.on('upgrade', (request, raw, head) => {
		if (request.url !== '/ws/device') return raw.end('HTTP/1.1 404 Not Found\r\nConnection: close\r\n\r\n');
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
