/** `idv apikey create`: makes an API key once, under the first of the known paths that the service has. */
import { AgentError } from '../base/errors.ts';
import { printJson, printLine, printTable, printWarning, untilTime } from '../cli/output.ts';
import { readStandardInput } from '../cli/prompts.ts';
import { type ApiKeyRequest, apiKeyRequestSchema, KNOWN_PERMISSIONS, KNOWN_RESOURCES } from '../protocol/api-key.ts';
import { ENDPOINTS } from '../protocol/endpoints.ts';
import { MAX_CODE_LENGTH, readPairingCode } from '../protocol/pairing-code.ts';
import { readSecretFile } from '../settings/files.edge.ts';
import { nearestName } from '../settings/resolve.ts';
import { checkPlaceForSecret, reserveSecretFile } from './secret-output.ts';
import { inOperatorsWords, isGood, type Purpose, refusal, sendOnce, withClient } from './service-call.ts';
import { checkUrl, resolveTarget, type Target, type TargetFlags } from './service-target.ts';

export interface ApiKeyFlags extends TargetFlags {
	readonly name: string;
	/** Comma-separated. */
	readonly permissions: string;
	/** Lifetime in seconds; left out, the key does not expire. The HTTP body calls it `ttl`. */
	readonly expires?: number | undefined;
	readonly out?: string | undefined;
	/** A file with a pairing code or Short Token, which is spent; `-` for standard input. */
	readonly codeFile?: string | undefined;
	/** Take a permission that is much like a known one as it is. */
	readonly allowUnknownPermission?: boolean | undefined;
}

/** A key as the service described it; what it left out is `null`. */
interface CreatedKey {
	readonly id: string | null;
	readonly token: string;
	readonly name: string;
	readonly permissions: readonly string[];
	readonly expiresAt: string | null;
}

const PURPOSE: Purpose = {
	creates: 'an API key',
	needs: 'Basic or Bearer, or an API key that holds all the permissions of the new one',
};
/** Said of a code, which the service may have spent. */
const PURPOSE_OF_CODE: Purpose = {
	creates: 'an API key and spent the code',
	needs: 'a new code whose issuer holds all the permissions of the key',
};

export async function createApiKey(flags: ApiKeyFlags): Promise<void> {
	const request = checkRequest(flags);
	checkPlaceForSecret('The API key', { json: flags.json, out: flags.out });
	const target = await (flags.codeFile === undefined ? resolveTarget(flags, process.env) : targetOfCode(flags));
	const file = flags.out === undefined ? null : await reserveSecretFile(flags.out);
	const key = await create(target, request).catch(async (error: unknown) => {
		await file?.discard();
		throw error;
	});
	await file?.write(`ApiKey ${key.token}\n`);

	const warnings = warningsOf(key);
	const { token, ...rest } = key;
	if (flags.json) return printJson({ ...rest, ...(file ? { file: file.path } : { token }), warnings });
	printLine(`Created API key ${key.name}.\n`);
	printTable([
		...(key.id === null ? [] : [['Id', key.id]]),
		file ? ['Saved', file.path] : ['Key', token],
		['Permissions', key.permissions.join(', ')],
		['Expires', key.expiresAt === null ? 'never' : untilTime(key.expiresAt)],
	]);
	if (!file) printLine('\nThe key is shown only now: store it with your other secrets.');
	for (const warning of warnings) printWarning(warning);
}

/** @throws AgentError `usage` naming the flag. */
function checkRequest({ name, permissions, expires, allowUnknownPermission }: ApiKeyFlags): ApiKeyRequest {
	const listed = permissions
		.split(',')
		.map((permission) => permission.trim())
		.filter(Boolean);
	const read = apiKeyRequestSchema.safeParse({
		name,
		permissions: [...new Set(listed)],
		...(expires === undefined ? {} : { ttl: expires }),
	});
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
	flags: TargetFlags & Pick<ApiKeyFlags, 'codeFile'>,
): Promise<Target & { readonly workflowId: string | null }> {
	const { codeFile = '-', url = process.env['IDV_URL'], caFile = process.env['IDV_CA_FILE'] } = flags;
	if (flags.authorizationFile !== undefined)
		throw new AgentError('usage', 'Both --code-file and --authorization-file were given.', {
			remedy: 'Use one of them.',
		});
	const isInput = codeFile === '-';
	const text = await (isInput ? readStandardInput(MAX_CODE_LENGTH) : readSecretFile(codeFile));
	const code = readPairingCode(text.replace(/^\s*Token\s+/i, ''));
	const from = isInput ? 'standard input' : codeFile;
	if (code.kind === 'notACode')
		throw new AgentError('credential-unreadable', `There is no pairing code in ${from}.`, {
			remedy: 'Give the link of a pairing code, or its Short Token, with --code-file FILE (- for standard input).',
		});
	const baseUrl = checkUrl(url ?? code.baseUrl ?? undefined, url === undefined ? 'The address in the code' : '--url');
	if (code.baseUrl !== null && new URL(code.baseUrl).origin !== new URL(baseUrl).origin)
		throw new AgentError(
			'usage',
			`The code is for ${new URL(code.baseUrl).origin}, not for ${new URL(baseUrl).origin}.`,
			{
				remedy: 'Leave --url out, or use a code of that service.',
			},
		);
	const authorization = { scheme: 'Token', credential: code.token } as const;
	return { baseUrl, authorization, credentialFrom: from, caFile, workflowId: code.workflowId };
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
		const key = readKey(new TextDecoder().decode(answer.body), request);
		if (key) return key;
		const { host } = new URL(target.baseUrl);
		const unread = new AgentError('bad-response', `${host} answered without a key that can be read.`);
		throw inOperatorsWords(unread, purpose, 'perhaps');
	});
}

/** As much as the answer has, as long as the key itself is there: it is given only once. */
function readKey(body: string, request: ApiKeyRequest): CreatedKey | null {
	let document: unknown;
	try {
		document = JSON.parse(body);
	} catch {
		return null;
	}
	const fields = typeof document === 'object' && document !== null ? (document as Record<string, unknown>) : {};
	const text = (name: string) => (typeof fields[name] === 'string' ? fields[name] : null);
	const token = text('token');
	if (!token) return null;
	const held = fields['permissions'];
	return {
		id: text('id'),
		token,
		name: text('name') ?? request.name,
		permissions: Array.isArray(held) ? held.map(String) : request.permissions,
		expiresAt: text('expiresAt'),
	};
}

/** Properties of the key that the operator may not have intended. */
export function warningsOf({ permissions, expiresAt }: Pick<CreatedKey, 'permissions' | 'expiresAt'>): string[] {
	const known: readonly string[] = KNOWN_PERMISSIONS;
	const warnings: string[] = [];
	if (expiresAt === null) warnings.push('This key never expires. Use --expires SECONDS for one that does.');
	const wildcards = permissions.filter((permission) => permission.includes('*'));
	if (wildcards.length > 0)
		warnings.push(`${wildcards.join(', ')} covers more than one permission: name only what is needed.`);
	else if (known.every((permission) => permissions.includes(permission)))
		warnings.push(
			'This key holds every permission that is known: one key for each purpose does less harm when it leaks.',
		);
	for (const permission of permissions) {
		if (known.includes(permission) || wildcards.includes(permission)) continue;
		const nearest = nearestName(permission, known);
		warnings.push(`${permission} is not among the known permissions${nearest ? `; did you mean ${nearest}?` : '.'}`);
	}
	return warnings;
}
