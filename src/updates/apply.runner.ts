/** Carries out the order of a fleet plan, as root: verifies the plan's own bytes with root's settings, asks apt for exactly that version. */
import type { Clock } from '../base/clock.edge.ts';
import { AgentError, asError, type Failure, failure, toFailure } from '../base/errors.ts';
import { readBytes, unreadable } from '../base/files.edge.ts';
import type { PlannedDevice } from '../fleet/targeting.ts';
import { MAX_PLAN_BYTES } from '../fleet/terms.ts';
import type { readPlan } from '../fleet/verify-plan.runner.ts';
import type { Settings } from '../settings/table.ts';
import type { UpdateKeep } from './keep.edge.ts';
import { mayUpdate, orderFor } from './order.ts';
import { isGoingBack } from './record.ts';
import type * as system from './system.edge.ts';

/** Another's apt may take long, and a verification; the agent hands the order over again. */
const LONGEST_WAIT_MS = 3_600_000;
const LOOK_MS = 5_000;
/** Of the plan while it is carried out: its file is the agent's, who could keep root at work without end. */
const MAX_CHANGES = 20;
/** For an apt that begins between the last look and ours. */
const LOCK_SECONDS = 300;

export interface ApplyParts {
	readonly keep: UpdateKeep;
	readonly system: Pick<typeof system, 'installVersion' | 'isPackagingBusy' | 'isReadOnly' | 'readInstalled'>;
	readonly clock: Pick<Clock, 'monotonicMs' | 'schedule' | 'wallMs'>;
	readonly readPlan: typeof readPlan;
	/** Whether an application holds a lease now. It rejects where the agent does not answer. */
	readonly isHeld: () => Promise<boolean>;
	readonly say: (line: string) => void;
	/** Why these settings may not be followed: others than root could change them. */
	readonly findExposed: () => Promise<Failure | null>;
	/** Root's. */
	readonly settings: Pick<Settings, 'fleet' | 'update' | 'workflow'>;
	readonly device: PlannedDevice;
	/** The file with the plan, as the agent has fetched it. */
	readonly planFile: string;
}

/** @returns the version that was installed; `null` when there was nothing to do.
 * @throws AgentError `plan-untrusted`, `plan-invalid`, `plan-for-other-fleet`, `update-refused`, `update-failed`. */
export async function applyOrder(parts: ApplyParts): Promise<string | null> {
	const { keep, settings, clock } = parts;
	if (!settings.update.enabled) return null;
	const read = () =>
		readBytes(parts.planFile, MAX_PLAN_BYTES, { refuseLink: true }).catch((cause) => {
			throw unreadable('plan-invalid', 'The fleet plan', parts.planFile, cause);
		});
	let ordered: string | null = null;
	const onOrder = (version: string | null) => {
		ordered = version;
	};
	try {
		const exposed = await parts.findExposed();
		if (exposed) throw asError(exposed);
		for (let did: string | null = null, changes = 0; ; changes += 1) {
			if (!(await untilFree(parts))) return did;
			// What could not be judged is tried again when the version before was online.
			if (isGoingBack(await keep.trial())) return did;
			const envelope = await read();
			did = (await applyEnvelope(envelope, parts, onOrder)) ?? did;
			if (changes < MAX_CHANGES && !envelope.equals(await read())) continue;
			const outcomes = await keep.outcomes();
			if (outcomes.failed !== null) await keep.saveOutcomes({ ...outcomes, failed: null });
			return did;
		}
	} catch (error) {
		const { code, message } = toFailure(error);
		const at = new Date(clock.wallMs()).toISOString();
		await keep.open();
		await keep.saveOutcomes({ ...(await keep.outcomes()), failed: { code, message, at, version: ordered } });
		throw error;
	}
}

/** @returns `false` when a lease still holds; none does for longer than it would hold a move. */
async function untilFree({ clock, system, isHeld, say, settings }: ApplyParts): Promise<boolean> {
	const fromMs = clock.monotonicMs();
	const deferMs = Math.min(settings.workflow.maxDeferSeconds * 1000, LONGEST_WAIT_MS / 2);
	// An agent that does not answer may need the update.
	const isFree = async () => clock.monotonicMs() - fromMs >= deferMs || !(await isHeld().catch(() => false));
	for (let isFirst = true; clock.monotonicMs() - fromMs < LONGEST_WAIT_MS; isFirst = false) {
		const isBusy = await system.isPackagingBusy();
		if (!isBusy && (await isFree())) return true;
		if (isFirst) say(isBusy ? 'Waits for another apt or dpkg.' : 'Waits for the lease of an application.');
		await new Promise<void>((resolve) => void clock.schedule(LOOK_MS, resolve));
	}
	return isFree();
}

async function applyEnvelope(
	envelope: Uint8Array,
	parts: ApplyParts,
	onOrder: (version: string | null) => void,
): Promise<string | null> {
	const { keep, system, settings, device, clock } = parts;
	const { fleet, update } = settings;
	const now = new Date(clock.wallMs());
	// Without a key any web server could choose what runs here.
	if (fleet.publicKeys.length === 0)
		throw new AgentError('update-refused', 'A plan may only update a device whose settings have fleet.publicKeys.');
	const reading = parts.readPlan(envelope, 'The fleet plan', fleet.publicKeys);
	if (!reading.ok) throw asError(reading.problems[0] ?? failure('plan-invalid', 'The fleet plan cannot be read.'));
	const { plan } = reading.read;
	if (fleet.name !== null && plan.fleet !== fleet.name)
		throw new AgentError('plan-for-other-fleet', `The fleet plan is not for fleet ${fleet.name}.`);
	const installed = await system.readInstalled();
	if (!installed) throw new AgentError('update-refused', 'This agent was not installed as a package.');
	const outcomes = await keep.outcomes();
	const order = orderFor(plan, device, now.getTime());
	onOrder(order?.version ?? null);
	const edition = { epoch: plan.epoch ?? 0, revision: plan.revision };
	const version = mayUpdate(order, {
		installed: installed.version,
		isEnabled: update.enabled,
		window: update.window,
		outcomes,
		edition,
		validUntil: plan.validUntil,
		now,
	});
	if (version === null) return null;
	if (await system.isReadOnly('/usr'))
		throw new AgentError(
			'update-refused',
			'The root file system of this device is read-only: nothing can be installed.',
		);
	await keep.open();
	await keep.saveOutcomes({ ...outcomes, plan: edition });
	const { status, text } = await system.installVersion(version, LOCK_SECONDS, { source: update.source });
	const after = await system.readInstalled();
	if (status === 0 && after?.version === version) return version;
	const words = text.split('\n').filter((line) => /^(E|W|dpkg|Err):?/.test(line));
	throw new AgentError(
		'update-failed',
		`apt did not install version ${version}: ${words.slice(-3).join(' ') || `status ${status}`}`,
	);
}
