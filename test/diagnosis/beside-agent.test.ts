import { describe, expect, test } from 'vitest';
import { type ErrorCode, failure } from '../../src/base/errors.ts';
import { besideAgent } from '../../src/diagnosis/beside-agent.ts';
import { failed, ok } from '../../src/diagnosis/checks.ts';

const found = (code: ErrorCode) => failed(failure(code, 'It failed.', { remedy: 'Do this.' }));
const ONLINE = { state: 'online', problem: null } as const;
const OFFLINE = { state: 'offline', problem: null } as const;

describe('a finding on the way to the service, beside an agent that', () => {
	test.each<ErrorCode>(['handshake-timeout', 'request-timeout'])(
		'is online: an answer that is late is slow, %s',
		(code) => {
			expect(besideAgent(found(code), ONLINE)).toMatchObject({ status: 'warning', code });
		},
	);

	test('is online: a line that cannot be made has failed, since the channel from before may be dead and not know it yet [F1496]', () => {
		expect(besideAgent(found('connect-timeout'), ONLINE)).toMatchObject({
			status: 'failed',
			message:
				"It failed. The agent's channel from before is still open; within a minute it shows whether that one works.",
			remedy: 'Do this.',
		});
		const stalled = failed(failure('tls-failed', 'It failed.', { params: { reason: 'stalled' } }));
		expect(besideAgent(stalled, ONLINE).message).toContain('channel from before');
	});

	test('tells the same of it: its remedy, which knows what worked lately, takes the place of the own one [F1497]', () => {
		const problem = failure('proxy-failed', 'It failed.', { remedy: 'Wait a few minutes: it worked lately.' });
		const status = { state: 'offline', problem } as const;
		expect(besideAgent(found('proxy-failed'), status)).toMatchObject({ status: 'failed', remedy: problem.remedy });
		expect(besideAgent(found('dns-failed'), status)).toMatchObject({ remedy: 'Do this.' });
	});

	test('is offline: it stays as it is, and so does what is well', () => {
		for (const code of ['connect-timeout', 'request-timeout'] as const)
			expect(besideAgent(found(code), OFFLINE)).toEqual(found(code));
		expect(besideAgent(ok('Fine.'), ONLINE)).toEqual(ok('Fine.'));
	});
});
