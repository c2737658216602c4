/** The rows of the route table that are on `admin.sock` only: what a person asks of the device, and its records. */
import type { Agent } from '../agent/agent.runner.ts';
import type { Audit } from '../audit/audit.runner.ts';
import {
	eraseRequestSchema,
	LOCAL_ROUTES,
	pairRequestSchema,
	type SettingsReport,
	unpairRequestSchema,
	workflowRequestSchema,
} from '../protocol/local-api.ts';
import type { RecentLog } from '../status/recent-log.ts';
import { streamAudit } from './event-routes.runner.ts';
import type { DescribedRoute } from './openapi.ts';
import { ADMIN, answer, ok, row, STATUS, stream } from './route-rows.ts';

const PLAN = { 200: answer('The plan, the keys, and the newest plan by each of them.', 'PlanReport') };

/** What a person asks of the device. */
export function changeRoutes(agent: Agent): DescribedRoute[] {
	return [
		row('POST', LOCAL_ROUTES.pairInspect, ADMIN, 'inspectPairing', {
			summary: 'Previews what a pairing code would do. Does not redeem the code.',
			body: pairRequestSchema,
			answers: { 200: answer('What would change.', 'PairPreview') },
			handle: ({ body }) => ok(agent.inspectPairing(body)),
		}),
		row('POST', LOCAL_ROUTES.pair, ADMIN, 'pair', {
			summary: 'Redeems a pairing code.',
			description:
				'Never repeat it automatically: a code works once. pairing-uncertain says that it may have been used.',
			body: pairRequestSchema,
			answers: { 200: answer('The service and workflow of the device now.', 'PairResult') },
			handle: async ({ body }) => ok(await agent.pair(body)),
		}),
		row('PUT', LOCAL_ROUTES.workflow, ADMIN, 'setWorkflow', {
			summary: 'Assigns a workflow. In the answer, workflow.wanted has it; workflow.live follows.',
			body: workflowRequestSchema,
			answers: STATUS,
			async handle({ body: { workflowId, waitSeconds = 0 }, signal }) {
				await agent.setWorkflow(workflowId, waitSeconds > 0 ? { waitMs: waitSeconds * 1000, signal } : undefined);
				return ok(agent.status());
			},
		}),
		row('GET', LOCAL_ROUTES.plan, ADMIN, 'getPlan', {
			summary: 'The fleet plan that the device follows, and what it is trusted by.',
			answers: PLAN,
			handle: () => ok(agent.plan.report()),
		}),
		row('POST', LOCAL_ROUTES.planForget, ADMIN, 'forgetPlan', {
			summary: 'Forgets which plans were seen: the next one is taken whatever its revision.',
			description: 'The plan in force goes on until the next one is fetched, which is tried at once.',
			answers: PLAN,
			async handle() {
				await agent.plan.forget();
				return ok(agent.plan.report());
			},
		}),
		row('POST', LOCAL_ROUTES.identityAccept, ADMIN, 'acceptIdentity', {
			summary: 'Confirms that this is still the device that was paired, after a part of it was replaced.',
			answers: { 200: answer('The identity as it is pinned from now on.', 'IdentityReport') },
			handle: async () => ok(await agent.acceptIdentity()),
		}),
		row('POST', LOCAL_ROUTES.erase, ADMIN, 'eraseEvents', {
			summary: 'Erases the events of a session, or all from before a time, and what else the agent remembers of them.',
			description: 'When it is answered, nothing of them is in a live file of the state directory.',
			body: eraseRequestSchema,
			answers: { 200: answer('How many events were erased.', 'EraseResult') },
			async handle({ body: { session, before = '' } }) {
				const asked = session === undefined ? { beforeMs: Date.parse(before) } : { session };
				return ok({ erased: await agent.eraseEvents(asked) });
			},
		}),
		row('POST', LOCAL_ROUTES.reconnect, ADMIN, 'reconnect', {
			summary: 'Tries to connect now, whatever the agent was waiting for.',
			answers: STATUS,
			handle() {
				agent.reconnect();
				return ok(agent.status());
			},
		}),
		row('POST', LOCAL_ROUTES.unpair, ADMIN, 'unpair', {
			summary: 'Forgets the pairing, its secrets and its events.',
			body: unpairRequestSchema,
			answers: STATUS,
			async handle({ body }) {
				await agent.unpair(body);
				return ok(agent.status());
			},
		}),
	];
}

interface RecordParts {
	readonly audit: Audit;
	readonly recentLog: Pick<RecentLog, 'lines'>;
	readonly settings: () => Promise<SettingsReport>;
}

export function recordRoutes({ audit, recentLog, settings }: RecordParts): DescribedRoute[] {
	return [
		row('GET', LOCAL_ROUTES.log, ADMIN, 'getLog', {
			summary: "The newest lines of the agent's log: for a support bundle.",
			answers: { 200: answer('Oldest first, without secrets.', 'LogReport') },
			handle: () => ok({ lines: recentLog.lines() }),
		}),
		row('GET', LOCAL_ROUTES.settings, ADMIN, 'getSettings', {
			summary:
				'The settings in force: value, origin, since when, what waits, what differs on the disk, what was refused.',
			answers: { 200: answer('Every setting, without secrets.', 'SettingsReport') },
			handle: async () => ok(await settings()),
		}),
		row('GET', LOCAL_ROUTES.audit, ADMIN, 'getAudit', {
			summary: 'The audit log: what was asked of the device, by which entrance, with what result.',
			answers: { 200: answer('All entries that are kept.', 'AuditReport') },
			handle: async () => ok({ entries: await audit.read() }),
		}),
		row('GET', LOCAL_ROUTES.auditStream, ADMIN, 'streamAudit', {
			summary: 'The audit log as Server-Sent Events named audit: all entries, and then each new one.',
			answers: { 200: stream('One event for each entry, which is its data.', 'AuditEntry') },
			async handle() {
				const entries = await audit.read();
				return { stream: (sink) => streamAudit(audit, entries, sink) };
			},
		}),
	];
}
