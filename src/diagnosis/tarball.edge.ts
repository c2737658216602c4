/** Packs texts into one .tar.gz. Source: POSIX.1-2024, pax, "ustar Interchange Format". */
import { promisify } from 'node:util';
import { gzip } from 'node:zlib';

export interface PackedFile {
	/** Up to 100 bytes of ASCII, `/` between directories. */
	readonly name: string;
	readonly text: string;
}

const BLOCK = 512;

/** @param atMs when the files were made, in milliseconds since 1970. @throws Error for a name that does not fit. */
export function packTarball(files: readonly PackedFile[], atMs: number): Promise<Buffer> {
	const parts = files.flatMap(({ name, text }) => {
		const bytes = Buffer.from(text);
		return [header(name, bytes.length, atMs), bytes, Buffer.alloc((BLOCK - (bytes.length % BLOCK)) % BLOCK)];
	});
	return promisify(gzip)(Buffer.concat([...parts, Buffer.alloc(2 * BLOCK)]));
}

function header(name: string, size: number, atMs: number): Buffer {
	if (!/^[\x21-\x7e]{1,100}$/.test(name)) throw new Error(`${name} cannot be the name of a packed file`);
	const block = Buffer.alloc(BLOCK);
	const octal = (value: number, digits: number) => value.toString(8).padStart(digits, '0');
	const seconds = Math.max(0, Math.floor(atMs / 1000));
	const write = (text: string, offset: number) => block.write(text, offset, 'latin1');
	write(name, 0);
	// For its owner only, once unpacked.
	write(octal(0o600, 7), 100);
	write(octal(0, 7), 108);
	write(octal(0, 7), 116);
	write(octal(size, 11), 124);
	write(octal(seconds, 11), 136);
	write('0', 156);
	write('ustar\0' + '00', 257);
	// The sum is taken with blanks in its own place.
	write(' '.repeat(8), 148);
	const sum = block.reduce((total, byte) => total + byte, 0);
	write(`${octal(sum, 6)}\0 `, 148);
	return block;
}
