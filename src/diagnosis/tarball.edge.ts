/**
 * Packs texts into one .tar.gz. Knows plain files of one directory and nothing else of the format, which is why it needs
 * no library: a header of 512 bytes, the text, zeros. Source: POSIX.1-2024, pax, "ustar Interchange Format".
 */
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
	block.write(name, 0, 'latin1');
	// For its owner only, once unpacked.
	block.write(octal(0o600, 7), 100, 'latin1');
	block.write(octal(0, 7), 108, 'latin1');
	block.write(octal(0, 7), 116, 'latin1');
	block.write(octal(size, 11), 124, 'latin1');
	block.write(octal(Math.max(0, Math.floor(atMs / 1000)), 11), 136, 'latin1');
	block.write('0', 156, 'latin1');
	block.write('ustar\0' + '00', 257, 'latin1');
	// The sum is taken with blanks in its own place.
	block.write(' '.repeat(8), 148, 'latin1');
	block.write(
		`${octal(
			block.reduce((sum, byte) => sum + byte, 0),
			6,
		)}\0 `,
		148,
		'latin1',
	);
	return block;
}
