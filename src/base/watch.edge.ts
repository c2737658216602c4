/** Notices that something in directories may have come, changed or gone. Polls nothing, and does not keep the process alive. */
import { existsSync, type FSWatcher, watch } from 'node:fs';
import path from 'node:path';

/** A directory, there or not, and the names in it that matter. */
export type Watched = readonly [directory: string, isOurs: (name: string) => boolean];

/**
 * Calls back once after something may have changed: `quietMs` after the last change, `maxWaitMs` after the first at most.
 * Directories are watched, and their parents, so that files and directories may be replaced, vanish and appear later; where a
 * link leads to is not watched.
 * @param watched asked again after each change.
 */
export function watchDirectories(
	watched: () => readonly Watched[],
	{ quietMs, maxWaitMs }: { readonly quietMs: number; readonly maxWaitMs: number },
	onChange: () => void,
) {
	let watchers: FSWatcher[] = [];
	let timer: NodeJS.Timeout | null = null;
	let firstChangeMs = 0;
	let closed = false;
	const changed = () => {
		if (closed) return;
		const nowMs = performance.now();
		if (timer) clearTimeout(timer);
		else firstChangeMs = nowMs;
		timer = setTimeout(report, Math.max(0, Math.min(quietMs, firstChangeMs + maxWaitMs - nowMs))).unref();
	};
	const report = () => {
		timer = null;
		// Again each time: a directory may be another one under the same name. Before the report, so that nothing is missed.
		watchAll();
		onChange();
	};
	const watchAll = () => {
		for (const watcher of watchers) watcher.close();
		watchers = [];
		if (closed) return;
		for (const [directory, isOurs] of withParents(watched())) {
			try {
				const watcher = watch(directory, { persistent: false }, (_event, name) => {
					// Systems that don't say the name, and mounted configurations that swap a link called `..data`.
					if (name === null || name.startsWith('..') || isOurs(name)) changed();
				});
				watcher.on('error', changed);
				watchers.push(watcher);
			} catch {
				// What is not there is watched for in its parent; other directories may be closed to this user.
			}
		}
	};
	watchAll();
	return {
		/** What is watched has become something else. */
		again: watchAll,
		close(): void {
			closed = true;
			if (timer) clearTimeout(timer);
			watchAll();
		},
	};
}

/** Each directory once, and the parent of what is there, for the day on which it is replaced; and of everything that is not there yet. */
function withParents(watched: readonly Watched[]): Map<string, Watched[1]> {
	const all = new Map<string, Watched[1]>();
	const add = (directory: string, isOurs: Watched[1]) => {
		const before = all.get(directory);
		all.set(directory, before ? (name) => before(name) || isOurs(name) : isOurs);
	};
	for (const [directory, isOurs] of watched) {
		add(directory, isOurs);
		for (let child = directory; path.dirname(child) !== child; child = path.dirname(child)) {
			const ours = path.basename(child);
			add(path.dirname(child), (name) => name === ours);
			if (existsSync(child)) break;
		}
	}
	return all;
}
