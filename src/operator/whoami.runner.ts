/**
 * `idv whoami`: the kind of a credential and what it may do. A service has no endpoint for that question, so each endpoint is
 * asked with a request that no service can act on: its body is not JSON, and what it requires is missing. The refusal tells.
 * Where a service refuses such a request before it looks at the credential, a second one with a wrong credential shows it,
 * and the answer is "cannot be told". A Short Token is never shown to the service: a look could spend it.
 */
import { randomBytes } from 'node:crypto';
import { EXIT } from '../base/errors.ts';
import { type Shell, untilTime } from '../cli/output.runner.ts';
import type { ServiceClient } from '../connection/service-client.edge.ts';
import type { Authorization } from '../protocol/authorization.ts';
import { ENDPOINTS } from '../protocol/endpoints.ts';
import { cleanText, readErrorDetail } from '../protocol/problem.ts';
import { readClaims, readTokenLife } from '../protocol/token-life.ts';
import { sendOnce, withClient } from './service-call.runner.ts';
import { resolveTarget, type Target, type TargetFlags } from './service-target.runner.ts';

/** The answer of an endpoint. */
interface Verdict {
	/** `null` where it cannot be told. */
	readonly may: boolean | null;
	/** Whether the credential itself is good; `null` where it cannot be told. */
	readonly accepted: boolean | null;
	readonly reason: string;
}

/** The beginning of an object: whatever reads JSON refuses it, whatever it would do with an empty one. */
const NOT_JSON = '{"idv-whoami":';

const ASKED = {
	startSessions: { path: ENDPOINTS.sessionStart, words: 'start sessions' },
	connectDevices: { path: ENDPOINTS.deviceConnection, words: 'connect devices' },
	createApiKeys: { path: ENDPOINTS.apiKeys[0], words: 'create API keys' },
} as const;
type Asked = keyof typeof ASKED;

const SCHEMES: Readonly<Record<Authorization['scheme'], string>> = {
	Basic: 'user and password',
	Bearer: 'an access token',
	Token: 'a Short Token, which works once',
	Connection: 'the Connection of a device',
	ApiKey: 'an API key',
};

export async function whoAmI(shell: Shell, flags: TargetFlags & { readonly offline?: boolean | undefined }) {
	const target = await resolveTarget(shell, flags);
	const { authorization, baseUrl, credentialFrom } = target;
	const isAsked = !flags.offline && authorization.scheme !== 'Token';
	const verdicts = isAsked ? await askAll(target) : null;
	const found = Object.values(verdicts ?? {}).map((verdict) => verdict.accepted);
	const accepted = found.includes(false) ? false : found.includes(true) || null;
	if (accepted === false) shell.caller.exitCode = EXIT.refused;

	const told = accepted === null ? 'unknown' : accepted ? 'yes' : 'no: the service refuses this credential';
	const said = describeClaims(authorization);
	if (shell.isJson) {
		const entries = Object.keys(ASKED).map((name) => [name, verdicts?.[name as Asked].may ?? null]);
		const may = Object.fromEntries(entries);
		const reasons =
			verdicts && Object.fromEntries(Object.entries(verdicts).map(([name, { reason }]) => [name, reason]));
		return shell.json({ baseUrl, scheme: authorization.scheme, credentialFrom, ...said, accepted, may, reasons });
	}
	shell.table([
		['Service', baseUrl],
		['Credential', `${authorization.scheme}: ${SCHEMES[authorization.scheme]}, from ${credentialFrom}`],
		...(said.username ? [['User', said.username]] : []),
		...(said.deviceId ? [['Device', said.deviceId]] : []),
		...(said.workflowId ? [['Workflow', said.workflowId]] : []),
		...(said.permissions ? [['Permissions', said.permissions.join(', ')]] : []),
		...(said.expiresAt ? [['Expires', untilTime(said.expiresAt)]] : []),
		['Accepted', verdicts === null ? 'not asked' : told],
	]);
	if (verdicts === null || accepted === false) return;
	shell.line();
	shell.table(
		Object.entries(ASKED).map(([name, { words }]) => {
			const { may, reason } = verdicts[name as Asked];
			return [`May ${words}`, may === null ? `cannot be told: ${reason}` : may ? 'yes' : `no: ${reason}`];
		}),
	);
	shell.line('\nAsked with requests that cannot create anything: their bodies are not JSON.');
}

async function askAll(target: Target): Promise<Record<Asked, Verdict>> {
	return withClient(target, async (client) => {
		const entries = Object.entries(ASKED).map(async ([name, { path }]) => [name, await ask(client, target, path)]);
		return Object.fromEntries(await Promise.all(entries)) as Record<Asked, Verdict>;
	});
}

async function ask(client: ServiceClient, target: Target, path: string): Promise<Verdict> {
	const call = { method: 'POST', path, rawBody: NOT_JSON } as const;
	const send = (as: Target) => sendOnce(client, as, call, { needs: 'another credential' });
	const { status, body } = await send(target);
	const detail = readErrorDetail(new TextDecoder().decode(body)) || `status ${status}`;
	if (status === 401) return { may: false, accepted: false, reason: detail };
	const isForm = status === 400 || status === 422;
	if (!isForm && status !== 403) {
		const reason = status < 300 ? `the service took a request that is not JSON (status ${status})` : `status ${status}`;
		return { may: null, accepted: null, reason };
	}
	const control = await send({ ...target, authorization: wrongCredential(target.authorization) });
	const isCredentialFirst = control.status === 401 || (isForm && control.status === 403);
	const accepted = isCredentialFirst ? true : null;
	if (!isForm) return { may: false, accepted, reason: detail };
	return accepted
		? { may: true, accepted, reason: 'a wrong credential is refused there' }
		: { may: null, accepted, reason: 'the service checks the request before the credential' };
}

/** Of the same scheme, but of no user: a wrong password could lock a real one out. */
function wrongCredential({ scheme }: Authorization): Authorization {
	const credential = `idv-whoami-${randomBytes(8).toString('hex')}`;
	return scheme === 'Basic' ? { scheme, username: credential, password: credential } : { scheme, credential };
}

type Claims = Partial<Record<'username' | 'deviceId' | 'workflowId' | 'expiresAt', string | undefined>> & {
	readonly permissions?: readonly string[] | undefined;
};

function describeClaims(authorization: Authorization): Claims {
	if (authorization.scheme === 'Basic') return { username: authorization.username };
	const life = readTokenLife(authorization.credential);
	if (!life) return {};
	const claims = readClaims(authorization.credential);
	const text = (name: string) => (typeof claims[name] === 'string' && cleanText(claims[name], 128)) || undefined;
	const [username, deviceId, workflowId] = [text('sub'), text('deviceId'), text('workflowId')];
	const held = claims['permissions'];
	const permissions = Array.isArray(held) ? held.map((one) => cleanText(String(one), 128)) : undefined;
	const expiresAt = new Date(life.expiresAtSeconds * 1000).toISOString();
	return { username: deviceId ? undefined : username, deviceId, workflowId, permissions, expiresAt };
}
