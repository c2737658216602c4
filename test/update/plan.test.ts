/** Versions that a signed plan orders, on a real Debian with apt, dpkg and systemd. */
import { describe, expect, test } from 'vitest';
import { type Device, IS_SHORT, useDevice } from './device.ts';
import { ordersFor } from './orders.ts';

let device: Device;
let before = '';
useDevice((made, version) => {
	[device, before] = [made, version];
});

describe('an update by a signed plan', () => {
	const { signer, handOver, untilApplied } = ordersFor(() => device);

	test('is none while the site has not switched it on; then it is installed and judged', async () => {
		const version = device.next();
		await device.publish([await device.stub(before, 'good'), await device.stub(version, 'good')]);
		await handOver(version);
		await untilApplied();
		expect(await device.installed()).toBe(`${before} installed`);
		const settings = { update: { enabled: true }, fleet: { publicKeys: [signer.publicKey] } };
		await device.put('/etc/idv-agent/conf.d/20-plan.json', JSON.stringify(settings));
		await handOver(version);
		await untilApplied();
		await device.untilJudged();
		expect(await device.installed()).toBe(`${version} installed`);
		await device.expectWhole();
	});

	const inFull = test.skipIf(IS_SHORT);
	inFull(
		'is carried out also after the plan has changed twenty times in a moment: no change after them is lost',
		async () => {
			await handOver(null);
			await untilApplied();
			await device.machine.must(
				'cd /var/lib/idv-agent; for n in $(seq 20); do cp update-plan.json plan.new; mv plan.new update-plan.json; sleep 0.2; done',
			);
			const version = device.next();
			await device.publish([await device.stub(before, 'good'), await device.stub(version, 'good')]);
			await handOver(version);
			await device.machine.must(
				`timeout 120 sh -c 'until dpkg --status idv-agent | grep --quiet "^Version: ${version}"; do sleep 0.5; done'`,
			);
			await device.untilJudged();
			expect((await device.machine.run('systemctl is-failed idv-agent-update.path')).text.trim()).toBe('active');
			await device.expectWhole();
		},
	);

	test('installs nothing that is unsigned, that apt reads as an operator, that would remove a package, that the repository does not have, or that was withdrawn in time', async () => {
		const version = device.next();
		await device.publish([await device.stub(before, 'good'), await device.stub(version, 'good')]);
		await handOver(version, false);
		await untilApplied();
		expect((await device.updates()).failed).toMatchObject({ code: 'plan-untrusted' });
		await handOver(`${version}-`);
		await untilApplied();
		expect((await device.updates()).failed).toMatchObject({ code: 'plan-invalid' });
		const greedy = device.next();
		await device.publish([await device.stub(before, 'good'), await device.stub(greedy, 'instead-of-another')]);
		await handOver(greedy);
		await untilApplied();
		expect((await device.updates()).failed).toMatchObject({
			code: 'update-not-alone',
			message: expect.stringContaining('apt would remove iproute2'),
		});
		await device.publish([await device.stub(before, 'good'), await device.stub(version, 'good')]);
		await handOver('9.9.9');
		await untilApplied();
		expect((await device.updates()).failed).toMatchObject({ code: 'update-failed' });
		const lock = device.machine.run('sleep 8 3>>/var/lib/dpkg/lock-frontend');
		await handOver(version);
		await device.machine.must('sleep 3');
		await handOver(null);
		await lock;
		await device.machine.must('while systemctl is-active idv-agent-update | grep -q activating; do sleep 0.2; done');
		expect(await device.installed()).toBe(`${before} installed`);
		expect((await device.updates()).failed).toBeNull();
		await device.expectWhole();
	});
});
