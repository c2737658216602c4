/**
 * Messages on `ws/device`: heartbeats out, notifications in.
 * Source: assumed (heartbeat-message), assumed (notification-kind), assumed (notification-id).
 */
import * as z from 'zod';
import { workflowIdSchema } from './device-connection.ts';
import { COMMON_DEPTH, exactNumber, isBeyond, isObject, parseJson, resolvePointer } from './json.ts';
import { later } from './later.ts';

/** Largest frame that the channel survives, in bytes: a larger one ends it (RFC 6455, 1009). Source: assumed (message-size). */
/** Meanings of a close code that settings may name. */
export const CLOSE_MEANINGS = ['refused', 'replaced', 'retry'] as const;
export type CloseMeaning = (typeof CLOSE_MEANINGS)[number];
export const MAX_FRAME_BYTES = 16 * 1024 * 1024;
/** Largest message that is kept unless a deployment says otherwise, in bytes. Source: assumed (message-size). */
export const DEFAULT_MESSAGE_BYTES = 1024 * 1024;

export const heartbeatSchema = later(() =>
	z.object({
		type: z.literal('heartbeat'),
		deviceId: z.string(),
		workflowId: z.string(),
		/** Counts from 1 within one channel. */
		sequence: z.int().min(1),
		/** ISO 8601, by the device's clock. */
		sentAt: z.string(),
		uptimeSeconds: z.number().min(0),
		/** The newest revision of the fleet plan that the device is, or was, online as it says; left out without a plan. */
		planRevision: z.int().min(1).optional(),
		/** The revision that the device could not follow and that it stays where it was for. */
		planRefused: z.int().min(1).optional(),
		/** Only where `service.heartbeatFields` names them, and where there is something to say. */
		agentVersion: z.string().optional(),
		/** The permanent code of the problem in the status. */
		problemCode: z.string().optional(),
		/** The ring of the plan that holds the device, in percent. */
		planRing: z.number().optional(),
		/** Why the revision in planRefused could not be followed, in words. */
		planReason: z.string().optional(),
		/** Why the version that the plan orders is not installed, as in the status. */
		updateReason: z.string().optional(),
		/** The version that was taken back last on this device. */
		updateTakenBack: z.string().optional(),
	}),
);
/** The fields that a deployment may ask for besides those that every heartbeat has. */
export const HEARTBEAT_FIELDS = [
	'agentVersion',
	'problemCode',
	'planRevision',
	'planRing',
	'planReason',
	'updateReason',
	'updateTakenBack',
] as const;
export type HeartbeatExtras = Partial<Pick<Heartbeat, (typeof HEARTBEAT_FIELDS)[number]>>;
/** One JSON text frame every `heartbeatCadence` seconds. */
export type Heartbeat = z.infer<typeof heartbeatSchema>;

/** A frame as it came: text, or bytes for a binary frame; of one that was too large only its size is left. */
export type Frame =
	| { readonly type: 'text'; readonly text: string }
	| { readonly type: 'binary'; readonly bytes: Uint8Array }
	| { readonly type: 'oversized'; readonly bytes: number; readonly limitBytes: number };

export interface NotificationPointers {
	/** RFC 6901 pointer to the kind; left out, or where it leads to none: `type`, else `event`, else `kind`. */
	readonly kindPointer?: string | null | undefined;
	/** RFC 6901 pointer to the service's own id of the notification; default `/id`. */
	readonly notificationIdPointer?: string | null | undefined;
}

/** A notification with its contents untouched. */
export interface Notification {
	/** The service's word for it; `text`, `binary`, `oversized` or `unknown` where it has none. */
	readonly kind: string;
	/** The service's own id, by which a duplicate is known; `null` when it gives none. */
	readonly serviceId: string | null;
	/** The same as the service wrote it. */
	readonly writtenId?: string | number | bigint;
	readonly format: 'json' | 'text' | 'binary';
	/** JSON or plain text exactly as received; base64 for a binary frame. */
	readonly content: string;
}

/** Reads a frame as a notification. Every frame is one: nothing is dropped for its form, nothing throws. */
export function readNotification(frame: Frame, pointers: NotificationPointers = {}): Notification {
	if (frame.type === 'oversized') {
		const content = JSON.stringify({ bytes: frame.bytes, limitBytes: frame.limitBytes });
		return { kind: 'oversized', serviceId: null, format: 'json', content };
	}
	if (frame.type === 'binary')
		return { kind: 'binary', serviceId: null, format: 'binary', content: toBase64(frame.bytes) };
	const document = parseJson(frame.text);
	if (document === undefined) return { kind: 'text', serviceId: null, format: 'text', content: frame.text };
	const { kindPointer } = pointers;
	const own = kindPointer == null ? null : findKind(document, [kindPointer]);
	const kind = own ?? findKind(document, KIND_POINTERS) ?? 'unknown';
	const idPointer = pointers.notificationIdPointer ?? '/id';
	const read = resolvePointer(document, idPointer);
	// Beyond this, two numbers of the service may read as one, and a notification would be dropped as a duplicate.
	const isRounded = typeof read === 'number' && Math.abs(read) > Number.MAX_SAFE_INTEGER;
	const id = isRounded ? exactNumber(frame.text, idPointer) : read;
	const isId = typeof id === 'number' || typeof id === 'bigint' || isName(id);
	const named = isId ? { serviceId: String(id), writtenId: id } : { serviceId: null };
	// An application's own parser may give up on all that comes with it.
	const format = isBeyond(frame.text, COMMON_DEPTH) ? 'text' : 'json';
	return { kind, ...named, format, content: frame.text };
}

const KIND_POINTERS = ['/type', '/event', '/kind'];

function findKind(document: unknown, pointers: readonly string[]): string | null {
	const found = pointers.map((each) => resolvePointer(document, each));
	// A number beside a word is rather a version.
	const kind = found.find(isName) ?? found.find((one) => typeof one === 'number');
	return kind === undefined ? null : String(kind);
}

/** Usual names of the word that says what a message is. */
export const WORD_NAMES = [
	'type',
	'event',
	'kind',
	'op',
	'action',
	'cmd',
	'command',
	'method',
	't',
	'm',
	'name',
] as const;
const WORD_POINTERS = WORD_NAMES.map((name) => `/${name}`);

/** The word of a message that has no kind where notifications have theirs, such as `{"cmd":"PING"}`. */
export function readWord(document: unknown): string | null {
	return isObject(document) ? (WORD_NAMES.map((name) => document[name]).find(isName) ?? null) : null;
}

/**
 * Every word by which a setting may name a message that is not a notification: its kind; where it has none, the one or the number at a usual place, since
 * words about the channel may be written in another way than notifications; and a text that is one word, or a number, itself.
 */
export function kindsOf(frame: Frame, { kind }: Notification): readonly string[] {
	if (frame.type !== 'text') return [kind];
	const document = kind === 'unknown' ? parseJson(frame.text) : undefined;
	const word = findKind(document, WORD_POINTERS);
	const isWord = kind === 'text' || typeof document === 'number';
	return [kind, ...(word === null ? [] : [word]), ...(isWord ? [frame.text.trim()] : [])];
}

/** The name and value of what a message has besides its word; `null` where that is not one value: it may be the number of a ping. */
export function readNumber(document: unknown, word: string): readonly [string, string | number] | null {
	const others = isObject(document) ? Object.entries(document).filter(([, value]) => value !== word) : [];
	const [name, value] = others[0] ?? ['', null];
	return others.length === 1 && (isName(value) || Number.isSafeInteger(value))
		? [name, value as string | number]
		: null;
}

/** A message that the agent itself acts on. */
export type AgentMessage =
	| { readonly type: 'workflow.changed'; readonly workflowId: string }
	| { readonly type: 'connection.revoked' };

const FIELDS: {
	readonly [Type in AgentMessage['type']]: z.ZodType<Omit<Extract<AgentMessage, { type: Type }>, 'type'>>;
} = {
	'workflow.changed': later(() => z.object({ workflowId: workflowIdSchema })),
	'connection.revoked': later(() => z.object({})),
};

export const AGENT_MESSAGES: readonly string[] = Object.keys(FIELDS);

/** The message to act on in a notification, or `null`. */
export function readAgentMessage(notification: Notification): AgentMessage | null {
	if (!Object.hasOwn(FIELDS, notification.kind)) return null;
	const type = notification.kind as AgentMessage['type'];
	const document = parseJson(notification.content);
	if (!isObject(document)) return null;
	// The kind may be at a configured place; the fields are the document's own.
	const fields = FIELDS[type].safeParse(document);
	return fields.success ? ({ ...fields.data, type } as AgentMessage) : null;
}

function isName(value: unknown): value is string {
	return typeof value === 'string' && value.length > 0 && value.length <= 256;
}

function toBase64(bytes: Uint8Array): string {
	let binary = '';
	for (let start = 0; start < bytes.length; start += 8192)
		binary += String.fromCharCode(...bytes.subarray(start, start + 8192));
	return btoa(binary);
}
