/** JSON documents in a log (`record-log.edge.ts`), as a reader finds them who may come beside the process that appends. Writes nothing. */
import { inWords } from './files.edge.ts';
import { EMPTY } from './log-segments.edge.ts';
import { openRecordLog, type RecordLog } from './record-log.edge.ts';

/** The documents of a log, and those that are missing: their records were deleted or altered, or the disk has damage. */
export interface Documents<Document> {
	readonly documents: readonly Document[];
	/** Numbers of the oldest and the newest one, lost ones included; those before made room. 0 in an empty log. */
	readonly first: number;
	readonly last: number;
	/** Numbers, and the times of the documents before and after them, ISO 8601. */
	readonly lost: readonly {
		readonly from: number;
		readonly to: number;
		readonly after: string | null;
		readonly before: string | null;
	}[];
	readonly damages: readonly { readonly file: string; readonly message: string }[];
}

/** @param mark as for the log. @throws the system's error when the directory cannot be read. */
export function readDocuments<Document>(directory: string, name: string, mark: string | null): Documents<Document> {
	return reading(directory, name, mark, (log) => documentsOf<Document>(log));
}

/** Of any log. Empty files of the events are left out, as the agent does, which tells a gap where an event is missing. @throws the system's error when the directory cannot be read. */
export function readDamages(directory: string, name: string, mark: string | null): Documents<unknown>['damages'] {
	const found = reading(directory, name, mark, (log) => damagesOf(log, true));
	return found.filter(({ message }) => name !== 'events' || message !== EMPTY);
}

function reading<Result>(
	directory: string,
	name: string,
	mark: string | null,
	read: (log: RecordLog) => Result,
): Result {
	let failed: unknown = null;
	const log = openRecordLog({
		...{
			directory,
			name,
			mark,
			access: 'read',
			maxBytes: () => 0,
			head: () => new Uint8Array(0),
			schedule: () => () => {},
		},
		onFailing: (error) => (failed ??= error),
	});
	try {
		if (failed !== null) throw failed;
		return read(log);
	} finally {
		void log.close();
	}
}

const damagesOf = (log: RecordLog, reads = false) =>
	log.damages(reads).map(({ file, error }) => ({ file, message: inWords(error) }));

/** @param after only those after this number. */
export function documentsOf<Document>(log: RecordLog, after = 0): Documents<Document> {
	const documents: Document[] = [];
	const lost: Documents<Document>['lost'][number][] = [];
	const timeOf = (number: number) => {
		const ms = log.timeOf(number);
		return ms === null ? null : new Date(ms).toISOString();
	};
	for (const found of log.after(after))
		if ('payload' in found) documents.push(JSON.parse(new TextDecoder().decode(found.payload)));
		else {
			const { lostFrom: from, number: to } = found;
			lost.push({ from, to, after: timeOf(from - 1), before: timeOf(to + 1) });
		}
	const first = documents.length + lost.length > 0 ? log.first() : 0;
	return { documents, first, last: log.last(), lost, damages: damagesOf(log) };
}
