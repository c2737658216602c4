import { describe, expect, test } from 'vitest';
import type { SettingOrigin } from '../../src/settings/setting-kinds.ts';
import type { AssignedWorkflow } from '../../src/state/device-state.ts';
import { chosenWorkflow, describeSource, fixedWorkflow, type WorkflowSource } from '../../src/workflow/precedence.ts';

const assigned: AssignedWorkflow = { workflowId: 'assigned', source: 'service message', at: '2026-03-01T10:00:00Z' };
const set = (workflowId: string | null, origin?: SettingOrigin) => ({
	settings: { workflowId },
	origins: new Map(origin ? [['workflowId', origin]] : []),
});
const desiredWorkflow = (resolved: ReturnType<typeof set>, assignedWorkflow: AssignedWorkflow | null) =>
	chosenWorkflow(resolved, { assignedWorkflow }, null);
const inFile = set('fixed', { source: 'file', where: '/etc/idv-agent/config.json' });
const open = set(null);

describe('the wanted workflow', () => {
	test('is the one in the settings, whatever was assigned', () => {
		const fixed = { workflowId: 'fixed', source: 'file', where: '/etc/idv-agent/config.json' };
		expect(desiredWorkflow(inFile, assigned)).toEqual(fixed);
		expect(desiredWorkflow(inFile, null)).toEqual(fixed);
	});

	test('is the assigned one when the settings leave it open', () => {
		expect(desiredWorkflow(open, assigned)).toEqual({ workflowId: 'assigned', source: 'service message', where: null });
	});

	test('is none when nothing names one', () => {
		expect(desiredWorkflow(open, null)).toBeNull();
	});
});

describe('the settings', () => {
	test.each(['flag', 'environment', 'file'] as const)('name a workflow in a %s', (source) => {
		expect(fixedWorkflow(set('w1', { source, where: 'somewhere' }), null)).toEqual({
			workflowId: 'w1',
			source,
			where: 'somewhere',
		});
	});

	test('name none with their default, with null or without an origin', () => {
		expect(fixedWorkflow(set('w1', { source: 'default', where: null }), null)).toBeNull();
		expect(fixedWorkflow(set(null, { source: 'file', where: '/etc/idv-agent/config.json' }), null)).toBeNull();
		expect(fixedWorkflow(set('w1'), null)).toBeNull();
	});
});

test.each<[WorkflowSource, string | null, string]>([
	['flag', '--set workflowId', 'the command line (--set workflowId)'],
	['environment', 'IDV_AGENT_WORKFLOW_ID', 'the environment (IDV_AGENT_WORKFLOW_ID)'],
	['environment', null, 'the environment (IDV_AGENT_WORKFLOW_ID)'],
	['file', '/etc/idv-agent/config.json', 'the settings (workflowId in /etc/idv-agent/config.json)'],
	['file', null, 'the settings (workflowId in a file)'],
	['plan', null, 'the fleet plan'],
	['pairing', null, 'pairing'],
	['workflow set', null, 'workflow set'],
	['service message', null, 'service message'],
])('the source %s (%s) is called: %s', (source, where, called) => {
	expect(describeSource({ workflowId: 'w1', source, where })).toBe(called);
});
