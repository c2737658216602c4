/** A check of `idv-agent doctor`: what it needs, what it may find, and what all findings together mean. Pure. */
import { plainDuration } from '../base/durations.ts';
import { type ErrorCode, EXIT, exitStatusOf, type Failure, type Params } from '../base/errors.ts';
import { joinSentences } from '../base/sentences.ts';

/** One row of the list of checks. */
export interface Check<Context> {
	/** Permanent. */
	readonly id: string;
	/** For a person, in a table. */
	readonly title: string;
	/** The checks that must not have failed before this one can say anything. They come earlier in the list. */
	readonly needs: readonly string[];
	/** Looks at one thing. @param limitMs how long it may take. @param before what the checks before it have found. */
	readonly run: (context: Context, limitMs: number, before: () => Promise<readonly Finding[]>) => Promise<Finding>;
}

/** What a check has found. */
export type Finding =
	| { readonly status: 'ok'; readonly message: string; readonly params?: Params }
	/** A failure keeps the device from its work now; a warning will, or may. */
	| {
			readonly status: 'warning' | 'failed';
			readonly code: ErrorCode;
			readonly message: string;
			readonly remedy: string;
			/** The names and numbers in the message, for the same text in another language. */
			readonly params?: Params;
	  }
	/** There is nothing to check; `blockedBy` names the failed check that made this one impossible. */
	| { readonly status: 'skipped'; readonly message: string; readonly blockedBy: string | null };

export const ok = (message: string, params?: Params): Finding => ({ status: 'ok', message, ...(params && { params }) });
/** With the wait that the service has asked for. */
const said = ({ code, message, remedy, params, retryAfterMs }: Failure) => ({
	code,
	message: retryAfterMs ? joinSentences(message, `It asks to wait for ${plainDuration(retryAfterMs)}`) : message,
	remedy,
	...(params && { params }),
});
export const failed = (failure: Failure): Finding => ({ status: 'failed', ...said(failure) });
export const warning = (failure: Failure): Finding => ({ status: 'warning', ...said(failure) });
/** There is nothing of this kind to check; the checks that need this one still run. */
export const notApplicable = (message: string): Finding => ({ status: 'skipped', message, blockedBy: null });
export const blockedBy = (id: string): Finding => ({
	status: 'skipped',
	message: `Not checked, because ${id} failed.`,
	blockedBy: id,
});

type Row = Pick<Check<never>, 'id' | 'needs'>;

/** The checks asked for and their prerequisites, in the order of the list. */
export function withPrerequisites<Listed extends Row>(list: readonly Listed[], asked: readonly string[]): Listed[] {
	const desired = new Set(asked);
	// From the last to the first: prerequisites come earlier.
	for (const { id, needs } of list.toReversed()) if (desired.has(id)) for (const need of needs) desired.add(need);
	return list.filter(({ id }) => desired.has(id));
}

/** The check that failed and for which this one is skipped, if need be over others between; `null` when it can run. */
export function blockerTo({ needs }: Pick<Row, 'needs'>, findings: ReadonlyMap<string, Finding>): Finding | null {
	for (const need of needs) {
		const found = findings.get(need);
		if (found?.status === 'failed') return blockedBy(need);
		if (found?.status === 'skipped' && found.blockedBy !== null) return blockedBy(found.blockedBy);
	}
	return null;
}

/** The meaning of all findings together: the worst of them, and the exit status of the first failure. */
export interface Verdict {
	readonly verdict: 'ok' | 'warning' | 'failed';
	/** A sysexit; of the first failure, since causes come first in the list. */
	readonly exitStatus: number;
	/** The first check that failed; `null` when none did. */
	readonly first: string | null;
}

/** @param findings in the order of the list. @param warningsAsErrors whether a warning alone is a failure. */
export function assess(
	findings: readonly (readonly [id: string, Finding])[],
	{ warningsAsErrors }: { readonly warningsAsErrors: boolean },
): Verdict {
	const first = findings.find(([, { status }]) => status === 'failed' || (warningsAsErrors && status === 'warning'));
	const warned = findings.some(([, { status }]) => status === 'warning');
	if (!first) return { verdict: warned ? 'warning' : 'ok', exitStatus: EXIT.ok, first: null };
	const [id, found] = first;
	return { verdict: 'failed', exitStatus: 'code' in found ? exitStatusOf(found.code) : EXIT.internal, first: id };
}
