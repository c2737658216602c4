/**
 * Connection tokens on their way between the wire, a link and the disk: what is kept of each, how old it is and how long it
 * lives. Validates no token: the life that a token states is only a hint for renewing in time.
 */
import { type Clock, isoNow } from '../base/clock.edge.ts';
import { failure } from '../base/errors.ts';
import { readTokenLife, type TokenLife } from '../protocol/token-life.ts';
import type { Credentials } from '../settings/credentials.runner.ts';
import type { Settings } from '../settings/table.ts';
import { type Fingerprint, type SavedConnection, withRegistration } from '../state/device-state.ts';
import type { PersistedState } from '../state/persisted-state.runner.ts';
import type { DeviceTime } from './device-time.runner.ts';
import { type Connection, connectionOf } from './link.ts';
import { type KnownConnection, RENEW_AFTER, RENEW_SPREAD, type Registration, type Supervision } from './supervision.ts';

/** The service in use and the Connection by which it knows the device: a secret. `null` while there is none. */
export function accessOf({ current }: Supervision): { readonly baseUrl: string; readonly token: string } | null {
	const connection = current && connectionOf(current.state);
	return connection ? { baseUrl: current.registration.baseUrl, token: connection.token } : null;
}

/** What the settings say of a Connection that does not state its life: `service.connectionLifeSeconds`. */
type StatedLife = Pick<Settings['service'], 'connectionLifeSeconds'>;

/** A Connection that was issued a moment ago. */
export function freshConnection(
	issued: Pick<Connection, 'token' | 'said'> & { readonly life: TokenLife | null },
	clock: Pick<Clock, 'monotonicMs' | 'wallMs'>,
	stated: StatedLife,
): Connection {
	const lifeMs = lifeFrom(issued.life, clock.wallMs(), stated);
	return { token: issued.token, obtainedAtMs: clock.monotonicMs(), lifeMs, ...(issued.said && { said: issued.said }) };
}

/** A saved Connection with its age by the clock now; a clock that runs backwards makes it no younger than new. */
export function knownConnection(
	{ baseUrl, request, credentialId, token, obtainedAt, worked, from, said }: SavedConnection,
	clock: Pick<Clock, 'monotonicMs' | 'wallMs'>,
	stated: StatedLife,
): KnownConnection {
	const obtainedAtWallMs = Date.parse(obtainedAt);
	const lifeMs = lifeFrom(readTokenLife(token), obtainedAtWallMs, stated);
	const ageMs = Math.max(0, clock.wallMs() - obtainedAtWallMs);
	const obtainedAtMs = clock.monotonicMs() - Math.min(ageMs, lifeMs ?? 0);
	const connection = { token, obtainedAtMs, lifeMs, ...(worked === true && { worked }), from, said: refusalOf(said) };
	return { registration: { baseUrl, request, credentialId }, connection };
}

/** As {@link Connection} has it: only its words are told. */
const refusalOf = (said: SavedConnection['said']) => said && failure('request-rejected', said.message, said);

/**
 * Since when an operator's Connection is valid, ISO 8601: it may have lain in its file for most of its life. One that does not say when it
 * was issued is as old as one that is renewed at once.
 */
export function provisionedSince(token: string, wallMs: number, { connectionLifeSeconds }: StatedLife): string {
	const life = readTokenLife(token);
	const agedMs = life ? 0 : (connectionLifeSeconds ?? 0) * 1000 * (RENEW_AFTER + RENEW_SPREAD);
	const issuedAtMs = (life?.issuedAtSeconds ?? Number.POSITIVE_INFINITY) * 1000;
	return new Date(Math.min(issuedAtMs, wallMs - agedMs)).toISOString();
}

/** From `iat` to `exp`, else from when it was obtained, else as the settings say; `null` when nothing is known. */
function lifeFrom(
	life: TokenLife | null,
	obtainedAtWallMs: number,
	{ connectionLifeSeconds }: StatedLife,
): number | null {
	if (!life) return connectionLifeSeconds === null ? null : connectionLifeSeconds * 1000;
	const sinceMs = life.issuedAtSeconds === null ? obtainedAtWallMs : life.issuedAtSeconds * 1000;
	const lifeMs = life.expiresAtSeconds * 1000 - sinceMs;
	// By a wrong clock it may have ended long ago; then nothing is known of its life.
	return lifeMs > 0 ? lifeMs : null;
}

export type Issued = Pick<Connection, 'token' | 'from' | 'said'>;

export interface Connections {
	/** The saved ones, newest last. */
	known(): readonly KnownConnection[];
	/** One that has just been issued, as it is saved. From now on neither it nor the credential behind it is ever printed. */
	toSaved(registration: Registration, issued: Issued): SavedConnection;
	/** Saves one that has just been issued. */
	keep(registration: Registration, issued: Issued): void;
	/** Saves an operator's Connection, which is for the registration that is desired when it is first seen. */
	adopt(desired: Registration): void;
}

export function keepConnections(parts: {
	readonly clock: Pick<Clock, 'monotonicMs'>;
	readonly time: Pick<DeviceTime, 'best'>;
	readonly stateWriter: Pick<PersistedState, 'state' | 'keep'>;
	/** As they are now. */
	readonly credentials: () => Credentials;
	readonly settings: () => Pick<Settings, 'service'>;
	readonly identity: { readonly now: { readonly fingerprint: Fingerprint } };
}): Connections {
	const { stateWriter } = parts;
	/** By the service's time, where this device's clock is wrong. */
	const clock = { monotonicMs: parts.clock.monotonicMs, wallMs: () => parts.time.best().ms };

	function saved({ baseUrl, request, credentialId }: Registration, token: string, obtainedAt: string): SavedConnection {
		return { baseUrl, request, credentialId, token, obtainedAt };
	}

	const toSaved: Connections['toSaved'] = (registration, { token, from, said }) => ({
		...saved(registration, token, isoNow(clock)),
		...(from !== undefined && { from }),
		...(said && { said: { message: said.message, remedy: said.remedy, params: said.params ?? {} } }),
	});

	return {
		known: () =>
			stateWriter.state.connections.map((saved) => {
				const known = knownConnection(saved, clock, parts.settings().service);
				const way = stateWriter.state.lastWay?.id;
				return way === undefined ? known : { ...known, registration: { ...known.registration, way } };
			}),
		toSaved,
		keep(registration, issued) {
			const connection = toSaved(registration, issued);
			stateWriter.keep((state) => withRegistration(state, connection, parts.identity.now.fingerprint));
		},
		adopt(desired) {
			const { provisioned } = parts.credentials();
			if (provisioned === null) return;
			const connection = saved(
				desired,
				provisioned,
				provisionedSince(provisioned, clock.wallMs(), parts.settings().service),
			);
			stateWriter.keep((state) => withRegistration(state, connection, parts.identity.now.fingerprint));
		},
	};
}
