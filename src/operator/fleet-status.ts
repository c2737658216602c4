/** `idv fleet status`: how far a fleet has come with a plan, by what the devices themselves report. Changes nothing. */
import * as z from 'zod';
import { AgentError } from '../base/errors.ts';
import { printJson, printLine, printTable } from '../cli/output.ts';
import { DEVICE_LIST_PATH, deviceListSchema, type ListedDevice } from '../protocol/device-list.ts';
import { readPlanFile } from './fleet-files.ts';
import { readJsonLines } from './inventory.ts';
import { callService } from './service-call.ts';
import { resolveTarget, type TargetFlags } from './service-target.ts';

const MAX_LIST_BYTES = 128 * 1024 * 1024;
/** Devices of one kind that are named. */
const SHOWN = 10;

export interface StatusFlags extends TargetFlags {
	readonly from?: string | undefined;
	readonly plan?: string | undefined;
	readonly revision?: number | undefined;
	readonly devices?: boolean | undefined;
}

type Report = Pick<ListedDevice, 'deviceId' | 'online' | 'planRevision' | 'planRefused'> & {
	readonly workflowId: string | null;
	/** Why the plan was refused, where that is known. */
	readonly reason: string | null;
};

type Standing = 'moved' | 'refused' | 'pending' | 'pendingOffline';

export async function showFleetStatus(flags: StatusFlags): Promise<void> {
	const named = flags.plan === undefined ? flags.revision : (await readPlanFile(flags.plan)).plan.revision;
	const reports = flags.from === undefined ? await fromService(flags) : await fromFile(flags.from);
	const newest = reports.reduce((most, one) => Math.max(most, one.planRevision ?? 0, one.planRefused ?? 0), 0);
	const revision = named ?? (newest || null);
	const devices = reports.map((report) => ({ ...report, standing: standingOf(report, revision) }));
	const {
		moved = [],
		refused = [],
		pending = [],
		pendingOffline = [],
	} = Object.groupBy(devices, (one) => one.standing);
	const counts = {
		moved: moved.length,
		refused: refused.length,
		pending: pending.length + pendingOffline.length,
		pendingOffline: pendingOffline.length,
	};
	const workflows: Record<string, number> = {};
	for (const { workflowId } of reports)
		if (workflowId !== null) workflows[workflowId] = (workflows[workflowId] ?? 0) + 1;
	const all = flags.devices && { reports: devices };
	if (flags.json) return printJson({ revision, devices: devices.length, ...counts, workflows, ...all });
	if (revision === null) printLine(`None of ${devices.length} devices reports a fleet plan.`);
	else printLine(`Revision ${revision}${named === undefined ? ', the newest that a device reports' : ''}:\n`);
	printTable([
		['Moved', `${moved.length} of ${devices.length}`],
		['Refused', listed(refused)],
		[
			'Pending',
			counts.pending === 0 ? '0' : `${listed([...pending, ...pendingOffline])}; ${counts.pendingOffline} offline`,
		],
		...Object.entries(workflows).map(([workflowId, count]) => [`Workflow ${workflowId}`, String(count)]),
	]);
	for (const { deviceId, reason } of refused.slice(0, SHOWN)) if (reason) printLine(`${deviceId}: ${reason}`);
	if (!flags.devices) return;
	printLine();
	printTable(
		devices.map(({ deviceId, workflowId, planRevision, standing, online }) => [
			deviceId,
			workflowId ?? '—',
			planRevision === null ? '—' : `revision ${planRevision}`,
			standing === 'pendingOffline' ? 'pending' : standing,
			online ? 'online' : 'offline',
		]),
	);
}

/** A device that was online as a newer revision says has done what the older one wanted. */
function standingOf({ planRevision, planRefused, online }: Report, revision: number | null): Standing {
	if (revision !== null && planRefused !== null && planRefused >= revision) return 'refused';
	if (revision !== null && planRevision !== null && planRevision >= revision) return 'moved';
	return online ? 'pending' : 'pendingOffline';
}

function listed(devices: readonly Report[]): string {
	const names = devices.slice(0, SHOWN).map(({ deviceId }) => deviceId);
	if (names.length === 0) return '0';
	return `${devices.length}: ${names.join(', ')}${devices.length > SHOWN ? ', …' : ''}`;
}

async function fromService(flags: StatusFlags): Promise<Report[]> {
	const target = await resolveTarget(flags, process.env);
	const { host } = new URL(target.baseUrl);
	const remedy =
		'The published interface has no list of devices: gather lines of "idv-agent status --json" and give them with --from FILE.';
	const answer = await callService(
		target,
		{ method: 'GET', path: DEVICE_LIST_PATH, maxBytes: MAX_LIST_BYTES },
		{ needs: 'Basic, Bearer, or an API key with ephemeral_device:write' },
	).catch((cause: unknown) => {
		if (!(cause instanceof AgentError) || cause.code !== 'bad-response') throw cause;
		throw new AgentError(cause.code, cause.message, { remedy, cause });
	});
	try {
		const { devices } = deviceListSchema.parse(JSON.parse(new TextDecoder().decode(answer.body)));
		return devices.map((device) => ({ ...device, reason: null }));
	} catch (cause) {
		throw new AgentError('bad-response', `${host} answered without a list of devices that can be read.`, {
			remedy,
			cause,
		});
	}
}

/** As much of a status as is needed, of any version of the agent. */
const statusLineSchema = z.object({
	deviceId: z.string('must be a text'),
	state: z.string('must be a text'),
	workflow: z.object({ live: z.string().nullable(), wanted: z.string().nullable() }),
	plan: z
		.object({
			followed: z.number().nullable(),
			refused: z.object({ revision: z.number(), message: z.string() }).nullable(),
		})
		.nullish(),
});

/** Of a device that is there several times the last line applies. */
async function fromFile(file: string): Promise<Report[]> {
	const reports = new Map<string, Report>();
	for (const { line, fields } of await readJsonLines(file)) {
		const read = statusLineSchema.safeParse(fields);
		if (!read.success) {
			const [issue] = read.error.issues;
			throw new AgentError(
				'inventory-invalid',
				`${file}: line ${line}: ${issue?.path.join('/') || 'the line'} is not as in "idv-agent status --json".`,
			);
		}
		const { deviceId, state, workflow, plan } = read.data;
		reports.set(deviceId, {
			deviceId,
			workflowId: workflow.live ?? workflow.wanted,
			online: state === 'online',
			planRevision: plan?.followed ?? null,
			planRefused: plan?.refused?.revision ?? null,
			reason: plan?.refused?.message ?? null,
		});
	}
	return [...reports.values()];
}
