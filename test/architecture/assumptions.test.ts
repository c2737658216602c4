/** The ledger of open points holds together: its settings and codes exist, and no assumption stands outside it. */
import { globSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { describe, expect, test } from 'vitest';
import { withTable } from '../../scripts/integrators-table.ts';
import { CATALOGUE } from '../../src/base/errors.ts';
import { ASSUMPTIONS, hintsFor } from '../../src/protocol/assumptions.ts';
import { AGENT_MESSAGES } from '../../src/protocol/channel.ts';
import { dialectSchema } from '../../src/service/dialect.ts';
import { listSettings } from '../../src/settings/table.ts';

const ROOT = resolve(import.meta.dirname, '../..');
const ids = ASSUMPTIONS.map(({ id }) => id);
const settings = new Set([...listSettings()].map(([path]) => path));
/** The ledger itself, and a command that prints a field of it. */
const OWN = ['src/protocol/assumptions.ts', 'src/cli/config.runner.ts'];
/** Comments that say that something is assumed, with the id that they give. */
const cited = globSync('src/**/*.ts', { cwd: ROOT })
	.filter((path) => !OWN.includes(path))
	.flatMap((path) =>
		[...readFileSync(join(ROOT, path), 'utf8').matchAll(/\bassumed\b(?:[\s*]+\(([a-z-]+)\))?/gi)].map(([text, id]) => ({
			path,
			text,
			id,
		})),
	);

describe('the ledger of open points', () => {
	test('has each point once, in words', () => {
		expect(new Set(ids).size).toBe(ids.length);
		expect(ids.length).toBeGreaterThan(24);
		const wordless = ASSUMPTIONS.filter(({ open, assumed }) => !/^[A-Z].*\.$/.test(open) || !/\.$/.test(assumed));
		expect(wordless.map(({ id }) => id)).toEqual([]);
	});

	test('names settings and codes that exist', () => {
		const wrong = ASSUMPTIONS.flatMap((row) => [
			...row.settings.filter((name) => !settings.has(name)),
			...row.failures.filter((code) => !(code in CATALOGUE)),
		]);
		expect(wrong).toEqual([]);
	});

	test('names every message that the agent acts on, and so do its setting and the tests of what the agent does', () => {
		const row = ASSUMPTIONS.find(({ id }) => id === 'agent-messages')?.assumed ?? '';
		const about = listSettings().get('service.actOnMessages')?.about ?? '';
		const tests = readFileSync(join(ROOT, 'test/agent/links.test.ts'), 'utf8');
		for (const text of [row, about, tests]) expect(AGENT_MESSAGES.filter((name) => !text.includes(name))).toEqual([]);
	});

	test('has every setting of the service', () => {
		const known = new Set(ASSUMPTIONS.flatMap((row) => row.settings));
		expect([...settings].filter((name) => name.startsWith('service.') && !known.has(name))).toEqual([]);
	});

	test('names each field of the dialect, and no other', () => {
		const named = ASSUMPTIONS.flatMap((row) => row.dialect);
		expect(named.toSorted()).toEqual(Object.keys(dialectSchema.shape).toSorted());
	});

	test('has every point that a comment calls assumed', () => {
		expect(cited.filter(({ id }) => !(id && ids.includes(id)))).toEqual([]);
		expect(cited.length).toBeGreaterThan(30);
	});

	test('is the table for integrators', () => {
		const page = readFileSync(join(ROOT, 'docs/open-points.md'), 'utf8');
		expect(page, 'run: node scripts/integrators-table.ts').toBe(withTable(page));
	});

	test('gives a hint for each failure that it names', () => {
		expect(hintsFor('answer-unreadable')).toEqual(['Set service.tokenPointer to the place of the Connection token.']);
		expect(hintsFor('disk-low')).toEqual([]);
	});
});
