/**
 * The body that registers a device, and the Connection token in what comes back.
 * Source: service-interface, Device connection and Endpoints 2. Bounds are assumed and generous.
 */
import * as z from 'zod';
import { isCredential } from './authorization.ts';
import { resolvePointer } from './json-pointer.ts';

/** Seconds between two heartbeats when nothing else is said. Source: assumed. */
export const DEFAULT_HEARTBEAT_CADENCE = 30;
/** Accepted heartbeat cadences, in whole seconds. Source: assumed. */
export const HEARTBEAT_CADENCE_BOUNDS = { min: 1, max: 86_400 } as const;

/** A name that goes into a body and onto a screen: no control characters, no white space around it. */
const name = (max: number) =>
	z
		.string()
		.min(1, 'must not be empty')
		.max(max, `must have at most ${max} characters`)
		.regex(/^[^\p{C}\p{Zl}\p{Zp}]*$/u, 'must not have control or invisible characters')
		.refine((text) => text.trim() === text, 'must not begin or end with white space');

export const deviceIdSchema = name(128);
export const workflowIdSchema = name(128);
export const serialSchema = name(128);
export const deviceTypeSchema = name(64);
/** Six pairs of hexadecimal digits with `:` or `-` between them; kept in lower case with `:`. */
export const macAddressSchema = z
	.string()
	.regex(/^[0-9A-Fa-f]{2}([:-][0-9A-Fa-f]{2}){5}$/, 'must be six pairs of hexadecimal digits such as 00:1b:21:0a:0b:0c')
	.transform((text) => text.toLowerCase().replaceAll('-', ':'));
export const heartbeatCadenceSchema = z
	.int('must be a whole number of seconds')
	.min(HEARTBEAT_CADENCE_BOUNDS.min, `must be at least ${HEARTBEAT_CADENCE_BOUNDS.min} second`)
	.max(HEARTBEAT_CADENCE_BOUNDS.max, `must be at most ${HEARTBEAT_CADENCE_BOUNDS.max} seconds (a day)`);

export const deviceConnectionRequestSchema = z.object({
	deviceId: deviceIdSchema,
	workflowId: workflowIdSchema,
	serial: serialSchema.optional(),
	macAddress: macAddressSchema.optional(),
	deviceType: deviceTypeSchema.optional(),
	heartbeatCadence: heartbeatCadenceSchema.optional(),
});

/** The request body of a registration. */
export type DeviceConnectionRequest = z.infer<typeof deviceConnectionRequestSchema>;

/** Places in which a Connection token is looked for, in this order. Source: assumed. */
const TOKEN_POINTERS = ['/token', '/connectionToken', '/authorization', '/connection/token'] as const;

/**
 * Finds the Connection token in a response: at `tokenPointer` (RFC 6901) if one is configured, else in the first of the
 * known places, else the body as a JSON string or as plain text. A leading `Connection ` is dropped. Source: assumed.
 * @returns the token, or `null` when there is none that could be sent back in a header.
 */
export function findConnectionToken(body: string, tokenPointer?: string): string | null {
	const document = parseJson(body);
	if (document === undefined) return tokenPointer ? null : asToken(isMarkupOrCutJson(body) ? '' : body.trim());
	if (tokenPointer !== undefined) return asToken(resolvePointer(document, tokenPointer));
	if (typeof document === 'string') return asToken(document);
	for (const pointer of TOKEN_POINTERS) {
		const token = asToken(resolvePointer(document, pointer));
		if (token) return token;
	}
	return null;
}

function asToken(value: unknown): string | null {
	if (typeof value !== 'string') return null;
	const token = value.replace(/^\s*connection\s+/i, '').trim();
	// Shorter than this is a word such as "ok", not a secret.
	return token.length >= 8 && isCredential(token) ? token : null;
}

/** A page, or JSON whose end is missing: neither is a token, although one without a space in it could be sent as one. */
function isMarkupOrCutJson(body: string): boolean {
	return /^[<{["]/.test(body.trimStart());
}

function parseJson(body: string): unknown {
	try {
		// `trim` also takes a byte order mark away, at which JSON ends in an error.
		return JSON.parse(body.trim());
	} catch {
		return undefined;
	}
}
