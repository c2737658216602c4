/** Looks at the new version until it is proved or taken back, also after a reboot. Runs as root from a copy of the version before. */
import type { Clock } from '../base/clock.edge.ts';
import type { Status } from '../protocol/local-api.ts';
import { isLineDown, judge, type Look } from './judge.ts';
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
	readonly askStatus: () => Promise<Pick<Status, 'state' | 'problem' | 'warnings'> | null>;
	/** Whether this old version reaches the service now. */
	readonly getsThrough: () => Promise<boolean>;
	readonly judgeSeconds: number;
	/** Takes the secrets of this device out of lines. */
	readonly redactAll: (lines: readonly string[]) => Promise<string[]>;
	readonly say: (line: string) => void;
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
	let seenAtMs: number | null = null;
	let beganAtMs = 0;
	let onlineSinceMs: number | null = null;
	let silentSinceMs: number | null = null;
	for (;;) {
		const look = await takeLook();
		const verdict = judge({ ...trial, judgeSeconds: parts.judgeSeconds }, look);
		if (verdict.type === 'wait') await pause(verdict.forMs);
		else if (verdict.type === 'finish') {
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
		const { restarts } = unit;
		// The new version was not started yet: what answers is the one before.
		const isOld = unit.runId !== null && unit.runId === trial?.oldRun;
		const isReady = unit.isReady && !isOld;
		const state = isReady ? (status?.state ?? null) : null;
		onlineSinceMs = state === 'online' ? (onlineSinceMs ?? nowMs) : null;
		silentSinceMs = isThere && (!isReady || state === null) ? (silentSinceMs ?? nowMs) : null;
		const since = (ms: number | null) => (ms === null ? 0 : nowMs - ms);
		const { problem = null } = status ?? {};
		const mayBlame = isThere && state !== null && state !== 'online' && problem !== null;
		const lineIsDown = mayBlame && isLineDown(problem.code, await parts.getsThrough());
		// When the line is back, the version has its whole time.
		if (lineIsDown) seenAtMs = nowMs;
		const hasStood = state !== null && seenAtMs !== null && nowMs - beganAtMs >= parts.judgeSeconds * 1000;
		if (hasStood && trial && trial.boots > 1) {
			trial = { ...trial, boots: 1 };
			await keep.saveTrial(trial);
		}
		return {
			elapsedMs: since(seenAtMs),
			isBusy,
			installed,
			wasFinished: trial?.wasFinished ?? false,
			isReady,
			// Restarts of the old version, before the new one came, are not its fault.
			restarts: isThere ? restarts : 0,
			boots: trial?.boots ?? 0,
			state,
			onlineMs: isThere ? since(onlineSinceMs) : 0,
			silentMs: since(silentSinceMs),
			isLineDown: lineIsDown,
		};
	}

	/** The new version is in place: its time begins, and each boot is counted. */
	async function begin(nowMs: number, version: string): Promise<void> {
		seenAtMs = nowMs;
		beganAtMs = nowMs;
		onlineSinceMs = null;
		silentSinceMs = null;
		const bootId = await system.readBootId();
		if (trial && (trial.bootId !== bootId || trial.to !== version || trial.phase !== 'judging')) {
			const boots = trial.bootId === bootId ? trial.boots : trial.boots + 1;
			trial = { ...trial, phase: 'judging', to: version, bootId, boots };
			await keep.saveTrial(trial);
		}
	}

	async function goBack(judged: Trial): Promise<TrialEnd> {
		const { from, to, fault } = judged;
		// An installation that was cut off says nothing about the version: apt may try it again.
		const isToBlame = fault !== 'interrupted';
		const log = isToBlame ? await parts.redactAll(await system.readLog(MAX_LOG_LINES)).catch(() => []) : [];
		await keep.saveTrial({ ...judged, phase: 'goingBack' });
		if (isToBlame && fault !== null) {
			const at = new Date(clock.wallMs()).toISOString();
			const outcomes = withTakenBack(await keep.outcomes(), { version: to, by: from, at, fault, log });
			// Before anything else: whatever cuts this off, the version does not come again.
			await keep.saveOutcomes(outcomes).catch((error) => say(`It could not be written down: ${error}`));
		}
		say(`Version ${to} is taken back (${fault}); ${from} takes its place.`);
		for (let [waitMs] = [AGAIN_MS[0] as number]; ; waitMs = Math.min(AGAIN_MS[1], waitMs * 2)) {
			if (!(await system.isPackagingBusy())) {
				const { text } = await system.installFile(keep.oldPackage);
				const now = await system.readInstalled();
				if (now?.state === 'whole' && now.version === from) break;
				say(`It did not go back yet: ${lastLine(text)}`);
				// The package may not have been whole when the power went: the repository may have it.
				const { status } = await system.installVersion(from, 0, ['--allow-downgrades']);
				if (status === 0) continue;
				await system.cleanCache();
				if (!(await system.isPackagingBusy())) await system.finishConfiguring();
			}
			await pause(waitMs);
		}
		await end();
		return 'wentBack';
	}

	async function end(): Promise<void> {
		await keep.end();
		await system.tellSystemd();
	}
}

const lastLine = (text: string) => text.trim().split('\n').at(-1) ?? '';
