/** The steps of `idv probe`, one request and one channel at a time; what is found is kept, whatever ends it. */
import type { Clock } from '../base/clock.edge.ts';
import { AgentError, asError, type Failure, toFailure } from '../base/errors.ts';
import type { Transcript } from '../base/transcript.ts';
import { classifyHttpAnswer, type HttpAnswer, isWebPage } from '../connection/classify-failure.ts';
import type { Network } from '../connection/network.edge.ts';
import { type ServiceAnswer, type ServiceClient, spentBy } from '../connection/service-client.edge.ts';
import { formatAuthorization, secretsOf } from '../protocol/authorization.ts';
import type { DeviceConnectionRequest } from '../protocol/device-connection.ts';
import { channelUrl, ENDPOINTS, endpointUrl } from '../protocol/endpoints.ts';
import { readAnswerTexts } from '../protocol/registration-answer.ts';
import { readTokenLife } from '../protocol/token-life.ts';
import { type Dialled, type EndedEarly, openWatched, type Watched } from './probe-channel.ts';
import {
	type Finding,
	handshakeFindings,
	namedLife,
	type Observation,
	type TokenPlace,
	tokenPlaces,
} from './probe-decisions.ts';
import { createPace, type Pace } from './probe-pace.ts';
import { answersInWords, CHANNEL_PATHS, findChannel, type Handshake, type HandshakeAnswer } from './probe-search.ts';
import { watchChannel } from './probe-watch.ts';
import type { Target } from './service-target.ts';

const DEADLINE_MS = 30_000;
const MAX_ANSWER_BYTES = 4 * 1024 * 1024;
/** Kept for what comes after the channel is found. */
const KEY_REQUESTS = ENDPOINTS.apiKeys.length + 1;
const KEPT_REQUESTS = 6;
/** Handshakes in a row without an answer before another request shows whether the service is still there. */
const MAX_UNANSWERED = 3;

export interface ProbeOptions {
	readonly target: Target;
	readonly network: Network;
	readonly client: ServiceClient;
	readonly userAgent: string;
	readonly request: DeviceConnectionRequest;
	/** Ends it early, with what was found. */
	readonly signal: AbortSignal;
	/** What the pace of the requests goes by; a channel is watched in the machine's time. */
	readonly clock: Clock;
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
	/** The caller has ended it. */
	readonly isInterrupted: boolean;
}

/** Never rejects: the report says why it stopped. */
export async function runProbe(options: ProbeOptions): Promise<ProbeReport> {
	const { target, signal, onStep } = options;
	const findings = new Map<string, Finding>();
	const waits = (seconds: number) => onStep(`Waits for ${seconds} s: a service may take ten requests a minute.`);
	const pace = createPace(new URL(target.baseUrl).host, options.clock, signal, waits);
	const open = { channel: null as Watched | null };
	let stopped: Failure | null = null;
	try {
		await probe(options, pace, open, (...found) => {
			for (const finding of found) findings.set(finding.point, finding);
		});
	} catch (error) {
		if (!signal.aborted) stopped = toFailure(error);
	} finally {
		await open.channel?.end();
	}
	return { findings: [...findings.values()], requests: pace.used, stopped, isInterrupted: signal.aborted };
}

/** A later finding of a point replaces an earlier one. */
type Note = (...findings: Finding[]) => void;

async function probe(options: ProbeOptions, pace: Pace, open: { channel: Watched | null }, note: Note): Promise<void> {
	const { request, onStep } = options;
	onStep(`Registers ${request.deviceId}.`);
	const answer = await register(options, pace);
	const texts = readAnswerTexts(answer);
	const places = tokenPlaces(texts, [request.deviceId, request.workflowId]);
	const [usual] = places;
	if (!usual) throw asError(classified(options, answer, 'register'));
	note(tokenFinding(usual, false), lifeFinding(usual.token, answer.body));

	onStep('Looks for the channel.');
	const dial = async (way: Handshake, pings: boolean, url = urlFor(options, way, places)) => {
		await open.channel?.end();
		open.channel = null;
		const dialled = await pace.ask(() => openWatched(options, url, way, pings));
		open.channel = dialled.channel;
		return dialled;
	};
	const { way, isNarrow, cutOff, answers } = await search(options, pace, places.length, (next) => dial(next, true));
	const place = places[way?.candidate ?? 0] ?? usual;
	note(tokenFinding(place, way !== null), lifeFinding(place.token, answer.body));
	if (way === null) throw notFound(cutOff, answers);
	note(...handshakeFindings(way, 'likely'));

	onStep(`Watches the channel for ${options.seconds} s, and another one for as long.`);
	const reopen = async (pings: boolean) => (pace.left() > 0 ? (await dial(way, pings)).channel : null);
	const first = open.channel ?? (await reopen(true));
	if (first === null) throw notLasting(way, options.seconds, []);
	const ends = await watchChannel({ ...options, note, reopen }, first);
	if (ends.length > 0) {
		note(tokenFinding(place, false));
		throw notLasting(way, options.seconds, ends);
	}
	if (isNarrow && pace.left() > 0) {
		onStep('Tries the same without the Connection.');
		const bare = { ...urlFor(options, { ...way, inQuery: [] }, places), authorization: null };
		const { status } = await dial(way, true, bare);
		if (status >= 400 && status < 500) note(...handshakeFindings(way, 'certain'));
	}
	onStep('Looks at the paths of API keys.');
	if (pace.left() >= KEY_REQUESTS) note(await keyPaths(options, pace));
}

/** @returns the least handshake that opens the channel, or else one that did (not narrow); its channel is open if it was the last. */
async function search(
	options: ProbeOptions,
	pace: Pace,
	candidates: number,
	dial: (way: Handshake) => Promise<Dialled>,
): Promise<{ way: Handshake | null; isNarrow: boolean; cutOff: CutOff | null; answers: PathAnswers }> {
	const steps = findChannel([...new Set([...options.channelPaths, ...CHANNEL_PATHS])], candidates);
	let opened: Handshake | null = null;
	let cutOff: CutOff | null = null;
	let unanswered = 0;
	const answers = new Map<string, HandshakeAnswer>();
	let step = steps.next();
	while (!step.done && pace.left() > KEPT_REQUESTS) {
		const answered = await dial(step.value);
		const { path } = step.value;
		if (!answers.has(path)) answers.set(path, answered);
		unanswered = answered.unanswered ? unanswered + 1 : 0;
		if (unanswered === MAX_UNANSWERED) await checkThere(options, pace, answered.unanswered);
		if (answered.status === 101) opened = step.value;
		if (answered.endedEarly) cutOff ??= { path, ...answered.endedEarly };
		step = steps.next(answered);
	}
	const found = step.done ? step.value : null;
	return { way: found ?? opened, isNarrow: found !== null, cutOff, answers };
}

/** The first answer of each path. */
type PathAnswers = ReadonlyMap<string, HandshakeAnswer>;

/** Some services cut the line to a path that they do not have; one that cuts every line has died. @throws AgentError */
async function checkThere(options: ProbeOptions, pace: Pace, unanswered: Failure | undefined): Promise<void> {
	await pace
		.ask(() => send(options, 'GET', ENDPOINTS.apiKeys[0]))
		.catch((error) => {
			if (toFailure(error).code !== 'connection-lost') throw error;
			const { host } = new URL(options.target.baseUrl);
			const reason = unanswered?.params?.['reason'];
			const said = `${host} takes connections, and each is reset before any answer${reason ? ` (${reason})` : ''}: ${MAX_UNANSWERED} handshakes and a request.`;
			throw new AgentError('service-unreachable', said, { params: { host }, remedy: RESET_REMEDY });
		});
}

const RESET_REMEDY =
	'Check that the service still runs, and what stands in front of it (a proxy, a firewall): the registration was answered.';

/** Of a channel that opened and did not stay open. */
type CutOff = EndedEarly & { readonly path: string };

function notFound(cutOff: CutOff | null, answers: PathAnswers): AgentError {
	const { isSeen, words } = answersInWords(answers);
	const none = `No handshake that the probe tried opened the channel: ${words}.`;
	if (!cutOff) return stop(none, isSeen ? REFUSED_REMEDY : NOT_FOUND_REMEDY);
	const said = `The channel at ${cutOff.path} opened, and the service ended it ${endWords(cutOff)}; no handshake kept one open.`;
	return stop(said, CUT_OFF_REMEDY);
}

/** @param ends of the channels that were watched; none where it was not opened again. */
function notLasting({ path }: Handshake, seconds: number, ends: readonly Observation[]): AgentError {
	if (ends.length === 0)
		return stop(`The channel at ${path} opened, but not again by the same handshake.`, NOT_AGAIN_REMEDY);
	const each = ends.map(({ heartbeatsAtMs: { length }, ended }, index) => {
		const beats = index > 0 ? 'without heartbeats' : `with heartbeats (${length || 'none'} sent)`;
		return `one ${beats} ${ended ? endWords(ended) : ''}`;
	});
	const said = `No channel at ${path} lasted the ${seconds} s of the watch: the service ended ${each.join(', and ')}.`;
	return stop(said, NOT_LASTING_REMEDY);
}

function endWords({ atMs, code }: EndedEarly): string {
	const how = code === null ? 'without a close code' : `with close code ${code}`;
	return `${how} after ${(atMs / 1000).toFixed(1)} s`;
}

const NOT_FOUND_REMEDY =
	'Ask the operator for the path of the channel and name it with --channel-path; the transcript (--transcript) shows what the service answered.';

const REFUSED_REMEDY =
	'The path is likely right: ask the operator what the handshake requires (a subprotocol, see service.subprotocol; the Connection at another place, see service.channelAuth); the transcript (--transcript) shows what the service answered.';

const CUT_OFF_REMEDY =
	'The path is likely right: ask the operator why the service ends the channel (the Connection, a first message, a subprotocol); the transcript (--transcript) shows what it said.';

const NOT_AGAIN_REMEDY =
	'If a Connection is good for one channel only, set service.nextConnection; if not, ask the operator why. The transcript (--transcript) shows what the service answered.';

const NOT_LASTING_REMEDY =
	'If the service waits for a first message of the device (authenticate, subscribe), write it in service.firstMessages; if not, ask the operator why the service ends each channel. The transcript (--transcript) shows what it said.';

const stop = (message: string, remedy: string) => new AgentError('channel-not-found', message, { remedy });

/** One registration. A code is sent again only after 429: the service has not looked at it. */
async function register(
	options: ProbeOptions,
	pace: Pace,
): Promise<{ body: string; headers: Readonly<Record<string, string>>; status: number }> {
	const { target, request } = options;
	const isCode = target.authorization.scheme === 'Token';
	const uncertain = (cause: Failure) => (isCode ? perhapsUsedUp(cause, target) : asError(cause));
	const answer = await pace
		.ask(() => send(options, 'POST', ENDPOINTS.deviceConnection, request), isCode)
		.catch((error) => {
			const cause = toFailure(error);
			throw cause.params?.['sent'] === 'no' ? error : uncertain(cause);
		});
	const read = { ...answer, body: new TextDecoder().decode(answer.body) };
	const isGood = answer.status >= 200 && answer.status < 300 && !isWebPage(read.headers, read.body);
	if (isGood) return read;
	const cause = classified(options, read, 'register');
	throw spentBy(read.status) === 'perhaps' ? uncertain(cause) : asError(cause);
}

/** As `pair` tells it: the code was sent, and nothing says what became of it. */
function perhapsUsedUp({ message, params }: Failure, { baseUrl }: Target): AgentError {
	const { host } = new URL(baseUrl);
	const said = `The code was sent to ${host}, but no usable answer came back: the service may have used the code up. ${message}`;
	return new AgentError('pairing-uncertain', said, { params: { ...params, host } });
}

async function send(
	options: ProbeOptions,
	method: 'GET' | 'POST',
	path: string,
	body?: unknown,
): Promise<ServiceAnswer & { retryAfter: string | undefined }> {
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
	return { ...answer, retryAfter: answer.headers['retry-after'] };
}

function classified(
	{ target, request }: ProbeOptions,
	answer: Pick<HttpAnswer, 'status' | 'headers' | 'body' | 'path'>,
	purpose: 'register',
): Failure {
	const { authorization, baseUrl } = target;
	const { host } = new URL(baseUrl);
	const { workflowId } = request;
	return classifyHttpAnswer({
		...answer,
		purpose,
		host,
		scheme: authorization.scheme,
		workflowId,
		secrets: secretsOf(authorization),
	});
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
async function keyPaths(options: ProbeOptions, pace: Pace): Promise<Finding> {
	for (const path of ENDPOINTS.apiKeys) {
		const { status } = await pace.ask(() => send(options, 'GET', path));
		if (status === 404) continue;
		const point = { point: 'api-key-path', tried: 'GET on the known paths' };
		if (!options.createKey) return { ...point, found: `${path} (answers ${status})`, certainty: 'likely' };
		const body = { name: 'idv-probe', permissions: ['ephemeral_device:write'], ttl: 60 };
		const created = await pace.ask(() => send(options, 'POST', path, body), true);
		const isMade = created.status >= 200 && created.status < 300;
		const found = isMade ? `${path} made a key that ends after 60 s` : `${path} (POST answers ${created.status})`;
		return { point: 'api-key-path', tried: 'POST of a key', found, certainty: isMade ? 'certain' : 'likely' };
	}
	return { point: 'api-key-path', tried: 'GET on the known paths', found: 'none of them', certainty: 'likely' };
}
