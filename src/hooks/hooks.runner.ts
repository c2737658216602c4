/** Follows the agent on `agent.sock`, as applications do, and runs the site's commands for what it tells; takes each call when its command was started. */
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Failure, toFailure } from '../base/errors.ts';
import type { Log } from '../base/log.edge.ts';
import { createClient } from '../client/client.runner.ts';
import { createLocalClient } from '../client/local-client.edge.ts';
import type { HookName } from '../local-api/hook-calls.runner.ts';
import { HOOKS_CONSUMER, type HookCall, type HookReport, LOCAL_ROUTES, LOCAL_SOCKETS } from '../protocol/local-api.ts';
import type { Settings } from '../settings/table.ts';
import { createHooks, type HookOutcome } from './hooks.edge.ts';

/** Between two attempts to reach the agent, in milliseconds. */
const RETRY_MS = 1000;

/** @throws never; what keeps it from the agent is logged, and tried again until it is closed. */
export function followHooks(parts: {
	readonly runDir: string;
	readonly log: Log;
	/** Read for each call: no change is missed. */
	readonly settings: () => Promise<Settings['hooks']>;
	/** Variables of this process, of which commands get a few. */
	readonly env: Readonly<Record<string, string | undefined>>;
	/** No hook is set, or none any more. */
	readonly onNone: () => void;
}) {
	const { runDir, log, settings, env, onNone } = parts;
	const local = createLocalClient({ runDir });
	const application = createClient({ socketPath: join(runDir, LOCAL_SOCKETS.agent) });
	const hooks = createHooks({ env, report: reportEnd });
	const ending = new AbortController();
	let notifications: { readonly stop: AbortController; readonly over: Promise<void> } | null = null;
	let told = '';

	const tell = (report: HookReport) => local.request('agent', 'POST', LOCAL_ROUTES.hookReport, report);

	function reportEnd(hook: string, outcome: HookOutcome, ms: number, stderr: string): void {
		logEnd(log, hook, outcome, ms, stderr);
		// Only counted there.
		if (outcome.kind !== 'notStarted') void tell({ outcome: outcome.kind }).catch(() => {});
	}

	/** Logged once, however often it repeats. */
	function failed(error: unknown): void {
		const { message }: Failure = toFailure(error);
		if (message !== told) log.warn(`the agent cannot be followed, and is tried again: ${message}`);
		told = message;
	}

	/** Until it succeeds or the program ends; once in any case, since what was started has to be told. */
	async function again(signal: AbortSignal, act: () => Promise<unknown>): Promise<void> {
		do {
			try {
				await act();
				return;
			} catch (error) {
				if (!signal.aborted) failed(error);
			}
			await sleep(RETRY_MS, undefined, { signal }).catch(() => {});
		} while (!signal.aborted);
	}

	/** Resolves when the command was started or cannot be: `null` when this program ends before that. */
	async function run(hook: HookName, input: unknown): Promise<'started' | 'notStarted' | null> {
		const argv = (await settings())[hook];
		if (argv.length > 0) return hooks.run({ hook, argv, input });
		const reason = 'the agent has a command for it, and the settings of this program name none';
		reportEnd(hook, { kind: 'notStarted', reason }, 0, '');
		return 'notStarted';
	}

	async function followNotifications(signal: AbortSignal): Promise<void> {
		for await (const event of application.events({ consumer: HOOKS_CONSUMER, signal, onRetry: failed })) {
			if (event.type !== 'notification') continue;
			const outcome = await run('onNotification', event);
			// What was not taken comes again the next time.
			if (outcome === null) return;
			if (outcome === 'notStarted') void tell({ outcome }).catch(() => {});
		}
	}

	function take(names: readonly string[]): void {
		told = '';
		if (names.length === 0) onNone();
		if (!names.includes('onNotification')) notifications?.stop.abort();
		else if (!notifications || notifications.stop.signal.aborted) readNotifications();
	}

	function readNotifications(): void {
		const stop = new AbortController();
		const before = notifications?.over;
		const over = (async () => {
			await before;
			await again(AbortSignal.any([stop.signal, ending.signal]), () => followNotifications(stop.signal));
		})();
		notifications = { stop, over };
	}

	async function followCalls(): Promise<void> {
		await local.events(LOCAL_ROUTES.hookStream, { signal: ending.signal }, async ({ event, id, data }) => {
			if (event === 'hooks') return take(JSON.parse(data) as string[]);
			if (event !== 'call' || id === null) return;
			const { hook, input } = JSON.parse(data) as HookCall;
			const outcome = await run(hook as HookName, input);
			if (outcome !== null) await again(ending.signal, () => tell({ id, outcome }));
		});
		if (!ending.signal.aborted) throw new Error('the agent has ended the stream');
	}

	const calls = again(ending.signal, followCalls);
	return {
		/** Ends what runs. What was not started is told again to the next program. */
		async close(): Promise<void> {
			ending.abort();
			notifications?.stop.abort();
			await Promise.all([hooks.close(), calls, notifications?.over]);
		},
	};
}

/** The log redacts every line: a command may print anything. */
function logEnd(log: Log, hook: string, outcome: HookOutcome, ms: number, stderr: string): void {
	if (outcome.kind === 'notStarted') {
		log.warn(`${hook} could not be started (${outcome.reason})`);
		return;
	}
	const { how, ...fields } = ended(outcome);
	const said = stderr === '' ? '' : `: ${stderr}`;
	log[fields.exitStatus === 0 ? 'info' : 'warn'](`${hook} ${how}${said}`, {
		...fields,
		ms,
		params: { detail: stderr },
	});
}

function ended(outcome: Exclude<HookOutcome, { kind: 'notStarted' }>) {
	switch (outcome.kind) {
		case 'exited':
			return { how: outcome.exitStatus === 0 ? 'ended' : 'failed', exitStatus: outcome.exitStatus };
		case 'killed':
			return { how: 'was ended by a signal', signal: outcome.signal };
		case 'timedOut':
			return { how: 'took too long and was ended' };
	}
}
