/** Events: their types, their size against the bounds, and their ids, `epoch-number`. Numbers never go back; each epoch has a range of them. */

/** An event before it has a number. */
export interface Incoming {
	/** ISO 8601, by the device's clock. */
	readonly at: string;
	readonly type: 'notification' | 'session' | 'gap';
	readonly kind: string;
	readonly workflowId: string | null;
	readonly format: 'json' | 'text' | 'binary';
	/** JSON text as received, plain text, or base64. */
	readonly content: string;
	/** The service's own id, by which a duplicate is known. */
	readonly serviceId: string | null;
}

export interface Entry extends Incoming {
	/** `epoch-number`; never used twice. */
	readonly id: string;
	readonly number: number;
}

/** An event that the agent itself makes. */
export function ownEvent(
	type: 'session' | 'gap',
	data: Readonly<Record<string, string | null>>,
	{ at, workflowId }: Pick<Incoming, 'at' | 'workflowId'>,
): Incoming {
	return { at, type, kind: type, workflowId, format: 'json', content: JSON.stringify(data), serviceId: null };
}

/** A time after `to` is of a clock that was set back since: nothing is known of when the gap began, then. Times are ISO 8601. */
export function gapEvent(from: string | null, to: string, arrival: Pick<Incoming, 'at' | 'workflowId'>): Incoming {
	return ownEvent('gap', { from: from !== null && from > to ? null : from, to }, arrival);
}

/** Takes the place of stored events that are missing or unreadable. @param timeOf when one was stored, if that is known; milliseconds since 1970. */
export function gapOf(from: number, to: number, timeOf: (number: number) => number | null, nowMs: number): Incoming {
	const time = (number: number) => {
		const ms = timeOf(number);
		return ms === null ? null : new Date(ms).toISOString();
	};
	const at = time(to + 1) ?? new Date(nowMs).toISOString();
	return gapEvent(time(from - 1), at, { at, workflowId: null });
}

export const EVENT_ID = /^([A-Za-z0-9]{1,32})-(\d{1,15})$/;
export const isEventId = (text: string): boolean => EVENT_ID.test(text);

/** Longer texts are over every bound by their characters alone: to count on would take 4 ms a MiB for each reader. */
const COUNTED = 256 * 1024;

/** The size of an event in bytes, without the escapes of JSON: its texts, and a constant for the rest. Of a long one, its characters. */
export function sizeOf(entry: Entry): number {
	return bytesOf(entry.content) + bytesOf(entry.kind) + 128;
}

/** In UTF-8, without writing it down: 0.3 ms for 256 Ki characters, three times less than without the first look at them. */
function bytesOf(text: string): number {
	if (text.length >= COUNTED) return text.length;
	if (!/[\u0080-\uffff]/.test(text)) return text.length;
	let bytes = text.length;
	for (let at = 0; at < text.length; at += 1) {
		const unit = text.charCodeAt(at);
		// Two units that make one character have four bytes.
		if (unit >= 0x80) bytes += unit < 0x800 || (unit >= 0xd800 && unit < 0xe000) ? 1 : 2;
	}
	return bytes;
}

/** The newest epochs are known even when nothing of them is kept: a reader may name its last event. */
const RECENT_EPOCHS = 128;

export interface Epoch {
	/** Number of its first event. */
	readonly first: number;
	readonly epoch: string;
}

/** The same list if the epoch is the newest one already, else one more. */
export function withEpoch(epochs: readonly Epoch[], epoch: string, first: number): readonly Epoch[] {
	return epochs.at(-1)?.epoch === epoch ? epochs : [...epochs, { first, epoch }];
}

/** Where the note is damaged that said so, an event itself says which epoch it is of. */
export function withEpochOf(epochs: readonly Epoch[], epoch: string, number: number): readonly Epoch[] {
	if (epochs.findLast(({ first }) => first <= number)?.epoch === epoch) return epochs;
	return [...epochs, { first: number, epoch }].sort((one, other) => one.first - other.first);
}

/** Without the old ones to which neither a kept event (`oldest` or newer) nor a position refers. */
export function neededEpochs(epochs: readonly Epoch[], oldest: number, positions: readonly number[]): readonly Epoch[] {
	return epochs.filter(({ first }, at) => {
		const end = endOf(epochs, at, Number.POSITIVE_INFINITY);
		const isRecent = at >= epochs.length - RECENT_EPOCHS;
		return isRecent || end >= oldest || positions.some((number) => first <= number && number <= end);
	});
}

const endOf = (epochs: readonly Epoch[], at: number, last: number) => (epochs[at + 1]?.first ?? last + 1) - 1;

/** The number of an event that was stored, or of the place just before the first of its epoch; `null` for every other id. A reader who is
 * ahead of a store that lost the end of an earlier epoch has read all that is left of it: that end. @param running the epoch of this run. */
export function numberOf(id: string, epochs: readonly Epoch[], last: number, running: string): number | null {
	const [, epoch, digits] = EVENT_ID.exec(id) ?? [];
	const number = Number(digits);
	// The place after everything can be named before there is an event of this run. One epoch may have two ranges: a disk failed between them.
	const known = withEpoch(epochs, running, last + 1);
	const at = known.findLastIndex((each) => each.epoch === epoch && each.first - 1 <= number);
	if (at === -1) return null;
	const end = endOf(known, at, last);
	if (number > end && epoch === running) return null;
	return Math.min(number, end);
}

/** The id of a stored event; `null` when its epoch is not known any more, and for 0. */
export function idOf(number: number, epochs: readonly Epoch[]): string | null {
	const epoch = epochs.findLast(({ first }) => first <= number)?.epoch;
	return epoch === undefined ? null : `${epoch}-${number}`;
}
