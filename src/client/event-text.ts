/**
 * The text of each event's data in a page, exactly as the service sent it: `JSON.parse` rounds numbers (9007199254740993, 1.10) and
 * keeps one of two equal keys. Reads what the agent writes: well-formed JSON, without spaces between the parts of an event.
 */
import { isObject, parseJson, partsOf } from '../protocol/json.ts';

/** The document of a page; each of its events has the exact `text` of its data as well. */
export function readPage(json: string): unknown {
	const page = parseJson(json);
	if (!isObject(page) || !Array.isArray(page['events']) || !page['events'].every(isObject)) return page;
	const texts = eventsIn(json).map(dataOf);
	const events = page['events'].map((event, index) => ({
		...event,
		text: event.format === 'json' ? (texts[index] ?? JSON.stringify(event.data)) : event.data,
	}));
	return { ...page, events };
}

/** Whether reading can go on from it: a list of events that each have an id, its number at the end. */
export function isPage(page: unknown): boolean {
	const events = isObject(page) ? page['events'] : null;
	return Array.isArray(events) && events.every((event) => isObject(event) && /\d$/.test(String(event['id'])));
}

/** The text of each event in a page, as the agent wrote it. */
export const eventsIn = (json: string) => partsOf(json.slice(json.indexOf('[')));

/** The text of its data; `undefined` where it has none. */
export function dataOf(event: string): string | undefined {
	const member = partsOf(event, 'kept').find((part) => part.startsWith('"data":'));
	return member?.slice('"data":'.length);
}
