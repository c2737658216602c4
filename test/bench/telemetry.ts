/**
 * What `telemetry.otlpUrl` costs a device, over https: memory and processor time of the agent with it and without it, with the
 * store behind an authority that Node trusts (the connection is kept) and behind that of `network.caFile` (a resumed handshake for
 * each push), and of a bare process that sends as many bytes as often, all at the same time, since only figures of one run
 * compare. `npm run suite -- bench:telemetry --settle-seconds 60 --seconds 300`. Asserts nothing.
 */
import { fork } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { bundle } from '../../scripts/bundle.ts';
import { startService } from '../../src/service/embedded-service.runner.ts';
import { readMemory, readThreadsCpuMs, start } from './measure.ts';
import { pairOnce } from './paired-device.ts';

const ROOT = join(import.meta.dirname, '..', '..');
const TLS = join(ROOT, 'test/fixtures/tls');
const MIB = 1024 * 1024;
/** The least that the setting takes. */
const INTERVAL_SECONDS = 10;

if (process.argv[2] === 'store') {
	const identity = { cert: readFileSync(join(TLS, 'server.pem')), key: readFileSync(join(TLS, 'server.key')) };
	const pushed = { pushes: 0, bytes: 0 };
	const server = createServer(identity, (request, response) => {
		request.on('data', (chunk: Uint8Array) => {
			if (request.url === '/agent') pushed.bytes += chunk.length;
		});
		request.on('end', () => {
			if (request.url === '/agent') pushed.pushes += 1;
			response.end();
		});
	});
	// As nginx has it.
	server.keepAliveTimeout = 75_000;
	server.listen(0, '127.0.0.1', () => process.send?.((server.address() as AddressInfo).port));
	process.on('message', () => process.send?.(pushed));
} else await measure();

async function measure(): Promise<void> {
	const { values } = parseArgs({
		options: { 'settle-seconds': { type: 'string', default: '60' }, seconds: { type: 'string', default: '300' } },
	});
	const seconds = Number(values.seconds);
	const directory = await mkdtemp(join(tmpdir(), 'idv-agent-bench-'));
	const tls = {
		cert: readFileSync(join(TLS, 'server.pem'), 'utf8'),
		key: readFileSync(join(TLS, 'server.key'), 'utf8'),
	};
	// As on a device: what https costs has been paid for the channel.
	const service = await startService({ port: 0, tls });
	const store = fork(import.meta.filename, ['store']);
	const port = await new Promise<number>((resolve) => store.once('message', (told) => resolve(Number(told))));
	const pushed = () =>
		new Promise<{ pushes: number; bytes: number }>((resolve) => {
			store.once('message', (told) => resolve(told as { pushes: number; bytes: number }));
			store.send('tell');
		});
	const caFile = join(TLS, 'ca.pem');
	const environment = {
		NODE_COMPILE_CACHE: join(directory, 'cache'),
		MALLOC_ARENA_MAX: '1',
		NODE_EXTRA_CA_CERTS: caFile,
	};
	const command = join(ROOT, 'node_modules', '.bin', 'node');
	const running: ReturnType<typeof start>[] = [];
	try {
		await bundle({ root: ROOT, entries: { 'idv-agent': 'src/cli/idv-agent.ts' }, outDir: join(directory, 'dist') });
		const floors = { push: 'test/bench/floor-push.ts' };
		await bundle({ root: ROOT, entries: floors, outDir: join(directory, 'floor'), singleFile: true });
		const agent = async (name: string, sets: readonly string[]) => {
			const { flags } = await pairOnce(service, join(directory, name), [`network.caFile=${caFile}`]);
			const args = ['run', ...flags, ...sets.flatMap((set) => ['--set', set])];
			const started = start({ name, command, args: [join(directory, 'dist', 'idv-agent.cjs'), ...args], environment });
			running.push(started);
			await started.untilLine(/"msg":"online"/, 60_000);
			return started;
		};
		const floor = (name: string, bytes: number) => {
			const words = [`https://127.0.0.1:${port}/floor`, caFile, String(bytes), String(INTERVAL_SECONDS)];
			const started = start({ name, command, args: [join(directory, 'floor', 'push.cjs'), ...words], environment });
			running.push(started);
			return started;
		};
		const sets = (path: string) => [
			`telemetry.otlpUrl=https://127.0.0.1:${port}/${path}`,
			`telemetry.intervalSeconds=${INTERVAL_SECONDS}`,
		];
		const own = `network.caFile=${caFile}`;
		const pairs = {
			'the agent': { without: await agent('without', []), with: await agent('with', sets('agent')) },
			'the agent, network.caFile': {
				without: await agent('without-own', [own]),
				with: await agent('with-own', [own, ...sets('own')]),
			},
			'floor, a bare https POST': { without: floor('idle', 0), with: floor('posting', 2500) },
		};
		await pause(Number(values['settle-seconds']) * 1000);
		const before = await pushed();
		const read = ({ pid }: { readonly pid: number }) => ({ cpuMs: readThreadsCpuMs(pid), ...readMemory(pid) });
		const began = Object.values(pairs).map((pair) => ({ without: read(pair.without), with: read(pair.with) }));
		await pause(seconds * 1000);
		const { pushes, bytes } = await pushed();
		const made = pushes - before.pushes;
		console.log(`${made} pushes of ${Math.round((bytes - before.bytes) / made)} bytes in ${seconds} s`);
		for (const [index, [name, pair]] of Object.entries(pairs).entries()) {
			const now = { without: read(pair.without), with: read(pair.with) };
			const spent = (which: 'with' | 'without') => now[which].cpuMs - (began[index]?.[which].cpuMs ?? 0);
			const mib = (value: number) => (value / MIB).toFixed(2);
			console.log(
				`${name}: anonymous ${mib(now.without.anonymous)} → ${mib(now.with.anonymous)} MiB, ${mib(now.with.anonymous - now.without.anonymous)} more; ` +
					`processor time ${spent('without').toFixed(0)} → ${spent('with').toFixed(0)} ms, ${((spent('with') - spent('without')) / made).toFixed(2)} ms a push`,
			);
		}
	} finally {
		for (const one of running) await one.stop();
		store.kill();
		await service.close();
		await rm(directory, { recursive: true, force: true });
	}
}
