/** The agent's side of updates on a device: reads what root has written, and leaves a plan where root looks for it. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { Audit } from '../audit/audit.runner.ts';
import { toFailure } from '../base/errors.ts';
import { writeDurably } from '../base/files.edge.ts';
import type { Log } from '../base/log.edge.ts';
import type { Updates } from '../updates/hand-over.runner.ts';
import { PLAN_FILE, UPDATES_DIRECTORY, UPDATES_PROGRAM } from '../updates/package.ts';
import { NO_RECORDS } from '../updates/record.ts';
import { readPackageVersion, readRecordsNow } from '../updates/records.edge.ts';

/** Records of updates that root owns; most devices have none. @param root of the machine. */
export function readUpdates(root: string): Omit<Updates, 'write'> {
	let version: string | null | undefined;
	return {
		isInstalled: () => existsSync(join(root, UPDATES_PROGRAM)),
		records: () => (existsSync(UPDATES_DIRECTORY) ? readRecordsNow() : NO_RECORDS),
		packageVersion() {
			if (version === undefined) version = readPackageVersion(join(root, 'var/lib/dpkg/status'));
			return version;
		},
	};
}

/** One write follows the other. */
let writing: Promise<void> = Promise.resolve();

/** A failure is logged: the plan is handed over again. */
export function handOverPlan(
	envelope: Uint8Array,
	{ stateDir, audit, log }: { stateDir: string; audit: Pick<Audit, 'record'>; log: Pick<Log, 'info' | 'warn'> },
): void {
	audit.record({ action: 'planHandedOver', entrance: 'plan', result: 'ok' });
	const file = join(stateDir, PLAN_FILE);
	// A kill may leave a part of it, which the next one takes the place of.
	writing = writing
		.then(() => writeDurably(file, envelope, { temporary: `${file}.new` }))
		.then(
			() => log.info('fleet plan handed over: it orders another version of this agent'),
			(error) => log.warn(toFailure(error).message),
		);
}
