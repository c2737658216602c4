/** What every kind of scanner is to whoever listens to it. Types only. */
import type { Failure } from '../base/errors.ts';

export interface ScannerListener {
	/** What the scanner sent, in order; where a code ends is for `scanning/lines.ts` to find. */
	characters(text: string): void;
	/** It is gone: pulled out, or it failed. Called at most once, and not after {@link OpenScanner.close}. */
	ended(reason: Failure): void;
}

export interface OpenScanner {
	/** Lets the device go for other programs. May be called at any time, and twice. */
	close(): Promise<void>;
}
