/**
 * What a person or a program asks of the running agent: unpair, accept the identity, set the workflow, reconnect, other
 * settings. Checks whether it may be done now, changes the state, and has the device reconciled; opens nothing.
 */

import { type Clock, isoNow } from '../base/clock.edge.ts';
import { AgentError, retryClassOf } from '../base/errors.ts';
import type { Log } from '../base/log.edge.ts';
import type { Link } from '../connection/supervisor.ts';
import type { Fleet } from '../fleet/follow-plan.runner.ts';
import { acceptedIdentity, toReport } from '../identity/identity.ts';
import type { Pairing } from '../pairing/pairing.runner.ts';
import { EMPTY_STATE } from '../state/device-state.ts';
import type { PersistedState } from '../state/persisted-state.runner.ts';
import type { Connectivity } from '../status/connectivity.runner.ts';
import type { WorkflowAssignment } from '../workflow/assignment.runner.ts';
import { hasCredential, serviceOf } from '../workflow/desired-registration.ts';
import type { Agent } from './agent-types.ts';
import type { CurrentIdentity } from './current-identity.runner.ts';
import type { Links } from './links.runner.ts';
import type { Reconciler } from './reconcile.runner.ts';

export interface CommandParts {
	readonly clock: Clock;
	readonly log: Log;
	readonly stateWriter: PersistedState;
	readonly identity: CurrentIdentity;
	readonly fleet: Pick<Fleet, 'retry'>;
	readonly workflow: Pick<WorkflowAssignment, 'checkFree' | 'set'>;
	readonly pairing: Pick<Pairing, 'underWay' | 'dropKept'>;
	readonly connectivity: Pick<Connectivity, 'forget'>;
	readonly links: Links;
	readonly reconciler: Reconciler;
	/** @throws AgentError `agent-not-running`. */
	readonly ensureRunning: () => void;
	/** Settings, state or machine may have changed: everything that follows from them is decided again. */
	readonly reevaluate: () => void;
	readonly publish: () => void;
}

export type Commands = Pick<Agent, 'unpair' | 'acceptIdentity' | 'setWorkflow' | 'reconnect'> & {
	/** An outage that ends without help is not hurried: there are many devices. A corrected setting is tried at once. */
	retrySlowLinks(): void;
};

export function createCommands(parts: CommandParts): Commands {
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
		async setWorkflow(workflowId) {
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
		retrySlowLinks() {
			const { current, next } = links.supervision;
			for (const link of [current, next])
				if (link && isSlow(link))
					links.dispatch({
						type: 'link',
						generation: link.generation,
						event: { type: 'retryRequested', atMs: clock.monotonicMs() },
					});
		},
	};
}

function isSlow({ state }: Link): boolean {
	return 'untilMs' in state && retryClassOf(state.failure.code) === 'slow';
}
