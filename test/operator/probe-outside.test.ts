/** `idv probe` at services as an outsider would write them: what their messages and answers show. */
import { describe, expect, test } from 'vitest';
import { lifeFindings } from '../../src/operator/probe-findings.ts';
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

const lifeOf = (messages: readonly object[], more: Partial<Life> = {}): Life => ({
	...{ refusal: null, isOpen: true, headers: {}, subprotocol: null, pings: 1, pongs: 1, failure: null },
	...{ heard: heard(messages), said: [], ended: null, ...more },
});
const findingOf = (life: Life, point: string) =>
	lifeFindings({ life, form: readForm(life.heard), settleMs: 500, settings: {} }).find((one) => one.point === point);

test('what stands beside an array in a frame counts where it has a kind, and is named where it is not kept [F1625]', () => {
	const batch = (at: number) => ({ events: [{ type: 'session.step', id: `n-${at}` }] });
	const alert = { type: 'device.alert', id: 'a-1' };
	const whole = lifeOf([batch(1), { ...batch(2), alert }, batch(3)]);
	expect(findingOf(whole, 'frame-contents')).toMatchObject({
		found: '/events: a message holds up to 2 notifications',
		settings: { frameContents: '/events' },
	});
	const part = lifeOf([batch(1), { ...batch(2), alert: 'paper is out', seq: 2 }, { ...batch(3), more: [{ no: 1 }] }]);
	expect(findingOf(part, 'frame-contents')?.found).toBe(
		'/events: a message holds up to 1 notifications (not kept, as it has no kind: alert, seq, more)',
	);
});
