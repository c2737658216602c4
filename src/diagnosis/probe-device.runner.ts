/**
 * The checks of `idv-agent doctor` on this side of the network: the state, the identity, the pairing, the local sockets and
 * the scanners. A running agent is asked; without one this process looks at the device. Changes nothing, opens no scanner.
 */
import { access, constants, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { readDamages } from '../base/documents.edge.ts';
import { AgentError, asFailure, type Failure, failure, toFailure } from '../base/errors.ts';
import { inWords } from '../base/files.edge.ts';
import { joinSentences } from '../base/sentences.ts';
import { createLocalClient } from '../client/local-client.edge.ts';
import { tellRefused } from '../connection/refused-credential.ts';
import type { Runtime } from '../connection/runtime.runner.ts';
import { findUnusableOldEvents } from '../events/takeover.edge.ts';
import { chooseIdentity, keptId } from '../identity/identity.ts';
import { readIdentityFacts } from '../identity/sources.edge.ts';
import { describeKept, type KeptAnswer } from '../pairing/kept-answer.ts';
import { openToFirstComer } from '../pairing/rules.ts';
import {
	type IdentityReport,
	LOCAL_ROUTES,
	LOCAL_SOCKETS,
	type ScannerReport,
	type Status,
} from '../protocol/local-api.ts';
import { chooseScanners } from '../scanning/choose-scanner.ts';
import { findScanners } from '../scanning/devices.edge.ts';
import type { Settings } from '../settings/table.ts';
import type { LoadedState } from '../state/copies.edge.ts';
import { type DeviceState, newestCode } from '../state/device-state.ts';
import { readLogMark } from '../state/log-mark.edge.ts';
import { openStateStore } from '../state/store.edge.ts';
import { lostAnswer, lostParams } from '../status/sentence.ts';
import { serviceOf } from '../workflow/desired-registration.ts';
import { together } from './check-results.ts';
import { type Finding, failed, notApplicable, ok, warning } from './checks.ts';
import { readSocket } from './machine-probes.edge.ts';

/** For an answer of the daemon, in milliseconds. */
const ASK_MS = 3000;

export type DaemonWord =
	| { readonly kind: 'runs'; readonly status: Status; readonly identity: IdentityReport }
	| { readonly kind: 'notRunning'; readonly failure: Failure }
	/** One runs, but does not answer this user, or not here. */
	| { readonly kind: 'unknown'; readonly failure: Failure };

/** Asks on the local socket; if there is no answer, looks whether the state is in use. */
export async function askDaemon(runDir: string, stateDir: string): Promise<DaemonWord> {
	try {
		const [status, identity] = await Promise.all([
			ask<Status>(runDir, LOCAL_ROUTES.status),
			ask<IdentityReport>(runDir, LOCAL_ROUTES.identity),
		]);
		return { kind: 'runs', status, identity };
	} catch (error) {
		const found = toFailure(error);
		if (found.code !== 'agent-not-running') return { kind: 'unknown', failure: found };
		const inUse = await findUseOfState(stateDir);
		return inUse ? { kind: 'unknown', failure: inUse } : { kind: 'notRunning', failure: found };
	}
}

async function ask<Answer>(runDir: string, path: string): Promise<Answer> {
	const client = createLocalClient({ runDir });
	return (await client.request('agent', 'GET', path, undefined, { deadlineMs: ASK_MS })) as Answer;
}

/** Takes the lock of the state for a moment, if there is one to take. */
async function findUseOfState(stateDir: string): Promise<Failure | null> {
	try {
		await access(join(stateDir, 'lock.db'), constants.R_OK | constants.W_OK);
		await (await openStateStore(stateDir)).close();
		return null;
	} catch (error) {
		return error instanceof AgentError && error.code === 'state-in-use' ? error.failure : null;
	}
}

export async function checkState(
	stateDir: string,
	daemon: DaemonWord,
	look: () => Promise<LoadedState>,
): Promise<Finding> {
	const info = await stat(stateDir).catch((error: NodeJS.ErrnoException) => error.code ?? '');
	if (info === 'ENOENT' && daemon.kind === 'runs') return warning(goneState(stateDir));
	if (typeof info === 'string') return checkMissingState(stateDir);
	const told = daemon.kind === 'runs' ? daemon.status.warnings.filter(({ code }) => code.startsWith('state-')) : [];
	const isClosed = await access(stateDir, constants.R_OK | constants.X_OK).then(
		() => false,
		() => true,
	);
	// Applications may ask the agent, and may not look into its state.
	if (isClosed && daemon.kind === 'runs' && told.length === 0)
		return notApplicable(`This user may not read ${stateDir}; the agent finds nothing wrong with it.`);
	const { notices } = isClosed && told.length > 0 ? { notices: [] } : await look();
	const damaged = isClosed ? null : await findDamagedLogs(stateDir, daemon.kind === 'notRunning', told);
	const worst = [...told, ...notices].find(({ code }) => code !== 'state-corrupt');
	const [first, ...others] = [...told.map(asFailure), ...notices, ...(damaged ? [damaged] : [])];
	if (first) return (worst ? failed : warning)(together([worst ? asFailure(worst) : first, first, ...others]));
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
	if ((info.mode & 0o077) === 0) return ok(`${stateDir} can be read, and a state can be saved there.`);
	const message = `Other users have access to ${stateDir}: its mode is ${(info.mode & 0o777).toString(8)}.`;
	return warning(failure('state-unreadable', message, { remedy: `Restrict it to its owner: chmod 700 ${stateDir}.` }));
}

/** Who says what a damaged log has lost. */
const MISSING = {
	audit: 'idv-agent audit --verify names missing lines.',
	history: 'idv-agent history says where its lines are missing.',
	events: 'The agent starts with what can be read; applications get a gap where an event is missing.',
} as const;

/** @param isUnused no agent runs, which may unlink files while they are looked at. @param told what the agent has said of files. */
async function findDamagedLogs(
	stateDir: string,
	isUnused: boolean,
	told: readonly { readonly message: string }[],
): Promise<Failure | null> {
	const mark = await readLogMark(stateDir);
	// Of each log, so that many of one hide none of another.
	const damaged = (['audit', 'history', 'events'] as const)
		.map((name) => [name, lookTwice(name).slice(0, 8)] as const)
		.filter(([, damages]) => damages.length > 0);

	/** A file that goes while it is looked at is whole the next time. */
	function lookTwice(name: string) {
		const found = readDamages(stateDir, name, mark).filter(
			({ file }) => !told.some(({ message }) => message.includes(file)),
		);
		if (isUnused || found.length === 0) return found;
		const again = readDamages(stateDir, name, mark);
		return found.filter(({ file }) => again.some((each) => each.file === file));
	}

	const old = isUnused ? findUnusableOldEvents(stateDir) : null;
	const files = damaged.flatMap(([, damages]) => damages.map(({ file, message }) => `${file}: ${message}`));
	if (old) files.push(`${old.file}: ${inWords(old.error)}`);
	if (files.length === 0) return null;
	const remedy = joinSentences('Check the disk.', ...damaged.map(([name]) => MISSING[name]), old ? MISSING.events : '');
	return failure('state-corrupt', `Files of the log are damaged: ${files.join('; ')}.`, { remedy });
}

/** An agent that was started with another directory says the same. */
const goneState = (stateDir: string) =>
	failure('state-unwritable', `${stateDir} is gone, or is not that of the agent, which runs.`, {
		remedy:
			'If it was removed or its disk is not mounted, put it back before the agent is restarted: without it the agent starts as on a device that was never paired.',
	});

/** The agent creates the directory when it first starts, if it may. */
async function checkMissingState(stateDir: string): Promise<Finding> {
	for (let parent = dirname(stateDir); ; parent = dirname(parent)) {
		try {
			// With the slash, a file in its place is ENOTDIR.
			await access(join(parent, '/'), constants.W_OK);
			return ok(`${stateDir} does not exist yet: the agent creates it when it first starts.`);
		} catch (error) {
			const { code } = error as NodeJS.ErrnoException;
			if (code === 'ENOENT' && dirname(parent) !== parent) continue;
			const message = `${stateDir} does not exist, and this user may not create it (${code}).`;
			return failed(failure('state-unwritable', message));
		}
	}
}

export async function checkIdentity(parts: {
	readonly daemon: DaemonWord;
	readonly settings: Settings;
	/** What is saved; not needed while an agent runs. */
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
	const chosen = chooseIdentity(facts, settings, device.identity, keptId(device));
	const [problem] = chosen.warnings;
	if (problem) return chosen.cloned ? failed(problem) : warning(problem);
	if (chosen.needsGeneratedId)
		return ok('This machine has no id of its own: the agent generates one before the device first registers.');
	return ok(words(chosen.deviceId, chosen.serial.value));
}

function words(deviceId: { readonly value: string; readonly source: string }, serial: string | null): string {
	return `${deviceId.value} (${deviceId.source})${serial === null ? ', without a serial number' : `, serial number ${serial}`}.`;
}

/** @param device what is saved; not needed while an agent runs. */
export function checkPairing(
	{ resolved, credentials }: Pick<Runtime, 'resolved' | 'credentials'>,
	device: DeviceState,
	daemon: DaemonWord,
	kept: KeptAnswer | null,
): Finding {
	const status = daemon.kind === 'runs' ? daemon.status : null;
	const { attempt } = device;
	const answer = status
		? status.warnings.find(({ code }) => code === 'answer-unreadable')
		: kept && attempt && describeKept(kept, attempt, resolved.settings.service.tokenPointer, null);
	const isEarlier = answer?.params?.['earlierAt'] !== undefined;
	if (answer && !isEarlier) return warning(asFailure(answer));
	const refused = status
		? status.warnings.find(({ code }) => code === 'credential-refused')
		: tellRefused(device, resolved.settings, credentials.id);
	if (refused) return warning(asFailure(refused));
	const baseUrl = status ? status.baseUrl : serviceOf(resolved.settings, device);
	const hasCredential = credentials.id !== '' || device.connections.length > 0;
	const pairedAt = status ? status.pairedAt : (device.pairing?.pairedAt ?? null);
	const isUnpaired = status ? status.state === 'unpaired' : baseUrl === null || !hasCredential;
	if (isUnpaired) {
		const lost = status ? status.summary.code === 'unpaired-uncertain' : newestCode(attempt) === 'lost';
		const told = lost
			? lostAnswer(status ? status.summary.params : lostParams(attempt))
			: failure('unpaired', 'This device is not paired yet.');
		return warning({ ...told, message: joinSentences(told.message, answer?.message ?? '') });
	}
	const how = pairedAt === null ? 'by a credential of the settings' : `since ${pairedAt.replace(/\.\d+Z$/, 'Z')}`;
	return ok(`Belongs to ${baseUrl ?? 'a service'}, ${how}.`);
}

const RECREATE_SOCKET =
	'Recreate it: systemctl restart idv-agent.socket. If the problem persists, check SocketMode in that unit.';
const CREATE_GROUPS =
	'Create the groups of local.agentGroup and local.adminGroup (systemd-sysusers does; in a container set both to the number of its group), and restart the agent.';
const SEPARATE_GROUPS = 'Give admin.sock a group of its own, in local.adminGroup or in idv-agent-admin.socket.';

/** Whether an agent answers on the local sockets, and which users may use them. */
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
	const wrong = (message: string, remedy: string) => failure('socket-failed', message, { remedy });
	const open = [agent, admin].find(({ mode }) => mode & 0o007);
	if (open) {
		const message = `Every user of this device may use ${open.path}: its mode is ${open.mode.toString(8)}.`;
		return failed(wrong(message, RECREATE_SOCKET));
	}
	if ([agent, admin].every(({ mode }) => (mode & 0o070) === 0))
		return warning(
			wrong(`Only the owner of the sockets in ${runDir} may use them: applications can't.`, CREATE_GROUPS),
		);
	if (agent.group === admin.group && groups !== null && groups.agentGroup !== groups.adminGroup) {
		const message = `Applications may pair and move this device: both sockets are for group ${agent.group}.`;
		return warning(wrong(message, SEPARATE_GROUPS));
	}
	const described = [agent, admin].map(({ path, group, members }) => {
		const named = members.length === 0 ? 'no named members' : `members: ${members.join(', ')}`;
		return `${path.slice(runDir.length + 1)} is for group ${group} (${named})`;
	});
	return ok(`An agent answers; ${described.join(', ')}.`);
}

/** Which scanners the agent would read, and what prevents it. A running agent is asked: systemd may hide devices from it. */
export async function checkScanners(parts: {
	readonly settings: Settings['scanner'];
	readonly daemon: DaemonWord;
	readonly runDir: string;
	/** Root of the file system that is looked at; default `/`. */
	readonly root?: string | undefined;
}): Promise<Finding> {
	const { settings, daemon, runDir, root } = parts;
	if (settings.kind === 'off') return notApplicable('Scanners are switched off (scanner.kind).');
	const choices = chooseScanners(await findScanners({ root, device: settings.device }), settings);
	const chosen = choices.filter((choice) => choice.chosen).map(({ device }) => device);
	if (chosen.length === 0)
		return settings.device === null
			? notApplicable('No scanner was found; codes can be typed or read from a picture.')
			: warning(failure('scanner-failed', `There is no scanner at ${settings.device}, which scanner.device names.`));

	const report = daemon.kind === 'runs' ? await askForScanners(runDir) : null;
	const problem = report?.devices.find((device) => device.problem)?.problem;
	if (problem) return warning(asFailure(problem));
	// An agent that sees no scanner says that it listens to none: that is the fault that is looked for here.
	const isWaiting = report !== null && daemon.kind === 'runs' && daemon.status.state === 'unpaired';
	const unseen = isWaiting && chosen.find(({ node }) => !report.devices.some((device) => device.node === node));
	if (unseen)
		return warning(failure('scanner-denied', `The agent does not see ${unseen.path}: systemd hides devices from it.`));
	const closed = chosen.find(({ readable }) => !readable);
	if (closed && !report) return warning(failure('scanner-denied', `This user may not read ${closed.path}.`));
	const names = chosen.map(({ kind, path }) => `${kind} ${path}`).join(', ');
	return ok(`${names}; ${report?.sentence ?? 'read while the device is not paired.'}`);
}

/** The agent's report on its scanners; `null` from an agent of another version, which has none. */
function askForScanners(runDir: string): Promise<ScannerReport | null> {
	return ask<ScannerReport>(runDir, LOCAL_ROUTES.scanners).catch((error) => {
		if (toFailure(error).code === 'not-found') return null;
		throw error;
	});
}

/** Whether the first person with any code could take this device: the settings do not say which service it is for. */
export function checkFirstPairing(settings: Pick<Settings, 'baseUrl' | 'pairing'>, state: DeviceState | null): Finding {
	if (state?.pairing || (state && state.connections.length > 0)) return ok('This device is paired.');
	const open = openToFirstComer(settings);
	return open ? warning(open) : ok('The settings say which service this device is for.');
}
