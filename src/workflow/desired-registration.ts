/**
 * Which registration the device should have now, and when to ask again: the one place that decides it, from settings, state,
 * identity, credentials, fleet plan, leases and time. Pure; `connection/supervisor.ts` derives the links from the answer.
 */
import { type Failure, failure } from '../base/errors.ts';
import { earlierAt } from '../connection/refused-credential.ts';
import { type DesiredRegistration, type Supervision, servesRegistration } from '../connection/supervisor.ts';
import { assessAttempt, isHeldBack, keepLastGood, planMoveKey, planRefused } from '../fleet/attempt.ts';
import { applyDue, confirmed, nextDueMs, planTarget } from '../fleet/record.ts';
import type { Settings } from '../settings/table.ts';
import type { DeviceState, SavedConnection } from '../state/device-state.ts';
import type { PlanRecord } from '../state/plan-record.ts';
import { agedChange, deferWorkflow } from './deferral.ts';
import type { DesiredInputs, Progress, RegistrationInputs } from './desired-inputs.ts';
import { chosenCadence, chosenWorkflow, fixedWorkflow } from './precedence.ts';
import { tryCredential, tryRequest, tryWay } from './tries.ts';

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
	const chosen = chosenWorkflow(resolved, inputs.state, plan);
	const { way, demanded, isAlone } = alone ?? here ?? tryWay(inputs, whole.demanded, chosen);
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
	return { ...nothing, demanded, missing: notNamed('workflow', baseUrl, plan?.revision) };
}

/** @param revision of a plan that says nothing of it either. */
function notNamed(what: 'service' | 'workflow', baseUrl: string, revision?: number): Failure {
	const { host } = new URL(baseUrl);
	const who =
		revision === undefined ? 'The settings name' : `Revision ${revision} of the fleet plan and the settings name`;
	const message = `${who} no ${what} any more; this device stays with its Connection to ${host}.`;
	const back = revision === undefined ? 'Put the settings file back, or' : 'Name one in the plan or the settings, or';
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
		...(earlier !== null && { earlierAt: earlier }),
	};
}
