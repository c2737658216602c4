/* Finds codes in a picture or before the camera. Everything is decoded here in the page; no picture is sent anywhere. */

/** @import { ReaderOptions } from 'zxing-wasm/reader' */
/** @import { ErrorCode } from '../../base/errors.ts' */
/** @import { TextKey, Words } from './words.js' */
/** @typedef {NonNullable<ReaderOptions['formats']>} Formats */
/** @typedef {{ text: string, format: string }} Found A code, and the format in which it was seen; none of one that was typed. */

/** Longest side of what is looked at, in pixels: enough for a code that fills a fifth of a photo. */
const MAX_SIDE = 2000;
/** How pairing codes are printed. @type {Formats} */
const PAIRING = ['QRCodeModel2', 'AztecCode'];
/** Other codes that stand on devices, labels and posters: only to say what was seen. @type {Formats} */
const OTHERS = ['DataMatrix', 'PDF417', 'MicroQRCode', 'EAN13', 'EAN8', 'UPCA', 'Code128', 'Code39', 'ITF'];
/** @type {ReaderOptions} */
const OPTIONS = { tryHarder: true, tryRotate: true, tryInvert: true, maxNumberOfSymbols: 8, textMode: 'Plain' };
/** Looks at the camera's picture until other kinds of codes are looked for as well. */
const OTHERS_EVERY = 8;

/** @typedef {{ code: ErrorCode } | { key: TextKey }} Reason A code of the catalogue, or a key of the page's own texts. */

/** Says which sentence a person needs. */
export class ReadingFailed extends Error {
	/** @param {Reason} reason */
	constructor(reason) {
		super('code' in reason ? reason.code : reason.key);
		this.reason = reason;
	}
}

/** @type {Promise<Window['ZXingWASM']> | null} */
let loading = null;

/** The reader, loaded when it is first needed. */
function reader() {
	loading ??= new Promise((resolve, reject) => {
		const script = document.createElement('script');
		script.src = '/zxing-reader.js';
		script.onload = () => {
			const { ZXingWASM } = window;
			ZXingWASM.purgeZXingModule();
			ZXingWASM.prepareZXingModule({ overrides: { locateFile: () => '/zxing_reader.wasm' } });
			resolve(ZXingWASM);
		};
		script.onerror = () => {
			loading = null;
			reject(new ReadingFailed({ key: 'readerFailed' }));
		};
		document.head.append(script);
	});
	return loading;
}

/**
 * The different codes in what is drawn; `withOthers`: also those that are never pairing codes.
 * @param {ImageBitmap | HTMLVideoElement} source @param {number} width @param {number} height @param {boolean} withOthers
 */
async function codesIn(source, width, height, withOthers) {
	const scale = Math.min(1, MAX_SIDE / Math.max(width, height));
	const canvas = new OffscreenCanvas(Math.max(1, Math.round(width * scale)), Math.max(1, Math.round(height * scale)));
	const context = canvas.getContext('2d', { willReadFrequently: true });
	if (context === null) throw new ReadingFailed({ key: 'readerFailed' });
	context.drawImage(source, 0, 0, canvas.width, canvas.height);
	const pixels = context.getImageData(0, 0, canvas.width, canvas.height);
	const { readBarcodes } = await reader();
	const find = async (/** @type {Formats} */ formats) => {
		const results = await readBarcodes(pixels, { ...OPTIONS, formats }).catch(() => {
			// Its second file could not be loaded, and it would keep that for good.
			loading = null;
			throw new ReadingFailed({ key: 'readerFailed' });
		});
		const read = results.filter(({ isValid, text }) => isValid && text);
		return [...new Map(read.map(({ text, format }) => [text, { text, format }])).values()];
	};
	const found = await find(PAIRING);
	return found.length > 0 || !withOthers ? found : find(OTHERS);
}

/** The codes in a picture file, at least one. Rejects with {@link ReadingFailed}. @param {Blob} file */
export async function readPictureFile(file) {
	const bitmap = await createImageBitmap(file).catch(() => {
		throw new ReadingFailed({ code: 'picture-unreadable' });
	});
	try {
		const found = await codesIn(bitmap, bitmap.width, bitmap.height, true);
		if (found.length === 0) throw new ReadingFailed({ code: 'picture-without-code' });
		return found;
	} finally {
		bitmap.close();
	}
}

/**
 * Shows the camera in a video element, calls `onSeen` when there is a picture, and hands every picture's codes to `take` until that
 * is satisfied or the signal ends it. Rejects with {@link ReadingFailed}.
 * @param {HTMLVideoElement} video @param {AbortSignal} signal
 * @param {{ onSeen: () => void, take: (found: Found[]) => Promise<boolean> }} on
 */
export async function readFromCamera(video, signal, { onSeen, take }) {
	if (!navigator.mediaDevices) throw new ReadingFailed({ key: 'cameraNone' });
	const stream = await navigator.mediaDevices
		.getUserMedia({ video: { facingMode: 'environment', width: { ideal: 1280 } } })
		.catch((error) => {
			throw new ReadingFailed({ key: error.name === 'NotAllowedError' ? 'cameraDenied' : 'cameraMissing' });
		});
	try {
		video.srcObject = stream;
		await video.play();
		video.dataset.seen = '';
		onSeen();
		for (let looks = 1; !signal.aborted; looks += 1) {
			await new Promise((resolve) => requestAnimationFrame(resolve));
			if (video.videoWidth === 0) continue;
			const found = await codesIn(video, video.videoWidth, video.videoHeight, looks % OTHERS_EVERY === 0);
			if (signal.aborted) return;
			if (found.length > 0 && (await take(found))) return;
		}
	} finally {
		for (const track of stream.getTracks()) track.stop();
		video.srcObject = null;
		delete video.dataset.seen;
	}
}

/** The kind of a code that cannot pair, where its format tells it. @param {Found} found @returns {keyof Words['kinds'] | null} */
export function kindOf({ format }) {
	if (['EAN13', 'EAN8', 'UPCA', 'Code128', 'Code39', 'ITF'].includes(format)) return 'product';
	return ['DataMatrix', 'PDF417', 'MicroQRCode'].includes(format) ? 'other' : null;
}
