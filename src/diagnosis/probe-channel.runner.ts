/**
 * The checks of `idv-agent doctor` on the channel. While an agent runs, its word is taken: a second channel could end its
 * own. Without one the saved Connection opens a channel, which is closed again; nothing is registered, nothing is saved.
 */

import type { Clock } from '../base/clock.edge.ts';
import { plainDuration } from '../base/durations.ts';
import { asFailure, failure } from '../base/errors.ts';
import { type ChannelEvent, openChannel } from '../connection/channel.edge.ts';
import type { Runtime } from '../connection/runtime.runner.ts';
import { type Authorization, formatAuthorization, formatAuthorizationQuery } from '../protocol/authorization.ts';
import { channelUrl } from '../protocol/endpoints.ts';
import type { DeviceState } from '../state/device-state.ts';
import { serviceOf } from '../workflow/desired-registration.ts';
import { type Finding, failed, notApplicable, ok, warning } from './checks.ts';
import type { DaemonWord } from './probe-device.runner.ts';

/** For everything up to the upgrade, in milliseconds. */
const HANDSHAKE_MS = 4000;
/** A service that says nothing for so long after its channel was opened answers no ping, in milliseconds. */
const ANSWER_MS = 3000;
/** For the goodbye, in milliseconds. */
const CLOSE_MS = 500;
/** A heartbeat may be late by so much, in milliseconds. */
const LATE_MS = 10_000;

/** The word of a running agent. */
export function probeChannel(daemon: Exclude<DaemonWord, { kind: 'notRunning' }>): Finding {
	if (daemon.kind === 'unknown')
		return notApplicable('An agent runs that could not be asked; its channel is left alone.');
	const { state, sentence, problem, channel } = daemon.status;
	if (state === 'unpaired') return notApplicable('Not paired yet.');
	if (problem)
		return failed(asFailure({ ...problem, message: state === 'online' ? inFull(sentence, problem) : problem.message }));
	const flapping = daemon.status.warnings.find(({ code }) => code === 'channel-flapping');
	if (state === 'online' && flapping) return warning(asFailure(flapping));
	const line = channel.idleTimeout;
	const handled = line ? ` The line ends after ${line.seconds} s of silence, and the agent pings it in time.` : '';
	if (state === 'online') return ok(`The agent is online since ${channel.since ?? 'its start'}.${handled}`);
	return failed(failure('connection-lost', sentence));
}

/** An online device has a problem with something else, such as a move: only the sentence says with what. */
function inFull(sentence: string, { remedy }: { readonly remedy: string }): string {
	return sentence.endsWith(remedy) ? sentence.slice(0, -remedy.length).trim() : sentence;
}

/** What a running agent says of its heartbeats. */
export function probeHeartbeat(
	daemon: Exclude<DaemonWord, { kind: 'notRunning' }>,
	{ mode, cadenceMs, nowMs }: { mode: 'frame' | 'ping' | 'off'; cadenceMs: number; nowMs: number },
): Finding {
	if (daemon.kind === 'unknown' || daemon.status.state !== 'online') return notApplicable('No channel is open.');
	if (mode !== 'frame')
		return notApplicable(`Heartbeats are ${mode === 'off' ? 'switched off' : 'pings'} (service.heartbeatMode).`);
	const { lastHeartbeatAt, since } = daemon.status.channel;
	const agoMs = nowMs - Date.parse(lastHeartbeatAt ?? since ?? new Date(nowMs).toISOString());
	if (agoMs > 2 * cadenceMs + LATE_MS)
		return failed(failure('channel-silent', `The last heartbeat went out ${plainDuration(agoMs)} ago.`));
	return ok(
		lastHeartbeatAt === null
			? 'The first heartbeat is due.'
			: `The last one went out ${plainDuration(agoMs)} ago, and the service keeps the channel open.`,
	);
}

export interface TriedChannel {
	readonly handshake: Finding;
	/** Whether the service answers on the open channel. */
	answered(limitMs: number): Promise<Finding>;
	close(): Promise<void>;
}

const NOT_TRIED = (why: string): TriedChannel => ({
	handshake: notApplicable(why),
	answered: async () => notApplicable('No channel was opened.'),
	close: async () => {},
});

/** Opens a channel with the saved Connection. */
export async function tryChannel(parts: {
	readonly runtime: Runtime;
	readonly device: DeviceState;
	readonly userAgent: string;
	readonly clock: Clock;
}): Promise<TriedChannel> {
	const { runtime, device, userAgent, clock } = parts;
	const { resolved, credentials, network } = runtime;
	const { service } = resolved.settings;
	const baseUrl = serviceOf(resolved.settings, device);
	const saved = device.connections.findLast((connection) => connection.baseUrl === baseUrl);
	const token = saved?.token ?? credentials.provisioned;
	if (baseUrl === null) return NOT_TRIED('Nothing names a service yet.');
	if (!token)
		return NOT_TRIED(
			credentials.id === '' ? 'Not paired yet.' : 'No Connection is saved yet: the agent registers when it starts.',
		);

	const authorization: Authorization = { scheme: 'Connection', credential: token };
	const inQuery = service.channelAuth === 'query';
	const query = inQuery ? formatAuthorizationQuery(authorization) : undefined;
	const url = channelUrl(baseUrl, service.channelPath, query);
	const opened = Promise.withResolvers<Finding>();
	const spoken = Promise.withResolvers<Finding>();
	const ended = Promise.withResolvers<void>();
	const startedMs = clock.monotonicMs();
	const onEvent = (event: ChannelEvent) => {
		const ms = Math.round(clock.monotonicMs() - startedMs);
		if (event.type === 'opened') opened.resolve(ok(`Opened with the saved Connection in ${ms} ms.`));
		else if (event.type === 'confirmed') spoken.resolve(ok(`A ping was answered, ${ms} ms after the start.`));
		else if (event.type === 'ended') {
			const refused = failed(event.failure);
			const canRegister = credentials.reusable !== null && event.failure.code === 'credential-refused';
			const remedy = 'Nothing to do: the agent registers anew with its credential when it starts.';
			opened.resolve(canRegister ? warning({ ...event.failure, remedy }) : refused);
			spoken.resolve(refused);
			ended.resolve();
		}
	};
	const agent = network.channelAgent(url);
	const channel = openChannel(
		{
			url,
			authorization: inQuery ? null : formatAuthorization(authorization),
			userAgent,
			...(agent ? { agent } : {}),
			viaProxy: network.viaProxy(url),
			handshakeMs: HANDSHAKE_MS,
			// Proved by an answer only, and not by the time that has passed.
			proveAfterMs: 10 * ANSWER_MS,
			pingIntervalMs: 0,
			silenceLimitMs: 0,
			closeMs: CLOSE_MS,
			workflowId: saved?.request.workflowId,
		},
		onEvent,
	);
	const handshake = await opened.promise;
	return {
		handshake,
		async answered(limitMs) {
			if (handshake.status !== 'ok') return notApplicable('No channel was opened.');
			if (service.silenceLimitSeconds === 0)
				return notApplicable('This service need not answer a ping (service.silenceLimitSeconds is 0).');
			const silent = failure('channel-silent', `${url.host} has not answered a ping on the open channel.`);
			const cancel = clock.schedule(Math.min(limitMs, ANSWER_MS), () => spoken.resolve(failed(silent)));
			const found = await spoken.promise;
			cancel();
			return found;
		},
		async close() {
			channel.close(1000, '');
			await ended.promise;
		},
	};
}
