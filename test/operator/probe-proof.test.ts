/** `idv probe`: what it may call proved, and what it writes for other devices than its own. */
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { type WebSocket, WebSocketServer } from 'ws';
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
