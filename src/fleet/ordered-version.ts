/** The version of this program that a plan orders for a device, and from when on. Pure. */
import { type CompiledPlan, type PlannedDevice, rolloutPercentile, shareOfSpread } from './targeting.ts';

export interface Order {
	readonly version: string;
	/** From then on, milliseconds since 1970; `null`: at once. */
	readonly atMs: number | null;
	/** The ring, in percent. */
	readonly percent: number;
}

/** The ring that begins last, of those that hold the device and have begun, counts; else the next to begin. `null`: no ring names a version. */
export function orderedVersion(compiled: CompiledPlan, device: PlannedDevice, wallMs: number): Order | null {
	return orderedVersions(compiled, device, wallMs)[0] ?? null;
}

/** The order that counts now, if there is one, then the one at each moment at which another ring begins; it may be the same again. */
export function orderedVersions(compiled: CompiledPlan, device: PlannedDevice, wallMs: number): Order[] {
	const orders = ordersFor(compiled, device);
	const toCome = orders.flatMap(({ atMs }) => (atMs !== null && atMs > wallMs ? [atMs] : []));
	return [wallMs, ...toCome.toSorted((a, b) => a - b)].flatMap((momentMs) => {
		const begun = orders.filter(({ atMs }) => atMs === null || atMs <= momentMs);
		return begun[indexOfNewest(begun.map(({ atMs }) => ({ startMs: atMs })))] ?? [];
	});
}

function ordersFor({ plan, rules }: CompiledPlan, device: PlannedDevice): Order[] {
	const rule = rules.find(({ fits }) => fits(device))?.rule ?? null;
	const rollout = (rule === null ? undefined : rule.rollout) ?? plan.defaults?.rollout;
	if (!rollout) return [];
	const place = rolloutPercentile(device.deviceId);
	const offsetMs = Math.round(shareOfSpread(device.deviceId) * (rollout.spreadSeconds ?? plan.spreadSeconds) * 1000);
	return rollout.rings.flatMap(({ percent, startAt, agent }): Order[] => {
		if (!agent || place >= percent) return [];
		return [{ percent, version: agent.version, atMs: startAt === undefined ? null : Date.parse(startAt) + offsetMs }];
	});
}

/** Of rings that have begun, the one that began last; -1 for none. A ring without a time began with the plan that added it: no earlier than those listed before it. */
export function indexOfNewest(rings: readonly { readonly startMs: number | null }[]): number {
	let newest = -1;
	let newestMs = Number.NEGATIVE_INFINITY;
	for (const [index, { startMs }] of rings.entries()) {
		if (startMs !== null && startMs < newestMs) continue;
		newest = index;
		newestMs = startMs ?? newestMs;
	}
	return newest;
}
