import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import type { Line } from '../../src/events/event-columns.ts';
import { openEventTail } from '../../src/events/event-tail.edge.ts';
import { runNow } from '../../src/events/flushing.edge.ts';

const lineOf = (name: string): Line => [['add', name]];

function givenTail() {
	const directory = fs.mkdtempSync(path.join(os.tmpdir(), 'event-tail-'));
	onTestFinished(() => fs.rmSync(directory, { recursive: true, force: true }));
	const file = path.join(directory, 'events.db');
	const tail = openEventTail(file);
	onTestFinished(tail.close);
	return {
		tail,
		append: (...names: string[]) => {
			for (const name of names) runNow(tail.append(lineOf(name), true));
		},
		/** As another process would, were this one killed now. */
		read: () => {
			const another = openEventTail(file);
			return another.read().map(([change]) => change?.[1]);
		},
		texts: () => ['-tail', '-tail2'].map((end) => fs.readFileSync(file + end, 'utf8')),
	};
}

test('a file that is used again gives what was written since, and nothing of the turn before', () => {
	const { tail, append, read, texts } = givenTail();
	append('one', 'two', 'three');
	tail.turn(false);
	append('four');
	expect(read()).toEqual(['one', 'two', 'three', 'four']);
	tail.empty(false);
	expect(read()).toEqual(['four']);
	tail.turn(false);
	tail.empty(false);
	expect(read()).toEqual([]);
	append('five!');
	expect(texts()[0]).toContain('three');
	expect(read()).toEqual(['five!']);
	tail.turn(false);
	append('six');
	expect(read()).toEqual(['five!', 'six']);
});

test('a line that just fits over one of the turn before ends what is read', () => {
	const { tail, append, read, texts } = givenTail();
	append('one', 'two');
	tail.turn(false);
	append('els');
	tail.empty(false);
	tail.turn(false);
	// The same length as "one", and turn 2 as long as turn 0: "two" follows, whole.
	append('new');
	expect(texts()[0]).toMatch(/"new"\]\]\n[0-9a-f]{8} \[0,\["add","two"\]\]\n$/);
	expect(read()).toEqual(['els', 'new']);
});

test('a clean-up leaves nothing of what came before it in either file', () => {
	const { tail, append, texts } = givenTail();
	append('one', 'two');
	tail.turn(false);
	append('three', 'four');
	tail.empty(false);
	expect(texts().join()).toContain('two');
	tail.turn(true);
	append('next');
	tail.empty(true);
	const [first, second] = texts();
	expect([first?.split('\n').length, second]).toEqual([2, '']);
	expect(first).toContain('next');
});
