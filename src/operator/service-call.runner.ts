/**
 * One request of an operator to the service, tried once. Owns what is said when it fails: the words of the catalogue are a
 * device's, which retries; an operator's command does not, and may have created something.
 */
import { AgentError, type ErrorCode, type Failure, failure } from '../base/errors.ts';
import { VERSION } from '../cli/version.runner.ts';
import { classifyHttpAnswer } from '../connection/classify-failure.ts';
import { createNetwork } from '../connection/network.edge.ts';
import {
	createServiceClient,
	type ServiceAnswer,
	type ServiceClient,
	type ServiceRequest,
} from '../connection/service-client.edge.ts';
import { secretsOf } from '../protocol/authorization.ts';
import { endpointUrl } from '../protocol/endpoints.ts';
import type { Target } from './service-target.runner.ts';

const DEADLINE_MS = 30_000;
const MAX_ANSWER_BYTES = 1024 * 1024;

export interface ServiceCall extends Pick<ServiceRequest, 'body' | 'rawBody' | 'accept'> {
	readonly method: 'GET' | 'POST';
	readonly path: string;
	readonly query?: URLSearchParams | undefined;
	/** Largest answer, in bytes; default 1 MiB. */
	readonly maxBytes?: number | undefined;
}

/** The purpose of a call, so that its failure is described in the right words. */
export interface Purpose {
	/** The resource that may exist although no answer came: `an API key`; left out for calls that leave nothing behind. */
	readonly creates?: string | undefined;
	/** The permission that it requires. */
	readonly needs: string;
	/** The workflow it names: one that the service doesn't know is reported as such. */
	readonly workflowId?: string | undefined;
}

/** Opens the network for the time of one command. What spends a one-time code has a connection of its own. */
export async function withClient<Result>(
	{ caFile, env, authorization }: Pick<Target, 'caFile' | 'env'> & Partial<Target>,
	use: (client: ServiceClient) => Promise<Result>,
): Promise<Result> {
	const network = await createNetwork({ caFile }, env);
	try {
		const way: typeof network =
			authorization?.scheme === 'Token'
				? network
				: { ...network, ask: (asked) => network.ask({ ...asked, keeps: 4000 }) };
		return await use(createServiceClient({ network: way, userAgent: `idv/${VERSION}` }));
	} finally {
		await network.close();
	}
}

/** One call and nothing else. @throws AgentError when there is no answer, or not a good one. */
export async function callService(target: Target, call: ServiceCall, purpose: Purpose): Promise<ServiceAnswer> {
	return withClient(target, async (client) => {
		const answer = await sendOnce(client, target, call, purpose);
		if (isGood(answer)) return answer;
		throw refusal(target, answer, purpose);
	});
}

/** The answer whatever its status. @throws AgentError when there is none. */
export async function sendOnce(
	client: ServiceClient,
	target: Target,
	call: ServiceCall,
	purpose: Purpose,
): Promise<ServiceAnswer> {
	const { path, query, maxBytes = MAX_ANSWER_BYTES, ...request } = call;
	const { baseUrl, authorization } = target;
	const url = endpointUrl(baseUrl, path, query);
	return client.send({ ...request, url, authorization, maxBytes, deadlineMs: DEADLINE_MS }).catch((error: unknown) => {
		if (!(error instanceof AgentError)) throw error;
		throw inOperatorsWords(error.failure, purpose, !NEVER_SENT.includes(error.code), error.cause);
	});
}

export function isGood({ status }: ServiceAnswer): boolean {
	return status >= 200 && status < 300;
}

/** The failure behind an answer that is not the expected one. */
export function refusal({ baseUrl, authorization }: Target, answer: ServiceAnswer, purpose: Purpose): AgentError {
	const { status, headers, body, path } = answer;
	const told = classifyHttpAnswer({
		...{ status, headers, path },
		body: new TextDecoder().decode(body),
		// The only purpose under which an unknown workflow is looked for.
		purpose: purpose.workflowId !== undefined && !isGood(answer) ? 'register' : 'other',
		host: new URL(baseUrl).host,
		workflowId: purpose.workflowId,
		secrets: secretsOf(authorization),
	});
	// A clear no leaves nothing behind; a success that cannot be read, or a service that broke down, may.
	return inOperatorsWords(told, purpose, status < 300 || status === 408 || (status >= 500 && status !== 503));
}

/** Where nothing can have arrived at the service. */
const NEVER_SENT: readonly ErrorCode[] = [
	'dns-failed',
	'service-unreachable',
	'connect-timeout',
	'clock-wrong',
	'certificate-expired',
	'certificate-untrusted',
	'certificate-wrong-host',
	'tls-failed',
	'proxy-failed',
	'proxy-refused',
];
const REMEDIES: Partial<Record<ErrorCode, string>> = {
	'dns-failed': 'Check --url and the DNS server, then run the command again.',
	'service-unreachable': 'Check --url and the network, then run the command again.',
	'connect-timeout': 'Check --url and whether a firewall drops connections to the host.',
	'connection-lost': 'Run the command again.',
	'request-timeout': 'Run the command again when the service is quicker.',
	'clock-wrong': "Set this machine's clock, then run the command again.",
	'certificate-untrusted': 'Name the certificate authority of the service with --ca-file, or check --url.',
	'certificate-wrong-host': 'Check the host name in --url.',
	'proxy-failed':
		'Check HTTPS_PROXY and that the proxy runs; where it has an authority of its own, name that with --ca-file.',
	'proxy-refused': 'Give HTTPS_PROXY a user and password that the proxy accepts.',
	'captive-portal': 'Check --url: something else answers in place of the service.',
	'redirect-refused': 'Use the address that the service really has: a credential is never sent on to another one.',
	'credential-refused': 'Check the credential; idv whoami shows which one is used.',
	'request-rejected': 'Correct the fields that the service names; nothing was created.',
	'workflow-unknown': 'Name a workflow that exists in the service; the spelling must match exactly.',
	'service-overloaded': 'Wait a while, then run the command again.',
	'service-failed': 'Run the command again later; if it repeats, the operator of the service must look at it.',
	'bad-response': 'Check --url: the service has no such endpoint there, or its answer has an unknown form.',
};

/** For a success without what was asked for. */
export function unreadAnswer({ baseUrl }: Target, missing: string, purpose: Purpose): AgentError {
	return inOperatorsWords(
		failure('bad-response', `${new URL(baseUrl).host} answered without ${missing}.`),
		purpose,
		true,
	);
}

/** The failure with what an operator can do about it. @param mayExist what was asked for, although the command failed. */
export function inOperatorsWords(
	{ code, message, remedy }: Pick<Failure, 'code' | 'message' | 'remedy'>,
	{ creates, needs }: Purpose,
	mayExist: boolean,
	cause?: unknown,
): AgentError {
	const own = code === 'access-forbidden' ? `Use ${needs}.` : (REMEDIES[code] ?? remedy);
	const look = `The service may have created ${creates}: look there before you run the command again.`;
	return new AgentError(code, message, { remedy: mayExist && creates !== undefined ? look : own, cause });
}
