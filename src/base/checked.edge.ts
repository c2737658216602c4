/**
 * The file `checked.json` in the state directory: digests of the texts that this build has checked. Holds no text and no
 * secret, and is worth nothing to another build. Never throws: without it everything is checked.
 */
import { createHash } from 'node:crypto';
import { renameSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { type Checked, NOTHING_CHECKED } from './checked.ts';
import { readTextNow } from './files.edge.ts';

/** Built in by the bundler: a hash of the program. Sources, which anyone may edit, have none and trust nothing. */
declare const IDV_AGENT_BUILD: string | undefined;

/** The newest are kept: state, settings and what else is read at a start, of two builds. */
const MAX_DIGESTS = 16;
const MAX_BYTES = 64 * 1024;

/** @param build a hash of the running program; default the one that is built in. */
export function openChecked(
	stateDir: string,
	build = typeof IDV_AGENT_BUILD === 'string' ? IDV_AGENT_BUILD : null,
): Checked {
	if (build === null) return NOTHING_CHECKED;
	const file = path.join(stateDir, 'checked.json');
	const digestOf = (kind: string, text: string) =>
		createHash('sha256').update(`${build}\0${kind}\0${text}`).digest('base64');
	let digests = read(file);
	return {
		has: (kind, text) => digests.includes(digestOf(kind, text)),
		add(kind, text) {
			const digest = digestOf(kind, text);
			if (digests.includes(digest)) return;
			digests = [digest, ...digests].slice(0, MAX_DIGESTS);
			try {
				// Rare, small and worth nothing after a power cut: in one step, without a flush.
				writeFileSync(`${file}.new`, `${JSON.stringify({ digests })}\n`, { mode: 0o600 });
				renameSync(`${file}.new`, file);
			} catch {
				// Checked again at the next start.
			}
		},
	};
}

function read(file: string): readonly string[] {
	try {
		const { digests } = JSON.parse(readTextNow(file, MAX_BYTES)) as { digests?: unknown };
		return Array.isArray(digests) ? digests.filter((digest) => typeof digest === 'string').slice(0, MAX_DIGESTS) : [];
	} catch {
		return [];
	}
}
