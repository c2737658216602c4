import { expect, test } from 'vitest';
import { planSchemaOf } from '../../src/fleet/plan-format.ts';
import { createHandOver } from '../../src/updates/hand-over.runner.ts';
import { createSteppedClock } from '../harness/stepped-clock.ts';

const START = Date.parse('2026-11-22T00:00:00Z');
const HOUR = 3_600_000;

function given({
	startAt,
	window = null,
	enabled = true,
}: {
	startAt?: string;
	window?: string | null;
	enabled?: boolean;
} = {}) {
	const clock = createSteppedClock(START);
	const written: string[] = [];
	let held = false;
	let installed = true;
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
		receive(version: string | null, bytes = 'the plan') {
			const rings =
				version === null ? [{ percent: 100 }] : [{ percent: 100, ...(startAt && { startAt }), agent: { version } }];
			const to = version === null ? { workflowId: 'w' } : {};
			const plan = { format: 'idv-fleet-plan/2', revision: 1, spreadSeconds: 0, defaults: { rollout: { to, rings } } };
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

/** The hours of this machine's zone that begin so many hours after the start. */
const windowIn = (from: number, to: number) =>
	[from, to].map((hours) => new Date(START + hours * HOUR).toTimeString().slice(0, 5)).join('-');

test.each([
	['without a date', undefined, 2],
	['whose date is over', '2026-11-21T22:00:00Z', 2],
	['whose date is in the window', '2026-11-22T02:30:00Z', 2.5],
	['whose date is after the window', '2026-11-22T05:00:00Z', 26],
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
