/** Every state and dialog of the page, on every screen, in every language and two browsers, with the longest that sites put on it, before a faked agent. */
import { mkdirSync } from 'node:fs';
import { join, resolve } from 'node:path';
import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { readPairingCode } from '../../src/protocol/pairing-code.ts';
import { PAGE_LANGUAGES } from '../../src/settings/table.ts';
import { givenPageAgent, VIEW } from '../page/screen.ts';
import { findBarriers, launchChromium } from './chromium.ts';
import { openInFirefox } from './firefox.ts';
import { isShort, openPage } from './page-device.ts';

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
const unpaired = {
	standing: 'first',
	status: { ...status, state: 'unpaired', summary: { code: 'unpaired', params: {} } },
} as const;
const LONGEST = `${`${'mw'.repeat(30)}.`.repeat(3)}id.example.com.uk`;
const proposal = { id: 1, host, baseUrl: `https://${host}`, workflowId: ID };
/** Each with what a person presses in it to get further, if that is not the agent's doing, and what is to be on the screen at once. */
const DIALOGS: Record<string, { readonly view: View; readonly press?: string; readonly step: readonly string[] }> = {
	enter: {
		view: { ...unpaired, pinNeed: 'nothing' },
		press: "document.getElementById('start').click()",
		step: ['code', 'close'],
	},
	confirm: { view: { ...unpaired, pinNeed: 'nothing', proposal }, step: ['host', 'yes', 'no'] },
	pin: { view: { ...unpaired, pinNeed: 'pin', proposal: { ...proposal, id: 2 } }, step: ['pin', 'yes', 'no'] },
	longest: {
		view: {
			...unpaired,
			pinNeed: 'pin',
			proposal: { id: 4, host: LONGEST, baseUrl: `https://${LONGEST}`, workflowId: 'w'.repeat(128) },
		},
		step: ['pin', 'pad', 'yes', 'no'],
	},
	workflows: {
		view: { ...unpaired, pinNeed: 'nothing', proposal: { ...proposal, id: 3, workflowId: null } },
		press: "document.getElementById('confirm').requestSubmit()",
		step: ['workflow-list', 'yes', 'no'],
	},
};
const STEP = ['state-word', 'sentence', 'next', 'start', 'retry', 'hotline'];
const LANGUAGES = PAGE_LANGUAGES.filter((tag) => tag !== 'auto');
/** Pixels that are left of the height of a screen by a dialog: above and below it. */
const SPARE = 40;
/** Where pictures are left for a person to look at, if there is such a place. */
const SHOTS = process.env['SHOTS'] ? resolve(process.env['SHOTS']) : null;
if (SHOTS) mkdirSync(SHOTS, { recursive: true });

/** What a browser does here. */
interface Shown {
	evaluate<T>(script: string): Promise<T>;
	until(script: string): Promise<void>;
	resize(width: number, height: number): Promise<void>;
	findBarriers(): Promise<string[]>;
	picture(file: string): Promise<void>;
}
/** @throws Error that says what the browser did not answer. */
function answered<T>(asked: string, answer: Promise<T>): Promise<T> {
	let timer: NodeJS.Timeout | undefined;
	const late = new Promise<never>((_resolve, reject) => {
		timer = setTimeout(() => reject(new Error(`the browser has not answered in 30 s: ${asked}`)), 30_000);
	});
	return Promise.race([answer, late]).finally(() => clearTimeout(timer));
}
const BROWSERS: Record<string, (url: string) => Promise<Shown>> = {
	async Chromium(url) {
		const page = await openPage(browser, url, { width: 800, height: 480 });
		return {
			evaluate: (script) => answered(script, page.evaluate(script)),
			until: (script) => expect.poll(() => page.evaluate(script), { timeout: 30_000 }).toBe(true),
			resize: (width, height) => answered('a change of size', page.setViewportSize({ width, height })),
			findBarriers: () => answered('a look for barriers', findBarriers(page)),
			picture: async (path) => void (await page.screenshot({ path })),
		};
	},
	Firefox: (url) => openInFirefox(url, { width: 800, height: 480 }),
};
const RUNS = Object.keys(BROWSERS).flatMap((name) => LANGUAGES.map((language) => [name, language] as const));

/** The ids of those that are shown and not wholly on the screen, and what is wider than its place. */
const cutOff = (ids: readonly string[], spare: number) => `new Promise((done) => {
	// A browser without a screen may draw nothing after a change; what is measured is laid out all the same.
	const drawn = new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
	Promise.race([drawn, new Promise((resolve) => setTimeout(resolve, 2000))]).then(() => {
	const out = ${JSON.stringify(ids)}.filter((id) => {
		const one = document.getElementById(id);
		if (!one.checkVisibility() || (one.textContent === '' && !one.matches('input, select'))) return false;
		const { top, bottom, left, right } = one.getBoundingClientRect();
		return top < -1 || left < -1 || bottom > innerHeight + 1 - ${spare / 2} || right > innerWidth + 1;
	});
	const { scrollWidth, clientWidth, scrollHeight, clientHeight } = document.getElementById('pairing');
	if (scrollWidth > clientWidth) out.push('dialog');
	// Its buttons would lie over what is left of it.
	if (scrollHeight > clientHeight + 1) out.push(\`\${scrollHeight - clientHeight} px to scroll\`);
	const [code, label] = ['qr', 'label'].map((id) => document.getElementById(id).getBoundingClientRect());
	const isOut = ({ top, bottom, left, right }) => top < -1 || left < -1 || bottom > innerHeight + 1 || right > innerWidth + 1;
	if (code.top < innerHeight && isOut(label)) out.push('label');
	if (document.documentElement.scrollWidth > innerWidth) out.push('page');
	done(out);
}); })`;

test.each(isShort ? RUNS.filter(([name, tag]) => tag === (name === 'Firefox' ? 'ar' : 'de')) : RUNS)(
	'next step, button and hotline are on every screen at once, and so is the step of every dialog: %s, %s',
	// A browser can stand still; a fault of the page fails twice.
	{ timeout: 600_000 },
	async (name, language) => {
		const agent = await givenPageAgent();
		let told = 0;
		const tell = (more: View) => {
			told += 1;
			const view = { ...VIEW, ...more, language, support: SUPPORT };
			agent.tell({ ...view, status: { ...view.status, deviceId: idOf(told), serial: ID } });
			return `document.getElementById('name').textContent === '${idOf(told)}'`;
		};
		tell({});
		const page = await BROWSERS[name]?.(agent.url);
		if (!page) return;
		await page.until(`document.documentElement.lang === '${language}'`);
		const found: unknown[] = [];
		async function look(state: string, step: readonly string[]): Promise<void> {
			for (const [width, height] of isShort ? SIZES.filter((_size, index) => index % 2 === 0) : SIZES)
				for (const zoom of [1, 2]) {
					await page?.resize(width / zoom, height / zoom);
					await page?.until(`innerWidth === ${width / zoom}`);
					// The letters of another machine may be larger.
					const out = await page?.evaluate<string[]>(
						cutOff(step, zoom === 1 && step !== STEP && state !== 'longest' ? SPARE : 0),
					);
					if (SHOTS) await page?.picture(join(SHOTS, `${name}-${language}-${width}x${height}-${zoom}-${state}.png`));
					const barriers = isShort && (width !== 800 || zoom === 2) ? [] : await page?.findBarriers();
					if (out?.length || barriers?.length)
						found.push([state, width, height, zoom, ...(out ?? []), ...(barriers ?? [])]);
				}
		}
		for (const [state, view] of Object.entries(STATES)) {
			await page.until(tell(view));
			await look(state, STEP);
		}
		agent.answer('/api/pair', 400, {
			code: 'workflow-missing',
			params: {
				workflows: JSON.stringify([
					{ id: ID, name: 'w'.repeat(10_000) },
					{ id: 'b', name: 'Check out' },
				]),
			},
		});
		for (const [state, { view, press, step }] of Object.entries(DIALOGS)) {
			await page.until(tell(view));
			if (press) await page.evaluate(press);
			await page.until(`${JSON.stringify(step)}.every((id) => document.getElementById(id).checkVisibility())`);
			await look(state, step);
			await page.until(tell({}));
		}
		agent.tell('cut');
		await page.until("document.body.dataset.state === 'silent'");
		await look('silent', STEP);
		expect(found).toEqual([]);
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
