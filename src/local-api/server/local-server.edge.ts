/**
 * The two Unix sockets on which the agent answers applications and its own command line: their permissions, the files that a
 * crash left behind, and the server on them. The routes are a parameter.
 * Must never retry, log, or show the inside of an unexpected error to a caller.
 */
import { once } from 'node:events';
import fs from 'node:fs';
import type http from 'node:http';
import net from 'node:net';
import { join } from 'node:path';
import { AgentError, type Failure, failure } from '../../base/errors.ts';
import { checkSocketPath, errnoOf, isOutOfRoom, makeDirectory, roomRemedy } from '../../base/files.edge.ts';
import { findGroup } from '../../base/unix.edge.ts';
import { LOCAL_SOCKETS } from '../../protocol/local-api.ts';
import { type BrowserApplication, letInAs } from './browser-applications.edge.ts';
import { type Authorize, closeServer, createContext, createServer, shutDown } from './requests.edge.ts';
import type { LocalServer, LocalServerOptions, LocalSocket, ServingOptions } from './types.edge.ts';

export { formatEvent } from './answers.edge.ts';
export * from './types.edge.ts';

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
	if (paths.length > 0)
		try {
			makeDirectory(options.runDir, 0o755);
		} catch (error) {
			throw socketFailed(`Cannot make the run directory ${options.runDir}`, error);
		}
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
	return { notices, close: () => (closed ??= shutDown(context, servers)) };
}

/** The socket of one application, `apps/NAME.sock`: who connects there is that application. @throws as above. */
export async function openApplicationSocket(
	options: ServingOptions & { readonly runDir: string; readonly application: BrowserApplication },
): Promise<LocalServer> {
	const { runDir, application } = options;
	const authorize: Authorize = (request) => {
		letInAs(request, application);
		return null;
	};
	const context = createContext(options, { runDir, authorize });
	const path = checkSocketPath(join(runDir, 'apps', `${application.name}.sock`));
	try {
		makeDirectory(join(runDir, 'apps'), 0o755);
	} catch (error) {
		throw socketFailed(`Cannot make the directory ${join(runDir, 'apps')}`, error);
	}
	await clearStaleSocket(path);
	const server = createServer(context, 'agent');
	await listen(server, path);
	const notice = await openToGroup(path, application.socket);
	let closed: Promise<void> | null = null;
	const end = async () => {
		await shutDown(context, [server]);
		// With the last of them; other sockets keep it.
		await fs.promises.rmdir(join(runDir, 'apps')).catch(() => {});
	};
	return { notices: notice ? [notice] : [], close: () => (closed ??= end()) };
}

function socketPath(runDir: string, name: LocalSocket): string {
	return checkSocketPath(join(runDir, LOCAL_SOCKETS[name]));
}

async function clearStaleSocket(path: string): Promise<void> {
	try {
		const found = fs.lstatSync(path, { throwIfNoEntry: false });
		if (!found) return;
		if (!found.isSocket())
			throw new AgentError('socket-failed', `${path} is there already and is not a socket.`, {
				remedy: 'Move it away, or choose another run directory.',
			});
		if (await isLive(path))
			throw new AgentError('socket-failed', `Another process listens on ${path}.`, {
				remedy: 'Stop the other agent, or give this one a run directory of its own.',
			});
		fs.unlinkSync(path);
	} catch (error) {
		throw error instanceof AgentError ? error : socketFailed(`Cannot replace ${path}`, error);
	}
}

/** Whether a process accepts connections there. Throws when that cannot be determined. */
async function isLive(path: string): Promise<boolean> {
	const probe = net.connect(path);
	try {
		await once(probe, 'connect');
		return true;
	} catch (error) {
		// A full backlog: a process is there, only busy.
		if (errnoOf(error) === 'EAGAIN') return true;
		if (['ECONNREFUSED', 'ENOENT'].includes(errnoOf(error))) return false;
		throw error;
	} finally {
		probe.destroy();
	}
}

/** @param target a path, or a socket that is open already. */
async function listen(server: http.Server, target: string | { readonly fd: number }): Promise<void> {
	try {
		const listening = once(server, 'listening');
		// The socket is bound inside this call: no other user may connect before its group is right.
		const umask = process.umask(0o177);
		try {
			server.listen(target);
		} finally {
			process.umask(umask);
		}
		await listening;
	} catch (error) {
		const what = typeof target === 'string' ? `Cannot listen on ${target}` : 'Cannot use the socket given';
		throw socketFailed(what, error);
	}
}

/** Lets the group in. With a group that was asked for and could not be had, only the owner: never the wrong group. */
export async function openToGroup(
	path: string,
	group: string | number | undefined,
	mode = 0o660,
): Promise<Failure | null> {
	try {
		if (group !== undefined) {
			const gid = /^\d+$/.test(String(group)) ? Number(group) : (await findGroup(group))?.gid;
			if (gid === undefined)
				return failure('socket-failed', `There is no group ${group}: only its owner may use ${path}.`, {
					remedy: 'Make the group (systemd-sysusers does), or name another, and start the agent again.',
					params: { group: String(group) },
				});
			// The service's own filter of system calls forbids what changes nothing, too.
			if (fs.statSync(path).gid !== gid) fs.chownSync(path, -1, gid);
		}
		fs.chmodSync(path, mode);
		return null;
	} catch (error) {
		const groupName = group === undefined ? 'its group' : `group ${group}`;
		const reason = errnoOf(error) || String(error);
		return failure('socket-failed', `Cannot open ${path} to ${groupName} (${reason}): only its owner may use it.`, {
			remedy: 'Make the user of the agent a member of the group, and start the agent again.',
		});
	}
}

export function socketFailed(what: string, error: unknown): AgentError {
	const code = isOutOfRoom(error) ? 'memory-low' : 'socket-failed';
	return new AgentError(code, `${what} (${errnoOf(error) || String(error)}).`, { cause: error, ...roomRemedy(error) });
}
