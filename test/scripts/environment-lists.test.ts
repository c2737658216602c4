import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';

const ROOT = join(import.meta.dirname, '../..');

test('every unit removes the same variables that change how Node runs, also the one that the program writes itself', () => {
	const units = globSync('systemd/**/*.service', { cwd: ROOT });
	const removed = [...units, 'src/updates/keep.edge.ts'].map((path) => [
		path,
		/UnsetEnvironment=([A-Z0-9_ ]+)/.exec(readFileSync(join(ROOT, path), 'utf8'))?.[1]?.trim(),
	]);
	const [, wanted] = removed.find(([path]) => path === 'systemd/idv-agent.service') ?? [];
	expect(units.length).toBeGreaterThan(7);
	expect(wanted).toContain('SSL_CERT_FILE');
	expect(removed.filter(([, names]) => names !== wanted)).toEqual([]);
});
