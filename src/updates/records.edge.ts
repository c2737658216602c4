/** Root's records of updates, for everyone who may read them: the trial that is under way, and how earlier ones ended. Changes nothing. */
import { access, constants } from 'node:fs/promises';
import { join } from 'node:path';
import { errnoOf, readText, readTextNow } from '../base/files.edge.ts';
import { parseJson } from '../protocol/json.ts';
import { OUTCOMES_FILE, TRIAL_FILE, UPDATES_DIRECTORY } from './package.ts';
import { NO_OUTCOMES, type Outcomes, outcomesSchema, type Records, type Trial, trialSchema } from './record.ts';

const MAX_BYTES = 1024 * 1024;
/** Of dpkg: some hundred bytes for each package of a desktop. */
const MAX_STATUS_BYTES = 32 * 1024 * 1024;

export function openUpdateRecords(directory: string = UPDATES_DIRECTORY) {
	/** `undefined` for what is not there or cannot be read as such. */
	const read = async (file: string) => parseJson(await readText(join(directory, file), MAX_BYTES).catch(() => ''));
	return {
		/** Whether this user may see what is kept: to one who may not, it would look as if nothing had happened. */
		isReadable: (): Promise<boolean> =>
			access(directory, constants.X_OK).then(
				() => true,
				(error) => errnoOf(error) !== 'EACCES',
			),
		async trial(): Promise<Trial | null> {
			return trialSchema.safeParse(await read(TRIAL_FILE)).data ?? null;
		},
		/** Damaged or missing, it is as if nothing had happened yet. */
		async outcomes(): Promise<Outcomes> {
			return outcomesSchema.safeParse(await read(OUTCOMES_FILE)).data ?? NO_OUTCOMES;
		},
	};
}

/** The same for an agent, which asks for it whenever it looks at an order. */
export function readRecordsNow(directory: string = UPDATES_DIRECTORY): Records {
	const read = (file: string) => {
		try {
			return parseJson(readTextNow(join(directory, file), MAX_BYTES));
		} catch {
			return undefined;
		}
	};
	const trial = trialSchema.safeParse(read(TRIAL_FILE)).data ?? null;
	return { trial, outcomes: outcomesSchema.safeParse(read(OUTCOMES_FILE)).data ?? NO_OUTCOMES };
}

/** The version of idv-agent that dpkg has installed, revision and all; `null` for an agent that is in no package. */
export function readPackageVersion(status = '/var/lib/dpkg/status'): string | null {
	try {
		const stanza = /^Package: idv-agent\n(?:.+\n)*/m.exec(readTextNow(status, MAX_STATUS_BYTES))?.[0] ?? '';
		return /^Version: (\S+)$/m.exec(stanza)?.[1] ?? null;
	} catch {
		return null;
	}
}
