/** Calls of `hooks.*`, each kept until `idv-agent hooks` has taken it. Runs no command: that program does, without the agent's rights. */
import type { Agent } from '../agent/agent.runner.ts';
import { type Counters, count } from '../base/counters.ts';
import { AgentError, type Failure, toFailure } from '../base/errors.ts';
import type { Log } from '../base/log.edge.ts';
import { sentenceOf } from '../base/sentences.ts';
import {
	HOOKS_CONSUMER,
	type HookCall,
	type HookReport,
	type PairPreview,
	type Status,
} from '../protocol/local-api.ts';
import type { Settings } from '../settings/table.ts';
import type { EventSink, StreamEvent } from './server/types.edge.ts';

type HookSettings = Settings['hooks'];
export type HookName = keyof HookSettings;

/** Calls that wait to be taken; further ones are dropped and logged. */
const MAX_WAITING = 64;

export type HookCalls = ReturnType<typeof keepHookCalls>;

export function keepHookCalls(parts: {
	readonly agent: Agent;
	readonly log: Pick<Log, 'warn'>;
	readonly counters: Pick<Counters, 'hooks'>;
	readonly settings: () => HookSettings;
	/** Differs at each start: an id of an earlier agent is none of this one. */
	readonly epoch: string;
}) {
	const { agent, log, counters, settings, epoch } = parts;
	const waiting = new Map<string, StreamEvent>();
	let reader: EventSink | null = null;
	let calls = 0;
	let lastState = agent.state();
	let neededPerson = false;

	const namesSet = () => (Object.keys(settings()) as HookName[]).filter((name) => settings()[name].length > 0);
	const tellNames = (): StreamEvent => ({ event: 'hooks', data: JSON.stringify(namesSet()) });

	function call(hook: Exclude<HookName, 'onNotification'>, input: unknown): void {
		if (settings()[hook].length === 0) return;
		if (waiting.size >= MAX_WAITING) {
			count(counters.hooks, 'dropped');
			log.warn(`${hook} was left out: too many were waiting`);
			return;
		}
		calls += 1;
		const id = `${epoch}-${calls}`;
		const event = { id, event: 'call', data: JSON.stringify({ hook, input } satisfies HookCall) };
		waiting.set(id, event);
		reader?.send(event);
	}

	function reportNeed(status: Status): void {
		const needsPerson = status.state === 'blocked';
		if (needsPerson && !neededPerson) call('onNeedsPerson', status);
		// While a slow attempt is under way the device still needs one.
		if (needsPerson || status.state === 'online' || status.state === 'unpaired') neededPerson = needsPerson;
	}

	const refused = (reason: Failure) => call('onPairingFailed', { ...reason, sentence: sentenceOf(reason, 'over') });

	reportNeed(agent.status());
	const subscriptions = [
		agent.onStatus(() => {
			const before = lastState;
			lastState = agent.state();
			if (lastState === before) return;
			const status = agent.status();
			if (lastState === 'online') call('onOnline', status);
			if (before === 'online') call('onOffline', status);
			reportNeed(status);
		}),
		agent.onPairing((outcome) => {
			if (outcome.kind === 'paired') call('onPaired', outcome.result);
			else refused(outcome.failure);
		}),
	];

	/** Notifications are kept from the moment on at which a hook for them is set, and no longer than it is. */
	function reevaluate(): void {
		try {
			if (settings().onNotification.length === 0) agent.events.forget(HOOKS_CONSUMER);
			else agent.events.join(HOOKS_CONSUMER, true);
		} catch (error) {
			agent.warn('hooks', toFailure(error));
		}
		reader?.send(tellNames());
	}
	reevaluate();

	return {
		refused,
		/** Reports a scanned code that waits for a confirmation. */
		unconfirmed(preview: PairPreview, reason: Failure): void {
			const { baseUrl, host, hostInUnicode, workflowId, changes } = preview;
			const shown = { baseUrl, host, ...(hostInUnicode !== undefined && { hostInUnicode }), workflowId, changes };
			call('onPairingUnconfirmed', { ...reason, sentence: sentenceOf(reason, 'over'), ...shown });
		},
		/** After a change of the settings. */
		reevaluate,
		isAnySet: () => namesSet().length > 0,
		/** A second program would run each command a second time. @throws AgentError `state-in-use`. */
		checkFree(): void {
			if (reader)
				throw new AgentError('state-in-use', 'Another program runs the commands of hooks.* already.', {
					remedy: 'systemd starts it: systemctl status idv-agent-hooks.',
				});
		},
		/** All that waits, then what comes. */
		follow(sink: EventSink): () => void {
			reader = sink;
			sink.send(tellNames());
			for (const event of waiting.values()) sink.send(event);
			return () => {
				if (reader === sink) reader = null;
			};
		},
		report({ id, outcome }: HookReport): { readonly waiting: number } {
			if (id !== undefined) waiting.delete(id);
			if (outcome !== 'started') count(counters.hooks, outcome);
			return { waiting: waiting.size };
		},
		/** The end of the agent is nothing that a hook is run for. */
		close(): void {
			for (const unsubscribe of subscriptions) unsubscribe();
		},
	};
}
