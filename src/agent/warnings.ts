/**
 * What is not right but keeps nothing from working, one warning for each topic: shown in the status until it is
 * withdrawn, and logged once when it comes up.
 */
import { type Failure, failure } from '../core/errors.ts';
import { WRONG_CLOCK_MS } from '../core/network-failures.ts';
import { plainDuration } from '../core/status.ts';
import type { Log } from '../edges/log.ts';

export interface Warnings {
	/** Shows a warning in place of the topic's earlier one; `null` withdraws it. */
	set(topic: string, warning: Failure | null): void;
	list(): readonly Failure[];
}

/** @param onChange called after every change. */
export function keepWarnings(log: Pick<Log, 'warn'>, onChange: () => void): Warnings {
	const warnings = new Map<string, Failure>();
	return {
		set(topic, warning) {
			if (warnings.get(topic)?.message === warning?.message) return;
			if (warning) {
				warnings.set(topic, warning);
				log.warn(warning.message, { code: warning.code });
			} else warnings.delete(topic);
			onChange();
		},
		list: () => [...warnings.values()],
	};
}

/** @param skewMs how far the device's clock is ahead of the service's; negative when slow. */
export function clockWarning(skewMs: number): Failure | null {
	const off = Math.abs(skewMs);
	if (off < WRONG_CLOCK_MS) return null;
	const direction = skewMs > 0 ? 'fast' : 'slow';
	return failure('clock-wrong', `This device's clock is ${plainDuration(off)} ${direction}.`, {
		remedy: "Set this device's clock, or let it reach a time server.",
	});
}
