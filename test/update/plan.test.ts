/** Versions that a signed plan orders, on a real Debian with apt, dpkg and systemd. */
import { describe, expect, test } from 'vitest';
import { createSigner } from '../fixtures/plans.ts';
import { type Device, IS_SHORT, useDevice } from './device.ts';

let device: Device;
let before = '';
useDevice((made, version) => {
	[device, before] = [made, version];
});

describe('an update by a signed plan', () => {
	const signer = createSigner();
	let revision = 0;
	/** As the agent hands it over. */
	async function handOver(version: string | null, isSigned = true): Promise<void> {
		revision += 1;
		const rings = [{ percent: 100, ...(version !== null && { agent: { version } }) }];
		const defaults = { rollout: { to: version === null ? { workflowId: 'document-check' } : {}, rings } };
		const plan = { format: 'idv-fleet-plan/2', revision, spreadSeconds: 0, defaults };
		await device.put('/var/lib/idv-agent/update-plan.new', JSON.stringify(isSigned ? signer.sign(plan) : plan));
		await device.machine.must('mv /var/lib/idv-agent/update-plan.new /var/lib/idv-agent/update-plan.json');
	}

	const untilApplied = () =>
		device.machine.must(
			'until systemctl show idv-agent-update --property=ActiveState | grep -q activating; do sleep 0.1; done; while systemctl is-active idv-agent-update | grep -q activating; do sleep 0.2; done',
		);

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

	const sources = [
		['that the installed version came from', { source: null }],
		['that the settings name', { source: '/etc/apt/sources.list.d/site.list' }],
	] as const;
	test.each(IS_SHORT ? sources.slice(0, 1) : sources)(
		'reads the repository %s alone, and is stopped by no dead mirror of others',
		async (_what, { source }) => {
			const version = device.next();
			const settings = { update: { enabled: true, source }, fleet: { publicKeys: [signer.publicKey] } };
			await device.put('/etc/idv-agent/conf.d/20-plan.json', JSON.stringify(settings));
			await device.publish([await device.stub(before, 'good'), await device.stub(version, 'good')]);
			await device.put('/etc/apt/sources.list.d/vendor.list', 'deb [trusted=yes] http://127.0.0.1:9/gone ./\n');
			await handOver(version);
			await untilApplied();
			await device.untilJudged();
			await device.machine.must('rm /etc/apt/sources.list.d/vendor.list');
			expect(await device.installed()).toBe(`${version} installed`);
			await device.expectWhole();
		},
	);

	test('is carried out also after the plan has changed twenty times in a moment: no change after them is lost', async () => {
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
	});

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
