/** Disks that are full, read-only, failing or cut off in the middle of a save: real file systems, real kills. */
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { startService } from '../../src/service/embedded-service.runner.ts';
import { openStateStore } from '../../src/state/store.edge.ts';
import { givenDevice } from './device-process.ts';

const isShort = process.env['FAULTS'] === 'short';
const KILLS = isShort ? 14 : 200;
const ONE_SAVE = resolve(import.meta.dirname, 'one-save.ts');
/** A state large enough to need more than one page. */
const idOf = (number: number) => `${number}:${'x'.repeat((number * 997) % 9000)}`;

function temporaryDirectory(name: string): string {
	const directory = mkdtempSync(join(tmpdir(), name));
	onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
	return directory;
}

/** A disk of its own, of 8 MiB. */
function givenSmallDisk(): { directory: string; fill(): void; free(): void; remount(how: 'ro' | 'rw'): void } {
	const directory = temporaryDirectory('idv-disk-');
	execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=8m,mode=0700', 'tmpfs', directory]);
	onTestFinished(() => void execFileSync('umount', ['-l', directory]));
	const ballast = join(directory, 'ballast');
	return {
		directory,
		fill() {
			for (const size of [65_536, 4096, 512])
				try {
					for (;;) writeFileSync(ballast, Buffer.alloc(size), { flag: 'a' });
				} catch {
					// Full for pieces of this size.
				}
		},
		free: () => rmSync(ballast),
		remount: (how) => void execFileSync('mount', ['-o', `remount,${how}`, directory]),
	};
}

async function givenService() {
	const service = await startService({ workflows: ['check-in', 'boarding'] });
	onTestFinished(() => service.close());
	return service;
}

describe('a full disk', () => {
	test('keeps a code from being spent, says so, and once there is room the same code works [F001]', async () => {
		const service = await givenService();
		const disk = givenSmallDisk();
		const device = await givenDevice({ atTheEnd: onTestFinished, stateDir: join(disk.directory, 'state') });
		await device.start();
		disk.fill();
		const code = service.createPairingCode('check-in').url;
		await expect(device.pair(code)).rejects.toMatchObject({ code: 'state-unwritable' });
		expect(service.requests.filter(({ method }) => method === 'POST')).toEqual([]);
		disk.free();
		await device.pair(code);
		await device.untilState('online');
	});

	// A save is tried again once a minute.
	test.skipIf(isShort)(
		'while a device is online is a warning; it moves on, and what it learnt is saved when there is room [F002]',
		async () => {
			const service = await givenService();
			const disk = givenSmallDisk();
			const device = await givenDevice({ atTheEnd: onTestFinished, stateDir: join(disk.directory, 'state') });
			await device.start();
			await device.pair(service.createPairingCode('check-in').url);
			await device.untilState('online');
			const before = await device.state();
			disk.fill();
			service.changeWorkflow(service.devices()[0]?.deviceId ?? '', 'boarding');
			const { warnings } = await device.untilStatus(
				({ workflow, warnings: now }) =>
					workflow.live === 'boarding' && now.some(({ code }) => code === 'state-unwritable'),
				'warning on the new workflow',
			);
			expect(warnings.find(({ code }) => code === 'state-unwritable')?.remedy).toContain('free space');
			// Nothing that was good has been given up for what did not fit.
			expect(await device.state()).toBe(before);
			disk.free();
			await device.untilStatus((status) => status.warnings.length === 0, 'saved state');
			await device.end('SIGKILL');
			await device.start();
			await device.untilStatus(({ workflow }) => workflow.live === 'boarding', 'the new workflow after a power cut');
		},
	);
});

test('a disk that has become read-only is a warning; the device is online from it, also after a restart [F009]', async () => {
	const service = await givenService();
	const disk = givenSmallDisk();
	const device = await givenDevice({ atTheEnd: onTestFinished, stateDir: join(disk.directory, 'state') });
	await device.start();
	await device.pair(service.createPairingCode('check-in').url);
	await device.untilState('online');
	await device.end();
	disk.remount('ro');
	await device.start();
	const { warnings } = await device.untilState('online');
	expect(warnings.map(({ code }) => code)).toContain('state-unwritable');
	service.notify({ type: 'still-heard' });
	await device.untilEvent(({ kind }) => kind === 'still-heard');
	disk.remount('rw');
	// It is tried again once a minute.
	if (!isShort) await device.untilStatus((status) => status.warnings.length === 0, 'no warning');
	await device.end();
	await device.start();
	expect((await device.untilState('online')).warnings).toEqual([]);
});

describe('a save that is cut off or fails', () => {
	const library = join(tmpdir(), `idv-faulty-disk-${process.pid}.so`);
	beforeAll(() => {
		const source = resolve(import.meta.dirname, 'faulty-disk.c');
		execFileSync('gcc', ['-shared', '-fPIC', '-O1', '-o', library, source, '-ldl'], { stdio: 'pipe' });
		return () => rmSync(library, { force: true });
	});

	/** Saves one state on a disk that strikes at a step; what it said, and how it ended. */
	async function save(stateDir: string, id: string, kind: string, step: number) {
		const child = spawn(process.execPath, [ONE_SAVE, stateDir, id], {
			env: {
				NODE_COMPILE_CACHE: join(tmpdir(), 'idv-fault-compile-cache'),
				LD_PRELOAD: library,
				FAULT_DIRECTORY: stateDir,
				FAULT_KIND: kind,
				FAULT_STEP: String(step),
			},
			stdio: ['ignore', 'pipe', 'inherit'],
		});
		let said = '';
		child.stdout.setEncoding('utf8').on('data', (text: string) => {
			said += text;
		});
		const [, signal] = await once(child, 'close');
		return {
			said: said
				.trim()
				.split('\n')
				.filter(Boolean)
				.map((line) => JSON.parse(line)),
			killed: signal === 'SIGKILL',
		};
	}

	async function loaded(stateDir: string) {
		const store = await openStateStore(stateDir);
		try {
			return await store.load();
		} finally {
			await store.close();
		}
	}

	test(`by kill -9 at every step, ${KILLS} times: the state before or the state after is there, whole [F003]`, async () => {
		const stateDir = join(temporaryDirectory('idv-kill-'), 'state');
		mkdirSync(stateDir, { mode: 0o700 });
		await save(stateDir, idOf(0), 'none', 0);
		let known = (await loaded(stateDir)).state.generatedId;
		const steps = new Set<number>();
		let kills = 0;
		for (let step = 1; kills < KILLS; ) {
			const id = idOf(kills + 1);
			const { said, killed } = await save(stateDir, id, 'kill', step);
			const { state, notices } = await loaded(stateDir);
			expect(notices).toEqual([]);
			// What was acknowledged before the kill stays; what was under way is there as a whole or not at all.
			const possible = said.length === 0 ? [known, id] : said.length === 1 ? [id, `${id}-again`] : [`${id}-again`];
			expect(possible).toContain(state.generatedId);
			expect(readdirSync(stateDir).filter((name) => !/^(state\.json(\.bak)?|lock\.db|state\.id)$/.test(name))).toEqual(
				[],
			);
			known = state.generatedId;
			if (killed) {
				kills += 1;
				steps.add(step);
				step += 1;
			} else step = 1;
		}
		// Temp file, bytes, flush, copy, rename, flush of the directory: for each of two saves.
		expect(steps.size).toBeGreaterThanOrEqual(10);
	});

	test.each([
		['eio', 'the old state stays, the failure is named, the next save works', 3],
		// A full disk takes what is written over what it holds.
		['short', 'each is made all the same', 0],
	])('by %s at any step: %s [F005]', async (kind, _, failures) => {
		const stateDir = join(temporaryDirectory('idv-eio-'), 'state');
		mkdirSync(stateDir, { mode: 0o700 });
		await save(stateDir, 'first', 'none', 0);
		const outcomes: unknown[] = [];
		for (let step = 1; step <= 12; step += 1) {
			const { said } = await save(stateDir, `step-${step}`, kind, step);
			outcomes.push(...said);
			expect(said).toHaveLength(2);
			for (const one of said)
				expect(one === 'saved' || one.code === 'state-unwritable', JSON.stringify(one)).toBe(true);
			const { state, notices } = await loaded(stateDir);
			expect(notices).toEqual([]);
			// One of the two saves meets the fault at most.
			expect(said).toContain('saved');
			expect(state.generatedId).toBe(said[1] === 'saved' ? `step-${step}-again` : `step-${step}`);
			expect(existsSync(join(stateDir, 'state.json.new'))).toBe(false);
		}
		const failed = outcomes.filter((one) => one !== 'saved').length;
		if (failures === 0) expect(failed).toBe(0);
		else expect(failed).toBeGreaterThanOrEqual(failures);
	});

	test.each(isShort ? [9] : Array.from({ length: 14 }, (_, step) => step + 1))(
		'of an agent that is killed at step %i of spending a code: it starts again, says what may have happened, and a new code works [F004]',
		async (step) => {
			const service = await givenService();
			const device = await givenDevice({ atTheEnd: onTestFinished });
			const environment = {
				LD_PRELOAD: library,
				FAULT_DIRECTORY: device.stateDir,
				FAULT_KIND: 'kill',
				FAULT_STEP: String(step),
			};
			// What the start itself writes may be the step that kills.
			const started = await device.start({ environment }).then(
				() => true,
				() => false,
			);
			const paired =
				started &&
				(await device.pair(service.createPairingCode('check-in').url).then(
					() => true,
					() => false,
				));
			await device.end('SIGKILL');
			await device.start();
			const status = await device.untilStatus(
				({ state }) => state === 'unpaired' || state === 'online',
				'a settled state',
			);
			const isRegistered = service.devices().length > 0;
			if (paired) expect(status.state).toBe('online');
			if (status.state === 'online') return expect(isRegistered).toBe(true);
			if (isRegistered) expect(status.sentence).toMatch(/check whether the device is listed/i);
			await device.pair(service.createPairingCode('check-in').url);
			await device.untilState('online');
			expect(service.devices()).toHaveLength(1);
		},
	);
});
