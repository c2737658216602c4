/**
 * The file `page.html` in the run directory, by which the kiosk's browser opens the page: it leads there with a secret behind `#`,
 * which no request, no process list and no user outside of the applications' group sees. It stays the same until the machine
 * starts again, so that a page which is open outlives a start of the agent.
 */
import { randomBytes } from 'node:crypto';
import fs from 'node:fs';
import { readTextNow } from '../base/files.edge.ts';

const MAX_BYTES = 1024;

/** For its owner alone; the group is let in afterwards. @returns the secret. @throws the system's error. */
export function writeOpening(file: string, url: string): string {
	const secret = readSecret(file) ?? randomBytes(16).toString('hex');
	const temporary = `${file}.tmp`;
	fs.rmSync(temporary, { force: true });
	const html = `<!doctype html><meta http-equiv="refresh" content="0; url=${url}#${secret}">\n`;
	fs.writeFileSync(temporary, html, { mode: 0o600, flag: 'wx' });
	fs.renameSync(temporary, file);
	return secret;
}

/** Only of a file that other users could not have written or read. */
function readSecret(file: string): string | null {
	try {
		const { uid, mode } = fs.lstatSync(file);
		if (uid !== process.getuid?.() || (mode & 0o027) !== 0) return null;
		return /#([0-9a-f]{32})"/.exec(readTextNow(file, MAX_BYTES))?.[1] ?? null;
	} catch {
		return null;
	}
}
