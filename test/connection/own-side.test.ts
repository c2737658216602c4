import { networkInterfaces } from 'node:os';
import { expect, test } from 'vitest';
import { findInterface } from '../../src/base/unix.edge.ts';
import { watchOwnSide } from '../../src/connection/own-side.edge.ts';

const eth0 = { name: 'eth0', losses: '2\n' };

test.each([
	['has lost its link and got it back', { name: 'eth0', losses: '4\n' }],
	['has no link, or has gone with its address', null],
	['has left its address to another one', { name: 'wlan0', losses: '2\n' }],
])('silence while the interface %s is told as the loss of the own network [F1033]', (_, after) => {
	let now: typeof eth0 | null = eth0;
	const lost = watchOwnSide('id.example', '10.0.0.7', () => now);
	expect(lost()).toBeNull();
	now = after;
	expect(lost()).toMatchObject({
		code: 'connection-lost',
		message: 'This device had lost its own network (eth0); its channel to id.example is opened again.',
		remedy: expect.stringContaining('cable'),
	});
});

test("the interface of an own address is found by the routes of the machine, and none for a stranger's", () => {
	const [[name, all] = ['', []]] = Object.entries(networkInterfaces()).filter(([name]) => name !== 'lo');
	const own = all?.find(({ family }) => family === 'IPv4')?.address ?? '';
	expect(findInterface(own)).toBe(own === '' ? null : name);
	expect([findInterface('203.0.113.250'), findInterface('::1'), findInterface('127.0.0.1')]).toEqual([
		null,
		null,
		null,
	]);
});

test('of a line whose own side is not known nothing is said, and addresses that stay are not lost', () => {
	let now: typeof eth0 | null = null;
	const unknown = watchOwnSide('id.example', '10.0.0.7', () => now);
	now = eth0;
	expect(unknown()).toBeNull();
	expect(watchOwnSide('id.example', undefined)()).toBeNull();
	const own = Object.values(networkInterfaces()).flatMap((all) => all ?? []);
	expect(own.map(({ address }) => watchOwnSide('id.example', address)())).toEqual(own.map(() => null));
});
