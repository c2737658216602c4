import { describe, expect, test } from 'vitest';
import { AgentError, failure } from '../../src/base/errors.ts';
import { CHECK_IDS, CHECKS, type CheckId } from '../../src/diagnosis/check-list.runner.ts';
import { type Check, type Finding, failed, ok } from '../../src/diagnosis/checks.ts';
import { readAssignments, readRunFlags } from '../../src/diagnosis/inspection-target.runner.ts';
import { diagnose } from '../../src/diagnosis/run-checks.runner.ts';
import { createSteppedClock } from '../harness/stepped-clock.ts';
import { examine } from './examine.ts';

test('a machine whose memory is used up is reported, until there is some again [F133]', async () => {
	const having = async (availableKib: number) => {
		const machine = { 'proc/meminfo': `MemTotal:  1048576 kB\nMemFree:  1000 kB\nMemAvailable:  ${availableKib} kB\n` };
		return (await examine({ machine }, 'memory')).checks.memory;
	};
	expect(await having(20_480)).toMatchObject({
		status: 'warning',
		code: 'memory-low',
		message:
			'Only 20 MiB of 1024 MiB are available; the agent may use at most 256 MiB, of which its applications take at most 64 MiB.',
	});
	expect(await having(620_480)).toMatchObject({ status: 'ok' });
});

describe('the running of checks', () => {
	const never = () => new Promise<Finding>(() => {});
	const context = null;
	const listWith = (own: Partial<Record<CheckId, Check<null>['run']>>): Check<null>[] =>
		CHECKS.map((check) => ({ ...check, run: own[check.id] ?? (async () => ok('Well.')) }));

	test('what is not over in time is a failure, and the rest is told all the same', async () => {
		const clock = createSteppedClock();
		const running = diagnose({
			list: listWith({ dns: never }),
			context,
			checks: CHECK_IDS,
			warningsAsErrors: false,
			clock,
		});
		await Promise.resolve();
		while (clock.pending === 0) await new Promise((resolve) => setImmediate(resolve));
		while (clock.pending > 1) await new Promise((resolve) => setImmediate(resolve));
		clock.advance(10_000);
		const { checks, first } = await running;
		expect(first).toBe('dns');
		expect(checks.find(({ id }) => id === 'dns')).toMatchObject({ status: 'failed', code: 'request-timeout' });
		expect(checks.find(({ id }) => id === 'tcp')).toMatchObject({ blockedBy: 'dns' });
		expect(checks.find(({ id }) => id === 'unit')).toMatchObject({ status: 'ok' });
		expect(clock.pending).toBe(0);
	});

	test('one that looks at what the others have found does not fail because they took long [F1559]', async () => {
		const clock = createSteppedClock();
		const slow = async () => {
			await Promise.resolve();
			clock.advance(4000);
			return ok('It took its time.');
		};
		const agent: Check<null>['run'] = async (_, __, before) => ok(`${(await before()).length} before it.`);
		const list = listWith({ tls: slow, http: slow, agent });
		const { checks } = await diagnose({ list, context, checks: ['http', 'agent'], warningsAsErrors: false, clock });
		expect(checks.find(({ id }) => id === 'agent')).toMatchObject({ status: 'ok', message: '6 before it.' });
	});

	test('all together end within their limit, however long each takes', async () => {
		const clock = createSteppedClock();
		const limits: number[] = [];
		const slow = (id: CheckId) => async (_: null, limitMs: number) => {
			limits.push(limitMs);
			await Promise.resolve();
			clock.advance(3000);
			return ok(`${id} took its time.`);
		};
		const list = listWith({ settings: slow('settings'), dns: slow('dns'), tcp: slow('tcp'), proxy: slow('proxy') });
		const { ms, checks } = await diagnose({ list, context, checks: ['tls'], warningsAsErrors: false, clock });
		expect(limits.slice(0, 3)).toEqual([4750, 4750, 3325]);
		expect(checks.find(({ id }) => id === 'proxy')).toMatchObject({ status: 'failed' });
		expect(checks.slice(0, 2).map(({ id, ms: took }) => [id, took])).toEqual([
			['settings', 3000],
			['dns', 3000],
		]);
		expect(ms).toBeLessThanOrEqual(12_000);
	});

	test('are reported in the order of the table, and one that throws is a failure with its code', async () => {
		const order: string[] = [];
		const clock = createSteppedClock();
		const broken = async () => {
			throw new AgentError('state-unreadable', 'Not readable.');
		};
		await diagnose({
			context,
			list: listWith({ state: broken, memory: async () => failed(failure('memory-low', 'Little.')) }),
			checks: CHECK_IDS,
			warningsAsErrors: false,
			clock,
			onCheck: ({ id, status }) => order.push(status === 'ok' ? id : `${id} ${status}`),
		});
		const expected = CHECK_IDS.map((id) => (id === 'state' || id === 'memory' ? `${id} failed` : id));
		expect(order).toEqual(expected);
	});
});

describe('whose eyes it looks through', () => {
	test('the flags of the daemon are read from its arguments', () => {
		const argv = [
			'/usr/bin/idv-agent',
			'run',
			'--set',
			'log.level=debug',
			'--config=/etc/x.json',
			'--set',
			'a=b',
			'--set',
		];
		expect(readRunFlags(argv)).toEqual({ config: '/etc/x.json', set: ['log.level=debug', 'a=b'] });
	});

	test('the variables of a unit that does not run are read from systemd', () => {
		expect(readAssignments('MALLOC_ARENA_MAX=1 "IDV_AGENT_DEVICE_TYPE=a \\"big\\" kiosk" X=')).toEqual({
			MALLOC_ARENA_MAX: '1',
			IDV_AGENT_DEVICE_TYPE: 'a "big" kiosk',
			X: '',
		});
	});
});
