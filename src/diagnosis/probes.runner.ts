/**
 * What each check of `idv-agent doctor` looks at, as the daemon would: its settings, its state, its way to the service.
 * Changes nothing, spends no code, and leaves the channel of a running agent alone: there its own word counts.
 */

import type { Clock } from '../base/clock.edge.ts';
import { AgentError, type Failure, failure, toFailure } from '../base/errors.ts';
import { classifyNetworkError } from '../connection/classify-network-error.ts';
import { clockSkewMs } from '../connection/clock-skew.ts';
import { openFirstRuntime } from '../connection/runtime.runner.ts';
import { ENDPOINTS, endpointUrl } from '../protocol/endpoints.ts';
import { loadSettings } from '../settings/load.runner.ts';
import { type DeviceState, EMPTY_STATE } from '../state/device-state.ts';
import { serviceOf } from '../workflow/desired-registration.ts';
import { assessAnswer, assessCertificate, assessClock, assessDisk, assessMemory, assessUnit } from './check-results.ts';
import { blockedBy, type Finding, failed, notApplicable, ok, warning } from './checks.ts';
import { type InspectionTarget, UNIT } from './inspection-target.runner.ts';
import { readDiskSpace, readMemory } from './machine-probes.edge.ts';
import {
	askTime,
	firstHop,
	resolveName,
	tryConnection,
	tryHandshake,
	tryTunnel,
	type Way,
} from './network-probes.edge.ts';
import { probeChannel, probeHeartbeat, tryChannel } from './probe-channel.runner.ts';
import {
	askDaemon,
	checkIdentity,
	checkPairing,
	checkSockets,
	checkState,
	type DaemonWord,
	lookAtState,
} from './probe-device.runner.ts';
import { checkScanners } from './probe-scanner.runner.ts';
import type { Probes } from './run-checks.runner.ts';

export interface ProbeOptions {
	readonly inspected: InspectionTarget;
	readonly clock: Clock;
	readonly userAgent: string;
	/** Told every secret that is come across. */
	readonly registerSecret: (secret: string) => void;
	/** Root of the file system that is asked for the device's identity; default `/`. */
	readonly machineRoot?: string | undefined;
}

export interface OpenProbes {
	readonly probes: Probes;
	close(): Promise<void>;
}

/** How much of an answer to a request without a credential is read, in bytes. */
const MAX_ANSWER_BYTES = 64 * 1024;

export function openProbes(options: ProbeOptions): OpenProbes {
	const { inspected, clock, userAgent, registerSecret } = options;
	const { paths } = inspected;

	const settings = once(() => loadSettings(inspected));
	const daemon = once(() => askDaemon(paths.runDir, paths.stateDir));
	const state = once(() => lookAtState(paths.stateDir));
	const device = once(async () => {
		const { state: saved } = await state();
		for (const { token } of saved.connections) registerSecret(token);
		return saved;
	});
	const runtime = once(async () => {
		const { lastSettings } = await device().catch(() => EMPTY_STATE);
		const parts = { userAgent, env: inspected.env, registerSecret };
		return openFirstRuntime(await settings(), { lastSettings }, inspected, parts);
	});
	/** The way to the service; `null` while nothing names one. */
	const way = once(async (): Promise<Way | null> => {
		const { runtime: opened } = await runtime();
		const running = await daemon();
		const told = running.kind === 'runs' ? running.status.baseUrl : null;
		const baseUrl = told ?? serviceOf(opened.resolved.settings, await device().catch(() => EMPTY_STATE));
		if (baseUrl === null) return null;
		const url = new URL(baseUrl);
		return { url, proxy: opened.network.proxyFor(url), secureContext: opened.network.secureContext };
	});
	/** The agent's word and the state; without the state, `null` unless the agent's word will do. */
	const whatIsKnown = async (): Promise<[DaemonWord, DeviceState | null]> => {
		const running = await daemon();
		return [running, await device().catch(() => (running.kind === 'runs' ? EMPTY_STATE : null))];
	};
	const channel = once(async () => {
		const { runtime: opened } = await runtime();
		const saved = await device();
		return tryChannel({ runtime: opened, device: saved, userAgent, clock });
	});

	/** A step on the way to the service. What goes wrong is named by what it means. */
	const onTheWay = (look: (way: Way, limitMs: number) => Promise<Finding>, step?: Step) => async (limitMs: number) => {
		const leads = await way();
		if (leads === null) return notApplicable('Nothing names a service yet.');
		try {
			return await look(leads, limitMs);
		} catch (error) {
			if (error instanceof AgentError) throw error;
			return failed(meaning(error, leads, step));
		}
	};

	const probes: Probes = {
		async settings() {
			const loaded = await settings();
			const { warning: inForce, runtime: opened } = await runtime();
			const { connections } = await device().catch(() => EMPTY_STATE);
			const { unreadable } = opened.credentials;
			// The agent waits for the file; without a saved Connection it has nothing else to do.
			if (unreadable && connections.length === 0) return failed(unreadable);
			if (inForce) return warning(inForce);
			const [notice] = loaded.notices;
			if (notice) return warning(notice);
			const count = loaded.documents.length;
			const from = count === 0 ? 'no file, defaults only' : `${count} ${count === 1 ? 'file' : 'files'}`;
			return ok(`Valid (${from}${inspected.isOfUnit ? '; as the unit has them' : ''}).`);
		},
		state: async () => checkState(paths.stateDir, await daemon(), state),
		'disk-space': async () => assessDisk(await readDiskSpace(paths.stateDir)),
		memory: async () => assessMemory(await readMemory(inspected.mainPid, options.machineRoot)),
		async identity() {
			const { runtime: opened } = await runtime();
			const [running, saved] = await whatIsKnown();
			if (saved === null) return blockedBy('state');
			return checkIdentity({
				daemon: running,
				settings: opened.resolved.settings,
				device: saved,
				credentialsDirectory: paths.credentialsDirectory,
				machineRoot: options.machineRoot,
			});
		},
		async pairing() {
			const { runtime: opened } = await runtime();
			const [running, saved] = await whatIsKnown();
			return saved === null ? blockedBy('state') : checkPairing(opened, saved, running);
		},
		dns: onTheWay(async (leads, limitMs) => {
			const { host } = firstHop(leads);
			const addresses = await resolveName(host, limitMs);
			if (addresses[0] === host) return notApplicable(`${host} is an address, and no name.`);
			return ok(`${host} is ${addresses.slice(0, 4).join(', ')}.`);
		}),
		tcp: onTheWay(async (leads, limitMs) => {
			const { host, port } = firstHop(leads);
			const address = await tryConnection(host, port, limitMs);
			return ok(`${address} accepts connections on port ${port}.`);
		}),
		proxy: onTheWay(async (leads, limitMs) => {
			if (leads.proxy === null) return notApplicable('There is no proxy on the way.');
			await tryTunnel(leads, limitMs);
			return ok(`${new URL(leads.proxy).host} connects to ${leads.url.host}.`);
		}),
		async clock(limitMs) {
			const leads = await way();
			if (leads === null) return assessClock(clock.wallMs(), null, 'nothing names a service yet');
			try {
				const { date, isVerified, atMs } = await askTime(leads, limitMs / 3);
				const skewMs = clockSkewMs(date, atMs);
				if (skewMs === null) return assessClock(atMs, null, `${leads.url.host} does not say what time it is`);
				const whom = isVerified ? leads.url.host : `what answers as ${leads.url.host} with a certificate not accepted`;
				return assessClock(atMs, skewMs, `the clock of ${whom}`);
			} catch (error) {
				const { code } = meaning(error, leads);
				if (code === 'internal') throw error;
				return assessClock(clock.wallMs(), null, `${leads.url.host} could not be asked (${code})`);
			}
		},
		tls: onTheWay(async (leads, limitMs) => {
			const { host, protocol } = leads.url;
			if (protocol !== 'https:') return notApplicable('Plain http, to this machine itself.');
			const { fault, ...shown } = await tryHandshake(leads, limitMs / 2);
			if (!fault) return assessCertificate({ host, ...shown }, clock.wallMs());
			const found = meaning(fault, leads);
			const ended =
				shown.validToMs < clock.wallMs() ? `, ended ${new Date(shown.validToMs).toISOString().slice(0, 10)}` : '';
			return failed({ ...found, message: `${found.message} It is signed by ${shown.issuer}${ended}.` });
		}, 'tls'),
		http: onTheWay(async ({ url }, limitMs) => {
			const { client } = (await runtime()).runtime;
			const asked = {
				method: 'GET' as const,
				url: endpointUrl(url.href, ENDPOINTS.deviceConnection),
				authorization: null,
			};
			const answer = await client.send({ ...asked, deadlineMs: limitMs, maxBytes: MAX_ANSWER_BYTES }).catch(toAnswer);
			if ('failure' in answer) return failed(answer.failure);
			const body = new TextDecoder().decode(answer.body);
			return assessAnswer({ status: answer.status, headers: answer.headers, body, host: url.host });
		}),
		async channel() {
			const running = await daemon();
			if (running.kind !== 'notRunning') return probeChannel(running);
			return (await device().catch(() => null)) === null ? blockedBy('state') : (await channel()).handshake;
		},
		async heartbeat(limitMs) {
			const running = await daemon();
			const { service, heartbeatCadence } = (await runtime()).runtime.resolved.settings;
			if (running.kind !== 'notRunning')
				return probeHeartbeat(running, {
					mode: service.heartbeatMode,
					cadenceMs: heartbeatCadence * 1000,
					nowMs: clock.wallMs(),
				});
			return (await channel()).answered(limitMs);
		},
		'local-socket': async () => {
			const { local } = (await runtime().catch(() => null))?.runtime.resolved.settings ?? {};
			return checkSockets(paths.runDir, await daemon(), local ?? null);
		},
		async scanner() {
			const { scanner } = (await runtime()).runtime.resolved.settings;
			const root = options.machineRoot;
			return checkScanners({ settings: scanner, daemon: await daemon(), runDir: paths.runDir, root });
		},
		unit: async () =>
			inspected.unit === null
				? notApplicable('systemd does not run this machine, or not this program.')
				: assessUnit(UNIT, inspected.unit),
	};

	return {
		probes,
		async close() {
			await (await channel.made()?.catch(() => null))?.close();
			await (await runtime.made()?.catch(() => null))?.runtime.close();
		},
	};
}

type Step = 'connection' | 'tls';

function toAnswer(error: unknown): { readonly failure: Failure } {
	return { failure: toFailure(error) };
}

function meaning(error: unknown, { url, proxy }: Way, step: Step = 'connection'): Failure {
	const found = classifyNetworkError(error, { host: url.host, viaProxy: proxy !== null });
	if (found.code !== 'request-timeout') return found;
	if (step === 'tls') return failure('handshake-timeout', `${url.host} did not finish its TLS handshake in time.`);
	return proxy === null
		? failure('connect-timeout', `${url.host} did not accept a connection in time.`)
		: failure('proxy-failed', `The proxy gave no connection to ${url.host} in time.`);
}

/** Does something when it is first asked for, and keeps the outcome. */
function once<Result>(act: () => Promise<Result>): (() => Promise<Result>) & { made(): Promise<Result> | null } {
	let result: Promise<Result> | null = null;
	const ask = () => {
		result ??= act();
		return result;
	};
	return Object.assign(ask, { made: () => result });
}
