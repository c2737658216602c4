import { once } from 'node:events';
import fs from 'node:fs';
import http from 'node:http';
import net from 'node:net';
import os from 'node:os';
import path from 'node:path';
import fc from 'fast-check';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { NO_AUDIT } from '../../src/audit/audit.runner.ts';
import { AgentError, type Failure } from '../../src/base/errors.ts';
import { type Erasure, ofSession } from '../../src/events/erasure.ts';
import type { Entry } from '../../src/events/event.ts';
import { MAX_STREAMS, openPage, type PageParts, SHOWN_EVENTS } from '../../src/page/page.runner.ts';
import type { PageView } from '../../src/page/view.ts';
import type { Standing } from '../../src/pairing/rescue.ts';
import type { PairRequest, Status } from '../../src/protocol/local-api.ts';
import type { Proposal } from '../../src/scanning/scanning.runner.ts';
import { PAGE_LANGUAGES } from '../../src/settings/table.ts';

const PAGE = path.join(import.meta.dirname, '../../src/page/page');
const CODE = 'https://id.example.com/mobile?authorization=Token%20tr-0123456789012345678901234567';

const unpaired: Status = {
	schemaVersion: 1,
	state: 'unpaired',
	sentence: 'Not paired: scan a pairing code.',
	summary: { code: 'unpaired', params: {} },
	agentVersion: '0.1.0',
	startedAt: '2026-11-21T05:00:00.000Z',
	deviceId: 'kiosk-7',
	deviceType: 'kiosk',
	serial: 'SN1',
	macAddress: null,
	baseUrl: null,
	workflow: { wanted: null, live: null, waitsUntil: null, source: null },
	channel: { state: 'none', since: null, lastHeartbeatAt: null, reconnects: 0, nextAttemptAt: null },
	sessionId: 'a-session',
	pairedAt: null,
	problem: null,
	plan: null,
	warnings: [],
	newestEventId: null,
};

const PAIRING = { trustedOrigins: ['https://id.example.com'], loopbackByScanner: false, rescueByScanner: false };
const SCREEN = { port: 0, pinFile: null, contents: false, language: 'auto', support: null } as const;
const settings = (more: { page?: object; pairing?: object } = {}) => ({
	baseUrl: null,
	pairing: { ...PAIRING, ...more.pairing },
	page: { ...SCREEN, ...more.page },
});

/** A page before an agent that is whatever a test makes of it. */
async function page({
	agent,
	...options
}: Partial<Omit<PageParts, 'agent'>> & { agent?: Partial<PageParts['agent']> } = {}) {
	let status = unpaired;
	let standing: Standing = 'first';
	const warnings: (string | null)[] = [];
	const retries = { count: 0 };
	const counters = { wrongPins: 0 };
	const scanning = { proposal: null as Proposal | null };
	let listener = () => {};
	let arrive = (_entries: readonly Entry[]) => {};
	let erase = (_erasure: Erasure) => {};
	const asked: PairRequest[] = [];
	const faults: unknown[] = [];
	const told: Failure[] = [];
	const runDir = fs.mkdtempSync(path.join(os.tmpdir(), 'page-'));
	onTestFinished(() => fs.rmSync(runDir, { recursive: true }));
	const server = await openPage({
		port: 0,
		audit: NO_AUDIT,
		agent: {
			status: () => status,
			standing: () => standing,
			isAttested: () => true,
			reconnect() {
				retries.count += 1;
			},
			warn: (_topic, warning) => warnings.push(warning?.message ?? null),
			onStatus(call) {
				listener = call;
				return () => {
					listener = () => {};
				};
			},
			events: {
				subscribe(call) {
					arrive = call;
					return () => {
						arrive = () => {};
					};
				},
				onErase(call) {
					erase = call;
					return () => {};
				},
			},
			inspectPairing: () => ({
				ready: true,
				baseUrl: 'https://id.example.com',
				host: 'id.example.com',
				workflowId: 'w',
				workflowSource: 'the code',
				sessionId: null,
				tokenKind: 'Short Token (one use)',
				changes: ['pairs this device with id.example.com'],
				problem: null,
			}),
			async pair(request) {
				asked.push(request);
				return {
					baseUrl: 'https://id.example.com',
					deviceId: 'kiosk-7',
					workflowId: 'w',
					sessionId: null,
					online: true,
					sentence: 'Online.',
				};
			},
			...agent,
		},
		scanning: {
			proposal: () => scanning.proposal,
			dismiss() {
				scanning.proposal = null;
			},
		},
		counters,
		clock: { wallMs: Date.now, monotonicMs: () => performance.now(), sleptMs: () => 0 },
		history: () => [],
		settings: () => settings(),
		pin: () => null,
		kiosk: { runDir, group: String(process.getgid?.()) },
		onWrongPins: (reason) => told.push(reason),
		onFault: (error) => faults.push(error),
		...options,
	});
	onTestFinished(() => server.close());
	const { port } = new URL(server.url);
	const become = (next: Partial<Status>) => {
		status = { ...status, ...next };
		listener();
	};
	const stand = (next: Standing) => {
		standing = next;
	};
	return {
		...server,
		port: Number(port),
		asked,
		faults,
		arrive,
		erase: (erasure: Erasure) => erase(erasure),
		become,
		stand,
		scanning,
		counters,
		warnings,
		retries,
		told,
		runDir,
	};
}

/** The secret in the file by which the kiosk opens the page. */
const openingIn = (runDir: string) => /#(\w+)"/.exec(fs.readFileSync(path.join(runDir, 'page.html'), 'utf8'))?.[1];

const entry = (number: number): Entry => ({
	id: `e-${number}`,
	number,
	at: '2026-11-21T05:00:00.000Z',
	type: 'notification',
	kind: 'session.started',
	workflowId: 'w',
	format: 'text',
	content: 'a-content',
	serviceId: null,
});

interface Asked {
	readonly method?: string;
	readonly headers?: Record<string, string>;
	readonly body?: string;
}

/** As the bytes say: `fetch` would not let a test lie about Host and Origin. */
async function ask(port: number, target: string, { method = 'GET', headers = {}, body }: Asked = {}) {
	const request = http.request({ host: '127.0.0.1', port, path: target, method, headers, agent: false });
	request.end(body);
	const [response] = (await once(request, 'response')) as [http.IncomingMessage];
	const chunks: Buffer[] = [];
	for await (const chunk of response) chunks.push(chunk as Buffer);
	const text = Buffer.concat(chunks).toString();
	return { status: response.statusCode ?? 0, headers: response.headers, text };
}

const post = (port: number, target: string, body: unknown, headers: Record<string, string> = {}) =>
	ask(port, target, {
		method: 'POST',
		headers: { origin: `http://127.0.0.1:${port}`, 'content-type': 'application/json', ...headers },
		body: typeof body === 'string' ? body : JSON.stringify(body),
	});

/** The views of the live stream, as they come. */
async function* views(port: number): AsyncGenerator<PageView> {
	const request = http.get({ host: '127.0.0.1', port, path: '/api/live', agent: false });
	const [response] = (await once(request, 'response')) as [http.IncomingMessage];
	let text = '';
	try {
		for await (const chunk of response.setEncoding('utf8')) {
			text += chunk;
			const parts = text.split('\n\n');
			text = parts.pop() ?? '';
			for (const part of parts) {
				const data = /^event: view\ndata: (.*)$/m.exec(part)?.[1];
				if (data) yield JSON.parse(data);
			}
		}
	} finally {
		request.destroy();
	}
}

async function nextView(stream: AsyncGenerator<PageView>): Promise<PageView> {
	const { value } = await stream.next();
	return value as PageView;
}

describe('the files', () => {
	test.each([
		['/', 'text/html', '<!doctype html>'],
		['/page.css', 'text/css', 'color-scheme'],
		['/page.js', 'text/javascript', 'EventSource'],
		['/pair.js', 'text/javascript', '/api/pair'],
		['/refusals.js', 'text/javascript', 'scannerChanges'],
		['/requests.js', 'text/javascript', '/api/dismiss'],
		['/codes.js', 'text/javascript', 'getUserMedia'],
		['/words.js', 'text/javascript', 'Intl'],
		['/qr.js', 'text/javascript', 'EccMap'],
		...PAGE_LANGUAGES.filter((tag) => tag !== 'auto').map(
			(tag) => [`/languages/${tag}.js`, 'text/javascript', 'HOTLINE'] as [string, string, string],
		),
		['/zxing-reader.js', 'text/javascript', 'ZXingWASM'],
		['/zxing_reader.wasm', 'application/wasm', '\0asm'],
	] as [string, string, string][])('%s is served by the agent itself', async (target, type, piece) => {
		const { port } = await page();
		const { status, headers, text } = await ask(port, target);
		expect(status).toBe(200);
		expect(headers['content-type']).toContain(type);
		expect(text.toLowerCase()).toContain(piece.toLowerCase());
		expect(headers['content-security-policy']).toMatch(/^default-src 'none'; script-src 'self' 'wasm-unsafe-eval';/);
		expect(headers['x-content-type-options']).toBe('nosniff');
		expect(headers['cache-control']).toBe('no-store');
		expect(await ask(port, target, { method: 'HEAD' })).toMatchObject({ status: 200, text: '' });
	});

	test('ask for nothing from anywhere else, and have nothing inline that the policy would stop', () => {
		const html = fs.readFileSync(path.join(PAGE, 'index.html'), 'utf8');
		const names = fs.readdirSync(PAGE, { recursive: true, encoding: 'utf8' }).filter((name) => /\.\w+$/.test(name));
		expect(names.length).toBeGreaterThan(10);
		const all = names.map((name) => fs.readFileSync(path.join(PAGE, name), 'utf8'));
		expect(all.flatMap((text) => text.match(/(?:https?:)?\/\/[a-z0-9.-]+\.[a-z]{2,}/gi) ?? [])).toEqual([]);
		expect(html).not.toMatch(/<style|\sstyle=|\son[a-z]+=|<script(?![^>]*\ssrc=)/i);
		expect(all.join('')).not.toMatch(/innerHTML|outerHTML|document\.write|insertAdjacentHTML|\beval\(/);
	});

	test('know each other: every element that the script names stands in the page', () => {
		const html = fs.readFileSync(path.join(PAGE, 'index.html'), 'utf8');
		const script = ['page.js', 'pair.js'].map((name) => fs.readFileSync(path.join(PAGE, name), 'utf8')).join('');
		const named = new Set([...script.matchAll(/\bat\('([\w-]+)'\)/g)].map(([, id]) => id));
		const there = new Set([...html.matchAll(/\sid="([\w-]+)"/g)].map(([, id]) => id));
		expect(named.size).toBeGreaterThan(20);
		expect([...named].filter((id) => !there.has(id))).toEqual([]);
		for (const [, id] of html.matchAll(/(?:\sfor|aria-labelledby)="([\w-]+)"/g)) expect(there).toContain(id);
	});

	test('there are no others', async () => {
		const { port } = await page();
		for (const target of [
			'/page',
			'/../package.json',
			'/%2e%2e/package.json',
			'/page/page.js',
			'/constructor',
			'/__proto__',
			'//',
		])
			expect((await ask(port, target)).status).toBe(404);
	});
});

describe('what it shows', () => {
	test('state, identity, workflow and the last notifications without contents; never the session', async () => {
		const { port, arrive } = await page();
		for (let number = 0; number < 30; number += 1) arrive([entry(number), { ...entry(number), type: 'gap' }]);
		const { text } = await ask(port, '/api/view');
		const view: PageView = JSON.parse(text);
		expect(view).toMatchObject({
			status: { state: 'unpaired', deviceId: 'kiosk-7', serial: 'SN1' },
			standing: 'first',
			pinNeed: 'nothing',
			proposal: null,
			language: 'auto',
			support: null,
		});
		expect(view.events).toHaveLength(SHOWN_EVENTS);
		expect(view.events.at(-1)).toEqual({ id: 'e-29', at: '2026-11-21T05:00:00.000Z', kind: 'session.started' });
		expect(text).not.toContain('a-session');
		expect(text).not.toContain('a-content');
	});

	test('shows nothing of what was erased', async () => {
		const { port, arrive, erase } = await page({ settings: () => settings({ page: { contents: true } }) });
		arrive([
			{ ...entry(1), content: '{"session":"S-1"}' },
			{ ...entry(2), content: '{"session":"S-2"}' },
		]);
		erase(ofSession('S-1'));
		const view = await (await fetch(`http://127.0.0.1:${port}/api/view`)).text();
		expect(view).not.toContain('S-1');
		expect(view).toContain('S-2');
	});

	test('is told at once of what was erased', async () => {
		const { port, arrive, erase } = await page({
			settings: () => settings({ page: { contents: true } }),
			keepAliveMs: 3_600_000,
		});
		arrive([{ ...entry(1), content: '{"session":"S-1"}' }]);
		const stream = views(port);
		expect(JSON.stringify(await nextView(stream))).toContain('S-1');
		erase(ofSession('S-1'));
		expect(JSON.stringify(await nextView(stream))).not.toContain('S-1');
		await stream.return(undefined);
	});

	test('the beginning of a content, only where the settings ask for it', async () => {
		const { port, arrive } = await page({ settings: () => settings({ page: { contents: true } }) });
		arrive([{ ...entry(1), content: 'a'.repeat(1000) }]);
		const view: PageView = JSON.parse((await ask(port, '/api/view')).text);
		expect(view.events.map(({ content }) => content)).toEqual(['a'.repeat(200)]);
	});

	test('changes live, with the timeline; a burst of changes is one message', async () => {
		const { port, become } = await page();
		const stream = views(port);
		expect(await nextView(stream)).toMatchObject({ status: { state: 'unpaired' } });
		become({ state: 'connecting' });
		become({ state: 'online', summary: { code: 'online', params: {} }, pairedAt: '2026-11-21T05:00:01.000Z' });
		const view = await nextView(stream);
		expect(view).toMatchObject({ status: { state: 'online', summary: { code: 'online' } } });
		expect(view.timeline.map(({ state }) => state)).toEqual(['unpaired', 'connecting', 'online']);
		become({ state: 'offline' });
		expect(await nextView(stream)).toMatchObject({ status: { state: 'offline' } });
		await stream.return(undefined);
	});

	test('how long the device has been offline goes on while nothing happens', async () => {
		let minutes = 0;
		const status = (): Status => ({ ...unpaired, state: 'offline', summary: { code: 'offline', params: { minutes } } });
		const { port } = await page({ agent: { status }, keepAliveMs: 5 });
		const stream = views(port);
		expect((await nextView(stream)).status.summary.params).toEqual({ minutes: 0 });
		minutes = 1;
		while ((await nextView(stream)).status.summary.params['minutes'] !== 1);
		await stream.return(undefined);
	});

	test('a page hears from the agent at least twice within the time after which it says that the agent does not answer [F1230]', async () => {
		const silence = /^const SILENCE_MS = ([\d_]+);$/m.exec(fs.readFileSync(path.join(PAGE, 'page.js'), 'utf8'))?.[1];
		vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
		onTestFinished(() => void vi.useRealTimers());
		const { port } = await page();
		const stream = views(port);
		await nextView(stream);
		for (const _ of [1, 2]) {
			vi.advanceTimersByTime(Number(silence?.replace('_', '')) / 2);
			await nextView(stream);
		}
		await stream.return(undefined);
	});

	test('a few open pages at once: one more ends the oldest, so that silent clients cannot lock the page', async () => {
		const { port } = await page();
		const open = Array.from({ length: MAX_STREAMS }, () => views(port));
		for (const stream of open) await nextView(stream);
		const last = views(port);
		expect(await nextView(last)).toMatchObject({ status: { state: 'unpaired' } });
		const ended = await Promise.all(open.slice(0, 1).map((stream) => stream.next()));
		expect(ended).toMatchObject([{ done: true }]);
		for (const stream of [...open, last]) await stream.return(undefined);
	});

	test('closing ends the open pages', async () => {
		const { port, close } = await page();
		const stream = views(port);
		await nextView(stream);
		await close();
		expect(await stream.next().catch(() => ({ done: true }))).toMatchObject({ done: true });
	});
});

describe('pairing', () => {
	test('an unpaired device is looked at and paired, never replaced', async () => {
		const { port, asked } = await page();
		expect(JSON.parse((await post(port, '/api/inspect', { code: CODE })).text)).toMatchObject({
			ready: true,
			host: 'id.example.com',
		});
		const { status, text } = await post(port, '/api/pair', {
			code: CODE,
			workflowId: 'w',
			trustOrigin: 'https://id.example.com',
		});
		expect([status, JSON.parse(text)]).toMatchObject([200, { sentence: 'Online.' }]);
		expect(asked).toEqual([{ code: CODE, workflowId: 'w', trustOrigin: 'https://id.example.com', replace: false }]);
		expect((await post(port, '/api/pair', { code: CODE, replace: true })).status).toBe(422);
	});

	test('a paired device is refused; one that its service refuses, or a copy, is not', async () => {
		const { port, asked, stand } = await page();
		stand('paired');
		const { status, text } = await post(port, '/api/pair', { code: CODE });
		expect([status, JSON.parse(text).params]).toMatchObject([409, { pairingCode: 'valid' }]);
		expect(asked).toEqual([]);
		for (const standing of ['refused', 'copy'] as const) {
			stand(standing);
			expect((await post(port, '/api/pair', { code: CODE })).status).toBe(200);
		}
		expect(asked).toEqual(Array(2).fill({ code: CODE, replace: false }));
	});

	test('a rescue of a device whose Connection names no customer needs a PIN, whatever settings name the service [F718]', async () => {
		for (const [isAttested, pin, wanted] of [
			[false, null, 'setting'],
			[false, '471100', 'pin'],
			[true, null, 'nothing'],
		] as const) {
			const { port, stand, asked } = await page({ agent: { isAttested: () => isAttested }, pin: () => pin });
			for (const standing of ['refusedOnce', 'refused', 'copy'] as const) {
				stand(standing);
				expect(JSON.parse((await ask(port, '/api/view')).text).pinNeed).toBe(wanted);
				const { status } = await post(port, '/api/pair', { code: CODE });
				expect(status).toBe(wanted === 'nothing' ? 200 : 403);
			}
			expect(asked).toHaveLength(wanted === 'nothing' ? 3 : 0);
		}
	});

	test('needs a PIN of six digits, or settings that name the service', async () => {
		const bare = () => settings({ pairing: { trustedOrigins: [] } });
		const refusal = async (options: Parameters<typeof page>[0], pin?: string) => {
			const { port, asked } = await page({ settings: bare, ...options });
			const { status, text } = await post(port, '/api/pair', { code: CODE, ...(pin && { pin }) });
			expect(asked).toHaveLength(status === 200 ? 1 : 0);
			return status === 200 ? null : JSON.parse(text).params.reason;
		};
		expect(await refusal({})).toBe('setting');
		expect(await refusal({ settings: () => ({ ...bare(), baseUrl: 'https://id.example.com' }) })).toBeNull();
		expect(await refusal({ settings: () => settings() })).toBeNull();
		for (const weak of ['1', '12345', 'secret', '12345a']) {
			expect(await refusal({ pin: () => weak }, weak)).toBe('longerPin');
			expect(await refusal({ pin: () => weak, settings: () => settings() }, weak)).toBe('longerPin');
		}
		expect(await refusal({ pin: () => '471100' })).toBe('missing');
		expect(await refusal({ pin: () => '471100' }, '000000')).toBe('wrong');
		expect(await refusal({ pin: () => '471100' }, '471100')).toBeNull();
	});

	test('pauses grow after wrong PINs; tries meanwhile change nothing, and the right one is taken afterwards', async () => {
		let now = 1_000_000;
		const { port, asked, counters, warnings } = await page({
			pin: () => '471100',
			clock: { wallMs: () => now, monotonicMs: () => now, sleptMs: () => 0 },
		});
		const type = async (pin: string) => JSON.parse((await post(port, '/api/pair', { code: CODE, pin })).text).params;
		for (let attempt = 0; attempt < 3; attempt += 1) expect(await type('000000')).toEqual({ reason: 'wrong' });
		for (const seconds of [5, 10, 20, 40, 80, 160, 300, 300]) {
			expect(await type('471100')).toEqual({ reason: 'pause', seconds });
			for (let hammered = 0; hammered < 5; hammered += 1) await type('000001');
			now += seconds * 1000;
			expect(await type('000000')).toEqual({ reason: 'wrong' });
		}
		expect(counters.wrongPins).toBe(11);
		expect(warnings.at(-1)).toBe('A wrong PIN was typed 11 times on the page of this device, outside of its kiosk.');
		expect(asked).toEqual([]);
		const { status, headers } = await post(port, '/api/pair', { code: CODE, pin: '471100' });
		expect([status, headers['retry-after']]).toEqual([403, '300']);
		now += 300_000;
		expect((await post(port, '/api/pair', { code: CODE, pin: '471100' })).status).toBe(200);
		expect(asked).toEqual([{ code: CODE, replace: false }]);
		expect(warnings.at(-1)).toBeNull();
	});

	test('another program that types a wrong PIN as each pause ends delays the kiosk by no second, and gets no more tries [F710]', async () => {
		let now = 1_000_000;
		const { port, asked, counters, warnings, told, runDir } = await page({
			pin: () => '471100',
			clock: { wallMs: () => now, monotonicMs: () => now, sleptMs: () => 0 },
		});
		const opening = openingIn(runDir);
		const type = async (pin: string, more = {}) => {
			const { status, text } = await post(port, '/api/pair', { code: CODE, pin, ...more });
			return status === 200 ? 'paired' : JSON.parse(text).params.reason;
		};
		const looks = 288;
		let [keptOut, lookedAt] = [0, 0];
		for (let look = 0; look < looks; look += 1) {
			for (const forged of [{}, { opening: 'x' }, { opening: '' }])
				if ((await type('000000', forged)) === 'wrong') lookedAt += 1;
			if ((await type('471100', { opening })) !== 'paired') keptOut += 1;
			now += 300_000;
		}
		expect([keptOut, asked.length]).toEqual([0, looks]);
		// A day at one try in 300 s, and the first ones.
		expect(lookedAt).toBeLessThan(looks + 10);
		expect(counters.wrongPins).toBe(lookedAt);
		expect(warnings.findLast((warning) => warning !== null)).toMatch(/outside of its kiosk\.$/);
		expect(told.length).toBe(lookedAt - 2);
		expect(told.at(-1)).toMatchObject({ code: 'access-denied', params: { tries: lookedAt, by: 'others' } });
		// The other way round, too: slips at the screen are counted for the screen alone.
		for (let slip = 0; slip < 3; slip += 1) expect(await type('000001', { opening })).toBe('wrong');
		expect(await type('471100', { opening })).toBe('pause');
		now += 300_000;
		expect(await type('471100')).toBe('paired');
	});

	test('the file that opens the page is for its group alone, and an open page outlives a start of the agent [F711]', async () => {
		const first = await page();
		const file = path.join(first.runDir, 'page.html');
		const opening = openingIn(first.runDir);
		expect([fs.statSync(file).mode & 0o777, fs.readFileSync(file, 'utf8').includes(first.url)]).toEqual([0o640, true]);
		expect((await ask(first.port, '/')).text + (await ask(first.port, '/api/view')).text).not.toContain(opening);
		await first.close();
		const kiosk = { runDir: first.runDir, group: String(process.getgid?.()) };
		await page({ kiosk });
		expect(openingIn(first.runDir)).toBe(opening);
		const known = [opening];
		for (const mode of [0o644, 0o660]) {
			fs.chmodSync(file, mode);
			const another = await page({ kiosk });
			expect(known).not.toContain(openingIn(first.runDir));
			expect(another.warnings).toEqual([null]);
			known.push(openingIn(first.runDir));
		}
		const refused = await page({ kiosk: { runDir: first.runDir, group: 'no-such-group' } });
		expect(refused.warnings).toEqual([expect.stringContaining('only its owner may use')]);
		expect(fs.statSync(file).mode & 0o777).toBe(0o600);
	});

	test('a scanned code is confirmed with the PIN; the page never gets its text, and confirms only what it shows', async () => {
		const { port, asked, scanning } = await page({ pin: () => '471100' });
		const preview = {
			ready: false,
			baseUrl: 'https://id.example.com/tenant',
			host: 'id.example.com',
			workflowId: 'w',
			workflowSource: 'the code',
			sessionId: null,
			tokenKind: 'Short Token (one use)',
			changes: [],
			problem: null,
		};
		scanning.proposal = { id: 2, code: CODE, preview };
		const { text } = await ask(port, '/api/view');
		expect(JSON.parse(text)).toMatchObject({ proposal: { id: 2, host: 'id.example.com', workflowId: 'w' } });
		expect(text).not.toContain('tr-');
		expect((await post(port, '/api/pair', { proposal: 1, pin: '471100' })).status).toBe(403);
		expect((await post(port, '/api/pair', { proposal: 2, pin: '000000' })).status).toBe(403);
		expect(asked).toEqual([]);
		expect((await post(port, '/api/pair', { proposal: 2, pin: '471100' })).status).toBe(200);
		expect(asked).toEqual([{ code: CODE, replace: false, trustOrigin: 'https://id.example.com' }]);
		expect(scanning.proposal).toBeNull();
		scanning.proposal = { id: 3, code: CODE, preview };
		await post(port, '/api/dismiss', { proposal: 2 });
		expect(scanning.proposal).not.toBeNull();
		await post(port, '/api/dismiss', { proposal: 3 });
		expect(scanning.proposal).toBeNull();
	});

	test('a refusal says what and what to do; a fault of ours says nothing and is told to the agent', async () => {
		const refusing = await page({
			agent: {
				pair: async () => {
					throw new AgentError('code-expired-or-used', 'The code has expired.');
				},
			},
		});
		const { headers, text } = await post(refusing.port, '/api/pair', { code: CODE });
		expect(headers['content-type']).toBe('application/problem+json');
		expect(JSON.parse(text)).toMatchObject({
			code: 'code-expired-or-used',
			detail: 'The code has expired.',
			remedy: expect.stringContaining('new pairing code'),
		});

		const broken = await page({
			agent: {
				inspectPairing: () => {
					throw new Error(`no such column ${CODE}`);
				},
			},
		});
		const answer = await post(broken.port, '/api/inspect', { code: CODE });
		expect([answer.status, answer.text.includes('tr-')]).toEqual([500, false]);
		expect(broken.faults).toHaveLength(1);
	});
});

describe('strangers', () => {
	const ways: [string, (port: number) => Asked][] = [
		['a name that was made to lead here', (port) => ({ headers: { host: `evil.example:${port}` } })],
		['the address without its port', () => ({ headers: { host: '127.0.0.1' } })],
		['another origin', () => ({ headers: { origin: 'https://evil.example' } })],
		['another port on this machine', () => ({ headers: { origin: 'http://127.0.0.1:1' } })],
		['a sandboxed page', () => ({ headers: { origin: 'null' } })],
		[
			'another site, by fetch metadata',
			() => ({ headers: { 'sec-fetch-site': 'cross-site', 'sec-fetch-dest': 'empty' } }),
		],
		['another page of the same machine', () => ({ headers: { 'sec-fetch-site': 'same-site' } })],
	];

	test.each(ways)('%s cannot read', async (_name, how) => {
		const { port } = await page();
		for (const target of ['/api/view', '/api/live', '/page.js'])
			expect((await ask(port, target, how(port))).status).toBe(403);
	});

	test.each(ways)('%s cannot pair', async (_name, how) => {
		const { port, asked } = await page();
		const { headers } = how(port);
		expect((await post(port, '/api/pair', { code: CODE }, headers)).status).toBe(403);
		expect(asked).toEqual([]);
	});

	test('a form, a script without an origin and another content type cannot pair', async () => {
		const { port, asked } = await page();
		const body = JSON.stringify({ code: CODE });
		const json = { 'content-type': 'application/json' };
		expect((await ask(port, '/api/pair', { method: 'POST', headers: json, body })).status).toBe(403);
		for (const type of ['text/plain', 'application/x-www-form-urlencoded', 'multipart/form-data; boundary=x'])
			expect((await post(port, '/api/pair', body, { 'content-type': type })).status).toBe(415);
		expect(asked).toEqual([]);
	});

	test('a person may ask for another try, every person; more within five seconds are the same one', async () => {
		let nowMs = 60_000;
		const { port, retries } = await page({ clock: { wallMs: Date.now, monotonicMs: () => nowMs, sleptMs: () => 0 } });
		const answers = [await post(port, '/api/retry', ''), await post(port, '/api/retry', '')];
		expect(answers.map(({ status }) => status)).toEqual([202, 202]);
		expect(retries.count).toBe(1);
		for (const [passedMs, count] of [
			[4_999, 1],
			[1, 2],
		] as const) {
			nowMs += passedMs;
			await post(port, '/api/retry', '');
			expect(retries.count).toBe(count);
		}
		expect((await post(port, '/api/retry', '', { origin: 'https://elsewhere.example' })).status).toBe(403);
		expect(retries.count).toBe(2);
	});

	test('a link on another page may open it, a frame may not', async () => {
		const { port } = await page();
		const from = (dest: string) =>
			ask(port, '/', { headers: { 'sec-fetch-site': 'cross-site', 'sec-fetch-dest': dest } });
		const opened = await from('document');
		expect(opened.status).toBe(200);
		expect(opened.headers['content-security-policy']).toContain("frame-ancestors 'none'");
		expect((await from('iframe')).status).toBe(403);
	});

	test('only loopback is listened on, and a port that is taken is said so', async () => {
		const { port } = await page();
		await expect(page({ port })).rejects.toMatchObject({ failure: { code: 'socket-failed' } });
	});
});

describe('bad input', () => {
	test('is refused with a problem document, whatever it is', async () => {
		const { port, faults } = await page();
		const body = fc.oneof(
			fc.json(),
			fc.string(),
			fc.record({ code: fc.anything() }).map((value) => JSON.stringify(value) ?? ''),
		);
		const call = fc.record({
			method: fc.constantFrom('GET', 'POST', 'PUT', 'DELETE', 'OPTIONS', 'PATCH'),
			target: fc.oneof(
				fc.constantFrom('/api/view', '/api/inspect', '/api/pair', '/', '/x'),
				fc.webPath().map((text) => text || '/'),
			),
			body,
		});
		await fc.assert(
			fc.asyncProperty(call, async (one) => {
				const { status, headers, text } = await ask(port, one.target, {
					method: one.method,
					headers: {
						origin: `http://127.0.0.1:${port}`,
						'content-type': 'application/json',
						'content-length': String(Buffer.byteLength(one.body)),
					},
					body: one.body,
				});
				expect(status).toBeLessThan(500);
				if (status >= 400) {
					expect(headers['content-type']).toBe('application/problem+json');
					expect(JSON.parse(text)).toMatchObject({
						status,
						code: expect.any(String),
						detail: expect.any(String),
						remedy: expect.any(String),
					});
				}
			}),
			{ numRuns: 300 },
		);
		expect(faults).toEqual([]);
	});

	test('a body that is too large is refused, an endless one is cut off', async () => {
		const { port } = await page();
		expect((await post(port, '/api/inspect', { code: 'x'.repeat(20_000) })).status).toBe(413);
		const socket = net.connect(port, '127.0.0.1');
		socket.on('error', () => {});
		socket.write(
			`POST /api/inspect HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\nOrigin: http://127.0.0.1:${port}\r\nContent-Type: application/json\r\nContent-Length: 999999999\r\n\r\n`,
		);
		const block = Buffer.alloc(64 * 1024, 'x');
		const push = () => {
			while (!socket.destroyed && socket.write(block));
		};
		socket.on('drain', push);
		push();
		await new Promise((resolve) => socket.once('close', resolve));
	});
});
