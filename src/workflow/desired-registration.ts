/**
 * Which registration a device wants, from its settings, its state, its identity and its credentials; or why it can want
 * none. Pure; what becomes of the wish is `connection/supervisor.ts`.
 */

import { type Failure, failure } from '../base/errors.ts';
import type { DesiredRegistration } from '../connection/supervisor.ts';
import type { CompleteIdentity } from '../identity/identity.ts';
import type { DeviceConnectionRequest } from '../protocol/device-connection.ts';
import type { ResolvedSettings } from '../settings/resolve.ts';
import type { Settings } from '../settings/table.ts';
import type { DeviceState } from '../state/device-state.ts';
import {
	configuredWorkflow,
	type DesiredWorkflow,
	desiredWorkflow,
	type PlanTarget,
	plannedWorkflow,
} from './precedence.ts';

/** What is known of the credentials without holding them. */
export interface CredentialFacts {
	/** Names the credential; empty when there is none. */
	readonly id: string;
	/** Whether it may register any number of times. */
	readonly isReusable: boolean;
	/** Why the one that the settings name cannot be used. */
	readonly unreadable?: Failure | undefined;
}

/** Everything the wish depends on. */
export interface DesiredInputs {
	readonly resolved: ResolvedSettings;
	readonly state: DeviceState;
	readonly identity: CompleteIdentity;
	readonly credentials: CredentialFacts;
	/** What the fleet plan says, if there is one. */
	readonly plan: PlanTarget | null;
}

/** The workflow that the settings or the fleet plan fix, or `null`. */
export function fixedWorkflow(
	{ settings, origins }: ResolvedSettings,
	plan: PlanTarget | null,
): DesiredWorkflow | null {
	return configuredWorkflow(settings.workflowId, origins.get('workflowId')) ?? plannedWorkflow(plan);
}

/** The workflow that is wanted, and which source says so. */
export function chosenWorkflow(
	resolved: ResolvedSettings,
	state: DeviceState,
	plan: PlanTarget | null,
): DesiredWorkflow | null {
	return desiredWorkflow(fixedWorkflow(resolved, plan), state.assignedWorkflow);
}

/** The service this device belongs to, or would; `null` before anything names one. */
export function serviceOf(settings: Settings, state: DeviceState): string | null {
	return settings.baseUrl ?? state.pairing?.baseUrl ?? null;
}

/** Whether the device has anything to register or connect with. */
export function hasCredential({ state, credentials }: Pick<DesiredInputs, 'state' | 'credentials'>): boolean {
	return credentials.id !== '' || state.connections.length > 0;
}

/** Seconds between heartbeats: settings, if they say so; else the fleet plan; else the default. */
export function chosenCadence({ settings, origins }: ResolvedSettings, plan: PlanTarget | null): number {
	const isSet = (origins.get('heartbeatCadence')?.source ?? 'default') !== 'default';
	return isSet ? settings.heartbeatCadence : (plan?.heartbeatCadence ?? settings.heartbeatCadence);
}

/** What the device says of itself. */
function connectionRequest(
	{ resolved, plan, identity }: Pick<DesiredInputs, 'resolved' | 'plan' | 'identity'>,
	workflowId: string,
): DeviceConnectionRequest {
	const { deviceId, serial, macAddress } = identity;
	return {
		deviceId: deviceId.value,
		workflowId,
		...(serial.value === null ? {} : { serial: serial.value }),
		...(macAddress.value === null ? {} : { macAddress: macAddress.value }),
		deviceType: resolved.settings.deviceType,
		heartbeatCadence: chosenCadence(resolved, plan),
	};
}

/** The registration for a service and a workflow. */
export function registrationFor(context: DesiredInputs, baseUrl: string, workflowId: string): DesiredRegistration {
	const { settings } = context.resolved;
	return {
		baseUrl,
		request: connectionRequest(context, workflowId),
		credentialId: context.credentials.id,
		hasReusableCredential: context.credentials.isReusable,
		selfRegistration: settings.credential.selfRegistration,
	};
}

/**
 * What is wanted now. Neither a wish nor an obstacle means unpaired: nothing names a service, or there is nothing to
 * register with.
 */
export function desiredRegistration(context: DesiredInputs): {
	desired: DesiredRegistration | null;
	blocker: Failure | null;
} {
	const { resolved, state, identity } = context;
	const baseUrl = serviceOf(resolved.settings, state);
	if (baseUrl === null || !hasCredential(context))
		return { desired: null, blocker: context.credentials.unreadable ?? null };
	// In the name of another device nothing is sent at all.
	if (identity.cloned) {
		const [warning] = identity.warnings;
		return {
			desired: null,
			blocker: warning ?? failure('identity-changed', 'This is not the device that was paired.'),
		};
	}
	const workflow = chosenWorkflow(resolved, state, context.plan);
	if (!workflow) return { desired: null, blocker: failure('workflow-missing', 'No workflow is set for this device.') };
	return { desired: registrationFor(context, baseUrl, workflow.workflowId), blocker: null };
}
