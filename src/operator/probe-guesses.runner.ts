/**
 * Settings that may make a channel last, or bring its notifications, the likely ones first. A guess decides nothing: the agent's own link with
 * its settings does. Pure.
 */
import { readWord, WORD_NAMES } from '../protocol/channel.ts';
import { isObject, parseJson } from '../protocol/json.ts';
import type { TemplatePurpose } from '../protocol/templates.ts';
import { ABOUT_ACK, mayAcknowledge } from './probe-acks.runner.ts';
import { answersAcks, asides } from './probe-asides.runner.ts';
import { type Example, examplesIn } from './probe-examples.runner.ts';
import { familySettings } from './probe-families.ts';
import { otherIds } from './probe-form.runner.ts';
import { ABOUT_PING, mayBePing, pingName, pongGuess, pongs, REPLIES } from './probe-pongs.runner.ts';
import {
	ERROR,
	GREETS,
	greeting,
	isError,
	isTalk,
	kindOf,
	type Message,
	membersOf,
	messagesOf,
	NAMELESS,
	PLACEHOLDER,
	type ReadingSettings,
	repeated,
	tellsOfOthers,
	wordOf,
} from './probe-readings.runner.ts';
import type { Life } from './probe-wire.runner.ts';

export interface Guess {
	/** Of the ledger (`src/protocol/assumptions.ts`). */
	readonly point: string;
	/** Without `service.`. */
	readonly settings: Readonly<Record<string, unknown>>;
	/** By the service itself. */
	readonly isWritten?: true;
	/** By words about what it is. */
	readonly isAsked?: true;
	/** Tried for want of anything better. */
	readonly isLast?: true;
}

interface Seen {
	readonly life: Life;
	readonly form: ReadingSettings;
	/** How soon after something its consequence comes. */
	readonly settleMs: number;
	/** What has been found so far. */
	readonly settings: Readonly<Record<string, unknown>>;
	/** Messages that the service has written out on other channels: about what was tried there, or about a fault that is mended since. */
	readonly written?: readonly Guess[];
}

const SAID_FIRST = ['authenticate', 'auth', 'hello', 'login', 'register', 'identify', 'connect', 'subscribe'];
const VERBS =
	/\b(subscribe|sub|authenticate|authorize|authorization|auth|log_?(?:in|on)|sign_?(?:in|on)|hello|helo|identify|register|connect|connection_init|init|join|start|open|ready|attach|listen|handshake|bind|announce|hi)\b/gi;
/** Words of messages that a device says once: it neither beats nor answers with them, whatever the text before them is about. */
const SAYS_FIRST = /(?:^|[._:/-])(?:sub(?:scribe)?|authenticate|auth|log_?in|identify|register|join|connection_init)$/i;
const ACKS = /\b(ack(?:now\w*|ed|s)?|receive[ds]?|confirm(?:ed|ation)?|receipt)\b/gi;
const ABOUT_FIRST =
	/subscri|authent|\bauth\b|log.?in\b|log.?on\b|hello|identif|regist|first|handshake|join|announce|introduc|greet|sign.?[io]n|\binit/i;
const ABOUT_ALIVE = /heart|beat|\bhb\b|alive|ping/i;
const ABOUT_ACKED = /"ack\w*"|acknowledg/i;
const ABOUT_ANSWER = new RegExp(`${ABOUT_PING.source}|${REPLIES.source}`, 'i');
const BEAT = /\b(?:heart_?beat|hb|keep_?alive|alive)\b/i;
const ABOUT_BEAT =
	/heart.?beat|\bhb\b|unknown|unexpected|unsupported|invalid|malformed|schema|not understood|bad (?:message|frame)|format/i;
/** Where nothing is wrong but that nothing comes. */
const MAX_SILENT = 2;
const MAX_FIRST = 4;
const MAX_OTHER_IDS = 2;
const MAX_PLAIN = 2;

/** Nothing for a channel that lasts, brings messages, repeats none and names nothing that the device should say. */
export function guesses({ life, form, settleMs, settings, written: earlier = [] }: Seen): Guess[] {
	const messages = messagesOf(life.heard, form);
	const { ended } = life;
	const words = wordsIn(life, form, settleMs).join(' ');
	const isSilent = notificationsIn(life, form, settleMs, settings).length === 0;
	const isReceipt = answersAcks(life, settleMs, form, settings);
	const again = messages.filter(({ text }) => !isReceipt(text));
	const repeats = repeated(again, form).length > 0;
	const isUnacked = repeats || ABOUT_ACK.test(ended?.reason ?? '');
	const isPoor = ended !== null || isSilent;
	const saidLate = life.said.some(({ atMs }) => ended !== null && ended.atMs >= atMs && ended.atMs - atMs <= settleMs);
	const maySay = (name: string, isWanted: boolean) => isWanted && settings[name] === undefined;
	const own = namedIn(life, form, settleMs, settings);
	const withEarlier = (at: string, ones: readonly Guess[]) => [...ones, ...earlier.filter(({ point }) => point === at)];
	const named = {
		first: withEarlier('first-messages', own.first),
		acks: withEarlier('acknowledgement', own.acks).filter((one) =>
			mayAcknowledge(String(one.settings['ackBody']), isUnacked, one.isAsked === true),
		),
		// It takes the place of the ping that stands for one that is not known.
		beats: withEarlier('heartbeat-message', own.beats).map((one) =>
			settings['heartbeatMode'] === 'ping' ? { ...one, settings: { ...one.settings, heartbeatMode: 'frame' } } : one,
		),
		pongs: own.pongs,
	};
	/** In the order of how likely they are: the service's own words count most, those of the end before others, and what it writes out most of all. */
	const group = (about: RegExp, otherwise: number, examples: Guess[], isWanted: boolean, make: () => Guess[]) => ({
		weight: otherwise + (about.test(ended?.reason ?? '') ? 20 : about.test(words) ? 10 : 0),
		examples,
		make: () => (isWanted ? make() : []),
	});
	const likely = [
		group(
			ABOUT_FIRST,
			life.said.length === 0 || ended === null ? 4 : 2,
			isPoor ? named.first : [],
			maySay('firstMessages', isPoor),
			() => firstMessages(words, messages, form),
		),
		group(
			ABOUT_ACK,
			repeats ? 8 : 1,
			maySay('ackBody', true) ? named.acks : [],
			maySay('ackBody', repeats || (messages.length > 0 && ended !== null && ABOUT_ACK.test(words))),
			() => acknowledgements(words, messages, form, keysOf([...messages, ...saidFirst(settings)], form)),
		),
		group(
			ABOUT_PING,
			messages.some(({ text }) => mayBePing(text, form) && !GREETS.test(pingName(text, form))) ? 6 : 0,
			maySay('pingKind', true) ? named.pongs : [],
			maySay('pingKind', ended !== null),
			() => pongs(life, messages, form),
		),
		group(
			ABOUT_BEAT,
			saidLate ? 7 : -1,
			maySay('heartbeatBody', true) ? named.beats : [],
			maySay('heartbeatMode', maySay('heartbeatBody', ended !== null)),
			() => heartbeats(words, saidLate, [...saidFirst(settings), ...messages.filter(({ text }) => isTalk(text, form))]),
		),
		group(/^\b$/, life.failure?.code === 'channel-silent' ? 20 : -9, [], true, () => [
			{ point: 'dead-channel', settings: { silenceLimitSeconds: 0 } },
		]),
		group(/^\b$/, 0, [], maySay('firstMessages', ended !== null), () => firstMessages(words, messages, form, true)),
	].sort((a, b) => b.weight - a.weight);
	const written = likely.flatMap(({ examples }) => examples).map((one) => ({ ...one, isWritten: true as const }));
	if (!isPoor && !repeats) return written;
	const others = likely.filter(({ weight }) => weight >= 0).flatMap(({ make }) => make());
	const said = [life.path, life.subprotocol, ended?.reason, ...life.heard.map(textOf)].join('\n');
	const families = maySay('firstMessages', isPoor) ? familySettings(said) : [];
	return [
		...families.map((settings) => ({ point: 'first-messages', settings })),
		...written,
		...(isSilent && ended === null ? others.slice(0, MAX_SILENT) : others),
	];
}

const textOf = ({ frame }: Life['heard'][number]) => (frame.type === 'text' ? frame.text : '');

/** Messages that the service itself writes out, in its words or in what it says about the channel. */
function namedIn(life: Life, form: ReadingSettings, settleMs: number, settings: Seen['settings']) {
	const messages = messagesOf(life.heard, form);
	const isAside = asides(life, form, settleMs, settings);
	const isTold = (text: string) => isAside(text) || PLACEHOLDER.test(text);
	const told = messages.map(({ text }) => text).filter((text) => isObject(parseJson(text)) && isTold(text));
	const documents = messages.map(({ text }) => parseJson(text));
	const words = wordsIn(life, form, settleMs).filter((text) => !isObject(parseJson(text)));
	const inWords = (purpose: TemplatePurpose, about: RegExp) =>
		words.flatMap((text) => examplesIn(text, purpose, about, documents));
	const examples = (purpose: TemplatePurpose, about: RegExp) => [
		...inWords(purpose, about),
		// The braces of a message itself are none of an example, nor is every object in it.
		...[...new Set(told)].flatMap((told) =>
			examplesIn(told.trim().slice(1), purpose, about, documents).filter(({ text, isAsked }) => {
				const word = readWord(parseJson(text));
				// Beside the name of a heartbeat numbers say how often it is due.
				const isBeat = purpose === 'heartbeat' && isAsked && !/:\s*\d/.test(text);
				// The kind of the message itself is none either.
				return word === null ? isBeat || PLACEHOLDER.test(text) : word !== wordOf(told, form);
			}),
		),
	];
	const before = saidFirst(settings).map(({ text }) => text);
	const known = (text: string) => before.includes(text) || ABOUT_ALIVE.test(text) || ABOUT_ACKED.test(text);
	const word = ({ text }: Example) => wordOf(text, form);
	const isLater = (one: Example) => !SAYS_FIRST.test(word(one));
	// What answers a ping is another thing than a heartbeat.
	const isPong = (one: Example) => /pong/i.test(word(one));
	const answers = examples('answer', ABOUT_ANSWER).filter(
		(one) => isPong(one) || (one.isAsked && isLater(one) && !ABOUT_ACK.test(one.text)),
	);
	const number = answers.find(({ pointer }) => pointer !== (form.notificationIdPointer ?? '/id'))?.pointer;
	const first = examples('first', new RegExp(`${VERBS.source}|\\b(?:first|then)\\b`, 'i')).map(({ text }) => text);
	const unsaid = [...new Set(first)].filter((text) => !known(text)).slice(0, MAX_FIRST);
	const [ping] = pongs(life, messages, form, number);
	const pinged = String(ping?.settings['pingKind']);
	// The message that a service asks for in answer to its ping is not a heartbeat, and neither is the ping.
	const replies = ping ? examples('answer', REPLIES).filter(({ isAsked }) => isAsked) : [];
	const ofPing = replies.flatMap((one) => [word(one), pinged]);
	// While the channel lasts it may be counted until the service ends it, after the watch.
	const isCounted =
		life.ended === null && /ping/i.test(pinged) && /pong|ping.?interval/i.test(wordsIn(life, form, settleMs).join());
	const acks = examples('answer', ABOUT_ACK).filter((one) => isLater(one) && !isPong(one));
	const others = [...first, ...[...acks, ...answers].map(({ text }) => text), ...life.said.map(({ text }) => text)];
	const isOther = ({ text }: Example) => !known(text) && !others.includes(text);
	return {
		// One may be answered in no way, or be refused without the one before.
		first: [...unsaid.map((text) => [text]), ...(unsaid.length > 1 ? [unsaid] : [])].map((texts) => ({
			point: 'first-messages',
			settings: { firstMessages: [...before, ...texts] },
		})),
		acks: acks.map((one) => ackGuess(one, form)),
		// A message that the end names, and that is none of the others, may be due again and again.
		beats: [...examples('heartbeat', ABOUT_ALIVE), ...(life.ended ? inWords('heartbeat', /^/).filter(isOther) : [])]
			.filter((one) => isLater(one) && !isPong(one) && !ofPing.includes(word(one)))
			.map(({ text }) => ({ point: 'heartbeat-message', settings: { heartbeatBody: text } })),
		pongs: [...(ping ? answers : []).map(({ text }) => pongGuess(pinged, text)), ...(ping && isCounted ? [ping] : [])],
	};
}

/** Messages that may be notifications: none about the channel itself. */
export function notificationsIn(
	life: Life,
	form: ReadingSettings,
	settleMs: number,
	settings: Seen['settings'] = {},
): Message[] {
	const isAside = asides(life, form, settleMs, settings);
	return messagesOf(life.heard, form).filter(
		({ text }) => !isAside(text) && !GREETS.test(kindOf(text, form).replaceAll('_', '.')),
	);
}

/** Whether a channel brought what an earlier one did not: no error, and no echo of the device. */
export function bringsNews(life: Life, than: Life, form: ReadingSettings): boolean {
	const before = messagesOf(than.heard, form).filter(({ text }) => !isError(text));
	const known = before.map(({ text }) => wordOf(text, form));
	return messagesOf(life.heard, form).some(({ text }) => {
		const kind = wordOf(text, form);
		// What answers a ping of the device shows nothing of what else it has said.
		const isTold = NAMELESS.includes(kind) || !(ERROR.test(kind) || /(?:^|[./:_-])pong$/i.test(kind));
		return !known.includes(kind) && isTold && isNews(life, text);
	});
}

const isNews = (life: Life, text: string) => !isError(text) && !life.said.some((one) => one.text === text);

/** The words of the service about what it misses: the reason of the end, and messages about the talk. */
export function wordsIn(life: Life, form: ReadingSettings, answerMs: number): string[] {
	const { ended, heard } = life;
	const isNews = tellsOfOthers(life, form, answerMs);
	const said = messagesOf(heard, form).filter(({ text }) => isTalk(text, form) && !isNews(text));
	const greets = greeting(heard, form);
	const beat = greets !== null && BEAT.test(greets) ? greets : '';
	const others = said.map(({ text }) => text).filter((text) => text !== beat);
	const all = [ended?.reason ?? '', ...[beat, ...others.slice(-4)].map((text) => text.slice(0, 2000))];
	return all.filter((words) => words !== '');
}

/** The names under which the service itself says what a message is, that of notifications first; every usual one where it has said none. */
function keysOf(messages: readonly Message[], { kindPointer }: ReadingSettings): readonly string[] {
	const named = kindPointer?.split('/').findLast((part) => /\D/.test(part)) ?? [];
	const documents = messages.map(({ text }) => parseJson(text)).filter(isObject);
	const own = WORD_NAMES.filter((key) => documents.some((one) => typeof one[key] === 'string'));
	const all = [...new Set([named, own].flat())];
	return all.length > 0 ? all : WORD_NAMES.slice(0, 7);
}

const under = (keys: readonly string[], word: string) => Object.fromEntries(keys.map((key) => [key, word]));

/** The messages that a channel needs at first are written as every other message to the service. */
const saidFirst = ({ firstMessages = [] }: Readonly<Record<string, unknown>>): Message[] =>
	(firstMessages as readonly string[]).map((text) => ({ atMs: 0, text }));

function firstMessages(words: string, messages: readonly Message[], form: ReadingSettings, isLast = false): Guess[] {
	const keys = [...new Set([...keysOf(messages, form), 'type', 'action'])];
	const named = [...words.matchAll(VERBS)].map(([verb]) => (/^authoriz/i.test(verb) ? 'authenticate' : verb));
	const talk = messages.filter(({ text }) => isTalk(text, form)).flatMap(({ text }) => membersOf(parseJson(text), 4));
	const offered = talk.find(({ pointer, value }) => /\/channels\/0$/.test(pointer) && typeof value === 'string');
	const channel = offered?.value ?? 'ws/device';
	const fields = {
		token: '{token}',
		authorization: 'Connection {token}',
		connection: '{token}',
		deviceId: '{deviceId}',
		workflowId: '{workflowId}',
		channel,
		channels: [channel],
		topics: ['*'],
	};
	const message = (verb: string) => JSON.stringify({ ...under([...keys, 'command'], verb), ...fields });
	const sets = [
		...[...new Set(named)].slice(0, 3).map((verb) => [message(verb)]),
		[...new Set([...named, ...SAID_FIRST])].slice(0, 8).map(message),
		['Connection {token}'],
	];
	// After everything else: a service may end the channel at the first message that it does not know.
	const single = SAID_FIRST.filter((verb) => !named.includes(verb)).map((verb) => [message(verb)]);
	return (isLast ? single : sets).map((set) => ({
		...{ point: 'first-messages', settings: { firstMessages: set } },
		...(isLast && { isLast }),
	}));
}

function acknowledgements(
	words: string,
	messages: readonly Message[],
	form: ReadingSettings,
	keys: readonly string[],
): Guess[] {
	const own = form.notificationIdPointer?.split('/').findLast((name) => /\D/.test(name)) ?? 'id';
	// As the service spells them, or in small letters: a sentence begins with a large one as well.
	const named = [...words.matchAll(ACKS)].flatMap(([verb]) => [verb, verb.toLowerCase()]);
	const verbs = [...new Set([...named, 'ack'])];
	const ids = under([own, 'id', 'messageId', 'eventId', 'notificationId', 'ack'], '{id}');
	const usual = verbs.map((verb) => ({
		text: JSON.stringify({ ...under(keys, verb), ...ids }),
		pointer: undefined,
	}));
	// Some acknowledge by another number than the id, such as all up to a sequence.
	const others = otherIds(messages, form)
		.slice(0, MAX_OTHER_IDS)
		.map((pointer) => ({
			text: JSON.stringify({
				...under(keys, verbs[0] ?? 'ack'),
				[pointer.slice(pointer.lastIndexOf('/') + 1)]: '{id}',
			}),
			pointer,
		}));
	// A service may refuse what has more in it than it knows.
	const spelled = verbs.filter((verb) => verb.toLowerCase() === verbs[0]?.toLowerCase());
	const plain = spelled.flatMap((verb) =>
		keys.slice(0, MAX_PLAIN).map((key) => ({
			text: JSON.stringify({ [key]: verb, [own]: '{id}' }),
			pointer: undefined,
		})),
	);
	// Requests of JSON-RPC want a response, as its specification has it.
	const { jsonrpc } = Object(messages.map(({ text }) => parseJson(text)).find((one) => Object(one).jsonrpc));
	const response = jsonrpc ? [{ text: JSON.stringify({ jsonrpc, result: true, id: '{id}' }), pointer: undefined }] : [];
	const bodies = [...response, ...usual.slice(0, 1), ...others, ...plain, ...usual.slice(1)];
	return bodies.map((one) => ackGuess(one, form));
}

function ackGuess({ text, pointer, isAsked }: Example, form: ReadingSettings): Guess {
	const isOther = pointer !== undefined && pointer !== (form.notificationIdPointer ?? '/id');
	const settings = { ackBody: text, ...(isOther && { notificationIdPointer: pointer }) };
	return { point: 'acknowledgement', settings, ...(isAsked && { isAsked }) };
}

/** @param talk what the device says, and what the service says about the talk. @param saidLate a heartbeat came just before the end: the service may want a ping alone. */
function heartbeats(words: string, saidLate: boolean, talk: readonly Message[]): Guess[] {
	// It is written as all else in the talk, and named as the service names it.
	const [key = 'type'] = keysOf(talk, {});
	const heartbeatBody = JSON.stringify({ [key]: BEAT.exec(words)?.[0] ?? 'heartbeat' });
	const bodies = heartbeatBody === '{"type":"heartbeat"}' ? [] : [{ heartbeatBody }];
	return [...bodies, ...(saidLate ? [{ heartbeatMode: 'ping' }] : [])].map((settings) => ({
		point: 'heartbeat-message',
		settings,
	}));
}
