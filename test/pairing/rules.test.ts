import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
	decidePairing,
	type PairingAsked,
	type PairingContext,
	type PairingDecision,
} from '../../src/pairing/rules.ts';
import { pairPreviewSchema } from '../../src/protocol/local-answers.ts';
import { type DeviceState, EMPTY_STATE } from '../../src/state/device-state.ts';
import type { DesiredWorkflow } from '../../src/workflow/precedence.ts';

const TOKEN = 'tr-abcdefghijklmnopqrstuvwxyz01';
const HERE = 'https://id.example';
const ELSEWHERE = 'https://other.example';

function link(base: string, query = ''): string {
	return `${base}/mobile?authorization=Token%20${TOKEN}${query}`;
}
interface Situation {
	baseUrl?: string | null;
	trustedOrigins?: string[];
	configured?: DesiredWorkflow | null;
	state?: Partial<DeviceState>;
	pairedWith?: string | null;
	standing?: PairingContext['standing'];
	loopbackByScanner?: boolean;
	rescueByScanner?: boolean;
}
function context({
	baseUrl = null,
	trustedOrigins = [],
	configured = null,
	state,
	pairedWith = null,
	standing = pairedWith === null ? 'first' : 'paired',
	loopbackByScanner = false,
	rescueByScanner = false,
}: Situation = {}): PairingContext {
	return {
		settings: { baseUrl, pairing: { trustedOrigins, loopbackByScanner, rescueByScanner } },
		configured,
		state: { ...EMPTY_STATE, ...state },
		pairedWith,
		standing,
	};
}
function decide(code: string, situation?: Situation, asked: Partial<PairingAsked> = {}): PairingDecision {
	return decidePairing({ code, replace: false, by: 'person', ...asked }, context(situation));
}
/** `code: message remedy` of what stands in the way. */
function refusal({ preview, plan }: PairingDecision): string {
	expect(preview.ready).toBe(false);
	expect(plan).toBeNull();
	return `${preview.problem?.code}: ${preview.problem?.message}`;
}
/** The plan of a code that may be used. */
function planOf(decision: PairingDecision) {
	expect(decision.preview.problem).toBeNull();
	expect(decision.preview.ready).toBe(true);
	if (!decision.plan) throw new Error('There is no plan.');
	return decision.plan;
}

const fixed: DesiredWorkflow = { workflowId: 'w-fixed', source: 'file', where: '/etc/idv-agent/config.json' };
const runs = (workflowId: string): Partial<DeviceState> => ({
	assignedWorkflow: { workflowId, source: 'pairing', at: '2026-03-01T10:00:00Z' },
});
const trusting = { trustOrigin: HERE };

describe('a text that is not a pairing code is refused with what it is [F1245]', () => {
	test.each([
		['', 'Nothing was read.'],
		['x'.repeat(5000), 'This text is longer than any pairing code.'],
		// Of what is not read nothing is said but its length.
		[link(HERE, `&pad=${'x'.repeat(5000)}`), 'This text is longer than any pairing code.'],
		['tr-abc\u0007def', 'This text has control characters in it, so it is not a pairing code.'],
		['4006381333931', 'This is a bar code of a product or a label, not a pairing code.'],
		['0815 A', 'This is some other text, not a pairing code.'],
		['https://id.example/about', 'This is a link, but there is no pairing token in it.'],
		[
			'https://id.example/mobile?authorization=Bearer%20abcdefgh',
			'This link carries another kind of credential, not a one-time pairing token.',
		],
		[`ftp://id.example/mobile?authorization=Token%20${TOKEN}`, 'The address in this code is not one of a service.'],
		['https://id.example/mobile?authorization=Token%20a', 'The token in this code is damaged.'],
		[link(HERE, `&workflowId=${'w'.repeat(200)}`), 'The workflow in this code is not a valid name.'],
	])('%#: %s', (code, sentence) => {
		const decision = decide(code);
		const isOther = /some other text|bar code|no pairing token|Nothing was read|longer than/.test(sentence);
		const worth = isOther ? 'Nothing was sent.' : 'The code was not sent.';
		expect(refusal(decision)).toBe(`not-a-pairing-code: ${sentence} ${worth}`);
		expect(decision.preview).toMatchObject({ baseUrl: null, host: null, workflowId: null, tokenKind: 'none' });
		const isCut = /damaged|not a valid name/.test(sentence);
		expect(decision.preview.problem?.remedy).toMatch(
			isCut ? /^Scan or type the whole code/ : /^Scan a pairing code made/,
		);
	});
});

describe('a code that may be used', () => {
	test('says everything about itself but the token', () => {
		const { preview, plan } = decide(link(HERE, '&workflowId=w1&sessionId=s1'), {}, trusting);
		expect(preview).toEqual({
			ready: true,
			baseUrl: HERE,
			host: 'id.example',
			workflowId: 'w1',
			workflowSource: 'the code',
			sessionId: 's1',
			tokenKind: 'Short Token (one use)',
			changes: ['pairs this device with id.example', 'runs workflow w1', 'notes session s1'],
			problem: null,
		});
		expect(plan).toEqual({
			baseUrl: HERE,
			token: TOKEN,
			workflowId: 'w1',
			assignsWorkflow: true,
			sessionId: 's1',
			confirmsOrigin: HERE,
			isRescue: false,
			sent: { endsWithToken: false, namesWorkflow: true },
		});
	});

	test('shows a host in foreign letters as it really is', () => {
		const { preview } = decide(link('https://bücher.example', '&workflowId=w1'));
		expect(preview).toMatchObject({ baseUrl: 'https://xn--bcher-kva.example', host: 'xn--bcher-kva.example' });
	});

	test('keeps the path under which the service lives, and its port', () => {
		const decision = decide(
			link('https://id.example:8443/tenant', '&workflowId=w1'),
			{},
			{ trustOrigin: 'https://id.example:8443' },
		);
		expect(planOf(decision)).toMatchObject({
			baseUrl: 'https://id.example:8443/tenant',
			confirmsOrigin: 'https://id.example:8443',
		});
	});
});

describe('the origin of a code', () => {
	const code = link(HERE, '&workflowId=w1');

	test('must be confirmed by a person the first time', () => {
		const decision = decide(code);
		expect(refusal(decision)).toBe(
			'origin-unconfirmed: This code is for https://id.example, and it is not confirmed yet that this device belongs there.',
		);
		expect(decision.preview).toMatchObject({ host: 'id.example', workflowId: 'w1' });
		expect(planOf(decide(code, {}, trusting)).confirmsOrigin).toBe(HERE);
	});

	test.each(['https://id.example/', 'HTTPS://ID.EXAMPLE', 'https://id.example:443'])(
		'may be confirmed as %s',
		(trustOrigin) => {
			expect(planOf(decide(code, {}, { trustOrigin })).confirmsOrigin).toBe(HERE);
		},
	);

	test('that was confirmed before needs no person and is not noted again', () => {
		expect(planOf(decide(code, { state: { confirmedOrigins: [HERE] } })).confirmsOrigin).toBeNull();
	});

	test('is refused when a person has confirmed another one', () => {
		expect(refusal(decide(code, {}, { trustOrigin: ELSEWHERE }))).toBe(
			'code-for-other-origin: This code is for https://id.example, not for https://other.example.',
		);
		expect(refusal(decide(code, {}, { trustOrigin: 'id.example' }))).toBe(
			'code-for-other-origin: This code is for https://id.example, not for what was confirmed, which is not an address.',
		);
	});

	test('among the trusted ones needs no person and is not noted', () => {
		const situation = { trustedOrigins: [ELSEWHERE, HERE] };
		expect(planOf(decide(code, situation)).confirmsOrigin).toBeNull();
	});

	test('outside the trusted ones is refused, whatever a person confirms', () => {
		const situation = { trustedOrigins: [ELSEWHERE], state: { confirmedOrigins: [HERE] } };
		expect(refusal(decide(code, situation, trusting))).toBe(
			'code-for-other-origin: This code is for https://id.example, which is not among the origins that this device trusts.',
		);
	});

	test('other than that of the configured service is refused, whatever a person confirms', () => {
		const situation = { baseUrl: ELSEWHERE, trustedOrigins: [HERE], state: { confirmedOrigins: [HERE] } };
		expect(refusal(decide(code, situation, trusting))).toBe(
			'code-for-other-origin: This code is for https://id.example, but this device is configured for https://other.example.',
		);
	});

	test.each(['https://id.example:8443', 'https://id.example.evil.example', 'https://evil.example/id.example'])(
		'%s is not that of the configured service',
		(base) => {
			expect(refusal(decide(link(base, '&workflowId=w1'), { baseUrl: HERE }))).toMatch(/^code-for-other-origin: /);
		},
	);

	test('without encryption is refused, except on this machine itself', () => {
		expect(refusal(decide(link('http://id.example', '&workflowId=w1'), {}, { trustOrigin: 'http://id.example' }))).toBe(
			'insecure-origin: This code leads to http://id.example without encryption.',
		);
		const own = 'http://127.0.0.1:8080';
		expect(planOf(decide(link(own, '&workflowId=w1'), {}, { trustOrigin: own })).baseUrl).toBe(own);
	});
});

describe('a configured service', () => {
	const situation = { baseUrl: 'https://id.example/tenant' };

	test('counts with its own path, whatever path the code has', () => {
		const decision = decide(link(HERE, '&workflowId=w1'), situation);
		expect(planOf(decision)).toMatchObject({ baseUrl: 'https://id.example/tenant', confirmsOrigin: null });
		expect(decision.preview.baseUrl).toBe('https://id.example/tenant');
	});

	test('is where a bare token belongs', () => {
		expect(planOf(decide(TOKEN, situation, { workflowId: 'w1' }))).toMatchObject({
			baseUrl: 'https://id.example/tenant',
			token: TOKEN,
		});
	});

	test('that the device is paired with already stays the same service for a code without the path', () => {
		const decision = decide(
			link(HERE),
			{ ...situation, pairedWith: situation.baseUrl, state: runs('w1') },
			{ replace: true },
		);
		expect(planOf(decision).workflowId).toBe('w1');
		expect(decision.preview.changes).toEqual(['gives this device a new Connection to id.example']);
	});
});

describe('a bare token', () => {
	test('means nothing without a service', () => {
		expect(refusal(decide(TOKEN, { trustedOrigins: [HERE] }, { workflowId: 'w1' }))).toBe(
			'code-incomplete: This code is a bare token: it does not say which service it is for.',
		);
	});

	test('is for the service that the device is paired with', () => {
		const decision = decide(
			TOKEN,
			{ pairedWith: HERE, state: { ...runs('w1'), confirmedOrigins: [HERE] } },
			{ replace: true },
		);
		expect(planOf(decision)).toMatchObject({ baseUrl: HERE, workflowId: 'w1' });
	});
});

describe('a paired device', () => {
	const paired: Situation = { pairedWith: HERE, state: { ...runs('w1'), confirmedOrigins: [HERE] } };

	test('is not paired again unless that is meant', () => {
		const decision = decide(link(HERE, '&workflowId=w1'), paired);
		expect(refusal(decision)).toBe('already-paired: This device is paired with id.example already.');
		expect(decision.preview.changes).toEqual(['gives this device a new Connection to id.example']);
		expect(decision.preview.problem?.remedy).toBe('Use --replace if this device is really meant to move.');
	});

	test('is not moved unless that is meant, and says where it would go', () => {
		for (const asked of [{}, { trustOrigin: ELSEWHERE }]) {
			const decision = decide(link(ELSEWHERE, '&workflowId=w1'), paired, asked);
			expect(refusal(decision)).toBe(
				'already-paired: This device is paired with id.example; the code would move it to other.example.',
			);
			expect(decision.preview.changes).toEqual([
				'moves this device from id.example to other.example',
				'forgets what came from id.example, events included',
			]);
		}
	});

	test('is not moved by a link that is meant for a person', () => {
		const decision = decide(link(HERE, '&sessionId=s1'), paired);
		expect(refusal(decision)).toBe(
			'already-paired: This is a link to a session at id.example, not a pairing code; this device is paired with id.example already.',
		);
		expect(decision.preview.problem?.remedy).toBe(
			'Open the link on the phone or kiosk page it is meant for; no code was used.',
		);
		for (const situation of [paired, { ...paired, baseUrl: HERE }, { ...paired, trustedOrigins: [HERE] }])
			expect(refusal(decide(link(ELSEWHERE, '&sessionId=s1'), situation))).toMatch(
				/^already-paired: This is a link to a session at other\.example, not a pairing code;/,
			);
	});

	test('that is meant to be replaced says what changes', () => {
		const changesOf = (code: string, asked: Partial<PairingAsked> = {}, situation = paired) => {
			const decision = decide(code, situation, { replace: true, ...asked });
			planOf(decision);
			return decision.preview.changes;
		};
		expect(changesOf(link(HERE, '&workflowId=w1'))).toEqual(['gives this device a new Connection to id.example']);
		expect(changesOf(link(HERE, '&workflowId=w2'))).toEqual([
			'gives this device a new Connection to id.example',
			'changes the workflow from w1 to w2',
		]);
		expect(changesOf(link(ELSEWHERE, '&workflowId=w2&sessionId=s1'), { trustOrigin: ELSEWHERE })).toEqual([
			'moves this device from id.example to other.example',
			'changes the workflow from w1 to w2',
			'forgets what came from id.example, events included',
			'notes session s1',
		]);
		expect(changesOf(link(ELSEWHERE, '&workflowId=w1'), { trustOrigin: ELSEWHERE, keepEvents: true })).toEqual([
			'moves this device from id.example to other.example',
			'forgets what came from id.example but its events',
		]);
		expect(changesOf(link(`${HERE}/tenant`, '&workflowId=w1'))).toEqual([
			'moves this device from https://id.example to https://id.example/tenant',
			'forgets what came from https://id.example, events included',
		]);
	});

	test('whose workflow the settings fix runs nothing new when it is paired again', () => {
		const decision = decide(link(HERE), { ...paired, configured: fixed }, { replace: true });
		expect(planOf(decision).workflowId).toBe('w-fixed');
		expect(decision.preview.changes).toEqual(['gives this device a new Connection to id.example']);
	});
});

describe('the workflow', () => {
	const place: Situation = { baseUrl: HERE };

	test('is the one in the code', () => {
		const decision = decide(link(HERE, '&workflowId=w1'), place);
		expect(planOf(decision)).toMatchObject({ workflowId: 'w1', assignsWorkflow: true });
		expect(decision.preview.workflowSource).toBe('the code');
	});

	test('is the one that was asked for when the code names none', () => {
		const decision = decide(link(HERE), place, { workflowId: 'w2' });
		expect(planOf(decision)).toMatchObject({ workflowId: 'w2', assignsWorkflow: true });
		expect(decision.preview.workflowSource).toBe('--workflow');
	});

	test('may be asked for as the code has it, but not otherwise', () => {
		expect(planOf(decide(link(HERE, '&workflowId=w1'), place, { workflowId: 'w1' })).workflowId).toBe('w1');
		expect(refusal(decide(link(HERE, '&workflowId=w1'), place, { workflowId: 'w2' }))).toBe(
			'workflow-conflict: The code is for workflow w1, but --workflow names w2.',
		);
	});

	test('that the settings fix is not for a pairing to assign', () => {
		const decision = decide(link(HERE), { ...place, configured: fixed });
		expect(planOf(decision)).toMatchObject({ workflowId: 'w-fixed', assignsWorkflow: false });
		expect(decision.preview).toMatchObject({
			workflowSource: 'the settings (workflowId in /etc/idv-agent/config.json)',
			changes: ['pairs this device with id.example', 'runs workflow w-fixed'],
		});
		expect(planOf(decide(link(HERE, '&workflowId=w-fixed'), { ...place, configured: fixed })).workflowId).toBe(
			'w-fixed',
		);
	});

	test('that the settings fix is overridden neither by the code nor by --workflow', () => {
		const situation = { ...place, configured: fixed };
		expect(refusal(decide(link(HERE, '&workflowId=w1'), situation))).toBe(
			'workflow-fixed: Workflow w-fixed is set by the settings (workflowId in /etc/idv-agent/config.json), but the code names w1.',
		);
		expect(refusal(decide(link(HERE, '&workflowId=w-fixed'), situation, { workflowId: 'w2' }))).toBe(
			'workflow-fixed: Workflow w-fixed is set by the settings (workflowId in /etc/idv-agent/config.json), but --workflow names w2.',
		);
	});

	test('stays as before when the device is paired again with the same service', () => {
		const decision = decide(link(HERE), { ...place, pairedWith: HERE, state: runs('w1') }, { replace: true });
		expect(planOf(decision).workflowId).toBe('w1');
		expect(decision.preview.workflowSource).toBe('pairing, as before');
	});

	test('of the old service means nothing to a new one', () => {
		const situation = { pairedWith: ELSEWHERE, state: runs('w1') };
		expect(refusal(decide(link(HERE), situation, { replace: true, trustOrigin: HERE }))).toBe(
			'workflow-missing: This code names no workflow, and neither do the settings.',
		);
	});

	test('that nothing names is asked for before the code is spent', () => {
		const decision = decide(link(HERE), place);
		expect(refusal(decision)).toBe('workflow-missing: This code names no workflow, and neither do the settings.');
		expect(decision.preview.problem?.remedy).toBe(
			'Name the workflow: pair --workflow ID, or workflowId in the settings.',
		);
	});
});

test('of several things in the way the most basic one is named', () => {
	// Everything is wrong at once; each step puts one thing right.
	const configured = fixed;
	const evil = 'http://other.example';
	const bad = (code: string, situation: Situation, asked: Partial<PairingAsked> = {}) =>
		refusal(decide(code, { configured, ...situation }, asked)).split(':')[0];
	const conflicting = '&workflowId=w1';
	expect([
		bad('no code', { pairedWith: HERE }),
		bad(TOKEN, {}, { workflowId: 'w1' }),
		bad(link(evil, conflicting), { baseUrl: HERE, pairedWith: HERE }),
		bad(link(ELSEWHERE, conflicting), { baseUrl: HERE, pairedWith: HERE }),
		bad(link(HERE, conflicting), { pairedWith: HERE }),
		bad(link(HERE, conflicting), { baseUrl: HERE, pairedWith: HERE }),
		bad(link(HERE), { configured: null, baseUrl: HERE, pairedWith: HERE }),
		bad(link(HERE, conflicting), { baseUrl: HERE, pairedWith: HERE }, { replace: true }),
	]).toEqual([
		'not-a-pairing-code',
		'code-incomplete',
		'insecure-origin',
		'code-for-other-origin',
		'already-paired',
		'already-paired',
		'already-paired',
		'workflow-fixed',
	]);
});

test('whatever the code and the device: a preview is well-formed, has no token in it, and is ready only with a plan', () => {
	const secret = fc.stringMatching(/^tr-[A-Za-z0-9]{24,40}$/);
	const origin = fc.constantFrom(
		HERE,
		ELSEWHERE,
		'http://localhost:9',
		'http://id.example',
		'https://id.example/tenant',
	);
	const form = fc.constantFrom('link', 'nested', 'json', 'bare', 'spaced', 'bearer', 'twice');
	const maybe = <T>(arbitrary: fc.Arbitrary<T>) => fc.option(arbitrary, { nil: null });
	const workflow = maybe(fc.constantFrom('w1', 'w2', 'w-fixed'));
	const write = (shape: string, base: string, token: string, workflowId: string | null): string => {
		const named = workflowId ? `&workflowId=${workflowId}` : '';
		const direct = `${base}/mobile?authorization=Token%20${token}${named}`;
		if (shape === 'nested') return `https://go.example/?to=${encodeURIComponent(direct)}`;
		if (shape === 'json') return JSON.stringify({ baseUrl: base, token, workflowId });
		if (shape === 'bare') return token;
		if (shape === 'spaced') return `${base}/mobile?sessionId=s1&authorization=Token ${token}`;
		if (shape === 'bearer') return `${base}/mobile?authorization=Bearer%20${token}`;
		return shape === 'twice' ? `${direct}&authorization=${token}` : direct;
	};
	const situation = fc.record({
		baseUrl: maybe(origin),
		trustedOrigins: fc.constantFrom<string[]>([], [], [HERE]),
		configured: fc.constantFrom(null, null, fixed),
		pairedWith: maybe(origin),
		state: fc.constantFrom({}, runs('w1'), { confirmedOrigins: [HERE, ELSEWHERE] }),
	});
	const asked = fc.record({
		replace: fc.boolean(),
		workflow,
		trust: fc.constantFrom('none', 'origin', 'the code itself'),
	});
	fc.assert(
		fc.property(secret, form, origin, workflow, situation, asked, (token, shape, base, workflowId, device, wish) => {
			const code = write(shape, base, token, workflowId);
			const trustOrigin = { none: undefined, origin: new URL(base).origin, 'the code itself': code }[wish.trust];
			const { preview, plan } = decide(code, device, {
				replace: wish.replace,
				workflowId: wish.workflow ?? undefined,
				trustOrigin,
			});
			expect(pairPreviewSchema.parse(preview)).toEqual(preview);
			expect(JSON.stringify(preview)).not.toContain(token);
			expect(preview.ready).toBe(plan !== null);
			expect(preview.problem === null).toBe(plan !== null);
			if (!plan) return;
			expect(plan).toMatchObject({ token, baseUrl: preview.baseUrl, workflowId: preview.workflowId });
			const known = [device.baseUrl, device.pairedWith, base].map((address) => address && new URL(address).origin);
			expect(known).toContain(new URL(plan.baseUrl).origin);
			if (device.baseUrl) expect(plan.baseUrl).toBe(device.baseUrl);
			if (device.configured) expect(plan.workflowId).toBe('w-fixed');
			if (device.pairedWith) expect(wish.replace).toBe(true);
		}),
		{ numRuns: 400 },
	);
});

describe('a code that only a scanner has read', () => {
	const code = link(HERE, '&workflowId=w1');
	const scanned = { by: 'scanner' } as const;

	test('pairs where the settings name the service, and nowhere else', () => {
		expect(refusal(decide(code, {}, scanned))).toMatch(/^origin-unconfirmed: /);
		expect(refusal(decide(code, { state: { confirmedOrigins: [HERE] } }, scanned))).toMatch(/^origin-unconfirmed: /);
		planOf(decide(code, { baseUrl: HERE }, scanned));
		planOf(decide(code, { trustedOrigins: [HERE] }, scanned));
	});

	test('counts with its path where the trusted address has one', () => {
		const tenant = link(`${HERE}/tenant`, '&workflowId=w1');
		for (const by of ['scanner', 'person'] as const) {
			planOf(decide(tenant, { trustedOrigins: [`${HERE}/tenant`] }, { by }));
			for (const other of [code, link(`${HERE}/tenant2`, '&workflowId=w1'), link(`${HERE}/tenant/x`, '&workflowId=w1')])
				expect(refusal(decide(other, { trustedOrigins: [`${HERE}/tenant`] }, { by }))).toMatch(
					/^code-for-other-origin: /,
				);
		}
	});

	test.each(['http://127.0.0.1:8080', 'https://localhost', 'https://[::1]:8443'])(
		'that leads to %s is refused unless a trial allows it',
		(base) => {
			const own = link(base, '&workflowId=w1');
			expect(refusal(decide(own, { baseUrl: base }, scanned))).toMatch(/^insecure-origin: /);
			planOf(decide(own, { baseUrl: base, loopbackByScanner: true }, scanned));
			planOf(decide(own, { baseUrl: base }));
		},
	);
});

describe('a device that its service has refused', () => {
	const refused: Situation = { pairedWith: HERE, state: runs('w1'), standing: 'refused' };
	const code = link(HERE, '&workflowId=w1');
	const NAMED = `h.${Buffer.from('{"iss":"a","tenant":"t"}').toString('base64url')}.s`;
	const withToken = (token: string): Partial<DeviceState> => {
		const request = { deviceId: 'd', workflowId: 'w1', deviceType: 'kiosk', heartbeatCadence: 30 };
		return { ...runs('w1'), connections: [{ baseUrl: HERE, request, credentialId: '', token, obtainedAt: '' }] };
	};

	test('takes a code of the same service and workflow without --replace, and changes nothing else', () => {
		for (const one of [code, link(HERE), TOKEN]) {
			const decision = decide(one, refused);
			expect(planOf(decision)).toMatchObject({ baseUrl: HERE, workflowId: 'w1', isRescue: true, confirmsOrigin: null });
			expect(decision.preview.changes).toEqual(['gives this device a new Connection to id.example']);
		}
		expect(refusal(decide(code, { ...refused, standing: 'paired' }))).toMatch(/^already-paired: /);
	});

	test('is compared by the workflow that it was online with, not by a wish that never was [F505]', () => {
		const request = { deviceId: 'd', workflowId: 'w1', deviceType: 'kiosk', heartbeatCadence: 30 };
		const connection = { baseUrl: HERE, request, credentialId: '', token: 'tr-1', obtainedAt: '' };
		const wish = { workflowId: 'typo', source: 'workflow set', at: '' } as const;
		for (const connections of [
			[connection],
			[connection, { ...connection, request: { ...request, workflowId: 'typo' } }],
		]) {
			const wishing: Situation = { ...refused, state: { connections, assignedWorkflow: wish } };
			for (const one of [code, link(HERE), TOKEN])
				expect(planOf(decide(one, wishing))).toMatchObject({ workflowId: 'w1', isRescue: true });
			expect(refusal(decide(link(HERE, '&workflowId=typo'), wishing))).toContain('This device runs workflow w1;');
		}
	});

	test('wants a confirmation of what a scanner read, unless the settings say otherwise; never on a copy', () => {
		const scanned = { by: 'scanner' } as const;
		expect(refusal(decide(code, { ...refused, baseUrl: HERE }, scanned))).toBe(
			'pairing-unconfirmed: This code is for id.example, where this device belongs, and waits for a confirmation.',
		);
		const allowed = { ...refused, baseUrl: HERE, rescueByScanner: true };
		planOf(decide(code, { ...allowed, state: withToken(NAMED) }, scanned));
		const copy: Situation = { ...refused, standing: 'copy', baseUrl: HERE, rescueByScanner: true };
		expect(refusal(decide(code, copy, scanned))).toMatch(/^identity-changed: /);
		planOf(decide(code, copy));
	});

	test('takes from a scanner alone no code that only the issuer of its Connection would vouch for: all customers share it [F887]', () => {
		const claims = (payload: object) => `e30.${Buffer.from(JSON.stringify(payload)).toString('base64url')}.c2ln`;
		for (const payload of [{ iss: 'https://id.example' }, { iss: 'a', tenant: null }, { iss: 'a', tid: '' }]) {
			const shared: Situation = { ...refused, rescueByScanner: true, state: withToken(claims(payload)) };
			expect(refusal(decide(code, shared, { by: 'scanner' }))).toMatch(/^pairing-unconfirmed: /);
			planOf(decide(code, shared));
		}
		for (const payload of [{ iss: 'a', tenant: 't' }, { tid: 0 }, { org_id: 'o' }])
			planOf(decide(code, { ...refused, rescueByScanner: true, state: withToken(claims(payload)) }, { by: 'scanner' }));
	});

	test('never takes from a scanner alone what another customer of the service may have made: its own Connection is opaque [F719]', () => {
		for (const token of ['tr-1', 'a.b.c', '']) {
			const opaque: Situation = { ...refused, rescueByScanner: true, state: withToken(token) };
			expect(refusal(decide(code, opaque, { by: 'scanner' }))).toMatch(/^pairing-unconfirmed: /);
			planOf(decide(code, opaque));
		}
	});

	test.each<[string, string, Situation, Partial<PairingAsked>, string]>([
		['a session', link(HERE, '&workflowId=w1&sessionId=s1'), {}, {}, 'already-paired: This is a link to a session'],
		['another workflow', link(HERE, '&workflowId=w2'), {}, {}, 'already-paired: This device runs workflow w1;'],
		['another workflow by hand', link(HERE), {}, { workflowId: 'w2' }, 'already-paired: This device runs workflow w1;'],
		[
			'another base path',
			link(`${HERE}/other`, '&workflowId=w1'),
			{},
			{},
			'already-paired: This device is paired with',
		],
		[
			'another path of the configured service',
			link(`${HERE}/other`),
			{ baseUrl: `${HERE}/own`, pairedWith: `${HERE}/own` },
			{},
			'already-paired: This device is paired with',
		],
		[
			'another host',
			link(ELSEWHERE, '&workflowId=w1'),
			{},
			{ trustOrigin: ELSEWHERE },
			'already-paired: This device is paired with',
		],
		[
			'an origin that the settings do not trust any more',
			code,
			{ trustedOrigins: [ELSEWHERE] },
			{},
			'code-for-other-origin: ',
		],
	])('takes no code for %s', (_what, given, situation, asked, words) => {
		for (const standing of ['refused', 'copy'] as const)
			for (const by of ['scanner', 'person'] as const) {
				const decision = decide(given, { ...refused, rescueByScanner: true, ...situation, standing }, { by, ...asked });
				expect(refusal(decision)).toContain(words);
			}
	});

	test('with a code that has no path is rescued under the path that the settings give', () => {
		const own = { ...refused, baseUrl: `${HERE}/own`, pairedWith: `${HERE}/own` };
		expect(planOf(decide(code, own)).baseUrl).toBe(`${HERE}/own`);
	});
});
