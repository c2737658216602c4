/** Whether a plan holds the fleet back, beside the one in force. Pure. */
import { compareVersions } from '../base/debian-version.ts';
import type { FleetPlan, PlanMatch, PlanRollout } from './plan-format.ts';
import { MATCH_KEYS } from './terms.ts';

type Ring = PlanRollout['rings'][number];

/** Whether some device could get less of a rollout by a plan than by the one before, or get it later. A part that says something else on its own goes
 * forward; a rule that is new or other before it may take its devices. */
export function takesBack(before: FleetPlan, after: FleetPlan): boolean {
	const now = partsOf(after);
	return partsOf(before).some((part) => {
		const own = now.find(({ name }) => name === part.name);
		const isReached = own?.ahead.every((rule) => part.ahead.includes(rule)) && isWider(own.match, part.match);
		const isTaken = (ring: Ring) => !own || !isReached || !isCovered(ring, own, part);
		return part.rings?.some(isTaken) ?? false;
	});
}

type Part = ReturnType<typeof partsOf>[number];

function partsOf({ defaults, rules, spreadSeconds }: FleetPlan) {
	const ahead: string[] = [];
	return [...rules, { name: null, match: {}, ...defaults }].map((part) => {
		const { name, match, workflowId, settings, rollout } = part;
		const words = { name, match: match as PlanMatch, ahead: [...ahead], base: JSON.stringify([workflowId, settings]) };
		ahead.push(JSON.stringify({ ...part, rollout: undefined }));
		const { to, rings, spreadSeconds: spread = spreadSeconds } = rollout ?? {};
		return { ...words, to: JSON.stringify([to?.workflowId, to?.settings]), rings, spread };
	});
}

const isWider = (match: PlanMatch, than: PlanMatch) =>
	MATCH_KEYS.every((key) => !match[key] || than[key]?.every((value) => match[key]?.includes(value)));

/** The words of a part on its own, or of a ring, go forward where they are not those on its own before. */
const isCovered = ({ percent, startAt, agent }: Ring, { rings = [], to, base, spread }: Part, old: Part) =>
	(!agent && base !== old.base) ||
	rings.some(
		(other) =>
			other.percent >= percent &&
			(other.startAt === undefined || (startAt !== undefined && Date.parse(other.startAt) <= Date.parse(startAt))) &&
			spread <= old.spread &&
			(to === old.to || to !== base) &&
			(!agent || (other.agent && compareVersions(other.agent.version, agent.version) >= 0)),
	);
