/**
 * The bytes of a record in a segment of a log (`record-log.edge.ts`), and the names of segments. Pure.
 *
 * A record is a header of 56 bytes and a payload, each with a checksum. Both checksums come from the name of the segment with its random salt,
 * as does the marker that each header begins with: what a payload contains can never be taken for a header, a file in the place of another
 * one, also of another log, and a copy under a further name are unreadable instead of wrong, and after damage the next header is found by its
 * marker. Payload checksums include the number, so that no payload passes for that of another record.
 *
 *     0 marker u32 | 4 checksum of the rest of the header u32 | 8 checksum of the payload u32 | 12 length of the payload u32
 *     16 number u48 | 22 kind u8 | 23 erased u8 (0 no, 1 yes, 2 because it is done with) | 24 time f64, milliseconds since 1970 | 32 tag, 24 bytes
 */

export const HEADER_BYTES = 56;
export const TAG_BYTES = 24;

/** The first record of a segment (what a start needs), a note that adds to it, and a numbered record. */
export type Kind = 'head' | 'note' | 'record';
const KINDS: readonly Kind[] = ['head', 'note', 'record'];

export interface Header {
	readonly kind: Kind;
	/** Of a record: its own, rising by one. Of a head or a note: the newest one that was given before it. */
	readonly number: number;
	readonly timeMs: number;
	/** Outlives the payload. Of a head: see {@link tagOfHead}. */
	readonly tag: Uint8Array;
	/** The payload was erased on purpose: whatever bytes are in its place, they are right. */
	readonly isErased: boolean;
	/** It was erased because all that it was for have it. */
	readonly isDone?: boolean;
	/** Of the payload, in bytes. */
	readonly length: number;
}

/** As `crc32` of `node:zlib`. */
export type Checksum = (bytes: Uint8Array, seed: number) => number;

/** @param file the name of the segment. */
export function recordFormat(file: string, checksum: Checksum) {
	const marker = Number.parseInt(file.slice(-20, -12), 16);
	const seed = checksum(new TextEncoder().encode(file), 0);
	const sumOfPayload = (payload: Uint8Array, number: number) => checksum(payload, (seed ^ number) >>> 0);

	/** Writes the header of a record into bytes, with the given checksum of its payload. */
	function put(bytes: Uint8Array, at: number, header: Header, payloadSum: number): void {
		const view = viewOf(bytes, at);
		view.setUint32(0, marker);
		view.setUint32(8, payloadSum);
		view.setUint32(12, header.length);
		view.setUint16(16, Math.floor(header.number / 2 ** 32));
		view.setUint32(18, header.number >>> 0);
		view.setUint8(22, KINDS.indexOf(header.kind));
		view.setUint8(23, header.isErased ? (header.isDone ? 2 : 1) : 0);
		view.setFloat64(24, header.timeMs);
		bytes.set(header.tag.subarray(0, TAG_BYTES), at + 32);
		view.setUint32(4, checksum(bytes.subarray(at + 8, at + HEADER_BYTES), seed));
	}

	return {
		/** The first four bytes of each header. */
		marker: Uint8Array.of(marker >>> 24, (marker >>> 16) & 0xff, (marker >>> 8) & 0xff, marker & 0xff),
		/** Writes a whole record into bytes that have room for it. */
		write(bytes: Uint8Array, at: number, header: Omit<Header, 'length'>, payload: Uint8Array): void {
			put(bytes, at, { ...header, length: payload.length }, sumOfPayload(payload, header.number));
			bytes.set(payload, at + HEADER_BYTES);
		},
		/** Declares the payload of a record erased, in its header. The payload itself is left as it is. */
		declareErased: (bytes: Uint8Array, at: number, header: Header) => put(bytes, at, { ...header, isErased: true }, 0),
		/** The header at a place; `null` where there is none that is whole. */
		headerAt(bytes: Uint8Array, at: number): Header | null {
			if (at + HEADER_BYTES > bytes.length) return null;
			const view = viewOf(bytes, at);
			const kind = KINDS[view.getUint8(22)];
			const isWhole =
				view.getUint32(0) === marker &&
				view.getUint32(4) === checksum(bytes.subarray(at + 8, at + HEADER_BYTES), seed) &&
				kind !== undefined;
			if (!isWhole) return null;
			return {
				kind,
				number: view.getUint16(16) * 2 ** 32 + view.getUint32(18),
				timeMs: view.getFloat64(24),
				tag: bytes.slice(at + 32, at + HEADER_BYTES),
				isErased: view.getUint8(23) !== 0,
				isDone: view.getUint8(23) === 2,
				length: view.getUint32(12),
			};
		},
		/** The payload of a record that begins at a place, whose header is whole; `null` where it is not as it was written. */
		payloadAt(bytes: Uint8Array, at: number, { number, length }: Header): Uint8Array | null {
			const payload = bytes.subarray(at + HEADER_BYTES, at + HEADER_BYTES + length);
			const isWhole = payload.length === length && viewOf(bytes, at).getUint32(8) === sumOfPayload(payload, number);
			return isWhole ? payload : null;
		},
	};
}

const viewOf = (bytes: Uint8Array, at: number) => new DataView(bytes.buffer, bytes.byteOffset + at, HEADER_BYTES);

export const NO_TAG = new Uint8Array(TAG_BYTES);

/** Of {@link tagOfHead}: 16 bytes. */
const MARK_AT = 8;

/**
 * In the tag of a head: the number of the next record, where numbers in between were never given, and the mark of the owner.
 * @param mark 32 hexadecimal digits; `null` for a log that has none, as those of earlier versions.
 */
export function tagOfHead(next: number, mark: string | null): Uint8Array {
	const tag = new Uint8Array(TAG_BYTES);
	new DataView(tag.buffer).setFloat64(0, next);
	for (const [index, digits] of (mark?.match(/../g) ?? []).entries())
		tag[MARK_AT + index] = Number.parseInt(digits, 16);
	return tag;
}

export function markByHead({ tag }: Header): string | null {
	const mark = tag.subarray(MARK_AT);
	return mark.some(Boolean) ? Array.from(mark, (byte) => byte.toString(16).padStart(2, '0')).join('') : null;
}

export const nextByHead = ({ tag }: Header): number => new DataView(tag.buffer, tag.byteOffset).getFloat64(0);

export interface SegmentName {
	readonly sequence: number;
	readonly salt: string;
}

/** `events-00000012-8f3a09c27be14d55.log` */
export const segmentName = (log: string, { sequence, salt }: SegmentName): string =>
	`${log}-${String(sequence).padStart(8, '0')}-${salt}.log`;

/** `null` for the name of anything else. */
export function parseSegmentName(log: string, file: string): SegmentName | null {
	const [, sequence, salt] = /^-(\d{8,15})-([0-9a-f]{16})\.log$/.exec(file.slice(log.length)) ?? [];
	return file.startsWith(log) && sequence !== undefined && salt !== undefined
		? { sequence: Number(sequence), salt }
		: null;
}
