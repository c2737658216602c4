/**
 * `npm run suite -- bench:scan`: from a picture to its text, beside zbarimg over the same rendered pictures, and from a scanned code to
 * the open channel on loopback. Everything in one run. Asserts nothing: machines are noisy. Needs Debian's zbar-tools.
 *
 * `npm run suite -- bench:scan --rounds 5`
 */
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { bundle } from '../../scripts/bundle.ts';
import { startDaemon } from '../../src/daemon/daemon.runner.ts';
import { readPicture } from '../../src/scanning/picture-reader.edge.ts';
import { startService } from '../../src/service/embedded-service.runner.ts';
import { choosePaths } from '../../src/settings/paths.runner.ts';

const ROOT = join(import.meta.dirname, '..', '..');
const PHOTOS = join(ROOT, 'test', 'fixtures', 'photos');

const { values } = parseArgs({ options: { rounds: { type: 'string', default: '5' } } });
const rounds = Number(values.rounds);

interface Reader {
	readonly name: string;
	read(path: string): Promise<string>;
	readonly timesMs: number[];
	right: number;
	wrong: number;
}

const directory = await mkdtemp(join(tmpdir(), 'idv-scan-'));
try {
	await readingFigures();
	await pairingFigures();
} finally {
	await rm(directory, { recursive: true, force: true });
}

async function readingFigures(): Promise<void> {
	if (spawnSync('zbarimg', ['--version']).error) {
		process.stdout.write('zbarimg is missing, so there is nothing to compare with: apt-get install zbar-tools\n');
		return;
	}
	const node = join(ROOT, 'node_modules', '.bin', 'node');
	const program = join(directory, 'read.ts');
	const source = JSON.stringify(join(ROOT, 'src/scanning/picture-reader.edge.ts'));
	await writeFile(
		program,
		`import { readPicture } from ${source};
void readPicture(process.argv[2] ?? '').then(([text]) => process.stdout.write(text ?? ''), () => {});`,
	);
	const outDir = join(directory, 'dist');
	await bundle({ root: ROOT, entries: { read: program }, outDir });
	const env = { ...process.env, NODE_COMPILE_CACHE: join(directory, 'cache') };
	const inProcess = (command: string, args: readonly string[]) => async (path: string) => {
		const { stdout } = spawnSync(command, [...args, path], { env, encoding: 'utf8' });
		return stdout.trimEnd();
	};
	const reader = (name: string, read: Reader['read']): Reader => ({ name, read, timesMs: [], right: 0, wrong: 0 });
	const readers = [
		reader('ours, in the process', async (path) => (await readPicture(path).catch(() => []))[0] ?? ''),
		reader('ours, a process each', inProcess(node, [join(outDir, 'read.cjs')])),
		reader('zbarimg, a process each', inProcess('zbarimg', ['-q', '--raw', '--nodbus'])),
		reader('empty script, a process each', inProcess(node, ['-e', '0'])),
	];
	const set = (await readFile(join(PHOTOS, 'expected.txt'), 'utf8')).trimEnd().split('\n');
	for (let round = 0; round < rounds; round += 1)
		for (const line of set) {
			const [name = '', desired = ''] = line.split('\t');
			for (const one of readers) {
				const beganMs = performance.now();
				const text = await one.read(join(PHOTOS, name));
				one.timesMs.push(performance.now() - beganMs);
				if (round === 0 && text === desired) one.right += 1;
				else if (round === 0 && text !== '') one.wrong += 1;
			}
		}
	process.stdout.write(`${set.length} pictures, ${rounds} rounds; ${execFileSync('zbarimg', ['--version'])}`);
	process.stdout.write(
		`${''.padEnd(30)}${'median ms'.padStart(12)}${'p95 ms'.padStart(10)}${'right'.padStart(8)}${'wrong'.padStart(8)}\n`,
	);
	for (const { name, timesMs, right, wrong } of readers)
		process.stdout.write(
			`${name.padEnd(30)}${quantile(timesMs, 0.5).padStart(12)}${quantile(timesMs, 0.95).padStart(10)}${String(right).padStart(8)}${String(wrong).padStart(8)}\n`,
		);
}

/** The first pairing loads the HTTP client; the others are what a technician's second device would see. */
async function pairingFigures(): Promise<void> {
	const service = await startService();
	const timesMs: number[] = [];
	try {
		for (let round = 0; round <= rounds; round += 1) {
			const home = join(directory, `device-${round}`);
			await mkdir(home);
			const daemon = await startDaemon({
				version: 'bench',
				paths: choosePaths({ stateDir: join(home, 'state'), runDir: join(home, 'run') }, {}),
				env: {},
				sets: [`baseUrl=${service.url}`, `deviceId=bench-${round}`, 'log.level=error'],
				logTo: { write: () => {} },
			});
			const code = service.createPairingCode('document-check');
			const beganMs = performance.now();
			const { online } = await daemon.agent.pair({ code: code.url });
			if (!online) throw new Error('The device did not come online.');
			timesMs.push(performance.now() - beganMs);
			await daemon.stop();
		}
	} finally {
		await service.close();
	}
	const [first = 0, ...others] = timesMs;
	process.stdout.write(
		`\nscan to online, in the process   first ${first.toFixed(1)} ms, then ${quantile(others, 0.5)} ms (median of ${others.length})\n`,
	);
}

function quantile(timesMs: readonly number[], part: number): string {
	const sorted = timesMs.toSorted((one, other) => one - other);
	return (sorted[Math.min(sorted.length - 1, Math.floor(part * sorted.length))] ?? 0).toFixed(1);
}
