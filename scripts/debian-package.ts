/**
 * Makes the Debian packages, `idv-agent` for devices and `idv-tools` for operators and developers: an executable, manual pages
 * and completions, for devices units and settings, in one file for each architecture, byte for byte the same for the same input; and
 * idv-agent-updates (`updates-package.ts`). `npm run build:deb` runs this; a device never does.
 */
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { cp, mkdir, readdir, readFile, stat, symlink } from 'node:fs/promises';
import { dirname, join, relative, resolve } from 'node:path';
import { text } from 'node:stream/consumers';
import { promisify } from 'node:util';
import { buildOrTell } from './bundle.ts';
import { readCommandTree } from './command-tree.ts';
import { writeBashCompletion, writeFishCompletion, writeZshCompletion } from './completions.ts';
import { gzip, MAINTAINER, openTree, packTree, putDocuments, type Tree } from './debian-tree.ts';
import {
	ARCHITECTURES,
	type Architecture,
	buildExecutable,
	nativeOf,
	PROGRAMS,
	type ProgramName,
} from './executable.ts';
import { writeManualPage } from './manual-page.ts';
import { writeSbom } from './sbom.ts';
import { writeSettingsExample } from './settings-example.ts';
import { buildUpdatesPackage } from './updates-package.ts';

const run = promisify(execFile);

/** Debian's names of the architectures. */
const DEBIAN: Readonly<Record<Architecture, string>> = { x64: 'amd64', arm64: 'arm64' };
const CONFFILES = ['/etc/idv-agent/config.json', '/etc/idv-agent/config.example.jsonc'];

export interface PackageOptions {
	readonly root: string;
	/** Which of the two packages; default the device's, `idv-agent`. */
	readonly name?: ProgramName;
	/** Made by {@link buildExecutable}, of the same name. */
	readonly executable: string;
	readonly architecture: Architecture;
	readonly version: string;
	/** Seconds since 1970 that every file of the package is dated with. */
	readonly epoch: number;
	/** Where the package is put. */
	readonly outDir: string;
	/** `xz` takes a minute; `gzip` is quick, for tests. Default `xz`. */
	readonly compression?: 'xz' | 'gzip';
}

/** The commands of each package: links to its executable. */
const COMMANDS: Readonly<Record<ProgramName, readonly string[]>> = {
	'idv-agent': ['idv-agent'],
	'idv-tools': ['idv', 'idv-tools'],
};

/** Builds `<outDir>/<name>_<version>_<architecture>.deb` and returns its path. */
export async function buildDebianPackage(options: PackageOptions): Promise<string> {
	const { root, name = 'idv-agent', executable, architecture, version, epoch, outDir, compression = 'xz' } = options;
	const opened = await openTree(root, join(outDir, `deb-${name}-${architecture}`));
	const { tree, put } = opened;

	await mkdir(join(tree, 'usr/lib', name), { recursive: true });
	await mkdir(join(tree, 'usr/bin'), { recursive: true });
	await cp(executable, join(tree, 'usr/lib', name, name));
	const native = nativeOf(architecture);
	await put(`usr/lib/${name}/${native}`, await readFile(join(dirname(executable), native)));
	for (const command of COMMANDS[name]) await symlink(`../lib/${name}/${name}`, join(tree, 'usr/bin', command));
	if (name === 'idv-agent') await addDeviceFiles(root, opened);

	const program = join(dirname(executable), 'bundle/program.cjs');
	const day = new Date(epoch * 1000).toISOString().slice(0, 10);
	for (const command of COMMANDS[name]) {
		const help = await readCommandTree(command, (path) => askHelp(program, command, path));
		const page = writeManualPage(help, { version, date: day, sections: SECTIONS[command] ?? new Map() });
		await put(`usr/share/man/man1/${command}.1.gz`, gzip(page));
		await put(`usr/share/bash-completion/completions/${command}`, writeBashCompletion(help));
		await put(`usr/share/zsh/vendor-completions/_${command}`, writeZshCompletion(help));
		await put(`usr/share/fish/vendor_completions.d/${command}.fish`, writeFishCompletion(help));
	}
	await putDocuments(opened, { root, name, version, epoch });
	await put(`usr/share/doc/${name}/node-license.txt.gz`, gzip(await readNodeLicense(root, outDir)));
	await put(`usr/share/doc/${name}/sbom.cdx.json`, await writeSbom(root));
	const libc = await neededLibc(executable);
	const control = (kilobytes: number) => debianControl({ name, version, architecture, libc, kilobytes });
	const file = join(outDir, `${name}_${version}_${DEBIAN[architecture]}.deb`);
	return packTree(tree, { control, file, epoch, compression });
}

/** Units, settings and what else only a machine with the daemon has. */
async function addDeviceFiles(root: string, { tree, put, copy }: Tree): Promise<void> {
	await mkdir(join(tree, 'etc/idv-agent/conf.d'), { recursive: true });
	await copy('systemd/idv-agent-generator', 'usr/lib/systemd/system-generators/idv-agent-generator', 0o755);
	const units = (await readdir(join(root, 'systemd'))).filter((file) => /\.(service|socket|path)$/.test(file));
	for (const unit of units.toSorted()) await copy(`systemd/${unit}`, `usr/lib/systemd/system/${unit}`);
	await copy('systemd/check-credentials', 'usr/lib/idv-agent/check-credentials', 0o755);
	await copy('systemd/newer-systemd.conf', 'usr/lib/idv-agent/newer-systemd.conf');
	for (const file of await readdir(join(root, 'systemd/drop-ins')))
		await copy(`systemd/drop-ins/${file}`, `usr/lib/idv-agent/drop-ins/${file}`);
	await copy('systemd/sysusers.conf', 'usr/lib/sysusers.d/idv-agent.conf');
	await copy('systemd/tmpfiles.conf', 'usr/lib/tmpfiles.d/idv-agent.conf');
	await put('etc/idv-agent/config.json', '{}\n');
	await put('etc/idv-agent/config.example.jsonc', writeSettingsExample());
	await copy('docs/settings.schema.json', 'usr/share/idv-agent/settings.schema.json');
	for (const script of ['postinst', 'prerm', 'postrm'])
		await copy(`scripts/debian/${script}`, `DEBIAN/${script}`, 0o755);
	await put('DEBIAN/conffiles', `${CONFFILES.join('\n')}\n`);
}

/** Runs the program under the name of a command, as the links in /usr/bin do. */
async function askHelp(program: string, name: string, path: readonly string[]): Promise<string> {
	const child = spawn(process.execPath, [program, ...path, '--help'], {
		argv0: name,
		env: {},
		stdio: ['ignore', 'pipe', 'inherit'],
	});
	const [help] = await Promise.all([text(child.stdout), once(child, 'close')]);
	if (!help.startsWith('Usage: ')) throw new Error(`${name} ${path.join(' ')} --help says nothing.`);
	return help;
}

/** The newest version of the C library that the executable asks for. */
async function neededLibc(executable: string): Promise<string> {
	const { stdout } = await run('readelf', ['--version-info', '--wide', executable], { maxBuffer: 64 * 1024 * 1024 });
	const versions = [...stdout.matchAll(/GLIBC_(\d+)\.(\d+)/g)].map(
		([, major, minor]) => [Number(major), Number(minor)] as const,
	);
	const [major, minor] = versions.toSorted(([a, b], [c, d]) => c - a || d - b)[0] ?? [2, 28];
	return `${major}.${minor}`;
}

function debianControl(parts: {
	name: ProgramName;
	version: string;
	architecture: Architecture;
	libc: string;
	kilobytes: number;
}): string {
	return `Package: ${parts.name}
Version: ${parts.version}
Section: net
Priority: optional
Architecture: ${DEBIAN[parts.architecture]}
Maintainer: ${MAINTAINER}
Installed-Size: ${parts.kilobytes}
Depends: libatomic1, libc6 (>= ${parts.libc}), libgcc-s1, libstdc++6${CONTROL[parts.name]}
 .
 Node.js is included: nothing else has to be installed.
`;
}

/** Relations, from the end of Depends on, and the description. Until 0.2.0 `idv` was part of idv-agent. */
const CONTROL: Readonly<Record<ProgramName, string>> = {
	'idv-agent': `, systemd (>= 252)
Suggests: bash-completion, idv-agent-updates, idv-tools
Description: device agent for an identity verification service
 Keeps a kiosk or document scanner registered with the service, moves it from
 workflow to workflow without being offline, and hands session notifications
 to the application of the device, which never holds a credential.
 .
 The command idv-agent pairs and shows the device. The package
 idv-agent-updates takes back versions that do not work; idv-tools is for
 operators and developers.`,
	'idv-tools': `
Breaks: idv-agent (<< 0.2.0~)
Replaces: idv-agent (<< 0.2.0~)
Suggests: bash-completion
Description: operator's and developer's tools for idv-agent
 The command idv makes API keys, pairing codes, sessions and fleet plans at
 the identity verification service, and tries how a service behaves.
 .
 The command idv-tools has a trial service, a load test of many simulated
 devices and a demonstration; with idv-agent on the same machine they are
 idv-agent service, idv-agent simulate and idv-agent demo as well.`,
};

async function readNodeLicense(root: string, outDir: string): Promise<string> {
	for (const directory of [join(root, `node_modules/node-linux-${process.arch}`), outDir])
		if (existsSync(join(directory, 'LICENSE'))) return readFile(join(directory, 'LICENSE'), 'utf8');
	throw new Error(`node-linux-${process.arch} is not installed: npm ci`);
}

const SECTIONS: Readonly<Record<string, ReadonlyMap<string, readonly string[]>>> = {
	'idv-agent': new Map([
		[
			'FILES',
			[
				'/etc/idv-agent/config.json, /etc/idv-agent/conf.d/*.json: the settings; /etc/idv-agent/config.example.jsonc explains each.',
				'',
				"/var/lib/idv-agent: the agent's state, readable by the agent only.",
				'',
				'/run/idv-agent/agent.sock: for applications, members of the group idv-agent.',
				'',
				'/run/idv-agent/admin.sock: for pairing and changing the device, members of the group idv-agent-admin.',
				'',
				'/usr/lib/idv-agent/drop-ins: for a serial scanner, a keyboard scanner and the page.',
			],
		],
		[
			'ENVIRONMENT',
			[
				'Every setting has a variable: heartbeatCadence is IDV_AGENT_HEARTBEAT_CADENCE, network.caFile is IDV_AGENT_NETWORK_CA_FILE. Secrets are taken from files only.',
			],
		],
		[
			'SERVICE',
			[
				'systemctl status idv-agent shows the device status in one sentence. systemctl reload idv-agent reads the settings again, which also happens automatically when a file changes. journalctl -u idv-agent -p warning shows problems only.',
			],
		],
		['SEE ALSO', ['idv(1), idv-tools(1), systemctl(1), journalctl(1), systemd-creds(1)']],
	]),
	idv: new Map([['SEE ALSO', ['idv-agent(1), idv-tools(1)']]]),
	'idv-tools': new Map([['SEE ALSO', ['idv(1), idv-agent(1)']]]),
};

async function lastCommit(root: string): Promise<number> {
	const { stdout } = await run('git', ['log', '-1', '--format=%ct'], { cwd: root });
	return Number(stdout);
}

async function main(): Promise<void> {
	const root = resolve(import.meta.dirname, '..');
	const outDir = join(root, 'build');
	const { version } = JSON.parse(await readFile(join(root, 'package.json'), 'utf8')) as { version: string };
	const epoch = process.env['SOURCE_DATE_EPOCH'] ? Number(process.env['SOURCE_DATE_EPOCH']) : await lastCommit(root);
	const asked = process.argv.slice(2) as Architecture[];
	const tell = async (path: string) => {
		const megabytes = (await stat(path)).size / 1_000_000;
		process.stdout.write(`${relative(root, path).padEnd(42)}${megabytes.toFixed(1).padStart(8)} MB\n`);
	};
	for (const architecture of asked.length > 0 ? asked : ARCHITECTURES) {
		for (const name of PROGRAMS) {
			const executable = await buildExecutable({ root, architecture, outDir }, name);
			await tell(await buildDebianPackage({ root, name, executable, architecture, version, epoch, outDir }));
		}
	}
	await tell(await buildUpdatesPackage({ root, version, epoch, outDir }));
}

if (import.meta.main) void buildOrTell(main);
