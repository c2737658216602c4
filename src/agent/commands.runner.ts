/**
 * The commands of a person or a program to the running agent: unpair, accept the identity, set the workflow, reconnect, other
 * settings. Checks whether it may be done now, changes the state, and has the device reconciled; opens nothing.
 */

import { isoNow } from '../base/clock.edge.ts';
import { AgentError } from '../base/errors.ts';
import type { Line } from '../connection/line.runner.ts';
import type { Fleet } from '../fleet/follow-plan.runner.ts';
import { acceptedIdentity, toReport } from '../identity/identity.ts';
import type { Pairing } from '../pairing/pairing.runner.ts';
import { EMPTY_STATE } from '../state/device-state.ts';
import type { Connectivity } from '../status/connectivity.runner.ts';
import type { WorkflowAssignment } from '../workflow/assignment.runner.ts';
import { hasCredential, serviceOf } from '../workflow/desired-registration.ts';
import type { Base } from './base.runner.ts';
import type { Links } from './links.runner.ts';
import type { Reconciler } from './reconcile.runner.ts';

export type CommandParts = Base & {
	readonly fleet: Pick<Fleet, 'retry'>;
	readonly workflow: Pick<WorkflowAssignment, 'checkFree' | 'set'>;
	readonly pairing: Pick<Pairing, 'underWay' | 'dropKept'>;
	readonly connectivity: Pick<Connectivity, 'forget'>;
	readonly line: Pick<Line, 'forget'>;
	readonly links: Links;
	readonly reconciler: Reconciler;
	/** Settings, state or machine may have changed: everything that follows from them is decided again. */
	readonly reevaluate: () => void;
};

export function createCommands(parts: CommandParts) {
	const { clock, stateWriter, identity, workflow, links, reconciler, ensureRunning, reevaluate } = parts;

	function ensureFree(): void {
		ensureRunning();
		if (parts.pairing.underWay) throw new AgentError('pairing-under-way', 'A pairing is under way on this device.');
	}

	return {
		async unpair() {
			ensureFree();
			const { generatedId, confirmedOrigins, lastSettings, plan } = stateWriter.state;
			links.drop();
			parts.connectivity.forget();
			parts.line.forget();
			parts.time.forget();
			parts.publish();
			try {
				const forgotten = { ...EMPTY_STATE, generatedId, confirmedOrigins, lastSettings, plan };
				await Promise.all([stateWriter.forget(forgotten), parts.pairing.dropKept()]);
				parts.log.info('unpaired');
			} finally {
				reevaluate();
			}
		},
		async acceptIdentity() {
			ensureFree();
			const found = identity.ofMachine();
			const at = isoNow(clock);
			await stateWriter.record((state) => ({ ...state, identity: acceptedIdentity(state.identity, found, at) }));
			reevaluate();
			return toReport(identity.now);
		},
		async setWorkflow(workflowId: string) {
			ensureRunning();
			workflow.checkFree(workflowId);
			const inputs = reconciler.inputs();
			if (serviceOf(inputs.resolved.settings, stateWriter.state) === null || !hasCredential(inputs))
				throw new AgentError('unpaired', 'This device is not paired yet, so there is no workflow to change.');
			await workflow.set(workflowId);
			reconciler.reconcile();
		},
		reconnect() {
			ensureRunning();
			parts.fleet.retry();
			reconciler.retry();
			links.dispatch({ type: 'retryRequested', atMs: clock.monotonicMs() });
		},
		/** @param bears whether the settings that have changed bear on the way to the service: then they are tried at once. */
		tryChangedSettings: (bears: boolean) =>
			links.dispatch({ type: 'settingsChanged', bears, atMs: clock.monotonicMs() }),
	};
}
