/**
 * The file `leases.json` in the run directory: the leases that outlive the agent's process, and never the boot of the machine, with
 * which the applications end as well. A file that cannot be read or written is left alone.
 */
import { renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import * as z from 'zod';
import { readTextNow } from '../base/files.edge.ts';
import { later } from '../protocol/later.ts';
import { OWN_NAME } from '../protocol/local-api.ts';
import { KEPT_LEASES, type LeaseStore } from './leases.ts';

/** Far more than the leases that there may be. */
const MAX_BYTES = 64 * 1024;

const keptSchema = later(() =>
	z.object({
		leases: z
			.array(z.object({ name: z.string().regex(OWN_NAME), work: z.string(), sinceMs: z.number(), untilMs: z.number() }))
			.max(KEPT_LEASES),
		waiting: z.object({ workflowId: z.string(), sinceMs: z.number() }).nullable(),
	}),
);

export function leaseFile(runDir: string): LeaseStore {
	const file = join(runDir, 'leases.json');
	return {
		load() {
			try {
				// Most starts find none, and need no schema.
				const text = readTextNow(file, MAX_BYTES);
				return keptSchema.parse(JSON.parse(text));
			} catch {
				return null;
			}
		},
		save(kept) {
			try {
				if (kept.leases.length === 0) return rmSync(file, { force: true });
				// In one step, without a flush: it is worth nothing after a power cut.
				writeFileSync(`${file}.tmp`, JSON.stringify(kept), { mode: 0o600 });
				renameSync(`${file}.tmp`, file);
			} catch {
				// The application renews it.
			}
		},
	};
}
