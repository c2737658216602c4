/**
 * Whether a device takes a pairing code without `--replace`, and whether a code of the same service would leave it where it
 * is: a rescue gives a refused device a new Connection and changes nothing else. Pure; spends nothing.
 */
import { dispositionOf, type ErrorCode, type Failure, failure } from '../base/errors.ts';
import { joinSentences } from '../base/sentences.ts';
import type { Status } from '../protocol/local-api.ts';
import type { PairingCode } from '../protocol/pairing-code.ts';
import { readClaims } from '../protocol/token-life.ts';
import type { DeviceState } from '../state/device-state.ts';

/**
 * `refused`: by the service, again and again. `refusedOnce`: not so often yet, which is enough for a person and not for a
 * scanner. `copy`: this disk was made for another machine.
 */
export type Standing = 'first' | 'refused' | 'refusedOnce' | 'copy' | 'paired';

/** So many refusals in a row open the way for a scanned code, even before the status asks for a person. */
export const REFUSALS_TO_RESCUE = 3;

/** Whether the device takes a code of its own service in place of the Connection that it has. */
export function takesRescue(standing: Standing, by: 'scanner' | 'person'): boolean {
	return standing === 'refused' || standing === 'copy' || (standing === 'refusedOnce' && by === 'person');
}

/**
 * The address that a code is measured by. Where the settings name a service and the device is still at another one, because it has not
 * been online there, codes of both are good; one that names neither is for where the device is, or with `replace` for where it goes.
 */
export function addressFor(
	{ baseUrl, replace }: { readonly baseUrl: string | null; readonly replace: boolean },
	configured: string | null,
	inForce: string | null,
): string | null {
	if (configured === null || inForce === null) return configured;
	const isOf = (address: string) => baseUrl === null || new URL(baseUrl).origin === new URL(address).origin;
	return isOf(inForce) && !(replace && isOf(configured)) ? inForce : configured;
}

/** Settings alone do not pair a device: one that never had a Connection may be given its first. */
export function pairedWith({ pairing, connections }: DeviceState): string | null {
	return pairing?.baseUrl ?? connections.at(-1)?.baseUrl ?? null;
}

/** A setting that now names another service must not take what one answered to the other. */
export function isOwn(baseUrl: string, configured: string | null): boolean {
	return configured === null || new URL(configured).origin === new URL(baseUrl).origin;
}

/** Whether a failed attempt was a refusal of this device by its service. */
export function isRefusal(code: ErrorCode): boolean {
	return dispositionOf(code) === 'reregister' || code === 'access-forbidden';
}

/** @param refusals in a row, since the device was online last. */
export function standingOf(
	{ state, problem, pairedAt }: Pick<Status, 'state' | 'problem' | 'pairedAt'>,
	refusals: number,
): Standing {
	if (state === 'unpaired') return pairedAt === null ? 'first' : 'paired';
	if (state === 'blocked' && problem?.code === 'identity-changed') return 'copy';
	if (state === 'online' || refusals === 0) return 'paired';
	return refusals >= REFUSALS_TO_RESCUE ? 'refused' : 'refusedOnce';
}

/** The code has brought the Connection that the device has: another one helps only where the service refuses that. */
export function sameCode({ state, problem, sentence }: Pick<Status, 'state' | 'problem' | 'sentence'>): Failure {
	const told = state === 'online' || !problem ? '' : problem.remedy;
	const isRefused = state !== 'online' && problem !== null && dispositionOf(problem.code as ErrorCode) === 'reregister';
	const now = told === '' ? sentence : `It is not online: ${problem?.message}`;
	const message = `This device is paired with this code already, and nothing was sent. ${now}`;
	return failure('already-paired', message, {
		remedy: isRefused ? told : joinSentences('No other code is needed', told),
		params: { reason: isRefused ? 'sameCodeRefused' : 'sameCode', pairingCode: 'used' },
	});
}

export interface RescueAsked {
	readonly code: Pick<PairingCode, 'baseUrl'>;
	/** The service that the code would be spent at. */
	readonly named: string;
	readonly pairedWith: string;
	/** The workflow after the code, and the one before. */
	readonly workflowId: string | null;
	readonly currentWorkflowId: string | null;
}

/** Why a code is not one for the service and the workflow that the device has; `null` when it is. */
export function whyNoRescue(asked: RescueAsked): Failure | null {
	const { code, named, pairedWith, workflowId, currentWorkflowId } = asked;
	const remedy =
		'Use a code of the same service and workflow, or pair --replace if this device is really meant to move.';
	// A code without a path is spent under the path that the settings give the service.
	const isSame =
		named === pairedWith && [null, pairedWith, new URL(pairedWith).origin].some((address) => address === code.baseUrl);
	if (!isSame) {
		const other = code.baseUrl ?? named;
		const params = { ownHost: new URL(pairedWith).host, host: new URL(other).host };
		return failure('already-paired', `This device is paired with ${pairedWith}; the code is for ${other}.`, {
			params,
			remedy,
		});
	}
	if (workflowId === currentWorkflowId) return null;
	return failure(
		'already-paired',
		`This device runs workflow ${currentWorkflowId}; the code would change it to ${workflowId}.`,
		{ params: { ownHost: new URL(pairedWith).host }, remedy },
	);
}

const TENANT_CLAIMS = ['tid', 'tenant', 'tenantId', 'tenant_id', 'organization', 'organizationId', 'org_id'];
const ISSUER_CLAIMS = ['iss', ...TENANT_CLAIMS];

/**
 * Whether a Connection says for which customer of a service it was issued. `iss` does not: a service with many customers issues
 * the codes of all of them under one name, so that another customer's code would pass for one of the device's own.
 */
export function namesTenant(token: string): boolean {
	const claims = readClaims(token);
	return TENANT_CLAIMS.some((name) => (claims[name] ?? '') !== '');
}

/** The claim by which two Connections belong to different issuers or tenants; `null` where none of both says so. */
export function differingIssuer(before: string, after: string): string | null {
	const [old, next] = [readClaims(before), readClaims(after)];
	return ISSUER_CLAIMS.find((name) => name in old && name in next && old[name] !== next[name]) ?? null;
}
