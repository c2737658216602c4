/** `idv-agent events`: the events that applications receive, as lines for people or one JSON document a line. */
import { AgentError } from '../base/errors.ts';
import { AgentProblem } from '../client/agent-problem.ts';
import { passes } from '../client/agent-socket.edge.ts';
import { dataOf, eventsIn } from '../client/event-text.ts';
import { parseJson } from '../protocol/json.ts';
import { type EraseResult, type EventPage, LOCAL_ROUTES, type LocalEvent } from '../protocol/local-api.ts';
import { cleanText } from '../protocol/problem.ts';
import { type AskFlags, clientFor } from './local-agent.runner.ts';
import { counted, localTime, type Shell } from './output.runner.ts';
import { readTime } from './times.runner.ts';

/** Between two attempts while the agent is away. */
const RETRY_MS = 1000;

type EventsFlags = AskFlags & { readonly follow?: boolean; readonly since?: string | undefined };

export async function showEvents(shell: Shell, flags: EventsFlags): Promise<void> {
	if (flags.follow) return followEvents(shell, flags);
	const client = clientFor(shell, flags);
	let since = flags.since ?? '';
	let shown = 0;
	for (;;) {
		const path = `${LOCAL_ROUTES.events}?${new URLSearchParams({ since })}`;
		const json = (await client.request('agent', 'GET', path, undefined, { read: textOfJson })) as string;
		const { next } = parseJson(json) as EventPage;
		const events = eventsIn(json);
		for (const event of events) printEvent(shell, event);
		shown += events.length;
		if (events.length === 0 || next === null) break;
		since = next;
	}
	if (shown === 0 && !shell.isJson && shell.caller.stdout.isTTY) shell.line('No events.');
}

/** An answer that is not JSON has no text, and is told as that. */
const textOfJson = (text: string) => (parseJson(text) === undefined ? undefined : text);

/** Goes on after the last id: the agent ends the stream of a reader that is too slow, and may be restarted. The first one must be there. */
async function followEvents(shell: Shell, flags: EventsFlags): Promise<void> {
	const client = clientFor(shell, flags);
	let { since } = flags;
	let [hasBegun, isTold] = [false, false];
	for (;;) {
		const stream = client.events(LOCAL_ROUTES.events, { since }, ({ id, data }) => {
			shell.isStream = true;
			isTold = false;
			printEvent(shell, data);
			since = id ?? since;
		});
		const ended = await stream.catch((error: unknown) => error as Error);
		const isEnd = !(ended instanceof Error);
		if (isEnd && ended.reason === 'no-progress')
			throw new AgentError('internal', 'The agent sends the same events again and again.');
		if (isEnd && ended.reason === 'slow') continue;
		const problem = isEnd ? null : ended.cause;
		const isAbsent = problem instanceof AgentProblem && problem.code === 'agent-not-running';
		hasBegun ||= isEnd || (problem instanceof AgentProblem && problem.code === 'connection-lost');
		if (!isEnd && !(hasBegun && problem instanceof AgentProblem && passes(problem))) throw ended;
		if (!isAbsent && !isTold) shell.warn('The agent has stopped. Waiting for it to be back.');
		isTold ||= !isAbsent;
		await new Promise<void>((resolve) => shell.clock.schedule(RETRY_MS, resolve));
	}
}

/** @param json the event as the agent wrote it: its data is what the service sent. */
function printEvent(shell: Shell, json: string): void {
	const { id, at, data, ...event } = JSON.parse(json) as LocalEvent;
	const name = event.type === 'notification' ? event.kind : event.type;
	const text = typeof data === 'string' ? data : (dataOf(json) ?? '');
	const words = `${id}  ${localTime(at)}  ${cleanText(name, 64)}  ${cleanText(text, 2000)}`;
	shell.line(shell.isJson ? json : words);
}

type EraseFlags = AskFlags & { readonly session?: string | undefined; readonly before?: string | undefined };

/** Erases for good; the device's own copies outside of the agent (journal, backups) are not its own to erase. */
export async function eraseEvents(shell: Shell, flags: EraseFlags): Promise<void> {
	const { session, before } = flags;
	if ((session === undefined) === (before === undefined))
		throw new AgentError('usage', 'Name the events to erase: --session ID or --before TIME, not both.');
	const body = session === undefined ? { before: readTime('--before', before ?? '') } : { session };
	const { erased } = (await clientFor(shell, flags).request('admin', 'POST', LOCAL_ROUTES.erase, body)) as EraseResult;
	shell.answer({ erased }, `Erased ${counted(erased, 'event')}.`);
}
