/**
 * Where each setting's effect is seen: through a real agent, not through the parser. A setting without a row, a row whose
 * test is gone and a row of a setting that is gone fail.
 */
import { existsSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { expect, test } from 'vitest';
import { listSettings } from '../../src/settings/table.ts';

const TESTS = resolve(import.meta.dirname, '..');

/** Setting → title without the id of a fault, by the file below `test/` that the title stands in. */
const SEEN: Readonly<Record<string, Readonly<Record<string, string>>>> = {
	'settings/changed-settings.test.ts': {
		baseUrl: 'does not keep the device from another address',
		deviceId: 'give the device another name only as far as its Connection goes',
	},
	'workflow/workflow.test.ts': { workflowId: 'by a settings file, noticed without a signal' },
	'settings/group-by-group.test.ts': {
		deviceType: 'a file that vanishes keeps what it has set, and is told; after a minute it counts no longer',
	},
	'settings/credentials.test.ts': {
		'credential.apiKeyFile': 'with an API key',
		'credential.basicFile': 'with user name and password',
		'credential.connectionFile': 'with a Connection that an operator has made for it: nothing is registered',
		'credential.selfRegistration': 'by registering itself, where both sides have that switched on',
	},
	'agent/links.test.ts': {
		heartbeatCadence: 'leave at the cadence, counted from one, the first at any moment of it',
		'service.heartbeatMode': 'can be left to pings or switched off',
		'service.silenceLimitSeconds': 'by a service that goes silent is noticed, although the socket stays open',
		'service.actOnMessages': 'by a message is not acted on where that is switched off',
		'service.connectionLifeSeconds': 'is renewed at 80 % of the life that the settings state, without a moment offline',
	},
	'agent/remedies.test.ts': {
		'pairing.trustedOrigins':
			'as one for another origin: baseUrl is changed, or the origin is trusted, or another host is confirmed',
	},
	'agent/early-ends.test.ts': {
		'service.closeCodes': 'service.closeCodes has one close refuse the Connection: a fresh one is registered at once',
	},
	'pairing/pairing.test.ts': {
		'service.tokenPointer': 'brings its Connection from where `service.tokenPointer` says that the answer has it',
	},
	'connection/handshake.test.ts': {
		'service.registrationPath': 'after a registration at another path, which no application may ask for',
		'service.channelPath': 'at a path and with a query that name the device and its workflow',
		'service.channelAuth': 'by the token alone',
		'service.queryName': 'by a parameter of another name',
		'service.subprotocol': 'with a subprotocol',
		'service.firstMessages': 'is online once the message came that confirms it, which is no notification',
		'service.confirmKind': 'is opened again where that message does not come, and the problem names the setting',
		'service.kindPointer': 'is online once the message came that confirms it, which is no notification',
		'service.heartbeatBody': 'heartbeats as the settings write them',
		'service.pingKind': 'a ping of the application is answered with its id, and is no notification',
		'service.pongBody': 'a ping of the application is answered with its id, and is no notification',
		'service.ackBody':
			'each stored notification is acknowledged under its id as it was written, also one that came before',
		'service.frameContents': 'array: each element is a message',
		'service.jsonInBinary': 'JSON in a binary frame where a setting says so',
		'service.ignoreKinds': 'kinds that are ignored are counted, and neither kept nor handed on',
		'service.maxMessageBytes': 'a message over the limit becomes an event with its size, and the channel stays open',
		'service.nextConnection': 'is followed by the one %s, also after a restart',
		'service.headers': 'with headers of the settings, secret ones from a file, on every request to the service',
		'service.headersFile': 'with headers of the settings, secret ones from a file, on every request to the service',
	},
	'settings/way-out.test.ts': {
		'network.caFile':
			'%s that does not bring the device online is refused and told, over a restart, until it is corrected',
		'fleet.changeLimitSeconds':
			'%s that does not bring the device online is refused and told, over a restart, until it is corrected',
	},
	'settings/effects.test.ts': {
		serial: 'serial and macAddress: the service gets those of the settings',
		macAddress: 'serial and macAddress: the service gets those of the settings',
		'network.proxy': 'network.proxy: registration and channel go through it',
		'network.systemCa': 'network.systemCa %s: whether the authorities of this system count',
		'network.clientCertificateFile':
			'network.clientCertificateFile and clientKeyFile: a service that asks for a certificate lets the device in',
		'network.clientKeyFile':
			'network.clientCertificateFile and clientKeyFile: a service that asks for a certificate lets the device in',
		'service.notificationIdPointer': 'service.notificationIdPointer: what has one id there is one notification',
		'events.maxBytes': 'events.maxBytes: those that do not fit make room',
		'events.maxAgeSeconds': 'events.maxAgeSeconds: those that are older go',
		'events.cleanAfterSeconds': 'events.cleanAfterSeconds: what all have acknowledged is soon in no file',
		'fleet.intervalSeconds': 'fleet.intervalSeconds: the next look at the plan comes then',
		'forward.maxBytes': 'forward.maxBytes: a larger body goes to nobody',
		'forward.idleSeconds': 'forward.idleSeconds: one on which nothing moves ends',
		'page.port': 'page.port, language, support and contents: the page is there, and shows what they say',
		'page.language': 'page.port, language, support and contents: the page is there, and shows what they say',
		'page.support': 'page.port, language, support and contents: the page is there, and shows what they say',
		'page.contents': 'page.port, language, support and contents: the page is there, and shows what they say',
		'local.agentGroup': 'local.agentGroup and adminGroup: each socket belongs to its group',
		'local.adminGroup': 'local.agentGroup and adminGroup: each socket belongs to its group',
		'log.level': 'log.level: what is less severe is not in the log',
	},
	'scanning/scanning.test.ts': {
		'pairing.loopbackByScanner':
			'that leads to this machine itself is refused, even where it is trusted, unless a trial allows it',
		'pairing.rescueByScanner': 'takes it from the scanner alone where pairing.rescueByScanner says so',
		'scanner.kind': 'leaves ordinary keyboards alone, and every scanner where the settings say so',
		'scanner.device': 'leaves ordinary keyboards alone, and every scanner where the settings say so',
		'page.pinFile': 'a first code that was scanned is paired on the page with the PIN, and not without it',
		'hooks.onPairingUnconfirmed':
			'proves nothing by being scanned, however often: it waits for a confirmation, and the hook is told the host',
	},
	'scanning/devices/serial.test.ts': {
		'scanner.baudRate': 'scanner.baudRate is the speed of the line',
		'scanner.suffix': 'with suffix %s pairs the device, and is let go',
	},
	'hooks/hooks.test.ts': {
		'hooks.onNotification': 'commands are run for what happens, with JSON on standard input',
		'hooks.onOnline': 'commands are run for what happens, with JSON on standard input',
		'hooks.onOffline': 'commands are run for what happens, with JSON on standard input',
		'hooks.onPaired': 'commands are run for what happens, with JSON on standard input',
		'hooks.onPairingFailed': 'commands are run for what happens, with JSON on standard input',
		'hooks.onNeedsPerson': 'a device that only a person can bring back online is told once, with its cause',
	},
	'fleet/follow-plan.test.ts': {
		'service.heartbeatFields':
			'that orders another version on a device without idv-agent-updates says so everywhere, until that is installed',
		'fleet.planUrl': 'is chosen by its labels, and chosen anew when they change',
		'fleet.labels': 'is chosen by its labels, and chosen anew when they change',
		'fleet.name': 'a device with a name of its fleet refuses a plan of another one, and of none',
		'fleet.publicKeys': 'one without a signature, or with another one, once a key is set',
		'update.enabled':
			'that orders another version is handed over as it was served, also after a restart, if it is signed and the site allows it',
	},
	'telemetry/delivery.test.ts': {
		'telemetry.otlpUrl': 'that is missing is named, and one that others can read is a warning of its own',
		'telemetry.headersFile': 'that is missing is named, and one that others can read is a warning of its own',
	},
	'telemetry/telemetry.test.ts': {
		'telemetry.intervalSeconds': 'delivers what changed during an outage of the store, each with its moment',
	},
	'local-api/local-api.test.ts': {
		'events.durable': 'are on no disk where the settings say so, and a restart loses them',
		'workflow.maxDeferSeconds': 'runs out, and holds nothing up for longer than workflow.maxDeferSeconds',
		'forward.allow': 'is only for paths that the settings allow, and for a device with a Connection',
	},
	'local-api/forwarding.test.ts': {
		'forward.headers': 'the Connection of the device goes to the service, and no credential of anybody else',
	},
	'local-api/ports.test.ts': {
		'events.maxCount': 'bound the kept events from the next one on',
		'local.metricsPort': 'open, move and close the ports without a restart',
		'local.http.port': 'open, move and close the ports without a restart',
		'local.http.applicationsFile': 'come and go with their file at a reload',
	},
	'update/source.test.ts': {
		'update.source': 'reads the repository %s alone, and is stopped by no dead mirror of others',
	},
	'update/from.test.ts': { 'update.judgeSeconds': '0.1.0 is updated, and comes back when a person asks for it' },
};

/** What no test sees yet, and why. It may only become shorter. */
const NOT_SEEN: Readonly<Record<string, string>> = {
	'update.window':
		'idv-agent-updates obeys it, not the agent; test/updates/hand-over.test.ts sees it without a machine',
};

const rows = Object.entries(SEEN).flatMap(([file, titles]) =>
	Object.entries(titles).map(([setting, title]) => ({ file, setting, title })),
);
const textOf = (file: string) => (existsSync(join(TESTS, file)) ? readFileSync(join(TESTS, file), 'utf8') : '');

test('every setting has one row, and no row is of a setting that is gone', () => {
	const listed = [...rows.map(({ setting }) => setting), ...Object.keys(NOT_SEEN)];
	expect(listed.toSorted()).toEqual([...listSettings().keys()].toSorted());
	expect(Object.keys(NOT_SEEN).length).toBeLessThanOrEqual(1);
});

test('every row names a test that is there, in a file that runs an agent and names the setting', () => {
	const wrong = rows.flatMap(({ file, setting, title }) => {
		const text = textOf(file).replaceAll(/ \[F\d{3,4}\](?=['"`],)/g, '');
		const lacks = [
			["'", '"', '`'].some((quote) => text.includes(`${quote}${title}${quote},`))
				? ''
				: `a test with the whole title "${title}"`,
			/ from '\S*\/(?:harness|device)\.ts';$/m.test(text) ? '' : 'an agent of the harness',
			new RegExp(`\\b${setting.split('.').at(-1)}\\b`).test(text) ? '' : 'the name of the setting',
		].filter(Boolean);
		return lacks.length > 0 ? [`${setting}: ${file} lacks ${lacks.join(' and ')}`] : [];
	});
	expect(wrong).toEqual([]);
});
