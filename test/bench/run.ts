/**
 * `npm run bench`: the agent that boots with a saved Connection beside F1, the least program that has the channel open,
 * and pairing beside a script with one hard-coded POST and one open. Everything in one run, because only figures of one
 * run compare. Asserts nothing: machines are noisy.
 *
 * `npm run bench -- --rounds 9 --settle-seconds 20 --idle-seconds 120`
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { bundle } from '../../scripts/bundle.ts';
import { createLocalClient } from '../../src/local-api/client.edge.ts';
import { channelUrl, DEFAULT_CHANNEL_PATH } from '../../src/protocol/endpoints.ts';
import { LOCAL_ROUTES } from '../../src/protocol/local-api.ts';
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
import { flagsFor, pairOnce } from './paired-device.ts';

const ROOT = join(import.meta.dirname, '..', '..');
const MIB = 1024 * 1024;

const { values } = parseArgs({
	options: {
		rounds: { type: 'string', default: '9' },
		'settle-seconds': { type: 'string', default: '20' },
		'idle-seconds': { type: 'string', default: '120' },
	},
});
const rounds = Number(values.rounds);
const settleMs = Number(values['settle-seconds']) * 1000;
const idleMs = Number(values['idle-seconds']) * 1000;

const directory = await mkdtemp(join(tmpdir(), 'idv-agent-bench-'));
const service = await startService();
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
	await pairingFigures(node);
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
		console.log(
			`\nMemory after ${settleMs / 1000} s, CPU over ${idleMs / 1000} idle s (F1 sends no heartbeat)\n${formatTable(results)}`,
		);
	} finally {
		await Promise.all(both.map(({ running }) => running.stop()));
	}
}

/** From the code to the open channel: the running agent's `POST /v1/pair`, and a process that does only the two calls. */
async function pairingFigures(node: string): Promise<void> {
	let run = 0;
	const script: Program = { name: 'script: one POST, one open', command: node, args: [] };
	const agent: Program = { name: 'idv-agent: POST /v1/pair', command: node, args: [] };
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
			const client = createLocalClient({ runDir: join(base, 'run') });
			const startedAt = performance.now();
			const trustOrigin = new URL(service.url).origin;
			await client.request('admin', 'POST', LOCAL_ROUTES.pair, { code: code.url, trustOrigin });
			return { 'code to open channel, ms': performance.now() - startedAt };
		} finally {
			await daemon.stop();
		}
	});
	console.log(
		`\nPairing (median of ${rounds}; the agent also tries the disk and the network first, and saves three times)\n${formatTable(figures)}`,
	);
}
