/**
 * Everything of a version that others rely on, as flat lines `name: type`: the document of the local interface (with the status
 * that `status --json` prints), the commands with their flags, and the settings. Two versions are then compared line by line.
 */
import { type CommandHelp, readFlags } from '../../../scripts/command-tree.ts';

export type Surface = ReadonlyMap<string, string>;

interface Schema {
	readonly $ref?: string;
	readonly type?: string;
	readonly const?: unknown;
	readonly enum?: readonly unknown[];
	readonly anyOf?: readonly Schema[];
	readonly items?: Schema;
	readonly properties?: Readonly<Record<string, Schema>>;
	readonly required?: readonly string[];
}
interface Operation {
	readonly parameters?: readonly { readonly name: string; readonly in: string; readonly required?: boolean }[];
	readonly requestBody?: {
		readonly required?: boolean;
		readonly content: Readonly<Record<string, { readonly schema?: Schema }>>;
	};
	readonly responses: Readonly<
		Record<string, { readonly content?: Readonly<Record<string, { readonly schema?: Schema }>> }>
	>;
}
export interface Document {
	readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
	readonly components: { readonly schemas: Readonly<Record<string, Schema>> };
}

export function surfaceOf(parts: {
	readonly document: Document;
	readonly commands: readonly CommandHelp[];
	readonly settings: readonly (readonly [path: string, kind: string])[];
}): Surface {
	return new Map([
		...describeDocument(parts.document),
		...parts.commands.flatMap(describeCommand),
		...parts.settings.map(([path, kind]): Line => [`setting ${path}`, kind]),
	]);
}

type Line = [string, string];

function describeDocument({ paths, components }: Document): Line[] {
	const requests = new Set<string>();
	const lines: Line[] = [];
	for (const [path, operations] of Object.entries(paths))
		for (const [method, { parameters = [], requestBody, responses }] of Object.entries(operations)) {
			const operation = `${method.toUpperCase()} ${path}`;
			const body = nameOf(requestBody?.content['application/json']?.schema);
			if (body) requests.add(body);
			// A body that may be left out takes nothing away.
			const mayBeLeftOut = body !== undefined && requestBody?.required === false;
			lines.push([operation, `takes ${mayBeLeftOut ? 'nothing or ' : ''}${body ?? 'nothing'}`]);
			for (const { name, in: place, required } of parameters)
				lines.push([`${operation} ${place} ${name}`, required ? 'required' : 'optional']);
			for (const [status, { content = {} }] of Object.entries(responses)) {
				const schema = content['application/json']?.schema;
				if (schema) lines.push([`${operation} ${status}`, nameOf(schema) ?? 'any']);
			}
		}
	for (const [name, schema] of Object.entries(components.schemas))
		lines.push(...describeSchema(schema, `${requests.has(name) ? 'request' : 'answer'} ${name}`));
	return lines;
}

const nameOf = (schema: Schema | undefined) => schema?.$ref?.split('/').at(-1);

/** An object's fields below it, and each value of an enumeration as a line of its own: more of either is no change. */
function describeSchema(schema: Schema, at: string, required = true): Line[] {
	const forms = schema.anyOf ?? [schema];
	const values = forms.flatMap((form) => form.enum ?? ('const' in form ? [form.const] : []));
	const types = forms.map((form) => nameOf(form) ?? form.type ?? (form.enum ? 'string' : 'any')).sort();
	return [
		[at, `${types.join('|')}${required ? '' : ' or absent'}`],
		...values.map((value): Line => [`${at} = ${JSON.stringify(value)}`, 'value']),
		...forms.flatMap(({ properties = {}, required = [], items }) => [
			...Object.entries(properties).flatMap(([name, field]) =>
				describeSchema(field, `${at}.${name}`, required.includes(name)),
			),
			...(items ? describeSchema(items, `${at}[]`) : []),
		]),
	];
}

function describeCommand({ name, arguments: args, options, commands }: CommandHelp): Line[] {
	return [
		[`command ${name}`, 'there'],
		...args.map(({ term }): Line => [`command ${name} argument ${term}`, 'there']),
		...options.flatMap(({ term }) => {
			const { names, takesValue } = readFlags(term);
			return names.map((flag): Line => [`command ${name} ${flag}`, takesValue ? 'value' : 'switch']);
		}),
		...commands.flatMap(describeCommand),
	];
}

/** Changes between two versions that break those who rely on the older one; additions do not. */
export function findBreaks(before: Surface, now: Surface): string[] {
	const lost = [...before].flatMap(([name, type]) => {
		const today = now.get(name);
		if (today === undefined) return [`${name}: removed`];
		const isWider =
			today.startsWith('takes nothing or ') && [`takes nothing`, today.replace('nothing or ', '')].includes(type);
		return today === type || isWider ? [] : [`${name}: ${type} became ${today}`];
	});
	const demanded = [...now].filter(([name, type]) => {
		if (before.has(name)) return false;
		if (!name.startsWith('request ')) return type === 'required' && before.has(name.split(' ').slice(0, 2).join(' '));
		return before.has(name.slice(0, name.lastIndexOf('.'))) && !/ or absent$|^value$/.test(type);
	});
	return [...lost, ...demanded.map(([name]) => `${name}: required from now on`)];
}

export const formatSurface = (surface: Surface) =>
	[...surface]
		.map(([name, type]) => `${name}: ${type}\n`)
		.sort()
		.join('');

export const readSurface = (text: string): Surface =>
	new Map(
		text
			.trimEnd()
			.split('\n')
			.map((line): Line => [line.slice(0, line.lastIndexOf(': ')), line.slice(line.lastIndexOf(': ') + 2)]),
	);
