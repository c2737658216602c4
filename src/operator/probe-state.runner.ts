/** The common ground of the steps of `idv probe`, and how its ends are told. */
import type { Clock } from '../base/clock.edge.ts';
import { AgentError, type Failure } from '../base/errors.ts';
import type { Network } from '../connection/network.edge.ts';
import { cleanWords } from '../protocol/problem.ts';
import { type LoadedSettings, resolveWith } from '../settings/load.runner.ts';
import type { Restart } from './probe-ends.runner.ts';
import type { Finding } from './probe-findings.runner.ts';
import { type NextPlace, OVER, type TokenPlace } from './probe-readings.runner.ts';
import type { Asking, TextAnswer } from './probe-requests.ts';
import { answersInWords, type Known, type PathAnswers, statusesOf } from './probe-search.ts';
import type { Life } from './probe-wire.runner.ts';
import { IN_TRANSCRIPT, remedyNamed } from './probe-words.ts';

/** A document of settings as a device would read it from a file. */
export const asRead = (document: object) => resolveWith([{ where: 'probe', document }], { env: {}, sets: [] });

export interface ProbeOptions extends Omit<Asking, 'pace'> {
	/** Settings that follow from what was given, rather than from what was found. */
	readonly given: Readonly<Record<string, unknown>>;
	readonly network: Omit<Network, 'close'>;
	readonly version: string;
	/** Ends it early, with what was found. */
	readonly signal: AbortSignal;
	/** What the pace of the requests goes by; a channel is watched in the machine's time. */
	readonly clock: Clock;
	/** How long a channel is watched, and how long the device runs at the end. */
	readonly seconds: number;
	/** Tried before the usual ones. */
	readonly channelPaths: readonly string[];
	readonly known: Known;
	readonly createKey: boolean;
	/** Says in a few words what is being done. */
	readonly onStep: (text: string) => void;
	/** Writes what was found for the device that runs at the end. @returns the settings as a device reads them from there. */
	readonly save: (settings: object) => Promise<LoadedSettings>;
	/** Writes the files as they would be if the probe ended now: a killed process writes none, and the code is used up. */
	readonly keep: (report: ProbeReport) => Promise<unknown>;
}

export interface ProbeReport {
	readonly findings: readonly Finding[];
	readonly requests: number;
	/** That were sent on channels. */
	readonly messages: number;
	/** Words of the service about what it misses, without secrets; the same once, with how often it said them. */
	readonly words: readonly string[];
	/** The device that ran at the end; `null` where it did not come to that. */
	readonly device: DeviceReport | null;
	/** A secret: good for a channel of the device that was registered. `null` before there was one, and where several may be it. */
	readonly connection: string | null;
	/** A secret: the answer to the registration, as long as no channel has opened with a Connection from it, or any text opens it. */
	readonly answer: KeptAnswer | null;
	/** A channel has taken the Connection that was shown. */
	readonly isTaken: boolean;
	/** Why the probe stopped before its end; `null` when it did not. */
	readonly stopped: Failure | null;
	/** The caller has ended it. */
	readonly isInterrupted: boolean;
}

export interface KeptAnswer extends Pick<TextAnswer, 'status' | 'headers' | 'body'> {
	/** Texts that may be the Connection, the likely one first. */
	readonly candidates: readonly { readonly tokenPointer: string | null; readonly connection: string }[];
}

/** What the agent's own link brought with the file. */
export interface DeviceReport {
	readonly isOnline: boolean;
	/** Something shows that the service serves this device: a notification, or an answer to a first message. */
	readonly isServed: boolean;
	/** Its heartbeats were answered with errors, and nothing shows that it is served. */
	readonly isRefused: boolean;
	/** That the service sent about what the device had said. */
	readonly errors: number;
	readonly seconds: number;
	/** Of notifications, by kind, as applications would have them. */
	readonly kinds: Readonly<Record<string, number>>;
	/** The same of messages about the talk itself: greetings, pings, and answers to what the device said. */
	readonly others: Readonly<Record<string, number>>;
	/** How many notifications had an id. */
	readonly withId: number;
	/** Messages that the service sent again. */
	readonly repeats: number;
	/** More came than was kept: the numbers of messages are the least that came. */
	readonly isCut: boolean;
	/** That applications did not get, as they had the id, the kind and the contents of one before. */
	readonly dropped: number;
	/** That were sent. */
	readonly acknowledgements: number;
	/** Of channels: close code and seconds; `isUsual` for an end that is about the service, and not about the device. */
	readonly closes: readonly {
		readonly code: number | null;
		readonly afterSeconds: number;
		readonly reason: string;
		readonly isUsual: boolean;
	}[];
}

/** All that the steps share, and what they have found. */
export interface Run extends ProbeOptions, Asking {
	readonly note: (...findings: readonly Finding[]) => void;
	/** What later lives do not show any more. */
	readonly forget: (point: Finding['point']) => void;
	readonly findings: () => Finding[];
	/** Words of the service about what it misses, as it wrote them and as often. */
	readonly words: string[];
	/** Of the device, that the service has made, in small letters. */
	names: readonly string[];
	/** Paths of the channel that no other device has. */
	readonly ownPaths: Set<string>;
	/** What came for the registration: a secret. */
	answer: TextAnswer | null;
	/** Places of the answer to the registration that may hold the Connection. */
	places: readonly TokenPlace[];
	/** The one of them that is shown. */
	candidate: number;
	/** What is shown at handshakes; a Connection may change at each. */
	token: string;
	hasOpened: boolean;
	/** A channel has taken what is shown: it stayed open for a moment, or was online. */
	isTaken: boolean;
	/** The same handshake with another text in its place was refused, and with each other text of the answer: what is shown is the Connection. */
	isTold: boolean;
	/** Ends of channels where the device did nothing wrong; none where one alone was seen. */
	restarts: readonly Restart[];
	/** Messages on channels. */
	sent: number;
	/** Kinds that came where the device acknowledged nothing. */
	unasked: readonly string[];
	/** What the last channel may have named as the next Connection. */
	offered: readonly NextPlace[];
	/** How often the one at a place was refused. */
	readonly dismissed: Map<string, number>;
	/** The place whose Connection was accepted, and whether the one from before had been refused. */
	next: { readonly pointer: string; readonly isProved: boolean } | null;
}

/** Of a channel that opened and did not stay open. */
export interface CutOff {
	readonly path: string;
	readonly life: Life;
}

export function notFound(run: Run, answers: PathAnswers): AgentError {
	const { isSeen, words } = answersInWords(answers);
	const named = run.channelPaths
		.filter((path) => answers.has(path))
		.map((path) => `${path}, which was named, answered ${statusesOf(answers.get(path) ?? [])}.`);
	const said = [`No handshake that the probe tried opened the channel: ${words}.`, ...named].join(' ');
	return stop(said, remedyNamed(run.words) ?? (isSeen ? REFUSED_REMEDY : NOT_FOUND_REMEDY));
}

const channelOf = (run: Run) => run.findings().find(({ point }) => point === 'channel-path')?.found;

export function notLasting(run: Run, life: Pick<Life, 'ended' | 'failure'>): AgentError {
	const { ended } = life;
	const how = ended?.code == null ? 'without a close code' : `with close code ${ended.code}`;
	const why = ended?.reason ? ` ("${cleanWords(ended.reason, 120)}")` : '';
	const after = `${((ended?.atMs ?? 0) / 1000).toFixed(1)} s`;
	const said = `No channel at ${channelOf(run)} lasted the ${run.seconds} s of the watch: the service ended it ${how} after ${after}${why}.`;
	if (OVER.test(ended?.reason ?? '')) return stop(said, OVER_REMEDY);
	const named = remedyNamed(run.words) ?? NOT_LASTING_REMEDY;
	return stop(said, life.failure?.code === 'channel-rejected' ? life.failure.remedy : named);
}

/** Of a device whose channels the service ended one after the other, whatever made them last before; `null` for another one, as one end may be chance. */
export function notKept(run: Run, { isOnline, closes }: DeviceReport): AgentError | null {
	const [last, ...others] = closes.filter(({ isUsual }) => !isUsual).reverse();
	if (isOnline || !last || others.length === 0) return null;
	return notLasting(run, { ended: { ...last, atMs: last.afterSeconds * 1000 }, failure: null });
}

export function notAgain(run: Run, life: Life | undefined): AgentError {
	const why = life?.failure?.message ?? '';
	const said = `The channel at ${channelOf(run)} opened, but not again by the same handshake. ${why}`;
	return stop(said.trim(), NOT_AGAIN_REMEDY);
}

/** Of a channel that stays open and is of no use. */
export function notServed(run: Run): AgentError {
	const said = `The channel at ${channelOf(run)} opened, and nothing shows that the service serves this device: no notification came, and it answers the heartbeats with errors, or says them unasked.`;
	return stop(said, NOT_SERVED_REMEDY);
}

/** Of a channel that opens for this device, and for none that has the same settings. */
export function notShared({ findings }: Run): AgentError {
	const path = findings().find(({ isOwn }) => isOwn)?.settings?.['channelPath'];
	return stop(
		`The channel is at ${path}, which the service has named for this device alone: no setting holds it for others.`,
		NOT_SHARED_REMEDY,
	);
}

const NOT_SHARED_REMEDY =
	'Ask the operator for a path that every device may use, also one with {deviceId} in it, and name it with --channel-path.';
const NOT_SERVED_REMEDY = `Look at what the service says above: what the device must say first belongs in service.firstMessages, another heartbeat in service.heartbeatBody. Start sessions for the workflow while the probe runs: only what comes shows the rest; ${IN_TRANSCRIPT}`;
const NOT_FOUND_REMEDY = `Ask the operator for the path of the channel and name it with --channel-path; ${IN_TRANSCRIPT}`;
const REFUSED_REMEDY = `The path is likely right: ask the operator what the handshake requires (a query parameter: --query-name; a subprotocol: --subprotocol; a header: --header); ${IN_TRANSCRIPT}`;
const OVER_REMEDY = `By its words the Connection ends so soon: ask the operator for a longer life; it belongs in service.connectionLifeSeconds if the Connection does not say it, and where a channel names the next one, that belongs in service.nextConnection; ${IN_TRANSCRIPT}`;
const NOT_AGAIN_REMEDY = `If a Connection is good for one channel only, set service.nextConnection; if not, ask the operator why; ${IN_TRANSCRIPT}`;
export const NOT_LASTING_REMEDY = `Ask the operator why the service ends each channel: what the device must say first belongs in service.firstMessages, an acknowledgement in service.ackBody, another heartbeat in service.heartbeatBody, its own pings in service.pingKind and the answer to them in service.pongBody; ${IN_TRANSCRIPT}`;

export const stop = (message: string, remedy: string) => new AgentError('channel-not-found', message, { remedy });
