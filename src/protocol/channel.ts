/**
 * Messages on `ws/device`: heartbeats out, notifications in.
 * Source: assumed (heartbeat-message), assumed (notification-kind), assumed (notification-id).
 */
import * as z from 'zod';
import { workflowIdSchema } from './device-connection.ts';
import { parseJson, resolvePointer } from './json.ts';
import { later } from './later.ts';

/** Largest frame that the channel survives, in bytes: a larger one ends it (RFC 6455, 1009). Source: assumed (message-size). */
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

/** The fields that a message in a deployment's own shape may name, as `{sequence}`. */
export interface TemplateFields {
	readonly deviceId: string;
	readonly workflowId: string;
	readonly sequence: number;
	/** ISO 8601, by the device's clock. */
	readonly sentAt: string;
	/** The same in milliseconds since 1970. */
	readonly sentAtMs: number;
	readonly uptimeSeconds: number;
	/** Of the message that is answered; empty where it has none. */
	readonly id: string;
}

const SAMPLE: TemplateFields = {
	deviceId: 'd',
	workflowId: 'w',
	sequence: 1,
	sentAt: '2030-01-01T00:00:00.000Z',
	sentAtMs: 1,
	uptimeSeconds: 1,
	id: '',
};
const FIELD = /"\$?\{\{?\s*(\w+)\s*\}?\}"|\$?\{\{?\s*(\w+)\s*\}?\}/g;

/**
 * A message of a deployment's own shape. A field that is a whole JSON text (`"{sequence}"`) becomes the value itself, a
 * number without quotes; anywhere else it is put into the text, escaped as JSON wants.
 */
export function fillTemplate(template: string, fields: TemplateFields): string {
	const isJson = /^\s*[{[]/.test(template);
	return template.replace(FIELD, (written, whole?: string, inside?: string) => {
		const value = (fields as unknown as Record<string, string | number | undefined>)[whole ?? inside ?? ''];
		if (value === undefined) return written;
		if (whole !== undefined && isJson) return JSON.stringify(value);
		const plain = isJson ? JSON.stringify(String(value)).slice(1, -1) : String(value);
		return whole !== undefined ? `"${plain}"` : plain;
	});
}

/** Why a text cannot be such a message, as the end of a sentence about it; `null` when it can. */
export function templateProblem(template: string): string | null {
	if (!/^\s*[{[]/.test(template)) return null;
	if (parseJson(fillTemplate(template, SAMPLE)) !== undefined) return null;
	return 'must be JSON once its {fields} are filled in, or a text that does not begin with { or [';
}

export interface NotificationPointers {
	/** RFC 6901 pointer to the kind; default: `type`, else `event`, else `kind`. */
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
	const kind = findKind(document, pointers.kindPointer) ?? 'unknown';
	const id = resolvePointer(document, pointers.notificationIdPointer ?? '/id');
	// Beyond this, two numbers of the service may read as one, and a notification would be dropped as a duplicate.
	const isExact = typeof id === 'number' && Math.abs(id) <= Number.MAX_SAFE_INTEGER;
	const serviceId = isExact ? String(id) : isName(id) ? id : null;
	return { kind, serviceId, format: 'json', content: frame.text };
}

const KIND_POINTERS = ['/type', '/event', '/kind'];

function findKind(document: unknown, pointer: string | null | undefined): string | null {
	for (const each of typeof pointer === 'string' ? [pointer] : KIND_POINTERS) {
		const kind = resolvePointer(document, each);
		if (isName(kind)) return kind;
	}
	return null;
}

/** A message that the agent itself acts on. */
export type AgentMessage =
	| { readonly type: 'workflow.changed'; readonly workflowId: string }
	| { readonly type: 'connection.revoked' };

const agentMessageSchema = later(() =>
	z.discriminatedUnion('type', [
		z.object({ type: z.literal('workflow.changed'), workflowId: workflowIdSchema }),
		z.object({ type: z.literal('connection.revoked') }),
	]),
);

/** The message to act on in a notification, or `null`. */
export function readAgentMessage(notification: Notification): AgentMessage | null {
	if (notification.format !== 'json') return null;
	if (notification.kind !== 'workflow.changed' && notification.kind !== 'connection.revoked') return null;
	const document: unknown = JSON.parse(notification.content);
	// The kind may be at a configured place; the fields are the document's own.
	const message = agentMessageSchema.safeParse({ ...Object(document), type: notification.kind });
	return message.success ? message.data : null;
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
