/**
 * Passes an application's request on to the service, with the device's Connection added, and the answer back. Streams both
 * ways with back-pressure. Tries once within its bounds; follows no redirect, never shows the Connection, keeps nothing.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { AgentError, asError } from '../base/errors.ts';
import type { Answer } from '../connection/ask.edge.ts';
import { classifyNetworkError } from '../connection/classify-network-error.ts';
import type { Network } from '../connection/network.edge.ts';
import { formatAuthorization } from '../protocol/authorization.ts';
import { decideForward, headersToCaller, headersToService, localLocation } from './forward-rules.ts';
import { createLeakGuard } from './leak-guard.ts';
import { createPlaces } from './places.ts';
import { type BrowserApplication, SHARES } from './server/browser-applications.ts';

const METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE'] as const;

const FORWARD_LIMITS = {
	requestBytes: 64 * 1024 * 1024,
	/** Largest body of an answer, in bytes; a longer one is cut off by closing the connection. */
	answerBytes: 64 * 1024 * 1024,
	/** For the whole exchange, in milliseconds. */
	deadlineMs: 120_000,
	/** Longest silence of the service, in milliseconds. */
	idleMs: 30_000,
	atOnce: 16,
	/** Requests of one caller that wait for their turn; a further one is refused. */
	waiting: 64,
	/** Longest wait for a turn, in milliseconds. */
	waitMs: 30_000,
} as const;
export type ForwardLimits = { readonly [Name in keyof typeof FORWARD_LIMITS]: number };

export interface ForwarderOptions {
	readonly network: Pick<Network, 'pooled' | 'viaProxy'>;
	/** Where requests go and the Connection token for it, as they are now; `null` while there is none. */
	readonly target: () => { readonly baseUrl: string; readonly token: string } | null;
	/** Path prefixes that may be asked for; empty: all but the authorization endpoints. */
	readonly allow: () => readonly string[];
	/** Names of headers, in lower case, that go to the service besides the usual ones. Default: none. */
	readonly headers?: () => readonly string[];
	/** Headers of the settings that every request to this service has. Default: none. */
	readonly serviceHeaders?: (baseUrl: string) => Readonly<Record<string, string>>;
	/** Path at which this device registers: no application may ask for it. Default: the published one. */
	readonly registrationPath?: () => string;
	readonly limits?: Partial<ForwardLimits>;
}

/**
 * @param target the request line after the prefix, undecoded.
 * @throws AgentError before anything is answered: `access-denied`, `method-not-allowed`, `unpaired`, `body-too-large`,
 * `response-too-large`, `redirect-refused`, `service-overloaded` (too many at once), or the failure of the network. Once the
 * answer has begun, a failure closes the caller's connection instead.
 */
export type Forward = (
	request: IncomingMessage,
	response: ServerResponse,
	target: string,
	application?: BrowserApplication | null,
) => Promise<void>;

export function createForwarder(options: ForwarderOptions): Forward {
	const limits = { ...FORWARD_LIMITS, ...options.limits };
	/** By the name of an application; all callers on shared sockets are one. */
	const places = createPlaces();

	return async (request, response, target, application = null) => {
		const method = METHODS.find((known) => known === request.method);
		if (!method)
			throw new AgentError('method-not-allowed', `${request.method ?? 'This method'} is not passed on.`, {
				remedy: `Use one of ${METHODS.join(', ')}.`,
			});
		if (request.headers.authorization !== undefined)
			throw new AgentError('access-denied', "A caller's own Authorization is not passed on.", {
				remedy: 'Leave the header out: the agent adds its own.',
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
		const caller = application?.name ?? '';
		const atOnce = application ? (application.shares?.uploads ?? SHARES.uploads) : limits.atOnce;
		const over = new AbortController();
		const left = () => over.abort();
		response.once('close', left);
		const ends = AbortSignal.any([over.signal, AbortSignal.timeout(limits.waitMs)]);
		const release = await places.wait(caller, atOnce, limits.waiting, ends).catch(() => null);
		// There is no one left to answer.
		if (over.signal.aborted) return release?.();
		if (!release)
			throw new AgentError(
				'service-overloaded',
				`${atOnce} requests are being passed on already, and no turn came in time.`,
				{ remedy: 'Ask again in a moment.', retryAfterMs: 1000 },
			);
		try {
			const more = options.headers?.() ?? [];
			await exchange(
				request,
				response,
				{ method, url: decision.url, more, added: options.serviceHeaders?.(service.baseUrl) ?? {}, ...service },
				options.network,
				limits,
				over.signal,
			);
		} finally {
			response.removeListener('close', left);
			over.abort();
			release();
		}
	};
}

interface Exchange {
	readonly method: (typeof METHODS)[number];
	readonly url: URL;
	readonly baseUrl: string;
	readonly token: string;
	readonly more: readonly string[];
	readonly added: Readonly<Record<string, string>>;
}

async function exchange(
	request: IncomingMessage,
	response: ServerResponse,
	{ method, url, baseUrl, token, more, added }: Exchange,
	network: ForwarderOptions['network'],
	limits: ForwardLimits,
	left: AbortSignal,
): Promise<void> {
	const signal = AbortSignal.any([AbortSignal.timeout(limits.deadlineMs), left]);
	try {
		const answer = await asked();
		const { statusCode = 0 } = answer;
		const headers = checkAnswer(answer);
		if (method === 'HEAD') {
			response.writeHead(statusCode, headers);
			answer.resume();
			response.end();
			return;
		}
		const body = bounded(answer, limits.answerBytes, tooLargeAnswer);
		const safe = isMedia(headers['content-type']) ? body : withoutSecret(body, token, holdsConnection);
		// Until the first bytes of it another answer is still possible.
		const first = await safe.next();
		response.writeHead(statusCode, headers);
		await pipeline(continued(first, safe), response, { signal }).catch(() => {
			// The head is gone: to end here would make a cut answer look whole.
			response.destroy();
		});
	} catch (error) {
		if (error instanceof AgentError) throw error;
		const { code, ...found } = classifyNetworkError(error, { host: url.host, viaProxy: network.viaProxy(url) });
		throw new AgentError(code, found.message, { ...found, cause: error });
	}

	async function asked(): Promise<Answer> {
		const length = request.headers['content-length'];
		const hasBody = request.headers['transfer-encoding'] !== undefined || Number(length) > 0;
		if (Number(length ?? 0) > limits.requestBytes) throw tooLargeRequest();
		// An early end must not cut the connection on which the caller gets the reason.
		const chunks = request.iterator({ destroyOnReturn: false });
		return network.pooled({
			...{ url, method, signal, idleMs: limits.idleMs },
			headers: {
				...headersToService(request.headers, more),
				...added,
				...(hasBody && length !== undefined && { 'content-length': length }),
				// What is compressed could not be searched for the Connection.
				'accept-encoding': 'identity',
				authorization: formatAuthorization({ scheme: 'Connection', credential: token }),
			},
			body: hasBody
				? Readable.from(bounded(chunks, limits.requestBytes, tooLargeRequest), { objectMode: false })
				: null,
		});
	}

	function checkAnswer({ statusCode = 0, headers }: Answer): Record<string, string | string[]> {
		if (statusCode >= 300 && statusCode < 400 && statusCode !== 304)
			throw new AgentError('redirect-refused', `The service answered with a redirect (${statusCode}).`, {
				remedy: 'Ask for the address that the service really has; a credential is never sent on to another address.',
			});
		if (method !== 'HEAD' && Number(headers['content-length'] ?? 0) > limits.answerBytes) throw tooLargeAnswer();
		if (createLeakGuard(token).push(Buffer.from(JSON.stringify(headers))) === null) throw holdsConnection();
		const location = typeof headers['location'] === 'string' ? localLocation(headers['location'], url, baseUrl) : null;
		return { ...headersToCaller(headers), 'cache-control': 'no-store', ...(location !== null && { location }) };
	}

	function tooLargeRequest(): AgentError {
		return new AgentError('body-too-large', `The body may have at most ${limits.requestBytes} bytes.`);
	}

	function holdsConnection(): AgentError {
		const message = `The answer of ${url.host} holds the Connection of this device, and is not passed on.`;
		return new AgentError('answer-withheld', message, { params: { host: url.host } });
	}

	function tooLargeAnswer(): AgentError {
		const message = `The answer of ${url.host} has more than ${limits.answerBytes} bytes.`;
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

/** Pictures and sound are not searched. */
const isMedia = (type: string | string[] | undefined) =>
	/^\s*(?:image\/(?!svg)|audio\/|video\/|font\/)/i.test(String(type));

async function* withoutSecret(source: AsyncIterable<Buffer>, secret: string, found: () => AgentError) {
	const guard = createLeakGuard(secret);
	for await (const chunk of source) {
		const safe = guard.push(chunk);
		if (!safe) throw found();
		if (safe.length > 0) yield safe;
	}
	yield guard.rest();
}

async function* continued(first: IteratorResult<Uint8Array, unknown>, rest: AsyncGenerator<Uint8Array>) {
	if (first.done) return;
	yield first.value;
	yield* rest;
}
