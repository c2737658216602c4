/** The device's status in one plain sentence and in the fields of `status --json`. Pure. */
import { dispositionOf, type Failure, failure } from '../base/errors.ts';
import { isImpossible } from '../connection/clock-skew.ts';
import { failureOf } from '../connection/link.ts';
import { budgetWarning } from '../connection/registration-budget.ts';
import { isSameWay, type Link, type Supervision, servesRegistration } from '../connection/supervisor.ts';
import { FORWARDED_EACH, type Status } from '../protocol/local-api.ts';
import { type DeviceState, newestCode } from '../state/device-state.ts';
import type { DesiredWorkflow } from '../workflow/precedence.ts';
import { hostOf, lostParams, purposeOf, statusSentence } from './sentence.ts';

/** Whether a warning says why a device is not paired: also the loss of every copy of the state, but not of one, nor another secret file. */
const saysWhyUnpaired = ({ code, params }: Failure) =>
	(code === 'answer-unreadable' && params?.['earlierAt'] === undefined) ||
	(code === 'credential-unreadable' && params?.['setting'] === 'credential') ||
	(code === 'state-corrupt' && params?.['wholeCopies'] === 0);

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
	/** Of `fleet.labels`. */
	readonly labels?: readonly string[];
	/** `forward.*`. */
	readonly forward?: Pick<NonNullable<Status['forward']>, 'maxBytes' | 'idleSeconds'>;
	/** The service the device belongs to, or would. */
	readonly baseUrl: string | null;
	/** Monotonic time since when no link has been online; `null` while one is or before the first. */
	readonly offlineSinceMs: number | null;
	readonly hasBeenOnline: boolean;
	readonly reconnects: number;
	readonly lastHeartbeatAt: string | null;
	readonly lastAnswerAt?: string | null;
	/** Of the link that the device is to move to. */
	readonly moveFails?: { readonly generation: number; readonly code: string; readonly since: string };
	/** What is known of the way to the service. */
	readonly line: Pick<Status['channel'], 'recentCuts'> & {
		readonly idleTimeoutSeconds: number | null;
		readonly pingSeconds: number | null;
		readonly warning: Failure | null;
	};
	readonly newestEventId: string | null;
	readonly agentVersion: string;
	readonly startedAt: string;
	/** The reason why the device is not wanted anywhere, when nothing is supervised (settings, identity, workflow). */
	readonly blocker: Failure | null;
	/** Things that are not right but keep nothing from working. */
	readonly warnings: readonly Failure[];
	/** Left out where there is nothing to say of updates. */
	readonly updates?: Status['updates'] | undefined;
	/** What is known of the fleet plan; `null` without `fleet.planUrl`. */
	readonly plan: Status['plan'];
	/** Until when a workflow change waits for applications, monotonic; `null` when none does. */
	readonly waitsUntilMs: number | null;
	/** Monotonic now. */
	readonly nowMs: number;
	/** The device's clock now, milliseconds since 1970. */
	readonly wallMs: number;
}

export function describeStatus(snapshot: Snapshot): Status {
	const { supervision, device, workflow, identity } = snapshot;
	const { idleTimeoutSeconds, pingSeconds, recentCuts } = snapshot.line;
	const link = supervision.current;
	// The service knows it by these until it is with others.
	const known = link?.registration.request;
	const { deviceId, serial = null, macAddress = null } = known ?? identity;
	const deviceType = known?.deviceType ?? snapshot.deviceType;
	const cadence = link?.state.name === 'online' ? link.registration.request.heartbeatCadence : undefined;
	const state = stateOf(snapshot);
	const ending = endingOf(snapshot);
	const problem = ending ? null : problemOf(snapshot);
	const warnings = [...(ending ? [ending] : []), ...warningsOf(snapshot)];
	const summary = summaryOf(snapshot, state, ending ?? problem);
	const nextAttemptMs = nextAttemptMsOf(supervision);
	const wallAt = (monotonicMs: number) => new Date(snapshot.wallMs + monotonicMs - snapshot.nowMs).toISOString();
	return {
		schemaVersion: 1,
		state,
		sentence: statusSentence({ summary, problem, warnings }),
		summary,
		agentVersion: snapshot.agentVersion,
		startedAt: snapshot.startedAt,
		...{ deviceId, deviceType, serial, macAddress },
		...(snapshot.labels?.length && { labels: [...snapshot.labels] }),
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
			...(snapshot.lastAnswerAt !== undefined && { lastAnswerAt: snapshot.lastAnswerAt }),
			...(cadence !== undefined && { heartbeatCadence: cadence }),
			reconnects: snapshot.reconnects,
			nextAttemptAt: nextAttemptMs === null ? null : wallAt(nextAttemptMs),
			idleTimeout: idleTimeoutSeconds === null ? null : { seconds: idleTimeoutSeconds, pingSeconds },
			recentCuts,
		},
		plan: snapshot.plan,
		...(snapshot.updates && { updates: snapshot.updates }),
		...(snapshot.forward && {
			forward: {
				maxBytes: snapshot.forward.maxBytes,
				idleSeconds: snapshot.forward.idleSeconds,
				each: FORWARDED_EACH,
			},
		}),
		sessionId: device.pairing?.sessionId ?? null,
		pairedAt: device.pairing?.pairedAt ?? null,
		...clockOfPairing(device, snapshot.wallMs),
		problem: withSince(problem, snapshot),
		warnings,
		newestEventId: snapshot.newestEventId,
	};
}

function clockOfPairing({ pairing }: DeviceState, wallMs: number): Pick<Status, 'pairedAtBy'> {
	if (pairing?.pairedAtBy) return { pairedAtBy: 'service' };
	return pairing && isImpossible(Date.parse(pairing.pairedAt), wallMs) ? { pairedAtBy: 'wrong clock' } : {};
}

function warningsOf({ warnings, line, supervision, nowMs }: Snapshot): Failure[] {
	const more = [line.warning, budgetWarning(supervision.budget, nowMs)];
	return [...warnings, ...more.filter((one) => one !== null)];
}

export function stateOf({
	supervision,
	hasBeenOnline,
	blocker,
	device,
}: Pick<Snapshot, 'supervision' | 'hasBeenOnline' | 'blocker' | 'device'>): Status['state'] {
	const link = supervision.current;
	// A copy goes on only with a person, also of a device that registers without one.
	if (!link) return blocker && (device.pairing || blocker.code === 'identity-changed') ? 'blocked' : 'unpaired';
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
/** Where the new link is tried first, its attempt is the next one. */
function nextAttemptMsOf({ current, next }: Supervision): number | null {
	if (current?.state.name === 'registering' || current?.state.name === 'connecting') return null;
	const waits = [current, next].flatMap((link) => (link && 'untilMs' in link.state ? link.state.untilMs : []));
	return waits.length > 0 ? Math.min(...waits) : null;
}

function linkThatMatters(supervision: Supervision): Link | null {
	const { current, next } = supervision;
	if (triesWay(supervision)) return current;
	return current?.state.name === 'online' || hopesForNext(supervision) || tellsWhy(supervision) ? next : current;
}

/** Whether only the Connection of the current link has ended, and the next one, of the same service, says why there is no other. */
function tellsWhy({ current, next }: Supervision): boolean {
	const ended = current && failureOf(current.state);
	if (!ended || !next || !('backoff' in current.state)) return false;
	if (next.registration.baseUrl !== current.registration.baseUrl) return false;
	// Of another way, which settings want, what fails there is a warning of its own; this one registers by its own.
	if (!isSameWay(current.registration, next.registration)) return false;
	const isOnlyEnded = dispositionOf(ended.code) === 'reregister' && !current.state.backoff.registerRefused;
	return isOnlyEnded && failureOf(next.state) !== null;
}

/** Whether the next link only tries another way to the same, beside a channel or without success: what comes of it is a warning of its own. */
function triesWay({ current, next }: Supervision): boolean {
	if (!current || next?.reason !== 'desired') return false;
	if (current.state.name !== 'online' && failureOf(next.state) === null) return false;
	return (
		!isSameWay(current.registration, next.registration) && servesRegistration(current.registration, next.registration)
	);
}

/** Of a device that is online and has nothing but its Connection: that the service makes no other one of it ends nothing yet. */
function endingOf({ supervision: { current, next }, wallMs, nowMs }: Snapshot): Failure | null {
	if (current?.state.name !== 'online' || next?.reason !== 'renewal' || next.state.name === 'closed') return null;
	const refused = failureOf(next.state);
	const { obtainedAtMs, lifeMs } = current.state.connection;
	const isAlone = next.state.credentials.every(({ kind }) => kind === 'connection');
	const isRefused = refused?.code === 'credential-refused' || refused?.code === 'access-forbidden';
	if (!isRefused || !isAlone || lifeMs === null) return null;
	const leftMs = obtainedAtMs + lifeMs - nowMs;
	const at = new Date(wallMs + leftMs).toISOString();
	const message = `The Connection of this device may end at ${at}, and it cannot be renewed with itself: ${refused.message}`;
	const params = { at, days: Math.floor(leftMs / 86_400_000) };
	return failure('credential-ending', message, { remedy: refused.remedy, params });
}

/** What the clock has to be for an error of a certificate to come from it. */
const OFF: Readonly<Record<string, string>> = { CERT_NOT_YET_VALID: 'slow' };

function problemOf({ supervision, blocker, warnings }: Snapshot): Failure | null {
	const link = linkThatMatters(supervision);
	const problem = (link && failureOf(link.state)) ?? blocker;
	const clock = warnings.find(({ code }) => code === 'clock-wrong');
	const off = problem && (problem.code === 'certificate-expired' ? 'fast' : OFF[String(problem.params?.['reason'])]);
	if (!problem || !clock || !off || clock.params?.['direction'] !== off) return problem;
	// By a clock that is known to be so: whose move it is then is another one's.
	const { code, message, remedy, params } = clock;
	return failure(code, `${problem.message} ${message}`, { remedy, params: { ...problem.params, ...params } });
}

/** The problem of a move has its beginning with it: the device is online meanwhile, and nothing else tells how long it is so. */
function withSince(problem: Failure | null, { supervision: { current, next }, moveFails }: Snapshot): Failure | null {
	const isOfMove = current?.state.name === 'online' && next?.generation === moveFails?.generation;
	if (!problem || !isOfMove || problem.code !== moveFails?.code) return problem;
	return { ...problem, params: { ...problem.params, since: moveFails.since } };
}

/** The sentence as data; `params.problem` names the problem or warning that it tells. */
function summaryOf(snapshot: Snapshot, state: Status['state'], problem: Failure | null): Status['summary'] {
	const { supervision, device, warnings, offlineSinceMs, nowMs } = snapshot;
	const host = hostOf(linkThatMatters(supervision));
	const seconds = Math.round((nowMs - (offlineSinceMs ?? nowMs)) / 1000);
	const told = problem && { problem: problem.code };
	switch (state) {
		case 'unpaired': {
			const missing = problem ?? warnings.find(saysWhyUnpaired);
			if (missing) return { code: 'unpaired', params: { problem: missing.code } };
			return newestCode(device.attempt) === 'lost'
				? { code: 'unpaired-uncertain', params: lostParams(device.attempt) }
				: { code: 'unpaired', params: {} };
		}
		case 'connecting':
			return { code: 'connecting', params: { host, ...told } };
		case 'online':
			return onlineSummary(snapshot, problem);
		case 'blocked':
			if (!snapshot.hasBeenOnline) return { code: 'blocked', params: { host, ...told } };
			return { code: 'offline', params: { host, seconds, ...told } };
		case 'offline':
			return { code: 'offline', params: { host, seconds, ...told } };
	}
}

function onlineSummary(
	{ supervision, workflow, waitsUntilMs, nowMs }: Snapshot,
	problem: Failure | null,
): Status['summary'] {
	const { current, next } = supervision;
	const workflowId = current?.registration.request.workflowId ?? '';
	const params = { host: hostOf(current), workflowId };
	const other = workflow && workflow.workflowId !== workflowId ? { nextWorkflowId: workflow.workflowId } : null;
	if (waitsUntilMs !== null && workflow && !problem) {
		const seconds = Math.round((waitsUntilMs - nowMs) / 1000);
		return { code: 'online-waiting', params: { ...params, nextWorkflowId: workflow.workflowId, seconds } };
	}
	if (!next || triesWay(supervision))
		return other ? { code: 'online-wanted', params: { ...params, ...other } } : { code: 'online', params };
	const purpose = purposeOf(next, current);
	return { code: purpose.code, params: { ...params, ...purpose.params, ...(problem && { problem: problem.code }) } };
}
