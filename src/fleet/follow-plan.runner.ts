/**
 * Follows the fleet plan: looks at it from time to time, keeps this device's part in the state, and says what it wants now.
 * Owns the timers of that and nothing of the links; what to do is decided in `targeting.ts`, `record.ts` and `attempt.ts`, what is done about it `agent/agent.runner.ts`.
 */
import { createHash } from 'node:crypto';
import { type Clock, isoAt, isoNow } from '../base/clock.edge.ts';
import { AgentError, type Failure, failure, toFailure } from '../base/errors.ts';
import type { Log } from '../base/log.edge.ts';
import type { Warnings } from '../base/warnings.ts';
import type { Runtime } from '../connection/runtime.runner.ts';
import { type DesiredRegistration, type Supervision, servesRegistration } from '../connection/supervisor.ts';
import type { CompleteIdentity } from '../identity/identity.ts';
import type { Heartbeat } from '../protocol/channel.ts';
import type { Status } from '../protocol/local-api.ts';
import type { PersistedState } from '../state/persisted-state.runner.ts';
import type { PlanRecord } from '../state/plan-record.ts';
import { chosenCadence, chosenWorkflow, fixedWorkflow } from '../workflow/desired-registration.ts';
import type { PlanTarget } from '../workflow/precedence.ts';
import { assessAttempt, keepLastGood, NO_ATTEMPT, type PlanAttempt } from './attempt.ts';
import { type FoundPlan, fetchPlan } from './fetch-plan.edge.ts';
import { checkRevision, NO_PLAN, nextLookMs, receivePlan, takeDue } from './record.ts';
import { assignmentAt, compilePlan, planFor, shareOfSpread } from './targeting.ts';
import { MAX_PLAN_BYTES } from './terms.ts';
import type { PlanReading } from './verify-plan.runner.ts';

/** After a start and after a change of the settings, the first look comes within this time. */
const FIRST_LOOK_MS = 10_000;
const DEADLINE_MS = 60_000;

export interface FleetParts {
	readonly clock: Clock;
	readonly log: Pick<Log, 'info'>;
	readonly random: () => number;
	readonly userAgent: string;
	readonly device: PersistedState;
	readonly warnings: Warnings;
	readonly runtime: () => Runtime;
	readonly identity: () => CompleteIdentity;
	/** What is wanted by all rules now, before leases and failures. */
	readonly wish: () => DesiredRegistration | null;
	/** Whether a change waits for the leases of applications. */
	readonly waits: () => boolean;
	/** What is wanted may have changed. */
	readonly lookAgain: () => void;
}

export interface Fleet {
	/** What the plan says now; `null` without one. */
	target(): PlanTarget | null;
	/** What to pursue: what is wanted, or where the device is while the plan's word does not work. */
	keepLastGood(desired: DesiredRegistration | null, supervision: Supervision): DesiredRegistration | null;
	/** To be told of every step of the supervision. */
	follow(supervision: Supervision): void;
	/** What heartbeats say. */
	heartbeat(): Pick<Heartbeat, 'planRevision' | 'planRefused'>;
	report(): Status['plan'];
	/** The settings or the identity may have changed. */
	reevaluate(): void;
	/** Looks at the plan now, and tries again what did not work. */
	retry(): void;
	stop(): void;
}

export function followFleet(parts: FleetParts): Fleet {
	const { clock, log, random, device, warnings } = parts;
	let attempt: PlanAttempt = NO_ATTEMPT;
	let supervision: Supervision | null = null;
	let looking: AbortController | null = null;
	/** What was looked for last: address, choice and keys. */
	let aim = '';
	/** Of a plan that was refused: so that it is not sent again and again. */
	let refusedEtag: string | null = null;
	let checkedAt: string | null = null;
	let stopped = false;
	let cancelLook = () => {};
	let cancelTurn = () => {};
	let cancelAttempt = () => {};

	const settings = () => parts.runtime().resolved.settings.fleet;
	const iso = (wallMs: number) => new Date(wallMs).toISOString();

	/** The record of the plan that the settings name; `null` without one. */
	function known(): PlanRecord | null {
		const { planUrl } = settings();
		if (planUrl === null) return null;
		const source = digestOf(planUrl);
		const { plan } = device.state;
		return plan?.source === source ? plan : { source, basis: '', ...NO_PLAN };
	}

	function planned() {
		const { deviceId, serial, macAddress } = parts.identity();
		const { deviceType } = parts.runtime().resolved.settings;
		const { labels } = settings();
		return { deviceId: deviceId.value, serial: serial.value, macAddress: macAddress.value, deviceType, labels };
	}

	const basis = () => digestOf(JSON.stringify([planned(), settings().publicKeys]));

	function target(): PlanTarget | null {
		const taken = known()?.taken;
		return taken ? { revision: taken.revision, rule: taken.rule, ...assignmentAt(taken, clock.wallMs()) } : null;
	}

	/** What the device does where the plan says nothing. */
	function fallback() {
		const { resolved } = parts.runtime();
		const workflow = chosenWorkflow(resolved, device.state, null);
		return { workflowId: workflow?.workflowId ?? null, heartbeatCadence: chosenCadence(resolved, null) };
	}

	// ---- Looking at the plan ----

	function lookIn(delayMs: number): void {
		cancelLook();
		if (settings().planUrl !== null && !stopped) cancelLook = clock.schedule(delayMs, () => void look());
	}

	async function look(): Promise<void> {
		const record = known();
		const { planUrl, publicKeys, intervalSeconds } = settings();
		if (!record || planUrl === null) return;
		looking?.abort();
		const abort = new AbortController();
		looking = abort;
		const url = new URL(planUrl);
		try {
			const etag = record.basis === basis() ? record.etag : null;
			const found = await fetchPlan(parts.runtime().network, {
				url,
				etag: refusedEtag ?? etag,
				userAgent: parts.userAgent,
				deadlineMs: DEADLINE_MS,
				maxBytes: MAX_PLAN_BYTES,
				signal: abort.signal,
			});
			if (abort.signal.aborted) return;
			if (found.kind === 'changed') {
				// A plan changes seldom; most devices follow none.
				const { readPlan } = await import('./verify-plan.runner.ts');
				if (abort.signal.aborted) return;
				receive(found, readPlan(found.bytes, `The fleet plan of ${url.host}`, publicKeys));
			}
			if (found.kind === 'changed' || refusedEtag === null) warnings.set('fleet', null);
			checkedAt = isoNow(clock);
		} catch (error) {
			if (abort.signal.aborted) return;
			warn(toFailure(error));
		}
		looking = null;
		lookIn(intervalSeconds * 1000 * (0.75 + 0.5 * random()));
	}

	/** A device without a line has said so already. */
	function warn(problem: Failure): void {
		const isOffline = supervision?.current != null && supervision.current.state.name !== 'online';
		if (problem.code !== 'plan-unreachable' || !isOffline) warnings.set('fleet', problem);
	}

	function receive({ etag }: Extract<FoundPlan, { kind: 'changed' }>, reading: PlanReading) {
		refusedEtag = etag;
		const record = known();
		if (!reading.ok) throw asError(reading.problems);
		const { plan, digest } = reading.read;
		const chosenBy = basis();
		const verdict = record && checkRevision(record, { revision: plan.revision, digest });
		refusedEtag = null;
		if (!record || (verdict === 'known' && record.basis === chosenBy && record.etag === etag)) return;
		const part = planFor(compilePlan(plan), planned());
		const changed = receivePlan(
			{ ...record, basis: chosenBy, etag },
			{ ...part, revision: plan.revision, digest },
			{
				wallMs: clock.wallMs(),
				spreadSeconds: plan.spreadSeconds,
				share: shareOfSpread(planned().deviceId),
				fallback: fallback(),
			},
		);
		// A server that names the same plan anew each time must not wear the disk.
		const isOnlyRenamed = verdict === 'known' && record.basis === chosenBy;
		if (!isOnlyRenamed) log.info('fleet plan received', { revision: plan.revision });
		if (!isOnlyRenamed || record.etag === null) keep(changed);
		turn();
	}

	function keep(plan: PlanRecord): void {
		device.keep((state) => ({ ...state, plan }));
	}

	/** Takes what has come due, and comes back for what comes due next. */
	function turn(): void {
		cancelTurn();
		const record = known();
		if (!record) return;
		const due = takeDue(record, clock.wallMs());
		if (due !== record) keep(due);
		const nextMs = nextLookMs(due, clock.wallMs());
		if (nextMs !== null) cancelTurn = clock.schedule(nextMs - clock.wallMs(), turn);
		parts.lookAgain();
	}

	// ---- Whether it works ----

	function assess(): void {
		cancelAttempt();
		if (!supervision) return;
		const before = attempt;
		const wish = parts.wish();
		attempt = assessAttempt(attempt, {
			key: parts.waits() ? null : keyOf(wish, supervision),
			wish,
			supervision,
			revision: target()?.revision ?? 0,
			limitMs: settings().changeLimitSeconds * 1000,
			nowMs: clock.monotonicMs(),
			random,
		});
		warnings.set('plan', attempt.name === 'refused' ? attempt.failure : null);
		if (attempt.name !== 'none') cancelAttempt = clock.schedule(attempt.untilMs - clock.monotonicMs(), assess);
		if (before.name !== attempt.name && (before.name === 'refused' || attempt.name === 'refused')) parts.lookAgain();
	}

	/** Names what the plan wants of the device that the device does not do yet. */
	function keyOf(wish: DesiredRegistration | null, { current }: Supervision): string | null {
		const plan = target();
		if (!plan || !wish || !current) return null;
		const { workflowId, heartbeatCadence } = wish.request;
		const isOtherWorkflow = workflowId !== current.registration.request.workflowId;
		const { resolved } = parts.runtime();
		const isPlans = isOtherWorkflow
			? fixedWorkflow(resolved, plan)?.source === 'plan'
			: heartbeatCadence === plan.heartbeatCadence;
		return isPlans ? JSON.stringify([plan.revision, workflowId, heartbeatCadence]) : null;
	}

	/** Notes the revision that the device is online as it says. */
	function noteFollowed({ current }: Supervision): void {
		const record = known();
		const wish = parts.wish();
		if (!record?.taken || !wish || current?.state.name !== 'online') return;
		const { revision } = record.taken;
		if (record.followed === revision || !servesRegistration(current.registration, wish)) return;
		keep({ ...record, followed: revision });
		log.info('fleet plan followed', { revision, workflowId: wish.request.workflowId });
	}

	return {
		target,
		keepLastGood(desired, now) {
			if (attempt.name === 'refused' && keyOf(parts.wish(), now) !== attempt.key) attempt = NO_ATTEMPT;
			return keepLastGood(attempt, desired, now);
		},
		follow(now) {
			supervision = now;
			assess();
			noteFollowed(now);
		},
		heartbeat() {
			const record = known();
			return {
				...(record?.followed != null && { planRevision: record.followed }),
				...(attempt.name === 'refused' && record?.taken && { planRefused: record.taken.revision }),
			};
		},
		report() {
			const record = known();
			if (!record) return null;
			const { taken, waiting, followed } = record;
			const nowMs = clock.wallMs();
			const plan = target();
			const moveMs = taken?.move?.atMs ?? null;
			const turnsBy = moveMs !== null && moveMs > nowMs ? taken : null;
			const next = waiting
				? {
						revision: waiting.revision,
						workflowId: assignmentAt(waiting, waiting.atMs).workflowId,
						at: iso(waiting.atMs),
					}
				: turnsBy && {
						revision: turnsBy.revision,
						workflowId: turnsBy.move?.to.workflowId ?? null,
						at: iso(moveMs ?? 0),
					};
			return {
				revision: taken?.revision ?? null,
				followed,
				rule: taken?.rule ?? null,
				workflowId: plan?.workflowId ?? null,
				next,
				refused: attempt.name === 'refused' ? describe(attempt, taken?.revision ?? 0) : null,
				checkedAt,
			};
		},
		reevaluate() {
			// A pairing that was waited for ends after this.
			if (stopped) return;
			const { planUrl, intervalSeconds } = settings();
			const now = planUrl === null ? '' : JSON.stringify([planUrl, basis(), intervalSeconds]);
			if (now === aim && !looking) return;
			aim = now;
			refusedEtag = null;
			// The network that it went through may be gone.
			looking?.abort();
			looking = null;
			cancelLook();
			cancelTurn();
			if (planUrl === null) {
				warnings.set('fleet', null);
				return;
			}
			lookIn(FIRST_LOOK_MS * random());
			const due = known();
			const nextMs = due && nextLookMs(due, clock.wallMs());
			if (nextMs !== null) cancelTurn = clock.schedule(nextMs - clock.wallMs(), turn);
		},
		retry() {
			refusedEtag = null;
			if (attempt.name === 'refused') {
				attempt = NO_ATTEMPT;
				parts.lookAgain();
			}
			lookIn(0);
		},
		stop() {
			stopped = true;
			looking?.abort();
			for (const cancel of [cancelLook, cancelTurn, cancelAttempt]) cancel();
			supervision = null;
		},
	};

	function describe({ failure: why, sinceMs, untilMs }: Extract<PlanAttempt, { name: 'refused' }>, revision: number) {
		return { ...why, revision, at: isoAt(clock, sinceMs), nextTryAt: isoAt(clock, untilMs) };
	}
}

function digestOf(text: string): string {
	return createHash('sha256').update(text).digest('hex').slice(0, 32);
}

/** The first problem speaks for all. */
function asError(problems: readonly Failure[]): AgentError {
	const [first = failure('plan-invalid', 'The fleet plan cannot be read.')] = problems;
	const more = problems.length > 1 ? ` (and ${problems.length - 1} more)` : '';
	return new AgentError(first.code, `${first.message}${more}`, first);
}
