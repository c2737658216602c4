/**
 * `npm run suite -- bench:device`: what a device gets beside the floor: the package beside a stripped Node packed the same way, the
 * executable beside F1 made an executable in the same way. Everything in one run, because only figures of one run
 * compare. Needs root for a cold page cache, and dpkg-deb, readelf and strip. Asserts nothing: machines are noisy.
 *
 * Starts over ws and wss (default roots, and a private authority), each with and without 1,000 events kept; memory, threads and
 * idle CPU beside F1 and beside agents of others that Debian has, where they are installed.
 *
 * `npm run suite -- bench:device --rounds 9 --cold-rounds 3 --settle-seconds 60 --idle-seconds 60 --no-package --json`: takes some
 * six minutes; `--idle-seconds 600` is what idle CPU wants. With `--json`, the last line is one JSON document with all
 * ratios. It warns when this machine was too busy for them.
 */
import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { copyFile, cp, mkdir, mkdtemp, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { bundle } from '../../scripts/bundle.ts';
import { buildDebianPackage } from '../../scripts/debian-package.ts';
import { type Architecture, buildExecutable, copyNode, embed } from '../../scripts/executable.ts';
import { channelUrl, DEFAULT_CHANNEL_PATH } from '../../src/protocol/endpoints.ts';
import { type EmbeddedService, startService } from '../../src/service/embedded-service.runner.ts';
import {
	formatTable,
	measureInTurns,
	type Program,
	type Result,
	readMemory,
	readThreadsCpuMs,
	start,
} from './measure.ts';
import { flagsFor, keepEvents, pairOnce } from './paired-device.ts';
import { collectRatios } from './ratios.ts';
import { readTimeline, type Timeline } from './timeline.ts';

const ROOT = join(import.meta.dirname, '..', '..');
const MIB = 1024 * 1024;
const fixture = (name: string) => join(ROOT, 'test', 'fixtures', 'tls', name);
const ARCHITECTURE: Architecture = process.arch === 'arm64' ? 'arm64' : 'x64';

const { values } = parseArgs({
	allowNegative: true,
	options: {
		rounds: { type: 'string', default: '9' },
		'cold-rounds': { type: 'string', default: '3' },
		'settle-seconds': { type: 'string', default: '60' },
		'idle-seconds': { type: 'string', default: '60' },
		package: { type: 'boolean', default: true },
		json: { type: 'boolean', default: false },
	},
});

/** What a program prints when its channel is open, and the agent when systemd may go on. */
const ONLINE = /^open$|"msg":"online"/;
const READY = /^READY=1/;

/** Agents of others, with the settings of their packages where these name no server; each takes what port is free, or none. */
const PEERS: readonly Omit<Program, 'cwd'>[] = [
	{
		name: 'prometheus-node-exporter',
		command: '/usr/bin/prometheus-node-exporter',
		args: ['--web.listen-address=127.0.0.1:0'],
	},
	{ name: 'zabbix-agent2', command: '/usr/sbin/zabbix_agent2', args: ['-f', '-c', 'zabbix.conf'] },
	{
		name: 'mender-client',
		command: '/usr/bin/mender',
		args: ['--data', 'mender', '--config', 'mender.conf', 'daemon'],
	},
];

const directory = await mkdtemp(join(tmpdir(), 'idv-agent-bench-'));
const service = await startService();
const ratios = collectRatios();
try {
	const floorFile = await buildFloor();
	const agentFile = await buildExecutable({ root: ROOT, architecture: ARCHITECTURE, outDir: join(directory, 'built') });
	if (values.package) await packageFigures(agentFile);

	// A file that was written in one go shows its pages as this process's own: copies do not.
	const [floorCopy, agentCopy] = [join(directory, 'floor'), join(directory, 'agent')];
	await copyFile(floorFile, floorCopy);
	await copyFile(agentFile, agentCopy);
	execFileSync(agentCopy, ['code-cache']);
	const plain = await pairedPrograms(service, 'ws', floorCopy, agentCopy);
	const [floor, agent] = plain;
	await startFigures('ws, warm page cache', plain, Number(values.rounds));
	await startFigures('ws, cold page cache', plain, Number(values['cold-rounds']), async ({ cwd }) => {
		for (const file of [floorCopy, agentCopy]) dropFromCache(file, cwd);
	});
	const tls = { key: readFileSync(fixture('server.key'), 'utf8'), cert: readFileSync(fixture('server.pem'), 'utf8') };
	const secureService = await startService({ port: 0, tls, publicUrl: undefined });
	try {
		const secure = await pairedPrograms(secureService, 'wss', floorCopy, agentCopy);
		await startFigures('wss', secure, Number(values.rounds));
		// Both are a device's steady state: one without an event opens no store and starts no flush.
		await cp(join(directory, 'ws', 'state'), join(directory, 'kept', 'state'), { recursive: true });
		await keepEvents(join(directory, 'kept', 'state'));
		const kept = asUnit('idv-agent run, 1,000 events kept', agentCopy, ['run', ...flagsFor(join(directory, 'kept'))]);
		await longFigures([floor, agent, kept]);
		for (const kind of ['ws', 'wss']) await keepEvents(join(directory, kind, 'state'));
		await startFigures('ws, 1,000 events kept', plain, Number(values.rounds));
		await startFigures('wss, 1,000 events kept', secure, Number(values.rounds));
	} finally {
		await secureService.close();
	}
	const timeline: Record<string, Timeline> = {};
	for (const program of [floor, agent]) {
		const steps = await readTimeline(program, ONLINE, 5);
		if (steps) timeline[program.name] = steps;
	}
	ratios.print(values.json, Object.keys(timeline).length > 0 ? { timeline } : {});
} finally {
	await service.close();
	await rm(directory, { recursive: true, force: true });
}

/** As the unit starts it: a descriptor for readiness, which a shell that becomes the program hands over, here as standard output. */
function asUnit(
	name: string,
	file: string,
	words: readonly string[],
	environment: Readonly<Record<string, string>> = {},
): Program {
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
			...environment,
		},
	};
}

/** F1 and the agent as a device of this service; over wss, the agent once more with the service's authority in its settings. */
async function pairedPrograms(
	to: EmbeddedService,
	kind: 'ws' | 'wss',
	floorFile: string,
	agentFile: string,
): Promise<readonly [Program, Program, ...Program[]]> {
	const caFile = fixture('ca.pem');
	const own = kind === 'wss' ? [`network.caFile=${caFile}`] : [];
	const paired = await pairOnce(to, join(directory, kind), own);
	const url = channelUrl(to.url, DEFAULT_CHANNEL_PATH).href;
	const usual: Readonly<Record<string, string>> = kind === 'wss' ? { NODE_EXTRA_CA_CERTS: caFile } : {};
	const run = ['run', ...paired.flags, ...own.flatMap((set) => ['--set', set])];
	return [asUnit('F1: ws only', floorFile, [url, paired.tokenFile], usual), asUnit('idv-agent run', agentFile, run)];
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
	const packages = results.map((result) => ({ ...result, samples: [] }));
	ratios.add('package', packages);
	console.log(`\nPackage\n${formatTable(packages, 2)}`);
}

async function startFigures(
	what: string,
	programs: readonly Program[],
	rounds: number,
	before: (program: Program) => Promise<void> = async () => {},
): Promise<void> {
	if (rounds < 1) return;
	const results = await measureInTurns(programs, rounds, async (program) => {
		await before(program);
		const running = start(program);
		try {
			const untilReady = program === programs[0] ? null : running.untilLine(READY, 60_000);
			const figures = { 'exec to online, ms': await running.untilLine(ONLINE, 60_000) };
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

/** Those that are installed; the others are named. */
async function installedPeers(): Promise<Program[]> {
	await writeFile(
		join(directory, 'zabbix.conf'),
		`Server=127.0.0.1\nHostname=bench\nListenIP=127.0.0.1\nListenPort=10${process.pid % 10}50\nLogType=console\nControlSocket=${directory}/zabbix.sock\n`,
	);
	await writeFile(
		join(directory, 'mender.conf'),
		JSON.stringify({
			ServerURL: 'https://127.0.0.1:9',
			UpdatePollIntervalSeconds: 1800,
			InventoryPollIntervalSeconds: 28_800,
		}),
	);
	await mkdir(join(directory, 'mender'), { recursive: true });
	const absent = PEERS.filter(({ command }) => !existsSync(command));
	if (absent.length > 0) console.log(`\nNot installed, and not measured: ${absent.map(({ name }) => name).join(', ')}`);
	return PEERS.filter((peer) => !absent.includes(peer)).map((peer) => ({ ...peer, cwd: directory }));
}

async function longFigures(programs: readonly Program[]): Promise<void> {
	const peers = (await installedPeers()).map((program) => ({ program, running: start(program) }));
	const own = programs.map((program) => ({ program, running: start(program) }));
	const [settleMs, idleMs] = [Number(values['settle-seconds']) * 1000, Number(values['idle-seconds']) * 1000];
	try {
		await Promise.all(own.map(({ running }) => running.untilLine(ONLINE)));
		await pause(settleMs);
		const all = [...own, ...peers].filter(({ program, running }) => {
			if (existsSync(`/proc/${running.pid}/smaps_rollup`) && readMemory(running.pid).anonymous > 0) return true;
			console.log(`\n${program.name} has ended by itself and is not measured.`);
			return false;
		});
		const memory = all.map(({ running }) => readMemory(running.pid));
		const before = all.map(({ running }) => readThreadsCpuMs(running.pid));
		await pause(idleMs);
		const results: Result[] = all.map(({ program, running }, index) => {
			const figures = {
				'PSS, MiB': (memory[index]?.pss ?? 0) / MIB,
				'anonymous, MiB': (memory[index]?.anonymous ?? 0) / MIB,
				threads: readdirSync(`/proc/${running.pid}/task`).length,
				'CPU, ms an idle minute': (readThreadsCpuMs(running.pid) - (before[index] ?? 0)) / (idleMs / 60_000),
			};
			return { name: program.name, figures, samples: [figures] };
		});
		ratios.add('memory and idle CPU', results);
		console.log(
			`\nMemory after ${settleMs / 1000} s, CPU over ${idleMs / 1000} idle s (F1 sends no heartbeat)\n${formatTable(results)}`,
		);
	} finally {
		await Promise.all([...own, ...peers].map(({ running }) => running.stop()));
	}
}

/** Has the kernel forget a file's pages: the next start reads it from the disk. */
function dropFromCache(file: string, cwd = dirname(file)): void {
	execFileSync('dd', [`of=${file}`, 'oflag=nocache', 'conv=notrunc,fdatasync', 'count=0', 'status=none'], { cwd });
}
