/**
 * The handler of each endpoint: the published interface, then the few endpoints of our own. Owns the order of checks (credential,
 * permission, body, workflow, room, and only then the one-time token); knows neither sockets nor faults.
 */
import { randomBytes, randomUUID } from 'node:crypto';
import * as z from 'zod';
import { apiKeyRequestSchema } from '../protocol/api-key.ts';
import { deviceConnectionRequestSchema, deviceIdSchema, workflowIdSchema } from '../protocol/device-connection.ts';
import { DEVICE_LIST_PATH, type ListedDevice } from '../protocol/device-list.ts';
import { DEEP_LINK_PATH, ENDPOINTS, endpointUrl } from '../protocol/endpoints.ts';
import { type HandOffRecord, handOffRequestSchema, readWorkflowIds, workflowIdsSchema } from '../protocol/hand-off.ts';
import { authenticate, type CredentialSources, checkPermissions, type Principal } from './access.runner.ts';
import { type ChannelHub, CLOSE_REPLACED } from './channel-hub.runner.ts';
import { placeToken } from './dialect.ts';
import type { EventLog } from './event-log.runner.ts';
import type { createExpiringMap } from './expiring-map.ts';
import { type Answer, contentAnswer, jsonAnswer } from './http-answer.runner.ts';
import { type Call, checkShape, readBody } from './http-call.runner.ts';
import { MOBILE_PAGE } from './mobile-page.ts';
import type { ChannelFilter, ServiceSettings } from './options.runner.ts';
import { type NamedWorkflow, ProblemResponse } from './problems.ts';
import { writeQrPng, writeQrSvg } from './qr-code.runner.ts';
import type { CountRequest } from './rate-limit.ts';
import type { Grant, ShortToken } from './tokens.runner.ts';

/** Endpoints of the embedded service alone: they are not part of the published interface, and no device uses them. */
export const OWN_ENDPOINTS = {
	/** GET: the devices and whether each is online. */
	devices: DEVICE_LIST_PATH,
	/** POST `{message, deviceId?, workflowId?}`: sends a notification. */
	notify: '/api/embedded/notify',
	/** POST `{deviceId, workflowId}`: sends `workflow.changed`. */
	workflow: '/api/embedded/workflow',
	/** GET `/api/sessions/<sessionId>`: a session that was started here, for the device and for operators. */
	sessions: '/api/sessions/',
} as const;

/** Everything that the endpoints act on. */
export interface ServiceParts extends CredentialSources {
	/** Base URL for links; known only when the service listens. */
	readonly publicUrl: () => string;
	readonly hub: ChannelHub;
	readonly eventLog: EventLog;
	readonly sessions: ReturnType<typeof createExpiringMap<Session>>;
	/** Counts a registration of an address. @throws ProblemResponse 429. */
	readonly countRegistration: CountRequest;
}

interface Session {
	readonly sessionId: string;
	readonly workflowIds: readonly string[];
	readonly metadata?: unknown;
	readonly locale?: string | null | undefined;
	readonly createdAt: string;
	readonly expiresAt: string;
}

export interface Route {
	readonly method: 'GET' | 'POST';
	/** With a slash at its end: everything below it. */
	readonly path: string;
	readonly handle: (call: Call) => Promise<Answer> | Answer;
}

/** The table of everything that is served besides the channel. */
export function createRoutes(parts: ServiceParts): readonly Route[] {
	const { apiKeyPaths, workflowNames, configurationPath: path } = parts.settings.dialect;
	const workflows: Route = { method: 'GET', path, handle: (call) => listWorkflows(parts, call) };
	return [
		{ method: 'GET', path: ENDPOINTS.pairingCode, handle: (call) => drawPairingCode(parts, call) },
		{ method: 'POST', path: ENDPOINTS.deviceConnection, handle: (call) => registerDevice(parts, call) },
		...apiKeyPaths.map((path): Route => ({ method: 'POST', path, handle: (call) => createApiKey(parts, call) })),
		...(workflowNames === null ? [] : [workflows]),
		{ method: 'POST', path: ENDPOINTS.sessionStart, handle: (call) => startSession(parts, call) },
		{ method: 'GET', path: DEEP_LINK_PATH, handle: () => MOBILE_PAGE },
		{ method: 'GET', path: OWN_ENDPOINTS.devices, handle: (call) => showDevices(parts, call) },
		{ method: 'GET', path: OWN_ENDPOINTS.sessions, handle: (call) => showSession(parts, call) },
		{ method: 'POST', path: OWN_ENDPOINTS.notify, handle: (call) => sendNotification(parts, call) },
		{ method: 'POST', path: OWN_ENDPOINTS.workflow, handle: (call) => sendWorkflowChange(parts, call) },
	];
}

/** @throws ProblemResponse 404 `workflow-unknown`, 503 `service-full`. */
export function createPairingLink(parts: ServiceParts, workflowId: string | null, issuerGrant: Grant) {
	const { settings } = parts;
	if (workflowId !== null) checkWorkflows(settings, [workflowId]);
	const workflowIds = workflowId === null ? null : [workflowId];
	const kind = { workflowIds, sessionId: null, issuerGrant };
	const { createdAt: _, ...link } = issueLink(parts, settings.shortTokenTtlSeconds, kind);
	return { ...link, workflowId };
}

/** The link around a new Short Token, a hand-off's or a code's. Source: service-interface, Handoff URL record. */
function issueLink(
	{ settings, shortTokens, publicUrl }: ServiceParts,
	ttlSeconds: number,
	{ workflowIds, sessionId, issuerGrant }: Omit<ShortToken, 'expiresAtMs'>,
) {
	const nowMs = settings.now();
	const expiresAtMs = nowMs + ttlSeconds * 1000;
	const token = shortTokens.issue({ workflowIds, sessionId, issuerGrant, expiresAtMs });
	// URLSearchParams would write the space as `+`; the published form has `%20`.
	const query = [`authorization=Token%20${token}`];
	if (sessionId !== null) query.push(`sessionId=${sessionId}`);
	else if (workflowIds?.[0] !== undefined && settings.dialect.codesNameWorkflow)
		query.push(`workflowId=${encodeURIComponent(workflowIds[0])}`);
	const [createdAt, expiresAt] = [nowMs, expiresAtMs].map((ms) => new Date(ms).toISOString()) as [string, string];
	return { url: `${endpointUrl(publicUrl(), DEEP_LINK_PATH).href}?${query.join('&')}`, token, createdAt, expiresAt };
}

export function listDevices({ registry, hub }: ServiceParts): ListedDevice[] {
	return registry.list().map((device) => {
		const { online, workflowId } = hub.presenceOf(device.deviceId);
		return { ...device, workflowId: workflowId ?? device.workflowId, online };
	});
}

/** Sends any JSON value to the open channels that match; returns how many devices it went to. */
export function notifyDevices(
	{ hub, eventLog, settings }: ServiceParts,
	message: unknown,
	filter: ChannelFilter = {},
	text = JSON.stringify(message) ?? 'null',
): number {
	const reached = hub.send(() => text, filter);
	const type = typeof message === 'object' && message !== null && 'type' in message ? message.type : undefined;
	eventLog.emit('notified', { kind: typeof type === 'string' ? type : 'unknown', reached, at: settings.now() });
	return reached;
}

/** Tells a device to change its workflow. Source of the message: assumed (agent-messages). */
export function changeWorkflow(parts: ServiceParts, deviceId: string, workflowId: string): number {
	return notifyDevices(parts, { type: 'workflow.changed', id: randomUUID(), workflowId }, { deviceId });
}

const oneWorkflowSchema = z.array(workflowIdSchema).max(1, 'must be given at most once');

/** GET /api/deeplink/qrcode. Source: service-interface, Endpoints 1; formats: assumed (pairing-code-answer). */
async function drawPairingCode(parts: ServiceParts, call: Call): Promise<Answer> {
	const principal = await authenticate(parts, call.presented, 'pairingCode');
	const given = call.query.getAll('workflowId');
	const [workflowId = null] = checkShape(oneWorkflowSchema, given, 'workflowId');
	const format = chooseFormat(call.request.headers.accept);
	const link = createPairingLink(parts, workflowId, principal.grant);
	switch (format) {
		case 'image/png':
			return contentAnswer(format, writeQrPng(link.url));
		case 'image/svg+xml':
			return contentAnswer(format, writeQrSvg(link.url));
		case 'application/json':
			return jsonAnswer(200, link);
	}
}

/** POST /api/device/connection. Source: service-interface, Endpoints 2; the answer's shape: assumed (token-place). */
async function registerDevice(parts: ServiceParts, call: Call): Promise<Answer> {
	const { settings, registry, hub, eventLog } = parts;
	parts.countRegistration(call.request.socket.remoteAddress ?? '');
	const open = settings.selfRegistration && call.presented === 'none';
	const principal = open ? null : await authenticate(parts, call.presented, 'deviceConnection');
	const reading = readBody(call, deviceConnectionRequestSchema).then((body) => {
		try {
			checkWorkflows(settings, [body.workflowId]);
			checkCode(principal, body.workflowId);
		} catch (error) {
			const { deviceId, workflowId } = body;
			const isOwn = principal?.scheme !== 'Connection' || principal.claims.deviceId === deviceId;
			if (isOwn && error instanceof ProblemResponse)
				registry.noteRefusal(deviceId, { code: error.problem.code, workflowId });
			throw error;
		}
		return body;
	});
	const request = await reading.catch((error: unknown) => {
		throw withWorkflows(error, namedWorkflows(settings, principal));
	});
	if (principal?.scheme === 'Connection' && principal.claims.deviceId !== request.deviceId)
		throw new ProblemResponse('device-mismatch', 'A Connection registers only the device that it was issued for.');
	registry.ensureRoom(request.deviceId);
	spendIfToken(parts, principal);

	const { token, claims } = await parts.connectionTokens.issue(request);
	registry.register(request, claims);
	if (settings.endOldChannelOnRegistration) {
		registry.revoke(request.deviceId, claims.jti);
		hub.closeChannels(CLOSE_REPLACED, 'replaced by a newer registration', { deviceId: request.deviceId }, claims.jti);
	}
	const { deviceId, workflowId } = request;
	eventLog.emit('registered', { deviceId, workflowId, at: settings.now() });
	const expiresAt = new Date(claims.exp * 1000).toISOString();
	const isOpaque = settings.dialect.connectionForm === 'opaque';
	const rest = { ...(isOpaque ? {} : { expiresAt }), deviceId, workflowId };
	return { status: 201, ...placeToken(settings.dialect, token, rest) };
}

function checkCode(principal: Principal | null, workflowId: string): void {
	const allowed = principal?.scheme === 'Token' ? principal.shortToken.workflowIds : null;
	if (allowed && !allowed.includes(workflowId))
		throw new ProblemResponse('workflow-mismatch', `This code is for the workflow ${allowed.join(' or ')}.`);
}

/** GET of the dialect's own path: the workflows that the credential may register for. Spends nothing. Source: assumed (code-workflow). */
async function listWorkflows(parts: ServiceParts, call: Call): Promise<Answer> {
	const principal = await authenticate(parts, call.presented, 'deviceConnection');
	return jsonAnswer(200, { workflows: namedWorkflows(parts.settings, principal) });
}

/** `undefined` where the dialect lists no workflows. */
function namedWorkflows({ dialect }: ServiceSettings, principal: Principal | null): NamedWorkflow[] | undefined {
	const allowed = principal?.scheme === 'Token' ? principal.shortToken.workflowIds : null;
	if (dialect.workflowNames === null) return undefined;
	const named = Object.entries(dialect.workflowNames).map(([id, name]) => ({ id, name }));
	return named.filter(({ id }) => allowed === null || allowed.includes(id));
}

/** The same refusal with the workflows to choose from, where it was refused for its workflow. */
function withWorkflows(error: unknown, workflows: readonly NamedWorkflow[] | undefined): unknown {
	if (!(error instanceof ProblemResponse)) return error;
	const { code, errors = [] } = error.problem;
	const isForWorkflow = code === 'workflow-unknown' || errors.some(({ path }) => path === '/workflowId');
	return isForWorkflow && workflows ? new ProblemResponse(code, error.message, { errors, workflows }) : error;
}

const apiKeyBodySchema = apiKeyRequestSchema.extend({
	/** Without this a key that was to expire would live for ever. */
	expires: z.never('is the name on the command line; in the body it is ttl, in seconds').optional(),
});

/** POST of each path for API keys. Source: service-interface, Endpoints 3; limits of a grant: assumed (permissions). */
async function createApiKey(parts: ServiceParts, call: Call): Promise<Answer> {
	const principal = await authenticate(parts, call.presented, 'apiKeys');
	const { name, permissions, ttl } = await readBody(call, apiKeyBodySchema);
	checkPermissions(principal.grant, permissions);
	const ends = [ttl === undefined ? null : parts.settings.now() + ttl * 1000, principal.grant.expiresAtMs];
	// A key outlives its issuer no more than it outranks it.
	const expiresAtMs = ends.reduce((a, b) => (a === null ? b : b === null ? a : Math.min(a, b)), null);
	spendIfToken(parts, principal);
	return jsonAnswer(201, parts.apiKeys.create({ name, permissions }, expiresAtMs));
}

/** POST /api/v1/deeplink. Source: service-interface, Endpoints 5; the notification: assumed (notification-kind). */
async function startSession(parts: ServiceParts, call: Call): Promise<Answer> {
	const { settings } = parts;
	const principal = await authenticate(parts, call.presented, 'sessionStart');
	const workflowIds = checkShape(workflowIdsSchema, readWorkflowIds(call.query), 'workflowId');
	const { metadata, locale, ttl } = await readBody(call, handOffRequestSchema, {});
	checkWorkflows(settings, workflowIds);
	const sessionId = randomBytes(12).toString('hex');
	const { url, createdAt, expiresAt } = issueLink(parts, ttl, { workflowIds, sessionId, issuerGrant: principal.grant });
	// One id for all: a device that is changing its workflow hears it on two channels and drops the second.
	const message = { type: 'session.started', id: randomUUID(), sessionId, workflowIds, metadata, locale, expiresAt };
	const reached = parts.hub.send(({ workflowId }) =>
		workflowIds.includes(workflowId) ? JSON.stringify({ ...message, workflowId }) : null,
	);
	parts.eventLog.emit('notified', { kind: message.type, reached, at: settings.now() });
	const endsAtMs = Date.parse(expiresAt);
	parts.sessions.add(sessionId, { sessionId, workflowIds, metadata, locale, createdAt, expiresAt }, endsAtMs);
	const record: HandOffRecord = { url, createdAt, expiresAt, workflowIds };
	return jsonAnswer(201, record);
}

async function showSession(parts: ServiceParts, call: Call): Promise<Answer> {
	await authenticate(parts, call.presented, 'session');
	const session = parts.sessions.get((call.path ?? '').slice(OWN_ENDPOINTS.sessions.length));
	if (!session || Date.parse(session.expiresAt) <= parts.settings.now())
		throw new ProblemResponse('not-found', 'There is no such session, or it has ended.');
	return jsonAnswer(200, session);
}

async function showDevices(parts: ServiceParts, call: Call): Promise<Answer> {
	await authenticate(parts, call.presented, 'devices');
	return jsonAnswer(200, { devices: listDevices(parts) });
}

export const notifyRequestSchema = z.object({
	message: z.unknown().refine((message) => message !== undefined, 'must be given'),
	/** The same as it was written: parsed, 1.10 and 9007199254740993 are other numbers. */
	text: z.string().optional(),
	deviceId: deviceIdSchema.optional(),
	workflowId: workflowIdSchema.optional(),
});

async function sendNotification(parts: ServiceParts, call: Call): Promise<Answer> {
	await authenticate(parts, call.presented, 'embedded');
	const { message, text, ...filter } = await readBody(call, notifyRequestSchema);
	return jsonAnswer(200, { reached: notifyDevices(parts, message, filter, text) });
}

const workflowRequestSchema = z.object({ deviceId: deviceIdSchema, workflowId: workflowIdSchema });

async function sendWorkflowChange(parts: ServiceParts, call: Call): Promise<Answer> {
	await authenticate(parts, call.presented, 'embedded');
	const { deviceId, workflowId } = await readBody(call, workflowRequestSchema);
	checkWorkflows(parts.settings, [workflowId]);
	return jsonAnswer(200, { reached: changeWorkflow(parts, deviceId, workflowId) });
}

/** The last check of all: whatever is refused before leaves a one-time token unspent. */
function spendIfToken({ shortTokens }: ServiceParts, principal: Principal | null): void {
	if (principal?.scheme === 'Token') shortTokens.spend(principal.token);
}

function checkWorkflows({ workflows }: ServiceSettings, desired: readonly string[]): void {
	const unknown = workflows ? desired.filter((id) => !workflows.includes(id)) : [];
	if (unknown.length > 0) throw new ProblemResponse('workflow-unknown', `There is no workflow ${unknown.join(', ')}.`);
}

const FORMATS = ['image/png', 'image/svg+xml', 'application/json'] as const;

/** The first of our formats that the client likes best. @throws ProblemResponse 406. */
function chooseFormat(accept = '*/*'): (typeof FORMATS)[number] {
	const ranges = accept.split(',').map((part) => {
		const [type = '', ...parameters] = part.split(';').map((text) => text.trim().toLowerCase());
		const weight = Number(parameters.find((text) => text.startsWith('q='))?.slice(2) ?? 1);
		return { type, weight: Number.isFinite(weight) ? weight : 0 };
	});
	const weightOf = (format: string) => {
		const names = [format, `${format.split('/')[0]}/*`, '*/*'];
		const exact = names.map((name) => ranges.find((range) => range.type === name)).find((range) => range !== undefined);
		return exact?.weight ?? 0;
	};
	const best = [...FORMATS].sort((a, b) => weightOf(b) - weightOf(a))[0];
	if (best === undefined || weightOf(best) <= 0)
		throw new ProblemResponse('not-acceptable', 'A pairing code comes as PNG, SVG or JSON.');
	return best;
}
