/** Events: their types, their id as a text, and their size against the bounds. Keeps none. */

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

/** Whether a text can be an event id. */
export function isEventId(text: string): boolean {
	return /^[A-Za-z0-9]{1,32}-\d{1,15}$/.test(text);
}

/** The size of an event against `maxBytes`: its characters, and a constant for the rest. */
export function sizeOf(entry: Entry): number {
	return entry.content.length + entry.kind.length + 128;
}
