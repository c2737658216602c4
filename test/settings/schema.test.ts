import { readFileSync } from 'node:fs';
import { Ajv2020 } from 'ajv/dist/2020.js';
import { describe, expect, test } from 'vitest';
import { formatSettingsSchema, settingsSchema } from '../../scripts/settings-schema.ts';
import { listSettings } from '../../src/settings/table.ts';

const judge = new Ajv2020({ strict: false, allErrors: true }).compile(settingsSchema());
const nested = (path: string, value: unknown) =>
	path.split('.').reduceRight<unknown>((inner, name) => ({ [name]: inner }), value);

describe('the schema of the settings', () => {
	test('is the one in the documents', () => {
		const written = readFileSync(new URL('../../docs/settings.schema.json', import.meta.url), 'utf8');
		expect(written, 'node scripts/settings-schema.ts writes it').toBe(formatSettingsSchema());
	});

	test.each([...listSettings()])('knows %s, its default and what is no value of it', (path, { kind, fallback }) => {
		expect(judge(nested(path, fallback))).toBe(true);
		expect(judge(nested(path, kind === 'boolean' ? 'on' : true))).toBe(false);
		expect(judge(nested(`${path}x`, fallback))).toBe(false);
	});

	test('takes a file that names it, and refuses what the agent refuses', () => {
		const given = { $schema: './settings.schema.json', baseUrl: 'https://id.example.com', heartbeatCadence: 60 };
		expect(judge(given)).toBe(true);
		for (const wrong of [
			{ heartbeatCadence: 0 },
			{ service: { channelAuth: 'both' } },
			{ service: { frameContents: 'events' } },
			{ deviceType: '' },
			[],
		])
			expect(judge(wrong)).toBe(false);
	});
});
