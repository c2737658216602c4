/** When a token begins and ends, where it says so itself: a hint for renewing in time. The signature is not checked. */
import { parseJson } from './json.ts';

export interface TokenLife {
	/** Seconds since 1970, from `iat`; `null` where the token does not say. */
	readonly issuedAtSeconds: number | null;
	/** Seconds since 1970, from `exp`. */
	readonly expiresAtSeconds: number;
}

/** Beyond it there is no date. */
const MAX_DATE_SECONDS = 8.64e12;

/** The claims of a token that has the three parts of a JWT; none for any other token. */
export function readClaims(token: string): Readonly<Record<string, unknown>> {
	const [, payload = '', ...more] = token.split('.');
	if (more.length !== 1) return {};
	try {
		const bytes = Uint8Array.from(atob(payload.replaceAll('-', '+').replaceAll('_', '/')), (one) => one.charCodeAt(0));
		return Object(parseJson(new TextDecoder().decode(bytes)));
	} catch {
		return {};
	}
}

/** Reads `exp` and `iat`; `null` for a token that does not say when it ends. */
export function readTokenLife(token: string): TokenLife | null {
	const { exp, iat } = readClaims(token);
	if (!isTime(exp)) return null;
	return { expiresAtSeconds: exp, issuedAtSeconds: isTime(iat) && iat < exp ? iat : null };
}

/** The same and `nbf`, each where the token says it. */
export function readTokenTimes(token: string) {
	const { nbf, exp } = readClaims(token);
	return { notBeforeSeconds: isTime(nbf) ? nbf : undefined, expiresAtSeconds: isTime(exp) ? exp : undefined };
}

function isTime(value: unknown): value is number {
	return typeof value === 'number' && value >= 0 && value <= MAX_DATE_SECONDS;
}
