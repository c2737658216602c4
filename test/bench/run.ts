/**
 * `npm run bench`: the agent that boots with a saved Connection beside F1, the least program that has the channel open,
 * and pairing beside a script with one hard-coded POST and one open. Everything in one run, because only figures of one
 * run compare. Over ws and wss (default roots, and a private authority), and with 1,000 events kept. Asserts nothing: machines
 * are noisy, and it warns when this one was.
 *
 * `npm run bench -- --rounds 9 --settle-seconds 20 --idle-seconds 120 --json`: with `--json`, the last line is one JSON document.
 */
import { readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { bundle } from '../../scripts/bundle.ts';
import { createLocalClient } from '../../src/client/local-client.edge.ts';
import { channelUrl, DEFAULT_CHANNEL_PATH } from '../../src/protocol/endpoints.ts';
import { LOCAL_ROUTES } from '../../src/protocol/local-api.ts';
import { startService } from '../../src/service/embedded-service.runner.ts';
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

const ROOT = join(import.meta.dirname, '..', '..');
const MIB = 1024 * 1024;

const { values } = parseArgs({
	options: {
		rounds: { type: 'string', default: '9' },
		'settle-seconds': { type: 'string', default: '20' },
		'idle-seconds': { type: 'string', default: '120' },
		json: { type: 'boolean', default: false },
	},
});
const rounds = Number(values.rounds);
const settleMs = Number(values['settle-seconds']) * 1000;
const idleMs = Number(values['idle-seconds']) * 1000;

const directory = await mkdtemp(join(tmpdir(), 'idv-agent-bench-'));
const service = await startService();
const ratios = collectRatios();
try {
	const node = join(ROOT, 'node_modules', '.bin', 'node');
	await bundle({ root: ROOT, entries: { 'idv-agent': 'src/cli/idv-agent.ts' }, outDir: join(directory, 'dist') });
	await bundle({
		root: ROOT,
		entries: { floor: 'test/bench/floor-client.ts', script: 'test/bench/pairing-script.ts' },
		outDir: join(directory, 'floor'),
		singleFile: true,
	});
	const paired = await pairOnce(service, join(directory, 'booting'));
	const url = channelUrl(service.url, DEFAULT_CHANNEL_PATH).href;
	// What `bin/` and the unit do for the shipped program, for both alike.
	const environment = { NODE_COMPILE_CACHE: join(directory, 'cache'), MALLOC_ARENA_MAX: '1' };
	const floor: Program = {
		name: 'F1: ws only',
		command: node,
		args: [join(directory, 'floor', 'floor.cjs'), url, paired.tokenFile],
		environment,
	};
	const agent: Program = {
		name: 'idv-agent run',
		command: node,
		args: [join(directory, 'dist', 'idv-agent.cjs'), 'run', ...paired.flags],
		environment,
	};
	await bootFigures(floor, agent);
	await tlsFigures(node, environment);
	await eventFigures(floor, agent, join(directory, 'booting', 'state'));
	await pairingFigures(node, environment);
	ratios.print(values.json);
} finally {
	await service.close();
	await rm(directory, { recursive: true, force: true });
}

async function bootFigures(floor: Program, agent: Program): Promise<void> {
	const online = new Map([
		[floor, /^open$/],
		[agent, /"msg":"online"/],
	]);
	const untilOnline = (program: Program, running: ReturnType<typeof start>) =>
		running.untilLine(online.get(program) ?? /./);
	const times = await measureInTurns([floor, agent], rounds, async (program) => {
		const running = start(program);
		try {
			return { 'start to online, ms': await untilOnline(program, running) };
		} finally {
			await running.stop();
		}
	});
	console.log(`\nBoot with a saved Connection (median of ${rounds}, in turns)\n${formatTable(times)}`);
	ratios.add('start, ws', times);

	const both = [floor, agent].map((program) => ({ program, running: start(program) }));
	try {
		await Promise.all(both.map(({ program, running }) => untilOnline(program, running)));
		await pause(settleMs);
		const memory = both.map(({ running }) => readMemory(running.pid));
		const before = both.map(({ running }) => readThreadsCpuMs(running.pid));
		await pause(idleMs);
		const minutes = idleMs / 60_000;
		const results: Result[] = both.map(({ program, running }, index) => {
			const figures = {
				'PSS, MiB': (memory[index]?.pss ?? 0) / MIB,
				'anonymous, MiB': (memory[index]?.anonymous ?? 0) / MIB,
				'CPU, ms an idle minute': (readThreadsCpuMs(running.pid) - (before[index] ?? 0)) / minutes,
			};
			return { name: program.name, figures, samples: [figures] };
		});
		ratios.add('memory and idle CPU', results);
		console.log(
			`\nMemory after ${settleMs / 1000} s, CPU over ${idleMs / 1000} idle s (F1 sends no heartbeat)\n${formatTable(results)}`,
		);
	} finally {
		await Promise.all(both.map(({ running }) => running.stop()));
	}
}

async function startFigures(what: string, programs: readonly Program[]): Promise<void> {
	const results = await measureInTurns(programs, rounds, async (program) => {
		const running = start(program);
		try {
			return { 'start to online, ms': await running.untilLine(/^open$|"msg":"online"/) };
		} finally {
			await running.stop();
		}
	});
	ratios.add(`start, ${what}`, results);
	console.log(`\nBoot with a saved Connection, ${what} (median of ${rounds}, in turns)\n${formatTable(results)}`);
}

/** The same over TLS: with the service's authority among Node's own, and with one that the settings name. */
async function tlsFigures(node: string, environment: Program['environment']): Promise<void> {
	const fixture = (name: string) => join(ROOT, 'test', 'fixtures', 'tls', name);
	const [key, cert, caFile] = [fixture('server.key'), fixture('server.pem'), fixture('ca.pem')];
	const port = 0;
	const secure = await startService({
		port,
		tls: { key: readFileSync(key, 'utf8'), cert: readFileSync(cert, 'utf8') },
		publicUrl: undefined,
	});
	try {
		const url = new URL(channelUrl(secure.url, DEFAULT_CHANNEL_PATH));
		const { flags, tokenFile } = await pairOnce(secure, join(directory, 'secure'), [`network.caFile=${caFile}`]);
		const usual = { ...environment, NODE_EXTRA_CA_CERTS: caFile };
		const agent = [join(directory, 'dist', 'idv-agent.cjs'), 'run', ...flags];
		const floorArgs = [join(directory, 'floor', 'floor.cjs'), url.href, tokenFile];
		const floor: Program = { name: 'F1: ws only', command: node, args: floorArgs, environment: usual };
		const own = [...agent, '--set', `network.caFile=${caFile}`];
		await startFigures('wss', [
			floor,
			{ name: 'idv-agent run, default roots', command: node, args: agent, environment: usual },
			{ name: 'idv-agent run, private authority', command: node, args: own, ...(environment && { environment }) },
		]);
	} finally {
		await secure.close();
	}
}

/** The same with 1,000 events kept, as on a device whose application was away. */
async function eventFigures(floor: Program, agent: Program, stateDir: string): Promise<void> {
	await keepEvents(stateDir);
	await startFigures('ws, 1,000 events kept', [floor, agent]);
}

/** From the code to the open channel: the running agent's `POST /v1/pair`, and a process that does only the two calls. */
async function pairingFigures(node: string, environment: NonNullable<Program['environment']>): Promise<void> {
	let run = 0;
	const script: Program = { name: 'script: one POST, one open', command: node, args: [], environment };
	const agent: Program = { name: 'idv-agent: POST /v1/pair', command: node, args: [], environment };
	const figures = await measureInTurns([script, agent], rounds, async ({ name }) => {
		run += 1;
		const code = service.createPairingCode('document-check');
		const base = join(directory, `pairing-${run}`);
		if (name === script.name) {
			const running = start({ ...script, args: [join(directory, 'floor', 'script.cjs'), service.url, code.token] });
			try {
				const startedAt = await running.untilLine(/^start$/);
				return { 'code to open channel, ms': (await running.untilLine(/^open$/)) - startedAt };
			} finally {
				await running.stop();
			}
		}
		const daemon = start({
			...agent,
			args: [join(directory, 'dist', 'idv-agent.cjs'), 'run', ...flagsFor(base), '--set', `deviceId=bench-${run}`],
		});
		try {
			await daemon.untilLine(/"msg":"started"/);
			// Nobody has read a code sooner; the agent loads meanwhile what a pairing needs.
			await pause(1000);
			const client = createLocalClient({ runDir: join(base, 'run') });
			const startedAt = performance.now();
			const trustOrigin = new URL(service.url).origin;
			await client.request('admin', 'POST', LOCAL_ROUTES.pair, { code: code.url, trustOrigin });
			return { 'code to open channel, ms': performance.now() - startedAt };
		} finally {
			await daemon.stop();
		}
	});
	ratios.add('pairing', figures);
	console.log(
		`\nPairing (median of ${rounds}; the agent also tries the disk and the network first, and saves twice)\n${formatTable(figures)}`,
	);
}
