/**
 * How long the tests of every suite wait on a machine that is busy with something else; a test that hangs is still found. Some tests of the
 * whole agent lose a race there: CI tries such a one again, and its list names it.
 */
export const PATIENCE = {
	expect: { poll: { timeout: 25_000 } },
	retry: process.env['CI'] ? 1 : 0,
} as const;
