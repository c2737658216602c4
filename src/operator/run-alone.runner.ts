/** One command at a time that reads a file and replaces it, by a lock beside it. */
import { randomUUID } from 'node:crypto';
import { type FileHandle, open, readFile, rm, stat } from 'node:fs/promises';
import { hostname } from 'node:os';
import { setTimeout as wait } from 'node:timers/promises';
import { AgentError } from '../base/errors.ts';
import { errnoOf } from '../base/files.edge.ts';
import { unwritable } from './secret-output.runner.ts';

/** How often a command that writes a file changes its lock, and how long a lock that was left has not changed. */
const [BEAT_MS, STILL_MS] = [1000, 6000];
/** How long a command waits for another one that writes the same file. */
const TURN_MS = 10_000;

/** @throws AgentError `state-in-use`, or that of `run`. */
export async function runAlone<Result>(place: string, run: () => Promise<Result>): Promise<Result> {
	const file = `${place}.lock`;
	const lock = await lockAlone(file, place);
	// Others see by this that it is not left.
	const beat = setInterval(() => void lock.write('.').catch(() => {}), BEAT_MS);
	try {
		return await run();
	} finally {
		clearInterval(beat);
		const { ino } = await lock.stat();
		// A command that has taken it for left has one of its own there.
		if ((await stat(file).catch(() => null))?.ino === ino) await rm(file, { force: true });
		await lock.close();
	}
}

/** Another signing takes a moment; what a killed one has left is passed over. @throws AgentError `state-in-use`. */
async function lockAlone(file: string, place: string): Promise<FileHandle> {
	const beganMs = performance.now();
	let seen = { text: '', sinceMs: beganMs };
	for (;;) {
		const lock = await open(file, 'wx').catch((error: unknown) => {
			if (errnoOf(error) !== 'EEXIST') throw unwritable(file, error);
		});
		if (lock) {
			await lock.write(`${hostname()} ${process.pid} ${randomUUID()}\n`).catch(async (error: unknown) => {
				await lock.close();
				await rm(file, { force: true });
				throw unwritable(file, error);
			});
			return lock;
		}
		const nowMs = performance.now();
		const text = await readFile(file, 'utf8').catch((error: unknown) => {
			if (errnoOf(error) === 'EISDIR') throw unwritable(file, error);
			return '';
		});
		if (text !== seen.text) seen = { text, sinceMs: nowMs };
		if (isLeft(text, nowMs - seen.sinceMs)) await rm(file, { force: true });
		else if (nowMs - beganMs < TURN_MS) await wait(100);
		else
			throw new AgentError('state-in-use', `Another idv has been writing ${place} for more than ${TURN_MS / 1000} s.`, {
				remedy: `Run the command again when it has ended. If none is running, remove ${file}.`,
			});
	}
}

/** Whether the process that made the lock is gone: one of this machine at once. The clock of another one says nothing here, but its lock stands still. */
function isLeft(text: string, stillMs: number): boolean {
	const [host, pid] = text.trim().split(' ');
	if (host !== hostname() || !Number(pid)) return stillMs > STILL_MS;
	try {
		process.kill(Number(pid), 0);
		return false;
	} catch (error) {
		return errnoOf(error) === 'ESRCH';
	}
}
