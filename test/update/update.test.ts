/**
 * Updates on a real Debian: systemd, apt, dpkg and a signed repository. Small packages around the real program are good or bad in
 * one way each.
 */
import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, readdirSync, readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, inject, test } from 'vitest';
import { assembleRelease } from '../../scripts/release.ts';
import { createSigner } from '../fixtures/plans.ts';
import { createDevice, type Device, JUDGE_SECONDS } from './device.ts';
import type { Behaviour } from './packages.ts';

/** For CI: what takes long is left out. */
const IS_SHORT = process.env['UPDATE'] === 'short';

let device: Device;
beforeAll(async () => {
	device = await createDevice(inject('site'));
});
afterAll(async () => device?.destroy());

let before = '';
beforeEach(async () => {
	before = (await device.installed()).split(' ')[0] ?? '';
});

describe('an update by apt', () => {
	test('that works is kept, and nothing of the trial is left', async () => {
		const version = device.next();
		await device.publish([await device.stub(before, 'good'), await device.stub(version, 'good')]);
		expect(await device.upgrade()).toMatchObject({ status: 0 });
		await device.untilJudged();
		expect(await device.installed()).toBe(`${version} installed`);
		expect((await device.machine.must('ls /var/lib/idv-agent-update')).trim()).toBe('outcomes.json');
		expect((await device.updates()).takenBack).toEqual([]);
		await device.expectWhole();
	});

	const bad: [Behaviour, string][] = [
		['crashing', 'crashes'],
		['silent', 'not-ready'],
		['eats-memory', 'crashes'],
		['never-online', 'not-online'],
		['failing-script', 'unfinished'],
		['without-unit', 'not-ready'],
	];
	const quick: Behaviour[] = ['crashing', 'failing-script'];
	test.each(bad.filter(([behaviour]) => !IS_SHORT || quick.includes(behaviour)))(
		'that is %s is taken back, remembered, and not installed again',
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

	test('from an unsigned repository, or of a version that it does not have, changes nothing', async () => {
		const version = device.next();
		await device.publish([await device.stub(version, 'good')], { isSigned: false });
		expect((await device.upgrade()).status).not.toBe(0);
		expect(await device.installed()).toBe(`${before} installed`);
		await device.publish([await device.stub(before, 'good')]);
		expect((await device.machine.run('apt-get update && apt-get install --yes idv-agent=9.9.9')).status).not.toBe(0);
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

	test('that is announced for a time to come, as to a device whose clock is years behind, is refused with the reason', async () => {
		const version = device.next();
		await device.publish([await device.stub(version, 'good')], { date: new Date('2070-01-01') });
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

	test('installs nothing that is unsigned, that the repository does not have, or that was withdrawn in time', async () => {
		const version = device.next();
		await device.publish([await device.stub(before, 'good'), await device.stub(version, 'good')]);
		await handOver(version, false);
		await untilApplied();
		expect((await device.updates()).failed).toMatchObject({ code: 'plan-untrusted' });
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
