/**
 * `npm run suite -- clients-matrix`: the packages for npm in projects of others. Installed by each package manager under each Node, imported
 * as a module and as CommonJS; typed strictly in each form of TypeScript's resolution; used in each runner of tests. In each the Node of
 * the project is what it was. `--short` takes the newest and the oldest of each.
 */
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { cp, mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, delimiter, join } from 'node:path';
import { promisify } from 'node:util';
import { buildNpmPackages } from '../../../scripts/npm-packages.ts';

const HERE = import.meta.dirname;
const TOOLS = join(HERE, 'node_modules');
const isShort = process.argv.includes('--short');
const ends = <Value>(all: readonly Value[]): readonly Value[] =>
	isShort ? [all[0], all.at(-1)].flatMap((one) => one ?? []) : all;

const NODES = ['node20', 'node22', 'node24', 'node26'];
const binOf = (node: string) => join(TOOLS, node, 'bin');

type Outcome = { readonly kind: 'works' } | { readonly kind: 'fails'; readonly why: string };

/** A program under a Node of the table, with nothing of this process's own npm. @throws Error with its output. */
async function run(node: string, project: string, ...[program = '', ...args]: readonly string[]): Promise<string> {
	const path = [binOf(node), '/usr/bin', '/bin'].join(delimiter);
	const env = {
		PATH: path,
		HOME: project,
		CI: '1',
		YARN_CACHE_FOLDER: join(project, '.yarn'),
		NO_UPDATE_NOTIFIER: '1',
	};
	const { stdout } = await promisify(execFile)(program, args, { cwd: project, env, timeout: 120_000 }).catch(
		(error: { stdout: string; stderr: string; message: string }) => {
			throw new Error(`${basename(program)}: ${error.stderr || error.stdout || error.message}`);
		},
	);
	return stdout;
}

/** A directory of its own, with a name that shells and URLs have to quote. */
async function inProject(work: (project: string) => Promise<void>): Promise<Outcome> {
	const top = await mkdtemp(join(tmpdir(), 'idv-matrix-'));
	const project = join(top, 'Büro und Kiosk');
	try {
		await mkdir(project);
		await work(project);
		return { kind: 'works' };
	} catch (error) {
		return { kind: 'fails', why: String(error).slice(0, 600) };
	} finally {
		await rm(top, { recursive: true, force: true });
	}
}

const MANAGERS: Readonly<Record<string, (files: readonly string[]) => readonly [script: string, ...args: string[]]>> = {
	npm9: (files) => ['npm9/bin/npm-cli.js', 'install', '--offline', '--no-audit', ...files],
	npm10: (files) => ['npm10/bin/npm-cli.js', 'install', '--offline', '--no-audit', ...files],
	npm11: (files) => ['npm11/bin/npm-cli.js', 'install', '--offline', '--no-audit', ...files],
	pnpm: (files) => ['pnpm/bin/pnpm.cjs', 'add', '--offline', '--store-dir', '.store', ...files],
	yarn: (files) => ['yarn/bin/yarn.js', 'add', '--offline', ...files.map((file) => `file:${file}`)],
	bun: (files) => ['@oven/bun-linux-x64/bin/bun', 'add', ...files],
};

// One signal for two calls: older Nodes refuse what newer ones take.
const SAME = `const client = createClient({ socketPath: '/nowhere' });
const { signal } = new AbortController();
const call = () => client.service('x', { signal }).catch(({ code }) => console.log(code));
startService({ selfRegistration: true }).then(async (service) => { await call(); await call(); await service.close(); console.log(typeof client.status, process.version); });`;
const USES = {
	'use.mjs': `import { createClient } from 'idv-agent/client'; import { startService } from 'idv-agent/testing'; ${SAME}`,
	'use.cjs': `const { createClient } = require('idv-agent/client'); const { startService } = require('idv-agent/testing'); ${SAME}`,
};

/** Installs both packages, imports them, and looks whether the project's scripts have another Node than before. */
function installed(manager: string, node: string, packages: readonly string[]): Promise<Outcome> {
	return inProject(async (project) => {
		const manifest = { name: 'kiosk', version: '1.0.0', private: true, scripts: { which: 'node --version' } };
		await writeFile(join(project, 'package.json'), JSON.stringify(manifest));
		// The operator's command says in its package that it needs a newer Node, and yarn refuses it under an older one.
		const runs = node !== 'node20';
		const wanted = packages.filter((file) => runs || /^idv-agent/.test(basename(file)));
		const [script, ...args] = MANAGERS[manager]?.(wanted) ?? [''];
		const tool = join(TOOLS, script);
		const words = script.startsWith('@') ? [tool] : ['node', tool];
		const before = await run(node, project, 'node', '--version');
		await run(node, project, ...words, ...args);
		const after = await run(node, project, ...words, 'run', 'which');
		if (!after.includes(before.trim())) throw new Error(`node --version was ${before}, is ${after}`);
		for (const [file, text] of Object.entries(USES)) {
			await writeFile(join(project, file), text);
			const said = await run(node, project, 'node', file);
			if (said !== `agent-not-running\nagent-not-running\nfunction ${before}`) throw new Error(`${file} says ${said}`);
		}
		const command = run(node, project, 'node', 'node_modules/idv-agent/bin/idv-agent', 'service', '--help');
		const told = await command.catch(String);
		if (!(runs ? /^Usage: idv-agent service/ : /needs Node 22\.19 or newer/).test(told))
			throw new Error(`idv-agent service says ${told}`);
	});
}

const TYPED = `import { createClient, type AgentClient, type Status } from 'idv-agent/client';
import { startService, type EmbeddedService } from 'idv-agent/testing';
export async function main(): Promise<void> {
	const service: EmbeddedService = await startService({ selfRegistration: true });
	service.failNext('/api/x', { status: 503 }, 2);
	const client: AgentClient = createClient({ socketPath: '/nowhere' });
	const status: Status = await client.status();
	const wanted: string | null = status.workflow.wanted;
	// @ts-expect-error it may be null
	const length: number = status.workflow.wanted.length;
	// @ts-expect-error there is no such setting
	createClient({ socket: '/nowhere' });
	for await (const event of client.events({ consumer: 'a' })) console.log(event.kind, wanted, length);
	await service.close();
}
`;

/** The packages of the project, unpacked; and what every TypeScript project has. */
async function unpack(project: string, packages: readonly string[], others: readonly string[] = []): Promise<void> {
	for (const file of packages) {
		const into = join(project, 'node_modules', /^idv-agent/.test(basename(file)) ? 'idv-agent' : 'idv');
		await mkdir(into, { recursive: true });
		await run('node26', project, 'tar', '-xzf', file, '-C', into, '--strip-components=1');
	}
	for (const name of others) {
		await mkdir(join(project, 'node_modules', name, '..'), { recursive: true });
		await symlink(join(TOOLS, name), join(project, 'node_modules', name));
	}
}

function typed(resolution: string, skipLibCheck: boolean, file: string, packages: readonly string[]): Promise<Outcome> {
	return inProject(async (project) => {
		await unpack(project, packages);
		for (const name of ['@types/node', 'undici-types'])
			await cp(join(TOOLS, name), join(project, 'node_modules', name), { recursive: true });
		const forms = resolution === 'bundler' ? { module: 'preserve', moduleResolution: 'bundler' } : { module: 'node16' };
		const options = {
			strict: true,
			target: 'es2022',
			lib: ['es2022'],
			types: ['node'],
			noEmit: true,
			skipLibCheck,
			...forms,
		};
		await writeFile(join(project, 'tsconfig.json'), JSON.stringify({ compilerOptions: options, files: [file] }));
		await writeFile(join(project, file), TYPED);
		await run('node26', project, 'node', join(TOOLS, 'typescript/bin/tsc'), '-p', '.');
	});
}

const CALLS = `const service = await startService({ selfRegistration: true });
	service.failNext('/api/device/connection', { status: 503 }, 1);
	const answer = await fetch(service.url + '/api/device/connection', { method: 'POST' });
	await service.close();
	if (answer.status !== 503) throw new Error('answered ' + answer.status);`;
const BOTH = `const { createClient } = require('idv-agent/client'); const { startService } = require('idv-agent/testing');
test('a backend', async () => { ${CALLS} createClient({ socketPath: '/nowhere' }); });`;
const RUNNERS: Readonly<
	Record<string, { readonly file: string; readonly text: string; readonly words: readonly string[] }>
> = {
	'node:test': {
		file: 'backend.test.cjs',
		text: `const { test } = require('node:test'); ${BOTH}`,
		words: ['--test', 'backend.test.cjs'],
	},
	mocha: {
		file: 'backend.spec.cjs',
		text: BOTH.replace('test(', 'it('),
		words: ['mocha/bin/mocha.js', 'backend.spec.cjs'],
	},
	jest: { file: 'backend.test.js', text: BOTH, words: ['jest/bin/jest.js'] },
	vitest: {
		file: 'backend.test.mjs',
		text: `import { test } from 'vitest'; import { createClient } from 'idv-agent/client'; import { startService } from 'idv-agent/testing';
test('a backend', async () => { ${CALLS} createClient({ socketPath: '/nowhere' }); });`,
		words: ['vitest/vitest.mjs', 'run'],
	},
};

function tested(name: string, node: string, packages: readonly string[]): Promise<Outcome> {
	return inProject(async (project) => {
		const runner = RUNNERS[name];
		if (!runner) throw new Error('no such runner');
		await unpack(project, packages, name === 'node:test' ? [] : [name]);
		await writeFile(join(project, 'package.json'), '{"name":"backend","private":true}');
		await writeFile(join(project, runner.file), runner.text);
		const [first = '', ...rest] = runner.words;
		await run(node, project, 'node', first.startsWith('-') ? first : join(TOOLS, first), ...rest);
	});
}

interface Cell {
	readonly row: string;
	readonly column: string;
	readonly outcome: Outcome;
}

/** One after the other: two compilers and two browsers of modules on two cores only wait for each other. */
async function table(
	title: string,
	rows: readonly string[],
	columns: readonly string[],
	work: (row: string, column: string) => Promise<Outcome>,
): Promise<readonly Cell[]> {
	const cells: Cell[] = [];
	console.log(`\n| ${title} | ${columns.join(' | ')} |\n|${'---|'.repeat(columns.length + 1)}`);
	for (const row of rows) {
		for (const column of columns) cells.push({ row, column, outcome: await work(row, column) });
		const words = cells
			.filter((cell) => cell.row === row)
			.map(({ outcome }) => (outcome.kind === 'works' ? 'yes' : '**no**'));
		console.log(`| ${row} | ${words.join(' | ')} |`);
	}
	return cells;
}

const beganMs = performance.now();
if (!existsSync(join(TOOLS, 'vitest')))
	await promisify(execFile)('npm', ['ci', '--ignore-scripts', '--no-audit', '--prefer-offline'], { cwd: HERE });
const built = await mkdtemp(join(tmpdir(), 'idv-matrix-packages-'));
const packages = await buildNpmPackages(join(built, 'npm'));
const forms = ['node16', 'bundler'].flatMap((resolution) => [`${resolution}`, `${resolution}, skipLibCheck`]);
const cells = [
	...(await table('installed by', ends(Object.keys(MANAGERS)), ends(NODES), (manager, node) =>
		installed(manager, node, packages),
	)),
	...(await table('TypeScript, strict', ends(forms), ['use.mts', 'use.cts'], (form, file) =>
		typed(form.split(',')[0] ?? '', form.includes('skipLibCheck'), file, packages),
	)),
	...(await table('tests by', ends(Object.keys(RUNNERS)), ends(NODES), (name, node) => tested(name, node, packages))),
];
await rm(built, { recursive: true, force: true });
const failed = cells.filter(({ outcome }) => outcome.kind === 'fails');
for (const { row, column, outcome } of failed)
	console.error(`\n${row}, ${column}: ${outcome.kind === 'fails' ? outcome.why : ''}`);
console.log(
	`\n${cells.length - failed.length} of ${cells.length} work, in ${Math.round((performance.now() - beganMs) / 1000)} s`,
);
process.exitCode = failed.length > 0 ? 1 : 0;
