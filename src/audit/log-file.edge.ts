/**
 * The audit log on disk: `audit.log` in the state directory, one JSON document a line, and `audit.log.1` with the lines before
 * it. Readable for its owner only, bounded, and on the disk when `append` resolves. Decides nothing about what is written.
 */
import nodeFs from 'node:fs';
import path from 'node:path';
import { errnoOf, readBytes } from '../base/files.edge.ts';
import { parseJson } from '../protocol/json.ts';
import type { AuditEntry } from '../protocol/local-api.ts';

/** Of each of the two files, in bytes: together some 3,000 entries. */
export const MAX_AUDIT_BYTES = 256 * 1024;
/** Longest line that a start looks for, in bytes; entries have some 300. */
const MAX_ENTRY_BYTES = 8192;
const NAME = 'audit.log';
const EARLIER = `${NAME}.1`;

/** Adds a line. @throws the system's error, for `inWords`. */
export async function appendAudit(stateDir: string, line: string): Promise<void> {
	const file = path.join(stateDir, NAME);
	const { size } = await nodeFs.promises.stat(file).catch(() => ({ size: 0 }));
	if (size + line.length > MAX_AUDIT_BYTES) await nodeFs.promises.rename(file, path.join(stateDir, EARLIER));
	const handle = await nodeFs.promises.open(file, 'a+', 0o600);
	try {
		// Put back by a backup, it may have become readable for others.
		await handle.chmod(0o600);
		const { size: end } = await handle.stat();
		const last = Buffer.alloc(1);
		if (end > 0) await handle.read(last, 0, 1, end - 1);
		// A power cut may have left half a line.
		const begin = end > 0 && last[0] !== 0x0a ? '\n' : '';
		await handle.appendFile(`${begin}${line}\n`);
		await handle.datasync();
	} finally {
		await handle.close();
	}
}

/** All entries, oldest first; lines that are damaged are passed over. @throws the system's error when it may not be read. */
export async function readAudit(stateDir: string): Promise<AuditEntry[]> {
	const texts = await Promise.all(
		[EARLIER, NAME].map((name) =>
			readBytes(path.join(stateDir, name), 2 * MAX_AUDIT_BYTES).then(
				(bytes) => bytes.toString(),
				(error: unknown) => {
					if (errnoOf(error) === 'ENOENT') return '';
					throw error;
				},
			),
		),
	);
	return texts.join('').split('\n').flatMap(parseLine);
}

/**
 * The newest entry, as {@link readAudit} would give it; `null` for an empty log. Looks at the ends of the files only: a start
 * needs no more.
 */
export function readNewestAudit(stateDir: string): AuditEntry | null {
	for (const name of [NAME, EARLIER]) {
		const file = path.join(stateDir, name);
		if (!nodeFs.existsSync(file)) continue;
		const descriptor = nodeFs.openSync(file, nodeFs.constants.O_RDONLY | nodeFs.constants.O_NONBLOCK);
		try {
			const { size } = nodeFs.fstatSync(descriptor);
			const end = Buffer.alloc(Math.min(size, MAX_ENTRY_BYTES));
			const length = nodeFs.readSync(descriptor, end, 0, end.length, size - end.length);
			const entry = end.subarray(0, length).toString().split('\n').flatMap(parseLine).at(-1);
			if (entry) return entry;
		} finally {
			nodeFs.closeSync(descriptor);
		}
	}
	return null;
}

function parseLine(line: string): AuditEntry[] {
	const entry = parseJson(line) as AuditEntry | null | undefined;
	return typeof entry?.at === 'string' && typeof entry.action === 'string' ? [entry] : [];
}
