import { describe, expect, test } from 'vitest';
import { outlineJson } from '../../src/base/json-text.ts';
import { compilePlan, planFor } from '../../src/fleet/targeting.ts';
import { MAX_PLAN_BYTES } from '../../src/fleet/terms.ts';
import { readPlan } from '../../src/fleet/verify-plan.runner.ts';
import { nearestName, resolveSettings } from '../../src/settings/resolve.ts';
import { hostileEnvelopes, hostilePlans } from '../bench/hostile-plans.ts';
import { createSigner } from '../fixtures/plans.ts';

/** Five times what a plan may take on a quiet machine; what is quadratic takes a hundred times as long. */
const MOST_CPU_MS = 1000;
const DEVICE = { deviceId: 'K-1', serial: 'S', macAddress: null, deviceType: 'kiosk', labels: ['a'] };
const signer = createSigner();

/** The plan is read and, where it is one, chosen from. */
function read(text: string, keys: readonly string[], isForPeople = false) {
	const bytes = Buffer.from(text);
	const before = process.cpuUsage();
	const reading = readPlan(bytes, 'plan.json', keys, { isForPeople });
	if (reading.ok) planFor(compilePlan(reading.read.plan), DEVICE, Date.now());
	const { user, system } = process.cpuUsage(before);
	expect((user + system) / 1000).toBeLessThan(MOST_CPU_MS);
	const problems = reading.ok ? [] : reading.problems;
	expect(problems.length).toBeLessThanOrEqual(21);
	for (const { message } of problems) expect(message.length).toBeLessThan(500);
	return problems.map(({ code, message }) => `${message} [${code}]`);
}

describe('2 MiB of anything are read within bounds', () => {
	test.each([1, 2].flatMap((format) => hostilePlans(format).map(([name, text]) => [format, name, text] as const)))(
		'format %i, unsigned: %s',
		(_format, _name, text) => {
			expect(Buffer.byteLength(text)).toBeLessThanOrEqual(MAX_PLAN_BYTES);
			// A device does the same without the suggestions.
			read(text, [], true);
			// Where a key is set, only what tells a plan from an envelope is looked at.
			expect(read(text, [signer.publicKey]).join()).toMatch(/is not signed\. \[plan-untrusted\]$|line \d+, column \d+/);
		},
	);

	// Out of its envelope a plan goes the way of an unsigned one, whatever its format.
	test.each(hostilePlans(2, 1_500_000))('signed: %s', (_name, text) => {
		read(JSON.stringify(signer.sign(text)), [signer.publicKey]);
	});

	test.each(hostileEnvelopes())('an envelope that no key has signed, %s', (_, text) => {
		expect(read(text, [signer.publicKey])).not.toEqual([]);
	});
});

test('where a key is set, nothing of an unsigned plan is told [F450]', () => {
	const plan = (more: string) => `{"format":"idv-fleet-plan/2","revision":1,${more}}`;
	for (const more of ['"revison":1', '"rules":0', '"revision":1', '"rules":[{"name":"\\u001b"}]'])
		expect(read(plan(more), [signer.publicKey])).toEqual(['plan.json is not signed. [plan-untrusted]']);
});

test('unknown names are counted, twenty are named, and suggested only for people', () => {
	const names = Array.from({ length: 30_000 }, (_, n) => `"revisio${n}":1`).join(',');
	const text = `{"format":"idv-fleet-plan/1","revision":1,${names}}`;
	const told = read(text, []);
	expect(told).toHaveLength(21);
	expect(told[0]).toMatch(/\/revisio0 is not known here\. \[plan-invalid\]$/);
	expect(told[20]).toBe('plan.json: 29980 more names are not known. [plan-invalid]');
	expect(read(text, [], true)[0]).toMatch(/\/revisio0 is not known here; did you mean revision\?/);
});

test('more different names than any plan has end before a parser looks at them', () => {
	const names = Array.from({ length: 40_001 }, (_, n) => `"n${n}":1`).join(',');
	const text = `{"format":"idv-fleet-plan/2","revision":1,"rules":[{"match":{${names}}}]}`;
	expect(read(text, [])).toEqual([expect.stringContaining('more than 40000 different names')]);
	expect(read(JSON.stringify(signer.sign(text)), [signer.publicKey])).toHaveLength(1);
});

test('one name more than are named is one name', () => {
	const names = Array.from({ length: 21 }, (_, n) => [`bogus${n}`, 1]);
	const told = read(JSON.stringify({ format: 'idv-fleet-plan/1', revision: 1, ...Object.fromEntries(names) }), []);
	expect(told.at(-1)).toBe('plan.json: 1 more name is not known. [plan-invalid]');
	const { problems } = resolveSettings([{ source: 'file', where: 'c.json', document: Object.fromEntries(names) }]);
	expect(problems.at(-1)?.message).toBe('1 more name is not a setting.');
});

test('of settings, too, twenty unknown names are named and the others are counted', () => {
	const document = Object.fromEntries(Array.from({ length: 30_000 }, (_, n) => [`baseUr${n}`, 1]));
	const looks: unknown[] = [];
	const lineAndColumn = (keys: readonly PropertyKey[]) => `line ${looks.push(keys)}, column 1`;
	const { problems } = resolveSettings([{ source: 'file', where: 'config.json', document, lineAndColumn }]);
	expect(problems.map(({ message }) => message).slice(19)).toEqual([
		'config.json: line 20, column 1: baseUr19 is not a setting; did you mean baseUrl?',
		'29980 more names are not settings.',
		'pairing.trustedOrigins allows nothing: baseUrl was refused.',
	]);
	expect(looks).toHaveLength(20);
});

test('no name is compared with one that cannot be near, nor with too many', () => {
	let compared = 0;
	/** A name that counts how often it is read letter by letter. */
	const counting = (name: string) =>
		({
			length: name.length,
			slice: () => counting(name),
			lastIndexOf: () => -1,
			toLowerCase: () =>
				new Proxy(Object(name), {
					get(text, key) {
						compared += 1;
						return Reflect.get(text, key);
					},
				}),
		}) as unknown as string;
	expect(nearestName('x'.repeat(100_000), [counting('revision')])).toBeNull();
	expect(compared).toBe(0);
	expect(nearestName('revisoin', [counting('x'.repeat(100))])).toBeNull();
	expect(compared).toBeLessThan(10);
	expect(nearestName('revisoin', Array(10_001).fill('revision'))).toBeNull();
	expect(nearestName('revisoin', ['revision'])).toBe('revision');
});

describe('the outline of a text', () => {
	const most = { parts: 10, values: 10, names: 5 };

	test('passes over what is named, without making anything of it', () => {
		const text = `{"a":1,"x":{"x":{"b":[${'{},'.repeat(50)}0]}},"c":{"x":{}},"d":"x"}`;
		const { rest, names, isTooMuch } = outlineJson(text, 'plan', most, 'x');
		expect([rest, [...names], isTooMuch]).toEqual(['{"a":1,"x":{},"c":{"x":{}},"d":"x"}', ['a', 'x', 'c', 'd'], false]);
	});

	test('says where what is passed over is no JSON', () => {
		const { fault } = outlineJson('{"x":{ ,"revision":1}', 'plan', most, 'x');
		expect(fault).toMatch(/^line 1, column 8: a name in double quotes or } is expected here\.$/);
	});

	test.each([
		'[1,1,1,1,1,1,1,1,1,1,1]',
		'{"a":[[],[],[],[],[],[],[],[],[]]}',
		'{"a":{"b":1},"c":{"d":1},"e":{"f":1}}',
		`{"x":${'[['.repeat(1000)}`,
	])('ends where there is too much: %.20s', (text) =>
		expect(outlineJson(text, 'plan', most, 'x').isTooMuch).toBe(true),
	);
});
