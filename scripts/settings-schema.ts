/** The settings for editors: `docs/settings.schema.json`, a JSON Schema (draft 2020-12) of `config.json` and `conf.d`, which `node scripts/settings-schema.ts` writes again. */
import { realpathSync, writeFileSync } from 'node:fs';
import * as z from 'zod';
import { made } from '../src/protocol/later.ts';
import { listSettings } from '../src/settings/table.ts';

interface Group {
	readonly type: 'object';
	readonly properties: Record<string, object>;
	readonly additionalProperties: false;
}

const group = (properties: Record<string, object> = {}): Group => ({
	type: 'object',
	properties,
	additionalProperties: false,
});

/** Each setting alone: whether files are there and what fits together is left to `idv-agent config check`. */
export function settingsSchema(): object {
	const root = group({
		$schema: { type: 'string', description: 'Where an editor finds this schema; the agent passes over it.' },
	});
	for (const [path, { about, fallback, schema }] of listSettings()) {
		const names = path.split('.');
		const name = names.pop() ?? '';
		let into = root;
		for (const each of names) {
			into.properties[each] ??= group();
			into = into.properties[each] as Group;
		}
		const { $schema: _, ...form } = z.toJSONSchema(made(schema), { io: 'input', unrepresentable: 'any' });
		into.properties[name] = { description: about, ...form, ...(fallback !== null && { default: fallback }) };
	}
	const title = 'Settings of idv-agent';
	return { $schema: 'https://json-schema.org/draft/2020-12/schema', title, allowComments: true, ...root };
}

export const formatSettingsSchema = () => `${JSON.stringify(settingsSchema(), null, '\t')}\n`;

if (process.argv[1] !== undefined && realpathSync(process.argv[1]) === import.meta.filename)
	writeFileSync(new URL('../docs/settings.schema.json', import.meta.url), formatSettingsSchema());
