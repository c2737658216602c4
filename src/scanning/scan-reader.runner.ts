/** Puts the characters of one scanner together to scans: keeps the time of the quiet moments, which `lines.ts` does not know. */

import type { Clock } from '../base/clock.edge.ts';
import type { ScanSuffix } from '../settings/terms.ts';
import { endByQuiet, NOTHING_READ, quietMsOf, type Scan, takeCharacters, type UnfinishedScan } from './lines.ts';

export interface ScanReader {
	characters(text: string): void;
	/** The input has ended: what is unfinished is a scan as well. Then calls back. */
	flush(then: () => void): void;
	/** Forgets what is unfinished. */
	close(): void;
}

export function readScans(
	clock: Pick<Clock, 'schedule'>,
	suffix: ScanSuffix,
	onScan: (scan: Scan) => void,
): ScanReader {
	let unfinished: UnfinishedScan = NOTHING_READ;
	let cancel = () => {};
	const quiet = () => {
		const scan = endByQuiet(unfinished, suffix);
		unfinished = NOTHING_READ;
		if (scan) onScan(scan);
	};
	return {
		characters(text) {
			cancel();
			const taken = takeCharacters(unfinished, text, suffix);
			unfinished = taken.unfinished;
			if (unfinished !== NOTHING_READ) cancel = clock.schedule(quietMsOf(suffix), quiet);
			for (const scan of taken.scans) onScan(scan);
		},
		flush(then) {
			cancel();
			const scan = endByQuiet(unfinished, 'auto');
			unfinished = NOTHING_READ;
			if (scan) onScan(scan);
			then();
		},
		close() {
			cancel();
			unfinished = NOTHING_READ;
		},
	};
}
