/**
 * Packages for the update suite: the real one, and small ones around the same program that fail in one way each. A signed
 * repository of them is served from the machine's own disk.
 */
import { execFileSync } from 'node:child_process';
import { chmodSync, cpSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

/** The ways in which a version can be bad. */
export const BEHAVIOURS = {
	good: '',
	crashing: 'exit 1',
	// Online each time, and dead before a heartbeat is due.
	'short-lived': '( sleep 15; kill -9 $$ ) >/dev/null 2>&1 &',
	// Later than it is judged.
	late: '( sleep 75; kill -9 $$ ) >/dev/null 2>&1 &',
	silent: 'exec sleep infinity',
	// Its script fills the disk to root's last byte, each time that dpkg lets it finish.
	'filling-script': 'exit 1',
	'fills-disk': 'cat /dev/zero > /var/lib/idv-agent/fill; exit 1',
	// Where the control groups here do not bound it, this does.
	'eats-memory': 'ulimit -v 1500000; exec tail /dev/zero',
} as const;
export type Behaviour =
	| keyof typeof BEHAVIOURS
	| 'never-online'
	| 'failing-script'
	| 'without-unit'
	| 'masking'
	| 'never-starts'
	| 'never-ends'
	| 'instead-of-another';

/** Each has bytes of its own, under whatever version. */
let builds = 0;

/**
 * Makes a small package: the units and scripts of the real one, with a program that leads to `/opt/idv-agent/idv-agent`.
 * @param real the package of `npm run build:deb`. @returns its path.
 */
export function makeStub(real: string, version: string, behaviour: Behaviour, directory: string): string {
	const skeleton = join(directory, 'skeleton');
	if (!existsSync(skeleton)) {
		execFileSync('dpkg-deb', ['--raw-extract', real, skeleton]);
		rmSync(join(skeleton, 'usr/lib/idv-agent/idv-agent'));
	}
	return repack(skeleton, version, directory, (tree) => {
		const program = join(tree, 'usr/lib/idv-agent/idv-agent');
		const onRun = Object.hasOwn(BEHAVIOURS, behaviour) ? BEHAVIOURS[behaviour as keyof typeof BEHAVIOURS] : '';
		writeFileSync(
			program,
			`#!/bin/bash\n# Build ${++builds}.\ncase "$1" in run) ${onRun || ':'} ;; code-cache) exit 0 ;; esac\nexec -a "$0" /opt/idv-agent/idv-agent "$@"\n`,
		);
		chmodSync(program, 0o755);
		edit(join(tree, 'DEBIAN/control'), /^Installed-Size: .*$/m, 'Installed-Size: 20000');
		if (behaviour === 'failing-script') failAtOnce(tree);
		if (behaviour === 'filling-script') failAtOnce(tree, 'cat /dev/zero > /fill');
		if (behaviour === 'instead-of-another')
			edit(join(tree, 'DEBIAN/control'), /^Suggests: /m, 'Conflicts: iproute2\nSuggests: ');
		// Its settings alone would not do: an agent goes on with those that it was online with last.
		if (behaviour === 'never-online')
			edit(join(tree, UNIT), /^RestrictAddressFamilies=.*$/m, 'RestrictAddressFamilies=AF_UNIX');
		// Otherwise it is good. After an update that did not begin, no judge would be there to undo it.
		if (behaviour === 'masking')
			edit(
				join(tree, 'DEBIAN/postinst'),
				/^esac$/m,
				'esac\n[ "$1" = configure ] || exit 0\nsystemctl disable idv-agent.service\nsystemctl mask idv-agent.service\nsystemctl mask --runtime --now idv-agent.service',
			);
		// Its script waits for that without end, and dpkg for the script.
		if (behaviour === 'never-starts')
			edit(join(tree, UNIT), /^Type=.*$/m, 'Type=oneshot\nTimeoutStartSec=infinity\nExecStartPre=/bin/sleep infinity');
		// Neither does it end for a boot's judge, which it waits for besides.
		if (behaviour === 'never-ends') {
			edit(
				join(tree, UNIT),
				/^ExecStart=.*$/m,
				'ExecStart=/bin/false\nExecStopPost=/bin/sleep infinity\nTimeoutStopSec=infinity',
			);
			edit(join(tree, UNIT), /^\[Unit\]$/m, '[Unit]\nAfter=idv-agent-judge.service');
		}
		if (behaviour === 'without-unit') rmSync(join(tree, UNIT));
	});
}

/**
 * The real package under another version; `crashing` by its unit, `failing-script` by its script.
 * @returns its path.
 */
export function makeReal(real: string, version: string, behaviour: Behaviour, directory: string): string {
	return repack(real, version, directory, (tree) => {
		if (behaviour === 'crashing') edit(join(tree, UNIT), /^ExecStart=.*$/m, 'ExecStart=/bin/false');
		if (behaviour === 'failing-script') failAtOnce(tree);
	});
}

/** A package of others, whose script does this. @returns its path. */
export function makeNeighbour(script: string, directory: string): string {
	const tree = join(directory, 'tree-neighbour');
	mkdirSync(join(tree, 'DEBIAN'), { recursive: true });
	writeFileSync(
		join(tree, 'DEBIAN/control'),
		'Package: neighbour\nVersion: 1\nArchitecture: all\nMaintainer: a <a@b.c>\nDescription: none\n',
	);
	writeFileSync(join(tree, 'DEBIAN/postinst'), `#!/bin/sh\n${script}\n`, { mode: 0o755 });
	const file = join(directory, 'neighbour_1_all.deb');
	execFileSync('dpkg-deb', ['--root-owner-group', '--build', tree, file], { stdio: 'ignore' });
	rmSync(tree, { recursive: true });
	return file;
}

const UNIT = 'usr/lib/systemd/system/idv-agent.service';

function edit(file: string, pattern: RegExp, by: string): void {
	writeFileSync(file, readFileSync(file, 'utf8').replace(pattern, by));
}

function failAtOnce(tree: string, first = ':'): void {
	edit(join(tree, 'DEBIAN/postinst'), /^set -e$/m, `${first}\nset -e\necho "this script fails" >&2\nexit 1`);
}

/** @param from a package, or what one was taken apart into. */
function repack(from: string, version: string, directory: string, change: (tree: string) => void): string {
	const tree = join(directory, `tree-${version}`);
	rmSync(tree, { recursive: true, force: true });
	if (from.endsWith('.deb')) execFileSync('dpkg-deb', ['--raw-extract', from, tree]);
	else cpSync(from, tree, { recursive: true, verbatimSymlinks: true });
	rmSync(join(tree, 'DEBIAN/md5sums'), { force: true });
	const control = join(tree, 'DEBIAN/control');
	edit(control, /^Version: .*$/m, `Version: ${version}`);
	change(tree);
	const architecture = /^Architecture: (.*)$/m.exec(readFileSync(control, 'utf8'))?.[1];
	const file = join(directory, `idv-agent_${version}_${architecture}.deb`);
	execFileSync('dpkg-deb', ['--root-owner-group', '-Zgzip', '-z1', '--build', tree, file], { stdio: 'ignore' });
	rmSync(tree, { recursive: true });
	return file;
}

/** What a device may find of a repository. */
export type Index = 'valid' | 'unsigned' | 'other-key' | 'not-yet' | 'expired' | 'half-synced';

export interface Repository {
	/** The directory that apt reads. */
	readonly directory: string;
	/** The public key, as `signed-by` wants it. */
	readonly key: string;
	/** Signs the list of another directory. */
	sign(directory: string): void;
	/** Publishes exactly these packages. */
	publish(files: readonly string[], index?: Index): void;
}

/** A site's signed repository, as docs/updates.md makes it. */
export function makeRepository(directory: string): Repository {
	const home = join(directory, 'gnupg');
	const pool = join(directory, 'repository');
	mkdirSync(home, { recursive: true, mode: 0o700 });
	mkdirSync(pool, { recursive: true });
	const gpg = (...words: string[]) => execFileSync('gpg', ['--homedir', home, '--batch', '--yes', '--quiet', ...words]);
	for (const name of ['site', 'another'])
		gpg('--passphrase', '', '--quick-generate-key', `${name}@example.invalid`, 'ed25519', 'sign', 'never');
	const key = join(directory, 'site.gpg');
	writeFileSync(key, gpg('--export', 'site@example.invalid'));
	const sign = (one: string, more: readonly string[] = [], by = 'site') =>
		void gpg(
			...more,
			'--local-user',
			`${by}@example.invalid`,
			'--output',
			join(one, 'InRelease'),
			'--clearsign',
			join(one, 'Release'),
		);
	return {
		directory: pool,
		key,
		sign,
		publish(files, index = 'valid') {
			rmSync(pool, { recursive: true, force: true });
			mkdirSync(pool, { recursive: true });
			for (const file of files) cpSync(file, join(pool, file.split('/').at(-1) ?? ''));
			const [list, release] = [join(pool, 'Packages'), join(pool, 'Release')];
			writeFileSync(list, execFileSync('apt-ftparchive', ['packages', '.'], { cwd: pool }));
			writeFileSync(release, execFileSync('apt-ftparchive', ['release', '.'], { cwd: pool }));
			if (index === 'not-yet') edit(release, /^Date: .*$/m, 'Date: Wed, 01 Jan 2070 00:00:00 UTC');
			if (index === 'expired') edit(release, /^Date: .*$/m, '$&\nValid-Until: Wed, 01 Jan 2020 00:00:00 UTC');
			const at = index === 'not-yet' ? ['--faked-system-time', '20700101T000000!'] : [];
			if (index !== 'unsigned') sign(pool, at, index === 'other-key' ? 'another' : 'site');
			rmSync(release);
			// Of two files that belong together, one is the new one.
			if (index === 'half-synced') edit(list, /^Description: .*$/m, 'Description: of another day');
		},
	};
}
