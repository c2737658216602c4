/**
 * The listeners that the settings open on loopback beside the sockets: the page, health and metrics for a scraper, the routes for
 * applications in a browser. Opens, moves and closes them as the settings change. The device works without any of them:
 * one that cannot be opened is a warning, never the end of the agent.
 */
import type { Agent } from '../agent/agent.runner.ts';
import { failure, toFailure } from '../base/errors.ts';
import type { Log } from '../base/log.edge.ts';
import type { Settings } from '../settings/table.ts';
import { isEncryptedAtRest } from '../settings/value-schemas.ts';
import { roomOfApplications } from './memory-budget.ts';
import { type LocalRoute, type LocalServer, openApplicationSocket } from './server/local-server.ts';
import type { BrowserApplication, LoopbackServerOptions } from './server/loopback-server.ts';
import { createRoom } from './server/room.ts';

export interface LocalPortsParts {
	readonly routes: readonly LocalRoute[];
	/** Holds `apps/`, with a socket for each application that has one. */
	readonly runDir: string;
	readonly openPage: (port: number) => Promise<{ readonly url: string; close(): Promise<void> }>;
	readonly warn: Agent['warn'];
	/** The last that could be used, with which a start goes on beside a bad setting. */
	readonly pieces: Agent['ways']['pieces'];
	readonly log: Pick<Log, 'info'>;
	readonly onFault: (error: unknown) => void;
}

export function createLocalPorts(parts: LocalPortsParts) {
	const { warn, pieces, routes, onFault } = parts;
	let applications: readonly BrowserApplication[] = [];
	/** Of all applications of the file, wherever they ask. */
	const room = createRoom(() => roomOfApplications(new Set(applications.map(({ name }) => name)).size));
	/** Only on a device that needs one. */
	const loadServer = () => import('./server/loopback-server.ts');
	const openLoopback = async (options: LoopbackServerOptions): Promise<Opened> => {
		const { port, close } = await (await loadServer()).openLoopbackServer(options);
		return { url: `http://127.0.0.1:${port}/`, close };
	};
	const page = keepPort('page.port', 'page', parts, parts.openPage);
	const metrics = keepPort('local.metricsPort', 'health and metrics', parts, (port) =>
		openLoopback({ listener: 'probe', port, routes, onFault }),
	);
	const browser = keepPort('local.http.port', 'applications in a browser', parts, (port) =>
		openLoopback({ listener: 'browser', port, routes, onFault, room, applications: () => applications }),
	);

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

	const leaveAll = (desired: readonly (number | null)[]) =>
		Promise.all(ports.map((port, at) => port.leave(desired[at] ?? null, desired.toSpliced(at, 1))));

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
			await openSockets();
			const desired = [port, metricsPort, http.port];
			const taken = settlePorts(
				desired,
				ports.map((each) => each.had()),
			);
			await leaveAll(taken);
			await Promise.all(ports.map((each, at) => each.take(taken[at] ?? null, desired[at] ?? null)));
		},
		/** Closes all of them. May be called twice. */
		async close(): Promise<void> {
			applications = [];
			await Promise.all([leaveAll([]), openSockets()]);
		},
	};
}

/** Of two that are given one port, it stays with the one that had it, and the other one stays where it was: by their last ports, also those from before a restart. */
export function settlePorts(desired: readonly (number | null)[], had: readonly (number | null)[]): (number | null)[] {
	const taken = [...desired];
	const isLost = (port: number | null, at: number) =>
		Boolean(port) && port !== had[at] && had[at] !== null && taken.some((other, one) => one !== at && other === port);
	for (let at = taken.findIndex(isLost); at !== -1; at = taken.findIndex(isLost)) taken[at] = had[at] ?? null;
	return taken;
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
	const openAt = async (desired: number) => {
		opened = { ...(await open(desired)), desired };
		log.info(`${what} at ${opened.url}`);
	};
	return {
		url: () => opened?.url ?? null,
		had: () => opened?.desired ?? (Number(pieces.of(setting)) || null),
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
			if (desired !== null && old?.desired !== desired)
				try {
					await openAt(desired);
					await old?.close();
				} catch (error) {
					const { code, message, remedy } = toFailure(error);
					// Another listener of these may have it by now.
					const last = before ?? Number(pieces.of(setting) ?? desired);
					if (!opened && last !== desired) await openAt(last).catch(() => {});
					const stays = opened ? ` Port ${last} stays in use.` : '';
					warn(setting, failure(code, `${setting}: ${message}${stays}`, { remedy }));
					return;
				}
			pieces.keep(setting, desired === null ? null : String(desired));
			const isOthers = `${setting}: port ${asked} is that of another listener of this agent. Port ${desired} stays in use.`;
			warn(setting, asked === desired ? null : failure('socket-failed', isOthers));
		},
	};
}
