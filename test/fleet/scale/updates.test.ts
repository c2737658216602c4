import { expect, test } from 'vitest';
import { planSchemaOf } from '../../../src/fleet/plan-format.ts';
import { rolloutPercentile } from '../../../src/fleet/targeting.ts';
import { createHandOver } from '../../../src/updates/hand-over.runner.ts';
import { NO_RECORDS } from '../../../src/updates/record.ts';
import { createSteppedClock } from '../../harness/stepped-clock.ts';
import { operatorOfFile } from '../../operator/operator.ts';

const DEVICES = 2000;
const OLD = '0.2.0';
const NEW = '0.3.0';
const HOUR = 3_600_000;
const operator = operatorOfFile();

/** Rings as a pipeline publishes them: the next one only after the one before was looked at. */
function planOf(rings: readonly number[], startMs: number) {
	return {
		format: 'idv-fleet-plan/2',
		revision: rings.length,
		spreadSeconds: 600,
		defaults: {
			rollout: {
				to: {},
				rings: rings.map((percent, index) => ({
					percent,
					startAt: new Date(startMs + index * HOUR).toISOString(),
					agent: { version: NEW },
				})),
			},
		},
	};
}

test('2,000 devices in rings: a version that 3 % take back stops at the first ring; a good one reaches all [F430]', async () => {
	for (const badShare of [0.03, 0]) {
		const startMs = Date.now() - 12 * HOUR;
		const clock = createSteppedClock(startMs - HOUR);
		const devices = Array.from({ length: DEVICES }, (_, index) => {
			const deviceId = `kiosk-${index}`;
			const device = { deviceId, version: OLD, takenBack: [] as object[] };
			// By the id, so that each ring has its share of them.
			const isBad = (index % 100) / 100 < badShare;
			const handOver = createHandOver({
				clock,
				settings: () => ({
					update: { enabled: true, judgeSeconds: 300, source: null, window: null },
					workflow: { maxDeferSeconds: 900 },
				}),
				device: () => ({ deviceId, serial: null, macAddress: null, deviceType: 'kiosk', labels: [] }),
				version: OLD,
				isHeld: () => false,
				isInstalled: () => true,
				records: () => NO_RECORDS,
				packageVersion: () => null,
				/** Root and the judge, in short. */
				write() {
					if (isBad)
						device.takenBack = [{ version: NEW, at: new Date(clock.wallMs()).toISOString(), fault: 'crashes' }];
					else device.version = NEW;
				},
			});
			return { device, handOver };
		});
		const begun: number[] = [];
		let outcome: { status: number | string | null; text: string } = { status: 0, text: '' };
		for (const percent of [10, 50, 100]) {
			begun.push(percent);
			const plan = planOf(begun, startMs);
			const parsed = planSchemaOf(plan).parse(plan);
			for (const { handOver } of devices) handOver.received(parsed, Buffer.from(JSON.stringify(plan)));
			clock.advance(2 * HOUR);
			const path = await operator.file('plan.json', JSON.stringify(plan), 0o644);
			const lines = devices.map(({ device }) =>
				JSON.stringify({
					schemaVersion: 1,
					state: 'online',
					agentVersion: device.version,
					deviceId: device.deviceId,
					deviceType: 'kiosk',
					workflow: { wanted: 'w', live: 'w', waitsUntil: null, source: 'pairing' },
					channel: { state: 'online', since: null, lastHeartbeatAt: new Date().toISOString() },
					plan: { revision: begun.length, followed: begun.length, next: null, refused: null, checkedAt: null },
					updates: { ordered: null, takenBack: device.takenBack },
					problem: null,
					warnings: [],
				}),
			);
			const from = await operator.file('gathered.jsonl', `${lines.join('\n')}\n`);
			const { status, stdout, stderr } = await operator.idv([
				...['fleet', 'status', '--plan', path, '--from', from, '--fail-above', '1%', '--min-reported', '95%'],
			]);
			outcome = { status, text: `${stdout}${stderr}` };
			if (status !== 0) break;
		}
		for (const { handOver } of devices) handOver.stop();
		const tried = devices.filter(({ device }) => device.version === NEW || device.takenBack.length > 0);
		if (badShare === 0) {
			expect(outcome.status).toBe(0);
			expect(tried).toHaveLength(DEVICES);
			continue;
		}
		expect(begun).toEqual([10]);
		expect(outcome.status).not.toBe(0);
		expect(outcome.text).toContain(`version ${NEW} was taken back (crashes)`);
		expect(outcome.text).toContain('plan-not-followed');
		expect(tried.length).toBeGreaterThan(150);
		expect(tried.length).toBeLessThan(250);
		expect(tried.every(({ device }) => rolloutPercentile(device.deviceId) < 10)).toBe(true);
	}
});
