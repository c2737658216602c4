/** Receives what the service sends: frames become events, and the agent's own messages are acted on. */
import { writeTimes } from '../base/clock.edge.ts';
import type { LinkRunnerOptions } from '../connection/link.runner.ts';
import type { Supervision, SupervisorEvent } from '../connection/supervisor.ts';
import { keepNotification } from '../events/notifications.ts';
import type { Connectivity } from '../status/connectivity.runner.ts';
import type { WorkflowAssignment } from '../workflow/assignment.runner.ts';
import type { Base } from './base.runner.ts';
import type { Leaving } from './leaving.runner.ts';

export function receiveMessages(
	parts: Pick<Base, 'clock' | 'log' | 'events' | 'settings'> & {
		readonly connectivity: Pick<Connectivity, 'heard'>;
		readonly leaving: Pick<Leaving, 'receive'>;
		readonly workflow: Pick<WorkflowAssignment, 'follow'>;
		readonly supervision: () => Supervision;
		readonly dispatch: (event: SupervisorEvent) => void;
		readonly requestReconcile: () => void;
	},
): LinkRunnerOptions['report']['frame'] {
	const { clock, log, events, connectivity } = parts;
	const now = writeTimes(clock);
	return ({ generation, registration, overlaps }, frame) => {
		const { workflowId } = registration.request;
		const { current, next } = parts.supervision();
		// After an unpairing nothing of the old service is kept.
		if (!current && !next) return false;
		connectivity.heard(generation);
		const keep = () =>
			keepNotification(events, frame, { workflowId, at: now(), overlaps }, parts.settings().service, log);
		const { baseUrl } = registration;
		const isMoving = current && next?.registration.baseUrl === baseUrl && current.registration.baseUrl !== baseUrl;
		const message = isMoving ? parts.leaving.receive(baseUrl, keep) : keep();
		// What is held back for a move is not stored yet.
		const isKept = !isMoving;
		if (!message) return isKept;
		switch (message.type) {
			case 'workflow.changed':
				parts.workflow.follow(message.workflowId);
				parts.requestReconcile();
				break;
			case 'connection.revoked':
				parts.dispatch({ type: 'link', generation, event: { type: 'connectionRevoked', atMs: clock.monotonicMs() } });
				break;
			default:
				message satisfies never;
		}
		return isKept;
	};
}
