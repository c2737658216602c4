import { mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { lineFile } from '../../src/connection/line-file.edge.ts';

const LINE = { baseUrl: 'https://id.example', network: '192.0.2', idleMs: 20_000 };

function givenDirectory(): string {
	const directory = mkdtempSync(join(tmpdir(), 'line-'));
	onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
	return directory;
}

test('what was learned of a line is kept in a file of its own, and goes with it', () => {
	const directory = givenDirectory();
	expect(lineFile(directory).load()).toBeNull();
	lineFile(directory).save(LINE);
	expect(lineFile(directory).load()).toMatchObject(LINE);
	expect(readdirSync(directory)).toEqual(['line.json']);
	expect(statSync(join(directory, 'line.json')).mode & 0o777).toBe(0o600);
	lineFile(directory).save(null);
	lineFile(directory).save(null);
	expect(readdirSync(directory)).toEqual([]);
});

test.each([
	'',
	'{"schemaVersion":1',
	'{"schemaVersion":2}',
	'{"schemaVersion":1,"baseUrl":"x","network":"y","idleMs":-1}',
	'[]',
])('a file that says %s is none', (text) => {
	const directory = givenDirectory();
	writeFileSync(join(directory, 'line.json'), text);
	expect(lineFile(directory).load()).toBeNull();
});

test('a directory that is not there costs nothing', () => {
	const line = lineFile(join(givenDirectory(), 'gone'));
	line.save(LINE);
	line.save(null);
	expect(line.load()).toBeNull();
});
