import { describe, expect, test } from 'vitest';
import type { AssignedWorkflow } from '../../src/state/device-state.ts';
import {
	configuredWorkflow,
	type DesiredWorkflow,
	describeSource,
	desiredWorkflow,
	type WorkflowSource,
} from '../../src/workflow/precedence.ts';

const assigned: AssignedWorkflow = { workflowId: 'assigned', source: 'service message', at: '2026-03-01T10:00:00Z' };
const inFile: DesiredWorkflow = { workflowId: 'fixed', source: 'file', where: '/etc/idv-agent/config.json' };

describe('the wanted workflow', () => {
	test('is the one in the settings, whatever was assigned', () => {
		expect(desiredWorkflow(inFile, assigned)).toBe(inFile);
		expect(desiredWorkflow(inFile, null)).toBe(inFile);
	});

	test('is the assigned one when the settings leave it open', () => {
		expect(desiredWorkflow(null, assigned)).toEqual({ workflowId: 'assigned', source: 'service message', where: null });
	});

	test('is none when nothing names one', () => {
		expect(desiredWorkflow(null, null)).toBeNull();
	});
});

describe('the settings', () => {
	test.each(['flag', 'environment', 'file'] as const)('name a workflow in a %s', (source) => {
		expect(configuredWorkflow('w1', { source, where: 'somewhere' })).toEqual({
			workflowId: 'w1',
			source,
			where: 'somewhere',
		});
	});

	test('name none with their default, with null or without an origin', () => {
		expect(configuredWorkflow('w1', { source: 'default', where: null })).toBeNull();
		expect(configuredWorkflow(null, { source: 'file', where: '/etc/idv-agent/config.json' })).toBeNull();
		expect(configuredWorkflow('w1', undefined)).toBeNull();
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
