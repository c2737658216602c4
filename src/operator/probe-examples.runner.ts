/** Messages that a service writes as examples in its words, as templates of the agent. Pure. */
import { readWord, WORD_NAMES } from '../protocol/channel.ts';
import { isObject, parseJson } from '../protocol/json.ts';
import { type TemplatePurpose, templateProblem } from '../protocol/templates.ts';
import { endsSomething } from './probe-acks.runner.ts';
import { ERROR, membersOf, PLACEHOLDER } from './probe-readings.runner.ts';

export interface Example {
	/** As the settings take it. */
	readonly text: string;
	/** The place in a notification that fills `{id}`, where the example names one. */
	readonly pointer: string | undefined;
	/** The words before it are about what it is said for. */
	readonly isAsked?: true;
}

const EVERY = new RegExp(PLACEHOLDER.source, 'gi');

/** @param about what an example of this kind says, unless it asks for the Connection. @param documents notifications whose fields may be named. */
export function examplesIn(
	words: string,
	purpose: TemplatePurpose,
	about: RegExp,
	documents: readonly unknown[] = [],
): Example[] {
	const found: Example[] = [];
	// A service may write JSON into a text of JSON, and that into another one.
	const texts = words.replace(/\\+"/g, '"');
	for (let at = texts.indexOf('{'); at !== -1; at = texts.indexOf('{', at + 1)) {
		const text = balanced(texts.slice(at));
		const written = text.replaceAll("'", '"').replace(/([{,]\s*)(\w+)\s*:/g, '$1"$2":');
		const example = parseJson(quoted(text)) ?? parseJson(quoted(written));
		const isAsked = about.test(before(texts.slice(0, at)));
		const isOne = isAsked || text.search(about) >= 0 || (purpose === 'first' && OF_DEVICE.test(text));
		if (!isObject(example) || ERROR.test(text) || wraps(example, about, documents)) continue;
		if (purpose !== 'answer' && endsSomething(JSON.stringify(example))) continue;
		const filled = fill(example, purpose, documents);
		// A message with the id of a notification answers it, whatever the words before are about.
		if (!filled || !(isOne || ID_NAME.test(filled.pointer ?? ''))) continue;
		if (!mayWrap(example)) at += text.length - 1;
		found.push({ ...filled, ...(isAsked && { isAsked }) });
	}
	return purpose === 'first' ? [...plainIn(texts), ...found] : found;
}

/** `CONNECT <token>`: a message in plain text begins with a word in capitals. */
const PLAIN = /\b[A-Z][A-Z\d_]+(?: +<[\w. -]{1,40}>)+/g;

/** Without anything that only the device knows it may be written for any other purpose. */
function plainIn(words: string): Example[] {
	return [...words.matchAll(PLAIN)].flatMap(([text]) => {
		const filled = ERROR.test(text) || endsSomething(text) ? null : fill(text, 'first', []);
		return filled && /\{(?:token|deviceId|workflowId)\}/.test(filled.text) ? [filled] : [];
	});
}

const ID_NAME = /(?:id|seq\w*|number|nr|ref)$/i;
/** What only a device can say: it introduces itself. */
const OF_DEVICE = /<[^>]*(?:token|device|connection|workflow)[^>]*>/i;

/** The words of a message about the object that follows: its names, `"heartbeat":{"message":`, or those before it, `acknowledge with`. */
const before = (text: string) =>
	/(?:"\w+"\s*:\s*(?:\{\s*|\d+\s*,\s*)?){1,3}$/.exec(text)?.[0] ?? /[^{}"]{0,40}$/.exec(text)?.[0] ?? '';

const namesIn = (one: unknown) => String(Object.keys(Object(one)).sort());

/** Whether an object says nothing itself, and another one in it does: by its word, or as `{"ack":"<seq>"}`. One made as messages of the service are says it itself. */
const wraps = (example: Record<string, unknown>, about: RegExp, documents: readonly unknown[]) =>
	!hasWord(example) &&
	!documents.some((one) => namesIn(one) === namesIn(example)) &&
	!Object.values(example).some((value) => typeof value !== 'object' && PLACEHOLDER.test(String(value))) &&
	membersOf(example, 3).some(
		({ value }) => isObject(value) && (hasWord(value) || saysIn(value, about) || saysHowOften(example)),
	);

/** `{"every":20,"say":{"k":0,"n":"<n>"}}`. */
const saysHowOften = (example: object) =>
	Object.entries(example).some(
		([name, value]) => typeof value === 'number' && /every|interval|period|cadence|seconds/i.test(name),
	);

/** Whether its one member may be the example, under a name of the words about it: `{"acknowledge":{"header":…,"body":…}}`. */
const mayWrap = (example: object) => {
	const [only, ...others] = Object.values(example);
	return others.length === 0 && isObject(only) && Object.values(only).some(isObject);
};

/** Or a number in its place. */
const hasWord = (example: Record<string, unknown>) =>
	readWord(example) !== null || WORD_NAMES.some((name) => Number.isInteger(example[name]));

const saysIn = (example: object, about: RegExp) =>
	Object.entries(example).some(([name, value]) => about.test(name) && PLACEHOLDER.test(String(value)));

const quoted = (text: string) => text.replace(/([:[,]\s*)(<[\w. -]+>)/g, '$1"$2"');

/** From the brace at the start to the one that closes it; empty where none does. */
function balanced(text: string): string {
	let depth = 0;
	for (let end = 0; end < Math.min(text.length, 2000); end += 1) {
		if (text[end] === '{') depth += 1;
		if (text[end] === '}') depth -= 1;
		if (depth === 0) return text.slice(0, end + 1);
	}
	return '';
}

/** An example with our fields in the place of its own; `null` where one of them is nothing that the agent knows. */
function fill(example: object | string, purpose: TemplatePurpose, documents: readonly unknown[]): Example | null {
	const asks = PLACEHOLDER.test(JSON.stringify(example).slice(1, -1));
	const pointers = new Set<string>();
	const missing: string[] = [];
	const fieldFor = (name: string): string => {
		if (/device(?:\W?_?id)?$|terminal|kiosk/i.test(name)) return '{deviceId}';
		if (/workflow/i.test(name)) return '{workflowId}';
		const place = purpose === 'answer' ? placeOf(name, documents) : undefined;
		if (place !== undefined) pointers.add(place);
		if (place !== undefined || (purpose === 'answer' && ID_NAME.test(name))) return '{id}';
		if (purpose === 'first' && /token|connection|credential|auth|secret|key|jwt/i.test(name)) return '{token}';
		if (/time|date|now|^ts$/i.test(name)) return /ms|milli|epoch/i.test(name) ? '{sentAtMs}' : '{sentAt}';
		if (/uptime/i.test(name)) return '{uptimeSeconds}';
		if (/^(?:\w*(?:id|number)|n|s|nonce|count\w*|seq\w*)$/i.test(name)) return '{sequence}';
		missing.push(name);
		return '';
	};
	const filled = (words: string, name: string) =>
		words.replace(EVERY, (_, ...names) => fieldFor(String(names.slice(0, 3).find(Boolean) ?? name)));
	const asJson = (name: string, value: unknown) => {
		if (typeof value !== 'string' && typeof value !== 'number') return value;
		if (PLACEHOLDER.test(String(value))) return filled(String(value), name);
		// An example without a placeholder may have a value of another device in it.
		if (purpose === 'first' && typeof value === 'string' && /token|connection|credential|auth/i.test(name))
			return /connection\s/i.test(value) ? 'Connection {token}' : '{token}';
		if (/^(?:device|workflow)_?id$/i.test(name)) return fieldFor(name);
		return !asks && purpose === 'answer' && /id$/i.test(name) ? '{id}' : value;
	};
	const text = typeof example === 'string' ? filled(example, '') : JSON.stringify(example, asJson);
	const isWhole = missing.length === 0 && pointers.size < 2 && templateProblem(text, purpose) === null;
	return isWhole ? { text, pointer: [...pointers][0] } : null;
}

/** Where notifications have the field of this name (`seq`, `event.seq`, where `event` may be what a notification is called). */
function placeOf(name: string, documents: readonly unknown[]): string | undefined {
	const wanted = `/${name.trim().replaceAll('.', '/')}`.toLowerCase();
	const places = documents.flatMap((one) => membersOf(one, 3)).filter(({ value }) => typeof value !== 'object');
	const fits = places.filter(({ pointer }) => pointer.toLowerCase().endsWith(wanted));
	const [, inner] = fits.length === 0 ? name.split(/\.(.*)/) : [];
	if (inner) return placeOf(inner, documents);
	return (fits.find(({ pointer }) => pointer.toLowerCase() === wanted) ?? fits[0])?.pointer;
}
