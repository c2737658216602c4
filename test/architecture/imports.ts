/**
 * Reads which modules a TypeScript file imports, and in which way. Knows the ways this project writes imports, not the
 * whole language.
 */

/** `type` is gone when the program runs; `dynamic` is loaded when the line is reached; `static` is loaded at the start. */
export interface Import {
	readonly specifier: string;
	readonly kind: 'static' | 'type' | 'dynamic';
	/** The whole statement, for rules on its form. */
	readonly statement: string;
}

const STATEMENT = /^[ \t]*(?:import|export)\s(?:[^'"();]*?\sfrom\s*)?(['"])([^'"\n]+)\1/gm;
const CALL = /\b(?:import|require|getBuiltinModule)\(\s*(['"`])([^'"`\n]+)\1\s*\)/g;

/** Source text without its comments; strings keep theirs, because a URL has two slashes as well. */
export function withoutComments(source: string): string {
	const token = /'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*"|`(?:\\.|[^`\\])*`|\/\*[\s\S]*?\*\/|\/\/[^\n]*/g;
	return source.replace(token, (text) => (text.startsWith('/') ? text.replace(/[^\n]/g, '') : text));
}

/** Every import and re-export of a file, in the order of its kind. */
export function readImports(source: string): Import[] {
	const code = withoutComments(source);
	// `import { type A }` stays an import of the module when the types are stripped: only `import type` goes away.
	const statements = [...code.matchAll(STATEMENT)].map(([statement, , specifier = '']) => ({
		specifier,
		kind: /^\s*(?:import|export)\s+type\s/.test(statement) ? ('type' as const) : ('static' as const),
		statement: statement.trim(),
	}));
	const calls = [...code.matchAll(CALL)].map(([statement, , specifier = '']) => ({
		specifier,
		kind: 'dynamic' as const,
		statement,
	}));
	return [...statements, ...calls];
}
