/** Whose the logs beside a state are, for a reader that may come beside the agent. */
import { openStateStore } from './store.edge.ts';

/** Their mark; `null` where the state cannot be read. */
export async function readLogMark(stateDir: string): Promise<string | null> {
	const store = await openStateStore(stateDir, { readonly: true });
	return store.load().then(
		() => store.logMark,
		() => null,
	);
}
