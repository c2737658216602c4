/**
 * Performs what the lifecycle asks for: one request, one channel and one timer for each link, each ended with it.
 * Decides nothing and retries nothing; what happened goes back as an event with the attempt's number.
 */

import type { Connection, Credential, LinkEffect, LinkEvent } from '../core/link.ts';
import type { Settings } from '../core/settings.ts';
import type { Registration } from '../core/supervisor.ts';
import type { Channel, ChannelEvent, ChannelOptions } from '../edges/channel.ts';
import type { Network } from '../edges/network.ts';
import type { ServiceClient } from '../edges/service-client.ts';
import type { Authorization } from '../protocol/authorization.ts';
import { formatAuthorization, formatAuthorizationQuery } from '../protocol/authorization.ts';
import type { Frame } from '../protocol/channel.ts';
import { DEFAULT_HEARTBEAT_CADENCE } from '../protocol/device-connection.ts';
import { channelUrl } from '../protocol/endpoints.ts';
import type { TokenLife } from '../protocol/token-life.ts';
import type { Clock } from './clock.ts';
import { startHeartbeats } from './heartbeats.ts';

export interface LinkRunnerOptions {
	readonly clock: Clock;
	readonly startedAtMs: number;
	readonly userAgent: string;
	/** Asked anew for each attempt: settings may change in the meantime. */
	readonly environment: () => {
		readonly settings: Settings;
		readonly network: Network;
		readonly client: ServiceClient;
		/** The reusable credential, or `null`. */
		readonly reusable: Authorization | null;
	};
	readonly openChannel: (options: ChannelOptions, listener: (event: ChannelEvent) => void) => Channel;
	readonly report: {
		readonly event: (generation: number, event: LinkEvent) => void;
		readonly frame: (generation: number, frame: Frame) => void;
		readonly heartbeat: (generation: number, sentAt: string) => void;
		/** How far the device's clock is ahead of the service's, when an answer tells. */
		readonly clockSkew: (skewMs: number) => void;
	};
}

export interface LinkRunner {
	/** Performs one effect of a link. `keepConnection` is not for here: it changes the device's state. */
	perform(
		generation: number,
		registration: Registration,
		effect: Exclude<LinkEffect, { type: 'keepConnection' }>,
	): void;
	/** Ends whatever is left of a link. A channel that was told to close says goodbye first. */
	end(generation: number): void;
	/** Resolves when every channel that is saying goodbye has gone; each takes a few seconds at most. */
	drained(): Promise<void>;
}

interface Running {
	request: AbortController | null;
	channel: Channel | null;
	stopHeartbeats: () => void;
	cancelTimer: () => void;
}

/** After the upgrade, a pong, a frame or this much time proves that the service really has the channel. */
const PROVE_AFTER_MS = 3000;
const MAX_PING_INTERVAL_MS = 30_000;
const LEAST_SILENCE_MS = 10_000;

export function createLinkRunner(options: LinkRunnerOptions): LinkRunner {
	const { clock, report } = options;
	const links = new Map<number, Running>();
	/** Channels that were told to close and are not gone yet. */
	const leaving = new Set<Channel>();
	let onDrained: (() => void)[] = [];

	const running = (generation: number): Running => {
		const known = links.get(generation);
		if (known) return known;
		const fresh: Running = { request: null, channel: null, stopHeartbeats: () => {}, cancelTimer: () => {} };
		links.set(generation, fresh);
		return fresh;
	};

	const register = async (generation: number, registration: Registration, attempt: number, credential: Credential) => {
		const { client, settings, reusable } = options.environment();
		const link = running(generation);
		const abort = new AbortController();
		link.request = abort;
		const result = await client.registerDevice({
			baseUrl: registration.baseUrl,
			authorization: authorizationFor(credential, reusable),
			request: registration.request,
			...(settings.service.tokenPointer === null ? {} : { tokenPointer: settings.service.tokenPointer }),
			signal: abort.signal,
		});
		if (abort.signal.aborted) return;
		link.request = null;
		if (result.clockSkewMs !== null) report.clockSkew(result.clockSkewMs);
		const atMs = clock.monotonicMs();
		if (result.ok)
			report.event(generation, {
				type: 'registered',
				attempt,
				atMs,
				connection: connectionFrom(result, atMs, clock.wallMs()),
			});
		else {
			const timedOut = result.failure.code === 'request-timeout' || result.failure.code === 'connect-timeout';
			report.event(generation, { type: 'registerFailed', attempt, atMs, failure: result.failure, timedOut });
		}
	};

	const open = (
		generation: number,
		registration: Registration,
		effect: Extract<LinkEffect, { type: 'openChannel' }>,
	) => {
		const { settings, network } = options.environment();
		const { service } = settings;
		const link = running(generation);
		link.channel?.terminate();
		const authorization: Authorization = { scheme: 'Connection', credential: effect.token };
		const inQuery = service.channelAuth === 'query';
		const url = channelUrl(
			registration.baseUrl,
			service.channelPath,
			inQuery ? formatAuthorizationQuery(authorization) : undefined,
		);
		const cadenceMs = (registration.request.heartbeatCadence ?? DEFAULT_HEARTBEAT_CADENCE) * 1000;
		const pingIntervalMs = service.heartbeatMode === 'ping' ? cadenceMs : Math.min(cadenceMs, MAX_PING_INTERVAL_MS);
		const silenceLimitMs =
			service.silenceLimitSeconds === null
				? Math.max(LEAST_SILENCE_MS, 2 * pingIntervalMs)
				: service.silenceLimitSeconds * 1000;
		const agent = network.channelAgent(url);
		const channel = options.openChannel(
			{
				url,
				authorization: inQuery ? null : formatAuthorization(authorization),
				...(agent ? { agent } : {}),
				handshakeMs: effect.handshakeMs,
				proveAfterMs: PROVE_AFTER_MS,
				pingIntervalMs,
				silenceLimitMs,
				userAgent: options.userAgent,
				viaProxy: network.viaProxy(url),
			},
			(event) => {
				// What an abandoned channel still has to say belongs to an attempt that is over.
				if (link.channel === channel) onChannelEvent(generation, registration, effect.attempt, cadenceMs, event);
				else if (event.type === 'ended') hasLeft(channel);
			},
		);
		link.channel = channel;
	};

	const onChannelEvent = (
		generation: number,
		registration: Registration,
		attempt: number,
		cadenceMs: number,
		event: ChannelEvent,
	) => {
		const link = running(generation);
		const atMs = clock.monotonicMs();
		switch (event.type) {
			case 'opened':
				if (event.clockSkewMs !== null) report.clockSkew(event.clockSkewMs);
				return;
			case 'proved':
				report.event(generation, { type: 'channelProved', attempt, atMs });
				if (options.environment().settings.service.heartbeatMode === 'frame' && link.channel)
					link.stopHeartbeats = beat(generation, registration, link.channel, cadenceMs);
				return;
			case 'frame':
				report.frame(generation, event.frame);
				return;
			case 'ended':
				link.stopHeartbeats();
				link.channel = null;
				report.event(generation, {
					type: 'channelEnded',
					attempt,
					atMs,
					failure: event.failure,
					timedOut: event.timedOut,
					closeCode: event.closeCode,
				});
		}
	};

	const beat = (generation: number, registration: Registration, channel: Channel, cadenceMs: number) =>
		startHeartbeats({
			clock,
			cadenceMs,
			deviceId: registration.request.deviceId,
			workflowId: registration.request.workflowId,
			startedAtMs: options.startedAtMs,
			send: (frame) => channel.sendText(frame),
			onSent: (sentAt) => report.heartbeat(generation, sentAt),
		});

	const closeChannel = (link: Running, code: number) => {
		link.stopHeartbeats();
		const { channel } = link;
		link.channel = null;
		if (!channel) return;
		leaving.add(channel);
		channel.close(code, '');
	};

	const hasLeft = (channel: Channel) => {
		leaving.delete(channel);
		if (leaving.size > 0) return;
		for (const resolve of onDrained) resolve();
		onDrained = [];
	};

	return {
		perform(generation, registration, effect) {
			const link = running(generation);
			link.cancelTimer();
			switch (effect.type) {
				case 'register':
					void register(generation, registration, effect.attempt, effect.credential);
					return;
				case 'openChannel':
					open(generation, registration, effect);
					return;
				case 'closeChannel':
					closeChannel(link, effect.code);
					return;
				case 'wait':
					link.cancelTimer = clock.schedule(effect.delayMs, () =>
						report.event(generation, { type: 'timerFired', attempt: effect.attempt, atMs: clock.monotonicMs() }),
					);
			}
		},
		end(generation) {
			const link = links.get(generation);
			if (!link) return;
			links.delete(generation);
			link.cancelTimer();
			link.request?.abort();
			link.stopHeartbeats();
			link.channel?.terminate();
			link.channel = null;
		},
		drained: () => (leaving.size === 0 ? Promise.resolve() : new Promise((resolve) => onDrained.push(resolve))),
	};
}

/** A fresh token as a Connection: its life from `iat` and `exp`, or from `exp` and the device's clock. */
export function connectionFrom(
	issued: { readonly token: string; readonly life: TokenLife | null },
	atMs: number,
	wallMs: number,
): Connection {
	if (!issued.life) return { token: issued.token, obtainedAtMs: atMs, lifeMs: null };
	const { issuedAtSeconds, expiresAtSeconds } = issued.life;
	const lifeMs = (expiresAtSeconds - (issuedAtSeconds ?? wallMs / 1000)) * 1000;
	// By a wrong clock it may have ended long ago; then nothing is known of its life.
	return { token: issued.token, obtainedAtMs: atMs, lifeMs: lifeMs > 0 ? lifeMs : null };
}

function authorizationFor(credential: Credential, reusable: Authorization | null): Authorization | null {
	switch (credential.kind) {
		case 'reusable':
			return reusable;
		case 'connection':
			return { scheme: 'Connection', credential: credential.token };
		case 'selfRegistration':
			return null;
	}
}
