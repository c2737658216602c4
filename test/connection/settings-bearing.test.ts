import { expect, test } from 'vitest';
import { bearsOn } from '../../src/connection/settings-bearing.ts';
import { listSettings, type Settings } from '../../src/settings/table.ts';

/** Every setting at its default, with one changed. */
function given(changed?: string): Settings {
	const tree: Record<string, unknown> = {};
	for (const [path, { fallback }] of listSettings()) {
		const keys = path.split('.');
		const last = keys.pop() ?? '';
		const group = keys.reduce((at, key) => {
			at[key] ??= {};
			return at[key] as Record<string, unknown>;
		}, tree);
		group[last] = path === changed ? ['changed'] : fallback;
	}
	return tree as unknown as Settings;
}

test('every setting of service, network and credential bears on a failure, and no other does', () => {
	expect(bearsOn(given(), given())).toBe(false);
	for (const path of listSettings().keys())
		expect([path, bearsOn(given(), given(path))]).toEqual([path, /^(service|network|credential)\./.test(path)]);
});
