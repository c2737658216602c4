/** The page on the device's screen in a real browser: pairing on each screen and in each language, by keyboard, finger, picture and camera. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Page } from 'playwright-core';
import { describe, expect, onTestFinished, test } from 'vitest';
import { drawCode, encodePng, prepareWriter, sideBySide } from '../fixtures/pictures/draw.ts';
import { filmPicture, launchChromium } from './chromium.ts';
import {
	browserOfFile,
	confirmAndPair,
	expectInView,
	givenPageDevice,
	isShort,
	keep,
	LOW,
	openPage,
	type PageDevice,
	PHONE,
	PIN,
	savePairingCode,
	TALL,
	untilState,
} from './page-device.ts';

const ofFile = browserOfFile();

const SCREENS = [
	['tall', TALL],
	['low', LOW],
] as const;
const WIDE = { width: 1920, height: 1080 };
const ALL_SCREENS = [...SCREENS, ['wide', WIDE], ['phone', PHONE]] as const;

async function expectPaired(page: Page, device: PageDevice): Promise<void> {
	expect(await device.home.status()).toMatchObject({ state: 'online', workflow: { live: 'document-check' } });
	expect(device.registrations()).toBe(1);
	await page.locator('#pairing').waitFor({ state: 'hidden' });
	expect(await page.locator('h1').textContent()).toBe('Online');
	await page.locator('#note').getByText('Paired.').waitFor();
	await expectInView(page, '#state-word');
	expect(await page.evaluate('document.activeElement.id')).toBe('status');
	await page
		.locator('#announcement')
		.getByText('Paired. Online. Everything works. Nothing to do.')
		.waitFor({ state: 'attached' });
}

describe.each(SCREENS)('on a %s screen', (name, screen) => {
	const onAll = test.skipIf(isShort && screen === LOW);
	onAll('a keyboard alone pairs, wherever the focus is, and what happens is shown live', async () => {
		const device = await givenPageDevice({ support: 'Hotline 0800 123' });
		const page = await openPage(ofFile.browser, device.pageUrl, screen);
		const code = device.code();
		await page.evaluate('document.activeElement.blur()');
		await page.keyboard.type(code);
		await page.keyboard.press('Enter');
		await page.getByRole('heading', { name: 'Does this device belong to this service?' }).waitFor();
		await expectInView(page, '#yes');
		await keep(page, `${name}-confirm`);
		await page.keyboard.press('Tab');
		await page.keyboard.type('000000');
		await page.keyboard.press('Enter');
		await page.getByRole('alert').getByText('The PIN is wrong.').waitFor();
		expect(device.registrations()).toBe(0);
		await page.keyboard.type(PIN);
		await page.keyboard.press('Enter');
		await untilState(page, 'online');
		await expectPaired(page, device);
		// Nothing that could still pair a device is left in what a person might photograph or inspect.
		const token = new URL(code).searchParams.get('authorization')?.split(' ')[1] ?? '';
		expect(token.length).toBeGreaterThan(10);
		expect(await page.content()).not.toContain(token);
		expect(await page.evaluate("[...document.querySelectorAll('input')].map(({ value }) => value).join('')")).toBe('');

		device.service.notify({ type: 'session.started', id: 'n1', name: 'Erika Mustermann' });
		await page.getByText('session.started').waitFor({ state: 'attached' });
		expect(await page.content()).not.toContain('Mustermann');
		const { promise: mended, resolve: mend } = Promise.withResolvers<void>();
		void device.service.restart({ until: mended });
		await untilState(page, 'offline');
		await page.getByRole('button', { name: 'Try now' }).waitFor();
		await keep(page, `${name}-offline`);
		await expectInView(page, '#retry');
		mend();
		// The first try may come before the service is back; those of a person are at least five seconds apart.
		await expect
			.poll(
				async () => {
					const button = page.locator('#retry');
					if (await button.isVisible()) await button.click({ timeout: 1000 }).catch(() => {});
					return page.locator('body').getAttribute('data-state');
				},
				{ timeout: 30_000 },
			)
			.toBe('online');
		expect(await page.locator('#retry').isVisible()).toBe(false);
	});

	onAll('a picture of the code pairs, whatever else is in it; another picture gets a friendly line', async () => {
		const device = await givenPageDevice();
		const page = await openPage(ofFile.browser, device.pageUrl, screen);
		await prepareWriter();
		const picture = async (...texts: string[]) => {
			const file = join(ofFile.files, `${name}-${texts.length}.png`);
			writeFileSync(file, encodePng(sideBySide(...(await Promise.all(texts.map((text) => drawCode(text)))))));
			return file;
		};
		await page.locator('#start').click();
		await page.locator('#picture').setInputFiles(await picture('WIFI:S:guests;T:WPA;P:secret;;'));
		await page.getByRole('alert').getByText('This is a code for a Wi-Fi network.').waitFor();
		await page
			.locator('#picture')
			.setInputFiles(await picture('https://www.example.com/menu', device.code(), '4006381333931'));
		await confirmAndPair(page, device);
		await expectPaired(page, device);
	});

	onAll('the camera sees the code and pairs, and is off afterwards', async () => {
		const device = await givenPageDevice();
		const film = join(ofFile.files, `${name}.mjpeg`);
		filmPicture(await savePairingCode(device.service, ofFile.files), film);
		const withCamera = await launchChromium(film);
		onTestFinished(() => withCamera.close());
		const page = await openPage(withCamera, device.pageUrl, screen);
		await page.locator('#start').click();
		await page.evaluate(
			'const { mediaDevices } = navigator; const ask = mediaDevices.getUserMedia.bind(mediaDevices); mediaDevices.getUserMedia = (of) => (globalThis.asked = ask(of));',
		);
		await page.getByRole('button', { name: 'Camera', exact: true }).click();
		await confirmAndPair(page, device);
		await expectPaired(page, device);
		expect(await page.locator('#video').evaluate((video: { srcObject?: unknown }) => video.srcObject)).toBeNull();
		const tracks = await page.evaluate('asked.then((stream) => stream.getTracks().map((track) => track.readyState))');
		expect(tracks).toEqual(['ended']);
	});

	test.each(isShort ? [true].slice(screen === LOW ? 0 : 1) : [false, true])(
		'can be read and used by every person (dark: %s)',
		async (dark) => {
			const device = await givenPageDevice({ support: 'Hotline 0800 123' });
			const page = await openPage(ofFile.browser, device.pageUrl, { ...screen, dark });
			const tone = dark ? '-dark' : '';
			await keep(page, `${name}-unpaired${tone}`);
			await page.locator('#start').click();
			await keep(page, `${name}-enter${tone}`);
			await expectFocusToShow(page);
			const small = await page
				.locator('button:visible, input:visible:not(.unseen), .button:visible')
				.evaluateAll((all) => all.filter((one) => one.getBoundingClientRect().height < 44).map(({ id }) => id));
			expect(small).toEqual([]);

			await page.getByRole('button', { name: 'Camera', exact: true }).click();
			await page.locator('#video[data-seen]').waitFor();
			await expectInView(page, '#camera-stop');
			await keep(page, `${name}-camera${tone}`);
			await page.getByRole('button', { name: 'Stop the camera' }).click();
			await page.locator('#video').waitFor({ state: 'hidden' });

			await page.getByLabel('Type the code').fill('just a shelf label');
			await page.getByRole('button', { name: 'Continue' }).click();
			await page.getByRole('alert').getByText('This is not a pairing code.').waitFor();
			await expectInView(page, '#answer');
			await keep(page, `${name}-refused${tone}`);
			await page.keyboard.press('Escape');

			expect((await device.pair(device.code(), '--trust', device.service.url)).status).toBe(0);
			await untilState(page, 'online');
			for (let number = 1; number <= 12; number += 1) device.service.notify({ type: 'session.started', number });
			await page.locator('#events li').nth(11).waitFor({ state: 'attached' });
			await keep(page, `${name}-online${tone}`);
			await page.evaluate('document.getElementById("details").open = true');
			await keep(page, `${name}-details${tone}`);
		},
	);

	onAll('shows nothing below 24 px', async () => {
		const device = await givenPageDevice({ support: 'Hotline 0800 123' });
		const page = await openPage(ofFile.browser, device.pageUrl, screen);
		await page.evaluate('document.getElementById("details").open = true');
		await page.locator('#start').click();
		const small = await page.evaluate<string[]>(`[...document.querySelectorAll('body *')]
			.filter((one) => one.checkVisibility() && parseFloat(getComputedStyle(one).fontSize) < 24)
			.map(({ id, tagName }) => id || tagName)`);
		expect(small).toEqual([]);
	});
});

/** Every control of the open dialog that the keyboard reaches looks different when it has been reached. */
async function expectFocusToShow(page: Page): Promise<void> {
	await page.evaluate('document.activeElement.blur()');
	const looks = () =>
		page.evaluate<Record<string, string>>(`Object.fromEntries(
			[...document.querySelectorAll('#enter button, #enter input')].map((element) => {
				const seen = document.querySelector('label.button[for="' + element.id + '"]') ?? element;
				const { outlineStyle, outlineWidth, outlineColor, boxShadow } = getComputedStyle(seen);
				return [element.id || element.textContent, [outlineStyle, outlineWidth, outlineColor, boxShadow].join(' ')];
			}),
		)`);
	const calm = await looks();
	const reached: string[] = [];
	// Once around, from wherever it begins.
	for (let step = 0; step < 2 * Object.keys(calm).length; step += 1) {
		await page.keyboard.press('Tab');
		const id = await page.evaluate<string>("document.activeElement.id || document.activeElement.textContent || ''");
		if (reached.includes(id) || calm[id] === undefined) continue;
		reached.push(id);
		expect((await looks())[id], `the focus on ${id}`).not.toBe(calm[id]);
	}
	expect(reached).toEqual(expect.arrayContaining(['code', 'show-code', 'camera-start', 'picture']));
}

const LANGUAGES = [
	['en', 'en-GB', 'ltr', 'Not paired', 'Enter pairing code', 'Online'],
	['de', 'de-AT', 'ltr', 'Nicht gekoppelt', 'Kopplungscode eingeben', 'Verbunden'],
	['ar', 'ar-EG', 'rtl', 'غير مقترن', 'إدخال رمز الإقران', 'متصل'],
	['fr', 'fr-FR', 'ltr', 'Non appairé', 'Saisir le code d’appairage', 'En ligne'],
	['es', 'es-MX', 'ltr', 'Sin vincular', 'Introducir código', 'Conectado'],
] as const;

describe.each(isShort ? LANGUAGES.filter(([tag]) => tag === 'en') : LANGUAGES)(
	'in %s',
	(tag, locale, direction, unpaired, start, online) => {
		test('a person pairs by finger, from the language of the browser to the word for online', async () => {
			const device = await givenPageDevice({ support: 'Hotline 0800 123' });
			for (const [name, screen] of ALL_SCREENS.toSorted(([, screen]) => (screen === LOW ? 1 : -1))) {
				const page = await openPage(ofFile.browser, device.pageUrl, { ...screen, locale });
				await page.getByRole('heading', { name: unpaired }).waitFor();
				expect(await page.evaluate('[document.documentElement.lang, document.documentElement.dir]')).toEqual([
					tag,
					direction,
				]);
				await keep(page, `${name}-${tag}-unpaired`);
				await page.getByRole('button', { name: start }).click();
				await keep(page, `${name}-${tag}-enter`);
				await page.locator('#code').fill('nothing');
				await page.keyboard.press('Enter');
				await page.locator('#answer:not(:empty)').waitFor();
				await keep(page, `${name}-${tag}-refused`);
				await page.locator('#code').fill(device.code());
				await page.keyboard.press('Enter');
				await page.locator('#host:visible').waitFor();
				await keep(page, `${name}-${tag}-confirm`);
				if (screen === LOW) {
					await confirmAndPair(page, device);
					await page.getByRole('heading', { name: online }).waitFor();
					await keep(page, `${name}-${tag}-online`);
					await page.evaluate('document.getElementById("details").open = true');
					await keep(page, `${name}-${tag}-details`);
				} else await page.keyboard.press('Escape');
			}
		});
	},
);
