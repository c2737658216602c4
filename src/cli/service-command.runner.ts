/** The command `service` and its options: in `idv-agent` of a checkout, in `idv-tools`, and in what npm installs. */
import type { Subcommands } from './command-line.runner.ts';
import { TOOL_COMMANDS } from './tool-commands.runner.ts';

/** @param name of the program, for the examples. */
export const serviceCommand =
	(name: string): Subcommands[string] =>
	(command) =>
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
			.option('--transcript <file>', 'append the exchange on the wire to this file, without secrets')
			.option('--replay <file>', 'answer as this transcript says, instead of the published interface')
			.examples({
				[`${name} service --workflows checkin,checkout`]: 'prints its credentials and what happens',
				[`${name} service --port 0 --json`]: 'for programs: one JSON document a line',
				[`${name} service --replay wire.jsonl`]: 'a service that was recorded, by this command or by idv probe',
			})
			.runs(async () => (await import('./service.runner.ts')).runService)
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
						.runs(async () => (await import('./service.runner.ts')).notifyDevices),
			});
