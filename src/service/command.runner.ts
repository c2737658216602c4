/** The embedded service for a person at a terminal, and a client that has a running one send a notification. */
import * as z from 'zod';
import { AgentError, type ErrorCode } from '../base/errors.ts';
import { type Authorization, formatAuthorization } from '../protocol/authorization.ts';
import { ENDPOINTS, endpointUrl } from '../protocol/endpoints.ts';
import { parseJson } from '../protocol/json.ts';
import { cleanText, readErrorDetail } from '../protocol/problem.ts';
import { type EmbeddedService, type ServiceOptions, startService } from './embedded-service.runner.ts';
import { type notifyRequestSchema, OWN_ENDPOINTS } from './routes.runner.ts';

const CALL_DEADLINE_MS = 10_000;
/** Longest piece of a device's own words on one line, in characters. */
const MAX_WORD = 80;

/** Where the lines go; a stream such as `process.stdout` will do. */
export interface LineSink {
	write(text: string): unknown;
}

/** Prints where it listens, the credentials of the trial, then one line for each event (none if `quiet`). */
export async function runServiceCommand(
	options: ServiceOptions,
	out: LineSink,
	{ quiet = false, warnings = [] }: { readonly quiet?: boolean; readonly warnings?: readonly string[] } = {},
): Promise<EmbeddedService> {
	const service = await startService(options);
	const { basic, bearer, apiKey } = service.credentials;
	const pairing = endpointUrl(service.url, ENDPOINTS.pairingCode).href;
	const lines = [
		'Embedded service for trials. It keeps everything in memory and forgets it at the end.',
		'',
		`Listening at  ${service.url}`,
		'Credentials of this trial, not for anything real:',
		`  Basic       ${basic.username}:${basic.password}`,
		`  Bearer      ${bearer}`,
		`  ApiKey      ${apiKey}`,
		`Pairing code  GET ${pairing}?workflowId=ID with Basic, Bearer or ApiKey`,
		`Notification  IDV_AUTHORIZATION='Bearer ${bearer}' idv-agent service notify '{"type":"hello"}' --url ${service.url}`,
		...warnings.map((warning) => `Warning: ${warning}`),
		'',
	];
	out.write(`${lines.join('\n')}\n`);
	if (!quiet) printEvents(service, out);
	return service;
}

function printEvents(service: EmbeddedService, out: LineSink): void {
	const print = (at: number, event: string, ...words: string[]) => {
		const line = words.map((word) => cleanText(word, MAX_WORD)).join(' ');
		out.write(`${new Date(at).toISOString()}  ${event.padEnd(14)}  ${line}\n`);
	};
	service.on('request', ({ at, method, path, status, authorizationScheme }) =>
		print(at, 'request', method, path, String(status ?? 'no answer'), `(${authorizationScheme ?? 'no credential'})`),
	);
	service.on('registered', ({ at, deviceId, workflowId }) => print(at, 'registered', deviceId, 'for', workflowId));
	service.on('device-online', ({ at, deviceId, workflowId }) =>
		print(at, 'device-online', deviceId, 'with', workflowId),
	);
	service.on('device-offline', ({ at, deviceId, reason }) => print(at, 'device-offline', deviceId, `(${reason})`));
	service.on('channel-closed', ({ at, deviceId, workflowId, code }) =>
		print(at, 'channel-closed', deviceId, 'with', workflowId, `(code ${code})`),
	);
	service.on('heartbeat', ({ at, deviceId, heartbeat }) =>
		print(at, 'heartbeat', deviceId, `number ${heartbeat.sequence}`),
	);
	service.on('notified', ({ at, kind, reached }) =>
		print(at, 'notified', kind, `to ${reached} ${reached === 1 ? 'device' : 'devices'}`),
	);
}

const reachedSchema = z.object({ reached: z.int().min(0) });

/**
 * Makes a running embedded service send a notification. Tries once, for at most 10 s.
 * @param target base URL of the service, and a Basic or Bearer credential.
 * @returns how many devices it went to.
 * @throws AgentError `credential-refused`, or `service-failed` when the service cannot be reached or refuses.
 */
export async function notifyEmbeddedService(
	{ url, authorization }: { readonly url: string; readonly authorization: Authorization },
	request: z.input<typeof notifyRequestSchema>,
	withinMs = CALL_DEADLINE_MS,
): Promise<number> {
	const endpoint = endpointUrl(url, OWN_ENDPOINTS.notify);
	const asked = fetch(endpoint, {
		method: 'POST',
		headers: { authorization: formatAuthorization(authorization), 'content-type': 'application/json' },
		body: JSON.stringify(request),
		redirect: 'error',
		signal: AbortSignal.timeout(withinMs),
	});
	// Its deadline holds for the body as well.
	const [response, text] = await asked
		.then(async (answer) => [answer, await answer.text()] as const)
		.catch((error: unknown) => {
			throw failed('service-failed', `No answer from ${endpoint.host}: is the embedded service running there?`, error);
		});
	const { status, statusText } = response;
	if (!response.ok) {
		const code = status === 401 || status === 403 ? 'credential-refused' : 'service-failed';
		throw failed(code, `${endpoint.host} answered ${status}: ${readErrorDetail(text) || statusText}`);
	}
	const answer = reachedSchema.safeParse(parseJson(text));
	if (answer.success) return answer.data.reached;
	throw failed('service-failed', `${endpoint.host} is not an embedded service: its answer has another form.`);
}

function failed(code: ErrorCode, message: string, cause?: unknown): AgentError {
	const remedy = 'Check --url and IDV_AUTHORIZATION against what the embedded service printed when it started.';
	return new AgentError(code, message, { remedy, cause });
}
