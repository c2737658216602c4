import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';

const text = readFileSync(new URL('../../docs/monitoring/alerts.yml', import.meta.url), 'utf8');
const rules = text.split(/- (?:alert|record): /).slice(1);
const ruleOf = (name: string) => rules.find((rule) => rule.startsWith(`${name}\n`)) ?? '';

test('each alert looks back as far as its words say, and remembers a silent device for a month', () => {
	const ranges = rules.map((rule) => [
		rule.split('\n')[0],
		[...rule.matchAll(/\[([^\]]+)\]/g)].map(([, range]) => range),
	]);
	expect(Object.fromEntries(ranges.filter(([, found]) => found?.length))).toEqual({
		IdvSharedDeviceId: ['1h'],
		'idv:silent': ['1d', '30d:1h'],
		'idv:trouble': ['1h', '1h', '1h', '1h'],
	});
	expect(text).toContain('(last_over_time(idv_agent_online[1d]) or last_over_time(idv_agent_online[30d:1h]))');
	expect(ruleOf('idv:trouble')).toMatch(/idv_agent_reconnects_total\[1h\]\)\) > 6\n/);
	expect(ruleOf('IdvDeviceFlapping')).toMatch(/kind="cuts"[\s\S]*times within an hour/);
});

// promtool runs them.
test.each([
	['The line of k came and went 4 times', /changes\(idv_agent_online\[1h\]\)\) \/ 2 > 1\.5[^"]*"kind", "cuts"/],
	['5 devices have the same trouble (person)', /count\(idv:silent or idv:online\) >= 0\.2$/m],
])(
	'a device that is offline most of the time is told, and a fifth of the devices are many (%s) [F1665]',
	(told, rule) => {
		expect(text).toMatch(rule);
		expect(readFileSync(new URL('../../docs/monitoring/alerts.test.yml', import.meta.url), 'utf8')).toContain(told);
	},
);

test('each kind of trouble has an alert of one device, which that of many holds back, and a case in which all have it [F727]', () => {
	const kinds = [...ruleOf('idv:trouble').matchAll(/"kind", "(\w+)"/g)].map(([, kind]) => kind);
	expect(kinds).toHaveLength(8);
	const cases = readFileSync(new URL('../../docs/monitoring/alerts.test.yml', import.meta.url), 'utf8');
	for (const kind of kinds) {
		// One alert for each reason, however many devices refuse a plan for it.
		if (kind === 'refusal') {
			expect(ruleOf('IdvPlanRefused')).toContain('count by (code) (idv:trouble{kind="refusal"})');
			expect(cases).toContain('refused by 5 of the devices (plan-untrusted)');
			continue;
		}
		expect(text).toContain(`max by (device) (idv:trouble{kind="${kind}"} unless on (kind) idv:many)`);
		expect(cases).toContain(kind === 'plan' ? 'IdvPlanFails' : `devices have the same trouble (${kind})`);
	}
});
