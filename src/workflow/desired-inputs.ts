/** The inputs by which it is decided which registration a device should have, and what one answer hands to the next question. */
import type { Failure } from '../base/errors.ts';
import type { Supervision } from '../connection/supervisor.ts';
import { NO_ATTEMPT, type PlanAttempt } from '../fleet/attempt.ts';
import type { PlanTarget } from '../fleet/record.ts';
import type { CompleteIdentity } from '../identity/identity.ts';
import type { ResolvedSettings } from '../settings/resolve.ts';
import type { DeviceState } from '../state/device-state.ts';
import type { PlanRecord } from '../state/plan-record.ts';
import type { Change } from './deferral.ts';
import type { Leases } from './leases.ts';

/** What is known of the credentials without holding them. */
export interface CredentialFacts {
	/** Names the credential; empty when there is none. */
	readonly id: string;
	/** Whether it may register any number of times. */
	readonly isReusable: boolean;
	/** Whether it is a Connection that an operator made for this device. */
	readonly isProvisioned: boolean;
	/** Why the one that the settings name cannot be used. */
	readonly unreadable?: Failure | undefined;
}

/** What the device is configured to be and to do. */
export interface RegistrationInputs {
	readonly resolved: ResolvedSettings;
	readonly state: DeviceState;
	readonly identity: CompleteIdentity;
	readonly credentials: CredentialFacts;
	/** The word of the fleet plan, if there is one. */
	readonly plan: PlanTarget | null;
	/** Names the way that the settings want; left out before the device was online by any. */
	readonly way?: string | undefined;
}

/** Changes that take their time: what an answer hands to the next question. */
export interface Progress {
	/** The workflow change that has not been made yet. */
	readonly change: Change | null;
	/** The device's try to do as the plan says, under way or given up for now. */
	readonly attempt: PlanAttempt;
	/** The same for the way out as the settings have it. */
	readonly way: PlanAttempt;
	/** Names the credential that has failed alone: from then on it is tried with all else that is demanded. */
	readonly credential: string;
	/** The same for what does not bear on the way out; empty while that has not failed. */
	readonly request: string;
}

export const NO_PROGRESS: Progress = {
	change: null,
	attempt: NO_ATTEMPT,
	way: NO_ATTEMPT,
	credential: '',
	request: '',
};

export interface DesiredInputs extends Omit<RegistrationInputs, 'plan'> {
	readonly plan: PlanRecord | null;
	readonly leases: Leases;
	readonly supervision: Supervision;
	/** Of the last answer. */
	readonly before: Progress;
	/** Monotonic. */
	readonly nowMs: number;
	/** The device's clock, milliseconds since 1970. */
	readonly wallMs: number;
	readonly random: () => number;
}
