/** How a failure is told in the light of what worked before. Pure. */
import { dispositionOf, type Failure, failure } from '../base/errors.ts';
import { joinSentences } from '../base/sentences.ts';
import type { CloseMeaning } from '../protocol/channel.ts';
import { type Backoff, EARLY_ENDS_TO_REFUSE, type NextAttempt } from './backoff.ts';
import type { Connection } from './link-state.ts';

/** Settings and credential are not the first thing to doubt where they worked lately: the agent goes on without a person. */
export function asPassing(told: Failure, { outweighed }: NextAttempt): Failure {
	if (!outweighed || SAYS_NEXT.has(told.remedy)) return told;
	const { code, message, remedy } = told;
	// It says itself what comes first.
	if (remedy.startsWith('If ')) return failure(code, message, { ...told, recovers: true });
	const wait = `Wait a few minutes: ${OTHER_CAUSE[outweighed]}.`;
	return failure(code, message, { ...told, recovers: true, remedy: `${wait} If it lasts: ${remedy}` });
}

const OTHER_CAUSE = {
	surprise: 'this device was online lately, so something else may answer for the service now',
	refusal:
		'this device was online lately, and a service with a passing fault may refuse what it accepts a moment later',
	address: 'the name of the service has another address, which is tried next',
} as const;

/**
 * A Connection that was issued a moment ago and is refused has most likely been shown in a way that the service does not read, unless
 * it has opened a channel for one that was shown so, or has refused the registration in the answer that brought this one.
 */
export function asShownWrong(refused: Failure, { backoff }: NextAttempt, { said }: Pick<Connection, 'said'>): Failure {
	const isRefusal = refused.code === 'credential-refused' || refused.code === 'access-forbidden';
	if (isRefusal && said)
		return failure(refused.code, said.message, {
			...refused,
			remedy: said.remedy,
			params: { ...refused.params, ...said.params },
		});
	if (backoff.registeredAtMs === null || !isRefusal) return refused;
	const opened = backoff.hasCounted ? null : backoff.earlyEnds;
	const shown = backoff.hasCounted ? NOT_SHOWN_WRONG : opened ? ENDED_OPEN : SHOWN_WRONG;
	const before = opened && refused.params?.['status'] !== undefined ? openedBefore(opened.closeCode) : '';
	const remedy = refused.code === 'access-forbidden' ? `${refused.remedy} If it is allowed: ${shown}` : shown;
	// Another code would bring a Connection that is refused in the same way.
	const params = { ...refused.params, shown: 'fresh' };
	return failure(refused.code, joinSentences(refused.message, before), { ...refused, params, remedy });
}

const SHOWN_WRONG =
	'The service has just issued this Connection, and its channel refuses it: set service.channelAuth, service.queryName, service.subprotocol or service.channelPath as the service requires (idv probe finds them); a changed setting is tried at once, without another code.';
const openedBefore = (closeCode: number | null) =>
	`The channel opened with these settings before, and the service ended it ${closeCode === null ? 'without a close code' : `with code ${closeCode}`}`;
const ENDED_OPEN =
	'The service opened the channel for this new Connection, and ended it: ask its operator why, and look for a second device with the same deviceId.';
const NOT_SHOWN_WRONG =
	'This device was online with these settings before: look for a second device with the same deviceId, and ask the operator of the service why it refuses a Connection that it has just issued.';

/**
 * While the credential of this device makes new Connections, pairing it again would help nothing; nor does it where that is refused after
 * it has worked lately. @param worked whether the device has a credential of its settings and was online with it lately.
 */
export function asRenewable(ended: Failure, registers: boolean, worked: boolean, { backoff, blocked }: Paced): Failure {
	if (dispositionOf(ended.code) !== 'reregister' || !registers || (backoff.registerRefused && !worked)) return ended;
	const remedy = backoff.registerRefused ? KEY_REFUSED : RENEWS;
	return failure(ended.code, ended.message, { ...ended, remedy, recovers: !(backoff.registerRefused && blocked) });
}

const RENEWS =
	'At its next try this device registers again with its own credential. If it happens again and again, look for a second device with the same deviceId, and ask the operator of the service why it refuses Connections that it has issued.';
const KEY_REFUSED =
	'At its next try this device shows its Connection and its own credential again, which have worked before. If it lasts, have the operator allow that credential, or put a valid one into its file: a changed file is tried at once.';
/** They say themselves what comes next. */
const SAYS_NEXT: ReadonlySet<string> = new Set([RENEWS, KEY_REFUSED]);

type Paced = Pick<NextAttempt, 'backoff' | 'blocked'>;

const MEANT = { refused: 'credential-refused', replaced: 'connection-replaced', retry: 'connection-lost' } as const;

/** The end of a channel as the settings have its close code; one that only means an outage counts as none. */
export function asMeant<Ended extends { readonly failure: Failure; readonly closeCode: number | null }>(
	ended: Ended,
	meanings: Readonly<Record<string, CloseMeaning>>,
): Ended {
	const meaning = meanings[String(ended.closeCode)];
	if (meaning === undefined) return ended;
	const { message, params } = ended.failure;
	const meant = failure(MEANT[meaning], message, params ? { params } : {});
	return { ...ended, failure: meant, closeCode: meaning === 'retry' ? null : ended.closeCode };
}

/** A private close code that ends fresh channels again and again refuses the device, whatever its number is. */
export function asRefusal(ended: Failure, { earlyEnds }: Backoff): Failure {
	const count = earlyEnds?.count ?? 0;
	const isPrivate = Number(earlyEnds?.closeCode) >= 4000 && ended.params?.['closeCode'] === earlyEnds?.closeCode;
	if (count < EARLY_ENDS_TO_REFUSE || !isPrivate || ended.code !== 'connection-lost') return ended;
	const message = `${ended.message} It has ended ${count} fresh channels in a row with that code.`;
	return failure('credential-refused', message, ended.params ? { params: ended.params } : {});
}
