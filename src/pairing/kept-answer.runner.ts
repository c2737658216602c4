/** Keeps the one answer that was set aside, in memory and in its file, until it is taken, too old, or over. */
import { type Clock, isoNow } from '../base/clock.edge.ts';
import type { Failure } from '../base/errors.ts';
import { inWords } from '../base/files.edge.ts';
import type { Log } from '../base/log.edge.ts';
import type { Warnings } from '../base/warnings.ts';
import { looksLikeToken } from '../protocol/registration-answer.ts';
import type { DeviceState } from '../state/device-state.ts';
import type { AnswerFile } from './kept-answer.edge.ts';
import { atStart, describeKept, KEPT_MS, type KeptAnswer, keepableTexts, keptToken } from './kept-answer.ts';

const TRY_AGAIN_MS = 60_000;

export type KeptAnswers = ReturnType<typeof keepAnswers>;

export function keepAnswers(parts: {
	readonly clock: Clock;
	readonly log: Pick<Log, 'warn'>;
	readonly file: AnswerFile;
	readonly warnings: Pick<Warnings, 'set'>;
	readonly tokenPointer: () => string | null;
	/** The code that was sent and whose answer is still open, as the state has it now. */
	readonly attempt: () => DeviceState['attempt'];
}) {
	const { clock, file, warnings } = parts;
	let kept: KeptAnswer | null = null;
	/** Why it is in memory only. */
	let unsaved: string | null = null;
	/** The text that a pairing was made with: the answer stays until the device was online, since another text may be the right one. */
	let tried: string | null = null;
	let isClosed = false;
	let cancel = () => {};

	function hold(answer: KeptAnswer, leftMs: number): void {
		kept = answer;
		tried = null;
		dropIn(leftMs);
	}

	function dropIn(ms: number): void {
		cancel();
		cancel = clock.schedule(ms, () => void answers.drop().catch(shown));
	}

	async function save(answer: KeptAnswer): Promise<void> {
		unsaved = await file.save(answer).then(
			() => null,
			(error) => inWords(error),
		);
	}

	function shown(error: unknown): void {
		parts.log.warn(error instanceof Error ? error.message : String(error));
	}

	function described(): Failure | null {
		return kept && describeKept(kept, parts.attempt(), parts.tokenPointer(), unsaved);
	}

	const answers = {
		/** The answer that lies there, if the settings of now find a Connection token in it. */
		ready(): { readonly kept: KeptAnswer; readonly token: string } | null {
			const token = kept && keptToken(kept, parts.tokenPointer());
			return kept && token !== null && token !== tried ? { kept, token } : null;
		},
		/** The device has paired with a text of it, and was not online with that yet. */
		taken(token: string): void {
			tried = token;
			answers.tell();
		},
		get isTaken() {
			return tried !== null;
		},
		/** The attempt whose answer lies there. */
		get attempt(): { readonly attemptId: string; readonly at: string; readonly host: string } | null {
			return kept && { attemptId: kept.attemptId, at: kept.at, host: new URL(kept.baseUrl).host };
		},
		/** What is told of it once the service has refused the same code; `null` where it may not be the answer to that code. @param isUsed whether the service says that the code was used. */
		refused: (isUsed: boolean): Failure | null =>
			kept && (isUsed || kept.texts.some(looksLikeToken))
				? describeKept(kept, parts.attempt(), parts.tokenPointer(), unsaved, true)
				: null,
		/** Sets an answer aside in place of an earlier one. @returns what is told of it; `null` when there is nothing to keep. */
		async keep(answer: Omit<KeptAnswer, 'schemaVersion' | 'at'>): Promise<Failure | null> {
			const texts = keepableTexts(answer.texts);
			if (texts.length === 0) return null;
			const fresh: KeptAnswer = { ...answer, schemaVersion: 1, at: isoNow(clock), texts };
			hold(fresh, KEPT_MS);
			await save(fresh);
			answers.tell();
			return described();
		},
		/** The settings may have changed, or a newer code came to something: tells again where a token is looked for, and of which code it is. */
		tell: () => warnings.set('answer', tried === null ? described() : null),
		/** It is taken, or over. @throws AgentError `state-unwritable` when the file is still there: it is tried again each minute. */
		async drop(): Promise<void> {
			cancel();
			kept = null;
			tried = null;
			unsaved = null;
			answers.tell();
			try {
				await file.remove();
			} catch (error) {
				if (kept === null && !isClosed) dropIn(TRY_AGAIN_MS);
				throw error;
			}
		},
		close(): void {
			isClosed = true;
			cancel();
		},
	};

	const found = file.found && parts.attempt() !== null ? atStart(file.found, clock.wallMs()) : null;
	if (found) {
		hold(found.kept, found.leftMs);
		if (found.kept !== file.found) void save(found.kept);
		answers.tell();
	} else if (file.found || file.notice) void answers.drop().catch(shown);
	return answers;
}
