/** Notifications, the session of a pairing link, and gaps, as events. Acts on nothing; a message to act on is handed back. */
import type { Log } from '../base/log.edge.ts';
import { type AgentMessage, type Frame, kindsOf, readAgentMessage, readNotification } from '../protocol/channel.ts';
import type { Settings } from '../settings/table.ts';
import { gapEvent, ownEvent } from './event.ts';
import type { EventsFeed } from './feed.runner.ts';

/** Where a frame came in, and when (ISO 8601). */
export interface Arrival {
	readonly workflowId: string;
	readonly at: string;
	/** Whether another channel may bring the same message, with contents of its own. Default `false`. */
	readonly overlaps?: boolean;
}

/** Keeps a frame as an event. @returns the message in it to act on; none of a duplicate, which must not undo what was decided since. */
export function keepNotification(
	events: EventsFeed,
	frame: Frame,
	{ workflowId, at, overlaps }: Arrival,
	{ kindPointer, notificationIdPointer, actOnMessages, ignoreKinds }: Settings['service'],
	log: Pick<Log, 'debug'>,
): AgentMessage | null {
	const notification = readNotification(frame, { kindPointer, notificationIdPointer });
	const { kind, format, content, serviceId } = notification;
	if (ignoreKinds.length > 0 && kindsOf(frame, notification).some((one) => ignoreKinds.includes(one))) {
		events.ignored();
		return null;
	}
	const isNew = events.append({ at, type: 'notification', kind, workflowId, format, content, serviceId }, overlaps);
	log.debug(isNew ? 'notification' : 'duplicate notification', { kind });
	return isNew && actOnMessages ? readAgentMessage(notification) : null;
}

export function keepSession(events: EventsFeed, sessionId: string, arrival: Arrival): void {
	events.append(ownEvent('session', { sessionId, workflowId: arrival.workflowId }, arrival));
}

/** Time in which notifications may have been missed, by default until now; `from` is `null` when it is not known since when. */
export function keepGap(
	events: Pick<EventsFeed, 'append'>,
	from: string | null,
	arrival: Arrival,
	to = arrival.at,
): void {
	events.append(gapEvent(from, to, arrival));
}
