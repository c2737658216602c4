/**
 * What a warm start of a paired device loads beyond the least program that has the channel open (`test/bench/floor-client.ts`):
 * each module with its cost and why it is there. A start grows by a line here, or not at all.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { bundle } from '../../scripts/bundle.ts';
import { channelUrl, DEFAULT_CHANNEL_PATH } from '../../src/protocol/endpoints.ts';
import { type EmbeddedService, startService } from '../../src/service/embedded-service.runner.ts';
import { pairOnce } from '../bench/paired-device.ts';

const ROOT = resolve(import.meta.dirname, '../..');
const LIST = join(import.meta.dirname, 'start-modules.json');
const known = JSON.parse(readFileSync(LIST, 'utf8')) as Record<string, string>;

interface Loaded {
	readonly files: readonly string[];
	readonly builtin: readonly string[];
	/** By the name in a `require`: what it took, and the line that asked first. */
	readonly asked: Readonly<Record<string, { readonly ms: number; readonly by: string }>>;
}

let directory: string;
let service: EmbeddedService;
let floor: Loaded;
let first: Loaded;
let warm: Loaded;

beforeAll(async () => {
	directory = await mkdtemp(join(tmpdir(), 'start-modules-'));
	service = await startService();
	await bundle({ root: ROOT, entries: { 'idv-agent': 'src/cli/idv-agent.ts' }, outDir: join(directory, 'dist') });
	const least = { floor: 'test/bench/floor-client.ts' };
	await bundle({ root: ROOT, entries: least, outDir: join(directory, 'floor'), singleFile: true });
	const { flags, tokenFile } = await pairOnce(service, directory);
	const url = channelUrl(service.url, DEFAULT_CHANNEL_PATH).href;
	floor = await load([join(directory, 'floor/floor.cjs'), url, tokenFile], /^open$/);
	const agent = [join(directory, 'dist/idv-agent.cjs'), 'run', ...flags];
	first = await load(agent, /"msg":"online"/);
	// What it learns when it is online is saved when it ends.
	await load(agent, /"msg":"online"/, 'SIGTERM');
	warm = await load(agent, /"msg":"online"/);
}, 60_000);
afterAll(async () => {
	await service.close();
	await rm(directory, { recursive: true });
});

async function load(args: readonly string[], online: RegExp, end: NodeJS.Signals = 'SIGUSR2'): Promise<Loaded> {
	const report = join(directory, 'loaded.json');
	const child = spawn(process.execPath, ['--require', join(import.meta.dirname, 'start-hook.cjs'), ...args], {
		env: { PATH: process.env['PATH'] ?? '', START_MODULES: report },
		stdio: ['ignore', 'pipe', 'inherit'],
	});
	const ended = once(child, 'exit');
	for await (const line of createInterface({ input: child.stdout })) if (online.test(line)) child.kill(end);
	await ended;
	return JSON.parse(readFileSync(report, 'utf8')) as Loaded;
}

describe('a warm start', () => {
	test('loads no module of Node that is not in the list', () => {
		const more = warm.builtin.filter((name) => !floor.builtin.includes(name) && !(name in known));
		const told = more.map((name) => {
			const { ms, by } = warm.asked[name] ?? {};
			return `${name}: ${ms === undefined ? 'loaded by Node with another one' : `${ms.toFixed(1)} ms, ${by}`}`;
		});
		expect(told, `load it where it is used, or give its cost and why in ${LIST}`).toEqual([]);
	});

	test('loads every module of the list: one that is gone leaves it', () => {
		expect(Object.keys(known).filter((name) => !warm.builtin.includes(name))).toEqual([]);
	});

	test('reads one bundle: no command line, no zod', () => {
		expect(warm.files.toSorted()).toEqual(['idv-agent.cjs', 'run.cjs', 'start-hook.cjs']);
	});

	test('is one that has checked its state and settings before: the start before it needed zod', () => {
		expect(first.files).toContain('zod.cjs');
	});
});
