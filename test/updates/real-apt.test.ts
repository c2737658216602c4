import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { NEEDED } from '../../scripts/updates-package.ts';
import { installVersion } from '../../src/updates/system.edge.ts';

const hasApt = process.platform === 'linux' && spawnSync('apt-get', ['--version']).status === 0;

/** A root directory of apt's own, with packages that are installed and packages of a repository; nothing of this machine's. */
function givenApt(installed: readonly string[], offered: readonly string[]) {
	const root = mkdtempSync(join(tmpdir(), 'apt-'));
	onTestFinished(() => rmSync(root, { recursive: true, force: true }));
	for (const directory of [
		'etc/preferences.d',
		'etc/sources.list.d',
		'state/lists/partial',
		'cache/archives/partial',
		'repository',
		'parts',
	])
		mkdirSync(join(root, directory), { recursive: true });
	const stanza = (text: string, more: string) => {
		const [name, version, ...fields] = text.split(' | ');
		const lines = [`Package: ${name}`, `Version: ${version}`, ...fields, 'Architecture: all', 'Maintainer: a <a@b.c>'];
		return `${[...lines, more, 'Description: none'].join('\n')}\n\n`;
	};
	writeFileSync(join(root, 'status'), installed.map((text) => stanza(text, 'Status: install ok installed')).join(''));
	const file = (text: string) =>
		`Filename: ./${text.split(' | ').slice(0, 2).join('_')}.deb\nSize: 1\nSHA256: ${'0'.repeat(64)}`;
	writeFileSync(join(root, 'repository/Packages'), offered.map((text) => stanza(text, file(text))).join(''));
	writeFileSync(join(root, 'etc/sources.list'), `deb [trusted=yes] file:${root}/repository ./\n`);
	const options = [
		...[`Dir=${root}`, `Dir::Etc=${root}/etc`, `Dir::Etc::parts=${root}/parts`, `Dir::State=${root}/state`],
		...[`Dir::State::status=${root}/status`, `Dir::Cache=${root}/cache`, `APT::Sandbox::User=`],
		...['APT::Architecture=amd64', 'APT::Architectures=amd64', 'Dir::Bin::methods=/usr/lib/apt/methods'],
	].flatMap((option) => ['-o', option]);
	const env = { PATH: '/usr/sbin:/usr/bin:/sbin:/bin', LC_ALL: 'C.UTF-8', APT_CONFIG: '/dev/null' };
	const asked: (string | undefined)[] = [];
	const ask = async (words: readonly string[], _deadlineMs = 0, program: string = 'apt-get') => {
		const command = words.find((word) => /^[-a-z]+$/.test(word));
		if (command !== 'policy' && command !== 'indextargets') asked.push(command);
		const { status, stdout, stderr } = spawnSync(program, [...options, ...words], { env, encoding: 'utf8' });
		return { status: status ?? 70, text: `${stdout}${stderr}` };
	};
	return {
		/** The commands of apt, in order. */
		asked,
		root,
		install: (version: string, source: string | null = null) =>
			installVersion(version, 0, { source, words: ['--only-upgrade', '--download-only'] }, ask),
		async simulate(word: string): Promise<string> {
			await ask(['update']);
			return (await ask(['--simulate', 'install', '--yes', word])).text;
		},
	};
}

describe.skipIf(!hasApt)('the real apt (needs apt-get)', () => {
	const INSTALLED = ['idv-agent | 0.2.0', 'kiosk-app | 2.1'];

	test('is asked for this version with what it needs of this project', async () => {
		const apt = givenApt(INSTALLED, [
			'idv-agent | 0.3.0',
			'idv-agent | 0.4.0 | Depends: idv-agent-updates',
			'idv-agent-updates | 0.4.0',
		]);
		for (const version of ['0.3.0', '0.4.0']) await apt.install(version);
		expect(apt.asked).toEqual(['update', '--simulate', 'install', 'update', '--simulate', 'install']);
	});

	test('leaves idv-agent-updates as it is, unless the new version breaks it and a newer one is there [F549]', async () => {
		const installed = [...INSTALLED, `idv-agent-updates | 0.2.0 | Depends: ${NEEDED}`];
		const breaking = 'idv-agent | 0.4.0 | Breaks: idv-agent-updates (<< 0.4.0~)';
		const newer = `idv-agent-updates | 0.4.0 | Depends: ${NEEDED}`;
		const alone = givenApt(installed, ['idv-agent | 0.3.0', newer]);
		await alone.install('0.3.0');
		expect(await alone.simulate('idv-agent=0.3.0')).not.toMatch(/^\w+ idv-agent-updates/m);
		const both = givenApt(installed, [breaking, newer]);
		await both.install('0.4.0');
		expect(await both.simulate('idv-agent=0.4.0')).toContain('Inst idv-agent-updates [0.2.0] (0.4.0 ');
		await expect(givenApt(installed, [breaking]).install('0.4.0')).rejects.toThrow(
			'apt would remove idv-agent-updates',
		);
	});

	test.each([
		['install or change libother as well', 'Depends: libother'],
		['remove kiosk-app', 'Conflicts: kiosk-app'],
	])('is not asked to %s for a new version: the order fails with the reason [F440]', async (what, relation) => {
		const apt = givenApt(INSTALLED, [`idv-agent | 0.3.0 | ${relation}`, 'libother | 1']);
		await expect(apt.install('0.3.0')).rejects.toMatchObject({
			failure: {
				code: 'update-not-alone',
				message: `Version 0.3.0 was not installed, because apt would ${what}.`,
				remedy: expect.stringContaining('apt full-upgrade'),
			},
		});
		expect(apt.asked).toEqual(['update', '--simulate']);
	});

	test.each([
		['the repository that the settings name', true],
		['the repository of the installed version', false],
	])('reads %s and no other: a mirror of others that is away stops no order [F738]', async (_what, isNamed) => {
		const apt = givenApt(INSTALLED, ['idv-agent | 0.3.0', 'idv-agent | 0.2.0']);
		const named = join(apt.root, 'etc/sources.list');
		// A first look at all of them, and what it has found.
		expect(await apt.simulate('idv-agent=0.3.0')).toContain('Inst idv-agent');
		writeFileSync(join(apt.root, 'etc/sources.list.d/a.list'), 'deb [trusted=yes] http://127.0.0.1:9/gone ./\n');
		writeFileSync(
			join(apt.root, 'etc/sources.list.d/b.sources'),
			'Types: deb\nURIs: file:/nowhere\nSuites: ./\nTrusted: yes\n',
		);
		const { text } = await apt.install('0.3.0', isNamed ? named : null);
		expect(text).not.toContain('gone');
		expect(apt.asked).toEqual(['update', '--simulate', 'update', '--simulate', 'install']);
	});

	test('takes a sign at the end of a version for an operator, which is why such versions are refused', async () => {
		const apt = givenApt(INSTALLED, ['idv-agent | 0.3.0']);
		expect(await apt.simulate('idv-agent=0.3.0-')).toContain('Remv idv-agent');
		expect(await apt.simulate('idv-agent=0.3.0+')).toContain('Inst idv-agent [0.2.0] (0.3.0 ');
		expect(await apt.simulate('idv-agent=0.3*')).toContain('Inst idv-agent [0.2.0] (0.3.0 ');
	});
});
