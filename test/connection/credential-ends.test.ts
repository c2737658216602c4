import { expect, test } from 'vitest';
import { tellEnds } from '../../src/connection/credential-ends.ts';

const DAY = 86_400_000;
const NOW = Date.UTC(2026, 5, 1);

test('a credential tells its end from 30 days before it on, with the whole days that are left [F1893]', () => {
	const told = (leftMs?: number) =>
		tellEnds([{ what: 'The key', path: '/k', ...(leftMs !== undefined && { atMs: NOW + leftMs }) }], NOW).map(
			({ params, message }) => [params?.['days'], / (ends|has ended) at /.exec(message)?.[1]],
		);
	expect([told(), told(30 * DAY + 1)]).toEqual([[], []]);
	expect(told(30 * DAY)).toEqual([[30, 'ends']]);
	expect(told(DAY - 1)).toEqual([[0, 'ends']]);
	expect(told(0)).toEqual([[0, 'has ended']]);
	expect(told(-DAY)).toEqual([[-1, 'has ended']]);
});
