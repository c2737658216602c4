/** The commands and flags of `idv fleet`. Each command is implemented in a file of its own, loaded when it is called. */
import { collect, type Subcommands } from '../cli/command-line.ts';

export const FLEET_COMMANDS: Subcommands = {
	keygen: (command) =>
		command('make a key to sign plans with')
			.requiredOption('--out <file>', 'write the private key to this new file (mode 0600)')
			.examples({ 'idv fleet keygen --out fleet.key': 'shows the public key, for fleet.publicKeys' })
			.runs(async () => (await import('./fleet-plan.ts')).makeFleetKey),
	check: (command) =>
		command('check a plan and report mistakes with line and path')
			.argument('<plan>', 'the plan, bare or signed')
			.option('--public-key <key>', 'a key that must have signed it (repeatable)', collect)
			.examples({ 'idv fleet check plan.json': '' })
			.runs(async () => (await import('./fleet-plan.ts')).checkFleetPlan),
	preview: (command) =>
		command('show which devices of an inventory would move')
			.argument('<plan>', 'the plan, bare or signed')
			.requiredOption(
				'--inventory <file>',
				'CSV with a header row, or JSON lines: deviceId, serial, labels, workflowId, …',
			)
			.option('--devices', 'name every device that moves')
			.examples({ 'idv fleet preview plan.json --inventory devices.csv': '' })
			.runs(async () => (await import('./fleet-preview.ts')).previewFleetPlan),
	diff: (command) =>
		command('show what changes between two plans')
			.argument('<old>', 'the current plan')
			.argument('<new>', 'the new plan')
			.option('--inventory <file>', 'also count the devices that would move')
			.examples({ 'idv fleet diff published.json plan.json': '' })
			.runs(async () => (await import('./fleet-plan.ts')).diffFleetPlans),
	sign: (command) =>
		command('sign a plan, or add a signature to a signed one')
			.argument('<plan>', 'the plan')
			.requiredOption('--key <file>', 'the private key of idv fleet keygen')
			.option('--out <file>', 'write the signed plan here; default: standard output')
			.examples({ 'idv fleet sign plan.json --key fleet.key --out published.json': 'one file, for any web server' })
			.runs(async () => (await import('./fleet-plan.ts')).signFleetPlan),
	status: (command) =>
		command('count which devices have moved, by what they report')
			.option('--from <file>', 'lines of "idv-agent status --json" instead of asking the service')
			.option('--plan <file>', 'the plan whose revision is expected; default: the newest that a device reports')
			.number('--revision <number>', 'the expected revision', [1, Number.MAX_SAFE_INTEGER])
			.option('--devices', 'name every device')
			.examples({
				'idv fleet status --plan plan.json': "from the service's GET /api/device",
				'idv fleet status --from gathered.jsonl': 'collected by any means',
			})
			.runs(async () => (await import('./fleet-status.ts')).showFleetStatus),
};
