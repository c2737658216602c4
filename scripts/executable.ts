/**
 * Makes the executables: Node, a program and what it reads in one file. `idv-agent` is what a device gets; `idv-tools` is
 * for operators and developers, and is `idv` when it is called by that name. `npm run build:executable` runs this; a device never does.
 */
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { chmod, copyFile, mkdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { join, relative, resolve } from 'node:path';
import { promisify } from 'node:util';
import { buildOrTell, bundle } from './bundle.ts';
import { launcherSource, wrapped } from './launcher.ts';
import { checkNodeBinary } from './sbom.ts';

const run = promisify(execFile);

export type Architecture = 'x64' | 'arm64';
export const ARCHITECTURES: readonly Architecture[] = ['x64', 'arm64'];

export interface ExecutableOptions {
	/** Directory with `package.json` and `node_modules`. */
	readonly root: string;
	readonly architecture: Architecture;
	/** Where executables and everything on the way to them are put. */
	readonly outDir: string;
}

/** Two threads of V8's for its collector and compilers instead of four. */
const DEVICE_ARGUMENTS = ['--v8-pool-size=2'];

/** The programs that are shipped: the agent for devices, and the tools of operators and developers. */
export const PROGRAMS = ['idv-agent', 'idv-tools'] as const;
export type ProgramName = (typeof PROGRAMS)[number];

/**
 * Builds `<outDir>/<architecture>/<name>/<name>`.
 *
 * The binary is stripped before Node puts the program into it: afterwards it would not start. Neither `NODE_OPTIONS` nor
 * `--node-options` reach it (`execArgvExtension: none`). Compiled code is not in it: a device makes that itself when
 * the package is installed (decision 0012).
 * @returns its path.
 * @throws Error with the words of the tool that failed, or with what to install.
 */
export async function buildExecutable(options: ExecutableOptions, name: ProgramName = 'idv-agent'): Promise<string> {
	const { root, architecture, outDir } = options;
	const work = join(outDir, architecture, name);
	await rm(work, { recursive: true, force: true });
	await mkdir(work, { recursive: true });
	const entry = join(work, 'entry.cjs');
	await writeFile(entry, entrySource(root, name));
	const bundled = join(work, 'bundle');
	const entries = { program: relative(root, entry) };
	const built = await bundle({ root, entries, outDir: bundled, toolsApart: name === 'idv-agent' });
	const assets: Record<string, string> = {};
	let cached = '';
	for (const { path } of built) {
		const file = relative(bundled, path);
		if (file.endsWith('.node')) continue;
		assets[file] = join('bundle', file);
		if (!file.endsWith('.cjs')) continue;
		const text = wrapped(await readFile(path, 'utf8'));
		assets[file] = join('wrapped', file);
		await mkdir(join(work, 'wrapped'), { recursive: true });
		await writeFile(join(work, 'wrapped', file), text, 'latin1');
		if (file === 'run.cjs') cached = text;
	}
	await writeFile(join(work, 'launcher.cjs'), launcherSource(cached));
	const execArgv = name === 'idv-agent' ? DEVICE_ARGUMENTS : [];
	await embed({ root, architecture, work, outDir, program: 'launcher.cjs', name, assets, execArgv });
	const native = nativeOf(architecture);
	await copyFile(join(bundled, native), join(work, native));
	return join(work, name);
}

export interface EmbedOptions extends ExecutableOptions {
	/** Where the program lies and the executable gets its `name`. */
	readonly work: string;
	/** CommonJS, in one file, relative to `work`: this path gets into the executable. */
	readonly program: string;
	readonly name: string;
	/** The file of each by its name, relative to `work`. */
	readonly assets: Readonly<Record<string, string>>;
	/** Node's own, made before anything has run; for this machine's own kind only. Default `false`. */
	readonly codeCache?: boolean;
	/** Node's own arguments; default none. */
	readonly execArgv?: readonly string[];
}

/** Puts a program into a stripped Node. */
export async function embed(options: EmbedOptions): Promise<void> {
	const { root, architecture, outDir, work, program, name, assets, codeCache = false, execArgv = [] } = options;
	const node = join(work, 'node');
	await copyNode(root, architecture, outDir, node);
	const config = join(work, 'sea.json');
	await writeFile(
		config,
		JSON.stringify({
			main: program,
			mainFormat: 'commonjs',
			executable: 'node',
			output: name,
			disableExperimentalSEAWarning: true,
			useSnapshot: false,
			useCodeCache: codeCache && architecture === process.arch,
			execArgvExtension: 'none',
			execArgv,
			assets,
		}),
	);
	// Paths from here: the one of the program gets into the executable.
	// Without the flag V8 puts addresses and chance into the code cache: same input, other bytes.
	await run(process.execPath, ['--predictable', '--build-sea', config], { cwd: work, env: {} });
	await chmod(join(work, name), 0o755);
	await rm(node);
}

/** Node for the architecture without its symbols: what every executable begins with. */
export async function copyNode(root: string, architecture: Architecture, outDir: string, to: string): Promise<void> {
	const node = await findNode(root, architecture, outDir);
	await checkNodeBinary(root, architecture, node);
	await copyFile(node, to);
	await strip(to, architecture);
}

/** The file beside the executable: machine code for serial lines, loaded when a scanner is opened. */
export function nativeOf(architecture: Architecture): string {
	return `serialport-linux-${architecture}.node`;
}

/**
 * `NODE_TLS_REJECT_UNAUTHORIZED`, `NODE_EXTRA_CA_CERTS` and the like are gone before anything else: where one is present, the launcher
 * starts the program afresh without it. Of the tools, the one that is
 * called by its name is the one that is evaluated.
 */
function entrySource(root: string, name: ProgramName): string {
	const load = (path: string, call = '') => `require(${JSON.stringify(join(root, path))})${call};`;
	const tools = `if (require('node:path').basename(process.argv0) === 'idv') ${load('src/operator/idv.ts')} else ${load('src/cli/tools.ts', '.runToolCommand(process)')}`;
	return `${name === 'idv-agent' ? load('src/cli/idv-agent.ts') : tools}\n`;
}

/** Node for the architecture, of the version that this project depends on: installed, or fetched once. */
async function findNode(root: string, architecture: Architecture, outDir: string): Promise<string> {
	const name = `node-linux-${architecture}`;
	const installed = join(root, 'node_modules', name, 'bin/node');
	if (existsSync(installed)) return installed;
	const lock = JSON.parse(await readFile(join(root, 'package-lock.json'), 'utf8')) as {
		packages: Record<string, { version: string; integrity: string } | undefined>;
	};
	const locked = lock.packages[`node_modules/${name}`];
	if (!locked) throw new Error(`package-lock.json knows no ${name}.`);
	const directory = join(outDir, 'node', `${name}-${locked.version}`);
	const binary = join(directory, 'package/bin/node');
	if (existsSync(binary)) return binary;

	const unpacking = `${directory}.new`;
	await rm(unpacking, { recursive: true, force: true });
	await mkdir(unpacking, { recursive: true });
	await run('npm', ['pack', '--silent', '--pack-destination', unpacking, `${name}@${locked.version}`]);
	const archive = join(unpacking, `${name}-${locked.version}.tgz`);
	const found = `sha512-${createHash('sha512')
		.update(await readFile(archive))
		.digest('base64')}`;
	if (found !== locked.integrity) throw new Error(`${name}@${locked.version} is not what package-lock.json names.`);
	await run('tar', ['--extract', '--gzip', '--file', archive, '--directory', unpacking, 'package/bin/node']);
	await rm(archive);
	await rename(unpacking, directory);
	return binary;
}

async function strip(binary: string, architecture: Architecture): Promise<void> {
	const tools =
		architecture === process.arch ? ['strip', 'llvm-strip'] : ['llvm-strip', STRIP_OF_BINUTILS[architecture]];
	for (const tool of tools)
		try {
			await run(tool, [binary]);
			return;
		} catch (error) {
			if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
		}
	throw new Error(`None of ${tools.join(', ')} is installed: apt-get install binutils llvm`);
}

const STRIP_OF_BINUTILS: Readonly<Record<Architecture, string>> = {
	x64: 'x86_64-linux-gnu-strip',
	arm64: 'aarch64-linux-gnu-strip',
};

async function main(): Promise<void> {
	const root = resolve(import.meta.dirname, '..');
	const asked = process.argv.slice(2) as Architecture[];
	for (const architecture of asked.length > 0 ? asked : ARCHITECTURES) {
		if (!ARCHITECTURES.includes(architecture)) throw new Error(`Architectures are ${ARCHITECTURES.join(' and ')}.`);
		for (const name of PROGRAMS) {
			const path = await buildExecutable({ root, architecture, outDir: join(root, 'build') }, name);
			const megabytes = (await stat(path)).size / 1_000_000;
			process.stdout.write(`${relative(root, path).padEnd(32)}${megabytes.toFixed(1).padStart(8)} MB\n`);
		}
	}
}

if (import.meta.main) void buildOrTell(main);
