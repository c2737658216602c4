/**
 * The command line of an operator: which commands and flags there are. Each command is implemented in its own file under
 * `operator/`, loaded only when it is asked for.
 */
import type { Command } from 'commander';
import { collect, createProgram, onCommand, runProgram, wholeNumber, withExamples } from '../cli/command-line.ts';
import type { OutputFlags } from '../cli/output.ts';
import type { ApiKeyFlags } from './api-key.ts';
import type { DeviceFlags } from './device.ts';
import { addFleet } from './fleet-commands.ts';
import type { PairingCodeFlags } from './pairing-code.ts';
import type { ProbeFlags } from './probe.ts';
import type { AddFlags } from './profiles.ts';
import type { TargetFlags } from './service-target.ts';
import type { SessionFlags } from './session.ts';

export function buildProgram(): Command {
	const program = createProgram('idv', 'Makes API keys, pairing codes, sessions and Connections at the service.')
		.option('--url <url>', 'address of the service (IDV_URL)')
		.option('--authorization-file <file>', 'file with the credential, such as "ApiKey …"; - for standard input')
		.option('--profile <name>', 'a profile other than the one in use (IDV_PROFILE)')
		.option('--ca-file <file>', 'PEM file with certificate authorities to trust as well (IDV_CA_FILE)')
		.option('--json', 'answer in JSON (IDV_JSON=1)')
		.addHelpText('after', NOTES);
	withExamples(
		program,
		['idv profile add prod --url https://id.example.com', 'asks for the credential once'],
		['idv qrcode --workflow checkin', 'a pairing code, drawn in the terminal'],
		['idv session start --workflow checkin --qr', 'a session for a phone'],
		['idv apikey create --name kiosk --permissions ephemeral_device:write --expires 2592000', ''],
	);
	addApiKey(program);
	addPairingCode(program);
	addSession(program);
	addDevice(program);
	addFleet(program);
	addWhoAmI(program);
	addProbe(program);
	addProfile(program);
	return program;
}

const NOTES = `
The credential: --authorization-file, else IDV_AUTHORIZATION, else the profile;
never an argument.
Requests that create something are never retried.
Exit status: 0 done, 64 usage, 65 bad data, 69 unavailable, 70 internal fault, 74 I/O,
  75 try again, 77 refused, 78 settings.`;

function addApiKey(program: Command): void {
	const create = program
		.command('apikey')
		.description('API keys')
		.command('create')
		.description('create an API key')
		.requiredOption('--name <name>', 'human-readable name')
		.requiredOption('--permissions <list>', 'comma-separated, such as deeplink:write,ephemeral_device:write')
		.option('--expires <seconds>', 'lifetime; default: the key never expires', wholeNumber('--expires', 1, 315_360_000))
		.option('--code-file <file>', 'use up the pairing code in this file as the credential; - for standard input')
		.option('--allow-unknown-permission', 'take a permission that looks like a mistyped one as it is')
		.option('--out <file>', 'write the key to this new file (mode 0600) instead of showing it');
	withExamples(
		create,
		['idv apikey create --name backend --permissions deeplink:write --expires 7776000', 'for 90 days'],
		[
			'idv apikey create --name kiosk --permissions ephemeral_device:write --out kiosk.key',
			'for credential.apiKeyFile',
		],
	);
	onCommand<ApiKeyFlags>(create, async (flags) => (await import('./api-key.ts')).createApiKey(flags));
}

function addPairingCode(program: Command): void {
	const qrcode = program
		.command('qrcode')
		.description('make a pairing code for a device')
		.requiredOption('--workflow <id>', 'the workflow of the device')
		.option('--out <file>', 'save it as a .png or .svg file')
		.option('--terminal', 'draw it in the terminal, also when it is saved');
	withExamples(
		qrcode,
		['idv qrcode --workflow checkin', 'drawn in the terminal'],
		['idv qrcode --workflow checkin --out code.png', 'for printing: it works once, and for a short time'],
		['idv qrcode --workflow checkin --json | jq -r .url', 'for another program'],
	);
	onCommand<PairingCodeFlags>(qrcode, async (flags) => (await import('./pairing-code.ts')).makePairingCode(flags));
}

function addSession(program: Command): void {
	const start = program
		.command('session')
		.description('sessions')
		.command('start')
		.description('start a session and print its hand-off URL')
		.requiredOption('--workflow <id...>', 'the workflow; separate several with spaces or commas', collect)
		.option('--metadata <json>', 'a JSON object for the session, or @FILE')
		.option('--locale <locale>', 'such as de-CH')
		.option(
			'--ttl <seconds>',
			'lifetime of the session and its token (default 3600)',
			wholeNumber('--ttl', 1, 2_592_000),
		)
		.option('--qr', 'draw the URL as a QR code');
	withExamples(
		start,
		['idv session start --workflow checkin --qr', 'a phone scans it'],
		[`idv session start --workflow checkin --metadata '{"visitor":"Ada"}' --ttl 600`, ''],
		['idv session start --workflow checkin --json | jq -r .url', 'for a backend'],
	);
	onCommand<SessionFlags>(start, async (flags) => (await import('./session.ts')).startSession(flags));
}

function addDevice(program: Command): void {
	const connect = program
		.command('device')
		.description('devices')
		.command('connect')
		.description('register a device on its behalf and print its Connection token')
		.requiredOption('--device-id <id>', 'the device')
		.requiredOption('--workflow <id>', 'the workflow that it uses')
		.option('--serial <serial>', 'its serial number')
		.option('--mac <address>', 'its MAC address')
		.option('--type <type>', 'its type, such as kiosk')
		.option('--heartbeat <seconds>', 'time between its heartbeats', wholeNumber('--heartbeat', 1, 86_400))
		.option('--token-pointer <pointer>', 'JSON pointer to the Connection in the answer')
		.option('--out <file>', 'write the Connection token to this new file (mode 0600) instead of showing it');
	withExamples(connect, [
		'idv device connect --device-id K-1047 --workflow checkin --out K-1047.connection',
		'for credential.connectionFile',
	]);
	onCommand<DeviceFlags>(connect, async (flags) => (await import('./device.ts')).connectDevice(flags));
}

function addWhoAmI(program: Command): void {
	const whoami = program
		.command('whoami')
		.description('show the kind of the credential and what it may do')
		.option('--offline', 'do not ask the service');
	withExamples(
		whoami,
		['idv whoami', 'asks with requests that cannot create anything'],
		['idv whoami --offline', 'only what the credential itself says'],
	);
	onCommand<TargetFlags>(whoami, async (flags) => (await import('./whoami.ts')).whoAmI(flags));
}

function addProbe(program: Command): void {
	const probe = program
		.command('probe')
		.description('find the settings for the devices of a service that you may use, by trying')
		.option('--code-file <file>', 'use up the pairing code in this file as the credential; - for standard input')
		.option('--workflow <id>', 'the workflow of the device, where the code names none')
		.option('--yes', 'do it; without it the command only says what it would create')
		.option('--create-key', 'also create an API key that ends after 60 s')
		.option('--out <file>', 'write the settings to this file, for conf.d of the devices')
		.option('--force', 'replace files that are there')
		.option('--seconds <seconds>', 'time for which the channel is watched', wholeNumber('--seconds', 1, 3600), 60)
		.option('--channel-path <path...>', 'paths of the channel to try before the usual ones', collect)
		.option('--transcript <file>', 'write what was said on the wire to this file, without secrets');
	withExamples(
		probe,
		['idv probe --url https://id.example.com --code-file code.txt --yes --out service.json', ''],
		['idv probe --workflow checkin --yes --transcript wire.jsonl', 'with an API key from the profile'],
	);
	onCommand<ProbeFlags>(probe, async (flags) => (await import('./probe.ts')).probeService(flags));
}

function addProfile(program: Command): void {
	const profile = program.command('profile').description('manage names for services and their credentials');
	const add = profile
		.command('add')
		.description('add a profile; the first one is used from then on')
		.argument('<name>', 'its name')
		.option('--replace', 'replace the profile with this name');
	withExamples(
		add,
		['idv profile add prod --url https://id.example.com', 'asks for the credential'],
		['idv profile add test --url http://127.0.0.1:8490 --authorization-file key', 'from a file'],
	);
	onCommand<AddFlags>(add, async (flags, name) => (await import('./profiles.ts')).addProfile(flags, name ?? ''));
	const list = profile.command('list').description('list the profiles; * marks the one in use');
	withExamples(list, ['idv profile list', 'shows no secret']);
	onCommand<OutputFlags>(list, async (flags) => (await import('./profiles.ts')).showProfiles(flags));
	const use = profile.command('use').description('use another profile from now on').argument('<name>', 'its name');
	withExamples(use, ['idv profile use prod', '']);
	onCommand<OutputFlags>(use, async (flags, name) => (await import('./profiles.ts')).useProfile(flags, name ?? ''));
	const remove = profile
		.command('remove')
		.description('forget a profile and its credential')
		.argument('<name>', 'its name');
	withExamples(remove, ['idv profile remove test', '']);
	onCommand<OutputFlags>(remove, async (flags, name) =>
		(await import('./profiles.ts')).forgetProfile(flags, name ?? ''),
	);
}

void runProgram(buildProgram());
