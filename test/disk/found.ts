/** What a started agent has, read from its socket as applications do. */
import { join } from 'node:path';
import { createLocalClient } from '../../src/client/local-client.edge.ts';
import { type EventPage, LOCAL_ROUTES, type LocalEvent, type Status } from '../../src/protocol/local-api.ts';

export interface Found {
	/** Why it did not start: a code, and its sentence. */
	readonly refused: readonly [code: string, message: string] | null;
	readonly state: Status['state'] | null;
	readonly warnings: readonly string[];
	readonly events: readonly LocalEvent[];
	readonly isEndless: boolean;
}

export const settles = ({ state }: Pick<Status, 'state'>): boolean => ['online', 'unpaired', 'blocked'].includes(state);

export function refused(code: string, message: string): Found {
	return { refused: [code, message], state: null, warnings: [], events: [], isEndless: false };
}

export async function readEverything(directory: string): Promise<Found> {
	const client = createLocalClient({ runDir: join(directory, 'run') });
	const events: LocalEvent[] = [];
	let isEndless = true;
	for (let pages = 0, since = ''; pages < 400; pages += 1) {
		const page = (await client.request('agent', 'GET', `${LOCAL_ROUTES.events}${since}`)) as EventPage;
		events.push(...page.events);
		if (page.events.length === 0) {
			isEndless = false;
			break;
		}
		since = `?since=${page.next}`;
	}
	const { state, warnings } = (await client.request('agent', 'GET', LOCAL_ROUTES.status)) as Status;
	return { refused: null, state, warnings: warnings.map(({ code }) => code), events, isEndless };
}
