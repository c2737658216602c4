/** `idv probe` watches the channel by the agent's own link, and tries settings until it lasts and brings each message once. */
import { toFailure } from '../base/errors.ts';
import { COUNTS_AFTER_MS } from '../connection/backoff.ts';
import { cleanText } from '../protocol/problem.ts';
import { type LoadedSettings, resolveWith } from '../settings/load.runner.ts';
import { type DeviceRun, type Ran, runDevice } from './probe-device.ts';
import { confirmationIn, lifeFindings, settingsFrom } from './probe-findings.ts';
import { endedAlike, guesses, notificationsIn } from './probe-guesses.ts';
import { messagesOf, type ReadingSettings, readForm, repeated } from './probe-readings.ts';
import { type CutOff, notAgain, notLasting, type Run } from './probe-state.ts';
import type { Life } from './probe-wire.ts';

/** Kept for the run with the file. */
export const LAST_REQUESTS = 2;
/** Settings that are tried on channels of their own, at most. */
const MAX_GUESSES = 12;
/** How long it is waited for what a silent channel may say. */
const SILENT_MS = 15_000;

/** A run of the device with what is found so far, and more. */
async function tryOut(run: Run, more: Readonly<Record<string, unknown>>, ms: number): Promise<Ran> {
	const { service = {}, ...rest } = settingsFrom(run.target.baseUrl, undefined, run.findings());
	const document = { ...rest, service: { ...service, ...more } };
	await run.pace.turn();
	let channels = 0;
	const ran = await runDevice(
		deviceRun(run, resolveWith([{ where: 'probe', document }], { env: {}, sets: [] }), ms, () => channels++ === 0),
	);
	run.token = ran.token;
	return ran;
}

export const deviceRun = (run: Run, resolved: LoadedSettings, ms: number, mayOpen: () => boolean): DeviceRun => ({
	...{ resolved, token: run.token, ms, mayOpen, cadenceMs: (run.seconds * 1000) / 6.3 },
	...{
		deviceId: run.request.deviceId,
		workflowId: run.request.workflowId,
		caFile: run.target.caFile,
		env: run.target.env,
	},
	...{ version: run.version, transcript: run.transcript, signal: run.signal },
});

/** Watches the channel, and tries settings until it lasts and brings each message once. @param before a life that ended early. */
export async function improve(run: Run, before: CutOff | null): Promise<void> {
	const { note, pace, onStep, signal } = run;
	const windowMs = run.seconds * 1000;
	const settleMs = Math.min(COUNTS_AFTER_MS, windowMs / 4);
	const answerMs = Math.min(1000, windowMs / 8);
	onStep(`Watches the channel for ${run.seconds} s.`);
	const seen: Life['heard'][number][] = [];
	const watch = async (more: Readonly<Record<string, unknown>>, ms: number): Promise<Life> => {
		const [life] = (await tryOut(run, more, ms)).lives;
		signal.throwIfAborted();
		if (!life?.isOpen) throw notAgain(run, life);
		seen.push(...life.heard);
		return life;
	};
	let best = await watch({}, windowMs);
	const settled: Record<string, unknown> = {};
	const read = () => {
		const form = readForm(seen);
		note(...lifeFindings({ life: best, form, settleMs: answerMs, settings: settled }));
		return form;
	};
	let form = read();
	const tried = new Set<string>();
	let ends: Life[] = best.ended ? [best, ...(before ? [before.life] : [])] : [];
	for (let left = MAX_GUESSES; left > 0 && pace.left() > LAST_REQUESTS; left -= 1) {
		// One end may be chance.
		const [one, other] = ends;
		if (one && !other) {
			const again = await watch(settled, windowMs);
			ends = again.ended ? [one, again] : [];
			if (!again.ended) best = again;
			form = read();
			continue;
		}
		if (one && other && !endedAlike(one, other) && ends.length > 2) break;
		const [guess] = guesses({ life: best, form, settleMs, settings: settled }).filter(
			({ settings }) => !tried.has(JSON.stringify(settings)),
		);
		if (!guess) break;
		tried.add(JSON.stringify(guess.settings));
		onStep(`Tries ${cleanText(JSON.stringify(guess.settings), 160)}`);
		const lastsMs = best.ended ? Math.min(windowMs, 2.3 * best.ended.atMs + settleMs) : Math.min(windowMs, SILENT_MS);
		const life = await watch({ ...settled, ...guess.settings }, lastsMs).catch((error) => {
			if (signal.aborted || toFailure(error).code !== 'channel-not-found') throw error;
			return null;
		});
		if (!life || !isBetter(life, best, readForm(seen), settleMs)) continue;
		Object.assign(settled, guess.settings);
		tried.clear();
		const what = best.ended ? 'the channel ended without it' : 'without it nothing came, or came again and again';
		note({
			point: guess.point,
			tried: what,
			found: JSON.stringify(guess.settings),
			certainty: 'proved',
			settings: guess.settings,
		});
		// One that was watched for a part of the time only may end as well.
		best = life.ended || lastsMs === windowMs ? life : await watch(settled, windowMs);
		ends = best.ended ? [best] : [];
		form = read();
		noteConfirmation(run, life, form, settleMs);
	}
	if (!best.ended) return;
	// What only put the end off is not known to be right.
	for (const { settings: _, ...helped } of run
		.findings()
		.filter(({ settings }) => Object.keys(settings ?? {}).some((name) => name in settled)))
		note({ ...helped, certainty: 'guessed' });
	throw notLasting(run, best);
}

function isBetter(life: Life, than: Life, form: ReadingSettings, settleMs: number): boolean {
	if (than.ended) return life.ended === null || isLater(life.ended, than.ended);
	const count = (one: Life) => notificationsIn(one, form, settleMs).length;
	const again = (one: Life) => repeated(messagesOf(one.heard, form), form);
	return (
		life.ended === null && (count(than) === 0 ? count(life) > 0 || saysYes(life, form) : again(life) < again(than))
	);
}

/** Whether a first message was answered as one that is understood. */
const saysYes = (life: Life, form: ReadingSettings) => confirmationIn(life, form, COUNTS_AFTER_MS) !== null;

/** The one message that answers the first ones confirms the channel. */
function noteConfirmation(run: Run, life: Life, form: ReadingSettings, settleMs: number): void {
	const first = run.findings().find(({ point }) => point === 'first-messages');
	if (!first?.settings?.['firstMessages']) return;
	const kind = confirmationIn(life, form, settleMs);
	if (kind !== null) run.note({ ...first, settings: { ...first.settings, confirmKind: kind } });
}

/** Another end that comes later tells that this one is out of the way. */
const isLater = (one: NonNullable<Life['ended']>, than: NonNullable<Life['ended']>) =>
	one.atMs > (one.code === than.code && one.reason === than.reason ? 1.5 * than.atMs + 200 : than.atMs);
