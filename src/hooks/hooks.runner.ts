/** Runs a site's commands when something happens to the device; what a command does changes nothing here. */
import type { Agent } from '../agent/agent.runner.ts';
import { type Counters, count } from '../base/counters.ts';
import { type Failure, failure } from '../base/errors.ts';
import type { Log } from '../base/log.edge.ts';
import { sentenceOf } from '../base/sentences.ts';
import { formatEvent } from '../events/feed.runner.ts';
import type { PairPreview, Status } from '../protocol/local-api.ts';
import type { Settings } from '../settings/table.ts';
import { createHooks, type HookReport } from './hooks.edge.ts';
import type { HookName } from './messages.ts';

export function runSiteHooks(parts: {
	readonly agent: Agent;
	readonly log: Log;
	readonly counters: Counters;
	readonly settings: () => Settings['hooks'];
	/** Of the helper unit: used when the settings say so. */
	readonly helperSocket: string;
	/** The agent's environment variables, of which the commands get a few. */
	readonly env: Readonly<Record<string, string | undefined>>;
}) {
	const { agent, log, counters, settings, helperSocket } = parts;
	const hooks = createHooks({
		env: parts.env,
		report(report) {
			count(counters.hooks, report.outcome.kind);
			logReport(log, report);
			if (settings().helper) agent.warn('hooks', helperProblem(report));
		},
	});
	let lastState = agent.state();
	let neededPerson = false;

	function run(hook: HookName, input: unknown): void {
		const { helper, [hook]: argv } = settings();
		// Without the helper the command would run with the agent's rights: it rather does not run.
		if (argv.length > 0) hooks.run({ hook, argv, input, socket: helper ? helperSocket : undefined });
	}

	function refused(reason: Failure): void {
		run('onPairingFailed', { ...reason, sentence: sentenceOf(reason, 'over') });
	}

	function reportNeed(status: Status): void {
		const needsPerson = status.state === 'blocked';
		if (needsPerson && !neededPerson) run('onNeedsPerson', status);
		// While a slow attempt is under way the device still needs one.
		if (needsPerson || status.state === 'online' || status.state === 'unpaired') neededPerson = needsPerson;
	}

	reportNeed(agent.status());
	const subscriptions = [
		agent.events.subscribe((entries) => {
			if (settings().onNotification.length === 0) return;
			for (const entry of entries)
				if (entry.type === 'notification') run('onNotification', JSON.parse(formatEvent(entry)));
		}),
		agent.onStatus(() => {
			const before = lastState;
			lastState = agent.state();
			if (lastState === before) return;
			const status = agent.status();
			if (lastState === 'online') run('onOnline', status);
			if (before === 'online') run('onOffline', status);
			reportNeed(status);
		}),
		agent.onPairing((outcome) => {
			if (outcome.kind === 'paired') run('onPaired', outcome.result);
			else refused(outcome.failure);
		}),
	];

	return {
		refused,
		/** Reports a scanned code that waits for a confirmation. */
		unconfirmed(preview: PairPreview, reason: Failure): void {
			const { baseUrl, host, hostInUnicode, workflowId, changes } = preview;
			const shown = { baseUrl, host, ...(hostInUnicode !== undefined && { hostInUnicode }), workflowId, changes };
			run('onPairingUnconfirmed', { ...reason, sentence: sentenceOf(reason, 'over'), ...shown });
		},
		close(): Promise<void> {
			for (const unsubscribe of subscriptions) unsubscribe();
			return hooks.close();
		},
	};
}

/** `null` when the helper has run the command, however that ended. */
function helperProblem({ hook, outcome }: HookReport): Failure | null {
	if (outcome.kind !== 'notStarted') return null;
	return failure('socket-failed', `The command of hooks.${hook} did not run: ${outcome.reason}.`, {
		remedy:
			'Look at systemctl status idv-agent-hooks.socket and journalctl -u "idv-agent-hooks@*"; hook-helper.conf of /usr/lib/idv-agent/drop-ins opens the socket.',
	});
}

/** The log redacts every line: a command may print anything. */
function logReport(log: Log, { hook, outcome, ms, stderr }: HookReport): void {
	const said = stderr === '' ? '' : `: ${stderr}`;
	switch (outcome.kind) {
		case 'exited':
			if (outcome.exitStatus === 0) log.info(`${hook} ended${said}`, { exitStatus: 0, ms });
			else log.warn(`${hook} failed${said}`, { exitStatus: outcome.exitStatus, ms });
			return;
		case 'killed':
			log.warn(`${hook} was ended by a signal${said}`, { signal: outcome.signal, ms });
			return;
		case 'timedOut':
			log.warn(`${hook} took too long and was ended${said}`, { ms });
			return;
		case 'dropped':
			log.warn(`${hook} was left out: too many were waiting, or the agent stops`);
			return;
		case 'notStarted':
			log.warn(`${hook} could not be started (${outcome.reason})`);
	}
}
