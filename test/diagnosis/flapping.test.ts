import { expect, test } from 'vitest';
import { checkChannel } from '../../src/diagnosis/probe-channel.runner.ts';
import type { Status } from '../../src/protocol/local-api.ts';

const since = '2026-03-01T09:46:00.000Z';
const channel = { state: 'online', since, lastHeartbeatAt: null, reconnects: 3, nextAttemptAt: null } as const;
const given = (more: Partial<Status>) => {
	const status = { state: 'online', sentence: 'Online.', problem: null, warnings: [], channel, ...more } as unknown;
	return checkChannel({ kind: 'runs', status } as Parameters<typeof checkChannel>[0]);
};

test('the doctor says that an online channel is cut again and again', () => {
	const flapping = {
		code: 'channel-flapping',
		message: 'The channel was cut 7 times in 10 min, each after 20 s (1011).',
		remedy: 'Check.',
	};
	expect(given({ warnings: [flapping] })).toMatchObject({ status: 'warning', message: flapping.message });
});

test('and that notifications are at risk', () => {
	const atRisk = { code: 'notifications-at-risk', message: 'Notifications are at risk: …', remedy: 'Wait.' };
	expect(given({ warnings: [atRisk] })).toMatchObject({ status: 'warning', message: atRisk.message });
});

test('and that an idle timeout on the way is handled', () => {
	const found = given({ channel: { ...channel, idleTimeout: { seconds: 20, pingSeconds: 13 } } });
	expect(found).toMatchObject({
		status: 'ok',
		message: expect.stringContaining('ends after 20 s of silence, and the agent pings it in time'),
	});
	expect(given({})).toMatchObject({ status: 'ok', message: `The agent is online since ${since}.` });
});
