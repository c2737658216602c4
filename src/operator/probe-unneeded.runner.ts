/** Settings of `idv probe` that a later one has made needless: what only hid the cause of an end is left away once the cause is mended. */
import { cleanText } from '../protocol/problem.ts';
import { bringsNews, notificationsIn } from './probe-guesses.runner.ts';
import { isError, messagesOf, type ReadingSettings } from './probe-readings.runner.ts';
import type { Run } from './probe-state.runner.ts';
import type { Life } from './probe-wire.runner.ts';

/** Settings with which a device says less: none of them shows that the service takes what it says. */
export const SAY_LESS: readonly string[] = ['heartbeatMode', 'silenceLimitSeconds'];

type Tried = Readonly<Record<string, unknown>>;

export interface Kept {
	readonly form: ReadingSettings;
	readonly settleMs: number;
	/** Settings of both channels, but for those that are left away on one. */
	readonly settings: Tried;
	/** The ones that are left away. */
	readonly without: Tried;
}

/** Whether a channel without a setting does as well as one with it, for as long. */
export function isAsGood(life: Life, than: Life, { form, settleMs, settings, without }: Kept): boolean {
	const brings = (one: Life) => notificationsIn(one, form, settleMs, settings).length > 0;
	const errors = ({ heard }: Life) => messagesOf(heard, form).filter(({ text }) => isError(text)).length;
	// Such a setting brings nothing: what came with it alone came by chance.
	const saysLess = SAY_LESS.some((name) => name in without);
	const isMore = saysLess ? brings(than) && !brings(life) : bringsNews(than, life, form);
	return life.ended === null && !isMore && errors(life) <= errors(than);
}

/**
 * Leaves away each setting that was found because a channel ended, and that the channel with all later ones does without.
 * @param found by point, in their order, without the last one. @param settled loses what is left away. @returns the life of the last channel that did as well, or `null`.
 */
export async function leaveUnneeded(
	run: Run,
	found: ReadonlyMap<string, Tried>,
	settled: Record<string, unknown>,
	watch: (more: Tried, except: string) => Promise<Life | null>,
	isEnough: (life: Life, without: Tried) => boolean,
	mayAsk: () => boolean,
): Promise<Life | null> {
	let best: Life | null = null;
	for (const [point, without] of found) {
		if (!mayAsk()) {
			for (const one of run.findings())
				if (one.point === point && one.certainty === 'proved') run.note({ ...one, certainty: 'guessed' });
			continue;
		}
		run.onStep(`Tries the same without ${cleanText(JSON.stringify(without), 160)}`);
		const fewer = Object.fromEntries(Object.entries(settled).filter(([name]) => !(name in without)));
		const life = await watch(fewer, point);
		if (!life || !isEnough(life, without)) continue;
		best = life;
		run.forget(point);
		for (const name of Object.keys(without)) Reflect.deleteProperty(settled, name);
	}
	return best;
}
