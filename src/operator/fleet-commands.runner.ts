/** The commands and flags of `idv fleet`. Each command is implemented in a file of its own, loaded when it is called. */
import { collect, type LazyCommand, type Subcommands, share, shares, wholeNumber } from '../cli/command-line.runner.ts';
import { readMoment } from '../cli/times.runner.ts';

/** What stops a slip before a plan is signed. */
const brakes = (command: LazyCommand) =>
	command
		.option('--inventory <file>', 'list of all devices: labels and ids that no device has are errors')
		.option(
			'--previous <file>',
			'the plan in force: an older revision, or other content under the same revision, is an error',
		)
		.option('--workflows <names>', 'all workflows: a file, or names with commas between them')
		.option('--max-moves <share>', 'refuse a plan that moves more of the inventory, such as 10%', share)
		.number('--allow-moves <count>', 'allow this many devices to move', [0, 100_000_000])
		.option('--allow-workflow <id>', 'allow a workflow that no device has had yet (repeatable)', collect)
		.option('--allow-version <version>', 'allow a version that no device has had yet (repeatable)', collect)
		.option('--allow-empty-ring', 'allow a ring that holds no device of the inventory');

const unchecked = (command: LazyCommand) =>
	command.option('--unchecked', 'sign without --inventory, --previous, --workflows or --max-moves');

/** Where the next plan goes. */
const step = (command: LazyCommand) =>
	command
		.option('--rule <name>', 'only this rule; default: every rollout, or the changes of the newest step')
		.option('--key <file>', 'sign it with the private key of idv fleet keygen (repeatable)', collect)
		.option('--fewer-keys', 'sign the next plan with fewer keys than the plan in force')
		.option('--out <file>', 'write it here; default: only show it');

export const FLEET_COMMANDS: Subcommands = {
	keygen: (command) =>
		command('make a key for signing plans')
			.requiredOption('--out <file>', 'write the private key to this new file (mode 0600)')
			.examples({ 'idv fleet keygen --out fleet.key': 'shows the public key, for fleet.publicKeys' })
			.runs(async () => (await import('./fleet-plan.runner.ts')).makeFleetKey),
	check: (command) =>
		command('check a plan and report mistakes with line and path')
			.argument('<plan>', 'the plan, bare or signed')
			.option('--public-key <key>', 'a key that must have signed it (repeatable)', collect)
			.with(brakes)
			.examples({
				'idv fleet check plan.json': '',
				'idv fleet check plan.json --inventory devices.csv --previous published.json': 'names slips',
			})
			.runs(async () => (await import('./fleet-plan.runner.ts')).checkFleetPlan),
	preview: (command) =>
		command('show which devices of an inventory would move')
			.argument('<plan>', 'the plan, bare or signed')
			.requiredOption(
				'--inventory <file>',
				'CSV with a header row, or JSON lines: deviceId, serial, labels, workflowId, …',
			)
			.option('--devices', 'name every device that moves')
			.examples({ 'idv fleet preview plan.json --inventory devices.csv': '' })
			.runs(async () => (await import('./fleet-preview.runner.ts')).previewFleetPlan),
	diff: (command) =>
		command('show what changes between two plans')
			.argument('<old>', 'the current plan')
			.argument('<new>', 'the new plan')
			.option('--inventory <file>', 'also count the devices that would move')
			.examples({ 'idv fleet diff published.json plan.json': '' })
			.runs(async () => (await import('./fleet-plan.runner.ts')).diffFleetPlans),
	sign: (command) =>
		command('sign a plan, or add a signature to a signed one')
			.argument('<plan>', 'the plan')
			.requiredOption('--key <file>', 'the private key of idv fleet keygen')
			.option('--out <place>', 'publish it here, a file or an address that takes PUT; default: standard output')
			.with(brakes)
			.option('--allow-repeat', 'sign the plan in force again')
			.with(unchecked)
			.examples({
				'idv fleet sign plan.json --key fleet.key --out published.json':
					'by the checks in fleet-checks.json beside the plan',
				'idv fleet sign plan.json --key fleet.key --inventory devices.csv --max-moves 10% --workflows a,b --previous none':
					'the first plan of a fleet',
			})
			.runs(async () => (await import('./fleet-plan.runner.ts')).signFleetPlan),
	'next-ring': (command) =>
		command('make the plan that begins the next ring')
			.argument('<plan>', 'the plan in force, bare or signed')
			.option('--rings <shares>', 'shares in percent after those that the plan lists (default: 1,10,50,100)', shares)
			.option('--start-at <time>', 'when the ring begins; default: as soon as devices take the plan', readMoment)
			.with(brakes)
			.with(unchecked)
			.with(step)
			.examples({
				'idv fleet next-ring published.json --inventory devices.csv': 'shows what would happen',
				'idv fleet next-ring published.json --key fleet.key --out published.json': 'makes and signs it',
			})
			.runs(async () => (await import('./fleet-step.runner.ts')).nextRing),
	pause: (command) =>
		command('make the plan in which no further ring begins')
			.argument('<plan>', 'the plan in force, bare or signed')
			.option('--inventory <file>', 'also count the devices that would move')
			.with(step)
			.examples({ 'idv fleet pause published.json --key fleet.key --out published.json': '' })
			.runs(async () => (await import('./fleet-step.runner.ts')).pauseRollout),
	rollback: (command) =>
		command('make the plan that undoes the newest step')
			.argument('<plan>', 'the plan in force, bare or signed')
			.option('--inventory <file>', 'also count the devices that would move')
			.option('--without-record', 'go back even if the record of the rollout is damaged')
			.with(step)
			.examples({ 'idv fleet rollback published.json --rule lobby --key fleet.key --out published.json': '' })
			.runs(async () => (await import('./fleet-step.runner.ts')).rollBack),
	status: (command) =>
		command('show which devices do what the plan says, which do not, and why')
			.option('--plan <file>', 'the plan, bare or signed; default: compare only revisions')
			.option('--inventory <file>', 'list of all devices, for labels and to find those never seen')
			.option(
				'--from <path>',
				'lines of "idv-agent status --json": a file, or a directory of files (repeatable)',
				collect,
			)
			.option('--prometheus <url>', "a metrics store that speaks Prometheus' query API and has the agents' metrics")
			.option('--service', "also the embedded service's GET /api/device; alone, it is the default")
			.option('--fail-above <share>', 'fail if more of the devices whose change is due have failed, such as 2%', share)
			.option('--min-reported <share>', 'fail if fewer of the devices whose change is due have reported', share)
			.number(
				'--allow-missing <count>',
				'allow this many devices to be silent: both limits ignore them',
				[0, 100_000_000],
			)
			.option('--record', "write what was seen into the rollout's record beside the plan")
			.option(
				'--published <time>',
				'time from which changes without startAt are due, within their spread (default: from the record)',
				readMoment,
			)
			.number('--grace-seconds <seconds>', 'a device is overdue this long after its time', [0, 604_800], 0)
			.number('--stale-seconds <seconds>', 'a device that was silent for longer is offline', [1, 31_536_000], 3600)
			.option('--watch [seconds]', 'refresh every 30 s, or every SECONDS', wholeNumber('--watch', 1, 86_400))
			.option('--csv', 'a line for each device')
			.number('--revision <number>', 'without --plan: the expected revision', [1, Number.MAX_SAFE_INTEGER])
			.option('--devices', 'name every device')
			.examples({
				'idv fleet status --plan plan.json --inventory devices.csv --from gathered/': 'collected by any means',
				'idv fleet status --plan plan.json --prometheus http://127.0.0.1:8428 --watch': 'from a metrics store',
				'idv fleet status --plan plan.json --fail-above 2% --min-reported 95%': 'exit status for a pipeline',
			})
			.runs(async () => (await import('./fleet-status.runner.ts')).showFleetStatus),
};
