/**
 * The one rule for which workflow a device is meant to run: settings, if they name one; else the fleet plan; else the
 * newest of pairing, `workflow set` and a message from the service. A lower source never overrides a higher one.
 */

import type { SettingOrigin } from '../settings/resolve.ts';
import type { AssignedWorkflow } from '../state/device-state.ts';

/** What the fleet plan says to this device now. */
export interface PlanTarget {
	readonly revision: number;
	/** The rule that fits; `null` for the plan's defaults. */
	readonly rule: string | null;
	/** `null` leaves it to the sources below. */
	readonly workflowId: string | null;
	readonly heartbeatCadence: number | null;
}

export type WorkflowSource = 'flag' | 'environment' | 'file' | 'plan' | AssignedWorkflow['source'];

export interface DesiredWorkflow {
	readonly workflowId: string;
	readonly source: WorkflowSource;
	/** The file, variable or revision that decides, for messages. */
	readonly where: string | null;
}

/** What the settings say, or `null` when they leave the workflow open. */
export function configuredWorkflow(
	workflowId: string | null,
	origin: SettingOrigin | undefined,
): DesiredWorkflow | null {
	if (workflowId === null || !origin || origin.source === 'default') return null;
	return { workflowId, source: origin.source, where: origin.where };
}

/** What the fleet plan says, or `null` when it leaves the workflow open. */
export function plannedWorkflow(plan: PlanTarget | null): DesiredWorkflow | null {
	if (!plan || plan.workflowId === null) return null;
	const rule = plan.rule === null ? 'its defaults' : `rule ${plan.rule}`;
	return { workflowId: plan.workflowId, source: 'plan', where: `revision ${plan.revision}, ${rule}` };
}

/** The workflow that is wanted; `null` when no source names one. */
export function desiredWorkflow(
	configured: DesiredWorkflow | null,
	assigned: AssignedWorkflow | null,
): DesiredWorkflow | null {
	if (configured) return configured;
	return assigned ? { workflowId: assigned.workflowId, source: assigned.source, where: null } : null;
}

/** `workflowId in /etc/idv-agent/config.json`: the source as a person would look for it. */
export function describeSource(desired: DesiredWorkflow): string {
	switch (desired.source) {
		case 'flag':
			return 'the command line (--set workflowId)';
		case 'environment':
			return `the environment (${desired.where ?? 'IDV_AGENT_WORKFLOW_ID'})`;
		case 'file':
			return `the settings (workflowId in ${desired.where ?? 'a file'})`;
		case 'plan':
			return desired.where === null ? 'the fleet plan' : `the fleet plan (${desired.where})`;
		default:
			return desired.source;
	}
}
