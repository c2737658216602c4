/** Every setting: its name, meaning, unit, range and default; those of a dialect are in service-settings.ts. */
import {
	cardAddressSchema,
	DEFAULT_HEARTBEAT_CADENCE,
	deviceIdSchema,
	deviceTypeSchema,
	heartbeatCadenceSchema,
	serialSchema,
	workflowIdSchema,
} from '../protocol/device-connection.ts';
import { forwardedHeaderSchema } from '../protocol/forwarded-headers.ts';
import { later } from '../protocol/later.ts';
import { SERVICE_SETTINGS } from './service-settings.ts';
import {
	file,
	flag,
	hook,
	list,
	masked,
	number,
	oneOf,
	optionalNumber,
	optionalText,
	type Setting,
	setting,
} from './setting-kinds.ts';
import {
	baseUrl,
	fetchedUrl,
	fleetNameSchema,
	labelSchema,
	origin,
	publicKeySchema,
	SCAN_SUFFIXES,
	text,
	timeWindow,
	urlPath,
} from './value-schemas.ts';

/** Languages of the page; `auto` takes the one of its browser. */
export const PAGE_LANGUAGES = ['auto', 'en', 'de', 'fr', 'es', 'ar'] as const;

/** All settings, in the order in which they are shown. */
export const SETTINGS = {
	baseUrl: optionalText(baseUrl, 'Address of the service; default: the one in the pairing code.'),
	workflowId: optionalText(workflowIdSchema, 'Workflow of this device; once set here, nothing else changes it.'),
	deviceId: optionalText(deviceIdSchema, 'Device identifier; default: the serial number or a generated id.'),
	serial: optionalText(serialSchema, 'Serial number, for hardware that reports none or a wrong one.'),
	macAddress: optionalText(cardAddressSchema, 'MAC address to report instead of the one that is found.'),
	deviceType: setting('text', deviceTypeSchema, 'kiosk', 'Type of the device, in the words of the service.'),
	heartbeatCadence: setting(
		'number',
		heartbeatCadenceSchema,
		DEFAULT_HEARTBEAT_CADENCE,
		'Seconds between two heartbeats, 1 to 86400.',
	),
	credential: {
		apiKeyFile: file('File with an API key that may open connections (ephemeral_device:write).'),
		basicFile: file('File with username:password, for services that register devices by Basic.'),
		connectionFile: file('File with a Connection token that an operator made for this device.'),
		selfRegistration: flag(false, 'Register without any credential, where the service allows it.'),
	},
	pairing: {
		trustedOrigins: list(
			origin,
			64,
			'Origins that pairing codes may come from, each with a path if only that path is allowed; empty: a person confirms the first one.',
		),
		loopbackByScanner: flag(false, 'Whether a scanner alone may pair with a service on this machine, for trials.'),
		rescueByScanner: flag(
			false,
			'For devices without a screen: whether a device that its service refuses takes a scanned code of that service without a confirmation.',
		),
	},
	scanner: {
		kind: oneOf(
			['auto', 'serial', 'keyboard', 'off'],
			'auto',
			'Scanners that an unpaired device listens to: auto (what looks like one), serial, keyboard or off.',
		),
		device: file(
			'The one scanner to listen to, such as /dev/serial/by-id/…; default: the agent chooses (idv-agent scanner list shows which).',
		),
		baudRate: number(300, 921_600, 9600, 'Speed of a serial scanner in bits per second, 300 to 921600.'),
		suffix: oneOf(SCAN_SUFFIXES, 'auto', 'End of a scan: cr, lf, none (a quiet moment) or auto (any of them).'),
	},
	service: SERVICE_SETTINGS,
	network: {
		proxy: masked(
			optionalText(
				later(() => text.regex(/^https?:\/\/[^\s]+$/, 'must be a URL such as http://proxy.example:3128')),
				'HTTP proxy for all connections; default: HTTPS_PROXY and NO_PROXY.',
			),
		),
		caFile: file('PEM file with certificate authorities to trust besides the built-in ones.'),
		systemCa: flag(false, "Trust this system's certificate store as well."),
		clientCertificateFile: file('PEM file with the client certificate for services that ask for one.'),
		clientKeyFile: file('PEM file with the key of the client certificate.'),
	},
	events: {
		maxCount: number(1, 100_000, 1000, 'Events kept for applications, at most; 1 to 100000.'),
		maxBytes: number(
			65_536,
			268_435_456,
			4_194_304,
			'Bytes of events kept for applications, at most; 65536 to 268435456.',
		),
		maxAgeSeconds: number(60, 31_536_000, 86_400, 'Seconds for which an event is kept at most; 60 to 31536000.'),
		cleanAfterSeconds: number(
			1,
			3600,
			30,
			'Seconds after which events that all applications have acknowledged are erased from the files; 1 to 3600; a low value wears the disk.',
		),
		durable: flag(
			true,
			'Whether events are on the disk before an application gets them; false keeps them in memory only. A change takes effect at the next start.',
		),
	},
	hooks: {
		onNotification: hook('each notification'),
		onOnline: hook('the device being online'),
		onOffline: hook('the device being offline'),
		onNeedsPerson: hook('a device that only a person can bring back online'),
		onPaired: hook('a pairing'),
		onPairingFailed: hook('a pairing that failed'),
		onPairingUnconfirmed: hook('a scanned code that waits for a confirmation'),
	},
	workflow: {
		maxDeferSeconds: number(0, 86_400, 900, 'Seconds that a workflow change waits for leases at most; 0 to 86400.'),
	},
	fleet: {
		// Object stores put what opens them into the query.
		planUrl: masked(optionalText(fetchedUrl, 'Address of the fleet plan, on any web server; default: none.')),
		name: optionalText(
			fleetNameSchema,
			'Name of the fleet that this device belongs to: the device refuses a plan that names another fleet or none; default: the address of the plan separates fleets.',
		),
		publicKeys: list(
			publicKeySchema,
			8,
			'Public keys (ed25519:…), one of which must have signed the plan; empty takes unsigned plans, too.',
		),
		intervalSeconds: number(10, 86_400, 300, 'Seconds between two fetches of the fleet plan, on average; 10 to 86400.'),
		labels: list(labelSchema, 32, 'Labels of this device, by which a fleet plan chooses it.'),
		changeLimitSeconds: number(
			10,
			86_400,
			300,
			'Seconds in which the device must be online after a change by the fleet plan, or of the settings that lead to the service; else it stays as it was. 10 to 86400.',
		),
	},
	update: {
		enabled: flag(false, 'Whether a signed fleet plan may update this device; only from settings that root owns.'),
		judgeSeconds: number(
			30,
			86_400,
			300,
			'Seconds in which a new version must come online if the old one was, and then stay online without a restart; else it is taken back. 30 to 86400.',
		),
		source: file('The only file of apt sources that an update uses; default: the one of the installed version.'),
		window: optionalText(
			timeWindow,
			'Local time of the day in which a plan may begin an update, such as 02:00-05:00; default, or with equal times: at any time.',
		),
	},
	telemetry: {
		// Stores put what opens them into the query.
		otlpUrl: masked(
			optionalText(
				fetchedUrl,
				'Address that takes OTLP metrics over HTTP, such as https://metrics.example.com/opentelemetry/v1/metrics; default: nothing is sent.',
			),
		),
		intervalSeconds: number(10, 3600, 60, 'Seconds between two deliveries of metrics, 10 to 3600.'),
		headersFile: file('File with headers for the metrics store, one Name: value on each line.'),
	},
	forward: {
		allow: list(
			urlPath('/api/v1/sessions'),
			64,
			'Paths of the service under which applications may ask; empty allows all but the authorization endpoints.',
		),
		headers: list(forwardedHeaderSchema, 32, 'Headers of applications that also go to the service, such as x-tenant.'),
		maxBytes: number(1024, 2 ** 34, 2 ** 26, 'Bytes of a forwarded body at most, 1024 to 17179869184.'),
		idleSeconds: number(1, 3600, 30, 'Seconds for which a forwarded request may make no progress, 1 to 3600.'),
	},
	page: {
		port: optionalNumber(0, 65_535, 'Port of the page on 127.0.0.1, 0 for any free one; default: no page.'),
		pinFile: file(
			'File with the PIN, six or more digits, that pairing on the page asks for. Required unless baseUrl or pairing.trustedOrigins is set.',
		),
		language: oneOf(
			PAGE_LANGUAGES,
			'auto',
			`Language of the page: ${PAGE_LANGUAGES.slice(1).join(', ')}, or auto for the language of its browser.`,
		),
		support: optionalText(
			later(() => text.max(200, 'must have at most 200 characters')),
			'Text on the page for people who need help, such as a telephone number; default: none.',
		),
		contents: flag(false, 'Whether the page shows the contents of notifications to every person in front of it.'),
	},
	local: {
		agentGroup: setting('text', text, 'idv-agent', 'Group whose members may use agent.sock (applications).'),
		adminGroup: setting('text', text, 'idv-agent-admin', 'Group whose members may use admin.sock (pairing, workflow).'),
		metricsPort: optionalNumber(
			0,
			65_535,
			'Port on 127.0.0.1 for /livez, /readyz and /metrics, 0 for any free one; default: on the sockets only.',
		),
		http: {
			port: optionalNumber(
				0,
				65_535,
				'Port on 127.0.0.1 for applications that live in a browser, 0 for any free one; default: none.',
			),
			applicationsFile: file(
				'File of mode 0600 or 0640 that names applications, one on each line: name, origin, token, and options.',
			),
		},
	},
	log: {
		level: oneOf(
			['debug', 'info', 'warn', 'error'],
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
	listed ??= new Map(walk(SETTINGS, ''));
	return listed;
}

let listed: ReadonlyMap<string, Setting<unknown>> | undefined;

function* walk(group: object, prefix: string): Generator<[string, Setting<unknown>]> {
	for (const [key, entry] of Object.entries(group)) {
		if ('schema' in entry) yield [prefix + key, entry as Setting<unknown>];
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

/** Whether two values are the same. */
export const isSame = (one: unknown, other: unknown) => JSON.stringify(one) === JSON.stringify(other);
