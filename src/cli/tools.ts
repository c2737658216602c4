/**
 * The commands for operators and developers: `service`, `simulate` and `demo`. A checkout has them under `idv-agent`; for
 * devices they are a package of their own, whose program is `idv-tools`.
 */
import { basename } from 'node:path';
import {
	createAgentProgram,
	EXIT_STATUSES,
	runProgram,
	SET,
	type Subcommands,
	wholeNumber,
} from './command-line.runner.ts';
import { type Caller, Shell } from './output.runner.ts';
import { serviceCommand } from './service-command.runner.ts';
import { TOOL_COMMANDS } from './tool-commands.runner.ts';

const name = basename(process.argv0) === 'idv-tools' ? 'idv-tools' : 'idv-agent';

const COMMANDS: Subcommands = {
	service: serviceCommand(name),
	simulate: (command) =>
		command(TOOL_COMMANDS.simulate)
			.requiredOption('--devices <count>', 'number of devices, 1 to 20000', wholeNumber('--devices', 1, 20_000))
			.requiredOption('--service <url>', 'base URL of the service')
			.option('--i-own-this-service', 'your consent, required for a service that is not on this machine')
			.option('--api-key-file <file>', 'file with the API key with which all devices register')
			.option('--self-registration', 'register without a credential, where the service allows it')
			.option('--workflow <id>', 'the workflow with which the devices start', 'simulated')
			.number('--ramp <seconds>', 'start them evenly over this time; default: 50 a second', [0, 86_400])
			.number('--for <seconds>', 'end after this time; default: at Ctrl-C', [1, 604_800])
			.option(
				'--move <workflow@seconds>',
				'move all to another workflow, ring by ring, this many seconds after the start',
			)
			.option('--rings <percents>', 'the percentage of devices in each ring of the move', '1,10,50,100')
			.number('--ring-seconds <seconds>', 'duration of each ring', [0, 86_400], 30)
			.number('--cadence <seconds>', 'seconds between two heartbeats of one device, 1 to 86400', [1, 86_400], 30)
			.option('--prefix <name>', 'device ids are <name>-00001 and so on', 'sim')
			.option(...SET)
			.examples({
				[`${name} service --self-registration --quiet`]: 'a service to try it with',
				[`${name} simulate --devices 500 --service http://127.0.0.1:8490 --self-registration`]: 'until Ctrl-C',
				[`${name} simulate … --for 300 --move face-check@60 --json`]: 'a move after a minute; the report in JSON',
			})
			.addHelpText(
				'after',
				'\nEnds with a report; exit status 0 if every device is online then (with the workflow of --move), else 69.\n',
			)
			.runs(async () => (await import('./simulate.runner.ts')).simulate),
	demo: (command) =>
		command(TOOL_COMMANDS.demo)
			.option('--once', 'end after the story; the exit status says whether every step succeeded')
			.examples({ [`${name} demo`]: 'on a terminal it stays up until q' })
			.runs(async () => (await import('./demo.runner.ts')).demo),
};

/** One command line of `idv-tools`, or of `idv-agent` in a checkout. */
export function runToolCommand(caller: Caller): Promise<void> {
	const program = createAgentProgram(new Shell(caller), name).addHelpText('after', EXIT_STATUSES);
	return runProgram(program.subcommands(COMMANDS));
}
