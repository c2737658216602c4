/** The real timers that the project's own code has set and that are neither over nor cleared, by the place that set them. */
import { createHook } from 'node:async_hooks';
import { resolve } from 'node:path';

const SOURCES = `${resolve(import.meta.dirname, '../../src')}/`;
/** By the id of their asynchronous resource. The embedded service is in the place of another machine. */
const running = new Map<number, string>();

createHook({
	init(id, type) {
		if (type !== 'Timeout') return;
		const frames = new Error().stack?.split('\n').slice(2) ?? [];
		const place = frames.find((frame) => frame.includes(SOURCES));
		// Node ends those of a signal when nothing waits for it any more.
		if (!place || frames.some((frame) => /\/src\/service\/|AbortSignal\.timeout/.test(frame))) return;
		running.set(id, /\/src\/[^)]*/.exec(place)?.[0].slice(1) ?? place);
	},
	destroy: (id) => void running.delete(id),
}).enable();

/** Those that were set since, at each call. */
export function watchRealTimers(): () => string[] {
	const before = new Set(running.keys());
	return () => [...running].filter(([id]) => !before.has(id)).map(([, place]) => place);
}
