/**
 * The checks of `idv-agent doctor` on the channel. While an agent runs, its word is taken: a second channel could end its
 * own. Without one the saved Connection opens a channel, which is closed again; nothing is registered, nothing is saved.
 */
import { plainDuration } from '../base/durations.ts';
import { asFailure, type Failure, failure } from '../base/errors.ts';
import { joinSentences } from '../base/sentences.ts';
import { openChannel } from '../connection/channel.edge.ts';
import { channelAddress } from '../connection/channel-address.ts';
import type { Runtime } from '../connection/runtime.runner.ts';
import type { DeviceState } from '../state/device-state.ts';
import { statusSentence } from '../status/sentence.ts';
import { serviceOf } from '../workflow/desired-registration.ts';
import { type Finding, failed, notApplicable, ok, warning } from './checks.ts';
import type { DaemonWord } from './probe-device.runner.ts';

/** For everything up to the upgrade, in milliseconds. */
const HANDSHAKE_MS = 4000;
/** How long the service may take to answer the ping on the open channel, in milliseconds. */
const ANSWER_MS = 3000;
/** For the close handshake, in milliseconds. */
const CLOSE_MS = 500;
/** A heartbeat may be late by so much, in milliseconds. */
const LATE_MS = 10_000;
const UNSTEADY: ReadonlySet<string> = new Set(['channel-flapping', 'notifications-at-risk']);
const NO_CHANNEL = notApplicable('No channel is open.');
const NOT_REGISTERED = 'No Connection is saved yet: the agent registers when it starts.';

export function checkChannel(daemon: Exclude<DaemonWord, { kind: 'notRunning' }>): Finding {
	if (daemon.kind === 'unknown')
		return notApplicable('An agent runs but could not be asked; its channel is left alone.');
	const { state, sentence, summary, problem, channel } = daemon.status;
	if (state === 'unpaired') return notApplicable('Not paired yet.');
	const duplicate = daemon.status.warnings.find(({ code }) => code === 'duplicate-device');
	if (duplicate) return (state === 'online' ? warning : failed)(asFailure(duplicate));
	// An online device has a problem with something else, such as a move: only the sentence says with what.
	const other = { ...daemon.status, problem: problem && { ...problem, remedy: '', recovers: false } };
	// Of another address that is only tried, the settings tell it.
	const isOfTry = daemon.status.warnings.some(({ code }) => code === 'settings-not-followed');
	const next = channel.nextAttemptAt ? `The next try is at ${channel.nextAttemptAt}.` : '';
	if (problem && state === 'online' && !(isOfTry && summary.code === 'online-moving-service'))
		return failed(asFailure({ ...problem, message: joinSentences(statusSentence(other), next) }));
	if (problem && state !== 'online')
		return failed(asFailure({ ...problem, message: joinSentences(problem.message, next) }));
	const unsteady = daemon.status.warnings.find(({ code }) => UNSTEADY.has(code));
	if (state === 'online' && unsteady) return warning(asFailure(unsteady));
	const line = channel.idleTimeout;
	const handled = line ? ` The line ends after ${line.seconds} s of silence, and the agent pings it in time.` : '';
	if (state === 'online') return ok(`The agent is online since ${channel.since ?? 'its start'}.${handled}`);
	return failed(failure('connection-lost', sentence));
}

export function checkHeartbeat(
	daemon: Exclude<DaemonWord, { kind: 'notRunning' }>,
	{ mode, cadenceMs, nowMs }: { mode: 'frame' | 'ping' | 'off'; cadenceMs: number; nowMs: number },
): Finding {
	if (daemon.kind === 'unknown' || daemon.status.state !== 'online') return NO_CHANNEL;
	if (mode !== 'frame')
		return notApplicable(`Heartbeats are ${mode === 'off' ? 'switched off' : 'pings'} (service.heartbeatMode).`);
	const { lastHeartbeatAt, since } = daemon.status.channel;
	const sentMs = Date.parse(lastHeartbeatAt ?? since ?? new Date(nowMs).toISOString());
	const agoMs = nowMs - sentMs;
	// None can have been sent while there was no channel.
	const dueForMs = nowMs - Math.max(sentMs, Date.parse(since ?? new Date(sentMs).toISOString()));
	if (dueForMs > 2 * cadenceMs + LATE_MS)
		return failed(failure('channel-silent', `The last heartbeat was sent ${plainDuration(agoMs)} ago.`));
	if (lastHeartbeatAt === null) return ok('The first heartbeat is due.');
	return ok(`The last one was sent ${plainDuration(agoMs)} ago, and the service keeps the channel open.`);
}

/**
 * Opens a channel with the saved Connection. `answered` tells whether the service answers on the open channel.
 * @param told a failure of it. Default: as it is.
 */
export async function tryChannel(
	runtime: Runtime,
	device: DeviceState,
	userAgent: string,
	told = (met: Failure, _wasOnline: boolean) => met,
) {
	const { resolved, credentials, network } = runtime;
	const { service } = resolved.settings;
	const baseUrl = serviceOf(resolved.settings, device);
	const saved = device.connections.findLast((connection) => connection.baseUrl === baseUrl);
	const token = saved?.token ?? credentials.provisioned;
	if (baseUrl === null || !token) {
		const unpaired = credentials.id === '' ? 'Not paired yet.' : NOT_REGISTERED;
		const handshake = notApplicable(baseUrl === null ? 'No service is named yet.' : unpaired);
		return { handshake, answered: Promise.resolve(NO_CHANNEL), close: async () => {} };
	}

	const registered = saved?.request ?? { deviceId: '', workflowId: resolved.settings.workflowId ?? '' };
	const address = channelAddress(baseUrl, token, registered, service);
	const { url } = address;
	const opened = Promise.withResolvers<Finding>();
	const answered = Promise.withResolvers<Finding>();
	const ended = Promise.withResolvers<void>();
	const answers = service.silenceLimitSeconds !== 0;
	if (!answers)
		answered.resolve(notApplicable('This service need not answer a ping (service.silenceLimitSeconds is 0).'));
	const startedMs = performance.now();
	const channel = openChannel(
		{
			...address,
			secretValues: runtime.secretValues,
			headers: runtime.headersFor(baseUrl),
			userAgent,
			agent: network.channelAgent(url),
			proxy: network.proxyName(url),
			handshakeMs: HANDSHAKE_MS,
			// Confirmed by an answer only, not by the time that has passed.
			proveAfterMs: 10 * ANSWER_MS,
			pingIntervalMs: 0,
			silenceLimitMs: answers ? ANSWER_MS : 0,
			closeMs: CLOSE_MS,
			workflowId: saved?.request.workflowId,
		},
		(event) => {
			const ms = Math.round(performance.now() - startedMs);
			if (event.type === 'opened') opened.resolve(ok(`Opened with the saved Connection in ${ms} ms.`));
			if (event.type === 'confirmed') answered.resolve(ok(`A ping was answered, ${ms} ms after the start.`));
			if (event.type !== 'ended') return;
			const canRegister = credentials.reusable !== null && event.failure.code === 'credential-refused';
			const remedy = 'Nothing to do: the agent registers again with its credential when it starts.';
			const found = canRegister
				? warning({ ...event.failure, remedy })
				: failed(told(event.failure, saved?.worked === true));
			opened.resolve(found);
			answered.resolve(found);
			ended.resolve();
		},
	);
	const handshake = await opened.promise;
	return {
		handshake,
		answered: handshake.status === 'ok' ? answered.promise : Promise.resolve(NO_CHANNEL),
		async close() {
			channel.close(1000, '');
			await ended.promise;
		},
	};
}
