/** The store of the events against a list in memory: clocks that jump, bounds that change, disks that fail, kills. */
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import fc from 'fast-check';
import { expect, test, vi } from 'vitest';
import { ofSession } from '../../src/events/erasure.ts';
import { createEventStore } from '../../src/events/store.edge.ts';
import { EIO } from '../base/lossy-files.ts';
import { readAll } from '../harness/read-all.ts';
import { createSteppedClock } from '../harness/stepped-clock.ts';

const HOUR = 3_600_000;
const DAY = 24 * HOUR;

const of = <Name extends string>(weight: number, name: Name, min: number, max: number) => ({
	weight,
	arbitrary: fc.record({ do: fc.constant(name), n: fc.integer({ min, max }) }),
});
const step = fc.oneof(
	of(6, 'append', 0, 30_000),
	of(4, 'give again', 0, 999),
	of(4, 'acknowledge', 0, 3),
	of(2, 'erase', 0, 2),
	of(2, 'let time pass', 1, 40 * HOUR),
	of(2, 'set the clock', -20 * DAY, 20 * DAY),
	of(1, 'change maxCount', 1, 8),
	of(1, 'change maxAge', DAY, 4 * DAY),
	...(['join', 'forget', 'fail', 'recover', 'stop', 'kill'] as const).map((name) => of(2, name, 0, 0)),
);

test('after any steps the store keeps what was not acknowledged, is not too old and is not too many, and knows what was stored or acknowledged [F1758]', async () => {
	let run = 0;
	await fc.assert(
		fc.asyncProperty(fc.array(step, { minLength: 10, maxLength: 40 }), async (steps) => {
			const root = fs.mkdtempSync(path.join(os.tmpdir(), 'event-model-'));
			let directory = path.join(root, 'first');
			fs.mkdirSync(directory);
			const bounds = { maxCount: 6, maxBytes: 1e9, maxAgeMs: 3 * DAY };
			const clock = createSteppedClock();
			const open = () => {
				run += 1;
				return createEventStore({ directory, epoch: `run${run}`, bounds, recoverEveryMs: 1e12, ...clock });
			};
			let store = open();
			store.join('kiosk');
			await store.settled();
			interface Event {
				readonly id: string;
				readonly number: number;
				readonly atMs: number;
				readonly session: string;
				readonly message: number;
			}
			let kept: Event[] = [];
			/** What the service has given, and of that, what is a duplicate when it comes again. */
			const messages: { readonly session: string; readonly content: string }[] = [];
			const known = new Set<number>();
			/** Numbers of events that were on the disk. */
			const durable = new Set<number>();
			/** Made room, and may still be in the files. */
			let displaced: typeof kept = [];
			const ids: string[] = [];
			let acknowledged = 0;
			let [hasOther, isBroken] = [false, false];
			const { write } = fs;
			const spy = vi
				.spyOn(fs, 'write')
				.mockImplementation(((...given: Parameters<typeof write>) =>
					isBroken ? (given.at(-1) as (error: Error) => void)(EIO) : write(...given)) as never);
			const append = (length: number) => {
				const session = `visit-${ids.length % 3}`;
				give(messages.push({ session, content: JSON.stringify({ session, text: 'x'.repeat(length) }) }) - 1);
			};
			const give = (message: number) => {
				const { session, content } = messages[message] ?? { session: '', content: '' };
				const at = new Date(clock.wallMs()).toISOString();
				const own = { kind: 'a', workflowId: null, serviceId: `message-${message}` } as const;
				const id = store.append({ at, type: 'notification', format: 'json', content, ...own })?.id ?? null;
				expect([message, id === null]).toEqual([message, known.has(message)]);
				if (id === null) return;
				known.add(message);
				kept.push({ id, number: ids.push(id), atMs: clock.monotonicMs(), session, message });
			};
			const settle = async () => {
				await store.settled();
				for (const { number } of isBroken ? [] : kept) durable.add(number);
			};
			const reopenIn = async (next: string) => {
				fs.cpSync(directory, next, { recursive: true });
				await store.close();
				directory = next;
				store = open();
			};
			const actions: Record<(typeof steps)[number]['do'], (n: number) => unknown> = {
				append,
				'give again': (n) => messages.length > 0 && give(n % messages.length),
				acknowledge(back) {
					acknowledged = Math.max(acknowledged, ids.length - back);
					if (acknowledged > 0) store.acknowledge('kiosk', ids[acknowledged - 1] ?? '');
				},
				async erase(session) {
					await store.erase(ofSession(`visit-${session}`));
					const isLeft = (event: (typeof kept)[0]) => event.session !== `visit-${session}`;
					for (const { message } of kept.filter((event) => !isLeft(event))) known.delete(message);
					[kept, displaced] = [kept.filter(isLeft), displaced.filter(isLeft)];
				},
				'let time pass': (ms) => clock.advance(ms),
				'set the clock': (ms) => clock.setWall(clock.wallMs() + ms),
				'change maxCount': (count) => Object.assign(bounds, { maxCount: count }),
				'change maxAge': (ms) => Object.assign(bounds, { maxAgeMs: ms }),
				join() {
					store.join('other');
					hasOther = true;
				},
				forget() {
					expect(store.forget('other')).toBe(hasOther);
					hasOther = false;
				},
				fail() {
					isBroken = true;
				},
				async recover() {
					isBroken = false;
					await store.recover();
				},
				async stop() {
					await store.close();
					store = open();
					displaced = [];
				},
				kill: () => reopenIn(path.join(root, String(run))),
			};
			try {
				for (const { do: name, n } of steps) {
					// What is in memory only is gone with the process.
					if (isBroken && ['stop', 'kill', 'erase'].includes(name)) continue;
					await actions[name](n);
					await settle();
					// Clocks and bounds are looked at with the next event, and what that leads to is in the database before the one after it.
					for (const length of ['append', 'give again', 'acknowledge', 'let time pass', 'forget'].includes(name)
						? []
						: [1, 2]) {
						append(length);
						await settle();
					}
					const done = hasOther ? 0 : acknowledged;
					const isKept = (event: (typeof kept)[0]) =>
						event.number > done && clock.monotonicMs() - event.atMs < bounds.maxAgeMs;
					const read = readAll(store).entries.map(({ id }) => id);
					const within = kept.filter(isKept).slice(-bounds.maxCount);
					const all = [...displaced, ...kept];
					// After a kill, those that made room are kept again where the bounds of now have room for them.
					const isMore = name === 'kill' && read.length > within.length;
					kept = isMore ? all.filter(isKept).slice(-bounds.maxCount).slice(-read.length) : within;
					for (const { number, message } of all)
						if (number > done && !durable.has(number) && !kept.some((event) => event.message === message))
							known.delete(message);
					displaced = all.filter((event) => event.number > done && !kept.includes(event));
					expect(read).toEqual(kept.map(({ id }) => id));
					expect(store.consumers().map((consumer) => consumer.name)).toEqual(hasOther ? ['kiosk', 'other'] : ['kiosk']);
				}
			} finally {
				await store.close();
				spy.mockRestore();
				fs.rmSync(root, { recursive: true, force: true });
			}
		}),
		{ numRuns: 100 },
	);
});

test('a wrong byte anywhere costs one event at most, in a gap at its place, and brings nothing back that was erased; an erasure takes its bytes along [F709]', async () => {
	const event = fc.record({ length: fc.nat(3000), session: fc.nat(2) });
	const events = fc.array(event, { minLength: 1, maxLength: 60 });
	const part = fc.nat(999_999).map((millionths) => millionths / 1e6);
	await fc.assert(
		fc.asyncProperty(events, fc.nat(3), part, part, fc.nat(7), async (drawn, erased, acknowledged, place, bit) => {
			const directory = fs.mkdtempSync(path.join(os.tmpdir(), 'event-model-'));
			// In files of 32 KiB.
			const bounds = { maxCount: 1000, maxBytes: 262_144, maxAgeMs: 3 * DAY };
			let store = createEventStore({ directory, epoch: 'first', bounds });
			try {
				store.join('kiosk');
				const received = new Map<string, string>();
				for (const { length, session } of drawn) {
					const content = JSON.stringify({ session: `visit-${session}`, text: 'x'.repeat(length) });
					const own = { kind: 'a', workflowId: null, serviceId: null, at: new Date().toISOString() } as const;
					received.set(store.append({ ...own, type: 'notification', format: 'json', content })?.id ?? '', content);
				}
				await store.settled();
				const ids = [...received.keys()];
				const done = Math.floor(acknowledged * (ids.length + 1));
				if (done > 0) store.acknowledge('kiosk', ids[done - 1] ?? '');
				await store.erase(ofSession(`visit-${erased}`));
				const kept = ids.filter((_, index) => index >= done && drawn[index]?.session !== erased);
				await store.close();

				const files = fs.readdirSync(directory).map((name) => path.join(directory, name));
				const sizes = files.map((each) => fs.statSync(each).size);
				let at = Math.floor(place * sizes.reduce((sum, size) => sum + size, 0));
				let index = 0;
				for (; at >= (sizes[index] ?? 0); index += 1) at -= sizes[index] ?? 0;
				const file = files[index] ?? '';
				const bytes = fs.readFileSync(file);
				bytes.writeUInt8((bytes[at] ?? 0) ^ (1 << bit), at);
				fs.writeFileSync(file, bytes);

				store = createEventStore({ directory, epoch: 'second', bounds });
				const { entries } = readAll(store);
				for (const { id, type, content } of entries.filter((entry) => entry.type === 'notification')) {
					expect([type, content]).toEqual(['notification', received.get(id)]);
					expect(content).not.toContain(`visit-${erased}`);
				}
				const missing = kept.filter((id) => !entries.some((entry) => entry.type === 'notification' && entry.id === id));
				expect(missing.length).toBeLessThanOrEqual(1);
				for (const id of missing) {
					const number = ids.indexOf(id) + 1;
					expect(entries.find((entry) => entry.number >= number)).toMatchObject({ type: 'gap' });
				}

				const next = (erased + 1) % 3;
				await store.erase(ofSession(`visit-${next}`));
				for (const name of fs.readdirSync(directory))
					expect(fs.readFileSync(path.join(directory, name), 'latin1')).not.toMatch(`visit-${next}`);
				const left = kept.filter((id) => !missing.includes(id) && drawn[ids.indexOf(id)]?.session !== next);
				const later = readAll(store).entries;
				expect(later.filter(({ type }) => type === 'notification').map(({ id }) => id)).toEqual(left);
				const since = Math.min(...left.map((id) => ids.indexOf(id) + 1));
				const isTold = (number: number) => later.some((entry) => entry.type === 'gap' && entry.number >= number);
				// Before the oldest that is left, an application reads of no single event that it was there.
				for (const id of missing) expect(ids.indexOf(id) + 1 < since || isTold(ids.indexOf(id) + 1)).toBe(true);
			} finally {
				await store.close();
				fs.rmSync(directory, { recursive: true, force: true });
			}
		}),
		{ numRuns: 100 },
	);
});
