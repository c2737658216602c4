/** The page as it ships, run in a browser without pixels, before an agent that fails as a test asks. Its time is stepped. */
import { once } from 'node:events';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import { Browser, type BrowserWindow, type Element } from 'happy-dom';
import { expect, onTestFinished } from 'vitest';
import { PAGE_FILES, readPageFile } from '../../src/page/files.edge.ts';
import type { PageView } from '../../src/page/view.ts';
import { PAGE_LANGUAGES } from '../../src/settings/table.ts';
import { createSteppedClock } from '../harness/stepped-clock.ts';

/** What the agent in its place does with a path: answers, or one of these. */
type Trouble = 'gone' | 'cut' | 'refused' | 'never';

export const VIEW: PageView = {
	nowMs: Date.parse('2026-11-21T05:00:00.000Z'),
	language: 'auto',
	support: null,
	status: {
		state: 'online',
		summary: { code: 'online', params: { host: 'id.example.com', workflowId: 'check-in' } },
		pairedAt: '2026-11-20T05:00:00.000Z',
		agentVersion: '0.2.0',
		startedAt: '2026-11-21T04:00:00.000Z',
		deviceId: 'kiosk-7',
		deviceType: 'kiosk',
		serial: 'SN1',
		macAddress: null,
		baseUrl: 'https://id.example.com',
		workflow: { wanted: 'check-in', live: 'check-in', waitsUntil: null, source: 'pairing' },
		problem: null,
		warnings: [],
	},
	lastHeartbeatAt: '2026-11-21T04:59:50.000Z',
	events: [],
	timeline: [{ fromMs: Date.parse('2026-11-21T04:30:00.000Z'), state: 'online' }],
	standing: 'paired',
	pinNeed: 'pin',
	proposal: null,
};

/** Serves the page's own files, and what a test wants of the rest. */
export async function givenPageAgent() {
	const troubles = new Map<string, Trouble>();
	const asked: { readonly path: string; readonly body: string }[] = [];
	const holding = new Map<string, Promise<void>>();
	const answers = new Map<string, { readonly status: number; readonly text: string }>();
	const streams = new Set<http.ServerResponse>();
	let last = `event: view\ndata: ${JSON.stringify(VIEW)}\n\n`;
	const server = http.createServer(async (request, response) => {
		const path = (request.url ?? '').split('?')[0] ?? '';
		let body = '';
		for await (const chunk of request.setEncoding('utf8')) body += chunk;
		asked.push({ path: request.url ?? '', body });
		await holding.get(path);
		const trouble = troubles.get(path) ?? troubles.get('*');
		if (trouble === 'never') return;
		if (trouble === 'gone') return void request.socket.destroy();
		if (trouble === 'refused') return void response.writeHead(503).end();
		if (path === '/api/live') {
			response.writeHead(200, { 'content-type': 'text/event-stream' }).write('retry: 2000\n\n');
			streams.add(response);
			response.on('close', () => streams.delete(response));
			return void response.write(last);
		}
		const answer = answers.get(path);
		if (answer) return void response.writeHead(answer.status, { 'content-type': 'application/json' }).end(answer.text);
		const file = PAGE_FILES[path];
		if (!file) return void response.writeHead(404).end();
		const bytes = await readPageFile(file);
		response.writeHead(200, { 'content-type': file.type, 'content-length': bytes.length });
		if (trouble !== 'cut') return void response.end(bytes);
		response.write(bytes.subarray(0, bytes.length / 2), () => request.socket.destroy());
	});
	server.listen(0, '127.0.0.1');
	await once(server, 'listening');
	onTestFinished(async () => {
		server.closeAllConnections();
		await new Promise((resolve) => server.close(resolve));
	});
	return {
		url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`,
		asked,
		/** From now on, for a path or `*` for all. */
		trouble: (path: string, kind: Trouble) => void troubles.set(path, kind),
		mend: (path: string) => void troubles.delete(path),
		/** What is asked there waits until the returned function is called. */
		hold(path: string): () => void {
			const { promise, resolve } = Promise.withResolvers<void>();
			holding.set(path, promise);
			return resolve;
		},
		answer: (path: string, status: number, body: unknown) =>
			void answers.set(path, { status, text: typeof body === 'string' ? body : JSON.stringify(body) }),
		/** Tells the open pages, and those that open later. @param data as it is, where it is a text. */
		tell(data: Partial<PageView> | string): void {
			const text = typeof data === 'string' ? data : JSON.stringify({ ...VIEW, ...data });
			last = `event: view\ndata: ${text}\n\n`;
			for (const stream of streams) stream.write(last);
		},
		/** What is open breaks. */
		drop: () => server.closeAllConnections(),
		get open() {
			return streams.size;
		},
	};
}

export type Screen = Awaited<ReturnType<typeof givenScreen>>;

/** The page, opened. @param locale of the browser. @param opening the secret that the kiosk was given. */
export async function givenScreen({
	locale = 'en',
	opening = '',
	before = () => {},
}: {
	readonly locale?: string;
	readonly opening?: string;
	readonly before?: (agent: Awaited<ReturnType<typeof givenPageAgent>>) => void;
} = {}) {
	const agent = await givenPageAgent();
	before(agent);
	const clock = createSteppedClock();
	const browser = new Browser({
		settings: {
			enableJavaScriptEvaluation: true,
			suppressInsecureJavaScriptEnvironmentWarning: true,
			disableCSSFileLoading: true,
			handleDisabledFileLoadingAsSuccess: true,
		},
	});
	const page = browser.newPage();
	const sources = new Set<Source>();
	onTestFinished(async () => {
		for (const source of sources) source.close();
		await browser.close();
	});
	await page.goto(`${agent.url}${opening && `#${opening}`}`, {
		beforeContentCallback(window) {
			const timers = new Map<number, () => void>();
			let newest = 0;
			const set = (callback: () => void, ms = 0) => {
				newest += 1;
				timers.set(newest, clock.schedule(ms, callback));
				return newest;
			};
			const clear = (id: number) => timers.get(id)?.();
			const every = (callback: () => void, ms: number) => {
				const again = () => {
					clock.schedule(ms, again);
					callback();
				};
				clock.schedule(ms, again);
			};
			Object.assign(window, { setTimeout: set, clearTimeout: clear, setInterval: every });
			Object.defineProperty(window, 'performance', { value: { now: clock.monotonicMs } });
			// A Date of the browser's own: this process goes on with its.
			window.eval('globalThis.Date = class extends Date {}');
			Object.assign(window.Date, { now: clock.wallMs });
			Object.defineProperty(window.navigator, 'languages', { value: [locale] });
			class Here extends Source {
				constructor(path: string) {
					super(new URL(path, agent.url), clock.schedule);
					sources.add(this);
				}
			}
			Object.assign(window, { EventSource: Here });
		},
	});
	const window: BrowserWindow = page.mainFrame.window;
	const { document } = window;
	const at = (id: string) =>
		document.getElementById(id) as unknown as Element & {
			value: string;
			disabled: boolean;
			hidden: boolean;
			type: string;
			click(): void;
			readonly selectionStart: number | null;
			readonly selectionEnd: number | null;
		};
	await expect
		.poll(() => [at('language').children.length, at('pad').children.length])
		.toEqual([PAGE_LANGUAGES.length - 1, 12]);
	return {
		agent,
		clock,
		/** For a poll: a second passes before each look. */
		inSteps: <Seen>(look: () => Seen) => {
			return () => {
				clock.advance(1000);
				return look();
			};
		},
		document,
		at,
		/** The screen is lit again, as after a sleep. */
		wake: () => void document.dispatchEvent(new window.Event('visibilitychange')),
		/** A key beside every field. */
		press: (key: string) =>
			void document.body.dispatchEvent(new window.KeyboardEvent('keydown', { key, bubbles: true })),
		submit: (id: string) => void at(id).dispatchEvent(new window.Event('submit', { cancelable: true })),
		text: (id: string) => at(id).textContent?.replaceAll(/[\u2068\u2069]/g, ''),
		state: () => document.body.dataset['state'],
		choose(tag: string) {
			at('language').value = tag;
			document.getElementById('language')?.dispatchEvent(new window.Event('change'));
		},
		/** What the page could not show, by its own word. */
		complaints: () => page.virtualConsolePrinter.readAsString(),
	};
}

/** As browsers have it: connects again by itself after a loss, and gives up after an answer that is no stream. */
class Source extends EventTarget {
	static readonly CLOSED = 2;
	readyState = 0;
	onerror: (() => void) | null = null;
	#request: http.ClientRequest | null = null;
	readonly #url: URL;
	readonly #schedule: (ms: number, callback: () => void) => () => void;

	constructor(url: URL, schedule: (ms: number, callback: () => void) => () => void) {
		super();
		this.#url = url;
		this.#schedule = schedule;
		this.#open();
	}

	#open(): void {
		if (this.readyState === Source.CLOSED) return;
		const lost = () => {
			if (this.readyState === Source.CLOSED || this.#request !== request) return;
			this.#request = null;
			this.readyState = 0;
			this.#schedule(2000, () => this.#open());
			this.onerror?.();
		};
		const request = http.get(this.#url, { headers: { accept: 'text/event-stream' }, agent: false }, (response) => {
			if (response.statusCode !== 200) {
				this.readyState = Source.CLOSED;
				response.resume();
				this.onerror?.();
				return;
			}
			this.readyState = 1;
			let text = '';
			response.setEncoding('utf8').on('data', (chunk: string) => {
				const frames = (text + chunk).split('\n\n');
				text = frames.pop() ?? '';
				for (const frame of frames) {
					const data = /^data: (.*)$/m.exec(frame)?.[1];
					const event = new Event(/^event: (.*)$/m.exec(frame)?.[1] ?? 'message');
					if (data !== undefined && this.readyState === 1) this.dispatchEvent(Object.assign(event, { data }));
				}
			});
			response.on('error', () => {}).on('close', lost);
		});
		request.on('error', lost);
		this.#request = request;
	}

	close(): void {
		this.readyState = Source.CLOSED;
		this.#request?.destroy();
	}
}
