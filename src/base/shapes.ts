/**
 * The allowed contents of what leaves the device: known words, short names, the device's own hosts, ids and paths, sizes and times. Every other text is
 * shown by its shape, `[word-12-3fa9c1]`: kind, length, and a keyed hash by which equal values of one document are recognized.
 * Allows, and searches for nothing. Costs a few times the length of its text. Pure.
 */
import { isObject, parseJson } from '../protocol/json.ts';
import { readTokenLife } from '../protocol/token-life.ts';
import { hideFigures, hideRuns, joinPieces, MAX_DIGITS, type Piece, UNIT } from './pieces.ts';
import { escaped, type Parts, paramsIn, partsOf, type SaidParams } from './said-params.ts';
import { isFigure, isShownNumber } from './shown-numbers.ts';

/**
 * The form of a value that is not shown. `jwt`: a token that says when it ends. `token`: long, with a digit; `dotted`: in three
 * parts. `word`: any other text that a header could carry. `text`: with spaces or other letters. `page`: markup.
 */
export type Kind = 'jwt' | 'dotted' | 'token' | 'word' | 'digits' | 'number' | 'text' | 'page';

/** A shape: kind, characters, hash. */
export const SHAPE = /\[(jwt|dotted|token|word|digits|number|text|page)-(\d{1,8})-([0-9a-f]{6})\]/g;

export interface ShapeOptions {
	/** Whether a word is one of this program. */
	readonly isKnown: (word: string) => boolean;
	/** Six hexadecimal digits, the same for the same text. */
	readonly hash: (text: string) => string;
	/** The device's own hosts, ids and paths: these pass wherever they stand alone. */
	readonly own: () => readonly string[];
	/** Milliseconds since 1970. */
	readonly now: () => number;
	/** Shapes of an earlier writer pass: for texts that were written by one. Default `false`. */
	readonly keepsShapes?: boolean;
}

export type Shaper = ReturnType<typeof createShaper>;

/** Longest text that is looked into, in characters. */
const MAX_LOOKED_AT = 32 * 1024;
const MAX_DEPTH = 60;
/** Longest piece of a sentence that is looked into. */
const MAX_PIECE = 2048;
/** Longest short name. */
const MAX_NAME = 32;
/** A word after which four digits are a place or a count, and one after which they open something. */
const PLACED = /^(?:port|line|column|revision|attempt|process|PID|row)$/i;
const OPENS = /^(?:code|pin|passcode|otp|password|number|token|secret)$/i;

const JWT = /^[\w-]{4,}\.[\w-]{4,}\.[\w-]*$/;
/** Long, without spaces, and with a digit: it may be a credential. */
export const OPAQUE = /^(?=.*\d)[\w.~+/=|-]{20,}$/;
const VISIBLE = /^[\x21-\x7e]+$/;
const MOMENT = String.raw`20[2-9]\d-[01]\d-[0-3]\d[T ][0-2]\d:[0-5]\d(?::[0-6]\d(?:[.,]\d{1,6})?)?(?:Z|[+-]\d\d:?\d\d)?`;
const HTTP_DATE = String.raw`[A-Z][a-z]{2}, [0-3]\d [A-Z][a-z]{2} 20[2-9]\d [0-2]\d:[0-5]\d:[0-6]\d GMT`;
const ANY_URL = String.raw`[a-z][a-z0-9+.-]{1,9}:\/\/[^\s"'<>]{1,2048}`;
/** The agent's own files, behind the path of a directory of its own. */
const OWN_FILE = String.raw`\/(?:(?:events|audit|history)-\d{8}-(?:[0-9a-f]{16}|\*)\.log|(?:state\.json|events\.db)(?:\.bak|-wal|-shm|-journal)?(?:\.corrupt-20[\dTZ:.-]{20,24}(?:-lost)?(?:\.json|\.bak|-wal|-shm|-journal)?)?)`;
const WHOLE_MOMENT = new RegExp(`^(?:${MOMENT}|${HTTP_DATE})$`);

/** Names whose value is a message of a program: its known words pass. */
const SAID =
	/^(?:message|msg|detail|details|title|error|errors|reason|description|status|state|hint|remedy|cause|result)$/i;
/** Names whose value is itself a name. */
const NAMING =
	/^(?:type|event|kind|op|action|cmd|topic|name|code|(?:message|event)_?type|(?:sub)?protocols?|token_?type|scheme)$/i;
/** First names of people that are words of this program, too. */
const GIVEN_NAMES =
	/^(?:Art|Bill|Chase|Chuck|Dawn|Faith|Frank|Gene|Grace|Grant|Guy|Hope|Jack|Joy|June|Mark|Max|May|Miles|Nick|Pat|Ray|Rob|Rose|Sandy|Sue|Wade|Will)$/;
const LABEL = /^([A-Za-z][A-Za-z-]{0,31}(?::?\s+|[:=]\s*|%20|\+))(\S+)$/;
const URL_TEXT = /^([a-z][a-z0-9+.-]{1,9}):\/\/([^/?#]*)([^?#]*)(\?[^#]*)?(#.*)?$/i;
/** Signs before and after a word of a sentence. */
const [OPENING, CLOSING] = [' \t\r\n("\'[{<`', ' \t\r\n)"\']}>`.,:;!?\u2026'];
/** Members of a document of ours with words of others. */
const THEIR_VALUE = /^(?:kind|value)$/;

function kindOf(text: string): Kind {
	if (/^\d+$/.test(text)) return 'digits';
	if (/^\s*</.test(text)) return 'page';
	if (JWT.test(text)) return readTokenLife(text) ? 'jwt' : 'dotted';
	if (OPAQUE.test(text)) return 'token';
	return VISIBLE.test(text) ? 'word' : 'text';
}

export function createShaper({ isKnown, hash, own, now, keepsShapes = false }: ShapeOptions) {
	const shape = (text: string, kind: Kind = kindOf(text)) => `[${kind}-${text.length}-${hash(text)}]`;
	let ownKey = '\0';
	let passes = /^/g;
	/** Texts that pass as they are, between others. */
	function passing(): RegExp {
		const texts = own().filter((one) => one.length > 1);
		const key = texts.join('\0');
		if (key === ownKey) return passes;
		ownKey = key;
		const hosts = [...new Set([...texts, '127.0.0.1', 'localhost', '[::1]'])].sort((a, b) => b.length - a.length);
		const paths = hosts.map(escaped);
		const all = [
			ANY_URL,
			...(keepsShapes ? [SHAPE.source] : []),
			MOMENT,
			HTTP_DATE,
			...paths.filter((one) => one.startsWith('\\/')).map((one) => one + OWN_FILE),
			`(?:${paths.join('|')})(?::\\d{1,5})?`,
		];
		passes = new RegExp(`(?<![\\p{L}\\p{N}_])(?:${all.join('|')})(?![\\p{L}\\p{N}_])`, 'gu');
		return passes;
	}
	const isOwn = (text: string) => own().includes(text);

	const isExample = (text: string) => text.includes(':') && isKnown(text);

	function isKnownWord(word: string, isFirst: boolean): boolean {
		if (GIVEN_NAMES.test(word)) return false;
		if (isKnown(word)) return true;
		return isFirst && /^[A-Z][a-z]*$/.test(word) && isKnown(word.toLowerCase());
	}

	/** Whether nothing but known words and few digits is in it. */
	function isPlain(core: string, isFirst: boolean): boolean {
		const digits = core.replace(/\D/g, '').length;
		if (core.length > 200 || digits > MAX_DIGITS || /[^\p{L}\p{N}\s]{4}/u.test(core)) return false;
		if (/^[^\p{L}\p{N}]*$/u.test(core)) return core.length <= 3 || /^([-=*._])\1*$/.test(core);
		const words = core.match(/[\p{L}\p{N}]+(?:'(?=[a-z]{1,2}\b)[a-z]+)?/gu) ?? [];
		if (words.length > 2 && words.every((word) => word.length < 3)) return false;
		return words.every(
			(word) => (/^\d+$/.test(word) && isFigure(word)) || isKnownWord(word, isFirst) || isMeasure(word),
		);
	}
	/** A figure with its unit, or a part of the machine: `25s`, `ttyACM0`. */
	const isMeasure = (word: string) =>
		/^(?:\d{1,4}(?:ms|s|min|h|d|B|x)|(?:tty[A-Z]*|hidraw|event|input|eth|wlan)\d{1,2})$/.test(word);

	/** One piece of a text without white space in it; `null` when it is not shown. */
	function pieceOf(core: string, isFirst: boolean): string | null {
		if (core.length > MAX_PIECE) return null;
		if (isPlain(core, isFirst) || isExample(core)) return core;
		if (URL_TEXT.test(core)) return urlOf(core);
		if (/^[\w.-]*\/[\w./@-]+(?::\d{1,7}){0,2}$/.test(core)) {
			const path = pathOf(core);
			if (/\w{4}/.test(path.replaceAll(SHAPE, ''))) return path;
		}
		// A setting or a field, also one that there is not.
		const [group = ''] = /^[a-z]{3,}(?=\.(?:[a-z]+\.)?[a-z]+(?:[A-Z][a-z]+)+$)/.exec(core) ?? [];
		if (group !== '' && isKnown(group) && isName(core)) return core;
		const [, name, sign = '', value = ''] = /^([A-Za-z_-]{2,30})([=:])(.+)$/.exec(core) ?? [];
		if (name !== undefined && isPlain(name, false)) return `${name}${sign}${pieceOf(value, false) ?? shape(value)}`;
		return null;
	}

	/** Known parts of a path, with a line and column behind it. */
	function pathOf(text: string): string {
		const [, path = '', place = ''] = /^(.*?)((?::\d{1,7}){0,2})$/s.exec(text) ?? [];
		return parts(path.split('/'), '/', 0) + place;
	}

	/**
	 * Parts of one text: known ones, and few short names, as long as all others are known. What was cut into pieces is not shown
	 * piece by piece. @param names so many may be unknown.
	 */
	function parts(all: readonly string[], sign: string, names: number, isNamed = isName): string {
		const isSure = (part: string) =>
			part === '' || isOwn(part) || (part.length > 2 && /[A-Za-z]/.test(part) && isPlain(part, false));
		const isShort = (part: string) => part.length <= MAX_DIGITS && (isPlain(part, false) || /^v\d$/.test(part));
		const others = all.filter((part) => !isSure(part));
		const short = others.filter(isShort);
		const named = others.filter((part) => !isShort(part) && isNamed(part));
		const areFew =
			short.join('').length <= MAX_DIGITS && named.length <= names && short.length + named.length === others.length;
		const out: string[] = [];
		let hidden: string[] = [];
		for (const part of [...all, null]) {
			if (part !== null && !isSure(part) && !areFew) hidden.push(part);
			else {
				if (hidden.length > 0) out.push(shape(hidden.join(sign)));
				hidden = [];
				if (part !== null) out.push(part);
			}
		}
		return out.join(sign);
	}

	function urlOf(text: string): string {
		const [, scheme = '', authority = '', path = '', query = '', hash = ''] = URL_TEXT.exec(text) ?? [];
		const at = authority.lastIndexOf('@');
		const host = authority.slice(at + 1);
		const isOurs =
			host === '' ||
			isOwn(host) ||
			isOwn(host.replace(/:\d+$/, '')) ||
			/^(?:localhost|127\.0\.0\.1|\[::1\])(?::\d+)?$/.test(host);
		const pairs = query.slice(1).split('&');
		const asked = query.length > 1 ? `?${pairs.map(pairOf).join('&')}` : query;
		const user = at < 0 ? '' : `${shape(authority.slice(0, at))}@`;
		return `${scheme}://${user}${isOurs ? host : shape(host)}${pathOf(path)}${asked}${hash.length > 1 ? `#${shape(hash)}` : hash}`;
	}

	/** `name=value`, as in a query. */
	function pairOf(pair: string): string {
		const [, name = '', value = ''] = /^([^=]*)=?(.*)$/s.exec(pair) ?? [];
		if (!pair.includes('=')) return pair === '' ? '' : nameOf(pair);
		return `${nameOf(name)}=${value === '' ? '' : shapedText(value)}`;
	}

	/** A short name in any of the usual spellings: known words, and at most one other of letters alone; one number, or a version of two digits. */
	function isName(text: string): boolean {
		if (text.length > MAX_NAME || /\d[A-Za-z]/.test(text)) return false;
		const numbers = text.match(/\d+/g) ?? [];
		if (numbers.length > 1 && numbers.join('').length > 2) return false;
		if (!/^[A-Za-z][A-Za-z0-9_.:/~$@-]*$|^\d{1,2}$/.test(text)) return false;
		const words = text.match(/[A-Z]?[a-z]+\d*|[A-Z]+\d*|\d+/g) ?? [];
		const others = words.filter(
			(word) => !/^[A-Za-z]{0,2}\d{0,2}$/.test(word) && !isKnown(word) && !isKnown(word.toLowerCase()),
		);
		const areShort = words.length <= 6 && (text.length <= 4 || text.length >= 3 * words.length);
		// Two words may be a name and its password.
		const most = /[:@/~$]/.test(text) ? 0 : 1;
		return areShort && others.length <= most && others.every((word) => /^[A-Za-z]{1,12}$/.test(word));
	}

	/** Of a kind, a code or an operation: known words, in any spelling of names; a capital alone begins a name of people. */
	function isKind(text: string): boolean {
		if (isOwn(text)) return true;
		const words = text.match(/[A-Z]?[a-z]+|[A-Z]+|\d+/g) ?? [];
		const isCapital = words.length === 1 && /^[A-Z][a-z]/.test(text);
		const isOfKind = (word: string) =>
			/^(?:\d{1,3}|v)$/.test(word) || isKnown(word) || (!isCapital && isKnown(word.toLowerCase()));
		return isName(text) && words.every(isOfKind);
	}

	/** Of a subprotocol: a kind, or another name with its version. */
	const isProtocol = (text: string) => isName(text) && (isKind(text) || /\.v?\d{1,2}$/.test(text));

	const nameOf = (name: string) =>
		isName(name) || isOwn(name) || (name.length < 64 && /[A-Za-z]{2}/.test(name) && isPlain(name, false))
			? name
			: shape(name);

	/** A sentence of ours: the words of others in it are looked at for themselves. @param params those that it was made with. */
	const said = (text: string, params: SaidParams = {}) => made(text, partsOf([params]));

	function made(text: string, { given, theirs }: Parts): string {
		if (text.length > MAX_LOOKED_AT) return shape(text, 'text');
		let out = '';
		let from = 0;
		for (const found of theirs ? text.matchAll(theirs) : []) {
			// A certificate may name the host that the agent itself means, with its port.
			if (isOwn(found[0]) && /^:\d/.test(text.slice(found.index + found[0].length))) continue;
			out += sentence(text.slice(from, found.index), from === 0, given) + told(found[0]);
			from = found.index + found[0].length;
		}
		return out + sentence(text.slice(from), from === 0, given);
	}

	/** Words of others, from their first to their last. */
	function told(text: string): string {
		return text.length > MAX_LOOKED_AT ? shape(text, 'text') : sentence(text, true, null);
	}

	/**
	 * Known words, names after `protocol`, and what passes anyway; other words by their shape.
	 * @param given numbers and dates that it was made with; `null` for words of others.
	 */
	function sentence(text: string, isStart: boolean, given: ReadonlySet<string> | null): string {
		if (/^\s*<[a-z!?]/i.test(text)) return shape(text, 'page');
		const all: (string | Piece[])[] = [];
		let from = 0;
		for (const found of text.matchAll(passing())) {
			const [whole] = found;
			all.push(piecesOf(text.slice(from, found.index), isStart && from === 0, given));
			all.push(whole.includes('://') ? piecesOf(whole, false, given) : whole);
			from = found.index + whole.length;
		}
		all.push(piecesOf(text.slice(from), isStart && from === 0, given));
		if (!given) hideFigures(all.filter((one) => typeof one !== 'string').flat(), SHAPE);
		return all.map((one) => (typeof one === 'string' ? one : joinPieces(one, (hidden) => shape(hidden)))).join('');
	}

	const isPlace = (core: string, pieces: readonly Piece[]) =>
		/^\d{4}$/.test(core) && PLACED.test(pieces.at(-1)?.core ?? '');

	/** Whether four digits may be a PIN: after a word that says so, or behind its sign. */
	function opens(core: string, pieces: readonly Piece[]): boolean {
		const [, label = pieces.at(-1)?.core ?? ''] = /^(?:(\w+)[=:])?\d{4}$/.exec(core) ?? [null, ''];
		return OPENS.test(label) && !/^(?:status|close|error|exit)$/i.test(pieces.at(-2)?.core ?? '');
	}

	function piecesOf(text: string, isStart: boolean, given: ReadonlySet<string> | null): Piece[] {
		const pieces: Piece[] = [];
		let isFirst = isStart;
		let wasProtocol = false;
		for (const whole of text.match(/\s*\S+|\s+$/g) ?? []) {
			let [start, end] = [0, whole.length];
			while (start < end && OPENING.includes(whole[start] ?? '')) start += 1;
			while (end > start && CLOSING.includes(whole[end - 1] ?? '')) end -= 1;
			const [before, core, after] = [whole.slice(0, start), whole.slice(start, end), whole.slice(end)];
			const isUnit = UNIT.test(core) && /^\d+$/.test(pieces.at(-1)?.core ?? '');
			const isGiven = given?.has(core) ?? false;
			const isSure = isGiven || isUnit || isPlace(core, pieces) || (wasProtocol && isProtocol(core));
			const piece = opens(core, pieces) ? null : pieceOf(core, isFirst || /["'(]$/.test(before));
			pieces.push({ before, core, after, isGiven, shown: isSure ? core : piece });
			isFirst = /[.:!?]$/.test(after);
			wasProtocol = /^(?:sub)?protocols?$/i.test(core);
		}
		hideRuns(pieces);
		return pieces;
	}

	/** A text of which nothing is known: a label before it may stay. */
	function shapedText(text: string, labels = 2): string {
		if (text === '' || isOwn(text) || WHOLE_MOMENT.test(text) || isExample(text) || /^(?:true|false|null)$/.test(text))
			return text;
		const inner = text.length <= MAX_LOOKED_AT && /^\s*[{[]/.test(text) ? parseJson(text) : undefined;
		if (inner !== undefined) return JSON.stringify(foreign(inner, '', 1));
		if (URL_TEXT.test(text) && VISIBLE.test(text) && text.length < 4096) return urlOf(text);
		const [, label = '', rest = ''] = LABEL.exec(text) ?? [];
		if (labels > 0 && label !== '' && isPlain(label.replace(/%20$/, '').trim(), true))
			return label + shapedText(rest, labels - 1);
		return shape(text);
	}

	function foreignNumber(name: string, value: number, isListed: boolean): number | string {
		return !isListed && isShownNumber(name, value, now(), isKnown) ? value : shape(String(value), 'number');
	}

	/** A document that others have written. */
	function foreign(value: unknown, name = '', depth = 0, isListed = false): unknown {
		if (typeof value === 'string') {
			if (NAMING.test(name) && isKind(value)) return value;
			return SAID.test(name) ? told(value) : shapedText(value);
		}
		if (typeof value === 'number') return foreignNumber(name, value, isListed);
		if (typeof value !== 'object' || value === null) return value;
		if (depth > MAX_DEPTH) return '[deep]';
		if (Array.isArray(value)) return value.map((one) => foreign(one, name, depth + 1, true));
		return Object.fromEntries(Object.entries(value).map(([key, one]) => [nameOf(key), foreign(one, key, depth + 1)]));
	}

	const isNamed = (key: string, value: unknown) =>
		/^(?:kind|workflowId)$/.test(key) && typeof value === 'string' && isKind(value);

	function walk(value: unknown, depth: number, name = '', parts = partsOf([])): unknown {
		if (typeof value === 'string') return THEIR_VALUE.test(name) ? told(value) : made(value, parts);
		if (typeof value !== 'object' || value === null) return value;
		if (depth > MAX_DEPTH) return '[deep]';
		if (Array.isArray(value)) return value.map((one) => walk(one, depth + 1, name, parts));
		const beside = paramsIn(value);
		const own = beside.length > 0 ? partsOf(beside) : parts;
		return Object.fromEntries(
			Object.entries(value).map(([key, one]) => [
				nameOf(key),
				isNamed(key, one) ? one : walk(one, depth + 1, key, own),
			]),
		);
	}

	return {
		/** A text that this program has made, with whatever others have put into it. */
		said,
		/** A text that others have made. */
		told,
		/** A value that others have written: a text, or a whole document. @param name of the member that holds it. */
		foreign: (value: unknown, name = '') => foreign(value, name),
		/** The name of a member, a header or a parameter. */
		name: nameOf,
		/** Names with a sign between them: a path, a list. */
		names: (text: string, sign: string) => parts(text.split(sign), sign, 1),
		/** Names of subprotocols with a comma between them. */
		protocols: (text: string) => parts(text.split(/,\s*/), ',', 1, isProtocol),
		/** A document that this program has made. */
		document: (value: unknown) => walk(value, 0),
		/** A line of a log: what stands before it, and a message or a document. */
		line(text: string): string {
			const [, head = '', pid = '', rest = text] = /^([^[{]{1,200}\[)(\d{1,8}\]: )(.*)$/s.exec(text) ?? [];
			const document = rest.startsWith('{') && rest.length <= MAX_LOOKED_AT ? parseJson(rest) : undefined;
			return said(head) + pid + (document === undefined ? said(rest) : JSON.stringify(walk(document, 0)));
		},
		/** A body: JSON, a form, or a text. */
		body(text: string): string {
			if (text === '' || text.length > MAX_LOOKED_AT) return text === '' ? text : shape(text, 'text');
			const document = parseJson(text.trim());
			if (document !== undefined && (isObject(document) || Array.isArray(document) || typeof document === 'string'))
				return JSON.stringify(foreign(document, typeof document === 'string' ? 'message' : ''));
			if (/^[^\s<>{}"[\]]+=[^\s<>]*$/.test(text) && text.includes('&')) return text.split('&').map(pairOf).join('&');
			return told(text);
		},
	};
}
