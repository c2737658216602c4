/**
 * Puts the running agent together on a device: settings, lock and state, identity, network, the agent, its sockets.
 * Owns what is opened and closes it in the opposite order. Handles no signals and prints nothing (`cli/run.ts` does).
 */
import { randomUUID } from 'node:crypto';
import type { DeviceState } from '../core/device-state.ts';
import { AgentError, failure, toFailure } from '../core/errors.ts';
import { createSecretRegistry } from '../core/scrub.ts';
import { openChannel } from '../edges/channel.ts';
import { readIdentityFacts } from '../edges/identity-sources.ts';
import { openLocalServer } from '../edges/local-server.ts';
import { createLog, type Log, type LogDestination } from '../edges/log.ts';
import { createNetwork } from '../edges/network.ts';
import { createServiceClient } from '../edges/service-client.ts';
import { readSecretFile, watchSettings } from '../edges/settings-files.ts';
import { openStateStore } from '../edges/state-store.ts';
import { type Agent, type Environment, startAgent } from './agent.ts';
import { type Clock, systemClock } from './clock.ts';
import { readCredentials } from './credentials.ts';
import { type LoadedSettings, loadSettings, resolveWith, type SettingsSources } from './load-settings.ts';
import { localRoutes } from './local-routes.ts';

export interface DaemonOptions extends SettingsSources {
	readonly version: string;
	readonly clock?: Clock;
	readonly chance?: () => number;
	/** Where log lines go; default standard output. */
	readonly logTo?: LogDestination;
	/** Root of the file system that is asked for the device's identity; default `/`. */
	readonly machineRoot?: string;
}

export interface Daemon {
	readonly agent: Agent;
	readonly log: Log;
	/** Reads the settings anew. Invalid ones change nothing and become a warning. */
	reload(): Promise<void>;
	stop(): Promise<void>;
}

/**
 * Starts everything. When this resolves the sockets answer; the service need not have been reached yet.
 * @throws AgentError `settings-invalid` when there never were valid settings, `state-in-use`, `state-unreadable`,
 * `socket-failed`.
 */
export async function startDaemon(options: DaemonOptions): Promise<Daemon> {
	const { clock = systemClock, chance = Math.random, version, paths } = options;
	const userAgent = `idv-agent/${version}`;
	const loaded = await loadSettings(options);
	const store = await openStateStore(paths.stateDir);
	try {
		const { state, notices } = await store.load();
		const { usable, warning } = lastValid(loaded, state, options);
		const secrets = createSecretRegistry();
		const keepSecret = (secret: string) => secrets.add(secret);
		const log = createLog({
			level: usable.settings.log.level,
			secrets,
			...(options.logTo ? { destination: options.logTo } : {}),
		});
		const prepare = async (resolved: LoadedSettings): Promise<Environment> => {
			const { settings } = resolved;
			const network = await createNetwork(
				{
					proxy: settings.network.proxy ?? undefined,
					caFile: settings.network.caFile ?? undefined,
					systemCa: settings.network.systemCa,
					clientCertificateFile: settings.network.clientCertificateFile ?? undefined,
					clientKeyFile: settings.network.clientKeyFile ?? undefined,
				},
				options.environment,
			);
			const client = createServiceClient({ network, userAgent });
			return {
				resolved,
				network,
				client,
				credentials: await readCredentials(settings.credential, readSecretFile, keepSecret),
			};
		};
		let environment = await prepare(usable);
		const facts = await readIdentityFacts({
			root: options.machineRoot ?? '/',
			...(paths.credentialsDirectory ? { credentialsDirectory: paths.credentialsDirectory } : {}),
		});
		const agent = startAgent({
			clock,
			chance,
			version,
			environment,
			store,
			device: state,
			facts,
			newDeviceId: randomUUID,
			openChannel,
			log,
			keepSecret,
		});
		const { agentGroup, adminGroup } = usable.settings.local;
		const server = await openLocalServer({
			runDir: paths.runDir,
			routes: localRoutes(agent),
			groups: { agent: agentGroup, admin: adminGroup },
			onFault: (error) => log.error(`fault in the local interface: ${toFailure(error).message}`),
		}).catch(async (error: unknown) => {
			await agent.stop();
			await environment.network.close();
			throw error;
		});
		for (const notice of [...notices, ...loaded.notices, ...server.notices]) agent.warn(notice.message, notice);
		agent.warn('settings', warning);

		let reloading = Promise.resolve();
		const reload = async () => {
			const changed = await loadSettings(options);
			const [problem] = changed.problems;
			if (problem) {
				agent.warn(
					'settings',
					failure(problem.code, `${problem.message} The settings from before stay in force.`, problem),
				);
				return;
			}
			agent.warn('settings', null);
			const before = environment;
			try {
				environment = await prepare(changed);
			} catch (error) {
				agent.warn('settings', toFailure(error));
				return;
			}
			log.setLevel(changed.settings.log.level);
			agent.applyEnvironment(environment);
			await before.network.close();
		};
		const watch = watchSettings(
			{ configFile: paths.configFile, confDirectory: paths.confDirectory },
			() => void daemon.reload(),
		);
		const daemon: Daemon = {
			agent,
			log,
			reload: () => {
				reloading = reloading.then(reload);
				return reloading;
			},
			async stop() {
				watch.close();
				await reloading;
				await agent.stop();
				await server.close();
				await environment.network.close();
				await store.close();
			},
		};
		return daemon;
	} catch (error) {
		await store.close();
		throw error;
	}
}

/** A bad push never strands a device: if the settings are not valid now, the last valid ones are used. */
function lastValid(
	loaded: LoadedSettings,
	state: DeviceState,
	options: DaemonOptions,
): { usable: LoadedSettings; warning: ReturnType<typeof failure> | null } {
	const [problem] = loaded.problems;
	if (!problem) return { usable: loaded, warning: null };
	const before = state.lastSettings && resolveWith(state.lastSettings, options);
	if (!before || before.problems.length > 0)
		throw new AgentError(problem.code, loaded.problems.map(({ message }) => message).join('\n'), {
			remedy: problem.remedy,
		});
	const warning = failure(problem.code, `${problem.message} The last valid settings are in force.`, problem);
	return { usable: before, warning };
}
