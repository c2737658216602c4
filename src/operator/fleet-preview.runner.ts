/** `idv fleet preview`: what a plan would do to the devices of an inventory. Asks no service and moves nothing. */
import { counted, localTime, type Shell } from '../cli/output.runner.ts';
import { isOver, refusedByOld, unmatched } from '../fleet/brakes.ts';
import type { RolloutChange } from '../fleet/next-plan.ts';
import { type MoveGroup, type PlannedMove, type PlanPreview, previewPlan } from '../fleet/preview.ts';
import { compilePlan, fittingRules } from '../fleet/targeting.ts';
import { placed, readPlanFile } from './fleet-files.runner.ts';
import { readInventory } from './inventory.runner.ts';

export interface PreviewFlags {
	readonly inventory: string;
	readonly devices?: boolean | undefined;
}

export async function previewFleetPlan(shell: Shell, flags: PreviewFlags, file: string): Promise<void> {
	const { plan, payload } = await readPlanFile(shell, file);
	const inventory = await readInventory(flags.inventory, (said) => shell.warn(said));
	const compiled = compilePlan(plan);
	const effects = [...unmatched(plan, inventory), ...refusedByOld(plan, inventory)];
	const findings = placed(effects, new TextDecoder().decode(payload));
	for (const { place, message } of findings) shell.warn(`${file}: ${place}: ${message}`);
	const moves: PlannedMove[] = [];
	const preview = previewPlan(compiled, inventory, Date.now(), flags.devices ? (move) => moves.push(move) : undefined);
	const inSeveral = inventory.filter((device) => fittingRules(compiled, device).length > 1).length;
	const over = isOver(plan, Date.now());
	if (over) shell.warn(`${file}: ${OVER}`);
	const more = { ...(over && { isOver: true }), ...(flags.devices && { changes: moves }) };
	if (shell.isJson) return shell.json({ revision: plan.revision, ...preview, inSeveral, ...more });
	const { devices, stays, leftAlone, groups } = preview;
	const who = over ? 'without a plan would move' : 'would move';
	shell.line(`Revision ${plan.revision}: ${counted(preview.moves, 'device')} of ${devices} ${who}.\n`);
	shell.table(groupRows(groups));
	if (groups.length > 0) shell.line();
	shell.table([
		['Stay as they are', String(stays)],
		...(leftAlone > 0 ? [['Left alone by the plan', String(leftAlone)]] : []),
		...(inSeveral > 0 ? [['Match several rules (the first applies)', String(inSeveral)]] : []),
	]);
	nameRefusing(shell, preview);
	if (!flags.devices) return;
	shell.line();
	for (const { deviceId, what, from, to, at } of moves)
		shell.line(`${deviceId}  ${named(what, from) ?? '?'} → ${named(what, to) ?? OWN}  ${at ?? 'when taken'}`);
}

export const OVER =
	'validUntil is over: devices that follow a plan stay as they are; only one without a plan takes this.';

export function showChange(shell: Shell, preview: PlanPreview | null): void {
	if (!preview) return;
	shell.line(`\n${counted(preview.moves, 'device')} of ${preview.devices} would move.`);
	shell.table(groupRows(preview.groups));
	nameRefusing(shell, preview);
}

const nameRefusing = (shell: Shell, { refusing = [] }: PlanPreview) =>
	nameThose(shell, refusing, "refuse the plan's format, and stay as they are");

/** Devices that are named. */
const NAMED = 10;

/** Nothing where there are none. */
export function nameThose(shell: Shell, ids: readonly string[], what: string): void {
	const names = `${ids.slice(0, NAMED).join(', ')}${ids.length > NAMED ? ', …' : ''}`;
	if (ids.length > 0) shell.line(`\n${counted(ids.length, 'device')} ${what}: ${names}`);
}

const OWN = 'its own heartbeat';

const named = (what: PlannedMove['what'], name: string | null) => {
	if (name === null || what === 'workflow') return name;
	return what === 'version' ? `version ${name}` : `heartbeat ${name} s`;
};

/** Includes the header row. */
function groupRows(groups: readonly MoveGroup[]): string[][] {
	if (groups.length === 0) return [];
	const rows = groups.map(({ devices, what, from, to, rule, percent, first, last }) => [
		String(devices),
		named(what, from) ?? '(not known)',
		'→',
		named(what, to) ?? OWN,
		rule === null ? 'defaults' : `rule ${rule}`,
		percent === null ? '' : `ring of ${percent} %`,
		first === null || last === null ? 'when taken' : `${localTime(first)} to ${localTime(last)}`,
	]);
	return [['Devices', 'From', '', 'To', 'By', 'Ring', 'When'], ...rows];
}

/** A change of a step. */
export function changeRow({ rule, to, version, versionAfter, before, after }: RolloutChange): string[] {
	const name = rule === null ? 'defaults' : `rule ${rule}`;
	// Settings, the devices of a rule, or all of it: the way back says no more of it than the plan.
	if (to === null && version === null && versionAfter !== undefined)
		return [name, 'its newest change', '', '→', 'as it was signed before'];
	const words = [to, version && `version ${version}`].filter(Boolean).join(' and ') || 'other settings';
	const whole = to === null && version !== null ? 'no ring' : 'all back';
	const back = versionAfter && version ? `version ${versionAfter} again` : whole;
	// No device installs an older version than it has had.
	const stays = version === null ? '' : `; ${version} stays where it is installed`;
	const share = versionAfter !== undefined ? `${back}${stays}` : `${after} %`;
	return [name, `to ${words}`, `${before} %`, '→', before === after ? `${share}, no ring more` : share];
}
