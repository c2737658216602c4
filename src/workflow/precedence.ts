/**
 * The one rule for which workflow a device is meant to run: settings, if they name one; else the fleet plan; else the
 * newest of pairing, `workflow set` and a message from the service. A lower source never overrides a higher one.
 */

import type { PlanTarget } from '../fleet/record.ts';
import type { ResolvedSettings, SettingOrigin } from '../settings/resolve.ts';
import type { AssignedWorkflow, DeviceState } from '../state/device-state.ts';

export type WorkflowSource = 'flag' | 'environment' | 'file' | 'plan' | AssignedWorkflow['source'];

export interface DesiredWorkflow {
	readonly workflowId: string;
	readonly source: WorkflowSource;
	/** The file, variable or revision that decides, for messages. */
	readonly where: string | null;
}

/** The workflow of the settings, or `null` when they leave it open. */
export function configuredWorkflow(
	workflowId: string | null,
	origin: SettingOrigin | undefined,
): DesiredWorkflow | null {
	if (workflowId === null || !origin || origin.source === 'default') return null;
	return { workflowId, source: origin.source, where: origin.where };
}

/** The workflow of the fleet plan, or `null` when it leaves it open. */
function plannedWorkflow(plan: PlanTarget | null): DesiredWorkflow | null {
	if (!plan || plan.workflowId === null) return null;
	const rule = plan.rule === null ? 'its defaults' : `rule ${plan.rule}`;
	return { workflowId: plan.workflowId, source: 'plan', where: `revision ${plan.revision}, ${rule}` };
}

/** The desired workflow; `null` when no source names one. */
export function desiredWorkflow(
	configured: DesiredWorkflow | null,
	assigned: AssignedWorkflow | null,
): DesiredWorkflow | null {
	if (configured) return configured;
	return assigned ? { workflowId: assigned.workflowId, source: assigned.source, where: null } : null;
}

/** The workflow that the settings or the fleet plan fix, or `null`. */
export function fixedWorkflow(
	{ settings, origins }: ResolvedSettings,
	plan: PlanTarget | null,
): DesiredWorkflow | null {
	return configuredWorkflow(settings.workflowId, origins.get('workflowId')) ?? plannedWorkflow(plan);
}

/** The desired workflow, and which source names it. */
export function chosenWorkflow(
	resolved: ResolvedSettings,
	state: Pick<DeviceState, 'assignedWorkflow'>,
	plan: PlanTarget | null,
): DesiredWorkflow | null {
	return desiredWorkflow(fixedWorkflow(resolved, plan), state.assignedWorkflow);
}

/** Seconds between heartbeats: settings, if they name them; else the fleet plan; else the default. */
export function chosenCadence({ settings, origins }: ResolvedSettings, plan: PlanTarget | null): number {
	const isSet = (origins.get('heartbeatCadence')?.source ?? 'default') !== 'default';
	return isSet ? settings.heartbeatCadence : (plan?.heartbeatCadence ?? settings.heartbeatCadence);
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
