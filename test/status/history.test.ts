/** The history: which changes it has, how flapping folds, how it reads, and what of it goes. */
import fs from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, onTestFinished, test } from 'vitest';
import { CATALOGUE, type ErrorCode, failure } from '../../src/base/errors.ts';
import { pastOf } from '../../src/page/timeline.ts';
import { LOCAL_ROUTES, type Status } from '../../src/protocol/local-api.ts';
import { keepHistory, MAX_HISTORY_BYTES, readHistory } from '../../src/status/history.runner.ts';
import {
	foldChange,
	type HistoryEntry,
	MOMENT_MS,
	NOTHING_FOLDED,
	type StateEntry,
	toldHistory,
	withoutReplaced,
} from '../../src/status/history.ts';
import { finish } from '../cli/command.ts';
import { givenAgent, givenHome, givenPairedAgent } from '../harness/harness.ts';
import { createSteppedClock } from '../harness/stepped-clock.ts';
import { givenService } from '../service/fixture.ts';

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const NO_NAME = failure('dns-failed', 'x', { params: { host: 'id.example.com', reason: 'ENOTFOUND' } });
const REFUSED = failure('credential-refused', 'x', {
	params: { host: 'id.example.com', status: 401, detail: 'visit-4711' },
});

type Shown = Pick<Status, 'state' | 'baseUrl' | 'workflow' | 'problem' | 'summary'>;
const shown = (state: Status['state'], problem: Shown['problem'] = null, more: object = {}): Shown => ({
	...{ state, problem, baseUrl: 'https://id.example.com/', summary: { code: state, params: {} } },
	workflow: { wanted: 'check-in', live: state === 'online' ? 'check-in' : null, waitsUntil: null, source: 'pairing' },
	...more,
});

/** A history whose status is what the test says. */
function open(
	stateDir: string,
	{
		clock = createSteppedClock(),
		version = '0.2.0',
		boot = 'boot-1' as string | null,
		uptimeMs = 1e12,
		newestAt = null as string | null,
		startedAt = new Date(clock.wallMs()).toISOString(),
		/** When they came, oldest first. */
		events = null as readonly string[] | null,
		audit = undefined as Parameters<typeof keepHistory>[0]['audit'],
	} = {},
) {
	let status = shown('connecting');
	const newest = (beforeMs = Number.POSITIVE_INFINITY) =>
		(events ?? [newestAt ?? '']).findLast((at) => Date.parse(at) < beforeMs) || null;
	const agent = { status: () => ({ ...(status as Status), startedAt }), events: { newestAt: newest } };
	const history = keepHistory({
		stateDir,
		version,
		clock,
		agent,
		boot,
		uptimeMs: () => uptimeMs,
		...(audit && { audit }),
	});
	let isClosed = false;
	const close = async () => {
		if (!isClosed) await history.close();
		isClosed = true;
	};
	onTestFinished(close);
	return {
		clock,
		close,
		become(...next: Parameters<typeof shown>) {
			status = shown(...next);
			history.look();
		},
		/** Each second time it comes, and goes in between. */
		flap(change: number) {
			status = change % 2 ? shown('offline', NO_NAME) : shown('online');
			history.look();
		},
		look: history.look,
	};
}

/** Those that have an entry, and those that are counted. */
const changesIn = (entries: readonly HistoryEntry[]) =>
	entries.reduce((sum, entry) => sum + (entry.kind === 'state' ? 1 + (entry.folded?.changes ?? 0) : 0), 0);

const sentences = (stateDir: string) => toldHistory(readHistory(stateDir).documents).map(({ sentence }) => sentence);
const namesIn = (directory: string) => fs.readdirSync(directory).filter((name) => name.startsWith('history-'));
const filesWith = (directory: string, text: string) =>
	namesIn(directory).filter((name) => fs.readFileSync(join(directory, name)).includes(text));

describe('a device', () => {
	test('has each change of state and of its cause in sentences, and nothing between them', async () => {
		const { directory } = await givenHome();
		const { clock, become, close } = open(directory);
		become('online');
		for (let minute = 0; minute < 30; minute += 1) become('online');
		clock.advance(HOUR);
		become('offline');
		become('offline', failure('captive-portal', 'x', { params: { host: 'id.example.com' } }));
		become('offline');
		clock.advance(8 * MINUTE);
		become('offline', NO_NAME);
		clock.advance(30 * MINUTE);
		become('online');
		become('online', null, { workflow: { wanted: 'b', live: 'b', waitsUntil: null, source: 'workflow set' } });
		become('blocked', REFUSED);
		await close();
		expect(sentences(directory)).toEqual([
			'agent 0.2.0 started',
			'online with id.example.com, workflow check-in (pairing)',
			'offline',
			'still offline: a captive portal or a proxy answered in place of id.example.com',
			'still offline: DNS knows no id.example.com',
			'online again after 38 min',
			'moved to workflow b (workflow set)',
			'offline, and a person is needed: id.example.com refused the credential',
			'agent stopped',
		]);
		expect(filesWith(directory, 'visit-4711'), 'no words of the service').toEqual([]);
	});

	test('that was never online is online, not online again, also after another start, or when it is paired anew [F1362]', async () => {
		const { directory } = await givenHome();
		const first = open(directory);
		const { clock } = first;
		first.become('connecting', NO_NAME);
		await first.close();
		const second = open(directory, { clock });
		second.become('connecting', NO_NAME);
		clock.advance(10_000);
		second.become('online');
		second.become('offline', NO_NAME);
		clock.advance(10_000);
		second.become('online');
		second.become('unpaired');
		second.become('connecting', NO_NAME);
		clock.advance(10_000);
		second.become('online');
		await second.close();
		const withHost = 'online with id.example.com, workflow check-in (pairing)';
		const told = sentences(directory).filter((each) => each.startsWith('online'));
		expect(told).toEqual([withHost, 'online again after 10 s', withHost]);
	});

	test('says why the agent started, and which version was there before [F606]', async () => {
		const { directory } = await givenHome();
		const clock = createSteppedClock();
		const start = async (more: Parameters<typeof open>[1], isKilled = false) => {
			clock.advance(MINUTE);
			const { close, become } = open(directory, { clock, ...more });
			become('online');
			await close();
			if (!isKilled) return;
			const [name = ''] = namesIn(directory);
			const bytes = fs.readFileSync(join(directory, name));
			fs.truncateSync(join(directory, name), bytes.lastIndexOf('{"at"') - 56);
		};
		await start({}, true);
		await start({});
		await start({ version: '0.3.0' });
		await start({ boot: 'boot-2' }, true);
		await start({ boot: 'boot-3' });
		// Where the kernel does not say which start it is, the time since then does.
		await start({ boot: null, uptimeMs: 1000 });
		expect(sentences(directory).filter((each) => each.startsWith('agent 0'))).toEqual([
			'agent 0.2.0 started',
			'agent 0.2.0 started, which had been killed or had crashed',
			'agent 0.3.0 started; it was version 0.2.0 before',
			'agent 0.2.0 started with the machine; it was version 0.3.0 before',
			'agent 0.2.0 started with the machine, which had lost power or had crashed',
			'agent 0.2.0 started with the machine',
		]);
	});

	test('that was killed while its clock was behind, and right again at the start, had not lost power [F794]', async () => {
		const { directory } = await givenHome();
		const clock = createSteppedClock();
		const rightMs = clock.wallMs();
		clock.setWall(rightMs - 3 * HOUR);
		open(directory, { clock }).become('online');
		await expect.poll(() => readHistory(directory).documents.length).toBe(2);
		clock.setWall(rightMs);
		// The machine runs for two hours; by the clock of then, the last line is older.
		const killed = await givenHome();
		fs.cpSync(directory, killed.directory, { recursive: true });
		await open(killed.directory, { clock, uptimeMs: 2 * HOUR }).close();
		expect(sentences(killed.directory)).toContain('agent 0.2.0 started, which had been killed or had crashed');
	});

	test('has a clock that was set, and no outage is longer for it; sleep is no step', async () => {
		const { directory } = await givenHome();
		const { clock, become, close, look } = open(directory);
		become('offline', NO_NAME);
		clock.setWall(clock.wallMs() + 5 * HOUR);
		look();
		clock.advance(10 * MINUTE);
		become('online');
		clock.sleep(HOUR);
		look();
		await close();
		expect(sentences(directory).slice(2, 4)).toEqual(['the clock was set forward by 5 h', 'online again after 10 min']);
		expect(readHistory(directory).documents).toHaveLength(5);
	});

	test('has a clock that was set back while no agent ran, by what it or the events had kept last [F786]', async () => {
		const { directory } = await givenHome();
		const first = open(directory);
		first.become('offline', NO_NAME);
		await first.close();
		const { clock } = first;
		clock.setWall(clock.wallMs() - HOUR);
		const second = open(directory, { clock });
		second.become('online');
		await second.close();
		clock.advance(3 * HOUR);
		const newestAt = new Date(clock.wallMs() + 2 * HOUR).toISOString();
		await open(directory, { clock, newestAt, boot: 'boot-2' }).close();
		expect(sentences(directory).slice(3)).toEqual([
			'the clock was set back by 60 min',
			'agent 0.2.0 started',
			'online again after 0 s with id.example.com, workflow check-in (pairing)',
			'agent stopped',
			'the clock was set back by 2 h',
			'agent 0.2.0 started with the machine',
			'agent stopped',
		]);
	});

	test('that is killed has a line for each step of its clock that lasted, forward too, and none for one that was undone [F821]', async () => {
		const clock = createSteppedClock();
		const dayMs = clock.wallMs();
		const killed = async (directory: string, newestAt: string | null = null) => {
			await expect.poll(() => readHistory(directory).documents.at(-1)?.kind).toBe('state');
			const { directory: next } = await givenHome();
			fs.cpSync(directory, next, { recursive: true });
			open(next, { clock, newestAt }).become('online');
			return next;
		};
		const { directory } = await givenHome();
		open(directory, { clock }).become('online');
		clock.advance(20 * HOUR);
		clock.setWall(clock.wallMs() + 2 * HOUR);
		const newestAt = new Date(clock.wallMs()).toISOString();
		clock.advance(10 * MINUTE);
		clock.setWall(clock.wallMs() - 2 * HOUR);
		const undone = await killed(directory, newestAt);
		expect(sentences(undone).filter((sentence) => sentence.includes('clock'))).toEqual([]);
		clock.setWall(clock.wallMs() + 3 * HOUR);
		const lasting = await killed(undone);
		await expect.poll(() => sentences(lasting).length).toBe(7);
		expect(sentences(lasting).filter((sentence) => sentence.includes('clock'))).toEqual([
			'the clock was set forward by 3 h',
		]);
		// The day is where it was, by the clock of now.
		const [first] = pastOf(readHistory(lasting).documents, clock.wallMs());
		expect(first?.fromMs).toBe(dayMs + 3 * HOUR);
	});

	test('that is killed tells when it was heard of last, by its events where they are newer', async () => {
		const { directory } = await givenHome();
		const { clock, become } = open(directory);
		become('online');
		await expect.poll(() => readHistory(directory).documents.length).toBe(2);
		const newestAt = new Date(clock.wallMs() + HOUR).toISOString();
		clock.advance(3 * HOUR);
		const { directory: next } = await givenHome();
		fs.cpSync(directory, next, { recursive: true });
		await open(next, { clock, newestAt }).close();
		expect(readHistory(next).documents[2]).toMatchObject({ kind: 'started', after: 'kill', aliveAt: newestAt });
	});

	test('that was killed and has an event before its first line tells by the events from before the start [F1800]', async () => {
		const { directory } = await givenHome();
		const { clock, become } = open(directory);
		become('online');
		await expect.poll(() => readHistory(directory).documents.length).toBe(2);
		const aliveAt = new Date(clock.wallMs() + HOUR).toISOString();
		clock.advance(3 * HOUR);
		const startedAt = new Date(clock.wallMs() - 1000).toISOString();
		const { directory: next } = await givenHome();
		fs.cpSync(directory, next, { recursive: true });
		const events = [aliveAt, new Date(clock.wallMs()).toISOString()];
		await open(next, { clock, startedAt, events }).close();
		expect(readHistory(next).documents[2]).toMatchObject({ kind: 'started', after: 'kill', aliveAt });
	});

	test('that was killed while online tells how long it was away at least and at most, and one that was stopped how long [F1061]', async () => {
		const { directory } = await givenHome();
		const first = open(directory);
		first.become('online');
		const { clock } = first;
		clock.advance(2 * HOUR);
		await first.close();
		clock.advance(20 * MINUTE);
		const second = open(directory, { clock });
		clock.advance(1000);
		second.become('online');
		await expect.poll(() => readHistory(directory).documents.length).toBe(5);
		const newestAt = new Date(clock.wallMs() + 2 * HOUR).toISOString();
		clock.advance(5 * HOUR);
		for (const [newest, most] of [
			[newestAt, '3 h'],
			[null, '5 h'],
		] as const) {
			const { directory: killed } = await givenHome();
			fs.cpSync(directory, killed, { recursive: true });
			const third = open(killed, { clock: createSteppedClock(clock.wallMs()), newestAt: newest, boot: 'boot-2' });
			third.clock.advance(2 * MINUTE);
			third.become('offline', NO_NAME);
			third.clock.advance(3 * MINUTE);
			third.become('online');
			await third.close();
			expect(sentences(killed).slice(2)).toEqual([
				'agent stopped',
				'agent 0.2.0 started',
				'online again after 20 min with id.example.com, workflow check-in (pairing)',
				'agent 0.2.0 started with the machine, which had lost power or had crashed',
				'offline: DNS knows no id.example.com',
				`online again after at least 5 min and at most ${most}`,
				'agent stopped',
			]);
		}
	});

	test('that leaves a service has no line of it any more, in no file, and one that moves has those of the new one [F607]', async () => {
		const { directory } = await givenHome();
		const { become, close } = open(directory);
		become('online');
		become('online', null, { baseUrl: 'https://other.example/' });
		// Records are written over a moment after they are erased.
		await expect
			.poll(() => [sentences(directory), filesWith(directory, 'id.example.com')])
			.toEqual([['agent 0.2.0 started', 'online with other.example, workflow check-in (pairing)'], []]);
		become('online', null, { baseUrl: 'https://third.example/' });
		become('unpaired');
		await close();
		expect(sentences(directory)).toEqual(['agent 0.2.0 started', 'not paired', 'agent stopped']);
		for (const left of ['other.example', 'third.example']) expect(filesWith(directory, left)).toEqual([]);
	});

	test('that is stopped names in its last line the newest entry of the record, also one that is being written [F1997]', async () => {
		const { directory } = await givenHome();
		let written = 6;
		const settled = async () => {
			written = 7;
		};
		await open(directory, { audit: { newest: () => written, settled } }).close();
		expect(readHistory(directory).documents.at(-1)).toMatchObject({ kind: 'ended', audit: 7 });
	});

	test('that comes and goes for a day stays within its bytes, and every change is there or counted [F608]', async () => {
		const { directory } = await givenHome();
		const { clock, flap, close } = open(directory);
		const changes = (24 * HOUR) / 5000;
		for (let change = 0; change < changes; change += 1) {
			flap(change);
			clock.advance(5000);
		}
		await close();
		const entries = readHistory(directory).documents;
		expect(changesIn(entries)).toBe(changes);
		expect(entries.length).toBeLessThan(400);
		const names = namesIn(directory);
		const bytes = names.reduce((sum, name) => sum + fs.statSync(join(directory, name)).size, 0);
		expect(bytes).toBeLessThan((MAX_HISTORY_BYTES * 2) / 3);
		expect(sentences(directory).find((each) => /more changes/.test(each))).toMatch(
			/^\d+ more changes since \d\d:\d\d:\d\d, then /,
		);
	});

	test('that comes and goes for some minutes has a line for each change and cause, while it runs [F1000]', async () => {
		const { directory } = await givenHome();
		const { clock, become } = open(directory);
		for (let outage = 0; outage < 16; outage += 1) {
			become('online');
			clock.advance(4000);
			become('offline', NO_NAME);
			clock.advance(15_000);
			become('blocked', REFUSED);
			clock.advance(6000);
		}
		become('online');
		await expect.poll(() => readHistory(directory).documents.length).toBe(50);
		const told = sentences(directory).slice(1);
		expect(told.filter((each) => each === 'online again after 21 s')).toHaveLength(16);
		expect(told.filter((each) => each.startsWith('offline: DNS knows no'))).toHaveLength(16);
		expect(told.filter((each) => each.startsWith('still offline, and a person'))).toHaveLength(16);
	});

	test('that comes and goes for hours and is killed tells what was folded, its newest state and how long that outage was [F1001]', async () => {
		const { directory } = await givenHome();
		const { clock, flap, become } = open(directory);
		let changes = 0;
		const killed = async () => {
			const { directory: copy } = await givenHome();
			fs.cpSync(directory, copy, { recursive: true });
			const counted = changesIn(readHistory(copy).documents);
			return { told: sentences(copy).at(-1), isCounted: counted > (changes * 8) / 9, isExact: counted === changes };
		};
		// More than have a line each: the next ones are on the disk at once, then each eighth more, and all when it is quiet.
		for (; changes < 111; changes += 1) {
			flap(changes);
			clock.advance(3000);
		}
		await expect.poll(killed).toMatchObject({
			isExact: true,
			told: expect.stringMatching(/^10 more changes since [\d:]{8}, then online again after 3 s$/),
		});
		for (; changes < 2000; changes += 1) {
			flap(changes);
			clock.advance(3000);
		}
		await expect.poll(killed).toMatchObject({ isCounted: true });
		become('online');
		clock.advance(17_000);
		become('offline', NO_NAME);
		clock.advance(20_000);
		become('offline', REFUSED);
		clock.advance(25_000);
		become('online');
		changes += 4;
		clock.advance(10_000);
		await expect.poll(killed).toEqual({
			...{
				isExact: true,
				isCounted: true,
				told: expect.stringMatching(/more changes since [\d:]{8}, then online again after 45 s$/),
			},
		});
		// A device that has been quiet since then has a line for its next outage.
		clock.advance(HOUR);
		become('offline', NO_NAME);
		clock.advance(40 * MINUTE);
		become('online');
		changes += 2;
		await expect.poll(killed).toMatchObject({ isExact: true, told: 'online again after 40 min' });
	});
});

test.each(Object.keys(CATALOGUE) as ErrorCode[])(
	'%s as a cause is told in words, and without its code where it is of a link [F793]',
	(code) => {
		const moment = { state: 'offline', host: null, workflowId: null, by: null, cause: { code } } as const;
		const [told] = toldHistory([{ at: '2026-11-21T05:00:00.000Z', kind: 'state', ...moment }]);
		expect(told?.sentence).toMatch(/^offline: \S+ \S+ \S+/);
		expect(told?.sentence).not.toMatch(/problem/);
		if ('retry' in CATALOGUE[code]) expect(told?.sentence).not.toContain(code);
	},
);

test('whatever the rhythm, each change has an entry or is counted, in order, the newest has one, and the disk has few', () => {
	fc.assert(
		fc.property(fc.array(fc.oneof(fc.nat(20_000), fc.nat(2 * HOUR)), { maxLength: 200 }), (waits) => {
			let [fold, nowMs] = [NOTHING_FOLDED, 0];
			const written: HistoryEntry[] = [];
			const take = (change: StateEntry | null, ends = false) => {
				const next = foldChange(fold, change, nowMs, ends);
				({ fold } = next);
				written.push(...next.entries);
			};
			const entryAt = (ms: number) =>
				({ at: new Date(ms).toISOString(), kind: 'state', state: 'offline' }) as StateEntry;
			for (const wait of waits) {
				nowMs += wait;
				take(entryAt(nowMs));
			}
			take(null, true);
			const read = withoutReplaced(written);
			const times = read.map(({ at }) => at);
			return (
				changesIn(read) === waits.length &&
				times.join() === times.toSorted().join() &&
				(waits.length === 0 || times.at(-1) === entryAt(nowMs).at) &&
				written.length <= 201 + nowMs / (2 * MINUTE)
			);
		}),
	);
});

test('a kill takes from a count what came in the last four minutes and an eighth of it at most, whatever the rhythm [F1060]', () => {
	const wait = fc.oneof(fc.nat(2000), fc.nat(20_000), fc.nat(MINUTE), fc.nat(HOUR));
	const rhythm = fc.tuple(fc.integer({ min: 1, max: 300 }), wait).map(([times, ms]) => Array<number>(times).fill(ms));
	fc.assert(
		fc.property(fc.array(rhythm, { minLength: 1, maxLength: 6 }), (rhythms) => {
			let [fold, nowMs] = [NOTHING_FOLDED, 0];
			const written: HistoryEntry[] = [];
			const times: number[] = [];
			const take = (change: StateEntry | null) => {
				const next = foldChange(fold, change, nowMs);
				({ fold } = next);
				written.push(...next.entries);
			};
			const isWithinBound = () => {
				const count = (fold.counting?.entry.folded.changes ?? -1) + 1;
				const recent = times.filter((ms) => ms > nowMs - 4 * MINUTE - MOMENT_MS).length;
				return times.length - changesIn(withoutReplaced(written)) <= count / 8 + recent;
			};
			return rhythms.flat().every((waitMs) => {
				const nextMs = nowMs + waitMs;
				while (fold.counting && fold.counting.unwritten > 0 && nowMs + MOMENT_MS < nextMs) {
					nowMs += MOMENT_MS;
					take(null);
				}
				nowMs = nextMs;
				const isBefore = isWithinBound();
				times.push(nowMs);
				take({ at: new Date(nowMs).toISOString(), kind: 'state', state: 'offline' } as StateEntry);
				return isBefore && isWithinBound();
			});
		}),
		{ numRuns: 50 },
	);
});

test('idv-agent history tells a real outage, from a time on, also while the agent runs; a bad time is a usage error', async () => {
	const service = await givenService();
	const device = await givenPairedAgent(service);
	await service.close();
	await device.untilState('offline');
	const env = { IDV_AGENT_STATE_DIR: device.home.paths.stateDir };
	const told = async () => {
		const { stdout } = await finish('idv-agent', ['history'], env);
		return stdout
			.trim()
			.split('\n')
			.map((line) => line.replace(/^[\d:]{8} {2}/, '').replace(/:\d{4,5}\b/, ''));
	};
	// A change is on the disk a moment after it shows in the status.
	await expect
		.poll(told)
		.toEqual([
			'agent 0.0.0-test started',
			'not paired',
			'online with 127.0.0.1, workflow check-in (pairing)',
			expect.stringMatching(/^offline: /),
		]);
	await device.stop();
	for (const bad of [
		'yesterday',
		'2h30',
		'-1h',
		'2026-13-41',
		'2026-02-30',
		'2027-02-29T00:00:00Z',
		'2027-03-28T02:30:00',
		'99x',
	])
		expect(await finish('idv-agent', ['history', '--since', bad], env)).toMatchObject({ status: 64 });
	expect(await finish('idv-agent', ['history', '--since', '1h', '--until', '2h'], env)).toMatchObject({ status: 64 });
	const future = await finish('idv-agent', ['history', '--since', '2999-01-01', '--json'], env);
	expect(
		future.stdout
			.trim()
			.split('\n')
			.map((line) => JSON.parse(line).kind),
	).toEqual(['state']);
});

test('an outage that was asked for has that cause, and the next one its own [F1295]', async () => {
	const service = await givenService();
	const device = await givenPairedAgent(service);
	await device.client.request('admin', 'POST', LOCAL_ROUTES.reconnect);
	await device.untilStatus(({ state, channel }) => state === 'online' && channel.reconnects === 1);
	service.closeChannels(4001);
	await device.untilStatus(({ channel }) => channel.reconnects === 1 && channel.nextAttemptAt !== null);
	await device.stop();
	const { documents } = readHistory(device.home.paths.stateDir);
	const causes = documents.map((entry) => (entry.kind === 'state' ? [entry.state, entry.cause?.code ?? null] : []));
	expect(causes.filter(([state]) => state === 'offline')).toEqual([
		['offline', 'reconnect-asked'],
		['offline', 'connection-lost'],
	]);
	expect(toldHistory(documents).map(({ sentence }) => sentence)).toContain(
		'offline: this device was asked to connect again',
	);
});

test('a clock that is set on a device that does nothing has its line as soon as its status is asked for', async () => {
	const clock = createSteppedClock();
	const device = await givenAgent({ clock });
	await device.untilState('unpaired');
	clock.setWall(clock.wallMs() + 2 * HOUR);
	device.daemon.agent.status();
	await expect
		.poll(() => sentences(device.home.paths.stateDir))
		.toEqual(['agent 0.0.0-test started', 'not paired', 'the clock was set forward by 2 h']);
});
