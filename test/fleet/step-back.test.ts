import { expect, test } from 'vitest';
import { inOrder } from '../../src/fleet/step-back.ts';

test('after a step back a rule that is newer than the order of before comes last, where it wins over none of them', () => {
	const rules = ['since', 'b', 'also since', 'a'].map((name) => ({ name }));
	expect(inOrder(rules, ['a', 'b']).map(({ name }) => name)).toEqual(['a', 'b', 'since', 'also since']);
	expect(inOrder(rules, undefined)).toBe(rules);
});
