/** The bytes that the state directory may need, and the bound of its events where the file system has fewer. Pure. */
import { type Failure, failure } from '../base/errors.ts';

const MIB = 1024 * 1024;
/** The state with its copies, the audit log, the history, and room for a new file of each. */
const REST_BYTES = MIB;
/** Of the bound of the events: a new file is begun before an old one goes. */
const SLACK = 1.25;
/** Two files of the log. */
const LEAST_BYTES = 64 * 1024;

export interface DiskBounds {
	readonly durable: boolean;
	readonly maxBytes: number;
}

export const diskNeed = ({ durable, maxBytes }: DiskBounds): number =>
	REST_BYTES + (durable ? Math.ceil(maxBytes * SLACK) : 0);

/** The bound that fits. @param capacityBytes of the whole file system; `null` when it is not known. */
export const fittingBytes = (maxBytes: number, capacityBytes: number | null): number =>
	Math.min(
		maxBytes,
		Math.max(LEAST_BYTES, Math.floor(((capacityBytes ?? Number.POSITIVE_INFINITY) - REST_BYTES) / SLACK)),
	);

/** `5.9 MiB` */
export const plainBytes = (bytes: number): string => `${Math.max(0.1, Math.round((bytes / MIB) * 10) / 10)} MiB`;

/** `null` where the file system is large enough. */
export function tooSmall(directory: string, bounds: DiskBounds, capacityBytes: number | null): Failure | null {
	const need = diskNeed(bounds);
	if (capacityBytes === null || capacityBytes >= need) return null;
	const fitting = fittingBytes(bounds.maxBytes, capacityBytes);
	const kept = bounds.durable
		? ` At most ${plainBytes(fitting)} of events are kept, not ${plainBytes(bounds.maxBytes)}.`
		: '';
	return failure(
		'disk-low',
		`The file system of ${directory} has ${plainBytes(capacityBytes)}; the agent may need ${plainBytes(need)}.${kept}`,
		{ remedy: `Give it ${plainBytes(need)}, or set events.maxBytes to ${fitting} or less.` },
	);
}
