import { expect, test } from 'vitest';
import type { FleetPlan } from '../../src/fleet/plan-format.ts';
import { takesBack } from '../../src/fleet/takes-back.ts';

const wide = { percent: 40 };
const toCome = { percent: 60, startAt: '2099-01-01T00:00:00Z' };
const newer = (version: string, percent = 10) => ({ percent, agent: { version } });
const rollout = (...rings: object[]) => ({ to: { workflowId: 'new' }, rings });
const lobby = {
	name: 'lobby',
	match: { deviceIds: ['K-1', 'K-2'] },
	workflowId: 'old',
	rollout: rollout({ percent: 100 }),
};
const silent = { name: 'silent', match: { deviceIds: ['K-9'] } };
const first = {
	...{ format: 'idv-fleet-plan/2', revision: 1, spreadSeconds: 30, rules: [silent, lobby] },
	defaults: { workflowId: 'old', rollout: rollout(wide, toCome, newer('1.1')) },
};
const withRules = (...rules: object[]) => ({ ...first, rules });
const withRings = (...rings: object[]) => ({ ...first, defaults: { workflowId: 'old', rollout: rollout(...rings) } });
const withRollout = (more: object) => ({
	...first,
	defaults: { workflowId: 'old', rollout: { ...first.defaults.rollout, ...more } },
});

test.each<[string, object]>([
	['no rollout', { ...first, defaults: { workflowId: 'old' } }],
	['a ring less', withRings(wide, newer('1.1'))],
	['a smaller ring', withRings({ percent: 39 }, toCome, newer('1.1'))],
	['a smaller ring to come', withRings(wide, { ...toCome, percent: 59 }, newer('1.1'))],
	['a later ring', withRings(wide, { ...toCome, startAt: '2099-01-01T00:00:01Z' }, newer('1.1'))],
	['a ring that gets a time', withRings({ ...wide, startAt: '2098-01-01T00:00:00Z' }, toCome, newer('1.1'))],
	['an older version', withRings(wide, toCome, newer('1.0'))],
	['a version for fewer', withRings(wide, toCome, newer('1.1', 9))],
	['the version for nobody, but its workflow for all', { ...first, defaults: { workflowId: 'new' } }],
	['a longer spread of the plan', { ...first, spreadSeconds: 31 }],
	['a longer spread of a rollout', withRollout({ spreadSeconds: 31 })],
	['a ring that says what is said without it', withRollout({ to: { workflowId: 'old' } })],
	['a rule less', withRules(silent)],
	['a rule for fewer devices', withRules(silent, { ...lobby, match: { deviceIds: ['K-1'] } })],
	['a rule that wants a label as well', withRules(silent, { ...lobby, match: { ...lobby.match, labels: ['hall'] } })],
	['a rule without its rollout', withRules(silent, { ...lobby, rollout: undefined })],
	['a new rule before it', withRules({ ...lobby, name: 'hold', rollout: undefined }, silent, lobby)],
	['a rule before it that says more', withRules({ ...silent, workflowId: 'old' }, lobby)],
	['a rule before it for more devices', withRules({ ...silent, match: { deviceIds: ['K-9', 'K-1'] } }, lobby)],
])('a plan takes back: %s [F1429]', (_, after) => {
	expect(takesBack(first as FleetPlan, after as FleetPlan)).toBe(true);
});

test.each<[string, object]>([
	['the same', first],
	[
		'the same time as it is written elsewhere',
		withRings(wide, { ...toCome, startAt: '2099-01-01T01:00:00+01:00' }, newer('1.1')),
	],
	['a wider ring', withRings({ percent: 41 }, toCome, newer('1.1'))],
	['an earlier ring', withRings(wide, { ...toCome, startAt: '2098-12-31T00:00:00Z' }, newer('1.1'))],
	['a ring that loses its time', withRings({ percent: 60 }, newer('1.1'))],
	['a ring more', withRings(wide, toCome, newer('1.1'), { percent: 100, startAt: '2100-01-01T00:00:00Z' })],
	['a newer version', withRings(wide, toCome, newer('1.10'))],
	['a shorter spread', { ...first, spreadSeconds: 29 }],
	['another workflow in its rings', withRollout({ to: { workflowId: 'newest' } })],
	['another ring in a rule before it', withRules(silent, { ...lobby, rollout: rollout({ percent: 100 }, toCome) })],
])('a plan takes nothing back: %s [F1429]', (_, after) => {
	expect(takesBack(first as FleetPlan, after as FleetPlan)).toBe(false);
});

// In the defaults' rollout, too, it would take devices of that.
test.each<[string, object]>([
	['its workflow for all of a rule', { ...lobby, workflowId: 'new', rollout: undefined }],
	['a rule for more devices', { ...lobby, match: { deviceIds: ['K-1', 'K-2', 'K-3'] } }],
	['a rule for all of them', { ...lobby, match: {} }],
])('of a rule before defaults without a rollout takes nothing back: %s [F1429]', (_, after) => {
	const of = (rule: object) => ({ ...first, defaults: { workflowId: 'old' }, rules: [silent, rule] }) as FleetPlan;
	expect(takesBack(of(lobby), of(after))).toBe(false);
	expect(takesBack(first as FleetPlan, withRules(silent, after) as FleetPlan)).toBe(true);
});
