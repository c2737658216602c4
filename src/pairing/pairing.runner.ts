/**
 * Pairing, from a scanned text to its answer: one code at a time, refused before it is redeemed, saved before a success is
 * reported, and one answer for all who bring the same code. Opens no channel; the agent takes the device online.
 */
import { domainToUnicode } from 'node:url';
import type { Audit } from '../audit/audit.runner.ts';
import type { Clock } from '../base/clock.edge.ts';
import { AgentError, asError, type Failure, toFailure } from '../base/errors.ts';
import type { Log } from '../base/log.edge.ts';
import type { Warnings } from '../base/warnings.ts';
import { type Connections, knownConnection } from '../connection/connection-tokens.runner.ts';
import type { DeviceTime } from '../connection/device-time.runner.ts';
import type { Connection } from '../connection/link.ts';
import type { Runtime } from '../connection/runtime.runner.ts';
import type { DesiredRegistration } from '../connection/supervisor.ts';
import type { EventsFeed } from '../events/feed.runner.ts';
import { keepSession } from '../events/notifications.ts';
import type { PlanTarget } from '../fleet/record.ts';
import type { CurrentIdentity } from '../identity/current-identity.runner.ts';
import { type CompleteIdentity, pinIdentity } from '../identity/identity.ts';
import type { PairPreview, PairRequest, PairResult, Status } from '../protocol/local-api.ts';
import { chooseWorkflow, readWorkflowChoices } from '../protocol/workflow-choices.ts';
import { findExposedFiles } from '../settings/exposed-files.runner.ts';
import { type DeviceState, type SavedConnection, withConnection, withOrigin } from '../state/device-state.ts';
import type { PersistedState } from '../state/persisted-state.runner.ts';
import type { StateStore } from '../state/store.edge.ts';
import { fixedWorkflow } from '../workflow/precedence.ts';
import { unsent, unsentFailure, withWorth, worthIn } from './code-worth.ts';
import type { AnswerFile } from './kept-answer.edge.ts';
import { keepAnswers } from './kept-answer.runner.ts';
import type { KeptAnswer } from './kept-answer.ts';
import { knownWorth } from './known-worth.ts';
import { hashOf, type RedeemedPlan, redeemCode } from './redeem-code.runner.ts';
import { addressFor, differingIssuer, isOwn, pairedWith, type Standing, sameCode } from './rescue.ts';
import { type BroughtBy, decidePairing, type PairingDecision, type PairingPlan } from './rules.ts';
import { readScannedText } from './scanned-text.ts';

export interface PairingParts {
	readonly clock: Clock;
	readonly newAttemptId: () => string;
	readonly log: Log;
	readonly audit: Pick<Audit, 'record'>;
	readonly store: Pick<StateStore, 'probe' | 'save'>;
	/** Where an answer is set aside that could not be read. */
	readonly answerFile: AnswerFile;
	readonly warnings: Pick<Warnings, 'set'>;
	readonly stateWriter: PersistedState;
	readonly events: EventsFeed;
	/** Runs what appends an event of this service. */
	readonly receive: (baseUrl: string, append: () => void) => void;
	readonly runtime: () => Runtime;
	readonly plan: () => PlanTarget | null;
	/** Of the service that the device is, or was, online at; `null` before it was. */
	readonly addressInForce: () => string | null;
	readonly standing: () => Standing;
	readonly status: () => Pick<Status, 'state' | 'problem' | 'sentence'>;
	readonly time: Pick<DeviceTime, 'heard' | 'best'>;
	readonly identity: Pick<CurrentIdentity, 'keep' | 'ofMachine'>;
	readonly registrationFor: (identity: CompleteIdentity, baseUrl: string, workflowId: string) => DesiredRegistration;
	readonly toSaved: Connections['toSaved'];
	/** @throws AgentError `agent-not-running` when the agent stops: a Connection would not be saved any more. */
	readonly ensureRunning: () => void;
	/** Takes the device online with what a code has brought: begins before anything else can happen to the state. */
	readonly goOnline: (paired: Paired) => Promise<Pick<PairResult, 'deviceId' | 'online' | 'sentence'>>;
}

/** What a code has brought. */
export interface Paired {
	readonly desired: DesiredRegistration;
	readonly connection: Connection;
}

/** Refusals of a registration without a workflow that say no more than that. */
const NO_LIST: readonly string[] = ['request-rejected', 'workflow-unknown', 'bad-response'];

/** What a pairing changes in the state. */
type Pairs = Omit<PairingPlan, 'token' | 'isRescue' | 'sent'> & { readonly keepEvents?: boolean };

/** How a pairing ended. */
export type PairingOutcome =
	| { readonly kind: 'paired'; readonly result: PairResult }
	| { readonly kind: 'failed'; readonly failure: Failure };

export type Pairing = ReturnType<typeof createPairing>;

export function createPairing(parts: PairingParts) {
	const { stateWriter } = parts;
	let underWay: Promise<unknown> | null = null;
	const listeners = new Set<(outcome: PairingOutcome) => void>();
	/** By code, until they are given. */
	const given = new Map<string, Promise<PairResult>>();

	/** What is known of a code that was sent before. */
	function known({ code }: PairRequest) {
		const read = readScannedText(code).code;
		return read && knownWorth(stateWriter.state.attempt, hashOf(read.token), read.baseUrl);
	}

	function decide(asked: PairRequest, by: BroughtBy): PairingDecision {
		const { resolved } = parts.runtime();
		const { replace = false } = asked;
		const named = { baseUrl: readScannedText(asked.code).code?.baseUrl ?? null, replace };
		const baseUrl = addressFor(named, resolved.settings.baseUrl, parts.addressInForce());
		// The workflow of the settings is for the service that they name.
		const isTheirs = baseUrl === resolved.settings.baseUrl;
		const decision = decidePairing(
			{ ...asked, replace, by },
			{
				settings: { ...resolved.settings, baseUrl },
				configured: isTheirs ? fixedWorkflow(resolved, parts.plan()) : null,
				state: stateWriter.state,
				pairedWith: pairedWith(stateWriter.state),
				standing: parts.standing(),
			},
		);
		const { token, baseUrl: its = null } = readScannedText(asked.code).code ?? {};
		const { pairing } = stateWriter.state;
		if (token === undefined || pairing?.tokenHash !== hashOf(token)) return decision;
		// Another service may give the same short code.
		if (its !== null && new URL(its).origin !== new URL(pairing.baseUrl).origin) return decision;
		const status = parts.status();
		// The service has refused the registration in the answer to this code: only trying it again tells its worth.
		if (status.problem?.params?.['pairingCode'] === 'uncertain') return decision;
		const problem = sameCode(status);
		return { plan: null, preview: { ...decision.preview, ready: false, changes: [], problem } };
	}

	const service = () => parts.runtime().resolved.settings.service;
	const answers = keepAnswers({
		...parts,
		file: parts.answerFile,
		tokenPointer: () => service().tokenPointer,
		attempt: () => stateWriter.state.attempt,
	});

	/** By the workflow that was named, or by what the service lists for a code that names none. */
	async function redeem(plan: RedeemedPlan, asked: PairRequest): Promise<Paired> {
		// What the code or the settings name is meant as it is.
		const mayChoose = plan.workflowId === null || plan.workflowId === asked.workflowId;
		return redeemOnce(plan, asked.keepEvents).catch((error: unknown) => {
			const list = error instanceof AgentError ? error.failure.params?.['workflows'] : undefined;
			const choices = readWorkflowChoices(`{"workflows":${list ?? '[]'}}`);
			const chosen = mayChoose ? chooseWorkflow(choices, plan.workflowId) : null;
			if (chosen && chosen.id !== plan.workflowId)
				return redeemOnce({ ...plan, workflowId: chosen.id }, asked.keepEvents);
			throw error;
		});
	}

	async function redeemOnce(plan: RedeemedPlan, keepEvents = false): Promise<Paired> {
		const { clock, runtime } = parts;
		// A pairing takes the machine as it is now: a replaced board belongs to this device from here on.
		const identity = parts.identity.ofMachine();
		const asked = parts.registrationFor(identity, plan.baseUrl, plan.workflowId ?? '');
		const { connection, workflowId } = await redeemCode(plan, {
			clock,
			newAttemptId: parts.newAttemptId,
			client: () => runtime().client,
			service: service(),
			request: asked.request,
			store: parts.store,
			stateWriter,
			identity: parts.identity,
			onServiceTime: parts.time.heard,
			answers,
		});
		if (plan.isRescue) await checkIssuer(connection.token);
		const desired = { ...asked, request: { ...asked.request, workflowId } };
		await savePairing({ ...plan, workflowId, keepEvents }, identity, parts.toSaved(desired, connection));
		return { desired, connection };
	}

	/** A rescue never moves a device to another tenant; its own Connection stays. */
	async function checkIssuer(token: string): Promise<void> {
		const claim = differingIssuer(stateWriter.state.connections.at(-1)?.token ?? '', token);
		if (claim === null) return;
		stateWriter.keep((state) => ({ ...state, attempt: null }));
		await answers.drop().catch(() => {});
		throw new AgentError(
			'code-for-other-origin',
			`This code is for another customer of the same service: its Connection names another ${claim}. The code is used up; this device stays as it was.`,
			{ params: { claim, pairingCode: 'used' } },
		);
	}

	/** @param from the text of a kept answer that it is made with: of that it is not known yet whether it is the Connection. */
	async function savePairing(
		plan: Pairs,
		identity: CompleteIdentity,
		saved: SavedConnection,
		from: string | null = null,
	): Promise<void> {
		const { ms, isServices } = parts.time.best();
		const at = new Date(ms).toISOString();
		stateWriter.keep((state) => ({
			...withPairing(state, plan, identity, saved, { at, isServices }),
			...(from !== null && { attempt: state.attempt }),
		}));
		// The code is used up: the device goes online with what it brought, even if the disk is full; the status reports that.
		await parts.store.save(stateWriter.state).catch(() => {});
		// Its attempt is over in the state: a file that cannot be removed now is removed at the next start, and never used.
		if (from === null) await answers.drop().catch(() => {});
		else answers.taken(from);
		const { baseUrl, workflowId, sessionId } = plan;
		parts.log.info('paired', { host: new URL(baseUrl).host, workflowId, deviceId: identity.deviceId.value });
		if (sessionId !== null) parts.receive(baseUrl, () => keepSession(parts.events, sessionId, { workflowId, at }));
	}

	/** The Connection that an answer brings which was set aside, now that its token is found. */
	async function takeKept(kept: KeptAnswer, token: string): Promise<Paired> {
		const { baseUrl, request } = kept;
		parts.ensureRunning();
		const identity = parts.identity.ofMachine();
		// The registration that was made, not the one that would be asked for now: where they differ, the device moves on from there.
		const desired = { ...parts.registrationFor(identity, baseUrl, request.workflowId), request };
		const saved = { ...parts.toSaved(desired, { token }), obtainedAt: kept.at };
		await savePairing({ ...kept, workflowId: request.workflowId }, identity, saved, token);
		return { desired, connection: knownConnection(saved, parts.clock, service()).connection };
	}

	async function finishKept(): Promise<void> {
		while (underWay) await underWay;
		const ready = answers.ready();
		if (!ready) return answers.tell();
		const { baseUrl } = ready.kept;
		const { settings } = parts.runtime().resolved;
		if (!isOwn(baseUrl, addressFor({ baseUrl, replace: true }, settings.baseUrl, parts.addressInForce()))) return;
		await reported(online(ready.kept, takeKept(ready.kept, ready.token)), 'kept answer').catch(() => {});
	}

	/** @throws AgentError why the code is not sent. */
	async function look(asked: PairRequest, by: BroughtBy): Promise<PairingDecision> {
		parts.ensureRunning();
		if (underWay) throw new AgentError('pairing-under-way', 'Another pairing is under way on this device.');
		const decision = decide(asked, by);
		if (!decision.plan && !decision.incomplete) throw refusal(decision.preview);
		const [exposed] = await findExposedFiles(parts.runtime().resolved);
		if (exposed) throw asError(exposed);
		return decision;
	}

	async function pairOnce(asked: PairRequest, by: BroughtBy): Promise<PairResult> {
		const decision = await look(asked, by).catch((error: unknown) => {
			throw unsent(error, known(asked) ?? 'valid');
		});
		const { plan, incomplete, preview } = decision;
		if (plan) return online(plan, redeem(plan, asked));
		if (!incomplete) throw refusal(preview);
		return online(incomplete, redeem({ ...incomplete, workflowId: null }, asked)).catch((error: unknown) => {
			// The service did not say which workflows there are: then a person has to.
			throw error instanceof AgentError && NO_LIST.includes(error.code)
				? asError(withWorth(refusal(preview).failure, worthIn(error.failure)))
				: error;
		});
	}

	async function online(
		{ baseUrl, sessionId }: Pick<PairingPlan, 'baseUrl' | 'sessionId'>,
		pairs: Promise<Paired>,
	): Promise<PairResult> {
		// The promise of the answer is wrapped: the next code may come as soon as this one is redeemed.
		const redeeming = pairs.then((paired) => ({
			answer: parts.goOnline(paired),
			workflowId: paired.desired.request.workflowId,
		}));
		underWay = redeeming.catch(() => {});
		const { answer, workflowId } = await redeeming.finally(() => {
			underWay = null;
		});
		const { deviceId, online, sentence } = await answer;
		return { baseUrl, deviceId, workflowId, sessionId, online, sentence };
	}

	async function reported(answer: Promise<PairResult>, entrance: BroughtBy | 'kept answer'): Promise<PairResult> {
		try {
			const result = await answer;
			const { baseUrl, workflowId } = result;
			parts.audit.record({ action: 'paired', entrance, result: 'ok', host: new URL(baseUrl).host, workflowId });
			report({ kind: 'paired', result });
			return result;
		} catch (error) {
			const told = toFailure(error);
			parts.log.warn(told.message, { code: told.code, remedy: told.remedy, params: told.params });
			// What a person asked is recorded where it was asked.
			if (entrance !== 'person') parts.audit.record({ action: 'paired', entrance, result: told.code });
			report({ kind: 'failed', failure: told });
			throw error;
		}
	}

	function report(outcome: PairingOutcome): void {
		for (const listener of listeners) listener(outcome);
	}

	return {
		/** The code that is being redeemed, or `null`; settles without rejecting. */
		get underWay() {
			return underWay;
		},
		/** The state as it is told: a code whose answer is still awaited is not uncertain. */
		told: (state: DeviceState): DeviceState => (underWay ? { ...state, attempt: null } : state),
		/** What a code would do. Redeems nothing, touches no network. */
		inspect(asked: PairRequest, by: BroughtBy = 'person'): PairPreview {
			const preview = withUnicodeHost(decide(asked, by).preview);
			const [worth, problem] = [known(asked), preview.problem as Failure | null];
			return problem && worth ? { ...preview, problem: unsentFailure(problem, worth) } : preview;
		},
		/**
		 * Redeems a code, saves what it brought and takes the device online. All who bring the same code until then have one
		 * answer: what a keyboard scanner types reaches the agent and the terminal that has the focus, and a refusal there would
		 * be untrue.
		 * @throws AgentError why the code may not be used, or whether it was used up.
		 */
		pair(asked: PairRequest, by: BroughtBy = 'person'): Promise<PairResult> {
			// A terminal and the agent itself may read the same scanner by two keyboard layouts.
			const code = readScannedText(asked.code).code?.token ?? asked.code.trim();
			const answer = given.get(code) ?? reported(pairOnce(asked, by), by).finally(() => given.delete(code));
			given.set(code, answer);
			return answer;
		},
		/** Calls back with the outcome of every pairing, once for all who share it, until the returned function is called. */
		onOutcome(listener: (outcome: PairingOutcome) => void): () => void {
			listeners.add(listener);
			return () => listeners.delete(listener);
		},
		/** Pairs with an answer that was set aside, if the settings of now find a Connection token in it. Never rejects. */
		finishKept,
		/** The device is online: nothing else of a kept answer is needed. */
		cameOnline(): void {
			if (!answers.isTaken) return;
			stateWriter.keep((state) => ({ ...state, attempt: null }));
			void answers.drop().catch(() => {});
		},
		/** Forgets an answer that was set aside. @throws AgentError `state-unwritable`. */
		dropKept: answers.drop,
		close: answers.close,
	};
}

/** How long a pairing waits for the device to come online before it answers. */
const SETTLE_MS = 10_000;

/** Resolves when a pairing has taken the device online or has failed to, at the latest after {@link SETTLE_MS}. */
export function untilSettled(
	clock: Pick<Clock, 'schedule'>,
	subscribe: (listener: () => void) => () => void,
	isSettled: () => boolean,
): Promise<void> {
	return new Promise((resolve) => {
		const done = () => {
			cancel();
			unsubscribe();
			resolve();
		};
		const check = () => {
			if (isSettled()) done();
		};
		const cancel = clock.schedule(SETTLE_MS, done);
		const unsubscribe = subscribe(check);
		check();
	});
}

/** Punycode shows which host it really is, but a person knows the other form. */
function withUnicodeHost(preview: PairPreview): PairPreview {
	if (preview.baseUrl === null) return preview;
	const { hostname } = new URL(preview.baseUrl);
	const hostInUnicode = domainToUnicode(hostname);
	return hostInUnicode === hostname || hostInUnicode === '' ? preview : { ...preview, hostInUnicode };
}

function withPairing(
	state: DeviceState,
	{ baseUrl, workflowId, sessionId, assignsWorkflow, confirmsOrigin, keepEvents = false }: Pairs,
	identity: CompleteIdentity,
	saved: SavedConnection,
	{ at, isServices }: { readonly at: string; readonly isServices: boolean },
): DeviceState {
	const paired: DeviceState = {
		...state,
		attempt: null,
		identity: pinIdentity(identity, at),
		pairing: {
			baseUrl,
			sessionId,
			pairedAt: at,
			...(isServices && { pairedAtBy: 'service' }),
			...(keepEvents && { keepsEvents: true }),
			...(state.attempt && { tokenHash: state.attempt.tokenHash }),
		},
		assignedWorkflow: assignsWorkflow ? { workflowId, source: 'pairing', at } : state.assignedWorkflow,
		confirmedOrigins: confirmsOrigin ? withOrigin(state.confirmedOrigins, confirmsOrigin) : state.confirmedOrigins,
	};
	return withConnection(paired, saved);
}

function refusal(preview: PairPreview): AgentError {
	const problem = preview.problem as Failure | null;
	return problem ? asError(problem) : new AgentError('internal', 'The code was refused without a reason.');
}
