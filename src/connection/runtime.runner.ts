/** The outcome of the settings: the network, a client of the service and the credentials, made whenever they change. */
import { createHash, randomUUID } from 'node:crypto';
import { AgentError, type Failure, toFailure } from '../base/errors.ts';
import { unreadable } from '../base/files.edge.ts';
import { type Credentials, NO_CREDENTIALS, naming, readCredentials } from '../settings/credentials.runner.ts';
import { readSecretFile, stampsOf } from '../settings/files.edge.ts';
import { type Headers, readHeader, readHeaderLines, secretValuesOf } from '../settings/header-lines.ts';
import {
	givenThen,
	type LoadedBefore,
	type LoadedSettings,
	resolveWith,
	type SettingsSources,
} from '../settings/load.runner.ts';
import { valueAt } from '../settings/table.ts';
import type { Unusable } from '../settings/told-problems.ts';
import { isPin } from '../settings/value-schemas.ts';
import type { DeviceState, Way } from '../state/device-state.ts';
import type { CredentialEnd } from './credential-ends.ts';
import { createNetwork, type Network, type NetworkSettings } from './network.edge.ts';
import { createServiceClient, type ServiceClient } from './service-client.edge.ts';
import { readFileOfWay } from './tls-files.edge.ts';
import { headersTextOf, type LastOnline, lastOnline, proxiesOf, wayOf, withWay } from './way.ts';

const MAX_HEADERS_BYTES = 16 * 1024;

export interface Runtime {
	readonly resolved: LoadedSettings;
	readonly credentials: Credentials;
	readonly network: Omit<Network, 'close'>;
	/** What pairing on the page asks for; `null` for nothing. */
	readonly pin: string | null;
	readonly client: ServiceClient;
	/** Those of `service.headers` and `service.headersFile`; of the file only for the service of the settings, and for that at which the device was online last with the same file. */
	readonly headersFor: (baseUrl: string) => Headers;
	/** The texts that no words of a service may repeat: the values of `service.headersFile`, and the parts of those, that are long enough to be looked for, and the credential that registers. Default: none. */
	readonly secretValues?: readonly string[];
	/** When its key and its client certificate begin and end, as far as they say so. */
	readonly ends?: readonly CredentialEnd[];
	/** The way by which links go; left out, they are not told apart by it. */
	readonly way?: Way;
}

export interface OpenRuntime extends Runtime {
	readonly way: Way;
	/** What could not be used of the files that settings name. */
	readonly problems: readonly Unusable[];
	/** Ends its connections when the requests under way are over: the answer to a one-time code must not be cut off. */
	retire(): Promise<void>;
	/** Ends its connections now. */
	close(): Promise<void>;
}

export interface RuntimeParts {
	readonly userAgent: string;
	/** The variables of the process, for proxies. */
	readonly env: Readonly<Record<string, string | undefined>>;
	/** The device's clock, beside which the service's is held. */
	readonly wallMs?: () => number;
	/** Left out, the device was never online. */
	readonly last?: LastOnline | null;
}

/** The files that settings name: when one of them changes, what the settings amount to does. */
export function namedFiles({
	settings: { credential, local, network, page, service, telemetry },
}: LoadedSettings): readonly string[] {
	const files = [
		credential.apiKeyFile,
		credential.basicFile,
		credential.connectionFile,
		network.caFile,
		network.clientCertificateFile,
		network.clientKeyFile,
		page.pinFile,
		service.headersFile,
		telemetry.headersFile,
		local.http.applicationsFile,
	];
	return files.filter((file) => file !== null);
}

/** Settings by which links are made and that name what may be unusable: each piece stays as it was where the new one cannot be used. */
const PIECES: readonly (readonly string[])[] = [
	['network.proxy'],
	['network.caFile'],
	['network.clientCertificateFile', 'network.clientKeyFile'],
	['service.headersFile'],
];

/** What is in force before: each piece of it stays where the new one cannot be used. */
export interface Before extends Partial<Pick<Runtime, 'resolved' | 'credentials' | 'pin'>> {
	readonly way?: Way | null | undefined;
	/** Where nothing was before, the device goes on without authorities and a certificate that cannot be read. Default `false`. */
	readonly barely?: boolean;
}

/**
 * @param before left out, everything must be usable. A credential never stays for another address.
 * @throws AgentError `credential-unreadable`, `settings-unreadable` or `settings-invalid` for a file that settings name.
 */
export async function openRuntime(
	resolved: LoadedSettings,
	parts: RuntimeParts,
	before: Before | null = null,
): Promise<OpenRuntime> {
	const problems: Unusable[] = [];
	const kept = new Set<string>();
	const orKept = <Piece>(setting: string, made: Promise<Piece>, stays: boolean, last: (told: Failure) => Piece) =>
		made.catch((error) => {
			if (!before) throw error;
			const failed = toFailure(error);
			const told = { ...failed, params: { ...failed.params, setting } };
			problems.push({ told, stays });
			if (stays) kept.add(setting);
			return last(told);
		});
	const isSameService = before?.resolved?.settings.baseUrl === resolved.settings.baseUrl;
	const { credentials: last = NO_CREDENTIALS } = before ?? {};
	const stays = isSameService && last.id !== '';
	const credentials = await orKept(
		'credential',
		readCredentials(resolved.settings.credential, readSecretFile),
		stays,
		(unreadable) => (stays ? last : { ...NO_CREDENTIALS, unreadable }),
	);
	// A PIN that cannot be read is one that cannot be typed.
	const pin = await orKept(
		'page.pinFile',
		readPin(resolved),
		typeof before?.pin === 'string',
		() => before?.pin ?? randomUUID(),
	);
	const { settings } = resolved;
	const { credential = settings.credential, page = settings.page } = before?.resolved?.settings ?? {};
	const inForce = {
		...settings,
		...(kept.has('credential') && {
			credential: { ...credential, selfRegistration: settings.credential.selfRegistration },
		}),
		...(kept.has('page.pinFile') && { page: { ...settings.page, pinFile: page.pinFile } }),
	};
	const made = await makeWay({ ...resolved, settings: inForce }, parts.env, before, problems);
	return assemble(made, credentials, pin, problems, parts);
}

/** The same runtime by another way: as it was when the device was online by it. */
async function openByWay(runtime: Runtime, way: Way, parts: RuntimeParts): Promise<OpenRuntime> {
	const resolved = withWay(runtime.resolved, way);
	const read = (path: string) => way.files[path] ?? readFileOfWay(path);
	const network = await createNetwork(networkSettings(resolved), way.env, undefined, read);
	const made = { resolved, network, headers: headersOf(resolved, read), way };
	return assemble(made, runtime.credentials, runtime.pin, [], parts);
}

async function readPin({ settings: { page } }: LoadedSettings): Promise<string | null> {
	if (page.pinFile === null) return null;
	const pin = await readSecretFile(page.pinFile, 'PIN').catch(naming('page.pinFile'));
	if (isPin(pin)) return pin;
	const message = `page.pinFile: the PIN in ${page.pinFile} must have six or more digits.`;
	throw new AgentError('settings-invalid', message, { params: { path: page.pinFile } });
}

interface MadeWay {
	readonly resolved: LoadedSettings;
	readonly network: Network;
	readonly headers: Headers;
	readonly way: Way;
}

/** Network and headers; the pieces that cannot be used as they are now are as they were before. All that is wrong is told. */
async function makeWay(
	wanted: LoadedSettings,
	variables: RuntimeParts['env'],
	before: Before | null,
	problems: Unusable[],
): Promise<MadeWay> {
	let resolved = wanted;
	let env = proxiesOf(variables);
	const files = new Map<string, string>();
	const read = (path: string) => {
		if (!files.has(path)) files.set(path, readFileOfWay(path));
		return files.get(path) ?? '';
	};
	const make = async (of: LoadedSettings, by = env) => {
		const headers = headersOf(of, read);
		return { network: await createNetwork(networkSettings(of), by, undefined, read), headers };
	};
	const faultOf = (of: LoadedSettings, by: Way['env']) =>
		make(of, by).then(({ network }) => void network.close(), toFailure);
	const { network, headers } = await make(wanted).catch(async (error) => {
		if (!before) throw error;
		const { way } = before;
		let usable = wanted;
		// The variables are a piece of their own, which is not a setting.
		for (const piece of [[], ...PIECES]) {
			const others = PIECES.flat().filter((path) => !piece.includes(path));
			const isOfSettings = piece.length > 0;
			const fault = await faultOf(withNone(wanted, others), isOfSettings ? {} : env);
			if (!fault) continue;
			problems.push({ told: fault, stays: way != null });
			if (!way && !piece.includes('service.headersFile') && before.barely !== true) throw error;
			if (!isOfSettings) env = way?.env ?? {};
			if (way) resolved = withWay(resolved, way, (path) => piece.includes(path));
			usable = way ? withWay(usable, way, (path) => piece.includes(path)) : withNone(usable, piece);
		}
		for (const [path, text] of Object.entries(way?.files ?? {})) files.set(path, text);
		return make(usable);
	});
	const ofWay = PIECES.flat().map((path) => valueAt(resolved.settings, path));
	const named = [...files].filter(([path]) => ofWay.includes(path));
	const way = wayOf(resolved, Object.fromEntries(named), env, hashOf);
	return { resolved, network, headers, way };
}

/** The same settings without some of the network and of the headers. */
function withNone(loaded: LoadedSettings, paths: readonly string[]): LoadedSettings {
	const none = { value: null, source: 'default', where: null } as const;
	const settings = Object.fromEntries(paths.map((path) => [path, none]));
	return withWay(loaded, { id: '', files: {}, env: {}, settings });
}

const hashOf = (text: string) => createHash('sha256').update(text).digest('hex').slice(0, 16);

/** Those of the file. @throws AgentError `credential-unreadable`, without a word of a value. */
function headersOf({ settings: { service } }: LoadedSettings, read: (path: string) => string): Headers {
	const file = service.headersFile;
	if (file === null) return {};
	const lines = 'one header on each line, such as X-Tenant: north.';
	const wrong = (what: string) =>
		new AgentError('credential-unreadable', `service.headersFile ${file}${what}.`, {
			remedy: `Write ${lines}`,
			params: { path: file },
		});
	let text: string;
	try {
		text = read(file);
	} catch (cause) {
		const remedy = `Put the file there, readable for the agent's user, with ${lines}`;
		throw unreadable('credential-unreadable', 'service.headersFile', file, cause, remedy);
	}
	if (text.length > MAX_HEADERS_BYTES) throw wrong(` has more than ${MAX_HEADERS_BYTES} bytes`);
	const headers = readHeaderLines(text, true, (line, what) => wrong(`: line ${line} ${what}`));
	if (Object.keys(headers).length === 0) throw wrong(' has no header in it');
	return headers;
}

/** The runtime to start with, and the one whose way out is tried beside it where that differs from the last that worked. */
export interface FirstRuntime {
	readonly runtime: OpenRuntime;
	readonly tried: OpenRuntime | null;
	/** The files that could not be used; of the settings themselves, `resolved` says it. */
	readonly problems: readonly Unusable[];
	/** All that the newest settings name, usable or not, and how they were before they were read (`stampsOf`). */
	readonly files: readonly string[];
	readonly seen: string;
	/** Those that were last good, if there ever were any. */
	readonly last: LoadedSettings | null;
}

/** Those that the state keeps. They were valid when they were kept; a newer version knew the ones that this one does not know. */
export function lastSettings(
	{ lastSettings: documents, lastVariables }: Pick<DeviceState, 'lastSettings' | 'lastVariables'>,
	sources: Pick<SettingsSources, 'env' | 'sets' | 'checked'>,
): LoadedSettings | null {
	return documents && resolveWith(documents, { ...sources, ...(lastVariables && givenThen(lastVariables)) });
}

/**
 * The environment to start with. A bad push never strands a device: what cannot be used gives way to what was last valid, piece
 * by piece. A credential that is not there yet does not prevent a start.
 * @param load reads the settings; handed the ones that were last valid, if there ever were any.
 * @throws AgentError when there never were valid settings.
 */
export async function openFirstRuntime(
	load: (before: LoadedBefore | null) => Promise<LoadedSettings>,
	state: Pick<DeviceState, 'lastSettings' | 'lastVariables' | 'lastWay' | 'lastPieces' | 'connections'>,
	sources: Pick<SettingsSources, 'env' | 'sets' | 'checked'>,
	parts: RuntimeParts,
): Promise<FirstRuntime> {
	const last = lastSettings(state, sources);
	const loaded = await load(last && { loaded: last });
	const problem = loaded.problems.find((one) => !loaded.unknown.includes(one));
	if (problem && !last)
		throw new AgentError(problem.code, loaded.problems.map(({ message }) => message).join('\n'), { ...problem });
	const withLast = { ...parts, last: lastOnline(state) };
	const files = namedFiles(loaded);
	const seen = stampsOf(files);
	const runtime = await openRuntime(loaded, withLast, {
		...{ way: state.lastWay, barely: last !== null },
		pin: state.lastPieces['page.pinFile'] ?? null,
	});
	const beside = await besideLast(runtime, withLast);
	return { ...beside, problems: runtime.problems, files, seen, last };
}

/** The runtime by the last way that worked, and beside it the new one, where they differ; else only the new one. */
export async function besideLast(
	runtime: OpenRuntime,
	parts: RuntimeParts,
): Promise<{ readonly runtime: OpenRuntime; readonly tried: OpenRuntime | null }> {
	const { last = null } = parts;
	const differs = last !== null && last.way.id !== runtime.way.id;
	const old = differs ? await openByWay(runtime, last.way, parts).catch(() => null) : null;
	return old ? { runtime: old, tried: runtime } : { runtime, tried: null };
}

function assemble(
	{ resolved, network, headers: secretHeaders, way }: MadeWay,
	credentials: Credentials,
	pin: string | null,
	problems: readonly Unusable[],
	{ userAgent, wallMs, last }: RuntimeParts,
): OpenRuntime {
	const plain = Object.fromEntries(
		resolved.settings.service.headers.map((line) => readHeader(line, true)) as [string, string][],
	);
	const known = [
		resolved.settings.baseUrl,
		...(last && headersTextOf(last.way) === headersTextOf(way) ? [last.baseUrl] : []),
	];
	const headersFor = (baseUrl: string) => (known.includes(baseUrl) ? { ...plain, ...secretHeaders } : plain);
	const secretValues = secretValuesOf(secretHeaders, credentials.reusable);
	const made = createServiceClient({ network, userAgent, headersFor, secretValues, ...(wallMs && { wallMs }) });
	const { client, idle } = watchRequests(made, network);
	return {
		resolved,
		credentials,
		network,
		pin,
		client,
		headersFor,
		secretValues,
		way,
		ends: endsOf(resolved, credentials, network),
		problems,
		async retire() {
			await idle();
			network.retire();
		},
		close: () => network.close(),
	};
}

function endsOf(
	{ settings: { credential, network } }: LoadedSettings,
	{ beginsAtMs, endsAtMs }: Credentials,
	{ certificateStartMs, certificateEndMs }: Network,
): CredentialEnd[] {
	const end = (what: string, path: string | null, fromMs: number | undefined, atMs: number | undefined) =>
		path === null ? [] : [{ what, path, fromMs, atMs }];
	return [
		...end('The API key', credential.apiKeyFile, beginsAtMs, endsAtMs),
		...end('The client certificate', network.clientCertificateFile, certificateStartMs, certificateEndMs),
	];
}

/** The same client, which knows when nothing is under way, and doubts the address of what failed. */
function watchRequests(
	client: ServiceClient,
	network: Pick<Network, 'doubt'>,
): { client: ServiceClient; idle(): Promise<void> } {
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
			async registerDevice(registration) {
				const result = await counted(client.registerDevice(registration));
				return result.ok ? result : { ...result, hasOther: network.doubt(new URL(registration.baseUrl)) };
			},
			async preflight(baseUrl, deadlineMs) {
				const result = await counted(client.preflight(baseUrl, deadlineMs));
				if (result.failure !== null) network.doubt(new URL(baseUrl));
				return result;
			},
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
