/** The version that a fleet plan orders for a device, and whether it is carried out now. Pure: both the agent and root ask it. */
import { compareVersions, versionProblem } from '../base/debian-version.ts';
import { AgentError } from '../base/errors.ts';
import type { FleetPlan } from '../fleet/plan-format.ts';
import { compilePlan, type PlannedDevice, planFor } from '../fleet/targeting.ts';
import type { Status } from '../protocol/local-api.ts';
import { classOf } from './apt.ts';
import { isToBlame } from './judge.ts';
import { isGoingBack, type Outcomes, type Records } from './record.ts';

export interface Order {
	readonly version: string;
	/** From then on, milliseconds since 1970; `null`: at once. */
	readonly atMs: number | null;
}

/** The version that a plan orders now, else the next one; `null` for none. @param installed is there already, and not ordered again. By dpkg's rules: `0.3.0` and `0.3.0-1` differ. */
export function orderFor(plan: FleetPlan, device: PlannedDevice, wallMs: number, installed?: string): Order | null {
	const { words } = planFor(compilePlan(plan), device, wallMs);
	const word = words.find(({ what, to }) => what === 'version' && to !== null && !isSame(to, installed));
	return word?.to ? { version: word.to, atMs: word.atMs } : null;
}

const isSame = (one: string, other: string | undefined) => other !== undefined && compareVersions(one, other) === 0;

const DAY = 1440;
/** The part of a window in which devices begin one after the other; the rest is for those that were held. */
const SPREAD_PART = 0.75;

/** Milliseconds until the window is open; 0 while it is. A window may end on the next day. @param share of this device, 0 to 1: so much later it opens for it. */
export function untilWindowMs(window: string | null, now: Date, share = 0): number {
	const match = window === null ? null : /^(\d\d):(\d\d)-(\d\d):(\d\d)$/.exec(window);
	if (!match) return 0;
	const [fromHour = 0, fromMinute = 0, toHour = 0, toMinute = 0] = match.slice(1).map(Number);
	const [opens, to] = [fromHour * 60 + fromMinute, toHour * 60 + toMinute];
	// Equal times are the whole day: there is no opening to come all at once to.
	const from = opens === to ? opens : opens + Math.floor(((to - opens + DAY) % DAY) * SPREAD_PART * share * 60) / 60;
	const minute = now.getHours() * 60 + now.getMinutes() + now.getSeconds() / 60;
	// Counted from the own opening, over midnight.
	const isOpen = opens === to || (minute - from + 2 * DAY) % DAY < (to - from + 2 * DAY) % DAY;
	if (isOpen) return 0;
	return Math.round(((from - minute + 2 * DAY) % DAY) * 60) * 1000 - now.getMilliseconds();
}

export interface OrderFacts {
	readonly installed: string;
	readonly isEnabled: boolean;
	readonly window: string | null;
	readonly outcomes: Outcomes;
	/** The plan's place among all of its fleet. */
	readonly edition: { readonly epoch: number; readonly revision: number };
	readonly validUntil: string | undefined;
	readonly now: Date;
}

/** `null`: nothing to do, or not yet. @throws AgentError `update-refused` for an order that must never be carried out, even when it is signed. */
export function mayUpdate(order: Order | null, facts: OrderFacts): string | null {
	if (!facts.isEnabled || order === null || compareVersions(order.version, facts.installed) === 0) return null;
	if (order.atMs !== null && order.atMs > facts.now.getTime()) return null;
	if (untilWindowMs(facts.window, facts.now) > 0) return null;
	const refusal = whyRefused(order, facts);
	if (refusal !== null) throw new AgentError('update-refused', refusal);
	return order.version;
}

function whyRefused({ version }: Order, facts: OrderFacts): string | null {
	const { outcomes, edition, validUntil, now } = facts;
	const { plan, kept, takenBack } = outcomes;
	const problem = versionProblem(version);
	if (problem !== null) return `The version that the fleet plan orders ${problem}.`;
	if (plan && (edition.epoch < plan.epoch || (edition.epoch === plan.epoch && edition.revision < plan.revision)))
		return `The fleet plan is older than revision ${plan.revision}, by which this device was updated.`;
	if (validUntil !== undefined && Date.parse(validUntil) < now.getTime())
		return `The fleet plan was valid until ${validUntil}.`;
	const back = takenBack.find((one) => compareVersions(one.version, version) === 0);
	if (back) return `Version ${version} was taken back on ${back.at} (${back.fault}) and is not tried again.`;
	const newer = [facts.installed, ...(kept === null ? [] : [kept])].find((one) => compareVersions(version, one) < 0);
	return newer === undefined ? null : `Version ${version} is older than ${newer}, which this device has had.`;
}

export interface ReasonFacts extends Records {
	readonly isEnabled: boolean;
	/** Whether the package that carries it out is there. */
	readonly isInstalled: boolean;
	/** Of the package. */
	readonly version: string;
	/** Whether it is due but for the window. */
	readonly isOutside: boolean;
	readonly isHeld: boolean;
}

type Reason = NonNullable<NonNullable<Status['updates']>['reason']>;

/** Why an order is not carried out now, as a permanent word; `null` for none that is known. */
export function reasonOf({ version }: Order, facts: ReasonFacts): Reason | null {
	const { trial, outcomes } = facts;
	if (!facts.isInstalled) return 'not-installed';
	if (!facts.isEnabled) return 'disabled';
	if (trial && isSame(trial.to, version))
		return !isGoingBack(trial) ? 'trying' : isToBlame(trial.fault) ? 'taken-back' : 'service-away';
	if (outcomes.takenBack.some((one) => isSame(one.version, version))) return 'taken-back';
	const had = [facts.version, ...(outcomes.kept === null ? [] : [outcomes.kept])];
	if (had.some((one) => compareVersions(one, version) > 0)) return 'newer-than-ordered';
	const { failed } = outcomes;
	if (failed && (failed.version == null || isSame(failed.version, version))) return reasonOfFailure(failed);
	return facts.isOutside ? 'waiting-window' : facts.isHeld ? 'held-lease' : null;
}

function reasonOfFailure({ code, message }: NonNullable<Outcomes['failed']>): Reason {
	if (code === 'update-failed') return classOf(message);
	if (code === 'update-not-alone') return 'apt-not-alone';
	return code === 'service-unreachable' ? 'service-away' : 'refused';
}
