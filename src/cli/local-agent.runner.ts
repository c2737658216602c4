/** The running agent as the commands see it: its client, its status, and the status as it changes. */
import { AgentError } from '../base/errors.ts';
import { createLocalClient, type LocalClient } from '../client/local-client.edge.ts';
import { LOCAL_ROUTES, type Status } from '../protocol/local-api.ts';
import type { SettingsSources } from '../settings/load.runner.ts';
import { choosePaths, type PathFlags } from '../settings/paths.runner.ts';
import type { Shell } from './output.runner.ts';

/** Of most commands; `--set` only of those that read the settings. */
export type AskFlags = PathFlags & { readonly set?: readonly string[] | undefined };

export function clientFor(shell: Shell, flags: AskFlags): LocalClient {
	return createLocalClient({ runDir: choosePaths(flags, shell.env).runDir });
}

/** For a question that may be answered without the agent. @throws whatever is not that none runs. */
export function nullIfAway(error: unknown): null {
	if (error instanceof AgentError && error.code === 'agent-not-running') return null;
	throw error;
}

/** The settings that an agent with these flags and this environment would have. */
export function sourcesOf(shell: Shell, flags: AskFlags): SettingsSources {
	return { paths: choosePaths(flags, shell.env), env: shell.env, sets: flags.set ?? [] };
}

export async function askStatus(client: LocalClient, within: { readonly deadlineMs?: number } = {}): Promise<Status> {
	return (await client.request('agent', 'GET', LOCAL_ROUTES.status, undefined, within)) as Status;
}

/** Calls back now and after every change, until the signal. @throws AgentError `agent-not-running` at its stop. */
export async function followStatus(
	client: LocalClient,
	onStatus: (status: Status, json: string) => void,
	signal?: AbortSignal,
): Promise<void> {
	for (;;) {
		const { reason } = await client.events(LOCAL_ROUTES.status, { signal }, ({ event, data }) => {
			if (event === 'status') onStatus(JSON.parse(data) as Status, data);
		});
		if (reason === 'aborted') return;
		if (reason !== 'slow') throw agentStopped();
	}
}

/** The first status, this one or a later one, that fits; the newest one when the time is over. */
export async function untilStatus(
	client: LocalClient,
	first: Status,
	fits: (status: Status) => boolean,
	seconds: number,
): Promise<Status> {
	if (fits(first) || seconds === 0) return first;
	const found = new AbortController();
	let newest = first;
	await followStatus(
		client,
		(status) => {
			newest = status;
			if (fits(status)) found.abort();
		},
		AbortSignal.any([found.signal, AbortSignal.timeout(seconds * 1000)]),
	);
	return newest;
}

/** The unexpected end of a stream. */
export function agentStopped(): AgentError {
	return new AgentError('agent-not-running', 'The agent has stopped.');
}
