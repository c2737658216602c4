/**
 * The program of the package idv-agent-updates, which the package and systemd run as root: `prepare` before a new version, `judge`
 * while it is tried, `apply` for the order of a fleet plan, `forget` for a version that was taken back. Node's of idv-agent runs it.
 */
import { join } from 'node:path';
import { systemClock } from '../base/clock.edge.ts';
import { AgentError } from '../base/errors.ts';
import { openShaper } from '../base/shapes.edge.ts';
import { createLocalClient } from '../client/local-client.edge.ts';
import { readPlan } from '../fleet/verify-plan.runner.ts';
import { chooseIdentity, keptId } from '../identity/identity.ts';
import { readIdentityFacts } from '../identity/sources.edge.ts';
import { LOCAL_ROUTES } from '../protocol/local-api.ts';
import { findExposedOrder } from '../settings/exposed-files.runner.ts';
import { type LoadedSettings, loadSettings } from '../settings/load.runner.ts';
import { choosePaths } from '../settings/paths.runner.ts';
import { lookAtState } from '../state/copies.edge.ts';
import { EMPTY_STATE } from '../state/device-state.ts';
import { ownTexts } from '../status/own-texts.ts';
import { applyOrder } from '../updates/apply.runner.ts';
import { runJudge } from '../updates/judge.runner.ts';
import { AGENT_UNIT, openUpdateKeep } from '../updates/keep.edge.ts';
import { PLAN_FILE } from '../updates/package.ts';
import { prepareUpdate } from '../updates/prepare.runner.ts';
import { versionSchema } from '../updates/record.ts';
import * as system from '../updates/system.edge.ts';
import { askStatus } from './local-agent.runner.ts';
import { Shell } from './output.runner.ts';

/** Of the package. */
const AGENT_UNIT_FILE = '/usr/lib/systemd/system/idv-agent.service';
/** The agent answers within this time, or counts as silent. */
const ANSWER_MS = 5_000;
/** Far more than a status or the leases have: the judge has 512 MiB, and what listens is the agent's user's. */
const MAX_ANSWER_BYTES = 1024 * 1024;

const clientOf = (shell: Shell) =>
	createLocalClient({ runDir: choosePaths({}, shell.env).runDir, maxBytes: MAX_ANSWER_BYTES });

/** `forget VERSION`: apt may install it again. */
async function forgetVersion(shell: Shell, version: string): Promise<void> {
	const keep = openUpdateKeep();
	const outcomes = await keep.outcomes();
	const takenBack = outcomes.takenBack.filter((one) => one.version !== version);
	if (takenBack.length === outcomes.takenBack.length)
		throw new AgentError('usage', `Version ${version} was not taken back on this device.`, {
			remedy: 'idv-agent update show lists those that were.',
		});
	await keep.saveOutcomes({ ...outcomes, takenBack });
	await system.tellSystemd('try-reload-or-restart', AGENT_UNIT);
	shell.answer({ forgotten: version }, `apt may install version ${version} again.`);
}

/** `prepare VERSION`: a script of idv-agent's package, before dpkg replaces anything. */
async function prepare(shell: Shell, to: string): Promise<void> {
	if (!versionSchema.safeParse(to).success) throw new AgentError('usage', 'This is not a version of dpkg.');
	const client = clientOf(shell);
	await prepareUpdate(to, {
		keep: openUpdateKeep(),
		system,
		askStatus: () => askStatus(client).catch(() => null),
		running: { executable: process.execPath, program: import.meta.filename, unit: AGENT_UNIT_FILE },
		now: new Date().toISOString(),
	});
}

/** `judge`: systemd runs it, from the copies that `prepare` has kept. */
async function judgeUpdate(shell: Shell): Promise<void> {
	const client = clientOf(shell);
	const loaded = await loadSettings(sourcesOf(shell));
	const end = await runJudge({
		keep: openUpdateKeep(),
		system,
		clock: systemClock,
		askStatus: () => askStatus(client, { deadlineMs: ANSWER_MS }).catch(() => null),
		askToTryNow: async () => {
			await client.request('admin', 'POST', LOCAL_ROUTES.reconnect).catch(() => null);
		},
		// This process runs in the version before, of which the agent is a part.
		getsThrough: () => system.getsThrough(process.execPath),
		isDue: () => whatIsDue(shell, loaded),
		judgeSeconds: loaded.settings.update.judgeSeconds,
		source: loaded.settings.update.source,
		async shapeAll(lines) {
			const { state } = await lookAtState(choosePaths({}, shell.env).stateDir).catch(() => ({ state: EMPTY_STATE }));
			const { line } = openShaper(() => ownTexts(loaded.settings, state), true);
			return lines.map(line);
		},
		say: (text) => shell.line(text),
	});
	if (end === 'none') shell.line('There was nothing to judge.');
}

/** What a channel does within `update.judgeSeconds`. The plan may have set another cadence: the registration says which. */
async function whatIsDue(shell: Shell, { settings }: LoadedSettings) {
	const { state } = await lookAtState(choosePaths({}, shell.env).stateDir).catch(() => ({ state: EMPTY_STATE }));
	const cadence = state.connections.at(-1)?.request.heartbeatCadence ?? settings.heartbeatCadence;
	const isWithin = cadence <= settings.update.judgeSeconds;
	return {
		heartbeat: isWithin && settings.service.heartbeatMode === 'frame',
		// One is sent with each channel that opens.
		answer: settings.service.silenceLimitSeconds !== 0,
	};
}

/** `apply`: systemd runs it when the agent has handed over a plan. */
async function applyPlan(shell: Shell): Promise<void> {
	const paths = choosePaths({}, shell.env);
	const client = clientOf(shell);
	const loaded = await loadSettings(sourcesOf(shell));
	const { settings, problems, unknown } = loaded;
	const problem = problems.find((one) => !unknown.includes(one));
	if (problem) throw new AgentError(problem.code, problem.message, problem);
	const { state } = await lookAtState(paths.stateDir).catch(() => ({ state: EMPTY_STATE }));
	const facts = await readIdentityFacts();
	const { deviceId, serial, macAddress } = chooseIdentity(facts, settings, state.identity, keptId(state));
	const version = await applyOrder({
		keep: openUpdateKeep(),
		system,
		readPlan,
		findExposed: () => findExposedOrder(loaded, paths.confDirectory),
		settings,
		device: {
			deviceId: deviceId?.value ?? '',
			serial: serial.value,
			macAddress: macAddress.value,
			deviceType: settings.deviceType,
			labels: settings.fleet.labels,
		},
		planFile: join(paths.stateDir, PLAN_FILE),
		clock: systemClock,
		async isHeld() {
			const within = { deadlineMs: ANSWER_MS };
			const answer = await client.request('agent', 'GET', LOCAL_ROUTES.leases, undefined, within);
			return (answer as { leases: unknown[] }).leases.length > 0;
		},
		say: (text) => shell.line(text),
	});
	shell.answer(
		{ installed: version },
		version === null ? 'There is nothing to do.' : `Version ${version} is installed.`,
	);
}

const sourcesOf = (shell: Shell) => ({ paths: choosePaths({}, shell.env), env: {}, sets: [] });

/** With its words: a version, or none. */
const COMMANDS: Readonly<Record<string, (shell: Shell, version: string) => Promise<void>>> = {
	prepare,
	judge: judgeUpdate,
	apply: applyPlan,
	forget: forgetVersion,
};

async function main(): Promise<void> {
	const words = process.argv.slice(2);
	const shell = new Shell(process, words.includes('--json'));
	const [command = '', version = '', ...more] = words.filter((word) => word !== '--json');
	await shell.run(async () => {
		const act = Object.hasOwn(COMMANDS, command) ? COMMANDS[command] : undefined;
		const takesVersion = act && act.length > 1;
		if (!act || more.length > 0 || (version !== '') !== takesVersion)
			throw new AgentError('usage', 'The commands are: prepare VERSION, judge, apply, forget VERSION.');
		if (process.getuid?.() !== 0)
			throw new AgentError('access-denied', 'Only root may do this.', { remedy: 'Run it with sudo.' });
		await act(shell, version);
	});
}

void main();
