/**
 * The listeners that the settings open on loopback beside the sockets: the page, health and metrics for a scraper, the routes for
 * applications in a browser. Opens, moves and closes them as the settings change. The device works without any of them:
 * one that cannot be opened is a warning, never the end of the agent.
 */
import type { Agent } from '../agent/agent.runner.ts';
import type { Clock } from '../base/clock.edge.ts';
import { type ErrorCode, failure, toFailure } from '../base/errors.ts';
import type { Log } from '../base/log.edge.ts';
import type { Settings } from '../settings/table.ts';
import { isEncryptedAtRest } from '../settings/value-schemas.ts';
import { roomOfApplications } from './memory-budget.ts';
import { firstToMove, settlePorts } from './port-moves.ts';
import { type LocalRoute, type LocalServer, openApplicationSocket } from './server/local-server.edge.ts';
import type { BrowserApplication, LoopbackServerOptions } from './server/loopback-server.edge.ts';
import { createRoom } from './server/room.edge.ts';

/** A port that another program holds is tried again after this time: nothing tells that it is free. */
const AGAIN_MS = 15_000;

export interface LocalPortsParts {
	readonly routes: readonly LocalRoute[];
	/** Holds `apps/`, with a socket for each application that has one. */
	readonly runDir: string;
	readonly openPage: (port: number) => Promise<{ readonly url: string; close(): Promise<void> }>;
	readonly warn: Agent['warn'];
	/** The last that could be used, with which a start goes on beside a bad setting. */
	readonly pieces: Agent['ways']['pieces'];
	readonly leases: Pick<Agent['leases'], 'releaseOthers'>;
	readonly clock: Pick<Clock, 'schedule'>;
	readonly log: Pick<Log, 'info'>;
	readonly onFault: (error: unknown) => void;
}

export function createLocalPorts(parts: LocalPortsParts) {
	const { warn, pieces, routes, onFault, clock } = parts;
	let applications: readonly BrowserApplication[] = [];
	/** Of all applications of the file, wherever they ask. */
	const room = createRoom(() => roomOfApplications(new Set(applications.map(({ name }) => name)).size));
	/** Only on a device that needs one. */
	const loadServer = () => import('./server/loopback-server.edge.ts');
	const openLoopback = async (options: LoopbackServerOptions): Promise<Opened & { dismiss(): void }> => {
		const { port, ...server } = await (await loadServer()).openLoopbackServer(options);
		return { url: `http://127.0.0.1:${port}/`, ...server };
	};
	const page = keepPort('page.port', 'page', parts, parts.openPage);
	const metrics = keepPort('local.metricsPort', 'health and metrics', parts, (port) =>
		openLoopback({ listener: 'probe', port, routes, onFault }),
	);
	let dismiss = () => {};
	const browser = keepPort('local.http.port', 'applications in a browser', parts, async (port) => {
		const shared = { routes, onFault, room, applications: () => applications };
		const opened = await openLoopback({ listener: 'browser', port, ...shared });
		dismiss = opened.dismiss;
		return opened;
	});

	const ports = [page, metrics, browser];
	/** By name and line, so that a changed line opens its socket again. */
	const sockets = new Map<string, LocalServer>();

	async function openSockets(): Promise<void> {
		const wanted = new Map(
			applications.flatMap((each) => (each.socket === undefined ? [] : [[JSON.stringify(each), each] as const])),
		);
		for (const [line, { close }] of [...sockets])
			if (!wanted.has(line)) {
				sockets.delete(line);
				await close();
			}
		for (const [line, application] of wanted) {
			const topic = `apps/${application.name}.sock`;
			if (sockets.has(line)) continue;
			try {
				const { runDir } = parts;
				const server = await openApplicationSocket({ runDir, routes, onFault, room, application });
				sockets.set(line, server);
				warn(topic, server.notices[0] ?? null);
			} catch (error) {
				warn(topic, toFailure(error));
			}
		}
	}

	async function readApplications(file: string | null): Promise<void> {
		const setting = 'local.http.applicationsFile';
		const use = async (text: string | null) => {
			applications = file === null || text === null ? [] : (await loadServer()).parseApplications(text, file);
		};
		try {
			const text = file === null ? null : await (await loadServer()).readApplicationsText(file);
			await use(text);
			pieces.keep(setting, isEncryptedAtRest(file) ? null : text);
			warn(setting, null);
		} catch (error) {
			const { code, message, remedy } = toFailure(error);
			// At a start there are none yet. A newer version may have kept what this one cannot read.
			if (applications.length === 0) await use(pieces.of(setting) ?? null).catch(() => {});
			const consequence = applications.length > 0 ? ' The applications from before stay in force.' : '';
			warn(setting, failure(code, message + consequence, { remedy, params: { path: `${file}` } }));
		}
	}

	let running = Promise.resolve();
	let desired: readonly (number | null)[] = [];
	let cancelAgain: (() => void) | null = null;
	let isClosed = false;
	const inTurn = (work: () => Promise<void>) => (running = running.then(work, work));

	/** A listener that is to have the port of another one comes after it, and stays where it was while the other one has to. */
	async function move(): Promise<void> {
		cancelAgain?.();
		let goals = [...desired];
		for (let waiting = [...ports.keys()]; waiting.length > 0; ) {
			const had = ports.map((each) => each.had());
			goals = settlePorts(goals, had);
			const holds = ports.map((each) => each.port());
			const { first, isRound } = firstToMove(goals, holds, waiting);
			const others = (at: number) => (isRound ? goals.toSpliced(at, 1) : []);
			await Promise.all(first.map((at) => ports[at]?.leave(goals[at] ?? null, others(at))));
			await Promise.all(first.map((at) => ports[at]?.take(goals[at] ?? null, desired[at] ?? null)));
			waiting = waiting.filter((at) => !first.includes(at));
			// Those that wait are measured by the settings again, beside those that have moved.
			goals = ports.map((each, at) => (waiting.includes(at) ? (desired[at] ?? null) : each.inUse()));
		}
		const isMissed = !isClosed && ports.some((each) => each.isMissed());
		cancelAgain = isMissed ? clock.schedule(AGAIN_MS, () => void inTurn(move).catch(onFault)) : null;
	}

	return {
		/** The URL of each, or `null`. */
		addresses: {
			/** The page on the device's own screen, `http://127.0.0.1:8765/`. */
			get page() {
				return page.url();
			},
			/** `/livez`, `/readyz` and `/metrics`. */
			get metrics() {
				return metrics.url();
			},
			/** Applications in a browser. */
			get browser() {
				return browser.url();
			},
		},
		/** Opens and closes what the settings ask for, and reads the applications file again. One call at a time. Never rejects. */
		async apply({ page: { port }, local: { metricsPort, http } }: Settings): Promise<void> {
			await readApplications(http.applicationsFile);
			dismiss();
			parts.leases.releaseOthers(applications.map(({ name }) => `${name}:`));
			await openSockets();
			desired = [port, metricsPort, http.port];
			await inTurn(move);
		},
		/** Closes all of them. May be called twice. */
		async close(): Promise<void> {
			isClosed = true;
			cancelAgain?.();
			applications = [];
			const leaveAll = () => Promise.all(ports.map((port) => port.leave(null, [])));
			await Promise.all([inTurn(async () => void (await leaveAll())), openSockets()]);
		},
	};
}

interface Opened {
	readonly url: string;
	close(): Promise<void>;
}

function keepPort(
	setting: string,
	what: string,
	{ warn, log, pieces }: Pick<LocalPortsParts, 'warn' | 'log' | 'pieces'>,
	open: (port: number) => Promise<Opened>,
) {
	let opened: (Opened & { readonly desired: number }) | null = null;
	/** The one that was left. */
	let before: number | null = null;
	let isMissed = false;
	const openAt = async (desired: number) => {
		opened = { ...(await open(desired)), desired };
		log.info(`${what} at ${opened.url}`);
	};
	/** The port in use goes with it as data, for `config show`. */
	const refuse = (code: ErrorCode, message: string, remedy?: string) => {
		const stays = opened ? ` Port ${opened.desired} stays in use.` : '';
		const params = { setting, ...(opened && { inUse: opened.desired }) };
		warn(setting, failure(code, `${setting}: ${message}${stays}`, { ...(remedy && { remedy }), params }));
	};
	const had = () => opened?.desired ?? (Number(pieces.of(setting)) || null);
	return {
		url: () => opened?.url ?? null,
		had,
		inUse: () => opened?.desired ?? null,
		/** Where it listens, also where it was asked for any; while it is closed, where it did. */
		port: () => (opened ? Number(new URL(opened.url).port) : had()),
		/** The port that it was to have could not be opened. */
		isMissed: () => isMissed,
		/** Closes it where none is wanted, and where another one of these is given its port. */
		async leave(desired: number | null, others: readonly (number | null)[]): Promise<void> {
			before = opened?.desired ?? null;
			if (!opened || opened.desired === desired) return;
			const { close, url } = opened;
			if (desired !== null && !others.includes(Number(new URL(url).port))) return;
			opened = null;
			await close();
		},
		/** Opens it unless it is open, before the one from before is closed; one that cannot be opened is tried again each time. @param asked by the settings. */
		async take(desired: number | null, asked: number | null): Promise<void> {
			const old = opened;
			isMissed = false;
			if (desired !== null && old?.desired !== desired)
				try {
					await openAt(desired);
					await old?.close();
				} catch (error) {
					const { code, message, remedy } = toFailure(error);
					isMissed = true;
					// Another program may have it by now.
					const last = before ?? Number(pieces.of(setting) ?? desired);
					if (!opened && last !== desired) await openAt(last).catch(() => {});
					refuse(code, message, remedy);
					return;
				}
			pieces.keep(setting, desired === null ? null : String(desired));
			if (asked === desired) warn(setting, null);
			else refuse('socket-failed', `port ${asked} is that of another listener of this agent.`);
		},
	};
}
