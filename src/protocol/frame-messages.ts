/**
 * The messages in one frame: some services put several into it, or JSON into a binary one. Each comes out as a frame of its
 * own, with its text as it was written. Source: assumed (frame-contents).
 */
import { type Frame, readNotification } from './channel.ts';
import { isObject, parseJson, partsOf, resolvePointer, writtenAround } from './json.ts';

/** The last one is a JSON pointer to an array in the frame. */
export const FRAME_CONTENTS = /^(?:auto|one|lines|array|body|(?:\/[^/]*)+)$/;
export type FrameContents = 'auto' | 'one' | 'lines' | 'array' | 'body' | `/${string}`;

export interface FrameForm {
	/** `auto`: one message, or one object on each of a few lines; `lines`, `array` and a pointer: one for each line or element; `body`: the JSON behind headers. */
	readonly frameContents: FrameContents;
	/** Whether a binary frame that holds JSON is read like a text one. */
	readonly jsonInBinary: boolean;
	/** As of notifications: what stands beside an array is a message where it has a kind. */
	readonly kindPointer?: string | null | undefined;
}

/** Lines that are taken apart without a setting that says so. */
const MAX_LINES_UNASKED = 64;
/** Lines with nothing in them that are passed over. */
const MAX_BLANK = 1000;
/** A frame with more is one message: it would displace everything else that is kept. */
const MAX_MESSAGES = 1000;

export function messagesIn(frame: Frame, form: FrameForm): readonly Frame[] {
	const { jsonInBinary } = form;
	if (frame.type === 'oversized' || (frame.type === 'binary' && !jsonInBinary)) return [frame];
	const text = frame.type === 'text' ? frame.text : asText(frame.bytes);
	if (text === null) return [frame];
	const parts = partsIn(text, form);
	if (parts !== null && parts.length <= MAX_MESSAGES) return parts.map((part) => ({ type: 'text', text: part }));
	return frame.type === 'text' || parseJson(text) === undefined ? [frame] : [{ type: 'text', text }];
}

function partsIn(text: string, { frameContents: contents, kindPointer }: FrameForm): readonly string[] | null {
	if (contents === 'one') return null;
	if (contents === 'auto' || contents === 'lines') return linesOf(text, contents);
	if (contents === 'body') return bodyOf(text);
	const document = parseJson(text);
	const list = contents === 'array' ? document : resolvePointer(document, contents);
	if (!Array.isArray(list) || list.length > MAX_MESSAGES) return null;
	if (contents === 'array') return partsOf(text);
	const { at, beside } = writtenAround(text, contents);
	if (beside.length > MAX_MESSAGES) return null;
	const parts = [...partsOf(at), ...beside.flatMap((one) => messagesBeside(one, kindPointer))];
	// Contents beside an empty array that have no kind would be lost.
	return parts.length > 0 ? parts : null;
}

/** Messages beside the array: an object with a kind, or an array of such. Metadata of the frame have none. */
function messagesBeside(text: string, kindPointer: FrameForm['kindPointer']): readonly string[] {
	const all = text.startsWith('{') ? [text] : text.startsWith('[') ? partsOf(text) : [];
	const isMessage = (one: string) =>
		one.startsWith('{') && readNotification({ type: 'text', text: one }, { kindPointer }).kind !== 'unknown';
	return all.every(isMessage) ? all : [];
}

/** The lines of a text that holds several, or its records (RFC 7464; SignalR); `null` for one that is one message. */
function linesOf(text: string, contents: 'auto' | 'lines'): string[] | null {
	const isRecord = text.includes('\x1e');
	if (!isRecord && !text.includes('\n')) return null;
	const most = contents === 'auto' ? MAX_LINES_UNASKED : MAX_MESSAGES;
	const sign = isRecord ? '\x1e' : '\n';
	if (hasMore(text, sign, MAX_BLANK + most)) return null;
	const lines = text.split(isRecord ? sign : /\r?\n/).filter((line) => line.trim() !== '');
	if (lines.length > most) return null;
	if (contents === 'lines') return lines;
	return (isRecord || lines.length > 1) && lines.every((line) => isObject(parseJson(line))) ? lines : null;
}

/** Whether a sign occurs more often: a text is not taken apart for nothing. */
function hasMore(text: string, sign: string, most: number): boolean {
	let count = 0;
	for (let at = text.indexOf(sign); at !== -1 && count <= most; at = text.indexOf(sign, at + 1)) count += 1;
	return count > most;
}

/** The JSON behind headers and an empty line. Source: STOMP 1.2, where an octet 0 ends the body. */
export function bodyOf(text: string): [string] | null {
	const at = text.search(/\r?\n\r?\n/);
	if (at === -1 || parseJson(text) !== undefined) return null;
	const body = text.slice(at).trim().replace(/\0$/, '');
	return isObject(parseJson(body)) ? [body] : null;
}

function asText(bytes: Uint8Array): string | null {
	try {
		return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
	} catch {
		return null;
	}
}
