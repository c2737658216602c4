/* Draws a short text as a QR code: bytes, versions 1 to 10, error correction M, one mask. Source: ISO/IEC 18004. */

/** By version: data codewords in all, error correction codewords of each block, number of blocks. */
const SIZES = [
	[16, 10, 1],
	[28, 16, 1],
	[44, 26, 1],
	[64, 18, 2],
	[86, 24, 2],
	[108, 16, 4],
	[124, 18, 4],
	[154, 22, 4],
	[182, 22, 5],
	[216, 26, 5],
];
const ALIGNMENT = [[], [6, 18], [6, 22], [6, 26], [6, 30], [6, 34], [6, 22, 38], [6, 24, 42], [6, 26, 46], [6, 28, 50]];
/** M and mask 0, with their BCH code. */
const FORMAT = 0b101010000010010;
/** By version, from 7 on. */
const VERSION_BITS = { 7: 0x07c94, 8: 0x085bc, 9: 0x09a99, 10: 0x0a4d3 };

/** Bytes that fit into the largest code. */
export const MAX_BYTES = 213;

/** Rows of `true` for dark; `null` when the text is too long. */
export function drawQr(text) {
	const bytes = new TextEncoder().encode(text);
	const version = SIZES.findIndex(([data], index) => bytes.length + (index < 9 ? 2 : 3) <= data) + 1;
	if (version === 0) return null;
	const size = 17 + 4 * version;
	const dark = Array.from({ length: size }, () => Array(size).fill(null));
	drawPatterns(dark, version);
	placeBits(dark, interleave(toCodewords(bytes, version), version));
	return dark;
}

function toCodewords(bytes, version) {
	const [capacity] = SIZES[version - 1];
	const bits = [];
	const put = (value, length) => {
		for (let bit = length - 1; bit >= 0; bit -= 1) bits.push((value >> bit) & 1);
	};
	put(0b0100, 4);
	put(bytes.length, version < 10 ? 8 : 16);
	for (const byte of bytes) put(byte, 8);
	put(0, Math.min(4, capacity * 8 - bits.length));
	while (bits.length % 8 > 0) bits.push(0);
	const words = [];
	for (let at = 0; at < bits.length; at += 8) words.push(Number.parseInt(bits.slice(at, at + 8).join(''), 2));
	for (let pad = 0xec; words.length < capacity; pad ^= 0xec ^ 0x11) words.push(pad);
	return words;
}

function interleave(words, version) {
	const [capacity, correction, count] = SIZES[version - 1];
	const short = Math.floor(capacity / count);
	const longer = capacity % count;
	const blocks = [];
	let at = 0;
	for (let index = 0; index < count; index += 1) {
		const length = short + (index >= count - longer ? 1 : 0);
		blocks.push(words.slice(at, at + length));
		at += length;
	}
	const checks = blocks.map((block) => remainder(block, correction));
	const column = (from, row) => from.flatMap((block) => (row < block.length ? [block[row]] : []));
	const rows = (length) => Array.from({ length }, (_none, row) => row);
	return [
		...rows(short + 1).flatMap((row) => column(blocks, row)),
		...rows(correction).flatMap((row) => column(checks, row)),
	];
}

/** The remainder of a Reed-Solomon division in GF(256) with the polynomial 0x11d. */
function remainder(block, length) {
	let generator = [1];
	for (let root = 1, step = 0; step < length; step += 1, root = multiply(root, 2)) {
		const next = [...generator, 0];
		generator.forEach((factor, index) => {
			next[index + 1] ^= multiply(factor, root);
		});
		generator = next;
	}
	const rest = [...block, ...Array(length).fill(0)];
	for (let at = 0; at < block.length; at += 1) {
		const factor = rest[at];
		generator.forEach((value, index) => {
			rest[at + index] ^= multiply(value, factor);
		});
	}
	return rest.slice(block.length);
}

function multiply(a, b) {
	let product = 0;
	for (let bit = 7; bit >= 0; bit -= 1) {
		product = (product << 1) ^ (product & 0x80 ? 0x11d : 0);
		if ((b >> bit) & 1) product ^= a;
	}
	return product;
}

function drawPatterns(dark, version) {
	const size = dark.length;
	const set = (row, column, value) => {
		if (row >= 0 && column >= 0 && row < size && column < size) dark[row][column] = value;
	};
	for (let at = 8; at < size - 8; at += 1) {
		set(6, at, at % 2 === 0);
		set(at, 6, at % 2 === 0);
	}
	const square = (top, left, radius, isDark) => {
		for (let row = -radius; row <= radius; row += 1)
			for (let column = -radius; column <= radius; column += 1)
				set(top + row, left + column, isDark(Math.max(Math.abs(row), Math.abs(column))));
	};
	for (const [row, column] of [
		[3, 3],
		[3, size - 4],
		[size - 4, 3],
	])
		square(row, column, 4, (ring) => ring !== 2 && ring !== 4);
	const places = ALIGNMENT[version - 1];
	const last = places.at(-1);
	for (const row of places)
		for (const column of places) {
			const isCorner = (row === 6 && column === 6) || (row === 6 && column === last) || (row === last && column === 6);
			if (!isCorner) square(row, column, 2, (ring) => ring !== 1);
		}
	for (let bit = 0; bit < 15; bit += 1) {
		const value = ((FORMAT >> bit) & 1) === 1;
		// Around the upper left corner, and again beside the two others.
		set(bit < 6 ? bit : bit < 8 ? bit + 1 : size - 15 + bit, 8, value);
		set(8, bit < 8 ? size - 1 - bit : bit === 8 ? 7 : 14 - bit, value);
	}
	set(size - 8, 8, true);
	for (let bit = 0; version >= 7 && bit < 18; bit += 1) {
		const value = ((VERSION_BITS[version] >> bit) & 1) === 1;
		const [near, far] = [Math.floor(bit / 3), size - 11 + (bit % 3)];
		set(near, far, value);
		set(far, near, value);
	}
}

/** In columns of two, from the lower right, up and down; every second module is inverted (mask 0). */
function placeBits(dark, words) {
	const size = dark.length;
	let at = 0;
	let upwards = true;
	for (let right = size - 1; right > 0; right -= 2, upwards = !upwards) {
		if (right === 6) right -= 1;
		for (let step = 0; step < size; step += 1) {
			const row = upwards ? size - 1 - step : step;
			for (const column of [right, right - 1]) {
				if (dark[row][column] !== null) continue;
				const bit = ((words[at >> 3] ?? 0) >> (7 - (at & 7))) & 1;
				at += 1;
				dark[row][column] = (bit === 1) !== ((row + column) % 2 === 0);
			}
		}
	}
}
