/** Takes secrets out of text before it leaves the process: live ones by value, others by how they are written. */
import { AUTHORIZATION_SCHEMES } from '../protocol/authorization.ts';
import { createSecretIndex, MIN_PIECE_LENGTH } from './secret-index.ts';

/** Takes the place of a secret. */
export const SECRET_MARK = '[secret]';
/** Secrets that are remembered, of each kind; the one added longest ago goes when there is no room. */
export const MAX_SECRETS = 64;
/** A shorter secret would blot out ordinary words, and is not registered. */
export const MIN_SECRET_LENGTH = MIN_PIECE_LENGTH;

/** The secrets that are alive now, and those that were. */
export type SecretRegistry = ReturnType<typeof createSecretRegistry>;

/** @param maxSecrets how many of each kind are remembered; default {@link MAX_SECRETS}. */
export function createSecretRegistry(maxSecrets = MAX_SECRETS) {
	const issued = new Set<string>();
	const configured = new Set<string>();
	const index = createSecretIndex();
	return {
		/**
		 * From now on the secret is found whole and in long pieces, whatever it is encoded in. One that is too short, or a word
		 * by which others are found (`password`), is not registered.
		 * @param lasting it is configured: no number of issued ones takes its place. Default `false`.
		 */
		add(secret: string, lasting = false): void {
			if (secret.length < MIN_SECRET_LENGTH || MARKS.test(secret)) return;
			const [list, other] = lasting ? [configured, issued] : [issued, configured];
			if (!list.delete(secret) && !other.has(secret)) index.add(secret);
			list.add(secret);
			const [oldest] = list;
			if (list.size <= maxSecrets || oldest === undefined) return;
			list.delete(oldest);
			if (!other.has(oldest)) index.delete(oldest);
		},
		/** The text with the mark in place of every registered secret. Other secrets stay: see {@link redact}. */
		mask(text: string): string {
			let clean = '';
			let last = 0;
			for (const { start, end } of index.find(text)) {
				clean += text.slice(last, start) + SECRET_MARK;
				last = end;
			}
			return clean + text.slice(last);
		},
	};
}

/** A registry of these only. */
export function registryOf(secrets: Iterable<string>): SecretRegistry {
	const registry = createSecretRegistry();
	for (const secret of secrets) registry.add(secret);
	return registry;
}

/** The secret parts of a word of a file or a variable: the password of `user:password` and of a URL, else the word. */
export function secretsInWord(word: string): string[] {
	const url = word.includes('://') ? URL.parse(word) : null;
	if (url) return url.password === '' ? [] : [url.password, decode(url.password)];
	const colon = word.indexOf(':');
	return colon > 0 ? [word, word.slice(colon + 1)] : [word];
}

function decode(text: string): string {
	try {
		return decodeURIComponent(text);
	} catch {
		return text;
	}
}

/**
 * The text with `[secret]` in place of every registered secret, of what follows an authorization scheme, of values
 * whose name says that they are secret, of tokens known by their form, and of every URL's user, password and query.
 * A credential that looks like an ordinary word (`Token expired`) is found only by value. Scrubbing twice changes nothing.
 */
export function redact(text: string, secrets: SecretRegistry): string {
	const clean = secrets.mask(text);
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

/** A password that is one of these must not hide the mark and leave what stands behind it. */
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
