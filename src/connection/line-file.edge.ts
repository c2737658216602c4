/**
 * The file `line.json` beside the state: what was learned of the way to the service. Of its own, so that older releases, which
 * know no such file, read their state as before. Holds no secret; a file that cannot be read or written is left alone.
 */
import { renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import * as z from 'zod';
import { type Checked, NOTHING_CHECKED } from '../base/checked.ts';
import { readTextNow } from '../base/files.edge.ts';
import { later } from '../protocol/later.ts';
import type { LineStore, SavedLine } from './line-rhythm.ts';

const MAX_BYTES = 64 * 1024;
const MAX_IDLE_MS = 24 * 60 * 60 * 1000;

const savedLineSchema = later(() =>
	z.object({
		schemaVersion: z.literal(1),
		baseUrl: z.string().max(4096),
		network: z.string().max(64),
		idleMs: z.number().min(1000).max(MAX_IDLE_MS),
	}),
);

const format = (line: SavedLine) => `${JSON.stringify({ schemaVersion: 1, ...line })}\n`;

export function lineFile(stateDir: string, checked: Checked = NOTHING_CHECKED): LineStore {
	const file = join(stateDir, 'line.json');
	return {
		load() {
			try {
				const text = readTextNow(file, MAX_BYTES);
				if (checked.has('line', text)) return JSON.parse(text) as SavedLine;
				const line = savedLineSchema.parse(JSON.parse(text));
				if (format(line) === text) checked.add('line', text);
				return line;
			} catch {
				return null;
			}
		},
		save(line) {
			try {
				if (line === null) return rmSync(file, { force: true });
				// Rare, small and worth nothing after a power cut: in one step, without a flush.
				writeFileSync(`${file}.tmp`, format(line), { mode: 0o600 });
				renameSync(`${file}.tmp`, file);
			} catch {
				// The next start finds it out again.
			}
		},
	};
}
