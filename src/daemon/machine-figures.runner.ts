/** Figures of the machine for /metrics and telemetry, looked up now and then. */
import type { Clock } from '../base/clock.edge.ts';
import type { MachineFigures } from '../status/metrics.ts';

/** Figures of the machine change slowly, and a scraper may come often. */
const MACHINE_EVERY_MS = 300_000;

export function machineFigures(
	stateDir: string,
	root: string,
	clock: Clock,
	scannerPresent: () => Promise<boolean | null>,
): () => Promise<MachineFigures> {
	let known: { readonly atMs: number; readonly figures: Promise<MachineFigures> } | null = null;
	const read = async () => {
		const { readMachineFigures } = await import('../telemetry/machine.edge.ts');
		return { ...(await readMachineFigures(stateDir, root)), scannerPresent: await scannerPresent().catch(() => null) };
	};
	return () => {
		const nowMs = clock.monotonicMs();
		if (!known || nowMs - known.atMs > MACHINE_EVERY_MS) known = { atMs: nowMs, figures: read() };
		return known.figures;
	};
}
