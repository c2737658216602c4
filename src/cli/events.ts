/** `idv-agent events`: the events that applications receive, as lines for people or one JSON document a line. */
import { type EventPage, LOCAL_ROUTES, type LocalEvent } from '../protocol/local-api.ts';
import { cleanText } from '../protocol/problem.ts';
import { type AskFlags, agentStopped, clientFor } from './local-agent.ts';
import { localTime, printLine } from './output.ts';

type EventsFlags = AskFlags & { readonly follow?: boolean; readonly since?: string | undefined };

export async function showEvents(flags: EventsFlags): Promise<void> {
	if (flags.follow) return followEvents(flags);
	const client = clientFor(flags);
	let since = flags.since ?? '';
	let shown = 0;
	for (;;) {
		const path = `${LOCAL_ROUTES.events}?${new URLSearchParams({ since })}`;
		const { events, next } = (await client.request('agent', 'GET', path)) as EventPage;
		for (const event of events) printEvent(event, JSON.stringify(event), flags);
		shown += events.length;
		if (events.length === 0 || next === null) break;
		since = next;
	}
	if (shown === 0 && !flags.json && process.stdout.isTTY) printLine('No events.');
}

/** The agent ends the stream of a reader that is too slow; the next request resumes after the last id. */
async function followEvents(flags: EventsFlags): Promise<void> {
	const client = clientFor(flags);
	let { since } = flags;
	for (;;) {
		const { reason } = await client.events(LOCAL_ROUTES.events, { since }, ({ id, data }) => {
			printEvent(JSON.parse(data) as LocalEvent, data, flags);
			since = id ?? since;
		});
		if (reason !== 'slow') throw agentStopped();
	}
}

/** @param json the event as the agent wrote it. */
function printEvent(event: LocalEvent, json: string, flags: EventsFlags): void {
	const name = event.type === 'notification' ? event.kind : event.type;
	const data = typeof event.data === 'string' ? event.data : JSON.stringify(event.data);
	const words = `${event.id}  ${localTime(event.at)}  ${cleanText(name, 64)}  ${cleanText(data, 2000)}`;
	printLine(flags.json ? json : words);
}
