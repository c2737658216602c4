/** A credential of the settings that the service refuses while another one works: noticed, remembered and said by its name. Pure. */
import { type Failure, failure } from '../base/errors.ts';
import type { Settings } from '../settings/table.ts';
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

/** The warning of it; `null` for a credential that works, was replaced, or is not known yet. @param id of the settings' credential. */
export function tellRefused(
	{ refusedCredential: refused }: Pick<DeviceState, 'refusedCredential'>,
	{ baseUrl, credential: { apiKeyFile, basicFile } }: Pick<Settings, 'baseUrl' | 'credential'>,
	id: string,
): Failure | null {
	const path = apiKeyFile ?? basicFile;
	if (refused === null || refused.id !== id || refused.baseUrl !== baseUrl || path === null) return null;
	const { host } = new URL(refused.baseUrl);
	const named = apiKeyFile === null ? 'user and password' : 'API key';
	const message = `${host} has refused the ${named} in ${path} since ${refused.at}; when the Connection ends, this device cannot register again.`;
	const remedy = `Put a valid credential into ${path}; a changed file is tried at once. Or have the operator allow this one.`;
	return failure('credential-refused', message, { remedy, params: { host, path, since: refused.at } });
}
