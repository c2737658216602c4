/**
 * Receives what the service sends: every frame is kept as an event, and the agent's own messages are acted on. Sends nothing.
 */

import { type Clock, writeTimes } from '../base/clock.edge.ts';
import type { Log } from '../base/log.edge.ts';
import type { FrameArrival } from '../connection/link.runner.ts';
import type { Supervision, SupervisorEvent } from '../connection/supervisor.ts';
import type { EventsFeed } from '../events/feed.runner.ts';
import { keepNotification } from '../events/notifications.ts';
import type { Frame } from '../protocol/channel.ts';
import type { Settings } from '../settings/table.ts';
import type { Connectivity } from '../status/connectivity.runner.ts';
import type { WorkflowAssignment } from '../workflow/assignment.runner.ts';

export interface MessageParts {
	readonly clock: Clock;
	readonly log: Log;
	readonly events: EventsFeed;
	readonly connectivity: Pick<Connectivity, 'heard'>;
	readonly workflow: Pick<WorkflowAssignment, 'follow'>;
	readonly settings: () => Settings;
	readonly supervision: () => Supervision;
	readonly dispatch: (event: SupervisorEvent) => void;
	readonly requestReconcile: () => void;
}

export type ReceiveFrame = (arrival: FrameArrival, frame: Frame) => void;

export function receiveMessages(parts: MessageParts): ReceiveFrame {
	const { clock, log, events, connectivity } = parts;
	const now = writeTimes(clock);
	return ({ generation, registration, overlaps }, frame) => {
		const { workflowId } = registration.request;
		const { current, next } = parts.supervision();
		// After an unpairing nothing of the old service is kept.
		if (!current && !next) return;
		connectivity.heard();
		const message = keepNotification(events, frame, { workflowId, at: now(), overlaps }, parts.settings().service, log);
		if (!message) return;
		if (message.type === 'workflow.changed') {
			parts.workflow.follow(message.workflowId);
			parts.requestReconcile();
		} else
			parts.dispatch({
				type: 'link',
				generation,
				event: { type: 'connectionRevoked', atMs: clock.monotonicMs() },
			});
	};
}
