/** Making and comparing secrets. Never keeps one: whoever stores a secret stores its {@link fingerprint}. */
import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';

const ALPHABET = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789';

/** Random letters and digits, each equally likely. */
export function randomText(length: number): string {
	let text = '';
	while (text.length < length) {
		for (const byte of randomBytes(length)) {
			// 248 is the largest multiple of 62 in a byte: more would favour the first letters.
			if (byte < 248 && text.length < length) text += ALPHABET[byte % 62];
		}
	}
	return text;
}

/** SHA-256 in hexadecimal: what a lookup table may hold, and what takes the timing out of the lookup. */
export function fingerprint(secret: string): string {
	return createHash('sha256').update(secret).digest('hex');
}

/** Compares two secrets in a time that does not depend on where they differ. */
export function isSameSecret(a: string, b: string): boolean {
	const digest = (text: string) => createHash('sha256').update(text).digest();
	return timingSafeEqual(digest(a), digest(b));
}
