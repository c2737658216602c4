/** `idv apikey create`: makes an API key once, under whichever of the two published paths the service has. */
import { AgentError } from '../base/errors.ts';
import { printJson, printLine, printTable, printWarning, untilTime } from '../cli/output.ts';
import { type ApiKeyRequest, apiKeyRequestSchema, KNOWN_PERMISSIONS } from '../protocol/api-key.ts';
import { ENDPOINTS } from '../protocol/endpoints.ts';
import { nearestName } from '../settings/resolve.ts';
import { checkPlaceForSecret, reserveSecretFile } from './secret-output.ts';
import { inOperatorsWords, isGood, type Purpose, refusal, sendOnce, withClient } from './service-call.ts';
import { resolveTarget, type Target, type TargetFlags } from './service-target.ts';

export interface ApiKeyFlags extends TargetFlags {
	readonly name: string;
	/** Comma-separated. */
	readonly permissions: string;
	/** Lifetime in seconds; left out, the key does not expire. The HTTP body calls it `ttl`. */
	readonly expires?: number | undefined;
	readonly out?: string | undefined;
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

export async function createApiKey(flags: ApiKeyFlags): Promise<void> {
	const request = checkRequest(flags);
	checkPlaceForSecret('The API key', { json: flags.json, out: flags.out });
	const target = await resolveTarget(flags, process.env);
	const file = flags.out === undefined ? null : await reserveSecretFile(flags.out);
	const key = await create(target, request).catch(async (error: unknown) => {
		await file?.discard();
		throw error;
	});
	await file?.write(`ApiKey ${key.token}\n`);

	const warnings = warningsOf(key);
	const { token, ...told } = key;
	if (flags.json) return printJson({ ...told, ...(file ? { file: file.path } : { token }), warnings });
	printLine(`Created API key ${key.name}.\n`);
	printTable([
		...(key.id === null ? [] : [['Id', key.id]]),
		file ? ['Saved', file.path] : ['Key', token],
		['Permissions', key.permissions.join(', ')],
		['Expires', key.expiresAt === null ? 'never' : untilTime(key.expiresAt)],
	]);
	if (!file) printLine('\nThe key is shown only now: keep it where secrets are kept.');
	for (const warning of warnings) printWarning(warning);
}

/** @throws AgentError `usage` naming the flag. */
function checkRequest({ name, permissions, expires }: ApiKeyFlags): ApiKeyRequest {
	const listed = permissions
		.split(',')
		.map((permission) => permission.trim())
		.filter(Boolean);
	const read = apiKeyRequestSchema.safeParse({
		name,
		permissions: [...new Set(listed)],
		...(expires === undefined ? {} : { ttl: expires }),
	});
	if (read.success) return read.data;
	const [issue] = read.error.issues;
	const [field, index] = issue?.path ?? [];
	const flag = field === 'ttl' ? '--expires' : `--${String(field)}`;
	const which = typeof index === 'number' ? ` ${listed[index]}` : '';
	throw new AgentError('usage', `${flag}${which} ${issue?.message}.`, { remedy: 'See "idv apikey create --help".' });
}

/** The second path is not a second attempt: where the first is not there, nothing was created. */
async function create(target: Target, request: ApiKeyRequest): Promise<CreatedKey> {
	return withClient(target, async (client) => {
		const [first, second] = ENDPOINTS.apiKeys;
		const ask = (path: string) => sendOnce(client, target, { method: 'POST', path, body: request }, PURPOSE);
		let answer = await ask(first);
		if (answer.status === 404 || answer.status === 405) answer = await ask(second);
		if (!isGood(answer)) throw refusal(target, answer, PURPOSE);
		const key = readKey(new TextDecoder().decode(answer.body), request);
		if (key) return key;
		const { host } = new URL(target.baseUrl);
		const unread = new AgentError('bad-response', `${host} answered without a key that can be read.`);
		throw inOperatorsWords(unread, PURPOSE, 'perhaps');
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

/** Properties that an operator may not have meant. */
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
