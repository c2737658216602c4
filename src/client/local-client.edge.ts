/** The client of our own commands: both sockets by their directory, and every failure as an AgentError with its exit status. */
import { lstat } from 'node:fs/promises';
import { join } from 'node:path';
import { AgentError, knownCode } from '../base/errors.ts';
import { checkSocketPath } from '../base/files.edge.ts';
import { findGroup } from '../base/unix.edge.ts';
import { parseJson } from '../protocol/json.ts';
import { LOCAL_SOCKETS } from '../protocol/local-api.ts';
import { cleanText } from '../protocol/problem.ts';
import { AgentProblem } from './agent-problem.ts';
import { type Asked, ask, type FollowOptions, follow, type ServerSentEvent } from './agent-socket.edge.ts';

type LocalSocket = keyof typeof LOCAL_SOCKETS;

export type LocalClient = ReturnType<typeof createLocalClient>;

/** Opens nothing yet: each call makes a connection of its own. @param maxBytes of an answer; default as many as events may have. */
export function createLocalClient({ runDir, maxBytes }: { readonly runDir: string; readonly maxBytes?: number }) {
	/** @throws AgentError for what the agent refused. */
	async function on<Result>(socket: LocalSocket, run: (socketPath: string) => Promise<Result>): Promise<Result> {
		const path = checkSocketPath(join(runDir, LOCAL_SOCKETS[socket]));
		return run(path).catch(async (error: unknown) => {
			throw error instanceof AgentProblem ? await asAgentError(error, path, socket) : error;
		});
	}
	return {
		/** @returns the JSON of the answer, or what `read` makes of its text; `undefined` when it is empty. */
		request: (
			socket: LocalSocket,
			method: string,
			path: string,
			body?: unknown,
			{ deadlineMs = 15_000, read }: Partial<Pick<Asked, 'deadlineMs' | 'read'>> = {},
		): Promise<unknown> =>
			on(socket, (socketPath) => ask(socketPath, { method, path, body, deadlineMs, read, maxBytes })),
		/** Waits for `onEvent` before it reads on. @returns why the stream ended; `aborted` is the signal's doing. */
		events: (
			path: string,
			{ socket = 'agent', ...options }: FollowOptions & { readonly socket?: LocalSocket },
			onEvent: (event: ServerSentEvent) => void | Promise<void>,
		): Promise<{ readonly reason: string }> =>
			on(socket, async (socketPath) => {
				for await (const event of follow(socketPath, path, options)) {
					if (event.event === 'closed') return { reason: cleanText(String(Object(parseJson(event.data)).reason), 100) };
					await onEvent(event);
				}
				return { reason: 'aborted' };
			}),
	};
}

async function asAgentError(problem: AgentProblem, path: string, socket: LocalSocket): Promise<AgentError> {
	const { status, code, params, retryAfterMs } = problem;
	if (status === 0 && code === 'access-denied') {
		const stat = await lstat(path).catch(() => null);
		const group = stat ? ((await findGroup(stat.gid))?.name ?? stat.gid) : USUAL_GROUPS[socket];
		const told = `This user may not use ${path}, which is for root and group ${group}.`;
		const remedy = `Run the command as root or as a member of group ${group}.`;
		return new AgentError(code, told, { remedy, cause: problem });
	}
	const remedy = cleanText(problem.remedy, 1000);
	const details = { recovers: false, params, retryAfterMs, ...(remedy && { remedy }), cause: problem };
	// Our commands ask an agent that has stopped meanwhile as little as one that does not run.
	const known = status === 0 && code === 'connection-lost' ? 'agent-not-running' : knownCode(code);
	return new AgentError(known, cleanText(problem.message, 1000), details);
}

/** The group of a socket that cannot be looked at. */
const USUAL_GROUPS = { agent: 'idv-agent', admin: 'idv-agent-admin' } as const;
