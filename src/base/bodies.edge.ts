/** A body from outside, read and unpacked within bounds. Names what is wrong and leaves the words to who asked for it. */
import type { IncomingMessage, OutgoingMessage } from 'node:http';
import type { Socket } from 'node:net';
import { pipeline, type Transform } from 'node:stream';

/** `socket`: the line that it comes by, where that is known. */
type Body = AsyncIterable<Uint8Array> & { readonly socket?: { readonly bytesRead: number } | null };

export interface BoundedBody {
	/** At most as many as were asked for. */
	readonly bytes: Buffer;
	/** Why it is not whole: more came than was asked for, or what the stream said. */
	readonly cut: 'too-large' | Error | null;
}

/** Bytes of a line beyond half as many again as those of its body: heads, and what is read ahead. */
const AROUND_BODY = 128 * 1024;

/** Reads to the end or to the limit, where the stream is destroyed. Never rejects. */
export async function readBounded(body: Body, maxBytes: number): Promise<BoundedBody> {
	const chunks: Uint8Array[] = [];
	let size = 0;
	let cut: BoundedBody['cut'] = null;
	const before = body.socket?.bytesRead ?? 0;
	try {
		for await (const chunk of body) {
			chunks.push(chunk.subarray(0, maxBytes - size));
			size += chunk.length;
			// Chunks of a byte take five hundred times their size in memory, and a microsecond each.
			const isCrumbs = (body.socket?.bytesRead ?? 0) - before > 1.5 * size + AROUND_BODY;
			if (size <= maxBytes && !isCrumbs) continue;
			cut = size > maxBytes ? 'too-large' : new Error('it comes in pieces of a few bytes');
			break;
		}
	} catch (error) {
		cut = error as Error;
	}
	return { bytes: Buffer.concat(chunks), cut };
}

/**
 * The body of a request, for a server: what is too much is read on and thrown away, so that its sender gets to read why. Never
 * rejects. `gone`: the sender has left.
 */
export function readRequest(request: IncomingMessage, maxBytes: number): Promise<Buffer | 'too-large' | 'gone'> {
	return new Promise((resolve) => {
		if (request.destroyed) resolve('gone');
		const chunks: Buffer[] = [];
		let size = 0;
		request.on('data', (chunk: Buffer) => {
			size += chunk.length;
			if (size <= maxBytes) chunks.push(chunk);
			else resolve('too-large');
		});
		request.once('end', () => resolve(Buffer.concat(chunks)));
		request.once('close', () => resolve('gone'));
		request.once('error', () => resolve('gone'));
	});
}

/**
 * A server may answer before it has read all of a body, and close: then the rest of the body is refused, while the answer is there to be
 * read. Node would drop it with the connection. So a refused write only stays unfinished, and reading finds the answer, or the end.
 */
export function readOn(socket: Socket): void {
	const { _write, _writev } = socket;
	const unlessRefused = (done: (error?: Error | null) => void) => (error?: NodeJS.ErrnoException | null) => {
		if (error?.code !== 'EPIPE' && error?.code !== 'ECONNRESET') done(error);
	};
	socket._write = (chunk, encoding, done) => _write.call(socket, chunk, encoding, unlessRefused(done));
	socket._writev = (chunks, done) => _writev?.call(socket, chunks, unlessRefused(done));
}

/** Sends the head at once. Node's own `flushHeaders` would write its bytes above 127 as UTF-8. */
export const sendHead = (message: OutgoingMessage) => void message.write('', 'latin1');

/** The body without its `Content-Encoding`, at most `maxBytes` of it; or why there is none. */
export function unpack(
	bytes: Uint8Array,
	encoding: string | undefined,
	maxBytes: number,
): Uint8Array | 'too-large' | 'unknown-coding' | 'damaged' {
	const codings = codingsOf(encoding);
	if (codings.length === 0 || bytes.length === 0) return bytes;
	const [known] = unpackersOf(codings);
	if (!known || codings.length > 1) return 'unknown-coding';
	try {
		return known[0](bytes, { maxOutputLength: Math.max(1, maxBytes) });
	} catch (error) {
		return (error as NodeJS.ErrnoException).code === 'ERR_BUFFER_TOO_LARGE' ? 'too-large' : 'damaged';
	}
}

/** The same piece by piece, without a bound; `null` where nothing is packed, or in a way that is not known. */
export function unpacking(body: AsyncIterable<Buffer>, encoding: string | undefined): AsyncIterable<Buffer> | null {
	const codings = codingsOf(encoding);
	const unpackers = unpackersOf(codings);
	if (codings.length === 0 || unpackers.length < codings.length) return null;
	return unpackers.reduce((packed, [, create]) => unpacked(packed, create), body);
}

/** No bytes at all are an empty body, as for `unpack`, and not one that was cut. */
async function* unpacked(packed: AsyncIterable<Buffer>, create: Unpacker[1]): AsyncGenerator<Buffer> {
	const rest = packed[Symbol.asyncIterator]();
	const first = await rest.next();
	if (first.done) return;
	// Its reader is told by the last of them.
	yield* pipeline(continued(first, rest), create(first.value), () => {});
}

/** An iteration whose first step was taken already. */
export async function* continued<Piece>(first: IteratorResult<Piece, unknown>, rest: AsyncIterator<Piece>) {
	if (first.done) return;
	yield first.value;
	yield* { [Symbol.asyncIterator]: () => rest };
}

/** Each takes memory and time before there is a byte of the body; 64 KiB of headers name 21,000 of them. */
const MAX_CODINGS = 4;

/** As they are taken off; of too many all that is known is that they are. */
function codingsOf(encoding = ''): readonly string[] {
	const codings = encoding
		.toLowerCase()
		.split(',')
		.map((coding) => coding.trim())
		.filter((coding) => coding !== '' && coding !== 'identity');
	return codings.length > MAX_CODINGS ? ['too many'] : codings.reverse();
}

type Unpacker = readonly [
	whole: (packed: Uint8Array, options: { maxOutputLength: number }) => Uint8Array,
	/** @param first of the bytes. */
	stream: (first: Uint8Array) => Transform,
];

/** Of deflate: many servers leave the header of zlib out, and browsers take both. Source: RFC 9110, 8.4.1.2; RFC 1950, 2.2. */
const hasHeader = ([first = 0]: Uint8Array) => (first & 15) === 8;

/** Those that are known. */
function unpackersOf(codings: readonly string[]): readonly Unpacker[] {
	if (codings.length === 0) return [];
	// Loaded here: most answers are not packed.
	const zlib = process.getBuiltinModule('node:zlib');
	const known = new Map<string, Unpacker>([
		['gzip', [zlib.gunzipSync, () => zlib.createGunzip()]],
		['x-gzip', [zlib.gunzipSync, () => zlib.createGunzip()]],
		[
			'deflate',
			[
				(packed, options) => (hasHeader(packed) ? zlib.inflateSync : zlib.inflateRawSync)(packed, options),
				(first) => (hasHeader(first) ? zlib.createInflate : zlib.createInflateRaw)(),
			],
		],
		['br', [zlib.brotliDecompressSync, () => zlib.createBrotliDecompress()]],
		['zstd', [zlib.zstdDecompressSync, () => zlib.createZstdDecompress()]],
	]);
	return codings.map((coding) => known.get(coding)).filter((unpacker) => unpacker !== undefined);
}
