/**
 * The embedded service: the whole published interface in one process and in memory, for trials and tests. Puts the parts
 * together and offers the handles of an operator and of a test; every rule is in a part. Not for real sessions.
 */
import { randomBytes } from 'node:crypto';
import { KNOWN_PERMISSIONS } from '../protocol/api-key.ts';
import type { ListedDevice } from '../protocol/device-list.ts';
import { ACCOUNT_GRANT, accessTable, createAuthenticate } from './access.ts';
import { type ChannelFilter, CLOSE_RESTART, CLOSE_REVOKED, createChannelHub } from './channel-hub.ts';
import { createConnectionTokens } from './connection-tokens.ts';
import { createDeviceRegistry } from './device-registry.ts';
import { createEventLog, type EventLog } from './event-log.ts';
import { createFaults, type Faults } from './faults.ts';
import { type Answer, gzipAnswer, problemAnswer } from './http-answer.ts';
import type { Call } from './http-call.ts';
import { startListener } from './listener.ts';
import { type BasicUser, resolveOptions, type ServiceOptions } from './options.ts';
import { ProblemResponse } from './problems.ts';
import { createRateLimit } from './rate-limit.ts';
import {
	changeWorkflow,
	createPairingLink,
	createRoutes,
	listDevices,
	notifyDevices,
	type PairingLink,
	type Route,
	type ServiceParts,
} from './routes.ts';
import { createApiKeys, createShortTokens, randomText } from './tokens.ts';
import { createRecorder } from './transcript-recorder.ts';

export type { ListedDevice } from '../protocol/device-list.ts';
export type { Dialect, DialectOptions } from './dialect.ts';
export type { RequestEntry, ServiceEventName, ServiceEvents } from './event-log.ts';
export type { FailedAnswer, Release, RequestMatch } from './faults.ts';
export type { ServiceOptions } from './options.ts';
export type { PairingLink } from './routes.ts';

/** How long channels get to answer a close frame before a gentle restart cuts them. */
const DRAIN_MS = 1000;

/** Credentials for a trial, good as long as the service runs. */
export interface TrialCredentials {
	readonly basic: BasicUser;
	readonly bearer: string;
	/** A key with every known permission. */
	readonly apiKey: string;
}

export interface RestartOptions {
	/** Milliseconds during which nothing listens; default 0. */
	readonly downMs?: number;
	/** Nothing listens until this settles, either. */
	readonly until?: Promise<unknown>;
	/** Cut every line instead of closing the channels with 1012; default `false`. */
	readonly hard?: boolean;
}

export interface EmbeddedService
	extends Pick<EventLog, 'requests' | 'on' | 'waitFor'>,
		Omit<Faults, 'matchFault' | 'clear'> {
	/** Base URL by which to reach it, with its base path. */
	readonly url: string;
	readonly port: number;
	readonly credentials: TrialCredentials;

	/** Sends any JSON value to the open channels that match; returns how many devices it went to. */
	notify(message: unknown, filter?: ChannelFilter): number;
	/** A code made in the name of the account. @throws ProblemResponse 404 `workflow-unknown`, 503 `service-full`. */
	createPairingCode(workflowId: string | null): PairingLink;
	devices(): ListedDevice[];
	/** Sends `workflow.changed`, whether the workflow exists or not; returns 1 if the device was reached, else 0. */
	changeWorkflow(deviceId: string, workflowId: string): number;
	/**
	 * Revokes every Connection of the device and closes its channels with 4401.
	 * @param announce send `connection.revoked` first; default `false`.
	 * @returns how many Connections.
	 */
	revoke(deviceId: string, options?: { readonly announce?: boolean }): number;

	/** While on, no channel is read, answered or written to, and its socket stays open. HTTP continues. */
	goSilent(on: boolean): void;
	/** Destroys every TCP socket; continues to listen. */
	dropSockets(): void;
	/** Closes every channel with a close frame; returns how many. */
	closeChannels(code: number, reason?: string): number;
	/** Sends one frame to every channel as it is: invalid JSON, invalid UTF-8, binary; returns how many. */
	sendRaw(data: string | Uint8Array, options?: { readonly binary?: boolean }): number;
	/** Goes away and comes back on the same port with everything it knew; settles when it listens again. */
	restart(options?: RestartOptions): Promise<void>;
	/** To be called after `now` has jumped: closes expired channels and reports silent devices. */
	clockMoved(): void;
	/** Ends everything; may be called twice. */
	close(): Promise<void>;
}

/**
 * Starts the service; it listens when the promise settles.
 * @throws Error for options that cannot work, and the system's error when the port cannot be had.
 */
export async function startService(options: ServiceOptions = {}): Promise<EmbeddedService> {
	const settings = resolveOptions(options);
	const { now, dialect } = settings;
	const eventLog = createEventLog(settings.maxLoggedRequests);
	const faults = createFaults();
	const registry = createDeviceRegistry(settings.maxDevices, now);
	const recorder = settings.transcript ? createRecorder(settings.transcript) : null;
	const hub = createChannelHub(registry, eventLog, {
		now,
		maxChannels: 2 * settings.maxDevices,
		maxBufferedBytes: settings.maxBufferedBytes,
		dialect,
		recorder,
	});
	const shortTokens = createShortTokens(settings.maxShortTokens, now);
	const signingKey = settings.signingKey ?? randomBytes(32);
	const connectionTokens = createConnectionTokens(
		signingKey,
		settings.connectionTtlSeconds,
		dialect.connectionForm,
		now,
	);

	const apiKeys = createApiKeys(settings.maxApiKeys, now);
	for (const { ttl, ...key } of settings.apiKeys) {
		apiKeys.create({ ...key, expiresAtMs: ttl === undefined ? null : now() + ttl * 1000 });
	}
	const users = settings.basicUsers ?? [{ username: 'operator', password: randomText(24) }];
	const credentials: TrialCredentials = {
		basic: users[0] ?? { username: 'operator', password: randomText(24) },
		bearer: settings.bearerToken ?? randomText(40),
		apiKey: apiKeys.create({
			name: 'trial',
			permissions: KNOWN_PERMISSIONS,
			expiresAtMs: null,
			token: settings.trialApiKey,
		}).token,
	};

	const parts: ServiceParts = {
		settings,
		publicUrl: () => settings.publicUrl ?? listener.url,
		authenticate: createAuthenticate({
			users,
			bearerToken: credentials.bearer,
			apiKeys,
			shortTokens,
			connectionTokens,
			registry,
			table: accessTable(settings),
			dialect,
		}),
		apiKeys,
		shortTokens,
		connectionTokens,
		registry,
		hub,
		eventLog,
		countRegistration: createRateLimit(dialect.registrationLimit, now),
	};
	const routes = createRoutes(parts);

	async function answer(call: Call): Promise<Answer> {
		const plain = await answerPlain(call);
		return dialect.gzipAnswers ? gzipAnswer(plain) : plain;
	}

	async function answerPlain(call: Call): Promise<Answer> {
		try {
			if (call.path === dialect.channelPath) refusePlainChannel(call);
			return await findRoute(routes, call).handle(call);
		} catch (error) {
			return problemAnswer(error);
		}
	}

	const listener = await startListener(settings, faults, eventLog, {
		answer,
		onAnswer: (request, given) => recorder?.answer(request, given),
		async upgrade(call, socket, head) {
			if (call.path !== dialect.channelPath) {
				findRoute(routes, call);
				throw new ProblemResponse('upgrade-malformed', `Only ${dialect.channelPath} can be upgraded.`);
			}
			const principal = await parts.authenticate(call.presented, 'channel');
			if (principal.scheme !== 'Connection')
				throw new ProblemResponse('scheme-not-allowed', 'A channel takes a Connection.');
			registry.noteUse(principal.claims);
			return hub.accept(call.request, socket, head, principal.claims);
		},
	});

	let closed = false;
	const closing = Promise.withResolvers<void>();

	async function drainChannels(): Promise<void> {
		hub.closeChannels(CLOSE_RESTART, 'service restarts');
		await hub.drained(DRAIN_MS);
	}

	return {
		get url() {
			return listener.url;
		},
		get port() {
			return listener.port;
		},
		credentials,
		requests: eventLog.requests,
		on: eventLog.on,
		waitFor: eventLog.waitFor,
		notify: (message, filter) => notifyDevices(parts, message, filter),
		createPairingCode: (workflowId) => createPairingLink(parts, workflowId, ACCOUNT_GRANT),
		devices: () => listDevices(parts),
		changeWorkflow: (deviceId, workflowId) => changeWorkflow(parts, deviceId, workflowId),
		revoke(deviceId, { announce = false } = {}) {
			const revoked = registry.revoke(deviceId);
			if (announce) notifyDevices(parts, { type: 'connection.revoked' }, { deviceId });
			hub.closeChannels(CLOSE_REVOKED, 'connection revoked', { deviceId });
			return revoked;
		},
		failNext: faults.failNext,
		hold: faults.hold,
		dropBeforeReply: faults.dropBeforeReply,
		replyThenDrop: faults.replyThenDrop,
		goSilent: hub.goSilent,
		dropSockets: listener.dropSockets,
		closeChannels: (code, reason = '') => hub.closeChannels(code, reason),
		sendRaw: (data, { binary = false } = {}) => hub.sendRaw(data, binary),
		async restart({ downMs = 0, until, hard = false } = {}) {
			await listener.stop(hard ? undefined : drainChannels);
			let timer: NodeJS.Timeout | undefined;
			const down = downMs > 0 && new Promise((resolve) => (timer = setTimeout(resolve, downMs)));
			await Promise.race([Promise.all([until, down]), closing.promise]);
			clearTimeout(timer);
			if (!closed) await listener.start();
		},
		clockMoved: hub.checkDeadlines,
		async close() {
			closed = true;
			closing.resolve();
			faults.clear();
			hub.terminate();
			await listener.stop();
			eventLog.close();
		},
	};
}

/** @throws ProblemResponse 404 or 405. */
function findRoute(routes: readonly Route[], { method, path }: Call): Route {
	const here = routes.filter((route) => route.path === path);
	const found = here.find((route) => route.method === method);
	if (found) return found;
	if (here.length === 0) throw new ProblemResponse('not-found', 'There is nothing under this path.');
	throw refuseMethod(here.map((route) => route.method).join(', '));
}

function refusePlainChannel({ method }: Call): never {
	if (method !== 'GET') throw refuseMethod('GET');
	throw new ProblemResponse('upgrade-required', 'The channel is a WebSocket.', { headers: { upgrade: 'websocket' } });
}

function refuseMethod(allow: string): ProblemResponse {
	return new ProblemResponse('method-not-allowed', `This path takes ${allow}.`, { headers: { allow } });
}
