import { describe, expect, test } from 'vitest';
import { MAX_LISTED_VALUES } from '../../src/fleet/terms.ts';
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

describe('format 2', () => {
	const of = (text: string) => text.replace('plan/1', 'plan/2');
	const more = (fields: string) => PLAN.replace('"revision": 7,', `"revision": 7, ${fields},`);

	test.each<[string, string]>([
		['an epoch', '"epoch": 9007199254740991'],
		['its fleet', '"fleet": "Nord, Halle 3"'.replace(',', '')],
		['the end of its trust', '"validUntil": "2026-12-01T04:00:00+01:00"'],
		['extensions', '"extensions": { "a": [1, { "b": null }] }'],
	])('takes %s, which format 1 refuses', (_, fields) => {
		expect(problemsOf(of(more(fields)))).toBe('');
		expect(problemsOf(more(fields))).toMatch(/ needs "format": "idv-fleet-plan\/2"\. \[plan-invalid\]$/);
	});

	test('passes over what stands under extensions, wherever words stand, and over nothing else', () => {
		const extensions = { anything: { deep: [1, 'x'] } };
		const words = { workflowId: 'a', extensions };
		const ring = { percent: 5, agent: { version: '0.3.0', notYetKnown: 1 }, extensions };
		const rollout = { to: { ...words, workflowId: 'b' }, rings: [ring], extensions };
		const rule = { name: 'lobby', match: { labels: ['x'] }, ...words, rollout };
		const plan = {
			format: 'idv-fleet-plan/2',
			revision: 1,
			defaults: { ...words, rollout },
			rules: [rule],
			extensions,
		};
		expect(problemsOf(JSON.stringify(plan))).toBe('');
		const strict = (name: string, place: object) => problemsOf(JSON.stringify({ ...plan, ...place, [name]: 1 }));
		expect(strict('extension', {})).toMatch(/\/extension is not known here\. /);
		expect(problemsOf(JSON.stringify({ ...plan, rules: [{ ...rule, agent: {} }] }))).toMatch(/\/agent is not known/);
		const first = problemsOf(JSON.stringify({ ...plan, format: 'idv-fleet-plan/1' }));
		expect(first).toMatch(/\/rules\/0\/rollout\/rings\/0\/agent needs "format"/);
	});

	test.each<[string, RegExp]>([
		['"epoch": -1', /\/epoch must be at least 0/],
		['"epoch": 9007199254740992', /\/epoch must/],
		['"fleet": ""', /\/fleet must not be empty/],
		['"fleet": "a\\nb"', /\/fleet must be letters/],
		['"validUntil": "2026-12-01T04:00:00"', /\/validUntil must be a time such as/],
		['"extensions": []', /\/extensions must be an object/],
	])('refuses %s', (fields, words) => {
		expect(problemsOf(of(more(fields)))).toMatch(words);
	});

	test('lists what a device can read, and only a plan of format 1 may list more', () => {
		const listing = (count: number, format: number) => {
			const deviceIds = Array.from({ length: count }, (_, n) => `K-${n}`);
			const rules = [{ name: 'own', match: { deviceIds: deviceIds.slice(1) }, workflowId: 'x' }];
			rules.push({ name: 'more', match: { deviceIds: deviceIds.slice(0, 1) }, workflowId: 'y' });
			return problemsOf(JSON.stringify({ format: `idv-fleet-plan/${format}`, revision: 1, rules }));
		};
		expect(listing(MAX_LISTED_VALUES, 2)).toBe('');
		expect(listing(MAX_LISTED_VALUES + 1, 1)).toBe('');
		expect(listing(MAX_LISTED_VALUES + 1, 2)).toBe(
			'plan.json: it lists 25001 values, and a device reads 25000 at most. [plan-invalid]',
		);
	});

	test('a format of the future is named', () => {
		expect(problemsOf(PLAN.replace('plan/1', 'plan/3'))).toMatch(
			/\/format must be "idv-fleet-plan\/1" or "idv-fleet-plan\/2"\./,
		);
	});

	test('every key that has signed is named, and an envelope may carry what is not signed', () => {
		const [one, two, three] = [createSigner(), createSigner(), createSigner()];
		const signed = one.sign(of(PLAN));
		const signatures = [...signed.signatures, ...two.sign(of(PLAN)).signatures];
		const envelope = JSON.stringify({ ...signed, signatures, extensions: { log: 1 } });
		const keys = [three.publicKey, two.publicKey, one.publicKey];
		const reading = readPlan(Buffer.from(envelope), 'plan.json', keys);
		expect(reading.ok && reading.read).toMatchObject({ keys: keys.slice(1), verifiedBy: two.publicKey });
	});
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
