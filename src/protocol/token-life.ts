/**
 * When a token begins and ends, where it says so itself. The signature is not checked: the answer is a hint for
 * renewing in time, never a reason to stop (service-interface, Assumptions).
 */

export interface TokenLife {
	/** Seconds since 1970, from `iat`; `null` where the token does not say. */
	readonly issuedAtSeconds: number | null;
	/** Seconds since 1970, from `exp`. */
	readonly expiresAtSeconds: number;
}

/** Reads `exp` and `iat` of a token that has the three parts of a JWT; `null` for any other token. */
export function readTokenLife(token: string): TokenLife | null {
	const payload = token.split('.')[1];
	if (payload === undefined || token.split('.').length !== 3) return null;
	try {
		const claims: unknown = JSON.parse(atob(payload.replaceAll('-', '+').replaceAll('_', '/')));
		if (typeof claims !== 'object' || claims === null) return null;
		const { exp, iat } = claims as { exp?: unknown; iat?: unknown };
		if (!isTime(exp)) return null;
		return { expiresAtSeconds: exp, issuedAtSeconds: isTime(iat) && iat < exp ? iat : null };
	} catch {
		return null;
	}
}

function isTime(value: unknown): value is number {
	return typeof value === 'number' && Number.isFinite(value) && value >= 0;
}
