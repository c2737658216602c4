/** `idv probe` at services as an outsider would write them: what their messages and answers show. */
import { describe, expect, test } from 'vitest';
import { readForm } from '../../src/operator/probe-form.ts';
import type { Life } from '../../src/operator/probe-wire.ts';

const heard = (messages: readonly object[], everyMs = 1000): Life['heard'][number][] =>
	messages.map((message, at) => ({ atMs: at * everyMs, frame: { type: 'text', text: JSON.stringify(message) } }));

describe('the id of notifications', () => {
	const told = (at: number) => ({
		type: 'message',
		data: { kind: ['session.started', 'session.step'][at % 2], messageId: `m-${at}`, marker: `M${at}M` },
	});
	const at = new Date(Date.now()).toISOString();

	test.each<[string, (n: number) => object]>([
		['a counter', (n) => ({ type: 'tick', n })],
		['a counter and a time', (n) => ({ type: 'tick', seq: n, at })],
		['a counter and a load', (n) => ({ type: 'stats', n, load: (n * 7) % 5 })],
		['an id that counts', (n) => ({ type: 'tick', eventId: n })],
	])('is where notifications have it, however often there is chatter with %s [F1622]', (_, chatter) => {
		const all = Array.from({ length: 30 }, (_, nr) => (nr % 5 === 4 ? told(nr) : chatter(nr)));
		expect(readForm(heard(all))).toEqual({ kindPointer: '/data/kind', notificationIdPointer: '/data/messageId' });
		// Where nothing else comes it may be what there is.
		expect(readForm(heard(all.filter((_, nr) => nr % 5 !== 4)))).not.toMatchObject({
			notificationIdPointer: '/data/messageId',
		});
	});

	test('that is a number above 2^53 is found: as a number of JavaScript two of them may be one [F1623]', () => {
		const all = [1, 2, 3, 4].map(
			(nr) => `{"type":"session.step","event_id":123456789012345678${nr},"marker":"M${nr}"}`,
		);
		const frames = all.map((text, nr) => ({ atMs: nr, frame: { type: 'text' as const, text } }));
		expect(readForm(frames)).toEqual({ notificationIdPointer: '/event_id' });
	});
});
