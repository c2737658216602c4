/** Puts the characters of one scanner together to scans: keeps the time of the quiet moments, which `lines.ts` does not know. */
import type { Clock } from '../base/clock.edge.ts';
import type { ScanSuffix } from '../settings/value-schemas.ts';
import { endByQuiet, NOTHING_READ, quietMsOf, type Scan, takeCharacters, type UnfinishedScan } from './lines.ts';

export type ScanReader = ReturnType<typeof readScans>;

export function readScans(clock: Pick<Clock, 'schedule'>, suffix: ScanSuffix, onScan: (scan: Scan) => void) {
	let unfinished: UnfinishedScan = NOTHING_READ;
	let cancel = () => {};
	const end = (by: ScanSuffix) => {
		const scan = endByQuiet(unfinished, by);
		unfinished = NOTHING_READ;
		if (scan) onScan(scan);
	};
	return {
		characters(text: string) {
			cancel();
			const taken = takeCharacters(unfinished, text, suffix);
			unfinished = taken.unfinished;
			if (unfinished !== NOTHING_READ) cancel = clock.schedule(quietMsOf(suffix), () => end(suffix));
			for (const scan of taken.scans) onScan(scan);
		},
		/** The input has ended: what is unfinished is a scan as well. Then calls back. */
		flush(then: () => void) {
			cancel();
			end('auto');
			then();
		},
		/** Forgets what is unfinished. */
		close() {
			cancel();
			unfinished = NOTHING_READ;
		},
	};
}
