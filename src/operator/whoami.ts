/**
 * `idv whoami`: what the credential is, and what it may do. A service has no endpoint for that question, so each endpoint
 * is asked with a request that lacks what it requires: it says no for the credential or for the request, and creates
 * nothing either way. A Short Token is never shown to the service: a look could spend it.
 */
import { EXIT } from '../base/errors.ts';
import { printJson, printLine, printTable, untilTime } from '../cli/output.ts';
import type { ServiceClient } from '../connection/service-client.edge.ts';
import type { Authorization } from '../protocol/authorization.ts';
import { ENDPOINTS } from '../protocol/endpoints.ts';
import { cleanText, readErrorDetail } from '../protocol/problem.ts';
import { readTokenLife } from '../protocol/token-life.ts';
import { sendOnce, withClient } from './service-call.ts';
import { resolveTarget, type Target, type TargetFlags } from './service-target.ts';

/** The answer of an endpoint: `null` where it can't be known. */
interface Verdict {
	readonly may: boolean | null;
	readonly detail: string;
	readonly status: number;
}

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

export async function whoAmI(flags: TargetFlags & { readonly offline?: boolean | undefined }): Promise<void> {
	const target = await resolveTarget(flags, process.env);
	const { authorization, baseUrl, credentialFrom } = target;
	const isAsked = !flags.offline && authorization.scheme !== 'Token';
	const verdicts = isAsked ? await askAll(target) : null;
	const accepted = verdicts === null ? null : isAccepted(Object.values(verdicts));
	if (accepted === false) process.exitCode = EXIT.refused;

	const said = readClaims(authorization);
	if (flags.json) {
		const entries = Object.keys(ASKED).map((name) => [name, verdicts?.[name as Asked].may ?? null]);
		const may = Object.fromEntries(entries);
		return printJson({ baseUrl, scheme: authorization.scheme, credentialFrom, ...said, accepted, may });
	}
	printTable([
		['Service', baseUrl],
		['Credential', `${authorization.scheme}: ${SCHEMES[authorization.scheme]}, from ${credentialFrom}`],
		...(said.username ? [['User', said.username]] : []),
		...(said.deviceId ? [['Device', said.deviceId]] : []),
		...(said.workflowId ? [['Workflow', said.workflowId]] : []),
		...(said.permissions ? [['Permissions', said.permissions.join(', ')]] : []),
		...(said.expiresAt ? [['Expires', untilTime(said.expiresAt)]] : []),
		['Accepted', verdicts === null ? 'not asked' : describeAcceptance(accepted)],
	]);
	if (verdicts === null || accepted === false) return;
	printLine();
	printTable(
		Object.entries(ASKED).map(([name, { words }]) => {
			const { may, detail } = verdicts[name as Asked];
			return [`May ${words}`, may === null ? `unknown (${detail})` : may ? 'yes' : `no: ${detail}`];
		}),
	);
}

function isAccepted(verdicts: readonly Verdict[]): boolean | null {
	if (verdicts.some(({ status }) => status === 401)) return false;
	return verdicts.some(({ may }) => may !== null) ? true : null;
}

function describeAcceptance(accepted: boolean | null): string {
	if (accepted === null) return 'unknown';
	return accepted ? 'yes' : 'no: the service refuses this credential';
}

async function askAll(target: Target): Promise<Record<Asked, Verdict>> {
	return withClient(target, async (client) => {
		const entries = Object.entries(ASKED).map(async ([name, { path }]) => [name, await ask(client, target, path)]);
		return Object.fromEntries(await Promise.all(entries)) as Record<Asked, Verdict>;
	});
}

async function ask(client: ServiceClient, target: Target, path: string): Promise<Verdict> {
	const answer = await sendOnce(client, target, { method: 'POST', path, body: {} }, { needs: 'another credential' });
	const { status } = answer;
	const detail = readErrorDetail(new TextDecoder().decode(answer.body)) || `status ${status}`;
	if (status === 401 || status === 403) return { may: false, detail, status };
	// For its form a request is refused only after the credential was found good enough.
	if (status === 400 || status === 422) return { may: true, detail, status };
	return { may: null, detail: `the service answered ${status}`, status };
}

interface Claims {
	readonly username?: string;
	readonly deviceId?: string;
	readonly workflowId?: string;
	readonly permissions?: readonly string[];
	readonly expiresAt?: string;
}

/** The claims of a credential; its signature is not checked. */
function readClaims(authorization: Authorization): Claims {
	if (authorization.scheme === 'Basic') return { username: authorization.username };
	const life = readTokenLife(authorization.credential);
	if (!life) return {};
	const payload = authorization.credential.split('.')[1] ?? '';
	const claims = JSON.parse(Buffer.from(payload, 'base64url').toString()) as Record<string, unknown>;
	const text = (name: string) => (typeof claims[name] === 'string' ? cleanText(claims[name], 128) : undefined);
	const [username, deviceId, workflowId] = [text('sub'), text('deviceId'), text('workflowId')];
	const held = claims['permissions'];
	return {
		...(username && !deviceId ? { username } : {}),
		...(deviceId ? { deviceId } : {}),
		...(workflowId ? { workflowId } : {}),
		...(Array.isArray(held) ? { permissions: held.map((one) => cleanText(String(one), 128)) } : {}),
		expiresAt: new Date(life.expiresAtSeconds * 1000).toISOString(),
	};
}
