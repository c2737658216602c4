/** Assigns the workflow: by command and by message of the service, both refused where the settings name one. */
import { type Clock, isoNow } from '../base/clock.edge.ts';
import { AgentError, failure } from '../base/errors.ts';
import type { Log } from '../base/log.edge.ts';
import type { Warnings } from '../base/warnings.ts';
import type { Runtime } from '../connection/runtime.runner.ts';
import type { PlanTarget } from '../fleet/record.ts';
import { type AssignedWorkflow, withoutTrial, withTrial } from '../state/device-state.ts';
import type { PersistedState } from '../state/persisted-state.runner.ts';
import { chosenWorkflow, type DesiredWorkflow, describeSource, fixedWorkflow } from './precedence.ts';

export type WorkflowAssignment = ReturnType<typeof assignWorkflows>;

export function assignWorkflows(parts: {
	readonly clock: Clock;
	readonly log: Log;
	readonly stateWriter: PersistedState;
	readonly warnings: Warnings;
	readonly runtime: () => Runtime;
	readonly plan: () => PlanTarget | null;
}) {
	const { clock, log, stateWriter, warnings } = parts;
	const fixed = () => fixedWorkflow(parts.runtime().resolved, parts.plan());
	const chosen = (): DesiredWorkflow | null =>
		chosenWorkflow(parts.runtime().resolved, stateWriter.state, parts.plan());
	const assigned = (workflowId: string, source: AssignedWorkflow['source']): AssignedWorkflow => ({
		workflowId,
		source,
		at: isoNow(clock),
	});

	/** The workflow that is tried, and how many wait for it. */
	let trial = null as {
		readonly tried: AssignedWorkflow | null;
		readonly saved: Promise<void>;
		callers: number;
	} | null;
	const isTrial = () => !fixed() && stateWriter.state.assignedWorkflow?.before !== undefined;
	const isAssigned = (workflowId: string) =>
		stateWriter.state.assignedWorkflow?.workflowId === workflowId && !isTrial();

	return {
		chosen,
		/** @throws AgentError `workflow-fixed` when the settings name another one. */
		checkFree(workflowId: string) {
			const inForce = fixed();
			if (!inForce || inForce.workflowId === workflowId) return;
			const message = `Workflow ${inForce.workflowId} is set by ${describeSource(inForce)}.`;
			throw new AgentError('workflow-fixed', message, {
				params: { workflowId: inForce.workflowId },
				remedy: 'Change it there; nothing else may override it.',
			});
		},
		/** For a workflow that is free. @throws AgentError `state-unwritable`. */
		async set(workflowId: string) {
			if (!fixed() && !isAssigned(workflowId))
				await stateWriter.record((state) => ({ ...state, assignedWorkflow: assigned(workflowId, 'workflow set') }));
			log.info('workflow set', { workflowId });
		},
		/**
		 * As `set`, until the returned function is told whether it went live: if not, nothing of it stays, unless another source
		 * has assigned a workflow since or another caller still waits for the same one.
		 * @throws AgentError `state-unwritable`, as the returned function does.
		 */
		async try(workflowId: string): Promise<(isLive: boolean) => Promise<void>> {
			if (fixed() || isAssigned(workflowId)) return async () => {};
			if (!trial || trial.tried !== stateWriter.state.assignedWorkflow || trial.tried?.workflowId !== workflowId) {
				const saved = stateWriter.record((state) => withTrial(state, assigned(workflowId, 'workflow set')));
				trial = { tried: stateWriter.state.assignedWorkflow, saved, callers: 0 };
			}
			const mine = trial;
			const { tried } = mine;
			mine.callers += 1;
			await mine.saved;
			return async (isLive) => {
				mine.callers -= 1;
				if (!isLive && mine.callers > 0) return;
				if (!isLive) return stateWriter.keep((state) => withoutTrial(state, tried, false));
				await stateWriter.record((state) => withoutTrial(state, tried, true));
				log.info('workflow set', { workflowId });
			};
		},
		/** Assigns what the service asks for; where the settings name another workflow it becomes a warning. */
		follow(workflowId: string) {
			const inForce = fixed();
			if (inForce && inForce.workflowId !== workflowId) {
				const message = `The service asked for workflow ${workflowId}, but ${describeSource(inForce)} sets ${inForce.workflowId}.`;
				const params = { workflowId: inForce.workflowId, otherWorkflowId: workflowId };
				return warnings.set('workflow', failure('workflow-fixed', message, { params }));
			}
			warnings.set('workflow', null);
			if (chosen()?.workflowId === workflowId && !isTrial()) return;
			log.info('the service changed the workflow', { workflowId });
			stateWriter.keepPaced((state) => ({ ...state, assignedWorkflow: assigned(workflowId, 'service message') }));
		},
	};
}
