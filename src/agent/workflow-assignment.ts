/**
 * Assigns the workflow: by command and by message of the service, both refused where the settings name one
 * (`core/workflow.ts` has the rule). Moves no link; who asked pursues what is wanted now.
 */
import type { AssignedWorkflow } from '../core/device-state.ts';
import { AgentError, failure } from '../core/errors.ts';
import { chosenWorkflow, fixedWorkflow } from '../core/wanting.ts';
import { describeSource, type PlanTarget, type WantedWorkflow } from '../core/workflow.ts';
import type { Log } from '../edges/log.ts';
import { type Clock, isoNow } from './clock.ts';
import type { DeviceRecord } from './device-record.ts';
import type { Environment } from './environment.ts';
import type { Warnings } from './warnings.ts';

export interface WorkflowAssignment {
	/** The workflow that is wanted, and which source says so. */
	chosen(): WantedWorkflow | null;
	/** @throws AgentError `workflow-fixed` when the settings name another one. */
	checkFree(workflowId: string): void;
	/** For a workflow that is free. @throws AgentError `state-unwritable`. */
	set(workflowId: string): Promise<void>;
	/** Takes the service at its word; where the settings say otherwise it becomes a warning. */
	follow(workflowId: string): void;
}

export function assignWorkflows(parts: {
	readonly clock: Clock;
	readonly log: Log;
	readonly device: DeviceRecord;
	readonly warnings: Warnings;
	readonly environment: () => Environment;
	readonly plan: () => PlanTarget | null;
}): WorkflowAssignment {
	const { clock, log, device, warnings } = parts;
	const fixed = () => fixedWorkflow(parts.environment().resolved, parts.plan());
	const chosen = () => chosenWorkflow(parts.environment().resolved, device.state, parts.plan());
	const assigned = (workflowId: string, source: AssignedWorkflow['source']): AssignedWorkflow => ({
		workflowId,
		source,
		at: isoNow(clock),
	});

	return {
		chosen,
		checkFree(workflowId) {
			const inForce = fixed();
			if (!inForce || inForce.workflowId === workflowId) return;
			const message = `Workflow ${inForce.workflowId} is set by ${describeSource(inForce)}.`;
			throw new AgentError('workflow-fixed', message, { remedy: 'Change it there; nothing else may override it.' });
		},
		async set(workflowId) {
			if (!fixed() && device.state.assignedWorkflow?.workflowId !== workflowId)
				await device.record((state) => ({ ...state, assignedWorkflow: assigned(workflowId, 'workflow set') }));
			log.info('workflow set', { workflowId });
		},
		follow(workflowId) {
			const inForce = fixed();
			if (inForce && inForce.workflowId !== workflowId) {
				const message = `The service asked for workflow ${workflowId}, but ${describeSource(inForce)} sets ${inForce.workflowId}.`;
				warnings.set('workflow', failure('workflow-fixed', message));
				return;
			}
			warnings.set('workflow', null);
			if (chosen()?.workflowId === workflowId) return;
			log.info('the service changed the workflow', { workflowId });
			device.keep((state) => ({ ...state, assignedWorkflow: assigned(workflowId, 'service message') }));
		},
	};
}
