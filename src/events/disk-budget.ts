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
/** A message may come in bytes, which are kept as base64; of its parts there is room in the rest. */
const STORED = 4 / 3;
/** Two files of the log. */
const LEAST_BYTES = 64 * 1024;

export interface DiskBounds {
	readonly events: Pick<Settings['events'], 'durable' | 'maxBytes'>;
	readonly service: Pick<Settings['service'], 'maxMessageBytes'>;
	readonly update: Pick<Settings['update'], 'enabled'>;
}

const besideEvents = ({ update }: DiskBounds): number => REST_BYTES + (update.enabled ? PLANS_BYTES : 0);

const storedBytes = ({ service }: DiskBounds) => Math.ceil(service.maxMessageBytes * STORED);

/** The newest event is kept, however large it is, and stored before others go. */
export function diskNeed(bounds: DiskBounds): number {
	const { durable, maxBytes } = bounds.events;
	const largest = storedBytes(bounds);
	const kept = Math.max(maxBytes, largest) + Math.max(Math.ceil(maxBytes * (SLACK - 1)), largest);
	return besideEvents(bounds) + (durable ? kept : 0);
}

/** As the end of a sentence: what the need consists of. */
export function needInWords(bounds: DiskBounds): string {
	const { maxBytes } = bounds.events;
	const largest = storedBytes(bounds);
	const message = 'service.maxMessageBytes and a third';
	const messages =
		largest > maxBytes
			? `two of the largest messages, ${message}`
			: `events.maxBytes and the largest message, ${message}`;
	const events = largest <= maxBytes * (SLACK - 1) ? 'events.maxBytes and a quarter of it' : messages;
	return `${events}, and 1 MiB${bounds.update.enabled ? '; 4 MiB for plans, since update.enabled is set' : ''}`;
}

/** The bound that fits. @param capacityBytes of the whole file system; `null` when it is not known. */
export function fittingBytes(bounds: DiskBounds, capacityBytes: number | null): number {
	if (capacityBytes === null) return bounds.events.maxBytes;
	const room = capacityBytes - besideEvents(bounds);
	// At most half of it is left for one message.
	const besideLargest = Math.max(room - storedBytes(bounds), room / 2);
	const fitting = Math.max(LEAST_BYTES, Math.floor(Math.min(room / SLACK, besideLargest)));
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
	const largest = Math.max(1024, Math.floor((capacityBytes - besideEvents(bounds)) / 2 / STORED));
	const messages = largest < bounds.service.maxMessageBytes ? ` and service.maxMessageBytes to ${largest}` : '';
	return failure(
		'disk-low',
		`The file system of ${directory} has ${plainBytes(capacityBytes)}; the agent may need ${plainBytes(need)}.${kept}`,
		{
			params: { maxBytes: fitting, maxMessageBytes: largest },
			remedy: `Give it ${plainBytes(need)}, or set events.maxBytes to ${fitting}${messages} or less.`,
		},
	);
}
