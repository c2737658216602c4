/**
 * The command line of the device agent: which commands and flags there are. What a command does is in its own file,
 * loaded only when it is asked for.
 */
import { Command, CommanderError, Option } from 'commander';
import { EXIT } from '../core/errors.ts';
import { runCommand } from './output.ts';
import { VERSION } from './version.ts';

const collect = (value: string, before: readonly string[] = []) => [...before, value];

const configOption = () =>
	new Option('--config <file>', 'settings file (IDV_AGENT_CONFIG; default /etc/idv-agent/config.json)');
const stateOption = () =>
	new Option(
		'--state-dir <dir>',
		'where the agent keeps its pairing (IDV_AGENT_STATE_DIR; default /var/lib/idv-agent)',
	);
const runOption = () =>
	new Option('--run-dir <dir>', 'where its sockets are (IDV_AGENT_RUN_DIR; default /run/idv-agent)');
const jsonOption = () =>
	new Option('--json', 'answer in JSON (IDV_AGENT_JSON=1)').default(process.env['IDV_AGENT_JSON'] === '1', 'no');
const setOption = () =>
	new Option('--set <path=value>', 'a setting, such as heartbeatCadence=10; may be repeated').argParser(collect);

/** A command that asks the running agent. */
function asking(command: Command): Command {
	return command.addOption(runOption()).addOption(jsonOption());
}

export function buildProgram(): Command {
	const program = new Command('idv-agent')
		.description(
			'Keeps this device registered with the identity verification service and hands session notifications on.',
		)
		.version(VERSION)
		.exitOverride()
		.configureHelp({ sortSubcommands: false })
		.showHelpAfterError('(--help shows what there is)')
		.addHelpText('after', EXAMPLES);

	program
		.command('run')
		.description('run the agent in the foreground (systemd starts this)')
		.addOption(configOption())
		.addOption(stateOption())
		.addOption(runOption())
		.addOption(setOption())
		.action((flags) => runCommand({}, async () => (await import('./run.ts')).run(flags)));

	asking(program.command('pair'))
		.description('pair this device: scan or type the code at a hidden prompt')
		.argument('[source]', '- reads the code from standard input')
		.option('--image <file>', 'read the code from a picture')
		.option('--workflow <id>', 'the workflow, for a code that names none')
		.option('--inspect', 'only show what the code would do; spends nothing')
		.option('--replace', 'move a device that is paired already')
		.option(
			'--trust <origin>',
			'the origin that you expect, such as https://id.example.com, for a first pairing without a terminal',
		)
		.action((from, flags) => runCommand(flags, async () => (await import('./pair.ts')).pair({ ...flags, from })));

	asking(program.command('status'))
		.description('how the device is, in one sentence and in detail')
		.option('--watch', 'go on showing every change')
		.action((flags) => runCommand(flags, async () => (await import('./ask.ts')).showStatus(flags)));

	const workflow = program.command('workflow').description('show or set the workflow');
	asking(workflow.command('show'))
		.description('the workflow that is wanted and the one that is live')
		.action((flags) => runCommand(flags, async () => (await import('./ask.ts')).showWorkflow(flags)));
	asking(workflow.command('set'))
		.description('move the device to a workflow, without being offline in between')
		.argument('<id>', 'the workflow')
		.option('--wait <seconds>', 'how long to wait until it is live', Number, 15)
		.action((id, flags) => runCommand(flags, async () => (await import('./ask.ts')).setWorkflow(flags, id)));

	asking(program.command('events'))
		.description('the notifications that applications get')
		.option('--follow', 'go on with new ones as they come')
		.option('--since <id>', 'only those after this id')
		.action((flags) => runCommand(flags, async () => (await import('./ask.ts')).showEvents(flags)));

	asking(program.command('reconnect'))
		.description('try again now instead of waiting')
		.action((flags) => runCommand(flags, async () => (await import('./ask.ts')).reconnect(flags)));
	asking(program.command('unpair'))
		.description('forget the pairing and its secrets')
		.action((flags) => runCommand(flags, async () => (await import('./ask.ts')).unpair(flags)));
	asking(program.command('identity'))
		.description('who this device is, and which source says so')
		.action((flags) => runCommand(flags, async () => (await import('./ask.ts')).showIdentity(flags)));

	const config = program.command('config').description('show or check the settings');
	for (const [name, description] of [
		['show', 'every setting, its value and where it came from'],
		['check', 'what is wrong with the settings; status 78 if anything is'],
	] as const)
		config
			.command(name)
			.description(description)
			.addOption(configOption())
			.addOption(setOption())
			.addOption(jsonOption())
			.action((flags) =>
				runCommand(flags, async () => {
					const { checkConfig, showConfig } = await import('./config.ts');
					await (name === 'show' ? showConfig(flags) : checkConfig(flags));
				}),
			);

	addService(program);
	program
		.command('demo')
		.description('the whole story on this machine: a trial service, a pairing, a session, a workflow change')
		.option('--once', 'end after the story, with 0 or the step that failed')
		.action((flags) => runCommand({}, async () => (await import('./demo.ts')).demo(flags)));
	return program;
}

function addService(program: Command): void {
	const service = program
		.command('service')
		.description('an embedded service for trials: the whole published interface, in memory')
		.option('--port <number>', 'port to listen on, 0 for any free one', Number, 8490)
		.option('--host <address>', 'address to listen on', '127.0.0.1')
		.option('--allow-non-loopback', 'let other machines reach it')
		.option('--workflows <ids>', 'the workflows that exist, comma-separated; left out, every one does', (ids) =>
			ids.split(','),
		)
		.option('--connection-ttl <seconds>', 'life of a Connection', Number)
		.option('--short-token-ttl <seconds>', 'life of a pairing code', Number)
		.option('--json', 'one JSON document a line')
		.action((flags) => runCommand(flags, async () => (await import('./service.ts')).runService(flags)));
	service
		.command('notify')
		.description('send the connected devices a message')
		.argument('<json>', 'the message')
		.requiredOption('--url <url>', 'where the embedded service listens')
		.option('--device <id>', 'only this device')
		.option('--workflow <id>', 'only devices with this workflow')
		.action((message, flags) =>
			runCommand(flags, async () => (await import('./service.ts')).notifyDevices(message, flags)),
		);
}

const EXAMPLES = `
Examples:
  idv-agent pair                      scan the code with a keyboard scanner, or type it
  idv-agent pair --image code.png     read it from a picture
  idv-agent status                    one sentence, then details
  idv-agent workflow set checkin-2    move to another workflow
  idv-agent events --follow           watch what applications get
Exit status: 0 done, 64 usage, 65 bad data, 69 unavailable, 70 fault, 74 I/O, 75 try again, 77 refused, 78 settings.`;

async function main(): Promise<void> {
	try {
		await buildProgram().parseAsync();
	} catch (error) {
		if (!(error instanceof CommanderError)) throw error;
		// commander has said what is wrong; help and version are no errors.
		process.exitCode = error.exitCode === 0 ? EXIT.ok : EXIT.usage;
	}
}

void main();
