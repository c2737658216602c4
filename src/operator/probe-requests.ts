/** The requests of `idv probe`: the one registration, and whatever else is asked over HTTP. */
import { asError, type Failure, toFailure } from '../base/errors.ts';
import type { Transcript } from '../base/transcript.ts';
import { classifyHttpAnswer, fateIn, type HttpAnswer, isWebPage, namedPath } from '../connection/classify-failure.ts';
import { type CodeWorth, worthAfter } from '../connection/code-fate.ts';
import type { ServiceAnswer, ServiceClient } from '../connection/service-client.edge.ts';
import { refusalIn } from '../connection/unread-answer.ts';
import { withWorth } from '../pairing/code-worth.ts';
import { formatAuthorization, secretsOf } from '../protocol/authorization.ts';
import type { DeviceConnectionRequest } from '../protocol/device-connection.ts';
import { ENDPOINTS, endpointUrl } from '../protocol/endpoints.ts';
import { readErrorWords } from '../protocol/problem.ts';
import { type AnswerText, looksLikeToken, readAnswerTexts } from '../protocol/registration-answer.ts';
import { readTokenLife } from '../protocol/token-life.ts';
import type { Headers } from '../settings/header-lines.ts';
import type { Finding } from './probe-findings.runner.ts';
import type { Pace } from './probe-pace.ts';
import { remedyNamed } from './probe-words.ts';
import type { Target } from './service-target.runner.ts';

const DEADLINE_MS = 30_000;
const MAX_ANSWER_BYTES = 4 * 1024 * 1024;
/** The published path, and where some services register devices that do not have it. */
const REGISTRATION_PATHS = [
	ENDPOINTS.deviceConnection,
	...['/api/v1/device/connection', '/device/connection', '/v1/device/connection'],
];

export interface Asking {
	readonly target: Target;
	readonly client: ServiceClient;
	readonly request: DeviceConnectionRequest;
	readonly pace: Pace;
	readonly transcript: Transcript;
	/** Of every request and handshake. */
	readonly headers: Headers;
}

export type TextAnswer = Pick<HttpAnswer, 'status' | 'headers' | 'body' | 'path'>;

interface Registered {
	readonly answer: TextAnswer;
	readonly path: string;
	/** Of one without a Connection. */
	readonly failure: Failure | null;
}

/** One registration. A code is sent again only after 429, where nothing is at the path (the service has not looked at it), where it asks for that, or where the service has moved. */
export async function register(
	asking: Asking,
	[path = '', ...others]: readonly string[] = REGISTRATION_PATHS,
	first?: TextAnswer,
): Promise<Registered> {
	const isCode = asking.target.authorization.scheme === 'Token';
	const { ask } = asking.pace;
	const post = async () => {
		const sent = await send(asking, 'POST', path, asking.request);
		const answer = { ...sent, body: new TextDecoder().decode(sent.body) };
		// One that says where the Connection will be is not for another try with the same code.
		return { ...answer, isPending: refused(answer) === 'pending' && answer.headers['location'] === undefined };
	};
	const answer = await ask(post, isCode).catch((error: unknown) => {
		const failure = toFailure(error);
		const isUnused = failure.params?.['sent'] === 'no' || failure.code === 'service-overloaded';
		throw asError(toldWorth(asking, failure, isUnused ? 'valid' : 'uncertain'));
	});
	const { status, headers, body } = answer;
	const named = (!first && namedPath(answer)) || [];
	if ((status === 404 || status === 405) && others.length > 0)
		return register(asking, others.toSpliced(0, 0, ...[named].flat()), first ?? answer);
	const moved = first ? undefined : movedPath(answer, endpointUrl(asking.target.baseUrl, path), asking.target.baseUrl);
	if (moved !== undefined) return register(asking, [moved], answer);
	const isGood = status >= 200 && status < 300 && !isWebPage(headers, body) && refused(answer) === null;
	const told = status === 404 || status === 405 ? (first ?? answer) : answer;
	return { answer: told, path, failure: isGood ? null : unreadable(asking, told) };
}

/** Where a registration has moved to at the same address, which may be given the credential. Source: RFC 9110, 15.4.8 and 15.4.9. */
function movedPath({ status, headers }: TextAnswer, asked: URL, baseUrl: string): string | undefined {
	const target = [307, 308].includes(status) ? URL.parse(headers['location'] ?? '', asked) : null;
	const prefix = new URL(baseUrl).pathname.replace(/\/$/, '');
	const isOurs = target?.origin === asked.origin && target.search === '' && target.pathname.startsWith(`${prefix}/`);
	return target && isOurs && target.pathname !== asked.pathname ? target.pathname.slice(prefix.length) : undefined;
}

/** The failure for an answer without a Connection, with the worth of the code. */
export function unreadable(asking: Asking, answer: TextAnswer): Failure {
	const { status, headers, body } = answer;
	const told = classified(asking, answer);
	const isElsewhere = isUndone(answer) && headers['location'] !== undefined;
	const remedy = told.code === 'request-rejected' ? remedyNamed([readErrorWords(body)]) : null;
	const failure = { ...told, ...(isElsewhere && { remedy: ELSEWHERE }), ...(remedy && { remedy }) };
	const [isPage, saidNo, fate] = [isWebPage(headers, body), refused(answer) !== null, fateIn(answer)];
	return toldWorth(asking, failure, worthAfter({ status, headers, isPage, saidNo, body, failure, fate }));
}

const ELSEWHERE =
	'Ask the operator how a device gets its Connection from there: the agent asks no such place. With --device FILE the answer is kept in FILE.answer.';

/** A 202 whose texts are the names of a job: where no place is named like a token, none of them is shown to the service as one. */
function isUndone(answer: TextAnswer): boolean {
	const isToken = (one: AnswerText) =>
		looksLikeToken(one) && (/token|auth|credential|secret|jwt|connection/i.test(one.place) || isJwt(one.text));
	return answer.status === 202 && !readAnswerTexts(answer).some(isToken);
}

const isJwt = (text: string) => readTokenLife(text) !== null;
const refused = (answer: TextAnswer) => refusalIn(answer) ?? (isUndone(answer) ? 'pending' : null);

function toldWorth({ target: { authorization } }: Asking, cause: Failure, worth: CodeWorth): Failure {
	return authorization.scheme === 'Token' ? withWorth(cause, worth) : cause;
}

export async function send(
	{ client, target, transcript, headers: given, request: { deviceId } }: Asking,
	method: 'GET' | 'POST',
	path: string,
	body?: unknown,
): Promise<ServiceAnswer & { readonly retryAfter: string | undefined }> {
	const exchange = transcript.next();
	// A code is sent for the registration alone: whatever comes after it goes without.
	const isRegistration = Object(body).deviceId === deviceId;
	const authorization = target.authorization.scheme === 'Token' && !isRegistration ? null : target.authorization;
	const shown = authorization && { authorization: formatAuthorization(authorization) };
	const text = body === undefined ? '' : JSON.stringify(body);
	transcript.note({ kind: 'request', exchange, method, path, query: {}, headers: { ...given, ...shown }, body: text });
	const url = endpointUrl(target.baseUrl, path);
	const within = { deadlineMs: DEADLINE_MS, maxBytes: MAX_ANSWER_BYTES };
	const answer = await client.send({ method, url, authorization, headers: given, body, ...within });
	const said = new TextDecoder().decode(answer.body);
	transcript.note({ kind: 'answer', exchange, status: answer.status, headers: answer.headers, body: said });
	return { ...answer, retryAfter: answer.headers['retry-after'] };
}

function classified({ target, request }: Asking, answer: TextAnswer): Failure {
	const { authorization, baseUrl } = target;
	const { host } = new URL(baseUrl);
	const about = { scheme: authorization.scheme, workflowId: request.workflowId, secrets: secretsOf(authorization) };
	return classifyHttpAnswer({ ...answer, ...about, purpose: 'register', host, isUndone: isUndone(answer) });
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
