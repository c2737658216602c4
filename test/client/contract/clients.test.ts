/** Clients that others generate from docs/openapi.json, and the package's own libraries: compiled strictly, and run against an agent. */
import { cp, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { buildNpmPackages } from '../../../scripts/npm-packages.ts';
import { givenPairedAgent } from '../../harness/harness.ts';
import { givenService } from '../../service/fixture.ts';
import { run } from './run.ts';

const HERE = import.meta.dirname;
const ROOT = resolve(HERE, '../../..');
const tool = (name: string, ...args: string[]) => run(join(HERE, 'node_modules/.bin', name), args, HERE);

test('redocly lint finds nothing, not even a warning', async () => {
	const said = await tool('redocly', 'lint', join(ROOT, 'docs/openapi.json'), '--format=json');
	expect(JSON.parse(said.slice(said.indexOf('{')))).toMatchObject({ totals: { errors: 0, warnings: 0 } });
});

let packages: readonly string[] = [];
beforeAll(async () => {
	packages = await buildNpmPackages(await mkdtemp(join(tmpdir(), 'idv-agent-packages-')));
	return () => rm(dirname(packages[0] ?? ''), { recursive: true, force: true });
});

describe('generated clients', () => {
	beforeAll(async () => {
		const document = join(ROOT, 'docs/openapi.json');
		await rm(join(HERE, 'made'), { recursive: true, force: true });
		await tool('openapi-typescript', document, '-o', 'made/openapi-typescript.ts');
		await tool('openapi-ts', '-i', document, '-o', 'made/hey-api', '--no-log-file');
		await tool('tsc', '-p', '.');
	});

	test.each(['with-openapi-fetch', 'with-hey-api'])('%s asks a running agent', async (name) => {
		const service = await givenService();
		const device = await givenPairedAgent(service);
		service.notify({ type: 'hello', id: 'n-1' });
		await device.untilEvent(({ kind }) => kind === 'hello');
		const socket = join(device.home.paths.runDir, 'agent.sock');
		const said = await run(process.execPath, [join(HERE, `made/js/${name}.js`), socket], HERE);
		expect(JSON.parse(said)).toEqual({
			wanted: 'check-in',
			hello: { type: 'hello', id: 'n-1' },
			position: true,
			leases: ['generated'],
			refusal: 'body-invalid',
			stream: true,
		});
	});
});

/** The packages for npm, installed into an empty project, as a developer does. */
async function givenProject(): Promise<string> {
	const project = await mkdtemp(join(tmpdir(), 'idv-agent-project-'));
	onTestFinished(() => rm(project, { recursive: true, force: true }));
	const script = 'node --version && command -v node';
	await writeFile(join(project, 'package.json'), JSON.stringify({ private: true, scripts: { script } }));
	await run('npm', ['install', '--save-dev', '--offline', '--no-audit', ...packages], project);
	return project;
}

const USE = `
async function main(): Promise<void> {
	const service: EmbeddedService = await startService({ selfRegistration: true });
	service.failNext('/api/x', { status: 503 }, 2);
	const client: AgentClient = createClient({ socketPath: process.argv[2] ?? '' });
	const status: Status = await client.status();
	const wanted: string | null = status.workflow.wanted;
	// @ts-expect-error it may be null
	const unchecked = () => status.workflow.wanted.length;
	for await (const event of client.events({ consumer: 'packed' })) {
		const kind: string = event.kind;
		if (kind === 'hello') break;
	}
	console.log(JSON.stringify({ wanted, url: service.url.startsWith('http://127.0.0.1:') }));
	await service.close();
}
void main();
`;

test('a checkout is not packed, and says what is', async () => {
	const packing = run('npm', ['pack', '--dry-run'], ROOT);
	await expect(packing).rejects.toThrow('"npm run build:npm" makes build/npm/idv-agent-VERSION.tgz');
});

test('installed packages bring no other package, no script and no Node to the project', async () => {
	const project = await givenProject();
	const installed = (await readdir(join(project, 'node_modules'))).toSorted();
	expect(installed).toEqual(['.bin', '.package-lock.json', 'idv', 'idv-agent']);
	expect((await readdir(join(project, 'node_modules/.bin'))).toSorted()).toEqual(['idv', 'idv-agent']);
	const manifest = JSON.parse(await readFile(join(project, 'node_modules/idv-agent/package.json'), 'utf8'));
	expect(Object.keys(manifest).filter((name) => /scripts|dependencies/i.test(name))).toEqual([]);
	const node = await run('sh', ['-c', 'node --version && command -v node'], project);
	expect(await run('npm', ['run', '--silent', 'script'], project)).toBe(node);
	const sizes = await Promise.all(packages.map(async (file) => (await stat(file)).size));
	expect(sizes.reduce((sum, bytes) => sum + bytes)).toBeLessThan(3 * 1024 * 1024);
});

test('the packed tarball in an empty project: types and programs, as an ES module and as CommonJS', async () => {
	const project = await givenProject();
	const options = {
		strict: true,
		target: 'es2022',
		lib: ['es2022'],
		types: ['node'],
		module: 'node16',
		exactOptionalPropertyTypes: true,
	};
	await writeFile(
		join(project, 'tsconfig.json'),
		JSON.stringify({ compilerOptions: options, include: ['*.mts', '*.cts'] }),
	);
	const imports = `import { createClient, type AgentClient, type Status } from 'idv-agent/client';
import { startService, type EmbeddedService } from 'idv-agent/testing';`;
	await writeFile(join(project, 'use.mts'), imports + USE);
	await writeFile(join(project, 'use.cts'), imports + USE);
	// What a project of this kind has.
	for (const name of ['typescript', '@types', 'undici-types'])
		await cp(join(HERE, 'node_modules', name), join(project, 'node_modules', name), { recursive: true });
	await run(process.execPath, ['node_modules/typescript/bin/tsc', '-p', '.'], project);

	const service = await givenService();
	const device = await givenPairedAgent(service);
	service.notify({ type: 'hello', id: 'n-1' });
	const socket = join(device.home.paths.runDir, 'agent.sock');
	for (const file of ['use.mjs', 'use.cjs'])
		expect(JSON.parse(await run(process.execPath, [file, socket], project))).toEqual({ wanted: 'check-in', url: true });
	// Node 18 and 20.0 have no such function.
	const older = 'delete URL.parse; require("idv-agent/testing").startService().then((service) => service.close())';
	await run(process.execPath, ['-e', older], project);
	for (const name of ['idv', 'idv-agent'])
		expect(await run(process.execPath, [`node_modules/${name}/bin/${name}`, '--version'], project)).toMatch(/\d\.\d/);
	const help = await run(process.execPath, ['node_modules/idv-agent/bin/idv-agent', 'service', '--help'], project);
	expect(help).toMatch(/^Usage: idv-agent service /);
});
