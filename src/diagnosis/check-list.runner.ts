/**
 * The checks of `idv-agent doctor`, as one list, and what they share. They look as the daemon would: with its settings, its
 * state, its network. They change nothing, redeem no code, and leave the channel of a running agent alone.
 */
import { existsSync } from 'node:fs';
import { isIP } from 'node:net';
import { join } from 'node:path';
import type { Clock } from '../base/clock.edge.ts';
import { type Failure, failure, toFailure } from '../base/errors.ts';
import { joinSentences } from '../base/sentences.ts';
import { classifyNetworkError } from '../connection/classify-network-error.ts';
import { clockSkewMs } from '../connection/clock-skew.ts';
import { tellEnds } from '../connection/credential-ends.ts';
import { asOwnSide } from '../connection/own-side.edge.ts';
import { type OpenRuntime, openFirstRuntime } from '../connection/runtime.runner.ts';
import { readKeptAnswer } from '../pairing/kept-answer.edge.ts';
import { ENDPOINTS, endpointUrl } from '../protocol/endpoints.ts';
import { findExposedFiles } from '../settings/exposed-files.runner.ts';
import { type LoadedBefore, loadSettings } from '../settings/load.runner.ts';
import { toldProblems, toldUnusable } from '../settings/told-problems.ts';
import { lookAtState } from '../state/copies.edge.ts';
import { EMPTY_STATE } from '../state/device-state.ts';
import { missingFor, UPDATES_PROGRAM } from '../updates/package.ts';
import { keptWithoutSettings, serviceOf } from '../workflow/desired-registration.ts';
import { asFirstMet, besideAgent } from './beside-agent.ts';
import {
	assessAnswer,
	assessCertificate,
	assessClock,
	assessDisk,
	assessMemory,
	assessPlan,
	assessUnit,
	assessUntold,
} from './check-results.ts';
import { blockedBy, type Check, type Finding, failed, notApplicable, ok, warning } from './checks.ts';
import { hooksThatCannotRun } from './hook-programs.edge.ts';
import { assessHooks, HOOKS_UNIT, HOOKS_UNIT_PROPERTIES, RIGHTS } from './hook-rights.ts';
import { type InspectionTarget, UNIT } from './inspection-target.runner.ts';
import { isOpenToGroup, readDiskSpace, readMemory, readUnit } from './machine-probes.edge.ts';
import { findUnusable } from './named-files.runner.ts';
import { checkChannel, checkHeartbeat, tryChannel } from './probe-channel.runner.ts';
import {
	askDaemon,
	checkFirstPairing,
	checkIdentity,
	checkPairing,
	checkScanners,
	checkSockets,
	checkState,
} from './probe-device.runner.ts';

/** How much of an answer to a request without a credential is read, in bytes. */
const MAX_ANSWER_BYTES = 64 * 1024;

export interface DoctorOptions {
	readonly inspected: InspectionTarget;
	readonly clock: Clock;
	readonly userAgent: string;
	/** Root of the file system in which the machine is looked at; default `/`. */
	readonly machineRoot?: string | undefined;
}

/** Where the service is, and by which way. */
interface Route {
	readonly url: URL;
	/** A secret if it has a password; `null` without a proxy. */
	readonly proxy: string | null;
}

/** What the checks share. Everything is read, asked or opened when a check first needs it, and once. */
export type DoctorContext = ReturnType<typeof openContext>;

export function openContext(options: DoctorOptions) {
	const { inspected, userAgent } = options;
	const { paths } = inspected;
	const settings = once(() => loadSettings(inspected));
	const daemon = once(() => askDaemon(paths.runDir, paths.stateDir));
	const loadedState = once(() => lookAtState(paths.stateDir));
	const savedState = once(async () => {
		const { state } = await loadedState();
		return state;
	});
	const stateOrEmpty = () => savedState().catch(() => EMPTY_STATE);
	const firstRuntime = once(async () => {
		const parts = { userAgent, env: inspected.env };
		const load = (before: LoadedBefore | null) =>
			loadSettings(inspected, before && { ...before, keepsGone: () => true });
		return openFirstRuntime(load, await stateOrEmpty(), inspected, parts);
	});
	/** As the running agent has it; else as the next start would try it. */
	const runtime = async (): Promise<OpenRuntime> => {
		const first = await firstRuntime();
		return (await daemon()).kind === 'runs' ? first.runtime : (first.tried ?? first.runtime);
	};
	/** `null` while no service is named. */
	const route = once(async (): Promise<Route | null> => {
		const { network, resolved } = await runtime();
		const running = await daemon();
		const baseUrl =
			(running.kind === 'runs' ? running.status.baseUrl : null) ?? serviceOf(resolved.settings, await stateOrEmpty());
		if (baseUrl === null) return null;
		const url = new URL(baseUrl);
		return { url, proxy: network.proxyFor(url) };
	});
	const reach = once(async (url: URL, limitMs: number) => (await runtime()).network.reach(url, limitMs));
	const inspection = once(async (url: URL, limitMs: number) => (await runtime()).network.inspect(url, limitMs));
	const channel = once(async () => tryChannel(await runtime(), await savedState(), userAgent, asFirstMet));
	return {
		...options,
		paths,
		settings,
		daemon,
		loadedState,
		stateOrEmpty,
		firstRuntime,
		runtime,
		route,
		reach,
		inspection,
		channel,
		/** The saved state; `null` when it can't be read and no agent runs that would answer in its place. */
		async knownState() {
			const isAnswered = (await daemon()).kind === 'runs';
			return savedState().catch(() => (isAnswered ? EMPTY_STATE : null));
		},
		async close() {
			await (await channel.begun()?.catch(() => null))?.close();
			const opened = await firstRuntime.begun()?.catch(() => null);
			await Promise.all([opened?.runtime.close(), opened?.tried?.close()]);
		},
	};
}

type Run = Check<DoctorContext>['run'];

const check = <Id extends string>(id: Id, title: string, needs: readonly string[], run: Run) => ({
	id,
	title,
	needs,
	run,
});

/** A check on the way to the service. */
const checkRoute = <Id extends string>(
	id: Id,
	title: string,
	needs: readonly string[],
	run: (route: Route, context: DoctorContext, limitMs: number) => Promise<Finding>,
) =>
	check(id, title, needs, async (context, limitMs) => {
		const route = await context.route();
		if (route === null) return notApplicable('No service is named yet.');
		const found = await run(route, context, limitMs).catch((error: unknown) => failed(toFailure(error)));
		const running = await context.daemon();
		return running.kind === 'runs' ? besideAgent(found, running.status) : found;
	});

/** In the order in which they are reported: causes before what follows from them. */
export const CHECKS = [
	check(
		'settings',
		'Settings',
		[],
		async ({ settings, firstRuntime, stateOrEmpty, inspected, daemon, clock, machineRoot = '/' }) => {
			const { documents, notices } = await settings();
			const { problems, runtime, tried } = await firstRuntime();
			const running = await daemon();
			// Only the agent knows what it has tried or refused.
			const told = running.kind === 'runs' ? running.status.warnings : [];
			const having = (what: string) => told.filter(({ code }) => code === what) as Failure[];
			/** In the agent's words, which say since when. */
			const asTold = (raw: Failure, own = raw) =>
				(told.find(({ message }) => message.startsWith(raw.message)) as Failure | undefined) ?? own;
			const { unreadable } = runtime.credentials;
			// The agent waits for the file; without a saved Connection it has nothing else to do.
			if (unreadable && (await stateOrEmpty()).connections.length === 0) return failed(asTold(unreadable));
			const { resolved } = runtime;
			const exposed = await findExposedFiles(resolved, inspected.paths);
			const absent = keptWithoutSettings(resolved.settings, await stateOrEmpty())?.missing;
			// The agent may have been started with settings of its own.
			const isNamedThere = running.kind === 'runs' && !told.some(({ message }) => message === absent?.message);
			const missing = isNamedThere ? undefined : absent;
			const withoutUpdates = missingFor(resolved, existsSync(join(machineRoot, UPDATES_PROGRAM)));
			const own = toldProblems(resolved.problems, resolved.unknown);
			const refusals = [
				...own.map((one, at) => asTold(resolved.problems[at] ?? one, one)),
				...problems.map((one) => asTold(one.told, toldUnusable(one))),
				...(await findUnusable(resolved.settings)).map((one) => asTold(one)),
				...having('settings-not-followed'),
			];
			// A file that has vanished is not on the disk to be found: the agent knows of it.
			const unread = refusals.filter(({ code }) => code === 'settings-unreadable');
			const isNamed = ({ params }: Failure) => unread.some(({ message }) => message.includes(`${params?.['path']}`));
			refusals.push(...having('settings-unreadable').filter((one) => one.params?.['path'] && !isNamed(one)));
			refusals.push(...tellEnds((tried ?? runtime).ends ?? [], clock.wallMs()));
			const all = [...refusals, missing, ...exposed, ...notices, withoutUpdates].filter((one) => one != null);
			const [problem] = all;
			if (problem) {
				// Faults are followed by what to do about them: the last of that is the remedy.
				const told = [...Map.groupBy(all, ({ remedy }) => remedy)].flatMap(([remedy, those]) => [
					...those.map(({ message }) => message),
					remedy,
				]);
				return warning({ ...problem, message: joinSentences(...told.slice(0, -1)), remedy: told.at(-1) ?? '' });
			}
			const files = `${documents.length} ${documents.length === 1 ? 'file' : 'files'}`;
			const from = documents.length === 0 ? 'no file, defaults only' : files;
			return ok(`Valid (${from}${inspected.isOfUnit ? '; as the unit has them' : ''}).`);
		},
	),
	check('state', 'State directory', [], async ({ paths, daemon, loadedState }) =>
		checkState(paths.stateDir, await daemon(), loadedState),
	),
	check('disk-space', 'Disk space', [], async ({ paths, settings }) =>
		assessDisk(await readDiskSpace(paths.stateDir), (await settings()).settings),
	),
	check('memory', 'Memory', [], async ({ inspected, machineRoot, settings }) =>
		assessMemory(
			await readMemory(inspected.mainPid, machineRoot),
			(await settings()).settings.local.http.applicationsFile !== null,
		),
	),
	check('identity', 'Identity', ['settings'], async ({ runtime, daemon, knownState, paths, machineRoot }) => {
		const { settings } = (await runtime()).resolved;
		const device = await knownState();
		if (device === null) return blockedBy('state');
		const { credentialsDirectory } = paths;
		return checkIdentity({ daemon: await daemon(), settings, device, credentialsDirectory, machineRoot });
	}),
	check('pairing', 'Pairing', ['settings'], async ({ runtime, daemon, knownState, paths }) => {
		const device = await knownState();
		if (device === null) return blockedBy('state');
		return checkPairing(await runtime(), device, await daemon(), await readKeptAnswer(paths.stateDir));
	}),
	checkRoute('dns', 'DNS', ['settings'], async (route, { reach }, limitMs) => {
		const { hostname } = firstHop(route);
		if (isIP(hostname.replace(/^\[(.*)\]$/, '$1')) !== 0)
			return notApplicable(`${hostname} is an IP address; there is nothing to resolve.`);
		const { resolved, connected } = await reach(route.url, limitMs);
		const addresses = await resolved;
		const attempt = addresses.length === 0 ? await connected : {};
		if ('error' in attempt)
			return failed(
				explain(attempt.error, route, failure('dns-failed', `The name ${hostname} was not resolved in time.`)),
			);
		return ok(`${hostname} is ${addresses.slice(0, 4).join(', ')}.`);
	}),
	checkRoute('tcp', 'TCP connection', ['dns'], async (route, { reach }, limitMs) => {
		const attempt = await (await reach(route.url, limitMs)).connected;
		const { host, protocol, port: named } = firstHop(route);
		const port = Number(named) || (protocol === 'https:' ? 443 : 80);
		if ('address' in attempt) return ok(`${attempt.address} accepts connections on port ${port}.`, { port });
		const late = route.proxy === null ? 'connect-timeout' : 'proxy-failed';
		return failed(explain(attempt.error, route, failure(late, `${host} did not accept a connection in time.`)));
	}),
	checkRoute('proxy', 'Proxy', ['tcp'], async (route, { inspection }, limitMs) => {
		if (route.proxy === null) return notApplicable('No proxy is used.');
		const { certificate, error } = await inspection(route.url, limitMs);
		const found = error && explain(error, route);
		// Without a certificate the handshake failed, or there was no tunnel to begin it in.
		const isTlsFault = found !== null && TLS_FAULTS.includes(found.code);
		if (found && !certificate && !isTlsFault) return failed(found);
		return ok(`${firstHop(route).host} connects to ${route.url.host}.`);
	}),
	// Needs no network check: it is wanted most when nothing else works.
	check('clock', 'Clock', ['settings'], async ({ route: findRoute, inspection, clock }, limitMs) => {
		const route = await findRoute();
		if (route === null) return assessClock(clock.wallMs(), null, 'no service is named yet');
		const { host } = route.url;
		const { date, atMs, certificate, error } = await inspection(route.url, limitMs);
		if (error) {
			const { code } = explain(error, route);
			return assessClock(atMs, null, `${host} could not be asked (${code})`);
		}
		const skewMs = clockSkewMs(date, atMs);
		if (skewMs === null) return assessClock(atMs, null, `the answer of ${host} has no date`);
		const doubt = certificate?.fault ? ', whose certificate is not accepted' : '';
		return assessClock(atMs, skewMs, `the clock of ${host}${doubt}`);
	}),
	checkRoute('tls', 'TLS certificate', ['proxy'], async (route, { inspection, clock }, limitMs) => {
		const { host, protocol } = route.url;
		if (protocol !== 'https:') return notApplicable('Plain http, within this device.');
		const { certificate, error } = await inspection(route.url, limitMs);
		if (!certificate) return failed(explain(error, route));
		const { fault, issuer, validToMs } = certificate;
		if (!fault) return assessCertificate({ host, ...certificate }, clock.wallMs());
		const found = explain(fault, route);
		const ended = validToMs < clock.wallMs() ? `, ended ${new Date(validToMs).toISOString().slice(0, 10)}` : '';
		return failed({ ...found, message: `${found.message} It is signed by ${issuer}${ended}.` });
	}),
	checkRoute('http', 'HTTP answer', ['tls'], async ({ url }, { runtime }, limitMs) => {
		const { client } = await runtime();
		const { status, headers, body } = await client.send({
			method: 'GET',
			url: endpointUrl(url.href, ENDPOINTS.deviceConnection),
			authorization: null,
			deadlineMs: limitMs,
			maxBytes: MAX_ANSWER_BYTES,
		});
		return assessAnswer({ status, headers, body: new TextDecoder().decode(body), host: url.host });
	}),
	check('channel', 'Channel handshake', ['http'], async ({ daemon, knownState, channel }) => {
		const running = await daemon();
		if (running.kind !== 'notRunning') return checkChannel(running);
		return (await knownState()) === null ? blockedBy('state') : (await channel()).handshake;
	}),
	check('heartbeat', 'Heartbeat', ['channel'], async ({ daemon, runtime, channel, clock }) => {
		const running = await daemon();
		if (running.kind === 'notRunning') return (await channel()).answered;
		const { service, heartbeatCadence } = (await runtime()).resolved.settings;
		const cadence = { mode: service.heartbeatMode, cadenceMs: heartbeatCadence * 1000 };
		return checkHeartbeat(running, { ...cadence, nowMs: clock.wallMs() });
	}),
	check('local-socket', 'Local sockets', [], async ({ paths, daemon, runtime }) => {
		const opened = await runtime().catch(() => null);
		return checkSockets(paths.runDir, await daemon(), opened?.resolved.settings.local ?? null);
	}),
	check('plan', 'Fleet plan', ['settings'], async ({ runtime, daemon, knownState, clock }) => {
		const { fleet } = (await runtime()).resolved.settings;
		const running = await daemon();
		const warnings = running.kind === 'runs' ? running.status.warnings : [];
		return assessPlan(fleet.planUrl, (await knownState())?.plan ?? null, warnings, clock.wallMs());
	}),
	check('first-code', 'First code', ['settings'], async ({ runtime, knownState }) =>
		checkFirstPairing((await runtime()).resolved.settings, await knownState()),
	),
	check('scanner', 'Scanner', ['settings'], async ({ runtime, daemon, paths, machineRoot: root }) => {
		const { scanner } = (await runtime()).resolved.settings;
		return checkScanners({ settings: scanner, daemon: await daemon(), runDir: paths.runDir, root });
	}),
	check('hooks', 'Hooks', ['settings'], async ({ runtime, settings, inspected: { unit, paths } }) => {
		const { origins } = await settings();
		const hooks = Object.entries((await runtime()).resolved.settings.hooks).filter(([, argv]) => argv.length > 0);
		const set = hooks.map(([name]) => {
			return { name, ...(origins.get(`hooks.${name}`) ?? { source: 'kept', where: null }) };
		});
		const [cannot, ...others] = hooksThatCannotRun((await runtime()).resolved.settings);
		if (cannot)
			return warning({ ...cannot, message: joinSentences(cannot.message, ...others.map(({ message }) => message)) });
		if (set.length === 0 || unit === null) return assessHooks({ set, agentUnit: null, unit: null, closed: [] });
		const [agentUnit, hooksUnit] = [await readUnit(UNIT, RIGHTS), await readUnit(HOOKS_UNIT, HOOKS_UNIT_PROPERTIES)];
		const named = [...new Set(hooks.flatMap(([, argv]) => argv.filter((word) => word.startsWith('/'))))];
		const programs = hooks.map(([, [program]]) => program);
		const open = await Promise.all(named.map((path) => isOpenToGroup(path, paths.runDir, programs.includes(path))));
		return assessHooks({ set, agentUnit, unit: hooksUnit, closed: named.filter((_, index) => !open[index]) });
	}),
	check('unit', 'systemd unit', [], async ({ inspected: { unit } }) =>
		unit === null ? notApplicable('systemd does not run this machine, or could not be asked.') : assessUnit(UNIT, unit),
	),
	check('agent', 'Running agent', [], async ({ daemon }, _, before) => {
		const running = await daemon();
		if (running.kind === 'runs') return assessUntold(running.status.warnings, await before());
		return notApplicable(
			running.kind === 'unknown' ? 'An agent runs but could not be asked.' : 'No agent runs here that could be asked.',
		);
	}),
] as const satisfies readonly Check<DoctorContext>[];

export type CheckId = (typeof CHECKS)[number]['id'];

/** In the order of the list. */
export const CHECK_IDS: readonly CheckId[] = CHECKS.map(({ id }) => id);

/** The host that this device connects to first: the proxy, or the service itself. */
function firstHop({ url, proxy }: Route): URL {
	return proxy === null ? url : new URL(proxy);
}

/** What may go wrong once the proxy has made its tunnel. */
const TLS_FAULTS: readonly string[] = ['tls-failed', 'handshake-timeout'];

/** @param late what it means that the limit was over; by default, that the TLS handshake did not finish. */
function explain(
	error: unknown,
	{ url, proxy }: Route,
	late = failure('handshake-timeout', `${url.host} did not finish its TLS handshake in time.`),
): Failure {
	const context = { host: url.host, proxy: proxy === null ? null : new URL(proxy).host };
	const found = asOwnSide(classifyNetworkError(error, context), context);
	return found.code === 'request-timeout' ? late : found;
}

/** Does something when it is first asked for, with the arguments of that call, and keeps the outcome. */
function once<Arguments extends unknown[], Result>(act: (...given: Arguments) => Promise<Result>) {
	let result: Promise<Result> | null = null;
	const ask = (...given: Arguments) => {
		result ??= act(...given);
		return result;
	};
	return Object.assign(ask, { begun: () => result });
}
