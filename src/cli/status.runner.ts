/** `idv-agent status`, `reconnect` and `unpair`: showing the device's status, trying again now, and forgetting the pairing. */
import { EARLIEST_CLOCK_MS, plainDuration } from '../base/durations.ts';
import { asFailure, EXIT, failure } from '../base/errors.ts';
import { sentenceOf } from '../base/sentences.ts';
import { LOCAL_ROUTES, type Status } from '../protocol/local-api.ts';
import { type AskFlags, askStatus, clientFor, followStatus, untilStatus } from './local-agent.runner.ts';
import { counted, localTime, type Shell } from './output.runner.ts';

interface StatusFlags extends AskFlags {
	readonly watch?: boolean | undefined;
	readonly exitCode?: boolean | undefined;
}

/** The exit status of each state with `--exit-code`: done, try again, or a person is needed. */
const EXIT_OF: Readonly<Record<Status['state'], number>> = {
	online: 0,
	connecting: EXIT.temporary,
	offline: EXIT.temporary,
	unpaired: EXIT.refused,
	blocked: EXIT.refused,
};

export async function showStatus(shell: Shell, flags: StatusFlags): Promise<void> {
	const client = clientFor(shell, flags);
	if (!flags.watch) {
		const status = await askStatus(client);
		if (shell.isJson) shell.json(status);
		else printStatus(shell, status);
		if (flags.exitCode) shell.caller.exitCode = EXIT_OF[status.state];
		return;
	}
	let last = '';
	await followStatus(client, ({ sentence }, json) => {
		shell.isStream = true;
		if (shell.isJson) shell.line(json);
		else if (sentence !== last) shell.line(`${localTime(new Date().toISOString())}  ${sentence}`);
		last = sentence;
	});
}

function printStatus(shell: Shell, status: Status): void {
	const { channel } = status;
	const isWrong = status.warnings.some(({ code }) => code === 'clock-wrong');
	const since = channel.since ? ` since ${localTime(channel.since)}` : '';
	const rows = [
		['Device', [status.deviceId, status.deviceType].filter(Boolean).join(', ')],
		[
			'Service',
			status.pairedAt
				? `${status.baseUrl}, paired ${describePairedAt(status.pairedAt, status.pairedAtBy)}`
				: (status.baseUrl ?? 'none yet'),
		],
		['Workflow', describeWorkflow(status.workflow)],
		[
			'Channel',
			channel.state === 'none'
				? 'none'
				: `${CHANNEL_WORDS[channel.state] ?? channel.state}${since}, ${counted(channel.reconnects, 'reconnect')}`,
		],
		['Heartbeat', channel.lastHeartbeatAt ? localTime(channel.lastHeartbeatAt) : 'none yet'],
		...(channel.idleTimeout ? [['Line', describeLine(channel.idleTimeout)]] : []),
		...(channel.nextAttemptAt ? [['Next try', localTime(channel.nextAttemptAt) + describeAsked(status.problem)]] : []),
		...(status.plan ? [['Plan', describePlan(status.plan)]] : []),
		...(status.sessionId ? [['Session', status.sessionId]] : []),
		['Agent', `${status.agentVersion}, runs since ${localTime(status.startedAt)}`],
		...(isWrong ? [['Times', "by this device's clock, which is wrong"]] : []),
		...(status.problem ? [['Problem', status.problem.code]] : []),
		...status.warnings.map((warning) => ['Warning', sentenceOf(warning, 'ongoing')]),
	];
	shell.line(status.sentence);
	shell.line();
	shell.table(rows);
}

/** Otherwise a long wait looks like the agent's own. */
function describeAsked(problem: Status['problem']): string {
	const askedMs = problem?.retryAfterMs ?? 0;
	return askedMs > 0 ? ` (the service asked to wait for ${plainDuration(askedMs)})` : '';
}

function describeLine({ seconds, pingSeconds }: NonNullable<Status['channel']['idleTimeout']>): string {
	const handled = pingSeconds === null ? 'pinged in time from the next channel on' : `pinged every ${pingSeconds} s`;
	return `ends after ${seconds} s of silence; ${handled}`;
}

function describeWorkflow({ wanted: desired, live, source }: Status['workflow']): string {
	if (desired === null) return live ?? 'none';
	const from = source ? `, set by ${SOURCES[source]}` : '';
	return desired === live ? `${live}${from}` : `${live ?? 'none live'}; wanted is ${desired}${from}`;
}

/** `revision 7, rule lobby; workflow face-check at 12:00:00`, and which revision says so if it is another. */
export function describePlan({ revision, rule, next, refused }: NonNullable<Status['plan']>): string {
	const now =
		revision === null ? 'none yet' : `revision ${revision}, ${rule === null ? 'its defaults' : `rule ${rule}`}`;
	const later = next
		? `; ${next.revision === revision ? '' : `revision ${next.revision} with `}${next.workflowId === null ? 'no workflow' : `workflow ${next.workflowId}`} at ${localTime(next.at)}`
		: '';
	return `${now}${refused ? ' (not followed, see below)' : ''}${later}`;
}

/** The time, and whose it is where it is not that of this device's clock as it goes now. */
export function describePairedAt(iso: string, by: Status['pairedAtBy']): string {
	if (by === undefined) return localTime(iso);
	if (by === 'service') return `${localTime(iso)} (the service's time: this device's clock was wrong)`;
	const at = new Date(iso);
	// A clock that was set later may have been right at that time.
	const why = at.getTime() < EARLIEST_CLOCK_MS ? 'which was wrong' : 'which has been set back since';
	return `${at.toLocaleDateString('sv')} ${at.toTimeString().slice(0, 8)} (by this device's clock, ${why})`;
}

/** The states of a link whose names say too little to a person. */
const CHANNEL_WORDS: Partial<Readonly<Record<Status['channel']['state'], string>>> = {
	registerWait: 'waiting to register again',
	connectWait: 'waiting to connect again',
};

/** The source of the desired workflow, in words that say where to change it. */
export const SOURCES: Readonly<Record<NonNullable<Status['workflow']['source']>, string>> = {
	flag: '--set workflowId',
	environment: 'IDV_AGENT_WORKFLOW_ID',
	file: 'the settings files',
	plan: 'the fleet plan',
	pairing: 'the pairing',
	'workflow set': '"idv-agent workflow set"',
	'service message': 'a message of the service',
};

/** Has the agent try again at once, and waits until it is clear how that went. */
export async function reconnect(shell: Shell, flags: AskFlags & { readonly wait: number }): Promise<void> {
	const client = clientFor(shell, flags);
	const asked = (await client.request('admin', 'POST', LOCAL_ROUTES.reconnect)) as Status;
	const isTrying = ({ channel }: Status) => channel.state === 'registering' || channel.state === 'connecting';
	const status = await untilStatus(client, asked, (now) => !isTrying(now), flags.wait);
	if (status.state === 'online' || isTrying(status)) shell.answer(status, status.sentence);
	else reportProblem(shell, status);
}

export async function unpair(shell: Shell, flags: AskFlags & { readonly keepEvents?: boolean }): Promise<void> {
	const client = clientFor(shell, flags);
	const before = (await client.request('admin', 'GET', LOCAL_ROUTES.status)) as Status;
	const status = (await client.request('admin', 'POST', LOCAL_ROUTES.unpair, {
		keepEvents: flags.keepEvents ?? false,
	})) as Status;
	const also = flags.keepEvents ? '' : ' with its events';
	const kept = flags.keepEvents ? '' : '; events that were kept are erased';
	const done =
		status.state !== 'unpaired'
			? 'The Connection is forgotten, but the settings still hold a credential: the device registers again.'
			: before.state === 'unpaired'
				? `There was no Connection to forget${kept}.`
				: `Unpaired from ${before.baseUrl}: the Connection is forgotten${also}.`;
	shell.answer(status, `${done} ${status.sentence}`);
}

export function reportProblem(shell: Shell, status: Status): void {
	const { problem } = status;
	const told = problem ? asFailure(problem) : failure('unpaired', 'This device is not paired yet.');
	shell.fail(told, { status }, status.state === 'unpaired' ? 'over' : 'ongoing');
}
