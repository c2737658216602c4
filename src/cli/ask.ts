/** The short commands: each asks the running agent one thing and prints the answer. */

import { choosePaths, type PathFlags } from '../agent/paths.ts';
import { createLocalClient, type LocalClient } from '../edges/local-client.ts';
import type { IdentityReport, LocalEvent, Status } from '../protocol/local-api.ts';
import { type EventPage, LOCAL_ROUTES } from '../protocol/local-api.ts';
import { cleanText } from '../protocol/problem.ts';
import { type OutputFlags, printJson, printLine, printTable } from './output.ts';

export type AskFlags = PathFlags & OutputFlags;

function clientFor(flags: AskFlags): LocalClient {
	return createLocalClient({ runDir: choosePaths(flags, process.env).runDir });
}

export async function showStatus(flags: AskFlags & { readonly watch?: boolean | undefined }): Promise<void> {
	const client = clientFor(flags);
	if (!flags.watch) {
		const status = (await client.request('agent', 'GET', LOCAL_ROUTES.status)) as Status;
		if (flags.json) printJson(status);
		else printStatus(status);
		return;
	}
	let last = '';
	await client.events(LOCAL_ROUTES.status, {}, ({ event, data }) => {
		if (event !== 'status') return;
		if (flags.json) return printLine(data);
		const { sentence } = JSON.parse(data) as Status;
		if (sentence !== last) printLine(`${new Date().toTimeString().slice(0, 8)}  ${sentence}`);
		last = sentence;
	});
}

function printStatus(status: Status): void {
	const { workflow, channel } = status;
	printLine(status.sentence);
	printLine();
	const moving = workflow.wanted === workflow.live ? '' : ` (wanted: ${workflow.wanted ?? 'none'})`;
	const rows = [
		['Device', [status.deviceId, status.deviceType].filter(Boolean).join(', ')],
		['Service', status.baseUrl ?? 'none yet'],
		['Workflow', `${workflow.live ?? 'none live'}${moving}${workflow.source ? `, set by ${workflow.source}` : ''}`],
		[
			'Channel',
			`${channel.state}${channel.since ? ` since ${localTime(channel.since)}` : ''}, ${channel.reconnects} reconnects`,
		],
		['Heartbeat', channel.lastHeartbeatAt ? localTime(channel.lastHeartbeatAt) : 'none yet'],
	];
	if (channel.nextAttemptAt) rows.push(['Next try', localTime(channel.nextAttemptAt)]);
	if (status.sessionId) rows.push(['Session', status.sessionId]);
	if (status.problem) rows.push(['Problem', status.problem.code]);
	for (const warning of status.warnings) rows.push(['Warning', `${warning.message} ${warning.remedy}`]);
	printTable(rows);
}

export async function showWorkflow(flags: AskFlags): Promise<void> {
	const { workflow } = (await clientFor(flags).request('agent', 'GET', LOCAL_ROUTES.status)) as Status;
	if (flags.json) return printJson(workflow);
	printTable([
		['Wanted', workflow.wanted ? `${workflow.wanted}, set by ${workflow.source}` : 'none'],
		['Live', workflow.live ?? 'none'],
	]);
}

/** Asks for the change, then waits until the workflow is live or it is clear that it will not be. */
export async function setWorkflow(
	flags: AskFlags & { readonly wait?: number | undefined },
	workflowId: string,
): Promise<void> {
	const client = clientFor(flags);
	let status = (await client.request('admin', 'PUT', LOCAL_ROUTES.workflow, { workflowId })) as Status;
	const settled = () => status.workflow.live === workflowId || status.problem !== null;
	if (!settled()) {
		const stop = AbortSignal.timeout((flags.wait ?? 15) * 1000);
		const done = new AbortController();
		await client.events(LOCAL_ROUTES.status, { signal: AbortSignal.any([stop, done.signal]) }, ({ event, data }) => {
			if (event === 'status') status = JSON.parse(data) as Status;
			if (settled()) done.abort();
		});
	}
	if (flags.json) printJson(status);
	else printLine(status.sentence);
	if (status.workflow.live !== workflowId) process.exitCode = 75;
}

export async function reconnect(flags: AskFlags): Promise<void> {
	const status = (await clientFor(flags).request('admin', 'POST', LOCAL_ROUTES.reconnect)) as Status;
	if (flags.json) printJson(status);
	else printLine(status.sentence);
}

export async function unpair(flags: AskFlags): Promise<void> {
	const status = (await clientFor(flags).request('admin', 'POST', LOCAL_ROUTES.unpair)) as Status;
	if (flags.json) printJson(status);
	else if (status.state === 'unpaired') printLine(`Unpaired: the Connection is forgotten. ${status.sentence}`);
	else
		printLine(
			`The Connection is forgotten, but the settings still hold a credential: the device registers anew. ${status.sentence}`,
		);
}

export async function showIdentity(flags: AskFlags): Promise<void> {
	const report = (await clientFor(flags).request('agent', 'GET', LOCAL_ROUTES.identity)) as IdentityReport;
	if (flags.json) return printJson(report);
	printTable([
		['deviceId', report.deviceId.value, report.deviceId.source],
		['serial', report.serial.value ?? 'none', report.serial.source],
		['macAddress', report.macAddress.value ?? 'none', report.macAddress.source],
	]);
	printLine(report.pinned ? 'Pinned at pairing.' : 'Not pinned yet: pairing does that.');
	for (const { source, reason } of report.rejected) printLine(`Not taken: ${source}: ${reason}`);
	for (const warning of report.warnings) printLine(`Warning: ${warning.message} ${warning.remedy}`);
}

export async function showEvents(
	flags: AskFlags & { readonly follow?: boolean | undefined; readonly since?: string | undefined },
): Promise<void> {
	const client = clientFor(flags);
	if (!flags.follow) {
		let since = flags.since ?? '';
		for (;;) {
			const page = (await client.request(
				'agent',
				'GET',
				`${LOCAL_ROUTES.events}?since=${encodeURIComponent(since)}`,
			)) as EventPage;
			for (const event of page.events) printEvent(event, JSON.stringify(event), flags);
			if (page.events.length === 0 || page.next === null) return;
			since = page.next;
		}
	}
	// The agent closes on a reader that is too slow and when it stops; the next request resumes by id.
	let since = flags.since;
	for (;;) {
		const { reason } = await client.events(
			LOCAL_ROUTES.events,
			since === undefined ? {} : { since },
			({ id, event, data }) => {
				if (event === 'closed') return;
				printEvent(JSON.parse(data) as LocalEvent, data, flags);
				since = id ?? since;
			},
		);
		if (reason !== 'slow') return;
	}
}

function printEvent(event: LocalEvent, raw: string, flags: OutputFlags): void {
	if (flags.json) {
		printLine(raw);
		return;
	}
	const name = event.type === 'notification' ? event.kind : event.type;
	const data = raw.slice(raw.indexOf('"data":') + '"data":'.length, -1);
	printLine(`${event.id}  ${localTime(event.at)}  ${cleanText(name, 64)}  ${cleanText(data, 2000)}`);
}

function localTime(iso: string): string {
	const at = new Date(iso);
	const time = at.toTimeString().slice(0, 8);
	return at.toDateString() === new Date().toDateString() ? time : `${at.toLocaleDateString('sv')} ${time}`;
}
