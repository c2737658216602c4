/**
 * The device's state on disk: one document in two files, each whole and flushed, written by one process at a time.
 * A wrong byte in one costs nothing while the other is whole. Never deletes what it cannot read, never names a value in a message.
 *
 * In the state directory: `state.json` and its copy `state.json.bak` (`copies.edge.ts`); each with `.new` while a save is under way;
 * `state.json.corrupt-<time>`, damaged files set aside; `state.id`, which state the copies are of; `lock.db` (`lock.edge.ts`); `checked.json`, digests of what was
 * checked (`base/checked.edge.ts`).
 */
import { randomUUID } from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';
import type { DatabaseSync } from 'node:sqlite';
import { type Checked, NOTHING_CHECKED } from '../base/checked.ts';
import { AgentError, type Failure } from '../base/errors.ts';
import * as files from '../base/files.edge.ts';
import {
	BACKUP,
	directoryOf,
	type FoundCopies,
	GONE,
	ID,
	type IsOwn,
	LOST,
	type LoadedState,
	openCopies,
	QUARANTINED,
	STATE,
} from './copies.edge.ts';
import type { CopyStamp, WholeCopy } from './copies.ts';
import { type DeviceState, deviceStateSchema, EMPTY_STATE } from './device-state.ts';
import { formDocument, readCopy } from './document.edge.ts';
import { takeLock, unwritableError } from './lock.edge.ts';
import { markOf, stampOf } from './log-mark.edge.ts';
import { withNewerFields } from './newer-fields.ts';

/** Damaged files that are kept; the oldest go. */
export const MAX_QUARANTINED = 5;
/** A probe writes at least as much as any real state, in bytes. */
const PROBE_BYTES = 8 * 1024;

const NEW = '.new';
const TEMPORARY = `${STATE}${NEW}`;
const TEMPORARY_COPY = `${BACKUP}${NEW}`;
const TEMPORARIES = [TEMPORARY, TEMPORARY_COPY];

export interface LoadOptions {
	/** Default: it is. */
	readonly isOwn?: IsOwn;
}

/** One call runs after the other, in the order in which they were made. */
export type StateStore = Awaited<ReturnType<typeof openStateStore>>;

/**
 * Opens the state directory, creates it (0700) if need be, and takes its lock. In a directory that cannot be written the
 * store still loads, with a notice, and every save tries again to become writable.
 * @param options.checked states that need no check; default none.
 * @throws AgentError `state-in-use` while another process has it open; `state-unwritable` when there can be no directory.
 */
export async function openStateStore(stateDir: string, { checked = NOTHING_CHECKED }: { checked?: Checked } = {}) {
	const copies = openCopies(stateDir, checked);
	const { at, savedId } = copies;
	let lock: DatabaseSync | null = null;
	let closing: Promise<void> | null = null;
	let closed = false;
	/** Why there is no lock. */
	let unwritable: Failure | null = null;
	/** The certain content of both copies; `null` until it was loaded or saved, and after a save that failed half-way. */
	let durable: string | null = null;
	/** Whether the state in its place is whole, whatever the copy is. */
	let isWhole = false;
	/** Of the newest save. */
	let stamp: CopyStamp = { id: randomUUID(), save: 0 };
	/** A newer version's, which this one does not know. */
	let newer: WholeCopy['newer'] = {};
	let loaded = false;
	let isOwn: IsOwn = async () => true;
	let last: Promise<unknown> = Promise.resolve();

	try {
		files.makeDirectory(stateDir, 0o700);
	} catch (error) {
		throw unwritableError(stateDir, error, 'The state directory cannot be created');
	}
	await becomeWritable().catch((error) => {
		if (!(error instanceof AgentError) || error.code !== 'state-unwritable') throw error;
		unwritable = error.failure;
	});

	async function becomeWritable(): Promise<void> {
		if (lock) return;
		lock = await takeLock(stateDir);
		unwritable = null;
	}

	async function load(): Promise<LoadedState> {
		// The process that left them is gone: the lock is ours.
		const leftovers = TEMPORARIES.filter((name) => fs.existsSync(at(name)));
		if (lock && leftovers.length > 0) {
			await takeUp();
			for (const name of leftovers) await files.remove(at(name)).catch(() => undefined);
		}
		const notices = unwritable ? [unwritable] : [];
		durable = null;
		const isCutOff = lock === null || leftovers.length > 0;
		const found = await copies.find({ isCutOff, isLocked: lock !== null, isOwn });
		const { choice } = found;
		if (!choice) {
			const told = await loadNone(found);
			stamp = await stampOf(stateDir, copies, found);
			return { state: EMPTY_STATE, notices: [...notices, ...told] };
		}
		const { chosen } = choice;
		isWhole = chosen === found.both[0];
		newer = chosen.newer;
		stamp = await stampOf(stateDir, copies, found);
		// What had to stay in its place is set aside before the first save that works.
		loaded = !choice.setsAside || (await quarantine([copies.fileOfOther(found, chosen)]));
		if (choice.isPair) durable = contentOf(chosen.state, newer);
		else if (lock && loaded) await writeBoth(chosen.state).catch(() => undefined);
		return { state: chosen.state, notices: [...notices, ...copies.told(found, choice)] };
	}

	const isGone = () => durable !== null && !fs.existsSync(at(STATE));

	/** @throws AgentError `state-unreadable` */
	async function loadNone(found: FoundCopies): Promise<Failure[]> {
		const damaged = copies.damaged(found);
		loaded =
			damaged.length === 0 ||
			(await quarantine(
				damaged.map(({ file }) => file),
				LOST,
			));
		const { told, wasRemoved } = await copies.toldOfNone(
			damaged.map(({ reason }) => reason),
			loaded,
		);
		const mark = at(`${QUARANTINED}${nowInName()}${GONE}`);
		if (wasRemoved && lock) await fs.promises.writeFile(mark, '', { mode: 0o600 }).catch(() => undefined);
		return told;
	}

	/**
	 * Puts a state in its place that was whole on the disk when its save was cut off, if it has the outcome of an attempt that
	 * is open in the one before: a code is good only once.
	 */
	async function takeUp(): Promise<void> {
		try {
			const [unsaved, ...copies] = await Promise.all(
				[TEMPORARY, STATE, BACKUP].map((name) => readCopy(at(name), checked, false)),
			);
			const before = copies.find((copy) => copy.kind === 'whole');
			if (unsaved?.kind !== 'whole' || !before?.state.attempt || unsaved.state.attempt !== null) return;
			await files.syncFile(at(TEMPORARY));
			fs.renameSync(at(TEMPORARY), at(STATE));
			await files.syncDirectory(stateDir);
		} catch {
			// The state before it is as good as it was.
		}
	}

	/** Sets files aside; whether all of them are. */
	async function quarantine(damaged: readonly string[], mark = ''): Promise<boolean> {
		if (lock === null) return false;
		const time = nowInName();
		try {
			for (const file of damaged) fs.renameSync(file, at(`${QUARANTINED}${time}${mark}${path.extname(file)}`));
			await files.syncDirectory(stateDir);
			const kept = copies.quarantined().filter((name) => !name.startsWith(`${QUARANTINED}${time}`));
			// A directory stays: what is in it may be another's.
			for (const name of kept.slice(0, Math.max(0, kept.length + damaged.length - MAX_QUARANTINED)))
				await files.remove(at(name)).catch(() => undefined);
			return true;
		} catch {
			return false;
		}
	}

	const nowInName = () => new Date().toISOString().replaceAll(':', '-');

	async function replace(state: DeviceState, forget: boolean): Promise<void> {
		await becomeWritable();
		// A file must be known before it may be replaced, and must not be a newer agent's.
		if (!loaded) await load();
		// What belonged to a service goes with it.
		if (state.pairing === null) newer = {};
		try {
			if (isGone() || contentOf(state, newer) !== durable) await writeBoth(state);
			if (!forget) return;
			for (const name of copies.quarantined()) removeAll(at(name));
			await files.syncDirectory(stateDir);
		} catch (error) {
			throw unwritableError(stateDir, error, 'The state cannot be saved');
		}
	}

	/** Both are whole on the disk before one of them takes the place of what was there: a save that fails changes nothing. */
	async function writeBoth(state: DeviceState): Promise<void> {
		stamp = { ...stamp, save: stamp.save + 1, directory: directoryOf(stateDir) };
		const text = formDocument(state, newer, stamp);
		try {
			const written = await Promise.allSettled(TEMPORARIES.map((name) => files.writeWhole(at(name), text)));
			for (const one of written) if (one.status === 'rejected') throw one.reason;
			// From here to the end a failure leaves it open which of two good files is in place.
			durable = null;
			for (const name of TEMPORARIES) takePlace(name);
			await files.syncDirectory(stateDir);
			isWhole = true;
		} catch (error) {
			await removeTemporaries();
			if (!isWhole || !files.isDiskFull(error)) throw error;
			const areBoth = await writeInTurn(formDocument(state, newer, { ...stamp, mayBeAlone: true })).catch(() => {
				throw error;
			});
			if (!areBoth) return;
		}
		durable = contentOf(state, newer);
		if ((await savedId()) !== stamp.id)
			await files.writeDurably(at(ID), `${stamp.id}\n`, { temporary: at(`${ID}${NEW}`) }).catch(() => undefined);
		// Read again, what is not checked is looked through for them.
		if (Object.keys(newer).length === 0) checked.add('state', text);
	}

	/**
	 * On a full disk the new state is written over the copy, in the room that this has: a device can be moved and unpaired.
	 * At each moment one of the two is whole in its place. @returns whether both are; one is enough to have saved.
	 */
	async function writeInTurn(text: string): Promise<boolean> {
		durable = null;
		const old = fs.readFileSync(at(STATE));
		try {
			// By this name the next start knows that a save was cut off.
			fs.renameSync(at(BACKUP), at(TEMPORARY_COPY));
			await files.syncDirectory(stateDir);
			await files.overwrite(at(TEMPORARY_COPY), text);
			fs.renameSync(at(TEMPORARY_COPY), at(STATE));
			await files.syncDirectory(stateDir);
		} catch (error) {
			await removeTemporaries();
			await files.writeWhole(at(BACKUP), old).catch(() => files.remove(at(BACKUP)));
			throw error;
		}
		try {
			await files.writeWhole(at(TEMPORARY_COPY), text);
			takePlace(TEMPORARY_COPY);
			await files.syncDirectory(stateDir);
			return true;
		} catch {
			await removeTemporaries();
			return false;
		}
	}

	const takePlace = (temporary: string) => fs.renameSync(at(temporary), at(path.basename(temporary, NEW)));

	async function removeTemporaries(): Promise<void> {
		for (const name of TEMPORARIES) await files.remove(at(name)).catch(() => undefined);
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
		 * The newest whole state, which both copies hold afterwards; {@link EMPTY_STATE} on a device that has none. Damaged files are set aside.
		 * @throws AgentError `state-unreadable` when a file is there but cannot be read, or a newer agent wrote it: nothing is touched.
		 */
		load: (options: LoadOptions = {}) => {
			isOwn = options.isOwn ?? isOwn;
			return next(load);
		},
		/**
		 * Resolves when the state, as it was at the call, would survive a power cut. A state equal to the saved one writes nothing.
		 * With `forgetsOlder` no file that was set aside is left either: a token that is gone from the state is gone from the disk.
		 * @throws AgentError `state-unwritable`: the old state is intact; `state-unreadable` as in `load`.
		 */
		save: async (state: DeviceState, { forgetsOlder = false }: { forgetsOlder?: boolean } = {}): Promise<void> => {
			const valid = validated(state);
			return next(() => replace(valid, forgetsOlder));
		},
		/**
		 * Writes and removes a file of the size of a state, flushed unless a save follows anyway.
		 * @throws AgentError `state-unwritable` if a save would fail now.
		 */
		probe: ({ flushes = true } = {}) =>
			next(async () => {
				await becomeWritable();
				const blanks = ' '.repeat(Math.max(PROBE_BYTES, 3 * (durable?.length ?? 0)));
				try {
					await files.remove(at(TEMPORARY));
					if (flushes) await files.writeWhole(at(TEMPORARY), blanks);
					else fs.writeFileSync(at(TEMPORARY), blanks, { flag: 'wx', mode: 0o600 });
				} catch (error) {
					throw unwritableError(stateDir, error, 'The state could not be saved');
				} finally {
					await files.remove(at(TEMPORARY)).catch(() => undefined);
				}
			}),
		/** Whether what was saved was removed by another. */
		isGone,
		/** Of the logs beside this state, once it was loaded. */
		get logMark() {
			return markOf(stamp);
		},
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

const contentOf = (state: DeviceState, newer: WholeCopy['newer']) => JSON.stringify(withNewerFields(state, newer));

function validated(state: DeviceState): DeviceState {
	// A state that could not be loaded again must not replace one that can.
	const valid = deviceStateSchema.safeParse(state);
	if (valid.success) return valid.data;
	const where = valid.error.issues[0]?.path.join('.') ?? '';
	throw new AgentError('internal', `A state that is not valid was not saved (${where}).`);
}

/** A damaged file may be a directory, and it is not to keep what is forgotten. */
const removeAll = (file: string) => fs.rmSync(file, { recursive: true, force: true });
