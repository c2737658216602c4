/**
 * The lock of the state directory: `lock.db`, always empty, whose lock the kernel gives back when its owner dies. Nothing else
 * in the agent may open it: closing it would give the lock away.
 */
import fs from 'node:fs';
import path from 'node:path';
import type { DatabaseSync } from 'node:sqlite';
import { AgentError } from '../base/errors.ts';
import { errnoOf, inWords, roomRemedy } from '../base/files.edge.ts';

/** The lock of this directory, held until the connection closes or the process dies. It writes nothing. */
export async function takeLock(stateDir: string): Promise<DatabaseSync> {
	const file = path.join(stateDir, 'lock.db');
	try {
		const found = fs.lstatSync(file, { throwIfNoEntry: false });
		// In a directory that cannot be written no other lock would help.
		fs.accessSync(stateDir, fs.constants.W_OK);
		if (found?.isSymbolicLink()) throw unusable(file, new Error('it is a link'));
		if (found && !found.isFile()) throw unusable(file, new Error('it is not a regular file'));
		// The lock is always empty, so this is something else; a copy of the directory by links is not.
		if (found && found.nlink > 1 && found.size > 0) throw unusable(file, new Error('it is a link to another file'));
		// `access` first: SQLite would open a file that it may only read, and then keep no other process out.
		try {
			fs.accessSync(file, fs.constants.R_OK | fs.constants.W_OK);
		} catch (error) {
			if (errnoOf(error) !== 'ENOENT') throw unusable(file, error);
			// Of two agents that start at once the second must not touch the file of the first.
			await fs.promises.writeFile(file, '', { flag: 'wx', mode: 0o600 }).catch((error) => {
				if (errnoOf(error) !== 'EEXIST') throw error;
			});
		}
		try {
			return lockFile(file);
		} catch (error) {
			if (sqliteStatus(error) !== SQLITE_NOTADB) throw error;
			// A file that is not a database holds no lock, and nothing in it is of use.
			fs.truncateSync(file);
			return lockFile(file);
		}
	} catch (error) {
		if (sqliteStatus(error) === SQLITE_BUSY)
			throw new AgentError('state-in-use', `Another process uses the state in ${stateDir}.`, { cause: error });
		throw unwritableError(stateDir, error, `The state cannot be ${sqliteStatus(error) ? 'locked' : 'saved'}`);
	}
}

/** The directory is good, and what is in the place of the lock is not. */
function unusable(file: string, cause: unknown): AgentError {
	const first =
		errnoOf(cause) === 'EPERM' ? `Take its attribute away (chattr -i ${file}), then remove it` : `Remove ${file}`;
	return new AgentError(
		'state-unwritable',
		`The state cannot be saved: its lock ${file} cannot be used: ${inWords(cause)}.`,
		{
			cause,
			params: { path: file },
			remedy: `${first}: it holds nothing, and the agent makes another one.`,
		},
	);
}

const SQLITE_BUSY = 5;
const SQLITE_NOTADB = 26;

function sqliteStatus(error: unknown): number {
	const { errcode } = error as { errcode?: unknown };
	return typeof errcode === 'number' ? errcode & 0xff : 0;
}

function lockFile(file: string): DatabaseSync {
	const { DatabaseSync } = process.getBuiltinModule('node:sqlite');
	const database = new DatabaseSync(file);
	try {
		// In memory, or the empty transaction would put a journal on the disk at every start.
		database.exec('PRAGMA journal_mode = MEMORY');
		database.exec('BEGIN EXCLUSIVE');
		return database;
	} catch (error) {
		database.close();
		throw error;
	}
}

export function unwritableError(stateDir: string, error: unknown, what: string): AgentError {
	if (error instanceof AgentError) return error;
	const message = `${what} in ${stateDir}: ${inWords(error)}.`;
	return new AgentError('state-unwritable', message, { cause: error, ...roomRemedy(error) });
}
