/**
 * Passes an application's request on to the service, with the device's Connection added, and the answer back. Streams both
 * ways with back-pressure. Tries once within its bounds; follows no redirect, never shows the Connection, keeps nothing.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { continued, sendHead, unpacking } from '../base/bodies.edge.ts';
import { AgentError, asError, failure } from '../base/errors.ts';
import type { Answer, RequestNetwork } from '../connection/ask.edge.ts';
import { classifyNetworkError } from '../connection/classify-network-error.ts';
import { formatAuthorization } from '../protocol/authorization.ts';
import { FORWARDED_EACH, FORWARDED_METHODS } from '../protocol/local-api.ts';
import { cleanText } from '../protocol/problem.ts';
import { type Progress, watchProgress } from './forward-progress.edge.ts';
import { decideForward, headersToCaller, headersToService, localLocation } from './forward-rules.ts';
import { createLeakGuard } from './leak-guard.ts';
import { createPlaces } from './places.ts';
import { type BrowserApplication, SHARES } from './server/browser-applications.edge.ts';
import { ForwardError } from './server/forward-problems.ts';
import { onTheWay, peerProcess } from './server/peer.edge.ts';

/** How long a connection to the service waits for the next request, in milliseconds: less than servers keep theirs. */
const KEPT_MS = 4000;

const FORWARD_LIMITS = {
	/** Largest body, in bytes, of a request and of an answer; a longer answer that has begun is cut off by closing the connection. */
	maxBytes: 64 * 1024 * 1024,
	/** Longest time in which nothing of an exchange moves, in milliseconds. */
	idleMs: 30_000,
	/** The same at least where something waits in the kernel, in milliseconds. It moves in pieces: 64 KiB to an application, 190 KB were seen to a service. */
	pieceMs: 30_000,
	/** Requests of one program on shared sockets. */
	each: FORWARDED_EACH,
	/** Longest wait for a turn, in milliseconds; how many wait is bounded by the requests that a caller may have. */
	waitMs: 30_000,
	/** How long the head of an answer waits for the first of its body, in milliseconds: until then another answer is possible. */
	headMs: 100,
} as const;
export type ForwardLimits = { readonly [Name in keyof typeof FORWARD_LIMITS]: number };

export interface ForwarderOptions {
	readonly network: RequestNetwork;
	/** Where requests go and the Connection token for it, as they are now; `null` while there is none. */
	readonly target: () => { readonly baseUrl: string; readonly token: string } | null;
	/** Path prefixes that may be asked for; empty: all but the authorization endpoints. */
	readonly allow: () => readonly string[];
	/** Names of headers, in lower case, that go to the service besides the usual ones. Default: none. */
	readonly headers?: () => readonly string[];
	/** Headers of the settings that every request to this service has. Default: none. */
	readonly serviceHeaders?: (baseUrl: string) => Readonly<Record<string, string>>;
	/** What no answer may hold besides the Connection. Default: nothing. */
	readonly secretValues?: () => readonly string[];
	/** Path at which this device registers: no application may ask for it. Default: the published one. */
	readonly registrationPath?: () => string;
	/** Where they differ from the usual ones, as they are now. */
	readonly limits?: () => Partial<ForwardLimits>;
}

/**
 * @param target the request line after the prefix, undecoded.
 * @throws AgentError before anything is answered: `access-denied`, `method-not-allowed`, `unpaired`, `body-too-large`,
 * `response-too-large`, `redirect-refused`, `service-overloaded` (too many at once), or the failure of the network; a
 * {@link ForwardError} where the service may have carried the request out. Once the answer has begun, a failure closes the
 * caller's connection instead.
 */
export type Forward = (
	request: IncomingMessage,
	response: ServerResponse,
	target: string,
	application?: BrowserApplication | null,
) => Promise<void>;

export function createForwarder(options: ForwarderOptions): Forward {
	/** By the name of an application or the program of a caller on shared sockets: none waits for another's. */
	const places = createPlaces();

	return async (request, response, target, application = null) => {
		const limits = { ...FORWARD_LIMITS, ...options.limits?.() };
		const asked = { ...readAsked(request, target, application), ...limits };
		const [name, most] = shareOf(application, request, limits);
		const over = new AbortController();
		const left = () => over.abort();
		response.once('close', left);
		const ends = AbortSignal.any([over.signal, AbortSignal.timeout(limits.waitMs)]);
		const release = await places.wait(name, most, ends).catch(() => null);
		// There is no one left to answer.
		if (over.signal.aborted) return release?.();
		if (!release)
			throw new AgentError(
				'service-overloaded',
				`${most} requests of this program are being passed on already, and no turn came in time.`,
				{
					remedy: 'Ask again in a moment.',
					retryAfterMs: 1000,
				},
			);
		/** To the service, once it stands. */
		let socket: Socket | null = null;
		const progress = watchProgress(
			limits,
			(side) => over.abort(side === 'caller' ? callerStoodStill() : serviceWasSilent(asked.url, limits.idleMs)),
			(side) => onTheWay(side === 'caller' ? response.socket : socket),
		);
		const stands = (connection: Socket | null) => {
			socket = connection;
		};
		try {
			await exchange(
				request,
				response,
				{ ...asked, name },
				{ network: options.network, progress, stands, signal: over.signal },
			);
		} finally {
			response.removeListener('close', left);
			progress.stop();
			over.abort();
			release();
		}
	};

	/** Whose places a request takes, and how many there are. What the kernel does not name is bounded by its connections. */
	function shareOf(
		application: BrowserApplication | null,
		{ socket }: IncomingMessage,
		{ each }: ForwardLimits,
	): readonly [name: string, most: number] {
		if (application) return [application.name, application.shares?.uploads ?? SHARES.uploads];
		const peer = peerProcess(socket);
		return peer === null ? ['', Number.POSITIVE_INFINITY] : [`process ${peer}`, each];
	}

	/** @throws AgentError for what is not passed on. */
	function readAsked(request: IncomingMessage, target: string, application: BrowserApplication | null) {
		const method = FORWARDED_METHODS.find((known) => known === request.method);
		if (!method)
			throw new AgentError('method-not-allowed', `${request.method ?? 'This method'} is not passed on.`, {
				remedy: `Use one of ${FORWARDED_METHODS.join(', ')}.`,
			});
		if (request.headers.authorization !== undefined)
			throw new AgentError('access-denied', "A caller's own Authorization is not passed on.", {
				remedy: 'Leave the header out: the agent adds its own.',
			});
		if (request.httpVersion === '1.0')
			throw new AgentError('body-invalid', 'Requests over HTTP/1.0 are not passed on: a cut answer would look whole.', {
				remedy: 'Use HTTP/1.1 (nginx: proxy_http_version 1.1).',
			});
		const coding = request.headers['transfer-encoding'];
		if (coding !== undefined && !/^chunked$/i.test(coding))
			throw new AgentError('body-invalid', 'A body with a Transfer-Encoding besides "chunked" is not passed on.', {
				remedy: 'Name its coding in Content-Encoding.',
			});
		const service = options.target();
		if (!service) throw new AgentError('unpaired', 'This device has no Connection to ask the service with.');
		const decision = decideForward(target, service.baseUrl, options.allow(), options.registrationPath?.());
		if (!decision.ok) throw asError(decision.failure);
		const own = application?.allow ? decideForward(target, service.baseUrl, application.allow) : decision;
		if (!own.ok)
			throw new AgentError('access-denied', 'This path is not among those that this application may ask for.', {
				remedy: 'Add it to allow= in its line of the applications file if it should be.',
			});
		const added = options.serviceHeaders?.(service.baseUrl) ?? {};
		const secrets = [service.token, ...(options.secretValues?.() ?? [])];
		const more = options.headers?.() ?? [];
		return { method, url: decision.url, path: decision.path, more, added, secrets, ...service };
	}
}

const callerStoodStill = () =>
	new ForwardError(
		failure('request-timeout', 'The application did not continue its request.', {
			remedy: 'Send the body, and read the answer, without a pause.',
		}),
		408,
	);

const serviceWasSilent = ({ host }: URL, idleMs: number) =>
	new ForwardError(
		failure('request-timeout', `${host} did not answer for ${idleMs / 1000} s.`, {
			remedy: 'Check whether the service has carried out the request before you repeat it.',
			params: { host },
		}),
	);

interface Exchange {
	readonly method: (typeof FORWARDED_METHODS)[number];
	readonly url: URL;
	readonly path: string;
	readonly baseUrl: string;
	readonly token: string;
	/** What no answer may hold. */
	readonly secrets: readonly string[];
	readonly more: readonly string[];
	readonly added: Readonly<Record<string, string>>;
	readonly maxBytes: number;
	readonly headMs: number;
	/** Whose request it is. */
	readonly name: string;
}

async function exchange(
	request: IncomingMessage,
	response: ServerResponse,
	{ method, url, path, baseUrl, token, secrets, more, added, maxBytes, headMs, name }: Exchange,
	parts: {
		readonly network: ForwarderOptions['network'];
		readonly progress: Progress;
		readonly stands: (connection: Socket | null) => void;
		readonly signal: AbortSignal;
	},
): Promise<void> {
	const { network, progress, stands, signal } = parts;
	const length = request.headers['content-length'];
	let isWritten = false;
	let hasBegun = false;
	if (Number(length ?? 0) > maxBytes) throw tooLargeRequest();
	try {
		const answer = await ask();
		const { statusCode = 0 } = answer;
		const headers = checkAnswer(answer);
		const isEmpty = method === 'HEAD' || [204, 304].includes(statusCode) || answer.headers['content-length'] === '0';
		const plain = isEmpty ? null : unpacking(answer, answer.headers['content-encoding']);
		if (plain) {
			delete headers['content-encoding'];
			delete headers['content-length'];
		}
		if (method === 'HEAD') {
			response.writeHead(statusCode, headers);
			answer.resume();
			response.end();
			return;
		}
		const body = bounded(plain ?? answer, maxBytes, tooLargeAnswer);
		const searched = (from: AsyncIterable<Uint8Array>, secret: string) => withoutSecret(from, secret, holdsConnection);
		const pieces = progress.pass(secrets.reduce(searched, body), 'service');
		const begin = () => {
			response.writeHead(statusCode, headers);
			hasBegun = true;
		};
		const late = setTimeout(() => {
			if (response.headersSent) return;
			begin();
			sendHead(response);
		}, headMs);
		const first = await pieces.next().finally(() => clearTimeout(late));
		if (!hasBegun) begin();
		await pipeline(continued(first, pieces), response, { signal });
	} catch (error) {
		if (!hasBegun) throw asForwardError(error);
		// To end here would make a cut answer look whole.
		response.destroy();
	}

	/** @returns as it is, what has kept the request on this device. */
	function asForwardError(error: unknown): unknown {
		if (error instanceof ForwardError) return error;
		if (error instanceof AgentError) return new ForwardError({ ...error.failure, cause: error });
		const found = { ...classifyNetworkError(error, { host: url.host, proxy: network.proxyName(url) }), cause: error };
		return isWritten ? new ForwardError(found) : new AgentError(found.code, found.message, found);
	}

	function ask(): Promise<Answer> {
		const hasBody = request.headers['transfer-encoding'] !== undefined || Number(length) > 0;
		// An early end must not cut the connection on which the caller gets the reason.
		const { 'content-length': _, ...rest } = headersToService(request.headers, more);
		const chunks = progress.pass(request.iterator({ destroyOnReturn: false }), 'caller');
		return network.ask({
			...{ url, path, method, signal, idleMs: 0, keptFor: name },
			// A service may answer a body before it has read it, and then once more: nothing may follow it on its connection.
			...(!hasBody && { keeps: KEPT_MS }),
			onWrite(connection) {
				isWritten = true;
				stands(connection);
			},
			headers: {
				...rest,
				...added,
				// Last: after it, Node would write a Content-Disposition in another coding.
				...(hasBody && (length === undefined ? { 'transfer-encoding': 'chunked' } : { 'content-length': length })),
				// What comes packed all the same is unpacked: the Connection is searched for in it.
				'accept-encoding': 'identity',
				authorization: formatAuthorization({ scheme: 'Connection', credential: token }),
			},
			body: hasBody ? Readable.from(bounded(chunks, maxBytes, tooLargeRequest), { objectMode: false }) : null,
		});
	}

	function checkAnswer({ statusCode = 0, headers, httpVersion }: Answer): Record<string, string | string[]> {
		const names = Object.keys(headers).join('\n');
		const head = Buffer.from(JSON.stringify(headers));
		const isIn = (one: string) => names.includes(one.toLowerCase()) || createLeakGuard(one).push(head) === null;
		if (secrets.some(isIn)) throw holdsConnection();
		const coding = headers['transfer-encoding'] ?? 'chunked';
		if (!/^chunked$/i.test(coding)) throw packedUnasked(coding);
		// Node takes 0.9 and 2.0 as well, which have no such answers.
		if (!/^1\.[01]$/.test(httpVersion)) throw Object.assign(new Error('No HTTP/1.'), { code: 'HPE_INVALID_VERSION' });
		const location = typeof headers['location'] === 'string' ? headers['location'] : null;
		const local = location === null ? null : localLocation(location, url, baseUrl);
		if (statusCode >= 300 && statusCode < 400 && statusCode !== 304) throw redirected(statusCode, location, local);
		if (method !== 'HEAD' && Number(headers['content-length'] ?? 0) > maxBytes) throw tooLargeAnswer();
		// No body follows, and HTTP lets no length say so. Source: RFC 9110, 8.6.
		const { 'content-length': size, ...rest } = headersToCaller(headers);
		const sized = size !== undefined && statusCode !== 204 && { 'content-length': size };
		return { ...rest, ...sized, 'cache-control': 'no-store', ...(local !== null && { location: local }) };
	}

	/** Without the query of the target, which may hold a credential; of an address of an application, such as `mailto:`, the scheme alone. */
	function redirected(status: number, location: string | null, local: string | null): ForwardError {
		const to = location === null ? null : URL.parse(location, url);
		const named = to && (/^https?:$/.test(to.protocol) ? `${to.origin}${to.pathname}` : to.protocol);
		const target = named?.slice(0, 500) ?? 'no address';
		const asked = local?.replace(/\?.*/s, '');
		const remedy = asked
			? `Ask for ${asked} if the answer is wanted: no redirect is followed.`
			: 'Ask for the address that the service really has; a credential is never sent on to another address.';
		const params = { status, target, ...(asked && { path: asked }) };
		const message = `The service answered with a redirect (${status}) to ${target}.`;
		return new ForwardError({ ...failure('redirect-refused', message, { remedy, params }) }, 502);
	}

	function tooLargeRequest(): AgentError {
		return new AgentError('body-too-large', `The body may have at most ${maxBytes} bytes.`);
	}

	function holdsConnection(): AgentError {
		const message = `The answer of ${url.host} holds the Connection, the key or a secret header of this device, and is not passed on.`;
		return new AgentError('answer-withheld', message, { params: { host: url.host } });
	}

	/** It belongs to this connection, and was not asked for: no caller would know of it. Source: RFC 9112, 7.4. */
	function packedUnasked(coding: string): AgentError {
		const detail = cleanText(coding, 40);
		const message = `${url.host} sent an answer with the Transfer-Encoding "${detail}", which was not asked for.`;
		return new AgentError('bad-response', message, { params: { host: url.host, detail } });
	}

	function tooLargeAnswer(): AgentError {
		const message = `The answer of ${url.host} has more than ${maxBytes} bytes.`;
		return new AgentError('response-too-large', message, { remedy: 'Ask for less at once.' });
	}
}

async function* bounded(source: AsyncIterable<Buffer>, maxBytes: number, tooLarge: () => AgentError) {
	let size = 0;
	for await (const chunk of source) {
		size += chunk.length;
		if (size > maxBytes) throw tooLarge();
		yield chunk;
	}
}

async function* withoutSecret(source: AsyncIterable<Uint8Array>, secret: string, found: () => AgentError) {
	const guard = createLeakGuard(secret);
	for await (const chunk of source) {
		const safe = guard.push(chunk);
		if (!safe) throw found();
		if (safe.length > 0) yield safe;
	}
	const rest = guard.push(new Uint8Array(), true);
	if (!rest) throw found();
	yield rest;
}
