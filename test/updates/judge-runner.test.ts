import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import type { Status } from '../../src/protocol/local-api.ts';
import { type JudgeParts, runJudge, type TrialStatus } from '../../src/updates/judge.runner.ts';
import { HUNG_MS, LOOK_MS, type PackageState } from '../../src/updates/judge.ts';
import { openUpdateKeep } from '../../src/updates/keep.edge.ts';
import { prepareUpdate } from '../../src/updates/prepare.runner.ts';
import { isGoingBack } from '../../src/updates/record.ts';
import { warningOf } from '../../src/updates/taken-back.ts';
import { createSteppedClock } from '../harness/stepped-clock.ts';

type SystemParts = JudgeParts['system'] & Parameters<typeof prepareUpdate>[1]['system'];
type Told = (TrialStatus & Pick<Status, 'problem'>) | null;
const told = (state: Status['state'], code?: string, channel: TrialStatus['channel'] = BEATEN): Told =>
	({ state, problem: code === undefined ? null : { code }, channel }) as unknown as Told;
const BEATEN = { lastHeartbeatAt: '2026-11-22T04:01:00Z', lastAnswerAt: '2026-11-22T04:01:00Z' };

/** A machine with the files of a real one, whose dpkg, systemd and agent are whatever a test makes of them. */
async function givenMachine() {
	const directory = mkdtempSync(join(tmpdir(), 'updates-'));
	onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
	const program = join(directory, 'program');
	writeFileSync(program, '#!/bin/sh\n', { mode: 0o755 });
	const unit = join(directory, 'idv-agent.service');
	writeFileSync(unit, '[Service]\nType=notify\nExecStart=/usr/bin/idv-agent run\n');
	const places = {
		directory: join(directory, 'keep'),
		units: join(directory, 'units'),
		runtimeUnits: join(directory, 'runtime'),
		preferences: join(directory, 'preferences'),
	};
	const keep = openUpdateKeep(places);
	const machine = {
		installed: { version: '0.2.0', build: 'a', bytes: 1000, state: 'whole' as PackageState } as {
			version: string;
			build: string;
			bytes: number;
			state: PackageState;
		} | null,
		unit: { isReady: true, isStopped: false, isEnabled: true, restarts: 0, runId: 'run-1' as string | null },
		free: 1_000_000,
		busy: 0,
		boot: 'boot-1',
		status: told('online'),
		getsThrough: true,
		/** What a try at once comes to. */
		triesNow: () => {},
		due: { heartbeat: true, answer: true },
		did: [] as string[],
		/** What an installation of the version before comes to. */
		installs: () => {},
		/** The version before is there again: it answers, unless a test has it otherwise. */
		afterwards() {
			machine.unit = { isReady: true, isStopped: false, isEnabled: true, restarts: 0, runId: 'run of before' };
			machine.status = told('online');
		},
	};
	const ran = { status: 0, text: '' };
	const system: { -readonly [Name in keyof SystemParts]: SystemParts[Name] } = {
		readInstalled: async () => machine.installed,
		packInstalled: async ({ version }, file) => writeFileSync(file, version),
		freeBytes: async () => machine.free,
		stopUnit: async () => {},
		tellSystemd: async (...words) => void machine.did.push(['systemctl', ...words].join(' ')),
		readUnit: async () => machine.unit,
		restartAgent: async () => void machine.did.push('restart'),
		async putBackAgent(wasEnabled) {
			machine.did.push(wasEnabled ? 'put back enabled' : 'put back');
			machine.unit.isEnabled ||= wasEnabled;
		},
		isPackagingBusy: async () => machine.busy-- > 0,
		readBootId: async () => machine.boot,
		readLog: async () => ['the token is very-secret-token'],
		async installFile(file) {
			machine.did.push('install');
			machine.installs();
			if (machine.installed)
				machine.installed = { ...machine.installed, version: readFileSync(file, 'utf8'), build: 'a', state: 'whole' };
			machine.afterwards();
			return ran;
		},
		async finishConfiguring() {
			machine.did.push('finish');
			return ran;
		},
		cleanCache: async () => ran,
		installVersion: async () => ({ status: 100, text: '' }),
	};
	const parts: JudgeParts = {
		keep,
		system,
		clock: createSteppedClock(),
		askStatus: async () => machine.status,
		getsThrough: async () => machine.getsThrough,
		askToTryNow: async () => machine.triesNow(),
		isDue: async () => machine.due,
		source: null,
		judgeSeconds: 300,
		shapeAll: async (lines) => lines.map((line) => line.replaceAll('very-secret-token', '[secret]')),
		say: () => {},
	};
	return {
		machine,
		keep,
		system,
		places,
		prepare: (to: string) =>
			prepareUpdate(to, {
				keep,
				system,
				askStatus: async () => machine.status,
				running: { executable: program, program, unit },
				now: '2026-11-22T04:00:00Z',
			}),
		become(version: string, state: PackageState = 'whole', build = version === '0.2.0' ? 'a' : `of ${version}`) {
			machine.unit = { ...machine.unit, runId: `run of ${version}` };
			if (machine.installed) machine.installed = { ...machine.installed, version, build, state };
		},
		/** Judges until the end, time passing whenever it waits. */
		async judge(whileWaiting: (elapsedMs: number) => void = () => {}, judgeSeconds = 300): Promise<string> {
			// Each has a clock of its own: what a power cut has ended never goes on.
			const clock = createSteppedClock();
			const fromMs = clock.monotonicMs();
			const ended = runJudge({ ...parts, clock, judgeSeconds });
			let isOver = false;
			const over = () => {
				isOver = true;
			};
			ended.then(over, over);
			while (!isOver) {
				await new Promise((resolve) => setImmediate(resolve));
				if (clock.pending > 0) {
					whileWaiting(clock.monotonicMs() - fromMs);
					clock.advance(1000);
				}
			}
			return ended;
		},
	};
}

test('a version that comes online is kept, and nothing of the trial is left', async () => {
	const { machine, keep, places, prepare, become, judge } = await givenMachine();
	await prepare('0.3.0');
	expect(readdirSync(places.directory).toSorted()).toEqual([
		'before.deb',
		'idv-agent-updates',
		'idv-agent-updates.cjs',
		'idv-agent.service',
		'trial.json',
	]);
	expect(machine.did).toEqual(['systemctl start idv-agent-judge.service']);
	// A unit that it waits for could keep it from starting at a boot.
	const itsUnit = readFileSync(join(places.units, 'idv-agent-judge.service'), 'utf8');
	expect(itsUnit).not.toMatch(/^(?:After|Requires|BindsTo|PartOf|Requisite)=/m);
	become('0.3.0');
	machine.busy = 3;
	machine.status = told('connecting');
	const end = await judge((elapsedMs) => {
		if (elapsedMs > 60_000) machine.status = told('online');
	});
	expect(end).toBe('kept');
	expect(await keep.outcomes()).toMatchObject({ kept: '0.3.0', takenBack: [] });
	expect(readdirSync(places.directory)).toEqual(['outcomes.json']);
	expect(readdirSync(places.units, { recursive: true })).toEqual(['multi-user.target.wants']);
});

test('a version whose scripts disable the agent is started by each boot again; a person who does so later is obeyed [F1935]', async () => {
	const { machine, prepare, become, judge } = await givenMachine();
	await prepare('0.3.0');
	become('0.3.0');
	machine.unit.isEnabled = false;
	machine.status = told('connecting');
	const cutOff = judge((elapsedMs) => {
		if (elapsedMs > 20_000) throw new Error('power cut');
	});
	await expect(cutOff).rejects.toThrow('power cut');
	expect(machine.did.filter((one) => one === 'put back enabled')).toHaveLength(1);
	machine.unit.isEnabled = false;
	machine.status = told('online');
	expect(await judge()).toBe('kept');
	expect(machine.unit.isEnabled).toBe(false);
});

test.each<[string, string, (machine: Awaited<ReturnType<typeof givenMachine>>['machine']) => void]>([
	[
		'dies three times',
		'crashes',
		(machine) =>
			Object.assign(machine, {
				unit: { isReady: false, isStopped: false, isEnabled: true, restarts: 3, runId: null },
				status: null,
			}),
	],
	['never answers', 'not-ready', (machine) => Object.assign(machine, { status: null })],
	[
		'never gets online',
		'not-online',
		(machine) => Object.assign(machine, { status: told('offline', 'credential-refused') }),
	],
	[
		'blames a line that works',
		'not-online',
		(machine) => Object.assign(machine, { status: told('offline', 'service-unreachable') }),
	],
])(
	'a version that %s is taken back, pinned away from apt, and remembered with its log [F422]',
	async (_what, fault, happens) => {
		const { machine, keep, places, prepare, become, judge } = await givenMachine();
		await prepare('0.3.0');
		become('0.3.0');
		happens(machine);
		expect(await judge()).toBe('wentBack');
		expect(machine.installed?.version).toBe('0.2.0');
		expect((await keep.outcomes()).takenBack).toMatchObject([
			{ version: '0.3.0', by: '0.2.0', fault, log: ['the token is [secret]'] },
		]);
		expect(readFileSync(join(places.preferences, 'idv-agent-taken-back.pref'), 'utf8')).toContain(
			'Pin: version 0.3.0\nPin-Priority: -1',
		);
		expect(readdirSync(places.directory)).toEqual(['outcomes.json']);
		expect(warningOf(await keep.outcomes())).toMatchObject({
			code: 'update-taken-back',
			params: { version: '0.3.0', fault },
		});
		// A person lets apt try it again, or a newer version works.
		expect(warningOf({ ...(await keep.outcomes()), kept: '0.3.1' })).toBeNull();
		await keep.saveOutcomes({ ...(await keep.outcomes()), takenBack: [] });
		expect(readdirSync(places.preferences)).toEqual([]);
		expect(warningOf(await keep.outcomes())).toBeNull();
	},
);

test('a version is kept after it was well for update.judgeSeconds, and not before [F442]', async () => {
	for (const judgeSeconds of [30, 300, 600]) {
		const { prepare, become, judge } = await givenMachine();
		await prepare('0.3.0');
		become('0.3.0');
		let lastedMs = 0;
		const end = await judge((elapsedMs) => {
			lastedMs = elapsedMs;
		}, judgeSeconds);
		expect(end).toBe('kept');
		expect(lastedMs).toBeGreaterThanOrEqual(judgeSeconds * 1000 - 1000);
		expect(lastedMs).toBeLessThan(judgeSeconds * 1000 + 5000);
	}
});

test.each([20, 120, 290])('a version that dies %i s after each start is taken back [F443]', async (livesSeconds) => {
	const { machine, keep, prepare, become, judge } = await givenMachine();
	await prepare('0.3.0');
	become('0.3.0');
	const end = await judge((elapsedMs) => {
		const restarts = Math.floor(elapsedMs / (livesSeconds * 1000));
		if (restarts !== machine.unit.restarts) machine.unit = { ...machine.unit, restarts, runId: `run ${restarts}` };
	});
	expect(end).toBe('wentBack');
	expect((await keep.outcomes()).takenBack).toMatchObject([{ version: '0.3.0', fault: 'crashes' }]);
});

test('deaths are counted while apt is at work with other packages', async () => {
	const { machine, keep, prepare, become, judge } = await givenMachine();
	await prepare('0.3.0');
	become('0.3.0');
	const end = await judge((elapsedMs) => {
		machine.busy = elapsedMs > 10_000 && elapsedMs < 100_000 ? 1 : 0;
		const restarts = Math.min(3, Math.floor(elapsedMs / 20_000));
		if (restarts !== machine.unit.restarts) machine.unit = { ...machine.unit, restarts, runId: `run ${restarts}` };
	});
	expect(end).toBe('wentBack');
	expect((await keep.outcomes()).takenBack).toMatchObject([{ fault: 'crashes' }]);
});

test('deaths are counted over boots and starts by a person', async () => {
	const { machine, keep, prepare, become, judge } = await givenMachine();
	await prepare('0.3.0');
	become('0.3.0');
	for (const boot of ['boot-2', 'boot-3', 'boot-4']) {
		machine.boot = boot;
		machine.unit = { ...machine.unit, restarts: 0, runId: `${boot} 0` };
		const judged = judge((elapsedMs) => {
			if (elapsedMs > 100_000) machine.unit = { ...machine.unit, restarts: 1, runId: `${boot} 1` };
			if (elapsedMs > 320_000) throw new Error('power cut');
		});
		if (boot === 'boot-4') expect(await judged).toBe('wentBack');
		else await expect(judged).rejects.toThrow('power cut');
	}
	expect((await keep.outcomes()).takenBack).toMatchObject([{ fault: 'crashes' }]);
});

test.each([
	['no heartbeat', { ...BEATEN, lastHeartbeatAt: null }],
	['no answer to a ping', { ...BEATEN, lastAnswerAt: null }],
])('a version that is online with %s is taken back where the settings make one due [F444]', async (_what, channel) => {
	const { machine, keep, prepare, become, judge } = await givenMachine();
	await prepare('0.3.0');
	become('0.3.0');
	machine.status = told('online', undefined, channel);
	expect(await judge()).toBe('wentBack');
	expect((await keep.outcomes()).takenBack).toMatchObject([{ fault: 'no-heartbeat' }]);

	const other = await givenMachine();
	await other.prepare('0.3.0');
	other.become('0.3.0');
	other.machine.status = told('online', undefined, channel);
	other.machine.due = { heartbeat: false, answer: false };
	expect(await other.judge()).toBe('kept');
});

test.each([
	['answers 429', 'offline', 'service-overloaded'],
	['answers 404 through its load balancer', 'blocked', 'channel-not-found'],
	['cannot be reached', 'offline', 'service-unreachable'],
] as const)(
	'a service that %s during a trial is waited for, and the version is judged when it is back [F427]',
	async (_what, state, code) => {
		for (const isGood of [true, false]) {
			const { machine, keep, prepare, become, judge } = await givenMachine();
			// The service went away before the update as well.
			machine.status = told(state, code);
			await prepare('0.3.0');
			become('0.3.0');
			machine.getsThrough = false;
			const end = await judge((elapsedMs) => {
				if (elapsedMs > 2 * 3_600_000) machine.getsThrough = true;
				if (elapsedMs > 2 * 3_600_000 && isGood) machine.status = told('online');
			});
			expect(end).toBe(isGood ? 'kept' : 'wentBack');
			expect((await keep.outcomes()).takenBack.map(({ fault }) => fault)).toEqual(isGood ? [] : ['not-online']);
		}
	},
);

test('a version that waits for its next try is asked to try at once before it is blamed', async () => {
	const { machine, prepare, become, judge } = await givenMachine();
	await prepare('0.3.0');
	become('0.3.0');
	machine.status = told('blocked', 'channel-not-found');
	machine.triesNow = () => {
		machine.status = told('online');
	};
	expect(await judge()).toBe('kept');
});

test('a version that comes and goes for ever is taken back', async () => {
	const { machine, keep, prepare, become, judge } = await givenMachine();
	await prepare('0.3.0');
	become('0.3.0');
	const end = await judge((elapsedMs) => {
		machine.status = told(elapsedMs % 60_000 < 30_000 ? 'online' : 'connecting');
	});
	expect(end).toBe('wentBack');
	expect((await keep.outcomes()).takenBack).toMatchObject([{ fault: 'not-online' }]);
});

test('a version whose channel the service closes each minute is kept', async () => {
	const { machine, prepare, become, judge } = await givenMachine();
	await prepare('0.3.0');
	become('0.3.0');
	const end = await judge((elapsedMs) => {
		machine.status = told(elapsedMs % 60_000 < 5000 ? 'connecting' : 'online');
	});
	expect(end).toBe('kept');
});

test('a service that stays away for a day ends the trial with the version that was online, without a word against the new one [F445]', async () => {
	const { machine, keep, prepare, become, judge } = await givenMachine();
	await prepare('0.3.0');
	become('0.3.0');
	machine.getsThrough = false;
	machine.status = told('offline', 'service-unreachable');
	let lastedMs = 0;
	// Twelve hours, a power cut, and the rest.
	await expect(
		judge((elapsedMs) => {
			if (elapsedMs > 12 * 3_600_000) throw new Error('power cut');
		}, 3600),
	).rejects.toThrow('power cut');
	const end = await judge((elapsedMs) => {
		lastedMs = elapsedMs;
	}, 3600);
	expect(end).toBe('wentBack');
	expect(lastedMs / 3_600_000).toBeCloseTo(12, 0);
	expect(await keep.outcomes()).toMatchObject({ takenBack: [], failed: { code: 'service-unreachable' } });
});

test('a version whose service stays away is replaced also where nothing can be written', async () => {
	const { machine, keep, prepare, become, judge } = await givenMachine();
	await prepare('0.3.0');
	become('0.3.0');
	machine.getsThrough = false;
	machine.status = told('offline', 'service-unreachable');
	keep.saveOutcomes = () => Promise.reject(Object.assign(new Error('no space'), { code: 'ENOSPC' }));
	expect(await judge(undefined, 3600)).toBe('wentBack');
	expect(machine.installed?.version).toBe('0.2.0');
});

test('going back is tried again until it works: the disk may be full at first [F429]', async () => {
	const { machine, prepare, become, judge } = await givenMachine();
	await prepare('0.3.0');
	become('0.3.0');
	machine.status = null;
	let tries = 0;
	machine.installs = () => {
		tries += 1;
		if (tries < 4) throw Object.assign(new Error('no space'), { code: 'ENOSPC' });
	};
	await expect(judge()).rejects.toThrow('no space');
	// systemd starts the judge again; it goes on where it was.
	for (let round = 0; round < 2; round += 1) await expect(judge()).rejects.toThrow('no space');
	expect(await judge()).toBe('wentBack');
	expect(machine.installed?.version).toBe('0.2.0');
});

test('a version that fills the disk is taken back all the same: the kept program runs until there is room [F1999]', async () => {
	const { machine, keep, places, system, prepare, become, judge } = await givenMachine();
	await prepare('0.3.0');
	become('0.3.0');
	machine.unit = { ...machine.unit, isReady: false, restarts: 3, runId: null };
	const { saveTrial } = keep;
	keep.saveTrial = () => Promise.reject(Object.assign(new Error('no space'), { code: 'ENOSPC' }));
	const stoodIn: boolean[] = [];
	const { installFile } = system;
	system.installFile = async (file) => {
		stoodIn.push(existsSync(join(places.runtimeUnits, 'idv-agent.service')));
		// Whatever cuts the way back off: it does not come again.
		expect((await keep.outcomes()).takenBack).toMatchObject([{ version: '0.3.0' }]);
		if (stoodIn.length < 4) return { status: 2, text: 'no space' };
		keep.saveTrial = saveTrial;
		return installFile(file);
	};
	expect(await judge()).toBe('wentBack');
	expect(stoodIn).toEqual([true, true, true, true]);
	expect(machine.did.slice(0, machine.did.indexOf('install'))).toContain('restart');
	expect(existsSync(join(places.runtimeUnits, 'idv-agent.service'))).toBe(false);
	expect((await keep.outcomes()).takenBack).toMatchObject([{ version: '0.3.0', fault: 'crashes' }]);
});

test('a version that was taken back on a full disk is written down, and apt kept from it, once there is room [F1946]', async () => {
	const { machine, keep, places, system, prepare, become, judge } = await givenMachine();
	await prepare('0.3.0');
	become('0.3.0');
	machine.unit = { ...machine.unit, isReady: false, restarts: 3, runId: null };
	const { saveOutcomes } = keep;
	const logs = [['it died'], ['the version before is online']];
	system.readLog = async () => logs.shift() ?? [];
	let refused = 0;
	keep.saveOutcomes = (outcomes) => {
		if (refused === 2) return saveOutcomes(outcomes);
		refused += 1;
		return Promise.reject(Object.assign(new Error('no space'), { code: 'ENOSPC' }));
	};
	expect(await judge()).toBe('wentBack');
	expect(refused).toBe(2);
	const one = { version: '0.3.0', by: '0.2.0', fault: 'crashes', log: ['it died'] };
	expect((await keep.outcomes()).takenBack).toMatchObject([one]);
	expect(readFileSync(join(places.preferences, 'idv-agent-taken-back.pref'), 'utf8')).toContain('0.3.0');
});

test('what was not written down before the power went is written by the next judge [F1947]', async () => {
	const { keep, prepare, judge } = await givenMachine();
	await prepare('0.3.0');
	const trial = await keep.trial();
	if (!trial) throw new Error('no trial');
	await keep.saveTrial({ ...trial, to: '0.3.0', phase: 'goneBack', fault: 'crashes' });
	expect(await judge()).toBe('wentBack');
	expect((await keep.outcomes()).takenBack).toMatchObject([{ version: '0.3.0', by: '0.2.0', fault: 'crashes' }]);
});

test.each([
	['and is started by each boot is judged as one that is not online', true, 'offline', 'wentBack'],
	['and disabled is installed only', false, 'stopped', 'kept'],
])('an agent that a person has stopped %s', async (_what, isEnabled, before, end) => {
	const { machine, keep, prepare, become, judge } = await givenMachine();
	machine.unit = { ...machine.unit, isReady: false, isStopped: true, isEnabled, runId: null };
	machine.status = null;
	await prepare('0.3.0');
	expect(await keep.trial()).toMatchObject({ before });
	become('0.3.0');
	machine.unit = { ...machine.unit, isReady: false, isStopped: false, restarts: 3, runId: null };
	expect(await judge()).toBe(end);
});

test('going back is tried after 5 s, then after twice as long each time, at most every 5 minutes', async () => {
	const { machine, system, prepare, become, judge } = await givenMachine();
	await prepare('0.3.0');
	become('0.3.0');
	machine.status = null;
	const atSeconds: number[] = [];
	let nowMs = 0;
	const { installFile } = system;
	system.installFile = async (file) => {
		atSeconds.push(Math.round(nowMs / 1000));
		return atSeconds.length < 10 ? { status: 1, text: '' } : installFile(file);
	};
	const end = await judge((elapsedMs) => {
		nowMs = elapsedMs;
	});
	expect(end).toBe('wentBack');
	const waits = atSeconds.slice(1).map((at, index) => at - (atSeconds[index] ?? 0));
	expect(waits).toEqual([5, 10, 20, 40, 80, 160, 300, 300, 300]);
});

test('three boots without coming online take a version back; the count outlives each [F428]', async () => {
	const { machine, keep, prepare, become, judge } = await givenMachine();
	await prepare('0.3.0');
	become('0.3.0');
	machine.status = null;
	for (const boot of ['boot-2', 'boot-3', 'boot-4']) {
		machine.boot = boot;
		// Power goes while it waits.
		await expect(
			judge((elapsedMs) => {
				if (elapsedMs > 20_000) throw new Error('power cut');
			}),
		).rejects.toThrow('power cut');
	}
	expect(await keep.trial()).toMatchObject({ phase: 'judging', boots: 3 });
	machine.boot = 'boot-5';
	expect(await judge()).toBe('wentBack');
	expect((await keep.outcomes()).takenBack).toMatchObject([{ fault: 'reboots' }]);
});

test('an installation that was cut off is finished, or undone without a word against the version', async () => {
	const cut = await givenMachine();
	await cut.prepare('0.3.0');
	cut.become('0.3.0', 'half');
	expect(await cut.judge()).toBe('wentBack');
	expect((await cut.keep.outcomes()).takenBack).toEqual([]);
	const failing = await givenMachine();
	await failing.prepare('0.3.0');
	failing.become('0.3.0', 'unconfigured');
	expect(await failing.judge()).toBe('wentBack');
	expect(failing.machine.did).toContain('finish');
	expect((await failing.keep.outcomes()).takenBack).toMatchObject([{ fault: 'unfinished' }]);
});

test('no update begins without room for the way back; a second one goes back to the version that is proved [F1839]', async () => {
	const { machine, keep, places, prepare, become, judge } = await givenMachine();
	machine.free = 2000;
	await expect(prepare('0.3.0')).rejects.toMatchObject({ failure: { code: 'disk-low' } });
	expect(await keep.trial()).toBeNull();
	machine.free = 1_000_000;
	await prepare('0.3.0');
	become('0.3.0');
	machine.status = null;
	await keep.standIn();
	await prepare('0.4.0');
	expect(await keep.trial()).toMatchObject({ from: '0.2.0', to: '0.4.0', before: 'online' });
	expect(readFileSync(join(places.directory, 'before.deb'), 'utf8')).toBe('0.2.0');
	// The new version runs by its own unit, and its judge comes again after whatever ends him.
	expect(readdirSync(places.runtimeUnits)).toEqual([]);
	const unit = readFileSync(join(places.units, 'multi-user.target.wants/idv-agent-judge.service'), 'utf8');
	expect(unit).toContain(`\nExecStart=${join(places.directory, 'idv-agent-updates')} judge\nRestart=on-failure\n`);
	expect(unit).toContain('\nUMask=0022\n');
	become('0.4.0');
	expect(await judge()).toBe('wentBack');
	expect(machine.installed?.version).toBe('0.2.0');
});

test('a device that is switched off each night while its line is down keeps its new version', async () => {
	const { machine, keep, prepare, become, judge } = await givenMachine();
	await prepare('0.3.0');
	become('0.3.0');
	machine.getsThrough = false;
	machine.status = told('offline', 'service-unreachable');
	for (let night = 1; night < 8; night += 1) {
		machine.boot = `boot-${night}`;
		const day = judge((elapsedMs) => {
			if (elapsedMs > 900_000) throw new Error('switched off');
		});
		await expect(day).rejects.toThrow('switched off');
	}
	machine.status = told('online');
	expect(await judge()).toBe('kept');
	expect((await keep.outcomes()).takenBack).toEqual([]);
});

test('a version that nobody has started is not believed because the one before still answers', async () => {
	const { machine, keep, prepare, become, judge } = await givenMachine();
	const before = machine.unit;
	await prepare('0.3.0');
	become('0.3.0');
	machine.unit = before;
	expect(await judge()).toBe('wentBack');
	expect((await keep.outcomes()).takenBack).toMatchObject([{ version: '0.3.0', fault: 'not-ready' }]);
});

test('a version that a person stops in its trial waits, and is judged when it runs again [F1933]', async () => {
	const { machine, keep, prepare, become, judge } = await givenMachine();
	await prepare('0.3.0');
	become('0.3.0');
	const end = await judge((elapsedMs) => {
		const isStopped = elapsedMs > 20_000 && elapsedMs < 3_600_000;
		machine.unit = { ...machine.unit, isReady: !isStopped, isStopped };
		machine.status = isStopped ? null : told('online');
	});
	expect(end).toBe('kept');
	expect(await keep.outcomes()).toMatchObject({ kept: '0.3.0', takenBack: [] });
	expect(machine.did).not.toContain('restart');
});

test.each([
	['waits also for a judge that is started again', 'boot-1', 'kept'],
	['that does not start after a new boot is taken back', 'boot-2', 'wentBack'],
])('a version that was ready, and that a person stops, %s [F1936]', async (_what, boot, end) => {
	const { machine, prepare, become, judge } = await givenMachine();
	await prepare('0.3.0');
	become('0.3.0');
	const killed = judge((elapsedMs) => {
		if (elapsedMs > 20_000) throw new Error('killed');
	});
	await expect(killed).rejects.toThrow('killed');
	machine.boot = boot;
	machine.unit = { ...machine.unit, isReady: false, isStopped: true };
	machine.status = null;
	const judged = judge((elapsedMs) => {
		if (elapsedMs < 3_600_000 || machine.unit.isReady) return;
		machine.unit = { ...machine.unit, isReady: true, isStopped: false };
		machine.status = told('online');
	});
	expect(await judged).toBe(end);
});

test('a version before that the new one has left stopped, masked and disabled is started, at each boot, too [F1934]', async () => {
	const { machine, prepare, become, judge } = await givenMachine();
	await prepare('0.3.0');
	become('0.3.0');
	Object.assign(machine, {
		unit: { isReady: false, isStopped: true, isEnabled: false, restarts: 0, runId: null },
		status: null,
	});
	machine.afterwards = () => {};
	const end = await judge(() => {
		if (machine.did.filter((word) => word === 'restart').length < 3) return;
		machine.unit = { isReady: true, isStopped: false, isEnabled: true, restarts: 0, runId: 'run of before' };
		machine.status = told('online');
	});
	expect([end, machine.did.filter((word) => word !== 'install' && !word.startsWith('systemctl'))]).toEqual([
		'wentBack',
		// What stands in begins and ends, and what does not answer is started again.
		['put back enabled', 'restart', 'restart', 'put back enabled', 'restart'],
	]);
});

test('a version that comes while another is judged has the whole time for itself', async () => {
	const { machine, keep, prepare, become, judge } = await givenMachine();
	await prepare('0.3.0');
	become('0.3.0');
	machine.status = told('offline', 'credential-refused');
	const end = await judge((elapsedMs) => {
		// apt brings it without asking: the judge is still the one of the first.
		if (elapsedMs > 200_000 && machine.installed?.version === '0.3.0') become('0.4.0');
		if (elapsedMs > 450_000) machine.status = told('online');
	});
	expect(end).toBe('kept');
	expect(await keep.outcomes()).toMatchObject({ kept: '0.4.0', takenBack: [] });
});

test('dpkg that could not begin is asked again, and the version is not blamed for it', async () => {
	const { machine, keep, system, prepare, become, judge } = await givenMachine();
	await prepare('0.3.0');
	become('0.3.0', 'unconfigured');
	let tries = 0;
	system.finishConfiguring = async () => {
		tries += 1;
		if (tries === 3) become('0.3.0');
		return { status: tries < 3 ? 2 : 0, text: 'dpkg: error: dpkg frontend lock was locked by another process' };
	};
	expect(await judge()).toBe('kept');
	expect(tries).toBe(3);
	expect((await keep.outcomes()).takenBack).toEqual([]);
	expect(machine.did).not.toContain('install');
});

test.each([
	['dies', 3, 'crashes'],
	['works', 0, 'unfinished'],
])('a version that %s while its script leaves dpkg no room is taken back [F1958]', async (_how, restarts, fault) => {
	const { machine, keep, system, prepare, become, judge } = await givenMachine();
	await prepare('0.3.0');
	become('0.3.0', 'unconfigured');
	machine.unit = { ...machine.unit, restarts, isReady: restarts === 0 };
	system.finishConfiguring = async () => ({ status: 2, text: 'dpkg: error: failed to write status database' });
	expect(await judge()).toBe('wentBack');
	expect((await keep.outcomes()).takenBack).toMatchObject([{ version: '0.3.0', fault }]);
});

test('the script of a bad version does not run again while the way back has no room [F1958]', async () => {
	const { machine, system, prepare, become, judge } = await givenMachine();
	await prepare('0.3.0');
	become('0.3.0');
	machine.unit = { ...machine.unit, isReady: false, restarts: 3, runId: null };
	const { installFile } = system;
	let tries = 0;
	system.installFile = async (file) => {
		tries += 1;
		return tries < 3 ? { status: 2, text: 'dpkg: error: failed to write: No space left on device' } : installFile(file);
	};
	expect(await judge()).toBe('wentBack');
	expect(machine.did).not.toContain('finish');
});

test('the time in which another program is at work with packages does not count for one that waits for dpkg', async () => {
	const { machine, system, keep, prepare, become, judge } = await givenMachine();
	await prepare('0.3.0');
	become('0.3.0', 'unconfigured');
	let tries = 0;
	system.finishConfiguring = async () => {
		tries += 1;
		if (tries === 1) machine.busy = HUNG_MS / LOOK_MS;
		if (tries === 3) become('0.3.0');
		return { status: tries < 3 ? 2 : 0, text: '' };
	};
	expect(await judge()).toBe('kept');
	expect((await keep.outcomes()).takenBack).toEqual([]);
});

test('a way back that cannot be kept is named, and leaves nothing that judges [F423]', async () => {
	const { machine, system, keep, places, prepare } = await givenMachine();
	system.packInstalled = async () => {
		throw new Error('dpkg-deb made no package');
	};
	await expect(prepare('0.3.0')).rejects.toMatchObject({ failure: { code: 'update-unprepared' } });
	system.packInstalled = async () => {
		throw new Error('dpkg-deb: error: failed to write: No space left on device');
	};
	await expect(prepare('0.3.0')).rejects.toMatchObject({ failure: { code: 'disk-low' } });
	expect(await keep.trial()).toBeNull();
	expect(readdirSync(places.directory)).toEqual([]);
	expect(machine.did).not.toContain('systemctl start idv-agent-judge.service');
	system.packInstalled = async ({ version }, file) => writeFileSync(file, version);
	await prepare('0.3.0');
	expect(await keep.trial()).toMatchObject({ from: '0.2.0', to: '0.3.0' });
});

test('a version is not blamed for what one before it did while dpkg was at work [F1941]', async () => {
	const { machine, keep, prepare, become, judge } = await givenMachine();
	await prepare('0.3.0');
	machine.busy = 10;
	become('0.3.0', 'unconfigured');
	machine.unit = { ...machine.unit, runId: 'run of a bad one' };
	const end = await judge(() => {
		if (machine.busy > 0) machine.unit = { ...machine.unit, restarts: machine.unit.restarts + 1 };
		else if (machine.installed?.state === 'unconfigured') {
			become('0.3.0');
			machine.unit = { ...machine.unit, restarts: 0 };
		}
	});
	expect(end).toBe('kept');
	expect((await keep.outcomes()).takenBack).toEqual([]);
});

test('while a neighbour hangs in the run of apt, a version that dies gives way to the kept program, and goes when apt is free [F735]', async () => {
	const { machine, keep, places, prepare, become, judge } = await givenMachine();
	await prepare('0.3.0');
	become('0.3.0', 'unconfigured');
	machine.status = null;
	machine.busy = Number.POSITIVE_INFINITY;
	let stoodInAtMs: number | null = null;
	const hanging = judge((elapsedMs) => {
		if (!machine.did.includes('restart')) machine.unit = { ...machine.unit, restarts: Math.floor(elapsedMs / 5000) };
		else if (stoodInAtMs === null) {
			stoodInAtMs = elapsedMs;
			machine.status = told('online');
		}
		if (elapsedMs > 4 * 3_600_000) throw new Error('power cut');
	});
	await expect(hanging).rejects.toThrow('power cut');
	expect(stoodInAtMs).toBeGreaterThanOrEqual(900_000);
	expect(stoodInAtMs).toBeLessThan(910_000);
	expect(machine.did).not.toContain('install');
	expect(readFileSync(join(places.runtimeUnits, 'idv-agent.service'), 'utf8')).toBe(
		`[Service]\nType=notify\nExecStart=@${join(places.directory, 'idv-agent-updates')} idv-agent run\n`,
	);
	// The next boot: nothing of /run is left, and no apt is at work.
	rmSync(places.runtimeUnits, { recursive: true });
	Object.assign(machine, { boot: 'boot-2', busy: 0, status: null });
	become('0.3.0');
	expect(await judge()).toBe('wentBack');
	expect(machine.installed?.version).toBe('0.2.0');
	expect((await keep.outcomes()).takenBack).toMatchObject([{ version: '0.3.0', fault: 'crashes' }]);
	expect(readdirSync(places.directory)).toEqual(['outcomes.json']);
});

test('where apt hangs again at the next boot, the kept program runs at once, and ends when dpkg was asked', async () => {
	const { machine, places, prepare, become, judge } = await givenMachine();
	await prepare('0.3.0');
	become('0.3.0');
	Object.assign(machine, { status: null, busy: Number.POSITIVE_INFINITY });
	const cut = (afterMs: number) =>
		judge((elapsedMs) => {
			if (elapsedMs > afterMs) throw new Error('power cut');
		});
	await expect(cut(1_000_000)).rejects.toThrow('power cut');
	rmSync(places.runtimeUnits, { recursive: true });
	await expect(cut(10_000)).rejects.toThrow('power cut');
	expect(readdirSync(places.runtimeUnits)).toEqual(['idv-agent.service']);
	machine.busy = 0;
	machine.did.length = 0;
	expect(await judge()).toBe('wentBack');
	expect(machine.did.slice(0, 3)).toEqual(['restart', 'install', 'restart']);
	expect(readdirSync(places.runtimeUnits)).toEqual([]);
});

test('nothing stands in for a version that works, nor while the service is away, however long apt hangs', async () => {
	for (const status of [told('online'), told('offline', 'service-unreachable')]) {
		const { machine, prepare, become, judge } = await givenMachine();
		await prepare('0.3.0');
		become('0.3.0');
		Object.assign(machine, { status, getsThrough: false, busy: Number.POSITIVE_INFINITY });
		const hanging = judge((elapsedMs) => {
			if (elapsedMs > 4 * 3_600_000) throw new Error('power cut');
		});
		await expect(hanging).rejects.toThrow('power cut');
		expect(machine.did).not.toContain('restart');
	}
});

test('the same version with other bytes is tried as well, and goes back to the build from before [F736]', async () => {
	const { machine, keep, prepare, become, judge } = await givenMachine();
	await prepare('0.2.0');
	become('0.2.0', 'whole', 'rebuilt');
	machine.status = null;
	expect(await judge()).toBe('wentBack');
	expect(machine.installed).toMatchObject({ version: '0.2.0', build: 'a' });
	expect((await keep.outcomes()).takenBack).toMatchObject([{ version: '0.2.0', by: '0.2.0', fault: 'not-ready' }]);

	const good = await givenMachine();
	await good.prepare('0.2.0');
	good.become('0.2.0', 'whole', 'rebuilt');
	expect(await good.judge()).toBe('kept');

	// The same bytes again are no other version.
	const same = await givenMachine();
	await same.prepare('0.2.0');
	same.become('0.2.0');
	expect(await same.judge()).toBe('none');
});

test('a version that is built again while it is tried has the whole time for itself, and goes back to the one that is proved', async () => {
	const { machine, keep, prepare, become, judge } = await givenMachine();
	await prepare('0.3.0');
	become('0.3.0', 'whole', 'first');
	const cut = judge((elapsedMs) => {
		if (elapsedMs > 10_000) throw new Error('the judge is stopped');
	});
	await expect(cut).rejects.toThrow('the judge is stopped');
	await prepare('0.3.0');
	become('0.3.0', 'whole', 'second');
	machine.status = null;
	expect(await judge()).toBe('wentBack');
	expect(machine.installed).toMatchObject({ version: '0.2.0', build: 'a' });
	expect((await keep.outcomes()).takenBack).toHaveLength(1);
});

test('judge and way back stay until the version before is online, also over boots [F737]', async () => {
	const { machine, keep, places, prepare, become, judge } = await givenMachine();
	await prepare('0.3.0');
	become('0.3.0');
	machine.status = null;
	machine.afterwards = () => {
		machine.unit = { isReady: true, isStopped: false, isEnabled: true, restarts: 0, runId: 'run of before' };
		machine.status = told('connecting');
	};
	const day = () =>
		judge((elapsedMs) => {
			if (elapsedMs > 24 * 3_600_000) throw new Error('power cut');
		});
	await expect(day()).rejects.toThrow('power cut');
	expect(machine.installed?.version).toBe('0.2.0');
	expect(isGoingBack(await keep.trial())).toBe(true);
	machine.boot = 'boot-2';
	await expect(day()).rejects.toThrow('power cut');
	expect(readdirSync(places.directory)).toContain('before.deb');
	expect(machine.did.filter((word) => word === 'install')).toHaveLength(1);
	machine.status = told('online');
	expect(await judge()).toBe('wentBack');
	expect(readdirSync(places.directory)).toEqual(['outcomes.json']);
});

test('a version before that does not answer after going back is started again', async () => {
	const { machine, prepare, become, judge } = await givenMachine();
	await prepare('0.3.0');
	become('0.3.0');
	machine.status = null;
	machine.afterwards = () => {};
	const end = judge(() => {
		if (machine.did.includes('restart')) machine.status = told('online');
	});
	expect(await end).toBe('wentBack');
});

test('an update that comes while the version before is not online yet goes back to it as well', async () => {
	const { machine, keep, places, prepare, become, judge } = await givenMachine();
	await prepare('0.3.0');
	become('0.3.0');
	machine.status = null;
	machine.afterwards = () => {};
	const cut = judge(() => {
		if (machine.installed?.version === '0.2.0') throw new Error('the judge is stopped');
	});
	await expect(cut).rejects.toThrow('the judge is stopped');
	await prepare('0.4.0');
	expect(await keep.trial()).toMatchObject({
		phase: 'prepared',
		from: '0.2.0',
		to: '0.4.0',
		before: 'online',
		fault: null,
	});
	expect(readFileSync(join(places.directory, 'before.deb'), 'utf8')).toBe('0.2.0');
});
