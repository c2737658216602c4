/** Which repositories an ordered version is read from, on a real Debian with apt, dpkg and systemd. */
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

	const sources = [
		['that the installed version came from', { source: null }],
		['that the settings name', { source: '/etc/apt/sources.list.d/site.list' }],
	] as const;
	test.skipIf(IS_SHORT).each(sources)(
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
});
