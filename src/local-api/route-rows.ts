/** One row of the route table: its listeners, its body, its handler, its answers, and its words in the document. */
import type { AnswerName, DescribedRoute } from './openapi.ts';
import type { LocalReply, LocalRoute } from './server/local-server.edge.ts';

/** For applications, on every listener that they use. */
export const APPLICATIONS = ['agent', 'admin', 'browser'] as const;
export const ADMIN = ['admin'] as const;
/** Not for pages: the equipment of the device is not their concern. */
export const ON_SOCKETS = ['agent', 'admin'] as const;
export const HEALTH = ['agent', 'admin', 'browser', 'probe'] as const;

/** One route. Ties its handler to the schema of its body. */
export function row<Body = undefined>(
	method: DescribedRoute['method'],
	path: string,
	listeners: DescribedRoute['listeners'],
	name: string,
	more: Pick<LocalRoute<Body>, 'prefix' | 'body' | 'handle'> &
		Pick<DescribedRoute, 'summary' | 'description' | 'parameters' | 'answers'>,
): DescribedRoute {
	return { method, path, listeners, name, ...(more as typeof more & Pick<LocalRoute, 'body' | 'handle'>) };
}

export const answer = (about: string, schema: AnswerName | 'any') =>
	({ about, content: { 'application/json': schema } }) as const;
/** The data of each event of the stream has this schema. */
export const stream = (about: string, schema: AnswerName) =>
	({ about, content: { 'text/event-stream': schema } }) as const;
export const STATUS = { 200: answer('The state of the device now.', 'Status') };

export const ok = (body: unknown): LocalReply => ({ status: 200, body });
