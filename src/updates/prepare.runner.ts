/**
 * Before the package is replaced, as root, by the version that is still there: the device's state is written down, the way back
 * and the program that judges are kept, and the judge is started. Fails only where the update must not go on.
 */
import { asError, failure, toFailure } from '../base/errors.ts';
import { inWords } from '../base/files.edge.ts';
import type { Before } from './judge.ts';
import { JUDGE_UNIT, type UpdateKeep } from './keep.edge.ts';
import type * as system from './system.edge.ts';

export interface PrepareParts {
	readonly keep: UpdateKeep;
	readonly system: Pick<typeof system, 'readInstalled' | 'packInstalled' | 'freeBytes' | 'tellSystemd' | 'readUnit'>;
	/** The state of the running agent; `null` where it does not answer. */
	readonly askState: () => Promise<string | null>;
	/** The executable of this process. */
	readonly running: string;
	/** Now, ISO 8601. */
	readonly now: string;
}

/** The old package, the new files beside the old ones, and the old ones again: in shares of what is installed. */
const SPACE = 2.5;

/**
 * @param to the version that dpkg is about to install.
 * @throws AgentError `disk-low`: the way back would not fit; `update-unprepared` where there is no way back for another reason.
 */
export async function prepareUpdate(to: string, { keep, system, askState, running, now }: PrepareParts): Promise<void> {
	const under = await keep.trial();
	// Going back prepares nothing.
	if (under?.phase === 'goingBack') return;
	const installed = await system.readInstalled();
	if (!installed || installed.version === to) return;
	try {
		await keep.open();
		const needed = Math.round(installed.bytes * SPACE);
		const free = await system.freeBytes(keep.directory);
		if (free < needed)
			throw asError(
				failure(
					'disk-low',
					`An update takes ${megabytes(needed)} for the new version and the way back; ${megabytes(free)} are free.`,
				),
			);
		// A second update before the first was judged goes back to the version that is known to work.
		const isGoingOn = under !== null && under.to === installed.version;
		if (!isGoingOn) await system.packInstalled(installed, keep.oldPackage);
		await keep.keepProgram(running);
		const before = isGoingOn ? under.before : await stateBefore(askState, system);
		const from = isGoingOn ? under.from : installed.version;
		await keep.saveTrial({
			schemaVersion: 1,
			phase: 'prepared',
			from,
			to,
			startedAt: now,
			before,
			boots: 0,
			bootId: null,
			wasFinished: false,
			fault: null,
		});
		await keep.installUnit();
		await system.tellSystemd('start', JUDGE_UNIT);
	} catch (error) {
		if (toFailure(error).code === 'disk-low') throw error;
		const isFull = inWords(error) === inWords({ code: 'ENOSPC' });
		const message = `The way back to version ${installed.version} could not be kept: ${toFailure(error).message}`;
		throw asError(failure(isFull ? 'disk-low' : 'update-unprepared', message));
	}
}

async function stateBefore(
	askState: PrepareParts['askState'],
	{ readUnit }: Pick<typeof system, 'readUnit'>,
): Promise<Before> {
	if ((await readUnit()).isStopped) return 'stopped';
	return (await askState()) === 'online' ? 'online' : 'offline';
}

const megabytes = (bytes: number) => `${Math.ceil(bytes / 1024 / 1024)} MiB`;
