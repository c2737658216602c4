/**
 * What 0.1.0 offered is still there: the local interface, `status --json`, commands and flags, settings. A line that went or changed
 * has to be named under "### Breaking" in this version's part of CHANGELOG.md, and `schemaVersion` has to have risen.
 * A new release adds its own file: `formatSurface(await currentSurface())`.
 */
import { readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { describe, expect, test } from 'vitest';
import { readCommandTree } from '../../../scripts/command-tree.ts';
import { localDocument } from '../../../scripts/openapi-document.ts';
import { STATUS_SCHEMA_VERSION } from '../../../src/protocol/local-answers.ts';
import { listSettings } from '../../../src/settings/table.ts';
import { run } from './run.ts';
import { type Document, findBreaks, readSurface, type Surface, surfaceOf } from './surface.ts';

const ROOT = resolve(import.meta.dirname, '../../..');
const LAST = { version: '0.1.0', schemaVersion: 1 };
const read = (name: string) => readFileSync(join(ROOT, name), 'utf8');

async function currentSurface(): Promise<Surface> {
	const commandsOf = (name: string) =>
		readCommandTree(name, (path) => run(join(ROOT, 'bin', name), [...path, '--help'], ROOT));
	return surfaceOf({
		document: localDocument() as unknown as Document,
		commands: await Promise.all(['idv-agent', 'idv'].map(commandsOf)),
		settings: [...listSettings()].map(([path, { kind }]) => [path, kind]),
	});
}

/** The breaks that the changelog of the newest version does not own up to. */
function findUnannounced(breaks: readonly string[], changelog: string, schemaVersion: number): string[] {
	const [, newest = ''] = changelog.split(/^## /m);
	const [, announced = ''] = newest.split(/^### Breaking$/m);
	const named = (one: string) => announced.includes(`\`${one.slice(0, one.lastIndexOf(': '))}\``);
	return breaks.filter((one) => !(named(one) && schemaVersion > LAST.schemaVersion));
}

test(`nothing of ${LAST.version} was taken away or changed without saying so`, async () => {
	const before = readSurface(read(`test/client/contract/${LAST.version}.txt`));
	expect(before.size).toBeGreaterThan(400);
	const breaks = findBreaks(before, await currentSurface());
	expect(findUnannounced(breaks, read('CHANGELOG.md'), STATUS_SCHEMA_VERSION)).toEqual([]);
});

describe('the comparison', () => {
	const before = readSurface(
		'answer Status.problem: null|string\nanswer Status.state = "online": value\nsetting baseUrl: text\n' +
			'request Lease: object\nrequest Lease.name: string\nGET /v1/events: takes nothing\n',
	);
	const changed = (change: (lines: Map<string, string>) => void) => {
		const now = new Map(before);
		change(now);
		return findBreaks(before, now);
	};

	test.each<[string, (lines: Map<string, string>) => void]>([
		['a removed setting', (now) => now.delete('setting baseUrl')],
		['a removed value', (now) => now.delete('answer Status.state = "online"')],
		['another type', (now) => now.set('answer Status.problem', 'string')],
		['a field that a request must have from now on', (now) => now.set('request Lease.reason', 'string')],
		['a parameter that must be given from now on', (now) => now.set('GET /v1/events query x', 'required')],
	])('finds %s', (_, change) => {
		expect(changed(change)).toHaveLength(1);
	});

	test.each<[string, (lines: Map<string, string>) => void]>([
		['a field of an answer', (now) => now.set('answer Status.more', 'string')],
		['a value', (now) => now.set('answer Status.state = "new"', 'value')],
		['a field that a request may have', (now) => now.set('request Lease.reason', 'string or absent')],
		['a setting', (now) => now.set('setting new', 'text')],
	])('permits %s', (_, change) => {
		expect(changed(change)).toEqual([]);
	});

	test('a break is permitted when the changelog names it and the version rose, not with one of the two', () => {
		const breaks = ['setting baseUrl: removed'];
		const changelog = '# Changelog\n\n## 1.0.0\n\n### Breaking\n\n- `setting baseUrl` is gone.\n\n## 0.1.0\n';
		expect(findUnannounced(breaks, changelog, LAST.schemaVersion + 1)).toEqual([]);
		expect(findUnannounced(breaks, changelog, LAST.schemaVersion)).toEqual(breaks);
		expect(findUnannounced(breaks, changelog.replace('### Breaking', ''), LAST.schemaVersion + 1)).toEqual(breaks);
	});
});
