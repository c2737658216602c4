/** `idv-agent doctor`: a list for a person, one document for programs. The exit status is that of the first failure. */
import { systemClock } from '../base/clock.edge.ts';
import { AgentError, EXIT } from '../base/errors.ts';
import { CHECK_IDS, CHECKS, type CheckId, openContext } from '../diagnosis/check-list.runner.ts';
import { hintsOf } from '../diagnosis/check-results.ts';
import {
	becomeServiceUser,
	findInspectionTarget,
	type InspectionTarget,
	nameOfUser,
} from '../diagnosis/inspection-target.runner.ts';
import { type CheckReport, type Diagnosis, DOCTOR_SCHEMA_VERSION, diagnose } from '../diagnosis/run-checks.runner.ts';
import { nearestName } from '../settings/resolve.ts';
import type { AskFlags } from './local-agent.runner.ts';
import { counted, type Shell } from './output.runner.ts';
import { VERSION } from './version.runner.ts';

export interface DoctorFlags extends AskFlags {
	readonly check?: readonly string[] | undefined;
	readonly warningsAsErrors?: boolean | undefined;
}

export async function doctor(shell: Shell, flags: DoctorFlags): Promise<void> {
	const checks = (flags.check ?? []).map(readCheckId);
	const inspected = await findInspectionTarget(flags, shell.env);
	becomeServiceUser(inspected);
	const screen = shell.isJson ? null : openScreen(shell, await nameOfUser());
	// For as long as there is no verdict: a reader that leaves ends the doctor.
	shell.caller.exitCode = EXIT.io;
	const report = await examine(inspected, {
		checks: checks.length > 0 ? checks : CHECK_IDS,
		warningsAsErrors: flags.warningsAsErrors ?? false,
		onCheck: (check) => screen?.show(check),
	});
	if (screen) screen.end(report);
	else shell.json(report);
	shell.caller.exitCode = report.exitStatus;
}

/** Runs the checks with the rights of this process. Returns the document of `--json` and of a support bundle. */
export async function examine(
	inspected: InspectionTarget,
	options: {
		readonly checks: readonly CheckId[];
		readonly warningsAsErrors: boolean;
		readonly onCheck?: (check: CheckReport) => void;
	},
) {
	const at = new Date(systemClock.wallMs()).toISOString();
	const context = openContext({ inspected, clock: systemClock, userAgent: `idv-agent/${VERSION}` });
	try {
		const diagnosis = await diagnose({ ...options, list: CHECKS, context, clock: systemClock });
		return {
			schemaVersion: DOCTOR_SCHEMA_VERSION,
			agentVersion: VERSION,
			at,
			/** With whose rights the checks ran. */
			user: await nameOfUser(),
			/** Whether the settings are those that the systemd unit runs with. */
			settingsOfUnit: inspected.isOfUnit,
			...diagnosis,
			checks: diagnosis.checks.map((check) => {
				const hints = hintsOf(check.id, check);
				return hints.length > 0 ? { ...check, hints } : check;
			}),
		};
	} finally {
		await context.close();
	}
}

function readCheckId(text: string): CheckId {
	const known = CHECK_IDS.find((id) => id === text);
	if (known) return known;
	const nearest = nearestName(text, CHECK_IDS);
	throw new AgentError('usage', `There is no check ${JSON.stringify(text.slice(0, 40))}.`, {
		remedy: nearest ? `Did you mean ${nearest}?` : `There are ${CHECK_IDS.join(', ')}.`,
	});
}

/** The list grows downwards; on a terminal its last line names the check that runs. */
function openScreen(shell: Shell, user: string) {
	const isTerminal = shell.caller.stdout.isTTY === true;
	const width = Math.max(...CHECK_IDS.map((id) => id.length));
	const waiting = (text: string) => {
		if (isTerminal) shell.caller.stdout.write(`\r\u001b[K${text}`);
	};
	shell.line(`Checked as user ${user}.\n`);
	waiting('\u2026 settings');
	return {
		show(check: CheckReport) {
			waiting('');
			shell.folded(`${check.status.padEnd(7)}  ${check.id.padEnd(width)}  `, check.message);
			if ('remedy' in check) shell.folded(' '.repeat(7 + width + 4), check.remedy);
			for (const hint of hintsOf(check.id, check)) shell.folded(' '.repeat(7 + width + 4), hint);
			const next = CHECKS[CHECKS.findIndex(({ id }) => id === check.id) + 1]?.id;
			if (next) waiting(`\u2026 ${next}`);
		},
		end({ checks, first, ms }: Diagnosis) {
			waiting('');
			const warnings = checks.filter(({ status }) => status === 'warning').length;
			const failures = checks.filter(({ status }) => status === 'failed').length;
			const found = [
				...(failures > 0 ? [`${counted(failures, 'failure')}, begin with ${first}`] : []),
				...(warnings > 0 ? [counted(warnings, 'warning')] : []),
			];
			shell.line(`\n${found.length === 0 ? 'Nothing is wrong' : found.join('; ')} (${(ms / 1000).toFixed(1)} s).`);
		},
	};
}
