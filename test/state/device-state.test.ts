import { describe, expect, test } from 'vitest';
import {
	type DeviceState,
	deviceStateSchema,
	EMPTY_STATE,
	MAX_CONNECTIONS,
	type SavedConnection,
	withConnection,
	withOnlyConnection,
	withOrigin,
} from '../../src/state/device-state.ts';

function saved(token: string, workflowId = 'w1'): SavedConnection {
	return {
		baseUrl: 'https://id.example',
		request: { deviceId: 'kiosk-7', workflowId },
		credentialId: '',
		token,
		obtainedAt: '2026-03-01T10:00:00.000Z',
	};
}
const holding = (...tokens: string[]): DeviceState =>
	tokens.reduce((state, token) => withConnection(state, saved(token)), EMPTY_STATE);
const tokens = (state: DeviceState) => state.connections.map(({ token }) => token);

describe('a Connection that is kept', () => {
	test('stands after the one it is to replace', () => {
		expect(tokens(holding('live', 'newer'))).toEqual(['live', 'newer']);
	});

	test('pushes out an earlier attempt, never the Connection that the device was online with', () => {
		expect(tokens(holding('live', 'second', 'third'))).toEqual(['live', 'third']);
		expect(holding('a', 'b', 'c', 'd').connections).toHaveLength(MAX_CONNECTIONS);
	});

	test('is not kept twice', () => {
		expect(tokens(holding('live', 'newer', 'live'))).toEqual(['newer', 'live']);
	});

	test('leaves the rest of the state, and the state it was made from, alone', () => {
		const before: DeviceState = { ...EMPTY_STATE, generatedId: 'g-1' };
		expect(withConnection(before, saved('a'))).toEqual({ ...before, connections: [saved('a')] });
		expect(EMPTY_STATE.connections).toEqual([]);
	});
});

describe('a Connection that is online', () => {
	test('makes the older ones needless', () => {
		expect(tokens(withOnlyConnection(holding('old', 'online'), 'online'))).toEqual(['online']);
	});

	test('leaves a newer one, which another link still holds', () => {
		expect(tokens(withOnlyConnection(holding('online', 'on its way'), 'online'))).toEqual(['online', 'on its way']);
	});

	test('and is not saved takes nothing away', () => {
		const state = holding('a', 'b');
		expect(withOnlyConnection(state, 'unknown')).toBe(state);
	});

	test('is known to have worked; after that it changes nothing, so that nothing is written', () => {
		const state = withOnlyConnection(holding('online'), 'online');
		expect(state.connections).toMatchObject([{ token: 'online', worked: true }]);
		expect(withOnlyConnection(state, 'online')).toBe(state);
	});
});

describe('the document', () => {
	test('of a device that was never paired is valid', () => {
		expect(deviceStateSchema.parse(EMPTY_STATE)).toEqual(EMPTY_STATE);
	});

	test('of a paired device survives being written and read', () => {
		const state: DeviceState = {
			...holding('live', 'newer'),
			generatedId: 'g-1',
			identity: {
				deviceId: 'kiosk-7',
				serial: 'S1',
				macAddress: null,
				fingerprint: { serial: 'S1', macAddress: null, machine: 'hash' },
				pinnedAt: '2026-03-01T10:00:00.000Z',
			},
			pairing: { baseUrl: 'https://id.example', sessionId: null, pairedAt: '2026-03-01T10:00:00.000Z' },
			assignedWorkflow: { workflowId: 'w1', source: 'pairing', at: '2026-03-01T10:00:00.000Z' },
			attempt: { attemptId: 'a', tokenHash: 'h', host: 'id.example', at: '2026-03-01T10:00:00.000Z' },
			confirmedOrigins: ['https://id.example'],
		};
		expect(deviceStateSchema.parse(JSON.parse(JSON.stringify(state)))).toEqual(state);
	});

	test('takes the origin of one more service than it has room for: the oldest is forgotten [F1888]', () => {
		const origins = Array.from({ length: 17 }, (_, index) => `https://s${index}.example`);
		const confirmedOrigins = origins.reduce(withOrigin, []);
		expect(confirmedOrigins).toEqual(origins.slice(1));
		expect(deviceStateSchema.safeParse({ ...EMPTY_STATE, confirmedOrigins }).success).toBe(true);
	});

	test.each([
		['another schema version', { schemaVersion: 2 }],
		['too many Connections', { connections: [saved('a'), saved('b'), saved('c')] }],
		['a Connection without a token', { connections: [{ ...saved('a'), token: undefined }] }],
		['a workflow from nowhere', { assignedWorkflow: { workflowId: 'w1', source: 'rumour', at: '' } }],
	])('with %s is not taken', (_, wrong) => {
		expect(deviceStateSchema.safeParse({ ...EMPTY_STATE, ...wrong }).success).toBe(false);
	});
});
