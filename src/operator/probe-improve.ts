/** `idv probe` watches the channel by the agent's own link, and tries settings until it lasts and brings each message once. */
import { COUNTS_AFTER_MS } from '../connection/backoff.ts';
import { cleanText, readErrorDetail } from '../protocol/problem.ts';
import { resolveWith } from '../settings/load.runner.ts';
import { answeredTo, runDevice } from './probe-device.ts';
import { follow, renewed } from './probe-dial.ts';
import { finding, lifeFindings, settingsFrom } from './probe-findings.ts';
import { bringsNews, guesses, notificationsIn, wordsIn } from './probe-guesses.ts';
import {
	heartbeatAnswers,
	messagesOf,
	type Ranked,
	type ReadingSettings,
	ranked,
	readForm,
	repeated,
} from './probe-readings.ts';
import { type CutOff, notAgain, notLasting, type Run } from './probe-state.ts';
import type { Life } from './probe-wire.ts';

/** Kept for the run with the file. */
export const LAST_REQUESTS = 2;
/** Settings that are tried on channels of their own, at most. */
const MAX_GUESSES = 12;
/** In a trial, of one channel: a service may answer every message with another. */
const MAX_SAID = 200;
/** How long it is waited for what a silent channel may say. */
const SILENT_MS = 15_000;

type Tried = Readonly<Record<string, unknown>>;

/** One channel of the device with what is found so far, and more. */
async function tryOut(run: Run, more: Tried, ms: number): Promise<Life | undefined> {
	const { service = {}, ...rest } = settingsFrom(run.target.baseUrl, undefined, run.findings());
	const document = { ...rest, service: { ...service, ...more } };
	const resolved = resolveWith([{ where: 'probe', document }], { env: {}, sets: [] });
	const { life } = await run.pace.ask(async () => {
		let channels = 0;
		const { lives } = await runDevice(run, resolved, () => channels++ === 0, ms, 0, MAX_SAID);
		return { life: lives[0], ...answeredTo(lives[0]) };
	});
	if (life) follow(run, life);
	run.signal.throwIfAborted();
	return life;
}

/** Watches the channel, and tries settings until it lasts and brings each message once. @param before a life that ended early. */
export async function improve(run: Run, before: CutOff | null): Promise<void> {
	const { note, pace, onStep } = run;
	const windowMs = run.seconds * 1000;
	const settleMs = Math.min(COUNTS_AFTER_MS, windowMs / 4);
	const answerMs = Math.min(1000, windowMs / 8);
	const seen: Ranked[] = [];
	const settled: Record<string, unknown> = {};
	const tried = new Set<string>();
	let last: Life | undefined;
	/** @returns `null` where the channel does not open. */
	const watch = async (more: Tried, ms = windowMs): Promise<Life | null> => {
		const attempt = () => tryOut(run, more, ms);
		const life = await renewed(run, await attempt(), (one) => one, attempt);
		last = life;
		if (!life?.isOpen) return null;
		seen.push(...ranked(life, Object(more['firstMessages']).length ?? 0, answerMs));
		for (const words of wordsIn(life, readForm(seen))) run.words.add(readErrorDetail(words) || words);
		return life;
	};
	const watchWhole = async () => {
		const life = await watch(settled);
		if (!life) throw notAgain(run, last);
		return life;
	};
	const read = () => {
		const answers = heartbeatAnswers(best, answerMs, readForm(seen), settled);
		const { notificationIdPointer } = settled as ReadingSettings;
		const form = { ...readForm(seen, answers), ...(notificationIdPointer && { notificationIdPointer }) };
		run.forget('notification-id');
		note(...lifeFindings({ life: best, form, settleMs: answerMs, settings: settled }));
		return form;
	};
	onStep(`Watches the channel for ${run.seconds} s.`);
	let best = await watchWhole();
	let form = read();
	let ends: Life[] = best.ended ? [best, ...(before ? [before.life] : [])] : [];
	for (let left = MAX_GUESSES; left > 0 && pace.left() > LAST_REQUESTS; left -= 1) {
		// One end may be chance.
		const [one, other] = ends;
		if (one && !other) {
			const again = await watchWhole();
			ends = again.ended ? [one, again] : [];
			if (!again.ended) best = again;
			form = read();
			continue;
		}
		const [guess] = guesses({ life: best, form, settleMs, settings: settled }).filter(
			({ settings }) => !tried.has(JSON.stringify(settings)),
		);
		if (!guess) break;
		tried.add(JSON.stringify(guess.settings));
		const than = best;
		const lastsMs = than.ended ? Math.min(windowMs, 2.3 * than.ended.atMs + settleMs) : Math.min(windowMs, SILENT_MS);
		const attempt = (settings: Tried) => {
			onStep(`Tries ${cleanText(JSON.stringify(settings), 160)}`);
			return watch({ ...settled, ...settings }, lastsMs);
		};
		const helps = (life: Life | null): life is Life => life !== null && isBetter(life, than, readForm(seen), settleMs);
		let life = await attempt(guess.settings);
		if (!helps(life)) continue;
		let { settings } = guess;
		const messages = settings['firstMessages'];
		if (Array.isArray(messages)) {
			const fewer = async (firstMessages: readonly unknown[]) => {
				const again = pace.left() > LAST_REQUESTS + 1 ? await attempt({ firstMessages }) : null;
				if (!helps(again)) return false;
				[life, settings] = [again, { firstMessages }];
				return true;
			};
			await trim(messages, fewer);
		}
		Object.assign(settled, settings);
		tried.clear();
		const isProved = than.ended !== null || notificationsIn(life, readForm(seen), settleMs).length > 0;
		const why = than.ended ? 'the channel ended without it' : 'without it nothing came, or came again and again';
		note(finding(guess.point, why, JSON.stringify(settings), isProved ? 'proved' : 'guessed', settings));
		// One that was watched for a part of the time only may end as well.
		best = life.ended || lastsMs === windowMs ? life : await watchWhole();
		ends = best.ended ? [best] : [];
		form = read();
	}
	if (!best.ended) return;
	// What only put the end off is not known to be right.
	for (const { settings, ...helped } of run.findings())
		if (Object.keys(settings ?? {}).some((name) => name in settled)) note({ ...helped, certainty: 'guessed' });
	throw notLasting(run, best);
}

/** Leaves away what is not needed, a half at a time, then less. @param works whether it does with so much. */
async function trim(all: readonly unknown[], works: (some: readonly unknown[]) => Promise<boolean>): Promise<void> {
	let left = all;
	for (let size = Math.ceil(left.length / 2); left.length > 1; size = Math.ceil(size / 2)) {
		for (let at = 0; at < left.length && left.length > 1; ) {
			const fewer = left.toSpliced(at, size);
			if (fewer.length > 0 && (await works(fewer))) left = fewer;
			else at += size;
		}
		if (size === 1) return;
	}
}

function isBetter(life: Life, than: Life, form: ReadingSettings, settleMs: number): boolean {
	if (than.ended) return life.ended === null || isLater(life.ended, than.ended);
	const again = (one: Life) => repeated(messagesOf(one.heard, form), form);
	const isSilent = notificationsIn(than, form, settleMs).length === 0;
	// A busy machine or service repeats a few less as well.
	return life.ended === null && (isSilent ? bringsNews(life, than, form) : 2 * again(life) < again(than));
}

/** Another end that comes later tells that this one is out of the way. */
const isLater = (one: NonNullable<Life['ended']>, than: NonNullable<Life['ended']>) =>
	one.atMs > (one.code === than.code && one.reason === than.reason ? 1.5 * than.atMs + 200 : than.atMs);
