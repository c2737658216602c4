/**
 * A route table on a TCP port of 127.0.0.1: for applications that live in a browser, for health and metrics, which a scraper
 * cannot ask for on a Unix socket, or for the agent's own page. Must never listen anywhere else, nor answer an unknown page.
 *
 * Authorizes callers on loopback. Every page that this device's browser shows can send requests here, under a name of its own
 * that leads to 127.0.0.1 or blindly to the address: the Host reveals the first, Origin and fetch metadata the second.
 * Other programs and users of the device come without either: they need the token.
 */
import { createHash, timingSafeEqual } from 'node:crypto';
import { once } from 'node:events';
import type http from 'node:http';
import { AgentError } from '../../base/errors.ts';
import { errnoOf, isOutOfRoom } from '../../base/files.edge.ts';
import { type BrowserApplication, callerOf, letInAs } from './browser-applications.edge.ts';
import { socketFailed } from './local-server.edge.ts';
import { type ProblemResponse, problemResponse } from './problem-responses.ts';
import { type Authorize, createContext, createServer, shutDown } from './requests.edge.ts';
import { acceptsStream } from './routing.edge.ts';
import type { ReplyHeaders, ServingOptions } from './types.edge.ts';

export { type BrowserApplication, parseApplications, readApplicationsText } from './browser-applications.edge.ts';

export type LoopbackServerOptions = ServingOptions & {
	/** 1 to 65,535; 0 takes a free one. */
	readonly port: number;
} & (
		| {
				/** Routes with `browser` among their `listeners`, for the pages of these applications only. */
				readonly listener: 'browser';
				/** As they are now: asked for each request. */
				readonly applications: () => readonly BrowserApplication[];
		  }
		| {
				/** Routes with `probe` among their `listeners`, for every program on this device, but no page in a browser. */
				readonly listener: 'probe';
		  }
		| {
				/** Routes with `page` among their `listeners`, for the page that they serve. */
				readonly listener: 'page';
				/** On every answer. */
				readonly headers: ReplyHeaders;
		  }
	);

/** Listens on 127.0.0.1. @throws AgentError `socket-failed` when the port is taken or may not be used. */
export async function openLoopbackServer(options: LoopbackServerOptions) {
	let authorize = authorizeProbes;
	if (options.listener === 'browser') authorize = authorizeBrowsers(options.applications);
	if (options.listener === 'page') authorize = authorizePage(options.headers);
	const context = createContext(options, { runDir: null, authorize });
	const server = createServer(context, options.listener);
	try {
		await once(server.listen({ host: '127.0.0.1', port: options.port }), 'listening');
	} catch (error) {
		if (isOutOfRoom(error)) throw socketFailed(`Cannot listen on 127.0.0.1:${options.port}`, error);
		const reason = errnoOf(error) || String(error);
		throw new AgentError('socket-failed', `Cannot listen on 127.0.0.1:${options.port} (${reason}).`, {
			remedy: 'Choose another port, or stop the program that uses it.',
			cause: error,
		});
	}
	const address = server.address();
	let closed: Promise<void> | null = null;
	return {
		/** The one it listens on. */
		port: typeof address === 'object' && address ? address.port : options.port,
		/** Ends what is under way for an application that may not ask any more, or not as it did. */
		dismiss(): void {
			const known = options.listener === 'browser' ? options.applications().map((each) => JSON.stringify(each)) : [];
			for (const response of [...context.pending.values()].flatMap((answers) => [...answers])) {
				const caller = callerOf(response.req);
				if (caller && !known.includes(JSON.stringify(caller))) response.destroy();
			}
		},
		/** Ends streams as `stopping`, gives requests under way a second. */
		close: () => (closed ??= shutDown(context, [server])),
	};
}

/** Where an EventSource, which can send no headers, puts the token. Source: RFC 6750, 2.3. */
const TOKEN_PARAMETER = 'access_token';
/** How long a browser may remember that an application is known, in seconds. */
const PREFLIGHT_SECONDS = 600;

/** Programs on this device may read; a page in a browser may not. */
const authorizeProbes: Authorize = (request, response) => {
	response.setHeader('X-Content-Type-Options', 'nosniff');
	const site = request.headers['sec-fetch-site'];
	if (request.headers.origin !== undefined || (site !== undefined && site !== 'none'))
		return problemResponse(403, 'access-denied', 'Pages in a browser cannot ask here.', {
			remedy: 'Use a scraper or curl.',
		});
	return refuseForeignHost(request);
};

/**
 * Lets in pages of a known origin that have the token of that very origin: `Authorization: Bearer …`, or `?access_token=`
 * for an event stream. Takes the token off the request, so that no handler sees it or passes it on.
 */
function authorizeBrowsers(applications: () => readonly BrowserApplication[]): Authorize {
	return (request, response) => {
		const token = takeToken(request);
		response.setHeader('Vary', 'Origin');
		response.setHeader('X-Content-Type-Options', 'nosniff');
		const foreign = refuseForeignHost(request);
		if (foreign) return foreign;
		const { origin } = request.headers;
		const known = applications().filter((application) => application.origin === origin);
		if (origin === undefined || known.length === 0)
			return problemResponse(
				403,
				'access-denied',
				origin === undefined ? 'Only a page in a browser can ask here.' : 'The origin of this page is not known here.',
				{ remedy: 'Give the application an origin and a token of its own, or ask on agent.sock.' },
			);
		response.setHeader('Access-Control-Allow-Origin', origin);
		if (request.method === 'OPTIONS') return preflight(request);
		response.setHeader('Access-Control-Expose-Headers', '*');
		const caller = known.find((application) => isSameSecret(application.token, token ?? ''));
		if (caller) {
			letInAs(request, caller);
			return null;
		}
		return problemResponse(
			401,
			'access-denied',
			token === null ? 'There is no token.' : 'The token is not the one of this origin.',
			{
				remedy: `Send Authorization: Bearer and the application's token; only an EventSource may put it into ${TOKEN_PARAMETER}.`,
				headers: { 'WWW-Authenticate': 'Bearer' },
			},
		);
	};
}

/** Lets in the page that this server serves, and a link that opens it; no other page, frame or script. */
function authorizePage(headers: ReplyHeaders): Authorize {
	return (request, response) => {
		for (const [name, value] of Object.entries(headers)) response.setHeader(name, value);
		response.setHeader('X-Content-Type-Options', 'nosniff');
		const foreign = refuseForeignHost(request);
		if (foreign) return foreign;
		const { method, url, headers: sent } = request;
		const reads = method === 'GET' || method === 'HEAD';
		const site = sent['sec-fetch-site'];
		const opens = reads && url === '/' && sent['sec-fetch-dest'] === 'document';
		const isOwnSite = site === undefined || site === 'same-origin' || site === 'none' || opens;
		const isOwnOrigin = sent.origin === `http://${sent.host}` || (reads && sent.origin === undefined);
		if (isOwnSite && isOwnOrigin) return null;
		return problemResponse(403, 'access-denied', 'The request did not come from the page itself.', {
			remedy: `Open http://127.0.0.1:${request.socket.localPort}/ on the device itself.`,
		});
	};
}

/** The request that a browser sends before the request itself. All is allowed: routes and token decide, and can say why not. */
function preflight({ headers }: http.IncomingMessage) {
	const asked = headers['access-control-request-headers'] ?? '';
	return {
		status: 204,
		headers: {
			'Access-Control-Allow-Methods': 'GET, HEAD, POST, PUT, PATCH, DELETE',
			'Access-Control-Allow-Headers': /^[\w, -]*$/.test(asked) ? asked : '',
			'Access-Control-Max-Age': String(PREFLIGHT_SECONDS),
			...(headers['access-control-request-private-network'] && { 'Access-Control-Allow-Private-Network': 'true' }),
		},
	};
}

function refuseForeignHost({ headers, socket }: http.IncomingMessage): ProblemResponse | null {
	const port = socket.localPort;
	const own = ['127.0.0.1', 'localhost'].flatMap((name) => [`${name}:${port}`, ...(port === 80 ? [name] : [])]);
	if (own.includes(headers.host?.toLowerCase() ?? '')) return null;
	return problemResponse(403, 'access-denied', 'This is not the address of the agent.', {
		remedy: `Ask http://127.0.0.1:${port}/ on the device itself.`,
	});
}

/** Takes the token off, wherever it is; `null` where it may not be there, or there is none. */
function takeToken(request: http.IncomingMessage): string | null {
	const [path = '', ...rest] = (request.url ?? '').split('?');
	const isToken = (parameter: string) => parameter.startsWith(`${TOKEN_PARAMETER}=`);
	const parameters = rest.join('?').split('&');
	const kept = parameters.filter((parameter) => !isToken(parameter));
	if (kept.length < parameters.length) request.url = kept.length > 0 ? `${path}?${kept.join('&')}` : path;
	const inHeader = /^Bearer +(\S+)$/i.exec(request.headers.authorization ?? '')?.[1];
	const { headers, rawHeaders } = request;
	delete headers.authorization;
	// The value is only emptied: Node knows the length of the list.
	for (let at = 0; at < rawHeaders.length; at += 2)
		if (rawHeaders[at]?.toLowerCase() === 'authorization') rawHeaders[at + 1] = '';
	if (inHeader !== undefined) return inHeader;
	const isStream = request.method === 'GET' && acceptsStream(headers);
	const inQuery = parameters.find(isToken)?.slice(TOKEN_PARAMETER.length + 1);
	return isStream ? (inQuery ?? null) : null;
}

export function isSameSecret(secret: string, given: string): boolean {
	const digest = (text: string) => createHash('sha256').update(text).digest();
	return timingSafeEqual(digest(secret), digest(given));
}
