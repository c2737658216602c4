/** `idv probe`: what a trial from outside has found: what a killed one leaves, and what it may not call proved. */
import { readFile, stat } from 'node:fs/promises';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { type WebSocket, WebSocketServer } from 'ws';
import { listen } from '../connection/network-peers.ts';
import { probesOfFile } from './probing.ts';

const { operator } = probesOfFile();
const OWN = 'own-0123456789abcdefghij';
const OTHER = 'other-0123456789abcdefghij';

/** A probe with a code, of a service with this answer to the registration. @param accepts which texts open a channel. @param onHandshake with the place of the device's file. */
async function probedWithCode(
	answer: (deviceId: string) => object,
	accepts: (shown: string) => boolean,
	onHandshake = async (_device: string): Promise<unknown> => {},
	onChannel = (_socket: WebSocket) => {},
) {
	const [out, device] = [join(operator.directory, 'trial.json'), join(operator.directory, 'trial-device.json')];
	const server = createServer(async (request, response) => {
		if (request.url !== '/api/device/connection') return void response.writeHead(404).end();
		const { deviceId } = JSON.parse((await request.setEncoding('utf8').toArray()).join(''));
		response.writeHead(201).end(JSON.stringify(answer(deviceId)));
	});
	const channels = new WebSocketServer({ noServer: true });
	server.on('upgrade', async (request, raw, head) => {
		await onHandshake(device);
		const isAccepted = accepts(String(request.headers.authorization).replace('Connection ', ''));
		if (isAccepted) channels.handleUpgrade(request, raw, head, onChannel);
		else raw.end('HTTP/1.1 401 No\r\nConnection: close\r\n\r\n');
	});
	const code = `http://127.0.0.1:${await listen(server)}/mobile?authorization=Token%20tr-0123456789abcdefghijklmnopqr&workflowId=checkin`;
	const args = ['probe', '--code-file', '-', '--yes', '--seconds', '1', '--force', '--out', out, '--device', device];
	const outcome = await operator.idv(args, {}, code);
	const read = async (file: string) => JSON.parse(await readFile(file, 'utf8').catch(() => 'null'));
	return { outcome, settings: await read(out), provision: await read(device), kept: await read(`${device}.answer`) };
}

test('a probe that is killed after the registration leaves the Connection and the answer, for its user alone; one that ends leaves no answer [F1440]', async () => {
	const left: unknown[] = [];
	const { provision, kept } = await probedWithCode(
		() => ({ data: { value: OWN } }),
		(shown) => shown === OWN,
		async (device) => {
			for (const file of [device, `${device}.answer`]) {
				const { mode } = await stat(file).catch(() => ({ mode: 0 }));
				left.push([(mode & 0o777).toString(8), (await readFile(file, 'utf8').catch(() => '')).includes(OWN)]);
			}
		},
	);
	expect(left.slice(0, 2)).toEqual([
		['600', true],
		['600', true],
	]);
	expect(provision.connection).toBe(OWN);
	expect(kept).toBeNull();
}, 60_000);
