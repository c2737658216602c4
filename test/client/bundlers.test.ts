/** The package's client in the bundles that applications make of it. */
import { execFileSync } from 'node:child_process';
import { cp, mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { builtinModules } from 'node:module';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { build } from 'esbuild';
import { expect, onTestFinished, test } from 'vitest';
import { bundle } from '../../scripts/bundle.ts';

const ROOT = resolve(import.meta.dirname, '../..');

test('the client is one small file for each kind of module, each knows the problems of the other, and it runs in bundles of both kinds', async () => {
	const project = await mkdtemp(join(tmpdir(), 'idv-bundlers-'));
	onTestFinished(() => rm(project, { recursive: true }));
	const installed = join(project, 'node_modules/idv-agent');
	await bundle({ root: ROOT, entries: { client: 'src/client/client.runner.ts' }, outDir: join(installed, 'dist') });
	await cp(join(ROOT, 'package.json'), join(installed, 'package.json'));
	for (const name of ['client.cjs', 'client.mjs']) {
		const file = join(installed, 'dist', name);
		const { size } = await stat(file);
		console.log(`${name}: ${size} bytes`);
		expect(size).toBeLessThan(20 * 1024);
		const asked = [...(await readFile(file, 'utf8')).matchAll(/\b(?:require\(|from)"([^"]+)"/g)].map(
			([, module]) => module,
		);
		expect(asked.length).toBeGreaterThan(1);
		expect(asked.filter((module = '') => !builtinModules.includes(module.replace(/^node:/, '')))).toEqual([]);
	}
	const ask =
		"createClient({ socketPath: '/nonexistent/agent.sock' }).status().catch(({ code }) => console.log(code));";
	await writeFile(join(project, 'app.mjs'), `import { createClient } from 'idv-agent/client';\n${ask}`);
	await writeFile(join(project, 'app.cjs'), `const { createClient } = require('idv-agent/client');\n${ask}`);
	const run = (file: string) => execFileSync(process.execPath, [join(project, file)], { encoding: 'utf8' }).trim();
	await writeFile(
		join(project, 'both.mjs'),
		"import { createRequire } from 'node:module'; import { AgentProblem, createClient } from 'idv-agent/client';\n" +
			"const other = createRequire(import.meta.url)('idv-agent/client'); class Own extends AgentProblem {}\n" +
			"const problem = await other.createClient({ socketPath: '/nonexistent/agent.sock' }).status().catch((error) => error);\n" +
			'console.log(problem instanceof AgentProblem, new Own(0, "", "", "") instanceof other.AgentProblem, problem instanceof Own, new Error() instanceof AgentProblem);',
	);
	expect(run('both.mjs')).toBe('true true false false');
	for (const from of ['app.mjs', 'app.cjs']) {
		expect(run(from)).toBe('agent-not-running');
		for (const format of ['esm', 'cjs'] as const) {
			// A CommonJS application in an ES module has a `require` of esbuild's own, which cannot load Node's modules.
			if (from === 'app.cjs' && format === 'esm') continue;
			const outfile = join(project, `bundle-of-${from}.${format === 'esm' ? 'mjs' : 'cjs'}`);
			await build({ absWorkingDir: project, entryPoints: [from], bundle: true, platform: 'node', format, outfile });
			expect(run(`bundle-of-${from}.${format === 'esm' ? 'mjs' : 'cjs'}`)).toBe('agent-not-running');
		}
	}
});
