import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Ajv2020 } from 'ajv/dist/2020.js';
import { describe, expect, test } from 'vitest';
import { formatSettingsSchema, settingsSchema } from '../../scripts/settings-schema.ts';
import { resolveSettings } from '../../src/settings/resolve.ts';
import { listSettings } from '../../src/settings/table.ts';

const ROOT = join(import.meta.dirname, '../..');
const judge = new Ajv2020({ strict: false, allErrors: true }).compile(settingsSchema());
const nested = (path: string, value: unknown) =>
	path.split('.').reduceRight<unknown>((inner, name) => ({ [name]: inner }), value);

/** Texts that one setting or another takes, and that people write in the place of such a text: with `_` for a blank. */
const TEXTS =
	`_ _x x_ x a_b / /a /a/ /a_b /a/../b /./a /a.b/..c /a//b /%2f /a;b /a\\b /ä /a?b=1 /a#b //a a/b ./a ~/a /{deviceId}/{{_workflowId_}} /{tenant} {tenant} {{_tenant_}}
{"a":"{token}"} {"a":"{id}"} {"a":"{sentAtMs}"} {"a":"{sentAtMsx}"} /\${deviceId} /\${tenant} https:// https://x.example HTTPS://X.EXAMPLE/
_https://x.example/a_ https:/x.example https:x.example https://x.example:8443/a/ https://x.example/@a https://x.example/a?b=1
https://x.example/a#b https://u:p@x.example https://x.example/{tenant} https://*.example.com http://*:80 wss://*.example.com/a https://x.example/* https://{tenant}.example ftp://x.example file:///x http://x.example http://10.0.0.5:3128
http://127.0.0.1.example http://127.0.0.1:8080/a http://LOCALHOST http://[::1]:1 http://localhost.example http://u@localhost
wss://x.example/ws?a=1 WSS://x.example ws://x.example ws://localhost:1/a wss://x.example/#a wss://u:p@x.example
wss://x.example/{deviceId} wss://x.example/{tenant} X-Tenant:_north X-Tenant: X_Tenant:_a X-Tenant Host:_x HOST:_x Content-Type:_a
AUTHORIZATION:_x Hosting:_x Authorization COOKIE X-Forwarded-For Upgrade Upgraded 4001 999 5000 x4001 02:11:22:33:44:55
02-11-22-33-44-55 021122334455 00:00:00:00:00:00 ff-ff-FF-ff-ff-ff header:X cookie:a 02:00-05:00 24:00-01:00 auto serial planRing X-A lines ed25519:${'A'.repeat(43)}=
ed25519:${'A'.repeat(44)} ${'ä'.repeat(64)} ${'x'.repeat(65)} ${'x'.repeat(129)} ${'x'.repeat(4097)} a\0b a\u200bb`
		.split(/\s+/)
		.map((text) => text.replaceAll('_', ' '))
		.concat('');
/** A text in the place where a setting of the kind has one. */
const GIVEN = {
	...{ text: (one: string) => one, number: (one: string) => one, boolean: (one: string) => one },
	...{ list: (one: string) => [one], object: (one: string) => ({ [one]: 'retry' }) },
} satisfies Record<string, (one: string) => unknown>;

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

	test('takes and refuses of each setting alone the texts that the check takes and refuses [F1546]', () => {
		const judged = [...listSettings()].flatMap(([path, { kind, schema }]) =>
			TEXTS.map((one): unknown => GIVEN[kind](one)).map((value) => {
				const [taken, unmarked] = [schema.safeParse(value).success, judge(nested(path, value))];
				return { path, value, taken, unmarked };
			}),
		);
		expect(judged.filter(({ taken, unmarked }) => taken !== unmarked)).toEqual([]);
		expect(judged.filter(({ taken }) => taken).length).toBeGreaterThan(1000);
	});

	test('takes and refuses of each setting alone the same numbers, lists and objects, such as a message as an object [F1583]', () => {
		const message = { type: 'auth', of: { at: [1, null] } };
		const values: unknown[] = [
			0,
			1,
			-1,
			1.5,
			1e9,
			true,
			null,
			[],
			{},
			[1],
			[[]],
			[null],
			message,
			[message],
			[[message]],
		];
		const judged = [...listSettings()].flatMap(([path, { schema }]) =>
			values.map((value) => {
				const [taken, unmarked] = [schema.safeParse(value).success, judge(nested(path, value))];
				return { path, value, taken, unmarked };
			}),
		);
		expect(judged.filter(({ taken, unmarked }) => taken !== unmarked)).toEqual([]);
		expect(judged.filter(({ value, taken }) => value === message && taken).length).toBeGreaterThan(2);
	});

	test('takes the settings that the documents show', () => {
		const shown = globSync('docs/*.md', { cwd: ROOT }).flatMap((page) => [
			...readFileSync(join(ROOT, page), 'utf8').matchAll(
				/(?:JSON'\n|echo ')(\{[^'`]*\})(?:\nJSON|' > config\.json)\n/gs,
			),
		]);
		expect(shown.length).toBeGreaterThan(1);
		for (const [, text = ''] of shown) {
			const document: unknown = JSON.parse(text);
			expect(judge(document), text).toBe(true);
			expect(resolveSettings([{ source: 'file', where: 'config.json', document }]).problems).toEqual([]);
		}
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
