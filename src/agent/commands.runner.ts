/**
 * The commands of a person or a program to the running agent: unpair, accept the identity, set the workflow, reconnect, other
 * settings. Checks whether it may be done now, changes the state, and has the device reconciled; opens nothing.
 */
import { isoNow } from '../base/clock.edge.ts';
import { AgentError, asError, type ErrorCode, type Failure } from '../base/errors.ts';
import { endsOf, type HasEnds } from '../connection/ends.ts';
import type { Line } from '../connection/line.runner.ts';
import { connectionOf } from '../connection/link.ts';
import { before, ofSession, sessionFinder } from '../events/erasure.ts';
import type { Fleet } from '../fleet/follow-plan.runner.ts';
import { toReport, withAccepted } from '../identity/identity.ts';
import type { Pairing } from '../pairing/pairing.runner.ts';
import type { Status } from '../protocol/local-api.ts';
import { EMPTY_STATE } from '../state/device-state.ts';
import type { Connectivity } from '../status/connectivity.runner.ts';
import type { WorkflowAssignment } from '../workflow/assignment.runner.ts';
import { hasCredential, serviceOf } from '../workflow/desired-registration.ts';
import type { Base } from './base.runner.ts';
import type { Leaving } from './leaving.runner.ts';
import type { Links } from './links.runner.ts';
import type { Reconciler } from './reconcile.runner.ts';

export type { HasEnds };

export type CommandParts = Base & {
	readonly fleet: Pick<Fleet, 'retry'>;
	readonly workflow: Pick<WorkflowAssignment, 'checkFree' | 'set' | 'try'>;
	readonly status: () => Status;
	readonly pairing: Pick<Pairing, 'underWay'>;
	readonly leaving: Pick<Leaving, 'unpair'>;
	readonly connectivity: Pick<Connectivity, 'forget'>;
	readonly line: Pick<Line, 'forget'>;
	readonly links: Links;
	readonly reconciler: Reconciler;
	/** Settings, state or machine may have changed: everything that follows from them is decided again. */
	readonly reevaluate: () => void;
};

/** How long the caller waits for a workflow to be live, and whether it still does. */
export interface WorkflowWait {
	readonly waitMs: number;
	readonly signal?: AbortSignal;
}

/** @throws AgentError why the workflow is not live, or will not be soon. */
function untilLive(
	{ clock, onStatus, status }: Pick<CommandParts, 'clock' | 'onStatus' | 'status'>,
	workflowId: string,
	{ waitMs, signal }: WorkflowWait,
): Promise<void> {
	return new Promise((resolve, reject) => {
		const end = (act: () => void) => {
			cancel();
			unsubscribe();
			signal?.removeEventListener('abort', gone);
			act();
		};
		const fail = (code: ErrorCode, message: string, remedy: string) =>
			end(() => reject(new AgentError(code, message, { remedy })));
		const late = () => {
			const waits = status().workflow.waitsUntil;
			const why = waits === null ? '' : `: an application holds the change until ${waits}`;
			fail('request-timeout', `Workflow ${workflowId} is not live after ${waitMs / 1000} s${why}.`, ASK_ONLY);
		};
		const gone = () => fail('request-timeout', `The caller did not wait for workflow ${workflowId}.`, ASK_ONLY);
		const look = () => {
			const { workflow, problem, state } = status();
			if (workflow.live === workflowId) return end(resolve);
			// The service has one channel for this device: the old one makes room, and the new one is tried again.
			const isMakingRoom = problem?.code === 'channel-occupied' && workflow.wanted === workflowId;
			if (isMakingRoom) return;
			if (problem) return end(() => reject(asError(problem as Failure)));
			if (workflow.wanted === workflowId && state !== 'unpaired') return;
			if (workflow.wanted === workflowId)
				return fail('request-timeout', `The agent was stopped before workflow ${workflowId} was live.`, ASK_ONLY);
			fail('workflow-conflict', `Meanwhile ${workflow.wanted ?? 'no workflow'} was asked for.`, LOOK_FIRST);
		};
		const cancel = clock.schedule(waitMs, late);
		const unsubscribe = onStatus(look);
		signal?.addEventListener('abort', gone);
		look();
	});
}

const ASK_ONLY = 'Try again, or ask with --wait 0 and look at idv-agent status.';
const LOOK_FIRST = 'Look at idv-agent workflow show, and set the workflow again if you still want it.';

export function createCommands(parts: CommandParts) {
	const { clock, stateWriter, identity, workflow, links, reconciler, ensureRunning, reevaluate } = parts;
	let reconnectsAsked = 0;

	function ensureFree(): void {
		ensureRunning();
		if (parts.pairing.underWay) throw new AgentError('pairing-under-way', 'A pairing is under way on this device.');
	}

	/** Whether the service has registered the device for this workflow, and the channel from before is gone: it may have ended that Connection. */
	function isAllThatIsLeft(workflowId: string): boolean {
		const { current, next } = links.supervision;
		const isRegistered = next?.registration.request.workflowId === workflowId && connectionOf(next.state) !== null;
		return isRegistered && current?.state.name !== 'online';
	}

	return {
		ends: () => endsOf(links.supervision.current, parts.runtime(), clock),
		/** @param options.keepEvents whether the events of the service stay. Default `false`. */
		async unpair({ keepEvents = false }: { readonly keepEvents?: boolean } = {}) {
			ensureFree();
			const { lastSettings, lastVariables, lastPieces, plan } = stateWriter.state;
			links.drop();
			parts.connectivity.forget();
			parts.line.forget();
			parts.time.forget();
			parts.publish();
			try {
				const kept = { lastSettings, ...(lastVariables && { lastVariables }), lastPieces, plan };
				await parts.leaving.unpair({ ...EMPTY_STATE, ...kept }, keepEvents);
				parts.log.info('unpaired');
			} finally {
				parts.tryOnlyBeside();
				reevaluate();
			}
		},
		/** Erases the events of a session, or those from before a time (ms since 1970), everywhere. @returns how many. */
		async eraseEvents(asked: { readonly session: string } | { readonly beforeMs: number }): Promise<number> {
			ensureRunning();
			const erased = await parts.events.erase('session' in asked ? ofSession(asked.session) : before(asked.beforeMs));
			const { state } = stateWriter;
			const { pairing } = state;
			const isNamed =
				'session' in asked && pairing?.sessionId != null && sessionFinder(asked.session)(pairing.sessionId);
			// Also where the state does not name it any more: older copies and files set aside may.
			await stateWriter.forget(isNamed ? { ...state, pairing: { ...pairing, sessionId: null } } : state);
			parts.log.info('events erased', { count: erased });
			parts.publish();
			return erased;
		},
		async acceptIdentity() {
			ensureFree();
			const found = stateWriter.state.identity ? identity.ofMachine() : identity.now;
			const at = isoNow(clock);
			await stateWriter.record((state) => withAccepted(state, found, at));
			reevaluate();
			return toReport(identity.now);
		},
		async setWorkflow(workflowId: string, wait?: WorkflowWait) {
			ensureRunning();
			workflow.checkFree(workflowId);
			const inputs = reconciler.inputs();
			if (serviceOf(inputs.resolved.settings, stateWriter.state) === null || !hasCredential(inputs))
				throw new AgentError('unpaired', 'This device is not paired yet, so there is no workflow to change.');
			if (!wait) {
				await workflow.set(workflowId);
				return reconciler.reconcile();
			}
			const settle = await workflow.try(workflowId);
			reconciler.reconcile();
			try {
				await untilLive(parts, workflowId, wait);
				await settle(true);
			} catch (error) {
				await settle(isAllThatIsLeft(workflowId));
				reconciler.reconcile();
				throw error;
			}
		},
		/** How often that was asked for since the start. */
		reconnectsAsked: () => reconnectsAsked,
		reconnect() {
			ensureRunning();
			reconnectsAsked += 1;
			parts.fleet.retry();
			reconciler.retry();
			links.dispatch({ type: 'retryRequested', atMs: clock.monotonicMs() });
		},
		/** @param bears whether the settings that have changed bear on the way to the service: then they are tried at once. */
		tryChangedSettings: (bears: boolean) =>
			links.dispatch({ type: 'settingsChanged', bears, atMs: clock.monotonicMs() }),
	};
}
