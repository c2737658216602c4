/**
 * The command line of the device agent: which commands and flags there are. Each command is implemented in its own file,
 * loaded only when it is asked for.
 */
import type { Command } from 'commander';
import type { PathFlags } from '../settings/paths.runner.ts';
import { collect, createProgram, onCommand, runProgram, wholeNumber, withExamples } from './command-line.ts';
import type { OutputFlags } from './output.ts';

/** Flags of every command. */
type CommonFlags = PathFlags & OutputFlags;

/** Adds each command: a start builds only the one that is called by its name. */
const COMMANDS: Readonly<Record<string, (program: Command) => void>> = {
	run: addRun,
	pair: addPairing,
	unpair: addPairing,
	provision: addProvision,
	scanner: addScanner,
	'code-cache': addCodeCache,
	status: addQuestions,
	workflow: addQuestions,
	events: addQuestions,
	reconnect: addQuestions,
	identity: addQuestions,
	config: addConfig,
	doctor: addDiagnosis,
	'support-bundle': addDiagnosis,
	service: addService,
	simulate: addSimulate,
	demo: addDemo,
};

/** @param word the command that is asked for, where it is known; left out, or unknown, all of them are there. */
export function buildProgram(word = ''): Command {
	const program = createProgram(
		'idv-agent',
		'Keeps this device registered with the identity verification service and passes session notifications on.',
	)
		.option('--config <file>', 'settings file (IDV_AGENT_CONFIG; default /etc/idv-agent/config.json)')
		.option('--state-dir <dir>', "directory of the agent's state (IDV_AGENT_STATE_DIR; default /var/lib/idv-agent)")
		.option('--run-dir <dir>', 'directory of its sockets (IDV_AGENT_RUN_DIR; default /run/idv-agent)')
		.option('--json', 'answer in JSON (IDV_AGENT_JSON=1)')
		.addHelpText('after', EXIT_STATUSES);
	withExamples(
		program,
		['idv-agent pair', 'scan the code with a keyboard scanner, or type it'],
		['idv-agent pair --image code.png', 'read it from a picture'],
		['idv-agent status', 'one sentence, then details'],
		['idv-agent doctor', 'diagnose problems'],
		['idv-agent workflow set checkin-2', 'move to another workflow'],
		['idv-agent events --follow', 'watch the events that applications receive'],
		['idv-agent demo', 'the whole story on this machine'],
	);
	const asked = Object.hasOwn(COMMANDS, word) ? COMMANDS[word] : undefined;
	for (const add of asked ? [asked] : new Set(Object.values(COMMANDS))) add(program);
	return program;
}

const EXIT_STATUSES = `
Exit status: 0 done, 64 usage, 65 bad data, 69 unavailable, 70 internal fault, 74 I/O,
  75 try again, 77 refused, 78 settings.`;

const SET = ['--set <path=value>', 'a setting, such as heartbeatCadence=10 (repeatable)', collect] as const;

function addRun(program: Command): void {
	const run = program
		.command('run')
		.description('run the agent in the foreground (systemd starts this)')
		.option(...SET);
	withExamples(
		run,
		['idv-agent run', 'with /etc/idv-agent/config.json and conf.d beside it'],
		['idv-agent run --set log.level=debug', 'one setting for this run'],
		['kill -HUP <pid>', 'makes it read its settings again'],
	);
	onCommand<CommonFlags>(run, async (flags) => (await import('./run.ts')).run(flags));
}

function addPairing(program: Command): void {
	const pair = program
		.command('pair')
		.description('pair this device: scan or type the code at a hidden prompt')
		.argument('[source...]', '- reads the code from standard input; a code itself is never an argument')
		.option('--image <file>', 'read the code from a picture (PNG, JPEG or WebP)')
		.option('--workflow <id>', 'the workflow, for a code that names none')
		.option('--inspect', 'only show what the code would do; spends nothing')
		.option('--replace', 'move a device that is paired already')
		.option('--trust <origin>', 'the origin that you expect, such as https://id.example.com, for a first pairing');
	withExamples(
		pair,
		['idv-agent pair', 'at a terminal or with a keyboard scanner'],
		['idv-agent pair --image photo.jpg', 'from a picture'],
		['idv-agent pair --inspect', 'what would this code do?'],
		['idv-agent pair --trust https://id.example.com - < code.txt', 'without a terminal'],
	);
	onCommand<CommonFlags>(pair, async (flags, ...from) => (await import('./pair.ts')).pair(flags, from.flat()));

	const unpair = program.command('unpair').description('forget the pairing and its secrets');
	withExamples(unpair, ['idv-agent unpair', 'the device waits for a new code afterwards']);
	onCommand<CommonFlags>(unpair, async (flags) => (await import('./status.ts')).unpair(flags));
}

function addCodeCache(program: Command): void {
	const cache = program
		.command('code-cache')
		.description('compile the code of a start ahead of time (the package does so when it is installed; requires root)');
	withExamples(cache, ['idv-agent code-cache', 'writes a file beside the executable; a start takes a third less CPU']);
	onCommand<OutputFlags>(cache, async (flags) => (await import('./code-cache.ts')).makeCodeCache(flags));
}

function addProvision(program: Command): void {
	const provision = program
		.command('provision')
		.description('apply a provision.json (systemd starts this before the agent; requires root)')
		.argument('[file...]', '- for standard input; default: provision.json in /etc/idv-agent or /boot/firmware')
		.option('--credstore <dir>', 'directory for the secret, encrypted for this machine', '/etc/credstore.encrypted');
	withExamples(
		provision,
		['idv-agent provision', 'the file in /etc/idv-agent or /boot/firmware; the same file again changes nothing'],
		['idv-agent provision - < provision.json', 'without leaving a secret on the disk'],
	);
	onCommand<CommonFlags & { credstore: string }>(provision, async (flags, ...files) =>
		(await import('./provision.ts')).takeProvision(flags, files.flat()),
	);
}

function addScanner(program: Command): void {
	const scanner = program.command('scanner').description('the code scanners of this device');
	const list = scanner.command('list').description('devices, which one an unpaired device listens to, and why');
	withExamples(
		list,
		['idv-agent scanner list', 'also says why the agent cannot read one'],
		['idv-agent scanner list --json', 'for programs'],
	);
	onCommand<CommonFlags>(list, async (flags) => (await import('./scanner.ts')).listScanners(flags));
	const test = scanner
		.command('test')
		.description('show what a scanner reads, secrets masked; spends nothing')
		.argument('[source]', '- reads standard input in place of a scanner')
		.option('--device <path>', 'this device in place of the one that would be chosen')
		.option('--count <number>', 'end after this number of scans', wholeNumber('--count', 1, 1_000_000))
		.option(...SET);
	withExamples(
		test,
		['idv-agent scanner test', 'until Ctrl-C'],
		['idv-agent scanner test --set scanner.suffix=none', 'for a scanner that sends no line end'],
		['idv-agent scanner test - < scanned.txt', 'how would the agent read this?'],
	);
	onCommand<CommonFlags & { count?: number }>(test, async (flags, source) =>
		(await import('./scanner.ts')).testScanner(flags, source),
	);
}

function addQuestions(program: Command): void {
	const status = program
		.command('status')
		.description('show device status')
		.option('--watch', 'keep printing every change');
	withExamples(
		status,
		['idv-agent status', 'one sentence, then details'],
		['idv-agent status --watch', 'until Ctrl-C'],
		["idv-agent status --json | jq '.workflow'", 'for programs'],
	);
	onCommand<CommonFlags>(status, async (flags) => (await import('./status.ts')).showStatus(flags));

	const workflow = program.command('workflow').description('show or set the workflow');
	const show = workflow.command('show').description('show the desired workflow and the one that is live');
	withExamples(show, ['idv-agent workflow show', 'desired, its source, and live']);
	onCommand<CommonFlags>(show, async (flags) => (await import('./workflow.ts')).showWorkflow(flags));
	const set = workflow
		.command('set')
		.description('move the device to a workflow, without being offline in between')
		.argument('<id>', 'the workflow')
		.option(...waitOption('until it is live', 15));
	withExamples(
		set,
		['idv-agent workflow set checkin-2', 'waits until it is live; 75 if that takes too long'],
		['idv-agent workflow set checkin-2 --wait 0', 'only asks for it'],
	);
	onCommand<CommonFlags & { wait: number }>(set, async (flags, id) =>
		(await import('./workflow.ts')).setWorkflow(flags, id ?? ''),
	);

	const events = program
		.command('events')
		.description('show the events that applications receive')
		.option('--follow', 'keep printing new ones as they arrive')
		.option('--since <id>', 'only those after this id');
	withExamples(
		events,
		['idv-agent events', 'the stored ones'],
		['idv-agent events --follow --json', 'one JSON document a line, as they arrive'],
		['idv-agent events --since 1a2b3c-7', 'after the last one that you have'],
	);
	onCommand<CommonFlags>(events, async (flags) => (await import('./events.ts')).showEvents(flags));

	const reconnect = program
		.command('reconnect')
		.description('try again now instead of waiting')
		.option(...waitOption('for the outcome', 10));
	withExamples(reconnect, ['idv-agent reconnect', 'after the network was repaired']);
	onCommand<CommonFlags & { wait: number }>(reconnect, async (flags) => (await import('./status.ts')).reconnect(flags));

	const identity = program.command('identity').description('show the identity of this device and its sources');
	withExamples(identity, ['idv-agent identity', 'also while the agent is not running']);
	onCommand<CommonFlags>(identity, async (flags) => (await import('./identity.ts')).showIdentity(flags));
	const accept = identity
		.command('accept')
		.description('confirm that this is still the same device, after a part was replaced')
		.option('--yes', 'do not ask for confirmation');
	withExamples(
		accept,
		['idv-agent identity accept', 'shows what has changed and asks'],
		['idv-agent identity accept --yes', 'without a terminal'],
	);
	onCommand<CommonFlags & { yes?: boolean }>(accept, async (flags) =>
		(await import('./identity.ts')).acceptIdentity(flags),
	);
}

function waitOption(what: string, seconds: number) {
	return ['--wait <seconds>', `how long to wait ${what}, 0 to 3600`, wholeNumber('--wait', 0, 3600), seconds] as const;
}

function addConfig(program: Command): void {
	const config = program.command('config').description('show or check the settings');
	const show = config
		.command('show')
		.description('show every setting, its value and its source')
		.option(...SET)
		.option('--explain', 'also show the purpose of each and the name of its variable');
	withExamples(
		show,
		['idv-agent config show', 'secrets are masked'],
		['idv-agent config show --explain', 'every setting with its meaning'],
	);
	onCommand<CommonFlags>(show, async (flags) => (await import('./config.ts')).showConfig(flags));
	const check = config
		.command('check')
		.description('check the settings; exit status 78 if they are invalid')
		.option(...SET);
	withExamples(
		check,
		['idv-agent config check', 'the settings of this device'],
		['idv-agent config check --config new.json', 'before it is put in place'],
	);
	onCommand<CommonFlags>(check, async (flags) => (await import('./config.ts')).checkConfig(flags));
}

function addDiagnosis(program: Command): void {
	const doctor = program
		.command('doctor')
		.description('diagnose problems; uses no pairing code and leaves an open channel alone')
		.option('--check <id>', 'run only this check and its prerequisites (repeatable)', collect)
		.option('--warnings-as-errors', 'warnings set the exit status as well')
		.option(...SET);
	withExamples(
		doctor,
		['sudo idv-agent doctor', 'as the user and with the settings of the service'],
		['idv-agent doctor --check tls', 'one check and its prerequisites'],
		['idv-agent doctor --json | jq \'.checks[] | select(.status != "ok")\'', 'for programs'],
	);
	onCommand<CommonFlags>(doctor, async (flags) => (await import('./doctor.ts')).doctor(flags));

	const bundle = program
		.command('support-bundle')
		.description('write one file with status, checks, settings, log and versions, without secrets')
		.option('--out <file>', 'the .tar.gz to write; default: a name with the time in this directory')
		.option(...SET);
	withExamples(
		bundle,
		['sudo idv-agent support-bundle', "includes the journal; runs with the service's user and settings"],
		['idv-agent support-bundle --out /tmp/kiosk-7.tar.gz', 'read it before you send it'],
	);
	onCommand<CommonFlags>(bundle, async (flags) => (await import('./support-bundle.ts')).supportBundle(flags));
}

function addService(program: Command): void {
	const service = program
		.command('service')
		.description('run an embedded service for trials: the whole published interface, in memory')
		.option('--port <number>', 'port to listen on, 0 for any free one', wholeNumber('--port', 0, 65_535), 8490)
		.option('--host <address>', 'address to listen on', '127.0.0.1')
		.option('--allow-non-loopback', 'accept requests from other machines')
		.option('--workflows <ids>', 'the workflows that exist, comma-separated; default: any workflow', (ids: string) =>
			ids.split(',').map((id) => id.trim()),
		)
		.option('--credentials <file>', 'JSON file with basic (user:password), bearer and apiKey; default: generated')
		.option('--connection-ttl <seconds>', 'lifetime of a Connection', wholeNumber('--connection-ttl', 1, 315_360_000))
		.option('--short-token-ttl <seconds>', 'lifetime of a pairing code', wholeNumber('--short-token-ttl', 1, 86_400))
		.option('--self-registration', 'devices may register without a credential')
		.option('--no-short-token-keys', 'a pairing code may not create an API key')
		.option('--public-url <url>', 'base URL in pairing codes and links, such as that of a proxy in front')
		.option('--signing-key-file <file>', 'key that signs Connections, made if missing: they stay valid after a restart')
		.option('--transcript <file>', 'add what is said on the wire to this file, without secrets')
		.option('--replay <file>', 'answer as this transcript says, instead of the published interface')
		.option('--quiet', 'do not print a line for each event');
	withExamples(
		service,
		['idv-agent service --workflows checkin,checkout', 'prints its credentials and what happens'],
		['idv-agent service --port 0 --json', 'for programs: one JSON document a line'],
		['idv-agent service --replay wire.jsonl', 'a service that was recorded, by this command or by idv probe'],
	);
	onCommand(service, async (flags: OutputFlags & { port: number; host: string }) =>
		(await import('./service.ts')).runService(flags),
	);
	const notify = service
		.command('notify')
		.description('send the connected devices a message; credential from IDV_AUTHORIZATION')
		.argument('<json>', 'the message')
		.requiredOption('--url <url>', 'address of the embedded service')
		.option('--device <id>', 'only this device')
		.option('--workflow <id>', 'only devices with this workflow');
	withExamples(
		notify,
		["export IDV_AUTHORIZATION='Bearer …'", 'as the service printed it'],
		[`idv-agent service notify '{"type":"hello"}' --url http://127.0.0.1:8490`, ''],
	);
	onCommand(notify, async (flags: OutputFlags & { url: string }, message) =>
		(await import('./service.ts')).notifyDevices(message ?? '', flags),
	);
}

function addSimulate(program: Command): void {
	const simulate = program
		.command('simulate')
		.description('run a load test: many devices in this process, against a service on this machine or one that you own')
		.requiredOption('--devices <count>', 'how many, 1 to 20000', wholeNumber('--devices', 1, 20_000))
		.requiredOption('--service <url>', 'base URL of the service')
		.option('--i-own-this-service', 'your consent, required for a service that is not on this machine')
		.option('--api-key-file <file>', 'the key with which all of them register')
		.option('--self-registration', 'register without a credential, where the service allows it')
		.option('--workflow <id>', 'the workflow with which they start', 'simulated')
		.option(
			'--ramp <seconds>',
			'start them evenly over this time; default: 50 a second',
			wholeNumber('--ramp', 0, 86_400),
		)
		.option('--for <seconds>', 'end after this time; default: at Ctrl-C', wholeNumber('--for', 1, 604_800))
		.option(
			'--move <workflow@seconds>',
			'move all to another workflow, ring by ring, this many seconds after the start',
		)
		.option('--rings <percents>', 'the percentage of devices in each ring of the move', '1,10,50,100')
		.option('--ring-seconds <seconds>', 'duration of each ring', wholeNumber('--ring-seconds', 0, 86_400), 30)
		.option(
			'--cadence <seconds>',
			'seconds between two heartbeats of one device, 1 to 86400',
			wholeNumber('--cadence', 1, 86_400),
			30,
		)
		.option('--prefix <name>', 'device ids are <name>-00001 and so on', 'sim')
		.option(...SET);
	withExamples(
		simulate,
		['idv-agent service --self-registration --quiet', 'a service to try it with'],
		['idv-agent simulate --devices 500 --service http://127.0.0.1:8490 --self-registration', 'until Ctrl-C'],
		['idv-agent simulate … --for 300 --move face-check@60 --json', 'a move after a minute; the report in JSON'],
	);
	simulate.addHelpText(
		'after',
		'\nEnds with a report; exit status 0 if every device is online then (with the workflow of --move), else 69.\n',
	);
	onCommand<OutputFlags & { devices: number; service: string }>(simulate, async (flags) =>
		(await import('./simulate.ts')).simulate(flags as Parameters<typeof import('./simulate.ts').simulate>[0]),
	);
}

function addDemo(program: Command): void {
	const demo = program
		.command('demo')
		.description('show a whole story on this machine: a trial service, a pairing, a session, a workflow change')
		.option('--once', 'end after the story; the exit status says whether every step succeeded');
	withExamples(demo, ['idv-agent demo', 'stays up until Ctrl-C']);
	onCommand<OutputFlags & { once?: boolean }>(demo, async (flags) => (await import('./demo.ts')).demo(flags));
}

void runProgram(buildProgram(process.argv[2]));
