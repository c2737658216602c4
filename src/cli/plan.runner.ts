/** `idv-agent plan`: the fleet plan that this device follows, what it is trusted by, and forgetting which plans were seen. */
import { sentenceOf } from '../base/sentences.ts';
import { LOCAL_ROUTES, type PlanReport } from '../protocol/local-api.ts';
import { type AskFlags, clientFor } from './local-agent.runner.ts';
import { localTime, type Shell } from './output.runner.ts';

export async function showPlan(shell: Shell, flags: AskFlags): Promise<void> {
	const report = (await clientFor(shell, flags).request('admin', 'GET', LOCAL_ROUTES.plan)) as PlanReport;
	if (shell.isJson) return shell.json(report);
	if (report.host === null) return shell.line('This device follows no fleet plan: fleet.planUrl is not set.');
	const { inForce, waiting, newest, problem } = report;
	shell.table([
		['Published at', report.host],
		['Fleet', report.fleetName ?? 'no name (fleet.name): the address says which fleet it is'],
		['Keys', report.publicKeys.join(' ') || 'none (fleet.publicKeys): unsigned plans are taken, too'],
		['In force', inForce ? describe(inForce) : 'no plan yet'],
		...(inForce ? [['Signed by', inForce.keys.join(' ') || 'no key of this device']] : []),
		...(inForce ? [['Valid until', inForce.validUntil === null ? 'for ever' : localTime(inForce.validUntil)]] : []),
		...(waiting ? [['Waiting', `${edition(waiting)}, applied at ${localTime(waiting.at)}`]] : []),
		...newest.map((floor) => ['Refused', `what is older than ${edition(floor)} (${floor.key ?? 'unsigned'})`]),
		['Confirmed', report.checkedAt === null ? 'not since the agent started' : localTime(report.checkedAt)],
		...(problem ? [['Problem', sentenceOf(problem, 'ongoing')]] : []),
	]);
}

export async function forgetPlan(shell: Shell, flags: AskFlags): Promise<void> {
	const report = (await clientFor(shell, flags).request('admin', 'POST', LOCAL_ROUTES.planForget)) as PlanReport;
	const next =
		report.host === null ? '' : ` The plan at ${report.host} is fetched now, and taken whatever its revision.`;
	shell.answer(report, `Forgotten which plans this device has seen.${next}`);
}

function edition({ epoch, revision }: { readonly epoch: number; readonly revision: number }): string {
	return epoch === 0 ? `revision ${revision}` : `epoch ${epoch}, revision ${revision}`;
}

function describe(plan: NonNullable<PlanReport['inForce']>): string {
	const rule = plan.rule === null ? 'its defaults' : `rule ${plan.rule}`;
	const workflow = plan.workflowId === null ? 'leaves the workflow open' : `workflow ${plan.workflowId}`;
	return `${edition(plan)}${plan.fleet === null ? '' : ` of fleet ${plan.fleet}`}, ${rule}, ${workflow}`;
}
