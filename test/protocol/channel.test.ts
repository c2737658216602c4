import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { type AgentMessage, heartbeatSchema, readAgentMessage, readNotification } from '../../src/protocol/channel.ts';
import { fillTemplate } from '../../src/protocol/templates.ts';

/** Any UTF-16 code unit, half characters too; fast-check's own `binary` takes 0.8 s to set up. */
const codeUnit = fc.nat({ max: 0xffff }).map((code) => String.fromCharCode(code));

const read = (document: unknown, pointers = {}) =>
	readNotification({ type: 'text', text: JSON.stringify(document) }, pointers);
const readText = (text: string) => readNotification({ type: 'text', text });

describe('a notification', () => {
	test('is of the kind in `type`, else `event`, else `kind`', () => {
		expect(read({ kind: 'c', event: 'b', type: 'a' }).kind).toBe('a');
		expect(read({ kind: 'c', event: 'b' }).kind).toBe('b');
		expect(read({ kind: 'c' }).kind).toBe('c');
	});

	test('passes over a kind that is not a name', () => {
		expect(read({ type: 7, event: '', kind: 'c' }).kind).toBe('c');
		expect(read({ type: 'x'.repeat(257), kind: 'c' }).kind).toBe('c');
	});

	test('has the kind that a configured pointer leads to; where it leads to none, the usual one [F1317]', () => {
		const document = { type: 'envelope', data: [{ 'a/b': 'session.started' }] };
		expect(read(document, { kindPointer: '/data/0/a~1b' }).kind).toBe('session.started');
		expect(read(document, { kindPointer: '/nothing' }).kind).toBe('envelope');
		expect(read([], { kindPointer: '/nothing' }).kind).toBe('unknown');
	});

	test.each([null, [], [1, 2], 7, true, 'word', {}])('%j is one of unknown kind', (document) => {
		expect(read(document)).toEqual({
			kind: 'unknown',
			serviceId: null,
			format: 'json',
			content: JSON.stringify(document),
		});
	});

	test('keeps its contents to the letter', () => {
		const text = ' {"type":"a", "n": 12345678901234567890, "n": 1.0, "s":"\\u00e9"}\n';
		expect(readText(text)).toMatchObject({ kind: 'a', format: 'json', content: text });
	});

	test.each(['', 'hello', '{"type":', '<xml/>', '\u0000', '\uFEFF{}'])('%j is text', (text) => {
		expect(readText(text)).toEqual({ kind: 'text', serviceId: null, format: 'text', content: text });
	});

	test('binary is kept as base64, of any length', () => {
		for (const length of [0, 1, 8191, 8192, 8193, 256 * 1024]) {
			const bytes = Uint8Array.from({ length }, (_, index) => index % 251);
			expect(readNotification({ type: 'binary', bytes })).toEqual({
				kind: 'binary',
				serviceId: null,
				format: 'binary',
				content: Buffer.from(bytes).toString('base64'),
			});
		}
	});

	test('may be nested deeper than any stack: it is kept as it is', () => {
		for (const [open, close] of [
			['[', ']'],
			['{"a":', '}'],
		] as const) {
			const text = `${open.repeat(200_000)}1${close.repeat(200_000)}`;
			const notification = readText(text);
			expect(notification.content).toBe(text);
			expect(readAgentMessage(notification)).toBeNull();
		}
		const deep = `{"type":"workflow.changed","workflowId":"w","x":${'['.repeat(8000)}${']'.repeat(8000)}}`;
		expect(readAgentMessage(readText(deep))).toEqual({ type: 'workflow.changed', workflowId: 'w' });
		expect(readText(`[${deep},${deep}]`)).toMatchObject({ kind: 'unknown' });
	});

	test('that nests deeper than common parsers take is handed on as text, with its kind and its id [F1007]', () => {
		const nesting = (depth: number) => `{"type":"a","id":"n-1","x":${'['.repeat(depth - 1)}${']'.repeat(depth - 1)}}`;
		expect(readText(nesting(500))).toMatchObject({ kind: 'a', serviceId: 'n-1', format: 'json' });
		expect(readText(nesting(501))).toMatchObject({
			kind: 'a',
			serviceId: 'n-1',
			format: 'text',
			content: nesting(501),
		});
		const side = JSON.stringify({ type: 'a', x: Array(2000).fill([]), y: '['.repeat(2000) });
		expect(readText(side)).toMatchObject({ format: 'json' });
	});

	test("has the service's own id where there is one", () => {
		expect(read({ id: 'n-1' }).serviceId).toBe('n-1');
		expect(read({ id: 42 }).serviceId).toBe('42');
		expect(read({ id: 0 }).serviceId).toBe('0');
		expect(read({ meta: { key: 'k' } }, { notificationIdPointer: '/meta/key' }).serviceId).toBe('k');
		for (const id of [null, '', true, {}, [], 'x'.repeat(257)]) expect(read({ id }).serviceId).toBeNull();
		expect(read({ id: 'n-1' }, { notificationIdPointer: '/other' }).serviceId).toBeNull();
	});

	test('two numbers that JavaScript cannot tell apart are never taken for one id, and are acknowledged by their digits [F1408]', () => {
		const ids = ['1234567890123456789', '1234567890123456790', '-12345678901234567890123'];
		for (const id of ids) {
			const { serviceId, writtenId = '' } = readText(`{"a":[{"id":1}],"id": ${id} }`);
			expect([serviceId, fillTemplate('{"ack":"{id}"}', { id: writtenId })]).toEqual([id, `{"ack":${id}}`]);
		}
		for (const id of ['1e300', '12345678901234567890.5', '9'.repeat(65)])
			expect(readText(`{"id":${id}}`).serviceId).toBeNull();
		// Where it would take longer than all else, there is none.
		expect(readText(`{"id":${ids[0]},"x":"${'x'.repeat(16_384)}"}`).serviceId).toBeNull();
		expect(readText(`{"id":${Number.MAX_SAFE_INTEGER}}`).serviceId).toBe(String(Number.MAX_SAFE_INTEGER));
	});

	test('comes out of every frame, unchanged', () => {
		const text = fc.oneof(fc.json(), fc.string({ unit: codeUnit }));
		const pointer = fc.option(fc.string(), { nil: undefined });
		fc.assert(
			fc.property(text, pointer, pointer, (content, kindPointer, notificationIdPointer) => {
				const notification = readNotification({ type: 'text', text: content }, { kindPointer, notificationIdPointer });
				readAgentMessage(notification);
				return notification.content === content && notification.kind !== '';
			}),
			{ numRuns: 1000 },
		);
	});
});

describe('a message to the agent', () => {
	const message = (document: unknown, pointers = {}): AgentMessage | null => readAgentMessage(read(document, pointers));

	test('is one of two', () => {
		expect(message({ type: 'workflow.changed', workflowId: 'wf-2', extra: 1 })).toEqual({
			type: 'workflow.changed',
			workflowId: 'wf-2',
		});
		expect(message({ event: 'connection.revoked' })).toEqual({ type: 'connection.revoked' });
	});

	test('has its kind at the configured place and its fields in the document', () => {
		const document = { type: 'envelope', meta: { name: 'workflow.changed' }, workflowId: 'wf-2' };
		expect(message(document, { kindPointer: '/meta/name' })).toEqual({ type: 'workflow.changed', workflowId: 'wf-2' });
		expect(message(document)).toBeNull();
	});

	test.each([
		['no workflow', undefined],
		['an empty workflow', ''],
		['a number', 7],
		['a name that is too long', 'x'.repeat(129)],
		['a name that could not be registered', 'wf\n2'],
		['a name with white space around it', ' wf-2'],
	])('a change to %s is not acted on', (_what, workflowId) => {
		expect(message({ type: 'workflow.changed', workflowId })).toBeNull();
	});

	test('nothing else is acted on', () => {
		expect(message({ type: 'session.started', workflowId: 'wf-2' })).toBeNull();
		expect(message({ type: 'Workflow.Changed', workflowId: 'wf-2' })).toBeNull();
		expect(message(['workflow.changed'])).toBeNull();
		expect(readAgentMessage(readText('workflow.changed'))).toBeNull();
		expect(readAgentMessage({ kind: 'connection.revoked', serviceId: null, format: 'text', content: 'x' })).toBeNull();
	});
});

describe('a heartbeat', () => {
	const HEARTBEAT = {
		type: 'heartbeat',
		deviceId: 'kiosk-7',
		workflowId: 'wf-1',
		sequence: 1,
		sentAt: '2030-01-01T00:00:00.000Z',
		uptimeSeconds: 12.5,
	};

	test('has its six fields', () => {
		expect(heartbeatSchema.parse(HEARTBEAT)).toEqual(HEARTBEAT);
		for (const field of Object.keys(HEARTBEAT))
			expect(heartbeatSchema.safeParse({ ...HEARTBEAT, [field]: undefined }).success, field).toBe(false);
	});

	test('counts from 1', () => {
		expect(heartbeatSchema.safeParse({ ...HEARTBEAT, sequence: 0 }).success).toBe(false);
		expect(heartbeatSchema.safeParse({ ...HEARTBEAT, sequence: 1.5 }).success).toBe(false);
	});
});
