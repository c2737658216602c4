/** The file of an answer that was set aside: readable for its owner only, one at a time. Leaves no copy. */
import { existsSync } from 'node:fs';
import path from 'node:path';
import { AgentError, type Failure, failure } from '../base/errors.ts';
import { errnoOf, inWords, readText, remove, syncDirectory, writeDurably } from '../base/files.edge.ts';
import { parseJson } from '../protocol/json.ts';
import { type KeptAnswer, keptAnswerSchema, MAX_KEPT_BYTES } from './kept-answer.ts';

const NAME = 'unread-answer.json';
/** JSON writes a character with up to six; the rest is the request. */
const MAX_FILE_BYTES = 8 * MAX_KEPT_BYTES;

export interface AnswerFile {
	/** What lay there when the agent started; `null` for nothing. */
	readonly found: KeptAnswer | null;
	/** Why what lay there is of no use. */
	readonly notice: Failure | null;
	/** @throws the system's error, for `inWords`. */
	save(kept: KeptAnswer): Promise<void>;
	/** Resolves when it is gone for good. @throws AgentError `state-unwritable`. */
	remove(): Promise<void>;
}

/** Looks for a kept answer in the state directory, which exists and belongs to this process alone. Never throws. */
export async function openAnswerFile(stateDir: string): Promise<AnswerFile> {
	const file = path.join(stateDir, NAME);
	const temporary = `${file}.new`;
	// What a crash has left half-written.
	await remove(temporary).catch(() => undefined);
	const { kept, fault } = await readKept(file);
	return {
		found: kept,
		notice:
			fault === null
				? null
				: failure('state-corrupt', `The answer to a pairing code that was kept in ${file} is lost: ${fault}.`, {
						remedy: 'Ask for a new pairing code if this device is not paired.',
					}),
		save: (answer) => writeDurably(file, `${JSON.stringify(answer)}\n`, { temporary }),
		async remove() {
			try {
				if (!existsSync(file)) return;
				await remove(file);
				await syncDirectory(stateDir);
			} catch (error) {
				const message = `The kept answer in ${file} cannot be removed: ${inWords(error)}.`;
				throw new AgentError('state-unwritable', message, { cause: error });
			}
		},
	};
}

/** A kept answer, beside a running agent: for the doctor, and to keep its texts out of a bundle. Never throws. */
export async function readKeptAnswer(stateDir: string): Promise<KeptAnswer | null> {
	return (await readKept(path.join(stateDir, NAME))).kept;
}

async function readKept(file: string): Promise<{ readonly kept: KeptAnswer | null; readonly fault: string | null }> {
	try {
		const document = parseJson(await readText(file, MAX_FILE_BYTES));
		const kept = keptAnswerSchema.safeParse(document);
		return kept.success ? { kept: kept.data, fault: null } : { kept: null, fault: 'it is damaged' };
	} catch (error) {
		if (errnoOf(error) === 'ENOENT') return { kept: null, fault: null };
		return { kept: null, fault: inWords(error) };
	}
}
