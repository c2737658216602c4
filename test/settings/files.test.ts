import { execFileSync, spawnSync } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { setImmediate as turn } from 'node:timers/promises';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type AgentError, type Failure, toFailure } from '../../src/base/errors.ts';
import { watchDirectories } from '../../src/base/watch.edge.ts';
import {
	MAX_SETTINGS_BYTES,
	readSecretFile,
	readSettingsLayers,
	type SettingsWatch,
	watchSettings,
} from '../../src/settings/files.edge.ts';

let directory: string;
let configDirectory: string;
let configFile: string;
const closers = new Set<() => void>();

beforeEach(() => {
	directory = fs.mkdtempSync(path.join(os.tmpdir(), 'settings-'));
	configDirectory = path.join(directory, 'etc', 'idv-agent');
	configFile = path.join(configDirectory, 'config.json');
	fs.mkdirSync(configDirectory, { recursive: true });
});

afterEach(() => {
	for (const close of closers) close();
	closers.clear();
	fs.rmSync(directory, { recursive: true });
});

const inConf = (name: string) => path.join(configDirectory, 'conf.d', name);

function write(file: string, content: string | Buffer): void {
	fs.mkdirSync(path.dirname(file), { recursive: true });
	fs.writeFileSync(file, content);
}

describe('reading the layers', () => {
	test('the config file comes first, then conf.d in byte order', async () => {
		write(configFile, '{"workflowId":"base"}');
		for (const name of ['b.json', 'a.json', 'B.json', '10.json', '9.json', 'ä.json', '.hidden.json', 'notes.txt'])
			write(inConf(name), JSON.stringify({ deviceType: name }));
		const { layers, problems } = await readSettingsLayers({ configFile });
		expect(problems).toEqual([]);
		expect(layers).toMatchObject([
			{ where: configFile, document: { workflowId: 'base' } },
			...['10.json', '9.json', 'B.json', 'a.json', 'b.json', 'ä.json'].map((name) => ({
				where: inConf(name),
				document: { deviceType: name },
			})),
		]);
	});

	test('a name in conf.d that only looks like one of settings is told, and other files are not [F1306]', async () => {
		for (const name of ['50.JSON', '60.jsonc', 'site.conf', 'notes.txt', 'a.json.bak', '.swp.conf'])
			write(inConf(name), '{}');
		const { layers, problems, notices } = await readSettingsLayers({ configFile });
		expect([layers, problems]).toEqual([[], []]);
		expect(notices.map(({ message }) => message).sort()).toEqual(
			['50.JSON', '60.jsonc', 'site.conf'].map(
				(name) => `${inConf(name)} is not read: only names in UTF-8 that end in .json are.`,
			),
		);
	});

	test('a name in conf.d that is not UTF-8 is told, and the files beside it are read [F1400]', async () => {
		write(inConf('60-k\u{fffd}ln.json'), '{"deviceType":"read"}');
		const latin1 = Buffer.from(inConf('50-k\u{f6}ln.json'), 'latin1');
		fs.writeFileSync(latin1, '{"deviceType":"unread"}');
		const { layers, problems, notices } = await readSettingsLayers({ configFile });
		expect(layers.map(({ document }) => document)).toEqual([{ deviceType: 'read' }]);
		const message = `${inConf('50-k\u{fffd}ln.json')} is not read: only names in UTF-8 that end in .json are.`;
		expect([problems, notices]).toMatchObject([[], [{ code: 'settings-invalid', message }]]);
	});

	test('a file of thousands of names is refused as a whole, without a look at each, and the others are taken [F1184]', async () => {
		const names = (count: number) => Object.fromEntries(Array.from({ length: count }, (_, n) => [`name${n}`, n]));
		write(configFile, '{"workflowId":"base"}');
		write(inConf('many.json'), JSON.stringify(names(5000)));
		write(inConf('some.json'), JSON.stringify(names(4000)));
		const { layers, problems } = await readSettingsLayers({ configFile });
		expect(layers.map(({ where }) => where)).toEqual([configFile, inConf('some.json')]);
		expect(problems.map(({ message }) => message)).toEqual([
			expect.stringMatching(/many\.json: line 1, column 1: it has .* more than 4096 names\.$/),
		]);
	});

	test('files that are not there are no problem, unless somebody named the config file', async () => {
		expect(await readSettingsLayers({ configFile })).toMatchObject({ layers: [], problems: [] });
		write(inConf('site.json'), '{}');
		const { layers, problems } = await readSettingsLayers({ configFile, mustExist: true });
		expect(layers).toHaveLength(1);
		expect(problems).toMatchObject([{ code: 'settings-unreadable' }]);
		expect(problems[0]?.message).toContain(`${configFile} cannot be read: it is not there (ENOENT)`);
	});

	test('another directory may be named, links are followed, and a byte order mark is no matter', async () => {
		const elsewhere = path.join(directory, 'elsewhere');
		write(path.join(elsewhere, 'real'), '\uFEFF{"a":1}');
		fs.symlinkSync('real', path.join(elsewhere, 'linked.json'));
		write(inConf('not-asked.json'), '{}');
		expect((await readSettingsLayers({ configFile, confDirectory: elsewhere })).layers).toMatchObject([
			{ where: path.join(elsewhere, 'linked.json'), document: { a: 1 } },
		]);
	});

	test('one bad file does not take the others away', async () => {
		write(configFile, '{"workflowId":"base"}');
		write(inConf('10-bad.json'), '{"workflowId"');
		write(inConf('20-good.json'), '{"deviceType":"scanner"}');
		const { layers, problems } = await readSettingsLayers({ configFile });
		expect(layers.map((layer) => layer.document)).toEqual([{ workflowId: 'base' }, { deviceType: 'scanner' }]);
		expect(problems.map((problem) => problem.code)).toEqual(['settings-invalid']);
	});

	test.each<[string, (file: string) => void, string]>([
		['a directory', (file) => fs.mkdirSync(file), 'not a regular file'],
		['a pipe, which is not waited for', (file) => execFileSync('mkfifo', [file]), 'not a regular file'],
		['too large', (file) => write(file, ' '.repeat(MAX_SETTINGS_BYTES + 1)), `larger than ${MAX_SETTINGS_BYTES} bytes`],
		['not UTF-8', (file) => write(file, Buffer.from('{"a":"é"}', 'latin1')), 'not UTF-8'],
		['UTF-16', (file) => write(file, Buffer.from('\uFEFF{"a":1}', 'utf16le')), 'not UTF-8'],
		['a link that leads to itself', (file) => fs.symlinkSync(file, file), 'ELOOP'],
		['a link that leads nowhere', (file) => fs.symlinkSync('nothing', file), 'ENOENT'],
	])('%s is unreadable', async (_name, make, reason) => {
		make(configFile);
		const { layers, problems } = await readSettingsLayers({ configFile });
		expect(layers).toEqual([]);
		expect(problems).toMatchObject([{ code: 'settings-unreadable' }]);
		expect(problems[0]?.message).toContain(reason);
		// Who may read it is another matter.
		if (reason.startsWith('not') || reason.startsWith('larger')) expect(problems[0]?.remedy).not.toMatch(/may read it/);
	});

	test('a start without room for open files ends with a status after which it is tried again, not as for invalid settings, and says which limit [F610]', () => {
		write(configFile, '{}');
		const program = path.join(import.meta.dirname, '../../bin/idv-agent');
		const ends = [20, 22, 24, 26, 28, 32].map((files) => {
			const command = `ulimit -n ${files}; exec timeout 10 "$0" "$@"`;
			const args = ['run', '--config', configFile, '--state-dir', directory, '--run-dir', path.join(directory, 'run')];
			return spawnSync('bash', ['-c', command, process.execPath, program, ...args], { encoding: 'utf8' });
		});
		const statuses = ends.map(({ status }) => status);
		expect(statuses).toContain(75);
		expect(statuses).not.toContain(78);

		for (const { stderr } of ends.filter(({ status }) => status === 75)) expect(stderr).toContain('LimitNOFILE');
	});

	test('a directory that cannot be listed is a problem', async () => {
		write(path.join(configDirectory, 'conf.d'), 'a file');
		expect((await readSettingsLayers({ configFile })).problems).toMatchObject([{ code: 'settings-unreadable' }]);
	});
});

test('comments and the address of a schema are passed over, also those that look like what they are not', async () => {
	write(configFile, '// "a": {\n{ "$schema": "x", /* , */ "a": "http://b/*c*/", // "\r\n"d":[1/**/,2]\n}//');
	const { layers, problems } = await readSettingsLayers({ configFile });
	expect(problems).toEqual([]);
	expect(layers.map(({ document }) => document)).toEqual([{ a: 'http://b/*c*/', d: [1, 2] }]);
});

describe('what is wrong in a file is named by line and column', () => {
	test.each([
		['', '1, column 1: the file is empty'],
		[' \n ', '2, column 2: the file is empty'],
		['{"a":1', '1, column 7: the file ends too early'],
		['{\n\t"a": 1,\n}\n', '3, column 1: there is a comma too many before this'],
		['{"a":[1,2,]}', '1, column 11: there is a comma too many before this'],
		['{\n  "a": 1\n  "b": 2\n}', '3, column 3: a comma or } is missing before this'],
		['{"a":[1 2]}', '1, column 9: a comma or ] is missing before this'],
		['{"a" 1}', '1, column 6: a : is missing before this'],
		['{"ä🙂" 1}', '1, column 7: a : is missing before this'],
		['{a:1}', '1, column 2: a name in double quotes or } is expected here'],
		['{"a":1,b:2}', '1, column 8: a name in double quotes is expected here'],
		["{'a':1}", '1, column 2: texts stand in double quotes'],
		['{"a":yes}', '1, column 6: a value is missing or misspelt here'],
		['{"a":01}', '1, column 6: a value is missing or misspelt here'],
		['{"a":}', '1, column 6: a value is missing or misspelt here'],
		['{"a":[}', '1, column 7: a value or ] is expected here'],
		['{"a":1}}', '1, column 8: nothing may follow the settings'],
		['{\r\n"a": "open\r\n}', '2, column 6: this text in quotes does not end on its line, or has a wrong escape'],
		['{"a":"C:\\new\\x"}', '1, column 6: this text in quotes does not end on its line, or has a wrong escape'],
		['{"a":1 # note\n}', '1, column 8: no comment begins with #'],
		['{"a":1 /* note\n}', '1, column 8: this comment does not end'],
		['// one\n{"a":/* two\n*/1 2}', '3, column 5: a comma or } is missing before this'],
		['[]', '1, column 1: the settings must be one object in { }'],
		['null', '1, column 1: the settings must be one object in { }'],
	])('%j', async (content, expected) => {
		write(configFile, content);
		const { layers, problems } = await readSettingsLayers({ configFile });
		expect(layers).toEqual([]);
		expect(problems).toMatchObject([{ code: 'settings-invalid', message: `${configFile}: line ${expected}.` }]);
	});

	test('every text is either read as JSON reads it or refused, and nothing of it is quoted', async () => {
		const piece = fc.constantFrom(
			'{',
			'}',
			'[',
			']',
			',',
			':',
			'"a"',
			'"S3CR3T"',
			'1',
			'-',
			'true',
			' ',
			'\n',
			'"',
			'\\',
		);
		const damaged = fc
			.tuple(fc.json(), fc.nat(60), fc.nat(3), piece)
			.map(([text, at, cut, put]) => text.slice(0, at) + put + text.slice(at + cut));
		const texts = fc.oneof(
			fc.json(),
			damaged,
			fc.array(piece, { maxLength: 8 }).map((pieces) => pieces.join('')),
		);
		await fc.assert(
			fc.asyncProperty(texts, async (text) => {
				write(configFile, text);
				const { layers, problems } = await readSettingsLayers({ configFile });
				let document: unknown;
				try {
					document = JSON.parse(text.replace(/^\uFEFF/, ''));
				} catch {
					// It is not JSON, so there must be a problem.
				}
				if (typeof document === 'object' && document !== null && !Array.isArray(document))
					expect(layers.map((layer) => layer.document)).toEqual([document]);
				else {
					expect(problems[0]?.message).toMatch(/: line \d+, column \d+: [^"]+\.$/);
					expect(problems[0]?.message).not.toContain('S3CR3T');
				}
			}),
			{ numRuns: 300 },
		);
	});
});

describe('a file with one credential', () => {
	test.each([
		['plain', 'key-1234567890'],
		['with a line end', 'key-1234567890\n'],
		['with white space and a byte order mark', '\uFEFF \tkey-1234567890 \r\n\n'],
	])('%s', async (_name, content) => {
		const file = path.join(directory, 'secret');
		write(file, content);
		expect(await readSecretFile(file)).toBe('key-1234567890');
	});

	test('a password may have spaces and any letters, and the longest credential fits', async () => {
		const file = path.join(directory, 'secret');
		write(file, 'kiosk:pass wörd\n');
		expect(await readSecretFile(file)).toBe('kiosk:pass wörd');
		write(file, `${'k'.repeat(8192)}\n`);
		expect(await readSecretFile(file)).toHaveLength(8192);
	});

	test.each<[string, (file: string) => void, string]>([
		['missing', () => undefined, 'it is not there'],
		['empty', (file) => write(file, ' \n'), 'is empty'],
		['two lines', (file) => write(file, 'S3CR3T-one\nS3CR3T-two\n'), 'has more than one line'],
		['too long', (file) => write(file, 'S3CR3T'.repeat(1366)), 'has more than 8192 characters'],
		['a document', (file) => write(file, 'S3CR3T'.repeat(100_000)), 'it is larger than'],
		['control characters', (file) => write(file, 'S3CR3T\u0000'), 'has control characters'],
		['not UTF-8', (file) => write(file, Buffer.from('S3CR3Té', 'latin1')), 'it is not UTF-8'],
		['a directory', (file) => fs.mkdirSync(file), 'it is not a regular file'],
	])('%s: refused, without a word of the content', async (_name, make, reason) => {
		const file = path.join(directory, 'secret');
		make(file);
		const error: AgentError = await readSecretFile(file).then(
			() => expect.unreachable(),
			(reason) => reason,
		);
		const failure: Failure = toFailure(error);
		expect(failure.code).toBe('credential-unreadable');
		expect(failure.message).toContain(file);
		expect(failure.message).toContain(reason);
		expect(`${error.stack} ${JSON.stringify(error)} ${JSON.stringify(error.cause)}`).not.toContain('S3CR3T');
	});
});

describe('noticing changes', () => {
	/** A watch whose reports can be waited for: each `next()` is the first report after it was called. */
	function openWatch(file = configFile): { next: () => Promise<void>; reports: () => number; watch: SettingsWatch } {
		let reports = 0;
		let arrived = Promise.withResolvers<void>();
		const watch = watchSettings({ configFile: file }, () => {
			reports += 1;
			arrived.resolve();
			arrived = Promise.withResolvers();
		});
		closers.add(() => watch.close());
		return { next: () => arrived.promise, reports: () => reports, watch };
	}

	async function afterEachOf(steps: readonly (() => void)[], file?: string): Promise<void> {
		const { next } = openWatch(file);
		for (const step of steps) {
			const noticed = next();
			step();
			await noticed;
		}
	}

	test('a file that is written, replaced as editors do, removed and written again', async () => {
		write(configFile, '{}');
		await afterEachOf([
			() => write(configFile, '{"a":1}'),
			() => {
				write(`${configFile}~`, '{"a":2}');
				fs.renameSync(`${configFile}~`, configFile);
			},
			() => write(configFile, '{"a":3}'),
			() => fs.rmSync(configFile),
			() => write(configFile, '{"a":4}'),
			() => fs.chmodSync(configFile, 0o640),
		]);
	});

	test('conf.d that appears, changes, is replaced and goes', async () => {
		const confDirectory = path.join(configDirectory, 'conf.d');
		await afterEachOf([
			() => write(inConf('site.json'), '{}'),
			() => write(inConf('site.json'), '{"a":1}'),
			() => fs.rmSync(inConf('site.json')),
			() => write(inConf('50.JSON'), '{}'),
			() => fs.rmSync(inConf('50.JSON')),
			() => {
				fs.renameSync(confDirectory, `${confDirectory}.old`);
				write(inConf('other.json'), '{}');
			},
			() => write(inConf('other.json'), '{"a":2}'),
			() => fs.rmSync(confDirectory, { recursive: true }),
			() => write(inConf('site.json'), '{}'),
		]);
	});

	test('directories that appear only later, one after the other, and the link swap of mounted configurations', async () => {
		fs.rmSync(path.join(directory, 'etc'), { recursive: true });
		const versions = path.join(directory, 'versions');
		write(path.join(versions, '1', 'config.json'), '{}');
		write(path.join(versions, '2', 'config.json'), '{"a":1}');
		await afterEachOf([
			() => fs.mkdirSync(path.join(directory, 'etc')),
			() => fs.mkdirSync(configDirectory),
			() => {
				fs.symlinkSync(path.join(versions, '1'), path.join(configDirectory, '..data'));
				fs.symlinkSync('..data/config.json', configFile);
			},
			() => {
				fs.symlinkSync(path.join(versions, '2'), path.join(configDirectory, '..next'));
				fs.renameSync(path.join(configDirectory, '..next'), path.join(configDirectory, '..data'));
			},
			() => fs.rmSync(configDirectory, { recursive: true }),
			() => write(configFile, '{"a":2}'),
		]);
	});

	test('a link that is swapped a step away, of the file and of a directory above it', async () => {
		const [first, second] = [path.join(directory, 'one', 'c'), path.join(directory, 'two', 'c')];
		for (const file of [first, second]) write(file, '{}');
		const [links, current] = [path.join(directory, 'links'), path.join(directory, 'current')];
		fs.mkdirSync(links);
		fs.symlinkSync(first, path.join(links, 'b'));
		fs.symlinkSync(path.join(links, 'b'), configFile);
		fs.mkdirSync(path.join(configDirectory, 'conf.d'));
		fs.symlinkSync(path.join(directory, 'one'), current);
		fs.symlinkSync(path.join(current, 'c'), inConf('site.json'));
		const swap = (link: string, to: string) => () => {
			fs.symlinkSync(to, `${link}.new`);
			fs.renameSync(`${link}.new`, link);
		};
		await afterEachOf([
			swap(path.join(links, 'b'), second),
			() => write(second, '{"a":1}'),
			swap(current, path.join(directory, 'two')),
			swap(path.join(links, 'b'), first),
			() => write(first, '{"a":2}'),
		]);
	});

	test('files that settings name, as soon as they are there, until others are named', async () => {
		const { next, reports, watch } = openWatch();
		const key = path.join(directory, 'secrets', 'key');
		watch.follow([key]);
		for (const step of [
			() => fs.mkdirSync(path.dirname(key)),
			() => write(key, 'one'),
			() => {
				write(`${key}.new`, 'two');
				fs.renameSync(`${key}.new`, key);
			},
		]) {
			const noticed = next();
			step();
			await noticed;
		}
		const before = reports();
		watch.follow([]);
		write(key, 'three');
		const noticed = next();
		write(configFile, '{}');
		await noticed;
		expect(reports()).toBe(before + 1);
	});

	test('many changes at once are one report, and other files are none', async () => {
		const { next, reports } = openWatch();
		const noticed = next();
		for (let number = 0; number < 50; number += 1) {
			write(path.join(configDirectory, `notes-${number}`), 'x');
			write(configFile, JSON.stringify({ number }));
			write(inConf(`${number}.json`), '{}');
		}
		await noticed;
		// What was done before the watch began anew is over: a report of it would come before that of a later change.
		for (let number = 0; number < 50; number += 1) write(path.join(directory, `notes-${number}`), 'x');
		const again = next();
		write(configFile, '{}');
		await again;
		expect(reports()).toBe(2);
	});

	test('changes that do not stop are reported all the same [F1860]', async ({ signal }) => {
		let reports = 0;
		write(configFile, '{}');
		const times = { quietMs: 600_000, maxWaitMs: 200 };
		const watch = watchDirectories(
			() => [[configDirectory, () => true]],
			times,
			() => {
				reports += 1;
			},
		);
		while (reports === 0 && !signal.aborted) {
			write(configFile, '{}');
			await turn();
		}
		watch.close();
		expect(reports).toBe(1);
	});

	test('after closing there are no reports, whatever a reload that was under way names then', async () => {
		const closed = openWatch();
		const open = openWatch();
		const noticed = open.next();
		closed.watch.close();
		closed.watch.follow([path.join(configDirectory, 'key')]);
		write(configFile, '{}');
		await noticed;
		const again = open.next();
		write(configFile, '{"a":1}');
		await again;
		expect(closed.reports()).toBe(0);
	});

	test('a watch does not keep the process alive', () => {
		const script = path.join(import.meta.dirname, 'settings-watcher.ts');
		expect(execFileSync(process.execPath, [script, configFile], { encoding: 'utf8', timeout: 15_000 })).toBe(
			'watching',
		);
	});
});
