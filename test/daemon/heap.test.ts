import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';

const HEAP = join(import.meta.dirname, '../../src/daemon/heap.edge.ts');

/** In a process of its own: bytes of compiled code while a start's functions have just run, after the trim, and after the next collection. */
const PROGRAM = `
	import { getHeapCodeStatistics } from 'node:v8';
	import { trimHeap } from ${JSON.stringify(HEAP)};
	const bytes = () => getHeapCodeStatistics().bytecode_and_metadata_size;
	const make = (name) => Array.from({ length: 1000 }, (_, index) => new Function(\`return ['\${name}', \${index}, { \${name}: \${index} }]\`));
	const start = make('start');
	for (const one of start) one();
	const started = bytes();
	trimHeap();
	const trimmed = bytes();
	const later = make('later');
	for (const one of later) one();
	const ran = bytes();
	globalThis.gc({ type: 'major', execution: 'sync', flavor: 'last-resort' });
	console.log(JSON.stringify({ started, trimmed, ran, kept: bytes(), answers: [start[7](), later[7]()] }));
`;

test('a trim drops what only the start has run; afterwards code stays as long as V8 keeps it by itself', async () => {
	const args = ['--expose-gc', '--input-type=module', '--eval', PROGRAM];
	const { stdout } = await promisify(execFile)(process.execPath, args);
	const { started, trimmed, ran, kept, answers } = JSON.parse(stdout);
	expect(trimmed).toBeLessThan(started / 4);
	expect(kept).toBeGreaterThan(ran / 4);
	expect(answers).toEqual([
		['start', 7, { start: 7 }],
		['later', 7, { later: 7 }],
	]);
});
