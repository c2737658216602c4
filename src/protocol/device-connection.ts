/**
 * The body that registers a device. The answer to it is read in `registration-answer.ts`.
 * Source: service-interface, Device connection and Endpoints 2. Bounds are generous: assumed (message-bounds).
 */
import * as z from 'zod';

/** Seconds between two heartbeats when nothing else is said. Source: assumed (heartbeat-cadence). */
export const DEFAULT_HEARTBEAT_CADENCE = 30;
/** Accepted heartbeat cadences, in whole seconds. Source: assumed (heartbeat-cadence). */
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
