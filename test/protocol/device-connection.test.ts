import { describe, expect, test } from 'vitest';
import { deviceConnectionRequestSchema } from '../../src/protocol/device-connection.ts';

const LEAST = { deviceId: 'kiosk-7', workflowId: 'wf-1' };

function complaint(fields: Record<string, unknown>): string {
	const result = deviceConnectionRequestSchema.safeParse({ ...LEAST, ...fields });
	return result.success
		? 'accepted'
		: result.error.issues.map((issue) => `${issue.path.join('.')} ${issue.message}`).join('; ');
}

describe('the body that registers a device', () => {
	test('needs a device and a workflow and nothing else', () => {
		expect(deviceConnectionRequestSchema.parse(LEAST)).toEqual(LEAST);
		expect(deviceConnectionRequestSchema.safeParse({ deviceId: 'x' }).success).toBe(false);
		expect(deviceConnectionRequestSchema.safeParse({ workflowId: 'x' }).success).toBe(false);
	});

	test('keeps every published field', () => {
		const full = {
			...LEAST,
			serial: 'SN 0042/B',
			macAddress: '00:1b:21:0a:0b:0c',
			deviceType: 'kiosk',
			heartbeatCadence: 30,
		};
		expect(deviceConnectionRequestSchema.parse(full)).toEqual(full);
	});

	test.each([
		['deviceId', 128],
		['workflowId', 128],
		['serial', 128],
		['deviceType', 64],
	])('%s has 1 to %i characters', (field, max) => {
		expect(complaint({ [field]: 'x'.repeat(max) })).toBe('accepted');
		expect(complaint({ [field]: 'x'.repeat(max + 1) })).toBe(`${field} must have at most ${max} characters`);
		expect(complaint({ [field]: '' })).toBe(`${field} must not be empty`);
	});

	test.each(['deviceId', 'workflowId', 'serial', 'deviceType'])(
		'%s is a clean line of text in any language',
		(field) => {
			expect(complaint({ [field]: 'Zürich – 東京 7' })).toBe('accepted');
			for (const bad of ['a\nb', 'a\u0000b', 'a\u202Eb', 'a\u200Bb', 'a\u2028b', 'a\uD800b'])
				expect(complaint({ [field]: bad })).toBe(`${field} must not have control or invisible characters`);
			for (const bad of [' a', 'a ', '\u00A0a'])
				expect(complaint({ [field]: bad })).toBe(`${field} must not begin or end with white space`);
			expect(complaint({ [field]: 7 })).toMatch(new RegExp(`^${field} .*expected string`));
		},
	);

	test('a MAC address is six pairs, kept in lower case with colons', () => {
		const parsed = deviceConnectionRequestSchema.parse({ ...LEAST, macAddress: '00-1B-21-0A-0B-0C' });
		expect(parsed.macAddress).toBe('00:1b:21:0a:0b:0c');
		expect(deviceConnectionRequestSchema.parse(parsed)).toEqual(parsed);
		for (const bad of [
			'',
			'001b210a0b0c',
			'00:1b:21:0a:0b',
			'00:1b:21:0a:0b:0g',
			'00:1b:21:0a:0b:0c:0d',
			'00:1b:21:0a:0b:0c\n',
		])
			expect(complaint({ macAddress: bad })).toBe(
				'macAddress must be six pairs of hexadecimal digits such as 00:1b:21:0a:0b:0c',
			);
	});

	test('the heartbeat cadence is a whole number of seconds from 1 to a day [F031]', () => {
		for (const good of [1, 30, 86_400]) expect(complaint({ heartbeatCadence: good })).toBe('accepted');
		for (const bad of [0, -1])
			expect(complaint({ heartbeatCadence: bad })).toBe('heartbeatCadence must be at least 1 second');
		for (const bad of [86_401, 2 ** 31])
			expect(complaint({ heartbeatCadence: bad })).toBe('heartbeatCadence must be at most 86400 seconds (a day)');
		for (const bad of [1.5, Number.NaN, Number.POSITIVE_INFINITY, '30', null, 2 ** 60])
			expect(complaint({ heartbeatCadence: bad })).toMatch(
				/^heartbeatCadence must be (a whole number of|at most 86400) seconds/,
			);
	});
});
