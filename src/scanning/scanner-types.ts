/** The interface of every kind of scanner to its listener. Types only. */
import type { Failure } from '../base/errors.ts';

export interface ScannerListener {
	/** The characters that the scanner sent, in order; `scanning/lines.ts` finds the end of a code. */
	characters(text: string): void;
	/** It is gone: pulled out, or it failed. Called at most once, and not after {@link OpenScanner.close}. */
	ended(reason: Failure): void;
}

export interface OpenScanner {
	/** Lets the device go for other programs. May be called at any time, and twice. */
	close(): Promise<void>;
}
