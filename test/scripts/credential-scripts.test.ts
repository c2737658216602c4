/** The scripts that offer encrypted credentials to the unit and remove them, run below a directory of their own. */
import { spawnSync } from 'node:child_process';
import { globSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';

const ROOT = join(import.meta.dirname, '../..');

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
