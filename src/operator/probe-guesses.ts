/**
 * Settings that may make a channel last, or bring its notifications, the likely ones first. A guess decides nothing: the agent's own link with
 * its settings does. Pure.
 */
import { isObject, parseJson } from '../protocol/json.ts';
import {
	heartbeatAnswers,
	isBare,
	kindOf,
	type Message,
	messagesOf,
	NAMELESS,
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
const ACK_VERBS = ['ack', 'acknowledge', 'received', 'confirm'];
const ABOUT_FIRST =
	/subscri|authent|\bauth\b|login|hello|identif|regist|first|handshake|join|announce|introduc|greet|sign.?in|\binit/i;
const ABOUT_ACK = /\back|acknowledg|confirm|receipt|unacked|deliver/i;
const ABOUT_PING = /p[io]ng|keep.?alive|alive|idle|respon|echo/i;
/** A kind that rather answers the device than asks it. */
const ANSWERS = /ack|pong|respon|answer/i;
const ABOUT_BEAT =
	/heart.?beat|unknown|unexpected|unsupported|invalid|malformed|schema|not understood|bad (?:message|frame)|format/i;
const KEYS = ['type', 'event', 'kind', 'op', 'action', 'cmd', 'command', 'method', 't', 'name'];
/** Where nothing is wrong but that nothing comes. */
const MAX_SILENT = 2;
const MAX_PINGED = 3;
const MAX_PONGS = 4;

/** Nothing for a channel that lasts, brings messages and repeats none. */
export function guesses({ life, form, settleMs, settings }: Seen): Guess[] {
	const messages = messagesOf(life.heard, form);
	const { ended } = life;
	const words = hintsIn(life, messages);
	const isSilent = notificationsIn(life, form, settleMs).length === 0;
	const repeats = repeated(messages, form) > 0;
	if (ended === null && !isSilent && !repeats) return [];
	const saidLate = life.said.some(({ atMs }) => ended !== null && ended.atMs >= atMs && ended.atMs - atMs <= settleMs);
	const has = (name: string) => settings[name] !== undefined;
	const groups: { readonly weight: number; readonly guesses: Guess[] }[] = [
		{
			weight: weigh(ABOUT_FIRST, words, life.said.length === 0 || ended === null ? 4 : 2),
			guesses: has('firstMessages') || (ended === null && !isSilent) ? [] : firstMessages(words, messages, form),
		},
		{
			weight: weigh(ABOUT_ACK, words, repeats ? 8 : 1),
			guesses:
				has('ackBody') || messages.length === 0 || (ended === null && !repeats)
					? []
					: acknowledgements(words, messages, form),
		},
		{
			weight: weigh(ABOUT_PING, words, messages.some((one) => mayBePing(one.text, form)) ? 6 : 0),
			guesses: ended === null || has('pingKind') ? [] : pongs(messages, form),
		},
		{
			weight: weigh(ABOUT_BEAT, words, saidLate ? 7 : -1),
			guesses:
				ended === null || has('heartbeatMode') || has('heartbeatBody') ? [] : heartbeats(saidLate, messages, form),
		},
		{
			weight: life.failure?.code === 'channel-silent' ? 20 : -9,
			guesses: [{ point: 'dead-channel', settings: { silenceLimitSeconds: 0 } }],
		},
	];
	const likely = groups
		.filter(({ weight }) => weight >= 0)
		.sort((a, b) => b.weight - a.weight)
		.flatMap((group) => group.guesses);
	return isSilent && ended === null ? likely.slice(0, MAX_SILENT) : likely;
}

const GREETS =
	/^(?:hello|hi|welcome|connected|connection|ready|open(?:ed)?|challenge|auth\w*|login|init|greeting|error|ping|info|ok)\b/i;

/** Messages that may be notifications: neither answers to heartbeats, nor words about the channel itself, nor an echo of the device. */
export function notificationsIn(life: Life, form: ReadingSettings, settleMs: number): Message[] {
	const answers = heartbeatAnswers(
		life,
		life.said.map(({ atMs }) => atMs),
		settleMs,
		form,
	);
	const said = new Set(life.said.map(({ text }) => text));
	return messagesOf(life.heard, form).filter(({ text }) => {
		const kind = kindOf(text, form);
		const isAbout = GREETS.test(kind.replaceAll('_', '.')) || 'error' in Object(parseJson(text));
		return !isAbout && !answers.includes(kind) && !said.has(text);
	});
}

/** Whether the service ended both, with the same code and at about the same age. */
export function endedAlike({ ended: one }: Life, { ended: other }: Life): boolean {
	if (!one || !other || one.code !== other.code) return false;
	return Math.abs(one.atMs - other.atMs) <= Math.max(300, one.atMs / 4);
}

const weigh = (about: RegExp, words: string, otherwise: number) => otherwise + (about.test(words) ? 10 : 0);

/** The words of the service about what it misses: the reason of the end, and messages that are about an error or a request. */
function hintsIn({ ended }: Life, messages: readonly Message[]): string {
	const said = messages.filter(({ text }) =>
		/error|expect|requir|must|missing|send|first|please|unauth|reject|challenge|need/i.test(text),
	);
	return [ended?.reason ?? '', ...said.slice(-4).map(({ text }) => text.slice(0, 2000))].join(' ');
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
	const named = [...new Set([...words.matchAll(VERBS)].map(([verb]) => verb))];
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
	const message = (verb: string) => JSON.stringify({ ...under(keys, verb), ...fields, ...wrapped(messages, fields) });
	const asVerb = (word: string) => (/^authoriz/i.test(word) ? 'authenticate' : word);
	const shown = exampleIn(words);
	const sets = [
		...(shown === null ? [] : [[shown]]),
		...named.slice(0, 3).map((verb) => [message(asVerb(verb))]),
		[...new Set([...named.map(asVerb), ...SAID_FIRST])].slice(0, 8).map(message),
		[message('subscribe')],
		['Connection {token}'],
	];
	return unique(sets.map((set) => ({ point: 'first-messages', settings: { firstMessages: set } })));
}

/** A message that the service writes as an example, with our fields in the place of its own. */
function exampleIn(words: string): string | null {
	for (const [text] of words.replaceAll('\\"', '"').matchAll(/\{[^{}]*\}/g)) {
		const example = parseJson(text);
		if (
			!isObject(example) ||
			!Object.values(example).some((value) => typeof value === 'string' && value.search(VERBS) >= 0)
		)
			continue;
		const filled = Object.entries(example).map(([name, value]) => {
			if (/token|connection|credential|auth/i.test(name))
				return [name, /connection\s/i.test(String(value)) ? 'Connection {token}' : '{token}'];
			if (/device/i.test(name)) return [name, '{deviceId}'];
			return [name, /workflow/i.test(name) ? '{workflowId}' : value];
		});
		return JSON.stringify(Object.fromEntries(filled));
	}
	return null;
}

function acknowledgements(words: string, messages: readonly Message[], form: ReadingSettings): Guess[] {
	const keys = keysOf(messages, form);
	const own = form.notificationIdPointer?.split('/').at(-1) ?? 'id';
	const named = [...words.matchAll(/\b(ack\w*|receiv\w*|confirm\w*|receipt)\b/gi)].map(([verb]) => verb.toLowerCase());
	const ids = under([own, 'id', 'messageId', 'eventId', 'notificationId', 'ack'], '{id}');
	const bodies = [...new Set([...named, ...ACK_VERBS])].map((verb) => ({
		...under(keys, verb),
		...ids,
		...wrapped(messages, ids),
	}));
	const isRpc = messages.some(({ text }) => 'jsonrpc' in Object(parseJson(text)));
	const result = { jsonrpc: '2.0', result: true, id: '{id}' };
	return [...(isRpc ? [result] : []), ...bodies].map((body) => ({
		point: 'acknowledgement',
		settings: { ackBody: JSON.stringify(body) },
	}));
}

/** The same where the service puts what it says into a member of its messages, such as `data`. */
function wrapped(messages: readonly Message[], fields: object): object {
	const documents = messages.map(({ text }) => parseJson(text)).filter(isObject);
	const names = documents.flatMap((one) => Object.keys(one).filter((name) => isObject(one[name])));
	return Object.fromEntries([...new Set(names)].slice(0, 2).map((name) => [name, fields]));
}

const mayBePing = (text: string, form: ReadingSettings) => ABOUT_PING.test(kindOf(text, form)) || isBare(text, form);

/** Kinds that came before the end may be pings of the application's own making. */
function pongs(messages: readonly Message[], form: ReadingSettings): Guess[] {
	const kinds = [...new Set(messages.map(({ text }) => kindOf(text, form)))].filter((kind) => !NAMELESS.includes(kind));
	const mayBe = (kind: string) => messages.some(({ text }) => kindOf(text, form) === kind && mayBePing(text, form));
	const rank = (kind: string) => (/ping/i.test(kind) ? 2 : 0) + (mayBe(kind) ? 1 : 0) - (ANSWERS.test(kind) ? 4 : 0);
	const texts = messages.map(({ text }) => text.trim()).filter((text) => /^\W?(?:ping|hb|\?)\W?$/i.test(text));
	return [...new Set([...texts, ...kinds.sort((a, b) => rank(b) - rank(a)).slice(0, MAX_PINGED)])].flatMap((kind) => {
		const text = messages.find((one) => one.text.trim() === kind || kindOf(one.text, form) === kind)?.text ?? '';
		return pongsFor(kind, text, form)
			.slice(0, MAX_PONGS)
			.map((pongBody) => {
				const isUsual = pongBody === '{"type":"pong"}';
				return { point: 'application-ping', settings: { pingKind: kind, ...(!isUsual && { pongBody }) } };
			});
	});
}

/** Texts that may answer a ping, the likely ones first, as `service.pongBody` is written. */
export function pongsFor(kind: string, text: string, form: ReadingSettings): string[] {
	const message = parseJson(text);
	const reply = kind
		.replace(/ping/, 'pong')
		.replace(/PING/, 'PONG')
		.replace(/Ping/, 'Pong')
		.replace(/request/, 'response');
	if (!isObject(message)) return [reply, 'pong'];
	const key = KEYS.find((name) => message[name] === kind) ?? form.kindPointer?.split('/').at(-1) ?? 'type';
	// A ping without an id wants none in its answer, wherever other messages have theirs.
	const name = (form.notificationIdPointer ?? '/id').slice(1);
	const whole = name in message ? { [name]: '{id}' } : {};
	const kinds = [reply, 'pong', kind, `${kind}.ack`, 'ack', 'alive'];
	const answers = [...new Set(kinds)].map((answer) => JSON.stringify({ [key]: answer, ...whole }));
	return [...new Set([...answers, JSON.stringify({ ...message, ...whole }), 'pong'])];
}

/** @param saidLate a heartbeat came just before the end; otherwise the service may miss one of another form. */
function heartbeats(saidLate: boolean, messages: readonly Message[], form: ReadingSettings): Guess[] {
	const keys = keysOf(messages, form);
	const beat = {
		...under(keys, 'heartbeat'),
		deviceId: '{deviceId}',
		workflowId: '{workflowId}',
		sequence: '{sequence}',
	};
	const bodies = [JSON.stringify(beat), JSON.stringify(under(keys, 'ping')), 'ping'];
	const other = bodies.map((heartbeatBody) => ({ point: 'heartbeat-message', settings: { heartbeatBody } }));
	return saidLate ? [{ point: 'heartbeat-message', settings: { heartbeatMode: 'ping' } }] : other;
}

function unique(all: readonly Guess[]): Guess[] {
	return [...new Map(all.map((one) => [JSON.stringify(one.settings), one])).values()];
}
