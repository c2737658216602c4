/** Two reports under one id as one, and what they have that no one device can have. Pure. */
import type { DeviceReport } from '../fleet/progress.ts';

/** The newer one applies, the later one where that is not known; what it leaves open is the other's word. */
export function newer(known: DeviceReport, added: DeviceReport): DeviceReport {
	const isOlder = (added.heardAtMs ?? Number.POSITIVE_INFINITY) < (known.heardAtMs ?? Number.NEGATIVE_INFINITY);
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
		refusal: isSameRefusal ? (refusal ?? second.refusal) : refusal,
		hindrance: first.online === second.online ? (hindrance ?? second.hindrance) : hindrance,
		problem: first.online === second.online ? (problem ?? second.problem) : problem,
		problemSince: first.problemSince ?? (first.problem === second.problem ? second.problemSince : null),
		next: next ?? second.next,
		otherDevice: otherDeviceIn(first, second),
	};
}

/** What two reports under one id have that no one device can have; `undefined` where nothing speaks for a second device. */
function otherDeviceIn(one: DeviceReport, other: DeviceReport): string | undefined {
	const found = (['serial', 'macAddress'] as const).find(
		(key) => one[key] !== null && other[key] !== null && one[key]?.toLowerCase() !== other[key]?.toLowerCase(),
	);
	if (found) return `${found === 'serial' ? 'serial numbers' : 'MAC addresses'} ${one[found]} and ${other[found]}`;
	return one.otherDevice ?? other.otherDevice;
}
