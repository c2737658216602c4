/** Every state of the page, on every screen, in every language, with the longest that sites put on it, before a faked agent. */
import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { readPairingCode } from '../../src/protocol/pairing-code.ts';
import { PAGE_LANGUAGES } from '../../src/settings/table.ts';
import { givenPageAgent, VIEW } from '../page/screen.ts';
import { findBarriers, launchChromium } from './chromium.ts';
import { openPage } from './page-device.ts';

let browser: Browser;
beforeAll(async () => {
	browser = await launchChromium();
});
afterAll(() => browser?.close());

const SIZES = [
	[800, 480],
	[1024, 600],
	[1080, 1920],
	[1920, 1080],
	[360, 640],
] as const;
const ID = 'KIOSK-0123456789-ABCDEFGHIJKLMNOPQRSTUVWXYZ-abcdefghijklmnopqrst';
/** Another for each view, to know which is shown. */
const idOf = (count: number) => `${ID.slice(0, -4)}${1000 + count}`;
const SUPPORT =
	'Call 0800 123 456 78 (Mon to Fri, 8 am to 6 pm; on Sundays the duty officer of the airport, 0800 876 543 21), '.padEnd(
		200,
		'or write to help@example.com; ',
	);
const { status } = VIEW;
const host = `${'h'.repeat(50)}.example.com`;
const problem = (code: string, recovers = false) => ({ code, message: 'x', remedy: 'y', recovers });
type View = Partial<typeof VIEW>;
const STATES: Record<string, View> = {
	online: {},
	moving: { status: { ...status, summary: { code: 'online-waiting', params: { nextWorkflowId: ID, seconds: 7200 } } } },
	offline: {
		status: {
			...status,
			state: 'offline',
			summary: { code: 'offline', params: { host, seconds: 7300, problem: 'certificate-expired' } },
			problem: problem('certificate-expired', true) as never,
		},
	},
	refused: {
		standing: 'refused',
		status: {
			...status,
			state: 'blocked',
			summary: { code: 'blocked', params: { problem: 'credential-refused' } },
			problem: problem('credential-refused') as never,
		},
	},
	copied: {
		standing: 'copy',
		status: {
			...status,
			state: 'blocked',
			summary: { code: 'blocked', params: { problem: 'identity-changed' } },
			problem: problem('identity-changed') as never,
		},
	},
	unpaired: {
		standing: 'first',
		status: { ...status, state: 'unpaired', summary: { code: 'unpaired-uncertain', params: { host } } },
	},
	closed: {
		standing: 'first',
		pinNeed: 'setting',
		status: { ...status, state: 'unpaired', summary: { code: 'unpaired', params: {} } },
	},
	connecting: { status: { ...status, state: 'connecting', summary: { code: 'connecting', params: { host } } } },
};
const LANGUAGES = PAGE_LANGUAGES.filter((tag) => tag !== 'auto');
/** CI has less time. */
const isShort = process.env['BROWSER'] === 'short';

test.each(LANGUAGES)(
	'the next step, its button and the hotline are on every screen at once: %s',
	{ timeout: 300_000 },
	async (language) => {
		const agent = await givenPageAgent();
		let told = 0;
		const tell = (more: View) => {
			told += 1;
			const view = { ...VIEW, ...more, language, support: SUPPORT };
			agent.tell({ ...view, status: { ...view.status, deviceId: idOf(told), serial: ID } });
		};
		tell({});
		const page = await openPage(browser, agent.url, { width: 800, height: 480 });
		await page.locator(`html[lang="${language}"]`).waitFor();
		const hidden: unknown[] = [];
		for (const [width, height] of SIZES)
			for (const zoom of [1, 2]) {
				await page.setViewportSize({ width: width / zoom, height: height / zoom });
				for (const [name, state] of Object.entries(STATES)) {
					tell(state);
					const code = state.status?.summary.code ?? 'online';
					await page.locator('#name').getByText(idOf(told), { exact: true }).waitFor();
					const out = await page.evaluate<
						string[]
					>(`new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(
					['state-word', 'sentence', 'next', 'start', 'retry', 'hotline'].filter((id) => {
						const one = document.getElementById(id);
						if (!one.checkVisibility() || one.textContent === '') return false;
						const { top, bottom, left, right } = one.getBoundingClientRect();
						return top < 0 || left < -1 || bottom > innerHeight + 1 || right > innerWidth + 1;
					})))))`);
					if (process.env['SHOTS'])
						await page.screenshot({ path: `/tmp/front/shot-${language}-${width}x${height}-${zoom}-${name}.png` });
					if (out.length > 0) hidden.push([name, code, width, height, zoom, ...out]);
				}
				expect(await page.evaluate('document.documentElement.scrollWidth - innerWidth')).toBeLessThanOrEqual(0);
				if (!isShort) expect(await findBarriers(page)).toEqual([]);
			}
		expect(hidden).toEqual([]);
	},
);

test('the code with the name of the device has a label, and is no pairing code to a scanner', async () => {
	const agent = await givenPageAgent();
	agent.tell({ status: { ...status, deviceId: 'kiosk-0123456789abcdef', serial: null } });
	const page = await openPage(browser, agent.url, { width: 800, height: 480 });
	await page.getByText('Name of the device, not a pairing code').waitFor();
	const { readPicture } = await import('../../src/scanning/picture-reader.edge.ts');
	const [text] = await readPicture(await page.locator('#qr').screenshot());
	expect(text).toBe('Device: kiosk-0123456789abcdef');
	expect(readPairingCode(text ?? '').kind).toBe('notACode');
});
