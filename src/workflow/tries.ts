/** Which part of a change is tried first, beside what works: the credential, what the service knows of the device, the way out or another address. Pure. */
import { connectionOf, failureOf } from '../connection/link.ts';
import { isOnlineBut } from '../connection/room.ts';
import {
	type DesiredRegistration,
	isSameLink,
	isSameWay,
	type Supervision,
	servesRegistration,
} from '../connection/supervisor.ts';
import { assessAttempt, NO_ATTEMPT, type PlanAttempt, wayInTurn, wayRefused } from '../fleet/attempt.ts';
import type { CredentialFacts, DesiredInputs, RegistrationInputs } from './desired-inputs.ts';
import type { DesiredWorkflow } from './precedence.ts';

interface Trial {
	readonly demanded: DesiredRegistration | null;
	readonly way: PlanAttempt;
	readonly isAlone: boolean;
}

/** A new credential goes first, with all else as it is: nothing else that was changed with it keeps it from its effect. */
export function tryCredential(
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
 * and has nothing to do with what may come of the try. A workflow is of its service, and stays where another one is tried. The same
 * goes for a workflow that has failed once: all else that came with it is good without it.
 */
export function tryRequest(
	{ supervision, before, resolved }: DesiredInputs,
	demanded: DesiredRegistration | null,
): { readonly request: string; readonly here: Trial | null } {
	const { request } = before;
	const { current, next } = supervision;
	if (!current || !demanded || next?.reason === 'pairing') return { request, here: null };
	const { registration: made } = current;
	const isElsewhere = demanded.baseUrl !== made.baseUrl;
	const isHere = !isElsewhere && isSameWay(made, demanded);
	if (isHere && demanded.request.workflowId === made.request.workflowId) return { request, here: null };
	const { credentialId } = made;
	const hasReusableCredential = demanded.hasReusableCredential && credentialId === demanded.credentialId;
	const asked = { ...demanded.request, ...((isElsewhere || isHere) && { workflowId: made.request.workflowId }) };
	const asNow = { ...demanded, ...made, request: asked, hasReusableCredential };
	const isUnderWay = next !== null && isSameLink(next.registration, asNow);
	const isAway = current.state.name !== 'online';
	const hasFailed = isUnderWay && failureOf(next.state) !== null && !(isAway && isOnlineBut(supervision));
	// It may have ended what the device was online by, its channel or its Connection: then it is what is left.
	const isLeft = !isHere && !isElsewhere && isUnderWay && !hasFailed && connectionOf(next.state) !== null;
	if (isAway && !isLeft) return { request, here: null };
	const isRefused = next !== null && isSameLink(next.registration, demanded) && failureOf(next.state) !== null;
	const isTried = isElsewhere ? demanded.baseUrl === resolved.settings.baseUrl : !isHere || isUnderWay || isRefused;
	const key = JSON.stringify(asked);
	if (!isTried || key === request || isSameLink(made, asNow)) return { request, here: null };
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
export function tryWay(
	inputs: DesiredInputs,
	demanded: DesiredRegistration | null,
	chosen: Pick<DesiredWorkflow, 'workflowId' | 'source'> | null,
): Trial {
	const { supervision, before, resolved, nowMs, random } = inputs;
	const { current, next } = supervision;
	const isElsewhere = demanded !== null && demanded.baseUrl !== current?.registration.baseUrl;
	if (isElsewhere && isRescued(supervision))
		return { demanded: { ...demanded, ...next?.registration }, way: before.way, isAlone: true };
	// A code that is brought is refused by its own rules.
	const isSetting = demanded?.baseUrl === resolved.settings.baseUrl && next?.reason !== 'pairing';
	const differs = current && demanded && (isElsewhere ? isSetting : !isSameWay(current.registration, demanded));
	if (!differs) return { demanded, way: NO_ATTEMPT, isAlone: false };
	const isOnline = isOnlineBut(supervision);
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
		explain: (cause, isSpent) => (isOnline || isElsewhere ? wayRefused(cause, limitMs, isSpent) : wayInTurn(cause)),
		nowMs,
		random,
	});
	const { request, credentialId } = current.registration;
	const isSame = credentialId === demanded.credentialId;
	const hasReusableCredential = demanded.hasReusableCredential && isSame;
	// What else is set is for the service that was refused; who names a workflow in another way means the one that the device is at.
	const isOfSettings = chosen === null || ['flag', 'environment', 'file'].includes(chosen.source);
	const here = isOfSettings ? request : { ...request, workflowId: chosen.workflowId };
	const kept = isElsewhere
		? { ...current.registration, request: here, hasReusableCredential }
		: { way: current.registration.way };
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
