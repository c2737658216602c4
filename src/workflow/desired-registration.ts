/**
 * Which registration the device should have now, and when to ask again: the one place that decides it, from settings, state,
 * identity, credentials, fleet plan, leases and time. Pure; `connection/supervisor.ts` derives the links from the answer.
 */
import { type Failure, failure } from '../base/errors.ts';
import { failureOf } from '../connection/link.ts';
import { earlierAt } from '../connection/refused-credential.ts';
import {
	type DesiredRegistration,
	isSameLink,
	isSameWay,
	type Supervision,
	servesRegistration,
} from '../connection/supervisor.ts';
import {
	assessAttempt,
	isHeldBack,
	keepLastGood,
	NO_ATTEMPT,
	type PlanAttempt,
	planMoveKey,
	planRefused,
	wayInTurn,
	wayRefused,
} from '../fleet/attempt.ts';
import { applyDue, confirmed, nextDueMs, type PlanTarget, planTarget } from '../fleet/record.ts';
import type { CompleteIdentity } from '../identity/identity.ts';
import type { ResolvedSettings } from '../settings/resolve.ts';
import type { Settings } from '../settings/table.ts';
import type { DeviceState, SavedConnection } from '../state/device-state.ts';
import type { PlanRecord } from '../state/plan-record.ts';
import { agedChange, type Change, deferWorkflow } from './deferral.ts';
import type { Leases } from './leases.ts';
import { chosenCadence, chosenWorkflow, fixedWorkflow } from './precedence.ts';

/** What is known of the credentials without holding them. */
export interface CredentialFacts {
	/** Names the credential; empty when there is none. */
	readonly id: string;
	/** Whether it may register any number of times. */
	readonly isReusable: boolean;
	/** Whether it is a Connection that an operator made for this device. */
	readonly isProvisioned: boolean;
	/** Why the one that the settings name cannot be used. */
	readonly unreadable?: Failure | undefined;
}

/** What the device is configured to be and to do. */
export interface RegistrationInputs {
	readonly resolved: ResolvedSettings;
	readonly state: DeviceState;
	readonly identity: CompleteIdentity;
	readonly credentials: CredentialFacts;
	/** The word of the fleet plan, if there is one. */
	readonly plan: PlanTarget | null;
	/** Names the way that the settings want; left out before the device was online by any. */
	readonly way?: string | undefined;
}

/** Changes that take their time: what an answer hands to the next question. */
export interface Progress {
	/** The workflow change that has not been made yet. */
	readonly change: Change | null;
	/** The device's try to do as the plan says, under way or given up for now. */
	readonly attempt: PlanAttempt;
	/** The same for the way out as the settings have it. */
	readonly way: PlanAttempt;
	/** Names the credential that has failed alone: from then on it is tried with all else that is demanded. */
	readonly credential: string;
	/** The same for what does not bear on the way out; empty while that has not failed. */
	readonly request: string;
}

export const NO_PROGRESS: Progress = {
	change: null,
	attempt: NO_ATTEMPT,
	way: NO_ATTEMPT,
	credential: '',
	request: '',
};

export interface DesiredInputs extends Omit<RegistrationInputs, 'plan'> {
	readonly plan: PlanRecord | null;
	readonly leases: Leases;
	readonly supervision: Supervision;
	/** Of the last answer. */
	readonly before: Progress;
	/** Monotonic. */
	readonly nowMs: number;
	/** The device's clock, milliseconds since 1970. */
	readonly wallMs: number;
	readonly random: () => number;
}

export interface DesiredOutcome {
	/** `null` without a blocker means unpaired: nothing names a service, or there is nothing to register with. */
	readonly desired: DesiredRegistration | null;
	/** Why nothing can be desired. */
	readonly blocker: Failure | null;
	/** The warning that the settings do not name something any more, while the device stays with the Connection that it has. */
	readonly missing: Failure | null;
	/** Monotonic, always ahead: when to ask again if no input changes before. Asking earlier changes nothing. */
	readonly reevaluateAtMs: number | null;
	readonly progress: Progress;
	/** The record with what has come due, and with the revision that the device follows; the same one if nothing changed. */
	readonly plan: PlanRecord | null;
	/** Whether an operator's Connection is seen for the first time: it belongs to the desired registration. */
	readonly adoptsProvisioned: boolean;
}

/** What is desired now. Ask again at `reevaluateAtMs`, when an input changes, and after every step of the supervision. */
export function desiredRegistration(inputs: DesiredInputs): DesiredOutcome {
	const { resolved, supervision, before, nowMs, wallMs, random } = inputs;
	const limitMs = resolved.settings.fleet.changeLimitSeconds * 1000;
	const { maxDeferSeconds } = resolved.settings.workflow;
	const due = inputs.plan && applyDue(inputs.plan, wallMs);
	// While the device only stays where it is, no plan moves it.
	const plan = keptWithoutSettings(resolved.settings, inputs.state) ? null : planTarget(due, wallMs);
	const whole = demandedRegistration({ ...inputs, plan });
	const { blocker, missing } = whole;
	const { credential, alone } = tryCredential(inputs, whole.demanded);
	const context = { ...inputs, last: inputs.state.connections[0], before: before.change, maxDeferSeconds };
	const first = deferWorkflow(whole.demanded, context);
	const { request, here } = alone ? { request: before.request, here: null } : tryRequest(inputs, first.desired);
	const { way, demanded, isAlone } = alone ?? here ?? tryWay(inputs, whole.demanded);
	const planDueMs = due && nextDueMs(due, wallMs);
	const wayMs = way.name !== 'none' && way.untilMs > nowMs ? way.untilMs : null;
	const moments = [wayMs, planDueMs === null ? null : nowMs + planDueMs - wallMs];
	if (isAlone) {
		// A try of another service keeps the age of a change at this one.
		const isHere = whole.demanded?.baseUrl === supervision.current?.registration.baseUrl;
		const change = isHere ? first.change : agedChange(before.change, inputs.leases, maxDeferSeconds, nowMs);
		const reevaluateAtMs = earliest([...moments, change?.untilMs ?? null]);
		const progress = { ...before, way, credential, request, change };
		return { desired: demanded, blocker, missing, reevaluateAtMs, progress, plan: due, adoptsProvisioned: false };
	}

	const key = planMoveKey(demanded, supervision, plan, fixedWorkflow(resolved, plan)?.source === 'plan');
	const allowed = isHeldBack(before.attempt, key, nowMs) ? keepLastGood(demanded, supervision) : demanded;
	const deferral = deferWorkflow(allowed, context);
	const waitsUntilMs = deferral.change?.untilMs ?? null;
	const attempt = assessAttempt(before.attempt, {
		key,
		supervision,
		isDeferred: waitsUntilMs !== null,
		explain: (cause) => planRefused(cause, { demanded, supervision, revision: plan?.revision ?? 0, limitMs }),
		limitMs,
		nowMs,
		random,
	});
	const isRefused = attempt.name === 'refused';
	const desired = isRefused ? keepLastGood(deferral.desired, supervision) : deferral.desired;

	const attemptMs = attempt.name === 'none' || waitsUntilMs !== null ? null : attempt.untilMs;
	return {
		desired,
		blocker,
		missing,
		reevaluateAtMs: earliest([...moments, waitsUntilMs, attemptMs]),
		// A move that was given up for now begins again with its next try.
		progress: {
			attempt,
			way,
			credential,
			request,
			change: isRefused && waitsUntilMs === null ? null : deferral.change,
		},
		plan: confirmFollowed(due, whole.demanded, supervision, wallMs),
		adoptsProvisioned: desired !== null && isUnseen(inputs, desired),
	};
}

function earliest(moments: readonly (number | null)[]): number | null {
	const known = moments.filter((ms) => ms !== null);
	return known.length > 0 ? Math.min(...known) : null;
}

interface Trial {
	readonly demanded: DesiredRegistration | null;
	readonly way: PlanAttempt;
	readonly isAlone: boolean;
}

/** A new credential goes first, with all else as it is: nothing else that was changed with it keeps it from its effect. */
function tryCredential(
	{ supervision: { current, next }, before }: DesiredInputs,
	demanded: DesiredRegistration | null,
): { readonly credential: string; readonly alone: Trial | null } {
	const { credential } = before;
	const known = [credential, current?.registration.credentialId, ''];
	if (!current || current.registration.baseUrl !== demanded?.baseUrl || known.includes(demanded.credentialId))
		return { credential, alone: null };
	const { request, way } = current.registration;
	const { hasReusableCredential: isAlone } = demanded;
	// The Connection of an operator is for the workflow that is demanded with it.
	const asNow = { ...demanded, way, ...(isAlone && { request }) };
	const isUnderWay = (asked: DesiredRegistration) => next !== null && isSameLink(next.registration, asked);
	const hasFailed = next !== null && failureOf(next.state) !== null;
	if (isUnderWay(asNow) && hasFailed) return { credential: demanded.credentialId, alone: null };
	// With all else it may be on its way already, as after a start or with a code.
	if (isSameLink(asNow, demanded) || (isUnderWay(demanded) && !hasFailed)) return { credential, alone: null };
	return { credential, alone: { demanded: asNow, way: NO_ATTEMPT, isAlone } };
}

/**
 * Before another address or way out is tried, the link that there is takes what does not bear on it: its service knows the device by it,
 * and has nothing to do with what may come of the try. A workflow is of its service, and stays where another one is tried.
 */
function tryRequest(
	{ supervision: { current, next }, before, resolved }: DesiredInputs,
	demanded: DesiredRegistration | null,
): { readonly request: string; readonly here: Trial | null } {
	const { request } = before;
	if (current?.state.name !== 'online' || !demanded || next?.reason === 'pairing') return { request, here: null };
	const { registration: made } = current;
	const isElsewhere = demanded.baseUrl !== made.baseUrl;
	const isTried = isElsewhere ? demanded.baseUrl === resolved.settings.baseUrl : !isSameWay(made, demanded);
	if (!isTried) return { request, here: null };
	const { credentialId } = made;
	const hasReusableCredential = demanded.hasReusableCredential && credentialId === demanded.credentialId;
	const asked = { ...demanded.request, ...(isElsewhere && { workflowId: made.request.workflowId }) };
	const asNow = { ...demanded, ...made, request: asked, hasReusableCredential };
	const key = JSON.stringify(asked);
	if (key === request || isSameLink(made, asNow)) return { request, here: null };
	const hasFailed = next !== null && isSameLink(next.registration, asNow) && failureOf(next.state) !== null;
	return hasFailed
		? { request: key, here: null }
		: { request, here: { demanded: asNow, way: before.way, isAlone: true } };
}

/**
 * The way out as the settings have it is tried alone, beside the link that there is: what else is demanded waits for it, at
 * most as long as the try lasts. A device that is offline tries all together by the new way and by the old one in turn, and refuses
 * neither: only beside what works a change is known not to. An address
 * of the settings at which it does not come online in time is refused like a way out, with all that is for it.
 */
function tryWay(inputs: DesiredInputs, demanded: DesiredRegistration | null): Trial {
	const { supervision, before, resolved, nowMs, random } = inputs;
	const { current, next } = supervision;
	const isElsewhere = demanded !== null && demanded.baseUrl !== current?.registration.baseUrl;
	if (isElsewhere && isRescued(supervision))
		return { demanded: { ...demanded, ...next?.registration }, way: before.way, isAlone: true };
	// A code that is brought is refused by its own rules.
	const isSetting = demanded?.baseUrl === resolved.settings.baseUrl && next?.reason !== 'pairing';
	const differs = current && demanded && (isElsewhere ? isSetting : !isSameWay(current.registration, demanded));
	if (!differs) return { demanded, way: NO_ATTEMPT, isAlone: false };
	const isOnline = current.state.name === 'online';
	const limitMs = resolved.settings.fleet.changeLimitSeconds * 1000;
	// What was refused beside a link that worked may be what works now.
	const isOver = before.way.name === 'refused' && !before.way.isTurn;
	const way = assessAttempt(isOver && !isOnline ? NO_ATTEMPT : before.way, {
		key: isElsewhere ? addressKey(inputs) : (demanded.way ?? null),
		supervision,
		isDeferred: false,
		limitMs,
		// Another service is tried by a link of its own.
		offline: isElsewhere || servesRegistration(current.registration, demanded) ? 'waits' : 'turns',
		explain: (cause) => (isOnline || isElsewhere ? wayRefused(cause, limitMs) : wayInTurn(cause)),
		nowMs,
		random,
	});
	const { request, credentialId } = current.registration;
	const isSame = credentialId === demanded.credentialId;
	const hasReusableCredential = demanded.hasReusableCredential && isSame;
	// What else is set is for the service that was refused.
	const kept = isElsewhere ? { ...current.registration, hasReusableCredential } : { way: current.registration.way };
	if (way.name === 'refused') return { demanded: { ...demanded, ...kept }, way, isAlone: false };
	if (!isOnline || isElsewhere) return { demanded, way, isAlone: false };
	return { demanded: { ...demanded, request, credentialId, hasReusableCredential }, way, isAlone: true };
}

/** A code of the service that the device is still at goes before another address: what it brought may be all that the device has. */
export function isRescued({ current, next }: Supervision): boolean {
	if (!current || next?.reason !== 'pairing' || next.state.name === 'blocked') return false;
	const isNeeded = current.state.name !== 'online' || failureOf(next.state) === null;
	return isNeeded && next.registration.baseUrl === current.registration.baseUrl;
}

/** Names the try of another service: with another key or workflow for it, it is another try. */
export const addressKey = ({
	resolved,
	credentials,
	way,
}: Pick<RegistrationInputs, 'resolved' | 'way'> & { readonly credentials: Pick<CredentialFacts, 'id'> }) =>
	[resolved.settings.baseUrl, way, credentials.id, resolved.settings.workflowId].join(' ');

/** The registration that all sources together demand, before leases and failures; or why they can demand nothing. */
function demandedRegistration(inputs: RegistrationInputs): {
	readonly demanded: DesiredRegistration | null;
	readonly blocker: Failure | null;
	readonly missing: Failure | null;
} {
	const { resolved, state, identity, credentials, plan } = inputs;
	const nothing = { demanded: null, blocker: null, missing: null };
	const baseUrl = serviceOf(resolved.settings, state);
	if (baseUrl === null || !hasCredential(inputs)) return { ...nothing, blocker: credentials.unreadable ?? null };
	// In the name of another device nothing is sent at all.
	if (identity.cloned) {
		const [warning] = identity.warnings;
		const blocker = warning ?? failure('identity-changed', 'This is not the device that was paired.');
		return { ...nothing, blocker };
	}
	// A file that is absent takes no device away from its service: only a person does, or another address.
	const keeps = keptWithoutSettings(resolved.settings, state);
	if (keeps) {
		const { request, credentialId } = keeps.kept;
		const { way } = inputs;
		const demanded = { baseUrl, request, credentialId, hasReusableCredential: false, selfRegistration: false, way };
		return { ...nothing, demanded, missing: keeps.missing };
	}
	const workflow = chosenWorkflow(resolved, state, plan);
	if (workflow) {
		const isMoved = workflow.source === 'service message';
		return { ...nothing, demanded: { ...registrationFor(inputs, baseUrl, workflow.workflowId), isMoved } };
	}
	const kept = state.connections.find((saved) => saved.baseUrl === baseUrl);
	if (!kept) return { ...nothing, blocker: failure('workflow-missing', 'No workflow is set for this device.') };
	const demanded = registrationFor(inputs, baseUrl, kept.request.workflowId);
	return { ...nothing, demanded, missing: notNamed('workflow', baseUrl) };
}

function notNamed(what: 'service' | 'workflow', baseUrl: string): Failure {
	const { host } = new URL(baseUrl);
	const message = `The settings name no ${what} any more; this device stays with its Connection to ${host}.`;
	const back = 'Put the settings file back, or';
	const remedy = {
		service: `${back} take this device away: idv-agent unpair, or pair --replace.`,
		workflow: `${back} set the workflow by hand: idv-agent workflow set ID.`,
	};
	return failure('settings-unreadable', message, { remedy: remedy[what], params: { host } });
}

/** The record with the revision and the move that the device is online with. */
function confirmFollowed(
	record: PlanRecord | null,
	demanded: DesiredRegistration | null,
	{ current }: Supervision,
	wallMs: number,
): PlanRecord | null {
	if (!record || !demanded || current?.state.name !== 'online') return record;
	return servesRegistration(current.registration, demanded) ? confirmed(record, wallMs) : record;
}

/**
 * An operator who corrects a wrong `baseUrl` means the same file: for another service it is unseen again. While the device
 * only keeps an earlier Connection, the file is of no registration.
 */
function isUnseen({ state, credentials }: DesiredInputs, { baseUrl, credentialId }: DesiredRegistration): boolean {
	const { id, isProvisioned } = credentials;
	return (
		isProvisioned &&
		credentialId === id &&
		!state.connections.some((saved) => saved.credentialId === id && saved.baseUrl === baseUrl)
	);
}

/** The service this device belongs to, or would; `null` before anything names one. */
export function serviceOf(
	settings: Pick<Settings, 'baseUrl'>,
	{ pairing, connections }: Pick<DeviceState, 'pairing' | 'connections'>,
): string | null {
	return settings.baseUrl ?? pairing?.baseUrl ?? connections[0]?.baseUrl ?? null;
}

/** The Connection by which the device stays although the settings do not name its service any more, and what is told of that. */
export function keptWithoutSettings(
	settings: Pick<Settings, 'baseUrl'>,
	{ pairing, connections: [kept] }: Pick<DeviceState, 'pairing' | 'connections'>,
): { readonly kept: SavedConnection; readonly missing: Failure } | null {
	if (!kept || settings.baseUrl !== null || pairing !== null) return null;
	return { kept, missing: notNamed('service', kept.baseUrl) };
}

/** Whether the device has anything to register or connect with. */
export function hasCredential({ state, credentials }: Pick<RegistrationInputs, 'state' | 'credentials'>): boolean {
	return credentials.id !== '' || state.connections.length > 0;
}

export function registrationFor(inputs: RegistrationInputs, baseUrl: string, workflowId: string): DesiredRegistration {
	const { resolved, plan, identity, credentials, way } = inputs;
	const { deviceId, serial, macAddress } = identity;
	const { deviceType, credential } = resolved.settings;
	const earlier = earlierAt(inputs.state, resolved.settings, credentials.id);
	return {
		baseUrl,
		request: {
			deviceId: deviceId.value,
			workflowId,
			...(serial.value === null ? {} : { serial: serial.value }),
			...(macAddress.value === null ? {} : { macAddress: macAddress.value }),
			deviceType,
			heartbeatCadence: chosenCadence(resolved, plan),
		},
		credentialId: credentials.id,
		hasReusableCredential: credentials.isReusable,
		selfRegistration: credential.selfRegistration,
		...(way !== undefined && { way }),
		...(earlier === baseUrl && { earlierAt: baseUrl }),
	};
}
