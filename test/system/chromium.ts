/** Debian's chromium, driven over its DevTools protocol: one browser, pages in it, what they say and ask for. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

type Answer = Record<string, unknown>;

export interface Page {
	send(method: string, parameters?: Record<string, unknown>): Promise<Answer>;
	/** The value of an expression in the page; waits for a promise. */
	evaluate<Value>(expression: string): Promise<Value>;
	/** Resolves when the expression becomes true; looks after every change of the page. */
	until(expression: string): Promise<void>;
	/** Presses a key as a keyboard does. */
	press(key: string): Promise<void>;
	screenshot(): Promise<Buffer>;
	/** Every URL that was asked for. */
	readonly asked: readonly string[];
	/** Errors and violations on the console. */
	readonly complaints: readonly string[];
}

export interface Browser {
	open(url: string, screen: { width: number; height: number; dark?: boolean }): Promise<Page>;
	close(): Promise<void>;
}

/** @param camera a .y4m file that its camera shows. */
export async function startChromium(camera: string): Promise<Browser> {
	const profile = mkdtempSync(join(tmpdir(), 'chromium-'));
	const child = spawn(
		'chromium',
		[
			'--headless=new',
			'--no-sandbox',
			'--disable-gpu',
			'--no-first-run',
			'--disable-background-networking',
			'--remote-debugging-port=0',
			`--user-data-dir=${profile}`,
			'--use-fake-ui-for-media-stream',
			'--use-fake-device-for-media-stream',
			`--use-file-for-fake-video-capture=${camera}`,
			'about:blank',
		],
		{ stdio: ['ignore', 'ignore', 'pipe'] },
	);
	const socket = new WebSocket(await devToolsUrl(child));
	await new Promise((resolve, reject) => {
		socket.addEventListener('open', resolve, { once: true });
		socket.addEventListener('error', reject, { once: true });
	});

	let lastId = 0;
	const waiting = new Map<number, { resolve: (answer: Answer) => void; reject: (error: Error) => void }>();
	const listeners = new Map<string, (method: string, parameters: Answer) => void>();
	socket.addEventListener('message', ({ data }) => {
		const message = JSON.parse(String(data));
		if (message.id === undefined) listeners.get(message.sessionId)?.(message.method, message.params);
		else if (message.error) waiting.get(message.id)?.reject(new Error(message.error.message));
		else waiting.get(message.id)?.resolve(message.result);
	});
	const send = (method: string, params: Record<string, unknown> = {}, sessionId?: string) =>
		new Promise<Answer>((resolve, reject) => {
			lastId += 1;
			waiting.set(lastId, { resolve, reject });
			socket.send(JSON.stringify({ id: lastId, method, params, sessionId }));
		});

	return {
		async open(url, { width, height, dark = false }) {
			const { targetId } = await send('Target.createTarget', { url: 'about:blank' });
			const { sessionId } = (await send('Target.attachToTarget', { targetId, flatten: true })) as { sessionId: string };
			const asked: string[] = [];
			const complaints: string[] = [];
			listeners.set(sessionId, (method, parameters) => {
				const { request, entry, exceptionDetails } = parameters as {
					request?: { url: string };
					entry?: { level: string; text: string };
					exceptionDetails?: { exception?: { description?: string }; text: string };
				};
				if (method === 'Network.requestWillBeSent' && request) asked.push(request.url);
				if (method === 'Log.entryAdded' && entry?.level === 'error') complaints.push(entry.text);
				if (exceptionDetails) complaints.push(exceptionDetails.exception?.description ?? exceptionDetails.text);
			});
			const page: Page = {
				asked,
				complaints,
				send: (method, parameters) => send(method, parameters, sessionId),
				async evaluate<Value>(expression: string) {
					const answer = (await page.send('Runtime.evaluate', {
						expression,
						awaitPromise: true,
						returnByValue: true,
						userGesture: true,
					})) as { result: { value: Value }; exceptionDetails?: { exception?: { description?: string } } };
					if (answer.exceptionDetails) throw new Error(answer.exceptionDetails.exception?.description ?? expression);
					return answer.result.value;
				},
				until: (expression) =>
					page.evaluate(`new Promise((resolve) => {
						const look = () => { if (${expression}) { observer.disconnect(); resolve(); } };
						const observer = new MutationObserver(look);
						observer.observe(document, { subtree: true, childList: true, attributes: true, characterData: true });
						look();
					})`),
				async press(key) {
					const text = key === 'Enter' ? '\r' : key.length === 1 ? key : '';
					await page.send('Input.dispatchKeyEvent', {
						type: 'keyDown',
						key,
						...(text && { text }),
						...(key === 'Enter' && { windowsVirtualKeyCode: 13 }),
					});
					await page.send('Input.dispatchKeyEvent', { type: 'keyUp', key });
				},
				async screenshot() {
					const { data } = (await page.send('Page.captureScreenshot', { captureBeyondViewport: true })) as {
						data: string;
					};
					return Buffer.from(data, 'base64');
				},
			};
			for (const domain of ['Page', 'Runtime', 'Log', 'Network', 'DOM']) await page.send(`${domain}.enable`);
			await page.send('Emulation.setDeviceMetricsOverride', { width, height, deviceScaleFactor: 1, mobile: false });
			await page.send('Emulation.setEmulatedMedia', {
				features: [{ name: 'prefers-color-scheme', value: dark ? 'dark' : 'light' }],
			});
			await page.send('Page.navigate', { url });
			await page.until("document.body?.dataset.state && document.body.dataset.state !== 'unknown'");
			return page;
		},
		async close() {
			const ended = once(child, 'exit');
			await send('Browser.close').catch(() => {});
			socket.close();
			await ended;
			rmSync(profile, { recursive: true, force: true, maxRetries: 5 });
		},
	};
}

async function devToolsUrl(child: ChildProcess): Promise<string> {
	if (!child.stderr) throw new Error('It has no standard error.');
	for await (const line of createInterface({ input: child.stderr })) {
		const url = /DevTools listening on (ws:\S+)/.exec(line)?.[1];
		if (url) {
			child.stderr.resume();
			return url;
		}
	}
	throw new Error('chromium ended without a word.');
}
