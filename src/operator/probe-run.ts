/** The steps of `idv probe`, one request and one channel at a time; what is found is kept, whatever ends it. */
import { AgentError, asError, type Failure, toFailure } from '../base/errors.ts';
import { ENDPOINTS } from '../protocol/endpoints.ts';
import { readAnswerTexts } from '../protocol/registration-answer.ts';
import { runDevice } from './probe-device.ts';
import { asked, dial, PASSING } from './probe-dial.ts';
import {
	type Finding,
	handshakeFindings,
	lifeFinding,
	likeTemplate,
	nextFinding,
	settingsFrom,
	tokenFinding,
} from './probe-findings.ts';
import { guesses } from './probe-guesses.ts';
import { deviceRun, improve, LAST_REQUESTS } from './probe-improve.ts';
import { createPace } from './probe-pace.ts';
import { readForm, type TokenPlace, tokenPlaces } from './probe-readings.ts';
import { classified, keyPaths, register, send } from './probe-requests.ts';
import { CHANNEL_PATHS, channelPlaces, findChannel, type Handshake, type HandshakeAnswer } from './probe-search.ts';
import {
	type CutOff,
	NOT_LASTING_REMEDY,
	notFound,
	type PathAnswers,
	type ProbeOptions,
	type Run,
	stop,
} from './probe-state.ts';
import type { Life } from './probe-wire.ts';

/** Kept for what comes after the channel is found. */
const KEPT_REQUESTS = 10;
/** Of these, once a handshake was accepted and only the least of it is looked for. */
const NARROW_REQUESTS = 4;
/** Longer than the agent waits until a silent channel counts. */
const UNTIL_ONLINE_MS = 12_000;
/** Handshakes in a row without an answer before another request shows whether the service is still there. */
const MAX_UNANSWERED = 3;

export interface ProbeReport {
	readonly findings: readonly Finding[];
	readonly requests: number;
	/** The device that ran at the end; `null` where it did not come to that. */
	readonly device: DeviceReport | null;
	/** A secret: good for a channel of the device that was registered. `null` before there was one. */
	readonly connection: string | null;
	/** Why the probe stopped before its end; `null` when it did not. */
	readonly stopped: Failure | null;
	/** The caller has ended it. */
	readonly isInterrupted: boolean;
}

/** What the agent's own link brought with the file. */
export interface DeviceReport {
	readonly isOnline: boolean;
	readonly seconds: number;
	/** Of notifications, by kind, as applications would have them. */
	readonly kinds: Readonly<Record<string, number>>;
	/** How many had an id. */
	readonly withId: number;
	/** That were sent. */
	readonly acknowledgements: number;
	/** Of channels: close code and seconds. */
	readonly closes: readonly { readonly code: number | null; readonly afterSeconds: number; readonly reason: string }[];
}

/** Never rejects: the report says why it stopped. */
export async function runProbe(options: ProbeOptions): Promise<ProbeReport> {
	const { target, signal, onStep } = options;
	const found = new Map<string, Finding>();
	const waits = (seconds: number) => onStep(`Waits for ${seconds} s: a service may take ten requests a minute.`);
	const pace = createPace(new URL(target.baseUrl).host, options.clock, signal, waits);
	const run: Run = {
		...options,
		pace,
		note: (...findings) => findings.forEach((finding) => void found.set(finding.point, finding)),
		findings: () => [...found.values()],
		token: '',
		offered: [],
		nextConnection: null,
	};
	let stopped: Failure | null = null;
	let device: DeviceReport | null = null;
	try {
		device = await probe(run);
	} catch (error) {
		if (!signal.aborted) stopped = toFailure(error);
	}
	const connection = run.token === '' ? null : run.token;
	return { findings: run.findings(), requests: pace.used, device, connection, stopped, isInterrupted: signal.aborted };
}

async function probe(run: Run): Promise<DeviceReport> {
	const { request, onStep, pace, note } = run;
	onStep(`Registers ${request.deviceId}.`);
	const { answer, path } = await register(run);
	const texts = readAnswerTexts(answer);
	const places = tokenPlaces(texts, [request.deviceId, request.workflowId]);
	const [usual] = places;
	if (!usual) throw asError(classified(run, answer));
	run.token = usual.token;
	const more = path === ENDPOINTS.deviceConnection ? {} : { settings: { registrationPath: path } };
	note({ point: 'registration-path', tried: 'the published one first', found: path, certainty: 'proved', ...more });
	note(tokenFinding(usual, false), lifeFinding(usual.token, answer.body));

	onStep('Looks for the channel.');
	const told = [...texts.map(({ text }) => text), ...Object.values(answer.headers)].flatMap((text) =>
		channelPlaces(text, asked(run)),
	);
	const { way, isNarrow, cutOff, answers } = await search(run, places, told);
	const place = places[way?.candidate ?? 0] ?? usual;
	note(tokenFinding(place, false), lifeFinding(place.token, answer.body));
	for (const named of run.channelPaths)
		if (way?.path !== named && answers.has(named))
			onStep(`${named}, which was named, answered ${answers.get(named)?.status || 'nothing'}.`);
	const opening = way ?? (cutOff && barely(cutOff.path));
	if (!opening) throw notFound(run, answers);
	note(...handshakeFindings(opening, 'guessed'));
	await improve(run, cutOff && !way ? cutOff : null);
	note(tokenFinding(place, true));
	if (isNarrow && pace.left() > LAST_REQUESTS) {
		onStep('Tries the same without the Connection.');
		const { status } = await pace.ask(() => dial(run, { ...opening, inQuery: [], inHeader: false }, places));
		if (status >= 400 && status < 500) note(...handshakeFindings(opening, 'proved'));
	}
	const device = await runWithFile(run);
	if (run.createKey) note(await keyPaths(run));
	return device;
}

const barely = (path: string): Handshake => ({ path, candidate: 0, inHeader: true, inQuery: [], subprotocols: [] });

/** @returns the least handshake that opens the channel, or else one that did (not narrow). */
async function search(
	run: Run,
	places: readonly TokenPlace[],
	told: ReturnType<typeof channelPlaces>,
): Promise<{ way: Handshake | null; isNarrow: boolean; cutOff: CutOff | null; answers: PathAnswers }> {
	const { pace } = run;
	const named = [...run.channelPaths, ...told.map(({ place }) => place)];
	const queryNames = [...(run.known.queryNames ?? []), ...told.flatMap(({ query }) => query)];
	const steps = findChannel([...named, ...CHANNEL_PATHS], places.length, {
		...run.known,
		queryNames: [...new Set(queryNames)],
		named,
	});
	let opened: Handshake | null = null;
	let cutOff: CutOff | null = null;
	let unanswered = 0;
	const answers = new Map<string, HandshakeAnswer>();
	let step = steps.next();
	while (!step.done && pace.left() > (opened ? NARROW_REQUESTS : KEPT_REQUESTS)) {
		const { value } = step;
		let answered = await pace.ask(() => dial(run, value, places));
		const isRefused = answered.status === 401 || answered.status === 403;
		const next = run.offered.find(({ token }) => token !== run.token);
		if (isRefused && next && !answered.life.isOpen) {
			// Each Connection may be good for one channel.
			const before = run.token;
			run.token = next.token;
			answered = await pace.ask(() => dial(run, value, places));
			if (answered.status === 101) run.nextConnection = next.pointer;
			else run.token = before;
			if (run.nextConnection !== null) run.note(nextFinding(run.nextConnection));
		}
		const { path } = value;
		if (!answers.has(path)) answers.set(path, answered);
		unanswered = answered.unanswered ? unanswered + 1 : 0;
		if (unanswered === MAX_UNANSWERED) await checkThere(run, answered.unanswered);
		if (answered.status === 101) opened = value;
		const { ended } = answered.life;
		if (ended) cutOff ??= { path, life: answered.life };
		// One that opens and is ended at once may only want to be spoken to: other paths are not asked before that is tried.
		if (ended && !opened && !PASSING.includes(ended.code ?? 0) && speaksFirst(answered.life)) break;
		step = steps.next(answered);
	}
	const found = step.done ? step.value : null;
	return { way: found ?? opened, isNarrow: found !== null, cutOff, answers };
}

const speaksFirst = (life: Life) =>
	guesses({ life, form: readForm(life.heard), settleMs: 0, settings: {} })[0]?.point === 'first-messages';

/** Some services cut the line to a path that they do not have; one that cuts every line has died. @throws AgentError */
async function checkThere(run: Run, unanswered: Failure | undefined): Promise<void> {
	await run.pace
		.ask(() => send(run, 'GET', ENDPOINTS.apiKeys[0]))
		.catch((error) => {
			if (toFailure(error).code !== 'connection-lost') throw error;
			const { host } = new URL(run.target.baseUrl);
			const reason = unanswered?.params?.['reason'];
			const said = `${host} takes connections, and each is reset before any answer${reason ? ` (${reason})` : ''}: ${MAX_UNANSWERED} handshakes and a request.`;
			throw new AgentError('service-unreachable', said, { params: { host }, remedy: RESET_REMEDY });
		});
}

const RESET_REMEDY =
	'Check that the service still runs, and what stands in front of it (a proxy, a firewall): the registration was answered.';

/** Runs a device with the file alone, as an installed one would. @throws AgentError where it is not online. */
async function runWithFile(run: Run): Promise<DeviceReport> {
	const { seconds, pace, onStep, findings, note } = run;
	const settings = settingsFrom(run.target.baseUrl, undefined, findings());
	const resolved = await run.save(settings, run.token);
	onStep(`Runs a device with these settings for ${seconds} s.`);
	await pace.turn();
	let channels = 0;
	const mayOpen = () => channels++ === 0 || pace.take();
	const ran = await runDevice({ ...deviceRun(run, resolved, seconds * 1000, mayOpen), untilOnlineMs: UNTIL_ONLINE_MS });
	run.token = ran.token;
	const notifications = ran.events.filter(({ type }) => type === 'notification');
	const kinds: Record<string, number> = {};
	for (const { kind } of notifications) kinds[kind] = (kinds[kind] ?? 0) + 1;
	const { ackBody } = resolved.settings.service;
	const isAck = ackBody === null ? () => false : likeTemplate(ackBody);
	const report: DeviceReport = {
		isOnline: ran.isOnline,
		seconds,
		kinds,
		withId: notifications.filter(({ serviceId }) => serviceId !== null).length,
		acknowledgements: ran.lives.reduce((sum, { said }) => sum + said.filter(({ text }) => isAck(text)).length, 0),
		closes: ran.lives.flatMap(({ ended }) =>
			ended ? [{ code: ended.code, afterSeconds: Math.round(ended.atMs / 100) / 10, reason: ended.reason }] : [],
		),
	};
	run.signal.throwIfAborted();
	if (!ran.wasOnline) {
		for (const finding of findings())
			if (finding.certainty === 'proved' && finding.point !== 'registration-path')
				note({ ...finding, certainty: 'guessed' });
		const why = ran.problem?.message ?? 'no reason is known.';
		throw stop(`A device with these settings did not come online in ${seconds} s: ${why}`, NOT_LASTING_REMEDY);
	}
	return report;
}
