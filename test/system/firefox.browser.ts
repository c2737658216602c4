/** The page in a second browser, whose engine is another one: pairing by keys, by finger and by picture, in two directions of writing. */
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { type FirefoxPage, type FirefoxScreen, openInFirefox } from './firefox.ts';
import { givenPageDevice, isShort, type PageDevice, PIN, savePairingCode } from './page-device.ts';

const ENTER = '\uE007';
const TAB = '\uE004';
const PICTURES = process.env['PAGE_PICTURES'] ?? resolve(import.meta.dirname, '../../build/pictures');

const isState = (state: string) => `document.body.dataset.state === '${state}'`;
const shows = (selector: string) => `document.querySelector('${selector}').checkVisibility()`;

async function openPage(device: PageDevice, screen: FirefoxScreen): Promise<FirefoxPage> {
	mkdirSync(PICTURES, { recursive: true });
	return openInFirefox(device.pageUrl, screen);
}

/** Keeps a picture, and looks at what a person could stumble over. */
async function keep(page: FirefoxPage, name: string): Promise<void> {
	if (!isShort) await page.picture(join(PICTURES, `firefox-${name}.png`));
	expect(await page.evaluate('document.documentElement.scrollWidth - innerWidth')).toBeLessThanOrEqual(0);
	expect(await page.findBarriers()).toEqual([]);
}

/** Types the PIN with a finger and says yes. */
async function confirm(page: FirefoxPage, device: PageDevice): Promise<void> {
	await page.until(shows('#yes'));
	expect(await page.evaluate("document.getElementById('host').textContent")).toBe(new URL(device.service.url).host);
	for (const digit of PIN) await page.tap(`#pad :nth-child(${digit === '0' ? 11 : digit})`);
	await page.tap('#yes');
	await page.until(isState('online'));
	expect(device.registrations()).toBe(1);
}

test('a keyboard alone pairs, wherever the focus is', async () => {
	const device = await givenPageDevice({ support: 'Hotline 0800 123' });
	const page = await openPage(device, { width: 800, height: 480 });
	await keep(page, 'low-unpaired');
	await page.type(device.code());
	await page.type(ENTER);
	await page.until(shows('#yes'));
	await keep(page, 'low-confirm');
	await page.type(TAB);
	await page.type(PIN);
	await page.type(ENTER);
	await page.until(isState('online'));
	expect(device.registrations()).toBe(1);
	await page.until(`${shows('#note')} && document.activeElement.id === 'status'`);
	await keep(page, 'low-online');
});

test.each(
	[
		['de', 'Nicht gekoppelt', 1080, 1920, true],
		['ar', 'غير مقترن', 390, 844, false],
	].slice(isShort ? 1 : 0) as [string, string, number, number, boolean][],
)('in %s a person pairs by finger', async (language, unpaired, width, height, dark) => {
	const device = await givenPageDevice({ support: 'Hotline 0800 123' });
	const page = await openPage(device, { width, height, dark, languages: `${language}, en` });
	expect(await page.evaluate("document.getElementById('state-word').textContent")).toBe(unpaired);
	expect(await page.evaluate('document.documentElement.dir')).toBe(language === 'ar' ? 'rtl' : 'ltr');
	await keep(page, `${language}-unpaired`);
	await page.tap('#start');
	await page.until("document.activeElement.id === 'code'");
	await page.type(device.code());
	await page.type(ENTER);
	await confirm(page, device);
	await keep(page, `${language}-online`);
});

test.skipIf(isShort)('a picture pairs, and the camera shows what it sees', async () => {
	const device = await givenPageDevice();
	const files = mkdtempSync(join(tmpdir(), 'page-'));
	onTestFinished(() => rmSync(files, { recursive: true, force: true }));
	const page = await openPage(device, { width: 1920, height: 1080 });
	await page.tap('#start');
	await page.tap('#camera-start');
	await page.until("document.getElementById('video').dataset.seen !== undefined");
	await page.tap('#camera-stop');
	await page.until(`!${shows('#video')}`);
	await page.chooseFile('#picture', await savePairingCode(device.service, files));
	await confirm(page, device);
	await keep(page, 'wide-online');
});
