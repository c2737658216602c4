/** The program `idv-agent` of the npm package: the trial service. The agent itself is in the Debian package, for devices. */
import { createProgram, EXIT_STATUSES, runProgram } from './command-line.runner.ts';
import { Shell } from './output.runner.ts';
import { serviceCommand } from './service-command.runner.ts';

const NAME = 'idv-agent';

const program = createProgram(new Shell(process), NAME, 'The trial service of idv-agent, for tests and development.')
	.option('--json', 'answer in JSON (IDV_AGENT_JSON=1)')
	.addHelpText(
		'after',
		`${EXIT_STATUSES}\n\nThe agent for devices is a Debian package: docs/devices.md in its repository.\n`,
	);
void runProgram(program.subcommands({ service: serviceCommand(NAME) }));
