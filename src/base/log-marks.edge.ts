/** Whose a log is, without opening it: the mark of its newest file that has one. Writes nothing. */
import fs from 'node:fs';
import path from 'node:path';
import { HEADER_BYTES, markByHead, parseSegmentName, recordFormat } from './record-format.ts';

const { O_NOFOLLOW, O_NONBLOCK, O_RDONLY } = fs.constants;

export function newestMark(directory: string, log: string): string | null {
	const found = namesIn(directory).flatMap((file) => {
		const name = parseSegmentName(log, file);
		return name ? [{ ...name, file }] : [];
	});
	for (const { file } of found.sort((one, other) => other.sequence - one.sequence)) {
		const mark = markIn(directory, file);
		if (mark !== null) return mark;
	}
	return null;
}

function namesIn(directory: string): string[] {
	try {
		return fs.readdirSync(directory);
	} catch {
		return [];
	}
}

function markIn(directory: string, file: string): string | null {
	try {
		const descriptor = fs.openSync(path.join(directory, file), O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
		try {
			const bytes = Buffer.alloc(HEADER_BYTES);
			fs.readSync(descriptor, bytes, 0, HEADER_BYTES, 0);
			const header = recordFormat(file, process.getBuiltinModule('node:zlib').crc32).headerAt(bytes, 0);
			return header?.kind === 'head' ? markByHead(header) : null;
		} finally {
			fs.closeSync(descriptor);
		}
	} catch {
		// It says nothing about whose it is.
		return null;
	}
}
