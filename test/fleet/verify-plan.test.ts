import { expect, test } from 'vitest';
import { readPlan } from '../../src/fleet/verify-plan.runner.ts';
import { createSigner } from '../fixtures/plans.ts';

const PLAN = `{
  "format": "idv-fleet-plan/1",
  "revision": 7,
  "spreadSeconds": 0,
  "defaults": { "workflowId": "checkin" },
  "rules": [
    { "name": "lobby", "match": { "labels": ["lobby"] }, "workflowId": "checkout" }
  ]
}
`;

/** What is wrong with a plan, a line for each. */
function problemsOf(text: string, keys: readonly string[] = []): string {
	const reading = readPlan(Buffer.from(text), 'plan.json', keys);
	return reading.ok ? '' : reading.problems.map(({ code, message }) => `${message} [${code}]`).join('\n');
}

test.each<[string, string, RegExp]>([
	['no JSON', PLAN.replace('"revision": 7,', '"revision": 7'), /line 4, column 3: a comma or } is missing before this/],
	[
		'a name that is there twice',
		PLAN.replace('"revision": 7,', '"revision": 7, "revision": 8,'),
		/line 3, column 18: \/revision is there twice/,
	],
	[
		'a rule that fits all',
		PLAN.replace('"labels": ["lobby"]', ''),
		/line 7, column 33: \/rules\/0\/match must name at least one of/,
	],
	[
		'two rules of one name',
		PLAN.replace('"checkout" }', '"checkout" }, { "name": "lobby", "match": { "labels": ["x"] } }'),
		/\/rules\/1\/name is used by a rule before/,
	],
	[
		'a star in the middle',
		PLAN.replace('"labels": ["lobby"]', '"deviceIds": ["K-*-1"]'),
		/\/rules\/0\/match\/deviceIds\/0 may have a \* at its end only/,
	],
	[
		'a ring of nobody',
		PLAN.replace(
			'"workflowId": "checkin"',
			'"workflowId": "a", "rollout": { "to": { "workflowId": "b" }, "rings": [ { "percent": 0 } ] }',
		),
		/\/defaults\/rollout\/rings\/0\/percent must be more than 0/,
	],
	[
		'a start that is no time',
		PLAN.replace(
			'"workflowId": "checkin"',
			'"workflowId": "a", "rollout": { "to": { "workflowId": "b" }, "rings": [ { "percent": 5, "startAt": "tomorrow" } ] }',
		),
		/startAt must be a time such as/,
	],
	['a page', '<html></html>', /is a web page, not a plan/],
	['nothing', '', /line 1, column 1: the file is empty/],
	['another document', '{"devices":[]}', /\/format is missing/],
])('refuses %s, with line and path', (_, text, words) => {
	expect(problemsOf(PLAN)).toBe('');
	expect(problemsOf(text)).toMatch(words);
	expect(problemsOf(text)).toMatch(/\[plan-invalid\]$/);
});

test('names the place in the plan, not in its envelope', () => {
	const signer = createSigner();
	const envelope = JSON.stringify(signer.sign(PLAN.replace('["lobby"]', '[]')));
	expect(problemsOf(envelope, [signer.publicKey])).toBe(
		'plan.json, the signed plan in it: line 7, column 45: /rules/0/match/labels must not be empty. [plan-invalid]',
	);
});

test('looks at nothing in an envelope before its signature', () => {
	const envelope = JSON.stringify(createSigner().sign('not even JSON'));
	expect(problemsOf(envelope, [createSigner().publicKey])).toMatch(
		/no signature that fits the key\. \[plan-untrusted\]$/,
	);
});

test('a plan has the same digest bare and signed, and with a key of two', () => {
	const [signer, other] = [createSigner(), createSigner()];
	const bare = readPlan(Buffer.from(PLAN), 'plan.json', []);
	const signed = readPlan(Buffer.from(JSON.stringify(signer.sign(PLAN))), 'plan.json', [
		other.publicKey,
		signer.publicKey,
	]);
	expect(bare.ok && signed.ok && bare.read.digest === signed.read.digest).toBe(true);
	expect(signed.ok && signed.read).toMatchObject({ isSigned: true, verifiedBy: signer.publicKey });
});

test('one changed byte of a signed plan is found out, wherever it is', () => {
	const signer = createSigner();
	const { payload, ...rest } = signer.sign(PLAN);
	const bytes = Buffer.from(payload, 'base64');
	for (let at = 0; at < bytes.length; at += 1) {
		const forged = Buffer.from(bytes);
		forged[at] = (forged[at] ?? 0) ^ 1;
		const envelope = JSON.stringify({ ...rest, payload: forged.toString('base64') });
		expect(problemsOf(envelope, [signer.publicKey])).toMatch(/plan-untrusted/);
	}
});
