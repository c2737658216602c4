/**
 * Updates on a real Debian: systemd, apt, dpkg and a signed repository, good ones and those that do not begin. Packages are small ones around
 * the real program.
 */
import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, readdirSync, readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { describe, expect, inject, test } from 'vitest';
import { assembleRelease } from '../../scripts/release.ts';
import { type Device, IS_SHORT, JUDGE_SECONDS, useDevice } from './device.ts';

let device: Device;
let before = '';
useDevice((made, version) => {
	[device, before] = [made, version];
});

describe('an update by apt', () => {
	test('that works is kept, enabled as before whatever its scripts do, and nothing of the trial is left [F1935]', async () => {
		const version = device.next();
		await device.publish([await device.stub(before, 'good'), await device.stub(version, 'masking')]);
		expect(await device.upgrade()).toMatchObject({ status: 0 });
		await device.untilJudged();
		expect(await device.installed()).toBe(`${version} installed`);
		expect((await device.machine.must('ls /var/lib/idv-agent-update')).trim()).toBe('outcomes.json');
		expect((await device.updates()).takenBack).toEqual([]);
		const cycles = await device.machine.run(
			'systemd-analyze verify --man=no multi-user.target | grep "ordering cycle"',
		);
		expect(cycles.text).toBe('');
		// Root's program answers.
		const { text } = await device.machine.run('idv-agent update forget 9.9.9');
		expect(text).toContain('Version 9.9.9 was not taken back on this device');
		await device.expectWhole();
	});

	test('from an unsigned repository, or of a version that it does not have, changes nothing', async () => {
		const version = device.next();
		await device.publish([await device.stub(version, 'good')], 'unsigned');
		expect((await device.upgrade()).status).not.toBe(0);
		expect(await device.installed()).toBe(`${before} installed`);
		await device.publish([await device.stub(before, 'good')]);
		expect((await device.machine.run('apt-get update && apt-get install --yes idv-agent=9.9.9')).status).not.toBe(0);
		await device.expectWhole();
	});

	test('that is announced for a time to come, as to a device whose clock is years behind, is refused with the reason', async () => {
		const version = device.next();
		await device.publish([await device.stub(version, 'good')], 'not-yet');
		const { status, text } = await device.upgrade();
		expect(text).toMatch(/Release file .* is not valid yet/);
		expect([status, await device.installed()]).toEqual([100, `${before} installed`]);
		await device.publish([await device.stub(before, 'good')]);
		await device.machine.must('apt-get update');
		await device.expectWhole();
	});

	test.skipIf(IS_SHORT)(
		'whose device loses its power before there is a judge is finished at the next boot',
		async () => {
			await device.publish([await device.stub(before, 'good'), await device.stub(device.next(), 'good')]);
			const upgrading = device.upgrade();
			await device.machine.must('until dpkg --status idv-agent | grep --quiet half-configured; do :; done');
			await device.machine.cutPower();
			await upgrading;
			await device.machine.boot();
			await device.untilJudged();
			await device.machine.must(
				`timeout 60 sh -c 'until dpkg --status idv-agent | grep "ok installed"; do sleep 0.2; done'`,
			);
			expect(await device.installed()).toBe(`${before} installed`);
			await device.expectWhole();
		},
	);

	test('for which the disk has no room does not begin', async () => {
		const version = device.next();
		const file = await device.stub(version, 'good');
		await device.publish([file]);
		await device.machine.must('fallocate --length $(($(stat --file-system --format="%f * %S" /) - 20000000)) /filling');
		const { status: code, text } = await device.machine.run(`dpkg --install /srv/site/${file.split('/').at(-1)}`);
		await device.machine.must('rm /filling');
		expect(text).toContain('[disk-low]');
		expect(code).not.toBe(0);
		expect(await device.installed()).toBe(`${before} installed`);
		await device.untilJudged();
		await device.expectWhole();
	});

	test.skipIf(IS_SHORT)('whose agent a person stops meanwhile is judged when that is started again', async () => {
		const version = device.next();
		await device.publish([await device.stub(before, 'good'), await device.stub(version, 'good')]);
		expect(await device.upgrade()).toMatchObject({ status: 0 });
		await device.untilOnline();
		await device.machine.must(`sleep 5; systemctl stop idv-agent; sleep ${JUDGE_SECONDS + 15}`);
		expect(await device.installed()).toBe(`${version} installed`);
		expect((await device.machine.run('systemctl is-active idv-agent')).text.trim()).toBe('inactive');
		await device.machine.must('systemctl start idv-agent');
		await device.untilJudged();
		expect((await device.updates()).takenBack.map(({ version: one }) => one)).not.toContain(version);
		await device.expectWhole();
	});

	test.skipIf(IS_SHORT)(
		'while the service is away is judged when it is back, and is not taken back for it',
		async () => {
			const version = device.next();
			await device.publish([await device.stub(before, 'good'), await device.stub(version, 'good')]);
			await device.stopService();
			await device.machine.must(
				`until idv-agent status --json | grep --quiet '"state": *"offline"'; do sleep 0.2; done`,
			);
			expect(await device.upgrade()).toMatchObject({ status: 0 });
			await device.machine.must(`sleep ${JUDGE_SECONDS + 5}`);
			expect(await device.installed()).toBe(`${version} installed`);
			await device.startService();
			await device.untilJudged();
			expect((await device.updates()).takenBack.map(({ version: one }) => one)).not.toContain(version);
		},
	);
});

test.skipIf(IS_SHORT)('the repository of docs/devices.md works as it is pasted', async () => {
	const text = readFileSync(join(import.meta.dirname, '../../docs/devices.md'), 'utf8');
	const [, block = ''] = /### An apt repository of your own\n[\s\S]*?```sh\n([\s\S]*?)```/.exec(text) ?? [];
	const [atTheSite = '', onTheDevice = ''] = block.split('# on each device\n');
	const site = join(inject('site').directory, 'pasted');
	mkdirSync(join(site, 'build/release'), { recursive: true });
	mkdirSync(join(site, 'gnupg'), { mode: 0o700 });
	const version = device.next();
	const file = await device.stub(version, 'good');
	cpSync(file, join(site, 'build/release', basename(file)));
	// A person would be asked for a passphrase.
	const asked = `gpg() { command gpg --batch --pinentry-mode loopback --passphrase '' "$@"; }`;
	const env = { ...process.env, GNUPGHOME: join(site, 'gnupg') };
	execFileSync('bash', ['-ec', `${asked}\n${atTheSite}`], { cwd: site, env, stdio: 'pipe' });
	for (const name of readdirSync(join(site, 'repo')))
		await device.put(`/srv/pasted/${name}`, readFileSync(join(site, 'repo', name)));
	await device.put('/root/kiosks.asc', readFileSync(join(site, 'kiosks.asc')));
	const pasted = onTheDevice.replace('https://apt.example.com/repo', 'file:/srv/pasted');
	await device.put('/root/pasted.sh', `set -e\ncd /root\nsudo() { "$@"; }\n${pasted}`);
	await device.machine.must('bash /root/pasted.sh', 'y\n');
	await device.untilJudged();
	expect(await device.installed()).toBe(`${version} installed`);
	await device.machine.must('rm /etc/apt/sources.list.d/kiosks.list');
	await device.expectWhole();
});

test.skipIf(IS_SHORT)('apt takes what a release is put together from, once a site has signed it', async () => {
	const { directory, real } = inject('site');
	const outDir = join(directory, 'release');
	const root = join(import.meta.dirname, '../..');
	await assembleRelease({ root, version: '0.2.0', packages: [real], epoch: 1_780_000_000, outDir });
	device.repository.sign(outDir);
	for (const name of readdirSync(outDir)) await device.put(`/srv/release/${name}`, readFileSync(join(outDir, name)));
	const list = '/etc/apt/sources.list.d/release.list';
	await device.put(list, 'deb [signed-by=/etc/apt/keyrings/site.gpg] file:/srv/release ./\n');
	await device.machine.must('apt-get update -o APT::Update::Error-Mode=any');
	await device.machine.must('apt-get install --yes --download-only --allow-downgrades idv-agent=0.2.0');
	await device.machine.must(`rm -r ${list} /srv/release && apt-get update`);
});
