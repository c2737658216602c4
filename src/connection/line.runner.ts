/**
 * Keeps what is known of the way to the service: its rhythm, which is saved and outlives a restart, and how often the channel
 * was cut lately. Forgets the rhythm on another network or for another service. Opens and closes nothing.
 */
import { plainDuration } from '../base/durations.ts';
import type { Failure } from '../base/errors.ts';
import type { Log } from '../base/log.edge.ts';
import type { ChannelEvent } from './channel.edge.ts';
import {
	afterAnswer,
	afterEnd,
	hasOutlived,
	type LineRhythm,
	type LineStore,
	networkOf,
	pingInterval,
	UNKNOWN_RHYTHM,
} from './line-rhythm.ts';
import {
	type Cut,
	causeOf,
	cutsWarning,
	duplicateWarning,
	type Occupied,
	type RecentCuts,
	type Replaced,
	recentCuts,
	riskWarning,
	withCut,
	withHindrance,
} from './recent-cuts.ts';

/** As the status has it. */
export interface LineFacts {
	/** The idle timeout on the way to the service; `null` where none was found. */
	readonly idleTimeoutSeconds: number | null;
	/** How often the line is pinged because of it. */
	readonly pingSeconds: number | null;
	readonly recentCuts: RecentCuts | null;
	readonly warning: Failure | null;
}

export interface Line {
	/** How often to ping a channel that is opened now, in milliseconds. */
	pingIntervalMs(baseUrl: string, usualMs: number, cadenceMs: number): number;
	opened(baseUrl: string, localAddress: string | null, atMs: number): void;
	/** A ping was answered on a channel; of two the older one does not count. */
	answered(atMs: number): void;
	/**
	 * @param replaced whether another device may have taken its place.
	 * @returns whether the channel has outlived the idle timeout that cut those before it.
	 */
	ended(event: Extract<ChannelEvent, { type: 'ended' }>, atMs: number, replaced?: Replaced | null): boolean;
	facts(nowMs: number): LineFacts;
	/** As if no channel had ever been open. */
	forget(): void;
}

/** A line of which nothing is saved. */
export const UNSAVED_LINE: LineStore = { load: () => null, save: () => {} };

export function keepLine(store: LineStore, log: Pick<Log, 'info' | 'warn'>): Line {
	const saved = store.load();
	let where = { baseUrl: saved?.baseUrl ?? null, network: saved?.network ?? null };
	let rhythm: LineRhythm = { ...UNKNOWN_RHYTHM, idleMs: saved?.idleMs ?? null };
	let pingMs: number | null = null;
	let cuts: readonly Cut[] = [];
	let occupied: Occupied | null = null;
	let [openedAtMs, isOpen] = [0, false];
	let told: Failure['code'] | null = null;
	/** The rhythm before the newest channel was found dead, until it is clear that the next one can be opened. */
	let beforeDeath: LineRhythm | null = null;

	function become(next: LineRhythm): void {
		const before = rhythm;
		rhythm = next;
		if (next.idleMs === before.idleMs) return;
		pingMs = null;
		const { baseUrl, network } = where;
		store.save(next.idleMs === null || !baseUrl || !network ? null : { baseUrl, network, idleMs: next.idleMs });
		if (next.idleMs !== null)
			log.info(`the line is cut after ${plainDuration(next.idleMs)} of silence: it is pinged more often from now on`);
		else if (next.isUnlearned) log.warn('more frequent pings do not keep the line open: the cuts have another cause');
	}

	function remedy(): string | null {
		if (rhythm.isUnlearned)
			return 'More frequent pings did not help: check whether two devices have one device id, and what ends channels after a fixed time. If only messages keep the line open, set heartbeatCadence to less than the time for which the channels last.';
		if (rhythm.idleMs === null) return null;
		const found = `something on the way ends a line after ${plainDuration(rhythm.idleMs)} of silence`;
		if (rhythm.unexplained === 0) return `Nothing to do: ${found}, and the agent pings it in time now.`;
		return `Wait a few minutes: ${found}, and it was cut again although the agent pings it in time. If it lasts: only messages may count there, so set heartbeatCadence to less than that time.`;
	}

	const warningAt = (atMs: number) =>
		duplicateWarning(cuts, occupied, atMs, isOpen ? openedAtMs : null) ??
		riskWarning(rhythm, cuts, atMs) ??
		cutsWarning(cuts, atMs, remedy());

	function tell(atMs: number): void {
		const warning = warningAt(atMs);
		if (warning && warning.code !== told) log.warn(warning.message, { code: warning.code, params: warning.params });
		told = warning?.code ?? null;
	}

	return {
		pingIntervalMs(baseUrl, usualMs, cadenceMs) {
			if (baseUrl !== where.baseUrl) return usualMs;
			const intervalMs = pingInterval(rhythm, usualMs, cadenceMs);
			pingMs = rhythm.idleMs === null ? null : intervalMs;
			return intervalMs;
		},
		opened(baseUrl, localAddress, atMs) {
			occupied = null;
			beforeDeath = null;
			[openedAtMs, isOpen] = [atMs, true];
			const network = localAddress === null ? null : networkOf(localAddress);
			if (baseUrl === where.baseUrl && network === where.network) return;
			become(UNKNOWN_RHYTHM);
			where = { baseUrl, network };
		},
		answered(atMs) {
			rhythm = afterAnswer(rhythm, atMs - openedAtMs);
		},
		ended({ failure, closeCode, line }, atMs, replaced = null) {
			const cause = causeOf(failure, closeCode);
			if (!line) {
				// An attempt that follows at once tells why the last channel was cut.
				const isRefusal = REFUSALS.has(failure.code);
				cuts = withHindrance(cuts, isRefusal ? cause : undefined);
				// The whole way was dead, not a line that was quiet for too long.
				if (beforeDeath && !isRefusal) become(beforeDeath);
				beforeDeath = null;
				const isOccupied = failure.code === 'channel-occupied';
				occupied = isOccupied ? { fromMs: occupied?.fromMs ?? atMs, toMs: atMs } : null;
				tell(atMs);
				return false;
			}
			isOpen = false;
			const { lifeMs } = line;
			cuts = withCut(cuts, { atMs, lifeMs, cause, replaced });
			const outlived = hasOutlived(rhythm, line);
			beforeDeath = line.deadAfterMs === undefined ? null : rhythm;
			become(afterEnd(rhythm, line));
			tell(atMs);
			return outlived;
		},
		facts(nowMs) {
			return {
				idleTimeoutSeconds: rhythm.idleMs === null ? null : Math.round(rhythm.idleMs / 1000),
				pingSeconds: pingMs === null ? null : Math.round(pingMs / 1000),
				recentCuts: recentCuts(cuts, nowMs),
				warning: warningAt(nowMs),
			};
		},
		forget() {
			beforeDeath = null;
			become(UNKNOWN_RHYTHM);
			where = { baseUrl: null, network: null };
			cuts = [];
			occupied = null;
		},
	};
}

const REFUSALS: ReadonlySet<Failure['code']> = new Set(['access-forbidden', 'credential-refused', 'channel-not-found']);
