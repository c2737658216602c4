/** Which messages of a channel are about the talk itself, and which kinds of them are proved to say nothing else. Pure. */
import { readNotification } from '../protocol/channel.ts';
import { parseJson, resolvePointer } from '../protocol/json.ts';
import {
	GREETS,
	GREETS_TOO,
	greeting,
	isError,
	isMoment,
	kindOf,
	likeTemplate,
	type Message,
	membersOf,
	messagesOf,
	NAMELESS,
	type ReadingSettings,
	ranked,
	tellsOfOthers,
	withoutRepeating,
	wordOf,
} from './probe-readings.runner.ts';
import type { Life } from './probe-wire.runner.ts';

const MAX_MUTE = 2;

/** A message that is named as one and says nothing but numbers and times, whether or not one of them is an id; or one too short to say anything, such as `2` or `h`. */
export function isPing(text: string, form: ReadingSettings): boolean {
	if (text.trim().length <= MAX_MUTE) return true;
	const isNamed = /^(?:.*[./:_-])?(?:p[io]ng|keep.?alive|heart.?beat|hb)$/i.test(wordOf(text, form));
	const words = membersOf(parseJson(text)).filter(({ value }) => typeof value === 'string' && !isMoment(value));
	return isNamed && words.length < 2;
}

/**
 * Whether a message is about the talk itself: a greeting or a ping without an id, an error, an echo of the device, or an answer to what it
 * said first, to its heartbeats or to its acknowledgements. @param answerMs how soon an answer comes. @param settings what the channel was opened with besides.
 */
export function asides(
	life: Life,
	form: ReadingSettings,
	answerMs: number,
	settings: Readonly<Record<string, unknown>> = {},
): (text: string) => boolean {
	const answers = heartbeatAnswers(life, answerMs, form, settings);
	const isReceipt = answersAcks(life, answerMs, form, settings);
	const came = new Map<string, { readonly texts: Set<string>; readonly count: number; readonly least: number }>();
	for (const one of ranked(life, Object(settings['firstMessages']).length ?? 0, answerMs))
		for (const { text } of messagesOf([one], form)) {
			const { texts, count, least } = came.get(wordOf(text, form)) ?? { texts: new Set(), count: 0, least: 2 };
			const now = { texts: texts.add(withoutRepeating(parseJson(text))), count: count + 1 };
			came.set(wordOf(text, form), { ...now, least: Math.min(least, one.rank ?? 0) });
		}
	const { ignoreKinds = [], ...own } = settings as ReadingSettings & { ignoreKinds?: readonly string[] };
	const greets = greeting(life.heard, form);
	const isNews = tellsOfOthers(life, form, answerMs);
	const echoes = new Set(life.said.map(({ text }) => text));
	return (text) => {
		const word = wordOf(text, form);
		const hasId = readNotification({ type: 'text', text }, form).serviceId !== null;
		const { texts, count = 0, least } = came.get(word) ?? {};
		const isReply = least === 2 && (!hasId || NAMELESS.includes(word));
		// One that comes once may come then by chance, and what says something new each time is news.
		const isAnswer = least === 1 && count > 1 && texts?.size === 1 && !hasId;
		// An answer to a heartbeat that is named as one may have an id as well.
		const isNamed = (!hasId || least === 1) && GREETS_TOO.test(word);
		const isGreeting = !hasId && GREETS.test(word.replaceAll('_', '.'));
		return (
			isPing(text, form) ||
			text === greets ||
			isReply ||
			isAnswer ||
			isGreeting ||
			isNamed ||
			(isError(text) && !isNews(text)) ||
			echoes.has(text) ||
			ignoreKinds.includes(kindOf(text, { ...form, ...own })) ||
			answers.includes(kindOf(text, form)) ||
			isReceipt(text)
		);
	};
}

/** Answers to fewer heartbeats may be chance. */
const MIN_ANSWERED = 3;

/** Kinds that are proved to answer heartbeats. @param answerMs how soon an answer comes. @param settings what the channel was opened with besides. */
export function heartbeatAnswers(
	{ heard, said, ended }: Pick<Life, 'heard' | 'said' | 'ended'>,
	answerMs: number,
	form: ReadingSettings,
	{ firstMessages = [], pingKind, pongBody = '{"type":"pong"}', ackBody }: Readonly<Record<string, unknown>> = {},
): string[] {
	const replies = [...(pingKind ? [pongBody] : []), ...(ackBody ? [ackBody] : [])].map((one) =>
		likeTemplate(String(one)),
	);
	const beatsAtMs = said
		.slice((firstMessages as readonly unknown[]).length)
		.filter(({ text }) => !replies.some((isReply) => isReply(text)))
		.map(({ atMs }) => atMs);
	const messages = messagesOf(heard, form);
	const lastMs = Math.max(...messages.map(({ atMs }) => atMs), ...beatsAtMs.slice(-1), ended?.atMs ?? 0);
	const answered = beatsAtMs.filter(
		(sentMs) => lastMs - sentMs > answerMs || messages.some(({ atMs }) => atMs > sentMs),
	);
	const kinds = new Set(messages.map(({ text }) => kindOf(text, form)));
	return [...kinds].filter((kind) => {
		const own = messages.filter(({ text }) => kindOf(text, form) === kind);
		return (
			!NAMELESS.includes(kind) &&
			kind !== pingKind &&
			answered.length >= MIN_ANSWERED &&
			own.length === answered.length &&
			answered.every((sentMs) => own.some(({ atMs }) => atMs >= sentMs && atMs - sentMs <= answerMs)) &&
			own.every(({ text }, index) => saysNothingElse(parseJson(text), kind, String(index + 1)))
		);
	});
}

type Talk = Pick<Life, 'heard' | 'said' | 'ended'>;
type Settings = Readonly<Record<string, unknown>>;

/** The acknowledgements of a device, each with the id in it. */
function acksIn({ said }: Talk, { ackBody }: Settings): { readonly atMs: number; readonly id: string }[] {
	if (typeof ackBody !== 'string') return [];
	const place = membersOf(parseJson(ackBody)).find(({ value }) => value === '{id}')?.pointer;
	const isAck = likeTemplate(ackBody);
	const own = place === undefined ? [] : said.filter(({ text }) => isAck(text));
	return own.map(({ atMs, text }) => ({ atMs, id: String(resolvePointer(parseJson(text), place ?? '')) }));
}

const namesIn = (text: string) =>
	membersOf(parseJson(text)).flatMap(({ value }) => (typeof value === 'object' ? [] : [String(value)]));

/** The kinds that only ever come right after an acknowledgement, with its id, and are of another kind than what was acknowledged. */
function receiptKinds(
	acks: ReturnType<typeof acksIn>,
	messages: readonly Message[],
	answerMs: number,
	form: ReadingSettings,
) {
	const byId = Map.groupBy(acks, ({ id }) => id);
	const named = (byId.size === 0 ? [] : messages).map(({ atMs, text }) => {
		const ids = namesIn(text).filter((name) => byId.has(name));
		return { atMs, text, kind: kindOf(text, form), ids };
	});
	/** When each kind first came with an id. */
	const firstMs = new Map<string, Map<string, number>>();
	for (const { atMs, kind, ids } of named)
		for (const id of ids) {
			const kinds = firstMs.get(id) ?? new Map<string, number>();
			if (!kinds.has(kind)) firstMs.set(id, kinds.set(kind, atMs));
		}
	const isReceipt = ({ atMs, kind, ids }: (typeof named)[number]) =>
		ids.some((id) =>
			byId.get(id)?.some((ack) => {
				const isSoon = atMs >= ack.atMs && atMs - ack.atMs <= answerMs;
				return isSoon && [...(firstMs.get(id) ?? [])].some(([other, ms]) => other !== kind && ms <= ack.atMs);
			}),
		);
	const kinds = [...Map.groupBy(named, ({ kind }) => kind)];
	return kinds.filter(([kind, own]) => !form.unasked?.includes(kind) && own.every(isReceipt));
}

/** Whether a message is of a kind that only ever answers acknowledgements: no notification, and not sent again. @param answerMs how soon an answer comes. @param settings what the channel was opened with besides. */
export function answersAcks(life: Talk, answerMs: number, form: ReadingSettings, settings: Settings) {
	const kinds = receiptKinds(acksIn(life, settings), messagesOf(life.heard, form), answerMs, form).map(
		([kind]) => kind,
	);
	return (text: string): boolean => kinds.includes(kindOf(text, form));
}

/** Kinds that are proved to answer acknowledgements: one comes for each, and has nothing in it but its id. */
export function ackAnswers(life: Talk, answerMs: number, form: ReadingSettings, settings: Settings): string[] {
	const messages = messagesOf(life.heard, form);
	const acks = acksIn(life, settings);
	const lastMs = Math.max(...messages.map(({ atMs }) => atMs), life.ended?.atMs ?? 0);
	const answered = acks.filter(({ atMs }) => lastMs - atMs > answerMs || messages.some((one) => one.atMs > atMs));
	const isEnough = new Set(answered.map(({ id }) => id)).size >= MIN_ANSWERED;
	return receiptKinds(acks, messages, answerMs, form)
		.filter(
			([kind, own]) =>
				!NAMELESS.includes(kind) &&
				isEnough &&
				own.length === answered.length &&
				own.every(({ text, ids: [id = ''] }) => saysNothingElse(parseJson(text), kind, id)),
		)
		.map(([kind]) => kind);
}

/** Names under which nothing (`null`) says that all is well, or that there is no number; under another name it may be the place of contents. */
const NO_CONTENTS =
	/^(?:err(?:or)?s?(?:[_-]?(?:code|message|text|reason))?|fault|seq(?:uence)?(?:[_-]?(?:no|nr|number|id))?|nr|no|n)$/i;

/**
 * Whether a message has nothing but its kind, the heartbeat's own number, times, and yes or no. One with any other word or
 * number in it may share its kind with notifications, which would be dropped with it; so may one with a list or an object that is
 * empty now. @param name of the member that is looked at.
 */
function saysNothingElse(message: unknown, kind: string, own: string, name = ''): boolean {
	if (message === null) return NO_CONTENTS.test(name);
	if (typeof message === 'object')
		return (
			!Array.isArray(message) &&
			Object.keys(message).length > 0 &&
			Object.entries(message).every(([key, value]) => saysNothingElse(value, kind, own, key))
		);
	const isOwn = String(message) === kind || String(message) === own;
	return isOwn || typeof message === 'boolean' || isMoment(message);
}
