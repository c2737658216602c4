/** Versions that are bad, each in one way, on a real Debian with apt, dpkg and systemd: the judge takes them back. */
import { describe, expect, test } from 'vitest';
import { type Device, IS_SHORT, JUDGE_SECONDS, useDevice } from './device.ts';
import type { Behaviour } from './packages.ts';

let device: Device;
let before = '';
useDevice((made, version) => {
	[device, before] = [made, version];
});

describe('an update by apt', () => {
	const bad: [Behaviour, string][] = [
		['crashing', 'crashes'],
		['short-lived', 'crashes'],
		['silent', 'not-ready'],
		['eats-memory', 'crashes'],
		['never-online', 'not-online'],
		['failing-script', 'unfinished'],
		['without-unit', 'not-ready'],
	];
	const quick: Behaviour[] = ['failing-script', 'crashing'];
	test.each(bad.filter(([behaviour]) => !IS_SHORT || quick.includes(behaviour)))(
		'that is %s is taken back, remembered, and not installed again [F1932]',
		async (behaviour, fault) => {
			const version = device.next();
			await device.publish([await device.stub(before, 'good'), await device.stub(version, behaviour)]);
			await device.upgrade();
			await device.untilJudged();
			expect(await device.installed()).toBe(`${before} installed`);
			expect((await device.updates()).takenBack.at(-1)).toMatchObject({ version, by: before, fault });
			await device.upgrade();
			expect(await device.installed()).toBe(`${before} installed`);
			await device.expectWhole();
		},
	);

	test.skipIf(IS_SHORT).each([
		['whose program may not be run', 'chmod 644 /root/tree/usr/lib/idv-agent/idv-agent', 'crashes'],
		['whose script fails', 'sed -i "s/^set -e$/exit 3/" /root/tree/DEBIAN/postinst', 'unfinished'],
		[
			'whose unit differs, with the sums of before,',
			'cp /var/lib/dpkg/info/idv-agent.md5sums /root/tree/DEBIAN/ && sed -i "s|^ExecStart=.*|ExecStart=/bin/false|" /root/tree/usr/lib/systemd/system/idv-agent.service',
			'crashes',
		],
	])('of the same version %s is tried as well, and taken back [F1998]', async (_what, change, fault) => {
		const again = `rm -rf /root/tree && dpkg-deb -R /srv/site/idv-agent_${before}_*.deb /root/tree && ${change}`;
		await device.publish([await device.stub(before, 'good')]);
		await device.machine.must(`dpkg --install /srv/site/idv-agent_${before}_*.deb`);
		await device.untilJudged();
		await device.machine.must(`${again} && dpkg-deb --root-owner-group -Zgzip -z1 --build /root/tree /root/again.deb`);
		await device.machine.run('dpkg --install /root/again.deb');
		await device.untilJudged();
		expect((await device.updates()).takenBack.at(-1)).toMatchObject({ version: before, by: before, fault });
		expect(await device.machine.must('idv-agent update show')).toContain('The build from before took its place.');
		await device.expectWhole();
	});

	test.skipIf(IS_SHORT)(
		'that fills the disk is replaced at once, and taken back when there is room [F1999]',
		async () => {
			const version = device.next();
			const { machine } = device;
			await device.publish([await device.stub(before, 'good'), await device.stub(version, 'fills-disk')]);
			await device.upgrade();
			await device.untilOnline();
			await machine.must('rm -f /var/lib/idv-agent/fill');
			await device.untilJudged();
			expect(await device.installed()).toBe(`${before} installed`);
			expect((await device.updates()).takenBack.at(-1)).toMatchObject({ version, by: before });
			await device.expectWhole();
		},
	);

	test.skipIf(IS_SHORT)(
		'that is taken back while apt cannot be kept from it is not installed again, once there is room for that [F1946]',
		async () => {
			const version = device.next();
			const { machine } = device;
			const pins = '/etc/apt/preferences.d';
			await device.publish([await device.stub(before, 'good'), await device.stub(version, 'crashing')]);
			// A file system of its own is full for everyone; of a common one, dpkg and the journal give blocks back all the time.
			await machine.must(
				`mkdir -p ${pins} && mount -t tmpfs -o size=4k none ${pins} && head -c 4096 /dev/zero > ${pins}/full.bin`,
			);
			await device.upgrade();
			await device.untilOnline();
			await machine.must(`umount ${pins}`);
			await device.untilJudged();
			expect((await device.updates()).takenBack.at(-1)).toMatchObject({ version, by: before });
			await device.upgrade();
			expect(await device.installed()).toBe(`${before} installed`);
			await device.expectWhole();
		},
	);

	test.skipIf(IS_SHORT)(
		'whose script leaves dpkg no room is replaced at once, also after a power cut, and taken back when there is room [F1958]',
		async () => {
			const version = device.next();
			const { machine } = device;
			await device.publish([await device.stub(before, 'good'), await device.stub(version, 'filling-script')]);
			await device.upgrade();
			await machine.cutPower();
			await machine.boot();
			await device.untilOnline();
			await machine.must('rm /fill');
			await device.untilJudged();
			expect(await device.installed()).toBe(`${before} installed`);
			expect((await device.updates()).takenBack.at(-1)).toMatchObject({ version, by: before });
			await device.upgrade();
			expect(await device.installed()).toBe(`${before} installed`);
			await device.expectWhole();
		},
	);

	const endless: Behaviour[] = ['never-ends', 'never-starts'];
	test.skipIf(IS_SHORT).each(endless)('that %s is taken back, also after a power cut [F1943]', async (behaviour) => {
		const version = device.next();
		const { machine } = device;
		await device.publish([await device.stub(before, 'good'), await device.stub(version, behaviour)]);
		await machine.run('apt-get update && timeout 60 apt-get install --yes --only-upgrade idv-agent && sync');
		await machine.cutPower();
		await machine.boot();
		await device.untilJudged();
		expect(await device.installed()).toBe(`${before} installed`);
		await device.expectWhole();
	});

	test.skipIf(IS_SHORT)(
		'that crashes is replaced, and the device online, within a minute of its third crash',
		async () => {
			const version = device.next();
			await device.publish([await device.stub(before, 'good'), await device.stub(version, 'crashing')]);
			const since = (await device.machine.must('date +%s')).trim();
			await device.upgrade();
			await device.untilJudged();
			await device.untilOnline();
			const log = await device.machine.must(
				`journalctl --unit=idv-agent --since=@${since} --output=short-unix --no-pager`,
			);
			const at = (line: string | undefined) => Number.parseFloat(line ?? '');
			const third = at(log.split('\n').filter((line) => line.includes('Main process exited'))[2]);
			const online = at(log.split('\n').find((line) => line.includes('"msg":"online"') && at(line) > third));
			console.log(`online ${(online - third).toFixed(1)} s after the third crash`);
			expect(online - third).toBeLessThan(60);
		},
	);

	test.skipIf(IS_SHORT)(
		'that is bad and comes while the service is away is taken back when the service is there',
		async () => {
			const version = device.next();
			await device.publish([await device.stub(before, 'good'), await device.stub(version, 'never-online')]);
			await device.stopService();
			expect(await device.upgrade()).toMatchObject({ status: 0 });
			await device.machine.must(`sleep ${JUDGE_SECONDS + 5}`);
			expect(await device.installed()).toBe(`${version} installed`);
			await device.startService();
			await device.untilJudged();
			expect(await device.installed()).toBe(`${before} installed`);
			expect((await device.updates()).takenBack.at(-1)).toMatchObject({ version, fault: 'not-online' });
			await device.expectWhole();
		},
	);
});
