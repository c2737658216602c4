/** The command line of an operator; the file of a command is loaded only when it is asked for. */
import type { Clock } from '../base/clock.edge.ts';
import { collect, createProgram, EXIT_STATUSES, runProgram, type Subcommands } from '../cli/command-line.runner.ts';
import { type Caller, Shell } from '../cli/output.runner.ts';
import { FLEET_COMMANDS } from './fleet-commands.runner.ts';

const NOTES = `
The credential: --authorization-file, else IDV_AUTHORIZATION, else the profile;
never an argument.
Requests that create something are never retried.${EXIT_STATUSES}`;

const API_KEY_COMMANDS: Subcommands = {
	create: (command) =>
		command('create an API key')
			.requiredOption('--name <name>', 'human-readable name')
			.requiredOption(
				'--permissions <list>',
				'what the key may do, such as deeplink:write; several are separated by commas',
			)
			.duration('--expires <time>', 'lifetime, such as 30d or 3600 (seconds); default: never expires', [1, 315_360_000])
			.option('--code-file <file>', 'use up the pairing code in this file as the credential; - for standard input')
			.option('--allow-unknown-permission', 'accept a permission that looks mistyped')
			.option('--out <file>', 'write the key to this new file (mode 0600) instead of showing it')
			.examples({
				'idv apikey create --name backend --permissions deeplink:write --expires 90d': '',
				'idv apikey create --name kiosk --permissions ephemeral_device:write --out kiosk.key':
					'for credential.apiKeyFile',
			})
			.runs(async () => (await import('./api-key.runner.ts')).createApiKey),
};

const SESSION_COMMANDS: Subcommands = {
	start: (command) =>
		command('start a session and print its hand-off URL')
			.requiredOption('--workflow <id...>', 'the workflow; separate several with spaces or commas', collect)
			.option('--metadata <json>', 'a JSON object for the session, or @FILE')
			.option('--locale <locale>', 'such as de-CH')
			.duration('--ttl <time>', 'lifetime of the session and its token, such as 15m (default 1h)', [1, 2_592_000])
			.option('--qr', 'draw the URL as a QR code')
			.examples({
				'idv session start --workflow checkin --qr': 'a phone scans it',
				[`idv session start --workflow checkin --metadata '{"visitor":"V-104"}' --ttl 10m`]: '',
				'idv session start --workflow checkin --json | jq -r .url': 'for a backend',
			})
			.runs(async () => (await import('./session.runner.ts')).startSession),
};

const DEVICE_COMMANDS: Subcommands = {
	connect: (command) =>
		command('register a device on its behalf and print its Connection token')
			.requiredOption('--device-id <id>', 'the device')
			.requiredOption('--workflow <id>', 'the workflow that it uses')
			.option('--serial <serial>', 'its serial number')
			.option('--mac <address>', 'its MAC address')
			.option('--type <type>', 'its type, such as kiosk')
			.number('--heartbeat <seconds>', 'time between its heartbeats', [1, 86_400])
			.option('--token-pointer <pointer>', 'JSON pointer to the Connection in the answer')
			.option('--out <file>', 'write the Connection token to this new file (mode 0600) instead of showing it')
			.examples({
				'idv device connect --device-id K-1047 --workflow checkin --out K-1047.connection':
					'for credential.connectionFile',
			})
			.runs(async () => (await import('./device.runner.ts')).connectDevice),
};

const PROFILE_COMMANDS: Subcommands = {
	add: (command) =>
		command('add a profile; the first profile is in use from then on')
			.argument('<name>', 'its name')
			.option('--replace', 'replace the profile with this name')
			.examples({
				'idv profile add prod --url https://id.example.com': 'asks for the credential',
				'idv profile add test --url http://127.0.0.1:8490 --authorization-file key': 'from a file',
			})
			.runs(async () => (await import('./profiles.runner.ts')).addProfile),
	list: (command) =>
		command('list the profiles; * marks the one in use')
			.examples({ 'idv profile list': 'shows no secret' })
			.runs(async () => (await import('./profiles.runner.ts')).showProfiles),
	use: (command) =>
		command('use another profile from now on')
			.argument('<name>', 'its name')
			.examples({ 'idv profile use prod': '' })
			.runs(async () => (await import('./profiles.runner.ts')).useProfile),
	remove: (command) =>
		command('forget a profile and its credential')
			.argument('<name>', 'its name')
			.examples({ 'idv profile remove test': '' })
			.runs(async () => (await import('./profiles.runner.ts')).forgetProfile),
};

const COMMANDS: Subcommands = {
	apikey: (command) => command('API keys').subcommands(API_KEY_COMMANDS),
	qrcode: (command) =>
		command('make a pairing code for a device')
			.requiredOption('--workflow <id>', 'the workflow of the device')
			.option('--out <file>', 'save it as a .png or .svg file')
			.option('--terminal', 'draw it in the terminal, also when it is saved')
			.examples({
				'idv qrcode --workflow checkin': 'drawn in the terminal',
				'idv qrcode --workflow checkin --out code.png': 'for printing: it works once, and for a short time',
				'idv qrcode --workflow checkin --json | jq -r .url': 'for another program',
			})
			.runs(async () => (await import('./pairing-code.runner.ts')).makePairingCode),
	session: (command) => command('sessions').subcommands(SESSION_COMMANDS),
	device: (command) => command('devices').subcommands(DEVICE_COMMANDS),
	fleet: (command) => command('one plan for many devices').subcommands(FLEET_COMMANDS),
	whoami: (command) =>
		command('show the kind of the credential and what it may do')
			.option('--offline', 'do not ask the service')
			.examples({
				'idv whoami': 'asks with requests that cannot create anything',
				'idv whoami --offline': 'only what the credential itself says',
			})
			.runs(async () => (await import('./whoami.runner.ts')).whoAmI),
	probe: (command) =>
		command('find the settings for the devices of a service by trying; only for a service that you may use')
			.option('--code-file <file>', 'use up the pairing code in this file as the credential; - for standard input')
			.option('--workflow <id>', 'the workflow of the device, if the code names none')
			.option('--yes', 'do it; without it the command only says what it would create')
			.option('--create-key', 'also create an API key that ends after 60 s')
			.option('--out <file>', 'write the settings to this file, for conf.d of the devices')
			.option('--force', 'replace files that are there')
			.number('--seconds <seconds>', 'time for which the channel is watched', [1, 3600], 60)
			.option('--channel-path <path...>', 'paths of the channel to try before the usual ones', collect)
			.option(
				'--query-name <name...>',
				'query parameters that may carry the Connection, tried before the usual ones',
				collect,
			)
			.option('--subprotocol <name>', 'the WebSocket subprotocol that the channel asks for')
			.option(
				'--header <line...>',
				'a header (Name: value) of every request to the service, and of the channel',
				collect,
			)
			.option('--headers-file <file>', 'file with secret headers, one Name: value on each line')
			.option('--device <file>', 'write a provision.json for the device that was registered: no further code is needed')
			.option('--transcript <file>', 'write the exchange on the wire to this file, without secrets')
			.examples({
				'idv probe --url https://id.example.com --code-file code.txt --yes --out service.json': '',
				'idv probe --workflow checkin --yes --transcript wire.jsonl': 'with an API key from the profile',
			})
			.runs(async () => (await import('./probe.runner.ts')).probeService),
	profile: (command) => command('manage names for services and their credentials').subcommands(PROFILE_COMMANDS),
};

/** One command line of `idv`. @param clock what it waits by; default the machine's. */
export function runOperatorCommand(caller: Caller, clock?: Clock): Promise<void> {
	const program = createProgram(
		new Shell(caller, false, clock),
		'idv',
		'Makes API keys, pairing codes, sessions and Connections at the service.',
	)
		.option('--url <url>', 'address of the service (IDV_URL)')
		.option('--authorization-file <file>', 'file with the credential, such as "ApiKey …"; - for standard input')
		.option('--profile <name>', 'a profile other than the one in use (IDV_PROFILE)')
		.option('--ca-file <file>', 'PEM file with certificate authorities to trust as well (IDV_CA_FILE)')
		.option('--json', 'answer in JSON (IDV_JSON=1)')
		// Stores and plan addresses of a fleet know nothing of flags.
		.on('option:ca-file', (file: string) => {
			caller.env['IDV_CA_FILE'] = file;
		})
		.addHelpText('after', NOTES)
		.examples({
			'idv profile add prod --url https://id.example.com': 'asks for the credential once',
			'idv qrcode --workflow checkin': 'a pairing code, drawn in the terminal',
			'idv session start --workflow checkin --qr': 'a session for a phone',
			'idv apikey create --name kiosk --permissions ephemeral_device:write --expires 30d': '',
		});
	return runProgram(program.subcommands(COMMANDS));
}
