/**
 * Keeps the links at the desired registration: asks `workflow/desired-registration.ts` whenever an input changes, after every
 * step of the supervision and when the answer says so, and hands on what has changed. Owns the one timer for that.
 */

import type { Clock } from '../base/clock.edge.ts';
import type { Failure } from '../base/errors.ts';
import type { Log } from '../base/log.edge.ts';
import type { Warnings } from '../base/warnings.ts';
import type { Connections } from '../connection/connection-tokens.runner.ts';
import type { Runtime } from '../connection/runtime.runner.ts';
import { NO_ATTEMPT } from '../fleet/attempt.ts';
import type { Fleet } from '../fleet/follow-plan.runner.ts';
import type { CompleteIdentity } from '../identity/identity.ts';
import type { PersistedState } from '../state/persisted-state.runner.ts';
import {
	type DesiredInputs,
	type DesiredOutcome,
	desiredRegistration,
	NO_PROGRESS,
	type Progress,
	type RegistrationInputs,
} from '../workflow/desired-registration.ts';
import type { WorkflowLeases } from '../workflow/leases.runner.ts';
import type { Links } from './links.runner.ts';

export interface ReconcilerParts {
	readonly clock: Clock;
	readonly log: Pick<Log, 'info'>;
	readonly random: () => number;
	readonly warnings: Warnings;
	readonly stateWriter: PersistedState;
	readonly connections: Connections;
	readonly leases: Pick<WorkflowLeases, 'held'>;
	readonly fleet: Pick<Fleet, 'record' | 'keep' | 'target'>;
	readonly links: Pick<Links, 'supervision' | 'desire'>;
	readonly runtime: () => Runtime;
	readonly identity: () => CompleteIdentity;
}

export interface Reconciler {
	/** What decides, but for leases and progress. @param as the identity to decide for; default the device's own. */
	inputs(as?: CompleteIdentity): RegistrationInputs;
	/** An input has changed. */
	reconcile(): void;
	/** The supervision has made a step: hands on only what that changes. */
	follow(): void;
	/** Tries again what the plan says, if it has failed. */
	retry(): void;
	/** Why nothing can be desired. */
	readonly blocker: Failure | null;
	readonly progress: Progress;
	stop(): void;
}

export function keepReconciled(parts: ReconcilerParts): Reconciler {
	const { clock, connections, fleet, links, stateWriter } = parts;
	let blocker: Failure | null = null;
	let progress = NO_PROGRESS;
	let stopped = false;
	let cancel = () => {};

	function inputs(as = parts.identity()): Omit<RegistrationInputs, 'plan'> {
		const { resolved, credentials } = parts.runtime();
		const { id, reusable, provisioned, unreadable } = credentials;
		const facts = { id, isReusable: reusable !== null, isProvisioned: provisioned !== null, unreadable };
		return { resolved, state: stateWriter.state, identity: as, credentials: facts };
	}

	/** Asks, and keeps all of the answer but the desired registration. */
	function evaluate(): DesiredOutcome {
		const asked: DesiredInputs = {
			...inputs(),
			plan: fleet.record(),
			leases: parts.leases.held,
			supervision: links.supervision,
			before: progress,
			nowMs: clock.monotonicMs(),
			wallMs: clock.wallMs(),
			random: parts.random,
		};
		const outcome = desiredRegistration(asked);
		blocker = outcome.blocker;
		progress = outcome.progress;
		keepPlan(asked, outcome);
		const { attempt } = progress;
		cancel();
		const { reevaluateAtMs } = outcome;
		if (reevaluateAtMs !== null) cancel = clock.schedule(reevaluateAtMs - asked.nowMs, reconcile);
		parts.warnings.set('plan', attempt.name === 'refused' ? attempt.failure : null);
		return outcome;
	}

	function keepPlan({ plan: before, supervision }: DesiredInputs, { plan }: DesiredOutcome): void {
		if (!plan || plan === before) return;
		fleet.keep(plan);
		if (plan.followed === before?.followed) return;
		const workflowId = supervision.current?.registration.request.workflowId;
		parts.log.info('fleet plan followed', { revision: plan.followed, workflowId });
	}

	function reconcile(): void {
		if (!stopped) apply(evaluate());
	}

	function apply({ desired, adoptsProvisioned }: DesiredOutcome): void {
		if (desired && adoptsProvisioned) connections.adopt(desired);
		links.desire(desired);
	}

	return {
		inputs: (as) => ({ ...inputs(as), plan: fleet.target() }),
		reconcile,
		follow() {
			if (stopped) return;
			const outcome = evaluate();
			if (JSON.stringify(outcome.desired) !== JSON.stringify(links.supervision.desired)) apply(outcome);
		},
		retry() {
			if (progress.attempt.name !== 'refused') return;
			progress = { ...progress, attempt: NO_ATTEMPT };
			reconcile();
		},
		get blocker() {
			return blocker;
		},
		get progress() {
			return progress;
		},
		stop() {
			stopped = true;
			cancel();
		},
	};
}
