/**
 * Makes the programs that are shipped: one minified CommonJS file for each command, with what it seldom needs beside it.
 * `npm run build` runs this; a device never does. Decides nothing about how a program behaves.
 */
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { globSync, readFileSync, realpathSync } from 'node:fs';
import { copyFile, mkdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { basename, dirname, join, relative, resolve } from 'node:path';
import { type BuildOptions, build, type Plugin } from 'esbuild';
import * as zod from 'zod';
import { inWords } from '../src/base/files.edge.ts';
import { readWords } from '../src/base/shapes.edge.ts';
import { PAGE_FILES } from '../src/page/files.edge.ts';

export interface BundleOptions {
	/** Directory with `package.json`, whose version is built in as `IDV_AGENT_VERSION`, and `node_modules`. Its commit is built in as well. */
	readonly root: string;
	/** Name of each program and its source file under `root`. */
	readonly entries: Readonly<Record<string, string>>;
	/** Emptied first, so that nothing of an older build is shipped. */
	readonly outDir: string;
	/**
	 * Everything of a program in its one file, for an executable that carries a code cache. Default `false`: without a
	 * cache, the text of packages that are not even used costs every start 22 ms (docs/measurements.md).
	 */
	readonly singleFile?: boolean;
	/** The page and the machine code for serial lines as well. Default `true`. */
	readonly forDevices?: boolean;
	/** Without the commands of `idv-tools`, which are in a package of their own. Default `false`. */
	readonly toolsApart?: boolean;
	/** Without the part of zod that writes JSON Schema, for a program that never asks it to. Default `false`. */
	readonly readsOnly?: boolean;
	/** Gets the folder, below `node_modules`, of every package of which something is in a file that is written. */
	readonly packages?: Set<string>;
}

export interface BuiltFile {
	readonly path: string;
	readonly bytes: number;
}

const PROJECT = resolve(import.meta.dirname, '..');
/** Every program that `npm run build` makes, and that the npm package holds. */
export const ENTRIES = {
	'idv-agent': 'src/cli/idv-agent.ts',
	idv: 'src/operator/idv.ts',
	// Libraries, under the exports of package.json with the same name.
	client: 'src/client/client.runner.ts',
	testing: 'src/service/testing.ts',
};

/** Libraries for others also run under a Node without `URL.parse`, such as 18.17 and 20.0. */
const OLDER_NODE = { inject: [join(PROJECT, 'scripts/parse-url.js')] };

const CLIENT_FORMATS = [
	['client.cjs', 'cjs'],
	['client.mjs', 'esm'],
] as const;

/** Packages that are big, seldom needed and imported when they are: each a file of its own, which all programs share. */
const APART: ReadonlyMap<string, string> = new Map([
	['zod', 'zod.cjs'],
	['systeminformation', 'systeminformation.cjs'],
	['zxing-wasm/reader', 'zxing-reader.cjs'],
	['@jsquash/webp/decode.js', 'webp-decoder.cjs'],
	['@serialport/stream', 'serial-stream.cjs'],
	['@serialport/bindings-cpp', 'serial-bindings.cjs'],
]);

/**
 * Parts of `idv-agent` that share nothing with each other: a start of the daemon reads only its own. They pass no objects
 * but texts and numbers, since each has classes of its own.
 */
const PARTS: ReadonlyMap<string, string> = new Map(
	['run', 'commands', 'tools'].map((name) => [`${name}.cjs`, `src/cli/${name}.ts`]),
);

/** Of these the default export is used: a CommonJS file is its own default, so that has to be what the file is. */
const BY_DEFAULT: ReadonlySet<string> = new Set(['@jsquash/webp/decode.js']);

/** Machine code for serial lines, in the directory of the program: it can't be inside of a file. Made for glibc. */
const NATIVE = {
	'serialport-linux-x64.node': 'linux-x64/@serialport+bindings-cpp.glibc.node',
	'serialport-linux-arm64.node': 'linux-arm64/@serialport+bindings-cpp.armv8.glibc.node',
} as const;

/** Read as files, or as assets of an executable, under their own names, by the file apart that reads them. */
const DECODERS: Readonly<Record<string, string>> = {
	'zxing-reader.cjs': 'zxing-wasm/reader/zxing_reader.wasm',
	'webp-decoder.cjs': '@jsquash/webp/codec/dec/webp_dec.wasm',
};

/** The page on the device's screen, as its server asks for it: name in `dist/`, and the file under `src/` or of a package. */
const PAGE = [
	...Object.values(PAGE_FILES)
		.filter(({ npm }) => npm === undefined)
		.map(({ name }) => [name, `src/page/${name}`, undefined] as const),
	// Neither package exports a path to its script: each is found beside the module that it does export.
	['page/zxing-reader.js', 'zxing-wasm/reader', '../../../iife/reader/index.js'] as const,
	['page/qr.js', 'uqr', '../index.mjs'] as const,
];

/** `null` for sources outside of a checkout. */
export function commitOf(root: string): string | null {
	const { status, stdout } = spawnSync('git', ['rev-parse', 'HEAD'], { cwd: root, encoding: 'utf8' });
	return status === 0 ? stdout.trim() : null;
}

/**
 * Builds every program.
 *
 * CommonJS, because `import 'node:http'` in an ES module costs every start 26 ms and 15 MB (docs/measurements.md).
 * A module that is imported with `await import()` runs only when that line is reached, wherever it is.
 * @returns what was written, programs first.
 * @throws Error with esbuild's own words when a source is wrong, an `await` stands at the top level, or it warns.
 */
export async function bundle(options: BundleOptions): Promise<BuiltFile[]> {
	const { root, entries, outDir, singleFile = false, toolsApart = false, forDevices = true } = options;
	const { packages: held = new Set() } = options;
	const { version } = JSON.parse(await readFile(join(root, 'package.json'), 'utf8')) as { version: string };
	await rm(outDir, { recursive: true, force: true });
	await mkdir(outDir, { recursive: true });

	const shared = {
		...OPTIONS,
		absWorkingDir: root,
		define: {
			...DEFINED,
			...(forDevices ? {} : { 'URL.parse': 'parseUrl' }),
			IDV_AGENT_VERSION: JSON.stringify(version),
			IDV_AGENT_WORDS: JSON.stringify(readWords(join(PROJECT, 'src'))),
			IDV_AGENT_COMMIT: JSON.stringify(commitOf(root)),
			IDV_AGENT_TOOLS_APART: String(toolsApart),
		},
		plugins: [slimPino, clientOfWs, withoutDeflate, findNative, ...(options.readsOnly ? [withoutSchemas] : [])],
		...(forDevices ? {} : OLDER_NODE),
	};
	const write = (more: BuildOptions) => buildWithoutWarnings(more, held);
	const { client, ...programs } = entries;
	const files = Object.keys(programs).map((name) => `${name}.cjs`);
	// In applications of others: for their Node, and as an ES module too, since a bundler cannot put a `require` into one.
	const library = { ...OPTIONS, absWorkingDir: root, target: 'node18.17', banner: {} } as const;
	for (const [file, format] of client ? CLIENT_FORMATS : []) {
		await write({ ...library, format, entryPoints: [client ?? ''], outfile: join(outDir, file) });
		files.push(file);
	}
	const wanted = new Set<string>();
	await write({
		...shared,
		entryPoints: programs,
		outdir: outDir,
		outExtension: { '.js': '.cjs' },
		plugins: [...(singleFile ? [] : [leaveApart(wanted)]), ...shared.plugins],
	});
	// A set gives what is added while it is walked as well: what a part needs.
	for (const file of wanted) {
		const [name] = [...APART].find(([, apart]) => apart === file) ?? [];
		const found = `require(${JSON.stringify(name)})`;
		const exported = BY_DEFAULT.has(name ?? '') ? `Object.assign(${found}.default, ${found})` : found;
		const contents = name === 'zod' ? OWN_ZOD : `module.exports = ${exported};`;
		await write({
			...shared,
			...(name === undefined
				? { entryPoints: [join(PROJECT, PARTS.get(file) ?? '')], plugins: [leaveApart(wanted), ...shared.plugins] }
				: { stdin: { contents, resolveDir: root } }),
			outfile: join(outDir, file),
		});
	}
	// esbuild finds them in any order, and the same input is to give the same bytes.
	files.push(...[...wanted].toSorted());

	await nameBuild(files.map((file) => join(outDir, file)));

	const packages = createRequire(join(root, 'package.json'));
	const copy = async (from: string, name: string) => {
		notePackage(held, from);
		await copyFile(from, join(outDir, name));
	};
	for (const [file, decoder] of Object.entries(DECODERS)) {
		if (!singleFile && !wanted.has(file)) continue;
		await copy(packages.resolve(decoder), basename(decoder));
		files.push(basename(decoder));
	}
	if (forDevices) files.push(...(await copyDeviceFiles(packages, outDir, copy)));
	return Promise.all(
		files.map(async (file) => ({ path: join(outDir, file), bytes: (await stat(join(outDir, file))).size })),
	);
}

/** @returns the names of what was copied. */
async function copyDeviceFiles(
	packages: NodeJS.Require,
	outDir: string,
	copy: (from: string, name: string) => Promise<void>,
): Promise<string[]> {
	const bindings = dirname(dirname(packages.resolve('@serialport/bindings-cpp')));
	for (const [file, prebuilt] of Object.entries(NATIVE)) {
		await copy(join(bindings, 'prebuilds', prebuilt), file);
	}
	await mkdir(join(outDir, 'page/languages'), { recursive: true });
	for (const [name, source, place] of PAGE) {
		await copy(place ? join(packages.resolve(source), place) : join(PROJECT, source), name);
	}
	return [...Object.keys(NATIVE), ...PAGE.map(([name]) => name)];
}

/** A program knows itself by a hash of all its files: what one build has checked, another one checks again. */
async function nameBuild(paths: readonly string[]): Promise<void> {
	const hash = createHash('sha256');
	for (const path of paths) hash.update(await readFile(path));
	const build = hash.digest('hex').slice(0, BUILD_PLACE.length);
	for (const path of paths) {
		await requireOneByteText(path);
		const text = await readFile(path, 'latin1');
		if (text.includes(BUILD_PLACE)) await writeFile(path, text.replaceAll(BUILD_PLACE, build), 'latin1');
	}
}

/**
 * One character beyond Latin-1 makes V8 keep the whole program in two bytes a character: half a megabyte for months.
 * esbuild escapes them in strings and leaves them in regular expressions.
 */
async function requireOneByteText(path: string): Promise<void> {
	const found = /.{0,40}[^\0-\xff].{0,20}/.exec(await readFile(path, 'utf8'));
	if (found) throw new Error(`${basename(path)} has a character beyond Latin-1; write it as an escape: ${found[0]}`);
}

/** Stands in the built files until their hash is known, as long as that. */
const BUILD_PLACE = 'the-hash-of-this-build-goes-here';

const DEFINED = {
	IDV_AGENT_BUILD: JSON.stringify(BUILD_PLACE),
	// Node's own loads nine modules at its first use.
	'performance.now': 'monotonicNow',
	'import.meta.url': 'bundleUrl',
	'import.meta.filename': '__filename',
	'import.meta.dirname': '__dirname',
	// ws looks for native packages, which a device does not have; the packages for development may bring them.
	'process.env.WS_NO_BUFFER_UTIL': '"1"',
	'process.env.WS_NO_UTF_8_VALIDATE': '"1"',
};

const OPTIONS = {
	bundle: true,
	minify: true,
	format: 'cjs',
	platform: 'node',
	target: 'node22.19',
	// Otherwise `import()` of a file apart would start Node's loader of ES modules, for a file that is none.
	supported: { 'dynamic-import': false },
	legalComments: 'external',
	// Packages that are ES modules ask where they are; CommonJS knows it under another name.
	banner: {
		js: "const bundleUrl=require('node:url').pathToFileURL(__filename).href,monotonicNow=()=>{const[s,n]=process.hrtime();return s*1e3+n/1e6};",
	},
	logLevel: 'silent',
} as const satisfies BuildOptions;

/** The names of zod that the sources use, a fifth of it. */
const ZOD_NAMES = [
	...new Set(
		globSync('src/**/*.ts', { cwd: PROJECT })
			.flatMap((file) => [...readFileSync(join(PROJECT, file), 'utf8').matchAll(/\bz\s*\.(\w+)/g)])
			.map(([, name = '']) => name)
			.filter((name) => name in zod),
	),
].toSorted();

/** zod generates code for each object schema at its first use: 3 ms of a start, and never worth it for what is read here. */
const OWN_ZOD = `export { ${ZOD_NAMES} } from 'zod'; import { config } from 'zod'; config({ jitless: true });`;

/** Stands at the head of many files: each name is looked up when it is used, and a start uses none. */
const LATE_ZOD = `module.exports = { ${ZOD_NAMES.map((name) => `get ${name}() { return require('zod').${name}; }`)} };`;

/** @param wanted gets the files apart that the program may ask for. */
const leaveApart = (wanted: Set<string>): Plugin => ({
	name: 'leave-apart',
	setup({ onResolve, onLoad }) {
		const apart = (file: string | undefined) => {
			if (file !== undefined) wanted.add(file);
			return file === undefined ? undefined : { path: `./${file}`, external: true };
		};
		onResolve({ filter: /^zod$/ }, ({ path, namespace }) =>
			namespace === 'late' ? undefined : { path, namespace: 'late' },
		);
		onLoad({ filter: /^zod$/, namespace: 'late' }, () => ({ contents: LATE_ZOD }));
		onResolve({ filter: /^[@a-z]/ }, ({ path }) => apart(APART.get(path)));
		onResolve({ filter: /^\.\/\w+\.ts$/ }, ({ path, resolveDir, kind }) => {
			const file = basename(path).replace(/ts$/, 'cjs');
			const isPart = kind === 'dynamic-import' && join(resolveDir, path) === join(PROJECT, PARTS.get(file) ?? '');
			return isPart ? apart(file) : undefined;
		});
	},
});

const LEFT_OUT = `module.exports = function leftOut() { throw new Error('left out of this bundle'); };`;

/** Every schema of zod brings along how it is written as JSON Schema: 18 kB. */
const withoutSchemas: Plugin = {
	name: 'without-schemas',
	setup: ({ onLoad }) =>
		onLoad({ filter: /zod\/v4\/core\/(json-schema-processors|to-json-schema)\.js$/ }, () => ({ contents: LEFT_OUT })),
};

/** pino's own destinations, worker threads and redaction: the log writes to a destination of ours. */
const slimPino: Plugin = {
	name: 'slim-pino',
	setup({ onResolve, onLoad }) {
		const unused = /^(sonic-boom|thread-stream|on-exit-leak-free|@pinojs\/redact)$|\/transport$/;
		onResolve({ filter: unused }, ({ path, importer }) =>
			importer.includes('/node_modules/pino/') ? { path, namespace: 'left-out-of-pino' } : undefined,
		);
		onLoad({ filter: /./, namespace: 'left-out-of-pino' }, () => ({ contents: LEFT_OUT }));
		onResolve({ filter: /^(node:)?worker_threads$/ }, ({ path, importer }) =>
			importer.includes('/node_modules/pino/') ? { path, namespace: 'main-thread' } : undefined,
		);
		onLoad({ filter: /./, namespace: 'main-thread' }, () => ({ contents: 'module.exports = { isMainThread: true };' }));
	},
};

/** The agent opens channels and serves none. */
const clientOfWs: Plugin = {
	name: 'client-of-ws',
	setup({ onResolve, onLoad }) {
		onResolve({ filter: /^ws$/ }, ({ path, importer }) =>
			importer.includes('/src/connection/') ? { path, namespace: 'client-of-ws' } : undefined,
		);
		onLoad({ filter: /./, namespace: 'client-of-ws' }, () => ({
			contents: `exports.WebSocket = require(${JSON.stringify(join(PROJECT, 'node_modules/ws/lib/websocket.js'))});`,
			resolveDir: PROJECT,
		}));
	},
};

/** No channel is compressed: `ws` asks this part of it for its name only. */
const withoutDeflate: Plugin = {
	name: 'without-deflate',
	setup: ({ onLoad }) =>
		onLoad({ filter: /\/ws\/lib\/permessage-deflate\.js$/ }, () => ({
			contents: "exports.extensionName = 'permessage-deflate';",
		})),
};

/** In place of the search through `node_modules` that the serial library does: beside the bundle, or the executable. */
const findNative: Plugin = {
	name: 'find-native',
	setup({ onResolve, onLoad }) {
		onResolve({ filter: /^node-gyp-build$/ }, ({ path }) => ({ path, namespace: 'native' }));
		onLoad({ filter: /.*/, namespace: 'native' }, () => ({
			contents: `module.exports = () => require('node:module').createRequire(__filename)(require('node:path').join(__dirname, 'serialport-' + process.platform + '-' + process.arch + '.node'));`,
		}));
	},
};

function notePackage(held: Set<string>, file: string): void {
	const [, place] = /(?:^|\/)node_modules\/((?:.*\/node_modules\/)?(?:@[^/]+\/)?[^/]+)\//.exec(file) ?? [];
	if (place !== undefined) held.add(place);
}

async function buildWithoutWarnings(options: BuildOptions, held: Set<string>): Promise<void> {
	const { warnings, outputFiles, metafile } = await build({ ...options, write: false, metafile: true });
	// What a bundle read and left out in the end is not in it.
	for (const { inputs } of Object.values(metafile.outputs))
		for (const [file, { bytesInOutput }] of Object.entries(inputs)) if (bytesInOutput > 0) notePackage(held, file);
	const [first] = warnings;
	if (first) throw new Error(`${first.location?.file ?? 'bundle'}:${first.location?.line ?? 0}: ${first.text}`);
	for (const { path, text } of outputFiles)
		await writeFile(path, path.endsWith('.cjs') ? text.replace(COPY_OF_MODULE, VIEW_OF_MODULE) : text);
}

/**
 * esbuild copies the names of a CommonJS module into a new object for each file that imports it: a thousand getters in a start,
 * 2 ms and 0.3 MiB. An object that inherits from the module shows the same.
 */
const COPY_OF_MODULE =
	/([\w$]+)=\((\w),(\w),(\w)\)=>\(\4=\2!=null\?[\w$]+\([\w$]+\(\2\)\):\{\},[\w$]+\(\3\|\|!\2\|\|!\2\.__esModule\?[\w$]+\(\4,"default",\{value:\2,enumerable:!0\}\):\4,\2\)\)/;
const VIEW_OF_MODULE = '$1=($2,$3)=>$3||!$2.__esModule?Object.create($2,{default:{value:$2}}):$2';

/** The script is right where a place cannot be written: a sentence names it, in place of a stack trace. */
export async function buildOrTell(build: () => Promise<void>): Promise<void> {
	await build().catch((error: NodeJS.ErrnoException) => {
		if (!error.path || !/^(?:EACCES|EPERM|EROFS|ENOSPC|EDQUOT|ENOTDIR)$/.test(error.code ?? '')) throw error;
		const remedy = 'Build in a checkout that this user may write to, with room on its disk.';
		process.stderr.write(`${error.path} cannot be written: ${inWords(error)}. ${remedy}\n`);
		process.exitCode = 1;
	});
}

async function main(): Promise<void> {
	const root = resolve(import.meta.dirname, '..');
	for (const { path, bytes } of await bundle({ root, entries: ENTRIES, outDir: join(root, 'dist') }))
		process.stdout.write(`${relative(root, path).padEnd(28)}${(bytes / 1024).toFixed(0).padStart(8)} KiB\n`);
	const { writeDeclarations } = await import('./declarations.ts');
	await writeDeclarations(root);
}

if (process.argv[1] !== undefined && realpathSync(process.argv[1]) === import.meta.filename) void buildOrTell(main);
