/** Which events make room: chatter displaces itself, and readers are told of what goes between others. */
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { keepShares } from '../../src/events/shares.ts';
import { createEventStore } from '../../src/events/store.edge.ts';

let directory: string;

beforeEach(() => {
	directory = fs.mkdtempSync(path.join(os.tmpdir(), 'shares-'));
});

afterEach(() => fs.rmSync(directory, { recursive: true, force: true }));

const AT = '2030-01-01T00:00:00.000Z';
const open = (epoch: string, durable = true) =>
	createEventStore({ directory, epoch, durable, bounds: { maxCount: 20, maxBytes: 4_194_304, maxAgeMs: 1e12 } });

/** The kinds that a reader from the beginning gets, `gap` in the place of what made room. */
const kindsIn = (store: ReturnType<typeof open>) => store.after(null, 1000, 1e9).entries.map(({ kind }) => kind);

test.each([true, false])(
	'a thousand echoes leave the notifications before them where they are (durable: %s) [F650]',
	async (durable) => {
		let store = open('run1', durable);
		const append = async (kind: string, content: string) => {
			store.append({ at: AT, type: 'notification', kind, workflowId: null, format: 'json', content, serviceId: null });
			await store.settled();
		};
		for (let number = 0; number < 3; number += 1) {
			await append('session.started', `${number}`);
			for (let echo = 0; echo < 300; echo += 1) await append('heartbeat.echo', `${number}.${echo}`);
		}
		const expected = [
			'session.started',
			'gap',
			'session.started',
			'gap',
			'session.started',
			'gap',
			...Array(17).fill('heartbeat.echo'),
		];
		expect(kindsIn(store)).toEqual(expected);
		expect(store.count).toBe(20);
		if (durable) {
			await store.close();
			store = open('run2');
			expect(kindsIn(store)).toEqual(expected);
			await append('session.ended', '4');
			expect(kindsIn(store).filter((kind) => kind.startsWith('session'))).toHaveLength(4);
		}
		await store.close();
	},
);

test('what was erased for good is no gap between others', async () => {
	const store = open('run1');
	for (const content of ['1', '2', '3'])
		store.append({
			at: AT,
			type: 'notification',
			kind: 'a',
			workflowId: null,
			format: 'json',
			content,
			serviceId: null,
		});
	await store.settled();
	await store.erase(({ content }) => content === '2');
	expect(kindsIn(store)).toEqual(['a', 'a']);
	await store.close();
});

test('one kind alone makes room from its oldest on, and equally frequent kinds from the oldest of all', () => {
	const shares = keepShares(() => ['a', 'a', 'b', 'b', 'c'].map((kind, index) => ({ kind, number: index + 1 })));
	expect([...shares.take(2, 0)]).toEqual([1, 3]);
	expect([...shares.take(2, 3)]).toEqual([4, 5]);
});
