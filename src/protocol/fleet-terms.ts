/**
 * The few terms of fleet plans that settings and inventories use as well: a daemon that follows no plan has no need of the
 * plan's whole form.
 */
import * as z from 'zod';

/** Largest plan file, as served and once unpacked, in bytes: some 60,000 listed ids; labels and prefixes need far less. */
export const MAX_PLAN_BYTES = 2 * 1024 * 1024;

/** The kinds of values in a rule's `match`. */
export const MATCH_KEYS = ['deviceIds', 'serials', 'macAddresses', 'deviceTypes', 'labels'] as const;
export type MatchKey = (typeof MATCH_KEYS)[number];

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
