import { expect, test } from 'vitest';
import { type HeartbeatOptions, startHeartbeats } from '../../src/connection/heartbeats.runner.ts';
import { createSteppedClock } from '../harness/stepped-clock.ts';

const START_MS = Date.UTC(2026, 0, 1);

/** Heartbeats every 10 s, the first after 4 s, of an agent that has run for 100 s. */
function given(more: Partial<HeartbeatOptions> = {}) {
	const clock = createSteppedClock(START_MS);
	const frames: { atMs: number; frame: string }[] = [];
	const sent: string[] = [];
	const stop = startHeartbeats({
		clock,
		firstInMs: 4000,
		cadenceMs: 10_000,
		deviceId: 'K-1',
		workflowId: 'check-in',
		startedAtMs: clock.monotonicMs() - 100_000,
		plan: () => ({ planRevision: 7, planRefused: 6 }),
		body: null,
		send: (frame) => frames.push({ atMs: clock.wallMs() - START_MS, frame }) > 0,
		onSent: (at) => sent.push(at),
		...more,
	});
	return { clock, frames, sent, stop, times: () => frames.map(({ atMs }) => atMs) };
}

test('come at their times, each with its number, what the plan says and how long the agent has run', () => {
	const { clock, frames, sent, times } = given();
	clock.advance(24_500);
	expect(times()).toEqual([4000, 14_000, 24_000]);
	expect(JSON.parse(frames[0]?.frame ?? '')).toEqual({
		type: 'heartbeat',
		deviceId: 'K-1',
		workflowId: 'check-in',
		sequence: 1,
		sentAt: '2026-01-01T00:00:04.000Z',
		uptimeSeconds: 104,
		planRevision: 7,
		planRefused: 6,
	});
	expect(JSON.parse(frames[2]?.frame ?? '')).toMatchObject({ sequence: 3, uptimeSeconds: 124 });
	expect(sent).toEqual(['2026-01-01T00:00:04.000Z', '2026-01-01T00:00:14.000Z', '2026-01-01T00:00:24.000Z']);
});

test('after a stall there is one, and then the next at the time that it always had', () => {
	const { clock, times } = given();
	clock.advance(4000);
	clock.stall(35_000);
	clock.advance(6000);
	expect(times()).toEqual([4000, 39_000, 44_000]);
});

test('after a stall that ends just when one is due there is one', () => {
	const { clock, times } = given();
	clock.advance(4000);
	clock.stall(30_000);
	clock.advance(10_000);
	expect(times()).toEqual([4000, 34_000, 44_000]);
});

test('one that the channel does not take was not sent, and the next comes all the same', () => {
	const { clock, sent, times } = given({ send: () => false });
	clock.advance(30_000);
	expect(sent).toEqual([]);
	expect(times()).toEqual([]);
	expect(clock.pending).toBe(1);
});

test('are in the shape that the deployment names', () => {
	const { clock, frames } = given({ body: '{"t":"hb","id":"{deviceId}","n":"{sequence}"}' });
	clock.advance(4000);
	const frame = JSON.parse(frames[0]?.frame ?? '');
	expect(frame).toMatchObject({ t: 'hb', id: 'K-1' });
	expect(String(frame.n)).toBe('1');
});

test('end when they are told to', () => {
	const { clock, frames, stop } = given();
	clock.advance(4000);
	stop();
	clock.advance(60_000);
	expect(frames).toHaveLength(1);
	expect(clock.pending).toBe(0);
});
