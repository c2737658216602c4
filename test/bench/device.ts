/**
 * `npm run bench:device`: what a device gets beside the floor: the package beside a stripped Node packed the same way, the
 * executable beside F1 made an executable in the same way. Everything in one run, because only figures of one run
 * compare. Needs root for a cold page cache, and dpkg-deb, readelf and strip. Asserts nothing: machines are noisy.
 *
 * `npm run bench:device -- --rounds 9 --cold-rounds 3 --settle-seconds 60 --idle-seconds 600 --no-package --json`: with
 * `--json`, the last line is one JSON document with all ratios. It warns when this machine was too busy for them.
 */
import { execFileSync } from 'node:child_process';
import { copyFile, mkdir, mkdtemp, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { bundle } from '../../scripts/bundle.ts';
import { buildDebianPackage } from '../../scripts/debian-package.ts';
import { type Architecture, buildExecutable, copyNode, embed } from '../../scripts/executable.ts';
import { channelUrl, DEFAULT_CHANNEL_PATH } from '../../src/protocol/endpoints.ts';
import { startService } from '../../src/service/embedded-service.ts';
import {
	formatTable,
	measureInTurns,
	type Program,
	type Result,
	readMemory,
	readThreadsCpuMs,
	start,
} from './measure.ts';
import { pairOnce } from './paired-device.ts';
import { collectRatios } from './ratios.ts';

const ROOT = join(import.meta.dirname, '..', '..');
const MIB = 1024 * 1024;
const ARCHITECTURE: Architecture = process.arch === 'arm64' ? 'arm64' : 'x64';

const { values } = parseArgs({
	allowNegative: true,
	options: {
		rounds: { type: 'string', default: '9' },
		'cold-rounds': { type: 'string', default: '3' },
		'settle-seconds': { type: 'string', default: '60' },
		'idle-seconds': { type: 'string', default: '600' },
		package: { type: 'boolean', default: true },
		json: { type: 'boolean', default: false },
	},
});

/** What a program prints when it has got so far. */
interface Marks {
	readonly online: RegExp;
	readonly ready?: RegExp;
}

const directory = await mkdtemp(join(tmpdir(), 'idv-agent-bench-'));
const service = await startService();
const ratios = collectRatios();
try {
	const floorFile = await buildFloor();
	const agentFile = await buildExecutable({ root: ROOT, architecture: ARCHITECTURE, outDir: join(directory, 'built') });
	if (values.package) await packageFigures(agentFile);

	const paired = await pairOnce(service, join(directory, 'booting'));
	const url = channelUrl(service.url, DEFAULT_CHANNEL_PATH).href;
	// A file that was written in one go shows its pages as this process's own: copies do not.
	const [floorCopy, agentCopy] = [join(directory, 'floor'), join(directory, 'agent')];
	await copyFile(floorFile, floorCopy);
	await copyFile(agentFile, agentCopy);
	execFileSync(agentCopy, ['code-cache']);
	const floor: Program = asUnit('F1: ws only', floorCopy, [url, paired.tokenFile]);
	const agent: Program = asUnit('idv-agent run', agentCopy, ['run', ...paired.flags]);
	const marks = new Map<Program, Marks>([
		[floor, { online: /^open$/ }],
		[agent, { online: /"msg":"online"/, ready: /^READY=1/ }],
	]);
	await startFigures([floor, agent], marks, Number(values.rounds), 'warm page cache');
	await startFigures([floor, agent], marks, Number(values['cold-rounds']), 'cold page cache', async ({ cwd }) => {
		for (const file of [floorCopy, agentCopy]) dropFromCache(file, cwd);
	});
	await longFigures([floor, agent], marks);
	ratios.print(values.json);
} finally {
	await service.close();
	await rm(directory, { recursive: true, force: true });
}

/** As the unit starts it: a descriptor for readiness, which a shell that becomes the program hands over, here as standard output. */
function asUnit(name: string, file: string, words: readonly string[]): Program {
	const script = 'export LISTEN_PID=$$; exec "$@" 3>&1';
	return {
		name,
		command: 'sh',
		args: ['-c', script, 'sh', file, ...words],
		cwd: directory,
		environment: {
			MALLOC_ARENA_MAX: '1',
			LISTEN_FDS: '1',
			LISTEN_FDNAMES: 'notify',
			NOTIFY_SOCKET: '/nonexistent',
		},
	};
}

async function buildFloor(): Promise<string> {
	const work = join(directory, 'floor-built');
	await bundle({
		root: ROOT,
		entries: { program: 'test/bench/floor-client.ts' },
		outDir: join(work, 'bundle'),
		singleFile: true,
	});
	const options = { root: ROOT, architecture: ARCHITECTURE, outDir: join(directory, 'built'), work };
	await embed({ ...options, program: 'bundle/program.cjs', name: 'floor', assets: {}, codeCache: true });
	return join(work, 'floor');
}

/** Both with the compression of a release: takes two minutes. */
async function packageFigures(executable: string): Promise<void> {
	const outDir = join(directory, 'packages');
	const ours = await buildDebianPackage({
		root: ROOT,
		executable,
		architecture: ARCHITECTURE,
		version: '0.1.0',
		epoch: 1_780_000_000,
		outDir,
	});
	const tree = join(outDir, 'node');
	await mkdir(join(tree, 'DEBIAN'), { recursive: true });
	await mkdir(join(tree, 'usr/lib/node'), { recursive: true });
	await copyNode(ROOT, ARCHITECTURE, outDir, join(tree, 'usr/lib/node/node'));
	execFileSync('sh', [
		'-c',
		`printf 'Package: node\\nVersion: 1\\nArchitecture: all\\nMaintainer: none\\nDescription: none\\n' > ${tree}/DEBIAN/control`,
	]);
	const nodes = join(outDir, 'node.deb');
	const how = ['--root-owner-group', '--uniform-compression', '-Zxz', '-z9', '--threads-max=1'];
	execFileSync('dpkg-deb', [...how, '--build', tree, nodes]);
	const megabytes = async (file: string) => (await stat(file)).size / 1_000_000;
	const results = [
		{ name: 'stripped Node, packed the same way', figures: { 'package, MB': await megabytes(nodes) } },
		{ name: 'idv-agent.deb', figures: { 'package, MB': await megabytes(ours) } },
	];
	console.log(
		`\nPackage\n${formatTable(
			results.map((result) => ({ ...result, samples: [] })),
			2,
		)}`,
	);
}

async function startFigures(
	programs: readonly Program[],
	marks: ReadonlyMap<Program, Marks>,
	rounds: number,
	what: string,
	before: (program: Program) => Promise<void> = async () => {},
): Promise<void> {
	if (rounds < 1) return;
	const results = await measureInTurns(programs, rounds, async (program) => {
		await before(program);
		const running = start(program);
		const { online = /./, ready } = marks.get(program) ?? {};
		try {
			const untilReady = ready && running.untilLine(ready, 60_000);
			const figures = { 'exec to online, ms': await running.untilLine(online, 60_000) };
			return untilReady ? { ...figures, 'exec to READY, ms': await untilReady } : figures;
		} finally {
			await running.stop();
		}
	});
	ratios.add(`start, ${what}`, results);
	console.log(
		`\nStart with a saved Connection, ${what} (median of ${rounds}, in turns)\n${formatTable(withAll(results))}`,
	);
}

/** A figure that only the later rows have gets its column, too. */
function withAll(results: readonly Result[]): Result[] {
	const names = new Set(results.flatMap(({ figures }) => Object.keys(figures)));
	const [first, ...rest] = results;
	if (!first) return [];
	const missing = [...names].filter((name) => !(name in first.figures));
	const ready = first.figures['exec to online, ms'] ?? Number.NaN;
	// The floor is ready when it is online.
	return [
		{ ...first, figures: { ...first.figures, ...Object.fromEntries(missing.map((name) => [name, ready])) } },
		...rest,
	];
}

async function longFigures(programs: readonly Program[], marks: ReadonlyMap<Program, Marks>): Promise<void> {
	const all = programs.map((program) => ({ program, running: start(program) }));
	const [settleMs, idleMs] = [Number(values['settle-seconds']) * 1000, Number(values['idle-seconds']) * 1000];
	try {
		await Promise.all(all.map(({ program, running }) => running.untilLine(marks.get(program)?.online ?? /./)));
		await pause(settleMs);
		const memory = all.map(({ running }) => readMemory(running.pid));
		const before = all.map(({ running }) => readThreadsCpuMs(running.pid));
		await pause(idleMs);
		const results: Result[] = all.map(({ program, running }, index) => {
			const figures = {
				'PSS, MiB': (memory[index]?.pss ?? 0) / MIB,
				'anonymous, MiB': (memory[index]?.anonymous ?? 0) / MIB,
				'CPU, ms an idle minute': (readThreadsCpuMs(running.pid) - (before[index] ?? 0)) / (idleMs / 60_000),
			};
			return { name: program.name, figures, samples: [figures] };
		});
		ratios.add('memory and idle CPU', results);
		console.log(
			`\nMemory after ${settleMs / 1000} s, CPU over ${idleMs / 1000} idle s (F1 sends no heartbeat)\n${formatTable(results)}`,
		);
	} finally {
		await Promise.all(all.map(({ running }) => running.stop()));
	}
}

/** Has the kernel forget a file's pages: the next start reads it from the disk. */
function dropFromCache(file: string, cwd = dirname(file)): void {
	execFileSync('dd', [`of=${file}`, 'oflag=nocache', 'conv=notrunc,fdatasync', 'count=0', 'status=none'], { cwd });
}
