/** As root, by the version that is still there, before its package is replaced: keeps its state, the way back and the judge.
 * Fails where there is no room for it; the package's script lets an update go on after any other failure. */
import { AgentError, toFailure } from '../base/errors.ts';
import { errnoOf } from '../base/files.edge.ts';
import type { Status } from '../protocol/local-api.ts';
import { beforeOf, isBefore } from './judge.ts';
import { JUDGE_UNIT, type Running, type UpdateKeep } from './keep.edge.ts';
import type * as system from './system.edge.ts';

export interface PrepareParts {
	readonly keep: UpdateKeep;
	readonly system: Pick<
		typeof system,
		'readInstalled' | 'packInstalled' | 'freeBytes' | 'stopUnit' | 'tellSystemd' | 'readUnit'
	>;
	/** The status of the running agent; `null` where it does not answer. */
	readonly askStatus: () => Promise<Pick<Status, 'state' | 'problem'> | null>;
	/** This process. */
	readonly running: Running;
	/** ISO 8601. */
	readonly now: string;
}

/** The old package, the new files beside the old ones, and the old ones again: in shares of what is installed. */
const SPACE = 2.5;

/** @param to the version to come. @throws AgentError `disk-low`: the way back would not fit; `update-unprepared` without one for another reason. */
export async function prepareUpdate(
	to: string,
	{ keep, system, askStatus, running, now }: PrepareParts,
): Promise<void> {
	// Going back prepares nothing.
	if ((await keep.trial())?.phase === 'goingBack') return;
	const installed = await system.readInstalled();
	// The same version may come with other bytes: only dpkg knows, when it has unpacked them.
	if (!installed) return;
	// One of an update before must not close its case while this one begins.
	await system.stopUnit(JUDGE_UNIT);
	const under = await keep.trial();
	// A second update before the first was judged goes back to the version that is known to work.
	const isGoingOn =
		under !== null && (under.phase === 'goneBack' || (under.to === installed.version && !isBefore(under, installed)));
	try {
		await keep.open();
		const needed = Math.round(installed.bytes * SPACE);
		const free = await system.freeBytes(keep.directory);
		if (free < needed)
			throw new AgentError(
				'disk-low',
				`An update takes ${megabytes(needed)} for the new version and the way back; ${megabytes(free)} are free.`,
			);
		if (!isGoingOn) {
			await keep.end();
			await keep.keepRunning(running);
		} else await keep.endStandIn();
		const unit = await system.readUnit();
		const status = await askStatus();
		// One that only was stopped is started when dpkg is done, and by the next boot.
		const isLeft = unit.isStopped && !unit.isEnabled;
		const told = isLeft ? 'stopped' : beforeOf(status?.state ?? null, status?.problem?.code ?? null);
		const before = isGoingOn ? under.before : told;
		const from = isGoingOn ? under.from : installed.version;
		await keep.saveTrial({
			schemaVersion: 1,
			phase: 'prepared',
			from,
			fromBuild: isGoingOn ? under.fromBuild : installed.build,
			to,
			toBuild: null,
			startedAt: now,
			before,
			wasEnabled: isGoingOn ? under.wasEnabled : unit.isEnabled,
			wasReady: false,
			boots: 0,
			bootId: null,
			oldRun: unit.runId,
			restarts: 0,
			unitRestarts: unit.restarts,
			waitedMs: 0,
			wasFinished: false,
			fault: null,
		});
		// From here on a power cut in the middle of it is cleared up at the next boot.
		await keep.installUnit();
		if (!isGoingOn) await system.packInstalled(installed, keep.oldPackage);
	} catch (error) {
		if (!isGoingOn) await keep.end();
		if (toFailure(error).code === 'disk-low') throw error;
		// dpkg-deb says it in words.
		const isFull = errnoOf(error) === 'ENOSPC' || toFailure(error).message.includes('No space left on device');
		const message = `The way back to version ${installed.version} could not be kept: ${toFailure(error).message}`;
		throw new AgentError(isFull ? 'disk-low' : 'update-unprepared', message);
	} finally {
		if (await keep.trial()) await system.tellSystemd('start', JUDGE_UNIT);
	}
}

const megabytes = (bytes: number) => `${Math.ceil(bytes / 1024 / 1024)} MiB`;
