/** The requests of `idv probe`: the one registration, and whatever else is asked over HTTP. */
import { AgentError, asError, type Failure, toFailure } from '../base/errors.ts';
import type { Transcript } from '../base/transcript.ts';
import { classifyHttpAnswer, type HttpAnswer, isWebPage } from '../connection/classify-failure.ts';
import { type ServiceAnswer, type ServiceClient, spentBy } from '../connection/service-client.edge.ts';
import { refusalIn } from '../connection/unread-answer.ts';
import { formatAuthorization, secretsOf } from '../protocol/authorization.ts';
import type { DeviceConnectionRequest } from '../protocol/device-connection.ts';
import { ENDPOINTS, endpointUrl } from '../protocol/endpoints.ts';
import type { Finding } from './probe-findings.ts';
import type { Pace } from './probe-pace.ts';
import type { Target } from './service-target.ts';

const DEADLINE_MS = 30_000;
const MAX_ANSWER_BYTES = 4 * 1024 * 1024;
/** Where some services register devices that do not have the published path. */
const REGISTRATION_PATHS = ['/api/v1/device/connection', '/device/connection', '/v1/device/connection'];

export interface Asking {
	readonly target: Target;
	readonly client: ServiceClient;
	readonly request: DeviceConnectionRequest;
	readonly pace: Pace;
	readonly transcript: Transcript;
}

export type TextAnswer = Pick<HttpAnswer, 'status' | 'headers' | 'body' | 'path'>;

/** One registration. A code is sent again only after 429, or where nothing is at the path: the service has not looked at it. */
export async function register(asking: Asking): Promise<{ readonly answer: TextAnswer; readonly path: string }> {
	let first: TextAnswer | null = null;
	for (const path of [ENDPOINTS.deviceConnection, ...REGISTRATION_PATHS]) {
		const answer = await registerAt(asking, path);
		first ??= answer;
		if (answer.status === 404 || answer.status === 405) continue;
		const isGood = answer.status >= 200 && answer.status < 300 && !isWebPage(answer.headers, answer.body);
		if (isGood && refusalIn(answer.body) === null) return { answer, path };
		const cause = classified(asking, answer);
		const isSpent = asking.target.authorization.scheme === 'Token' && refusalIn(answer.body) !== 'refused';
		throw isSpent && spentBy(answer.status) === 'perhaps' ? perhapsUsedUp(cause, asking.target) : asError(cause);
	}
	throw asError(classified(asking, first as TextAnswer));
}

async function registerAt(asking: Asking, path: string): Promise<TextAnswer> {
	const { target, pace } = asking;
	const isCode = target.authorization.scheme === 'Token';
	const answer = await pace
		.ask(() => send(asking, 'POST', path, asking.request), isCode)
		.catch((error) => {
			const cause = toFailure(error);
			throw cause.params?.['sent'] === 'no' || !isCode ? error : perhapsUsedUp(cause, target);
		});
	return { ...answer, body: new TextDecoder().decode(answer.body) };
}

/** As `pair` tells it: the code was sent, and nothing says what became of it. */
function perhapsUsedUp({ message, params }: Failure, { baseUrl }: Target): AgentError {
	const { host } = new URL(baseUrl);
	const said = `The code was sent to ${host}, but no usable answer came back: the service may have used the code up. ${message}`;
	return new AgentError('pairing-uncertain', said, { params: { ...params, host } });
}

export async function send(
	{ client, target, transcript, request: { deviceId } }: Asking,
	method: 'GET' | 'POST',
	path: string,
	body?: unknown,
): Promise<ServiceAnswer & { readonly retryAfter: string | undefined }> {
	const exchange = transcript.next();
	// A code is sent for the registration alone: whatever comes after it goes without.
	const isRegistration = Object(body).deviceId === deviceId;
	const authorization = target.authorization.scheme === 'Token' && !isRegistration ? null : target.authorization;
	const headers: Record<string, string> = authorization ? { authorization: formatAuthorization(authorization) } : {};
	const text = body === undefined ? '' : JSON.stringify(body);
	transcript.note({ kind: 'request', exchange, method, path, query: {}, headers, body: text });
	const url = endpointUrl(target.baseUrl, path);
	const answer = await client.send({
		method,
		url,
		authorization,
		body,
		deadlineMs: DEADLINE_MS,
		maxBytes: MAX_ANSWER_BYTES,
	});
	const said = new TextDecoder().decode(answer.body);
	transcript.note({ kind: 'answer', exchange, status: answer.status, headers: answer.headers, body: said });
	return { ...answer, retryAfter: answer.headers['retry-after'] };
}

/** What an answer to the registration means without a Connection in it. */
export function classified({ target, request }: Asking, answer: TextAnswer): Failure {
	const { authorization, baseUrl } = target;
	const { host } = new URL(baseUrl);
	const { scheme } = authorization;
	const { workflowId } = request;
	const secrets = secretsOf(authorization);
	return classifyHttpAnswer({ ...answer, purpose: 'register', host, scheme, workflowId, secrets });
}

/** Which of the known paths takes API keys, by a key that ends soon. */
export async function keyPaths(asking: Asking): Promise<Finding> {
	const { pace } = asking;
	const body = { name: 'idv-probe', permissions: ['ephemeral_device:write'], ttl: 60 };
	const point = { point: 'api-key-path', tried: 'POST of a key' };
	for (const path of ENDPOINTS.apiKeys) {
		const { status } = await pace.ask(() => send(asking, 'POST', path, body), true);
		if (status === 404 || status === 405) continue;
		const isMade = status >= 200 && status < 300;
		const found = isMade ? `${path} made a key that ends after 60 s` : `${path} (POST answers ${status})`;
		return { ...point, found, certainty: isMade ? 'proved' : 'guessed' };
	}
	return { ...point, found: 'none of them', certainty: 'guessed' };
}
