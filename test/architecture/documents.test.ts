/** Every link in the documents leads to a file that is there, and to a heading of it; every npm script is in the README or CONTRIBUTING.md. */
import { existsSync, globSync, readFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { expect, test } from 'vitest';

const ROOT = resolve(import.meta.dirname, '../..');
const DOCUMENTS = [
	'README.md',
	'CONTRIBUTING.md',
	'SECURITY.md',
	'CHANGELOG.md',
	...globSync('docs/**/*.md', { cwd: ROOT }),
];

/** Without code, which may look like headings and links. */
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

/** What a user has to read; figures, faults, tables to look things up in and the interface of others are read by the line. */
const EVIDENCE =
	/^docs\/(?:measurements|faults|threat-model|testing|service-interface|forwarding|open-points|architecture|decisions\/.*|monitoring\/.*)\.md$/;
test('a page that a user has to read has at most 1,500 words besides its code [F747]', () => {
	const pages = DOCUMENTS.filter((page) => /^(?:README|docs\/.*)\.md$/.test(page) && !EVIDENCE.test(page));
	const words = new Map(pages.map((page) => [page, readProse(join(ROOT, page)).split(/\s+/).length]));
	expect([...words].filter(([, count]) => count > 1500)).toEqual([]);
});

test('every npm script is in the README or CONTRIBUTING.md', () => {
	const { scripts } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { scripts: object };
	const readme = ['README.md', 'CONTRIBUTING.md'].map((name) => readFileSync(join(ROOT, name), 'utf8')).join('\n');
	const isNamed = (name: string) => new RegExp(`(npm |npm run |\`)${name}[\` ]`).test(readme);
	expect(Object.keys(scripts).filter((name) => !isNamed(name))).toEqual([]);
});

test('every path of the source that a document names exists', () => {
	const missing = DOCUMENTS.filter((document) => !/^CHANGELOG|^docs\/decisions/.test(document)).flatMap((document) =>
		[...readFileSync(join(ROOT, document), 'utf8').matchAll(/(?<![\w/.-])(?:src|test|scripts|systemd)\/[\w./-]*\w/g)]
			.map(([path]) => path)
			.filter((path) => !existsSync(join(ROOT, path)))
			.map((path) => `${document}: ${path}`),
	);
	expect(missing).toEqual([]);
});

test('comments cite documents of this repository only', () => {
	const files = globSync('{src,test,scripts}/**/*.{ts,js,css,html}', { cwd: ROOT });
	const elsewhere = files
		.filter((file) => /(?:\/\/|\*) .*\b(?:DESIGN|EVIDENCE|FIELD)\b/.test(readFileSync(join(ROOT, file), 'utf8')))
		.filter((file) => file !== 'test/architecture/documents.test.ts');
	expect(elsewhere).toEqual([]);
	expect(existsSync(join(ROOT, 'docs/service-interface.md'))).toBe(true);
});

test('a heading of service-interface that a comment cites is there', () => {
	const interfaceText = readFileSync(join(ROOT, 'docs/service-interface.md'), 'utf8').toLowerCase();
	const cited = globSync('src/**/*.ts', { cwd: ROOT }).flatMap((file) =>
		[
			...readFileSync(join(ROOT, file), 'utf8').matchAll(
				/service-interface, ([A-Z][A-Za-z ]+?)(?: and |[\d,.:;)"]|$)/gm,
			),
		].map(([, heading = '']) => heading.trim()),
	);
	expect(cited.length).toBeGreaterThan(10);
	expect(cited.filter((heading) => !interfaceText.includes(heading.toLowerCase()))).toEqual([]);
});
