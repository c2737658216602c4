/**
 * The mark in the files of the logs (docs/log.md), by which one of another device is known. It comes from the id of the state. A device
 * that has lost its state, or was given another one, keeps its logs: then the mark that they have goes into the stamp of the state.
 */
import { createHash, randomUUID } from 'node:crypto';
import { newestMark } from '../base/log-marks.edge.ts';
import { type Copies, type FoundCopies, openCopies } from './copies.edge.ts';
import { type CopyStamp, newestStamp } from './copies.ts';

const LOGS = ['events', 'history', 'audit'];

const markOfId = (id: string) => createHash('sha256').update(`logs of ${id}`).digest('hex').slice(0, 32);

export const markOf = ({ id, logs }: Pick<CopyStamp, 'id' | 'logs'>): string => logs ?? markOfId(id);

/**
 * The stamp of the state that was found, a new one where it has none; with the mark of the logs that are there where the state may have come
 * after them. */
export async function stampOf(stateDir: string, copies: Copies, { both, choice }: FoundCopies): Promise<CopyStamp> {
	const known = choice && newestStamp(both, choice.chosen.stamp);
	const saved = await copies.savedId();
	const stamp = known ?? { id: randomUUID(), save: 0 };
	if (known && (saved === null || saved === stamp.id)) return stamp;
	const marks = LOGS.map((name) => newestMark(stateDir, name)).filter((mark) => mark !== null);
	const countOf = (mark: string) => marks.filter((other) => other === mark).length;
	const [most] = marks.toSorted((one, other) => countOf(other) - countOf(one));
	const before = saved === null ? undefined : marks.find((mark) => mark === markOfId(saved));
	const logs = before ?? most;
	return logs === undefined || logs === markOf(stamp) ? stamp : { ...stamp, logs };
}

/** Whose the logs beside a state are, for a reader that may come beside the agent; `null` where the state cannot be read. */
export async function readLogMark(stateDir: string): Promise<string | null> {
	const copies = openCopies(stateDir);
	const found = await copies.find();
	// One that a newer version has written is not known.
	const isKnown = found.choice !== null || found.both.every(({ kind }) => kind !== 'unreadable');
	return isKnown ? markOf(await stampOf(stateDir, copies, found)) : null;
}
