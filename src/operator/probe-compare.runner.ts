/** Whether a channel of `idv probe` with one setting more is better than one without it. Pure. */
import { mayAcknowledge } from './probe-acks.runner.ts';
import { answersAcks } from './probe-asides.runner.ts';
import { type Finding, finding } from './probe-findings.runner.ts';
import { bringsNews, type Guess, notificationsIn } from './probe-guesses.runner.ts';
import { cameAgain, isError, messagesOf, type ReadingSettings, repeated } from './probe-readings.runner.ts';
import type { Life } from './probe-wire.runner.ts';

/** How long it is waited for what a silent channel may say. */
const SILENT_MS = 15_000;
/** That show whether an acknowledgement ends them. */
const ENOUGH_REPEATS = 4;

export interface Comparison {
	readonly form: ReadingSettings;
	readonly settleMs: number;
	readonly answerMs: number;
	/** What both were opened with. */
	readonly settings: Guess['settings'];
	readonly guess: Guess;
	/** How much of both counts. */
	readonly ms: number;
}

/** The time of a channel in which another one shows whether it is better. */
export function enoughMs(than: Life, form: ReadingSettings, settleMs: number): number {
	if (than.ended) return 2.3 * than.ended.atMs + settleMs;
	const again = repeated(messagesOf(than.heard, form), form);
	return Math.max(SILENT_MS, ((again[ENOUGH_REPEATS] ?? again.at(-1))?.atMs ?? 0) + settleMs);
}

export function isBetter(life: Life, than: Life, compared: Comparison): boolean {
	const { form, settleMs, settings, guess } = compared;
	const isAck = guess.point === 'acknowledgement';
	const isPong = guess.point === 'application-ping';
	// A service that knows no such answer may say so to each.
	if ((isAck || (isPong && !than.ended)) && refusals(life, compared) > refusals(than, compared) + 1) return false;
	const isFewer = isAck && repeatsLess(life, than, compared);
	// The channel may end for another reason.
	if (than.ended) return outlives(life, than.ended) || isFewer || isOpened(life, than, compared);
	if (life.ended !== null) return false;
	if (isPong) return guess.isWritten === true;
	if (notificationsIn(than, form, settleMs, settings).length === 0) return bringsNews(life, than, form);
	// What the service writes out only has to do no harm.
	const isHarmless = !isAck || mayAcknowledge(String(guess.settings['ackBody']), false, false);
	if (guess.isWritten && isHarmless && !(isAck && again(than, compared) > 0))
		return refusals(life, compared) <= refusals(than, compared);
	return isFewer;
}

/** The finding of a guess that helped: what is better may be so by chance, or do no harm only. @param failsAgain it has failed without it before and after. */
export function helpedFinding(
	life: Life,
	than: Life,
	settings: Guess['settings'],
	compared: Comparison,
	failsAgain: boolean,
): Finding {
	const why =
		than.ended && outlives(life, than.ended)
			? 'the channel ended without it'
			: compared.guess.isWritten
				? 'it is asked for, and does no harm'
				: 'without it less came, or it came again and again';
	const certainty = failsAgain && isProof(life, than, compared) ? 'proved' : 'guessed';
	return finding(compared.guess.point, why, JSON.stringify(settings), certainty, { ...settings });
}

function isProof(life: Life, than: Life, compared: Comparison): boolean {
	const { form, settleMs, settings, guess, ms } = compared;
	const news = (one: Life) => notificationsIn(one, form, settleMs, settings).filter(({ atMs }) => atMs <= ms).length;
	const isAck = guess.point === 'acknowledgement';
	return than.ended !== null || (isAck && repeatsLess(life, than, compared)) || news(life) > 2 * news(than);
}

/** What is acknowledged does not come again; a busy machine or service repeats fewer as well. */
function repeatsLess(life: Life, than: Life, compared: Comparison): boolean {
	const all = { ...compared, answerMs: 0 };
	return 5 * again(life, compared) < again(than, compared) && again(life, all) <= again(than, all);
}

const within = ({ heard }: Life, { form, ms }: Comparison) => messagesOf(heard, form).filter(({ atMs }) => atMs <= ms);
function again(life: Life, compared: Comparison): number {
	const { form, settleMs, settings, guess, answerMs } = compared;
	const isReceipt = answersAcks(life, settleMs, form, { ...settings, ...guess.settings });
	const messages = within(life, compared).filter(({ text }) => !isReceipt(text));
	return cameAgain(messages, form, answerMs).length;
}
const refusals = (life: Life, compared: Comparison) =>
	within(life, compared).filter(({ text }) => isError(text)).length;

const outlives = (life: Life, end: NonNullable<Life['ended']>) =>
	life.ended === null ? lastsTo(life, end) : isLater(life.ended, end);

/** Whether it ends for another reason, however soon, and has brought notifications where none came. */
function isOpened(life: Life, than: Life, { form, settleMs, settings, guess }: Comparison): boolean {
	const news = (one: Life, said: Guess['settings']) => notificationsIn(one, form, settleMs, said).length;
	const isSame = life.ended?.code === than.ended?.code && life.ended?.reason === than.ended?.reason;
	return !isSame && news(life, { ...settings, ...guess.settings }) > 0 && news(than, settings) === 0;
}

/** Whether a channel was open for long enough to end in the same way: its handshake may have taken most of its time. */
export const lastsTo = ({ ended, leftMs = Number.POSITIVE_INFINITY }: Life, end: Life['ended']) =>
	ended !== null || end === null || leftMs > end.atMs;

/** Another end that comes later tells that this one is out of the way. */
const isLater = (one: NonNullable<Life['ended']>, than: NonNullable<Life['ended']>) =>
	one.atMs > (one.code === than.code && one.reason === than.reason ? 1.5 * than.atMs + 200 : than.atMs);
