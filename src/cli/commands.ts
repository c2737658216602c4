/** The command line of the device agent; the file of a command is loaded only when it is asked for. */
import {
	collect,
	createAgentProgram,
	EXIT_STATUSES,
	type LazyCommand,
	runProgram,
	SET,
	type Subcommands,
} from './command-line.runner.ts';
import { type Caller, Shell } from './output.runner.ts';
import { asksForTool, becomeTools, hasTools, TOOL_COMMANDS } from './tool-commands.runner.ts';

/** @param word the command that is asked for, where it is known; left out, or unknown, all of them are there. */
function buildProgram(shell: Shell, word = ''): LazyCommand {
	const program = createAgentProgram(shell, 'idv-agent')
		.addHelpText('after', EXIT_STATUSES)
		.examples({
			'idv-agent pair': 'scan the code with a keyboard scanner, or type it',
			'idv-agent pair --image code.png': 'read it from a picture',
			'idv-agent status': 'one sentence, then details',
			'idv-agent doctor': 'diagnose problems',
			'idv-agent workflow set checkin-2': 'move to another workflow',
			'idv-agent events --follow': 'watch the events that applications receive',
			...(hasTools() && { 'idv-agent demo': 'the whole story on this machine' }),
		});
	const asked = COMMANDS[Object.hasOwn(COMMANDS, word) ? word : ''];
	return program.subcommands(asked ? { [word]: asked } : COMMANDS);
}

const COMMANDS: Subcommands = {
	run: (command) =>
		command('run the agent in the foreground (systemd starts this)')
			.option(...SET)
			.examples({
				'idv-agent run': 'with /etc/idv-agent/config.json and conf.d beside it',
				'idv-agent run --set log.level=debug': 'one setting for this run',
				'kill -HUP <pid>': 'makes it read its settings again',
			})
			.runs(async () => {
				const { runReported } = await import('./run.ts');
				return (shell, flags) => runReported(shell.caller, flags, shell.isJson);
			}),
	pair: (command) =>
		command('pair this device: scan or type the code at a hidden prompt')
			.argument('[source...]', '- reads the code from standard input; a code itself is never an argument')
			.option('--image <file>', 'read the code from a picture (PNG, JPEG or WebP)')
			.option('--workflow <id>', 'the workflow, for a code that names none')
			.option('--inspect', 'only show what the code would do; does not use it')
			.option('--replace', 'move a device that is paired already')
			.option('--keep-events', 'keep the events of the service that the device leaves')
			.option('--trust <origin>', 'the origin that you expect, such as https://id.example.com, for a first pairing')
			.examples({
				'idv-agent pair': 'at a terminal or with a keyboard scanner',
				'idv-agent pair --image photo.jpg': 'from a picture',
				'idv-agent pair --inspect': 'what would this code do?',
				'idv-agent pair --trust https://id.example.com - < code.txt': 'without a terminal',
			})
			.runs(async () => (await import('./pair.runner.ts')).pair),
	unpair: (command) =>
		command('forget the pairing, its secrets and the events of the service')
			.option('--keep-events', 'keep the stored events')
			.examples({
				'idv-agent unpair': 'the device waits for a new code afterwards',
				'idv-agent unpair --keep-events': 'for applications that have not read all of them',
			})
			.runs(async () => (await import('./status.runner.ts')).unpair),
	provision: (command) =>
		command('apply a provision.json (systemd starts this before the agent; requires root)')
			.argument('[file...]', '- for standard input; default: provision.json in /etc/idv-agent or /boot/firmware')
			.option('--credstore <dir>', 'directory for the secret, encrypted for this machine', '/etc/credstore.encrypted')
			.examples({
				'idv-agent provision': 'the file in /etc/idv-agent or /boot/firmware; the same file again changes nothing',
				'idv-agent provision - < provision.json': 'without leaving a secret on the disk',
			})
			.runs(async () => (await import('./provision.runner.ts')).takeProvision),
	hooks: (command) =>
		command('run the commands of hooks.* when the agent reports an event (systemd starts this if a hook is set)')
			.option(...SET)
			.examples({
				'idv-agent hooks':
					'waits for an agent, and ends if that has no hook; outside of systemd idv-agent run starts it',
			})
			.runs(async () => (await import('./hooks.runner.ts')).runHooks),
	scanner: (command) =>
		command('the code scanners of this device').subcommands({
			list: (command) =>
				command('list scanners, which one an unpaired device listens to, and why')
					.examples({
						'idv-agent scanner list': 'also says why the agent cannot read one',
						'idv-agent scanner list --json': 'for programs',
					})
					.runs(async () => (await import('./scanner.runner.ts')).listScanners),
			test: (command) =>
				command('show what a scanner reads, secrets masked; uses no pairing code')
					.argument('[source]', '- reads standard input in place of a scanner')
					.option('--device <path>', 'read this device instead of the one that the agent would choose')
					.number('--count <number>', 'end after this number of scans', [1, 1_000_000])
					.option(...SET)
					.examples({
						'idv-agent scanner test': 'until Ctrl-C',
						'idv-agent scanner test --set scanner.suffix=none': 'for a scanner that sends no line end',
						'idv-agent scanner test - < scanned.txt': 'how would the agent read this?',
					})
					.runs(async () => (await import('./scanner.runner.ts')).testScanner),
		}),
	'code-cache': (command) =>
		command('compile the startup code ahead of time (the package does so when it is installed; requires root)')
			.examples({ 'idv-agent code-cache': 'writes a file beside the executable; a start takes a third less CPU' })
			.runs(async () => (await import('./code-cache.runner.ts')).makeCodeCache),
	status: (command) =>
		command('show device status')
			.option('--watch', 'keep printing every change')
			.option('--exit-code', 'exit with 0 only if online, 75 while the agent recovers automatically, else 77')
			.examples({
				'idv-agent status': 'one sentence, then details',
				'idv-agent status --exit-code >/dev/null || beep': 'for scripts',
				'idv-agent status --watch': 'until Ctrl-C',
				"idv-agent status --json | jq '.workflow'": 'for programs',
			})
			.runs(async () => (await import('./status.runner.ts')).showStatus),
	workflow: (command) =>
		command('show or set the workflow').subcommands({
			show: (command) =>
				command('show the desired workflow and the one that is live')
					.examples({ 'idv-agent workflow show': 'desired, its source, and live' })
					.runs(async () => (await import('./workflow.runner.ts')).showWorkflow),
			set: (command) =>
				command('move the device to a workflow, without being offline in between')
					.argument('<id>', 'the workflow')
					.number('--wait <seconds>', 'how long to wait until it is live, 0 to 3600', [0, 3600], 15)
					.examples({
						'idv-agent workflow set checkin-2':
							'waits until it is live; if the exit status is not 0, nothing has changed',
						'idv-agent workflow set checkin-2 --wait 0': 'only asks for it',
					})
					.runs(async () => (await import('./workflow.runner.ts')).setWorkflow),
		}),
	plan: (command) =>
		command('the fleet plan that this device follows').subcommands({
			show: (command) =>
				command('show the plan, its keys, and the newest plan that each key has signed')
					.examples({
						'sudo idv-agent plan show': 'fleet, revision, end of validity, keys',
						"sudo idv-agent plan show --json | jq '.newest'": 'for programs',
					})
					.runs(async () => (await import('./plan.runner.ts')).showPlan),
			forget: (command) =>
				command('forget which plans were seen: the device then takes the next one, whatever its revision')
					.examples({
						'sudo idv-agent plan forget': 'after a wrong revision; meanwhile the device keeps running as it is',
					})
					.runs(async () => (await import('./plan.runner.ts')).forgetPlan),
		}),
	events: (command) =>
		command('show the events that applications receive')
			.option('--follow', 'keep printing new events as they arrive')
			.option('--since <id>', 'only events after this id')
			.examples({
				'idv-agent events': 'the stored events',
				'idv-agent events --follow --json': 'one JSON document a line, as they arrive',
				'idv-agent events --since 1a2b3c-7': 'after the last one that you have',
			})
			.runs(async () => (await import('./events.runner.ts')).showEvents)
			.subcommands({
				erase: (command) =>
					command("erase a person's events from the disk and from every answer of the agent")
						.option('--session <id>', 'the events in which this id is a word')
						.option(
							'--before <time>',
							'the events received before this time, such as 2026-11-21 or 2026-11-21T06:00:00Z',
						)
						.examples({
							'sudo idv-agent events erase --session 65f0a2': 'everything that names this session',
							'sudo idv-agent events erase --before 2026-11-21': 'everything older than that day',
						})
						.runs(async () => (await import('./events.runner.ts')).eraseEvents),
			}),
	audit: (command) =>
		command('show what was asked of this device, by which entrance, with what result')
			.option('--follow', 'keep printing new entries')
			.option('--verify', 'say whether entries are missing or altered (then the exit status is 74)')
			.examples({
				'sudo idv-agent audit': 'pairings, moves, plan and key changes, erasures, updates',
				'sudo idv-agent audit --follow --json': 'one JSON document a line',
				'journalctl -t idv-agent-audit': 'the same in the journal',
			})
			.runs(async () => (await import('./audit.runner.ts')).showAudit),
	history: (command) =>
		command('say when this device was online, and why it was not')
			.option('--since <time>', 'from this time on, such as 2h, 2026-11-21 or 2026-11-21T02:00:00Z')
			.option('--until <time>', 'up to this time')
			.examples({
				'sudo idv-agent history --since 12h': 'last night, in sentences',
				'sudo idv-agent history --json': 'one JSON document a line, with codes',
			})
			.runs(async () => (await import('./history.runner.ts')).showHistory),
	reconnect: (command) =>
		command('try again now instead of waiting')
			.number('--wait <seconds>', 'how long to wait for the outcome, 0 to 3600', [0, 3600], 10)
			.examples({ 'idv-agent reconnect': 'after the network was repaired' })
			.runs(async () => (await import('./status.runner.ts')).reconnect),
	identity: (command) =>
		command('show the identity of this device and its sources')
			.examples({ 'idv-agent identity': 'also while the agent is not running' })
			.runs(async () => (await import('./identity.runner.ts')).showIdentity)
			.subcommands({
				accept: (command) =>
					command('confirm that this is still the same device, after a part was replaced')
						.option('--yes', 'do not ask for confirmation')
						.examples({
							'idv-agent identity accept': 'shows what has changed and asks',
							'idv-agent identity accept --yes': 'without a terminal',
						})
						.runs(async () => (await import('./identity.runner.ts')).acceptIdentity),
			}),
	config: (command) =>
		command('show or check the settings').subcommands({
			show: (command) =>
				command('show every setting, its value and its source')
					.option(...SET)
					.option('--explain', 'also show the purpose of each and the name of its variable')
					.examples({
						'idv-agent config show': 'secrets are masked',
						'idv-agent config show --explain': 'every setting with its meaning',
					})
					.runs(async () => (await import('./config.runner.ts')).showConfig),
			check: (command) =>
				command('check the settings; exit status 78 if they are invalid')
					.option(...SET)
					.examples({
						'idv-agent config check': 'the settings of this device',
						'idv-agent config check --config new.json': 'before it is put in place',
					})
					.runs(async () => (await import('./config.runner.ts')).checkConfig),
		}),
	update: (command) =>
		command('show updates of this program, which the package idv-agent-updates carries out').subcommands({
			show: (command) =>
				command('show the update under way and the versions that were taken back')
					.examples({
						'idv-agent update show': 'why a version was taken back',
						'idv-agent update show --json': 'with the last lines of its log',
					})
					.runs(async () => (await import('./update.runner.ts')).showUpdates),
			reach: (command) =>
				command("test whether this version could be online now, with a second channel beside the agent's")
					.examples({ 'sudo idv-agent update reach': 'as the judge of an update tests the old version' })
					.runs(async () => (await import('./update-reach.runner.ts')).reachService),
			forget: (command) =>
				command('allow apt to install a version that was taken back (requires root)')
					.argument('<version>', 'as idv-agent update show lists it')
					.examples({ 'sudo idv-agent update forget 0.3.0': 'after its cause was mended' })
					.runs(async () => (await import('./update.runner.ts')).forgetVersion),
		}),
	doctor: (command) =>
		command('diagnose problems; uses no pairing code and leaves an open channel alone')
			.option('--check <id>', 'run only this check and its prerequisites (repeatable)', collect)
			.option('--warnings-as-errors', 'warnings set the exit status as well')
			.option(...SET)
			.examples({
				'sudo idv-agent doctor': 'as the user and with the settings of the service',
				'idv-agent doctor --check tls': 'one check and its prerequisites',
				'idv-agent doctor --json | jq \'.checks[] | select(.status != "ok")\'': 'for programs',
			})
			.runs(async () => (await import('./doctor.runner.ts')).doctor),
	version: (command) =>
		command('show which program this is, and the formats that it reads')
			.examples({ 'idv-agent version --json': 'for an inventory' })
			.runs(async () => (await import('./show-version.runner.ts')).showVersion),
	'support-bundle': (command) =>
		command('write one file with status, checks, settings, log and versions, without secrets')
			.option('--out <file>', 'the .tar.gz file to write; default: in this directory, with the time in its name')
			.option(...SET)
			.examples({
				'sudo idv-agent support-bundle': "includes the journal; runs with the service's user and settings",
				'idv-agent support-bundle --out /tmp/kiosk-7.tar.gz': 'read it before you send it',
			})
			.runs(async () => (await import('./support-bundle.runner.ts')).supportBundle),
};

/** Built in by the bundler: as `true` it leaves out of the program of a device what stands behind it. */
declare const IDV_AGENT_TOOLS_APART: boolean | undefined;

async function runTool(shell: Shell): Promise<void> {
	if (typeof IDV_AGENT_TOOLS_APART === 'boolean' && IDV_AGENT_TOOLS_APART) becomeTools(shell);
	else await (await import('./tools.ts')).runToolCommand(shell.caller);
}

/** In the list of commands where they can be run; elsewhere their names only say in which package they are. */
function listTools(program: LazyCommand): LazyCommand {
	for (const [name, about] of Object.entries(TOOL_COMMANDS))
		program
			.command(name, { hidden: !hasTools() })
			.description(about)
			.helpOption(false)
			.allowUnknownOption()
			.allowExcessArguments()
			.runs(async () => runTool);
	return program;
}

/** One command line of `idv-agent`, until it ends or goes on. */
export function runAgentCommand(caller: Caller): Promise<void> {
	const shell = new Shell(caller, caller.argv.includes('--json'));
	const words = caller.argv.slice(2);
	return asksForTool(words) ? shell.run(() => runTool(shell)) : runProgram(listTools(buildProgram(shell, words[0])));
}
