/** The data of the supervision: the registration that is wanted, the links that there are, what happens to them and what follows. Pure data. */
import type { DeviceConnectionRequest } from '../protocol/device-connection.ts';
import type { Connection, LinkEffect, LinkEvent, LinkState } from './link.ts';
import { FULL_BUDGET, type RegistrationBudget } from './registration-budget.ts';

/** Everything that a registration depends on: a change of any of it makes a new link. */
export interface Registration {
	readonly baseUrl: string;
	readonly request: DeviceConnectionRequest;
	/** Names the reusable credential (a hash, never the credential); empty when there is none. */
	readonly credentialId: string;
	/** Names the way by which links go; absent until the device was online by one. */
	readonly way?: string | undefined;
}

/** The registration that is wanted and how it may be had. */
export interface DesiredRegistration extends Registration {
	readonly hasReusableCredential: boolean;
	readonly selfRegistration: boolean;
	/** The service at which the credential from before may be used; left out, there is none. */
	readonly earlierAt?: string;
	/** Whether a message of the service names its workflow. */
	readonly isMoved?: boolean;
}

/** A registration that was made before, and its Connection. */
export interface KnownConnection {
	readonly registration: Registration;
	readonly connection: Connection;
}

export interface Link {
	readonly generation: number;
	readonly registration: Registration;
	/** `renewal` and `pairing` make a link even though the registration stays the same. */
	readonly reason: 'desired' | 'renewal' | 'pairing';
	readonly state: LinkState;
	/** When the link before it has closed its channel for it, monotonic; absent before. */
	readonly roomAtMs?: number;
	/** The link that has left its place to this one, until a channel of this one has counted. */
	readonly before?: Link;
}

export interface Supervision {
	readonly desired: DesiredRegistration | null;
	/** The link that counts: the one the device is online with, or was last. */
	readonly current: Link | null;
	/** The link that takes its place as soon as it is online. */
	readonly next: Link | null;
	/** Rises with every link, never falls. */
	readonly lastGeneration: number;
	/** What bounds the pace at which this device registers. */
	readonly budget: RegistrationBudget;
}

export type SupervisorEvent =
	/** The wanted registration was looked at again; `known` are the Connections at hand, newest last. */
	| {
			readonly type: 'desiredChanged';
			readonly desired: DesiredRegistration | null;
			readonly known: readonly KnownConnection[];
			readonly atMs: number;
	  }
	/** A one-time code has brought a Connection. */
	| {
			readonly type: 'paired';
			readonly desired: DesiredRegistration;
			readonly connection: Connection;
			readonly atMs: number;
	  }
	| { readonly type: 'renewalDue'; readonly generation: number; readonly atMs: number }
	| { readonly type: 'retryRequested'; readonly atMs: number }
	/** Settings were loaded; where they bear on every failure (`settings-bearing.ts`) all waits end. Online links stay as they are. */
	| { readonly type: 'settingsChanged'; readonly bears: boolean; readonly atMs: number }
	| { readonly type: 'stopRequested'; readonly atMs: number }
	| { readonly type: 'link'; readonly generation: number; readonly event: LinkEvent };

export type SupervisorEffect =
	| {
			readonly type: 'link';
			readonly generation: number;
			readonly registration: Registration;
			readonly effect: LinkEffect;
	  }
	/** The link is over: nothing of it may be left running. */
	| { readonly type: 'linkEnded'; readonly generation: number }
	/** The link is online and the one that counts. */
	| { readonly type: 'linkPromoted'; readonly generation: number; readonly connection: Connection }
	/** Renew the Connection of this link at this monotonic time. */
	| { readonly type: 'renewAt'; readonly generation: number; readonly atMs: number };

export interface SupervisorStep {
	readonly supervision: Supervision;
	readonly effects: readonly SupervisorEffect[];
}

export const NOTHING_SUPERVISED: Supervision = {
	desired: null,
	current: null,
	next: null,
	lastGeneration: 0,
	budget: FULL_BUDGET,
};

/** A Connection is renewed when this share of its life is over, plus a random part of the spread. */
export const RENEW_AFTER = 0.8;
/** So that devices which were paired together do not renew together. */
export const RENEW_SPREAD = 0.05;
/** The least time until a renewal is considered again, while nothing comes of it. */
export const RENEW_AGAIN_MS = 60_000;

/** A renewal that waits is tried so long before the end of the Connection as well: after it there may be nothing to register with. */
export const LAST_RENEWALS_MS = [8000, 2500] as const;

/** WebSocket close codes that the agent itself sends. */
export const CLOSE_CODES = { done: 1000, goingAway: 1001 } as const;

/** Whether a link of one registration is what the other asks for: a Connection serves by any way, a link goes by one. */
export function isSameLink(made: Registration, desired: Registration): boolean {
	return isSameWay(made, desired) && servesRegistration(made, desired);
}

/** What does not name its way goes by the one that there is. */
export function isSameWay(one: Registration, other: Registration): boolean {
	return one.way === undefined || other.way === undefined || one.way === other.way;
}

/** Whether a Connection made for one registration serves the other. */
export function servesRegistration(made: Registration, desired: Registration): boolean {
	const keys = ['deviceId', 'workflowId', 'serial', 'macAddress', 'deviceType', 'heartbeatCadence'] as const;
	return (
		made.baseUrl === desired.baseUrl &&
		keys.every((key) => made.request[key] === desired.request[key]) &&
		// A credential that was taken away does not take away what was obtained with it.
		(desired.credentialId === '' || made.credentialId === desired.credentialId)
	);
}

/**
 * The saved Connection to start with where none that fits has worked. By a credential, or at an address, that never brought the device
 * online it is not started alone. @param isFitting whether there is one for what is desired.
 */
export function provenBefore(
	desired: Registration,
	known: readonly KnownConnection[],
	isFitting: boolean,
): KnownConnection | undefined {
	const proven = known.filter(({ connection }) => connection.worked);
	const isAt = (address: string) => proven.some(({ registration: { baseUrl } }) => baseUrl === address);
	const isOther = ({ baseUrl, credentialId }: Registration) =>
		baseUrl !== desired.baseUrl || credentialId !== desired.credentialId;
	if (isFitting) return proven.find(({ registration }) => isOther(registration));
	return known.findLast(({ registration }) => isAt(registration.baseUrl)) ?? known.at(-1);
}

/** The same; a Connection that came just before this start is as good as the one before it, with which the device was online by the same settings. */
export function asKnown(saved: KnownConnection, known: readonly KnownConnection[]): KnownConnection {
	const isLike = ({ registration: one, connection: { worked } }: KnownConnection, { registration: other } = saved) =>
		worked && one.baseUrl === other.baseUrl && one.credentialId === other.credentialId && isSameWay(one, other);
	const worked = known.some((one) => isLike(one));
	return worked ? { ...saved, connection: { ...saved.connection, worked } } : saved;
}

/**
 * A registration goes back to the reusable credential that it was made with, and to no other; also while another service is
 * tried with the same one, or the device could not come back to the one from before.
 */
export function mayUseReusable(registration: Registration, desired: DesiredRegistration | null): boolean {
	return desired?.hasReusableCredential === true && desired.credentialId === registration.credentialId;
}

/** It is only for the service at which it has worked. */
export function mayUseEarlier({ baseUrl }: Registration, desired: DesiredRegistration | null): boolean {
	return desired?.earlierAt === baseUrl;
}
