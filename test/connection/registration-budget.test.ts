import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { failure } from '../../src/base/errors.ts';
import { failureOf, type LinkEvent } from '../../src/connection/link.ts';
import { budgetWarning, FULL_BUDGET, refund, spend } from '../../src/connection/registration-budget.ts';
import {
	type DesiredRegistration,
	NOTHING_SUPERVISED,
	type Supervision,
	type SupervisorEffect,
	type SupervisorEvent,
	supervise,
} from '../../src/connection/supervisor.ts';

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;

const desired = (workflowId: string, deviceType = 'kiosk'): DesiredRegistration => ({
	baseUrl: 'https://id.example',
	request: { deviceId: 'kiosk-7', workflowId, deviceType },
	credentialId: 'key',
	hasReusableCredential: true,
	selfRegistration: false,
});

/** One device whose service answers every request after 100 ms, or as `answer` says; its channels live as long as it says. */
function givenDevice(channelLivesMs: number, answer?: (attempt: number, atMs: number) => LinkEvent) {
	let supervision: Supervision = NOTHING_SUPERVISED;
	let nowMs = 0;
	const due: { atMs: number; generation: number; event: (atMs: number) => LinkEvent }[] = [];
	const registeredAtMs: number[] = [];
	const registeredFor: string[] = [];

	function dispatch(event: SupervisorEvent): void {
		const step = supervise(supervision, event, () => 0.5);
		supervision = step.supervision;
		for (const effect of step.effects) perform(effect);
	}
	function perform(effect: SupervisorEffect): void {
		if (effect.type !== 'link') return;
		const { generation } = effect;
		const { type } = effect.effect;
		if (type === 'keepConnection' || type === 'closeChannel') return;
		const { attempt } = effect.effect;
		const after = (ms: number, event: (atMs: number) => LinkEvent) => due.push({ atMs: nowMs + ms, generation, event });
		if (type === 'wait') after(effect.effect.delayMs, (atMs) => ({ type: 'timerFired', attempt, atMs }));
		else if (type === 'register') {
			registeredAtMs.push(nowMs);
			registeredFor.push(effect.registration.request.workflowId);
			const connection = { token: `token-${registeredAtMs.length}`, obtainedAtMs: nowMs, lifeMs: null };
			after(100, (atMs) => answer?.(attempt, atMs) ?? { type: 'registered', attempt, atMs, connection });
		} else {
			after(100, (atMs) => ({ type: 'channelConfirmed', attempt, atMs }));
			const ended = { failure: failure('credential-refused', 'Expired.'), timedOut: false, closeCode: 1008 };
			if (Number.isFinite(channelLivesMs))
				after(100 + channelLivesMs, (atMs) => ({ type: 'channelEnded', attempt, atMs, ...ended }));
		}
	}
	return {
		registeredAtMs,
		registeredFor,
		supervision: () => supervision,
		want(workflowId: string, { deviceType = 'kiosk', isMoved = false } = {}) {
			const wanted = { ...desired(workflowId, deviceType), isMoved };
			dispatch({ type: 'desiredChanged', desired: wanted, known: [], atMs: nowMs });
		},
		pass(ms: number) {
			const untilMs = nowMs + ms;
			for (;;) {
				const next = due.sort((one, other) => one.atMs - other.atMs)[0];
				if (!next || next.atMs > untilMs) break;
				due.shift();
				nowMs = next.atMs;
				dispatch({ type: 'link', generation: next.generation, event: next.event(nowMs) });
			}
			nowMs = untilMs;
		},
	};
}

/** The most of them within any such time. */
const mostWithin = (times: readonly number[], withinMs: number) =>
	Math.max(0, ...times.map((from) => times.filter((at) => at >= from && at < from + withinMs).length));

test('a thousand workflows in 16 s are ten registrations, and the last wish is the one that comes true [F142]', () => {
	const device = givenDevice(Number.POSITIVE_INFINITY);
	device.want('w-0');
	device.pass(MINUTE);
	for (let wish = 1; wish <= 1000; wish += 1) {
		device.want(`w-${wish}`);
		device.pass(16);
	}
	expect(device.registeredAtMs.length).toBe(11);
	expect(device.supervision().current?.state.name).toBe('online');
	expect(device.supervision().next?.state).toMatchObject({
		name: 'registerWait',
		failure: { code: 'registering-too-often', message: expect.stringContaining('10 times within a minute') },
	});
	expect(budgetWarning(device.supervision().budget, MINUTE + 16 * SECOND)).toMatchObject({
		code: 'registering-too-often',
	});
	device.pass(3 * MINUTE);
	expect(device.registeredFor.at(-1)).toBe('w-1000');
	expect(device.supervision().current?.registration.request.workflowId).toBe('w-1000');
	expect(device.supervision().next).toBeNull();
	expect(budgetWarning(device.supervision().budget, 2 * HOUR)).toBeNull();
});

test('Connections that live for seconds are renewed ten times a minute and 120 times an hour at most, for ever', () => {
	for (const livesMs of [0, 2 * SECOND, 20 * SECOND, 70 * SECOND]) {
		const device = givenDevice(livesMs);
		device.want('w');
		device.pass(4 * HOUR);
		expect(mostWithin(device.registeredAtMs, MINUTE)).toBeLessThanOrEqual(10);
		expect(mostWithin(device.registeredAtMs, HOUR)).toBeLessThanOrEqual(120);
		// And it does not give up either.
		expect(device.registeredAtMs.filter((at) => at > 3 * HOUR).length).toBeGreaterThan(0);
	}
});

test.each([
	['answers are lost', false, 10],
	['requests do not reach it', true, 60],
])('a service that moves the device while %s gets no more than the budget allows', (_, unsent, most) => {
	const lost = { failure: failure('connection-lost', 'Cut.'), timedOut: false, unsent };
	const device = givenDevice(Number.POSITIVE_INFINITY, (attempt, atMs) => ({
		type: 'registerFailed',
		attempt,
		atMs,
		...lost,
	}));
	for (let wish = 0; wish < 60; wish += 1) {
		device.want(`w-${wish}`);
		device.pass(900);
	}
	expect(mostWithin(device.registeredAtMs, MINUTE)).toBe(most);
});

test('a registration that waits for room still names what has the device register again [F1030]', () => {
	let isCut = false;
	const cut = { failure: failure('connection-lost', 'Cut.'), timedOut: false };
	const device = givenDevice(Number.POSITIVE_INFINITY, (attempt, atMs) =>
		isCut
			? { type: 'registerFailed', attempt, atMs, ...cut }
			: { type: 'registered', attempt, atMs, connection: { token: `t-${atMs}`, obtainedAtMs: atMs, lifeMs: null } },
	);
	for (let wish = 1; wish <= 9; wish += 1) {
		device.want(`w-${wish}`);
		device.pass(SECOND);
	}
	isCut = true;
	device.want('w-10');
	const told = new Set<string | undefined>();
	for (let second = 0; second < 40; second += 1) {
		device.pass(SECOND);
		told.add(failureOf(device.supervision().next?.state ?? { name: 'closed', sinceMs: 0, attempt: 0 })?.message);
	}
	expect([...told]).toEqual(['Cut.']);
	expect(budgetWarning(device.supervision().budget, 50 * SECOND)).toMatchObject({ code: 'registering-too-often' });
});

test('a device whose answers were lost for hours registers within a minute of their return [F1031]', () => {
	const endMs = 170 * MINUTE;
	const cut = { failure: failure('connection-lost', 'Cut.'), timedOut: false };
	const connection = { token: 'token', obtainedAtMs: endMs, lifeMs: null };
	const device = givenDevice(Number.POSITIVE_INFINITY, (attempt, atMs) =>
		atMs < endMs
			? { type: 'registerFailed', attempt, atMs, ...cut }
			: { type: 'registered', attempt, atMs, connection },
	);
	device.want('w');
	device.pass(endMs + MINUTE);
	expect(device.supervision().current?.state.name).toBe('online');
	expect(mostWithin(device.registeredAtMs, MINUTE)).toBeLessThanOrEqual(10);
});

test.each<[string, (device: ReturnType<typeof givenDevice>, count: number) => void, RegExp, RegExp]>([
	[
		'edits of a setting',
		(device, count) => device.want('w', { deviceType: `type-${count}` }),
		/its settings/,
		/what changes the settings/,
	],
	[
		'workflows of the settings',
		(device, count) => device.want(`w-${count}`),
		/its settings/,
		/what changes the settings/,
	],
	[
		'messages of the service',
		(device, count) => device.want(`w-${count}`, { isMoved: true }),
		/its service moved/,
		/operator of the service/,
	],
	[
		'edits of a device that the service has moved once',
		(device, count) => device.want('w-1', { deviceType: `type-${count}`, isMoved: true }),
		/its settings/,
		/what changes the settings/,
	],
])('25 %s within 20 s are told with what has caused them, and whom to ask [F761]', (_, change, because, remedy) => {
	const device = givenDevice(Number.POSITIVE_INFINITY);
	device.want('w');
	device.pass(MINUTE);
	for (let count = 1; count <= 25; count += 1) {
		change(device, count);
		device.pass(800);
	}
	const told = [
		failureOf(device.supervision().next?.state ?? { name: 'closed', sinceMs: 0, attempt: 0 }),
		budgetWarning(device.supervision().budget, 2 * MINUTE),
	];
	for (const one of told)
		expect(one).toMatchObject({
			code: 'registering-too-often',
			message: expect.stringMatching(because),
			remedy: expect.stringMatching(remedy),
		});
});

describe('the budget', () => {
	test('holds whatever the pace, remembers no more than an hour, and names the least wait', () => {
		fc.assert(
			fc.property(fc.array(fc.nat({ max: 90 * SECOND }), { maxLength: 300 }), (pauses) => {
				let budget = FULL_BUDGET;
				let atMs = 0;
				const begun: number[] = [];
				for (const pause of pauses) {
					atMs += pause;
					const spent = spend(budget, atMs, 'service');
					budget = spent.budget;
					if (!spent.heldBack) begun.push(atMs);
					else {
						const waitMs = spent.heldBack.retryAfterMs ?? 0;
						expect(waitMs).toBeGreaterThan(0);
						expect(spend(budget, atMs + waitMs, 'site').heldBack?.retryAfterMs ?? 1).toBeGreaterThan(0);
					}
				}
				expect(mostWithin(begun, MINUTE)).toBeLessThanOrEqual(10);
				expect(mostWithin(begun, HOUR)).toBeLessThanOrEqual(120);
				expect(budget.begunAtMs.length).toBeLessThanOrEqual(120);
			}),
		);
	});

	test('takes back what has not reached the service', () => {
		let budget = FULL_BUDGET;
		for (let attempt = 0; attempt < 500; attempt += 1)
			budget = refund(spend(budget, attempt, attempt % 2 ? 'service' : 'site').budget);
		expect(budget).toEqual(FULL_BUDGET);
	});
});
