import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { decideForward } from '../../src/local-api/forward-rules.ts';
import { choosePaths } from '../../src/settings/paths.runner.ts';
import { nearestName, type ResolvedSettings, resolveSettings, type SettingsLayer } from '../../src/settings/resolve.ts';
import { environmentName, listSettings } from '../../src/settings/table.ts';

const CLOSE_CODES = 'service.closeCodes must name close codes from 1000 to 4999.';
const FILE = '/etc/idv-agent/config.json';
const file = (document: unknown, where = FILE): SettingsLayer => ({ source: 'file', where, document });
function texts(source: 'environment' | 'flag', values: Record<string, string>): SettingsLayer {
	const named = Object.entries(values).map(([path, value]) => {
		const where = source === 'flag' ? `--set ${path}` : environmentName(path);
		return [path, { value, where }] as const;
	});
	return { source, texts: new Map(named) };
}
const resolveFile = (document: unknown) => resolveSettings([file(document)]);
const messages = ({ problems }: ResolvedSettings) => problems.map(({ message }) => message);
/** What is wrong with a document, without the name of the file in front. */
function complaint(document: unknown): string[] {
	return messages(resolveFile(document)).map((message) => message.replace(`${FILE}: `, ''));
}

describe('every setting', () => {
	const settings = [...listSettings()];

	test.each(settings)('%s has one sentence about it that ends', (_, { about }) => {
		expect(about).toMatch(/^[A-Z][^\n]+\.$/);
	});

	test.each(settings)('%s accepts its own default', (_, { schema, fallback }) => {
		expect(schema.parse(fallback)).toEqual(fallback);
	});

	test.each(settings.filter(([, { kind }]) => kind === 'number'))('%s says its unit or range', (_, { about }) => {
		expect(about).toMatch(/\d/);
	});

	test('is read as the whole body where the place of a token is empty, in a file, a plan and a flag [F1516]', () => {
		const empty = { service: { tokenPointer: '' } };
		const flag = texts('flag', { 'service.tokenPointer': '' });
		for (const layer of [file(empty), file(empty, 'the fleet plan'), flag])
			expect(resolveSettings([layer])).toMatchObject({ problems: [], settings: empty });
		expect(complaint({ service: { nextConnection: '' } })).toEqual(['service.nextConnection must not be empty.']);
	});

	test('has a variable of its own, in capitals', () => {
		const names = settings.map(([path]) => environmentName(path));
		expect(new Set(names).size).toBe(settings.length);
		for (const name of names) expect(name).toMatch(/^IDV_AGENT_[A-Z]+(_[A-Z]+)*$/);
		expect(environmentName('service.channelPath')).toBe('IDV_AGENT_SERVICE_CHANNEL_PATH');
		expect(environmentName('network.systemCa')).toBe('IDV_AGENT_NETWORK_SYSTEM_CA');
		expect(environmentName('baseUrl')).toBe('IDV_AGENT_BASE_URL');
	});

	test('that may hold a secret is marked', () => {
		expect(settings.filter(([, { secret }]) => secret).map(([path]) => path)).toEqual([
			'network.proxy',
			'fleet.planUrl',
			'telemetry.otlpUrl',
		]);
	});

	test('in a group within a group is read, checked and named like any other', () => {
		const applicationsFile = '/etc/idv-agent/applications';
		const { settings: values, origins, problems } = resolveFile({ local: { http: { port: 8766, applicationsFile } } });
		expect(problems).toEqual([]);
		expect(values.local).toMatchObject({ metricsPort: null, http: { port: 8766, applicationsFile } });
		expect(origins.get('local.http.port')).toEqual({ source: 'file', where: FILE });
		expect(environmentName('local.http.applicationsFile')).toBe('IDV_AGENT_LOCAL_HTTP_APPLICATIONS_FILE');
		expect(complaint({ local: { http: { port: 65_536, applicationsFile } } })).toEqual([
			'local.http.port must be at most 65535.',
		]);
		expect(complaint({ local: { http: { prot: 1 } } })).toEqual([
			'local.http.prot is not a setting; did you mean local.http.port?',
		]);
		expect(complaint({ local: { http: 8766 } })[0]).toMatch(/^local\.http must be a group of settings: \{ … \}/);
		expect(complaint({ local: { http: { port: 8766 } } })).toEqual([
			'local.http.port needs local.http.applicationsFile: without it no application may use the port.',
		]);
	});

	test('has a value and an origin even when nobody sets anything', () => {
		const { settings: values, origins, problems } = resolveSettings([]);
		expect(problems).toEqual([]);
		expect([...origins.keys()]).toEqual(settings.map(([path]) => path));
		expect(values).toMatchObject({ baseUrl: null, deviceType: 'kiosk', heartbeatCadence: 30 });
		expect(values.service.channelPath).toBe('/ws/device');
		expect(values.pairing.trustedOrigins).toEqual([]);
		expect(origins.get('service.channelPath')).toEqual({ source: 'default', where: null });
	});
});

describe('layers', () => {
	test('win over the ones below them, setting by setting, and say where each value came from', () => {
		const { settings, origins, problems } = resolveSettings([
			file({ workflowId: 'w1', deviceType: 'scanner', service: { channelPath: '/ws' } }),
			file({ workflowId: 'w2' }, '/etc/idv-agent/conf.d/20-fleet.json'),
			texts('environment', { heartbeatCadence: '10', workflowId: 'w3' }),
			texts('flag', { workflowId: 'w4' }),
		]);
		expect(problems).toEqual([]);
		expect(settings).toMatchObject({ workflowId: 'w4', deviceType: 'scanner', heartbeatCadence: 10 });
		expect(settings.service.channelPath).toBe('/ws');
		expect(settings.service.channelAuth).toBe('header');
		expect(origins.get('workflowId')).toEqual({ source: 'flag', where: '--set workflowId' });
		expect(origins.get('heartbeatCadence')).toEqual({ source: 'environment', where: 'IDV_AGENT_HEARTBEAT_CADENCE' });
		expect(origins.get('service.channelPath')).toEqual({ source: 'file', where: FILE });
		expect(origins.get('service.channelAuth')).toEqual({ source: 'default', where: null });
	});

	test('take a value back with null', () => {
		const above = '/etc/idv-agent/conf.d/20-fleet.json';
		const { settings, origins, problems } = resolveSettings([
			file({ workflowId: 'w1' }),
			file({ workflowId: null }, above),
		]);
		expect(problems).toEqual([]);
		expect(settings.workflowId).toBeNull();
		expect(origins.get('workflowId')).toEqual({ source: 'file', where: above });
	});

	test('that are wrong leave the value below them, and are reported', () => {
		const resolved = resolveSettings([file({ heartbeatCadence: 10 }), texts('environment', { heartbeatCadence: '0' })]);
		expect(resolved.settings.heartbeatCadence).toBe(10);
		expect(resolved.origins.get('heartbeatCadence')?.source).toBe('file');
		expect(resolved.problems).toMatchObject([
			{ code: 'settings-invalid', message: 'IDV_AGENT_HEARTBEAT_CADENCE: heartbeatCadence must be at least 1 second.' },
		]);
	});
});

describe('a complaint names the file, the setting and what it must be', () => {
	test('all of it in one sentence', () => {
		expect(messages(resolveFile({ log: { level: 'loud' } }))).toEqual([
			`${FILE}: log.level must be "debug", "info", "warn" or "error".`,
		]);
	});

	test.each<[string, unknown, string]>([
		['a number for a text', { deviceType: 7 }, 'deviceType must be a text.'],
		['an empty text', { deviceType: '' }, 'deviceType must not be empty.'],
		['an invisible character', { workflowId: 'w\u200b1' }, 'workflowId must not have control or invisible characters.'],
		['a text for a number', { heartbeatCadence: '30' }, 'heartbeatCadence must be a whole number of seconds.'],
		['half a second', { heartbeatCadence: 1.5 }, 'heartbeatCadence must be a whole number of seconds.'],
		['too large a number', { heartbeatCadence: 86_401 }, 'heartbeatCadence must be at most 86400 seconds (a day).'],
		['too small a number', { events: { maxBytes: 1 } }, 'events.maxBytes must be at least 65536.'],
		['a text for a switch', { network: { systemCa: 'yes' } }, 'network.systemCa must be true or false.'],
		['null where it means nothing', { deviceType: null }, 'deviceType must be a text.'],
		['null for a number', { heartbeatCadence: null }, 'heartbeatCadence must be a whole number of seconds.'],
		['a relative path', { network: { caFile: 'ca.pem' } }, 'network.caFile must be an absolute path.'],
		[
			'a bad pointer',
			{ service: { tokenPointer: 'token' } },
			'service.tokenPointer must be a JSON pointer (RFC 6901) such as /data/token, or header: or cookie: and a name.',
		],
		[
			'a path that no request could have',
			{ service: { channelPath: '/ws#x' } },
			'service.channelPath must be a path such as /ws/device or /devices/{deviceId}/channel.',
		],
		[
			'an address that is no channel',
			{ service: { channelPath: 'https://events.example.com/ws' } },
			'service.channelPath must be a path such as /ws/device, or an address such as wss://events.example.com/ws without user and fragment.',
		],
		[
			'a field of a path that nothing fills in',
			{ service: { channelPath: '/ws/{serial}' } },
			'service.channelPath names {serial}, which nothing fills in; the known ones are {deviceId}, {workflowId}.',
		],
		[
			'the same in an address',
			{ service: { channelPath: 'wss://events.example.com/ws?id={id}' } },
			'service.channelPath names {id}, which nothing fills in; the known ones are {deviceId}, {workflowId}.',
		],
		[
			'the same in the path of registration',
			{ service: { registrationPath: '/v2/{device}/register' } },
			'service.registrationPath names {device}, which nothing fills in; the known ones are {deviceId}, {workflowId}.',
		],
		[
			'a channel without TLS on another machine',
			{ service: { channelPath: 'ws://events.example.com/ws' } },
			'service.channelPath must begin with wss:// (plain ws is only for this machine itself).',
		],
		[
			'a message with a field that nothing fills in',
			{ service: { ackBody: { ack: '{id}', who: '{token}' } } },
			'service.ackBody names {token}, which nothing fills in; the known ones are {deviceId}, {workflowId}, {sequence}, {sentAt}, {sentAtMs}, {uptimeSeconds}, {id}.',
		],
		[
			'one of several messages',
			{ service: { firstMessages: [{ op: 'auth', token: '{token}' }, 'SUB {topic}'] } },
			'service.firstMessages [1] names {topic}, which nothing fills in; the known ones are {deviceId}, {workflowId}, {sequence}, {sentAt}, {sentAtMs}, {uptimeSeconds}, {token}.',
		],
		[
			'a field in an address that is taken as it is',
			{ fleet: { planUrl: 'https://plans.example.com/{deviceId}.json' } },
			'fleet.planUrl names {deviceId}, which nothing fills in.',
		],
		[
			'the same in a path that is compared as it is',
			{ forward: { allow: ['/api/v1/sessions/{id}'] } },
			'forward.allow [0] names {id}, which nothing fills in.',
		],
		[
			'a header that the agent sets itself',
			{ service: { headers: ['X-Tenant: north', 'Authorization: Basic x'] } },
			'service.headers [1] names Authorization, which the agent sets itself.',
		],
		['a close code that is none', { service: { closeCodes: { '999': 'retry' } } }, CLOSE_CODES],
		['a close code in words', { service: { closeCodes: { 'policy violation': 'refused' } } }, CLOSE_CODES],
		[
			'a meaning of a close code that is none',
			{ service: { closeCodes: { '4001': 'refused', '4002': 'forget' } } },
			'service.closeCodes [4002] must be "refused", "replaced" or "retry".',
		],
		['a list of close codes', { service: { closeCodes: ['4001'] } }, 'service.closeCodes must be an object in { }.'],
		[
			'secret headers for no service in particular',
			{ service: { headersFile: '/etc/h' } },
			'service.headersFile needs baseUrl: its headers are only sent to a host that the settings name.',
		],
		[
			'a bad MAC address',
			{ macAddress: '00:11' },
			'macAddress must be six pairs of hexadecimal digits such as 00:1b:21:0a:0b:0c, but not all 0 or all f: no card has those.',
		],
		[
			'a text for a list',
			{ pairing: { trustedOrigins: 'https://a.example' } },
			'pairing.trustedOrigins must be a list.',
		],
		[
			'a list with one bad entry',
			{ pairing: { trustedOrigins: ['https://a.example', 'https://b.example/path', 'https://b.example/?q'] } },
			'pairing.trustedOrigins [2] must be an origin such as https://id.example.com, with the path of the service if it has one.',
		],
		['a list with a number in it', { pairing: { trustedOrigins: [5] } }, 'pairing.trustedOrigins [0] must be a text.'],
		[
			'too long a list',
			{ pairing: { trustedOrigins: Array.from({ length: 65 }, () => 'https://a.example') } },
			'pairing.trustedOrigins must have at most 64 entries.',
		],
		['a text for a group', { service: '/ws' }, 'service must be a group of settings: { … }.'],
		['a list for a group', { service: [] }, 'service must be a group of settings: { … }.'],
		['null for a group', { service: null }, 'service must be a group of settings: { … }.'],
		['a group for a setting', { workflowId: { id: 'w1' } }, 'workflowId must be a text.'],
		['a mistyped name', { workflowID: 'w1' }, 'workflowID is not a setting; did you mean workflowId?'],
		[
			'a mistyped name in a group',
			{ service: { chanelPath: '/ws' } },
			'service.chanelPath is not a setting; did you mean service.channelPath?',
		],
		[
			'a name outside its group',
			{ channelPath: '/ws' },
			'channelPath is not a setting; did you mean service.channelPath?',
		],
		['a name like no other', { colour: 'red' }, 'colour is not a setting.'],
		[
			'plain http',
			{ baseUrl: 'http://id.example' },
			'baseUrl must begin with https:// (plain http is only for this machine itself).',
		],
		[
			'a user in the address',
			{ baseUrl: 'https://me@id.example' },
			'baseUrl must be an https address without user, query or fragment, such as https://id.example.com.',
		],
		[
			'another scheme',
			{ baseUrl: 'ftp://id.example' },
			'baseUrl must be an https address without user, query or fragment, such as https://id.example.com.',
		],
		[
			'no address',
			{ baseUrl: 'id.example' },
			'baseUrl must be an https address without user, query or fragment, such as https://id.example.com.',
		],
		[
			'no proxy',
			{ network: { proxy: 'proxy:3128' } },
			'network.proxy must be a URL such as http://proxy.example:3128.',
		],
	])('for %s', (_, document, expected) => {
		expect(complaint(document)).toEqual([expected]);
	});

	test('once for each', () => {
		expect(complaint({ deviceType: 7, service: { channelAuth: 'cookie', colour: 1 } })).toHaveLength(3);
	});

	test.each([null, 7, 'text', true, [], [{ workflowId: 'w1' }]])('also when the file holds %j', (document) => {
		expect(messages(resolveFile(document))).toEqual([`${FILE}: the file must hold a group of settings: { … }.`]);
	});

	test.each(['__proto__', 'constructor', 'toString', 'hasOwnProperty'])(
		'and %s is only a name like no other',
		(key) => {
			const outside = JSON.parse(`{"${key}": {"polluted": true}}`);
			const inside = JSON.parse(`{"service": {"${key}": true}}`);
			expect(complaint(outside)).toEqual([expect.stringContaining(`${key} is not a setting`)]);
			expect(complaint(inside)).toEqual([expect.stringContaining(`service.${key} is not a setting`)]);
			expect(messages(resolveSettings([texts('flag', { [key]: 'x' })]))).toEqual([
				expect.stringContaining(`${key} is not a setting`),
			]);
			expect({}).not.toHaveProperty('polluted');
		},
	);

	test('without the value, which may be a secret', () => {
		const document = { network: { proxy: 'socks://user:hunter2@proxy' }, deviceType: ['hunter2'], baseUrl: 'hunter2' };
		const { problems } = resolveFile(document);
		expect(problems).toHaveLength(3);
		expect(JSON.stringify(problems)).not.toContain('hunter2');
	});
});

const BASE = 'https://id.example.com';

describe('what can only be a mistake', () => {
	test('a path of forward.allow that no forwarded request can have [F1547]', () => {
		const never = ['/a/../b', '/./a', '/a/...', '/a//b', '//a', '/%2f', '/caf%C3%A9', '/a;b', '/a\\b', '/a b'];
		for (const path of never) {
			expect(complaint({ forward: { allow: [path] } })).toEqual([
				'forward.allow [0] must be as requests are compared with it: without %, blanks and empty or dot segments.',
			]);
			expect(decideForward(encodeURI(path), BASE, [path]).ok, path).toBe(false);
			expect(decideForward(path, BASE, [path]).ok, path).toBe(false);
		}
		expect(complaint({ forward: { allow: ['/.'] } }), 'what stands for no path').toEqual([]);
		for (const path of ['/', '/a', '/a/', '/a.b/..c', '/café', '/a|b', '/~a/@b']) {
			expect(complaint({ forward: { allow: [path] } })).toEqual([]);
			expect(decideForward(encodeURI(path), BASE, [path]).ok, path).toBe(true);
		}
	});

	test.each(['baseUrl', 'pairing.trustedOrigins', 'service.channelPath', 'fleet.planUrl', 'telemetry.otlpUrl'])(
		'a pattern of hosts in %s [F1548]',
		(path) => {
			const scheme = path === 'service.channelPath' ? 'wss' : 'https';
			const told = (value: string) =>
				messages(resolveSettings([texts('flag', { [path]: value })])).map((one) => one.replace(/^.* must/, 'must'));
			expect(told(`${scheme}://*.example.com/a`)).toEqual(['must name one host: a * in it stands for no other.']);
			expect(told(`${scheme}://id.example.com/a`)).toEqual([]);
			expect(told(`${scheme}://{tenant}.example.com/a`)).toHaveLength(1);
		},
	);

	test.each(['00:00:00:00:00:00', '00-00-00-00-00-00', 'ff:ff:ff:ff:ff:ff', 'FF-FF-FF-FF-FF-FF'])(
		'%s, the address of no network card [F1549]',
		(macAddress) => {
			expect(complaint({ macAddress })).toEqual([expect.stringContaining('no card has those')]);
			expect(complaint({ macAddress: macAddress.replace(/.$/, '1') })).toEqual([]);
		},
	);
});

describe('a base URL', () => {
	test.each([
		['https://ID.Example/', 'https://id.example'],
		['https://id.example:443/api/', 'https://id.example/api'],
		[' https://id.example ', 'https://id.example'],
		['https://bücher.example', 'https://xn--bcher-kva.example'],
		['http://localhost:8080', 'http://localhost:8080'],
		['http://127.0.0.1:8080/', 'http://127.0.0.1:8080'],
	])('%s is kept as %s', (given, kept) => {
		const { settings, problems } = resolveFile({ baseUrl: given });
		expect(problems).toEqual([]);
		expect(settings.baseUrl).toBe(kept);
	});
});

describe('a text from a variable or a flag', () => {
	test.each<[string, string, unknown]>([
		['heartbeatCadence', ' 45 ', 45],
		['service.silenceLimitSeconds', '0', 0],
		['network.systemCa', 'true', true],
		['service.actOnMessages', ' False ', false],
		['pairing.trustedOrigins', 'https://a.example, https://b.example,', ['https://a.example', 'https://b.example']],
		['pairing.trustedOrigins', '', []],
		['workflowId', '30', '30'],
		['service.closeCodes', '{"4001": "refused"}', { '4001': 'refused' }],
		['macAddress', '00-1B-21-0A-0B-0C', '00:1b:21:0a:0b:0c'],
	])('%s=%j is read as %j', (path, value, expected) => {
		for (const source of ['environment', 'flag'] as const) {
			const { settings, problems } = resolveSettings([texts(source, { [path]: value })]);
			expect(problems).toEqual([]);
			const found = path.split('.').reduce<unknown>((at, key) => (at as Record<string, unknown>)[key], settings);
			expect(found).toEqual(expected);
		}
	});

	test.each([
		['heartbeatCadence', '1e2', 'must be a whole number of seconds'],
		['heartbeatCadence', '', 'must be a whole number of seconds'],
		['heartbeatCadence', '1.5', 'must be a whole number of seconds'],
		['network.systemCa', 'yes', 'must be true or false'],
		['network.systemCa', 'constructor', 'must be true or false'],
		['workflowId', '', 'must not be empty'],
		['service', '{}', 'must be a group of settings: { … }'],
		['servise.channelPath', '/ws', 'is not a setting; did you mean service.channelPath?'],
	])('%s=%j %s', (path, value, expected) => {
		const [message, ...more] = messages(resolveSettings([texts('flag', { [path]: value })]));
		expect(message).toBe(`--set ${path}: ${path} ${expected}${expected.endsWith('?') ? '' : '.'}`);
		expect(more).toEqual([]);
	});
});

describe('settings that do not go together', () => {
	const baseUrl = 'https://id.example';

	test.each<[string, unknown, string[]]>([
		['one credential and its host', { baseUrl, credential: { apiKeyFile: '/k' } }, []],
		[
			'two credentials',
			{ baseUrl, credential: { apiKeyFile: '/k', basicFile: '/b' } },
			['credential.apiKeyFile and credential.basicFile are set, but only one of them can be used.'],
		],
		[
			'a credential that any code could ask for',
			{ credential: { connectionFile: '/c' } },
			['credential.connectionFile needs baseUrl: a credential is only sent to a host that the settings name.'],
		],
		[
			'self-registration anywhere',
			{ credential: { selfRegistration: true } },
			['credential.selfRegistration needs baseUrl: a credential is only sent to a host that the settings name.'],
		],
		[
			'a client certificate without its key',
			{ network: { clientCertificateFile: '/c' } },
			['network.clientCertificateFile and network.clientKeyFile belong together: set both or none.'],
		],
		[
			'a key without its client certificate',
			{ network: { clientKeyFile: '/k' } },
			['network.clientCertificateFile and network.clientKeyFile belong together: set both or none.'],
		],
		['a client certificate and its key', { network: { clientCertificateFile: '/c', clientKeyFile: '/k' } }, []],
	])('%s', (_, document, expected) => {
		expect(complaint(document)).toEqual(expected);
	});

	test('are found across layers', () => {
		const layers = [file({ credential: { apiKeyFile: '/k' } }), texts('environment', { baseUrl })];
		expect(messages(resolveSettings(layers))).toEqual([]);
	});
});

test.each([
	['heartbeat', 'heartbeatCadence', null],
	['hartbeatCadence', 'heartbeatCadence', 'heartbeatCadence'],
	['LEVEL', 'log.level', 'log.level'],
	['x', 'serial', null],
	['x', 'to', null],
	['foo', 'to', null],
])('%s is taken for %s: %s', (typed, name, nearest) => {
	expect(nearestName(typed, [name])).toBe(nearest);
});

test('no document and no text is ever thrown at, and every complaint is one sentence about its place', () => {
	const paths = [...listSettings().keys()];
	const keys = fc.oneof(fc.constantFrom(...paths.flatMap((path) => path.split('.'))), fc.string({ maxLength: 12 }));
	const document = fc.oneof(
		fc.jsonValue({ maxDepth: 2 }),
		fc.dictionary(keys, fc.oneof(fc.jsonValue({ maxDepth: 1 }), fc.dictionary(keys, fc.jsonValue({ maxDepth: 1 })))),
	);
	const path = fc.oneof(fc.constantFrom(...paths), fc.string({ maxLength: 12 }));
	fc.assert(
		fc.property(document, fc.dictionary(path, fc.string({ maxLength: 12 })), (written, values) => {
			const { problems, origins, settings, refused } = resolveSettings([file(written), texts('environment', values)]);
			for (const { message } of problems) expect(message).toMatch(/[.?]$/);
			expect(origins.size).toBe(paths.length);
			expect(Object.getPrototypeOf(settings)).toBe(Object.prototype);
			// What is used is valid: the same values, written into a file, give no complaint of their own.
			const alone = problems.every(({ message }) => message.startsWith(FILE) || message.startsWith('IDV_AGENT_'));
			// What only lacks a value that was refused has been told as that.
			const lacksRefused = ({ message: told }: { message: string }) => [...refused].some((one) => told.includes(one));
			if (alone) expect(resolveFile(settings).problems.filter((one) => !lacksRefused(one))).toEqual([]);
		}),
		{ numRuns: 150 },
	);
});

test('a value that another file changes beneath a bad one is taken; one that was moved into a bad one stays [F1619]', () => {
	const support = (...pushes: (readonly [low: unknown, high?: unknown])[]) => {
		const inForce = pushes.reduce<ResolvedSettings | null>((before, values) => {
			const layers = values.map((value, at) =>
				file(value === undefined ? {} : { page: { support: value } }, `${at}0.json`),
			);
			return resolveSettings(layers, undefined, before);
		}, null);
		return inForce?.settings.page.support;
	};
	expect(support(['one'], ['one', 5], ['two', 5])).toBe('two');
	expect(support(['one'], [undefined, 5])).toBe('one');
	expect(support(['one'], ['one', 'high'], ['two', 5])).toBe('high');
});

test('where the files are is said by a flag before a variable, that before systemd, and of its directories by the first [F1866]', () => {
	const env = { STATE_DIRECTORY: '/var/lib/one:/var/lib/two', RUNTIME_DIRECTORY: '/run/one:/run/two' };
	const named = {
		...env,
		IDV_AGENT_STATE_DIR: '/named/state',
		IDV_AGENT_RUN_DIR: '/named/run',
		IDV_AGENT_CONFIG: '/named/a.json',
	};
	const [usual, bySystemd, byVariable, byFlag] = [
		choosePaths({}, {}),
		choosePaths({}, env),
		choosePaths({}, named),
		choosePaths({ config: '/flag/b.json', stateDir: '/flag/state', runDir: '/flag/run' }, named),
	].map(({ configFile, stateDir, runDir }) => [configFile, stateDir, runDir]);
	expect(usual).toEqual(['/etc/idv-agent/config.json', '/var/lib/idv-agent', '/run/idv-agent']);
	expect(bySystemd).toEqual(['/etc/idv-agent/config.json', '/var/lib/one', '/run/one']);
	expect(byVariable).toEqual(['/named/a.json', '/named/state', '/named/run']);
	expect(byFlag).toEqual(['/flag/b.json', '/flag/state', '/flag/run']);
});
