/** The requests of `idv probe`, counted: stops at the limit, at 429 and at a wait that is too long. */
import { setTimeout as wait } from 'node:timers/promises';
import { AgentError, asError, type Failure } from '../base/errors.ts';
import type { Transcript } from '../base/transcript.ts';
import { classifyHttpAnswer, isWebPage } from '../connection/classify-failure.ts';
import type { Network } from '../connection/network.edge.ts';
import type { ServiceAnswer, ServiceClient } from '../connection/service-client.edge.ts';
import { formatAuthorization, secretsOf } from '../protocol/authorization.ts';
import type { DeviceConnectionRequest } from '../protocol/device-connection.ts';
import { channelUrl, ENDPOINTS, endpointUrl } from '../protocol/endpoints.ts';
import { readAnswerTexts } from '../protocol/registration-answer.ts';
import { readTokenLife } from '../protocol/token-life.ts';
import { openWatched, type Watched } from './probe-channel.ts';
import { type Finding, handshakeFindings, namedLife, type TokenPlace, tokenPlaces } from './probe-decisions.ts';
import { CHANNEL_PATHS, findChannel, type Handshake } from './probe-search.ts';
import { watchChannel } from './probe-watch.ts';
import type { Target } from './service-target.ts';

export const MAX_REQUESTS = 30;
/** A service that asks for a longer wait is left alone. */
const MAX_WAIT_SECONDS = 60;
const DEADLINE_MS = 30_000;
const MAX_ANSWER_BYTES = 4 * 1024 * 1024;
/** Kept for what comes after the channel is found. */
const KEY_REQUESTS = ENDPOINTS.apiKeys.length + 1;
const KEPT_REQUESTS = 6;

export interface ProbeOptions {
	readonly target: Target;
	readonly network: Network;
	readonly client: ServiceClient;
	readonly userAgent: string;
	readonly request: DeviceConnectionRequest;
	/** How long a channel is watched. */
	readonly seconds: number;
	/** Tried before the usual ones. */
	readonly channelPaths: readonly string[];
	readonly createKey: boolean;
	readonly transcript: Transcript;
	/** Says in a few words what is being done. */
	readonly onStep: (text: string) => void;
}

export interface ProbeReport {
	readonly findings: readonly Finding[];
	readonly requests: number;
	/** Why the probe stopped before its end; `null` when it did not. */
	readonly stopped: Failure | null;
}

/** Never rejects for what a service does: the report says why it stopped. */
export async function runProbe(options: ProbeOptions): Promise<ProbeReport> {
	const findings: Finding[] = [];
	const budget = { used: 0 };
	const open = new Set<Watched>();
	let stopped: Failure | null = null;
	try {
		await probe(options, budget, open, (...found) => findings.push(...found));
	} catch (error) {
		if (!(error instanceof AgentError)) throw error;
		stopped = error.failure;
	} finally {
		for (const channel of open) channel.end();
	}
	return { findings, requests: budget.used, stopped };
}

type Note = (...findings: Finding[]) => void;

async function probe(options: ProbeOptions, budget: { used: number }, open: Set<Watched>, note: Note): Promise<void> {
	const { target, request, onStep } = options;
	const count = (host: string) => {
		if (budget.used >= MAX_REQUESTS)
			throw stop('service-overloaded', `All ${MAX_REQUESTS} requests that the probe may make to ${host} are used.`);
		budget.used += 1;
	};

	onStep(`Registers ${request.deviceId}.`);
	const answer = await register(options, count);
	const texts = readAnswerTexts(answer);
	const places = tokenPlaces(texts, [request.deviceId, request.workflowId]);
	if (places.length === 0) throw asError(classified(options, answer, 'register'));

	onStep('Looks for the channel.');
	const dial = async (way: Handshake, pings: boolean) => {
		count(new URL(target.baseUrl).host);
		const watched = await openWatched(options, urlFor(options, way, places), way, pings);
		if (watched.channel) open.add(watched.channel);
		if (watched.status === 429) throw stop('service-overloaded', 'The service answered 429 to a handshake.');
		await respectWait(watched.retryAfter);
		return watched;
	};
	const paths = [...new Set([...options.channelPaths, ...CHANNEL_PATHS])];
	const search = findChannel(paths, places.length);
	let step = search.next();
	let last: Watched | null = null;
	while (!step.done && budget.used < MAX_REQUESTS - KEPT_REQUESTS) {
		last?.end();
		const answered = await dial(step.value, true);
		last = answered.channel;
		step = search.next(answered);
	}
	const way = step.done ? step.value : null;
	const place = places[way?.candidate ?? 0] ?? places[0];
	note(tokenFinding(place as TokenPlace, way !== null), lifeFinding((place as TokenPlace).token, answer.body));
	if (way === null || last === null)
		throw stop('channel-not-found', 'No handshake that the probe tried opened the channel.', NOT_FOUND_REMEDY);
	note(...handshakeFindings(way));

	onStep(`Watches the channel for ${options.seconds} s.`);
	const none = { channel: null };
	note(...(await watchChannel(options, last, async (pings) => (budget.used < MAX_REQUESTS ? dial(way, pings) : none))));
	onStep('Looks at the paths of API keys.');
	if (budget.used <= MAX_REQUESTS - KEY_REQUESTS) note(await keyPaths(options, count));
}

const NOT_FOUND_REMEDY =
	'Ask the operator for the path of the channel and name it with --channel-path; the transcript (--transcript) shows what the service answered.';

function stop(code: 'service-overloaded' | 'channel-not-found', message: string, remedy?: string): AgentError {
	return new AgentError(code, message, remedy === undefined ? {} : { remedy });
}

/** One registration. A credential that can be used again is sent once more after a 503 that names a wait. */
async function register(
	options: ProbeOptions,
	count: (host: string) => void,
): Promise<{ body: string; headers: Readonly<Record<string, string>>; status: number }> {
	const { target, request } = options;
	const call = () => {
		count(new URL(target.baseUrl).host);
		return send(options, 'POST', ENDPOINTS.deviceConnection, request);
	};
	let answer = await call();
	if (answer.status === 503 && target.authorization.scheme !== 'Token' && 'retry-after' in answer.headers) {
		await respectWait(answer.headers['retry-after']);
		answer = await call();
	}
	const read = { status: answer.status, headers: answer.headers, body: new TextDecoder().decode(answer.body) };
	const isGood = answer.status >= 200 && answer.status < 300 && !isWebPage(read.headers, read.body);
	if (!isGood) throw asError(classified(options, read, 'register'));
	return read;
}

async function send(
	options: ProbeOptions,
	method: 'GET' | 'POST',
	path: string,
	body?: unknown,
): Promise<ServiceAnswer> {
	const { client, target, transcript } = options;
	const exchange = transcript.next();
	// A code is sent once: whatever comes after the registration goes without.
	const isSpent = target.authorization.scheme === 'Token' && path !== ENDPOINTS.deviceConnection;
	const authorization = isSpent ? null : target.authorization;
	const headers: Record<string, string> = authorization ? { authorization: formatAuthorization(authorization) } : {};
	const text = body === undefined ? '' : JSON.stringify(body);
	transcript.note({ kind: 'request', exchange, method, path, query: {}, headers, body: text });
	const url = endpointUrl(target.baseUrl, path);
	const request = { method, url, authorization, body, deadlineMs: DEADLINE_MS, maxBytes: MAX_ANSWER_BYTES };
	const answer = await client.send(request);
	const said = new TextDecoder().decode(answer.body);
	transcript.note({ kind: 'answer', exchange, status: answer.status, headers: answer.headers, body: said });
	if (answer.status === 429) throw asError(classified(options, { ...answer, body: said }, 'other'));
	return answer;
}

function classified(
	{ target, request }: ProbeOptions,
	{ status, headers, body }: { status: number; headers: Readonly<Record<string, string>>; body: string },
	purpose: 'register' | 'other',
): Failure {
	const { authorization, baseUrl } = target;
	const { host } = new URL(baseUrl);
	const { workflowId } = request;
	return classifyHttpAnswer({
		status,
		headers,
		body,
		purpose,
		host,
		scheme: authorization.scheme,
		workflowId,
		secrets: secretsOf(authorization),
	});
}

/** Waits as long as the service asks. @throws AgentError when that is too long. */
async function respectWait(retryAfter: string | undefined): Promise<void> {
	if (retryAfter === undefined) return;
	const seconds = /^\d+$/.test(retryAfter) ? Number(retryAfter) : (Date.parse(retryAfter) - Date.now()) / 1000;
	if (!(seconds > 0)) return;
	if (seconds > MAX_WAIT_SECONDS)
		throw stop(
			'service-overloaded',
			`The service asks for a wait of ${Math.round(seconds)} s, longer than ${MAX_WAIT_SECONDS} s.`,
		);
	await wait(seconds * 1000);
}

function urlFor(
	{ target }: ProbeOptions,
	way: Handshake,
	places: readonly TokenPlace[],
): { url: URL; authorization: string | null } {
	const token = places[way.candidate]?.token ?? '';
	const full = formatAuthorization({ scheme: 'Connection', credential: token });
	const query = new URLSearchParams(way.inQuery.map(({ name, form }) => [name, form === 'token' ? token : full]));
	const hasQuery = way.inQuery.length > 0;
	return {
		url: channelUrl(target.baseUrl, way.path, hasQuery ? query : undefined),
		authorization: way.inHeader ? full : null,
	};
}

function tokenFinding({ pointer }: TokenPlace, isConfirmed: boolean): Finding {
	return {
		point: 'token-place',
		tried: 'every text of the answer',
		found: pointer ?? 'a usual place',
		certainty: isConfirmed ? 'certain' : 'likely',
		...(pointer !== null && { settings: { tokenPointer: pointer } }),
	};
}

function lifeFinding(token: string, body: string): Finding {
	const point = { point: 'connection-life', tried: 'the Connection itself, and the answer around it' };
	const life = readTokenLife(token);
	if (life) return { ...point, found: 'the Connection says when it ends', certainty: 'certain' };
	const named = namedLife(body, Date.now());
	if (named === null) return { ...point, found: 'neither says when it ends', certainty: 'not seen' };
	return {
		...point,
		found: `${named} s, by the answer`,
		certainty: 'likely',
		settings: { connectionLifeSeconds: named },
	};
}

/** Which of the known paths takes API keys. Only with `createKey` a key is made. */
async function keyPaths(options: ProbeOptions, count: (host: string) => void): Promise<Finding> {
	const { host } = new URL(options.target.baseUrl);
	for (const path of ENDPOINTS.apiKeys) {
		count(host);
		const { status } = await send(options, 'GET', path);
		if (status === 404) continue;
		const point = { point: 'api-key-path', tried: 'GET on the known paths' };
		if (!options.createKey) return { ...point, found: `${path} (answers ${status})`, certainty: 'likely' };
		count(host);
		const body = { name: 'idv-probe', permissions: ['ephemeral_device:write'], ttl: 60 };
		const created = await send(options, 'POST', path, body);
		const isMade = created.status >= 200 && created.status < 300;
		const found = isMade ? `${path} made a key that ends after 60 s` : `${path} (POST answers ${created.status})`;
		return { point: 'api-key-path', tried: 'POST of a key', found, certainty: isMade ? 'certain' : 'likely' };
	}
	return { point: 'api-key-path', tried: 'GET on the known paths', found: 'none of them', certainty: 'likely' };
}
