/** Sends the device's figures to a metrics store by OTLP. Loaded only where `telemetry.otlpUrl` is set; never keeps the device from its work. */
import type { Agent } from '../agent/agent.runner.ts';
import type { Clock } from '../base/clock.edge.ts';
import type { Counters } from '../base/counters.ts';
import { AgentError, type Failure, failure, toFailure } from '../base/errors.ts';
import { cutOut } from '../base/escapes.ts';
import { readText, unreadable } from '../base/files.edge.ts';
import type { Log } from '../base/log.edge.ts';
import { classifyNetworkError } from '../connection/classify-network-error.ts';
import { WRONG_CLOCK_MS } from '../connection/clock-skew.ts';
import type { Network } from '../connection/network.edge.ts';
import { cleanWords } from '../protocol/problem.ts';
import { readHeaderLines } from '../settings/header-lines.ts';
import type { Settings } from '../settings/table.ts';
import { deviceLabels, type MachineFigures, stateMetrics } from '../status/metrics.ts';
import { changesBetween, createChangeLog, goneFrom, type Seen, seenIn } from './changes.ts';
import { collectMetrics } from './collect.runner.ts';
import { encodeMetrics, encodeRequest, readRejected } from './otlp.ts';
import { deliver } from './push.edge.ts';

const DEADLINE_MS = 20_000;
/** The first push comes within so long of the start, in milliseconds. */
const FIRST_MS = 5000;
/** Deliveries that the line has failed in a row before it is a warning. */
const FAILURES_TO_WARN = 3;
const MAX_HEADERS_BYTES = 16 * 1024;
/** Of a store that says why it did not take something. */
const MAX_STORE_WORDS = 200;
export interface TelemetryParts {
	readonly agent: Agent;
	readonly counters: Counters;
	readonly clock: Clock;
	readonly random: () => number;
	readonly userAgent: string;
	readonly settings: () => Settings['telemetry'];
	readonly network: () => Pick<Network, 'ask' | 'proxyName'>;
	readonly machine: () => Promise<MachineFigures>;
	readonly log: Pick<Log, 'info'>;
}

export type Telemetry = ReturnType<typeof startTelemetry>;

export function startTelemetry(parts: TelemetryParts) {
	const { agent, clock, random, settings } = parts;
	const figures = untoldFigures(parts);
	let failures = 0;
	let underWay: AbortController | null = null;
	let cancel = () => {};
	let stopped = false;

	function pushIn(delayMs: number): void {
		cancel();
		if (!stopped) cancel = clock.schedule(delayMs, () => void push());
	}

	async function push(): Promise<void> {
		if (underWay) return;
		const { otlpUrl, intervalSeconds } = settings();
		const url = otlpUrl === null ? null : URL.parse(otlpUrl);
		if (!url) return;
		underWay = new AbortController();
		const { signal } = underWay;
		// Devices that were switched on together must not push together.
		let nextMs = intervalSeconds * 1000 * (0.9 + 0.2 * random());
		try {
			const { isTaken, told, isClear, retryAfterMs } = await send(parts, figures, url, signal);
			if (isTaken) {
				failures = 0;
				agent.warn('telemetry', told);
			} else noteFailure(told, isClear);
			nextMs = Math.max(nextMs, retryAfterMs ?? 0);
		} catch (error) {
			const isOwn = error instanceof AgentError;
			if (!signal.aborted) noteFailure(isOwn ? error.failure : notDelivered(error, url, parts.network()), isOwn);
		}
		// Settings that changed meanwhile have set a time of their own.
		if (signal.aborted) return;
		underWay = null;
		pushIn(nextMs);
	}

	/** @param isClear whether waiting will not mend it. */
	function noteFailure(told: Failure, isClear: boolean): void {
		failures += 1;
		if (isClear || failures >= FAILURES_TO_WARN) agent.warn('telemetry', told);
	}

	/** A file that cannot be used is told with the settings, not with the first push. */
	function begin(): void {
		const told = (error: unknown) => void (stopped || noteFailure(toFailure(error), true));
		readTelemetryHeaders(settings().headersFile).catch(told);
		pushIn(FIRST_MS * random());
	}

	figures.noteChanges();
	const forget = agent.onStatus(figures.noteChanges);
	begin();
	return {
		/** The settings or the network may have changed: the next push comes soon. */
		reevaluate() {
			failures = 0;
			underWay?.abort();
			underWay = null;
			begin();
		},
		/** Pushes now; resolves when it is over. */
		push,
		close(): void {
			stopped = true;
			forget();
			cancel();
			underWay?.abort();
			agent.warn('telemetry', null);
		},
	};
}

/** Once. `isClear`: waiting will not mend it. `retryAfterMs`: the wait that the store asks for. */
async function send(parts: TelemetryParts, figures: ReturnType<typeof untoldFigures>, url: URL, signal: AbortSignal) {
	const headers = await readTelemetryHeaders(parts.settings().headersFile);
	const { body, taken, refused } = figures.next(await parts.machine());
	const answer = await deliver(parts.network(), {
		...{ url, body, deadlineMs: DEADLINE_MS, signal },
		headers: { 'user-agent': parts.userAgent, ...headers },
	});
	const { status } = answer;
	if (status >= 200 && status < 300) {
		taken();
		const told = notTaken(answer.body, url.host, Object.values(headers));
		return { isTaken: true, told, isClear: false, retryAfterMs: null } as const;
	}
	if (status === 400 || status === 413) refused();
	const told = failure('telemetry-failed', `The metrics store at ${url.host} answered ${status}.`);
	const isClear = status < 500 && status !== 408 && status !== 429;
	return { isTaken: false, told, isClear, retryAfterMs: answer.retryAfterMs } as const;
}

/** The figures of now, and changes that the store has not taken yet. */
function untoldFigures({ agent, counters, clock }: Pick<TelemetryParts, 'agent' | 'counters' | 'clock'>) {
	const startedAtMs = clock.wallMs();
	const changes = createChangeLog();
	let seen: Seen = new Map();
	let seenAll: Seen = new Map();
	let hasDelivered = false;

	const encoded = (metrics: Parameters<typeof encodeMetrics>[0], describe = false) => {
		// A store has no figures of a time to come. By whole minutes, so that the start stays where it is.
		const skewMs = counters.clockSkewMs ?? 0;
		const offMs = Math.abs(skewMs) < WRONG_CLOCK_MS ? 0 : Math.round(skewMs / 60_000) * 60_000;
		return encodeMetrics(metrics, { atMs: clock.wallMs() - offMs, startedAtMs: startedAtMs - offMs, describe });
	};

	function noteChanges(): void {
		const now = seenIn(stateMetrics(agent.status()));
		const changed = changesBetween(seen, now);
		// The first look changes nothing.
		if (seen.size > 0 && changed.length > 0) changes.add(clock.monotonicMs(), encoded(changed));
		seen = now;
	}

	return {
		noteChanges,
		/** All of it in one message, with what to call once its fate is known. */
		next(machine: MachineFigures) {
			noteChanges();
			const status = agent.status();
			const metrics = collectMetrics(agent, status, counters, machine, clock);
			const now = seenIn(metrics);
			const pending = changes.pending();
			const current = encoded([...goneFrom(seenAll, now), ...metrics], !hasDelivered);
			return {
				body: encodeRequest(deviceLabels(status), status.agentVersion, [...pending, current]),
				taken(): void {
					changes.delivered(pending);
					hasDelivered = true;
					seenAll = now;
				},
				/** What a store cannot take now it will not take later: it must not hold up what follows. */
				refused: () => changes.delivered(pending),
			};
		},
	};
}

/** What was not taken must not be sent again: the store would refuse it again. @param secrets that it may have repeated. */
function notTaken(answer: Uint8Array, host: string, secrets: readonly string[]): Failure | null {
	const rejected = readRejected(answer);
	if (!rejected) return null;
	const detail = cutOut(cleanWords(rejected.message, MAX_STORE_WORDS), secrets);
	const message = `The metrics store at ${host} did not take ${rejected.points} figures${detail ? `: ${detail}` : ''}.`;
	return failure('telemetry-failed', message, detail ? { params: { detail } } : {});
}

function notDelivered(error: unknown, url: URL, { proxyName }: Pick<Network, 'proxyName'>): Failure {
	const { message } = classifyNetworkError(error, { host: url.host, proxy: proxyName(url) });
	return failure('telemetry-failed', `Metrics were not delivered: ${message}`);
}

/** Lines as `Name: value`. @throws AgentError `telemetry-failed`, without a word of a value. */
export async function readTelemetryHeaders(file: string | null): Promise<Readonly<Record<string, string>>> {
	if (file === null) return {};
	const text = await readText(file, MAX_HEADERS_BYTES).catch((cause) => {
		throw unreadable('telemetry-failed', 'telemetry.headersFile', file, cause);
	});
	const remedy = 'Write one header on each line, such as Authorization: Bearer TOKEN.';
	const wrong = (line: number, what: string) =>
		new AgentError('telemetry-failed', `telemetry.headersFile ${file}: line ${line} ${what}.`, { remedy });
	return readHeaderLines(text, false, wrong);
}
