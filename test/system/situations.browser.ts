/** The page on the device's screen in a real browser: what happens to a device, to a code, to the page itself, and from other pages. */
import { once } from 'node:events';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Page } from 'playwright-core';
import { describe, expect, onTestFinished, test } from 'vitest';
import { MAX_STREAMS } from '../../src/page/page.runner.ts';
import { follow } from '../cli/command.ts';
import { findBarriers, REBOUND_HOST } from './chromium.ts';
import {
	browserOfFile,
	confirmAndPair,
	givenPageDevice,
	isShort,
	keep,
	LOW,
	openPage,
	type PageDevice,
	PHONE,
	PIN,
	TALL,
	untilState,
} from './page-device.ts';

const ofFile = browserOfFile();

describe('a device that its service refuses', () => {
	test('is rescued at the screen with a code of its own service, and with no other', async () => {
		const device = await givenPageDevice();
		const page = await openPage(ofFile.browser, device.pageUrl, LOW);
		expect((await device.pair(device.code(), '--trust', device.service.url)).status).toBe(0);
		await untilState(page, 'online');
		expect(await page.locator('#start').isVisible()).toBe(false);
		device.service.revoke('KIOSK-7');
		// The agent takes its time between refusals; three of them open the way.
		await expect
			.poll(
				async () => {
					await device.home.agent(['reconnect']);
					return page.locator('#start').isVisible();
				},
				{ timeout: 30_000 },
			)
			.toBe(true);
		await page.locator('#next').getByText('Wait a few minutes; if it lasts, tell your support.').waitFor();
		await keep(page, 'low-service-refuses');
		await page.locator('#start').click();
		await page.locator('#code').fill(device.code('face-check'));
		await page.keyboard.press('Enter');
		await page.getByRole('alert').getByText('A code for the same service and workflow is needed').waitFor();
		await page.locator('#code').fill(`${device.code()}&sessionId=0123456789abcdef01234567`);
		await page.keyboard.press('Enter');
		await page.getByRole('alert').getByText('This device is paired already.').waitFor();
		expect(device.registrations()).toBe(1);
		await page.locator('#code').fill(device.code());
		await page.keyboard.press('Enter');
		await page.getByRole('heading', { name: 'Connect this device to its service again?' }).waitFor();
		await confirmAndPair(page, device);
		expect(await device.home.status()).toMatchObject({ state: 'online', workflow: { live: 'document-check' } });
	});
});

describe('situations at the screen', () => {
	/** Types a code at the screen and reads the answer there. */
	async function type(page: Page, code: string, answer: RegExp): Promise<void> {
		await page.locator('#code').fill(code);
		await page.keyboard.press('Enter');
		await page.getByRole('alert').getByText(answer).waitFor();
	}

	/** Types the right PIN while it is asked for; what the page says. */
	async function tryPin(page: Page): Promise<string | null> {
		if (await page.locator('#pin').isVisible()) {
			await page.locator('#pin').fill(PIN);
			await page.keyboard.press('Enter');
		}
		return page.locator('#answer').textContent();
	}

	test('every code that does not work gets a friendly line, and the next one pairs', async () => {
		const device = await givenPageDevice();
		const page = await openPage(ofFile.browser, device.pageUrl, LOW);
		await page.locator('#start').click();
		await type(
			page,
			'https://www.example.com/menu',
			/^This is the code of a web page\. The code was not used\. Scan the pairing code/,
		);
		await type(page, '4006381333931', /^This is a bar code of a product or a label\./);
		await type(page, 'BEGIN:VCARD', /^This is the code of a contact\./);
		await type(page, 'shelf label 12', /^This is not a pairing code\./);
		await type(page, 'tr-0123456789abcdefghijklmnop12', /^This code does not say which service it is for\./);
		await type(page, 'http://192.0.2.7/mobile?authorization=Token%20tr-0123456789abcdef', /address that is not safe/);
		const used = device.code();
		await page.locator('#code').fill(used.replace(/tr-[^&]+/, 'tr-0123456789012345678901234567'));
		await page.keyboard.press('Enter');
		await page.locator('#pin').fill('000000');
		for (const words of [/PIN is wrong/, /PIN is wrong/, /PIN is wrong/, /Try again in .?5 seconds/]) {
			await page.locator('#pin').fill('000000');
			await page.keyboard.press('Enter');
			await page.getByRole('alert').getByText(words).waitFor();
		}
		await expect
			.poll(async () => (await device.home.status()).warnings.map(({ code }) => code))
			.toContain('access-denied');
		await expect
			.poll(() => tryPin(page), { timeout: 20_000, interval: 1000 })
			.toMatch(/^This code has expired, was used before or is not whole\. Scan or type the whole code once more/);
		await page.locator('#code').fill(device.code(null));
		await page.keyboard.press('Enter');
		await page.locator('#workflow').fill('document-check');
		await page.locator('#workflow').press('Tab');
		await confirmAndPair(page, device);
	});

	test.skipIf(isShort)(
		'a code that names no workflow pairs with one of those that the service lists, by finger',
		async () => {
			const dialect = { workflowNames: { 'check-in': 'Check in', 'check-out': 'Check out' }, codesNameWorkflow: false };
			const device = await givenPageDevice({}, {}, { dialect, workflows: undefined });
			for (const [name, screen, locale] of [
				['low', LOW, 'en-GB'],
				['phone', PHONE, 'ar-EG'],
			] as const) {
				const page = await openPage(ofFile.browser, device.pageUrl, { ...screen, locale });
				await page.locator('#start').click();
				await page.locator('#code').fill(device.service.createPairingCode(null).url);
				await page.keyboard.press('Enter');
				for (const digit of PIN) await page.locator('#pad').getByText(digit, { exact: true }).click();
				await page.locator('#yes').click();
				await page.locator('#workflow-list').selectOption('check-out');
				await keep(page, `${name}-workflows`);
				if (screen === PHONE) {
					await page.locator('#yes').click();
					await untilState(page, 'online');
				} else await page.keyboard.press('Escape');
			}
			expect(await device.home.status()).toMatchObject({ workflow: { live: 'check-out' } });
		},
	);

	test('a bare token just works on a device that knows its service', async () => {
		const device = await givenPageDevice();
		const { port } = new URL(device.pageUrl);
		await device.home.writeSettings({ page: { port: Number(port) }, baseUrl: device.service.url });
		await expect
			.poll(async () => ((await (await fetch(`${device.pageUrl}api/view`)).json()) as { pinNeed: string }).pinNeed)
			.toBe('nothing');
		const page = await openPage(ofFile.browser, device.pageUrl, LOW);
		const token = new URL(device.code()).searchParams.get('authorization')?.split(' ')[1] ?? '';
		await page.locator('#start').click();
		await page.locator('#code').fill(token);
		await page.keyboard.press('Enter');
		await page.locator('#workflow').fill('document-check');
		await page.locator('#yes').click();
		await untilState(page, 'online');
	});
});

test('the language of the settings comes before that of the browser, and a person can choose another', async () => {
	const device = await givenPageDevice({ language: 'fr' });
	const page = await openPage(ofFile.browser, device.pageUrl, { ...LOW, locale: 'de-DE' });
	await page.getByRole('heading', { name: 'Non appairé' }).waitFor();
	await page.locator('#language').selectOption('ar');
	await page.getByRole('heading', { name: 'غير مقترن' }).waitFor();
	expect(await findBarriers(page)).toEqual([]);
});

test('at 200 % zoom and in forced colours everything can be reached and read', async () => {
	const device = await givenPageDevice({ support: 'Hotline 0800 123' });
	const zoomed = await openPage(ofFile.browser, device.pageUrl, { width: 400, height: 240 });
	await keep(zoomed, 'zoomed');
	await zoomed.locator('#start').click();
	await keep(zoomed, 'zoomed-enter');
	const page = await openPage(ofFile.browser, device.pageUrl, { ...LOW, forcedColors: 'active' });
	await keep(page, 'low-forced');
	await page.locator('#start').click();
	await keep(page, 'low-forced-enter');
});

test('a code that is scanned just after a language was chosen, and ends with Tab, is asked about [F1414]', async () => {
	const device = await givenPageDevice();
	const page = await openPage(ofFile.browser, device.pageUrl, LOW);
	await page.locator('#language').focus();
	await page.keyboard.press('ArrowDown');
	await page.keyboard.type(device.code());
	await page.keyboard.press('Tab');
	await page.locator('#confirm').waitFor();
	expect(await page.locator('#code').inputValue()).toBe('');
});

test('a code that is scanned while the PIN is asked for is no PIN, and presses no button [F1411]', async () => {
	const device = await givenPageDevice();
	const page = await openPage(ofFile.browser, device.pageUrl, LOW);
	await page.locator('#start').click();
	await page.keyboard.type(`${device.code()}\n`);
	await page.locator('#pin').waitFor();
	for (const focused of ['#pairing-title', '#pin', '#yes', '#pad :first-child']) {
		await page.locator(focused).focus();
		// Ends with digits, as a PIN does.
		await page.keyboard.type(`${device.code()}12345\n`);
		await page.getByRole('alert').getByText('Type the PIN of this site.').waitFor();
		expect(await page.locator('#pin').inputValue(), focused).toBe('');
	}
	expect(device.registrations()).toBe(0);
	await confirmAndPair(page, device);
	expect(device.registrations()).toBe(1);
});

test('a device without a PIN that knows no service says why it cannot be paired here', async () => {
	const device = await givenPageDevice({ pinFile: null });
	const page = await openPage(ofFile.browser, device.pageUrl, LOW);
	await page.getByText('This device cannot be paired on the screen').first().waitFor();
	expect(await page.locator('#start').isVisible()).toBe(false);
	await keep(page, 'low-no-pin');
});

test('an agent that is gone is said to be, and the page goes on by itself when it is back', async () => {
	const device = await givenPageDevice();
	const page = await openPage(ofFile.browser, device.pageUrl, LOW);
	await device.daemon.end('SIGKILL');
	// Only now: a running agent would read the new settings at once, and close the page for a moment.
	await device.home.writeSettings({ page: { port: Number(new URL(device.pageUrl).port) } });
	await untilState(page, 'silent');
	expect(await page.getByRole('button', { name: 'Try now' }).isVisible()).toBe(false);
	await keep(page, 'low-silent');
	await device.home.run();
	await untilState(page, 'unpaired');
});

test('a silent client cannot lock the page: the newest window gets in, and one that made room opens again', async () => {
	const device = await givenPageDevice();
	const page = await openPage(ofFile.browser, device.pageUrl, LOW);
	const ended = page.waitForResponse((response) => response.url().endsWith('/api/live'));
	const others = Array.from({ length: MAX_STREAMS }, () => http.get(new URL('/api/live', device.pageUrl)));
	await Promise.all(others.map((other) => once(other, 'response')));
	await ended;
	await untilState(page, 'unpaired');
	for (const other of others) other.on('error', () => {}).destroy();
});

test('contents of notifications are shown where a site has switched them on', async () => {
	const device = await givenPageDevice({ contents: true });
	const page = await openPage(ofFile.browser, device.pageUrl, TALL);
	expect((await device.pair(device.code(), '--trust', device.service.url)).status).toBe(0);
	device.service.notify({ type: 'session.started', name: '<img src=x onerror=alert(1)>' });
	await page.getByText('<img src=x onerror=alert(1)>').waitFor({ state: 'attached' });
	await keep(page, 'tall-contents');
});

test('the last day is drawn and put into words, and moves on while nothing happens', async () => {
	const device = await givenPageDevice();
	const page = await openPage(ofFile.browser, device.pageUrl, LOW);
	expect((await device.pair(device.code(), '--trust', device.service.url)).status).toBe(0);
	await untilState(page, 'online');
	await page.clock.install();
	await page.reload();
	await untilState(page, 'online');
	await page.clock.fastForward('25:00');
	const told = /^Online for .?25 minutes.? of the last .?25 minutes.?\.$/;
	await page.locator('#timeline-words').getByText(told).waitFor({ state: 'attached' });
	expect(await page.locator('#timeline').getAttribute('aria-label')).toMatch(told);
	await keep(page, 'low-hour');
});

test.skipIf(isShort)('the demo tells its story on its page as well', async () => {
	const demo = follow('idv-agent', ['demo'], {});
	const line = await demo.untilLine(/page for the device's own screen/);
	const page = await openPage(ofFile.browser, line.match(/http:\S+/)?.[0] ?? '', LOW);
	await demo.untilLine(/That was the whole story/);
	await page.locator('#facts').getByText('face-check').first().waitFor({ state: 'attached' });
	await page.getByText('session.started').first().waitFor({ state: 'attached' });
	await keep(page, 'low-demo');
});

describe("another site's page", () => {
	/** What a page of another origin got when it tried. */
	async function tryFrom(origin: string, device: PageDevice, attempt: string): Promise<unknown> {
		const context = await ofFile.browser.newContext();
		onTestFinished(() => context.close());
		const page = await context.newPage();
		await page.goto(origin);
		return page.evaluate(`(async () => { const target = ${JSON.stringify(device.pageUrl)}; ${attempt} })()`);
	}

	/** Somebody else's web server. */
	async function givenStranger(body = '<!doctype html><title>A stranger</title>'): Promise<string> {
		const server = http.createServer((_request, response) => {
			response.writeHead(200, { 'content-type': 'text/html' }).end(body);
		});
		await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening));
		onTestFinished(() => {
			server.closeAllConnections();
			server.close();
		});
		return `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
	}

	const body = (device: PageDevice) => JSON.stringify({ code: device.code(), trustOrigin: device.service.url });

	test('can neither read the state nor pair, whatever kind of request it makes', async () => {
		const device = await givenPageDevice();
		const stranger = await givenStranger();
		const posting = (type: string, mode: string) =>
			`const answer = await fetch(target + 'api/pair', { method: 'POST', mode: '${mode}', headers: { 'content-type': '${type}' },
				body: ${JSON.stringify(body(device))} }).catch((error) => ({ type: error.name })); return answer.type;`;
		expect(await tryFrom(stranger, device, posting('application/json', 'cors'))).toBe('TypeError');
		expect(await tryFrom(stranger, device, posting('text/plain', 'no-cors'))).toBe('TypeError');
		const reading = "return fetch(target + 'api/view').then((answer) => answer.text(), (error) => error.name)";
		expect(await tryFrom(stranger, device, reading)).toBe('TypeError');
		const listening =
			"return new Promise((done) => { const live = new EventSource(target + 'api/live'); live.onopen = () => done('open'); live.onerror = () => done('refused'); })";
		expect(await tryFrom(stranger, device, listening)).toBe('refused');
		expect((await device.home.status()).state).toBe('unpaired');
		expect(device.registrations()).toBe(0);
	});

	test('can neither post a form to it nor put it into a frame', async () => {
		const device = await givenPageDevice();
		const form = await givenStranger(
			`<!doctype html><form method="post" enctype="text/plain" action="${device.pageUrl}api/pair"><input name='${body(device).slice(0, -1)},"pin' value='":""}'></form>`,
		);
		const context = await ofFile.browser.newContext();
		onTestFinished(() => context.close());
		const page = await context.newPage();
		await page.goto(form);
		const answer = page.waitForResponse((response) => response.url().endsWith('/api/pair'));
		await page.evaluate('document.forms[0].submit()');
		expect((await answer).status()).toBe(403);

		const framing = await context.newPage();
		await framing.goto(await givenStranger(`<!doctype html><iframe src="${device.pageUrl}"></iframe>`));
		const frame = framing.frames().at(-1);
		expect(frame?.url()).not.toBe(framing.url());
		expect(await frame?.locator('#state-word').count()).toBe(0);
		expect(device.registrations()).toBe(0);
	});

	test('cannot reach it under a name of its own that leads to this machine', async () => {
		const device = await givenPageDevice();
		const context = await ofFile.browser.newContext();
		onTestFinished(() => context.close());
		const page = await context.newPage();
		const rebound = device.pageUrl.replace('127.0.0.1', REBOUND_HOST);
		expect((await page.goto(rebound))?.status()).toBe(403);
		const status = await page.evaluate(
			(json) =>
				fetch('/api/pair', { method: 'POST', headers: { 'content-type': 'application/json' }, body: json }).then(
					(answer) => answer.status,
				),
			body(device),
		);
		expect(status).toBe(403);
		expect(await page.content()).not.toContain('KIOSK-7');
		expect(device.registrations()).toBe(0);
	});
});
