/**
 * `npm run bench:relay`: what the agent adds between the service and an application. Notifications a second, and their way's
 * time at 1,000 a second, from the embedded service to a consumer of the event stream on `agent.sock`, beside a bare `ws`
 * client of the same service, and another one that appends the same bytes to a file and flushes them first. The agent runs as
 * shipped, once with its events in memory and once with every one durable; all take turns. Asserts nothing: machines are noisy.
 *
 * `npm run bench:relay -- --rounds 5 --count 100000 --paced 3000`; `--profile DIRECTORY` writes a CPU profile of each agent.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { parseArgs } from 'node:util';
import { bundle } from '../../scripts/bundle.ts';
import { channelUrl, DEFAULT_CHANNEL_PATH, ENDPOINTS, endpointUrl } from '../../src/protocol/endpoints.ts';
import { LOCAL_SOCKETS } from '../../src/protocol/local-api.ts';
import { formatTable, measureInTurns, readThreadsCpuMs } from './measure.ts';

const ROOT = join(import.meta.dirname, '..', '..');
const NODE = join(ROOT, 'node_modules', '.bin', 'node');
const WORKFLOW = 'document-check';

const { values } = parseArgs({
	options: {
		rounds: { type: 'string', default: '5' },
		count: { type: 'string', default: '100000' },
		paced: { type: 'string', default: '3000' },
		profile: { type: 'string' },
		set: { type: 'string', multiple: true, default: [] },
	},
});
const rounds = Number(values.rounds);
const count = Number(values.count);
const paced = Number(values.paced);

/** A program of ours that answers each line of its input with a line of JSON. */
interface Peer {
	ask(question: object): Promise<Record<string, unknown>>;
	next(): Promise<Record<string, unknown>>;
	readonly child: ChildProcess;
}

interface Receiver {
	readonly name: string;
	readonly deviceId: string;
	readonly consumer: Peer;
	/** Of the process that has the channel: the agent, or the client itself. */
	readonly pid: number;
}

const children: ChildProcess[] = [];
const directory = await mkdtemp(join(tmpdir(), 'idv-agent-relay-'));
try {
	await bundle({ root: ROOT, entries: { 'idv-agent': 'src/cli/idv-agent.ts' }, outDir: join(directory, 'dist') });
	await bundle({
		root: ROOT,
		entries: { consumer: 'test/bench/relay-consumer.ts' },
		outDir: join(directory, 'ends'),
		singleFile: true,
	});
	const service = startPeer([join(import.meta.dirname, 'relay-service.ts')]);
	const { url, apiKey } = (await service.next()) as { url: string; apiKey: string };
	const keyFile = join(directory, 'key');
	await writeFile(keyFile, apiKey, { mode: 0o600 });

	const receivers = [
		await bareClient('bare ws client', 'bare', url, apiKey),
		await bareClient('bare ws client that appends and flushes', 'floor', url, apiKey, [join(directory, 'floor')]),
		await agentWith('agent, events in memory', 'memory', { url, keyFile }, ['events.durable=false']),
		await agentWith('agent, every event durable', 'durable', { url, keyFile }, []),
	];
	const throughput = await measureInTurns(receivers, rounds, async (receiver) => {
		const before = readThreadsCpuMs(receiver.pid);
		const { seconds, closings, gaps } = await sendTo(service, receiver, count, 0);
		const cpuUs = ((readThreadsCpuMs(receiver.pid) - before) * 1000) / count;
		if (closings + gaps > 0) console.log(`${receiver.name}: closed ${closings} times, ${gaps} gaps`);
		return { 'notifications a second': count / seconds, 'CPU for each, µs': cpuUs };
	});
	console.log(`\n${count} notifications as fast as they leave (median of ${rounds}, in turns)`);
	console.log(formatTable(throughput));
	const latency = await measureInTurns(receivers, rounds, async (receiver) => {
		const { p50, p99 } = await sendTo(service, receiver, paced, 1000);
		return { 'p50, µs': p50, 'p99, µs': p99 };
	});
	console.log(`${paced} notifications, 1,000 a second (median of ${rounds}, in turns)`);
	console.log(formatTable(latency, 0));
	const p99 = latency.map(({ figures }) => figures['p99, µs'] ?? 0);
	for (const [index, { name }] of latency.entries())
		if (index > 0) console.log(`${name}: ${(((p99[index] ?? 0) - (p99[0] ?? 0)) / 1000).toFixed(2)} ms added at p99`);
	console.log(
		`every event durable, beside the client that flushes: ${((p99[3] ?? 0) / (p99[1] ?? 1)).toFixed(2)} at p99`,
	);
	const rates = throughput.map(({ figures }) => figures['notifications a second'] ?? 0);
	const ratios = rates.map((rate) => (rate / (rates[0] ?? 1)).toFixed(2));
	console.log(
		`throughput beside the bare client: from memory ${ratios[2]}, durable ${ratios[3]}, flushing client ${ratios[1]}`,
	);
} finally {
	for (const child of children.toReversed()) await stop(child);
	await rm(directory, { recursive: true, force: true });
}

async function sendTo(service: Peer, { deviceId, consumer }: Receiver, total: number, perSecond: number) {
	const received = consumer.ask({ count: total });
	const { fromNs } = await service.ask({ deviceId, count: total, perSecond });
	const { lastNs, p50, p99, closings, gaps } = await received;
	const seconds = Number(BigInt(String(lastNs)) - BigInt(String(fromNs))) / 1e9;
	return { seconds, p50: Number(p50), p99: Number(p99), closings: Number(closings), gaps: Number(gaps) };
}

async function bareClient(
	name: string,
	deviceId: string,
	url: string,
	apiKey: string,
	more: readonly string[] = [],
): Promise<Receiver> {
	const answer = await fetch(endpointUrl(url, ENDPOINTS.deviceConnection), {
		method: 'POST',
		headers: { authorization: `ApiKey ${apiKey}`, 'content-type': 'application/json' },
		body: JSON.stringify({ deviceId, workflowId: WORKFLOW }),
	});
	const { token } = (await answer.json()) as { token: string };
	const tokenFile = join(directory, `token-${deviceId}`);
	await writeFile(tokenFile, token, { mode: 0o600 });
	const channel = channelUrl(url, DEFAULT_CHANNEL_PATH).href;
	const consumer = startPeer([join(directory, 'ends', 'consumer.cjs'), 'ws', channel, tokenFile, ...more]);
	await consumer.next();
	return { name, deviceId, consumer, pid: consumer.child.pid ?? 0 };
}

async function agentWith(
	name: string,
	deviceId: string,
	{ url, keyFile }: { url: string; keyFile: string },
	sets: readonly string[],
): Promise<Receiver> {
	const base = join(directory, deviceId);
	const group = String(process.getgid?.() ?? 0);
	const settings = [
		...[`baseUrl=${url}`, `workflowId=${WORKFLOW}`, `deviceId=${deviceId}`, `credential.apiKeyFile=${keyFile}`],
		// A consumer that falls behind for a moment, on a machine that is busy with all of this, must find everything.
		...[
			'events.maxCount=100000',
			'events.maxBytes=268435456',
			`local.agentGroup=${group}`,
			`local.adminGroup=${group}`,
		],
		...[...sets, ...values.set],
	];
	const flags = ['--state-dir', join(base, 'state'), '--run-dir', join(base, 'run')];
	const profiling = values.profile ? ['--cpu-prof', '--cpu-prof-dir', join(values.profile, deviceId)] : [];
	const agent = startPeer([
		...profiling,
		join(directory, 'dist', 'idv-agent.cjs'),
		'run',
		...flags,
		...settings.flatMap((set) => ['--set', set]),
	]);
	for (let line = await agent.next(); line['msg'] !== 'online'; line = await agent.next());
	const socket = join(base, 'run', LOCAL_SOCKETS.agent);
	const consumer = startPeer([join(directory, 'ends', 'consumer.cjs'), 'sse', socket]);
	await consumer.next();
	return { name, deviceId, consumer, pid: agent.child.pid ?? 0 };
}

function startPeer(args: readonly string[]): Peer {
	const child = spawn(NODE, args, {
		stdio: ['pipe', 'pipe', 'inherit'],
		env: { ...process.env, MALLOC_ARENA_MAX: '1' },
	});
	children.push(child);
	const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
	const next = async () => {
		const { value, done } = await lines.next();
		if (done) throw new Error(`${args.join(' ')} ended before it was measured.`);
		return JSON.parse(value) as Record<string, unknown>;
	};
	return {
		child,
		next,
		ask(question) {
			child.stdin.write(`${JSON.stringify(question)}\n`);
			return next();
		},
	};
}

async function stop(child: ChildProcess): Promise<void> {
	if (child.exitCode !== null || child.signalCode !== null) return;
	const gone = once(child, 'exit');
	child.kill('SIGTERM');
	await gone;
}
