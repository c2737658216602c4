import { expect, test } from 'vitest';
import { planSchemaOf } from '../../src/fleet/plan-format.ts';
import { shareOfSpread } from '../../src/fleet/targeting.ts';
import { createHandOver } from '../../src/updates/hand-over.runner.ts';
import { NO_OUTCOMES, NO_RECORDS, type Records, type Trial } from '../../src/updates/record.ts';
import { createSteppedClock } from '../harness/stepped-clock.ts';

const START = Date.parse('2026-11-22T00:00:00Z');
const HOUR = 3_600_000;

function given({
	startAt,
	window = null,
	enabled = true,
	packageVersion = null,
	spreadSeconds = 0,
}: {
	startAt?: string;
	window?: string | null;
	enabled?: boolean;
	packageVersion?: string | null;
	spreadSeconds?: number;
} = {}) {
	const clock = createSteppedClock(START);
	const written: string[] = [];
	let held = false;
	let installed = true;
	let records: Records = NO_RECORDS;
	const handOver = createHandOver({
		clock,
		settings: () => ({
			update: { enabled, judgeSeconds: 300, source: null, window },
			workflow: { maxDeferSeconds: 7200 },
		}),
		device: () => ({ deviceId: 'kiosk-1', serial: null, macAddress: null, deviceType: 'kiosk', labels: [] }),
		version: '0.2.0',
		isHeld: () => held,
		isInstalled: () => installed,
		records: () => records,
		packageVersion: () => packageVersion,
		write: (envelope) => written.push(String(envelope)),
	});
	return {
		clock,
		written,
		handOver,
		hold: (next: boolean) => {
			held = next;
		},
		install: (next: boolean) => {
			installed = next;
		},
		know(next: Partial<Records>) {
			records = { ...NO_RECORDS, ...next };
			handOver.reevaluate();
		},
		receive(version: string | null, bytes = 'the plan') {
			const rings =
				version === null ? [{ percent: 100 }] : [{ percent: 100, ...(startAt && { startAt }), agent: { version } }];
			const to = version === null ? { workflowId: 'w' } : {};
			const plan = { format: 'idv-fleet-plan/2', revision: 1, spreadSeconds, defaults: { rollout: { to, rings } } };
			handOver.received(planSchemaOf(plan).parse(plan), Buffer.from(bytes));
		},
	};
}

test('a plan that orders another version is handed over at its time, and again while it was not followed', () => {
	const { clock, written, receive, handOver } = given({ startAt: '2026-11-22T03:30:00Z' });
	receive('0.3.0');
	clock.advance(3.4 * HOUR);
	expect(written).toEqual([]);
	expect(handOver.ordered).toBe('0.3.0');
	clock.advance(0.2 * HOUR);
	expect(written).toEqual(['the plan']);
	clock.advance(6 * HOUR);
	expect(written).toHaveLength(2);
});

test('without the package that carries it out an order stays with its reason, and is handed over when the package comes [F545]', () => {
	const { written, receive, handOver, install } = given();
	install(false);
	receive('0.3.0');
	expect([handOver.ordered, handOver.reason, written]).toEqual(['0.3.0', 'not-installed', []]);
	install(true);
	// The package has the agent read its settings again.
	handOver.reevaluate();
	expect([handOver.ordered, handOver.reason, written]).toEqual(['0.3.0', null, ['the plan']]);
});

test('a clock that is set back or forward does not bring it before its time, nor much later', () => {
	const { clock, written, receive } = given({ startAt: '2026-11-22T12:00:00Z' });
	receive('0.3.0');
	clock.setWall(0);
	clock.advance(14 * HOUR);
	expect(written).toEqual([]);
	clock.setWall(Date.parse('2026-11-22T12:01:00Z'));
	clock.advance(HOUR);
	expect(written).toHaveLength(1);
});

/** Of an hour: when this device begins in a window of one. */
const TURN = 0.75 * shareOfSpread('kiosk-1');

/** The hours of this machine's zone that begin so many hours after the start. */
const windowIn = (from: number, to: number) =>
	[from, to].map((hours) => new Date(START + hours * HOUR).toTimeString().slice(0, 5)).join('-');

test.each([
	['without a date', undefined, 2 + TURN],
	['whose date is over', '2026-11-21T22:00:00Z', 2 + TURN],
	['whose date is in the window', '2026-11-22T02:30:00Z', Math.max(2.5, 2 + TURN)],
	['whose date is after the window', '2026-11-22T05:00:00Z', 26 + TURN],
])('a plan %s is handed over in the window and not before', (_what, startAt, dueHours) => {
	const { clock, written, receive } = given({ ...(startAt && { startAt }), window: windowIn(2, 3) });
	receive('0.3.0');
	clock.advance((dueHours - 0.02) * HOUR);
	expect(written).toEqual([]);
	clock.advance(0.03 * HOUR);
	expect(written).toEqual(['the plan']);
});

test('a lease that is renewed for ever holds it for workflow.maxDeferSeconds and no longer, each time [F716]', () => {
	const { clock, written, receive, hold } = given();
	hold(true);
	receive('0.3.0');
	clock.advance(1.99 * HOUR);
	expect(written).toEqual([]);
	clock.advance(0.02 * HOUR);
	expect(written).toEqual(['the plan']);
	clock.advance(6 * HOUR);
	expect(written).toHaveLength(1);
	clock.advance(2 * HOUR);
	expect(written).toHaveLength(2);
});

test('a lease holds it until it is released', () => {
	const { clock, written, receive, hold } = given();
	hold(true);
	receive('0.3.0');
	clock.advance(HOUR);
	expect(written).toEqual([]);
	hold(false);
	clock.advance(30_000);
	expect(written).toEqual(['the plan']);
});

test('a plan that withdraws an order which root may still wait with is handed over, once', () => {
	const { clock, written, receive, handOver } = given();
	receive('0.3.0');
	expect(written).toEqual(['the plan']);
	receive(null, 'the plan without it');
	receive(null, 'the plan after that');
	clock.advance(24 * HOUR);
	expect(written).toEqual(['the plan', 'the plan without it']);
	expect(handOver.ordered).toBeNull();
});

test('nothing is handed over that orders nothing, names this version, is not switched on, or was withdrawn', () => {
	const off = given({ enabled: false });
	off.install(false);
	off.receive('0.3.0');
	const same = given();
	same.receive('0.2.0');
	const none = given();
	none.receive(null);
	const withdrawn = given({ startAt: '2026-11-22T03:30:00Z' });
	withdrawn.receive('0.3.0');
	withdrawn.receive(null, 'the plan after it');
	for (const { clock, written, handOver } of [off, same, none, withdrawn]) {
		clock.advance(24 * HOUR);
		expect(written).toEqual([]);
		expect(handOver.ordered).toBeNull();
		expect(clock.pending).toBe(0);
	}
});

test('a ring to come is handed over at its time, also where the device has the version of the ring before [F734]', () => {
	const { clock, written, handOver } = given();
	const rings = [
		{ percent: 100, agent: { version: '0.2.0' } },
		{ percent: 100, startAt: '2026-11-22T05:00:00Z', agent: { version: '0.3.0' } },
	];
	const plan = { format: 'idv-fleet-plan/2', revision: 1, spreadSeconds: 0, defaults: { rollout: { to: {}, rings } } };
	handOver.received(planSchemaOf(plan).parse(plan), Buffer.from('the plan'));
	clock.advance(4 * HOUR);
	expect(written).toEqual([]);
	clock.advance(2 * HOUR);
	expect(written).toEqual(['the plan']);
});

const TRIAL = { phase: 'judging', from: '0.2.0', to: '0.3.0', fault: null } as Trial;
const takenBack = [{ version: '0.3.0', by: '0.2.0', at: '2026-11-22T03:00:00Z', fault: 'crashes', log: [] }];
const failed = (code: string, message: string, version: string | null = '0.3.0') => ({
	outcomes: { ...NO_OUTCOMES, failed: { code, message, at: '2026-11-22T03:00:00Z', version } },
});

test.each<[string, Partial<Records>, string | null]>([
	['nothing', {}, null],
	['a trial of it', { trial: TRIAL }, 'trying'],
	['its end', { trial: { ...TRIAL, phase: 'goneBack', fault: 'crashes' } }, 'taken-back'],
	['a service that was away', { trial: { ...TRIAL, phase: 'goingBack', fault: 'service-away' } }, 'service-away'],
	['that it was taken back', { outcomes: { ...NO_OUTCOMES, takenBack } }, 'taken-back'],
	['that a newer one was kept', { outcomes: { ...NO_OUTCOMES, kept: '0.4.0' } }, 'newer-than-ordered'],
	['that another was kept', { outcomes: { ...NO_OUTCOMES, kept: '0.2.0' } }, null],
	['the words of apt', failed('update-failed', "E: Version '0.3.0' for 'idv-agent' was not found"), 'apt-not-found'],
	[
		'a dead mirror',
		failed('update-failed', 'E: Failed to fetch http://a/ Could not connect to a:80'),
		'apt-unreachable',
	],
	[
		'a wrong clock',
		failed('update-failed', 'E: Release file for file:/a is not valid yet (invalid for another 1d)'),
		'apt-expired',
	],
	['another key', failed('update-failed', 'W: GPG error: http://a InRelease: NO_PUBKEY 0A'), 'apt-untrusted'],
	['another apt', failed('update-failed', 'E: Could not get lock /var/lib/dpkg/lock-frontend.'), 'apt-busy'],
	['other packages', failed('update-not-alone', 'apt would remove kiosk-app'), 'apt-not-alone'],
	['something of apt', failed('update-failed', 'status 100'), 'apt-failed'],
	['a refusal', failed('update-refused', 'The fleet plan was valid until 2026.'), 'refused'],
	['the failure of another order', failed('update-failed', 'E: No space left on device', '0.2.9'), null],
])('what root has written is the reason of an order while it holds: %s', (_what, known, reason) => {
	const { handOver, receive, know } = given();
	receive('0.3.0');
	know(known);
	expect([handOver.ordered, handOver.reason]).toEqual(['0.3.0', reason]);
	know({});
	expect(handOver.reason).toBeNull();
});

test('an order that waits says for what: the window, a lease, the settings', () => {
	const waiting = given({ window: windowIn(2, 3) });
	waiting.receive('0.3.0');
	expect(waiting.handOver.reason).toBe('waiting-window');
	const held = given();
	held.hold(true);
	held.receive('0.3.0');
	expect(held.handOver.reason).toBe('held-lease');
	held.hold(false);
	expect(held.handOver.reason).toBeNull();
	const off = given({ enabled: false });
	off.receive('0.3.0');
	expect([off.handOver.ordered, off.handOver.reason, off.written]).toEqual(['0.3.0', 'disabled', []]);
});

test('a version and its package are the same only with the revision, and an order of either ends when it is there', () => {
	for (const [packageVersion, ordered, expected] of [
		['0.3.0-1', '0.3.0-1', null],
		['0.3.0', '0.3.0-0', null],
		['0.3.0-1', '0.3.0-2', '0.3.0-2'],
		['0.3.0', '0.3.0-1', '0.3.0-1'],
	] as const) {
		const { clock, written, handOver, receive } = given({ packageVersion });
		receive(ordered);
		clock.advance(12 * HOUR);
		expect([ordered, handOver.ordered]).toEqual([ordered, expected]);
		expect(written.length > 0).toBe(expected !== null);
	}
});

test('devices begin one after the other: over the window, or over an hour, by their id', () => {
	const share = shareOfSpread('kiosk-1');
	const inWindow = given({ window: windowIn(2, 5) });
	inWindow.receive('0.3.0');
	const beginsMs = (2 + 3 * 0.75 * share) * HOUR;
	inWindow.clock.advance(beginsMs - 2000);
	expect(inWindow.written).toEqual([]);
	inWindow.clock.advance(4000);
	expect(inWindow.written).toHaveLength(1);
	const atOnce = given({ spreadSeconds: 600 });
	atOnce.receive('0.3.0');
	atOnce.clock.advance(share * HOUR - 2000);
	expect(atOnce.written).toEqual([]);
	atOnce.clock.advance(4000);
	expect(atOnce.written).toHaveLength(1);
});

test('root that has the agent look again when it has failed is handed the plan after six hours, and at once after a change of the settings', () => {
	const { clock, written, receive, know } = given();
	receive('0.3.0');
	for (let hour = 0; hour < 5; hour += 1) {
		know(failed('update-failed', 'status 100'));
		clock.advance(HOUR);
	}
	expect(written).toHaveLength(1);
	clock.advance(1.1 * HOUR);
	expect(written).toHaveLength(2);
	receive('0.3.0', 'another edition');
	expect(written).toHaveLength(3);
});

test('an order that comes while another version is taken back is handed over as soon as that is done, whatever was handed over before [F1959]', () => {
	const { written, receive, know } = given();
	receive('0.4.0');
	const trial = { to: '0.3.0', fault: 'crashes', phase: 'goneBack' } as Trial;
	know({ trial });
	expect(written).toHaveLength(1);
	know({ trial: null });
	expect(written).toHaveLength(2);
	know({ trial });
	receive('0.4.0');
	receive('0.5.0', 'the next plan');
	expect(written).toHaveLength(2);
	know({ trial: null });
	expect(written.slice(2)).toEqual(['the next plan']);
});

test('the order of the very version that is taken back for no fault of its own keeps its pace', () => {
	const { clock, written, receive, know } = given();
	know({ trial: { to: '0.3.0', fault: 'interrupted', phase: 'goneBack' } as Trial });
	receive('0.3.0');
	know({ trial: null });
	expect(written).toHaveLength(1);
	clock.advance(6 * HOUR);
	expect(written).toHaveLength(2);
});

test('a plan that a server sends whole each time is no new order, and an order that failed and is withdrawn is told to root once [F1942]', () => {
	const { clock, written, receive, know } = given();
	receive('0.3.0');
	know(failed('update-failed', 'Hash Sum mismatch'));
	for (let minutes = 0; minutes < 120; minutes += 5) {
		clock.advance(HOUR / 12);
		receive('0.3.0');
	}
	expect(written).toEqual(['the plan']);
	clock.advance(4.1 * HOUR);
	expect(written).toHaveLength(2);
	// Started again meanwhile, it knows of no order that it handed over.
	const started = given();
	started.know(failed('update-failed', 'Hash Sum mismatch'));
	for (let times = 0; times < 3; times += 1) started.receive(null, 'the plan without it');
	expect(started.written).toEqual(['the plan without it']);
	started.receive('0.3.0', 'the plan that orders it again');
	expect(started.written).toHaveLength(2);
});
