/** Hands a plan that orders another version to root, in the site's window and when no lease holds, or one has held it for long enough. Root reads everything again. */
import type { Clock } from '../base/clock.edge.ts';
import type { Failure } from '../base/errors.ts';
import type { FleetPlan } from '../fleet/plan-format.ts';
import type { PlannedDevice } from '../fleet/targeting.ts';
import type { Status } from '../protocol/local-api.ts';
import type { Settings } from '../settings/table.ts';
import { type Order, orderFor, untilWindowMs } from './order.ts';

/** The two ends of what agent and root tell each other. */
export interface Updates {
	/** Puts the plan where root looks for it. A failure is told by the caller. */
	readonly write: (envelope: Uint8Array) => void;
	/** As it was when the agent started: what changes it starts the agent again. */
	readonly takenBack: NonNullable<Status['updates']>['takenBack'];
	readonly warning: Failure | null;
	/** Whether the package that carries an order out is on this device now. */
	readonly isInstalled: () => boolean;
}

export type HandOverParts = {
	readonly clock: Pick<Clock, 'wallMs' | 'monotonicMs' | 'schedule'>;
	readonly settings: () => Pick<Settings, 'update' | 'workflow'>;
	readonly device: () => PlannedDevice;
	readonly version: string;
	/** Whether an application holds a lease now. */
	readonly isHeld: () => boolean;
} & Pick<Updates, 'isInstalled' | 'write'>;

/** While a lease holds. */
const HELD_MS = 30_000;
/** The clock may be set meanwhile. */
const LONGEST_MS = 3_600_000;
/** apt may have failed, or root has refused: the plan is handed over again. */
const AGAIN_MS = 6 * 3_600_000;

export function createHandOver(parts: HandOverParts) {
	const { clock } = parts;
	let pending: { readonly plan: FleetPlan; readonly envelope: Uint8Array } | null = null;
	let wasHandedOver = false;
	/** Since when nothing but leases holds the order back, monotonic. */
	let heldSinceMs: number | null = null;
	let cancel = () => {};

	function orderNow(): Order | null {
		if (!pending || !parts.settings().update.enabled) return null;
		return orderFor(pending.plan, parts.device(), clock.wallMs(), parts.version);
	}

	function look(): void {
		cancel();
		const order = orderNow();
		if (!order) return;
		const nowMs = clock.wallMs();
		const { window } = parts.settings().update;
		const dueMs = Math.max(order.atMs === null ? 0 : order.atMs - nowMs, untilWindowMs(window, new Date(nowMs)));
		if (!parts.isInstalled()) again(LONGEST_MS);
		else if (dueMs > 0) again(dueMs);
		else if (parts.isHeld() && leftMs() > 0) again(Math.min(HELD_MS, leftMs()));
		else {
			heldSinceMs = null;
			if (pending) parts.write(pending.envelope);
			wasHandedOver = true;
			again(AGAIN_MS, AGAIN_MS);
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
			pending = { plan, envelope };
			look();
			if (orderNow() !== null) return;
			pending = null;
			heldSinceMs = null;
			// Root may still wait for apt, with a plan that was withdrawn meanwhile.
			if (wasHandedOver) parts.write(envelope);
			wasHandedOver = false;
		},
		reevaluate: look,
		/** The version that is ordered and not here yet; `null` for none. */
		get ordered(): string | null {
			return orderNow()?.version ?? null;
		},
		/** The reason for which an order is not carried out, as a permanent word; `null` for none that is known. */
		get reason(): NonNullable<Status['updates']>['reason'] {
			return orderNow() && !parts.isInstalled() ? 'not-installed' : null;
		},
		stop(): void {
			pending = null;
			cancel();
		},
	};
}
