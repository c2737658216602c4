import { describe, expect, test } from 'vitest';
import { type Failure, failure } from '../../src/base/errors.ts';
import type { DesiredRegistration, Link, Supervision } from '../../src/connection/supervisor.ts';
import {
	type AttemptContext,
	assessAttempt,
	isHeldBack,
	keepLastGood,
	NO_ATTEMPT,
	type PlanAttempt,
	planMoveKey,
	planRefused,
	wayInTurn,
} from '../../src/fleet/attempt.ts';
import type { PlanTarget } from '../../src/fleet/record.ts';

const HOUR_MS = 3_600_000;
const SERVICE = 'https://id.example';

function registration(workflowId: string, heartbeatCadence = 30, baseUrl = SERVICE): DesiredRegistration {
	const own = { credentialId: '', hasReusableCredential: false, selfRegistration: false };
	return { ...own, baseUrl, request: { deviceId: 'd', workflowId, heartbeatCadence } };
}

const ONLINE = { name: 'online' };
const OFFLINE = { name: 'waiting', failure: failure('service-unreachable', 'Nobody is there.') };
const link = (workflowId: string, state: object) =>
	({ generation: 1, registration: registration(workflowId), state }) as unknown as Link;
/** On the way from one workflow to another. */
const moving = (state: object, next: object | null) =>
	({ current: link('old', state), next: next && link('new', next) }) as unknown as Supervision;

describe('what the plan demands', () => {
	const on = moving(ONLINE, null);
	const plan = { revision: 7, workflowId: 'new', heartbeatCadence: 30 } as unknown as PlanTarget;

	test('is a move when it decides the workflow, named by revision, workflow and cadence', () => {
		expect(planMoveKey(registration('new'), on, plan, true)).toBe('[7,"new",30]');
		expect(planMoveKey(registration('new'), on, plan, false)).toBeNull();
	});

	test('is another cadence when it is the plan that names it', () => {
		const faster = { ...plan, heartbeatCadence: 10 };
		expect(planMoveKey(registration('old', 10), on, faster, false)).toBe('[7,"old",10]');
		expect(planMoveKey(registration('old', 20), on, faster, true)).toBeNull();
		expect(planMoveKey(registration('old', 30), on, plan, true)).toBeNull();
	});

	test('is nothing without a plan, a registration or a link, and never another service', () => {
		const none = { current: null, next: null } as unknown as Supervision;
		expect(planMoveKey(registration('new'), on, null, true)).toBeNull();
		expect(planMoveKey(null, on, plan, true)).toBeNull();
		expect(planMoveKey(registration('new'), none, plan, true)).toBeNull();
		expect(planMoveKey(registration('new', 30, 'https://other.example'), on, plan, true)).toBeNull();
	});

	test('is not done while its next try is not due: the device keeps the workflow and cadence that it has', () => {
		const refused = { name: 'refused', key: 'k', untilMs: 100 } as unknown as PlanAttempt;
		expect([99, 100].map((nowMs) => isHeldBack(refused, 'k', nowMs))).toEqual([true, false]);
		expect(isHeldBack(refused, 'other', 99)).toBe(false);
		expect(isHeldBack({ ...refused, name: 'trying' } as PlanAttempt, 'k', 99)).toBe(false);
		expect(isHeldBack(NO_ATTEMPT, null, 0)).toBe(false);
		const wanted = registration('new', 10);
		const kept = keepLastGood(wanted, on);
		expect(kept).toEqual({ ...wanted, request: { ...wanted.request, workflowId: 'old', heartbeatCadence: 30 } });
		expect(keepLastGood(null, on)).toBeNull();
		expect(keepLastGood(wanted, { current: null, next: null } as unknown as Supervision)).toBe(wanted);
	});
});

describe('an attempt', () => {
	const at = (nowMs: number, more: Partial<AttemptContext> = {}): AttemptContext => ({
		key: 'k',
		supervision: moving(ONLINE, { name: 'connecting' }),
		isDeferred: false,
		explain: (cause) =>
			planRefused(cause, {
				demanded: registration('new'),
				supervision: more.supervision ?? moving(ONLINE, { name: 'connecting' }),
				revision: 7,
				limitMs: 60_000,
			}),
		limitMs: 60_000,
		nowMs,
		random: () => 0.5,
		...more,
	});
	const trying = (tries = 0): PlanAttempt => ({ name: 'trying', key: 'k', untilMs: 60_000, tries });

	test('begins with what is demanded, has its time, and is over when nothing is demanded or there is no link', () => {
		expect(assessAttempt(NO_ATTEMPT, at(0))).toEqual(trying());
		expect(assessAttempt(trying(), at(59_999))).toEqual(trying());
		expect(assessAttempt(trying(), at(1, { key: null }))).toEqual(NO_ATTEMPT);
		const none = { current: null, next: null } as unknown as Supervision;
		expect(assessAttempt(trying(), at(1, { supervision: none }))).toEqual(NO_ATTEMPT);
		const another = at(5000, { key: 'other' });
		expect(assessAttempt(trying(3), another)).toEqual({ name: 'trying', key: 'other', untilMs: 65_000, tries: 0 });
	});

	test('that takes too long is refused, says why and where the device stays, and is tried again after an hour and more', () => {
		const supervision = moving(ONLINE, OFFLINE);
		const refused = assessAttempt(trying(), at(60_000, { supervision }));
		expect(refused).toMatchObject({ name: 'refused', key: 'k', sinceMs: 60_000, tries: 1 });
		expect(refused).toMatchObject({ untilMs: 60_000 + 1.25 * HOUR_MS });
		expect(refused).toMatchObject({
			failure: {
				message: expect.stringMatching(
					/^Revision 7 .*workflow new.* within 60 s; .* stays with old\. Nobody is there\.$/,
				),
				params: {
					problem: 'service-unreachable',
					revision: 7,
					workflowId: 'new',
					liveWorkflowId: 'old',
					seconds: 60,
				},
			},
		});
		const silent = assessAttempt(trying(), at(60_000));
		expect(silent).toMatchObject({ name: 'refused', failure: { message: expect.stringMatching(/stays with old\.$/) } });
		if (silent.name === 'refused') expect(silent.failure.params).not.toHaveProperty('problem');
	});

	test('of a way out has its whole time beside what works, after an outage again, and takes short turns in it without being refused [F1251]', () => {
		const back = moving({ ...ONLINE, onlineAtMs: 50_000 }, OFFLINE);
		const waits = assessAttempt(trying(), at(60_000, { supervision: back, offline: 'waits' }));
		expect(waits).toEqual({ ...trying(), untilMs: 110_000 });
		expect(assessAttempt(waits, at(110_000, { supervision: back, offline: 'waits' }))).toMatchObject({ tries: 1 });
		const away = moving(OFFLINE, OFFLINE);
		const turn = assessAttempt(trying(), at(60_000, { supervision: away, offline: 'turns' }));
		expect(turn).toMatchObject({ isTurn: true, untilMs: 60_000 + 56_250, tries: 0 });
		const again = assessAttempt(turn, at(120_000, { supervision: away, offline: 'turns', limitMs: 300_000 }));
		expect(again).toMatchObject({ name: 'trying', untilMs: 165_000 });
		// One that began beside what worked, and now that is gone.
		const long = { ...trying(), untilMs: 300_000 };
		const cut = assessAttempt(long, at(60_000, { supervision: away, offline: 'turns', limitMs: 300_000 }));
		expect(cut).toEqual({ ...long, untilMs: 105_000 });
		expect(assessAttempt(cut, at(80_000, { supervision: away, offline: 'turns', limitMs: 300_000 }))).toBe(cut);
		// The service has ended the channel that works for it, and may still hold the place.
		const inPlace = (code: Failure['code'], more: Partial<AttemptContext> = { offline: 'waits' }) => {
			const supervision = moving(ONLINE, { name: 'connectWait', failure: failure(code, 'No.') });
			Object.assign(supervision.next ?? {}, { roomAtMs: 0 });
			return assessAttempt(trying(), at(1, { supervision, ...more })).name;
		};
		expect([inPlace('channel-occupied'), inPlace('service-failed')]).toEqual(['trying', 'refused']);
		expect(inPlace('service-failed', {})).toBe('trying');
	});

	test.each([
		[1, 1],
		[2, 2],
		[3, 4],
		[5, 16],
		[6, 24],
		[40, 24],
	])('number %i that fails waits %i h, and half as much again at most', (number, hours) => {
		const failed = assessAttempt(trying(number - 1), at(60_000, { random: () => 0 }));
		expect(failed).toMatchObject({ tries: number, untilMs: 60_000 + hours * HOUR_MS });
	});

	test('that was refused waits its time, and then has its time again', () => {
		const refused = assessAttempt(trying(2), at(60_000));
		if (refused.name !== 'refused') throw new Error('It is not refused.');
		expect(assessAttempt(refused, at(refused.untilMs - 1))).toBe(refused);
		const again = assessAttempt(refused, at(refused.untilMs));
		expect(again).toEqual({ name: 'trying', key: 'k', untilMs: refused.untilMs + 60_000, tries: 3 });
	});

	test('is not blamed while the whole device is offline, unless the service has refused it', () => {
		const offline = assessAttempt(trying(), at(60_000, { supervision: moving(OFFLINE, OFFLINE) }));
		expect(offline).toEqual({ ...trying(), untilMs: 120_000 });
		for (const code of ['workflow-unknown', 'access-forbidden'] as const) {
			const said = { name: 'waiting', failure: failure(code, 'No.') };
			const refused = assessAttempt(trying(), at(60_000, { supervision: moving(OFFLINE, said) }));
			expect([code, refused.name]).toEqual([code, 'refused']);
		}
	});

	test('of a plan is not blamed for an outage: what refuses the old one as well, and time that passed before it was back [F1605]', () => {
		const no = (code: 'credential-refused' | 'workflow-unknown') => ({
			name: 'waiting',
			failure: failure(code, 'No.'),
		});
		const both = moving(no('credential-refused'), no('credential-refused'));
		expect(assessAttempt(trying(), at(60_000, { supervision: both }))).toEqual({ ...trying(), untilMs: 120_000 });
		const other = moving(no('credential-refused'), no('workflow-unknown'));
		expect(assessAttempt(trying(), at(60_000, { supervision: other })).name).toBe('refused');
		// Its whole time beside what works, and once only.
		const back = (onlineAtMs: number) => moving({ ...ONLINE, onlineAtMs }, OFFLINE);
		const more = assessAttempt(trying(), at(58_000, { supervision: back(50_000) }));
		expect(more).toEqual({ ...trying(), untilMs: 110_000, isExtended: true });
		expect(assessAttempt(more, at(105_000, { supervision: back(100_000) }))).toBe(more);
		expect(assessAttempt(more, at(110_000, { supervision: back(100_000) })).name).toBe('refused');
	});

	test('is not refused for registrations that the device itself holds back [F1307]', () => {
		const trying = assessAttempt(NO_ATTEMPT, at(0));
		const held = { name: 'registerWait', failure: failure('registering-too-often', 'Too often.'), untilMs: 70_000 };
		const later = assessAttempt(trying, at(60_000, { supervision: moving(ONLINE, held) }));
		expect(later).toMatchObject({ name: 'trying', untilMs: 120_000 });
		expect(assessAttempt(later, at(120_000)).name).toBe('refused');
	});

	test('waits for the leases of applications without its time running; what has failed is not forgotten meanwhile', () => {
		expect(assessAttempt(NO_ATTEMPT, at(0, { isDeferred: true }))).toEqual(NO_ATTEMPT);
		expect(assessAttempt(trying(), at(99_000, { isDeferred: true }))).toEqual(NO_ATTEMPT);
		const refused = assessAttempt(trying(), at(60_000));
		expect(assessAttempt(refused, at(9e9, { isDeferred: true }))).toBe(refused);
		expect(assessAttempt(refused, at(9e9, { isDeferred: true, key: 'other' }))).toEqual(NO_ATTEMPT);
	});
});

test('settings that are tried in turn by a device that is offline are not the first to be corrected [F1406]', () => {
	const cause = failure('service-failed', 'id.example answered 502.');
	expect(wayInTurn(cause)).toMatchObject({
		message: expect.stringMatching(/^The device is offline.* id\.example answered 502\.$/),
		remedy: expect.stringContaining(`${cause.remedy} If the device comes back with the settings from before alone`),
		params: { problem: 'service-failed' },
	});
});
