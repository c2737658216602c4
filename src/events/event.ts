/** What an event is: types, its id as a text, and what it counts as against the bounds. Keeps none. */

/** What is put in: an event before it has a number. */
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

/** Whether a text can be an event id. */
export function isEventId(text: string): boolean {
	return /^[A-Za-z0-9]{1,32}-\d{1,15}$/.test(text);
}

/** What an event counts as against `maxBytes`: its characters, and something for the rest. */
export function sizeOf(entry: Entry): number {
	return entry.content.length + entry.kind.length + 128;
}
