import { execFileSync } from 'node:child_process';
import { mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { expect, onTestFinished, test } from 'vitest';
import { packTarball } from '../../src/diagnosis/tarball.edge.ts';

async function unpack(tarball: Buffer): Promise<string> {
	const directory = await mkdtemp(join(tmpdir(), 'tarball-'));
	onTestFinished(() => rm(directory, { recursive: true }));
	const file = join(directory, 'x.tar.gz');
	await writeFile(file, tarball);
	// A foreign program, which reports what is wrong with the archive.
	const said = execFileSync('tar', ['-xzf', file, '-C', directory, '--same-permissions'], { encoding: 'utf8' });
	expect(said).toBe('');
	return directory;
}

test('tar unpacks what was packed: names, contents, times, for the owner only', async () => {
	const texts = fc.sample(fc.string({ unit: 'grapheme', maxLength: 3000 }), { numRuns: 20, seed: 7 });
	const files = ['', 'x'.repeat(512), 'x'.repeat(513), ...texts].map((text, index) => ({
		name: `file-${index}.txt`,
		text,
	}));
	const directory = await unpack(await packTarball(files, Date.UTC(2026, 10, 21, 7, 0, 1)));
	for (const { name, text } of files) {
		expect(await readFile(join(directory, name), 'utf8')).toBe(Buffer.from(text).toString());
		expect(await stat(join(directory, name))).toMatchObject({ mtimeMs: Date.UTC(2026, 10, 21, 7, 0, 1) });
		expect((await stat(join(directory, name))).mode & 0o777).toBe(0o600);
	}
});

test.each(['', 'two words', 'x'.repeat(101), 'ü.txt', '\n'])('a name that does not fit is refused: %j', (name) => {
	expect(() => packTarball([{ name, text: '' }], 0)).toThrow('cannot be the name');
});
