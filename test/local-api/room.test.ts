import { expect, test } from 'vitest';
import { roomOf } from '../../src/local-api/memory-budget.ts';
import { createRoom } from '../../src/local-api/server/room.edge.ts';

const given = () => {
	const room = createRoom(() => roomOf(128));
	const of = (program: string, count: number) =>
		Array.from({ length: count }, () => room.take(program)).filter((taken) => typeof taken === 'function');
	return { room, of };
};

test.each([
	['one program', 1, 200],
	['seven programs', 7, 16],
	['two programs', 2, 60],
])(
	'whatever %s hold, four more have four requests each, and places that are given back are free again [F1284]',
	(_, programs, each) => {
		const { room, of } = given();
		const hogs = Array.from({ length: programs }, (_hog, n) => of(`hog ${n}`, each));
		expect(hogs.flat().length).toBe(112);
		expect(Array.from({ length: 4 }, (_late, n) => of(`late ${n}`, 9).length)).toEqual([4, 4, 4, 4]);
		expect(room.take('one more')).toBe('all');
		for (const giveBack of hogs.flat()) giveBack();
		expect(of('one more', 200).length).toBe(96);
	},
);

test.each([1, 2, 3, 8])('of %d places at all, the first who asks has at least one', (all) => {
	expect(createRoom(() => roomOf(all)).take('one')).toBeTypeOf('function');
});
