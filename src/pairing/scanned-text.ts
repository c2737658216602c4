/**
 * A text as a scanner has typed it, read as the code that it was: with what scanners put around a code, and through the
 * keyboard layout of the device where that is another than the scanner's. Reads only what can be meant in one way. Pure.
 */

import { kindOf, type OtherKind } from '../protocol/other-texts.ts';
import { type NotACodeReason, type PairingCode, readPairingCode, type ScannedCode } from '../protocol/pairing-code.ts';
import { keysOf, LAYOUTS, type Layout, retyped, typedBy } from './keyboard-layouts.ts';

/** How the characters were mixed up. */
export interface Typed {
	/** The layout that the scanner types in, `null` where it may be several; and the one that its keys are read in. */
	readonly scanner: string | null;
	readonly device: string;
	readonly capsLock: boolean;
}

/** `otherLayout`: a pairing code, mixed up so that it could be several. `capitals`: the scanner makes all letters capitals, or all small. */
export type UnreadReason = NotACodeReason | 'otherLayout' | 'capitals';

export type ScannedText =
	| { readonly code: PairingCode; readonly typed: Typed | null }
	| { readonly code: null; readonly reason: UnreadReason };

/** What scanners type as delivered. */
const [US] = LAYOUTS;
/** A text that is longer is not a link that a scanner has typed. */
const MAX_TYPED = 2000;

export function readScannedText(scanned: string): ScannedText {
	const text = scanned.replace(FRAME, '');
	const direct = readInside(text);
	if (direct.kind === 'notACode' || direct.form === 'token') {
		const [token, ...others] = retypedTokens(text);
		if (token) return readAs([token, ...others]);
	}
	if (direct.kind === 'pairingCode') {
		const isSmall = isInSmallLetters(text, direct);
		const changed = isSmall ? 'capitals' : direct.form === 'token' && typedKind(text) !== null ? 'otherText' : null;
		return changed === null ? { code: direct, typed: null } : { code: null, reason: changed };
	}
	const reason = direct.reason === 'otherText' && REST.test(text) ? 'damaged' : direct.reason;
	// Of a link that escapes of JSON are in, no sign was typed on another key.
	const isRead =
		text.length < 16 ||
		/\\u00[\da-f]{2}/i.test(text) ||
		['document', 'payment', 'product'].includes(kindOf(text) ?? '');
	if (text.length > MAX_TYPED || isRead) return { code: null, reason };
	const [first, ...others] = retypings(text);
	if (first) return readAs([first, ...others]);
	if (looksRetyped(text)) return { code: null, reason: 'otherLayout' };
	const isCapitals = text === text.toUpperCase() && readInside(text.toLowerCase()).kind === 'pairingCode';
	if (isCapitals && /[A-Z]/.test(text)) return { code: null, reason: 'capitals' };
	return { code: null, reason: typedKind(text) === null ? reason : 'otherText' };
}

/** In what is left of a link of pairing whose beginning is lost. */
const REST = /authorization(?:=|%3d)\s*token|oken(?:%20|\+| )tr-|tr-[\w-]{26,30}&\w|lowId=\w/i;

/** A code that the text may have been. `isSmall`: of which nothing says which letters were small. */
interface Reading {
	readonly code: PairingCode;
	readonly typed: Typed;
	readonly isSmall: boolean;
}

/** The code that is meant, where all readings are the same; else the change is named. */
function readAs(readings: readonly [Reading, ...Reading[]]): ScannedText {
	const { code, typed, isSmall } = readings.find(({ typed }) => typed.scanner === typed.device) ?? readings[0];
	if (isSmall) return { code: null, reason: 'capitals' };
	if (!readings.every((other) => isSame(other.code, code))) return { code: null, reason: 'otherLayout' };
	const isOne = typed.scanner === typed.device || readings.every((other) => other.typed.scanner === typed.scanner);
	return { code, typed: isOne ? typed : { ...typed, scanner: null } };
}

/** The kind of a text that cannot pair, also where another keyboard layout has changed it. */
export const otherKind = (text: string): OtherKind | null => kindOf(text) ?? typedKind(text.replace(FRAME, ''));

/** Beginnings that no other text has, through any layout. */
const SURE = /^(?:wifi:[a-z]:|begin:vcard|mecard:[a-z]|mailto:|https?:\/\/)/i;

function typedKind(text: string): OtherKind | null {
	if (kindOf(text) !== null) return null;
	const start = text.slice(0, 12);
	const found = everyWay([start, swapCase(start)]).find(({ meant }) => SURE.test(meant));
	return found ? kindOf(found.meant) : null;
}

/** The form of Short Tokens in the field. Source: service-interface, Facts from the field. */
const USUAL = /^tr-[\w-]{26,30}$/;
/** Longest text that is one, with its scheme and the mark of its kind, in characters. */
const MAX_TOKEN = 64;

const isUsual = (text: string) => USUAL.test(text.replace(/^(?:\][A-Za-z][0-9A-Za-z])?(?:token\s+)?/i, ''));

/** The tokens that a bare one may have been, where the usual form tells that it was printed as another. */
function retypedTokens(text: string): Reading[] {
	if (isUsual(text) || text.length > MAX_TOKEN) return [];
	return everyWay([text, swapCase(text)]).flatMap(({ from, meant, here, there }) => {
		if ((here !== US && there !== US) || !isUsual(meant)) return [];
		const code = readInside(meant);
		if (code.kind === 'notACode') return [];
		const typed = { scanner: there.name, device: here.name, capsLock: from !== text };
		return [{ code, typed, isSmall: typed.capsLock && text === text.toUpperCase() }];
	});
}

/** The codes that a link or a JSON code may have been. Nothing tells in which layout a token of another form was typed. */
function retypings(text: string): Reading[] {
	return everyWay([text, swapCase(text)]).flatMap(({ from, meant, here, there }) => {
		// One of hundreds of ways to read it: what is neither a link nor JSON is not looked at any further.
		if (!meant.includes(':/') && !meant.includes('{')) return [];
		const capsLock = from !== text;
		const code = readInside(meant);
		if (code.kind === 'notACode' || code.form === 'token') return [];
		// Of a text in capitals only, nothing says which letters were small.
		if (capsLock && !/authorization(?:=|%3[dD])Token|"baseUrl"/.test(meant)) return [];
		const typed: Typed = { scanner: there.name, device: here.name, capsLock };
		return [{ code, typed, isSmall: isInSmallLetters(meant, code) }];
	});
}

function everyWay(texts: readonly string[]) {
	return texts.flatMap((from, index) =>
		LAYOUTS.flatMap((here) => {
			const others = LAYOUTS.filter((there) => here !== there || (index > 0 && here === US));
			return keysOf(from, here).flatMap((keys) =>
				others.map((there) => ({ from, meant: typedBy(keys, there), here, there })),
			);
		}),
	);
}

/** Whether it begins like a link, or is like a token as other layouts type one: then it is named, not read. */
function looksRetyped(text: string): boolean {
	if (LINK.test(text)) return false;
	const kind = typedKind(text);
	if (kind !== null && kind !== 'link') return false;
	if (everyWay([text.slice(0, 8), text.slice(0, 16)]).some(({ meant }) => LINK.test(meant)))
		return namesToken(text) || isLinkInOtherSigns(text);
	const isToken = (meant: string) => /^(?=.*\d)\S+$/.test(meant) && readInside(meant).kind === 'pairingCode';
	return LAYOUTS.some((here) => retyped(text, here, US).some(isToken)) || isLinkInOtherSigns(text);
}

/** Whether it is a link of pairing, through some layout: that of a web page is named as what it is. What has no key there is left out. */
function namesToken(text: string): boolean {
	const known = ({ keys }: Layout) => [...text].filter((sign) => sign <= ' ' || keys.includes(sign)).join('');
	const isMeant = (meant: string) => LINK.test(meant) && /uthorization/i.test(meant);
	return LAYOUTS.some((here) =>
		keysOf(known(here), here).some((keys) => LAYOUTS.some((there) => isMeant(typedBy(keys, there)))),
	);
}

/** Whether it is a link with a token in which each sign is always the same other one: no layout has to be known for that. */
function isLinkInOtherSigns(text: string): boolean {
	const signs = [...text];
	const follow = (known: ReadonlyMap<string, string>, plain: string, from: number) => {
		const found = new Map<string, string>();
		for (let index = 0; index < plain.length; index += 1) {
			const [sign = '', typed] = [plain[index], signs[from + index]];
			if (typed === undefined || (known.get(sign) ?? found.get(sign) ?? typed) !== typed) return null;
			found.set(sign, typed);
		}
		const all = new Map([...known, ...found]);
		return new Set(all.values()).size === all.size ? all : null;
	};
	return ['https://', 'http://'].some((scheme) => {
		const begun = follow(new Map(), scheme, 0);
		return begun !== null && signs.some((_sign, from) => follow(begun, 'authorization=', from) !== null);
	});
}

/** `Token` is written with a capital: where there is none at all, the token may have had some too. */
function isInSmallLetters(text: string, { form, token }: PairingCode): boolean {
	const isLink = form === 'link' || form === 'nestedLink';
	return isLink && text === text.toLowerCase() && /authorization(?:=|%3d)token/.test(text) && /[a-z]/.test(token);
}

/** The frame of a transmission: SOH, STX, ETX, EOT, ends of lines, separators. */
const FRAME = /^[\u0001-\u0004\t-\r\u001c-\u001f\ufeff]+|[\u0001-\u0004\t-\r\u001c-\u001f]+$/g;

/** With up to eight characters of the scanner's before it. */
const LINK = /^[^/?=&#]{0,8}?https?:\/\//i;

/** Raw signs at the end of a link, where a token and any text that is escaped have none: a scanner has added them. */
const ADDED = /[^\p{L}\p{N}=~_.+/:%?&#-]+$/u;
/** An object without others inside, and a token of the usual form, with up to 16 other signs before and after it. */
const INSIDE = [/^[^/{]{0,16}?\{?(\{\s*"[^{}]*\})[^{}]{0,16}\}?$/, /^[^\w-]{0,16}(tr-[\w-]{26,30})[^\w.~+/:=-]{0,16}$/];

/** Without what scanners put around a code: its kind (`]Q1`, ISO/IEC 15424), a prefix, signs that no code ends with. */
function readInside(text: string): ScannedCode {
	const direct = readPairingCode(text);
	if (direct.kind === 'pairingCode') return /link/i.test(direct.form) ? withoutAdded(text, direct) : direct;
	const bare = text.replace(/^\][A-Za-z][0-9A-Za-z]/, '');
	const inside = INSIDE.map((form) => form.exec(bare)?.[1]).find((found) => found !== undefined);
	const prefix = /^(?:[^/?=&#{]{1,16}?|[^/?=&#{"]{0,15}\{)(?=https?:\/\/)/i.exec(bare)?.[0] ?? '';
	const link = bare.slice(prefix.length);
	const isLink = /^https?:/i.test(link);
	const again = readPairingCode(isLink ? link.replace(/[^\p{L}\p{N}=~_.+/%-]+$/u, '') : (inside ?? link));
	return again.kind === 'pairingCode' ? again : direct;
}

/** A workflow may end with one of the signs that web pages do not escape; a token has none of them. */
function withoutAdded(text: string, direct: PairingCode): PairingCode {
	const [added = ''] = ADDED.exec(text) ?? [];
	const short = readPairingCode(text.slice(0, text.length - added.length));
	if (short.kind === 'notACode' || (short.token === direct.token && /^[!*'()]/.test(added))) return direct;
	return short;
}

/** Whether it was a token alone or ends with it: of a sign that a scanner has changed or added there, nothing is known. */
export function endsWithToken(scanned: string, { form, token }: PairingCode): boolean {
	return form === 'token' || scanned.replace(FRAME, '').endsWith(token);
}

function isSame(one: PairingCode, other: PairingCode): boolean {
	return (['baseUrl', 'token', 'workflowId', 'sessionId'] as const).every((name) => one[name] === other[name]);
}

function swapCase(text: string): string {
	return [...text]
		.map((sign) => {
			const upper = sign.toUpperCase();
			return sign !== upper && upper.length === 1 ? upper : sign.toLowerCase();
		})
		.join('');
}
