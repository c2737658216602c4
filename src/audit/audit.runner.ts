/**
 * The audit log: who asked what of this device, by which entrance, with what result, and what changed because of it. Writes at a
 * bounded pace and nothing while nothing happens; holds no personal data and no secret. Never throws, and no caller waits for it.
 * Its entries are records of a log (docs/log.md): numbered, so that one that was taken away or altered is noticed.
 */
import { type Clock, isoNow } from '../base/clock.edge.ts';
import { documentsOf, readDocuments } from '../base/documents.edge.ts';
import { AgentError, type Failure, failure } from '../base/errors.ts';
import { inWords } from '../base/files.edge.ts';
import { openRecordLog } from '../base/record-log.edge.ts';
import type { Shaper } from '../base/shapes.ts';
import type { AuditEntry } from '../protocol/local-api.ts';
import { leftOutOf, NO_PACES, PACE, paced } from './pace.ts';

/** What is recorded; time and version are added. */
export type AuditFact = Omit<AuditEntry, 'at' | 'version'>;

export type Audit = Awaited<ReturnType<typeof openAudit>>;

/** These destroy, move or change who may: of one kind so many in a row are written that a flood of it leaves room for the others. */
const LASTING = [
	'acceptIdentity',
	'eraseEvents',
	'forgetPlan',
	'moved',
	'pair',
	'paired',
	'planHandedOver',
	'planKeysChanged',
	'setWorkflow',
	'settingTaken',
	'unpair',
];
const LASTING_PACE = { ...PACE, burst: 100 };
const NAME = 'audit';
/** On the disk: some 1,400 entries. */
export const MAX_AUDIT_BYTES = 512 * 1024;

/** Records nothing: for simulated devices. */
export const NO_AUDIT: Pick<Audit, 'record' | 'settled'> = { record() {}, settled: async () => {} };

const bytesOf = (document: object) => new TextEncoder().encode(JSON.stringify(document));

/** Of a count: what is counted. */
const keyOf = ({ action, entrance, result }: AuditFact) => JSON.stringify([action, entrance, result === 'ok']);
const paceOf = ({ action, result }: AuditFact) => (result === 'ok' && LASTING.includes(action) ? LASTING_PACE : PACE);

interface AuditParts {
	readonly stateDir: string;
	/** Of the logs of this device. */
	readonly logMark?: string | null;
	readonly version: string;
	readonly clock: Pick<Clock, 'wallMs' | 'monotonicMs' | 'schedule'>;
	/** Writes what goes to the journal. */
	readonly shaper: Shaper;
	/** Versions that did not work here and were taken back. */
	readonly takenBack?: readonly string[];
	/** Where each line goes besides the log. */
	readonly journal: (line: string) => Promise<void>;
	/** Told when the log cannot be written, and `null` when it can again. Not before this function has resolved. */
	readonly onSaved: (problem: Failure | null) => void;
}

/** Writes an entry at once where another version of the agent wrote the newest one. */
export async function openAudit(parts: AuditParts) {
	const { stateDir, version, clock } = parts;
	const listeners = new Set<(entry: AuditEntry) => void>();
	let paces = NO_PACES;
	/** Counts of a process before this one that did not live to write them. */
	let found: Readonly<Record<string, number>> = {};
	let isOpen = false;
	let problem: Failure | null = null;
	const counts = () => bytesOf(isOpen ? leftOutOf(paces) : found);
	const log = openRecordLog({
		...{ directory: stateDir, name: NAME, mark: parts.logMark ?? null },
		...{ maxBytes: () => MAX_AUDIT_BYTES, head: counts, wallMs: clock.wallMs, schedule: clock.schedule },
		onFound(states) {
			for (const state of states) found = JSON.parse(new TextDecoder().decode(state));
		},
		onFailing(error) {
			const message = `The audit log in ${stateDir} cannot be written: ${inWords(error)}.`;
			problem = error === null ? null : failure('state-unwritable', message);
			if (isOpen) parts.onSaved(problem);
		},
	});

	function write(fact: AuditFact): void {
		const entry: AuditEntry = { at: isoNow(clock), ...fact, version };
		log.append(bytesOf(entry), clock.wallMs());
		// What failed at the start was not told.
		if (problem && isOpen) parts.onSaved(problem);
		void parts.journal(JSON.stringify(parts.shaper.document(entry)));
		for (const listener of listeners) listener(entry);
	}

	function writeCounts(leftOut: Readonly<Record<string, number>>, more: Pick<AuditFact, 'atLeast'> = {}): void {
		for (const [key, count] of Object.entries(leftOut)) {
			const [of, entrance, isOk] = JSON.parse(key) as [string, string, boolean];
			write({ action: 'leftOut', entrance, result: isOk ? 'ok' : 'refused', of, count, ...more });
		}
		if (Object.keys(leftOut).length > 0) log.note(counts());
	}

	const [newest] = documentsOf<AuditEntry>(log, log.last() - 1).documents;
	isOpen = true;
	// Those since the newest note are not known.
	writeCounts(found, { atLeast: true });
	if (newest && newest.version !== version) {
		const result = parts.takenBack?.includes(newest.version) ? 'update-taken-back' : 'ok';
		write({ action: 'updated', entrance: 'agent', result, from: newest.version, to: version });
	}
	return {
		/** The number of the newest entry that is on the disk; `null` while the disk cannot take any. */
		newest: (): number | null => (problem === null ? log.last() : null),
		/** Resolves when what was recorded so far is on the disk, or cannot be. */
		settled: () => log.settled(),
		record(fact: AuditFact) {
			// Erasures are told one by one: there is an end of what can be erased.
			if ((fact.count ?? 0) > 0) return write(fact);
			const key = keyOf(fact);
			const pace = paced(paces, key, clock.monotonicMs(), paceOf(fact));
			paces = pace.paces;
			if (pace.leftOut > 0) writeCounts({ [key]: pace.leftOut });
			if (pace.isAllowed) write(fact);
			if (pace.isNoted) log.note(counts());
		},
		/** Oldest first. */
		read: (): Promise<readonly AuditEntry[]> => log.settled().then(() => documentsOf<AuditEntry>(log).documents),
		/** Calls back with each new entry until the returned function is called. */
		subscribe(listener: (entry: AuditEntry) => void): () => void {
			listeners.add(listener);
			return () => listeners.delete(listener);
		},
		/** Resolves when what was recorded is on the disk. */
		close(): Promise<void> {
			const leftOut = leftOutOf(paces);
			paces = NO_PACES;
			writeCounts(leftOut);
			return log.close();
		},
	};
}

/** All entries, also beside a running agent, and what is missing of those with numbers. @param logMark `readLogMark`. @throws AgentError `state-unreadable`. */
export async function readAuditLog(stateDir: string, logMark: string | null = null) {
	try {
		return readDocuments<AuditEntry>(stateDir, NAME, logMark);
	} catch (cause) {
		const message = `The audit log in ${stateDir} cannot be read: ${inWords(cause)}.`;
		throw new AgentError('state-unreadable', message, { cause });
	}
}
