/** Events on the local interface, as pages and streams: replays what the store keeps, then follows what arrives. Also the streams of other things. */
import type { Agent } from '../agent/agent.runner.ts';
import type { Audit } from '../audit/audit.runner.ts';
import type { Clock } from '../base/clock.edge.ts';
import type { Counters } from '../base/counters.ts';
import { AgentError } from '../base/errors.ts';
import { type Entry, isEventId } from '../events/event.ts';
import { formatEvent } from '../events/feed.runner.ts';
import { pieceOf } from '../events/reading.ts';
import {
	type AckRequest,
	type AuditEntry,
	CONSUMER_NAME,
	EVENT_PAGE_LENGTH,
	MAX_EVENT_WAIT_SECONDS,
} from '../protocol/local-api.ts';
import { inPieces, inTurn, isLarge } from './event-pieces.runner.ts';
import type { EventSink, LocalReply, LocalRequest } from './server/local-server.edge.ts';

/** One reading for a stream, as `sizeOf` counts. */
const PIECE = 64 * 1024;

const EVENT_ID = { type: 'string', pattern: '^[A-Za-z0-9]{1,32}-\\d{1,15}$', examples: ['tou5mrr6w30w-2'] };
const WAIT = { type: 'number', minimum: 0, maximum: MAX_EVENT_WAIT_SECONDS, default: 0 };

const query = (name: string, schema: object, description: string) => ({ name, in: 'query', description, schema });

/** The parameters of a reader of events, for the document. */
export const EVENT_PARAMETERS = [
	query('since', EVENT_ID, 'The newest event that the caller has: the answer begins after it.'),
	{
		name: 'Last-Event-ID',
		in: 'header',
		description: 'Like since, and takes precedence: an EventSource sends it automatically when it reconnects.',
		schema: EVENT_ID,
	},
	query(
		'consumer',
		{ type: 'string', pattern: CONSUMER_NAME.source },
		'A name that the application chooses: without since, the answer begins after what it has acknowledged.',
	),
	query('wait', WAIT, 'Seconds to wait for an event if there is none yet. Only for JSON.'),
];

/** Where a reader continues: after the id that it names, else after what it has acknowledged under its own name. */
export function readSince({ events }: Agent, { since, query, application }: LocalRequest): string | null {
	const named = query.get('consumer');
	if (named !== null && !CONSUMER_NAME.test(named))
		throw new AgentError('body-invalid', 'The name of a consumer is not valid.', {
			remedy: 'Use 1 to 64 letters, digits, dots, hyphens and underscores.',
		});
	const consumer = named === null ? null : ownName(application, named);
	if (consumer !== null) events.join(consumer);
	if (!since) return consumer === null ? null : events.positionOf(consumer);
	if (isEventId(since)) return since;
	throw new AgentError('body-invalid', 'since is not the id of an event.', {
		remedy: 'Use an id exactly as an event carried it.',
	});
}

/** The name of a consumer or lease among everyone's: each application has its own. */
export const ownName = (application: LocalRequest['application'], name: string): string =>
	application === null ? name : `${application.name}:${name}`;

/** Answered when it is stored: after that neither side's restart brings the events back. */
export async function acknowledge(
	{ events }: Agent,
	{ body, application }: LocalRequest<AckRequest>,
): Promise<LocalReply> {
	const { id } = body;
	const consumer = ownName(application, body.consumer);
	if (!events.acknowledge(consumer, id))
		throw new AgentError('body-invalid', 'id is not the id of an event that was kept here.', {
			remedy: 'Use an id exactly as an event carried it.',
		});
	await events.settled();
	return { status: 200, body: { consumer: body.consumer, position: events.positionOf(consumer) } };
}

/** All streams get the same list of new events, and it is serialized once. */
const written = new WeakMap<readonly Entry[], Buffer>();

/** Without their contents, for an application that may not have them. */
function shownTo(application: LocalRequest['application'], entries: readonly Entry[]): readonly Entry[] {
	if (application?.contents !== false) return entries;
	return entries.map((entry) => (entry.type === 'gap' ? entry : { ...entry, format: 'json', content: 'null' }));
}

// Nothing in it has a line end, so that it needs no look at each.
const framed = (entries: readonly Entry[]) =>
	entries.flatMap((entry) => [`id: ${entry.id}\nevent: ${entry.type}\ndata: `, entry, '\n\n']);

function frameOf(entries: readonly Entry[]): Buffer {
	const known = written.get(entries);
	if (known) return known;
	const text = framed(entries).map((part) => (typeof part === 'string' ? part : formatEvent(part)));
	const frame = Buffer.from(text.join(''));
	written.set(entries, frame);
	return frame;
}

/** Sends the kept events first, then those that arrive. */
export function streamEvents(
	agent: Agent,
	since: string | null,
	sink: EventSink,
	application: LocalRequest['application'] = null,
): () => void {
	let stop = () => {};
	let over = false;
	let last = since;
	let lastNumber = Number.NEGATIVE_INFINITY;
	/** Whether they are newer than what was sent. */
	const isNext = (entries: readonly Entry[]) => {
		const [first, newest] = [entries[0], entries.at(-1)];
		// What was sent already would come again and again.
		if (first && first.number <= lastNumber) {
			sink.close('no-progress');
			return false;
		}
		[last, lastNumber] = [newest?.id ?? last, newest?.number ?? lastNumber];
		return true;
	};
	const shown = (entries: readonly Entry[]) => shownTo(application, entries);
	const send = (entries: readonly Entry[]) => isNext(entries) && sink.sendAll(frameOf(shown(entries)));
	const live = (entries: readonly Entry[]) => {
		// Many that were flushed together could be more than may wait for a reader, which would count as slow at once.
		const isPiece = pieceOf(entries, undefined, PIECE).length === entries.length && !shown(entries).some(isLarge);
		if (isPiece && (!send(entries) || !sink.isBehind)) return;
		// The store has what waits for this reader: memory need not hold it as well.
		stop();
		begin();
	};
	/** Of its own, so that nothing holds the events while their bytes wait for the reader. */
	const sendNext = async (): Promise<AsyncIterable<Buffer> | 'some' | 'all' | 'over'> => {
		const found = await inTurn(agent, last, undefined, PIECE);
		if (over) return 'over';
		const entries = found.length > 0 ? found : agent.events.after(last, undefined, PIECE).entries;
		if (entries.length > 0 && !shown(entries).some(isLarge)) return send(entries) ? 'some' : 'over';
		// Not in this function, which would hold the contents while it waits.
		if (entries.length > 0) return isNext(entries) ? inPieces(agent, framed(shown(entries))) : 'over';
		// Nothing can arrive in between: this is the turn of the read that found nothing more.
		stop = agent.events.subscribe(live);
		return 'all';
	};
	const sendPieces = async (pieces: AsyncIterable<Buffer>): Promise<boolean> => {
		let before: Buffer | null = null;
		for await (const piece of pieces) {
			if (before && !sink.sendPart(before, false)) return false;
			if (before) await sink.drained();
			before = piece;
		}
		return before !== null && sink.sendPart(before, true);
	};
	const replay = async () => {
		await agent.events.settled();
		// One piece for each reader is in memory, however many there are.
		for (;;) {
			await sink.drained();
			const sent = await sendNext();
			if (sent === 'all' || sent === 'over') return;
			if (sent !== 'some' && !(await sendPieces(sent))) return;
		}
	};
	// The promise is not awaited: a fault in it must not end the agent.
	const begin = () => void replay().catch(() => sink.close('failed'));
	begin();
	return () => {
		over = true;
		stop();
	};
}

export function streamAudit(audit: Audit, entries: readonly AuditEntry[], sink: EventSink): () => void {
	const send = (entry: AuditEntry) => void sink.send({ event: 'audit', data: JSON.stringify(entry) });
	for (const entry of entries) send(entry);
	return audit.subscribe(send);
}

export function streamStatus(agent: Agent, sink: EventSink): () => void {
	let last = '';
	const send = () => {
		const data = JSON.stringify(agent.status());
		if (data !== last) sink.send({ event: 'status', data });
		last = data;
	};
	send();
	return agent.onStatus(send);
}

/** Counts a stream as open until it ends. */
export function counted(counters: Counters, end: () => void): () => void {
	counters.streams += 1;
	return () => {
		counters.streams -= 1;
		end();
	};
}

type Timer = Pick<Clock, 'schedule'>;

export async function pageOfEvents(agent: Agent, clock: Timer, since: string | null, request: LocalRequest) {
	const waitSeconds = Number(request.query.get('wait') ?? 0);
	if (!(waitSeconds >= 0 && waitSeconds <= MAX_EVENT_WAIT_SECONDS))
		throw new AgentError('body-invalid', `wait must be a number of seconds from 0 to ${MAX_EVENT_WAIT_SECONDS}.`, {
			remedy: 'Correct the wait parameter.',
		});
	await agent.events.settled();
	let entries = await inTurn(agent, since, EVENT_PAGE_LENGTH);
	// A caller that has left meanwhile is told of no abort again.
	const waits = entries.length === 0 && waitSeconds > 0 && !request.signal.aborted;
	if (waits && agent.events.after(since, 1).entries.length === 0)
		await nextEvent(agent, clock, waitSeconds, request.signal);
	if (waits) entries = await inTurn(agent, since, EVENT_PAGE_LENGTH);
	const next = entries.at(-1)?.id ?? since;
	const shown = shownTo(request.application, entries).flatMap((entry, at) => (at === 0 ? [entry] : [',', entry]));
	return { status: 200, json: inPieces(agent, ['{"events":[', ...shown, `],"next":${JSON.stringify(next)}}`]) };
}

/** Resolves with the next event, when the time is over, or when the caller has left. */
function nextEvent(agent: Agent, clock: Timer, waitSeconds: number, signal: AbortSignal): Promise<void> {
	return new Promise((resolve) => {
		const done = () => {
			cancel();
			unsubscribe();
			signal.removeEventListener('abort', done);
			resolve();
		};
		const cancel = clock.schedule(waitSeconds * 1000, done);
		const unsubscribe = agent.events.subscribe(done);
		signal.addEventListener('abort', done, { once: true });
	});
}

/** An application sees its own, under the names that it gave them. */
export function leasesOf(agent: Agent, { application }: Pick<LocalRequest, 'application'>) {
	const { leases } = agent.leases.list();
	if (application === null) return { leases };
	const own = `${application.name}:`;
	const mine = leases.filter(({ name }) => name.startsWith(own));
	return { leases: mine.map((lease) => ({ ...lease, name: lease.name.slice(own.length) })) };
}
