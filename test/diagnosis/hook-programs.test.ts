/** Whether the programs of hooks can be run. */
import { chmod, copyFile, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { hooksThatCannotRun } from '../../src/diagnosis/hook-programs.edge.ts';
import type { Settings } from '../../src/settings/table.ts';

const NOBODY = 65_534;

test.skipIf(process.geteuid?.() !== 0)(
	'of a hook that this user may run and not read nothing is said; of one that it may not run it is (needs root) [F957]',
	async () => {
		const directory = await mkdtemp(join(tmpdir(), 'hooks-'));
		onTestFinished(() => rm(directory, { recursive: true }));
		const [runs, not] = ['runs', 'not'].map((name) => join(directory, name)) as [string, string];
		await chmod(directory, 0o755);
		for (const [file, mode] of [
			[runs, 0o711],
			[not, 0o600],
		] as const) {
			await copyFile('/bin/true', file);
			await chmod(file, mode);
		}
		const found = (program: string) => hooksThatCannotRun({ hooks: { onOnline: [program] } } as unknown as Settings);
		const seteuid = process.seteuid?.bind(process) ?? (() => {});
		seteuid(NOBODY);
		try {
			expect(found(runs)).toEqual([]);
			expect(found(not)).toMatchObject([{ message: expect.stringContaining('cannot be run: chmod 0755') }]);
		} finally {
			seteuid(0);
		}
	},
);
