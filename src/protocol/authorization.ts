/** The five authorization schemes, formatted and parsed, in the header and in the query string. */

/** A credential together with the scheme it is presented under. Source: service-interface, Authentication. */
export type Authorization =
	| { readonly scheme: 'Basic'; readonly username: string; readonly password: string }
	| { readonly scheme: 'Bearer' | 'Token' | 'Connection' | 'ApiKey'; readonly credential: string };

export type AuthorizationScheme = Authorization['scheme'];

export const AUTHORIZATION_SCHEMES: readonly AuthorizationScheme[] = [
	'Basic',
	'Bearer',
	'Token',
	'Connection',
	'ApiKey',
];

/** Query-string parameter for `<scheme> <credential>`. Source: assumed (query-name), as in the hand-off URL. */
export const AUTHORIZATION_PARAMETER = 'authorization';

/** Longest credential that is accepted, in characters: room for any signed token, none for a document. */
export const MAX_CREDENTIAL_LENGTH = 8192;

/** One or more visible ASCII characters: anything else could end a header line or hide in a terminal. */
const VISIBLE_ASCII = /^[\x21-\x7e]+$/;

/** Whether a text can be sent as a credential: visible ASCII, 1 to {@link MAX_CREDENTIAL_LENGTH} characters. */
export function isCredential(text: string): boolean {
	return text.length <= MAX_CREDENTIAL_LENGTH && VISIBLE_ASCII.test(text);
}

/** `<scheme> <credential>` as it stands in the `Authorization` header. Source: service-interface, Authentication. */
export function formatAuthorization(authorization: Authorization): string {
	if (authorization.scheme !== 'Basic') return `${authorization.scheme} ${authorization.credential}`;
	const pair = `${authorization.username}:${authorization.password}`;
	return `Basic ${encodeBase64(pair)}`;
}

/** Reads a header or parameter value; the scheme in any capitals. `null` for whatever is not one of the five. */
export function parseAuthorization(text: string | null | undefined): Authorization | null {
	const match = /^\s*([A-Za-z]+)\s+(\S+)\s*$/.exec(text ?? '');
	const scheme = AUTHORIZATION_SCHEMES.find((known) => known.toLowerCase() === match?.[1]?.toLowerCase());
	const credential = match?.[2];
	if (!scheme || !credential || !isCredential(credential)) return null;
	if (scheme !== 'Basic') return { scheme, credential };

	const pair = decodeBase64(credential);
	const colon = pair?.indexOf(':') ?? -1;
	if (pair === null || colon < 0) return null;
	return { scheme, username: pair.slice(0, colon), password: pair.slice(colon + 1) };
}

/** The texts of a credential that no log may show: as it is sent, and its password. */
export function secretsOf(authorization: Authorization): string[] {
	const sent = formatAuthorization(authorization).slice(authorization.scheme.length + 1);
	return authorization.scheme === 'Basic' ? [sent, authorization.password] : [sent];
}

function encodeBase64(text: string): string {
	const bytes = new TextEncoder().encode(text);
	return btoa(String.fromCharCode(...bytes));
}

function decodeBase64(text: string): string | null {
	try {
		const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
		return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
	} catch {
		return null;
	}
}
