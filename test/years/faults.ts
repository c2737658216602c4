/**
 * The faults of a life: drawn once from the seed as a list, so that a life can be lived again with some of them left out.
 * Each does one thing to the world, and most end after a while.
 */
import { type Chance, chanceOf } from './chance.ts';
import type { Device } from './device.ts';
import type { DiskFault } from './disk.ts';
import { type Line, type Mode, OTHER_SERIAL, type PublishedPlan, SERIAL, type Service, WORKFLOWS } from './service.ts';
import type { Time } from './time.ts';
import type { Traits } from './traits.ts';

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** Applications that stay away for long. */
export const AWAY = ['away-0', 'away-1', 'away-2'] as const;

export interface Fault {
	/** Place in the whole list of its life. */
	readonly number: number;
	readonly kind: FaultKind;
	readonly atMs: number;
	/** Until then it is over. */
	readonly endMs: number;
	/** Decides the rest of it. */
	readonly seed: number;
}

export interface Cycle {
	readonly fromMs: number;
	/** From here on there are no faults. */
	readonly calmMs: number;
	readonly judgedMs: number;
	/** Until then nothing happens but what a quiet device does. */
	readonly quietUntilMs: number;
}

/** How long a device has to come back, and how long it is then looked at. */
export const RECOVERY_MS = 75 * MINUTE;
export const STILL_MS = 105 * MINUTE;

/** When things break and when they are left alone: after each rest for a day on average. */
export function cyclesOf(seed: number, lengthMs: number): Cycle[] {
	const chance = chanceOf(seed * 31 + 7);
	const cycles: Cycle[] = [];
	for (let fromMs = HOUR; ; ) {
		const calmMs = fromMs + Math.round((2 + chance() * chance() * 70) * HOUR);
		const judgedMs = calmMs + RECOVERY_MS + STILL_MS;
		if (judgedMs > lengthMs) return cycles;
		const quietUntilMs = judgedMs + Math.round(chance() * chance() * 4 * DAY);
		cycles.push({ fromMs, calmMs, judgedMs, quietUntilMs });
		fromMs = quietUntilMs;
	}
}

/** Mean duration of what lasts; 0 for what is done at once. */
const DURATIONS = {
	lineRefused: 30 * MINUTE,
	noNames: 30 * MINUTE,
	hole: 20 * MINUTE,
	shortHole: 40 * SECOND,
	resets: 10 * MINUTE,
	badCertificate: 10 * MINUTE,
	portal: 20 * MINUTE,
	busy503: 20 * MINUTE,
	tooMany429: 10 * MINUTE,
	broken500: 20 * MINUTE,
	// Long enough now and then for a person to be asked.
	says401: 12 * MINUTE,
	says403: 4 * MINUTE,
	says404: 4 * MINUTE,
	hangs: 20 * MINUTE,
	slow: 30 * MINUTE,
	losesAnswers: 10 * MINUTE,
	cutsAnswers: 10 * MINUTE,
	garbage: 5 * MINUTE,
	dropsChannels: 20 * MINUTE,
	noPongs: 10 * MINUTE,
	fullDisk: 8 * MINUTE,
	clockJump: 30 * MINUTE,
	workflowGone: 20 * MINUTE,
	planFrozen: 2 * HOUR,
	planBack: HOUR,
	planTooMany: HOUR,
	planGarbage: HOUR,
	badSettings: 30 * MINUTE,
	kill: MINUTE,
	powerCut: 5 * MINUTE,
	nightOff: 9 * HOUR,
	weekendOff: 2 * DAY,
	restart: 20 * SECOND,
	suspend: 3 * HOUR,
	stall: 30 * SECOND,
	halfOpen: 0,
	cutMidMove: 2 * MINUTE,
	moveOnDeadLine: MINUTE,
	closed: 0,
	forgets: 0,
	workflowChanged: 0,
	revoked: 0,
	floodOfMoves: 0,
	floodOfNotifications: 0,
	bigNotification: 0,
	workflowSet: 0,
	reconnect: 0,
	lease: 0,
	cadence: 0,
	newKey: 0,
	newPlan: 0,
	newPlanLater: 0,
	pairAgain: 0,
	consumerRestart: 0,
	provisionAgain: 0,
	revokedThrice: 3 * MINUTE,
	sentTwice: 0,
} as const;
/** Of a bad disk; drawn apart, so that the other lives stay as they are. */
const DISK_DURATIONS = {
	badReads: 20 * MINUTE,
	badWrites: 20 * MINUTE,
	badFlushes: 20 * MINUTE,
	slowFlushes: 20 * MINUTE,
	lyingFlushes: 2 * HOUR,
	rot: 0,
	rottenState: MINUTE,
	rolledBack: HOUR,
	crashLoop: 2 * MINUTE,
	applicationAway: DAY,
} as const;
const RARE_DURATIONS = { olderVersion: HOUR, fillingDisk: 20 * MINUTE, imaged: HOUR } as const;
export type FaultKind = keyof typeof DURATIONS | keyof typeof DISK_DURATIONS | keyof typeof RARE_DURATIONS;
const FAULT_KINDS = Object.keys(DURATIONS) as readonly FaultKind[];
const DISK_KINDS = Object.keys(DISK_DURATIONS) as readonly FaultKind[];

export function scheduleOf(seed: number, traits: Traits, lengthMs: number): Fault[] {
	const faults: Fault[] = [];
	function draw(chance: Chance, kinds: readonly FaultKind[], everyMs: number): void {
		for (const { fromMs, calmMs } of cyclesOf(seed, lengthMs))
			for (let atMs = fromMs; ; ) {
				atMs += chance.wait(everyMs) + 1000;
				if (atMs >= calmMs) break;
				const kind = chance.pick(...kinds);
				const lastsMs = Math.round(
					{ ...DURATIONS, ...DISK_DURATIONS, ...RARE_DURATIONS }[kind] * (0.1 + 1.9 * chance()),
				);
				const endMs = Math.min(atMs + lastsMs, calmMs);
				faults.push({ number: faults.length, kind, atMs, endMs, seed: chance.whole(0, 2 ** 30) });
			}
	}
	draw(chanceOf(seed * 104_729 + 1), FAULT_KINDS, traits.faultEveryMs);
	if (traits.hasBadDisk) draw(chanceOf(seed * 104_759 + 5), DISK_KINDS, 2 * HOUR);
	if (traits.befalls.length > 0) draw(chanceOf(seed * 104_761 + 9), traits.befalls, 6 * HOUR);
	return faults.sort((one, other) => one.atMs - other.atMs);
}

/** Short trouble that a device with a good credential has to be over soon after it has ended. */
const SHORT: readonly FaultKind[] = ['says401', 'says403', 'revokedThrice', 'forgets', 'closed', 'kill'];
/** The longest that is short: after 10 to 15 minutes of refusals a person is asked. */
const SHORT_MS = 9 * MINUTE;
/** How soon. */
export const SOON_MS = 12 * MINUTE;

/** Which of the faults are short trouble that comes alone: nothing else happens for a while. */
export function aloneAndShort(faults: readonly Fault[], { credential }: Traits): readonly Fault[] {
	if (credential === 'code') return [];
	return faults.filter(({ kind, atMs, endMs }, at) => {
		const isAlone =
			(faults[at - 1]?.endMs ?? 0) < atMs - 90 * MINUTE &&
			(faults[at + 1]?.atMs ?? Number.POSITIVE_INFINITY) > endMs + SOON_MS + MINUTE;
		return (
			isAlone &&
			SHORT.includes(kind) &&
			endMs - atMs < SHORT_MS &&
			faults.slice(0, at).every((before) => before.endMs < atMs - 90 * MINUTE)
		);
	});
}

export interface Victim {
	readonly time: Time;
	readonly device: Device;
	readonly service: Service;
	readonly traits: Traits;
	/** Codes that a person brings. */
	pair(replace: boolean): void;
	askWorkflow(workflowId: string): void;
	publish(plan: PublishedPlan): void;
}

const LINES: Partial<Record<FaultKind, Line>> = {
	lineRefused: 'refused',
	noNames: 'dns',
	hole: 'hole',
	shortHole: 'hole',
	resets: 'reset',
	badCertificate: 'badCertificate',
	portal: 'portal',
};
const MODES: readonly string[] = [
	'busy503',
	'tooMany429',
	'broken500',
	'says401',
	'says403',
	'says404',
	'hangs',
	'slow',
	'losesAnswers',
	'cutsAnswers',
	'garbage',
	'dropsChannels',
] satisfies Mode[];
const DISK_FAULTS: Partial<Record<FaultKind, DiskFault>> = {
	badReads: 'reads',
	badWrites: 'writes',
	badFlushes: 'flushes',
	slowFlushes: 'slow',
	lyingFlushes: 'lies',
};
const CLOSE_CODES = [1000, 1001, 1006, 1008, 1011, 1012, 1013, 4401, 4403, 4409];

/** Does it. */
export function strike({ kind, atMs, endMs, seed }: Fault, victim: Victim) {
	const { time, device, service, traits } = victim;
	const chance = chanceOf(seed);
	const lastsMs = endMs - atMs;
	const atEnd = (run: () => void) => time.after(lastsMs, run);
	const agent = device.agent;
	const workflowId = chance.pick(...WORKFLOWS);
	const line = LINES[kind];
	if (line) {
		service.setLine(line, line !== 'hole' && chance.is(0.8));
		atEnd(() => service.setLine('up', false));
		return;
	}
	if (MODES.includes(kind)) {
		service.mode = kind as Mode;
		service.retryAfterSeconds = chance.pick(0, 0, 1, 20, 600, 3600);
		service.dropAfterMs = chance.pick(200, 2000, 5000, 30_000, 70_000);
		service.dropCode = chance.pick(1000, 1001, 1006, 1008, 1011, 1012);
		if (chance.is(0.6)) service.endSessions(chance.pick(1006, 1001, 1012, 1011));
		atEnd(() => {
			if (service.mode === kind) service.mode = 'well';
		});
		return;
	}
	const off = (isPowerCut: boolean) => {
		device.off(isPowerCut);
		atEnd(() => boot(victim, chance.is(0.5)));
	};
	const fails = DISK_FAULTS[kind];
	if (fails) {
		device.disk.fault = fails === 'reads' && chance.is(0.5) ? 'sector' : fails;
		device.disk.badSector = chance.whole(0, 8);
		return atEnd(() => device.disk.settle());
	}
	switch (kind) {
		case 'rot': {
			const files = device.files().filter((name) => name.endsWith('.log'));
			if (files.length > 0) device.disk.rot(chance.pick(...files));
			return;
		}
		case 'rottenState': {
			const files = device.files().filter((name) => /\/state\.json(\.bak)?$/.test(name));
			if (files.length < 2) return;
			off(false);
			return device.disk.rot(chance.pick(...files));
		}
		case 'rolledBack': {
			const name = chance.pick(...device.files().filter((each) => !each.endsWith('.new')));
			const bytes = device.disk.files.get(name)?.bytes;
			return atEnd(() => {
				const node = device.disk.files.get(name);
				if (!node || !bytes || !time.machine) return;
				device.off(false);
				node.bytes = node.flushed = bytes;
				boot(victim, true);
			});
		}
		case 'crashLoop':
			for (let afterMs = 0; afterMs < lastsMs; afterMs += chance.whole(50, 20_000))
				time.after(afterMs, () => {
					device.off(false);
					boot(victim, true);
				});
			return;
		case 'applicationAway': {
			const name = chance.pick(...AWAY);
			agent?.events.join(name);
			return atEnd(() => {
				const files = device.files().filter((each) => each.includes('/events-'));
				if (chance.is(0.5)) for (const each of files) device.disk.rot(each);
				device.comeBack(name);
			});
		}
		case 'fillingDisk':
			// By the files of other programs.
			device.disk.capacity = device.disk.used() + chance.whole(0, 4096);
			victim.askWorkflow(workflowId);
			return atEnd(() => {
				device.off(false);
				device.disk.capacity = Number.POSITIVE_INFINITY;
				boot(victim, true);
			});
		case 'imaged': {
			if (device.isCopy) return;
			const putBack = device.disk.image();
			// A copy of its disk in another machine, while this one is off.
			device.off(false);
			device.serial = OTHER_SERIAL;
			boot(victim, true);
			return atEnd(() => {
				device.off(false);
				putBack();
				device.serial = SERIAL;
				boot(victim, true);
			});
		}
		case 'olderVersion':
			return device.stop(20_000, () => {
				if (time.machine) return;
				device.leaveAsOlder(Array.from({ length: chance.whole(1, 5) }, () => service.notify()));
				time.after(lastsMs, () => boot(victim, true));
			});
		case 'noPongs':
			service.answersPings = false;
			return atEnd(() => {
				service.answersPings = true;
			});
		case 'fullDisk':
			device.disk.isFull = true;
			return atEnd(() => {
				device.disk.isFull = false;
			});
		case 'clockJump':
			time.setSkew(
				chance.pick(-5 * MINUTE, 10 * MINUTE, -3 * HOUR, 5 * HOUR, -40 * DAY, 40 * DAY, -time.trueMs() + 1e6),
			);
			return atEnd(() => time.setSkew(0));
		case 'workflowGone':
			service.workflows.delete('wf-c');
			return atEnd(() => service.workflows.add('wf-c'));
		case 'planFrozen':
		case 'planBack':
		case 'planTooMany':
		case 'planGarbage':
			service.planHost = (
				{ planFrozen: 'frozen', planBack: 'back', planTooMany: 'tooMany', planGarbage: 'garbage' } as const
			)[kind];
			return atEnd(() => {
				service.planHost = 'well';
			});
		case 'badSettings':
			device.spoilSettings();
			device.reload();
			return atEnd(() => {
				device.mendSettings();
				device.reload();
			});
		case 'kill':
			return off(false);
		case 'powerCut':
		case 'nightOff':
		case 'weekendOff':
			return off(true);
		case 'restart':
			return device.stop(20_000, () => time.after(lastsMs, () => boot(victim, true)));
		case 'suspend':
			if (!time.machine?.isFrozen) time.machine?.suspend(lastsMs);
			return;
		case 'stall':
			if (!time.machine?.isFrozen) time.machine?.stall(lastsMs);
			return;
		case 'halfOpen':
			for (const session of service.sessions) session.die();
			return;
		case 'cutMidMove':
			victim.askWorkflow(workflowId);
			return time.after(chance.whole(0, 1500), () => off(chance.is(0.7)));
		case 'moveOnDeadLine':
			for (const session of service.sessions) session.die();
			for (const afterMs of [2000, 5000, 9000]) time.after(afterMs, () => service.notify());
			return time.after(chance.whole(5000, 40_000), () => {
				const live = device.agent?.status().workflow.live;
				victim.askWorkflow(live === workflowId ? (live === 'wf-a' ? 'wf-b' : 'wf-a') : workflowId);
			});
		case 'closed':
			return service.endSessions(chance.pick(...CLOSE_CODES));
		case 'forgets':
			service.forget();
			return service.endSessions(chance.pick(1012, 1006, 1008));
		case 'workflowChanged':
			return service.message({ type: 'workflow.changed', id: `m${seed}-${atMs}`, workflowId });
		case 'revoked':
			if (chance.is(0.5)) service.forget();
			return service.message({ type: 'connection.revoked', id: `r${seed}-${atMs}` });
		case 'revokedThrice':
			for (const afterMs of [0, 40 * SECOND, 80 * SECOND])
				time.after(afterMs, () => {
					service.forget();
					service.endSessions(1008);
				});
			return;
		case 'sentTwice':
			service.notify();
			service.repeat();
			return;
		case 'floodOfMoves':
			// Where answers are lost as well, each registration may have reached the service.
			if (chance.is(0.3)) {
				service.mode = 'losesAnswers';
				time.after(MINUTE, () => {
					if (service.mode === 'losesAnswers') service.mode = 'well';
				});
			}
			for (let sent = 0; sent < 60; sent += 1) {
				const to = chance.pick(...WORKFLOWS);
				time.after(sent * 400, () =>
					service.message({ type: 'workflow.changed', id: `f${atMs}-${sent}`, workflowId: to }),
				);
			}
			return;
		case 'floodOfNotifications':
			for (let sent = 0; sent < 150; sent += 1) time.after(sent * 20, () => service.notify());
			return;
		case 'bigNotification':
			if (chance.is(0.3)) return service.message({ type: 'too.large', padding: 'x'.repeat(1_200_000) });
			return service.notify(chance.pick(10_000, 300_000));
		case 'workflowSet':
			return victim.askWorkflow(workflowId);
		case 'reconnect':
			return agent?.reconnect();
		case 'lease':
			agent?.leases.hold(`app-${chance.whole(0, 2)}`, chance.whole(1, 590));
			return;
		case 'cadence':
			if (traits.credential === 'provisioned') return;
			device.changeSettings({ heartbeatCadence: chance.pick(traits.cadenceSeconds, traits.cadenceSeconds * 2) });
			return device.reload();
		case 'newKey': {
			if (traits.credential !== 'apiKey') return;
			const key = `key-of-this-life-${seed}`;
			service.apiKeys.add(key);
			device.replaceKey(key);
			device.reload();
			return time.after(HOUR, () => {
				if (service.apiKeys.size > 1) service.apiKeys.delete(service.apiKeys.values().next().value ?? '');
			});
		}
		case 'newPlan':
		case 'newPlanLater': {
			const before = service.plan;
			const [from, to] = chance.pick<[string, string]>(['wf-a', 'wf-b'], ['wf-b', 'wf-c'], ['wf-c', 'wf-a']);
			const laterMs = kind === 'newPlan' ? -HOUR : chance.whole(10 * MINUTE, 30 * HOUR);
			const startAtMs = time.trueMs() + laterMs;
			return victim.publish({ ...planOf((before?.revision ?? 0) + 1, from, to, startAtMs), publishedAtMs: time.nowMs });
		}
		case 'pairAgain':
			if (traits.credential === 'code') victim.pair(true);
			return;
		case 'consumerRestart':
			return device.restartConsumer();
		case 'provisionAgain':
			if (traits.credential !== 'provisioned') return;
			return device.bring(provisionOf(traits, chance.pick(...WORKFLOWS)));
	}
}

export function planOf(
	revision: number,
	from: string,
	to: string,
	startAtMs: number,
): Omit<PublishedPlan, 'publishedAtMs'> {
	const rings = [{ percent: 100, startAt: new Date(startAtMs).toISOString() }];
	const defaults = { workflowId: from, rollout: { to: { workflowId: to }, rings } };
	const text = JSON.stringify({ format: 'idv-fleet-plan/1', revision, spreadSeconds: 60, defaults });
	return { revision, text, from, to, startAtMs };
}

export function provisionOf(traits: Traits, workflowId: string): object {
	const settings = { heartbeatCadence: traits.cadenceSeconds };
	return { baseUrl: 'https://service.test', workflowId, apiKey: 'key-of-this-life-0', replace: true, settings };
}

/** Power again; a machine without a battery for its clock begins with a wrong one, until the network tells the time. */
function boot({ time, device, traits }: Victim, isWarm: boolean): void {
	if (time.machine) return;
	if (!traits.clockBattery && !isWarm && time.skewMs === 0) {
		const chance = chanceOf(Math.floor(time.nowMs));
		const skewMs = chance.is(0.3) ? -time.trueMs() + 1e6 : -(10 * MINUTE + chance.whole(0, 20 * HOUR));
		time.setSkew(skewMs);
		time.after(20 * SECOND + chance.whole(0, 100 * SECOND), () => {
			if (time.skewMs === Math.round(skewMs)) time.setSkew(0);
		});
	}
	device.boot();
}
