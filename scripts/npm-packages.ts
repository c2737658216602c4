/**
 * The packages that npm installs, in `build/npm`: `idv-agent` (client, testing and the trial service, for developers) and `idv` (the
 * operator's command). Each is whole: no dependency, no Node, no script that npm would run. `npm run build:npm` makes them; nothing is
 * published. The checkout itself is not packed: `npm pack` in its root ends with the command that makes these.
 */
import { execFile } from 'node:child_process';
import { copyFile, mkdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { dirname, join, relative, resolve } from 'node:path';
import { promisify } from 'node:util';
import { buildOrTell, bundle } from './bundle.ts';
import { writeDeclarations } from './declarations.ts';

const ROOT = resolve(import.meta.dirname, '..');
const INSTEAD = `The checkout is not a package: it would bring the agent of a device and a Node of its own.
"npm run build:npm" makes build/npm/idv-agent-VERSION.tgz (client, testing, trial service) and build/npm/idv-VERSION.tgz.
`;

interface NpmPackage {
	readonly name: 'idv-agent' | 'idv';
	readonly description: string;
	/** Name of each bundle, and its source. */
	readonly entries: Readonly<Record<string, string>>;
	/** Of the checkout: what lies beside the bundles. */
	readonly files: readonly string[];
	/** The oldest Node of what is imported; the command says itself what it needs. */
	readonly node: string;
	readonly readme: string;
	readonly exports?: readonly string[];
}

const PACKAGES: readonly NpmPackage[] = [
	{
		name: 'idv-agent',
		description:
			'For applications beside idv-agent: its client, an identity verification service for tests, and the trial service',
		entries: {
			'idv-agent': 'src/cli/trial.ts',
			client: 'src/client/client.runner.ts',
			testing: 'src/service/testing.ts',
		},
		files: ['docs/openapi.json', 'docs/settings.schema.json'],
		exports: ['./client', './testing', './openapi.json', './settings.schema.json', './package.json'],
		node: '>=18.17',
		readme: `# idv-agent, for developers

- \`idv-agent/client\`: the local interface of the agent on a device, for the kiosk's own application. One file without dependencies.
- \`idv-agent/testing\`: an identity verification service inside of your tests, with its faults by name.
- \`npx idv-agent service\`: the same service on a port, for trials. The command needs Node 22.19 or newer, and says so under an older one; what
  is imported runs from Node 18.17 on, which is what \`engines\` says.
- \`idv-agent/openapi.json\`, \`idv-agent/settings.schema.json\`: the local interface and the settings, for tools.

The agent itself, which runs on devices, is a Debian package. No Mac and no Windows has run any of this.
`,
	},
	{
		name: 'idv',
		description:
			"The operator's command of an identity verification service: API keys, pairing codes, sessions, fleet plans",
		entries: { idv: 'src/operator/idv.ts' },
		files: [],
		node: '>=22.19',
		readme: `# idv

The operator's command line: API keys, pairing codes, sessions and fleet plans, from a laptop or a pipeline. \`idv --help\` teaches it.
It needs nothing of Linux; no Mac and no Windows has run it yet.
`,
	},
];

/** @returns the tarballs. */
export async function buildNpmPackages(outDir = join(ROOT, 'build/npm')): Promise<string[]> {
	await rm(outDir, { recursive: true, force: true });
	const files: string[] = [];
	for (const each of PACKAGES) files.push(await pack(each, outDir));
	return files;
}

async function pack({ name, description, entries, exports = [], files, node, readme }: NpmPackage, outDir: string) {
	const directory = join(outDir, name);
	const manifest = JSON.parse(await readFile(join(ROOT, 'package.json'), 'utf8')) as Record<string, unknown> & {
		readonly exports: Readonly<Record<string, unknown>>;
	};
	await bundle({ root: ROOT, entries, outDir: join(directory, 'dist'), forDevices: false });
	if ('client' in entries) await writeDeclarations(ROOT, join(directory, 'dist'));
	for (const file of [`bin/${name}`, 'bin/launch.js', 'bin/package.json', 'LICENSE', ...files]) {
		await mkdir(dirname(join(directory, file)), { recursive: true });
		await copyFile(join(ROOT, file), join(directory, file));
	}
	await writeFile(join(directory, 'README.md'), readme);
	const { version, license, type } = manifest;
	const named = Object.fromEntries(exports.map((path) => [path, manifest.exports[path]]));
	const own = { name, version, description, license, type, bin: { [name]: `bin/${name}` }, engines: { node } };
	const packed = { ...own, ...(exports.length > 0 && { exports: named }) };
	await writeFile(join(directory, 'package.json'), `${JSON.stringify(packed, null, '\t')}\n`);
	await promisify(execFile)('npm', ['pack', '--silent', '--pack-destination', outDir], { cwd: directory });
	return join(outDir, `${name}-${version}.tgz`);
}

if (process.argv[2] === 'instead') {
	process.stderr.write(INSTEAD);
	process.exitCode = 1;
} else if (import.meta.main)
	await buildOrTell(async () => {
		for (const file of await buildNpmPackages())
			process.stdout.write(
				`${relative(ROOT, file).padEnd(36)}${((await stat(file)).size / 1024).toFixed(0).padStart(8)} KiB\n`,
			);
	});
