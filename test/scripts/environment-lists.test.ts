import { spawnSync } from 'node:child_process';
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { EXIT } from '../../src/base/errors.ts';

const ROOT = join(import.meta.dirname, '../..');

test('every unit removes the same variables that change how Node runs, also the one that the program writes itself', () => {
	const units = globSync('systemd/**/*.service', { cwd: ROOT });
	const removed = [...units, 'src/updates/keep.edge.ts'].map((path) => [
		path,
		/UnsetEnvironment=([A-Z0-9_ ]+)/.exec(readFileSync(join(ROOT, path), 'utf8'))?.[1]?.trim(),
	]);
	const [, wanted] = removed.find(([path]) => path === 'systemd/idv-agent.service') ?? [];
	expect(units.length).toBeGreaterThan(7);
	expect(wanted).toContain('SSL_CERT_FILE');
	expect(removed.filter(([, names]) => names !== wanted)).toEqual([]);
});

test.each([
	['idv-agent.service', `RestartPreventExitStatus=${EXIT.configuration}`],
	['idv-agent.service', 'Type=notify'],
	['idv-agent.service', 'WatchdogSec=60'],
	['idv-agent.service', 'Restart=always'],
	['idv-agent.service', 'StateDirectoryMode=0700'],
	['idv-agent.socket', 'SocketMode=0660'],
	['idv-agent-admin.socket', 'SocketMode=0660'],
	[
		'idv-agent-admin.socket',
		'ExecStartPost=/bin/chown --no-dereference idv-agent:idv-agent-admin /run/idv-agent/admin.sock',
	],
	['tmpfiles.conf', 'd /var/lib/idv-agent 0700 idv-agent idv-agent -'],
	['tmpfiles.conf', 'd /run/credstore 0700 root root -'],
])('%s says %s: the program and the manual rely on it', (name, line) => {
	expect(readFileSync(join(ROOT, 'systemd', name), 'utf8').split('\n')).toContain(line);
});

test.each([
	['install ok half-configured', 0],
	['install ok unpacked', 0],
	['install ok installed', 1],
	['deinstall ok config-files', 1],
])('at a boot an installation that is left as "%s" is finished: %i', (status, wanted) => {
	const unit = readFileSync(join(ROOT, 'systemd/updates/idv-agent-finish.service'), 'utf8');
	const [, command = ''] = /^ExecCondition=\/bin\/sh -c '(.*)'$/m.exec(unit) ?? [];
	const dpkg = `dpkg() { printf 'Package: idv-agent\\nStatus: ${status}\\n'; }; ${command}`;
	expect(spawnSync('/bin/sh', ['-c', dpkg]).status).toBe(wanted);
});

test('a script of the package stops an update for want of room, and none that goes back', () => {
	const prerm = join(ROOT, 'scripts/debian/prerm');
	const status = (going: string) => {
		const env = { PATH: '/usr/bin:/bin', IDV_AGENT_GOING_BACK: going };
		return spawnSync('sh', [prerm, 'failed-upgrade', '0.3.0'], { env }).status;
	};
	expect([status(''), status('1')]).toEqual([1, 0]);
	expect(readFileSync(prerm, 'utf8')).toContain(`[ "$status" -ne ${EXIT.io} ] || exit 1`);
});
