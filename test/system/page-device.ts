/** A real agent with its page, an embedded service for it, and the page open in a browser, as the browser suite wants them. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, expect, onTestFinished } from 'vitest';
import { ENDPOINTS, endpointUrl } from '../../src/protocol/endpoints.ts';
import type { EmbeddedService, ServiceOptions } from '../../src/service/embedded-service.runner.ts';
import type { RunningCommand } from '../cli/command.ts';
import { asProcess, type Device, givenDevice } from '../cli/device.ts';
import { findBarriers, launchChromium } from './chromium.ts';

export interface PageDevice extends Device<RunningCommand> {
	readonly pageUrl: string;
}

export const TALL = { width: 1080, height: 1920 };
export const LOW = { width: 800, height: 480 };
export const PHONE = { width: 390, height: 844 };
/** Where pictures of the page are left for a person to look at. */
const PICTURES = process.env['PAGE_PICTURES'] ?? resolve(import.meta.dirname, '../../build/pictures');

/** The PIN of the site. */
export const PIN = '471100';

/** Runs `idv-agent run` with its page on a free port and the site's PIN; it trusts no service yet. */
export async function givenPageDevice(
	page: object = {},
	more: object = {},
	service: ServiceOptions = {},
): Promise<PageDevice> {
	const directory = mkdtempSync(join(tmpdir(), 'pin-'));
	onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
	const pinFile = join(directory, 'pin');
	writeFileSync(pinFile, `${PIN}\n`, { mode: 0o600 });
	const settings = { deviceType: 'kiosk', page: { port: 0, pinFile, ...page }, ...more };
	const device = await givenDevice({ settings, service }, asProcess);
	const line = await device.daemon.untilLine(/"msg":"page at /);
	const pageUrl = /page at (\S+?)"/.exec(line)?.[1] ?? '';
	return { ...device, pageUrl };
}

export interface Screen {
	readonly width: number;
	readonly height: number;
	readonly dark?: boolean;
	/** Of the browser. */
	readonly locale?: string;
	readonly forcedColors?: 'active' | 'none';
}

/** Opens the page. At the end of the test it must have complained about nothing and asked nobody else for anything. */
export async function openPage(
	browser: Browser,
	url: string,
	{ width, height, dark = false, locale = 'en-GB', forcedColors = 'none' }: Screen,
): Promise<Page> {
	const context = await browser.newContext({
		viewport: { width, height },
		colorScheme: dark ? 'dark' : 'light',
		locale,
		forcedColors,
		reducedMotion: 'reduce',
	});
	const page = await context.newPage();
	const complaints: string[] = [];
	const strangers: string[] = [];
	page.on('console', (message) => {
		// The browser calls an answer that refuses, and an agent that is gone, errors as well.
		if (message.type() === 'error' && !message.text().startsWith('Failed to load resource'))
			complaints.push(message.text());
	});
	page.on('pageerror', (error) => complaints.push(String(error)));
	page.on('request', (request) => {
		if (!request.url().startsWith(url) && !/^(?:data|blob):/.test(request.url())) strangers.push(request.url());
	});
	onTestFinished(async () => {
		await context.close();
		expect(complaints).toEqual([]);
		expect(strangers).toEqual([]);
	});
	await page.goto(url);
	await page.locator('body:not([data-state="unknown"])').waitFor();
	return page;
}

/** A fresh pairing code as the service draws it. */
export async function savePairingCode(service: EmbeddedService, directory: string, name = 'code.png'): Promise<string> {
	const url = endpointUrl(service.url, ENDPOINTS.pairingCode);
	url.searchParams.set('workflowId', 'document-check');
	const answer = await fetch(url, { headers: { authorization: `Bearer ${service.credentials.bearer}` } });
	expect(answer.status).toBe(200);
	const file = join(directory, name);
	writeFileSync(file, Buffer.from(await answer.arrayBuffer()));
	return file;
}

/** Waits until the page shows the state. */
export async function untilState(page: Page, state: string): Promise<void> {
	await page.locator(`body[data-state="${state}"]`).waitFor();
}

/** One browser and one directory for a whole file. To be called once, at its top. */
export function browserOfFile(): { readonly browser: Browser; readonly files: string } {
	let browser: Browser;
	let files: string;
	beforeAll(async () => {
		files = mkdtempSync(join(tmpdir(), 'page-'));
		mkdirSync(PICTURES, { recursive: true });
		browser = await launchChromium();
	});
	afterAll(async () => {
		await browser?.close();
		rmSync(files, { recursive: true, force: true });
	});
	return {
		get browser() {
			return browser;
		},
		get files() {
			return files;
		},
	};
}

/** CI has less time: Arabic is paired in Firefox, layout.browser.ts looks at every screen of each language, and no person at pictures. */
export const isShort = process.env['BROWSER'] === 'short';

/** Keeps a picture, and looks at what a person could stumble over. */
export async function keep(page: Page, name: string): Promise<void> {
	// As it is on the screen: what has to be pressed next must not have to be looked for.
	if (!isShort) await page.screenshot({ path: join(PICTURES, `${name}.png`) });
	expect(await page.evaluate('document.documentElement.scrollWidth - innerWidth')).toBeLessThanOrEqual(0);
	expect(await findBarriers(page)).toEqual([]);
}

/** Types the PIN with a finger and says yes: one confirmation. */
export async function confirmAndPair(page: Page, { service }: PageDevice): Promise<void> {
	await page.locator('#host').getByText(new URL(service.url).host, { exact: true }).waitFor();
	for (const digit of PIN) await page.locator('#pad').getByText(digit, { exact: true }).click();
	await expectInView(page, '#yes');
	await page.locator('#yes').click();
	await untilState(page, 'online');
}

export async function expectInView(page: Page, selector: string): Promise<void> {
	const box = await page.locator(selector).boundingBox();
	const { height } = page.viewportSize() ?? { height: 0 };
	expect(box?.y, `the upper edge of ${selector}`).toBeGreaterThanOrEqual(0);
	expect((box?.y ?? 0) + (box?.height ?? 0), `the lower edge of ${selector}`).toBeLessThanOrEqual(height);
}
