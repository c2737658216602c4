import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';

const text = readFileSync(new URL('../../docs/monitoring/alerts.yml', import.meta.url), 'utf8');
const rules = text.split('- alert: ').slice(1);

test('each alert looks back as far as its words say, and remembers a silent device for a month', () => {
	const ranges = rules.map((rule) => [
		rule.split('\n')[0],
		[...rule.matchAll(/\[([^\]]+)\]/g)].map(([, range]) => range),
	]);
	expect(Object.fromEntries(ranges.filter(([, found]) => found?.length))).toEqual({
		IdvCrashLoop: ['1h'],
		IdvDeviceFlapping: ['1h'],
	});
	expect(text).toContain('(last_over_time(idv_agent_online[1d]) or last_over_time(idv_agent_online[30d:1h]))');
	const flapping = rules.find((rule) => rule.startsWith('IdvDeviceFlapping'));
	expect(flapping).toMatch(/ > 6\n[\s\S]*times within an hour/);
});
