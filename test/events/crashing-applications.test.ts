/** An hour of applications that crash in a loop, two of them under one name, beside one that reads well: by a real store, on a stepped clock. */
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { createCounters } from '../../src/base/counters.ts';
import type { Entry } from '../../src/events/event.ts';
import { createEventsFeed } from '../../src/events/feed.runner.ts';
import { createEventStore } from '../../src/events/store.edge.ts';
import { streamEvents } from '../../src/local-api/event-routes.runner.ts';
import { createSteppedClock } from '../harness/stepped-clock.ts';

const STEPS = 120;
const STEP_MS = 3_600_000 / STEPS;
const BOUNDS = { maxCount: 40, maxBytes: 128 * 1024, maxAgeMs: 86_400_000 };
/** The last two are two processes of one name. */
const APPLICATIONS = ['crashing', 'slow', 'shared', 'shared'] as const;

const step = fc.record({
	appended: fc.array(fc.record({ kind: fc.constantFrom('a', 'a', 'a', 'b', 'c'), length: fc.nat(2000) }), {
		maxLength: 5,
	}),
	runs: fc.array(
		fc.record({
			which: fc.nat(APPLICATIONS.length - 1),
			limit: fc.integer({ min: 1, max: 100 }),
			/** How many of a page it gets to, and how many of them it acknowledges before the end of its process. */
			processed: fc.nat(12),
			acknowledged: fc.nat(8),
			crashes: fc.boolean(),
		}),
		{ maxLength: 3 },
	),
	rude: fc.constantFrom('nothing', 'newest', 'oldest', 'foreign', 'another name', 'forget'),
	agent: fc.constantFrom('goes on', 'goes on', 'goes on', 'goes on', 'stops', 'is killed'),
});

/** What one process, or all of one name, has got: events, and the numbers that lie in a gap. */
class Got {
	readonly #had = new Set<number>();
	/** @param from the number that was read before. */
	take(from: number, { type, number }: Entry): number {
		const first = type === 'gap' ? from + 1 : number;
		for (let each = first; each <= number; each += 1) this.#had.add(each);
		return Math.max(from, number);
	}
	/** The first number in this range that it has neither had nor been told of. */
	missing(after: number, to: number): number | null {
		for (let each = after + 1; each <= to; each += 1) if (!this.#had.has(each)) return each;
		return null;
	}
}

test('applications that crash in a loop for an hour, and two under one name, miss nothing without a gap, and the one that reads well gets each event once [F872]', async () => {
	let run = 0;
	await fc.assert(
		fc.asyncProperty(fc.array(step, { minLength: STEPS, maxLength: STEPS, size: 'max' }), async (steps) => {
			const root = fs.mkdtempSync(path.join(os.tmpdir(), 'crashing-'));
			let directory = path.join(root, 'first');
			fs.mkdirSync(directory);
			const clock = createSteppedClock();
			const streamed: string[] = [];
			const sink = {
				...{ send: () => true, close() {}, isBehind: false, drained: () => Promise.resolve(), sendPart: () => false },
				sendAll: (...frames: Buffer[]) => streamed.push(...(frames.join('').match(/(?<=^id: ).*/gm) ?? [])) > 0,
			};
			const start = () => {
				run += 1;
				const store = createEventStore({ directory, epoch: `run${run}`, bounds: BOUNDS, ...clock });
				const feed = createEventsFeed(store, createCounters());
				const leave = streamEvents({ events: feed } as never, streamed.at(-1) ?? null, sink);
				return { store, feed, leave };
			};
			let agent = start();
			const ids: string[] = [];
			const numbers = new Map<string, number>();
			const byName = new Map<string, Got>(APPLICATIONS.map((name) => [name, new Got()]));
			/** What each process remembers while it lives; `null` for one that is not running. */
			const living: ({ last: string | null; number: number; readonly from: number; readonly got: Got } | null)[] = [];
			const good: string[] = [];

			const process = async (which: number, limit: number, processed: number, acknowledged: number) => {
				const { feed } = agent;
				const name = APPLICATIONS[which] ?? 'crashing';
				feed.join(name);
				const position = feed.positionOf(name);
				const from = numbers.get(position ?? '') ?? 0;
				const own = living[which] ?? { last: position, number: from, from, got: new Got() };
				const page = feed.after(own.last, limit).entries.slice(0, processed);
				for (const [at, entry] of page.entries()) {
					byName.get(name)?.take(own.number, entry);
					own.number = own.got.take(own.number, entry);
					own.last = entry.id;
					numbers.set(entry.id, entry.number);
					// Until it has had an event it names none, and begins after what its name has acknowledged.
					living[which] = own;
					if (at < acknowledged) expect(feed.acknowledge(name, entry.id), entry.id).toBe(true);
				}
				await feed.settled();
				expect(own.got.missing(own.from, own.number), `${name} after ${own.from}`).toBeNull();
				expect(numbers.get(feed.positionOf(name) ?? '') ?? 0, 'no position goes back').toBeGreaterThanOrEqual(from);
				return page.length;
			};
			const beRude = (how: (typeof steps)[0]['rude']) => {
				const { store, feed } = agent;
				if (how === 'newest') feed.acknowledge('rude', store.newest() ?? '');
				if (how === 'oldest') feed.acknowledge('rude', ids[0] ?? '');
				if (how === 'foreign') expect(feed.acknowledge('rude', 'other-3')).toBe(false);
				if (how === 'another name') feed.join(`rude-${ids.length % 20}`);
				if (how === 'forget') feed.forget('rude');
			};
			const readWell = async () => {
				const { feed } = agent;
				feed.join('good');
				for (const { id } of feed.after(feed.positionOf('good')).entries) {
					good.push(id);
					feed.acknowledge('good', id);
				}
				await feed.settled();
			};

			try {
				await readWell();
				for (const name of APPLICATIONS) agent.feed.join(name);
				for (const [at, { appended, runs, rude, agent: next }] of steps.entries()) {
					for (const { kind, length } of appended) {
						const content = JSON.stringify('x'.repeat(length));
						const own = { type: 'notification', workflowId: null, format: 'json', serviceId: null } as const;
						const { store } = agent;
						const entry = store.append({ ...own, kind, content, at: new Date(clock.wallMs()).toISOString() });
						ids.push(entry?.id ?? expect.fail('a duplicate'));
						numbers.set(ids.at(-1) ?? '', ids.length);
						expect(entry?.number).toBe(ids.length);
					}
					await agent.store.settled();
					await readWell();
					for (const { which, limit, processed, acknowledged, crashes } of runs) {
						await process(which, limit, processed, acknowledged);
						if (crashes) living[which] = null;
					}
					beRude(rude);
					clock.advance(STEP_MS);
					await agent.store.settled();
					expect(agent.store.count).toBeLessThanOrEqual(BOUNDS.maxCount);
					expect(clock.pending, 'timers').toBeLessThan(10);
					const sizes = fs.readdirSync(directory).map((name) => fs.statSync(path.join(directory, name)).size);
					expect(sizes.length, 'files').toBeLessThan(12);
					expect(
						sizes.reduce((sum, size) => sum + size, 0),
						'bytes',
					).toBeLessThanOrEqual(BOUNDS.maxBytes * 1.25);
					if (next === 'goes on') continue;
					agent.leave();
					if (next === 'is killed') {
						const copy = path.join(root, String(at));
						fs.cpSync(directory, copy, { recursive: true });
						await agent.store.close();
						directory = copy;
					} else await agent.store.close();
					agent = start();
					await agent.store.settled();
				}
				for (const which of APPLICATIONS.keys()) {
					living[which] = null;
					while ((await process(which, 100, 100, 100)) > 0);
				}
				await readWell();
				for (const [name, got] of byName) expect(got.missing(0, ids.length), name).toBeNull();
				expect(good).toEqual(ids);
				await expect.poll(() => streamed).toEqual(ids);
			} finally {
				agent.leave();
				await agent.store.close();
				fs.rmSync(root, { recursive: true, force: true });
			}
		}),
		{ numRuns: 3 },
	);
});
