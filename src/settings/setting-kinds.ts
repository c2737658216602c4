/** One setting, and the kinds of settings that the table is written in. Names no setting. */
import * as z from 'zod';
import { later, made } from '../protocol/later.ts';
import { filePath, text, whole } from './value-schemas.ts';

/** One setting: how it is read, what it is when it is not set, and what it is for. */
export interface Setting<Value> {
	readonly kind: 'text' | 'number' | 'boolean' | 'list' | 'object';
	readonly schema: z.ZodType<Value>;
	readonly fallback: Value;
	/** One sentence, with unit and range. */
	readonly about: string;
	/** Its value may contain a secret and is masked wherever it is shown. */
	readonly secret: boolean;
}

export const setting = <Value>(
	kind: Setting<Value>['kind'],
	schema: z.ZodType<Value>,
	fallback: NoInfer<Value>,
	about: string,
): Setting<Value> => ({ kind, schema, fallback, about, secret: false });

/** The same, with a schema that is made when it is first used. */
const lazily = <Value>(
	kind: Setting<Value>['kind'],
	make: () => z.ZodType<Value>,
	fallback: NoInfer<Value>,
	about: string,
) => setting(kind, later(make), fallback, about);

export const optional = <Value>(kind: Setting<Value>['kind'], schema: z.ZodType<Value>, about: string) =>
	lazily(kind, () => schema.nullable() as z.ZodType<Value | null>, null, about);
export const optionalText = (schema: z.ZodType<string>, about: string) => optional('text', schema, about);
/** A whole number that may be left out, in a range. */
export const optionalNumber = (min: number, max: number, about: string) =>
	lazily<number | null>('number', () => whole(min, max).nullable(), null, about);
/** The absolute path of a file, or none. */
export const file = (about: string) => optionalText(filePath, about);
export const number = (min: number, max: number, fallback: number, about: string) =>
	lazily('number', () => whole(min, max), fallback, about);
/** On or off. */
export const flag = (fallback: boolean, about: string) =>
	lazily('boolean', () => z.boolean('must be true or false'), fallback, about);
/** A list of texts, empty by default. */
export const list = (item: z.ZodType<string>, max: number, about: string) =>
	lazily('list', () => z.array(made(item)).max(max), [], about);
export const oneOf = <const Name extends string>(names: readonly Name[], fallback: NoInfer<Name>, about: string) => {
	const quoted = names.map((name) => `"${name}"`);
	const problem = `must be ${quoted.slice(0, -1).join(', ')} or ${quoted.at(-1)}`;
	return lazily('text', () => z.enum(names, problem), fallback, about);
};
/** A command that a site runs. */
export const hook = (what: string) =>
	list(text, 64, `Program (absolute path) and arguments run for ${what}, with JSON on standard input; never a shell.`);
/** The same, for a value that may hold a secret. */
export const masked = <Value>(entry: Setting<Value>): Setting<Value> => ({ ...entry, secret: true });

/** Where a value came from; `where` is the file or the variable. */
export interface SettingOrigin {
	readonly source: 'default' | 'file' | 'environment' | 'flag';
	readonly where: string | null;
}

/** The variables and flags that settings come from, with their texts. @param textOf `undefined` where none is known. */
export const variablesIn = (
	origins: ReadonlyMap<string, SettingOrigin>,
	textOf: (path: string, name: string, source: 'environment' | 'flag') => string | undefined,
): Record<string, string> =>
	Object.fromEntries(
		[...origins].flatMap(([path, { source, where }]) => {
			const isText = source === 'environment' || source === 'flag';
			const text = isText && where !== null ? textOf(path, where, source) : undefined;
			return text === undefined ? [] : [[where, text]];
		}),
	);
