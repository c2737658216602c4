/**
 * The commands for operators and developers: `service`, `simulate` and `demo`. A checkout has them under `idv-agent`; for
 * devices they are a package of their own, whose program is `idv-tools`.
 */
import { basename } from 'node:path';
import { createAgentProgram, EXIT_STATUSES, runProgram, SET, type Subcommands, wholeNumber } from './command-line.ts';
import { type Caller, Shell } from './output.ts';
import { TOOL_COMMANDS } from './tool-commands.ts';

const name = basename(process.argv0) === 'idv-tools' ? 'idv-tools' : 'idv-agent';

const COMMANDS: Subcommands = {
	service: (command) =>
		command(TOOL_COMMANDS.service)
			.number('--port <number>', 'port to listen on, 0 for any free one', [0, 65_535], 8490)
			.option('--host <address>', 'address to listen on', '127.0.0.1')
			.option('--allow-non-loopback', 'accept requests from other machines')
			.option('--workflows <ids>', 'the workflows that exist, comma-separated; default: any workflow', (ids: string) =>
				ids.split(',').map((id) => id.trim()),
			)
			.option('--credentials <file>', 'JSON file with basic (user:password), bearer and apiKey; default: generated')
			.number('--connection-ttl <seconds>', 'lifetime of a Connection', [1, 315_360_000])
			.number('--short-token-ttl <seconds>', 'lifetime of a pairing code', [1, 86_400])
			.option('--self-registration', 'devices may register without a credential')
			.option('--no-short-token-keys', 'a pairing code may not create an API key')
			.option('--public-url <url>', 'base URL in pairing codes and links, such as that of a proxy in front')
			.option(
				'--signing-key-file <file>',
				'key that signs Connections, made if missing: they stay valid after a restart',
			)
			.option('--quiet', 'do not print a line for each event')
			.option('--transcript <file>', 'add what is said on the wire to this file, without secrets')
			.option('--replay <file>', 'answer as this transcript says, instead of the published interface')
			.examples({
				[`${name} service --workflows checkin,checkout`]: 'prints its credentials and what happens',
				[`${name} service --port 0 --json`]: 'for programs: one JSON document a line',
				[`${name} service --replay wire.jsonl`]: 'a service that was recorded, by this command or by idv probe',
			})
			.runs(async () => (await import('./service.ts')).runService)
			.subcommands({
				notify: (command) =>
					command('send the connected devices a message; credential from IDV_AUTHORIZATION')
						.argument('<json>', 'the message')
						.requiredOption('--url <url>', 'address of the embedded service')
						.option('--device <id>', 'only this device')
						.option('--workflow <id>', 'only devices with this workflow')
						.examples({
							"export IDV_AUTHORIZATION='Bearer …'": 'as the service printed it',
							[`${name} service notify '{"type":"hello"}' --url http://127.0.0.1:8490`]: '',
						})
						.runs(async () => (await import('./service.ts')).notifyDevices),
			}),
	simulate: (command) =>
		command(TOOL_COMMANDS.simulate)
			.requiredOption('--devices <count>', 'how many, 1 to 20000', wholeNumber('--devices', 1, 20_000))
			.requiredOption('--service <url>', 'base URL of the service')
			.option('--i-own-this-service', 'your consent, required for a service that is not on this machine')
			.option('--api-key-file <file>', 'the key with which all of them register')
			.option('--self-registration', 'register without a credential, where the service allows it')
			.option('--workflow <id>', 'the workflow with which they start', 'simulated')
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
			.runs(async () => (await import('./simulate.ts')).simulate),
	demo: (command) =>
		command(TOOL_COMMANDS.demo)
			.option('--once', 'end after the story; the exit status says whether every step succeeded')
			.examples({ [`${name} demo`]: 'on a terminal it stays up until q' })
			.runs(async () => (await import('./demo.ts')).demo),
};

/** One command line of `idv-tools`, or of `idv-agent` in a checkout. */
export function runToolCommand(caller: Caller): Promise<void> {
	const program = createAgentProgram(new Shell(caller), name).addHelpText('after', EXIT_STATUSES);
	return runProgram(program.subcommands(COMMANDS));
}
