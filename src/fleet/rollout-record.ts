/** The record of a rollout, beside its plan: what was signed and when, and what was seen since. Pure; other versions read it, so fields are only added. */
import * as z from 'zod';
import { isObject, parseJson } from '../protocol/json.ts';
import type { FleetPlan, PlanRollout } from './plan-format.ts';
import type { MoveGroup } from './preview.ts';
import type { DeviceStanding, FleetProgress } from './progress.ts';
import { comparePlans } from './record.ts';
import { hasBegun, overruledBy, rolloutPercentile } from './targeting.ts';

const FORMAT = 'idv-fleet-record/1';
/** Signings that are kept; the oldest go. */
const MAX_SIGNED = 100;

/** Of the parts that all signings have changed: a record with more could not be read. The oldest go. */
const MAX_BEFORE = 4 * 1024 * 1024;

const signingSchema = z.looseObject({
	fleet: z.string().optional(),
	epoch: z.int(),
	revision: z.int(),
	/** SHA-256 of the plan's bytes, and of the plan that it replaces. */
	digest: z.string(),
	previous: z.string().nullable(),
	/** ISO 8601. */
	at: z.string(),
	/** The rings of each part that order a version: of the defaults under an empty name. */
	rings: z.record(
		z.string(),
		z.array(
			z.looseObject({ percent: z.number(), startAt: z.string().optional(), agent: z.object({ version: z.string() }) }),
		),
	),
	/** The other rings, where they were recorded. */
	plainRings: z
		.record(z.string(), z.array(z.looseObject({ percent: z.number(), startAt: z.string().optional() })))
		.optional(),
	moves: z.array(z.unknown()),
	/** The command that has held the fleet back with it, also one that only a later version has; left out where it goes forward. */
	brake: z.string().optional(),
	/** The parts that it has changed: each in JSON as it was before, `null` for one that was not there; and the order of the rules, where that was another one. */
	before: z
		.record(
			z.string(),
			z
				.string()
				.refine((text) => isObject(parseJson(text)))
				.nullable(),
		)
		.optional(),
	order: z.array(z.string()).optional(),
	/** Of a step back: of each part that went back, the digest of the signing that was taken back; empty where the record did not know it. */
	back: z.record(z.string(), z.string()).optional(),
	/** The parts in which no ring begins until a person says so, each with since when; of the defaults under an empty name. */
	paused: z.record(z.string(), z.string()).optional(),
	/** Whether its command did not see the plan published: it was killed, or the store failed. Left out as soon as that was seen. */
	isUnconfirmed: z.boolean().optional(),
	/** The digest of the signing that it follows: of the plan that it replaces, else the newest that was seen published; `null` for none. Earlier versions left it out. */
	after: z.string().nullable().optional(),
	/** Signatures of its {@link sealedWords} and its pauses in base64, by keys that have signed the plan. */
	seals: z.array(z.string()).optional(),
});
export type Signing = z.infer<typeof signingSchema>;
/** What a command says of its own signing. */
export type Held = Pick<Signing, 'brake' | 'paused' | 'before' | 'order' | 'back' | 'isUnconfirmed'>;

const recordSchema = z.looseObject({
	format: z.literal(FORMAT),
	/** Oldest first. */
	signed: z.array(signingSchema),
	seen: z
		.looseObject({
			at: z.string(),
			revision: z.int(),
			counts: z.record(z.string(), z.number()),
			/** All that devices were ever seen with. */
			workflows: z.array(z.string()),
			versions: z.array(z.string()),
		})
		.nullable(),
});
export type RolloutRecord = z.infer<typeof recordSchema>;

type KnownPlan = { readonly plan: FleetPlan; readonly digest: string };

export const NO_RECORD: RolloutRecord = { format: FORMAT, signed: [], seen: null };

/** `null` for any other text. */
export const readRecord = (text: string): RolloutRecord | null => recordSchema.safeParse(parseJson(text)).data ?? null;

/** The plan's name with `.record` in it: `published.json` has `published.record.json`, also in an address. */
export const recordPlaceOf = (plan: string) => plan.replace(/(\.json)?(\?.*)?$/, '.record.json$2');

/** Signs words with each key at hand. A key always signs the same words alike, so it knows its own seals by that. */
export type Seal = (words: string) => readonly string[];

/** All that a way back signs again, and after what: others may write where the record lies. */
export const sealedWords = ({ digest, previous, rings, plainRings, before, order, back, ...more }: Signing): string => {
	const words = [digest, previous, rings, plainRings, before, order, back];
	if (more.after === undefined) return `idv-fleet-record-entry/1\n${JSON.stringify(words)}`;
	return `idv-fleet-record-entry/2\n${JSON.stringify([...words, more.brake, more.after])}`;
};

/** Apart from the others: a pause may be noted later, without a key. */
const pauseWords = ({ digest, paused }: Signing): string =>
	`idv-fleet-record-pause/1\n${JSON.stringify([digest, paused])}`;

const isSealedBy = (seal: Seal, words: string, { seals }: Signing) => seal(words).some((own) => seals?.includes(own));

/** Whether one of the keys has sealed what the record says of pauses in a plan that it knows; of an earlier version, which sealed no pauses, the signing. */
export const hasSealedPauses = ({ signed }: RolloutRecord, digest: string, seal: Seal): boolean =>
	signed
		.filter((one) => one.digest === digest)
		.every((one) => isSealedBy(seal, one.after === undefined ? sealedWords(one) : pauseWords(one), one));

/** The first signing that follows one which does not stand before it, or that stands there twice: signings were taken out or exchanged. The oldest of a long record went as it grew. */
export function gapIn({ signed }: RolloutRecord): Signing | undefined {
	// Several may follow one that has gone: those before the last of them were never published.
	const earlier = new Set([null, signed.length < MAX_SIGNED / 2 ? null : (signed[0]?.after ?? null)]);
	return signed.find(({ digest, after }) => {
		const isGap = after !== undefined && (earlier.has(digest) || !earlier.has(after));
		earlier.add(digest);
		return isGap;
	});
}

/** The record in which an entry that none of the keys has sealed says nothing of a way back. */
export function sealedOnly(record: RolloutRecord, seal: Seal): RolloutRecord {
	const nothing = { rings: {}, plainRings: undefined, before: undefined, order: undefined, back: undefined };
	const isSealed = (one: Signing) => isSealedBy(seal, sealedWords(one), one);
	return { ...record, signed: record.signed.map((one) => (isSealed(one) ? one : { ...one, ...nothing })) };
}

interface NewSigning extends Held {
	/** The plan that it replaces; `null` for none. */
	readonly previous: string | null;
	readonly at: string;
	readonly moves: readonly MoveGroup[];
	readonly seal: Seal;
}

export function withSigning(
	record: RolloutRecord,
	{ plan, digest }: KnownPlan,
	{ previous, at, moves, seal, ...held }: NewSigning,
): RolloutRecord {
	const { fleet, epoch = 0, revision } = plan;
	const others = record.signed.filter((one) => one.digest !== digest);
	// One more signature changes nothing: what the plan itself has changed, and holds back, is known from its first.
	const known = record.signed.find((one) => one.digest === digest);
	const first = previous === digest ? known : undefined;
	const { before, order, back, brake, paused } = first ?? held;
	const follows = others.findLast((one) => one.digest === previous) ?? others.findLast((one) => !one.isUnconfirmed);
	// A step that follows it, such as one that was killed, stays behind it.
	const place = others.findIndex((one) => one.after === digest);
	const after = known && (first || place >= 0) ? known.after : (follows?.digest ?? null);
	const plain = { fleet, epoch, revision, digest, previous: first ? first.previous : previous, at };
	const rings = { rings: ringsOf(plan, withVersion), plainRings: ringsOf(plan, (ring) => (ring.agent ? [] : [ring])) };
	// As it will be read, whatever the order of its names.
	const own = { ...held, before, order, back, brake, paused, after };
	const signing = signingSchema.parse({ ...plain, ...rings, moves: [...moves], ...own });
	const words = sealedWords(signing);
	const kept = known && sealedWords(known) === words ? (known.seals ?? []) : [];
	// Words from the record may have been edited there: one more signature keeps their seals, and adds none.
	const seals = [...new Set([...kept, ...(first ? [] : [words, pauseWords(signing)].flatMap(seal))])];
	const signed = others.toSpliced(place < 0 ? others.length : place, 0, { ...signing, seals });
	return { ...record, signed: bounded(signed.slice(-MAX_SIGNED)) };
}

/** Without the parts that the oldest have changed, where these are too much. */
function bounded(signed: readonly Signing[]): Signing[] {
	let left = MAX_BEFORE;
	const kept = signed.toReversed().map(({ before, ...one }) => {
		left -= before ? JSON.stringify(before).length : 0;
		return left < 0 || !before ? one : { ...one, before };
	});
	return kept.reverse();
}

/** The newest of what was signed in this plan's place, where that is not older than it; `undefined` where devices can have none of that kind. */
export function signedSince({ signed }: RolloutRecord, { plan, digest }: KnownPlan): Signing | undefined {
	const others = signed.filter((one) => one.digest !== digest && comparePlans(one, plan) >= 0);
	return others.toSorted(comparePlans).at(-1);
}

/** The way to publish a signing that was killed before it did. @param plan where it was to be published. */
export const repeatOf = ({ brake = 'next-ring' }: Signing, plan: string): string =>
	brake === 'sign' ? 'sign that plan again' : `idv fleet ${brake} ${plan}`;

/** The signings that held the fleet back and are newer than the plan that is published: a store has lost them, or a run was killed before it had published. */
export function brakesSince({ signed }: RolloutRecord, published: KnownPlan): Signing[] {
	return signed.filter((one) => one.brake !== undefined && signedSince({ ...NO_RECORD, signed: [one] }, published));
}

/** The record without a signing that was refused. @param before the record that the signing was put into: an earlier one of the same plan is there again. */
export function withoutSigning(
	record: RolloutRecord,
	{ digest, at }: Pick<Signing, 'digest' | 'at'>,
	before: RolloutRecord,
): RolloutRecord {
	const others = record.signed.filter((one) => one.digest !== digest || one.at !== at);
	if (others.length === record.signed.length) return record;
	const earlier = before.signed.filter((one) => one.digest === digest && one.at !== at);
	const place = others.findIndex((one) => earlier.some((own) => one.after === digest || one.at > own.at));
	return { ...record, signed: others.toSpliced(place < 0 ? others.length : place, 0, ...earlier) };
}

/** After the plan was seen where it is published. */
export function confirmed(record: RolloutRecord, digest: string): RolloutRecord {
	const isMeant = (one: Signing) => one.digest === digest && one.isUnconfirmed === true;
	if (!record.signed.some(isMeant)) return record;
	return { ...record, signed: record.signed.map((one) => (isMeant(one) ? { ...one, isUnconfirmed: undefined } : one)) };
}

type VersionRing = Signing['rings'][string][number];

export const partsOf = ({ defaults, rules }: FleetPlan) => [
	{ name: '', rollout: defaults?.rollout, match: undefined },
	...rules,
];

export function pausedIn({ signed }: RolloutRecord, { plan, digest }: KnownPlan): NonNullable<Signing['paused']> {
	const { paused, brake, at = '' } = signed.find((one) => one.digest === digest) ?? {};
	// Earlier versions have recorded the command alone.
	return paused ?? (brake === 'pause' ? withPause({}, plan, { rule: undefined, at }) : {});
}

/** The pauses that were noted in a plan after it was read with those that are known; `undefined` for none. */
export function notedSince(
	record: RolloutRecord,
	plan: KnownPlan,
	known: NonNullable<Signing['paused']>,
): Signing['paused'] {
	const noted = Object.entries(pausedIn(record, plan)).filter(([part]) => !Object.hasOwn(known, part));
	return noted.length > 0 ? Object.fromEntries(noted) : undefined;
}

/** The record with other pauses in a plan that it knows, sealed by the keys at hand: who pauses with a key has been told of those that it had not sealed. So have plans that were signed after it, for a command may be about to publish one: by a key that has sealed their own. */
export function withPauses(
	record: RolloutRecord,
	digest: string,
	paused: Signing['paused'],
	seal: Seal,
): RolloutRecord {
	const from = record.signed.findIndex((one) => one.digest === digest);
	const signed = record.signed.map((one, index) => {
		if (from < 0 || index < from) return one;
		const noted = { ...one, paused: index === from ? paused : { ...paused, ...one.paused } };
		const isMine = index === from || hasSealedPauses({ ...record, signed: [one] }, one.digest, seal);
		// As it was signed, and as it was noted last.
		const old = [{ ...one, paused: undefined }, one].flatMap((each) => seal(pauseWords(each)));
		const others = one.seals?.filter((own) => !old.includes(own)) ?? [];
		return { ...noted, seals: [...others, ...(isMine ? seal(pauseWords(noted)) : [])] };
	});
	return { ...record, signed };
}

/** The pauses of the plan in force, without those of parts that the next plan brings further. A part that had no rollout, or that takes over the devices of a paused one, keeps that of one that it repeats: rules are renamed, split, put together and exchanged. */
export function pausesKept(record: RolloutRecord, before: KnownPlan, after: FleetPlan): Signing['paused'] {
	const old = new Map(partsOf(before.plan).map((part) => [part.name, part]));
	const pauses = Object.entries(pausedIn(record, before));
	const kept = partsOf(after).flatMap(({ name, rollout, match }) => {
		const isOf = (part: string) =>
			part === name ||
			(rollout && !old.get(name)?.rollout) ||
			(match && JSON.stringify(match) === JSON.stringify(old.get(part)?.match));
		const [pause] = pauses.filter(([part]) => isOf(part) && isNoFurther(rollout, old.get(part)?.rollout));
		return pause ? [[name, pause[1]] as const] : [];
	});
	return kept.length === 0 ? undefined : Object.fromEntries(kept);
}

/** Of a part that is paused: all of its rings had begun. Settings and remarks of the same workflow bring it no further. */
const isNoFurther = (rollout: PlanRollout | undefined, than: PlanRollout | undefined) =>
	!rollout || !than
		? rollout === than
		: rollout.to.workflowId === than.to.workflowId &&
			rollout.rings.every(({ percent, agent }) =>
				than.rings.some((ring) => ring.percent >= percent && JSON.stringify(ring.agent) === JSON.stringify(agent)),
			);

/** With every part that a pause stops, also one whose next ring the plan does not list. @param rule the only one; `undefined` for all. */
export function withPause(
	paused: NonNullable<Signing['paused']>,
	plan: FleetPlan,
	{ rule, at }: { readonly rule: string | undefined; readonly at: string },
): NonNullable<Signing['paused']> {
	const parts = partsOf(plan).filter(({ name, rollout }) => rollout && (rule === undefined || name === rule));
	return { ...Object.fromEntries(parts.map(({ name }) => [name, at])), ...paused };
}

type Ring = PlanRollout['rings'][number];
type AnyRing = Pick<Ring, 'percent' | 'startAt'> & { readonly agent?: VersionRing['agent'] | undefined };

const ringsOf = <Kept>(plan: FleetPlan, pick: (ring: Ring) => Kept[]): Record<string, Kept[]> =>
	Object.fromEntries(
		partsOf(plan).flatMap(({ name, rollout }) => {
			const rings = rollout?.rings.flatMap(pick) ?? [];
			return rings.length > 0 ? [[name, rings]] : [];
		}),
	);

const withVersion = ({ agent, ...ring }: Ring): VersionRing[] => (agent ? [{ ...ring, agent }] : []);

/** When a person has added a ring that the plan has, in milliseconds since 1970; 0 where the record does not know. A step back adds none. */
export function ringSinceMs({ signed }: RolloutRecord, digest: string, rule: string | null, ring: Ring): number {
	const known = signed.slice(0, signed.findIndex((one) => one.digest === digest) + 1);
	const steps = known.filter(({ brake = 'sign' }) => brake === 'sign');
	const keyOf = ({ percent, startAt, agent }: AnyRing) => JSON.stringify([percent, startAt, agent?.version]);
	const has = ({ rings, plainRings }: Signing) =>
		[rings, plainRings].some((those) => those?.[rule ?? '']?.some((one) => keyOf(one) === keyOf(ring)));
	return Date.parse(steps[steps.findLastIndex((one) => !has(one)) + 1]?.at ?? '') || 0;
}

/** The rings of a part that had begun before this version was ordered in it; none where it ordered none. */
export function ringsBefore(
	{ signed }: RolloutRecord,
	rule: string | null,
	version: string,
	nowMs: number,
): readonly VersionRing[] {
	const ordered = signed.map(({ rings }) => rings[rule ?? ''] ?? []);
	const first = ordered.findIndex((rings) => rings.some(({ agent }) => agent.version === version));
	const last = ordered.slice(0, first < 0 ? ordered.length : first).findLast((rings) => rings.length > 0) ?? [];
	return last.filter((ring) => hasBegun(ring, nowMs));
}

/** All versions that what was published has ordered for a device of a rule by now. A device may have each of them, whatever is known of it. */
export function versionsOrdered({ signed }: RolloutRecord, nowMs: number) {
	const published = signed.filter(
		(one) => !one.isUnconfirmed || signed.some(({ previous }) => previous === one.digest),
	);
	const all = published.map(({ rings, plainRings }, index) => {
		// A ring that a later plan has left out before its time has ordered nothing.
		const endMs = Date.parse(published[index + 1]?.at ?? '') || nowMs;
		const isOrdered = (ring: VersionRing, at: number, those: VersionRing[]) =>
			hasBegun(ring, endMs) && overruledBy(those, at) < 0;
		const ordered = Object.entries(rings).map(([name, those]) => [name, those.filter(isOrdered)] as const);
		// A rule with a rollout of its own, of whatever kind, has no part in that of the defaults.
		return new Map<string, readonly VersionRing[]>([
			...Object.keys(plainRings ?? {}).map((name) => [name, []] as const),
			...ordered,
		]);
	});
	return (rule: string | null, deviceId: string): readonly string[] => {
		const place = rolloutPercentile(deviceId);
		const rings = all.flatMap((parts) => parts.get(rule ?? '') ?? parts.get('') ?? []);
		return rings.flatMap(({ percent, agent }) => (place < percent ? [agent.version] : []));
	};
}

/** @param devices of which `progress` is the sum. A workflow that an offline device wants was not seen on it. */
export function withSeen(
	record: RolloutRecord,
	progress: FleetProgress,
	devices: readonly Pick<DeviceStanding, 'standing' | 'workflowId'>[],
	{ revision, at }: { readonly revision: number; readonly at: string },
): RolloutRecord {
	const { atTarget, dueLater, overdue, refused, offline, neverSeen, versions } = progress;
	const counts = { atTarget, dueLater, overdue, refused, offline, neverSeen };
	const all = (before: readonly string[] = [], now: readonly string[]) => [...new Set([...before, ...now])].sort();
	const { seen } = record;
	const live = devices.flatMap(({ standing, workflowId }) => (standing === 'offline' ? [] : (workflowId ?? [])));
	const ever = { workflows: all(seen?.workflows, live), versions: all(seen?.versions, Object.keys(versions)) };
	return { ...record, seen: { at, revision, counts, ...ever } };
}
