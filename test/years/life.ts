/** One life of one device, from a seed: plays its faults, judges it after each time of rest, and keeps a digest of all that was seen. */
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { chanceOf } from './chance.ts';
import { createDevice } from './device.ts';
import {
	AWAY,
	aloneAndShort,
	type Cycle,
	cyclesOf,
	type Fault,
	provisionOf,
	RECOVERY_MS,
	SOON_MS,
	scheduleOf,
	strike,
	type Victim,
} from './faults.ts';
import { createInvariants, type Violation } from './invariants.ts';
import type { Observed } from './observed.ts';
import { createService, type PublishedPlan } from './service.ts';
import { createTime } from './time.ts';
import { type Traits, traitsOf } from './traits.ts';

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
export const DAY = 24 * HOUR;
export const YEAR = 365 * DAY;

/** `workflow.maxDeferSeconds` as it is by default. */
const MAX_DEFER_MS = 15 * MINUTE;

export interface LifeOptions {
	readonly seed: number;
	readonly lengthMs: number;
	/** Leaves out all before the first time of trouble that begins after this; default 0. */
	readonly fromMs?: number | undefined;
	/** Only these faults of the schedule, by their numbers; default all. */
	readonly only?: readonly number[] | undefined;
	/** Ends with the first violation of this invariant; of any when it is `any`. */
	readonly until?: string | undefined;
	readonly trace?: ((line: string) => void) | undefined;
}

export interface LifeResult {
	readonly seed: number;
	readonly traits: Traits;
	readonly violations: readonly Violation[];
	/** Of everything that was seen, with its times. */
	readonly digest: string;
	readonly livedMs: number;
	readonly events: number;
	/** The faults that were lived: without those that were left out. */
	readonly schedule: readonly Fault[];
	readonly counts: Readonly<Record<string, number>>;
}

/** A running hash of texts: the same on every machine. */
function createDigest() {
	let high = 0x811c9dc5;
	let low = 0x01000193;
	return {
		add(text: string, ms: number) {
			high = Math.imul(high ^ ms, 0x85ebca6b);
			for (let at = 0; at < text.length; at += 1) low = Math.imul(low ^ text.charCodeAt(at), 0x01000193);
			high = (high ^ (low >>> 13)) | 0;
		},
		text: () => `${(high >>> 0).toString(16).padStart(8, '0')}${(low >>> 0).toString(16).padStart(8, '0')}`,
	};
}

setFlagsFromString('--expose-gc');
const collectGarbage = runInNewContext('gc') as () => void;
/** What is in use. */
function heapBytes(): number {
	collectGarbage();
	return process.memoryUsage().heapUsed;
}

export function live(options: LifeOptions): LifeResult {
	const { seed, lengthMs, fromMs = 0, trace } = options;
	const traits = traitsOf(seed);
	const schedule = scheduleOf(seed, traits, lengthMs).filter(
		({ number, atMs }) => atMs >= fromMs && (!options.only || options.only.includes(number)),
	);
	const counts: Record<string, number> = {};
	const digest = createDigest();
	const invariants = createInvariants(traits);
	const onError = (error: unknown) => observe({ type: 'error', text: String((error as Error)?.stack ?? error) });
	const time = createTime(traits.startMs, onError, fromMs);
	function observe(observed: Observed): void {
		const counted = countedAs(observed);
		counts[counted] = (counts[counted] ?? 0) + 1;
		if (observed.type !== 'memory')
			digest.add(observed.type === 'heartbeat' ? 'heartbeat' : digestible(observed), Math.floor(time.nowMs));
		trace?.(`${(time.nowMs / 1000).toFixed(3).padStart(14)}  ${shown(observed)}`);
		invariants.see(observed, time);
	}
	const chance = chanceOf(seed * 17 + 3);
	const service = createService({ time, chance, traits, observe });
	const { settings, consumerMs } = traits;
	const device = createDevice({ time, chance, service, observe, settings, consumerMs, usesConsumer: true });
	const heapBefore = heapBytes();
	const restoreGlobals = leaveNoRealTime(time, chance);
	process.on('unhandledRejection', onError);

	const victim: Victim = {
		time,
		device,
		service,
		traits,
		pair,
		askWorkflow(workflowId) {
			observe({ type: 'workflowAsked', workflowId });
			device.agent?.setWorkflow(workflowId).catch(() => {});
		},
		publish(plan: PublishedPlan) {
			if (!traits.followsPlan) return;
			service.earlierPlan = service.plan;
			service.plan = plan;
			observe({ type: 'planPublished', plan });
		},
	};
	function pair(replace: boolean): void {
		const { agent } = device;
		if (!agent) return;
		const beganMs = time.nowMs;
		const wanted = agent.status().workflow.wanted;
		const settled = (outcome: string) =>
			observe({ type: 'paired', atMs: time.nowMs, outcome, withinMs: time.nowMs - beganMs });
		agent.pair({ code: service.makeCode(wanted ?? 'wf-a'), replace }).then(
			(result) => settled(result.online ? 'online' : 'saved'),
			(error: { code?: string }) => settled(error.code ?? String(error)),
		);
	}

	function begin(): void {
		if (traits.credential === 'provisioned') device.bring(provisionOf(traits, 'wf-a'));
		device.boot();
		time.runUntil(fromMs + MINUTE);
		if (traits.credential === 'code') pair(false);
		else if (traits.credential !== 'provisioned') device.agent?.setWorkflow('wf-a').catch(() => {});
		time.settle();
		// Of a chance of its own: faults that are left out move no notification.
		const notifying = chanceOf(seed * 29 + 11);
		let notifyAtMs = 2 * MINUTE;
		const notifyNext = () => {
			do notifyAtMs += notifying.wait(traits.notifyEveryMs) + 1000;
			while (notifyAtMs < fromMs + 2 * MINUTE);
			time.after(notifyAtMs - time.nowMs, () => {
				service.notify();
				notifyNext();
			});
		};
		notifyNext();
		for (const fault of schedule)
			time.after(fault.atMs - time.nowMs, () => {
				observe({ type: 'fault', kind: fault.kind, atMs: time.nowMs });
				strike(fault, victim);
			});
		for (const { kind, endMs } of aloneAndShort(schedule, traits)) {
			const look = (waits: number) => {
				const status = device.agent?.status();
				// A Connection of unknown life may have ended just now.
				if (status && status.state !== 'online' && waits > 0) time.after(SECOND, () => look(waits - 1));
				else if (status) observe({ type: 'shortTrouble', kind, status });
			};
			time.after(endMs + SOON_MS - time.nowMs, () => look(10));
		}
	}

	/** What only a person can do. @returns whether there was anything. */
	function help(): boolean {
		const { agent } = device;
		// A device that has nothing left but a Connection which has ended needs a new code.
		if (traits.credential === 'code') pair(true);
		// A disk that lied has lost each copy of the state, and with it the workflow that a person had set.
		else if (traits.hasBadDisk && agent?.status().workflow.wanted === null) agent.setWorkflow('wf-a').catch(() => {});
		else return false;
		time.settle();
		return true;
	}

	/** Nothing is wrong any more. */
	function calm(): void {
		service.setLine('up', false);
		service.mode = 'well';
		service.planHost = 'well';
		service.answersPings = true;
		service.workflows.add('wf-c');
		device.disk.isFull = false;
		device.disk.settle();
		// A note that one of them had gone may be lost.
		if (traits.hasBadDisk) for (const name of AWAY) time.after(MINUTE, () => device.comeBack(name));
		time.setSkew(0);
		device.mendSettings();
		device.boot();
		device.reload();
		observe({ type: 'calm', atMs: time.nowMs });
	}

	function rest({ calmMs, judgedMs }: Cycle): void {
		time.runUntil(calmMs);
		calm();
		time.settle();
		let backAfterMs: number | null = null;
		let helpedByPerson = false;
		const isBack = () => {
			const status = device.agent?.status();
			if (status) observe({ type: 'status', status, atMs: time.nowMs });
			return status?.state === 'online';
		};
		for (
			let atMs = calmMs;
			atMs < calmMs + RECOVERY_MS;
			atMs += atMs < calmMs + 5 * MINUTE ? 20 * SECOND : 3 * MINUTE
		) {
			time.runUntil(atMs);
			if (backAfterMs === null && isBack()) backAfterMs = atMs - calmMs;
			if (backAfterMs === null && !helpedByPerson && atMs > calmMs + 45 * MINUTE) helpedByPerson = help();
		}
		time.runUntil(calmMs + RECOVERY_MS);
		const before = { writes: device.disk.writes, counts: { ...counts } };
		time.runUntil(judgedMs - 20 * MINUTE);
		const stillWrites = device.disk.writes - before.writes;
		const since = (type: string) => (counts[type] ?? 0) - (before.counts[type] ?? 0);
		const still = {
			stillWrites,
			stillRegistrations: since('registration'),
			stillOutages: since('channelGone'),
			stillOfflines: since('offline'),
			stillEvents: since('entry'),
		};
		time.runUntil(judgedMs - MINUTE);
		// A Connection of unknown life may have ended just now: what is sent meanwhile lies in the gap.
		for (let waits = 0; waits < 20 && service.sessions.size === 0; waits += 1) time.runUntil(time.nowMs + SECOND);
		for (let sent = 0; sent < 2; sent += 1) service.notify();
		time.settle();
		time.runUntil(judgedMs);
		judge({ backAfterMs, helpedByPerson, ...still });
	}

	/** An application that never gives its lease back holds a move up, as long as it may. */
	function keepBusy({ quietUntilMs }: Cycle): void {
		const { credential, followsPlan, mayRegisterAgain } = traits;
		const isFree = !followsPlan && credential !== 'provisioned' && (credential !== 'code' || mayRegisterAgain);
		if (!isFree || holdsNothing() || time.nowMs + 2 * MAX_DEFER_MS > quietUntilMs) return;
		const live = device.agent?.status().workflow.live;
		const workflowId = live === 'wf-a' ? 'wf-b' : 'wf-a';
		if (!live) return;
		const look = (phase: 'asked' | 'held' | 'over') => {
			const status = device.agent?.status();
			if (status) observe({ type: 'leased', phase, workflowId, status });
		};
		for (let afterMs = 0; afterMs < MAX_DEFER_MS + 5 * MINUTE; afterMs += 5 * MINUTE)
			time.after(afterMs, () => device.agent?.leases.hold('endless', 590));
		time.after(SECOND, () => victim.askWorkflow(workflowId));
		time.after(MINUTE, () => look('asked'));
		time.after(MAX_DEFER_MS - MINUTE, () => look('held'));
		time.after(MAX_DEFER_MS + 3 * MINUTE, () => look('over'));
		time.runUntil(time.nowMs + 2 * MAX_DEFER_MS);
	}

	function judge(
		found: { backAfterMs: number | null; helpedByPerson: boolean } & Record<
			`still${'Writes' | 'Registrations' | 'Outages' | 'Offlines' | 'Events'}`,
			number
		>,
	) {
		const { agent } = device;
		if (!agent) return observe({ type: 'error', text: 'the agent does not run at the end of a rest' });
		time.runUntil(time.nowMs + 5000);
		for (let waits = 0; ; waits += 1) {
			// One that reads soon has done so because it was told.
			if (traits.consumerMs > 4000) device.read();
			time.settle();
			// What was acknowledged goes with the next turn of the store.
			time.runUntil(time.nowMs + 100);
			// A service that ends the old channel at a renewal may have done so just now.
			if (agent.status().state === 'online' || waits === 10) break;
			time.runUntil(time.nowMs + SECOND);
		}
		const status = agent.status();
		observe({ type: 'status', status, atMs: time.nowMs });
		const [lastSent, lastConsumed] = invariants.lastNotifications(time.nowMs);
		const quiet = {
			...found,
			status,
			hasSession: service.sessions.size > 0,
			holdsNothing: holdsNothing(),
			demanded: demanded(),
			timers: time.machine?.timers() ?? 0,
			eventsLeft: agent.events.count,
			files: device.files().length,
			bytes: device.stateBytes(),
			lastSent,
			lastConsumed,
		};
		observe({ type: 'judged', atMs: time.nowMs, quiet });
	}

	/** Whether only a person can help: what the device has saved is of no use to the service, and it has nothing else. */
	function holdsNothing(): boolean {
		return traits.credential === 'code' && !device.savedTokens().some((token) => service.valid(token));
	}

	/** Half an hour around a move it may be either. */
	function demanded(): string | null {
		const { plan } = service;
		if (!traits.followsPlan || !plan || time.nowMs - plan.publishedAtMs < 3 * HOUR) return null;
		const sinceMs = time.trueMs() - plan.startAtMs;
		// A move that was made too early by a clock that was some hours fast holds; days are not believed.
		const wasFast = schedule.some(({ kind, atMs }) => kind === 'clockJump' && atMs < time.nowMs);
		if (sinceMs < 0 && sinceMs > -6 * HOUR && wasFast) return null;
		return Math.abs(sinceMs) < 30 * MINUTE ? null : sinceMs > 0 ? plan.to : plan.from;
	}

	try {
		begin();
		const isOver = () => {
			const { until } = options;
			return until !== undefined && invariants.violations.some(({ name }) => until === 'any' || name === until);
		};
		for (const cycle of cyclesOf(seed, lengthMs).filter((one) => one.fromMs >= fromMs)) {
			rest(cycle);
			if (isOver()) break;
			keepBusy(cycle);
		}
		if (!isOver()) {
			observe({ type: 'memory', bytes: heapBytes() - heapBefore });
			device.stop(10_000, () => {});
			time.runUntil(time.nowMs + 15_000);
		}
	} catch (error) {
		observe({ type: 'error', text: String((error as Error)?.stack ?? error) });
	} finally {
		process.off('unhandledRejection', onError);
		restoreGlobals();
		device.end();
	}
	const { nowMs: livedMs, events } = time;
	const { violations } = invariants;
	return { seed, traits, violations, digest: digest.text(), livedMs, events, schedule, counts };
}

function countedAs(observed: Observed): string {
	if (observed.type === 'hook' && observed.hook === 'onOffline') return 'offline';
	// An attempt on the old Connection that the new one has overtaken was no channel yet.
	return observed.type === 'socketGone' && observed.session !== null ? 'channelGone' : observed.type;
}

/** What of an observation is compared between two runs: all but what depends on the machine. */
function digestible(observed: Observed): string {
	switch (observed.type) {
		case 'line':
			return observed.text;
		case 'saved':
			return observed.text;
		case 'hook':
			return `${observed.hook}${observed.input}`;
		case 'entry':
			return `${observed.id}${observed.kind}${observed.text.length}`;
		case 'status':
			return observed.status.sentence;
		case 'registration':
			return `${observed.scheme}${observed.credential}${observed.workflowId}`;
		case 'judged':
			return JSON.stringify(observed.quiet);
		default:
			return observed.type;
	}
}

function shown(observed: Observed): string {
	if (observed.type === 'status') return `status  ${observed.status.sentence}`;
	if (observed.type === 'line') return `line  ${observed.text.trim()}`;
	const { type, atMs: _, ...rest } = observed as Observed & { atMs?: number };
	return `${type}  ${JSON.stringify(rest).slice(0, 300)}`;
}

/** Whatever asks the process for time or chance gets the life's own: nothing of the machine may decide a life. */
function leaveNoRealTime(time: ReturnType<typeof createTime>, chance: () => number): () => void {
	const { Date: RealDate } = globalThis;
	const realNow = performance.now;
	const realRandom = Math.random;
	class LifeDate extends RealDate {
		constructor(...given: [] | [number]) {
			if (given.length === 0) super(time.wallMs());
			else super(...given);
		}
		static override now = () => time.wallMs();
	}
	globalThis.Date = LifeDate as DateConstructor;
	performance.now = () => time.nowMs;
	Math.random = chance;
	return () => {
		globalThis.Date = RealDate;
		performance.now = realNow;
		Math.random = realRandom;
	};
}
