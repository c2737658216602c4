/** `idv probe`: what it may call proved, and what it writes for other devices than its own. */
import { expect, test } from 'vitest';
import type { WebSocket } from 'ws';
import { probesOfFile } from './probing.ts';

const { probedForeign } = probesOfFile();

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
