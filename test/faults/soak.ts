/**
 * `npm run suite -- soak --minutes N [--seed S]`: random faults against one agent process and a consumer, with a check after each.
 * Ends with 0 when every rule held. The same seed chooses the same faults in the same order.
 */
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { startService } from '../../src/service/embedded-service.runner.ts';
import { faketimeLibrary } from './debian.ts';
import { givenDevice } from './device-process.ts';
import { givenLine } from './line.ts';
import { FAULTS, type Fault, type Scene } from './soak/chaos.ts';
import { startReaders } from './soak/consumer.ts';

/** Online again so many seconds after a fault ended: the longest wait by itself is 120 s, and one handshake. */
const BACK_WITHIN_S = 170;
/** A notification is with the consumer so many seconds after it was sent to a device that is online. */
const DELIVERED_WITHIN_S = 30;
const MAX_DESCRIPTORS_MORE = 8;
const MAX_MEMORY_GROWTH = 1.5;

const { values } = parseArgs({
	options: { minutes: { type: 'string', default: '5' }, seed: { type: 'string' }, only: { type: 'string' } },
});
const seed = Number(values.seed ?? Math.floor(Math.random() * 2 ** 31));
const untilMs = performance.now() + Number(values.minutes) * 60_000;
const broken: string[] = [];
const atTheEnd: (() => void | Promise<void>)[] = [];
const times = new Map<string, number[]>();
let state = seed;

/** Mulberry32: small, and the same everywhere. */
function random(): number {
	state = (state + 0x6d2b79f5) | 0;
	let t = Math.imul(state ^ (state >>> 15), 1 | state);
	t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
	return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
}
const between = (from: number, to: number) => from + Math.floor(random() * (to - from + 1));
const pick = <One>(list: readonly One[]) => list[between(0, list.length - 1)] as One;
const say = (text: string) => process.stdout.write(`${new Date().toISOString()} ${text}\n`);

await main().finally(async () => {
	for (const act of atTheEnd.reverse()) await act();
});

async function main(): Promise<void> {
	const undo = (act: () => void | Promise<void>) => void atTheEnd.push(act);
	const service = await startService({ workflows: ['check-in', 'boarding'], connectionTtlSeconds: 300 });
	undo(() => service.close());
	const line = await givenLine(service.port, undo);
	const disk = smallDisk(undo);
	const clockFile = faketimeLibrary() ? join(disk.directory, 'clock') : null;
	if (clockFile) writeFileSync(clockFile, '+0');
	const device = await givenDevice({
		atTheEnd: undo,
		stateDir: join(disk.directory, 'state'),
		environment: clockFile
			? {
					LD_PRELOAD: faketimeLibrary(),
					FAKETIME_TIMESTAMP_FILE: clockFile,
					FAKETIME_DONT_FAKE_MONOTONIC: '1',
					FAKETIME_NO_CACHE: '1',
				}
			: {},
	});
	const apiKeyFile = await device.secretFile('key', service.credentials.apiKey);
	let settingsNow: object = {
		baseUrl: `http://127.0.0.1:${line.port}`,
		workflowId: 'check-in',
		deviceId: 'KIOSK-7',
		heartbeatCadence: 5,
		credential: { apiKeyFile },
	};
	const scene: Scene = {
		service,
		line,
		device,
		between,
		pick,
		settings(change = {}) {
			// A bad push is not kept: it is what the next one corrects.
			if ('workflowId' in change) settingsNow = { ...settingsNow, ...change };
			return { ...settingsNow, ...change };
		},
		clockFile,
		smallDisk: disk.isSmall,
		blockConsumer: (on) => readers.block(on),
	};
	await device.writeSettings(settingsNow);
	await device.start();
	const readers = startReaders(device);
	undo(() => readers.stop());
	await device.untilState('online');

	const possible = FAULTS.filter(
		({ needs, name }) =>
			(needs !== 'clock' || clockFile) &&
			(needs !== 'smallDisk' || disk.isSmall) &&
			(!values.only || name.includes(values.only)),
	).flatMap((fault) => Array.from({ length: fault.weight ?? 1 }, () => fault));
	say(`seed ${seed}, ${new Set(possible).size} faults, ${values.minutes} min`);

	let sent = 0;
	const traffic = setInterval(() => {
		sent += 1;
		service.notify({ type: 'traffic', id: `traffic-${sent}`, filling: 'x'.repeat(sent % 500) });
	}, 500);
	undo(() => clearInterval(traffic));
	const secrets = new Set<string>([service.credentials.apiKey, service.credentials.bearer]);
	const figures = {
		rounds: 0,
		first: await measure(device.pid),
		mostDescriptors: 0,
		mostMemory: 0,
		lives: 1,
		pid: device.pid,
	};

	while (performance.now() < untilMs) {
		const fault = pick(possible);
		figures.rounds += 1;
		await fault.matchFault(scene);
		const backMs = await backOnline(fault);
		if (device.pid !== figures.pid) {
			figures.lives += 1;
			figures.pid = device.pid;
		}
		for (const { token } of JSON.parse(await device.state()).connections ?? []) secrets.add(token);
		await check(fault, figures.rounds);
		say(`${figures.rounds} ${fault.name}: back after ${(backMs / 1000).toFixed(1)} s`);
		await pause(between(200, 3000));
	}
	clearInterval(traffic);
	await report();

	async function backOnline(fault: Fault): Promise<number> {
		const endedMs = performance.now();
		if (fault.asksHuman) await device.reconnect();
		const within = AbortSignal.timeout(BACK_WITHIN_S * 1000);
		// Online by the status is not enough: a channel that is dead and not yet noticed says so as well.
		for (;;) {
			const id = `marker-${figures.rounds}-${Math.round(performance.now())}`;
			service.notify({ type: 'marker', id });
			for (let look = 0; look < 20; look += 1) {
				if (readers.serviceIds.has(id)) {
					const tookMs = performance.now() - endedMs;
					times.set(fault.name, [...(times.get(fault.name) ?? []), tookMs]);
					return tookMs;
				}
				await pause(50);
			}
			if (!within.aborted) continue;
			breakRule(fault, `not online again within ${BACK_WITHIN_S} s: ${JSON.stringify(await statusNow())}`);
			await device.reconnect().catch(() => {});
			await device.untilState('online');
			return BACK_WITHIN_S * 1000;
		}
	}

	async function check(fault: Fault, round: number): Promise<void> {
		const seen = [...readers.witnessed];
		const deadline = performance.now() + DELIVERED_WITHIN_S * 1000;
		const missing = () => seen.filter((id) => !readers.consumed.has(id));
		while (missing().length > 0 && performance.now() < deadline) await pause(50);
		if (missing().length > 0) breakRule(fault, `never reached the consumer: ${missing().slice(0, 5).join(' ')}`);
		for (const found of readers.disorder.splice(0)) breakRule(fault, `out of order: ${found}`);
		for (const secret of secrets) if (device.output().includes(secret)) breakRule(fault, 'a secret is in the log');
		if (/"level":"error"|fault in the agent/.test(device.output())) breakRule(fault, 'an error is in the log');
		const { descriptors, memory } = await measure(device.pid);
		figures.mostDescriptors = Math.max(figures.mostDescriptors, descriptors);
		figures.mostMemory = Math.max(figures.mostMemory, memory);
		if (descriptors > figures.first.descriptors + MAX_DESCRIPTORS_MORE)
			breakRule(fault, `${descriptors} descriptors open after round ${round}, ${figures.first.descriptors} at first`);
		if (memory > figures.first.memory * MAX_MEMORY_GROWTH)
			breakRule(fault, `${memory} MiB anonymous after round ${round}, ${figures.first.memory} at first`);
	}

	async function statusNow(): Promise<unknown> {
		return device.client.request('agent', 'GET', '/v1/status').catch((error) => String(error));
	}

	async function report(): Promise<void> {
		const { descriptors, memory } = await measure(device.pid);
		const rows = [...times].sort().map(([name, list]) => {
			const sorted = list.toSorted((a, b) => a - b);
			const at = (part: number) => ((sorted[Math.floor((sorted.length - 1) * part)] ?? 0) / 1000).toFixed(1);
			return `| ${name} | ${list.length} | ${at(0.5)} | ${at(1)} |`;
		});
		say(
			[
				`seed ${seed}: ${figures.rounds} faults in ${values.minutes} min, ${figures.lives} lives of the agent`,
				`events: ${readers.consumed.size} consumed, ${readers.witnessed.size} witnessed, ${readers.repeated} delivered again`,
				`anonymous memory: ${figures.first.memory} MiB at first, ${figures.mostMemory} at most, ${memory} at the end`,
				`descriptors: ${figures.first.descriptors} at first, ${figures.mostDescriptors} at most, ${descriptors} at the end`,
				'| fault | times | back after, median s | at most s |',
				'|---|---|---|---|',
				...rows,
				broken.length === 0 ? 'Every rule held.' : `${broken.length} rules broken:\n${broken.join('\n')}`,
			].join('\n'),
		);
		if (broken.length > 0) process.exitCode = 1;
	}
}

function breakRule(fault: Fault, what: string): void {
	broken.push(`${fault.name}: ${what}`);
	say(`BROKEN ${fault.name}: ${what}`);
}

/** A disk of 8 MiB that can be filled, where this user may mount one. */
function smallDisk(undo: (act: () => void) => void): { readonly directory: string; readonly isSmall: boolean } {
	const directory = mkdtempSync(join(tmpdir(), 'idv-soak-'));
	undo(() => rmSync(directory, { recursive: true, force: true }));
	try {
		execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=8m,mode=0700', 'tmpfs', directory], { stdio: 'pipe' });
	} catch {
		return { directory, isSmall: false };
	}
	undo(() => void execFileSync('umount', ['-l', directory]));
	mkdirSync(join(directory, 'state'), { mode: 0o700 });
	return { directory, isSmall: true };
}

/** Anonymous memory in MiB and open descriptors. */
async function measure(pid: number): Promise<{ memory: number; descriptors: number }> {
	const rollup = readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8');
	const kib = Number(/^Anonymous:\s+(\d+)/m.exec(rollup)?.[1]);
	return { memory: Math.round((kib / 1024) * 10) / 10, descriptors: readdirSync(`/proc/${pid}/fd`).length };
}
