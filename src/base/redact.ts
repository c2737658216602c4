/**
 * Takes secrets out of text before it leaves the process: live secrets by their value, others by how they are written.
 * Owns the list of live secrets. Never keeps, prints or returns one; knows nothing of where the text goes.
 */
import { AUTHORIZATION_SCHEMES } from '../protocol/authorization.ts';

/** Takes the place of a secret. */
export const SECRET_MARK = '[secret]';
/** Live secrets that are remembered; the one added longest ago goes when there is no room. */
export const MAX_SECRETS = 64;
/** A shorter secret would blot out ordinary words, and is not registered. */
export const MIN_SECRET_LENGTH = 6;

/** The secrets that are alive now. */
export type SecretRegistry = ReturnType<typeof createSecretRegistry>;

/** @param maxSecrets how many are remembered; default {@link MAX_SECRETS}. */
export function createSecretRegistry(maxSecrets = MAX_SECRETS) {
	const formsOf = new Map<string, readonly string[]>();
	let all: readonly string[] = [];
	const refresh = () => {
		// The longest first: a secret that is part of another must not cut that one in two.
		all = [...new Set([...formsOf.values()].flat())].sort((a, b) => b.length - a.length);
	};
	return {
		/**
		 * From now on the secret is found as it is, percent-encoded, form-encoded, escaped in JSON and inside base64. One that
		 * is too short, or a word by which others are found (`password`), is not registered.
		 */
		add(secret: string): void {
			if (secret.length < MIN_SECRET_LENGTH || MARKS.test(secret)) return;
			formsOf.delete(secret);
			formsOf.set(secret, writtenForms(secret));
			const [oldest] = formsOf.keys();
			if (formsOf.size > maxSecrets && oldest !== undefined) formsOf.delete(oldest);
			refresh();
		},
		/** Forgets a secret that is worth nothing any more; unknown ones are ignored. */
		remove(secret: string): void {
			if (formsOf.delete(secret)) refresh();
		},
		/** Every written form of every secret, the longest first. For {@link redact} only. */
		forms: (): readonly string[] => all,
	};
}

/**
 * The text with `[secret]` in place of every registered secret, of what follows an authorization scheme, of values
 * whose name says that they are secret, of tokens known by their form, and of every URL's user, password and query.
 * A credential that looks like an ordinary word (`Token expired`) is found only by value. Scrubbing twice changes nothing.
 */
export function redact(text: string, secrets: SecretRegistry): string {
	let clean = text;
	for (const form of secrets.forms()) clean = clean.replaceAll(form, SECRET_MARK);
	if (!SUSPECT.test(clean)) return clean;
	return (
		clean
			.replace(PRIVATE_KEY, SECRET_MARK)
			.replace(HEADER, `$1${SECRET_MARK}`)
			.replace(JSON_MEMBER, `$1${SECRET_MARK}`)
			.replace(PARAMETER, `$1${SECRET_MARK}`)
			.replace(SCHEME, `$1${SECRET_MARK}`)
			.replace(KNOWN_TOKEN, SECRET_MARK)
			// Last, since a code may have a raw space in its query, where the URL would seem to end.
			.replace(URL_TEXT, (_whole, scheme: string, rest: string) => scheme + withoutUserAndQuery(rest))
			.replace(PATH_QUERY, `$1?${SECRET_MARK}`)
	);
}

/**
 * Words by which other secrets are found: who has one of them as a password must not hide the mark and leave what stands
 * behind it.
 */
const MARKS =
	/^(?:basic|bearer|token|connection|apikey|authorization|cookie|password|passwd|passphrase|secret|credentials?|api[_-]?key|signature|access_token|private)$/i;

/** Each pattern below needs one of these. Most lines have none, and the patterns of a start are not even compiled: 2 ms. */
const SUSPECT = /auth|cookie|token|secret|pass|pwd|cred|key|sig|jwt|basic|bearer|connection|eyJ|tr-|:\/\/|\?/i;

// Values never reach over a quote or a backslash, so that a line of JSON stays one. Repetitions that could be tried from
// many places are bounded, so that hostile text costs no more than its length.
const VALUE = String.raw`[^\s"'<>\\&#;]`;
/** A hexadecimal code that is percent-encoded once or more often: `%20`, `%2520`. */
const encoded = (hex: string) => `%(?:25){0,4}${hex}`;
const anyCase = (word: string) =>
	word.replace(/[a-z]/gi, (letter) => `[${letter.toUpperCase()}${letter.toLowerCase()}]`);
const SCHEMES = `(?:${AUTHORIZATION_SCHEMES.map(anyCase).join('|')})`;
const ENCODED_GAP = `(?:\\+|${encoded('20')})+`;
const CREDENTIAL = String.raw`[\w.~+/=:@%!$*-]`;
/** Plain language after a scheme's name: `Connection refused.`, `TOKEN EXPIRED`, `Token 2`. */
const WORD = `(?:${CREDENTIAL}{1,${MIN_SECRET_LENGTH - 1}}|(?:[A-Z]?[a-z-]{1,20}|[A-Z]{1,20})[.:!]?)(?!${CREDENTIAL})`;
const SECRET_NAME =
	'(?:[a-z_-]{0,24}(?:authorization|token|secret|password|passwd|passphrase|credentials?|api[_-]?key|signature)|auth|key|pwd|sig|jwt)';

/** A key in PEM, also one that is cut off. */
const PRIVATE_KEY =
	/-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----[^"]*?(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY-----|(?=")|$)/g;
const HEADER = /((?:authorization|cookie)\s*:\s*)[^\s"'\\][^\r\n"'\\]*/gi;
const JSON_MEMBER = new RegExp(
	`(\\\\{0,8}"${SECRET_NAME}\\\\{0,8}"\\s*:\\s*\\\\{0,8}")(?:[^"\\\\]|\\\\(?!\\\\{0,8}"))+`,
	'gi',
);
const PARAMETER = new RegExp(
	`((?:(?<![a-z0-9])|${encoded('(?:3F|26)')})${SECRET_NAME}(?:=|${encoded('3D')}))(?:${SCHEMES}(?:\\s+|${ENCODED_GAP}))?${VALUE}+`,
	'gi',
);
const SCHEME = new RegExp(`(${SCHEMES}(?:\\s+(?!${WORD})|${ENCODED_GAP}))${CREDENTIAL}+`, 'g');
/** A JWT, and the short tokens of real pairing codes (service-interface, Facts from the field). */
const KNOWN_TOKEN = /\beyJ[\w-]{8,1000}\.[\w-]+\.[\w-]*|\btr-[\w-]{20,}/g;
const URL_TEXT = /\b([a-z][a-z0-9+.-]{1,20}:\/\/)([^\s"'<>\\]+)/gi;
const PATH_QUERY = /(\/[\w.~%-]*)\?[\w.~%-]+=[^\s"'<>\\]*/g;

function withoutUserAndQuery(rest: string): string {
	return rest.replace(/^[^/?#@]*@/, `${SECRET_MARK}@`).replace(/([?#]).*$/, `$1${SECRET_MARK}`);
}

function writtenForms(secret: string): string[] {
	const percent = encodeURIComponent(secret.toWellFormed());
	const form = new URLSearchParams([['', secret]]).toString().slice(1);
	const json = JSON.stringify(secret).slice(1, -1);
	const plain = [secret, json, JSON.stringify(json).slice(1, -1)];
	const urls = [percent, form, encodeURIComponent(percent), encodeURIComponent(form)];
	const lowerCase = urls.map((text) => text.replace(/%[0-9A-F]{2}/g, (code) => code.toLowerCase()));
	return [...plain, ...urls, ...lowerCase, ...base64Forms(secret)];
}

/**
 * The form of a secret inside base64, whatever surrounds it (`user:secret`): the characters that it alone
 * decides, for each of the three places in a group of three bytes in which it can begin.
 */
function base64Forms(secret: string): string[] {
	const bytes = new TextEncoder().encode(secret);
	return [0, 1, 2].flatMap((before) => {
		const binary = Array.from(bytes, (byte) => String.fromCharCode(byte)).join('');
		const text = btoa('\0'.repeat(before) + binary).replace(/=+$/, '');
		const first = Math.ceil((before * 8) / 6);
		const last = Math.floor(((before + bytes.length) * 8) / 6);
		const core = text.slice(first, last);
		return [core, core.replaceAll('+', '-').replaceAll('/', '_')];
	});
}
