/** Largest plan file, as served and once unpacked, in bytes: some 60,000 listed ids; labels and prefixes need far less. */
export const MAX_PLAN_BYTES = 2 * 1024 * 1024;

/** The kinds of values in a rule's `match`. */
export const MATCH_KEYS = ['deviceIds', 'serials', 'macAddresses', 'deviceTypes', 'labels'] as const;
export type MatchKey = (typeof MATCH_KEYS)[number];
