import { describe, expect, test } from 'vitest';
import { CATALOGUE, type ErrorCode } from '../../src/base/errors.ts';
import { MAX_CODE_LENGTH } from '../../src/protocol/pairing-code.ts';
import { givenScreen, type Screen, VIEW } from './screen.ts';

const LOOK = { timeout: 20_000, interval: 5 };

test('the state, the identity and what to do are shown as soon as the agent tells them', async () => {
	const { state, text, document } = await givenScreen();
	await expect.poll(state, LOOK).toBe('online');
	expect(text('state-word')).toBe('Online');
	expect(text('next')).toBe('Nothing to do.');
	expect(text('name')).toBe('kiosk-7');
	expect(document.title).toBe('Online: kiosk-7');
});

test('the last day is a bar for each state, as long as it lasted, and a sentence', async () => {
	const at = (minutes: number) => VIEW.nowMs - minutes * 60_000;
	const timeline = [
		{ fromMs: at(40), state: 'online' },
		{ fromMs: at(20), state: 'offline' },
		{ fromMs: at(10), state: 'online' },
	] as const;
	const { state, text, document } = await givenScreen({ before: ({ tell }) => tell({ timeline }) });
	await expect.poll(state, LOOK).toBe('online');
	const bars = [...document.querySelectorAll('#timeline i')].map((bar) => {
		const { dataset, style } = bar as unknown as { dataset: { state: string }; style: { flexGrow: string } };
		return [dataset.state, Math.round(Number(style.flexGrow) * 1440)];
	});
	expect(bars).toEqual([
		['none', 1400],
		['online', 20],
		['offline', 10],
		['online', 10],
	]);
	expect(text('timeline-words')).toMatch(/30 minutes.*40 minutes/);
});

test('a device that never was online says so, and not for how long', async () => {
	const timeline = [{ fromMs: VIEW.nowMs - 300_000, state: 'offline' }] as const;
	const { state, text } = await givenScreen({ before: ({ tell }) => tell({ timeline }) });
	await expect.poll(state, LOOK).toBe('online');
	expect(text('timeline-words').replaceAll(/[\u2068\u2069]/g, '')).toBe('Not online in the last 5 minutes.');
});

test('after an hour untouched the page is as it was at first: language, dialog and a half-typed code [F755]', async () => {
	const waiting = { standing: 'first', status: { ...VIEW.status, state: 'unpaired' } } as const;
	const { agent, clock, at, state, text, choose, document } = await givenScreen({
		before: ({ tell }) => tell(waiting),
	});
	await expect.poll(state, LOOK).toBe('unpaired');
	choose('de');
	await expect.poll(() => document.documentElement.lang, LOOK).toBe('de');
	at('start').click();
	at('code').value = 'https://id.example.com/mobile?auth';
	const isOpen = () => document.getElementById('pairing')?.hasAttribute('open');
	expect(isOpen()).toBe(true);
	let looks = 0;
	const pass = async (minutes: number) => {
		for (const end = looks + 6 * minutes; looks < end; looks += 1) {
			agent.tell({ ...waiting, status: { ...waiting.status, deviceId: `look-${looks}` } });
			await expect.poll(() => text('name'), LOOK).toBe(`look-${looks}`);
			clock.advance(10_000);
		}
	};
	await pass(58);
	expect([isOpen(), at('code').value.length, document.documentElement.lang]).toEqual([true, 34, 'de']);
	await pass(4);
	await expect.poll(() => document.documentElement.lang, LOOK).toBe('en');
	expect([isOpen(), at('code').value]).toEqual([false, '']);
	expect(at('language').value).toBe('en');
});

test('names of 10,000 characters, with markup and signs that turn the direction, are shown cut and as text [F756]', async () => {
	const name = `<img src=x onerror=alert(1)>\u202e${'w'.repeat(10_000)}`;
	const summary = { code: 'online-wanted', params: { nextWorkflowId: name } } as const;
	const { baseUrl } = VIEW.status;
	const status = { ...VIEW.status, summary, deviceId: name, deviceType: name, serial: `${name}1`, macAddress: name };
	const workflow = { ...VIEW.status.workflow, wanted: name, live: name };
	const proposal = { id: 1, host: 'id.example.com', baseUrl, workflowId: name };
	const { text, state, document } = await givenScreen({
		before: ({ tell }) => tell({ standing: 'first', proposal, status: { ...status, workflow, baseUrl: name } }),
	});
	await expect.poll(state, LOOK).toBe('online');
	for (const id of ['name', 'who', 'workflow-line']) expect(text(id)?.length, id).toBeLessThan(110);
	for (const fact of document.querySelectorAll('dd')) expect(fact.textContent?.length).toBeLessThan(80);
	expect(document.title.length).toBeLessThan(100);
	expect(text('sentence')).toMatch(/^The device works\. A change to <img src=x onerror=alert\(1\)>w+…w+ is pending\.$/);
	expect(text('sentence')?.length).toBeLessThan(150);
	expect(document.querySelectorAll('main img').length).toBe(0);
});

/** By code of the catalogue, for whom it is beside a device that works: a new code is sorted here first. */
const PERSON = 'person';
const SUPPORT = 'support';
const SORTED: Record<ErrorCode, typeof PERSON | typeof SUPPORT> = {
	'dns-failed': PERSON,
	'service-unreachable': PERSON,
	'connect-timeout': PERSON,
	'connection-lost': PERSON,
	'connection-replaced': SUPPORT,
	'channel-silent': PERSON,
	'channel-flapping': PERSON,
	'notifications-at-risk': PERSON,
	'duplicate-device': SUPPORT,
	'clock-wrong': PERSON,
	'tls-failed': SUPPORT,
	'proxy-failed': PERSON,
	'captive-portal': PERSON,
	'service-failed': PERSON,
	'handshake-timeout': PERSON,
	'request-timeout': PERSON,
	'registering-too-often': SUPPORT,
	'channel-occupied': PERSON,
	'poison-message': SUPPORT,
	'service-overloaded': PERSON,
	'certificate-expired': PERSON,
	'certificate-untrusted': SUPPORT,
	'certificate-wrong-host': PERSON,
	'redirect-refused': SUPPORT,
	'bad-response': SUPPORT,
	'response-too-large': SUPPORT,
	'answer-unreadable': SUPPORT,
	'credential-refused': SUPPORT,
	'connection-revoked': PERSON,
	'proxy-refused': PERSON,
	'channel-not-found': SUPPORT,
	'channel-rejected': SUPPORT,
	'request-rejected': SUPPORT,
	'workflow-unknown': SUPPORT,
	'access-forbidden': PERSON,
	'plan-unreachable': SUPPORT,
	'scanner-failed': PERSON,
	'telemetry-failed': SUPPORT,
	'credential-unreadable': SUPPORT,
	'not-a-pairing-code': PERSON,
	'code-incomplete': PERSON,
	'plan-invalid': SUPPORT,
	'plan-untrusted': SUPPORT,
	'plan-outdated': SUPPORT,
	'plan-for-other-fleet': SUPPORT,
	'plan-unattested': SUPPORT,
	'plan-expired': SUPPORT,
	'inventory-invalid': SUPPORT,
	'picture-unreadable': PERSON,
	'picture-without-code': PERSON,
	'picture-with-several-codes': PERSON,
	'provision-invalid': SUPPORT,
	'body-invalid': PERSON,
	'body-too-large': PERSON,
	'code-expired-or-used': PERSON,
	'code-for-other-origin': PERSON,
	'origin-unconfirmed': PERSON,
	'pairing-unconfirmed': PERSON,
	'insecure-origin': PERSON,
	'already-paired': PERSON,
	'scanner-denied': SUPPORT,
	'answer-withheld': SUPPORT,
	'access-denied': PERSON,
	'update-taken-back': SUPPORT,
	'update-refused': SUPPORT,
	'workflow-missing': PERSON,
	'workflow-conflict': PERSON,
	usage: SUPPORT,
	'not-found': SUPPORT,
	'method-not-allowed': SUPPORT,
	'open-to-first-comer': SUPPORT,
	'workflow-fixed': SUPPORT,
	'file-exposed': SUPPORT,
	'fleet-key-invalid': SUPPORT,
	'settings-invalid': SUPPORT,
	'credential-ending': SUPPORT,
	'settings-unreadable': SUPPORT,
	'restart-needed': SUPPORT,
	'identity-changed': PERSON,
	'pairing-uncertain': PERSON,
	'settings-not-followed': SUPPORT,
	'pairing-under-way': PERSON,
	'plan-not-followed': SUPPORT,
	'state-in-use': SUPPORT,
	'memory-low': SUPPORT,
	unpaired: PERSON,
	'agent-not-running': PERSON,
	'tools-missing': SUPPORT,
	'updates-missing': SUPPORT,
	'unit-not-ready': PERSON,
	'devices-offline': SUPPORT,
	'update-failed': SUPPORT,
	'update-not-alone': SUPPORT,
	'provision-failed': SUPPORT,
	'state-unwritable': SUPPORT,
	'state-unreadable': SUPPORT,
	'state-corrupt': SUPPORT,
	'socket-failed': SUPPORT,
	'disk-low': SUPPORT,
	'bundle-unwritable': SUPPORT,
	'update-unprepared': SUPPORT,
	internal: SUPPORT,
};

test('of a device that works a person at the screen hears only what a person there can do: every code is sorted [F777]', async () => {
	expect(Object.keys(SORTED).toSorted()).toEqual(Object.keys(CATALOGUE).toSorted());
	const { agent, text, at, document } = await givenScreen();
	for (const [count, [code, who]] of Object.entries(SORTED).entries()) {
		const deviceId = `kiosk-${count}`;
		const warnings = [{ code: code as ErrorCode, message: `of ${code}`, remedy: 'x', recovers: false }];
		agent.tell({ status: { ...VIEW.status, deviceId, warnings } as (typeof VIEW)['status'] });
		await expect.poll(() => text('name'), LOOK).toBe(deviceId);
		expect([code, at('warnings').hidden ? SUPPORT : PERSON]).toEqual([code, who]);
		// Support reads all of them.
		expect(document.getElementById('notes-list')?.textContent).toBe(`${code}: of ${code}`);
	}
});

describe('a language that cannot be loaded', () => {
	test('while the agent is away leaves the page alive, and is spoken when the agent is back [F500]', async () => {
		const { agent, state, text, choose, inSteps, document } = await givenScreen();
		await expect.poll(state, LOOK).toBe('online');
		agent.trouble('*', 'gone');
		agent.drop();
		await expect.poll(state, LOOK).toBe('silent');
		choose('de');
		await expect.poll(() => agent.asked.filter(({ path }) => path.startsWith('/languages/de')).length, LOOK).toBe(1);
		expect(text('state-word')).toBe('No answer');
		choose('fr');
		choose('de');
		agent.mend('*');
		await expect
			.poll(
				inSteps(() => [state(), document.documentElement.lang, text('state-word')]),
				LOOK,
			)
			.toEqual(['online', 'de', 'Verbunden']);
	});

	test.each(['gone', 'cut', 'refused', 'never'] as const)(
		'at the first view (%s) is English until it can be',
		async (trouble) => {
			const { agent, state, text, inSteps } = await givenScreen({
				locale: 'fr-FR',
				before: ({ trouble: cause }) => cause('/languages/fr.js', trouble),
			});
			await expect
				.poll(
					inSteps(() => [state(), text('state-word')]),
					LOOK,
				)
				.toEqual(['online', 'Online']);
			agent.tell({ status: { ...VIEW.status, state: 'offline' } });
			await expect.poll(state, LOOK).toBe('offline');
			expect(text('state-word')).toBe('Offline');
			agent.mend('/languages/fr.js');
			await expect
				.poll(
					inSteps(() => text('state-word')),
					LOOK,
				)
				.toBe('Hors ligne');
		},
	);

	test('is asked for under another address: browsers keep a failure for as long as the page is open', async () => {
		const { agent, state, choose, inSteps } = await givenScreen();
		await expect.poll(state, LOOK).toBe('online');
		agent.trouble('/languages/es.js', 'refused');
		choose('es');
		const asked = () => agent.asked.map(({ path }) => path).filter((path) => path.startsWith('/languages/es'));
		await expect
			.poll(
				inSteps(() => asked().length),
				LOOK,
			)
			.toBeGreaterThan(2);
		expect(new Set(asked()).size).toBe(asked().length);
	});

	test('and is chosen before the first view does not keep that from being shown', async () => {
		const screen = await givenScreen({ before: ({ trouble }) => trouble('/api/live', 'never') });
		screen.choose('ar');
		await expect.poll(() => screen.document.documentElement.lang, LOOK).toBe('ar');
		screen.agent.mend('/api/live');
		screen.agent.drop();
		await expect
			.poll(
				screen.inSteps(() => screen.text('state-word')),
				LOOK,
			)
			.toBe('متصل');
	});
});

describe('a stream', () => {
	test('with a view that is cut is opened again, and the page does not show the old state as the present one [F501]', async () => {
		const { agent, state, text, inSteps } = await givenScreen();
		await expect.poll(state, LOOK).toBe('online');
		agent.tell('{"nowMs":1,"status":{"sta');
		await expect.poll(state, LOOK).toBe('silent');
		expect(text('name')).toBe('kiosk-7');
		agent.tell({ status: { ...VIEW.status, state: 'connecting' } });
		await expect.poll(inSteps(state), LOOK).toBe('connecting');
		expect(agent.open).toBe(1);
	});

	test('that is open and says nothing for 15 s is no answer, and is opened again [F1161]', async () => {
		const { agent, state, clock, inSteps } = await givenScreen();
		await expect.poll(state, LOOK).toBe('online');
		clock.advance(11_000);
		expect(state()).toBe('online');
		clock.advance(4_000);
		expect(state()).toBe('silent');
		await expect.poll(inSteps(state), LOOK).toBe('online');
		expect(agent.open).toBe(1);
	});

	test('of a machine that slept is not believed when the screen is lit again, though its timers stood still [F775]', async () => {
		const { agent, state, clock, wake, inSteps } = await givenScreen();
		await expect.poll(state, LOOK).toBe('online');
		clock.sleep(8 * 3_600_000);
		expect(state()).toBe('online');
		wake();
		expect(state()).toBe('silent');
		await expect.poll(inSteps(state), LOOK).toBe('online');
		expect(agent.open).toBe(1);
	});

	test('that is refused is opened again until it is there', async () => {
		const { agent, state, clock, inSteps } = await givenScreen({
			before: ({ trouble }) => trouble('/api/live', 'refused'),
		});
		await expect.poll(state, LOOK).toBe('silent');
		clock.advance(10_000);
		agent.mend('/api/live');
		await expect.poll(inSteps(state), LOOK).toBe('online');
	});
});

test('a part that cannot be shown leaves the others in view, and is shown when it can be [F502]', async () => {
	const { agent, state, text, at } = await givenScreen();
	await expect.poll(state, LOOK).toBe('online');
	const event = { id: 'e-1', at: '2026-11-21T05:00:00.000Z', kind: 'session.started' };
	agent.tell({ lastHeartbeatAt: 'never', events: [event], status: { ...VIEW.status, state: 'offline' } });
	await expect.poll(state, LOOK).toBe('offline');
	expect(text('events')).toContain('session.started');
	agent.tell({ status: { ...VIEW.status, agentVersion: '9.9.9' } });
	await expect.poll(() => text('facts'), LOOK).toContain('9.9.9');
	expect(at('no-events').hidden).toBe(false);
});

test.each([
	['access-forbidden', 'The service does not accept this device at the moment.'],
	['request-rejected', 'The service does not accept this device at the moment.'],
	['channel-rejected', 'The service refuses the channel of this device.'],
	['channel-not-found', 'The service has no channel for this device.'],
	['redirect-refused', 'The service has moved to another address.'],
	['proxy-refused', 'The proxy of this site refuses this device.'],
	['connection-replaced', 'Another device is using the name of this one.'],
] as const)(
	'a page whose agent waits after %s asks to wait, and for the support only if it lasts [F938]',
	async (code, said) => {
		const { agent, text } = await givenScreen();
		const problem = { code, message: 'm', remedy: 'r', recovers: true };
		const summary = { code: 'offline', params: { problem: code, host: 'h', seconds: 5 } } as const;
		agent.tell({ status: { ...VIEW.status, state: 'offline', problem, summary } });
		await expect.poll(() => text('sentence'), LOOK).toContain(said);
		expect(text('next')).toContain('Wait a few minutes; if it lasts, tell your support.');
	},
);

test('a channel that the service has closed itself sends no one to the cable, and one that was cut does [F1542]', async () => {
	const { agent, text } = await givenScreen();
	const summary = { code: 'offline', params: { problem: 'connection-lost', host: 'h', seconds: 5 } } as const;
	for (const [params, next] of [
		[{ host: 'h', closeCode: 1012 }, /^Wait a few minutes; if it lasts, tell your support\./],
		[{ host: 'h' }, /^Check the network cable/],
	] as const) {
		const problem = { code: 'connection-lost', message: 'm', remedy: 'r', recovers: false, params } as const;
		agent.tell({ status: { ...VIEW.status, state: 'offline', problem, summary } });
		await expect.poll(() => text('next'), LOOK).toMatch(next);
		expect(text('sentence')).toContain('The connection was interrupted.');
	}
});

test.each([
	['access-forbidden', 'The service does not allow this device. The code may have been used: try'],
	['code-expired-or-used', 'The service does not accept this code. If it names another cause, that is under'],
])(
	'a code that was refused with %s is told as that, with the words of the service under the details [F1788]',
	async (...row) => {
		const [refusal, said] = row;
		const { agent, text } = await givenScreen();
		const params = { host: 'h', refusal, status: 403, detail: 'Device limit reached: 10 seats' };
		const summary = { code: 'unpaired-uncertain', params } as const;
		agent.tell({ standing: 'first', status: { ...VIEW.status, state: 'unpaired', summary } });
		await expect.poll(() => text('sentence'), LOOK).toContain(said);
		expect(text('notes-list')).toBe(`${refusal}: Device limit reached: 10 seats`);
	},
);

test('a device that was refused once may try again, beside another code, and a counter is not read aloud [F1308]', async () => {
	const { agent, at, text } = await givenScreen();
	const problem = { code: 'credential-refused', message: 'm', remedy: 'r', recovers: true } as const;
	const outage = (seconds: number, recovers = true) => ({
		standing: 'refusedOnce' as const,
		pinNeed: 'nothing' as const,
		status: {
			...VIEW.status,
			state: 'offline' as const,
			problem: { ...problem, recovers },
			summary: { code: 'offline', params: { problem: problem.code, host: 'h', seconds } } as const,
		},
	});
	agent.tell(outage(5));
	await expect.poll(() => text('sentence'), LOOK).toContain('5 seconds');
	expect([at('start').hidden, at('retry').hidden]).toEqual([false, false]);
	const aloud = text('announcement');
	agent.tell(outage(45));
	await expect.poll(() => text('sentence'), LOOK).toContain('45 seconds');
	expect(text('announcement')).toBe(aloud);
	agent.tell(outage(50, false));
	await expect.poll(() => at('retry').hidden, LOOK).toBe(true);
	expect(text('announcement')).not.toBe(aloud);
});

test('a Connection that was just issued and is refused asks for no other code [F1310]', async () => {
	const { agent, at, text } = await givenScreen();
	const problem = {
		code: 'credential-refused',
		message: 'm',
		remedy: 'r',
		recovers: false,
		params: { shown: 'fresh' },
	} as const;
	const summary = { code: 'offline', params: { problem: problem.code, host: 'h', seconds: 5 } } as const;
	agent.tell({
		standing: 'refusedOnce',
		pinNeed: 'nothing',
		status: { ...VIEW.status, state: 'offline', problem, summary },
	});
	await expect.poll(() => text('sentence'), LOOK).toContain('does not accept this device at the moment.');
	expect(text('next')).toBe('Call your support and read out what is shown under “Details”.');
	expect(at('retry').hidden).toBe(false);
});

test('a device whose clock is wrong is not told that nothing is to be done, and says it aloud [F1309]', async () => {
	const { agent, text } = await givenScreen();
	const warning = { code: 'clock-wrong', message: 'm', remedy: 'r' } as const;
	agent.tell({ status: { ...VIEW.status, warnings: [warning] } });
	await expect.poll(() => text('warnings'), LOOK).toContain('The clock of this device is wrong.');
	expect(text('next')).toBe('');
	expect(text('announcement')).toContain('Set the date and time of this device.');
});

test.each([
	[
		true,
		'The service does not accept this device at the moment.',
		'Wait a few minutes; if it lasts, tell your support.',
	],
	[false, 'The service does not accept this device any more.', 'Ask for a new pairing code and scan it.'],
])(
	'a new code is asked for when a person has to act, not while the agent still tries (tries: %s) [F829]',
	async (recovers, sentence, next) => {
		const { agent, text } = await givenScreen();
		const state = recovers ? 'offline' : 'blocked';
		const problem = { code: 'credential-refused', message: 'm', remedy: 'r', recovers } as const;
		const summary = { code: state, params: { problem: problem.code, host: 'h', seconds: 5 } } as const;
		agent.tell({ status: { ...VIEW.status, state, problem, summary } });
		await expect.poll(() => text('sentence'), LOOK).toContain(sentence);
		expect(text('next')).toContain(next);
	},
);

/** No answer to a code that was only looked at. */
const UNASKED =
	'This page gets no answer from the device. The code was not used and stays valid. Wait a minute. If it lasts, restart the device. Then try the same code once more.';

describe('pairing', () => {
	const preview = { host: 'id.example.com', baseUrl: 'https://id.example.com', workflowId: 'w', problem: null };
	const unpaired = {
		...VIEW,
		standing: 'first',
		pinNeed: 'nothing',
		status: { ...VIEW.status, state: 'unpaired', summary: { code: 'unpaired', params: {} } },
	} as const;

	/** A code is typed, and where it leads is shown. */
	async function askedAbout({ agent, state, text, at, submit }: Screen): Promise<void> {
		await expect.poll(state, LOOK).toBe('unpaired');
		at('start').click();
		agent.answer('/api/inspect', 200, preview);
		at('code').value = 'a-code';
		submit('code-form');
		await expect.poll(() => text('host'), LOOK).toBe('id.example.com');
	}

	test.each([
		['valid', 'The code was not used and stays valid. Wait a few minutes.', 'service-overloaded'],
		[
			'uncertain',
			'try the same code once more. If the code is refused, ask for a new pairing code.',
			'pairing-uncertain',
		],
		['used', 'The code is used up. Ask for a new pairing code and scan it.', 'pairing-uncertain'],
		['invalid', 'or is not whole. Scan or type the whole code once more; if', 'code-expired-or-used'],
	] as const)('that is refused says that the code is %s', async (pairingCode, said, code) => {
		const screen = await givenScreen({ before: ({ tell }) => tell(unpaired) });
		const { agent, text, submit } = screen;
		await askedAbout(screen);
		agent.answer('/api/pair', 502, { code, params: { pairingCode } });
		submit('confirm');
		await expect.poll(() => text('answer'), LOOK).toContain(said);
	});

	test('says with which secret the kiosk has opened the page, beside the PIN [F712]', async () => {
		const { agent, state, text, at, submit } = await givenScreen({
			opening: 'kiosk-secret',
			before: ({ tell }) => tell({ ...unpaired, pinNeed: 'pin' }),
		});
		await expect.poll(state, LOOK).toBe('unpaired');
		at('start').click();
		const preview = { host: 'id.example.com', baseUrl: 'https://id.example.com', workflowId: 'w', problem: null };
		agent.answer('/api/inspect', 200, preview);
		at('code').value = 'a-code';
		submit('code-form');
		await expect.poll(() => text('host'), LOOK).toBe('id.example.com');
		at('pin').value = '471100';
		submit('confirm');
		const sent = () => agent.asked.find(({ path }) => path === '/api/pair')?.body ?? '{}';
		await expect.poll(() => JSON.parse(sent()), LOOK).toMatchObject({ pin: '471100', opening: 'kiosk-secret' });
	});

	test('that is the first one is asked about as that also while it goes on, and digits beside the question are the PIN [F1301]', async () => {
		const screen = await givenScreen({ before: ({ tell }) => tell({ ...unpaired, pinNeed: 'pin' }) });
		const { agent, state, text, at, submit, press } = screen;
		await askedAbout(screen);
		const asked = text('pairing-title');
		press('4');
		expect(at('pin').matches(':focus')).toBe(true);
		at('pin').value = '471100';
		agent.hold('/api/pair');
		submit('confirm');
		agent.tell({ ...unpaired, standing: 'refusedOnce', pinNeed: 'pin', status: { ...VIEW.status, state: 'online' } });
		await expect.poll(state, LOOK).toBe('online');
		expect(text('pairing-title')).toBe(asked);
	});

	test('with a pasted text of 200,000 characters says plainly that it is no code, and asks no one', async () => {
		const { agent, state, text, at, submit } = await givenScreen({ before: ({ tell }) => tell(unpaired) });
		await expect.poll(state, LOOK).toBe('unpaired');
		at('start').click();
		expect(at('code').hasAttribute('maxlength')).toBe(false);
		at('code').value = `https://id.example.com/mobile?authorization=Token%20${'a'.repeat(200_000)}`;
		submit('code-form');
		await expect
			.poll(() => text('answer'), LOOK)
			.toMatch(/^This is not a pairing code\. The code was not used\. Scan the pairing code/);
		expect(agent.asked.filter(({ path }) => path === '/api/inspect')).toEqual([]);
	});

	test.each([
		[
			'otherLayout',
			'httpsÖ--',
			/stays valid\. The keyboard layout of the scanner is not that of this device\. Set both/,
			/gültig\. Scanner und Gerät /,
		],
		[
			'capitals',
			'HTTPS',
			/stays valid\. The scanner changes capitals and small letters\. Switch that off/,
			/gültig\. Der Scanner verändert /,
		],
		[
			'damaged',
			'https://id.example.com/mobile',
			/^The code was not used and stays valid\. This pairing code is not whole, .* Scan it again/,
			/unvollständig/,
		],
		[
			'badToken',
			'https://id.example.com/mobile?authorization=To',
			/stays valid\. This pairing code is not whole, /,
			/unvollständig/,
		],
	] as const)(
		'with a code that a scanner has changed (%s) names the one thing to do, in the language of the moment',
		async (reason, typed, said, inGerman) => {
			const { agent, state, text, at, submit, choose } = await givenScreen({ before: ({ tell }) => tell(unpaired) });
			await expect.poll(state, LOOK).toBe('unpaired');
			at('start').click();
			agent.answer('/api/inspect', 200, { problem: { code: 'not-a-pairing-code', params: { reason } } });
			at('code').value = typed;
			submit('code-form');
			await expect.poll(() => text('answer'), LOOK).toMatch(said);
			choose('de');
			await expect.poll(() => text('answer'), LOOK).toMatch(inGerman);
			expect(text('pairing-title')).toBe('Dieses Gerät koppeln');
		},
	);

	test.each([
		['no answer', ['gone', null]],
		['an answer that is cut', [null, '{"ready":tr']],
		['an answer of another kind', [null, 'null']],
	] as const)(
		'after %s says that the code stays valid, and the next try works [F943]',
		async (_what, [trouble, body]) => {
			const { agent, state, text, at, submit } = await givenScreen({ before: ({ tell }) => tell(unpaired) });
			await expect.poll(state, LOOK).toBe('unpaired');
			at('start').click();
			const type = () => {
				at('code').value = 'a-code';
				submit('code-form');
			};
			if (trouble !== null) agent.trouble('/api/inspect', trouble);
			else agent.answer('/api/inspect', 200, body);
			type();
			await expect.poll(() => text('answer'), LOOK).toBe(UNASKED);
			agent.mend('/api/inspect');
			agent.answer('/api/inspect', 200, {
				host: 'id.example.com',
				baseUrl: 'https://id.example.com',
				workflowId: 'w',
				problem: null,
			});
			type();
			await expect.poll(() => text('host'), LOOK).toBe('id.example.com');
			expect(text('workflow-line')).toBe('Workflow: w');
			agent.trouble('/api/pair', 'gone');
			submit('confirm');
			await expect
				.poll(() => text('answer'), LOOK)
				.toBe(
					'The device gave no answer. Look at its state. The code may have been used: try the same code once more.',
				);
			expect(at('yes').disabled).toBe(false);
		},
	);

	/** The dialog, open, with a code in its field. */
	async function givenTyped() {
		const screen = await givenScreen({ before: ({ tell }) => tell(unpaired) });
		await expect.poll(screen.state, LOOK).toBe('unpaired');
		screen.at('start').click();
		screen.at('code').value = 'a-code';
		return { ...screen, isOpen: () => screen.document.getElementById('pairing')?.hasAttribute('open') };
	}

	test('before an agent that is stopped says so within 15 s, goes on when it is back, and tells what became of the code [F1161]', async () => {
		const { agent, at, submit, text, clock, inSteps, state } = await givenTyped();
		const silent = /^This page gets no answer from the device\. Wait a minute\./;
		const stopped = async (path: string, form: string, under: string) => {
			const releases = [agent.hold('/api/live'), agent.hold(path)];
			submit(form);
			await expect.poll(() => agent.asked.map((one) => one.path), LOOK).toContain(path);
			expect(text('answer')).toBe(under);
			clock.advance(15_000);
			expect(text('answer')).toMatch(silent);
			clock.advance(60_000);
			expect(text('answer')).toMatch(silent);
			for (const release of releases) release();
		};
		agent.answer('/api/inspect', 200, preview);
		await stopped('/api/inspect', 'code-form', 'Looking at the code…');
		await expect
			.poll(
				inSteps(() => text('host')),
				LOOK,
			)
			.toBe('id.example.com');
		agent.answer('/api/pair', 503, { code: 'service-overloaded', params: { pairingCode: 'valid' } });
		// A stream is open before its first word has reached the page, and a page that shows what it asks for hides the silence.
		await expect.poll(inSteps(state), LOOK).toBe('unpaired');
		await stopped('/api/pair', 'confirm', 'Pairing…');
		await expect
			.poll(
				inSteps(() => text('answer')),
				LOOK,
			)
			.toContain('The code was not used and stays valid.');
		expect(at('code').value).toBe('a-code');
	});

	test('that takes the service a minute is no agent without an answer [F1161]', async () => {
		const { agent, submit, text, clock, state } = await givenTyped();
		agent.answer('/api/inspect', 200, preview);
		submit('code-form');
		await expect.poll(() => text('host'), LOOK).toBe('id.example.com');
		const release = agent.hold('/api/pair');
		submit('confirm');
		for (let told = 0; told < 12; told += 1) {
			clock.advance(5_000);
			agent.tell({ ...unpaired, status: { ...unpaired.status, deviceId: `told-${told}` } });
			await expect.poll(() => text('name'), LOOK).toBe(`told-${told}`);
			expect([state(), text('answer')]).toEqual(['unpaired', 'Pairing…']);
		}
		release();
	});

	test('hides what is typed for the next person, though the one before had it shown [F772]', async () => {
		const { at } = await givenTyped();
		at('show-code').click();
		expect(at('code').type).toBe('text');
		at('close').click();
		at('start').click();
		expect([at('code').type, at('show-code').getAttribute('aria-pressed')]).toEqual(['password', 'false']);
	});

	test('that is left while a code is looked at stays left, whenever the answer comes [F773]', async () => {
		const { agent, at, submit, isOpen, text } = await givenTyped();
		const release = agent.hold('/api/inspect');
		agent.answer('/api/inspect', 200, preview);
		submit('code-form');
		await expect.poll(() => agent.asked.map(({ path }) => path), LOOK).toContain('/api/inspect');
		at('close').click();
		release();
		agent.tell({ ...unpaired, status: { ...unpaired.status, deviceId: 'later' } });
		await expect.poll(() => text('name'), LOOK).toBe('later');
		expect(isOpen()).toBe(false);
		at('start').click();
		at('code').value = 'another';
		submit('code-form');
		await expect.poll(() => text('host'), LOOK).toBe('id.example.com');
		expect([isOpen(), agent.asked.filter(({ path }) => path === '/api/inspect').length]).toEqual([true, 2]);
	});

	test('keeps a typed code while no answer came, and where the same code is to be tried again [F774]', async () => {
		const { agent, at, submit, text } = await givenTyped();
		agent.trouble('/api/inspect', 'gone');
		submit('code-form');
		await expect.poll(() => text('answer'), LOOK).toBe(UNASKED);
		expect(at('code').value).toBe('a-code');
		agent.mend('/api/inspect');
		// What was said of the silence does not outlast it.
		agent.tell(unpaired);
		await expect.poll(() => text('answer'), LOOK).toBe('The code was not used and stays valid.');
		agent.answer('/api/inspect', 200, preview);
		submit('code-form');
		await expect.poll(() => text('host'), LOOK).toBe('id.example.com');
		expect(at('code').value).toBe('');
		agent.answer('/api/pair', 503, { code: 'service-overloaded', params: { pairingCode: 'valid' } });
		submit('confirm');
		await expect.poll(() => text('answer'), LOOK).toContain('stays valid');
		expect(at('code').value).toBe('a-code');
		submit('code-form');
		await expect.poll(() => text('host'), LOOK).toBe('id.example.com');
		agent.answer('/api/pair', 400, { code: 'code-expired-or-used', params: { pairingCode: 'invalid' } });
		submit('confirm');
		await expect.poll(() => text('answer'), LOOK).toContain('has expired');
		expect(at('code').value).toBe('');
	});

	test.each(['null', '{}', '"paired"'])('that is answered 200 with %s is not taken for done [F776]', async (body) => {
		const { agent, at, submit, text, isOpen } = await givenTyped();
		agent.answer('/api/inspect', 200, preview);
		submit('code-form');
		await expect.poll(() => text('host'), LOOK).toBe('id.example.com');
		agent.answer('/api/pair', 200, body);
		submit('confirm');
		await expect.poll(() => text('answer'), LOOK).toMatch(/^The device gave no answer\..* The code may have been used/);
		expect([isOpen(), at('yes').disabled]).toEqual([true, false]);
	});

	test.each([
		'already-paired',
		'code-for-other-origin',
		'code-incomplete',
		'insecure-origin',
		'workflow-fixed',
		'pairing-under-way',
	] as const)('that is refused before it is sent (%s) says that the code stays valid [F944]', async (code) => {
		const { agent, submit, text, choose } = await givenTyped();
		agent.answer('/api/inspect', 200, { ...preview, problem: { code, params: {} } });
		submit('code-form');
		await expect.poll(() => text('answer'), LOOK).toContain('The code was not used and stays valid.');
		choose('es');
		await expect.poll(() => text('answer'), LOOK).toContain('sigue siendo válido');
	});

	test.each([
		['sameCode', /^This device is paired with this code already\. No other code is needed/],
		['sameCodeRefused', /^The code is used up\. Ask for a new pairing code/],
	])('with the code that has paired the device is told as that (%s) [F1131]', async (reason, said) => {
		const { agent, submit, text } = await givenTyped();
		agent.answer('/api/inspect', 200, { ...preview, problem: { code: 'already-paired', params: { reason } } });
		submit('code-form');
		await expect.poll(() => text('answer'), LOOK).toMatch(said);
	});

	test('that is refused because its workflow is not known is told each step once [F1791]', async () => {
		const { agent, submit, text } = await givenTyped();
		agent.answer('/api/inspect', 200, preview);
		submit('code-form');
		await expect.poll(() => text('host'), LOOK).toBe('id.example.com');
		agent.answer('/api/pair', 404, {
			code: 'workflow-unknown',
			params: { pairingCode: 'uncertain', workflowBy: 'code' },
		});
		submit('confirm');
		await expect
			.poll(() => text('answer'), LOOK)
			.toMatch(
				/in this code: (?:(?!once more).)* The code may have been used\. Scan or type the whole code once more;/,
			);
	});

	test('that is refused in words about something else is not called expired, and says what it is worth [F1218]', async () => {
		const { agent, submit, text } = await givenTyped();
		agent.answer('/api/inspect', 200, preview);
		submit('code-form');
		await expect.poll(() => text('host'), LOOK).toBe('id.example.com');
		const params = { reason: 'refused', detail: 'Your subscription has expired.', pairingCode: 'uncertain' };
		agent.answer('/api/pair', 401, { code: 'code-expired-or-used', detail: 'This code is not accepted.', params });
		submit('confirm');
		await expect
			.poll(() => text('answer'), LOOK)
			.toMatch(
				/^The service does not accept this code\. .* “Details”\. The code may have been used\. Scan or type the whole code once more; .* ask for a new one\.$/,
			);
	});

	test('whose answer is kept needs no other, in each language, and what the service said of it is under the details [F1243]', async () => {
		const { agent, submit, text, choose, document } = await givenTyped();
		agent.answer('/api/inspect', 200, preview);
		submit('code-form');
		await expect.poll(() => text('host'), LOOK).toBe('id.example.com');
		const detail = 'id.example.com answered 200, but has no Connection token at /token.';
		agent.answer('/api/pair', 502, {
			...{ code: 'answer-unreadable', detail },
			params: { pairingCode: 'used', answer: 'kept' },
		});
		submit('confirm');
		await expect
			.poll(() => text('answer'), LOOK)
			.toMatch(/no other code is needed\. Call your support and read out what is shown under “Details”\.$/);
		expect(text('answer')).not.toContain('new pairing code');
		expect(document.getElementById('notes')?.hasAttribute('hidden')).toBe(false);
		expect(text('notes-list')).toBe(`answer-unreadable: ${detail}`);
		for (const [language, words] of [
			['de', 'kein anderer Code'],
			['fr', 'aucun autre code'],
			['es', 'no hace falta otro código'],
			['ar', 'لا حاجة إلى رمز آخر'],
		] as const) {
			choose(language);
			await expect.poll(() => text('answer'), LOOK).toContain(words);
		}
	});

	test('that is used up without a workflow asks for a new code, and keeps the used one nowhere [F1162]', async () => {
		const { agent, at, submit, text } = await givenTyped();
		agent.answer('/api/inspect', 200, preview);
		submit('code-form');
		await expect.poll(() => text('host'), LOOK).toBe('id.example.com');
		agent.answer('/api/pair', 422, { code: 'workflow-missing', params: { pairingCode: 'used' } });
		submit('confirm');
		await expect
			.poll(() => text('answer'), LOOK)
			.toBe(
				'This code names no workflow. The code is used up. Ask for a new pairing code and scan it. Type the name of the workflow.',
			);
		expect([at('code').value, at('enter').hidden]).toEqual(['', false]);
	});

	test.each([
		['wifi', /^This is a code for a Wi-Fi network\./, /WLAN/],
		['phone', /^This is the code of a telephone number\./, /Telefonnummer/],
		['place', /^This is the code of a place/, /Ortes/],
		['application', /^This is a code for another application\./, /Anwendung/],
	] as const)('calls another text what the agent calls it (%s)', async (kind, said, inGerman) => {
		const { agent, submit, text, choose } = await givenTyped();
		const params = { reason: 'otherText', kind };
		agent.answer('/api/inspect', 200, { problem: { code: 'not-a-pairing-code', params } });
		submit('code-form');
		await expect.poll(() => text('answer'), LOOK).toMatch(said);
		choose('de');
		await expect.poll(() => text('answer'), LOOK).toMatch(inGerman);
	});

	test.each([
		['otherText', {}, /^This is not a pairing code\. The code was not used\. Scan/],
		['badBaseUrl', {}, /^This is not a pairing code\. The code was not used\. Scan/],
		['otherScheme', { kind: 'link' }, /^This is the code of a web page\. The code was not used\. Scan/],
	] as const)('that cannot be read (%s) says that it was not used [F1074]', async (reason, kind, said) => {
		const { agent, submit, text, choose } = await givenTyped();
		const params = { reason, ...kind };
		agent.answer('/api/inspect', 200, { problem: { code: 'not-a-pairing-code', params } });
		submit('code-form');
		await expect.poll(() => text('answer'), LOOK).toMatch(said);
		choose('fr');
		await expect.poll(() => text('answer'), LOOK).toContain('Le code n’a pas servi.');
	});

	test('whose workflow was cut is told as that and is not kept; one that is kept gives way to the next scan [F1073]', async () => {
		const { agent, at, submit, text } = await givenTyped();
		agent.answer('/api/inspect', 200, preview);
		const refusedWith = async (problem: object) => {
			submit('code-form');
			await expect.poll(() => text('host'), LOOK).toBe('id.example.com');
			agent.answer('/api/pair', 400, problem);
			submit('confirm');
			await expect.poll(() => text('answer'), LOOK).toContain('stays valid.');
		};
		await refusedWith({ code: 'service-overloaded', params: { pairingCode: 'valid' } });
		expect([at('code').value, at('code').selectionStart, at('code').selectionEnd]).toEqual(['a-code', 0, 6]);
		await refusedWith({ code: 'workflow-unknown', params: { pairingCode: 'valid', workflowBy: 'code' } });
		expect(text('answer')).toMatch(
			/^The service does not know the workflow in this code: .* Scan or type the whole code/,
		);
		expect(at('code').value).toBe('');
	});

	test('lets each of 300 workflows be chosen, and has a field where there are more than its list has [F946]', async () => {
		const { agent, at, submit, text, document } = await givenTyped();
		agent.answer('/api/inspect', 200, { ...preview, workflowId: null });
		submit('code-form');
		await expect.poll(() => text('host'), LOOK).toBe('id.example.com');
		const ids = Array.from({ length: 300 }, (_, index) => ({ id: `w${index}`, name: `w${index}` }));
		const refuse = (more: object) =>
			agent.answer('/api/pair', 400, { code: 'workflow-missing', params: { workflows: JSON.stringify(ids), ...more } });
		at('workflow').value = 'w-one';
		refuse({});
		submit('confirm');
		await expect.poll(() => text('answer'), LOOK).toBe('Choose the workflow of this device.');
		expect([document.querySelectorAll('#workflow-list option').length, at('workflow-field').hidden]).toEqual([
			300,
			true,
		]);
		const asked = () =>
			agent.asked.filter(({ path }) => path === '/api/pair').map(({ body }) => JSON.parse(body ?? '{}').workflowId);
		refuse({ moreWorkflows: 700 });
		at('workflow-list').value = 'w249';
		submit('confirm');
		await expect.poll(() => text('answer'), LOOK).toContain('There are more workflows than this list has');
		expect([at('workflow-choice').hidden, at('workflow-field').hidden]).toEqual([false, false]);
		at('workflow').value = 'w-other';
		submit('confirm');
		await expect.poll(asked, LOOK).toEqual(['w-one', 'w249', 'w-other']);
	});

	test.each([
		['code-expired-or-used', { reason: 'refused', form: 'token' }, 'The scanner may have changed some characters'],
		['service-overloaded', { pairingCode: 'valid', waitSeconds: 120 }, 'stays valid. Try the same code in 2 minutes.'],
		['workflow-unknown', { pairingCode: 'uncertain', workflowBy: 'code' }, 'Scan or type the whole code once more'],
	] as const)('that is refused with %s says what comes first: %j', async (code, params, said) => {
		const { agent, submit, text } = await givenTyped();
		agent.answer('/api/inspect', 200, preview);
		submit('code-form');
		await expect.poll(() => text('host'), LOOK).toBe('id.example.com');
		agent.answer('/api/pair', 400, { code, params });
		submit('confirm');
		await expect.poll(() => text('answer')?.replaceAll(/[\u2068\u2069]/g, ''), LOOK).toContain(said);
	});

	test('that is longer than any code is none, and the agent is not asked [F1895]', async () => {
		const { agent, at, submit, text } = await givenTyped();
		const asked = () => agent.asked.filter(({ path }) => path === '/api/inspect').length;
		at('code').value = 'x'.repeat(MAX_CODE_LENGTH + 1);
		submit('code-form');
		await expect.poll(() => text('answer'), LOOK).not.toBe('');
		expect(asked()).toBe(0);
		at('code').value = 'x'.repeat(MAX_CODE_LENGTH);
		submit('code-form');
		await expect.poll(asked, LOOK).toBe(1);
	});

	test('that was scanned and refused is not asked about again, and what was said of it stays in view for an hour [F1896]', async () => {
		const { agent, at, submit, text, clock, isOpen } = await givenTyped();
		const { host, baseUrl, workflowId } = preview;
		const waiting = (id: number, deviceId: string) => ({
			...unpaired,
			proposal: { id, host, baseUrl, workflowId },
			status: { ...unpaired.status, deviceId },
		});
		const shows = async (id: number, deviceId: string) => {
			agent.tell(waiting(id, deviceId));
			await expect.poll(() => text('name'), LOOK).toBe(deviceId);
		};
		at('close').click();
		await shows(4, 'first');
		await expect.poll(() => text('host'), LOOK).toBe('id.example.com');
		agent.answer('/api/pair', 400, { code: 'code-expired-or-used', detail: 'It was used.' });
		submit('confirm');
		await expect.poll(() => text('notes-list'), LOOK).toBe('code-expired-or-used: It was used.');
		at('close').click();
		await shows(4, 'second');
		expect(isOpen()).toBe(false);
		clock.advance(3_590_000);
		await shows(4, 'third');
		expect(text('notes-list')).toContain('It was used.');
		clock.advance(10_000);
		await shows(4, 'fourth');
		expect(text('notes-list')).not.toContain('It was used.');
		await shows(5, 'fifth');
		expect(isOpen()).toBe(true);
	});

	test('that has worked says so for half a minute, also where the clock is set back meanwhile', async () => {
		const { agent, submit, text, clock } = await givenTyped();
		agent.answer('/api/inspect', 200, preview);
		submit('code-form');
		await expect.poll(() => text('host'), LOOK).toBe('id.example.com');
		agent.answer('/api/pair', 200, { deviceId: 'kiosk-7' });
		agent.tell({});
		submit('confirm');
		await expect.poll(() => text('note'), LOOK).toBe('Paired.');
		clock.setWall(clock.wallMs() - 24 * 3_600_000);
		clock.advance(30_000);
		await expect.poll(() => text('note'), LOOK).toBe('');
	});
});
