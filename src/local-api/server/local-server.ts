/**
 * The two Unix sockets on which the agent answers applications and its own command line: sockets, permissions, routing,
 * limits, error documents and event streams. The routes are a parameter.
 * Must never retry, log, or show the inside of an unexpected error to a caller.
 */
import type http from 'node:http';
import type { Failure } from '../../base/errors.ts';
import { LOCAL_SOCKETS } from '../../protocol/local-api.ts';
import { closeServer, createContext, shutDown } from './context.ts';
import { createServer } from './requests.ts';
import { clearStaleSocket, listen, makeRunDir, openToGroup, socketPath } from './sockets.ts';
import type { LocalServer, LocalServerOptions, LocalSocket } from './types.ts';

export { formatEvents } from './streams.ts';
export * from './types.ts';

const SOCKET_NAMES = Object.keys(LOCAL_SOCKETS) as LocalSocket[];

/**
 * Opens both sockets: mode 0660, or 0600 when a named group could not be given it (see `notices`). A socket that a
 * crash has left behind is replaced.
 * @throws AgentError `socket-failed`: another process listens there, the path is taken by something else, too long or
 * not writable.
 */
export async function openLocalServer(options: LocalServerOptions): Promise<LocalServer> {
	const context = createContext(options, { runDir: options.runDir, authorize: () => null });
	const paths = SOCKET_NAMES.filter((name) => !options.listen?.[name]).map((name) => socketPath(options.runDir, name));
	if (paths.length > 0) await makeRunDir(options.runDir);
	for (const path of paths) await clearStaleSocket(path);

	const servers: http.Server[] = [];
	const notices: Failure[] = [];
	try {
		for (const name of SOCKET_NAMES) {
			const server = createServer(context, name);
			const given = options.listen?.[name];
			const path = socketPath(options.runDir, name);
			await listen(server, given ?? path);
			servers.push(server);
			const notice = given ? null : await openToGroup(path, options.groups?.[name]);
			if (notice) notices.push(notice);
		}
	} catch (error) {
		await Promise.all(servers.map(closeServer));
		throw error;
	}

	let closed: Promise<void> | null = null;
	return {
		notices,
		close() {
			closed ??= shutDown(context, servers);
			return closed;
		},
	};
}
