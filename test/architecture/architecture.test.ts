import { globSync, readFileSync } from 'node:fs';
import { dirname, join, normalize, resolve } from 'node:path';
import { describe, expect, test } from 'vitest';
import { type Import, readImports, withoutComments } from './imports.ts';

const src = resolve(import.meta.dirname, '../../src');

/**
 * The capabilities, each of which imports only itself and those before it. docs/architecture.md says in a sentence what each
 * is; a test below holds the two together.
 */
const ORDER = [
	'protocol',
	'base',
	'client',
	'settings',
	'state',
	'audit',
	'identity',
	'connection',
	'events',
	'fleet',
	'updates',
	'workflow',
	'status',
	'pairing',
	'provisioning',
	'agent',
	'scanning',
	'telemetry',
	'local-api',
	'hooks',
	'page',
	'simulation',
	'service',
	'diagnosis',
	'daemon',
	'cli',
	'operator',
];

/**
 * What a file may do, as its name says: `x.ts` decides (pure), `x.edge.ts` touches one thing of the machine, `x.runner.ts`
 * drives decisions against edges. The files that bundles begin with are named for their programs.
 */
type Kind = 'decision' | 'edge' | 'runner' | 'program';
const PROGRAMS = [
	...['idv-agent', 'run', 'commands', 'tools', 'trial', 'update-root'].map((name) => `cli/${name}.ts`),
	...['operator/idv.ts', 'service/testing.ts'],
];

/** Files, variables and sockets of this program, records of its logs, and the trial service, whose bodies have 64 KiB. */
const OWN_JSON =
	/^(?:protocol\/json|base\/(?:log\.edge|json-text|checked\.edge|documents\.edge)|audit\/audit\.runner|events\/(?:stored-event|erasure|feed\.runner)|status\/history\.runner|state\/document\.edge|connection\/line-file\.edge|pairing\/kept-answer\.edge|provisioning\/files\.edge|hooks\/hooks\.runner|workflow\/lease-file\.edge|cli\/(?:demo|audit|events|local-agent|version)\.runner|operator\/probe\.runner|service\/http-call\.runner)\.ts$/;

interface SourceFile {
	/** Path under `src/`. */
	readonly path: string;
	/** The capability: `protocol`, `connection`, … */
	readonly place: string;
	readonly kind: Kind;
	readonly source: string;
	readonly imports: readonly Import[];
}

function kindOf(path: string): Kind {
	if (PROGRAMS.includes(path)) return 'program';
	if (path.endsWith('.runner.ts')) return 'runner';
	return path.endsWith('.edge.ts') ? 'edge' : 'decision';
}

const sourceFile = (path: string, source: string): SourceFile => ({
	path,
	place: path.split('/')[0] ?? '',
	kind: kindOf(path),
	source,
	imports: readImports(source),
});

const FILES: readonly SourceFile[] = globSync('**/*.ts', { cwd: src })
	.toSorted()
	.map((path) => sourceFile(path, readFileSync(join(src, path), 'utf8')));

/** Where an import leads: a path under `src/`, or one of `node`, `zod`, `npm`, `package.json`, `outside`. */
function target(file: SourceFile, specifier: string): { place: string; path: string | null } {
	if (specifier.startsWith('.')) {
		const path = normalize(join(dirname(file.path), specifier));
		if (path === '../package.json') return { place: 'package.json', path: null };
		if (path.startsWith('..')) return { place: 'outside', path: null };
		return { place: path.split('/')[0] ?? '', path };
	}
	if (specifier.startsWith('node:')) return { place: 'node', path: null };
	return { place: specifier === 'zod' || specifier.startsWith('zod/') ? 'zod' : 'npm', path: null };
}

/** Why a file may not have an import; `null` when it may. A type is gone when the program runs: only the order binds it. */
function whyForbidden(file: SourceFile, { specifier, kind }: Import): string | null {
	const { place, path } = target(file, specifier);
	if (path === null) {
		if (place === 'zod' || kind === 'type') return null;
		if (file.kind === 'decision') return `a decision imports ${specifier}`;
		if (place === 'outside') return `it is outside src/: ${specifier}`;
		return place === 'package.json' && file.kind !== 'program' ? 'only a program reads package.json' : null;
	}
	const imported = kindOf(path);
	if (!ORDER.includes(place)) return `no capability is called ${place}`;
	if (ORDER.indexOf(place) > ORDER.indexOf(file.place)) return `${place} comes after ${file.place}`;
	if (file.place === 'service' && place !== 'service' && place !== 'protocol' && place !== 'base')
		return `the embedded service shares the protocol only, not ${place}`;
	if (kind === 'type') return null;
	if (file.kind === 'decision' && imported !== 'decision') return `a decision imports a ${imported}: ${path}`;
	if (file.kind === 'edge' && imported === 'runner') return `an edge imports a runner: ${path}`;
	if (file.kind === 'edge' && imported === 'edge' && place !== file.place && place !== 'base')
		return `an edge imports the edge of another capability: ${path}`;
	return null;
}

/** Files that import each other in a loop, by value or by type, each loop once as `a > b > a`. */
function circlesIn(files: readonly SourceFile[]): string[] {
	const byPath = new Map(files.map((file) => [file.path, file]));
	const done = new Set<string>();
	const circles: string[] = [];
	const walk = (path: string, way: readonly string[]) => {
		const at = way.indexOf(path);
		if (at >= 0) circles.push([...way.slice(at), path].join(' > '));
		if (at >= 0 || done.has(path)) return;
		for (const { specifier } of byPath.get(path)?.imports ?? []) {
			const next = target(byPath.get(path) as SourceFile, specifier).path;
			if (next !== null && byPath.has(next)) walk(next, [...way, path]);
		}
		done.add(path);
	};
	for (const { path } of files) walk(path, []);
	return circles;
}

/** Lines that break a rule, as `path: what`; empty when all is well. */
function findAll(files: readonly SourceFile[], find: (file: SourceFile) => readonly string[]): string[] {
	return files.flatMap((file) => find(file).map((what) => `${file.path}: ${what}`));
}

const matches = (text: string, pattern: RegExp) => [...text.matchAll(pattern)].map(([match]) => match);

/** What a decision may not do: time, chance, timers, output and the machine come in as parameters. */
const MACHINE =
	/\bDate\.now\(|\bnew Date\(\s*\)|\bDate\(\s*\)|\bMath\.random\b|\bset(?:Timeout|Interval|Immediate)\b|\bqueueMicrotask\b|\bconsole\.|\bperformance\.|\bprocess\.|\bglobalThis\b|\bBuffer\b|\bcrypto\.|\bfetch\(/g;

const forbiddenIn = (files: readonly SourceFile[]) =>
	findAll(files, (file) => file.imports.map((found) => whyForbidden(file, found)).filter((why) => why !== null));
const machineIn = (files: readonly SourceFile[]) =>
	findAll(
		files.filter(({ kind }) => kind === 'decision'),
		({ source }) => matches(withoutComments(source), MACHINE),
	);

describe('the order of the capabilities, and the kinds of files', () => {
	test('every source file belongs to a capability', () => {
		expect(FILES.length).toBeGreaterThan(100);
		expect(FILES.filter(({ place }) => !ORDER.includes(place)).map(({ path }) => path)).toEqual([]);
	});

	test('a capability imports only those before it; decisions, edges and runners import what they may', () => {
		expect(forbiddenIn(FILES)).toEqual([]);
	});

	test('docs/architecture.md lists the capabilities in this order', () => {
		const page = readFileSync(resolve(src, '../docs/architecture.md'), 'utf8');
		const [, table = ''] = page.split('## The order of the folders');
		const listed = [...(table.split('\n## ')[0] ?? '').matchAll(/^\| `([\w-]+)` \| .+\. \|$/gm)].map(
			([, name]) => name,
		);
		expect(listed).toEqual(ORDER);
	});

	test('no files import each other in a circle', () => {
		expect(circlesIn(FILES)).toEqual([]);
	});

	test('bytes from outside are parsed by parseJson, which has bounds; JSON.parse is for what this program has written itself', () => {
		const others = FILES.filter(
			({ path, source }) => !OWN_JSON.test(path) && withoutComments(source).includes('JSON.parse('),
		);
		expect(others.map(({ path }) => path)).toEqual([]);
	});

	test('modules of Node are named with `node:`', () => {
		const bare = findAll(FILES, ({ imports }) =>
			imports
				.map(({ specifier }) => specifier)
				.filter((name) => process.getBuiltinModule(name) && !name.startsWith('node:')),
		);
		expect(bare).toEqual([]);
	});

	test('decisions have no clock, no chance, no timers, no output and no machine', () => {
		expect(machineIn(FILES)).toEqual([]);
	});

	test.each([
		['an import from a later capability', 'state/x.ts', "import { a } from '../fleet/targeting.ts';"],
		['a type from a later capability', 'base/x.ts', "import type { A } from '../status/status.ts';"],
		['an edge in a decision', 'state/x.ts', "import { a } from './store.edge.ts';"],
		['a runner in a decision', 'state/x.ts', "import { a } from './persisted-state.runner.ts';"],
		['a module of Node in a decision', 'state/x.ts', "import { join } from 'node:path';"],
		['a package in a decision', 'state/x.ts', "import { pino } from 'pino';"],
		['a runner in an edge', 'state/x.edge.ts', "import { a } from './persisted-state.runner.ts';"],
		['the edge of another capability in an edge', 'events/x.edge.ts', "import { a } from '../state/store.edge.ts';"],
		['the agent in the embedded service', 'service/x.ts', "import { a } from '../state/device-state.ts';"],
		['package.json in an edge', 'state/x.edge.ts', "import p from '../../package.json';"],
	])('refuses %s', (_, path, source) => {
		expect(forbiddenIn([sourceFile(path, source)])).toHaveLength(1);
	});

	test.each([
		['base in an edge', 'events/x.edge.ts', "import { a } from '../base/log.edge.ts';"],
		['an edge in a runner', 'fleet/x.runner.ts', "import { a } from '../state/store.edge.ts';"],
		['the type of an edge in a decision', 'state/x.ts', "import type { A } from './store.edge.ts';"],
		['zod in a decision', 'state/x.ts', "import * as z from 'zod';"],
	])('permits %s', (_, path, source) => {
		expect(forbiddenIn([sourceFile(path, source)])).toEqual([]);
	});

	test('refuses a clock in a decision, and a circle', () => {
		expect(machineIn([sourceFile('link/x.ts', 'const now = Date.now();')])).toEqual(['link/x.ts: Date.now(']);
		expect(machineIn([sourceFile('link/x.edge.ts', 'const now = Date.now();')])).toEqual([]);
		const circle = [
			sourceFile('base/a.ts', "import { b } from './b.ts';"),
			sourceFile('base/b.ts', "import type { A } from './a.ts';"),
		];
		expect(circlesIn(circle)).toEqual(['base/a.ts > base/b.ts > base/a.ts']);
	});
});

describe('what a device loads when it starts', () => {
	/** What costs milliseconds and megabytes, and is needed seldom: imported where it is needed, when it is needed. */
	const HEAVY = ['systeminformation', 'macaddress', 'zxing-wasm', 'jose', 'conf', 'commander', '@serialport'];

	/** Files that are loaded when the daemon starts, each with the way that led there. */
	function loadedWithTheAgent(): Map<SourceFile, string> {
		const byPath = new Map(FILES.map((file) => [file.path, file]));
		const found = new Map(
			FILES.filter(({ place }) => place === 'daemon' || place === 'agent').map((file) => [file, file.path]),
		);
		// Entries that are added while the map is walked are walked as well.
		for (const [file, way] of found)
			for (const { specifier, kind } of file.imports) {
				const next = kind === 'static' ? byPath.get(target(file, specifier).path ?? '') : undefined;
				if (next && !found.has(next)) found.set(next, `${way} > ${next.path}`);
			}
		return found;
	}

	test('no heavy package, unless something asks for it', () => {
		const heavy = [...loadedWithTheAgent()].flatMap(([file, way]) =>
			file.imports
				.filter(({ specifier, kind }) => kind === 'static' && HEAVY.includes(specifier.split('/')[0] ?? ''))
				.map(({ specifier }) => `${way} > ${specifier}`),
		);
		expect(heavy).toEqual([]);
	});

	test('not the schemas of answers: they are for the document, which a device is seldom asked for', () => {
		const loaded = [...loadedWithTheAgent()].map(([{ path }, way]) => ({ path, way }));
		const document = ['protocol/local-answers.ts', 'local-api/openapi.ts'];
		expect(loaded.filter(({ path }) => document.includes(path))).toEqual([]);
	});

	test('zod as a namespace: the named import costs 10 ms and 5 MB more', () => {
		const named = findAll(FILES, ({ imports }) =>
			imports
				.filter(({ specifier, kind }) => specifier === 'zod' && kind === 'static')
				.map(({ statement }) => statement)
				.filter((statement) => !/^import \* as z from/.test(statement)),
		);
		expect(named).toEqual([]);
	});
});

describe('the look of a file', () => {
	/** Tables that a reader looks one row up in; to cut them in two would only make the row harder to find. */
	const TABLES = ['base/errors.ts'];

	test('no file is longer than 400 lines', () => {
		const long = FILES.filter(({ path }) => !TABLES.includes(path))
			.map(({ path, source }) => ({ path, lines: source.trimEnd().split('\n').length }))
			.filter(({ lines }) => lines > 400)
			.map(({ path, lines }) => `${path}: ${lines} lines`);
		expect(long).toEqual([]);
	});

	test('every file begins by saying what it owns', () => {
		const silent = FILES.filter(({ source }) => !source.replace(/^#!.*\n/, '').startsWith('/**')).map(
			({ path }) => path,
		);
		expect(silent).toEqual([]);
	});

	test('names are kebab-case and say something', () => {
		const empty = /^(?:utils?|helpers?|managers?|common|misc|shared)$/;
		const bad = FILES.filter(({ path }) => {
			const names = path.replace(/(\.edge|\.runner|\.d)?\.ts$/, '').split('/');
			return names.some(
				(name) => !/^[a-z0-9]+(?:-[a-z0-9]+)*$/.test(name) || name.split('-').some((word) => empty.test(word)),
			);
		});
		expect(bad.map(({ path }) => path)).toEqual([]);
	});

	test('nothing is called a manager, a helper or a utility', () => {
		const declared =
			/\b(?:class|function|const|let|interface|type)\s+(?:\w*(?:Manager|Helper|Util)s?|(?:manager|helper|util)s?)\b/g;
		expect(findAll(FILES, ({ source }) => matches(withoutComments(source), declared))).toEqual([]);
	});

	test('nothing waits at the top level: the bundle is CommonJS', () => {
		expect(
			findAll(FILES, ({ source }) => matches(withoutComments(source), /^(?:(?:export )?const .*= )?await\b.*/gm)),
		).toEqual([]);
	});
});

describe('the reader of imports', () => {
	test('finds every form', () => {
		const source = `
import './side-effect.ts';
import a from 'a';
import * as b from "b";
import c, { type C } from 'c';
import {
	d,
	type D,
} from 'd';
import type { E } from 'e';
export { f } from 'f';
export * from 'g';
export type { H } from 'h';
const i = await import('i');
const j = process.getBuiltinModule('node:j');
function k() { return require("k"); }
`;
		expect(readImports(source).map(({ specifier, kind }) => `${kind} ${specifier}`)).toEqual([
			'static ./side-effect.ts',
			'static a',
			'static b',
			'static c',
			'static d',
			'type e',
			'static f',
			'static g',
			'type h',
			'dynamic i',
			'dynamic node:j',
			'dynamic k',
		]);
	});

	test('passes over comments, and over strings that look like one', () => {
		const source = `
// import a from 'a';
/* import b from 'b'; */
/**
 * import c from 'c';
 */
const url = 'https://example.com'; // import('d')
export const text = "it's from 'e'";
import f from 'f'; // why
`;
		expect(readImports(source).map(({ specifier }) => specifier)).toEqual(['f']);
	});
});
