/** Performs what the lifecycle asks for; what happened goes back as an event with the attempt's number. */
import { type Clock, isoNow } from '../base/clock.edge.ts';
import { type Failure, failure } from '../base/errors.ts';
import type { Log } from '../base/log.edge.ts';
import type { Authorization } from '../protocol/authorization.ts';
import type { Frame, Heartbeat, HeartbeatExtras } from '../protocol/channel.ts';
import { messagesIn } from '../protocol/frame-messages.ts';
import type { Settings } from '../settings/table.ts';
import type { Channel, ChannelEvent, ChannelOptions, LineEnd } from './channel.edge.ts';
import { channelAddress } from './channel-address.ts';
import { freshConnection } from './connection-tokens.runner.ts';
import { type Conversation, type ConversationParts, converse } from './conversation.runner.ts';
import type { DeviceTime } from './device-time.runner.ts';
import { asMeant } from './evidence.ts';
import { startHeartbeats } from './heartbeats.runner.ts';
import type { Line } from './line.runner.ts';
import { authorizationFor, type Credential, type LinkEffect, type LinkEvent } from './link.ts';
import { livenessOf } from './liveness.ts';
import { replacedBy } from './recent-cuts.ts';
import type { Runtime } from './runtime.runner.ts';
import type { Registration } from './supervisor.ts';

export interface FrameArrival {
	readonly generation: number;
	readonly registration: Registration;
	/** Whether another channel may bring the same message. */
	readonly overlaps: boolean;
}

export interface LinkRunnerOptions {
	readonly clock: Clock;
	readonly log: Pick<Log, 'debug'>;
	readonly random: () => number;
	readonly startedAtMs: number;
	readonly userAgent: string;
	readonly line: Pick<Line, 'pingIntervalMs' | 'opened' | 'answered' | 'ended'>;
	/** What heartbeats say of the fleet plan. */
	readonly plan: () => Pick<Heartbeat, 'planRevision' | 'planRefused'> & HeartbeatExtras;
	/** Asked for each attempt: settings may change in the meantime. @param way of the link's registration. */
	readonly runtime: (way?: string) => Runtime;
	/** The credential from before. */
	readonly earlier: () => Authorization | null;
	readonly nextPlaces: ConversationParts['nextPlaces'];
	readonly openChannel: (options: ChannelOptions, listener: (event: ChannelEvent) => void) => Channel;
	readonly report: {
		readonly event: (generation: number, event: LinkEvent) => void;
		/** A message, also from a channel that is saying goodbye: what the service sent before it knew is not lost. Whether it is kept. */
		readonly frame: (arrival: FrameArrival, message: Frame) => boolean;
		/** Resolves when the messages so far are stored. */
		readonly stored: () => Promise<void>;
		readonly heartbeat: (generation: number, sentAt: string) => void;
		/** The service has answered a ping. */
		readonly answered: (generation: number, at: string) => void;
		/** Token of a registration that finished after its link had ended. */
		readonly lateConnection: (registration: Registration, issued: { readonly token: string }) => void;
		/** A channel that was open has ended: before the link is told, and also when it was saying goodbye (`isLeaving`). */
		readonly lineEnded: (generation: number, registration: Registration, line: LineEnd, isLeaving: boolean) => void;
		/** An answer tells the service's time. @param isProven whether it has accepted the device. */
		readonly serviceTime: DeviceTime['heard'];
	};
}

export interface LinkRunner {
	/** Performs one effect of a link. `keepConnection` is not for here: it changes the device's state. */
	perform(
		generation: number,
		registration: Registration,
		effect: Exclude<LinkEffect, { type: 'keepConnection' }>,
	): void;
	/**
	 * Ends whatever is left of a link. A channel that was told to close says goodbye first. A registration by a Connection
	 * is seen through: the service may have ended that Connection with it, and then the answer is all that the device has.
	 */
	end(generation: number): void;
	/** Gives up as well what is seen through for links that are over. */
	abandon(): void;
	/** Whether a channel is still saying goodbye. */
	readonly isLeaving: boolean;
	/** Resolves when every channel that is saying goodbye has gone and no registration is under way any more. */
	drained(): Promise<void>;
}

interface Running {
	request: { readonly abort: AbortController; readonly isSeenThrough: boolean } | null;
	channel: Channel | null;
	/** Whether the newest channel came to nothing at one of several addresses. */
	hasOther: boolean;
	conversation: Conversation | null;
	/** Whether its channel is only tried beside another one: what comes of that says nothing of the line in force. */
	isTried: boolean;
	/** Tells the line of a channel that was tried. */
	tellLine: () => void;
	stopHeartbeats: () => void;
	cancelTimer: () => void;
}

/** A service that does not answer a goodbye is left: the whole agent has to end within 3 s. */
const CLOSE_MS = 2000;

export function createLinkRunner(options: LinkRunnerOptions): LinkRunner {
	const { clock, report } = options;
	const links = new Map<number, Running>();
	/** Channels that were told to close and are not gone yet. */
	const leaving = new Set<Channel>();
	/** Registrations of links that are over. */
	const late = new Map<Running, AbortController>();
	const onDrained: (() => void)[] = [];
	/** The last heartbeat on any channel. */
	let beat = { sentAtMs: Number.NEGATIVE_INFINITY, cadenceMs: 0 };

	const running = (generation: number): Running => {
		const known = links.get(generation);
		if (known) return known;
		const idle = { isTried: false, tellLine() {}, stopHeartbeats() {}, cancelTimer() {} };
		const fresh: Running = { request: null, channel: null, hasOther: false, conversation: null, ...idle };
		links.set(generation, fresh);
		return fresh;
	};

	const register = async (generation: number, registration: Registration, attempt: number, credential: Credential) => {
		const { client, resolved, credentials } = options.runtime(registration.way);
		const { tokenPointer, registrationPath } = resolved.settings.service;
		const link = running(generation);
		const abort = new AbortController();
		link.request = { abort, isSeenThrough: credential.kind === 'connection' };
		const result = await client.registerDevice({
			baseUrl: registration.baseUrl,
			authorization: authorizationFor(credential, credentials.reusable, options.earlier),
			request: registration.request,
			tokenPointer,
			registrationPath,
			signal: abort.signal,
		});
		if (late.delete(link)) {
			if (result.ok && !abort.signal.aborted) report.lateConnection(registration, result);
			tellIfDrained();
			return;
		}
		if (abort.signal.aborted) return;
		link.request = null;
		if (result.clockSkewMs !== null)
			report.serviceTime({ skewMs: result.clockSkewMs, ...(result.ok && { serviceMs: result.serviceMs }) }, result.ok);
		const atMs = clock.monotonicMs();
		if (result.ok)
			report.event(generation, {
				type: 'registered',
				attempt,
				atMs,
				connection: freshConnection(result, clock, resolved.settings.service),
			});
		else {
			const timedOut = result.failure.code === 'request-timeout' || result.failure.code === 'connect-timeout';
			const reason = explained(result.failure, credential, resolved.settings.credential);
			const failed = { failure: reason, timedOut, unsent: result.sent === 'no', hasOther: result.hasOther ?? false };
			report.event(generation, { type: 'registerFailed', attempt, atMs, ...failed });
		}
	};

	const open = (
		generation: number,
		registration: Registration,
		effect: Extract<LinkEffect, { type: 'openChannel' }>,
	) => {
		const { resolved, network, headersFor, secretValues } = options.runtime(registration.way);
		const { service } = resolved.settings;
		const link = running(generation);
		link.channel?.terminate();
		link.isTried = effect.proveAfterMs !== undefined;
		const address = channelAddress(registration.baseUrl, effect.token, registration.request, service);
		const { url } = address;
		const { cadenceMs, pingIntervalMs, silenceLimitMs } = livenessOf(registration, service);
		const channel = options.openChannel(
			{
				...{ ...address, secretValues },
				headers: headersFor(registration.baseUrl),
				agent: network.channelAgent(url),
				handshakeMs: effect.handshakeMs,
				provesByAge: effect.provesByAge,
				proveAfterMs: effect.proveAfterMs,
				pingIntervalMs: options.line.pingIntervalMs(registration.baseUrl, pingIntervalMs, cadenceMs),
				silenceLimitMs,
				closeMs: CLOSE_MS,
				sleptMs: clock.sleptMs,
				userAgent: options.userAgent,
				proxy: network.proxyName(url),
				workflowId: registration.request.workflowId,
			},
			(event) => {
				// An address that speaks of the Connection is the service's: another one knows of it no more.
				if (event.type === 'ended' && link.channel === channel)
					link.hasOther =
						!link.conversation?.isConfirmed && event.failure.code !== 'credential-refused' && network.doubt(url);
				if (link.channel === channel) onChannelEvent(generation, registration, effect.attempt, event);
				// What else an abandoned channel has to say belongs to an attempt that is over.
				else if (event.type === 'frame')
					for (const message of messagesIn(event.frame, service)) received(generation, registration, message);
				else if (event.type === 'ended') {
					if (event.line && leaving.has(channel)) report.lineEnded(generation, registration, event.line, true);
					leaving.delete(channel);
					tellIfDrained();
				}
			},
		);
		link.channel = channel;
		link.conversation?.stop();
		link.conversation = converse({
			...options,
			registration,
			token: effect.token,
			host: url.host,
			settings: () => options.runtime(registration.way).resolved.settings.service,
			send: (text) => channel.sendText(text),
			keep: (message) => received(generation, registration, message),
			stored: report.stored,
			onConfirmed: () => confirmed(generation, registration, effect.attempt, cadenceMs),
			onConnection: (connection) =>
				report.event(generation, { type: 'connectionChanged', atMs: clock.monotonicMs(), connection }),
			onUnconfirmed: (failure) => channel.terminate(failure),
		});
	};

	const confirmed = (generation: number, registration: Registration, attempt: number, cadenceMs: number) => {
		const link = running(generation);
		if (link.isTried) link.tellLine();
		link.isTried = false;
		report.event(generation, { type: 'channelConfirmed', attempt, atMs: clock.monotonicMs() });
		if (options.runtime(registration.way).resolved.settings.service.heartbeatMode !== 'frame' || !link.channel) return;
		link.stopHeartbeats();
		link.stopHeartbeats = startBeating(generation, registration, link.channel, cadenceMs);
	};

	const onChannelEvent = (generation: number, registration: Registration, attempt: number, event: ChannelEvent) => {
		const link = running(generation);
		const atMs = clock.monotonicMs();
		switch (event.type) {
			case 'opened':
				link.tellLine = () => options.line.opened(registration.baseUrl, event.localAddress, atMs);
				if (!link.isTried) link.tellLine();
				if (event.clockSkewMs !== null)
					report.serviceTime({ skewMs: event.clockSkewMs, serviceMs: event.serviceMs }, true);
				link.conversation?.opened(event.headers);
				return;
			case 'confirmed':
				link.conversation?.answered();
				return;
			case 'answered':
				options.line.answered(atMs);
				report.answered(generation, isoNow(clock));
				return;
			case 'frame':
				link.conversation?.frame(event.frame);
				return;
			case 'ended': {
				if (event.headers) link.conversation?.upgraded(event.headers);
				link.stopHeartbeats();
				link.conversation?.stop();
				link.channel = null;
				if (event.line && !link.isTried) report.lineEnded(generation, registration, event.line, false);
				const meant = asMeant(event, options.runtime(registration.way).resolved.settings.service.closeCodes);
				const { failure, closeCode, timedOut } = meant;
				// Beside another link of this device, that one may have taken its place.
				const replaced = links.size === 1 ? replacedBy(meant) : null;
				const outlived = !(event.line && link.isTried) && options.line.ended(event, atMs, replaced);
				const life = { wasOpen: event.line !== null, openMs: event.line?.lifeMs, outlived };
				const ended = { attempt, atMs, failure, timedOut, closeCode, ...life, hasOther: link.hasOther };
				report.event(generation, { type: 'channelEnded', ...ended });
				return;
			}
			default:
				event satisfies never;
		}
	};

	const received = (generation: number, registration: Registration, message: Frame): boolean => {
		const open = [...links.values()].filter(({ channel }) => channel !== null).length + leaving.size;
		return report.frame({ generation, registration, overlaps: open > 1 }, message);
	};

	/** The first of a start is spread over the cadence; a channel that follows another keeps its beat. */
	const firstBeatMs = (cadenceMs: number) => {
		const keptMs = beat.sentAtMs + Math.min(beat.cadenceMs, cadenceMs) - clock.monotonicMs();
		return keptMs > 0 ? keptMs : cadenceMs * options.random();
	};

	const startBeating = (generation: number, registration: Registration, channel: Channel, cadenceMs: number) =>
		startHeartbeats({
			clock,
			cadenceMs,
			deviceId: registration.request.deviceId,
			workflowId: registration.request.workflowId,
			startedAtMs: options.startedAtMs,
			plan: options.plan,
			firstInMs: firstBeatMs(cadenceMs),
			body: options.runtime(registration.way).resolved.settings.service.heartbeatBody,
			send: (frame) => channel.sendText(frame),
			onSent(sentAt) {
				beat = { sentAtMs: clock.monotonicMs(), cadenceMs };
				report.heartbeat(generation, sentAt);
			},
		});

	const closeChannel = (link: Running, code: number) => {
		link.stopHeartbeats();
		link.conversation?.stop();
		const { channel } = link;
		link.channel = null;
		if (!channel) return;
		leaving.add(channel);
		channel.close(code, '');
	};

	const tellIfDrained = () => {
		if (leaving.size + late.size === 0) for (const resolve of onDrained.splice(0)) resolve();
	};

	return {
		perform(generation, registration, effect) {
			options.log.debug(effect.type, { generation, ...loggable(effect) });
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
					return;
				default:
					effect satisfies never;
			}
		},
		end(generation) {
			const link = links.get(generation);
			if (!link) return;
			links.delete(generation);
			link.cancelTimer();
			if (link.request?.isSeenThrough) late.set(link, link.request.abort);
			else link.request?.abort.abort();
			link.stopHeartbeats();
			link.conversation?.stop();
			link.channel?.terminate();
			link.channel = null;
		},
		abandon() {
			for (const abort of late.values()) abort.abort();
		},
		get isLeaving() {
			return leaving.size > 0;
		},
		drained: () =>
			leaving.size + late.size === 0 ? Promise.resolve() : new Promise((resolve) => onDrained.push(resolve)),
	};
}

/** Whether a Connection may register again is up to the service; where it may not, something else has to be brought. */
function explained(refused: Failure, { kind }: Credential, files: Settings['credential']): Failure {
	const isRefusal = refused.code === 'credential-refused' || refused.code === 'access-forbidden';
	if (!isRefusal || kind === 'selfRegistration') return refused;
	// The one of the settings is tried before the Connection.
	if (kind === 'reusable' || files.apiKeyFile !== null || files.basicFile !== null) {
		const [name, file] =
			files.apiKeyFile === null
				? ['credential.basicFile', files.basicFile]
				: ['credential.apiKeyFile', files.apiKeyFile];
		const whose = file === null ? 'the credential of this device' : `the one in ${file} (${name})`;
		return failure(refused.code, refused.message, {
			...refused,
			remedy: `Give this device a credential that the service accepts: ${whose} was refused. A changed file is tried at once.`,
		});
	}
	const remedy =
		'This device requires a credential that may register it: scan a new pairing code (idv-agent pair; --replace while the device is online), or set credential.apiKeyFile.';
	return failure(refused.code, refused.message, { ...refused, remedy });
}

/** The fields of an effect that may stand in a log. */
function loggable(effect: LinkEffect): { attempt?: number; delayMs?: number } {
	return {
		...('attempt' in effect && { attempt: effect.attempt }),
		...('delayMs' in effect && { delayMs: effect.delayMs }),
	};
}
