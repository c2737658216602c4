import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { plainDuration } from '../../src/base/durations.ts';
import { CATALOGUE, type ErrorCode, type Failure, failure, retryClassOf } from '../../src/base/errors.ts';
import { clockWarning } from '../../src/connection/clock-skew.ts';
import type { LinkEvent } from '../../src/connection/link.ts';
import { FULL_BUDGET } from '../../src/connection/registration-budget.ts';
import {
	type DesiredRegistration,
	type Link,
	NOTHING_SUPERVISED,
	type Supervision,
	type SupervisorEvent,
	supervise,
} from '../../src/connection/supervisor.ts';
import { type Status, statusSchema } from '../../src/protocol/local-answers.ts';
import { type DeviceState, EMPTY_STATE } from '../../src/state/device-state.ts';
import { statusSentence } from '../../src/status/sentence.ts';
import { describeStatus, type Snapshot } from '../../src/status/status.ts';

const MINUTE = 60_000;
const half = () => 0.5;
/** The moment at which every status here is looked at. */
const NOW = 20 * MINUTE;
const WALL = Date.parse('2026-03-01T10:00:00.000Z');

function desired(workflowId: string, more: Partial<DesiredRegistration> = {}): DesiredRegistration {
	return {
		baseUrl: 'https://id.example',
		request: { deviceId: 'kiosk-7', serial: 'S1', workflowId },
		credentialId: '',
		hasReusableCredential: false,
		selfRegistration: false,
		...more,
	};
}
const withKey = (workflowId: string, more: Partial<DesiredRegistration> = {}) =>
	desired(workflowId, { credentialId: 'key', hasReusableCredential: true, ...more });
const connection = { token: 'token-1', obtainedAtMs: 0, lifeMs: null };
const paired: DeviceState = {
	...EMPTY_STATE,
	pairing: { baseUrl: 'https://id.example', sessionId: 's1', pairedAt: '2026-02-01T10:00:00.000Z' },
};

function happen(from: Supervision, event: SupervisorEvent): Supervision {
	return supervise(from, event, half).supervision;
}
const want = (from: Supervision, sought: DesiredRegistration) =>
	happen(from, { type: 'desiredChanged', desired: sought, known: [], atMs: 0 });
const pair = (from: Supervision, sought: DesiredRegistration) =>
	happen(from, { type: 'paired', desired: sought, connection, atMs: 0 });
type Told = LinkEvent extends infer E ? (E extends LinkEvent ? Omit<E, 'atMs' | 'attempt'> : never) : never;
function tell(from: Supervision, which: 'current' | 'next', ...told: Told[]): Supervision {
	return told.reduce((reached, one) => {
		const link = reached[which];
		if (!link) throw new Error(`There is no ${which} link.`);
		const event = { attempt: link.state.attempt, atMs: 6 * MINUTE, ...one } as LinkEvent;
		return happen(reached, { type: 'link', generation: link.generation, event });
	}, from);
}
const confirmed: Told = { type: 'channelConfirmed' };
const timer: Told = { type: 'timerFired' };
const ended = (cause: Failure, closeCode: number | null = null): Told => ({
	type: 'channelEnded',
	failure: cause,
	timedOut: false,
	closeCode,
});
/** The same answer twice, a quarter of an hour apart: what worked before does not outweigh it any more. */
const lastingly = (from: Supervision, cause: Failure) => {
	const waiting = tell(from, 'current', { ...ended(cause), ...{ atMs: 7 * MINUTE } }, { type: 'timerFired' });
	return tell(waiting, 'current', { ...ended(cause), ...{ atMs: 22 * MINUTE } });
};
const registerFailed = (cause: Failure): Told => ({ type: 'registerFailed', failure: cause, timedOut: false });
const registered: Told = { type: 'registered', connection: { token: 'token-2', obtainedAtMs: 0, lifeMs: null } };

const unreachable = failure('service-unreachable', 'The service at id.example does not answer.');
const refused = failure('credential-refused', 'The service does not accept the credential of this device.');
const forbidden = failure('access-forbidden', 'This device may not use workflow w1.');
const unknown = failure('workflow-unknown', 'The service knows no workflow w2.');
const clockWrong = failure('clock-wrong', "This device's clock is 3 days slow.", {
	remedy: 'Set the clock.',
});

const connecting = pair(NOTHING_SUPERVISED, desired('w1'));
const online = tell(connecting, 'current', confirmed);
const onlineWithKey = tell(want(NOTHING_SUPERVISED, withKey('w1')), 'current', registered, confirmed);
const moving = want(onlineWithKey, withKey('w2'));

function snapshot(supervision: Supervision, more: Partial<Snapshot> = {}): Snapshot {
	return {
		supervision,
		device: paired,
		workflow: null,
		identity: { deviceId: 'kiosk-7', serial: 'S1', macAddress: null },
		deviceType: 'kiosk',
		baseUrl: 'https://id.example',
		offlineSinceMs: null,
		hasBeenOnline: false,
		reconnects: 0,
		lastHeartbeatAt: null,
		line: { idleTimeoutSeconds: null, pingSeconds: null, recentCuts: null, warning: null },
		newestEventId: null,
		agentVersion: '1.2.3',
		startedAt: '2026-03-01T09:40:00.000Z',
		blocker: null,
		waitsUntilMs: null,
		warnings: [],
		plan: null,
		nowMs: NOW,
		wallMs: WALL,
		...more,
	};
}
/** A device that was online until 14 minutes ago. */
const gone = { hasBeenOnline: true, offlineSinceMs: 6 * MINUTE };
const unpaired = { device: EMPTY_STATE, baseUrl: null };

describe('what a technician reads', () => {
	test.each<[string, Supervision, Partial<Snapshot>, string, string]>([
		[
			'a new device',
			NOTHING_SUPERVISED,
			unpaired,
			'unpaired',
			'Not paired: scan a pairing code, or run idv-agent pair.',
		],
		[
			'a device whose pairing was cut off',
			NOTHING_SUPERVISED,
			{
				...unpaired,
				device: { ...EMPTY_STATE, attempt: { attemptId: 'a', tokenHash: 'h', host: 'id.example', at: '' } },
			},
			'unpaired',
			'Not paired: id.example gave no usable answer to the last pairing code, so it may have been used. Scan the same code again; if it is refused, check whether the device is listed in the service, and scan a new code.',
		],
		[
			'an unpaired device that something keeps from being wanted',
			NOTHING_SUPERVISED,
			{ ...unpaired, blocker: failure('workflow-missing', 'No workflow is set for this device.') },
			'unpaired',
			'Not paired: No workflow is set for this device. Name the workflow: pair --workflow ID, or workflowId in the settings.',
		],
		[
			'a paired device that something keeps from being wanted',
			NOTHING_SUPERVISED,
			{ blocker: failure('workflow-missing', 'No workflow is set for this device.') },
			'blocked',
			'Not online: No workflow is set for this device. Name the workflow: pair --workflow ID, or workflowId in the settings.',
		],
		['a first start', connecting, {}, 'connecting', 'Connecting to id.example.'],
		[
			'a first start without a network',
			tell(connecting, 'current', ended(unreachable)),
			{},
			'connecting',
			'Not online yet: The service at id.example does not answer. Check the network and that the firewall lets this device reach the host. The agent retries automatically.',
		],
		['a device that is online', online, { hasBeenOnline: true }, 'online', 'Online with id.example, workflow w1.'],
		[
			'a device that is online at another port',
			tell(pair(NOTHING_SUPERVISED, desired('w1', { baseUrl: 'https://id.example:8443' })), 'current', confirmed),
			{ hasBeenOnline: true },
			'online',
			'Online with id.example:8443, workflow w1.',
		],
		[
			'a device whose clock is wrong',
			tell(online, 'current', ended(clockWrong)),
			gone,
			'offline',
			"Offline for 14 min: This device's clock is 3 days slow. Set the clock. The agent retries automatically.",
		],
		[
			'the same device during its next attempt',
			tell(online, 'current', ended(clockWrong), timer),
			gone,
			'offline',
			"Offline for 14 min: This device's clock is 3 days slow. Set the clock. The agent retries automatically.",
		],
		[
			'a device that was told to reconnect',
			happen(online, { type: 'retryRequested', atMs: NOW }),
			{ hasBeenOnline: true, offlineSinceMs: NOW - 2000 },
			'offline',
			'Offline for 2 s: connecting to id.example again.',
		],
		[
			'a device that was refused a moment ago',
			tell(online, 'current', { ...ended(forbidden), ...{ atMs: 7 * MINUTE } }),
			gone,
			'offline',
			'Offline for 14 min: This device may not use workflow w1. Wait a few minutes: this device was online lately, so something else may answer for the service now. If it lasts: Ask the operator to allow this device or key for this workflow. The agent retries automatically.',
		],
		[
			'a device that was refused',
			lastingly(online, forbidden),
			gone,
			'blocked',
			'Offline for 14 min: This device may not use workflow w1. Ask the operator to allow this device or key for this workflow.',
		],
		[
			'a device that was refused from the start',
			tell(connecting, 'current', ended(forbidden)),
			{},
			'blocked',
			'Not online: This device may not use workflow w1. Ask the operator to allow this device or key for this workflow. If it is allowed: The service has just issued this Connection, and its channel refuses it: set service.channelAuth, service.queryName, service.subprotocol or service.channelPath as the service requires (idv probe finds them); a changed setting is tried at once, without another code.',
		],
		[
			'a device without any credential',
			want(NOTHING_SUPERVISED, desired('w1')),
			{},
			'blocked',
			'Not online: There is no credential to register with. Scan a pairing code, run idv-agent pair, or provision an API key.',
		],
	])('%s', (_, supervision, more, state, sentence) => {
		expect(describeStatus(snapshot(supervision, more))).toMatchObject({ state, sentence });
	});
});

describe('what a technician reads while something changes', () => {
	const elsewhere = withKey('w2', { baseUrl: 'https://other.example' });
	const renewing = happen(online, { type: 'renewalDue', generation: 1, atMs: 0 });

	test('the next attempt is named, also of a move beside a channel that is online [F1557]', () => {
		const waiting = describeStatus(snapshot(tell(moving, 'next', registerFailed(unknown)), { hasBeenOnline: true }));
		expect(waiting.channel).toMatchObject({ state: 'online', nextAttemptAt: expect.any(String) });
		expect(describeStatus(snapshot(moving, { hasBeenOnline: true })).channel.nextAttemptAt).toBeNull();
	});

	test.each<[string, Supervision, string]>([
		['a move', moving, 'Online with id.example, workflow w1; moving to workflow w2.'],
		[
			'a move that is refused',
			tell(moving, 'next', registerFailed(unknown)),
			'Online with id.example, workflow w1; moving to workflow w2 does not succeed: The service knows no workflow w2. Set a workflow that exists in the service; the spelling must match exactly.',
		],
		[
			'the next attempt at a move that is refused',
			tell(moving, 'next', registerFailed(unknown), timer),
			'Online with id.example, workflow w1; moving to workflow w2 does not succeed: The service knows no workflow w2. Set a workflow that exists in the service; the spelling must match exactly.',
		],
		[
			'a move without a credential',
			want(online, desired('w2', { baseUrl: 'https://other.example' })),
			'Online with id.example, workflow w1; moving to other.example, workflow w2 does not succeed: There is no credential to register with. Scan a pairing code, run idv-agent pair, or provision an API key.',
		],
		[
			'a move to another service',
			want(onlineWithKey, elsewhere),
			'Online with id.example, workflow w1; moving to other.example, workflow w2.',
		],
		['a renewal', renewing, 'Online with id.example, workflow w1; renewing the Connection.'],
		[
			'a renewal without a network',
			tell(renewing, 'next', registerFailed(unreachable)),
			'Online with id.example, workflow w1; renewing the Connection does not succeed: The service at id.example does not answer. Check the network and that the firewall lets this device reach the host. The agent retries automatically.',
		],
		['another pairing', pair(online, desired('w1')), 'Online with id.example, workflow w1; registering again.'],
	])('%s', (_, supervision, sentence) => {
		expect(describeStatus(snapshot(supervision, { hasBeenOnline: true }))).toMatchObject({ state: 'online', sentence });
	});

	test('a workflow that is wanted and that nothing moves to yet', () => {
		const workflow = { workflowId: 'w2', source: 'workflow set', where: null } as const;
		expect(describeStatus(snapshot(online, { workflow })).sentence).toBe(
			'Online with id.example, workflow w1; w2 is wanted.',
		);
	});

	test('a refused device that was paired again hopes for the new link', () => {
		const blocked = lastingly(online, forbidden);
		const again = pair(blocked, desired('w1', { baseUrl: 'https://other.example' }));
		expect(describeStatus(snapshot(again, gone))).toMatchObject({
			state: 'offline',
			sentence: 'Offline for 14 min: connecting to other.example again.',
			problem: null,
		});
		const failing = describeStatus(snapshot(tell(again, 'next', ended(unreachable)), gone));
		expect(failing).toMatchObject({ state: 'offline', problem: { code: 'service-unreachable' } });
		const hopeless = describeStatus(snapshot(tell(again, 'next', ended(unknown)), gone));
		expect(hopeless).toMatchObject({ state: 'blocked', problem: { code: 'access-forbidden' } });
	});

	test('a certificate that has expired by a clock which is known to be fast is a wrong clock [F978]', () => {
		const expired = failure('certificate-expired', "The certificate of id.example has expired by this device's clock.");
		const failing = tell(online, 'current', ended(expired));
		const told = (skewMs: number) => {
			const warning = clockWarning(skewMs);
			return describeStatus(snapshot(failing, { ...gone, warnings: warning ? [warning] : [] }));
		};
		const { problem, sentence } = told(7300 * 86_400_000);
		expect(problem).toMatchObject({ code: 'clock-wrong', remedy: expect.stringContaining("Set this device's clock") });
		expect(sentence).toMatch(/has expired by this device's clock\. .*clock is 7300 days fast/);
		for (const skewMs of [0, -86_400_000]) expect(told(skewMs).problem?.code).toBe('certificate-expired');
	});

	test('a certificate that is not valid yet by a clock which is known to be slow is a wrong clock [F1146]', () => {
		const params = { reason: 'CERT_NOT_YET_VALID' };
		const early = failure('clock-wrong', 'Not valid yet.', { params, remedy: 'Either.' });
		const failing = tell(online, 'current', ended(early));
		const told = (skewMs: number) => {
			const warning = clockWarning(skewMs);
			return describeStatus(snapshot(failing, { ...gone, warnings: warning ? [warning] : [] })).problem;
		};
		const remedy = expect.stringContaining("Set this device's clock");
		expect(told(-400 * 86_400_000)).toMatchObject({ code: 'clock-wrong', remedy, params: { direction: 'slow' } });
		for (const skewMs of [0, 86_400_000]) expect(told(skewMs)?.remedy).toBe('Either.');
	});

	test('an old channel that was replaced is not the trouble', () => {
		const newer: Told = { type: 'registered', connection: { ...connection, token: 'token-3' } };
		const replaced = tell(tell(moving, 'next', newer), 'current', ended(refused, 1008));
		expect(describeStatus(snapshot(replaced, gone)).sentence).toBe(
			'Offline for 14 min: connecting to id.example again.',
		);
		const failing = tell(replaced, 'next', ended(unreachable));
		expect(describeStatus(snapshot(failing, gone)).problem?.code).toBe('service-unreachable');
	});
});

describe('the fields', () => {
	test('of a device that is online', () => {
		const workflow = { workflowId: 'w1', source: 'file', where: '/etc/idv-agent/config.json' } as const;
		const more = {
			workflow,
			hasBeenOnline: true,
			reconnects: 2,
			lastHeartbeatAt: '2026-03-01T09:59:30.000Z',
			newestEventId: 'e1-7',
		};
		expect(describeStatus(snapshot(online, more))).toEqual({
			schemaVersion: 1,
			state: 'online',
			sentence: 'Online with id.example, workflow w1.',
			summary: { code: 'online', params: { host: 'id.example', workflowId: 'w1' } },
			agentVersion: '1.2.3',
			startedAt: '2026-03-01T09:40:00.000Z',
			deviceId: 'kiosk-7',
			deviceType: 'kiosk',
			serial: 'S1',
			macAddress: null,
			baseUrl: 'https://id.example',
			workflow: { wanted: 'w1', live: 'w1', waitsUntil: null, source: 'file' },
			channel: {
				state: 'online',
				since: '2026-03-01T09:46:00.000Z',
				lastHeartbeatAt: '2026-03-01T09:59:30.000Z',
				reconnects: 2,
				nextAttemptAt: null,
				idleTimeout: null,
				recentCuts: null,
			},
			plan: null,
			sessionId: 's1',
			pairedAt: '2026-02-01T10:00:00.000Z',
			problem: null,
			warnings: [],
			newestEventId: 'e1-7',
		});
	});

	test('name the workflow that is live only while it is', () => {
		const workflow = { workflowId: 'w2', source: 'service message', where: null } as const;
		expect(describeStatus(snapshot(moving, { workflow })).workflow).toEqual({
			wanted: 'w2',
			live: 'w1',
			waitsUntil: null,
			source: 'service message',
		});
		expect(describeStatus(snapshot(connecting, { workflow })).workflow.live).toBeNull();
	});

	test('of a device that waits say until when, by the device’s clock', () => {
		const { channel, problem } = describeStatus(snapshot(tell(online, 'current', ended(unreachable)), gone));
		expect(channel).toMatchObject({
			state: 'connectWait',
			since: '2026-03-01T09:46:00.000Z',
			nextAttemptAt: '2026-03-01T09:46:02.500Z',
		});
		expect(problem).toEqual(unreachable);
	});

	test('whose Connection ends while no other can be had name what keeps it from having one [F1036]', () => {
		const gone404 = failure('bad-response', 'id.example answered 404.');
		const expired = failure(
			'credential-refused',
			'id.example closed the channel with 1008 (policy violation): expired.',
		);
		const renewing = tell(moving, 'next', registerFailed(gone404));
		// Its channel has counted: a new Connection would be shown again first.
		const later = { atMs: 7 * MINUTE };
		const alone = tell(renewing, 'current', { ...ended(expired, 1008), ...later });
		expect(describeStatus(snapshot(alone, gone)).problem?.message).toBe(gone404.message);
		// Its own registration is under way, and says it too.
		const tried = tell(tell(alone, 'current', timer), 'current', registerFailed(unreachable));
		expect(describeStatus(snapshot(tried, gone)).problem?.message).toBe(unreachable.message);
		// Until the first answer only the end is known.
		const early = tell(moving, 'current', ended(expired, 1008));
		expect(describeStatus(snapshot(early, gone)).problem?.message).toBe(expired.message);
	});

	test('whose Connection ends while settings of the network are tried name the answer to the way in force [F1585]', () => {
		const untrusted = failure('certificate-untrusted', 'Not trusted.');
		const refused = failure('credential-refused', 'id.example closed the channel with 4401.');
		const by = (link: Link | null, way: string) => link && { ...link, registration: { ...link.registration, way } };
		const trying = { ...moving, current: by(moving.current, 'in force'), next: by(moving.next, 'tried') };
		const ends = tell(tell(trying, 'next', registerFailed(untrusted)), 'current', ended(refused, 4401));
		expect(describeStatus(snapshot(ends, gone)).problem?.message).toBe(refused.message);
	});

	test('of a device whose old channel has made room for the new one say when the new one is tried', () => {
		const beside = tell(tell(moving, 'next', registered), 'next', ended(failure('channel-occupied', '409.')));
		const { channel } = describeStatus(snapshot(beside, gone));
		expect(channel).toMatchObject({ state: 'connectWait', nextAttemptAt: '2026-03-01T09:46:00.700Z' });
	});

	test('of an unpaired device are empty', () => {
		expect(describeStatus(snapshot(NOTHING_SUPERVISED, unpaired))).toMatchObject({
			baseUrl: null,
			workflow: { wanted: null, live: null, waitsUntil: null, source: null },
			channel: { state: 'none', since: null, nextAttemptAt: null },
			sessionId: null,
			pairedAt: null,
		});
	});

	test('tell of a line that is cut again and again, and of an idle timeout on it', () => {
		const recentCuts = { count: 7, windowSeconds: 600, typicalLifeSeconds: 20, cause: '1006' };
		const warning = failure('channel-flapping', 'The channel was cut 7 times in 10 min, each after 20 s (1006).');
		const line = { idleTimeoutSeconds: 20, pingSeconds: 13, recentCuts, warning };
		const { channel, warnings } = describeStatus(snapshot(online, { line }));
		expect(channel).toMatchObject({ idleTimeout: { seconds: 20, pingSeconds: 13 }, recentCuts });
		expect(warnings).toMatchObject([{ code: 'channel-flapping', message: warning.message }]);
	});

	test('warn for an hour of a service that makes the device register too often', () => {
		const budget = { ...FULL_BUDGET, heldBackAtMs: NOW - 50 * MINUTE };
		expect(describeStatus(snapshot({ ...online, budget })).warnings).toMatchObject([{ code: 'registering-too-often' }]);
		expect(describeStatus(snapshot({ ...online, budget }, { nowMs: NOW + 11 * MINUTE })).warnings).toEqual([]);
	});

	test('show warnings and leave the sentence alone, but for a clock that makes its times wrong', () => {
		const status = describeStatus(snapshot(online, { warnings: [clockWrong] }));
		expect(status.sentence).toBe(
			"Online with id.example, workflow w1. This device's clock is 3 days slow. Times that it shows are wrong.",
		);
		expect(status.warnings).toEqual([clockWrong]);
		const other = failure('channel-flapping', 'The channel was cut 5 times.');
		expect(describeStatus(snapshot(online, { warnings: [other] })).sentence).toBe(
			'Online with id.example, workflow w1.',
		);
	});

	test.each([
		['1976-01-01T00:00:00.000Z', undefined, 'wrong clock'],
		['2026-02-01T10:00:00.000Z', 'service' as const, 'service'],
		['2026-02-01T10:00:00.000Z', undefined, undefined],
	])('say whose time %s is', (pairedAt, by, clock) => {
		const pairing = { baseUrl: 'https://id.example', sessionId: null, pairedAt, ...(by && { pairedAtBy: by }) };
		const { pairedAtBy } = describeStatus(snapshot(online, { device: { ...EMPTY_STATE, pairing } }));
		expect(pairedAtBy).toBe(clock);
	});
});

describe.each(Object.keys(CATALOGUE) as ErrorCode[])('whoever is told of %s', (code) => {
	const message = 'The host id.example gave a bad answer.';
	const problem = failure(code, message, { params: { host: 'id.example' } });
	const ready = { hasBeenOnline: true };
	// A Connection that is refused is followed by the key: a move fails only when both did.
	const told: Record<string, Status> = {
		unpaired: describeStatus(snapshot(NOTHING_SUPERVISED, { ...unpaired, blocker: problem })),
		connecting: describeStatus(snapshot(tell(connecting, 'current', ended(problem)))),
		moving: describeStatus(snapshot(tell(moving, 'next', registerFailed(problem), registerFailed(problem)), ready)),
		offline: describeStatus(snapshot(tell(online, 'current', ended(problem)), gone)),
		blocked: describeStatus(snapshot(NOTHING_SUPERVISED, { blocker: problem })),
	};

	test.each(Object.entries(told))('reads whole sentences on a device that is %s', (_, { sentence }) => {
		expect(sentence).toContain(message);
		expect(sentence).toMatch(/\.$/);
		expect(sentence).not.toMatch(/ {2}|\.\.|[;:,]\.|\n/);
		expect(sentence).not.toMatch(/nothing to do|by itself|anew/i);
		for (const one of sentence.split(/(?<=\.) /)) expect(one).toMatch(/^[A-Z0-9]/);
	});

	test('learns that the agent retries only where it does', () => {
		const retries = (name: string) => told[name]?.sentence.includes('retries automatically');
		expect(retries('unpaired')).toBe(false);
		for (const name of ['connecting', 'moving', 'offline', 'blocked'])
			expect(retries(name), name).toBe(
				problem.recovers === true ||
					(name === 'offline' && retryClassOf(code) === 'surprising') ||
					// A refusal that has just begun is outweighed by what worked.
					(['offline', 'moving'].includes(name) && retryClassOf(code) === 'refused') ||
					// That the service works says something for a move, unless the answer may speak of what was asked for.
					(name === 'moving' && ['channel-not-found', 'channel-rejected', 'proxy-refused'].includes(code)),
			);
	});

	test('finds the sentence as data: code, parameters, and the problem that it tells', () => {
		for (const [name, status] of Object.entries(told)) {
			expect(status.summary.params['problem'], name).toBe(code);
			expect(status.problem, name).toMatchObject({ code, params: { host: 'id.example' } });
		}
	});
});

test.each([
	[-5000, '0 s'],
	[0, '0 s'],
	[1499, '1 s'],
	[119_000, '119 s'],
	[120_000, '2 min'],
	[14 * MINUTE, '14 min'],
	[119 * MINUTE, '119 min'],
	[120 * MINUTE, '2 h'],
	[47 * 60 * MINUTE, '47 h'],
	[48 * 60 * MINUTE, '2 days'],
	[30 * 24 * 60 * MINUTE, '30 days'],
])('%i ms are %s', (ms, words) => {
	expect(plainDuration(ms)).toBe(words);
});

test('a sentence keeps the capitals of names and acronyms, and ends even where a message does not', () => {
	const after = (cause: Failure) => describeStatus(snapshot(tell(online, 'current', ended(cause)), gone)).sentence;
	expect(after(failure('dns-failed', 'DNS knows no id.example.', { remedy: 'Check it.' }))).toBe(
		'Offline for 14 min: DNS knows no id.example. Check it. The agent retries automatically.',
	);
	expect(after(failure('internal', 'TypeError: x is not a function'))).toBe(
		'Offline for 14 min: TypeError: x is not a function. This is a fault in the agent: please report it with the file that idv-agent support-bundle makes.',
	);
});

test('whatever fails, the status is valid and its sentence begins with how the device is and ends', () => {
	const code = fc.constantFrom(...(Object.keys(CATALOGUE) as ErrorCode[]));
	const words = fc.oneof(fc.constant(undefined), fc.string({ maxLength: 30 }));
	const cause = fc
		.record({ code, message: fc.string({ maxLength: 30 }), remedy: words })
		.map(({ code, message, remedy }) => failure(code, message, remedy === undefined ? {} : { remedy }));
	const start = fc.constantFrom(
		NOTHING_SUPERVISED,
		connecting,
		online,
		onlineWithKey,
		moving,
		pair(online, desired('w3')),
	);
	const told = fc.oneof(
		fc.constantFrom(confirmed, timer, registered),
		cause.map((failed) => ended(failed, 1008)),
		cause.map(registerFailed),
	);
	const steps = fc.array(fc.tuple(fc.constantFrom('current' as const, 'next' as const), told), { maxLength: 8 });
	const rest = fc.record({
		hasBeenOnline: fc.boolean(),
		offlineSinceMs: fc.option(fc.integer({ min: 0, max: 2 * NOW })),
		blocker: fc.option(cause),
		warnings: fc.array(cause, { maxLength: 2 }),
		device: fc.constantFrom(EMPTY_STATE, paired),
		workflow: fc.constantFrom(null, { workflowId: 'w9', source: 'plan', where: null } as const),
	});
	fc.assert(
		fc.property(start, steps, rest, (from, told, more) => {
			const reached = told.reduce(
				(supervision, [which, one]) => (supervision[which] ? tell(supervision, which, one) : supervision),
				from,
			);
			const status = describeStatus(snapshot(reached, more));
			expect(statusSchema.parse(status)).toEqual(status);
			expect(statusSentence(JSON.parse(JSON.stringify(status)))).toBe(status.sentence);
			expect(status.sentence).toMatch(/^(Not paired|Connecting to|Not online|Online with|Offline for) ?/);
			expect(status.sentence).toMatch(/[.!?]$/);
			expect(status.sentence.startsWith('Online')).toBe(status.state === 'online');
			expect(status.workflow.live !== null).toBe(status.state === 'online');
		}),
		{ numRuns: 300 },
	);
});
