/** The form of a service's messages as `idv probe` reads it from them: how frames are written, where kinds and ids are. Pure. */
import { bodyOf } from '../protocol/frame-messages.ts';
import { isObject, parseExactly, parseJson, resolvePointer } from '../protocol/json.ts';
import { looksLikeToken } from '../protocol/registration-answer.ts';
import {
	deciding,
	isMoment,
	isTalk,
	KIND_NAME,
	kindOf,
	kindsIn,
	type Message,
	membersOf,
	messagesOf,
	type Ranked,
	type ReadingSettings,
	withoutRepeating,
} from './probe-readings.runner.ts';

const isJson = (text: string) => isObject(parseJson(text)) || Array.isArray(parseJson(text));

/** How the service writes messages, from all that came. @param ignored kinds of other messages. */
export function readForm(heard: readonly Ranked[], ignored: readonly string[] = []): ReadingSettings {
	const inBinary = heard.filter(({ frame }) => frame.type === 'binary');
	const isBinary = messagesOf(inBinary, { jsonInBinary: true }).some(({ text }) => isJson(text));
	const binary: ReadingSettings = isBinary ? { jsonInBinary: true } : {};
	const whole = messagesOf(heard, { frameContents: 'one', ...binary }).map(({ text }) => text);
	const isList = (text: string) => {
		const list = parseJson(text);
		return Array.isArray(list) && list.length > 0 && list.every(isObject);
	};
	const lone = messagesOf(deciding(heard), { frameContents: 'one', ...binary }).map(({ text }) => parseJson(text));
	const frameContents = whole.some(isList)
		? 'array'
		: whole.some((text) => bodyOf(text) !== null)
			? 'body'
			: listPlace(lone.filter(isObject));
	const form: ReadingSettings = { ...binary, ...(frameContents && { frameContents }) };
	const documents = withoutChatter(
		messagesOf(deciding(heard), form)
			.filter(({ text }) => isJson(text) && !ignored.includes(kindOf(text, form)))
			.map(({ text }) => parseExactly(text)),
	);
	const idPointer = idPlace(documents);
	const kindPointer = kindPlace(documents, idPointer);
	const notificationIdPointer = idPointer === '/id' ? null : idPointer;
	const read = {
		...form,
		...(kindPointer && { kindPointer }),
		...(notificationIdPointer && { notificationIdPointer }),
	};
	const unacked = heard.filter(({ isUnacked }) => isUnacked);
	const unasked = [...new Set(messagesOf(unacked, read).map(({ text }) => kindOf(text, read)))];
	return { ...read, ...(unasked.length > 0 && { unasked }) };
}

/** By every word in a message that may name its kind. */
const byKind = (documents: readonly unknown[]) =>
	Map.groupBy(documents, (one) => [kindOf(JSON.stringify(one), {}), ...kindsIn(JSON.stringify(one))].join(' '));

/** Fewer messages of a kind do not show that it only counts. */
const MIN_CHATTER = 3;

/** Whether the messages of one kind, in their order, differ in nothing but numbers that count up, or times. */
function isChatter(own: readonly unknown[]): boolean {
	const members = own.flatMap((one) => membersOf(one)).filter(({ value }) => typeof value !== 'object');
	const places = [...Map.groupBy(members, ({ pointer }) => pointer).values()];
	const differing = places.filter((all) => all.length < own.length || new Set(all.map(({ value }) => value)).size > 1);
	const isCount = (all: typeof members) =>
		all.length === own.length &&
		(all.every(({ value }) => isMoment(value)) ||
			all.every(
				({ value }, at) => Number.isInteger(value) && (at === 0 || Number(value) > Number(all[at - 1]?.value)),
			));
	// One that comes again and counts itself has an id, and what is at the usual place is one.
	const isKnown = places.some((all) => {
		const [{ name = '', pointer = '' } = {}] = all;
		return pointer === '/id' || (!differing.includes(all) && ID_NAMES.slice(0, 2).some((id) => id.test(name)));
	});
	return own.length >= MIN_CHATTER && differing.length > 0 && differing.every(isCount) && !isKnown;
}

/** Messages that may be notifications: without talk and chatter, as far as anything else is left. */
function withoutChatter(documents: readonly unknown[]): readonly unknown[] {
	const news = documents.filter((one) => !isTalk(JSON.stringify(one), {}));
	const left = [...byKind(news).values()].filter((own) => !isChatter(own)).flat();
	return [left, news].find(({ length }) => length > 0) ?? documents;
}

const LIST_NAME =
	/^(?:notifications?|events?|messages?|msgs|items|batch|data|entries|records|updates|list|queue|values|payload)$/i;

/**
 * Where most frames that say nothing themselves hold an array of what does. A frame in which it is empty does not count, nor one of another kind:
 * they share numbers and times at most.
 */
function listPlace(documents: readonly Record<string, unknown>[]): `/${string}` | null {
	const says = (one: unknown) =>
		isObject(one) &&
		membersOf(one, 2).some(({ name, value }) => KIND_NAME.test(name) && (isKindWord(value) || Number.isInteger(value)));
	const bare = documents.filter(
		(one) => !Object.entries(one).some(([name, value]) => KIND_NAME.test(name) && isKindWord(value)),
	);
	const placeIn = (one: Record<string, unknown>) => {
		const lists = membersOf(one, 2).filter(
			({ name, value }) =>
				Array.isArray(value) &&
				value.length > 0 &&
				value.every(says) &&
				(LIST_NAME.test(name) || Object.keys(one).length === 1),
		);
		return lists.length === 1 ? lists[0]?.pointer : undefined;
	};
	const namesOf = (one: object) =>
		Object.entries(one).flatMap(([name, value]) => (typeof value === 'number' || isMoment(value) ? [] : [name]));
	const place = [...new Set(bare.flatMap((one) => placeIn(one) ?? []))].find((at) => {
		const own = bare.filter((one) => placeIn(one) === at);
		const names = new Set(own.flatMap(namesOf));
		const isLike = (one: object) => namesOf(one).some((name) => names.has(name));
		return 2 * own.length > bare.filter((one) => isLike(one) && Object(resolvePointer(one, at)).length !== 0).length;
	});
	return (place as `/${string}` | undefined) ?? null;
}

/** What messages of every kind are called alike. */
const ENVELOPE =
	/^(?:v\d+(?:\.\d+)*|notifications?|events?|messages?|msg|data|push|envelope|notify|updates?|publish|batch)$/i;
const isShortWord = (value: unknown): value is string =>
	typeof value === 'string' &&
	/^[A-Za-z][\w.:/-]{0,63}$/.test(value) &&
	!/\d{5,}|^[0-9a-f]{8}-/i.test(value) &&
	!looksLikeToken({ place: '', text: value });
const isKindWord = (value: unknown): value is string => isShortWord(value) && !ENVELOPE.test(value);

/** The place with the highest rank above 0. @param depth how deep it is looked for. */
function bestPlace(
	documents: readonly unknown[],
	depth: number,
	rank: (pointer: string, name: string, values: unknown[]) => number,
) {
	const places = new Set(documents.flatMap((one) => membersOf(one, depth)).map(({ pointer }) => pointer));
	const [best] = [...places]
		.map((pointer) => {
			// An element of a list is named by the list.
			const name = pointer.split('/').findLast((part) => !/^\d*$/.test(part)) ?? '';
			const values = documents.map((one) => resolvePointer(one, pointer));
			return { pointer, rank: rank(pointer, name, values) - pointer.split('/').length };
		})
		.filter((one) => one.rank > 0)
		.sort((a, b) => b.rank - a.rank);
	return best?.pointer ?? null;
}

const USUAL_DEPTH = 3;
/** Of a message in envelopes of a protocol of its own, such as GraphQL's. */
const MAX_DEPTH = 6;
const above = (pointer: string) => pointer.slice(0, pointer.lastIndexOf('/'));

/** Where the kind is, if not at `type`, `event` or `kind` at the top; `null` where it is there, or nowhere. */
function kindPlace(documents: readonly unknown[], idPointer: string | null): string | null {
	const beside = above(idPointer ?? '');
	const unnamed = documents.filter((one) => {
		const kind = kindOf(JSON.stringify(one), {});
		return kind === 'unknown' || ENVELOPE.test(kind);
	});
	const place = bestPlace(unnamed, USUAL_DEPTH, (pointer, name, values) => {
		const words = values.filter(isKindWord);
		const numbers = values.filter((value) => Number.isInteger(value) && Number(value) < 100_000);
		const isNamed = KIND_NAME.test(name);
		const dotted = words.filter((word) => /[a-z][._:/-][a-z]/i.test(word)).length;
		const fits = isNamed ? Math.max(words.length, numbers.length) : dotted;
		const differs = new Set(words).size > 1;
		if (/id$/i.test(name) || !(isNamed || differs) || (!isNamed && NO_KIND.test(name))) return 0;
		const isBeside = differs && beside !== '' && above(pointer) === beside;
		const isTelling = dotted > 0 && differs && (isBeside || above(pointer) === '');
		// Another thing's own kind, such as that of a document.
		const isOthers = above(pointer) !== beside && isWithin(pointer, unnamed);
		const likely = (isNamed ? 10 : 0) + (dotted > 0 ? 6 : 0) + (words.length > 0 ? 4 : 0) + (isBeside ? 8 : 0);
		const sure = likely + (isTelling ? 12 : 0) - (isOthers ? (dotted > 0 && differs ? 7 : 20) : 0);
		return 100 * (fits / unnamed.length) + sure - 50;
	});
	const usual = beside === '' ? place : (kindInEnvelope(documents, idPointer ?? '', beside) ?? place);
	const isLast = usual !== null && above(usual) !== beside && isWithin(usual, unnamed);
	return isLast ? (repeatedWord(documents, beside) ?? usual) : (usual ?? repeatedWord(documents, beside));
}

/** Whether a place is in something that a message is about: an element of a list in it, or an object that is another thing's. */
export function isWithin(pointer: string, documents: readonly unknown[]): boolean {
	const parts = above(pointer).split('/').slice(1);
	const isThing = (name: string) => (OTHER_ID.test(name) || NO_KIND.test(name)) && !OF_MESSAGE.test(name);
	const isInList = (at: number) =>
		documents.some((one) => Array.isArray(resolvePointer(one, `/${parts.slice(0, at).join('/')}`)));
	return parts.some((name, at) => isThing(name) || (at > 0 && isInList(at)));
}

/** Fewer messages show little of what repeats. */
const MIN_KINDS_SEEN = 4;
/** Names of fields whose values repeat as well, and are not kinds. */
const NO_KIND =
	/status|state|version|lang|locale|country|currency|region|zone|^tz$|priority|severity|level|attempt|retr|count|source|site|place|result|document|media|mime|gender|^sex$|desk|station|room|lane|queue|host|node|colou?r/i;

/** Where no name tells: what every message has at the top or beside the id, and has few short words for many that differ; or a number that comes first. */
function repeatedWord(documents: readonly unknown[], beside: string): string | null {
	if (documents.some((one) => kindOf(JSON.stringify(one), {}) !== 'unknown')) return null;
	const differing = new Set(documents.map(withoutRepeating)).size;
	return bestPlace(documents, USUAL_DEPTH, (pointer, name, values) => {
		const kinds = new Set(values).size;
		const isThere = above(pointer) === '' || above(pointer) === beside;
		const isFirst = documents.every((one) => pointer === `/${Object.keys(Object(one))[0]}`);
		const isWord = values.every(isShortWord) || (isFirst && values.every(Number.isInteger));
		if (!isThere || !isWord || kinds < 2 || 2 * kinds > differing || differing < MIN_KINDS_SEEN) return 0;
		return ID_NAMES.some((id) => id.test(name)) || NO_KIND.test(name) || isOther(pointer) ? 0 : isFirst ? 20 : 10;
	});
}

/** A word that is the same in every message only says that there is one in it: the kind is then beside the id. */
function kindInEnvelope(documents: readonly unknown[], idPointer: string, beside: string): string | null {
	const own = documents.filter((one) => isScalar(resolvePointer(one, idPointer)));
	const [kind = '', ...others] = new Set(own.map((one) => kindOf(JSON.stringify(one), {})));
	if (others.length > 0 || !/^[a-z]+$/i.test(kind)) return null;
	const isNumbered = own.every((one) => isScalar(resolvePointer(one, '/id')));
	return bestPlace(own, MAX_DEPTH, (pointer, name, values) => {
		const differs = isNumbered || new Set(values).size > 1;
		return KIND_NAME.test(name) && above(pointer) === beside && differs && values.every(isKindWord) ? 50 : 0;
	});
}

const ID_NAMES = [
	/^(?:message|msg|event|notification|delivery)[_-]?(?:id|uuid|no|number|ref)s?$/i,
	/^(?:ids?|_id|uuid|guid|@id|mid|eid|nid)$/i,
	/^(?:seq|sequence|offset|cursor|ref|reference|key|nr|no|number|n)$/i,
	/(?:id|uuid|guid|seq|nr|ref)s?$/i,
];
/** The place among them of those that may count. */
const COUNTER = 2;

/** Numbers from 0 or 1 on, without a gap: they may begin again with the next channel, and then the device would drop what is new. */
function countsChannel(values: readonly unknown[]): boolean {
	const numbers = values
		.filter(isScalar)
		.map(Number)
		.sort((a, b) => a - b);
	const [first = -1] = numbers;
	return (first === 0 || first === 1) && numbers.every((value, at) => value === first + at);
}

/** Ids of what a message is about. */
const OTHER_ID =
	/session|device|workflow|person|user|tenant|account|correlation|trace|client|channel|connection|request/i;

const OF_MESSAGE = /noti(?:f|ce)|event|message/i;

const isOther = (pointer: string) => pointer.split('/').some((part) => OTHER_ID.test(part) && !OF_MESSAGE.test(part));

/** Where the id of a message is; `null` for nowhere. A value that is the same in different messages is none. */
function idPlace(documents: readonly unknown[]): string | null {
	const kinds = [...byKind(documents).values()];
	// A kind that comes often counts no more than another.
	const share = new Map(kinds.flatMap((all) => all.map((one) => [one, 1 / (all.length * kinds.length)] as const)));
	const rank = (pointer: string, name: string, values: unknown[]) => {
		const own = documents.filter((_, index) => isScalar(values[index]));
		const at = ID_NAMES.findIndex((pattern) => pattern.test(name));
		const isTelling = new Set(values.filter(isScalar).map(String)).size >= new Set(own.map(withoutRepeating)).size;
		if (at === -1 || isOther(pointer) || !isTelling || (at === COUNTER && countsChannel(values))) return 0;
		const inKinds = own.reduce<number>((sum, one) => sum + (share.get(one) ?? 0), 0);
		return 100 * inKinds + (pointer === '/id' ? 30 : 0) - 8 * at - 20;
	};
	const place = bestPlace(documents, USUAL_DEPTH, rank);
	// A single message shows nothing that differs.
	return place ?? (new Set(documents.map(withoutRepeating)).size > 1 ? bestPlace(documents, MAX_DEPTH, rank) : null);
}

/** Other places than that of the id whose values tell messages apart as their ids do, the likely ones first. */
export function otherIds(messages: readonly Message[], { notificationIdPointer = '/id' }: ReadingSettings): string[] {
	const documents = messages.map(({ text }) => parseJson(text)).filter(isObject);
	const numberOf = (...pointers: readonly string[]) =>
		new Set(documents.map((one) => JSON.stringify(pointers.map((each) => resolvePointer(one, each))))).size;
	const ids = numberOf(notificationIdPointer);
	const rank = (name: string) => ID_NAMES.findIndex((pattern) => pattern.test(name));
	const places = documents.slice(0, 1).flatMap((one) => membersOf(one, 2));
	return places
		.filter(({ name, pointer, value }) => rank(name) !== -1 && pointer !== notificationIdPointer && isScalar(value))
		.filter(({ pointer }) => ids > 1 && numberOf(pointer) === ids && numberOf(pointer, notificationIdPointer) === ids)
		.sort((a, b) => rank(a.name) - rank(b.name))
		.map(({ pointer }) => pointer);
}

const isScalar = (value: unknown) => typeof value === 'string' || typeof value === 'number';
