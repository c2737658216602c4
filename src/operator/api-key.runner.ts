/** `idv apikey create`: makes an API key once, under the first of the known paths that the service has. */
import * as z from 'zod';
import { AgentError } from '../base/errors.ts';
import { onOneLine } from '../base/printed.ts';
import { type Shell, untilTime } from '../cli/output.runner.ts';
import { readStandardInput } from '../cli/prompts.runner.ts';
import { type ApiKeyRequest, apiKeyRequestSchema, KNOWN_PERMISSIONS, KNOWN_RESOURCES } from '../protocol/api-key.ts';
import { ENDPOINTS } from '../protocol/endpoints.ts';
import { parseJson } from '../protocol/json.ts';
import { asGivenCode, MAX_CODE_LENGTH, readPairingCode, SHORT_TOKEN_FORM } from '../protocol/pairing-code.ts';
import { didYouMean, nearestName } from '../settings/resolve.ts';
import { checkPlaceForSecret, saveSecret } from './secret-output.runner.ts';
import { isGood, type Purpose, refusal, sendOnce, unreadAnswer, withClient } from './service-call.runner.ts';
import { checkUrl, readFileOfUser, resolveTarget, type Target, type TargetFlags } from './service-target.runner.ts';

export interface ApiKeyFlags extends TargetFlags {
	readonly name: string;
	readonly permissions: string;
	readonly expires?: number | undefined;
	readonly out?: string | undefined;
	readonly codeFile?: string | undefined;
	readonly allowUnknownPermission?: boolean | undefined;
}

/** As much as an answer has, as long as the key itself is there: it is given only once. */
const keySchema = ({ name, permissions }: ApiKeyRequest) =>
	z.object({
		id: z.string().nullable().catch(null),
		token: z.string().min(1),
		name: z.string().catch(name),
		permissions: z.array(z.coerce.string()).catch(permissions),
		expiresAt: z.string().nullable().catch(null),
	});
type CreatedKey = z.infer<ReturnType<typeof keySchema>>;

const PURPOSE: Purpose = {
	creates: 'an API key',
	needs: 'Basic or Bearer, or an API key that holds all the permissions of the new one',
};
/** Said of a code, which the service may have spent. */
const PURPOSE_OF_CODE: Purpose = {
	creates: 'an API key and spent the code',
	needs: 'a new code whose issuer holds all the permissions of the key',
};

export async function createApiKey(shell: Shell, flags: ApiKeyFlags): Promise<void> {
	const request = checkRequest(flags);
	checkPlaceForSecret(shell, 'The API key', { out: flags.out });
	const target = await (flags.codeFile === undefined ? resolveTarget(shell, flags) : targetOfCode(shell, flags));
	const { made: key, path } = await saveSecret(
		shell,
		flags.out,
		() => create(target, request),
		({ token }) => `ApiKey ${token}\n`,
		({ name, id }) => onOneLine(`The API key ${name}${id === null ? '' : ` (id ${id})`}`),
	);
	const warnings = warningsOf(key);
	const { token, ...rest } = key;
	if (shell.isJson) return shell.json({ ...rest, ...(path === null ? { token } : { file: path }), warnings });
	shell.line(`Created API key ${onOneLine(key.name)}.\n`);
	shell.table([
		...(key.id === null ? [] : [['Id', key.id]]),
		path === null ? ['Key', token] : ['Saved', path],
		['Permissions', key.permissions.join(', ')],
		['Expires', key.expiresAt === null ? 'never' : untilTime(key.expiresAt)],
	]);
	if (path === null) shell.line('\nThe key is shown only now: store it with your other secrets.');
	for (const warning of warnings) shell.warn(onOneLine(warning));
}

/** @throws AgentError `usage` naming the flag. */
function checkRequest({ name, permissions, expires, allowUnknownPermission }: ApiKeyFlags): ApiKeyRequest {
	const listed = permissions
		.split(',')
		.map((permission) => permission.trim())
		.filter(Boolean);
	const read = apiKeyRequestSchema.safeParse({ name, permissions: [...new Set(listed)], ttl: expires });
	if (read.success) {
		if (!allowUnknownPermission) refuseNearMisses(read.data.permissions);
		return read.data;
	}
	const [issue] = read.error.issues;
	const [field, index] = issue?.path ?? [];
	const flag = field === 'ttl' ? '--expires' : `--${String(field)}`;
	const which = typeof index === 'number' ? ` ${listed[index]}` : '';
	throw new AgentError('usage', `${flag}${which} ${issue?.message}.`, { remedy: 'See "idv apikey create --help".' });
}

/** A mistyped permission makes a key that does not work, or works for too much. @throws AgentError `usage`. */
function refuseNearMisses(permissions: readonly string[]): void {
	for (const permission of permissions) {
		const meant = nearMiss(permission);
		if (meant !== null)
			throw new AgentError('usage', `--permissions ${permission} is not a known permission; did you mean ${meant}?`, {
				remedy: 'Correct it, or pass --allow-unknown-permission if the service has it under this name.',
			});
	}
}

/** The permission that was probably meant, resource and action apart; `null` for a known one and for one unlike all. */
export function nearMiss(permission: string): string | null {
	const [resource = '', action = ''] = permission.split(':');
	const known = new Set([...KNOWN_PERMISSIONS.map((one) => one.split(':')[0] ?? ''), ...KNOWN_RESOURCES]);
	const near = (text: string, names: readonly string[]) =>
		names.includes(text) || text.includes('*') ? text : (nearestName(text, names) ?? text);
	const meant = `${near(resource, [...known])}:${near(action, ['read', 'write'])}`;
	return meant === permission ? null : meant;
}

/** The service and Short Token of a code. A link names its service; another one than --url is refused. */
export async function targetOfCode(
	shell: Shell,
	flags: TargetFlags & Pick<ApiKeyFlags, 'codeFile'>,
): Promise<Target & { readonly workflowId: string | null }> {
	const { codeFile = '-', url = shell.env['IDV_URL'], caFile = shell.env['IDV_CA_FILE'] } = flags;
	if (flags.authorizationFile !== undefined)
		throw new AgentError('usage', 'Both --code-file and --authorization-file were given.', {
			remedy: 'Use one of them.',
		});
	const isInput = codeFile === '-';
	const remedy = `Give the whole link of a pairing code, or its Short Token (${SHORT_TOKEN_FORM}), as text with --code-file FILE (- for standard input); a picture is not read: idv qrcode --json has the link of a new code as url.`;
	const text = await (isInput
		? readStandardInput(shell, MAX_CODE_LENGTH)
		: readFileOfUser(codeFile, 'pairing code', remedy));
	const code = readPairingCode(asGivenCode(text));
	const from = isInput ? 'standard input' : codeFile;
	if (code.kind === 'notACode')
		throw new AgentError('credential-unreadable', `There is no pairing code in ${from}.`, { remedy });
	const baseUrl = checkUrl(url ?? code.baseUrl ?? undefined, url === undefined ? 'The address in the code' : '--url');
	const origin = code.baseUrl === null ? null : new URL(code.baseUrl).origin;
	if (origin !== null && origin !== new URL(baseUrl).origin)
		throw new AgentError('usage', `The code is for ${origin}, not for ${new URL(baseUrl).origin}.`, {
			remedy: 'Leave --url out, or use a code of that service.',
		});
	const authorization = { scheme: 'Token', credential: code.token } as const;
	return { baseUrl, authorization, credentialFrom: from, caFile, env: shell.env, workflowId: code.workflowId };
}

/** A next path is not a retry: where the one before does not exist, nothing was created. */
async function create(target: Target, request: ApiKeyRequest): Promise<CreatedKey> {
	return withClient(target, async (client) => {
		const purpose = target.authorization.scheme === 'Token' ? PURPOSE_OF_CODE : PURPOSE;
		const [first, ...others] = ENDPOINTS.apiKeys;
		const ask = (path: string) => sendOnce(client, target, { method: 'POST', path, body: request }, purpose);
		let answer = await ask(first);
		for (const path of others) if (answer.status === 404 || answer.status === 405) answer = await ask(path);
		if (!isGood(answer)) throw refusal(target, answer, purpose);
		try {
			return keySchema(request).parse(parseJson(new TextDecoder().decode(answer.body)));
		} catch {
			throw unreadAnswer(target, 'a key that can be read', purpose);
		}
	});
}

/** Properties of the key that the operator may not have intended. */
export function warningsOf({ permissions, expiresAt }: Pick<CreatedKey, 'permissions' | 'expiresAt'>): string[] {
	const known: readonly string[] = KNOWN_PERMISSIONS;
	const warnings: string[] = [];
	if (expiresAt === null) warnings.push('This key never expires. Use --expires 30d for one that ends.');
	const wildcards = permissions.filter((permission) => permission.includes('*'));
	if (wildcards.length > 0)
		warnings.push(`${wildcards.join(', ')} covers more than one permission: name only what is needed.`);
	else if (known.every((permission) => permissions.includes(permission)))
		warnings.push(
			'This key holds every permission that is known: one key for each purpose does less harm when it leaks.',
		);
	for (const permission of permissions) {
		if (known.includes(permission) || wildcards.includes(permission)) continue;
		warnings.push(`${permission} is not among the known permissions${didYouMean(permission, known)}`);
	}
	return warnings;
}
