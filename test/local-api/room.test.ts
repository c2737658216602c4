import { expect, test } from 'vitest';
import { roomOf } from '../../src/local-api/memory-budget.ts';
import { createRoom } from '../../src/local-api/server/room.ts';

test('whatever one program holds, eight more have four requests each, and a place that is given back is free again [F1284]', () => {
	const room = createRoom(() => roomOf(128));
	const of = (program: string, count: number) =>
		Array.from({ length: count }, () => room.take(program)).filter((taken) => typeof taken === 'function');
	const hogs = Array.from({ length: 12 }, (_, n) => of(`hog ${n}`, 200));
	expect(hogs.map(({ length }) => length)).toEqual([96, 4, 4, 4, 4, 4, 4, 4, 4, 0, 0, 0]);
	hogs[0]?.forEach((giveBack) => void giveBack());
	expect(Array.from({ length: 8 }, (_, n) => of(`late ${n}`, 4).length)).toEqual(Array(8).fill(4));
	expect(room.take('one')).toBeTypeOf('function');
});

test.each([1, 2, 3, 8])('of %d places at all, the first who asks has at least one', (all) => {
	expect(createRoom(() => roomOf(all)).take('one')).toBeTypeOf('function');
});
