/** Runs generators that yield each file to be flushed before they continue: in the thread pool of libuv, or on this thread. */
import fs from 'node:fs';
import path from 'node:path';

/** Yields open descriptors; it continues when what was written to them would survive a power cut, or gets the error. */
export type Flushes = Generator<number, void, void>;

interface Work {
	readonly steps: Flushes;
	readonly onEnd: (error: unknown) => void;
	descriptor: number;
}

export function createFlushing() {
	let current: Work | null = null;

	/** Continues after a flush, up to the next one or the end. */
	function proceed(work: Work, failure: unknown): void {
		let end: { readonly error: unknown } | null = null;
		try {
			const { done, value } = failure === null ? work.steps.next() : work.steps.throw(failure);
			if (done) end = { error: null };
			else work.descriptor = value;
		} catch (error) {
			end = { error };
		}
		// Another object for each flush: the answer to one that was not waited for is ignored.
		current = end ? null : { ...work };
		if (end) work.onEnd(end.error);
		else flush(current as Work);
	}

	function flush(work: Work): void {
		fs.fsync(work.descriptor, (error) => {
			if (current === work) proceed(work, error);
		});
	}

	return {
		get isBusy() {
			return current !== null;
		},
		/** Begins a work; none may be under way. @param onEnd gets what it has thrown, or `null`, and may start the next one. */
		start(steps: Flushes, onEnd: (error: unknown) => void): void {
			proceed({ steps, onEnd, descriptor: -1 }, null);
		},
		/** Flushes on this thread until no work is under way, also none that another one has started at its end. */
		finish(): void {
			while (current) {
				const work: Work = current;
				let failure: unknown = null;
				try {
					fs.fsyncSync(work.descriptor);
				} catch (error) {
					failure = error;
				}
				proceed(work, failure);
			}
		},
	};
}

/** The whole work on this thread. @throws what the work or a flush throws. */
export function runNow(steps: Flushes): void {
	for (const descriptor of steps) fs.fsyncSync(descriptor);
}

/** Makes the names in the directory of a file durable. */
export function* flushNames(file: string): Flushes {
	const directory = fs.openSync(path.dirname(file), 'r');
	try {
		yield directory;
	} finally {
		fs.closeSync(directory);
	}
}
