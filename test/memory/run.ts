/**
 * `npm run suite -- memory [--seconds S --stores 0,3]`: 128 readers of full stores of 4, 64 and 256 MiB, with large and tiny events, in JSON and as control
 * characters, which JSON writes sixfold, who stop, are slow, read
 * all, ask for pages and cancel, before and after a restart of the agent. The agent runs as the unit has it: 256 MiB in a control group
 * (192 MiB soft), or within a heap of 96 MiB where this machine permits no group. It must live, and a good reader must get no notification later than
 * 200 ms in two tries, besides what this process itself is late by.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readFileSync, rmdirSync, rmSync, writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { setTimeout as pause } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { Worker } from 'node:worker_threads';
import { bundle } from '../../scripts/bundle.ts';
import { createEventStreamParser } from '../../src/client/agent-socket.edge.ts';
import { createEventStore } from '../../src/events/store.edge.ts';
import { FORWARDED_EACH } from '../../src/protocol/local-api.ts';
import { startService } from '../../src/service/embedded-service.runner.ts';
import { pairOnce } from '../bench/paired-device.ts';

const MIB = 1024 * 1024;
const READERS = 124;
const LATEST_MS = 200;
const { values } = parseArgs({
	options: { seconds: { type: 'string', default: '10' }, stores: { type: 'string', default: '0,1,2,3,4,5,6,7,8' } },
});
const phaseMs = Number(values.seconds) * 1000;
const ROOT = join(import.meta.dirname, '../..');
const directory = mkdtempSync(join(tmpdir(), 'idv-memory-'));

const STORES = [
	{ store: 4, bytes: 512 * 1024 },
	{ store: 4, bytes: 200 },
	{ store: 64, bytes: 4 * MIB },
	{ store: 64, bytes: 700 },
	{ store: 64, bytes: 15 * MIB, format: 'text' },
	{ store: 256, bytes: 4 * MIB },
	{ store: 4, bytes: 200, programs: 7 },
	{ store: 64, bytes: 500_000, programs: 7, applications: '/v1/events/stream' },
	{ store: 64, bytes: 500_000, programs: 7, applications: '/v1/service/api/large' },
] as const satisfies readonly Store[];

interface Store {
	readonly store: number;
	readonly bytes: number;
	/** `text`: of control characters. */
	readonly format?: 'text';
	/** In place of readers: so many that each have the answers of the service unread that one program may have. */
	readonly programs?: number;
	/** Besides: what each of so many applications as a file takes asks for, as often as the largest shares permit, on its own socket, and does not read. */
	readonly applications?: string;
}

/** As many as a file takes, with the largest shares. */
const APPLICATIONS = Array.from({ length: 16 }, (_, at) => `app${at}`);
const SHARE = 64;

/** A control group of this run, by the version that the machine has; `null` where it permits none. */
function makeGroup() {
	for (const [at, limits, peak] of [
		['/sys/fs/cgroup', { 'memory.max': 256, 'memory.high': 192 }, 'memory.peak'],
		[
			'/sys/fs/cgroup/memory',
			{ 'memory.limit_in_bytes': 256, 'memory.soft_limit_in_bytes': 192 },
			'memory.max_usage_in_bytes',
		],
	] as const) {
		const group = join(at, `idv-memory-${process.pid}`);
		try {
			mkdirSync(group);
			for (const [file, mib] of Object.entries(limits))
				writeFileSync(join(group, file), String(mib * MIB), { flag: 'r+' });
			return { group, peakMib: () => Number(readFileSync(join(group, peak), 'utf8')) / MIB };
		} catch {
			rmSync(group, { recursive: true, force: true });
		}
	}
	return null;
}

/** The most that a process has had in memory, in MiB. */
const peakOf = ({ pid }: ChildProcess) =>
	Number(/^VmHWM:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1] ?? Number.NaN) / 1024;

/** Of the time in which its first thread could have run, the part in which other work of the machine kept it from a core, in per cent. */
function keptOff({ pid }: ChildProcess): number {
	const [ran = 0, waited = 0] = readFileSync(`/proc/${pid}/schedstat`, 'utf8').split(' ').map(Number);
	return (100 * waited) / (ran + waited);
}

/** Of the service: shared by all who ask, and more than the agent and the kernel hold. */
const LARGE = Buffer.alloc(16 * MIB, 'x');

async function fill(stateDir: string, { store, bytes, format }: Store): Promise<number> {
	const bounds = { maxCount: 100_000, maxBytes: store * MIB, maxAgeMs: 86_400_000 };
	const events = createEventStore({ directory: stateDir, epoch: 'memory', bounds });
	const filler = (format ? '\u0001' : 'x').repeat(bytes - 40);
	for (let number = 1; number <= (store * MIB) / bytes - 1; number += 1) {
		events.append({
			...{ at: new Date().toISOString(), type: 'notification', kind: 'filler', serviceId: null },
			...{ workflowId: 'document-check', format: format ?? 'json' },
			content: format ? filler : JSON.stringify({ number, filler }),
		} as Parameters<typeof events.append>[0]);
		if (bytes > MIB) await events.settled();
	}
	await events.settled();
	const { count } = events;
	await events.close();
	return count;
}

async function run(of: Store) {
	const service = await startService();
	service.failNext('/api/large', { status: 200, body: LARGE }, Number.POSITIVE_INFINITY);
	const base = mkdtempSync(join(directory, 'run-'));
	const { flags } = await pairOnce(service, base);
	const kept = await fill(join(base, 'state'), of);
	const group = makeGroup();
	const file = join(base, 'applications');
	const lines = APPLICATIONS.map(
		(name) => `${name} - - socket=${process.getgid?.()} connections=${SHARE} uploads=${SHARE} waits=${SHARE}\n`,
	);
	writeFileSync(file, lines.join(''), { mode: 0o600 });
	const sets = [
		...[`events.maxBytes=${of.store * MIB}`, 'events.maxCount=100000'],
		...(of.applications ? [`local.http.applicationsFile=${file}`] : []),
	].flatMap((set) => ['--set', set]);
	let rss = 0;
	let off = 0;
	const start = () => {
		const program = [join(ROOT, 'node_modules/.bin/node'), ...(group ? [] : ['--max-old-space-size=96'])];
		const args = [...program, join(directory, 'dist/idv-agent.cjs'), 'run', ...flags, ...sets];
		const enter = group ? `echo $$ > ${join(group.group, 'cgroup.procs')} && ` : '';
		const child = spawn('sh', ['-c', `${enter}exec "$@"`, 'sh', ...args], { stdio: ['ignore', 'ignore', 'inherit'] });
		const look = setInterval(() => {
			rss = Math.max(rss, peakOf(child) || 0);
		}, 250);
		child.once('exit', () => clearInterval(look));
		return child;
	};
	let agent = start();
	const socketPath = join(base, 'run/agent.sock');
	await untilOnline(socketPath);
	const good = followAsGoodReader(socketPath, service);
	let callers = of.programs ? leaveUnread(socketPath, of.programs, of.applications) : read(socketPath);
	await pause(phaseMs);
	const died = [agent.exitCode, agent.signalCode].some((one) => one !== null);
	good.pause();
	if (!died) off = keptOff(agent);
	agent.kill('SIGTERM');
	if (!died) await once(agent, 'exit');
	agent = start();
	const isBack = await untilOnline(socketPath).then(
		() => true,
		() => false,
	);
	good.resume();
	// A socket that is not read does not tell that the agent has ended.
	const before = of.programs ? await callers.stop() : null;
	if (of.programs) callers = leaveUnread(socketPath, of.programs, of.applications);
	await pause(phaseMs);
	const diedAgain = !isBack || [agent.exitCode, agent.signalCode].some((one) => one !== null);
	const { worstMs, seen, ownMs } = good.stop();
	const { bytes, connections } = await callers.stop();
	if (!diedAgain) off = Math.max(off, keptOff(agent));
	agent.kill('SIGTERM');
	if (agent.exitCode === null && agent.signalCode === null) await once(agent, 'exit');
	await service.close();
	const inGroup = group?.peakMib() ?? Number.NaN;
	if (group) rmdirSync(group.group);
	const deaths = Number(died) + Number(diedAgain);
	rmSync(base, { recursive: true, force: true });
	return {
		store: `${of.store} MiB of ${of.bytes} B${of.format ? ', control characters' : ''}${of.programs ? ', answers unread' : ''}${of.applications ? `, and ${of.applications} by 16 applications` : ''}`,
		readers: (of.programs ?? 0) * FORWARDED_EACH + (of.applications ? APPLICATIONS.length * SHARE : 0) || READERS,
		kept,
		...{ bytes, connections: connections + (before?.connections ?? 0) },
		rss,
		inGroup,
		deaths,
		seen,
		worstMs,
		ownMs,
		off,
	};
}

function read(socketPath: string) {
	const readers = new Worker(join(import.meta.dirname, 'readers.ts'), { workerData: { socketPath, count: READERS } });
	return {
		async stop() {
			readers.postMessage('enough');
			const [counts] = (await once(readers, 'message')) as [{ connections: number; bytes: number }];
			await readers.terminate();
			return counts;
		},
	};
}

/** Programs are told apart by their process. */
function leaveUnread(socketPath: string, count: number, path?: string) {
	const shared = Array.from({ length: count }, () => [socketPath, String(FORWARDED_EACH)]);
	const sockets = APPLICATIONS.map((name) => join(dirname(socketPath), 'apps', `${name}.sock`));
	let connections = 0;
	const programs = [...shared, ...(path ? [[sockets.join(), String(SHARE), path]] : [])].map((args) =>
		spawn(process.execPath, [join(import.meta.dirname, 'unread.ts'), ...args], {
			stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
		}).on('message', () => {
			connections += 1;
		}),
	);
	return {
		async stop() {
			for (const one of programs) one.kill('SIGKILL');
			await Promise.all(programs.map((one) => (one.exitCode === null ? once(one, 'exit') : null)));
			return { connections, bytes: 0 };
		},
	};
}

async function untilOnline(socketPath: string): Promise<void> {
	for (let turn = 0; turn < 400; turn += 1) {
		const status = await new Promise<number>((resolve) => {
			const asking = request({ socketPath, path: '/readyz', agent: false }, (answer) =>
				resolve(answer.resume().statusCode ?? 0),
			);
			asking.on('error', () => resolve(0)).end();
		});
		if (status === 200) return;
		await pause(50);
	}
	throw new Error(`The agent at ${socketPath} is not online.`);
}

const isLate = ({ worstMs, ownMs }: { readonly worstMs: number; readonly ownMs: number }) =>
	worstMs - ownMs > LATEST_MS;

/** Gets a notification each 100 ms; how late the latest came, without those of a restart. */
function followAsGoodReader(socketPath: string, service: Awaited<ReturnType<typeof startService>>) {
	let worstMs = 0;
	let seen = 0;
	let isPaused = false;
	let isOver = false;
	const follow = async () => {
		const status = await new Promise<string>((resolve) => {
			const asking = request({ socketPath, path: '/v1/status', agent: false }, async (answer) => {
				resolve(Buffer.concat(await answer.toArray()).toString());
			});
			asking.on('error', () => resolve('{}')).end();
		});
		const { newestEventId } = JSON.parse(status || '{}') as { newestEventId?: string };
		// All places were taken: without an id it would read the whole store first.
		if (!newestEventId) return void (isOver || setTimeout(() => void follow(), 50));
		const asking = request({ socketPath, path: `/v1/events/stream?since=${newestEventId}`, agent: false }, (answer) => {
			const parse = createEventStreamParser();
			answer
				.on('error', () => {})
				.on('data', (bytes: Buffer) => {
					for (const { data } of parse(bytes)) {
						const { sentMs } = (JSON.parse(data) as { data?: { sentMs?: number } }).data ?? {};
						if (sentMs === undefined || isPaused) continue;
						seen += 1;
						worstMs = Math.max(worstMs, performance.now() - sentMs);
					}
				});
		});
		asking
			.on('error', () => {})
			.on('close', () => void (isOver || setTimeout(() => void follow(), 100)))
			.end();
	};
	void follow();
	// What this process itself was late by says nothing of the agent.
	const own = monitorEventLoopDelay({ resolution: 10 });
	own.enable();
	const ticks = setInterval(() => {
		if (!isPaused) service.notify({ type: 'tick', sentMs: performance.now() });
	}, 100);
	return {
		pause() {
			isPaused = true;
		},
		resume: () =>
			setTimeout(() => {
				isPaused = false;
			}, 1000),
		stop() {
			isOver = true;
			clearInterval(ticks);
			own.disable();
			return { worstMs, seen, ownMs: own.max / 1e6 };
		},
	};
}

try {
	await bundle({ root: ROOT, entries: { 'idv-agent': 'src/cli/idv-agent.ts' }, outDir: join(directory, 'dist') });
	const rows = [];
	for (const of of STORES.filter((_, index) => values.stores.split(',').includes(String(index)))) {
		const row = await run(of);
		// A machine that was busy for a moment is no fault.
		rows.push(isLate(row) ? await run(of) : row);
	}
	console.table(
		rows.map(({ store, kept, readers, connections, bytes, rss, inGroup, deaths, seen, worstMs, ownMs, off }) => ({
			...{ store, events: kept, readers: readers + 1, connections, 'MiB read': Math.round(bytes / MIB) },
			...{ 'peak RSS, MiB': Math.round(rss), 'peak of the group, MiB': Math.round(inGroup), deaths },
			...{ notifications: seen, 'latest, ms': Math.round(worstMs), 'this process itself, ms': Math.round(ownMs) },
			'agent kept off, %': Math.round(off),
		})),
	);
	for (const row of rows)
		if (isLate(row))
			console.log(
				`${row.store}: a good reader was more than ${LATEST_MS} ms late, twice; other work kept the agent from a core ${Math.round(row.off)} % of its time.`,
			);
	// Lateness is printed only: these machines are noisy.
	if (rows.some((row) => row.deaths > 0 || row.seen === 0)) process.exitCode = 1;
} finally {
	rmSync(directory, { recursive: true, force: true });
}
