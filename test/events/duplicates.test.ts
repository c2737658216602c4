import { expect, test } from 'vitest';
import { keyOf, rememberMessages } from '../../src/events/duplicates.ts';

const message = (serviceId: string | null, kind = 'k', content = 'c') => ({ serviceId, kind, content });

test('a message without an id is always new', () => {
	const duplicates = rememberMessages(10);
	expect([duplicates.isNew(message(null)), duplicates.isNew(message(null))]).toEqual([true, true]);
	expect(keyOf(message(null))).toBeNull();
});

test('no more than so many are remembered, the newest', () => {
	const duplicates = rememberMessages(2);
	for (const id of ['a', 'b', 'c']) expect(duplicates.isNew(message(id))).toBe(true);
	expect(duplicates.isNew(message('c'))).toBe(false);
	expect(duplicates.isNew(message('b', 'k', 'other'), true)).toBe(false);
	expect(duplicates.isNew(message('a'), true)).toBe(true);
});

test('what is taken over from the disk does not displace what came since', () => {
	const duplicates = rememberMessages(2);
	for (const id of ['a', 'b', 'c']) duplicates.isNew(message(id));
	const stored = ['a', 'b'].map((id) => ({ key: keyOf(message(id)) ?? '', kind: 'k', content: 'c' }));
	duplicates.load(stored);
	expect(duplicates.isNew(message('c'))).toBe(false);
	expect(duplicates.isNew(message('a'))).toBe(true);
});

test('what is stored of a message is its id and two short hashes, and tells messages apart', () => {
	const keys = [message('a'), message('a', 'kk'), message('a', 'k', 'cc'), message('b')].map(keyOf);
	expect(new Set(keys).size).toBe(4);
	for (const key of keys) expect(key).toMatch(/^[ab]\u001f[0-9a-z]{6,11}\u001f[0-9a-z]{6,11}$/);
});
