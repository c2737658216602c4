/** A real VictoriaMetrics on a port and in a directory of its own; stopped and started again, it keeps its data. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { onTestFinished } from 'vitest';

const DIRECTORY = process.env['VICTORIA_METRICS'] ?? '/tmp/idv-victoria-metrics';
const BINARY = join(DIRECTORY, 'usr/bin/victoria-metrics');

export interface Row {
	readonly metric: Readonly<Record<string, string>>;
	readonly value: number;
}

export interface Store {
	readonly url: string;
	readonly otlpUrl: string;
	start(): Promise<void>;
	stop(): Promise<void>;
	query(expression: string, atMs?: number): Promise<readonly Row[]>;
	/** Every sample of a series, as it was received. */
	samples(selector: string): Promise<readonly (readonly [atMs: number, value: number])[]>;
	/** Makes what was received visible. */
	flush(): Promise<void>;
}

export async function givenStore(): Promise<Store> {
	if (!existsSync(BINARY)) throw new Error(`VictoriaMetrics is missing. Fetch it: .ci/victoria-metrics ${DIRECTORY}`);
	const data = await mkdtemp(join(tmpdir(), 'victoria-'));
	const port = await freePort();
	const url = `http://127.0.0.1:${port}`;
	let child: ChildProcess | null = null;
	const stop = async () => {
		if (!child) return;
		const ended = once(child, 'exit');
		child.kill('SIGTERM');
		await ended;
		child = null;
	};
	const start = async () => {
		const args = [
			`-storageDataPath=${data}`,
			`-httpListenAddr=127.0.0.1:${port}`,
			'-search.latencyOffset=0s',
			'-retentionPeriod=10y',
		];
		const started = spawn(BINARY, args, { stdio: ['ignore', 'ignore', 'pipe'] });
		child = started;
		// It says on standard error when it listens.
		await new Promise<void>((resolve, reject) => {
			let text = '';
			started.stderr?.on('data', (chunk) => {
				text += String(chunk);
				if (/started VictoriaMetrics in/.test(text)) resolve();
			});
			started.once('exit', () => reject(new Error(text)));
		});
	};
	onTestFinished(async () => {
		await stop();
		await rm(data, { recursive: true, force: true });
	});
	await start();
	const get = async (path: string, search: Record<string, string> = {}) => {
		const response = await fetch(`${url}${path}?${new URLSearchParams(search)}`);
		if (!response.ok) throw new Error(`${response.status}: ${await response.text()}`);
		return response.text();
	};
	return {
		url,
		otlpUrl: `${url}/opentelemetry/v1/metrics`,
		start,
		stop,
		flush: async () => void (await get('/internal/force_flush')),
		async query(query, atMs = Date.now()) {
			const { data: found } = JSON.parse(
				await get('/api/v1/query', { query, time: String(atMs / 1000), nocache: '1' }),
			);
			return found.result.map(({ metric, value }: { metric: Row['metric']; value: [number, string] }) => ({
				metric,
				value: Number(value[1]),
			}));
		},
		async samples(selector) {
			const text = await get('/api/v1/export', {
				'match[]': selector,
				reduce_mem_usage: '1',
				end: String(Date.now() / 1000 + 86_400),
			});
			return text
				.split('\n')
				.filter(Boolean)
				.flatMap((line) => {
					const { timestamps, values } = JSON.parse(line) as { timestamps: number[]; values: number[] };
					return timestamps.map((atMs, index) => [atMs, values[index] ?? Number.NaN] as const);
				})
				.sort(([a], [b]) => a - b);
		},
	};
}

async function freePort(): Promise<number> {
	const server = createServer();
	await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
	const address = server.address();
	await new Promise((resolve) => server.close(resolve));
	return typeof address === 'object' && address ? address.port : 0;
}
