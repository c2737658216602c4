/**
 * Carries out the order of a fleet plan, as root: reads the plan's own bytes again, verifies them with root's settings, asks apt
 * for exactly that version. The agent only says that there is something to do.
 */
import { AgentError, asError, failure } from '../base/errors.ts';
import { readBytes } from '../base/files.edge.ts';
import type { PlannedDevice } from '../fleet/targeting.ts';
import { MAX_PLAN_BYTES } from '../fleet/terms.ts';
import type { readPlan } from '../fleet/verify-plan.runner.ts';
import type { Settings } from '../settings/table.ts';
import type { UpdateKeep } from './keep.edge.ts';
import { mayUpdate, orderFor } from './order.ts';
import type * as system from './system.edge.ts';

/** apt of another may take long; the next order comes anyway. */
const LOCK_SECONDS = 3600;

export interface ApplyParts {
	readonly keep: UpdateKeep;
	readonly system: Pick<typeof system, 'installVersion' | 'isOlder' | 'readInstalled'>;
	readonly readPlan: typeof readPlan;
	/** Root's. */
	readonly settings: Pick<Settings, 'fleet' | 'update'>;
	readonly device: PlannedDevice;
	/** The file with the plan, as the agent has fetched it. */
	readonly planFile: string;
	readonly now: Date;
}

/**
 * @returns the version that was installed; `null` when there was nothing to do.
 * @throws AgentError `plan-untrusted`, `plan-invalid`, `plan-for-other-fleet`, `update-refused`, `update-failed`.
 */
export async function applyOrder(parts: ApplyParts): Promise<string | null> {
	const { keep, system, settings, device, now } = parts;
	const { fleet, update } = settings;
	if (!update.enabled) return null;
	// Without a key any web server could choose what runs here.
	if (fleet.publicKeys.length === 0)
		throw new AgentError('update-refused', 'A plan may only update a device whose settings have fleet.publicKeys.');
	const reading = parts.readPlan(
		await readBytes(parts.planFile, MAX_PLAN_BYTES, { refuseLink: true }),
		'The fleet plan',
		fleet.publicKeys,
	);
	if (!reading.ok) throw asError(reading.problems[0] ?? failure('plan-invalid', 'The fleet plan cannot be read.'));
	const { plan } = reading.read;
	if (fleet.name !== null && plan.fleet !== fleet.name)
		throw new AgentError('plan-for-other-fleet', `The fleet plan is not for fleet ${fleet.name}.`);
	const installed = await system.readInstalled();
	if (!installed) throw new AgentError('update-refused', 'This agent was not installed as a package.');
	const outcomes = await keep.outcomes();
	const order = orderFor(plan, device, now.getTime());
	const edition = { epoch: plan.epoch ?? 0, revision: plan.revision };
	const floors = [installed.version, ...(outcomes.kept === null ? [] : [outcomes.kept])];
	const older = order === null ? [] : await Promise.all(floors.map((floor) => system.isOlder(order.version, floor)));
	const version = mayUpdate(order, {
		installed: installed.version,
		isEnabled: update.enabled,
		window: update.window,
		outcomes,
		edition,
		validUntil: plan.validUntil,
		now,
		isOlder: older.includes(true),
	});
	if (version === null) return null;
	await keep.open();
	await keep.saveOutcomes({ ...outcomes, plan: edition });
	const { status, text } = await system.installVersion(version, LOCK_SECONDS);
	const after = await system.readInstalled();
	if (status === 0 && after?.version === version) return version;
	const words = text.split('\n').filter((line) => /^(E|W|dpkg|Err):?/.test(line));
	throw new AgentError(
		'update-failed',
		`apt did not install version ${version}: ${words.slice(-3).join(' ') || `status ${status}`}`,
	);
}
