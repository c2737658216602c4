/** What an agent that was killed has left on the disk, read from a copy so that nothing of it is touched. */
import { copyFileSync, existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { openEventTable } from '../../src/events/event-table.edge.ts';

export interface StoredEvent {
	readonly id: string;
	readonly number: number;
	/** Also of an event that was acknowledged and whose content is gone. */
	readonly serviceId: string | null;
	readonly hasContent: boolean;
}

/** In order; none when nothing was ever stored. */
export function readInboxFile(stateDir: string): StoredEvent[] {
	if (!existsSync(join(stateDir, 'events.db'))) return [];
	const directory = mkdtempSync(join(tmpdir(), 'idv-inbox-'));
	try {
		for (const name of ['events.db', 'events.db-wal', 'events.db-tail', 'events.db-tail2'])
			if (existsSync(join(stateDir, name))) copyFileSync(join(stateDir, name), join(directory, name));
		// What the tail beside it has comes into it.
		openEventTable(join(directory, 'events.db')).close();
		const database = new DatabaseSync(join(directory, 'events.db'));
		const isMade = database.prepare("SELECT 1 FROM sqlite_schema WHERE name = 'event'").get();
		const rows = isMade
			? database.prepare('SELECT number, epoch, service_id AS serviceId, content FROM event ORDER BY number').all()
			: [];
		database.close();
		return rows.map(({ number, epoch, serviceId, content }) => ({
			id: `${epoch}-${number}`,
			number: Number(number),
			// Behind the id there is what tells the messages of one id apart.
			serviceId: (serviceId as string | null)?.split('\u001f')[0] ?? null,
			hasContent: content !== null,
		}));
	} finally {
		rmSync(directory, { recursive: true });
	}
}
