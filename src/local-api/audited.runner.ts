/** Has the audit log record what is asked at an entrance. Only what may change something: a reader leaves no entry. */
import type { Audit } from '../audit/audit.runner.ts';
import { toFailure } from '../base/errors.ts';
import type { LocalRoute } from './server/local-server.edge.ts';

/** The same route, recorded under this name. Neither bodies nor words of the caller are written down. */
export function audited<Route extends Pick<LocalRoute, 'method' | 'handle'>>(
	route: Route,
	{ action, entrance, audit }: { action: string; entrance: string; audit: Pick<Audit, 'record' | 'settled'> },
): Route {
	if (route.method === 'GET') return route;
	return {
		...route,
		async handle(request: Parameters<Route['handle']>[0]) {
			try {
				const reply = await route.handle(request);
				audit.record({ action, entrance, result: 'ok', ...countOf('body' in reply ? reply.body : null) });
				// The entry is there for the caller who is told that it is done, whatever ends the agent next.
				await audit.settled();
				return reply;
			} catch (error) {
				const { code, params } = toFailure(error);
				audit.record({ action, entrance, result: code, ...countOf(params) });
				throw error;
			}
		},
	};
}

/** @param told an answer, or the parameters of a failure. */
function countOf(told: unknown): { count?: number } {
	const { erased } = Object(told) as { erased?: unknown };
	return typeof erased === 'number' ? { count: erased } : {};
}
