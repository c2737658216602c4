/** Looks at the new version until it is proved or taken back, also after a reboot. Runs as root from a copy of the version before. */
import type { Clock } from '../base/clock.edge.ts';
import type { Status } from '../protocol/local-api.ts';
import { countRestarts, type Stretch, stretchAfter } from './health.ts';
import { isToBlame, judge, LAST_TRY_MS, type Look, MAX_WAIT_MS, PATIENCE } from './judge.ts';
import type { UpdateKeep } from './keep.edge.ts';
import { MAX_LOG_LINES, type Trial, withTakenBack } from './record.ts';
import type * as system from './system.edge.ts';

export interface JudgeParts {
	readonly keep: UpdateKeep;
	readonly system: Pick<
		typeof system,
		| 'cleanCache'
		| 'finishConfiguring'
		| 'installFile'
		| 'installVersion'
		| 'isPackagingBusy'
		| 'readBootId'
		| 'readInstalled'
		| 'readLog'
		| 'readUnit'
		| 'tellSystemd'
	>;
	readonly clock: Pick<Clock, 'monotonicMs' | 'wallMs' | 'schedule'>;
	/** The status of the running agent; `null` where it does not answer. */
	readonly askStatus: () => Promise<TrialStatus | null>;
	/** Has the running agent try again now, instead of waiting. Never rejects. */
	readonly askToTryNow: () => Promise<void>;
	/** Whether this old version reaches the service now. */
	readonly getsThrough: () => Promise<boolean>;
	/** Whether a heartbeat is due within `judgeSeconds`, and the answer to a ping. */
	readonly isDue: () => Promise<{ readonly heartbeat: boolean; readonly answer: boolean }>;
	readonly judgeSeconds: number;
	/** Leaves of foreign words in lines of the log only the shape. */
	readonly shapeAll: (lines: readonly string[]) => Promise<string[]>;
	readonly say: (line: string) => void;
}

/** As much of a status as is used; an older version leaves out what it does not know. */
export interface TrialStatus extends Pick<Status, 'state'> {
	readonly channel?: Partial<Pick<Status['channel'], 'lastHeartbeatAt' | 'lastAnswerAt'>>;
}

/** How the trial ended; `none`: there was none. */
export type TrialEnd = 'kept' | 'wentBack' | 'none';

/** dpkg's own status when it could do nothing, such as while another has its lock. */
const DPKG_BUSY = 2;
/** Between two tries to go back, in milliseconds; doubled up to the last. */
const AGAIN_MS = [5_000, 300_000] as const;

/** Resolves when nothing is left to judge. */
export async function runJudge(parts: JudgeParts): Promise<TrialEnd> {
	const { keep, system, clock, say } = parts;
	let trial = await keep.trial();
	if (!trial) {
		await keep.end();
		return 'none';
	}
	const known = trial;
	const pause = (ms: number) => new Promise<void>((resolve) => void clock.schedule(ms, resolve));
	if (trial.phase === 'goingBack') return goBack(trial);
	say(`Version ${known.to} is tried; before it was ${known.from}, ${known.before}.`);
	const limitMs = parts.judgeSeconds * 1000;
	let seenAtMs: number | null = null;
	let beganAtMs = 0;
	let awaySinceMs = 0;
	let silentSinceMs: number | null = null;
	let stretch: Stretch | null = null;
	let triesNow = false;
	for (;;) {
		const look = await takeLook();
		const verdict = judge({ ...trial, judgeSeconds: parts.judgeSeconds }, look);
		if (verdict.type === 'wait') await pause(verdict.forMs);
		else if (verdict.type === 'tryLine') {
			if (await isLineToBlame(trial, look)) continue;
			return goBack({ ...trial, fault: 'not-online' });
		} else if (verdict.type === 'finish') {
			const { status, text } = await system.finishConfiguring();
			say(`dpkg was cut off: ${lastLine(text)}`);
			const isOld = (await system.readInstalled())?.version === trial.from;
			if (isOld || status === DPKG_BUSY) await pause(AGAIN_MS[0]);
			else {
				trial = { ...trial, wasFinished: true };
				await keep.saveTrial(trial);
			}
		} else if (verdict.type === 'goBack') return goBack({ ...trial, fault: verdict.fault });
		else {
			if (verdict.type === 'keep') {
				say(`Version ${trial.to} works.`);
				await keep.saveOutcomes({ ...(await keep.outcomes()), kept: trial.to });
			}
			await end();
			return verdict.type === 'keep' ? 'kept' : 'none';
		}
	}

	async function takeLook(): Promise<Look> {
		const nowMs = clock.monotonicMs();
		const isBusy = await system.isPackagingBusy();
		const installed = await system.readInstalled();
		const isThere = !isBusy && installed?.state === 'whole' && installed.version !== known.from;
		if (isThere && (seenAtMs === null || installed.version !== trial?.to)) await begin(nowMs, installed.version);
		const [unit, status] = await Promise.all([system.readUnit(), parts.askStatus()]);
		// The new version was not started yet: what answers is the one before.
		const isOld = unit.runId !== null && unit.runId === known.oldRun;
		const isReady = unit.isReady && !isOld;
		const state = isReady ? (status?.state ?? null) : null;
		// Also while apt is at work again, with other packages.
		const hasCome = seenAtMs !== null;
		if (trial) await keepChanged({ ...trial, ...countRestarts(trial, unit.restarts, isOld || !hasCome) });
		stretch = stretchAfter(stretch, { atMs: nowMs, runId: hasCome && isReady ? unit.runId : null, state }, limitMs);
		silentSinceMs = isThere && (!isReady || state === null) ? (silentSinceMs ?? nowMs) : null;
		if (state === 'online') awaySinceMs = nowMs;
		const since = (ms: number | null) => (ms === null ? 0 : nowMs - ms);
		const healthyMs = state === 'online' ? since(stretch?.sinceMs ?? null) : 0;
		const hasStood = state !== null && seenAtMs !== null && since(beganAtMs) >= limitMs;
		if (hasStood && trial && trial.boots > 1) await keepChanged({ ...trial, boots: 1 });
		return {
			elapsedMs: since(seenAtMs),
			awayMs: seenAtMs === null ? 0 : since(awaySinceMs),
			isBusy,
			installed,
			wasFinished: trial?.wasFinished ?? false,
			isReady,
			restarts: trial?.restarts ?? 0,
			boots: trial?.boots ?? 0,
			state,
			healthyMs,
			hasBeaten: healthyMs >= limitMs && (await hasBeaten(status)),
			silentMs: since(silentSinceMs),
			waitedMs: trial?.waitedMs ?? 0,
		};
	}

	/** A version that does not tell when it was, such as 0.1.0, is believed. */
	async function hasBeaten(status: TrialStatus | null): Promise<boolean> {
		const due = await parts.isDue();
		const { lastHeartbeatAt, lastAnswerAt } = status?.channel ?? {};
		return !(due.heartbeat && lastHeartbeatAt === null) && !(due.answer && lastAnswerAt === null);
	}

	/** The version before tries the way itself. When it gets through, the new one has one more try, at once. */
	async function isLineToBlame(judged: Trial, { awayMs, elapsedMs }: Look): Promise<boolean> {
		const nowMs = clock.monotonicMs();
		if (judged.before === 'offline' || !(await parts.getsThrough())) {
			if (judged.waitedMs === 0) say('The version before is not online either: the service is waited for.');
			const waitedMs = judged.waitedMs + (awayMs >= limitMs ? awayMs : elapsedMs);
			await keepChanged({ ...judged, waitedMs: Math.min(MAX_WAIT_MS, waitedMs) });
			// When it is back, the version has its whole time.
			seenAtMs = nowMs;
			awaySinceMs = nowMs;
			triesNow = false;
			return true;
		}
		if (triesNow) return false;
		triesNow = true;
		say('The version before reaches the service: the new one is asked to try again now.');
		await parts.askToTryNow();
		awaySinceMs = nowMs - limitMs + Math.min(LAST_TRY_MS, limitMs);
		// Online in time, it has to stay so.
		seenAtMs = nowMs - (PATIENCE - 2) * limitMs;
		return true;
	}

	/** Written only when something has changed: a card has few writes. */
	async function keepChanged(changed: Trial): Promise<void> {
		if (JSON.stringify(changed) !== JSON.stringify(trial)) await keep.saveTrial(changed);
		trial = changed;
	}

	/** The new version is in place: its time begins, and each boot is counted. */
	async function begin(nowMs: number, version: string): Promise<void> {
		seenAtMs = nowMs;
		beganAtMs = nowMs;
		awaySinceMs = nowMs;
		silentSinceMs = null;
		stretch = null;
		triesNow = false;
		if (!trial) return;
		const bootId = await system.readBootId();
		const boots = trial.bootId === bootId ? trial.boots : trial.boots + 1;
		const counts = trial.to === version ? { restarts: trial.restarts } : { restarts: 0, waitedMs: 0 };
		const ofBoot = trial.bootId === bootId ? trial.unitRestarts : 0;
		await keepChanged({ ...trial, phase: 'judging', to: version, bootId, boots, unitRestarts: ofBoot, ...counts });
	}

	async function goBack(judged: Trial): Promise<TrialEnd> {
		const { from, to, fault } = judged;
		// apt may try again what was not the version's fault.
		const blames = isToBlame(fault);
		const log = blames ? await parts.shapeAll(await system.readLog(MAX_LOG_LINES)).catch(() => []) : [];
		await keep.saveTrial({ ...judged, phase: 'goingBack' });
		if (blames && fault !== null) {
			const at = new Date(clock.wallMs()).toISOString();
			const outcomes = withTakenBack(await keep.outcomes(), { version: to, by: from, at, fault, log });
			// Before anything else: whatever cuts this off, the version does not come again.
			await keep.saveOutcomes(outcomes).catch((error) => say(`It could not be written down: ${error}`));
		}
		if (fault === 'service-away') await keepFailed(judged);
		say(`Version ${to} is taken back (${fault}); ${from} takes its place.`);
		for (let [waitMs] = [AGAIN_MS[0] as number]; ; waitMs = Math.min(AGAIN_MS[1], waitMs * 2)) {
			if (!(await system.isPackagingBusy())) {
				const { text } = await system.installFile(keep.oldPackage);
				const now = await system.readInstalled();
				if (now?.state === 'whole' && now.version === from) break;
				say(`It did not go back yet: ${lastLine(text)}`);
				// The package may not have been whole when the power went: the repository may have it.
				const fetched = system.installVersion(from, 0, ['--allow-downgrades']);
				const { status } = await fetched.catch((error) => ({ status: 1, text: `${error}` }));
				if (status === 0) continue;
				await system.cleanCache();
				if (!(await system.isPackagingBusy())) await system.finishConfiguring();
			}
			await pause(waitMs);
		}
		await end();
		return 'wentBack';
	}

	/** What a person reads of a version that could not be judged: a plan orders it again. */
	async function keepFailed({ from, to }: Trial): Promise<void> {
		const hours = Math.round(MAX_WAIT_MS / 3_600_000);
		const message = `Version ${to} could not be judged: the service was away for ${hours} hours. ${from} took its place.`;
		const failed = { code: 'service-unreachable', message, at: new Date(clock.wallMs()).toISOString() };
		await keep.saveOutcomes({ ...(await keep.outcomes()), failed });
	}

	async function end(): Promise<void> {
		await keep.end();
		await system.tellSystemd();
	}
}

const lastLine = (text: string) => text.trim().split('\n').at(-1) ?? '';
