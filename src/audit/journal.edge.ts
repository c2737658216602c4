/** Lines for the system's journal, one connection each, closed at once. Source: sd_journal_stream_fd(3). */
import { connect } from 'node:net';

/** `journalctl -t idv-agent-audit` */
export const AUDIT_IDENTIFIER = 'idv-agent-audit';
export const JOURNAL_SOCKET = '/run/systemd/journal/stdout';

/** Longest wait for the journal to take a line, in milliseconds. */
const DEADLINE_MS = 5000;
const NOTICE = 5;

/** Sends one line, and resolves when the journal has it or cannot have it. Never rejects. */
export function sendToJournal(line: string, socketPath = JOURNAL_SOCKET): Promise<void> {
	return new Promise((resolve) => {
		const socket = connect({ path: socketPath });
		socket.setTimeout(DEADLINE_MS, () => socket.destroy());
		socket.on('error', () => {});
		socket.once('close', () => resolve());
		// Identifier, unit (left to the journal), priority, and no for: level prefix, syslog, kernel log, console.
		socket.end(`${AUDIT_IDENTIFIER}\n\n${NOTICE}\n0\n0\n0\n0\n${line}\n`);
		socket.resume();
	});
}
