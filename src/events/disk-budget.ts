/** The bytes that the state directory may need, and the bound of its events where the file system has fewer. Pure. */
import { type Failure, failure } from '../base/errors.ts';
import type { Settings } from '../settings/table.ts';

const MIB = 1024 * 1024;
/** The state with its copies, the audit log, the history, and room for a new file of each. */
const REST_BYTES = MIB;
/** Of a device that is updated: the largest plan that is handed to root, beside the one before it while it is written. */
const PLANS_BYTES = 4 * MIB;
/** Of the bound of the events: a new file is begun before an old one goes. */
const SLACK = 1.25;
/** Two files of the log. */
const LEAST_BYTES = 64 * 1024;

export interface DiskBounds {
	readonly events: Pick<Settings['events'], 'durable' | 'maxBytes'>;
	readonly update: Pick<Settings['update'], 'enabled'>;
}

const besideEvents = ({ update }: DiskBounds): number => REST_BYTES + (update.enabled ? PLANS_BYTES : 0);

export const diskNeed = (bounds: DiskBounds): number =>
	besideEvents(bounds) + (bounds.events.durable ? Math.ceil(bounds.events.maxBytes * SLACK) : 0);

/** As the end of a sentence: what the need consists of. */
export const needInWords = ({ update }: DiskBounds): string =>
	`events.maxBytes and a quarter of it, and 1 MiB${update.enabled ? '; 4 MiB for plans, since update.enabled is set' : ''}`;

/** The bound that fits. @param capacityBytes of the whole file system; `null` when it is not known. */
export function fittingBytes(bounds: DiskBounds, capacityBytes: number | null): number {
	if (capacityBytes === null) return bounds.events.maxBytes;
	const fitting = Math.max(LEAST_BYTES, Math.floor((capacityBytes - besideEvents(bounds)) / SLACK));
	return Math.min(bounds.events.maxBytes, fitting);
}

/** `5.9 MiB` */
export const plainBytes = (bytes: number): string => `${Math.max(0.1, Math.round((bytes / MIB) * 10) / 10)} MiB`;

/** `null` where the file system is large enough. */
export function tooSmall(directory: string, bounds: DiskBounds, capacityBytes: number | null): Failure | null {
	const need = diskNeed(bounds);
	if (capacityBytes === null || capacityBytes >= need) return null;
	const { durable, maxBytes } = bounds.events;
	const fitting = fittingBytes(bounds, capacityBytes);
	const kept = durable ? ` At most ${plainBytes(fitting)} of events are kept, not ${plainBytes(maxBytes)}.` : '';
	return failure(
		'disk-low',
		`The file system of ${directory} has ${plainBytes(capacityBytes)}; the agent may need ${plainBytes(need)}.${kept}`,
		{ remedy: `Give it ${plainBytes(need)}, or set events.maxBytes to ${fitting} or less.` },
	);
}
