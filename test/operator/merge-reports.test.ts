import { expect, test } from 'vitest';
import type { DeviceReport } from '../../src/fleet/progress.ts';
import { newer } from '../../src/operator/merge-reports.ts';

const NOTHING = { problem: null, hindrance: null, planRefused: null, refusal: null, next: null };
const report = (more: Partial<DeviceReport>) =>
	({ deviceId: 'K-1', online: true, workflowId: 'a', ...NOTHING, ...more }) as DeviceReport;
const [early, late] = [Date.UTC(2026, 0, 1), Date.UTC(2026, 0, 2)];
const [older, recent] = [{ madeAtMs: early }, { madeAtMs: late }];
const since = '2026-01-01T00:00:00Z';

test.each<[string, Partial<DeviceReport>, Partial<DeviceReport>, Partial<DeviceReport>]>([
	['the newer one applies', { ...older, workflowId: 'a' }, { ...recent, workflowId: 'b' }, { workflowId: 'b' }],
	['wherever it stands', { ...recent, workflowId: 'b' }, { ...older, workflowId: 'a' }, { workflowId: 'b' }],
	['the last one applies where neither says when', { agentVersion: '1' }, { agentVersion: '2' }, { agentVersion: '2' }],
	['what it leaves open is the word of the other', { ...older, agentVersion: '1' }, recent, { agentVersion: '1' }],
	[
		'since when is known of the same problem',
		{ ...older, problem: 'dns-failed', problemSince: since },
		{ ...recent, problem: 'dns-failed' },
		{ problemSince: since },
	],
	[
		'and not of another one',
		{ ...older, problem: 'dns-failed', problemSince: since },
		{ ...recent, problem: 'clock-wrong' },
		{ problemSince: null },
	],
	[
		'why it was offline says nothing once it is online',
		{ ...older, online: false, hindrance: 'no DNS' },
		recent,
		{ online: true, hindrance: null },
	],
	[
		'why it refused a plan is kept for that plan',
		{ ...older, planRefused: 3, refusal: 'why' },
		{ ...recent, planRefused: 3 },
		{ refusal: 'why' },
	],
	['and for no other', { ...older, planRefused: 3, refusal: 'why' }, { ...recent, planRefused: 4 }, { refusal: null }],
])('of two reports %s [F1848]', (_, one, other, expected) => {
	expect(newer(report(one), report(other))).toMatchObject(expected);
});
