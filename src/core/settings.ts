/**
 * Every setting with its meaning, unit, range and default, and where each value came from.
 * Reads no file and no environment itself: layers are handed in, lowest first.
 */
import * as z from 'zod';
import {
	DEFAULT_HEARTBEAT_CADENCE,
	deviceIdSchema,
	deviceTypeSchema,
	heartbeatCadenceSchema,
	macAddressSchema,
	serialSchema,
	workflowIdSchema,
} from '../protocol/device-connection.ts';
import { DEFAULT_CHANNEL_PATH, isLoopback, normalizeBaseUrl } from '../protocol/endpoints.ts';
import { type Failure, failure } from './errors.ts';

/** One setting: how it is read, what it is when nobody sets it, and what it is for. */
export interface Setting<Value> {
	readonly kind: 'text' | 'number' | 'boolean' | 'list';
	readonly schema: z.ZodType<Value>;
	readonly fallback: Value;
	/** One sentence, with unit and range. */
	readonly about: string;
	/** Its value may contain a secret and is masked wherever it is shown. */
	readonly secret: boolean;
}

const setting = <Value>(
	kind: Setting<Value>['kind'],
	schema: z.ZodType<Value>,
	fallback: NoInfer<Value>,
	about: string,
	more: { secret?: boolean } = {},
): Setting<Value> => ({ kind, schema, fallback, about, secret: more.secret ?? false });

const optional = <Value>(schema: z.ZodType<Value>) => schema.nullable() as z.ZodType<Value | null>;
const text = z.string('must be a text').min(1, 'must not be empty').max(4096, 'must have at most 4096 characters');
const filePath = text.refine((path) => path.startsWith('/'), 'must be an absolute path');
const pointer = text.regex(/^(\/[^/]*)*$/, 'must be a JSON pointer (RFC 6901) such as /data/token');
const whole = (min: number, max: number) =>
	z.int('must be a whole number').min(min, `must be at least ${min}`).max(max, `must be at most ${max}`);
const flag = z.boolean('must be true or false');
const baseUrl = z.string('must be a text').transform((value, context) => {
	const url = normalizeBaseUrl(value);
	if (url && (url.startsWith('https:') || isLoopback(url))) return url;
	context.addIssue(
		url
			? 'must begin with https:// (plain http is only for this machine itself)'
			: 'must be an https address without user, query or fragment, such as https://id.example.com',
	);
	return z.NEVER;
}) as unknown as z.ZodType<string>;
const origin = z.string('must be a text').transform((value, context) => {
	const url = normalizeBaseUrl(value);
	if (url && URL.parse(url)?.origin === url) return url;
	context.addIssue('must be an origin such as https://id.example.com, without a path');
	return z.NEVER;
}) as unknown as z.ZodType<string>;

/** All settings, in the order in which they are shown. */
export const SETTINGS = {
	baseUrl: setting('text', optional(baseUrl), null, 'Address of the service; left out, the pairing code names it.'),
	workflowId: setting(
		'text',
		optional(workflowIdSchema),
		null,
		'Workflow of this device; once set here, nothing else changes it.',
	),
	deviceId: setting(
		'text',
		optional(deviceIdSchema),
		null,
		'Device identifier; left out, the serial number or a generated id.',
	),
	serial: setting(
		'text',
		optional(serialSchema),
		null,
		'Serial number, for hardware that reports none or a wrong one.',
	),
	macAddress: setting(
		'text',
		optional(macAddressSchema as unknown as z.ZodType<string>),
		null,
		'MAC address to report instead of the one that is found.',
	),
	deviceType: setting('text', deviceTypeSchema, 'kiosk', 'Type of the device, in the words of the service.'),
	heartbeatCadence: setting(
		'number',
		heartbeatCadenceSchema,
		DEFAULT_HEARTBEAT_CADENCE,
		'Seconds between two heartbeats, 1 to 86400.',
	),
	credential: {
		apiKeyFile: setting(
			'text',
			optional(filePath),
			null,
			'File with an API key that may open connections (ephemeral_device:write).',
		),
		basicFile: setting(
			'text',
			optional(filePath),
			null,
			'File with username:password, for services that register devices by Basic.',
		),
		connectionFile: setting(
			'text',
			optional(filePath),
			null,
			'File with a Connection token that an operator made for this device.',
		),
		selfRegistration: setting('boolean', flag, false, 'Register without any credential, where the service allows it.'),
	},
	pairing: {
		trustedOrigins: setting(
			'list',
			z.array(origin).max(64),
			[],
			'Origins that pairing codes may come from; empty asks a person the first time.',
		),
	},
	service: {
		tokenPointer: setting(
			'text',
			optional(pointer),
			null,
			'JSON pointer to the Connection token in the answer to a registration.',
		),
		channelPath: setting(
			'text',
			text.regex(/^\/[^?#]*$/, 'must be a path such as /ws/device'),
			DEFAULT_CHANNEL_PATH,
			'Path of the notification channel under baseUrl.',
		),
		channelAuth: setting(
			'text',
			z.enum(['header', 'query'], 'must be "header" or "query"'),
			'header',
			'How the channel is authorized: header, or query for services that cannot read headers there.',
		),
		heartbeatMode: setting(
			'text',
			z.enum(['frame', 'ping', 'off'], 'must be "frame", "ping" or "off"'),
			'frame',
			'Heartbeats as a JSON frame, as a WebSocket ping, or not at all.',
		),
		silenceLimitSeconds: setting(
			'number',
			optional(whole(0, 86_400)),
			null,
			'Seconds of silence that end a channel, 0 for never; left out, two pings (at least 10 s).',
		),
		kindPointer: setting(
			'text',
			optional(pointer),
			null,
			'JSON pointer to the kind of a notification; left out: type, event or kind.',
		),
		notificationIdPointer: setting(
			'text',
			optional(pointer),
			null,
			'JSON pointer to the id of a notification, by which duplicates are known; left out: /id.',
		),
		actOnMessages: setting(
			'boolean',
			flag,
			true,
			'Whether workflow.changed and connection.revoked from the service are acted on.',
		),
	},
	network: {
		proxy: setting(
			'text',
			optional(text.regex(/^https?:\/\/[^\s]+$/, 'must be a URL such as http://proxy.example:3128')),
			null,
			'HTTP proxy for everything; left out, HTTPS_PROXY and NO_PROXY count.',
			{ secret: true },
		),
		caFile: setting(
			'text',
			optional(filePath),
			null,
			'PEM file with certificate authorities to trust besides the built-in ones.',
		),
		systemCa: setting('boolean', flag, false, "Trust this system's certificate store as well."),
		clientCertificateFile: setting(
			'text',
			optional(filePath),
			null,
			'PEM file with the client certificate for services that ask for one.',
		),
		clientKeyFile: setting('text', optional(filePath), null, 'PEM file with the key of the client certificate.'),
	},
	events: {
		maxCount: setting('number', whole(1, 100_000), 1000, 'Events kept for applications, at most; 1 to 100000.'),
		maxBytes: setting(
			'number',
			whole(65_536, 268_435_456),
			4_194_304,
			'Bytes of events kept for applications, at most; 65536 to 268435456.',
		),
	},
	local: {
		agentGroup: setting('text', text, 'idv-agent', 'Group whose members may use agent.sock (applications).'),
		adminGroup: setting('text', text, 'idv-agent-admin', 'Group whose members may use admin.sock (pairing, workflow).'),
	},
	log: {
		level: setting(
			'text',
			z.enum(['debug', 'info', 'warn', 'error'], 'must be "debug", "info", "warn" or "error"'),
			'info',
			'Least severity that is logged: debug, info, warn or error.',
		),
	},
} as const;

type Values<Table> = {
	readonly [Key in keyof Table]: Table[Key] extends Setting<infer Value> ? Value : Values<Table[Key]>;
};
export type Settings = Values<typeof SETTINGS>;

/** Where a value came from; `where` is the file or the variable. */
export interface SettingOrigin {
	readonly source: 'default' | 'file' | 'environment' | 'flag';
	readonly where: string | null;
}

/** Settings from one place. Later layers win over earlier ones. */
export type SettingsLayer =
	| { readonly source: 'file'; readonly where: string; readonly document: unknown }
	/** Texts by setting path: from `IDV_AGENT_…` variables or `--set path=value`. */
	| { readonly source: 'environment' | 'flag'; readonly texts: ReadonlyMap<string, { value: string; where: string }> };

export interface ResolvedSettings {
	readonly settings: Settings;
	/** By path, for every setting. */
	readonly origins: ReadonlyMap<string, SettingOrigin>;
	/** What is wrong with the layers; non-empty means the settings must not be used. */
	readonly problems: readonly Failure[];
}

/** Every setting by its dotted path, in order. */
export function listSettings(): ReadonlyMap<string, Setting<unknown>> {
	const list = new Map<string, Setting<unknown>>();
	for (const [key, entry] of Object.entries(SETTINGS)) {
		if (isSetting(entry)) list.set(key, entry);
		else for (const [inner, nested] of Object.entries(entry)) list.set(`${key}.${inner}`, nested as Setting<unknown>);
	}
	return list;
}

/** `service.channelPath` → `IDV_AGENT_SERVICE_CHANNEL_PATH`. */
export function environmentName(path: string): string {
	const words = path.replaceAll('.', '_').replaceAll(/([a-z])([A-Z])/g, '$1_$2');
	return `IDV_AGENT_${words.toUpperCase()}`;
}

/** Merges the layers, lowest first, and checks every value. Bad values keep what was below them and are reported. */
export function resolveSettings(layers: readonly SettingsLayer[]): ResolvedSettings {
	const known = listSettings();
	const values = new Map<string, unknown>();
	const origins = new Map<string, SettingOrigin>();
	const problems: Failure[] = [];
	for (const [path, { fallback }] of known) {
		values.set(path, fallback);
		origins.set(path, { source: 'default', where: null });
	}
	for (const layer of layers) {
		if (layer.source === 'file' && !isGroupOfSettings(layer.document))
			problems.push(failure('settings-invalid', `${layer.where}: the file must hold a group of settings: { … }.`));
		for (const { path, value, where } of layer.source === 'file' ? readFile(layer, known) : readTexts(layer, known)) {
			const entry = known.get(path);
			const problem = entry ? check(entry, value) : { message: unknownKey(path, known) };
			if ('message' in problem) problems.push(failure('settings-invalid', `${where}: ${path} ${problem.message}`));
			else {
				values.set(path, problem.value);
				origins.set(path, { source: layer.source, where });
			}
		}
	}
	const settings = nest(values);
	problems.push(...checkTogether(settings));
	return { settings, origins, problems };
}

interface Entry {
	readonly path: string;
	readonly value: unknown;
	readonly where: string;
}

function* readFile(
	layer: Extract<SettingsLayer, { source: 'file' }>,
	known: ReadonlyMap<string, Setting<unknown>>,
): Generator<Entry> {
	if (!isGroupOfSettings(layer.document)) return;
	for (const [key, value] of Object.entries(layer.document)) {
		const isGroup = Object.hasOwn(SETTINGS, key) && !known.has(key);
		if (!isGroup) yield { path: key, value, where: layer.where };
		else if (!isGroupOfSettings(value)) yield { path: key, value: NOT_A_GROUP, where: layer.where };
		else
			for (const [inner, nested] of Object.entries(value))
				yield { path: `${key}.${inner}`, value: nested, where: layer.where };
	}
}

function isGroupOfSettings(value: unknown): value is Record<string, unknown> {
	return typeof value === 'object' && value !== null && !Array.isArray(value);
}

const NOT_A_GROUP = Symbol('a value where a group of settings belongs');

function* readTexts(
	layer: Extract<SettingsLayer, { source: 'environment' | 'flag' }>,
	known: ReadonlyMap<string, Setting<unknown>>,
): Generator<Entry> {
	for (const [path, { value, where }] of layer.texts)
		yield { path, value: readText(known.get(path)?.kind, value), where };
}

/** A variable or flag is text: numbers, switches and lists are written as a person would. */
function readText(kind: Setting<unknown>['kind'] | undefined, value: string): unknown {
	if (kind === 'list')
		return value
			.split(',')
			.map((item) => item.trim())
			.filter(Boolean);
	if (kind === 'number') return /^-?\d+(\.\d+)?$/.test(value.trim()) ? Number(value) : value;
	if (kind === 'boolean') return { true: true, false: false }[value.trim().toLowerCase()] ?? value;
	return value;
}

function check(entry: Setting<unknown>, value: unknown): { value: unknown } | { message: string } {
	const result = entry.schema.safeParse(value);
	if (result.success) return { value: result.data };
	const [issue] = result.error.issues;
	const at = issue?.path.length ? `[${issue.path.join('][')}] ` : '';
	return { message: `${at}${plainIssue(issue)}.` };
}

/** zod's own sentences begin with a capital and name types as programmers do. */
function plainIssue(issue: z.core.$ZodIssue | undefined): string {
	if (!issue) return 'is not valid';
	if (issue.code === 'invalid_type' && issue.message.startsWith('Invalid'))
		return `must be a ${WORDS[issue.expected] ?? issue.expected}`;
	if (issue.code === 'too_big' && issue.message.startsWith('Too')) return `must have at most ${issue.maximum} entries`;
	return issue.message;
}
const WORDS: Readonly<Record<string, string>> = {
	string: 'text',
	array: 'list',
	int: 'whole number',
	boolean: 'true or false',
};

function unknownKey(path: string, known: ReadonlyMap<string, Setting<unknown>>): string {
	if (Object.hasOwn(SETTINGS, path)) return 'must be a group of settings: { … }.';
	const nearest = nearestName(path, [...known.keys()]);
	return nearest ? `is not a setting; did you mean ${nearest}?` : 'is not a setting.';
}

/** The known name that is most like a mistyped one, if any is near enough to be meant. */
export function nearestName(typed: string, names: readonly string[]): string | null {
	let best: { name: string; distance: number } | null = null;
	for (const name of names) {
		const last = name.slice(name.lastIndexOf('.') + 1);
		const distance = Math.min(
			editDistance(typed.toLowerCase(), name.toLowerCase()),
			editDistance(typed.toLowerCase(), last.toLowerCase()) + 0.5,
		);
		if (!best || distance < best.distance) best = { name, distance };
	}
	return best && best.distance <= Math.max(2, typed.length / 3) ? best.name : null;
}

function editDistance(a: string, b: string): number {
	let row = Array.from({ length: b.length + 1 }, (_, index) => index);
	for (let i = 1; i <= a.length; i += 1) {
		const next = [i];
		for (let j = 1; j <= b.length; j += 1)
			next[j] = Math.min(
				(row[j] ?? 0) + 1,
				(next[j - 1] ?? 0) + 1,
				(row[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1),
			);
		row = next;
	}
	return row[b.length] ?? 0;
}

/** Rules that need more than one setting. */
function checkTogether(settings: Settings): Failure[] {
	const problems: string[] = [];
	const { credential, network } = settings;
	const named = (['apiKeyFile', 'basicFile', 'connectionFile'] as const).filter((key) => credential[key] !== null);
	if (named.length > 1)
		problems.push(`credential.${named.join(' and credential.')} are set, but only one of them can be used.`);
	// Otherwise a stranger's pairing code could name the host that the key is sent to.
	const needsHost = credential.selfRegistration ? [...named, 'selfRegistration'] : named;
	if (settings.baseUrl === null && needsHost.length > 0)
		problems.push(
			`credential.${needsHost[0]} needs baseUrl: a credential is only sent to a host that the settings name.`,
		);
	if ((network.clientCertificateFile === null) !== (network.clientKeyFile === null))
		problems.push('network.clientCertificateFile and network.clientKeyFile belong together: set both or none.');
	return problems.map((message) => failure('settings-invalid', message));
}

function nest(values: ReadonlyMap<string, unknown>): Settings {
	const root: Record<string, unknown> = {};
	for (const [path, value] of values) {
		const [group = '', key] = path.split('.');
		if (key === undefined) root[group] = value;
		else {
			root[group] ??= {};
			(root[group] as Record<string, unknown>)[key] = value;
		}
	}
	return root as Settings;
}

function isSetting(entry: object): entry is Setting<unknown> {
	return 'schema' in entry;
}
