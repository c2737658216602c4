/** `idv probe` at services as an outsider would write them: what their messages and answers show. */
import { describe, expect, test } from 'vitest';
import type { WebSocket } from 'ws';
import type { Shell } from '../../src/cli/output.runner.ts';
import { asides } from '../../src/operator/probe-asides.runner.ts';
import type { Ran } from '../../src/operator/probe-device.runner.ts';
import { tellDevice } from '../../src/operator/probe-device-report.runner.ts';
import { lifeFinding, lifeFindings } from '../../src/operator/probe-findings.runner.ts';
import { readForm } from '../../src/operator/probe-form.runner.ts';
import { guesses, wordsIn } from '../../src/operator/probe-guesses.runner.ts';
import { pongsFor } from '../../src/operator/probe-pongs.runner.ts';
import { messagesOf } from '../../src/operator/probe-readings.runner.ts';
import { reportOf } from '../../src/operator/probe-report.runner.ts';
import type { Run } from '../../src/operator/probe-state.runner.ts';
import type { Life } from '../../src/operator/probe-wire.runner.ts';
import { resolveWith } from '../../src/settings/load.runner.ts';
import { probesOfFile } from './probing.ts';

const { probedForeign } = probesOfFile();

const heard = (messages: readonly object[], everyMs = 1000): Life['heard'][number][] =>
	messages.map((message, at) => ({ atMs: at * everyMs, frame: { type: 'text', text: JSON.stringify(message) } }));

describe('the id of notifications', () => {
	const told = (at: number) => ({
		type: 'message',
		data: { kind: ['session.started', 'session.step'][at % 2], messageId: `m-${at}`, marker: `M${at}M` },
	});
	const at = new Date(Date.now()).toISOString();

	test.each<[string, (n: number) => object]>([
		['a counter', (n) => ({ type: 'tick', n })],
		['a counter and a time', (n) => ({ type: 'tick', seq: n, at })],
		['a counter and a load', (n) => ({ type: 'stats', n, load: (n * 7) % 5 })],
		['an id that counts', (n) => ({ type: 'tick', eventId: n })],
	])('is where notifications have it, however often there is chatter with %s [F1622]', (_, chatter) => {
		const all = Array.from({ length: 30 }, (_, nr) => (nr % 5 === 4 ? told(nr) : chatter(nr)));
		expect(readForm(heard(all))).toEqual({ kindPointer: '/data/kind', notificationIdPointer: '/data/messageId' });
		// Where nothing else comes it may be what there is.
		expect(readForm(heard(all.filter((_, nr) => nr % 5 !== 4)))).not.toMatchObject({
			notificationIdPointer: '/data/messageId',
		});
	});

	test('is that of a kind that only counts where else only talk comes, or where it is at the usual place [F1622]', () => {
		const checks = Array.from({ length: 9 }, (_, id) => ({ type: 'check', no: 40 + id }));
		const hello = { type: 'hello', confirm: { type: 'ack', id: '<id>' } };
		expect(readForm(heard([hello, ...checks]))).toEqual({ notificationIdPointer: '/no' });
		const usual = checks.map(({ type, no }) => ({ type, id: no }));
		const others = [1, 2, 3].map((nr) => ({ type: 'note', data: { ref: `r-${nr}`, text: `t${nr}` } }));
		expect(readForm(heard([...usual, ...others]))).toEqual({});
	});

	test.each([0, 1])(
		'is not a number that counts from %i on: it may begin again with each channel, and what is new would be dropped [F1656]',
		(from) => {
			const counted = (first: number) =>
				[0, 1, 2, 3, 4, 5].map((at) => ({ type: `session.step${at % 2}`, seq: first + at, data: { note: `n${at}` } }));
			expect(readForm(heard(counted(from)))).toEqual({});
			expect(readForm(heard(counted(from + 7)))).toEqual({ notificationIdPointer: '/seq' });
		},
	);

	test('that is a number above 2^53 is found: as a number of JavaScript two of them may be one [F1623]', () => {
		const all = [1, 2, 3, 4].map(
			(nr) => `{"type":"session.step","event_id":123456789012345678${nr},"marker":"M${nr}"}`,
		);
		const frames = all.map((text, nr) => ({ atMs: nr, frame: { type: 'text' as const, text } }));
		expect(readForm(frames)).toEqual({ notificationIdPointer: '/event_id' });
	});
});

const lifeOf = (messages: readonly object[], more: Partial<Life> = {}): Life => ({
	...{ refusal: null, isOpen: true, headers: {}, subprotocol: null, pings: 1, pongs: 1, failure: null },
	...{ heard: heard(messages), said: [], ended: null, ...more },
});
const findingOf = (life: Life, point: string) =>
	lifeFindings({ life, form: readForm(life.heard), settleMs: 500, settings: {} }).find((one) => one.point === point);

test('what stands beside an array in a frame counts where it has a kind, and is named where it is not kept [F1625]', () => {
	const batch = (at: number) => ({ events: [{ type: 'session.step', id: `n-${at}` }] });
	const alert = { type: 'device.alert', id: 'a-1' };
	const whole = lifeOf([batch(1), { ...batch(2), alert }, batch(3)]);
	expect(findingOf(whole, 'frame-contents')).toMatchObject({
		found: '/events: a message holds up to 2 notifications',
		certainty: 'proved',
		settings: { frameContents: '/events' },
	});
	const part = lifeOf([batch(1), { ...batch(2), alert: 'paper is out', seq: 2 }, { ...batch(3), more: [{ no: 1 }] }]);
	expect(findingOf(part, 'frame-contents')).toMatchObject({
		found: '/events: a message holds up to 1 notifications (not kept, as it has no kind: alert, seq, more)',
		certainty: 'guessed',
	});
});

describe('frames that hold several notifications', () => {
	const batch = (at: number) => ({
		at: new Date().toISOString(),
		cursor: `c-${at}`,
		events: [0, 1].map((nr) => ({ type: ['visit.open', 'visit.shut'][nr], id: `n-${at}-${nr}` })),
	});
	const among = (other: (at: number) => object) =>
		Array.from({ length: 12 }, (_, at) => (at % 3 === 0 ? batch(at) : other(at)));

	test.each<[string, (at: number) => object]>([
		['a presence', (n) => ({ presence: { devices: n } })],
		['a presence that says the same each time', () => ({ presence: { isOpen: true } })],
		['a load with a time', (n) => ({ load: n % 4, at: new Date().toISOString() })],
		['an empty batch', (n) => ({ cursor: `c-${n}`, events: [] })],
	])('are found among chatter without a kind, such as %s [F1700]', (_, chatter) => {
		expect(readForm(heard(among(chatter)))).toEqual({ frameContents: '/events' });
	});

	test('are not what a few notifications without a kind of their own have in a list [F1700]', () => {
		const told = (at: number) => ({ visit: `v-${at}`, note: `note ${at}` });
		const all = Array.from({ length: 6 }, (_, at) =>
			at % 3 === 0 ? { ...told(at), items: [{ type: 'passport' }] } : told(at),
		);
		expect(readForm(heard(all))).not.toHaveProperty('frameContents');
	});
});

describe('the life of a Connection', () => {
	test.each<[object, number]>([
		[{ validForMs: 150_000 }, 150],
		[{ validFor: 'PT150S' }, 150],
		[{ ttlMillis: '150000' }, 150],
		[{ connection: { lifetime_minutes: 3 } }, 180],
		[{ tokenTtl: 90 }, 90],
		[{ expiresIn: 'P1DT2H' }, 93_600],
		[{ maxAgeHours: 1 }, 3600],
		[{ maxAge: 'PT2M30.5S' }, 150],
	])('is read from %j as %i s [F1626]', (answer, seconds) => {
		const { settings } = lifeFinding('opaque', JSON.stringify(answer), Date.now());
		expect(settings).toEqual({ connectionLifeSeconds: seconds });
	});

	test.each<[object, string]>([
		[{ data: { validFor: 'a while' } }, '/data/validFor'],
		[{ expiresAt: 'tomorrow' }, '/expiresAt'],
		[{ ttl: 'P1Y' }, '/ttl'],
	])('that %j tells of in a way that is not read is not said to be told nowhere [F1627]', (answer, place) => {
		const { found, settings } = lifeFinding('opaque', JSON.stringify(answer), Date.now());
		expect(settings).toBeUndefined();
		expect(found).toBe(
			`the answer tells of it at ${place}, in a way that is not read: see service.connectionLifeSeconds`,
		);
		expect(lifeFinding('opaque', '{"expiresAt":null,"expired":false,"token":"t"}', 0).found).toBe(
			'neither says when it ends',
		);
	});
});

const every = (socket: WebSocket, ms: number, say: () => void) => {
	const timer = setInterval(say, ms);
	socket.once('close', () => clearInterval(timer));
};

describe('a service that sends the next notification only once one is acknowledged', () => {
	let nr = 1;
	const stopAndWait = (acknowledges: (said: string) => boolean) => (socket: WebSocket) => {
		const send = () =>
			socket.send(JSON.stringify({ type: nr % 2 ? 'visit.open' : 'visit.shut', id: `n-${nr}`, page: nr }));
		send();
		every(socket, 100, send);
		socket.on('message', (said) => {
			if (!acknowledges(String(said))) return;
			nr += 1;
			setTimeout(send, 40);
		});
	};

	test('is acknowledged, and proved to want it [F1628]', async () => {
		const { outcome, settings } = await probedForeign(
			stopAndWait((said) => said.includes('"ack"') && said.includes(`"id":"n-${nr}"`)),
		);
		expect(outcome, outcome.stdout).toMatchObject({ status: 0, stderr: '' });
		expect(settings.service.ackBody).toMatchObject({ type: 'ack', id: '{id}' });
		expect(outcome.stdout).toMatch(/acknowledgement .* proved/);
	});

	test('in a way that was not found is told with service.ackBody [F1629]', async () => {
		const { outcome, settings } = await probedForeign(stopAndWait(() => false));
		expect(settings).not.toHaveProperty('service');
		expect(outcome.stdout).toMatch(/acknowledgement .*none; .*service\.ackBody/);
		expect(outcome.stdout).toMatch(/sent \d+ again, .*service\.ackBody/);
	});
});

test.each([
	['one that came twice', [1, 1]],
	['one after which one without an id came', [1, 1, 1, null]],
])('no acknowledgement is tried for %s alone [F1628]', (_, ids) => {
	const life = lifeOf(ids.map((id) => ({ type: 'visit', ...(id && { id }), page: id })));
	expect(guesses({ life, form: {}, settleMs: 500, settings: {} })).toEqual([]);
});

test.each([[1000], [4000]])(
	'a service that ends every channel after the same time with %s and without a word is one whose channels do not last [F1630]',
	async (code) => {
		let nr = 0;
		const { outcome } = await probedForeign((socket) => {
			setTimeout(() => socket.close(code), 450);
			every(socket, 60, () => {
				nr += 1;
				socket.send(`{"type":"visit.open","id":"n-${nr}"}`);
			});
		});
		expect(outcome.status, outcome.stdout).toBe(69);
		expect(outcome.stderr).toContain(`the service ended it with close code ${code} after`);
		expect(outcome.stdout).toContain('(no device was online with it');
	},
	120_000,
);

describe('a ping of the service, the answer to which it names at the end of the channel', () => {
	const words = (answer: object, ping: object) => `no answer ${JSON.stringify(answer)} to ${JSON.stringify(ping)}`;
	const note = (kind: string | number, nr: number) => ({ t: kind, n: nr, s: `v-${nr}` });

	async function expectAnswered(pingKind: string, ping: object, pong: object, news: (nr: number) => object) {
		let nr = 40;
		const { outcome, settings } = await probedForeign((socket) => {
			let unanswered = 0;
			every(socket, 90, () => {
				if (unanswered === 3) socket.close(4005, words(pong, ping));
				else socket.send(JSON.stringify(ping));
				unanswered += 1;
			});
			every(socket, 130, () => {
				nr += 1;
				socket.send(JSON.stringify(news(nr)));
			});
			socket.on('message', (said) => {
				if (String(said) === JSON.stringify(pong)) unanswered = 0;
			});
		});
		expect(outcome.status, outcome.stdout).toBe(0);
		expect(settings.service).toMatchObject({ pingKind, pongBody: pong });
		expect(settings.service).not.toHaveProperty('heartbeatBody');
		expect(settings).not.toHaveProperty('heartbeatCadence');
		expect(outcome.stdout).toMatch(/Channels that the service ended +none/);
	}

	test('is answered, and no heartbeat is made of the answer [F1701]', async () => {
		const news = (nr: number) => note(['open', 'shut'][nr % 2] ?? '', nr);
		await expectAnswered('beat', { t: 'beat' }, { t: 'beat-ok' }, news);
	});

	test('is answered where its kind is a number [F1703]', async () => {
		await expectAnswered('9', { t: 9 }, { t: 10 }, (nr) => note([3, 4, 7][nr % 3] ?? 3, nr));
	});

	test('is answered as it is written out where its kind is further down [F1702]', async () => {
		const said = (name: string) => ({ channel: 'sys', event: { name } });
		await expectAnswered('ping', said('ping'), said('pong'), (nr) => ({
			channel: 'visits',
			event: { name: ['open', 'shut'][nr % 2], ref: `r-${nr}` },
			body: { nr },
		}));
	});

	test('with its kind further down is answered by one like it also where no answer is named [F1702]', () => {
		const form = { kindPointer: '/event/name', notificationIdPointer: '/event/ref' };
		const ping = { channel: 'sys', event: { name: 'ping', ref: 'r-7', at: new Date().toISOString() } };
		expect(pongsFor('ping', JSON.stringify(ping), form)[0]).toBe(
			'{"channel":"sys","event":{"name":"pong","ref":"{id}"}}',
		);
	});
});

describe('notifications that tell of an error', () => {
	const person = 'Maria Muster, born 1985-02-03, waits at desk';
	const lasting = (told: (nr: number) => object) => (socket: WebSocket) => {
		let nr = 0;
		every(socket, 80, () => {
			nr += 1;
			socket.send(JSON.stringify(told(nr)));
		});
	};
	const reported = (stdout: string) => ({
		told: /Notifications +(.*)/.exec(stdout)?.[1],
		words: stdout.split('\n').filter((line) => line.startsWith('The service says')),
	});

	test('are none of the words of the service: nothing of a person is printed [F1704]', async () => {
		const { outcome } = await probedForeign(
			lasting((nr) => ({
				...{ type: ['error', 'visit.open', 'visit.error'][nr % 3], id: `n-${nr}`, message: `${person} ${nr}` },
				...(nr % 2 === 0 && { sessionId: `s-${nr}` }),
			})),
		);
		expect(outcome.stdout).not.toContain('Maria');
		const { told, words } = reported(outcome.stdout);
		expect(words.filter((line) => !line.includes('401'))).toEqual([]);
		for (const kind of ['error', 'visit.open', 'visit.error']) expect(told).toContain(`${kind} (`);
	});

	const beats = (times: readonly number[]) =>
		times.map((atMs) => ({ atMs, text: '{"type":"heartbeat","sequence":1}' }));
	const lifeWith = (errors: readonly (readonly [number, object])[], more: Partial<Life> = {}) =>
		lifeOf([], {
			heard: errors.map(([atMs, one]) => ({ atMs, frame: { type: 'text', text: JSON.stringify(one) } })),
			...{ said: beats([10_000, 20_000, 30_000, 40_000, 50_000]), ...more },
		});
	const error = (id: string, more: object = {}) => ({
		type: 'error',
		id,
		message: 'send first {"op":"join"}',
		...more,
	});
	const wordsOf = (life: Life) => wordsIn(life, {}, 1000).length;

	test('are told from errors with an id that answer the device, or come alone before the end [F1704]', () => {
		const unasked = [15_000, 20_100, 33_000].map((atMs, nr) => [atMs, error(`e-${nr}`)] as const);
		const answers = [10_020, 20_020, 30_020].map((atMs, nr) => [atMs, error(`e-${nr}`)] as const);
		expect(wordsOf(lifeWith(unasked))).toBe(0);
		expect(wordsOf(lifeWith(answers))).toBe(3);
		const ended = { ended: { atMs: 15_010, code: 4001, reason: '' } };
		expect(wordsOf(lifeWith(unasked.slice(0, 1), ended))).toBe(1);
		expect(wordsOf(lifeWith([[15_000, error('e-1', { sessionId: 's-1' })]], ended))).toBe(0);
		expect(
			wordsOf(
				lifeWith([
					[15_000, error('e-1')],
					[33_000, error('e-1')],
				]),
			),
		).toBe(2);
	});

	test('of a heartbeat are no notifications where they are named so and only follow heartbeats, also with an id [F1705]', () => {
		const ok = (nr: number) => ({ type: 'heartbeat/ok', id: `u-${nr}`, payload: { seq: nr } });
		const step = (nr: number) => ({ type: 'visit.step', id: `n-${nr}`, note: `note ${nr}` });
		const all = (times: readonly number[]) =>
			lifeWith([...times.map((atMs, nr) => [atMs, ok(nr)] as const), [5000, step(1)], [15_000, step(2)]]);
		const isAside = (life: Life) => asides(life, {}, 1000)(JSON.stringify(ok(0)));
		expect(isAside(all([10_010, 20_010, 30_010]))).toBe(true);
		expect(isAside(all([10_010, 17_000, 30_010]))).toBe(false);
	});

	test('and not errors for heartbeats, are what a device gets: with both the report says where to look, by whatever name they end [F1706]', () => {
		const step = (nr: number) => ({ type: 'visit.step', id: `n-${nr}`, note: `note ${nr}` });
		const told = (answers: readonly (readonly [number, object])[]) => {
			const life = lifeWith([[5000, step(1)], ...answers, [15_000, step(2)]]);
			const events = messagesOf(life.heard).map(({ text: content }) => ({
				type: 'notification',
				kind: 'any',
				content,
			}));
			const ran = { lives: [life], events, isOnline: true, isCut: false, dropped: 0 } as unknown as Ran;
			const { service } = resolveWith([], { env: {}, sets: [] }).settings;
			const lines: string[] = [];
			const shell = { line: (text = '') => void lines.push(text), table() {} } as unknown as Shell;
			tellDevice(shell, reportOf({ seconds: 60, restarts: [], unasked: [] } as unknown as Run, ran, service));
			return lines.join(' ');
		};
		for (const type of ['error', 'com.acme.error', 'urn:acme:err'])
			expect(
				told([10_010, 20_010].map((atMs, nr) => [atMs, { type, id: `e-${nr}`, message: 'unknown type heartbeat' }])),
			).toMatch(/errors \(2\), .*look at service\.heartbeatBody/);
		expect(told([15_500, 33_000].map((atMs, nr) => [atMs, error(`e-${nr}`)]))).not.toContain('heartbeatBody');
	});
});

describe('a message that a service writes out', () => {
	const writtenFor = (life: Life, settings: object = {}, form = readForm(life.heard)) =>
		guesses({ life, form, settleMs: 50, settings: { ...settings } }).filter(({ isWritten }) => isWritten);
	const ended = (reason: string) => ({ ended: { atMs: 5000, code: 4000, reason } });

	test('as its heartbeat is tried in place of a ping that only kept the channel open for longer [F1780]', () => {
		const life = lifeOf([], ended('Session timed out: no heartbeat {"op":1,"d":"<deviceId>"}'));
		const heartbeatBody = '{"op":1,"d":"{deviceId}"}';
		expect(writtenFor(life)[0]?.settings).toEqual({ heartbeatBody });
		expect(writtenFor(life, { heartbeatMode: 'ping' })[0]?.settings).toEqual({ heartbeatBody, heartbeatMode: 'frame' });
	});

	test('in answer to a message that the end names is tried, whatever that one is called or holds [F1781]', () => {
		const asked = { cmd: 'are-you-there', reply: { cmd: 'here' } };
		const because = (reason: string) => writtenFor(lifeOf([asked, asked], ended(reason)));
		expect(because('no answer to are-you-there; reply {"cmd":"here"}')[0]).toMatchObject({
			point: 'application-ping',
			settings: { pingKind: 'are-you-there', pongBody: '{"cmd":"here"}' },
		});
		const pinged = because('are-you-there not acknowledged: no answer').filter(
			(one) => one.point === 'application-ping',
		);
		expect(pinged).toEqual([]);
	});

	test('with a field of an "event" is one for each notification, also where none has an event in it [F1782]', () => {
		const event = (nr: number) => ({ name: nr % 2 ? 'visit.open' : 'visit.shut', uid: `u-${nr}` });
		const error = { error: 'unknown message', hint: 'send {"received":["<event.uid>"]} for each event' };
		const life = lifeOf([{ events: [event(1)] }, error, { events: [event(2)] }, { events: [event(3)] }]);
		expect(writtenFor(life)[0]).toMatchObject({ settings: { ackBody: '{"received":["{id}"]}' } });
	});
});
