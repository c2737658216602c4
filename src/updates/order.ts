/** The version that a fleet plan orders for a device, and whether it is carried out now. Pure: both the agent and root ask it. */
import { compareVersions, versionProblem } from '../base/debian-version.ts';
import { AgentError } from '../base/errors.ts';
import type { FleetPlan } from '../fleet/plan-format.ts';
import { compilePlan, type PlannedDevice, planFor } from '../fleet/targeting.ts';
import type { Outcomes } from './record.ts';

export interface Order {
	readonly version: string;
	/** From then on, milliseconds since 1970; `null`: at once. */
	readonly atMs: number | null;
}

/** The version that a plan orders now, else the next one; `null` for none. @param installed is there already, and not ordered again. */
export function orderFor(plan: FleetPlan, device: PlannedDevice, wallMs: number, installed?: string): Order | null {
	const { words } = planFor(compilePlan(plan), device, wallMs);
	const word = words.find(({ what, to }) => what === 'version' && to !== installed);
	return word?.to ? { version: word.to, atMs: word.atMs } : null;
}

/** Milliseconds until the window is open; 0 while it is. A window may end on the next day. */
export function untilWindowMs(window: string | null, now: Date): number {
	const match = window === null ? null : /^(\d\d):(\d\d)-(\d\d):(\d\d)$/.exec(window);
	if (!match) return 0;
	const [fromHour = 0, fromMinute = 0, toHour = 0, toMinute = 0] = match.slice(1).map(Number);
	const [from, to] = [fromHour * 60 + fromMinute, toHour * 60 + toMinute];
	const minute = now.getHours() * 60 + now.getMinutes();
	// Equal times are the whole day.
	const isOpen = from < to ? minute >= from && minute < to : minute >= from || minute < to;
	if (isOpen) return 0;
	const seconds = ((from - minute + 1440) % 1440) * 60 - now.getSeconds();
	return seconds * 1000 - now.getMilliseconds();
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
