/**
 * Stored events as bytes, in pieces: what waits for a reader is one piece, however large an event is and whatever its text becomes in JSON.
 * The content of a large event is in no reader's hands: each asks the store for as much of it as its next piece holds.
 */
import type { Agent } from '../agent/agent.runner.ts';
import { type Entry, sizeOf } from '../events/event.ts';
import { formatEnd, formatEvent, formatHead, formatPart } from '../events/feed.runner.ts';
import { PIECE, STRIDE } from './memory-budget.ts';
import { OvertakenError } from './server/answers.edge.ts';

/** Bytes: an event that may have as many in JSON is written in pieces, for each reader alone. */
const LARGE = 64 * 1024;
/** Of the event loop between two readings: each accepts no more than one of the connections that wait. */
const ROUNDS = 16;

/** Readings that have not had their turn, by what they are asked for. */
const awaited = new WeakMap<Agent, Map<string, Promise<readonly Entry[]>>>();
let turns: Promise<unknown> = Promise.resolve();

/**
 * One place after another is read, so that what arrives meanwhile goes out in between, and once for all readers who wait there. Where there is
 * nothing, something may have arrived since.
 */
export function inTurn(agent: Agent, ...where: Parameters<Agent['events']['after']>): Promise<readonly Entry[]> {
	const readings = awaited.get(agent) ?? new Map<string, Promise<readonly Entry[]>>();
	awaited.set(agent, readings);
	const key = JSON.stringify(where);
	const known = readings.get(key);
	if (known) return known;
	const turn = turns.then(async () => {
		for (let round = 0; round < ROUNDS; round += 1) await new Promise(setImmediate);
	});
	turns = turn;
	const reading = turn.then(() => {
		readings.delete(key);
		return agent.events.after(...where).entries;
	});
	readings.set(key, reading);
	return reading;
}

export const isLarge = (entry: Entry): boolean => sizeOf(entry) * (entry.format === 'text' ? 6 : 1) >= LARGE;

/** An event without its content, of which there are so many bytes. */
type Light = Entry & { readonly bytes: number };

/** Texts and events in this order: the next piece is asked for when the one before is taken. @throws when an event is gone meanwhile. */
export function inPieces(agent: Agent, parts: readonly (string | Entry)[]): AsyncGenerator<Buffer, void> {
	// The iteration would hold the contents while it waits.
	const light = parts.map((part) =>
		typeof part === 'string' || !isLarge(part)
			? part
			: { ...part, content: '', bytes: Buffer.byteLength(part.content) },
	);
	return writtenDown(agent, light);
}

async function* writtenDown(agent: Agent, parts: readonly (string | Entry | Light)[]): AsyncGenerator<Buffer, void> {
	let text = '';
	for (const part of parts) {
		const texts = typeof part === 'string' ? [part] : 'bytes' in part ? textsOf(agent, part) : [formatEvent(part)];
		for (const each of texts) {
			text += each;
			if (text.length < PIECE) continue;
			yield Buffer.from(text);
			text = '';
		}
	}
	yield Buffer.from(text);
}

function* textsOf(agent: Agent, event: Light): Generator<string> {
	yield formatHead(event);
	const decoder = new TextDecoder('utf-8', { ignoreBOM: true });
	for (let left = event.bytes; left > 0; left -= STRIDE) {
		const bytes = agent.events.rest(event.number, left, STRIDE);
		if (!bytes) throw new OvertakenError(`The event ${event.id} has made room for newer ones while it was read.`);
		// Whole characters: the others are begun in one stride and written with the next.
		yield formatPart(event, decoder.decode(bytes, { stream: true }));
	}
	yield formatEnd(event);
}
