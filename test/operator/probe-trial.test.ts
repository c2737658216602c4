/** `idv probe`: what a trial from outside has found: what a killed one leaves, and what it may not call proved. */
import { readFile, stat } from 'node:fs/promises';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { type WebSocket, WebSocketServer } from 'ws';
import { helpedFinding } from '../../src/operator/probe-compare.runner.ts';
import { tokenPlaces } from '../../src/operator/probe-readings.runner.ts';
import type { Life } from '../../src/operator/probe-wire.runner.ts';
import { readAnswerTexts } from '../../src/protocol/registration-answer.ts';
import { listen } from '../connection/network-peers.ts';
import { probesOfFile } from './probing.ts';

const { operator } = probesOfFile();
const OWN = 'own-0123456789abcdefghij';
const OTHER = 'other-0123456789abcdefghij';

/** A probe with a code, of a service with this answer to the registration. @param accepts which texts open a channel. @param onHandshake with the place of the device's file. */
async function probedWithCode(
	answer: (deviceId: string) => object,
	accepts: (shown: string) => boolean,
	onHandshake: (device: string) => Promise<unknown> = async () => {},
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

test.each<[string, (deviceId: string) => object, string]>([
	[
		'a list of devices',
		(id) => ({
			connections: [
				{ deviceId: 'other', token: OTHER },
				{ deviceId: id, token: OWN },
			],
		}),
		'/connections/1/token',
	],
	['a site', (id) => ({ site: { operatorConnection: OTHER }, device: { id, connection: OWN } }), '/device/connection'],
	['a usual place', (id) => ({ token: OTHER, device: { id, connection: OWN } }), '/device/connection'],
])(
	'of two Connections in the answer (the other one in %s) the one beside the id of the device is taken; it is guessed as long as the other opens a channel, too [F1441]',
	async (_, answer, expected) => {
		for (const [both, certainty] of [
			[true, 'guessed'],
			[false, 'proved'],
		] as const) {
			const isOne = (shown: string) => shown === OWN || (both && shown === OTHER);
			const { outcome, settings, provision, kept } = await probedWithCode(answer, isOne);
			expect(outcome, outcome.stdout).toMatchObject({ status: 0, stderr: '' });
			expect(settings.service).toEqual({ tokenPointer: expected });
			expect(provision.connection).toBe(OWN);
			expect(outcome.stdout).toMatch(new RegExp(`token-place .* ${expected} +${certainty}`));
			expect(outcome.stdout).toMatch(/channel-handshake .* proved/);
			expect(kept?.candidates.map(({ connection }: { connection: string }) => connection)).toEqual(
				both ? [OWN, OTHER] : undefined,
			);
		}
	},
	60_000,
);

test.each<[string, object]>([
	['what the service calls the device', { token: OWN, device: { id: 'kiosk-1', externalId: OTHER } }],
	['what refreshes it', { token: OWN, device: { id: 'kiosk-1', refreshToken: OTHER } }],
	['another one further down', { id: 'kiosk-1', token: OWN, device: { id: 'kiosk-1', connection: OTHER } }],
])('a usual place stays before %s beside the id of the device [F1441]', (_, answer) => {
	const places = tokenPlaces(readAnswerTexts({ body: JSON.stringify(answer) }), ['kiosk-1']);
	expect(places.map(({ token }) => token)).toEqual([OWN, OTHER]);
});

test('an acknowledgement at a service that reads nothing is not in the file: kinds that came before without one answer none; what was dropped as sent again is told [F1446]', async () => {
	let session = 0;
	const talk = (socket: WebSocket) => {
		const said: object[] = [];
		const timer = setInterval(() => {
			if (said.length === 0) {
				session += 1;
				const kinds = ['session.started', 'operator.called', 'operator.called', 'operator.called', 'session.ended'];
				said.push(...kinds.map((type) => ({ type, id: `s-${session}` })));
			}
			socket.send(JSON.stringify(said.shift()));
		}, 70);
		socket.once('close', () => clearInterval(timer));
	};
	const { outcome, settings } = await probedWithCode(
		() => ({ token: OWN }),
		(shown) => shown === OWN,
		undefined,
		talk,
	);
	expect(outcome, outcome.stdout).toMatchObject({ status: 0, stderr: '' });
	expect(settings).not.toHaveProperty('service');
	expect(outcome.stdout).not.toMatch(/acknowledgement .* (proved|guessed)/);
	expect(outcome.stdout).toMatch(/Notifications .*operator\.called/);
	expect(outcome.stdout).toMatch(/Sent again by the service +\d+; [1-9]\d* dropped by the device/);
}, 120_000);

test('an acknowledgement with which the service sends again as often as without one is not proved [F1447]', () => {
	const about = { refusal: null, isOpen: true, headers: {}, subprotocol: null, failure: null, ended: null };
	const lifeOf = (id: (second: number) => number, said: Life['said'] = []): Life => ({
		...{ ...about, pings: 1, pongs: 1, said },
		heard: Array.from({ length: 30 }, (_, second) => ({
			atMs: second * 1000,
			frame: { type: 'text', text: JSON.stringify({ type: 'check', id: id(second) }) },
		})),
	});
	const ackBody = '{"op":"ack","id":"{id}"}';
	const guess = { point: 'acknowledgement', settings: { ackBody } };
	const compared = { form: {}, settleMs: 3000, answerMs: 1000, settings: {}, guess, ms: 30_000 };
	const than = lifeOf((second) => Math.floor(second / 3));
	const certainty = (life: Life) => helpedFinding(life, than, guess.settings, compared, true).certainty;
	expect(certainty(lifeOf((second) => second))).toBe('proved');
	expect(certainty(lifeOf((second) => Math.floor(second / 3)))).toBe('guessed');
});

const LONG = 'x'.repeat(500_000);

test('a number of messages that has reached the bound of what is kept is told as the least that came [F1448]', async () => {
	let nr = 0;
	const { outcome } = await probedWithCode(
		() => ({ token: OWN }),
		(shown) => shown === OWN,
		undefined,
		(socket) => {
			// 4 MiB of a channel are kept.
			for (let left = 20; left > 0; left -= 1) socket.send(`{"type":"visit.open","id":"n-${++nr}","text":"${LONG}"}`);
		},
	);
	expect(outcome.stdout).toMatch(/Notifications +at least visit\.open \((\d+)\); \1 of at least \1 with an id/);
	expect(outcome.stdout).toMatch(/Sent again by the service +at least 0/);
});

test('kinds with the id of what was acknowledged before are notifications in the report where they came without an acknowledgement, too [F1446]', async () => {
	let session = 0;
	const { outcome, settings } = await probedWithCode(
		() => ({ token: OWN }),
		(shown) => shown === OWN,
		undefined,
		(socket) => {
			const open: object[] = [];
			let at = 0;
			const timer = setInterval(() => {
				at += 1;
				session += at % 2;
				open.push({ type: at % 2 ? 'session.started' : 'session.ended', id: `s-${session}` });
				for (const one of open) socket.send(JSON.stringify(one));
			}, 100);
			socket.once('close', () => clearInterval(timer));
			socket.on('message', (frame) => {
				const { type, id } = JSON.parse(String(frame));
				if (type === 'ack') open.splice(0, open.length, ...open.filter((one) => Object(one).id !== id));
			});
		},
	);
	expect(settings.service).toMatchObject({ ackBody: { type: 'ack', id: '{id}' } });
	expect(outcome.stdout).toMatch(/acknowledgement .* proved/);
	expect(outcome.stdout).toMatch(/Notifications +session\.started \(\d+\), session\.ended \(\d+\);/);
}, 120_000);
