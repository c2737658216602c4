/** `idv fleet status`: what the devices do, beside what a plan wants of each of them now. Changes nothing. */
import { setTimeout as wait } from 'node:timers/promises';
import { AgentError } from '../base/errors.ts';
import { onOneLine } from '../base/printed.ts';
import { counted, localTime, type Shell } from '../cli/output.runner.ts';
import type { FleetPlan } from '../fleet/plan-format.ts';
import {
	type DeviceReport,
	type DeviceStanding,
	type FleetProgress,
	STANDINGS,
	type Standing,
	standingOf,
	sumUp,
} from '../fleet/progress.ts';
import { withSeen } from '../fleet/rollout-record.ts';
import { compilePlan, type PlannedDevice } from '../fleet/targeting.ts';
import { withChecks } from './fleet-brakes.runner.ts';
import { readPlanFile } from './fleet-files.runner.ts';
import { judgement, type Limits } from './fleet-limits.runner.ts';
import { changeRecord, lookAtRecord } from './fleet-record.runner.ts';
import { gatherReports, type SourceFlags } from './fleet-reports.runner.ts';
import { settingsTrouble, warnOfRecord, warnOfTroubles } from './fleet-troubles.runner.ts';
import { alikeIds, readInventory } from './inventory.runner.ts';

/** Devices of one kind that are named, and reasons that are shown. */
const SHOWN = 10;

export interface StatusFlags extends SourceFlags, Limits {
	readonly plan?: string | undefined;
	readonly revision?: number | undefined;
	readonly inventory?: string | undefined;
	readonly devices?: boolean | undefined;
	readonly csv?: boolean | undefined;
	readonly published?: number | undefined;
	readonly record?: boolean | undefined;
	readonly graceSeconds: number;
	readonly staleSeconds: number;
	/** Seconds between two looks; `true` for the usual ones. */
	readonly watch?: number | true | undefined;
}

const WATCH_SECONDS = 30;

export async function showFleetStatus(shell: Shell, given: StatusFlags): Promise<void> {
	if (given.csv && shell.isJson) throw new AgentError('usage', 'Only one of --csv and --json says how to answer.');
	if (given.plan === undefined) return showRevisions(shell, given);
	const flags = { ...(await withChecks(given, given.plan)), plan: given.plan };
	const inventory =
		flags.inventory === undefined ? [] : await readInventory(flags.inventory, (said) => shell.warn(said));
	const known = new Map(inventory.map((device) => [device.deviceId, device]));
	const isWatching = flags.watch !== undefined;
	// In a pipe, what was said at the look before is not said again.
	const say = isWatching && !shell.caller.stdout.isTTY ? onlyNew(shell) : () => shell;
	const look = async () => {
		const nowMs = Date.now();
		const file = await readPlanFile(shell, flags.plan);
		const plan = compilePlan(file.plan);
		const { record, damage } = await lookAtRecord(shell, flags.plan);
		const signedMs = Date.parse(record.signed.find(({ digest }) => digest === file.digest)?.at ?? '');
		const publishedMs = flags.published ?? (Number.isNaN(signedMs) ? null : signedMs);
		const ofSources: string[] = [];
		const reports = await gatherReports(shell, flags, nowMs, { warn: (text) => ofSources.push(text) });
		const [staleMs, graceMs] = [flags.staleSeconds * 1000, flags.graceSeconds * 1000];
		const context = { nowMs, staleMs, graceMs, publishedMs };
		// An inventory is a person's word on what the fleet is: a foreign device must not make a ring look better.
		const isOfFleet = ({ deviceId, fleet }: DeviceReport) =>
			inventory.length > 0 ? known.has(deviceId) : !fleet || !file.plan.fleet || fleet === file.plan.fleet;
		const heard = [...reports.values()].filter(isOfFleet);
		const unlisted = [...reports.values()].filter((report) => !isOfFleet(report));
		const ids = inventory.length > 0 ? [...known.keys()] : heard.map(({ deviceId }) => deviceId);
		const devices = ids.map((id) => standingOf(plan, known.get(id) ?? null, reports.get(id) ?? null, context));
		const told = say();
		for (const text of ofSources) told.warn(text);
		if (damage !== undefined)
			told.warn(`${damage.message} Pauses and signings are not known, and what is seen is not written there.`);
		warnOfRecord(told, record, file);
		const strange = new Set(known.size > 0 ? unlisted.map(({ deviceId }) => deviceId) : []);
		const unseen = [...known.keys()].filter((id) => !reports.has(id));
		for (const alike of alikeIds([...unseen, ...strange], (id) => strange.has(id)).slice(0, SHOWN))
			told.warn(`${alike}: the first is in the inventory, and only the other one reports. Is one of them a slip?`);
		warn(told, plan.plan, heard, known);
		warnOfTroubles(told, heard);
		return { file, devices, unlisted, isDamaged: damage !== undefined };
	};
	const isNew = otherThanLast();
	const pause = () => wait((typeof flags.watch === 'number' ? flags.watch : WATCH_SECONDS) * 1000);
	for (let looks = 0; ; looks += 1) {
		const looked = await look().catch((error: unknown) => {
			// A store that is away for a moment, or a file that is being replaced, does not end a watch.
			if (looks === 0 || !(error instanceof AgentError)) throw error;
			shell.warn(error.message);
		});
		if (!looked) {
			await pause();
			continue;
		}
		const { file, devices, unlisted, isDamaged } = looked;
		const progress = sumUp(devices);
		if (flags.record && !isDamaged) {
			const when = { revision: file.plan.revision, at: new Date().toISOString() };
			await changeRecord(shell, flags.plan, (record) => withSeen(record, progress, devices, when));
		}
		if (shell.caller.stdout.isTTY && isWatching) shell.drawn('\u001b[2J\u001b[H');
		const failed = judgement(progress, flags);
		if (flags.csv) printCsv(shell, devices);
		else if (isWatching && !shell.isJson && !shell.caller.stdout.isTTY) {
			const line = lineOf(file.plan.revision, progress);
			if (isNew(line)) shell.line(`${new Date().toISOString()}  ${line}`);
		} else if (!shell.isJson) show(shell, file.plan.revision, progress, devices, unlisted, flags);
		const document = shell.isJson ? documentOf(file.plan.revision, progress, devices, unlisted, flags) : {};
		if (failed) return shell.fail(failed, document);
		if (shell.isJson && isNew(JSON.stringify(document))) shell.json(document);
		if (!isWatching) return;
		await pause();
	}
}

/** @returns what is asked for at each look: its warnings are those that the look before did not have. */
function onlyNew(shell: Shell): () => Pick<Shell, 'warn'> {
	let [before, now] = [new Set<string>(), new Set<string>()];
	return () => {
		[before, now] = [now, new Set()];
		return {
			warn(text) {
				now.add(text);
				if (!before.has(text)) shell.warn(text);
			},
		};
	};
}

function warn(
	shell: Pick<Shell, 'warn'>,
	{ revision, validUntil, rules }: FleetPlan,
	reports: readonly DeviceReport[],
	inventory: ReadonlyMap<string, PlannedDevice>,
): void {
	const hasInventory = inventory.size > 0;
	const byLabels = rules.some(({ match }) => 'labels' in match);
	const blind = byLabels && !hasInventory ? reports.filter(({ labels }) => labels === null).length : 0;
	const others = byLabels ? reports.filter((one) => hasOtherLabels(one, inventory.get(one.deviceId))) : [];
	if (others.length > 0)
		shell.warn(
			`${counted(others.length, 'device')} ${others.length === 1 ? 'has' : 'have'} other labels than the inventory, and by their own they follow the plan: ${names(others)}.`,
		);
	if (blind > 0)
		shell.warn(
			`The plan chooses by labels, and ${counted(blind, 'device')} ${blind === 1 ? 'reports' : 'report'} none: name them with --inventory FILE.`,
		);
	if (reports.length === 0)
		shell.warn(
			`No device${hasInventory ? ' of the inventory' : ''} has reported: look at what --from, --prometheus or --service names.`,
		);
	if (validUntil !== undefined && Date.parse(validUntil) < Date.now())
		shell.warn(
			`The plan was valid until ${validUntil}: devices do what it said then, with a warning, and no further ring begins.`,
		);
	const newer = reports.reduce((most, one) => Math.max(most, one.planRevision ?? 0, one.planRefused ?? 0), 0);
	if (newer > revision) shell.warn(`Devices report revision ${newer}, and this plan is revision ${revision}.`);
}

function hasOtherLabels({ labels }: DeviceReport, known: PlannedDevice | undefined): boolean {
	return labels !== null && known !== undefined && labels.toSorted().join() !== known.labels.toSorted().join();
}

/** For a log: one line, with the reason that most devices have. */
function lineOf(revision: number, progress: FleetProgress): string {
	const counts = STANDINGS.map((standing) => `${progress[standing]} ${NAMES[standing].toLowerCase()}`);
	const [most] = progress.reasons;
	return onOneLine(
		`revision ${revision}: ${counts.join(', ')}${most ? `; ${most.devices} ${NAMES[most.standing].toLowerCase()}: ${most.reason}` : ''}`,
	);
}

const NAMES: Readonly<Record<Standing, string>> = {
	atTarget: 'At target',
	dueLater: 'Due later',
	overdue: 'Overdue',
	refused: 'Refused',
	offline: 'Offline',
	neverSeen: 'Never seen',
};

function documentOf(
	revision: number,
	progress: FleetProgress,
	devices: readonly DeviceStanding[],
	unlisted: readonly DeviceReport[],
	flags: StatusFlags,
) {
	const { firstDueMs, lastDueMs, ...counts } = progress;
	const { atTarget, dueLater, overdue, offline, neverSeen } = progress;
	return {
		revision,
		...counts,
		firstDueAt: iso(firstDueMs),
		lastDueAt: iso(lastDueMs),
		unlisted: unlisted.length,
		// The words of 0.1.0.
		moved: atTarget,
		pending: dueLater + overdue + offline + neverSeen,
		pendingOffline: offline,
		...(flags.devices && { reports: devices.map(({ atMs, ...device }) => ({ ...device, at: iso(atMs) })) }),
	};
}

function show(
	shell: Shell,
	revision: number,
	progress: FleetProgress,
	devices: readonly DeviceStanding[],
	unlisted: readonly DeviceReport[],
	flags: StatusFlags,
): void {
	shell.line(`Revision ${revision}, ${counted(progress.devices, 'device')}:\n`);
	shell.table(
		STANDINGS.map((standing) => {
			const those = devices.filter((device) => device.standing === standing);
			return [NAMES[standing], String(those.length), about(standing, those, progress)];
		}),
	);
	const rings = progress.rings.map((ring) => [
		`${ring.percent} %`,
		ring.rule === null ? 'defaults' : `rule ${ring.rule}`,
		String(ring.devices),
		...STANDINGS.map((standing) => String(ring[standing])),
	]);
	const heads = ['Ring', 'Of', 'Devices', ...STANDINGS.map((standing) => NAMES[standing])];
	table(shell, '', rings.length === 0 ? [] : [heads, ...rings]);
	table(
		shell,
		'Why:',
		progress.reasons
			.slice(0, SHOWN)
			.map(({ devices: count, standing, reason, examples }) => [
				String(count),
				NAMES[standing].toLowerCase(),
				`${reason} (${examples.join(', ')}${count > examples.length ? ', …' : ''})`,
			]),
	);
	if (progress.reasons.length > SHOWN) shell.line(`and ${progress.reasons.length - SHOWN} other reasons (--json).`);
	table(shell, '', [...spread('Workflow', progress.workflows), ...spread('Agent', progress.versions)]);
	if (unlisted.length > 0)
		table(shell, '', [[`Not in the inventory, not counted: ${unlisted.length} (${names(unlisted)})`]]);
	if (flags.devices) table(shell, '', devices.map(rowOf));
}

function table(shell: Shell, head: string, rows: readonly (readonly string[])[]): void {
	if (rows.length === 0) return;
	shell.line(head === '' ? '' : `\n${head}`);
	shell.table(rows);
}

function spread(what: string, counts: Readonly<Record<string, number>>): string[][] {
	const most = Object.entries(counts).sort(([, a], [, b]) => b - a);
	return most.slice(0, SHOWN).map(([name, count]) => [`${what} ${name}`, String(count)]);
}

function about(standing: Standing, those: readonly DeviceStanding[], progress: FleetProgress): string {
	if (those.length === 0) return '';
	if (standing === 'atTarget')
		return progress.leftAlone > 0 ? `${progress.leftAlone} of them left alone by the plan` : '';
	if (standing === 'dueLater') {
		const [first, last] = [iso(progress.firstDueMs), iso(progress.lastDueMs)];
		if (first === null || last === null) return '';
		return first === last ? localTime(first) : `${localTime(first)} to ${localTime(last)}`;
	}
	if (standing !== 'offline') return names(those);
	return `${those
		.slice(0, SHOWN)
		.map(({ deviceId, atMs }) => `${deviceId}${atMs === null ? '' : ` since ${localTime(iso(atMs) ?? '')}`}`)
		.join(', ')}${those.length > SHOWN ? ', …' : ''}`;
}

function names(devices: readonly { readonly deviceId: string }[]): string {
	const shown = devices.slice(0, SHOWN).map(({ deviceId }) => deviceId);
	return onOneLine(`${shown.join(', ')}${devices.length > SHOWN ? ', …' : ''}`);
}

function rowOf(device: DeviceStanding): string[] {
	const { deviceId, standing, workflowId, target, agentVersion, targetVersion, atMs, reason } = device;
	const versions = targetVersion === null ? (agentVersion ?? '') : `${agentVersion ?? '—'} → ${targetVersion}`;
	const at = iso(atMs);
	const online = standing !== 'offline';
	const when = at === null ? '' : `${online ? 'at' : 'since'} ${localTime(at)}`;
	return [
		deviceId,
		NAMES[standing].toLowerCase(),
		`${workflowId ?? '—'} → ${target ?? '—'}`,
		versions,
		when,
		[reason, standing === 'offline' || reason === null ? settingsTrouble({ ...device, online }) : null]
			.filter(Boolean)
			.join('; '),
	];
}

const CSV_COLUMNS = [
	'deviceId',
	'standing',
	'workflowId',
	'target',
	'at',
	'reason',
	'rule',
	'ring',
	'agentVersion',
	'targetVersion',
	'problem',
	'problemSince',
	'planRefusal',
] as const;

/** RFC 4180. */
function printCsv(shell: Shell, devices: readonly DeviceStanding[]): void {
	const lines = devices.map((device) => {
		const fields = { ...device, at: iso(device.atMs) };
		return CSV_COLUMNS.map((column) => csvField(fields[column] ?? null)).join(',');
	});
	shell.text(`${[CSV_COLUMNS.join(','), ...lines].join('\r\n')}\r\n`);
}

/** The beginning of a formula, behind what a spreadsheet passes over: full-width signs as well. */
const FORMULA = /(^|[;,])(?=[\s\p{Cf}"']*[=+\-@\uff1d\uff0b\uff0d\uff20])/gu;
/** Words of a device must not become a formula in a spreadsheet, also one that takes `;` for the end of a cell. */
function csvField(value: string | number | null): string {
	const text = value === null ? '' : onOneLine(String(value));
	const safe = typeof value === 'string' ? text.replaceAll(FORMULA, "$1'") : text;
	return /[",;]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

function iso(ms: number | null): string | null {
	return ms === null ? null : new Date(ms).toISOString();
}

/** Without a plan only revisions can be compared: nothing says what is due. */
async function showRevisions(shell: Shell, flags: StatusFlags): Promise<void> {
	const { failAbove, minReported, csv, watch, inventory } = flags;
	const needing = { 'fail-above': failAbove, 'min-reported': minReported, csv, watch, inventory };
	for (const [name, value] of Object.entries(needing))
		if (value !== undefined) throw new AgentError('usage', `--${name} requires --plan FILE.`);
	const reports = [...(await gatherReports(shell, flags, Date.now())).values()];
	if (reports.length === 0 && flags.from?.length)
		throw new AgentError('inventory-invalid', `No line of ${flags.from.join(' and ')} is of a device.`, {
			remedy: 'Look at what should have gathered them.',
		});
	warnOfTroubles(shell, reports);
	const newest = reports.reduce((most, one) => Math.max(most, one.planRevision ?? 0, one.planRefused ?? 0), 0);
	const revision = flags.revision ?? (newest || null);
	const devices = reports.map((report) => ({ ...report, standing: revisionStanding(report, revision) }));
	const those = Object.groupBy(devices, ({ standing }) => standing);
	const { moved = [], refused = [], pending = [], pendingOffline: offline = [] } = those;
	const waiting = [...pending, ...offline];
	const counts = {
		...{ moved: moved.length, refused: refused.length },
		...{ pending: waiting.length, pendingOffline: offline.length },
	};
	const workflows: Record<string, number> = {};
	for (const { workflowId } of reports)
		if (workflowId !== null) workflows[workflowId] = (workflows[workflowId] ?? 0) + 1;
	if (shell.isJson)
		return shell.json({
			...{ revision, devices: devices.length, ...counts, workflows },
			...(flags.devices && { reports: devices }),
		});
	if (revision === null) shell.line(`None of ${devices.length} devices reports a fleet plan.`);
	else shell.line(`Revision ${revision}${flags.revision === undefined ? ', the newest that a device reports' : ''}:\n`);
	const listed = (those: readonly DeviceReport[]) => (those.length === 0 ? '0' : `${those.length}: ${names(those)}`);
	shell.table([
		['Confirmed', `${counts.moved} of ${devices.length}`],
		['Refused', listed(refused)],
		['Pending', `${listed(waiting)}; ${offline.length} offline`],
		...spread('Workflow', workflows),
	]);
	for (const { deviceId, refusal } of refused.slice(0, SHOWN)) if (refusal) shell.table([[`${deviceId}: ${refusal}`]]);
	shell.line('\nWhat is due, overdue or never seen is known with --plan FILE (and --inventory FILE).');
}

/** A device that was online as a newer revision says has done what the older one wanted. */
function revisionStanding({ planRevision, planRefused, online }: DeviceReport, revision: number | null) {
	if (revision !== null && planRefused !== null && planRefused >= revision) return 'refused';
	if (revision !== null && planRevision !== null && planRevision >= revision) return 'moved';
	return online ? 'pending' : 'pendingOffline';
}

/** @returns whether a text is another one than that of the look before. */
function otherThanLast(): (text: string) => boolean {
	let [before, now] = ['', ''];
	return (text) => {
		[before, now] = [now, text];
		return before !== now;
	};
}
