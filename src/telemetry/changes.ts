/** Changes of a state that were not delivered, each with its moment: a figure that is only sampled would hide a short outage. Pure. */
import type { Metric, Sample } from '../status/metrics.ts';

/** Bytes that are kept at most; the oldest changes go first. */
export const MAX_CHANGE_BYTES = 1024 * 1024;
const MAX_AGE_MS = 86_400_000;

export function createChangeLog(maxBytes = MAX_CHANGE_BYTES) {
	let entries: { readonly atMs: number; readonly bytes: Uint8Array }[] = [];
	let size = 0;
	return {
		/** @param atMs monotonic. */
		add(atMs: number, bytes: Uint8Array): void {
			entries.push({ atMs, bytes });
			size += bytes.length;
			let drop = 0;
			for (const entry of entries) {
				if (size <= maxBytes && atMs - entry.atMs <= MAX_AGE_MS) break;
				size -= entry.bytes.length;
				drop += 1;
			}
			if (drop > 0) entries = entries.slice(drop);
		},
		/** All of them, oldest first; call `delivered` with the returned list once they have arrived. */
		pending: () => entries.map(({ bytes }) => bytes),
		/** Forgets what was handed out; changes since then stay. */
		delivered(handedOut: readonly Uint8Array[]): void {
			const gone = new Set(handedOut);
			entries = entries.filter(({ bytes }) => !gone.has(bytes));
			size = entries.reduce((sum, { bytes }) => sum + bytes.length, 0);
		},
	};
}

/** Samples by metric and labels. */
export type Seen = ReadonlyMap<string, { readonly metric: Metric; readonly sample: Sample }>;

export function seenIn(metrics: readonly Metric[]): Seen {
	return new Map(
		metrics.flatMap((metric) =>
			metric.samples.map((sample) => [JSON.stringify([metric.name, sample.labels ?? {}]), { metric, sample }] as const),
		),
	);
}

/** The samples that are new or have another value; one that is gone is 0 once, so that it does not linger in a store. */
export function changesBetween(before: Seen, now: Seen): Metric[] {
	const changed = [...now].flatMap(([key, { metric, sample }]) =>
		before.get(key)?.sample.value === sample.value ? [] : [{ ...metric, samples: [sample] }],
	);
	return [...goneFrom(before, now), ...changed];
}

/** Gauges with labels that are no longer reported, as 0. */
export function goneFrom(before: Seen, now: Seen): Metric[] {
	return [...before].flatMap(([key, { metric, sample }]) =>
		now.has(key) || metric.type !== 'gauge' || sample.value === 0 || !sample.labels
			? []
			: [{ ...metric, samples: [{ ...sample, value: 0 }] }],
	);
}
