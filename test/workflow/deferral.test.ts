import { describe, expect, test } from 'vitest';
import { startLink } from '../../src/connection/link.ts';
import { type DesiredRegistration, type Link, NOTHING_SUPERVISED } from '../../src/connection/supervisor.ts';
import { type Change, deferWorkflow } from '../../src/workflow/deferral.ts';
import { holdLease, NO_LEASES } from '../../src/workflow/leases.ts';

const wish = (workflowId: string, baseUrl = 'https://id.example'): DesiredRegistration => ({
	baseUrl,
	request: { deviceId: 'kiosk-7', workflowId },
	credentialId: 'key',
	hasReusableCredential: true,
	selfRegistration: false,
});
const connection = { token: 'token-1', obtainedAtMs: 0, lifeMs: null };
const link = (workflowId: string, reason: Link['reason'] = 'desired'): Link => ({
	generation: 1,
	registration: wish(workflowId),
	reason,
	state: startLink([{ kind: 'reusable' }], connection, 0).state,
});
const running = { ...NOTHING_SUPERVISED, current: link('a') };
const held = holdLease(NO_LEASES, 'kiosk', 60, 0);
const ask = (
	desired: DesiredRegistration | null,
	more: { supervision?: typeof NOTHING_SUPERVISED; leases?: typeof held; before?: Change | null; nowMs?: number } = {},
) =>
	deferWorkflow(desired, {
		supervision: running,
		last: undefined,
		leases: held,
		before: null,
		maxDeferSeconds: 100,
		nowMs: 0,
		...more,
	});

describe('a workflow change', () => {
	test('waits while a lease is held, and everything else of the wish does not', () => {
		const { desired, change } = ask({ ...wish('b'), credentialId: 'other' });
		expect(desired).toEqual({ ...wish('a'), credentialId: 'other' });
		expect(change).toEqual({ workflowId: 'b', sinceMs: 0, untilMs: 60_000 });
	});

	test('is made when no lease is held any more', () => {
		const before = ask(wish('b')).change;
		expect(ask(wish('b'), { before, nowMs: 60_000 })).toMatchObject({ desired: wish('b'), change: { untilMs: null } });
		expect(ask(wish('b'), { leases: NO_LEASES })).toMatchObject({ desired: wish('b'), change: { untilMs: null } });
	});

	test('waits no longer than the limit, however often leases are renewed', () => {
		const before = ask(wish('b')).change;
		const later = holdLease(held, 'kiosk', 3600, 50_000);
		expect(ask(wish('b'), { before, leases: later, nowMs: 50_000 }).change?.untilMs).toBe(100_000);
		const allowed = ask(wish('b'), { before, leases: later, nowMs: 100_000 });
		expect(allowed).toMatchObject({ desired: wish('b'), change: { sinceMs: 0, untilMs: null } });
		// Looked at again while the new link is on its way.
		expect(ask(wish('b'), { before: allowed.change, leases: later, nowMs: 110_000 }).desired).toEqual(wish('b'));
	});

	test('to yet another workflow waits anew, and one that was withdrawn is forgotten', () => {
		const before = ask(wish('b')).change;
		expect(ask(wish('c'), { before, nowMs: 30_000 }).change).toMatchObject({ workflowId: 'c', sinceMs: 30_000 });
		expect(ask(wish('a'), { before }).change).toBeNull();
	});
});

test.each([
	['no wish', null, running],
	['the first link', wish('b'), NOTHING_SUPERVISED],
	['a link for the same workflow', wish('a'), running],
	['a move to another service', wish('b', 'https://other.example'), running],
	['a pairing under way', wish('b'), { ...running, next: link('b', 'pairing') }],
] as const)('%s does not wait', (_, desired, supervision) => {
	expect(ask(desired, { supervision })).toEqual({ desired, change: null });
});
