/**
 * The mark in the files of the logs (docs/log.md), by which one of another device is known. It comes from the id of the state. A device
 * that has lost its state, or was given another one, keeps its logs: then the mark that they have goes into the stamp of the state.
 */
import { createHash, randomUUID } from 'node:crypto';
import { newestMark } from '../base/log-marks.edge.ts';
import type { CopyStamp } from './copies.ts';

const LOGS = ['events', 'history', 'audit'];

const markOfId = (id: string) => createHash('sha256').update(`logs of ${id}`).digest('hex').slice(0, 32);

export const markOf = ({ id, logs }: Pick<CopyStamp, 'id' | 'logs'>): string => logs ?? markOfId(id);

/**
 * The stamp of a state, a new one for one that has none; with the mark of the logs that are there where the state may have come after them.
 * @param saved the id of the state that was saved here last.
 */
export function withLogs(known: CopyStamp | null, stateDir: string, saved: string | null): CopyStamp {
	const stamp = known ?? { id: randomUUID(), save: 0 };
	if (known && (saved === null || saved === stamp.id)) return stamp;
	const marks = LOGS.map((name) => newestMark(stateDir, name)).filter((mark) => mark !== null);
	const countOf = (mark: string) => marks.filter((other) => other === mark).length;
	const [most] = marks.toSorted((one, other) => countOf(other) - countOf(one));
	const before = saved === null ? undefined : marks.find((mark) => mark === markOfId(saved));
	const logs = before ?? most;
	return logs === undefined || logs === markOf(stamp) ? stamp : { ...stamp, logs };
}
