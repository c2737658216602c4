import { globSync, readFileSync } from 'node:fs';
import { dirname, join, normalize, resolve } from 'node:path';
import { describe, expect, test } from 'vitest';
import { type Import, readImports, withoutComments } from './imports.ts';

const src = resolve(import.meta.dirname, '../../src');

interface SourceFile {
	/** Path under `src/`. */
	readonly path: string;
	/** `protocol`, `core`, … */
	readonly place: string;
	readonly source: string;
	readonly imports: readonly Import[];
}

const FILES: readonly SourceFile[] = globSync('**/*.ts', { cwd: src })
	.toSorted()
	.map((path) => {
		const source = readFileSync(join(src, path), 'utf8');
		return { path, place: path.split('/')[0] ?? '', source, imports: readImports(source) };
	});

/** Which places each place may import, besides files of its own; `node` and `npm` stand for everything outside. */
const MAY_IMPORT: Readonly<Record<string, readonly string[]>> = {
	protocol: ['zod'],
	core: ['protocol', 'zod'],
	edges: ['protocol', 'core', 'zod', 'npm', 'node'],
	agent: ['protocol', 'core', 'edges', 'zod', 'npm', 'node'],
	service: ['protocol', 'zod', 'npm', 'node'],
	cli: ['protocol', 'core', 'edges', 'agent', 'service', 'zod', 'npm', 'node', 'package.json'],
};

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

/** An edge is a file, or a directory of files that belong together. */
const edgeOf = (path: string) => path.split('/')[1];

function isAllowed(file: SourceFile, specifier: string): boolean {
	const { place, path } = target(file, specifier);
	if (place === file.place) return file.place !== 'edges' || path === null || edgeOf(path) === edgeOf(file.path);
	return MAY_IMPORT[file.place]?.includes(place) ?? false;
}

/** Lines that break a rule, as `path: what`; empty when all is well. */
function findAll(files: readonly SourceFile[], find: (file: SourceFile) => readonly string[]): string[] {
	return files.flatMap((file) => find(file).map((what) => `${file.path}: ${what}`));
}

const matches = (text: string, pattern: RegExp) => [...text.matchAll(pattern)].map(([match]) => match);

describe('the floors', () => {
	test('every source file stands in a known place', () => {
		expect(FILES.length).toBeGreaterThan(10);
		expect(FILES.filter(({ place }) => !(place in MAY_IMPORT)).map(({ path }) => path)).toEqual([]);
	});

	test('imports point down only, no edge imports another, and the service shares the protocol only', () => {
		const forbidden = findAll(FILES, (file) =>
			file.imports.filter(({ specifier }) => !isAllowed(file, specifier)).map(({ statement }) => statement),
		);
		expect(forbidden).toEqual([]);
	});

	test('modules of Node are named with `node:`', () => {
		const bare = findAll(FILES, ({ imports }) =>
			imports
				.map(({ specifier }) => specifier)
				.filter((name) => process.getBuiltinModule(name) && !name.startsWith('node:')),
		);
		expect(bare).toEqual([]);
	});

	test('protocol and core have no clock, no chance, no timers, no output and no machine', () => {
		const outside =
			/\bDate\.now\(|\bnew Date\(\s*\)|\bDate\(\s*\)|\bMath\.random\b|\bset(?:Timeout|Interval|Immediate)\b|\bqueueMicrotask\b|\bconsole\.|\bperformance\.|\bprocess\.|\bglobalThis\b|\bBuffer\b|\bcrypto\.|\bfetch\(/g;
		const pure = FILES.filter(({ place }) => place === 'protocol' || place === 'core');
		expect(findAll(pure, ({ source }) => matches(withoutComments(source), outside))).toEqual([]);
	});
});

describe('what a device loads when it starts', () => {
	/** What costs milliseconds and megabytes, and is needed seldom: imported where it is needed, when it is needed. */
	const HEAVY = ['undici', 'systeminformation', 'macaddress', 'zxing-wasm', 'jose', 'conf', 'commander', '@serialport'];

	/** Files that are loaded together with `src/agent`, each with the way that led there. */
	function loadedWithTheAgent(): Map<SourceFile, string> {
		const byPath = new Map(FILES.map((file) => [file.path, file]));
		const found = new Map(FILES.filter(({ place }) => place === 'agent').map((file) => [file, file.path]));
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
	const TABLES = ['core/errors.ts'];

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
			const names = path.replace(/\.ts$/, '').split('/');
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
		const waits = FILES.filter(({ path }) => !path.startsWith('cli/build/'));
		expect(
			findAll(waits, ({ source }) => matches(withoutComments(source), /^(?:(?:export )?const .*= )?await\b.*/gm)),
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

	test('the rules refuse what they should', () => {
		const edge: SourceFile = { path: 'edges/one.ts', place: 'edges', source: '', imports: [] };
		expect(isAllowed(edge, './two.ts')).toBe(false);
		expect(isAllowed(edge, '../agent/run.ts')).toBe(false);
		expect(isAllowed(edge, '../core/errors.ts')).toBe(true);
		expect(isAllowed({ ...edge, path: 'edges/page/one.ts' }, './two.ts')).toBe(true);
		const core: SourceFile = { ...edge, path: 'core/one.ts', place: 'core' };
		expect(['node:fs', 'ws', '../edges/one.ts', '../../package.json'].filter((name) => isAllowed(core, name))).toEqual(
			[],
		);
		const service: SourceFile = { ...edge, path: 'service/one.ts', place: 'service' };
		expect(isAllowed(service, '../core/errors.ts')).toBe(false);
		expect(
			FILES.filter(({ place }) => place !== 'cli').some((file) =>
				isAllowed(file, `${'../'.repeat(file.path.split('/').length - 1)}cli/idv.ts`),
			),
		).toBe(false);
	});
});
