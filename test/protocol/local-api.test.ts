import { describe, expect, test } from 'vitest';
import { eventPageSchema, eventSchema, STATUS_SCHEMA_VERSION, statusSchema } from '../../src/protocol/local-answers.ts';
import { LOCAL_ROUTES, pairRequestSchema, workflowRequestSchema } from '../../src/protocol/local-api.ts';
import { MAX_CODE_LENGTH } from '../../src/protocol/pairing-code.ts';

const AT = '2030-01-01T00:00:00.000Z';

describe('the status', () => {
	const UNPAIRED = {
		schemaVersion: STATUS_SCHEMA_VERSION,
		state: 'unpaired',
		sentence: 'Not paired.',
		summary: { code: 'unpaired', params: {} },
		agentVersion: '0.1.0',
		startedAt: AT,
		deviceId: null,
		deviceType: 'kiosk',
		serial: null,
		macAddress: null,
		baseUrl: null,
		workflow: { wanted: null, live: null, waitsUntil: null, source: null },
		channel: { state: 'none', since: null, lastHeartbeatAt: null, reconnects: 0, nextAttemptAt: null },
		plan: null,
		sessionId: null,
		pairedAt: null,
		problem: null,
		warnings: [],
		newestEventId: null,
	};

	test('of a device that is not paired is complete, with null for what it does not know', () => {
		expect(statusSchema.parse(UNPAIRED)).toEqual(UNPAIRED);
	});

	test('of another schema version is not taken for this one', () => {
		expect(statusSchema.safeParse({ ...UNPAIRED, schemaVersion: STATUS_SCHEMA_VERSION + 1 }).success).toBe(false);
	});

	test.each(['unpaired', 'connecting', 'online', 'offline', 'blocked'])('has the state %s', (state) => {
		expect(statusSchema.safeParse({ ...UNPAIRED, state }).success).toBe(true);
	});

	test('has times with a zone and no state of its own invention', () => {
		expect(statusSchema.safeParse({ ...UNPAIRED, startedAt: '2030-01-01T01:00:00+01:00' }).success).toBe(true);
		expect(statusSchema.safeParse({ ...UNPAIRED, startedAt: '2030-01-01 01:00' }).success).toBe(false);
		expect(statusSchema.safeParse({ ...UNPAIRED, state: 'fine' }).success).toBe(false);
	});
});

describe('an event', () => {
	const EVENT = { id: '1', at: AT, type: 'notification', kind: 'session.started', workflowId: 'w', format: 'json' };

	test.each([{ a: [1] }, 'text', 7, null])('carries %j as it is', (data) => {
		expect(eventSchema.parse({ ...EVENT, data })).toEqual({ ...EVENT, data });
	});

	test('stands on a page that says where to go on', () => {
		expect(eventPageSchema.parse({ events: [{ ...EVENT, data: 1 }], next: '1' }).events).toHaveLength(1);
		expect(eventPageSchema.parse({ events: [], next: null })).toEqual({ events: [], next: null });
	});
});

describe('a request to pair', () => {
	test('needs a code and replaces nothing unless told to', () => {
		expect(pairRequestSchema.parse({ code: 'x' })).toEqual({ code: 'x', replace: false });
		expect(pairRequestSchema.safeParse({ code: '' }).error?.issues[0]?.message).toBe('must not be empty');
		expect(pairRequestSchema.safeParse({ code: 'x'.repeat(MAX_CODE_LENGTH) }).success).toBe(true);
		expect(pairRequestSchema.safeParse({ code: 'x'.repeat(MAX_CODE_LENGTH + 1) }).success).toBe(false);
	});

	test('with a misspelt field is refused, so that `replace` is never lost in silence', () => {
		expect(pairRequestSchema.safeParse({ code: 'x', Replace: true }).success).toBe(false);
		expect(pairRequestSchema.safeParse({ code: 'x', replace: 'yes' }).success).toBe(false);
		expect(workflowRequestSchema.safeParse({ workflowID: 'w' }).success).toBe(false);
	});

	test('names only a workflow that could be registered', () => {
		expect(pairRequestSchema.safeParse({ code: 'x', workflowId: ' w' }).success).toBe(false);
		expect(workflowRequestSchema.safeParse({ workflowId: 'a\nb' }).success).toBe(false);
		expect(workflowRequestSchema.parse({ workflowId: 'wf-1' })).toEqual({ workflowId: 'wf-1' });
		const waits = [3600, 3601].map((waitSeconds) =>
			workflowRequestSchema.safeParse({ workflowId: 'wf-1', waitSeconds }),
		);
		expect(waits.map(({ success }) => success)).toEqual([true, false]);
	});
});

test('no two routes share a path', () => {
	const paths = Object.values(LOCAL_ROUTES);
	expect(new Set(paths).size).toBe(paths.length);
	for (const path of paths) expect(path).toMatch(/^\/[a-z0-9/]+(?:\.json)?$/);
});
