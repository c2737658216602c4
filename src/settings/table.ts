/**
 * Every setting: its name, meaning, unit, range and default. Nothing is read or merged here (that is `resolve.ts`).
 */
import * as z from 'zod';
import { AUTHORIZATION_PARAMETER } from '../protocol/authorization.ts';
import { DEFAULT_MESSAGE_BYTES, MAX_FRAME_BYTES, templateProblem } from '../protocol/channel.ts';
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
import { labelSchema, PAGE_LANGUAGES, publicKeySchema, SCAN_SUFFIXES } from './terms.ts';

/** One setting: how it is read, what it is when it is not set, and what it is for. */
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
const tokenPlace = text.regex(
	/^((\/[^/]*)*|header:[A-Za-z0-9-]{1,64})$/,
	'must be a JSON pointer (RFC 6901) such as /data/token, or header: and the name of a header',
);
/** A message of the deployment's own shape: as text, or in a file as JSON. */
const messageTemplate = z
	.union([text, z.record(z.string(), z.unknown()).transform((document) => JSON.stringify(document))], {
		error: 'must be a text or a JSON object',
	})
	.superRefine((template, context) => {
		const problem = templateProblem(template);
		if (problem !== null) context.addIssue(problem);
	});
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
});
const origin = z.string('must be a text').transform((value, context) => {
	const url = normalizeBaseUrl(value);
	if (url) return url;
	context.addIssue('must be an origin such as https://id.example.com, with the path of the service if it has one');
	return z.NEVER;
});

const planUrl = z.string('must be a text').transform((value, context) => {
	const url = URL.parse(value);
	const isSafe = url?.protocol === 'https:' || (url?.protocol === 'http:' && isLoopback(url.href));
	if (url && isSafe && !url.username && !url.password && !url.hash) return url.href;
	context.addIssue('must be an https address without user and fragment (plain http is only for this machine itself)');
	return z.NEVER;
});

const hook = (what: string) =>
	setting(
		'list',
		z.array(text).max(64),
		[],
		`Program (absolute path) and arguments run for ${what}, with JSON on standard input; never a shell.`,
	);

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
		optional(macAddressSchema),
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
			'Origins that pairing codes may come from, each with a path if only that one counts; empty asks a person the first time.',
		),
		loopbackByScanner: setting(
			'boolean',
			flag,
			false,
			'Whether a scanner alone may pair with a service on this machine itself, for trials.',
		),
		rescueByScanner: setting(
			'boolean',
			flag,
			false,
			'Whether a scanned code of the same service is taken without a confirmation once the service refuses this device, for devices without a screen.',
		),
	},
	scanner: {
		kind: setting(
			'text',
			z.enum(['auto', 'serial', 'keyboard', 'off'], 'must be "auto", "serial", "keyboard" or "off"'),
			'auto',
			'Scanners that an unpaired device listens to: auto (what looks like one), serial, keyboard or off.',
		),
		device: setting(
			'text',
			optional(filePath),
			null,
			'The one scanner to listen to, such as /dev/serial/by-id/…; left out, idv-agent scanner list says which.',
		),
		baudRate: setting(
			'number',
			whole(300, 921_600),
			9600,
			'Speed of a serial scanner in bits per second, 300 to 921600.',
		),
		suffix: setting(
			'text',
			z.enum(SCAN_SUFFIXES, 'must be "auto", "cr", "lf" or "none"'),
			'auto',
			'What ends a scan: cr, lf, none (a quiet moment) or auto (any of them).',
		),
	},
	service: {
		tokenPointer: setting(
			'text',
			optional(tokenPlace),
			null,
			'Place of the Connection token in the answer to a registration: a JSON pointer such as /data/token, or header:NAME.',
		),
		channelPath: setting(
			'text',
			text.regex(/^\/[^?#]*$/, 'must be a path such as /ws/device'),
			DEFAULT_CHANNEL_PATH,
			'Path of the notification channel under baseUrl; taken by the next channel.',
		),
		channelAuth: setting(
			'text',
			z.enum(['header', 'query', 'queryToken'], 'must be "header", "query" or "queryToken"'),
			'header',
			'How the channel is authorized: header; query ("Connection TOKEN" in a parameter); queryToken (the token alone in it). Taken by the next channel.',
		),
		queryName: setting(
			'text',
			text.regex(/^[\w.~-]{1,64}$/, 'must be the name of a query parameter such as authorization'),
			AUTHORIZATION_PARAMETER,
			'Name of the query parameter that carries the Connection where channelAuth is query or queryToken.',
		),
		subprotocol: setting(
			'text',
			optional(text.regex(/^[\w!#$%&'*+.^`|~-]{1,64}$/, 'must be the name of a WebSocket subprotocol')),
			null,
			'WebSocket subprotocol that the channel asks for; left out, none. Taken by the next channel.',
		),
		heartbeatMode: setting(
			'text',
			z.enum(['frame', 'ping', 'off'], 'must be "frame", "ping" or "off"'),
			'frame',
			'Heartbeats as a JSON frame, as a WebSocket ping, or not at all; taken by the next channel.',
		),
		heartbeatBody: setting(
			'text',
			optional(messageTemplate),
			null,
			'Heartbeat in another shape: a text or JSON with {deviceId}, {workflowId}, {sequence}, {sentAt}, {sentAtMs}, {uptimeSeconds} in it. Taken by the next channel.',
		),
		pingKind: setting(
			'text',
			optional(text.max(256, 'must have at most 256 characters')),
			null,
			"Kind of a message that is the application's own ping: it is answered with pongBody and not kept.",
		),
		pongBody: setting(
			'text',
			messageTemplate,
			'{"type":"pong"}',
			'What answers a message of pingKind: a text or JSON with {id}, {deviceId}, {workflowId}, {sentAt}, {sentAtMs} in it.',
		),
		ignoreKinds: setting(
			'list',
			z.array(text.max(256, 'must have at most 256 characters')).max(64, 'must have at most 64 entries'),
			[],
			'Kinds of messages that are no notifications (answers to heartbeats, chatter): counted, not kept, run no hook.',
		),
		maxMessageBytes: setting(
			'number',
			whole(1024, MAX_FRAME_BYTES),
			DEFAULT_MESSAGE_BYTES,
			'Largest message that is kept, 1024 to 16777216 bytes; a larger one is dropped and becomes an event with its size.',
		),
		connectionLifeSeconds: setting(
			'number',
			optional(whole(60, 315_360_000)),
			null,
			'Life of a Connection that does not say its own, 60 to 315360000 seconds: it is renewed before that time is over.',
		),
		silenceLimitSeconds: setting(
			'number',
			optional(whole(0, 86_400)),
			null,
			'Seconds of silence that end a channel, 0 for never; left out, two pings (at least 10 s). Taken by the next channel.',
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
		maxAgeSeconds: setting(
			'number',
			whole(60, 31_536_000),
			86_400,
			'Seconds for which an event is kept at most; 60 to 31536000.',
		),
		durable: setting(
			'boolean',
			flag,
			true,
			'Whether events are on the disk before an application gets them; false keeps them in memory only. Taken at the start.',
		),
	},
	hooks: {
		onNotification: hook('each notification'),
		onOnline: hook('the device being online'),
		onOffline: hook('the device being offline'),
		onPaired: hook('a pairing'),
		onPairingFailed: hook('a pairing that failed'),
		onPairingUnconfirmed: hook('a scanned code that waits for a confirmation'),
	},
	workflow: {
		maxDeferSeconds: setting(
			'number',
			whole(0, 86_400),
			900,
			'Seconds for which a workflow change waits for the leases of applications at most; 0 to 86400.',
		),
	},
	fleet: {
		planUrl: setting(
			'text',
			optional(planUrl),
			null,
			'Address of the fleet plan, on any web server; left out, there is none.',
			// Object stores put what opens them into the query.
			{ secret: true },
		),
		publicKeys: setting(
			'list',
			z.array(publicKeySchema).max(8),
			[],
			'Public keys (ed25519:…), one of which must have signed the plan; empty takes unsigned plans, too.',
		),
		intervalSeconds: setting(
			'number',
			whole(10, 86_400),
			300,
			'Seconds between two looks at the fleet plan, on average; 10 to 86400.',
		),
		labels: setting(
			'list',
			z.array(labelSchema).max(32),
			[],
			'Labels of this device, by which a fleet plan chooses it.',
		),
		changeLimitSeconds: setting(
			'number',
			whole(10, 86_400),
			300,
			'Seconds in which a change by the fleet plan must be online, else the device stays where it was; 10 to 86400.',
		),
	},
	forward: {
		allow: setting(
			'list',
			z.array(text.regex(/^\/[^?#]*$/, 'must be a path such as /api/v1/sessions')).max(64),
			[],
			'Paths of the service under which applications may ask; empty allows all but the authorization endpoints.',
		),
	},
	page: {
		port: setting(
			'number',
			optional(whole(0, 65_535)),
			null,
			'Port of the page on 127.0.0.1, 0 for any free one; left out, there is no page.',
		),
		pinFile: setting(
			'text',
			optional(filePath),
			null,
			'File with the PIN, six or more digits, that pairing on the page asks for. Required unless baseUrl or pairing.trustedOrigins is set.',
		),
		language: setting(
			'text',
			z.enum(PAGE_LANGUAGES, 'must be "auto", "en", "de", "fr", "es" or "ar"'),
			'auto',
			'Language of the page: en, de, fr, es, ar, or auto for the language of its browser.',
		),
		support: setting(
			'text',
			optional(text.max(200, 'must have at most 200 characters')),
			null,
			'Text on the page for people who need help, such as a telephone number; left out, there is none.',
		),
		contents: setting(
			'boolean',
			flag,
			false,
			'Whether the page shows the contents of notifications to every person before it.',
		),
	},
	local: {
		agentGroup: setting('text', text, 'idv-agent', 'Group whose members may use agent.sock (applications).'),
		adminGroup: setting('text', text, 'idv-agent-admin', 'Group whose members may use admin.sock (pairing, workflow).'),
		metricsPort: setting(
			'number',
			optional(whole(0, 65_535)),
			null,
			'Port on 127.0.0.1 for /livez, /readyz and /metrics, 0 for any free one; left out, they are on the sockets only.',
		),
		http: {
			port: setting(
				'number',
				optional(whole(0, 65_535)),
				null,
				'Port on 127.0.0.1 for applications that live in a browser, 0 for any free one; left out, there is none.',
			),
			applicationsFile: setting(
				'text',
				optional(filePath),
				null,
				'File of mode 0600 or 0640 that names them, one on each line: name, origin, token of 32 characters or more.',
			),
		},
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

/** Every setting by its dotted path, in order. */
export function listSettings(): ReadonlyMap<string, Setting<unknown>> {
	return new Map(walk(SETTINGS, ''));
}

function* walk(group: object, prefix: string): Generator<[string, Setting<unknown>]> {
	for (const [key, entry] of Object.entries(group)) {
		if (isSetting(entry)) yield [prefix + key, entry];
		else yield* walk(entry, `${prefix}${key}.`);
	}
}

/** The value at a dotted path in a tree of groups, such as {@link Settings}. */
export function valueAt(tree: object, path: string): unknown {
	return path.split('.').reduce<unknown>((value, key) => (value as Readonly<Record<string, unknown>>)[key], tree);
}

/** `service.channelPath` → `IDV_AGENT_SERVICE_CHANNEL_PATH`. */
export function environmentName(path: string): string {
	const words = path.replaceAll('.', '_').replaceAll(/([a-z])([A-Z])/g, '$1_$2');
	return `IDV_AGENT_${words.toUpperCase()}`;
}

function isSetting(entry: object): entry is Setting<unknown> {
	return 'schema' in entry;
}
