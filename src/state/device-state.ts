/** The document that a device keeps for good; a single rename moves it from one truth to the next. */
import * as z from 'zod';
import { isTooLongToKeep } from '../base/json-text.ts';
import { deviceConnectionRequestSchema } from '../protocol/device-connection.ts';
import { later } from '../protocol/later.ts';
import { planRecordSchema } from './plan-record.ts';

/** Raised only with a migration beside it. */
export const STATE_SCHEMA_VERSION = 1;
/** A Connection and the one that is about to replace it. */
export const MAX_CONNECTIONS = 2;
const MAX_ORIGINS = 16;

/** Facts by which a device knows itself again; compared after every start. */
const fingerprintSchema = later(() =>
	z.object({
		serial: z.string().nullable(),
		macAddress: z.string().nullable(),
		/** A keyed hash of the machine-id, never the id itself. */
		machine: z.string().nullable(),
		/** A person has accepted that nothing of the hardware can be read: what it was known by stays. */
		acceptedBare: z.literal(true).optional(),
	}),
);
export type Fingerprint = z.infer<typeof fingerprintSchema>;

const identitySchema = later(() =>
	z.object({
		deviceId: z.string(),
		serial: z.string().nullable(),
		macAddress: z.string().nullable(),
		fingerprint: fingerprintSchema,
		pinnedAt: z.string(),
	}),
);
export type PinnedIdentity = z.infer<typeof identitySchema>;

const savedConnectionSchema = later(() =>
	z.object({
		baseUrl: z.string(),
		request: deviceConnectionRequestSchema,
		/** Which reusable credential it goes back to; empty for a one-time code. Never the credential itself. */
		credentialId: z.string(),
		/** The Connection token: a secret. */
		token: z.string(),
		obtainedAt: z.string(),
		/** Whether the device was online with it: what answers otherwise after a restart is an outage, then. */
		worked: z.boolean().optional(),
		/** The place that has named it on a channel. */
		from: z.string().optional(),
		/** The service has refused it, which counts against that place once; it may open a channel all the same when a fault is over. */
		refused: z.literal(true).optional(),
		/** What the service said where the answer that has this token refused the registration; of no use once the device was online with it. */
		said: z
			.object({
				message: z.string(),
				remedy: z.string(),
				params: z.record(z.string(), z.union([z.string(), z.number()])),
			})
			.optional(),
	}),
);
export type SavedConnection = z.infer<typeof savedConnectionSchema>;

const assignmentSchema = later(() =>
	z.object({
		workflowId: z.string(),
		source: z.enum(['pairing', 'workflow set', 'service message']),
		at: z.string(),
	}),
);
const assignedWorkflowSchema = later(() =>
	z.object({
		...assignmentSchema.shape,
		/** What takes its place again unless it goes live while its caller waits for that. */
		before: assignmentSchema.nullable().optional(),
	}),
);
export type AssignedWorkflow = z.infer<typeof assignedWorkflowSchema>;

export const MAX_DOUBTED = 16;

/** Written before a one-time code is sent, so that a crash in between is known afterwards. It informs; it never forbids. */
const attemptSchema = later(() =>
	z.object({
		attemptId: z.string(),
		/** A hash of the code's token, to recognise the same code. */
		tokenHash: z.string(),
		host: z.string(),
		at: z.string(),
		/** A newer code was answered plainly: this attempt is only kept for the answer that was set aside, and for its doubts. */
		isPast: z.literal(true).optional(),
		/** How the service has refused the code, where what became of it is in doubt. */
		refusal: z.object({ code: z.string(), status: z.number(), detail: z.string().optional() }).optional(),
		/** Hash and host of other codes, or of one that is past, that may have been used; with `used` behind them where a service has said it. */
		doubted: z.array(z.string()).max(MAX_DOUBTED).optional(),
	}),
);

/** The settings, files and variables by which a link led the device to its service. May hold secrets. */
const waySchema = later(() =>
	z.object({
		/** A hash of the rest, by which links name it. */
		id: z.string(),
		/** By path, with where each came from. */
		settings: z.record(
			z.string(),
			z.object({
				value: z.unknown(),
				source: z.enum(['default', 'file', 'environment', 'flag']),
				where: z.string().nullable(),
			}),
		),
		/** Contents of the files that these settings name, by path. */
		files: z.record(z.string(), z.string()),
		/** Variables that name proxies. */
		env: z.record(z.string(), z.string()),
	}),
);
export type Way = z.infer<typeof waySchema>;

export const deviceStateSchema = later(() =>
	z.object({
		schemaVersion: z.literal(STATE_SCHEMA_VERSION),
		/** Made before its first registration, for a device that has nothing of its own to be known by. */
		generatedId: z.string().nullable(),
		identity: identitySchema.nullable(),
		/** The machine on which the id first registered, or was about to; what is paired is compared with `identity` instead. */
		registeredOn: fingerprintSchema.nullable().default(null),
		pairing: z
			.object({
				baseUrl: z.string(),
				sessionId: z.string().nullable(),
				pairedAt: z.string(),
				pairedAtBy: z.literal('service').optional(),
				/** Whether the events of the service before stay when the device leaves it. */
				keepsEvents: z.boolean().optional(),
				/** Of the token of the code that was spent for it, by which that code is known again. */
				tokenHash: z.string().optional(),
			})
			.nullable(),
		assignedWorkflow: assignedWorkflowSchema.nullable(),
		/** The one the device was online with last, then a newer one that is to take its place. */
		connections: z.array(savedConnectionSchema).max(MAX_CONNECTIONS),
		attempt: attemptSchema.nullable(),
		/** Origins that a person has confirmed at a first pairing. */
		confirmedOrigins: z.array(z.string()).max(MAX_ORIGINS),
		/** The settings files as they were when they were last valid, lowest first; a bad push never strands a device. */
		lastSettings: z.array(z.object({ where: z.string(), document: z.unknown() })).nullable(),
		/** The variables of the environment and the `--set` that settings came from then. */
		lastVariables: z.record(z.string(), z.string()).optional(),
		/** By which the device was online last: other settings are tried beside it before it is given up. */
		lastWay: waySchema.nullable().default(null),
		/** By setting, what was used last of a file that the setting names, or the port: a start with a bad one goes on with it. Holds secrets. */
		lastPieces: z.record(z.string(), z.string()).default({}),
		/** The place whose Connections have opened channels, and the one whose were refused since, and how often. */
		nextConnection: z
			.object({
				baseUrl: z.string(),
				worked: z.string().nullable(),
				refused: z.string().nullable(),
				times: z.number(),
			})
			.nullable()
			.default(null),
		/** The way that the settings want and the device was not online by in time, by its id, and since when that is so. */
		refusedWay: z.object({ id: z.string(), at: z.string() }).nullable().default(null),
		/** Since when troubles of the settings that are told are so, by their names, ISO 8601. */
		dates: z.record(z.string(), z.string()).default({}),
		/** This device's part of the fleet plan. States that were written before there were plans have none. */
		plan: planRecordSchema.nullable().default(null),
		/** The newest time that the service has told, milliseconds since 1970: this device's clock cannot be right with an earlier one. */
		serviceTimeMs: z.number().nullable().default(null),
		/** How far this device's clock was ahead of it, milliseconds. */
		clockAheadMs: z.number().default(0),
		/** The credential of the settings that the service refused when another one had worked, by its id. */
		refusedCredential: z.object({ id: z.string(), baseUrl: z.string(), at: z.string() }).nullable().default(null),
		/** The last credential of the settings that has brought the device online, for its service only: as it is sent, a secret. */
		workedCredential: z.object({ id: z.string(), baseUrl: z.string(), sent: z.string() }).nullable().default(null),
		/** The id of the newest event when the agent was last stopped, with nothing left open; another one now tells of a crash since. */
		stoppedAfter: z.string().nullable().default(null),
		/** Events from before this time, in milliseconds since 1970, belong to a service that was left, and are still to be erased. */
		eraseBefore: z.number().nullable().default(null),
	}),
);
export type DeviceState = z.infer<typeof deviceStateSchema>;

/** A device that has never been paired. */
export const EMPTY_STATE: DeviceState = {
	schemaVersion: STATE_SCHEMA_VERSION,
	generatedId: null,
	identity: null,
	registeredOn: null,
	pairing: null,
	assignedWorkflow: null,
	connections: [],
	attempt: null,
	confirmedOrigins: [],
	lastSettings: null,
	lastWay: null,
	lastPieces: {},
	nextConnection: null,
	refusedWay: null,
	dates: {},
	plan: null,
	serviceTimeMs: null,
	clockAheadMs: 0,
	refusedCredential: null,
	workedCredential: null,
	stoppedAfter: null,
	eraseBefore: null,
};

/** The state with one more Connection. Where there is no room the first stays: it is the one the device was online with. */
export function withConnection(state: DeviceState, connection: SavedConnection): DeviceState {
	const others = state.connections.filter((saved) => saved.token !== connection.token);
	return { ...state, connections: [...others.slice(0, MAX_CONNECTIONS - 1), connection] };
}

/** The same for one that was issued to this machine; the machine is kept for as long as the id stays. */
export function withRegistration(state: DeviceState, connection: SavedConnection, on: Fingerprint): DeviceState {
	const before = state.connections.at(-1)?.request.deviceId ?? state.generatedId;
	const isSame = before === connection.request.deviceId && state.registeredOn !== null;
	return { ...withConnection(state, connection), registeredOn: isSame ? state.registeredOn : on };
}

/**
 * The state once the device is online with this Connection: without those that are older. A newer one stays: a link that is
 * still on its way holds it. A token that is not saved changes nothing.
 */
export function withOnlyConnection(state: DeviceState, token: string): DeviceState {
	const index = state.connections.findIndex((saved) => saved.token === token);
	const [live, ...newer] = state.connections.slice(Math.max(0, index));
	if (index < 0 || !live || (index === 0 && live.worked)) return state;
	const { said: _, ...good } = live;
	return { ...state, connections: [{ ...good, worked: true }, ...newer] };
}

/** The state with a workflow that is only meant to stay if it goes live. */
export function withTrial(state: DeviceState, tried: AssignedWorkflow): DeviceState {
	const { assignedWorkflow: now } = state;
	return { ...state, assignedWorkflow: { ...tried, before: now?.before === undefined ? now : now.before } };
}

/** The state after a trial: with its workflow for good, or with the one before. The same one if another workflow has been assigned since. */
export function withoutTrial(state: DeviceState, tried: AssignedWorkflow | null, isLive: boolean): DeviceState {
	if (state.assignedWorkflow !== tried || tried?.before === undefined) return state;
	const { before, ...kept } = tried;
	return { ...state, assignedWorkflow: isLive ? kept : before };
}

/**
 * Of which code the newest word is, whatever became of it: an answer that was set aside to the newest one (`kept`), one whose answer
 * is lost (`lost`), or one that was answered plainly (`settled`). @param keptId the attempt of the answer that was set aside.
 */
export function newestCode(attempt: DeviceState['attempt'], keptId?: string): 'kept' | 'lost' | 'settled' {
	if (!attempt || attempt.isPast) return 'settled';
	return attempt.attemptId === keptId ? 'kept' : 'lost';
}

/** The workflow that the device was online with last at this service; before that, the one that it was given. */
export function lastWorkflow(
	{ connections, assignedWorkflow }: Pick<DeviceState, 'connections' | 'assignedWorkflow'>,
	baseUrl: string | null,
): string | null {
	const live = connections.find((saved) => saved.baseUrl === baseUrl)?.request.workflowId;
	return live ?? assignedWorkflow?.workflowId ?? null;
}

/** Whether the state holds anything of a service other than this one. */
export function holdsOthers({ connections, confirmedOrigins }: DeviceState, baseUrl: string): boolean {
	const { origin } = new URL(baseUrl);
	return connections.some((saved) => saved.baseUrl !== baseUrl) || confirmedOrigins.some((other) => other !== origin);
}

/** The state with nothing of any service but this one. */
export function withOnlyService(state: DeviceState, baseUrl: string): DeviceState {
	const { origin } = new URL(baseUrl);
	return {
		...state,
		connections: state.connections.filter((saved) => saved.baseUrl === baseUrl),
		confirmedOrigins: state.confirmedOrigins.filter((other) => other === origin),
	};
}

/** The origins that a person has confirmed, with the newest of them; the oldest is forgotten first. */
export const withOrigin = (origins: readonly string[], origin: string): string[] =>
	[...origins, origin].slice(-MAX_ORIGINS);

/** Larger files are not kept: they are read again. */
const MAX_FILE_LENGTH = 64 * 1024;

/** The state with the way by which the device is online; the same one if it has it already. */
export function withLastWay(state: DeviceState, way: Way | undefined): DeviceState {
	if (!way || way.id === state.lastWay?.id) return state;
	const files = Object.fromEntries(Object.entries(way.files).filter(([, text]) => text.length <= MAX_FILE_LENGTH));
	return { ...state, lastWay: { ...way, files } };
}

/**
 * The state with what is known of a way that was refused: kept from its first refusal until another one is wanted, or none beside the
 * one in force. The same state if nothing of this has changed. @param refused by its id, now. @param at ISO 8601.
 */
export function withRefusedWay(
	state: DeviceState,
	{ refused, tried }: { readonly refused: string | null; readonly tried: string | null },
	at: string,
): DeviceState {
	const { refusedWay: before } = state;
	if (refused !== null && refused === tried && before?.id !== refused)
		return { ...state, refusedWay: { id: refused, at } };
	return before === null || before.id === tried ? state : { ...state, refusedWay: null };
}

/** The state with what is used of a setting's file, or its port; the same one if it has it already. @param text `null` where the setting names none. */
export function withLastPiece(state: DeviceState, setting: string, text: string | null): DeviceState {
	const { [setting]: before = null, ...others } = state.lastPieces;
	if (before === text) return state;
	return { ...state, lastPieces: text === null ? others : { ...others, [setting]: text } };
}

type Documents = readonly { readonly where: string; readonly document: unknown }[];

/** The state with the settings that were good enough to be used; the same one if it has them already. */
export function withLastSettings(
	state: DeviceState,
	{ documents, variables }: { readonly documents: Documents; readonly variables: Readonly<Record<string, string>> },
): DeviceState {
	const isTooLong = isTooLongToKeep([documents, variables]);
	const lastSettings = isTooLong ? [] : [...documents];
	const { lastVariables, ...others } = state;
	const kept = isTooLong || Object.keys(variables).length === 0 ? {} : { lastVariables: { ...variables } };
	const before = JSON.stringify([state.lastSettings, lastVariables]);
	const isUnchanged = JSON.stringify([lastSettings, kept.lastVariables]) === before;
	return isUnchanged ? state : { ...others, lastSettings, ...kept };
}
