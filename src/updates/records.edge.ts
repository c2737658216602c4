/** Root's records of updates, for everyone who may read them: the trial that is under way, and how earlier ones ended. Changes nothing. */
import { access, constants } from 'node:fs/promises';
import { join } from 'node:path';
import { errnoOf, readText } from '../base/files.edge.ts';
import { parseJson } from '../protocol/json.ts';
import { OUTCOMES_FILE, TRIAL_FILE, UPDATES_DIRECTORY } from './package.ts';
import { NO_OUTCOMES, type Outcomes, outcomesSchema, type Trial, trialSchema } from './record.ts';

const MAX_BYTES = 1024 * 1024;

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
