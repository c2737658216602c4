import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';

const HEAP = join(import.meta.dirname, '../../src/daemon/heap.edge.ts');

/** In a process of its own: bytes of compiled code while a start's functions have just run, after the trim, and after later collections. */
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
	for (let times = 0; times < 3; times += 1) globalThis.gc();
	console.log(JSON.stringify({ started, trimmed, kept: bytes(), answers: [start[7](), later[7]()] }));
`;

test('a trim drops what only the start has run; afterwards code stays as long as V8 keeps it by itself', async () => {
	const args = ['--expose-gc', '--input-type=module', '--eval', PROGRAM];
	const { stdout } = await promisify(execFile)(process.execPath, args);
	const { started, trimmed, kept, answers } = JSON.parse(stdout);
	expect(trimmed).toBeLessThan(started / 4);
	expect(kept).toBeGreaterThan(started / 2);
	expect(answers).toEqual([
		['start', 7, { start: 7 }],
		['later', 7, { later: 7 }],
	]);
});
