/** Forms of settings that other capabilities use as well. */
import * as z from 'zod';

/** A name that a device is given in its settings, for plans to choose it by. */
export const labelSchema = z
	.string('must be a text')
	.min(1, 'must not be empty')
	.max(64, 'must have at most 64 characters')
	.regex(/^[A-Za-z0-9][\w.:/-]*$/, 'must be letters, digits and . _ : / - without spaces');

/** A public key in one line, as settings hold it: `ed25519:` and its 32 bytes in base64. */
export const publicKeySchema = z
	.string('must be a text')
	.regex(/^ed25519:[A-Za-z0-9+/]{43}=$/, 'must be a key such as "ed25519:…" from idv fleet keygen');

/**
 * What ends a scan: `auto` takes CR, LF or a quiet moment; `cr` and `lf` only that character; `none` only the quiet.
 * Scanners are sold with any of them.
 */
export const SCAN_SUFFIXES = ['auto', 'cr', 'lf', 'none'] as const;

export type ScanSuffix = (typeof SCAN_SUFFIXES)[number];

/** Languages of the page; `auto` takes the one of its browser. */
export const PAGE_LANGUAGES = ['auto', 'en', 'de', 'fr', 'es', 'ar'] as const;
