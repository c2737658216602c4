/** Polls the fleet plan and keeps this device's part of it in the state. Owns the poll timer and the request under way; decides nothing. */
import { createHash } from 'node:crypto';
import type { Audit } from '../audit/audit.runner.ts';
import { type Clock, isoNow } from '../base/clock.edge.ts';
import { AgentError, type Failure, failure, toFailure } from '../base/errors.ts';
import type { Log } from '../base/log.edge.ts';
import type { Warnings } from '../base/warnings.ts';
import type { Runtime } from '../connection/runtime.runner.ts';
import type { CurrentIdentity } from '../identity/current-identity.runner.ts';
import type { PersistedState } from '../state/persisted-state.runner.ts';
import type { Assignment, PlanRecord } from '../state/plan-record.ts';
import type { fetchPlan } from './fetch-plan.edge.ts';
import type { FleetPlan } from './plan-format.ts';
import {
	checkFleet,
	checkRevision,
	isOfFleet,
	isWithdrawn,
	type PlanTarget,
	type PlanTrust,
	planTarget,
	raisedFloors,
	receivePlan,
	recordFor,
	withoutWithdrawn,
} from './record.ts';
import { compilePlan, planFor, shareOfSpread } from './targeting.ts';
import { MAX_PLAN_BYTES } from './terms.ts';
import type { PlanReading } from './verify-plan.runner.ts';

/** After a start and after a change of the settings, the first poll comes within this time. */
const FIRST_POLL_MS = 10_000;
const DEADLINE_MS = 60_000;
const PLAN_KEYS = { action: 'planKeysChanged', entrance: 'settings', result: 'ok' };
const PLAN_RECEIVED = { action: 'planReceived', entrance: 'plan' };
const UNATTESTED =
	'None of the keys in fleet.publicKeys has signed the fleet plan that this device follows. The device continues with this plan, but begins nothing more from it.';

export interface FleetParts {
	/** Its wall clock shows the time that is believed. */
	readonly clock: Pick<Clock, 'wallMs' | 'schedule'>;
	readonly log: Pick<Log, 'info'>;
	readonly audit: Pick<Audit, 'record'>;
	readonly random: () => number;
	readonly fetchPlan: typeof fetchPlan;
	readonly userAgent: string;
	readonly stateWriter: PersistedState;
	readonly warnings: Warnings;
	readonly runtime: () => Runtime;
	readonly identity: Pick<CurrentIdentity, 'now'>;
	/** What the device does where the plan says nothing. */
	readonly fallback: () => Assignment;
	/** Whether the device has a service and does not reach it. */
	readonly isOffline: () => boolean;
	/** Whether a plan that is known is fetched once more after a start: its bytes are not kept. */
	readonly needsBytes: () => boolean;
	/** A plan that this device may follow was fetched, new or known; `envelope` are its bytes as they were served. */
	readonly onPlan: (plan: FleetPlan, envelope: Uint8Array) => void;
	/** After each look, whatever came of it: what is due by the time is judged again. */
	readonly onLook: () => void;
	readonly requestReconcile: () => void;
}

interface Changed {
	readonly etag: string | null;
	readonly bytes: Uint8Array;
	readonly reading: PlanReading;
}

export type Fleet = ReturnType<typeof followFleet>;

export function followFleet(parts: FleetParts) {
	const { clock, log, random, stateWriter, warnings } = parts;
	let polling: AbortController | null = null;
	/** Address, choice and keys of the last poll. */
	let fetchKey = '';
	/** Of a plan that was refused: so that it is not sent again and again. */
	let refusedEtag: string | null = null;
	let hasBytes = false;
	/** Why the plan that was served last is not followed; `null` while it is. */
	let servedRefusal: Failure | null = null;
	let checkedAt: string | null = null;
	let stopped = false;
	let cancelPoll = () => {};

	const settings = () => parts.runtime().resolved.settings.fleet;

	/** A query opens a store or gets round a cache: it does not make another fleet. */
	function trust(): PlanTrust | null {
		const { planUrl, name, publicKeys } = settings();
		return planUrl === null ? null : { source: digestOf(withoutQuery(planUrl)), name, keys: publicKeys };
	}

	/** The plan that is kept. An agent of 0.1 has counted the query as a part of the address. */
	function kept(): PlanRecord | null {
		const { plan } = stateWriter.state;
		const own = trust();
		return plan && own && plan.source === digestOf(settings().planUrl ?? '') ? { ...plan, source: own.source } : plan;
	}

	function record(): PlanRecord | null {
		const own = trust();
		return own && recordFor(kept(), own);
	}

	function planned() {
		const { deviceId, serial, macAddress } = parts.identity.now;
		const { deviceType } = parts.runtime().resolved.settings;
		const { labels } = settings();
		return { deviceId: deviceId.value, serial: serial.value, macAddress: macAddress.value, deviceType, labels };
	}

	/** Without a name and a query as an agent of 0.1 has it: after an update nothing is fetched again. */
	function basis(): string {
		const { planUrl, name } = settings();
		const hasMore = name !== null || (planUrl !== null && withoutQuery(planUrl) !== planUrl);
		return hasMore ? digestOf(JSON.stringify([earlierBasis(), name, planUrl])) : earlierBasis();
	}

	const earlierBasis = () => digestOf(JSON.stringify([planned(), settings().publicKeys]));

	function pollIn(delayMs: number): void {
		cancelPoll();
		if (settings().planUrl !== null && !stopped) cancelPoll = clock.schedule(delayMs, () => void poll());
	}

	/** The newest poll alone counts: one that it has overtaken changes nothing, however it ends. */
	async function poll(): Promise<void> {
		const known = record();
		const { planUrl, intervalSeconds } = settings();
		if (!known || planUrl === null) return;
		polling?.abort();
		polling = new AbortController();
		const { signal } = polling;
		let askedMs = 0;
		try {
			const changed = await fetchChanged(known, new URL(planUrl), signal);
			if (signal.aborted) return;
			if (changed) receive(changed);
			// One that was refused is served still: nothing was confirmed.
			if (changed || refusedEtag === null) {
				servedRefusal = null;
				checkedAt = isoNow(clock);
			}
			warnings.set('fleet', servedRefusal);
		} catch (error) {
			if (signal.aborted) return;
			const problem = toFailure(error);
			askedMs = problem.retryAfterMs ?? 0;
			if (problem.code !== 'plan-unreachable') {
				if (problem.message !== servedRefusal?.message) parts.audit.record({ ...PLAN_RECEIVED, result: problem.code });
				servedRefusal = problem;
			}
			// A device that is offline has reported that already.
			if (problem.code !== 'plan-unreachable' || !parts.isOffline()) warnings.set('fleet', problem);
		}
		polling = null;
		// Devices that were told the same wait must not come back together.
		pollIn(Math.max(intervalSeconds * 1000 * (0.75 + 0.5 * random()), askedMs * (1 + 0.5 * random())));
		parts.onLook();
	}

	/** The published plan, verified; `null` while that is the plan which is known. */
	async function fetchChanged(known: PlanRecord, url: URL, signal: AbortSignal): Promise<Changed | null> {
		const { publicKeys } = settings();
		const isKnown = known.basis === basis() && (hasBytes || !parts.needsBytes());
		const etag = isKnown ? known.etag : null;
		const found = await parts.fetchPlan(parts.runtime().network, {
			url,
			etag: refusedEtag ?? etag,
			userAgent: parts.userAgent,
			deadlineMs: DEADLINE_MS,
			maxBytes: MAX_PLAN_BYTES,
			signal,
		});
		if (found.kind !== 'changed') return null;
		// A plan changes seldom; most devices follow none.
		const { readPlan } = await import('./verify-plan.runner.ts');
		const { etag: newEtag, bytes } = found;
		return { etag: newEtag, bytes, reading: readPlan(bytes, `The fleet plan of ${url.host}`, publicKeys) };
	}

	function receive({ etag, bytes, reading }: Changed): void {
		refusedEtag = etag;
		const known = record();
		const own = trust();
		if (!reading.ok) throw asError(reading);
		if (!known || !own) return;
		const { plan, digest, keys } = reading.read;
		checkFleet(plan.fleet, own);
		const chosenBy = basis();
		const { epoch = 0, revision, fleet = null, validUntil } = plan;
		const edition = { epoch, revision, digest };
		const verdict = checkRevision(known, edition, own);
		refusedEtag = null;
		hasBytes = true;
		parts.onPlan(plan, bytes);
		if (verdict === 'known' && known.basis === chosenBy && known.etag === etag) return;
		const { part } = planFor(compilePlan(plan), planned(), clock.wallMs());
		const at = { wallMs: clock.wallMs(), spreadSeconds: plan.spreadSeconds, fallback: parts.fallback() };
		const share = shareOfSpread(planned().deviceId);
		const validUntilMs = validUntil === undefined ? null : Date.parse(validUntil);
		const received = { ...part, ...edition, fleet, validUntilMs, keys: [...keys] };
		const { source, name } = own;
		const floors = raisedFloors(known, edition, own, keys);
		const trusted = [...own.keys];
		const changed = receivePlan({ ...known, source, name, trusted, floors, basis: chosenBy, etag }, received, {
			...at,
			share,
		});
		// A server that gives the same plan a new ETag each time must not wear the disk.
		const isOnlyRenamed = verdict === 'known' && known.basis === chosenBy;
		if (!isOnlyRenamed) {
			log.info('fleet plan received', { revision: plan.revision });
			parts.audit.record({ ...PLAN_RECEIVED, result: 'ok', ...(fleet && { fleet }), epoch, revision, keys: [...keys] });
		}
		if (!isOnlyRenamed || known.etag === null) keep(changed);
		honourWithdrawal();
		parts.requestReconcile();
	}

	/** A key that is not configured any more begins nothing. */
	function honourWithdrawal(): void {
		const [known, own] = [kept(), trust()];
		let warning: Failure | null = null;
		if (known && own && isOfFleet(known, own)) {
			const at = { isSameBasis: [basis(), earlierBasis()].includes(known.basis), wallMs: clock.wallMs() };
			const { trusted } = known;
			const isChanged = trusted !== null && JSON.stringify(trusted) !== JSON.stringify(own.keys);
			const kept = withoutWithdrawn(known, own, at);
			const left = isChanged ? { ...kept, trusted: [...own.keys] } : kept;
			if (isChanged) parts.audit.record({ ...PLAN_KEYS, keys: [...own.keys] });
			if (left !== known) keep(left);
			if (isWithdrawn(left, own.keys)) warning = failure('plan-unattested', UNATTESTED);
		}
		warnings.set('plan-key', warning);
	}

	function keep(plan: PlanRecord): void {
		stateWriter.keep((state) => ({ ...state, plan }));
	}

	return {
		/** The record of the plan that the settings name; `null` without one. */
		record,
		trust,
		/** The floors of all fleets and the plan that waits are gone; the one in force goes on until the next is fetched, at once. */
		async forget(): Promise<void> {
			const known = record();
			const plan = known && { ...known, basis: '', etag: null, waiting: null, floors: [] };
			await stateWriter.record((state) => ({ ...state, plan }));
			refusedEtag = null;
			pollIn(0);
			parts.requestReconcile();
		},
		/** What the plan says now; `null` without one. */
		target: (): PlanTarget | null => planTarget(record(), clock.wallMs()),
		keep,
		/** This device, as plans choose by it. */
		device: planned,
		/** When the plan was last fetched or confirmed, ISO 8601. */
		get checkedAt() {
			return checkedAt;
		},
		/** Why the plan that was served last is not followed, also while its server is away; `null` while it is. */
		get servedRefusal() {
			return servedRefusal;
		},
		/** The settings or the identity may have changed. */
		reevaluate() {
			// A pairing that was waited for ends after this.
			if (stopped) return;
			honourWithdrawal();
			const { planUrl, intervalSeconds } = settings();
			const now = planUrl === null ? '' : JSON.stringify([planUrl, basis(), intervalSeconds]);
			if (now === fetchKey && !polling) return;
			fetchKey = now;
			refusedEtag = null;
			// The network that it went through may be gone.
			polling?.abort();
			polling = null;
			cancelPoll();
			if (planUrl !== null) return pollIn(FIRST_POLL_MS * random());
			servedRefusal = null;
			warnings.set('fleet', null);
		},
		/** Polls now, and fetches a plan again that was refused. */
		retry() {
			refusedEtag = null;
			pollIn(0);
		},
		stop() {
			stopped = true;
			polling?.abort();
			cancelPoll();
		},
	};
}

function withoutQuery(planUrl: string): string {
	const [address = ''] = planUrl.split('?');
	return address;
}

function digestOf(text: string): string {
	return createHash('sha256').update(text).digest('hex').slice(0, 32);
}

function asError({ problems, faults }: PlanReading & { readonly ok: false }): AgentError {
	const [first = failure('plan-invalid', 'The fleet plan cannot be read.')] = problems;
	const more = faults > 1 ? ` (and ${faults - 1} more)` : '';
	return new AgentError(first.code, `${first.message}${more}`, first);
}
