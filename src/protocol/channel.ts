/**
 * Messages on `ws/device`: heartbeats out, notifications in.
 * Source: assumed throughout (service-interface, Endpoints 6 and Events: "not shown").
 */
import * as z from 'zod';
import { workflowIdSchema } from './device-connection.ts';
import { resolvePointer } from './json-pointer.ts';

/** Largest frame taken from the channel, in bytes. */
export const MAX_FRAME_BYTES = 256 * 1024;

export const heartbeatSchema = z.object({
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
});
/** One JSON text frame every `heartbeatCadence` seconds. */
export type Heartbeat = z.infer<typeof heartbeatSchema>;

/** A frame as it came: text, or bytes for a binary frame. */
export type Frame =
	| { readonly type: 'text'; readonly text: string }
	| { readonly type: 'binary'; readonly bytes: Uint8Array };

export interface NotificationPointers {
	/** RFC 6901 pointer to the kind; default: `type`, else `event`, else `kind`. */
	readonly kindPointer?: string | undefined;
	/** RFC 6901 pointer to the service's own id of the notification; default `/id`. */
	readonly notificationIdPointer?: string | undefined;
}

/** A notification with its contents untouched. */
export interface Notification {
	/** The service's word for it; `text`, `binary` or `unknown` where it has none. */
	readonly kind: string;
	/** The service's own id, by which a duplicate is known; `null` when it gives none. */
	readonly serviceId: string | null;
	readonly format: 'json' | 'text' | 'binary';
	/** JSON or plain text exactly as received; base64 for a binary frame. */
	readonly content: string;
}

/** Reads a frame as a notification. Every frame is one: nothing is dropped for its form, nothing throws. */
export function readNotification(frame: Frame, pointers: NotificationPointers = {}): Notification {
	if (frame.type === 'binary')
		return { kind: 'binary', serviceId: null, format: 'binary', content: toBase64(frame.bytes) };
	let document: unknown;
	try {
		document = JSON.parse(frame.text);
	} catch {
		return { kind: 'text', serviceId: null, format: 'text', content: frame.text };
	}
	const kind = findKind(document, pointers.kindPointer) ?? 'unknown';
	const id = resolvePointer(document, pointers.notificationIdPointer ?? '/id');
	// Beyond this, two numbers of the service may read as one, and a notification would be dropped as a duplicate.
	const isExact = typeof id === 'number' && Math.abs(id) <= Number.MAX_SAFE_INTEGER;
	const serviceId = isExact ? String(id) : isName(id) ? id : null;
	return { kind, serviceId, format: 'json', content: frame.text };
}

const KIND_POINTERS = ['/type', '/event', '/kind'];

function findKind(document: unknown, pointer: string | undefined): string | null {
	for (const each of pointer === undefined ? KIND_POINTERS : [pointer]) {
		const kind = resolvePointer(document, each);
		if (isName(kind)) return kind;
	}
	return null;
}

/** A message that the agent itself acts on. */
export type AgentMessage =
	| { readonly type: 'workflow.changed'; readonly workflowId: string }
	| { readonly type: 'connection.revoked' };

const agentMessageSchema = z.discriminatedUnion('type', [
	z.object({ type: z.literal('workflow.changed'), workflowId: workflowIdSchema }),
	z.object({ type: z.literal('connection.revoked') }),
]);

/** The message to act on in a notification, or `null`. */
export function readAgentMessage(notification: Notification): AgentMessage | null {
	if (notification.format !== 'json') return null;
	if (notification.kind !== 'workflow.changed' && notification.kind !== 'connection.revoked') return null;
	const document: unknown = JSON.parse(notification.content);
	// The kind may be at a configured place; the fields are the document's own.
	const fields = typeof document === 'object' && document !== null ? document : {};
	const message = agentMessageSchema.safeParse({ ...fields, type: notification.kind });
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
