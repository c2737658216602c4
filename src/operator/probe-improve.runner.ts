/** `idv probe` watches the channel by the agent's own link, and tries settings until it lasts and brings each message once. */
import { COUNTS_AFTER_MS } from '../connection/backoff.ts';
import { DEFAULT_HEARTBEAT_CADENCE } from '../protocol/device-connection.ts';
import { parseJson } from '../protocol/json.ts';
import { cleanText, cleanWords, readErrorDetail } from '../protocol/problem.ts';

import { heartbeatAnswers } from './probe-asides.runner.ts';
import { enoughMs, helpedFinding, isBetter, lastsTo } from './probe-compare.runner.ts';
import { answeredTo, runDevice, watchedCadenceMs } from './probe-device.runner.ts';
import { follow, renewed } from './probe-dial.runner.ts';
import { type Restart, restartOf, untilRestart, usualEnds } from './probe-ends.runner.ts';
import { finding, lifeFindings, settingsFrom } from './probe-findings.runner.ts';
import { readForm } from './probe-form.runner.ts';
import { bringsNews, type Guess, guesses, notificationsIn, wordsIn } from './probe-guesses.runner.ts';
import { OVER, type Ranked, type ReadingSettings, ranked, tellsOfOthers } from './probe-readings.runner.ts';
import { asRead, type CutOff, notAgain, notLasting, type Run } from './probe-state.runner.ts';
import { isAsGood, leaveUnneeded, SAY_LESS } from './probe-unneeded.runner.ts';
import type { Life } from './probe-wire.runner.ts';
import { namedCadence } from './probe-words.ts';

/** Kept for the run with the file. */
export const LAST_REQUESTS = 2;
/** Settings that are tried on channels of their own, at most. */
const MAX_GUESSES = 12;
/** In a trial, of one channel: a service may answer every message with another. */
const MAX_SAID = 200;

type Tried = Readonly<Record<string, unknown>>;

const ignoredBy = ({ ignoreKinds = [] }: Tried) => ignoreKinds as readonly string[];

/** One channel of the device with what is found so far, and more. @param except a point whose finding does not count. */
async function tryOut(run: Run, more: Tried, ms: number, except?: string): Promise<Life | undefined> {
	const findings = run.findings().filter(({ point }) => point !== except);
	const { service = {}, ...rest } = settingsFrom(run.target.baseUrl, undefined, findings, true);
	const resolved = asRead({ ...rest, service: { ...service, ...more } });
	const { life } = await run.pace.ask(async () => {
		let channels = 0;
		const { lives } = await runDevice(run, resolved, () => channels++ === 0, ms, {
			...{ maxSaid: MAX_SAID, cadenceMs: watchedCadenceMs(run) },
		});
		return { life: lives[0], ...answeredTo(lives[0]) };
	});
	if (life) follow(run, life);
	run.signal.throwIfAborted();
	return life;
}

/** Watches channels, and keeps what was seen on all of them. */
function createWatch(run: Run, windowMs: number, answerMs: number) {
	const seen: Ranked[] = [];
	const restarts: Restart[] = [];
	let last: Life | undefined;
	/** @returns `null` where the channel does not open. */
	const watch = async (more: Tried, ms = windowMs, except?: string): Promise<Life | null> => {
		const attempt = () => tryOut(run, more, ms, except);
		const whole = await renewed(run, await attempt(), (one) => one, attempt);
		last = whole;
		if (!whole?.isOpen) return null;
		restarts.push(...[restartOf(whole, restarts) ?? []].flat());
		const life = untilRestart(whole, restarts);
		const isUnacked = more['ackBody'] === undefined;
		const heard = ranked(life, Object(more['firstMessages']).length ?? 0, answerMs);
		seen.push(...heard.map((one) => ({ ...one, isUnacked })));
		const form = readForm(seen);
		// One alone may be a notification with the words of a person in it.
		const isNews = tellsOfOthers(life, form, answerMs, 1);
		const words = wordsIn(life, form, answerMs).filter((one) => !isNews(one));
		run.words.push(...words.map((one) => readErrorDetail(one) || one));
		return life;
	};
	const watchWhole = async (more: Tried) => {
		const life = await watch(more);
		if (!life) throw notAgain(run, last);
		return life;
	};
	return { seen, restarts, watch, watchWhole };
}

/** A message that a service writes out may hold values of this device alone: a field takes their place, and where none does, there is nothing to set for others. */
function forEveryDevice(guess: Guess, { token, request, names }: Run): Guess | null {
	const { firstMessages, ...others } = guess.settings;
	const filled = (value: unknown) =>
		parseJson(
			JSON.stringify(value)
				.replaceAll(token || '\0', '{token}')
				.replaceAll(request.deviceId, '{deviceId}')
				.replaceAll(`"${request.workflowId}"`, '"{workflowId}"'),
		);
	const settings: Tried = {
		...Object(filled(others)),
		...(firstMessages !== undefined && { firstMessages: filled(firstMessages) }),
	};
	const [text, late] = [JSON.stringify(settings).toLowerCase(), JSON.stringify(filled(others))];
	const isOwn = late.includes('{token}') || names.some((name) => name.length > 3 && text.includes(name));
	return isOwn ? null : { ...guess, settings };
}

/** Watches the channel, and tries settings until it lasts and brings each message once. @param before a life that ended early. */
export async function improve(run: Run, before: CutOff | null): Promise<void> {
	const { note, pace, onStep } = run;
	const windowMs = run.seconds * 1000;
	const settleMs = Math.min(COUNTS_AFTER_MS, windowMs / 4);
	const answerMs = Math.min(1000, windowMs / 8);
	const settled: Record<string, unknown> = {};
	const tried = new Set<string>();
	const written = new Map<string, Guess>();
	/** Channels with a first message that helped, and those before. */
	const opened: (readonly [Life, Life])[] = [];
	/** The service said what it had not said: as it is read in the end, since the first notifications may not tell where kinds are. */
	const isConfirmed = () => opened.some(([one, other]) => bringsNews(one, other, form));
	/** Settings without which a channel ended, by point. */
	const mended = new Map<string, Tried>();
	let lastFound = '';
	const { seen, restarts, watch, watchWhole } = createWatch(run, windowMs, answerMs);
	const read = () => {
		const answers = heartbeatAnswers(best, answerMs, readForm(seen), settled);
		const { notificationIdPointer, kindPointer } = settled as ReadingSettings;
		const own = { ...(notificationIdPointer && { notificationIdPointer }), ...(kindPointer && { kindPointer }) };
		const form = { ...readForm(seen, [...answers, ...ignoredBy(settled)]), ...own };
		run.unasked = form.unasked ?? [];
		run.forget('notification-id');
		note(...lifeFindings({ life: best, form, settleMs: answerMs, settings: settled }));
		const told = namedCadence(wordsIn(best, form, answerMs)) ?? DEFAULT_HEARTBEAT_CADENCE;
		if (told < DEFAULT_HEARTBEAT_CADENCE)
			note(finding('heartbeat-cadence', 'words of the service', `${told} s`, 'guessed', { heartbeatCadence: told }));
		return form;
	};
	const guessesFor = (life: Life) => {
		const all = guesses({ life, form, settleMs, settings: settled, written: [...written.values()] }).flatMap(
			(one) => forEveryDevice(one, run) ?? [],
		);
		for (const one of all) if (one.isWritten) written.set(JSON.stringify(one.settings), one);
		return all;
	};
	onStep(`Watches the channel for ${run.seconds} s.`);
	let best = await watchWhole(settled);
	// One restart may be chance.
	if (restarts.length > 0) best = await watchWhole(settled);
	if (restarts.length > 1) run.restarts = restarts;
	let form = read();
	let ends: Life[] = best.ended ? [best, ...(before ? [before.life] : [])] : [];
	for (let left = MAX_GUESSES; left > 0 && pace.left() > LAST_REQUESTS; left -= 1) {
		// One end may be chance.
		const [one, other] = ends;
		if (one && !other) {
			const again = await watchWhole(settled);
			const isOver = again.ended === null && lastsTo(again, one.ended);
			ends = isOver ? [] : [one, again];
			if (isOver) best = again;
			form = read();
			continue;
		}
		if (best.ended && OVER.test(best.ended.reason)) {
			const found = `the service ends a channel after ${Math.round(best.ended.atMs / 1000)} s: "${cleanWords(best.ended.reason, 80)}"`;
			note(finding('connection-life', 'words of the service', found, 'guessed'));
			break;
		}
		const all = guessesFor(best);
		const guess = all.find(({ settings }) => !tried.has(JSON.stringify(settings)));
		// Where nothing likely is left to say, and each channel worked for the same time, that is how the service ends them.
		const isHeard =
			Object.keys(settled).some((name) => !SAY_LESS.includes(name)) ||
			heartbeatAnswers(best, answerMs, form, settled).length > 0;
		const usual = !guess || guess.isLast || left === 1 ? usualEnds(ends, settleMs, isHeard) : [];
		if (usual.length > 0) {
			restarts.push(...usual);
			run.restarts = restarts;
			for (const one of written.keys()) tried.delete(one);
			best = untilRestart(best, restarts);
			ends = [];
			form = read();
			continue;
		}
		if (!guess) break;
		tried.add(JSON.stringify(guess.settings));
		const than = best;
		const lastsMs = Math.min(windowMs, enoughMs(than, form, settleMs));
		const attempt = (settings: Tried) => {
			onStep(`Tries ${cleanText(JSON.stringify(settings), 160)}`);
			return watch({ ...settled, ...settings }, lastsMs);
		};
		const compared = { settleMs, answerMs, settings: settled, guess };
		const helps = (life: Life | null, ms = lastsMs): life is Life =>
			life !== null && isBetter(life, than, { ...compared, form: readForm(seen), ms: Math.min(ms, life.leftMs ?? ms) });
		let life = await attempt(guess.settings);
		if (life) guessesFor(life);
		if (!helps(life)) continue;
		let { settings } = guess;
		/** Without it the channel has failed again since. */
		let failsAgain = false;
		const messages = settings['firstMessages'];
		const brings = (one: Life, said: Tried) => notificationsIn(one, readForm(seen), settleMs, said).length > 0;
		const isWhole = brings(life, settings);
		// In a protocol of its own some may be needed that are answered in no way.
		const mayTrim = Object.keys(settings).length === 1 || isWhole;
		if (Array.isArray(messages) && settled['firstMessages'] === undefined && mayTrim) {
			const fewer = async (firstMessages: readonly unknown[]) => {
				const again = pace.left() > LAST_REQUESTS + 1 ? await attempt({ ...settings, firstMessages }) : null;
				failsAgain ||= again !== null && !helps(again);
				if (!helps(again) || (life && bringsNews(life, again, readForm(seen)))) return false;
				if (isWhole && !brings(again, { ...settings, firstMessages })) return false;
				[life, settings] = [again, { ...settings, firstMessages }];
				return true;
			};
			await trim(messages, fewer);
		}
		const known = run.findings().filter(({ point }) => point === guess.point);
		const comparison = () => ({ ...compared, form: readForm(seen), ms: lastsMs });
		const tell = (one: Life, other: Life) => note(helpedFinding(one, other, settings, comparison(), failsAgain));
		tell(life, than);
		const forget = () => {
			run.forget(guess.point);
			note(...known);
		};
		// Two nodes in turn, of which one works, are told by two channels with it in a row, and then one without. One that was watched
		// for a part of the time only may end as well, or repeat what is sent more slowly.
		const isOnce = life.ended || pace.left() <= LAST_REQUESTS;
		const whole = isOnce ? life : await watchWhole({ ...settled, ...settings });
		if (!isOnce && !helps(whole, windowMs)) {
			forget();
			continue;
		}
		// The cause of the failure may have been another one that is over, such as a service that was starting.
		const isProvable = helpedFinding(life, than, settings, comparison(), true).certainty === 'proved';
		const isAgain = !failsAgain && (isProvable || !guess.isWritten) && pace.left() > LAST_REQUESTS;
		if (isAgain) onStep('Tries the same without it again.');
		const later = isAgain ? await watch(settled, lastsMs, guess.point) : null;
		const upheld = life;
		let without = later && lastsTo(later, than.ended) ? later : null;
		const isNeeded = (one: Life | null) => !helps(one) || isBetter(upheld, one, comparison());
		if (!isNeeded(without) && lastsMs < windowMs && pace.left() > LAST_REQUESTS)
			without = await watch(settled, windowMs, guess.point);
		if (without && !isNeeded(without)) {
			forget();
			best = without;
			ends = best.ended ? [best] : [];
			tried.clear();
			tried.add(JSON.stringify(guess.settings));
			form = read();
			continue;
		}
		failsAgain ||= without !== null;
		tell(whole, without ?? than);
		Object.assign(settled, settings);
		mended.delete(guess.point);
		if (than.ended && guess.point !== 'acknowledgement') mended.set(guess.point, settings);
		lastFound = guess.point;
		if (guess.point === 'first-messages') opened.push([whole, than]);
		tried.clear();
		best = whole;
		ends = best.ended ? [best] : [];
		form = read();
	}
	if (!best.ended) {
		// What was found before the true cause may only have hidden it.
		const isNeeded = (point: string) => point === lastFound || (point === 'first-messages' && isConfirmed());
		const earlier = new Map([...mended].filter(([point]) => !isNeeded(point)));
		best =
			(await leaveUnneeded(
				run,
				earlier,
				settled,
				(more, except) => watch(more, windowMs, except),
				(life, without) => isAsGood(life, best, { form: readForm(seen), settleMs, settings: settled, without }),
				() => pace.left() > LAST_REQUESTS,
			)) ?? best;
		if (earlier.size > 0) form = read();
		return;
	}
	// Settings that only put the end off are not known to be right, and are not in the file.
	for (const { settings, ...helped } of run.findings())
		if (Object.keys(settings ?? {}).some((name) => name in settled && !(name === 'firstMessages' && isConfirmed())))
			note({ ...helped, found: `none; the end came later with ${helped.found}`, certainty: 'not seen' });
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
