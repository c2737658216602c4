import { uptime } from 'node:os';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { idleClock, systemClock } from '../../src/base/clock.edge.ts';

beforeEach(() => {
	vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
});
afterEach(() => {
	vi.useRealTimers();
});

test('what is due in one second shares a wakeup, and nothing comes early', () => {
	vi.advanceTimersByTime(100);
	const rang: string[] = [];
	systemClock.schedule(30_000, () => rang.push('heartbeat'));
	idleClock.schedule(30_040, () => rang.push('ping'));
	idleClock.schedule(29_900, () => rang.push('watchdog'));
	expect(vi.getTimerCount()).toBe(2);
	vi.advanceTimersByTime(29_900);
	expect(rang).toEqual([]);
	vi.advanceTimersByTime(10);
	expect(rang).toEqual(['watchdog']);
	vi.advanceTimersByTime(1000);
	expect(rang).toEqual(['watchdog', 'heartbeat', 'ping']);
	expect(vi.getTimerCount()).toBe(0);
});

test('one that is cancelled does not take the others with it, also while they ring', () => {
	const rang: string[] = [];
	const cancels = ['a', 'b', 'c'].map((name) => systemClock.schedule(10_000, () => rang.push(name)));
	systemClock.schedule(10_000, () => cancels[2]?.());
	systemClock.schedule(10_000, () => rang.push('d'));
	cancels[0]?.();
	cancels[0]?.();
	vi.advanceTimersByTime(11_000);
	expect(rang).toEqual(['b', 'c', 'd']);
	const last = systemClock.schedule(10_000, () => rang.push('never'));
	last();
	expect(vi.getTimerCount()).toBe(0);
});

test('a cadence keeps its phase: one that is due again at once shares the next wakeup as well', () => {
	const rang: number[] = [];
	const beat = (dueMs: number): void => {
		systemClock.schedule(dueMs - systemClock.monotonicMs(), () => {
			rang.push(systemClock.monotonicMs());
			beat(dueMs + 30_000);
		});
	};
	beat(systemClock.monotonicMs() + 30_000);
	beat(systemClock.monotonicMs() + 30_000);
	vi.advanceTimersByTime(300_000);
	expect(vi.getTimerCount()).toBe(1);
	const gaps = rang.slice(2).map((at, index) => at - (rang[index] ?? 0));
	expect(new Set(gaps)).toEqual(new Set([30_000]));
});

test('short delays are not shared', () => {
	const rang: string[] = [];
	systemClock.schedule(10, () => rang.push('short'));
	vi.advanceTimersByTime(10);
	expect(rang).toEqual(['short']);
});

test('a delay that is longer than any timer does not ring at once [F1850]', () => {
	const rang: string[] = [];
	const cancel = systemClock.schedule(2 ** 40, () => rang.push('in 35 years'));
	vi.advanceTimersByTime(60_000);
	cancel();
	expect(rang).toEqual([]);
});

test('one that shares a wakeup and is cancelled keeps the process alive no longer [F1851]', () => {
	vi.useRealTimers();
	const alive = () => process.getActiveResourcesInfo().filter((kind) => kind === 'Timeout').length;
	const before = alive();
	const cancelIdle = idleClock.schedule(10_000, () => {});
	const cancel = systemClock.schedule(10_000, () => {});
	expect(alive()).toBe(before + 1);
	cancel();
	expect(alive()).toBe(before);
	cancelIdle();
});

test('sleep is reckoned from the start of the machine, in milliseconds [F1852]', () => {
	expect(Math.abs(systemClock.sleptMs() + systemClock.monotonicMs() - uptime() * 1000)).toBeLessThan(1000);
});
