/**
 * The one rule for which workflow a device is meant to run: settings, if they name one; else the fleet plan; else the
 * newest of pairing, `workflow set` and a message from the service. A lower source never overrides a higher one.
 */
import type { PlanTarget } from '../fleet/record.ts';
import type { ResolvedSettings } from '../settings/resolve.ts';
import type { AssignedWorkflow, DeviceState } from '../state/device-state.ts';

export type WorkflowSource = 'flag' | 'environment' | 'file' | 'plan' | AssignedWorkflow['source'];

export interface DesiredWorkflow {
	readonly workflowId: string;
	readonly source: WorkflowSource;
	/** The file, variable or revision that decides, for messages. */
	readonly where: string | null;
}

interface WorkflowSetting extends Pick<ResolvedSettings, 'origins'> {
	readonly settings: Pick<ResolvedSettings['settings'], 'workflowId'>;
}

/** The workflow that the settings or the fleet plan fix; `null` when both leave it open. */
export function fixedWorkflow({ settings, origins }: WorkflowSetting, plan: PlanTarget | null): DesiredWorkflow | null {
	const { source = 'default', where = null } = origins.get('workflowId') ?? {};
	if (settings.workflowId !== null && source !== 'default') return { workflowId: settings.workflowId, source, where };
	if (!plan || plan.workflowId === null) return null;
	const rule = plan.rule === null ? 'its defaults' : `rule ${plan.rule}`;
	return { workflowId: plan.workflowId, source: 'plan', where: `revision ${plan.revision}, ${rule}` };
}

/** The desired workflow, and which source names it; `null` when none does. */
export function chosenWorkflow(
	resolved: WorkflowSetting,
	{ assignedWorkflow }: Pick<DeviceState, 'assignedWorkflow'>,
	plan: PlanTarget | null,
): DesiredWorkflow | null {
	const fixed = fixedWorkflow(resolved, plan);
	if (fixed || !assignedWorkflow) return fixed;
	return { workflowId: assignedWorkflow.workflowId, source: assignedWorkflow.source, where: null };
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
