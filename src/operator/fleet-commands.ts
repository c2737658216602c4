/** The commands and flags of `idv fleet`. Each command is implemented in a file of its own, loaded when it is called. */
import type { Command } from 'commander';
import { collect, onCommand, wholeNumber, withExamples } from '../cli/command-line.ts';
import type { CheckFlags, DiffFlags, KeyFlags, SignFlags } from './fleet-plan.ts';
import type { PreviewFlags } from './fleet-preview.ts';
import type { StatusFlags } from './fleet-status.ts';

export function addFleet(program: Command): void {
	const fleet = program.command('fleet').description('one plan for many devices');
	const keygen = fleet
		.command('keygen')
		.description('make a key to sign plans with')
		.requiredOption('--out <file>', 'write the private key to this new file (mode 0600)');
	withExamples(keygen, ['idv fleet keygen --out fleet.key', 'shows the public key, for fleet.publicKeys']);
	onCommand<KeyFlags>(keygen, async (flags) => (await import('./fleet-plan.ts')).makeFleetKey(flags));

	const check = fleet
		.command('check')
		.description('check a plan and report mistakes with line and path')
		.argument('<plan>', 'the plan, bare or signed')
		.option('--public-key <key>', 'a key that must have signed it (repeatable)', collect);
	withExamples(check, ['idv fleet check plan.json', '']);
	onCommand<CheckFlags>(check, async (flags, file) =>
		(await import('./fleet-plan.ts')).checkFleetPlan(flags, file ?? ''),
	);

	const preview = fleet
		.command('preview')
		.description('show which devices of an inventory would move')
		.argument('<plan>', 'the plan, bare or signed')
		.requiredOption(
			'--inventory <file>',
			'CSV with a header row, or JSON lines: deviceId, serial, labels, workflowId, …',
		)
		.option('--devices', 'name every device that moves');
	withExamples(preview, ['idv fleet preview plan.json --inventory devices.csv', '']);
	onCommand<PreviewFlags>(preview, async (flags, file) =>
		(await import('./fleet-preview.ts')).previewFleetPlan(flags, file ?? ''),
	);

	const diff = fleet
		.command('diff')
		.description('show what changes between two plans')
		.argument('<old>', 'the current plan')
		.argument('<new>', 'the new plan')
		.option('--inventory <file>', 'also count the devices that would move');
	withExamples(diff, ['idv fleet diff published.json plan.json', '']);
	onCommand<DiffFlags>(diff, async (flags, before, after) =>
		(await import('./fleet-plan.ts')).diffFleetPlans(flags, before ?? '', after ?? ''),
	);

	const sign = fleet
		.command('sign')
		.description('sign a plan, or add a signature to a signed one')
		.argument('<plan>', 'the plan')
		.requiredOption('--key <file>', 'the private key of idv fleet keygen')
		.option('--out <file>', 'write the signed plan here; default: standard output');
	withExamples(sign, ['idv fleet sign plan.json --key fleet.key --out published.json', 'one file, for any web server']);
	onCommand<SignFlags>(sign, async (flags, file) => (await import('./fleet-plan.ts')).signFleetPlan(flags, file ?? ''));

	const status = fleet
		.command('status')
		.description('count which devices have moved, by what they report')
		.option('--from <file>', 'lines of "idv-agent status --json" instead of asking the service')
		.option('--plan <file>', 'the plan whose revision is expected; default: the newest that a device reports')
		.option('--revision <number>', 'the expected revision', wholeNumber('--revision', 1, Number.MAX_SAFE_INTEGER))
		.option('--devices', 'name every device');
	withExamples(
		status,
		['idv fleet status --plan plan.json', "from the service's GET /api/device"],
		['idv fleet status --from gathered.jsonl', 'collected by any means'],
	);
	onCommand<StatusFlags>(status, async (flags) => (await import('./fleet-status.ts')).showFleetStatus(flags));
}
