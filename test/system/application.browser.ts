/** Kiosk software in a real browser: the lines of docs/kiosk-software.md, from the page that is meant and from a stranger's. */
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { givenAgent, givenHome, givenPairedAgent } from '../harness/harness.ts';
import { givenService } from '../service/fixture.ts';
import { launchChromium } from './chromium.ts';

const TOKEN = 'lobby-token-0123456789012345678901';

let browser: Browser;

beforeAll(async () => {
	browser = await launchChromium();
});
afterAll(() => browser?.close());

function exampleOfDocument(): string {
	const text = readFileSync(new URL('../../docs/kiosk-software.md', import.meta.url), 'utf8');
	const [, code] = /<!-- example: browser -->\n```js\n(.*?)\n```/s.exec(text) ?? [];
	return code ?? expect.fail('docs/kiosk-software.md has no example for the browser');
}

/** A page with the example on an origin of its own; what it shows stands in its list. */
async function givenPage(agentUrl: () => string): Promise<string> {
	const server = createServer((_request, response) => {
		const code = exampleOfDocument()
			.replace('http://127.0.0.1:8766', agentUrl().replace(/\/$/, ''))
			.replace("'…'", `'${TOKEN}'`);
		response.setHeader('Connection', 'close');
		response.setHeader('Content-Type', 'text/html; charset=utf-8');
		response.end(`<!doctype html><title>kiosk</title><ul></ul><script>
			const show = (text) => document.querySelector('ul').append(Object.assign(document.createElement('li'), { textContent: text }));
			addEventListener('error', ({ message }) => show('failed: ' + message));
		</script><script type="module">${code}</script>`);
	});
	await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
	onTestFinished(async () => {
		server.closeAllConnections();
		await new Promise((resolve) => server.close(resolve));
	});
	return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

async function visit(url: string): Promise<Page> {
	const page = await browser.newPage();
	onTestFinished(() => page.close());
	await page.goto(url);
	return page;
}

const untilShown = (page: Page, text: string) => page.getByText(text).first().waitFor();

test('the page of a known origin reads the status and follows the events, over a restart of the agent', async () => {
	const service = await givenService();
	const home = await givenHome();
	let agentUrl = '';
	const origin = await givenPage(() => agentUrl);
	const applicationsFile = await home.secretFile('applications', `lobby ${origin} ${TOKEN}`);
	const settings = (port: number) => ({ local: { http: { port, applicationsFile } } });
	const device = await givenPairedAgent(service, { home, settings: settings(0) });
	agentUrl = device.daemon.addresses.browser ?? '';

	const page = await visit(origin);
	await untilShown(page, 'Online with');
	service.notify({ type: 'session.started', id: 'n-1' });
	await untilShown(page, 'session.started');

	await device.stop();
	await home.writeSettings(settings(Number(new URL(agentUrl).port)));
	const again = await givenAgent({ home, clock: device.clock });
	await again.untilState('online');
	service.notify({ type: 'session.ended', id: 'n-2' });
	await untilShown(page, 'session.ended');
	const shown = await page.locator('li').allTextContents();
	expect(shown.filter((text) => text.startsWith('session.'))).toEqual(['session.started', 'session.ended']);
	await page.close();
});

test('the page that is loaded before the agent listens, or while all its waits are taken, follows as soon as it may [F1594]', async () => {
	const service = await givenService();
	const home = await givenHome();
	let agentUrl = '';
	const origin = await givenPage(() => agentUrl);
	const applicationsFile = await home.secretFile('applications', `lobby ${origin} ${TOKEN} waits=1`);
	const settings = (port: number) => ({ local: { http: { port, applicationsFile } } });
	const device = await givenPairedAgent(service, { home, settings: settings(0) });
	agentUrl = device.daemon.addresses.browser ?? '';
	await device.stop();
	const page = await visit(origin);
	await home.writeSettings(settings(Number(new URL(agentUrl).port)));
	const again = await givenAgent({ home, clock: device.clock });
	await again.untilState('online');
	await untilShown(page, 'Online with');
	const second = await visit(origin);
	await page.close();
	await untilShown(second, 'Online with');
	await second.close();
});

test('a page of another origin learns nothing, not even with the token, and moves nothing', async () => {
	const home = await givenHome();
	const applicationsFile = await home.secretFile('applications', `lobby https://lobby.example.com ${TOKEN}`);
	const device = await givenAgent({
		home,
		settings: { local: { metricsPort: 0, http: { port: 0, applicationsFile } } },
	});
	const { browser: agentUrl, metrics } = device.daemon.addresses;
	const page = await visit(await givenPage(() => agentUrl ?? ''));
	const outcomes = await page.evaluate<string[]>(`Promise.all([
		fetch('${metrics}metrics').then((answer) => 'read ' + answer.status, (error) => error.name),
		fetch('${metrics}metrics', { mode: 'no-cors' }).then(async (answer) => answer.type + (await answer.text()), (error) => error.name),
		fetch('${agentUrl}v1/leases', { method: 'POST', mode: 'no-cors', body: '{"name":"evil"}' }).then((answer) => answer.type, (error) => error.name),
		fetch('${agentUrl}v1/status?access_token=${TOKEN}').then((answer) => 'read ' + answer.status, (error) => error.name),
	])`);
	expect(outcomes).toEqual(['TypeError', 'opaque', 'opaque', 'TypeError']);
	expect(device.agent.leases.list().leases).toEqual([]);
	expect(await page.locator('li').allTextContents()).toEqual([]);
	await page.close();
});
