/** Applications with a line of their own: what one does is not seen by another, and costs another nothing. */
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { request as httpRequest } from 'node:http';
import { connect, type Socket } from 'node:net';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { readBrowserApplications } from '../../src/local-api/server/browser-applications.edge.ts';
import { givenHome, givenPairedAgent, type RunningAgent } from '../harness/harness.ts';
import { givenService } from '../service/fixture.ts';
import { type Answered, addressOf, ask } from './local-asking.ts';

const LOBBY = { name: 'lobby', origin: 'https://lobby.example', token: 'lobby-token-'.padEnd(40, 'x') };
const DESK = { name: 'desk', origin: 'https://desk.example', token: 'desk-token-'.padEnd(40, 'y') };
const GROUP = String(process.getgid?.() ?? 0);
const lineOf = ({ name, origin, token }: typeof LOBBY, options = '') => `${name} ${origin} ${token} ${options}\n`;
const headersOf = ({ origin, token }: typeof LOBBY) => ({ Origin: origin, Authorization: `Bearer ${token}` });

async function givenDevice(lines: string) {
	const service = await givenService();
	const home = await givenHome();
	const file = await home.secretFile('applications', lines);
	const device = await givenPairedAgent(service, {
		home,
		settings: { local: { http: { port: 0, applicationsFile: file } } },
	});
	const as = (who: typeof LOBBY, path: string, method = 'GET', body?: object): Promise<Answered> =>
		ask(device, path, { socket: 'browser', method, headers: headersOf(who), ...(body && { body }) });
	return { service, device, file, as };
}

/** An application with a socket of its own. */
function askOwn({ home }: RunningAgent, name: string, path: string): Promise<{ status: number; text: string }> {
	return new Promise((resolve, reject) => {
		const socketPath = join(home.paths.runDir, 'apps', `${name}.sock`);
		httpRequest({ socketPath, path, agent: false }, (response) => {
			let text = '';
			response.on('data', (chunk) => {
				text += chunk;
			});
			response.on('end', () => resolve({ status: response.statusCode ?? 0, text }));
		})
			.on('error', reject)
			.end();
	});
}

async function withEvents({
	service,
	device,
}: {
	service: Awaited<ReturnType<typeof givenService>>;
	device: RunningAgent;
}) {
	const arrived = device.untilEvent(({ content }) => content.includes('second'));
	for (const order of ['first', 'second']) service.notify({ type: 'session.completed', order, person: 'Ada Planted' });
	await arrived;
	await device.agent.events.settled();
}

/** An event stream of a page that has begun, and whether it is still open. */
async function openPage(device: RunningAgent, who: typeof LOBBY, path: string) {
	const page = { isOpen: true };
	await new Promise<void>((resolve, reject) => {
		const headers = { ...headersOf(who), Accept: 'text/event-stream' };
		httpRequest(new URL(path, `${device.daemon.addresses.browser}`), { headers, agent: false }, (response) => {
			response.on('error', () => {});
			response.on('close', () => {
				page.isOpen = false;
			});
			response.resume().once('data', () => resolve());
		})
			.on('error', reject)
			.end();
	});
	return page;
}

test.each([
	['line is gone', ''],
	['token is another one', lineOf({ ...LOBBY, token: 'another-'.padEnd(40, 'z') })],
	['contents are left out', lineOf(LOBBY, 'contents=no')],
])('the streams of a page whose %s end at the reload, and those of others stay [F1598]', async (_, lines) => {
	const { device, file, as } = await givenDevice(lineOf(LOBBY) + lineOf(DESK));
	for (const who of [LOBBY, DESK]) await as(who, '/v1/leases', 'POST', { name: 'work' });
	const pages = await Promise.all(
		[LOBBY, DESK].flatMap((who) =>
			['/v1/events/stream', '/v1/status/stream'].map((path) => openPage(device, who, path)),
		),
	);
	await device.daemon.reload();
	expect(pages.map(({ isOpen }) => isOpen)).toEqual([true, true, true, true]);
	await writeFile(file, lines + lineOf(DESK));
	await device.daemon.reload();
	await expect.poll(() => pages.map(({ isOpen }) => isOpen)).toEqual([false, false, true, true]);
	// Nor does a lease outlive its line, which no one could release.
	const names = device.agent.leases.list().leases.map(({ name }) => name);
	expect(names).toEqual(lines === '' ? ['desk:work'] : ['lobby:work', 'desk:work']);
});

describe('names', () => {
	test('a consumer and a lease of one application are not those of another, nor of a caller on agent.sock', async () => {
		const given = await givenDevice(lineOf(LOBBY) + lineOf(DESK));
		const { device, as } = given;
		await withEvents(given);
		const all = (await as(LOBBY, '/v1/events?consumer=main')).json.events;
		expect(all.length).toBeGreaterThanOrEqual(2);
		// Known to all three before one of them acknowledges: what all have acknowledged is not kept.
		expect((await as(DESK, '/v1/events?consumer=main')).json.events).toEqual(all);
		expect((await ask(device, '/v1/events?consumer=main')).json.events).toEqual(all);
		const ack = { consumer: 'main', id: all.at(-1).id };
		expect((await as(LOBBY, '/v1/events/ack', 'POST', ack)).json).toMatchObject({ consumer: 'main' });
		expect((await as(LOBBY, '/v1/events?consumer=main')).json.events).toEqual([]);
		expect((await as(DESK, '/v1/events?consumer=main')).json.events).toEqual(all);
		expect((await ask(device, '/v1/events?consumer=main')).json.events).toEqual(all);
		expect((await ask(device, '/v1/events?consumer=lobby:main')).status).toBe(422);

		await as(LOBBY, '/v1/leases', 'POST', { name: 'visit', seconds: 60 });
		expect((await as(DESK, '/v1/leases')).json.leases).toEqual([]);
		expect((await as(DESK, '/v1/leases/release', 'POST', { name: 'visit' })).json.leases).toEqual([]);
		expect((await as(LOBBY, '/v1/leases')).json.leases).toMatchObject([{ name: 'visit' }]);
		expect((await ask(device, '/v1/leases')).json.leases).toMatchObject([{ name: 'lobby:visit' }]);
		expect((await as(DESK, '/v1/events/forget', 'POST', { consumer: 'other' })).json).toMatchObject({ known: false });
		await as(LOBBY, '/v1/leases/release', 'POST', { name: 'visit' });
	});

	test('one application cannot take all of them', async () => {
		const { as } = await givenDevice(lineOf(LOBBY) + lineOf(DESK));
		const taken = [];
		for (let at = 0; at < 140; at += 1) taken.push((await as(LOBBY, `/v1/events?consumer=c${at}`)).status);
		expect(taken.filter((status) => status === 200).length).toBeLessThan(16);
		expect((await as(DESK, '/v1/events?consumer=main')).status).toBe(200);
		for (let at = 0; at < 40; at += 1) await as(LOBBY, '/v1/leases', 'POST', { name: `l${at}`, seconds: 60 });
		expect((await as(DESK, '/v1/leases', 'POST', { name: 'visit', seconds: 60 })).status).toBe(200);
	});
});

describe('a line of the applications file', () => {
	test('leaves contents out, and narrows the paths of the service', async () => {
		const given = await givenDevice(lineOf(LOBBY, 'contents=no allow=/api/v1/sessions,/api/own') + lineOf(DESK));
		const { as } = given;
		await withEvents(given);
		expect((await as(LOBBY, '/v1/events')).text).not.toContain('Ada Planted');
		expect((await as(LOBBY, '/v1/events')).json.events.at(-1)).toMatchObject({ kind: 'session.completed', data: null });
		expect((await as(DESK, '/v1/events')).text).toContain('Ada Planted');
		// The stream of the same events leaves them out as well.
		const { hostname, port } = addressOf(given.device, 'browser');
		const streamed = await fetch(`http://${hostname}:${port}/v1/events/stream`, { headers: headersOf(LOBBY) });
		let seen = '';
		for await (const chunk of streamed.body ?? []) {
			seen += Buffer.from(chunk).toString();
			if (seen.split('"kind":"session.completed"').length > 2) break;
		}
		expect(seen).toContain('"data":null');
		expect(seen).not.toContain('Ada Planted');
		const before = given.service.requests.length;
		expect((await as(LOBBY, '/v1/service/api/other')).json).toMatchObject({ code: 'access-denied' });
		expect(given.service.requests.length).toBe(before);
		expect((await as(LOBBY, '/v1/service/api/own/thing')).status).toBe(404);
		expect((await as(DESK, '/v1/service/api/other')).status).toBe(404);
	});

	test('opens a socket of its own, where the caller is that application, until the line is gone', async () => {
		const { device, file } = await givenDevice(`${lineOf(DESK)}scan - - socket=${GROUP} contents=no\n`);
		const path = join(device.home.paths.runDir, 'apps', 'scan.sock');
		expect(await askOwn(device, 'scan', '/v1/events?consumer=main')).toMatchObject({ status: 200 });
		expect((await askOwn(device, 'scan', '/v1/status')).status).toBe(200);
		expect(device.agent.events.forget('scan:main')).toBe(true);
		expect(device.agent.events.forget('main')).toBe(false);
		await writeFile(file, lineOf(DESK));
		await device.daemon.reload();
		expect(existsSync(path)).toBe(false);
	});

	test('a group of a socket that is not there is told, and the socket is there', async () => {
		const { device } = await givenDevice(`${lineOf(DESK)}scan - - socket=no-such-group\n`);
		expect(existsSync(join(device.home.paths.runDir, 'apps', 'scan.sock'))).toBe(true);
		const { warnings } = device.agent.status();
		expect(warnings.map(({ message }) => message).join('\n')).toContain('no-such-group');
	});

	test.each([
		['lobby https://lobby.example short', 'token'],
		[`${lineOf(LOBBY, 'contents=maybe')}`, 'contents'],
		[`${lineOf(LOBBY, 'connections=0')}`, 'connections'],
		[`${lineOf(LOBBY, 'waits=65')}`, 'waits'],
		[`${lineOf(LOBBY, 'allow=api')}`, 'allow'],
		[`${lineOf(LOBBY, 'allow=/a allow=/b')}`, 'twice'],
		[`${lineOf(LOBBY, 'socket=kiosk')}`, 'socket'],
		['lobby - -', 'socket=GROUP'],
		[`${lineOf(LOBBY, 'constructor=1')}`, 'constructor'],
	])('%s is refused, with the line and the reason', async (text, words) => {
		const home = await givenHome();
		const file = await home.secretFile('applications', `# ours\n${text}`);
		await expect(readBrowserApplications(file)).rejects.toThrow(words);
		await expect(readBrowserApplications(file)).rejects.toThrow('line 2');
	});
});

describe('one application that holds or drips costs another nothing', () => {
	/** Held open until the test ends. */
	function hold(device: RunningAgent, head: string): Promise<Socket> {
		const { hostname, port } = addressOf(device, 'browser');
		return new Promise((resolve) => {
			const socket = connect(Number(port), String(hostname), () => socket.write(head, () => resolve(socket)));
			socket.on('error', () => {});
			onTestFinished(() => void socket.destroy());
		});
	}
	const headOf = ({ origin, token }: typeof LOBBY, line: string, host: string, more = '') =>
		`${line} HTTP/1.1\r\nHost: ${host}\r\nOrigin: ${origin}\r\nAuthorization: Bearer ${token}\r\n${more}\r\n`;
	const hostOf = ({ daemon }: RunningAgent) => new URL(daemon.addresses.browser ?? '').host;

	test('300 connections that never say who they are', async () => {
		const { device, as } = await givenDevice(lineOf(LOBBY) + lineOf(DESK));
		for (let at = 0; at < 300; at += 1) await hold(device, 'GET /v1/status HTTP/1.1\r\nHost: ');
		expect((await as(DESK, '/v1/status')).status).toBe(200);
	});

	test('applications together have so many requests at once over all sockets, and the part of each is its own [F893]', async () => {
		const line = (name: string) => `${name} - - socket=${process.getgid?.()} connections=64 waits=64\n`;
		const { device } = await givenDevice(['one', 'two', 'three', 'four'].map(line).join(''));
		const streamOf = (name: string): Promise<string> => {
			const { promise, resolve } = Promise.withResolvers<string>();
			const socket = connect(join(device.home.paths.runDir, 'apps', `${name}.sock`));
			onTestFinished(() => void socket.destroy());
			socket.write('GET /v1/events/stream HTTP/1.1\r\nHost: x\r\n\r\n');
			socket
				.on('error', () => resolve('cut'))
				.once('data', (head) => resolve(/^HTTP\/1\.1 (\d+) /.exec(String(head))?.[1] ?? ''));
			return promise;
		};
		const counts: number[] = [];
		for (const name of ['one', 'two', 'three', 'four']) {
			const answers = await Promise.all(Array.from({ length: name === 'four' ? 4 : 64 }, () => streamOf(name)));
			counts.push(answers.filter((status) => status === '200').length);
			expect(answers.every((status) => status === '200' || status === '503')).toBe(true);
		}
		expect(counts).toEqual([52, 4, 4, 4]);
		expect((await ask(device, '/v1/status')).status).toBe(200);
	});

	test('an application without an option has six requests at once, of which four may be streams [F1867]', async () => {
		const { device, as } = await givenDevice(lineOf(LOBBY));
		const begin = async (line: string, more: string) => {
			const socket = await hold(device, headOf(LOBBY, line, hostOf(device), more));
			const [head] = await once(socket, 'data');
			return /^HTTP\/1\.1 (\d+) /.exec(String(head))?.[1];
		};
		for (const expected of ['200', '200', '200', '200', '503'])
			expect(await begin('GET /v1/status', 'Accept: text/event-stream\r\n')).toBe(expected);
		const unfinished = 'Content-Type: application/json\r\nContent-Length: 9\r\nExpect: 100-continue\r\n';
		for (const expected of [200, 503]) {
			expect(await begin('POST /v1/leases', unfinished)).toBe('100');
			expect((await as(LOBBY, '/v1/status')).status).toBe(expected);
		}
	});

	test('more leases than it may have are refused with 503 and when to ask again [F899]', async () => {
		const { as } = await givenDevice(lineOf(LOBBY) + lineOf(DESK));
		const hold = (name: string) => as(LOBBY, '/v1/leases', 'POST', { name, seconds: 30 });
		for (const name of ['one', 'two', 'one']) expect((await hold(name)).status).toBe(200);
		const refused = await hold('three');
		expect(refused).toMatchObject({ status: 503, json: { code: 'service-overloaded' } });
		expect(refused.headers['retry-after']).toBe('1');
		expect((await as(DESK, '/v1/leases', 'POST', { name: 'three', seconds: 30 })).status).toBe(200);
	});

	test('waits, streams and dripping uploads beyond its share', async () => {
		const { service, device, as } = await givenDevice(lineOf(LOBBY, 'uploads=3 waits=2 connections=9') + lineOf(DESK));
		// An answer that comes before the upload has ended would end the upload.
		onTestFinished(service.hold('/api/slow'));
		const host = hostOf(device);
		const answered = async (heads: readonly string[], count: number) => {
			const enough = Promise.withResolvers<void>();
			let answers = 0;
			for (const head of heads)
				(await hold(device, head)).once('data', () => {
					answers += 1;
					if (answers === count) enough.resolve();
				});
			await enough.promise;
		};
		const stream = headOf(LOBBY, 'GET /v1/status', host, 'Accept: text/event-stream\r\n');
		await answered(Array(5).fill(stream), 5);
		const upload = headOf(LOBBY, 'POST /v1/service/api/slow', host, 'Content-Length: 1000\r\n');
		// Two streams and seven uploads, four of which wait for their turn, are all that it may have at once.
		await answered(Array(12).fill(upload), 5);
		const refused = await ask(device, '/v1/events', {
			socket: 'browser',
			headers: { ...headersOf(LOBBY), accept: 'text/event-stream' },
		});
		expect(refused).toMatchObject({ status: 503 });
		expect(refused.headers['retry-after']).toBe('1');
		expect(await as(LOBBY, '/v1/service/api/slow', 'POST', {})).toMatchObject({ status: 503 });
		expect((await as(DESK, '/v1/service/api/quick', 'POST', {})).status).toBe(404);
		expect((await as(DESK, '/v1/status')).status).toBe(200);
		expect((await ask(device, '/v1/service/api/quick')).status).toBe(404);
	});
});
