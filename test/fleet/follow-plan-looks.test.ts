/** When a device looks at its plan, with which ETag, and what is told of it: the server is played here, time is stepped. */
import { createHash } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { AgentError } from '../../src/base/errors.ts';
import { keepWarnings } from '../../src/base/warnings.ts';
import type { FoundPlan, PlanRequest } from '../../src/fleet/fetch-plan.edge.ts';
import { followFleet } from '../../src/fleet/follow-plan.runner.ts';
import { EMPTY_STATE } from '../../src/state/device-state.ts';
import { keepPersistedState } from '../../src/state/persisted-state.runner.ts';
import { bytesOf, createSigner, etagOf } from '../fixtures/plans.ts';
import { createSteppedClock } from '../harness/stepped-clock.ts';

const plan = (revision: number, more: object = {}) => ({
	...{ format: 'idv-fleet-plan/1', revision, spreadSeconds: 0 },
	defaults: { workflowId: 'check-in' },
	...more,
});

const SETTINGS = {
	planUrl: 'https://plans.example/plan.json' as string | null,
	name: null as string | null,
	publicKeys: [] as string[],
	labels: [] as string[],
	intervalSeconds: 300,
};

function given(settings: Partial<typeof SETTINGS> = {}) {
	const clock = createSteppedClock(Date.UTC(2026, 0, 1));
	const now = { fleet: { ...SETTINGS, ...settings }, random: 0.5, isOffline: false, needsBytes: false };
	const looks: { request: PlanRequest; answer: (found: FoundPlan) => void; fail: (error: unknown) => void }[] = [];
	const audit: { action: string; result?: string; [more: string]: unknown }[] = [];
	const warnings = keepWarnings({ warn() {} }, () => {});
	const seen = { plans: [] as number[], looks: 0, saves: 0 };
	const save = async () => {
		seen.saves += 1;
	};
	const stateWriter = keepPersistedState(EMPTY_STATE, { save }, clock, () => {});
	const fleet = followFleet({
		clock,
		log: { info() {} },
		audit: { record: (entry) => void audit.push(entry as (typeof audit)[number]) },
		random: () => now.random,
		fetchPlan: (_network, request) =>
			new Promise((answer, fail) => {
				looks.push({ request, answer, fail });
			}),
		userAgent: 'idv-agent/test',
		stateWriter,
		warnings,
		runtime: () => ({ resolved: { settings: { fleet: now.fleet, deviceType: 'kiosk' } }, network: {} }) as never,
		identity: {
			now: { deviceId: { value: 'K-1' }, serial: { value: null }, macAddress: { value: null } } as never,
		},
		fallback: () => ({ workflowId: null, settings: {} }) as never,
		isOffline: () => now.isOffline,
		needsBytes: () => now.needsBytes,
		onPlan: ({ revision }) => seen.plans.push(revision),
		onLook: () => {
			seen.looks += 1;
		},
		requestReconcile: () => {},
	});
	const settled = async (look: number) => {
		const { length } = looks;
		const done = seen.looks;
		for (let turn = 0; turn < 50 && seen.looks === done && looks.length === length; turn += 1)
			await new Promise(setImmediate);
		return looks[look];
	};
	const device = {
		clock,
		now,
		looks,
		audit,
		/** Codes of the warnings of now. */
		get warned() {
			return warnings.list().map(({ code }) => code);
		},
		get warnings() {
			return warnings.list().map(({ message }) => message);
		},
		seen,
		stateWriter,
		fleet,
		/** The look that is under way. */
		get last() {
			return looks.at(-1) ?? expect.fail('It did not look.');
		},
		async serve(document: unknown, etag: string | null = etagOf(bytesOf(document))) {
			device.last.answer({ kind: 'changed', bytes: bytesOf(document), etag });
			await settled(0);
		},
		async unchanged() {
			device.last.answer({ kind: 'unchanged' });
			await settled(0);
		},
		async fails(code: 'plan-unreachable' | 'plan-invalid', retryAfterMs?: number) {
			device.last.fail(new AgentError(code, `It is ${code}.`, { retryAfterMs }));
			await settled(0);
		},
		/** After how many ms the next look begins. */
		nextInMs(): number {
			const { length } = looks;
			const fromMs = clock.monotonicMs();
			for (let step = 0; step < 10_000 && looks.length === length; step += 1) clock.advance(500);
			return clock.monotonicMs() - fromMs;
		},
	};
	fleet.reevaluate();
	return device;
}

describe('the looks', () => {
	test('are not put off by what is judged again after a change has ended one', () => {
		const nextLook = (isJudgedAgain: boolean) => {
			const { now, clock, fleet, nextInMs } = given();
			nextInMs();
			now.fleet = { ...now.fleet, intervalSeconds: 400 };
			fleet.reevaluate();
			clock.advance(1000);
			if (isJudgedAgain) fleet.reevaluate();
			return nextInMs();
		};
		expect(nextLook(true)).toBe(nextLook(false));
	});

	test('come to their end with the agent, whatever is judged again afterwards [F1843]', () => {
		const { clock, fleet, looks } = given();
		fleet.stop();
		fleet.reevaluate();
		fleet.retry();
		expect([clock.pending, looks.length]).toEqual([0, 0]);
	});

	test('begin within 10 s, and follow each other at the interval, a quarter more or less', async () => {
		const device = given();
		expect(device.nextInMs()).toBe(5000);
		await device.serve(plan(1));
		expect(device.nextInMs()).toBe(300_000);
		device.now.random = 0;
		await device.unchanged();
		expect(device.nextInMs()).toBe(225_000);
		device.now.random = 1;
		await device.unchanged();
		expect(device.nextInMs()).toBe(375_000);
		expect([device.clock.pending, device.seen.looks, device.seen.plans]).toEqual([0, 3, [1]]);
		expect(device.fleet.checkedAt).not.toBeNull();
	});

	test('wait as long as one was asked to, and that once, if it is longer than the interval', async () => {
		const device = given();
		device.nextInMs();
		await device.fails('plan-unreachable', 1_800_000);
		expect(device.nextInMs()).toBe(1_800_000 * 1.25);
		await device.fails('plan-unreachable', 1000);
		expect(device.nextInMs()).toBe(300_000);
		await device.fails('plan-unreachable');
		expect(device.nextInMs()).toBe(300_000);
		expect(device.fleet.checkedAt).toBeNull();
	});

	test.each([
		[1, ''],
		[2, ' (and 1 more)'],
		[25, ' (and 24 more)'],
		[30_000, ' (and 29999 more)'],
	])('warn of the first of %i unknown names and count the others', async (count, end) => {
		const device = given();
		device.nextInMs();
		const names = Object.fromEntries(Array.from({ length: count }, (_, n) => [`bogus${n}`, 1]));
		await device.serve(plan(1, names));
		const place = 'The fleet plan of plans.example: line 1, column ';
		expect(device.warnings).toEqual([expect.stringContaining(`/bogus0 is not known here.${end}`)]);
		expect(device.warnings[0]?.startsWith(place)).toBe(true);
	});

	test('are the newest alone: one that was overtaken changes nothing, however it ends', async () => {
		const device = given();
		device.nextInMs();
		const [first] = device.looks;
		device.fleet.retry();
		device.clock.advance(0);
		expect([device.looks.length, first?.request.signal.aborted]).toEqual([2, true]);
		first?.answer({ kind: 'changed', bytes: bytesOf(plan(9)), etag: '"9"' });
		await device.serve(plan(1));
		expect([device.seen.plans, device.seen.looks, device.clock.pending]).toEqual([[1], 1, 1]);
		device.fleet.retry();
		device.clock.advance(0);
		const third = device.last;
		device.fleet.retry();
		device.clock.advance(0);
		third.fail(new AgentError('plan-invalid', 'Late.'));
		await device.unchanged();
		expect([device.warned, device.seen.looks, device.clock.pending]).toEqual([[], 2, 1]);
	});

	test('go on at their time when settings change that do not concern them, and begin anew with those that do', async () => {
		const device = given();
		device.nextInMs();
		await device.serve(plan(1));
		device.clock.advance(200_000);
		device.fleet.reevaluate();
		expect(device.nextInMs()).toBe(100_000);
		const cut = device.last;
		device.fleet.reevaluate();
		expect(cut.request.signal.aborted).toBe(true);
		expect([device.nextInMs(), device.last.request.etag]).toEqual([5000, etagOf(bytesOf(plan(1)))]);
		await device.unchanged();
		device.now.fleet = { ...device.now.fleet, labels: ['lobby'] };
		device.fleet.reevaluate();
		// Another choice of the same plan: it has to be read again.
		expect([device.nextInMs(), device.last.request.etag]).toEqual([5000, null]);
		await device.serve(plan(1));
		device.now.fleet = { ...device.now.fleet, intervalSeconds: 60 };
		device.fleet.reevaluate();
		expect([device.clock.pending, device.nextInMs()]).toEqual([1, 5000]);
	});

	test('end with the agent, and with the address', async () => {
		const device = given();
		device.nextInMs();
		await device.fails('plan-invalid');
		expect(device.warned).toEqual(['plan-invalid']);
		device.now.fleet = { ...device.now.fleet, planUrl: null };
		device.fleet.reevaluate();
		expect([device.clock.pending, device.warned, device.fleet.record()]).toEqual([0, [], null]);
		const other = given();
		other.nextInMs();
		other.fleet.stop();
		expect(other.last.request.signal.aborted).toBe(true);
		await other.serve(plan(1));
		other.fleet.retry();
		other.fleet.reevaluate();
		expect([other.seen.plans, other.seen.looks, other.clock.pending]).toEqual([[], 0, 0]);
	});
});

describe('what is asked for', () => {
	test('is the plan with the ETag of the one that was refused, until somebody wants it looked at again', async () => {
		const device = given();
		device.nextInMs();
		await device.serve(plan(5), '"5"');
		const refuse = async () => {
			device.nextInMs();
			await device.serve(plan(4), '"4"');
			expect(device.warned).toEqual(['plan-outdated']);
			device.nextInMs();
			expect(device.last.request.etag).toBe('"4"');
			await device.unchanged();
			expect(device.warned).toEqual(['plan-outdated']);
		};
		await refuse();
		device.fleet.retry();
		device.clock.advance(0);
		expect(device.last.request.etag).toBe('"5"');
		await device.unchanged();
		expect(device.warned).toEqual([]);
		await refuse();
		device.now.fleet = { ...device.now.fleet, intervalSeconds: 299 };
		device.fleet.reevaluate();
		device.nextInMs();
		expect(device.last.request.etag).toBe('"5"');
		await device.unchanged();
		await refuse();
		await device.fleet.forget();
		device.clock.advance(0);
		expect(device.last.request.etag).toBeNull();
		await device.serve(plan(4), '"4"');
		expect([device.seen.plans, device.warned]).toEqual([[5, 4], []]);
	});

	test('is all anew once the device is to forget: no floor, no ETag, and nothing that waits', async () => {
		const device = given();
		device.nextInMs();
		await device.serve(plan(1));
		device.nextInMs();
		await device.serve(plan(2, { spreadSeconds: 86_400, defaults: { workflowId: 'boarding' } }));
		expect(device.fleet.record()?.waiting).toMatchObject({ revision: 2 });
		await device.fleet.forget();
		expect(device.fleet.record()).toMatchObject({ taken: { revision: 1 }, waiting: null, floors: [], etag: null });
	});

	test('is of the address as every version has written it down, without its query', () => {
		const { fleet } = given({ planUrl: 'https://plans.example/plan.json?key=1' });
		const digest = createHash('sha256').update('https://plans.example/plan.json').digest('hex');
		expect(fleet.trust()?.source).toBe(digest.slice(0, 32));
	});

	test('is the whole once more after a start, where its bytes are needed', async () => {
		const device = given();
		device.nextInMs();
		await device.serve(plan(5), '"5"');
		const again = given();
		again.stateWriter.keep(() => device.stateWriter.state);
		again.now.needsBytes = true;
		again.nextInMs();
		expect(again.last.request.etag).toBeNull();
		await again.serve(plan(5), '"5"');
		again.nextInMs();
		expect([again.last.request.etag, again.seen.plans]).toEqual(['"5"', [5]]);
	});
});

describe('what is told', () => {
	test('of a plan: one audit line for an edition, and nothing is saved where only its ETag is new', async () => {
		const device = given();
		device.nextInMs();
		await device.serve(plan(1), '"a"');
		const { saves } = device.seen;
		device.nextInMs();
		await device.serve(plan(1), '"b"');
		expect(device.seen.saves).toBe(saves);
		device.nextInMs();
		expect(device.last.request.etag).toBe('"a"');
		await device.serve(plan(2), '"c"');
		const received = { action: 'planReceived', entrance: 'plan', result: 'ok', epoch: 0, keys: [] };
		expect(device.audit).toEqual([
			{ ...received, revision: 1 },
			{ ...received, revision: 2 },
		]);
	});

	test('of one without an ETag: the first that comes with one is saved', async () => {
		const device = given();
		device.nextInMs();
		await device.serve(plan(1), null);
		device.nextInMs();
		await device.serve(plan(1), '"a"');
		device.nextInMs();
		expect([device.last.request.etag, device.audit.length]).toEqual(['"a"', 1]);
	});

	test('of a refusal: a warning as long as it is served, and one audit line', async () => {
		const device = given();
		for (const _ of [1, 2]) {
			device.nextInMs();
			await device.serve('{');
			expect(device.warned).toEqual(['plan-invalid']);
		}
		expect(device.audit).toEqual([{ action: 'planReceived', entrance: 'plan', result: 'plan-invalid' }]);
		device.nextInMs();
		await device.serve(plan(1));
		expect(device.warned).toEqual([]);
		expect(device.seen.looks).toBe(3);
	});

	test('of a refusal: why, as long as no other plan is served, also while the server is away; and nothing is confirmed by it [F1190]', async () => {
		const device = given();
		device.nextInMs();
		await device.serve(plan(5), '"5"');
		const { checkedAt } = device.fleet;
		const refused = { code: 'plan-outdated', message: expect.stringContaining('has revision 4') };
		const told = () => [device.fleet.servedRefusal, device.warned, device.fleet.checkedAt];
		device.nextInMs();
		await device.serve(plan(4), '"4"');
		expect(told()).toEqual([expect.objectContaining(refused), ['plan-outdated'], checkedAt]);
		device.nextInMs();
		await device.fails('plan-unreachable');
		expect(told()).toEqual([expect.objectContaining(refused), ['plan-unreachable'], checkedAt]);
		device.nextInMs();
		await device.unchanged();
		expect(told()).toEqual([expect.objectContaining(refused), ['plan-outdated'], checkedAt]);
		device.nextInMs();
		await device.serve(plan(6), '"6"');
		expect(told()).toEqual([null, [], expect.not.stringMatching(checkedAt ?? '')]);
	});

	test('of a server that is not reached: a warning, unless the device has said already that it is offline', async () => {
		const device = given();
		device.now.isOffline = true;
		device.nextInMs();
		await device.fails('plan-unreachable');
		expect(device.warned).toEqual([]);
		device.now.isOffline = false;
		device.nextInMs();
		await device.fails('plan-unreachable');
		expect(device.warned).toEqual(['plan-unreachable']);
		expect(device.audit).toEqual([]);
	});

	test('of keys: a change once, and a warning while none of them has signed the plan', async () => {
		const [one, other] = [createSigner(), createSigner()];
		const device = given({ publicKeys: [one.publicKey] });
		device.nextInMs();
		await device.serve(one.sign(plan(7)));
		device.fleet.reevaluate();
		expect(device.audit.map(({ action }) => action)).toEqual(['planReceived']);
		device.now.fleet = { ...device.now.fleet, publicKeys: [other.publicKey] };
		for (const _ of [1, 2]) device.fleet.reevaluate();
		expect(device.audit.slice(1)).toEqual([
			{ action: 'planKeysChanged', entrance: 'settings', result: 'ok', keys: [other.publicKey] },
		]);
		expect(device.warned).toEqual(['plan-unattested']);
		device.nextInMs();
		await device.serve(other.sign(plan(1)));
		expect([device.warned, device.seen.plans]).toEqual([[], [7, 1]]);
	});
});
