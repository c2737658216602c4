/** Largest plan file, as served and once unpacked, in bytes: some 60,000 listed ids; labels and prefixes need far less. */
export const MAX_PLAN_BYTES = 2 * 1024 * 1024;

/** Listed values in all rules that a device reads within 32 MiB more memory: 30,000 took 21 MiB, 50,000 took 41. A plan of format 1 may have more. */
export const MAX_LISTED_VALUES = 25_000;

/** The kinds of values in a rule's `match`. */
export const MATCH_KEYS = ['deviceIds', 'serials', 'macAddresses', 'deviceTypes', 'labels'] as const;
export type MatchKey = (typeof MATCH_KEYS)[number];

/** Seconds over which a change is spread, unless the plan says otherwise. */
export const DEFAULT_SPREAD_SECONDS = 600;
