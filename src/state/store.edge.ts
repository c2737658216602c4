/**
 * The device's state on disk: one file, written durably by one process at a time, and the copy before it.
 * Never deletes what it cannot read, never leaves a moment without a good file, never names a value in a message.
 *
 * In the state directory: `state.json`; `state.json.bak`, the state before it; `state.json.new` while a save is under
 * way; `state.json.corrupt-<time>`, damaged files set aside; `lock.db`, always empty, whose lock the kernel gives back
 * when its owner dies; `checked.json`, digests of what was checked (`base/checked.edge.ts`). Nothing in the agent may open `lock.db` itself: closing it would give the lock away.
 */
import fs from 'node:fs';
import path from 'node:path';
import type { DatabaseSync } from 'node:sqlite';
import { type Checked, NOTHING_CHECKED } from '../base/checked.ts';
import { AgentError, type Failure, failure } from '../base/errors.ts';
import {
	errnoOf,
	inWords,
	readText,
	remove,
	syncDirectory,
	syncFile,
	writeDurably,
	writeWhole,
} from '../base/files.edge.ts';
import { type DeviceState, deviceStateSchema, EMPTY_STATE, STATE_SCHEMA_VERSION } from './device-state.ts';
import { newerFields, withNewerFields } from './newer-fields.ts';

/** Damaged files that are kept; the oldest go. */
export const MAX_QUARANTINED = 5;
/** A larger state file is taken for damaged, in bytes. */
const MAX_STATE_BYTES = 1024 * 1024;
/** A probe writes at least as much as any real state, in bytes. */
const PROBE_BYTES = 8 * 1024;

const STATE = 'state.json';
const BACKUP = `${STATE}.bak`;
const TEMPORARY = `${STATE}.new`;
const QUARANTINED = `${STATE}.corrupt-`;
const LOCK = 'lock.db';

export interface LoadedState {
	readonly state: DeviceState;
	/** `state-corrupt`: the state is the copy before it, or empty. `state-unwritable`: no save would work now. */
	readonly notices: readonly Failure[];
}

/** One call runs after the other, in the order in which they were made. */
export type StateStore = Awaited<ReturnType<typeof openStateStore>>;

/**
 * Opens the state directory, creates it (0700) if need be, and takes its lock. In a directory that cannot be written the
 * store still loads, with a notice, and every save tries again to become writable.
 * @param options.checked states that need no check; default none.
 * @param options.readonly takes no lock, changes nothing and saves nothing: for a look beside a running agent.
 * @throws AgentError `state-in-use` while another process has it open; `state-unwritable` when there can be no directory.
 */
export async function openStateStore(stateDir: string, options: { readonly?: boolean; checked?: Checked } = {}) {
	const { checked = NOTHING_CHECKED } = options;
	const at = (name: string) => path.join(stateDir, name);
	let lock: DatabaseSync | null = null;
	let closing: Promise<void> | null = null;
	let closed = false;
	/** Why there is no lock. */
	let unwritable: Failure | null = null;
	/** The certain content of `state.json`; `null` until it was loaded or saved, and after a save that failed half-way. */
	let durable: string | null = null;
	/** A newer version's, which this one does not know. */
	let newer: ReturnType<typeof newerFields> = {};
	let loaded = false;
	let last: Promise<unknown> = Promise.resolve();

	if (!options.readonly) {
		try {
			fs.mkdirSync(stateDir, { recursive: true, mode: 0o700 });
		} catch (error) {
			throw unwritableError(stateDir, error, 'The state directory cannot be created');
		}
		await becomeWritable().catch((error) => {
			if (!(error instanceof AgentError) || error.code !== 'state-unwritable') throw error;
			unwritable = error.failure;
		});
	}

	async function becomeWritable(): Promise<void> {
		if (options.readonly) throw new AgentError('state-unwritable', 'The state is open for reading only.');
		if (lock) return;
		lock = await takeLock(stateDir);
		unwritable = null;
	}

	async function load(): Promise<LoadedState> {
		// The process that left it is gone: the lock is ours.
		if (lock && !(await takeUp())) await remove(at(TEMPORARY)).catch(() => undefined);
		const notices = unwritable ? [unwritable] : [];
		const found = await readState(at(STATE), checked, lock !== null);
		if (found.kind === 'good') {
			newer = found.newer;
			durable = found.text;
			loaded = true;
			return { state: found.state, notices };
		}
		const backup = await readState(at(BACKUP), checked, lock !== null);
		const damaged = [found, backup].filter((file) => file.kind === 'damaged');
		const setAside = lock !== null && (await quarantine(damaged));
		// A damaged file that had to stay is set aside before the first save that works.
		loaded = setAside || damaged.length === 0;
		durable = null;
		const hasCopy = backup.kind === 'good';
		if (hasCopy) newer = backup.newer;
		if (found.kind === 'damaged' || backup.kind !== 'missing') {
			const what = found.kind === 'damaged' ? `is damaged (${found.reason})` : 'is missing';
			const now = hasCopy ? 'the copy before it is used' : 'it has no good copy, and this device starts unpaired';
			const more = setAside && damaged.length > 0 ? {} : { remedy: 'Pair again unless the agent is online.' };
			notices.push(failure('state-corrupt', `The state file ${at(STATE)} ${what}; ${now}.`, more));
		}
		return { state: hasCopy ? backup.state : EMPTY_STATE, notices };
	}

	/**
	 * Puts a state in its place that was whole on the disk when its save was cut off, if it has the outcome of an attempt that
	 * is open in the one before: a code is good only once.
	 */
	async function takeUp(): Promise<boolean> {
		try {
			const unsaved = await readState(at(TEMPORARY), checked);
			if (unsaved.kind !== 'good') return false;
			const [found, backup] = [await readState(at(STATE), checked), await readState(at(BACKUP), checked)];
			const before = found.kind === 'good' ? found : backup;
			if (before.kind !== 'good' || before.state.attempt === null || unsaved.state.attempt !== null) return false;
			await syncFile(at(TEMPORARY));
			if (found.kind === 'good') await keepOld();
			fs.renameSync(at(TEMPORARY), at(STATE));
			await syncDirectory(stateDir);
			return true;
		} catch {
			return false;
		}
	}

	/** Sets damaged files aside; whether all of them are. */
	async function quarantine(damaged: readonly { readonly file: string }[]): Promise<boolean> {
		if (damaged.length === 0) return true;
		const time = new Date().toISOString().replaceAll(':', '-');
		try {
			for (const { file } of damaged) fs.renameSync(file, at(`${QUARANTINED}${time}${path.extname(file)}`));
			await syncDirectory(stateDir);
			const kept = listQuarantined().filter((name) => !name.startsWith(`${QUARANTINED}${time}`));
			for (const name of kept.slice(0, Math.max(0, kept.length + damaged.length - MAX_QUARANTINED)))
				await remove(at(name));
			return true;
		} catch {
			return false;
		}
	}

	const listQuarantined = () =>
		fs
			.readdirSync(stateDir)
			.filter((name) => name.startsWith(QUARANTINED))
			.sort();

	async function forgetOlder(): Promise<void> {
		for (const name of [BACKUP, ...listQuarantined()]) await remove(at(name));
	}

	async function replace(text: string, forget: boolean): Promise<void> {
		await becomeWritable();
		// The file that is there must be known to be good before it may become the copy, and must not be a newer agent's.
		if (!loaded) await load();
		if (text === durable && !forget) return;
		try {
			if (text !== durable) {
				const beforeRename = async () => {
					const hadGood = durable !== null;
					// From here to the end a failure leaves it open which of two good files is in place.
					durable = null;
					// Forgetting comes first: a crash in between leaves the old state in its place, not a stray token.
					if (hadGood) await (forget ? forgetOlder() : keepOld());
				};
				await writeDurably(at(STATE), text, { temporary: at(TEMPORARY), beforeRename });
			}
			if (forget) {
				await forgetOlder();
				await syncDirectory(stateDir);
			}
			durable = text;
			// Read again, what is not checked is looked through for them.
			if (Object.keys(newer).length === 0) checked.add('state', text);
		} catch (error) {
			throw unwritableError(stateDir, error, 'The state cannot be saved');
		}
	}

	async function keepOld(): Promise<void> {
		await remove(at(BACKUP));
		try {
			fs.linkSync(at(STATE), at(BACKUP));
		} catch (error) {
			const code = errnoOf(error);
			if (code === 'ENOENT') return;
			// No hard links here, or not to another user's file: `load` takes the copy when it finds nothing else.
			if (!['EPERM', 'ENOTSUP', 'EOPNOTSUPP', 'ENOSYS', 'EMLINK'].includes(code)) throw error;
			fs.renameSync(at(STATE), at(BACKUP));
		}
	}

	function next<Result>(step: () => Promise<Result>): Promise<Result> {
		const run = async () => {
			if (closed) throw new AgentError('internal', 'The state store is closed.');
			return step();
		};
		const result = last.then(run, run);
		last = result.catch(() => undefined);
		return result;
	}

	return {
		/**
		 * The newest good state; {@link EMPTY_STATE} on a device that has none. Damaged files are set aside.
		 * @throws AgentError `state-unreadable` when a file is there but cannot be read, or a newer agent wrote it: nothing is touched.
		 */
		load: () => next(load),
		/**
		 * Resolves when the state, as it was at the call, would survive a power cut. A state equal to the saved one writes nothing.
		 * With `forgetsOlder` no older copy is left either, so that a token that is gone from the state is gone from the disk.
		 * @throws AgentError `state-unwritable`: the old state is intact; `state-unreadable` as in `load`.
		 */
		save: async (state: DeviceState, { forgetsOlder = false }: { forgetsOlder?: boolean } = {}): Promise<void> => {
			// What belonged to a service goes with it.
			if (state.pairing === null) newer = {};
			const text = serialize(state, newer);
			return next(() => replace(text, forgetsOlder));
		},
		/**
		 * Writes and removes a file of the size of a state, flushed unless a save follows anyway.
		 * @throws AgentError `state-unwritable` if a save would fail now.
		 */
		probe: ({ flushes = true } = {}) =>
			next(async () => {
				await becomeWritable();
				const blanks = ' '.repeat(Math.max(PROBE_BYTES, 2 * (durable?.length ?? 0)));
				try {
					await remove(at(TEMPORARY));
					if (flushes) await writeWhole(at(TEMPORARY), blanks);
					else fs.writeFileSync(at(TEMPORARY), blanks, { flag: 'wx', mode: 0o600 });
				} catch (error) {
					throw unwritableError(stateDir, error, 'The state could not be saved');
				} finally {
					await remove(at(TEMPORARY)).catch(() => undefined);
				}
			}),
		/** Waits for calls under way and gives the lock back. */
		close: () => {
			closing ??= next(async () => {
				closed = true;
				lock?.close();
				lock = null;
			});
			return closing;
		},
	};
}

/** The newest good state, for a look beside a running agent. @throws AgentError `state-unreadable`. */
export async function lookAtState(stateDir: string): Promise<LoadedState> {
	return (await openStateStore(stateDir, { readonly: true })).load();
}

type StateFile =
	| { readonly kind: 'missing' }
	| { readonly kind: 'damaged'; readonly file: string; readonly reason: string }
	| {
			readonly kind: 'good';
			readonly text: string;
			readonly state: DeviceState;
			readonly newer: ReturnType<typeof newerFields>;
	  };

/** @param mayChange whether its permissions may be corrected. */
async function readState(file: string, checked: Checked, mayChange?: boolean): Promise<StateFile> {
	const damaged = (reason: string): StateFile => ({ kind: 'damaged', file, reason });
	let text: string;
	let document: unknown;
	try {
		text = await readText(file, MAX_STATE_BYTES, {
			// Put back by hand or by a backup, it may have become readable for others.
			inspect({ mode }, descriptor) {
				if (mayChange && mode & 0o077) attempt(() => fs.fchmodSync(descriptor, 0o600));
			},
		});
		if (text === '') return damaged('it is empty');
		document = JSON.parse(text);
	} catch (error) {
		if (errnoOf(error) === 'ENOENT') return { kind: 'missing' };
		if (errnoOf(error) === 'too-large') return damaged('it is far too large');
		if (errnoOf(error) === 'not-utf8' || error instanceof SyntaxError) return damaged('it is cut short or overwritten');
		const message = `The state file ${file} cannot be read: ${inWords(error)}.`;
		throw new AgentError('state-unreadable', message, { cause: error });
	}
	if (checked.has('state', text)) return { kind: 'good', text, state: document as DeviceState, newer: {} };
	const version = (document as { schemaVersion?: unknown } | null)?.schemaVersion;
	if (typeof version === 'number' && version > STATE_SCHEMA_VERSION)
		throw new AgentError('state-unreadable', `The state file ${file} was written by a newer version of the agent.`, {
			remedy: 'Install that version again, or move the file away and pair this device again; nothing was changed.',
		});
	const state = deviceStateSchema.safeParse(document);
	if (!state.success) {
		const where = state.error.issues[0]?.path.join('.');
		return damaged(where ? `${where} is not valid` : 'it is not the state of a device');
	}
	if (format(state.data) === text) checked.add('state', text);
	return { kind: 'good', text, state: state.data, newer: newerFields(document, state.data) };
}

function attempt(step: () => void): void {
	try {
		step();
	} catch {
		// Not ours to change: what stands in it is read all the same.
	}
}

const format = (state: object) => `${JSON.stringify(state, null, '\t')}\n`;

function serialize(state: DeviceState, newer: ReturnType<typeof newerFields>): string {
	// A state that could not be loaded again must not replace one that can.
	const valid = deviceStateSchema.safeParse(state);
	if (valid.success) return format(withNewerFields(valid.data, newer));
	const where = valid.error.issues[0]?.path.join('.') ?? '';
	throw new AgentError('internal', `A state that is not valid was not saved (${where}).`);
}

/** The lock of this directory, held until the connection closes or the process dies. It writes nothing. */
async function takeLock(stateDir: string): Promise<DatabaseSync> {
	const file = path.join(stateDir, LOCK);
	try {
		// `access` first: SQLite would open a file that it may only read, and then keep no other process out.
		try {
			fs.accessSync(file, fs.constants.R_OK | fs.constants.W_OK);
		} catch (error) {
			if (errnoOf(error) !== 'ENOENT') throw error;
			// Of two agents that start at once the second must not touch the file of the first.
			await fs.promises.writeFile(file, '', { flag: 'wx', mode: 0o600 }).catch((error) => {
				if (errnoOf(error) !== 'EEXIST') throw error;
			});
		}
		fs.accessSync(stateDir, fs.constants.W_OK);
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

function unwritableError(stateDir: string, error: unknown, what: string): AgentError {
	if (error instanceof AgentError) return error;
	return new AgentError('state-unwritable', `${what} in ${stateDir}: ${inWords(error)}.`, { cause: error });
}
