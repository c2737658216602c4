import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';

const rules = readFileSync(new URL('../../docs/monitoring/alerts.yml', import.meta.url), 'utf8')
	.split('- alert: ')
	.slice(1);

test('each alert looks back as far as its words say, and remembers a silent device for a month', () => {
	const ranges = rules.map((rule) => [
		rule.split('\n')[0],
		[...rule.matchAll(/\[([^\]]+)\]/g)].map(([, range]) => range),
	]);
	expect(Object.fromEntries(ranges.filter(([, found]) => found?.length))).toEqual({
		IdvDeviceOffline: ['1d', '30d:1h'],
		IdvDeviceFlapping: ['1h'],
	});
	const flapping = rules.find((rule) => rule.startsWith('IdvDeviceFlapping'));
	expect(flapping).toMatch(/ > 6\n[\s\S]*times within an hour/);
});
