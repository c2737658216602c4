/** What tests of and with the embedded service share: a service per test, plain requests, channels, a stepped clock. */
import { request as httpRequest, type IncomingHttpHeaders } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { onTestFinished } from 'vitest';
import { WebSocket } from 'ws';
import { AUTHORIZATION_PARAMETER, type Authorization, formatAuthorization } from '../../src/protocol/authorization.ts';
import { channelUrl, DEFAULT_CHANNEL_PATH, ENDPOINTS } from '../../src/protocol/endpoints.ts';
import { type EmbeddedService, type ServiceOptions, startService } from '../../src/service/embedded-service.runner.ts';
import { timeOfTest } from '../harness/test-time.ts';

/** A service that ends with the test, and has its time. */
export async function givenService(options: ServiceOptions = {}): Promise<EmbeddedService> {
	const service = await startService({ now: timeOfTest, ...options });
	onTestFinished(() => service.close());
	return service;
}

/** A clock that moves only when it is told to; starts at a round time. */
export function createClock(startMs = Date.UTC(2030, 0, 1)): { now(): number; advance(ms: number): void } {
	let nowMs = startMs;
	return {
		now: () => nowMs,
		advance: (ms) => {
			nowMs += ms;
		},
	};
}

export interface PlainRequest {
	readonly method?: string;
	readonly path: string;
	readonly authorization?: Authorization | string | undefined;
	/** An object is sent as JSON; text and bytes as they are. */
	readonly body?: unknown;
	readonly headers?: Readonly<Record<string, string>>;
	/** PEM of the certificate to trust. */
	readonly ca?: string;
}

export interface PlainAnswer {
	readonly status: number;
	readonly headers: IncomingHttpHeaders;
	readonly bytes: Buffer;
	readonly text: string;
	// biome-ignore lint/suspicious/noExplicitAny: a test looks into whatever came.
	readonly json: any;
}

/** One request on a connection of its own. Rejects when the answer does not arrive whole. */
export function send(baseUrl: string, plain: PlainRequest): Promise<PlainAnswer> {
	const { method = plain.body === undefined ? 'GET' : 'POST', path, authorization, body } = plain;
	const payload = typeof body === 'string' || body instanceof Uint8Array ? body : JSON.stringify(body);
	const headers: Record<string, string> = { connection: 'close' };
	if (payload !== undefined) {
		headers['content-type'] = 'application/json';
		// Left to itself, Node sends the body of a GET or HEAD without saying how long it is.
		headers['content-length'] = String(Buffer.byteLength(payload));
	}
	if (authorization !== undefined) headers['authorization'] = headerValue(authorization);
	const open = baseUrl.startsWith('https:') ? httpsRequest : httpRequest;
	return new Promise((resolve, reject) => {
		const options = { method, headers: { ...headers, ...plain.headers }, agent: false, ca: plain.ca };
		const request = open(`${baseUrl}${path}`, options, (response) => {
			const chunks: Buffer[] = [];
			response.on('data', (chunk: Buffer) => chunks.push(chunk));
			response.on('error', reject);
			response.on('end', () => {
				const bytes = Buffer.concat(chunks);
				const text = bytes.toString();
				const isJson = /json/.test(response.headers['content-type'] ?? '') && text !== '';
				resolve({
					status: response.statusCode ?? 0,
					headers: response.headers,
					bytes,
					text,
					json: isJson ? JSON.parse(text) : undefined,
				});
			});
		});
		request.on('error', reject);
		request.end(payload);
	});
}

/** The trial credentials as authorizations. */
export function credentialsOf({ credentials }: EmbeddedService) {
	return {
		Basic: { scheme: 'Basic', ...credentials.basic },
		Bearer: { scheme: 'Bearer', credential: credentials.bearer },
		ApiKey: { scheme: 'ApiKey', credential: credentials.apiKey },
	} as const satisfies Record<string, Authorization>;
}

/** Registers a device by API key; returns its Connection token. */
export async function registerDevice(
	service: EmbeddedService,
	deviceId: string,
	workflowId = 'check-in',
	more: { heartbeatCadence?: number; serial?: string; macAddress?: string; deviceType?: string } = {},
): Promise<string> {
	const answer = await send(service.url, {
		path: ENDPOINTS.deviceConnection,
		authorization: credentialsOf(service).ApiKey,
		body: { deviceId, workflowId, ...more },
	});
	if (answer.status !== 201) throw new Error(`Registration answered ${answer.status}: ${answer.text}`);
	return answer.json.token;
}

export interface OpenedChannel {
	readonly socket: WebSocket;
	/** The next frame that has not been taken yet. */
	nextFrame(): Promise<{ readonly data: Buffer; readonly isBinary: boolean }>;
	/** The next frame as JSON. */
	// biome-ignore lint/suspicious/noExplicitAny: a test looks into whatever came.
	nextMessage(): Promise<any>;
	/** How the channel ended. */
	readonly closed: Promise<{ readonly code: number; readonly reason: string }>;
}

/** An upgrade that was answered otherwise than with 101. */
export interface RefusedUpgrade {
	readonly status: number;
	readonly headers: IncomingHttpHeaders;
	readonly text: string;
}

/** The credential as a query-string parameter. */
export const queryOf = (credential: Authorization) =>
	new URLSearchParams({ [AUTHORIZATION_PARAMETER]: formatAuthorization(credential) });

export interface ChannelOptions {
	readonly by?: 'header' | 'query';
	readonly path?: string;
	/** PEM of the certificate to trust. */
	readonly ca?: string;
}

/** Opens a channel that ends with the test; rejects with a {@link RefusedUpgrade} or the socket's error. */
export function openChannel(
	service: EmbeddedService,
	authorization: string | Authorization | null,
	{ by = 'header', path = DEFAULT_CHANNEL_PATH, ca }: ChannelOptions = {},
): Promise<OpenedChannel> {
	const credential: Authorization | null =
		typeof authorization === 'string' ? { scheme: 'Connection', credential: authorization } : authorization;
	const query = credential && by === 'query' ? queryOf(credential) : undefined;
	const headers: Record<string, string> =
		credential && by === 'header' ? { authorization: formatAuthorization(credential) } : {};
	const socket = new WebSocket(channelUrl(service.url, path, query), {
		headers,
		perMessageDeflate: false,
		...(ca === undefined ? {} : { ca }),
	});
	onTestFinished(() => socket.terminate());

	const frames: { data: Buffer; isBinary: boolean }[] = [];
	const takers: ((frame: { data: Buffer; isBinary: boolean }) => void)[] = [];
	socket.on('message', (data, isBinary) => {
		const frame = { data: data as Buffer, isBinary };
		const taker = takers.shift();
		if (taker) taker(frame);
		else frames.push(frame);
	});
	const closed = new Promise<{ code: number; reason: string }>((resolve) => {
		socket.on('close', (code, reason) => resolve({ code, reason: reason.toString() }));
	});
	const nextFrame = () => {
		const frame = frames.shift();
		return frame
			? Promise.resolve(frame)
			: new Promise<{ data: Buffer; isBinary: boolean }>((resolve) => takers.push(resolve));
	};
	const nextMessage = async () => JSON.parse((await nextFrame()).data.toString());

	return new Promise((resolve, reject) => {
		socket.on('open', () => resolve({ socket, nextFrame, nextMessage, closed }));
		socket.on('error', reject);
		socket.on('unexpected-response', (request, response) => {
			const chunks: Buffer[] = [];
			response.on('data', (chunk: Buffer) => chunks.push(chunk));
			response.on('end', () => {
				const refused: RefusedUpgrade = {
					status: response.statusCode ?? 0,
					headers: response.headers,
					text: Buffer.concat(chunks).toString(),
				};
				reject(refused);
				request.destroy();
			});
		});
	});
}

/** A heartbeat as a device sends it. */
export function heartbeat(deviceId: string, workflowId = 'check-in', sequence = 1): string {
	return JSON.stringify({
		type: 'heartbeat',
		deviceId,
		workflowId,
		sequence,
		sentAt: '2030-01-01T00:00:00.000Z',
		uptimeSeconds: 1,
	});
}

function headerValue(authorization: Authorization | string): string {
	return typeof authorization === 'string' ? authorization : formatAuthorization(authorization);
}
