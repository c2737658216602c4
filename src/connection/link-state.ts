/** The data of one link: its credentials, its states and what can be read of one, what happens to it and what follows. */
import type { Failure } from '../base/errors.ts';
import type { Authorization } from '../protocol/authorization.ts';
import type { Backoff } from './backoff.ts';

/** A Connection token and what is known of its life. Times are monotonic milliseconds. */
export interface Connection {
	/** Secret. */
	readonly token: string;
	readonly obtainedAtMs: number;
	/** How long it is valid in all, where the token says so. */
	readonly lifeMs: number | null;
	/** Whether the device was online with it before this start. */
	readonly worked?: boolean;
	/** The place that has named it on a channel, as `service.nextConnection` has it; left out, it was registered. */
	readonly from?: string | undefined;
	/** How its registration was refused, in an answer that has it: told where its channel is refused before one has counted. */
	readonly said?: Failure | undefined;
	/** Whether another link has been online meanwhile, or has registered for it: it is saved again once the device is online with it. */
	readonly savedAgain?: boolean;
}

/** The credentials of a device, in the order in which it is tried. */
export type Credential =
	| { readonly kind: 'reusable' }
	/** A reusable one that has worked, and was replaced by one that has not. */
	| { readonly kind: 'earlier' }
	| { readonly kind: 'connection'; readonly token: string }
	| { readonly kind: 'selfRegistration' };

export interface Entered {
	/** When this state was entered, monotonic. */
	readonly sinceMs: number;
	readonly attempt: number;
	readonly backoff: Backoff;
	/** In the order in which they are tried; the same for the whole life of the link. */
	readonly credentials: readonly Credential[];
	/** When the channel was last known to be online, monotonic; `null` before the first time. */
	readonly onlineAtMs: number | null;
}
export interface Trying {
	/** The last failure, so that the reason is known while the next attempt is under way; `null` before the first failure. */
	readonly failure: Failure | null;
}
export interface Waiting {
	/** Why it waits. */
	readonly failure: Failure;
	/** When it goes on, monotonic. */
	readonly untilMs: number;
}

export type LinkState =
	| (Entered &
			Trying & {
				readonly name: 'registering';
				readonly credentialIndex: number;
				readonly connection: Connection | null;
			})
	| (Entered & Waiting & { readonly name: 'registerWait'; readonly connection: Connection | null })
	| (Entered & Trying & { readonly name: 'connecting'; readonly connection: Connection })
	| (Entered & { readonly name: 'online'; readonly connection: Connection })
	| (Entered & Waiting & { readonly name: 'connectWait'; readonly connection: Connection })
	| (Entered &
			Waiting & {
				readonly name: 'blocked';
				readonly next: 'register' | 'connect';
				readonly connection: Connection | null;
			})
	| { readonly name: 'closed'; readonly sinceMs: number; readonly attempt: number };

export type LinkEvent = { readonly atMs: number } & (
	| { readonly type: 'registered'; readonly attempt: number; readonly connection: Connection }
	| {
			readonly type: 'registerFailed';
			readonly attempt: number;
			readonly failure: Failure;
			readonly timedOut: boolean;
			/** Whether it is certain that the request did not reach the service. Default `false`. */
			readonly unsent?: boolean;
			/** Whether another address of the service's name was not tried yet. */
			readonly hasOther?: boolean;
			/** Whether what another link shows outweighs the failure: see `backoff.ts`. */
			readonly wasOnline?: boolean;
	  }
	| { readonly type: 'channelConfirmed'; readonly attempt: number }
	| {
			readonly type: 'channelEnded';
			readonly attempt: number;
			readonly failure: Failure;
			readonly timedOut: boolean;
			readonly closeCode: number | null;
			readonly wasOnline?: boolean;
			readonly hasOther?: boolean;
			/** Whether it had been open. Default: whether it ended with a close code. */
			readonly wasOpen?: boolean;
			/** For how long. */
			readonly openMs?: number | undefined;
			/** Whether another link gets a new Connection already: this one only tries its own once more. */
			readonly isFollowed?: boolean;
			/** The channel is tried again after this, whatever ended it: there is room for one only. */
			readonly againInMs?: number;
			/** Whether it has outlived the idle timeout that cut the channels before it: then it was stable. */
			readonly outlived?: boolean;
	  }
	| { readonly type: 'timerFired'; readonly attempt: number }
	| { readonly type: 'connectionRevoked' }
	/** The service has handed out the one for the next handshake. */
	| { readonly type: 'connectionChanged'; readonly connection: Connection }
	/** The service permits one channel only, and another link wants it: this one comes back if that one does not succeed in time. */
	| { readonly type: 'roomWanted'; readonly failure: Failure }
	| { readonly type: 'retryRequested' }
	/** Settings were loaded. Where they bear on every failure, what failed before says nothing any more. */
	| { readonly type: 'settingsChanged'; readonly bears: boolean }
	| { readonly type: 'closeRequested'; readonly code: number }
);

export type LinkEffect =
	| { readonly type: 'register'; readonly attempt: number; readonly credential: Credential }
	| { readonly type: 'keepConnection'; readonly connection: Connection }
	| {
			readonly type: 'openChannel';
			readonly attempt: number;
			readonly token: string;
			readonly handshakeMs: number;
			readonly provesByAge?: boolean;
			/** By which age; left out, the usual one. */
			readonly proveAfterMs?: number | undefined;
	  }
	| { readonly type: 'closeChannel'; readonly code: number }
	| { readonly type: 'wait'; readonly attempt: number; readonly delayMs: number };

export interface Step {
	readonly state: LinkState;
	readonly effects: readonly LinkEffect[];
}

/** When it was last online, monotonic; `null` for never. */
export function lastOnlineAtMs(state: LinkState, nowMs: number): number | null {
	if (state.name === 'closed') return null;
	return state.name === 'online' ? nowMs : state.onlineAtMs;
}

export function connectionOf(state: LinkState): Connection | null {
	return state.name === 'closed' ? null : state.connection;
}

/** How a credential is sent; `null` without any. */
export function authorizationFor(
	credential: Credential,
	reusable: Authorization | null,
	earlier: () => Authorization | null,
): Authorization | null {
	switch (credential.kind) {
		case 'reusable':
			return reusable;
		case 'earlier':
			return earlier();
		case 'connection':
			return { scheme: 'Connection', credential: credential.token };
		case 'selfRegistration':
			return null;
	}
}
