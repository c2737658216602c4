/** The embedded service: the published interface in one process and in memory, for trials and tests. */
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { KNOWN_PERMISSIONS } from '../protocol/api-key.ts';
import { ACCOUNT_GRANT, authenticate } from './access.runner.ts';
import { type ChannelHub, CLOSE_RESTART, CLOSE_REVOKED, createChannelHub } from './channel-hub.runner.ts';
import { createConnectionTokens } from './connection-tokens.runner.ts';
import { createDeviceRegistry } from './device-registry.ts';
import type { Dialect } from './dialect.ts';
import { createEventLog } from './event-log.runner.ts';
import { createExpiringMap } from './expiring-map.ts';
import { createFaults } from './faults.ts';
import { type Answer, gzipAnswer, problemAnswer } from './http-answer.runner.ts';
import type { Call } from './http-call.runner.ts';
import { type ListenerHandlers, startListener } from './listener.runner.ts';
import { type ChannelFilter, resolveOptions, type ServiceOptions, type ServiceSettings } from './options.runner.ts';
import { ProblemResponse } from './problems.ts';
import { createRateLimit } from './rate-limit.ts';
import {
	changeWorkflow,
	createPairingLink,
	createRoutes,
	listDevices,
	notifyDevices,
	type Route,
	type ServiceParts,
} from './routes.runner.ts';
import { createApiKeys, createShortTokens, randomText } from './tokens.runner.ts';
import { createRecorder, type Recorder } from './transcript-recorder.runner.ts';

export type { Dialect, DialectOptions } from './dialect.ts';
export type { ServiceEventName } from './event-log.runner.ts';
export type { ServiceOptions } from './options.runner.ts';

/** How long channels get to answer a close frame before a gentle restart cuts them. */
const DRAIN_MS = 1000;

export type EmbeddedService = Awaited<ReturnType<typeof startService>>;

/** It listens when the promise settles. @throws Error for options that cannot work or a port that cannot be had. */
export async function startService(options: ServiceOptions = {}) {
	const { parts, credentials, recorder } = openParts(resolveOptions(options), () => listener.url);
	const { settings, eventLog, hub } = parts;
	const faults = createFaults();
	const listener = await startListener(settings, faults, eventLog, handlersOf(parts, recorder));
	const closing = new AbortController();
	const { requests, on, waitFor } = eventLog;
	const { failNext, hold, dropBeforeReply, replyThenDrop } = faults;

	return {
		/** The newest requests, oldest first; never a credential, a query or a body. */
		requests,
		/** Calls the listener for each event of this name. @returns what takes it off again. */
		on,
		/**
		 * The next event that satisfies the predicate; those of the past do not count, so ask before causing it.
		 * @throws Error after `timeoutMs` (default 10,000), and when the service closes first.
		 */
		waitFor,
		/** Fault: the next `times` (default 1) requests that match get this answer in place of the real one, and have no effect. */
		failNext,
		/** Fault: requests that match wait, before they have an effect, until the returned function is called. */
		hold,
		/** Fault: the next `times` requests that match have their effect, and the line is cut before the first byte of the answer. */
		dropBeforeReply,
		/** Fault: the next `times` requests that match get half of their answer; a channel opens and is closed at once. */
		replyThenDrop,
		/** Fault: while on, no channel is read, answered or written to, and its socket stays open. */
		goSilent: hub.goSilent,
		/** Fault: one frame to every channel as it is, such as invalid JSON; returns how many channels. */
		sendRaw: hub.sendRaw,
		/** Fault: cuts every open line, of requests and channels, without a word. */
		dropSockets: listener.dropSockets,
		/** Base URL by which to reach it, with its base path. */
		get url() {
			return listener.url;
		},
		get port() {
			return listener.port;
		},
		credentials,
		/** Sends any JSON value to the open channels that match; returns how many devices it went to. */
		notify: (message: unknown, filter?: ChannelFilter) => notifyDevices(parts, message, filter),
		/** A code made in the name of the account. @throws ProblemResponse 404 `workflow-unknown`, 503 `service-full`. */
		createPairingCode: (workflowId: string | null) => createPairingLink(parts, workflowId, ACCOUNT_GRANT),
		devices: () => listDevices(parts),
		/** Sends `workflow.changed`, whether the workflow exists or not; returns 1 if the device was reached, else 0. */
		changeWorkflow: (deviceId: string, workflowId: string) => changeWorkflow(parts, deviceId, workflowId),
		/** Revokes every Connection of the device and closes its channels with 4401. @returns how many Connections. */
		revoke(deviceId: string, { announce = false }: { readonly announce?: boolean } = {}) {
			const revoked = parts.registry.revoke(deviceId);
			if (announce) notifyDevices(parts, { type: 'connection.revoked' }, { deviceId });
			hub.closeChannels(CLOSE_REVOKED, 'connection revoked', { deviceId });
			return revoked;
		},
		/** Closes every channel with a close frame; returns how many. */
		closeChannels: (code: number, reason = '') => hub.closeChannels(code, reason),
		/** Goes away and comes back on the same port with everything it knew; settles when it listens again. */
		async restart({ downMs = 0, until, hard = false }: RestartOptions = {}) {
			await listener.stop(hard ? undefined : () => drainChannels(hub));
			const { signal } = closing;
			const down = sleep(downMs, undefined, { signal }).catch(() => {});
			await Promise.race([Promise.all([until, down]), signal.aborted || once(signal, 'abort')]);
			if (!signal.aborted) await listener.start();
		},
		/** To be called after `now` has jumped: closes expired channels and reports silent devices. */
		clockMoved: hub.checkDeadlines,
		/** Ends everything; may be called twice. */
		async close() {
			closing.abort();
			faults.clear();
			hub.terminate();
			await listener.stop();
			eventLog.close();
		},
	};
}

export interface RestartOptions {
	/** How long nothing listens; default 0. */
	readonly downMs?: number;
	/** Nothing listens until this settles, either. */
	readonly until?: Promise<unknown>;
	/** Cut every line instead of closing the channels with 1012. */
	readonly hard?: boolean;
}

async function drainChannels(hub: ChannelHub): Promise<void> {
	hub.closeChannels(CLOSE_RESTART, 'service restarts');
	await hub.drained(DRAIN_MS);
}

/** `credentials` are good as long as the service runs. @param url where it listens, once it does. */
function openParts(settings: ServiceSettings, url: () => string) {
	const { now, dialect, transcript } = settings;
	const eventLog = createEventLog(settings.maxLoggedRequests);
	const registry = createDeviceRegistry(settings.maxDevices, now);
	const recorder = transcript ? createRecorder(transcript) : null;
	const apiKeys = createApiKeys(settings.maxApiKeys, now);
	for (const { ttl, ...key } of settings.apiKeys) apiKeys.create(key, ttl === undefined ? null : now() + ttl * 1000);
	const generated = { username: 'operator', password: randomText(24) };
	const { basicUsers: users = [generated] } = settings;
	const credentials = {
		basic: users[0] ?? generated,
		bearer: settings.bearerToken ?? randomText(40),
		apiKey: apiKeys.create({ name: 'trial', permissions: KNOWN_PERMISSIONS, token: settings.trialApiKey }, null).token,
	};
	const parts: ServiceParts = {
		...{ settings, users, bearerToken: credentials.bearer, apiKeys, registry, eventLog },
		publicUrl: () => settings.publicUrl ?? url(),
		shortTokens: createShortTokens(settings.maxShortTokens, now),
		connectionTokens: createConnectionTokens(settings),
		hub: createChannelHub(registry, eventLog, settings, recorder),
		sessions: createExpiringMap(settings.maxShortTokens, now),
		countRegistration: createRateLimit(dialect.registrationLimit, now),
	};
	return { parts, credentials, recorder };
}

function handlersOf(parts: ServiceParts, recorder: Recorder | null): ListenerHandlers {
	const { dialect } = parts.settings;
	const routes = createRoutes(parts);
	return {
		async answer(call) {
			const plain = await answerPlain(routes, dialect, call).catch(problemAnswer);
			return dialect.gzipAnswers ? gzipAnswer(plain) : plain;
		},
		onAnswer: (request, given) => recorder?.answer(request, given),
		async upgrade(call, socket, head) {
			if (call.path !== dialect.channelPath) {
				findRoute(routes, call);
				throw new ProblemResponse('upgrade-malformed', `Only ${dialect.channelPath} can be upgraded.`);
			}
			const principal = await authenticate(parts, call.presented, 'channel');
			if (principal.scheme !== 'Connection')
				throw new ProblemResponse('scheme-not-allowed', 'A channel takes a Connection.');
			parts.registry.noteUse(principal.claims);
			return parts.hub.accept(call.request, socket, head, principal.claims);
		},
	};
}

async function answerPlain(routes: readonly Route[], { channelPath }: Dialect, call: Call): Promise<Answer> {
	if (call.path !== channelPath) return findRoute(routes, call).handle(call);
	if (call.method !== 'GET') throw refuseMethod('GET');
	throw new ProblemResponse('upgrade-required', 'The channel is a WebSocket.', { headers: { upgrade: 'websocket' } });
}

/** @throws ProblemResponse 404 or 405. */
function findRoute(routes: readonly Route[], { method, path }: Call): Route {
	const here = routes.filter((route) =>
		route.path.endsWith('/') ? path?.startsWith(route.path) : route.path === path,
	);
	const found = here.find((route) => route.method === method);
	if (found) return found;
	if (here.length === 0) throw new ProblemResponse('not-found', 'There is nothing under this path.');
	throw refuseMethod(here.map((route) => route.method).join(', '));
}

function refuseMethod(allow: string): ProblemResponse {
	return new ProblemResponse('method-not-allowed', `This path takes ${allow}.`, { headers: { allow } });
}
