/**
 * The types of the package's two libraries, beside their bundles in `dist/`. That of `client` is one file that imports nothing, with
 * the answers as the document of the local interface has them; those of `testing` are the compiler's, in `dist/types/`.
 */
import { spawnSync } from 'node:child_process';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join, normalize, relative, resolve } from 'node:path';
import * as z from 'zod';
import { localDocument } from './openapi-document.ts';

const ROOT = resolve(import.meta.dirname, '..');
const CLIENT = 'src/client/client.runner.d.ts';
const PROBLEM = 'src/client/agent-problem.d.ts';
const TESTING = 'src/service/testing.d.ts';

/** @param dist where the bundles are. @throws Error with the compiler's words. */
export async function writeDeclarations(root: string, dist = join(root, 'dist')): Promise<void> {
	const out = await mkdtemp(join(tmpdir(), 'idv-agent-types-'));
	try {
		const compiler = join(root, 'node_modules/typescript/bin/tsc');
		const flags = ['--noEmit', 'false', '--declaration', '--emitDeclarationOnly', '--rootDir', root, '--outDir', out];
		const { status, stdout } = spawnSync(process.execPath, [compiler, '-p', root, ...flags], { encoding: 'utf8' });
		if (status !== 0) throw new Error(`tsc: ${stdout}`);
		const [client = '', problem = ''] = await Promise.all(
			[CLIENT, PROBLEM].map((file) => readFile(join(out, file), 'utf8')),
		);
		for (const name of ['client.d.cts', 'client.d.mts'])
			await writeFile(join(dist, name), declareClient(client, problem));
		await copyTree(out, TESTING, join(dist, 'types'));
		await writeFile(join(dist, 'testing.d.cts'), "export * from './types/service/testing.cjs';\n");
	} finally {
		await rm(out, { recursive: true, force: true });
	}
}

/**
 * The file and all that it imports, as CommonJS: then `import` and `require` find the same types. They are whole without any
 * package but Node's types, as the tarball is.
 */
async function copyTree(from: string, first: string, to: string): Promise<void> {
	const files = new Set([first]);
	// Files that are added while the set is walked are walked as well.
	for (const file of files) {
		const emitted = await writeOutSchemas(await readFile(join(from, file), 'utf8'), file.replace(/\.d\.ts$/, '.ts'));
		const text = emitted.replaceAll(/(['"])(\.\.?\/[^'"]+)\.ts\1/g, (_, quote, path) => {
			files.add(`${normalize(join(dirname(file), path))}.d.ts`);
			return `${quote}${path}.cjs${quote}`;
		});
		const [foreign] = /from '(?!node:|\.)[^']+'/.exec(text) ?? [];
		if (foreign) throw new Error(`${file} brings types of a package, ${foreign}, to the tarball, which has none`);
		const target = join(to, relative('src', file).replace(/\.d\.ts$/, '.d.cts'));
		await mkdir(dirname(target), { recursive: true });
		await writeFile(target, text);
	}
}

/** The types of zod's schemas, written out. */
async function writeOutSchemas(text: string, source: string): Promise<string> {
	if (!text.includes(" from 'zod';\n")) return text;
	const schemas = (await import(join(ROOT, source))) as Readonly<Record<string, z.ZodType>>;
	const declaration = /^(?:export )?declare const \w+: z\.(?:.*;\n|.*\n(?:[ \t].*\n)*\}.*;\n)/gm;
	return text
		.replace(/^import .* from 'zod';\n/m, '')
		.replaceAll(declaration, '')
		.replaceAll(/\bz\.(infer|output|input)<typeof (\w+)>/g, (_, which, name) => {
			const schema = schemas[name];
			if (schema === undefined) throw new Error(`${source} exports no ${name}`);
			const io = which === 'input' ? 'input' : 'output';
			return typeOf(z.toJSONSchema(schema, { io, unrepresentable: 'any' }) as Schema, new Set(), '');
		});
}

/** The names of the answers in the client, and in the document. */
const renamed = (name: string) => (name === 'Event' ? 'LocalEvent' : name);

function declareClient(emitted: string, problem: string): string {
	const imports = /^import .* from '\.\.\/protocol\/local-answers\.ts';\n/m;
	const [line = ''] = imports.exec(emitted) ?? [];
	if (line === '') throw new Error('the client imports its answers in another form');
	const { schemas } = localDocument().components as { schemas: Record<string, Schema> };
	const wanted = new Set([...(/\{(.*)\}/.exec(line)?.[1] ?? '').matchAll(/\w+/g)].map(([name]) => name));
	const declared: string[] = [];
	// References add to the set while it is walked.
	for (const name of wanted) {
		const schema = schemas[name === 'LocalEvent' ? 'Event' : name];
		if (schema === undefined) throw new Error(`the document has no ${name}`);
		declared.push(`export type ${name} = ${typeOf(schema, wanted, '')};`);
	}
	const own = emitted
		.replace(imports, '')
		.replace("import { AgentProblem } from './agent-problem.ts';\n", '')
		.replace(/^export type \{[^}]*\};\n/m, '');
	if (/\bimport\b.*['"]\.\.?\//.test(own)) throw new Error('the client imports a file of the agent');
	return `${own}\n${problem.replace('export ', '')}\n${declared.join('\n\n')}\n`;
}

interface Schema {
	readonly $ref?: string;
	readonly type?: string | readonly string[];
	readonly const?: unknown;
	readonly enum?: readonly unknown[];
	readonly anyOf?: readonly Schema[];
	readonly allOf?: readonly Schema[];
	readonly items?: Schema;
	readonly properties?: Readonly<Record<string, Schema>>;
	readonly additionalProperties?: Schema | boolean;
	readonly required?: readonly string[];
	readonly description?: string;
}

function typeOf(schema: Schema, wanted: Set<string>, indent: string): string {
	const of = (one: Schema) => typeOf(one, wanted, indent);
	// Of zod's own making: any JSON.
	if (schema.$ref?.startsWith('#/$defs/')) return 'unknown';
	if (schema.$ref) {
		const name = renamed(schema.$ref.split('/').at(-1) ?? '');
		wanted.add(name);
		return name;
	}
	if ('const' in schema) return JSON.stringify(schema.const);
	if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(' | ');
	if (schema.anyOf) return schema.anyOf.map(of).join(' | ');
	if (schema.allOf) return schema.allOf.map(of).join(' & ');
	if (typeof schema.type === 'object') return schema.type.map((type) => of({ ...schema, type })).join(' | ');
	if (schema.type === 'array') return `readonly (${of(schema.items ?? {})})[]`;
	if (schema.type === 'object') return objectOf(schema, wanted, indent);
	if (schema.type === 'integer') return 'number';
	return schema.type ?? 'unknown';
}

function objectOf(
	{ properties = {}, required = [], additionalProperties }: Schema,
	wanted: Set<string>,
	indent: string,
) {
	const inner = `${indent}    `;
	const fields = Object.entries(properties).flatMap(([name, schema]) => [
		...(schema.description ? [`${inner}/** ${schema.description} */`] : []),
		`${inner}readonly ${name}${required.includes(name) ? ':' : '?: undefined |'} ${typeOf(schema, wanted, inner)};`,
	]);
	if (fields.length > 0) return `{\n${fields.join('\n')}\n${indent}}`;
	const value = typeof additionalProperties === 'object' ? typeOf(additionalProperties, wanted, indent) : 'unknown';
	return `{ readonly [name: string]: ${value} }`;
}
