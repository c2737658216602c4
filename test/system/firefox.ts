/** Debian's Firefox, driven by its own WebDriver BiDi port over `ws`: playwright-core asks this release for commands that it does not have. */
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import axe from 'axe-core';
import { onTestFinished } from 'vitest';
import { WebSocket } from 'ws';
import { findProgram } from './programs.ts';

export interface FirefoxPage {
	/** Evaluates JavaScript in the page. @throws Error with what the page threw. */
	evaluate<T>(script: string): Promise<T>;
	/** Waits until the script is true; asks once each animation frame, in the page. @throws Error after 30 s. */
	until(script: string): Promise<void>;
	/** Presses keys as a keyboard does: each character, `\uE007` for Enter. */
	type(keys: string): Promise<void>;
	/** Taps the middle of an element with a finger. */
	tap(selector: string): Promise<void>;
	chooseFile(selector: string, file: string): Promise<void>;
	/** What axe finds wrong with the page as it is, one line each. */
	findBarriers(): Promise<string[]>;
	resize(width: number, height: number): Promise<void>;
	/** Keeps a PNG. */
	picture(file: string): Promise<void>;
}

export interface FirefoxScreen {
	readonly width: number;
	readonly height: number;
	/** The languages that it asks for, best first: `de-DE, en`. */
	readonly languages?: string;
	readonly dark?: boolean;
}

interface Remote {
	readonly type: string;
	readonly value?: unknown;
}

/** Starts a Firefox with a profile of its own, opens the page in it, and ends it with the test. */
export async function openInFirefox(
	url: string,
	{ width, height, languages = 'en-GB', dark = false }: FirefoxScreen,
): Promise<FirefoxPage> {
	const profile = mkdtempSync(join(tmpdir(), 'firefox-'));
	const preferences = {
		'intl.accept_languages': languages,
		'layout.css.prefers-color-scheme.content-override': dark ? 0 : 1,
		'ui.prefersReducedMotion': 1,
		'browser.shell.checkDefaultBrowser': false,
		'media.navigator.streams.fake': true,
		'media.navigator.permission.disabled': true,
	};
	const lines = Object.entries(preferences).map(([name, value]) => `user_pref("${name}", ${JSON.stringify(value)});`);
	writeFileSync(join(profile, 'user.js'), lines.join('\n'));
	const args = ['--headless', '--no-remote', '--remote-debugging-port=0', '--profile', profile, 'about:blank'];
	const firefox = spawn(findProgram('firefox-esr'), args, {
		stdio: ['ignore', 'ignore', 'pipe'],
		env: { ...process.env, HOME: profile },
	});
	onTestFinished(async () => {
		firefox.kill('SIGKILL');
		if (firefox.exitCode === null && firefox.signalCode === null)
			await new Promise((ended) => firefox.once('exit', ended));
		rmSync(profile, { recursive: true, force: true, maxRetries: 5 });
	});
	const send = await connect(await portOf(firefox));
	await send('session.new', { capabilities: {} });
	const { context } = await send<{ context: string }>('browsingContext.create', { type: 'tab' });
	const resize = async (width: number, height: number) => {
		await send('browsingContext.setViewport', { context, viewport: { width, height }, devicePixelRatio: 1 });
	};
	await resize(width, height);
	await send('browsingContext.navigate', { context, url, wait: 'complete' });

	async function run(script: string): Promise<Remote & { sharedId?: string }> {
		const answer = await send<{ type: string; result: Remote; exceptionDetails?: { text: string } }>(
			'script.evaluate',
			{
				expression: script,
				target: { context },
				awaitPromise: true,
			},
		);
		if (answer.exceptionDetails) throw new Error(answer.exceptionDetails.text);
		return answer.result;
	}
	async function evaluate<T>(script: string): Promise<T> {
		const { value } = await run(`(async () => JSON.stringify((await (${script})) ?? null))()`);
		return JSON.parse(String(value)) as T;
	}
	const perform = (id: string, more: object, actions: readonly object[]) =>
		send('input.performActions', { context, actions: [{ id, ...more, actions }] });
	const page: FirefoxPage = {
		evaluate,
		async until(script) {
			const isTrue = await evaluate<boolean>(`new Promise((done) => {
				const end = performance.now() + 30_000;
				const look = () => { if (${script}) done(true); else if (performance.now() > end) done(false); else setTimeout(look, 20); };
				look();
			})`);
			if (!isTrue)
				throw new Error(`Not within 30 s: ${script}. The page shows: ${await evaluate('document.body.innerText')}`);
		},
		async type(keys) {
			const actions = [...keys].flatMap((value) => [
				{ type: 'keyDown', value },
				{ type: 'keyUp', value },
			]);
			await perform('keyboard', { type: 'key' }, actions);
		},
		async tap(selector) {
			const at = await evaluate<{ x: number; y: number }>(`(() => {
				const element = document.querySelector(${JSON.stringify(selector)});
				element.scrollIntoView({ block: 'nearest' });
				const { x, y, width, height } = element.getBoundingClientRect();
				return { x: Math.round(x + width / 2), y: Math.round(y + height / 2) };
			})()`);
			const finger = { type: 'pointer', parameters: { pointerType: 'touch' } };
			await perform('finger', finger, [
				{ type: 'pointerMove', ...at },
				{ type: 'pointerDown', button: 0 },
				{ type: 'pointerUp', button: 0 },
			]);
		},
		async chooseFile(selector, file) {
			const { sharedId } = await run(`document.querySelector(${JSON.stringify(selector)})`);
			await send('input.setFiles', { context, element: { sharedId }, files: [file] });
		},
		async findBarriers() {
			await run(axe.source);
			return evaluate(
				"axe.run().then(({ violations }) => violations.flatMap(({ id, nodes }) => nodes.map(({ html }) => id + ': ' + html)))",
			);
		},
		resize,
		async picture(file) {
			const { data } = await send<{ data: string }>('browsingContext.captureScreenshot', { context });
			writeFileSync(file, Buffer.from(data, 'base64'));
		},
	};
	await page.until("document.body.dataset.state !== 'unknown'");
	return page;
}

/** Firefox says on standard error where it listens. */
async function portOf(firefox: ChildProcess): Promise<string> {
	const told: string[] = [];
	for await (const line of createInterface({ input: firefox.stderr as NodeJS.ReadableStream })) {
		const url = /WebDriver BiDi listening on (ws:\S+)/.exec(line)?.[1];
		if (url) return `${url}/session`;
		told.push(line);
	}
	throw new Error(`Firefox did not start: ${told.join(' ')}`);
}

type Send = <T>(method: string, params: object) => Promise<T>;

async function connect(url: string): Promise<Send> {
	const socket = new WebSocket(url, { perMessageDeflate: false });
	onTestFinished(() => socket.terminate());
	const waiting = new Map<number, { done: (result: never) => void; fail: (error: Error) => void; method: string }>();
	socket.on('message', (data) => {
		const message = JSON.parse(String(data)) as { id?: number; result?: never; error?: string; message?: string };
		const asked = waiting.get(message.id ?? -1);
		if (!asked) return;
		waiting.delete(message.id ?? -1);
		if (message.error === undefined) asked.done(message.result as never);
		else asked.fail(new Error(`${asked.method}: ${message.error}: ${message.message}`));
	});
	await new Promise((opened, failed) => socket.once('open', opened).once('error', failed));
	let last = 0;
	return (method, params) =>
		new Promise((done, fail) => {
			last += 1;
			waiting.set(last, { done, fail, method });
			socket.send(JSON.stringify({ id: last, method, params }));
		});
}
