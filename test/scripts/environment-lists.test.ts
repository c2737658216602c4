import { spawnSync } from 'node:child_process';
import { globSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
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

test('a script of the package stops an update for want of room, and none that goes back', () => {
	const prerm = join(ROOT, 'scripts/debian/prerm');
	const status = (going: string) => {
		const env = { PATH: '/usr/bin:/bin', IDV_AGENT_GOING_BACK: going };
		return spawnSync('sh', [prerm, 'failed-upgrade', '0.3.0'], { env }).status;
	};
	expect([status(''), status('1')]).toEqual([1, 0]);
	expect(readFileSync(prerm, 'utf8')).toContain(`[ "$status" -ne ${EXIT.io} ] || exit 1`);
});

test('a credential that is gone or unreadable is offered no more, and a purge leaves none, nor a file beside it [F1956]', () => {
	const root = mkdtempSync(join(tmpdir(), 'credentials-'));
	onTestFinished(() => rmSync(root, { recursive: true }));
	for (const path of ['bin', 'etc/credstore.encrypted', 'run']) mkdirSync(join(root, path), { recursive: true });
	// No other program: a purge knows more of them, which must not touch this machine.
	for (const name of ['cp', 'mkdir', 'rm']) symlinkSync(join('/bin', name), join(root, 'bin', name));
	writeFileSync(join(root, 'bin/systemd-creds'), '#!/bin/sh\nread -r text <"$3"; [ "$text" = good ]\n', {
		mode: 0o755,
	});
	const run = (script: string, ...args: string[]) => {
		const text = readFileSync(join(ROOT, script), 'utf8').replaceAll(
			/(?<![\w$}])\/(?=(?:etc|run|usr|var)\/)/g,
			`${root}/`,
		);
		const { status, stderr } = spawnSync('/bin/sh', ['-c', text, script, ...args], {
			env: { PATH: join(root, 'bin') },
		});
		expect([status, String(stderr)]).toEqual([0, '']);
	};
	const left = (pattern: string) => globSync(pattern, { cwd: root }).sort();
	const stored = (name: string) => join(root, 'etc/credstore.encrypted', name);
	const unit = readFileSync(join(ROOT, 'systemd/idv-agent.service'), 'utf8');
	const pairs = [...unit.matchAll(/^LoadCredentialEncrypted=(.+):(.+)$/gm)];
	const names = pairs.map(([, name = '']) => name);
	expect(names).toEqual(['idv-agent.api-key', 'idv-agent.connection']);
	for (const name of names) writeFileSync(stored(name), 'good\n');
	run('systemd/check-credentials');
	expect(left('run/credstore.encrypted/*')).toEqual(pairs.map(([, , offered]) => `run/credstore.encrypted/${offered}`));

	rmSync(stored('idv-agent.api-key'));
	writeFileSync(stored('idv-agent.connection'), 'of another machine\n');
	run('systemd/check-credentials');
	expect(left('run/credstore.encrypted/*')).toEqual([]);
	expect(readFileSync(join(root, 'run/credstore/idv-agent.undecryptable'), 'utf8')).toBe('idv-agent.connection\n');

	for (const name of names) for (const end of ['', '.new']) writeFileSync(stored(name + end), 'good\n');
	run('systemd/check-credentials');
	run('scripts/debian/postrm', 'purge');
	expect(left('**/idv-agent*')).toEqual([]);
});
