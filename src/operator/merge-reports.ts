/** Two reports under one id as one, and what they have that no one device can have. Pure. */
import { EARLIEST_CLOCK_MS } from '../base/durations.ts';
import type { DeviceReport } from '../fleet/progress.ts';

/** The newer one applies, the later one where that is not known; what it leaves open is the other's word. */
export function newer(known: DeviceReport, added: DeviceReport): DeviceReport {
	const isOlder = (momentOf(added) ?? Number.POSITIVE_INFINITY) < (momentOf(known) ?? Number.NEGATIVE_INFINITY);
	const [first, second] = isOlder ? [known, added] : [added, known];
	const { refusal, hindrance, problem, next } = first;
	const isSameRefusal = first.planRefused !== null && first.planRefused === second.planRefused;
	return {
		...first,
		serial: first.serial ?? second.serial,
		macAddress: first.macAddress ?? second.macAddress,
		deviceType: first.deviceType ?? second.deviceType,
		labels: first.labels ?? second.labels,
		agentVersion: first.agentVersion ?? second.agentVersion,
		// The service says nothing of it.
		clockAheadMs: first.clockAheadMs ?? second.clockAheadMs,
		refusal: isSameRefusal ? (refusal ?? second.refusal) : refusal,
		hindrance: first.online === second.online ? (hindrance ?? second.hindrance) : hindrance,
		problem: first.online === second.online ? (problem ?? second.problem) : problem,
		problemSince: first.problemSince ?? (first.problem === second.problem ? second.problemSince : null),
		next: next ?? second.next,
		otherDevice: otherDeviceIn(first, second),
		dispute: isDisputed(first, second)
			? `counted is ${wordsOf(first)}, not ${wordsOf(second)}`
			: (known.dispute ?? added.dispute),
	};
}

/** Before it the report cannot have been made; `null` where nothing tells. */
const momentOf = ({ madeAtMs, heardAtMs }: DeviceReport) => madeAtMs ?? heardAtMs;

/** Whether time does not explain what differs: they are of one moment, of one that is not told, or of two agents that ran at once. */
function isDisputed(one: DeviceReport, other: DeviceReport): boolean {
	const [startMs, otherStartMs] = [one.startedAtMs ?? 0, other.startedAtMs ?? 0];
	const [ms, otherMs] = [momentOf(one), momentOf(other)];
	const isKnown = Math.min(startMs, otherStartMs) > EARLIEST_CLOCK_MS;
	if (isKnown && startMs !== otherStartMs && startMs < (otherMs ?? 0) && otherStartMs < (ms ?? 0)) return true;
	const isOfOneMoment = ms === null || otherMs === null || ms === otherMs;
	return isOfOneMoment && (one.online !== other.online || one.workflowId !== other.workflowId);
}

function wordsOf(report: DeviceReport): string {
	const at = (ms: number | null | undefined) => (ms ? new Date(ms).toISOString() : 'a time that is not told');
	const runs = report.startedAtMs ? `, from an agent that runs since ${at(report.startedAtMs)}` : '';
	return `"${report.online ? 'online' : 'not online'}, workflow ${report.workflowId ?? 'none'}" of ${at(momentOf(report))}${runs}`;
}

/** What two reports under one id have that no one device can have; `undefined` where nothing speaks for a second device. */
function otherDeviceIn(one: DeviceReport, other: DeviceReport): string | undefined {
	const found = (['serial', 'macAddress'] as const).find(
		(key) => one[key] !== null && other[key] !== null && one[key]?.toLowerCase() !== other[key]?.toLowerCase(),
	);
	if (found) return `${found === 'serial' ? 'serial numbers' : 'MAC addresses'} ${one[found]} and ${other[found]}`;
	return one.otherDevice ?? other.otherDevice;
}
