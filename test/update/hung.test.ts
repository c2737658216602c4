/** A neighbour whose script hangs in the same run of apt, on a real Debian: takes more than a quarter of an hour, and is left out in CI. */
import { expect, test } from 'vitest';
import { type Device, IS_SHORT, useDevice } from './device.ts';

let device: Device;
let before = '';
useDevice((made, version) => {
	[device, before] = [made, version];
});

test.skipIf(IS_SHORT)(
	'a version that dies while apt hangs gives way to the kept program, and is taken back at the next boot',
	async () => {
		const version = device.next();
		await device.publish([
			await device.stub(before, 'good'),
			await device.stub(version, 'crashing'),
			device.neighbour('sleep infinity'),
		]);
		const { machine } = device;
		const upgrading = machine.run(
			'apt-get update && nohup apt-get install --yes idv-agent neighbour >/dev/null 2>&1 &',
		);
		for (let minute = 0; minute < 17; minute += 1) await machine.run('sleep 60');
		expect(await machine.must('cat /run/systemd/system/idv-agent.service')).toContain(
			'idv-agent-updates idv-agent run',
		);
		await device.untilOnline();
		expect(await device.installed()).toMatch(new RegExp(`^${version} `));
		await machine.cutPower();
		await upgrading;
		await machine.boot();
		await device.untilJudged();
		expect(await device.installed()).toBe(`${before} installed`);
		expect((await device.updates()).takenBack.at(-1)).toMatchObject({ version, fault: 'crashes' });
		await machine.run('dpkg --remove --force-remove-reinstreq --force-all neighbour');
		await device.expectWhole();
	},
	1_800_000,
);

test.skipIf(IS_SHORT)(
	'a neighbour whose script hangs holds up no new version that the power was cut under [F1931]',
	async () => {
		const version = device.next();
		const { machine } = device;
		await device.publish([await device.stub(version, 'good'), device.neighbour('sleep infinity')]);
		const upgrading = machine.run('apt-get update && apt-get install --yes idv-agent neighbour');
		await machine.must('until dpkg --status neighbour | grep --quiet "^Status: .* unpacked"; do :; done');
		await machine.must('sync --file-system /');
		await machine.cutPower();
		await upgrading;
		await machine.boot();
		await device.untilJudged();
		expect(await device.installed()).toBe(`${version} installed`);
		await machine.run('dpkg --remove --force-remove-reinstreq --force-all neighbour');
		await device.expectWhole();
	},
);

test.skipIf(IS_SHORT)(
	'a version whose script waits for its agent without end is taken back within a quarter of an hour [F1937]',
	async () => {
		const version = device.next();
		const { machine } = device;
		await device.publish([await device.stub(before, 'good'), await device.stub(version, 'never-starts')]);
		// As a person's Ctrl-C.
		await machine.run('apt-get update && timeout 60 apt-get install --yes idv-agent');
		for (let minute = 0; minute < 13; minute += 1) await machine.run('sleep 60');
		await device.untilJudged();
		expect(await device.installed()).toBe(`${before} installed`);
		expect((await device.updates()).takenBack.at(-1)).toMatchObject({
			version,
			fault: expect.stringMatching(/^(?:unfinished|not-ready)$/),
		});
		await device.expectWhole();
	},
	1_800_000,
);
