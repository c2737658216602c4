/**
 * Settings that may make a channel last, or bring its notifications, the likely ones first. A guess decides nothing: the agent's own link with
 * its settings does. Pure.
 */
import { isObject, parseJson } from '../protocol/json.ts';
import { examplesIn, PLACEHOLDER } from './probe-examples.ts';
import {
	ERROR,
	GREETS,
	heartbeatAnswers,
	isError,
	kindOf,
	type Message,
	messagesOf,
	NAMELESS,
	otherIds,
	type ReadingSettings,
	repeated,
} from './probe-readings.ts';
import type { Life } from './probe-wire.ts';

export interface Guess {
	/** Of the ledger (`src/protocol/assumptions.ts`). */
	readonly point: string;
	/** Without `service.`. */
	readonly settings: Readonly<Record<string, unknown>>;
}

interface Seen {
	readonly life: Life;
	readonly form: ReadingSettings;
	/** How soon after something its consequence comes. */
	readonly settleMs: number;
	/** What has been found so far. */
	readonly settings: Readonly<Record<string, unknown>>;
}

const SAID_FIRST = ['authenticate', 'auth', 'hello', 'login', 'register', 'identify', 'connect', 'subscribe'];
const VERBS =
	/\b(subscribe|authenticate|authorize|authorization|auth|login|log_in|hello|helo|identify|register|connect|connection_init|init|join|start|open|ready|attach|listen|handshake|bind|announce|hi)\b/gi;
const ACKS = /\b(ack\w*|receiv\w*|confirm\w*|receipt)\b/gi;
const ABOUT_FIRST =
	/subscri|authent|\bauth\b|login|hello|identif|regist|first|handshake|join|announce|introduc|greet|sign.?in|\binit/i;
const ABOUT_ACK = /\back|acknowledg|confirm|receipt|unacked|deliver/i;
const ABOUT_PING = /p[io]ng|keep.?alive|alive|idle|respon|echo/i;
const ABOUT_BEAT =
	/heart.?beat|\bhb\b|unknown|unexpected|unsupported|invalid|malformed|schema|not understood|bad (?:message|frame)|format/i;
const ASKS = /error|expect|requir|must|missing|send|first|please|unauth|reject|challenge|need/i;
const KEYS = ['type', 'event', 'kind', 'op', 'action', 'cmd', 'command', 'method', 't', 'name'];
/** Where nothing is wrong but that nothing comes. */
const MAX_SILENT = 2;
const MAX_PINGED = 3;
const MAX_OTHER_IDS = 2;
/** After a frame of the device: what always comes as soon answers it. */
const ANSWER_MS = 100;

/** Nothing for a channel that lasts, brings messages and repeats none. */
export function guesses({ life, form, settleMs, settings }: Seen): Guess[] {
	const messages = messagesOf(life.heard, form);
	const { ended } = life;
	const words = wordsIn(life, form).join(' ');
	const isSilent = notificationsIn(life, form, settleMs).length === 0;
	const repeats = repeated(messages, form) > 0;
	if (ended === null && !isSilent && !repeats) return [];
	const saidLate = life.said.some(({ atMs }) => ended !== null && ended.atMs >= atMs && ended.atMs - atMs <= settleMs);
	const maySay = (name: string, isWanted: boolean) => isWanted && settings[name] === undefined;
	/** In the order of how likely they are: the service's own words count most. */
	const group = (about: RegExp, otherwise: number, isWanted: boolean, make: () => Guess[]) => ({
		weight: otherwise + (about.test(words) ? 10 : 0),
		make: () => (isWanted ? make() : []),
	});
	const likely = [
		group(
			ABOUT_FIRST,
			life.said.length === 0 || ended === null ? 4 : 2,
			maySay('firstMessages', ended !== null || isSilent),
			() => firstMessages(words, messages, form),
		),
		group(ABOUT_ACK, repeats ? 8 : 1, maySay('ackBody', messages.length > 0 && (ended !== null || repeats)), () =>
			acknowledgements(words, messages, form),
		),
		group(
			ABOUT_PING,
			messages.some((one) => mayBePing(one.text, form)) ? 6 : 0,
			maySay('pingKind', ended !== null),
			() => pongs(life, messages, form),
		),
		group(ABOUT_BEAT, saidLate ? 7 : -1, maySay('heartbeatMode', maySay('heartbeatBody', ended !== null)), () =>
			heartbeats(saidLate, words, messages, form),
		),
		group(/^\b$/, life.failure?.code === 'channel-silent' ? 20 : -9, true, () => [
			{ point: 'dead-channel', settings: { silenceLimitSeconds: 0 } },
		]),
	]
		.filter(({ weight }) => weight >= 0)
		.sort((a, b) => b.weight - a.weight)
		.flatMap(({ make }) => make());
	return isSilent && ended === null ? likely.slice(0, MAX_SILENT) : likely;
}

/** Messages that may be notifications: neither answers to heartbeats, nor words about the channel itself, nor an echo of the device. */
export function notificationsIn(life: Life, form: ReadingSettings, settleMs: number): Message[] {
	const answers = heartbeatAnswers(life, settleMs, form);
	return messagesOf(life.heard, form).filter(({ text }) => {
		const kind = kindOf(text, form);
		return !GREETS.test(kind.replaceAll('_', '.')) && !answers.includes(kind) && isNews(life, text);
	});
}

/** Whether a channel brought what an earlier one did not: no error, and no echo of the device. */
export function bringsNews(life: Life, than: Life, form: ReadingSettings): boolean {
	const known = messagesOf(than.heard, form).map(({ text }) => kindOf(text, form));
	return messagesOf(life.heard, form).some(({ text }) => {
		const kind = kindOf(text, form);
		return !known.includes(kind) && !ERROR.test(kind) && isNews(life, text);
	});
}

const isNews = (life: Life, text: string) => !isError(text) && !life.said.some((one) => one.text === text);

/** The words of the service about what it misses: the reason of the end, and messages that are about an error or a request. */
export function wordsIn({ ended, heard }: Life, form: ReadingSettings): string[] {
	const said = messagesOf(heard, form).filter(({ text }) => ASKS.test(text) || PLACEHOLDER.test(text));
	const all = [ended?.reason ?? '', ...said.slice(-4).map(({ text }) => text.slice(0, 2000))];
	return all.filter((words) => words !== '');
}

/** The name under which the service itself says the kind of a message; every usual one where it has said none. */
function keysOf(messages: readonly Message[], { kindPointer }: ReadingSettings): readonly string[] {
	if (kindPointer !== undefined) return [kindPointer.slice(kindPointer.lastIndexOf('/') + 1)];
	const documents = messages.map(({ text }) => parseJson(text)).filter(isObject);
	const own = KEYS.filter((key) => documents.some((one) => typeof one[key] === 'string'));
	return own.length > 0 ? own : KEYS.slice(0, 7);
}

const under = (keys: readonly string[], word: string) => Object.fromEntries(keys.map((key) => [key, word]));

function firstMessages(words: string, messages: readonly Message[], form: ReadingSettings): Guess[] {
	const keys = [...new Set([...keysOf(messages, form), 'type', 'action'])];
	const named = [...words.matchAll(VERBS)].map(([verb]) => (/^authoriz/i.test(verb) ? 'authenticate' : verb));
	const fields = {
		token: '{token}',
		authorization: 'Connection {token}',
		connection: '{token}',
		deviceId: '{deviceId}',
		workflowId: '{workflowId}',
		channel: 'ws/device',
		channels: ['ws/device'],
		topics: ['*'],
	};
	const message = (verb: string) => JSON.stringify({ ...under(keys, verb), ...fields });
	const sets = [
		...examplesIn(words, 'first', VERBS).map(({ text }) => [text]),
		...[...new Set(named)].slice(0, 3).map((verb) => [message(verb)]),
		[...new Set([...named, ...SAID_FIRST])].slice(0, 8).map(message),
		['Connection {token}'],
	];
	return sets.map((set) => ({ point: 'first-messages', settings: { firstMessages: set } }));
}

function acknowledgements(words: string, messages: readonly Message[], form: ReadingSettings): Guess[] {
	const keys = keysOf(messages, form);
	const own = form.notificationIdPointer?.split('/').findLast((name) => /\D/.test(name)) ?? 'id';
	const named = [...words.matchAll(ACKS)].map(([verb]) => verb.toLowerCase());
	const ids = under([own, 'id', 'messageId', 'eventId', 'notificationId', 'ack'], '{id}');
	const usual = [...new Set([...named, 'ack', 'acknowledge', 'received', 'confirm'])].map((verb) => ({
		text: JSON.stringify({ ...under(keys, verb), ...ids }),
		pointer: undefined,
	}));
	// Some acknowledge by another number than the id, such as all up to a sequence.
	const others = otherIds(messages, form)
		.slice(0, MAX_OTHER_IDS)
		.map((pointer) => ({
			text: JSON.stringify({
				...under(keys, named[0] ?? 'ack'),
				[pointer.slice(pointer.lastIndexOf('/') + 1)]: '{id}',
			}),
			pointer,
		}));
	const documents = messages.map((one) => parseJson(one.text));
	const bodies = [
		...examplesIn(words, 'answer', ABOUT_ACK, documents),
		...usual.slice(0, 1),
		...others,
		...usual.slice(1),
	];
	return bodies.map(({ text, pointer }) => {
		const isOther = pointer !== undefined && pointer !== (form.notificationIdPointer ?? '/id');
		const settings = { ackBody: text, ...(isOther && { notificationIdPointer: pointer }) };
		return { point: 'acknowledgement', settings };
	});
}

/** By its name, or because it has nothing but its kind, a number and times in it. */
function mayBePing(text: string, form: ReadingSettings): boolean {
	const document = parseJson(text);
	const texts = isObject(document) ? Object.values(document).filter((value) => typeof value !== 'number') : [];
	return ABOUT_PING.test(kindOf(text, form)) || texts.length === 1;
}

/** Kinds that came before the end may be pings of the application's own making; an error is none, one that answers the device is the last of them. */
function pongs({ said }: Life, messages: readonly Message[], form: ReadingSettings): Guess[] {
	const rank = ({ text }: Message) => {
		const kind = kindOf(text, form);
		const isAnswer = messages
			.filter((one) => kindOf(one.text, form) === kind)
			.every(({ atMs }) => said.some((one) => atMs >= one.atMs && atMs - one.atMs < ANSWER_MS));
		const answers = (isAnswer ? 1 : 0) + (/ack|pong|respon|answer/i.test(kind) ? 4 : 0);
		return (/ping/i.test(kind) ? 2 : 0) + (ABOUT_PING.test(kind) ? 1 : 0) + (mayBePing(text, form) ? 1 : 0) - answers;
	};
	const own = messages.filter(({ text }) => !isError(text));
	const byKind = new Map(
		own.map((one) => {
			const kind = kindOf(one.text, form);
			return [NAMELESS.includes(kind) ? one.text.trim() : kind, one];
		}),
	);
	return [...byKind]
		.filter(([kind]) => /^\S{1,64}$/.test(kind))
		.sort(([, a], [, b]) => rank(b) - rank(a))
		.slice(0, MAX_PINGED)
		.flatMap(([pingKind, { text }]) =>
			pongsFor(pingKind, text, form).map((pongBody) => {
				const isUsual = pongBody === '{"type":"pong"}';
				return { point: 'application-ping', settings: { pingKind, ...(!isUsual && { pongBody }) } };
			}),
		);
}

/** Texts that may answer a ping, the likely ones first, as `service.pongBody` is written. */
export function pongsFor(kind: string, text: string, form: ReadingSettings): string[] {
	const message = parseJson(text);
	const reply = kind
		.replace(/(p)i(ng)/i, (_, p, ng) => `${p}${ng === 'NG' ? 'O' : 'o'}${ng}`)
		.replace(/request/, 'response');
	if (!isObject(message)) return [...new Set([reply, 'pong'])];
	const key = KEYS.find((name) => message[name] === kind) ?? form.kindPointer?.split('/').at(-1) ?? 'type';
	// A ping without an id wants none in its answer, wherever other messages have theirs.
	const name = (form.notificationIdPointer ?? '/id').slice(1);
	const whole = name in message ? { [name]: '{id}' } : {};
	return [...new Set([reply, 'pong', kind, `${kind}.ack`])].map((answer) =>
		JSON.stringify({ [key]: answer, ...whole }),
	);
}

/** @param saidLate a heartbeat came just before the end; otherwise the service may miss one of another form. */
function heartbeats(saidLate: boolean, words: string, messages: readonly Message[], form: ReadingSettings): Guess[] {
	const keys = keysOf(messages, form);
	const beat = {
		...under(keys, 'heartbeat'),
		...{ deviceId: '{deviceId}', workflowId: '{workflowId}', sequence: '{sequence}' },
	};
	const bodies = [
		...examplesIn(words, 'heartbeat', /heart|beat|\bhb\b|alive|ping/i).map(({ text }) => text),
		...(saidLate ? [] : [JSON.stringify(beat), JSON.stringify(under(keys, 'ping')), 'ping']),
	];
	const others = bodies.map((heartbeatBody) => ({ point: 'heartbeat-message', settings: { heartbeatBody } }));
	return saidLate ? [...others, { point: 'heartbeat-message', settings: { heartbeatMode: 'ping' } }] : others;
}
