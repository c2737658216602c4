/** `idv-agent identity`: asks the agent; where none runs, looks at this machine the way the agent would. */
import { AgentError } from '../base/errors.ts';
import { sentenceOf } from '../base/sentences.ts';
import { chooseIdentity, keptId, toReport } from '../identity/identity.ts';
import { readIdentityFacts } from '../identity/sources.edge.ts';
import { type IdentityReport, LOCAL_ROUTES } from '../protocol/local-api.ts';
import { loadSettings } from '../settings/load.runner.ts';
import { lookAtState } from '../state/copies.edge.ts';
import { type DeviceState, EMPTY_STATE } from '../state/device-state.ts';
import { type AskFlags, clientFor, nullIfAway, sourcesOf } from './local-agent.runner.ts';
import type { Shell } from './output.runner.ts';
import { confirm } from './prompts.runner.ts';

/** The facts of the machine; the id of a device that has nothing of its own is made before it first registers. */
type MachineReport = Omit<IdentityReport, 'deviceId'> & {
	readonly deviceId: { readonly value: string | null; readonly source: string };
};

export async function showIdentity(shell: Shell, flags: AskFlags): Promise<void> {
	const asked = clientFor(shell, flags).request('agent', 'GET', LOCAL_ROUTES.identity).catch(nullIfAway);
	const told = (await asked) as IdentityReport | null;
	if (told) return shell.isJson ? shell.json(told) : printReport(shell, told);
	const { report, notes } = await askMachine(shell, flags);
	if (shell.isJson) return shell.json({ agentRunning: false, ...report, notes });
	shell.line('The agent is not running; this is what it would find on this machine now.\n');
	printReport(shell, report);
	for (const note of notes) shell.warn(note);
}

/** Shows what has changed and, if a person agrees, has the agent keep the machine as it is now. */
export async function acceptIdentity(shell: Shell, flags: AskFlags & { readonly yes?: boolean | undefined }) {
	const client = clientFor(shell, flags);
	const before = (await client.request('admin', 'GET', LOCAL_ROUTES.identity)) as IdentityReport;
	if (before.warnings.length === 0)
		return shell.answer({ changed: false, ...before }, 'Nothing has changed, so there is nothing to accept.');
	if (!shell.isJson) for (const { message } of before.warnings) shell.line(message);
	const question = `Is this still device ${before.deviceId.value}, with a part replaced?`;
	if (!flags.yes && (shell.isJson || !(await confirm(shell, question))))
		throw new AgentError('identity-changed', 'Not confirmed; nothing was changed.', {
			remedy:
				'If it is, add --yes; if this disk was copied from another device, run idv-agent unpair and pair it with a code of its own.',
		});
	const report = (await client.request('admin', 'POST', LOCAL_ROUTES.identityAccept)) as IdentityReport;
	if (shell.isJson) return shell.json({ changed: true, ...report });
	shell.line('\nAccepted; the service is being notified.\n');
	printReport(shell, report);
}

async function askMachine(shell: Shell, flags: AskFlags): Promise<{ report: MachineReport; notes: string[] }> {
	const sources = sourcesOf(shell, flags);
	const { paths } = sources;
	const { settings, problems } = await loadSettings(sources);
	const notes = problems.map(({ message }) => message);
	const state = await readState(paths.stateDir, notes);
	const facts = await readIdentityFacts({ credentialsDirectory: paths.credentialsDirectory ?? undefined });
	const choice = chooseIdentity(facts, settings, state.identity, keptId(state));
	if (!choice.needsGeneratedId) return { report: toReport(choice), notes };
	const { serial, macAddress, pinned, rejected, warnings } = choice;
	const deviceId = { value: null, source: 'generated before the device first registers' };
	return { report: { deviceId, serial, macAddress, pinned, rejected: [...rejected], warnings: [...warnings] }, notes };
}

/** The identity pinned at pairing; without it where this user may not read it. */
async function readState(stateDir: string, notes: string[]): Promise<DeviceState> {
	try {
		const { state, notices } = await lookAtState(stateDir);
		notes.push(...notices.map((one) => sentenceOf(one, 'over')));
		return state;
	} catch (error) {
		if (!(error instanceof AgentError)) throw error;
		notes.push(`${error.message} What was pinned at a pairing is not considered.`);
		return EMPTY_STATE;
	}
}

function printReport(shell: Shell, { deviceId, serial, macAddress, pinned, rejected, warnings }: MachineReport): void {
	shell.table([
		['Device id', deviceId.value ?? 'none yet', deviceId.source],
		['Serial', serial.value ?? 'none', serial.value === null ? '' : serial.source],
		['MAC address', macAddress.value ?? 'none', macAddress.value === null ? '' : macAddress.source],
	]);
	shell.line(
		pinned
			? '\nPinned: it stays as it was at the pairing.'
			: '\nNot pinned: pairing pins it. A device that has registered keeps its id.',
	);
	if (rejected.length > 0) {
		shell.line('\nLooked at and not taken:');
		shell.table(rejected.map(({ source, reason }) => [`  ${source}`, reason]));
	}
	for (const warning of warnings) shell.warn(sentenceOf(warning, 'over'));
}
