import { expect, test } from 'vitest';
import { withWorked } from '../../src/connection/refused-credential.ts';
import { EMPTY_STATE } from '../../src/state/device-state.ts';

const HERE = { baseUrl: 'https://id.example', credentialId: 'one', request: { deviceId: 'd', workflowId: 'w' } };
const KEY = { id: 'one', reusable: { scheme: 'ApiKey', credential: 'a-key-0123456789' } } as const;
const settings = (apiKeyFile: string) => ({
	credential: { apiKeyFile, basicFile: null, connectionFile: null, selfRegistration: false },
});
const FILE = settings('/etc/idv-agent/key');

test('a key that has worked is kept, one that systemd keeps encrypted is not, and neither is one of another service [F1151]', () => {
	const kept = withWorked(EMPTY_STATE, KEY, FILE, HERE);
	expect(kept.workedCredential).toEqual({ id: 'one', baseUrl: HERE.baseUrl, sent: 'ApiKey a-key-0123456789' });
	expect(withWorked(kept, KEY, FILE, HERE)).toBe(kept);
	const sealed = settings('/run/credentials/idv-agent.service/idv-agent.api-key');
	expect(withWorked(EMPTY_STATE, KEY, sealed, HERE).workedCredential).toBeNull();
	expect(withWorked(kept, { ...KEY, id: 'two' }, sealed, { ...HERE, credentialId: 'two' }).workedCredential).toBeNull();
	const refused = { ...kept, refusedCredential: { id: 'two', baseUrl: HERE.baseUrl, at: '2026-01-01T00:00:00.000Z' } };
	const other = { ...KEY, id: 'two' };
	expect(withWorked(refused, other, FILE, { ...HERE, credentialId: 'two' })).toBe(refused);
	const elsewhere = { ...HERE, baseUrl: 'https://other.example' };
	expect(withWorked(kept, { id: '', reusable: null }, FILE, elsewhere).workedCredential).toBeNull();
});
