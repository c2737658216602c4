/** The events that a person's request to erase means. Pure. In doubt an event goes: one that stays would be a broken promise. */
import { withoutEscapes } from '../base/escapes.ts';
import type { Found } from '../base/record-log-types.ts';
import { keyOf, type MessageKey } from './duplicates.ts';
import type { Entry } from './event.ts';
import { decodeEvent } from './stored-event.ts';

/** What is stored of an event; one that was deleted has left at most its id of the service. */
export type Stored = Pick<Entry, 'id' | 'serviceId'> &
	Partial<{ readonly [Name in 'at' | 'kind' | 'format' | 'content']: Entry[Name] | null }> & {
		readonly keptMs: number;
	};

/** An event that was deleted earlier, of which only hashes are left: an erasure means it unless it asks for more. */
export const DELETED_BEFORE: Stored = { id: '', serviceId: null, keptMs: 0 };

export type Erasure = (event: Stored) => boolean;

/** Every event in which the id is a word: in its content however that is escaped, in its kind, or as its own id. */
export function ofSession(session: string): Erasure {
	const mentions = sessionFinder(session);
	return ({ serviceId, kind, format, content }) =>
		[serviceId, kind].some((text) => typeof text === 'string' && mentions(text)) ||
		(typeof content === 'string' && contentMentions(content, format, mentions));
}

/** Every event that was received before a time, by its own time or by when it was stored. */
export function before(wallMs: number): Erasure {
	return ({ at, keptMs }) => keptMs < wallMs || (typeof at === 'string' && Date.parse(at) < wallMs);
}

/** The numbers of the events that go, and the messages that stay known: of one that goes, its id does as well. */
export function planErasure(
	found: Iterable<Found>,
	matches: Erasure,
	newest: readonly MessageKey[],
	keptSince: (number: number, timeMs: number) => number,
): { readonly going: readonly number[]; readonly known: readonly MessageKey[] } {
	const known = new Map((matches(DELETED_BEFORE) ? [] : newest).map((key) => [key.join(), key]));
	const going: number[] = [];
	for (const each of found) {
		if ('lostFrom' in each) continue;
		const { epoch: _, ...entry } = decodeEvent(each.number, each.payload);
		const key = keyOf(entry);
		const isGoing = matches({ ...entry, keptMs: keptSince(each.number, each.timeMs) });
		if (isGoing) going.push(each.number);
		if (key && isGoing) known.delete(key.join());
		else if (key) known.set(key.join(), key);
	}
	return { going, known: [...known.values()] };
}

export function allBut(ids: ReadonlySet<string>): Erasure {
	return ({ id }) => !ids.has(id);
}

/** Finds a session's id in a text. Letters and digits beside it make another word of it. */
export function sessionFinder(session: string): (text: string) => boolean {
	// A form writes a blank as `+`.
	const literal = session.replaceAll(/[\\^$.*+?()[\]{}|/]/g, '\\$&').replaceAll(' ', '[ +]');
	const word = new RegExp(`(?<![\\p{L}\\p{N}])${literal}(?![\\p{L}\\p{N}])`, 'iu');
	return (text) => word.test(text) || withoutEscapes(text).some((plain) => word.test(plain));
}

function contentMentions(content: string, format: Stored['format'], mentions: (text: string) => boolean): boolean {
	if (mentions(content)) return true;
	try {
		if (format === 'binary') return mentions(UTF8.decode(Uint8Array.from(atob(content), (sign) => sign.charCodeAt(0))));
		if (format !== 'json') return false;
		return textsOf(JSON.parse(content)).some(mentions);
	} catch {
		return false;
	}
}

const UTF8 = new TextDecoder();

/** All names and values of a document; an own stack, since a document may be nested deeply. */
function textsOf(document: unknown): string[] {
	const texts: string[] = [];
	const left = [document];
	while (left.length > 0) {
		const value = left.pop();
		if (typeof value === 'object' && value !== null)
			for (const [name, inner] of Object.entries(value)) {
				texts.push(name);
				left.push(inner);
			}
		else texts.push(String(value));
	}
	return texts;
}
