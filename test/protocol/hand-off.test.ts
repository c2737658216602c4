import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
	formatWorkflowIds,
	handOffRecordSchema,
	handOffRequestSchema,
	readWorkflowIds,
	workflowIdsSchema,
} from '../../src/protocol/hand-off.ts';

function complaint(body: unknown): string {
	const result = handOffRequestSchema.safeParse(body);
	return result.success
		? 'accepted'
		: result.error.issues.map((issue) => `${issue.path.join('.')} ${issue.message}`).join('; ');
}

describe('the body that starts a session', () => {
	test('has the published defaults', () => {
		expect(handOffRequestSchema.parse({})).toEqual({ metadata: {}, locale: null, ttl: 3600 });
	});

	test('metadata is any object, and passes untouched', () => {
		const metadata = { order: 7, nested: { list: [1, null, 'x'] } };
		expect(handOffRequestSchema.parse({ metadata }).metadata).toEqual(metadata);
		for (const bad of [[], 'x', 7, null]) expect(complaint({ metadata: bad })).toMatch(/^metadata /);
	});

	test('the locale is a short text or null', () => {
		expect(complaint({ locale: 'de-CH' })).toBe('accepted');
		expect(complaint({ locale: null })).toBe('accepted');
		expect(complaint({ locale: '' })).toMatch(/^locale /);
		expect(complaint({ locale: 'x'.repeat(36) })).toMatch(/^locale /);
	});

	test('the lifetime is whole seconds from 1 to 30 days', () => {
		for (const ttl of [1, 2_592_000]) expect(complaint({ ttl })).toBe('accepted');
		expect(complaint({ ttl: 0 })).toBe('ttl must be at least 1 second');
		expect(complaint({ ttl: 2_592_001 })).toBe('ttl must be at most 2592000 seconds (30 days)');
		expect(complaint({ ttl: 0.5 })).toBe('ttl must be a whole number of seconds');
	});
});

describe('the hand-off record', () => {
	const RECORD = {
		url: 'https://id.example.com/mobile?authorization=Token%20abc&sessionId=1',
		createdAt: '2030-01-01T00:00:00Z',
		expiresAt: '2030-01-01T01:00:00Z',
		workflowIds: ['wf-1'],
	};

	test('has the four published fields', () => {
		expect(handOffRecordSchema.parse(RECORD)).toEqual(RECORD);
	});

	test.each(['url', 'createdAt', 'expiresAt', 'workflowIds'])('is not one without its %s', (field) => {
		expect(handOffRecordSchema.safeParse({ ...RECORD, [field]: undefined }).success).toBe(false);
	});

	test('has a URL that is one', () => {
		expect(handOffRecordSchema.safeParse({ ...RECORD, url: '/mobile' }).success).toBe(false);
	});
});

describe('the workflows in a query', () => {
	test('may be repeated or have commas, and count once each', () => {
		expect(readWorkflowIds(new URLSearchParams('workflowId=a&workflowId=b'))).toEqual(['a', 'b']);
		expect(readWorkflowIds(new URLSearchParams('workflowId=a,b%2Cc&workflowId=b'))).toEqual(['a', 'b', 'c']);
		expect(readWorkflowIds(new URLSearchParams('workflowId=+a+,,&workflowId='))).toEqual(['a']);
		expect(readWorkflowIds(new URLSearchParams('workflow=a'))).toEqual([]);
	});

	test('come back as they were written', () => {
		const id = fc.string({ minLength: 1 }).filter((text) => text.trim() === text && !text.includes(','));
		fc.assert(
			fc.property(fc.uniqueArray(id), (ids) => {
				expect(readWorkflowIds(new URLSearchParams(formatWorkflowIds(ids).toString()))).toEqual(ids);
			}),
		);
	});

	test('are at least one and at most 32', () => {
		expect(workflowIdsSchema.safeParse([]).error?.issues[0]?.message).toBe('must name at least one workflow');
		expect(workflowIdsSchema.safeParse(Array(32).fill('a')).success).toBe(true);
		expect(workflowIdsSchema.safeParse(Array(33).fill('a')).success).toBe(false);
		expect(workflowIdsSchema.safeParse(['a\nb']).success).toBe(false);
	});
});
