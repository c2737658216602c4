/** A device of `idv probe`: the whole agent in memory, with the settings that were found and the Connection that was given. */
import { startAgent } from '../agent/agent.runner.ts';
import { isoNow, systemClock } from '../base/clock.edge.ts';
import { createCounters } from '../base/counters.ts';
import { AgentError, failure } from '../base/errors.ts';

import { COUNTS_AFTER_MS } from '../connection/backoff.ts';
import { openRuntime } from '../connection/runtime.runner.ts';
import type { Entry } from '../events/event.ts';
import { newEpoch } from '../events/feed.runner.ts';
import type { Status } from '../protocol/local-api.ts';
import { NO_CREDENTIALS } from '../settings/credentials.runner.ts';
import type { LoadedSettings } from '../settings/load.runner.ts';
import { createEventBuffer, NO_MACHINE } from '../simulation/in-memory-stores.ts';
import { EMPTY_STATE } from '../state/device-state.ts';
import type { Run } from './probe-state.runner.ts';
import { type Life, openNoted } from './probe-wire.runner.ts';

export interface Ran {
	/** In order; the last one may not have ended. */
	readonly lives: readonly Life[];
	readonly wasOnline: boolean;
	/** It was so at the end, too. */
	readonly isOnline: boolean;
	/** What applications would have. */
	readonly events: readonly Entry[];
	/** More came than is kept of them, or of a channel. */
	readonly isCut: boolean;
	/** What they would not have: it came before. */
	readonly dropped: number;
	/** What kept it from being online at the end. */
	readonly problem: Status['problem'];
}

/** The answer to a handshake, as the pace of the requests goes by it. */
export const answeredTo = (life: Life | undefined) => ({
	status: life?.refusal?.status ?? 0,
	retryAfter: life?.refusal?.headers['retry-after'],
});

const BOUNDS = { maxCount: 20_000, maxBytes: 64 * 1024 * 1024 };
const OVER = failure('connection-lost', 'The run is over.');

interface Bounds {
	/** How much longer it runs at most while it has not been online. */
	readonly untilOnlineMs?: number;
	/** Frames of a channel after which it sends none. */
	readonly maxSaid?: number;
	/** Between heartbeats, if not as the settings have it. */
	readonly cadenceMs?: number;
	/** When in its cadence the first heartbeat is sent, from 0 to 1. */
	readonly phase?: number;
}

/** Between heartbeats of a channel that is watched: there are a few in each watch, the first after a part of it. */
export const watchedCadenceMs = ({ seconds }: Pick<Run, 'seconds'>) => (seconds * 1000) / 6.3;

/** As the device of this run has them. */
function settingsOf({ request: { deviceId }, target }: Run, { settings }: LoadedSettings, cadenceMs: number) {
	return {
		...settings,
		...{ deviceId, heartbeatCadence: cadenceMs < 1000 ? cadenceMs / 1000 : Math.floor(cadenceMs / 1000) },
		// The Connection came a moment ago: by the setting alone it would be renewed at once, as one of unknown age.
		service: { ...settings.service, connectionLifeSeconds: null },
		network: { ...settings.network, caFile: target.caFile ?? null },
	};
}

/**
 * @param ms how long it runs. @param mayOpen whether one more channel may be opened; where not, the run is over. @throws AgentError for settings that no device would take.
 */
export async function runDevice(
	run: Run,
	resolved: LoadedSettings,
	mayOpen: () => boolean,
	ms: number,
	{
		untilOnlineMs = 0,
		maxSaid = Number.POSITIVE_INFINITY,
		cadenceMs = resolved.settings.heartbeatCadence * 1000,
		phase = 0.5,
	}: Bounds,
): Promise<Ran> {
	const { request, target, transcript, signal } = run;
	const { deviceId, workflowId } = request;
	const [problem] = resolved.problems;
	if (problem) throw new AgentError(problem.code, problem.message, { remedy: 'Report this: the probe wrote it.' });
	const parts = { userAgent: `idv-agent/${run.version}`, env: target.env };
	const opened = await openRuntime({ ...resolved, settings: settingsOf(run, resolved, cadenceMs) }, parts);
	const credentials = { ...NO_CREDENTIALS, provisioned: run.token, id: 'probe' };
	const clock = systemClock;
	const events = createEventBuffer(newEpoch(clock.wallMs(), Math.random), BOUNDS);
	const lives: Life[] = [];
	const counters = createCounters();
	let { token } = run;
	let wasOnline = false;
	const { promise: isOver, resolve } = Promise.withResolvers<void>();
	const over = () => resolve();
	const agent = startAgent({
		...NO_MACHINE,
		...{ clock, random: () => phase, version: run.version, runtime: { ...opened, credentials }, counters },
		store: {
			...NO_MACHINE.store,
			save: async ({ connections }) => {
				token = connections.at(-1)?.token ?? token;
			},
		},
		state: { ...EMPTY_STATE, assignedWorkflow: { workflowId, source: 'pairing', at: isoNow(clock) } },
		newDeviceId: () => deviceId,
		openEvents: () => events,
		openChannel(options, listener) {
			if (!mayOpen()) {
				over();
				const end = () => listener({ type: 'ended', failure: OVER, closeCode: null, timedOut: false, line: null });
				return { sendText: () => false, close: end, terminate: end, bufferedAmount: 0 };
			}
			// A short watch is long enough for heartbeats also where no ping is answered.
			const proveAfterMs = Math.min(COUNTS_AFTER_MS, watchedCadenceMs(run));
			const { channel, life } = openNoted({ ...options, proveAfterMs }, listener, transcript);
			lives.push(life);
			const { sendText } = channel;
			return Object.assign(channel, { sendText: (text: string) => life.said.length >= maxSaid || sendText(text) });
		},
	});
	let isLate = false;
	const look = () => {
		wasOnline ||= agent.status().state === 'online';
		if (isLate && wasOnline) over();
	};
	agent.onStatus(look);
	look();
	let timer = setTimeout(() => {
		isLate = true;
		look();
		timer = setTimeout(over, untilOnlineMs);
	}, ms);
	signal.addEventListener('abort', over);
	await isOver;
	clearTimeout(timer);
	signal.removeEventListener('abort', over);
	const { state, problem: found } = agent.status();
	await agent.stop();
	await opened.close();
	run.token = token;
	run.sent += lives.reduce((sum, { said }) => sum + said.length, 0);
	const entries = events.after(null, Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY).entries;
	const { duplicates: dropped, notifications } = counters;
	const isCut = lives.some((life) => life.isCut) || notifications > entries.length;
	return { lives, wasOnline, isOnline: state === 'online', events: entries, isCut, dropped, problem: found };
}
