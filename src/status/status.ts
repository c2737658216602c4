/**
 * How the device is, in one plain sentence and in the fields of `status --json`. Pure: time is handed in.
 */

import { plainDuration } from '../base/durations.ts';
import { type Failure, summaryOf } from '../base/errors.ts';
import { failureOf } from '../connection/link.ts';
import { budgetWarning } from '../connection/registration-budget.ts';
import type { Link, Supervision } from '../connection/supervisor.ts';
import type { ProblemSummary, Status } from '../protocol/local-api.ts';
import type { DeviceState } from '../state/device-state.ts';
import type { DesiredWorkflow } from '../workflow/precedence.ts';

/** What the status is made from. */
export interface Snapshot {
	readonly supervision: Supervision;
	readonly device: DeviceState;
	readonly workflow: DesiredWorkflow | null;
	readonly identity: {
		readonly deviceId: string | null;
		readonly serial: string | null;
		readonly macAddress: string | null;
	};
	readonly deviceType: string;
	/** The service the device belongs to, or would. */
	readonly baseUrl: string | null;
	/** Monotonic time since when no link has been online; `null` while one is or before the first. */
	readonly offlineSinceMs: number | null;
	readonly hasBeenOnline: boolean;
	readonly reconnects: number;
	readonly lastHeartbeatAt: string | null;
	/** What is known of the way to the service. */
	readonly line: Pick<Status['channel'], 'recentCuts'> & {
		readonly idleTimeoutSeconds: number | null;
		readonly pingSeconds: number | null;
		readonly warning: Failure | null;
	};
	readonly newestEventId: string | null;
	readonly agentVersion: string;
	readonly startedAt: string;
	/** What keeps the device from being wanted anywhere, when nothing is supervised (settings, identity, workflow). */
	readonly blocker: Failure | null;
	/** Things that are not right but keep nothing from working. */
	readonly warnings: readonly Failure[];
	/** What is known of the fleet plan; `null` without `fleet.planUrl`. */
	readonly plan: Status['plan'];
	/** Until when a workflow change waits for applications, monotonic; `null` when none does. */
	readonly waitsUntilMs: number | null;
	/** Monotonic now. */
	readonly nowMs: number;
	/** The device's clock now, milliseconds since 1970. */
	readonly wallMs: number;
}

/** Builds the status document. */
export function describeStatus(snapshot: Snapshot): Status {
	const { supervision, device, workflow, identity } = snapshot;
	const { idleTimeoutSeconds, pingSeconds, recentCuts } = snapshot.line;
	const link = supervision.current;
	const state = stateOf(snapshot);
	const problem = problemOf(snapshot);
	const wallAt = (monotonicMs: number) => new Date(snapshot.wallMs + monotonicMs - snapshot.nowMs).toISOString();
	return {
		schemaVersion: 1,
		state,
		sentence: sentenceOf(snapshot, state, problem),
		agentVersion: snapshot.agentVersion,
		startedAt: snapshot.startedAt,
		deviceId: identity.deviceId,
		deviceType: snapshot.deviceType,
		serial: identity.serial,
		macAddress: identity.macAddress,
		baseUrl: snapshot.baseUrl,
		workflow: {
			wanted: workflow?.workflowId ?? null,
			live: link?.state.name === 'online' ? link.registration.request.workflowId : null,
			waitsUntil: snapshot.waitsUntilMs === null ? null : wallAt(snapshot.waitsUntilMs),
			source: workflow?.source ?? null,
		},
		channel: {
			state: link?.state.name ?? 'none',
			since: link ? wallAt(link.state.sinceMs) : null,
			lastHeartbeatAt: snapshot.lastHeartbeatAt,
			reconnects: snapshot.reconnects,
			nextAttemptAt: link && 'untilMs' in link.state ? wallAt(link.state.untilMs) : null,
			idleTimeout: idleTimeoutSeconds === null ? null : { seconds: idleTimeoutSeconds, pingSeconds },
			recentCuts,
		},
		plan: snapshot.plan,
		sessionId: device.pairing?.sessionId ?? null,
		pairedAt: device.pairing?.pairedAt ?? null,
		problem,
		warnings: warningsOf(snapshot).map(summaryOf),
		newestEventId: snapshot.newestEventId,
	};
}

function warningsOf({ warnings, line, supervision, nowMs }: Snapshot): Failure[] {
	const more = [line.warning, budgetWarning(supervision.budget, nowMs)];
	return [...warnings, ...more.filter((one) => one !== null)];
}

function stateOf({ supervision, hasBeenOnline, blocker, device }: Snapshot): Status['state'] {
	const link = supervision.current;
	if (!link) return blocker && device.pairing ? 'blocked' : 'unpaired';
	if (link.state.name === 'online') return 'online';
	if (link.state.name === 'blocked' && !hopesForNext(supervision)) return 'blocked';
	return hasBeenOnline ? 'offline' : 'connecting';
}

/** Whether the way back online leads over the next link: then the current one's refusal is not the last word. */
function hopesForNext({ current, next }: Supervision): boolean {
	if (!current || !next || next.state.name === 'blocked') return false;
	return current.state.name === 'blocked' || failureOf(current.state)?.code === 'connection-replaced';
}

/** The link whose trouble is the device's trouble. */
function linkThatMatters(supervision: Supervision): Link | null {
	const { current, next } = supervision;
	return current?.state.name === 'online' || hopesForNext(supervision) ? next : current;
}

function problemOf({ supervision, blocker }: Snapshot): ProblemSummary | null {
	const link = linkThatMatters(supervision);
	const failed = (link && failureOf(link.state)) ?? blocker;
	return failed ? summaryOf(failed) : null;
}

function sentenceOf(snapshot: Snapshot, state: Status['state'], problem: ProblemSummary | null): string {
	const { supervision } = snapshot;
	const said = problem ? wordsOf(problem) : '';
	const host = hostOf(linkThatMatters(supervision));
	switch (state) {
		case 'unpaired': {
			const missing = problem ?? snapshot.warnings.find(({ code }) => code === 'credential-unreadable');
			if (missing) return `Not paired: ${lowerFirst(wordsOf(missing))}`;
			return snapshot.device.attempt
				? `Not paired: the answer to the last pairing code (${snapshot.device.attempt.host}) never arrived. Check whether the device is listed in the service; otherwise scan a new code.`
				: 'Not paired: scan a pairing code, or run idv-agent pair.';
		}
		case 'connecting':
			return problem ? `Not online yet: ${lowerFirst(said)}` : `Connecting to ${host}.`;
		case 'online':
			return onlineSentence(snapshot, problem);
		case 'offline':
			return problem
				? `Offline for ${duration(snapshot)}: ${lowerFirst(said)}`
				: `Offline for ${duration(snapshot)}: connecting to ${host} again.`;
		case 'blocked':
			return snapshot.hasBeenOnline
				? `Offline for ${duration(snapshot)}: ${lowerFirst(said)}`
				: `Not online: ${lowerFirst(said)}`;
	}
}

function onlineSentence(
	{ supervision, workflow, waitsUntilMs, nowMs }: Snapshot,
	problem: ProblemSummary | null,
): string {
	const live = supervision.current?.registration.request.workflowId ?? '';
	const online = `Online with ${hostOf(supervision.current)}, workflow ${live}`;
	const { next } = supervision;
	if (waitsUntilMs !== null && workflow && !problem)
		return `${online}; ${workflow.workflowId} waits for an application, at most ${plainDuration(waitsUntilMs - nowMs)}.`;
	if (!next)
		return workflow && workflow.workflowId !== live ? `${online}; ${workflow.workflowId} is wanted.` : `${online}.`;
	const aim = purposeOf(next, supervision.current);
	if (!problem) return `${online}; ${aim}.`;
	return `${online}; ${aim} does not succeed: ${lowerFirst(wordsOf(problem))}`;
}

/** What the next link is for, as words that `does not succeed` may follow. */
export function purposeOf(next: Link, current: Link | null): string {
	const { workflowId } = next.registration.request;
	if (next.reason === 'renewal') return 'renewing the Connection';
	if (hostOf(next) !== hostOf(current)) return `moving to ${hostOf(next)}, workflow ${workflowId}`;
	return workflowId === current?.registration.request.workflowId
		? 'registering anew'
		: `moving to workflow ${workflowId}`;
}

/** What is wrong and what to do, as sentences that end. */
function wordsOf({ code, message, remedy }: ProblemSummary): string {
	const parts = [message.trim() || code, remedy.trim()].filter(Boolean);
	return parts.map((text) => (/[.!?]$/.test(text) ? text : `${text}.`)).join(' ');
}

function hostOf(link: Link | null): string {
	return link ? new URL(link.registration.baseUrl).host : 'the service';
}

/** `14 min`: as long as the device has been offline. */
function duration({ offlineSinceMs, nowMs }: Snapshot): string {
	return plainDuration(offlineSinceMs === null ? 0 : nowMs - offlineSinceMs);
}

/** A sentence that goes on after a colon; names and acronyms keep their capitals. */
function lowerFirst(sentence: string): string {
	return /^[A-Z][a-z']*[ ,]/.test(sentence) ? sentence.charAt(0).toLowerCase() + sentence.slice(1) : sentence;
}
