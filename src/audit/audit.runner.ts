/**
 * The audit log: who asked what of this device, by which entrance, with what result, and what changed because of it. Writes at a
 * bounded pace and nothing while nothing happens; holds no personal data and no secret. Never throws, and no caller waits for it.
 */
import { type Clock, isoNow } from '../base/clock.edge.ts';
import { AgentError, type Failure, failure } from '../base/errors.ts';
import { inWords } from '../base/files.edge.ts';
import { redact, type SecretRegistry } from '../base/redact.ts';
import type { AuditEntry } from '../protocol/local-api.ts';
import { appendAudit, readAudit, readNewestAudit } from './log-file.edge.ts';
import { NO_PACES, paced } from './pace.ts';

/** What is recorded; time and version are added. */
export type AuditFact = Omit<AuditEntry, 'at' | 'version'>;

export type Audit = ReturnType<typeof openAudit>;

/** Records nothing: for simulated devices. */
export const NO_AUDIT: Pick<Audit, 'record'> = { record() {} };

export function openAudit(parts: {
	readonly stateDir: string;
	readonly version: string;
	readonly clock: Pick<Clock, 'wallMs' | 'monotonicMs'>;
	readonly secrets: SecretRegistry;
	/** Versions that did not work here and were taken back. */
	readonly takenBack?: readonly string[];
	/** Where each line goes besides the file. */
	readonly journal: (line: string) => Promise<void>;
	/** Told when the file cannot be written, and `null` when it can again. */
	readonly onSaved: (problem: Failure | null) => void;
}) {
	const { stateDir, version, clock, secrets } = parts;
	const listeners = new Set<(entry: AuditEntry) => void>();
	let paces = NO_PACES;
	let last: Promise<unknown> = Promise.resolve();

	function write(fact: AuditFact): void {
		const entry: AuditEntry = { at: isoNow(clock), ...fact, version };
		const line = redact(JSON.stringify(entry), secrets);
		last = last
			.then(() => appendAudit(stateDir, line))
			.then(
				() => parts.onSaved(null),
				(error: unknown) =>
					parts.onSaved(
						failure('state-unwritable', `The audit log in ${stateDir} cannot be written: ${inWords(error)}.`),
					),
			);
		void parts.journal(line);
		for (const listener of listeners) listener(JSON.parse(line) as AuditEntry);
	}

	const from = newestVersion(stateDir);
	if (from !== undefined && from !== version) {
		const result = parts.takenBack?.includes(from) ? 'update-taken-back' : 'ok';
		write({ action: 'updated', entrance: 'agent', result, from, to: version });
	}
	return {
		record(fact: AuditFact): void {
			const { entrance, result } = fact;
			const pace = paced(paces, `${entrance} ${result === 'ok'}`, clock.monotonicMs());
			paces = pace.paces;
			if (!pace.isAllowed) return;
			if (pace.leftOut > 0) write({ action: 'leftOut', entrance, result, count: pace.leftOut });
			write(fact);
		},
		/** Oldest first. @throws AgentError `state-unreadable`. */
		async read(): Promise<AuditEntry[]> {
			await last;
			return readAuditLog(stateDir);
		},
		/** Calls back with each new entry until the returned function is called. */
		subscribe(listener: (entry: AuditEntry) => void): () => void {
			listeners.add(listener);
			return () => listeners.delete(listener);
		},
		/** Resolves when what was recorded is on the disk. */
		async close(): Promise<void> {
			for (const [key, { leftOut }] of paces) {
				const [entrance = '', isOk] = key.split(' ');
				if (leftOut > 0)
					write({ action: 'leftOut', entrance, result: isOk === 'true' ? 'ok' : 'refused', count: leftOut });
			}
			await last;
		},
	};
}

/** A log that cannot be read now says nothing about updates. */
function newestVersion(stateDir: string): string | undefined {
	try {
		return readNewestAudit(stateDir)?.version;
	} catch {
		return undefined;
	}
}

/** All entries, also beside a running agent. @throws AgentError `state-unreadable`. */
export async function readAuditLog(stateDir: string): Promise<AuditEntry[]> {
	return readAudit(stateDir).catch((cause: unknown) => {
		const message = `The audit log in ${stateDir} cannot be read: ${inWords(cause)}.`;
		throw new AgentError('state-unreadable', message, { cause });
	});
}
