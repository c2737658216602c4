/* Finds the code in a picture or before the camera. Everything is decoded here in the page; nothing is sent anywhere. */

/** Longest side of what is looked at, in pixels: enough for a code that fills a fifth of a photo. */
const MAX_SIDE = 2000;
const OPTIONS = {
	formats: ['QRCodeModel2', 'AztecCode'],
	tryHarder: true,
	tryRotate: true,
	tryInvert: true,
	maxNumberOfSymbols: 4,
	textMode: 'Plain',
};

let loading = null;

/** The reader, loaded when it is first needed. */
function reader() {
	loading ??= new Promise((resolve, reject) => {
		const script = document.createElement('script');
		script.src = '/zxing-reader.js';
		script.onload = () => {
			const { ZXingWASM } = window;
			ZXingWASM.prepareZXingModule({ overrides: { locateFile: () => '/zxing_reader.wasm' } });
			resolve(ZXingWASM);
		};
		script.onerror = () => {
			loading = null;
			reject(new Error('The code reader could not be loaded.'));
		};
		document.head.append(script);
	});
	return loading;
}

/** The different texts in what is drawn. */
async function textsIn(source, width, height) {
	const scale = Math.min(1, MAX_SIDE / Math.max(width, height));
	const canvas = new OffscreenCanvas(Math.max(1, Math.round(width * scale)), Math.max(1, Math.round(height * scale)));
	const context = canvas.getContext('2d', { willReadFrequently: true });
	context.drawImage(source, 0, 0, canvas.width, canvas.height);
	const { readBarcodes } = await reader();
	const results = await readBarcodes(context.getImageData(0, 0, canvas.width, canvas.height), OPTIONS);
	return [...new Set(results.filter(({ isValid, text }) => isValid && text).map(({ text }) => text))];
}

/** The one code in a picture file. Rejects with a sentence for a person. */
export async function readPictureFile(file) {
	const bitmap = await createImageBitmap(file).catch(() => {
		throw new Error('This file is not a supported picture. Choose a PNG, JPEG or WebP picture.');
	});
	try {
		const [text, ...others] = await textsIn(bitmap, bitmap.width, bitmap.height);
		if (text === undefined)
			throw new Error('No code was found. Take the picture again: the whole code, sharp, with a white border.');
		if (others.length > 0)
			throw new Error('There are several codes. Take a picture that shows only the one that is meant.');
		return text;
	} finally {
		bitmap.close();
	}
}

/**
 * Shows the camera in a video element, calls `onSeen` when there is a picture, and resolves with the first code it sees; `null` when it was stopped.
 * Rejects with a sentence for a person.
 */
export async function readFromCamera(video, signal, onSeen) {
	if (!navigator.mediaDevices) throw new Error('This browser gives no camera to pages.');
	const stream = await navigator.mediaDevices
		.getUserMedia({ video: { facingMode: 'environment', width: { ideal: 1280 } } })
		.catch((error) => {
			throw new Error(
				error.name === 'NotAllowedError'
					? 'The camera may not be used. Allow it for this page, or choose a picture.'
					: 'No camera was found. Choose a picture instead.',
			);
		});
	try {
		video.srcObject = stream;
		await video.play();
		video.dataset.seen = '';
		onSeen();
		while (!signal.aborted) {
			await new Promise((resolve) => requestAnimationFrame(resolve));
			if (video.videoWidth === 0) continue;
			const [text] = await textsIn(video, video.videoWidth, video.videoHeight);
			if (text !== undefined && !signal.aborted) return text;
		}
		return null;
	} finally {
		for (const track of stream.getTracks()) track.stop();
		video.srcObject = null;
		delete video.dataset.seen;
	}
}
