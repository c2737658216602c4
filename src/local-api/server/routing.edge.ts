/** Which route a request is for, and what its target is, whatever form the client writes it in. */
import type http from 'node:http';
import { join } from 'node:path';
import { LOCAL_ROUTES, LOCAL_SOCKETS } from '../../protocol/local-api.ts';
import { type ProblemResponse, problemResponse } from './problem-responses.ts';
import type { LocalListener, LocalRoute } from './types.edge.ts';

/** Clients that were told of a proxy write the whole address: its host takes precedence over the header. Source: RFC 9112, 3.2.2. */
export function readTarget(request: http.IncomingMessage): void {
	const [, host, rest = ''] = /^[a-z][\w+.-]*:\/\/([^/?#]*)(.*)$/is.exec(request.url ?? '') ?? [];
	if (host === undefined) return;
	request.url = rest.startsWith('/') ? rest : `/${rest}`;
	if (request.headers.host !== undefined) request.headers.host = host;
}

/** Also without the slash after it: who asks for that means the service. */
export const isForService = ({ url = '' }: http.IncomingMessage): boolean =>
	`${url.split('?')[0]}/`.startsWith(LOCAL_ROUTES.service);

/** Named with a weight above 0. Source: RFC 9110, 12.5.1. */
export const acceptsStream = ({ accept = '' }: http.IncomingHttpHeaders): boolean =>
	accept
		.split(',')
		.some((range) => /^\s*text\/event-stream\s*(;|$)/i.test(range) && !/;\s*q=0(\.0*)?\s*(;|$)/i.test(range));

const NAMES: Readonly<Record<LocalListener, string>> = {
	...LOCAL_SOCKETS,
	browser: 'the port for applications in a browser',
	probe: 'the port for health and metrics',
	page: 'the port of the page',
};
/** The methods that a route with method `*` takes. */
const METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE'];

/** The route that answers, or why none does. @param method as it came, `HEAD` included. @param path without the query. */
export function findRoute(
	{ routes, runDir }: { readonly routes: readonly LocalRoute[]; readonly runDir: string | null },
	listener: LocalListener,
	method: string,
	path: string,
): LocalRoute | ProblemResponse {
	const onPath = routesOn(routes, path);
	if (onPath.length === 0) return problemResponse(404, 'not-found', 'There is no such route.');
	const here = onPath.filter((route) => route.listeners.includes(listener));
	const takesIt = (route: LocalRoute) => methodsOf(route).includes(method);
	const found = here.find(takesIt);
	if (found) return found;
	const elsewhere = onPath.find(takesIt) ?? (here.length === 0 ? onPath[0] : undefined);
	const other = elsewhere?.listeners[0];
	if (elsewhere && other) {
		const asked = elsewhere.method === '*' ? path : `${elsewhere.method} ${path}`;
		const message = `${asked} is answered on ${NAMES[other]}, not on ${NAMES[listener]}.`;
		return problemResponse(403, 'access-denied', message, { remedy: whereToAsk(other, runDir) });
	}
	return problemResponse(405, 'method-not-allowed', `This route does not take ${method}.`, {
		headers: { Allow: here.flatMap(methodsOf).join(', ') },
	});
}

/** The routes on the path itself, else those on the longest prefix of it. */
function routesOn(routes: readonly LocalRoute[], path: string): readonly LocalRoute[] {
	const exact = routes.filter((route) => !route.prefix && route.path === path);
	if (exact.length > 0) return exact;
	const around = routes.filter((route) => route.prefix && path.startsWith(route.path));
	const longest = Math.max(...around.map((route) => route.path.length));
	return around.filter((route) => route.path.length === longest);
}

function methodsOf({ method }: LocalRoute): readonly string[] {
	if (method === '*') return METHODS;
	return method === 'GET' ? ['GET', 'HEAD'] : [method];
}

function whereToAsk(listener: LocalListener, runDir: string | null): string {
	if (!(listener in LOCAL_SOCKETS)) return `Ask on ${NAMES[listener]}.`;
	const path = runDir === null ? NAMES[listener] : join(runDir, NAMES[listener]);
	return `Ask on ${path}, as root or as a member of the group that owns it.`;
}
