/** The steps of `idv probe`, one request and one channel at a time; what is found is kept, whatever ends it. */
import { AgentError, asError, type Failure, toFailure } from '../base/errors.ts';
import { ENDPOINTS } from '../protocol/endpoints.ts';
import { looksLikeToken, readAnswerTexts } from '../protocol/registration-answer.ts';

import { ABOUT_ACK } from './probe-acks.runner.ts';
import { answeredTo, type Ran, runDevice, watchedCadenceMs } from './probe-device.runner.ts';
import { dial, knock, placesIn } from './probe-dial.runner.ts';
import { isLike, PASSING, tellRestarts } from './probe-ends.runner.ts';
import {
	type Certainty,
	cadenceFindings,
	type Finding,
	finding,
	handshakeFindings,
	lifeFinding,
	nextFinding,
	settingsFrom,
	tokenFinding,
} from './probe-findings.runner.ts';
import { readForm } from './probe-form.runner.ts';
import { guesses } from './probe-guesses.runner.ts';
import { improve, LAST_REQUESTS } from './probe-improve.runner.ts';
import { createPace } from './probe-pace.ts';
import { likeTemplate, madeNames, OVER, tokenPlaces } from './probe-readings.runner.ts';
import { amendments, reportOf, type Service } from './probe-report.runner.ts';
import { keyPaths, register, send, unreadable } from './probe-requests.ts';
import {
	CHANNEL_PATHS,
	findChannel,
	type Handshake,
	type HandshakeAnswer,
	isLack,
	isNarrow,
	isUnknown,
	type PathAnswers,
	type Place,
	pathsOf,
	statusesOf,
} from './probe-search.ts';
import {
	asRead,
	type CutOff,
	type DeviceReport,
	type KeptAnswer,
	NOT_LASTING_REMEDY,
	notFound,
	notKept,
	notServed,
	notShared,
	type ProbeOptions,
	type ProbeReport,
	type Run,
	stop,
} from './probe-state.runner.ts';
import type { Life } from './probe-wire.runner.ts';

/** Kept for what comes after the channel is found. */
const KEPT_REQUESTS = 10;
/** Of these, once a handshake was accepted and only the least of it is looked for. */
const NARROW_REQUESTS = 4;
/** Longer than the agent waits until a silent channel counts. */
const UNTIL_ONLINE_MS = 12_000;
/** The first heartbeat comes anywhere in the cadence: the device at the end is as silent at first as any will be. */
const LONGEST_SILENCE = 0.95;
/** Requests in a row without an answer before another request shows whether the service is still there. */
const MAX_UNANSWERED = 3;

/** Never rejects: the report says why it stopped. */
export async function runProbe(options: ProbeOptions): Promise<ProbeReport> {
	const { target, signal, onStep } = options;
	const found = new Map<string, Finding>();
	const waits = (seconds: number, isAsked: boolean) =>
		onStep(
			`Waits for ${seconds} s: ${isAsked ? 'the service cannot take the request at the moment' : 'a service may take ten requests a minute'}.`,
		);
	const run: Run = {
		...options,
		pace: createPace(new URL(target.baseUrl).host, options.clock, signal, waits),
		note: (...findings) => findings.forEach((one) => void found.set(one.point, one)),
		forget: (point) => void found.delete(point),
		findings: () => [
			...found.values(),
			...(run.next ? [nextFinding(run.next.pointer, run.next.isProved ? 'proved' : 'guessed')] : []),
		],
		...{
			words: [],
			answer: null,
			names: [],
			ownPaths: new Set(),
			places: [],
			candidate: 0,
			token: '',
			hasOpened: false,
			isTaken: false,
			isTold: false,
			restarts: [],
			sent: 0,
			unasked: [],
			offered: [],
			dismissed: new Map(),
			next: null,
		},
	};
	let stopped: Failure | null = null;
	let device: DeviceReport | null = null;
	const report = (): ProbeReport => ({
		findings: run.findings().map((one) => ({ ...one, found: withoutKnown(one.found, run) })),
		...{ requests: run.pace.used, device, isInterrupted: signal.aborted },
		stopped: stopped && { ...stopped, message: withoutKnown(stopped.message, run) },
		messages: run.sent,
		connection: run.token === '' || (!run.isTaken && run.places.length > 1) ? null : run.token,
		answer: run.isTaken && run.isTold ? null : keptAnswer(run),
		isTaken: run.isTaken,
		words: counted(run.words.filter((one) => one !== '').map((one) => withoutSecrets(one, run))),
	});
	try {
		device = await probe(run, () => options.keep(report()));
		const ended = notKept(run, device);
		if (device.isRefused) stopped = toFailure(notServed(run));
		else if (ended) stopped = toFailure(ended);
		else if (run.findings().some(({ isOwn }) => isOwn)) stopped = toFailure(notShared(run));
	} catch (error) {
		if (!signal.aborted) stopped = toFailure(error);
	}
	return report();
}

function keptAnswer({ answer, places, candidate }: Run): KeptAnswer | null {
	if (answer === null) return null;
	const { status, headers, body } = answer;
	const likely = places.toSorted((a, b) => Number(b === places[candidate]) - Number(a === places[candidate]));
	return {
		...{ status, headers, body },
		candidates: likely.map(({ pointer, token }) => ({ tokenPointer: pointer, connection: token })),
	};
}

/** The same words once, with their number: an id or a time in them makes no others. */
function counted(words: readonly string[]): string[] {
	const times = Map.groupBy(words, (one) => one.replace(/[\w-]*\d[\w-]*/g, '#'));
	return [...times.values()].map((same) => (same.length > 1 ? `${same[0]} (${same.length} times)` : `${same[0]}`));
}

/** Without the Connection in use, the headers that were given, and more. */
function withoutKnown(words: string, { token, headers }: Run, more: readonly string[] = []): string {
	const known = [token, ...Object.values(headers).filter((one) => one.length >= 8), ...more];
	return known.filter((one) => one !== '').reduce((text, secret) => text.replaceAll(secret, '[secret]'), words);
}

/** Words of the service may hold any text that looks like a token. */
function withoutSecrets(words: string, run: Run): string {
	const places = [...run.places, ...run.offered].map((one) => one.token);
	return withoutKnown(words, run, places).replace(/[\w.~+/=|-]{20,}/g, (text) =>
		looksLikeToken({ place: '', text }) ? '[secret]' : text,
	);
}

/** @param keep called once there is an answer to the registration. */
async function probe(run: Run, keep: () => Promise<unknown>): Promise<DeviceReport> {
	const { request, onStep, pace, note } = run;
	if (Object.keys(run.given).length > 0)
		note(finding('extra-headers', 'those that were given', Object.keys(run.headers).join(', '), 'guessed', run.given));
	onStep(`Registers ${request.deviceId}.`);
	const registered = (found: string, certainty: Certainty, settings: { registrationPath: string } | false = false) =>
		note(finding('registration-path', 'the published one first', found, certainty, settings));
	registered('no answer that ends it', 'not seen');
	const { answer, path, failure } = await register(run);
	const registrationPath = path !== ENDPOINTS.deviceConnection && { registrationPath: path };
	registered(`${path} answered ${answer.status}`, failure ? 'not seen' : 'guessed', !failure && registrationPath);
	if (failure && answer.status === 404)
		throw new AgentError(failure.code, failure.message, {
			...(failure.params && { params: failure.params }),
			remedy: `Check the address; if it is right, ask the operator for the path of the registration, which belongs in service.registrationPath.`,
		});
	// A 202 may say where the Connection will be.
	if (!failure || (answer.status >= 200 && answer.status < 300)) run.answer = answer;
	if (failure) throw asError(failure);
	const answeredMs = Date.now();
	const texts = readAnswerTexts(answer);
	run.places = tokenPlaces(texts, [request.deviceId, request.workflowId]);
	run.names = madeNames(answer.body);
	const [usual] = run.places;
	if (!usual) throw asError(unreadable(run, answer));
	run.token = usual.token;
	registered(path, 'proved', registrationPath);
	const noteToken = (isConfirmed: boolean) => {
		const place = run.places[run.candidate] ?? usual;
		note(tokenFinding(place, isConfirmed), lifeFinding(place.token, answer.body, answeredMs));
	};
	noteToken(false);
	await keep();

	onStep('Looks for the channel.');
	const told = [...texts.map(({ text }) => text), ...Object.values(answer.headers)].flatMap((text) =>
		placesIn(run, text),
	);
	const { way, cutOff, answers } = await search(run, told);
	noteToken(false);
	for (const named of run.channelPaths)
		if (way?.path !== named && cutOff?.path !== named && answers.has(named))
			onStep(`${named}, which was named, answered ${statusesOf(answers.get(named) ?? [])}.`);
	const opening = way ?? (cutOff && { path: cutOff.path, candidate: 0, inHeader: true, inQuery: [], subprotocols: [] });
	if (!opening) throw notFound(run, answers);
	const from = { given: run.known.subprotocol, ownPaths: run.ownPaths };
	note(...handshakeFindings(opening, 'guessed', from));
	await improve(run, cutOff && !way ? cutOff : null);
	run.isTaken = true;
	if ((run.next || way) && pace.left() > LAST_REQUESTS) {
		onStep('Tries the same with another text in place of the Connection.');
		const { token, next } = run;
		const { status } = await pace.ask(() => dial(run, opening, otherText(token)));
		const isRefused = saysNoTo(status);
		run.isTold = isRefused && (await areOthersRefused(run, opening));
		if (isRefused && (next || (way && isNarrow(way)))) note(...handshakeFindings(opening, 'proved', from));
		// A service that takes any text says nothing about the one that was shown.
		const isShownLater = JSON.stringify(run.findings()).includes('{token}');
		const isNext = isRefused || next?.isProved || isShownLater || status !== 101;
		if (next) run.next = isNext ? { ...next, isProved: isRefused || next.isProved } : null;
	}
	noteToken(run.isTold);
	noteRestarts(run);
	const device = await runWithFile(run);
	if (run.createKey) note(await keyPaths(run));
	return device;
}

/** Beside what is known of the Connection's own life. */
function noteRestarts({ restarts: seen, findings, note }: Run): void {
	const restarts = tellRestarts(seen);
	const known = findings().find(({ point }) => point === 'connection-life');
	if (restarts === null || !known) return;
	const isAlone = known.certainty === 'not seen';
	note(
		isAlone
			? finding(known.point, 'channels until their end', restarts, 'guessed')
			: { ...known, found: `${known.found}; ${restarts}` },
	);
}

/** @returns the least handshake that opens the channel, or else one that did. */
async function search(
	run: Run,
	told: readonly Place[],
): Promise<{ way: Handshake | null; cutOff: CutOff | null; answers: PathAnswers }> {
	const { pace } = run;
	const named = [...run.channelPaths, ...told.map(({ place, own }) => own ?? place)];
	const queryNames = [...(run.known.queryNames ?? []), ...told.flatMap(({ query }) => query)];
	const known = { ...run.known, queryNames: [...new Set(queryNames)], named };
	const steps = findChannel([...run.channelPaths, ...pathsOf(told), ...CHANNEL_PATHS], run.places.length, known);
	let opened: Handshake | null = null;
	let cutOff: CutOff | null = null;
	let unanswered = 0;
	const tried = new Set<number>();
	const answers = new Map<string, HandshakeAnswer[]>();
	let step = steps.next();
	while (!step.done && pace.left() > (opened ? NARROW_REQUESTS : KEPT_REQUESTS)) {
		const { value } = step;
		// With a query that the search has added it is the same path.
		const path = named.includes(value.path) ? value.path : value.path.replace(/\?.*/, '');
		const { used } = pace;
		const answered = await knock(run, value);
		const before = answers.get(path) ?? [];
		answers.set(path, [...before, answered]);
		// Of two texts that may be the Connection the one that was looked at, and not refused for itself, is the better guess.
		if (!run.isTaken && isLack(answered) && before.some(isUnknown) && run.candidate !== value.candidate)
			Object.assign(run, { candidate: value.candidate, token: run.places[value.candidate]?.token });
		const inVain = answered.unanswered ? unanswered + pace.used - used : 0;
		const isMuch = unanswered < MAX_UNANSWERED && inVain >= MAX_UNANSWERED;
		unanswered = inVain;
		// Some services cut the line to a path that they do not have; one that cuts every line has died.
		if (isMuch) await pace.ask(() => send(run, 'GET', ENDPOINTS.apiKeys[0])).catch(tellReset.bind(null, run.hasOpened));
		const { subprotocol } = answered;
		if (answered.status === 101 && !(opened && answered.saysNo))
			opened = { ...value, subprotocols: subprotocol === null ? [] : [subprotocol] };
		const { ended } = answered.life;
		tried.add(value.candidate);
		const isLast = tried.size === run.places.length || (cutOff !== null && value.candidate === 0);
		if (ended && answered.status !== 101) cutOff ??= { path, life: answered.life };
		// One that opens and is ended at once for each text that may be the Connection may only want to be spoken to: that is tried before other paths.
		const isNamed = (answered.names ?? []).length > 0;
		const mayTalk = answered.status !== 426 && !isNamed && !PASSING.includes(ended?.code ?? null);
		if (isLast && ended && !opened && mayTalk && speaksFirst(answered.life)) break;
		step = steps.next(answered);
	}
	const way = (step.done && step.value) || opened;
	// Others may have been tried after the one that is taken.
	const { candidate } = way ?? run;
	if (candidate !== run.candidate) Object.assign(run, { candidate, token: run.places[candidate]?.token });
	return { way, cutOff, answers };
}

const saysNoTo = (status: number) => status >= 400 && status < 500;

/** Whether no other text of the answer opens a channel: one that does may be the Connection as well, or that of another device. */
async function areOthersRefused(run: Run, way: Handshake): Promise<boolean> {
	for (const [at, { token }] of run.places.entries()) {
		if (at === run.candidate) continue;
		if (run.pace.left() <= LAST_REQUESTS) return false;
		const { status, saysNo } = await run.pace.ask(() => dial(run, way, token));
		if (!saysNoTo(status) && !saysNo) return false;
	}
	return true;
}

/** A text of the same form: a service may fail at one that it cannot read. */
const otherText = (token: string) =>
	token.replace(/\w{1,8}$|\w{1,8}(?=\W+$)/, (end) =>
		end.replace(/[a-z0-9]/gi, (one) => String.fromCharCode(one.charCodeAt(0) + (/[fz9]/i.test(one) ? -1 : 1))),
	);

const speaksFirst = (life: Life) =>
	guesses({ life, form: readForm(life.heard), settleMs: 0, settings: {} })[0]?.point === 'first-messages';

/** The registration was answered by the same host. */
function tellReset(hasOpened: boolean, error: unknown): never {
	const { code, params, message } = toFailure(error);
	if (code !== 'connection-lost') throw error;
	const since = hasOpened ? 'A channel has opened, and since then the' : 'The';
	const said = `${since} service takes connections, and each is reset before any answer: ${MAX_UNANSWERED} handshakes and a request. ${message}`;
	throw new AgentError('service-unreachable', said, { ...(params && { params }), remedy: RESET_REMEDY });
}

const RESET_REMEDY =
	'Check that the service still runs, and the proxy or firewall in front of it: the registration was answered.';

/** Runs a device with the file alone, as an installed one would. @throws AgentError where it is not online. */
async function runWithFile(run: Run): Promise<DeviceReport> {
	const { seconds, pace, onStep, findings, note } = run;
	const once = async () => {
		const saved = await run.save(settingsFrom(run.target.baseUrl, undefined, findings()));
		const own = settingsFrom(run.target.baseUrl, undefined, findings(), true);
		const isShared = findings().every(({ isOwn }) => !isOwn);
		const resolved = isShared ? saved : asRead(own);
		return pace.ask(async () => {
			onStep(`Runs a device with these settings for ${seconds} s.`);
			let channels = 0;
			const mayOpen = () => channels++ === 0 || pace.take();
			const ran = await runDevice(run, resolved, mayOpen, seconds * 1000, {
				untilOnlineMs: UNTIL_ONLINE_MS,
				phase: LONGEST_SILENCE,
			});
			return { ran, service: resolved.settings.service, ...answeredTo(ran.wasOnline ? undefined : ran.lives.at(-1)) };
		});
	};
	let { ran, service } = await once();
	const cadence = cadenceFindings(silencesEnded(run, ran, service));
	const amended = run.signal.aborted ? [] : [...amendments(run, ran, service), ...cadence];
	note(...amended);
	if (amended.length > 0 && pace.left() > 0) ({ ran, service } = await once());
	if (cadence.length > 0 && silencesEnded(run, ran, service).length > 0)
		note(...cadence.map((one) => ({ ...one, certainty: 'guessed' as const })));
	run.signal.throwIfAborted();
	if (!ran.wasOnline) {
		const { status } = answeredTo(ran.lives.at(-1));
		// Of a service that has no room the settings may be right.
		for (const one of status === 429 || status >= 500 ? [] : findings())
			if (one.certainty === 'proved' && !['registration-path', 'next-connection'].includes(one.point))
				note({ ...one, certainty: 'guessed' });
		const why = ran.problem?.message ?? 'no reason is known.';
		throw stop(`A device with these settings did not come online in ${seconds} s: ${why}`, NOT_LASTING_REMEDY);
	}
	const report = reportOf(run, ran, service);
	const acknowledged = findings().find(({ point }) => point === 'acknowledgement');
	if (report.repeats > 0)
		note(
			acknowledged
				? { ...acknowledged, found: `${acknowledged.found}; ${AGAIN} (service.ackBody)`, certainty: 'guessed' }
				: finding(
						'acknowledgement',
						'usual ones, and what the service writes out',
						`none; ${AGAIN} (service.ackBody)`,
						'not seen',
					),
		);
	return report;
}

const AGAIN = 'with these settings the service sent some again';

/**
 * The silences of the device that the service ended, where the watch had not been silent for so long.
 * Answers to the service do not count: it may want heartbeats.
 */
function silencesEnded(run: Run, { lives }: Ran, { ackBody, pingKind, pongBody }: Service): number[] {
	const replies = [ackBody ?? [], pingKind === null ? [] : pongBody].flat().map(likeTemplate);
	const silences = lives.flatMap(({ ended, said }) => {
		const last = said.findLast(({ text }) => !replies.some((isReply) => isReply(text)));
		// The service going (1001) may as well be an idle timeout.
		const isRestart = ended && ((ended.code !== 1001 && PASSING.includes(ended.code)) || isLike(ended, run.restarts));
		return ended && !isRestart && !OVER.test(ended.reason) && !ABOUT_ACK.test(ended.reason)
			? [ended.atMs - (last?.atMs ?? 0)]
			: [];
	});
	return silences.filter((ms) => ms > watchedCadenceMs(run));
}
