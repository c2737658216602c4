/** A credential of the settings that the service refuses while another one works: noticed, remembered and said by its name. Pure. */
import { type Failure, failure } from '../base/errors.ts';
import { formatAuthorization } from '../protocol/authorization.ts';
import type { Credentials } from '../settings/credentials.runner.ts';
import type { Settings } from '../settings/table.ts';
import { isEncryptedAtRest } from '../settings/value-schemas.ts';
import type { DeviceState } from '../state/device-state.ts';
import type { LinkState } from './link.ts';
import type { Registration, Supervision, SupervisorEvent } from './supervisor.ts';

/** The verdict of a registration that has just succeeded on the reusable credential, which is tried before the others. */
export function judgeReusable(state: LinkState): 'works' | 'refused' | null {
	if (state.name !== 'registering') return null;
	const index = state.credentials.findIndex(({ kind }) => kind === 'reusable');
	if (index < 0 || index > state.credentialIndex) return null;
	return index === state.credentialIndex ? 'works' : 'refused';
}

/** Of the next link, whose reusable credential is refused by this event while the current one is online; `null` for any other event. */
export function refusedBesideOnline(event: SupervisorEvent, { current, next }: Supervision): Registration | null {
	if (event.type !== 'link' || next?.generation !== event.generation || next.state.name !== 'registering') return null;
	const { credentials, credentialIndex, attempt } = next.state;
	const said = event.event;
	const isRefusal =
		said.type === 'registerFailed' && said.failure.code === 'credential-refused' && said.attempt === attempt;
	// A refusal by another service, which is only tried, is told as the reason why that one is not in force.
	const isHere = current?.state.name === 'online' && current.registration.baseUrl === next.registration.baseUrl;
	return isRefusal && isHere && credentials[credentialIndex]?.kind === 'reusable' ? next.registration : null;
}

/** The same state if nothing of this has changed. @param at ISO 8601. */
export function withJudged(
	state: DeviceState,
	judged: 'works' | 'refused',
	{ credentialId, baseUrl }: Registration,
	at: string,
): DeviceState {
	const before = state.refusedCredential;
	if (judged === 'works') return before === null ? state : { ...state, refusedCredential: null };
	if (before?.id === credentialId && before.baseUrl === baseUrl) return state;
	return { ...state, refusedCredential: { id: credentialId, baseUrl, at } };
}

/**
 * The state once the device is online: with the credential of the settings that has brought it online, in place of the one from
 * before. That one stays where it is still needed: another one was refused, is yet to be tried, or cannot be read.
 */
export function withWorked(
	state: DeviceState,
	{ id, reusable, unreadable }: Pick<Credentials, 'id' | 'reusable' | 'unreadable'>,
	{ credential: { apiKeyFile, basicFile } }: Pick<Settings, 'credential'>,
	{ credentialId, baseUrl }: Registration,
): DeviceState {
	const { workedCredential: before, refusedCredential: refused } = state;
	const isProven = reusable !== null && id === credentialId && refused?.id !== id;
	if (!isProven) {
		const isNeeded = unreadable !== undefined || reusable !== null;
		return before === null || (isNeeded && before.baseUrl === baseUrl) ? state : { ...state, workedCredential: null };
	}
	if (before?.id === id && before.baseUrl === baseUrl) return state;
	const worked = isEncryptedAtRest(apiKeyFile ?? basicFile)
		? null
		: { id, baseUrl, sent: formatAuthorization(reusable) };
	return worked === before ? state : { ...state, workedCredential: worked };
}

/** Whether the settings name a credential that may register any number of times. */
export const namesKey = ({ credential: { apiKeyFile, basicFile } }: Pick<Settings, 'credential'>) =>
	apiKeyFile !== null || basicFile !== null;

/** Where the one that has worked last may be used while the settings have another one in its place, or none that can be read. */
export function earlierAt(
	{ workedCredential: worked }: Pick<DeviceState, 'workedCredential'>,
	settings: Pick<Settings, 'credential'>,
	id: string,
): string | null {
	return worked !== null && worked.id !== id && namesKey(settings) ? worked.baseUrl : null;
}

/** Whether this event refuses the credential from before. */
export function refusesEarlier(event: SupervisorEvent, { current, next }: Supervision): boolean {
	if (event.type !== 'link' || event.event.type !== 'registerFailed') return false;
	const { failure: said, attempt } = event.event;
	const state = [current, next].find((link) => link?.generation === event.generation)?.state;
	if (state?.name !== 'registering' || state.attempt !== attempt || said.code !== 'credential-refused') return false;
	return state.credentials[state.credentialIndex]?.kind === 'earlier';
}

/** The warning of it; `null` for a credential that works, was replaced, or is not known yet. @param id of the settings' credential. */
export function tellRefused(
	{ refusedCredential: refused, workedCredential }: Pick<DeviceState, 'refusedCredential' | 'workedCredential'>,
	{ baseUrl, credential: { apiKeyFile, basicFile } }: Pick<Settings, 'baseUrl' | 'credential'>,
	id: string,
): Failure | null {
	const path = apiKeyFile ?? basicFile;
	if (refused === null || refused.id !== id || refused.baseUrl !== baseUrl || path === null) return null;
	const { host } = new URL(refused.baseUrl);
	const named = apiKeyFile === null ? 'user and password' : 'API key';
	const meanwhile =
		workedCredential !== null && workedCredential.id !== id && workedCredential.baseUrl === baseUrl
			? 'until there is another one, this device registers with the earlier one'
			: 'when the Connection ends, this device cannot register again';
	const message = `${host} has refused the ${named} in ${path} since ${refused.at}; ${meanwhile}.`;
	const remedy = `Put a valid credential into ${path}; a changed file is tried at once. Or have the operator allow this one.`;
	return failure('credential-refused', message, { remedy, params: { host, path, since: refused.at } });
}
