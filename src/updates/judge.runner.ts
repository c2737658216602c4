/** Looks at the new version until it is proved or taken back, also after a reboot. Runs as root from a copy of the version before. */
import { type Clock, isoNow } from '../base/clock.edge.ts';
import type { Status } from '../protocol/local-api.ts';
import { countRestarts, type Stretch, stretchAfter } from './health.ts';
import {
	type Build,
	type Fault,
	isBefore,
	isToBlame,
	judge,
	LAST_TRY_MS,
	LOOK_MS,
	type Look,
	MAX_WAIT_MS,
	PATIENCE,
	SLOW_LOOK_MS,
} from './judge.ts';
import { AGENT_UNIT, type UpdateKeep } from './keep.edge.ts';
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
		| 'restartAgent'
		| 'tellSystemd'
		| 'putBackAgent'
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
	/** `update.source` */
	readonly source: string | null;
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
	/** Of the version that is taken back. */
	let isNoted = false;
	let log: string[] | undefined;
	const sayUnwritten = (error: unknown) => say(`Not written down: ${error}`);
	const pause = (ms: number) => new Promise<void>((resolve) => void clock.schedule(ms, resolve));
	if (trial.phase === 'goingBack') return goBack(trial);
	if (trial.phase === 'goneBack') return untilBack(trial);
	// What ran in its place has ended with the boot.
	if (trial.phase === 'standsIn' && (await system.isPackagingBusy())) await letStandIn(trial);
	say(`Version ${known.to} is tried; before it was ${known.from}, ${known.before}.`);
	const limitMs = parts.judgeSeconds * 1000;
	let seenAtMs: number | null = null;
	let beganAtMs = 0;
	let awaySinceMs = 0;
	let silentSinceMs: number | null = null;
	let busySinceMs: number | null = null;
	let downSinceMs: number | null = null;
	let stuckSinceMs: number | null = null;
	let stretch: Stretch | null = null;
	let triesNow = false;
	for (;;) {
		const look = await takeLook();
		const verdict = judge({ ...trial, judgeSeconds: parts.judgeSeconds }, look);
		switch (verdict.type) {
			case 'wait':
				await pause(verdict.forMs);
				break;
			case 'tryLine':
				if (!(await isLineToBlame(trial, look))) return goBack({ ...trial, fault: 'not-online' });
				break;
			case 'standIn': {
				// As for one that is judged: it may be the service that is away.
				const isLine = verdict.fault === 'not-online' && (trial.before === 'offline' || !(await parts.getsThrough()));
				if (isLine) await pause(SLOW_LOOK_MS);
				else await letStandIn({ ...trial, phase: 'standsIn', fault: verdict.fault });
				break;
			}
			case 'finish':
				await finish();
				break;
			case 'goBack':
				return goBack({ ...trial, fault: verdict.fault });
			case 'keep':
				say(`Version ${trial.to} works.`);
				await keep.saveOutcomes({ ...(await keep.outcomes()), kept: trial.to });
				await end();
				return 'kept';
			case 'end':
				await end();
				return 'none';
			default:
				verdict satisfies never;
		}
	}

	async function finish(): Promise<void> {
		const { status, text } = await system.finishConfiguring();
		say(`dpkg was cut off: ${lastLine(text)}`);
		const after = await system.readInstalled();
		const isOld = after !== null && isBefore(known, after);
		if (isOld || status === DPKG_BUSY) {
			stuckSinceMs ??= clock.monotonicMs();
			await pause(AGAIN_MS[0]);
			return;
		}
		if (trial) await keepChanged({ ...trial, wasFinished: true });
	}

	async function takeLook(): Promise<Look> {
		const nowMs = clock.monotonicMs();
		const isBusy = await system.isPackagingBusy();
		const installed = await system.readInstalled();
		busySinceMs = isBusy ? (busySinceMs ?? nowMs) : null;
		if (isBusy) stuckSinceMs = null;
		const isNew = installed !== null && installed.state !== 'half' && !isBefore(known, installed);
		const isThere = !isBusy && isNew && installed.state === 'whole';
		if (isThere && (seenAtMs === null || !isOnTrial(installed))) await begin(nowMs, installed);
		const [unit, status] = await Promise.all([system.readUnit(), parts.askStatus()]);
		// The new version was not started yet: what answers is the one before.
		const isOld = unit.runId !== null && unit.runId === known.oldRun;
		const isReady = unit.isReady && !isOld;
		// Only a person stops a version that had started. A script of its package stops it before.
		const wasReady = isThere && (trial?.wasReady || isReady);
		if (wasReady && unit.isStopped) restartTime(nowMs);
		const state = isReady ? (status?.state ?? null) : null;
		// Also while apt is at work, with other packages.
		const hasCome = seenAtMs !== null || isNew;
		if (trial) await keepChanged({ ...trial, wasReady, ...countRestarts(trial, unit.restarts, isOld || !hasCome) });
		stretch = stretchAfter(stretch, { atMs: nowMs, runId: hasCome && isReady ? unit.runId : null, state }, limitMs);
		silentSinceMs = isThere && (!isReady || state === null) ? (silentSinceMs ?? nowMs) : null;
		downSinceMs = isNew && !isOld && state !== 'online' ? (downSinceMs ?? nowMs) : null;
		if (state === 'online') awaySinceMs = nowMs;
		const since = (ms: number | null) => (ms === null ? 0 : nowMs - ms);
		const healthyMs = state === 'online' ? since(stretch?.sinceMs ?? null) : 0;
		const hasStood = state !== null && seenAtMs !== null && since(beganAtMs) >= limitMs;
		if (hasStood && trial && trial.boots > 1) await keepChanged({ ...trial, boots: 1 });
		return {
			elapsedMs: since(seenAtMs),
			awayMs: seenAtMs === null ? 0 : since(awaySinceMs),
			isBusy,
			busyMs: since(busySinceMs),
			standsIn: trial?.phase === 'standsIn' ? (trial.fault as Fault | null) : null,
			installed,
			wasFinished: trial?.wasFinished ?? false,
			stuckMs: since(stuckSinceMs),
			isReady,
			restarts: trial?.restarts ?? 0,
			boots: trial?.boots ?? 0,
			state,
			healthyMs,
			hasBeaten: healthyMs >= limitMs && (await hasBeaten(status)),
			silentMs: since(silentSinceMs),
			downMs: since(downSinceMs),
			waitedMs: trial?.waitedMs ?? 0,
		};
	}

	/** Nothing of before counts: the version has its whole time. */
	function restartTime(nowMs: number): void {
		seenAtMs = nowMs;
		awaySinceMs = nowMs;
		silentSinceMs = nowMs;
		downSinceMs = nowMs;
		triesNow = false;
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
		if (JSON.stringify(changed) !== JSON.stringify(trial)) await save(changed);
		trial = changed;
	}

	/** A disk that the version has filled ends no trial of it. */
	async function save(changed: Trial): Promise<void> {
		await keep.saveTrial(changed).catch(sayUnwritten);
	}

	/** One that is built again while it is tried has its whole time, too. */
	function isOnTrial({ version, build }: Build): boolean {
		return version === trial?.to && (trial.toBuild === null || build === null || build === trial.toBuild);
	}

	/** The kept program runs until dpkg can be asked: the next boot ends whatever hangs. */
	async function letStandIn(standing: Trial): Promise<void> {
		say(`apt hangs and version ${standing.to} fails (${standing.fault}): the one before runs until apt is free.`);
		await keepChanged(standing);
		await keep.standIn();
		await system.restartAgent();
	}

	/** The new version is in place: its time begins, and each boot is counted. */
	async function begin(nowMs: number, installed: Build): Promise<void> {
		const { version, build } = installed;
		seenAtMs = nowMs;
		beganAtMs = nowMs;
		awaySinceMs = nowMs;
		silentSinceMs = null;
		stretch = null;
		triesNow = false;
		if (!trial) return;
		const bootId = await system.readBootId();
		const isSameBoot = trial.bootId === bootId;
		const boots = isSameBoot ? trial.boots : trial.boots + 1;
		const known = isOnTrial(installed);
		const unitRestarts = isSameBoot ? trial.unitRestarts : 0;
		const wasReady = known && isSameBoot && trial.wasReady;
		// Its scripts may have masked or disabled it, which a boot would show too late. No person comes between dpkg and this.
		const isFirst = trial.phase === 'prepared' || !known;
		// What died before it was configured may have been a version in between.
		const counts = isFirst ? { restarts: 0, waitedMs: 0 } : {};
		if (isFirst && trial.wasEnabled) await system.putBackAgent(true);
		// This one did nothing of what another version was replaced for.
		const isReplaced = trial.phase === 'standsIn' && known;
		if (!isReplaced && (await keep.endStandIn())) await system.restartAgent();
		const phase = isReplaced ? ('standsIn' as const) : ('judging' as const);
		const to = { phase, to: version, toBuild: build };
		await keepChanged({ ...trial, ...to, bootId, boots, wasReady, unitRestarts, ...counts });
	}

	async function goBack(judged: Trial): Promise<TrialEnd> {
		const { from, to, fault } = judged;
		await save({ ...judged, phase: 'goingBack' });
		// Before anything else: whatever cuts this off, the version does not come again.
		await note(judged);
		if (fault === 'service-away') await keepFailed(judged).catch(sayUnwritten);
		say(`Version ${to} is taken back (${fault}); ${from} takes its place.`);
		// At once: dpkg may have no room, and a unit that does not end would hold it up.
		if (judged.before !== 'stopped') await keep.standIn().then(system.restartAgent).catch(sayUnwritten);
		for (let waitMs: number = AGAIN_MS[0]; ; waitMs = Math.min(AGAIN_MS[1], waitMs * 2)) {
			if (!(await system.isPackagingBusy())) {
				const { status, text } = await system.installFile(keep.oldPackage);
				if (await isInPlace(status, from)) break;
				say(`It did not go back yet: ${lastLine(text)}`);
				// The package may not have been whole when the power went: the repository may have it.
				if (await isFetched(judged)) break;
				await system.cleanCache();
				// The script of the bad version would take the room that is made.
				const hasRoom = !text.includes('No space left');
				if (hasRoom && !(await system.isPackagingBusy())) await system.finishConfiguring();
			}
			await pause(waitMs);
		}
		const back: Trial = { ...judged, phase: 'goneBack' };
		await save(back);
		if (await keep.endStandIn()) await system.restartAgent();
		return untilBack(back);
	}

	/** The fault and the log of the version, for the record and for apt. A full disk has room later: this is tried again until it is written.
	 * @returns whether there is nothing to write any more. */
	async function note({ from, to, fault, startedAt }: Trial): Promise<boolean> {
		// apt may try again what was not the version's fault.
		if (!fault || !isToBlame(fault)) return true;
		const outcomes = await keep.outcomes();
		isNoted ||= outcomes.takenBack.some(({ version, at }) => version === to && at >= startedAt);
		if (!isNoted) {
			// Of its own time: later there are lines of the version before.
			log ??= await parts.shapeAll(await system.readLog(MAX_LOG_LINES, Date.parse(startedAt))).catch(() => []);
			const one = { version: to, by: from, at: isoNow(clock), fault, log };
			await keep.saveOutcomes(withTakenBack(outcomes, one)).then(() => {
				isNoted = true;
			}, sayUnwritten);
		}
		return isNoted;
	}

	/** The same version from a repository would be the build that fails. */
	async function isFetched({ from, to }: Trial): Promise<boolean> {
		if (from === to) return false;
		const fetched = system.installVersion(from, 0, { source: parts.source, words: ['--allow-downgrades'] });
		const { status } = await fetched.catch(() => ({ status: 1 }));
		return isInPlace(status, from);
	}

	/** @param status of dpkg or apt. */
	async function isInPlace(status: number, version: string): Promise<boolean> {
		const now = status === 0 ? await system.readInstalled() : null;
		return now?.state === 'whole' && now.version === version;
	}

	/** The way back stays until the old version is what it was before, however long its service is away. */
	async function untilBack(back: Trial): Promise<TrialEnd> {
		const { from, before, wasEnabled } = back;
		const isBack = ({ state }: TrialStatus) => state === 'online' || state === 'unpaired' || before === 'offline';
		if (before !== 'stopped') await system.putBackAgent(wasEnabled);
		let hasRun = false;
		for (let silentSinceMs = clock.monotonicMs(); before !== 'stopped'; ) {
			const [installed, unit, status] = [
				await system.readInstalled(),
				await system.readUnit(),
				await parts.askStatus(),
			];
			if (installed?.version !== from || (unit.isReady && status !== null && isBack(status))) break;
			const nowMs = clock.monotonicMs();
			if (unit.isReady && status !== null) silentSinceMs = nowMs;
			hasRun ||= unit.isReady;
			// By the version that failed; later by a person, who may start it.
			const isLeft = unit.isStopped && hasRun;
			if (nowMs - silentSinceMs >= parts.judgeSeconds * 1000 && !isLeft && !(await system.isPackagingBusy())) {
				say(`Version ${from} does not answer: it is started again.`);
				silentSinceMs = nowMs;
				await system.restartAgent();
			}
			await pause(status === null ? LOOK_MS : SLOW_LOOK_MS);
		}
		// Without it the version would come again.
		while (!(await note(back))) await pause(AGAIN_MS[1]);
		await end();
		return 'wentBack';
	}

	/** What a person reads of a version that could not be judged: a plan orders it again. */
	async function keepFailed({ from, to }: Trial): Promise<void> {
		const hours = MAX_WAIT_MS / 3_600_000;
		const failed = {
			code: 'service-unreachable',
			message: `Version ${to} could not be judged: the service was away for ${hours} hours. ${from} took its place.`,
			at: isoNow(clock),
			version: to,
		};
		await keep.saveOutcomes({ ...(await keep.outcomes()), failed });
	}

	async function end(): Promise<void> {
		await keep.end();
		// The agent reads again what root knows.
		await system.tellSystemd('try-reload-or-restart', AGENT_UNIT);
	}
}

const lastLine = (text: string) => text.trim().split('\n').at(-1) ?? '';
