import { expect, test } from 'vitest';
import { anyOf, KEY_BYTES, keyOf, readKey, rememberMessages, writeKey } from '../../src/events/duplicates.ts';

const message = (serviceId: string | null, kind = 'k', content = 'c') => ({ serviceId, kind, content });

/** Remembers messages, and says whether each is new. */
function remembering(max: number) {
	const duplicates = rememberMessages(max);
	const isNew = (one: ReturnType<typeof message>, overlaps?: boolean) => duplicates.isNew(keyOf(one), overlaps);
	return { duplicates, isNew };
}

test('a message without an id is always new', () => {
	const { isNew } = remembering(10);
	expect([isNew(message(null)), isNew(message(null))]).toEqual([true, true]);
	expect(keyOf(message(null))).toBeNull();
});

test('so many are remembered, the newest, and never more than twice as many', () => {
	const { isNew } = remembering(2);
	for (const id of ['a', 'b', 'c', 'd', 'e']) expect(isNew(message(id))).toBe(true);
	expect(isNew(message('e'))).toBe(false);
	expect(isNew(message('d', 'k', 'other'), true)).toBe(false);
	expect(isNew(message('a'), true)).toBe(true);
});

test('what is taken over from the disk does not displace what came since', () => {
	const { duplicates, isNew } = remembering(2);
	for (const id of ['a', 'b', 'c', 'd']) isNew(message(id));
	duplicates.load(['a', 'b'].map((id) => keyOf(message(id)) ?? anyOf('')));
	for (const id of ['c', 'd']) expect(isNew(message(id))).toBe(false);
	expect(isNew(message('e'))).toBe(true);
	expect(isNew(message('d'))).toBe(false);
});

test('messages of one id are each remembered', () => {
	const { isNew } = remembering(10);
	for (const one of [message('a'), message('a', 'kk'), message('a', 'k', 'cc')])
		expect([isNew(one), isNew(one)]).toEqual([true, false]);
});

test('what is stored of a message is three short hashes, which tell messages apart, name none, and are read again', () => {
	const messages = [message('a'), message('a', 'kk'), message('a', 'k', 'cc'), message('b'), message('', '', '')];
	const keys = messages.map((one) => keyOf(one) ?? anyOf(''));
	expect(new Set(keys.map(String)).size).toBe(5);
	for (const key of keys) {
		const bytes = new DataView(new ArrayBuffer(KEY_BYTES));
		writeKey(key, bytes);
		expect(readKey(bytes)).toEqual(key);
	}
	const none = new DataView(new ArrayBuffer(KEY_BYTES));
	writeKey(null, none);
	expect(readKey(none)).toBeNull();
	const { duplicates, isNew } = remembering(10);
	duplicates.load(keys);
	expect(duplicates.newest()).toHaveLength(5);
	expect(messages.map((one) => isNew(one))).toEqual([false, false, false, false, false]);
	expect([isNew(message('a', 'k', 'ccc')), isNew(message('b', 'kk'))]).toEqual([true, true]);
});

test('the id alone, as 0.1.0 left it of a deleted message, stands for every message of that id', () => {
	const { duplicates, isNew } = remembering(10);
	duplicates.load([anyOf('a'), keyOf(message('b')) ?? anyOf('')]);
	expect([isNew(message('a', 'any', 'thing')), isNew(message('b')), isNew(message('b', 'k', 'cc'))]).toEqual([
		...[false, false, true],
	]);
});
