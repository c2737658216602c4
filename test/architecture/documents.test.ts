/** Every link in the documents leads to a file that is there, and to a heading of it; every npm script is told of. */
import { existsSync, globSync, readFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { expect, test } from 'vitest';

const ROOT = resolve(import.meta.dirname, '../..');
const DOCUMENTS = ['README.md', 'CHANGELOG.md', ...globSync('docs/**/*.md', { cwd: ROOT })];

/** Without code: a heading or a link in it is none. */
const readProse = (file: string) => readFileSync(file, 'utf8').replaceAll(/^```.*?^```/gms, '');

/** As a page of the repository names its headings. */
const anchorsIn = (file: string) =>
	[...readProse(file).matchAll(/^#+ (.*)$/gm)].map(([, heading = '']) =>
		heading
			.toLowerCase()
			.replaceAll(/[^\p{L}\p{N} _-]/gu, '')
			.replaceAll(' ', '-'),
	);

test('links in the documents lead somewhere', () => {
	const broken: string[] = [];
	for (const document of DOCUMENTS)
		for (const [, link = ''] of readProse(join(ROOT, document)).matchAll(/\]\(([^)\s]+)\)/g)) {
			if (/^[a-z]+:/.test(link)) continue;
			const [path = '', anchor] = link.split('#');
			const file = path === '' ? join(ROOT, document) : resolve(ROOT, dirname(document), path);
			if (!existsSync(file) || (anchor !== undefined && !anchorsIn(file).includes(anchor)))
				broken.push(`${document}: ${link}`);
		}
	expect(broken).toEqual([]);
	expect(DOCUMENTS.length).toBeGreaterThan(5);
});

test('every npm script stands in the README', () => {
	const { scripts } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { scripts: object };
	const readme = readFileSync(join(ROOT, 'README.md'), 'utf8');
	const isTold = (name: string) => new RegExp(`(npm |npm run |\`)${name}[\` ]`).test(readme);
	expect(Object.keys(scripts).filter((name) => !isTold(name))).toEqual([]);
});
