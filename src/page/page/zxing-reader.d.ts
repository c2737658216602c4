/** What `/zxing-reader.js` adds to the window. */
import type * as Reader from 'zxing-wasm/reader';

declare global {
	interface Window {
		readonly ZXingWASM: typeof Reader;
	}
}
