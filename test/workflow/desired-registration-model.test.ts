/**
 * What is desired, under random events, with the real supervisor: what must hold of every answer, whatever came before, and
 * that every wait ends. Links are carried out as the events say; time passes from one moment to ask again to the next.
 */
import { isDeepStrictEqual } from 'node:util';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { failure } from '../../src/base/errors.ts';
import { connectionOf, failureOf } from '../../src/connection/link.ts';
import {
	isSameLink,
	type Link,
	NOTHING_SUPERVISED,
	type SupervisorEvent,
	servesRegistration,
	supervise,
} from '../../src/connection/supervisor.ts';
import { NO_PLAN, planTarget } from '../../src/fleet/record.ts';
import { chooseIdentity } from '../../src/identity/identity.ts';
import { resolveSettings } from '../../src/settings/resolve.ts';
import { EMPTY_STATE, type SavedConnection, withConnection } from '../../src/state/device-state.ts';
import type { DevicePlan, PlanRecord } from '../../src/state/plan-record.ts';
import { type DesiredInputs, NO_PROGRESS } from '../../src/workflow/desired-inputs.ts';
import { type DesiredOutcome, desiredRegistration } from '../../src/workflow/desired-registration.ts';
import { currentLeases, holdLease, NO_LEASES, releaseLease } from '../../src/workflow/leases.ts';
import { isRescued } from '../../src/workflow/tries.ts';

const RUNS = 1200;
const WALL_MS = Date.UTC(2030, 0, 1);
const BASE_URLS = ['https://a.example', 'https://b.example'] as const;
const LIMIT_MS = 300_000;
const MAX_DEFER_SECONDS = 900;
const TRY_AGAIN_MS = 3_600_000;

type Action =
	| { do: 'set'; workflowId: string | null; baseUrl: string | null; cadence: number | null }
	| { do: 'assign'; workflowId: string | null }
	| { do: 'credential'; kind: 'none' | 'key' | 'provisioned' }
	| { do: 'clone'; cloned: boolean }
	| { do: 'plan'; part: DevicePlan; waitMs: number | null }
	| { do: 'forgetPlan' | 'unpair' }
	| { do: 'hold' | 'release'; seconds: number }
	| { do: 'pair'; workflowId: string }
	| { do: 'succeed'; which: 'current' | 'next' }
	| { do: 'fail'; which: 'current' | 'next'; code: 'workflow-unknown' | 'service-unreachable' }
	| { do: 'pass'; ms: number }
	/** Nothing happens until the answer says so. */
	| { do: 'wait' }
	/** The same, but a lease is taken a second before. */
	| { do: 'holdAtLast' };

interface World {
	inputs: DesiredInputs;
	outcome: DesiredOutcome;
	revision: number;
	/** Since when the lease rule has kept the device from this workflow. */
	deferred: { workflowId: string; sinceMs: number } | null;
	/** Until when a move that failed must not be tried. */
	refused: { key: string; untilMs: number } | null;
	reached: Set<string>;
}

function must(holds: unknown, rule: string): asserts holds {
	if (!holds) throw new Error(rule);
}

function settingsOf(workflowId: string | null, baseUrl: string | null, cadence: number | null) {
	const workflow = { maxDeferSeconds: MAX_DEFER_SECONDS };
	const set = {
		...(workflowId && { workflowId }),
		...(baseUrl && { baseUrl }),
		...(cadence && { heartbeatCadence: cadence }),
	};
	const document = { ...set, workflow, fleet: { changeLimitSeconds: LIMIT_MS / 1000 } };
	return resolveSettings([{ source: 'file', where: 'config.json', document }]);
}

const identity = chooseIdentity(
	{ serials: [], interfaces: [], machineIdHash: null, unreadable: [] },
	{ deviceId: 'KIOSK-1' },
	null,
	null,
);
if (identity.needsGeneratedId) throw new Error('The model needs a whole identity.');
const own = identity;

function newWorld(reached: Set<string>): World {
	const inputs: DesiredInputs = {
		resolved: settingsOf(null, null, null),
		state: EMPTY_STATE,
		identity: own,
		credentials: { id: '', isReusable: false, isProvisioned: false },
		plan: null,
		leases: NO_LEASES,
		supervision: NOTHING_SUPERVISED,
		before: NO_PROGRESS,
		nowMs: 0,
		wallMs: WALL_MS,
		random: () => 0.5,
	};
	const outcome = desiredRegistration(inputs);
	return { inputs, outcome, revision: 0, deferred: null, refused: null, reached };
}

/** Asks, checks the answer, and does with it what the agent does. */
function ask(world: World): void {
	const { inputs } = world;
	const outcome = desiredRegistration(freeze(inputs));
	must(isDeepStrictEqual(desiredRegistration(inputs), outcome), 'the same question has the same answer');
	check(world, outcome);
	world.outcome = outcome;
	change(world, { before: outcome.progress, plan: outcome.plan });
	checkEarlier(world);
	const { desired } = outcome;
	if (desired && outcome.adoptsProvisioned) {
		keepConnection(world, { ...desired, token: `provisioned ${desired.baseUrl}`, obtainedAt: '' });
		must(!desiredRegistration(world.inputs).adoptsProvisioned, 'a Connection is adopted once');
		world.reached.add('adopted');
	}
	if (JSON.stringify(desired) === JSON.stringify(inputs.supervision.desired)) return;
	const known = world.inputs.state.connections.map(({ token, ...registration }) => ({
		registration,
		connection: { token, obtainedAtMs: inputs.nowMs, lifeMs: null },
	}));
	step(world, { type: 'desiredChanged', desired, known, atMs: inputs.nowMs });
}

function change(world: World, changed: Partial<DesiredInputs>): void {
	world.inputs = { ...world.inputs, ...changed };
}

function keepConnection(world: World, { baseUrl, request, credentialId, token, obtainedAt }: SavedConnection): void {
	const saved = { baseUrl, request, credentialId, token, obtainedAt };
	change(world, { state: withConnection(world.inputs.state, saved) });
}

function step(world: World, event: SupervisorEvent): void {
	const { supervision, effects } = supervise(world.inputs.supervision, event, () => 0.5);
	change(world, { supervision });
	for (const effect of effects)
		if (effect.type === 'link' && effect.effect.type === 'keepConnection')
			keepConnection(world, { ...effect.registration, token: effect.effect.connection.token, obtainedAt: '' });
	ask(world);
}

function freeze<T>(value: T): T {
	if (value && typeof value === 'object' && !Object.isFrozen(value) && !(value instanceof Map)) {
		Object.freeze(value);
		for (const one of Object.values(value)) freeze(one);
	}
	return value;
}

/** The oracle: what the sources say, written down once more, and what an answer may differ from it in. */
function check(world: World, { desired, blocker, reevaluateAtMs, progress, plan }: DesiredOutcome): void {
	const { resolved, state, supervision, leases, credentials, nowMs, wallMs, identity: who } = world.inputs;
	const { current, next } = supervision;
	const live = current?.registration ?? null;
	const { settings, origins } = resolved;
	const target = planTarget(plan, wallMs);
	const baseUrl = settings.baseUrl ?? state.pairing?.baseUrl ?? state.connections[0]?.baseUrl ?? null;
	const kept = state.connections.find((saved) => saved.baseUrl === baseUrl)?.request;
	const isKept = settings.baseUrl === null && state.pairing === null && kept !== undefined;
	const chosen = settings.workflowId ?? target?.workflowId ?? state.assignedWorkflow?.workflowId;
	const workflowId = (isKept ? kept.workflowId : (chosen ?? kept?.workflowId)) ?? null;
	const isPaired = baseUrl !== null && (credentials.id !== '' || state.connections.length > 0);
	if (!isPaired || who.cloned || workflowId === null) {
		must(desired === null, 'without service, credential, own identity or workflow nothing is desired');
		must(!isPaired || blocker !== null, 'a paired device says what blocks it');
		world.reached.add(!isPaired ? 'unpaired' : who.cloned ? 'cloned' : 'no workflow');
	} else {
		must(desired !== null && blocker === null, 'a device that has everything desires a registration');
		const isHere = current?.state.name === 'online' && live?.baseUrl === desired.baseUrl;
		const rest = { ...live?.request, heartbeatCadence: desired.request.heartbeatCadence };
		const isRest = isHere && isDeepStrictEqual(desired.request, rest) && !isDeepStrictEqual(rest, live?.request);
		// A code that goes first may bring another cadence along.
		if (isRest && settings.baseUrl === baseUrl && desired.baseUrl !== baseUrl && !isRescued(supervision)) {
			must(
				desired.request.heartbeatCadence !== live?.request.heartbeatCadence,
				'what is for no other service is taken by this one',
			);
			must(progress.request !== JSON.stringify(desired.request), 'what was refused here is tried once');
			world.reached.add('another cadence before another service');
			return;
		}
		if (progress.way.name === 'refused' && live && settings.baseUrl === baseUrl && live.baseUrl !== baseUrl) {
			// A plan and a person who name a workflow mean the service that the device is at.
			const named = settings.workflowId === null ? chosen : undefined;
			const may = [live.request, { ...live.request, workflowId: named ?? live.request.workflowId }];
			const isAsItWas =
				desired.baseUrl === live.baseUrl && may.some((request) => isDeepStrictEqual(desired.request, request));
			must(isAsItWas, 'an address at which the device did not come online leaves it as it was');
			const isOwn = !desired.hasReusableCredential || desired.credentialId === live.credentialId;
			must(isOwn, 'a credential for another service is not sent to this one');
			[world.refused, world.deferred] = [null, null];
			world.reached.add('another service in vain');
			return;
		}
		if (next && live && live.baseUrl !== baseUrl && isRescued(supervision)) {
			must(isSameLink(next.registration, desired), 'a code of the service that the device is at goes first');
			world.reached.add('a code before another service');
			return;
		}
		must(desired.baseUrl === baseUrl, 'settings name the service before the pairing does');
		const cadence = isKept
			? kept.heartbeatCadence
			: origins.get('heartbeatCadence')?.source === 'default'
				? (target?.heartbeatCadence ?? settings.heartbeatCadence)
				: settings.heartbeatCadence;
		// What was begun is tried to its end, also where another move was refused before.
		const isUnderWay = next !== null && isDeepStrictEqual(next.registration.request, rest);
		const hasMoveFailed = next !== null && failureOf(next.state) !== null && progress.attempt.name !== 'refused';
		const isStill = isRest && live?.baseUrl === baseUrl && live.request.workflowId !== workflowId;
		if (isStill && (hasMoveFailed || isUnderWay) && progress.change?.untilMs == null) {
			must(desired.request.heartbeatCadence === cadence, 'what is no part of a failed workflow is taken without it');
			must(progress.request !== JSON.stringify(desired.request), 'and tried once');
			world.reached.add('another cadence before another workflow');
			return;
		}
		const isWorkflow = desired.request.workflowId === workflowId;
		const isLive =
			live?.baseUrl === baseUrl &&
			desired.request.workflowId === live.request.workflowId &&
			live.request.workflowId !== workflowId;
		const isNewKey =
			credentials.isReusable && desired.credentialId === credentials.id && progress.credential !== credentials.id;
		const isAsLive = live?.baseUrl === baseUrl && isDeepStrictEqual(desired.request, live.request);
		if (
			isNewKey &&
			isAsLive &&
			live.credentialId !== credentials.id &&
			!(isWorkflow && desired.request.heartbeatCadence === cadence)
		) {
			world.reached.add('a new key by itself');
			return;
		}
		const { attempt } = progress;
		const isRefused = attempt.name === 'refused';
		const waits = progress.change?.untilMs != null;
		must(isWorkflow || isLive, 'a lower source never overrides a higher one');
		must(isWorkflow || isRefused || waits, 'the device stays only for a lease or for a move that failed');
		must(!isRefused || !(isWorkflow && desired.request.heartbeatCadence === cadence), 'a failed move is not desired');
		must(
			isRefused || desired.request.heartbeatCadence === cadence,
			'the cadence is the one of the highest source that names one',
		);
		if (isRefused) {
			must(live?.baseUrl === baseUrl && target !== null, 'only a plan has failed moves, and never to another service');
			const isPlans = settings.workflowId === null && target.workflowId !== null;
			must(
				isPlans || live.request.workflowId === workflowId,
				'a workflow that the plan does not name is not held back',
			);
			must(desired.request.workflowId === live.request.workflowId, 'a failed move leaves the last good workflow');
			must(desired.request.heartbeatCadence === live.request.heartbeatCadence, 'and the last good cadence');
		}
		checkLease(world, waits ? workflowId : null);
		must(!waits || currentLeases(leases, nowMs).length > 0, 'only leases defer');
		must(!waits || next?.reason !== 'pairing', 'a pairing does not wait');
		const isPlansWorkflow = !isKept && settings.workflowId === null && target?.workflowId != null;
		const isMove = live?.baseUrl === baseUrl && live.request.workflowId !== workflowId && isPlansWorkflow;
		const key = JSON.stringify([target?.revision, workflowId, cadence]);
		checkRefusal(world, attempt, isWorkflow, isMove ? key : null);
		if (waits) world.reached.add('deferred');
		if (isRefused) world.reached.add(waits ? 'refused and deferred' : 'refused');
		if (attempt.name === 'trying' && attempt.tries > 0) world.reached.add('tried again');
	}
	must(reevaluateAtMs === null || reevaluateAtMs > nowMs, 'the moment to ask again lies ahead');
	if (plan?.followed !== world.inputs.plan?.followed && plan?.taken) {
		must(current?.state.name === 'online', 'a plan is followed by a device that is online');
		must(live?.request.workflowId === workflowId, 'and has the workflow that was demanded');
		world.reached.add('followed');
	}
	if (plan?.taken && world.inputs.plan?.waiting && !plan.waiting) world.reached.add('plan applied');
}

function checkLease(world: World, workflowId: string | null): void {
	const { nowMs } = world.inputs;
	if (workflowId === null) world.deferred = null;
	else if (world.deferred?.workflowId !== workflowId) world.deferred = { workflowId, sinceMs: nowMs };
	else must(nowMs < world.deferred.sinceMs + MAX_DEFER_SECONDS * 1000, 'a lease defers at most maxDeferSeconds');
}

/** A move that has failed is not made before its time, whatever leases come and go; then it is. */
function checkRefusal(
	world: World,
	attempt: DesiredOutcome['progress']['attempt'],
	isWorkflow: boolean,
	demandedKey: string | null,
): void {
	const { nowMs } = world.inputs;
	const { refused } = world;
	if (attempt.name === 'none') {
		const isForgotten = refused !== null && refused.key === demandedKey && nowMs < refused.untilMs;
		must(!isForgotten, 'no lease makes the device forget that a move has failed');
		world.refused = null;
		return;
	}
	// Another revision, or a setting that a person has changed, makes it another move: the device remembers one.
	if (refused !== null && refused.key !== attempt.key) world.refused = null;
	if (refused?.key === attempt.key && nowMs < refused.untilMs)
		must(attempt.name === 'refused', 'a move that failed is not tried before its time');
	if (attempt.name === 'trying') {
		must(isWorkflow, 'what is tried is desired');
		must(attempt.untilMs <= nowMs + LIMIT_MS, 'an attempt has its limit');
	} else if (refused?.key !== attempt.key || refused.untilMs < attempt.sinceMs) {
		must(attempt.untilMs - attempt.sinceMs >= TRY_AGAIN_MS, 'it is tried again seldom');
		world.refused = { key: attempt.key, untilMs: attempt.untilMs };
	}
}

/** Between an answer and its moment to ask again nothing changes; then the next moment is a later one. */
function checkEarlier({ inputs, outcome }: World): void {
	const { nowMs, wallMs, plan } = inputs;
	const { reevaluateAtMs } = outcome;
	const atMs = (ms: number) => desiredRegistration({ ...inputs, nowMs: ms, wallMs: wallMs + ms - nowMs });
	const untilMs = reevaluateAtMs ?? nowMs + 1e12;
	for (const ms of [nowMs, Math.floor((nowMs + untilMs) / 2), untilMs - 1])
		must(isDeepStrictEqual(atMs(ms), { ...outcome, plan }), 'asking earlier changes nothing');
	if (reevaluateAtMs === null) return;
	const then = atMs(reevaluateAtMs);
	must(then.reevaluateAtMs === null || then.reevaluateAtMs > reevaluateAtMs, 'no answer asks again at once for ever');
	must(!isDeepStrictEqual(then, outcome), 'something changes at the moment that an answer names');
}

function act(world: World, action: Action): void {
	const { inputs } = world;
	const { state, nowMs } = inputs;
	switch (action.do) {
		case 'set':
			change(world, { resolved: settingsOf(action.workflowId, action.baseUrl, action.cadence) });
			break;
		case 'assign': {
			const { workflowId } = action;
			const assignedWorkflow = workflowId === null ? null : { workflowId, source: 'workflow set' as const, at: '' };
			change(world, { state: { ...state, assignedWorkflow } });
			break;
		}
		case 'credential': {
			const { kind } = action;
			const id = kind === 'none' ? '' : kind;
			change(world, { credentials: { id, isReusable: kind === 'key', isProvisioned: kind === 'provisioned' } });
			break;
		}
		case 'clone':
			change(world, { identity: { ...own, cloned: action.cloned } });
			break;
		case 'plan':
			receive(world, action.part, action.waitMs);
			break;
		case 'forgetPlan':
			change(world, { plan: null });
			break;
		case 'unpair': {
			// Every link ends before anything else is desired.
			const nothing = { type: 'desiredChanged', desired: null, known: [], atMs: nowMs } as const;
			const { supervision } = supervise(inputs.supervision, nothing, () => 0.5);
			change(world, { state: EMPTY_STATE, supervision });
			break;
		}
		case 'hold':
			change(world, { leases: holdLease(inputs.leases, 'kiosk', action.seconds, nowMs) });
			break;
		case 'release':
			change(world, { leases: releaseLease(inputs.leases, 'kiosk') });
			break;
		case 'pair':
			pair(world, action.workflowId);
			return;
		case 'succeed':
		case 'fail':
			link(world, action);
			return;
		case 'pass':
			pass(world, action.ms);
			return;
		case 'wait':
			if (world.outcome.reevaluateAtMs !== null) pass(world, world.outcome.reevaluateAtMs - nowMs);
			return;
		case 'holdAtLast': {
			const untilMs = world.outcome.reevaluateAtMs;
			if (untilMs === null) return;
			pass(world, Math.max(0, untilMs - 1000 - nowMs));
			act(world, { do: 'hold', seconds: 60 });
			pass(world, 1000);
			return;
		}
	}
	ask(world);
}

/** Lets time pass as the agent's one timer does: it asks at each moment on the way. */
function pass(world: World, ms: number): void {
	const untilMs = world.inputs.nowMs + ms;
	for (;;) {
		const { nowMs, wallMs } = world.inputs;
		const nextMs = Math.min(untilMs, world.outcome.reevaluateAtMs ?? untilMs);
		change(world, { nowMs: nextMs, wallMs: wallMs + nextMs - nowMs });
		ask(world);
		if (nextMs === untilMs) return;
	}
}

function receive(world: World, part: DevicePlan, waitMs: number | null): void {
	world.revision += 1;
	const { plan, wallMs } = world.inputs;
	const record: PlanRecord = plan ?? { source: 'plan', basis: '', ...NO_PLAN };
	const its = { epoch: 0, fleet: null, validUntilMs: null, keys: [] };
	const taken = { ...part, ...its, revision: world.revision, digest: `${world.revision}` };
	const move = part.move && { ...part.move, atMs: part.move.atMs === null ? null : wallMs + part.move.atMs };
	change(world, {
		plan:
			waitMs === null
				? { ...record, taken: { ...taken, move }, waiting: null }
				: { ...record, waiting: { ...taken, move, atMs: wallMs + waitMs, spreadSeconds: 100_000 } },
	});
}

function pair(world: World, workflowId: string): void {
	const { state, resolved, nowMs, wallMs, plan } = world.inputs;
	const baseUrl = resolved.settings.baseUrl ?? BASE_URLS[0];
	const fixed = resolved.settings.workflowId ?? planTarget(plan, wallMs)?.workflowId;
	if ((fixed ?? workflowId) !== workflowId || world.inputs.identity.cloned) return;
	const pairing = { baseUrl, sessionId: null, pairedAt: '' };
	const assignedWorkflow = { workflowId, source: 'pairing' as const, at: '' };
	const paired = { ...state, pairing, assignedWorkflow };
	const token = `paired ${nowMs}`;
	change(world, {
		state: {
			...paired,
			connections: [{ baseUrl, request: { deviceId: '', workflowId: '' }, credentialId: '', token, obtainedAt: '' }],
		},
	});
	// Not a start: what the device was online with last holds nothing back.
	const supervision = { ...NOTHING_SUPERVISED, lastGeneration: 1 };
	const { desired } = desiredRegistration({ ...world.inputs, supervision });
	must(desired, 'a paired device desires a registration');
	change(world, { state: paired });
	keepConnection(world, { ...desired, token, obtainedAt: '' });
	step(world, { type: 'paired', desired, connection: { token, obtainedAtMs: nowMs, lifeMs: null }, atMs: nowMs });
}

/** What a link waits for happens. */
function link(world: World, action: Extract<Action, { do: 'succeed' | 'fail' }>): void {
	const { nowMs: atMs, supervision } = world.inputs;
	const found = supervision[action.which];
	if (!found || found.state.name === 'closed') return;
	const { generation, state } = found;
	const { attempt } = state;
	if (state.name === 'registering' || state.name === 'connecting' || state.name === 'online') {
		if (action.do === 'fail') {
			const ended = { attempt, failure: failure(action.code, 'It failed.'), timedOut: false, atMs };
			const type = state.name === 'registering' ? 'registerFailed' : 'channelEnded';
			step(world, { type: 'link', generation, event: { type, ...ended, closeCode: null } });
		} else if (state.name === 'registering') {
			const connection = { token: `made ${generation} ${attempt}`, obtainedAtMs: atMs, lifeMs: null };
			step(world, { type: 'link', generation, event: { type: 'registered', attempt, atMs, connection } });
		} else step(world, { type: 'link', generation, event: { type: 'channelConfirmed', attempt, atMs } });
	} else fire(world, found);
	const { current } = world.inputs.supervision;
	if (current?.state.name === 'online' && connectionOf(current.state)) world.reached.add('online');
}

/** The timer of a link that waits fires when its time has come. */
function fire(world: World, { generation, state }: Link): void {
	const { nowMs } = world.inputs;
	if ('untilMs' in state) pass(world, Math.max(0, Math.ceil(state.untilMs - nowMs)));
	const event = { type: 'timerFired', attempt: state.attempt, atMs: world.inputs.nowMs } as const;
	step(world, { type: 'link', generation, event });
}

/** From now on the device has what it needs and everything succeeds: what is demanded comes about, after at most a few waits. */
function settle(world: World): void {
	act(world, { do: 'credential', kind: 'key' });
	act(world, { do: 'clone', cloned: false });
	for (let turn = 0; turn < 40; turn += 1) {
		const { current, next } = world.inputs.supervision;
		const { desired, progress } = world.outcome;
		if (!desired) {
			must(!current && !next, 'where nothing is desired there is no link');
			return;
		}
		const isThere = current?.state.name === 'online' && servesRegistration(current.registration, desired);
		if (isThere && !next && progress.attempt.name === 'none' && !progress.change) return;
		const before = world.inputs.supervision;
		act(world, { do: 'succeed', which: next ? 'next' : 'current' });
		if (world.inputs.supervision === before || isThere) act(world, { do: 'wait' });
	}
	throw new Error('every wait ends');
}

const workflow = fc.constantFrom('w1', 'w2', 'w3');
const cadence = fc.constantFrom(20, 60);
const assignment = fc.record({ workflowId: fc.option(workflow), heartbeatCadence: fc.option(cadence, { freq: 2 }) });
const moment = fc.constantFrom(1000, 60_000, 3_600_000);
const part: fc.Arbitrary<DevicePlan> = fc.record({
	rule: fc.constant(null),
	base: assignment,
	move: fc.option(fc.record({ to: assignment, percent: fc.constant(50), atMs: fc.option(moment) })),
});
const which = fc.constantFrom('current' as const, 'next' as const, 'next' as const);
const action: fc.Arbitrary<Action> = fc.oneof(
	{
		weight: 2,
		arbitrary: fc.record({
			do: fc.constant('set' as const),
			workflowId: fc.option(workflow, { freq: 2 }),
			baseUrl: fc.option(fc.constantFrom(...BASE_URLS)),
			cadence: fc.option(cadence, { freq: 2 }),
		}),
	},
	{ weight: 2, arbitrary: fc.record({ do: fc.constant('assign' as const), workflowId: fc.option(workflow) }) },
	{
		weight: 1,
		arbitrary: fc.record({
			do: fc.constant('credential' as const),
			kind: fc.constantFrom('none' as const, 'key' as const, 'provisioned' as const),
		}),
	},
	{ weight: 1, arbitrary: fc.record({ do: fc.constant('clone' as const), cloned: fc.boolean() }) },
	{ weight: 3, arbitrary: fc.record({ do: fc.constant('plan' as const), part, waitMs: fc.option(moment) }) },
	{ weight: 1, arbitrary: fc.record({ do: fc.constantFrom('forgetPlan' as const, 'unpair' as const) }) },
	{ weight: 3, arbitrary: fc.record({ do: fc.constant('hold' as const), seconds: fc.constantFrom(1, 60, 3600) }) },
	{ weight: 1, arbitrary: fc.record({ do: fc.constant('release' as const), seconds: fc.constant(0) }) },
	{ weight: 2, arbitrary: fc.record({ do: fc.constant('pair' as const), workflowId: workflow }) },
	{ weight: 8, arbitrary: fc.record({ do: fc.constant('succeed' as const), which }) },
	{
		weight: 4,
		arbitrary: fc.record({
			do: fc.constant('fail' as const),
			which,
			code: fc.constantFrom('workflow-unknown' as const, 'service-unreachable' as const),
		}),
	},
	{ weight: 3, arbitrary: fc.record({ do: fc.constant('pass' as const), ms: fc.nat({ max: 1_000_000 }) }) },
	{ weight: 5, arbitrary: fc.record({ do: fc.constantFrom('wait' as const, 'wait' as const, 'holdAtLast' as const) }) },
);

/** A provisioned file was adopted again at each question while the settings named no service: seed -366370910. */
const KEPT_BESIDE_PROVISIONED: Action[] = [
	{ do: 'set', workflowId: null, baseUrl: 'https://a.example', cadence: null },
	{ do: 'unpair' },
	{
		do: 'plan',
		part: {
			rule: null,
			base: { workflowId: null, heartbeatCadence: null },
			move: { to: { workflowId: 'w1', heartbeatCadence: null }, percent: 50, atMs: null },
		},
		waitMs: null,
	},
	{ do: 'succeed', which: 'current' },
	{ do: 'set', workflowId: null, baseUrl: null, cadence: null },
	{ do: 'credential', kind: 'provisioned' },
];

/** Another cadence, refused here before, is tried on the way to another service that is then not wanted: seed 1936612671. */
const REST_UNDER_WAY: Action[] = [
	{
		do: 'plan',
		part: {
			rule: null,
			base: { workflowId: null, heartbeatCadence: null },
			move: { to: { workflowId: null, heartbeatCadence: 20 }, percent: 50, atMs: null },
		},
		waitMs: null,
	},
	{ do: 'succeed', which: 'current' },
	{ do: 'set', workflowId: 'w1', baseUrl: null, cadence: null },
	{ do: 'wait' },
	{ do: 'assign', workflowId: 'w3' },
	{ do: 'set', workflowId: null, baseUrl: 'https://b.example', cadence: null },
	{ do: 'set', workflowId: null, baseUrl: null, cadence: null },
];

test('whatever happens, every answer obeys the rules, nothing changes before its moment, and every wait ends', () => {
	const reached = new Set<string>();
	let runs = 0;
	fc.assert(
		fc.property(fc.array(action, { maxLength: 40, size: 'max' }), (actions) => {
			const world = newWorld(reached);
			act(world, { do: 'credential', kind: 'key' });
			act(world, { do: 'pair', workflowId: 'w1' });
			for (const one of actions) act(world, one);
			settle(world);
			runs += 1;
		}),
		{ numRuns: RUNS, examples: [[KEPT_BESIDE_PROVISIONED], [REST_UNDER_WAY]] },
	);
	// A situation that was never reached was never tested; a busy machine ends sooner and reaches fewer.
	if (runs < RUNS) return;
	expect([...reached].sort()).toEqual(
		[
			'a new key by itself',
			'unpaired',
			'cloned',
			'no workflow',
			'deferred',
			'refused',
			'refused and deferred',
			'tried again',
			'followed',
			'plan applied',
			'online',
			'adopted',
			'another service in vain',
			'a code before another service',
			'another cadence before another service',
			'another cadence before another workflow',
		].sort(),
	);
});

test('a new key goes first, also where another change has failed before it came', () => {
	const world = newWorld(new Set());
	act(world, { do: 'pair', workflowId: 'w1' });
	for (const which of ['current', 'current', 'next', 'next'] as const) act(world, { do: 'succeed', which });
	act(world, { do: 'set', workflowId: 'w2', baseUrl: null, cadence: null });
	act(world, { do: 'fail', which: 'next', code: 'workflow-unknown' });
	act(world, { do: 'credential', kind: 'key' });
	expect(world.outcome.desired).toMatchObject({ credentialId: 'key', request: { workflowId: 'w1' } });
	expect(world.outcome.progress.credential).toBe('');
});
