/** The limits that keep a pipeline from its next step: how many devices have failed, and how few have reported. Pure. */
import { type Failure, failure } from '../base/errors.ts';
import { counted } from '../cli/output.runner.ts';
import type { FleetProgress } from '../fleet/progress.ts';

export interface Limits {
	/** Shares from 0 to 1. */
	readonly failAbove?: number | undefined;
	readonly minReported?: number | undefined;
	/** Devices that may be silent. */
	readonly allowMissing?: number | undefined;
}

/** What keeps a pipeline from the next step; `null` when nothing does. */
export function judgement({ steps, devices }: FleetProgress, flags: Limits): Failure | null {
	if (flags.failAbove === undefined && flags.minReported === undefined) return null;
	if (devices === 0)
		return failure('devices-offline', 'No device has reported, and no inventory names one.', {
			remedy: 'Name the devices with --inventory FILE, and look at the source of the reports.',
		});
	const others = steps.filter(({ isRing }) => !isRing);
	const all = (name: 'devices' | 'reported' | 'missing' | 'later') => others.reduce((sum, step) => sum + step[name], 0);
	// A rule of one device that is away holds no rollout: what has no ring is heard of as a whole.
	const whole = { devices: all('devices'), reported: all('reported'), missing: all('missing'), later: all('later') };
	// Whatever those will say that have not reported: then the worst step is named, as all devices of it count.
	const isDecided = steps.some((step) =>
		tooManyFailures({ ...step, reported: step.devices, failed: step.failed - step.silent, silent: 0 }, flags),
	);
	const failures = [
		...(isDecided ? steps.map((step) => tooManyFailures(step, flags)) : []),
		others.length > 0 ? tooFewReports(whole, flags) : null,
		...steps.map((step) => (step.isRing ? tooFewReports(step, flags) : null) ?? tooManyFailures(step, flags)),
	];
	return failures.find((one) => one !== null) ?? null;
}

type JudgedStep = FleetProgress['steps'][number];

function tooFewReports(
	step: Pick<JudgedStep, 'devices' | 'reported' | 'missing' | 'later'>,
	{ minReported, allowMissing = 0 }: Limits,
): Failure | null {
	const { devices, reported, later } = step;
	const allowed = Math.min(step.missing, allowMissing);
	if (reported > 0 && reported / (devices - allowed) >= (minReported ?? 0)) return null;
	const some = `${reported} of ${counted(devices, 'device')} whose change is due have reported`;
	const missing = reported > 0 ? some : `No device whose change is due has reported (0 of ${devices})`;
	const limit =
		minReported === undefined
			? ''
			: `; ${percent(minReported)} must have${allowed > 0 ? `, not counting ${allowed} that may be silent` : ''}`;
	const onTheWay = later > 0 ? `; ${later} of these still ${later === 1 ? 'has' : 'have'} time for it` : '';
	const remedy =
		later === devices - reported
			? 'Wait until their time is over; do not go on meanwhile.'
			: 'Wait until more devices have reported, or look at the ones that are offline; do not go on meanwhile.';
	return failure('devices-offline', `${missing}${onTheWay}${limit}.`, { remedy });
}

/** A silent device has failed, unless a person says how many may be silent. */
function tooManyFailures(step: JudgedStep, { failAbove, allowMissing = 0 }: Limits): Failure | null {
	const silent = Math.max(0, step.silent - allowMissing);
	const failed = step.failed - step.silent + silent;
	const decided = step.reported + silent;
	if (failAbove === undefined || decided === 0 || failed / decided <= failAbove) return null;
	const unheard = silent === 0 ? '' : ` (${silent} of them not heard since)`;
	const change = step.step === null ? '' : ` (${step.step})`;
	const message = `${failed} of ${counted(decided, 'device')} whose change is due have failed${unheard}: ${percent(failed / decided)}, and ${percent(failAbove)} may${change}.`;
	return failure('plan-not-followed', message, {
		remedy:
			'Do not sign the next ring: look at the reasons, then idv fleet pause or idv fleet rollback. In the place of a plan whose validUntil is over, sign one without the rollout.',
	});
}

function percent(share: number): string {
	return `${Number((share * 100).toFixed(2))} %`;
}
