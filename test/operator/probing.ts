import { readFile } from 'node:fs/promises';
import { createServer, type IncomingMessage } from 'node:http';
import { join } from 'node:path';
import { type WebSocket, WebSocketServer } from 'ws';
import type { DialectOptions } from '../../src/service/embedded-service.runner.ts';
import { listen } from '../connection/network-peers.ts';
import { givenService } from '../service/fixture.ts';
import { operatorOfFile } from './operator.ts';

export const QUICK = ['probe', '--workflow', 'checkin', '--yes', '--seconds', '1'];

/** To be called once, at the top of a file. */
export function probesOfFile() {
	const operator = operatorOfFile();
	const { env, idv } = operator;
	/** A probe of a service of this dialect. */
	async function probed(dialect: DialectOptions, more: readonly string[] = [], options: object = {}) {
		const service = await givenService({ dialect, ...options });
		const out = join(operator.directory, 'service.json');
		const outcome = await idv([...QUICK, '--out', out, ...more], env('ApiKey', service));
		const written = await readFile(out, 'utf8').catch(() => 'null');
		return { service, outcome, out, settings: JSON.parse(written) };
	}

	/** A service that others wrote, with the token and the path as assumed. @param accepts Default: the header alone or with more. */
	async function probedForeign(
		onChannel: (socket: WebSocket, at: { open: number }) => void,
		accepts = (headers: IncomingMessage['headers']) => headers.authorization === 'Connection foreign-token-0123456789',
		answers = (_handshake: number, _path: string): string | undefined => undefined,
	) {
		const open = { now: 0, most: 0, handshakes: 0 };
		const server = createServer((request, response) => {
			const isThere = request.url === '/api/device/connection';
			response.statusCode = isThere ? 201 : 404;
			response.end(isThere ? '{"token":"foreign-token-0123456789"}' : '');
		});
		const channels = new WebSocketServer({ noServer: true });
		server.on('upgrade', (request, raw, head) => {
			open.handshakes += 1;
			const answer = answers(open.handshakes, String(request.url).replace(/\?.*/, ''));
			if (answer === '') raw.destroy();
			else if (answer !== undefined) {
				raw.end(`HTTP/1.1 ${answer}${answer.includes('\r\n\r\n') ? '' : '\r\n\r\n'}`);
			}
			if (answer !== undefined) return;
			if (!request.url?.startsWith('/ws/device') || !accepts(request.headers)) {
				raw.end('HTTP/1.1 401 Unauthorized\r\nConnection: close\r\n\r\n');
				return;
			}
			channels.handleUpgrade(request, raw, head, (socket) => {
				open.now += 1;
				open.most = Math.max(open.most, open.now);
				socket.once('close', () => {
					open.now -= 1;
				});
				onChannel(socket, { open: open.now });
			});
		});
		const port = await listen(server);
		const out = join(operator.directory, 'foreign.json');
		const variables = { ...env('ApiKey'), IDV_URL: `http://127.0.0.1:${port}` };
		const outcome = await idv([...QUICK, '--force', '--out', out], variables);
		return { outcome, open, settings: JSON.parse(await readFile(out, 'utf8')) };
	}

	return { operator, probed, probedForeign };
}
