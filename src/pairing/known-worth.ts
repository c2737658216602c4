/** What is known of codes that were sent: it never gets better by an answer that did not look at the code. Pure. */
import type { CodeWorth } from '../connection/code-fate.ts';
import type { RegisterResult } from '../connection/service-client.edge.ts';
import { type DeviceState, MAX_DOUBTED } from '../state/device-state.ts';

type Attempt = DeviceState['attempt'];
export type Refused = Extract<RegisterResult, { ok: false }>;
type Known = 'uncertain' | 'used';

/** Another service may give the same short code. */
const codeOf = (tokenHash: string, host: string) => `${tokenHash} ${host}`;
/** Behind a code of which a service has said that it is used up. */
const USED = ' used';

function allOf(attempt: Attempt): readonly string[] {
	const { doubted = [], isPast } = attempt ?? {};
	return attempt === null || isPast ? doubted : [...doubted, codeOf(attempt.tokenHash, attempt.host)];
}

/** @param baseUrl of the service that the code is for; `null` for a code that does not name it. */
export function knownWorth(attempt: Attempt, tokenHash: string, baseUrl: string | null): Known | null {
	const host = baseUrl === null ? null : new URL(baseUrl).host;
	const found = allOf(attempt)
		.map((one) => one.split(' '))
		.filter(([hash, its]) => hash === tokenHash && (host === null || its === host));
	if (found.length === 0) return null;
	return found.some(([, , mark]) => mark !== undefined) ? 'used' : 'uncertain';
}

/** Only an answer that looked at the code says more of it than what is known: of one that is used up, none leaves a doubt. */
export function beside(known: Known | null, answer: Refused): Refused {
	const { worth, saysUnused, sent, failure } = answer;
	if (known === null || saysUnused) return answer;
	if (known === 'uncertain') return worth === 'valid' ? { ...answer, worth: known } : answer;
	// Whatever it is about, to scan the code again leads nowhere.
	const isOver = failure.code === 'code-expired-or-used';
	const told = isOver ? { ...failure, params: { ...failure.params, reason: 'used' } } : failure;
	return { ...answer, failure: told, worth: known, sent: sent === 'perhaps' ? 'answered' : sent };
}

/** The codes in doubt while this one is sent: its own attempt says that it is. */
export function othersInDoubt(attempt: Attempt, tokenHash: string, host: string): string[] {
	const code = codeOf(tokenHash, host);
	return newest(allOf(attempt).filter((one) => one !== code));
}

/** The codes in doubt once the worth of this one is known. */
export function inDoubtAfter(attempt: Attempt, tokenHash: string, host: string, worth: CodeWorth): string[] {
	const code = codeOf(tokenHash, host);
	const others = allOf(attempt).filter((one) => one !== code && one !== code + USED);
	return newest(worth === 'valid' ? others : [...others, worth === 'used' ? code + USED : code]);
}

const newest = (doubted: readonly string[]) => doubted.slice(-MAX_DOUBTED);
