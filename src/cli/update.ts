/**
 * `idv-agent update`: an update under way, the versions that were taken back, and the steps that the package and systemd run as
 * root: `prepare` before a new version, `judge` while it is tried, `apply` for the order of a fleet plan.
 */
import { join } from 'node:path';
import { systemClock } from '../base/clock.edge.ts';
import { AgentError } from '../base/errors.ts';
import { createSecretRegistry, redact } from '../base/redact.ts';
import { openRuntime } from '../connection/runtime.runner.ts';
import { registerSecrets } from '../diagnosis/collect-secrets.runner.ts';
import { readPlan } from '../fleet/verify-plan.runner.ts';
import { chooseIdentity } from '../identity/identity.ts';
import { readIdentityFacts } from '../identity/sources.edge.ts';
import { LOCAL_ROUTES } from '../protocol/local-api.ts';
import { type LoadedSettings, loadSettings } from '../settings/load.runner.ts';
import { choosePaths } from '../settings/paths.runner.ts';
import { EMPTY_STATE } from '../state/device-state.ts';
import { lookAtState } from '../state/store.edge.ts';
import { applyOrder } from '../updates/apply.runner.ts';
import { PLAN_FILE } from '../updates/hand-over.runner.ts';
import { runJudge } from '../updates/judge.runner.ts';
import { openUpdateKeep } from '../updates/keep.edge.ts';
import { prepareUpdate } from '../updates/prepare.runner.ts';
import { type Trial, versionSchema } from '../updates/record.ts';
import * as system from '../updates/system.edge.ts';
import { inWords } from '../updates/taken-back.ts';
import { type AskFlags, askStatus, clientFor } from './local-agent.ts';
import { localTime, type Shell } from './output.ts';
import { VERSION } from './version.ts';

/** The agent answers within this time, or counts as silent. */
const ANSWER_MS = 5_000;

export async function showUpdates(shell: Shell): Promise<void> {
	const keep = openUpdateKeep();
	if (!(await keep.isReadable())) mustBeRoot();
	const [trial, outcomes] = [await keep.trial(), await keep.outcomes()];
	if (shell.isJson) return shell.json({ version: VERSION, trial, ...outcomes });
	shell.line(trialLine(trial));
	const { failed } = outcomes;
	if (failed)
		shell.line(`\nOn ${localTime(failed.at)} the order of the fleet plan was not carried out: ${failed.message}`);
	for (const { version, by, at, fault, log } of outcomes.takenBack) {
		shell.line(`\n${version} was taken back on ${localTime(at)}: ${inWords(fault)}. ${by} took its place.`);
		for (const line of log.slice(-5)) shell.line(`  ${line}`);
	}
	if (outcomes.takenBack.length > 0) shell.line('\nThe whole log of each is in: idv-agent update show --json');
}

function trialLine(trial: Trial | null): string {
	if (!trial) return `Version ${VERSION}; no update is under way.`;
	if (trial.phase === 'goingBack') return `Version ${trial.to} is being taken back; ${trial.from} takes its place.`;
	return `Version ${trial.to} is being tried since ${localTime(trial.startedAt)}; ${trial.from} is at hand.`;
}

/** `idv-agent update forget VERSION`: apt may install it again. */
export async function forgetVersion(shell: Shell, _flags: unknown, version: string): Promise<void> {
	mustBeRoot();
	const keep = openUpdateKeep();
	const outcomes = await keep.outcomes();
	const takenBack = outcomes.takenBack.filter((one) => one.version !== version);
	if (takenBack.length === outcomes.takenBack.length)
		throw new AgentError('usage', `Version ${version} was not taken back on this device.`, {
			remedy: 'idv-agent update show lists those that were.',
		});
	await keep.saveOutcomes({ ...outcomes, takenBack });
	shell.answer(
		{ forgotten: version },
		`apt may install version ${version} again; the warning in the status ends when the agent is next started.`,
	);
}

/** `idv-agent update prepare VERSION`: the package's own script, before dpkg replaces anything. */
export async function prepare(shell: Shell, flags: AskFlags, to: string): Promise<void> {
	mustBeRoot();
	if (!versionSchema.safeParse(to).success) throw new AgentError('usage', 'This is not a version of dpkg.');
	const client = clientFor(shell, flags);
	await prepareUpdate(to, {
		keep: openUpdateKeep(),
		system,
		askState: async () => (await askStatus(client).catch(() => null))?.state ?? null,
		running: process.execPath,
		now: new Date().toISOString(),
	});
}

/** `idv-agent update judge`: systemd runs it, from the copy of the version before. */
export async function judgeUpdate(shell: Shell, flags: AskFlags): Promise<void> {
	mustBeRoot();
	const client = clientFor(shell, flags);
	const loaded = await loadSettings(sourcesOf(shell, flags));
	const secrets = createSecretRegistry();
	const end = await runJudge({
		keep: openUpdateKeep(),
		system,
		clock: systemClock,
		askStatus: () => askStatus(client, { deadlineMs: ANSWER_MS }).catch(() => null),
		getsThrough: () => getsThrough(shell, flags, loaded),
		judgeSeconds: loaded.settings.update.judgeSeconds,
		async redactAll(lines) {
			await registerSecrets(sourcesOf(shell, flags), loaded, secrets.add);
			return lines.map((line) => redact(line, secrets));
		},
		say: (text) => shell.line(text),
	});
	if (end === 'none') shell.line('There was nothing to judge.');
}

/** Whether this version, which is the one before, reaches the service: a new one must not blame a line that works. */
async function getsThrough(shell: Shell, flags: AskFlags, loaded: LoadedSettings): Promise<boolean> {
	const { state } = await lookAtState(choosePaths(flags, shell.env).stateDir);
	const baseUrl = loaded.settings.baseUrl ?? state.pairing?.baseUrl ?? state.connections.at(-1)?.baseUrl;
	if (baseUrl === undefined) return false;
	const runtime = await openRuntime(loaded, { userAgent: `idv-agent/${VERSION}`, env: {}, registerSecret() {} });
	try {
		return (await runtime.client.preflight(baseUrl)).failure === null;
	} finally {
		await runtime.close();
	}
}

/** `idv-agent update apply`: systemd runs it when the agent has handed over a plan. */
export async function applyPlan(shell: Shell, flags: AskFlags): Promise<void> {
	mustBeRoot();
	const paths = choosePaths(flags, shell.env);
	const client = clientFor(shell, flags);
	const { settings, problems } = await loadSettings(sourcesOf(shell, flags));
	const [problem] = problems;
	if (problem) throw new AgentError(problem.code, problem.message, problem);
	const { state } = await lookAtState(paths.stateDir).catch(() => ({ state: EMPTY_STATE }));
	const facts = await readIdentityFacts();
	const { deviceId, serial, macAddress } = chooseIdentity(facts, settings, state.identity, state.generatedId);
	const version = await applyOrder({
		keep: openUpdateKeep(),
		system,
		readPlan,
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
		// An agent that does not answer may need the update.
		isHeld: () =>
			client.request('agent', 'GET', LOCAL_ROUTES.leases, undefined, { deadlineMs: ANSWER_MS }).then(
				(answer) => (answer as { leases: unknown[] }).leases.length > 0,
				() => false,
			),
		say: (text) => shell.line(text),
	});
	shell.answer(
		{ installed: version },
		version === null ? 'There is nothing to do.' : `Version ${version} is installed.`,
	);
}

const sourcesOf = (shell: Shell, flags: AskFlags) => ({ paths: choosePaths(flags, shell.env), env: {}, sets: [] });

function mustBeRoot(): void {
	if (process.getuid?.() === 0) return;
	throw new AgentError('access-denied', 'Only root may do this.', { remedy: 'Run it with sudo.' });
}
