/**
 * Keeps the links at the desired registration: asks `workflow/desired-registration.ts` whenever an input changes, after every
 * step of the supervision and when the answer says so, and hands on what has changed. Owns the one timer for that.
 */
import { isoNow } from '../base/clock.edge.ts';
import { type Failure, failure } from '../base/errors.ts';
import { joinSentences } from '../base/sentences.ts';
import type { Connections } from '../connection/connection-tokens.runner.ts';
import { failureOf } from '../connection/link.ts';
import { namesKey, tellRefused } from '../connection/refused-credential.ts';
import { differences } from '../connection/way.ts';
import { NO_ATTEMPT, wayRefused } from '../fleet/attempt.ts';
import type { Fleet } from '../fleet/follow-plan.runner.ts';
import { endedTrust } from '../fleet/record.ts';
import type { CompleteIdentity } from '../identity/identity.ts';
import { withRefusedWay } from '../state/device-state.ts';
import { type DesiredInputs, NO_PROGRESS, type Progress, type RegistrationInputs } from '../workflow/desired-inputs.ts';
import { type DesiredOutcome, desiredRegistration } from '../workflow/desired-registration.ts';
import type { WorkflowLeases } from '../workflow/leases.runner.ts';
import { addressKey } from '../workflow/tries.ts';
import type { Base } from './base.runner.ts';
import type { Links } from './links.runner.ts';

const NEW_CODE =
	'A code pairs a device with one address only: use a code of the new address (idv-agent pair --replace), or set an API key for it.';

export type Reconciler = ReturnType<typeof keepReconciled>;

export function keepReconciled(
	parts: Base & {
		readonly connections: Connections;
		readonly leases: Pick<WorkflowLeases, 'held' | 'waiting' | 'waits'>;
		readonly fleet: Pick<Fleet, 'record' | 'keep' | 'target'>;
		readonly links: Pick<Links, 'supervision' | 'desire' | 'toldOfNext'>;
	},
) {
	const { clock, connections, fleet, links, stateWriter } = parts;
	/** Why nothing can be desired. */
	let blocker: Failure | null = null;
	const { waiting } = parts.leases;
	let progress: Progress = { ...NO_PROGRESS, change: waiting && { ...waiting, untilMs: null } };
	let stopped = false;
	let cancel = () => {};

	function inputs(as = parts.identity.now): Omit<RegistrationInputs, 'plan'> {
		const { resolved, credentials } = parts.runtime();
		const { id, reusable, provisioned, unreadable } = credentials;
		const facts = { id, isReusable: reusable !== null, isProvisioned: provisioned !== null, unreadable };
		const way = stateWriter.state.lastWay ? parts.runtime().way?.id : undefined;
		return { resolved, state: stateWriter.state, identity: as, credentials: facts, way };
	}

	/** Asks, and keeps all of the answer but the desired registration. */
	function evaluate(): DesiredOutcome {
		const own = inputs();
		const asked: DesiredInputs = {
			...own,
			way: wantedWay(),
			plan: fleet.record(),
			leases: parts.leases.held,
			supervision: links.supervision,
			before: progress,
			nowMs: clock.monotonicMs(),
			wallMs: parts.time.nowMs(),
			random: parts.random,
		};
		const outcome = desiredRegistration(asked);
		blocker = outcome.blocker;
		progress = outcome.progress;
		parts.leases.waits(progress.change);
		keepPlan(asked, outcome);
		const { attempt } = progress;
		cancel();
		const { reevaluateAtMs } = outcome;
		if (reevaluateAtMs !== null) cancel = clock.schedule(reevaluateAtMs - asked.nowMs, reconcile);
		dropUnnamed(outcome.missing);
		parts.warnings.set('credential', refusedBesideAnother());
		parts.warnings.set('settings-missing', outcome.missing);
		parts.warnings.set('plan-validity', outcome.plan && endedTrust(outcome.plan, asked.wallMs));
		keepRefusedWay();
		parts.warnings.set('way', toldWay());
		parts.warnings.set('next-connection', links.toldOfNext());
		parts.warnings.set('plan', attempt.name === 'refused' ? attempt.failure : null);
		return outcome;
	}

	/** A key that a person has taken out of the settings does not come back with another one. @param missing of a file that has vanished. */
	function dropUnnamed(missing: Failure | null): void {
		if (missing !== null || namesKey(parts.runtime().resolved.settings)) return;
		stateWriter.keep((state) => (state.workedCredential === null ? state : { ...state, workedCredential: null }));
	}

	/** Where none works, the link says so itself. */
	function refusedBesideAnother(): Failure | null {
		const { resolved, credentials } = parts.runtime();
		const state = links.supervision.current?.state;
		const isProblem = state && failureOf(state)?.code === 'credential-refused';
		return isProblem ? null : tellRefused(stateWriter.state, resolved.settings, credentials.id);
	}

	/** By its id. */
	function wantedWay(): string | undefined {
		return stateWriter.state.lastWay ? parts.ways.wanted().way?.id : undefined;
	}

	/** Of the service that the device is, or was, online at. */
	function addressInForce(): string | null {
		const [online] = stateWriter.state.connections;
		return links.supervision.current?.registration.baseUrl ?? (online?.worked ? online.baseUrl : null);
	}

	/** The address of the settings, where another one is in force. */
	function otherAddress(): string | null {
		const { baseUrl } = parts.runtime().resolved.settings;
		return baseUrl !== (addressInForce() ?? baseUrl) ? baseUrl : null;
	}

	/** A credential that is set for the service of another address is not sent to the one in force: nothing is known of it there. */
	function otherCredential(): string[] {
		const { id } = parts.runtime().credentials;
		const inForce = links.supervision.current?.registration ?? stateWriter.state.connections[0];
		return id !== '' && inForce && id !== inForce.credentialId ? ['credential'] : [];
	}

	/** What became of it: the service of the other address may have refused it. */
	function ofOtherCredential(problem: unknown, address: string): string {
		const { host } = new URL(address);
		return problem === 'credential-refused'
			? `${host} has refused the credential itself`
			: `The credential was not refused: it waits for ${host}, the only service that it is sent to`;
	}

	/** Names what leads to the service by the settings and is not in force. */
	function triedKey(): string | null {
		if (otherAddress() === null) return parts.ways.tried()?.way?.id ?? null;
		return addressKey({ ...parts.runtime(), way: wantedWay() });
	}

	/** Since when it is so outlives a restart and the tries of every hour. */
	function keepRefusedWay(): void {
		const { way } = progress;
		const refused = way.name === 'refused' && !way.isTurn ? way.key : null;
		const tried = triedKey();
		const at = isoNow({ wallMs: () => parts.time.best().ms });
		stateWriter.keep((state) => withRefusedWay(state, { refused, tried }, at));
	}

	/** Without a key, another address has nothing to register with there: its settings are right. */
	function toldWay(): Failure | null {
		const told = triedWay();
		const isByCode = told?.params?.['problem'] === 'unpaired' && otherAddress() !== null;
		return told && isByCode ? { ...told, remedy: NEW_CODE } : told;
	}

	/** The settings that are tried, as soon as that has failed once, or were refused, be it before this start. */
	function triedWay(): Failure | null {
		const [tried, { way }] = [parts.ways.tried()?.way, progress];
		const { way: now, resolved } = parts.runtime();
		const [key, address] = [triedKey(), otherAddress()];
		const others = tried && now ? differences(now, tried) : [];
		const changed = [...(address === null ? [] : ['baseUrl', ...otherCredential()]), ...others].join(', ');
		const { next } = links.supervision;
		const isTried =
			next?.registration.way === wantedWay() && (address ?? next?.registration.baseUrl) === next?.registration.baseUrl;
		const cause = next && isTried ? failureOf(next.state) : null;
		const { refusedWay: refused } = stateWriter.state;
		if (key !== null && refused?.id === key) {
			const limitMs = resolved.settings.fleet.changeLimitSeconds * 1000;
			const why = way.name === 'refused' ? way.failure : wayRefused(cause, limitMs);
			const { at: since } = refused;
			const credential = changed.includes('credential')
				? [ofOtherCredential(why.params?.['problem'], `${address}`)]
				: [];
			const message = joinSentences(`${changed}: ${why.message}`, ...credential, `It has been so since ${since}`);
			return { ...why, message, params: { ...why.params, changed, since } };
		}
		if (way.name === 'refused' && way.isTurn) {
			const { message, params } = way.failure;
			return { ...way.failure, message: `${changed}: ${message}`, params: { ...params, changed } };
		}
		if (way.name === 'none' || !cause) return null;
		const message = `${changed}: the changed settings are tried beside those from before, which are in force until the device is online with them. ${cause.message}`;
		const params = { changed, problem: cause.code };
		// It has answered to the changed settings: what is wrong is on its side.
		const isServices = cause.code === 'service-failed' || cause.code === 'service-overloaded';
		const remedy = `${cause.remedy} The changed settings are tried until then.`;
		return failure('settings-not-followed', message, isServices ? { params, remedy } : { params });
	}

	function keepPlan({ plan: before, supervision }: DesiredInputs, { plan }: DesiredOutcome): void {
		if (!plan || plan === before) return;
		fleet.keep(plan);
		if (plan.followed === before?.followed) return;
		const workflowId = supervision.current?.registration.request.workflowId;
		parts.log.info('fleet plan followed', { revision: plan.followed, workflowId });
	}

	function reconcile(): void {
		if (!stopped) apply(evaluate());
	}

	function apply({ desired, adoptsProvisioned }: DesiredOutcome): void {
		if (desired && adoptsProvisioned) connections.adopt(desired);
		links.desire(desired);
	}

	function forgive(): boolean {
		if (progress.attempt.name !== 'refused' && progress.way.name !== 'refused') return false;
		progress = { ...progress, attempt: NO_ATTEMPT, way: NO_ATTEMPT };
		return true;
	}

	return {
		/** The inputs of the decision, but for leases and progress. @param as the identity to decide for; default the device's own. */
		inputs: (as?: CompleteIdentity): RegistrationInputs => ({ ...inputs(as), plan: fleet.target() }),
		reconcile,
		addressInForce,
		/** The supervision has made a step: hands on only what that changes. */
		follow() {
			if (stopped) return;
			const outcome = evaluate();
			if (JSON.stringify(outcome.desired) !== JSON.stringify(links.supervision.desired)) apply(outcome);
		},
		/** What the plan says counts as not tried yet. @returns whether it had failed. */
		forgive,
		/** Tries again what the plan says, if it has failed. */
		retry() {
			if (forgive()) reconcile();
		},
		get blocker() {
			return blocker;
		},
		get progress() {
			return progress;
		},
		stop() {
			stopped = true;
			cancel();
		},
	};
}
