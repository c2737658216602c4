/** The body that registers a device. Source: service-interface, Endpoints 2; bounds: assumed (message-bounds). */
import * as z from 'zod';
import { later } from './later.ts';

/** Seconds between two heartbeats when nothing else is said. Source: assumed (heartbeat-cadence). */
export const DEFAULT_HEARTBEAT_CADENCE = 30;
/** Accepted heartbeat cadences, in whole seconds. Source: assumed (heartbeat-cadence). */
export const HEARTBEAT_CADENCE_BOUNDS = { min: 1, max: 86_400 } as const;

const VISIBLE = /^[^\p{C}\p{Zl}\p{Zp}]*$/u;
const MAX_NAME_LENGTH = 128;

/** A name that goes into a body and onto a screen: no control characters, no white space around it. */
const name = (max: number) =>
	z
		.string()
		.min(1, 'must not be empty')
		.max(max, `must have at most ${max} characters`)
		.regex(VISIBLE, 'must not have control or invisible characters')
		.regex(/^(\S([\s\S]*\S)?)?$/, 'must not begin or end with white space');

/** Whether {@link serialSchema} takes the text: every start asks, and needs no schema for it. */
export const isSerial = (text: string): boolean =>
	text !== '' && text.length <= MAX_NAME_LENGTH && VISIBLE.test(text) && text.trim() === text;

export const deviceIdSchema = later(() => name(128));
export const workflowIdSchema = later(() => name(128));
export const serialSchema = later(() => name(MAX_NAME_LENGTH));
export const deviceTypeSchema = later(() => name(64));
/** Six pairs of hexadecimal digits with `:` or `-` between them; kept in lower case with `:`. */
const macAddress = (form: RegExp, besides = '') =>
	z
		.string()
		.regex(form, `must be six pairs of hexadecimal digits such as 00:1b:21:0a:0b:0c${besides}`)
		.transform((text) => text.toLowerCase().replaceAll('-', ':'));
export const macAddressSchema = later(() => macAddress(/^[0-9A-Fa-f]{2}([:-][0-9A-Fa-f]{2}){5}$/));
/** Systems show all zeros for none, and all ff is the address of every card. */
export const OF_ONE_CARD = /^(?!00([:-]00){5}$|[Ff]{2}([:-][Ff]{2}){5}$)[0-9A-Fa-f]{2}([:-][0-9A-Fa-f]{2}){5}$/;
export const cardAddressSchema = later(() => macAddress(OF_ONE_CARD, ', but not all 0 or all f: no card has those'));
export const heartbeatCadenceSchema = later(() =>
	z
		.int('must be a whole number of seconds')
		.min(HEARTBEAT_CADENCE_BOUNDS.min, `must be at least ${HEARTBEAT_CADENCE_BOUNDS.min} second`)
		.max(HEARTBEAT_CADENCE_BOUNDS.max, `must be at most ${HEARTBEAT_CADENCE_BOUNDS.max} seconds (a day)`),
);

export const deviceConnectionRequestSchema = later(() =>
	z.object({
		deviceId: deviceIdSchema,
		workflowId: workflowIdSchema,
		serial: serialSchema.optional(),
		macAddress: macAddressSchema.optional(),
		deviceType: deviceTypeSchema.optional(),
		heartbeatCadence: heartbeatCadenceSchema.optional(),
	}),
);

/** The request body of a registration. */
export type DeviceConnectionRequest = z.infer<typeof deviceConnectionRequestSchema>;
