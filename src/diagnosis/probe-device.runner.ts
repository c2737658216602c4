/**
 * The checks of `idv-agent doctor` on this side of the network: the daemon's word, the state, the identity, the pairing
 * and the local sockets. A running agent is asked; without one this process looks for itself, and changes nothing.
 */
import { access, constants, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { AgentError, asFailure, type Failure, failure, toFailure } from '../base/errors.ts';
import type { Runtime } from '../connection/runtime.runner.ts';
import { chooseIdentity } from '../identity/identity.ts';
import { readIdentityFacts } from '../identity/sources.edge.ts';
import { createLocalClient } from '../local-api/client.edge.ts';
import { type IdentityReport, LOCAL_ROUTES, LOCAL_SOCKETS, type Status } from '../protocol/local-api.ts';
import type { Settings } from '../settings/table.ts';
import type { DeviceState } from '../state/device-state.ts';
import { type LoadedState, openStateStore } from '../state/store.edge.ts';
import { serviceOf } from '../workflow/desired-registration.ts';
import { type Finding, failed, notApplicable, ok, warning } from './checks.ts';
import { readSocket } from './machine-probes.edge.ts';

/** For an answer of the daemon, in milliseconds. */
const ASK_MS = 3000;

export type DaemonWord =
	| { readonly kind: 'runs'; readonly status: Status; readonly identity: IdentityReport }
	| { readonly kind: 'notRunning'; readonly failure: Failure }
	/** One runs, but does not answer this user, or not here. */
	| { readonly kind: 'unknown'; readonly failure: Failure };

/** Asks the local socket; where nobody answers, whether the state is in use all the same. */
export async function askDaemon(runDir: string, stateDir: string): Promise<DaemonWord> {
	const client = createLocalClient({ runDir });
	const ask = (path: string) => client.request('agent', 'GET', path, undefined, { deadlineMs: ASK_MS });
	try {
		const [status, identity] = await Promise.all([ask(LOCAL_ROUTES.status), ask(LOCAL_ROUTES.identity)]);
		return { kind: 'runs', status: status as Status, identity: identity as IdentityReport };
	} catch (error) {
		const found = toFailure(error);
		if (found.code !== 'agent-not-running') return { kind: 'unknown', failure: found };
		const inUse = await whoUsesState(stateDir);
		return inUse ? { kind: 'unknown', failure: inUse } : { kind: 'notRunning', failure: found };
	}
}

/** Takes the lock of the state for a moment, if there is one to take. */
async function whoUsesState(stateDir: string): Promise<Failure | null> {
	try {
		await access(join(stateDir, 'lock.db'), constants.R_OK | constants.W_OK);
		await (await openStateStore(stateDir)).close();
		return null;
	} catch (error) {
		return error instanceof AgentError && error.code === 'state-in-use' ? error.failure : null;
	}
}

/** What stands in the state directory. @throws AgentError `state-unreadable`. */
export async function lookAtState(stateDir: string): Promise<LoadedState> {
	const store = await openStateStore(stateDir, { readonly: true });
	try {
		return await store.load();
	} finally {
		await store.close();
	}
}

export async function checkState(
	stateDir: string,
	daemon: DaemonWord,
	look: () => Promise<LoadedState>,
): Promise<Finding> {
	const info = await stat(stateDir).catch(() => null);
	if (info === null) return checkMissingState(stateDir);
	const told = daemon.kind === 'runs' ? daemon.status.warnings.filter(({ code }) => code.startsWith('state-')) : [];
	const isClosed = await access(stateDir, constants.R_OK | constants.X_OK).then(
		() => false,
		() => true,
	);
	// Applications may ask the agent, and may not look into its state.
	if (isClosed && daemon.kind === 'runs' && told.length === 0)
		return notApplicable(`This user may not look into ${stateDir}; the agent finds nothing wrong with it.`);
	const { notices } = isClosed && told.length > 0 ? { notices: [] } : await look();
	for (const problem of [...told, ...notices])
		return problem.code === 'state-corrupt' ? warning(asFailure(problem)) : failed(asFailure(problem));
	if (daemon.kind !== 'notRunning') {
		await access(stateDir, constants.W_OK).catch((error: NodeJS.ErrnoException) => {
			throw new AgentError('state-unwritable', `The state directory ${stateDir} cannot be written (${error.code}).`);
		});
		return ok(`${stateDir} can be read and written; the agent has it in use.`);
	}
	const store = await openStateStore(stateDir);
	try {
		await store.probe();
	} finally {
		await store.close();
	}
	if (info.mode & 0o077)
		return warning(
			failure(
				'state-unreadable',
				`Other users can look into ${stateDir}: its mode is ${(info.mode & 0o777).toString(8)}.`,
				{
					remedy: `Take that away: chmod 700 ${stateDir}.`,
				},
			),
		);
	return ok(`${stateDir} can be read, and a state can be saved there.`);
}

/** The agent makes the directory when it first starts, if it may. */
async function checkMissingState(stateDir: string): Promise<Finding> {
	for (let parent = dirname(stateDir); ; parent = dirname(parent)) {
		const answer = await stat(parent)
			.then((found) => (found.isDirectory() ? access(parent, constants.W_OK) : Promise.reject({ code: 'ENOTDIR' })))
			.then(
				() => 'writable',
				({ code }: NodeJS.ErrnoException) => code,
			);
		if (answer === 'ENOENT' && dirname(parent) !== parent) continue;
		if (answer === 'writable') return ok(`${stateDir} is not there yet: the agent makes it when it first starts.`);
		return failed(failure('state-unwritable', `${stateDir} is not there, and this user may not make it (${answer}).`));
	}
}

export async function checkIdentity(parts: {
	readonly daemon: DaemonWord;
	readonly settings: Settings;
	/** What is saved; a running agent is believed without it. */
	readonly device: DeviceState;
	readonly credentialsDirectory: string | null;
	readonly machineRoot: string | undefined;
}): Promise<Finding> {
	const { daemon, settings, device, machineRoot, credentialsDirectory } = parts;
	if (daemon.kind === 'runs') {
		const { deviceId, serial, warnings } = daemon.identity;
		const [problem] = warnings;
		return problem ? warning(asFailure(problem)) : ok(words(deviceId, serial.value));
	}
	const facts = await readIdentityFacts({
		...(machineRoot !== undefined && { root: machineRoot }),
		credentialsDirectory: credentialsDirectory ?? undefined,
	});
	const chosen = chooseIdentity(facts, settings, device.identity, device.generatedId);
	const [problem] = chosen.warnings;
	if (problem) return chosen.cloned ? failed(problem) : warning(problem);
	if (chosen.needsGeneratedId)
		return ok('Nothing tells this machine apart: an id is made when the agent first starts.');
	return ok(words(chosen.deviceId, chosen.serial.value));
}

function words(deviceId: { readonly value: string; readonly source: string }, serial: string | null): string {
	return `${deviceId.value} (${deviceId.source})${serial === null ? ', without a serial number' : `, serial number ${serial}`}.`;
}

/** @param device what is saved; a running agent is believed without it. */
export function checkPairing(
	{ resolved, credentials }: Pick<Runtime, 'resolved' | 'credentials'>,
	device: DeviceState,
	daemon: DaemonWord,
): Finding {
	const status = daemon.kind === 'runs' ? daemon.status : null;
	const baseUrl = status ? status.baseUrl : serviceOf(resolved.settings, device);
	const hasCredential = credentials.id !== '' || device.connections.length > 0;
	const pairedAt = status ? status.pairedAt : (device.pairing?.pairedAt ?? null);
	const isUnpaired = status ? status.state === 'unpaired' : baseUrl === null || !hasCredential;
	if (isUnpaired) return warning(failure('unpaired', 'This device is not paired yet.'));
	const how = pairedAt === null ? 'by a credential of the settings' : `since ${pairedAt.slice(0, 10)}`;
	return ok(`Belongs to ${baseUrl ?? 'a service'}, ${how}.`);
}

/** Who may use the local sockets, and whether an agent answers there. */
export async function checkSockets(
	runDir: string,
	daemon: DaemonWord,
	groups: Settings['local'] | null,
): Promise<Finding> {
	if (daemon.kind !== 'runs') return failed(daemon.failure);
	const [agent, admin] = await Promise.all([
		readSocket(join(runDir, LOCAL_SOCKETS.agent)),
		readSocket(join(runDir, LOCAL_SOCKETS.admin)),
	]);
	if (!agent || !admin) return notApplicable(`An agent answers; this user may not look into ${runDir}.`);
	for (const { path, mode } of [agent, admin])
		if (mode & 0o007)
			return failed(
				failure('socket-failed', `Every user of this device may use ${path}: its mode is ${mode.toString(8)}.`, {
					remedy:
						'Have it made anew: systemctl restart idv-agent.socket. If it stays so, look at SocketMode in that unit.',
				}),
			);
	if ([agent, admin].every(({ mode }) => (mode & 0o070) === 0))
		return warning(
			failure('socket-failed', `Only the owner of the sockets in ${runDir} may use them: applications can't.`, {
				remedy:
					'Make the groups of local.agentGroup and local.adminGroup (systemd-sysusers does), and start the agent again.',
			}),
		);
	if (agent.group === admin.group && groups !== null && groups.agentGroup !== groups.adminGroup)
		return warning(
			failure(
				'socket-failed',
				`Applications may pair and move this device: both sockets are for group ${agent.group}.`,
				{
					remedy: 'Give admin.sock a group of its own, in local.adminGroup or in idv-agent-admin.socket.',
				},
			),
		);
	const told = [agent, admin].map(({ path, group, members }) => {
		const who = members.length === 0 ? 'nobody is named as its member' : `members: ${members.join(', ')}`;
		return `${path.slice(runDir.length + 1)} is for group ${group} (${who})`;
	});
	return ok(`An agent answers; ${told.join(', ')}.`);
}
