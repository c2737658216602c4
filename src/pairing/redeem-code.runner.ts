/**
 * Redeems a one-time code: checks that the result can be saved and the service reached, writes the attempt down, sends the
 * code once. Never sends a code twice and never decides whether it may be used (`pairing/rules.ts`).
 */
import { createHash } from 'node:crypto';
import { type Clock, isoNow } from '../base/clock.edge.ts';
import { AgentError, asError, type Failure, failure } from '../base/errors.ts';
import { joinSentences } from '../base/sentences.ts';
import type { CodeWorth } from '../connection/code-fate.ts';
import { freshConnection } from '../connection/connection-tokens.runner.ts';
import type { DeviceTime } from '../connection/device-time.runner.ts';
import type { Connection } from '../connection/link.ts';
import type { ServiceClient } from '../connection/service-client.edge.ts';
import type { CurrentIdentity } from '../identity/current-identity.runner.ts';
import type { DeviceConnectionRequest } from '../protocol/device-connection.ts';
import type { AnswerText } from '../protocol/registration-answer.ts';
import { listWorkflows, type WorkflowChoice } from '../protocol/workflow-choices.ts';
import type { Settings } from '../settings/table.ts';
import type { PersistedState } from '../state/persisted-state.runner.ts';
import type { StateStore } from '../state/store.edge.ts';
import { NOT_SENT, withReading, withWait, withWorth, wordsOf } from './code-worth.ts';
import type { KeptAnswers } from './kept-answer.runner.ts';
import { beside, inDoubtAfter, knownWorth, othersInDoubt, type Refused } from './known-worth.ts';
import type { PairingPlan } from './rules.ts';

export interface CodeRedemption {
	readonly clock: Clock;
	/** An id that no code had before. */
	readonly newAttemptId: () => string;
	/** Asked for each request: changed settings may take the client away that the first was made with. */
	readonly client: () => ServiceClient;
	readonly service: Pick<Settings['service'], 'tokenPointer' | 'registrationPath' | 'connectionLifeSeconds'>;
	/** The registration to ask for. */
	readonly request: DeviceConnectionRequest;
	readonly store: Pick<StateStore, 'probe' | 'save'>;
	readonly stateWriter: PersistedState;
	readonly identity: Pick<CurrentIdentity, 'keep'>;
	readonly onServiceTime: DeviceTime['heard'];
	readonly answers: Pick<KeptAnswers, 'attempt' | 'keep' | 'refused' | 'tell'>;
}

type Attempt = CodeRedemption['stateWriter']['state']['attempt'];

/** A plan whose workflow the service has to name. */
export type RedeemedPlan = Omit<PairingPlan, 'workflowId'> & { readonly workflowId: string | null };

/**
 * @returns the Connection that the code brought, and for which workflow. The attempt is still written down: saving the Connection ends it.
 * @throws AgentError whose message says whether the code was spent.
 */
export async function redeemCode(
	plan: RedeemedPlan,
	options: CodeRedemption,
): Promise<{ readonly connection: Connection; readonly workflowId: string }> {
	const { clock, client, stateWriter, service } = options;
	const host = new URL(plan.baseUrl).host;
	const { attempt: before } = stateWriter.state;
	// The same code once more keeps its attempt: an answer that was set aside may be the one to it.
	const isAgain = before?.tokenHash === hashOf(plan.token) && before.host === host;
	const attemptId = isAgain ? before.attemptId : options.newAttemptId();
	const known = knownWorth(before, hashOf(plan.token), plan.baseUrl);
	await prepare(plan, attemptId, options).catch((error: unknown) => {
		throw error instanceof AgentError
			? asError(withWorth(error.failure, known ?? 'valid', undefined, NOT_SENT))
			: error;
	});
	const answer = await client().registerDevice({
		baseUrl: plan.baseUrl,
		authorization: { scheme: 'Token', credential: plan.token },
		request: { ...options.request, workflowId: plan.workflowId ?? undefined },
		tokenPointer: service.tokenPointer,
		registrationPath: service.registrationPath,
	});
	const result = answer.ok ? answer : beside(known, answer);
	if (result.clockSkewMs !== null)
		options.onServiceTime({ skewMs: result.clockSkewMs, ...(result.ok && { serviceMs: result.serviceMs }) }, result.ok);
	if (result.ok) {
		const workflowId = plan.workflowId ?? result.workflowId;
		const said = result.said && withWorth(result.said, 'uncertain');
		if (workflowId !== null) return { connection: freshConnection({ ...result, said }, clock, service), workflowId };
		const message = `${host} has registered this device, but neither the code nor the answer names a workflow: without one, the device is not paired.`;
		const remedy = 'Ask for a new pairing code, and name the workflow with it: pair --workflow ID.';
		await forgetAttempt(plan, before, options, 'used');
		throw asError(withWorth(failure('workflow-missing', message, { remedy }), 'used', ''));
	}

	const kept =
		plan.workflowId !== null &&
		result.unread &&
		(await setAside(plan, attemptId, result.failure, result.unread, options));
	if (kept) throw asError({ ...kept, recovers: false });
	// A code that is certainly used up leaves nothing to try again.
	if (result.sent === 'perhaps' && result.worth !== 'used') {
		options.answers.tell();
		throw uncertain(host, result);
	}
	const isSame = attemptId === options.answers.attempt?.attemptId;
	const isOver = result.failure.code === 'code-expired-or-used';
	const spent = isSame && isOver ? options.answers.refused(result.failure.params?.['reason'] === 'used') : null;
	// Something before the service may have answered the first time: what that answer asks for comes first, then another code.
	const first = isSame && isOver && !spent ? options.answers.refused(true) : null;
	// A refusal may leave the code in doubt: status and page say so as of a lost answer. With a list to choose from, it is good.
	const worth = known === null && result.workflows !== undefined ? 'valid' : result.worth;
	if (worth === 'uncertain') await noteRefusal(result, options);
	else await forgetAttempt(plan, before, options, worth, isSame);
	if (result.sent === 'perhaps') throw uncertain(host, result);
	if (spent) throw asError({ ...spent, message: joinSentences(result.failure.message, spent.message) });
	if (result.workflows) throw asError(withReading(offering(plan, { ...result, worth }, result.workflows), plan.sent));
	const told = withReading(withWorth(result.failure, result.worth), plan.sent);
	throw asError(first ? { ...told, remedy: joinSentences(first.remedy, `If not: ${told.remedy}`) } : told);
}

/**
 * Tells whether a code is the one that was sent. A short code can be found from it by trying all: it is kept of one that was sent, and
 * with the pairing of one that was spent, which is worth nothing; the file that has it has the Connection as well.
 */
export const hashOf = (token: string) => createHash('sha256').update(token).digest('hex').slice(0, 16);

/** Writes the attempt down: a code that may have been sent is known after any end. @throws AgentError before anything is sent. */
async function prepare({ baseUrl, token }: RedeemedPlan, attemptId: string, options: CodeRedemption): Promise<void> {
	const { clock, client, stateWriter, store } = options;
	// Neither spends anything, so that neither waits for the other. The attempt is flushed before the code goes out.
	const [, reached] = await Promise.all([store.probe({ flushes: false }), client().preflight(baseUrl)]);
	if (reached.clockSkewMs !== null) options.onServiceTime({ skewMs: reached.clockSkewMs }, false);
	if (reached.failure) throw asError(reached.failure);
	const tokenHash = hashOf(token);
	const { host } = new URL(baseUrl);
	const doubted = othersInDoubt(stateWriter.state.attempt, tokenHash, host);
	const attempt = { attemptId, tokenHash, host, at: isoNow(clock), doubted };
	await options.identity.keep(options.request.deviceId);
	await stateWriter.record((state) => ({ ...state, attempt }));
}

/** For the status: what the service said is worth more there than that the code is in doubt. */
async function noteRefusal(
	{ sent, failure: { code, params } }: Refused,
	{ answers, stateWriter, store }: CodeRedemption,
): Promise<void> {
	const [status, detail] = [Number(params?.['status']), params?.['detail']];
	// A redirect says nothing.
	if (sent === 'answered' && (status < 300 || status >= 400)) {
		const refusal = { code, status, ...(detail !== undefined && { detail: String(detail) }) };
		stateWriter.keep((state) => ({ ...state, attempt: state.attempt && { ...state.attempt, refusal } }));
		await store.save(stateWriter.state).catch(() => {});
	}
	answers.tell();
}

/**
 * What became of the code is plain. An answer that was set aside stays good whatever another code came to, and so does the doubt about another.
 * @param isNewest whether that answer is still the newest word.
 */
async function forgetAttempt(
	{ token, baseUrl }: RedeemedPlan,
	before: Attempt,
	{ answers, stateWriter, store }: CodeRedemption,
	worth: CodeWorth,
	isNewest = false,
): Promise<void> {
	const doubted = inDoubtAfter(before, hashOf(token), new URL(baseUrl).host, worth);
	const last = before ?? stateWriter.state.attempt;
	const past = last && { ...last, isPast: true as const, doubted };
	const attempt = isNewest ? before : past;
	stateWriter.keep((state) => ({ ...state, attempt: answers.attempt || doubted.length > 0 ? attempt : null }));
	answers.tell();
	// What the service said matters more now than whether the disk takes it.
	await store.save(stateWriter.state).catch(() => {});
}

/** The code was sent, and no answer says plainly what became of it, or brings what it was spent for. */
function uncertain(host: string, { failure: cause, worth }: Refused): AgentError {
	const params = { ...cause.params, host };
	if (worth === 'used') {
		const told = failure('pairing-uncertain', `${host} took the code. ${cause.message}`, { params });
		// Where the operator has to act first, another code would be spent in vain.
		const remedy = cause.code === 'answer-unreadable' ? cause.remedy : '';
		return asError(withWorth({ ...told, remedy }, 'used'));
	}
	const message = `The code was sent to ${host}, but no usable answer came back: the service may have used the code up. ${cause.message}`;
	const told = failure('pairing-uncertain', message, { params: { ...params, pairingCode: worth } });
	return asError(withWait({ ...told, retryAfterMs: cause.retryAfterMs }));
}

/** Workflows that a refusal carries for a person to choose from. */
const MAX_OFFERED = 500;

/** A refusal that says what to choose from, with what is known of the code. */
function offering(
	{ workflowId, baseUrl, sent }: RedeemedPlan,
	{ failure: { message }, worth }: Refused,
	list: readonly WorkflowChoice[],
) {
	const { host } = new URL(baseUrl);
	const named = workflowId !== null && { workflowId };
	const offer = `${host} offers: ${listWorkflows(list)}`;
	if (named && sent.namesWorkflow) {
		// No other is taken with this code: there is nothing to choose.
		const told = { remedy: 'Ask for a new pairing code, for one of these workflows.', params: { host, ...named } };
		return withWorth(failure('workflow-unknown', joinSentences(message, offer), told), worth, '');
	}
	const more = list.length > MAX_OFFERED && { moreWorkflows: list.length - MAX_OFFERED };
	const params = {
		host,
		workflows: JSON.stringify(list.slice(0, MAX_OFFERED)),
		...more,
		...named,
		pairingCode: worth,
	};
	const remedy = joinSentences(
		'Choose one: pair --workflow with its id, or workflowId in the settings',
		wordsOf(worth),
	);
	return workflowId === null
		? failure('workflow-missing', joinSentences('This code names no workflow', offer), { remedy, params })
		: failure('workflow-unknown', joinSentences(message, offer), { remedy, params });
}

/** The service said yes, and the code is used up: what it answered is all that the device has. */
function setAside(
	{ baseUrl, sessionId, assignsWorkflow, confirmsOrigin }: RedeemedPlan,
	attemptId: string,
	{ params }: Failure,
	texts: readonly AnswerText[],
	{ answers, request }: CodeRedemption,
): Promise<Failure | null> {
	const status = Number(params?.['status'] ?? 0);
	const pairing = { baseUrl, request, sessionId, assignsWorkflow, confirmsOrigin };
	return answers.keep({ attemptId, status, ...pairing, texts: [...texts] });
}
