import { describe, expect, test } from 'vitest';
import { aptWords, packageIn, sourceOf, unitIn, whyNotInstalled } from '../../src/updates/apt.ts';
import { installVersion } from '../../src/updates/system.edge.ts';

const HEAD = 'NOTE: This is only a simulation!\nReading package lists...\nBuilding dependency tree...\n';
const OURS = 'Inst idv-agent [0.2.0] (0.3.0 site:1 [amd64])\nConf idv-agent (0.3.0 site:1 [amd64])\n';

describe('an installation that apt has simulated', () => {
	test.each<[string, string, string | null]>([
		['this version alone is begun', OURS, null],
		[
			'this version with a package of this project is begun',
			`Inst idv-agent-updates (0.3.0 site:1 [amd64])\n${OURS}`,
			null,
		],
		['one that removes a package is not begun', `Remv kiosk-app [2.1]\n${OURS}`, 'apt would remove kiosk-app'],
		['one that purges this program is not begun', 'Purg idv-agent [0.2.0]\n', 'apt would remove idv-agent'],
		[
			'one that brings a package of others is not begun',
			`Inst libc6 [2.36-9] (2.40-1 debian:1 [amd64]) []\n${OURS}Conf libc6 (2.40-1 debian:1 [amd64])\n`,
			'apt would install or change libc6 as well',
		],
		[
			'one that configures a package of others is not begun',
			`${OURS}Conf idv-agentx (1 site:1 [amd64])\n`,
			'apt would install or change idv-agentx as well',
		],
		['another version is not begun', OURS.replaceAll('0.3.0', '0.3.00'), 'apt would not install idv-agent 0.3.0'],
		['one that only configures is not begun', OURS.split('\n')[1] ?? '', 'apt would not install idv-agent 0.3.0'],
		['nothing is not begun', '', 'apt would not install idv-agent 0.3.0'],
	])('%s', (_what, steps, reason) => expect(whyNotInstalled(HEAD + steps, '0.3.0')).toBe(reason));
});

test('no version that apt reads as an operator gets into its words', () => {
	for (const version of ['0.3.0-', '0.3.0+', '0.3.0*', '0.3.0/stable', '', '0.3.0 kiosk-app-'])
		expect(() => aptWords(version, [])).toThrow(/^The version to install must /);
	const { installation } = aptWords('0.3.0', []);
	expect(installation).toEqual(expect.arrayContaining(['--no-remove', 'idv-agent=0.3.0']));
	expect(installation.join(' ')).toContain('-o APT::Keep-Downloaded-Packages=0');
});

describe('the file of sources that counts', () => {
	const policy = (installed: string, offered: string) =>
		`idv-agent:\n  Installed: 0.2.0\n  Candidate: 0.3.0\n  Version table:\n     0.3.0 500\n        500 ${offered} ./ Packages\n *** 0.2.0 100\n${installed}        100 /var/lib/dpkg/status\n`;
	const repositories =
		'/etc/apt/sources.list:1 http://deb.debian.org/debian/\n/etc/apt/sources.list.d/kiosks.list:3 https://apt.example.com/repo/\n/etc/apt/sources.list.d/new.sources:1 https://new.example.com/\n';
	test.each<[string, string, string, string | null]>([
		[
			'names the repository of the installed version',
			'        500 https://apt.example.com/repo ./ Packages\n',
			'https://new.example.com',
			'/etc/apt/sources.list.d/kiosks.list',
		],
		[
			'names one that has another version, where the installed one is in none any more',
			'',
			'https://new.example.com',
			'/etc/apt/sources.list.d/new.sources',
		],
		['is none where no repository has this program', '', 'https://elsewhere.example.com', null],
	])('%s', (_what, installed, offered, expected) =>
		expect(sourceOf(policy(installed, offered), repositories)).toBe(expected),
	);
	test('is none where apt knows no version', () => expect(sourceOf('', repositories)).toBeNull());
});

test('an installation may take half an hour, and as long as it waits for the lock of another apt besides [F1836]', async () => {
	const asked: (readonly [words: string, deadlineMs: number])[] = [];
	await installVersion('0.3.0', 300, { source: '/etc/apt/kiosks.list' }, async (words, deadlineMs) => {
		asked.push([words.join(' '), deadlineMs]);
		return { status: 0, text: OURS };
	});
	expect(asked.map(([, ms]) => ms)).toEqual([1_800_000, 1_800_000, 2_100_000]);
	for (const [words] of asked) expect(words).toContain('Dir::Etc::sourcelist=/etc/apt/kiosks.list');
	for (const [words] of [asked[0] ?? [''], asked[2] ?? ['']]) expect(words).toContain('DPkg::Lock::Timeout=300');
});

test.each<[string, string, string | null]>([
	['is whole', 'installed|ok', 'whole'],
	['is whole with a trigger to come', 'triggers-pending|ok', 'whole'],
	['is whole with a trigger that it waits for', 'triggers-awaited|ok', 'whole'],
	['was unpacked', 'unpacked|ok', 'unconfigured'],
	['has a script that failed', 'half-configured|reinstreq', 'unconfigured'],
	['was cut off while it was unpacked', 'half-installed|reinstreq', 'half'],
	['is flagged', 'unpacked|reinstreq', 'half'],
	['was removed', 'config-files|ok', null],
	['was never there', '', null],
])('a package that %s is told as that, with its size in bytes [F1836]', (_what, told, state) => {
	const expected = state && { version: '0.3.0-1', bytes: 2_097_152, state };
	expect(packageIn(told && `${told}|0.3.0-1|2048\n`)).toEqual(expected);
});

test.each<[string, string, ReturnType<typeof unitIn>]>([
	['active', 'loaded', { isReady: true, isStopped: false, isEnabled: true, restarts: 3, runId: 'run' }],
	['active', 'not-found', { isReady: false, isStopped: false, isEnabled: true, restarts: 3, runId: 'run' }],
	['activating', 'loaded', { isReady: false, isStopped: false, isEnabled: true, restarts: 3, runId: 'run' }],
	['failed', 'loaded', { isReady: false, isStopped: false, isEnabled: true, restarts: 3, runId: 'run' }],
	['inactive', 'loaded', { isReady: false, isStopped: true, isEnabled: true, restarts: 3, runId: 'run' }],
])('a unit that is %s and %s is looked at by its own words [F1836]', (active, load, expected) => {
	expect(
		unitIn(`LoadState=${load}\nActiveState=${active}\nUnitFileState=enabled\nNRestarts=3\nInvocationID=run\n`),
	).toEqual(expected);
	expect(
		unitIn(`LoadState=${load}\nActiveState=${active}\nUnitFileState=enabled\nNRestarts=\nInvocationID=\n`),
	).toEqual({
		...expected,
		restarts: 0,
		runId: null,
	});
	expect(unitIn('UnitFileState=disabled\n').isEnabled).toBe(false);
});
