/**
 * The time as this device knows it: its own clock, the time that the service tells, and how both have moved since. Notices
 * that the clock was set at the wakeups that there are anyway; it looks of its own only while the clock is known to be wrong.
 */
import type { Clock } from '../base/clock.edge.ts';
import type { Failure } from '../base/errors.ts';
import type { DeviceState } from '../state/device-state.ts';
import type { PersistedState } from '../state/persisted-state.runner.ts';
import { believedMs, clockWarning, farAheadMs, WRONG_CLOCK_MS } from './clock-skew.ts';

export interface ServiceDate {
	/** Milliseconds since 1970; left out, reckoned from the difference. */
	readonly serviceMs?: number | undefined;
	/** How far the device's clock was ahead of it, in milliseconds. */
	readonly skewMs: number;
}

export interface DeviceTime {
	/** The time to judge plans by, milliseconds since 1970. */
	nowMs(): number;
	/** The right time as far as it is known, milliseconds since 1970, and whether it is the service's, because this clock is wrong. */
	best(): { readonly ms: number; readonly isServices: boolean };
	/** @param isProven whether the answer can only be the service's own: it has accepted the device. */
	heard(date: ServiceDate, isProven: boolean): void;
	/** Looks whether the clock was set. To be called at any wakeup. */
	look(): void;
	/** By how much the clock was corrected since the agent started, in milliseconds. */
	readonly correctedMs: number;
	/** Of another service nothing is known. */
	forget(): void;
	stop(): void;
}

/** A smaller step of the clock does not matter. */
const STEP_MS = 1000;
/** While the clock is wrong: how often to look whether it still is. */
const LOOK_WHILE_WRONG_MS = 20_000;
/** Of its own the service's time is saved so often, at most. */
const SAVE_EVERY_MS = 24 * 60 * 60_000;

export function keepDeviceTime(parts: {
	readonly clock: Clock;
	readonly stateWriter: Pick<PersistedState, 'state' | 'keep' | 'stampWith'>;
	/** `null`: the clock is right, or nothing is known of it. */
	readonly onWarning: (warning: Failure | null, skewMs: number | null) => void;
	/** The clock was set, or the machine has slept: what was decided by the time is decided again. */
	readonly onJump: () => void;
	/** The service has told the time. @param skewMs how far the clock is ahead of it. */
	readonly onProven?: (skewMs: number) => void;
}): DeviceTime {
	const { clock, stateWriter } = parts;
	const offsetMs = () => clock.wallMs() - clock.monotonicMs();
	/** The service's time less the monotonic one; `null` in a run in which it has told nothing. */
	let serviceOffsetMs: number | null = null;
	/** What it has told in an earlier one. */
	let floorMs = stateWriter.state.serviceTimeMs;
	/** How far the clock was ahead of it then: a restart sets no clock. */
	let keptAheadMs = stateWriter.state.clockAheadMs;
	/** How far the clock is ahead of the service's. */
	let skew: number | null = null;
	let knownOffsetMs = offsetMs();
	let sleptMs = clock.sleptMs();
	let savedAtMs: number | null = null;
	let stopped = false;
	let cancel = () => {};
	let cancelSave = () => {};

	const serviceMs = () => (serviceOffsetMs === null ? floorMs : Math.round(serviceOffsetMs + clock.monotonicMs()));
	const aheadMs = () => (serviceOffsetMs === null ? keptAheadMs : Math.max(0, clock.wallMs() - (serviceMs() ?? 0)));
	stateWriter.stampWith((state: DeviceState) => ({ ...state, serviceTimeMs: serviceMs(), clockAheadMs: aheadMs() }));

	function warn(): void {
		const warning = skew === null ? null : clockWarning(skew);
		parts.onWarning(warning, skew);
		cancel();
		cancel = warning === null || stopped ? () => {} : clock.schedule(LOOK_WHILE_WRONG_MS, lookAgain);
	}

	function lookAgain(): void {
		time.look();
		warn();
	}

	/** With other writes as a rule: what follows from the same answer is saved first, and has the time with it. */
	function save(): void {
		const saved = stateWriter.state.serviceTimeMs;
		const ms = serviceMs();
		if (ms === null || (saved !== null && Math.abs(ms - saved) < SAVE_EVERY_MS)) return;
		const nowMs = clock.monotonicMs();
		if (savedAtMs !== null && nowMs - savedAtMs < SAVE_EVERY_MS) return;
		savedAtMs = nowMs;
		stateWriter.keep((state) => ({ ...state, serviceTimeMs: ms }));
	}

	const time: { -readonly [Name in keyof DeviceTime]: DeviceTime[Name] } = {
		correctedMs: 0,
		nowMs: () =>
			serviceOffsetMs === null
				? believedMs(clock.wallMs() - farAheadMs(keptAheadMs), floorMs, false)
				: believedMs(clock.wallMs(), serviceMs(), true),
		best() {
			const ms = clock.wallMs();
			const isServices = skew !== null && Math.abs(skew) >= WRONG_CLOCK_MS;
			return { ms: isServices ? ms - (skew ?? 0) : ms, isServices };
		},
		heard(date, isProven) {
			time.look();
			skew = date.skewMs;
			const before = time.nowMs();
			// The newest word counts, also an earlier one: a service with a wrong clock may correct it.
			if (isProven) serviceOffsetMs = (date.serviceMs ?? clock.wallMs() - date.skewMs) - clock.monotonicMs();
			warn();
			if (!isProven) return;
			parts.onProven?.(date.skewMs);
			cancelSave();
			cancelSave = clock.soon(save);
			if (Math.abs(time.nowMs() - before) >= STEP_MS) parts.onJump();
		},
		look() {
			const jumpMs = offsetMs() - knownOffsetMs;
			if (Math.abs(jumpMs) < STEP_MS || stopped) return;
			knownOffsetMs += jumpMs;
			const sleptNowMs = clock.sleptMs();
			const setMs = jumpMs - (sleptNowMs - sleptMs);
			// Monotonic time stood still meanwhile.
			if (serviceOffsetMs !== null) serviceOffsetMs += sleptNowMs - sleptMs;
			sleptMs = sleptNowMs;
			if (Math.abs(setMs) >= STEP_MS) {
				time.correctedMs += setMs;
				if (skew !== null) skew += setMs;
				warn();
			}
			parts.onJump();
		},
		forget() {
			serviceOffsetMs = null;
			floorMs = null;
			keptAheadMs = 0;
			skew = null;
			warn();
		},
		stop() {
			stopped = true;
			cancel();
			cancelSave();
		},
	};
	return time;
}
