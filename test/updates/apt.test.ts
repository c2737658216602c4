import { describe, expect, test } from 'vitest';
import { aptWords, whyNotInstalled } from '../../src/updates/apt.ts';

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
	expect(aptWords('0.3.0', []).installation).toEqual(expect.arrayContaining(['--no-remove', 'idv-agent=0.3.0']));
});
