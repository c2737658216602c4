/** What operators and developers run on their laptops asks for what only a Unix has in one file. */
import { existsSync, readFileSync } from 'node:fs';
import { dirname, relative, resolve } from 'node:path';
import { describe, expect, test } from 'vitest';
import { readImports, withoutComments } from './imports.ts';

const ROOT = resolve(import.meta.dirname, '../..');
const PROGRAMS = ['src/operator/idv.ts', 'src/cli/trial.ts', 'src/service/testing.ts', 'src/client/client.runner.ts'];
const UNIX = 'src/base/unix.edge.ts';
/** Users, groups, permissions that are looked at, and what Linux shows as files. */
const OF_UNIX = [
	/\bprocess\.(?:get|set)e?[ug]id\b/,
	/\bprocess\.platform\b/,
	/['"`]\/(?:etc\/(?:passwd|group|machine-id)|proc|sys|dev)\b/,
	/\bmode & /,
];

/** The file and all that it loads, when it starts or later; what is only a type is not there when it runs. */
function loadedBy(file: string, seen = new Set<string>()): Set<string> {
	if (seen.has(file) || !existsSync(file)) return seen;
	seen.add(file);
	for (const { specifier, kind } of readImports(readFileSync(file, 'utf8')))
		if (kind !== 'type' && specifier.startsWith('.')) loadedBy(resolve(dirname(file), specifier), seen);
	return seen;
}

function unixIn(source: string): string[] {
	return OF_UNIX.flatMap(
		(pattern) => pattern.exec(withoutComments(source).replaceAll(/\bpermissionsOf\([^)]*\) & /g, '')) ?? [],
	);
}

describe.each(PROGRAMS)('%s', (program) => {
	test('and all that it loads ask for users, groups and permissions in src/base/unix.edge.ts alone [F746]', () => {
		const files = [...loadedBy(resolve(ROOT, program))].map((file) => relative(ROOT, file));
		expect(files).toContain(program);
		const found = files
			.filter((file) => file !== UNIX)
			.flatMap((file) => unixIn(readFileSync(resolve(ROOT, file), 'utf8')).map((words) => `${file}: ${words}`));
		expect(found).toEqual([]);
	});
});
