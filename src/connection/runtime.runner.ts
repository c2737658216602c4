/** The outcome of the settings: the network, a client of the service and the credentials, made whenever they change. */
import { randomUUID } from 'node:crypto';
import { AgentError, type Failure, toFailure } from '../base/errors.ts';
import { readText } from '../base/files.edge.ts';
import { secretsInWord } from '../base/redact.ts';
import { joinSentences } from '../base/sentences.ts';
import { type Credentials, NO_CREDENTIALS, readCredentials } from '../settings/credentials.runner.ts';
import { readSecretFile } from '../settings/files.edge.ts';
import { type Headers, readHeader, readHeaderLines, secretsOfHeaders } from '../settings/header-lines.ts';
import { type LoadedSettings, resolveWith, type SettingsSources, tellGone } from '../settings/load.runner.ts';
import type { DeviceState } from '../state/device-state.ts';
import { createNetwork, type Network, type NetworkSettings } from './network.edge.ts';
import { createServiceClient, type ServiceClient } from './service-client.edge.ts';

const MAX_HEADERS_BYTES = 16 * 1024;
/** Checked with the settings. */
type Pairs = [string, string][];

export interface Runtime {
	readonly resolved: LoadedSettings;
	readonly credentials: Credentials;
	readonly network: Omit<Network, 'close'>;
	/** What pairing on the page asks for; `null` for nothing. */
	readonly pin: string | null;
	readonly client: ServiceClient;
	/** What `service.headers` and `service.headersFile` add for a service; the file's are for that of the settings only. */
	readonly headersFor: (baseUrl: string) => Headers;
}

export interface OpenRuntime extends Runtime {
	/** Ends its connections when the requests under way are over: the answer to a one-time code must not be cut off. */
	retire(): Promise<void>;
	/** Ends its connections now. */
	close(): Promise<void>;
}

export interface RuntimeParts {
	readonly userAgent: string;
	/** The variables of the process, for proxies. */
	readonly env: Readonly<Record<string, string | undefined>>;
	readonly registerSecret: (secret: string) => void;
	/** The device's clock, beside which the service's is held. */
	readonly wallMs?: () => number;
}

/** The files that settings name: when one of them changes, what the settings amount to does. */
export function namedFiles({
	settings: { credential, network, page, service, telemetry },
}: LoadedSettings): readonly string[] {
	const { apiKeyFile, basicFile, connectionFile } = credential;
	const { caFile, clientCertificateFile, clientKeyFile } = network;
	const files = [
		apiKeyFile,
		basicFile,
		connectionFile,
		caFile,
		clientCertificateFile,
		clientKeyFile,
		page.pinFile,
		service.headersFile,
		telemetry.headersFile,
	];
	return files.filter((file) => file !== null);
}

/** @throws AgentError `credential-unreadable`, `settings-unreadable` or `settings-invalid` for a file that settings name. */
export async function openRuntime(resolved: LoadedSettings, parts: RuntimeParts): Promise<OpenRuntime> {
	const credentials = await readCredentials(resolved.settings.credential, readSecretFile);
	const pin = await readPin(resolved);
	const headers = await readHeaders(resolved);
	const network = await createNetwork(networkSettings(resolved), parts.env);
	return assemble(resolved, network, credentials, pin, headers, parts);
}

function readPin({ settings: { page } }: LoadedSettings): Promise<string> | null {
	return page.pinFile === null ? null : readSecretFile(page.pinFile);
}

/** Those of the file. @throws AgentError `credential-unreadable`, without a word of a value. */
async function readHeaders({ settings: { service } }: LoadedSettings): Promise<Headers> {
	const file = service.headersFile;
	if (file === null) return {};
	const unreadable = (what: string, cause?: unknown) =>
		new AgentError('credential-unreadable', `service.headersFile ${file}${what}.`, { params: { path: file }, cause });
	const text = await readText(file, MAX_HEADERS_BYTES).catch((cause) => {
		throw unreadable(' cannot be read', cause);
	});
	return readHeaderLines(text, true, (line, what) => unreadable(`: line ${line} ${what}`));
}

/**
 * The environment to start with. A bad push never strands a device: what cannot be used gives way to the last valid
 * settings; where a file that those name cannot be read either, the device goes on without it. A credential that is not
 * there yet does not prevent a start.
 * @throws AgentError when there never were valid settings.
 */
export async function openFirstRuntime(
	loaded: LoadedSettings,
	{ lastSettings }: Pick<DeviceState, 'lastSettings'>,
	sources: Pick<SettingsSources, 'env' | 'sets' | 'checked'>,
	parts: RuntimeParts,
): Promise<{ runtime: OpenRuntime; warning: Failure | null }> {
	// They were valid when they were kept. A newer version knew the ones that this one does not know.
	const last = lastSettings && resolveWith(lastSettings, sources);
	const inForce =
		last && last.problems.length > 0
			? 'The last valid settings are in force, as far as this version knows them.'
			: 'The last valid settings are in force.';
	const [problem] = loaded.problems;
	if (problem && !last)
		throw new AgentError(problem.code, loaded.problems.map(({ message }) => message).join('\n'), {
			...problem,
		});
	const gone = tellGone(lastSettings ?? [], loaded.documents);
	let trouble = problem ? worded(problem, gone) : null;
	for (const candidate of [problem ? null : loaded, last]) {
		if (!candidate) continue;
		try {
			const runtime = await openRuntime(candidate, parts);
			return { runtime, warning: trouble && worded(trouble, inForce) };
		} catch (error) {
			const found = toFailure(error);
			if (!last && found.code !== 'credential-unreadable') throw error;
			trouble ??= found;
		}
	}
	const runtime = await openBareRuntime(last ?? loaded, parts, last !== null);
	return { runtime, warning: trouble && worded(trouble, 'The agent goes on without it.') };
}

/** With the saved Connection, if any. @param barely also without authorities and a certificate that cannot be read. */
async function openBareRuntime(resolved: LoadedSettings, parts: RuntimeParts, barely: boolean): Promise<OpenRuntime> {
	const credentials = await readCredentials(resolved.settings.credential, readSecretFile).catch((error) => ({
		...NO_CREDENTIALS,
		unreadable: toFailure(error),
	}));
	const { proxy, systemCa } = networkSettings(resolved);
	const network = await createNetwork(networkSettings(resolved), parts.env).catch((error) => {
		if (!barely) throw error;
		return createNetwork({ proxy, systemCa }, parts.env);
	});
	// A PIN that cannot be read is one that cannot be typed.
	const pin = await readPin(resolved)?.catch(() => randomUUID());
	const headers = await readHeaders(resolved).catch(() => ({}));
	return assemble(resolved, network, credentials, pin ?? null, headers, parts);
}

function assemble(
	resolved: LoadedSettings,
	network: Network,
	credentials: Credentials,
	pin: string | null,
	secretHeaders: Headers,
	{ userAgent, env, registerSecret, wallMs }: RuntimeParts,
): OpenRuntime {
	const proxies = [
		resolved.settings.network.proxy ?? '',
		...Object.entries(env).map(([name, value = '']) => (/_proxy$/i.test(name) ? value : '')),
	];
	const inProxies = proxies.filter((url) => url.includes('://')).flatMap(secretsInWord);
	for (const secret of [...credentials.secrets, ...secretsOfHeaders(secretHeaders), ...inProxies])
		registerSecret(secret);
	if (pin !== null) registerSecret(pin);
	const plain = Object.fromEntries(resolved.settings.service.headers.map((line) => readHeader(line, true)) as Pairs);
	const headersFor = (baseUrl: string) =>
		baseUrl === resolved.settings.baseUrl ? { ...plain, ...secretHeaders } : plain;
	const made = createServiceClient({ network, userAgent, headersFor, ...(wallMs && { wallMs }) });
	const { client, idle } = countRequests(made);
	return {
		resolved,
		credentials,
		network,
		pin,
		client,
		headersFor,
		async retire() {
			await idle();
			await network.close();
		},
		close: () => network.close(),
	};
}

/** The same client, which knows when nothing is under way. */
function countRequests(client: ServiceClient): { client: ServiceClient; idle(): Promise<void> } {
	const underWay = new Set<Promise<unknown>>();
	const counted = <Answer>(request: Promise<Answer>): Promise<Answer> => {
		const over = request
			.catch(() => {})
			.then(() => {
				underWay.delete(over);
			});
		underWay.add(over);
		return request;
	};
	return {
		client: {
			registerDevice: (registration) => counted(client.registerDevice(registration)),
			preflight: (baseUrl, deadlineMs) => counted(client.preflight(baseUrl, deadlineMs)),
			send: (request) => counted(client.send(request)),
		},
		idle: async () => {
			await Promise.all(underWay);
		},
	};
}

function networkSettings({ settings: { network } }: LoadedSettings): NetworkSettings {
	return {
		proxy: network.proxy ?? undefined,
		caFile: network.caFile ?? undefined,
		systemCa: network.systemCa,
		clientCertificateFile: network.clientCertificateFile ?? undefined,
		clientKeyFile: network.clientKeyFile ?? undefined,
	};
}

function worded(told: Failure, consequence: string): Failure {
	return { ...told, message: joinSentences(told.message, consequence) };
}
