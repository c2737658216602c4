/** What decides whom the executable trusts: nothing that whoever starts it has in its environment. */
import { execFileSync } from 'node:child_process';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { type Architecture, embed } from '../../scripts/executable.ts';
import { launcherSource, wrapped } from '../../scripts/launcher.ts';
import { fixture } from '../connection/network-peers.ts';

/** Says which authorities and which settings of OpenSSL this process began with. */
const PROGRAM = `
const tls = require('node:tls');
console.log(JSON.stringify({
	extra: tls.getCACertificates('extra').length,
	first: tls.getCACertificates('default').length === tls.getCACertificates('bundled').length,
	names: Object.keys(process.env).filter((name) => /NODE|SSL|CTLOG|RANDFILE/.test(name)),
	pid: process.pid,
	arguments: process.argv.slice(2),
}));`;

test('the executable starts afresh without what Node and OpenSSL read before any code, as the same process [F702]', async () => {
	const outDir = await mkdtemp(join(tmpdir(), 'environment-'));
	onTestFinished(() => rm(outDir, { recursive: true }));
	const work = join(outDir, 'work');
	await mkdir(work);
	await writeFile(join(work, 'launcher.cjs'), launcherSource('a program'));
	await writeFile(join(work, 'program.cjs'), wrapped(PROGRAM));
	const root = resolve(import.meta.dirname, '../..');
	const architecture = process.arch as Architecture;
	await embed({
		root,
		architecture,
		work,
		outDir,
		program: 'launcher.cjs',
		name: 'idv-agent',
		assets: { 'program.cjs': 'program.cjs' },
	});
	const ca = fixture('ca.pem');
	const foreign = {
		...{
			NODE_EXTRA_CA_CERTS: ca,
			NODE_USE_SYSTEM_CA: '1',
			NODE_TLS_REJECT_UNAUTHORIZED: '0',
			NODE_OPTIONS: '--use-openssl-ca',
		},
		...{
			SSL_CERT_FILE: ca,
			SSL_CERT_DIR: '/tmp',
			SSLKEYLOGFILE: join(outDir, 'keys'),
			OPENSSL_CONF: '/nowhere',
			OPENSSL_MODULES: '/tmp',
		},
	};
	const said = JSON.parse(
		`${execFileSync('/bin/sh', ['-c', 'echo "[$$,"; exec "$0" one "two words"', join(work, 'idv-agent')], {
			env: { PATH: '/usr/bin', ...foreign },
			encoding: 'utf8',
		})}]`,
	) as [number, object];
	expect(said[1]).toEqual({ extra: 0, first: true, names: [], pid: said[0], arguments: ['one', 'two words'] });
}, 120_000);
