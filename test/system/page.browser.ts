import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { EMPTY_STATE } from '../../src/core/device-state.ts';
import { decidePairing } from '../../src/core/pairing-rules.ts';
import { openPageServer, type PageEvent } from '../../src/edges/page-server.ts';
import type { PairRequest, Status } from '../../src/protocol/local-api.ts';
import { type Bitmap, drawCode, encodePng, prepareWriter } from '../fixtures/pictures/draw.ts';
import { type Browser, type Page, startChromium } from './chromium.ts';

const TOKEN = 'tr-0123456789012345678901234567';
const CODE = `https://id.example.com/mobile?authorization=Token%20${TOKEN}&workflowId=onboarding`;
const TALL = { width: 1080, height: 1920 };
const LOW = { width: 800, height: 480 };
/** Where pictures of the page are left for a person to look at. */
const PICTURES = process.env['PAGE_PICTURES'] ?? path.join(os.tmpdir(), 'idv-agent-page');

let browser: Browser;
let files: string;
let picture: string;

beforeAll(async () => {
	files = fs.mkdtempSync(path.join(os.tmpdir(), 'page-'));
	fs.mkdirSync(PICTURES, { recursive: true });
	await prepareWriter();
	const code = await drawCode(CODE);
	picture = path.join(files, 'code.png');
	fs.writeFileSync(picture, encodePng(code));
	const camera = path.join(files, 'camera.y4m');
	fs.writeFileSync(camera, encodeY4m(centred(code, 640, 480)));
	browser = await startChromium(camera);
});

afterAll(async () => {
	await browser.close();
	fs.rmSync(files, { recursive: true });
});

function centred(part: Bitmap, width: number, height: number): Bitmap {
	const pixels = new Uint8Array(width * height).fill(255);
	const left = (width - part.width) >> 1;
	const top = (height - part.height) >> 1;
	for (let y = 0; y < part.height; y += 1)
		pixels.set(part.pixels.subarray(y * part.width, (y + 1) * part.width), (top + y) * width + left);
	return { width, height, pixels };
}

/** One grey frame of uncompressed video. */
function encodeY4m({ width, height, pixels }: Bitmap): Buffer {
	const luma = Buffer.from(pixels.map((shade) => 16 + Math.round((shade * 219) / 255)));
	return Buffer.concat([
		Buffer.from(`YUV4MPEG2 W${width} H${height} F10:1 Ip A1:1 C420jpeg\nFRAME\n`),
		luma,
		Buffer.alloc((width * height) / 2, 128),
	]);
}

const unpaired: Status = {
	schemaVersion: 1,
	state: 'unpaired',
	sentence: 'Not paired: scan a pairing code, or run idv-agent pair.',
	agentVersion: '0.1.0',
	startedAt: new Date().toISOString(),
	deviceId: 'kiosk-berlin-0042',
	deviceType: 'kiosk',
	serial: 'PF3XK0RT',
	macAddress: '00:1b:21:0a:0b:0c',
	baseUrl: null,
	workflow: { wanted: null, live: null, waitsUntil: null, source: null },
	channel: { state: 'none', since: null, lastHeartbeatAt: null, reconnects: 0, nextAttemptAt: null },
	plan: null,
	sessionId: null,
	pairedAt: null,
	problem: null,
	warnings: [],
	newestEventId: null,
};

/** An agent in name only behind a real page server; what codes would do is decided by the real rules. */
async function device({ pin = null }: { pin?: string | null } = {}) {
	let status = unpaired;
	let listener = () => {};
	let nowMs = Date.now() - 3_500_000;
	const events: PageEvent[] = [];
	const paired: PairRequest[] = [];
	const become = (next: Partial<Status>, afterMs = 0) => {
		nowMs += afterMs;
		status = { ...status, ...next };
		listener();
	};
	const server = await openPageServer({
		port: 0,
		status: () => status,
		onStatus(call) {
			listener = call;
			return () => {};
		},
		recentEvents: () => events,
		inspect: (asked) =>
			decidePairing({ ...asked, replace: false }, {
				settings: { baseUrl: null, pairing: { trustedOrigins: [] } },
				configured: null,
				state: EMPTY_STATE,
				pairedWith: null,
			} as Parameters<typeof decidePairing>[1]).preview,
		async pair(asked) {
			paired.push(asked);
			become({
				state: 'online',
				sentence: 'Online with id.example.com, workflow onboarding.',
				baseUrl: 'https://id.example.com',
				pairedAt: new Date().toISOString(),
				workflow: { wanted: 'onboarding', live: 'onboarding', waitsUntil: null, source: 'pairing' },
			});
			return {
				baseUrl: 'https://id.example.com',
				deviceId: 'kiosk',
				workflowId: 'onboarding',
				sessionId: null,
				online: true,
				sentence: 'Online.',
			};
		},
		pin: () => pin,
		wallMs: () => nowMs,
	});
	onTestFinished(() => server.close());
	return { url: server.url, paired, events, become, close: server.close };
}

async function open(url: string, screen: { width: number; height: number; dark?: boolean }): Promise<Page> {
	const page = await browser.open(url, screen);
	onTestFinished(async () => {
		// The browser calls an answer that refuses an error as well.
		expect(page.complaints.filter((text) => !text.startsWith('Failed to load resource'))).toEqual([]);
		expect(page.asked.filter((asked) => !asked.startsWith(url) && !/^(?:data|blob):/.test(asked))).toEqual([]);
		await page.send('Page.close').catch(() => {});
	});
	return page;
}

async function keep(page: Page, name: string): Promise<void> {
	fs.writeFileSync(path.join(PICTURES, `${name}.png`), await page.screenshot());
}

const click = (page: Page, id: string) => page.evaluate(`document.getElementById('${id}').click()`);
const shown = (id: string) => `!document.getElementById('${id}').hidden`;

/** From a code that was read to a device that is online: trust the host, then pair. */
async function confirmAndPair(page: Page): Promise<void> {
	await page.until(`${shown('preview')} && document.getElementById('pair').dataset.step === 'trust'`);
	expect(await page.evaluate("document.getElementById('preview-title').textContent")).toContain('id.example.com');
	await click(page, 'pair');
	await page.until("document.getElementById('pair').dataset.step === 'pair'");
	await click(page, 'pair');
	await page.until("document.body.dataset.state === 'online'");
}

describe.each([
	['tall', TALL],
	['low', LOW],
])('on a %s screen', (name, screen) => {
	test('a keyboard scanner pairs from wherever the focus is, and the state changes live', async () => {
		const { url, paired } = await device();
		const page = await open(url, screen);
		await keep(page, `${name}-unpaired`);
		await page.evaluate('document.activeElement.blur()');
		for (const key of CODE) await page.press(key);
		await page.press('Enter');
		await page.until(shown('preview'));
		await keep(page, `${name}-preview`);
		await confirmAndPair(page);
		expect(paired).toEqual([{ code: CODE, trustOrigin: 'https://id.example.com', replace: false }]);
		expect(await page.evaluate("document.getElementById('pairing').hidden")).toBe(true);
		expect(await page.evaluate('document.documentElement.outerHTML')).not.toContain(TOKEN);
		expect(await page.evaluate('[...document.querySelectorAll("input")].map(({ value }) => value).join("")')).toBe('');
	});

	test('a picture of the code pairs', async () => {
		const { url, paired } = await device();
		const page = await open(url, screen);
		const { root } = (await page.send('DOM.getDocument')) as { root: { nodeId: number } };
		const { nodeId } = await page.send('DOM.querySelector', { nodeId: root.nodeId, selector: '#picture' });
		await page.send('DOM.setFileInputFiles', { nodeId, files: [picture] });
		await confirmAndPair(page);
		expect(paired).toHaveLength(1);
	});

	test('the camera sees the code and pairs, and is off afterwards', async () => {
		const { url, paired } = await device();
		const page = await open(url, screen);
		await click(page, 'camera-start');
		await confirmAndPair(page);
		expect(paired).toHaveLength(1);
		expect(await page.evaluate("document.getElementById('video').srcObject")).toBeNull();
	});

	test.each([false, true])('shows a device at work (dark: %s), and nothing is wider than the screen', async (dark) => {
		const { url, events, become } = await device();
		const page = await open(url, { ...screen, dark });
		const at = new Date().toISOString();
		for (const kind of ['session.started', 'document.captured', 'session.completed'])
			events.push({ id: kind, at, kind });
		become({ state: 'connecting' }, 60_000);
		become({ state: 'online' }, 60_000);
		become({ state: 'offline' }, 1_500_000);
		become(
			{
				state: 'online',
				sentence: 'Online with id.example.com, workflow onboarding.',
				baseUrl: 'https://id.example.com',
				pairedAt: at,
				workflow: { wanted: 'onboarding', live: 'onboarding', waitsUntil: null, source: 'pairing' },
				channel: { ...unpaired.channel, state: 'online', lastHeartbeatAt: at },
				warnings: [
					{
						code: 'clock-wrong',
						message: "This device's clock is 7 min slow.",
						remedy: "Set this device's clock, or let it reach a time server.",
					},
				],
			},
			300_000,
		);
		await page.until("document.querySelectorAll('#events li').length === 3");
		await page.until("document.querySelectorAll('#timeline i').length >= 5");
		await keep(page, `${name}-online${dark ? '-dark' : ''}`);
		expect(await page.evaluate('document.documentElement.scrollWidth - innerWidth')).toBeLessThanOrEqual(0);
	});
});

describe('also', () => {
	test('a wrong PIN costs nothing, the right one pairs', async () => {
		const { url, paired } = await device({ pin: '4711' });
		const page = await open(url, LOW);
		await page.evaluate("document.getElementById('code').focus()");
		await page.send('Input.insertText', { text: CODE });
		await page.press('Enter');
		await page.until("document.getElementById('pair').dataset.step === 'trust'");
		await click(page, 'pair');
		await page.until(shown('pin-field'));
		await page.evaluate("document.getElementById('pin').value = '1'");
		await click(page, 'pair');
		await page.until("document.getElementById('answer').textContent.includes('PIN is wrong')");
		await keep(page, 'low-pin');
		await page.evaluate("document.getElementById('pin').value = '4711'");
		await click(page, 'pair');
		await page.until("document.body.dataset.state === 'online'");
		expect(paired).toHaveLength(1);
	});

	test('a code that is none is refused in words, and an agent that is gone is said to be', async () => {
		const { url, close } = await device();
		const page = await open(url, LOW);
		await page.send('Input.insertText', { text: 'just a shelf label' });
		await page.press('Enter');
		await page.until("document.getElementById('answer').textContent.includes('not a pairing code')");
		await close();
		await page.until("document.body.dataset.state === 'silent'");
		await keep(page, 'low-silent');
	});

	test('everything that can be pressed is large enough for a finger and has a name', async () => {
		const { url } = await device();
		const page = await open(url, LOW);
		const small = await page.evaluate<string[]>(`[...document.querySelectorAll('button, input:not(.unseen), .button')]
			.filter((element) => element.checkVisibility())
			.filter((element) => element.getBoundingClientRect().height < 44)
			.map((element) => element.id)`);
		expect(small).toEqual([]);
		const { nodes } = (await page.send('Accessibility.getFullAXTree')) as {
			nodes: { ignored: boolean; role?: { value: string }; name?: { value: string } }[];
		};
		const nameless = nodes.filter(
			({ ignored, role, name }) =>
				!ignored && /^(?:button|textbox|image|heading|region)$/.test(role?.value ?? '') && !name?.value,
		);
		expect(nameless).toEqual([]);
	});
});
