/**
 * Pairing, from a scanned text to a saved Connection: one at a time, refused before anything is spent, and saved before
 * anything is said to have succeeded. Opens no channel; the agent goes on from what the code has brought.
 */
import { domainToUnicode } from 'node:url';
import { type Clock, isoNow } from '../base/clock.edge.ts';
import { AgentError, asError, type Failure } from '../base/errors.ts';
import type { Log } from '../base/log.edge.ts';
import type { Connection } from '../connection/link.ts';
import type { Runtime } from '../connection/runtime.runner.ts';
import type { DesiredRegistration, Registration } from '../connection/supervisor.ts';
import type { EventsFeed } from '../events/feed.runner.ts';
import { keepSession } from '../events/notifications.ts';
import { type CompleteIdentity, pinIdentity } from '../identity/identity.ts';
import type { PairPreview, PairRequest, PairResult } from '../protocol/local-api.ts';
import { type DeviceState, type SavedConnection, withConnection } from '../state/device-state.ts';
import type { PersistedState } from '../state/persisted-state.runner.ts';
import type { StateStore } from '../state/store.edge.ts';
import { fixedWorkflow } from '../workflow/desired-registration.ts';
import type { PlanTarget } from '../workflow/precedence.ts';
import { redeemCode } from './redeem-code.runner.ts';
import { decidePairing, type PairingContext, type PairingDecision, type PairingPlan } from './rules.ts';

export interface PairingParts {
	readonly clock: Clock;
	readonly log: Log;
	readonly store: Pick<StateStore, 'probe' | 'save'>;
	readonly device: PersistedState;
	readonly events: EventsFeed;
	readonly runtime: () => Runtime;
	readonly plan: () => PlanTarget | null;
	readonly registerSecret: (secret: string) => void;
	readonly onClockSkew: (skewMs: number) => void;
	/** The identity by what the machine shows now, without regard to an earlier pairing. */
	readonly lookAgain: () => CompleteIdentity;
	readonly registrationFor: (identity: CompleteIdentity, baseUrl: string, workflowId: string) => DesiredRegistration;
	readonly toSaved: (registration: Registration, token: string) => SavedConnection;
}

/** What a code has brought. */
export interface Paired {
	readonly desired: DesiredRegistration;
	readonly connection: Connection;
}

export interface Pairing {
	/** What a code would do. Spends nothing, touches no network. */
	inspect(asked: PairRequest): PairPreview;
	/**
	 * Spends a code and saves what it brought.
	 * @param onPaired called before anything else can happen to the state.
	 * @throws AgentError why the code may not be used, or whether it was spent.
	 */
	pair(asked: PairRequest, onPaired: (paired: Paired) => void): Promise<PairingPlan>;
	/** The code that is being spent, or `null`; settles without rejecting. */
	readonly underWay: Promise<unknown> | null;
}

export function createPairing(parts: PairingParts): Pairing {
	const { device } = parts;

	function decide(asked: PairRequest): PairingDecision {
		const { resolved } = parts.runtime();
		return decidePairing(
			{ ...asked, replace: asked.replace ?? false },
			{
				settings: resolved.settings,
				configured: fixedWorkflow(resolved, parts.plan()),
				state: device.state,
				pairedWith: pairedWith(device.state),
			},
		);
	}

	async function spend(plan: PairingPlan): Promise<Paired> {
		const { clock, runtime } = parts;
		parts.registerSecret(plan.token);
		// Pairing anew is the moment to look at the machine anew: a replaced board is this device's from here on.
		const identity = parts.lookAgain();
		const desired = parts.registrationFor(identity, plan.baseUrl, plan.workflowId);
		const connection = await redeemCode(plan, {
			clock,
			client: () => runtime().client,
			tokenPointer: runtime().resolved.settings.service.tokenPointer,
			request: desired.request,
			store: parts.store,
			device,
			onClockSkew: parts.onClockSkew,
		});
		const saved = parts.toSaved(desired, connection.token);
		const at = isoNow(clock);
		device.keep((state) => withPairing(state, plan, identity, saved, at));
		// The code is spent: the device goes online with what it brought, whatever the disk says; the status tells.
		await parts.store.save(device.state).catch(() => {});
		const { workflowId, sessionId } = plan;
		parts.log.info('paired', { host: new URL(plan.baseUrl).host, workflowId, deviceId: identity.deviceId.value });
		if (sessionId !== null) keepSession(parts.events, sessionId, { workflowId, at });
		return { desired, connection };
	}

	const pairing: { -readonly [Name in keyof Pairing]: Pairing[Name] } = {
		underWay: null,
		inspect: (asked) => withUnicodeHost(decide(asked).preview),
		async pair(asked, onPaired) {
			if (pairing.underWay) throw new AgentError('pairing-under-way', 'Another pairing is under way on this device.');
			const { plan, preview } = decide(asked);
			if (!plan) throw refusal(preview);
			const spending = spend(plan).then(onPaired);
			pairing.underWay = spending.catch(() => {});
			try {
				await spending;
				return plan;
			} finally {
				pairing.underWay = null;
			}
		},
	};
	return pairing;
}

/**
 * One answer to everyone who brings the code that is being spent: what a keyboard scanner types reaches the agent and the
 * terminal that has the focus, and a refusal there would be untrue.
 */
export function shareAnswer(pair: (asked: PairRequest) => Promise<PairResult>): typeof pair {
	let underWay: { readonly code: string; readonly answer: Promise<PairResult> } | null = null;
	return (asked) => {
		const code = asked.code.trim();
		if (underWay) return underWay.code === code ? underWay.answer : pair(asked);
		const answer = pair(asked).finally(() => {
			underWay = null;
		});
		underWay = { code, answer };
		return answer;
	};
}

/** How long a pairing waits for the device to come online before it answers. */
const SETTLE_MS = 10_000;

/** Resolves when it is settled how the device stands after a pairing, at the latest after {@link SETTLE_MS}. */
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
		const look = () => {
			if (isSettled()) done();
		};
		const cancel = clock.schedule(SETTLE_MS, done);
		const unsubscribe = subscribe(look);
		look();
	});
}

/** A name in punycode tells the truth, but a person knows the other one. */
function withUnicodeHost(preview: PairPreview): PairPreview {
	if (preview.baseUrl === null) return preview;
	const { hostname } = new URL(preview.baseUrl);
	const hostInUnicode = domainToUnicode(hostname);
	return hostInUnicode === hostname || hostInUnicode === '' ? preview : { ...preview, hostInUnicode };
}

/** Settings alone are no pairing: a device that never had a Connection may be given its first. */
function pairedWith({ pairing, connections }: DeviceState): PairingContext['pairedWith'] {
	return pairing?.baseUrl ?? connections.at(-1)?.baseUrl ?? null;
}

function withPairing(
	state: DeviceState,
	{ baseUrl, workflowId, sessionId, assignsWorkflow, confirmsOrigin }: PairingPlan,
	identity: CompleteIdentity,
	saved: SavedConnection,
	at: string,
): DeviceState {
	const paired: DeviceState = {
		...state,
		attempt: null,
		identity: pinIdentity(identity, at),
		pairing: { baseUrl, sessionId, pairedAt: at },
		assignedWorkflow: assignsWorkflow ? { workflowId, source: 'pairing', at } : state.assignedWorkflow,
		confirmedOrigins: confirmsOrigin ? [...state.confirmedOrigins, confirmsOrigin].slice(-16) : state.confirmedOrigins,
	};
	return withConnection(paired, saved);
}

function refusal(preview: PairPreview): AgentError {
	const problem = preview.problem as Failure | null;
	return problem ? asError(problem) : new AgentError('internal', 'The code was refused without a reason.');
}
