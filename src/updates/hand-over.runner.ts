/** Hands a plan that orders another version to root, in the site's window and when no lease holds, or one has held it for long enough. Root reads everything again. */
import type { Clock } from '../base/clock.edge.ts';
import type { Failure } from '../base/errors.ts';
import type { FleetPlan } from '../fleet/plan-format.ts';
import { type PlannedDevice, shareOfSpread } from '../fleet/targeting.ts';
import { DEFAULT_SPREAD_SECONDS } from '../fleet/terms.ts';
import type { Status } from '../protocol/local-api.ts';
import type { Settings } from '../settings/table.ts';
import { type Order, orderFor, reasonOf, untilWindowMs } from './order.ts';
import { isGoingBack, NO_RECORDS, type Records } from './record.ts';
import { reportTakenBack, warningOf } from './taken-back.ts';

/** The two ends of what agent and root tell each other. */
export interface Updates {
	/** Puts the plan where root looks for it. A failure is told by the caller. */
	readonly write: (envelope: Uint8Array) => void;
	/** What root has written by now: whatever changes it has the agent read its settings again. */
	readonly records: () => Records;
	/** With its revision; `null` for an agent that is in no package. */
	readonly packageVersion: () => string | null;
	/** Whether the package that carries an order out is on this device now. */
	readonly isInstalled: () => boolean;
}

/** Of an agent that is in no package. */
export const NO_UPDATES: Updates = {
	write() {},
	records: () => NO_RECORDS,
	packageVersion: () => null,
	isInstalled: () => false,
};

export type HandOverParts = {
	readonly clock: Pick<Clock, 'wallMs' | 'monotonicMs' | 'schedule'>;
	readonly settings: () => Pick<Settings, 'update' | 'workflow'>;
	readonly device: () => PlannedDevice;
	/** Of this program, for one that is in no package. */
	readonly version: string;
	/** Whether an application holds a lease now. */
	readonly isHeld: () => boolean;
} & Pick<Updates, 'isInstalled' | 'packageVersion' | 'records' | 'write'>;

/** While a lease holds. */
const HELD_MS = 30_000;
/** The clock may be set meanwhile. */
const LONGEST_MS = 3_600_000;
/** apt may have failed, or root has refused: the plan is handed over again. */
const AGAIN_MS = 6 * 3_600_000;
/** In which the devices of a plan without a time, a window or a spread of its own begin one after the other. */
const SPREAD_MS = 3_600_000;
/** Reasons for which root would do nothing, whenever it is asked. */
const IS_OVER: ReadonlySet<string | null> = new Set([
	'disabled',
	'not-installed',
	'trying',
	'taken-back',
	'newer-than-ordered',
]);

/** Between equal times a window is the whole day. */
const hasWindow = (window: string | null) => window !== null && window.slice(0, 5) !== window.slice(6);

export function createHandOver(parts: HandOverParts) {
	const { clock } = parts;
	let pending: { readonly plan: FleetPlan; readonly envelope: Uint8Array } | null = null;
	let wasHandedOver = false;
	/** Since when nothing but leases holds the order back, monotonic. */
	let heldSinceMs: number | null = null;
	let cancel = () => {};
	/** As at the last look. */
	let records = NO_RECORDS;
	/** The order that was seen last, and when it was due first. */
	let seen = { version: '', dueMs: 0 };

	/** The newest order that was handed over, its settings, and the time: root has the agent look again whenever it is done. */
	let written = { key: '', atMs: 0 };

	const version = () => parts.packageVersion() ?? parts.version;

	/** One that is on trial is ordered still: it may be taken back. */
	function orderNow(): Order | null {
		if (!pending || !(parts.settings().update.enabled || parts.isInstalled())) return null;
		return orderFor(pending.plan, parts.device(), clock.wallMs(), records.trial ? records.trial.from : version());
	}

	const share = () => shareOfSpread(parts.device().deviceId);
	const untilOpenMs = () => untilWindowMs(parts.settings().update.window, new Date(clock.wallMs()), share());

	/** All that were told at the same time do not come to the repository at the same time. */
	function untilTurnMs(order: Order, { spreadSeconds }: FleetPlan): number {
		const nowMs = clock.wallMs();
		if (order.atMs !== null && order.atMs > nowMs) return order.atMs - nowMs;
		if (seen.version !== order.version) seen = { version: order.version, dueMs: nowMs };
		if (order.atMs !== null || hasWindow(parts.settings().update.window)) return untilOpenMs();
		const spreadMs = spreadSeconds === DEFAULT_SPREAD_SECONDS ? SPREAD_MS : spreadSeconds * 1000;
		const turnMs = Math.min(spreadMs, seen.dueMs + share() * spreadMs - nowMs);
		return Math.max(turnMs, untilOpenMs());
	}

	function reasonNow(order: Order) {
		const { enabled } = parts.settings().update;
		const isDue = order.atMs === null || order.atMs <= clock.wallMs();
		return reasonOf(order, {
			...records,
			isEnabled: enabled,
			isInstalled: parts.isInstalled(),
			version: version(),
			isOutside: isDue && untilOpenMs() > 0,
			isHeld: isDue && parts.isHeld(),
		});
	}

	function look(): void {
		cancel();
		records = parts.records();
		const order = orderNow();
		if (!order || !pending) return;
		const dueMs = untilTurnMs(order, pending.plan);
		// Until the version before is back root does nothing of an order, and has the agent look again then.
		const isEarly = isGoingBack(records.trial) && records.trial?.to !== order.version;
		if (isEarly) written = { key: '', atMs: 0 };
		if (isEarly || IS_OVER.has(reasonNow(order))) again(LONGEST_MS);
		else if (dueMs > 0) again(dueMs);
		else if (parts.isHeld() && leftMs() > 0) again(Math.min(HELD_MS, leftMs()));
		else {
			heldSinceMs = null;
			const key = JSON.stringify([order.version, parts.settings().update]);
			const nowMs = clock.wallMs();
			const untilMs = written.key === key ? Math.min(AGAIN_MS, written.atMs + AGAIN_MS - nowMs) : 0;
			if (untilMs <= 0) {
				parts.write(pending.envelope);
				written = { key, atMs: nowMs };
				wasHandedOver = true;
			}
			again(untilMs > 0 ? untilMs : AGAIN_MS, AGAIN_MS);
		}
	}

	/** Leases hold an update no longer than they hold a move. */
	function leftMs(): number {
		heldSinceMs ??= clock.monotonicMs();
		return heldSinceMs + parts.settings().workflow.maxDeferSeconds * 1000 - clock.monotonicMs();
	}

	function again(delayMs: number, longestMs = LONGEST_MS): void {
		cancel = clock.schedule(Math.min(delayMs, longestMs), look);
	}

	return {
		/** A verified plan was fetched, new or known. Its bytes are kept only while it orders something. */
		received(plan: FleetPlan, envelope: Uint8Array): void {
			// Served again, it is the same order: root is asked again after its time.
			if (pending && !Buffer.from(pending.envelope).equals(envelope)) written = { key: '', atMs: 0 };
			pending = { plan, envelope };
			look();
			if (orderNow() !== null) return;
			pending = null;
			heldSinceMs = null;
			// Root may still wait for apt, with a plan that was withdrawn meanwhile; or it names an order that failed, and is over.
			const key = records.outcomes.failed?.at ?? '';
			if (wasHandedOver || (key !== '' && key !== written.key)) parts.write(envelope);
			written = { key, atMs: 0 };
			wasHandedOver = false;
		},
		reevaluate: look,
		/** The version that is ordered and not here yet; `null` for none. */
		get ordered(): string | null {
			return orderNow()?.version ?? null;
		},
		/** The reason for which an order is not carried out, as a permanent word; `null` for none that is known. */
		get reason(): NonNullable<Status['updates']>['reason'] {
			const order = orderNow();
			return order && reasonNow(order);
		},
		/** For the status; `undefined` where it has nothing to say of updates. */
		get report(): Status['updates'] {
			const takenBack = reportTakenBack(records.outcomes);
			const { ordered, reason } = this;
			const isShown = parts.settings().update.enabled || ordered !== null || takenBack.length > 0;
			return isShown ? { ordered, reason, takenBack } : undefined;
		},
		get warning(): Failure | null {
			return warningOf(records.outcomes);
		},
		stop(): void {
			pending = null;
			cancel();
		},
	};
}
