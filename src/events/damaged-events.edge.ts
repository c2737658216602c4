/** Events that cannot be used or stored: damage told from a disk that fails for the moment, and the words for both. Reads no event. */
import { readdirSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { AgentError, type Failure, failure } from '../base/errors.ts';

export const EVENTS_FILE = 'events.db';
/** Damaged files that are kept; the oldest go, and all with the next one after the retention time. */
const MAX_QUARANTINED_EVENTS = 2;

export class NewerVersionError extends Error {
	override readonly name = 'NewerVersionError';
}

const SQLITE_CORRUPT = 11;
const SQLITE_NOTADB = 26;

/** Whether the file itself is of no use, so that trying again would not help. */
export function isDamage(error: unknown): boolean {
	const { errcode } = error as { errcode?: unknown };
	const status = typeof errcode === 'number' ? errcode & 0xff : 0;
	// A table that is not there as it was made is damage as well.
	const isForeign = error instanceof Error && /no such (table|column)|has \d+ columns/.test(error.message);
	return status === SQLITE_CORRUPT || status === SQLITE_NOTADB || isForeign || error instanceof NewerVersionError;
}

/** The warning while events cannot be stored. */
export function unwritableNotice(directory: string, error: unknown): Failure {
	const reason = error instanceof Error ? error.message : String(error);
	return failure(
		'state-unwritable',
		`Events cannot be stored in ${directory} (${reason}); meanwhile they are kept in memory and would be lost with the agent.`,
	);
}

/** The warning about a file that is of no use. @param asideAs where it is now; `null` where it had to stay. */
export function damagedNotice(file: string, asideAs: string | null, error: unknown): Failure {
	if (error instanceof NewerVersionError)
		return failure(
			'state-corrupt',
			`The file with the stored events was written by a newer version of the agent, which this one cannot read: ${asideAs ?? file}.`,
			{ remedy: `Install that version again, stop it, put the file back as ${file} and start it: it has the events.` },
		);
	const isAside = asideAs !== null;
	const what = isAside ? 'was damaged and set aside' : 'is damaged';
	return failure('state-corrupt', `The file with the stored events ${what}: ${file}. The events in it are lost.`, {
		remedy: 'Ask the service for what applications may have missed; check the disk if it happens again.',
	});
}

/** Sets the file aside with its log, and says where it is. Damaged files hold contents too: they go when they are too many. */
export function quarantineTable(directory: string, suffix: string): string {
	const aside = readdirSync(directory)
		.filter((name) => name.startsWith(`${EVENTS_FILE}.corrupt-`) && !name.endsWith('-wal'))
		.sort();
	for (const name of aside.slice(0, Math.max(0, aside.length + 1 - MAX_QUARANTINED_EVENTS)))
		for (const log of ['', '-wal']) rmSync(join(directory, `${name}${log}`), { force: true });
	for (const log of ['-wal', '']) {
		try {
			renameSync(join(directory, `${EVENTS_FILE}${log}`), join(directory, `${EVENTS_FILE}.corrupt-${suffix}${log}`));
		} catch (error) {
			if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
		}
	}
	return join(directory, `${EVENTS_FILE}.corrupt-${suffix}`);
}

/** Deletes the files set aside of which `isOld` says so by their suffix. */
export function dropQuarantined(directory: string, isOld: (suffix: string) => boolean): void {
	for (const name of readdirSync(directory)) {
		const suffix = /^events\.db\.corrupt-(.+?)(-wal)?$/.exec(name)?.[1];
		if (suffix !== undefined && isOld(suffix)) rmSync(join(directory, name), { force: true });
	}
}

/** Whether a step succeeds that may fail. */
export function attempt(step: () => void): boolean {
	try {
		step();
		return true;
	} catch {
		return false;
	}
}

export function unerased(directory: string, cause?: unknown): AgentError {
	const message = `Events cannot be erased in ${directory}: the disk cannot be written.`;
	return new AgentError('state-unwritable', message, {
		cause,
		remedy: 'Make the disk writable, then erase them again.',
	});
}
